"""Whitening over the batches of several processes, by ``torch.distributed``.

Forward adds up the sums that the moments are made of, backward the gradients of mean and covariance;
all else is done by each process with the operators that a layer uses alone."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor
from torch import distributed as dist

#: None: this process alone; "world": all processes, looked up at every step; or one of c10d's groups.
ProcessGroup = Union[None, str, Any]

_compiler = getattr(torch, "compiler", None)
_disable = getattr(_compiler, "disable", lambda function: function)


def check_group(name: str, group: ProcessGroup) -> None:
    if isinstance(group, str) and group != "world":
        raise ValueError(f"{name}: expected a process group, 'world' or None, got {group!r}")
    if group is not None and not dist.is_available():
        raise RuntimeError(f"{name}: expected no process group, this torch has no torch.distributed")


def members(name: str, group: ProcessGroup) -> Tuple[Any, int]:
    """The group as ``torch.distributed`` takes it, and the number of its processes."""
    if group is None:
        return None, 1
    if not dist.is_initialized():
        raise RuntimeError(
            f"{name}: expected torch.distributed to be initialised, for process_group={group!r}; "
            "call torch.distributed.init_process_group first"
        )
    if isinstance(group, str):
        group = dist.group.WORLD
    size = dist.get_world_size(group)
    if size < 1:
        raise RuntimeError(f"{name}: expected a group that this process belongs to, got another")
    return group, size


def _sum_over(group: Any, tensor: Tensor) -> None:
    try:
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        raise RuntimeError(
            f"keel.nn: the sum over {dist.get_world_size(group)} processes failed on rank "
            f"{dist.get_rank(group)} (is another gone, or not at this layer?): {error}"
        ) from error


def global_moments(input: Tensor, groups: int, group: Any) -> Tuple[Tensor, Tensor, Tensor]:
    """Mean, covariance and number of the samples of all processes, the same on each to the last bit.

    Sums are taken about zero, which in float64 costs float32 activations nothing. For float64
    activations an all-reduce of C + 1 numbers finds the mean first, and they are taken about that.
    """
    channels, shift = input.shape[1], None
    if input.dtype == torch.float64:
        totals = torch.ops.keel.partial_moments(input, groups)[: 1 + channels].clone()
        _sum_over(group, totals)
        shift = totals[1:] / totals[:1]
    partial = torch.ops.keel.partial_moments(input, groups, shift)
    _sum_over(group, partial)
    count = partial[:1].clone()
    # On a GPU nobody waits to look: no samples give NaN there, and one gives zeros.
    if count.device.type == "cpu" and count.item() <= 1:
        raise ValueError(
            "keel.nn: expected more than 1 value per channel when training, "
            f"got {int(count.item())} in {dist.get_world_size(group)} processes"
        )
    half = input.dtype in (torch.float16, torch.bfloat16)
    dtype = torch.float32 if half else input.dtype
    mean, covariance = torch.ops.keel.moments_from_partial(partial, channels, groups, shift, dtype)
    return mean, covariance, count


def _global_gradients(grad_mean: Tensor, grad_covariance: Tensor, group: Any) -> Sequence[Tensor]:
    both = torch.cat([grad_mean, grad_covariance.reshape(-1)])
    _sum_over(group, both)
    channels = grad_mean.shape[0]
    return both[:channels], both[channels:].view_as(grad_covariance)


class _Once(torch.autograd.Function):
    """Gradients tied to what they were made of, so that differentiating them is an error."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Optional[Tensor]) -> Any:
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError("keel.nn: no second derivative of a layer over several processes")


