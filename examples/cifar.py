#!/usr/bin/env python3
"""Trains ResNet18 on CIFAR-10 or CIFAR-100 with BatchNorm and with keel's whitening layers, in plain PyTorch. A script
to copy and change: it prints a line per epoch, then a table, and draws the test error over the epochs.

    scripts/get-cifar cifar10 data
    PYTHONPATH=python python3 examples/cifar.py data --bfloat16 --channels-last --compile

Without a GPU this takes hours; --epochs 1 --width 16 takes minutes. --help lists the options.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import keel

LAYERS = {"zca": keel.nn.ZcaWhitening, "pca_denoising": keel.nn.PcaDenoising}


class Set(NamedTuple):
    title: str
    folder: str
    train: List[str]
    test: List[str]
    labels: int  # bytes before the pixels of an image; the last one is its class
    classes: int


SETS = {
    "cifar10": Set("CIFAR-10", "cifar-10-batches-bin", [f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"],
                   1, 10),
    "cifar100": Set("CIFAR-100", "cifar-100-binary", ["train.bin"], ["test.bin"], 2, 100),
}


def read(source: str, folder: Path, names: List[str]) -> Tuple[Tensor, Tensor]:
    """Images, uint8 (N, 3, 32, 32), and their classes (N)."""
    kind, parts = SETS[source], []
    size = kind.labels + 3 * 32 * 32
    for file in (folder / name for name in names):
        if not file.is_file():
            sys.exit(f"cifar.py: expected {kind.title}'s binary files, found no {file}. This downloads them: "
                     f"scripts/get-cifar {source} {folder.parent if folder.name == kind.folder else folder}")
        numbers = file.read_bytes()
        if not numbers or len(numbers) % size:
            sys.exit(f"cifar.py: {file}: expected whole images of {size} bytes each, got {len(numbers)} bytes")
        parts.append(torch.frombuffer(bytearray(numbers), dtype=torch.uint8).view(-1, size))
    records = torch.cat(parts)
    labels = records[:, kind.labels - 1].long()
    if labels.max() >= kind.classes:
        sys.exit(f"cifar.py: {folder}: expected classes from 0 to {kind.classes - 1}, got {int(labels.max())}")
    return records[:, kind.labels:].reshape(-1, 3, 32, 32), labels


class Data:
    """All images stay on the device, as bytes."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        kind = SETS[args.source]
        folder = args.data / kind.folder if (args.data / kind.folder).is_dir() else args.data
        self.train = [x.to(device) for x in read(args.source, folder, kind.train)]
        self.test = [x.to(device) for x in read(args.source, folder, kind.test)]
        self.batch, self.steps = args.batch, len(self.train[0]) // args.batch
        if self.steps == 0:
            sys.exit(f"cifar.py: expected at least --batch {args.batch} training images, got {len(self.train[0])}")
        self.deviation, self.mean = torch.std_mean(self.train[0].float(), (0, 2, 3), keepdim=True)
        self.order = torch.channels_last if args.channels_last else torch.contiguous_format

    def normalised(self, images: Tensor) -> Tensor:
        return (images.float() - self.mean) / self.deviation

    def augmented(self, images: Tensor) -> Tensor:
        """A crop of each image with a border of 4 pixels, half of them mirrored."""
        shift = torch.randint(0, 9, (2, len(images), 1), device=images.device)
        rows, columns = shift + torch.arange(32, device=images.device)
        mirrored = torch.rand(len(images), 1, device=images.device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
        each = torch.arange(len(images), device=images.device)[:, None, None]
        padded = F.pad(images, [4, 4, 4, 4]).permute(0, 2, 3, 1)
        return padded[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

    def training(self):
        """The batches of an epoch. The last, incomplete one is dropped."""
        images, labels = self.train
        order = torch.randperm(len(images), device=images.device)
        for chosen in order[:self.steps * self.batch].view(self.steps, self.batch):
            cropped = self.augmented(self.normalised(images[chosen]))
            yield cropped.contiguous(memory_format=self.order), labels[chosen]

    def testing(self):
        for images, labels in zip(self.test[0].split(500), self.test[1].split(500)):
            yield self.normalised(images).contiguous(memory_format=self.order), labels


class Norms:
    """Makes the network's norms in turn: the chosen layer in place of the first or of all, BatchNorm elsewhere."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.name, self.where, self.group_size, self.made = name, args.where, args.group_size, 0

    def __call__(self, channels: int) -> nn.Module:
        self.made += 1
        if self.name == "batchnorm" or (self.where == "first" and self.made > 1):
            return nn.BatchNorm2d(channels)
        # Here is the place for other rules and ranks: rule=keel.PowerIteration(19), rank=keel.FullRank(), ...
        return LAYERS[self.name](channels, group_size=min(self.group_size, channels))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norms) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm(outputs), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), norm(outputs))
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(self.first(x)) + self.shortcut(x))


def resnet18(classes: int, width: int, norm: Norms) -> nn.Module:
    """For images of 32 x 32: the first convolution is 3 x 3 without a stride, and there is no max-pooling."""
    layers: List[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), norm(width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        for stride in (1 if stage == 0 else 2, 1):
            layers.append(Block(inputs, width << stage, stride, norm))
            inputs = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Run(NamedTuple):
    errors: List[float]  # per epoch, in percent, with recalibrated statistics
    as_trained: float    # the last one with the statistics of training
    milliseconds: float  # a step


def train(name: str, data: Data, args: argparse.Namespace, device: torch.device) -> Run:
    torch.manual_seed(args.seed)  # the same weights, batches and crops for each norm
    network = resnet18(SETS[args.source].classes, args.width, Norms(name, args))
    network = network.to(device, memory_format=data.order)
    stepped = torch.compile(network) if args.compile else network
    optimiser = torch.optim.SGD(network.parameters(), args.learning_rate, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, args.learning_rate, total_steps=args.epochs * data.steps, cycle_momentum=False)

    def precision():
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.bfloat16)

    @torch.no_grad()
    def test_error() -> float:
        network.eval()
        with precision():
            wrong = sum((network(x).argmax(1) != y).sum() for x, y in data.testing())
        return 100 * float(wrong) / len(data.test[1])

    errors: List[float] = []
    times: List[float] = []
    as_trained = math.nan
    for epoch in range(1, args.epochs + 1):
        network.train()
        start, total = time.perf_counter(), torch.zeros((), device=device)
        for step, (images, labels) in enumerate(data.training(), 1):
            with precision():
                loss = F.cross_entropy(stepped(images), labels)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.detach()
            if sys.stderr.isatty() and step % 20 == 0:
                print(f"\r{name}: epoch {epoch}, step {step} of {data.steps}", end="\033[K\r", file=sys.stderr)
        loss_of_epoch = float(total) / data.steps  # waits for the device
        times.append(1000 * (time.perf_counter() - start) / data.steps)
        if not math.isfinite(loss_of_epoch):
            print(f"{name}: the loss is {loss_of_epoch} in epoch {epoch}. `keel.watch` finds the layer", flush=True)
            break
        if epoch == args.epochs:
            as_trained = test_error()
        # Running statistics lag behind the weights, and whitening amplifies the error. So recompute them first.
        with precision():
            keel.nn.recalibrate(network, data.training(), count=50)
        errors.append(test_error())
        print(f"{name}: epoch {epoch:3} of {args.epochs}, loss {loss_of_epoch:.3f}, test error {errors[-1]:.2f} %, "
              f"{times[-1]:.1f} ms a step", flush=True)
    return Run(errors, as_trained, statistics.median(times))


def table(runs: Dict[str, Run]) -> str:
    rows = ["| norm | test error | without recalibration | ms a step |", "|---|--:|--:|--:|"]
    for name, run in runs.items():
        failed = math.isnan(run.as_trained)
        last = "failed |" if failed else f"{run.errors[-1]:.2f} % | {run.as_trained:.2f} %"
        rows.append(f"| {name} | {last} | {run.milliseconds:.1f} |")
    return "\n".join(rows)


def draw(runs: Dict[str, Run], epochs: int, title: str, file: Path) -> None:
    """Test error over the epochs, as SVG."""
    left, top, width, height = 50, 40, 420, 240
    most = max([error for run in runs.values() for error in run.errors] + [10])
    ticks = [k * next(s for s in (1, 2, 5, 10, 20) if most <= 6 * s) for k in range(7)]
    marks = sorted({1, epochs, *(epochs * k // 4 for k in range(1, 4))} - {0})

    def at(epoch: float, error: float) -> str:
        x = left + width * (epoch - 1) / max(epochs - 1, 1)
        return f"{x:.1f},{top + height * (1 - error / ticks[-1]):.1f}"

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="640" height="340" font-family="sans-serif" font-size="12">'
             f'<rect width="640" height="340" fill="white"/><text x="{left}" y="24">{title}: test error (%)</text>'
             f'<text x="{left + width / 2}" y="{top + height + 40}" text-anchor="middle">epoch</text>']
    for tick in ticks:
        y = at(1, tick).split(",")[1]
        parts.append(f'<path d="M{left} {y} h{width}" stroke="#ddd"/><text x="{left - 6}" y="{y}" dy="4" '
                     f'text-anchor="end">{tick}</text>')
    for mark in marks:
        x = at(mark, 0).split(",")[0]
        parts.append(f'<text x="{x}" y="{top + height + 18}" text-anchor="middle">{mark}</text>')
    for k, (name, run) in enumerate(runs.items()):
        colour = ["#0072b2", "#d55e00", "#009e73"][k]
        points = [at(epoch, error) for epoch, error in enumerate(run.errors, 1)]
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if epochs == 1:  # a line has no length then
            parts += ['<circle cx="{}" cy="{}" r="3" fill="{}"/>'.format(*p.split(","), colour) for p in points]
        parts.append(f'<text x="{left + width + 12}" y="{top + 12 + 18 * k}" fill="{colour}">{name}</text>')
    file.write_text("\n".join(parts + ["</svg>"]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains ResNet18 on CIFAR with BatchNorm and with whitening layers.")
    parser.add_argument("data", type=Path, help="folder of the binary files, or the folder around it")
    parser.add_argument("--source", choices=SETS, default="cifar10")
    parser.add_argument("--norms", nargs="+", choices=["batchnorm", *LAYERS], default=["batchnorm", "zca"])
    parser.add_argument("--where", choices=["first", "all"], default="all", help="norms to replace [all]")
    parser.add_argument("--group-size", type=int, default=16, help="channels whitened together, at most [16]")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage [64]")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=0.1, help="highest of the one-cycle schedule [0.1]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bfloat16", action="store_true", help="convolutions in bfloat16 (a CPU needs AVX-512)")
    parser.add_argument("--channels-last", action="store_true", help="faster convolutions on most GPUs")
    parser.add_argument("--compile", action="store_true", help="the training step by torch.compile")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("cifar.svg"), help="the picture [cifar.svg]")
    args = parser.parse_args()
    for name in ("epochs", "batch", "width", "group_size"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1, got {getattr(args, name)}")
    if args.compile and not hasattr(torch, "compile"):
        parser.error(f"--compile: expected torch 2.0 or newer, got {torch.__version__}")
    device = torch.device(args.device)
    data = Data(args, device)
    runs = {name: train(name, data, args, device) for name in dict.fromkeys(args.norms)}
    print("\n" + table(runs))
    draw(runs, args.epochs, f"ResNet18, {SETS[args.source].title}", args.out)
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
