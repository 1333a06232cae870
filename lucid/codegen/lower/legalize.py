"""Rewrites of a graph into ops that the kernels are good at, a pass for each kind of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from lucid.codegen import costs
from lucid.codegen.emit.reductions import identity
from lucid.codegen.lower.attention import spell_attention
from lucid.codegen.lower.attention_patterns import recognize_attention
from lucid.codegen.lower.image_folding import fold_images
from lucid.codegen.lower.rewrites import (
    chain_scatters,
    lift_reshapes,
    reduce_small_first,
)
from lucid.codegen.lower.small_axes import split_small_axes
from lucid.ir import ops
from lucid.ir.extents import hint
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Trait
from lucid.ir.passes.dce import dce
from lucid.ir.passes.pipeline import PassLog, Pipeline
from lucid.ir.passes.rewrite import Rules, rewrite
from lucid.ir.types import i32, i64


def legalize(graph: Graph, log: PassLog | None = None) -> list[Node]:
    """Replace nodes by simpler ones, where there are any.

    Returns the indexed nodes that are gone: their indices must still be checked. Until the end of
    the pipeline they stay in the graph, where nothing reads them.
    """
    LEGALIZE(graph, log)
    indexed = [node for node in graph.nodes if Trait.INDEXED in node.op.traits]
    if indexed:
        read = {*graph.uses(), *graph.results()}
        indexed = [node for node in indexed if node.result not in read]
    graph.drop_dead_nodes()
    return indexed


_SCATTERS, _TRIVIAL, _WINDOWS, _PAST_CHECKS, _PLACES = (Rules() for _ in range(5))


def read_past_checks(graph: Graph) -> bool:
    """f(check x) -> f(x): the check stays, and what reads x needn't wait for it to be stored."""
    return rewrite(graph, _PAST_CHECKS)


@_PAST_CHECKS.on(ops.check)
def _checked(node: Node) -> Value:
    return node.operands[0]


def drop_trivial_reductions(graph: Graph) -> bool:
    """A reduction over axes of one element -> a reshape; the position of its extremum -> 0.

    A sum begins with 0.0, so it makes 0.0 of -0.0. One of no elements -> what it starts from, and
    a product of operands without elements as well.
    """
    return rewrite(graph, _TRIVIAL)


def expand_scatters(graph: Graph) -> bool:
    """scatter_add(b, i, s) -> where(iota == i, b + s, b), with one index per line: no serial loop.

    Without duplicates on the axis each element gets at most one addend, so that the sum becomes
    elementwise and fuses; the gradient of a cross-entropy has this form.
    """
    return rewrite(graph, _SCATTERS)


def reduce_gathers(graph: Graph) -> bool:
    """gather(x, i) -> amax(where(iota == i, x, -inf)), with one index per line of a computed x.

    Where the lines are long, and gone over anyway for sums of what x is made of, x need not be
    stored for the sake of a few elements: the loss of a cross-entropy has this form.
    """
    reduced = _reduced_axes(graph)
    rules = Rules()
    rules.on(ops.gather)(lambda node: _reduction_of_gather(node, reduced))
    return rewrite(graph, rules)


def narrow_places(graph: Graph) -> bool:
    """iota == i -> the same in i32, with one i per line: a vector has twice as many of them."""
    return rewrite(graph, _PLACES)


def reshape_windows(graph: Graph) -> bool:
    """overlap_add of windows that touch but don't overlap -> a reshape, with zeros behind."""
    return rewrite(graph, _WINDOWS)


LEGALIZE = Pipeline(
    "legalize",
    (
        dce,
        recognize_attention,
        spell_attention,
        split_small_axes,
        expand_scatters,
        reduce_gathers,
        narrow_places,
        read_past_checks,
        drop_trivial_reductions,
        chain_scatters,
        lift_reshapes,
        fold_images,
        reshape_windows,
        reduce_small_first,
    ),
    in_bodies=False,  # each is lowered by itself
)


@_TRIVIAL.on(Trait.REDUCTION)
def _trivial_reduction(node: Node) -> Value | None:
    x, attributes = node.operands[0], node.attributes
    axes = attributes["axes"] if "axes" in attributes else (attributes["axis"],)
    type_ = node.result.type
    if not x.type.size and type_.size:
        start: Value = ops.full(x, identity(node.op.name, type_.dtype), type_.shape, type_.dtype)
        return start
    if any(x.shape[axis] != 1 for axis in axes):
        return None
    if "axis" in attributes:
        result = ops.full(x, 0, type_.shape, type_.dtype)
    else:
        result = ops.reshape(x, shape=type_.shape)
        if node.op is ops.sum and type_.dtype.is_floating_point:
            result = result + ops.full(x, 0.0, (), type_.dtype)
    assert isinstance(result, Value)
    return result


@_TRIVIAL.on(ops.matmul, ops.contract)
def _empty_product(node: Node) -> Value | None:
    """An operand has no elements: the result has none, or each is a sum of nothing."""
    (x, _), type_ = node.operands, node.result.type
    if all(operand.type.size for operand in node.operands):
        return None
    zeros: Value = ops.full(x, 0, type_.shape, type_.dtype)
    return zeros


