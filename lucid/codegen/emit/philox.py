"""The random numbers of `lucid.ir.philox` as generated code: the same bits, any lane count."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.codegen.llvm.builder import FunctionBuilder, Operand, Val, const, vector
from lucid.ir.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, TWO_THIRDS, normal_quantile


def philox_words(b: FunctionBuilder, seed: Val, counters: Val) -> tuple[Val, Val, Val, Val]:
    """The four words (i32) of each counter (i64 lanes) under an i64 scalar seed."""
    zero = const(vector("i32", counters.lanes), 0)
    low = b.cast("trunc", counters, "i32")
    high = b.cast("trunc", b.lshr(counters, 32), "i32")
    keys = (b.cast("trunc", seed, "i32"), b.cast("trunc", b.lshr(seed, 32), "i32"))
    return philox_rounds(b, (low, high, zero, zero), keys)


def philox_rounds(
    b: FunctionBuilder, counter: Sequence[Val], keys: tuple[Val, Val]
) -> tuple[Val, Val, Val, Val]:
    """The ten rounds on four words of i32 lanes, under a key of two i32 scalars."""
    c0, c1, c2, c3 = counter
    lanes = c0.lanes
    for number in range(ROUNDS):
        k0, k1 = (
            b.splat(b.add(key, number * step) if number else key, lanes)
            for key, step in zip(keys, KEY_STEPS, strict=True)
        )
        low0, high0 = _wide_product(b, MULTIPLIERS[0], c0)
        low1, high1 = _wide_product(b, MULTIPLIERS[1], c2)
        c0, c1 = b.xor(b.xor(high1, c1), k0), low1
        c2, c3 = b.xor(b.xor(high0, c3), k1), low0
    return c0, c1, c2, c3


def _wide_product(b: FunctionBuilder, multiplier: int, words: Val) -> tuple[Val, Val]:
    product = b.mul(b.cast("zext", words, "i64"), multiplier)
    return b.cast("trunc", product, "i32"), b.cast("trunc", b.lshr(product, 32), "i32")


def uniform(b: FunctionBuilder, words: Sequence[Val], element: str) -> Val:
    """Uniform in [0, 1) of float (24 bits) or double (53 bits)."""
    if element == "float":
        return b.mul(b.cast("sitofp", b.lshr(words[0], 8), "float"), 2.0**-24)
    return b.mul(b.cast("sitofp", _53_bits(b, words), "double"), 2.0**-53)


def normal(b: FunctionBuilder, words: Sequence[Val], element: str) -> Val:
    """Standard normal, computed in double and rounded to `element`."""
    odd = b.or_(_53_bits(b, words), 1)
    p = b.mul(b.cast("sitofp", odd, "double"), 2.0**-53)
    value = normal_quantile(_LaneArithmetic(b), p)
    return b.cast("fptrunc", value, element) if element == "float" else value


def _53_bits(b: FunctionBuilder, words: Sequence[Val]) -> Val:
    high = b.cast("zext", b.lshr(words[0], 5), "i64")
    return b.or_(b.shl(high, 26), b.cast("zext", b.lshr(words[1], 6), "i64"))


class _LaneArithmetic:
    """`Arithmetic` on values of double lanes."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self._b = builder

    def add(self, a: Operand, b: Operand) -> Val:
        return self._b.add(a, b)

    def sub(self, a: Operand, b: Operand) -> Val:
        return self._b.sub(a, b)

    def mul(self, a: Operand, b: Operand) -> Val:
        return self._b.mul(a, b)

    def div(self, a: Operand, b: Operand) -> Val:
        return self._b.div(a, b)

    def sqrt(self, a: Val) -> Val:
        return self._b.intrinsic("sqrt", a)

    def less(self, a: Val, b: Operand) -> Val:
        return self._b.lt(a, b)

    def select(self, mask: Val, a: Val, b: Val) -> Val:
        return self._b.select(mask, a, b)

    def split_exponent(self, a: Val) -> tuple[Val, Val]:
        b = self._b
        bits = b.bits(a)
        exponent = b.ashr(b.sub(bits, TWO_THIRDS), 52)
        mantissa = b.unbits(b.sub(bits, b.shl(exponent, 52)))
        return b.cast("sitofp", exponent, "double"), mantissa
