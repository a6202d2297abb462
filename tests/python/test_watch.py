"""keel.watch: what is seen of a model, and what is said of it."""

import math

import pytest
import torch
from torch import nn

import keel
from rectangles import with_values
from support import correlated, covariance


class Decomposed(nn.Module):
    def __init__(self, eigh):
        super().__init__()
        self.eigh = eigh

    def forward(self, m):
        values, vectors = self.eigh(m)
        return vectors * values.unsqueeze(-2)


def with_spectrum(*values, dtype=torch.float32):
    q = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.double))[0]
    m = q * torch.tensor(values, dtype=torch.double) @ q.mT
    return ((m + m.mT) / 2).to(dtype)


def seen_of(model, *inputs):
    with keel.watch(model) as watch:
        for x in inputs:
            model(x).pow(2).sum().backward()
    return watch


def test_numbers_are_those_of_the_matrices():
    batch = torch.stack([with_spectrum(4.0, 2.0, 1.0), with_spectrum(4.0, 3.5, 0.5)]).requires_grad_()
    (finding,) = seen_of(nn.Sequential(Decomposed(keel.eigh)), batch).findings()
    assert (finding.layer, finding.operation, finding.calls, finding.size) == ("0", "eigh", 1, 3)
    assert finding.gap == pytest.approx(0.125, rel=1e-4) and finding.condition == pytest.approx(8, rel=1e-4)
    assert finding.gradient == pytest.approx(batch.grad.abs().max().item()) and finding.kept is None
    assert finding.advice == "Nothing to worry about."


def test_extremes_are_over_all_calls():
    model = nn.Sequential(Decomposed(keel.eigh))
    matrices = [with_spectrum(4.0, 2.0, 1.0), with_spectrum(4.0, 3.0, 2.9), with_spectrum(8.0, 1.0, 0.1)]
    watch = seen_of(model, *[m.requires_grad_() for m in matrices])
    (finding,) = watch.findings()
    assert finding.calls == 3
    assert finding.gap == pytest.approx(0.025, rel=1e-3) and finding.condition == pytest.approx(80, rel=1e-3)
    assert finding.gradient == pytest.approx(max(m.grad.abs().max().item() for m in matrices))


@pytest.mark.parametrize("eigh", [torch.linalg.eigh, lambda m: keel.eigh(m, keel.Analytic())])
def test_eigenvalues_that_meet_are_said_where_a_gradient_divides_by_differences(eigh):
    (finding,) = seen_of(Decomposed(eigh), torch.eye(3).requires_grad_()).findings()
    assert "Eigenvalues meet" in finding.advice and "keel.PowerIteration(19)" in finding.advice
    assert "A gradient was nan" in finding.advice or "A gradient was inf" in finding.advice


def test_what_masked_leaves_out_is_said():
    (finding,) = seen_of(Decomposed(keel.eigh), torch.eye(3).requires_grad_()).findings()
    assert "Masked leaves such pairs out" in finding.advice
    rule = keel.PowerIteration(19)
    (finding,) = seen_of(Decomposed(lambda m: keel.eigh(m, rule)), torch.eye(3).requires_grad_()).findings()
    assert finding.advice == "Nothing to worry about." and finding.gap == 0


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, m):
        return self.function(m)


def test_eigenvalues_alone_are_seen_and_may_meet():
    m = with_spectrum(4.0, 2.0, 1.0).requires_grad_()
    (finding,) = seen_of(Function(keel.eigvalsh), m).findings()
    assert finding.operation == "eigvalsh" and finding.gap == pytest.approx(0.25, rel=1e-4) and finding.gradient > 0
    (finding,) = seen_of(Function(keel.eigvalsh), torch.eye(3).requires_grad_()).findings()
    assert finding.gap == 0 and finding.advice == "Nothing to worry about."


