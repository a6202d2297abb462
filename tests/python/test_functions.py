"""Functions of one's own: keel.spectral, keel.singular and Eigh.apply with a callable."""

import copy
import pickle

import pytest
import torch

import keel
from composition_columns import func
from rectangles import with_values
from spectra import symmetric, with_spectrum

NAMED = {
    "sqrt": torch.sqrt,
    "inv_sqrt": torch.rsqrt,
    "inv": torch.reciprocal,
    "log": torch.log,
    "exp": torch.exp,
    "power(exponent=0.3)": lambda x: x**0.3,
}
GAPS = [10 ** (-k / 2) for k in range(29)]
SPECTRA = [(3.0, 2.0, 1.0, 0.5), (1.0, 1.0, 1.0, 1.0), (2.0, 2.0, 1.0, 1.0), (1.0, 1e-3, 1.001e-3, 1e-6)]
SPECTRA += [(2 + gap, 2.0, 1 + gap, 1.0) for gap in (1e-3, 1e-5, 1e-8, 1e-11)]


def generic(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def along(function, x, direction, step=1e-4):
    """The derivative of a function along a direction, by differences of fourth order."""
    ahead, far = (function(x + s * step * direction) - function(x - s * step * direction) for s in (1, 2))
    return (8 * ahead - far) / (12 * step)


def gradients(function, *inputs):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*inputs), inputs)


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", NAMED)
def test_they_are_what_the_named_functions_are(name):
    """The named functions are held to 113-bit arithmetic. Measured: first derivatives 1e-14, second ones 5e-11."""
    c, k = generic(4, 4), generic(4, 4, seed=1)

    def derivatives(function, m):
        g = torch.autograd.grad((function(m) * c).sum(), m, create_graph=True)[0]
        return g, torch.autograd.grad((g * k).sum(), m)[0]

    for m in with_spectrum(*SPECTRA):
        expected, found = (derivatives(lambda m, f=f: keel.spectral(m, f), m) for f in (name, NAMED[name]))
        torch.testing.assert_close(keel.spectral(m, NAMED[name]), keel.spectral(m, name), rtol=1e-13, atol=1e-14)
        assert relative(found[0], expected[0]) < 1e-12
        assert relative(found[1], expected[1]) < 1e-8


@pytest.mark.parametrize("dtype", [torch.double, torch.float])
@pytest.mark.parametrize("sharpness", [0.1, 1.0, 100.0])
def test_divided_differences_keep_their_bound_at_every_gap(sharpness, dtype):
    """(1.5 N)^(4/5) (max f^(5) / 720)^(1/5), where N bounds the rounding of f(x) - f(y): docs/mathematics.md. The exact
    quotient of a sigmoid s has another form, (s(x) - s(y)) / (x - y) = expm1(x - y) / (x - y) s(y) s(-x)."""
    eps = torch.finfo(dtype).eps
    values = torch.tensor([[1 + gap, 1.0] for gap in GAPS], dtype=dtype)
    factors = torch.autograd.grad(
        keel.spectral(m := torch.diag_embed(values).requires_grad_(), lambda x: torch.sigmoid(sharpness * (x - 1))),
        m,
        torch.ones_like(m),
    )[0][:, 0, 1]
    x, y = (sharpness * (values.double() - 1)).unbind(-1)
    u = torch.where(x == y, 1.0, x - y)
    exact = sharpness * torch.where(x == y, 1.0, torch.expm1(u) / u) * torch.sigmoid(y) * torch.sigmoid(-x)
    noise = 4 * eps * (1 + sharpness / 2)
    bound = (1.5 * noise) ** 0.8 * sharpness * (0.25 / 720) ** 0.2
    assert ((factors - exact).abs() < bound + 8 * eps * exact).all()


