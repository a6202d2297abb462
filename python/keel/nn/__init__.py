"""Whitening layers that replace batch normalisation."""

from .convert import convert_batchnorm
from .follow import Followed, follow, unfollow
from .pca_denoising import PcaDenoising
from .pca_whitening import PcaWhitening
from .recalibrate import recalibrate
from .whitening import Whitening
from .zca_whitening import ZcaWhitening

__all__ = [
    "Followed",
    "PcaDenoising",
    "PcaWhitening",
    "Whitening",
    "ZcaWhitening",
    "convert_batchnorm",
    "follow",
    "recalibrate",
    "unfollow",
]
