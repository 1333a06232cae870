"""Sine and cosine, accurate for arguments of every size."""

from __future__ import annotations

import functools
import math

from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val, const
from lucid.codegen.vmath import coefficients
from lucid.codegen.vmath.basic import absolute
from lucid.codegen.vmath.elementary import power_of_two, round_to_integer
from lucid.codegen.vmath.polynomial import polynomial

_TWO_OVER_PI = 0.6366197723675814
# pi / 2 in three parts. With a fused multiply-add the first subtraction is exact up to the limit
# below, and the second one rounds relative to its small result.
_HALF_PI = {
    "float": (1.570796012878418, 3.1391647326017846e-07, 5.390302529957765e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
_LIMIT = {"float": 1e5, "double": 1e7}
_TABLE_BITS = 1216
_FRACTION_BITS = 190


def sin(b: FunctionBuilder, x: Val) -> Val:
    """The sine of x in radians; NaN for infinities."""
    y = _quadrant_value(b, *_reduce(b, x), shift=0)
    return b.select(b.eq(x, 0.0), x, y)


def cos(b: FunctionBuilder, x: Val) -> Val:
    """The cosine of x in radians; NaN for infinities."""
    return _quadrant_value(b, *_reduce(b, x), shift=1)


def _quadrant_value(b: FunctionBuilder, r: Val, quadrant: Val, shift: int) -> Val:
    """sin(r + (quadrant + shift) pi / 2) for |r| <= pi / 4."""
    is_float = r.element == "float"
    square = b.mul(r, r)
    sine_terms = coefficients.SIN32 if is_float else coefficients.SIN64
    cosine_terms = coefficients.COS32 if is_float else coefficients.COS64
    sine = b.fma(b.mul(square, r), polynomial(b, square, sine_terms), r)
    cosine = b.fma(square, -0.5, 1.0)
    cosine = b.fma(b.mul(square, square), polynomial(b, square, cosine_terms), cosine)
    quadrant = b.add(quadrant, shift) if shift else quadrant
    value = b.select(b.ne(b.and_(quadrant, 1), 0), cosine, sine)
    negative = b.shl(b.and_(quadrant, 2), 30 if is_float else 62)
    return b.unbits(b.xor(b.bits(value), negative))


def _reduce(b: FunctionBuilder, x: Val) -> tuple[Val, Val]:
    """r and an integer n with x = r + n pi / 2; n is right modulo 4."""
    n, quadrant = round_to_integer(b, x, _TWO_OVER_PI)
    r = x
    for part in _HALF_PI[x.element]:
        r = b.fma(n, -part, r)
    with b.if_else(b.any(b.gt(absolute(b, x), _LIMIT[x.element]))) as branch:
        with branch.then():
            exact_r, exact_quadrant = _reduce_large(b, x, r, quadrant)
        with branch.otherwise():
            pass
    return branch.merge(exact_r, r), branch.merge(exact_quadrant, quadrant)


def _reduce_large(b: FunctionBuilder, x: Val, r: Val, quadrant: Val) -> tuple[Val, Val]:
    """Replace the lanes with large x, by a call of a function shared by the module."""
    name = f"lucid_reduce_large_{x.element}{x.lanes}"
    if name not in b.module.functions:
        _define_reduce_large(b.module, name, x, quadrant.type)
    pair = b.call(name, f"{{{x.type}, {quadrant.type}}}", x, r, quadrant)
    return b.emit(x.type, f"extractvalue {pair}, 0"), b.emit(
        quadrant.type, f"extractvalue {pair}, 1"
    )


def _define_reduce_large(module: Module, name: str, like: Val, integers: str) -> None:
    scalar = _define_payne_hanek(module)
    result = f"{{{like.type}, {integers}}}"
    parameters = [(like.type, "x"), (like.type, "r"), (integers, "q")]
    with FunctionBuilder(
        module, name, parameters, result, internal=True, attributes="noinline cold"
    ) as b:
        x, r, quadrant = b.args
        with b.loop(0, like.lanes, 1, [r, quadrant]) as loop:
            lane = b.extract(x, loop.index)
            wide = b.cast("fpext", lane, "double")
            pair = b.call(scalar, "{double, i64}", wide)
            exact = b.emit("double", f"extractvalue {pair}, 0")
            exact_quadrant = b.emit("i64", f"extractvalue {pair}, 1")
            exact = b.cast("fptrunc", exact, like.element)
            if like.element == "float":
                exact_quadrant = b.cast("trunc", exact_quadrant, "i32")
            large = b.gt(absolute(b, lane), _LIMIT[like.element])
            old_r, old_quadrant = loop.carried
            exact = b.select(large, exact, b.extract(old_r, loop.index))
            exact_quadrant = b.select(large, exact_quadrant, b.extract(old_quadrant, loop.index))
            loop.carry(
                b.insert(old_r, exact, loop.index),
                b.insert(old_quadrant, exact_quadrant, loop.index),
            )
        first = b.emit(result, f"insertvalue {result} poison, {loop.results[0]}, 0")
        b.ret(b.emit(result, f"insertvalue {first}, {loop.results[1]}, 1"))


@functools.cache
def _two_over_pi_words() -> tuple[int, ...]:
    """2 / pi times 2^1216 as 64-bit words, lowest first, with zeros above."""
    bits = _TABLE_BITS + 128
    one = 1 << (bits + 64)

    def arctan_of_inverse(n: int) -> int:
        total, term, k = 0, one // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= n * n
            k += 2
        return total

    # Machin's formula; integers suffice, so no multiprecision package is needed.
    quarter_pi = 4 * arctan_of_inverse(5) - arctan_of_inverse(239)
    number = (one << _TABLE_BITS) // (2 * quarter_pi)
    return tuple((number >> (64 * i)) & (2**64 - 1) for i in range(_TABLE_BITS // 64 + 4))


def _define_payne_hanek(module: Module) -> str:
    """Define `{double r, i64 n} (double x)`: x = r + n pi / 2 to full precision, n modulo 4.

    192 bits of 2 / pi are multiplied by the 53-bit significand of x; bits above them only add
    multiples of 4 to the quotient, and bits below don't reach the result.
    Reference: M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983.
    """
    name = "lucid_reduce_payne_hanek"
    if name in module.functions:
        return name
    table = module.table("lucid_two_over_pi", "i64", _two_over_pi_words())
    parameters = [("double", "x")]
    with FunctionBuilder(
        module, name, parameters, "{double, i64}", internal=True, attributes="noinline cold"
    ) as b:
        (x,) = b.args
        bits = b.bits(absolute(b, x))
        exponent = b.sub(b.lshr(bits, 52), 1075)
        exponent = b.select(b.lt(exponent, -60), -60, exponent)
        significand = b.or_(b.and_(bits, (1 << 52) - 1), 1 << 52)
        # The lowest bit taken has weight 2^-(exponent + 190).
        start = b.sub(_TABLE_BITS - _FRACTION_BITS, exponent)
        window = b.load("i256", b.at("i8", table, b.lshr(start, 3)), align=1)
        window = b.binary("lshr", window, b.cast("zext", b.and_(start, 7), "i256"))
        product = b.mul(b.cast("trunc", window, "i192"), b.cast("zext", significand, "i192"))
        r, quadrant = _fraction_times_half_pi(b, product)
        negative = b.lt(x, 0.0)
        r = b.select(negative, b.neg(r), r)
        quadrant = b.select(negative, b.neg(quadrant), quadrant)
        finite = b.lt(absolute(b, x), math.inf)
        r = b.select(finite, r, math.nan)
        pair = b.emit("{double, i64}", f"insertvalue {{double, i64}} poison, {r}, 0")
        b.ret(b.emit("{double, i64}", f"insertvalue {pair}, {quadrant}, 1"))
    return name


def _fraction_times_half_pi(b: FunctionBuilder, product: Val) -> tuple[Val, Val]:
    """Of an i192 with 190 fraction bits: the nearest integer, and pi / 2 times the rest."""
    fraction = b.shl(product, 2)
    below = b.lt(fraction, 0)
    top = b.cast("trunc", b.lshr(product, 190), "i64")
    quadrant = b.add(top, b.cast("zext", below, "i64"))
    size = b.select(below, b.neg(fraction), fraction)
    zeros = b.call("llvm.ctlz.i192", "i192", size, const("i1", 0))
    normal = b.shl(size, zeros)
    high = b.cast("uitofp", b.cast("trunc", b.lshr(normal, 139), "i64"), "double")
    rest = b.and_(b.cast("trunc", b.lshr(normal, 86), "i64"), (1 << 53) - 1)
    low = b.mul(b.cast("uitofp", rest, "double"), 2.0**-53)
    half_pi = _HALF_PI["double"]
    r = b.fma(high, half_pi[0], b.fma(high, half_pi[1], b.mul(low, half_pi[0])))
    unit = power_of_two(b, b.sub(-53, b.cast("trunc", zeros, "i64")))
    r = b.mul(r, unit)
    return b.select(below, b.neg(r), r), quadrant
