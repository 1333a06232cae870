"""Windows that weigh the ends of a stretch of a signal down."""

from __future__ import annotations

import math
from typing import Any

from lucid.device import check_device
from lucid.docstrings import like
from lucid.dtypes import as_dtype, get_default_dtype
from lucid.functions.arguments import integer
from lucid.functions.bessel import i0
from lucid.functions.creation import arange, full, ones
from lucid.functions.from_data import as_leaf
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, OptionError
from lucid.ir.types import DType
from lucid.layouts import check_layout

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


class _Window:
    """What all windows are made of: their options, and the angle 2 pi t / period of each place.

    Raises: `OptionError` for a negative length, `DTypeError` for a dtype that isn't of floats.
    """

    def __init__(self, name: str, length: Any, periodic: bool, options: dict[str, Any]) -> None:
        self.count = integer(length, name, "window_length")
        if self.count < 0:
            raise OptionError(f"{name}: window_length must be non-negative, not {self.count}")
        given = options["dtype"]
        self.dtype = get_default_dtype() if given is None else as_dtype(given, name)
        if not self.dtype.is_floating_point:
            raise DTypeError(f"{name}: expects floating point dtypes but got: {self.dtype!r}")
        check_layout(options["layout"], name)
        check_device(options["device"], name)
        self.requires_grad = bool(options["requires_grad"])
        self.period = self.count if periodic else self.count - 1

    @property
    def angles(self) -> Tensor:
        return arange(self.count, dtype=self.dtype) * (2 * math.pi / self.period)

    def leaf(self, values: Tensor) -> Tensor:
        return as_leaf(values, self.requires_grad)

    def short(self) -> Tensor | None:
        """A window of one place or none, which is 1."""
        return self.leaf(ones(self.count, dtype=self.dtype)) if self.count < 2 else None


def _options(
    dtype: DType | None, layout: object, device: object, requires_grad: bool
) -> dict[str, Any]:
    return {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Hann window, `0.5 - 0.5 cos(2 pi n / N)` at place n.

    N is the length if periodic, else one less: so a periodic window ends one step before the next
    period's zero, and a symmetric one is zero at both ends. A window of one place is 1.

    dtype: a float dtype.

    Args:
        window_length: how many places, at least 0.
        periodic: whether it is a period of a longer signal, as `stft` wants it, or symmetric.
            Default: True.
        dtype: of the result. Default: the default dtype.

    Raises:
        OptionError: the length is negative.
        DTypeError: the dtype isn't one of floats.

    Example:
        >>> lucid.hann_window(4)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
        >>> lucid.hann_window(5, periodic=False)
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("hann_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    return window.leaf(0.5 - 0.5 * window.angles.cos())


@like(hann_window)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Hamming window, `alpha - beta cos(2 pi n / N)` at place n.

    It doesn't go down to zero: its least value is alpha - beta. N is the length if periodic, else
    one less. A window of one place is 1.

    dtype: a float dtype.

    Args:
        periodic: whether it is a period of a longer signal, or symmetric. Default: True.
        alpha: the mean of a period. Default: 0.54.
        beta: the factor of the cosine. Default: 0.46.

    Example:
        >>> lucid.hamming_window(4)
        tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("hamming_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    return window.leaf(alpha - beta * window.angles.cos())


@like(hamming_window)
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Blackman window, `0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)`.

    It is zero at the ends up to rounding, and narrower than Hann's. N is the length if periodic,
    else one less.

    dtype: a float dtype.

    Example:
        >>> lucid.blackman_window(5, periodic=False).round(decimals=2).abs()
        tensor([0.0000, 0.3400, 1.0000, 0.3400, 0.0000])
    """
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("blackman_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    angles = window.angles
    return window.leaf(0.42 - 0.5 * angles.cos() + 0.08 * (2 * angles).cos())


@like(hamming_window)
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Bartlett window, a triangle from 0 up to 1 and back: `1 - |2 n / N - 1|`.

    N is the length if periodic, else one less. A window of one place is 1.

    dtype: a float dtype.

    Example:
        >>> lucid.bartlett_window(4)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("bartlett_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    return window.leaf(1 - (window.angles / math.pi - 1).abs())


@like(hann_window)
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Kaiser window, `i0(beta sqrt(1 - t^2)) / i0(beta)` for t from -1 to 1.

    i0 is the modified Bessel function of order 0. The greater beta is, the narrower is the window;
    for 0 it is all ones.

    dtype: a float dtype.

    Args:
        periodic: whether t stops one step before 1, as in a period of a longer signal. Default:
            True.
        beta: the shape. Default: 12.0.

    Example:
        >>> lucid.kaiser_window(5, periodic=False, beta=2.0)
        tensor([0.4387, 0.8348, 1.0000, 0.8348, 0.4387])
    """
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("kaiser_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    place = window.angles / math.pi - 1
    return window.leaf(
        i0(beta * (1 - place * place).sqrt()) / i0(full((), beta, dtype=window.dtype))
    )
