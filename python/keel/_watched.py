"""The operations that :func:`keel.watch` observes, and what it records of each."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from .rules import checked


class Seen(NamedTuple):
    """What is recorded of a call."""

    result: Any
    values: Tensor  # eigenvalues or singular values (..., n), ascending or descending
    kept: Optional[Tensor]  # how many of them are used (...)
    rule: str
    margin: Optional[Tensor] = None  # (...), instead of gaps: the distance from an ambiguous answer
    floor: Optional[float] = None  # smaller values are raised to this


def _spectral(function: Callable[..., Tuple[str, str, str]]) -> Callable[..., Seen]:
    """A named function of matrices, computed by the operator that also returns the eigenvalues."""

    def see(matrix: Tensor, *arguments: Any, **options: Any) -> Seen:
        text, rank, rule = function(*arguments, **options)
        result, values, _, kept = torch.ops.keel.spectral(matrix, text, rank, rule)
        return Seen(result, values, kept, rule)

    return see


def _named(name: str) -> Callable[..., Seen]:
    return _spectral(lambda rule="exact": (name, "full", rule))


def _of_eigh(matrix: Tensor, rule: str = "masked", descending: bool = False) -> Seen:
    result = torch.ops.keel.eigh(matrix, rule, descending)
    return Seen(result, result[0], None, rule)


def _of_eigvalsh(matrix: Tensor) -> Seen:
    result = torch.ops.keel.eigvalsh(matrix)
    return Seen(result, result, None, "exact")


def _of_spectral(matrix: Tensor, function: str, rank: str = "full", rule: str = "exact") -> Seen:
    result = torch.ops.keel.spectral(matrix, function, rank, rule)
    return Seen(result, result[1], result[3], rule)


def _evaluated(operator: Any, values: int, kept: int) -> Callable[..., Seen]:
    """A function of the user's own. The operator's arguments of these numbers are the values, and how many are kept."""
    return lambda *arguments: Seen(operator(*arguments), arguments[values], arguments[kept], "exact")


def _of_generalized(A: Tensor, B: Tensor, rule: str = "masked", *rest: Any) -> Seen:
    result = torch.ops.keel.generalized_eigh(A, B, rule, *rest)
    return Seen(result, result[0], result[2], rule)


def _of_svd(matrix: Tensor, rule: str = "masked") -> Seen:
    result = torch.ops.keel.svd(matrix, rule)
    return Seen(result, result[1], None, rule)


def _of_singular(matrix: Tensor, function: str, rank: str = "full") -> Seen:
    result = torch.ops.keel.singular(matrix, function, rank)
    return Seen(result, result[2], result[4], "exact")


def _singular(function: Callable[..., Tuple[str, str]]) -> Callable[..., Seen]:
    """A named function of singular values."""

    def see(matrix: Tensor, *arguments: Any, **options: Any) -> Seen:
        seen = _of_singular(matrix, *function(*arguments, **options))
        return seen._replace(result=seen.result[0])

    return see


def _of_pinv(matrix: Tensor, rtol: Optional[float] = None) -> Seen:
    seen = _of_singular(matrix, "inv" if rtol is None else f"inv(rtol={float(rtol)!r})")
    return seen._replace(result=seen.result[0].mH)


def _beside(operator: Any, ambiguous: bool = False) -> Callable[..., Seen]:
    """A function that does not return its singular values. They are computed in addition, for the record."""

    def see(matrix: Tensor) -> Seen:
        result, values = operator(matrix), torch.ops.keel.svdvals(matrix.detach())
        margin = values[..., -1] if ambiguous and values.shape[-1] > 0 else None
        if margin is not None and matrix.shape[-1] == matrix.shape[-2] and not matrix.is_complex():
            # For a real square matrix one value may be zero without ambiguity.
            margin = values[..., -2] + margin if values.shape[-1] > 1 else None
        return Seen(result, values, None, "exact", margin)

    return see


def _of_rotation(matrix: Tensor) -> Seen:
    result = torch.ops.keel.special_procrustes(matrix)
    margin = result[1] if matrix.shape[-1] > 1 else None
    return Seen(result, torch.ops.keel.svdvals(matrix.detach()), None, "exact", margin)


def _of_kabsch(P: Tensor, Q: Tensor, weights: Optional[Tensor] = None, scale: bool = False) -> Seen:
    result = torch.ops.keel.kabsch(P, Q, weights, scale)
    with torch.no_grad():
        w = (torch.ones_like(P[..., 0]) if weights is None else weights).double().unsqueeze(-1)
        w = w / w.sum(-2, keepdim=True).clamp_min(torch.finfo(torch.double).tiny)
        p, q = ((x.double() - (w * x).sum(-2, keepdim=True)) for x in (P, Q))
        seen = _of_rotation(q.mT @ (w * p))
    return seen._replace(result=result)


def _of_layer(
    input: Tensor, weight: Any, bias: Any, groups: int, map: str, rule: str = "exact", *ending: Any, **options: Any
) -> Seen:
    result = torch.ops.keel.whiten_forward(input, weight, bias, groups, map, rule, *ending, **options)
    eps = float(checked("layer_map", map).partition("eps=")[2].partition(",")[0])
    return Seen(result, result[4], result[6], rule, floor=eps)


def _of_torch(function: Callable[..., Any], place: int) -> Callable[..., Seen]:
    def see(*arguments: Any, **options: Any) -> Seen:
        result = function(*arguments, **options)
        return Seen(result, result[place], None, "torch")

    return see


OPERATIONS: Dict[Any, Tuple[str, Callable[..., Seen]]] = {
    torch.linalg.eigh: ("torch.linalg.eigh", _of_torch(torch.linalg.eigh, 0)),
    torch.linalg.svd: ("torch.linalg.svd", _of_torch(torch.linalg.svd, 1)),
    torch.ops.keel.eigh: ("eigh", _of_eigh),
    torch.ops.keel.eigvalsh: ("eigvalsh", _of_eigvalsh),
    torch.ops.keel.svd: ("svd", _of_svd),
    torch.ops.keel.generalized_eigh: ("generalized_eigh", _of_generalized),
    torch.ops.keel.spectral_of: ("spectral", _evaluated(torch.ops.keel.spectral_of, 1, 3)),
    torch.ops.keel.singular_of: ("singular", _evaluated(torch.ops.keel.singular_of, 2, 4)),
    torch.ops.keel.spectral: ("spectral", _of_spectral),
    torch.ops.keel.sqrtm: ("sqrtm", _named("sqrt")),
    torch.ops.keel.inv_sqrtm: ("inv_sqrtm", _named("inv_sqrt")),
    torch.ops.keel.invm: ("invm", _named("inv")),
    torch.ops.keel.logm: ("logm", _named("log")),
    torch.ops.keel.expm: ("expm", _named("exp")),
    torch.ops.keel.powm: (
        "powm",
        _spectral(lambda exponent, rule="exact": (f"power(exponent={float(exponent)!r})", "full", rule)),
    ),
    torch.ops.keel.projector: ("projector", _spectral(lambda rank, rule="exact": ("one", rank, rule))),
    torch.ops.keel.svdvals: ("svdvals", _beside(torch.ops.keel.svdvals)),
    torch.ops.keel.nuclear_norm: ("nuclear_norm", _beside(torch.ops.keel.nuclear_norm)),
    torch.ops.keel.singular: ("singular", _of_singular),
    torch.ops.keel.pinv: ("pinv", _of_pinv),
    torch.ops.keel.low_rank: ("low_rank", _singular(lambda rank: ("identity", rank))),
    torch.ops.keel.soft_threshold: (
        "soft_threshold",
        _singular(lambda threshold: (f"soft_threshold(threshold={float(threshold)!r})", "full")),
    ),
    torch.ops.keel.polar: ("polar", _beside(torch.ops.keel.polar, ambiguous=True)),
    torch.ops.keel.procrustes: ("procrustes", _beside(torch.ops.keel.procrustes, ambiguous=True)),
    torch.ops.keel.special_procrustes: ("special_procrustes", _of_rotation),
    torch.ops.keel.kabsch: ("kabsch", _of_kabsch),
    torch.ops.keel.whiten_forward: ("layer", _of_layer),
}
