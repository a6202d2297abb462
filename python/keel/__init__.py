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

from . import _script, nn, rules  # noqa: E402  (the operators come first)
from .diagnosis import watch  # noqa: E402
from .linalg import (  # noqa: E402
    Eigh,
    Spectral,
    eigh,
    expm,
    inv_sqrtm,
    invm,
    logm,
    powm,
    projector,
    spectral,
    sqrtm,
)
from .rectangular import (  # noqa: E402
    Svd,
    low_rank,
    nuclear_norm,
    pinv,
    singular,
    soft_threshold,
    svd,
    svdvals,
)
from .rotations import Polar, kabsch, polar, procrustes, special_procrustes  # noqa: E402
from .rules import *  # noqa: E402, F401, F403

__version__ = _version.read()
_script.register()

__all__ = [
    "Eigh",
    "Polar",
    "Spectral",
    "Svd",
    "eigh",
    "expm",
    "inv_sqrtm",
    "invm",
    "kabsch",
    "logm",
    "low_rank",
    "nn",
    "nuclear_norm",
    "pinv",
    "polar",
    "powm",
    "procrustes",
    "projector",
    "singular",
    "soft_threshold",
    "special_procrustes",
    "spectral",
    "sqrtm",
    "svd",
    "svdvals",
    "watch",
]
__all__ += rules.__all__  # the form that type checkers understand
