#!/usr/bin/env python3
"""Draws, from a record of the benchmarks, how many times as long the best peer takes as keel's eigh or svd (of square
matrices): over n, a line for each batch, a panel for each type. Or bars: the time of layers, and of a whole network's
steps, over BatchNorm's.

    python3 scripts/figures/speed.py bench/results/gpu-h200-libtorch2.11.0.json docs/figures/eigh_gpu.svg
    python3 scripts/figures/speed.py --of svd bench/results/gpu-h200-libtorch2.11.0-svd.json docs/figures/svd_gpu.svg
    python3 scripts/figures/speed.py --of layers --step bench/results/resnet50-h200-torch2.11.0.json \\
        bench/results/gpu-h200-libtorch2.11.0-layers.json docs/figures/layers_gpu.svg
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from statistics import median
from typing import Dict, List, Tuple

from svg import COLOURS, Axes, Drawing, legend

# Of a cell: keel's own entries, and what is no solver. All others are peers.
OWN = ("keel", "keel operator", "keel, one thread", "a launch", "copy")
# The type, n and batch of a cell.
CELLS = {
    "eigh": re.compile(r"eigh/forward(, float64)?/n=(\d+)/batch=(\d+)$"),
    "svd": re.compile(r"svd(, float64)?/(\d+)x\2/batch=(\d+)$"),
}
Ratios = Dict[Tuple[bool, int], List[Tuple[int, float]]]  # (float64, batch): (n, ratio)


def ratios(record, of: str) -> Ratios:
    found: Ratios = {}
    for name, times in record["microseconds"].items():
        cell = CELLS[of].match(name)
        if not cell:
            continue
        # torch.linalg.eigh's time has the host's in it, and so has the operator's.
        device = [time for peer, time in times.items() if peer not in OWN and peer != "torch"]
        ratio = min(
            *([min(device) / times["keel"]] if device else []),
            *([times["torch"] / times.get("keel operator", times["keel"])] if "torch" in times else []),
            float("inf"),
        )
        found.setdefault((bool(cell[1]), int(cell[3])), []).append((int(cell[2]), ratio))
    return {key: sorted(points) for key, points in sorted(found.items()) if len(points) > 1}


def bars(layers, step) -> Drawing:
    """Below 1, drawn as a dashed line, keel is faster."""
    rows: List[Tuple[str, float]] = []
    for name, times in layers["microseconds"].items():
        cell = re.match(r"layer/(\w+)(.*)/d=(\d+)/graph$", name)
        if cell:
            what = {"zca": "ZCA", "pca_denoising": "PCA denoising"}[cell[1]]
            label = f"{what}{cell[2].replace(' e=', ' to ')}, groups of {cell[3]}"
            rows.append((label, times["keel"] / times["BatchNorm2d"]))
    for name, times in step["milliseconds"].items():
        if name != "BatchNorm":
            label = name.replace(" d = ", ", groups of ").replace(", relu", ", ReLU inside")
            rows.append((f"ResNet50, {label}", median(times) / median(step["milliseconds"]["BatchNorm"])))
    left, width, most = 270, 330, max(ratio for _, ratio in rows)
    drawing = Drawing(left + width + 60, 40 + 20 * len(rows))
    drawing.text(left, 16, "time over BatchNorm's", "start")
    for index, (label, ratio) in enumerate(rows):
        y = 28 + 20 * index
        drawing.text(left - 6, y + 11, label, "end")
        drawing.rectangle(left, y, width * ratio / most, 14, COLOURS[0] if "ResNet" not in label else COLOURS[2])
        drawing.text(left + width + 40, y + 11, f"{ratio:.2f}", "end")
    one = left + width / most
    drawing.line([(one, 22), (one, 30 + 20 * len(rows))], dash="4 3")
    return drawing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--of", choices=[*CELLS, "layers"], default="eigh")
    parser.add_argument("--step", type=Path, help="with layers: a record of a network's steps")
    options = parser.parse_args()
    record = json.loads(options.record.read_text(encoding="utf-8"))
    if options.of == "layers":
        drawing = bars(record, json.loads(options.step.read_text(encoding="utf-8")))
        return drawing.save(options.picture, f"scripts/figures/speed.py {options.record.name} {options.step.name}")
    found = ratios(record, options.of)
    if not found:
        raise SystemExit(f"speed.py: expected cells of {options.of} in {options.record}, got none")
    sizes = [n for points in found.values() for n, _ in points]
    all_ratios = [ratio for points in found.values() for _, ratio in points]
    least, most = min(0.5, *all_ratios), max(20, *all_ratios)
    types = sorted({double for double, _ in found})
    batches = sorted({batch for _, batch in found})
    width = 330
    drawing = Drawing(len(types) * (width + 60) + 130, 330)
    for index, double in enumerate(types):
        axes = Axes(drawing, 50 + index * (width + 60), 50, width, 220, (min(sizes), max(sizes)), (least, most))
        ticks = [n for n in (4, 16, 64, 256, 1024, 2048) if min(sizes) <= n <= max(sizes)]
        axes.frame(
            "float64" if double else "float32",
            "n",
            ticks,
            [t for t in (0.5, 1, 2, 5, 10, 20, 50, 100, 1000) if t <= axes.y_range[1]],
            "the best peer's time over keel's" if index == 0 else "",
        )
        axes.curve([min(sizes), max(sizes)], [1, 1], "#333333", "4 3")
        for batch, colour in zip(batches, COLOURS):
            points = found.get((double, batch), [])
            axes.curve([n for n, _ in points], [ratio for _, ratio in points], colour)
            for n, ratio in points:
                drawing.circle(axes.x(n), axes.y(ratio), 2.5, colour)
    legend(drawing, len(types) * (width + 60) + 10, 60, [(f"batch {b}", c, "") for b, c in zip(batches, COLOURS)])
    drawing.save(options.picture, f"scripts/figures/speed.py {options.record.name}")


if __name__ == "__main__":
    main()
