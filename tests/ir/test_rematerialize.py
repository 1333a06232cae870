"""Checkpointed blocks of graphs: what is computed again means the same as the first time."""

from __future__ import annotations

import numpy as np
import pytest
from differentiated import random_gradient
from fuzzing import many

from lucid.ir import ops
from lucid.ir.graph import Graph, Node, Region, Value, is_same_program
from lucid.ir.interpret import interpret
from lucid.ir.passes import optimize, rematerialize
from lucid.ir.text import parse
from lucid.ir.verify import verify
from lucid.runtime import compile_graph


def checkpointed(graph: Graph, rng: np.random.Generator) -> dict[Value, Region]:
    """Cut the forward of a graph into blocks, and let its backward read them behind barriers."""
    forward = [node for node in graph.nodes if node.gradient_of is None]
    open_blocks: list[Region | None] = [None]
    saved: dict[Value, Region] = {}
    for node in forward:
        if rng.integers(3) == 0 and len(open_blocks) < 4:
            open_blocks.append(Region("Block", None, open_blocks[-1], "checkpoint"))
        elif rng.integers(4) == 0 and len(open_blocks) > 1:
            open_blocks.pop()
        node.region = block = open_blocks[-1]
        if block is not None:
            saved |= dict.fromkeys(node.results, block)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.gradient_of is not None:
            asks = {x: Node(ops.barrier, (x,), {}, (x.type,), graph) for x in node.operands}
            for value, ask in asks.items():
                if value in saved:
                    ask.region = saved[value]
                    nodes.append(ask)
            node.operands = tuple(asks[x].result if x in saved else x for x in node.operands)
        nodes.append(node)
    graph.nodes = nodes
    return saved


@pytest.mark.parametrize("seed", range(many(20)))
def test_what_is_computed_again_means_the_same(seed: int) -> None:
    graph, arrays, expected = random_gradient(seed)
    saved = checkpointed(graph, np.random.default_rng(seed))
    verify(graph)
    assert is_same_program(parse(str(graph)), graph)
    before = graph.nodes
    assert rematerialize(graph) == any(node.op is ops.barrier for node in before)
    verify(graph)
    for found, value in zip(interpret(graph, arrays)[0], expected, strict=True):
        np.testing.assert_array_equal(found, value)
    for node in graph.nodes:
        if node.gradient_of is not None and (node.region is None or node.region.kind != "repeated"):
            read = [x for x in node.operands if x in saved and x.producer and x.producer.operands]
            assert not read, "the backward reads the first computation"
    assert not rematerialize(graph)
    optimize(graph)
    found = compile_graph(graph).call(arrays)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_an_ask_of_no_block_reads_the_value_itself() -> None:
    graph = parse("graph g(%x: f32[4,8]) {\n  %a = barrier %x : f32[4,8]\n  return %a\n}\n")
    assert rematerialize(graph)
    assert str(graph) == "graph g(%x: f32[4,8]) {\n  return %x\n}\n"
