"""The layers as norm layers: modes, state, copies, types, and what a bad batch does."""

import copy
import io
import pickle

import pytest
import torch
from torch.autograd import forward_ad

import keel
from support import LAYERS, correlated, covariance, grouped, relative

NAMES = {
    keel.nn.ZcaWhitening: ["running_mean", "running_matrix", "num_batches_tracked"],
    keel.nn.PcaWhitening: ["running_mean", "running_matrix", "num_batches_tracked"],
    keel.nn.PcaDenoising: [
        "running_mean", "running_matrix", "running_variance", "num_batches_tracked",
    ],
}  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_state_names_shapes_and_beginnings(layer):
    made = layer(6, group_size=3)
    assert list(made.state_dict()) == ["weight", "bias"] + NAMES[layer]
    assert made.running_mean.tolist() == [0] * 6 and made.weight.tolist() == [1] * 6
    assert torch.equal(made.running_matrix, torch.eye(3).expand(2, 3, 3))
    assert made.num_batches_tracked.dtype == torch.long and made.num_batches_tracked == 0
    if layer is keel.nn.PcaDenoising:
        assert made.running_variance.tolist() == [1] * 6
    assert made.kept is None


@pytest.mark.parametrize("layer", LAYERS)
def test_running_statistics_follow_momentum(layer):
    made = layer(4, momentum=0.25, dtype=torch.double)
    batches = [correlated(30, 4, seed=seed, mean=seed) for seed in range(3)]
    mean = torch.zeros(4, dtype=torch.double)
    variance = torch.ones(4, dtype=torch.double)
    for x in batches:
        made(x)
        mean = 0.75 * mean + 0.25 * x.mean(0)
        variance = 0.75 * variance + 0.25 * x.var(0, unbiased=False)
    torch.testing.assert_close(made.running_mean, mean)
    if layer is keel.nn.PcaDenoising:
        torch.testing.assert_close(made.running_variance, variance)
    assert made.num_batches_tracked == 3


def test_running_matrixs_are_what_they_are_called():
    x = correlated(60, 4)
    cov = covariance(x)[0]
    zca, pca, rotation = (layer(4, momentum=1.0, dtype=torch.double) for layer in LAYERS)
    for layer in (zca, pca, rotation):
        layer(x)
    (s,), (p,), (r,) = (layer.running_matrix for layer in (zca, pca, rotation))
    eye = torch.eye(4, dtype=torch.double)
    torch.testing.assert_close(s @ s, torch.linalg.inv(cov + 1e-4 * eye))
    torch.testing.assert_close(p @ p, p)
    torch.testing.assert_close(p, p.mT)
    assert p.trace().item() == pytest.approx(pca.kept.item())
    torch.testing.assert_close(r @ (cov + 1e-4 * eye) @ r.mT, eye)


@pytest.mark.parametrize("layer", LAYERS)
def test_cumulative_average(layer):
    made = layer(4, momentum=None, dtype=torch.double)
    batches = [correlated(30, 4, seed=seed) for seed in range(4)]
    layer_matrixs = []
    for x in batches:
        made(x)
        alone = layer(4, momentum=1.0, dtype=torch.double)
        alone(x)
        layer_matrixs.append(alone.running_matrix)
    torch.testing.assert_close(made.running_matrix, torch.stack(layer_matrixs).mean(0))
    torch.testing.assert_close(made.running_mean, torch.stack(batches).mean((0, 1)))


@pytest.mark.parametrize("layer", LAYERS)
def test_evaluation_is_the_batch_with_momentum_one(layer):
    made = layer(6, groups=2, momentum=1.0, dtype=torch.double)
    x = correlated(20, 6, 5)
    trained = made(x)
    assert relative(made.eval()(x), trained) < 1e-12
    before = copy.deepcopy(made.state_dict())
    made(correlated(20, 6, 5, seed=1))
    assert all(torch.equal(before[name], value) for name, value in made.state_dict().items())


@pytest.mark.parametrize("dead", [[2], [0, 1, 2, 3]])
def test_denoising_without_eps_treats_constant_channels_as_batchnorm(dead):
    layer = keel.nn.PcaDenoising(4, eps=0, momentum=1, rank=keel.FullRank(), dtype=torch.double)

    def norm(x):
        """BatchNorm with eps = 0, which newer torch refuses to build."""
        centred = x - x.mean(0)
        variance = centred.square().mean(0)
        alive = variance > 0
        return torch.where(alive, centred / torch.where(alive, variance, 1.0).sqrt(), 0.0)

    x, along = torch.randn(2, 30, 4, dtype=torch.double)
    x[:, dead] = 7.25
    x.requires_grad_()
    ours, theirs = layer(x), norm(x)
    torch.testing.assert_close(ours, theirs)
    (grad,) = torch.autograd.grad(ours, x, along)
    torch.testing.assert_close(grad, torch.autograd.grad(theirs, x, along)[0])
    with forward_ad.dual_level():
        output = layer(forward_ad.make_dual(x.detach(), along))
        tangent = forward_ad.unpack_dual(output).tangent
    torch.testing.assert_close((tangent * along).sum(), (grad * along).sum())
    torch.testing.assert_close(layer.eval()(x), ours)
    torch.testing.assert_close(torch.jit.script(layer)(x), ours)


