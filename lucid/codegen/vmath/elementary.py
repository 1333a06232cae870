"""Exponential, logarithm and their relatives: branch-free, float and double, any lane count.

Each function takes and returns values of one float type. NaN, infinities, signed zeros and
denormal arguments and results are right; the error is below 4 units in the last place.
Reference: W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from lucid.codegen.llvm.builder import FunctionBuilder, Val, const, vector
from lucid.codegen.llvm.target import ELEMENT_BYTES
from lucid.codegen.vmath import coefficients
from lucid.codegen.vmath.basic import absolute, clamp_high, clamp_low, copysign
from lucid.codegen.vmath.polynomial import polynomial


class _Format(NamedTuple):
    """Constants of a float format, and where exp over- and underflows.

    `rounding` is added and subtracted to round to an integer, which then stands in the low bits:
    no conversion instruction, and a NaN passes through.
    """

    mantissa: int
    bias: int
    rounding: float
    ln2: tuple[float, float]
    exp_low: float
    exp_high: float
    expm1_low: float
    tanh_high: float
    exp: tuple[float, ...]


_FORMATS = {
    "float": _Format(
        mantissa=23,
        bias=127,
        rounding=1.5 * 2.0**23,
        ln2=(0.693145751953125, 1.428606765330187e-06),
        exp_low=-104.0,
        exp_high=89.0,
        expm1_low=-20.0,
        tanh_high=10.0,
        exp=coefficients.EXP32,
    ),
    "double": _Format(
        mantissa=52,
        bias=1023,
        rounding=1.5 * 2.0**52,
        ln2=(0.6931471805599453, 2.3190468138462996e-17),
        exp_low=-746.0,
        exp_high=710.0,
        expm1_low=-40.0,
        tanh_high=20.0,
        exp=coefficients.EXP64,
    ),
}
_LOG2_E = 1.4426950408889634


def format_of(x: Val) -> _Format:
    """The constants of a value's format."""
    return _FORMATS[x.element]


def round_to_integer(b: FunctionBuilder, x: Val, factor: float) -> tuple[Val, Val]:
    """x * factor rounded to an integer of modest size, as a float and as an integer."""
    rounding = const(x.type, format_of(x).rounding)
    shifted = b.muladd(x, factor, rounding)
    return b.sub(shifted, rounding), b.sub(b.bits(shifted), b.bits(rounding))


def to_float(b: FunctionBuilder, n: Val) -> Val:
    """An integer of modest size as a float, with no conversion that AVX2 lacks."""
    element = "float" if n.element == "i32" else "double"
    rounding = const(vector(element, n.lanes), _FORMATS[element].rounding)
    return b.sub(b.unbits(b.add(n, b.bits(rounding))), rounding)


def power_of_two(b: FunctionBuilder, n: Val) -> Val:
    """2^n for an integer n in the range of normal numbers."""
    f = _FORMATS["float" if n.element == "i32" else "double"]
    return b.unbits(b.shl(b.add(n, f.bias), f.mantissa))


def scale(b: FunctionBuilder, x: Val, n: Val, whole: Val) -> Val:
    """x * 2^n rounded once, also where the result is denormal or overflows; `whole` is n, too."""
    bits = x.lanes * 8 * ELEMENT_BYTES[x.element]
    if b.target.has_vector_ldexp and 128 <= bits <= b.target.vector_bytes * 8:
        name = f"llvm.x86.avx512.mask.scalef.p{'s' if x.element == 'float' else 'd'}.{bits}"
        rounding = [const("i32", 4)] if bits == 512 else []  # as all else
        return b.call(name, x.type, x, n, x, const(f"i{max(8, x.lanes)}", -1), *rounding)
    half = b.ashr(whole, 1)
    return b.mul(b.mul(x, power_of_two(b, half)), power_of_two(b, b.sub(whole, half)))


def _reduced(b: FunctionBuilder, x: Val) -> tuple[Val, Val, Val]:
    """n, twice, and r for x = n ln 2 + r, |r| <= ln 2 / 2."""
    f = format_of(x)
    n, whole = round_to_integer(b, x, _LOG2_E)
    return n, whole, b.fma(n, -f.ln2[1], b.fma(n, -f.ln2[0], x))


def _reduced_expm1(b: FunctionBuilder, x: Val) -> tuple[Val, Val]:
    """n and expm1(r) for x = n ln 2 + r, |r| <= ln 2 / 2."""
    _, whole, r = _reduced(b, x)
    return whole, expm1_of_small(b, r)


def expm1_of_small(b: FunctionBuilder, r: Val) -> Val:
    """expm1(r) for |r| <= ln 2 / 2."""
    q = polynomial(b, r, format_of(r).exp)
    return b.fma(b.mul(r, r), q, r)


def exp(b: FunctionBuilder, x: Val) -> Val:
    """e^x; denormal results are rounded once.

    What underflows to zero, as masked scores do, isn't computed: many processors take a hundred
    times as long for that.
    """
    f = format_of(x)
    is_computed = b.compare("uge", x, f.exp_low)  # a NaN is
    n, whole, r = _reduced(b, b.select(is_computed, clamp_high(b, x, f.exp_high), 0.0))
    q = b.fma(polynomial(b, r, f.exp), r, 1.0)
    return b.select(is_computed, scale(b, b.fma(q, r, 1.0), n, whole), 0.0)


def expm1(b: FunctionBuilder, x: Val) -> Val:
    """e^x - 1 without cancellation near 0."""
    f = format_of(x)
    n, p = _reduced_expm1(b, clamp_low(b, clamp_high(b, x, f.exp_high), f.expm1_low))
    # Half of the result first: 2^n itself overflows for the largest finite results.
    half = power_of_two(b, b.sub(n, 1))
    y = b.fma(p, half, b.sub(half, 0.5))
    return copysign(b, b.add(y, y), x)


