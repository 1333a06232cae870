"""x ** y for floats with IEEE's special cases."""

from __future__ import annotations

import math

from lucid.codegen.llvm.builder import FunctionBuilder, Operand, Val, const
from lucid.codegen.llvm.values import number_of
from lucid.codegen.vmath import coefficients
from lucid.codegen.vmath.basic import absolute, clamp_high, clamp_low, trunc
from lucid.codegen.vmath.elementary import expm1_of_small, round_to_integer, scale, to_float
from lucid.codegen.vmath.polynomial import polynomial


def power(b: FunctionBuilder, x: Operand, y: Operand) -> Val:
    """x ** y as C's pow: x ** 0 and 1 ** y are 1 even for NaN."""
    x, y = b.coerce(x, y)
    number = number_of(y)
    if number in _SHORT:
        return _short_power(b, x, number)
    # Beyond 2^65 every power but that of 1 is infinite or 0, and the products stay finite.
    bounded = clamp_low(b, clamp_high(b, y, 2.0**65), -(2.0**65))
    general = _float_power if x.element == "float" else _double_power
    magnitude = general(b, absolute(b, x), bounded)
    return _special_cases(b, x, y, magnitude)


def _short_power(b: FunctionBuilder, x: Val, y: float) -> Val:
    """x ** y for a few constants, by products and roots: within two units in the last place.

    Floats are computed in double, and rounded once.
    """
    base = b.cast("fpext", x, "double") if x.element == "float" else x
    whole, has_root = int(abs(y)), y != int(y)
    if has_root:
        base = absolute(b, base)
    given = base
    if y < 0 and whole:  # the inverse and its root are those of other powers of x, too
        base = b.div(1.0, base)
    root = b.intrinsic("sqrt", base) if has_root else None
    power = base
    if whole >= 2:
        square = b.mul(base, base)
        power = {2: square, 3: b.mul(square, base), 4: b.mul(square, square)}[whole]
    if root is not None and whole == 2 and x.element == "double":
        power = b.fma(power, root, _lost_in_square(b, given, base, power, root))
    elif root is not None:
        power = b.mul(power, root) if whole else root
    if y == -0.5:
        power = b.div(1.0, power)
    result = b.cast("fptrunc", power, "float") if x.element == "float" else power
    if not has_root:
        return result
    is_negative = b.and_(b.lt(x, 0.0), b.gt(x, -math.inf))
    return b.select(is_negative, math.nan, result)


def _lost_in_square(b: FunctionBuilder, x: Val, base: Val, square: Val, root: Val) -> Val:
    """What base^2.5 = square * root lacks, as square was rounded, and base if it is 1/x.

    0 where anything is infinite.
    """
    lost = b.fma(base, base, b.neg(square))
    if base is not x:
        relative = b.mul(b.fma(b.neg(x), base, 1.0), 2.5)
        lost = b.fma(square, relative, lost)
    lost = b.mul(lost, root)
    return b.select(b.lt(absolute(b, lost), math.inf), lost, 0.0)


# Exponents of which products and roots are as near as the general way.
_SHORT = (0.5, 1.5, 2.5, 3.0, 4.0, -0.5, -1.5, -2.0, -2.5)


def _special_cases(b: FunctionBuilder, x: Val, y: Val, magnitude: Val) -> Val:
    """x ** y, given |x| ** y for finite non-zero x."""
    a = absolute(b, x)
    is_zero, positive_power = b.eq(a, 0.0), b.gt(y, 0.0)
    limit = b.select(b.xor(is_zero, positive_power), const(x.type, math.inf), 0.0)
    result = b.select(b.or_(is_zero, b.eq(a, math.inf)), limit, magnitude)
    integral = b.eq(trunc(b, y), y)
    half = b.mul(y, 0.5)
    odd = b.and_(integral, b.ne(trunc(b, half), half))
    finite_negative = b.and_(b.lt(x, 0.0), b.gt(x, -math.inf))
    result = b.select(b.and_(finite_negative, b.not_(integral)), math.nan, result)
    sign_bit = 1 << (31 if x.element == "float" else 63)
    sign = b.select(odd, b.and_(b.bits(x), sign_bit), 0)
    result = b.unbits(b.xor(b.bits(result), sign))
    result = b.select(b.compare("uno", x, y), math.nan, result)
    return b.select(b.or_(b.eq(y, 0.0), b.eq(x, 1.0)), 1.0, result)


