"""Recomputes running statistics at frozen weights."""

from __future__ import annotations

from itertools import islice
from typing import Any, Iterable, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .. import rules
from .whitening import Whitening

_HERE = "keel.nn.recalibrate"


def recalibrate(
    model: nn.Module,
    batches: Iterable[Any],
    count: Optional[int] = None,
    device: Optional[torch.device] = None,
    batch_norms: bool = True,
) -> None:
    """Recomputes the running statistics of a model's norms, as plain averages over batches at the
    current weights.

    While a model trains, its running statistics lag behind the weights, and whitening amplifies this
    error by up to 1/sqrt(eps) in directions of little variance. Call this before an evaluation, before
    ``fold_into``, and after averaging weights. (``torch.optim.swa_utils.update_bn`` does the same, but with
    the whole model in training mode, dropout included.)

    Args:
        model: called with each batch, without gradients. Its norms are in training mode and everything else is in
            evaluation mode, so there is no dropout.
        batches: inputs of the model, or lists or tuples whose first entry is the input, as from a data loader.
        count: use at most this many batches; None for all.
        device: where to move each batch; None to leave it where it is.
        batch_norms: recompute BatchNorm1d, 2d, 3d and SyncBatchNorm too, not only whitening layers. A norm whose
            ``track_running_stats`` is False keeps what it has.

    Afterwards modes and momenta are as before, and so are a layer's ``kept``, ``eigenvalues`` and ``covariance``. A
    norm that saw no batch keeps its old statistics. If a batch or a norm raises an error, all norms keep theirs. Layers
    over several processes communicate as in training, so all processes must take the same number of batches.

    >>> model = torch.nn.Sequential(keel.nn.ZcaWhitening(8), torch.nn.BatchNorm1d(8))
    >>> keel.nn.recalibrate(model, [torch.randn(64, 8) for _ in range(5)])
    >>> model[0].num_batches_tracked, model[1].num_batches_tracked
    (tensor(5), tensor(5))
    """
    _check(model, batches, count)
    kinds = (Whitening, _BatchNorm) if batch_norms else (Whitening,)
    norms = [m for m in model.modules() if isinstance(m, kinds) and keeps_statistics(m)]
    modes = [(module, module.training) for module in model.modules()]
    saved = [_Saved(norm) for norm in norms]
    done = False
    try:
        with torch.no_grad():
            model.eval()
            for norm in norms:
                norm.train()
                _pause(norm, True)
                norm.momentum = None
                for _, buffer in _statistics(norm):
                    buffer.zero_()  # removes a NaN, which would survive even a weight of 0
            for batch in islice(batches, count):
                if isinstance(batch, (list, tuple)):
                    batch = batch[0]
                model(batch if device is None else _moved(batch, device))
        done = True
    finally:
        for module, training in modes:
            module.training = training
        for before in saved:
            before.restore(done)


def keeps_statistics(norm: Any) -> bool:
    # A BatchNorm whose track_running_stats was switched off later on evaluates with the statistics that it still has.
    # In training mode it would feed the norms after it something else.
    return norm.track_running_stats and norm.num_batches_tracked is not None


def _check(model: Any, batches: Any, count: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{_HERE}: expected a torch.nn.Module, got {type(model).__name__}")
    if not (hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")):
        raise TypeError(f"{_HERE}: expected batches to iterate over, got {type(batches).__name__}")
    if count is not None:
        rules.whole(_HERE, "count", count, 0)
    for name, module in model.named_modules():
        # A compiled norm is not an instance of Whitening, so it would be skipped silently.
        if isinstance(module, torch.jit.ScriptModule) and hasattr(module, "num_batches_tracked"):
            raise TypeError(
                f"{_HERE}: expected layers of Python, got a norm compiled by torch.jit ({name!r}); "
                "do this before torch.jit.script"
            )


def _moved(batch: Any, device: torch.device) -> Any:
    if not hasattr(batch, "to"):
        raise TypeError(
            f"{_HERE}: expected batches that can be moved to {device}, got {type(batch).__name__}; "
            "move them yourself and leave out device"
        )
    return batch.to(device)


def _statistics(norm: nn.Module) -> List[Tuple[str, Tensor]]:
    return [
        (name, buffer)
        for name, buffer in norm.named_buffers(recurse=False)
        if name == "num_batches_tracked" or name.startswith("running_")
    ]


def _pause(norm: nn.Module, paused: bool) -> None:
    """A norm that follows (keel.nn.follow) is not to look at these batches."""
    if "following" in norm._modules:
        norm.following.paused = paused


_OF_THE_LAST_STEP = ("kept", "eigenvalues", "covariance")


class _Saved:
    """The state of one norm before recalibration."""

    def __init__(self, norm: Any) -> None:
        self.norm = norm
        self.momentum = norm.momentum
        self.last = [getattr(norm, name, None) for name in _OF_THE_LAST_STEP]
        self.statistics = [(name, buffer.detach().clone()) for name, buffer in _statistics(norm)]

    def restore(self, keep_statistics: bool) -> None:
        self.norm.momentum = self.momentum
        _pause(self.norm, False)
        if isinstance(self.norm, Whitening):
            for name, value in zip(_OF_THE_LAST_STEP, self.last):
                setattr(self.norm, name, value)
        if keep_statistics and self.norm.num_batches_tracked > 0:
            if "following" in self.norm._modules:
                self.norm.following.recalibrated()
            return
        now = dict(_statistics(self.norm))  # torch may have replaced the tensors
        for name, before in self.statistics:
            try:
                with torch.no_grad():
                    now[name].copy_(before)
            except RuntimeError:  # e.g. a lost device, which the error already in flight reports
                if keep_statistics:
                    raise
