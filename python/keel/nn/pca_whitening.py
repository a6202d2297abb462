"""Whitening in the eigenbasis."""

from __future__ import annotations

from ..rules import FullRank, RankPolicy
from .whitening import Whitening


class PcaWhitening(Whitening):
    """Rotates channels into the eigenbasis of their covariance and scales each to variance one:
    y = weight * diag(values)^(-1/2) V^T (x - mean) + bias, with the eigenvalues and eigenvectors V of Cov + eps I.
    Outputs of dropped eigenvalues are zero (before ``bias``).

    Output channels are ordered by variance. They depend on the basis inside an eigenspace, so no rule
    can be exact at repeated eigenvalues: :class:`keel.Exact` means :class:`keel.Masked` here.
    The arguments are those of :class:`keel.nn.Whitening`. By default all eigenvalues are kept.

    >>> layer = keel.nn.PcaWhitening(6, rank=keel.LeadingCount(2))
    >>> y = layer(torch.randn(50, 6))
    >>> y.std(dim=0, unbiased=False).round(decimals=2)
    tensor([1., 1., 0., 0., 0., 0.], grad_fn=<...>)
    """

    _map = "pca_whitening"

    @staticmethod
    def _default_rank(eps: float) -> RankPolicy:
        return FullRank()
