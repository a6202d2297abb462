"""Functions of this package as ``torch.jit.script`` sees them: the operators behind them.

In a scripted function rules and rank policies are texts, ``keel.sqrtm(matrix, "taylor(terms=9)")``, and results of
several tensors are tuples.
"""

from __future__ import annotations

from torch.jit import _builtins

from . import linalg

#: The function's name, and its operator's where that is another one.
OPERATORS = {
    "eigh": "eigh",
    "expm": "expm",
    "inv_sqrtm": "inv_sqrtm",
    "invm": "invm",
    "logm": "logm",
    "powm": "powm",
    "projector": "projector",
    "spectral": "spectral_and_kept",
    "sqrtm": "sqrtm",
}


def register() -> None:
    # torch's own functions are in the same table, and it has no public door.
    add = getattr(_builtins, "_register_builtin", None)
    if add is None:
        return
    for name, operator in OPERATORS.items():
        add(getattr(linalg, name), f"keel::{operator}")
