"""Folding, and evaluation as other programs see it: traced, exported, compiled, under autocast."""

import importlib.util
import io

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import keel
from support import LAYERS, correlated, relative


def trained(layer, channels=6, dtype=torch.double, **options):
    made = layer(channels, dtype=dtype, **options)
    for seed in range(3):
        made(correlated(40, channels, seed=seed, mean=2.0, dtype=dtype))
    with torch.no_grad():
        made.weight.uniform_(0.5, 1.5), made.bias.normal_()
    return made.eval()


BEFORE = [
    (nn.Conv1d(4, 6, 3, padding=1), (5, 4, 9)),
    (nn.Conv2d(4, 6, 3, stride=2, bias=False), (5, 4, 9, 8)),
    (nn.Conv2d(4, 6, 3, groups=2, padding=1, padding_mode="reflect"), (5, 4, 9, 8)),
    (nn.Conv3d(4, 6, 2, dilation=2), (2, 4, 5, 6, 7)),
    (nn.Linear(4, 6), (5, 4)),
    (nn.Linear(4, 6, bias=False), (5, 4)),
]


@pytest.mark.parametrize("before, shape", BEFORE)
@pytest.mark.parametrize("layer", LAYERS)
def test_folding_is_exact(layer, before, shape):
    before = before.double()
    made = trained(layer, group_size=3)
    x = torch.randn(shape, dtype=torch.double)
    kept = before.weight.clone()
    folded = made.fold_into(before)
    assert type(folded) is type(before) and folded is not before
    assert torch.equal(before.weight, kept)
    assert relative(folded(x), made(before(x))) < 1e-13
    assert folded.weight.requires_grad and folded.weight.is_leaf


def test_folding_float32_is_exact_to_rounding():
    before, made = nn.Conv2d(4, 6, 3), trained(keel.nn.ZcaWhitening, dtype=torch.float32)
    x = torch.randn(5, 4, 9, 8)
    assert relative(made.fold_into(before)(x), made(before(x))) < 1e-5


def test_depthwise_convolutions_fold_groups_of_one():
    before = nn.Conv2d(6, 6, 3, groups=6).double()
    made = trained(keel.nn.ZcaWhitening, group_size=1)
    x = torch.randn(2, 6, 5, 5).double()
    assert relative(made.fold_into(before)(x), made(before(x))) < 1e-13


def test_what_cannot_be_folded_is_an_error():
    made = trained(keel.nn.ZcaWhitening, group_size=3)
    with pytest.raises(TypeError, match="fold_into: expected Conv1d.*got ConvTranspose2d"):
        made.fold_into(nn.ConvTranspose2d(4, 6, 3))
    with pytest.raises(ValueError, match="expected 6 output channels, got 8"):
        made.fold_into(nn.Conv2d(4, 8, 3))
    with pytest.raises(ValueError, match="groups of 3 channels.*got 3 of 2 output channels"):
        made.fold_into(nn.Conv2d(3, 6, 3, groups=3))
    parametrized = nn.Linear(4, 6)
    nn.utils.parametrize.register_parametrization(parametrized, "weight", nn.Identity())
    with pytest.raises(ValueError, match="expected plain parameters, got ParametrizedLinear"):
        made.fold_into(parametrized)
    with pytest.raises(RuntimeError, match="evaluation mode.*got training mode"):
        made.train().fold_into(nn.Linear(4, 6))
    with pytest.raises(RuntimeError, match="got track_running_stats=False"):
        keel.nn.ZcaWhitening(6, track_running_stats=False).eval().as_conv1x1()


class Doubled(nn.Conv2d):
    def forward(self, input):
        return 2 * super().forward(input)


class Padded(nn.Conv2d):
    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, weight, bias) + 1


class Renamed(nn.Conv2d):
    """A subclass that computes what its base does."""


def hooked(layer, hook):
    register = layer.register_forward_hook if hook == "after" else layer.register_forward_pre_hook
    register(lambda module, *arguments: None)
    return layer


def replaced(layer):
    plain = layer.forward
    layer.forward = lambda x: plain(x) + 1
    return layer


