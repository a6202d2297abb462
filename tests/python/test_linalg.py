"""keel.eigh and the matrix functions, against torch.linalg where that is finite."""

import math

import pytest
import torch

import keel

FUNCTIONS = {
    "sqrtm": torch.sqrt,
    "inv_sqrtm": torch.rsqrt,
    "invm": torch.reciprocal,
    "logm": torch.log,
    "expm": torch.exp,
}


def positive(*batch, n=5):
    x = torch.randn(*batch, n, 2 * n, dtype=torch.double)
    return (x @ x.mT / (2 * n) + 0.1 * torch.eye(n, dtype=torch.double)).requires_grad_()


def through_torch(matrix, function):
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * function(values).unsqueeze(-2) @ vectors.mT


@pytest.mark.parametrize("triangle", ["L", "U", "l", "u"])
def test_eigh_takes_the_place_of_torchs(triangle):
    m = torch.randn(3, 5, 5, dtype=torch.double)  # its triangles differ
    ours, theirs = keel.eigh(m, UPLO=triangle), torch.linalg.eigh(m, UPLO=triangle)
    assert isinstance(ours, keel.Eigh)
    torch.testing.assert_close(ours.eigenvalues, theirs.eigenvalues)
    torch.testing.assert_close(ours.eigenvectors.square(), theirs.eigenvectors.square())
    down = keel.eigh(m, UPLO=triangle, descending=True)
    assert torch.equal(down.eigenvalues.flip(-1), ours.eigenvalues)
    assert torch.equal(down.eigenvectors.flip(-1), ours.eigenvectors)


def test_eigh_says_where_the_triangle_belongs():
    m = torch.eye(2)
    with pytest.raises(ValueError, match="expected a rule as the second argument, got 'U'; write UPLO='U'"):
        keel.eigh(m, "U")
    with pytest.raises(ValueError, match='expected UPLO to be "L" or "U", got \'lower\''):
        keel.eigh(m, UPLO="lower")


@pytest.mark.parametrize("triangle", ["L", "U", "l", "u"])
def test_eigvalsh_takes_the_place_of_torchs(triangle):
    m = torch.randn(2, 3, 5, 5, dtype=torch.double, requires_grad=True)  # its triangles differ
    ours, theirs = keel.eigvalsh(m, triangle), torch.linalg.eigvalsh(m, triangle)
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(ours, keel.eigh(m, UPLO=triangle).eigenvalues)
    weights = torch.randn(2, 3, 5, dtype=torch.double)
    (a,), (b,) = (torch.autograd.grad(values, m, weights) for values in (ours, theirs))
    torch.testing.assert_close(a, (b + b.mT) / 2)


def test_eigvalsh_takes_any_shape_and_type():
    assert keel.eigvalsh(torch.zeros(2, 0, 3, 3)).shape == (2, 0, 3)
    assert keel.eigvalsh(torch.zeros(2, 0, 0)).shape == (2, 0)
    assert keel.eigvalsh(torch.empty(7, 4, 4, device="meta")).shape == (7, 4)
    half = torch.eye(3, dtype=torch.half, requires_grad=True)
    (grad,) = torch.autograd.grad(keel.eigvalsh(half).sum(), half)
    assert torch.equal(grad, torch.eye(3, dtype=torch.half))
    with pytest.raises(ValueError, match='keel.eigvalsh: expected UPLO to be "L" or "U", got \'lower\''):
        keel.eigvalsh(torch.eye(2), "lower")
    with pytest.raises(RuntimeError, match="keel::eigvalsh: expected"):
        keel.eigvalsh(torch.zeros(3, 2))


@pytest.mark.parametrize("spectrum", [(3.0, 2.0, 1.0), (2.0, 2.0, 1.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)])
def test_derivatives_of_eigvalsh_are_the_differences_even_at_equal_eigenvalues(spectrum):
    q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.double))[0]
    m = q * torch.tensor(spectrum, dtype=torch.double) @ q.mT
    m = ((m + m.mT) / 2).requires_grad_()

    def loss(x):
        return (keel.eigvalsh((x + x.mT) / 2) + 0.5).pow(3).sum()  # smooth: symmetric in the eigenvalues

    assert torch.autograd.gradcheck(loss, m)
    assert torch.autograd.gradgradcheck(loss, m)
    values, vectors = torch.linalg.eigh(m.detach())
    weights = torch.tensor([1.0, -2.0, 5.0], dtype=torch.double)  # tells equal eigenvalues apart
    (grad,) = torch.autograd.grad((keel.eigvalsh(m) * weights).sum(), m)
    assert grad.isfinite().all()
    torch.testing.assert_close(keel.eigvalsh(grad), weights.sort().values)
    if len(set(spectrum)) == 3:
        torch.testing.assert_close(grad, vectors * weights @ vectors.mT)
    else:  # one of the derivatives: which eigenvector is which has no answer, and no second derivative
        with pytest.raises(RuntimeError, match="second derivative"):
            torch.autograd.functional.hessian(lambda x: (keel.eigvalsh(x) * weights).sum(), m)


