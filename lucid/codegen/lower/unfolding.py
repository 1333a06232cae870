"""Contractions over many axes as products of two matrices, where these are faster.

A contraction reads its operands where they lie. Where neighbours in the result are no neighbours in
an operand, in windows that move in steps or in images smaller than a vector, loads take longer than
the multiply-adds. Then copies of the operands are made first, in the order of matrices.

Reference: K. Chellapilla, S. Puri and P. Simard, "High performance convolutional neural networks
for document processing", 2006.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import cast

from lucid.codegen import costs
from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.ops.contraction import split_indices
from lucid.ir.passes.rewrite import Rules, rewrite
from lucid.ir.strides import Strides, contiguous_strides, view_strides

_RULES = Rules()


def unfold_contractions(graph: Graph) -> bool:
    """contract(a, b) -> the product of two matrices, where copies in their order pay."""
    return rewrite(graph, _RULES)


@_RULES.on(ops.contract)
def _as_product(node: Node) -> Value | None:
    """A contraction as a product of matrices; None where it is to be computed over its axes."""
    if not node.result.dtype.is_floating_point:
        return None
    found = _Contraction.of(node)
    if found is None or found.is_matrix() or min(found.extents) < costs.MATRIX:
        return None
    return found.product()


@dataclass(frozen=True, slots=True)
class _Contraction:
    """The axes of a contraction by their letters.

    Attributes:
        rows, columns, inner: the axes of the first operand and the result, of the second one and
            the result, and of both operands.
        steps: strides of the axes of each operand.
    """

    node: Node
    rows: str
    columns: str
    inner: str
    sizes: dict[str, int]
    steps: tuple[dict[str, int], dict[str, int]]

    @staticmethod
    def of(node: Node) -> _Contraction | None:
        """None where an axis is in both operands and in the result."""
        lhs, rhs, result = split_indices(node.attributes["indices"])
        if set(lhs) & set(rhs) & set(result):
            return None
        a, b = node.operands
        rows, columns = (
            "".join(axis for axis in result if axis in letters) for letters in (lhs, rhs)
        )
        inner = "".join(axis for axis in lhs if axis not in result)
        sizes = dict(zip(lhs + rhs, a.shape + b.shape, strict=True))
        steps = (
            dict(zip(lhs, _strides_of(a), strict=True)),
            dict(zip(rhs, _strides_of(b), strict=True)),
        )
        return _Contraction(node, rows, columns, inner, sizes, steps)

    @property
    def extents(self) -> tuple[int, int, int]:
        """Rows, inner elements and columns."""
        rows, inner, columns = map(self._extent, (self.rows, self.inner, self.columns))
        return rows, inner, columns

    def _extent(self, axes: str) -> int:
        return prod(self.sizes[axis] for axis in axes)

    def is_matrix(self) -> bool:
        """Whether both operands are matrices as they lie."""
        return self._are_lines(0) and self._are_lines(1)

    def _are_lines(self, side: int) -> bool:
        outer = (self.rows, self.columns)[side]
        return self._is_line(outer, side) and self._is_line(self.inner, side)

    def _is_line(self, axes: str, side: int) -> bool:
        """Whether an operand's elements along these axes are equally far from each other."""
        steps = self.steps[side]
        long = [axis for axis in axes if self.sizes[axis] > 1]
        return all(steps[x] == steps[y] * self.sizes[y] for x, y in pairwise(long))

    # Products -----------------------------------------------------------------------------

    def product(self) -> Value | None:
        """One product, or one for each image if these are large; None where copies don't pay."""
        images = self.columns[:1] if self._extent(self.columns[1:]) >= costs.IMAGE else ""
        columns = self.columns.removeprefix(images)
        is_read_in_place = self._is_line(columns, 1) and self._is_line(self.inner, 1)
        rows, inner, every = self.extents
        copied = 0 if self._are_lines(0) else rows * inner
        copied += 0 if is_read_in_place else inner * every
        if (copied or not images) and not self._is_worth(copied, 0 if images else rows * every):
            return None
        a = self._matrix(0, self.rows, self.inner)
        if not images:
            b = self._matrix(1, self.inner, self.columns)
        else:
            b = self._ordered(self.node.operands[1], 1, images + self.inner + columns)
            shape = tuple(map(self._extent, (images, self.inner, columns)))
            b = cast(Value, ops.reshape(b, shape=shape))
        return self._result(ops.matmul(a, b), images + self.rows + columns)

    def _is_worth(self, copied: int, reordered: int) -> bool:
        """Whether copies, and a result in another order, take less than a product gains."""
        work = prod(self.extents)
        if copied * self.node.result.dtype.itemsize > costs.COPIED_BYTES:
            return False
        product = work + costs.COPIED * (copied + reordered)
        return product < work / self._speed() * costs.WORTH_COPIES

    def _matrix(self, side: int, first: str, second: str) -> Value:
        """An operand as a matrix; a copy has its axes so that adjacent elements stay adjacent."""
        value = self.node.operands[side]
        best = max(second + first, key=lambda axis: self._loading(axis, side))
        axes = (second, first) if best in first else (first, second)
        shape = self._extent(axes[0]), self._extent(axes[1])
        matrix: Value = ops.reshape(self._ordered(value, side, axes[0] + axes[1]), shape=shape)
        return matrix if axes[0] == first else cast(Value, ops.transpose(matrix, perm=(1, 0)))

    def _ordered(self, value: Value, side: int, axes: str) -> Value:
        letters = [*self.steps[side]]
        return cast(Value, ops.transpose(value, perm=tuple(map(letters.index, axes))))

    def _result(self, product: Value, axes: str) -> Value:
        """The elements of a product whose axes are these, in the order of the result."""
        whole = ops.reshape(product, shape=tuple(self.sizes[axis] for axis in axes))
        _, _, result = split_indices(self.node.attributes["indices"])
        return cast(Value, ops.transpose(whole, perm=tuple(map(axes.index, result))))

    # Cost ---------------------------------------------------------------------------------

    def _speed(self) -> float:
        """How fast the loops over the axes are, against those of a product of matrices."""
        rows = [self._loading(axis, 0) * self._repeating(1) for axis in self.rows]
        columns = [self._loading(axis, 1) * self._repeating(0) for axis in self.columns]
        dots = [self._loading(axis, 0) * self._loading(axis, 1) for axis in self.inner]
        return max(*rows, *columns, *(costs.FOLDED_LANES * speed for speed in dots))

    def _repeating(self, side: int) -> float:
        """How fast single elements of an operand are found that are repeated to all lanes."""
        steps, outer = self.steps[side], (self.rows, self.columns)[side]
        near = prod(self.sizes[axis] for axis in self.inner if abs(steps[axis]) <= costs.NEAR)
        is_near = near >= costs.NEAR or any(abs(steps[axis]) <= 1 for axis in outer)
        return 1.0 if is_near else costs.FAR_REPEATED

    def _loading(self, axis: str, side: int) -> float:
        """How fast vectors of an operand along an axis are loaded, against adjacent elements."""
        size, step = self.sizes[axis], abs(self.steps[side][axis])
        filled = size / (-(-size // costs.LANES) * costs.LANES)
        return filled * (1.0 if step <= 1 else costs.NEAR_LANES if step <= 4 else costs.FAR_LANES)


def _strides_of(value: Value) -> Strides:
    """How a value would be read, if what it is a view of were contiguous."""
    views: list[Node] = []
    while value.producer is not None and value.producer.op.is_view:
        views.append(value.producer)
        value = value.producer.operands[0]
    strides = contiguous_strides(value.shape)
    for view in reversed(views):
        seen = view_strides(view.op, view.attributes, view.operands[0].shape, strides)
        strides = contiguous_strides(view.result.shape) if seen is None else seen
    return strides
