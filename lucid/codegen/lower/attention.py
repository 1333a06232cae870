"""Which attentions have a kernel, and what the others are in terms of other ops."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any, cast

from lucid.codegen import costs
from lucid.codegen.contraction.attention import Attention
from lucid.codegen.emit.lowering import ELEMENTS
from lucid.codegen.kernel_ir.affine import form
from lucid.codegen.kernel_ir.regions import Layout
from lucid.codegen.llvm.target import Target
from lucid.ir import ops
from lucid.ir.extents import NotOpenError, hint, is_open
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.ops.attention import AttentionSizes, Spelled
from lucid.ir.passes.pipeline import simplify
from lucid.ir.passes.rewrite import Rules, rewrite
from lucid.ir.types import TensorType


def spell_attention(graph: Graph) -> bool:
    """attention -> matmul, softmax, matmul, where all weights together are small; its gradient too.

    The gradient reads the weights of the attention that it belongs to, if that is in the graph.
    """
    weights: dict[Value, Value] = {}
    rules = Rules()
    rules.on(ops.attention)(lambda node: _spelled(node, weights))
    rules.on(ops.attention_grad)(lambda node: _spelled_gradient(node, weights))
    if not any(node.op in rules.by_op for node in graph.nodes) or not rewrite(graph, rules):
        return False
    simplify(graph)
    return True


def has_kernel(node: Node) -> bool:
    """Whether an attention, or its gradient, is computed block by block."""
    sizes = sizes_of(node)
    if not hint(prod(sizes.output)) or not hint(sizes.inner):
        return False
    return is_worthwhile(TensorType(node.result.dtype, sizes.scores), sizes.rows)


def is_worthwhile(scores: TensorType, rows: int) -> bool:
    """Whether all scores together are so large that they should not be stored."""
    return bool(
        scores.size
        and hint(scores.nbytes) >= costs.ATTENTION_BYTES
        and hint(rows) >= costs.ATTENTION_ROWS
    )


def sizes_of(node: Node) -> AttentionSizes:
    """The sizes of an attention or its gradient."""
    return AttentionSizes.of(*node.operands[: 3 + node.attributes["has_mask"]])


def _spelled(node: Node, weights: dict[Value, Value]) -> Value | None:
    if has_kernel(node):
        return None
    x = Spelled.of(node.operands, node.attributes)
    found = x.weights()
    output: Value = x.output(*found)
    weights[output] = found[0]
    return output


def _spelled_gradient(node: Node, weights: dict[Value, Value]) -> Value | None:
    if has_kernel(node):
        return None
    *first, sums, errors, delta, g = node.operands
    x = Spelled.of(first, node.attributes)
    found = weights.get(_source_of(sums))
    value = x.weights_again(sums, errors) if found is None else found
    return cast(Value, x.gradients(value, delta, g))


def _source_of(value: Value) -> Value:
    """What a chain of views looks at."""
    while (node := value.producer) is not None and node.op.is_view:
        value = node.operands[0]
    return value


def attention_of(node: Node, layouts: Sequence[Layout], target: Target) -> Attention:
    """What the kernel of an attention computes, from operands that lie so.

    Raises `NotOpenError` where the sizes of a row, or from a row of keys to the next, are open.
    """
    sizes, attributes = sizes_of(node), node.attributes
    known = [sizes.inner, sizes.columns]
    known += [step for layout in layouts[1:3] for step in layout.strides[-2:]]
    if any(map(is_open, known)):
        extents: list[Any] = [n for n in known if is_open(n)]
        raise NotOpenError("the blocks of an attention follow from the sizes of its rows", extents)
    rank, has_mask = len(sizes.batch), attributes["has_mask"]
    first = 3 + has_mask
    dropout = range(first, first + 2 * attributes["has_dropout"])
    places = []
    for number, (operand, layout) in enumerate(zip(node.operands, layouts, strict=True)):
        is_row = number >= dropout.stop and number < len(node.operands) - 1
        lead = rank if number in dropout else rank + (1 if is_row else 2) - len(operand.shape)
        steps = enumerate(zip(operand.shape, layout.strides, strict=True))
        terms = [(lead + axis, step) for axis, (size, step) in steps if size != 1]
        places.append(form(layout.offset, terms))
    dtype = node.result.dtype
    lanes = target.lanes(ELEMENTS[dtype])
    vectors, keys = costs.ATTENTION_VECTORS, costs.ATTENTION_KEYS
    if not is_open(sizes.rows):
        vectors = min(vectors, -(-sizes.rows // lanes))
    if not is_open(sizes.keys):
        keys = min(keys, sizes.keys)
    return Attention(
        dtype,
        sizes,
        node.op is ops.attention_grad,
        attributes["causal"],
        attributes["nan_rows"],
        node.operands[3].dtype if has_mask else None,
        attributes["has_dropout"],
        tuple(places),
        (vectors * lanes, keys),
        float(attributes.get("fill", -inf)),
    )
