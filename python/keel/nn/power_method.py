"""A layer whose eigendecomposition is the paper's baseline: power iteration, unrolled by autograd.

Composed of differentiable operators. It is there to be measured against: plain, not fast."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from . import synchronise


def whiten(
    input: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    groups: int,
    map: str,
    rule: str,
    group: Any = None,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Output, mean, covariance, subspace and rank, as of ``torch.ops.keel.whiten_forward``; with the
    moments of all processes of a ``group``."""
    if group is None and input.shape[0] * input.shape[2:].numel() <= 1:
        raise ValueError(
            "keel.power_method: expected more than 1 value per channel when training, "
            f"got input size {tuple(input.shape)}"
        )
    if group is None:
        mean, covariance = torch.ops.keel.moments(input, groups)
    else:
        mean, covariance = _moments_of_all(input, groups, group)
    subspace, _, rank = torch.ops.keel.power_method_subspace(covariance, map, rule)
    matrix = subspace
    if weight is not None:
        matrix = subspace * weight.to(subspace.dtype).view(groups, -1, 1)
    output = torch.ops.keel.affine(input, matrix, mean, bias)
    return output, mean.detach(), covariance.detach(), subspace.detach(), rank


class _Sum(torch.autograd.Function):
    """The sum over all processes. Its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = own.clone(memory_format=torch.contiguous_format)
        synchronise.sum_over(group, total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sum.apply(grad, ctx.group), None


@synchronise.uncompiled
def _moments_of_all(input: Tensor, groups: int, group: Any) -> Tuple[Tensor, Tensor]:
    samples = input.shape[0] * input.shape[2:].numel()
    if samples > 0:
        mean, covariance = torch.ops.keel.moments(input, groups)
    else:  # zeros that hang on the input like any other: all have to take part in backward
        mean = input.transpose(0, 1).flatten(1).sum(1)
        covariance = mean.new_zeros(groups, mean.shape[0] // groups, mean.shape[0] // groups)
    dtype = torch.float64 if input.dtype == torch.float64 else torch.float32
    mean = mean.double()
    totals = _Sum.apply(torch.cat([mean.new_ones(1), mean]) * samples, group)
    count, middle = totals[:1], totals[1:] / totals[:1]
    synchronise.check_samples(group, count)
    off = (mean - middle).view(groups, -1, 1)
    covariance = _Sum.apply((covariance + off * off.mT) * samples, group) / count
    return middle.to(dtype), covariance.to(dtype)
