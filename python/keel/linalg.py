"""Eigendecomposition and functions of symmetric matrices.

Matrices are (..., n, n). Only the lower triangle is read, and gradients are symmetric. Complex matrices are Hermitian:
read A^H for A^T, and "real and positive" for the sign of a vector. float16 and bfloat16 are computed in float32. A
matrix with NaN or infinity gives NaN and does not affect the others of its batch.
:func:`eigh`, :func:`eigvalsh` and the functions from :func:`sqrtm` to :func:`powm` also take a list of tensors of
different sizes, and return a list. Tensors of one shape, type and device go into one call.

At full rank, functions of matrices have exact gradients, even at repeated eigenvalues, unless another rule is given.
Where a function is not defined at a kept eigenvalue, the result for that matrix is NaN.
"""

from __future__ import annotations

from operator import itemgetter
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ClassVar,
    Dict,
    Iterable,
    List,
    Literal,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
    Union,
    overload,
)

import torch
from torch import Tensor

from ._interrupt import call, check_tensor, is_compiling
from .functions import check_function, computed_in, derivatives, kept_points
from .rules import (
    GRADIENT_RULES,
    RANK_POLICIES,
    SPECTRAL_RULES,
    Exact,
    FullRank,
    GradientRule,
    Masked,
    RankPolicy,
    SpectralRule,
    flag,
    function_text,
    number_of,
    value_of,
    written,
)

__all__ = [
    "Eigh",
    "GeneralizedEigh",
    "eigh",
    "eigvalsh",
    "expm",
    "generalized_eigh",
    "generalized_projector",
    "inv_sqrtm",
    "invm",
    "logm",
    "powm",
    "projector",
    "spectral",
    "sqrtm",
]


if TYPE_CHECKING:
    _Pair = Tuple[Tensor, Tensor]
else:
    _Pair = tuple


