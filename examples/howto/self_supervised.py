"""Whitening for self-supervised learning: two views must agree, and whitening forbids them to collapse."""
import torch
from torch import nn

import keel

KINDS, DIMENSIONS, FEATURES = 4, 32, 8
torch.manual_seed(0)
CENTRES = torch.randn(KINDS, DIMENSIONS)


def views(count=128):
    """Two noisy views of the same things."""
    things = CENTRES[torch.randint(0, KINDS, (count,))] + 0.3 * torch.randn(count, DIMENSIONS)
    return [things + 0.5 * torch.randn_like(things) for _ in range(2)]


def none(z):
    return z


def white_by_torch(z):
    centred = z - z.mean(0)
    covariance = centred.T @ centred / len(z) + 1e-4 * torch.eye(z.shape[1])
    values, vectors = torch.linalg.eigh(covariance)
    return centred @ vectors @ torch.diag(values.rsqrt()) @ vectors.T


def white_by_keel(z):
    centred = z - z.mean(0)
    covariance = centred.T @ centred / len(z) + 1e-4 * torch.eye(z.shape[1])
    return centred @ keel.inv_sqrtm(covariance)


@torch.no_grad()
def spread(encoder):
    return encoder(views(1000)[0]).std(0).mean()


def train(whiten, steps=300):
    torch.manual_seed(1)
    encoder = nn.Sequential(nn.Linear(DIMENSIONS, 32), nn.ReLU(), nn.Linear(32, FEATURES, False))
    nn.init.zeros_(encoder[2].weight[-2:])  # two outputs that are constant at first
    start = spread(encoder)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        a, b = views()
        optimiser.zero_grad()
        (whiten(encoder(a)) - whiten(encoder(b))).square().mean().backward()
        if not all(p.grad.isfinite().all() for p in encoder.parameters()):
            return f"NaN in step {step}"
        optimiser.step()
    return f"spread of the outputs {start:.2f} at first, {spread(encoder):.2f} at the end"


for name, whiten in [
    ("no whitening", none),
    ("by torch.linalg.eigh", white_by_torch),
    ("by keel.inv_sqrtm", white_by_keel),
]:
    print(f"{name:22}{train(whiten)}")
