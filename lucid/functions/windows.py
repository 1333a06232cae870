"""Windows that weigh the ends of a stretch of a signal down."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

from lucid.docstrings import like, maps
from lucid.functions.arguments import integer
from lucid.functions.bessel import i0
from lucid.functions.creation import arange, full, ones
from lucid.functions.from_data import as_leaf
from lucid.functions.options import TensorOptions, WindowOptions, taken, with_options
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, OptionError
from lucid.layouts import check_layout

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def _window(
    name: str,
    length: Any,
    periodic: bool,
    values: Callable[[Tensor], Tensor],
    layout: object = None,
    **options: Unpack[TensorOptions],
) -> Tensor:
    """What `values` makes of the angle 2 pi t / period of each place; 1 of a single place.

    Raises: `OptionError` for a negative length, `DTypeError` for a dtype that isn't of floats.
    """
    count = integer(length, name, "window_length")
    if count < 0:
        raise OptionError(f"{name}: window_length must be non-negative, not {count}")
    wanted, requires_grad = taken(name, **options)
    if not wanted.is_floating_point:
        raise DTypeError(f"{name}: expects floating point dtypes but got: {wanted!r}")
    check_layout(layout, name)
    if count < 2:
        return as_leaf(ones(count, dtype=wanted), requires_grad)
    angles = arange(count, dtype=wanted) * (2 * math.pi / (count if periodic else count - 1))
    return as_leaf(values(angles), requires_grad)


@with_options
@maps("5", "periodic=False", "[0.0000, 0.5000, 1.0000, 0.5000, 0.0000]")
@maps("4", "[0.0000, 0.5000, 1.0000, 0.5000]")
def hann_window(
    window_length: int, periodic: bool = True, **options: Unpack[WindowOptions]
) -> Tensor:
    """Return the Hann window, `0.5 - 0.5 cos(2 pi n / N)` at place n.

    N is the length if periodic, else one less: so a periodic window ends one step before the next
    period's zero, and a symmetric one is zero at both ends. A window of one place is 1.

    dtype: a float dtype.

    Args:
        window_length: how many places, at least 0.
        periodic: whether it is a period of a longer signal, as `stft` wants it, or symmetric.
        dtype: of the result. Default: the default dtype.

    Raises:
        OptionError: the length is negative.
        DTypeError: the dtype isn't one of floats.
    """
    return _window("hann_window", window_length, periodic, lambda t: 0.5 - 0.5 * t.cos(), **options)


@like(hann_window)
@with_options
@maps("4", "[0.0800, 0.5400, 1.0000, 0.5400]")
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Unpack[WindowOptions],
) -> Tensor:
    """Return the Hamming window, `alpha - beta cos(2 pi n / N)` at place n.

    It doesn't go down to zero: its least value is alpha - beta. N is the length if periodic, else
    one less. A window of one place is 1.

    dtype: a float dtype.

    Args:
        periodic: whether it is a period of a longer signal, or symmetric.
        alpha: the mean of a period.
        beta: the factor of the cosine.
    """

    def values(t: Tensor) -> Tensor:
        return alpha - beta * t.cos()

    return _window("hamming_window", window_length, periodic, values, **options)


@like(hamming_window)
@with_options
def blackman_window(
    window_length: int, periodic: bool = True, **options: Unpack[WindowOptions]
) -> Tensor:
    """Return the Blackman window, `0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)`.

    It is zero at the ends up to rounding, and narrower than Hann's. N is the length if periodic,
    else one less.

    dtype: a float dtype.

    >>> lucid.blackman_window(5, periodic=False).round(decimals=2).abs()
    tensor([0.0000, 0.3400, 1.0000, 0.3400, 0.0000])
    """

    def values(t: Tensor) -> Tensor:
        return 0.42 - 0.5 * t.cos() + 0.08 * (2 * t).cos()

    return _window("blackman_window", window_length, periodic, values, **options)


@like(hamming_window)
@with_options
@maps("4", "[0.0000, 0.5000, 1.0000, 0.5000]")
def bartlett_window(
    window_length: int, periodic: bool = True, **options: Unpack[WindowOptions]
) -> Tensor:
    """Return the Bartlett window, a triangle from 0 up to 1 and back: `1 - |2 n / N - 1|`.

    N is the length if periodic, else one less. A window of one place is 1.

    dtype: a float dtype.
    """

    def values(t: Tensor) -> Tensor:
        return 1 - (t / math.pi - 1).abs()

    return _window("bartlett_window", window_length, periodic, values, **options)


@like(hann_window)
@with_options
@maps("5", "periodic=False", "beta=2.0", "[0.4387, 0.8348, 1.0000, 0.8348, 0.4387]")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Unpack[WindowOptions]
) -> Tensor:
    """Return the Kaiser window, `i0(beta sqrt(1 - t^2)) / i0(beta)` for t from -1 to 1.

    i0 is the modified Bessel function of order 0. The greater beta is, the narrower is the window;
    for 0 it is all ones.

    dtype: a float dtype.

    Args:
        periodic: whether t stops one step before 1, as in a period of a longer signal.
        beta: the shape.
    """

    def values(t: Tensor) -> Tensor:
        place = t / math.pi - 1
        return i0(beta * (1 - place * place).sqrt()) / i0(full((), beta, dtype=t.dtype))

    return _window("kaiser_window", window_length, periodic, values, **options)
