"""In evaluation a whitening layer is y = matrix x + shift, with one matrix per group. So it can be exported as a
grouped 1x1 convolution, and folded into the convolution or linear layer before it."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_compiler = getattr(torch, "compiler", None)
_is_exporting: Optional[Callable[[], bool]] = getattr(_compiler, "is_exporting", None)
_is_dynamo_compiling: Any = getattr(_compiler, "is_dynamo_compiling", None)


def exporting() -> bool:
    """Whether a graph is being exported for programs that do not have keel's operators."""
    if torch.jit.is_tracing() or torch.onnx.is_in_onnx_export():
        return True
    if _is_exporting is None:
        return False
    # is_exporting() is also true inside torch.compile, where keel's operators may stay.
    return not _is_dynamo_compiling() and _is_exporting()


def as_leaf(name: str, layer: nn.Module, input: Any, residual: Any) -> Any:
    """Records a call of the layer as one node of a torch.fx graph, like torch's own layers."""
    tracer = (input if isinstance(input, torch.fx.Proxy) else residual).tracer
    path = tracer.path_of_module(layer)
    if not path:
        raise TypeError(
            f"{name}: torch.fx cannot trace this layer on its own; trace the model that contains it, or put it into "
            "torch.nn.Sequential"
        )
    return tracer.create_proxy("call_module", path, (input,) if residual is None else (input, residual), {})


def check_residual(name: str, input: Tensor, residual: Tensor) -> None:
    """What keel's operators check, for graphs without them: addition would broadcast and convert."""
    # While torch.jit traces, sizes are tensors, and comparing them warns.
    same = input.is_same_size(residual) if torch.jit.is_tracing() else input.shape == residual.shape
    if not same or residual.dtype != input.dtype:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shapes = [tuple(int(size) for size in tensor.shape) for tensor in (input, residual)]
        raise ValueError(
            f"{name}: expected residual of shape {shapes[0]} and type {input.dtype}, got {shapes[1]} of type "
            f"{residual.dtype}"
        )


def shift_of(matrix: Tensor, center: Tensor, bias: Optional[Tensor]) -> Tensor:
    """The shift with which y = matrix (x - center) + bias becomes y = matrix x + shift."""
    groups, d, _ = matrix.shape
    moved = torch.matmul(matrix, center.view(groups, d, 1)).view(-1)
    return -moved if bias is None else bias - moved


def conv1x1(input: Tensor, matrix: Tensor, center: Tensor, bias: Optional[Tensor]) -> Tensor:
    """y = matrix (x - center) + bias for (N, C, ...), in operators that every export format supports."""
    groups, d, _ = matrix.shape
    shift = shift_of(matrix, center, bias).to(input.dtype)
    positions = input.dim() - 2
    weight = matrix.reshape([groups * d, d] + [1] * max(1, min(positions, 3))).to(input.dtype)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
    if positions == 0:
        return convolve(input.unsqueeze(-1), weight, shift, groups=groups).squeeze(-1)
    if positions <= 3:
        return convolve(input, weight, shift, groups=groups)
    return convolve(input.flatten(4), weight, shift, groups=groups).reshape(input.shape)


def as_conv1x1(matrix: Tensor, shift: Tensor, like: Tensor) -> nn.Conv2d:
    groups, d, _ = matrix.shape
    conv = nn.Conv2d(groups * d, groups * d, 1, groups=groups, device=like.device, dtype=like.dtype)
    with torch.no_grad():
        conv.weight.copy_(matrix.reshape(groups * d, d, 1, 1))
        conv.bias.copy_(shift)
    return conv.eval()


