"""What :func:`keel.spectral` and :func:`keel.singular` need of a function of your own: its values and derivatives."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from ._interrupt import check_tensor, is_compiling
from ._transforms import belongs_to_a_transform


def _grad() -> Any:
    if hasattr(torch, "func"):
        return torch.func.grad
    import functorch  # type: ignore[import]  # of torch 1.13

    return functorch.grad


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The type in which matrices of this type are computed."""
    return torch.float if dtype in (torch.half, torch.bfloat16) else dtype


def check_function(operation: str, matrix: Any, f: Any, exponent: Any = None) -> None:
    if not callable(f):
        raise TypeError(f"{operation}: expected a function of torch's operations, got {f!r}")
    if exponent is not None:
        raise ValueError(f"{operation}: expected an exponent only with 'power', got one with {f!r}")
    check_tensor(operation, matrix)
    if not isinstance(matrix, Tensor):
        raise TypeError(f"{operation}: torch.fx cannot trace a function of your own; hide the call in torch.fx.wrap")
    if matrix.layout != torch.strided or matrix.is_quantized:  # for which torch has no kernel, and a page to say so
        got = matrix.dtype if matrix.is_quantized else matrix.layout
        raise TypeError(f"{operation}: expected a dense tensor, got {got}")


def kept_points(values: Tensor, kept: Optional[Tensor]) -> Tensor:
    """The values with those that are not kept replaced by the largest, since f may be undefined at them."""
    if kept is None:
        return values
    places = torch.arange(values.shape[-1], device=values.device)
    return torch.where(places < kept.unsqueeze(-1), values, values[..., :1])


def _of_the_caller(operation: str, f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    if is_compiling():
        return f(x)
    try:
        return f(x)
    except Exception as error:
        if type(error) not in (AttributeError, RuntimeError, TypeError, ValueError):
            raise
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise TypeError(
            f"{operation}: expected a function of your own to map a tensor {tuple(x.shape)} to one of the same shape "
            f"by torch's operations, and it raised {why}"
        ) from error


def _check_entry_by_entry(operation: str, f: Callable[[Tensor], Tensor], points: Tensor) -> None:
    """f(l) = l / l.sum() has a value, but no f', and the gradient would be wrong without an error."""
    with torch.enable_grad():
        x = points.detach().requires_grad_()
        y = f(x)
        for some in (0, 1) if y.requires_grad else ():  # the even ones must not see the odd ones, nor these the even
            slope = torch.autograd.grad(y[..., some::2].sum(), x, retain_graph=True, allow_unused=True)[0]
            if slope is not None and bool((slope[..., 1 - some :: 2].abs() > 0).any()):  # NaN is 0 * inf
                raise ValueError(
                    f"{operation}: expected a function of your own to map each eigenvalue by itself, got one whose "
                    "value at an eigenvalue depends on the others; make such a number of the matrix, as its trace or "
                    "keel.eigvalsh(matrix).amax(-1, True), and let the function use that"
                )


def derivatives(
    operation: str, f: Callable[[Tensor], Tensor], points: Tensor, matrix: Tensor
) -> Tuple[Tensor, Tensor, Tensor]:
    """f, f' and f'' at the points, each differentiable with respect to the tensors that f uses."""
    grad = _grad()

    def value(x: Tensor) -> Tuple[Tensor, Tensor]:
        y = _of_the_caller(operation, f, x)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            found = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(
                f"{operation}: expected a function of your own to map each eigenvalue to one number, "
                f"{tuple(x.shape)} to {tuple(x.shape)}, got {found}"
            )
        if y.is_complex():
            raise ValueError(f"{operation}: expected a function of your own to have real values, got {y.dtype}")
        y = y.to(x.dtype)
        return y.sum(), y

    def slope(x: Tensor) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        s, y = grad(value, has_aux=True)(x)
        return s.sum(), (y, s)

    curve, (y, s) = grad(slope, has_aux=True)(points)
    if (
        matrix.requires_grad  # a gradient to f's own tensors is right in any case
        and torch.is_grad_enabled()
        and points.device.type == "cpu"  # on CUDA the host would wait
        and type(points) is Tensor  # not a DTensor, nor one without numbers, as of torch.export
        and not (is_compiling() or torch.jit.is_tracing() or belongs_to_a_transform(points))
    ):
        _check_entry_by_entry(operation, f, points)
    return y, s, curve