@pytest.mark.parametrize("name", ["sqrtm", "inv_sqrtm", "invm", "logm", "expm", "powm", "projector", "spectral"])
def test_functions_are_seen_and_not_changed(name):
    extra = {"powm": (0.3,), "projector": (keel.LeadingCount(2),), "spectral": ("log",)}.get(name, ())
    function = getattr(keel, name)
    m = with_spectrum(4.0, 2.0, 1.0).requires_grad_()

    def result(m):
        found = function(m, *extra)
        return found

    plain = result(m)
    with keel.watch(Function(result)) as watch:
        found = result(m)
    assert torch.equal(found, plain)
    found.sum().backward()
    (finding,) = watch.findings()
    assert finding.operation == name and finding.gap == pytest.approx(0.25, rel=1e-4)
    assert finding.kept == (2 if name == "projector" else 3)
    assert finding.gradient == pytest.approx(m.grad.abs().max().item())


def test_badly_conditioned_inverses_are_said():
    model = Function(keel.inv_sqrtm)
    (finding,) = seen_of(model, torch.diag(torch.tensor([1.0, 1e-4, 1e-9])).requires_grad_()).findings()
    assert "beyond what float32 resolves" in finding.advice and "keel.LeadingEnergy" in finding.advice
    m = torch.diag(torch.tensor([1.0, 1e-4, 1e-9], dtype=torch.double))
    (finding,) = seen_of(model, m.requires_grad_()).findings()
    assert finding.advice == "Nothing to worry about."


def test_layers_are_seen_by_their_names():
    model = nn.Sequential(nn.Linear(6, 8), keel.nn.ZcaWhitening(8, group_size=4), nn.ReLU(), keel.nn.PcaDenoising(8))
    few, many = correlated(3, 6, dtype=torch.float32), correlated(64, 6, dtype=torch.float32)
    with pytest.warns(UserWarning):
        watch = seen_of(model, few, many)
    zca, pca = watch.findings()
    assert (zca.layer, zca.operation, zca.size, zca.calls) == ("1", "layer", 4, 2)
    assert (pca.layer, pca.size) == ("3", 8)
    assert zca.kept <= 2 and "directions were whitened in some group" in zca.advice
    assert zca.gradient > 0
    text = str(watch)
    assert "1      layer" in text and "3, layer: " in text


def test_gaps_of_a_layer_are_those_as_found_between_pairs_with_a_kept_one():
    x = correlated(200, 3, dtype=torch.float64) @ correlated(3, 6, seed=1, dtype=torch.float64)
    x = torch.cat([x, torch.zeros(200, 2, dtype=torch.float64)], 1).requires_grad_()
    values = torch.linalg.eigvalsh(covariance(x.detach())[0]).flip(0)
    layer = keel.nn.ZcaWhitening(8, rank=keel.LeadingCount(3), rule=keel.Analytic(), dtype=torch.float64)
    (finding,) = seen_of(layer, x).findings()
    gap = (values.diff().abs()[:3].min() / (values[0] + 1e-4)).item()
    assert finding.gap == pytest.approx(gap, rel=1e-9) and finding.gap > 1e-3
    assert finding.condition == pytest.approx((values[0].item() + 1e-4) / 1e-4, rel=1e-9)
    assert "A gradient" not in finding.advice and torch.isfinite(x.grad).all()
    # With the two constant channels kept, two equal eigenvalues are.
    layer = keel.nn.ZcaWhitening(8, rank=keel.FullRank(), rule=keel.Analytic(), dtype=torch.float64)
    (finding,) = seen_of(layer, x).findings()
    assert finding.gap == 0
    assert "A gradient was nan. Eigenvalues meet, and this gradient divides by their differences" in finding.advice


def test_operators_are_seen_with_their_arguments_by_name():
    x = correlated(64, 6, dtype=torch.float32).requires_grad_()
    model = Function(lambda x: torch.ops.keel.whiten_forward(x, None, None, 2, "zca", relu=True, residual=x)[0])
    (finding,) = seen_of(model, x).findings()
    assert (finding.operation, finding.size) == ("layer", 3)


def test_singular_values_are_seen():
    m = torch.randn(5, 3, requires_grad=True)
    model = Function(lambda m: torch.linalg.svd(m, full_matrices=False)[0] + keel.svd(m).U)
    found = {f.operation: f for f in seen_of(model, m).findings()}
    assert found["svd"].size == found["torch.linalg.svd"].size == 3
    assert found["svd"].gap == pytest.approx(found["torch.linalg.svd"].gap, rel=1e-3)