def fold_into(name: str, layer: nn.Module, matrix: Tensor, shift: Tensor) -> nn.Module:
    _check_foldable(name, layer, matrix)
    groups, d, _ = matrix.shape
    with torch.no_grad():
        weight = layer.weight.double()
        product = torch.matmul(matrix, weight.reshape(groups, d, -1)).reshape(weight.shape)
        if layer.bias is not None:
            shift = shift + torch.matmul(matrix, layer.bias.double().view(groups, d, 1)).view(-1)
        hooks, layer._forward_pre_hooks = layer._forward_pre_hooks, type(layer._forward_pre_hooks)()
        try:
            folded = copy.deepcopy(layer)
        finally:
            layer._forward_pre_hooks = hooks
        folded.weight = nn.Parameter(product.to(layer.weight), layer.weight.requires_grad)
        folded.bias = nn.Parameter(shift.to(layer.weight), layer.weight.requires_grad)
    return folded


def _given(layer: nn.Module) -> Tuple[str, ...]:
    return ("weight",) if getattr(layer, "bias", None) is None else ("weight", "bias")


def what_else_it_does(layer: nn.Module, kind: type) -> Optional[str]:
    """Describes what may make the layer compute something else than a plain ``kind``, or returns None."""
    # weight_norm, spectral_norm and prune compute the weight in a forward pre-hook.
    for what, hooks in (
        ("forward hooks", layer._forward_hooks),
        ("forward pre-hooks", _changing(layer._forward_pre_hooks)),
    ):
        if hooks:
            kinds = ", ".join(_name_of(hook) for hook in hooks.values())
            return f"{what} ({kinds}): remove them first"
    for method in ("forward", "_conv_forward", "__call__", "_call_impl"):
        theirs = getattr(type(layer), method, None)
        if method in vars(layer) or theirs is not getattr(kind, method, None):
            return f"a {method} of its own"
    return None


def _changing(hooks: Dict[int, Callable[..., Any]]) -> Dict[int, Callable[..., Any]]:
    """The hooks without that of keel.nn.follow, which changes nothing."""
    return {key: hook for key, hook in hooks.items() if getattr(hook, "__name__", "") != "keel_observes"}


def _name_of(hook: Callable[..., Any]) -> str:
    kind = type(hook).__name__
    return getattr(hook, "__name__", kind) if kind in ("function", "method") else kind


def _check_foldable(name: str, layer: nn.Module, matrix: Tensor) -> None:
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
    groups, d, _ = matrix.shape
    if not isinstance(layer, kinds):
        raise TypeError(
            f"{name}.fold_into: expected Conv1d, Conv2d, Conv3d or Linear, "
            f"got {type(layer).__name__}"
        )
    if nn.utils.parametrize.is_parametrized(layer):
        raise ValueError(
            f"{name}.fold_into: expected plain parameters, got {type(layer).__name__}; "
            "remove its parametrizations first"
        )
    kind = next(kind for kind in kinds if isinstance(layer, kind))
    other = what_else_it_does(layer, kind)
    if other is not None:
        raise ValueError(
            f"{name}.fold_into: expected a plain {kind.__name__}, "
            f"got {type(layer).__name__} with {other}"
        )
    if not all(isinstance(layer._parameters.get(p), nn.Parameter) for p in _given(layer)):
        raise ValueError(
            f"{name}.fold_into: expected weight and bias to be parameters of the layer, "
            f"got {type(layer).__name__} with {', '.join(layer._parameters) or 'none'}"
        )
    if not all(getattr(layer, p).is_floating_point() for p in _given(layer)):
        raise TypeError(
            f"{name}.fold_into: expected real floating-point parameters, "
            f"got {layer.weight.dtype} in {type(layer).__name__}"
        )
    channels = layer.weight.shape[0]
    if channels != groups * d:
        raise ValueError(
            f"{name}.fold_into: expected {groups * d} output channels, got {channels}"
        )
    parts = getattr(layer, "groups", 1)
    # Channels of one whitening group are mixed, so they must come from one group of the convolution.
    if (channels // parts) % d != 0:
        raise ValueError(
            f"{name}.fold_into: expected whitening groups of {d} channels to lie within the "
            f"convolution's groups, got {parts} of {channels // parts} output channels"
        )
