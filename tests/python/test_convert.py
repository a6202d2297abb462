"""Swapping batch normalisation for whitening."""

import copy

import pytest
import torch
from torch import nn

import keel
from keel.nn import convert_batchnorm


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12, momentum=None))
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(12 * 16, 5), nn.BatchNorm1d(5, affine=False)
        )

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


def kinds(model):
    norms = ((name, m) for name, m in model.named_modules() if hasattr(m, "running_mean"))
    return {name: type(m).__name__ for name, m in norms}


def test_all_are_swapped_by_default():
    model = Network()
    assert convert_batchnorm(model) is model
    assert kinds(model) == dict.fromkeys(["stem.1", "body.1", "head.2"], "ZcaWhitening")
    assert model.body[1].momentum is None and not model.head[2].affine
    assert model(torch.randn(6, 3, 8, 8)).shape == (6, 5)


@pytest.mark.parametrize("names", ["stem.1", ["stem.1"], lambda name, m: m.num_features == 8])
def test_chosen_ones_with_options(names):
    model = convert_batchnorm(
        Network(), keel.nn.PcaDenoising, names, group_size=4, eps=1e-3, rank=keel.LeadingCount(2)
    )
    expected = {"stem.1": "PcaDenoising", "body.1": "BatchNorm2d", "head.2": "BatchNorm1d"}
    assert kinds(model) == expected
    layer = model.stem[1]
    assert layer.groups == 2 and layer.eps == 1e-3 and layer.rank == keel.LeadingCount(2)


class NormThenActivation(nn.BatchNorm2d):
    """As timm's BatchNormAct2d: whoever replaced it by a norm would lose the activation."""

    def forward(self, x):
        return super().forward(x).relu()


@pytest.mark.parametrize("what", ["a forward of its own", "forward hooks", "backward hooks", "parametrizations"])
def test_norms_that_do_more_are_named_and_left_alone(what):
    model = Network()
    if what == "a forward of its own":
        model.stem[1] = NormThenActivation(8)
    elif what == "forward hooks":
        model.stem[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    elif what == "backward hooks":
        model.stem[1].register_full_backward_hook(lambda module, inputs, outputs: None)
    else:
        nn.utils.parametrize.register_parametrization(model.stem[1], "weight", nn.Softplus())
    before = kinds(model)
    with pytest.raises(ValueError, match=f"'stem.1': expected a layer that does what BatchNorm2d does, got .*{what}"):
        convert_batchnorm(model)
    assert kinds(model) == before
    convert_batchnorm(model, names=["body.1"])
    assert kinds(model) == {**before, "body.1": "ZcaWhitening"}


def test_parameters_stay_the_same_objects():
    model = Network()
    weight, bias = model.stem[1].weight, model.stem[1].bias
    weight.requires_grad_(False)
    convert_batchnorm(model, names="stem.1")
    assert model.stem[1].weight is weight and model.stem[1].bias is bias
    other = Network()
    with torch.no_grad():
        other.stem[1].weight.fill_(3)
    convert_batchnorm(other, names="stem.1", copy_affine=False)
    assert other.stem[1].weight.tolist() == [1] * 8


@pytest.mark.parametrize("layer", [keel.nn.ZcaWhitening, keel.nn.PcaDenoising])
def test_evaluation_is_unchanged_until_training(layer):
    model = Network().double()
    for _ in range(3):
        model(torch.randn(6, 3, 8, 8).double())
    model.eval()
    x = torch.randn(6, 3, 8, 8).double()
    before = model(x)
    convert_batchnorm(model, layer)
    assert not model.stem[1].training and model.stem[1].num_batches_tracked == 3
    torch.testing.assert_close(model(x), before)
    fresh = convert_batchnorm(Network(), layer, copy_statistics=False)
    assert torch.equal(fresh.stem[1].running_matrix, torch.eye(8).unsqueeze(0))


@pytest.mark.parametrize("layer", [keel.nn.ZcaWhitening, keel.nn.PcaDenoising])
@pytest.mark.parametrize(
    "which", ["no count", "count of None", "not tracked any more", "statistics removed", "float16"]
)
def test_unusual_batchnorms_compute_the_same_in_evaluation(layer, which):
    norm = nn.BatchNorm1d(4)
    norm(3 + 2 * torch.randn(20, 4))
    if which == "no count":  # as after loading a file that has none
        norm.num_batches_tracked.zero_()
    elif which == "count of None":
        norm.num_batches_tracked = None
    elif which == "not tracked any more":
        norm.track_running_stats = False
    elif which == "statistics removed":
        norm.running_mean = norm.running_var = None
    else:
        norm.half()
    x = 3 + 2 * torch.randn(20, 4)
    new = convert_batchnorm(copy.deepcopy(norm), layer, group_size=1).eval()
    torch.testing.assert_close(new(x), norm.float().eval()(x), rtol=2e-3, atol=2e-3)
    if which == "not tracked any more":  # in training its statistics stay as they are
        new.train()(x)
        torch.testing.assert_close(new.eval()(x), norm(x))


def test_lazy_norms_are_named():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.LazyBatchNorm1d())
    with pytest.raises(ValueError, match="'1': expected a layer that knows its channels, got LazyBatchNorm1d; call"):
        convert_batchnorm(model)
    convert_batchnorm(model, names=["0"])(torch.randn(6, 4))
    assert kinds(convert_batchnorm(model)) == {"0": "ZcaWhitening", "1": "ZcaWhitening"}


