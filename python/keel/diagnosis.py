"""What eigenvalues and gradients do inside a model: :func:`keel.watch`."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["Finding", "Watch", "watch"]


class _Seen(NamedTuple):
    """What is looked at of a call."""

    result: Any
    values: Tensor  # eigenvalues or singular values (..., n), sorted either way
    kept: Optional[Tensor]  # how many of them are used (...)
    rule: str


def _spectral(function: Callable[..., Tuple[str, str, str]]) -> Callable[..., _Seen]:
    """Named functions of matrices, by the operator that says its eigenvalues too."""

    def see(matrix: Tensor, *arguments: Any, **options: Any) -> _Seen:
        text, rank, rule = function(*arguments, **options)
        result, values, _, kept = torch.ops.keel.spectral(matrix, text, rank, rule)
        return _Seen(result, values, kept, rule)

    return see


def _named(name: str) -> Callable[..., _Seen]:
    return _spectral(lambda rule="exact": (name, "full", rule))


def _of_eigh(matrix: Tensor, rule: str = "masked", descending: bool = False) -> _Seen:
    result = torch.ops.keel.eigh(matrix, rule, descending)
    return _Seen(result, result[0], None, rule)


def _of_spectral(matrix: Tensor, function: str, rank: str = "full", rule: str = "exact") -> _Seen:
    result = torch.ops.keel.spectral(matrix, function, rank, rule)
    return _Seen(result, result[1], result[3], rule)


def _of_svd(matrix: Tensor, rule: str = "masked") -> _Seen:
    result = torch.ops.keel.svd(matrix, rule)
    return _Seen(result, result[1], None, rule)


def _of_layer(
    input: Tensor, weight: Any, bias: Any, groups: int, map: str, rule: str = "exact", *ending: Any
) -> _Seen:
    result = torch.ops.keel.whiten_forward(input, weight, bias, groups, map, rule, *ending)
    return _Seen(result, result[4], result[6], rule)


def _of_torch(function: Callable[..., Any], place: int) -> Callable[..., _Seen]:
    def see(*arguments: Any, **options: Any) -> _Seen:
        result = function(*arguments, **options)
        return _Seen(result, result[place], None, "torch")

    return see


_OPERATIONS: Dict[Any, Tuple[str, Callable[..., _Seen]]] = {
    torch.linalg.eigh: ("torch.linalg.eigh", _of_torch(torch.linalg.eigh, 0)),
    torch.linalg.svd: ("torch.linalg.svd", _of_torch(torch.linalg.svd, 1)),
    torch.ops.keel.eigh: ("eigh", _of_eigh),
    torch.ops.keel.svd: ("svd", _of_svd),
    torch.ops.keel.spectral: ("spectral", _of_spectral),
    torch.ops.keel.sqrtm: ("sqrtm", _named("sqrt")),
    torch.ops.keel.inv_sqrtm: ("inv_sqrtm", _named("inv_sqrt")),
    torch.ops.keel.invm: ("invm", _named("inv")),
    torch.ops.keel.logm: ("logm", _named("log")),
    torch.ops.keel.expm: ("expm", _named("exp")),
    torch.ops.keel.powm: (
        "powm",
        _spectral(lambda exponent, rule="exact": (f"power(exponent={float(exponent)!r})", "full", rule)),
    ),
    torch.ops.keel.projector: ("projector", _spectral(lambda rank, rule="exact": ("one", rank, rule))),
    torch.ops.keel.whiten_forward: ("layer", _of_layer),
}
_INVERTS = {"inv_sqrtm", "invm", "logm", "layer"}


class _Record:
    """Extremes over all calls, kept where the numbers are: nothing waits for them."""

    def __init__(self, rule: str, size: int, dtype: torch.dtype) -> None:
        self.rule, self.size, self.dtype, self.calls = rule, size, dtype, 0
        self.extremes: Dict[str, Tensor] = {}
        self.last: Dict[str, Tensor] = {}

    def take(self, what: str, value: Tensor, best: Callable[[Tensor, Tensor], Tensor]) -> None:
        before = self.extremes.get(what)
        # NaN stays: it is what one looks for.
        self.extremes[what] = value if before is None or before.device != value.device else best(before, value)
        self.last[what] = value

    def call(self, seen: _Seen) -> None:
        self.calls += 1
        values = seen.values.detach().double()
        if values.numel() == 0:
            return
        largest = values.abs().amax(-1)
        tiny = torch.finfo(torch.double).tiny
        if values.shape[-1] > 1:
            gap = (values.diff(dim=-1).abs().amin(-1) / largest.clamp_min(tiny)).amin()
            self.take("gap", gap, torch.minimum)
        self.take("condition", (largest / values.abs().amin(-1).clamp_min(tiny)).amax(), torch.maximum)
        if seen.kept is not None:
            self.take("kept", seen.kept.amin().double(), torch.minimum)

    def gradient(self, grad: Tensor) -> None:
        if grad.numel() != 0:
            self.take("gradient", grad.detach().abs().amax().double(), torch.maximum)


@dataclass(frozen=True)
class Finding:
    """What was seen of one operation in one layer, over all its calls."""

    layer: str  #: the module's name, "" for the model itself
    operation: str  #: "eigh", "torch.linalg.eigh", "sqrtm", "layer" and so on
    rule: str  #: the gradient rule, or "torch"
    calls: int
    size: int  #: n, the number of eigenvalues
    gap: Optional[float]  #: smallest gap between neighbours, relative to the largest; None for n = 1
    condition: Optional[float]  #: largest, of largest to smallest eigenvalue in magnitude
    kept: Optional[int]  #: fewest that were kept, where a rank policy chooses
    gradient: Optional[float]  #: largest entry of the input's gradient; None where none came
    advice: str  #: in words


def _advice(record: _Record, operation: str, numbers: Dict[str, float]) -> str:
    gap, condition, gradient = (numbers.get(what) for what in ("gap", "condition", "gradient"))
    epsilon = torch.finfo(torch.float32 if record.dtype != torch.double else torch.double).eps
    said: List[str] = []
    if gradient is not None and not math.isfinite(gradient):
        said.append(f"A gradient was {gradient}.")
    meets = gap is not None and gap <= 10 * math.sqrt(record.size) * epsilon
    near = gap is not None and gap <= math.sqrt(epsilon)
    takes_differences = record.rule in ("torch", "analytic")
    if (meets or near) and takes_differences and operation != "layer":
        own = operation.rpartition(".")[2]
        said.append(
            f"Eigenvalues {'meet' if meets else 'nearly meet'}, and this gradient divides by their "
            f"differences. If the loss is a function of the matrix, use keel.sqrtm or one of its siblings; if it "
            f"sees a subspace as a whole, keel.{own} with its default rule, Masked; if it sees single "
            f"eigenvectors, keel.{own} with keel.PowerIteration(19)."
        )
    elif meets and record.rule.startswith("masked") and operation in ("eigh", "svd"):
        said.append(
            "Eigenvalues meet, and Masked leaves such pairs out: right for a loss that sees their eigenspace as a "
            "whole. For a function of the matrix use keel.sqrtm or one of its siblings, for single eigenvectors "
            "keel.PowerIteration(19)."
        )
    kept = numbers.get("kept")
    if kept is not None and kept < record.size:
        if operation == "layer":
            said.append(
                f"Only {int(kept)} of {record.size} directions were whitened in some group: fewer samples than "
                "channels, or channels that say the same. Smaller groups (group_size) or larger batches keep more."
            )
        else:
            said.append(f"The rank was cut to {int(kept)} of {record.size}.")
    cut = kept is not None and kept < record.size
    if condition is not None and condition >= 0.1 / epsilon and operation in _INVERTS and not cut:
        said.append(
            f"The condition, {condition:.0e}, is beyond what {str(record.dtype).rpartition('.')[2]} resolves, and "
            "small eigenvalues are divided by: a larger eps, or a rank policy (keel.LeadingEnergy), leaves rounding "
            "out."
        )
    return " ".join(said) if said else "Nothing to worry about."


class Watch(TorchFunctionMode):
    """What :func:`watch` returns: a context manager that looks on while it is entered."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = model
        self._records: Dict[Tuple[str, str], _Record] = {}
        self._stack: List[str] = []
        self._hooks: List[Any] = []

    # Where a call happens.

    def __enter__(self) -> Watch:
        for name, module in self._model.named_modules():
            self._hooks.append(module.register_forward_pre_hook(self._entering(name)))
            self._hooks.append(module.register_forward_hook(self._leaving(name)))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._stack.clear()
        super().__exit__(*error)

    def _entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            if module is self._model:
                self._stack.clear()  # of a forward that ended in an error
            self._stack.append(name)

        return hook

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if self._stack and self._stack[-1] == name:
                self._stack.pop()

        return hook

    # What happens there.

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        watched = _OPERATIONS.get(func) if callable(func) else None
        if watched is None:
            return func(*args, **kwargs)
        operation, see = watched
        seen = see(*args, **kwargs)
        matrix = args[0] if args else next(iter(kwargs.values()))
        key = (self._stack[-1] if self._stack else "", operation)
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(seen.rule, seen.values.shape[-1], matrix.dtype)
        with torch.no_grad():
            record.call(seen)
        if matrix.requires_grad and torch.is_grad_enabled():
            matrix.register_hook(record.gradient)
        return seen.result

    # What is said of it.

    def findings(self) -> List[Finding]:
        """One for each operation of each layer. Here the numbers are waited for."""
        found = []
        for (layer, operation), record in self._records.items():
            numbers = {what: float(value) for what, value in record.extremes.items()}
            found.append(
                Finding(
                    layer=layer,
                    operation=operation,
                    rule=record.rule,
                    calls=record.calls,
                    size=record.size,
                    gap=numbers.get("gap"),
                    condition=numbers.get("condition"),
                    kept=int(numbers["kept"]) if "kept" in numbers else None,
                    gradient=numbers.get("gradient"),
                    advice=_advice(record, operation, numbers),
                )
            )
        return found

    def write(self, writer: Any, step: int) -> None:
        """The last call's numbers as scalars of a TensorBoard ``SummaryWriter``."""
        for (layer, operation), record in self._records.items():
            for what, value in record.last.items():
                writer.add_scalar(f"keel/{layer or 'model'}/{operation}/{what}", float(value), step)

    def __str__(self) -> str:
        found = self.findings()
        if not found:
            return "keel.watch: no eigendecomposition was seen"
        head = ("layer", "operation", "rule", "calls", "n", "gap", "condition", "kept", "gradient")
        lines = [head] + [
            (f.layer or "(model)", f.operation, f.rule.partition("(")[0], str(f.calls), str(f.size), _short(f.gap),
             _short(f.condition), "" if f.kept is None else str(f.kept), _short(f.gradient))
            for f in found
        ]  # fmt: skip
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        words = [
            textwrap.fill(f"{f.layer or '(model)'}, {f.operation}: {f.advice}", 110, subsequent_indent="  ")
            for f in found
        ]
        return "\n".join([*table, "", *words])

    __repr__ = __str__


