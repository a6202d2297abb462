"""Function transforms: nested ones differentiate again, or say that they cannot."""

import pytest
import torch

import keel

functorch = torch.func if hasattr(torch, "func") else pytest.importorskip("functorch")

DISTINCT, REPEATED = (2.0, 1.3, 0.7, 0.2), (2.0, 1.0, 1.0, 0.5)


def with_spectrum(values):
    q = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.double))[0]
    m = q * torch.tensor(values, dtype=torch.double) @ q.mT
    return (m + m.mT) / 2


def through_eigh(m):
    values, vectors = keel.eigh(m, descending=True)
    leading = vectors[:, :1] @ vectors[:, :1].mT
    return (leading * weights(m)).sum() + values.pow(3).sum()


def weights(m):
    n = m.shape[-1]
    return torch.linspace(-1, 2, n * n, dtype=m.dtype).reshape(n, n).cos()


LOSSES = {
    name: lambda m, f=getattr(keel, name): (f(m) * weights(m)).sum()
    for name in ("sqrtm", "inv_sqrtm", "invm", "logm", "expm")
}
LOSSES["powm"] = lambda m: (keel.powm(m, 0.3) * weights(m)).sum()
LOSSES["eigh"] = through_eigh
for name in ("procrustes", "special_procrustes", "pinv"):
    LOSSES[name] = lambda m, f=getattr(keel, name): (f(m) * weights(m)).sum()
LOSSES["polar"] = lambda m: (keel.polar(m).positive * weights(m)).sum()
LOSSES["singular"] = lambda m: (keel.singular(m, "power(exponent=0.3)") * weights(m)).sum()
LOSSES["moments"] = lambda x: (torch.ops.keel.moments(x)[1].pow(3) * weights(x)).sum()
LOSSES["affine"] = lambda m: (
    torch.ops.keel.affine(m, (m * m).unsqueeze(0), m[0], m[1]).pow(3) * weights(m)
).sum()


def second(loss, m, direction):
    """By two backward passes."""
    x = m.clone().requires_grad_()
    (g,) = torch.autograd.grad(loss(x), x, create_graph=True)
    return torch.autograd.grad((g * direction).sum(), x)[0]


def test_nested_gradients_of_a_number():
    def loss(x):
        return keel.expm(x.reshape(1, 1)).sum()

    x = torch.tensor(0.5, dtype=torch.double)
    for order in (1, 2):
        loss = functorch.grad(loss)
        torch.testing.assert_close(loss(x), x.exp(), msg=f"derivative {order}")
    with pytest.raises(RuntimeError, match="keel::spectral: no third derivative of exp"):
        functorch.grad(loss)(x)


@pytest.mark.parametrize("spectrum", [DISTINCT, REPEATED], ids=["distinct", "repeated"])
@pytest.mark.parametrize("name", LOSSES)
def test_nested_gradients_are_those_of_two_backward_passes(name, spectrum):
    m, direction = with_spectrum(spectrum), with_spectrum(DISTINCT)
    loss = LOSSES[name]
    expected = second(loss, m, direction)
    assert expected.abs().max() > 0.01

    nested = functorch.grad(lambda x: (functorch.grad(loss)(x) * direction).sum())(m)
    torch.testing.assert_close(nested, expected)
    twice = functorch.jacrev(functorch.jacrev(loss))
    if name == "eigh" and spectrum is REPEATED:
        with pytest.raises(RuntimeError, match="no second derivative at repeated .*functorch.vjp"):
            twice(m)
    else:
        torch.testing.assert_close((twice(m) * direction[..., None, None]).sum((0, 1)), expected)


def test_transforms_that_do_not_differentiate_twice_work_as_ever():
    batch = torch.stack([with_spectrum(DISTINCT), with_spectrum(REPEATED)])
    for loss in (LOSSES["logm"], through_eigh):
        one_by_one = torch.stack([second_free(loss, m) for m in batch])
        torch.testing.assert_close(functorch.vmap(functorch.grad(loss))(batch), one_by_one)
        torch.testing.assert_close(functorch.grad(loss)(batch[0]), one_by_one[0])
        values = torch.stack([loss(m) for m in batch])
        torch.testing.assert_close(functorch.vmap(loss)(batch), values)


def second_free(loss, m):
    x = m.clone().requires_grad_()
    return torch.autograd.grad(loss(x), x)[0]


@pytest.mark.parametrize("name", LOSSES)
def test_forward_mode_under_vmap_has_the_numbers_of_the_backward_pass(name):
    """Two layers of vmap, one of which does not map over the matrices."""
    batch = torch.stack([with_spectrum(DISTINCT), with_spectrum(DISTINCT)])
    loss = LOSSES[name]
    backward = torch.stack([second_free(loss, m) for m in batch])
    torch.testing.assert_close(functorch.vmap(functorch.jacfwd(loss))(batch), backward)
    torch.testing.assert_close(functorch.vmap(functorch.jacrev(loss))(batch), backward)


