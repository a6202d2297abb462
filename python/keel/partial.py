"""The leading eigenpairs and singular triplets of large matrices, by products with blocks of vectors.

Matrices are dense (..., n, n) or (..., m, n), sparse (torch's COO or CSR), or a :class:`LinearOperator`. The gradient
is complete: it has the part of the values that are not computed, which is solved for by products too.
float16 and bfloat16 are computed in float32. A matrix with NaN or infinity gives NaN and does not affect the others of
its batch.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Literal, NamedTuple, Optional, Sequence, Tuple, Union, overload

import torch
from torch import Tensor

from ._krylov import Found, Map, sizes, solve
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


Matrix = Union[Tensor, LinearOperator]


class _Problem(NamedTuple):
    """What eigsh and svds share: the map, without gradients, and how it was given."""

    operation: str
    matrix: Matrix
    map: Map
    symmetric: bool
    rule: str


class _Solved(NamedTuple):
    """What the backward pass needs beyond the results."""

    problem: _Problem
    found: Found
    sign: Tensor  # (..., 1, k): -1 for values at the lower end of the spectrum


def _columns(operation: str, name: str, function: Callable[[Tensor], Tensor], rows: int) -> Callable[[Tensor], Tensor]:
    """A caller's function, checked."""

    def checked(x: Tensor) -> Tensor:
        y = function(x)
        expected = (*x.shape[:-2], rows, x.shape[-1])
        if not isinstance(y, Tensor) or y.shape != expected or y.dtype != x.dtype:
            got = f"{tuple(y.shape)} of {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(
                f"{operation}: expected {name} to return {expected} of {x.dtype} for {tuple(x.shape)}, got {got}"
            )
        return y

    return checked


def _by_autograd(apply: Callable[[Tensor], Tensor], shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """The adjoint of a linear function."""

    def adjoint(y: Tensor) -> Tensor:
        graph = torch.is_grad_enabled()
        with torch.enable_grad():
            x = y.new_zeros(*shape[:-2], shape[-1], y.shape[-1]).requires_grad_()
            return torch.autograd.grad(apply(x), x, y, create_graph=graph)[0]

    return adjoint


def _map_of(operation: str, matrix: Matrix) -> Map:
    if isinstance(matrix, LinearOperator):
        shape = tuple(int(size) for size in matrix.shape)
        if len(shape) < 2 or matrix.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{operation}: expected an operator of shape (..., m, n) and of float32 or float64, got {shape} of "
                f"{matrix.dtype}"
            )
        apply = _columns(operation, "apply", matrix.apply, shape[-2])
        adjoint = matrix.adjoint or _by_autograd(apply, shape)
        return Map(shape, matrix.dtype, torch.device(matrix.device), apply,
                   _columns(operation, "adjoint", adjoint, shape[-1]))  # fmt: skip
    if not isinstance(matrix, Tensor):
        raise TypeError(f"{operation}: expected a tensor or a keel.LinearOperator, got {type(matrix).__name__}")
    if not matrix.is_floating_point() or matrix.dim() < 2:
        raise ValueError(
            f"{operation}: expected real floating point (..., m, n), got {tuple(matrix.shape)} of {matrix.dtype}"
        )
    fixed = matrix.detach()
    if fixed.dtype in (torch.float16, torch.bfloat16):
        fixed = fixed.float()
    shape, dtype, device = tuple(fixed.shape), fixed.dtype, fixed.device
    if fixed.layout == torch.strided:
        return Map(shape, dtype, device, fixed.matmul, fixed.mT.matmul)
    if fixed.layout not in (torch.sparse_coo, torch.sparse_csr) or fixed.dim() != 2:
        raise ValueError(f"{operation}: expected sparse COO or CSR of two dimensions, got {fixed.layout} of {shape}")
    rows, columns, values = _pattern(fixed)
    forth = torch.sparse_coo_tensor(torch.stack([rows, columns]), values, shape).coalesce().to_sparse_csr()
    back = torch.sparse_coo_tensor(torch.stack([columns, rows]), values, shape[::-1]).coalesce().to_sparse_csr()
    return Map(shape, dtype, device, forth.matmul, back.matmul)


