"""What keel composes with: rows (operators and layers), columns (what torch can do with a function or a model), and for
each pair of them a check against torch.linalg, or the error that says what is missing.

test_composition.py runs every cell. The page of the documentation is made of the same cells:

    KEEL_LIBRARY=build/lib/libkeel_torch.so python3 tests/python/composition.py --page docs/composition.md --jobs 4
"""

import argparse
import contextlib
import copy
import importlib.util
import io
import json
import pickle
import re
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, NamedTuple, Optional

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "python"))

import keel  # noqa: E402
from support import composed, correlated  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
try:
    func = torch.func if hasattr(torch, "func") else __import__("functorch")
except ImportError:
    func = None

# Rows.


class Row(NamedTuple):
    """``function`` of one tensor and the ``truth`` it is held to, which is made of torch's operators alone."""

    name: str
    function: Callable
    truth: Callable
    example: torch.Tensor
    layer: Optional[nn.Module] = None
    symmetric: bool = False  # whether only symmetric matrices are meant
    twice: bool = True  # whether it has a second derivative


def symmetric(m):
    return (m + m.transpose(-2, -1)) / 2  # torch.onnx does not know mT


def matrices(count=2):
    """Gaps wide enough for a projector's series to converge."""
    generator = torch.Generator().manual_seed(7)
    made = []
    for _ in range(count):
        q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.double, generator=generator))[0]
        made.append(q * torch.tensor([2.0, 1.5, 0.1, 0.05], dtype=torch.double) @ q.mT)
    return symmetric(torch.stack(made)).to(DEVICE)


def of_eigenvalues(f):
    def truth(m):
        values, vectors = torch.linalg.eigh(symmetric(m))
        return vectors * f(values).unsqueeze(-2) @ vectors.mT

    return truth


def matrix_row(name, function, f, **options):
    """A function of symmetric matrices, and f, which it applies to eigenvalues."""
    return Row(name, lambda m: function(symmetric(m)), of_eigenvalues(f), matrices(),
               symmetric=True, **options)  # fmt: skip


def joined(values, vectors):
    # Squares: a vector's sign is a matter of taste.
    return torch.cat([values.unsqueeze(-1), vectors * vectors], -1)


def keels_eigh(m):
    values, vectors = keel.eigh(m, "masked")
    return torch.cat([values.unsqueeze(-1), vectors * vectors], -1)


def leading_two(values):
    return torch.cat([torch.zeros_like(values[..., :2]), torch.ones_like(values[..., :2])], -1)


def rectangles(rows, columns):
    """Singular values as far apart as the matrices' eigenvalues above."""
    generator = torch.Generator().manual_seed(11)
    u, _, v = torch.linalg.svd(torch.randn(2, rows, columns, dtype=torch.double, generator=generator), False)
    return (u * torch.tensor([2.0, 1.5, 0.4, 0.3], dtype=torch.double)[: u.shape[-1]] @ v).to(DEVICE)


def rectangle_row(name, function, of_svd, shape=(5, 4), **options):
    """A function of matrices of any shape, and what it makes of U, S and V^T."""
    def truth(m):
        return of_svd(*torch.linalg.svd(m, full_matrices=False))

    return Row(name, function, truth, rectangles(*shape), **options)


def squares(u, s, v):
    return torch.cat([(u * u).flatten(-2), s, (v * v).flatten(-2)], -1)


def side_by_side(parts):
    return torch.cat([part.flatten(-2) for part in parts], -1)


def rotation_of(u, _, v):
    sign = torch.linalg.det(u @ v).detach().sign()
    last = torch.cat([torch.ones_like(u[..., 0, 1:]), sign.unsqueeze(-1)], -1)
    return u * last.unsqueeze(-2) @ v


def kabschs_rotation(q):
    p = (3 * q).sin()
    crossed = (q - q.mean(-2, keepdim=True)).transpose(-2, -1) @ (p - p.mean(-2, keepdim=True))
    return rotation_of(*torch.linalg.svd(crossed))


