"""Functions of one number, per element."""

from __future__ import annotations

from collections.abc import Callable, Set
from math import pi
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.op import Op, Operand, Sample, Trait, declare
from lucid.ir.ops import batching
from lucid.ir.ops.erf import erf as error_function
from lucid.ir.ops.evaluation import quiet
from lucid.ir.ops.rules import ANY, FLOATS, NUMBERS, DTypeSet, elementwise, require_dtype
from lucid.ir.ops.samples import EDGES, singles
from lucid.ir.types import DTYPES, DType, TensorType, i32, limits_of

__all__ = [
    "abs", "cast", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "neg",
    "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "tanh", "trunc",
]  # fmt: skip


def _unary(
    name: str,
    evaluate: Callable[..., Any],
    vjp: Callable[..., tuple[Any, ...]],
    dtypes: DTypeSet = FLOATS,
    samples: tuple[Sample, ...] = singles(-3.0, 3.0),
    traits: Set[Trait] = frozenset(),
) -> Op:
    infer = elementwise(name, ("x",), dtypes)
    rule = batching.elementwise
    return declare(
        Op(name, infer, quiet(evaluate), vjp, traits=traits, samples=samples, batch=rule)
    )


def _flat(g: Operand, y: Operand, x: Operand) -> tuple[Any, ...]:
    """A step function: its derivative is 0, and taken as 0 where it jumps."""
    return (ops.zeros_like(g),)


def _sigmoid(x: np.ndarray) -> Any:
    """1 / (1 + e^-x), from e^-|x|, which can't overflow: max(that, sign(x)) is 1 from x = 0 on."""
    decay = np.abs(x, out=np.empty_like(x))
    np.exp(np.negative(decay, out=decay), out=decay)
    sums = np.add(decay, 1, out=np.empty_like(x))
    np.maximum(decay, np.sign(x), out=decay)
    return np.divide(decay, sums, out=sums)


_POSITIVE = singles(0.3, 4.0)
_SLOW = {Trait.SLOW}
_SLOW_AND_ROUNDED = {Trait.SLOW, Trait.APPROXIMATE}
_NO_ZERO = (*_POSITIVE, *singles(-4.0, -0.3))
_STEPS = (*singles(0.1, 0.4), Sample((np.array([-2.5, -1.5, -0.5, -0.4, 0.5, 1.5, 2.5, 1e10]),)))

neg = _unary("neg", np.negative, lambda g, y, x: (-g,), NUMBERS, traits={Trait.INVOLUTION})
abs = _unary("abs", np.abs, lambda g, y, x: (g * sign(x),), NUMBERS, _NO_ZERO)
sign: Op = _unary("sign", np.sign, _flat, NUMBERS, _NO_ZERO, traits=_SLOW)

exp = _unary("exp", np.exp, lambda g, y, x: (g * y,), traits=_SLOW_AND_ROUNDED)
expm1 = _unary("expm1", np.expm1, lambda g, y, x: (g * (y + 1),), traits=_SLOW_AND_ROUNDED)
log = _unary("log", np.log, lambda g, y, x: (g / x,), samples=_POSITIVE, traits={Trait.APPROXIMATE})
log1p = _unary(
    "log1p",
    np.log1p,
    lambda g, y, x: (g / (x + 1),),
    samples=singles(-0.6, 3.0),
    traits=_SLOW_AND_ROUNDED,
)
sqrt = _unary("sqrt", np.sqrt, lambda g, y, x: (g * 0.5 / y,), samples=_POSITIVE, traits=_SLOW)
rsqrt = _unary(
    "rsqrt",
    lambda x: 1 / np.sqrt(x),
    lambda g, y, x: (g * -0.5 * (y * y * y),),
    samples=_POSITIVE,
    traits=_SLOW,
)
reciprocal = _unary(
    "reciprocal", np.reciprocal, lambda g, y, x: (-(g * (y * y)),), samples=_NO_ZERO, traits=_SLOW
)
sin = _unary("sin", np.sin, lambda g, y, x: (g * cos(x),), traits=_SLOW_AND_ROUNDED)
cos: Op = _unary("cos", np.cos, lambda g, y, x: (-(g * sin(x)),), traits=_SLOW_AND_ROUNDED)
tanh = _unary("tanh", np.tanh, lambda g, y, x: (g - g * (y * y),), traits=_SLOW_AND_ROUNDED)
sigmoid = _unary("sigmoid", _sigmoid, lambda g, y, x: (g * (y - y * y),), traits=_SLOW_AND_ROUNDED)
erf = _unary(
    "erf",
    error_function,
    lambda g, y, x: (g * exp(-(x * x)) * (2 / pi**0.5),),
    traits=_SLOW_AND_ROUNDED,
)

floor = _unary("floor", np.floor, _flat, samples=_STEPS)
ceil = _unary("ceil", np.ceil, _flat, samples=_STEPS)
round = _unary("round", np.rint, _flat, samples=_STEPS)  # halves go to the even neighbour
trunc = _unary("trunc", np.trunc, _flat, samples=_STEPS)


def _infer_cast(x: TensorType, dtype: DType) -> TensorType:
    require_dtype("cast", ("x",), (x,), ANY)
    return x.with_dtype(dtype)


def _cast(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats become integers by truncation; beyond the range the nearest end, and NaN becomes 0.

    Integers wrap into a narrower type, and floats into one of less than 32 bits by way of i32. A
    bool is True for all but 0, so for NaN too.
    """
    if x.dtype == dtype.numpy and not x.flags.c_contiguous:
        return x  # who keeps it copies it anyway, to be row-major
    if x.dtype.kind == "f" and dtype.kind == "int" and dtype.itemsize < i32.itemsize:
        return _cast(x, i32).astype(dtype.numpy)
    repeats = 0 in x.strides  # else NumPy goes along memory, and others may change the order
    result = x.astype(dtype.numpy, order="C" if repeats else "K")
    if x.dtype.kind == "f" and dtype.kind == "int":
        least, greatest = limits_of(dtype)
        lowest, highest = np.minimum.reduce, np.maximum.reduce  # NaN where one of them is
        if x.size and not (lowest(x, None) > least - 1.0 and highest(x, None) < greatest + 1.0):
            inside = (x > least - 1.0) & (x < greatest + 1.0)
            nearest = np.where(np.isnan(x), 0, np.where(x < 0, least, greatest))
            return np.where(inside, result, nearest).astype(dtype.numpy)
    return result


def _cast_vjp(g: Operand, y: Operand, x: Operand, dtype: DType) -> tuple[Any, ...]:
    return (ops.cast(g, dtype=x.dtype) if x.dtype.is_floating_point else None,)


cast = declare(
    Op(
        "cast",
        _infer_cast,
        quiet(_cast),
        _cast_vjp,
        samples=tuple(
            Sample((operand,), {"dtype": dtype}, (0.2, 0.8) if dtype.kind != "float" else None)
            for dtype in DTYPES
            for operand in ((), (3, 5), (0,), EDGES, np.array([True, False]))
        ),
        batch=batching.elementwise,
    )
)