def untied(layer):
    weight = layer.weight
    del layer.weight
    layer.weight = weight.detach() * 2  # no parameter any more
    return layer


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: nn.utils.weight_norm(nn.Conv2d(4, 6, 3)), r"Conv2d with .*pre-hooks \(WeightNorm"),
        (lambda: nn.utils.spectral_norm(nn.Linear(4, 6)), r"Linear with .*\(SpectralNorm"),
        (
            lambda: prune.l1_unstructured(nn.Conv1d(4, 6, 3), "weight", amount=0.5),
            r"Conv1d with forward pre-hooks \(L1Unstructured",
        ),
        (lambda: hooked(nn.Conv2d(4, 6, 3), "after"), "Conv2d with forward hooks"),
        (lambda: hooked(nn.Conv2d(4, 6, 3), "before"), "Conv2d with forward pre-hooks"),
        (lambda: Doubled(4, 6, 3), "a plain Conv2d, got Doubled with a forward of its own"),
        (lambda: Padded(4, 6, 3), "got Padded with a _conv_forward of its own"),
        (lambda: replaced(nn.Conv3d(4, 6, 3)), "got Conv3d with a forward of its own"),
        (lambda: untied(nn.Conv2d(4, 6, 3)), "expected weight and bias to be parameters"),
        (lambda: nn.LazyConv2d(6, 3), "LazyConv2d"),
    ],
)
def test_layers_that_do_something_else_are_not_folded(make, message):
    made = trained(keel.nn.ZcaWhitening, group_size=3)
    with pytest.raises(ValueError, match=message):
        made.fold_into(make())


class DoubledNorm(keel.nn.ZcaWhitening):
    def forward(self, input, residual=None):
        return 2 * super().forward(input, residual)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda norm: hooked(norm, "after"), "expected a plain layer, got one with forward hooks"),
        (lambda norm: hooked(norm, "before"), "expected a plain layer, got one with forward pre-hooks"),
        (replaced, "expected a plain layer, got one with a forward of its own"),
        (lambda norm: DoubledNorm(6).eval(), "expected a plain layer, got one with a forward of its own"),
    ],
)
def test_norms_that_do_something_else_are_not_folded(change, message):
    norm = change(trained(keel.nn.ZcaWhitening))
    with pytest.raises(ValueError, match="fold_into: " + message):
        norm.fold_into(nn.Linear(4, 6))
    with pytest.raises(ValueError, match="as_conv1x1: " + message):
        norm.as_conv1x1()


def test_complex_layers_are_not_folded():
    with pytest.raises(TypeError, match="expected real floating-point parameters, got torch.complex"):
        trained(keel.nn.ZcaWhitening).fold_into(nn.Linear(4, 6, dtype=torch.cfloat))


def test_what_is_left_of_them_is_folded():
    made, x = trained(keel.nn.ZcaWhitening, group_size=3), torch.randn(2, 4, 5, 5).double()
    normed = nn.utils.weight_norm(nn.Conv2d(4, 6, 3)).double()
    for before in (nn.utils.remove_weight_norm(normed), Renamed(4, 6, 3).double()):
        before.register_full_backward_hook(lambda *arguments: None)  # forward is what counts
        folded = made.fold_into(before)
        assert type(folded) is type(before)
        assert relative(folded(x), made(before(x))) < 1e-13


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("layer", LAYERS)
def test_as_conv1x1(layer, affine):
    made = layer(6, group_size=2, affine=affine, dtype=torch.double)
    made(correlated(40, 6, mean=1.0))
    conv = made.eval().as_conv1x1()
    x = correlated(3, 6, 4, 5)
    assert type(conv) is nn.Conv2d and conv.groups == 3 and conv.weight.dtype == torch.double
    assert relative(conv(x), made(x)) < 1e-13


@pytest.mark.parametrize(
    "shape", [(5, 6), (5, 6, 7), (5, 6, 4, 3), (2, 6, 3, 4, 5), (2, 6, 3, 2, 2, 2)]
)
@pytest.mark.parametrize("layer", LAYERS)
def test_traced_evaluation_holds_no_operator_of_ours(layer, shape):
    made = trained(layer, group_size=3)
    traced = torch.jit.trace(made, torch.randn(shape).double())
    assert "keel::" not in str(traced.inlined_graph)
    x = torch.randn(shape).double()
    assert relative(traced(x), made(x)) < 1e-12


