"""A layer whose eigendecomposition is the paper's baseline: power iteration, unrolled by autograd.

Composed of differentiable operators. It is there to be measured against: plain, not fast."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ..rules import Algorithm1, FullRank, LeadingCount, LeadingEnergy, PowerMethod, RankPolicy
from . import synchronise


def whiten(
    input: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    groups: int,
    map: str,
    eps: float,
    policy: RankPolicy,
    rule: PowerMethod,
    group: Any = None,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Output, mean, covariance, subspace and rank, as of ``torch.ops.keel.whiten_forward``; with the
    moments of all processes of a ``group``."""
    if group is None and input.shape[0] * input.shape[2:].numel() <= 1:
        raise ValueError(
            "keel.power_method: expected more than 1 value per channel when training, "
            f"got input size {tuple(input.shape)}"
        )
    # Autocast would run the iteration's products in half precision.
    with torch.autocast(input.device.type, enabled=False):
        if group is None:
            mean, covariance = torch.ops.keel.moments(input, groups)
        else:
            mean, covariance = _moments_of_all(input, groups, group)
        variance = covariance.diagonal(dim1=-2, dim2=-1)
        subspace, rank = _subspace(covariance, variance, map, eps, policy, rule)
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


def _subspace(
    covariance: Tensor,
    variance: Tensor,
    map: str,
    eps: float,
    policy: RankPolicy,
    rule: PowerMethod,
) -> Tuple[Tensor, Tensor]:
    standardised = map == "pca_denoising"
    scale = (variance + eps).rsqrt() if standardised else torch.ones_like(variance)
    identity = torch.eye(variance.shape[-1], dtype=variance.dtype, device=variance.device)
    matrix = covariance * scale.unsqueeze(-1) * scale.unsqueeze(-2) + eps * identity
    values, vectors = torch.ops.keel.power_method(matrix, rule.iterations, rule.seed)
    kept = _kept(values.detach(), policy)
    if standardised:
        factors = kept.to(values.dtype)
    else:  # a dropped value must not reach the root: behind the mask its gradient could be NaN
        factors = torch.where(kept, values, torch.ones_like(values)).rsqrt() * kept
    columns = vectors * factors.unsqueeze(-2)
    if map == "pca_whitening":
        return columns.transpose(-1, -2), kept.sum(-1)
    subspace = torch.matmul(columns, vectors.transpose(-1, -2)) * scale.unsqueeze(-2)
    return subspace, kept.sum(-1)


def _kept(values: Tensor, policy: RankPolicy) -> Tensor:
    """Which values the policy keeps, in the order found. Algorithm1's Rayleigh condition here means:
    stop where an eigenvalue rises above the one before."""
    energy = values.clamp_min(0)
    reached, total = energy.cumsum(-1), energy.sum(-1, keepdim=True)
    going = torch.ones_like(values, dtype=torch.bool)
    if isinstance(policy, LeadingCount):
        going = torch.arange(values.shape[-1], device=values.device) < policy.count
        going = going.expand_as(values)
    elif isinstance(policy, LeadingEnergy):
        going = reached - energy < policy.fraction * total
    elif isinstance(policy, Algorithm1):
        if policy.eps is not None:
            going = going & (values > policy.eps)
        if policy.rayleigh_tolerance is not None:
            before = torch.cat([values[..., :1], values[..., :-1]], dim=-1)
            going = going & (values <= before)
        if policy.energy is not None:
            so_far = reached - energy if policy.keep_reaching else reached
            going = going & (so_far < policy.energy * total)
    else:
        assert isinstance(policy, FullRank)
    count = going.long().cumprod(-1).sum(-1, keepdim=True).clamp_min(1)
    return torch.arange(values.shape[-1], device=values.device) < count
