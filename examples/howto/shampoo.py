"""Shampoo (Gupta et al., 2018): each weight's gradient between inverse fourth roots of its two statistics.

    python3 shampoo.py                                    a small transformer on the CPU: losses
    WIDTH=768 LAYERS=12 DEVICE=cuda python3 shampoo.py    steps per second too
"""
import os
import time

import torch
from torch import nn

import keel

WIDTH, LAYERS = int(os.environ.get("WIDTH", 32)), int(os.environ.get("LAYERS", 2))
DEVICE = os.environ.get("DEVICE", "cpu")
SYMBOLS, LENGTH, STEPS, RIDGE = 16, 32, 80, 1e-5  # RIDGE: well above what rounding does to an eigenvalue
torch.set_default_dtype(torch.double if DEVICE == "cpu" else torch.float)


def roots_by_torch(statistics):  # all of one size in one call
    sizes = {n: torch.stack([m for m in statistics if len(m) == n]) for n in {len(m) for m in statistics}}
    found = {n: torch.linalg.eigh(stacked) for n, stacked in sizes.items()}
    roots = {n: iter(vectors * values.pow(-0.25).unsqueeze(-2) @ vectors.mT) for n, (values, vectors) in found.items()}
    return [next(roots[len(m)]) for m in statistics]


def roots_by_keel(statistics):  # the same
    return keel.powm(statistics, -0.25)


def ridged(matrix):
    return matrix + RIDGE * matrix.norm() * torch.eye(len(matrix), device=matrix.device)


class Shampoo(torch.optim.Optimizer):
    def __init__(self, weights, roots, lr=0.003, decay=0.95):
        super().__init__(weights, {"lr": lr, "decay": decay})
        self.roots = roots

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            decay, states = group["decay"], [self.state[weight] for weight in group["params"]]
            for weight, state in zip(group["params"], states):
                g = weight.grad
                for name, now in (("momentum", g), ("left", g @ g.mT), ("right", g.mT @ g)):
                    state[name] = torch.lerp(state.get(name, now), now, 1 - decay)
            roots = self.roots([ridged(state[name]) for state in states for name in ("left", "right")])
            for weight, state, left, right in zip(group["params"], states, roots[::2], roots[1::2]):
                update = left @ state["momentum"] @ right
                weight -= group["lr"] * update * update.numel() ** 0.5 / update.norm()


def train(make):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
    body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(SYMBOLS, WIDTH), body, nn.Linear(WIDTH, SYMBOLS)).to(DEVICE)
    mask = torch.full((LENGTH - 1, LENGTH - 1), -torch.inf, device=DEVICE).triu(1)
    weights = [p for p in body.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if all(p is not weight for weight in weights)]
    optimisers = [make(weights), torch.optim.AdamW(others, 0.01)]
    for step in range(STEPS):
        if step == STEPS // 2:  # the second half is timed
            before = time.perf_counter()
        text = torch.randint(SYMBOLS, (16, 2)).to(DEVICE)
        for _ in range(LENGTH - 2):  # each symbol follows from the two before it
            text = torch.cat([text, (3 * text[:, -1:] + text[:, -2:-1] + 1) % SYMBOLS], 1)
        logits = model[2](body(model[0](text[:, :-1]), mask))
        loss = nn.functional.cross_entropy(logits[:, 1:].flatten(0, 1), text[:, 2:].flatten())
        model.zero_grad(), loss.backward(), [optimiser.step() for optimiser in optimisers]
    speed = (STEPS - STEPS // 2) / (loss.item() * 0 + time.perf_counter() - before)
    return f"loss {loss:.2f}" + (f", {speed:.1f} steps a second" if DEVICE != "cpu" else "")


print("AdamW:", train(lambda weights: torch.optim.AdamW(weights, 0.01)))
print("Shampoo by torch.linalg.eigh:", train(lambda weights: Shampoo(weights, roots_by_torch)))
print("Shampoo by keel.powm:", train(lambda weights: Shampoo(weights, roots_by_keel)))