@pytest.mark.parametrize("m, n", [(3, 3), (5, 3), (3, 5)])
def test_forward_mode_of_matrices_of_any_shape(m, n):
    a = torch.randn(m, n, dtype=torch.double, requires_grad=True)

    def vectors(a):
        u, s, vh = keel.svd(a)
        return u.square(), s, vh.square(), u.sum(-2) * vh.sum(-1)

    for function in (vectors, keel.polar, keel.pinv, lambda a: keel.low_rank(a, keel.LeadingCount(2)),
                     lambda a: keel.soft_threshold(a, 0.5)):  # fmt: skip
        assert torch.autograd.gradcheck(function, a, check_forward_ad=True)
    for function in (vectors, keel.polar, lambda a: keel.singular(a, "power(exponent=0.5)")):
        assert torch.autograd.gradgradcheck(function, a, check_fwd_over_rev=True, atol=1e-4, rtol=1e-3)


def test_nested_gradients_of_a_layer_are_refused():
    x = torch.randn(9, 3, dtype=torch.double)

    def loss(x):
        output = torch.ops.keel.whiten_forward(x, None, None, 1, "pca_whitening")[0]
        return output.pow(3).sum()

    assert functorch.grad(loss)(x).abs().max() > 0.01
    with pytest.raises(RuntimeError, match="keel::whiten: no second derivative"):
        functorch.grad(lambda x: functorch.grad(loss)(x).pow(2).sum())(x)


def test_no_grad_inside_a_transform_stays_one():
    def loss(m):
        with torch.no_grad():
            return keel.expm(m).sum()

    m = with_spectrum(DISTINCT)
    assert not functorch.grad(loss)(m).any()
    assert not functorch.grad(lambda m: functorch.grad(loss)(m).sum())(m).any()


def rebuilt(m):
    values, vectors = keel.eigh(m)
    return (vectors * values.log() @ vectors.mT * weights(m)).sum()


def derivative(loss, order):
    """Of the loss, along one direction."""
    direction = torch.diag(torch.tensor(DISTINCT, dtype=torch.double)) + 0.3
    for _ in range(order):
        loss = lambda m, inner=loss: (functorch.grad(inner)(m) * direction).sum()  # noqa: E731
    return loss


def test_second_derivatives_that_are_not_there_are_an_error_or_nan():
    distinct, repeated = with_spectrum(DISTINCT), with_spectrum(REPEATED)
    second = derivative(rebuilt, 2)
    with pytest.raises(RuntimeError, match="keel::eigh: no second derivative under rule masked"):
        second(repeated)

    for vmapped in (functorch.vmap(second), lambda x: functorch.vmap(functorch.vmap(second))(x[None])[0]):
        found = vmapped(torch.stack([distinct, repeated, distinct]))
        torch.testing.assert_close(found[[0, 2]], second(distinct).expand(2))
        assert found[1].isnan()


def twice_decomposed(m):
    """det(M - I) at M = I, of two decompositions."""
    return (keel.eigvalsh(m)[0] - 1) * (keel.eigvalsh(m)[1] - 1)


def test_losses_of_two_decompositions_are_an_error_or_nan():
    direction = torch.diag(torch.tensor(DISTINCT, dtype=torch.double))[:2, :2] + 0.3
    second = lambda m: (  # noqa: E731
        functorch.grad(lambda x: (functorch.grad(twice_decomposed)(x) * direction).sum())(m)).sum()  # fmt: skip
    one, distinct = torch.eye(2, dtype=torch.double), with_spectrum((1.5, 0.7))
    with pytest.raises(RuntimeError, match="keel::eigh: no second derivative under rule masked"):
        second(one)
    found = functorch.vmap(second)(torch.stack([distinct, one]))
    torch.testing.assert_close(found[0], direction.diagonal().sum() - 2 * 0.3)
    assert found[1].isnan()
    with pytest.raises(RuntimeError, match="keel::eigh: no second derivative"):
        functorch.jvp(functorch.grad(twice_decomposed), (one,), (direction,))


def test_second_derivatives_that_are_there_survive_vmap():
    batch = torch.stack([with_spectrum(DISTINCT), with_spectrum(REPEATED)])
    one_by_one = torch.stack([derivative(through_eigh, 2)(m) for m in batch])
    assert one_by_one.abs().min() > 0.01
    torch.testing.assert_close(functorch.vmap(derivative(through_eigh, 2))(batch), one_by_one)


def test_hessians_under_vmap_are_right_or_nan():
    hessian = functorch.jacrev(functorch.jacrev(through_eigh))
    distinct, repeated = with_spectrum(DISTINCT), with_spectrum(REPEATED)
    found = functorch.vmap(hessian)(torch.stack([distinct, repeated]))
    torch.testing.assert_close(found[0], hessian(distinct))
    assert found[1].isnan().any()


