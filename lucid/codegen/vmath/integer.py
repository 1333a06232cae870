"""Integer division, remainder and power with NumPy's meaning; nothing here can trap."""

from __future__ import annotations

from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val, const


def _safe_divisor(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """y, but 1 where the machine would trap: 0, and -1 under the most negative number."""
    lowest = -(1 << (int(x.element[1:]) - 1))
    overflow = b.and_(b.eq(x, lowest), b.eq(y, -1))
    return b.select(b.or_(b.eq(y, 0), overflow), 1, y)


def floor_divide(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x // y rounded down; x // 0 is 0, and the lowest number // -1 wraps to itself."""
    divisor = _safe_divisor(b, x, y)
    quotient = b.binary("sdiv", x, divisor)
    rest = b.sub(x, b.mul(quotient, divisor))
    opposite = b.lt(b.xor(rest, divisor), 0)
    inexact = b.and_(b.ne(rest, 0), opposite)
    quotient = b.select(inexact, b.sub(quotient, 1), quotient)
    return b.select(b.eq(y, 0), 0, quotient)


def remainder(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x % y with the sign of y; x % 0 is 0."""
    divisor = _safe_divisor(b, x, y)
    rest = b.binary("srem", x, divisor)
    adjust = b.and_(b.ne(rest, 0), b.lt(b.xor(rest, divisor), 0))
    rest = b.select(adjust, b.add(rest, divisor), rest)
    return b.select(b.eq(y, 0), 0, rest)


def power(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """x ** y modulo 2^bits by squaring.

    A negative exponent, which NumPy refuses, gives the truncated value: 0 unless |x| is 1.
    """
    one = const(x.type, 1)
    negative = b.lt(y, 0)
    unit = b.or_(b.eq(x, 1), b.eq(x, -1))
    # 1 / x is x for the units, and an exponent of 1 over a base of 0 makes the others 0.
    base = b.select(b.and_(negative, b.not_(unit)), 0, x)
    exponent = b.select(negative, b.select(unit, b.and_(y, 1), one), y)
    with b.loop(0, int(x.element[1:]) - 1, 1, [one, base, exponent]) as loop:
        result, square, rest = loop.carried
        odd = b.ne(b.and_(rest, 1), 0)
        loop.carry(
            b.select(odd, b.mul(result, square), result), b.mul(square, square), b.lshr(rest, 1)
        )
    return loop.results[0]


def gcd(b: FunctionBuilder, x: Val, y: Val) -> Val:
    """The greatest common divisor of unsigned numbers, by Euclid's algorithm; of two 0 it is 0."""
    name = f"lucid_gcd_{x.element}x{x.lanes}"
    if name not in b.module.functions:
        _define_gcd(b.module, name, x)
    return b.call(name, x.type, x, y)


def _define_gcd(module: Module, name: str, like: Val) -> None:
    """Divisions until the last lane has come to 0."""
    parameters = [(like.type, "x"), (like.type, "y")]
    with FunctionBuilder(
        module, name, parameters, like.type, internal=True, attributes="noinline"
    ) as b:
        high, low = b.alloca(like.type), b.alloca(like.type)
        for value, place in zip(b.args, (high, low), strict=True):
            b.store(value, place)
        with b.while_(lambda: b.any(b.ne(b.load(like.type, low), 0))):
            x, y = b.load(like.type, high), b.load(like.type, low)
            is_done = b.eq(y, 0)
            rest = b.binary("urem", x, b.select(is_done, 1, y))
            b.store(b.select(is_done, x, y), high)
            b.store(b.select(is_done, 0, rest), low)
        b.ret(b.load(like.type, high))
