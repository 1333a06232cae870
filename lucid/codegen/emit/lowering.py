"""What each elementwise op is as instructions: one rule per op, for any number of lanes.

A rule gets the function builder, the dtype that the op works on, its operands, and the attributes
that it names. Loops, vector width and tails are decided elsewhere, once for all ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid.codegen import vmath
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, vector
from lucid.ir import ops
from lucid.ir.op import Op
from lucid.ir.types import DTYPES, DType, bool_, dtype_named, f32, f64, i32

Rule = Callable[..., Val]
RULES: dict[str, Rule] = {}

_OTHERS = {bool_: "i1", f32: "float", f64: "double"}
ELEMENTS = {dtype: _OTHERS.get(dtype, f"i{8 * dtype.itemsize}") for dtype in DTYPES}
MEMORY = {**ELEMENTS, bool_: "i8"}


def lowers(*lowered: Op) -> Callable[[Rule], Rule]:
    """Register a function as the rule of these ops."""

    def register(rule: Rule) -> Rule:
        for op in lowered:
            assert op.name not in RULES, f"op {op.name} has two rules"
            RULES[op.name] = rule
        return rule

    return register


def _of_floats(op: Op, function: Callable[[FunctionBuilder, Val], Val]) -> None:
    def rule(b: FunctionBuilder, d: DType, x: Val) -> Val:
        return function(b, x)

    lowers(op)(rule)


for _op, _function in (
    (ops.exp, vmath.exp), (ops.expm1, vmath.expm1), (ops.log, vmath.log),
    (ops.log1p, vmath.log1p), (ops.sqrt, vmath.sqrt), (ops.rsqrt, vmath.rsqrt),
    (ops.reciprocal, vmath.reciprocal), (ops.sin, vmath.sin), (ops.cos, vmath.cos),
    (ops.tanh, vmath.tanh), (ops.sigmoid, vmath.sigmoid), (ops.erf, vmath.erf),
    (ops.floor, vmath.floor), (ops.ceil, vmath.ceil), (ops.trunc, vmath.trunc),
    (ops.round, vmath.rint),
):  # fmt: skip
    _of_floats(_op, _function)


# Arithmetic -----------------------------------------------------------------------------------


@lowers(ops.add)
def _add(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.add(x, y)


@lowers(ops.sub)
def _sub(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.sub(x, y)


@lowers(ops.mul)
def _mul(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.mul(x, y)


@lowers(ops.div)
def _div(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.div(x, y)


@lowers(ops.floor_div)
def _floor_div(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """Rounded down; an integer divided by 0 gives 0."""
    if d.is_floating_point:
        return vmath.floor_divide(b, x, y)
    if not d.is_signed:
        zero = b.eq(y, 0)
        return b.select(zero, 0, b.binary("udiv", x, b.select(zero, 1, y)))
    return vmath.integer.floor_divide(b, x, y)


@lowers(ops.remainder)
def _remainder(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """With the sign of the divisor; an integer modulo 0 is 0."""
    if d.is_floating_point:
        return vmath.remainder(b, x, y)
    if not d.is_signed:
        zero = b.eq(y, 0)
        return b.select(zero, 0, b.binary("urem", x, b.select(zero, 1, y)))
    return vmath.integer.remainder(b, x, y)


@lowers(ops.pow)
def _pow(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    if d.is_floating_point:
        return vmath.power(b, x, y)
    if not d.is_signed:
        return _unsigned_power(b, x, y)
    return vmath.integer.power(b, x, y)


def _unsigned_power(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x ** y modulo 2^bits by squaring, over all bits of the exponent."""
    with b.loop(0, int(x.element[1:]), 1, [const(x.type, 1), x, y]) as loop:
        result, square, rest = loop.carried
        odd = b.ne(b.and_(rest, 1), 0)
        product = b.select(odd, b.mul(result, square), result)
        loop.carry(product, b.mul(square, square), b.lshr(rest, 1))
    return loop.results[0]


@lowers(ops.neg)
def _neg(b: FunctionBuilder, d: DType, x: Val) -> Val:
    return b.neg(x)


@lowers(ops.abs)
def _abs(b: FunctionBuilder, d: DType, x: Val) -> Val:
    return vmath.absolute(b, x) if d.is_signed else x


@lowers(ops.sign)
def _sign(b: FunctionBuilder, d: DType, x: Val) -> Val:
    if d.is_signed:
        return vmath.sign(b, x)
    return b.select(b.eq(x, 0), const(x.type, 0), const(x.type, 1))


# Order ----------------------------------------------------------------------------------------


