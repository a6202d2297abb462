"""Zero-phase whitening."""

from __future__ import annotations

from ..rules import LeadingReliable, RankPolicy
from .whitening import Whitening


class ZcaWhitening(Whitening):
    """Decorrelates channels with the least change to them: y = weight * M^(-1/2) (x - mean) + bias with
    M = Cov + eps I, over the eigenvalues that ``rank`` keeps.

    The default rank policy is :class:`keel.LeadingReliable` with the layer's ``eps``. The arguments are those of
    :class:`keel.nn.Whitening`.

    >>> layer = keel.nn.ZcaWhitening(8, group_size=4)
    >>> x = torch.randn(64, 8, 5, 5)
    >>> y = layer(x)
    >>> channels = y.transpose(0, 1).flatten(1)[:4]
    >>> torch.allclose(torch.cov(channels), torch.eye(4), atol=1e-2)
    True
    >>> layer.kept
    tensor([4, 4])
    """

    _map = "zca"

    @staticmethod
    def _default_rank(eps: float) -> RankPolicy:
        return LeadingReliable(eps=eps)
