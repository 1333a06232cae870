"""What is left of the error function to 1, also where that is small."""

from __future__ import annotations

import math

from lucid.functions.chebyshev import series
from lucid.functions.elementwise import choose, erf, exp
from lucid.functions.gradients import curve
from lucid.functions.tensors import Tensor

__all__ = ["erfc"]

# (1 + 2 x) exp(x^2) erfc(x) by (x - 15/4) / (x + 15/4), for x >= 0.
# Reference: Shepherd and Laframboise, "Chebyshev Approximation of (1 + 2x)exp(x^2)erfc x", 1981.
_ERFCX = (
    1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189,
    -0.026658668435305753, 0.009074997670705265, -0.002413163540417608, 0.0004907758365258086,
    -6.916973302501207e-05, 4.13902798607301e-06, 7.74038306619849e-07, -2.1886401049234397e-07,
    1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10,
    -6.318088340886684e-11, 2.86879501093067e-11, 1.9455868545777347e-13, -9.65469674843344e-13,
    3.25254814814874e-14, 3.3478119482868056e-14, -1.864562880419313e-15,
    -1.2507950530688648e-15, 7.418235256624044e-17, 5.068148904796111e-17,
)  # fmt: skip


def _right(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x) for x >= 0."""
    return series(1 - 7.5 / (x + 3.75), _ERFCX) / (1 + 2 * x)


@curve(lambda g, x, y: g * (2 * x * y - 2 / math.sqrt(math.pi)))
def erfcx(input: Tensor) -> Tensor:
    """Return `exp(input**2) erfc(input)`, which doesn't vanish on the right.

    It falls as 1 / (sqrt(pi) input) there, and overflows to inf far on the left.
    Reference: Shepherd and Laframboise, "Chebyshev Approximation of (1 + 2x)exp(x^2)erfc x", 1981.

    Args:
        input: a tensor; integers and bools give the default float dtype.

    Example:
        >>> lucid.special.erfcx(lucid.tensor([0.0, 1.0, 100.0]))
        tensor([1.0000, 0.4276, 0.0056])
    """
    is_right = input >= 0
    left = choose(is_right, 0.0, input)
    mirrored = 2 * exp(left * left) - _right(-left)
    return choose(is_right, _right(choose(is_right, input, 0.0)), mirrored)


@curve(lambda g, x: g * (-2 / math.sqrt(math.pi)) * exp(-x * x))
def erfc(input: Tensor) -> Tensor:
    """Return `1 - erf(input)`, a float in [0, 2], without loss where it is small.

    Args:
        input: a tensor; integers and bools give the default float dtype.

    Example:
        >>> lucid.erfc(lucid.tensor([0.0, 0.5, 5.0]))
        tensor([1.0000e+00, 4.7950e-01, 1.5375e-12])
    """
    is_right = input > 0.5
    right = choose(is_right, input, 0.5)
    return choose(is_right, exp(-right * right) * _right(right), 1 - erf(input))
