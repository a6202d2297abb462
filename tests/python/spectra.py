"""Matrices of chosen eigenvalues. No keel here: test_ops.py runs on the operators alone."""

import torch

DISTINCT = ((2.0, 1.3, 0.7, 0.2), (3.0, 1.0, 0.5, 0.25))
REPEATED = ((2.0, 1.0, 1.0, 0.5), (1.0, 1.0, 1.0, 1.0))


def symmetric(x):
    return (x + x.mT) / 2


def with_spectrum(*spectra, device="cpu"):
    """One matrix per tuple of eigenvalues, float64, requiring grad."""
    generator = torch.Generator().manual_seed(3)
    matrices = []
    for values in spectra:
        n = len(values)
        q = torch.linalg.qr(torch.randn(n, n, dtype=torch.double, generator=generator))[0]
        matrices.append(q @ torch.diag(torch.tensor(values, dtype=torch.double)) @ q.mT)
    return symmetric(torch.stack(matrices)).to(device).requires_grad_()
