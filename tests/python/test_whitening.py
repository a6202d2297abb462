"""What the layers compute, forward and backward, against the same written in torch operators."""

import random
import warnings

import pytest
import torch

import keel
from support import LAYERS, composed, composed_layer_matrix, correlated, covariance, functional_call, leading, relative

SHAPES = [(40, 6), (8, 6, 9), (5, 6, 4, 3), (3, 6, 2, 3, 4)]


def make(layer, channels=6, **options):
    """In float64, with a weight and bias that show."""
    made = layer(channels, dtype=torch.double, **options)
    with torch.no_grad():
        made.weight.uniform_(0.5, 1.5)
        made.bias.normal_()
    return made


def gradients(output, direction, *inputs):
    return torch.autograd.grad(output, inputs, direction)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layer", LAYERS)
def test_forward_and_gradients_are_those_of_the_composition(layer, shape):
    for groups, count in ((1, 6), (1, 4), (2, 3), (3, 1), (6, 1)):
        # Analytic: at the cut, Exact gives the paper's series and not the derivative.
        made = make(layer, groups=groups, rank=keel.LeadingCount(count), rule=keel.Analytic())
        x = correlated(*shape).requires_grad_()
        ours = made(x)
        theirs = composed(made, x, made.weight, made.bias, count)
        assert relative(ours, theirs) < 1e-11
        direction = torch.randn_like(ours)
        inputs = (x, made.weight, made.bias)
        for a, b in zip(gradients(ours, direction, *inputs), gradients(theirs, direction, *inputs)):
            assert relative(a, b) < 1e-9
        assert made.kept.tolist() == [count] * groups


