"""The layers' forward in the subset of Python that ``torch.jit.script`` compiles."""

from typing import Optional

import torch
from torch import Tensor


def in_statistics_type(tensor: Tensor) -> Tensor:
    """Statistics of half-precision layers are computed in float32."""
    if tensor.dtype == torch.float16 or tensor.dtype == torch.bfloat16:
        return tensor.float()
    return tensor


def evaluation_matrix(
    running_matrix: Tensor,
    running_variance: Optional[Tensor],
    weight: Optional[Tensor],
    groups: int,
    eps: float,
) -> Tensor:
    """The matrix that evaluation multiplies centred activations by."""
    matrix = in_statistics_type(running_matrix)
    if running_variance is not None:
        variance = in_statistics_type(running_variance) + eps
        scale = variance.rsqrt()
        if eps == 0:  # a channel that was always constant
            scale = torch.where(variance == 0, torch.zeros_like(scale), scale)
        matrix = matrix * scale.view(groups, 1, -1)
    if weight is not None:
        matrix = in_statistics_type(weight).view(groups, -1, 1) * matrix
    return matrix


def forward(
    input: Tensor,
    weight: Optional[Tensor],
    bias: Optional[Tensor],
    running_mean: Optional[Tensor],
    running_matrix: Optional[Tensor],
    running_variance: Optional[Tensor],
    num_batches_tracked: Optional[Tensor],
    training: bool,
    groups: int,
    map: str,
    rule: str,
    momentum: Optional[float],
    eps: float,
    relu: bool,
    residual: Optional[Tensor],
) -> Tensor:
    """The same as :meth:`keel.nn.Whitening.forward`. The operators check the input."""
    if training or running_mean is None or running_matrix is None or num_batches_tracked is None:
        output, mean, covariance, layer_matrix, _, _, _ = torch.ops.keel.whiten_forward(
            input, weight, bias, groups, map, rule, relu, residual
        )
        if running_mean is not None and running_matrix is not None and num_batches_tracked is not None:
            with torch.no_grad():
                torch.ops.keel.running_average(
                    running_mean, running_matrix, running_variance, num_batches_tracked,
                    mean, covariance, layer_matrix, momentum, eps,
                )  # fmt: skip
        return output
    matrix = evaluation_matrix(running_matrix, running_variance, weight, groups, eps)
    return torch.ops.keel.affine(input, matrix, running_mean, bias, relu, residual)
