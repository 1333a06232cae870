"""Dropout as a module."""

from __future__ import annotations

from lucid.ir.errors import OptionError
from lucid.nn.functional.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from lucid.nn.modules.module import Module
from lucid.nn.tracing import live_attribute
from lucid.tensor.tensor import Tensor

__all__ = [
    "AlphaDropout",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
]


class _DropoutNd(Module):
    """The probability that an element, or a channel, is zeroed."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise OptionError(
                f"{type(self).__name__}: dropout probability has to be between 0 and 1, but got {p}"
            )
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zero each element with probability p while training, and scale the others by 1 / (1 - p).

    In eval mode the input comes back.

    Raises `OptionError` for p outside of [0, 1].

    Args:
        p: the probability of an element to be dropped. Default: 0.5.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Dropout(0.5).eval()(lucid.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, live_attribute(self, "p"), self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zero whole channels of (n, c, l) with probability p while training, and scale the others.

    Each channel of each example is kept or dropped whole; in eval mode nothing is.

    Raises `OptionError` for p outside of [0, 1].

    Args:
        p: the probability of an element to be dropped. Default: 0.5.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Dropout1d(0.5).eval()(lucid.ones(1, 2, 2)).shape
        lucid.Size([1, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return dropout1d(input, live_attribute(self, "p"), self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zero whole channels of (n, c, h, w) with probability p while training, scale the others.

    Each channel of each example is kept or dropped whole; in eval mode nothing is.

    Raises `OptionError` for p outside of [0, 1].

    Args:
        p: the probability of an element to be dropped. Default: 0.5.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Dropout2d(0.5).eval()(lucid.ones(1, 2, 2, 2)).shape
        lucid.Size([1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return dropout2d(input, live_attribute(self, "p"), self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zero whole channels of (n, c, d, h, w) with probability p while training.

    Each channel of each example is kept or dropped whole; in eval mode nothing is.

    Raises `OptionError` for p outside of [0, 1].

    Args:
        p: the probability of an element to be dropped. Default: 0.5.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.Dropout3d(0.5).eval()(lucid.ones(1, 2, 2, 2, 2)).shape
        lucid.Size([1, 2, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return dropout3d(input, live_attribute(self, "p"), self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout for selu networks: mean 0 and variance 1 are kept.

    In eval mode the input comes back.

    Raises `OptionError` for p outside of [0, 1].

    Args:
        p: the probability of an element to be dropped. Default: 0.5.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.AlphaDropout(0.5).eval()(lucid.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_DropoutNd):
    """Dropout of whole channels for selu networks: mean 0 and variance 1 are kept.

    In eval mode the input comes back.

    Raises `OptionError` for p outside of [0, 1].

    Shapes: (n, c, *); the result has the same.

    Args:
        p: the probability of a channel to be dropped. Default: 0.5.
        inplace: write the result into the input and return that. Default: False.

    Example:
        >>> import lucid
        >>> from lucid import nn
        >>> nn.FeatureAlphaDropout(0.5).eval()(lucid.ones(1, 3))
        tensor([[1., 1., 1.]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return feature_alpha_dropout(input, self.p, self.training, self.inplace)
