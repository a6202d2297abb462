"""What a convolution or linear layer multiplies for one output position, and its weight as a matrix."""

from __future__ import annotations

import math
from typing import Any, List, Tuple

import torch
from torch import Tensor, nn

KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def numbers_of(map: Any) -> int:
    """The numbers that one output channel is made of."""
    return int(map.weight[0].numel())


def positions_of(map: Any, input: Tensor) -> List[int]:
    """The sizes of the output beside samples and channels."""
    if isinstance(map, nn.Linear):
        if input.dim() != 2:
            raise ValueError(
                f"keel.nn.follow: expected a Linear layer before a norm to get (N, C) inputs, got {tuple(input.shape)}"
            )
        return []
    if input.dim() != len(map.kernel_size) + 2:
        raise ValueError(f"keel.nn.follow: expected batches for {type(map).__name__}, got {tuple(input.shape)}")
    sizes = []
    for i, kernel in enumerate(map.kernel_size):
        padded = input.shape[2 + i] + sum(_padding(map, i))
        sizes.append((padded - map.dilation[i] * (kernel - 1) - 1) // map.stride[i] + 1)
    return sizes


def sample(map: Any, input: Tensor, sizes: List[int], count: int, turn: Tensor) -> Tensor:
    """The patches (count, K) of some output positions, as many for each sample, spread over the positions. Each
    ``turn`` takes others. None is taken twice, so that the ``count`` of all takes all."""
    samples, positions = input.shape[0], math.prod(sizes)
    number = torch.arange(count, device=input.device)
    chosen = torch.div(number * samples, max(count, 1), rounding_mode="floor")
    if isinstance(map, nn.Linear):
        return input[chosen]
    # Neighbouring numbers are far apart: steps of about a golden ratio, coprime so that none repeats.
    step = max(1, int(0.618 * positions))
    while math.gcd(step, positions) != 1:
        step += 1
    place = (number + turn * count) * step % max(positions, 1)

    rank = len(sizes)
    indices, inside = [], None
    for i in reversed(range(rank)):
        tap = torch.arange(map.kernel_size[i], device=input.device)
        at = (place % sizes[i]).unsqueeze(1) * map.stride[i] + tap * map.dilation[i] - _padding(map, i)[0]
        place = torch.div(place, sizes[i], rounding_mode="floor")
        shape = [count] + [1] * rank
        shape[1 + i] = map.kernel_size[i]
        size = input.shape[2 + i]
        if map.padding_mode == "circular":
            at = at % size
        elif map.padding_mode == "reflect":
            at = size - 1 - (size - 1 - at.abs()).abs()
        elif any(_padding(map, i)):
            if map.padding_mode == "zeros":
                there = ((at >= 0) & (at < size)).view(shape)
                inside = there if inside is None else inside & there
            at = at.clamp(0, size - 1)
        indices.append(at.view(shape))
    # (count, taps ..., channels), which channels_last inputs have side by side
    taken = input.movedim(1, -1)[(chosen.view([count] + [1] * rank), *reversed(indices))]
    if inside is not None:
        taken = taken.masked_fill(~inside.unsqueeze(-1), 0)
    return taken.flatten(1, -2).transpose(1, 2).flatten(1)


def _padding(map: Any, dimension: int) -> Tuple[int, int]:
    both = map._reversed_padding_repeated_twice[::-1]  # also of padding="same"; now the first dimension, end and start
    return both[2 * dimension + 1], both[2 * dimension]


def block_weight(weight: Tensor, map: Any, blocks: int) -> Tensor:
    """The weight of ``map`` in float64 as (blocks, outputs, inputs); outputs of a block have inputs of that block
    alone."""
    groups = getattr(map, "groups", 1)
    outputs, inputs = weight.shape[0] // groups, numbers_of(map)
    within = groups // blocks
    weight = weight.double().reshape(blocks, within, outputs, inputs)
    result = weight.new_zeros(blocks, within, outputs, within, inputs)
    for i in range(within):
        result[:, i, :, i] = weight[:, i]
    return result.view(blocks, within * outputs, within * inputs)
