"""Attention that users have written out, in terms of products and a softmax, found in the graph.

What is looked for is softmax(scores) @ v, where the scores are q kᵀ, scaled and then masked, with a
dropout of the weights or without, and its gradient, if the graph has that: all that reads a weight
must be one or the other. Then nobody needs the weights themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from lucid.codegen.lower.attention import is_worthwhile
from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Op
from lucid.ir.ops.attention import AttentionSizes, split
from lucid.ir.passes.rewrite import producer_of
from lucid.ir.types import bool_, f32


def recognize_attention(graph: Graph) -> bool:
    """softmax(q kᵀ + mask) v -> attention(q, k, v, mask), where all weights together are large."""
    changed = False
    for node in list(graph.nodes):
        if node.op is ops.div and _is_large(node):
            found = _Pattern(graph.uses(), set(graph.results())).match(node)
            if found is not None:
                _replace(graph, found)
                changed = True
    return changed


def _is_large(node: Node) -> bool:
    """Whether a division gives many weights, perhaps."""
    shape = node.result.shape
    exp = producer_of(node.operands[0], ops.exp)
    return exp is not None and len(shape) >= 2 and is_worthwhile(node.result.type, shape[-2])


class _NoMatchError(Exception):
    """The graph isn't what is looked for."""


@dataclass(slots=True)
class _Step:
    """What happens to scores on their way from the product to the softmax.

    Attributes:
        op: mul or div by a number, add of a mask, where, or a reshape of the batch.
        other: the number, or the mask.
        before: the scores before it.
        is_inverted: of a where, that it hides scores where the mask is set.
        fill: the score that it leaves there.
    """

    op: Op
    other: Value | None
    before: Value
    is_inverted: bool = False
    fill: float = -inf


@dataclass(slots=True)
class _Attention:
    """What was found.

    Attributes:
        steps: from the softmax back to the product.
        keep: of a dropout, with the state that it draws from.
        output: the product with v; None if nobody needs it.
        of_q, of_k, of_v: the cotangents; that of k may be found transposed.
        g: the cotangent of the output.
    """

    weights: Value
    steps: list[_Step] = field(default_factory=list)
    q: Any = None
    k: Any = None
    v: Any = None
    state: Value | None = None
    keep: Value | None = None
    output: Value | None = None
    g: Any = None
    of_q: Value | None = None
    of_k: Value | None = None
    of_v: Value | None = None
    is_turned: bool = False


