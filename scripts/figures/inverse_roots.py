#!/usr/bin/env python3
"""The tables of docs/howto/shampoo.md: M^(-1/p) in float32 by keel.powm, by torch.linalg.eigh and by a coupled Newton
iteration, as many implementations of Shampoo do it. Prints Markdown.

    OMP_NUM_THREADS=1 PYTHONPATH=python python3 scripts/figures/inverse_roots.py
"""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Optional

import torch
from torch import Tensor

import keel

SIZE, MATRICES, MOST_STEPS, TOLERANCE = 128, 8, 100, 1e-6
POWERS, CONDITIONS = range(1, 9), (1e0, 1e2, 1e4, 1e6, 1e8)


def by_keel(stack: Tensor, p: int) -> Tensor:
    return keel.powm(stack, -1 / p)


def by_torch(stack: Tensor, p: int) -> Tensor:
    values, vectors = torch.linalg.eigh(stack)
    return vectors * values.pow(-1 / p).unsqueeze(-2) @ vectors.mT


def newton(matrix: Tensor, p: int) -> Tensor:
    """X and M = X^p A start at multiples of 1 and A. M goes to 1, so that X goes to A^(-1/p). Ends when M is near 1, or
    when rounding drives it away again."""
    one = torch.eye(len(matrix))
    scale = (1 + p) / (2 * matrix.norm())
    product, root = matrix * scale, one * scale ** (1 / p)
    best, error = root, (product - one).abs().max()
    for _ in range(MOST_STEPS):
        if error < TOLERANCE:
            break
        factor = ((p + 1) * one - product) / p
        root, product = root @ factor, torch.linalg.matrix_power(factor, p) @ product
        now = (product - one).abs().max()
        if not now < 1.2 * error:
            break
        best, error = root, now
    return best


def by_newton(stack: Tensor, p: int) -> Tensor:
    return torch.stack([newton(matrix, p) for matrix in stack])


METHODS: Dict[str, Callable[[Tensor, int], Tensor]] = {
    "keel.powm": by_keel,
    "torch.linalg.eigh": by_torch,
    "coupled Newton": by_newton,
    "keel.powm in float64": lambda stack, p: by_keel(stack.double(), p),
}


def matrices(condition: float) -> Tensor:
    """Eigenvalues from 1 down to 1 / condition, at equal ratios, in random bases; rounded to float32."""
    vectors = torch.linalg.qr(torch.randn(MATRICES, SIZE, SIZE, dtype=torch.float64))[0]
    values = condition ** -torch.linspace(0, 1, SIZE, dtype=torch.float64)
    made = vectors * values @ vectors.mT
    return (made / 2 + made.mT / 2).float()


def errors(stack: Tensor, p: int) -> Optional[List[float]]:
    """Of each method, the largest relative error (Frobenius norm) over the matrices that rounding left positive
    definite. The truth is computed in float64, of the rounded matrix. None if there is no such matrix."""
    values, vectors = torch.linalg.eigh(stack.double())
    good = values[:, 0] > 0
    if not good.any():
        return None
    truth = (vectors * values.pow(-1 / p).unsqueeze(-2) @ vectors.mT)[good]
    size = truth.norm(dim=(1, 2))
    return [((method(stack, p)[good] - truth).norm(dim=(1, 2)) / size).max().item() for method in METHODS.values()]


def seconds(stack: Tensor, p: int) -> List[float]:
    """Of each method, the least of thirty calls, in turns."""
    least = [float("inf")] * len(METHODS)
    for _ in range(30):
        for place, method in enumerate(METHODS.values()):
            before = time.perf_counter()
            method(stack, p)
            least[place] = min(least[place], time.perf_counter() - before)
    return least


def main() -> None:
    torch.manual_seed(0)
    stacks = {condition: matrices(condition) for condition in CONDITIONS}
    for condition, stack in stacks.items():
        good = int((torch.linalg.eigvalsh(stack.double())[:, 0] > 0).sum())
        finite = [int(method(stack, 4).isfinite().all(-1).all(-1).sum()) for method in METHODS.values()]
        print(f"condition {condition:.0e}: {good} of {MATRICES} positive definite; finite {finite}")
    print("\n| p | " + " | ".join(f"condition {condition:.0e}" for condition in CONDITIONS) + " |")
    print("|--:|" + "---|" * len(CONDITIONS))
    doubles = []
    for p in POWERS:
        cells = [errors(stack, p) for stack in stacks.values()]
        doubles.append(max(cell[-1] for cell in cells if cell))
        texts = [" / ".join(f"{e:.0e}" for e in cell[:-1]) if cell else "-" for cell in cells]
        print(f"| {p} | " + " | ".join(texts) + " |")
    print(f"\nIn float64: at most {max(doubles):.0e}")
    print("\n| ms a matrix, p = 4 | " + " | ".join(f"condition {condition:.0e}" for condition in CONDITIONS) + " |")
    print("|---|" + "--:|" * len(CONDITIONS))
    for name, row in zip(METHODS, zip(*[seconds(stack, 4) for stack in stacks.values()])):
        print(f"| {name} | " + " | ".join(f"{1000 * one / MATRICES:.2f}" for one in row) + " |")


if __name__ == "__main__":
    main()
