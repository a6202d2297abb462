"""Finds the map before each norm, and lets the norm follow it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .. import rules
from . import inference, patches
from .following import Following
from .recalibrate import keeps_statistics
from .sequential import neighbours
from .whitening import Whitening

_HERE = "keel.nn.follow"
SHARE, EVERY, LARGEST = 0.1, 8, 4608
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Followed(NamedTuple):
    """What :func:`keel.nn.follow` did, by the names of norms."""

    followed: Dict[str, str]  #: norm -> the map that it follows
    left: Dict[str, str]  #: norm -> why it keeps its running statistics as they are


def follow(
    model: nn.Module,
    names: Optional[Iterable[str]] = None,
    pairs: Optional[Mapping[str, str]] = None,
    share: Optional[float] = SHARE,
    every: int = EVERY,
    largest: int = LARGEST,
) -> Followed:
    """Makes norms evaluate with statistics that belong to the present weights of the convolution or linear layer before
    them, so that the statistics do not lag behind the weights while the model trains.

    For whitening layers and BatchNorms alike. Training computes the same as before. In addition it tracks the mean and
    covariance of the map's input, in a submodule ``following`` of the norm. ``eval()``, a call in evaluation mode,
    ``fold_into`` and ``state_dict()`` write the running statistics that these and the map's weights give. Call it
    before training, or at any time: until the next training step a norm keeps the statistics it has.

    Args:
        model: its norms are paired with the map whose output they get. Pairs are found by torch.fx, or where it cannot
            trace the model, as neighbours in a :class:`torch.nn.Sequential`.
        names: the norms to follow, as in ``model.named_modules()``. None means all that can; others are left as they
            are. A named norm that cannot be followed is an error.
        pairs: the names of norms and of the maps before them, where they cannot be found.
        share: how much work a look at a batch may be, as a share of the map's own in that training step. It decides how
            many output positions are looked at. None means all of them.
        every: how often to look: at each ``every``-th batch.
        largest: leave norms whose map has more inputs than that for an output, C k^2 of a convolution. The covariance
            is a square matrix of that size.

    The result says what is followed and what was left, and why. What is left can be recalibrated
    (:func:`keel.nn.recalibrate`). Transposed convolutions and maps that are called more than once are left, and so are
    maps with hooks, parametrizations or a forward of their own.

    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    >>> keel.nn.follow(model).followed
    {'1': '0'}
    """
    _check(model, share, every, largest)
    maps, left = find(model, names, pairs, largest)
    for norm, _, map in maps.values():
        attach(norm, map, share, every)
    return Followed({name: map_name for name, (_, map_name, _) in maps.items()}, left)


def unfollow(model: nn.Module) -> None:
    """Undoes :func:`keel.nn.follow`. The norms keep the statistics of the present weights.

    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    >>> _ = keel.nn.follow(model)
    >>> keel.nn.unfollow(model)
    >>> list(model[1].children())
    []
    """
    for module in list(model.modules()):
        if isinstance(module, Following):
            module.remove()


def attach(norm: Any, map: Any, share: Optional[float] = SHARE, every: int = EVERY) -> None:
    if "following" not in norm._modules:
        norm.add_module("following", Following(norm, map, share, every))


Pairs = Dict[str, Tuple[Any, str, Any]]


def find(
    model: nn.Module, names: Any, by_hand: Any = None, largest: int = LARGEST, all_of_them: bool = True
) -> Tuple[Pairs, Dict[str, str]]:
    """The norms that can be followed: by name the norm, its map's name and its map; and why others cannot. It is an
    error if none can, and with ``all_of_them`` if a named one cannot."""
    modules = dict(model.named_modules(remove_duplicate=False))
    norms = {name: m for name, m in model.named_modules() if isinstance(m, (Whitening, _BatchNorm))}
    by_hand = dict(by_hand or {})
    wanted = None if names is None else [names] if isinstance(names, str) else list(names)
    missing = [name for name in [*by_hand, *(wanted or [])] if name not in norms]
    if missing:
        known = ", ".join(map(repr, norms)) or "none"
        raise ValueError(f"{_HERE}: expected names of norms ({known}), got {missing}")
    for name in by_hand.values():
        if name not in modules:
            raise ValueError(f"{_HERE}: expected the name of a module, got {name!r}")
    before, calls = _neighbours_of(model, modules)
    before.update(by_hand)
    found: Pairs = {}
    left: Dict[str, str] = {}
    for name, norm in norms.items():
        if wanted is not None and name not in wanted and name not in by_hand:
            continue
        map_name = before.get(name)
        norm_of = None if map_name is None else modules[map_name]
        reason = _why_not(norm, name, map_name, norm_of, calls, largest)
        if reason is None:
            found[name] = (norm, str(map_name), norm_of)
        else:
            left[name] = reason
    told = {name: left[name] for name in left if name in by_hand or (wanted is not None and all_of_them)}
    if told or not found:
        name, reason = next(iter((told or left).items()), ("the model", "expected a norm, got none"))
        raise ValueError(f"{_HERE}: '{name}': {reason}" if left else f"{_HERE}: {reason}")
    return found, left


def _neighbours_of(model: nn.Module, modules: Dict[str, nn.Module]) -> Tuple[Dict[str, str], Counter[nn.Module]]:
    """For each module the name of the one whose output it gets, and how often each is called."""
    first = {module: name for name, module in reversed(list(modules.items()))}
    before: Dict[str, str] = {}
    calls: Counter[nn.Module] = Counter()
    try:
        graph = torch.fx.Tracer().trace(model)
    except Exception:  # whatever a forward does with what is not a tensor
        for module in modules.values():
            if isinstance(module, nn.Sequential):
                calls.update(module)
                before.update({first[b]: first[a] for a, b in neighbours(module) if b is not None})
        return before, calls
    for node in graph.nodes:
        if node.op != "call_module":
            continue
        module = modules[node.target]
        calls[module] += 1
        given = next(iter([*node.args, *node.kwargs.values()]), None)
        if isinstance(given, torch.fx.Node) and given.op == "call_module":
            before[first[module]] = first[modules[given.target]]
    return before, calls


def _why_not(norm: Any, name: str, map_name: Any, map: Any, calls: Counter[nn.Module], largest: int) -> Optional[str]:
    if isinstance(norm, nn.modules.lazy.LazyModuleMixin):
        return f"expected a layer that knows its channels, got {type(norm).__name__}; call the model first"
    if not keeps_statistics(norm):
        return "it keeps no running statistics"
    if map is None:
        return "found no convolution or linear layer before it; name it in pairs"
    if isinstance(map, _TRANSPOSED):
        return f"expected a convolution or linear layer before it, got {type(map).__name__} '{map_name}'"
    kind = next((kind for kind in patches.KINDS if isinstance(map, kind)), None)
    if kind is None:
        return f"expected a convolution or linear layer before it, got {type(map).__name__} '{map_name}'"
    for what, module in ((map_name, map), (name, norm)):
        if calls[module] > 1:
            return f"'{what}' is called {calls[module]} times in a forward: its statistics are of several inputs"
    if isinstance(map, nn.modules.lazy.LazyModuleMixin):
        return f"expected a layer that knows its channels, got {type(map).__name__} '{map_name}'; call the model first"
    other = inference.what_else_it_does(map, kind)
    if nn.utils.parametrize.is_parametrized(map):
        other = "parametrizations"
    if other is not None:
        return f"expected a plain {kind.__name__}, got '{map_name}' with {other}"
    if map.weight.shape[0] != norm.num_features:
        return f"expected {norm.num_features} output channels of '{map_name}', got {map.weight.shape[0]}"
    if patches.numbers_of(map) > largest:
        return (
            f"'{map_name}' makes an output of {patches.numbers_of(map)} numbers, and its covariance would be too large "
            f"(largest={largest}); recalibrate instead"
        )
    return None


def _check(model: Any, share: Any, every: Any, largest: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{_HERE}: expected a torch.nn.Module, got {type(model).__name__}")
    if share is not None and not rules.finite(_HERE, "share", share) > 0:
        raise ValueError(f"{_HERE}: expected share > 0 or None, got {share}")
    rules.whole(_HERE, "every", every, 1)
    rules.whole(_HERE, "largest", largest, 1)