class _Pattern:
    """A graph that is compared with an attention, from its softmax on.

    Args:
        users: the nodes that read each value.
        results: what the graph returns and writes.
    """

    def __init__(self, users: dict[Value, list[Node]], results: set[Value]) -> None:
        self.users, self.results = users, results

    def match(self, node: Node) -> _Attention | None:
        """The attention whose weights a division gives."""
        try:
            return self._match(node)
        except _NoMatchError:
            return None

    def _require(self, *conditions: object) -> None:
        if not all(conditions):
            raise _NoMatchError

    def _only(self, value: Value, *readers: Node | None) -> None:
        """Require that nothing else reads a value."""
        self._require(value not in self.results, set(self.users.get(value, ())) <= {*readers})

    def _match(self, node: Node) -> _Attention:
        found = _Attention(node.result)
        scores = self._softmax(node)
        self._score_steps(found, scores)
        dropped, noise = self._dropout(found)
        dscores = self._readers(found, dropped, noise)
        if dscores is not None:
            self._score_gradient(found, dscores)
        self._require(found.v is not None)
        return found

    # The forward --------------------------------------------------------------------------

    def _softmax(self, node: Node) -> Value:
        """The scores of exp(scores - max) / sum."""
        e, total = node.operands
        exp, whole = producer_of(e, ops.exp), _reduced(total, ops.sum)
        self._require(exp, whole is e)
        assert exp is not None
        shifted = producer_of(exp.operands[0], ops.sub)
        self._require(shifted)
        assert shifted is not None
        scores, largest = shifted.operands
        self._require(_reduced(largest, ops.amax) is scores, scores.dtype.is_floating_point)
        self._only(e, node, _kept(total))
        self._only(exp.operands[0], exp)
        self._only(scores, shifted, _kept(largest))
        for value, reader in ((total, node), (largest, shifted)):
            self._only(value, reader)
            self._only(value.producer.operands[0], value.producer)  # type: ignore[union-attr]
        return scores

    def _score_steps(self, found: _Attention, scores: Value) -> None:
        """Numbers and masks, from the softmax back to the product."""
        value = scores
        while True:
            node = value.producer
            self._require(node)
            assert node is not None
            if node.op is ops.matmul:
                break
            step = self._step(node)
            scales = [x for x in found.steps if x.op in (ops.mul, ops.div)]
            self._require(step.op is not ops.add or not scales)  # what is added would be scaled
            if step.op is ops.where:
                for scale in reversed(scales):
                    step.fill = self._scaled_fill(step.fill, scale)
            found.steps.append(step)
            value = step.before
            self._only(value, node)
        left, right = node.operands
        batch = scores.shape[:-2]
        self._require(value.shape[-2:] == scores.shape[-2:])
        plain = value.shape == scores.shape
        self._require(plain or left.shape[:-2] == right.shape[:-2] == value.shape[:-2])
        self._require(sum(step.op in (ops.add, ops.where) for step in found.steps) <= 1)
        found.q = left if plain else _with_batch(batch, left)
        found.k = _Transposed(right, None if plain else batch)

    def _scaled_fill(self, fill: float, scale: _Step) -> float:
        """What a number makes of the score that a mask leaves."""
        factor = None if scale.other is None else _constant(scale.other)
        self._require(factor is not None and 0 < factor < inf)
        assert factor is not None and scale.other is not None
        kind: Any = scale.other.dtype.numpy.type
        x, y = kind(fill), kind(factor)
        return float(x * y if scale.op is ops.mul else x / y)

    def _step(self, node: Node) -> _Step:
        """What a node does to the scores."""
        if node.op is ops.reshape:
            (x,) = node.operands
            self._require(x.shape[-2:] == node.result.shape[-2:])
            return _Step(node.op, None, x)
        if node.op in (ops.mul, ops.div):
            for x, other in (node.operands, node.operands[::-1])[: 1 if node.op is ops.div else 2]:
                if x.shape == node.result.shape and other.shape == ():
                    return _Step(node.op, other, x)
        if node.op is ops.where:
            flags, x, other = node.operands
            is_inverted = _fill(x) is not None
            x, other = (other, x) if is_inverted else (x, other)
            fill = _fill(other)
            if x.shape == node.result.shape and fill is not None and fill < inf:
                return _Step(node.op, flags, x, is_inverted, fill)
        if node.op is ops.add:
            for x, other in (node.operands, node.operands[::-1]):
                if x.shape == node.result.shape and self._is_product(x):
                    return _Step(node.op, other, x)
        raise _NoMatchError

    def _is_product(self, value: Value) -> bool:
        """Whether a value is a product, perhaps scaled."""
        node = value.producer
        while node is not None and node.op in (ops.mul, ops.div, ops.reshape):
            node = node.operands[0].producer
        return node is not None and node.op is ops.matmul

    def _dropout(self, found: _Attention) -> tuple[Value, Value | None]:
        """The weights after a dropout, and its noise."""
        for node in self.users.get(found.weights, ()):
            if node.op is not ops.mul:
                continue
            a, b = node.operands
            noise = b if a is found.weights else a
            scaled = producer_of(noise, ops.div)
            kept = None if scaled is None else producer_of(scaled.operands[0], ops.cast)
            less = None if kept is None else producer_of(kept.operands[0], ops.lt)
            drawn = None if less is None else producer_of(less.operands[0], ops.random_uniform)
            if scaled is None or less is None or drawn is None or drawn.result.dtype is not f32:
                continue
            keep = scaled.operands[1]
            same = keep is less.operands[1] or _is_cast(less.operands[1], keep)
            self._require(same or _number(keep) == _number(less.operands[1]) is not None)
            self._require(drawn.result.shape == found.weights.shape, keep.shape == ())
            found.state, found.keep = drawn.operands[0], keep
            return node.result, noise
        return found.weights, None

    # Who reads the weights ----------------------------------------------------------------

    def _readers(self, found: _Attention, dropped: Value, noise: Value | None) -> Value | None:
        """Find the output and the cotangent of v; return the cotangent of the scores."""
        weights = found.weights
        for value in (dropped, *self._views(dropped)):
            self._require(value not in self.results)
            for node in self.users.get(value, ()):
                if node.op is ops.matmul:
                    self._product_of_weights(found, node, value)
        product = self._find(weights, ops.mul, lambda node: node.result is not dropped)
        if not product:
            self._only(weights, *self._known(found, dropped))
            return None
        self._require(len(product) == 2)
        first, last = product
        if producer_of(_other(last, weights), ops.sub) is None:
            first, last = last, first
        dweights = _other(first, weights)
        deviation = producer_of(_other(last, weights), ops.sub)
        self._require(deviation)
        assert deviation is not None
        delta = deviation.operands[1]
        self._require(deviation.operands[0] is dweights, _reduced(delta, ops.sum) is first.result)
        self._only(first.result, _kept(delta))
        self._only(delta, deviation)
        self._only(deviation.result, last)
        self._only(dweights, first, deviation)
        self._only(weights, first, last, *self._known(found, dropped))
        self._cotangent(found, dweights, noise)
        return last.result

    def _known(self, found: _Attention, dropped: Value) -> list[Node | None]:
        """The readers of the weights that belong to output and cotangent of v."""
        if dropped is not found.weights:
            assert dropped.producer is not None
            self._only(dropped, *self._viewers(dropped), *self._products(found))
            return [dropped.producer]
        return [*self._viewers(dropped), *self._products(found)]

    def _products(self, found: _Attention) -> list[Node | None]:
        return [x.producer for x in (found.output, found.of_v) if x is not None]

    def _views(self, value: Value) -> list[Value]:
        """A value with its batch in another shape, or transposed: all views of it."""
        found = [node.result for node in self._viewers(value)]
        return [*found, *(x for inner in found for x in self._views(inner))]

    def _viewers(self, value: Value) -> list[Node]:
        views = (ops.reshape, ops.transpose)
        return [node for node in self.users.get(value, ()) if node.op in views]

    def _find(self, value: Value, op: Op, holds: Callable[[Node], bool]) -> list[Node]:
        return [node for node in self.users.get(value, ()) if node.op is op and holds(node)]

    def _product_of_weights(self, found: _Attention, node: Node, value: Value) -> None:
        """weights @ v, or weightsᵀ @ g."""
        left, right = node.operands
        weights = found.weights
        is_turned = value.producer is not None and value.producer.op is ops.transpose
        batch = weights.shape[:-2]
        self._require(left is value, right is not value)
        turned = _untransposed(value) if is_turned else value
        self._require(turned is not None)
        assert turned is not None
        flat = turned.shape[:-2] != batch
        self._require(turned.shape[-2:] == weights.shape[-2:])
        self._require(not flat or right.shape[:-2] == turned.shape[:-2])
        x = _with_batch(batch, right) if flat else right
        if is_turned:
            self._require(found.of_v is None, _fits(found.g, x))
            found.of_v, found.g = node.result, x
        else:
            self._require(found.output is None, found.v is None)
            found.output, found.v = node.result, x

    def _cotangent(self, found: _Attention, dweights: Value, noise: Value | None) -> None:
        """g @ vᵀ, times the noise."""
        value = dweights
        if noise is not None:
            node = producer_of(value, ops.mul)
            self._require(node, node is not None and noise in node.operands)
            assert node is not None
            value = _other(node, noise)
            self._only(value, node)
            drops = [x for x in self.users.get(noise, ()) if x is not node]
            self._require(all(found.weights in x.operands for x in drops))
        batch = found.weights.shape[:-2]
        node = producer_of(value, ops.reshape)
        if node is not None:
            self._require(node.operands[0].shape[-2:] == value.shape[-2:])
            value = node.operands[0]
            self._only(value, node)
        product = producer_of(value, ops.matmul)
        self._require(product)
        assert product is not None
        flat = value.shape[:-2] != batch
        left, right = product.operands
        self._require(not flat or left.shape[:-2] == right.shape[:-2] == value.shape[:-2])
        g = _with_batch(batch, left) if flat else left
        v = _Transposed(right, batch if flat else None)
        self._require(_fits(found.g, g), found.v is None or v.is_of(found.v))
        found.g = g
        found.v = v if found.v is None else found.v

    def _score_gradient(self, found: _Attention, dscores: Value) -> None:
        """The same steps backwards, and the cotangents of q and k."""
        value = dscores
        for step in found.steps:
            if step.op is ops.add:
                continue
            readers = self.users.get(value, [])
            self._require(len(readers) == 1, value not in self.results)
            (node,) = readers
            self._require(node.op is step.op, self._undoes(node, step, value))
            value = node.result
        batch = found.weights.shape[:-2]
        self._require(value not in self.results)
        turned = [x for x in self._viewers(value) if x.op is ops.transpose]
        self._require(all(_untransposed(x.result) is value for x in turned))
        for source in (value, *(x.result for x in turned)):
            for node in self.users.get(source, ()):
                if node.op is ops.matmul:
                    self._product_of_scores(found, node, source, source is not value, batch)
                else:
                    self._require(node in turned)
            self._require(source not in self.results)

    def _undoes(self, node: Node, step: _Step, value: Value) -> bool:
        """Whether a node takes a cotangent from behind a step to before it."""
        if node.op is ops.reshape:
            return node.result.shape == step.before.shape
        if node.op is ops.where:
            flags, x, other = node.operands
            x, other = (other, x) if step.is_inverted else (x, other)
            return flags is step.other and x is value and _number(other) == 0.0
        if step.op is ops.div:
            return node.operands[0] is value and _same(node.operands[1], step.other)
        return _same(_other(node, value), step.other)

    def _product_of_scores(
        self, found: _Attention, node: Node, value: Value, is_turned: bool, batch: Any
    ) -> None:
        """dscores @ k, dscoresᵀ @ q, or qᵀ @ dscores."""
        left, right = node.operands
        flat = batch if value.shape[:-2] != batch else None
        if left is value and not is_turned:
            same = found.k.is_of(right if flat is None else _with_batch(flat, right))
            self._require(found.of_q is None, same)
            found.of_q = node.result
            return
        q = right if left is value else left
        source: Any = q if left is value else _untransposed(q)
        self._require(found.of_k is None, is_turned == (left is value))
        if source is None:  # q was transposed before
            source = found.q if _is_turned(found.q, q) else None
        self._require(source is not None)
        self._require(_fits(found.q, source if flat is None else _with_batch(flat, source)))
        found.of_k, found.is_turned = node.result, left is not value


