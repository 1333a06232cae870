"""One form for what can be written in several ways, so that equal things look equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lucid.ir import ops
from lucid.ir.errors import LucidError
from lucid.ir.extents import is_open, taken
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.inference import result_type
from lucid.ir.op import Trait
from lucid.ir.passes.rewrite import (
    Rules,
    broadcast_like,
    is_exact_embedding,
    producer_of,
    rewrite,
    uniform,
)
from lucid.ir.types import Shape

_RULES = Rules()
_Bounds = tuple[int, int, int]


def canonicalize(graph: Graph) -> bool:
    """Compose views of views, drop ops that do nothing and broadcasts that are implied anyway.

    Constants become the right operand of commutative ops. The rules below say one identity each;
    all hold bit for bit. Transposes that feed a matmul stay: a contraction reads them in place.

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes.canonicalize import canonicalize
    >>> text = "%y = reshape %x {shape = [6]} %z = reshape %y {shape = [3,2]} return %z"
    >>> graph = parse("graph g(%x: f32[2,3]) { " + text + " }")
    >>> canonicalize(graph)
    True
    >>> print(graph, end="")
    graph g(%x: f32[2,3]) {
      %z = reshape %x {shape = [3,2]} : f32[3,2]
      return %z
    }
    """
    return rewrite(graph, _RULES)


def _same(node: Node, *operands: Value) -> Value:
    """The node's op with its attributes, on other operands."""
    return node.op(*operands, **node.attributes)


def _before_broadcast(value: Value) -> Value:
    """The value that an explicit broadcast, or a reshape that only puts 1s in front, repeats."""
    while True:
        node = value.producer
        if node is None or not (node.op is ops.broadcast or _puts_ones_in_front(node)):
            return value
        value = node.operands[0]


def _puts_ones_in_front(node: Node) -> bool:
    return node.op is ops.reshape and (
        _without_leading_ones(node.result.shape) == _without_leading_ones(node.operands[0].shape)
        and len(node.result.shape) > len(node.operands[0].shape)
    )


def _without_leading_ones(shape: Shape) -> Shape:
    ones = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return shape[ones:]


@_RULES.on(ops.broadcast)
def _broadcast(node: Node) -> Value | None:
    """broadcast(x) -> x if the shape stays; broadcast(broadcast x) -> broadcast x."""
    (x,) = node.operands
    if x.shape == node.result.shape:
        return x
    source = _before_broadcast(x)
    return None if source is x else broadcast_like(node.result, source)


@_RULES.on(ops.reshape)
def _reshape(node: Node) -> Value | None:
    """reshape(x) -> x if the shape stays; reshape(reshape x) -> reshape x."""
    (x,) = node.operands
    if x.shape == node.result.shape:
        return x
    inner = producer_of(x, ops.reshape)
    return None if inner is None else _same(node, inner.operands[0])


@_RULES.on(ops.transpose)
def _transpose(node: Node) -> Value | None:
    """transpose(x) -> x for the identity; transpose(transpose x) -> one transpose."""
    (x,) = node.operands
    perm = node.attributes["perm"]
    if perm == tuple(range(len(perm))):
        return x
    inner = producer_of(x, ops.transpose)
    if inner is None:
        return None
    composed = tuple(inner.attributes["perm"][axis] for axis in perm)
    return ops.transpose(inner.operands[0], perm=composed)


@_RULES.on(ops.slice)
def _slice(node: Node) -> Value | None:
    """slice(x) -> x if all is taken; slice(slice x) -> one slice; the tightest bounds."""
    (x,) = node.operands
    bounds = _bounds(node)
    if x.shape == node.result.shape and all(step > 0 for _, _, step in bounds):
        return x
    inner = producer_of(x, ops.slice)
    if inner is not None:
        x = inner.operands[0]
        bounds = [_composed(a, b) for a, b in zip(_bounds(inner), bounds, strict=True)]
    tight = [_tight(*axis) for axis in bounds]
    if inner is None and tight == bounds:
        return None
    return _sliced(x, tight)


def _bounds(node: Node) -> list[_Bounds]:
    attributes = node.attributes
    keys = ("starts", "stops", "steps")
    return list(zip(*(attributes[key] for key in keys), strict=True))


def _composed(inner: _Bounds, outer: _Bounds) -> _Bounds:
    """The bounds that select from an axis what `outer` selects from what `inner` does."""
    count = taken(*outer)
    if not count:
        return 0, 0, 1
    start = inner[0] + outer[0] * inner[2]
    step = inner[2] * outer[2]
    return start, start + count * step, step


