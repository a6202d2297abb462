"""The rows of composition.py: operators and layers, and the same made of torch's operators alone."""

import copy
from typing import Callable, NamedTuple, Optional

import torch
from torch import nn

import keel
from support import composed, correlated

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Row(NamedTuple):
    """``function`` of one tensor and the ``truth`` it is held to, which is made of torch's operators alone."""

    name: str
    function: Callable
    truth: Callable
    example: torch.Tensor
    layer: Optional[nn.Module] = None
    symmetric: bool = False  # whether only symmetric matrices are meant
    twice: bool = True  # whether it has a second derivative


def symmetric(m):
    return (m + m.transpose(-2, -1)) / 2  # torch.onnx does not know mT


def matrices(count=2):
    """Gaps wide enough for a projector's series to converge."""
    generator = torch.Generator().manual_seed(7)
    made = []
    for _ in range(count):
        q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.double, generator=generator))[0]
        made.append(q * torch.tensor([2.0, 1.5, 0.1, 0.05], dtype=torch.double) @ q.mT)
    return symmetric(torch.stack(made)).to(DEVICE)


def of_eigenvalues(f):
    def truth(m):
        values, vectors = torch.linalg.eigh(symmetric(m))
        return vectors * f(values).unsqueeze(-2) @ vectors.mT

    return truth


def matrix_row(name, function, f, **options):
    """A function of symmetric matrices, and f, which it applies to eigenvalues."""
    return Row(name, lambda m: function(symmetric(m)), of_eigenvalues(f), matrices(),
               symmetric=True, **options)  # fmt: skip


def joined(values, vectors):
    # Squares: a vector's sign is a matter of taste.
    return torch.cat([values.unsqueeze(-1), vectors * vectors], -1)


def keels_eigh(m):
    values, vectors = keel.eigh(m, "masked")
    return torch.cat([values.unsqueeze(-1), vectors * vectors], -1)


def phased(m):
    """A complex matrix of the same eigenvalues, or singular values."""
    ones = torch.ones_like(m)
    angles = ones.cumsum(-2) - ones.cumsum(-1)
    return torch.complex(m * angles.cos(), m * angles.sin())


def parts_of(z):
    return torch.cat([z.real, z.imag], -1)


def magnitudes(values, vectors):
    return torch.cat([values.unsqueeze(-1), vectors.abs().square()], -1)


def complex_root(m):
    values, vectors = torch.linalg.eigh(phased(m))
    return parts_of(vectors * values.rsqrt().unsqueeze(-2) @ vectors.conj().transpose(-2, -1))


def complex_singular(u, s, v):
    return torch.cat([u.abs().square().flatten(-2), s, v.abs().square().flatten(-2)], -1)


def leading_two(values):
    return torch.cat([torch.zeros_like(values[..., :2]), torch.ones_like(values[..., :2])], -1)


def metric_of(m):
    return symmetric(m) / 8 + torch.diag(torch.linspace(1, 2.5, 4, dtype=torch.double, device=DEVICE)).to(m)


def both_of(found):
    return joined(found.eigenvalues, found.eigenvectors)  # a slice is nothing that torch 2.6 exports


def generalized(a, b):
    root = of_eigenvalues(torch.rsqrt)(b)
    values, vectors = torch.linalg.eigh(symmetric(root @ a @ root))
    return values, root @ vectors


def leading_pair(x):
    return x[..., -2:] @ x[..., -2:].mT


def rectangles(rows, columns):
    """Singular values as far apart as the matrices' eigenvalues above."""
    generator = torch.Generator().manual_seed(11)
    u, _, v = torch.linalg.svd(torch.randn(2, rows, columns, dtype=torch.double, generator=generator), False)
    return (u * torch.tensor([2.0, 1.5, 0.4, 0.3], dtype=torch.double)[: u.shape[-1]] @ v).to(DEVICE)


def rectangle_row(name, function, of_svd, shape=(5, 4), **options):
    """A function of matrices of any shape, and what it makes of U, S and V^T."""
    def truth(m):
        return of_svd(*torch.linalg.svd(m, full_matrices=False))

    return Row(name, function, truth, rectangles(*shape), **options)


def squares(u, s, v):
    return torch.cat([(u * u).flatten(-2), s, (v * v).flatten(-2)], -1)


def side_by_side(parts):
    return torch.cat([part.flatten(-2) for part in parts], -1)


def rotation_of(u, _, v):
    sign = torch.linalg.det(u @ v).detach().sign()
    last = torch.cat([torch.ones_like(u[..., 0, 1:]), sign.unsqueeze(-1)], -1)
    return u * last.unsqueeze(-2) @ v


