"""Calls of Python in a graph: their text, their invariants, and what runs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from differentiated import differentiate

from lucid.ir import ops
from lucid.ir.clone import copy_graph
from lucid.ir.errors import LucidError, MissingRuleError, NotDifferentiableError, VerifyError
from lucid.ir.graph import Graph, is_same_program
from lucid.ir.hosts import Frame
from lucid.ir.interpret import interpret
from lucid.ir.text import parse
from lucid.ir.types import TensorType, f32, f64
from lucid.ir.verify import verify

TEXT = """\
graph step(%x: f32[3]) {
  %y, %count = host Sort(%x) : (f32[3], f64[])
  host Log(%y)
  %host = host "a name"() : f32[3]
  %z = add %y, %host : f32[3]
  return %z, %count
}
"""


def sort(frame: Frame, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    frame["sorted"] = operands[0].copy()
    return [np.sort(operands[0]), np.array(3.0)]


def hosted(log: list[object]) -> Graph:
    graph = parse(TEXT)
    graph.hosts = {
        "Sort": sort,
        "Log": lambda frame, operands: log.append((frame, operands[0].tolist())) or [],
        "a name": lambda frame, operands: [np.ones(3, np.float32)],
    }
    return graph


def test_the_text_is_read_back() -> None:
    graph = parse(TEXT)
    verify(graph)
    assert str(graph) == TEXT
    assert [len(node.results) for node in graph.nodes] == [2, 0, 1, 1]


def test_a_copy_calls_the_same_functions() -> None:
    graph = hosted([])
    copied = copy_graph(graph)
    assert is_same_program(copied, graph)
    assert copied.hosts == graph.hosts and copied.hosts is not graph.hosts


def test_the_calls_of_one_run_share_a_frame() -> None:
    log: list[object] = []
    graph = hosted(log)
    for _ in range(2):
        (z, count), _ = interpret(graph, [np.array([3, 1, 2], np.float32)])
        assert z.tolist() == [2, 3, 4] and count == 3
    (first, values), (second, _) = log
    assert values == [1, 2, 3] and first is not second
    assert first["sorted"].tolist() == [3, 1, 2]


def test_calls_in_functions_are_run_too() -> None:
    text = TEXT.replace("graph step", "graph outer").replace("graph", "function")
    graph = parse(
        "graph step(%x: f32[3]) {\n  %a, %b = call outer(%x) : (f32[3], f64[])\n  return %a\n}\n"
        + text
    )
    verify(graph)
    graph.hosts = hosted([]).hosts
    assert interpret(graph, [np.array([3, 1, 2], np.float32)])[0][0].tolist() == [2, 3, 4]


def test_text_has_no_functions_to_run() -> None:
    with pytest.raises(LucidError) as caught:
        interpret(parse(TEXT), [np.zeros(3, np.float32)])
    assert str(caught.value) == (
        "host Sort: this graph has no Python function of that name\n"
        "hint: the text of a graph holds the names of host calls, not what they call; run the "
        "graph that was traced, or enter the function in `graph.hosts`"
    )


def test_the_op_alone_means_nothing() -> None:
    with pytest.raises(
        MissingRuleError, match=r"^host: only a graph that holds 'Sort' can call it"
    ):
        ops.host.infer(TensorType(f32, (3,)), function="Sort")


def test_other_attributes_are_refused() -> None:
    graph = parse(TEXT)
    graph.nodes[0].attributes["axis"] = 1
    with pytest.raises(VerifyError, match="a host call has the name of a function, and nothing el"):
        verify(graph)


def test_there_is_no_derivative_of_any_result() -> None:
    graph = Graph("step")
    x = graph.add_input(TensorType(f64, (2,)))
    node = graph.append_host("Twins", [x], [TensorType(f64, (2,))] * 2)
    y = ops.sum(node.results[1], axes=(0,))
    with pytest.raises(NotDifferentiableError, match=r"^host: there is no derivative of host"):
        differentiate(graph, y, [x])