def _tight(start: int, stop: int, step: int) -> _Bounds:
    """Equal bounds that stop right behind the last index; 0:0:1 for none, step 1 for one."""
    count = taken(start, stop, step)
    if not count:
        return 0, 0, 1
    if count == 1:
        return start, start + 1, 1
    return start, start + (count - 1) * step + (1 if step > 0 else -1), step


@_RULES.on(ops.slice)
def _slice_of_update(node: Node) -> Value | None:
    """slice(update_slice(x, u), the same place) -> u."""
    update = producer_of(node.operands[0], ops.update_slice)
    if update is None or not _same_place(node, update):
        return None
    return update.operands[1]


@_RULES.on(ops.slice)
def _slice_of_part(node: Node) -> Value | None:
    """slice(concat(a, b)) -> slice(a) where it takes of a alone; slice(pad x), of x or border."""
    made = node.operands[0].producer
    if made is None or made.op not in (ops.concat, ops.pad) or not node.result.type.size:
        return None
    bounds = [_tight(*axis) for axis in _bounds(node)]
    ends = [(start, stop - (1 if step > 0 else -1)) for start, stop, step in bounds]
    for part, origin in _parts(made):
        behind = [start + size for start, size in zip(origin, part.shape, strict=True)]
        reached = list(zip(ends, origin, behind, strict=True))
        if all(a <= min(pair) and max(pair) < b for pair, a, b in reached):
            moved = [(a - n, b - n, step) for (a, b, step), n in zip(bounds, origin, strict=True)]
            return _sliced(part, moved)
        if made.op is ops.pad and any(max(pair) < a or b <= min(pair) for pair, a, b in reached):
            border: Value = ops.broadcast_to(made.operands[1], node.result.shape)
            return border
    return None


def _parts(node: Node) -> Iterator[tuple[Value, list[int]]]:
    """The arrays that a concat or pad puts into its result, and where they begin."""
    if node.op is ops.pad:
        yield node.operands[0], list(node.attributes["low"])
        return
    origin = [0] * len(node.result.shape)
    for part in node.operands:
        yield part, list(origin)
        origin[node.attributes["axis"]] += part.shape[node.attributes["axis"]]


@_RULES.on(ops.update_slice)
def _update_slice(node: Node) -> Value | None:
    """update_slice(x, u) -> u if all is replaced; of two updates of one place the later counts."""
    base, update = node.operands
    if base.shape == update.shape and all(step > 0 for _, _, step in _bounds(node)):
        return update
    inner = producer_of(base, ops.update_slice)
    if inner is None or not _same_place(node, inner):
        return None
    return _same(node, inner.operands[0], update)


def _same_place(a: Node, b: Node) -> bool:
    return all(_tight(*x) == _tight(*y) for x, y in zip(_bounds(a), _bounds(b), strict=True))


@_RULES.on(ops.pad)
def _pad(node: Node) -> Value | None:
    """pad(x) -> x if nothing is added."""
    return node.operands[0] if node.operands[0].shape == node.result.shape else None


@_RULES.on(ops.concat)
def _concat(node: Node) -> Value | None:
    """concat(x) -> x; operands without elements are left out."""
    filled = [x for x in node.operands if x.shape[node.attributes["axis"]]]
    if len(filled) == len(node.operands) > 1:
        return None
    kept = filled or [node.operands[0]]
    return kept[0] if len(kept) == 1 else _same(node, *kept)


@_RULES.on(ops.concat)
def _concat_of_slices(node: Node) -> Value | None:
    """concat(x[:2], x[2:5], y) -> concat(x[:5], y): what lies side by side is one slice.

    Rows of another axis, concat(x[0, :, None], x[1, :, None]), are one slice whose axes are moved,
    and rows in the order of a flip are one that goes backwards.
    """
    axis, parts = node.attributes["axis"], list[Value]()
    last: _Shown | None = None  # what the last part is, or a row of it
    for operand in node.operands:
        shown = _shown_along(operand, axis)
        joined = last and shown and _joined(last, shown)
        if joined:
            parts[-1] = _sliced(joined.base, joined.bounds)
            if producer_of(operand, ops.slice) is None:
                parts[-1] = _rows_as(parts[-1], joined.axis, operand.shape, axis)
        else:
            parts.append(operand)
        last = joined or shown
    if len(parts) == len(node.operands):
        return None
    return parts[0] if len(parts) == 1 else _same(node, *parts)