def layer_row(kind, count, twice=False, **options):
    """A layer in training, and how many eigenvalues it keeps."""
    layer = kind(4, dtype=torch.double, device=DEVICE, **options)
    weight, bias = torch.linspace(0.5, 2, 4).double().to(DEVICE), torch.linspace(-1, 1, 4).double().to(DEVICE)
    with torch.no_grad():
        layer.weight.copy_(weight), layer.bias.copy_(bias)
    # Running statistics are written to, which vmap forbids, as it does for BatchNorm: see test_composition.py.
    free = copy.deepcopy(layer)
    free.track_running_stats = False
    for name in [*free._buffers]:
        free._buffers[name] = None
    return Row(kind.__name__, free, lambda x: composed(layer, x, weight, bias, count),
               correlated(12, 4, 3, mean=1.0).to(DEVICE), layer, twice=twice)  # fmt: skip


ROWS = [
    Row("eigh", lambda m: keels_eigh(symmetric(m)), lambda m: joined(*torch.linalg.eigh(symmetric(m))),
        matrices(), symmetric=True),
    matrix_row("spectral", lambda m: keel.spectral(m, "log").result, torch.log),
    matrix_row("sqrtm", keel.sqrtm, torch.sqrt),
    matrix_row("inv_sqrtm", keel.inv_sqrtm, torch.rsqrt),
    matrix_row("invm", keel.invm, torch.reciprocal),
    matrix_row("logm", keel.logm, torch.log),
    matrix_row("expm", keel.expm, torch.exp),
    matrix_row("powm", lambda m: keel.powm(m, 0.3), lambda values: values**0.3),
    matrix_row("projector", lambda m: keel.projector(m, keel.LeadingCount(2)), leading_two, twice=False),
    rectangle_row("svd", lambda m: squares(*keel.svd(m)), squares),
    rectangle_row("svdvals", keel.svdvals, lambda u, s, v: s),
    rectangle_row("nuclear_norm", keel.nuclear_norm, lambda u, s, v: s.sum(-1)),
    rectangle_row("singular", lambda m: keel.singular(m, "power(exponent=0.5)"),
                  lambda u, s, v: u * s.sqrt().unsqueeze(-2) @ v),
    rectangle_row("pinv", keel.pinv, lambda u, s, v: (u / s.unsqueeze(-2) @ v).transpose(-2, -1)),
    rectangle_row("low_rank", lambda m: keel.low_rank(m, keel.LeadingCount(2)),
                  lambda u, s, v: u[..., :2] * s[..., None, :2] @ v[..., :2, :], twice=False),
    rectangle_row("soft_threshold", lambda m: keel.soft_threshold(m, 0.1),
                  lambda u, s, v: u * (s - 0.1).relu().unsqueeze(-2) @ v, twice=False),
    rectangle_row("polar", lambda m: side_by_side(keel.polar(m)),
                  lambda u, s, v: side_by_side((u @ v, v.transpose(-2, -1) * s.unsqueeze(-2) @ v))),
    rectangle_row("procrustes", keel.procrustes, lambda u, s, v: u @ v),
    rectangle_row("special_procrustes", keel.special_procrustes, rotation_of, (4, 4)),
    Row("kabsch", lambda q: keel.kabsch((3 * q).sin(), q)[0], kabschs_rotation, rectangles(7, 4)),
    layer_row(keel.nn.ZcaWhitening, 4, twice=True, rank=keel.FullRank()),
    layer_row(keel.nn.PcaDenoising, 2, rank=keel.LeadingCount(2), rule=keel.Exact(terms=2000)),
    layer_row(keel.nn.PcaWhitening, 4),
]  # fmt: skip

# Columns.


class Missing(Exception):
    """This torch or this machine has not what a column is about."""


class Refusal(NamedTuple):
    """The error that stands in a cell where nothing works."""

    rows: Callable[[Row], bool]
    message: str


COLUMNS = {}
REFUSALS = {}
NOTES = {}


def column(title, note="", refuses=None, message=""):
    def add(check):
        COLUMNS[title] = check
        NOTES[title] = note
        if refuses is not None:
            REFUSALS[title] = Refusal(refuses, message)
        return check

    return add


