"""Dumps read like the user's program: names of inputs, of what lines assign, and each stage."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function
from lucid.compiler.recording.names import assigned_name
from lucid.ir import parse
from lucid.ir.location import Location


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        gate = lucid.sigmoid(x)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx, g):
        x, gate = ctx.saved_tensors
        return g * gate * (1 + x * (1 - gate))


def trained():
    layer = nn.Linear(4, 3)
    opt = lucid.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    @lucid.compile
    def step(batch, target):
        opt.zero_grad()
        hidden = Swish.apply(layer(batch))
        loss = F.mse_loss(hidden, target)
        loss.backward()
        opt.step()
        return loss

    step(lucid.ones(5, 4), lucid.zeros(5, 3))
    return step


def test_names_are_the_users():
    text = trained().dump_ir()
    for line in (
        "  arg   %batch: f32[5,4]",
        "  arg   %target: f32[5,3]",
        "%layer_weight: f32[3,4]",
        '= "layer.weight"  // written',
        "  live  %lr: f64[]",
        "opt.param_groups[0]['lr']",
        "opt.state[layer.weight]['momentum_buffer']",
        ", %hidden = call Swish(",
        "  %loss = ",
        "  return %loss, ",
        "function Swish(",
        "  %gate = sigmoid %",
    ):
        assert line in text, text


def test_every_stage_of_the_graph_parses_back():
    step = trained()
    graphs = ["trace", "inline", "canonicalize", "constant_fold", "cse", "canonicalize 2"]
    graphs += ["simplify", "optimize", "legalize"]
    assert list(step.stages) == [*graphs, "kernels", "buffers", "llvm"]
    for name in graphs:
        assert str(parse(step.stages[name])) == step.stages[name]
    assert "call Swish" in step.stages["trace"] and "call" not in step.stages["inline"]
    assert step.dump_llvm() == step.stages["llvm"] and step.dump_ir() == step.stages["trace"]


def test_a_stage_that_there_is_not_is_named() -> None:
    step = lucid.compile(lambda x: x + 1)
    step(lucid.ones(2))
    for name in ("nothing", 5, []):
        with pytest.raises(lucid.LucidError, match=r"^stages: there is no stage"):
            step.stages[name]  # type: ignore[index]


def test_the_kernels_and_their_dependences_are_a_graph_of_networkx(tmp_path: Path) -> None:
    step = trained()
    graph = step.kernel_graph()
    kinds = networkx.get_node_attributes(graph, "kind")
    first = next(number for number, kind in kinds.items() if kind == "contract")
    assert len(graph) == len(step.profile(lucid.ones(5, 4), lucid.zeros(5, 3), calls=1).rows)
    assert all(before < after for before, after in graph.edges)
    assert all(networkx.has_path(graph, first, n) for n in graph if graph.nodes[n]["ops"] == "sub")
    assert {why for *_, why in graph.edges(data="dependence")} <= {"flow", "anti", "flow anti"}
    assert graph.nodes[first]["label"].startswith("k0 contract: matmul, ")
    networkx.write_graphml(graph, tmp_path / "step.graphml")
    read = networkx.read_graphml(tmp_path / "step.graphml", node_type=int)
    assert networkx.utils.edges_equal(read.edges(data=True), graph.edges(data=True))
    assert networkx.utils.nodes_equal(read.nodes(data=True), graph.nodes(data=True))


def test_the_new_state_waits_for_all_who_read_the_old_one() -> None:
    weight = lucid.ones(64, 64, requires_grad=True)

    @lucid.compile
    def step(x):
        y = x @ weight
        weight.data.copy_(y.detach().exp())
        return weight.sum(), (x @ weight.t()).sum()

    step(lucid.ones(64, 64))
    graph = step.kernel_graph()
    copy = next(n for n, kind in graph.nodes(data="kind") if kind == "copy")
    assert graph.edges[0, copy] == {"dependence": "flow anti", "buffers": "temp0 input1"}


def test_what_a_line_assigns():
    cases = {
        "h = F.relu(z)": "h",
        "self.hidden = h": "hidden",
        "loss: Tensor = a + b": "loss",
        "y += x": "y",
        "out = step(": "out",
        "a, b = c": "",
        "a = b = c": "a",
        "x[0] = 1": "",
        "return x": "",
        "if x == y:": "",
        "f(a=1)": "",
        "f(a=1,": "",
        "": "",
    }
    for text, name in cases.items():
        assert assigned_name(Location("train.py", 1, text)) == name, text
