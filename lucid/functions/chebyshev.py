"""Sums of Chebyshev polynomials."""

from __future__ import annotations

from typing import Any

from lucid.functions.tensors import Tensor


def series(t: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """The sum of c_k T_k(t) for -1 <= t <= 1.

    Reference: Clenshaw, "A note on the summation of Chebyshev series", 1955.
    """
    last: Any = 0.0
    total: Any = 0.0
    for coefficient in reversed(coefficients[1:]):
        last, total = total, coefficient + 2 * t * total - last
    found: Tensor = coefficients[0] + t * total - last
    return found
