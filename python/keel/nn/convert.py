"""Replaces batch normalisation layers with whitening layers."""

from __future__ import annotations

from typing import Any, Callable, Container, Dict, Iterable, List, Type, Union

import torch
from torch import nn

from .. import rules
from .follow import attach, find
from .inference import what_else_it_does
from .pca_denoising import PcaDenoising
from .scripted import in_statistics_type
from .sequential import Sequential, neighbours
from .whitening import Whitening
from .zca_whitening import ZcaWhitening

_BatchNorm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_Lazy = (nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d)
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_HERE = "keel.nn.convert_batchnorm"


def convert_batchnorm(
    model: nn.Module,
    layer: Type[Whitening] = ZcaWhitening,
    names: Union[None, Iterable[str], Callable[[str, nn.Module], bool]] = None,
    copy_affine: bool = True,
    copy_statistics: bool = True,
    fuse_relu: bool = False,
    follow: bool = False,
    **options: Any,
) -> nn.Module:
    """Replaces BatchNorm1d, 2d and 3d and SyncBatchNorm layers with whitening layers, and returns the model.

    Like :meth:`torch.nn.SyncBatchNorm.convert_sync_batchnorm`, it changes the model in place. If the model itself is a
    BatchNorm, the new layer is returned. After an error the model is unchanged. A BatchNorm with behaviour of its own
    (hooks, or a subclass with an activation in its forward) is an error, since the new layer would lose it; use
    ``names`` to leave it out. Whitening's running statistics lag behind the weights: ``follow=True`` or
    :func:`keel.nn.recalibrate` brings them up to date.

    Args:
        model: searched recursively.
        layer: :class:`ZcaWhitening`, :class:`PcaDenoising` or :class:`PcaWhitening`.
        names: which layers to replace: None for all, their names as in ``model.named_modules()``, or a function of
            name and module that returns a bool. A layer that is in several places is replaced in all of them.
        copy_affine: keep the parameters ``weight`` and ``bias`` as the same objects, so that optimisers stay valid.
        copy_statistics: start with the running mean and variance of a BatchNorm that is not new. In evaluation
            the model then computes the same as before, until it is trained. (Not for PcaWhitening, whose output
            channels mean something else.)
        fuse_relu: where a :class:`torch.nn.ReLU` comes next in the same :class:`torch.nn.Sequential`, the Sequential
            runs both in one pass, without ReLU's own passes over memory. The entries stay a norm and a ReLU, so they
            do what they say if a ``forward`` calls them one by one, or hooks look at them. It is an error if there is
            no such ReLU. A ReLU that is called in a ``forward`` or in a subclass of Sequential cannot be found: set the
            layer's ``activation`` yourself.
        follow: let the new layers follow the weights before them (:func:`follow`), as far as their convolutions or
            linear layers can be found. It is an error if none can.
        options: passed to the layer, such as ``group_size``. Unless given here, momentum, affine,
            track_running_stats and a SyncBatchNorm's process_group are taken from the BatchNorm.

    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16))
    >>> model = keel.nn.convert_batchnorm(model, names=["1"], group_size=8)
    >>> type(model[1]).__name__, model[1].groups
    ('ZcaWhitening', 2)
    """
    _check(model, layer)
    rules.flag(_HERE, "fuse_relu", fuse_relu)
    rules.flag(_HERE, "follow", follow)
    norms = {name: m for name, m in model.named_modules() if isinstance(m, _BatchNorm + _Lazy)}
    chosen = _choose(norms, names, model)
    new: Dict[nn.Module, Whitening] = {}
    for name, norm in chosen.items():
        new[norm] = _replacement(name, norm, layer, copy_affine, copy_statistics, options)
    maps = find(model, chosen, all_of_them=False)[0].values() if follow else ()
    for parent in _followed_by_relu(model, new) if fuse_relu else ():
        parent.__class__ = Sequential  # not a new module, since others may refer to this one
    for norm, _, map in maps:
        attach(new[norm], map)
    if model in new:
        return new[model]
    # By parent and attribute, not by name, so that a shared module is replaced everywhere.
    for parent in list(model.modules()):
        # Not named_children(), which lists a child that a parent has twice only once.
        for attribute, child in list(parent._modules.items()):
            if child in new:
                setattr(parent, attribute, new[child])
    return model


def _followed_by_relu(model: nn.Module, norms: Container[nn.Module]) -> List[nn.Module]:
    """The Sequentials in which a ReLU comes next after one of the norms."""
    found = [
        parent
        for parent in model.modules()
        if type(parent) in (nn.Sequential, Sequential)
        and any(norm in norms and type(relu) is nn.ReLU for norm, relu in neighbours(parent))
    ]
    if not found:
        raise ValueError(
            f"{_HERE}: expected a torch.nn.ReLU after a BatchNorm in a torch.nn.Sequential, for fuse_relu=True; "
            "got none"
        )
    return found


