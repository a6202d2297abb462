"""The base class of the whitening layers: everything except the map from covariance to matrix."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Iterator, Optional, Tuple

import torch
from torch import Tensor, nn

from .. import _transforms as transforms
from .. import rules
from .._interrupt import check_tensor
from ..rules import Exact, RankPolicy, SpectralRule
from . import inference, scripted, synchronise, update_bn
from .scripted import in_statistics_type


class Whitening(nn.Module):
    """The base class of the norm layers for (N, C, ...) activations. A layer computes the mean and covariance of a
    batch, turns the covariance into a small matrix, and multiplies the centred activations by it.

    Use :class:`ZcaWhitening`, :class:`PcaDenoising` or :class:`PcaWhitening`. They choose the map from
    covariance to matrix and take these arguments.

    Args:
        num_features: C, the number of channels.
        group_size: d, the number of channels that are whitened together. Default: all of them.
        groups: the number of groups, C / d. Give this or ``group_size``. If both are given, they must agree.
        eps: added to the covariance's diagonal. It is an absolute number: the default suits activations of order one.
        momentum: weight of the new batch in the running statistics. None means the plain average of all batches.
        affine: whether the output is scaled and shifted by the parameters ``weight`` and ``bias``.
        track_running_stats: whether running statistics are kept, and used in evaluation.
        rule: the gradient rule of the eigendecomposition.
        rank: which eigenvalues are kept. None means the layer's default.
        process_group: the processes whose batches form one batch in training: a group of ``torch.distributed``, or
            "world" for all processes, looked up at every step. All must take every step, forward and backward, but some
            may have no samples. None means this process alone. See docs/distributed.md.
        device: where parameters and statistics are created.
        dtype: their type.
        channel_dim: which dimension holds the channels: 1, or -1 for (N, ..., C) inputs such as tokens.
        activation: "relu" applies max(0, y) in the same pass. Outputs and gradients are those of the layer followed by
            :class:`torch.nn.ReLU`. None means no activation. May be set at any time.

    ``layer(x, residual)`` adds a tensor of the input's shape and type to the output, before the activation, in the
    same pass.

    A batch whose statistics are not finite gives NaN in the groups concerned and leaves the running statistics and
    ``num_batches_tracked`` unchanged.

    After a step on batch statistics these attributes describe it: ``kept`` (groups), int64, how many eigenvalues of
    each group were kept; ``eigenvalues`` (groups, d), descending, of the matrix that the layer decomposes (the
    covariance plus eps I, for example); and ``covariance`` (groups, d, d) itself, without eps. They stay on the
    device, and computing them does not make the host wait. They are None before the first step and after a step
    inside a transform of torch.func.
    """

    # Set by the layers. Not annotated, because torch.jit.script would try to resolve the types.
    _map = ""
    _standardises = False  # whether it keeps a running variance too

    def __init__(
        self,
        num_features: int,
        group_size: Optional[int] = None,
        groups: Optional[int] = None,
        eps: float = 1e-4,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        rule: SpectralRule = Exact(),
        rank: Optional[RankPolicy] = None,
        process_group: synchronise.ProcessGroup = None,
        device: Optional[torch.device] = None,
        dtype: Optional[torch.dtype] = None,
        activation: Optional[str] = None,
        channel_dim: int = 1,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.group_size, self.groups = self._grouping(num_features, group_size, groups)
        if rules.finite(self._name(), "eps", eps) < 0:
            raise ValueError(f"{self._name()}: expected eps >= 0, got {eps}")
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.rule = rules.value_of(self._name(), "rule", rules.SPECTRAL_RULES, rule)
        rank = self._default_rank(eps) if rank is None else rank
        self.rank = rules.value_of(self._name(), "rank", rules.RANK_POLICIES, rank)
        self.activation = activation
        self.channel_dim = channel_dim
        self.process_group = process_group
        self._forget_step()
        self._warned = False
        self._check_options()

        factory = {"device": device, "dtype": dtype}
        for name in ("weight", "bias"):
            value = nn.Parameter(torch.empty(num_features, **factory)) if affine else None
            self.register_parameter(name, value)
        d = self.group_size
        shapes: Dict[str, Tuple[int, ...]] = {"running_mean": (num_features,), "running_matrix": (self.groups, d, d)}
        if self._standardises:
            shapes["running_variance"] = (num_features,)
        for name, shape in shapes.items():
            value = torch.empty(shape, **factory) if track_running_stats else None
            self.register_buffer(name, value)
        count = torch.tensor(0, dtype=torch.long, device=device) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def _forget_step(self) -> None:
        # Not in __init__, where torch.jit.script would warn about the annotations.
        self.kept: Optional[Tensor] = None
        self.eigenvalues: Optional[Tensor] = None
        self.covariance: Optional[Tensor] = None

    @staticmethod
    def _default_rank(eps: float) -> RankPolicy:
        raise NotImplementedError  # the layers have theirs

    # The interface of a norm layer.

    def reset_running_stats(self) -> None:
        """Resets to mean 0, the identity and variance 1, with no batch seen."""
        if not self._tracks():
            return
        following: Any = self._modules.get("following")
        if following is not None:
            following.forget()
        with torch.no_grad():
            self.running_mean.zero_()
            self.running_matrix.zero_().diagonal(dim1=-2, dim2=-1).fill_(1)
            if self._standardises:
                self.running_variance.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Resets the running statistics, and sets weight to 1 and bias to 0."""
        self.reset_running_stats()
        if self.affine:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

    def named_modules(self, *arguments: Any, **named: Any) -> Iterator[Tuple[str, nn.Module]]:
        """Like every module's. For ``torch.optim.swa_utils.update_bn`` it also yields a stand-in BatchNorm."""
        yield from super().named_modules(*arguments, **named)
        if self._tracks() and update_bn.asks():
            yield "", update_bn.StandIn(self)

    def forward(self, input: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        if torch.jit.is_scripting():
            return self._forward_scripted(input, residual)
        return self._forward(input, residual)

    @torch.jit.unused
    def _forward(self, input: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        if isinstance(input, torch.fx.Proxy) or isinstance(residual, torch.fx.Proxy):
            return inference.as_leaf(self._name(), self, input, residual)
        return self._forward_then(self._relu(), input, residual)

    def _forward_then(self, relu: bool, input: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """The forward pass with or without ReLU, whatever ``activation`` says."""
        self._check_input(input)
        following: Any = self._modules.get("following")  # keel.nn.follow
        if following is not None:
            following.outputs = input.dtype
        if self.channel_dim == -1 and input.dim() > 2:  # each token is a sample
            if residual is not None:
                inference.check_residual(self._name(), input, residual)
                residual = residual.reshape(-1, self.num_features)
            rows = input.reshape(-1, self.num_features)
            return self._forward_then(relu, rows, residual).reshape(input.shape)
        if self.training or not self._tracks():
            return self._forward_batch(relu, input, residual)
        matrix, center, bias = self._evaluation()
        if inference.exporting():
            output = inference.conv1x1(input, matrix, center, bias)
            if residual is not None:
                inference.check_residual(self._name(), input, residual)
                output = output + residual
            return nn.functional.relu(output) if relu else output
        return torch.ops.keel.affine(input, matrix, center, bias, relu, residual)

    def extra_repr(self) -> str:
        given = [
            f", {option}={value}"
            for option, value, usual in (
                ("activation", self.activation, None),
                ("channel_dim", self.channel_dim, 1),
                ("process_group", self.process_group, None),
            )
            if value != usual
        ]
        return (
            f"{self.num_features}, group_size={self.group_size}, eps={self.eps}, "
            f"momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}, rule={self.rule!r}, "
            f"rank={self.rank!r}"
        ) + "".join(given)

    # torch.jit.script.

    def __prepare_scriptable__(self) -> Whitening:
        """Called by torch.jit.script: stores the settings as the strings that the operators take."""
        if self.process_group is not None:
            raise RuntimeError(
                f"{self._name()}: torch.jit.script does not support layers over several processes, got "
                f"process_group={self.process_group!r}"
            )
        self._settings = (*self._texts(), self._relu())
        # Compiled code does not convert numbers: momentum=1, or a size that numpy counted.
        self.eps, self.groups = float(self.eps), int(self.groups)
        self.momentum = None if self.momentum is None else float(self.momentum)
        return self

    def _forward_scripted(self, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        map, rule, relu = self._settings
        shape = input.shape
        if self.channel_dim == -1:
            input = input.flatten(0, -2)
            residual = None if residual is None else residual.flatten(0, -2)
        output = scripted.forward(
            input, self.weight, self.bias, self.running_mean, self.running_matrix,
            getattr(self, "running_variance", None), self.num_batches_tracked, self.training,
            self.groups, map, rule, self.momentum, self.eps, relu, residual,
        )  # fmt: skip
        return output if self.channel_dim == 1 else output.reshape(shape)

    # Inference.

    def fold_into(self, layer: nn.Module) -> nn.Module:
        """A copy of ``layer``, the convolution or linear layer before this one, that computes both in evaluation.

        This layer must be in evaluation mode, with running statistics and without an activation: set it to None and put
        :class:`torch.nn.ReLU` after the result. ``layer`` must be a plain Conv1d, Conv2d, Conv3d or Linear: forward
        hooks, parametrizations (also old-style weight_norm, spectral_norm, prune) or its own forward are an error, and
        so are this layer's own hooks. A Linear layer must get (N, C) inputs, or this layer have ``channel_dim=-1``: a
        Linear's outputs are in the last dimension.

        >>> conv, norm = torch.nn.Conv2d(3, 8, 3), keel.nn.ZcaWhitening(8)
        >>> x = torch.randn(4, 3, 9, 9)
        >>> _ = norm(conv(x))  # a training step
        >>> folded = norm.eval().fold_into(conv)
        >>> torch.allclose(folded(x), norm(conv(x)), rtol=1e-4, atol=1e-4)
        True
        """
        if self.channel_dim == -1 and not isinstance(layer, nn.Linear):
            raise ValueError(
                f"{self._name()}.fold_into: expected a Linear, for channel_dim=-1, got {type(layer).__name__}"
            )
        return inference.fold_into(self._name(), layer, *self._foldable("fold_into"))

    def as_conv1x1(self) -> nn.Conv2d:
        """This layer in evaluation as a plain grouped 1x1 convolution for (N, C, H, W). It must be in evaluation mode,
        with running statistics and without an activation."""
        if self.channel_dim == -1:
            raise ValueError(f"{self._name()}.as_conv1x1: expected channel_dim=1, got -1")
        matrix, shift = self._foldable("as_conv1x1")
        like = self.running_mean if self.weight is None else self.weight
        return inference.as_conv1x1(matrix, shift, like)

    def _foldable(self, operation: str) -> Tuple[Tensor, Tensor]:
        """Matrix and shift of y = matrix x + shift in evaluation, in float64."""
        if self.activation is not None:
            raise ValueError(
                f"{self._name()}.{operation}: expected activation=None, got {self.activation!r}; set it to "
                "None and put torch.nn.ReLU after the result"
            )
        if self.training or not self._tracks():
            got = (
                "training mode" if self.training
                else "one constructed without them" if self.track_running_stats
                else "track_running_stats=False"
            )  # fmt: skip
            raise RuntimeError(
                f"{self._name()}.{operation}: expected a layer in evaluation mode with running "
                f"statistics, got {got}"
            )
        other = inference.what_else_it_does(self, Whitening)
        if other is not None:
            raise ValueError(f"{self._name()}.{operation}: expected a plain layer, got one with {other}")
        with torch.no_grad():
            matrix, center, bias = (
                None if part is None else part.double() for part in self._evaluation()
            )
            return matrix, inference.shift_of(matrix, center, bias)

    # Implementation.

    def _tracks(self) -> bool:
        """Whether it keeps running statistics. A layer constructed without them has none, even if track_running_stats
        is switched on later: as torch's BatchNorm, it goes on using those of the batch."""
        return self.track_running_stats and self.running_mean is not None

    def _evaluation(self) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """Matrix, center and bias of y = matrix (x - center) + bias from the running statistics."""
        following: Any = self._modules.get("following")
        if following is not None:
            following.refresh()
        variance = getattr(self, "running_variance", None)
        matrix = scripted.evaluation_matrix(self.running_matrix, variance, self.weight, self.groups, self.eps)
        bias = None if self.bias is None else in_statistics_type(self.bias)
        return matrix, in_statistics_type(self.running_mean), bias

    def _texts(self) -> Tuple[str, str]:
        """The strings of map and rule that the operators take."""
        rank = rules.written(self._name(), "rank", rules.RANK_POLICIES, self.rank)
        rule = rules.written(self._name(), "rule", rules.SPECTRAL_RULES, self.rule)
        return f"{self._map}(eps={float(self.eps)}, rank={rank})", rule

    def _relu(self) -> bool:
        if self.activation not in (None, "relu"):
            raise ValueError(f"{self._name()}: expected activation 'relu' or None, got {self.activation!r}")
        return self.activation is not None

    def _forward_batch(self, relu: bool, input: Tensor, residual: Optional[Tensor]) -> Tensor:
        # Like SyncBatchNorm, a layer in evaluation does not communicate.
        own = self.process_group if self.training else None
        group, processes = synchronise.members(self._name(), own)
        self._warn_of_few_samples(input, processes)
        map, rule = self._texts()
        if processes > 1:
            output, mean, covariance, layer_matrix, values, _, kept = synchronise.whiten(
                input, self.weight, self.bias, self.groups, group, map, rule, relu, residual
            )
        else:
            output, mean, covariance, layer_matrix, values, _, kept = torch.ops.keel.whiten_forward(
                input, self.weight, self.bias, self.groups, map, rule, relu, residual
            )
        self.kept, self.eigenvalues, self.covariance = transforms.kept(kept, values, covariance)
        if self.training and self._tracks():
            with torch.no_grad():
                torch.ops.keel.running_average(
                    self.running_mean, self.running_matrix, getattr(self, "running_variance", None),
                    self.num_batches_tracked, mean, covariance, layer_matrix, self.momentum, self.eps,
                )  # fmt: skip
        return output

    # Checks.

    @classmethod
    def _name(cls) -> str:
        return f"keel.nn.{cls.__name__}"

    @classmethod
    def _grouping(
        cls, channels: int, group_size: Optional[int], groups: Optional[int]
    ) -> Tuple[int, int]:
        rules.whole(cls._name(), "num_features", channels, 1)
        for name, given in (("group_size", group_size), ("groups", groups)):
            if given is None:
                continue
            if rules.whole(cls._name(), name, given, 1) and channels % given != 0:
                raise ValueError(
                    f"{cls._name()}: expected {name} to divide num_features, "
                    f"got {name} = {given} and num_features = {channels}"
                )
        if group_size is not None and groups is not None and group_size * groups != channels:
            raise ValueError(
                f"{cls._name()}: expected group_size * groups = num_features, "
                f"got {group_size} * {groups} and {channels}"
            )
        if group_size is None:
            group_size = channels // (groups or 1)
        return group_size, channels // group_size

    def _check_options(self) -> None:
        """Reports a bad option at construction, not in a later step."""
        synchronise.check_group(self._name(), self.process_group)
        if self.momentum is not None:
            if not 0 <= rules.finite(self._name(), "momentum", self.momentum) <= 1:
                raise ValueError(
                    f"{self._name()}: expected a momentum in [0, 1] or None, got {self.momentum}"
                )
        self._relu()
        if self.channel_dim not in (1, -1):
            raise ValueError(f"{self._name()}: expected channel_dim 1 or -1, got {self.channel_dim!r}")
        rules.flag(self._name(), "affine", self.affine)
        rules.flag(self._name(), "track_running_stats", self.track_running_stats)
        rules.checked("layer_map", self._texts()[0])

    def _check_input(self, input: Tensor) -> None:
        if torch.jit.is_tracing():  # sizes are tensors then, and comparing them would warn
            return
        check_tensor(self._name(), input)
        channels = self.num_features
        if input.dim() < 2 or input.shape[self.channel_dim] != channels:
            tokens = f"(N, ..., {channels})"
            wanted = tokens if self.channel_dim == -1 else f"(N, {channels}, ...)"
            hint = ""
            if self.channel_dim == 1 and input.dim() > 2 and input.shape[-1] == channels:
                hint = f"; for {tokens} set channel_dim=-1"
            raise ValueError(f"{self._name()}: expected {wanted}, got {tuple(input.shape)}{hint}")

    def _warn_of_few_samples(self, input: Tensor, processes: int) -> None:
        if self._warned:
            return
        samples = input.numel() // self.num_features * processes
        if 1 < samples < self.group_size:
            self._warned = True
            warnings.warn(
                f"{self._name()}: got {samples} samples for groups of {self.group_size} channels (of "
                f"{self.num_features}), so covariances have rank {samples - 1} at most; use a smaller "
                "group_size or larger batches for full rank",
                stacklevel=4,
            )
