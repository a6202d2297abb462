"""The operators and layers on CUDA tensors, under torch's own checkers."""

import copy

import pytest
import torch

import keel
from spectra import DISTINCT, REPEATED, symmetric, with_spectrum
from support import LAYERS, correlated, relative, why_no_cuda

ops = torch.ops.keel


WHY_NOT = why_no_cuda()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
opcheck = getattr(torch.library, "opcheck", None)


def matrices(*spectra):
    return with_spectrum(*spectra, device="cuda")


@pytest.mark.parametrize("rule", ["analytic", "masked"])
def test_eigh_passes_gradcheck_and_gradgradcheck(rule):
    def function(m):
        values, vectors = ops.eigh(symmetric(m), rule)
        return values, vectors * vectors

    assert torch.autograd.gradcheck(function, matrices(*DISTINCT))
    assert torch.autograd.gradgradcheck(function, matrices(*DISTINCT))


@pytest.mark.parametrize("name", ["sqrtm", "inv_sqrtm", "logm", "expm"])
@pytest.mark.parametrize("spectra", [DISTINCT, REPEATED], ids=["distinct", "repeated"])
def test_matrix_functions_pass_gradcheck_and_gradgradcheck(name, spectra):
    def function(m):
        return getattr(ops, name)(symmetric(m))

    assert torch.autograd.gradcheck(function, matrices(*spectra))
    assert torch.autograd.gradgradcheck(function, matrices(*spectra))


@pytest.mark.parametrize("spectra", [DISTINCT, REPEATED], ids=["distinct", "repeated"])
def test_functions_of_your_own_pass_gradcheck_and_gradgradcheck(spectra):
    p = torch.tensor(0.7, dtype=torch.double, device="cuda", requires_grad=True)

    def functions(m, p):
        return keel.spectral(symmetric(m), lambda x: x**p), keel.singular(m, lambda x: torch.tanh(p * x))

    assert torch.autograd.gradcheck(functions, (matrices(*spectra), p))
    assert torch.autograd.gradgradcheck(functions, (matrices(*spectra), p))


@pytest.mark.parametrize("rtol", [None, 1e-9])
def test_two_matrices_pass_gradcheck(rtol):
    def functions(a, b):
        values = keel.generalized_eigh(symmetric(a), symmetric(b), rtol=rtol).eigenvalues
        return values.pow(3).sum(-1), keel.generalized_projector(symmetric(a), symmetric(b), 1, "masked", rtol=rtol)

    assert torch.autograd.gradcheck(functions, (matrices(*DISTINCT), matrices(*reversed(DISTINCT))))


def test_functions_of_your_own_are_the_named_ones_in_a_large_batch():
    x = torch.randn(64, 48, 96, generator=torch.Generator().manual_seed(0)).cuda()
    m = (x @ x.mT / 96 + 0.1 * torch.eye(48, device="cuda")).requires_grad_()
    for rank in (keel.FullRank(), 20):
        own, named = (keel.spectral(m, f, rank) for f in (torch.rsqrt, "inv_sqrt"))
        a, b = (torch.autograd.grad(y.pow(2).sum(), m)[0] for y in (own, named))
        assert relative(own, named) < 1e-4 and relative(a, b) < 1e-3


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_pass_gradcheck(layer):
    made = layer(4, groups=2, rank=keel.FullRank(), dtype=torch.double, device="cuda")
    x = correlated(7, 4, 3).cuda().requires_grad_()
    assert torch.autograd.gradcheck(made, (x,))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_steps_as_on_the_cpu(layer, memory_format):
    host = layer(6, groups=2, eps=1e-2, dtype=torch.double)
    device = layer(6, groups=2, eps=1e-2, dtype=torch.double, device="cuda")
    for seed in range(3):
        x = correlated(8, 6, 5, 5, seed=seed).contiguous(memory_format=memory_format)
        a, b = x.clone().requires_grad_(), x.cuda().requires_grad_()
        for leaf, made in ((a, host), (b, device)):
            made(leaf).pow(3).sum().backward()
        assert b.grad.is_cuda and relative(b.grad.cpu(), a.grad) < 1e-9
    for name, value in host.state_dict().items():
        torch.testing.assert_close(device.state_dict()[name].cpu(), value)
    x = correlated(8, 6, 5, 5, seed=9)
    assert relative(device.eval()(x.cuda()).cpu(), host.eval()(x)) < 1e-9


def samples():
    m = matrices(*DISTINCT)
    values, vectors = (t.detach() for t in ops.eigh(m))
    rank = torch.full((2,), 4, device="cuda")
    g = torch.randn_like(vectors)
    yield ops.eigh, (m,)
    yield ops.eigh_backward, (values, g, values, vectors, "masked")
    yield ops.spectral, (m, "inv_sqrt")
    yield ops.spectral_backward, (g, m, values, vectors, rank, "log")
    yield ops.sqrtm, (m,)
    x = correlated(5, 6, 4).cuda().requires_grad_()
    last = correlated(3, 6, 2, 4).contiguous(memory_format=torch.channels_last).cuda()
    half = correlated(5, 6, 4, dtype=torch.float32).bfloat16().cuda()
    numbers = torch.randn(6, dtype=torch.double, device="cuda", requires_grad=True)
    matrix = torch.randn(2, 3, 3, dtype=torch.double, device="cuda", requires_grad=True)
    for input in (x, last.requires_grad_(), half):
        yield ops.moments, (input, 2)
        yield ops.affine, (input, matrix, numbers, numbers)
    by_energy = "zca(rank=leading_energy(fraction=0.9))"
    yield ops.whiten_forward, (x, numbers, numbers, 2, by_energy, "exact")


