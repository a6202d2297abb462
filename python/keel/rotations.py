"""Nearest orthogonal matrices and rotations, and registration of points.

Matrices are (..., m, n); :func:`polar` and :func:`procrustes` also take complex ones, for which orthogonal means
unitary and A^T means A^H. Gradients are exact, even at repeated singular values, and differentiable to any
order. Where the answer itself is ambiguous they are finite: the undetermined directions get 0.
float16 and bfloat16 are computed in float32. A matrix with NaN or infinity gives NaN and does not affect the others of
its batch.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Optional, Tuple, Union, overload

import torch
from torch import Tensor

from ._interrupt import call, check_tensor

from .rules import flag


__all__ = ["Polar", "kabsch", "polar", "procrustes", "special_procrustes"]


class Polar(NamedTuple):
    """The ``factor`` (..., m, n) with orthonormal columns (rows for m < n), and the symmetric ``positive``
    (..., n, n), which has no negative eigenvalue."""

    factor: Tensor
    positive: Tensor


def polar(matrix: Tensor) -> Polar:
    """The polar decomposition A = factor @ positive, as a :class:`Polar`. ``factor`` is :func:`procrustes` of A.
    ``positive`` is the square root of A^T A, and its gradient is bounded everywhere.

    Args:
        matrix: real or complex matrices (..., m, n).

    >>> U, H = keel.polar(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    >>> U
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    >>> H
    tensor([[3., 0.],
            [0., 2.]])
    """
    found = call(torch.ops.keel.polar, matrix)
    return Polar(found[0], found[1])  # by index: torch.fx cannot unpack


def procrustes(matrix: Tensor) -> Tensor:
    """The nearest matrix with orthonormal columns (rows for m < n) in the Frobenius norm: U V^T of A = U S V^T.

    There is no derivative where two singular values are zero (for m != n or complex matrices: where one is). Pairs
    whose sum is at most 10 sqrt(k) machine epsilons times the largest value get 0.

    Args:
        matrix: real or complex matrices (..., m, n).

    >>> A = torch.eye(3, requires_grad=True)
    >>> keel.procrustes(A)[0, 1].backward()  # torch.linalg.svd would give NaN here
    >>> A.grad
    tensor([[ 0.0000,  0.5000,  0.0000],
            [-0.5000,  0.0000,  0.0000],
            [ 0.0000,  0.0000,  0.0000]])
    """
    return call(torch.ops.keel.procrustes, matrix)


@overload
def special_procrustes(matrix: Tensor, *, return_margin: Literal[False] = False) -> Tensor:
    ...


@overload
def special_procrustes(matrix: Tensor, *, return_margin: Literal[True]) -> Tuple[Tensor, Tensor]:
    ...


def special_procrustes(
    matrix: Tensor, *, return_margin: bool = False
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """The nearest rotation in the Frobenius norm: U diag(1, ..., 1, d) V^T with d = det(U V^T).

    Args:
        matrix: real matrices (..., n, n).
        return_margin: also return the margin (...).

    The margin is s_(n-1) + sign(det A) s_n, infinite for n = 1. At margin 0
    several rotations are equally near, and the result is one of them. If the margin is at most 10 sqrt(n) machine
    epsilons times the largest singular value, the directions between them get gradient 0. Elsewhere the gradient grows
    like 2 / margin. No gradient flows through the margin.

    >>> A = torch.diag(torch.tensor([3.0, 2.0, -1.0]))
    >>> R, margin = keel.special_procrustes(A, return_margin=True)
    >>> R.diagonal(), margin
    (tensor([1., 1., 1.]), tensor(1.))
    """
    flag("keel.special_procrustes", "return_margin", return_margin)
    found = call(torch.ops.keel.special_procrustes, matrix)
    return (found[0], found[1]) if return_margin else found[0]


@overload
def kabsch(
    P: Tensor, Q: Tensor, weights: Optional[Tensor] = None, *, scale: Literal[False] = False
) -> Tuple[Tensor, Tensor]:
    ...


@overload
def kabsch(
    P: Tensor, Q: Tensor, weights: Optional[Tensor] = None, *, scale: Literal[True]
) -> Tuple[Tensor, Tensor, Tensor]:
    ...


def kabsch(
    P: Tensor, Q: Tensor, weights: Optional[Tensor] = None, *, scale: bool = False
) -> Union[Tuple[Tensor, Tensor], Tuple[Tensor, Tensor, Tensor]]:
    """The rotation R and translation t that map the points ``P`` to ``Q`` with the least weighted sum of squares:
    Q_i ~ R P_i + t for each point. ``P @ R.mT + t.unsqueeze(-2)`` are the moved points.

    Args:
        P: points (..., N, d).
        Q: their targets (..., N, d).
        weights: (..., N). Zeros are allowed, a negative weight gives NaN, and only the ratios matter. None means equal
            weights.
        scale: also find the best factor s in Q_i ~ s R P_i + t.

    Returns:
        R (..., d, d), which is never a reflection, and t (..., d); with ``scale`` also s (...), which is 1 if all
        points of P coincide.

    The dimensions before N broadcast: one Q, or one set of weights, for a batch of P, or the reverse.

    Gradients flow to P, Q and weights through :func:`special_procrustes`. If the points do not determine the rotation
    (all on a line, for example), the result is one that fits, with a finite gradient.

    >>> P = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> Q = torch.tensor([[5.0, 1.0], [5.0, 2.0], [3.0, 1.0]])  # a quarter turn, then (5, 1)
    >>> R, t = keel.kabsch(P, Q)
    >>> R.round(decimals=3) + 0, t.round(decimals=3)
    (tensor([[ 0., -1.],
            [ 1.,  0.]]), tensor([5., 1.]))
    """
    flag("keel.kabsch", "scale", scale)
    for points in (P, Q) if weights is None else (P, Q, weights):
        check_tensor("keel.kabsch", points)
    found = call(torch.ops.keel.kabsch, P, Q, weights, scale)
    return (found[0], found[1], found[2]) if scale else (found[0], found[1])
