#!/usr/bin/env python3
"""Measures sums and training steps with 1, 2 and 4 processes on this machine (Gloo over loopback), fits
the cost of a sum, writes what was measured to bench/results/scaling-cpu.json, and puts the tables into
docs/scaling.md: bytes, what was measured and how well the model fits, what it says up to 1,024 GPUs.

    cmake --build build --target keel_bench_workers && python3 scripts/figures/scaling.py
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import socket
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = (1, 2, 4)
NETWORKS = ("ResNet18", "ResNet50")
GPUS = (8, 64, 256, 1024)

# Assumptions about a cluster, not measured here. A sum over GPUs costs `base` and, over more than one machine, `hop`
# for every doubling of the machines, in both directions. Bytes move at `rate` per GPU.
GPUS_A_MACHINE = 8
BASE, HOP = 15e-6, 5e-6  # seconds
RATE_INSIDE, RATE_BETWEEN = 300e9, 40e9  # bytes a second
# A step's computation with 128 images: about that of a recent GPU in bfloat16. `keel bench train` measures yours.
STEP = {"ResNet18": 3.2e-3, "ResNet50": 7.5e-3}
BACKWARD = 2 / 3  # of the step, in which sums of gradients can hide


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(program: Path, size: int, images: int) -> dict:
    shared = dict(
        os.environ,
        WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        OMP_NUM_THREADS="1",
    )
    ranks = [
        subprocess.Popen(
            [program, str(images)],
            env=dict(shared, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
        )
        for rank in range(size)
    ]
    text = ranks[0].communicate()[0]
    if any(rank.wait() for rank in ranks):
        raise SystemExit(f"scaling.py: a process of {size} failed")
    return json.loads(text)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def solve(rows: list[tuple[float, float]], values: list[float]) -> tuple[float, float]:
    """The two factors whose products come closest to the values in squared logarithms, so that a factor of two counts
    the same at a microsecond and at a second. Searches along each in turn, with ever smaller steps."""

    def error(alpha: float, beta: float) -> float:
        return sum(math.log((alpha * x + beta * y) / value) ** 2 for (x, y), value in zip(rows, values))

    best = [values[0] / rows[0][0], values[-1] / rows[-1][1]]
    step = 2.0
    while step > 1.0001:
        tries = [[best[0] * a, best[1] * b] for a in (1 / step, 1, step) for b in (1 / step, 1, step)]
        found = min(tries, key=lambda pair: error(*pair))
        if error(*found) < error(*best):
            best = found
        else:
            step = math.sqrt(step)
    return best[0], best[1]


def terms(size: int, count: float) -> tuple[float, float]:
    """The rounds of a ring all-reduce, and the bytes that each process sends."""
    return 2 * (size - 1), 2 * (size - 1) / size * count


def fit(records: list[dict]) -> dict:
    """alpha (seconds a round) and beta (seconds a byte), one pair for each number of processes."""
    result = {}
    for record in records:
        size = record["processes"]
        if size == 1:
            continue
        rows = [terms(size, row["bytes"]) for row in record["sums"]]
        times = [row["median"] for row in record["sums"]]
        alpha, beta = solve(rows, times)
        error = max(abs(math.log((alpha * x + beta * y) / t)) for (x, y), t in zip(rows, times))
        result[size] = {"alpha": alpha, "beta": beta, "worst_factor": math.exp(error)}
    return result


class Network:
    """The norms and parameters of a network, counted as lab/models builds it."""

    def __init__(self, name: str):
        self.name = name
        blocks, deep = {"ResNet18": ((2, 2, 2, 2), False), "ResNet50": ((3, 4, 6, 3), True)}[name]
        self.channels = [64]  # of every norm, the first one first
        self.parameters = 3 * 64 * 9
        inputs, width = 64, 64
        for stage, count in enumerate(blocks):
            for block in range(count):
                outputs = 4 * width if deep else width
                shapes = (
                    [(inputs, width, 1), (width, width, 9), (width, outputs, 1)]
                    if deep
                    else [(inputs, width, 9), (width, width, 9)]
                )
                if inputs != outputs or (stage > 0 and block == 0):
                    shapes.append((inputs, outputs, 1))
                for before, after, taps in shapes:
                    self.parameters += before * after * taps
                    self.channels.append(after)
                inputs = outputs
            width *= 2
        self.parameters += 2 * sum(self.channels) + 10 * inputs + 10

    def gradient_bytes(self) -> int:
        return 4 * self.parameters


def batch_norm_sums(channels: list[int]) -> list[int]:
    """The bytes of each sum in forward and backward."""
    return [8 * (2 * c + 1) for c in channels] + [8 * 2 * c for c in channels]


def whitening_sums(channels: list[int], d: int) -> list[int]:
    return [8 * (1 + c + c * min(c, d)) for c in channels] + [
        4 * (c + c * min(c, d)) for c in channels
    ]


def gpu_sum(size: int, count: float) -> float:
    """Seconds of a sum over so many GPUs: a ring inside a machine, a tree between machines."""
    if size == 1:
        return 0.0
    inside = min(size, GPUS_A_MACHINE)
    time = BASE + 2 * (inside - 1) / inside * count / RATE_INSIDE
    machines = math.ceil(size / GPUS_A_MACHINE)
    if machines > 1:
        time += 2 * HOP * math.log2(machines)
        time += 2 * (machines - 1) / machines * count / inside / RATE_BETWEEN
    return time


def step_on(size: int, network: Network, sums: list[int], inside: bool = False) -> tuple[float, float, float]:
    """Seconds of the whole step, of the sums in it that nothing hides, and of gradient sums that outlast backward.
    `inside` means that statistics are shared only by the GPUs of one machine."""
    waits = sum(gpu_sum(min(size, GPUS_A_MACHINE) if inside else size, count) for count in sums)
    gradients = gpu_sum(size, network.gradient_bytes())
    compute = STEP[network.name]
    beyond = max(0.0, gradients - BACKWARD * compute)
    return compute + waits + beyond, waits, beyond


def buckets(count: int) -> int:
    """The Reducer's sums: a first one of 1 MiB, then of 25 MiB."""
    return 1 + math.ceil((count - 2**20) / (25 * 2**20))


