"""Layers over several processes against one process with the concatenated batch."""

import copy
import os
import pickle
import time

import processes
import pytest
import support
import torch
from torch import distributed as dist
from torch import nn

import keel
from keel.nn import convert_batchnorm

SHARES = {2: [(5, 8), (0, 9)], 3: [(4, 1, 7), (6, 0, 5)]}
RULES = [keel.Exact(), keel.PowerIteration()]


def _step(layer, x, grad):
    x = x.detach().clone().requires_grad_()
    output = layer(x)
    output.backward(grad)
    parts = {"output": output.detach(), "grad_input": x.grad}
    parts.update({f"grad_{name}": p.grad for name, p in layer.named_parameters()})
    return parts, {name: buffer.clone() for name, buffer in layer.named_buffers()}


def _layer(kind, dtype, rule=keel.Exact(), group=None):
    layer = kind(8, group_size=4, rule=rule, process_group=group, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(0.5, 2, 8))
        layer.bias.copy_(torch.linspace(-1, 1, 8))
    return layer


def _cases(size):
    for shares in SHARES[size]:
        for kind in support.LAYERS:
            for dtype in (torch.float64, torch.float32):
                yield shares, kind, dtype, keel.Exact()
        for rule in RULES[1:]:
            yield shares, keel.nn.ZcaWhitening, torch.float64, rule


def _whole(shares, dtype):
    x = support.correlated(sum(shares), 8, 3, 3, dtype=dtype, mean=1.0)
    return x, support.correlated(sum(shares), 8, 3, 3, seed=1, dtype=dtype)


def _share(tensor, shares, rank):
    return tensor[sum(shares[:rank]) :][: shares[rank]]


def _steps_of_a_rank(rank, size):
    found = []
    for shares, kind, dtype, rule in _cases(size):
        whole = _whole(shares, dtype)
        layer = _layer(kind, dtype, rule, "world")
        found.append(_step(layer, *(_share(t, shares, rank) for t in whole)))
        assert layer.kept is not None
    # By value: a tensor in shared memory dies with its process.
    return pickle.dumps(found)


def _error(found, truth):
    return 0 if truth.numel() == 0 else support.relative(found.double(), truth.double())


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_equal_one(size):
    ranks = [pickle.loads(found) for found in processes.run(size, _steps_of_a_rank)]
    for case, (shares, kind, dtype, rule) in enumerate(_cases(size)):
        x, grad = _whole(shares, dtype)
        one, statistics = _step(_layer(kind, dtype, rule), x, grad)
        exact, _ = _step(_layer(kind, torch.float64, rule), x.double(), grad.double())
        steps = [rank[case][0] for rank in ranks]
        for part, truth in one.items():
            if part in ("output", "grad_input"):
                found = torch.cat([step[part] for step in steps])
            else:
                found = sum(step[part] for step in steps)
            assert found.dtype == truth.dtype and found.shape == truth.shape
            rounding = 1e-10
            if dtype == torch.float32:  # what one process gets wrong, four times over
                rounding = 4 * max(_error(truth, exact[part]), 2.0**-23)
            assert _error(found, truth) <= rounding, (shares, kind, dtype, rule, part)
        for name, truth in statistics.items():
            everywhere = [rank[case][1][name] for rank in ranks]
            assert all(torch.equal(other, everywhere[0]) for other in everywhere), name
            tolerance = 1e-10 if dtype == torch.float64 else 1e-5
            assert _error(everywhere[0], truth) <= tolerance, (kind, dtype, name)


def _in_ddp(rank, size):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(model, nn.Linear(8 * 16, 5)).double()
    # ReLU in the same pass in several processes, apart in one.
    model = convert_batchnorm(model, group_size=4, process_group="world", fuse_relu=size > 1)
    keel.nn.follow(model, share=None, every=1)
    x = torch.randn(12, 3, 6, 6, dtype=torch.double)
    if size > 1:
        shares = (8, 4)
        x, model = _share(x, shares, rank), nn.parallel.DistributedDataParallel(model)
    optimiser = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(4):
        optimiser.zero_grad()
        (model(x).square().sum() / 12 * size).backward()  # the mean over ranks is the whole's
        optimiser.step()
    model.eval()
    return pickle.dumps([p.detach() for p in model.parameters()] + list(model.buffers()))


def test_training_in_ddp_follows_one_process():
    one = pickle.loads(processes.run(1, _in_ddp)[0])
    ranks = [pickle.loads(found) for found in processes.run(2, _in_ddp)]
    for truth, first, second in zip(one, *ranks):
        assert torch.equal(first, second)
        assert _error(first, truth) < 1e-10


def _odds_and_ends(rank, size):
    # A group of one, and one that this process is not in.
    alone, others = [dist.new_group([r]) for r in range(size)], dist.new_group([1])
    x, grad = _whole((9,), torch.float32)
    mine = _layer(keel.nn.ZcaWhitening, torch.float32, group=alone[rank])
    plain = _layer(keel.nn.ZcaWhitening, torch.float32)
    for a, b in zip(_step(mine, x, grad)[0].values(), _step(plain, x, grad)[0].values()):
        assert torch.equal(a, b)
    if rank == 0:
        layer = keel.nn.ZcaWhitening(8, process_group=others)
        with pytest.raises(RuntimeError, match="a group that this process belongs to"):
            layer(x)

    # Evaluation does not communicate: one rank does it alone.
    if rank == 0:
        for tracked in (True, False):
            layer = keel.nn.ZcaWhitening(8, track_running_stats=tracked, process_group="world")
            assert layer.eval()(x).isfinite().all()

    # Too few samples, counted over all; half precision; no second derivative.
    layer = keel.nn.ZcaWhitening(2, process_group="world")
    with pytest.raises(ValueError, match="more than 1 value per channel .* got 1 in 2 processes"):
        layer(torch.ones(rank, 2))
    assert layer(torch.randn(1, 2)).isfinite().all()
    y = keel.nn.ZcaWhitening(8, process_group="world")(x.bfloat16().requires_grad_())
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    z = x.double().requires_grad_()
    layer = _layer(keel.nn.ZcaWhitening, torch.float64, group="world")
    (g,) = torch.autograd.grad(layer(z).sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        g.square().sum().backward()

    # Without parameters, and with inputs that need no gradient: no more to say in backward.
    layer = keel.nn.PcaWhitening(8, affine=False, process_group="world")
    layer(x.requires_grad_()).sum().backward()
    _layer(keel.nn.PcaDenoising, torch.float32, group="world")(x.detach()).sum().backward()

    # A copy of a layer with a group is had, or refused, as a SyncBatchNorm's is.
    assert _refusal(mine) is _refusal(nn.SyncBatchNorm(8, process_group=alone[rank]))
    return True


def _refusal(norm):
    try:
        copy.deepcopy(norm)
    except Exception as error:
        return type(error)
    return None


def test_odds_and_ends():
    assert processes.run(2, _odds_and_ends) == [True, True]


def _lose_a_rank(rank, size, how):
    layer, x = keel.nn.ZcaWhitening(4, process_group="world"), torch.randn(9, 4)
    layer(x)
    if rank == 1:
        if how == "hangs":
            time.sleep(120)
        os._exit(0)
    with pytest.raises(RuntimeError, match="the sum over 2 processes failed in process 0"):
        layer(x)
    return True


@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_lost_rank_is_an_error(how):
    assert processes.run(2, _lose_a_rank, how, timeout=5, patience=90, awaited=1) == [True]
