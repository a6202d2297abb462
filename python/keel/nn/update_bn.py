"""Makes ``torch.optim.swa_utils.update_bn`` work with whitening layers.

update_bn looks for instances of torch's ``_BatchNorm`` in ``model.modules()``, resets their statistics and sets their
momentum to None. Whitening layers are deliberately not such instances, because ``SyncBatchNorm.convert_sync_batchnorm``
and others would then replace them. Instead, update_bn alone is shown a stand-in.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import swa_utils

_UPDATE_BN = inspect.unwrap(swa_utils.update_bn).__code__


def asks() -> bool:
    """Whether the calling ``named_modules`` was reached from update_bn."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_name in ("modules", "named_modules"):
        frame = frame.f_back
    return frame.f_code is _UPDATE_BN


class StandIn(_BatchNorm):
    """Forwards to a whitening layer what update_bn does to a BatchNorm."""

    def __init__(self, layer: Any) -> None:  # not the base's: it has no state of its own
        object.__setattr__(self, "layer", layer)

    def reset_running_stats(self) -> None:
        self.layer.reset_running_stats()

    def __getattr__(self, name: str) -> Any:
        if name == "running_var":
            return torch.ones_like(self.layer.running_mean)
        return getattr(self.layer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Older versions of torch (1.13, 2.0) assign zeros and ones to the statistics themselves.
        if name in ("running_mean", "running_var"):
            self.reset_running_stats()
        else:
            setattr(self.layer, name, value)
