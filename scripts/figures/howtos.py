#!/usr/bin/env python3
"""Pictures of the how-to pages, from the programs' own functions: covariances of the whitened network's channels, and
tensors between two fibres. Draws docs/figures/howto_*.svg.

    PYTHONPATH=python python3 scripts/figures/howtos.py
"""

from __future__ import annotations

import contextlib
import io
import math
import runpy
import sys
from pathlib import Path
from typing import Any, Dict

import torch
from torch import Tensor

import keel
from svg import COLOURS, Drawing, colour_bar, matrix

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "PYTHONPATH=python python3 scripts/figures/howtos.py"


def run(name: str) -> Dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()):
        return runpy.run_path(str(ROOT / "examples" / "howto" / f"{name}.py"))


def save(drawing: Drawing, name: str) -> None:
    drawing.save(ROOT / "docs" / "figures" / f"howto_{name}.svg", COMMAND)


def covariance(output: Tensor) -> Tensor:
    return output.transpose(0, 1).flatten(1).cov()


def whitened_network() -> None:
    """The covariance of the norm's output, without weight and bias, for a batch of 512 images."""
    space = run("whiten_your_network")
    images, side = space["images"], 170
    drawing = Drawing(2 * side + 120, side + 60)
    for index, (title, model) in enumerate([("BatchNorm2d", space["plain"]), ("ZcaWhitening", space["whitened"])]):
        norm = model[1].train()
        torch.nn.init.ones_(norm.weight)
        left = 20 + index * (side + 25)
        drawing.text(left + side / 2, 28, title, size=13)
        matrix(drawing, left, 40, side, covariance(norm(model[0](images))).tolist(), 1)
    colour_bar(drawing, 2 * side + 62, 40, side, 1)
    save(drawing, "whiten_your_network")


def ellipse(drawing: Drawing, x: float, y: float, tensor: Tensor, colour: str) -> None:
    """Diffusion in the plane: the unit circle times the tensor's upper left corner."""
    angles = [2 * math.pi * step / 60 for step in range(61)]
    circle = torch.tensor([[math.cos(angle), math.sin(angle)] for angle in angles])
    points = circle @ tensor[:2, :2] * 24
    drawing.line([(x + a, y - b) for a, b in points.tolist()], colour, 2)


def fibres() -> None:
    space = run("spd_matrices")
    first, second = space["pair"]
    drawing = Drawing(640, 240)
    for row, (name, between) in enumerate(
        [
            ("log-Euclidean", lambda t: keel.expm((1 - t) * keel.logm(first) + t * keel.logm(second))),
            ("average", lambda t: (1 - t) * first + t * second),
        ]
    ):
        y = 60 + 115 * row
        drawing.text(12, y + 4, name, "start", 13, COLOURS[row])
        for step in range(5):
            tensor = between(step / 4)
            x = 170 + 105 * step
            ellipse(drawing, x, y, tensor, COLOURS[row])
            drawing.text(x, y + 56, f"volume {torch.linalg.det(tensor):.2f}", size=12)
    save(drawing, "spd_matrices")


def main() -> None:
    whitened_network()
    fibres()


if __name__ == "__main__":
    sys.exit(main())