def needs(what, there):
    if not there:
        raise Missing(what)


def close(found, expected, rtol=1e-6, atol=1e-7):
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


def weights(like):
    return torch.linspace(-1, 2, like.numel(), dtype=like.dtype, device=like.device).reshape(like.shape).cos()


def loss_of(function):
    return lambda x: (lambda y: (y * weights(y)).sum() + y.pow(3).mean())(function(x))


def gradient(function, x):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(loss_of(function)(x), x)[0]


def second(function, x):
    """The gradient along a direction, differentiated, by two backward passes."""
    x = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad(loss_of(function)(x), x, create_graph=True)
    return torch.autograd.grad((g * weights(x)).sum(), x)[0]


def no_second_derivative(row):
    return not row.twice


NO_SECOND = "no second derivative"


@column("autograd")
def _(row):
    close(gradient(row.function, row.example), gradient(row.truth, row.example))


@column("double backward", refuses=no_second_derivative, message=NO_SECOND)
def _(row):
    close(second(row.function, row.example), second(row.truth, row.example), rtol=1e-5)


@column("func.grad, nested twice", refuses=no_second_derivative, message=NO_SECOND)
def _(row):
    needs("functorch", func)
    x, loss = row.example, loss_of(row.function)
    nested = func.grad(lambda x: (func.grad(loss)(x) * weights(x)).sum())(x)
    close(nested, second(row.truth, x), rtol=1e-5)


def jacobian(row):
    return torch.autograd.functional.jacobian(row.truth, row.example)


@column("func.jacrev")
def _(row):
    needs("functorch", func)
    close(func.jacrev(row.function)(row.example), jacobian(row))


@column("func.jvp, jacfwd", "forward mode")
def _(row):
    needs("functorch", func)
    x = row.example
    full = jacobian(row)
    _, tangent = func.jvp(row.function, (x,), (weights(x),))
    close(tangent, (full * weights(x)).flatten(-x.dim()).sum(-1))
    close(func.jacfwd(row.function)(x), full)


@column("func.hessian", refuses=no_second_derivative, message=NO_SECOND)
def _(row):
    needs("functorch", func)
    hessian = func.hessian(loss_of(row.function))(row.example)
    along = (hessian * weights(row.example)).flatten(-row.example.dim()).sum(-1)
    close(along, second(row.truth, row.example), rtol=1e-5)


@column("func.vmap", "over every dimension, also of the gradient")
def _(row):
    needs("functorch", func)
    for dim in range(row.example.dim() + 1):
        entries = [row.example * scale for scale in (1.0, 1.5, 0.7)]
        batch = torch.stack(entries, dim)
        close(func.vmap(row.function, in_dims=dim)(batch), torch.stack([row.truth(x) for x in entries]))
        grads = torch.stack([gradient(row.truth, x) for x in entries])
        close(func.vmap(func.grad(loss_of(row.function)), in_dims=dim)(batch), grads)


def trained(function, example, steps=3, scale=1.0):
    """A parameter after some steps of gradient descent through the function, and the losses."""
    parameter = torch.ones((), dtype=example.dtype, device=example.device, requires_grad=True)
    losses = []
    for _ in range(steps):
        loss = loss_of(function)(parameter * example * scale)
        (g,) = torch.autograd.grad(loss, parameter)
        parameter = (parameter - 0.01 * g / (1 + g.abs())).detach().requires_grad_()
        losses.append(loss.detach())
    return torch.stack(losses)


def compiled(row, **options):
    needs("torch.compile", hasattr(torch, "compile"))
    torch._dynamo.reset()
    function = row.layer if row.layer is not None else row.function
    function = copy.deepcopy(function)
    return torch.compile(function, fullgraph=True, **options)


@column("compile, training", "fullgraph=True")
def _(row):
    close(trained(compiled(row), row.example), trained(row.truth, row.example))


