"""Networks whose norms follow the weights: which norms can, saving and copying, and what else modules go through."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import keel
from support import EVERYTHING, LAYERS, moved, recomputed, relative

# Which norms.


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(4), keel.nn.ZcaWhitening(4)

    def forward(self, x):
        return (self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())) + x).relu()


class Untraceable(Block):
    def forward(self, x):
        return super().forward(x) if x.sum() < 1e9 else x


class SharedConv(Block):
    def forward(self, x):
        return self.bn2(self.conv1(self.bn1(self.conv1(x)).relu()))


def test_pairs_are_found_by_torch_fx_and_named_by_hand():
    pairs = {"0.bn1": "0.conv1", "0.bn2": "0.conv2"}
    assert keel.nn.follow(nn.Sequential(Block(), nn.ReLU())).followed == pairs
    assert keel.nn.follow(nn.Sequential(Untraceable(), nn.ReLU()), pairs=pairs).followed == pairs
    with pytest.raises(ValueError, match="'bn1': found no convolution or linear layer before it; name it in pairs"):
        keel.nn.follow(Untraceable())
    model = nn.Sequential(nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)), Untraceable())
    followed, left = keel.nn.follow(model)
    assert followed == {"0.1": "0.0"} and set(left) == {"1.bn1", "1.bn2"}


def test_what_cannot_be_followed_is_named():
    shared = SharedConv()
    with pytest.raises(ValueError, match="'bn1': 'conv1' is called 2 times in a forward"):
        keel.nn.follow(shared)
    conv = nn.Conv2d(4, 4, 1)
    with pytest.raises(ValueError, match="'1': '0' is called 2 times"):
        keel.nn.follow(nn.Sequential(conv, nn.BatchNorm2d(4), conv, nn.BatchNorm2d(4)), ["1"])
    hooked = nn.Conv2d(2, 4, 1)
    hooked.register_forward_hook(lambda *_: None)
    cases = [
        (nn.ConvTranspose2d(2, 4, 3), nn.BatchNorm2d(4), "layer before it, got ConvTranspose2d '0'"),
        (nn.ReLU(), nn.BatchNorm2d(4), "got ReLU '0'"),
        (nn.utils.weight_norm(nn.Conv2d(2, 4, 1)), nn.BatchNorm2d(4), "plain Conv2d, got '0' with forward pre-hooks"),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(2, 4)), nn.BatchNorm1d(4), "'0' with parametrizations"),
        (hooked, nn.BatchNorm2d(4), "with forward hooks"),
        (nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4, track_running_stats=False), "keeps no running statistics"),
        (nn.Conv2d(2, 4, 1), nn.LazyBatchNorm2d(), "knows its channels, got LazyBatchNorm2d"),
        (nn.LazyConv2d(4, 1), nn.BatchNorm2d(4), "knows its channels, got LazyConv2d '0'"),
        (nn.Conv2d(512, 4, 4), nn.BatchNorm2d(4), r"8192 numbers, .* too large \(largest=4608\); recalibrate"),
        (nn.Conv2d(2, 6, 1), nn.BatchNorm2d(4), "expected 4 output channels of '0', got 6"),
    ]
    for map, norm, words in cases:
        model = nn.Sequential(map, norm, nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
        with pytest.raises(ValueError, match=f"keel.nn.follow: '1': .*{words}"):
            keel.nn.follow(model, ["1"])
        assert not hasattr(norm, "following")
        followed, left = keel.nn.follow(model)
        assert followed == {"3": "2"} and list(left) == ["1"]
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    for words, options in [
        (r"names of norms \('1'\), got \['0'\]", {"names": ["0"]}),
        ("name of a module, got 'no'", {"pairs": {"1": "no"}}),
        ("expected share > 0 or None, got 0", {"share": 0}),
        ("expected every >= 1, got 0", {"every": 0}),
    ]:
        with pytest.raises(ValueError, match=words):
            keel.nn.follow(model, **options)
    with pytest.raises(ValueError, match="expected a norm, got none"):
        keel.nn.follow(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got int"):
        keel.nn.follow(3)


def test_inputs_that_cannot_be_followed_are_errors():
    linear = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    keel.nn.follow(linear)
    with pytest.raises(ValueError, match=r"Linear layer before a norm to get \(N, C\) inputs, got \(2, 6, 4\)"):
        linear(torch.randn(2, 6, 4))


def test_a_norm_that_was_replaced_is_an_error():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    keel.nn.follow(model)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    with pytest.raises(RuntimeError, match="the norm was replaced; replace norms first"):
        model.eval()


def test_swapped_norms_follow():
    def network():
        return nn.Sequential(Block(), nn.Flatten(), nn.BatchNorm1d(4 * 25))

    model = keel.nn.convert_batchnorm(network(), follow=True)
    assert type(model[0].bn1) is keel.nn.ZcaWhitening
    assert hasattr(model[0].bn1, "following") and not hasattr(model[2], "following")
    x = torch.randn(64, 4, 5, 5)
    model(x)
    moved(model[0].conv1, 1.0)
    assert relative(model.eval()[0].bn1(model[0].conv1(x)), recomputed(model, x)[0].bn1(model[0].conv1(x))) < 0.1
    lone = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(4))
    with pytest.raises(ValueError, match="keel.nn.follow: '1': .* got ReLU"):
        keel.nn.convert_batchnorm(lone, follow=True)
    assert type(lone[1]) is nn.BatchNorm1d


# Saving, folding, recalibrating, copying.


def plain_network():
    first = [nn.Conv2d(3, 8, 3), keel.nn.ZcaWhitening(8), nn.ReLU()]
    return nn.Sequential(*first, nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))


def network(**options):
    model = plain_network()
    keel.nn.follow(model, **options)
    return model


def trained(model, steps=3):
    for _ in range(steps):
        model(torch.randn(8, 3, 10, 10))
        moved(model, 0.3)
    return model


def test_a_saved_network_loads_with_and_without():
    model = trained(network())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)  # in training mode
    file.seek(0)
    state = torch.load(file)
    assert not any("following" in name for name in state)
    plain = copy.deepcopy(model)
    keel.nn.unfollow(plain)
    assert all(not hasattr(module, "following") and not module._forward_pre_hooks for module in plain.modules())
    for buffer in plain.buffers():
        buffer.zero_()
    plain.load_state_dict(state, strict=True)
    again = trained(network(), 1)
    again.load_state_dict(state, strict=True)
    x = torch.randn(2, 3, 10, 10)
    expected = model.eval()(x)
    assert torch.equal(plain.eval()(x), expected) and torch.equal(again.eval()(x), expected)
    again = trained(network(), 1)
    again.load_state_dict({name: value for name, value in state.items()})  # without what was tracked
    assert torch.equal(again.eval()(x), expected)
    other = keel.nn.convert_batchnorm(nn.Sequential(nn.Conv2d(3, 8, 5), nn.BatchNorm2d(8)), follow=True)
    with pytest.raises(RuntimeError, match="size mismatch for 1.following.input_mean"):
        other.load_state_dict(state, strict=False)


def test_training_goes_on_from_what_was_saved():
    torch.manual_seed(1)
    model = trained(network(**EVERYTHING))
    again = network(**EVERYTHING)
    again.load_state_dict(copy.deepcopy(model.state_dict()))
    x = torch.randn(8, 3, 10, 10)
    for one in (model, again):
        one.train()(x)
    for a, b in zip(model.modules(), again.modules()):
        if hasattr(a, "looks"):
            assert a.looks == b.looks == 4 and torch.equal(a.input_covariance, b.input_covariance)
    assert torch.equal(model.eval()(x), again.eval()(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_follow_their_own_weights(copied):
    model = trained(network())
    twin = copied(model)
    x = torch.randn(2, 3, 10, 10)
    assert torch.equal(twin.eval()(x), model.eval()(x))
    before = model(x)
    moved(twin, 1.0)
    assert not torch.equal(twin(x), before) and torch.equal(model(x), before)
    assert twin[1].following._pair[0] is twin[1] and twin[1].following._pair[1] is twin[0]


def after_one_batch(norm):
    """A convolution and a norm that follows it in evaluation, and the batch they have seen."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norm)
    keel.nn.follow(model, **EVERYTHING)
    x = torch.randn(8, 3, 10, 10)
    model(x)
    return model.eval(), x


