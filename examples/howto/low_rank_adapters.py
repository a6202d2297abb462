"""Low-rank adapters that start from a weight's leading singular vectors (PiSSA): W = B A + rest."""
import torch

import keel

SIZE, RANK = 640, 16
torch.manual_seed(0)


def weight():
    """As in trained networks, singular values fall off slowly."""
    U, V = (torch.linalg.qr(torch.randn(SIZE, SIZE))[0] for _ in range(2))
    return U * torch.arange(1, SIZE + 1) ** -0.7 @ V.mT


def by_keel(W):
    return keel.svds(W, RANK, tol=1e-5)


def by_lowrank(niter):
    def decompose(W):
        U, S, V = torch.svd_lowrank(W, RANK, niter=niter)
        return U, S, V.mT

    return decompose


def adapters(W, decompose):
    U, S, Vh = decompose(W)
    B, A = U * S.sqrt(), S.sqrt().unsqueeze(-1) * Vh
    return B, A, W - B @ A  # train B and A, keep the rest


W = weight()
values = torch.arange(1, SIZE + 1) ** -0.7
best = values[RANK]  # no factors of this rank leave less in any direction
for name, decompose in [
    ("torch.svd_lowrank, niter=2", by_lowrank(2)),
    ("torch.svd_lowrank, niter=8", by_lowrank(8)),
    ("keel.svds", by_keel),
]:
    B, A, rest = adapters(W, decompose)
    wrong = (decompose(W)[1] / values[:RANK] - 1).abs().max()
    left = torch.linalg.matrix_norm(rest, 2) / best
    print(f"{name:28}values wrong by {wrong:.1%}, the rest is {left:.3f} of what it must be")
