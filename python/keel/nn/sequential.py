"""The container that runs a whitening layer and the ReLU after it in one pass."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as of_all

from .. import _transforms as transforms
from . import inference
from .whitening import Whitening

_KINDS_OF_HOOKS = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
_GLOBAL_HOOKS = [getattr(of_all, f"_global_{kind}", {}) for kind in _KINDS_OF_HOOKS]


class Sequential(nn.Sequential):
    """:class:`torch.nn.Sequential`, except that a whitening layer and the :class:`torch.nn.ReLU` after it run in one
    pass.

    The entries stay what they are, so an entry that is called by itself does what it says. Every forward looks for
    pairs among the current entries. Where something may observe the tensor between the two, they run separately.
    """

    # Untyped, like torch's, so that torch.jit.script infers the output's type.
    def forward(self, input):  # type: ignore[no-untyped-def]
        if torch.jit.is_scripting():
            for module in self:
                input = module(input)
        else:
            input = _run(self, input)
        return input


def neighbours(modules: nn.Sequential) -> Iterator[Tuple[Any, Any]]:
    """Each entry and the next one, which is None for the last."""
    entries = list(modules)
    return zip(entries, [*entries[1:], None])


def _run(modules: nn.Sequential, input: Any) -> Any:
    relu_is_done = False
    for module, following in neighbours(modules):
        if relu_is_done:
            relu_is_done = False
        elif _in_one_pass(module, following, input):
            input = module._forward_then(True, input)
            relu_is_done = True
        else:
            input = module(input)
    return input


def _in_one_pass(norm: Any, relu: Any, input: Any) -> bool:
    if not isinstance(norm, Whitening) or type(relu) is not nn.ReLU or norm.activation is not None:
        return False
    # Recorded graphs keep both entries, each under its name. The proxies of torch.fx are not tensors.
    if transforms.is_compiling() or inference.exporting() or not isinstance(input, Tensor):
        return False
    return not any(_GLOBAL_HOOKS) and _is_plain(norm, Whitening) and _is_plain(relu, nn.ReLU)


def _is_plain(module: Any, kind: type) -> bool:
    backward_hooks = module._backward_hooks or vars(module).get("_backward_pre_hooks")
    return not backward_hooks and inference.what_else_it_does(module, kind) is None