@pytest.mark.parametrize("norm", [keel.nn.ZcaWhitening, nn.BatchNorm2d])
def test_weights_that_change_in_evaluation_are_followed(norm):
    model, x = after_one_batch(norm(8))
    moved(model, 1.0)
    assert relative(model(x), recomputed(model, x)(x)) < 1e-3
    fresh = nn.Parameter(torch.randn_like(model[0].weight))
    model[0].weight = fresh
    assert relative(model(x), recomputed(model, x)(x)) < 1e-3
    with torch.inference_mode():
        assert relative(model(x), recomputed(model, x)(x)) < 1e-3


@pytest.mark.parametrize("norm", [keel.nn.ZcaWhitening, nn.BatchNorm2d])
def test_weights_that_change_without_a_new_version_are_followed(norm):
    # By .data, as some optimizers and averages of weights do it. Replays of CUDA graphs are like that.
    model, x = after_one_batch(norm(8))
    model[0].weight.data.mul_(3)
    assert relative(model.eval()(x), recomputed(model, x)(x)) < 1e-3
    model[0].weight.data = torch.randn_like(model[0].weight)
    saved = model.state_dict()
    assert relative(saved["1.running_mean"], recomputed(model, x)[1].running_mean) < 1e-3


@pytest.mark.parametrize("layer", LAYERS)
def test_folding_follows(layer):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), layer(8))
    keel.nn.follow(model)
    trained(model)
    model.eval()
    moved(model, 0.3)
    folded = model[1].fold_into(model[0])
    x = torch.randn(2, 3, 10, 10)
    torch.testing.assert_close(folded(x), model(x), rtol=1e-3, atol=1e-3)
    assert not folded._forward_pre_hooks and model[0]._forward_pre_hooks
    torch.testing.assert_close(model[1].as_conv1x1()(model[0](x)), model(x), rtol=1e-3, atol=1e-3)


