"""Rounding, sign, extrema, comparisons with NumPy's meaning, and conversions."""

from __future__ import annotations

from lucid.codegen.llvm.builder import FunctionBuilder, Operand, Val, const, vector


def absolute(b: FunctionBuilder, x: Val) -> Val:
    """|x|; the most negative integer stays itself, as in NumPy."""
    if x.is_float:
        return b.intrinsic("fabs", x)
    return b.select(b.lt(x, 0), b.neg(x), x)


def copysign(b: FunctionBuilder, magnitude: Val, sign: Val) -> Val:
    """The size of one value with the sign of another."""
    return b.intrinsic("copysign", magnitude, sign)


def sign(b: FunctionBuilder, x: Val) -> Val:
    """-1, 0 or 1; a NaN stays a NaN and -0.0 becomes +0.0."""
    if not x.is_float:
        negative = b.select(b.lt(x, 0), const(x.type, -1), const(x.type, 0))
        return b.select(b.gt(x, 0), 1, negative)
    one = copysign(b, const(x.type, 1.0), x)
    return b.select(b.compare("one", x, 0.0), one, b.add(x, 0.0))


def maximum(b: FunctionBuilder, x: Operand, y: Operand) -> Val:
    """The larger one; a NaN wins. Of zeros the second, so that max(x, 0.0) turns -0.0 to +0.0."""
    return _extremum(b, "gt", x, y)


def minimum(b: FunctionBuilder, x: Operand, y: Operand) -> Val:
    """The smaller one; a NaN wins, and of zeros the second."""
    return _extremum(b, "lt", x, y)


def _extremum(b: FunctionBuilder, condition: str, x: Operand, y: Operand) -> Val:
    x, y = b.coerce(x, y)
    if not x.is_float:
        return b.select(b.compare("s" + condition, x, y), x, y)
    chosen = b.select(b.compare("o" + condition, x, y), x, y)
    return b.select(b.is_nan(x), x, chosen)


def clamp_high(b: FunctionBuilder, x: Val, high: float) -> Val:
    """min(x, high) in one instruction; a NaN stays."""
    return b.select(b.gt(x, high), high, x)


def clamp_low(b: FunctionBuilder, x: Val, low: float) -> Val:
    """max(x, low) in one instruction; a NaN stays."""
    return b.select(b.lt(x, low), low, x)


def sqrt(b: FunctionBuilder, x: Val) -> Val:
    """Correctly rounded; a NaN below -0.0."""
    return b.intrinsic("sqrt", x)


def reciprocal(b: FunctionBuilder, x: Val) -> Val:
    """1 / x, correctly rounded."""
    return b.div(1.0, x)


def rsqrt(b: FunctionBuilder, x: Val) -> Val:
    """1 / sqrt(x) with two correct roundings: an approximate instruction gained nothing."""
    return b.div(1.0, sqrt(b, x))


def floor(b: FunctionBuilder, x: Val) -> Val:
    """Down to an integer; -0.0 stays."""
    return b.intrinsic("floor", x)


def ceil(b: FunctionBuilder, x: Val) -> Val:
    """Up to an integer; (-1, 0) becomes -0.0."""
    return b.intrinsic("ceil", x)


def trunc(b: FunctionBuilder, x: Val) -> Val:
    """Towards zero to an integer, with the sign of x."""
    return b.intrinsic("trunc", x)


def rint(b: FunctionBuilder, x: Val) -> Val:
    """To the nearest integer, ties to even."""
    return b.intrinsic("roundeven", x)


def floor_divide(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x // y of floats with the steps of NumPy's divmod, so that rounding agrees."""
    _, quotient = _divmod(b, x, y)
    whole = floor(b, quotient)
    whole = b.select(b.gt(b.sub(quotient, whole), 0.5), b.add(whole, 1.0), whole)
    exact = b.div(x, y)
    zero = copysign(b, const(x.type, 0.0), exact)
    result = b.select(b.eq(quotient, 0.0), zero, whole)
    return b.select(b.eq(y, 0.0), exact, result)


def remainder(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x % y of floats, with the sign of y; a zero remainder too. x % 0.0 is a NaN."""
    return _divmod(b, x, y)[0]


def _divmod(b: FunctionBuilder, x: Val, y: Val) -> tuple[Val, Val]:
    """The remainder, and the quotient before it is rounded to an integer."""
    rest = _rest(b, x, y)
    quotient = b.div(b.sub(x, rest), y)
    nonzero = b.ne(rest, 0.0)
    opposite = b.xor(b.lt(rest, 0.0), b.lt(y, 0.0))
    adjust = b.and_(nonzero, opposite)
    shifted = b.select(adjust, b.add(rest, y), rest)
    quotient = b.select(adjust, b.sub(quotient, 1.0), quotient)
    zero = copysign(b, const(x.type, 0.0), y)
    return b.select(nonzero, shifted, zero), quotient


def _rest(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """What is left of x when whole y are taken off, with the sign of x: C's fmod, exactly.

    The quotient, rounded, may be one too large, but where it has fewer bits than a float all of
    x - q y can be represented, and one rounding is none. Lanes further apart, an infinite x and a
    division by 0 are left to the library, one by one.
    """
    if not b.target.has_fma:
        return b.binary("frem", x, y)
    size, unit = absolute(b, x), absolute(b, y)
    near = b.fma(b.neg(trunc(b, b.div(size, unit))), unit, size)
    near = b.select(b.lt(near, 0.0), b.add(near, unit), near)
    near = copysign(b, b.select(b.lt(size, unit), size, near), x)
    whole = 2.0**22 if x.element == "float" else 2.0**51
    is_far = b.compare("uge", size, b.mul(unit, whole))
    with b.if_else(b.any(is_far)) as branch:
        with branch.then():
            exact = b.binary("frem", x, y)
        with branch.otherwise():
            pass
    return branch.merge(exact, near)


def convert(b: FunctionBuilder, x: Val, element: str) -> Val:
    """Convert between float, double, i32, i64 and i1 (bool) as `astype` does.

    Floats become integers by truncation; where NumPy's result is undefined the nearest bound is
    given and NaN becomes 0, so that no lane is ever poison. Anything non-zero is True, NaN too.
    """
    if x.element == element:
        return x
    if element == "i1":
        return b.ne(x, 0)
    if x.is_float:
        if element in ("float", "double"):
            return b.cast("fpext" if element == "double" else "fptrunc", x, element)
        result = vector(element, x.lanes)
        return b.intrinsic("fptosi.sat", x, result=result)
    if element in ("float", "double"):
        return b.cast("uitofp" if x.element == "i1" else "sitofp", x, element)
    widths = int(x.element[1:]), int(element[1:])
    if widths[0] > widths[1]:
        return b.cast("trunc", x, element)
    return b.cast("zext" if x.element == "i1" else "sext", x, element)
