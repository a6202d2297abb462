"""SPD matrices: distances and means by their logarithms, even at equal eigenvalues.

A diffusion tensor is a 3 x 3 SPD matrix. In free water it is a multiple of the identity.
"""
import torch

import keel


def log_by_torch(matrices):
    values, vectors = torch.linalg.eigh(matrices)
    return vectors * values.log().unsqueeze(-2) @ vectors.mT


def distance(a, b, log):
    """Log-Euclidean."""
    return torch.linalg.matrix_norm(log(a) - log(b))


def mean(matrices):
    return keel.expm(keel.logm(matrices).mean(0))


def tensor(*eigenvalues):
    return torch.diag(torch.tensor(eigenvalues))


def rotated(matrix, degrees):
    angle = torch.deg2rad(torch.tensor(degrees))
    c, s = angle.cos().item(), angle.sin().item()
    turn = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return turn @ matrix @ turn.T


# The gradient of a squared distance. At M = l I it is 2 (log M - log target) / l.
fibre = rotated(tensor(1.7, 0.3, 0.2), 30.0)
print(f"{'M':28}{'torch.linalg.eigh':>20}{'keel.logm':>20}")
for name, matrix in [
    ("free water, 3 I", tensor(3.0, 3.0, 3.0)),
    ("a disc, diag(1, 1, 0.2)", tensor(1.0, 1.0, 0.2)),
    ("a fibre, diag(1.7, .3, .2)", tensor(1.7, 0.3, 0.2)),
]:
    results = []
    for log in (log_by_torch, keel.logm):
        point = matrix.clone().requires_grad_()
        distance(point, fibre, log).square().backward()
        results.append(f"|gradient| {point.grad.norm():.3f}")
    print(f"{name:28}{results[0]:>20}{results[1]:>20}")
truth = 2 * (keel.logm(tensor(3.0, 3.0, 3.0)) - keel.logm(fibre)) / 3
print(f"at 3 I by hand: {truth.norm():.3f}")

# A mean that does not swell: of two fibres at right angles.
pair = torch.stack([tensor(1.7, 0.3, 0.3), rotated(tensor(1.7, 0.3, 0.3), 90.0)])
print(f"\nvolume of each {torch.linalg.det(pair[0]):.3f},", end=" ")
print(f"of their log-Euclidean mean {torch.linalg.det(mean(pair)):.3f},", end=" ")
print(f"of their average {torch.linalg.det(pair.mean(0)):.3f}")

# The same mean, found by descent from the identity. torch.linalg.eigh fails in the first step.
found = torch.eye(3, requires_grad=True)
for step in range(300):
    loss = sum(distance(found, matrix, keel.logm).square() for matrix in pair)
    (gradient,) = torch.autograd.grad(loss, found)
    found = (found - 0.02 * gradient).detach().requires_grad_()
print(f"descent from I ends {distance(found, mean(pair), keel.logm):.3f} from it")
