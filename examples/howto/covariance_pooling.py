"""Covariance pooling: the square root of the features' covariance in place of their average."""
import torch
from torch import nn

import keel

CHANNELS, POSITIONS = 16, 9  # fewer positions than channels: the covariance is singular


def covariance(features):
    centred = features - features.mean(-1, keepdim=True)
    return centred @ centred.mT / features.shape[-1]


def average(features):
    return features.mean(-1)


def root_by_torch(features):
    values, vectors = torch.linalg.eigh(covariance(features))
    root = vectors * values.clamp(min=0).sqrt().unsqueeze(-2) @ vectors.mT
    return root.flatten(1)


def root_by_torch_and_eps(features):
    values, vectors = torch.linalg.eigh(covariance(features) + 1e-5 * torch.eye(CHANNELS))
    root = vectors * values.sqrt().unsqueeze(-2) @ vectors.mT
    return root.flatten(1)


def root_by_keel(features):
    return keel.sqrtm(covariance(features)).flatten(1)


def textures(count):
    """(count, 16, 9) features. The classes have one mean and differ in which channels go together."""
    labels = torch.randint(0, 3, (count,))
    noise = torch.randn(count, CHANNELS, POSITIONS)
    partners = torch.stack([noise.roll(shift, 1) for shift in (1, 2, 3)])[labels, range(count)]
    mixed = noise + 0.7 * partners
    mixed[0] = 0  # one blank image, as at the edge of a scan
    return mixed, labels


def train(pool, width, steps=150):
    torch.manual_seed(0)
    features = nn.Conv1d(CHANNELS, CHANNELS, 1)
    nn.init.eye_(features.weight[:, :, 0])
    head = nn.Linear(width, 3)
    parameters = [*features.parameters(), *head.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    for step in range(1, steps + 1):
        x, labels = textures(64)
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(pool(features(x))), labels).backward()
        if not features.weight.grad.isfinite().all():
            return f"NaN in step {step}"
        optimiser.step()
    x, labels = textures(2000)
    right = (head(pool(features(x))).argmax(1) == labels).float().mean()
    return f"{right:.0%} right"


for name, pool, width in [
    ("average", average, CHANNELS),
    ("M^(1/2) by torch.linalg.eigh", root_by_torch, CHANNELS**2),
    ("the same of M + 1e-5 I", root_by_torch_and_eps, CHANNELS**2),
    ("M^(1/2) by keel.sqrtm", root_by_keel, CHANNELS**2),
]:
    print(f"{name:30}{train(pool, width)}")
