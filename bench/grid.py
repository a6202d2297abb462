#!/usr/bin/env python3
"""Times keel's eigh, eigvalsh, svd and svdvals beside torch.linalg's and JAX's over a grid: shape x spectrum x type
x batch. Prints, per cell, the time of the fastest accurate peer over keel's. A peer is accurate if its residual is at
most four times LAPACK's. Writes a record and a picture of it.

    PYTHONPATH=python python3 bench/grid.py --device cuda --seconds 100
    PYTHONPATH=python python3 bench/grid.py --device cpu --threads 1 --seconds 100
    PYTHONPATH=python python3 bench/grid.py --draw bench/results/grid-cuda-h200.json docs/figures/grid_cuda.svg

A cell's time is the median of its rounds, in which keel and its peers take turns. On CUDA it is what a caller sees
between two events: the host's part counts, on both sides. Cells come in the order of their weight, so a short run has
the most important ones. $OUT is the folder of both files, if it is set.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "figures"))
from svg import Drawing, diverging  # noqa: E402

OPERATIONS = ["svd", "eigh", "svdvals", "eigvalsh"]
# The second name is that of the symmetric counterpart.
SPECTRA = {
    "random": "random",
    "condition 1e3": "condition 1e3",
    "one dominant": "one dominant",
    "relu(randn) + 1": "its Gram matrix",
    "rows graded": "graded down",
    "upper triangular": "tridiagonal",
    "i^-0.7": "i^-0.7",
    "columns graded": "graded up",
    "rank-deficient": "rank-deficient",
    "clusters": "clusters",
    "identity": "identity",
    "diagonal": "diagonal",
}
# (m, n, batch): the first of equal weight comes first.
SQUARES = [(n, n, b) for n, b in [
    (256, 1), (64, 64), (512, 1), (128, 16), (1024, 1), (64, 1), (32, 256), (128, 1), (2048, 1), (4096, 1), (16, 1),
    (8, 1024), (4, 1), (512, 16), (32, 1), (256, 16), (16, 1024), (4, 4096), (8, 1), (1024, 4),
    (128, 256)]]  # fmt: skip
OTHERS = [(512, 64, 16), (100000, 16, 1), (4096, 64, 1), (1000000, 3, 1), (1000, 3, 64), (768, 3072, 1), (64, 512, 16),
          (16, 100000, 1)]  # fmt: skip
WIDEST_REFERENCE = 512  # LAPACK's residual at larger n is taken from this one, times the root of the ratio


def cells():
    """All cells, the most important ones first. Of a shape the random spectrum comes first."""
    found = []
    for o, operation in enumerate(OPERATIONS):
        shapes = SQUARES
        if "svd" in operation:
            shapes = [shape for pair in zip(SQUARES, OTHERS) for shape in pair] + SQUARES[len(OTHERS):]
        for t, kind in enumerate(["float32", "float64"]):
            for place, shape in enumerate(shapes):
                for s, spectrum in enumerate(SPECTRA):
                    found.append((6 * o + 5 * t + place + s, operation, kind, shape, spectrum))
    return [cell[1:] for cell in sorted(found, key=lambda cell: cell[0])]


def bases(torch, batch, m, n, device, seed, kept={}):
    """Orthonormal columns (batch, m, n) in float64. Cholesky's QR twice: one matrix after another would take long."""
    key = (batch, m, n, device, seed)
    if key not in kept:
        x = torch.randn(batch, m, n, dtype=torch.float64, device=device)
        for _ in range(2):
            x = torch.linalg.solve_triangular(torch.linalg.cholesky(x.mT @ x).mT, x, upper=True, left=False)
        kept.clear() if len(kept) > 5 else None
        kept[key] = x
    return kept[key]


