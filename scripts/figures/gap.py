#!/usr/bin/env python3
"""The README's picture: the gradient of two losses while two eigenvalues meet, in float32, through
torch.linalg.eigh and through keel. Draws docs/figures/gap.svg.

    PYTHONPATH=python python3 scripts/figures/gap.py
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Callable, Dict, List

import torch
from torch import Tensor

import keel
from svg import COLOURS, GRID, INK, Axes, Drawing

FILE = Path(__file__).resolve().parents[2] / "docs" / "figures" / "gap.svg"
COMMAND = "PYTHONPATH=python python3 scripts/figures/gap.py"
KEEL, TORCH = COLOURS[0], COLOURS[1]
FURTHEST, ZERO = 0.3, 4e-9  # the gap where the curves start, and where the axis has its zero
PANEL = (300, 190)


def gaps() -> List[float]:
    """Gaps from one machine epsilon up, such that 1 + gap is exact in float32."""
    eps = torch.finfo(torch.float32).eps
    steps = {round(10 ** (index / 30)) for index in range(round(30 * math.log10(FURTHEST / eps)))}
    return [eps * step for step in sorted(steps, reverse=True)]


def gradient(loss: Callable[[Tensor], Tensor], gap: float) -> float:
    """The size of dL/dM at M = diag(1 + gap, 1)."""
    matrix = torch.diag(torch.tensor([1 + gap, 1], dtype=torch.float32)).requires_grad_()
    return torch.autograd.grad(loss(matrix), matrix)[0].norm().item()


def of_vectors(eigh: Callable) -> Callable[[Tensor], Tensor]:
    return lambda matrix: eigh(matrix)[1][0].sum()


def inverse_root_by_torch(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.rsqrt() @ vectors.mT


def curve(axes: Axes, loss: Callable[[Tensor], Tensor], colour: str) -> None:
    """The gradient over all gaps, and a mark where there is none: a dot, or a cross for NaN."""
    points = [(gap, gradient(loss, gap)) for gap in gaps()]
    axes.curve(*zip(*points), colour)
    end = gradient(loss, 0)
    if math.isfinite(end):
        x, y = axes.x(ZERO), axes.y(end)
        axes.d.line([(axes.x(points[-1][0]), axes.y(points[-1][1])), (x, y)], colour, 2, "3 3")
        axes.d.circle(x, y, 4, colour)
    else:
        x, y = axes.x(ZERO), axes.top + 8
        for sign in (-1, 1):
            axes.d.line([(x - 5, y - 5 * sign), (x + 5, y + 5 * sign)], colour, 2.5)
        axes.d.text(x - 10, y + 4, "NaN", "end", 12, colour)


def panel(drawing: Drawing, left: float, title: str, y_range, y_ticks: Dict, log: bool) -> Axes:
    axes = Axes(drawing, left, 40, *PANEL, (FURTHEST, ZERO / 2), y_range, log)
    bottom = axes.top + axes.height
    for tick, label in [(10.0**-k, f"1e-{k}") for k in (1, 3, 5, 7)] + [(ZERO, "0")]:
        drawing.line([(axes.x(tick), axes.top), (axes.x(tick), bottom)], GRID)
        drawing.text(axes.x(tick), bottom + 17, label, size=12)
    for tick, label in y_ticks.items():
        drawing.line([(left, axes.y(tick)), (left + axes.width, axes.y(tick))], GRID)
        drawing.text(left - 6, axes.y(tick) + 4, label, "end", 12)
    drawing.rectangle(left, axes.top, axes.width, axes.height, "none", INK)
    drawing.text(left + axes.width / 2, axes.top - 12, title, size=13)
    drawing.text(left + axes.width / 2, bottom + 37, "gap between the two eigenvalues", size=12)
    return axes


def main() -> None:
    drawing = Drawing(730, 284)
    ticks = {1: "1", 1e2: "100", 1e4: "1e4", 1e6: "1e6"}
    left = panel(drawing, 46, "|dL/dM|, L sees an eigenvector", (0.5, 3e7), ticks, True)
    curve(left, of_vectors(torch.linalg.eigh), TORCH)
    curve(left, of_vectors(lambda m: keel.eigh(m, keel.PowerIteration(terms=19))), KEEL)
    drawing.text(left.x(3e-4), left.y(2.5e4), "torch.linalg.eigh", "end", 13, TORCH)
    drawing.text(left.x(1e-5), left.y(40), "keel.eigh, PowerIteration", "middle", 13, KEEL)

    ticks = {0: "0", 0.2: "0.2", 0.4: "0.4", 0.6: "0.6"}
    right = panel(drawing, 412, "|dL/dM|, L sees M^(-1/2)", (0, 0.8), ticks, False)
    curve(right, lambda m: inverse_root_by_torch(m)[0, 1], TORCH)
    curve(right, lambda m: keel.inv_sqrtm(m)[0, 1], KEEL)
    drawing.text(right.x(6e-7), right.y(0.1), "torch.linalg.eigh", "end", 13, TORCH)
    drawing.text(right.x(1e-4), right.y(0.42), "keel.inv_sqrtm", "middle", 13, KEEL)
    drawing.save(FILE, COMMAND)


if __name__ == "__main__":
    sys.exit(main())
