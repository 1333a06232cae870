"""The verifier names the node, its operands and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest

from lucid.ir import ops
from lucid.ir.clone import copy_graph
from lucid.ir.errors import VerifyError
from lucid.ir.graph import Graph, Input, Value, is_same_program
from lucid.ir.text import parse
from lucid.ir.types import DType, TensorType, f32
from lucid.ir.verify import verify

TEXT = """\
graph step {
  arg   %x: f32[4,8]
  state %w: f32[8] = "w"
  live  %lr: f64[] = "lr"

  %h = call Swish(%x) : f32[4,8]
  %y = mul %h, %w @1
  %s = sum %y {axes = [0]}
  write %w, %s
  return %s
}
function Swish(%x: f32[4,8]) {
  %y = call Inner(%x) : f32[4,8]
  return %y
}
function Inner(%x: f32[4,8]) {
  %y = sigmoid %x
  return %y
}
loc @1 net.py:3 "y = h * self.w"
"""
MUL = "\n  node: mul(%h: f32[4,8], %w: f32[8])\n  from net.py:3   y = h * self.w"
SUM = "\n  node: sum(%y: f32[4,8])"
RULE = "graph step: sum: its type rule refuses it: sum: "
AXES = "axes is a list of whole numbers of 64 bits, such as [2,3]"
CALL = "\n  node: call(%x: f32[4,8])"


def test_a_well_formed_graph_and_its_copy_pass() -> None:
    graph = parse(TEXT)
    verify(graph)
    copied = copy_graph(graph)
    verify(copied)
    assert is_same_program(copied, graph)
    assert not set(copied.values()) & set(graph.values())


def move_last_first(graph: Graph) -> None:
    graph.nodes.insert(0, graph.nodes.pop())


def foreign_operand(graph: Graph) -> None:
    node = graph.nodes[1]
    node.operands = (node.operands[0], Graph("other").add_input(TensorType(f32, (8,)), name="o"))


def twice(graph: Graph) -> None:
    graph.nodes.append(graph.nodes[1])


def wrong_type(graph: Graph) -> None:
    node = graph.nodes[1]
    node.results = (Value(TensorType(f32, (8, 4)), graph, node, 0, "y"),)


def stolen_result(graph: Graph) -> None:
    graph.nodes[1].results[0].producer = graph.nodes[0]


def refused(graph: Graph) -> None:
    graph.nodes[2].attributes["axes"] = (2,)


def list_attribute(graph: Graph) -> None:
    graph.nodes[2].attributes["axes"] = [0]


def array_attribute(graph: Graph) -> None:
    graph.nodes[2].attributes["axes"] = (np.zeros(1),)


def nested_attribute(graph: Graph) -> None:
    graph.nodes[2].attributes["axes"] = ((0,),)


def bool_for_axes(graph: Graph) -> None:
    graph.nodes[2].attributes["axes"] = True


def vast_axis(graph: Graph) -> None:
    graph.nodes[2].attributes["axes"] = (2**63,)


def missing_attribute(graph: Graph) -> None:
    del graph.nodes[2].attributes["axes"]


def missing_operand(graph: Graph) -> None:
    graph.nodes[2].operands = ()


def no_dtype(graph: Graph) -> None:
    value = graph.inputs[1].value
    value._type = TensorType(cast(DType, 64), value.shape)


def no_function(graph: Graph) -> None:
    del graph.functions["Swish"]


def wrong_operands(graph: Graph) -> None:
    graph.nodes[0].operands = (graph.inputs[1].value,)


def wrong_results(graph: Graph) -> None:
    node = graph.nodes[0]
    node.results = (Value(TensorType(f32, (4,)), graph, node, 0, "h"),)


def no_results(graph: Graph) -> None:
    graph.nodes[0].results = ()


def foreign_output(graph: Graph) -> None:
    graph.outputs = [Graph("other").add_input(TensorType(f32, (8,)), name="o")]


def write_to_live(graph: Graph) -> None:
    graph.writes = [(graph.inputs[2].value, graph.inputs[2].value)]


def write_twice(graph: Graph) -> None:
    graph.writes *= 2


def write_other_type(graph: Graph) -> None:
    graph.writes = [(graph.inputs[1].value, graph.inputs[0].value)]


def write_foreign(graph: Graph) -> None:
    foreign = Graph("other").add_input(TensorType(f32, (8,)), name="o")
    graph.writes = [(graph.inputs[1].value, foreign)]


def same_input_twice(graph: Graph) -> None:
    graph.inputs.append(Input(graph.inputs[1].value, "arg"))


def strange_kind(graph: Graph) -> None:
    graph.inputs[0].kind = "weight"


def live_array(graph: Graph) -> None:
    graph.inputs[0].kind = "live"


def misfiled(graph: Graph) -> None:
    graph.functions["Other"] = graph.functions["Inner"]


def function_with_state(graph: Graph) -> None:
    body = graph.functions["Inner"]
    body.writes = [(body.inputs[0].value, body.inputs[0].value)]


def recursive(graph: Graph) -> None:
    inner = graph.functions["Inner"]
    node = copy_graph(graph.functions["Swish"]).nodes[0]
    node.attributes["function"] = "Swish"
    node.operands = (inner.inputs[0].value,)
    for result in node.results:
        result.graph = inner
    inner.nodes.append(node)


def bad_function_body(graph: Graph) -> None:
    graph.functions["Inner"].nodes = []


BROKEN: list[tuple[Callable[[Graph], None], str]] = [
    (move_last_first, f"graph step: sum: operand %y: f32[4,8] isn't defined before it{SUM}"),
    (
        foreign_operand,
        "graph step: mul: operand %o: f32[8] belongs to another graph"
        "\n  node: mul(%h: f32[4,8], %o: f32[8])\n  from net.py:3   y = h * self.w",
    ),
    (twice, f"graph step: mul: %y: f32[4,8] is defined twice{MUL}"),
    (wrong_type, f"graph step: mul: its type is f32[4,8], not f32[8,4]{MUL}"),
    (stolen_result, f"graph step: mul: result %y: f32[4,8] says that another node made it{MUL}"),
    (list_attribute, f"graph step: sum: attribute axes = [0] isn't a plain value{SUM}"),
    (
        array_attribute,
        f"graph step: sum: attribute axes = (array([0.]),) isn't a plain value{SUM}",
    ),
    (nested_attribute, f"graph step: sum: attribute axes = ((0,),) isn't a plain value{SUM}"),
    (bool_for_axes, f"{RULE}{AXES}, not True{SUM}"),
    (vast_axis, f"{RULE}{AXES}, not (9223372036854775808,){SUM}"),
    (missing_attribute, f"{RULE}the attribute axes is missing{SUM}"),
    (missing_operand, f"{RULE}takes 1 operands, not 0\n  node: sum()"),
    (no_dtype, "graph step: %w is of no dtype 64"),
    (no_function, f"graph step: call: no function Swish{CALL}"),
    (
        wrong_operands,
        "graph step: call: Swish takes (f32[4,8])\n  node: call(%w: f32[8])",
    ),
    (wrong_results, f"graph step: call: Swish returns (f32[4,8]){CALL}"),
    (no_results, f"graph step: call: the call of Swish has no result{CALL}"),
    (foreign_output, "graph step: the output %o: f32[8] isn't computed in it"),
    (write_to_live, "graph step: %lr: f64[] is written and is no state or argument"),
    (write_twice, "graph step: %w: f32[8] is written twice"),
    (write_other_type, "graph step: %w: f32[8] is written with a value of type f32[4,8]"),
    (write_foreign, "graph step: what is written to %w: f32[8] isn't computed in it"),
    (same_input_twice, "graph step: input 3, %w: f32[8], has a producer or other index"),
    (strange_kind, "graph step: input %x: f32[4,8] is of no kind 'weight'"),
    (live_array, "graph step: live input %x: f32[4,8] isn't an f64[] or i64[]"),
    (misfiled, "graph step: function Inner is filed under Other"),
    (function_with_state, "function Inner has functions or writes of its own"),
    (recursive, "graph step: Swish calls Inner calls Swish"),
    (bad_function_body, "graph Inner: the output %y: f32[4,8] isn't computed in it"),
]


@pytest.mark.parametrize(
    ("break_it", "message"), BROKEN, ids=lambda case: getattr(case, "__name__", "")
)
def test_a_broken_graph_is_described(break_it: Callable[[Graph], None], message: str) -> None:
    graph = parse(TEXT)
    break_it(graph)
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    assert str(caught.value) == message


def test_the_type_rule_speaks_for_itself() -> None:
    graph = parse(TEXT)
    refused(graph)
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    message = str(caught.value)
    assert message.startswith("graph step: sum: its type rule refuses it: sum: ")
    assert message.endswith(SUM)


def test_an_attribute_that_a_rule_does_not_know_is_refused() -> None:
    graph = parse("graph g(%x: f32[3]) { %y = neg %x return %y }")
    graph.nodes[0].attributes["axis"] = 0
    with pytest.raises(VerifyError, match="its type rule refuses it"):
        verify(graph)


def test_ops_are_what_the_graph_is_made_of() -> None:
    graph = Graph("built")
    x = graph.add_input(TensorType(f32, (4, 8)))
    graph.outputs = [ops.sum(x * 2.0, axes=(1,))]
    verify(graph)
