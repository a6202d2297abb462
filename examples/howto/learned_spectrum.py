"""A spectral function that learns: its exponent and scale are parameters, and so is what the matrices are made of."""
import torch
from torch import nn

import keel

SIZE, INPUTS = 6, 2


class Power(nn.Module):
    """f(l) = scale l^exponent, for each eigenvalue l."""

    def __init__(self, exponent, scale):
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor(exponent))
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, values):
        return self.scale * values**self.exponent


def matrices(mix, x):
    """I + mix diag(x) mix^T. SIZE - INPUTS of its eigenvalues are 1."""
    return torch.eye(SIZE) + mix * x.unsqueeze(-2) @ mix.T


def by_torch(m, f):
    values, vectors = torch.linalg.eigh(m)
    return vectors * f(values).unsqueeze(-2) @ vectors.mT


def by_apply(m, f):
    return keel.eigh(m).apply(f)


torch.manual_seed(0)
MIX, TRUTH = torch.randn(SIZE, INPUTS), Power(-0.5, 2.0)


def train(function, steps=300):
    torch.manual_seed(1)
    mix, f = nn.Parameter(MIX + 0.5 * torch.randn(SIZE, INPUTS)), Power(0.0, 1.0)
    optimiser = torch.optim.Adam([mix, *f.parameters()], lr=0.02)
    for step in range(1, steps + 1):
        x = 3 * torch.rand(64, INPUTS)
        with torch.no_grad():
            target = keel.spectral(matrices(MIX, x), TRUTH)
        loss = (function(matrices(mix, x), f) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        if not mix.grad.isfinite().all():
            return f"NaN in step {step}"
        optimiser.step()
    return f"loss {loss.item():.3f}, exponent {f.exponent.item():.2f}, scale {f.scale.item():.2f} after {steps} steps"


print("torch.linalg.eigh:     ", train(by_torch))
print("keel.eigh(m).apply(f): ", train(by_apply))
print("keel.spectral(m, f):   ", train(keel.spectral))
