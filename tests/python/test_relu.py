"""Layers with ReLU inside against the same layers with torch's ReLU behind them."""

import copy
import pickle

import pytest
import torch
from torch import nn

import keel
from keel.nn import convert_batchnorm
from support import LAYERS, correlated, relative

functorch = torch.func if hasattr(torch, "func") else pytest.importorskip("functorch")
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def relu(x):
    """torch's, which not every torch has for float16 on the CPU."""
    return torch.relu(x.float()).half() if x.dtype == torch.float16 else torch.relu(x)


def twins(layer, channels=6, dtype=torch.double, **options):
    """The same layer with ReLU inside and without."""
    inside = layer(channels, dtype=dtype, activation="relu", **options)
    with torch.no_grad():
        inside.weight.uniform_(0.5, 1.5), inside.bias.normal_()
    plain = copy.deepcopy(inside)
    plain.activation = None
    return inside, plain


def gradients(layer, x, behind=None):
    x = x.detach().requires_grad_()
    y = layer(x) if behind is None else behind(layer(x))
    slope = torch.linspace(-1, 1, y.numel(), dtype=torch.double).reshape(y.shape).to(y.dtype)
    return (y.detach(), *torch.autograd.grad(y, (x, layer.weight, layer.bias), slope))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layer", LAYERS)
def test_is_the_one_behind_to_the_last_bit(layer, dtype):
    options = {"group_size": 3, "dtype": torch.double if dtype == torch.double else torch.float32}
    image = correlated(5, 6, 4, 3)
    for x in (correlated(40, 6), image, image.contiguous(memory_format=torch.channels_last)):
        inside, plain = twins(layer, **options)
        for train in (True, False):
            inside.train(train), plain.train(train)
            ours = gradients(inside, x.to(dtype))
            for a, b in zip(ours, gradients(plain, x.to(dtype), relu)):
                assert torch.equal(a, b) and a.stride() == b.stride()
            assert (ours[0] == 0).any() and (ours[0] > 0).any()
        for a, b in zip(inside.state_dict().values(), plain.state_dict().values()):
            assert torch.equal(a, b)


@pytest.mark.parametrize("layer", LAYERS)
def test_under_torch_func(layer):
    inside, plain = twins(layer, group_size=3)
    for made in (inside, plain):
        made.track_running_stats = False
    x, along = correlated(3, 20, 6), correlated(3, 20, 6, seed=4)

    def behind(x):
        return torch.relu(plain(x))

    assert relative(functorch.vmap(inside)(x), functorch.vmap(behind)(x)) < 1e-13
    for ours, theirs in zip(
        functorch.jvp(inside, (x[0],), (along[0],)), functorch.jvp(behind, (x[0],), (along[0],))
    ):
        assert relative(ours, theirs) < 1e-12

    def loss(function):
        return functorch.vmap(functorch.grad(lambda x: (function(x) ** 2).sum()))

    assert relative(loss(inside)(x), loss(behind)(x)) < 1e-12


@pytest.mark.parametrize("layer", LAYERS)
def test_residual_is_added_before(layer):
    inside, plain = twins(layer, group_size=3)
    x, past = correlated(20, 6, 4).requires_grad_(), correlated(20, 6, 4, seed=8).requires_grad_()
    slope = torch.linspace(-1, 1, x.numel(), dtype=torch.double).reshape(x.shape)
    for train in (True, False):
        inside.train(train), plain.train(train)
        ours, theirs = inside(x, past), torch.relu(plain(x) + past)
        assert torch.equal(ours, theirs)
        of = torch.autograd.grad(ours, (x, past, inside.weight, inside.bias), slope)
        expected = torch.autograd.grad(theirs, (x, past, plain.weight, plain.bias), slope)
        assert all(torch.equal(a, b) for a, b in zip(of, expected))
        assert torch.equal(torch.jit.script(copy.deepcopy(inside))(x, past), inside(x, past))
        plain(x)
    assert torch.equal(plain(x, past), plain(x) + past)
    with pytest.raises(RuntimeError, match="residual"):
        inside(x, past[:, :3])
    entries = correlated(3, 20, 6), correlated(3, 20, 6, seed=8)
    for made in (inside, plain):
        made.train()
        made.track_running_stats = False
    mapped = functorch.vmap(inside)(*entries)
    assert relative(mapped, functorch.vmap(lambda x, past: torch.relu(plain(x) + past))(*entries)) < 1e-13
    one, along = [e[0] for e in entries], [e[1] for e in entries]
    for a, b in zip(
        functorch.jvp(inside, tuple(one), tuple(along)),
        functorch.jvp(lambda x, past: torch.relu(plain(x) + past), tuple(one), tuple(along)),
    ):
        assert relative(a, b) < 1e-12