def _pattern(matrix: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of a sparse matrix, in its order."""
    if matrix.layout == torch.sparse_coo:
        matrix = matrix.coalesce()
        return matrix.indices()[0], matrix.indices()[1], matrix.values()
    counts = matrix.crow_indices().diff()
    rows = torch.arange(matrix.shape[0], device=matrix.device).repeat_interleave(counts)
    return rows, matrix.col_indices(), matrix.values()


@contextlib.contextmanager
def _exactly(device: torch.device) -> Iterator[None]:
    """Without gradients, autocast and TF32, which would round the factors of each product to 11 bits."""
    restore: Callable[[], Any] = lambda: None
    try:
        precision = torch.get_float32_matmul_precision()
        if device.type == "cuda" and precision != "highest":
            torch.set_float32_matmul_precision("highest")
            restore = lambda: torch.set_float32_matmul_precision(precision)  # noqa: E731
    except RuntimeError:  # TF32 was allowed by the newer of torch's two ways, and the older refuses to answer
        matmul = torch.backends.cuda.matmul
        allowed = matmul.fp32_precision
        matmul.fp32_precision = "ieee"
        restore = lambda: setattr(matmul, "fp32_precision", allowed)  # noqa: E731
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        restore()


def _whole_decomposition(map: Map, symmetric: bool, which: str, count: int) -> Found:
    """For matrices that are not large: the products with the identity are the matrix."""
    batch, n = map.shape[:-2], map.shape[-1]
    dense = map.times(torch.eye(n, dtype=map.dtype, device=map.device).expand(*batch, n, n))
    if symmetric:
        values, vectors = torch.ops.keel.eigh(dense, "masked", False)
        key = {"LA": values, "SA": -values, "LM": values.abs()}[which]
        order = key.argsort(-1, descending=True)
        values, right = values.gather(-1, order), vectors.gather(-1, order[..., None, :].expand_as(vectors))
        left = right
    else:
        left, values, right = torch.ops.keel.svd(dense, "masked")
        right = right.mT
    k, largest = count, values.abs().amax(-1)
    return Found(values[..., :k], left[..., :k], right[..., :k], values[..., k:], left[..., k:], right[..., k:],
                 largest * 0, largest)  # fmt: skip


def _outside(solved: _Solved, grad_left: Optional[Tensor], grad_right: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """Solves (l_i - M) x_i = g_i for all i, orthogonal to the kept vectors, by projected conjugate gradients: there the
    matrix has no eigenvalue beyond l_i. For svds, M is [0 A; A^T 0], and x has two parts.

    The approximate vectors beyond the kept ones precondition it. Where such a value is equal to l_i, its direction gets
    0, as under Masked. What remains of a degenerate cut is bounded by the number of iterations."""
    problem, found, sign = solved
    map, symmetric = problem.map, problem.symmetric
    size = torch.where(found.largest > 0, found.largest, torch.ones_like(found.largest))[..., None, None]
    m = found.left.shape[-2]
    values, more = found.values[..., None, :] / size, found.more_values[..., :, None] / size
    if symmetric:
        kept, others, rhs = found.right, found.more_right, grad_right
    else:
        zeros = torch.zeros_like
        sides = [torch.cat([found.left, zeros(found.right)], -2), torch.cat([zeros(found.left), found.right], -2)]
        kept = torch.cat(sides, -1)
        others = torch.cat([found.more_left, found.more_right], -2) / 2**0.5
        left = zeros(found.left) if grad_left is None else grad_left
        right = zeros(found.right) if grad_right is None else grad_right
        rhs = torch.cat([left, right], -2)
    assert rhs is not None

    def shifted(p: Tensor) -> Tensor:
        if symmetric:
            image = map.times(p)
        else:
            image = torch.cat([map.times(p[..., m:, :]), map.adjoint(p[..., :m, :])], -2)
        return sign * (values * p - image / size)

    epsilon = torch.finfo(rhs.dtype).eps
    equal = 10 * max(map.shape[-2:]) ** 0.5 * epsilon
    gaps = sign * (values - more)
    top = gaps.amax(-2, keepdim=True) if gaps.shape[-2] else gaps
    weights = torch.where(gaps <= equal, torch.zeros_like(gaps), top / gaps.clamp_min(equal) - 1)
    barred = torch.cat([torch.ones_like(kept[..., :1, :1]).expand(*kept.shape[:-2], kept.shape[-1], rhs.shape[-1]),
                        (gaps <= equal).to(rhs.dtype)], -2)  # fmt: skip
    basis = torch.cat([kept, others], -1)

    def projected(r: Tensor) -> Tensor:
        return r - basis @ (barred * (basis.mT @ r))

    def conditioned(r: Tensor) -> Tensor:
        return projected(r + others @ (weights * (others.mT @ r)))

    height = rhs.abs().amax((-2, -1), keepdim=True)
    height = torch.where(height > 0, torch.exp2(height.log2().floor()), torch.ones_like(height))
    r = rhs / height
    if not symmetric:  # a value of 0 has no gap to the null space
        r = r * (values > equal)
    noise = (r * r).sum(-2, keepdim=True).amax(-1, keepdim=True) * (4 * epsilon) ** 2  # what rounding leaves of g
    r = projected(projected(r))
    x, z = torch.zeros_like(r), conditioned(r)
    p, product = z, (r * z).sum(-2, keepdim=True)
    least = torch.maximum(noise, product.amax(-1, keepdim=True) * (2 * epsilon) ** 2)
    capturing = r.is_cuda and torch.cuda.is_current_stream_capturing()
    for iteration in range(_ITERATIONS if not capturing else _ITERATIONS_CAPTURED):
        active = product > least
        if iteration % 4 == 0 and not capturing and not bool(active.any()):
            break
        q = projected(shifted(p))  # outside, curvatures are negative
        curvature = (p * q).sum(-2, keepdim=True)
        usable = active & (curvature > 0)
        length = torch.where(usable, product / curvature, torch.zeros_like(product))
        x = x + length * p
        r = r - length * q
        z = conditioned(r)
        before, product = product, torch.where(usable, (r * z).sum(-2, keepdim=True), torch.zeros_like(product))
        p = z + torch.where(usable, product / before, torch.zeros_like(product)) * p
    x = projected(sign * x * (height / size))
    return (x, x) if symmetric else (x[..., :m, :], x[..., m:, :])


_ITERATIONS, _ITERATIONS_CAPTURED = 200, 40


class _Results(torch.autograd.Function):
    """Gives the vectors that were found a place in the graph.

    ``sources`` are the matrix, or the products of an operator with the vectors. Their gradients reach its tensors."""

    @staticmethod
    def forward(ctx: Any, solved: _Solved, *sources: Tensor) -> Any:
        found, dtype = solved.found, sources[0].dtype
        ctx.solved, ctx.source_dtype = solved, dtype
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*sources)  # an error if one of them is changed before backward
        if solved.problem.symmetric:
            return tuple(x.to(dtype, copy=True) for x in (found.values, found.right))
        return tuple(x.to(dtype, copy=True) for x in (found.left, found.values, found.right.mT))

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Any:
        problem, _ = ctx.solved.problem, ctx.saved_tensors
        with _exactly(problem.map.device):
            given = [None if g is None else g.detach().to(problem.map.dtype) for g in grads]
            lefts, rights = _symmetric_factors(ctx.solved, given) if problem.symmetric else _factors(ctx.solved, given)
            made = _gradients(ctx.solved, lefts, rights)
        made = [None if g is None else g.to(ctx.source_dtype) for g in made]
        if torch.is_grad_enabled():
            made = [None if g is None else _Once.apply(problem.operation, g, *[h for h in grads if h is not None])
                    for g in made]  # fmt: skip
        return (None, *made)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operation: str, gradient: Tensor, *depends_on: Tensor) -> Tensor:
        ctx.operation = operation
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise RuntimeError(
            f"{ctx.operation}: expected one derivative, got a second one; keel.eigh and keel.svd, of "
            "all values, have second derivatives"
        )


def _symmetric_factors(solved: _Solved, grads: List[Optional[Tensor]]) -> Tuple[Tensor, Tensor]:
    """Z and V of the gradient (Z V^T + V Z^T) / 2."""
    found, (grad_values, grad_vectors) = solved.found, grads
    vectors, k = found.right, found.values.shape[-1]
    unit = torch.eye(k + 1, dtype=vectors.dtype, device=vectors.device).expand(*vectors.shape[:-2], k + 1, k + 1)

    def padded(x: Optional[Tensor], shape: Sequence[int]) -> Optional[Tensor]:
        return None if x is None else torch.nn.functional.pad(x, shape)

    # The last value, which has no gradient, is there for the rules that measure by the largest.
    values = torch.cat([found.values, found.largest[..., None]], -1)
    inner = None if grad_vectors is None else vectors.mT @ grad_vectors
    core = torch.ops.keel.eigh_backward(padded(grad_values, (0, 1)), padded(inner, (0, 1, 0, 1)), values,
                                        unit.contiguous(), solved.problem.rule)  # fmt: skip
    result = vectors @ core[..., :k, :k]
    if grad_vectors is not None:
        result = result + _outside(solved, None, grad_vectors)[1]
    return result, vectors


def _factors(solved: _Solved, grads: List[Optional[Tensor]]) -> Tuple[Tensor, Tensor]:
    """X and Y of the gradient X V^T + U Y^T."""
    found, (grad_left, grad_values, grad_right) = solved.found, grads
    left, right, k = found.left, found.right, found.values.shape[-1]
    unit = torch.eye(k, dtype=left.dtype, device=left.device).expand(*left.shape[:-2], k, k).contiguous()
    core = torch.ops.keel.svd_backward(
        None if grad_left is None else left.mT @ grad_left, grad_values,
        None if grad_right is None else grad_right @ right, unit, found.values, unit, solved.problem.rule,
    )  # fmt: skip
    result = left @ core
    if grad_left is None and grad_right is None:
        return result, torch.zeros_like(right)
    x, y = _outside(solved, grad_left, None if grad_right is None else grad_right.mT)
    return result + x, y


def _gradients(solved: _Solved, x: Tensor, y: Tensor) -> List[Optional[Tensor]]:
    matrix, found, symmetric = solved.problem.matrix, solved.found, solved.problem.symmetric
    if not isinstance(matrix, Tensor):
        return [x] if symmetric else [x, y]
    half = 0.5 if symmetric else 1.0  # symmetric: x and y are Z and V, and V is both left and right
    first, second = torch.cat([half * x, found.left], -1), torch.cat([found.right, half * (x if symmetric else y)], -1)
    if matrix.layout == torch.strided:
        return [first @ second.mT]
    rows, columns, values = _pattern(matrix.detach())
    made = torch.zeros_like(values, dtype=x.dtype)
    for a, b in zip(first.mT, second.mT):  # column by column, for the memory's sake
        made += a[rows] * b[columns]
    made = made.to(values.dtype)
    if matrix.layout == torch.sparse_coo:
        return [torch.sparse_coo_tensor(torch.stack([rows, columns]), made, matrix.shape)]
    return [torch.sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(), made, matrix.shape)]


def _signed(found: Found) -> Found:
    """The entry of largest magnitude of each left vector is positive."""
    place = found.left.abs().argmax(-2, keepdim=True)
    sign = torch.where(found.left.gather(-2, place) < 0, -1, 1).to(found.left.dtype)
    left = found.left * sign
    return found._replace(left=left, right=left if found.right is found.left else found.right * sign)


def _run(
    operation: str, matrix: Matrix, k: int, which: str, tol: Optional[float], steps: Optional[int], maxiter: int,
    start: Optional[Tensor], seed: int, rule: GradientRule, return_residual: bool, return_gap: bool,
) -> Tuple[Tensor, ...]:  # fmt: skip
    symmetric = operation == "keel.eigsh"
    if torch.jit.is_tracing():
        raise RuntimeError(f"{operation}: expected no torch.jit.trace, which would record the steps of one matrix")
    text = written(operation, "rule", GRADIENT_RULES, rule)
    flag(operation, "return_residual", return_residual)
    flag(operation, "return_gap", return_gap)
    map = _map_of(operation, matrix)
    m, n = map.shape[-2:]
    least = min(m, n)
    if symmetric and m != n:
        raise ValueError(f"{operation}: expected (..., n, n), got {map.shape}")
    if whole(operation, "k", k, 1) > least:
        raise ValueError(f"{operation}: expected k <= {least} for {map.shape}, got {k}")
    floor = 20 * torch.finfo(map.dtype).eps
    tolerance = max(1e-12 if tol is None else number_of(operation, "tol", tol, least=0), floor)
    most_steps = whole(operation, "maxiter", maxiter, 1)
    if steps is not None:
        steps = whole(operation, "steps", steps, 1)
    if start is not None:
        start = start.detach().to(map.dtype)
        if start.dim() < 2 or start.shape[-2] != n:
            raise ValueError(f"{operation}: expected a start of vectors of {n} entries, got {tuple(start.shape)}")
    small = max(m, n) <= 256 or least <= sum(sizes(map, k))
    with _exactly(map.device):
        if small:
            found = _whole_decomposition(map, symmetric, which, k)
        else:
            found = solve(map, symmetric, k, which, tolerance, steps, most_steps, start, seed)
        if symmetric:  # ascending, as keel.eigh
            order = found.values.argsort(-1)
            vectors = found.right.gather(-1, order[..., None, :].expand_as(found.right))
            found = found._replace(values=found.values.gather(-1, order), left=vectors, right=vectors)
        found = _signed(found)
        if symmetric:
            lower = (found.values < 0) if which == "LM" else torch.full_like(found.values, which == "SA").bool()
            sign = torch.where(lower, -1, 1).to(map.dtype)[..., None, :]
        else:
            sign = torch.ones_like(found.values)[..., None, :]
    solved = _Solved(_Problem(operation, matrix, map, symmetric, text), found, sign)
    if isinstance(matrix, Tensor):
        sources = [matrix]
    else:
        sources = [map.times(found.right)] if symmetric else [map.times(found.right), map.adjoint(found.left)]
    with _exactly(map.device):
        products = [s.detach() for s in sources] if not isinstance(matrix, Tensor) else (
            [map.times(found.right)] if symmetric else [map.times(found.right), map.adjoint(found.left)])
        sides = (found.left, found.right)
        errors = [(y - side * found.values[..., None, :]) / found.largest[..., None, None]
                  for y, side in zip(products, sides)]  # fmt: skip
        residual = torch.stack([e.norm(dim=-2).amax(-1) for e in errors]).amax(0)
        residual = torch.where(found.largest > 0, residual, found.largest)
        distance = found.values[..., :, None] - found.more_values[..., None, :]
        gap = distance.abs().flatten(-2).amin(-1) if distance.shape[-1] else torch.full_like(residual, float("inf"))
    if steps is None and not return_residual:
        _check(operation, residual, tolerance, most_steps)
    results = _Results.apply(solved, *sources)
    extra = [value for value, wanted in ((residual, return_residual), (gap, return_gap)) if wanted]
    return (*results, *extra)


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
            whatever is given counts as at least 20 machine epsilons (2.4e-6 in float32).
        steps: a fixed number of steps (products with a block), after which the result is returned, whatever it is: ask
            for its residual. Nothing waits for the device, so a CUDA graph can capture it.
        maxiter: the most steps before an error.
        start: vectors (..., n, any) to begin with, such as those of a matrix that was nearly the same.
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
    return found if return_residual or return_gap else Eigh(*found)


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
    right = None if start is None else start.mT
    found = _run("keel.svds", matrix, k, "LA", tol, steps, maxiter, right, seed, rule, return_residual, return_gap)
    return found if return_residual or return_gap else Svd(*found)


def _check(operation: str, residual: Tensor, tolerance: float, steps: int) -> None:
    missed = residual > 2 * tolerance
    if not bool(missed.any()):
        return
    where = ""
    if residual.dim():
        where = f" of matrix {missed.flatten().nonzero()[0].item()}"
    raise RuntimeError(
        f"{operation}: expected a residual{where} of at most {tolerance:.1e} of the largest value within {steps} "
        f"steps, got {residual[missed].flatten()[0].item():.1e}; give more (maxiter=), ask for less (tol=), or look "
        "yourself (return_residual=True)"
    )
