"""Projection onto the leading eigenvectors."""

from __future__ import annotations

from ..rules import LeadingEnergy, RankPolicy
from .whitening import Whitening


class PcaDenoising(Whitening):
    """Standardises each channel as batch normalisation does, and then projects onto the leading eigenvectors:
    y = weight * P D (x - mean) + bias. D is diag(variance + eps)^(-1/2), and P is the projector onto the eigenvectors
    of D Cov D + eps I that ``rank`` keeps.

    ``rank`` is :class:`keel.LeadingEnergy` (default: 0.99) or another rank policy. The other arguments are
    those of :class:`keel.nn.Whitening`. The running statistics hold the projector (``running_matrix``) and the
    biased variance (``running_variance``) separately.

    >>> layer = keel.nn.PcaDenoising(6, rank=keel.LeadingCount(2))
    >>> y = layer(torch.randn(50, 6))
    >>> int(torch.linalg.matrix_rank(y))
    2
    """

    _map = "pca_denoising"
    _standardises = True

    @staticmethod
    def _default_rank(eps: float) -> RankPolicy:
        return LeadingEnergy(0.99)