def test_advice_for_singular_values_names_functions_of_them():
    model = Function(lambda m: (lambda u, s, vh: u @ vh)(*torch.linalg.svd(m)))
    (finding,) = seen_of(model, torch.eye(3).requires_grad_()).findings()
    assert "Singular values meet" in finding.advice and "keel.procrustes" in finding.advice
    assert "keel.sqrtm" not in finding.advice


def test_a_nan_that_no_equal_eigenvalues_explain_is_said():
    model = Function(lambda m: (lambda values, v: v * values.sqrt() @ v.mT)(*torch.linalg.eigh(m)))
    (finding,) = seen_of(model, torch.diag(torch.tensor([4.0, 1.0, 0.0])).requires_grad_()).findings()
    assert "A gradient was nan. Eigenvalues were zero: look for a root" in finding.advice


def test_a_function_that_is_not_defined_is_said():
    m = torch.diag(torch.tensor([1.0, -1.0, 2.0])).requires_grad_()
    for function, said in ((keel.inv_sqrtm, True), (keel.invm, False)):
        with keel.watch(nn.Identity()) as seen:
            function(m).sum().backward()
        (finding,) = seen.findings()
        assert ("A result was NaN or infinite" in finding.advice) == said
        assert said or finding.advice == "Nothing to worry about."


def test_nothing_is_left_behind():
    model = nn.Sequential(nn.Linear(4, 4), keel.nn.ZcaWhitening(4))
    x = torch.randn(20, 4)
    with pytest.raises(ValueError, match=r"expected \(N, 4, ...\)"):
        with keel.watch(model) as watch:
            model(x)
            model(x.reshape(4, 5, 4))
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    model(x)
    assert watch.findings()[0].calls == 1
    assert "no eigendecomposition was seen; run the model inside `with" in str(keel.watch(model))
    with keel.watch(model) as unused:
        pass
    assert str(unused) == "keel.watch: no eigendecomposition was seen"


def test_nothing_is_left_on_parameters():
    matrix = nn.Parameter(with_spectrum(4.0, 2.0, 1.0))
    for call in (keel.sqrtm, lambda m: torch.ops.keel.sqrtm(matrix=m)):
        matrix.grad = None
        (finding,) = seen_of(Function(call), matrix, matrix).findings()
        assert finding.calls == 2 and finding.gradient == pytest.approx(matrix.grad.abs().max().item() / 2)
        assert not matrix._backward_hooks


def test_scalars_for_tensorboard():
    written = {}

    class Writer:
        def add_scalar(self, name, value, step):
            written[name] = (value, step)

    seen_of(nn.Sequential(Decomposed(keel.eigh)), with_spectrum(4.0, 2.0, 1.0).requires_grad_()).write(Writer(), 7)
    assert written["keel/0/eigh/gap"] == (pytest.approx(0.25, rel=1e-4), 7)
    assert {"keel/0/eigh/condition", "keel/0/eigh/gradient"} <= written.keys()


def test_nothing_waits_while_it_looks_on():
    """On the meta device there are no numbers to wait for. test_cuda.py has the same with torch's own check."""
    model = nn.Sequential(keel.nn.ZcaWhitening(4, device="meta"), Function(lambda x: keel.svdvals(x)))
    with keel.watch(model):
        model(torch.empty(20, 4, device="meta", requires_grad=True)).sum().backward()


