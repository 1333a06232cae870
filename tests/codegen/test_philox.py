"""Random numbers: the published vectors, and the same bits from NumPy and generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from lucid.codegen.emit import philox as lanes_of_philox
from lucid.codegen.llvm.builder import FunctionBuilder, Val, const
from lucid.ir import philox

KNOWN = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (
        [0xFFFFFFFF] * 4,
        [0xFFFFFFFF] * 2,
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
    ),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
STATES = [(0, 0), (-7, 2**32 - 100), (0x0123456789ABCDEF, -50), (2**62 + 5, 2**63 - 60)]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_published_vectors(counter: list[int], key: list[int], words: list[int]) -> None:
    """`philox4x32 10` of Random123's kat_vectors."""
    arrays = tuple(np.array([word], np.uint32) for word in counter)
    result = philox.philox_rounds(arrays, (key[0], key[1]))  # type: ignore[arg-type]
    assert [int(word[0]) for word in result] == words


@pytest.mark.parametrize("lanes", (1, 4, 8, 16))
@pytest.mark.parametrize(("seed", "offset"), STATES)
@pytest.mark.parametrize("draw", ("bits", "uniform32", "uniform64", "normal32", "normal64"))
def test_generated_code_draws_the_same_bits(
    draw: str, seed: int, offset: int, lanes: int, apply: Callable[..., Any]
) -> None:
    n = 700
    element = "double" if draw.endswith("64") else "float"
    dtype = np.float64 if element == "double" else np.float32

    def lane_function(b: FunctionBuilder, index: Val) -> Val:
        counters = b.add(index, offset)
        words = lanes_of_philox.philox_words(b, const("i64", seed), counters)
        if draw == "bits":
            return words[0]
        kind = lanes_of_philox.uniform if draw.startswith("uniform") else lanes_of_philox.normal
        return kind(b, words, element)

    result = np.int32 if draw == "bits" else dtype
    actual = apply(lane_function, np.arange(n), lanes=lanes, result=result)
    if draw == "bits":
        expected = philox.philox_words(seed, offset, n)[0].view(np.int32)
    else:
        kind = philox.uniform if draw.startswith("uniform") else philox.normal
        expected = kind(seed, offset, (n,), dtype)
    assert actual.tobytes() == expected.tobytes()


def test_the_quantile_is_the_normal_one() -> None:
    p = np.concatenate([np.linspace(2e-4, 1, 5001)[:-1], 2.0 ** -np.arange(1.0, 54)])
    x = philox.normal_quantile(philox.NumpyArithmetic(), p)
    np.testing.assert_allclose(x, scipy.special.ndtri(p), rtol=2e-14, atol=2e-15)


def test_draws_have_their_distribution() -> None:
    u = philox.uniform(3, 0, (200, 100))
    z = philox.normal(3, 0, (200, 100), np.float64)
    assert u.shape == z.shape == (200, 100)
    assert scipy.stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-3
