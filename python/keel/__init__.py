"""keel: eigendecomposition you can backpropagate through.

>>> eigenvalues, eigenvectors = keel.eigh(torch.eye(4), keel.Masked())
>>> layer = keel.nn.ZcaWhitening(64)

Functions of symmetric matrices are in :mod:`keel.linalg`, those of other matrices in :mod:`keel.rectangular` and
:mod:`keel.rotations`, layers in :mod:`keel.nn`. Gradient rules and rank policies, which these take as arguments, are in
:mod:`keel.rules`. :func:`keel.watch` finds out why a model's gradient is NaN. Everything calls the operators
``torch.ops.keel.*``, which C++ programs use too.
"""

from . import _library, _version

_library.load()

from . import _script, linalg, nn, rectangular, rotations, rules  # noqa: E402  (the operators come first)
from .diagnosis import watch  # noqa: E402
from .linalg import *  # noqa: E402, F401, F403
from .rectangular import *  # noqa: E402, F401, F403
from .rotations import *  # noqa: E402, F401, F403
from .rules import *  # noqa: E402, F401, F403

__version__ = _version.read()
_script.register()

__all__ = ["nn", "watch"]
__all__ += linalg.__all__  # one by one, which type checkers understand
__all__ += rectangular.__all__
__all__ += rotations.__all__
__all__ += rules.__all__
