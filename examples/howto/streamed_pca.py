"""PCA of data that does not fit into memory: an operator reads it chunk by chunk."""
import torch

import keel

SAMPLES, FEATURES, CHUNK, COMPONENTS = 20_000, 400, 2_000, 5
torch.manual_seed(0)
MIX = torch.randn(FEATURES, FEATURES) * torch.arange(1, FEATURES + 1) ** -1.0
passes = 0


def chunks():
    """Stands for a file that is read piece by piece, the same in every pass."""
    global passes
    passes += 1
    for i in range(SAMPLES // CHUNK):
        generator = torch.Generator().manual_seed(i)
        yield 1.0 + torch.randn(CHUNK, FEATURES, generator=generator) @ MIX.mT


mean = sum(chunk.sum(0) for chunk in chunks()) / SAMPLES


def covariance(x):
    """The covariance times a block of vectors, in one pass over the data."""
    result = torch.zeros_like(x)
    for chunk in chunks():
        centred = chunk - mean
        result += centred.mT @ (centred @ x)
    return result / SAMPLES


operator = keel.LinearOperator((FEATURES, FEATURES), covariance)
values, vectors, residual = keel.eigsh(operator, COMPONENTS, "LA", tol=1e-4, return_residual=True)
print(f"{passes} passes over the data, residual below 1e-4: {bool(residual < 1e-4)}")

whole = torch.cat([*chunks()]).double()  # which you could not do
exact = torch.linalg.eigvalsh(whole.mT.cov())[-COMPONENTS:] * (SAMPLES - 1) / SAMPLES
print(f"largest relative error of a variance: {(values / exact - 1).abs().max():.5f}")
