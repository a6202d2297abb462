"""Nearest orthogonal matrices and rotations, over ``torch.ops.keel``.

Matrices are (..., m, n). Gradients are exact, also at repeated singular values, and differentiable to any
order. They end only where the answer itself is ambiguous, and are finite there too: the directions between
which nothing decides get 0. float16 and bfloat16 are computed in float32. A matrix with NaN or infinity gives
NaN for itself alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Tuple, Union, overload

import torch
from torch import Tensor

from .rules import flag


__all__ = ["Polar", "polar", "procrustes", "special_procrustes"]


class Polar(NamedTuple):
    """The ``factor`` (..., m, n) with orthonormal columns, for m < n rows, and the symmetric ``positive``
    (..., n, n), no eigenvalue of which is negative."""

    factor: Tensor
    positive: Tensor


def polar(matrix: Tensor) -> Polar:
    """The polar decomposition A = factor @ positive. The factor is :func:`procrustes` of A; ``positive`` is the root
    of A^T A, and its gradient is bounded everywhere.

    >>> U, H = keel.polar(torch.tensor([[0.0, -2.0], [3.0, 0.0]]))
    >>> U
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    >>> H
    tensor([[3., 0.],
            [0., 2.]])
    """
    return Polar(*torch.ops.keel.polar(matrix))


def procrustes(matrix: Tensor) -> Tensor:
    """The nearest matrix with orthonormal columns, for m < n rows, in the Frobenius norm: U V^T of A = U S V^T.

    The gradient ends where two singular values vanish (for m != n: where one does). Pairs whose sum is within
    10 sqrt(k) machine epsilons of the largest value get 0.

    >>> A = torch.eye(3, requires_grad=True)
    >>> keel.procrustes(A)[0, 1].backward()  # torch.linalg.svd would give NaN here
    >>> A.grad
    tensor([[ 0.0000,  0.5000,  0.0000],
            [-0.5000,  0.0000,  0.0000],
            [ 0.0000,  0.0000,  0.0000]])
    """
    return torch.ops.keel.procrustes(matrix)


@overload
def special_procrustes(matrix: Tensor, *, return_margin: Literal[False] = False) -> Tensor:
    ...


@overload
def special_procrustes(matrix: Tensor, *, return_margin: Literal[True]) -> Tuple[Tensor, Tensor]:
    ...


def special_procrustes(
    matrix: Tensor, *, return_margin: bool = False
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """The nearest rotation to (..., n, n) matrices in the Frobenius norm: U diag(1, ..., 1, d) V^T with
    d = det(U V^T).

    ``return_margin=True`` returns the margin (...) too: s_(n-1) + sign(det A) s_n, infinite for n = 1. At 0 two
    rotations are equally near: the answer is one of them, and the directions between them get gradient 0, as soon
    as the margin is within 10 sqrt(n) machine epsilons of the largest singular value. The gradient grows like
    2 / margin. No gradient flows through the margin.

    >>> A = torch.diag(torch.tensor([3.0, 2.0, -1.0]))
    >>> R, margin = keel.special_procrustes(A, return_margin=True)
    >>> R.diagonal(), margin
    (tensor([1., 1., 1.]), tensor(1.))
    """
    flag("keel.special_procrustes", "return_margin", return_margin)
    rotation, margin = torch.ops.keel.special_procrustes(matrix)
    return (rotation, margin) if return_margin else rotation