@pytest.mark.skipif(
    opcheck is None, reason=f"torch {torch.__version__} has no torch.library.opcheck"
)
def test_operators_pass_opcheck():
    for operator, arguments in samples():
        opcheck(operator.default, arguments)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="no torch.compile")
@pytest.mark.parametrize("layer, backend", [(LAYERS[0], "inductor"), (LAYERS[1], "aot_eager")])
def test_training_compiles_without_graph_breaks(layer, backend):
    torch._dynamo.reset()
    plain = layer(8, groups=2, device="cuda")
    twin = layer(8, groups=2, device="cuda")
    compiled = torch.compile(twin, fullgraph=True, backend=backend)
    for seed in range(2):
        x = correlated(8, 8, 5, 5, seed=seed, dtype=torch.float32).cuda()
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        plain(a).pow(3).sum().backward()
        compiled(b).pow(3).sum().backward()
        assert relative(b.grad, a.grad) < 1e-4
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(twin.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def network(layer):
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), layer(8, group_size=4), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5),
    ).cuda()  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS[:2])
def test_a_training_step_is_captured_in_a_graph(layer):
    batches = [torch.randn(16, 3, 8, 8, device="cuda") for _ in range(4)]
    labels = torch.arange(16, device="cuda") % 5

    def trainer(model):
        optimiser = torch.optim.SGD(model.parameters(), 0.05)

        def step(x):
            optimiser.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimiser.step()
            return loss

        return step

    eager = network(layer)
    step = trainer(eager)
    expected = [step(x).item() for x in batches]

    captured = network(layer)
    start = {name: value.clone() for name, value in captured.state_dict().items()}
    step, x = trainer(captured), batches[0].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(x)
    with torch.no_grad():
        for name, value in captured.state_dict().items():
            value.copy_(start[name])
    for batch, wanted in zip(batches, expected):
        x.copy_(batch)
        graph.replay()
        assert loss.item() == pytest.approx(wanted, rel=1e-4)
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(captured.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_the_complex_svd_says_that_it_cannot_be_captured():
    a = torch.randn(4, 3, dtype=torch.complex64, device="cuda")
    keel.svd(a)
    with pytest.raises(RuntimeError, match="complex matrices cannot be decomposed during CUDA graph capture"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            keel.svd(a)
    keel.svd(a)


@pytest.mark.parametrize("layer", LAYERS)
def test_autocast_keeps_statistics_in_float32(layer):
    model = network(layer)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        features = model[1](model[0](torch.randn(16, 3, 8, 8, device="cuda")))
    assert features.dtype == torch.bfloat16
    features.float().pow(2).sum().backward()
    assert model[1].running_matrix.dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in model[:2].parameters())


def test_mixed_devices_are_named():
    x = correlated(5, 6, 4).cuda()
    with pytest.raises(RuntimeError, match="expected matrix on cuda:0, got one on cpu"):
        ops.affine(x, torch.zeros(2, 3, 3, dtype=torch.double))
    with pytest.raises(RuntimeError, match="expected weight on cuda:0, got one on cpu"):
        keel.nn.ZcaWhitening(6, dtype=torch.double)(x)


def test_watching_waits_for_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), keel.nn.ZcaWhitening(8)).cuda()
    x = torch.randn(64, 8, device="cuda")
    model(x).pow(3).sum().backward()  # what is made once, is made
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with keel.watch(model) as watch:
            model(x).pow(3).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    (finding,) = watch.findings()
    assert finding.calls == 1 and finding.gap > 0 and finding.gradient > 0


@pytest.mark.parametrize(
    "norm", [lambda channels: keel.nn.ZcaWhitening(channels, rank=keel.FullRank()), torch.nn.BatchNorm2d]
)
def test_following_waits_for_nothing_and_is_captured_in_a_graph(norm):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), norm(8)).cuda()
    keel.nn.follow(model, share=None, every=1)
    eager, onto_cpu = copy.deepcopy(model), copy.deepcopy(model).cpu()
    batches = [torch.randn(16, 3, 8, 8, device="cuda") for _ in range(4)]
    model(batches[0]), eager(batches[0])  # what is made once, is made
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        eager(batches[0]), eager.eval(), eager.train()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    x = batches[0].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    model[1].following.forget()
    for batch in batches:
        x.copy_(batch)
        graph.replay()
        onto_cpu(batch.cpu())
    assert model[1].following.looks == 4
    torch.testing.assert_close(
        model[1].following.input_covariance.cpu(), onto_cpu[1].following.input_covariance, rtol=1e-4, atol=1e-4
    )
    with torch.no_grad():
        model[0].weight.copy_(eager[0].weight.mul_(2)), onto_cpu[0].weight.copy_(eager[0].weight)
    y = onto_cpu.eval()(batches[0].cpu())
    torch.testing.assert_close(model.eval()(batches[0]).cpu(), y, rtol=1e-2, atol=1e-2)
