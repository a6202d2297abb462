"""Functions of this package as ``torch.jit.script`` sees them: the operators behind them.

In a scripted function rules and rank policies are texts, ``keel.sqrtm(matrix, "taylor(terms=9)")``, and results of
several tensors are tuples.
"""

from __future__ import annotations

from torch.jit import _builtins

from . import linalg, rectangular, rotations

#: A function's operator has its name, but for these. Those of which an option adds results have none but the first
#: ones here.
OPERATORS = {
    "kabsch": "rigid_motion",
    "singular": "singular_result",
    "special_procrustes": "nearest_rotation",
    "spectral": "spectral_and_kept",
}


def register() -> None:
    # torch's own functions are in the same table, and it has no public door.
    add = getattr(_builtins, "_register_builtin", None)
    if add is None:
        return
    for module in (linalg, rectangular, rotations):
        for name in module.__all__:
            function = getattr(module, name)
            if not isinstance(function, type):  # the types of results
                add(function, f"keel::{OPERATORS.get(name, name)}")
