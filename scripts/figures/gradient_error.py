#!/usr/bin/env python3
"""Measures how far each rule's gradient of S = M^(-1/2) is from the exact one, against the number
of terms K; draws docs/figures/gradient_error.svg and gradient_cosine.svg, writes the numbers to
docs/figures/gradient_error.csv, and prints the table of docs/choosing_a_rule.md.

    PYTHONPATH=python python3 scripts/figures/gradient_error.py
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import torch

import keel
from svg import COLOURS, Axes, Drawing, legend

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
COMMAND = "PYTHONPATH=python python3 scripts/figures/gradient_error.py"
TERMS = list(range(1, 31)) + list(range(32, 61, 2)) + list(range(65, 201, 5))
SHOWN = [1, 5, 9, 19, 50, 100, 200]
DRAWS = 10
SERIES = {"power_iteration": keel.PowerIteration, "taylor": keel.Taylor}
FIXED = {
    "lorentzian 1e-4": keel.Lorentzian(1e-4),
    "lorentzian 1e-2": keel.Lorentzian(1e-2),
    "masked": keel.Masked(),
    "analytic": keel.Analytic(),
    "exact": keel.Exact(),
}


def wishart(n: int) -> torch.Tensor:
    x = torch.randn(DRAWS, n, 4 * n, dtype=torch.double)
    return x @ x.mT / (4 * n)


def geometric(n: int, low: float, high: float) -> torch.Tensor:
    """Each eigenvalue is the one before times a ratio between low and high."""
    ratios = low + (high - low) * torch.rand(DRAWS, n, dtype=torch.double)
    ratios[:, 0] = 1
    q = torch.linalg.qr(torch.randn(DRAWS, n, n, dtype=torch.double))[0]
    matrix = q * ratios.cumprod(-1).unsqueeze(-2) @ q.mT
    return (matrix + matrix.mT) / 2


def singular(n: int, samples: int, eps: float) -> torch.Tensor:
    """Fewer samples than channels: n - samples eigenvalues are eps, equal to rounding."""
    x = torch.randn(DRAWS, n, samples, dtype=torch.double)
    return x @ x.mT / samples + eps * torch.eye(n, dtype=torch.double)


def gradient(matrix: torch.Tensor, direction: torch.Tensor, rule) -> torch.Tensor:
    matrix = matrix.detach().requires_grad_()
    result = keel.inv_sqrtm(matrix, rule)
    (grad,) = torch.autograd.grad(result, matrix, direction.to(matrix.dtype))
    return grad.double()


def compare(grad: torch.Tensor, exact: torch.Tensor):
    """Mean relative error (Frobenius norm) and mean cosine over the draws."""
    norms = exact.norm(dim=(-2, -1))
    error = (grad - exact).norm(dim=(-2, -1)) / norms
    cosine = (grad * exact).sum((-2, -1)) / (norms * grad.norm(dim=(-2, -1)))
    return error.mean().item(), cosine.mean().item()


def measure(name: str, matrix: torch.Tensor, rows: list) -> dict:
    direction = torch.randn_like(matrix)
    direction = direction + direction.mT
    exact = gradient(matrix, direction, keel.Exact())
    curves = {}
    for dtype in (torch.float32, torch.float64):
        kind = str(dtype).split(".")[1]
        for rule, make in SERIES.items():
            gradients = (gradient(matrix.to(dtype), direction, make(k)) for k in TERMS)
            curves[rule, kind] = [compare(grad, exact) for grad in gradients]
            rows += [(name, rule, k, kind, *pair) for k, pair in zip(TERMS, curves[rule, kind])]
        for rule, value in FIXED.items():
            pair = compare(gradient(matrix.to(dtype), direction, value), exact)
            curves[rule, kind] = [pair]
            rows.append((name, rule, "", kind, *pair))
    return curves


def draw(cases: dict, which: int, path: Path, label: str, y_range, y_ticks, log_y: bool) -> None:
    width, height, gap, left, top = 250, 170, 70, 55, 75
    drawing = Drawing(left + 2 * (width + gap) - gap + 15, top + 2 * (height + gap) - 20)
    for index, (title, curves) in enumerate(cases.items()):
        x, y = left + index % 2 * (width + gap), top + index // 2 * (height + gap)
        axes = Axes(drawing, x, y, width, height, (1, 200), y_range, log_y)
        axes.frame(title, "terms K", [1, 2, 5, 10, 19, 50, 100, 200], y_ticks, "")
        for rule, colour in zip(SERIES, COLOURS):
            axes.curve(TERMS, [pair[which] for pair in curves[rule, "float64"]], colour)
        for rule, colour in zip(("lorentzian 1e-2", "masked"), COLOURS[2:]):
            value = curves[rule, "float64"][0][which]
            axes.curve([1, 200], [value, value], colour, "5 4")
    drawing.text(left, 18, label, "start", 12)
    for index, (rule, dash) in enumerate((("PowerIteration(K)", ""), ("Taylor(K)", ""),
                                          ("Lorentzian(1e-2)", "5 4"), ("Masked()", "5 4"))):  # fmt: skip
        legend(drawing, left + 142 * index, 38, [(rule, COLOURS[index], dash)])
    drawing.save(path, COMMAND)


def row(label: str, cells) -> str:
    return f"| {label} | " + " | ".join(f"{e:.2g} ({c:.3f})" for e, c in cells) + " |"


def table(cases: dict) -> None:
    print("\nrelative error (cosine), float64 unless said otherwise")
    print("| rule | " + " | ".join(cases) + " |\n|---|" + "---|" * len(cases))
    for rule in SERIES:
        for terms in SHOWN:
            cells = (c[rule, "float64"][TERMS.index(terms)] for c in cases.values())
            print(row(f"{rule} K = {terms}", cells))
    for rule in FIXED:
        for kind in ("float64", "float32"):
            print(row(f"{rule}, {kind}", (c[rule, kind][0] for c in cases.values())))


def main() -> None:
    torch.manual_seed(0)
    matrices = {
        "Wishart, n = 16": wishart(16),
        "Wishart, n = 64": wishart(64),
        "ratios 0.84 ... 0.86, n = 16": geometric(16, 0.84, 0.86),
        "8 samples + 1e-4 I, n = 16": singular(16, 8, 1e-4),
    }
    rows: list = []
    cases = {name: measure(name, matrix, rows) for name, matrix in matrices.items()}
    with open(FIGURES / "gradient_error.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["matrices", "rule", "terms", "type", "relative_error", "cosine"])
        writer.writerows((*row[:4], f"{row[4]:.6g}", f"{row[5]:.6g}") for row in rows)
    draw(cases, 0, FIGURES / "gradient_error.svg", "relative error of dL/dM", (1e-4, 10),
         [1e-4, 1e-3, 1e-2, 0.1, 1, 10], True)  # fmt: skip
    draw(cases, 1, FIGURES / "gradient_cosine.svg", "cosine with the exact dL/dM", (-1, 1),
         [-1, -0.5, 0, 0.5, 1], False)  # fmt: skip
    table(cases)


if __name__ == "__main__":
    sys.exit(main())