for _mode in ("reduce-overhead", "max-autotune"):

    @column(f"compile, {_mode}", "training, CUDA graphs")
    def _(row, mode=_mode):
        needs("a GPU", DEVICE == "cuda")
        close(trained(compiled(row, mode=mode), row.example, 5), trained(row.truth, row.example, 5))


@column("compile, dynamic shapes")
def _(row):
    function = compiled(row, dynamic=True)
    for count in (2, 3, 5):
        x = correlated(10 * count, 4, 3).to(DEVICE)
        if row.layer is None:
            x = matrices(count) if row.symmetric else torch.cat([row.example] * count)
        close(trained(function, x, 1), trained(row.truth, x, 1))


class Model(nn.Module):
    """A small network that ends in the row's function of matrices, or has its layer in it."""

    def __init__(self, row):
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=torch.double, device=DEVICE)
        with torch.no_grad():
            self.linear.weight.copy_(torch.eye(4) + 0.1 * weights(self.linear.weight))
            self.linear.bias.zero_()
        self.rest = copy.deepcopy(row.layer) if row.layer is not None else OfMatrices(row)

    def forward(self, x):
        return self.rest(self.linear(x))


class OfMatrices(nn.Module):
    def __init__(self, row):
        super().__init__()
        self.function = row.function

    def forward(self, x):
        return self.function(x @ x.transpose(-2, -1) + torch.eye(4, dtype=torch.double, device=DEVICE) / 4)


def samples(row):
    if row.layer is None:
        return matrices()
    return correlated(12, 4, mean=1.0).to(DEVICE)


def plain(row):
    """The model in torch's operators."""
    model = Model(row)
    linear, truth = model.linear, row.truth
    if row.layer is None:
        return linear, lambda x: truth((lambda y: y @ y.mT + torch.eye(4).to(y) / 4)(linear(x)))
    return linear, lambda x: truth(linear(x))


def weight_gradient(model, linear, x):
    linear.weight.grad = None
    loss_of(model)(x).backward()
    return linear.weight.grad


def check_model(row, model, linear, rtol=1e-6):
    """Gradients of a model that was wrapped, copied or rewritten."""
    linear_of_truth, truth = plain(row)
    x = samples(row)
    close(model(x), truth(x), rtol=rtol)
    close(weight_gradient(model, linear, x), weight_gradient(truth, linear_of_truth, x), rtol=rtol)


def evaluated(row):
    """A model in evaluation whose layer has seen a batch."""
    model = Model(row)
    model(samples(row))
    return model.eval()


@column("torch.export", "evaluation; layers without operators of keel's, from torch 2.7 on")
def _(row):
    needs("torch.export", hasattr(getattr(torch, "export", None), "export"))
    model = evaluated(row)
    program = torch.export.export(model, (samples(row),))
    close(program.module()(samples(row)), model(samples(row)))
    if hasattr(torch.compiler, "is_exporting"):
        assert ("keel" in str(program.graph)) == (row.layer is None)


@column("AOTInductor", "evaluation")
def _(row):
    inductor = getattr(torch, "_inductor", None)
    needs("torch.export", hasattr(getattr(torch, "export", None), "export"))
    needs("aoti_compile_and_package", hasattr(inductor, "aoti_compile_and_package"))
    model, x = evaluated(row), samples(row)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        program = torch.export.export(model, (x,))
        package = inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
        close(inductor.aoti_load_package(package)(x), model(x))


def is_function(row):
    return row.layer is None


@column("torch.onnx", "evaluation", refuses=is_function, message=r"keel(::|\.)")
def _(row):
    model, x, file = evaluated(row).cpu(), samples(row).cpu(), io.BytesIO()
    options = {} if torch.__version__.startswith("1.") else {"dynamo": False}
    try:
        torch.onnx.export(model, x, file, **options)
    except (ImportError, RuntimeError) as error:
        text = str(error)
        if "onnx" in text.lower() and importlib.util.find_spec("onnx") is None and "keel" not in text:
            raise Missing("the package onnx")
        raise
    assert b"keel" not in file.getvalue() and b"Eig" not in file.getvalue()