@pytest.mark.parametrize("spectrum", [(3.0, 2.0, 1.0, 0.5), (1.0, 1.0, 1.0, 1.0), (2.0, 2.0, 1.001, 1.0)])
def test_parameters_learn_and_everything_has_two_derivatives(spectrum):
    (m,) = with_spectrum(spectrum).detach()
    p, d = torch.tensor([0.7, 1.3], dtype=torch.double), torch.tensor([1.0, 2.0], dtype=torch.double)
    c, k = generic(4, 4), symmetric(generic(4, 4, seed=1))

    def loss(m, p):
        return (keel.spectral(m, lambda x: x ** p[0] * torch.sigmoid(p[1] * x)) * c).sum()

    def by_matrix(m, p):
        return (gradients(loss, m, p)[0] * k).sum()

    def by_parameters(m, p):
        return gradients(loss, m, p)[1] @ d

    of_m, of_p = (x.clone().requires_grad_() for x in (m, p))
    first = torch.autograd.grad(loss(of_m, of_p), [of_m, of_p], create_graph=True)
    sums = (first[0] * k).sum(), first[1] @ d
    second = [torch.autograd.grad(s, [of_m, of_p], retain_graph=True) for s in sums]
    for found, function in ((sums, loss), (second[0], by_matrix), (second[1], by_parameters)):
        expected = along(lambda x: function(x, p), m, k), along(lambda x: function(m, x), p, d)
        in_m = found[0] if found[0].dim() == 0 else (found[0] * k).sum()
        in_p = found[1] if found[1].dim() == 0 else found[1] @ d
        torch.testing.assert_close(torch.stack([in_m, in_p]), torch.stack(expected), rtol=1e-8, atol=1e-8)
    if func is None:
        return
    hessian = func.hessian(loss, argnums=(0, 1))(m, p)  # forward over reverse mode
    torch.testing.assert_close((hessian[0][0] * k).sum((-1, -2)), second[0][0])
    torch.testing.assert_close(hessian[1][1] @ d, second[1][1])
    torch.testing.assert_close((hessian[1][0] * k).sum((-1, -2)) @ d, (second[1][0] * k).sum())
    torch.testing.assert_close((hessian[0][1] @ d * k).sum(), (second[1][0] * k).sum())
    batch = func.vmap(func.grad(loss, argnums=(0, 1)))(torch.stack([m, 2 * m]), torch.stack([p, p + 1]))
    for i, arguments in enumerate(((m, p), (2 * m, p + 1))):
        for found, expected in zip(batch, gradients(loss, *arguments)):
            torch.testing.assert_close(found[i], expected)


def test_a_third_derivative_is_an_error():
    m = torch.eye(2, dtype=torch.double, requires_grad=True)
    g = m
    with pytest.raises(RuntimeError, match="keel::spectral: no third derivative of a function of your own"):
        for _ in range(3):
            (g,) = torch.autograd.grad((keel.spectral(m, torch.exp) if g is m else g).sum(), m, create_graph=True)


