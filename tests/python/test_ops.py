"""The operators as Python sees them: torch.ops.keel.*, against torch's own checkers."""

import os

import pytest

torch = pytest.importorskip("torch")
from spectra import DISTINCT, REPEATED, symmetric, with_spectrum  # noqa: E402

LIBRARY = os.environ.get("KEEL_LIBRARY")
if not LIBRARY:
    pytest.skip("KEEL_LIBRARY names no libkeel_torch.so", allow_module_level=True)
torch.ops.load_library(LIBRARY)
keel = torch.ops.keel

opcheck = getattr(torch.library, "opcheck", None)
needs_opcheck = pytest.mark.skipif(
    opcheck is None, reason=f"torch {torch.__version__} has no torch.library.opcheck"
)

FUNCTIONS = ["sqrtm", "inv_sqrtm", "invm", "logm", "expm"]


def through_eigh(rule):
    # Squares: the checkers move the matrix, and a vector's sign may turn.
    def function(m):
        values, vectors = keel.eigh(symmetric(m), rule)
        return values, vectors * vectors

    return function


@pytest.mark.parametrize("rule", ["analytic", "masked"])
def test_eigh_passes_gradcheck_and_gradgradcheck(rule):
    m = with_spectrum(*DISTINCT)
    assert torch.autograd.gradcheck(through_eigh(rule), m)
    assert torch.autograd.gradgradcheck(through_eigh(rule), m)


