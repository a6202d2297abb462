"""Lets ``torch.jit.script`` compile calls of this package's functions, as calls of their operators.

In a scripted function, rules and rank policies are strings, ``keel.sqrtm(matrix, "taylor(terms=9)")``, and functions
with several results return plain tuples.
"""

from __future__ import annotations

from torch.jit import _builtins

from . import linalg, rectangular, rotations

#: Functions whose operator has another name. Where an option would add results, the scripted function returns only
#: those without the option.
OPERATORS = {
    "kabsch": "rigid_motion",
    "singular": "singular_result",
    "special_procrustes": "nearest_rotation",
    "spectral": "spectral_result",
}


def register() -> None:
    # The table of torch's own functions. There is no public way to add to it.
    add = getattr(_builtins, "_register_builtin", None)
    if add is None:
        return
    for module in (linalg, rectangular, rotations):
        for name in module.__all__:
            function = getattr(module, name)
            if not isinstance(function, type):  # skip result types such as Eigh
                add(function, f"keel::{OPERATORS.get(name, name)}")