def _once(grads: Sequence[Optional[Tensor]], *made_of: Optional[Tensor]) -> Sequence[Any]:
    if not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in made_of):
        return grads
    there = [grad for grad in grads if grad is not None]
    tied = iter(_Once.apply(len(there), *there, *made_of))
    return [None if grad is None else next(tied) for grad in grads]


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, groups: int, group: Any) -> Any:
        mean, covariance, count = global_moments(input, groups, group)
        ctx.save_for_backward(input, mean, count)
        ctx.group = group
        return mean, covariance

    @staticmethod
    def backward(ctx: Any, grad_mean: Tensor, grad_covariance: Tensor) -> Any:
        input, mean, count = ctx.saved_tensors
        with torch.no_grad():
            along, across = _global_gradients(grad_mean, grad_covariance, ctx.group)
            count = count.to(mean.dtype)
            matrix = (across + across.transpose(-1, -2)) / count
            grad_input = torch.ops.keel.affine(input, matrix, mean, along / count)
        return (*_once([grad_input], grad_mean, grad_covariance, input), None, None)


class _Whiten(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        groups: int,
        group: Any,
        map: str,
        rule: str,
    ) -> Any:
        mean, covariance, count = global_moments(input, groups, group)
        subspace, values, vectors, found = torch.ops.keel.subspace(covariance, map, rule)
        matrix = subspace if weight is None else subspace * weight.view(groups, -1, 1)
        output = torch.ops.keel.affine(input, matrix, mean, bias)
        ctx.group, ctx.settings, ctx.has_bias = group, (map, rule), bias is not None
        ctx.with_input = input.requires_grad
        ctx.save_for_backward(
            input, weight, mean, covariance, subspace, values, vectors, found, count
        )
        ctx.mark_non_differentiable(mean, covariance, subspace, found)
        return output, mean, covariance, subspace, found

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, *_: Any) -> Any:
        input, weight, *_ = ctx.saved_tensors
        with torch.no_grad():
            grads = _Whiten._gradients(ctx, grad_output)
        return (*_once(grads, grad_output, input, weight), *[None] * 4)

    @staticmethod
    def _gradients(ctx: Any, grad: Tensor) -> Sequence[Optional[Tensor]]:
        input, weight, mean, covariance, subspace, values, vectors, rank, count = ctx.saved_tensors
        ops = torch.ops.keel
        if grad.stride() != input.stride():
            grad = torch.empty_like(input).copy_(grad)
        total, cross = ops.cross_moments(grad, input, mean, covariance.shape[0])
        grad_weight, along, grad_subspace, matrix = ops.scale_backward(
            weight, subspace, total, cross
        )
        grad_input = None
        if ctx.with_input:
            across = ops.subspace_backward(
                grad_subspace, covariance, values, vectors, rank, *ctx.settings
            )
            along, across = _global_gradients(along, across, ctx.group)
            # affine_backward divides by this process's samples, and it should be those of all.
            share = (input.numel() // input.shape[1] / count).to(mean.dtype)
            grad_input = ops.affine_backward(
                grad, matrix, across * share, along * share, input, mean
            )
        return (
            grad_input,
            None if weight is None else grad_weight,
            total if ctx.has_bias else None,
        )


def _statistics(tensor: Optional[Tensor], input: Tensor) -> Optional[Tensor]:
    """Converted outside the function, so that each gradient comes back in its own type."""
    if tensor is None:
        return None
    return tensor.double() if input.dtype == torch.float64 else tensor.float()


@_disable
def moments(input: Tensor, groups: int, group: Any) -> Tuple[Tensor, Tensor]:
    """``torch.ops.keel.moments`` over all processes' samples, differentiable once."""
    return _Moments.apply(input, groups, group)


@_disable
def whiten(
    input: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    groups: int,
    group: Any,
    map: str,
    rule: str,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Output, mean, covariance, subspace and rank, as of ``torch.ops.keel.whiten_forward``, with the
    statistics of all processes' samples. The gradient of the input is that of the sum of all losses;
    those of weight and bias are this process's share of it."""
    weight, bias = _statistics(weight, input), _statistics(bias, input)
    return _Whiten.apply(input, weight, bias, groups, group, map, rule)