@lowers(ops.maximum)
def maximum(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """The larger one; a NaN wins."""
    if d is bool_:
        return b.or_(x, y)
    if not d.is_signed:
        return b.select(b.compare("ugt", x, y), x, y)
    return vmath.maximum(b, x, y)


@lowers(ops.minimum)
def minimum(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """The smaller one; a NaN wins."""
    if d is bool_:
        return b.and_(x, y)
    if not d.is_signed:
        return b.select(b.compare("ult", x, y), x, y)
    return vmath.minimum(b, x, y)


@lowers(ops.clamp)
def _clamp(b: FunctionBuilder, d: DType, x: Val, low: Val, high: Val) -> Val:
    return minimum(b, d, maximum(b, d, x, low), high)


def less(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """x < y; False where a NaN takes part."""
    return b.lt(x, y) if d.kind != "bool" and d.is_signed else b.compare("ult", x, y)


def _less_equal(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.le(x, y) if d.kind != "bool" and d.is_signed else b.compare("ule", x, y)


@lowers(ops.lt)
def _lt(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return less(b, d, x, y)


@lowers(ops.gt)
def _gt(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return less(b, d, y, x)


@lowers(ops.le)
def _le(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return _less_equal(b, d, x, y)


@lowers(ops.ge)
def _ge(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return _less_equal(b, d, y, x)


@lowers(ops.eq)
def _eq(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.eq(x, y)


@lowers(ops.ne)
def _ne(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """True where a NaN takes part."""
    return b.ne(x, y)


# Bits and truth -------------------------------------------------------------------------------


@lowers(ops.logical_and, ops.bit_and)
def _and(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.and_(x, y)


@lowers(ops.logical_or, ops.bit_or)
def _or(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.or_(x, y)


@lowers(ops.logical_xor, ops.bit_xor)
def _xor(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    return b.xor(x, y)


@lowers(ops.logical_not, ops.bit_not)
def _not(b: FunctionBuilder, d: DType, x: Val) -> Val:
    return b.not_(x)


@lowers(ops.gcd)
def _gcd(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """Of absolute values; that of the lowest number is read without a sign, as it is stored."""
    if d.is_signed:
        x, y = (b.select(b.lt(v, 0), b.neg(v), v) for v in (x, y))
    return vmath.integer.gcd(b, x, y)


@lowers(ops.shift_left)
def _shift_left(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """Counts outside of 0 ... bits - 1 move every bit out."""
    bits = d.itemsize * 8
    inside = b.compare("ult", y, bits)
    return b.select(inside, b.shl(x, b.select(inside, y, 0)), 0)


@lowers(ops.shift_right)
def _shift_right(b: FunctionBuilder, d: DType, x: Val, y: Val) -> Val:
    """Arithmetic for signed numbers; counts outside of 0 ... bits - 1 leave only the sign."""
    bits = d.itemsize * 8
    inside = b.compare("ult", y, bits)
    if d.is_signed:
        return b.ashr(x, b.select(inside, y, bits - 1))
    return b.select(inside, b.lshr(x, b.select(inside, y, 0)), 0)


@lowers(ops.where)
def _where(b: FunctionBuilder, d: DType, condition: Val, x: Val, y: Val) -> Val:
    return b.select(condition, x, y)


@lowers(ops.cast)
def _cast(b: FunctionBuilder, d: DType, x: Val, dtype: str) -> Val:
    return convert(b, d, x, dtype_named(dtype))


def convert(b: FunctionBuilder, source: DType, x: Val, target: DType) -> Val:
    """As `astype`; floats beyond an integer's range give its nearest end, and NaN 0.

    Integers of less than 32 bits are what these bits of an i32 are.
    """
    element = ELEMENTS[target]
    if source.kind == "int" and not source.is_signed:
        if target.is_floating_point:
            return b.cast("uitofp", x, element)
        if target.itemsize > source.itemsize:
            return b.cast("zext", x, element)
    if source.is_floating_point and target.kind == "int":
        if not target.is_signed and target.itemsize == i32.itemsize:
            return b.intrinsic("fptoui.sat", x, result=vector(element, x.lanes))
        if target.itemsize < i32.itemsize:
            return b.cast("trunc", vmath.convert(b, x, "i32"), element)
    return vmath.convert(b, x, element)


def apply(
    b: FunctionBuilder, op: str, dtype: DType, operands: list[Val], attributes: dict[str, Any]
) -> Val:
    """Emit one op by its rule."""
    return RULES[op](b, dtype, *operands, **attributes)
