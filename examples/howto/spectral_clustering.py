"""Spectral clustering with an affinity that is learned from a few labels. The affinity is sparse."""
import torch

import keel

COUNT, CLUSTERS, LABELLED, NOISE, PAIRS = 600, 3, 90, 4, 40
torch.manual_seed(0)


def data():
    """Three groups in two dimensions, and four dimensions that say nothing."""
    groups = torch.arange(COUNT) % CLUSTERS
    centres = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    points = centres[groups] + 0.6 * torch.randn(COUNT, 2)
    return torch.cat([points, 1.5 * torch.randn(COUNT, NOISE)], 1), groups


points, groups = data()
pairs = torch.randint(COUNT, (2, PAIRS * COUNT // 2))
pairs = pairs[:, pairs[0] != pairs[1]]
pairs = torch.cat([pairs, pairs.flip(0)], 1).unique(dim=1)  # both halves of a symmetric matrix
differences = (points[pairs[0]] - points[pairs[1]]).square()


def embedding(scales):
    """The leading eigenvectors of D^(-1/2) W D^(-1/2), where W has an entry for each pair only."""
    affinity = torch.exp(-(differences * scales.exp()).sum(1)) + 1e-6
    degree = torch.zeros(COUNT).index_add(0, pairs[0], affinity)
    normalised = affinity * degree[pairs[0]].rsqrt() * degree[pairs[1]].rsqrt()
    matrix = torch.sparse_coo_tensor(pairs, normalised, (COUNT, COUNT))
    return keel.eigsh(matrix, CLUSTERS, "LA", tol=1e-5, return_gap=True)


target = torch.nn.functional.one_hot(groups, CLUSTERS).float()
target = target / target.norm(dim=0)


def loss_of(vectors):
    """How far the labelled rows of the projector onto the eigenvectors are from that onto the groups."""
    found = vectors[:LABELLED] @ vectors[:LABELLED].mT
    return (found - target[:LABELLED] @ target[:LABELLED].mT).square().sum() * COUNT


def right(vectors):
    """How many of the points without a label lie nearest to the mean of their group's labelled points."""
    rows = vectors / vectors.norm(dim=1, keepdim=True)
    means = torch.stack([rows[:LABELLED][groups[:LABELLED] == c].mean(0) for c in range(CLUSTERS)])
    nearest = torch.cdist(rows[LABELLED:], means).argmin(1)
    return (nearest == groups[LABELLED:]).float().mean()


scales = torch.full((2 + NOISE,), -3.0, requires_grad=True)
optimiser = torch.optim.Adam([scales], 0.1)
for step in range(31):
    _, vectors, gap = embedding(scales)
    loss = loss_of(vectors)
    if step % 15 == 0:
        print(f"step {step:2}: {right(vectors.detach()):.0%} of the others right, gap at the cut {gap:.2f}")
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
signal, noise = scales.detach().exp().split([2, NOISE])
print(f"the groups' dimensions count {'more' if signal.min() > noise.max() else 'less'} than the others")
