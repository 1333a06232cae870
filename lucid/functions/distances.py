"""Distances between tensors, and between the rows of matrices."""

from __future__ import annotations

import numpy as np

from lucid.autograd.native import composite
from lucid.docstrings import maps
from lucid.functions.arguments import tensor_of
from lucid.functions.reduction import norm
from lucid.functions.shape import reshaped, unsqueeze
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.tensor.core import from_array

__all__ = ["cdist", "dist", "pdist"]

_DISTANCE_MODES = (
    None,
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@maps("[1.0, 2.0]", "[4.0, 6.0]", "tensor(5.)")
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """Return the p-norm of the difference of two tensors, over all elements: a 0-d tensor.

    Args:
        other: what is subtracted, which broadcasts.
        p: the order, as in `norm`.

    Raises:
        DTypeError: the difference is no tensor of floats.
    """
    return norm(input - other, p)


@maps("[[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]", "[5.0000, 1.0000, 4.2426]")
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the p-norms of the differences of all pairs of rows.

    The pairs are in the order (0, 1), (0, 2), … (1, 2), …
    Shapes: (n, k) gives (n (n - 1) / 2,).

    Args:
        input: a matrix.
        p: which norm.

    Raises:
        ShapeError: `input` is no matrix.
        OptionError: `p` is negative.
    """
    x = tensor_of(input, "pdist")
    if x.ndim != 2:
        raise ShapeError("pdist: takes a matrix")
    if p < 0:
        raise OptionError(f"pdist: p must not be negative, and is {p}")
    return _distances_of_pairs(x, p)


@composite
def _distances_of_pairs(x: Tensor, p: float) -> Tensor:
    rows = x._type.shape[0]
    first, second = np.triu_indices(rows, 1)
    places = from_array(first * rows + second)
    return ops.take(reshaped(_differences(x, x, p), (rows * rows,)), places, axis=0)


@maps("[[0.0, 0.0]]", "[[3.0, 4.0], [0.0, 1.0]]", "[[5., 1.]]")
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """Return the p-norm of each difference of a row of `x1` and one of `x2`.

    Whatever `compute_mode` allows, no product of matrices is used, which would round more.

    Shapes: (..., n, k) and (..., m, k) give (..., n, m).

    Args:
        x1: a matrix, or a batch of them.
        x2: likewise, with rows of the same size; batches broadcast.
        p: which norm, also `math.inf`.
        compute_mode: PyTorch's three names of ways to compute it, which change nothing here.

    Raises:
        OptionError: another `compute_mode`, or a negative `p`.
        ShapeError: one of them is no matrix, or their rows differ in size.
    """
    if p < 0:
        raise OptionError(f"cdist: only supports non-negative p values, not {p}")
    if compute_mode not in _DISTANCE_MODES:
        raise OptionError(f"cdist: {compute_mode!r} is not a valid value for compute_mode")
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError("cdist: X1 and X2 must have the same number of columns")
    return _all_distances(x1, x2, p)


def _differences(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    return norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, -1)


_all_distances = composite(_differences)
