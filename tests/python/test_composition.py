"""Every cell of composition.py, and that the page has them."""

import re

import pytest
import torch

import composition
import keel
from support import functional_call

FOUND = {}


@pytest.mark.parametrize("row", composition.ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("title", composition.COLUMNS)
def test_cell(title, row):
    found = FOUND[row.name, title] = composition.cell(row, title)
    assert found.state != "wrong", found.why
    if found.state == "missing":
        pytest.skip(f"needs {found.why}")


def test_the_page_is_right(root):
    """Of the versions of torch that the page has, and the rows that it has of them; composition.py --page writes it."""
    file = root / "docs" / "composition.md"
    expected = len(composition.ROWS) * len(composition.COLUMNS)
    if len(FOUND) != expected:
        pytest.skip("not all cells were run")
    text, title = file.read_text(), f"## {composition.described()}"
    if title not in composition.sections_of(text):
        pytest.skip(f"the page has no section {title!r}")
    known = composition.read_section(composition.sections_of(text)[title])
    new = composition.section({key: found for key, found in FOUND.items() if key in known})
    assert composition.page(text, new) == text


def test_the_page_has_every_row(root):
    named = re.findall(r"`(\w+)`", (root / "docs" / "composition.md").read_text())
    assert {row.name for row in composition.ROWS} <= set(named)


def test_a_page_can_be_read_again(root, monkeypatch):
    """So that --only leaves the other columns as they were."""
    for title, text in composition.sections_of((root / "docs" / "composition.md").read_text()).items():
        monkeypatch.setattr(composition, "described", lambda title=title: title[len("## "):])
        cells = composition.read_section(text)
        names = [row.name for row in composition.ROWS if any(name == row.name for name, _ in cells)]
        assert len(cells) == len(names) * len(composition.COLUMNS) > 0
        in_order = {(name, t): cells[name, t] for t in composition.COLUMNS for name in names}
        assert composition.section(in_order) == text


func = composition.func
needs_func = pytest.mark.skipif(func is None, reason="needs functorch")


@needs_func
def test_running_statistics_move_inside_a_derivative_and_are_refused_inside_vmap():
    x = torch.randn(20, 4)
    for transform in (func.grad, func.jacrev, lambda f: lambda x: func.jvp(f, (x,), (x,))):
        plain, layer = keel.nn.ZcaWhitening(4), keel.nn.ZcaWhitening(4)
        plain(x)
        transform(lambda x: layer(x).pow(3).sum())(x)
        for name, expected in plain.named_buffers():
            torch.testing.assert_close(getattr(layer, name), expected)
    with pytest.raises(RuntimeError, match="keel::running_average"):
        func.vmap(keel.nn.ZcaWhitening(4))(x[None])


@needs_func
def test_running_statistics_that_are_arguments_are_written():
    layer = keel.nn.ZcaWhitening(4, rank=keel.FullRank())
    x = torch.randn(20, 4)

    def loss(parameters, buffers):
        return functional_call(layer, {**parameters, **buffers}, (x,)).pow(3).sum()

    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    buffers = {name: b.clone() for name, b in layer.named_buffers()}
    found = func.grad(lambda p: loss(p, {k: v + 0 for k, v in buffers.items()}))(parameters)
    layer(x).pow(3).sum().backward()
    torch.testing.assert_close(found["weight"], layer.weight.grad)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="needs torch.compile")
def test_rules_can_be_made_inside_a_compiled_function():
    def function(m):
        values, _ = keel.eigh(m, keel.PowerIteration(terms=3))
        return keel.spectral(m, "log", rank=keel.Algorithm1(eps=1e-3)) + values

    m = torch.eye(3) * 2
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(m), function(m))


@needs_func
def test_a_layer_keeps_no_tensor_of_a_transform():
    layer = keel.nn.ZcaWhitening(4, track_running_stats=False)
    x = torch.randn(20, 4)
    layer(x)
    assert layer.kept is not None
    for transform in (func.grad, lambda f: func.vmap(f, in_dims=0)):
        transform(lambda x: layer(x).pow(3).sum())(x if transform is func.grad else x[None])
        assert layer.kept is None and layer.eigenvalues is None and layer.covariance is None
    layer(x)
    assert layer.eigenvalues.isfinite().all()


def test_scripted_layers_over_several_processes_are_refused():
    if not torch.distributed.is_available():
        pytest.skip("needs torch.distributed")
    layer = keel.nn.ZcaWhitening(4, process_group="world")
    with pytest.raises(RuntimeError, match="torch.jit.script does not support layers over several processes"):
        torch.jit.script(layer)


def test_scripted_layers_take_any_number_that_layers_take():
    numpy = pytest.importorskip("numpy")
    for options in ({"eps": 1, "momentum": 1}, {"momentum": numpy.float32(0.5), "group_size": numpy.int64(2)}):
        eager, made = (keel.nn.PcaDenoising(4, **options) for _ in range(2))
        made, x = torch.jit.script(made), torch.randn(30, 4)
        assert torch.equal(made(x), eager(x)) and torch.equal(made.eval()(x), eager.eval()(x))


def test_a_layer_alone_is_no_graph_for_fx():
    with pytest.raises(TypeError, match="cannot trace this layer on its own; .* put it into torch.nn.Sequential"):
        torch.fx.symbolic_trace(keel.nn.ZcaWhitening(4))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("kind", [keel.nn.ZcaWhitening, keel.nn.PcaDenoising, keel.nn.PcaWhitening])
def test_scripted_layers_do_what_layers_do(kind, tracked, affine, momentum):
    options = {"group_size": 2, "track_running_stats": tracked, "affine": affine, "momentum": momentum}
    eager, made = kind(4, **options), torch.jit.script(kind(4, **options))
    x = torch.randn(30, 4, 3)
    assert torch.equal(made(x), eager(x)) and torch.equal(made(x + 1), eager(x + 1))
    made.eval(), eager.eval()
    torch.testing.assert_close(made(x), eager(x))
    assert list(made.state_dict()) == list(eager.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(made.state_dict().values(), eager.state_dict().values()))
    for dtype in (torch.half, torch.bfloat16):
        torch.testing.assert_close(made.to(dtype)(x.to(dtype)), eager.to(dtype)(x.to(dtype)))