def kabschs_rotation(q):
    p = (3 * q).sin()
    crossed = (q - q.mean(-2, keepdim=True)).transpose(-2, -1) @ (p - p.mean(-2, keepdim=True))
    return rotation_of(*torch.linalg.svd(crossed))


def layer_row(kind, count, twice=False, **options):
    """A layer in training, and how many eigenvalues it keeps."""
    layer = kind(4, dtype=torch.double, device=DEVICE, **options)
    weight, bias = torch.linspace(0.5, 2, 4).double().to(DEVICE), torch.linspace(-1, 1, 4).double().to(DEVICE)
    with torch.no_grad():
        layer.weight.copy_(weight), layer.bias.copy_(bias)
    # Running statistics are written to, which vmap forbids, as it does for BatchNorm: see test_composition.py.
    without_statistics = copy.deepcopy(layer)
    without_statistics.track_running_stats = False
    for name in [*without_statistics._buffers]:
        without_statistics._buffers[name] = None
    return Row(kind.__name__, without_statistics, lambda x: composed(layer, x, weight, bias, count),
               correlated(12, 4, 3, mean=1.0).to(DEVICE), layer, twice=twice)  # fmt: skip


ROWS = [
    Row("eigh", lambda m: keels_eigh(symmetric(m)), lambda m: joined(*torch.linalg.eigh(symmetric(m))),
        matrices(), symmetric=True),
    Row("eigvalsh", lambda m: keel.eigvalsh(symmetric(m)), lambda m: torch.linalg.eigvalsh(symmetric(m)),
        matrices(), symmetric=True),
    matrix_row("spectral", lambda m: keel.spectral(m, "log"), torch.log),
    matrix_row("sqrtm", keel.sqrtm, torch.sqrt),
    matrix_row("inv_sqrtm", keel.inv_sqrtm, torch.rsqrt),
    matrix_row("invm", keel.invm, torch.reciprocal),
    matrix_row("logm", keel.logm, torch.log),
    matrix_row("expm", keel.expm, torch.exp),
    matrix_row("powm", lambda m: keel.powm(m, 0.3), lambda values: values**0.3),
    matrix_row("projector", lambda m: keel.projector(m, keel.LeadingCount(2)), leading_two, twice=False),
    Row("generalized_eigh", lambda m: both_of(keel.generalized_eigh(symmetric(m), metric_of(m))),
        lambda m: joined(*generalized(symmetric(m), metric_of(m))), matrices(), symmetric=True),
    Row("generalized_projector", lambda m: keel.generalized_projector(symmetric(m), metric_of(m), 2, "masked"),
        lambda m: leading_pair(generalized(symmetric(m), metric_of(m))[1]), matrices(), symmetric=True, twice=False),
    rectangle_row("svd", lambda m: squares(*keel.svd(m)), squares),
    rectangle_row("svdvals", keel.svdvals, lambda u, s, v: s),
    rectangle_row("nuclear_norm", keel.nuclear_norm, lambda u, s, v: s.sum(-1)),
    rectangle_row("singular", lambda m: keel.singular(m, "power(exponent=0.5)"),
                  lambda u, s, v: u * s.sqrt().unsqueeze(-2) @ v),
    rectangle_row("pinv", keel.pinv, lambda u, s, v: (u / s.unsqueeze(-2) @ v).transpose(-2, -1)),
    rectangle_row("low_rank", lambda m: keel.low_rank(m, keel.LeadingCount(2)),
                  lambda u, s, v: u[..., :2] * s[..., None, :2] @ v[..., :2, :], twice=False),
    rectangle_row("soft_threshold", lambda m: keel.soft_threshold(m, 0.1),
                  lambda u, s, v: u * (s - 0.1).relu().unsqueeze(-2) @ v, twice=False),
    rectangle_row("polar", lambda m: side_by_side(keel.polar(m)),
                  lambda u, s, v: side_by_side((u @ v, v.transpose(-2, -1) * s.unsqueeze(-2) @ v))),
    rectangle_row("procrustes", keel.procrustes, lambda u, s, v: u @ v),
    rectangle_row("special_procrustes", keel.special_procrustes, rotation_of, (4, 4)),
    Row("kabsch", lambda q: keel.kabsch((3 * q).sin(), q)[0], kabschs_rotation, rectangles(7, 4)),
    Row("complex_eigh", lambda m: magnitudes(*keel.eigh(phased(symmetric(m)))),
        lambda m: magnitudes(*torch.linalg.eigh(phased(symmetric(m)))), matrices(), symmetric=True),
    Row("complex_inv_sqrtm", lambda m: parts_of(keel.inv_sqrtm(phased(symmetric(m)))),
        lambda m: complex_root(symmetric(m)), matrices(), symmetric=True),
    Row("complex_svd", lambda m: complex_singular(*keel.svd(phased(m))),
        lambda m: complex_singular(*torch.linalg.svd(phased(m), full_matrices=False)), rectangles(5, 4)),
    layer_row(keel.nn.ZcaWhitening, 4, twice=True, rank=keel.FullRank()),
    layer_row(keel.nn.PcaDenoising, 2, rank=keel.LeadingCount(2), rule=keel.Exact(terms=2000)),
    layer_row(keel.nn.PcaWhitening, 4),
]  # fmt: skip


