"""The product of matrices, over axes that broadcast, and that of arrays with named axes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import ArgumentError, ShapeError
from lucid.ir.inference import MANY_ELEMENTS
from lucid.ir.memory import require_blas
from lucid.ir.op import Op, Operand, Sample, declare
from lucid.ir.ops import batching
from lucid.ir.ops.evaluation import quiet
from lucid.ir.ops.rules import NUMBERS, broadcast_shapes, failure, require_dtype
from lucid.ir.types import TensorType

__all__ = ["contract", "matmul"]

_NAMES = ("lhs", "rhs")
_MOST_COPIED = 1 << 20  # elements of an operand: larger memory is new for each product


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


_quiet_matmul, _quiet_multiply = quiet(np.matmul), quiet(np.multiply)


def _evaluate_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product. Of columns with rows BLAS makes little: they are multiplied.

    A sum of one term begins with 0 as well, so it is never -0.
    """
    if a.shape[-1] == 1 and a.dtype.kind == "f" and a.size * b.shape[-1] >= MANY_ELEMENTS:
        products: np.ndarray = _quiet_multiply(a, b)
        products += 0.0
        return products
    require_blas()
    return _quiet_matmul(a, b)


matmul = declare(
    Op(
        "matmul",
        _infer_matmul,
        _evaluate_matmul,
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


def split_indices(indices: str) -> tuple[str, str, str]:
    """Return the letters of the axes of lhs, rhs and result.

    >>> split_indices("nik,kj->nij")
    ('nik', 'kj', 'nij')
    """
    terms, result = indices.split("->")
    lhs, rhs = terms.split(",")
    return lhs, rhs, result


def _infer_contract(a: TensorType, b: TensorType, indices: str) -> TensorType:
    require_dtype("contract", _NAMES, (a, b), NUMBERS)
    if not re.fullmatch(r"\w*,\w*->\w*", indices):
        problem = f"{indices!r} names no axes; a product of matrices has 'ik,kj->ij'"
        raise failure(ArgumentError, "contract", problem, _NAMES, (a, b))
    lhs, rhs, result = split_indices(indices)
    repeated = any(len(set(term)) != len(term) for term in (lhs, rhs, result))
    lonely = set(lhs) ^ set(rhs) ^ set(result) ^ (set(lhs) & set(rhs) & set(result))
    if repeated or lonely or (len(lhs), len(rhs)) != (a.ndim, b.ndim):
        problem = f'"{indices}" must name each axis once, and each name in two or three places'
        raise failure(ShapeError, "contract", problem, _NAMES, (a, b))
    sizes = dict(zip(rhs, b.shape, strict=True))
    for name, size in zip(lhs, a.shape, strict=True):
        if sizes.setdefault(name, size) != size:
            problem = f"the axes named {name} differ, {size} and {sizes[name]}"
            raise failure(ShapeError, "contract", problem, _NAMES, (a, b))
    return TensorType(a.dtype, tuple(sizes[name] for name in result))


def _run(x: np.ndarray, axes: Sequence[int]) -> int:
    """How many elements lie side by side in memory, in the order of these axes."""
    count, stride = 1, x.itemsize
    for axis in reversed(axes):
        if x.strides[axis] != stride:
            break
        count *= x.shape[axis]
        stride *= x.shape[axis]
    return count


def _contract_in_parts(
    a: np.ndarray, b: np.ndarray, indices: str, name: str, share: float
) -> np.ndarray:
    """The product for such a share of an axis of the result after another."""
    lhs, rhs, result = split_indices(indices)
    sizes = dict(zip(lhs + rhs, a.shape + b.shape, strict=True))
    whole = np.empty([sizes[each] for each in result], a.dtype)
    step = max(1, int(share * sizes[name]))
    for first in range(0, sizes[name], step):
        part = slice(first, first + step)

        def of(x: np.ndarray, names: str, part: slice = part) -> np.ndarray:
            return x[tuple(part if each == name else slice(None) for each in names)]

        of(whole, result)[...] = _contract(of(a, lhs), of(b, rhs), indices)
    return whole


@quiet
def _contract(a: np.ndarray, b: np.ndarray, indices: str) -> np.ndarray:
    """One product of matrices for each index that both operands and the result have.

    Windows of an image are many times as large when they are copied: that is done part by part.
    """
    lhs, rhs, result = split_indices(indices)
    for operands in ((lhs, a), (rhs, b)):
        names, x = operands
        if x.size > _MOST_COPIED and not x.flags.forc:
            sizes = dict(zip(names, x.shape, strict=True))
            several = [name for name in names if name in result and sizes[name] > 1]
            if several:
                return _contract_in_parts(a, b, indices, several[0], _MOST_COPIED / x.size)
    batch = [name for name in lhs if name in rhs and name in result]
    inner = [name for name in lhs if name not in result]
    rows = [name for name in lhs if name not in rhs]
    columns = [name for name in rhs if name not in lhs]
    sizes = dict(zip(lhs + rhs, a.shape + b.shape, strict=True))

    def matrices(x: np.ndarray, names: str, first: list[str], second: list[str]) -> np.ndarray:
        """Matrices, or the transposed of those whose rows are in longer runs of memory."""
        axes, more, others = ([names.index(n) for n in group] for group in (batch, first, second))
        is_turned = _run(x, others) < _run(x, more)
        if is_turned:
            more, others = others, more
        shape = [prod(x.shape[axis] for axis in group) for group in (axes, more, others)]
        found = x.transpose([*axes, *more, *others]).reshape(shape)
        return found.swapaxes(1, 2) if is_turned else found

    product = _evaluate_matmul(matrices(a, lhs, rows, inner), matrices(b, rhs, inner, columns))
    order = [*batch, *rows, *columns]
    whole: np.ndarray = product.reshape([sizes[name] for name in order])
    return whole.transpose([order.index(name) for name in result])


def _contract_vjp(g: Operand, y: Operand, a: Operand, b: Operand, indices: str) -> tuple[Any, ...]:
    """The cotangent takes the place of the operand that it is not for."""
    lhs, rhs, result = split_indices(indices)
    ga = ops.contract(g, b, indices=f"{result},{rhs}->{lhs}")
    return ga, ops.contract(a, g, indices=f"{lhs},{result}->{rhs}")


contract: Op = declare(
    Op(
        "contract",
        _infer_contract,
        _contract,
        _contract_vjp,
        kind="contract",
        samples=(
            Sample(((4, 7), (7, 3)), {"indices": "ik,kj->ij"}),
            Sample(((2, 3, 5), (4, 3, 5)), {"indices": "nci,oci->no"}),
            Sample(((3, 4), (2, 5, 4, 6)), {"indices": "ik,njkl->nilj"}),
            Sample(((2, 3, 4, 5), (3, 6, 4)), {"indices": "bgks,gok->sbgo"}),
            Sample(((2, 3), (4,)), {"indices": "ij,k->jki"}),
            Sample(((5,), (5,)), {"indices": "i,i->"}),
            Sample(((3, 5), (3, 5)), {"indices": "ij,ij->ij"}),
            Sample(((2, 0), (0, 3)), {"indices": "ik,kj->ij"}),
            Sample(((3, 2, 6, 9), (4, 2, 6, 9)), {"indices": "nckl,ockl->on"}),
        ),
        batch=batching.contract,
    )
)