def _check(model: Any, layer: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"{_HERE}: expected a torch.nn.Module, got {type(model).__name__}")
    # Other callables that make a layer are welcome.
    if not callable(layer):
        hint = f"did you mean names={layer!r}?"
        raise TypeError(f"{_HERE}: expected the class of a whitening layer, got {layer!r}; {hint}")
    if isinstance(layer, nn.Module) or (isinstance(layer, type) and not issubclass(layer, Whitening)):
        got = f"the class {layer.__name__}" if isinstance(layer, type) else f"an object of {type(layer).__name__}"
        raise TypeError(f"{_HERE}: expected the class of a whitening layer, got {got}")


def _choose(norms: Dict[str, nn.Module], names: Any, model: nn.Module) -> Dict[str, nn.Module]:
    known = ", ".join(repr(name) for name in norms) or "none"
    if names is None:
        chosen = norms
    elif callable(names):
        chosen = {name: norm for name, norm in norms.items() if names(name, norm)}
    else:
        if isinstance(names, str):
            names = [names]
        names = list(names)
        first = {norm: name for name, norm in norms.items()}
        # A shared layer has several names, of which named_modules() lists the first.
        every = {name: m for name, m in model.named_modules(remove_duplicate=False) if m in first}
        missing = [name for name in names if name not in every]
        if missing:
            raise ValueError(f"{_HERE}: expected names of BatchNorm layers ({known}), got {missing}")
        chosen = {first[every[name]]: every[name] for name in names}
    if not norms:
        raise ValueError(f"{_HERE}: expected a model with BatchNorm layers, got one without")
    if not chosen:
        raise ValueError(f"{_HERE}: expected a BatchNorm layer to replace, got none of {known}")
    return chosen


def _replacement(
    name: str,
    norm: Any,
    layer: Type[Whitening],
    copy_affine: bool,
    copy_statistics: bool,
    options: Dict[str, Any],
) -> Whitening:
    _check_plain(name, norm)
    like = next((t for t in (norm.weight, norm.running_mean) if t is not None), None)
    # In evaluation a BatchNorm uses the statistics it has, even if track_running_stats was switched off later on. Then
    # training does not change them.
    has_statistics = norm.running_mean is not None
    constant = has_statistics and not norm.track_running_stats
    arguments = {
        "momentum": 0.0 if constant else norm.momentum,
        "affine": norm.affine,
        "track_running_stats": has_statistics,
        "process_group": _group(norm),
        "device": None if like is None else like.device,
        "dtype": None if like is None else like.dtype,
        **options,
    }
    try:
        new = layer(norm.num_features, **arguments)
    except ValueError as error:
        raise ValueError(f"{_HERE}: '{name}': {error}") from error
    if copy_affine and new.affine and norm.affine:
        new.weight, new.bias = norm.weight, norm.bias
    if copy_statistics and new.track_running_stats and not _is_new(norm):
        _copy_statistics(new, norm)
    return new.train(norm.training)


def _check_plain(name: str, norm: nn.Module) -> None:
    if isinstance(norm, _Lazy):
        raise ValueError(
            f"{_HERE}: '{name}': expected a layer that knows its channels, got {type(norm).__name__}; call the model "
            "with a batch first"
        )
    kind = next(kind for kind in _BatchNorm if isinstance(norm, kind))
    parametrized = nn.utils.parametrize.is_parametrized(norm)
    other = "parametrizations" if parametrized else what_else_it_does(norm, kind)
    if any(getattr(norm, hooks, None) for hooks in _BACKWARD_HOOKS):
        other = "backward hooks: remove them first"
    if other is not None:
        raise ValueError(
            f"{_HERE}: '{name}': expected a layer that does what {kind.__name__} does, got "
            f"{type(norm).__name__} with {other}"
        )


def _group(norm: Any) -> Any:
    """The norm's process group. In a SyncBatchNorm, None means all processes."""
    if not isinstance(norm, nn.SyncBatchNorm):
        return None
    return norm.process_group or "world"


def _is_new(norm: Any) -> bool:
    mean, variance, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
    if mean is None or mean.is_meta:
        return True
    # Not by the count alone: it is 0 after loading a file from before torch counted, and statistics set by hand.
    return not (bool(count) or bool(mean.any()) or bool((variance != 1).any()))


def _copy_statistics(new: Whitening, norm: Any) -> None:
    """Sets statistics with which the new layer computes the same as the BatchNorm in evaluation."""
    with torch.no_grad():
        variance = in_statistics_type(norm.running_var)  # eps would be lost in float16
        if isinstance(new, PcaDenoising):  # the new layer adds its own eps, which may differ
            new.running_variance.copy_(variance + norm.eps - new.eps)
        elif isinstance(new, ZcaWhitening):
            scale = (variance + norm.eps).rsqrt().view(new.groups, new.group_size)
            new.running_matrix.copy_(torch.diag_embed(scale))
        else:
            return
        new.running_mean.copy_(norm.running_mean)
        if norm.num_batches_tracked is not None:
            new.num_batches_tracked.copy_(norm.num_batches_tracked)
