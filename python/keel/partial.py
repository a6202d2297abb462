"""The leading eigenpairs and singular triplets of large matrices, by products with blocks of vectors.

Matrices are dense (..., n, n) or (..., m, n), sparse (torch's COO or CSR), or a :class:`LinearOperator`. The gradient
is complete: it has the part of the values that are not computed, which is solved for by products too.
float16 and bfloat16 are computed in float32. A matrix with NaN or infinity gives NaN and does not affect the others of
its batch.
"""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from typing import Callable, List, Literal, Optional, Sequence, Tuple, Union, overload

import torch
from torch import Tensor

from ._interrupt import check_tensor, is_compiling
from .linalg import Eigh
from .rectangular import Svd
from .rules import GRADIENT_RULES, GradientRule, Masked, flag, number_of, whole, written

__all__ = ["LinearOperator", "eigsh", "svds"]


@dataclass(frozen=True)
class LinearOperator:
    """A linear map given by its products, for :func:`eigsh` and :func:`svds`.

    Args:
        shape: (..., m, n).
        apply: takes blocks of columns (..., n, b) and returns (..., m, b). It must be linear. Written in torch's
            operations, it passes gradients on to the tensors that it uses.
        adjoint: the product with the transpose, from (..., m, b) to (..., n, b). None means that autograd makes it from
            ``apply``. :func:`eigsh` does not need it.
        dtype: float32 or float64, which ``apply`` takes and returns.
        device: where.

    >>> d = torch.arange(1.0, 1001.0).requires_grad_()
    >>> M = keel.LinearOperator((1000, 1000), lambda x: d[:, None] * x)
    >>> l, V = keel.eigsh(M, 3, "LA")
    >>> l.round().tolist()
    [998.0, 999.0, 1000.0]
    >>> torch.autograd.grad(l.sum(), d)[0].sum().round()
    tensor(3.)
    """

    shape: Sequence[int]
    apply: Callable[[Tensor], Tensor]
    adjoint: Optional[Callable[[Tensor], Tensor]] = None
    dtype: torch.dtype = torch.float32
    device: Union[str, torch.device] = "cpu"

    def __post_init__(self) -> None:
        operation = "keel.LinearOperator"
        if not isinstance(self.shape, (tuple, list)) or len(self.shape) < 2:
            raise ValueError(f"{operation}: expected shape (..., m, n), got {self.shape!r}")
        for size in self.shape:
            whole(operation, "each size", size, 0)
        for name, function in (("apply", self.apply), ("adjoint", self.adjoint)):
            if not callable(function) and not (name == "adjoint" and function is None):
                raise TypeError(f"{operation}: expected {name} to be a function, got {type(function).__name__}")
        if self.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{operation}: expected dtype torch.float32 or torch.float64, got {self.dtype!r}")


Matrix = Union[Tensor, LinearOperator]


def _by_autograd(
    operation: str, apply: Callable[[Tensor], Tensor], shape: Sequence[int]
) -> Callable[[Tensor], Tensor]:
    """The adjoint of a linear function."""

    def adjoint(y: Tensor) -> Tensor:
        graph = torch.is_grad_enabled()
        with torch.enable_grad():
            x = y.new_zeros(*shape[:-2], shape[-1], y.shape[-1]).requires_grad_()
            image = apply(x)
            if not image.requires_grad:
                raise RuntimeError(
                    f"{operation}: expected apply to be made of torch's operations, got one that autograd cannot "
                    "follow; give the adjoint too"
                )
            return torch.autograd.grad(image, x, y, create_graph=graph)[0]

    return adjoint


