"""Functions of singular values: finite differences, torch as the peer, ranks, and degenerate matrices."""

import math

import pytest
import torch
from rectangles import SHAPES, SMOOTH, SPECTRA, differences, jacobian, with_values

import keel

close = torch.testing.assert_close
FUNCTIONS = {
    "one": torch.ones_like,
    "identity": lambda s: s,
    "inv": torch.reciprocal,
    "power(exponent=0.5)": torch.sqrt,
    "power(exponent=-0.7)": lambda s: s.pow(-0.7),
    "power(exponent=3.0)": lambda s: s.pow(3),
    "power(exponent=1.0)": lambda s: s,
    "power(exponent=0.0)": torch.ones_like,
    "soft_threshold(threshold=0.7)": lambda s: (s - 0.7).clamp(min=0),
}
TWICE = [name for name in FUNCTIONS if "soft" not in name]


def through_torch(a, name, count=None):
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    return u[..., :count] * FUNCTIONS[name](s[..., :count]).unsqueeze(-2) @ vh[..., :count, :]


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("spectrum", SMOOTH)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_agree_with_differences(name, m, n, spectrum):
    a = with_values(SPECTRA[spectrum], m, n)
    close(keel.singular(a, name), through_torch(a, name))
    ours = jacobian(lambda x: keel.singular(x, name), a)
    expected = differences(lambda x: keel.singular(x, name), a, 1e-3)
    close(ours, expected, rtol=0, atol=3e-8 * max(1, expected.abs().max().item()))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rank_cuts_have_the_whole_gradient(name, m, n, count):
    """Also where the dropped values are not small: the term between kept and dropped ones is exact."""
    a = with_values((3.0, 2.0, 1.5), m, n)

    def cut(x):
        return keel.singular(x, name, keel.LeadingCount(count))

    close(cut(a), through_torch(a, name, count))
    close(jacobian(cut, a), differences(cut, a, 1e-3), rtol=0, atol=3e-8)


OF_VALUES = {
    **{name: (lambda x, name=name: keel.singular(x, name)) for name in TWICE if name not in ("one", "identity")},
    "pinv": keel.pinv,
    "nuclear_norm": keel.nuclear_norm,
    "positive factor": lambda x: keel.polar(x).positive,
}


@pytest.mark.parametrize("m, n", [(8, 6), (6, 8), (6, 6)])
@pytest.mark.parametrize("name", OF_VALUES)
def test_a_gradient_keeps_its_digits_where_it_is_differentiated_again(name, m, n):
    """Formulas that second derivatives come from lose digits to the condition. The gradient is the kernel's."""
    a = with_values((1, 0.3, 0.1, 0.03, 0.01, 1e-3), m, n).float().requires_grad_()
    result = OF_VALUES[name](a)
    weights = torch.linspace(-1, 2, result.numel()).reshape(result.shape).cos()
    (alone,) = torch.autograd.grad(result, a, weights, retain_graph=True)
    (again,) = torch.autograd.grad(result, a, weights, create_graph=True)
    assert torch.equal(alone, again) and again.requires_grad


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("spectrum", ["distinct", "first two equal", "equal"])
@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives_also_at_repeats(name, m, n, spectrum):
    a = with_values(SPECTRA[spectrum], m, n).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: keel.singular(x, name), a, atol=1e-4, rtol=1e-4)
    weight = torch.randn(m, n, dtype=torch.double)

    def gradient(create_graph):
        return torch.autograd.grad(keel.singular(a, name), a, weight, create_graph=create_graph)[0]

    close(gradient(True), gradient(False), rtol=1e-10, atol=1e-11)


