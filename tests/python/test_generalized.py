"""keel.generalized_eigh and generalized_projector, against an inverse root written in torch and differences."""

import math

import pytest
import torch

import keel
from composition_columns import func
from spectra import symmetric
from test_functions import along, generic, gradients

# B of order 4, and the eigenvalues of A x = l B x.
METRICS = {"distinct": (2.0, 1.0, 0.5, 0.3), "identity": (1.0, 1.0, 1.0, 1.0), "repeated": (2.0, 2.0, 1.0, 1.0)}
VALUES = {"distinct": (2.0, 0.7, -0.3, -1.0), "repeated": (2.0, 2.0, 2.0, -1.0)}
VALUES["clustered"] = (2 + 1e-7, 2.0, -1.0, -1.0)


def pencil(of_metric, values, dtype=torch.double):
    q, r = (torch.linalg.qr(generic(4, 4, seed=seed))[0] for seed in (1, 2))
    root = q * torch.tensor(of_metric, dtype=torch.double).sqrt() @ q.mT
    inside = r * torch.tensor(values, dtype=torch.double) @ r.mT
    return symmetric(root @ inside @ root).to(dtype), symmetric(root @ root).to(dtype)


def by_root(a, b, count):
    """X_r X_r^T by eigh and an inverse root of B, with two eigenvalues meeting only inside the sum."""
    values, vectors = torch.linalg.eigh(b)
    w = vectors / values.sqrt() @ vectors.mT
    x = w @ torch.linalg.eigh(symmetric(w @ a @ w))[1][..., -count:]
    return x @ x.mT


@pytest.mark.parametrize("rtol", [None, 1e-9])
def test_only_lower_triangles_are_read(rtol):
    a, b = pencil(METRICS["distinct"], VALUES["distinct"])
    above = torch.full_like(a, torch.nan).triu(1)
    halves = [torch.where(above.isnan(), above, x).requires_grad_() for x in (a, b)]
    wholes = [x.requires_grad_() for x in (a, b)]
    results = [keel.generalized_eigh(*pair, rtol=rtol) for pair in (halves, wholes)]
    torch.testing.assert_close(results[0], results[1])
    found, expected = (
        torch.autograd.grad((found.eigenvalues**3).sum(), pair) for found, pair in zip(results, (halves, wholes))
    )
    torch.testing.assert_close(found, expected)
    for gradient in found:
        torch.testing.assert_close(gradient, gradient.mT)


@pytest.mark.parametrize("rtol", [None, 1e-9])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("metric", METRICS)
def test_it_solves_the_equation(metric, values, descending, rtol):
    a, b = pencil(METRICS[metric], VALUES[values])
    found, x, kept = keel.generalized_eigh(a, b, rtol=rtol, descending=descending)
    expected = torch.tensor(sorted(VALUES[values], reverse=descending), dtype=torch.double)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(x.mT @ b @ x, torch.eye(4, dtype=torch.double), rtol=0, atol=1e-13)
    torch.testing.assert_close(a @ x, b @ x * found, rtol=0, atol=1e-13)
    assert kept.item() == 4


@pytest.mark.parametrize("rtol", [None, 1e-9])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("metric", METRICS)
def test_gradients_to_both_matrices_are_the_differences(metric, values, rtol):
    """Of symmetric functions of the eigenvalues, and of the span of the first eigenvectors."""
    a, b = pencil(METRICS[metric], VALUES[values])
    count = sum(value > 1 for value in VALUES[values])
    c = symmetric(generic(4, 4, seed=5))

    def of_values(a, b):
        return keel.generalized_eigh(a, b, rtol=rtol).eigenvalues.pow(3).sum()

    def of_vectors(a, b):
        x = keel.generalized_eigh(a, b, rtol=rtol, descending=True).eigenvectors[..., :count]
        return (x @ x.mT * c).sum()

    def of_span(a, b):
        return (keel.generalized_projector(a, b, count, "masked", rtol=rtol) * c).sum()

    for function in (of_values, of_vectors, of_span):
        found = gradients(function, a, b)
        for i, direction in enumerate((symmetric(generic(4, 4, seed=6)), symmetric(generic(4, 4, seed=7)))):
            moved = (lambda m: function(m, b)) if i == 0 else (lambda m: function(a, m))
            torch.testing.assert_close(found[i], found[i].mT, rtol=1e-9, atol=1e-9)
            expected = along(moved, (a, b)[i], direction)
            torch.testing.assert_close((found[i] * direction).sum(), expected, rtol=1e-7, atol=1e-7)