@dataclass(frozen=True, slots=True)
class _WithBatch:
    """A value whose batch gets another shape."""

    value: Value
    batch: tuple[int, ...]

    def emit(self) -> Value:
        shape = (*self.batch, *self.value.shape[-2:])
        return ops.reshape(self.value, shape=shape)


@dataclass(frozen=True, slots=True)
class _Transposed:
    """The transpose of a value, perhaps with a batch of another shape."""

    value: Value
    batch: tuple[int, ...] | None

    def is_of(self, other: Any) -> bool:
        """Whether it is `other`, which may be given another batch as well."""
        if isinstance(other, _WithBatch) != (self.batch is not None):
            return False
        plain = other.value if isinstance(other, _WithBatch) else other
        return _is_turned(self.value, plain)

    def emit(self) -> Value:
        turned = _untransposed(self.value)
        value = ops.swap_axes(self.value, -1, -2) if turned is None else turned
        return value if self.batch is None else _WithBatch(value, self.batch).emit()


def _with_batch(batch: tuple[int, ...], value: Value) -> _WithBatch:
    return _WithBatch(value, batch)


def _emitted(x: Any) -> Value:
    return x if isinstance(x, Value) else x.emit()


def _fits(known: Any, found: Any) -> bool:
    """Whether something was found for the first time, or again."""
    return known is None or known is found or (isinstance(known, _WithBatch) and known == found)