VANISHING = [(3.0, 2.0, 0.0), (3.0, 0.0, 0.0), (1.0, 1e-3, 1e-9)]


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("values", VANISHING)
@pytest.mark.parametrize("exponent", [1, 3, 5])
def test_odd_powers_are_products_of_the_matrix_where_values_vanish_too(exponent, values, m, n):
    a, slope, along = (with_values(values, m, n).requires_grad_(), *torch.randn(2, m, n, dtype=torch.double))

    def product(x):
        result = x
        for _ in range(exponent // 2):
            result = result @ x.mT @ x
        return result

    def derivatives(function):
        (first,) = torch.autograd.grad(function(a), a, slope, create_graph=True)
        if not first.requires_grad:
            return first, torch.zeros_like(a)
        return first, torch.autograd.grad(first, a, along)[0]

    ours = derivatives(lambda x: keel.singular(x, f"power(exponent={float(exponent)})"))
    for got, expected in zip(ours, derivatives(product)):
        close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("values", VANISHING)
def test_a_threshold_of_zero_leaves_a_gradient_as_it_is(values, m, n):
    a, slope = with_values(values, m, n).requires_grad_(), torch.randn(m, n, dtype=torch.double)
    close(torch.autograd.grad(keel.soft_threshold(a, 0), a, slope)[0], slope, rtol=1e-12, atol=1e-12)


def second_derivative(function, a, slope, along):
    a = a.detach().requires_grad_()
    (first,) = torch.autograd.grad(function(a), a, slope, create_graph=True)
    return torch.autograd.grad(first, a, along)[0]


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("exponent", [2.5, 3.5])
def test_powers_above_two_have_second_derivatives_at_zero(exponent, m, n):
    a, (slope, along) = with_values((3.0, 2.0, 0.0), m, n), torch.randn(2, m, n, dtype=torch.double)

    def by_gram(x):
        tall = x if m >= n else x.mT
        result = tall @ keel.powm(tall.mT @ tall, (exponent - 1) / 2)
        return result if m >= n else result.mT

    ours = second_derivative(lambda x: keel.singular(x, f"power(exponent={exponent})"), a, slope, along)
    close(ours, second_derivative(by_gram, a, slope, along), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("exponent", [0.5, 1.5, 2.0, 2.5, 3.0])
def test_second_derivatives_of_powers_lose_no_more_than_the_condition(exponent, m, n):
    a, (slope, along) = with_values((1.0, 0.1, 1e-3), m, n), torch.randn(2, m, n, dtype=torch.double)
    a, slope, along = a.float(), slope.float(), along.float()

    def power(x):
        return keel.singular(x, f"power(exponent={exponent})")

    found = second_derivative(power, a, slope, along)
    expected = second_derivative(power, a.double(), slope.double(), along.double())
    assert (found.double() - expected).norm() < 100 * 1e3 * torch.finfo(torch.float32).eps * expected.norm()


def test_second_derivatives_that_are_not_there_are_named():
    a = with_values((3.0, 2.0, 1.0), 4, 3).requires_grad_()
    cases = {
        "soft_threshold": lambda: keel.soft_threshold(a, 0.5),
        "identity with rank policy leading_count": lambda: keel.low_rank(a, keel.LeadingCount(2)),
        r"inv\(rtol=0.1\) with rank policy full": lambda: keel.pinv(a, 0.1),
    }
    for name, function in cases.items():
        (first,) = torch.autograd.grad(function().sum(), a, create_graph=True)
        with pytest.raises(RuntimeError, match=f"keel::singular: no second derivative of {name}"):
            first.sum().backward()


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("exponent", [0.5, 1.5, 2.0])
def test_powers_up_to_two_have_no_second_derivatives_at_zero(exponent, m, n):
    a = with_values((3.0, 2.0, 0.0), m, n)
    slope, along = torch.randn(2, m, n, dtype=torch.double)
    with pytest.raises(RuntimeError, match=rf"no second derivative of power\(exponent={exponent:g}\) where"):
        second_derivative(lambda x: keel.singular(x, f"power(exponent={exponent})"), a, slope, along)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 5, 3)])
def test_the_pseudo_inverse_is_torchs(shape):
    a = torch.randn(shape, dtype=torch.double, requires_grad=True)
    weight = torch.randn_like(a.mT)
    ours, theirs = keel.pinv(a), torch.linalg.pinv(a)
    close(ours, theirs)
    (g,) = torch.autograd.grad(ours, a, weight)
    (t,) = torch.autograd.grad(theirs, a, weight)
    close(g, t)
    # Of low rank, along a curve that keeps the rank.
    b, c = torch.randn(5, 2, dtype=torch.double), torch.randn(2, 4, dtype=torch.double)
    b.requires_grad_()
    close(keel.pinv(b @ c), torch.linalg.pinv(b @ c))
    assert torch.autograd.gradcheck(lambda x: keel.pinv(x @ c), b)
    assert torch.autograd.gradgradcheck(lambda x: keel.pinv(x @ c), b)
    close(keel.pinv(torch.diag(torch.tensor([1.0, 0.2])), 0.5), torch.diag(torch.tensor([1.0, 0.0])))
    assert keel.pinv(torch.zeros(2, 3)).tolist() == [[0.0, 0.0]] * 3


