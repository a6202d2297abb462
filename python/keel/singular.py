"""Singular value decomposition of matrices of any shape, over ``torch.ops.keel``.

Matrices are (..., m, n). float16 and bfloat16 are computed in float32. A matrix with NaN or infinity
gives NaN for itself alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .rules import GRADIENT_RULES, GradientRule, Masked, written

__all__ = ["Svd", "nuclear_norm", "svd", "svdvals"]


class Svd(NamedTuple):
    """``U`` (..., m, k), ``S`` (..., k), descending, and ``Vh`` (..., k, n), with k = min(m, n): column i of U
    and row i of Vh belong to ``S[..., i]``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def svd(matrix: Tensor, rule: GradientRule = Masked()) -> Svd:
    """Singular value decomposition A = U diag(S) Vh with the gradient of ``rule``: :class:`keel.Masked` unless
    another is given. Takes the place of :func:`torch.linalg.svd` with ``full_matrices=False``.

    In each column of U the entry of largest magnitude is positive.

    The rule bounds 1 / (s_i - s_j), and 1 / (s_i + s_j) and 1 / s_i in the same way. The default equals torch's
    gradient where no two values, and no value and zero, are closer than 10 sqrt(k) machine epsilons of the
    largest. At repeated values it stays right for losses that see their vectors only as a whole.
    :func:`polar` and :func:`procrustes` are exact there.

    U, S and Vh cut to the leading values have the whole gradient: the dropped values take part in it.

    Differentiable to any order. Where the default rule leaves pairs out, a second derivative is an error; while a
    CUDA graph is captured and under vmap it is NaN, for those matrices alone.

    >>> U, S, Vh = keel.svd(torch.tensor([[3.0, 0.0], [0.0, -2.0], [0.0, 0.0]]))
    >>> S
    tensor([3., 2.])
    >>> U.shape, Vh.shape
    (torch.Size([3, 2]), torch.Size([2, 2]))
    """
    return Svd(*torch.ops.keel.svd(matrix, written("keel.svd", "rule", GRADIENT_RULES, rule)))


def svdvals(matrix: Tensor) -> Tensor:
    """The singular values, descending. Their gradient is U diag(dL/dS) Vh.

    >>> keel.svdvals(torch.tensor([[0.0, 2.0], [-3.0, 0.0]]))
    tensor([3., 2.])
    """
    return torch.ops.keel.svdvals(matrix)


def nuclear_norm(matrix: Tensor) -> Tensor:
    """The sum of the singular values. Its gradient is the polar factor, without directions whose values vanish;
    differentiable to any order.

    >>> A = torch.eye(2, requires_grad=True)
    >>> keel.nuclear_norm(A).backward()
    >>> A.grad
    tensor([[1., 0.],
            [0., 1.]])
    """
    return torch.ops.keel.nuclear_norm(matrix)