@pytest.mark.parametrize("rank", [1, 2, keel.LeadingEnergy(0.9), keel.FullRank()])
def test_ranks_are_those_of_the_named_functions(rank):
    m = with_spectrum((3.0, 2.0, 0.5, 0.1), (1.0, 1.0, 1e-9, 0.0), (2.0, 1.0, -1.0, -3.0))
    c = generic(4, 4)
    full = isinstance(rank, keel.FullRank)
    for name, f in (("exp", torch.exp), ("inv_sqrt", torch.rsqrt)):
        part = m[:1] if full and name != "exp" else m if name == "exp" else m[:2]
        expected, found = (keel.spectral(part, g, rank, return_kept=True) for g in (name, f))
        assert torch.equal(found[1], expected[1])
        torch.testing.assert_close(found[0], expected[0])
        a, b = (torch.autograd.grad((x * c).sum(), m, retain_graph=True)[0] for x in (found[0], expected[0]))
        torch.testing.assert_close(a, b)
    if not full:
        (g,) = torch.autograd.grad(found[0].sum(), m, create_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative of a function of your own with a rank policy"):
            g.sum().backward()


def test_what_is_dropped_is_not_seen():
    p = torch.tensor(0.5, requires_grad=True)
    x = keel.spectral(torch.diag(torch.tensor([4.0, 1.0, 0.0])), lambda x: x**-p, 2)
    x.trace().backward()
    torch.testing.assert_close(p.grad, -torch.tensor(2.0).log())
    assert keel.spectral(-torch.eye(2), torch.log).isnan().all()


def test_types_shapes_and_errors():
    for dtype in (torch.half, torch.bfloat16):
        m = (torch.eye(3) * 4).to(dtype).requires_grad_()
        for root in (keel.spectral(m, torch.sqrt), keel.singular(m, torch.sqrt), keel.eigh(m).apply(torch.sqrt)):
            assert root.dtype == dtype
            torch.testing.assert_close(torch.autograd.grad(root.diagonal().sum(), m)[0], torch.eye(3).to(dtype) / 4)
    for shape in ((2, 0, 3, 3), (0, 0), (2, 0, 0)):
        m = torch.zeros(shape, requires_grad=True)
        assert keel.spectral(m, torch.exp).shape == keel.singular(m, torch.sin).shape == shape
        keel.spectral(m, torch.exp).sum().backward()
        keel.singular(m, torch.sin).sum().backward()
    with torch.inference_mode():
        torch.testing.assert_close(keel.spectral(torch.eye(2), torch.exp), torch.eye(2) * torch.tensor(1.0).exp())
    m = torch.eye(2)
    for operation in (keel.spectral, keel.singular):
        with pytest.raises(ValueError, match=r"expected a function of your own .* \(2,\) to \(2,\), got \(\)"):
            operation(m, lambda x: x.sum())
        with pytest.raises(TypeError, match="expected a function of your own .* it raised TypeError: .*positional"):
            operation(m, lambda: m)
        with pytest.raises(KeyError):  # not a mistake about tensors
            operation(m, lambda x: {}[0])
        with pytest.raises(ValueError, match="expected an exponent only with 'power'"):
            operation(m, torch.exp, exponent=2)
        for given, got in (([[1.0]], "got list"), (m.to_sparse(), "got torch.sparse_coo")):
            with pytest.raises(TypeError, match=rf"keel.{operation.__name__}: expected a (dense )?tensor, {got}"):
                operation(given, torch.exp)
    with pytest.raises(ValueError, match="expected rule keel.Exact for a function of your own, got taylor"):
        keel.spectral(m, torch.exp, rule="taylor")
    with pytest.raises(TypeError, match="torch.fx cannot trace a function of your own"):
        torch.fx.symbolic_trace(lambda m: keel.spectral(m, torch.exp))


def test_a_function_of_all_eigenvalues_is_no_function_of_each():
    def shares(x):
        return x / x.sum(-1, keepdim=True)

    def cut(x):  # f' is infinite at 0 and 0 * inf is NaN, which is no dependence on another value
        return torch.where(x > 0, x.sqrt(), torch.zeros_like(x))

    m = torch.diag(torch.tensor([3.0, 2.0, 0.0], dtype=torch.double))
    torch.testing.assert_close(keel.spectral(m, shares), m / 5)  # without a gradient there is nothing to be wrong
    weight = torch.tensor(2.0, requires_grad=True)
    keel.spectral(m, lambda x: weight * shares(x)).trace().backward()
    assert weight.grad == 1
    m.requires_grad_()
    for operation in (keel.spectral, keel.singular, lambda m, f: keel.eigh(m).apply(f)):
        with pytest.raises(ValueError, match="expected a function of your own to map each eigenvalue by itself"):
            operation(m, shares)
        assert operation(m, cut).isfinite().all()
    total = m.diagonal().sum()
    g = torch.autograd.grad(keel.spectral(m, lambda x: x / total)[0, 0], m)[0]
    torch.testing.assert_close(g.diagonal(), torch.tensor([2.0, -3.0, -3.0], dtype=torch.double) / 25)


SINGULAR = [(3.0, 2.0, 1.0), (2.0, 2.0, 1.0), (1.0, 1.0, 1.0), (2.0, 2.0, 0.0), (2.0, 0.0, 0.0)]


@pytest.mark.parametrize("values", SINGULAR)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3)])
def test_functions_of_singular_values_have_two_derivatives(shape, values):
    a, c, k = with_values(values, *shape), generic(*shape), generic(*shape, seed=1)
    p, d = torch.tensor([0.7, 1.3], dtype=torch.double), torch.tensor([1.0, 2.0], dtype=torch.double)

    def loss(a, p):
        return (keel.singular(a, lambda s: torch.tanh(p[0] * s) * (1 + p[1] * s * s)) * c).sum()

    def directional(a, p, which):
        g = gradients(loss, a, p)
        return (g[0] * k).sum() if which == 0 else g[1] @ d

    first = gradients(loss, a, p)
    expected = along(lambda x: loss(x, p), a, k), along(lambda x: loss(a, x), p, d)
    found = (first[0] * k).sum(), first[1] @ d
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-8, atol=1e-8)
    inputs = [a.clone().requires_grad_(), p.clone().requires_grad_()]
    g = torch.autograd.grad(loss(*inputs), inputs, create_graph=True)
    for which, sum in enumerate(((g[0] * k).sum(), g[1] @ d)):
        if values[-1] == 0:
            with pytest.raises(RuntimeError, match="no second derivative of a function of your own where .* vanish"):
                torch.autograd.grad(sum, inputs, retain_graph=True)
            continue
        second = torch.autograd.grad(sum, inputs, retain_graph=True)
        expected = along(lambda x: directional(x, p, which), a, k), along(lambda x: directional(a, x, which), p, d)
        found = (second[0] * k).sum(), second[1] @ d
        torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-7, atol=1e-7)


