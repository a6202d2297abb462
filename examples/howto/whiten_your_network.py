"""Whiten your own network: swap a BatchNorm for ZCA whitening, train, fold it away for inference."""
import copy

import torch
from torch import nn

import keel


class ZcaByTorch(nn.Module):
    """The layer as one would write it with torch.linalg.eigh."""

    def forward(self, x):
        columns = x.transpose(0, 1).flatten(1)
        columns = columns - columns.mean(1, keepdim=True)
        covariance = columns @ columns.T / columns.shape[1]
        values, vectors = torch.linalg.eigh(covariance + 1e-4 * torch.eye(len(columns)))
        white = vectors @ torch.diag(values.rsqrt()) @ vectors.T @ columns
        return white.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)


def stripes(count):
    """Noisy 8 x 8 images in three correlated colours; the class is the direction of faint stripes."""
    labels = torch.randint(0, 2, (count,))
    wave = torch.tensor([1.0, -1.0]).repeat(4).expand(8, 8)
    faint = torch.stack([wave, wave.T])[labels].unsqueeze(1)
    brightness = 3 * torch.randn(count, 1, 1, 1)
    tint = torch.tensor([1.0, 0.98, 1.02]).view(1, 3, 1, 1)
    signal = 0.2 * torch.tensor([1.0, 0.0, -1.0]).view(1, 3, 1, 1) * faint
    return brightness * tint + signal + 0.1 * torch.randn(count, 3, 8, 8), labels


def network(norm):
    conv = nn.Conv2d(3, 8, 3)
    with torch.no_grad():  # two dead channels, as pruning and ReLU leave them
        conv.weight[6:], conv.bias[6:] = 0, 0
    head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    return nn.Sequential(conv, norm, *head)


def train(model, steps=80):
    """The step at which a gradient was not finite, or None."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(1, steps + 1):
        images, labels = stripes(64)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        if not all(p.grad.isfinite().all() for p in model.parameters()):
            return step
        optimiser.step()


torch.manual_seed(0)
plain = network(nn.BatchNorm2d(8))
written_with_eigh = copy.deepcopy(plain)
written_with_eigh[1] = ZcaByTorch()
whitened = keel.nn.convert_batchnorm(copy.deepcopy(plain), names=["1"])

images, labels = stripes(512)
for name, model in [
    ("BatchNorm2d", plain),
    ("ZCA by torch.linalg.eigh", written_with_eigh),
    ("keel.nn.ZcaWhitening", whitened),
]:
    failed = train(model)
    result = f"NaN in step {failed}"
    if failed is None:
        right = (model.eval()(images).argmax(1) == labels).float().mean()
        result = f"{right:.0%} right"
    print(f"{name:26}{result}")

folded = nn.Sequential(whitened[1].fold_into(whitened[0]), *whitened[2:])
print("folded, the same output:", torch.allclose(folded(images), whitened(images), atol=1e-4))