@pytest.mark.parametrize("rule", [keel.Masked(), keel.Analytic(), keel.PowerIteration(4000)])
def test_eigh_gradients_are_torchs(rule):
    m = positive(3)
    weights = torch.randn(3, 5, 5, dtype=torch.double)

    def loss(values, vectors):
        return (vectors.square() * weights).sum() + values.pow(3).sum()

    (ours,) = torch.autograd.grad(loss(*keel.eigh(m, rule)), m)
    (theirs,) = torch.autograd.grad(loss(*torch.linalg.eigh(m)), m)
    torch.testing.assert_close(ours, (theirs + theirs.mT) / 2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrix_functions_are_torchs(name):
    m = positive(2, 3)
    direction = torch.randn_like(m)
    direction = direction + direction.mT
    ours, theirs = getattr(keel, name)(m), through_torch(m, FUNCTIONS[name])
    torch.testing.assert_close(ours, theirs)
    (a,) = torch.autograd.grad(ours, m, direction)
    (b,) = torch.autograd.grad(theirs, m, direction)
    torch.testing.assert_close(a, (b + b.mT) / 2)


def test_powers():
    m = positive()
    torch.testing.assert_close(keel.powm(m, 3), m @ m @ m)
    torch.testing.assert_close(keel.powm(m, -0.5), keel.inv_sqrtm(m))


def test_exponents_are_numbers():
    m = positive()
    for function in (keel.spectral, keel.singular):
        for root in (function(m, "power(exponent=0.5)"), function(m, "power", exponent=0.5)):
            torch.testing.assert_close(root, keel.sqrtm(m))
        with pytest.raises(ValueError, match="expected an exponent only with 'power', got one with 'one'"):
            function(m, "one", exponent=2.0)
        with pytest.raises(ValueError, match=r"expected 'power\(exponent=...\)', got 'power'"):
            function(m, "power")
    torch.testing.assert_close(keel.powm(m, torch.tensor(3)), m @ m @ m)
    for power in (lambda p: keel.powm(m, p), lambda p: keel.spectral(m, "power", exponent=p)):
        with pytest.raises(TypeError, match="exponent to be a number without a gradient, got tensor.*or call"):
            power(torch.tensor(0.5, requires_grad=True))
        for wrong in ("0.5", True, torch.ones(2), 1j):
            with pytest.raises(TypeError, match="expected exponent to be a number"):
                power(wrong)
        for wrong in (math.nan, math.inf):
            with pytest.raises(ValueError, match="expected a finite exponent"):
                power(wrong)


@pytest.mark.parametrize(
    "name, derivative",
    [("sqrtm", 0.5), ("inv_sqrtm", -0.5), ("invm", -1.0), ("logm", 1.0), ("expm", math.e)],
)
def test_gradient_at_the_identity_is_exact(name, derivative):
    m = torch.eye(4, dtype=torch.double, requires_grad=True)
    (grad,) = torch.autograd.grad(getattr(keel, name)(m)[2, 1], m)
    expected = torch.zeros_like(grad)
    expected[2, 1] = expected[1, 2] = derivative / 2
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("vectorize", [False, True])
def test_second_derivatives_of_eigh_at_repeated_eigenvalues(vectorize):
    q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.double))[0]
    m = q * torch.tensor([2.0, 2.0, 1.0], dtype=torch.double) @ q.mT
    m = (m + m.mT) / 2
    k = torch.tensor([[1.0, 2.0, 3.0], [2.0, -1.0, 0.5], [3.0, 0.5, 4.0]], dtype=torch.double)
    hessian = torch.autograd.functional.hessian

    ours = hessian(lambda x: keel.eigh(x).eigenvalues.pow(3).sum(), m, vectorize=vectorize)
    torch.testing.assert_close((ours * k).sum((-2, -1)), 3 * (m @ k + k @ m))

    def rebuilt(x):
        values, vectors = keel.eigh(x)
        return (vectors * values.log() @ vectors.mT * k).sum()

    with pytest.raises(RuntimeError, match="no second derivative under rule masked.*keel::spectral"):
        hessian(rebuilt, m, vectorize=vectorize)


def test_rules_reach_the_functions():
    m = torch.eye(3, dtype=torch.double, requires_grad=True)
    (grad,) = torch.autograd.grad(keel.inv_sqrtm(m, keel.PowerIteration(20))[1, 0], m)
    assert grad[1, 0].item() == pytest.approx(0.5)  # bounded, and of the wrong sign


def test_rank_policies():
    m = torch.diag(torch.tensor([1.0, 8.0, 0.99, 1e-5]))
    ranks = {
        keel.FullRank(): 4,
        keel.LeadingCount(2): 2,
        keel.LeadingCount(9): 4,
        keel.LeadingEnergy(0.8): 1,
        keel.LeadingEnergy(0.85): 2,
        keel.Algorithm1(): 3,
        keel.Algorithm1(eps=0.995, energy=None): 2,
        keel.Algorithm1(eps=None, rayleigh_tolerance=None, energy=None): 4,
    }
    for policy, expected in ranks.items():
        result, kept = keel.spectral(m, "one", rank=policy, return_kept=True)
        assert int(kept) == expected, policy
        torch.testing.assert_close(result, keel.projector(m, policy))
        assert result.trace().item() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [3, 16, 33, 70, 130])