@pytest.mark.parametrize("layer", LAYERS)
def test_backward_in_evaluation(layer):
    made = layer(4, groups=2, dtype=torch.double)
    made(correlated(30, 4, mean=2.0))
    made.eval()
    x = correlated(5, 4, 3).requires_grad_()
    assert torch.autograd.gradcheck(made, (x,))
    made(x).square().sum().backward()
    assert made.weight.grad.isfinite().all() and (made.weight.grad != 0).all()
    torch.testing.assert_close(made.bias.grad, 2 * made(x).sum((0, 2)))


@pytest.mark.parametrize("rule", [keel.Exact(), keel.PowerIteration(5)])
@pytest.mark.parametrize("layer", LAYERS)
def test_steps_in_a_row_and_second_backwards(layer, rule):
    made = layer(4, rule=rule)
    optimiser = torch.optim.SGD(made.parameters(), 0.01)
    for step in range(3):
        optimiser.zero_grad()
        made(correlated(30, 4, seed=step, dtype=torch.float32)).square().sum().backward()
        optimiser.step()
    x = correlated(30, 4, dtype=torch.float32).requires_grad_()
    loss = made(x).pow(3).sum()
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * first)
    assert not any(buffer.requires_grad for buffer in made.buffers())
    assert all(buffer.grad_fn is None for buffer in made.buffers())


@pytest.mark.parametrize("layer", LAYERS)
def test_without_running_statistics(layer):
    made = layer(4, track_running_stats=False)
    assert list(made.state_dict()) == ["weight", "bias"]
    x = correlated(30, 4, dtype=torch.float32)
    assert torch.equal(made(x), made.eval()(x))
    made.reset_running_stats()


@pytest.mark.parametrize("layer", LAYERS)
def test_statistics_switched_on_later_are_still_missing(layer):
    x = correlated(30, 4)
    made = layer(4, track_running_stats=False, dtype=torch.double)
    expected = made.eval()(x)
    made.track_running_stats = True  # a BatchNorm goes on with the statistics of the batch, too
    assert torch.equal(made(x), expected)
    assert torch.equal(made.train()(x), expected)
    made.reset_parameters()
    assert list(made.state_dict()) == ["weight", "bias"]
    torch.optim.swa_utils.update_bn([x], made)
    with pytest.raises(RuntimeError, match="with running statistics, got one constructed without them"):
        made.eval().as_conv1x1()


@pytest.mark.parametrize("layer", LAYERS)
def test_without_affine(layer):
    made, scaled = layer(4, affine=False), layer(4)
    x = correlated(30, 4, dtype=torch.float32)
    assert not list(made.parameters())
    assert torch.equal(made(x), scaled(x)) and torch.equal(made.eval()(x), scaled.eval()(x))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_bad_batch_leaves_the_statistics(layer, bad, momentum):
    made = layer(4, groups=2, momentum=momentum)
    for first in (True, False):
        before = copy.deepcopy(made.state_dict())
        x = correlated(30, 4, dtype=torch.float32)
        x[3, 1] = bad
        y = made(x)
        assert y[:, :2].isnan().all() and y[:, 2:].isfinite().all()
        assert all(torch.equal(before[name], value) for name, value in made.state_dict().items())
        if first:
            made(correlated(30, 4, dtype=torch.float32))
            assert made.num_batches_tracked == 1


