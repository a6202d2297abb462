"""Minimal SVG for the figures of the docs: curves on axes, and matrices as coloured squares."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Callable, List, Sequence, Tuple
from xml.sax.saxutils import escape

PAPER, INK, GRID = "white", "#333333", "#dddddd"
COLOURS = ["#0b62a4", "#c4421a", "#2e8b57", "#7a4fa3", "#8a6d1d", "#555555"]
# Replacements for these colours in dark mode. The squares of a matrix keep theirs.
DARK = {PAPER: "#0d1117", INK: "#d1d7e0", GRID: "#30363d"}
DARK.update(zip(COLOURS, ["#58a6ff", "#ff7b54", "#4cc38a", "#b392f0", "#d4a72c", "#9198a1"]))


def dark_style() -> str:
    rules = [
        f'[{use}="{light}"] {{ {use}: {dark}; }}'
        for light, dark in DARK.items()
        for use in ("fill", "stroke")
    ]
    return "<style>@media (prefers-color-scheme: dark) { " + " ".join(rules) + " }</style>"


class Drawing:
    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.parts: List[str] = []
        self.rectangle(0, 0, width, height, PAPER)

    def rectangle(self, x: float, y: float, w: float, h: float, fill: str, stroke="") -> None:
        outline = f' stroke="{stroke}"' if stroke else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}"{outline}/>'
        )

    def line(self, points: Sequence[Tuple[float, float]], stroke=INK, width=1.0, dash="") -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{stroke}" '
            f'stroke-width="{width}"{dashes}/>'
        )

    def circle(self, x: float, y: float, radius: float, fill: str) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"/>')

    def text(self, x: float, y: float, words: str, anchor="middle", size=11, fill=INK) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{fill}">{escape(words)}</text>'
        )

    def save(self, path: Path, made_by: str) -> None:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" font-family="sans-serif">'
        )
        note = f"<metadata>made by: {escape(made_by)}</metadata>"
        path.write_text("\n".join([head, note, dark_style(), *self.parts, "</svg>"]) + "\n")
        print(f"wrote {path}")


class Axes:
    """A panel with its scales. The x axis is logarithmic, and with `log_y` the y axis too."""

    def __init__(self, drawing, left, top, width, height, x_range, y_range, log_y=True) -> None:
        self.d, self.left, self.top, self.width, self.height = drawing, left, top, width, height
        self.x_range, self.y_range = x_range, y_range
        self.scale: Callable[[float], float] = math.log10 if log_y else float

    def x(self, value: float) -> float:
        low, high = map(math.log10, self.x_range)
        return self.left + (math.log10(value) - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        low, high = map(self.scale, self.y_range)
        part = (self.scale(min(max(value, self.y_range[0]), self.y_range[1])) - low) / (high - low)
        return self.top + (1 - part) * self.height

    def frame(self, title: str, x_label: str, x_ticks, y_ticks, y_label="") -> None:
        right, bottom = self.left + self.width, self.top + self.height
        for tick in x_ticks:
            self.d.line([(self.x(tick), self.top), (self.x(tick), bottom)], GRID)
            self.d.text(self.x(tick), bottom + 15, f"{tick:g}")
        for tick in y_ticks:
            self.d.line([(self.left, self.y(tick)), (right, self.y(tick))], GRID)
            self.d.text(self.left - 5, self.y(tick) + 4, f"{tick:g}", "end")
        self.d.rectangle(self.left, self.top, self.width, self.height, "none", INK)
        self.d.text((self.left + right) / 2, self.top - 8, title, size=12)
        self.d.text((self.left + right) / 2, bottom + 32, x_label)
        if y_label:
            self.d.text(self.left, self.top - 24, y_label, "start")

    def curve(self, xs, ys, colour: str, dash="") -> None:
        self.d.line([(self.x(x), self.y(y)) for x, y in zip(xs, ys)], colour, 2, dash)


def legend(drawing: Drawing, x: float, y: float, entries) -> None:
    """Entries (label, colour, dash), one below another."""
    for index, (label, colour, dash) in enumerate(entries):
        height = y + 16 * index
        drawing.line([(x, height), (x + 24, height)], colour, 2, dash)
        drawing.text(x + 30, height + 4, label, "start")


def diverging(value: float) -> str:
    """Blue at -1, white at 0, red at 1."""
    value = min(max(value, -1.0), 1.0)
    end = (178, 24, 43) if value > 0 else (33, 102, 172)
    return "#" + "".join(f"{round(255 + (channel - 255) * abs(value)):02x}" for channel in end)


def matrix(drawing: Drawing, left: float, top: float, side: float, entries, limit: float) -> None:
    cell = side / len(entries)
    for i, row in enumerate(entries):
        for j, value in enumerate(row):
            drawing.rectangle(left + j * cell, top + i * cell, cell, cell, diverging(value / limit))
    drawing.rectangle(left, top, side, side, "none", INK)


def colour_bar(drawing: Drawing, left: float, top: float, height: float, limit: float) -> None:
    steps = 40
    for step in range(steps):
        value = 1 - 2 * (step + 0.5) / steps
        y = top + step * height / steps
        drawing.rectangle(left, y, 12, height / steps + 0.5, diverging(value))
    drawing.rectangle(left, top, 12, height, "none", INK)
    for value in (1, 0, -1):
        drawing.text(left + 17, top + (1 - value) / 2 * height + 4, f"{value * limit:g}", "start")