def network(layer=keel.nn.ZcaWhitening):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), layer(8, group_size=4), nn.ReLU())
    model(torch.randn(4, 3, 8, 8))
    return model.eval()


def test_traced_network_survives_saving():
    model, x = network(), torch.randn(2, 3, 8, 8)
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(model, x), file)
    file.seek(0)
    torch.testing.assert_close(torch.jit.load(file)(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", LAYERS)
def test_onnx(layer):
    """By the exporter that needs no further package; the file's operators are plain ones."""
    file = io.BytesIO()
    options = {} if torch.__version__.startswith("1.") else {"dynamo": False}
    try:
        torch.onnx.export(network(layer), torch.randn(2, 3, 8, 8), file, **options)
    except (ImportError, RuntimeError) as error:
        if importlib.util.find_spec("onnx") is not None:
            raise
        pytest.skip(f"torch.onnx of torch {torch.__version__} wants the package onnx: {error}")
    content = file.getvalue()
    assert b"Conv" in content and b"keel::" not in content and b"Eig" not in content


def test_onnx_by_torch_export():
    if torch.__version__.startswith("1."):
        pytest.skip(f"torch {torch.__version__} has no exporter based on torch.export")
    pytest.importorskip("onnxscript", reason="torch.onnx.export(dynamo=True) wants onnxscript")
    program = torch.onnx.export(network(), (torch.randn(2, 3, 8, 8),), dynamo=True)
    kinds = {node.op_type for node in program.model.graph}
    assert "Conv" in kinds
    assert all(node.domain != "keel" for node in program.model.graph)


@pytest.mark.parametrize("layer", LAYERS)
def test_torch_export(layer):
    if not hasattr(getattr(torch, "export", None), "export"):
        pytest.skip(f"torch {torch.__version__} has no torch.export")
    model, x = network(layer), torch.randn(2, 3, 8, 8)
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x), rtol=1e-4, atol=1e-5)
    if hasattr(torch.compiler, "is_exporting"):
        assert "keel" not in str(program.graph)


@pytest.mark.skipif(
    not hasattr(torch, "compile"), reason=f"torch {torch.__version__} has no torch.compile"
)
@pytest.mark.parametrize("layer", LAYERS)
def test_compiled_evaluation_has_one_graph(layer):
    model, x = network(layer), torch.randn(2, 3, 8, 8)
    graphs = []

    def backend(module, inputs):
        graphs.append(str(module.graph))
        return module.forward

    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend=backend)(x), model(x))
    assert len(graphs) == 1 and "keel.affine" in graphs[0]
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    x.requires_grad_()
    compiled(x).square().sum().backward()
    (expected,) = torch.autograd.grad(model(x).square().sum(), x)
    torch.testing.assert_close(x.grad, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(
    not hasattr(torch, "compile"), reason=f"torch {torch.__version__} has no torch.compile"
)
@pytest.mark.parametrize("layer", LAYERS)
def test_compiled_training_agrees(layer):
    plain, x = layer(6, group_size=3), correlated(20, 6, 4, dtype=torch.float32)
    twin = layer(6, group_size=3)
    compiled = torch.compile(twin, backend="aot_eager")
    torch.testing.assert_close(compiled(x), plain(x))
    torch.testing.assert_close(twin.running_matrix, plain.running_matrix)


@pytest.mark.parametrize("rule", [keel.Exact(), keel.PowerIteration(5)])
@pytest.mark.parametrize("layer", LAYERS)
@torch.backends.mkldnn.flags(enabled=False)  # oneDNN has bfloat16 convolutions for some processors only
def test_autocast_keeps_statistics_in_float32(layer, rule):
    made = layer(8, group_size=4, rule=rule)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), made)
    x = torch.randn(4, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
        activations = model[0](x).detach()
    y.float().square().sum().backward()
    assert y.dtype == activations.dtype == torch.bfloat16
    assert made.weight.grad.dtype == made.running_matrix.dtype == torch.float32
    twin = layer(8, group_size=4, rule=rule)
    twin(activations.float())
    torch.testing.assert_close(made.running_matrix, twin.running_matrix)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.eval()(x).dtype == torch.bfloat16
