"""Running statistics made again: plain averages at frozen weights, and nothing else changed."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import swa_utils

import keel
from support import LAYERS, correlated


def batches(count=3, channels=6):
    return [(k + 1) * correlated(40, channels, seed=k, mean=k) for k in range(count)]


def model(layer=keel.nn.ZcaWhitening, dropout=0.0, **options):
    made = nn.Sequential(
        nn.Linear(6, 6), layer(6, group_size=3, **options), nn.Dropout(dropout), nn.BatchNorm1d(6)
    )
    return made.double()


def state(module):
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in b)


@pytest.mark.parametrize("layer", LAYERS)
def test_statistics_are_plain_averages(layer):
    network = model(layer)
    alone = copy.deepcopy(network)
    alone[1].momentum = alone[3].momentum = 1.0
    each = []
    with torch.no_grad():
        for batch in batches():
            alone(batch)
            each.append(state(alone))
    keel.nn.recalibrate(network, batches())
    for name, buffer in network.named_buffers():
        if name.endswith("num_batches_tracked"):
            assert buffer == 3
        else:
            expected = torch.stack([one[name] for one in each]).mean(0)
            torch.testing.assert_close(buffer, expected, rtol=1e-13, atol=1e-13)


def test_a_batch_norm_that_no_longer_tracks_feeds_the_others_as_in_evaluation():
    network = nn.Sequential(nn.BatchNorm1d(6), keel.nn.ZcaWhitening(6)).double()
    network(batches()[0])
    frozen = network[0]
    frozen.track_running_stats = False
    before = state(frozen)
    alone = copy.deepcopy(network)
    alone[0].eval()
    alone[1].reset_running_stats()
    alone[1].momentum = None
    with torch.no_grad():
        for batch in batches():
            alone(batch)
    keel.nn.recalibrate(network, batches())
    assert same(state(frozen), before)
    assert same(state(network[1]), state(alone[1]))


def test_of_batch_norms_alone_it_is_torchs_own():
    mine = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.BatchNorm1d(6)).double()
    mine(batches()[0])
    theirs = copy.deepcopy(mine)
    keel.nn.recalibrate(mine, batches())
    swa_utils.update_bn(batches(), theirs)
    assert same(state(mine), state(theirs))


@pytest.mark.parametrize("layer", LAYERS)
def test_torchs_update_bn_does_the_same(layer):
    network = model(layer, momentum=0.3)
    network(batches()[0])
    network[1].running_matrix.fill_(float("nan"))
    network.eval()
    averaged = swa_utils.AveragedModel(network).eval()
    keel.nn.recalibrate(network, batches())
    swa_utils.update_bn([(batch, None) for batch in batches()], averaged)
    assert same(state(averaged.module), state(network))
    assert averaged.module[1].momentum == 0.3 and not averaged.module[1].training
    alone = layer(6, group_size=3).double()  # and where there is no other norm
    swa_utils.update_bn(batches(), alone)
    assert alone.num_batches_tracked == 3 and alone.momentum == 0.1
    without = model(layer, track_running_stats=False)
    swa_utils.update_bn(batches(), without)
    assert without[3].num_batches_tracked == 3


# update_bn alone is shown a BatchNorm: others would replace it.
def test_to_all_others_the_layers_are_no_batch_norms():
    network = model()
    modules, names = list(network.modules()), list(network.state_dict())
    swa_utils.update_bn(batches(), network)
    assert list(network.modules()) == modules and list(network.state_dict()) == names
    assert [name for name, _ in network.named_modules()] == ["", "0", "1", "2", "3"]
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in network[1].modules())
    layer = network[1]
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    assert synchronised[1] is layer
    assert isinstance(synchronised[3], nn.SyncBatchNorm)
    assert len(list(copy.deepcopy(network[:3]).modules())) == 4


def test_averaged_weights():
    network = model()
    averaged = swa_utils.AveragedModel(network)
    loader = [(batch, torch.zeros(40)) for batch in batches(5)]  # inputs and labels
    keel.nn.recalibrate(averaged, loader, count=3, device=torch.device("cpu"))
    keel.nn.recalibrate(network, batches())
    assert same(state(averaged.module), state(network))


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_else_changes(fails):
    network = model(keel.nn.PcaDenoising, dropout=0.9, momentum=0.3)
    network(batches()[0])
    network[0].eval(), network[3].eval()
    modes = [module.training for module in network.modules()]
    rank, before = network[1].kept, state(network)
    weights = [p.clone() for p in network.parameters()]
    random = torch.get_rng_state()
    given = batches(2) + ([torch.zeros(3, 7).double()] if fails else [])
    if fails:
        with pytest.raises(RuntimeError):
            keel.nn.recalibrate(network, given)
    else:
        keel.nn.recalibrate(network, given)
    assert same(state(network), before) == fails
    assert [module.training for module in network.modules()] == modes
    assert network[1].momentum == 0.3 and network[3].momentum == 0.1
    assert network[1].kept is rank
    assert all(torch.equal(a, b) and a.grad is None for a, b in zip(network.parameters(), weights))
    assert torch.equal(torch.get_rng_state(), random)  # no dropout


@pytest.mark.parametrize("place", [0, 4])
def test_a_norm_that_raises_leaves_everything_as_it_was(place):
    network = model(keel.nn.PcaDenoising, momentum=0.3)
    network(batches()[0])
    protected = nn.BatchNorm1d(6).double()
    protected.running_mean.fill_(5)
    with torch.inference_mode():
        protected.running_var = torch.ones(6).double()  # which nobody may write to
    network = nn.Sequential(*[*network[:place], protected, *network[place:]])
    network[2].eval()
    modes, before = [module.training for module in network.modules()], state(network)
    momenta = [getattr(module, "momentum", None) for module in network]
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        keel.nn.recalibrate(network, batches())
    assert same(state(network), before)
    assert [module.training for module in network.modules()] == modes
    assert [getattr(module, "momentum", None) for module in network] == momenta


def test_whitening_layers_alone_and_norms_that_see_nothing():
    network = model()
    network.add_module("unused", nn.BatchNorm1d(4).double())
    network.forward = lambda x: nn.Sequential.forward(network[:4], x)
    network(batches()[0])
    network.unused.running_mean.fill_(5)
    before = state(network)
    keel.nn.recalibrate(network, batches(), batch_norms=False)
    after = state(network)
    assert after["1.num_batches_tracked"] == 3
    assert same({k: v for k, v in after.items() if k[0] != "1"},
                {k: v for k, v in before.items() if k[0] != "1"})  # fmt: skip
    keel.nn.recalibrate(network, batches())
    assert network.unused.running_mean.tolist() == [5] * 4
    after = state(network)
    keel.nn.recalibrate(network, [])
    assert same(state(network), after)


def test_spoilt_statistics_are_made_good():
    network = model()
    for buffer in network.buffers():
        if buffer.is_floating_point():
            buffer.fill_(float("nan"))
    keel.nn.recalibrate(network, batches())
    assert all(buffer.isfinite().all() for buffer in network.buffers())


def test_what_cannot_be_recalibrated_is_named():
    network = model()
    network(batches()[0])
    before = state(network)
    for error, words, arguments in [
        (TypeError, "expected a torch.nn.Module, got NoneType", (None, batches())),
        (TypeError, "expected batches to iterate over, got int", (network, 3)),
        (ValueError, "expected count >= 0, got -1", (network, batches(), -1)),
        (TypeError, "expected count to be a whole number, got True", (network, batches(), True)),
        (TypeError, "got dict; move them yourself", (network, [{}], None, torch.device("cpu"))),
    ]:
        with pytest.raises(error, match=f"keel.nn.recalibrate: .*{words}"):
            keel.nn.recalibrate(*arguments)
    assert same(state(network), before) and network.training
    # Norms of a compiled model were passed over without a word.
    compiled = torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).double())
    with pytest.raises(TypeError, match=r"got a norm compiled by torch.jit \('1'\)"):
        keel.nn.recalibrate(compiled, batches())