def _untransposed(value: Value) -> Value | None:
    """What a value is the transpose of: of matrices in a batch."""
    node = producer_of(value, ops.transpose)
    rank = len(value.shape)
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return None if node is None or node.attributes["perm"] != swapped else node.operands[0]


def _is_turned(a: Value, b: Value) -> bool:
    """Whether matrices are the transposes of others; chains of transposes may have been joined."""
    (root, axes), (other, order) = _axes_of(a), _axes_of(b)
    return root is other and axes == (*order[:-2], order[-1], order[-2])


def _axes_of(value: Value) -> tuple[Value, tuple[int, ...]]:
    """What a value is a transpose of, and which of its axes are where."""
    axes = tuple(range(len(value.shape)))
    while (node := producer_of(value, ops.transpose)) is not None:
        perm, value = node.attributes["perm"], node.operands[0]
        axes = tuple(perm[axis] for axis in axes)
    return value, axes


def _kept(value: Value) -> Node | None:
    """The reduction whose result, with an axis of size 1 at the end, is a value."""
    node = producer_of(value, ops.reshape)
    return None if node is None else node.operands[0].producer


def _reduced(value: Value, op: Op) -> Value | None:
    """What a value is the reduction of along the last axis, which is kept with size 1."""
    node = _kept(value)
    if node is None or node.op is not op:
        return None
    (x,) = node.operands
    last = len(x.shape) - 1
    if node.attributes["axes"] != (last,) or value.shape != (*x.shape[:-1], 1):
        return None
    return x