def test_the_projector_is_the_one_by_hand():
    a, b = pencil(METRICS["distinct"], VALUES["distinct"])
    c = symmetric(generic(4, 4, seed=5))
    for count in (1, 2, 3):
        own, by_hand = (
            gradients(lambda a, b, f=f: (f(a, b) * c).sum(), a, b)
            for f in (lambda a, b: keel.generalized_projector(a, b, count, keel.Exact(2000)),
                      lambda a, b: by_root(a, b, count))
        )  # fmt: skip
        for found, expected in zip(own, by_hand):
            torch.testing.assert_close(found, symmetric(expected))
        p = keel.generalized_projector(a, b, count)
        torch.testing.assert_close(p @ b @ p, p)


def test_a_second_derivative():
    a, b = pencil(METRICS["distinct"], VALUES["distinct"])
    k = symmetric(generic(4, 4, seed=6))

    def slope(a, b):
        return sum((g * k).sum() for g in gradients(lambda a, b: keel.generalized_eigh(a, b)[0].pow(3).sum(), a, b))

    x, y = (m.clone().requires_grad_() for m in (a, b))
    first = torch.autograd.grad(keel.generalized_eigh(x, y)[0].pow(3).sum(), [x, y], create_graph=True)
    second = torch.autograd.grad(sum((g * k).sum() for g in first), [x, y])
    torch.testing.assert_close((second[0] * k).sum(), along(lambda m: slope(m, b), a, k), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close((second[1] * k).sum(), along(lambda m: slope(a, m), b, k), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("descending", [False, True])
def test_what_b_does_not_see_is_dropped_and_counted(descending):
    """Every result and gradient is that of the pencil restricted to the span of B, where it is regular."""
    q = torch.linalg.qr(generic(5, 5))[0]
    a3, b3 = pencil((2.0, 1.0, 0.5, 0.3), (2.0, 2.0, 0.0, -1.0))
    basis = q[:, :4]
    a, b = symmetric(q @ torch.block_diag(a3, a3.new_full((1, 1), 7.0)) @ q.mT), symmetric(basis @ b3 @ basis.mT)
    values, x, kept = keel.generalized_eigh(a, b, rtol=1e-9, descending=descending)
    assert kept.item() == 4 and values[-1] == 0 and (x[:, -1] == 0).all()
    inside = keel.generalized_eigh(a3, b3, descending=descending)
    torch.testing.assert_close(values[:4], inside.eigenvalues, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(x[:, :4].mT @ b @ x[:, :4], torch.eye(4, dtype=torch.double), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        keel.generalized_projector(a, b, 2, rtol=1e-9), basis @ keel.generalized_projector(a3, b3, 2) @ basis.mT
    )
    found = gradients(lambda a, b: keel.generalized_eigh(a, b, rtol=1e-9)[0].pow(3).sum(), a, b)
    expected = gradients(lambda a, b: keel.generalized_eigh(a, b)[0].pow(3).sum(), a3, b3)
    torch.testing.assert_close(basis.mT @ found[0] @ basis, expected[0])
    torch.testing.assert_close(basis.mT @ found[1] @ basis, expected[1])
    assert keel.generalized_eigh(a, torch.zeros_like(b), rtol=1e-9).kept.item() == 0
    assert keel.generalized_eigh(a, -torch.eye(5, dtype=torch.double), rtol=1e-9).eigenvalues.eq(0).all()


def test_nearly_singular_b_costs_what_is_said():
    """Eigenvalues of the pencil stay within 100 n epsilons of norm(A) norm(B^-1), or of norm(A) / (rtol norm(B))."""
    eps = torch.finfo(torch.float).eps
    for small in (1e-2, 1e-4):
        a, b = pencil((1.0, 0.5, 0.2, small), (2.0, 1.0, -0.5, -1.0))
        for rtol in (None, small / 10):
            found = keel.generalized_eigh(a.float(), b.float(), rtol=rtol).eigenvalues.double()
            error = (found - torch.tensor([-1.0, -0.5, 1.0, 2.0], dtype=torch.double)).abs().max()
            assert error < 400 * eps * float(torch.linalg.matrix_norm(a, 2)) / (small if rtol is None else rtol)


def test_batches_types_and_errors():
    a, b = pencil(METRICS["distinct"], VALUES["distinct"])
    many = torch.stack([a, 2 * a, 3 * a])
    for options in ({}, {"rtol": 1e-9}):
        found = keel.generalized_eigh(many, b, **options)
        one = keel.generalized_eigh(2 * a, b, **options)
        torch.testing.assert_close(found.eigenvalues[1], one.eigenvalues)
        assert found.kept.tolist() == [4, 4, 4] and found.eigenvectors.shape == (3, 4, 4)
        broken = keel.generalized_eigh(many, torch.stack([b, b * math.nan, b]), **options).eigenvalues
        torch.testing.assert_close(broken[::2], found.eigenvalues[::2])
        for shape in ((0, 4, 4), (2, 0, 0)):
            empty = torch.zeros(shape, requires_grad=True)
            keel.generalized_eigh(empty, empty, **options).eigenvalues.sum().backward()
            assert keel.generalized_projector(empty, empty, 1, **options).shape == shape
        for dtype in (torch.half, torch.bfloat16):
            x = keel.generalized_eigh(a.to(dtype), b.to(dtype), **options)
            assert x.eigenvalues.dtype == x.eigenvectors.dtype == dtype
        with torch.autocast("cpu", dtype=torch.bfloat16):
            in_autocast = keel.generalized_eigh(a, b, **options).eigenvalues
        assert torch.equal(in_autocast, keel.generalized_eigh(a, b, **options).eigenvalues)
        if hasattr(torch, "compile"):  # torch 1.13 has no shapes of triangular solves
            assert keel.generalized_projector(a.to("meta"), b.to("meta"), 1, **options).shape == (4, 4)
    indefinite = keel.generalized_eigh(torch.stack([a, a]), torch.stack([b, -b]))
    assert indefinite.eigenvalues[0].isfinite().all() and indefinite.eigenvalues[1].isnan().all()
    with pytest.raises(TypeError, match=r"got a tensor; for A x = l B x there is keel.generalized_eigh\(A, B\)"):
        keel.eigh(a, b)
    with pytest.raises(ValueError, match="keel::generalized_eigh: expected 0 <= rtol < 1, got 1"):
        keel.generalized_eigh(a, b, rtol=1)
    with pytest.raises(ValueError, match="keel::generalized_eigh: expected"):
        torch.ops.keel.generalized_eigh(a, many[:, :3, :3])
    with pytest.raises(RuntimeError, match="no second derivative of a function of your own with a rank policy"):
        x = b.clone().requires_grad_()
        (g,) = torch.autograd.grad(keel.generalized_eigh(a, x, rtol=1e-9)[0].pow(3).sum(), x, create_graph=True)
        g.sum().backward()


@pytest.mark.parametrize("function", [keel.generalized_eigh, lambda a, b: keel.generalized_projector(a, b, 1)])
def test_only_batch_dimensions_broadcast(function):
    m = torch.eye(4)
    for wrong in (torch.tensor(2.0), torch.ones(4), torch.ones(4, 1), torch.ones(1, 4), torch.ones(1, 1), torch.eye(3)):
        for given in ((m, wrong), (wrong, m)):
            with pytest.raises((RuntimeError, ValueError), match=r"keel::generalized_\w+: expected (B )?\(..., n, n\)"):
                function(*given)
    with pytest.raises(ValueError, match=r"B \(..., n, n\) that broadcasts with A \(2, 4, 4\), got \(3, 4, 4\)"):
        function(m.expand(2, 4, 4), m.expand(3, 4, 4))
    assert function(m.expand(2, 1, 4, 4), m.expand(3, 4, 4))[0].shape[:2] in ((2, 3), (3, 4))
    with pytest.raises(RuntimeError, match="expected B of type float32, got float64"):
        function(m, m.double())


@pytest.mark.skipif(func is None, reason="needs functorch")
def test_it_goes_through_vmap_with_one_metric_for_all():
    a, b = pencil(METRICS["distinct"], VALUES["distinct"])
    many = torch.stack([a, 2 * a, 3 * a])
    for options in ({}, {"rtol": 1e-9}):
        def loss(a, b):
            return keel.generalized_eigh(a, b, **options).eigenvalues.pow(3).sum()

        found = func.vmap(func.grad(loss, argnums=(0, 1)), in_dims=(0, None))(many, b)
        for i in range(3):
            for one, expected in zip(found, gradients(loss, many[i], b)):
                torch.testing.assert_close(one[i], expected)