class _Shown(NamedTuple):
    """What a value is of a base: by the bounds of a slice, along an axis of that."""

    base: Value
    axis: int
    bounds: list[_Bounds]


def _shown_along(value: Value, axis: int) -> _Shown | None:
    """The slice that a value is, along an axis, or one row that it is, along that axis of it."""
    made = producer_of(value, ops.slice)
    if made is None and value.shape[axis] == 1:
        view = producer_of(value, ops.reshape)
        made = view and producer_of(view.operands[0], ops.slice)
        sizes = zip(made.operands[0].shape, made.result.shape, strict=True) if made else ()
        axes = [n for n, (whole, part) in enumerate(sizes) if whole != part]
        if len(axes) != 1 or (made and made.result.shape[axes[0]] != 1):
            return None
        (axis,) = axes
    if made is None or any(map(is_open, _bounds(made))):
        return None
    return _Shown(made.operands[0], axis, _bounds(made))


def _joined(one: _Shown, other: _Shown) -> _Shown | None:
    """Both as one, where the second begins where the first ends along the same axis."""
    axis, bounds = one.axis, [*one.bounds]
    if one.base is not other.base or other.axis != axis:
        return None
    (start, stop, step), (begin, end, stride) = bounds[axis], other.bounds[axis]
    if step == stride == 1 and begin == stop:
        bounds[axis] = start, end, 1
    elif stride == end - begin == 1 and (stop - start, step, begin) in (
        (1, 1, start - 1),
        (stop - start, -1, stop),
    ):
        bounds[axis] = start, begin - 1, -1
    else:
        return None
    others = (n for n in range(len(bounds)) if n != axis)
    return (
        _Shown(one.base, axis, bounds)
        if all(bounds[n] == other.bounds[n] for n in others)
        else None
    )


def _rows_as(value: Value, along: int, shape: Shape, axis: int) -> Value:
    """The rows of a value along an axis, each in a shape, side by side on an axis of that."""
    count, others = value.shape[along], [n for n in range(len(value.shape)) if n != along]
    rows = ops.transpose(value, perm=(along, *others))
    rows = ops.reshape(rows, shape=(count, *shape[:axis], *shape[axis + 1 :]))
    moved: Value = ops.transpose(rows, perm=(*range(1, axis + 1), 0, *range(axis + 1, len(shape))))
    return moved


def _sliced(base: Value, bounds: list[_Bounds]) -> Value:
    starts, stops, steps = (tuple(axis[i] for axis in bounds) for i in range(3))
    return ops.slice(base, starts=starts, stops=stops, steps=steps)


@_RULES.on(ops.cast)
def _cast(node: Node) -> Value | None:
    """cast(x) -> x if the dtype stays; a cast before it that keeps every number is left out.

    bool -> f32 -> bool is nothing, and i32 -> i64 -> u32 is i32 -> u32; f32 -> f64 -> i32 stays, as
    the cast of what doesn't fit an integer is not defined.
    """
    (x,) = node.operands
    if x.dtype is node.result.dtype:
        return x
    inner = producer_of(x, ops.cast)
    if inner is None:
        return None
    (source,) = inner.operands
    if not is_exact_embedding(source.dtype, x.dtype):
        return None
    if source.dtype is node.result.dtype:
        return source
    if node.result.dtype.kind == "int" and x.dtype.kind == "float":
        return None
    return _same(node, source)


@_RULES.on(Trait.COMMUTATIVE)
def _constant_to_the_right(node: Node) -> Value | None:
    """c + x -> x + c."""
    a, b = node.operands
    if uniform(a) is None or uniform(b) is not None:
        return None
    return _same(node, b, a)


@_RULES.on(Trait.ELEMENTWISE)
def _drop_implied_broadcasts(node: Node) -> Value | None:
    """f(broadcast x, y) -> f(x, y) where the shape stays: elementwise ops broadcast anyway."""
    operands = list(node.operands)
    for index, operand in enumerate(operands):
        source = _before_broadcast(operand)
        if source is operand:
            continue
        shorter = [*operands[:index], source, *operands[index + 1 :]]
        try:
            type = result_type(node.op, [v.type for v in shorter], node.attributes)
        except LucidError:
            continue
        if type == node.result.type:
            operands = shorter
    return None if tuple(operands) == node.operands else _same(node, *operands)
