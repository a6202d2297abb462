"""Statistics that follow the weights, against those recomputed at the same weights."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import keel
from keel.nn import patches
from support import EVERYTHING, correlated, moved, recomputed, relative

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


@pytest.mark.parametrize("type", [torch.float16, torch.bfloat16])
def test_half_precision_reaches_other_directions_and_rounds_its_outputs(type):
    """More channels than inputs at full rank: what lies in the directions that a convolution does not reach, the
    rounding of its weights and outputs, is multiplied by up to 1 / sqrt(eps)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 48, 3, padding=1), keel.nn.ZcaWhitening(48, eps=1e-5, rank=keel.FullRank()))
    keel.nn.follow(model, **EVERYTHING)
    map, norm = model
    x = torch.randn(16, 3, 24, 24)

    def outputs():  # not by autocast, because CPUs differ in what they do in half precision
        weight, bias = (p.detach().to(type).float() for p in map.parameters())
        return F.conv2d(x, weight, bias, padding=1).to(type)

    for gain in (1, 4):
        norm.train()
        map(x)
        norm(outputs())
        with torch.no_grad():
            map.weight.mul_(gain).add_(0.1 * torch.randn_like(map.weight))
        truth = norm(outputs()).float()
        # Whatever the mantissas, the mean of 1 / m^2 is within a factor of 2 of the assumed one. So in directions
        # with nothing but rounding S is off by 1 - sqrt(1/2) at most, and less in all others.
        followed = relative(norm.eval()(outputs()).float(), truth)
        in_float32 = relative(norm(outputs().float()), truth)
        assert followed < min(1 - math.sqrt(1 / 2), in_float32 / 3)


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
    images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    keel.nn.follow(images)
    assert images(torch.ones(0, 3, 8, 8)).shape == (0, 4, 6, 6) and images[1].following.looks == 0


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
