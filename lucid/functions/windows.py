"""Windows that weigh the ends of a stretch of a signal down."""

from __future__ import annotations

import math
from typing import Any

from lucid.device import check_device
from lucid.dtypes import as_dtype, get_default_dtype
from lucid.functions.arguments import integer
from lucid.functions.bessel import i0
from lucid.functions.creation import arange, full, ones
from lucid.functions.from_data import as_leaf
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, OptionError
from lucid.ir.types import DType
from lucid.layouts import check_layout


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
    """Return half of 1 - cos: zero at both ends, or one step before the next period's."""
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("hann_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    return window.leaf(0.5 - 0.5 * window.angles.cos())


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
    """Return alpha - beta cos."""
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("hamming_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    return window.leaf(alpha - beta * window.angles.cos())


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return 0.42 - 0.5 cos + 0.08 cos of the double angle."""
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("blackman_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    angles = window.angles
    return window.leaf(0.42 - 0.5 * angles.cos() + 0.08 * (2 * angles).cos())


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a triangle from 0 to 1 and back."""
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("bartlett_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    return window.leaf(1 - (window.angles / math.pi - 1).abs())


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
    """Return i0(beta sqrt(1 - t^2)) / i0(beta) for t from -1 to 1."""
    options = _options(dtype, layout, device, requires_grad)
    window = _Window("kaiser_window", window_length, periodic, options)
    if (short := window.short()) is not None:
        return short
    place = window.angles / math.pi - 1
    return window.leaf(
        i0(beta * (1 - place * place).sqrt()) / i0(full((), beta, dtype=window.dtype))
    )
