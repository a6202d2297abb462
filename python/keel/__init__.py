"""keel: eigendecomposition you can backpropagate through.

>>> eigenvalues, eigenvectors = keel.eigh(torch.eye(4), keel.Masked())
>>> layer = keel.nn.ZcaWhitening(64)

:mod:`keel.linalg` has functions of symmetric matrices, :mod:`keel.rectangular` and :mod:`keel.rotations` those of other
matrices, and :mod:`keel.nn` the layers. They take gradient rules and rank policies from :mod:`keel.rules`.
:func:`keel.watch` helps to find out why a model's gradient is NaN. Everything calls the operators ``torch.ops.keel.*``,
which C++ programs use too.
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