@pytest.mark.parametrize("rule", ["masked", "power_iteration"])
def test_autocast_leaves_the_gradient_in_its_type(rule):
    m = with_spectrum((2.0,) * 4 + (1.0,) * 4).detach().float().requires_grad_()
    generator = torch.Generator().manual_seed(1)
    weight = symmetric(torch.randn(1, 8, 8, generator=generator))

    def gradient(create_graph):
        values, vectors = keel.eigh(m, rule)
        # Blind to the basis inside an eigenspace, so that it has a gradient.
        loss = torch.einsum("bij,bj,bkj,bik->", vectors, values.square(), vectors, weight)
        return torch.autograd.grad(loss, m, create_graph=create_graph)[0].detach()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain, differentiable = gradient(False), gradient(True)
    assert torch.allclose(plain, differentiable, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", ["power_iteration", "taylor"])
def test_series_rules_pass_once_converged(rule):
    m = with_spectrum((1.0, 0.2, 0.04), (2.0, 0.3, 0.05))
    assert torch.autograd.gradcheck(through_eigh(f"{rule}(terms=25)"), m)
    assert torch.autograd.gradgradcheck(through_eigh(f"{rule}(terms=25)"), m)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("spectra", [DISTINCT, REPEATED], ids=["distinct", "repeated"])
def test_matrix_functions_pass_gradcheck_and_gradgradcheck(name, spectra):
    def function(m):
        return getattr(keel, name)(symmetric(m))

    m = with_spectrum(*spectra)
    assert torch.autograd.gradcheck(function, m)
    assert torch.autograd.gradgradcheck(function, m)


@pytest.mark.parametrize("exponent", [0.3, 3, -2])
def test_powers_pass_gradcheck_and_gradgradcheck(exponent):
    m = with_spectrum(*REPEATED)
    assert torch.autograd.gradcheck(lambda x: keel.powm(symmetric(x), exponent), m)
    assert torch.autograd.gradgradcheck(lambda x: keel.powm(symmetric(x), exponent), m)


def test_projector_passes_gradcheck_where_the_cut_is_wide():
    m = with_spectrum((2.0, 1.5, 0.1, 0.05))
    assert torch.autograd.gradcheck(
        lambda x: keel.projector(symmetric(x), "leading_count(count=2)"), m
    )


def test_defaults_keywords_and_result_shapes():
    m = with_spectrum(*DISTINCT).detach()
    values, vectors = keel.eigh(m, rule="power_iteration(terms=7)")
    assert values.shape == (2, 4) and vectors.shape == (2, 4, 4)
    result, values, vectors, rank = keel.spectral(
        m, "inv_sqrt", rank="leading_energy(fraction=0.8)"
    )
    assert result.shape == (2, 4, 4) and rank.tolist() == [3, 2]
    by_policy = keel.spectral(
        m, "inv", rank="algorithm1(eps=0.6, rayleigh_tolerance=off, energy=off)"
    )
    assert by_policy[3].tolist() == [3, 2]


def test_errors_are_python_errors_with_names():
    with pytest.raises(RuntimeError, match=r"keel::eigh: expected \(..., n, n\), got \(4, 3\)"):
        keel.eigh(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="keel::eigh: .*power_iteration.*magic"):
        keel.eigh(torch.eye(3), "magic")
    with pytest.raises(RuntimeError, match="got int64"):
        keel.sqrtm(torch.eye(3).long())
    m = with_spectrum(*DISTINCT)
    (grad,) = torch.autograd.grad(keel.sqrtm(m, "taylor").sum(), m, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivative under rule taylor "):
        grad.sum().backward()


FORWARD_MODE = {
    "eigh": lambda m: keel.eigh(m, "masked"),
    "eigh_series": lambda m: keel.eigh(m, "power_iteration(terms=40)"),
    "sqrtm": keel.sqrtm,
    "logm_by_a_rule": lambda m: keel.logm(m, "taylor(terms=60)"),
    "cut": lambda m: keel.projector(m, "leading_count(count=2)"),
    "moments": lambda m: keel.moments(m, 2),
    "cross_moments": lambda m: keel.cross_moments(m * m, m, m[0, :, 0] ** 2, 2),
    "affine": lambda m: keel.affine(m, m[:, :2, :2] ** 2, m[0, :, 0] ** 2, m[1, :, 1] ** 2),
}
for kind in ("zca", "pca_denoising", "pca_whitening"):
    text = f"{kind}(rank={'full' if kind != 'pca_denoising' else 'leading_count(count=3)'})"
    FORWARD_MODE[kind] = lambda m, map=text: keel.layer_matrix(m, map)[0]


@pytest.mark.parametrize("name", FORWARD_MODE)
def test_forward_mode_is_the_adjoint_of_backward(name):
    """<forward(along), weights> = <along, backward(weights)>, whatever the rule."""
    forward_ad = torch.autograd.forward_ad
    function = FORWARD_MODE[name]
    m = with_spectrum(*DISTINCT).detach()
    generator = torch.Generator().manual_seed(5)
    along = torch.randn(m.shape, dtype=m.dtype, generator=generator)
    with forward_ad.dual_level():
        outputs = function(forward_ad.make_dual(m, along))
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        tangents = [forward_ad.unpack_dual(output).tangent for output in outputs]
    leaf = m.clone().requires_grad_()
    outputs = function(leaf)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    weights = [torch.randn(o.shape, dtype=o.dtype, generator=generator) for o in outputs]
    (gradient,) = torch.autograd.grad(outputs, leaf, weights)
    forth = sum((t * w).sum() for t, w in zip(tangents, weights))
    torch.testing.assert_close(forth, (gradient * along).sum())
    assert forth.abs() > 0.01


def test_forward_mode_is_refused_where_there_is_none():
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.randn(6, 3), torch.ones(6, 3))
        with pytest.raises(RuntimeError, match="keel::partial_moments: no derivative"):
            keel.partial_moments(x, 1)


def test_half_types_train():
    for dtype in (torch.half, torch.bfloat16):
        m = with_spectrum(*DISTINCT).detach().to(dtype).requires_grad_()
        values, vectors = keel.eigh(m)
        (values.sum() + keel.inv_sqrtm(m).sum()).backward()
        assert values.dtype == vectors.dtype == m.grad.dtype == dtype
        assert m.grad.isfinite().all()


def opcheck_samples():
    m = with_spectrum(*DISTINCT)
    values, vectors = (x.detach() for x in keel.eigh(m))
    rank = torch.full((2,), 4)
    g = torch.randn_like(vectors)
    yield keel.eigh, (m,)
    yield keel.eigh, (m.detach().float(), "power_iteration(terms=19)")
    yield keel.eigh_backward, (values, g, values, vectors, "masked")
    yield keel.eigh_backward, (None, g, values, vectors, "taylor(terms=9)")
    yield keel.spectral, (m, "inv_sqrt")
    yield keel.spectral, (m, "one", "leading_count(count=2)")
    yield keel.spectral_backward, (g, m, values, vectors, rank, "log")
    yield keel.spectral_second_backward, (g, g.mT.contiguous(), m.detach(), values, vectors, "sqrt")
    for name in FUNCTIONS:
        yield getattr(keel, name), (m,)
    yield keel.powm, (m, 0.3)
    yield keel.projector, (m, "leading_count(count=2)")
    yield keel.eigvalsh, (m,)
    yield from opcheck_rectangles()


def opcheck_rectangles():
    a = torch.randn(2, 5, 3, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    square, g = a[:, :3].clone(), torch.ones_like(a)
    u, s, vh = keel.svd(a)
    factor, values, right = keel.procrustes_factor(a, False)
    positive = keel.polar_positive(a, factor, values, right)
    parts, wanted = keel.singular(a, "inv"), a.clone().requires_grad_()
    yield keel.svd, (wanted,)
    yield keel.svd, (a.float(), "lorentzian(width=0.0001)")
    yield keel.svd_backward, (u, s, vh, u, s, vh, "masked")
    yield keel.svd_backward, (u, None, None, u, s, vh, "taylor(terms=9)")
    yield keel.svdvals, (wanted,)
    yield keel.singular, (wanted, "power(exponent=0.5)")
    yield keel.singular, (a, "identity", "leading_energy(fraction=0.9)")
    yield keel.singular_backward, (g, a, *parts, "inv")
    yield keel.procrustes_factor, (wanted, False)
    yield keel.procrustes_backward, (g, a, factor, values, right)
    yield keel.polar_positive, (wanted, factor, values, right)
    yield keel.polar_positive_backward, (positive.clone(), a, factor, values, right)
    yield keel.positive_solve, (g, positive, values, right, False)
    yield keel.positive_solve, (square, positive, values, right, True)
    yield keel.positive_solve, (square, positive, values, right, True, True)
    yield keel.without_derivative_where, (wanted, s[:, 0] < 0, "none")
    yield keel.with_derivatives_of, (g, wanted)
    for operator in (keel.procrustes, keel.polar, keel.nuclear_norm, keel.pinv):
        yield operator, (wanted,)
    yield keel.special_procrustes, (square.clone().requires_grad_(),)
    yield keel.low_rank, (wanted, "leading_count(count=2)")
    yield keel.soft_threshold, (wanted, 0.1)
    yield keel.kabsch, (wanted, g, None, True)


@needs_opcheck
def test_operators_pass_opcheck():
    for operator, arguments in opcheck_samples():
        opcheck(operator.default, arguments)


def test_operators_neither_alias_nor_change_their_inputs():
    for operator, arguments in opcheck_samples():
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        before = [t.clone() for t in tensors]
        results = operator(*arguments)
        results = results if isinstance(results, (tuple, list)) else (results,)
        assert all(torch.equal(t, b) for t, b in zip(tensors, before)), operator
        places = {t.data_ptr() for t in tensors}
        assert not places & {r.data_ptr() for r in results}, operator
        assert len({r.data_ptr() for r in results}) == len(results), operator
