"""Index arithmetic: where an element lies, as a linear form of a kernel's loop indices.

A kernel iterates over a set of dims. The index of a value along each of its axes is an affine
expression of them, all of its axes are an index map; views (transpose, reshape, broadcast, slice)
take one to another and so cost nothing. A reshape that cuts an axis needs a dim cut first:
`SplitNeeded` says which, and the caller starts again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lucid.ir import ops
from lucid.ir.graph import Node
from lucid.ir.op import Op
from lucid.ir.strides import Strides
from lucid.ir.types import Shape

_dims = itertools.count()


def fresh_dim() -> int:
    """Return the name of a new loop dim."""
    return next(_dims)


class AffineExpr(NamedTuple):
    """offset + sum of coefficient * dim; terms by falling coefficient, none of them 0."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    def coefficient(self, dim: int) -> int:
        for name, value in self.terms:
            if name == dim:
                return value
        return 0

    @property
    def dims(self) -> frozenset[int]:
        return frozenset([dim for dim, _ in self.terms])

    def scaled(self, factor: int, offset: int = 0) -> AffineExpr:
        """factor * self + offset."""
        if factor == 0:
            return AffineExpr(offset)
        return form(self.offset * factor + offset, [(d, c * factor) for d, c in self.terms])

    def split(self, dim: int, outer: int, inner: int, size: int) -> AffineExpr:
        """The same index after `dim` became outer * size + inner."""
        terms: list[tuple[int, int]] = []
        for name, value in self.terms:
            terms += [(outer, value * size), (inner, value)] if name == dim else [(name, value)]
        return form(self.offset, terms)

    def renamed(self, names: Mapping[int, int]) -> AffineExpr:
        return form(self.offset, [(names.get(d, d), c) for d, c in self.terms])


IndexMap = tuple[AffineExpr, ...]
ZERO = AffineExpr()


class SplitNeeded(Exception):  # noqa: N818 - a request, not an error
    """A dim must be cut, so that its inner part has `inner` values."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__(dim, inner)
        self.dim = dim
        self.inner = inner


def form(offset: int, terms: Sequence[tuple[int, int]]) -> AffineExpr:
    """Collect terms of the same dim, and order them."""
    if len(terms) < 2:
        return AffineExpr(offset, tuple(terms) if terms and terms[0][1] else ())
    collected: dict[int, int] = {}
    for dim, value in terms:
        collected[dim] = collected.get(dim, 0) + value
    kept = [(dim, value) for dim, value in collected.items() if value]
    if len(kept) < 2:
        return AffineExpr(offset, tuple(kept))
    return AffineExpr(offset, tuple(sorted(kept, key=lambda term: (-abs(term[1]), term[0]))))


def dot(forms: Sequence[AffineExpr], strides: Sequence[int], offset: int = 0) -> AffineExpr:
    """The linear address of the element at `forms`, for strides per axis."""
    terms: list[tuple[int, int]] = []
    for index, stride in zip(forms, strides, strict=True):
        offset += index.offset * stride
        terms += [(dim, value * stride) for dim, value in index.terms]
    return form(offset, terms)


def pull(view: Node, forms: IndexMap, sizes: Mapping[int, int]) -> IndexMap | None:
    """The index map of a view's operand from those of its result; None where they aren't linear."""
    return _PULL[view.op](view, forms, sizes)


def _pull_transpose(view: Node, forms: IndexMap, sizes: Mapping[int, int]) -> IndexMap:
    result: list[AffineExpr] = [ZERO] * len(forms)
    for axis, index in zip(view.attributes["perm"], forms, strict=True):
        result[axis] = index
    return tuple(result)


def _pull_slice(view: Node, forms: IndexMap, sizes: Mapping[int, int]) -> IndexMap:
    steps, starts = view.attributes["steps"], view.attributes["starts"]
    return tuple(f.scaled(k, s) for f, k, s in zip(forms, steps, starts, strict=True))


def _pull_windows(view: Node, forms: IndexMap, sizes: Mapping[int, int]) -> IndexMap:
    rank = len(view.operands[0].shape)
    moved = list(forms[:rank])
    places = (view.attributes[name] for name in ("axes", "steps", "dilations"))
    for axis, step, dilation, f in zip(*places, forms[rank:], strict=True):
        moved[axis] = dot((moved[axis], f), (step, dilation))
    return tuple(moved)


_PULL: dict[Op, Callable[[Node, IndexMap, Mapping[int, int]], IndexMap | None]] = {
    ops.barrier: lambda view, forms, sizes: forms,
    ops.transpose: _pull_transpose,
    ops.slice: _pull_slice,
    ops.broadcast: lambda view, forms, sizes: unbroadcast(view.operands[0].shape, forms),
    ops.windows: _pull_windows,
    ops.diagonal: lambda view, forms, sizes: (*forms, forms[-1]),
    ops.reshape: lambda view, forms, sizes: reshape_forms(
        forms, view.result.shape, view.operands[0].shape, sizes
    ),
}


def unbroadcast(shape: Shape, forms: IndexMap) -> IndexMap:
    """The index map of an operand that NumPy broadcasts to the shape that `forms` index."""
    kept = forms[len(forms) - len(shape) :]
    if 1 not in shape:
        return kept
    return tuple(ZERO if size == 1 else f for size, f in zip(shape, kept, strict=True))


PartialIndexMap = tuple[AffineExpr | None, ...]


def push(view: Node, forms: PartialIndexMap, sizes: Mapping[int, int]) -> PartialIndexMap | None:
    """The index map of a view's result from those of its operand: None on axes that it repeats."""
    return _PUSH[view.op](view, forms, sizes)


