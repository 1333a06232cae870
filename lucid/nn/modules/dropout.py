"""Dropout as a module."""

from __future__ import annotations

from lucid.ir.errors import OptionError
from lucid.nn import functional as F
from lucid.nn.modules.settings import OfRank, UnaryModule, calling, settings

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


@settings
class _DropoutNd(UnaryModule):
    """The probability that an element, or a channel, is zeroed."""

    p: float = 0.5
    inplace: bool = False
    _shown = "p={0.p}, inplace={0.inplace}"

    def __post_init__(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise OptionError(f"{type(self).__name__}: p must be from 0 to 1, not {self.p}")


@calling(F.dropout)
class Dropout(_DropoutNd):
    """Zero each element with probability p while training, and scale the others by 1 / (1 - p)."""


class _ChannelDropout(_DropoutNd, OfRank):
    _functions = F.dropout1d, F.dropout2d, F.dropout3d


class Dropout1d(_ChannelDropout, rank=1): ...


class Dropout2d(_ChannelDropout, rank=2): ...


class Dropout3d(_ChannelDropout, rank=3): ...


@calling(F.alpha_dropout)
class AlphaDropout(_DropoutNd):
    """Dropout for selu networks: mean 0 and variance 1 are kept."""


@calling(F.feature_alpha_dropout)
class FeatureAlphaDropout(_DropoutNd):
    """Dropout of whole channels for selu networks: mean 0 and variance 1 are kept."""