@pytest.mark.parametrize("loss", [through_eigh, rebuilt])
@pytest.mark.parametrize("order", [3, 4])
def test_higher_derivatives_under_vmap_are_right_or_nan(order, loss):
    distinct, repeated = with_spectrum(DISTINCT), with_spectrum(REPEATED)
    found = functorch.vmap(derivative(loss, order))(torch.stack([distinct, repeated]))
    torch.testing.assert_close(found[0], derivative(loss, order)(distinct))
    assert found[1].isnan()
    with pytest.raises(RuntimeError, match="keel::eigh: no (second|third) derivative"):
        derivative(loss, order)(repeated)


def test_hessians_agree_whichever_way_they_are_built():
    m = with_spectrum(DISTINCT)
    for loss in LOSSES.values():
        expected = functorch.jacrev(functorch.jacrev(loss))(m)
        for outer, inner in (
            (functorch.jacfwd, functorch.jacrev),
            (functorch.jacrev, functorch.jacfwd),
            (functorch.jacfwd, functorch.jacfwd),
        ):
            torch.testing.assert_close(outer(inner(loss))(m), expected)


@pytest.mark.parametrize("rule", ["exact", "analytic", "power_iteration", "taylor", "lorentzian", "masked"])
@pytest.mark.parametrize("map", ["zca", "pca_denoising", "pca_whitening"])
def test_forward_mode_of_a_layer_whose_eigenvalues_are_below_its_eps(map, rule):
    # The last four are raised to eps, and two of them are equal.
    q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.double))[0]
    m, along = torch.zeros(6, 6, dtype=torch.double), with_spectrum((2.0, 1.3, 0.7, 0.2, 0.1, 0.4))
    m[:4, :4] = q * torch.tensor((2.0, 1.3, -1e-6, -3e-6)) @ q.mT
    m[4:, 4:] = -1e-5 * torch.eye(2)
    for kept in (2, 3):
        def loss(x):
            text = f"{map}(rank=leading_count(count={kept}))"
            return (torch.ops.keel.layer_matrix(x, text, rule)[0] * weights(x)).sum()

        gradient, (_, forth) = functorch.grad(loss)(m), functorch.jvp(loss, (m,), (along,))
        assert gradient.isfinite().all()
        torch.testing.assert_close(forth, (gradient * along).sum(), rtol=1e-8, atol=1e-8 * gradient.abs().max().item())


def test_forward_mode_at_repeated_eigenvalues():
    m, along = with_spectrum(REPEATED), with_spectrum(DISTINCT)
    for loss in LOSSES.values():
        _, forth = functorch.jvp(loss, (m,), (along,))
        torch.testing.assert_close(forth, (functorch.grad(loss)(m) * along).sum())


def test_second_derivatives_of_eigh_in_forward_mode_are_right_or_an_error_or_nan():
    distinct, repeated = with_spectrum(DISTINCT), with_spectrum(REPEATED)

    def forth(loss):
        return lambda m: functorch.jvp(loss, (m,), (weights(m) + weights(m).mT,))[1]

    for second in (
        forth(forth(through_eigh)),
        lambda m: forth(functorch.grad(through_eigh))(m).sum(),
        lambda m: functorch.grad(forth(through_eigh))(m).sum(),
    ):
        right = second(distinct)
        with pytest.raises(RuntimeError, match="no second derivative in forward mode under rule masked"):
            second(repeated)
        found = functorch.vmap(second)(torch.stack([distinct, repeated]))
        torch.testing.assert_close(found[0], right)
        assert found[1].isnan()


def test_forward_over_reverse_without_functorch():
    fwd = torch.autograd.forward_ad
    distinct, repeated, along = with_spectrum(DISTINCT), with_spectrum(REPEATED), with_spectrum(DISTINCT)

    def product(loss, m):
        x = m.clone().requires_grad_()
        with fwd.dual_level():
            (g,) = torch.autograd.grad(loss(fwd.make_dual(x, along)), x)
            return fwd.unpack_dual(g).tangent

    for name, loss in LOSSES.items():
        torch.testing.assert_close(product(loss, distinct), second(loss, distinct, along), msg=name)
    with pytest.raises(RuntimeError, match="no second derivative in forward mode"):
        product(through_eigh, repeated)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_vmap_over_any_dimension(dim):
    batch = torch.stack([with_spectrum(DISTINCT) for _ in range(3)], dim)
    for loss in LOSSES.values():
        for function in (loss, functorch.grad(loss)):
            one_by_one = torch.stack([function(m) for m in batch.unbind(dim)])
            torch.testing.assert_close(functorch.vmap(function, in_dims=dim)(batch), one_by_one)


def test_vmap_is_one_call(recwarn):
    """Each operator has a rule of its own; torch would warn of one that is called entry by entry."""
    batch = torch.stack([with_spectrum(DISTINCT) for _ in range(3)])
    for loss in LOSSES.values():
        functorch.vmap(functorch.jacrev(functorch.jacrev(loss)))(batch)
    assert not [w for w in recwarn if "batching rule" in str(w.message)]
