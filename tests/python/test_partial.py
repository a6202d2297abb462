"""keel.eigsh and keel.svds, judged by the full decomposition of the same matrix."""

import math

import pytest
import torch

import keel
from composition_columns import func
from support import why_no_cuda

EPS = {torch.float32: 2**-23, torch.float64: 2**-52}
N = 300  # larger than what is decomposed as a whole


def rotation(n, seed=0, dtype=torch.double):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.double, generator=generator))[0].to(dtype)


def symmetric(values, seed=0):
    q = rotation(len(values), seed)
    m = q * torch.as_tensor(values, dtype=torch.double) @ q.mT
    return (m + m.mT) / 2


def rectangular(values, m, n):
    k = len(values)
    return rotation(m, 1)[:, :k] * torch.as_tensor(values, dtype=torch.double) @ rotation(n, 2)[:, :k].mT


def decaying(n=N, power=0.7):
    return torch.arange(1, n + 1, dtype=torch.double) ** -power


def indefinite(n=N):
    return decaying(n) * torch.tensor([1.0, -0.9], dtype=torch.double).repeat(n // 2)


def chosen(values, k, which):
    key = {"LA": values, "SA": -values, "LM": values.abs()}[which]
    return values[key.argsort(descending=True)[:k]].sort()[0]


def sizes(matrix):
    return torch.linalg.eigvalsh(matrix.double()).abs().amax(-1)


def check(matrix, k, found, which, factor=40.0):
    """Values, residual and orthogonality; 40 machine epsilons are twice the smallest tolerance."""
    values, vectors = found[:2]
    size, bound = sizes(matrix), max(factor * EPS[matrix.dtype], 2e-12 if matrix.dtype == torch.double else 0)
    expected = chosen(torch.linalg.eigvalsh(matrix.double()), k, which)
    assert values.shape == (k,) and vectors.shape == (len(matrix), k)
    if which == "LM":  # the sign of the last one is open if both occur
        assert (values.double().abs().sort()[0] - expected.abs().sort()[0]).abs().max() <= bound * size
    else:
        assert (values.double() - expected).abs().max() <= bound * size
    exact = vectors.double()
    assert (matrix.double() @ exact - exact * values.double()).norm(dim=0).max() <= bound * size
    assert (exact.mT @ exact - torch.eye(k)).abs().max() <= 40 * EPS[matrix.dtype]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    assert bool((largest > 0).all())


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("which", ["LA", "SA", "LM"])
@pytest.mark.parametrize("k", [1, 5, 40, N])
def test_values_and_vectors(k, which, dtype):
    matrix = symmetric(indefinite()).to(dtype)
    found = keel.eigsh(by_products(matrix), k, which)
    assert isinstance(found, keel.Eigh)
    check(matrix, k, found, which)


def hard(n):
    return {
        "cluster at the cut": [3.0, 2.0] + [1.0] * 7 + [0.5] * (n - 9),
        "close at the cut": [3.0, 2.0] + [1.0 + 1e-9 * i for i in range(7)] + [0.5 / i for i in range(1, n - 8)],
        "rank below k": [3.0, 2.0] + [0.0] * (n - 2),
        "zero": [0.0] * n,
        "identity": [1.0] * n,
        "fast decay": [2.0**-i for i in range(n)],
        "faster decay": [100.0**-i for i in range(n)],
        "both signs alike": [1.0, -1.0] * (n // 2),
    }


HARD = hard(N)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("n", [N, 700])  # by products, and dense in narrow blocks
def test_hard_spectra(n, name, dtype):
    values = torch.tensor(hard(n)[name], dtype=torch.double)
    matrix = (torch.diag(values) if name in ("zero", "identity") else symmetric(values)).to(dtype)
    given = by_products(matrix) if n == N else matrix
    for which in ("LA", "SA", "LM") if n == N else ("LM",):
        check(matrix, 5, keel.eigsh(given, 5, which), which)
    left, values, right = keel.svds(given, 5)
    exact = torch.linalg.svdvals(matrix.double())[:5]
    size = float(exact[0])
    assert (values - exact).abs().max() <= (40 * EPS[dtype] if dtype == torch.float else 2e-12) * size
    for side in (left, right.mT):
        assert (side.mT @ side - torch.eye(5)).abs().max() <= 40 * EPS[dtype]
    assert (matrix @ right.mT - left * values).norm(dim=0).max() <= 40 * EPS[dtype] * size


@pytest.mark.parametrize("shape", [(N, N), (400, 280), (280, 400), (1000, 12), (12, 1000)])
@pytest.mark.parametrize("dtype", EPS)
def test_singular_triplets(shape, dtype):
    least = min(shape)
    matrix = rectangular(decaying(least), *shape).to(dtype)
    for k in (1, 6, least):
        found = keel.svds(by_products(matrix), k)
        assert isinstance(found, keel.Svd) and found.U.shape == (shape[0], k) and found.Vh.shape == (k, shape[1])
        bound = 40 * EPS[dtype] if dtype == torch.float else 2e-12
        assert (found.S - decaying(least)[:k]).abs().max() <= bound
        back = matrix.mT.double() @ found.U.double() - found.Vh.mT.double() * found.S.double()
        assert back.norm(dim=0).max() <= bound


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("copies", [3, 4, 5, 11])
def test_no_copy_of_a_repeated_value_is_missed(copies, dtype):
    """A narrow block holds four."""
    others = [torch.linspace(1.5, 1.0, 12), torch.linspace(0.8, -0.8, 688 - copies)]
    spectrum = torch.cat([torch.full((copies,), 2.0), *others])
    matrix = symmetric(spectrum).to(dtype)
    for k in (copies, 11):
        check(matrix, k, keel.eigsh(matrix, k, "LA"), "LA")


@pytest.mark.parametrize("which", ["LA", "SA", "LM"])
def test_scipy_agrees(which):
    scipy = pytest.importorskip("scipy.sparse.linalg")
    matrix = symmetric(indefinite(800))
    for given, k in ((matrix, 1), (matrix, 6), (matrix, 70), (sparse(2000, False).to_sparse(), 4)):
        plain = given.to_dense().numpy()
        values, vectors = scipy.eigsh(plain, k, which=which)
        ours = keel.eigsh(given, k, which)
        order = values.argsort()
        assert abs(ours[0].numpy() - values[order]).max() <= 1e-10 * abs(values).max()
        overlap = abs((vectors[:, order] * ours[1].numpy()).sum(0))
        assert overlap.min() > 1 - 1e-6
        values = scipy.svds(plain, k, return_singular_vectors=False)
        assert abs(keel.svds(given, k).S.flip(0).numpy() - sorted(values)).max() <= 1e-10 * abs(values).max()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scale(scale):
    matrix = symmetric(indefinite()).float()
    plain, scaled = keel.eigsh(matrix, 4), keel.eigsh(matrix * scale, 4)
    torch.testing.assert_close(scaled[0] / scale, plain[0], rtol=1e-5, atol=0)
    found = keel.svds(matrix * scale, 4)
    torch.testing.assert_close(found.S / scale, plain[0].abs().sort(descending=True)[0], rtol=1e-5, atol=0)
    big = (matrix * scale).requires_grad_()
    (g,) = torch.autograd.grad(keel.eigsh(big, 4)[1].pow(4).sum(), big)
    small = matrix.clone().requires_grad_()
    (h,) = torch.autograd.grad(keel.eigsh(small, 4)[1].pow(4).sum(), small)
    torch.testing.assert_close(g * scale, h, rtol=1e-2, atol=1e-4 * h.abs().max().item())


# The gradient.


def loss_of(values, vectors, weight):
    """Depends on each vector, but not on its sign."""
    return (values * torch.linspace(1, 2, len(values), dtype=values.dtype)).sum() + ((vectors**2) * weight).sum()


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("which", ["LA", "SA", "LM"])
@pytest.mark.parametrize("n", [N, 60])  # and as a whole
def test_gradient(n, which, dtype, tolerance):
    spectrum = torch.cat([torch.tensor([3.0, 2.5, 2.0, -2.2, -2.7, -3.2], dtype=torch.double),
                          torch.linspace(-1, 1, n - 6, dtype=torch.double)])  # fmt: skip
    exact = symmetric(spectrum).requires_grad_()
    k = 6 if which == "LM" else 3
    weight = torch.randn(n, k, dtype=torch.double)
    values, vectors = torch.linalg.eigh(exact)
    order = {"LA": slice(n - k, n), "SA": slice(0, k)}.get(which)
    place = torch.arange(n)[order] if order else torch.cat([torch.arange(3), torch.arange(n - 3, n)])
    (expected,) = torch.autograd.grad(loss_of(values[place], vectors[:, place], weight), exact)
    matrix = exact.detach().to(dtype).requires_grad_()
    found = keel.eigsh(matrix, k, which)
    (ours,) = torch.autograd.grad(loss_of(*found, weight.to(dtype)), matrix)
    expected = (expected + expected.mT) / 2
    assert ours.dtype == dtype and torch.equal(ours, ours.mT) or (ours - ours.mT).abs().max() < 1e-6
    assert (ours - expected).norm() / expected.norm() < tolerance


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("shape", [(N, N), (350, 280), (280, 350), (70, 50), (50, 70)])
@pytest.mark.parametrize("sides", [(1, 1, 1), (1, 0, 0), (0, 0, 1), (0, 1, 0)])
def test_singular_gradient(shape, sides, dtype, tolerance):
    least = min(shape)
    spectrum = torch.cat([torch.tensor([3.0, 2.5, 2.0], dtype=torch.double),
                          torch.linspace(1, 0, least - 3, dtype=torch.double)])  # fmt: skip
    exact = rectangular(spectrum, *shape).requires_grad_()
    weights = [torch.randn(*size, dtype=torch.double) for size in ((shape[0], 3), (3,), (3, shape[1]))]

    def loss(*parts):
        return sum(on * ((part**2) * w.to(part.dtype)).sum() for on, part, w in zip(sides, parts, weights) if on)

    u, s, vh = torch.linalg.svd(exact, full_matrices=False)
    # torch's own gradient divides by the differences of values that are not used.
    (expected,) = torch.autograd.grad(loss(u[:, :3], s[:3], vh[:3]), exact)
    matrix = exact.detach().to(dtype).requires_grad_()
    (ours,) = torch.autograd.grad(loss(*keel.svds(matrix, 3)), matrix)
    assert (ours - expected).norm() / expected.norm() < tolerance


def test_the_gradient_is_finite_differences_of_a_low_rank_matrix():
    """Also where values repeat inside what is kept."""
    spectrum = [2.0, 2.0, 1.5] + [0.5 / i for i in range(1, N - 2)]
    matrix = rectangular(spectrum, N, N)

    def approximation(a):
        u, s, vh = keel.svds(a, 3, rule=keel.Masked(1e-6))
        return (u * s @ vh)[0].sum()

    a = matrix.clone().requires_grad_()
    (ours,) = torch.autograd.grad(approximation(a), a)
    (full,) = torch.autograd.grad(keel.low_rank(a, 3)[0].sum(), a)
    # A function of singular values at equal ones: the vectors' rule leaves out the part inside the pair.
    u, _, vh = torch.linalg.svd(matrix)
    pair = [u[:, :2], vh[:2].mT]
    inside = pair[0] @ (pair[0].mT @ (full - ours) @ pair[1]) @ pair[1].mT
    assert (full - ours - inside).norm() / full.norm() < 1e-9


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("n", [N, 60])
def test_the_gradient_is_finite_everywhere(name, n):
    for dtype in EPS:
        matrix = symmetric(HARD[name][:n]).to(dtype).requires_grad_()
        for which in ("LA", "SA", "LM"):
            values, vectors = keel.eigsh(matrix, 5, which)
            (g,) = torch.autograd.grad(values.sum() + vectors.pow(4).sum(), matrix)
            assert bool(g.isfinite().all())
        (g,) = torch.autograd.grad(sum(part.pow(4).sum() for part in keel.svds(matrix, 5)), matrix)
        assert bool(g.isfinite().all())


def test_equal_values_at_the_cut_get_no_gradient_across_it():
    """As under keel.Masked, if the vectors beyond the cut are known."""
    matrix = symmetric(HARD["cluster at the cut"]).requires_grad_()
    (full,) = torch.autograd.grad(keel.eigh(matrix).eigenvalues[-5:].sum(), matrix)
    (ours,) = torch.autograd.grad(keel.eigsh(matrix, 5).eigenvalues.sum(), matrix)
    values = torch.linalg.eigvalsh
    assert (values(ours.detach()) - values(full)).abs().max() < 1e-10  # another basis of the same eigenspace
    (g,) = torch.autograd.grad(keel.eigsh(matrix, 5).eigenvectors.pow(4).sum(), matrix)
    assert g.norm() < 1e3


def test_second_derivatives_are_refused():
    matrix = symmetric(decaying()).requires_grad_()
    for operation, function in (("eigsh", keel.eigsh), ("svds", keel.svds)):
        (g,) = torch.autograd.grad(function(matrix, 3)[1].pow(2).sum(), matrix, create_graph=True)
        with pytest.raises(RuntimeError, match=f"keel::{operation}: expected one derivative"):
            g.sum().backward()


def test_a_matrix_changed_before_backward_is_an_error():
    matrix = symmetric(decaying())
    leaf = matrix.clone().requires_grad_()
    held = leaf * 1
    loss = keel.eigsh(held, 3)[0].sum()
    held.data = held.data
    with torch.no_grad():
        held += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# How matrices are given.


def sparse(n=N, leading=True):
    generator = torch.Generator().manual_seed(5)
    dense = torch.zeros(n, n, dtype=torch.double)
    for _ in range(4):
        rows = torch.randperm(n, generator=generator)
        dense[rows, rows.roll(1)] = torch.randn(n, dtype=torch.double, generator=generator)
    dense = dense + dense.mT
    if leading:
        dense[:3, :3] += torch.diag(torch.tensor([12.0, 10.0, 8.0]))
    return dense


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse(layout):
    dense = sparse().requires_grad_()
    made = dense.detach().to_sparse() if layout == "coo" else dense.detach().to_sparse_csr()
    made.requires_grad_()
    weight = torch.randn(N, 2, dtype=torch.double)
    expected, ours = keel.eigsh(dense, 2, "LA"), keel.eigsh(made, 2, "LA")
    torch.testing.assert_close(ours, expected)
    (g,) = torch.autograd.grad(loss_of(*expected, weight), dense)
    (h,) = torch.autograd.grad(loss_of(*ours, weight), made)
    assert h.layout == made.layout
    torch.testing.assert_close(h.to_dense(), g * (dense != 0), rtol=1e-8, atol=1e-10)
    (g,) = torch.autograd.grad(keel.svds(dense, 2).S.sum(), dense)
    (h,) = torch.autograd.grad(keel.svds(made, 2).S.sum(), made)
    torch.testing.assert_close(h.to_dense(), g * (dense != 0), rtol=1e-8, atol=1e-10)


def test_sparse_values_learn():
    dense = sparse()
    places = dense.nonzero().mT
    values = dense[places[0], places[1]].requires_grad_()
    matrix = torch.sparse_coo_tensor(places, values, dense.shape)
    (g,) = torch.autograd.grad(keel.eigsh(matrix, 2, "LA")[0].sum(), values)
    full = dense.requires_grad_()
    (h,) = torch.autograd.grad(torch.linalg.eigvalsh(full)[-2:].sum(), full)
    torch.testing.assert_close(g, h[places[0], places[1]], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("n", [N, 40])
def test_operators_and_their_parameters(n, adjoint):
    diagonal = (2 + decaying(n)).requires_grad_()
    factor = rotation(n)[:, :6].clone().requires_grad_()

    def apply(x):
        return diagonal[:, None] * x + 3 * factor @ (factor.mT @ x)

    dense = torch.diag(diagonal) + 3 * factor @ factor.mT
    weight = torch.randn(n, 3, dtype=torch.double)
    operator = keel.LinearOperator((n, n), apply, apply if adjoint else None, dtype=torch.double)
    values, vectors = torch.linalg.eigh(dense)
    expected = torch.autograd.grad(loss_of(values[-3:], vectors[:, -3:], weight), (diagonal, factor),
                                   retain_graph=True)  # fmt: skip
    ours = torch.autograd.grad(loss_of(*keel.eigsh(operator, 3, "LA"), weight), (diagonal, factor))
    for a, b in zip(ours, expected):
        assert (a - b).norm() / b.norm() < 1e-9
    found = keel.svds(operator, 3)  # positive definite: the same values, descending
    ours = torch.autograd.grad(loss_of(found.S, found.U, weight), (diagonal, factor))
    expected = torch.autograd.grad(loss_of(values[-3:].flip(0), vectors[:, -3:].flip(1), weight), (diagonal, factor))
    for a, b in zip(ours, expected):
        assert (a - b).norm() / b.norm() < 1e-9


# Batches, warm starts, steps.


def test_results_do_not_depend_on_the_batch():
    nan, inf = (torch.full((N, N), value, dtype=torch.double) for value in (math.nan, math.inf))
    cluster = symmetric(HARD["cluster at the cut"], 4)
    matrices = torch.stack([symmetric(decaying()), symmetric(indefinite(), 3), nan, cluster, inf])
    for function in (keel.eigsh, keel.svds):
        leaf = matrices.clone().requires_grad_()
        together = function(leaf, 4)
        (g,) = torch.autograd.grad(sum(part.pow(4).sum() for part in together), leaf)
        for i, matrix in enumerate(matrices):
            if i in (2, 4):
                assert all(bool(part[i].isnan().all()) for part in together)
                continue
            other = matrices.roll(i + 1, 0).clone()
            other[i] = matrix
            again = function(other, 4)
            assert all(torch.equal(a[i], b[i]) for a, b in zip(together, again))
            alone = matrix.clone().requires_grad_()
            found = function(alone, 4)
            (h,) = torch.autograd.grad(sum(part.pow(4).sum() for part in found), alone)
            assert bool(g[i].isfinite().all())
            if i != 3:  # there the basis is arbitrary
                torch.testing.assert_close(g[i], h, rtol=1e-6, atol=1e-7)
    for n in (3, N):
        leaf = torch.zeros(2, 0, n, n).requires_grad_()
        for found in (keel.eigsh(leaf, 2), keel.eigsh(leaf, 2, steps=4), keel.svds(leaf, 2)):
            assert [part.numel() for part in found] == [0] * len(found)
            assert torch.autograd.grad(sum(part.sum() for part in found), leaf)[0].shape == leaf.shape
        assert found.S.shape == (2, 0, 2) and found.Vh.shape == (2, 0, 2, n)


def by_products(matrix):
    """An operator, so that the matrix is never decomposed as a whole."""
    return keel.LinearOperator(matrix.shape, lambda x: matrix @ x, lambda x: matrix.mT @ x, dtype=matrix.dtype)


def counted(matrix):
    counts = [0]

    def apply(x):
        counts[0] += 1
        return matrix @ x

    return keel.LinearOperator(matrix.shape, apply, apply, dtype=matrix.dtype), counts


def test_a_warm_start_saves_products():
    matrix = symmetric(decaying())
    operator, counts = counted(matrix)
    first = keel.eigsh(operator, 4, tol=1e-8)
    cold, counts[0] = counts[0], 0
    moved, counts = counted(matrix + 1e-7 * symmetric(indefinite(), 8))
    found = keel.eigsh(moved, 4, tol=1e-8, start=first.eigenvectors)
    assert counts[0] < cold - 2
    check(moved.apply(torch.eye(N, dtype=torch.double)), 4, found, "LM", 1e8)
    keel.svds(matrix, 4, start=keel.svds(matrix, 4).Vh)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_start_of_nan_or_any_size_does_no_harm(dtype):
    matrix, huge = symmetric(indefinite()).to(dtype), torch.finfo(dtype).max
    plain = keel.eigsh(matrix, 4)
    for bad in (math.nan, math.inf, 0.0, huge, 1 / huge):
        for place in (slice(None), 0):
            start = plain.eigenvectors.clone()
            start[:, place] = bad
            check(matrix, 4, keel.eigsh(matrix, 4, start=start), "LM")
            check(matrix, 4, keel.eigsh(matrix, 4, start=start * bad), "LM")
            keel.svds(matrix, 4, start=start.mT)


def test_not_enough_steps_is_an_error_and_never_silent():
    matrix = symmetric(torch.linspace(1, 2, N).double())
    operator = counted(matrix)[0]
    with pytest.raises(RuntimeError, match="keel::eigsh: expected a residual of at most 1.0e-12 of .* within 3 steps"):
        keel.eigsh(operator, 4, maxiter=3)
    with pytest.raises(RuntimeError, match="of matrix 1 of at most"):
        keel.eigsh(torch.stack([torch.eye(N).double(), matrix]), 4, maxiter=3)
    values, vectors, residual = keel.eigsh(operator, 4, maxiter=3, return_residual=True)
    true = (matrix @ vectors - vectors * values).norm(dim=0).max() / values.max()
    torch.testing.assert_close(residual, true, rtol=0.01, atol=0)


def test_fixed_steps_return_what_they_reach():
    matrix = symmetric(decaying())
    before = 10.0
    for steps in (1, 3, 9):
        operator, counts = counted(matrix)
        *_, residual = keel.eigsh(operator, 4, steps=steps, return_residual=True)
        assert counts[0] == steps + 1 and residual < before  # and one to be sure
        before = residual / 10


def test_the_gap_at_the_cut():
    matrix = symmetric([5.0, 4.0, 3.0, -4.5] + [0.5 / i for i in range(1, N - 3)])
    for which, gap in (("LA", 2.5), ("SA", 0.0), ("LM", 2.5)):
        *_, found = keel.eigsh(matrix, {"LA": 3, "SA": 1, "LM": 4}[which], which, return_gap=True)
        if which == "SA":
            gap = 4.5
        assert abs(found - gap) < 0.05
    assert keel.svds(matrix, N, return_gap=True)[-1] == math.inf
    *_, residual, gap = keel.svds(matrix, 3, return_residual=True, return_gap=True)
    assert residual < 1e-12 and abs(gap - 1) < 1e-6


def test_half_precision_is_computed_in_float32():
    matrix = symmetric(decaying()).float()
    for dtype in (torch.half, torch.bfloat16):
        leaf = matrix.to(dtype).requires_grad_()
        values, vectors = keel.eigsh(leaf, 3)
        assert values.dtype == vectors.dtype == dtype
        torch.testing.assert_close(values, keel.eigsh(leaf.detach().float(), 3)[0].to(dtype))
        (g,) = torch.autograd.grad(vectors.float().pow(4).sum(), leaf)
        assert g.dtype == dtype and bool(g.isfinite().all())


@pytest.mark.skipif(why_no_cuda() is not None, reason=str(why_no_cuda()))
def test_on_cuda():
    """The same as on the CPU, also in a graph."""
    for dtype, bound in ((torch.float32, 2e-3), (torch.float64, 1e-9)):  # a residual over the gap, 0.017
        matrix = symmetric(indefinite()).to(dtype)
        for function in (keel.eigsh, keel.svds):
            leaves = [matrix.clone().to(device).requires_grad_() for device in ("cpu", "cuda")]
            results = [function(leaf, 4) for leaf in leaves]
            grads = [torch.autograd.grad(sum(x.pow(4).sum() for x in found), leaf)[0]
                     for found, leaf in zip(results, leaves)]  # fmt: skip
            for ours, theirs in zip((*results[1], grads[1]), (*results[0], grads[0])):
                assert (ours.cpu() - theirs).norm() <= bound * theirs.norm()
            held = matrix.cuda()

            def run(function=function, held=held):
                return function(held, 4, steps=9, return_residual=True)

            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                expected = run()
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = run()
            graph.replay()
            for ours, theirs in zip(found, expected):
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        noise = keel.svds(rectangular([3.0, 2.0, 1.0], 700, N).to("cuda", dtype), 10).S
        assert (noise >= 0).all() and (noise.diff() <= 0).all() and (noise[3:] <= 100 * EPS[dtype]).all()
        big = keel.svds(torch.randn(1500, 1400, device="cuda", dtype=dtype), 130, tol=1e-4, return_residual=True)
        assert big[-1] < 2e-4


@pytest.mark.parametrize("call, message", [
    (lambda: keel.eigsh(torch.ones(3, 4), 1), r"keel::eigsh: expected \(..., n, n\), got \(3, 4\)"),
    (lambda: keel.eigsh(torch.eye(3), 4), r"keel::eigsh: expected 1 <= k <= 3 for \(3, 3\), got 4"),
    (lambda: keel.svds(torch.eye(3), 0), r"keel.svds: expected k >= 1, got 0"),
    (lambda: keel.eigsh(torch.eye(3), 1, "BE"), r'keel.eigsh: expected which to be "LA", "SA" or "LM", got \'BE\''),
    (lambda: keel.eigsh(torch.eye(3).long(), 1), r"keel::eigsh: expected real floating point \(..., m, n\), got"),
    (lambda: keel.eigsh([[1.0]], 1), r"keel.eigsh: expected a tensor or a keel.LinearOperator, got list"),
    (lambda: keel.eigsh(torch.eye(3), 1, start=torch.ones(4, 1)), r"expected a start of .* n = 3, got \(4, 1\)"),
    (lambda: keel.eigsh(torch.eye(3), 1, start=torch.ones(3)), r"expected a start of .* n = 3, got \(3\)"),
    (lambda: keel.eigsh(torch.eye(3), 1, start=torch.ones(3, 1) * 1j), r"a start of real .* got \(3, 1\) of complex64"),
    (lambda: keel.svds(torch.eye(3), 1, start=[[1.0]]), r"keel.svds: start: expected a tensor, got list"),
    (lambda: keel.eigsh(torch.eye(3), 1, seed=1.5), r"keel.eigsh: expected seed to be a whole number, got 1.5"),
    (lambda: keel.eigsh(torch.eye(3), 1, seed=2**63), r"keel.eigsh: expected seed < 2\*\*63, got 9223372036854775808"),
    (lambda: keel.LinearOperator((3,), torch.sin), r"keel.LinearOperator: expected shape \(..., m, n\), got \(3,\)"),
    (lambda: keel.LinearOperator((3, 3.0), torch.sin), r"expected each size to be a whole number, got 3.0"),
    (lambda: keel.LinearOperator((3, 3), torch.eye(3)), r"expected apply to be a function, got Tensor"),
    (lambda: keel.LinearOperator((3, 3), torch.sin, 1), r"expected adjoint to be a function, got int"),
    (lambda: keel.LinearOperator((3, 3), torch.sin, dtype=torch.half), r"float32 or torch.float64, got torch.float16"),
    (lambda: keel.eigsh(keel.LinearOperator((3, 3), lambda x: x[:2]), 1), r"expected apply to return \(3, 3\)"),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.skipif(func is None, reason="needs functorch")
@pytest.mark.parametrize("n", [20, 100, 300])
@pytest.mark.parametrize("function", [keel.eigsh, keel.svds])
def test_func_grad(function, n):
    torch.manual_seed(n)
    matrix, weight = torch.randn(n, n, dtype=torch.double), torch.randn(n, 3, dtype=torch.double)
    matrix = matrix @ matrix.mT

    def loss(m):
        return (function(m, 3)[0 if function is keel.svds else 1].square() * weight).sum()

    leaf = matrix.clone().requires_grad_()
    torch.testing.assert_close(func.grad(loss)(matrix), torch.autograd.grad(loss(leaf), leaf)[0])
    with pytest.raises(RuntimeError, match="expected reverse mode, got forward mode"):
        func.jvp(loss, (matrix,), (matrix,))


def test_errors_that_only_the_iteration_finds():
    with pytest.raises(RuntimeError, match="keel.svds: expected apply to be made of torch's operations"):
        keel.svds(keel.LinearOperator((300, 300), lambda x: x.detach()), 2)
    with pytest.raises(RuntimeError, match=r"keel::eigsh: expected a residual .* Is the matrix symmetric\?"):
        keel.eigsh(torch.randn(300, 300, generator=torch.Generator().manual_seed(0)), 2, maxiter=20)