def _other(node: Node, value: Value) -> Value:
    """The other of two operands."""
    a, b = node.operands
    return b if a is value else a


def _number(value: Value | None) -> float | None:
    """The value of a constant, perhaps repeated, in f32."""
    found = _fill(value)
    return None if found is None else float(np.float32(found))


def _fill(value: Value | None) -> float | None:
    """The same in its own dtype."""
    node = None if value is None else value.producer
    while node is not None and node.op in (ops.broadcast, ops.reshape):
        node = node.operands[0].producer
    if node is None or node.op is not ops.constant:
        return None
    return float(node.result.dtype.numpy.type(node.attributes["value"]))


def _same(a: Value | None, b: Value | None) -> bool:
    return a is b or (a is not None and b is not None and _constant(a) == _constant(b) is not None)


def _constant(value: Value) -> float | None:
    node = producer_of(value, ops.constant)
    return None if node is None else float(node.attributes["value"])


def _is_cast(value: Value, of: Value) -> bool:
    """Whether a value is another one in f32, or both are casts of the same."""
    node = producer_of(value, ops.cast)
    other = producer_of(of, ops.cast)
    return node is not None and (
        node.operands[0] is of or (other is not None and other.operands[0] is node.operands[0])
    )


# The replacement ------------------------------------------------------------------------------