def test_recalibrated_statistics_hold_until_the_next_step():
    model = trained(network(**EVERYTHING))
    batches = [torch.randn(8, 3, 10, 10) for _ in range(2)]
    looks = model[1].following.looks.clone()
    expected = recomputed(model, *batches)(batches[0])
    keel.nn.recalibrate(model, batches)
    assert torch.equal(model.eval()(batches[0]), expected)
    assert torch.equal(copy.deepcopy(model)(batches[0]), expected)
    assert model[1].following.looks == looks
    model.train()(batches[0])
    assert model[1].following.looks == looks + 1
    assert relative(model.eval()(batches[0]), expected) > 1e-4


def test_reset_and_update_bn_start_again():
    model = trained(network(**EVERYTHING))
    model[1].reset_running_stats()
    assert torch.equal(model.eval()[1].running_matrix[0], torch.eye(8)) and model[1].following.looks == 0
    averaged = torch.optim.swa_utils.AveragedModel(trained(model.train()))
    torch.optim.swa_utils.update_bn([torch.randn(8, 3, 10, 10) for _ in range(2)], averaged)
    assert averaged.module[1].following.looks == 2
    assert averaged.eval()(torch.randn(2, 3, 10, 10)).isfinite().all()


@pytest.mark.parametrize("every", [1, 8])
def test_reset_and_update_bn_of_batch_norms_start_again(every):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    keel.nn.follow(model, share=None, every=every)
    batches = [torch.randn(16, 3, 10, 10) for _ in range(24)]
    for x in batches:
        model(x)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    with torch.no_grad():
        for parameter in averaged.parameters():
            parameter.mul_(2)
    torch.optim.swa_utils.update_bn(batches, averaged)
    updated = averaged.module[4].running_var.clone()
    assert relative(averaged.eval().module[4].running_var, updated) < 0.1
    model[1].reset_running_stats()
    assert torch.equal(model.eval()[1].running_mean, torch.zeros(8))
    loaded = copy.deepcopy(model)
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(loaded.eval()[1].running_mean, torch.zeros(8))


