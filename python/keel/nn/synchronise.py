"""Whitening over the batches of several processes, with ``torch.distributed``.

Forward and backward consist of two operators each. In between, the processes add up the results of the first one."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor
from torch import distributed as dist

#: A group of c10d, "world" for all processes (looked up at every step), or None for this process alone.
ProcessGroup = Union[None, str, Any]

# torch.compiler.disable would import the compiler, which takes longer than all of keel.
uncompiled: Any = getattr(getattr(torch, "_compile", None), "_disable_dynamo", lambda function: function)


def check_group(name: str, group: ProcessGroup) -> None:
    if isinstance(group, str) and group != "world":
        raise ValueError(f"{name}: expected a process group, 'world' or None, got {group!r}")
    if group is not None and not dist.is_available():
        raise RuntimeError(f"{name}: got a process group, but this PyTorch was built without torch.distributed")


def members(name: str, group: ProcessGroup) -> Tuple[Any, int]:
    """The group as ``torch.distributed`` takes it, and its number of processes."""
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
        raise RuntimeError(f"{name}: expected a group that this process belongs to, got one that it does not")
    return group, size


def sum_over(group: Any, tensor: Tensor) -> None:
    """Replaces a tensor by its sum over all processes."""
    try:
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        raise RuntimeError(
            f"keel.nn: the sum over {dist.get_world_size(group)} processes failed in process "
            f"{dist.get_rank(group)} (has another process stopped, or skipped this layer?): {error}"
        ) from error


def check_samples(group: Any, count: Tensor) -> None:
    # On a GPU this would stall the host. There, no samples give NaN, and one sample gives zeros.
    if count.device.type == "cpu" and count.item() <= 1:
        raise ValueError(
            "keel.nn: expected more than 1 value per channel when training, "
            f"got {int(count.item())} in {dist.get_world_size(group)} processes"
        )


def _moments_of_all(input: Tensor, groups: int, group: Any) -> Tuple[Tensor, Optional[Tensor]]:
    """The sum of all processes' partial moments, and the shift that was subtracted.

    For float32 activations the shift is zero, because the sums are in float64 and lose nothing. For float64 activations
    it is the mean, which takes another all-reduce of C + 1 numbers.
    """
    shift = None
    if input.dtype == torch.float64:
        totals = torch.ops.keel.partial_moments(input, groups)[: 1 + input.shape[1]].clone()
        sum_over(group, totals)
        shift = totals[1:] / totals[:1]
    sums = torch.ops.keel.partial_moments(input, groups, shift)
    sum_over(group, sums)
    check_samples(group, sums[:1])
    return sums, shift


class _Whiten(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Any, bias: Any, residual: Any, settings: Any) -> Any:
        groups, group, map, rule, relu = settings
        sums, shift = _moments_of_all(input, groups, group)
        output, *state = torch.ops.keel.whiten_apply(
            input, weight, bias, groups, sums, shift, map, rule, relu, residual
        )
        ctx.group, ctx.map_and_rule, ctx.has_bias = group, (map, rule), bias is not None
        ctx.with_input, ctx.has_residual = input.requires_grad, residual is not None
        ctx.save_for_backward(input, weight, output if relu else None, sums[:1].clone(), *state)
        ctx.mark_non_differentiable(*state)
        return (output, *state)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        input, weight, output, count, *state = ctx.saved_tensors
        ops = torch.ops.keel
        grad_residual = None
        if ctx.has_residual:  # the residual's gradient is already masked by ReLU
            if output is not None:
                grad = torch.where(output <= 0, torch.zeros((), dtype=grad.dtype, device=grad.device), grad)
            grad_residual, output = grad, None
        sums, grad_weight, grad_bias = ops.whiten_backward_sums(grad, input, *state, output)
        grad_input = None
        if ctx.with_input:
            sums = sums.detach()
            sum_over(ctx.group, sums)
            grad_input = ops.whiten_backward_apply(
                grad, input, weight, *state, sums, count, *ctx.map_and_rule, output
            )
        return (
            grad_input,
            None if weight is None else grad_weight,
            grad_bias if ctx.has_bias else None,
            grad_residual,
            None,
        )


def _statistics(tensor: Optional[Tensor], input: Tensor) -> Optional[Tensor]:
    """Converts a parameter outside the autograd function, so that its gradient has the parameter's type."""
    if tensor is None:
        return None
    return tensor.double() if input.dtype == torch.float64 else tensor.float()


@uncompiled
def whiten(
    input: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    groups: int,
    group: Any,
    map: str,
    rule: str,
    relu: bool = False,
    residual: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """``torch.ops.keel.whiten_forward`` with the statistics of all processes' samples. The input's gradient is that of
    the sum of all losses. The gradients of weight and bias are this process's share of it."""
    weight, bias = _statistics(weight, input), _statistics(bias, input)
    return _Whiten.apply(input, weight, bias, residual, (groups, group, map, rule, relu))