def test_a_fresh_batchnorm_gives_a_fresh_layer():
    model = convert_batchnorm(Network())
    for name in ("running_mean", "running_matrix", "num_batches_tracked"):
        assert torch.equal(getattr(model.stem[1], name), getattr(keel.nn.ZcaWhitening(8), name))


def test_device_dtype_and_mode_follow():
    layer = convert_batchnorm(nn.BatchNorm3d(4, dtype=torch.double, device="meta").eval())
    assert isinstance(layer, keel.nn.ZcaWhitening) and not layer.training
    assert layer.running_mean.is_meta and layer.running_mean.dtype == torch.double
    assert convert_batchnorm(nn.BatchNorm1d(4, track_running_stats=False)).running_mean is None


def test_a_shared_layer_can_be_chosen_by_each_of_its_names():
    for names in (["0"], ["2"], ["2", "0"], ["3.0"]):
        norm = nn.BatchNorm2d(8)
        model = nn.Sequential(norm, nn.ReLU(), norm, nn.Sequential(norm, nn.BatchNorm2d(8)))
        convert_batchnorm(model, names=names)
        assert model[0] is model[2] is model[3][0] and isinstance(model[0], keel.nn.ZcaWhitening)
        assert isinstance(model[3][1], nn.BatchNorm2d)


def test_a_shared_layer_stays_shared():
    norm = nn.BatchNorm2d(8)
    model = convert_batchnorm(nn.Sequential(norm, nn.ReLU(), nn.Sequential(norm)))
    assert model[0] is model[2][0] and isinstance(model[0], keel.nn.ZcaWhitening)
    twice = convert_batchnorm(nn.Sequential(norm, nn.ReLU(), norm))
    assert twice[0] is twice[2] and isinstance(twice[0], keel.nn.ZcaWhitening)


def test_errors_change_nothing():
    model = Network()
    before = copy.deepcopy(kinds(model))
    with pytest.raises(ValueError, match=r"'stem.1', 'body.1', 'head.2'.*got \['stem.7'\]"):
        convert_batchnorm(model, names=["stem.1", "stem.7"])
    with pytest.raises(ValueError, match="a BatchNorm layer to replace, got none of 'stem.1'"):
        convert_batchnorm(model, names=lambda name, m: False)
    with pytest.raises(ValueError, match="a model with BatchNorm layers, got one without"):
        convert_batchnorm(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="'head.2': .*group_size = 4 and num_features = 5"):
        convert_batchnorm(model, group_size=4)
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got str"):
        convert_batchnorm("model")
    with pytest.raises(TypeError, match="expected the class of a whitening layer, got an object of ZcaWhitening"):
        convert_batchnorm(model, keel.nn.ZcaWhitening(8))
    with pytest.raises(TypeError, match="expected the class of a whitening layer, got the class BatchNorm2d"):
        convert_batchnorm(model, nn.BatchNorm2d)
    assert kinds(model) == before
