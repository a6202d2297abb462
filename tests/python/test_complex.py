"""Complex matrices: decompositions against mpmath and by their residuals, gradients against finite differences, against
torch where its own are finite, and against those of real matrices, of which these are rotations."""

import itertools
import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import keel
from rectangles import SPECTRA, with_values
from spectra import with_spectrum

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
TYPES = list(REAL)
NAN = complex(math.nan, math.nan)


def random(*shape, seed=0, dtype=torch.complex128):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.complex128, generator=generator).to(DEVICE, dtype)


def hermitian(x):
    return (x + x.mH) / 2


def orthonormal(n, seed=0):
    return torch.linalg.qr(random(n, n, seed=seed))[0]


def of_values(values, seed=0):
    q = orthonormal(len(values), seed)
    return hermitian(q * torch.tensor(values, dtype=torch.double, device=DEVICE) @ q.mH)


def rectangle(values, m, n, seed=0):
    s = torch.tensor(values, dtype=torch.double, device=DEVICE)
    return orthonormal(m, seed)[:, : len(values)] * s @ orthonormal(n, seed + 1)[:, : len(values)].mH


def epsilon(tensor):
    return torch.finfo(tensor.dtype).eps


def close(found, expected, tolerance):
    """Relative to the largest entry."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


def check_phases(vectors):
    """The entry of largest magnitude, up to rounding, is real and positive in every column."""
    pivots = vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True))
    assert (pivots.imag == 0).all() and (pivots.real > 0).all()


# The decompositions.


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 7, 7), (2, 1, 3, 20, 20), (70, 70)])
def test_eigh(shape, dtype):
    m, n = hermitian(random(*shape, dtype=dtype)), shape[-1]
    values, vectors = keel.eigh(m)
    tolerance = 8 * n * epsilon(m)
    assert values.dtype == REAL[dtype] and (values.diff() >= 0).all()
    close(vectors * values.unsqueeze(-2) @ vectors.mH, m, tolerance)
    close(vectors.mH @ vectors, torch.eye(n).to(m).expand(shape), tolerance)
    check_phases(vectors)
    down = keel.eigh(m, descending=True)
    assert torch.equal(down[0], values.flip(-1)) and torch.equal(down[1], vectors.flip(-1))
    close(keel.eigvalsh(m), values, tolerance)
    assert vectors.is_contiguous() and not vectors.is_conj()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (2, 3), (4, 7, 7), (2, 3, 20, 9), (9, 20), (70, 50)])
def test_svd(shape, dtype):
    a = random(*shape, dtype=dtype)
    u, s, vh = keel.svd(a)
    k, tolerance = min(shape[-2:]), 8 * max(shape) * epsilon(a)
    assert s.dtype == REAL[dtype] and (s.diff() <= 0).all() and (s >= 0).all()
    close(u * s.unsqueeze(-2) @ vh, a, tolerance)
    for left in (u.mH @ u, vh @ vh.mH):
        close(left, torch.eye(k).to(a).expand(left.shape), tolerance)
    check_phases(u)
    assert torch.equal(keel.svdvals(a), s)


def test_clusters_have_the_values_of_mpmath():
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(50):
        for gap in (0.0, 1e-15, 1e-9, 1e-3):
            m = of_values([1.0, 1.0 + gap, 1.0 + 3 * gap, -2.0, 0.0, 1e-12]).cpu()
            exact = mpmath.eighe(mpmath.matrix(m.tolist()), eigvals_only=True)
            exact = torch.tensor(sorted(float(mpmath.re(x)) for x in exact), dtype=torch.double)
            close(keel.eigh(m.to(DEVICE))[0].cpu(), exact, 40 * epsilon(m))
            a = (m @ orthonormal(6, 5).cpu())[:, :4]
            exact = mpmath.svd_c(mpmath.matrix(a.tolist()), compute_uv=False)
            exact = torch.tensor(sorted((float(x) for x in exact), reverse=True), dtype=torch.double)
            close(keel.svdvals(a.to(DEVICE)).cpu(), exact, 40 * epsilon(m))


def test_only_one_triangle_and_the_real_diagonal_are_read():
    m = hermitian(random(3, 6, 6))
    lower = m.tril() + torch.full_like(m, NAN).triu(1)
    lower.diagonal(0, -2, -1).imag.add_(random(3, 6).real)
    for found, expected in zip(keel.eigh(lower), keel.eigh(m)):
        assert torch.equal(found, expected)
    for found, expected in zip(keel.eigh(lower.mH, UPLO="U"), keel.eigh(m)):
        assert torch.equal(found, expected)
    assert torch.equal(keel.eigvalsh(lower.mH, "U"), keel.eigvalsh(m))


@pytest.mark.parametrize("dtype", TYPES)
def test_scale(dtype):
    m, a = hermitian(random(2, 5, 5, dtype=dtype)), random(2, 5, 3, dtype=dtype)
    limits = torch.finfo(dtype)
    for power in (math.floor(math.log2(limits.max)) - 4, -60, 60, math.ceil(math.log2(limits.tiny)) - 2):
        # Both halves of a power whose whole may be out of range. Below the smallest normal number bits get lost.
        scaled = [x * 2.0 ** (power // 2) * 2.0 ** (power - power // 2) for x in (m, a)]
        tolerance = (64 if power > math.log2(limits.tiny) else 512) * epsilon(m)
        for found, before in ((keel.eigh(scaled[0]), keel.eigh(m)), (keel.svd(scaled[1])[1::-1], keel.svd(a)[1::-1])):
            back = found[0] * 2.0 ** -(power // 2) * 2.0 ** -(power - power // 2)
            close(back, before[0], tolerance)
            close(found[1], before[1], 100 * tolerance)
    tiny = torch.full((1, 1), limits.smallest_normal * epsilon(m)).to(DEVICE, dtype)
    assert torch.equal(keel.eigh(tiny)[0], tiny.real[0])


@pytest.mark.parametrize("bad", [NAN, complex(0, math.inf), complex(-math.inf, 0), complex(0, math.nan)])
def test_nan_stays_in_its_matrix(bad):
    m = hermitian(random(4, 5, 5))
    broken = m.clone()
    broken[2, 3, 1] = bad
    others = [0, 1, 3]
    for function in (keel.eigh, keel.svd, keel.polar, lambda x: [keel.eigvalsh(x), keel.expm(x), keel.pinv(x)],
                     lambda x: [keel.spectral(x, torch.sin), keel.procrustes(x), keel.projector(x, 2)]):  # fmt: skip
        for found, expected in zip(function(broken), function(m)):
            parts = torch.view_as_real(found[2]) if found.is_complex() else found[2]
            assert parts.isnan().all()
            assert torch.equal(found[others], expected[others])
    x = broken.requires_grad_()
    keel.expm(x).abs().sum().backward()
    assert x.grad[2].isnan().all() and x.grad[others].isfinite().all()


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 4, 4), (2, 0, 3, 3)])
def test_empty(shape):
    m = random(*shape).requires_grad_()
    values, vectors = keel.eigh(m)
    assert values.shape == shape[:-1] and vectors.shape == shape and values.dtype == torch.double
    for found in (keel.expm(m), keel.procrustes(m), keel.pinv(m), keel.spectral(m, torch.exp), *keel.polar(m)):
        assert found.shape == shape and found.dtype == m.dtype
        assert torch.autograd.grad(found.abs().sum(), m)[0].shape == shape
    assert keel.eigvalsh(m).shape == shape[:-1] and keel.nuclear_norm(m).shape == shape[:-2]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3, 0), (0, 4, 3)])
def test_empty_rectangles(shape):
    k = min(shape[-2:])
    u, s, vh = keel.svd(random(*shape))
    assert u.shape == (*shape[:-1], k) and s.shape == (*shape[:-2], k) and vh.shape == (*shape[:-2], k, shape[-1])
    assert keel.pinv(random(*shape)).shape == (*shape[:-2], shape[-1], shape[-2])


def test_a_matrix_does_not_depend_on_its_batch():
    m, a = hermitian(random(5, 6, 6)), random(5, 6, 4)

    def with_gradient(x):
        x = x.clone().requires_grad_()
        found = keel.expm(x) @ keel.projector(x, 2, "masked")
        return found.detach(), torch.autograd.grad(found.imag.sum(), x)[0]

    def functions(x):
        return keel.pinv(x), keel.procrustes(x), keel.singular(x, torch.sin)

    for function, x in ((keel.eigh, m), (keel.svd, a), (with_gradient, m), (functions, a)):
        for found, flipped in zip(function(x), function(x.flip(0))):
            assert torch.equal(found, flipped.flip(0))


def test_gradients_of_huge_and_tiny_matrices():
    m = of_values((1.0, 0.6, 0.2, -0.9)).to(torch.complex64)
    weights = torch.linspace(-1, 2, 16, device=DEVICE).reshape(4, 4).cos()

    def gradient(x, rule, factor=1.0):
        x = x.clone().requires_grad_()
        values, vectors = keel.eigh(x, rule)
        return torch.autograd.grad((vectors.abs().square() * weights).sum() * factor, x)[0]

    for rule, power in itertools.product(RULES, (2.0**-100, 2.0**120, 2.0**127)):
        large = 2.0**20  # so that gradients of huge matrices are normal numbers
        close(gradient(m * power, rule, large) * (power / large), gradient(m, rule), 1e-4)


def test_views_are_read_as_they_are():
    m = hermitian(random(3, 6, 6))
    for view in (m.conj(), m.mH, m.mT, m[::2], m[..., ::2, ::2], m[0].expand(2, 6, 6)):
        for found, expected in zip(keel.eigh(view), keel.eigh(view.resolve_conj().contiguous())):
            assert torch.equal(found, expected)


# Functions and gradients. Every complex matrix D M D^H, with phases D, has the functions and gradients of the real M.

RULES = ["masked", "analytic", "taylor(terms=9)", "power_iteration(terms=9)", "lorentzian(width=0.01)"]
NAMES = {
    "sqrtm": lambda m, *rule: keel.sqrtm(m, *rule),
    "inv_sqrtm": lambda m, *rule: keel.inv_sqrtm(m, *rule),
    "invm": lambda m, *rule: keel.invm(m, *rule),
    "logm": lambda m, *rule: keel.logm(m, *rule),
    "expm": lambda m, *rule: keel.expm(m, *rule),
    "powm": lambda m, *rule: keel.powm(m, 0.3, *rule),
    "by count": lambda m, *rule: keel.spectral(m, "log", keel.LeadingCount(2), *rule),
    "by energy": lambda m, *rule: keel.spectral(m, "inv_sqrt", keel.LeadingEnergy(0.8), *rule),
    "by eps": lambda m, *rule: keel.spectral(
        m, "inv", keel.LeadingReliable(eps=0.6, rayleigh_tolerance=None, energy=None), *rule
    ),
    "projector": lambda m, *rule: keel.projector(m, keel.LeadingCount(1), *rule),
}  # fmt: skip
OWN = {
    "own": lambda m: keel.spectral(m, torch.log1p),
    "own by count": lambda m: keel.spectral(m, torch.log1p, keel.LeadingCount(2)),
    "apply": lambda m: keel.eigh(m).apply(torch.log1p),
}
SINGULAR = {
    "one": lambda a: keel.singular(a, "one"),
    "square root": lambda a: keel.singular(a, "power", exponent=0.5),
    "power 1.5": lambda a: keel.singular(a, "power", exponent=1.5),
    "power 3.5": lambda a: keel.singular(a, "power", exponent=3.5),
    "pinv": lambda a: keel.pinv(a).mH,
    "pinv, rtol": lambda a: keel.pinv(a, 0.3).mH,
    "low_rank": lambda a: keel.low_rank(a, keel.LeadingCount(2)),
    "energy": lambda a: keel.low_rank(a, keel.LeadingEnergy(0.9)),
    "soft": lambda a: keel.soft_threshold(a, 0.7),
    "procrustes": keel.procrustes,
    "own": lambda a: keel.singular(a, torch.sin),
    "own by count": lambda a: keel.singular(a, torch.sin, keel.LeadingCount(2)),
}
PHASES = torch.polar(torch.ones(5, dtype=torch.double), torch.linspace(0.3, 5, 5).double()).to(DEVICE)


def phased(x):
    m, n = x.shape[-2:]
    return PHASES[:m].unsqueeze(-1) * x * (PHASES[:n] if m == n else PHASES[-n:]).conj()


def by_gradient(function, x, along):
    x = x.detach().clone().requires_grad_()
    result = function(x)
    return result.detach(), torch.autograd.grad(result, x, along)[0]


def check_phased(function, x, tolerance=1e-11):
    along = torch.linspace(-1, 2, x.numel(), dtype=torch.double, device=DEVICE).reshape(x.shape).cos()
    for found, expected in zip(by_gradient(function, phased(x), phased(along)), by_gradient(function, x, along)):
        close(found, phased(expected), tolerance)


@pytest.mark.parametrize("rule", [None, *RULES])
@pytest.mark.parametrize("name", NAMES)
def test_functions_are_those_of_the_real_matrix_under_every_rule(name, rule):
    # At repeated values the biased rules depend on the basis, and a cut through them is not unique.
    exact = rule is None and not name.startswith("by")
    for values in ((2.0, 1.3, 0.7, 0.5), (2.0, 1.0, 1.0, 0.5), (2.0, 1.0, 1.0 - 1e-7, 0.5))[: 3 if exact else 1]:
        m = with_spectrum(values, device=DEVICE).detach()
        check_phased(lambda m: NAMES[name](m, *([] if rule is None else [rule])), m)


@pytest.mark.parametrize("name", OWN)
def test_functions_of_your_own_are_those_of_the_real_matrix(name):
    for values in ((2.0, 1.3, 0.7, 0.5), (1.0, 1.0, 0.7, 0.7), (1.0, 1.0, 1.0, 1.0))[: 2 if "count" in name else 3]:
        check_phased(OWN[name], with_spectrum(values, device=DEVICE).detach())


def is_unique(name, spectrum):
    """Whether the function has one answer there, and one gradient."""
    if SPECTRA[spectrum][-1] == 0 and name in ("own", "own by count", "square root", "power 1.5", "one", "procrustes"):
        return False
    cuts = name in ("low_rank", "own by count", "energy", "pinv, rtol")
    return not cuts or spectrum not in ("equal", "last two equal", "clustered", "rank one")


@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
def test_functions_of_singular_values_are_those_of_the_real_matrix(shape, name):
    for spectrum in SPECTRA:
        if is_unique(name, spectrum):
            check_phased(SINGULAR[name], with_values(SPECTRA[spectrum], *shape).to(DEVICE), 1e-8)


@pytest.mark.parametrize("rule", RULES)
def test_decompositions_have_the_gradients_of_the_real_matrix_under_every_rule(rule):
    def of_eigh(m):
        values, vectors = keel.eigh(m, rule, descending=True)
        return (vectors.abs().square() * weights(vectors.real)).sum() + (values * values.sin()).sum()

    def of_svd(a):
        u, s, vh = keel.svd(a, rule)
        sides = (x.abs().square() * weights(x.real) for x in (u, vh))
        return sum(side.sum() for side in sides) + (s * s.sin()).sum()

    def weights(like):
        return torch.linspace(-1, 2, like.numel(), dtype=torch.double, device=DEVICE).reshape(like.shape).cos()

    m = with_spectrum((2.0, -1.3, 0.7, 0.2), (3.0, 1.0, 0.5, -2.5), device=DEVICE).detach()
    rectangles = [with_values((3.0, 2.0, 0.5), *shape).to(DEVICE) for shape in [(3, 3), (5, 3), (3, 5)]]
    for loss, x in [(of_eigh, m)] + [(of_svd, a) for a in rectangles]:
        real = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(real), real)
        moved = phased(x).requires_grad_()
        (found,) = torch.autograd.grad(loss(moved), moved)
        close(found, phased(expected), 1e-11)


# Against finite differences, first and second, in reverse and forward mode.

POINTS = {
    "distinct": (3.0, 2.0, 1.0, 0.5),
    "equal": (1.5, 1.5, 1.5, 1.5),
    "two equal": (3.0, 1.0, 1.0, 0.5),
    "clustered": (3.0, 1.0 + 1e-7, 1.0, 1.0 - 1e-7),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", [*list(NAMES)[:6], "own", "apply"])
def test_functions_by_differences(name, point):
    x = of_values(POINTS[point]).requires_grad_()
    function = {**NAMES, **OWN}[name]
    assert gradcheck(lambda x: function(hermitian(x)), x, check_forward_ad=True, fast_mode=name != "sqrtm")
    assert gradgradcheck(lambda x: function(hermitian(x)), x, fast_mode=name != "sqrtm", atol=1e-4)


@pytest.mark.parametrize("point", [name for name in SPECTRA if SPECTRA[name][-1] > 0])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
def test_singular_functions_by_differences(shape, point):
    a = rectangle(SPECTRA[point], *shape).requires_grad_()
    if point != "small":
        for name in ("pinv", "procrustes", "power 1.5", "power 3.5", "own"):
            assert gradcheck(SINGULAR[name], a, check_forward_ad=True, fast_mode=True), name
            assert gradgradcheck(SINGULAR[name], a, fast_mode=True, atol=1e-4), name
    for function in (keel.polar, keel.nuclear_norm, lambda a: keel.singular(a, "one")):
        assert gradcheck(function, a, check_forward_ad=True, fast_mode=True, atol=1e-4)
        if point != "small":
            assert gradgradcheck(function, a, fast_mode=True, atol=1e-4)


def by_mpmath(mpmath, f, m):
    """V f(l) V^H of the Hermitian m."""
    values, vectors = mpmath.eighe(m)
    return vectors * mpmath.diag([f(value) for value in values]) * vectors.transpose_conj()


def of_gram(mpmath, f, a):
    """U f(S) V^H of a matrix of full column rank."""
    return a * by_mpmath(mpmath, lambda square: f(mpmath.sqrt(square)) / mpmath.sqrt(square), a.transpose_conj() * a)


MPMATH = {
    "sqrtm": (keel.sqrtm, by_mpmath, "sqrt"),
    "logm": (keel.logm, by_mpmath, "log"),
    "expm": (keel.expm, by_mpmath, "exp"),
    "own": (lambda m: keel.spectral(m, torch.sin), by_mpmath, "sin"),
    "procrustes": (keel.procrustes, of_gram, lambda s: 1),
    "singular": (lambda a: keel.singular(a, torch.sin), of_gram, "sin"),
    "pinv": (lambda a: keel.pinv(a).mH, of_gram, lambda s: 1 / s),
}


@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-11, 1e-7, 1e-3])
@pytest.mark.parametrize("name", MPMATH)
def test_gradients_at_clusters_are_those_of_mpmath(name, gap):
    mpmath = pytest.importorskip("mpmath")
    function, truth, f = MPMATH[name]
    values = [2.0, 1.0 + 2 * gap, 1.0 + gap, 1.0]
    x = of_values(values) if truth is by_mpmath else rectangle(values, 5, 4)
    along, weights = random(*x.shape, seed=1), random(*x.shape, seed=2)
    if truth is by_mpmath:
        along = hermitian(along)
    _, found = by_gradient(function, x, weights)
    with mpmath.workdps(80):
        f = getattr(mpmath, f) if isinstance(f, str) else f
        at, to, step = mpmath.matrix(x.tolist()), mpmath.matrix(along.tolist()), mpmath.mpf(10) ** -25
        slope = (truth(mpmath, f, at + step * to) - truth(mpmath, f, at - step * to)) / (2 * step)
        exact = sum(mpmath.re(mpmath.conj(w) * s) for w, s in zip(mpmath.matrix(weights.tolist()), slope))
    size = found.norm() * along.norm()
    assert abs((found.conj() * along).real.sum().item() - float(exact)) <= 1e-13 * size


def phase_free(values, vectors):
    """All of a pair that has a derivative, without the phases."""
    weights = torch.linspace(1, 2, vectors.shape[-1], dtype=torch.double, device=DEVICE)
    return values.sin(), vectors.abs().square(), vectors * weights @ vectors.mH


def both_sides(u, s, vh):
    weights = torch.linspace(1, 2, s.shape[-1], dtype=torch.double, device=DEVICE)
    return s.sin(), u * weights @ vh, u * weights @ u.mH, vh.mH * weights @ vh, u.abs().square()


def test_decompositions_by_differences():
    x = random(4, 4, seed=3).requires_grad_()
    for rule in ("masked", "analytic"):
        assert gradcheck(lambda x: phase_free(*keel.eigh(hermitian(x), rule)), x, check_forward_ad=True)
        assert gradgradcheck(lambda x: phase_free(*keel.eigh(hermitian(x), rule)), x)
    assert gradgradcheck(lambda x: keel.eigvalsh(hermitian(x)), x)
    for shape in [(3, 3), (5, 3), (3, 5)]:
        a = random(*shape, seed=4).requires_grad_()
        assert gradcheck(lambda a: both_sides(*keel.svd(a)), a, check_forward_ad=True)
        assert gradgradcheck(lambda a: both_sides(*keel.svd(a)), a)


@pytest.mark.parametrize("rule", RULES)
def test_forward_mode_is_the_adjoint_of_backward_mode(rule):
    """Under every rule, and for losses that see phases too."""
    forward = torch.autograd.forward_ad
    m, a = hermitian(random(4, 4)), random(5, 3)
    for decompose, x in ((lambda m: keel.eigh(m, rule), m), (lambda a: keel.svd(a, rule), a)):
        along = hermitian(random(4, 4, seed=1)) if x.shape[0] == 4 else random(5, 3, seed=1)
        y = x.clone().requires_grad_()
        results = decompose(y)
        weights = [torch.randn_like(result) for result in results]
        (gradient,) = torch.autograd.grad(results, y, weights)
        with forward.dual_level():
            tangents = [forward.unpack_dual(dual).tangent for dual in decompose(forward.make_dual(x, along))]
        there = (gradient.conj() * along).real.sum()
        back = sum((weight.conj() * tangent).real.sum() for weight, tangent in zip(weights, tangents))
        assert abs(there - back) <= 1e-12 * gradient.norm() * along.norm()


def test_gradients_are_torchs_where_torch_has_them():
    x = random(2, 5, 5, seed=6).requires_grad_()
    w = random(2, 5, 5, seed=7)

    def loss(values, vectors):
        return (w * (vectors * values.exp().unsqueeze(-2) @ vectors.mH)).sum().abs() + vectors.abs().pow(3).sum()

    (found,) = torch.autograd.grad(loss(*keel.eigh(hermitian(x))), x)
    (expected,) = torch.autograd.grad(loss(*torch.linalg.eigh(hermitian(x))), x)
    close(found, expected, 1e-11)


def test_learnable_exponent():
    x, p = random(4, 4, seed=3).requires_grad_(), torch.tensor(0.3, dtype=torch.double, device=DEVICE).requires_grad_()
    eye = torch.eye(4).to(x)
    assert gradcheck(lambda x, p: keel.spectral(x @ x.mH + eye, lambda values: values**p), (x, p))
    assert gradgradcheck(lambda x, p: keel.spectral(x @ x.mH + eye, lambda values: values**p), (x, p))
    with pytest.raises(ValueError, match="expected a function of your own to have real values, got torch.complex128"):
        keel.spectral(hermitian(x), lambda values: torch.exp(1j * values))


# Repeated eigenvalues under the default rule: a loss of the eigenspace as a whole.


def sign(m):
    """Newton and Schulz: smooth, and exact from the first step on where all eigenvalues are 1 or -1."""
    for _ in range(4):
        m = m @ (3 * torch.eye(m.shape[-1]).to(m) - m @ m) / 2
    return m


@pytest.mark.parametrize("point", [(-1.0, -1.0, 1.0, 1.0), (-1.0, -1.0, -1.0, 1.0)])
def test_an_eigenspace_has_exact_second_derivatives(point):
    count, x = sum(value > 0 for value in point), of_values(point)
    w, direction = random(4, 4, seed=9), hermitian(random(4, 4, seed=8))

    def projector(m):
        vectors = keel.eigh(m)[1][:, -count:]
        return vectors @ vectors.mH

    def twice(projector):
        m = x.clone().requires_grad_()
        loss = (w * projector(hermitian(m))).sum().abs().square() + (w.conj() * projector(hermitian(m))).real.sum()
        (g,) = torch.autograd.grad(loss, m, create_graph=True)
        return g.detach(), torch.autograd.grad((g * direction.conj()).real.sum(), m)[0]

    for found, expected in zip(twice(projector), twice(lambda m: (sign(m) + torch.eye(4).to(m)) / 2)):
        close(found, expected, 1e-12)


def test_symmetric_functions_of_equal_values_have_second_derivatives():
    m, direction = of_values((1.0, 1.0, 3.0)).requires_grad_(), hermitian(random(3, 3, seed=8))
    eye = torch.eye(3).to(m)

    def twice(loss):
        (g,) = torch.autograd.grad(loss, m, create_graph=True)
        return torch.autograd.grad((g * direction.conj()).real.sum(), m)[0]

    found = twice((keel.eigvalsh(hermitian(m)) - 0.5).prod())
    close(found, twice(torch.linalg.det(hermitian(m) - 0.5 * eye).real), 1e-12)


@pytest.mark.parametrize("part", ["real", "imag"])
def test_losses_of_a_basis_have_no_second_derivative(part):
    m = of_values((1.0, 1.0, 3.0)).requires_grad_()
    w = random(3, 3, seed=5)

    def loss(vectors):  # turns with the basis; in one case by complex rotations alone
        one, other = vectors[:, :1], vectors[:, 1:2]
        inside = (one.mH @ w @ other) * (other.mH @ w.mH @ one) if part == "real" else (one.mH @ hermitian(w) @ one)
        return inside.real.sum()

    (g,) = torch.autograd.grad(loss(keel.eigh(hermitian(m))[1]), m, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative under rule masked"):
        g.abs().sum().backward()


# The phase.


def test_the_gradient_does_not_see_the_phase():
    """A loss that does not depend on the phases, of vectors with other phases, has the same gradient; and what a loss
    gains from turning them adds nothing."""
    x, a = random(4, 4, seed=2).requires_grad_(), random(5, 3, seed=2).requires_grad_()
    turn, w = torch.polar(torch.ones(4).double(), torch.arange(4).double()).to(DEVICE), random(4, 4, seed=1)

    def loss(vectors):
        return (w @ vectors).abs().pow(3).sum()

    def angle(vectors):
        return (vectors * torch.tensor(1j, device=DEVICE)).detach().conj()

    def gradient_of(loss, x):
        return torch.autograd.grad(loss, x)[0]

    plain = gradient_of(loss(keel.eigh(hermitian(x))[1]), x)
    close(gradient_of(loss(keel.eigh(hermitian(x))[1] * turn), x), plain, 1e-12)
    vectors = keel.eigh(hermitian(x))[1]
    close(gradient_of(loss(vectors) + (vectors * angle(vectors)).real.sum(), x), plain, 1e-12)
    u, s, vh = keel.svd(a)
    plain = gradient_of((w[:3, :3] @ vh).abs().pow(3).sum() + (u * s @ vh).abs().sum(), a)
    u, s, vh = keel.svd(a)
    moved = (w[:3, :3] @ vh).abs().pow(3).sum() + (u * s @ vh).abs().sum()
    moved = moved + (u * angle(u)).real.sum() + (vh.mH * angle(vh.mH)).real.sum()
    close(gradient_of(moved, a), plain, 1e-12)


class Watched(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("dtype", TYPES)
def test_watch_says_what_share_of_a_gradient_turns_phases(dtype):
    def phase(function, x):
        with keel.watch(Watched(function)) as seen:
            function(x.clone().requires_grad_()).sum().backward()
        (finding,) = seen.findings()
        assert (finding.phase is not None and finding.phase > 1e-3) == ("phases of" in finding.advice)
        return finding.phase

    m, a = hermitian(random(2, 4, 4, dtype=dtype)), random(2, 5, 3, dtype=dtype)
    rounding = 100 * epsilon(m)
    assert phase(lambda m: keel.eigh(m)[1].abs().pow(3), m) < rounding
    assert phase(lambda a: keel.svd(a)[0].abs().pow(3), a) < rounding
    assert phase(lambda a: (lambda u, s, vh: (u @ vh).real)(*keel.svd(a)), a) < rounding  # each side alone is not
    assert phase(lambda m: keel.eigh(m)[0], m) is None and phase(keel.svdvals, a) is None
    # sum_i Im(v_i^H v_i i) over one column of unit length: all of the gradient turns the phase.
    assert phase(lambda m: keel.eigh(m)[1][..., :1].detach().mul(1j).conj().mul(keel.eigh(m)[1][..., :1]).real, m) == (
        pytest.approx(1, abs=1e-4)
    )
    assert phase(lambda a: keel.svd(a)[2].imag, a) > 0.05


# Two matrices.


def test_generalized_eigh():
    a, b = hermitian(random(3, 4, 4)), random(3, 4, 4, seed=1)
    b = b @ b.mH + torch.eye(4).to(b)
    values, vectors, kept = keel.generalized_eigh(a.tril(), b.tril())
    assert values.dtype == torch.double and kept.tolist() == [4, 4, 4]
    close(a @ vectors, b @ vectors * values.unsqueeze(-2), 1e-13)
    close(vectors.mH @ b @ vectors, torch.eye(4).to(b).expand(3, 4, 4), 1e-13)
    x, y = random(4, 4, seed=2).requires_grad_(), random(4, 4, seed=3).requires_grad_()

    def metric(y):
        return y @ y.mH + torch.eye(4).to(y)

    def both(x, y, **options):
        return phase_free(*keel.generalized_eigh(hermitian(x), metric(y), **options)[:2])

    assert gradcheck(both, (x, y), check_forward_ad=True) and gradgradcheck(both, (x, y), fast_mode=True)
    assert gradcheck(lambda x, y: both(x, y, rtol=1e-9), (x, y))
    assert gradcheck(lambda x, y: keel.generalized_projector(hermitian(x), metric(y), 2, "masked"), (x, y))


def test_directions_that_the_second_matrix_does_not_see_are_dropped():
    a, b = hermitian(random(4, 4)), random(4, 3, seed=1)
    values, vectors, kept = keel.generalized_eigh(a, b @ b.mH, rtol=1e-9)
    assert kept == 3 and values[3] == 0 and (vectors[:, 3] == 0).all()
    close(vectors[:, :3].mH @ b @ b.mH @ vectors[:, :3], torch.eye(3).to(b), 1e-12)
    close(vectors[:, :3].mH @ a @ vectors[:, :3], torch.diag(values[:3]).to(b), 1e-12)
    assert keel.generalized_eigh(a, b @ b.mH - torch.eye(4).to(b))[0].isnan().all()


# Transforms.


def test_vmap_and_nested_gradients():
    func = torch.func if hasattr(torch, "func") else pytest.importorskip("functorch")
    m, a = of_values((3.0, 2.0, 1.0, 0.5)).expand(3, 4, 4) * 1.0, random(3, 4, 3)
    m = m * torch.tensor([1.0, 2.0, 0.5], device=DEVICE)[:, None, None]
    for function, x in ((keel.expm, m), (keel.eigvalsh, m), (lambda m: keel.spectral(m, torch.sin), m), (keel.pinv, a),
                        (keel.procrustes, a), (keel.svdvals, a)):  # fmt: skip
        def loss(x, function=function):
            return function(x).abs().pow(3).sum()

        torch.testing.assert_close(func.vmap(function)(x), function(x))
        y = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(loss(y), y, create_graph=True)
        torch.testing.assert_close(func.vmap(func.grad(loss))(x), g.detach())
        (second,) = torch.autograd.grad(g.abs().square().sum(), y)
        nested = func.grad(lambda x, loss=loss: func.grad(loss)(x).abs().square().sum())
        torch.testing.assert_close(nested(x), second)


def test_meta_tensors_have_the_shapes_and_types():
    m, a = random(2, 4, 4), random(2, 5, 3)
    cases = [(keel.eigh, m), (keel.svd, a), (keel.polar, a),
             (lambda m: [keel.eigvalsh(m), keel.expm(m), keel.projector(m, 2)], m),
             (lambda a: [keel.pinv(a), keel.nuclear_norm(a), keel.procrustes(a)], a)]  # fmt: skip
    for function, x in cases:
        for found, meta in zip(function(x), function(x.to("meta"))):
            assert (found.shape, found.dtype, found.stride()) == (meta.shape, meta.dtype, meta.stride())


# What is missing says so.


def test_what_is_real_alone_says_so():
    z = hermitian(random(3, 3))
    calls = {
        "special_procrustes": lambda: keel.special_procrustes(z),
        "kabsch": lambda: keel.kabsch(z, z),
        "moments": lambda: torch.ops.keel.moments(z),
        "layer_matrix": lambda: torch.ops.keel.layer_matrix(z, "zca"),
    }
    for name, call in calls.items():
        with pytest.raises((RuntimeError, TypeError), match=f"keel::{name}: expected .*; it has no complex version"):
            call()
    for name, call in (("eigsh", lambda: keel.eigsh(z, 1)), ("svds", lambda: keel.svds(z, 1))):
        with pytest.raises((TypeError, ValueError, RuntimeError), match=f"keel.{name}: .*complex"):
            call()
    for name, arguments in (("spectral", (z, "one")), ("projector", (z,)), ("generalized_projector", (z, z))):
        with pytest.raises(ValueError, match=f"keel::{name}: expected a rank policy without rayleigh_tolerance"):
            getattr(keel, name)(*arguments, keel.LeadingReliable())
    with pytest.raises(RuntimeError, match="keel::eigh: expected .* complex64 or complex128, got int32"):
        keel.eigh(torch.eye(2, dtype=torch.int))
