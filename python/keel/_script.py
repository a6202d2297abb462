"""Functions of this package as ``torch.jit.script`` sees them: the operators behind them.

In a scripted function rules and rank policies are texts, ``keel.sqrtm(matrix, "taylor(terms=9)")``, and results of
several tensors are tuples.
"""

from __future__ import annotations

from torch.jit import _builtins

from . import linalg, rectangular, rotations

#: The function's name, and its operator's. Those of which an option adds results have none but the first ones here.
OPERATORS = {
    linalg: {
        "eigh": "eigh",
        "expm": "expm",
        "inv_sqrtm": "inv_sqrtm",
        "invm": "invm",
        "logm": "logm",
        "powm": "powm",
        "projector": "projector",
        "spectral": "spectral_and_kept",
        "sqrtm": "sqrtm",
    },
    rotations: {
        "kabsch": "rigid_motion",
        "polar": "polar",
        "procrustes": "procrustes",
        "special_procrustes": "nearest_rotation",
    },
    rectangular: {
        "low_rank": "low_rank",
        "nuclear_norm": "nuclear_norm",
        "pinv": "pinv",
        "singular": "singular_result",
        "soft_threshold": "soft_threshold",
        "svd": "svd",
        "svdvals": "svdvals",
    },
}


def register() -> None:
    # torch's own functions are in the same table, and it has no public door.
    add = getattr(_builtins, "_register_builtin", None)
    if add is None:
        return
    for module, operators in OPERATORS.items():
        for name, operator in operators.items():
            add(getattr(module, name), f"keel::{operator}")