@_SCATTERS.on(ops.scatter_add, ops.scatter)
def _pointwise_scatter(node: Node) -> Value | None:
    base, index, source = node.operands
    axis: int = node.attributes["axis"]
    if index.shape != ops.kept_axes(base.shape, (axis,)) or not base.type.size:
        return None
    position = _from_the_front(index, base.shape[axis])
    count = ops.indices(index, base.shape, axis, index.dtype)
    updated = ops.add(base, source) if node.op is ops.scatter_add else source
    result = ops.where(ops.eq(count, position), updated, base)
    assert isinstance(result, Value)
    return result


def _reduced_axes(graph: Graph) -> dict[Value, set[int]]:
    """The axes along which each value is reduced."""
    found: dict[Value, set[int]] = {}
    for node in graph.nodes:
        if node.op.is_reduction and "axes" in node.attributes:
            found.setdefault(node.operands[0], set()).update(node.attributes["axes"])
    return found


def _reduction_of_gather(node: Node, reduced: Mapping[Value, set[int]]) -> Value | None:
    x, index = node.operands
    axis: int = node.attributes["axis"]
    if not x.dtype.is_floating_point or x.shape[axis] < costs.LONG:
        return None
    if index.shape != ops.kept_axes(x.shape, (axis,)) or not _is_reduced_near(x, axis, reduced):
        return None
    count = ops.indices(index, x.shape, axis, index.dtype)
    nothing = ops.full(x, -inf, x.shape, x.dtype)
    chosen = ops.where(ops.eq(count, _from_the_front(index, x.shape[axis])), x, nothing)
    result = ops.reshape(ops.amax(chosen, axes=(axis,)), shape=index.shape)
    assert isinstance(result, Value)
    return result


def _is_reduced_near(x: Value, axis: int, reduced: Mapping[Value, set[int]]) -> bool:
    """Whether x is computed, elementwise, from something that is reduced along the axis."""
    seen: set[Value] = set()
    todo = [x]
    while todo:
        value = todo.pop()
        node = value.producer
        if node is None or not node.op.is_elementwise or value in seen or value.shape != x.shape:
            continue
        seen.add(value)
        if any(axis in reduced.get(other, ()) for other in (value, *node.operands)):
            return True
        todo += node.operands
    return False


def _from_the_front(index: Value, size: int) -> Value:
    """Indices that count from the end as those from the beginning."""
    negative = ops.lt(index, ops.zero(index))
    result = ops.where(negative, ops.add(index, index.constant(size, index.dtype)), index)
    assert isinstance(result, Value)
    return result


@_PLACES.on(ops.eq, ops.ne)
def _narrow_place(node: Node) -> Value | None:
    for places, index in (node.operands, node.operands[::-1]):
        axis_size = _counted(places)
        few = hint(index.type.size) * costs.GROWN <= hint(node.result.type.size)
        if places.dtype is not i64 or not 0 < axis_size < 1 << 31 or not few:
            continue
        outside = index.constant(-1, i64), index.constant(axis_size, i64)
        found = ops.cast(ops.clamp(index, *outside), dtype=i32)
        result = node.op(_recounted(places), found)
        assert isinstance(result, Value)
        return result
    return None


def _counted(value: Value) -> int:
    """The size of the axis whose places a view shows, all elements of it counting; 0 if none."""
    node = value.producer
    while node is not None and node.op.is_view:
        node = node.operands[0].producer
    if node is None or node.op is not ops.iota:
        return 0
    return node.result.shape[node.attributes["axis"]]


def _recounted(value: Value) -> Value:
    """The same view of places in i32."""
    node = value.producer
    assert node is not None
    if node.op is ops.iota:
        return value.emit(ops.iota, (), {**node.attributes, "dtype": i32})
    inner = _recounted(node.operands[0])
    return node.op(inner, *node.operands[1:], **node.attributes)


@_WINDOWS.on(ops.overlap_add)
def _disjoint_windows(node: Node) -> Value | None:
    attributes = node.attributes
    if set(attributes["dilations"]) != {1}:
        return None
    x, axes = node.operands[0], attributes["axes"]
    rank = len(node.result.shape)
    if attributes["steps"] != x.shape[rank:]:
        return None
    order: list[int] = []
    for axis in range(rank):
        order += [axis, rank + axes.index(axis)] if axis in axes else [axis]
    steps = dict(zip(axes, attributes["steps"], strict=True))
    covered = tuple(size * steps.get(axis, 1) for axis, size in enumerate(x.shape[:rank]))
    result = ops.reshape(ops.transpose(x, perm=tuple(order)), shape=covered)
    behind = tuple(n - size for n, size in zip(node.result.shape, covered, strict=True))
    if any(behind):
        result = ops.pad(result, ops.zero(x), low=(0,) * rank, high=behind)
    assert isinstance(result, Value)
    return result
