#!/usr/bin/env python3
"""The peer of `keel reproduce timing`: the same training step in plain eager PyTorch.

ResNet18 for 32 x 32 images with BatchNorm, random crops and flips, SGD with momentum, bfloat16 autocast
and channels_last, every operator launched by Python. Prints the step's time; --join FILE adds it to the
results of `keel reproduce timing`, with how many times as fast keel's steps were.

    build/gpu/bin/keel reproduce timing --fresh --out FOLDER
    python3 lab/bench/pytorch_step.py --join FOLDER/results.json
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x), inplace=True)


def resnet18(classes=10):
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    channels = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, outputs, stride), Block(outputs, outputs, 1)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def augmented(pixels, mean, deviation):
    """Random crops from a border of 4, and flips, each sample its own, on the device."""
    count, _, height, width = pixels.shape
    device = pixels.device
    padded = F.pad(pixels, (4, 4, 4, 4))
    rows = torch.randint(0, 9, (count, 1), device=device) + torch.arange(height, device=device)
    columns = torch.randint(0, 9, (count, 1), device=device) + torch.arange(width, device=device)
    flipped = torch.rand(count, 1, device=device) < 0.5
    columns = torch.where(flipped, columns.flip(1), columns)
    samples = torch.arange(count, device=device)[:, None, None]
    crops = padded.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]]
    return ((crops.permute(0, 3, 1, 2).float() / 255 - mean) / deviation).contiguous(
        memory_format=torch.channels_last)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--join", metavar="FILE", help="add the figure to these results")
    options = parser.parse_args()

    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    device = "cuda"
    model = resnet18().to(device, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    pixels = torch.randint(0, 256, (8 * options.batch, 3, 32, 32), dtype=torch.uint8, device=device)
    labels = torch.randint(0, 10, (8 * options.batch,), device=device)
    mean = torch.tensor([0.4914, 0.4822, 0.4465], device=device).view(1, 3, 1, 1)
    deviation = torch.tensor([0.2023, 0.1994, 0.2010], device=device).view(1, 3, 1, 1)

    def step(number):
        first = number % 8 * options.batch
        chosen = slice(first, first + options.batch)
        images = augmented(pixels[chosen], mean, deviation)
        with torch.autocast("cuda", torch.bfloat16):
            answers = model(images)
        loss = F.cross_entropy(answers.float(), labels[chosen])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    rounds = []
    for round_number in range(options.rounds + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for number in range(options.steps):
            step(number)
        torch.cuda.synchronize()
        rounds.append(1e3 * (time.perf_counter() - start) / options.steps)
    rounds = rounds[1:]  # the first chose the algorithms
    figure = {
        "name": "eager PyTorch, BatchNorm",
        "version": torch.__version__,
        "milliseconds": statistics.median(rounds),
        "least": min(rounds),
        "most": max(rounds),
    }
    print(f"PyTorch {torch.__version__}, eager, {torch.cuda.get_device_name()}: "
          f"{figure['milliseconds']:.3f} ms a step ({min(rounds):.3f} ... {max(rounds):.3f})")
    if options.join:
        with open(options.join, encoding="utf-8") as file:
            record = json.load(file)
        for timing in record["measured"]["rows"]:
            timing["times_as_fast_as_eager_pytorch"] = figure["milliseconds"] / timing["milliseconds"]
            print(f"  {timing['name']}, {'graph' if timing['graph'] else 'eager'}: "
                  f"{timing['times_as_fast_as_eager_pytorch']:.2f} times as fast")
        record["peer"] = figure
        with open(options.join, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
