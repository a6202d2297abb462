"""Layers with ReLU inside against the same layers with torch's ReLU behind them."""

import copy
import inspect
import io
import pickle
import warnings

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


def both(model, **options):
    """The model converted without and with fuse_relu."""
    return tuple(
        convert_batchnorm(copy.deepcopy(model), **{"group_size": 4, "fuse_relu": fuse, **options})
        for fuse in (False, True)
    )


def images(seed=0):
    return torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


def step(model, x):
    x = x.clone().requires_grad_()
    y = model(x)
    slope = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    return (y.detach(), *torch.autograd.grad(y, (x, *model.parameters()), slope))


def same(ours, theirs):
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs))


@pytest.fixture
def relus(monkeypatch):
    """Counts the calls of torch.nn.ReLU."""
    calls, forward = [], nn.ReLU.forward
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: calls.append(self) or forward(self, x))
    return calls


def passes(model, relus, x=None):
    """How often ReLU runs apart in one forward."""
    relus.clear()
    model(images() if x is None else x)
    return len(relus)


def test_convert_fuses_what_follows_in_a_sequential(relus):
    plain, fused = both(network())
    assert [passes(model, relus) for model in (plain, fused)] == [2, 1]  # MaxPool2d is between the other two
    assert repr(fused) == repr(plain) and fused.state_dict().keys() == plain.state_dict().keys()
    for train in (True, False):
        fused.train(train), plain.train(train)
        assert same(step(fused, images()), step(plain, images()))
        assert passes(fused, relus) == 1
        plain(images())
    assert same(fused.state_dict().values(), plain.state_dict().values())


def test_convert_wants_a_relu():
    model = nn.Sequential(nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.ReLU())
    with pytest.raises(ValueError, match="expected a torch.nn.ReLU after a BatchNorm.*got none"):
        convert_batchnorm(model, fuse_relu=True)
    assert isinstance(model[0], nn.BatchNorm2d)
    with pytest.raises(TypeError, match="expected fuse_relu to be True or False, got 'no'"):
        convert_batchnorm(network(), fuse_relu="no")


def test_convert_by_name_and_again(relus):
    model = nn.Sequential(*network(), nn.BatchNorm2d(8), nn.ReLU())
    convert_batchnorm(model, names=["1"], group_size=4, fuse_relu=True)
    assert isinstance(model[4], nn.BatchNorm2d) and passes(model, relus) == 2
    convert_batchnorm(model, group_size=4, fuse_relu=True)
    assert isinstance(model[7], keel.nn.ZcaWhitening) and passes(model, relus) == 1


def one_by_one(model, x):
    features = []
    for entry in model:
        x = entry(x)
        features.append(x.clone())
    return features


@pytest.mark.parametrize(
    "values",
    [
        lambda model, x: [model[1](model[0](x))],
        lambda model, x: [model[:2](x)],
        lambda model, x: [model[1:2](model[0](x)), model[:3](x)],
        one_by_one,
        lambda model, x: [nn.Sequential(*list(model.children())[:2])(x)],
        lambda model, x: [(model[:2] + model[3:])(x)],
    ],
    ids=["an entry", "a slice", "slices", "one by one", "rebuilt", "added"],
)
def test_entries_do_what_they_say(values):
    plain, fused = both(network())
    assert same(values(fused, images()), values(plain, images()))


@pytest.mark.parametrize("entry", [1, 2])
@pytest.mark.parametrize(
    "kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook", "module_forward_hook"]
)
def test_hooks_see_what_is_between(relus, entry, kind):
    model = network()
    model[2].inplace = False  # torch does not allow full backward hooks with it
    found = []
    plain, fused = both(model)
    on_all = kind.startswith("module")
    if not hasattr(nn.Module, f"register_{kind}") and not on_all:
        pytest.skip(f"this torch has no {kind}")
    for model in (plain, fused):
        seen = []

        def hook(module, *values):
            if module is model[entry]:
                seen.extend(v.clone() for value in values for v in (value if isinstance(value, tuple) else [value]))

        register = getattr(nn.modules.module if on_all else model[entry], f"register_{kind}")
        handle = register(hook)
        found.append((*step(model, images()), *seen))
        handle.remove()
        assert seen
    assert same(*found)
    assert passes(fused, relus) == 1


def test_hooks_that_change_what_is_between():
    model = network()
    model[2].register_forward_pre_hook(lambda module, inputs: inputs[0] - 1)
    plain, fused = both(model)
    assert same(step(fused, images()), step(plain, images()))
    for model in (plain, fused):
        model[1].register_forward_hook(lambda module, inputs, output: -output)
    assert same(step(fused, images()), step(plain, images()))


def test_watched_under_the_layers_name():
    _, fused = both(network())
    with keel.watch(fused) as seen:
        fused(images())
    assert [finding.layer for finding in seen.findings()] == ["1", "4"]


def swap_relu(model):
    model[2] = nn.Tanh()


def swap_norm(model):
    model[1] = nn.BatchNorm2d(8)


def put_between(model):
    model.insert(2, nn.Hardtanh(-0.1, 0.1))


def leave_out_relu(model):
    del model[2]


def activate(model):
    model[1].activation = "relu"
    model[2] = nn.Identity()


def longer(model):
    model.append(keel.nn.ZcaWhitening(8)).append(nn.ReLU())


@pytest.mark.parametrize(
    "change, apart",
    [(swap_relu, 1), (swap_norm, 2), (put_between, 2), (leave_out_relu, 1), (activate, 1), (longer, 1)],
)
def test_entries_that_change_afterwards(relus, change, apart):
    plain, fused = both(network())
    change(plain), change(fused)
    assert same(step(fused, images()), step(plain, images()))
    assert passes(fused, relus) == apart