@column("jit.trace", "layers in evaluation")
def _(row):
    if row.layer is not None:
        model = evaluated(row)
        traced = torch.jit.trace(model, samples(row))
        return close(traced(samples(row) * 2), model(samples(row) * 2))
    traced = torch.jit.trace(row.function, row.example)
    close(gradient(traced, row.example * 2), gradient(row.truth, row.example * 2))


@column("jit.script", "rules and policies as texts")
def _(row):
    if row.layer is None:
        scripted = torch.jit.script(getattr(sys.modules[__name__], f"scripted_{row.name}"))
        through = symmetric if row.symmetric else lambda m: m
        close(gradient(lambda m: scripted(through(m)), row.example), gradient(row.truth, row.example))
        return
    model = torch.jit.script(Model(row))
    check_model(row, model, model.linear)
    eager = Model(row)
    eager(samples(row)), weight_gradient(eager, eager.linear, samples(row))
    close(model.eval()(samples(row)), eager.eval()(samples(row)))


@column("torch.fx", "symbolic_trace")
def _(row):
    model = torch.fx.symbolic_trace(Model(row))
    check_model(row, model, model.linear)


@column("autocast", "bfloat16: results in the type that came, statistics and gradients in float32")
def _(row):
    model, x = Model(row).float(), samples(row).float()
    model.rest.float()
    reference = copy.deepcopy(model)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y = model(x) if row.layer is not None else row.function(x)
    assert y.dtype == (torch.bfloat16 if row.layer is not None else torch.float32)
    expected = reference(x) if row.layer is not None else row.function(x)
    tolerance = 0.1 if row.layer is not None else 1e-4
    torch.testing.assert_close(y.float(), expected, rtol=tolerance, atol=tolerance)
    if row.layer is not None:
        y.float().pow(2).sum().backward()
        assert model.rest.weight.grad.dtype == torch.float32 and model.rest.running_matrix.dtype == torch.float32


@column("checkpoint", "both kinds")
def _(row):
    from torch.utils.checkpoint import checkpoint

    for reentrant in (True, False):
        model = Model(row)

        def run(x, model=model, reentrant=reentrant):
            return checkpoint(model.rest, model.linear(x), use_reentrant=reentrant)

        check_model(row, run, model.linear)


@contextlib.contextmanager
def one_process():
    import torch.distributed as dist

    needs("torch.distributed", dist.is_available())
    backend = "nccl" if DEVICE == "cuda" and dist.is_nccl_available() else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


@column("DDP", "one process here; several in tests/distributed")
def _(row):
    with one_process():
        model = nn.parallel.DistributedDataParallel(Model(row))
        check_model(row, model, model.module.linear)


@column("FSDP2", "one process")
def _(row):
    needs("a GPU", DEVICE == "cuda")
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise Missing("fully_shard")
    with one_process():
        from torch.distributed.device_mesh import init_device_mesh

        model = fully_shard(Model(row), mesh=init_device_mesh(DEVICE, (1,)))
        linear_of_truth, truth = plain(row)
        x = samples(row)
        close(model(x), truth(x))
        loss_of(model)(x).backward()
        expected = weight_gradient(truth, linear_of_truth, x)
        close(model.linear.weight.grad.full_tensor(), expected)


@column("DTensor", refuses=lambda row: True, message=r"(keel|aten)\.\w+.*(sharding strategy|DTensor)")
def _(row):
    try:
        from torch.distributed.tensor import Replicate, distribute_tensor
    except ImportError:
        raise Missing("torch.distributed.tensor")
    with one_process():
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh(DEVICE, (1,))
        operator = torch.ops.keel.whiten_forward if row.layer is not None else None
        x = distribute_tensor(row.example, mesh, [Replicate()])
        if operator is None:
            row.function(x)
        else:
            operator(x, None, None, 1, "zca")


@column("deepcopy")
def _(row):
    model = Model(row)
    if row.layer is not None:
        model(samples(row))  # with what a layer keeps of a step
    copied = copy.deepcopy(model)
    check_model(row, copied, copied.linear)