def test_ranks():
    a = torch.stack([with_values(v, 4, 3) for v in [(2.0, 1.0, 0.1), (1.0, 1.0, 1.0), (3.0, 0.0, 0.0)]])
    for policy, expected in {
        keel.FullRank(): [3, 3, 3],
        keel.LeadingCount(2): [2, 2, 2],
        keel.LeadingCount(9): [3, 3, 3],
        keel.LeadingEnergy(0.75): [1, 3, 1],  # of squares: 4 of 5.01
        keel.LeadingEnergy(0.9): [2, 3, 1],
        keel.LeadingEnergy(1.0): [3, 3, 1],
    }.items():
        x, kept = keel.singular(a, "identity", policy, return_kept=True)
        if policy == keel.LeadingEnergy(1.0):
            kept = torch.minimum(kept, torch.tensor([3, 3, 1]))  # rounding has its say about zeros
        assert kept.tolist() == expected, policy
        close(x, keel.low_rank(a, policy))
    with pytest.raises(ValueError, match="expected rank full, leading_count or leading_energy, got leading_reliable"):
        keel.low_rank(a, keel.Algorithm1())


def test_all_of_the_energy_is_the_matrix_itself():
    a = with_values((3.0, 2.0, 0.0), 4, 3).requires_grad_()
    x, kept = keel.singular(a, "identity", keel.LeadingEnergy(1.0), return_kept=True)
    close(x, a)
    assert kept.item() == 3
    g = torch.randn_like(a)
    close(torch.autograd.grad(keel.low_rank(a, keel.LeadingEnergy(1.0)), a, g)[0], g)


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_finite_everywhere(name, spectrum, m, n):
    if "-" in name and SPECTRA[spectrum][-1] == 0:
        pytest.skip("not defined there")
    for rank in (keel.FullRank(), keel.LeadingCount(2), keel.LeadingEnergy(0.6)):
        for scale in (1.0, 1e-25, 1e25):
            a = (scale * with_values(SPECTRA[spectrum], m, n)).float().requires_grad_()
            (grad,) = torch.autograd.grad((keel.singular(a, name, rank) / 1e16).sum(), a)
            if name == "inv" and scale < 1 or name in ("power(exponent=-0.7)", "power(exponent=3.0)"):
                continue  # beyond float32
            assert grad.isfinite().all(), (rank, scale)


def test_close_values_lose_nothing():
    """Divided differences of float32 against the same in float64 at the float32 values."""
    for values in [(1.0 + 3e-7, 1.0, 0.5), (1.0, 1e-3 + 1e-9, 1e-3), (1.0, 1e-3, 1e-5)]:
        for name in ("power(exponent=0.5)", "power(exponent=-0.7)", "power(exponent=3.0)"):
            a = torch.diag(torch.tensor(values)).requires_grad_()
            b = a.detach().double().requires_grad_()
            weight = torch.randn(3, 3)
            (g,) = torch.autograd.grad(keel.singular(a, name), a, weight)
            (t,) = torch.autograd.grad(keel.singular(b, name), b, weight.double())
            close(g.double(), t, rtol=2e-5, atol=0.0)


def test_domain_and_nan():
    a = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 1.0, 0.0])), torch.eye(3)])
    result = keel.singular(a, "power(exponent=-1.0)")
    assert result[1].isnan().all() and result[[0, 2]].isfinite().all()
    a[1, 0, 0] = math.nan
    a.requires_grad_()
    result = keel.pinv(a)
    result.sum().backward()
    for tensor in (result, a.grad):
        assert tensor[1].isnan().all() and tensor[[0, 2]].isfinite().all()


def test_shapes_types_and_errors():
    for shape in [(0, 3), (3, 0), (0, 4, 3)]:
        a = torch.zeros(shape, requires_grad=True)
        keel.low_rank(a, keel.LeadingCount(1)).sum().backward()
        assert a.grad.shape == shape and keel.pinv(a).shape == a.mT.shape
    half = torch.randn(2, 4, 3).half().requires_grad_()
    result = keel.soft_threshold(half, 0.1)
    assert result.dtype == torch.half == torch.autograd.grad(result.sum(), half)[0].dtype
    assert keel.pinv(torch.empty(5, 4, 3, device="meta")).shape == (5, 3, 4)
    with pytest.raises(ValueError, match='keel::singular: expected one, identity, .* got "cos"'):
        keel.singular(torch.eye(3), "cos")
    for name in ("power", "soft_threshold"):  # without its number it would return the matrix
        with pytest.raises(ValueError, match=rf"keel.singular: expected '{name}\(.*=...\)', got '{name}'"):
            keel.singular(torch.eye(3), name)
    with pytest.raises(ValueError, match="keel.soft_threshold: expected threshold >= 0, got"):
        keel.soft_threshold(torch.eye(3), -1.0)
    with pytest.raises(RuntimeError, match=r"keel::pinv: expected \(\.\.\., m, n\), got \(3\)"):
        keel.pinv(torch.zeros(3))