def _around_one(b: FunctionBuilder, x: Val) -> tuple[Val, Val]:
    """Integer e and m in [sqrt(1/2), sqrt(2)) with x = m 2^e, for a normal double."""
    bits = b.bits(x)
    e = b.ashr(b.sub(bits, 0x3FE6A09E667F3BCD), 52)
    return e, b.unbits(b.sub(bits, b.shl(e, 52)))


def _float_power(b: FunctionBuilder, a: Val, y: Val) -> Val:
    """a ** y through double, where every float is normal and rounding happens once."""
    e, m = _around_one(b, b.cast("fpext", a, "double"))
    t = b.div(b.sub(m, 1.0), b.add(m, 1.0))
    log2 = b.fma(polynomial(b, b.mul(t, t), coefficients.LOG2_OF_FLOAT), t, to_float(b, e))
    exponent = b.mul(log2, b.cast("fpext", y, "double"))
    exponent = clamp_low(b, clamp_high(b, exponent, 200.0), -200.0)
    n, whole = round_to_integer(b, exponent, 1.0)
    p = polynomial(b, b.sub(exponent, n), coefficients.EXP2_OF_FLOAT)
    return b.cast("fptrunc", scale(b, p, n, whole), "float")


def _double_power(b: FunctionBuilder, a: Val, y: Val) -> Val:
    """exp(y log a), the logarithm as an unevaluated sum of two doubles."""
    high, low = _log_pair(b, a)
    product = b.mul(high, y)
    error = b.fma(high, y, b.neg(product))
    error = b.fma(low, y, error)
    error = b.select(b.lt(absolute(b, product), 800.0), error, 0.0)
    product = clamp_low(b, clamp_high(b, product, 750.0), -800.0)
    n, whole = round_to_integer(b, product, 1.4426950408889634)
    r = b.fma(n, -2.3190468138462996e-17, b.fma(n, -math.log(2), product))
    p = expm1_of_small(b, b.add(r, error))
    return scale(b, b.add(p, 1.0), n, whole)


def _fast_two_sum(b: FunctionBuilder, x: Operand, y: Val) -> tuple[Val, Val]:
    """x + y and what rounding lost, for |x| >= |y| or x = 0 (Dekker)."""
    total = b.add(x, y)
    return total, b.sub(y, b.sub(total, x))


def _log_pair(b: FunctionBuilder, a: Val) -> tuple[Val, Val]:
    """log(a) to about 2^-66 relative: 2 t (1 + z/3 + z^2 Q(z)), t = (m-1)/(m+1), z = t^2."""
    denormal = b.lt(a, 2.0**-1022)
    e, m = _around_one(b, b.select(denormal, b.mul(a, 2.0**54), a))
    exponent = to_float(b, e)
    exponent = b.select(denormal, b.sub(exponent, 54.0), exponent)
    numerator, denominator = b.sub(m, 1.0), b.add(m, 1.0)
    lost = b.sub(m, b.sub(denominator, 1.0))
    t = b.div(numerator, denominator)
    rest = b.fma(b.neg(t), denominator, numerator)
    t_low = b.div(b.fma(b.neg(t), lost, rest), denominator)
    z = b.mul(t, t)
    z_low = b.fma(b.add(t, t), t_low, b.fma(t, t, b.neg(z)))
    third, third_low = 1 / 3, 1.850371707708594e-17
    s = b.mul(z, third)
    s_low = b.fma(z, third_low, b.fma(z, third, b.neg(s)))
    s_low = b.fma(z_low, third, s_low)
    s, error = _fast_two_sum(b, s, b.mul(b.mul(z, z), polynomial(b, z, coefficients.ATANH64)))
    v, v_low = _fast_two_sum(b, 1.0, s)
    v_low = b.add(v_low, b.add(error, s_low))
    double_t = b.add(t, t)
    log_m = b.mul(double_t, v)
    log_m_low = b.fma(double_t, v, b.neg(log_m))
    log_m_low = b.fma(double_t, v_low, log_m_low)
    log_m_low = b.fma(b.add(t_low, t_low), v, log_m_low)
    # ln 2 with 42 bits, so that its multiples are exact, and the rest.
    high, error = _fast_two_sum(b, b.mul(exponent, _LN2_HIGH), log_m)
    low = b.fma(exponent, _LN2_LOW, b.add(error, log_m_low))
    return _fast_two_sum(b, high, low)


_LN2_HIGH = 0.6931471805598903
_LN2_LOW = 5.497923018708371e-14
