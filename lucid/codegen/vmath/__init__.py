"""Vector mathematics: functions `(builder, values) -> value` for any lane count, no libm.

Float functions take float or double. `integer` holds those whose meaning differs for integers.
"""

from lucid.codegen.vmath import integer
from lucid.codegen.vmath.basic import (
    absolute,
    ceil,
    convert,
    copysign,
    floor,
    floor_divide,
    maximum,
    minimum,
    reciprocal,
    remainder,
    rint,
    rsqrt,
    sign,
    sqrt,
    trunc,
)
from lucid.codegen.vmath.elementary import erf, exp, expm1, log, log1p, sigmoid, tanh
from lucid.codegen.vmath.power import power
from lucid.codegen.vmath.trigonometry import cos, sin

__all__ = [
    "absolute", "ceil", "convert", "copysign", "cos", "erf", "exp", "expm1", "floor",
    "floor_divide", "integer", "log", "log1p", "maximum", "minimum", "power", "reciprocal",
    "remainder", "rint", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "tanh", "trunc",
]  # fmt: skip
