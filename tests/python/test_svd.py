"""keel.svd: torch as the peer where it is finite, finite differences, rules, and degenerate matrices."""

import math

import pytest
import torch
from rectangles import SHAPES, SPECTRA, differences, jacobian, with_values

import keel

close = torch.testing.assert_close
RULES = [keel.Masked(), keel.Analytic(), keel.PowerIteration(900), keel.Taylor(900),
         keel.Lorentzian(1e-9)]  # fmt: skip


def seen(u, s, vh):
    """Functions of a decomposition that do not see the signs of its vectors."""
    return torch.cat([(u.sum(-2) * vh.sum(-1)).flatten(), s.flatten(), u.square().flatten(),
                      vh.square().flatten()])  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (1, 5), (5, 1), (1, 1), (2, 3, 4, 3)])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_gradients_are_torchs(shape, rule):
    a = torch.randn(shape, dtype=torch.double, requires_grad=True)
    ours, theirs = keel.svd(a, rule), torch.linalg.svd(a, full_matrices=False)
    assert isinstance(ours, keel.Svd)
    close(ours.U * ours.S.unsqueeze(-2) @ ours.Vh, a)
    close(seen(*ours), seen(*theirs))
    weight = torch.randn_like(seen(*ours))
    (g,) = torch.autograd.grad(seen(*ours), a, weight)
    (t,) = torch.autograd.grad(seen(*theirs), a, weight)
    close(g, t, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("output", range(3))
@pytest.mark.parametrize("m, n", SHAPES)
def test_each_output_alone(m, n, output):
    a = with_values((3.0, 2.0, 0.5), m, n).requires_grad_()
    weight = torch.randn_like(keel.svd(a)[output])

    def loss(outputs):
        return (outputs[output].square() * weight).sum()

    (g,) = torch.autograd.grad(loss(keel.svd(a)), a)
    (t,) = torch.autograd.grad(loss(torch.linalg.svd(a, full_matrices=False)), a)
    close(g, t)


@pytest.mark.parametrize("m, n", SHAPES)
def test_second_derivatives(m, n):
    a = with_values((3.0, 2.0, 0.5), m, n).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda a: seen(*keel.svd(a)), a)


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("count", [1, 2])
def test_a_truncated_decomposition_has_the_whole_gradient(m, n, count):
    """Dropped values and what lies beside U and V take part in the gradient of what is kept."""
    a = with_values((3.0, 2.0, 1.5), m, n)

    def kept(a):
        u, s, vh = keel.svd(a)
        u, s, vh = u[:, :count], s[:count], vh[:count]
        return torch.cat([(u @ u.mT).flatten(), (vh.mT @ vh).flatten(), (u * s @ vh).flatten(), s])

    close(jacobian(kept, a), differences(kept, a, 1e-3), rtol=0, atol=1e-8)


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("rule", [keel.Masked(), keel.PowerIteration(), keel.Taylor(), keel.Lorentzian()],
                         ids=str)  # fmt: skip
def test_rules_are_bounded_everywhere(rule, spectrum, m, n):
    a = with_values(SPECTRA[spectrum], m, n).requires_grad_()
    (grad,) = torch.autograd.grad(seen(*keel.svd(a, rule)).sum(), a)
    assert grad.isfinite().all()


@pytest.mark.parametrize("m, n", [*SHAPES, (40, 20), (17, 70)])
@pytest.mark.parametrize("rule", [keel.Masked(), keel.Analytic(), keel.PowerIteration(), keel.Taylor(3),
                                  keel.Lorentzian(1e-2)], ids=str)  # fmt: skip
def test_the_core_computes_the_formula(rule, m, n):
    """Without a graph the core computes what otherwise the differentiable formula does; also at zeros and repeats."""
    k = min(m, n)
    repeats = [torch.ones(k), torch.arange(k).clamp_max(1.0), torch.zeros(k)]  # the textbook's are inf or NaN there
    for values in [torch.rand(k)] + repeats * (rule != keel.Analytic()):
        s = values.double().sort(descending=True).values.expand(2, k)
        u, v = (torch.linalg.qr(torch.randn(2, rows, k, dtype=torch.double)).Q for rows in (m, n))
        grads = [torch.randn_like(u), torch.randn_like(s), torch.randn_like(v.mT)]
        for given in [(1, 1, 1), (1, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 1), (0, 1, 1)]:
            some = [g if use else None for g, use in zip(grads, given)]
            core = torch.ops.keel.svd_backward(*some, u, s, v.mT, str(rule))
            formula = torch.ops.keel.svd_backward(*some, u.clone().requires_grad_(), s, v.mT, str(rule))
            close(core, formula.detach(), rtol=1e-12, atol=1e-12)


def test_one_zero_is_no_pole_of_a_square_matrix():
    """Only sums of two values are divided by there: also the textbook rule has a gradient."""
    a = torch.diag(torch.tensor([3.0, 1.0, 0.0], dtype=torch.double)).requires_grad_()
    u, _, vh = keel.svd(a, keel.Analytic())
    (grad,) = torch.autograd.grad((u @ vh)[0, 1], a)
    close(grad[0, 1], torch.tensor(0.25, dtype=torch.double))
    assert grad.isfinite().all()