def test_functions_of_singular_values_are_what_the_named_ones_are():
    for shape in ((5, 3), (3, 5), (3, 3)):
        a, c = with_values((3.0, 1.0, 0.2), *shape).requires_grad_(), generic(*shape)
        for rank in (keel.FullRank(), 1, 2, keel.LeadingEnergy(0.95)):
            named, own = (
                keel.singular(a, f, rank, return_kept=True)
                for f in ("soft_threshold(threshold=0.5)", lambda s: (s - 0.5).clamp_min(0))
            )
            assert torch.equal(named[1], own[1])
            x, y = (torch.autograd.grad((r[0] * c).sum(), a)[0] for r in (named, own))
            torch.testing.assert_close(own[0], named[0])
            torch.testing.assert_close(y, x)


# The pair that keel.eigh returns.


def test_a_function_of_a_pair_is_wrong_by_hand_and_right_by_apply():
    """At M = I the loss d^T f(M) d has the gradient f'(1) d d^T. Through l and V all but its diagonal is lost."""
    d = torch.tensor([1.0, -2.0, 0.5], dtype=torch.double)
    expected = -torch.outer(d, d)
    m = torch.eye(3, dtype=torch.double, requires_grad=True)
    l, V = keel.eigh(m)
    (by_hand,) = torch.autograd.grad(d @ (V * l.reciprocal() @ V.mT) @ d, m)
    torch.testing.assert_close(by_hand, expected.diagonal().diag())
    (found,) = torch.autograd.grad(d @ keel.eigh(m).apply(torch.reciprocal) @ d, m)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("options", [{}, {"descending": True}, {"UPLO": "U"}, {"rule": keel.Taylor()}])
def test_apply_is_spectral_with_one_decomposition(options):
    m = with_spectrum(*SPECTRA)
    c = generic(4, 4)
    found, expected = keel.eigh(m, **options).apply(torch.log), keel.spectral(m, "log")
    torch.testing.assert_close(found, expected)
    a, b = (torch.autograd.grad((x * c).sum(), m, create_graph=True)[0] for x in (found, expected))
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    a, b = (torch.autograd.grad((g * g).sum(), m)[0] for g in (a, b))
    assert relative(a, b) < 1e-8


def test_a_pair_is_a_named_tuple():
    pair = keel.eigh(torch.eye(2))
    l, V = pair
    assert l is pair.eigenvalues is pair[0] and V is pair.eigenvectors is pair[1] and len(pair) == 2
    assert isinstance(pair, tuple) and "eigenvalues=tensor" in repr(pair)
    assert list(pair._asdict()) == ["eigenvalues", "eigenvectors"] and keel.Eigh(l, V) is not pair
    assert pair._replace(eigenvalues=V)[0] is V and keel.Eigh._make([l, V])[1] is V
    for copied in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair)), keel.Eigh(l, V)):
        assert isinstance(copied, keel.Eigh) and torch.equal(copied.eigenvalues, l)
        with pytest.raises(RuntimeError, match="Eigh.apply: expected the pair that keel.eigh returned"):
            copied.apply(torch.exp)
    with pytest.raises(TypeError, match="Eigh.apply: expected a function of torch's operations, got 'exp'"):
        pair.apply("exp")


@pytest.mark.skipif(func is None, reason="needs functorch")
def test_pairs_go_through_transforms():
    m = with_spectrum(*SPECTRA[:3]).detach()
    assert isinstance(func.vmap(keel.eigh)(m), keel.Eigh)
    found = func.vmap(func.grad(lambda m: keel.eigh(m).apply(torch.log)[0].sum()))(m)
    expected = func.vmap(func.grad(lambda m: keel.logm(m)[0].sum()))(m)
    torch.testing.assert_close(found, expected)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="needs torch.compile")
def test_functions_of_your_own_compile():
    m = with_spectrum(*SPECTRA[:3]).detach()
    p = torch.tensor(0.3, dtype=torch.double, requires_grad=True)

    def loss(m, p):
        l, V = keel.eigh(m)
        return keel.spectral(m, lambda x: x**p)[0].sum() + keel.singular(m, lambda s: s * p).sum() + l.sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for found, expected in zip(gradients(compiled, m, p), gradients(loss, m, p)):
        torch.testing.assert_close(found, expected)