def _push_slice(
    view: Node, forms: PartialIndexMap, sizes: Mapping[int, int]
) -> PartialIndexMap | None:
    is_as_large = view.result.shape == view.operands[0].shape
    return forms if is_as_large and min(view.attributes["steps"], default=1) > 0 else None


def _push_reshape(
    view: Node, forms: PartialIndexMap, sizes: Mapping[int, int]
) -> PartialIndexMap | None:
    known = tuple(f for f in forms if f is not None)
    if len(known) != len(forms):
        return None
    return reshape_forms(known, view.operands[0].shape, view.result.shape, sizes)


_PUSH: dict[Op, Callable[[Node, PartialIndexMap, Mapping[int, int]], PartialIndexMap | None]] = {
    ops.barrier: lambda view, forms, sizes: forms,
    ops.transpose: lambda view, forms, sizes: tuple(
        forms[axis] for axis in view.attributes["perm"]
    ),
    ops.slice: _push_slice,
    ops.broadcast: lambda view, forms, sizes: broadcast_forms(
        view.operands[0].shape, view.result.shape, forms
    ),
    ops.windows: lambda view, forms, sizes: None,
    ops.diagonal: lambda view, forms, sizes: None,
    ops.reshape: _push_reshape,
}


def broadcast_forms(shape: Shape, result: Shape, forms: PartialIndexMap) -> PartialIndexMap:
    """IndexMap after NumPy's broadcasting of a shape to another one; None on repeated axes."""
    lead = len(result) - len(shape)
    kept = [
        None if old == 1 and new != 1 else f
        for f, old, new in zip(forms, shape, result[lead:], strict=True)
    ]
    return (*(ZERO if size == 1 else None for size in result[:lead]), *kept)


def reshape_forms(
    forms: IndexMap, old: Shape, new: Shape, sizes: Mapping[int, int]
) -> IndexMap | None:
    """The index map of axes `new` from that of `old`, of the same elements in row-major order.

    Raises `SplitNeeded` where a dim spans several of the new axes.
    """
    if 0 in old:
        return None
    rest = [(size, f) for size, f in zip(old, forms, strict=True) if size != 1]
    result: list[AffineExpr] = [ZERO] * len(new)
    axes = [axis for axis, size in enumerate(new) if size != 1]
    while rest:
        taken_old, taken_new = [rest.pop(0)], [axes.pop(0)]
        have, want = taken_old[0][0], new[taken_new[0]]
        while have != want:
            if have < want:
                taken_old.append(rest.pop(0))
                have *= taken_old[-1][0]
            else:
                taken_new.append(axes.pop(0))
                want *= new[taken_new[-1]]
        index, scale = ZERO, 1
        for size, f in reversed(taken_old):
            index = dot((index, f), (1, scale))
            scale *= size
        parts = cut(index, [new[axis] for axis in taken_new], sizes)
        if parts is None:
            return None
        for axis, part in zip(taken_new, parts, strict=True):
            result[axis] = part
    return tuple(result)


def cut(
    index: AffineExpr, shape: Sequence[int], sizes: Mapping[int, int]
) -> list[AffineExpr] | None:
    """The indices along `shape` of the element at the row-major position `index`."""
    result: list[AffineExpr] = []
    for size in reversed(shape[1:]):
        if index.offset:
            return None
        inner: list[tuple[int, int]] = []
        outer: list[tuple[int, int]] = []
        for dim, value in index.terms:
            if value < 0:
                return None
            if value % size == 0:
                outer.append((dim, value // size))
            elif value * sizes[dim] <= size:
                inner.append((dim, value))
            elif size % value == 0 and sizes[dim] % (size // value) == 0:
                raise SplitNeeded(dim, size // value)
            else:
                return None
        if sum(value * (sizes[dim] - 1) for dim, value in inner) >= size:
            return None
        result.append(form(0, inner))
        index = form(0, outer)
    result.append(index)
    return result[::-1]


def radix(index: AffineExpr, sizes: Mapping[int, int]) -> list[int] | None:
    """The dims of an index, innermost first, if it counts through all their values in order."""
    if index.offset:
        return None
    expected = 1
    result: list[int] = []
    for dim, value in reversed(index.terms):
        if value != expected:
            return None
        result.append(dim)
        expected *= sizes[dim]
    return result


def slabs(
    shape: Shape, strides: Strides, low: Shape, inner: Shape
) -> list[tuple[int, Shape, Strides]]:
    """The border of a padded array as disjoint boxes: where each begins, its shape and strides.

    The end of a line and the beginning of the next one are in one box where they are neighbours.
    """
    found: list[tuple[int, Shape, Strides]] = []
    has_both = len(shape) > 1 and low[-1] and low[-1] + inner[-1] < shape[-1] and 0 not in inner
    if has_both and strides[-2] == shape[-1] * strides[-1]:
        (*around, lines, length), line = inner, shape[-1]
        start = sum(n * stride for n, stride in zip(low, strides, strict=True))
        gaps = (*around, lines - 1, line - length)
        found.append((start + length * strides[-1], gaps, strides))
        low = (*low[:-2], low[-2] * line + low[-1])
        inner = (*around, (lines - 1) * line + length)
        shape, strides = (*shape[:-2], shape[-2] * line), (*strides[:-2], strides[-1])
    start = 0
    for axis, size in enumerate(shape):
        stop = low[axis] + inner[axis]
        for first, count in ((0, low[axis]), (stop, size - stop)):
            if count:
                box = (*inner[:axis], count, *shape[axis + 1 :])
                found.append((start + first * strides[axis], box, strides))
        start += low[axis] * strides[axis]
    return found