@pytest.mark.parametrize("layer", LAYERS)
def test_state_round_trip_copies_and_pickles(layer):
    made = layer(6, group_size=2, rule=keel.Taylor(7), rank=keel.LeadingCount(2))
    x = correlated(30, 6, dtype=torch.float32)
    made(x)
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    loaded = layer(6, group_size=2)
    loaded.load_state_dict(torch.load(file))
    twins = [loaded, copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    made.eval()
    for twin in twins:
        assert torch.equal(twin.eval()(x), made(x))
    assert twins[2].rule == keel.Taylor(7) and twins[1].rank == keel.LeadingCount(2)
    twins[1].train()(x + 1)
    assert not torch.equal(twins[1].running_mean, made.running_mean)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("layer", LAYERS)
def test_half_layers_train_and_evaluate(layer, dtype):
    made = layer(4).to(dtype)
    x = correlated(64, 4, dtype=torch.float32).to(dtype)
    for _ in range(3):
        y = made(x)
    assert y.dtype == dtype and made.running_matrix.dtype == dtype
    y.sum().backward()
    assert made.weight.grad.dtype == dtype
    assert made.running_matrix.isfinite().all() and made.eval()(x).dtype == dtype
    assert layer(4, dtype=dtype).running_matrix.dtype == dtype


def test_to_double_and_meta():
    made = keel.nn.PcaDenoising(4).double()
    assert made(correlated(30, 4)).dtype == torch.double
    meta = keel.nn.ZcaWhitening(4, groups=2, device="meta")
    assert all(t.is_meta for t in meta.state_dict().values())
    assert meta(torch.empty(8, 4, 3, device="meta")).shape == (8, 4, 3)
    assert meta.eval()(torch.empty(8, 4, 3, device="meta")).shape == (8, 4, 3)


@pytest.mark.parametrize("layer", LAYERS)
def test_resets(layer):
    made = layer(4)
    fresh = copy.deepcopy(made.state_dict())
    with torch.no_grad():
        made.weight.fill_(3), made.bias.fill_(2)
    made(correlated(30, 4, dtype=torch.float32))
    made.reset_running_stats()
    assert made.weight[0] == 3
    assert all(torch.equal(fresh[name], getattr(made, name)) for name in NAMES[layer])
    made.reset_parameters()
    assert all(torch.equal(fresh[name], value) for name, value in made.state_dict().items())


def test_printing():
    assert repr(keel.nn.ZcaWhitening(8, group_size=4)) == (
        "ZcaWhitening(8, group_size=4, eps=0.0001, momentum=0.1, affine=True, "
        "track_running_stats=True, rule=Exact(terms=19), rank=LeadingReliable(eps=0.0001, "
        "rayleigh_tolerance=0.1, energy=0.9999, keep_reaching=True, literal=False))"
    )


def test_algorithm1_follows_the_layers_eps():
    assert keel.nn.ZcaWhitening(4, eps=1e-2).rank == keel.Algorithm1(eps=1e-2)


def test_bad_options_and_inputs_are_named():
    with pytest.raises(ValueError, match=r"ZcaWhitening: .*group_size = 5 and num_features = 64"):
        keel.nn.ZcaWhitening(64, group_size=5)
    with pytest.raises(ValueError, match=r"PcaDenoising: .*groups = 7 and num_features = 64"):
        keel.nn.PcaDenoising(64, groups=7)
    with pytest.raises(ValueError, match=r"got 8 \* 4 and 64"):
        keel.nn.ZcaWhitening(64, group_size=8, groups=4)
    assert keel.nn.ZcaWhitening(64, group_size=8, groups=8).groups == 8
    with pytest.raises(TypeError, match=r"keel\.nn\.ZcaWhitening: expected a tensor, got list"):
        keel.nn.ZcaWhitening(2)([[1.0, 2.0]])
    with pytest.raises(ValueError, match="num_features >= 1, got 0"):
        keel.nn.ZcaWhitening(0)
    with pytest.raises(ValueError, match="eps"):
        keel.nn.ZcaWhitening(4, eps=-1.0)
    with pytest.raises(ValueError, match="terms"):
        keel.nn.ZcaWhitening(4, rule=keel.PowerIteration(0))
    with pytest.raises(ValueError, match=r"a momentum in \[0, 1\] or None, got 1.5"):
        keel.nn.ZcaWhitening(4, momentum=1.5)
    with pytest.raises(ValueError, match="fraction"):
        keel.nn.PcaDenoising(4, rank=keel.LeadingEnergy(1.5))
    with pytest.raises(TypeError, match="ZcaWhitening: expected rule"):
        keel.nn.ZcaWhitening(4, rule=keel.FullRank())
    with pytest.raises(ValueError, match="got .magic"):
        keel.nn.ZcaWhitening(4, rule="magic")
    for wrong in ({"num_features": 4.0}, {"group_size": "2"}, {"groups": True}, {"eps": "1e-4"},
                  {"eps": True}, {"momentum": "0.1"}, {"affine": 1}, {"track_running_stats": "no"}):  # fmt: skip
        with pytest.raises(TypeError, match=f"ZcaWhitening: expected {next(iter(wrong))} to be"):
            keel.nn.ZcaWhitening(**{"num_features": 4, **wrong})
    with pytest.raises(ValueError, match=r"expected \(N, 4, ...\), got \(5, 3, 2\)"):
        keel.nn.ZcaWhitening(4)(torch.randn(5, 3, 2))
    with pytest.raises(ValueError, match=r"expected \(N, 4, ...\), got \(4,\)"):
        keel.nn.ZcaWhitening(4)(torch.randn(4))


def test_groups_are_treated_apart():
    layer = keel.nn.ZcaWhitening(6, groups=2, dtype=torch.double)
    x = correlated(40, 6)
    halves = [keel.nn.ZcaWhitening(3, dtype=torch.double)(part) for part in x.chunk(2, 1)]
    torch.testing.assert_close(layer(x), torch.cat(halves, 1))
    assert grouped(x, 2).shape == (2, 3, 40)
