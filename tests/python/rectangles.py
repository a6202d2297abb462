"""Matrices of any shape for the tests, and peers written plainly in torch's operators."""

import torch

# Singular values, k = 3, at which decompositions or their gradients break.
SPECTRA = {
    "distinct": (3.0, 2.0, 0.5),
    "equal": (2.0, 2.0, 2.0),
    "first two equal": (2.0, 2.0, 1.0),
    "last two equal": (2.0, 1.0, 1.0),
    "clustered": (1.0 + 1e-7, 1.0, 1.0 - 1e-7),
    "small": (2.0, 1.0, 1e-3),
    "last one zero": (2.0, 1.0, 0.0),
    "rank one": (2.0, 0.0, 0.0),
    "zero": (0.0, 0.0, 0.0),
}
SMOOTH = [name for name, values in SPECTRA.items() if values[-1] > 0.01]
SHAPES = [(3, 3), (5, 3), (3, 5)]


def with_values(values, m, n, determinant=1, seed=0):
    """An m x n float64 matrix with these singular values; where it is square, with the sign of its determinant."""
    generator = torch.Generator().manual_seed(seed)

    def orthonormal(size):
        return torch.linalg.qr(torch.randn(size, size, dtype=torch.double, generator=generator))[0]

    u, v, k = orthonormal(m), orthonormal(n), min(m, n)
    if m == n and torch.det(u) * torch.det(v) * determinant < 0:
        u[:, -1] *= -1
    return u[:, :k] * torch.tensor(values, dtype=torch.double) @ v[:, :k].mT


def plain_rotation(a):
    """The nearest rotation as roma has it: U diag(1, ..., det(U V^T)) V^T by torch's decomposition."""
    u, _, vh = torch.linalg.svd(a, full_matrices=False)
    sign = torch.det(u @ vh).unsqueeze(-1)
    ones = torch.ones_like(a[..., :-1, 0])
    return u * torch.cat([ones, sign], -1).unsqueeze(-2) @ vh


def differences(function, x, step=1e-4):
    """The Jacobian (outputs, inputs) of a function of one tensor, by differences of fourth order."""
    x = x.detach()

    def at(direction, distance):
        return function(x + distance * direction.reshape(x.shape)).detach().reshape(-1)

    def slope(d):
        near, far = at(d, step) - at(d, -step), at(d, 2 * step) - at(d, -2 * step)
        return (8 * near - far) / (12 * step)

    return torch.stack([slope(d) for d in torch.eye(x.numel(), dtype=x.dtype)], -1)


def jacobian(function, x):
    """The same by backward passes."""
    x = x.detach().clone().requires_grad_()
    output = function(x).reshape(-1)
    rows = [torch.autograd.grad(output[i], x, retain_graph=True)[0].reshape(-1)
            for i in range(output.numel())]  # fmt: skip
    return torch.stack(rows)