def _short(number: Optional[float]) -> str:
    return "" if number is None else f"{number:.1e}"


def watch(model: nn.Module) -> Watch:
    """Looks on while a model runs: how close eigenvalues come, what is kept of them, how large gradients are,
    for each layer that decomposes a matrix by :func:`torch.linalg.eigh`, :func:`torch.linalg.svd`, functions of
    keel or keel's layers; and says in words which rule to choose.

    Numbers stay where they are computed, and nothing waits for them until :meth:`Watch.findings`, ``print`` or
    :meth:`Watch.write` asks. Outside of the ``with`` block there is nothing of it left in the model. Run the
    model as it is, not compiled.

    >>> class Whiten(torch.nn.Module):
    ...     def forward(self, x):
    ...         l, V = torch.linalg.eigh(x.T @ x / len(x))
    ...         return x @ V @ torch.diag(l.clamp_min(1e-3).rsqrt()) @ V.T
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), Whiten())
    >>> with torch.no_grad():
    ...     _ = model[0].weight.zero_()  # so that every sample is the same
    >>> with keel.watch(model) as seen:
    ...     model(torch.randn(32, 4)).sum().backward()
    >>> finding, = seen.findings()
    >>> finding.layer, finding.operation, finding.size
    ('2', 'torch.linalg.eigh', 4)
    >>> print(finding.advice.partition(", and")[0].rpartition(". ")[2])
    Eigenvalues meet
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"keel.watch: expected a torch.nn.Module, got {type(model).__name__}")
    return Watch(model)