@column("pickle", "functions by their names; models whole")
def _(row):
    if row.layer is None:
        function = getattr(keel, row.name)
        assert pickle.loads(pickle.dumps(function)) is function
        rule = keel.PowerIteration(7)
        assert pickle.loads(pickle.dumps(rule)) == rule
        return
    model = pickle.loads(pickle.dumps(Model(row)))
    check_model(row, model, model.linear)


@column("swa_utils", "AveragedModel and update_bn")
def _(row):
    from torch.optim.swa_utils import AveragedModel, update_bn

    model = Model(row)
    averaged = AveragedModel(model)
    averaged.update_parameters(model)
    x = samples(row)
    update_bn([x], averaged)
    close(averaged.module.linear.weight, model.linear.weight)
    if row.layer is not None:
        assert averaged.module.rest.num_batches_tracked == 1
    reference = evaluated(row)
    if row.layer is not None:
        reference.rest.momentum = None
        reference.rest.reset_running_stats()
        reference.train()(x), reference.eval()
    close(averaged.eval()(x), reference(x))


# torch.jit.script reads sources: it wants functions with names.


def scripted_eigh(m: torch.Tensor):
    values, vectors = keel.eigh(m, "masked")
    return torch.cat([values.unsqueeze(-1), vectors * vectors], -1)


def scripted_spectral(m: torch.Tensor):
    return keel.spectral(m, "log")[0]


def scripted_sqrtm(m: torch.Tensor):
    return keel.sqrtm(m)


def scripted_inv_sqrtm(m: torch.Tensor):
    return keel.inv_sqrtm(m)


def scripted_invm(m: torch.Tensor):
    return keel.invm(m)


def scripted_logm(m: torch.Tensor):
    return keel.logm(m)


def scripted_expm(m: torch.Tensor):
    return keel.expm(m)


def scripted_powm(m: torch.Tensor):
    return keel.powm(m, 0.3)


def scripted_projector(m: torch.Tensor):
    return keel.projector(m, "leading_count(count=2)")


def scripted_svd(m: torch.Tensor):
    u, s, v = keel.svd(m)
    return torch.cat([(u * u).flatten(-2), s, (v * v).flatten(-2)], -1)


def scripted_svdvals(m: torch.Tensor):
    return keel.svdvals(m)


def scripted_nuclear_norm(m: torch.Tensor):
    return keel.nuclear_norm(m)


def scripted_singular(m: torch.Tensor):
    return keel.singular(m, "power(exponent=0.5)")


def scripted_pinv(m: torch.Tensor):
    return keel.pinv(m)


def scripted_low_rank(m: torch.Tensor):
    return keel.low_rank(m, "leading_count(count=2)")


def scripted_soft_threshold(m: torch.Tensor):
    return keel.soft_threshold(m, 0.1)


def scripted_polar(m: torch.Tensor):
    factor, positive = keel.polar(m)
    return torch.cat([factor.flatten(-2), positive.flatten(-2)], -1)


def scripted_procrustes(m: torch.Tensor):
    return keel.procrustes(m)


def scripted_special_procrustes(m: torch.Tensor):
    return keel.special_procrustes(m)


def scripted_kabsch(m: torch.Tensor):
    return keel.kabsch((3 * m).sin(), m)[0]


# Cells.


class Cell(NamedTuple):
    state: str  # "yes", "error" (as said), "missing" (here), or "wrong"
    why: str = ""


def cell(row, title):
    refusal = REFUSALS.get(title)
    refused = refusal is not None and refusal.rows(row)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            COLUMNS[title](row)
    except Missing as error:
        return Cell("missing", str(error))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if refused and re.search(refusal.message, text):
            line = next(line for line in text.splitlines() if re.search(refusal.message, line))
            return Cell("error", line.strip())
        return Cell("wrong", text)
    return Cell("wrong", "expected an error, and it works") if refused else Cell("yes")


# The page.

