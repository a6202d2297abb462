"""Statistics that follow the weights, against those recomputed at the same weights."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import keel
from keel.nn import patches
from support import LAYERS, correlated, relative

EVERYTHING = {"share": None, "every": 1}
BATCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
MAPS = {
    "linear": (lambda: nn.Linear(4, 8), (64, 4)),
    "strided, dilated": (lambda: nn.Conv2d(4, 8, 3, stride=(2, 1), dilation=(1, 2), padding=2), (6, 4, 9, 8)),
    "groups wider than the norm's": (lambda: nn.Conv2d(4, 8, 3, groups=2, padding=(0, 1)), (6, 4, 9, 8)),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8, padding=1, bias=False), (6, 8, 7, 7)),
    "reflect": (lambda: nn.Conv2d(4, 8, 3, padding=2, padding_mode="reflect"), (6, 4, 5, 8)),
    "replicate": (lambda: nn.Conv1d(4, 8, 3, padding=2, padding_mode="replicate"), (6, 4, 9)),
    "circular": (lambda: nn.Conv3d(4, 8, (1, 2, 3), padding=(0, 1, 2), padding_mode="circular"), (3, 4, 5, 6, 7)),
    "same": (lambda: nn.Conv2d(4, 8, 3, padding="same", dilation=2), (6, 4, 9, 8)),
}


def norms(shape):
    return {
        "BatchNorm": lambda: BATCH_NORMS[len(shape)](8),
        "ZCA": lambda: keel.nn.ZcaWhitening(8, group_size=4, rank=keel.FullRank()),
        "ZCA over all": lambda: keel.nn.ZcaWhitening(8, rank=keel.FullRank()),
        "PCA denoising": lambda: keel.nn.PcaDenoising(8, rank=keel.LeadingCount(5)),
        "PCA whitening": lambda: keel.nn.PcaWhitening(8, group_size=2),
    }


def recomputed(model, *batches):
    """The model with statistics recomputed at its weights."""
    again = copy.deepcopy(model)
    keel.nn.unfollow(again)
    keel.nn.recalibrate(again, list(batches))
    return again.eval()


def moved(layer, size):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(size * torch.randn_like(parameter))


def rounding_of_S(map, input, eps, unit):
    """How far M^(-1/2) M^(1/2) may be from the identity, M = W C W^T + eps I, by rounding of C and of Cov. A change E
    of M changes M^(-1/2) M^(1/2) by at most |E| / |smallest eigenvalue of M| in norm. Sums of K products, and of n by
    pairs, have a relative error below (K + log2 n) unit of the sum of magnitudes."""
    weight = map.weight.detach().double().flatten(1)
    columns = F.unfold(input.double(), map.kernel_size, map.dilation, map.padding, map.stride)
    columns = columns.transpose(0, 1).flatten(1)
    size = columns.abs() @ columns.abs().T / columns.shape[1]
    covariance = weight @ torch.cov(columns, correction=0) @ weight.T
    error = (columns.shape[0] + math.log2(columns.shape[1])) * unit * (weight.abs() @ size @ weight.abs().T)
    return float(error.norm() / (torch.linalg.eigvalsh(covariance)[0] + eps))


@pytest.mark.parametrize("norm", list(norms((1, 1))))
@pytest.mark.parametrize("name", list(MAPS))
def test_after_a_step_of_any_size_it_is_what_recomputing_gives(name, norm):
    make, shape = MAPS[name]
    for size in (1e-3, 1.0, 100.0):
        model = nn.Sequential(make(), norms(shape)[norm]()).double()
        assert keel.nn.follow(model, **EVERYTHING) == ({"1": "0"}, {})
        x = torch.randn(shape).double() + 1
        model(x)
        before = copy.deepcopy(model).eval()(x)
        moved(model, size)
        model.eval()
        # In float64 with spectra of condition 1e4 at most, and gaps of 1e-3: eigenvectors to 1e-16 * 1e4 / 1e-3.
        assert relative(model(x), recomputed(model, x)(x)) < 1e-9
        assert relative(before, model(x)) > 1e-5


@pytest.mark.parametrize("type, unit", [(torch.double, 2**-53), (torch.float, 2**-24)])
def test_it_is_exact_to_rounding(type, unit):
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), keel.nn.ZcaWhitening(6, rank=keel.FullRank())).to(type)
        keel.nn.follow(model, **EVERYTHING)
        x = torch.randn(8, 3, 9, 9).to(type) + 1
        model(x)
        moved(model, 1.0)
        truth = recomputed(copy.deepcopy(model).double(), x.double())[1].running_matrix
        S = model.eval()[1].running_matrix.double()
        off = torch.linalg.solve(truth, S) - torch.eye(6)
        assert off.norm() < rounding_of_S(model[0], x, 1e-4, unit)


def test_directions_of_little_variance_keep_their_digits():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 4, bias=False), keel.nn.ZcaWhitening(4))
    keel.nn.follow(model, **EVERYTHING)
    x = torch.randn(4096, 6)
    model(x)
    with torch.no_grad():  # four rows that differ by 1e-5 of their size: variances of 1 and 1e-10
        model[0].weight.copy_(torch.randn(1, 6) + 1e-5 * torch.randn(4, 6))
    W, C = model[0].weight.detach().double(), torch.cov(x.double().T, correction=0)
    M = W @ C @ W.T
    assert torch.linalg.eigvalsh(M)[0] < 1e-9 * torch.linalg.eigvalsh(M)[-1]
    # An error E of C, which is in float32, changes v M v by |C^-1| |E| v M v at most: each direction in proportion.
    # The product in float64 adds what is left of its digits.
    E = model[1].following.input_covariance[0].double() - C
    bound = E.norm() / torch.linalg.eigvalsh(C)[0] + 6 * 2**-53 * M.norm() / torch.linalg.eigvalsh(M)[0]
    half = torch.linalg.inv(torch.linalg.cholesky(M))
    off = half @ model.eval()[1].following.statistics()[1][0] @ half.T - torch.eye(4)
    assert off.norm() < 2 * bound < 1e-3


@pytest.mark.parametrize("norm", ["BatchNorm", "ZCA", "PCA denoising"])
def test_on_fixed_data_the_first_layer_is_exact_whatever_the_schedule(norm):
    x = torch.randn(32, 3, 8, 8).double()
    model = nn.Sequential(nn.Conv2d(3, 8, 3), norms(x.shape)[norm](), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    model.double()
    keel.nn.follow(model, ["1"], **EVERYTHING)
    optimiser = torch.optim.SGD(model.parameters(), 1.0)
    for rate in (0.1, 10.0, 1e-3, 1.0):
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        F.cross_entropy(model(x), torch.arange(32) % 2).backward()
        optimiser.step()
        assert relative(copy.deepcopy(model).eval()[:2](x), recomputed(model, x)[:2](x)) < 1e-9


def test_the_average_is_that_of_a_batch_norm_without_lag():
    batches = [(k + 1) * torch.randn(16, 3, 6, 6).double() + k for k in range(5)]
    for momentum in (None, 0.5):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=momentum)).double()
        keel.nn.follow(model, **EVERYTHING)
        for batch in batches:
            model(batch)
        plain = copy.deepcopy(model)
        model.eval()
        keel.nn.unfollow(plain)
        plain[1].reset_running_stats()
        for k, batch in enumerate(batches):
            plain[1].momentum = 1 / (k + 1) if momentum is None else max(momentum, 1 / (k + 1))
            plain(batch)
        for name in ("running_mean", "running_var"):
            torch.testing.assert_close(getattr(model[1], name), getattr(plain[1], name), rtol=1e-12, atol=1e-12)


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


# Which positions.


def test_patches_are_what_unfold_gives():
    map, x = nn.Conv2d(3, 5, (3, 2), stride=2, padding=(1, 0), dilation=2), torch.randn(4, 3, 11, 9)
    sizes = patches.positions_of(map, x)
    assert list(map(x).shape[2:]) == sizes
    expected = F.unfold(x, (3, 2), 2, (1, 0), 2).transpose(1, 2).flatten(0, 1)
    total = len(expected)
    for turn in range(3):
        got = patches.sample(map, x, sizes, total, torch.tensor(turn))
        assert got.shape == expected.shape
        assert sorted(map.tolist() for map in got) == sorted(map.tolist() for map in expected)  # each once
    some = [patches.sample(map, x, sizes, total // 3, torch.tensor(turn)).tolist() for turn in range(2)]
    for rows in some:
        assert len({tuple(row) for row in rows}) == total // 3
        assert {tuple(row) for row in rows} < {tuple(row.tolist()) for row in expected}
    assert sorted(some[0]) != sorted(some[1])
    few = patches.sample(map, x, sizes, 4, torch.tensor(0))
    images = [next(i for i in range(4) if (x[i] == row[row != 0][0]).any()) for row in few]
    assert images == [0, 1, 2, 3]


def test_the_error_of_a_sample_is_that_of_the_design():
    d = 16  # and K = 576, which is more than the positions of a look
    model = nn.Sequential(nn.Conv2d(64, d, 3, padding=1, bias=False), keel.nn.ZcaWhitening(d, rank=keel.FullRank()))
    with torch.no_grad():  # directions of very different variance
        model[0].weight.mul_(torch.logspace(-3, 0, d).view(-1, 1, 1, 1))
    model[1].eps = 1e-12
    errors = []
    for seed in range(20):
        torch.manual_seed(seed)
        sampled, x = copy.deepcopy(model), torch.randn(32, 64, 16, 16)
        keel.nn.follow(sampled, share=0.5)
        sampled(x)
        n = int(0.5 * 3 * 32 * 256 * d / 576)
        whole = recomputed(sampled, x)[1].running_matrix.double()[0]
        ratio = torch.linalg.solve(whole, sampled.eval()[1].running_matrix.double()[0])
        errors.append((ratio - torch.eye(d)).square().sum() / d)
    expected = (d + 1) / (4 * n)
    assert 0.5 * expected < torch.stack(errors).mean() < 2 * expected


def test_few_positions_a_batch_are_averaged_over_more_batches():
    model = nn.Sequential(nn.Linear(512, 64), keel.nn.ZcaWhitening(64))
    keel.nn.follow(model)
    following = model[1].following
    few = following._least_weight(model[1], 9, 9, 1)
    assert (2 - few) / few * 9 == pytest.approx(1024 * 65)  # as many in all as are enough
    assert following._least_weight(model[1], 9, 10**6, 1) == following._least_weight(model[1], 9, 16 * 9, 1)
    assert following._least_weight(model[1], 10**6, 10**6, 1) == pytest.approx(0.1)
    assert following._least_weight(model[1], 10**6, 10**6, 8) == pytest.approx(1 - 0.9**8)


def test_every_batch_or_some():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    keel.nn.follow(model, every=3)
    for step in range(7):
        model(torch.randn(16, 4))
        assert model[1].following.looks == 1 + step // 3


def test_few_positions_of_each_batch_are_taken_as_more_of_fewer_batches():
    model = nn.Sequential(nn.Conv2d(512, 8, 3, padding=1), nn.BatchNorm2d(8))
    keel.nn.follow(model, every=2, share=1e-9)
    following, x = model[1].following, torch.randn(4, 512, 4, 4)
    following.input_covariance = torch.zeros(1, 4608, 4608)
    rounds = 64 // following._positions(model[0], 64)
    assert rounds == 64
    model[0].weight.data.zero_()
    for step in (0, 1, 2, 126, 127):
        following._steps = step
        model(x)
    assert following.looks == 1
    following._steps = 128
    model(x)
    assert following.looks == 2


def test_a_batch_of_one_is_left_out():
    model = nn.Sequential(nn.Linear(3, 4), keel.nn.ZcaWhitening(4))
    keel.nn.follow(model, **EVERYTHING)
    following = model[1].following
    following.keel_observes(model[0], (torch.ones(1, 3),))
    following.keel_observes(model[0], (torch.ones(0, 3),))
    assert following.looks == 0 and not following.input_covariance.any()


def test_a_spoilt_batch_is_left_out():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), keel.nn.ZcaWhitening(4)).double()
    keel.nn.follow(model, **EVERYTHING)
    x = torch.randn(4, 2, 6, 6).double()
    model(x)
    expected = copy.deepcopy(model).eval()(x)
    for bad in (math.nan, math.inf):
        spoilt = x.clone()
        spoilt[0, 0, 0, 0] = bad
        model(spoilt)
    assert torch.equal(model.eval()(x), expected) and model[1].following.looks == 1


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


def test_weights_that_change_in_evaluation_are_followed():
    for norm in (keel.nn.ZcaWhitening(8), nn.BatchNorm2d(8)):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), norm)
        keel.nn.follow(model, **EVERYTHING)
        x = torch.randn(8, 3, 10, 10)
        model(x)
        model.eval()
        moved(model, 1.0)
        assert relative(model(x), recomputed(model, x)(x)) < 1e-3
        fresh = nn.Parameter(torch.randn_like(model[0].weight))
        model[0].weight = fresh
        assert relative(model(x), recomputed(model, x)(x)) < 1e-3
        with torch.inference_mode():
            assert relative(model(x), recomputed(model, x)(x)) < 1e-3


def test_weights_that_change_without_a_new_version_are_followed():
    # By .data, as some optimizers and averages of weights do it. Replays of CUDA graphs are like that.
    for norm in (keel.nn.ZcaWhitening(8), nn.BatchNorm2d(8)):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), norm)
        keel.nn.follow(model, **EVERYTHING)
        x = torch.randn(8, 3, 10, 10)
        model(x)
        model.eval()
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


def test_channels_last_and_autocast():
    model = network(**EVERYTHING)
    twin, autocast = copy.deepcopy(model), copy.deepcopy(model)
    x = torch.randn(8, 3, 10, 10)
    model(x), twin.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast(x)
        y = autocast.eval()(x)
    assert y.dtype == torch.bfloat16 and autocast[1].following.input_covariance.dtype == torch.float
    assert torch.equal(autocast[1].following.input_covariance, model[1].following.input_covariance)
    assert torch.equal(autocast[1].running_matrix, model.eval()[1].running_matrix)
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


# The lag, and its cure.


def test_a_training_whose_statistics_lag():
    torch.manual_seed(0)
    images = torch.randn(256, 3, 10, 10)
    images = images[:, :1] + 0.1 * images  # colours that differ little
    labels = (images[:, 0] - images[:, 1]).mean((1, 2)).gt(0).long()
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), keel.nn.ZcaWhitening(16, rank=keel.FullRank()), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip
    plain = copy.deepcopy(model)
    keel.nn.follow(model)
    errors = []
    for network in (plain, model):
        optimiser = torch.optim.SGD(network.parameters(), 0.5, momentum=0.9)
        for _ in range(40):
            chosen = torch.randperm(256)[:64]
            optimiser.zero_grad()
            F.cross_entropy(network(images[chosen]), labels[chosen]).backward()
            optimiser.step()
        truth = recomputed(network, *images.split(64))(images).detach()
        errors.append(relative(network.eval()(images), truth))
    lagging, followed = errors
    assert followed < 0.1 < 0.5 < lagging


def test_correlated_inputs_of_a_linear_layer():
    """A covariance with directions of little variance, in float32 and with a large mean."""
    model = nn.Sequential(nn.Linear(16, 8), keel.nn.PcaWhitening(8))
    keel.nn.follow(model, **EVERYTHING)
    x = correlated(512, 16, mean=100.0, dtype=torch.float)
    model(x)
    moved(model, 0.1)
    y = model.eval()[1](model[0](x)).detach() / model[1].weight.detach()
    torch.testing.assert_close(torch.cov(y.T), torch.eye(8), rtol=0.05, atol=0.05)
