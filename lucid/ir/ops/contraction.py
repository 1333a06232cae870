"""The product of matrices, over axes that broadcast."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import ShapeError
from lucid.ir.op import Op, Operand, Sample, declare
from lucid.ir.ops import batching
from lucid.ir.ops.evaluation import quiet
from lucid.ir.ops.rules import NUMBERS, broadcast_shapes, failure, require_dtype
from lucid.ir.types import TensorType

_NAMES = ("lhs", "rhs")


def _infer_matmul(a: TensorType, b: TensorType) -> TensorType:
    require_dtype("matmul", _NAMES, (a, b), NUMBERS)
    if a.ndim < 2 or b.ndim < 2:
        raise failure(ShapeError, "matmul", "both operands need two axes", _NAMES, (a, b))
    inner, other = a.shape[-1], b.shape[-2]
    if inner != other:
        problem = f"the inner dimensions differ, {inner} and {other}"
        hint = "rhs.T has the right shape" if b.ndim == 2 and b.shape[-1] == inner else ""
        raise failure(ShapeError, "matmul", problem, _NAMES, (a, b), hint)
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if batch is None:
        problem = f"the batches don't broadcast, {list(a.shape[:-2])} and {list(b.shape[:-2])}"
        raise failure(ShapeError, "matmul", problem, _NAMES, (a, b))
    return TensorType(a.dtype, (*batch, a.shape[-2], b.shape[-1]))


def _matmul_vjp(g: Operand, y: Operand, a: Operand, b: Operand) -> tuple[Any, ...]:
    """g bᵀ and aᵀ g; a single matrix b for a whole batch gets its sum from one product."""
    ga = ops.matmul(g, ops.swap_axes(b, -1, -2))
    if len(b.shape) == 2 < len(a.shape):
        rows = prod(a.shape[:-1])
        a = ops.reshape(a, shape=(rows, a.shape[-1]))
        g = ops.reshape(g, shape=(rows, g.shape[-1]))
    return ga, ops.matmul(ops.swap_axes(a, -1, -2), g)


matmul = declare(
    Op(
        "matmul",
        _infer_matmul,
        quiet(np.matmul),
        _matmul_vjp,
        kind="contract",
        samples=(
            Sample(((4, 7), (7, 3))),
            Sample(((1, 5), (5, 1))),
            Sample(((2, 3, 4), (4, 5))),
            Sample(((3, 4), (2, 4, 5))),
            Sample(((2, 1, 3, 4), (5, 4, 2))),
            Sample(((3, 0), (0, 2))),
            Sample(((0, 3), (3, 2))),
        ),
        batch=batching.matmul,
    )
)