HEAD = """# What keel composes with

Made by `tests/python/composition.py --page`, which runs every cell and compares it with the same thing made of torch's
own operators (`torch.linalg.eigh` where eigenvalues are apart). A cell is *yes*, or *error*: then what is missing is
said by an error, never by wrong numbers. An empty cell: this torch or this machine has not what the row is about.

Functions are at full rank, `projector` keeps 2 of 4 eigenvalues. `ZcaWhitening` has `rank=keel.FullRank()`; where
eigenvalues are cut off, as its default does, its second derivatives are errors, as `PcaDenoising`'s are. Layers train
on the batch's statistics; `func` is `torch.func`, or `functorch` with torch 1.13. Running statistics move inside `grad`
and `jvp` as outside, and are an error inside `vmap`, as BatchNorm's are: there take `track_running_stats=False`.
"""


def described():
    machine = torch.cuda.get_device_name(0) if DEVICE == "cuda" else "CPU"
    return f"torch {torch.__version__}, {machine}"


def section(cells):
    """A table whose columns are rows of the same cells."""
    alike = {}
    for row in ROWS:
        alike.setdefault(tuple(cells[row.name, title].state for title in COLUMNS), []).append(row.name)
    names = [", ".join(f"`{name}`" for name in group) for group in alike.values()]
    lines = [f"## {described()}", "", "| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    shown = {"yes": "yes", "error": "error", "missing": "", "wrong": "**wrong**"}
    for place, title in enumerate(COLUMNS):
        note = f" ({NOTES[title]})" if NOTES[title] else ""
        lines.append(f"| {title}{note} | " + " | ".join(shown[states[place]] for states in alike) + " |")
    errors = {}
    for (_, title), found in cells.items():
        if found.state == "error":
            errors.setdefault(title, []).append(found.why)
    if errors:
        lines += ["", "The errors:", ""]
        for title, messages in errors.items():
            lines.append(f"- {title}: `{shortened(messages[0])}`")
    return "\n".join(lines) + "\n"


def shortened(message):
    message = re.sub(r"^\w+(\.\w+)*: ", "", message).replace("`", "'")
    return message if len(message) <= 160 else message[:157] + "..."


def page(old, new):
    """The page with this torch's section in it; other sections stay. Newest torch first."""
    sections = {}
    for part in re.split(r"(?m)^(?=## )", old)[1:] + [new]:
        sections[part.splitlines()[0]] = part.rstrip() + "\n"

    def version(title):
        return [int(n) for n in re.findall(r"\d+", title)[:2]]

    return HEAD + "\n" + "\n".join(sections[title] for title in sorted(sections, key=version, reverse=True))


def run_column(title):
    found = []
    for row in ROWS:
        torch.manual_seed(0)
        found.append(cell(row, title))
    return found


def run_in_a_process(title):
    """The same beside other columns: compilers take most of the time."""
    command = [sys.executable, __file__, "--column", title]
    result = subprocess.run(command, capture_output=True, text=True)
    lines = result.stdout.splitlines()
    if result.returncode != 0 or not lines:
        return [Cell("wrong", result.stderr[-500:])] * len(ROWS)
    return [Cell(*found) for found in json.loads(lines[-1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, help="write this torch's section of this page")
    parser.add_argument("--only", default="", help="only columns whose title has this in it")
    parser.add_argument("--jobs", type=int, default=1, help="columns at a time")
    parser.add_argument("--column", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.column:
        print(json.dumps(run_column(arguments.column)))
        return 0
    titles = [title for title in COLUMNS if arguments.only in title]
    run = run_column if arguments.jobs == 1 else run_in_a_process
    cells = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for title, found in zip(titles, pool.map(run, titles)):
            print(f"{title}: " + " ".join(each.state for each in found), flush=True)
            for row, each in zip(ROWS, found):
                cells[row.name, title] = each
                if each.state == "wrong":
                    print(f"  {row.name}: {each.why[:1000]}", flush=True)
    if arguments.page:
        old = arguments.page.read_text() if arguments.page.exists() else ""
        arguments.page.write_text(page(old, section(cells)))
    return any(found.state == "wrong" for found in cells.values())


if __name__ == "__main__":
    sys.exit(main())
