"""Block Krylov spaces with a thick restart: the iteration behind :mod:`keel.partial`, without gradients.

Symmetric matrices M have one orthonormal basis Q with M Q = Q H + next R. For others there are two (Golub and Kahan's
form): A Q = P B and A^T P = Q B^T + next R. In both, eigenvectors or singular vectors of the small H or B give those of
the matrix, and R their residuals. A is never squared, so small values are as accurate as large ones.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

_eigh = torch.ops.keel.eigh
_svd = torch.ops.keel.svd

#: The largest singular value problem that the GPU solves without cuSOLVER.
_OWN_SVD = 512


class Map(NamedTuple):
    """A linear map (..., m, n) by its products with blocks of columns."""

    shape: Tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    times: Callable[[Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor]


class Found(NamedTuple):
    """Leading values (..., k) and vectors (..., n, k) or (..., m, k), and more of them that have not converged, which
    help with the gradient. For a symmetric matrix left and right are the same tensor."""

    values: Tensor
    left: Tensor
    right: Tensor
    more_values: Tensor
    more_left: Tensor
    more_right: Tensor
    residual: Tensor  # (...), over the largest value
    largest: Tensor  # (...)


def random_block(shape: Tuple[int, int], seed: int, like: Map) -> Tensor:
    """Numbers in [-1, 1) by a hash of their place: the same on all devices, without a generator's state, so that a CUDA
    graph can hold it."""
    place = (torch.arange(shape[0] * shape[1], device=like.device).view(shape) + 1 + (seed << 20)) & 0xFFFFFFFF
    for factor in (0x45D9F3B, 0x119DE1F3):
        place = ((place ^ (place >> 16)) * factor) & 0xFFFFFFFF
    return (place ^ (place >> 16)).to(like.dtype) / 2**31 - 1


def orthonormal(block: Tensor, basis: Tensor, noise: Tensor) -> Tuple[Tensor, Tensor]:
    """Orthonormal columns that span ``block`` outside ``basis``, which is orthonormal, and basis^T block. Directions
    that are empty up to rounding are replaced by columns of ``noise``: the space has become invariant, and needs new
    ones.

    A pass divides by sizes after a rotation by eigenvectors of the Gram matrix, not by roots of its values. These show
    only what is above 1e-8 of the largest. What is below that in float64 is resolved by the next pass, where its
    columns have size 1."""
    empty = 16 * torch.finfo(block.dtype).eps
    least = empty**2 * (block * block).sum(-2).amax(-1)[..., None].double()
    inside = basis.mT @ block
    passes = 2 if block.dtype == torch.float32 else 3
    for turn in range(passes):
        block = block - basis @ (basis.mT @ block if turn else inside)
        wide = block.double()
        gram = wide.mT @ wide
        size = gram.diagonal(dim1=-2, dim2=-1)
        scale = torch.where(size <= (0 if turn else least), torch.zeros_like(size), size.rsqrt())
        vectors = _eigh(gram * scale[..., None] * scale[..., None, :], "masked", False)[1]
        wide = wide @ (scale[..., None] * vectors)
        length = wide.norm(dim=-2, keepdim=True)
        block = (wide / length.clamp_min(empty**2)).to(block.dtype)
        if turn < passes - 1:
            fresh = noise if turn == 0 else noise.flip(0)  # none twice
            block = torch.where(length <= empty, fresh, block)
    return block, inside


def small_svd(matrix: Tensor, count: int) -> Tuple[Tensor, Tensor, Tensor]:
    """U, S and V of ``count`` leading singular values, or of more."""
    if matrix.device.type != "cuda" or matrix.shape[-1] <= _OWN_SVD or matrix.dtype == torch.float64:
        left, values, right = _svd(matrix, "masked")
        return left, values, right.mT
    # In float64 a square keeps what float32 has.
    wide = matrix.double()
    first = _eigh(wide.mT @ wide, "masked", True)[1][..., :count].to(matrix.dtype)
    left, values, right = _svd(matrix @ first, "masked")
    return left, values, first @ right.mT


class Krylov:
    """A growing basis. ``step`` multiplies its newest block; ``ritz`` finds what it holds; ``restart`` shrinks it."""

    def __init__(self, map: Map, symmetric: bool, count: int, which: str, start: Optional[Tensor], seed: int) -> None:
        self.map, self.symmetric, self.count, self.which = map, symmetric, count, which
        self.width, self.most = sizes(map, count)
        kept = max(2 * self.width, self.most * 2 // 5)
        self.kept = max(self.width, min(kept, _OWN_SVD))  # after a restart
        batch, (m, n) = map.shape[:-2], map.shape[-2:]
        options = {"dtype": map.dtype, "device": map.device}
        self.noise = random_block((max(m, n), self.width), seed, map)
        self.turn = 0
        self.right = torch.zeros(*batch, n, self.most + self.width, **options)
        self.left = self.right if symmetric else torch.zeros(*batch, m, self.most, **options)
        self.small = torch.zeros(*batch, self.most, self.most, **options)
        self.filled = 0  # columns that have been multiplied
        block = self._noise(n).expand(*batch, n, self.width)
        if start is not None:
            block = torch.cat([start.expand(*batch, n, -1), block], -1)[..., : self.width]
        self.right[..., : self.width] = orthonormal(block, self.right[..., :0], self._noise(n))[0]
        self.scale: Optional[Tensor] = None  # a power of two near the matrix's norm, (..., 1, 1)
        self.rest: Tensor = self.noise  # R

    def _noise(self, rows: int) -> Tensor:
        self.turn += 1
        return self.noise.roll(37 * self.turn, 0)[:rows]

    def step(self) -> None:
        begin, end = self.filled, self.filled + self.width
        newest, basis = self.right[..., begin:end], self.right[..., :end]
        image = self.map.times(newest)
        if self.scale is None:
            largest = image.abs().amax((-2, -1), keepdim=True)
            power = torch.exp2(largest.log2().floor())
            self.scale = torch.where(largest > 0, power, torch.ones_like(power))
            self.scale = torch.where(largest.isnan(), largest, self.scale)
        image = image / self.scale
        if not self.symmetric:
            block, inside = orthonormal(image, self.left[..., :begin], self._noise(image.shape[-2]))
            self.left[..., begin:end] = block
            self.small[..., :begin, begin:end] = inside
            self.small[..., begin:end, begin:end] = block.mT @ image
            image = self.map.adjoint(block) / self.scale
        block, inside = orthonormal(image, basis, self._noise(image.shape[-2]))
        if self.symmetric:
            self.small[..., :end, begin:end] = inside
            self.small[..., begin:end, :end] = inside.mT
            self.small[..., begin:end, begin:end] = (inside[..., begin:, :] + inside[..., begin:, :].mT) / 2
        self.right[..., end : end + self.width] = block
        self.rest = block.mT @ image
        self.filled = end

    def ritz(self) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """Small vectors left and right, values, all leading first, and the residual over the largest value, (...)."""
        small = self.small[..., : self.filled, : self.filled]
        if self.symmetric:
            values, right = _eigh(small, "masked", False)
            key = {"LA": values, "SA": -values, "LM": values.abs()}[self.which]
            order = key.argsort(-1, descending=True)
            values = values.gather(-1, order)
            right = left = right.gather(-1, order[..., None, :].expand_as(right))
        else:
            left, values, right = small_svd(small, self.kept)
        largest = values.abs().amax(-1)
        errors = (self.rest @ left[..., -self.width :, : self.count]).norm(dim=-2).amax(-1)
        return left, right, values, torch.where(errors > 0, errors / largest, errors)

    def restart(self, left: Tensor, right: Tensor, values: Tensor) -> None:
        kept, filled = self.kept, self.filled
        newest = self.right[..., filled : filled + self.width].clone()
        if not self.symmetric:
            self.left[..., :kept] = self.left[..., :filled] @ left[..., :kept]
        self.right[..., :kept] = self.right[..., :filled] @ right[..., :kept]
        self.right[..., kept : kept + self.width] = newest
        self.small.zero_()
        self.small.diagonal(dim1=-2, dim2=-1)[..., :kept] = values[..., :kept]
        self.filled = kept

    def vectors(self, left: Tensor, right: Tensor, values: Tensor, residual: Tensor) -> Found:
        assert self.scale is not None
        k, most = self.count, min(2 * self.width, self.kept, self.filled)  # as many whenever it is
        rights = self.right[..., : self.filled] @ right[..., :most]
        lefts = rights if self.symmetric else self.left[..., : self.filled] @ left[..., :most]
        values = values * self.scale[..., 0]
        right = _polished(rights[..., :k])
        left = right if self.symmetric else _polished(lefts[..., :k])
        return Found(values[..., :k], left, right, values[..., k:most], lefts[..., k:], rights[..., k:], residual,
                     values.abs().amax(-1))  # fmt: skip


def _polished(block: Tensor) -> Tensor:
    """Nearly orthonormal columns made orthonormal to rounding, by a step of Newton's method."""
    return 1.5 * block - block @ (block.mT @ block / 2)


