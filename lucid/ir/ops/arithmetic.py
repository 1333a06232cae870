"""Arithmetic per element. Operands have one dtype; their shapes broadcast.

In a VJP: `g` the cotangent, `y` the result, then the operands. Where the derivative jumps, the
rules follow PyTorch: ties of maximum and minimum share the cotangent, clamp's bounds pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.op import Op, Operand, Sample, Trait, declare
from lucid.ir.ops import batching, logic
from lucid.ir.ops.evaluation import quiet
from lucid.ir.ops.rules import ANY, FLOATS, NUMBERS, DTypeSet, elementwise
from lucid.ir.ops.samples import EDGES, pairs

__all__ = [
    "add", "clamp", "div", "floor_div", "maximum", "minimum", "mul", "pow", "remainder", "sub",
]  # fmt: skip

Vjp = Callable[..., tuple[Any, ...]]


def _binary(
    name: str,
    evaluate: Callable[..., Any],
    dtypes: DTypeSet,
    vjp: Vjp,
    traits: Set[Trait] = frozenset(),
    samples: tuple[Sample, ...] = pairs(-3.0, 3.0),
) -> Op:
    infer = elementwise(name, ("lhs", "rhs"), dtypes)
    return declare(
        Op(
            name,
            infer,
            quiet(evaluate),
            vjp,
            traits=traits,
            samples=samples,
            batch=batching.elementwise,
        )
    )


def _pow(a: np.ndarray, b: np.ndarray) -> Any:
    """Powers of integers: 1/a**n, rounded toward 0, for negative exponents, and 0 for 1/0."""
    if a.dtype.kind != "i" or not (b < 0).any():
        return np.power(a, b)
    inverse = np.where(np.abs(a) == 1, np.power(a, b & 1), 0)
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0))).astype(a.dtype)


def _pow_vjp(g: Operand, y: Operand, a: Operand, b: Operand) -> tuple[Any, ...]:
    """b a^(b-1) and a^b log a: both 0 where a = b = 0, and the latter wherever a = 0 <= b.

    The singular points are replaced before the power or logarithm is taken, not masked after, so
    that derivatives of these rules are finite too.
    """
    zero = ops.zero(g)
    base_is_zero = ops.eq(a, zero)
    no_power = ops.logical_and(base_is_zero, ops.eq(b, zero))
    no_logarithm = ops.logical_and(base_is_zero, ops.ge(b, zero))
    exponent = ops.where(no_power, zero, b - 1.0)
    base = ops.where(no_logarithm, ops.one(g), a)
    return g * (b * ops.pow(a, exponent)), g * (y * ops.log(base))


def _share(wins: Op) -> Vjp:
    """The VJP of maximum or minimum; with a NaN both operands get the cotangent."""

    def vjp(g: Operand, y: Operand, a: Operand, b: Operand) -> tuple[Any, ...]:
        tied = ops.where(ops.eq(a, b), g * 0.5, g)
        return ops.where(wins(b, a), ops.zero(g), tied), ops.where(wins(a, b), ops.zero(g), tied)

    return vjp


def _clamp_vjp(g: Operand, y: Operand, x: Operand, low: Operand, high: Operand) -> tuple[Any, ...]:
    zero = ops.zero(g)
    inside = ops.logical_and(ops.ge(x, low), ops.le(x, high))
    below = ops.logical_and(ops.lt(x, low), ops.lt(low, high))
    above = ops.logical_or(ops.gt(x, high), ops.lt(high, low))
    return ops.where(inside, g, zero), ops.where(below, g, zero), ops.where(above, g, zero)


def _clamp(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> Any:
    return np.minimum(np.maximum(x, low), high)


add = _binary("add", np.add, NUMBERS, lambda g, y, a, b: (g, g), traits={Trait.COMMUTATIVE})
sub = _binary("sub", np.subtract, NUMBERS, lambda g, y, a, b: (g, -g))
mul = _binary(
    "mul",
    np.multiply,
    NUMBERS,
    lambda g, y, a, b: (g * b, g * a),
    traits={Trait.COMMUTATIVE},
)
div = _binary(
    "div",
    np.true_divide,
    FLOATS,
    lambda g, y, a, b: (g / b, -(g * (a / b)) / b),  # not y, which may be written in place
    samples=pairs(0.5, 2.0),
)

# Where one operand is drawn, the quotient's floor doesn't change.
_QUOTIENTS = (
    Sample(((4, 7), np.full(7, -2.0)), {}, (2.2, 3.8)),
    Sample((np.full((5, 1), 5.9), (1, 3)), {}, (2.1, 2.9)),
    Sample(((), np.array(2.0)), {}, (2.2, 3.8)),
    Sample(((0, 3), np.full((1, 3), 2.0))),
    Sample((np.linspace(-9.5, 9.5, 33), np.linspace(-4.0, 5.0, 33))),
    pairs(1.0, 2.0)[-1],
)

# As Python's // and %: the remainder has the sign of the divisor. An integer divided by 0 gives 0.
floor_div = _binary(
    "floor_div",
    np.floor_divide,
    NUMBERS,
    lambda g, y, a, b: (None, None),
    traits={Trait.SLOW},
    samples=_QUOTIENTS,
)
remainder = _binary(
    "remainder",
    np.remainder,
    NUMBERS,
    lambda g, y, a, b: (g, -(g * ops.floor_div(a, b))),
    traits={Trait.SLOW},
    samples=_QUOTIENTS,
)
pow = _binary("pow", _pow, NUMBERS, _pow_vjp, {Trait.APPROXIMATE}, pairs(0.5, 4.0))

# NaN wins. Of two zeros, either may be returned, whatever their signs: so they don't commute.
_EXTREMUM = {Trait.IDEMPOTENT}
_NO_SIGNED_ZERO = pairs(-3.0, 3.0, zeros=False)
maximum = _binary("maximum", np.maximum, ANY, _share(logic.gt), _EXTREMUM, _NO_SIGNED_ZERO)
minimum = _binary("minimum", np.minimum, ANY, _share(logic.lt), _EXTREMUM, _NO_SIGNED_ZERO)

clamp = declare(
    Op(
        "clamp",
        elementwise("clamp", ("x", "low", "high"), NUMBERS),
        quiet(_clamp),
        _clamp_vjp,
        traits={Trait.SLOW},
        samples=(
            Sample(((6, 5), np.array(-0.7), np.array(0.6))),
            Sample(((6, 5), (5,), (6, 1))),
            Sample(((), (), ())),
            Sample(((0, 2), (), (2,))),
            Sample((EDGES, np.array(-2.0), np.array(np.nan))),
            Sample((EDGES[:, None], EDGES, np.array(0.75))),
        ),
        batch=batching.elementwise,
    )
)