def random_case(seed):
    """A layer, activations, eps and a rank policy: any number of samples, of which often fewer than channels differ."""
    rnd, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    d, dtype = rnd.choice([2, 3, 4, 8, 16, 28, 32, 48, 64]), rnd.choice([torch.float32, torch.float64])
    directions, samples = rnd.choice([d, 27, (d + 1) // 2]), rnd.choice([(d + 1) // 2 + 1, 2 * d, 500])
    mix = torch.randn(directions, d, generator=generator, dtype=torch.double) * rnd.choice([0.02, 0.1, 0.5])
    x = torch.randn(samples, directions, generator=generator, dtype=torch.double) @ mix
    if rnd.random() < 0.1:
        x[:, :2] = 0
    eps = rnd.choice([1e-5, 1e-4, 1e-3])
    policies = [keel.FullRank(), keel.LeadingCount(rnd.randint(1, d)), keel.LeadingEnergy(rnd.choice([0.9, 0.99])),
                keel.Algorithm1(eps=eps)]  # fmt: skip
    return rnd.choice(LAYERS)._map, x.to(dtype), eps, rnd.choice(policies)


def textbook_rounding(map, cov, eps, values, vectors, kept, weight):
    """How much rounding can move the textbook gradient of <weight, S> at this decomposition, and how much more if the
    decomposition itself is that of a matrix as near as rounding allows. 8 n epsilons bound the rounding of the three
    nested products of n terms on each side, relative to the norms of their factors; those of the pair i, j are divided
    by its gap."""
    n, epsilon = len(values), torch.finfo(cov.dtype).eps
    lengths = values.clamp_min(eps).rsqrt() if map != "pca_denoising" else torch.ones_like(values)
    scale = (cov.diagonal() + eps).rsqrt() if map == "pca_denoising" else torch.ones_like(values)
    lengths[kept:] = 0
    weighted = weight * scale
    by_column = weighted.mT if map == "pca_whitening" else (weighted + weighted.mT) @ vectors
    slopes = lengths * by_column.norm(dim=0)
    gaps = (values.unsqueeze(-1) - values).abs()
    matters = (torch.arange(n).unsqueeze(-1) < kept) & ~torch.eye(n, dtype=torch.bool)
    pairs = torch.where(matters, (slopes.unsqueeze(-1) + slopes) / gaps, gaps.new_zeros(()))
    size = 2 * pairs.norm() + (weighted.norm() * lengths**3).norm()
    # Through D of PCA denoising: each entry is scaled twice, and the scale's own gradient sums a column.
    most = scale.max()
    size = most**2 * (1 + n**0.5) * size + (most**3 * n**0.5 * weight.norm() if map == "pca_denoising" else 0)
    # A value that is eps to rounding may be raised to it or not: there the formula has a kink.
    gaps = torch.cat([gaps[matters], (values[:kept] - eps).abs()])
    turned = 4 * epsilon * n * values[0].abs() / gaps.min()
    return 8 * n * epsilon * size, 8 * turned * size, turned


def test_a_thousand_textbook_gradients_are_those_of_torch_and_finite_as_often():
    ours_finite = theirs_finite = compared = from_scratch = 0
    for seed in range(1000):
        map, x, eps, policy = random_case(seed)
        _, cov = torch.ops.keel.moments(x)
        cov, n = cov[0].requires_grad_(), x.shape[1]
        weight = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
        text = f"{map}(eps={eps}, rank={policy})"
        result, values, vectors, rank = torch.ops.keel.layer_matrix(cov, text, "analytic")
        (ours,) = torch.autograd.grad((result * weight).sum(), cov)
        kept = int(rank)
        theirs = composed_layer_matrix(map, cov, eps, kept)
        (theirs,) = torch.autograd.grad((theirs * weight).sum(), cov)
        theirs = (theirs + theirs.mT) / 2
        ours_finite += int(ours.isfinite().all())
        theirs_finite += int(theirs.isfinite().all())
        if not theirs.isfinite().all():
            continue
        # At torch's own decomposition, all that differs is the order of operations.
        with torch.no_grad():
            matrix = cov
            if map == "pca_denoising":
                scale = (cov.diagonal() + eps).rsqrt()
                matrix = scale.unsqueeze(-1) * cov * scale.unsqueeze(-2)
            l, v = leading(matrix + eps * torch.eye(n, dtype=x.dtype), n)
            at_theirs = torch.ops.keel.layer_matrix_backward(weight, cov, l, v.contiguous(), rank, text, "analytic")
            rounding, perturbed, turned = textbook_rounding(map, cov, eps, l, v, kept, weight)
        assert at_theirs.isfinite().all(), seed
        assert (at_theirs - theirs).norm() <= rounding, (seed, text)
        compared += 1
        # At keel's, whose eigenvectors may be turned a little.
        if turned < 1e-2:
            assert (ours - theirs).norm() <= rounding + perturbed, (seed, text)
            from_scratch += 1
    assert ours_finite >= theirs_finite > 800
    assert compared == theirs_finite and from_scratch > 300


@pytest.mark.parametrize("channels", [28, 29, 32, 48, 64])
@pytest.mark.parametrize("rank", [None, keel.Algorithm1(), keel.LeadingCount(20)])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_textbook_gradient_of_more_channels_than_inputs_is_finite(layer, rank, channels):
    generator = torch.Generator().manual_seed(channels)
    images = torch.randn(8, 3, 8, 8, generator=generator)
    weight = torch.randn(channels, 3, 3, 3, generator=generator) * (2 / (9 * channels)) ** 0.5
    for draw in range(10):
        x = torch.nn.functional.conv2d(images + draw, weight, padding=1).requires_grad_()
        if rank is None and layer is not keel.nn.ZcaWhitening:
            continue  # the default of PcaWhitening keeps everything
        made = layer(channels, rule=keel.Analytic(), **({} if rank is None else {"rank": rank}))
        (made(x) * torch.randn(x.shape, generator=generator)).sum().backward()
        assert x.grad.isfinite().all(), draw


def input_gradient(layer, x, direction):
    x = x.clone().requires_grad_()
    (layer(x) * direction).sum().backward()
    return x.grad


@pytest.mark.parametrize("scale", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_order_of_channels_does_not_matter_at_any_rank(dtype, scale):
    """The default layer, 64 channels. Rounding differs with the order, and so would a rank that it decides."""
    for rank in range(1, 64):
        generator = torch.Generator().manual_seed(rank)
        mix = torch.randn(rank, 64, generator=generator, dtype=torch.double) * scale / rank**0.5
        x = (torch.randn(1000, rank, generator=generator, dtype=torch.double) @ mix).to(dtype)
        direction = torch.randn(x.shape, generator=generator, dtype=torch.double).to(dtype)
        order = torch.randperm(64, generator=generator)
        layer = keel.nn.ZcaWhitening(64, dtype=dtype)
        plain = input_gradient(layer, x, direction)
        assert layer.kept.item() <= rank
        permuted = input_gradient(layer, x[:, order].contiguous(), direction[:, order].contiguous())
        assert relative(permuted, plain[:, order]) < 1e-3, rank


def test_a_literal_algorithm_1_keeps_noise():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1000, 27, generator=generator) @ torch.randn(27, 64, generator=generator) * 0.04
    literal = keel.nn.ZcaWhitening(64, rank=keel.Algorithm1(literal=True))
    literal(x)
    assert literal.kept.item() > 30
    margin = keel.nn.ZcaWhitening(64)
    margin(x)
    assert margin.kept.item() == 27


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [1e-2, 2e-3, 1e-3, 5e-4, 1e-4, 1e-5])  # float32 rounds some of them up
def test_a_dead_channel_is_dropped_at_every_eps(eps, dtype):
    x = correlated(50, 6, dtype=dtype)
    x[:, 2] = 0
    made = keel.nn.ZcaWhitening(6, eps=eps, rank=keel.Algorithm1(eps=eps, energy=None), dtype=dtype)
    made(x)
    assert made.kept.tolist() == [5]


@pytest.mark.parametrize("rule", [keel.Exact(), keel.Masked()])
@pytest.mark.parametrize("layer", LAYERS)
def test_gradcheck(layer, rule):
    # At full rank there is no cut, and these rules are the derivative.
    made = make(layer, 4, groups=2, rank=keel.FullRank(), rule=rule)
    x = correlated(7, 4, 3).requires_grad_()

    def function(x, weight, bias):
        return functional_call(made, {"weight": weight, "bias": bias}, (x,))

    weight, bias = (p.detach().clone().requires_grad_() for p in (made.weight, made.bias))
    assert torch.autograd.gradcheck(function, (x, weight, bias))


@pytest.mark.parametrize("rule", [keel.PowerIteration(5), keel.Taylor(3), keel.Lorentzian(1e-2)])
@pytest.mark.parametrize("layer", LAYERS)
def test_rules_reach_the_gradient(layer, rule):
    x = correlated(50, 6).requires_grad_()
    direction = torch.randn(50, 6, dtype=torch.double)
    rank = keel.LeadingCount(4)
    others = [keel.PowerIteration(5), keel.Taylor(3), keel.Lorentzian(1e-2), keel.Analytic()]
    rules = [rule] + [other for other in others if other != rule]
    made = [layer(6, dtype=torch.double, rank=rank, rule=r) for r in rules]
    ours, *theirs = (gradients(m(x), direction, x)[0] for m in made)
    assert ours.isfinite().all() and ours.abs().max() > 0
    # Each rule has a gradient of its own, none far from the textbook's.
    assert all(1e-6 < relative(other, ours) for other in theirs)
    assert relative(ours, theirs[-1]) < 0.9


def test_long_series_tend_to_the_derivative():
    x = correlated(50, 4).requires_grad_()
    direction = torch.randn(50, 4, dtype=torch.double)
    for layer in LAYERS:
        rank = keel.LeadingCount(3)
        rules = (keel.Analytic(), keel.PowerIteration(5000), keel.Taylor(5000), keel.Exact(5000))
        made = [layer(4, dtype=torch.double, rank=rank, rule=rule) for rule in rules]
        textbook, *others = (gradients(m(x), direction, x)[0] for m in made)
        assert all(relative(other, textbook) < 1e-8 for other in others)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_zca_output_covariance_is_the_identity(groups):
    options = {"eps": 1e-12, "rank": keel.FullRank(), "dtype": torch.double}
    layer = keel.nn.ZcaWhitening(8, groups=groups, **options)
    cov = covariance(layer(correlated(16, 8, 5, 5, mean=3.0)), groups)
    torch.testing.assert_close(cov, torch.eye(8 // groups).double().expand_as(cov))


def test_algorithm1_cuts_nothing_of_a_good_covariance_and_keeps_one_of_a_bad_one():
    layer = keel.nn.ZcaWhitening(6, dtype=torch.double)
    layer(correlated(200, 6))
    assert layer.kept.tolist() == [6]
    one_direction = torch.randn(200, 1).double() * torch.ones(1, 6).double() * 1e3
    assert layer(one_direction).isfinite().all() and layer.kept.tolist() == [1]
    assert layer(torch.full((200, 6), 5.0).double()).isfinite().all() and layer.kept.tolist() == [1]


def test_repeated_eigenvalues_give_finite_gradients():
    x = torch.eye(6, dtype=torch.double).repeat(4, 1).requires_grad_()
    for layer in LAYERS:
        output = layer(6, dtype=torch.double, rank=keel.LeadingCount(3))(x)
        (grad,) = torch.autograd.grad(output, x, torch.randn_like(output))
        assert grad.isfinite().all()


@pytest.mark.parametrize("layer", LAYERS)
def test_channels_last_and_views_give_the_same(layer):
    made = make(layer, group_size=3).eval()
    x = correlated(4, 6, 5, 7)
    last = x.contiguous(memory_format=torch.channels_last)
    view = x.transpose(2, 3).contiguous().transpose(2, 3)
    for training in (True, False):
        made.train(training)
        plain, other = made(x), made(last)
        assert other.is_contiguous(memory_format=torch.channels_last)
        assert relative(other, plain) < 1e-12 and relative(made(view), plain) < 1e-12


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("layer", LAYERS)
def test_half_activations_with_float_statistics(layer, dtype):
    made = layer(4)
    x = correlated(64, 4, 3, dtype=torch.float32).to(dtype).requires_grad_()
    y = made(x)
    y.float().square().sum().backward()
    assert y.dtype == x.grad.dtype == dtype and made.weight.grad.dtype == torch.float32
    truth = layer(4)(x.detach().float())
    assert relative(y.float(), truth) < 2 * torch.finfo(dtype).eps
    for _ in range(200):
        made(x.detach())
    made.eval()
    assert made(x).dtype == dtype
    assert relative(made(x).float(), truth) < 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize("layer", LAYERS)
def test_mean_far_above_deviation(layer):
    x = correlated(64, 4, 8, dtype=torch.float32)
    far = (x.double() + 1e4).float()
    made, truth = layer(4, momentum=1.0), layer(4, momentum=1.0, dtype=torch.double)
    error = (made(far).double() - truth(far.double())).abs().max().item()
    condition = torch.linalg.cond(covariance(far.double())).item()
    assert relative(made.running_matrix.double(), truth.running_matrix) < 2**-23 * condition
    # What is left is the mean in float32: off by half a unit in the last place of 1e4.
    matrix = truth.eval().as_conv1x1().weight.detach().view(4, 4)
    assert error < 1.1 * 2**-11 * matrix.abs().sum(-1).max().item()


def test_few_samples_warn_once_and_work():
    layer = keel.nn.ZcaWhitening(16, group_size=8)
    x = torch.randn(5, 16)
    with pytest.warns(UserWarning, match=r"ZcaWhitening: got 5 samples .* of 8 .*of 16.*rank 4"):
        assert layer(x).isfinite().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x)
        keel.nn.ZcaWhitening(16, group_size=4)(x)


@pytest.mark.parametrize("layer", LAYERS)
def test_one_sample_is_an_error(layer):
    for x in (torch.randn(1, 4), torch.randn(0, 4, 3), torch.randn(1, 4, 1, 1)):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            layer(4)(x)
        layer(4).eval()(x)


@pytest.mark.parametrize("layer", LAYERS)
def test_tokens_are_samples(layer):
    """(N, L, C) with channel_dim=-1 is the same as (N L, C)."""
    tokens, residual = torch.randn(2, 5, 7, 6, dtype=torch.double).unbind()
    options = {"group_size": 3, "dtype": torch.double}
    ours, plain = layer(6, channel_dim=-1, activation="relu", **options), layer(6, activation="relu", **options)
    scripted = torch.jit.script(layer(6, channel_dim=-1, activation="relu", **options))
    for mode in (True, False):
        for norm in (ours, plain, scripted):
            norm.train(mode)
        expected = plain(tokens.reshape(-1, 6), residual.reshape(-1, 6)).reshape(tokens.shape)
        assert torch.equal(ours(tokens, residual), expected) and torch.equal(scripted(tokens, residual), expected)
    linear = torch.nn.Linear(4, 6, dtype=torch.double)
    ours.activation = None
    x = torch.randn(3, 7, 4, dtype=torch.double)
    torch.testing.assert_close(ours.fold_into(linear)(x), ours(linear(x)))
    assert "channel_dim=-1" in repr(ours)
    for wrong, words in (
        (lambda: plain.eval()(tokens), r"got \(5, 7, 6\); for \(N, ..., 6\) set channel_dim=-1"),
        (lambda: ours(tokens.mT), r"expected \(N, ..., 6\), got \(5, 6, 7\)"),
        (lambda: ours(tokens, residual[:1]), "expected residual of shape"),
        (lambda: layer(6, channel_dim=2), "expected channel_dim 1 or -1, got 2"),
        (lambda: ours.fold_into(torch.nn.Conv1d(4, 6, 1)), "expected a Linear, for channel_dim=-1"),
        (ours.as_conv1x1, "expected channel_dim=1, got -1"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()
