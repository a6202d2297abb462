"""The columns of composition.py: what torch can do with a function or a model, each a check of one row."""

import contextlib
import copy
import functools
import importlib.util
import io
import pickle
import subprocess
import sys
import tempfile
from typing import Callable, NamedTuple

import torch
from torch import nn

import composition_rows
import keel
from composition_rows import DEVICE, Row, matrices, symmetric
from support import correlated

try:
    func = torch.func if hasattr(torch, "func") else __import__("functorch")
except ImportError:
    func = None


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
    return gradient_along(loss_of(function), x, 1)


def gradient_along(function, x, along):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad((function(x) * along).sum(), x)[0]


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
        needs("a complex svd that does not wait for the GPU", row.name != "complex_svd")
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
            weight = self.linear.weight
            weight.copy_(torch.eye(4).to(weight) + 0.1 * weights(weight))
            self.linear.bias.zero_()
        self.rest = copy.deepcopy(row.layer) if row.layer is not None else OfMatrices(row)

    def forward(self, x):
        return self.rest(self.linear(x))


class OfMatrices(nn.Module):
    def __init__(self, row):
        super().__init__()
        self.function = row.function
        ridge = torch.eye(4, dtype=torch.double, device=DEVICE) / 4
        self.register_buffer("ridge", ridge, persistent=False)  # goes where the model goes

    def forward(self, x):
        return self.function(x @ x.transpose(-2, -1) + self.ridge)


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


WITHOUT_KEEL = """
import sys, tempfile, torch
model, x = torch.nn.Linear(4, 4, device=sys.argv[1]), torch.ones(4, 4, device=sys.argv[1])
with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    program = torch.export.export(model, (x,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), model(x))
"""


@functools.lru_cache(None)
def loads_models_of_torchs_own():
    """Asked in another process: torch 2.11's wheel, beside GCC 13, dies of a signal where it loads one."""
    return subprocess.run([sys.executable, "-c", WITHOUT_KEEL, DEVICE], capture_output=True).returncode == 0


@column("AOTInductor", "evaluation")
def _(row):
    inductor = getattr(torch, "_inductor", None)
    needs("torch.export", hasattr(getattr(torch, "export", None), "export"))
    needs("aoti_compile_and_package", hasattr(inductor, "aoti_compile_and_package"))
    needs("aoti_load_package that loads a model of torch's own", loads_models_of_torchs_own())
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    needs("torch 2.7, since 2.6 passes torch.linalg.solve_triangular's arguments wrongly",
          version >= (2, 7) or "generalized" not in row.name)  # fmt: skip
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
        scripted = torch.jit.script(getattr(composition_rows, f"scripted_{row.name}"))
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


@column("DTensor", refuses=lambda row: row.layer is not None, message=r"keel\.\w+.*sharding strategy")
def _(row):
    try:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.experimental import implicit_replication
    except ImportError:
        raise Missing("torch.distributed.tensor")
    with one_process():
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh(DEVICE, (1,))
        for placement in Replicate(), Shard(0):
            x = distribute_tensor(row.example, mesh, [placement]).requires_grad_()
            if row.layer is not None:
                torch.ops.keel.whiten_forward(x, None, None, 1, "zca")
            with implicit_replication():  # of a constant in the function
                y = row.function(x)
            along = distribute_tensor(weights(y.to_local()), mesh, [Replicate()])
            (grad,) = torch.autograd.grad((y * along).sum(), x)
            close(y.full_tensor(), row.truth(row.example))
            close(grad.full_tensor(), gradient_along(row.truth, row.example, along.to_local()))


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
        function = getattr(keel, row.name.replace("complex_", ""))
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
