"""Why does my eigh give NaN? Look at the matrix, and at what the loss sees of it."""
import torch

import keel

C = torch.tensor([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 5.0]])


def look(matrix):
    """The smallest gap and the smallest eigenvalue, both relative to the largest."""
    values = torch.linalg.eigvalsh(matrix.detach())
    return (values.diff().min() / values.abs().max()).item(), (values[0] / values.abs().max()).item()


def size(loss, matrix):
    matrix = matrix.clone().requires_grad_()
    return torch.autograd.grad(loss(matrix), matrix)[0].norm().item()


def by_torch(function):
    def result(matrix):
        values, vectors = torch.linalg.eigh(matrix)
        return vectors @ torch.diag(function(values)) @ vectors.T

    return result


def report(name, matrix, torch_loss, advice, keel_loss):
    gap, smallest = look(matrix)
    print(f"{name}\n    gap {gap:.0e}, smallest eigenvalue {smallest:.0e}")
    print(f"    |gradient| by torch.linalg.eigh: {size(torch_loss, matrix):.3g}")
    print(f"    |gradient| by {advice}: {size(keel_loss, matrix):.3g}\n")


inverse_root, root = by_torch(torch.rsqrt), by_torch(torch.sqrt)
report(
    "1. Equal eigenvalues, a function of the matrix. It has a derivative; eigenvectors have none.",
    torch.eye(3),
    lambda m: (C * inverse_root(m)).sum(),
    "keel.inv_sqrtm",
    lambda m: (C * keel.inv_sqrtm(m)).sum(),
)
report(
    "2. A zero eigenvalue under a root, whose slope there is infinite.",
    torch.diag(torch.tensor([4.0, 1.0, 0.0])),
    lambda m: root(m).trace(),
    "keel.sqrtm, which leaves it out",
    lambda m: keel.sqrtm(m).trace(),
)
report(
    "3. Equal eigenvalues outside the subspace that the loss sees.",
    torch.diag(torch.tensor([1.0, 1.0, 4.0])),
    lambda m: (C * by_torch(lambda values: (values > 2).float())(m)).sum(),
    "keel.projector",
    lambda m: (C * keel.projector(m, keel.LeadingCount(1), keel.Exact(terms=100))).sum(),
)
report(
    "4. Close eigenvalues, and a loss on one eigenvector. The derivative itself is that large.",
    torch.diag(torch.tensor([1.0, 1.00001, 4.0])),
    lambda m: torch.linalg.eigh(m)[1][0].sum(),
    "keel.eigh(m, keel.PowerIteration(19)), bounded and biased",
    lambda m: keel.eigh(m, keel.PowerIteration(19))[1][0].sum(),
)