@pytest.mark.parametrize("layer", LAYERS)
def test_a_residual_has_derivatives_that_the_layer_has_not(layer):
    inside, plain = twins(layer, group_size=3)
    for made in (inside, plain):
        made.track_running_stats = False
    x, past, along = (correlated(20, 6, seed=seed) for seed in range(3))

    def second(function):
        gradient = functorch.grad(lambda past: (function(x, past) ** 3).sum())
        return functorch.jvp(gradient, (past,), (along,))[1]

    assert relative(second(inside), second(lambda x, past: torch.relu(plain(x) + past))) < 1e-12


def test_second_derivative():
    inside, _ = twins(keel.nn.ZcaWhitening, 4, group_size=2, rank=keel.FullRank())
    x = correlated(7, 4, 3).requires_grad_()
    assert inside(x).abs()[inside(x) != 0].min() > 1e-4  # away from the corner
    assert torch.autograd.gradgradcheck(inside, (x,))
    other, _ = twins(keel.nn.PcaDenoising, 4, group_size=2)
    slope = torch.autograd.grad(other(x).sum(), x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="no second derivative"):
        slope.sum().backward()


@pytest.mark.parametrize("layer", LAYERS)
def test_scripted_and_pickled(layer):
    inside, plain = twins(layer, group_size=3)
    x = correlated(20, 6, 4)
    expected = torch.relu(plain(x))
    assert torch.equal(torch.jit.script(copy.deepcopy(inside))(x), expected)
    again = pickle.loads(pickle.dumps(inside))
    assert again.activation == "relu" and torch.equal(again(x), expected)
    old = dict(plain.__dict__)
    del old["activation"]
    made = layer.__new__(layer)
    made.__setstate__(old)
    assert made.activation is None


@pytest.mark.parametrize("layer", LAYERS)
def test_in_evaluation_scripted_and_traced(layer):
    inside, plain = twins(layer, group_size=3)
    x = correlated(20, 6, 4)
    inside(x), plain(x)
    traced = torch.jit.trace(inside.eval(), x)
    assert relative(traced(x), torch.relu(plain.eval()(x))) < 1e-12
    assert torch.equal(torch.jit.script(copy.deepcopy(inside))(x), torch.relu(plain(x)))


def test_residual_of_a_traced_layer_is_checked():
    layer = keel.nn.ZcaWhitening(6, dtype=torch.double, activation="relu").eval()
    x = correlated(20, 6, 4)
    traced = torch.jit.trace(layer, (x, x + 1))
    assert relative(traced(x, x + 1), layer(x, x + 1)) < 1e-12
    for wrong in (x[:1], x[..., :1], correlated(2, 20, 6, 4), x.float()):
        with pytest.raises(ValueError, match="keel.nn.ZcaWhitening: expected residual of shape"):
            torch.jit.trace(layer, (x, wrong), check_trace=False)


def test_fx_sees_a_layer_whose_residual_alone_is_traced():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = keel.nn.ZcaWhitening(6, dtype=torch.double, activation="relu")
            self.register_buffer("constant", correlated(20, 6))

        def forward(self, past):
            return self.layer(self.constant, past)

    model, past = Model(), correlated(20, 6, seed=8)
    assert torch.equal(torch.fx.symbolic_trace(model)(past), model(past))


