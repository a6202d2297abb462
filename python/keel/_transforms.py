"""Unwraps tensors from the transforms of ``torch.func`` (``functorch`` in torch 1.13), for layers and keel.watch."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

import torch
from torch import Tensor

from ._interrupt import is_compiling

_is_wrapped: Optional[Callable[[Tensor], bool]] = getattr(
    getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None
)


def belongs_to_a_transform(tensor: Tensor) -> bool:
    return not is_compiling() and _is_wrapped is not None and _is_wrapped(tensor)


def unwrapped(tensor: Tensor) -> Tensor:
    """The tensor inside all transforms, which outlives them. A dimension mapped by vmap becomes an ordinary one."""
    while belongs_to_a_transform(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def kept(*tensors: Tensor) -> Tuple[Optional[Tensor], ...]:
    """The detached tensors, or None for each if they belong to a transform and would not outlive it."""
    if belongs_to_a_transform(tensors[0]):
        return (None,) * len(tensors)
    return tuple(tensor.detach() for tensor in tensors)
