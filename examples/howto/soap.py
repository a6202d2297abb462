"""SOAP (Vyas et al., 2024): Adam in the eigenbasis of Shampoo's statistic, which is refreshed every few steps.

    python3 soap.py                                    a small transformer on the CPU: losses
    WIDTH=768 LAYERS=12 DEVICE=cuda python3 soap.py    steps per second too
"""
import os
import time

import torch
from torch import nn

import keel

WIDTH, LAYERS = int(os.environ.get("WIDTH", 32)), int(os.environ.get("LAYERS", 2))
DEVICE = os.environ.get("DEVICE", "cpu")
SYMBOLS, LENGTH, STEPS = 16, 32, 80
torch.set_default_dtype(torch.double if DEVICE == "cpu" else torch.float)


def bases_by_torch(statistics):  # all of one size in one call
    sizes = {n: torch.stack([m for m in statistics if len(m) == n]) for n in {len(m) for m in statistics}}
    found = {n: iter(torch.linalg.eigh(stacked)[1]) for n, stacked in sizes.items()}
    return [next(found[len(m)]) for m in statistics]


def wide(matrix):
    """The basis is that of the shorter side, which is SOAP's cheaper form."""
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT


class Soap(torch.optim.Optimizer):
    def __init__(self, weights, bases, lr=0.01, decay=0.95, every=5):
        super().__init__(weights, {"lr": lr, "decay": decay, "every": every})
        self.bases, self.steps = bases, 0

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            states = [self.state[weight] for weight in group["params"]]

            def average(state, name, now):
                state[name] = torch.lerp(state.get(name, now), now, 1 - group["decay"])
                return state[name]
            gradients = [wide(weight.grad) for weight in group["params"]]
            statistics = [average(state, "statistic", g @ g.mT) for state, g in zip(states, gradients)]
            if self.steps % group["every"] == 0:
                for state, basis in zip(states, self.bases(statistics)):
                    state["basis"] = basis
            for weight, state, g in zip(group["params"], states, gradients):
                momentum = state["basis"].mT @ average(state, "momentum", g)
                square = average(state, "square", (state["basis"].mT @ g).square())
                wide(weight).sub_(group["lr"] * state["basis"] @ (momentum / (square.sqrt() + 1e-8)))
        self.steps += 1


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
print("SOAP by torch.linalg.eigh:", train(lambda weights: Soap(weights, bases_by_torch)))
print("SOAP by keel.eigh:", train(lambda weights: Soap(weights, lambda m: [vectors for _, vectors in keel.eigh(m)])))
