""":func:`keel.watch` records eigenvalues and gradients inside a model and gives advice."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ._transforms import unwrapped
from ._watched import OPERATIONS, Seen

__all__ = ["Finding", "Watch", "watch"]

_INVERTS = {"inv_sqrtm", "invm", "logm", "layer"}
_ROTATIONS = {"polar", "procrustes", "special_procrustes", "kabsch"}

# The advice's words for the values, the vectors, and the functions whose gradients have no pole.
_WORDS = {
    "eigh": ("Eigenvalues", "eigenvectors", "keel.eigh(M).apply(f), keel.sqrtm or one of its siblings"),
    "svd": ("Singular values", "singular vectors", "keel.procrustes, keel.singular or one of their siblings"),
}


class _Record:
    """Extremes over all calls. They stay on the device, so recording them never synchronises."""

    def __init__(self, rule: str, size: int, dtype: torch.dtype) -> None:
        self.rule, self.size, self.dtype, self.calls = rule, size, dtype, 0
        self.extremes: Dict[str, Tensor] = {}
        self.last: Dict[str, Tensor] = {}

    def take(self, what: str, value: Tensor, best: Callable[[Tensor, Tensor], Tensor]) -> None:
        value = unwrapped(value)
        if value.dim() > 0:  # under vmap
            value = value.amin() if best is torch.minimum else value.amax()
        before = self.extremes.get(what)
        # minimum and maximum keep NaN, which is what the user looks for.
        self.extremes[what] = value if before is None or before.device != value.device else best(before, value)
        self.last[what] = value

    def call(self, seen: Seen) -> None:
        self.calls += 1
        values = seen.values.detach().double()
        if values.numel() == 0:
            return
        largest = values.abs().amax(-1)
        used = values if seen.floor is None else values.clamp_min(seen.floor)
        tiny = torch.finfo(torch.double).tiny
        gap = seen.margin
        if gap is None and values.shape[-1] > 1:
            gap = values.diff(dim=-1).abs()
            if seen.kept is not None:  # counts from the first; two dropped values do not matter
                places = torch.arange(gap.shape[-1], device=gap.device)
                gap = gap.masked_fill(places >= seen.kept.unsqueeze(-1), math.inf)
            gap = gap.amin(-1)
        if gap is not None:
            self.take("gap", (gap.double() / largest.clamp_min(tiny)).amin(), torch.minimum)
        smallest = used.abs().amin(-1)
        condition = torch.where(smallest == 0, math.inf, largest / smallest)  # of the zero matrix too
        condition = torch.where(largest.isfinite(), condition, math.nan)  # the matrix itself holds NaN or infinity
        self.take("condition", condition.amax(), torch.maximum)
        result = (seen.result if isinstance(seen.result, Tensor) else seen.result[0]).detach()
        undefined = (result - result).sum().isnan() & ~(values - values).sum().isnan()
        self.take("undefined", undefined.double(), torch.maximum)
        if seen.kept is not None:
            self.take("kept", seen.kept.amin().double(), torch.minimum)

    def phases(self, result: Any) -> None:
        """Watches the backward pass of eigh or svd of complex matrices. It has no Python; its node takes a hook."""
        node = result[0].grad_fn
        if node is None or result[0].numel() == 0:
            return
        svd = len(result) == 3
        vectors = (result[0].detach(), result[2].detach().mH) if svd else (result[1].detach(),)

        def hook(_: Any, grads: Any) -> None:
            found = (grads[0], None if grads[2] is None else grads[2].mH) if svd else (grads[1],)
            if any(grad is not None for grad in found):
                with torch.no_grad():
                    self.take("phase", _share_of_phases(vectors, found).double(), torch.maximum)

        node.register_hook(hook)

    def gradient(self, grad: Tensor) -> None:
        if grad.numel() != 0:
            self.take("gradient", grad.detach().abs().amax().double(), torch.maximum)


def _share_of_phases(vectors: Tuple[Tensor, ...], grads: Tuple[Optional[Tensor], ...]) -> Tensor:
    """How much of the gradient of complex vectors, columns that share phases, only turns the phases."""
    turning: Any = 0
    size: Any = 0
    for v, g in zip(vectors, grads):
        if g is not None:
            turning = turning + (v.conj() * g).sum(-2).imag
            size = size + g.abs().square().sum(-2)
    return (turning.abs().amax(-1) / size.amax(-1).sqrt().clamp_min(torch.finfo(size.dtype).tiny)).amax()


@dataclass(frozen=True)
class Finding:
    """What was recorded of one operation in one layer, over all its calls."""

    layer: str  #: the module's name, "" for the model itself
    operation: str  #: "eigh", "torch.linalg.eigh", "sqrtm", "layer" and so on
    rule: str  #: the gradient rule, or "torch"
    calls: int
    size: int  #: n, the number of eigenvalues
    #: smallest gap between neighbours, one of them kept, or margin of a rotation, relative to the largest value; None
    #: for n = 1
    gap: Optional[float]
    #: largest condition number, the ratio of largest to smallest magnitude; NaN if a matrix held NaN or infinity
    condition: Optional[float]
    kept: Optional[int]  #: smallest number of values that the rank policy kept; None without a policy
    gradient: Optional[float]  #: largest magnitude in the input's gradient; None if there was no backward pass
    #: largest share of the vectors' gradient that only turns the phases of complex vectors, which keel leaves out
    phase: Optional[float]
    advice: str  #: what to change, in words


def _advice(record: _Record, operation: str, numbers: Dict[str, float]) -> str:
    gap, condition, gradient = (numbers.get(what) for what in ("gap", "condition", "gradient"))
    epsilon = torch.finfo(torch.double if record.dtype in (torch.double, torch.complex128) else torch.float32).eps
    said: List[str] = []
    broken = condition is not None and math.isnan(condition)
    undefined = bool(numbers.get("undefined"))
    if broken:
        said.append("A matrix held NaN or infinity.")
    elif undefined:
        said.append(
            "A result was NaN or infinite: the function is not defined at an eigenvalue, such as a negative one under "
            "a root. Add a multiple of the identity, or drop it with a rank policy (keel.LeadingEnergy)."
        )
    if gradient is not None and not math.isfinite(gradient):
        said.append(f"A gradient was {gradient}.")
    meets = gap is not None and gap <= 10 * math.sqrt(record.size) * epsilon
    near = gap is not None and gap <= math.sqrt(epsilon)
    takes_differences = record.rule in ("torch", "analytic")
    own = operation.rpartition(".")[2]
    values, vectors, functions = _WORDS["svd" if own == "svd" else "eigh"]
    if (meets or near) and takes_differences and operation == "layer":
        said.append(
            f"{values} {'meet' if meets else 'nearly meet'}, and this gradient divides by their differences. Use the "
            "layer's default rule, Exact."
        )
    elif (meets or near) and takes_differences:
        said.append(
            f"{values} {'meet' if meets else 'nearly meet'}, and this gradient divides by their differences. If the "
            f"loss depends on a function of the matrix, use {functions}; if on a subspace as a whole, keel.{own} with "
            f"its default rule, Masked; if on single {vectors}, keel.{own} with keel.PowerIteration(19)."
        )
    elif meets and record.rule.startswith("masked") and operation in ("eigh", "svd"):
        said.append(
            f"{values} meet, and Masked leaves such pairs out. That is right for a loss that depends only on the "
            f"subspace they span. For a function of the matrix it is wrong: use {functions}. For single {vectors} use "
            "keel.PowerIteration(19)."
        )
    elif meets and operation in _ROTATIONS:
        said.append(
            "Two answers were equally near, and directions between them get gradient 0. Near such a matrix gradients "
            "are large. Use the margin (keel.special_procrustes with return_margin=True) to leave such matrices out."
        )
    elif said and condition == math.inf and not undefined:
        said.append(
            f"{values} were zero: look for a root, a logarithm or an inverse of them, and for a NaN that comes from "
            "a later operation."
        )
    elif said and not broken and not undefined:
        apart = "meet" if meets else "nearly meet" if near else "are not close"
        apart += ", but this gradient does not divide by their differences" if meets or near else ""
        said.append(
            f"{values} {apart}. Look for a zero value under a root, logarithm or inverse, and for a NaN that "
            "comes from a later operation."
        )
    phase = numbers.get("phase")
    if phase is not None and phase > math.sqrt(epsilon):
        said.append(
            f"The loss depends on the phases of {vectors}, which are arbitrary: {phase:.0e} of their gradient "
            "only turns phases, and is left out. Use what has no phase: projectors v v^H, magnitudes, or functions of "
            "the whole matrix."
        )
    kept = numbers.get("kept")
    if kept is not None and kept < record.size and not broken:
        if operation == "layer":
            said.append(
                f"Only {int(kept)} of {record.size} directions were whitened in some group: fewer samples than "
                "channels, or redundant channels. Smaller groups (group_size) or larger batches keep more."
            )
        else:
            said.append(f"The rank was cut to {int(kept)} of {record.size}.")
    cut = kept is not None and kept < record.size
    if condition is not None and condition >= 0.1 / epsilon and operation in _INVERTS and not cut:
        said.append(
            f"The condition number, {condition:.0e}, is beyond what {str(record.dtype).rpartition('.')[2]} resolves, "
            "so the smallest eigenvalues are rounding noise, and they are inverted. Use a larger eps, or drop them "
            "with a rank policy (keel.LeadingEnergy)."
        )
    return " ".join(said) if said else "Nothing to worry about."


class Watch(TorchFunctionMode):
    """What :func:`watch` returns: a context manager that records while it is entered."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = model
        self._records: Dict[Tuple[str, str], _Record] = {}
        self._stack: List[str] = []
        self._hooks: List[Any] = []
        self._entered = False

    # Hooks keep track of the module that is running.

    def __enter__(self) -> Watch:
        self._entered = True
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
                self._stack.clear()  # left over if the last forward raised an error
            self._stack.append(name)

        return hook

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if self._stack and self._stack[-1] == name:
                self._stack.pop()

        return hook

    # Records the call.

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        watched = OPERATIONS.get(func) if callable(func) else None
        if watched is None:
            return func(*args, **kwargs)
        operation, see = watched
        name, matrix = ("", args[0]) if args else next(iter(kwargs.items()))
        hooked = matrix.requires_grad and torch.is_grad_enabled()
        if hooked and matrix.is_leaf:
            # A hook on a parameter would outlive the watch. A hook on this view goes away with the graph.
            matrix = matrix.view_as(matrix)
            args, kwargs = (matrix, *args[1:]) if args else (), {**kwargs, **({name: matrix} if name else {})}
        seen = see(*args, **kwargs)
        key = (self._stack[-1] if self._stack else "", operation)
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(seen.rule, seen.values.shape[-1], matrix.dtype)
        with torch.no_grad():
            record.call(seen)
        if hooked:
            matrix.register_hook(record.gradient)
            if matrix.is_complex() and operation in ("eigh", "svd"):
                record.phases(seen.result)
        return seen.result

    # Reports.

    def findings(self) -> List[Finding]:
        """One finding for each operation of each layer. This synchronises with the device."""
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
                    phase=numbers.get("phase"),
                    advice=_advice(record, operation, numbers),
                )
            )
        return found

    def write(self, writer: Any, step: int) -> None:
        """Writes the last call's numbers as scalars to a TensorBoard ``SummaryWriter``."""
        for (layer, operation), record in self._records.items():
            for what, value in record.last.items():
                writer.add_scalar(f"keel/{layer or 'model'}/{operation}/{what}", float(value), step)

    def __str__(self) -> str:
        found = self.findings()
        if not found:
            hint = "" if self._entered else "; run the model inside `with keel.watch(model) as seen:`"
            return "keel.watch: no eigendecomposition was seen" + hint
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
    """Records how close eigenvalues come, how many are kept and how large gradients are while a model runs, and
    suggests what to change.

    It observes the calls of :func:`torch.linalg.eigh`, :func:`torch.linalg.svd`, keel's functions and whitening layers
    in every module of the model. For polar factors and rotations it records the margin instead of the gap.

    Numbers stay on the device until :meth:`Watch.findings`, ``print`` or :meth:`Watch.write` reads them. After the
    ``with`` block the model is as it was before. Watch a model before you compile it.

    Args:
        model: the model to observe.

    Returns:
        A context manager. Its :meth:`Watch.findings` and its ``print`` report what it recorded.

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
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):  # takes no hooks, and its calls cannot be seen
            raise TypeError(
                f"keel.watch: expected modules of Python, got one compiled by torch.jit ({name!r}); watch the model "
                "before torch.jit.script"
            )
    return Watch(model)
