"""Counter-based random numbers: Philox4x32-10, defined once for NumPy and generated code.

Element i (in row-major order) of a draw from the generator state (seed, offset) owns the block
with key = (low, high half of seed) and 128-bit counter = offset + i (modulo 2^64), and uses only
the words w0..w3 of that block. So a draw of n elements advances `offset` by n, and any element
can be computed again by itself.

Reference: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Words = NDArray[np.uint32]
T = TypeVar("T")

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
_BLOCK = 1 << 13


def philox_words(seed: int, offset: int, n: int) -> tuple[Words, Words, Words, Words]:
    """The four words of the blocks of `n` elements, each of shape (n,)."""
    counter = np.uint64(offset % 2**64) + np.arange(n, dtype=np.uint64)
    low = (counter & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (counter >> np.uint64(32)).astype(np.uint32)
    zero = np.zeros(n, np.uint32)
    return philox_rounds((low, high, zero, zero), (seed % 2**32, (seed >> 32) % 2**32))


def philox_rounds(
    counter: tuple[Words, Words, Words, Words], key: tuple[int, int]
) -> tuple[Words, Words, Words, Words]:
    """The ten rounds on arrays of counters under one key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        low0, high0 = _wide_product(MULTIPLIERS[0], c0)
        low1, high1 = _wide_product(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint32(k0), low1, high0 ^ c3 ^ np.uint32(k1), low0
        k0, k1 = (k0 + KEY_STEPS[0]) % 2**32, (k1 + KEY_STEPS[1]) % 2**32
    return c0, c1, c2, c3


def _wide_product(multiplier: int, words: Words) -> tuple[Words, Words]:
    product = words.astype(np.uint64) * np.uint64(multiplier)
    return product.astype(np.uint32), (product >> np.uint64(32)).astype(np.uint32)


def uniform(
    seed: int, offset: int, shape: Sequence[int], dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Uniform in [0, 1): 24 bits for float32, 53 for float64."""
    return _drawn(_uniform, seed, offset, shape, dtype)


def _uniform(words: Sequence[Words], dtype: DTypeLike) -> NDArray[Any]:
    w0, w1, _, _ = words
    if np.dtype(dtype) == np.float32:
        return (w0 >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    return _53_bits(w0, w1).astype(np.float64) * 2.0**-53


def normal(
    seed: int, offset: int, shape: Sequence[int], dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Standard normal, computed in float64 and rounded to `dtype`.

    The uniform argument is the odd multiple of 2^-53 at the 53 bits: exact, and inside (0, 1).
    """
    return _drawn(_normal, seed, offset, shape, dtype)


def _normal(words: Sequence[Words], dtype: DTypeLike) -> NDArray[Any]:
    w0, w1, _, _ = words
    p = (_53_bits(w0, w1) | np.int64(1)).astype(np.float64) * 2.0**-53
    return normal_quantile(NumpyArithmetic(), p)


def _drawn(
    draw: Callable[[Sequence[Words], DTypeLike], NDArray[Any]],
    seed: int,
    offset: int,
    shape: Sequence[int],
    dtype: DTypeLike,
) -> NDArray[Any]:
    """What `draw` makes of the words, block by block, so that its arrays stay in the caches."""
    values: NDArray[Any] = np.empty(math.prod(shape), dtype)
    for start in range(0, values.size, _BLOCK):
        part = values[start : start + _BLOCK]
        part[:] = draw(philox_words(seed, offset + start, part.size), dtype)
    return values.reshape(shape)


def _53_bits(w0: Words, w1: Words) -> NDArray[np.int64]:
    high = (w0 >> np.uint32(5)).astype(np.int64)
    return (high << np.int64(26)) | (w1 >> np.uint32(6)).astype(np.int64)


class Arithmetic(Protocol[T]):
    """The float64 operations that the formulas below use; each is exact or correctly rounded.

    No fused multiply-add is among them, so that all implementations give the same bits.
    """

    def add(self, a: T | float, b: T | float) -> T: ...
    def sub(self, a: T | float, b: T | float) -> T: ...
    def mul(self, a: T | float, b: T | float) -> T: ...
    def div(self, a: T | float, b: T | float) -> T: ...
    def sqrt(self, a: T) -> T: ...
    def less(self, a: T, b: T | float) -> T:
        """A mask."""
        ...

    def select(self, mask: T, a: T, b: T) -> T: ...
    def split_exponent(self, a: T) -> tuple[T, T]:
        """Float e and m in [2/3, 4/3) with a = m 2^e, of positive normal numbers."""
        ...


class NumpyArithmetic:
    """`Arithmetic` on float64 arrays."""

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def sub(self, a: Any, b: Any) -> Any:
        return a - b

    def mul(self, a: Any, b: Any) -> Any:
        return a * b

    def div(self, a: Any, b: Any) -> Any:
        return a / b

    def sqrt(self, a: Any) -> Any:
        return np.sqrt(a)

    def less(self, a: Any, b: Any) -> Any:
        return a < b

    def select(self, mask: Any, a: Any, b: Any) -> Any:
        return np.where(mask, a, b)

    def split_exponent(self, a: Any) -> tuple[Any, Any]:
        bits = a.view(np.int64)
        exponent = (bits - np.int64(TWO_THIRDS)) >> np.int64(52)
        mantissa = (bits - (exponent << np.int64(52))).view(np.float64)
        return exponent.astype(np.float64), mantissa


TWO_THIRDS = 0x3FE5555555555555
"""The bits of the double 2/3, where a mantissa's interval begins."""

# (log((1 + t) / (1 - t)) / t - 2) / t^2 in t^2, minimax on [0, 0.0401], highest degree first.
_LOG = (
    float.fromhex("0x1.16c28e90da9e9p-3"),
    float.fromhex("0x1.0e8739a9bd824p-3"),
    float.fromhex("0x1.3b2a14942019dp-3"),
    float.fromhex("0x1.745caa80530d4p-3"),
    float.fromhex("0x1.c71c72e54ea9fp-3"),
    float.fromhex("0x1.24924923d9a67p-2"),
    float.fromhex("0x1.9999999999f45p-2"),
    float.fromhex("0x1.5555555555555p-1"),
)


def _polynomial(ops: Arithmetic[T], x: T, coefficients: Sequence[float]) -> T:
    result = ops.add(ops.mul(x, coefficients[0]), coefficients[1])
    for coefficient in coefficients[2:]:
        result = ops.add(ops.mul(result, x), coefficient)
    return result


def exact_steps_log(ops: Arithmetic[T], x: T) -> T:
    """The logarithm of positive normal numbers, of basic operations only."""
    exponent, mantissa = ops.split_exponent(x)
    t = ops.div(ops.sub(mantissa, 1.0), ops.add(mantissa, 1.0))
    z = ops.mul(t, t)
    series = ops.add(ops.mul(ops.mul(z, _polynomial(ops, z, _LOG)), t), ops.add(t, t))
    return ops.add(ops.mul(exponent, math.log(2)), series)


# Rational approximations of the quantile: around the middle, in the tails, far in the tails.
# Reference: M. Wichura, "Algorithm AS 241", 1988 (PPND16, relative error about 1e-16).
CENTRAL = (
    (
        2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
        4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
        1.3314166789178437745e2, 3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
        2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
        4.2313330701600911252e1, 1.0,
    ),
)  # fmt: skip
TAIL = (
    (
        7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
        1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
        4.63033784615654529590e0, 1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
        1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
        2.05319162663775882187e0, 1.0,
    ),
)  # fmt: skip
FAR_TAIL = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
        2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
        5.46378491116411436990e0, 6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
        7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
        5.99832206555887937690e-1, 1.0,
    ),
)  # fmt: skip


def normal_quantile(ops: Arithmetic[T], p: T) -> T:
    """The standard normal x with P(X <= x) = p, for 0 < p < 1."""
    q = ops.sub(p, 0.5)
    distance = ops.select(ops.less(q, 0.0), ops.sub(0.0, q), q)
    r = ops.sub(0.180625, ops.mul(q, q))
    central = ops.mul(q, _ratio(ops, r, CENTRAL))
    smaller = ops.select(ops.less(q, 0.0), p, ops.sub(1.0, p))
    root = ops.sqrt(ops.sub(0.0, exact_steps_log(ops, smaller)))
    near = _ratio(ops, ops.sub(root, 1.6), TAIL)
    far = _ratio(ops, ops.sub(root, 5.0), FAR_TAIL)
    tail = ops.select(ops.less(root, 5.0), near, far)
    tail = ops.select(ops.less(q, 0.0), ops.sub(0.0, tail), tail)
    return ops.select(ops.less(distance, 0.425), central, tail)


def _ratio(ops: Arithmetic[T], x: T, pair: tuple[Sequence[float], Sequence[float]]) -> T:
    return ops.div(_polynomial(ops, x, pair[0]), _polynomial(ops, x, pair[1]))