def _replace(graph: Graph, found: _Attention) -> None:
    """Put the op, and that of its gradient, in the place of what was found."""
    old = graph.nodes
    made: list[Node] = []
    replacement: dict[Value, Value] = {}
    graph.nodes = made
    q, k, v = map(_emitted, (found.q, found.k, found.v))
    scales = [step for step in found.steps if step.op in (ops.mul, ops.div)]
    for step in reversed(scales):
        q = _scaled(q, step)
    masks = [step for step in found.steps if step.op in (ops.add, ops.where)]
    rest: list[Value] = []
    causal = False
    for step in masks:
        mask = _mask(step)
        causal = step.op is ops.where and step.fill == -inf and _is_causal(mask)
        rest += [] if causal else [mask]
    if found.state is not None and found.keep is not None:
        rest += [found.state, found.keep]
    attributes: dict[str, Any] = {
        "causal": causal,
        "has_mask": bool(masks) and not causal,
        "has_dropout": found.keep is not None,
        "nan_rows": True,
    }
    fills = [step.fill for step in masks if step.fill != -inf]
    if fills:
        (attributes["fill"],) = map(q.dtype.numpy.type, fills)
    given = (q, k, v, *rest)
    sizes = AttentionSizes.of(*given[: 3 + attributes["has_mask"]])
    output, sums, errors = split(ops.attention(*given, **attributes), sizes.parts)
    if found.output is not None:
        replacement[found.output] = ops.reshape_to(output, found.output.shape)
    if found.g is not None:
        g = _emitted(found.g)
        delta = ops.sum(g * output, axes=(len(output.shape) - 1,))
        flat = ops.attention_grad(*given, sums, errors, delta, g, **attributes)
        dq, dk, dv = split(flat, sizes.gradients)
        for step in scales:
            dq = _scaled(dq, step)
        if found.of_q is not None:
            replacement[found.of_q] = ops.reshape_to(dq, found.of_q.shape)
        if found.of_v is not None:
            replacement[found.of_v] = ops.reshape_to(dv, found.of_v.shape)
        if found.of_k is not None:
            dk = ops.swap_axes(dk, -1, -2) if found.is_turned else dk
            replacement[found.of_k] = ops.reshape_to(dk, found.of_k.shape)
    for node in made:
        like = found.weights.producer
        assert like is not None
        node.location, node.scope, node.gradient_of = like.location, like.scope, like.gradient_of
    _enter(graph, old, made, replacement)


def _scaled(x: Value, step: _Step) -> Value:
    assert step.other is not None
    return step.op(x, step.other)


def _mask(step: _Step) -> Value:
    """The mask of a step, True where scores count, with two axes at least."""
    assert step.other is not None
    mask: Value = ops.logical_not(step.other) if step.is_inverted else step.other
    lead = max(0, 2 - len(mask.shape))
    result: Value = ops.reshape_to(mask, (*(1,) * lead, *mask.shape))
    return result


def _is_causal(mask: Value) -> bool:
    """Whether a mask is column <= row."""
    node = mask.producer
    if mask.dtype is not bool_ or node is None or len(mask.shape) != 2:
        return False
    if node.op not in (ops.le, ops.ge):
        return False
    columns, rows = node.operands if node.op is ops.le else node.operands[::-1]
    return _counts(columns) == 1 and _counts(rows) == 0


def _counts(value: Value) -> int | None:
    """The axis, of two, along which a value is the index."""
    node = value.producer
    shape = value.shape
    while node is not None and node.op in (ops.broadcast, ops.reshape):
        if node.op is ops.reshape and len(node.operands[0].shape) != 1:
            return None
        shape = (1,) * (2 - len(node.operands[0].shape)) + node.operands[0].shape
        if node.op is ops.reshape:
            shape = node.result.shape
        node = node.operands[0].producer
        if node is not None and node.op is ops.iota and len(node.result.shape) == 1:
            return 0 if shape[0] != 1 else 1
    if node is None or node.op is not ops.iota:
        return None
    axis: int = node.attributes["axis"] + 2 - len(node.result.shape)
    return axis


def _enter(
    graph: Graph, old: Sequence[Node], made: Sequence[Node], replacement: dict[Value, Value]
) -> None:
    """Use new nodes instead of old values, each node behind what it needs."""
    graph.nodes = [*old, *made]
    graph.substitute(replacement)
    done: set[Node] = set()
    order: list[Node] = []
    results = [x.producer for x in graph.results() if x.producer is not None]
    for first in (*old, *results):
        pending = [first]
        while pending:
            node = pending[-1]
            if node in done:
                pending.pop()
                continue
            wanted = [x.producer for x in node.operands if x.producer is not None]
            missing = [x for x in wanted if x not in done]
            if missing:
                pending += missing
            else:
                done.add(node)
                order.append(node)
                pending.pop()
    graph.nodes = order
    graph.drop_dead_nodes()
