"""Singular values of matrices of any shape, and functions of them.

Matrices are (..., m, n), real or complex; for complex ones read A^H for A^T. float16 and bfloat16 are computed in
float32. A matrix with NaN or infinity gives NaN and does not affect the others of its batch.
"""

from __future__ import annotations

from typing import Callable, Literal, NamedTuple, Optional, Tuple, Union, overload

import torch
from torch import Tensor

from ._interrupt import call
from .functions import check_function, derivatives, kept_points
from .rules import (
    GRADIENT_RULES,
    RANK_POLICIES,
    FullRank,
    GradientRule,
    Masked,
    RankPolicy,
    flag,
    function_text,
    number_of,
    written,
)

__all__ = ["Svd", "low_rank", "nuclear_norm", "pinv", "singular", "soft_threshold", "svd", "svdvals"]


class Svd(NamedTuple):
    """``U`` (..., m, k), ``S`` (..., k), descending, and ``Vh`` (..., k, n), with k = min(m, n): column i of U
    and row i of Vh belong to ``S[..., i]``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def svd(matrix: Tensor, rule: GradientRule = Masked(), *, full_matrices: bool = False) -> Svd:
    """Singular value decomposition A = U diag(S) Vh with the gradient of ``rule``. A drop-in replacement for
    :func:`torch.linalg.svd` with ``full_matrices=False``.

    Args:
        matrix: real or complex matrices (..., m, n).
        rule: the gradient rule, an object or its string. It bounds 1 / (s_i - s_j), and in the same way 1 / (s_i + s_j)
            and 1 / s_i.
        full_matrices: as in :func:`torch.linalg.svd`, so that a call of it needs no change. Only False is possible.

    Returns:
        An :class:`Svd` of U, S and Vh. In each column of U the entry of largest magnitude is positive. The gradient
        leaves out what only turns the phases of complex vectors.

    The default rule gives torch's gradient where no two values, and no value and zero, are closer than 10 sqrt(k)
    machine epsilons times the largest. At repeated values it is exact for losses that depend on their singular vectors
    only as a whole. :func:`singular`, :func:`polar` and :func:`procrustes` are always exact there.

    If you truncate U, S and Vh by indexing, the gradient is still complete: it includes the dropped values.

    Differentiable to any order, in reverse and forward mode. Where the default rule leaves pairs out, a second
    derivative is an error. During CUDA graph capture and under vmap those matrices get NaN instead.

    >>> U, S, Vh = keel.svd(torch.tensor([[3.0, 0.0], [0.0, -2.0], [0.0, 0.0]]))
    >>> S
    tensor([3., 2.])
    >>> U.shape, Vh.shape
    (torch.Size([3, 2]), torch.Size([2, 2]))
    """
    if full_matrices or isinstance(rule, bool):
        given = f"full_matrices={full_matrices!r}" if full_matrices else f"{rule!r} as the rule"
        raise ValueError(
            f"keel.svd: expected full_matrices=False, by name, got {given}; U and Vh have min(m, n) columns and rows"
        )
    found = call(torch.ops.keel.svd, matrix, written("keel.svd", "rule", GRADIENT_RULES, rule))
    return Svd(found[0], found[1], found[2])  # by index: torch.fx cannot unpack


def svdvals(matrix: Tensor) -> Tensor:
    """The singular values, descending. Their gradient is U diag(dL/dS) Vh.

    On the CPU U and Vh are computed only where a gradient needs them. Without them errors are relative to the largest
    value of a matrix, as torch's are. On CUDA, and for complex matrices, this takes as long as :func:`svd`.

    Args:
        matrix: real or complex matrices (..., m, n).

    >>> keel.svdvals(torch.tensor([[0.0, 2.0], [-3.0, 0.0]]))
    tensor([3., 2.])
    """
    return call(torch.ops.keel.svdvals, matrix)


def nuclear_norm(matrix: Tensor) -> Tensor:
    """The sum of the singular values, (...). Its gradient is the polar factor, without the directions of zero values.
    Differentiable to any order.

    Args:
        matrix: real or complex matrices (..., m, n).

    >>> A = torch.eye(2, requires_grad=True)
    >>> keel.nuclear_norm(A).backward()
    >>> A.grad
    tensor([[1., 0.],
            [0., 1.]])
    """
    return call(torch.ops.keel.nuclear_norm, matrix)


@overload
def singular(
    matrix: Tensor,
    function: Union[str, Callable[[Tensor], Tensor]],
    rank: RankPolicy = FullRank(),
    *,
    exponent: Optional[float] = None,
    return_kept: Literal[False] = False,
) -> Tensor:
    ...


@overload
def singular(
    matrix: Tensor,
    function: Union[str, Callable[[Tensor], Tensor]],
    rank: RankPolicy = FullRank(),
    *,
    exponent: Optional[float] = None,
    return_kept: Literal[True],
) -> Tuple[Tensor, Tensor]:
    ...


def singular(
    matrix: Tensor,
    function: Union[str, Callable[[Tensor], Tensor]],
    rank: RankPolicy = FullRank(),
    *,
    exponent: Optional[float] = None,
    return_kept: bool = False,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """U f(S) V^T, over all singular values or those that ``rank`` keeps. The counterpart of :func:`spectral` for
    matrices of any shape.

    Args:
        matrix: real or complex matrices (..., m, n).
        function: "one", "identity", "inv", "inv(rtol=1e-06)", "power(exponent=0.5)" or
            "soft_threshold(threshold=0.1)"; or a function of your own, as in :func:`spectral`.
        rank: :class:`keel.FullRank`, :class:`keel.LeadingCount` or :class:`keel.LeadingEnergy`, which here counts
            squares of singular values.
        exponent: the exponent, if ``function`` is just "power".
        return_kept: also return how many values were kept, (...) int64.

    The gradient is exact, even at repeated values. It has a pole where a kept and a dropped value meet: pairs closer
    than 10 sqrt(k) machine epsilons times the largest value get 0 there. At full rank "one", "identity" and "inv" can
    be differentiated to any order, powers twice. A higher derivative is an error.

    A function of your own should vanish at zero: at a singular value of zero the gradient takes its slope there, and
    second derivatives are an error.

    >>> A = torch.diag(torch.tensor([4.0, 1.0, 0.01]))
    >>> keel.singular(A, "power(exponent=0.5)").diagonal()
    tensor([2.0000, 1.0000, 0.1000])
    >>> X, kept = keel.singular(A, "one", keel.LeadingEnergy(0.99), return_kept=True)
    >>> X.diagonal(), kept
    (tensor([1., 1., 0.]), tensor(2))
    """
    flag("keel.singular", "return_kept", return_kept)
    policy = written("keel.singular", "rank", RANK_POLICIES, rank)
    if callable(function):
        check_function("keel.singular", matrix, function, exponent)
        left, values, right, kept = call(torch.ops.keel.decompose_rectangles, matrix, policy)
        some = None if policy == "full" else kept
        f = derivatives("keel.singular", function, kept_points(values, some), matrix)
        computed = matrix.to(left.dtype)
        result = call(torch.ops.keel.singular_of, computed, left, values, right, some, *f).to(matrix.dtype)
        return (result, kept) if return_kept else result
    text = function_text("keel.singular", function, exponent)
    found = call(torch.ops.keel.singular, matrix, text, policy)
    return (found[0], found[4]) if return_kept else found[0]


def pinv(matrix: Tensor, rtol: Optional[float] = None) -> Tensor:
    """The Moore-Penrose inverse (..., n, m).

    Args:
        matrix: real or complex matrices (..., m, n).
        rtol: singular values up to this number times the largest count as zero. None means max(m, n) machine epsilons,
            as in :func:`torch.linalg.pinv`.

    With the default ``rtol`` it can be differentiated to any order at constant rank, with another one once.

    >>> keel.pinv(torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    tensor([[0.5000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    number = None if rtol is None else number_of("keel.pinv", "rtol", rtol, least=0)
    return call(torch.ops.keel.pinv, matrix, number)


def low_rank(matrix: Tensor, rank: RankPolicy) -> Tensor:
    """The nearest matrix of a given rank, with the same shape.

    Args:
        matrix: real or complex matrices (..., m, n).
        rank: a number k, :class:`keel.LeadingCount`, or :class:`keel.LeadingEnergy`, which counts squares of singular
            values.

    >>> keel.low_rank(torch.diag(torch.tensor([3.0, 2.0, 1.0])), keel.LeadingCount(2)).diagonal()
    tensor([3., 2., 0.])
    """
    return call(torch.ops.keel.low_rank, matrix, written("keel.low_rank", "rank", RANK_POLICIES, rank))


def soft_threshold(matrix: Tensor, threshold: float) -> Tensor:
    """The proximal map of ``threshold`` * nuclear norm: U max(S - threshold, 0) V^T.

    Args:
        matrix: real or complex matrices (..., m, n).
        threshold: a number. One that is learned is an error: write ``keel.singular(A, lambda s: (s - t).relu())``.

    >>> keel.soft_threshold(torch.diag(torch.tensor([3.0, 2.0, 1.0])), 1.5).diagonal()
    tensor([1.5000, 0.5000, 0.0000])
    """
    number = number_of("keel.soft_threshold", "threshold", threshold, least=0)
    return call(torch.ops.keel.soft_threshold, matrix, number)