class Calls(torch.overrides.TorchFunctionMode):
    """All calls of torch's functions, in order."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


def test_without_a_watch_a_step_calls_the_same_functions():
    """No cost when off: neither before a watch nor after one does a step make any other call."""
    model = nn.Sequential(nn.Linear(4, 4), keel.nn.ZcaWhitening(4), Function(keel.svdvals))
    x = torch.randn(20, 4)

    def calls():
        with Calls() as mode:
            model(x).sum().backward()
        return mode.seen

    before = calls()
    seen_of(model, x)
    assert calls() == before


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got function"):
        keel.watch(lambda x: x)
    scripted = nn.Sequential(nn.Identity(), torch.jit.script(nn.Identity()))
    with pytest.raises(TypeError, match="got one compiled by torch.jit \\('1'\\); watch the model before"):
        with keel.watch(scripted):
            pass
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in scripted)


RECTANGULAR = {
    "svd": (),
    "svdvals": (),
    "nuclear_norm": (),
    "singular": ("power(exponent=0.5)",),
    "pinv": (0.2,),
    "low_rank": (keel.LeadingCount(2),),
    "soft_threshold": (1.5,),
    "polar": (),
    "procrustes": (),
}


def joined(outputs):
    return torch.cat([x.flatten() for x in (outputs if isinstance(outputs, tuple) else (outputs,))])


@pytest.mark.parametrize("name", RECTANGULAR)
def test_functions_of_matrices_of_any_shape_are_seen(name):
    a = with_values((4.0, 2.0, 0.5), 5, 3).requires_grad_()
    model = Function(lambda x: joined(getattr(keel, name)(x, *RECTANGULAR[name])))
    expected = model(a).detach()
    watch = seen_of(model, a)
    (finding,) = watch.findings()
    assert finding.operation == name and finding.condition == pytest.approx(8) and finding.gradient > 0
    assert finding.kept == {"singular": 3, "pinv": 2, "low_rank": 2, "soft_threshold": 3}.get(name)
    assert finding.gap == pytest.approx(0.125 if name in ("polar", "procrustes") else 0.375)
    with keel.watch(model):
        torch.testing.assert_close(model(a).detach(), expected)


@pytest.mark.parametrize("determinant", [1, -1])
def test_of_rotations_the_margin_is_seen(determinant):
    a = with_values((4.0, 2.0, 1.0), 3, 3, determinant).requires_grad_()
    margin = (2 + determinant) / 4
    points = torch.randn(6, 3, dtype=torch.double)
    points -= points.mean(0)
    moved = (a @ torch.linalg.pinv(points)).mT.detach().requires_grad_()  # so that moved^T points is a

    def registered(q):
        return joined(keel.kabsch(points, q, torch.ones(6, dtype=torch.double)))

    for function, x in [(keel.special_procrustes, a), (registered, moved)]:
        (finding,) = seen_of(Function(function), x).findings()
        assert finding.gap == pytest.approx(margin) and finding.condition == pytest.approx(4)
        assert finding.advice == "Nothing to worry about."
    tie = with_values((4.0, 1.0, 1.0), 3, 3, -1).requires_grad_()
    (finding,) = seen_of(Function(keel.special_procrustes), tie).findings()
    assert "Two answers were equally near" in finding.advice


def test_nan_that_comes_in_is_said():
    for function in (keel.eigh, keel.eigvalsh, keel.sqrtm, keel.svd, keel.procrustes):
        m = torch.full((3, 3), math.nan)
        with keel.watch(nn.Identity()) as watch:
            function(m)
        (finding,) = watch.findings()
        assert finding.advice.startswith("A matrix held NaN or infinity.")
    (finding,) = seen_of(keel.nn.ZcaWhitening(3), torch.full((8, 3), math.nan)).findings()
    assert "were whitened" not in finding.advice  # the rank of such a matrix means nothing


def test_inside_transforms_the_numbers_stay():
    functorch = pytest.importorskip("functorch")
    spectra = [(4.0, 2.0, 0.5), (4.0, 3.0, 0.1)]
    batch = torch.stack([with_values(s, 3, 3) for s in spectra])
    model = Function(lambda a: keel.svdvals(a).sum())
    for transformed in (functorch.vmap(model), functorch.vmap(functorch.grad(model))):
        with keel.watch(model) as watch:
            transformed(batch)
        (finding,) = watch.findings()
        assert finding.gap == pytest.approx(0.25) and finding.condition == pytest.approx(40)


def test_functions_of_your_own_and_two_matrices_are_seen():
    class Both(torch.nn.Module):
        def forward(self, m):
            own = keel.spectral(m, torch.exp, 2) + keel.singular(m, torch.sin) + keel.eigh(m).apply(torch.exp)
            return own + keel.generalized_eigh(m, m + torch.eye(3)).eigenvectors

    model, m = Both(), torch.diag(torch.tensor([3.0, 2.0, 1.0], requires_grad=True))
    with keel.watch(model) as seen:
        model(m).sum().backward()
    found = {each.operation: each for each in seen.findings()}
    assert set(found) == {"spectral", "singular", "eigh", "generalized_eigh"}
    assert found["spectral"].calls == 2 and found["spectral"].kept == 2 and found["singular"].gradient > 0
