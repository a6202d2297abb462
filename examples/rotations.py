#!/usr/bin/env python3
"""Registration of point clouds, and a small network that learns poses, through three ways to a rotation: keel's,
torch.linalg.svd's, and the 6D representation (Gram-Schmidt on two columns). Prints two tables; some minutes on a CPU
(docs/rotations.md). With --out it also draws the picture of that page.

    PYTHONPATH=python python3 examples/rotations.py
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import torch
from torch import Tensor, nn

import keel

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "figures"))
from svg import COLOURS, Axes, Drawing, legend  # noqa: E402

COMMAND = "PYTHONPATH=python python3 examples/rotations.py --out docs/figures/rotations.svg"
STEPS, BATCH, SEEDS = 1500, 128, 3
POINTS, NOISE = 16, 0.05
CUBE = torch.tensor([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])


def by_torch(a: Tensor) -> Tensor:
    """The nearest rotation as it is usually written."""
    u, _, vh = torch.linalg.svd(a)
    sign = torch.det(u @ vh).unsqueeze(-1)
    return u * torch.cat([torch.ones_like(a[..., :2, 0]), sign], -1).unsqueeze(-2) @ vh


def by_six(x: Tensor) -> Tensor:
    """Zhou et al., On the Continuity of Rotation Representations in Neural Networks (CVPR 2019)."""
    first = nn.functional.normalize(x[..., 0], dim=-1)
    second = x[..., 1] - (first * x[..., 1]).sum(-1, keepdim=True) * first
    second = nn.functional.normalize(second, dim=-1)
    return torch.stack([first, second, torch.linalg.cross(first, second)], -1)


# How a network's numbers become a rotation, and how many columns of a matrix they are.
WAYS: Dict[str, Tuple[Callable[[Tensor], Tensor], int]] = {
    "keel.special_procrustes": (keel.special_procrustes, 3),
    "torch.linalg.svd": (by_torch, 3),
    "6D": (by_six, 2),
}
COLOUR = dict(zip(WAYS, COLOURS))


def degrees(a: Tensor, b: Tensor) -> Tensor:
    """The angle between two rotations."""
    half = (a - b).flatten(-2).norm(dim=-1) / math.sqrt(8)
    return 2 * torch.asin(half.clamp(max=1)) * 180 / math.pi


def rotations(count: int) -> Tensor:
    return keel.special_procrustes(torch.randn(count, 3, 3))


def milliseconds(body: Callable[[], object]) -> float:
    """The best of some calls: the others are somebody else's time."""
    best = math.inf
    for _ in range(7):
        began = time.perf_counter()
        body()
        best = min(best, time.perf_counter() - began)
    return best * 1e3


# --- Registration --------------------------------------------------------------------------------------------------


def covariances(points: Tensor, targets: Tensor) -> Tensor:
    return (targets - targets.mean(-2, keepdim=True)).mT @ (points - points.mean(-2, keepdim=True))


def clouds(count: int) -> Dict[str, Tuple[Tensor, Tensor]]:
    """Pairs of point sets whose registration asks for one thing after another."""
    turn, cube = rotations(count), CUBE.expand(count, 8, 3)
    points = torch.randn(count, POINTS, 3)
    flat = points * torch.tensor([1.0, 1.0, 0.0])
    noise = NOISE * torch.randn(count, POINTS, 3)
    return {
        "random points, noise": (points, points @ turn.mT + noise),
        "points in a plane": (flat, flat @ turn.mT),
        "a cube, turned": (cube, cube @ turn.mT),
        "a cube onto itself": (cube, cube),
    }


def gradients(rotation: Callable[[Tensor], Tensor], points: Tensor, targets: Tensor) -> Tensor:
    """By the targets, of a loss that sees all of the rotation."""
    targets = targets.detach().requires_grad_()
    weights = torch.linspace(-1, 2, 9, dtype=targets.dtype).cos().reshape(3, 3)
    loss = (rotation(covariances(points, targets)) * weights).sum()
    return torch.autograd.grad(loss, targets)[0]


def errors(rotation: Callable[[Tensor], Tensor], points: Tensor, targets: Tensor) -> Tensor:
    """Of each cloud's float32 gradient, relative, against keel's in float64 at the same points."""
    truth = gradients(keel.special_procrustes, points.double(), targets.double())
    found = gradients(rotation, points, targets).double()
    return (found - truth).flatten(-2).norm(dim=-1) / truth.flatten(-2).norm(dim=-1)


def registration(count: int = 2000) -> None:
    columns = "method | gradients not finite | median error | largest | forward + backward"
    print(f"\n| {count} clouds, float32 | {columns} |")
    print("|---|---|---|---|---|---|")
    for kind, (points, targets) in clouds(count).items():
        for way in ("keel.special_procrustes", "torch.linalg.svd"):
            rotation = WAYS[way][0]
            error = errors(rotation, points, targets)
            finite = error[error.isfinite()]
            median, largest = (f"{x:.0e}" for x in (finite.median(), finite.max())) if len(finite) else ("-", "-")
            spent = milliseconds(lambda: gradients(rotation, points, targets))
            print(f"| {kind} | `{way}` | {count - len(finite)} | {median} | {largest} | {spent:.1f} ms |")


# --- A network that learns poses -----------------------------------------------------------------------------------