def test_results_do_not_depend_on_what_batch_mates_hold_or_on_the_place(n, dtype):
    """To the last bit; between batch sizes to rounding, as another kernel may be chosen."""
    batch = positive(9, n=n).detach().to(dtype)
    others = positive(9, n=n).detach().to(dtype)
    others[4] = batch[0]
    for function in (keel.eigh, lambda m: (keel.inv_sqrtm(m),)):
        for ours, theirs in zip(function(batch), function(others)):
            assert torch.equal(ours[0], theirs[4])
    for size in (1, 3):
        values = keel.eigh(batch[:size]).eigenvalues[0]
        bound = 16 * n * torch.finfo(dtype).eps * values[-1]  # Weyl, for two stable solvers
        assert (values - keel.eigh(batch).eigenvalues[0]).abs().max() < bound


def test_errors_name_the_operation():
    with pytest.raises(RuntimeError, match=r"keel::eigh: expected \(..., n, n\), got \(4, 3\)"):
        keel.eigh(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="inv_sqrt.*got \"root\""):
        keel.spectral(torch.eye(2), "root")
    with pytest.raises(ValueError, match="terms"):
        keel.eigh(torch.eye(2), keel.Taylor(0))


FUNCTIONS_OF_LISTS = {
    "eigvalsh": keel.eigvalsh,
    "eigh": lambda matrices: keel.eigh(matrices, keel.PowerIteration(9), UPLO="U", descending=True),
    "sqrtm": keel.sqrtm,
    "inv_sqrtm": keel.inv_sqrtm,
    "invm": lambda matrices: keel.invm(matrices, keel.Taylor(5)),
    "logm": keel.logm,
    "expm": keel.expm,
    "powm": lambda matrices: keel.powm(matrices, -1 / 3),
}


@pytest.mark.parametrize("name", FUNCTIONS_OF_LISTS)
def test_a_list_has_the_results_and_gradients_of_its_matrices(name):
    torch.manual_seed(0)
    function = FUNCTIONS_OF_LISTS[name]
    matrices = [positive(), positive(n=3), positive(), positive(2, n=3), positive(n=1)]
    matrices.append(positive().detach().float().requires_grad_())
    found = function(matrices)
    assert isinstance(found, list) and len(found) == len(matrices)
    for matrix, result in zip(matrices, found):
        alone = function(matrix)
        assert type(result) is type(alone)
        results, expected = [(one,) if isinstance(one, torch.Tensor) else one for one in (result, alone)]
        for one, other in zip(results, expected):
            assert one.shape == other.shape and one.dtype == other.dtype
            tolerance = 100 * torch.finfo(one.dtype).eps * other.abs().max().item()
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance)
            weight = torch.randn_like(one)
            mine, its = [torch.autograd.grad((weight * r).sum(), matrix, retain_graph=True)[0] for r in (one, other)]
            tolerance = 1000 * torch.finfo(one.dtype).eps * its.abs().max().item()
            torch.testing.assert_close(mine, its, rtol=0, atol=tolerance)


def test_pairs_of_a_list_know_their_matrices():
    torch.manual_seed(0)
    matrices = [positive(), positive(n=3), positive()]
    for pair, matrix in zip(keel.eigh(matrices), matrices):
        roots = [pair.apply(torch.sqrt), keel.sqrtm(matrix)]
        torch.testing.assert_close(*roots)
        torch.testing.assert_close(*[torch.autograd.grad(root[0, 1], matrix)[0] for root in roots])


def test_a_list_takes_one_call_for_each_size(monkeypatch):
    shapes = []
    monkeypatch.setattr(keel.linalg, "call", lambda operator, matrix, *rest: shapes.append(matrix.shape) or matrix)
    keel.powm([torch.eye(n) for n in (3, 4, 3, 3, 4)], -0.25)
    assert shapes == [(3, 3, 3), (2, 4, 4)]


def test_an_empty_list_and_lists_of_other_things():
    assert keel.eigh([]) == [] and keel.powm([], 0.5) == []
    for function in (keel.eigh, keel.sqrtm, keel.eigvalsh):
        with pytest.raises(TypeError, match=rf"keel\.{function.__name__}: expected a tensor, got list"):
            function([[1.0, 0.0], [0.0, 1.0]])
    for function in (keel.eigh, keel.sqrtm):
        for wrong in (torch.ones(3, 2), torch.ones(3)):
            with pytest.raises(ValueError, match=r"expected \(..., n, n\), got \(3,.*\) at place 1 of a list"):
                function([torch.eye(2), wrong])
    for function in (keel.svd, keel.procrustes):
        with pytest.raises(TypeError, match="got list of tensors; torch.stack of equal shapes makes one"):
            function([torch.eye(2), torch.eye(2)])
