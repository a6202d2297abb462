#!/usr/bin/env python3
"""A training step of ResNet50 with every norm swapped for a keel layer, beside BatchNorm, on a GPU.

(64, 3, 224, 224), bfloat16 autocast, channels_last, SGD with momentum, the whole step in a CUDA graph. The layers take
turns, round by round, so that all see the same machine. `relu` runs ReLU in the pass of the norm before it
(convert_batchnorm(fuse_relu=True)); BatchNorm has torch's own.

    PYTHONPATH=python python3 bench/gpu/resnet50.py --json FILE
"""

import argparse
import json
import os
import statistics

import torch
from torch import nn
from torch.nn import functional as F

import keel


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.branch(x) + self.shortcut(x), inplace=True)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def captured_step(model, images, labels):
    """A graph of one training step of the model, warmed up, its loss, and what has to live as long as the graph."""
    model = model.cuda().to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, foreach=True)

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return graph, loss, (model, optimiser)  # the graph holds addresses of their tensors, not the tensors


def milliseconds(graph, steps):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    for _ in range(steps):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="height and width of an image")
    parser.add_argument("--steps", type=int, default=20, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()

    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    images = torch.randn(options.batch, 3, options.size, options.size, device="cuda").contiguous(
        memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (options.batch,), device="cuda")
    cases = {"BatchNorm": None}
    for size in (4, 16, 32, 64):
        cases[f"ZCA d = {size}"] = dict(layer=keel.nn.ZcaWhitening, group_size=size)
    for size in (16, 32, 64):
        cases[f"ZCA d = {size}, relu"] = dict(layer=keel.nn.ZcaWhitening, group_size=size, fuse_relu=True)
    cases["PCA denoising d = 64"] = dict(layer=keel.nn.PcaDenoising, group_size=64)

    steps, times = {}, {name: [] for name in cases}
    for name, swap in cases.items():
        model = resnet50()
        steps[name] = captured_step(keel.nn.convert_batchnorm(model, **swap) if swap else model, images, labels)
    for _ in range(options.rounds):
        for name, (graph, *_) in steps.items():
            times[name].append(milliseconds(graph, options.steps))

    print(f"ResNet50, ({options.batch}, 3, {options.size}, {options.size}), PyTorch {torch.__version__}, "
          f"{torch.cuda.get_device_name()}")
    base = statistics.median(times["BatchNorm"])
    for name, rounds in times.items():
        middle, loss = statistics.median(rounds), steps[name][1].item()
        print(f"{name:24} {middle:7.2f} ms ({min(rounds):.2f} ... {max(rounds):.2f})  {middle / base:.2f} of "
              f"BatchNorm's   loss {loss:.2f}")
        if not loss < 100:
            raise SystemExit(f"resnet50: {name}: expected a finite loss, got {loss}")
    if options.json:
        record = {"model": "resnet50", "batch": options.batch, "size": options.size, "torch": torch.__version__,
                  "machine": torch.cuda.get_device_name(), "tree": os.environ.get("KEEL_TREE", "unknown"),
                  "milliseconds": times}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