def test_an_unknown_activation_is_an_error_in_a_pair_too():
    _, fused = both(network())
    fused[1].activation = "gelu"
    with pytest.raises(ValueError, match="expected activation 'relu' or None, got 'gelu'"):
        fused(images())


def test_a_shared_norm_has_relu_only_where_one_follows(relus):
    norm = nn.BatchNorm2d(8)
    conv = nn.Conv2d(3, 8, 3)
    plain, fused = both(nn.Sequential(conv, nn.Sequential(norm, nn.ReLU()), norm, nn.Hardtanh(), norm, nn.ReLU()))
    assert fused[1][0] is fused[2] is fused[4]
    assert same(step(fused, images()), step(plain, images()))
    assert same(fused.state_dict().values(), plain.state_dict().values())
    assert fused[2].num_batches_tracked == 3
    assert passes(fused, relus) == 0


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


class Skipping(nn.Sequential):
    def forward(self, x):
        return self[1](self[0](x))


class HalvedWhitening(keel.nn.ZcaWhitening):
    def forward(self, input, residual=None):
        return super().forward(input, residual) / 2


def block(kind=nn.Sequential):
    return kind(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())


def test_convert_leaves_what_has_a_forward_of_its_own(relus):
    doubling, skipping = block(), block()
    doubling[2].forward = lambda x: 2 * x
    skipping.forward = lambda x: skipping[1](skipping[0](x))
    for first, apart in ((doubling, 0), (skipping, 0), (block(Doubled), 1), (block(Skipping), 0)):
        model = nn.Sequential(first, nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        kind = type(first)
        plain = convert_batchnorm(copy.deepcopy(model), group_size=4)
        if "forward" in vars(first):  # a copy's own forward is that of the original
            plain = nn.Sequential(first, *plain[1:])
        fused = convert_batchnorm(model, group_size=4, fuse_relu=True)
        assert passes(fused, relus) == apart and (kind is nn.Sequential or type(fused[0]) is kind)
        assert same(step(fused, images()), step(plain, images()))
        assert (fused[0](images()) < 0).any() or kind is Doubled
    plain, fused = both(block(), layer=HalvedWhitening)
    assert same(step(fused, images()), step(plain, images()))


def test_convert_keeps_the_mode_and_the_objects():
    model = nn.Sequential(network(), nn.ReLU()).eval()
    inner, relu, seen = model[0], model[0][2], []
    inner.register_forward_hook(lambda module, inputs, output: seen.append(module))
    fused = convert_batchnorm(model, group_size=4, fuse_relu=True)
    assert fused is model and fused[0] is inner and inner[2] is relu
    assert not any(m.training for m in fused.modules())
    fused(images())
    assert seen == [inner]


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    whole = {"weights_only": False} if "weights_only" in inspect.signature(torch.load).parameters else {}
    return torch.load(file, **whole)


def replica(module):
    """What torch.nn.DataParallel makes of a module on each device."""
    made = module._replicate_for_data_parallel()
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        setattr(made, name, tensor)
    for name, child in module._modules.items():
        setattr(made, name, replica(child))
    return made


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved, replica])
def test_copies_of_a_converted_model(relus, copied):
    plain, fused = both(network())
    again = copied(fused)
    assert passes(again, relus) == 1
    assert torch.equal(again(images(1)), plain(images(1)))


@pytest.mark.parametrize("train", [True, False])
def test_recorded_with_both_entries(train):
    plain, fused = both(network())
    x, entry = images(), plain[0](images())
    for model in (plain, fused):
        model(images(1))
        for module in model.modules():
            module.training = train
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        torch.jit.save(torch.jit.trace(copy.deepcopy(fused), x), file := io.BytesIO())
    file.seek(0)
    traced = torch.jit.load(file)  # its submodules can be called only now
    graph = torch.fx.symbolic_trace(copy.deepcopy(fused))
    scripted = torch.jit.script(copy.deepcopy(fused))
    assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == list("0123456")
    expected, between = copy.deepcopy(plain)(x), copy.deepcopy(plain)[1](entry)
    for made, norm in ((traced, getattr(traced, "1")), (scripted, scripted[1]), (graph, graph.get_submodule("1"))):
        assert relative(made(x), expected) < 1e-5
        assert relative(norm(entry), between) < 1e-5 and (between < 0).any()


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch does not compile")
def test_compiled_as_one_graph():
    plain, fused = both(network())
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    assert relative(compiled(images()), plain(images())) < 1e-5


def test_recalibrated_and_averaged():
    plain, fused = both(network())
    batches = [images(seed) for seed in range(3)]
    for update in (keel.nn.recalibrate, lambda model, batches: torch.optim.swa_utils.update_bn(batches, model)):
        update(plain, batches), update(fused, batches)
        assert same(fused.state_dict().values(), plain.state_dict().values())
        assert fused[1].num_batches_tracked == 3


def test_a_norm_of_a_pair_folds():
    _, fused = both(network())
    fused(images())
    fused.eval()
    folded = nn.Sequential(fused[1].fold_into(fused[0]), *fused[2:])
    assert relative(folded(images()), fused(images())) < 1e-5


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_in_a_pair(relus, layer):
    plain, fused = both(network(), layer=layer)
    for train in (True, False):
        fused.train(train), plain.train(train)
        assert same(step(fused, images()), step(plain, images()))
        assert passes(fused, relus) == 1
        plain(images())
