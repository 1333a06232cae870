"""Convolutions with 3 x 3 weights by Winograd's F(4 x 4, 3 x 3): a quarter of the products.

The 4 x 4 results of a tile d of 6 x 6 elements are Aᵀ ((G w Gᵀ) ∘ (Bᵀ d B)) A: what a channel of
the input adds to one of the result takes 36 products instead of 144. Summed over channels these are
products of matrices, one for each of the 36 places. The gradient by the weights is the transpose,
Gᵀ ((A g Aᵀ) ∘ (Bᵀ d B)) G.

Numbers of a tile are added up with factors up to 8 and taken apart again, so results differ from
direct ones by some 1e-5 of the largest, ten times as much as rounding does, and an infinity or NaN
makes NaN of all 16.

Reference: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from lucid.codegen import costs
from lucid.functions.joining import stack
from lucid.ir import ops
from lucid.ir.types import Shape
from lucid.nn.functional.sliding import Ints, resized
from lucid.tensor.tensor import Tensor

_TILE, _TAPS = 4, 3
_OF_INPUT = np.array([
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
])  # fmt: skip
_OF_WEIGHT = np.array([
    [1 / 4, 0, 0],
    [-1 / 6, -1 / 6, -1 / 6],
    [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6],
    [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
])  # fmt: skip
_OF_RESULT = np.array([
    [1, 1, 1, 1, 1, 0],
    [0, 1, -1, 2, -2, 0],
    [0, 1, 1, 4, 4, 0],
    [0, 1, -1, 8, -8, 1],
])  # fmt: skip
_PLACES = _OF_INPUT.size


def pays(input: Shape, weight: Shape, results: Shape) -> bool:
    """Whether a convolution of stride one takes longer than its transformed one.

    Args:
        input: (n, c, h, w).
        weight: (o, c, 3, 3).
        results: how many along each axis.
    """
    (count, channels, *lengths), outputs = input, weight[0]
    # Products with the zeros around small images are left out.
    inside = [(_TAPS * n - 2) / (_TAPS * n) for n in lengths]
    direct = prod(weight) * count * prod(results) * prod(inside)
    tiles = count * prod(-(-n // _TILE) for n in results)
    products = _PLACES * outputs * channels * tiles
    elements = _PLACES * (tiles * (channels + outputs) + outputs * channels)
    return direct > products + costs.TRANSFORMED * elements


def correlate(weight: Tensor, x: Tensor, low: Ints, high: Ints, names: str) -> Tensor:
    """The sums of 3 x 3 windows of x, padded at both ends, times weights, over one of their axes.

    names: of the axes of both, `o` and `c` the weight's, `n` the examples: "oc,cn->on" sums over c.
    """
    results = [a + n + b - _TAPS + 1 for a, n, b in zip(low, x.shape[2:], high, strict=True)]
    spread = _both_axes(_OF_WEIGHT, ops.transpose(weight, perm=(2, 3, 0, 1)))
    tiles = _both_axes(_OF_INPUT, _tiles(x, low, high, len(_OF_INPUT)))
    both, found = names.split("->")
    of_weight, of_x = both.split(",")
    product = ops.contract(spread, tiles, indices=f"ij{of_weight},ij{of_x}yx->ij{found}yx")
    parts = _both_axes(_OF_RESULT, product)
    whole = ops.transpose(parts, perm=(3, 2, 4, 0, 5, 1))
    count, channels = whole.shape[:2]
    y = whole.reshape(count, channels, *(_TILE * n for n in product.shape[-2:]))
    return resized(y, (0, 0), tuple(n - m for n, m in zip(results, y.shape[2:], strict=True)))


def weight_gradient(x: Tensor, g: Tensor, low: Ints, high: Ints) -> Tensor:
    """The gradient of weights (o, c, 3, 3) for the cotangent g of results."""
    tiles = _both_axes(_OF_INPUT, _tiles(x, low, high, len(_OF_INPUT)))
    spread = _both_axes(_OF_RESULT.T, _tiles(g, (0, 0), (0, 0), _TILE))
    product = ops.contract(spread, tiles, indices="ijonyx,ijcnyx->ijoc")
    return ops.transpose(_both_axes(_OF_WEIGHT.T, product), perm=(2, 3, 0, 1))


def _tiles(x: Tensor, low: Ints, high: Ints, size: int) -> Tensor:
    """(n, c, h, w), padded -> (size, size, c, n, rows, columns): the tiles of 4 x 4 results."""
    lengths = [a + n + b - (size - _TILE) for a, n, b in zip(low, x.shape[2:], high, strict=True)]
    x = resized(x, low, tuple(b + -n % _TILE for b, n in zip(high, lengths, strict=True)))
    place = {"axes": (2, 3), "steps": (_TILE, _TILE), "dilations": (1, 1)}
    return ops.transpose(ops.windows(x, sizes=(size, size), **place), perm=(4, 5, 1, 0, 2, 3))


def _both_axes(matrix: np.ndarray, x: Tensor) -> Tensor:
    """The matrix times x, along axis 0 and along axis 1."""
    for axis in (0, 1):
        parts = x.unbind(axis)
        x = stack([_combined(row.tolist(), parts) for row in matrix], axis)
    return x


def _combined(factors: Sequence[float], parts: Sequence[Tensor]) -> Tensor:
    """The sum of parts times factors."""
    total: Tensor | None = None
    for factor, part in zip(factors, parts, strict=True):
        term = part if abs(factor) == 1 else part * abs(factor)
        if not factor:
            continue
        if total is None:
            total = term if factor > 0 else -term
        else:
            total = total + term if factor > 0 else total - term
    assert total is not None
    return total
