#!/usr/bin/env python3
"""Runs each layer on generated, correlated activations and draws covariances before and after:
docs/figures/{zca_whitening,pca_denoising,pca_whitening}.svg.

    PYTHONPATH=python python3 scripts/figures/covariances.py
"""

from __future__ import annotations

from pathlib import Path

import torch

import keel
from svg import Drawing, colour_bar, matrix

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
COMMAND = "PYTHONPATH=python python3 scripts/figures/covariances.py"
CHANNELS = 16


def activations() -> torch.Tensor:
    """(64, 16, 8, 8): smooth mixtures of a few sources, and noise in every channel."""
    place = torch.linspace(0, 1, CHANNELS)
    sources = torch.stack([torch.cos(torch.pi * k * place) for k in range(1, 6)], dim=1)
    strength = torch.tensor([0.9, 0.7, 0.5, 0.35, 0.25])
    x = torch.einsum("ij,njhw->nihw", sources * strength, torch.randn(64, 5, 8, 8))
    return x + 0.15 * torch.randn(64, CHANNELS, 8, 8)


def covariance(x: torch.Tensor) -> torch.Tensor:
    return torch.cov(x.transpose(0, 1).flatten(1), correction=0)


def draw(name: str, panels: dict, limit: float) -> None:
    side, gap, left, top = 170, 30, 20, 40
    columns = 2 if len(panels) == 4 else len(panels)
    rows = len(panels) // columns
    drawing = Drawing(left + columns * (side + gap) + 40, rows * (top + side) + 20)
    for index, (title, entries) in enumerate(panels.items()):
        x, y = left + index % columns * (side + gap), top + index // columns * (side + top)
        drawing.text(x + side / 2, y - 12, title, size=13)
        matrix(drawing, x, y, side, entries.tolist(), limit)
    colour_bar(drawing, left + columns * (side + gap) - 10, top, side, limit)
    drawing.save(FIGURES / f"{name}.svg", COMMAND)


def summary(name: str, panels: dict) -> None:
    for title, entries in panels.items():
        off = entries - torch.diag(entries.diagonal())
        rank = int((torch.linalg.eigvalsh(entries) > 1e-3).sum())
        print(f"{name}: {title}: diagonal {entries.diagonal().min():.3f} ... "
              f"{entries.diagonal().max():.3f}, largest off-diagonal {off.abs().max():.3f}, "
              f"eigenvalues above 1e-3: {rank}")  # fmt: skip


def main() -> None:
    torch.manual_seed(0)
    x = activations()
    before = covariance(x)
    standard = covariance(torch.nn.BatchNorm2d(CHANNELS)(x))
    four = keel.LeadingCount(4)
    with torch.no_grad():
        figures = {
            "zca_whitening": {
                "before": before,
                "BatchNorm2d": standard,
                "ZcaWhitening, group_size=4": covariance(
                    keel.nn.ZcaWhitening(CHANNELS, group_size=4)(x)
                ),
                "ZcaWhitening": covariance(keel.nn.ZcaWhitening(CHANNELS)(x)),
            },
            "pca_denoising": {
                "before": before,
                "BatchNorm2d": standard,
                "PcaDenoising, 4 kept": covariance(keel.nn.PcaDenoising(CHANNELS, rank=four)(x)),
            },
            "pca_whitening": {
                "before": before,
                "PcaWhitening": covariance(keel.nn.PcaWhitening(CHANNELS)(x)),
                "PcaWhitening, 4 kept": covariance(keel.nn.PcaWhitening(CHANNELS, rank=four)(x)),
            },
        }
    for name, panels in figures.items():
        panels = {title: entries.detach() for title, entries in panels.items()}
        draw(name, panels, 1.0)
        summary(name, panels)
    layer = keel.nn.PcaDenoising(CHANNELS)
    layer(x)
    print(f"PcaDenoising at 0.99 of the energy keeps {int(layer.kept)} of {CHANNELS}")


if __name__ == "__main__":
    main()