def modelled(found: dict, size: int, count: float) -> float:
    x, y = terms(size, count)
    return found["alpha"] * x + found["beta"] * y


def kib(count: float) -> str:
    return f"{count / 1024:,.1f} KiB" if count < 1 << 20 else f"{count / 2**20:,.1f} MiB"


def table(head: list, rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def bytes_table() -> str:
    rows = []
    for name in NETWORKS:
        network = Network(name)
        gradients = network.gradient_bytes()
        rows.append([name, f"gradients of {network.parameters:,} parameters", buckets(gradients), kib(gradients), ""])
        for what, sums in (
            ("the first norm: ZCA, d = 16", whitening_sums(network.channels[:1], 16)),
            ("the first norm: ZCA, d = 64", whitening_sums(network.channels[:1], 64)),
            (f"its other {len(network.channels) - 1} norms: BatchNorm", batch_norm_sums(network.channels[1:])),
            (f"all {len(network.channels)} norms: ZCA, d = 64", whitening_sums(network.channels, 64)),
        ):
            rows.append(["", what, len(sums), kib(sum(sums)), f"{100 * sum(sums) / gradients:.2f} %"])
    return table(["network", "what", "sums a step", "bytes a step", "of the gradients'"], rows)


def sums_table(records: list[dict], fits: dict) -> str:
    by_size = {record["processes"]: record for record in records}
    rows = []
    for index, row in enumerate(by_size[max(fits)]["sums"]):
        cells = [kib(row["bytes"]) if row["bytes"] >= 1024 else f"{row['bytes']} B"]
        for size, found in fits.items():
            time = by_size[size]["sums"][index]["median"]
            cells += [f"{1e6 * time:,.0f} us", f"{1e6 * modelled(found, size, row['bytes']):,.0f} us"]
        rows.append(cells)
    head = ["bytes"] + [word for size in fits for word in (f"{size} processes", "the model")]
    notes = [
        f"{size} processes: {1e6 * found['alpha']:.0f} us a round, {1 / found['beta'] / 2**30:.2f} GiB/s; "
        f"off by a factor of {found['worst_factor']:.1f} at worst."
        for size, found in fits.items()
    ]
    return table(head, rows) + "\n\n" + "\n".join(notes)


def steps_table(records: list[dict], fits: dict) -> str:
    """Measured steps, and the model's time for the sums of one step if nothing hides them."""
    network = Network("ResNet18")
    first, rest = network.channels[:1], network.channels[1:]
    sums = (
        [],
        batch_norm_sums(network.channels),
        whitening_sums(first, 64) + batch_norm_sums(rest),
    )
    rows = []
    for index, row in enumerate(records[0]["steps"]):
        cells = [row["name"]]
        for record in records:
            cells.append(f"{1e3 * record['steps'][index]['median']:,.0f} ms")
            size = record["processes"]
            if size > 1:
                all_sums = sums[index] + [network.gradient_bytes()]
                cells.append(f"{1e3 * sum(modelled(fits[size], size, n) for n in all_sums):,.0f} ms")
        rows.append(cells)
    head = [f"ResNet18, {records[0]['images']} images a process"]
    for record in records:
        head.append(f"{record['processes']} process" + ("es" if record["processes"] > 1 else ""))
        if record["processes"] > 1:
            head.append("of it sums, by the model")
    return table(head, rows)


def gpus_table() -> str:
    rows = []
    for name in NETWORKS:
        network = Network(name)
        first, rest = network.channels[:1], network.channels[1:]
        for what, sums in (
            ("each process its own", []),
            ("first ZCA d = 64 shared", whitening_sums(first, 64)),
            ("and all BatchNorm shared", whitening_sums(first, 64) + batch_norm_sums(rest)),
            ("all ZCA d = 64 shared", whitening_sums(network.channels, 64)),
            ("the same, within machines", "inside"),
        ):
            cells = [name, what]
            for size in GPUS:
                inside = sums == "inside"
                counts = whitening_sums(network.channels, 64) if inside else sums
                total, waits, beyond = step_on(size, network, counts, inside)
                cells.append(f"{100 * STEP[name] / total:.0f} % ({1e3 * waits:.2f} ms)")
            rows.append(cells)
    return table(["network", "statistics"] + [f"{n:,} GPUs" for n in GPUS], rows)


def put_into(page: Path, tables: dict[str, str]) -> None:
    text = page.read_text()
    for name, content in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, rest = text.split(begin)
        text = head + begin + content + "\n" + end + rest.split(end)[1]
    page.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/bin/keel_bench_workers")
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/scaling-cpu.json", help="the record")
    parser.add_argument("--only-tables", action="store_true", help="of the record there is; measure nothing")
    parser.add_argument("--images", type=int, default=8, help="of each process in a step")
    options = parser.parse_args()
    if not options.only_tables:
        load = os.getloadavg()[0]
        records = [measure(options.program, size, options.images) for size in SIZES]
        machine = {"processor": processor(), "cores": os.cpu_count(), "load before": round(load, 2)}
        options.json.write_text(json.dumps({"machine": machine, "records": records}, indent=1) + "\n")
    record = json.loads(options.json.read_text())
    records, fits = record["records"], fit(record["records"])
    machine = record["machine"]
    tables = {
        "machine": f"{machine['processor']}, {machine['cores']} cores, one thread a process; load average before: "
        f"{machine['load before']}.",
        "bytes": bytes_table(),
        "sums": sums_table(records, fits),
        "steps": steps_table(records, fits),
        "gpus": gpus_table(),
    }
    put_into(ROOT / "docs/scaling.md", tables)
    for content in tables.values():
        print(content, end="\n\n")


if __name__ == "__main__":
    main()
