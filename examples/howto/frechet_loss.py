"""A Fréchet distance as a loss: a generator learns the mean and the covariance of its data."""
import torch
from torch import nn

import keel

DIMENSIONS, DEAD = 16, 3  # features of the data that are always zero, as of a ReLU that never fires
torch.manual_seed(0)
MIX = torch.randn(DIMENSIONS, DIMENSIONS) / 4


def root_by_torch(matrix):
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp(min=0).sqrt() @ vectors.T


def moments(x):
    centred = x - x.mean(0)
    return x.mean(0), centred.T @ centred / len(x)


def frechet(a, b, root):
    """|m_a - m_b|^2 + tr(C_a + C_b - 2 (C_a^(1/2) C_b C_a^(1/2))^(1/2)), of moments a and b."""
    (mean_a, cov_a), (mean_b, cov_b) = a, b
    half = root(cov_a)
    both = root(half @ cov_b @ half)
    return (mean_a - mean_b).square().sum() + (cov_a + cov_b - 2 * both).trace()


def data(count):
    features = torch.randn(count, DIMENSIONS) @ MIX + 1
    features[:, -DEAD:] = 0
    return features


@torch.no_grad()
def distance(generator):
    made = generator(torch.randn(5000, DIMENSIONS))
    return frechet(moments(data(5000)), moments(made), keel.sqrtm)


def train(root, steps=300):
    torch.manual_seed(1)
    target = moments(data(1000))
    generator = nn.Linear(DIMENSIONS, DIMENSIONS)
    start = distance(generator)
    optimiser = torch.optim.Adam(generator.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        made = generator(torch.randn(64, DIMENSIONS))
        optimiser.zero_grad()
        frechet(target, moments(made), root).backward()
        if not generator.weight.grad.isfinite().all():
            return f"NaN in step {step}"
        optimiser.step()
    return f"distance {start:.1f} at first, {distance(generator):.2f} after {steps} steps"


print("torch.linalg.eigh:", train(root_by_torch))
print("keel.sqrtm:       ", train(keel.sqrtm))