@pytest.mark.parametrize("scale", [1e-37, 1e37])
def test_gradients_at_the_ends_of_the_range(scale):
    a = (scale * with_values((2.0, 1.0, 0.5), 3, 3)).float().requires_grad_()
    b = with_values((2.0, 1.0, 0.5), 3, 3).requires_grad_()
    weight = torch.randn(3, 3)
    for function in (keel.procrustes, lambda x: keel.svd(x).U.square()):
        (g,) = torch.autograd.grad(function(a), a, weight)
        (t,) = torch.autograd.grad(function(b), b, weight.double())
        close(g.double() * scale, t, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spectrum", ["equal", "first two equal", "clustered"])
def test_the_masked_rule_is_exact_for_the_polar_factor(spectrum):
    a = with_values(SPECTRA[spectrum], 3, 3)

    def factor(a):
        u, _, vh = keel.svd(a, keel.Masked(1e-6))
        return u @ vh

    close(jacobian(factor, a), jacobian(keel.procrustes, a), rtol=0, atol=1e-8)


def test_second_derivatives_that_are_not_there_are_named():
    cases = torch.eye(3), torch.diag(torch.tensor([2.0, 1.0, 0.0])), torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    for a in cases:
        a.requires_grad_()
        (first,) = torch.autograd.grad(seen(*keel.svd(a)).sum(), a, create_graph=True)
        assert first.isfinite().all()  # with the graph asked for and not used, all is well
        with pytest.raises(RuntimeError, match="keel::svd: no second derivative .* repeat or vanish"):
            first.sum().backward()


def test_torchs_own_call_works():
    a = torch.randn(5, 3)
    ours, theirs = keel.svd(a, full_matrices=False), torch.linalg.svd(a, full_matrices=False)
    close(ours.S, theirs.S)
    assert [x.shape for x in ours] == [x.shape for x in theirs]


def test_singular_values_alone():
    for shape in [(4, 3), (2, 40, 30), (9, 5, 5), (30, 300)]:  # without a gradient, the CPU computes no vectors
        a = torch.randn(shape)
        with torch.no_grad():
            close(keel.svdvals(a), keel.svd(a).S)
            close(keel.nuclear_norm(a), keel.svd(a).S.sum(-1))
    a = with_values((2.0, 2.0, 1.0), 4, 3).requires_grad_()
    values = keel.svdvals(a)
    close(values, torch.linalg.svdvals(a))
    (grad,) = torch.autograd.grad(values.sum(), a)
    close(grad, keel.procrustes(a.detach()))


def test_shapes_types_and_views():
    for shape in [(0, 3), (3, 0), (2, 0, 0), (0, 4, 3)]:
        a = torch.zeros(shape, requires_grad=True)
        u, s, vh = keel.svd(a)
        k = min(shape[-2:])
        assert u.shape == (*shape[:-1], k) and s.shape == (*shape[:-2], k)
        assert vh.shape == (*shape[:-2], k, shape[-1])
        (u.sum() + s.sum() + vh.sum()).backward()
        assert a.grad.shape == shape
    a = torch.randn(2, 3, 5, 4)
    close(keel.svd(a.mT).S, keel.svd(a.mT.contiguous()).S)
    close(keel.svd(a.transpose(0, 1)).S, keel.svd(a).S.transpose(0, 1))
    for dtype in (torch.half, torch.bfloat16):
        half = a.to(dtype).requires_grad_()
        u, s, vh = keel.svd(half)
        assert u.dtype == s.dtype == vh.dtype == dtype
        assert torch.autograd.grad(s.sum() + u.square().sum(), half)[0].dtype == dtype
    meta = keel.svd(torch.empty(7, 5, 3, device="meta"))
    assert [tuple(t.shape) for t in meta] == [(7, 5, 3), (7, 3), (7, 3, 3)]


def test_nan_stays_with_its_matrix():
    a = torch.randn(3, 4, 3)
    a[1, 0, 0] = math.inf
    a.requires_grad_()
    outputs = keel.svd(a)
    sum(x.square().sum() for x in outputs).backward()
    for tensor in (*outputs, a.grad):
        assert tensor[1].isnan().all() and tensor[[0, 2]].isfinite().all()


@pytest.mark.parametrize("rule", ["masked", "power_iteration"])
def test_autocast_leaves_the_gradient_in_its_type(rule):
    a = torch.randn(5, 6, 4, requires_grad=True)

    def gradients():
        r = keel.special_procrustes(a[:, :4]).sum() + keel.polar(a).positive.sum()
        loss = seen(*keel.svd(a, rule)).sum() + r
        return torch.autograd.grad(loss, a, create_graph=True)[0], torch.autograd.grad(loss, a)[0]

    plain = gradients()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = gradients()
    for a_, b in zip(plain, mixed):
        close(a_, b, rtol=1e-4, atol=1e-3)


def test_errors_name_what_came():
    with pytest.raises(RuntimeError, match=r"keel::svd: expected \(\.\.\., m, n\), got \(3\)"):
        keel.svd(torch.zeros(3))
    with pytest.raises(ValueError, match="keel::svd: expected analytic, .* got \"sharp\""):
        keel.svd(torch.zeros(3, 2), "sharp")
    with pytest.raises(TypeError, match="keel.svd: expected rule to be one of"):
        keel.svd(torch.zeros(3, 2), 3)