class Pose(nn.Module):
    """Sees an object's points, turned and noisy, and says how it was turned."""

    def __init__(self, way: str, at_identity: bool) -> None:
        super().__init__()
        self.rotation, self.columns = WAYS[way]
        self.layers = nn.Sequential(
            nn.Linear(3 * POINTS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3 * self.columns)
        )
        if at_identity:  # a usual way to start: every pose is the identity at first
            last = self.layers[-1]
            nn.init.zeros_(last.weight)
            last.bias.data = torch.eye(3)[:, : self.columns].flatten()

    def forward(self, points: Tensor) -> Tensor:
        return self.rotation(self.layers(points.flatten(-2)).unflatten(-1, (3, self.columns)))


def train(way: str, at_identity: bool, seed: int) -> Tuple[List[Tuple[int, float]], int]:
    """The median error after so many steps, and the step that failed (0: none)."""
    torch.manual_seed(seed)
    thing = torch.randn(POINTS, 3)

    def sample(count: int) -> Tuple[Tensor, Tensor]:
        turn = rotations(count)
        return thing @ turn.mT + NOISE * torch.randn(count, POINTS, 3), turn

    test_points, test_turns = sample(1000)
    network = Pose(way, at_identity)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    curve = []
    for step in range(1, STEPS + 1):
        points, turns = sample(BATCH)
        loss = (network(points) - turns).square().sum((-2, -1)).mean()
        optimizer.zero_grad()
        loss.backward()
        if not all(p.grad.isfinite().all() for p in network.parameters()):
            return curve, step
        optimizer.step()
        if step in (10, 20, 50) or step % 100 == 0:
            with torch.no_grad():
                curve.append((step, degrees(network(test_points), test_turns).median().item()))
    return curve, 0


def milliseconds_alone(way: str) -> float:
    """A batch of rotations, forward and backward, without the network."""
    rotation, columns = WAYS[way]
    a = torch.randn(BATCH, 3, columns, requires_grad=True)
    return milliseconds(lambda: torch.autograd.grad(rotation(a).sum(), a))


def poses() -> Dict[Tuple[str, bool], List[Tuple[int, float]]]:
    times = f"{BATCH} rotations, forward + backward"
    print(f"\n| start | method | runs that failed | median error, {SEEDS} seeds | {times} |")
    print("|---|---|---|---|---|")
    curves = {}
    for at_identity in (False, True):
        for way in WAYS:
            runs = [train(way, at_identity, seed) for seed in range(SEEDS)]
            failed = [step for _, step in runs if step]
            ended = [curve for curve, step in runs if not step]
            steps = f" (at step {max(failed)})" if failed else ""
            error = " / ".join(f"{curve[-1][1]:.2f}" for curve in ended) + "°" if ended else "-"
            start = "all poses the identity" if at_identity else "random"
            print(f"| {start} | `{way}` | {len(failed)} of {SEEDS}{steps} | {error} | "
                  f"{milliseconds_alone(way):.2f} ms |", flush=True)  # fmt: skip
            if ended:
                curves[way, at_identity] = ended[0]
    return curves


# --- The picture ---------------------------------------------------------------------------------------------------


def picture(curves: Dict[Tuple[str, bool], List[Tuple[int, float]]], file: Path) -> None:
    drawing = Drawing(760, 300)
    left = Axes(drawing, 60, 50, 290, 190, (1e-8, 1.0), (1e-8, 1e2))
    left.frame("Error of the gradient, a cube's registration", "how far the corners are moved",
               [1e-8, 1e-6, 1e-4, 1e-2, 1], [1e-8, 1e-6, 1e-4, 1e-2, 1, 100], "relative, float32")  # fmt: skip
    sizes = [10 ** (-k / 4) for k in range(0, 33)]
    torch.manual_seed(0)
    moves, turn = torch.randn(200, 8, 3), rotations(200)
    for way in ("torch.linalg.svd", "keel.special_procrustes"):
        medians = []
        for size in sizes:
            points = CUBE + size * moves
            error = errors(WAYS[way][0], points, points @ turn.mT)
            medians.append(error.nan_to_num(math.inf).median().item())
        left.curve(sizes, [max(m, 1e-8) for m in medians], COLOUR[way])
    right = Axes(drawing, 440, 50, 290, 190, (10.0, float(STEPS)), (1.0, 180.0))
    right.frame("A pose network, all poses the identity at first", "training step", [10, 100, 1000],
                [1, 3, 10, 30, 100], "median error, degrees")  # fmt: skip
    for (way, at_identity), curve in curves.items():
        if at_identity:
            right.curve(*zip(*curve), COLOUR[way])
    legend(drawing, 555, 75, [(way, COLOUR[way], "") for way in ("keel.special_procrustes", "6D")])
    if ("torch.linalg.svd", True) not in curves:
        drawing.text(722, 111, "torch.linalg.svd: NaN at step 1", "end", 11, COLOUR["torch.linalg.svd"])
    legend(drawing, 175, 75, [(way, COLOUR[way], "") for way in ("torch.linalg.svd", "keel.special_procrustes")])
    drawing.save(file, COMMAND)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ways to a rotation: tables of errors, failures and times.")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also draw the picture, as SVG, into this file")
    out = parser.parse_args().out
    torch.manual_seed(0)
    registration()
    curves = poses()
    if out is not None:
        picture(curves, out)


if __name__ == "__main__":
    main()