def make(torch, spectrum, shape, symmetric, kind, device):
    m, n = max(shape[:2]), min(shape[:2])
    batch, options = shape[2], {"dtype": torch.float64, "device": device}
    torch.manual_seed(m + n + batch)
    at = torch.arange(n, **options)
    part = at / max(n - 1, 1)
    values = {
        "condition 1e3": lambda: 10 ** (-3 * part),
        "one dominant": lambda: torch.where(at == 0, torch.ones_like(at), 1e-5 * (1 - part / 2)),
        "i^-0.7": lambda: (at + 1) ** -0.7,
        "rank-deficient": lambda: (at < (n + 1) // 2) * (1 - part / 2),
        "clusters": lambda: 2.0 ** -(at * 4 / n).floor() * (1 + 1e-13 * at),
    }
    grades = 10 ** (-12 * torch.arange(m, **options) / max(m - 1, 1))
    if spectrum in values:
        left = bases(torch, batch, m, n, device, 0)
        a = (left * values[spectrum]()) @ (left if symmetric else bases(torch, batch, n, n, device, 1)).mT
    elif spectrum in ("identity", "diagonal"):
        a = torch.zeros(batch, m, n, **options)
        a.diagonal(dim1=-2, dim2=-1)[:] = torch.randn(n, **options) if spectrum == "diagonal" else 1
    else:
        a = torch.randn(batch, m, n, **options)
        if symmetric:
            a = (a + a.mT) / 2
        if spectrum == "relu(randn) + 1":
            a = torch.randn(batch, m, n, **options).relu() + 1
            a = a.mT @ a / n if symmetric else a
        elif spectrum == "upper triangular":
            a = a.tril(1).triu(-1) if symmetric else a.triu()
        elif spectrum == "rows graded":
            a = a * grades[:, None] * (grades if symmetric else 1)
        elif spectrum == "columns graded":
            a = a * grades[:n].flip(0) * (grades.flip(0)[:, None] if symmetric else 1)
            a = a / a.abs().amax() if not symmetric else a
    a = a if shape[0] >= shape[1] else a.mT
    return a.to(getattr(torch, kind)).contiguous()


def quality(torch, a, result, operation, exact):
    """(residual, orthogonality), the worst of the batch, relative to the matrix, in float64. Of values alone the first
    is their error against `exact`, and without that how much the sum of their squares is off."""
    a = a.double()
    norm = torch.linalg.matrix_norm(a).clamp_min(1e-300)
    if operation in ("eigvalsh", "svdvals"):
        result = result.double()
        if exact is not None:
            off = (result[: len(exact)].to(exact.device) - exact).abs().amax(-1)
            return (off / exact.abs().amax(-1)).max().item(), None
        return ((result.square().sum(-1).sqrt() - norm).abs() / norm).max().item(), None

    def defect(q):
        return torch.linalg.matrix_norm(q.mT @ q - torch.eye(q.shape[-1], dtype=q.dtype, device=q.device))

    if operation == "eigh":
        values, v = (x.double() for x in result)
        rest, orthogonality = a @ v - v * values.unsqueeze(-2), defect(v)
    else:
        u, values, vh = (x.double() for x in result)
        rest, orthogonality = a - (u * values.unsqueeze(-2)) @ vh, torch.maximum(defect(u), defect(vh.mT))
    return (torch.linalg.matrix_norm(rest) / norm).max().item(), orthogonality.max().item()


class Grid:
    def __init__(self, options):
        self.torch, self.keel = importlib.import_module("torch"), importlib.import_module("keel")
        self.device, self.cuda = options.device, options.device != "cpu"
        self.torch.set_num_threads(options.threads or self.torch.get_num_threads())
        self.jax = self.find_jax() if options.jax else None
        self.slow, self.of_lapack = {}, {}

    def find_jax(self):
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        try:
            jax = importlib.import_module("jax")
            jax.config.update("jax_enable_x64", True)
            linalg = jax.numpy.linalg
            self.compiled = {"eigh": jax.jit(linalg.eigh), "svd": jax.jit(lambda a: linalg.svd(a, full_matrices=False))}
            return jax if self.cuda and jax.default_backend() == "gpu" else None
        except Exception as error:
            print(f"without JAX: {error}")
            return None

    def peers(self, operation, a):
        """Name: a function that computes the result. The first is keel."""
        linalg = self.torch.linalg
        batch, n = a.shape[0], min(a.shape[1:])
        keel = getattr(self.keel, operation)
        found = {"keel": lambda: keel(a)}
        if "eig" in operation:
            found["torch"] = lambda: getattr(linalg, operation)(a)
        else:
            names = {"full_matrices": False} if operation == "svd" else {}
            drivers = (None, "gesvda", "gesvdj", "gesvd") if self.cuda else (None,)
            for driver in drivers:
                if driver == "gesvd" and (batch > 16 or n > 2048):
                    continue
                more = {"driver": driver} if driver else {}
                found[driver or "torch"] = lambda more=more: getattr(linalg, operation)(a, **names, **more)
        if self.jax and n >= 64 and operation in ("eigh", "svd") and self.torch.float32 == a.dtype:
            x = self.jax.dlpack.from_dlpack(a)
            found["jax"] = lambda: self.jax.block_until_ready(self.compiled[operation](x))
        return found

    def time(self, call):
        """Milliseconds, and the result."""
        if not self.cuda:
            start = time.perf_counter()
            result = call()
            return (time.perf_counter() - start) * 1e3, result
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        result = call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end), result

    def lapack(self, operation, kind, shape, spectrum):
        """LAPACK's residual of up to 64 matrices of this kind, at most WIDEST_REFERENCE wide, but at least one epsilon.
        Of values alone it is at least sqrt(n) epsilons, since float64's are judged by float64's."""
        n = min(shape[:2])
        width = min(n, WIDEST_REFERENCE)
        scale = width / n
        small = (max(width, round(shape[0] * scale)), max(width, round(shape[1] * scale)), min(shape[2], 64))
        key = (operation, kind, small, spectrum)
        if key not in self.of_lapack:
            a = make(self.torch, spectrum, small, "eig" in operation, kind, "cpu")
            exact = self.exact(operation, a)
            function = getattr(self.torch.linalg, operation)
            result = function(a, full_matrices=False) if operation == "svd" else function(a)
            found = quality(self.torch, a, result, operation, exact)[0]
            least = self.torch.finfo(a.dtype).eps
            self.of_lapack[key] = max(found, least if exact is None else least * math.sqrt(width))
        return self.of_lapack[key] * math.sqrt(n / width)

    def exact(self, operation, a):
        """The values of the first matrices in float64, if that is quick."""
        if operation in ("eigh", "svd") or min(a.shape[1:]) > WIDEST_REFERENCE:
            return None
        return getattr(self.torch.linalg, operation)(a[:64].cpu().double())

    def cell(self, operation, kind, shape, spectrum):
        torch = self.torch
        a = make(torch, spectrum, shape, "eig" in operation, kind, self.device)
        lapack, exact = self.lapack(operation, kind, shape, spectrum), self.exact(operation, a)
        functions = self.peers(operation, a)
        slow = self.slow.setdefault((operation, kind, shape), {})
        times, qualities, refused = {}, {}, {}

        def start(name):
            try:
                if not slow:
                    functions[name]()  # what a first call loads or compiles is not timed
                elapsed, result = self.time(functions[name])
                if name == "jax":
                    result = [torch.from_dlpack(x) for x in result]
                qualities[name] = quality(torch, a, result, operation, exact)
                times[name] = [elapsed]
            except Exception as error:
                refused[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"

        def accurate():
            return [name for name in times if name != "keel" and qualities[name][0] <= 4 * lapack]

        for name in functions:
            if name not in slow:
                start(name)
        if not accurate():  # the slow ones matter after all
            for name in filter(None, slow):
                if slow[name] < 1000:
                    start(name)
                else:
                    times[name], qualities[name] = [slow[name]], (0, 0)
        least = min((times[name][0] for name in times), default=0)
        rounds = {name: 0 if first[0] > max(12 * least, 1000) else min(15, max(2, int(30 / first[0])))
                  for name, first in times.items() if first[0] not in slow.values()}  # fmt: skip
        for turn in range(max(rounds.values(), default=0)):
            for name, most in rounds.items():
                if turn < most:
                    times[name].append(self.time(functions[name])[0])
        median = {name: statistics.median(all_times[1:] or all_times) for name, all_times in times.items()}
        best = min(accurate(), key=median.__getitem__, default=None)
        if spectrum == "random":
            for name in median:
                if best and name not in ("keel", best) and median[name] > 4 * median[best]:
                    slow[name] = median[name]
            slow.setdefault("", 0)  # its functions are loaded
        own = qualities.get("keel", (None, None))
        return {
            "operation": operation, "type": kind, "shape": "x".join(map(str, shape[:2])), "batch": shape[2],
            "spectrum": spectrum,
            "ratio": median[best] / median["keel"] if best and "keel" in median else None, "best": best,
            "residual": own[0], "orthogonality": own[1], "lapack": lapack, "ms": median,
            "residuals": {name: found[0] for name, found in qualities.items()}, "refused": refused,
        }  # fmt: skip


def add_slowest(found):
    """Adds to each cell keel's time over that of the random spectrum of the same shape."""
    key = lambda c: (c["operation"], c["type"], c["shape"], c["batch"])  # noqa: E731
    random = {key(c): c["ms"].get("keel") for c in found if c["spectrum"] == "random"}
    for c in found:
        own = c["ms"].get("keel")
        c["over_random"] = own / random[key(c)] if own and random.get(key(c)) else None


def tables(found):
    """(operation, type, rows): a row is its label, its cells by spectrum, and the slowest over the random one."""
    order = {shape: k for k, shape in enumerate(sorted({(c["shape"], c["batch"]) for c in found},
             key=lambda s: (sorted(map(int, s[0].split("x"))), s)))}  # fmt: skip
    for operation in OPERATIONS:
        for kind in ("float32", "float64"):
            rows = []
            own = [c for c in found if c["operation"] == operation and c["type"] == kind]
            for shape, batch in sorted({(c["shape"], c["batch"]) for c in own}, key=order.__getitem__):
                row = {c["spectrum"]: c for c in own if (c["shape"], c["batch"]) == (shape, batch)}
                m, n = shape.split("x")
                label = (n if m == n else shape) + (f", batch {batch}" if batch > 1 else "")
                rows.append((label, row, max((c["over_random"] or 0 for c in row.values()), default=0)))
            if rows:
                yield operation, kind, rows


def inaccurate(cell):
    return cell["residual"] is not None and not cell["residual"] <= 4 * cell["lapack"]


def shown(ratio):
    return "-" if ratio is None else f"{ratio:.2f}" if ratio < 1 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def report(found):
    for operation, kind, rows in tables(found):
        names = SPECTRA.values() if "eig" in operation else SPECTRA
        print(f"{operation} {kind}: " + " | ".join(names) + " | slowest / random")
        for label, row, slowest in rows:
            marks = [shown(row[s]["ratio"]) + "!" * inaccurate(row[s]) if s in row else "." for s in SPECTRA]
            print(f"{label:19}" + "".join(f"{mark:>6}" for mark in marks) + f"{slowest:6.1f}")
    ratios = sorted((c for c in found if c["ratio"]), key=lambda c: c["ratio"])
    behind = [c for c in ratios if c["ratio"] < 1]
    wrong = sum(map(inaccurate, found))
    print(f"{len(found)} cells; {len(behind)} below 1, {wrong} of keel's not accurate (!). Lowest:")
    for c in ratios[:12]:
        times = " ".join(f"{name} {t:.3g} ({c['residuals'][name]:.0e})" for name, t in c["ms"].items())
        name = " ".join([c["operation"], c["type"], c["shape"], "b", str(c["batch"]), c["spectrum"]])
        print(f"  {c['ratio']:.2f} {name}: ms (residual) {times}; LAPACK {c['lapack']:.0e}")
    refusals = Counter(text for c in found for text in (f"{name}: {why}" for name, why in c["refused"].items()))
    for text, count in refusals.most_common(4):
        print(f"  refused {count} x {text}")


def draw(record, file):
    """A panel for each operation and type: a row for each shape, a column for each spectrum."""
    all_tables = list(tables(record["cells"]))
    width, height, label, head = 34, 15, 112, 112
    panel = label + width * (len(SPECTRA) + 1) + 16
    columns = {"float32": 0, "float64": 1}
    tops, top = {}, 64
    for operation in OPERATIONS:
        most = max((len(rows) for o, _, rows in all_tables if o == operation), default=0)
        tops[operation] = top
        top += head + most * height + 24 if most else 0
    drawing = Drawing(2 * panel + 60, top)
    context = record["context"]
    where = f"{context['machine']}, torch {context['torch']}, {context['threads']} threads, commit {context['tree']}"
    drawing.text(16, 20, f"Time of the fastest accurate peer over keel's: {where}", "start", 13)
    drawing.text(16, 38, "Blue: keel is faster. Red: slower. ! keel's residual is above four times LAPACK's. "
                 "Last column: keel's slowest spectrum over its random one.", "start")  # fmt: skip
    for operation, kind, rows in all_tables:
        left, y = 16 + columns[kind] * panel, tops[operation] + head
        drawing.text(left, y - 92, f"{operation}, {kind}", "start", 13)
        for k, name in enumerate([*(SPECTRA.values() if "eig" in operation else SPECTRA), "slowest / random"]):
            x = left + label + (k + 0.6) * width
            drawing.parts.append(f'<g transform="translate({x:.0f} {y - 5}) rotate(-55)">')
            drawing.text(0, 0, name, "start", 10)
            drawing.parts.append("</g>")
        for row_number, (name, row, slowest) in enumerate(rows):
            line = y + row_number * height
            drawing.text(left + label - 6, line + 11, name, "end", 10)
            for k, spectrum in enumerate(SPECTRA):
                if spectrum not in row:
                    continue
                ratio, mark = row[spectrum]["ratio"], "!" * inaccurate(row[spectrum])
                value = max(-1.0, min(1.0, -math.log2(ratio) / 3)) if ratio else 0
                x = left + label + k * width
                drawing.rectangle(x, line, width - 1, height - 1, diverging(value) if ratio else "#bbbbbb")
                ink = "#fefefe" if abs(value) > 0.6 else "#111111"
                drawing.text(x + width / 2, line + 11, shown(ratio) + mark, size=9, fill=ink)
            x = left + label + len(SPECTRA) * width
            drawing.text(x + width / 2, line + 11, f"{slowest:.1f}", size=9)
    drawing.save(file, f"bench/grid.py of {context['tree']}")


def machine(torch, cuda):
    if cuda:
        return torch.cuda.get_device_name().replace("NVIDIA ", "")
    lines = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", lines)
    return name.group(1) if name else platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU, for keel and its peers")
    parser.add_argument("--seconds", type=float, default=60, help="as many cells as fit into these")
    parser.add_argument("--only", default="", help="cells whose line matches this, such as 'svd float32 512x512 b 1 '")
    parser.add_argument("--no-jax", dest="jax", action="store_false")
    parser.add_argument("--draw", nargs=2, metavar=("RECORD", "PICTURE"), help="draws an earlier run, and no more")
    options = parser.parse_args()
    if options.draw:
        return draw(json.loads(Path(options.draw[0]).read_text(encoding="utf-8")), Path(options.draw[1]))
    start, grid, found = time.perf_counter(), Grid(options), []
    torch = grid.torch
    for operation, kind, shape, spectrum in cells():
        line = f"{operation} {kind} {shape[0]}x{shape[1]} b {shape[2]} {spectrum} "
        if options.only and not re.search(options.only, line):
            continue
        if time.perf_counter() - start > options.seconds:
            print(f"{options.seconds:g} s are over: cells from here on are left out: {line}")
            break
        # Large matrices on the CPU, and LAPACK's residual of them, would take all of the time.
        if not grid.cuda and min(shape[:2]) ** 3 * shape[2] * (12 / torch.get_num_threads()) > 3e7 * options.seconds:
            continue
        with torch.no_grad():
            found.append(grid.cell(operation, kind, shape, spectrum))
    add_slowest(found)
    report(found)
    if not found or options.only:
        return
    describe = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    tree = os.environ.get("KEEL_TREE") or describe.stdout.strip()
    context = {"machine": machine(torch, grid.cuda), "torch": torch.__version__,
               "jax": grid.jax and grid.jax.__version__, "tree": tree or "unknown",
               "threads": torch.get_num_threads(), "seconds": options.seconds,
               "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}  # fmt: skip
    device = "cuda" if grid.cuda else f"cpu{context['threads']}"
    record = {"context": context, "cells": found}
    slug = re.sub(r"[^a-z0-9]+", "-", context["machine"].lower()).strip("-")
    file = Path(os.environ.get("OUT", ROOT / "bench" / "results")) / f"grid-{device}-{slug}.json"
    rounded = json.loads(json.dumps(record), parse_float=lambda x: float(f"{float(x):.3g}"))
    lines = ",\n  ".join(json.dumps(cell) for cell in rounded["cells"])
    file.write_text(f'{{\n "context": {json.dumps(context)},\n "cells": [\n  {lines}\n ]\n}}\n')
    print(f"wrote {file}")
    draw(record, Path(os.environ.get("OUT", ROOT / "docs" / "figures")) / f"grid_{device}.svg")


if __name__ == "__main__":
    main()
