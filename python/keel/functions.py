"""What :func:`keel.spectral` and :func:`keel.singular` need of a function of your own: its values and derivatives."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from ._interrupt import is_compiling


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
    if not isinstance(matrix, Tensor) and hasattr(matrix, "__torch_function__"):
        raise TypeError(f"{operation}: torch.fx cannot trace a function of your own; hide the call in torch.fx.wrap")


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


def derivatives(operation: str, f: Callable[[Tensor], Tensor], points: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
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
    return y, s, curve