def test_shown_checked_and_not_folded():
    layer = keel.nn.ZcaWhitening(6, activation="relu")
    assert "activation=relu" in repr(layer)
    assert "activation" not in repr(keel.nn.ZcaWhitening(6))
    with pytest.raises(ValueError, match="expected activation 'relu' or None, got 'gelu'"):
        keel.nn.ZcaWhitening(6, activation="gelu")
    layer(correlated(20, 6, dtype=torch.float32))
    layer.eval()
    with pytest.raises(ValueError, match="fold_into: expected activation=None, got 'relu'"):
        layer.fold_into(nn.Linear(3, 6))
    with pytest.raises(ValueError, match="as_conv1x1: expected activation=None"):
        layer.as_conv1x1()
    linear, x = nn.Linear(3, 6), torch.randn(5, 3)
    expected = layer(linear(x))
    layer.activation = None
    assert relative(torch.relu(layer.fold_into(linear)(x)), expected) < 1e-5


def test_nan_is_nan_and_not_zero():
    x = correlated(20, 6)
    x[3, 1] = float("nan")
    y = keel.nn.ZcaWhitening(6, group_size=3, dtype=torch.double, activation="relu")(x)
    assert y[:, :3].isnan().all() and y[:, 3:].isfinite().all()


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.ReLU(),
    )  # fmt: skip


def test_convert_fuses_what_follows_in_a_sequential():
    model = network()
    plain = convert_batchnorm(copy.deepcopy(model), group_size=4)
    fused = convert_batchnorm(copy.deepcopy(model), group_size=4, fuse_relu=True)
    kinds = [type(m).__name__ for m in fused]
    assert kinds == ["Conv2d", "ZcaWhitening", "Identity", "Conv2d", "ZcaWhitening", "MaxPool2d", "ReLU"]
    assert [fused[k].activation for k in (1, 4)] == ["relu", None]
    x = torch.randn(4, 3, 12, 12)
    assert torch.equal(fused(x), plain(x))
    fused.eval(), plain.eval()
    assert torch.equal(fused(x), plain(x))
    assert fused.state_dict().keys() == plain.state_dict().keys()


def test_convert_leaves_relu_where_it_may_not_go():
    norm = nn.BatchNorm2d(8)  # at two places, behind one of which there is no ReLU
    shared = nn.Sequential(nn.Sequential(norm, nn.ReLU()), norm, nn.Conv2d(8, 8, 1))
    with pytest.raises(ValueError, match="expected a torch.nn.ReLU behind a BatchNorm"):
        convert_batchnorm(shared, fuse_relu=True)
    assert isinstance(shared[1], nn.BatchNorm2d)
    hooked = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU())
    hooked[1].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="got none"):
        convert_batchnorm(hooked, fuse_relu=True)
    with pytest.raises(TypeError, match="expected fuse_relu to be True or False, got 'no'"):
        convert_batchnorm(network(), fuse_relu="no")
    names = convert_batchnorm(network(), names=["1"], group_size=4, fuse_relu=True)
    assert isinstance(names[4], nn.BatchNorm2d) and names[1].activation == "relu"


def test_convert_leaves_relu_of_modules_with_a_forward_of_their_own():
    doubling, skipping = (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(2))
    doubling[2].forward = lambda x: 2 * x
    skipping.forward = lambda x: skipping[1](skipping[0](x))
    for block in (doubling, skipping):
        model = nn.Sequential(block, nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        fused = convert_batchnorm(model, group_size=4, fuse_relu=True)
        assert fused[0][1].activation is None and type(fused[0][2]) is nn.ReLU
        assert fused[2].activation == "relu"
        assert (fused[0](torch.randn(4, 3, 12, 12)) < 0).any()


def test_convert_keeps_the_mode_of_what_it_replaces():
    fused = convert_batchnorm(network().eval(), group_size=4, fuse_relu=True)
    assert isinstance(fused[2], nn.Identity) and not any(m.training for m in fused.modules())
