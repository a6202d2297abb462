"""Layers written again, plainly, in torch operators: the truth the layers are held to."""

import copy

import torch

import keel

LAYERS = [keel.nn.ZcaWhitening, keel.nn.PcaDenoising, keel.nn.PcaWhitening]

functional_call = (
    torch.func.functional_call
    if hasattr(getattr(torch, "func", None), "functional_call")
    else __import__("torch.nn.utils.stateless", fromlist=["functional_call"]).functional_call
)


def why_no_cuda():
    """None where CUDA tensors can be tested."""
    if not torch.cuda.is_available():
        return "no CUDA device"
    try:
        torch.ops.keel.eigh(torch.eye(2, device="cuda"))
    except RuntimeError as error:
        if "no CUDA" not in str(error):
            raise
        return "this build of keel has no CUDA"
    return None


def correlated(*shape, seed=0, dtype=torch.double, mean=0.0):
    """Activations (N, C, ...) whose channels are mixed; their spectrum is distinct."""
    generator = torch.Generator().manual_seed(seed)
    channels = shape[1]
    mix = torch.randn(channels, channels, generator=generator, dtype=torch.double)
    mix = mix + 2 * torch.diag(torch.linspace(0.5, 1.5, channels, dtype=torch.double))
    x = torch.randn(*shape, generator=generator, dtype=torch.double)
    return (torch.einsum("ij,nj...->ni...", mix, x) + mean).to(dtype)


def grouped(x, groups):
    """(N, C, ...) as (G, d, m)."""
    return x.transpose(0, 1).reshape(groups, x.shape[1] // groups, -1)


def covariance(x, groups=1):
    """Biased, (G, d, d)."""
    columns = grouped(x, groups)
    centred = columns - columns.mean(-1, keepdim=True)
    return centred @ centred.mT / columns.shape[-1]


def leading(matrix, count):
    """Eigenvalues and eigenvectors, descending, with keel's signs, by torch.linalg.eigh."""
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(-1), vectors.flip(-1)
    largest = vectors.abs().argmax(-2, keepdim=True)
    vectors = vectors * vectors.gather(-2, largest).sign().detach()
    return values[..., :count], vectors[..., :count]


def composed_layer_matrix(map, cov, eps, count):
    d = cov.shape[-1]
    identity = torch.eye(d, dtype=cov.dtype, device=cov.device)
    if map == "pca_denoising":
        scale = (cov.diagonal(dim1=-2, dim2=-1) + eps).rsqrt()
        standard = scale.unsqueeze(-1) * cov * scale.unsqueeze(-2)
        _, v = leading(standard + eps * identity, count)
        return v @ v.mT * scale.unsqueeze(-2)
    values, v = leading(cov + eps * identity, count)
    if map == "zca":
        return v * values.clamp_min(eps).rsqrt().unsqueeze(-2) @ v.mT
    result = values.clamp_min(eps).rsqrt().unsqueeze(-1) * v.mT
    return torch.cat([result, result.new_zeros(*result.shape[:-2], d - count, d)], dim=-2)


def composed(layer, x, weight, bias, count):
    """The layer's training forward."""
    groups = layer.groups
    columns = grouped(x, groups)
    centred = columns - columns.mean(-1, keepdim=True)
    cov = centred @ centred.mT / columns.shape[-1]
    output = composed_layer_matrix(layer._map, cov, layer.eps, count) @ centred
    output = output.reshape(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)
    shape = (1, -1) + (1,) * (x.dim() - 2)
    return output * weight.view(shape) + bias.view(shape)


def relative(a, b):
    """Relative distance in the Frobenius norm."""
    return ((a - b).norm() / b.norm()).item()


# A norm that follows the weights: looks at every position of every batch.
EVERYTHING = {"share": None, "every": 1}


def recomputed(model, *batches):
    """The model with statistics recomputed at its weights."""
    again = copy.deepcopy(model)
    keel.nn.unfollow(again)
    keel.nn.recalibrate(again, list(batches))
    return again.eval()


def moved(layer, size):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(size * torch.randn_like(parameter))