class Eigh(_Pair):
    """Eigenvalues (..., n) and eigenvectors (..., n, n). :meth:`apply` makes functions of the matrix from them, with
    the exact gradient. A named tuple: column i of ``eigenvectors`` belongs to ``eigenvalues[..., i]``.

    Do not write V f(l) V^T yourself. Its gradient through l and V is wrong at repeated eigenvalues, without an error:

    >>> M = torch.eye(2, requires_grad=True)
    >>> l, V = found = keel.eigh(M)
    >>> torch.autograd.grad((V * l.reciprocal() @ V.T)[0, 1], M)[0]
    tensor([[0., 0.],
            [0., 0.]])
    >>> torch.autograd.grad(found.apply(torch.reciprocal)[0, 1], M)[0]
    tensor([[ 0.0000, -0.5000],
            [-0.5000,  0.0000]])
    """

    # Not typing.NamedTuple, whose instances cannot remember their matrix. These names make it one for torch and others.
    _fields = ("eigenvalues", "eigenvectors")
    _field_defaults: ClassVar[Dict[str, Tensor]] = {}
    _matrix: Optional[Tensor] = None

    def __new__(cls, eigenvalues: Tensor, eigenvectors: Tensor) -> Eigh:
        return tuple.__new__(cls, (eigenvalues, eigenvectors))

    eigenvalues: Tensor = property(itemgetter(0))
    eigenvectors: Tensor = property(itemgetter(1))

    @classmethod
    def _make(cls, values: Iterable[Tensor]) -> Eigh:
        return cls(*values)

    def _asdict(self) -> Dict[str, Tensor]:
        return dict(zip(self._fields, self))

    def _replace(self, **fields: Tensor) -> Eigh:
        return Eigh(**{**self._asdict(), **fields})

    def __reduce__(self) -> Any:
        return Eigh, tuple(self)  # without the matrix

    def __repr__(self) -> str:
        return f"Eigh(eigenvalues={self[0]!r}, eigenvectors={self[1]!r})"

    def apply(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """V f(l) V^T from this decomposition. The gradient is exact, as that of :func:`keel.spectral`.

        Args:
            function: f, of torch's operations, as in :func:`keel.spectral`.

        The pair must be the one that :func:`keel.eigh` returned. Inside torch.compile, and out of a function that was
        transformed, it does not know its matrix. Call :func:`keel.spectral` there.

        >>> l, V = found = keel.eigh(torch.tensor([[5.0, 4.0], [4.0, 5.0]]))
        >>> found.apply(torch.sqrt).round(decimals=3)
        tensor([[2., 1.],
                [1., 2.]])
        """
        if self._matrix is None:
            raise RuntimeError(
                "Eigh.apply: expected the pair that keel.eigh returned, got one that does not know its matrix (from "
                "keel.eigsh, torch.compile, vmap, _replace or pickle); call keel.spectral(matrix, f)"
            )
        check_function("Eigh.apply", self._matrix, function)
        matrix = self._matrix.to(computed_in(self._matrix.dtype))
        values, vectors = (part.detach().to(computed_in(part.dtype)) for part in self)
        f = derivatives("Eigh.apply", function, values, matrix)
        return call(torch.ops.keel.spectral_of, matrix, values, vectors, None, *f).to(self._matrix.dtype)


#: A tensor, or a list of tensors of different sizes.
Matrices = TypeVar("Matrices", Tensor, List[Tensor])

_TRIANGLES = ("L", "U", "l", "u")  # as torch.linalg.eigh takes them


def _triangle(operation: str, matrix: Tensor, UPLO: str) -> Tensor:
    """The matrix whose lower triangle is the one to read."""
    if UPLO not in _TRIANGLES:
        raise ValueError(f'{operation}: expected UPLO to be "L" or "U", got {UPLO!r}')
    return matrix if UPLO in "Ll" else matrix.mH


def _rule(operation: str, rule: SpectralRule) -> str:
    return written(operation, "rule", SPECTRAL_RULES, rule)


def _each(operation: str, matrices: List[Tensor], function: Callable[[Tensor], Any]) -> List[Any]:
    """``function`` of each matrix, by one call for all of one shape, type and device."""
    places: Dict[Any, List[int]] = {}
    for place, matrix in enumerate(matrices):
        check_tensor(operation, matrix)
        if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
            raise ValueError(f"{operation}: expected (..., n, n), got {tuple(matrix.shape)} at place {place} of a list")
        places.setdefault((matrix.shape, matrix.dtype, matrix.device), []).append(place)
    found: List[Any] = [None] * len(matrices)
    for alike in places.values():
        results = function(torch.stack([matrices[place] for place in alike]))
        for place, result in zip(alike, results if isinstance(results, Tensor) else map(Eigh, *results)):
            found[place] = result
    return found


def _function(name: str, matrix: Matrices, *rest: Any) -> Matrices:
    operator = getattr(torch.ops.keel, name)
    if isinstance(matrix, list):
        return _each(f"keel.{name}", matrix, lambda stacked: call(operator, stacked, *rest))
    return call(operator, matrix, *rest)


@overload
def eigh(  # type: ignore[misc]  # mypy does not read torch, so Tensor is Any
    matrix: List[Tensor], rule: GradientRule = Masked(), *, UPLO: str = "L", descending: bool = False
) -> List[Eigh]:
    ...


@overload
def eigh(
    matrix: Tensor, rule: GradientRule = Masked(), *, UPLO: str = "L", descending: bool = False
) -> Eigh:
    ...


def eigh(
    matrix: Union[Tensor, List[Tensor]],
    rule: GradientRule = Masked(),
    *,
    UPLO: str = "L",
    descending: bool = False,
) -> Union[Eigh, List[Eigh]]:
    """Symmetric eigendecomposition with the gradient of ``rule``. A drop-in replacement for :func:`torch.linalg.eigh`.
    For a function of the matrix call :meth:`Eigh.apply` of the result, not V f(l) V^T.

    Args:
        matrix: symmetric or complex Hermitian matrices (..., n, n), or a list of them.
        rule: the gradient rule, an object or its string. docs/choosing_a_rule.md helps to choose one.
        UPLO: the triangle that is read, "L" or "U".
        descending: put the largest eigenvalue first. By default eigenvalues are ascending.

    Returns:
        An :class:`Eigh` of eigenvalues and eigenvectors, or a list of these. In each eigenvector the entry of
        largest magnitude is positive. The gradient leaves out what only turns the phases of complex vectors.

    The default rule gives :func:`torch.linalg.eigh`'s gradient where no two eigenvalues are closer
    than 10 sqrt(n) machine epsilons times the largest. At repeated eigenvalues it is exact for losses
    that depend on an eigenspace only as a whole: its projector, symmetric functions of its eigenvalues.
    It is not exact there for functions of the matrix, V f(l) V^T, and raises no error: call
    :meth:`Eigh.apply`, :func:`spectral` or one of the named functions instead. :func:`keel.watch` finds such places
    in a model.

    Differentiable to any order, in reverse and forward mode. At repeated eigenvalues the default
    rule's second derivatives are exact where its first ones are. They are an error for other losses and
    in forward mode, and third derivatives are always an error. During CUDA graph capture and under
    vmap the matrices concerned get NaN instead of an error.

    >>> M = torch.diag(torch.tensor([1.0, 4.0, 1.0])).requires_grad_()
    >>> eigenvalues, eigenvectors = keel.eigh(M, keel.PowerIteration(terms=19))
    >>> eigenvalues
    tensor([1., 1., 4.], grad_fn=<...>)
    >>> eigenvectors[0].sum().backward()
    >>> bool(M.grad.isfinite().all())
    True
    """
    if isinstance(rule, Tensor):
        raise TypeError("keel.eigh: expected a rule as the second argument, got a tensor; for A x = l B x there is "
                        "keel.generalized_eigh(A, B)")  # fmt: skip
    if isinstance(rule, str) and rule in _TRIANGLES:
        raise ValueError(f"keel.eigh: expected a rule as the second argument, got {rule!r}; write UPLO={rule!r}")
    if isinstance(matrix, list):
        pairs = _each("keel.eigh", matrix, lambda stacked: eigh(stacked, rule, UPLO=UPLO, descending=descending))
        if not is_compiling():
            for pair, one in zip(pairs, matrix):
                pair._matrix = _triangle("keel.eigh", one, UPLO)
        return pairs
    flag("keel.eigh", "descending", descending)
    read = _triangle("keel.eigh", matrix, UPLO)
    text = written("keel.eigh", "rule", GRADIENT_RULES, rule)
    found = call(torch.ops.keel.eigh, read, text, descending)
    pair = Eigh(found[0], found[1])  # by index: torch.fx cannot unpack
    if not is_compiling():
        pair._matrix = read
    return pair


def eigvalsh(matrix: Matrices, UPLO: str = "L") -> Matrices:
    """The eigenvalues of symmetric matrices, ascending. A drop-in replacement for :func:`torch.linalg.eigvalsh`.

    Args:
        matrix: symmetric or complex Hermitian matrices (..., n, n), or a list of them.
        UPLO: the triangle that is read, "L" or "U".

    The gradient is V diag(dL/dl) V^T, which is finite at equal eigenvalues too. Second derivatives are those of
    :func:`eigh`: at equal eigenvalues exact for symmetric functions of them, an error for others.

    Without a gradient, no eigenvectors are computed on the CPU, nor on CUDA from n = 2048 on. The values may then
    differ from those of :func:`eigh` by rounding.

    >>> M = torch.eye(2, requires_grad=True)
    >>> values = keel.eigvalsh(M)
    >>> values.square().sum().backward()
    >>> M.grad
    tensor([[2., 0.],
            [0., 2.]])
    """
    if isinstance(matrix, list):
        return _each("keel.eigvalsh", matrix, lambda stacked: eigvalsh(stacked, UPLO))
    return call(torch.ops.keel.eigvalsh, _triangle("keel.eigvalsh", matrix, UPLO))


@overload
def spectral(
    matrix: Tensor,
    function: Union[str, Callable[[Tensor], Tensor]],
    rank: RankPolicy = FullRank(),
    rule: SpectralRule = Exact(),
    *,
    exponent: Optional[float] = None,
    return_kept: Literal[False] = False,
) -> Tensor:
    ...


@overload
def spectral(
    matrix: Tensor,
    function: Union[str, Callable[[Tensor], Tensor]],
    rank: RankPolicy = FullRank(),
    rule: SpectralRule = Exact(),
    *,
    exponent: Optional[float] = None,
    return_kept: Literal[True],
) -> Tuple[Tensor, Tensor]:
    ...


def spectral(
    matrix: Tensor,
    function: Union[str, Callable[[Tensor], Tensor]],
    rank: RankPolicy = FullRank(),
    rule: SpectralRule = Exact(),
    *,
    exponent: Optional[float] = None,
    return_kept: bool = False,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """A function of symmetric matrices: V f(l) V^T over all eigenvalues l or those that ``rank`` keeps.

    Args:
        matrix: symmetric or complex Hermitian matrices (..., n, n), whose lower triangle is read.
        function: "one", "sqrt", "inv_sqrt", "inv", "log", "exp" or "power(exponent=0.5)"; or a function of your own,
            which maps a tensor of eigenvalues to one of values, entry by entry and by torch's operations.
        rank: which eigenvalues are kept, from the largest down.
        rule: the gradient rule. :class:`keel.Exact` has no pole at repeated eigenvalues, and at full rank it has
            second derivatives too.
        exponent: the exponent, if ``function`` is just "power".
        return_kept: also return how many eigenvalues were kept, (...) int64.

    If f is undefined at a kept eigenvalue, the result is NaN. :func:`singular` is the same for matrices of any shape.

    A function of your own is called with the kept eigenvalues alone (others are replaced by the largest). Gradients
    also flow to the tensors that it uses, such as an exponent that is learned. It must be differentiable twice by
    :func:`torch.func.grad`, and ``rule`` must be :class:`keel.Exact`. Where its own derivative is infinite, so is the
    gradient. Where the matrix needs a gradient, a function that does not map each eigenvalue by itself, such as
    l / l.sum(), is an error on the CPU. On CUDA it is not noticed, and the gradient is wrong.

    >>> M = torch.diag(torch.tensor([4.0, 1.0, 1e-6]))
    >>> keel.spectral(M, "inv_sqrt", rank=keel.LeadingEnergy(0.99))
    tensor([[0.5000, 0.0000, 0.0000],
            [0.0000, 1.0000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    >>> root, kept = keel.spectral(M, "power", rank=2, exponent=0.5, return_kept=True)
    >>> root.diagonal(), kept
    (tensor([2., 1., 0.]), tensor(2))
    >>> exponent = torch.tensor(0.5, requires_grad=True)
    >>> keel.spectral(M, lambda l: l**exponent).trace().backward()
    >>> exponent.grad  # 4^0.5 ln 4 + 1e-3 ln 1e-6
    tensor(2.7588)
    """
    flag("keel.spectral", "return_kept", return_kept)
    if callable(function):
        return _of_own_function(matrix, function, rank, rule, exponent, return_kept)
    text = function_text("keel.spectral", function, exponent)
    policy = written("keel.spectral", "rank", RANK_POLICIES, rank)
    found = call(torch.ops.keel.spectral, matrix, text, policy, _rule("keel.spectral", rule))
    return (found[0], found[3]) if return_kept else found[0]


def _of_own_function(
    matrix: Tensor, f: Callable[[Tensor], Tensor], rank: RankPolicy, rule: SpectralRule, exponent: Any,
    return_kept: bool
) -> Union[Tensor, Tuple[Tensor, Tensor]]:  # fmt: skip
    check_function("keel.spectral", matrix, f, exponent)
    exact = value_of("keel.spectral", "rule", SPECTRAL_RULES, rule)
    if not isinstance(exact, Exact):
        raise ValueError(f"keel.spectral: expected rule keel.Exact for a function of your own, got {rule}")
    policy = written("keel.spectral", "rank", RANK_POLICIES, rank)
    values, vectors, kept = call(torch.ops.keel.decompose, matrix, policy)
    some = None if policy == "full" else kept
    f_values = derivatives("keel.spectral", f, kept_points(values, some), matrix)
    computed = matrix.to(vectors.dtype)
    result = call(torch.ops.keel.spectral_of, computed, values, vectors, some, *f_values, exact.terms).to(matrix.dtype)
    return (result, kept) if return_kept else result


def sqrtm(matrix: Matrices, rule: SpectralRule = Exact()) -> Matrices:
    """The square root of a symmetric matrix, whose lower triangle is read. A negative eigenvalue gives NaN, unless it
    is so small that it is rounding noise around zero. The gradient is exact unless another rule is given. No gradient
    flows between two zero eigenvalues, where it would be infinite.

    Args:
        matrix: symmetric matrices (..., n, n), or a list of them.
        rule: the gradient rule, an object or its string.

    >>> keel.sqrtm(torch.tensor([[5.0, 4.0], [4.0, 5.0]])).round(decimals=3)
    tensor([[2., 1.],
            [1., 2.]])
    """
    return _function("sqrtm", matrix, _rule("keel.sqrtm", rule))


def inv_sqrtm(matrix: Matrices, rule: SpectralRule = Exact()) -> Matrices:
    """The inverse square root of a symmetric positive definite matrix, whose lower triangle is read. An eigenvalue
    that is zero or negative gives NaN. The gradient is exact, even at repeated eigenvalues, unless another rule is
    given.

    Args:
        matrix: symmetric matrices (..., n, n), or a list of them.
        rule: the gradient rule, an object or its string.

    >>> M = torch.eye(3, dtype=torch.float64, requires_grad=True)
    >>> keel.inv_sqrtm(M)[0, 1].backward()  # torch.linalg.eigh would give NaN here
    >>> M.grad[0, 1]
    tensor(-0.2500, dtype=torch.float64)
    """
    return _function("inv_sqrtm", matrix, _rule("keel.inv_sqrtm", rule))


def invm(matrix: Matrices, rule: SpectralRule = Exact()) -> Matrices:
    """The inverse of a symmetric matrix, whose lower triangle is read. A zero eigenvalue gives NaN.

    Args:
        matrix: symmetric matrices (..., n, n), or a list of them.
        rule: the gradient rule, an object or its string.

    >>> keel.invm(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return _function("invm", matrix, _rule("keel.invm", rule))


def logm(matrix: Matrices, rule: SpectralRule = Exact()) -> Matrices:
    """The logarithm of a symmetric positive definite matrix, whose lower triangle is read. An eigenvalue that is
    zero or negative gives NaN.

    Args:
        matrix: symmetric matrices (..., n, n), or a list of them.
        rule: the gradient rule, an object or its string.

    >>> M = torch.eye(2, requires_grad=True)
    >>> keel.logm(M)[1, 0].backward()
    >>> M.grad
    tensor([[0.0000, 0.5000],
            [0.5000, 0.0000]])
    """
    return _function("logm", matrix, _rule("keel.logm", rule))


def expm(matrix: Matrices, rule: SpectralRule = Exact()) -> Matrices:
    """The exponential of a symmetric matrix, whose lower triangle is read. For other matrices use
    :func:`torch.matrix_exp`.

    Args:
        matrix: symmetric matrices (..., n, n), or a list of them.
        rule: the gradient rule, an object or its string.

    >>> keel.expm(torch.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    return _function("expm", matrix, _rule("keel.expm", rule))


def powm(matrix: Matrices, exponent: float, rule: SpectralRule = Exact()) -> Matrices:
    """A real power of a symmetric matrix, whose lower triangle is read. A negative eigenvalue gives NaN unless the
    exponent is a whole number, and a zero eigenvalue gives NaN if the exponent is negative.

    Args:
        matrix: symmetric matrices (..., n, n), or a list of them.
        exponent: a number. One that is learned is an error: write ``keel.spectral(M, lambda l: l**exponent)``.
        rule: the gradient rule, an object or its string.

    >>> keel.powm(torch.diag(torch.tensor([8.0, 27.0])), 1 / 3).round(decimals=3)
    tensor([[2., 0.],
            [0., 3.]])
    >>> [len(root) for root in keel.powm([torch.eye(2), torch.eye(3), torch.eye(2)], -1 / 4)]  # two calls
    [2, 3, 2]
    """
    number = number_of("keel.powm", "exponent", exponent)
    return _function("powm", matrix, number, _rule("keel.powm", rule))


def projector(matrix: Tensor, rank: RankPolicy, rule: SpectralRule = Exact()) -> Tensor:
    """The orthogonal projector onto the leading eigenvectors that ``rank`` keeps, of a symmetric matrix whose lower
    triangle is read.

    Under the default rule the gradient stays bounded where the last kept and the first dropped eigenvalue meet. In
    return, it is only an approximation where they do not: see :class:`keel.Exact`. There :class:`keel.Masked` gives the
    derivative itself.

    Args:
        matrix: symmetric matrices (..., n, n).
        rank: a number k, or a policy: which eigenvectors are kept, from the largest eigenvalue down.
        rule: the gradient rule, an object or its string.

    >>> keel.projector(torch.diag(torch.tensor([1.0, 3.0, 2.0])), keel.LeadingCount(2))
    tensor([[0., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    policy = written("keel.projector", "rank", RANK_POLICIES, rank)
    return call(torch.ops.keel.projector, matrix, policy, _rule("keel.projector", rule))


class GeneralizedEigh(NamedTuple):
    """``eigenvalues`` (..., n), ``eigenvectors`` X (..., n, n) with X^T B X = I, and ``kept`` (...), int64: how many
    directions B sees."""

    eigenvalues: Tensor
    eigenvectors: Tensor
    kept: Tensor


def generalized_eigh(
    A: Tensor, B: Tensor, rule: GradientRule = Masked(), *, rtol: Optional[float] = None, descending: bool = False
) -> GeneralizedEigh:
    """The eigenvalues and eigenvectors of A x = l B x with x^T B x = 1, as :func:`scipy.linalg.eigh` has them, with
    gradients to A and B.

    Args:
        A: symmetric matrices (..., n, n), whose lower triangle is read.
        B: symmetric positive definite matrices, likewise. Batch dimensions are broadcast.
        rule: the gradient rule, as in :func:`eigh`.
        rtol: drop the directions in which an eigenvalue of B is at most ``rtol`` times its largest. None means that B
            is positive definite; where it is not, the result is NaN.
        descending: put the largest eigenvalue first.

    Returns:
        A :class:`GeneralizedEigh`. Dropped directions come last. Their eigenvalues and vectors are zero.

    It is a function of its own because its result tells how many directions were kept, and because the second argument
    of :func:`eigh` is the rule.

    Without ``rtol`` B is factored by Cholesky, and the error of an eigenvalue is some machine epsilons times
    norm(A) norm(B^-1). With it, B is decomposed by eigh. That takes longer, is differentiable once, and bounds the
    error by some epsilons times norm(A) / (rtol norm(B)).

    The gradient of an eigenvalue is finite at equal ones too. For a subspace call :func:`generalized_projector`.

    >>> A, B = torch.diag(torch.tensor([3.0, 1.0, 5.0])), torch.diag(torch.tensor([1.0, 2.0, 0.0]))
    >>> l, X, kept = keel.generalized_eigh(A, B, rtol=1e-6)
    >>> l, kept
    (tensor([0.5000, 3.0000, 0.0000]), tensor(2))
    """
    check_tensor("keel.generalized_eigh", B)
    flag("keel.generalized_eigh", "descending", descending)
    text = written("keel.generalized_eigh", "rule", GRADIENT_RULES, rule)
    number = None if rtol is None else number_of("keel.generalized_eigh", "rtol", rtol, least=0)
    found = call(torch.ops.keel.generalized_eigh, A, B, text, number, descending)
    return GeneralizedEigh(found[0], found[1], found[2])


def generalized_projector(
    A: Tensor, B: Tensor, rank: RankPolicy, rule: SpectralRule = Exact(), *, rtol: Optional[float] = None
) -> Tensor:
    """The sum of x x^T over the leading eigenvectors of A x = l B x that ``rank`` keeps. It stands for their span, as
    LDA, CSP and CCA use it, and its gradient has no pole at repeated eigenvalues. Times B it is the projector onto the
    span, orthogonal in B's inner product.

    Args:
        A: symmetric matrices (..., n, n).
        B: symmetric positive definite matrices. Batch dimensions are broadcast.
        rank: which eigenvectors are kept, from the largest eigenvalue down.
        rule: as in :func:`projector`.
        rtol: as in :func:`generalized_eigh`.

    >>> A, B = torch.diag(torch.tensor([3.0, 1.0])), torch.diag(torch.tensor([1.0, 0.25]))
    >>> keel.generalized_projector(A, B, 1)
    tensor([[0., 0.],
            [0., 4.]])
    """
    check_tensor("keel.generalized_projector", B)
    policy = written("keel.generalized_projector", "rank", RANK_POLICIES, rank)
    by = _rule("keel.generalized_projector", rule)
    number = None if rtol is None else number_of("keel.generalized_projector", "rtol", rtol, least=0)
    return call(torch.ops.keel.generalized_projector, A, B, policy, by, number)
