"""Polar factors and rotations: finite differences, torch and roma's formula as peers, and degenerate matrices."""

import math

import pytest
import torch
from rectangles import SHAPES, SMOOTH, SPECTRA, differences, jacobian, plain_rotation, with_values

import keel

close = torch.testing.assert_close


def rotation(a):
    return keel.special_procrustes(a)


FUNCTIONS = {
    "procrustes": keel.procrustes,
    "positive": lambda a: keel.polar(a).positive,
    "nuclear_norm": keel.nuclear_norm,
}


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_factors_are_what_their_names_say(m, n, spectrum):
    a = with_values(SPECTRA[spectrum], m, n)
    factor, positive = keel.polar(a)
    tall = factor if m >= n else factor.mT
    close(tall.mT @ tall, torch.eye(min(m, n), dtype=torch.double))
    close(factor @ positive, a)
    close(positive, positive.mT)
    assert torch.linalg.eigvalsh(positive).min() > -1e-14
    close(keel.procrustes(a), factor)
    close(keel.nuclear_norm(a), torch.linalg.svdvals(a).sum())


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("spectrum", SMOOTH + ["small"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_agree_with_differences(name, m, n, spectrum):
    a, function = with_values(SPECTRA[spectrum], m, n), FUNCTIONS[name]
    step = 1e-5 if spectrum == "small" else 1e-3
    expected = differences(function, a, step)
    close(jacobian(function, a), expected, rtol=0, atol=1e-8 * max(1, expected.abs().max().item()))


@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("spectrum", SMOOTH + ["small", "last one zero"])
def test_rotations_and_their_gradients(spectrum, determinant):
    values = SPECTRA[spectrum]
    if determinant < 0 and values[1] - values[2] < 1e-6:
        pytest.skip("no single nearest rotation")
    a = with_values(values, 3, 3, determinant)
    r, margin = keel.special_procrustes(a, return_margin=True)
    close(r @ r.mT, torch.eye(3, dtype=torch.double))
    close(torch.det(r), torch.ones_like(margin))
    close(margin, torch.tensor(values[1] + determinant * values[2], dtype=torch.double))
    close(jacobian(rotation, a), differences(rotation, a, 1e-3), rtol=0, atol=1e-8)
    # Second derivatives: the Jacobian's own.
    x = a.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(rotation, x, eps=1e-5)


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("spectrum", SMOOTH)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_also_at_repeats(name, m, n, spectrum):
    a = with_values(SPECTRA[spectrum], m, n).requires_grad_()
    assert torch.autograd.gradgradcheck(FUNCTIONS[name], a)


def test_third_derivatives_at_repeats():
    def second(a):
        (first,) = torch.autograd.grad(keel.procrustes(a).pow(3).sum(), a, create_graph=True)
        return torch.autograd.grad(first.square().sum(), a, create_graph=True)[0]

    assert torch.autograd.gradcheck(second, with_values((2.0, 2.0, 1.0), 3, 3).requires_grad_())


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_polar_factor_of_rank_n_less_one_is_a_rotation_or_its_mirror(n):
    """Which of the two is rounding's choice. Each is smooth, and its derivative exact."""
    values = [float(n - i - 1) for i in range(n)]  # the last one is 0
    a = with_values(values, n, n)
    mirror = torch.eye(n, dtype=torch.double)
    if torch.det(keel.procrustes(a)) < 0:
        mirror[-1, -1] = -1

    def by_rotation(x):
        return rotation(x @ mirror) @ mirror

    close(keel.procrustes(a), by_rotation(a))
    close(jacobian(keel.procrustes, a), differences(by_rotation, a, 1e-3), rtol=0, atol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_the_peer_where_it_is_finite(n):
    a = torch.randn(200, n, n, dtype=torch.double, requires_grad=True)
    weight = torch.randn_like(a)
    close(rotation(a), plain_rotation(a))
    (ours,) = torch.autograd.grad(rotation(a), a, weight)
    (theirs,) = torch.autograd.grad(plain_rotation(a), a, weight)
    close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("m, n", SHAPES)
@pytest.mark.parametrize("function", [keel.procrustes, keel.special_procrustes])
def test_many_matrices_are_as_few(function, m, n):
    """Few go through the core's stage, many through torch's products."""
    if function is keel.special_procrustes and m != n:
        pytest.skip("square matrices only")
    few = [with_values(v, m, n, d) for v in SPECTRA.values() if v[1] > 0 and v[0] > v[2] for d in (1, -1)]
    if m != n:
        few = [a for a in few if torch.linalg.svdvals(a)[-1] > 1e-4]
    many = torch.stack(few * 20).requires_grad_()
    weight = torch.randn(m, n, dtype=torch.double)
    results = function(many)
    (grads,) = torch.autograd.grad((results * weight).sum(), many)
    for i, a in enumerate(few):
        a = a.requires_grad_()
        (grad,) = torch.autograd.grad((function(a) * weight).sum(), a)
        if function is keel.special_procrustes or torch.linalg.svdvals(a)[-1] > 1e-4:
            close(function(a), results[i])
            # A gradient is divided by sums of two values. Each value is known to some roundings of the largest.
            values = torch.linalg.svdvals(a.detach())
            if function is keel.special_procrustes:
                values[-1] *= torch.linalg.det(a.detach()).sign()
            smallest = (values[-2] + values[-1]).item() if m == n else values[-1].item()
            rounding = torch.finfo(torch.double).eps * values[0].item()
            # A sum within rounding of zero is a tie, whose part of the gradient is 0.
            bound = max(1e-9, 16 * rounding / smallest) if smallest > 10 * n**0.5 * rounding else 1e-9
            close(grad, grads[i], rtol=bound, atol=bound * max(1.0, grad.abs().max().item()))


def test_the_gradient_at_the_identity_is_exact():
    for dtype in (torch.float, torch.double):
        for n in (2, 3, 5):
            for function in (keel.procrustes, rotation, lambda a: rotation(a.expand(600, n, n))[0]):
                jac = jacobian(function, torch.eye(n, dtype=dtype)).reshape(n, n, n, n)
                # d(U V^T) = (dA - dA^T) / 2 at the identity.
                same = torch.einsum("ik,jl->ijkl", torch.eye(n), torch.eye(n)).to(dtype)
                close(jac, (same - same.transpose(2, 3)) / 2, rtol=0, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("angle", [0.0, 0.5, math.pi / 4, math.pi / 2, math.pi])
@pytest.mark.parametrize("scale", [1.0, 2.0, 1e-20])
def test_scaled_rotations_and_mirrors(angle, scale):
    """All singular values are equal here, and shortcuts for that case are easily wrong (warp's svd2 was)."""
    cos, sin = math.cos(angle), math.sin(angle)
    turn = torch.tensor([[cos, -sin], [sin, cos]])
    for orthogonal in (turn, turn * torch.tensor([1.0, -1.0]), -torch.eye(2)):
        a = scale * orthogonal
        close(keel.procrustes(a), orthogonal)
        u, s, vh = keel.svd(a)
        close(u * s @ vh, a, rtol=1e-6, atol=0.0 if angle in (0.5, math.pi / 4) else 1e-6 * scale)
        assert torch.det(rotation(a)).item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_ambiguous_matrices_have_bounded_gradients(dtype):
    eps = torch.finfo(dtype).eps
    cases = [torch.zeros(3, 3), torch.ones(3, 3), torch.diag(torch.tensor([1.0, 1.0, -1.0])),
             torch.diag(torch.tensor([1.0, 0.0, 0.0])), -torch.eye(3)]  # fmt: skip
    cases += [with_values((1.0, 0.5 + gap, 0.5), 3, 3, -1) for gap in (0.0, eps, 1e-5, 1e-3)]
    for case in cases:
        a = case.to(dtype).requires_grad_()
        r, margin = keel.special_procrustes(a, return_margin=True)
        close(torch.det(r), torch.ones((), dtype=dtype))
        assert not margin.requires_grad
        (grad,) = torch.autograd.grad((r * torch.randn(3, 3, dtype=dtype)).sum(), a)
        assert grad.isfinite().all()
        largest = torch.linalg.svdvals(case.double()).max().item() or 1.0
        assert grad.abs().max() < 20 / max(margin.item(), 10 * math.sqrt(3) * eps * largest)
        (second,) = torch.autograd.grad(
            torch.autograd.grad(rotation(a).sum(), a, create_graph=True)[0].sum(), a)  # fmt: skip
        assert second.isfinite().all()


def test_sizes_without_a_pair():
    assert keel.special_procrustes(torch.full((2, 1, 1), -3.0)).flatten().tolist() == [1.0, 1.0]
    _, margin = keel.special_procrustes(torch.ones(2, 1, 1), return_margin=True)
    assert margin.tolist() == [math.inf, math.inf]
    _, margin = keel.special_procrustes(torch.tensor([[[math.nan]], [[1.0]]]), return_margin=True)
    assert margin[0].isnan() and margin[1] == math.inf  # or `margin > x` would let it through
    for shape in [(0, 3, 3), (2, 0, 0), (2, 0, 3), (2, 3, 0)]:
        a = torch.zeros(shape, requires_grad=True)
        assert keel.procrustes(a).shape == shape
        keel.polar(a).positive.sum().backward()
        assert a.grad.shape == shape


def test_nan_stays_with_its_matrix():
    a = torch.stack([with_values((3.0, 2.0, 1.0), 3, 3, seed=i) for i in range(3)])
    a[1, 0, 0] = math.nan
    a.requires_grad_()
    r = rotation(a)
    r[:, 0, 1].sum().backward()
    for tensor in (r, a.grad):
        assert tensor[1].isnan().all() and tensor[[0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_half_types_and_views(dtype):
    a = torch.randn(4, 5, 3, 3, 2).select(-1, 1).transpose(0, 1).to(dtype).mT.requires_grad_()
    r = rotation(a)
    assert r.dtype == dtype and r.shape == a.shape
    close(r.float(), rotation(a.detach().float().contiguous()), rtol=0, atol=0.01)
    (grad,) = torch.autograd.grad(r.sum(), a)
    assert grad.dtype == dtype and grad.isfinite().all()
    u, h = keel.polar(a)
    assert u.dtype == h.dtype == keel.nuclear_norm(a).dtype == dtype


def test_errors_name_what_came():
    with pytest.raises(RuntimeError, match=r"keel::special_procrustes: expected \(\.\.\., n, n\), got \(2, 3\)"):
        keel.special_procrustes(torch.zeros(2, 3))
    with pytest.raises(RuntimeError, match=r"keel::polar: expected \(\.\.\., m, n\), got \(3\)"):
        keel.polar(torch.zeros(3))
    with pytest.raises(RuntimeError, match="keel::procrustes: expected float16, .* got int32"):
        keel.procrustes(torch.zeros(3, 3, dtype=torch.int))
    with pytest.raises(TypeError, match="expected return_margin to be True or False, got 1"):
        keel.special_procrustes(torch.eye(3), return_margin=1)
