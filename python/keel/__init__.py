"""keel: eigendecompositions, SVDs, functions of matrices and whitening layers, with gradients that do not blow up when
eigenvalues are close or equal.

>>> M = torch.eye(3, requires_grad=True)  # all eigenvalues are equal
>>> torch.autograd.grad(keel.inv_sqrtm(M)[0, 1], M)[0][0, 1]  # by torch.linalg.eigh it is NaN
tensor(-0.2500)
>>> eigenvalues, eigenvectors = keel.eigh(M)
>>> layer = keel.nn.ZcaWhitening(64)

=========================== =================================================================================
:mod:`keel.linalg`          symmetric matrices: eigh, eigvalsh, sqrtm, inv_sqrtm, invm, logm, expm, powm,
                            projector, spectral, generalized_eigh, generalized_projector
:mod:`keel.rectangular`     matrices of any shape: svd, svdvals, singular, pinv, low_rank, soft_threshold,
                            nuclear_norm
:mod:`keel.rotations`       polar, procrustes, special_procrustes, kabsch
:mod:`keel.partial`         a few values of large matrices: eigsh, svds, LinearOperator
:mod:`keel.nn`              layers: ZcaWhitening, PcaDenoising, PcaWhitening, and convert_batchnorm
:mod:`keel.rules`           gradient rules and rank policies, which the others take as arguments
:func:`keel.watch`          why is this model's gradient NaN?
=========================== =================================================================================

Everything calls the operators ``torch.ops.keel.*``, which C++ programs use too.
"""

from . import _library, _version

_library.load()

from . import _script, linalg, nn, partial, rectangular, rotations, rules  # noqa: E402  (needs the operators)
from .diagnosis import watch  # noqa: E402
from .linalg import *  # noqa: E402, F401, F403
from .partial import *  # noqa: E402, F401, F403
from .rectangular import *  # noqa: E402, F401, F403
from .rotations import *  # noqa: E402, F401, F403
from .rules import *  # noqa: E402, F401, F403

__version__ = _version.read()
_script.register()

__all__ = ["nn", "watch"]
__all__ += linalg.__all__  # type checkers understand += of one list, but not a loop
__all__ += partial.__all__
__all__ += rectangular.__all__
__all__ += rotations.__all__
__all__ += rules.__all__