class _Maps:
    """An operator while it is used: in the call, and as long as a graph of it is kept."""

    def __init__(self, operation: str, given: LinearOperator) -> None:
        def checked(name: str, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
            def call(x: Tensor) -> Tensor:
                y = function(x)
                if not isinstance(y, Tensor):
                    raise TypeError(f"{operation}: expected {name} to return a tensor, got {type(y).__name__}")
                return y

            return call

        apply = checked("apply", given.apply)
        self.adjoint = checked("adjoint", given.adjoint or _by_autograd(operation, apply, given.shape))
        self.apply, self.number = apply, next(_numbers)


_numbers = itertools.count(1)
_used: weakref.WeakValueDictionary[int, _Maps] = weakref.WeakValueDictionary()
_implementations = torch.library.Library("keel", "IMPL")
_implementations.impl(
    "linear_product",
    lambda number, x, adjoint: (_used[number].adjoint if adjoint else _used[number].apply)(x),
    "CompositeImplicitAutograd",
)


def _run(
    operation: str, matrix: Matrix, k: int, which: str, tol: Optional[float], steps: Optional[int], maxiter: int,
    start: Optional[Tensor], seed: int, rule: GradientRule, return_residual: bool, return_gap: bool,
) -> List[Tensor]:  # fmt: skip
    if torch.jit.is_tracing() or is_compiling():
        raise RuntimeError(f"{operation}: expected no trace, which would record the steps of one matrix")
    text = written(operation, "rule", GRADIENT_RULES, rule)
    flag(operation, "return_residual", return_residual)
    flag(operation, "return_gap", return_gap)
    if start is not None:
        check_tensor(f"{operation}: start", start)
    maps: Optional[_Maps] = None
    shape: List[int] = []
    if isinstance(matrix, LinearOperator):
        maps, shape = _Maps(operation, matrix), [int(size) for size in matrix.shape]
        _used[maps.number] = maps
        matrix = torch.empty(0, dtype=matrix.dtype, device=matrix.device)
    elif isinstance(matrix, Tensor) and matrix.is_complex():
        raise ValueError(f"{operation}: expected a real matrix, got a complex one ({matrix.dtype})")
    elif not isinstance(matrix, Tensor):
        raise TypeError(f"{operation}: expected a tensor or a keel.LinearOperator, got {type(matrix).__name__}")
    values, left, right, residual, gap = torch.ops.keel.partial(
        matrix, maps.number if maps else 0, shape, whole(operation, "k", k, 1), which,
        1e-12 if tol is None else number_of(operation, "tol", tol, least=0),
        0 if steps is None else whole(operation, "steps", steps, 1), whole(operation, "maxiter", maxiter, 1), start,
        whole(operation, "seed", seed, -(2**63)), text, return_residual,
    )  # fmt: skip
    if maps is not None and values.grad_fn is not None:
        values.grad_fn.metadata["keel.partial"] = maps
    extra = [value for value, wanted in ((residual, return_residual), (gap, return_gap)) if wanted]
    return [values, left, *extra] if which else [left, values, right, *extra]


@overload
def eigsh(
    matrix: Matrix, k: int, which: str = "LM", *, tol: Optional[float] = None, steps: Optional[int] = None,
    maxiter: int = 1000, start: Optional[Tensor] = None, seed: int = 0, rule: GradientRule = Masked(),
    return_residual: Literal[False] = False, return_gap: Literal[False] = False,
) -> Eigh:  # fmt: skip
    ...


@overload
def eigsh(
    matrix: Matrix, k: int, which: str = "LM", *, tol: Optional[float] = None, steps: Optional[int] = None,
    maxiter: int = 1000, start: Optional[Tensor] = None, seed: int = 0, rule: GradientRule = Masked(),
    return_residual: bool = False, return_gap: bool = False,
) -> Tuple[Tensor, ...]:  # fmt: skip
    ...


def eigsh(
    matrix: Matrix, k: int, which: str = "LM", *, tol: Optional[float] = None, steps: Optional[int] = None,
    maxiter: int = 1000, start: Optional[Tensor] = None, seed: int = 0, rule: GradientRule = Masked(),
    return_residual: bool = False, return_gap: bool = False,
) -> Union[Eigh, Tuple[Tensor, ...]]:  # fmt: skip
    """The k leading eigenpairs of large symmetric matrices, by products with blocks of vectors. The counterpart of
    :func:`scipy.sparse.linalg.eigsh`.

    Args:
        matrix: (..., n, n), dense, sparse (COO or CSR, two dimensions) or a :class:`LinearOperator`. It must be
            symmetric: both triangles are used.
        k: how many.
        which: "LM" for the largest magnitudes, "LA" for the largest values, "SA" for the smallest. The lower end of a
            positive definite matrix often converges slowly.
        tol: the residual norm(M v - l v) to reach, over the largest magnitude of an eigenvalue. None means 1e-12, and
            whatever is given counts as at least 20 machine epsilons (2.4e-6 in float32), for large ones some more.
        steps: a fixed number of steps (products with a block), after which the result is returned, whatever it is: ask
            for its residual. Nothing waits for the device, so a CUDA graph can capture it.
        maxiter: the most steps before an error.
        start: vectors (..., n, any) to begin with, such as those of a matrix that was nearly the same. NaN and infinity
            in them count as zeros.
        seed: of the other vectors to begin with.
        rule: the gradient rule among the eigenvalues that are kept.
        return_residual: also return the largest residual that was reached, (...), instead of raising an error.
        return_gap: also return the distance of the kept eigenvalues from the others, (...), as far as these are known.
            Where it is small the eigenvectors are hardly determined, and you may want to leave out their gradient.

    Returns:
        An :class:`Eigh` of values (..., k), ascending, and vectors (..., n, k), in each of which the entry of largest
        magnitude is positive. With return_residual or return_gap, a tuple of these, then the residual, then the gap.

    The gradient is that of the eigenpairs among all n: it includes the pairs of a kept and another value, without a
    decomposition of the whole. It is bounded where two such values meet. Differentiable once, in reverse mode.
    Matrices up to n = 256, and those for which k is not small beside n, are decomposed as a whole.

    >>> M = torch.diag(torch.arange(1.0, 1001.0)).requires_grad_()
    >>> l, V = keel.eigsh(M, 2, "LA")
    >>> l.round().tolist()
    [999.0, 1000.0]
    >>> torch.autograd.grad(l[1], M)[0][-1, -1].round()
    tensor(1.)
    """
    if which not in ("LA", "SA", "LM"):
        raise ValueError(f'keel.eigsh: expected which to be "LA", "SA" or "LM", got {which!r}')
    found = _run("keel.eigsh", matrix, k, which, tol, steps, maxiter, start, seed, rule, return_residual, return_gap)
    return tuple(found) if return_residual or return_gap else Eigh(*found)


@overload
def svds(
    matrix: Matrix, k: int, *, tol: Optional[float] = None, steps: Optional[int] = None, maxiter: int = 1000,
    start: Optional[Tensor] = None, seed: int = 0, rule: GradientRule = Masked(),
    return_residual: Literal[False] = False, return_gap: Literal[False] = False,
) -> Svd:  # fmt: skip
    ...


@overload
def svds(
    matrix: Matrix, k: int, *, tol: Optional[float] = None, steps: Optional[int] = None, maxiter: int = 1000,
    start: Optional[Tensor] = None, seed: int = 0, rule: GradientRule = Masked(), return_residual: bool = False,
    return_gap: bool = False,
) -> Tuple[Tensor, ...]:  # fmt: skip
    ...


def svds(
    matrix: Matrix, k: int, *, tol: Optional[float] = None, steps: Optional[int] = None, maxiter: int = 1000,
    start: Optional[Tensor] = None, seed: int = 0, rule: GradientRule = Masked(), return_residual: bool = False,
    return_gap: bool = False,
) -> Union[Svd, Tuple[Tensor, ...]]:  # fmt: skip
    """The k leading singular triplets of large matrices, by products with blocks of vectors. The counterpart of
    :func:`scipy.sparse.linalg.svds`, and an accurate one of :func:`torch.svd_lowrank`.

    Args:
        matrix: (..., m, n), dense, sparse (COO or CSR, two dimensions) or a :class:`LinearOperator`.
        k: how many, at most min(m, n).
        tol: the residual to reach: the larger of norm(A v - s u) and norm(A^T u - s v), over the largest value.
        start: the ``Vh`` (..., any, n) of a matrix that was nearly the same.
        steps, maxiter, seed, rule, return_residual, return_gap: as for :func:`eigsh`.

    Returns:
        An :class:`Svd` of U (..., m, k), S (..., k), descending, and Vh (..., k, n), ordered and signed as by
        :func:`svd`. With return_residual or return_gap, a tuple of these, then the residual, then the gap.

    The matrix is never squared, so small values have the same absolute accuracy as the largest. The gradient includes
    the values that are not computed, as that of :func:`svd` does. It is bounded where the k-th and the next value meet.

    >>> A = torch.diag(torch.arange(1.0, 1001.0))
    >>> U, S, Vh = keel.svds(A, 3)
    >>> S.round().tolist()
    [1000.0, 999.0, 998.0]
    """
    found = _run("keel.svds", matrix, k, "", tol, steps, maxiter, start, seed, rule, return_residual, return_gap)
    return tuple(found) if return_residual or return_gap else Svd(*found)