# torch.jit.script reads sources: it wants functions with names.


def scripted_eigh(m: torch.Tensor):
    values, vectors = keel.eigh(m, "masked")
    return torch.cat([values.unsqueeze(-1), vectors * vectors], -1)


def scripted_spectral(m: torch.Tensor):
    return keel.spectral(m, "log")


def scripted_sqrtm(m: torch.Tensor):
    return keel.sqrtm(m)


def scripted_inv_sqrtm(m: torch.Tensor):
    return keel.inv_sqrtm(m)


def scripted_invm(m: torch.Tensor):
    return keel.invm(m)


def scripted_logm(m: torch.Tensor):
    return keel.logm(m)


def scripted_expm(m: torch.Tensor):
    return keel.expm(m)


def scripted_powm(m: torch.Tensor):
    return keel.powm(m, 0.3)


def scripted_projector(m: torch.Tensor):
    return keel.projector(m, "leading_count(count=2)")


def scripted_eigvalsh(m: torch.Tensor):
    return keel.eigvalsh(m)


def scripted_svd(m: torch.Tensor):
    u, s, v = keel.svd(m)
    return torch.cat([(u * u).flatten(-2), s, (v * v).flatten(-2)], -1)


def scripted_phased(m: torch.Tensor):
    ones = torch.ones_like(m)
    angles = ones.cumsum(-2) - ones.cumsum(-1)
    return torch.complex(m * angles.cos(), m * angles.sin())


def scripted_complex_eigh(m: torch.Tensor):
    values, vectors = keel.eigh(scripted_phased(m))
    return torch.cat([values.unsqueeze(-1), vectors.abs().square()], -1)


def scripted_complex_inv_sqrtm(m: torch.Tensor):
    root = keel.inv_sqrtm(scripted_phased(m))
    return torch.cat([torch.real(root), torch.imag(root)], -1)


def scripted_complex_svd(m: torch.Tensor):
    u, s, v = keel.svd(scripted_phased(m))
    return torch.cat([u.abs().square().flatten(-2), s, v.abs().square().flatten(-2)], -1)


def scripted_svdvals(m: torch.Tensor):
    return keel.svdvals(m)


def scripted_nuclear_norm(m: torch.Tensor):
    return keel.nuclear_norm(m)


def scripted_singular(m: torch.Tensor):
    return keel.singular(m, "power(exponent=0.5)")


def scripted_pinv(m: torch.Tensor):
    return keel.pinv(m)


def scripted_low_rank(m: torch.Tensor):
    return keel.low_rank(m, "leading_count(count=2)")


def scripted_soft_threshold(m: torch.Tensor):
    return keel.soft_threshold(m, 0.1)


def scripted_polar(m: torch.Tensor):
    factor, positive = keel.polar(m)
    return torch.cat([factor.flatten(-2), positive.flatten(-2)], -1)


def scripted_procrustes(m: torch.Tensor):
    return keel.procrustes(m)


def scripted_special_procrustes(m: torch.Tensor):
    return keel.special_procrustes(m)


def scripted_kabsch(m: torch.Tensor):
    return keel.kabsch((3 * m).sin(), m)[0]


def scripted_generalized_eigh(m: torch.Tensor):
    b = m / 8 + torch.diag(torch.linspace(1.0, 2.5, 4, dtype=m.dtype, device=m.device))
    values, vectors, kept = keel.generalized_eigh(m, b)
    return torch.cat([values.unsqueeze(-1), vectors * vectors], -1)


def scripted_generalized_projector(m: torch.Tensor):
    b = m / 8 + torch.diag(torch.linspace(1.0, 2.5, 4, dtype=m.dtype, device=m.device))
    return keel.generalized_projector(m, b, "leading_count(count=2)", "masked")
