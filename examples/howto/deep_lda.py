"""Deep LDA: a network whose features a linear classifier can tell apart, trained on eigenvalues of scatter matrices."""
import math

import torch
from torch import nn

import keel

CLASSES, FEATURES = 4, 48


def rings(count):
    """Points on four rings around the origin, one class each."""
    label = torch.arange(count) % CLASSES
    angle, radius = 2 * math.pi * torch.rand(count), 1 + label + 0.2 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), label


def scatter(features, label):
    """Covariance of the class means, and of all samples. Both are singular where a ReLU is never active."""
    centred = features - features.mean(0)
    means = torch.stack([centred[label == c].mean(0) for c in range(CLASSES)])
    return means.T @ means / CLASSES, centred.T @ centred / len(features)


def by_torch(between, total):
    factor = torch.linalg.cholesky(total)
    half = torch.linalg.solve_triangular(factor, between, upper=False)
    return torch.linalg.eigvalsh(torch.linalg.solve_triangular(factor, half.T, upper=False))


def by_keel(between, total):
    return keel.generalized_eigh(between, total, rtol=1e-4).eigenvalues


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, FEATURES), nn.ReLU())


def train(separations, steps=200):
    """Each eigenvalue is the share of variance between classes along one direction. At best CLASSES - 1 of them are 1,
    and so equal."""
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        x, label = rings(256)
        try:
            loss = -separations(*scatter(model(x), label)).sum()
        except torch.linalg.LinAlgError:
            return f"error in step {step}: not positive definite"
        optimiser.zero_grad()
        loss.backward()
        if not model[0].weight.grad.isfinite().all():
            return f"NaN in step {step}"
        optimiser.step()
    return f"{describe(model)[0]} after {steps} steps"


@torch.no_grad()
def describe(model):
    x, label = rings(4000)
    features = model(x)
    between, total = scatter(features, label)
    _, directions, kept = keel.generalized_eigh(between, total, rtol=1e-4, descending=True)
    seen = features @ directions[:, : CLASSES - 1]  # in these directions the variance is 1
    means = torch.stack([seen[label == c].mean(0) for c in range(CLASSES)])
    right = (torch.cdist(seen, means).argmin(1) == label).float().mean()
    return f"{100 * right:.0f}% right", kept.item()


right, kept = describe(network())
print(f"untrained:             {right}, features in {kept} of {FEATURES} directions")
print("torch.linalg.cholesky:", train(by_torch))
print("keel.generalized_eigh:", train(by_keel))