@pytest.mark.parametrize("type", [torch.half, torch.bfloat16])
def test_half_precision_keeps_what_was_tracked(type):
    model = trained(network())
    tracked = model[1].following.input_covariance.clone()
    model = model.to(type)
    assert model[1].running_mean.dtype == type and torch.equal(model[1].following.input_covariance, tracked)
    assert model.eval()[1].running_matrix.isfinite().all()
    assert model.double()[1].following.input_covariance.dtype == torch.double


# Whatever else modules go through.


def test_training_is_the_same_to_the_last_bit():
    def trained(following):
        torch.manual_seed(3)
        model = network() if following else plain_network()
        random = []
        for _ in range(4):
            model(torch.randn(4, 3, 8, 8)).square().mean().backward()
            torch.optim.SGD(model.parameters(), 0.1).step()
            random.append(torch.rand(()))
        return [*model.parameters(), *(t for n, t in model.named_buffers() if "following" not in n), *random]

    for a, b in zip(trained(False), trained(True)):
        assert torch.equal(a, b)


def test_channels_last_and_autocast():
    model = network(**EVERYTHING)
    twin, autocast = copy.deepcopy(model), copy.deepcopy(model)
    x = torch.randn(8, 3, 10, 10)
    model(x), twin.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    # oneDNN has bfloat16 convolutions for some processors only.
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", dtype=torch.bfloat16):
        autocast(x)
        y = autocast.eval()(x)
    assert y.dtype == torch.bfloat16 and autocast[1].following.input_covariance.dtype == torch.float
    assert torch.equal(autocast[1].following.input_covariance, model[1].following.input_covariance)
    # Weights rounded to 8 bits.
    assert 0 < relative(autocast[1].running_matrix, model.eval()[1].running_matrix) < 2**-7
    for at in (1, 4):
        torch.testing.assert_close(twin[at].following.input_covariance, model[at].following.input_covariance)


def test_a_fused_relu_follows():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    model = keel.nn.convert_batchnorm(model, fuse_relu=True, follow=True)
    trained(model).eval()
    moved(model, 0.3)
    x = torch.randn(2, 3, 10, 10)
    fused = model(x)
    assert torch.equal(fused, model[2](model[1](model[0](x))))
    moved(model, 0.3)
    assert not torch.equal(model(x), fused)


def test_checkpointing():
    model = network(**EVERYTHING).double()
    x = torch.randn(8, 3, 10, 10).double().requires_grad_()
    options = {} if torch.__version__.startswith("1.") else {"use_reentrant": False}
    checkpoint(model, x, **options).sum().backward()
    moved(model[0], 1.0)
    assert relative(model.eval()[:2](x), recomputed(model, x.detach())[:2](x)) < 1e-9


def test_a_traced_network_has_the_statistics_of_its_weights():
    model = trained(network()).eval()
    x = torch.randn(2, 3, 10, 10)
    traced = torch.jit.trace(model, x)
    assert "keel::" not in str(traced.inlined_graph) and "lerp" not in str(traced.inlined_graph)
    torch.testing.assert_close(traced(x), model(x), rtol=1e-4, atol=1e-4)


def test_transforms_of_torch_func_leave_it_alone():
    functorch = pytest.importorskip("functorch") if torch.__version__.startswith("1.") else torch.func
    model = trained(network()).eval()
    x = torch.randn(2, 3, 10, 10)
    expected = model(x)
    got = functorch.vmap(lambda image: model(image.unsqueeze(0)).squeeze(0))(x)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason=f"torch {torch.__version__} has no torch.compile")
@pytest.mark.parametrize("norm", [keel.nn.ZcaWhitening, nn.BatchNorm2d])
def test_compiled_networks_follow(norm):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norm(8))
    keel.nn.follow(model, **EVERYTHING)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="aot_eager")
    for _ in range(3):
        x = torch.randn(8, 3, 10, 10)
        torch.testing.assert_close(compiled(x), model(x))
    assert twin[1].following.looks == 3
    torch.testing.assert_close(twin[1].following.input_covariance, model[1].following.input_covariance)
    moved(twin, 1.0), model.load_state_dict(twin.state_dict())
    model.eval(), compiled.eval()
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