def sizes(map: Map, count: int) -> Tuple[int, int]:
    """Columns of a block, and of the whole basis. A block has more than are wanted: an eigenvalue as often repeated as
    that is found as often, and the values beyond decide how fast it goes. The basis is limited by the small problem and
    by memory."""
    width = (count + max(4, count // 4) + 7) // 8 * 8
    return width, width * max(4, min(10, _OWN_SVD // width, 2**26 // (max(map.shape[-2:]) * width)))


def solve(
    map: Map, symmetric: bool, count: int, which: str, tolerance: float, steps: Optional[int], most_steps: int,
    start: Optional[Tensor], seed: int,
) -> Found:  # fmt: skip
    """Steps until each matrix has reached the tolerance, or a fixed number of them, without looking. A matrix that has
    reached it keeps its result, so that it does not depend on the others."""
    krylov = Krylov(map, symmetric, count, which, start, seed)
    found: Optional[Found] = None
    done = torch.zeros(map.shape[:-2], dtype=torch.bool, device=map.device)
    last = most_steps if steps is None else steps
    for step in range(1, last + 1):
        krylov.step()
        full = krylov.filled + krylov.width > krylov.most
        look = steps is None and (step > 1 if start is not None else step > 3 and step % 2 == 0)
        if not (full or look or step == last):
            continue
        left, right, values, residual = krylov.ritz()
        if look or step == last:
            now = ~(residual > tolerance)  # NaN is done
            ready = (now & ~done) if steps is None and step < last else ~done
            if steps is not None or step == last or bool(ready.any()):
                new = krylov.vectors(left, right, values, residual)
                found = new if found is None else Found(*[_chosen(ready, *pair) for pair in zip(new, found)])
            done = done | now
            if steps is None and bool(done.all()):
                break
        if full:
            krylov.restart(left, right, values)
    assert found is not None
    return found


def _chosen(ready: Tensor, new: Tensor, old: Tensor) -> Tensor:
    mask = ready.view(ready.shape + (1,) * (new.dim() - ready.dim()))
    return torch.where(mask, new, old)