def tanh(b: FunctionBuilder, x: Val) -> Val:
    """t / (t + 2) with t = expm1(2 |x|): no cancellation anywhere."""
    a = clamp_high(b, absolute(b, x), format_of(x).tanh_high)
    n, p = _reduced_expm1(b, b.add(a, a))
    power = power_of_two(b, n)
    t = b.fma(p, power, b.sub(power, 1.0))
    return copysign(b, b.div(t, b.add(t, 2.0)), x)


def sigmoid(b: FunctionBuilder, x: Val) -> Val:
    """1 / (1 + exp(-x)), computed from exp(-|x|), which can't overflow."""
    e = exp(b, b.neg(absolute(b, x)))
    numerator = b.select(b.ge(x, 0.0), 1.0, e)
    return b.div(numerator, b.add(e, 1.0))


def split_exponent(b: FunctionBuilder, x: Val) -> tuple[Val, Val]:
    """Integer e and m in [2/3, 4/3) with x = m 2^e, for positive normal x."""
    f = format_of(x)
    bits = b.bits(x)
    two_thirds = 0x3F2AAAAB if x.element == "float" else 0x3FE5555555555555
    e = b.ashr(b.sub(bits, two_thirds), f.mantissa)
    return e, b.unbits(b.sub(bits, b.shl(e, f.mantissa)))


def _log1p_reduced(b: FunctionBuilder, r: Val, e: Val) -> Val:
    """log(1 + r) + e ln 2 for r in [-1/3, 1/3] and a float e."""
    square = b.mul(r, r)
    if r.element == "float":
        p = b.fma(polynomial(b, r, coefficients.LOG32), r, -0.5)
        return b.fma(e, math.log(2), b.fma(p, square, r))
    # log(1 + r) = r - (h - t (h + R)) with h = r^2/2 keeps r exact (fdlibm's form).
    t = b.div(r, b.add(r, 2.0))
    z = b.mul(t, t)
    rest = b.mul(z, polynomial(b, z, coefficients.LOG64))
    h = b.mul(square, 0.5)
    low = b.fma(t, b.add(h, rest), b.mul(e, 1.9082149292705877e-10))
    return b.sub(b.mul(e, 0.6931471803691238), b.sub(b.sub(h, low), r))


def log(b: FunctionBuilder, x: Val) -> Val:
    """The natural logarithm: -inf at both zeros, NaN below."""
    f = format_of(x)
    up = f.mantissa + 1
    denormal = b.lt(x, 2.0 ** (1 - f.bias))
    e, m = split_exponent(b, b.select(denormal, b.mul(x, 2.0**up), x))
    exponent = to_float(b, e)
    exponent = b.select(denormal, b.sub(exponent, float(up)), exponent)
    return _log_edges(b, x, x, _log1p_reduced(b, b.sub(m, 1.0), exponent))


def log1p(b: FunctionBuilder, x: Val) -> Val:
    """log(1 + x) without cancellation near 0."""
    f = format_of(x)
    u = b.add(x, 1.0)
    # What rounding lost in u, exactly (Knuth's two-sum), enters after scaling by 2^-e.
    part = b.sub(u, 1.0)
    lost = b.add(b.sub(1.0, b.sub(u, part)), b.sub(x, part))
    e, m = split_exponent(b, u)
    scaled = b.mul(lost, power_of_two(b, b.neg(e)))
    # Where 2^-e isn't a normal number, nothing that matters was lost.
    scaled = b.select(b.lt(u, 2.0 ** (f.mantissa + 2)), scaled, 0.0)
    r = b.add(b.sub(m, 1.0), scaled)
    y = _log_edges(b, x, u, _log1p_reduced(b, r, to_float(b, e)))
    return b.select(b.eq(x, 0.0), x, y)


def _log_edges(b: FunctionBuilder, x: Val, u: Val, y: Val) -> Val:
    """The logarithm y of u, made right where u is 0, infinite, negative or NaN."""
    y = b.select(b.eq(u, math.inf), x, y)
    y = b.select(b.eq(u, 0.0), -math.inf, y)
    y = b.select(b.lt(u, 0.0), math.nan, y)
    return b.select(b.is_nan(x), x, y)


def erf(b: FunctionBuilder, x: Val) -> Val:
    """x + x P(x^2) near 0; 1 - exp(..) elsewhere, where erfc may have an absolute error."""
    a = absolute(b, x)
    small: tuple[float, ...]
    if x.element == "float":
        # exp(-a - a R(a)): the exponent itself is a polynomial. Fits by N. Juffa.
        r = b.fma(polynomial(b, a, coefficients.ERFC_EXPONENT32), a, b.neg(a))
        n, p = _reduced_expm1(b, clamp_low(b, r, -80.0))
        complement = b.mul(b.add(p, 1.0), power_of_two(b, n))
        limit, small = 0.927734375, coefficients.ERF32
    else:
        a = clamp_high(b, a, 6.0)
        n, p = _reduced_expm1(b, b.neg(b.mul(a, a)))
        t = b.div(b.sub(a, 2.0), b.add(a, 2.0))
        scaled = b.mul(polynomial(b, t, coefficients.ERFC64), power_of_two(b, n))
        complement = b.fma(scaled, p, scaled)
        limit, small = 0.9, coefficients.ERF64
    large = copysign(b, b.sub(1.0, complement), x)
    near = b.fma(polynomial(b, b.mul(x, x), small), x, x)
    return b.select(b.gt(a, limit), large, near)
