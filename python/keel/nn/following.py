"""Statistics of a norm's input made from those of the map before it, at the map's present weights.

Let the norm's input be y = W p + b: p are the K numbers that a convolution or linear layer multiplies for one output
position. The statistics of y belong to one W. Those of p, mean m and covariance C, hold for every W:

    mean(y) = W m + b,        Cov(y) = W C W^T.

So training tracks m and C, and evaluation makes the norm's statistics from them. A direction that W does not reach has
variance 0, and W C W^T is computed in float64, so that directions of little variance keep their digits.

**Half precision.** A convolution in bfloat16 multiplies by weights rounded to bfloat16, and other directions are out of
*their* reach: W is rounded first. Then its outputs are rounded, each by itself, which gives every direction some
variance. An output m 2^e, 1 <= m < 2, is off by u 2^e / sqrt(12) on average, with u = 2^-7. Over mantissas that are
distributed evenly on a logarithmic scale the mean of 1 / m^2 is 3 / (8 log 2), so
u^2 / 12 * 3 / (8 log 2) * E[y_i^2] is added to Var(y_i).

**Average.** C is an average of covariances *within* a batch, as a norm's own statistics are. (E[p p^T] - m m^T would
count differences between batches too.) Its weights are 1, 1/2, 1/3, ... until they reach the momentum's, so the start
has no bias. A batch with NaN or infinity is left out.

**Sample.** A batch's C is computed from n of its positions. The relative error of S = Cov(y)^(-1/2) in d channels is
about sqrt((d + 1) / n) / 2, whatever K is: it multiplies every direction's own variance, so 1 / sqrt(eps) does not
amplify it. ``_ENOUGH`` positions for each of d + 1 keep it at 1/64. If a batch offers fewer, the average is taken over
more batches. Positions of one image resemble each other, so ``_OF_ONE_IMAGE`` of them count at most. The positions of a
batch are spread over images and places without random numbers, and none is taken twice, so that all of them are all of
them.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch import distributed as dist

from .. import _transforms as transforms
from . import inference, patches, synchronise
from .recalibrate import keeps_statistics
from .whitening import Whitening

_ENOUGH = 1024
_OF_ONE_IMAGE = 16
_LITTLE = 2**24  # multiplications that any look may take: a millisecond
_ROUNDING = 3 / (8 * math.log(2)) / 12
_WORTH_A_PASS = 64  # positions
_BUFFERS = ("input_mean", "input_covariance", "looks")
_HERE = "keel.nn.follow"
_sum_over = synchronise.uncompiled(synchronise.sum_over)


class Following(nn.Module):
    """What :func:`keel.nn.follow` adds to a norm, as its submodule ``following``: the statistics of the input of the
    map before the norm, which the norm's running statistics are made from."""

    input_mean: Tensor
    input_covariance: Tensor
    looks: Tensor
    batches: Tensor

    def __init__(self, norm: Any, map: Any, share: Optional[float], every: int) -> None:
        super().__init__()
        self._pair = (norm, map)  # in a tuple, because they are not submodules
        self.share, self.every = share, every
        self.paused = False  # while keel.nn.recalibrate runs
        self._recalibrated = False  # then these statistics hold until the next training step
        self._steps = 0
        self._made_of: Any = None
        self.outputs: Optional[torch.dtype] = None  # the type in which the norm's input came last
        # Blocks of channels that contain whole groups of the map and whole groups of the norm.
        self.blocks = math.gcd(getattr(map, "groups", 1), _groups_of(norm))
        numbers = patches.numbers_of(map) * getattr(map, "groups", 1) // self.blocks
        type = torch.float64 if map.weight.dtype == torch.float64 else torch.float32
        like = {"device": map.weight.device, "dtype": type}
        self.register_buffer("input_mean", torch.zeros(self.blocks, numbers, **like), persistent=False)
        self.register_buffer("input_covariance", torch.zeros(self.blocks, numbers, numbers, **like), persistent=False)
        for count in ("looks", "batches"):  # batches: those of the norm before the newest look
            zero = torch.zeros((), dtype=torch.long, device=map.weight.device)
            self.register_buffer(count, zero, persistent=False)
        self._handles = [map.register_forward_pre_hook(self.keel_observes)]
        if not isinstance(norm, Whitening):  # whitening layers ask for it themselves
            self._handles.append(norm.register_forward_pre_hook(self.before_norm))
        self.train(norm.training)

    def extra_repr(self) -> str:
        return f"{type(self._pair[1]).__name__}, share={self.share}, every={self.every}"

    # Training: statistics of the map's input.

    def keel_observes(self, map: Any, inputs: Tuple[Any, ...]) -> None:
        """Called before the map. Looks at every ``every``-th batch of a norm in training."""
        norm = self._pair[0]
        if not norm.training or self.paused or norm.momentum == 0 or not keeps_statistics(norm):
            return
        if not inputs or not isinstance(inputs[0], Tensor):
            raise TypeError(f"keel.nn.follow: expected {type(map).__name__} to be called with a tensor, got {inputs}")
        input = inputs[0]
        # Of the replicas of torch.nn.DataParallel, the one looks that shares the buffers.
        if transforms.belongs_to_a_transform(input) or input.device != self.input_mean.device or input.is_meta:
            return
        if self._recalibrated:
            self._recalibrated = False
        sizes = patches.positions_of(map, input)
        total = input.shape[0] * math.prod(sizes)
        wanted = self._positions(map, total)
        # A graph that is recorded once looks at every batch.
        every = 1
        if not transforms.is_compiling() and not (input.is_cuda and torch.cuda.is_current_stream_capturing()):
            every = self.every
            # A look passes over the whole matrix, so few positions of each batch are taken as more of fewer batches.
            rounds = max(1, _WORTH_A_PASS // max(wanted, 1)) if wanted < total else 1
            self._steps += 1
            if (self._steps - 1) % (every * rounds) != 0:
                return
            wanted = min(total, wanted * rounds)
        with torch.no_grad(), torch.autocast(input.device.type, enabled=False):
            self.looks.mul_(self._holds())
            self.batches.copy_(norm.num_batches_tracked)
            columns = patches.sample(map, input.detach(), sizes, wanted, self.looks)
            self._look(columns, norm, total, self._least_weight(norm, input.shape[0], wanted, every))

    def _holds(self) -> Tensor:
        """False once a BatchNorm's reset_running_stats, which torch's update_bn calls, has set its count back."""
        return self._pair[0].num_batches_tracked.to(self.batches.device) >= self.batches

    def _positions(self, map: Any, total: int) -> int:
        """How many of a batch's positions are looked at."""
        if self.share is None:
            return total
        own = 3 * total * map.weight.numel()  # the map's work: forward, and backward to its input and its weight
        return min(total, max(1, int(max(self.share * own, _LITTLE) / self.input_covariance.numel())))

    def _look(self, columns: Tensor, norm: Any, total: int, least: float) -> None:
        samples = columns.shape[0]
        columns = columns.to(self.input_mean.dtype).view(samples, *self.input_mean.shape).transpose(0, 1)
        n: Any = samples
        positions: Any = total
        sum = columns.sum(1)
        group, processes = synchronise.members(_HERE, _process_group(norm))
        if samples < 2 and processes == 1:
            return
        if processes > 1:
            sums = torch.cat([sum.flatten(), sum.new_full((1,), samples), sum.new_full((1,), total)])
            _sum_over(group, sums)
            sum, n, positions = sums[:-2].view_as(sum), sums[-2], sums[-1]
        mean = sum / n
        columns = columns - mean.unsqueeze(1)
        squares = columns.square().sum(1)
        if processes > 1:
            _sum_over(group, squares)
        finite = (mean + squares).isfinite().all() & (n > 1)
        weight = (1 / (self.looks + 1).to(mean.dtype)).clamp(min=least)
        weight = torch.where(finite, weight, torch.zeros_like(weight))
        # Unbiased, as running_var of a BatchNorm. Whitening layers have the batch's own, which is smaller.
        scale = weight / (n - 1)
        if isinstance(norm, Whitening):
            scale = scale * ((positions - 1) / positions)
        columns = torch.where(finite, columns * scale.sqrt(), torch.zeros_like(columns))
        self.input_mean.lerp_(torch.where(finite, mean, self.input_mean), weight)
        self.input_covariance.mul_(1 - weight)
        if processes > 1:
            covariance = torch.matmul(columns.mT, columns)
            _sum_over(group, covariance)
            self.input_covariance.add_(covariance)
        else:
            self.input_covariance.baddbmm_(columns.mT, columns)
        self.looks.add_(finite)

    def _least_weight(self, norm: Any, images: int, samples: int, every: int) -> float:
        """The weight of a batch in the average, once there were enough batches."""
        if norm.momentum is None:
            return 0.0
        least = 1 - (1 - float(norm.momentum)) ** every
        if self.share is None:
            return least
        enough = _ENOUGH * (norm.num_features // _groups_of(norm) + 1)
        samples = min(samples, _OF_ONE_IMAGE * images) * synchronise.members(_HERE, _process_group(norm))[1]
        # An average with weight w of its newest member is worth (2 - w) / w of them.
        return min(least, 2 * samples / (enough + samples))

    # Evaluation: the norm's statistics.

    def train(self, mode: bool = True) -> Following:
        super().train(mode)
        if self._pair[0].training != mode:
            raise RuntimeError(
                "keel.nn.follow: expected this to be the submodule of the norm it was made for, but the norm was "
                "replaced; replace norms first, then call keel.nn.follow"
            )
        if not mode:
            self._made_of = None  # weights change without a new version by .data and in replays of CUDA graphs
            self.refresh()
        return self

    def before_norm(self, norm: Any, inputs: Any) -> None:
        """Called before a BatchNorm."""
        if inputs and isinstance(inputs[0], Tensor):
            self.outputs = inputs[0].dtype
        if not norm.training:
            self.refresh()

    def refresh(self) -> None:
        """Makes the norm's running statistics from those of the map's input, unless they are of the present weights."""
        norm, map = self._pair
        if self._recalibrated or not keeps_statistics(norm) or transforms.is_compiling() or inference.exporting():
            return
        if transforms.belongs_to_a_transform(map.weight) or map.weight.is_meta:
            return
        made_of = [_version(tensor) for tensor in (map.weight, map.bias, self.input_covariance, norm.running_mean)]
        made_of.insert(0, self.outputs)
        if made_of == self._made_of:
            return
        with torch.no_grad(), torch.autocast(map.weight.device.type, enabled=False):
            self._write(norm, *self.statistics())
        made_of[-1] = _version(norm.running_mean)
        self._made_of = made_of

    def statistics(self) -> Tuple[Tensor, Tensor]:
        """Mean (C) and covariance (groups, d, d) of the norm's input in float64. NaN before the first batch."""
        norm, map = self._pair
        half = self.outputs in (torch.float16, torch.bfloat16)
        type = self.outputs if half else map.weight.dtype
        weight = patches.block_weight(map.weight.to(type), map, self.blocks)
        mean = torch.matmul(weight, self.input_mean.double().unsqueeze(-1)).flatten()
        if map.bias is not None:
            mean = mean + map.bias.to(type).double()
        groups = _groups_of(norm)
        shape = (self.blocks, groups // self.blocks, norm.num_features // groups, weight.shape[-1])
        product = torch.matmul(weight, self.input_covariance.double()).view(shape)
        covariance = torch.matmul(product, weight.view(shape).mT).flatten(0, 1)
        covariance = (covariance + covariance.mT) / 2
        if half:
            variance = covariance.diagonal(dim1=-2, dim2=-1)
            variance += torch.finfo(type).eps ** 2 * _ROUNDING * (variance + mean.view_as(variance).square())
        nothing = torch.where((self.looks > 0) & self._holds(), 0.0, math.nan).to(mean)
        return mean + nothing, covariance + nothing

    def _write(self, norm: Any, mean: Tensor, covariance: Tensor) -> None:
        if isinstance(norm, Whitening):
            map, rule = norm._texts()
            matrix = torch.ops.keel.layer_matrix(covariance, map, rule)[0]
            torch.ops.keel.running_average(  # which leaves all as it is if something is not finite
                norm.running_mean, norm.running_matrix, getattr(norm, "running_variance", None),
                torch.zeros_like(norm.num_batches_tracked), mean, covariance, matrix, 1.0, norm.eps,
            )  # fmt: skip
            return
        variance = covariance.flatten()
        finite = mean.isfinite().all() & variance.isfinite().all()
        for running, now in ((norm.running_mean, mean), (norm.running_var, variance)):
            running.copy_(torch.where(finite, now.to(running.dtype), running))

    def forget(self) -> None:
        """Starts again, as a new norm does."""
        self.looks.zero_()
        self.batches.zero_()
        self._made_of, self._steps, self._recalibrated = None, 0, False

    def recalibrated(self) -> None:
        """The norm's statistics have been recomputed: they hold until the next training step."""
        self._recalibrated = True
        self.batches.zero_()  # their count of batches started again, but what is tracked here holds

    def remove(self) -> None:
        self.refresh()
        for handle in self._handles:
            handle.remove()
        del self._pair[0].following

    # Saving. The statistics are in the state_dict's metadata and not among its entries, so that models that do not
    # follow, torch's BatchNorm among them, load it as strictly as ever.

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        self._made_of = None  # as in train
        self.refresh()  # the norm's own entries share memory with its buffers
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            tracked = {name: getattr(self, name).detach() for name in _BUFFERS}
            tracked["looks"] = tracked["looks"] * self._holds()
            metadata.setdefault(prefix[:-1], {})["following"] = tracked

    def _load_from_state_dict(
        self, state_dict: Dict[str, Tensor], prefix: str, local_metadata: Dict[str, Any], strict: bool,
        missing_keys: List[str], unexpected_keys: List[str], error_msgs: List[str],
    ) -> None:  # fmt: skip
        self.forget()
        saved = local_metadata.get("following")
        if saved is None:
            return
        for name in _BUFFERS:
            own = getattr(self, name)
            if own.shape != saved[name].shape:
                error_msgs.append(
                    f"size mismatch for {prefix}{name}: expected {tuple(own.shape)}, got {tuple(saved[name].shape)}"
                )
                return
        with torch.no_grad():
            for name in _BUFFERS:
                getattr(self, name).copy_(saved[name])

    def _apply(self, fn: Any, *arguments: Any, **named: Any) -> Following:
        before = {name: getattr(self, name) for name in _BUFFERS}
        super()._apply(fn, *arguments, **named)
        for name, tensor in before.items():  # half precision would lose the directions of little variance
            now = getattr(self, name)
            if now.dtype in (torch.float16, torch.bfloat16):
                setattr(self, name, tensor.to(now.device))
        return self


def _groups_of(norm: Any) -> int:
    """How many groups of channels the norm takes on their own: a BatchNorm, each channel."""
    return int(norm.groups if isinstance(norm, Whitening) else norm.num_features)


def _process_group(norm: Any) -> Any:
    if isinstance(norm, Whitening):
        return norm.process_group
    synchronised = isinstance(norm, nn.SyncBatchNorm) and dist.is_available() and dist.is_initialized()
    return (norm.process_group or "world") if synchronised else None


def _version(tensor: Optional[Tensor]) -> Any:
    if tensor is None:
        return None
    if tensor.is_inference():
        return object()  # unlike any other: inference tensors do not count their changes
    return id(tensor), tensor._version
