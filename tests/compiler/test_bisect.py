"""`lucid.debug.bisect` names what in the compiler is wrong, and leaves a graph of a few nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.codegen.emit import lowering
from lucid.codegen.kernel_ir.affine import IndexMap
from lucid.codegen.lower import schedule
from lucid.codegen.lower.build import Builder
from lucid.codegen.lower.item import Item
from lucid.ir import Graph, ops
from lucid.ir.interpret import interpret
from lucid.ir.passes import Rules, pipeline as pipelines, rewrite
from lucid.ir.text import parse

MOST_NODES = 5


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_CACHE", "0")


def training_step(kind: Any = lucid.optim.Adam) -> tuple[Any, tuple[lucid.Tensor, lucid.Tensor]]:
    lucid.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))
    opt = kind(model.parameters(), lr=1e-2)

    @lucid.compile
    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    return step, (lucid.randn(5, 6), lucid.tensor([0, 1, 2, 1, 0]))


def bisected(path: Path, kind: Any = lucid.optim.Adam) -> Any:
    """What is found of a training step, whose file says the same as the graph."""
    step, batch = training_step(kind)
    checked = step.check(*batch)
    found = lucid.debug.bisect(step, *batch, path=path)
    assert not checked.agrees and checked.culprit == found.culprit
    assert found.graph is not None and 0 < len(found.graph.nodes) <= MOST_NODES, str(found)
    assert str(parse(path.read_text())) == str(found.graph)
    arrays = np.load(path.with_suffix(".npz"))
    interpret(found.graph, [arrays[x.value.name] for x in found.graph.inputs])
    return found


def test_a_wrong_lowering_is_one_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(lowering.RULES, "tanh", lowering.RULES["sin"])
    found = bisected(tmp_path / "small.lir")
    assert found.culprit.startswith("native code: k")
    assert [node.op for node in found.graph.nodes] == [ops.tanh]


def test_a_wrong_pass_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rules = Rules()

    @rules.on(ops.sqrt)
    def _wrong(node: Any) -> Any:
        return ops.abs(node.operands[0])

    def simplify_roots(graph: Graph) -> bool:
        return rewrite(graph, rules)

    optimize = pipelines.Pipeline("optimize", (*pipelines.optimize.passes, simplify_roots))
    monkeypatch.setattr(pipelines, "optimize", optimize)
    found = bisected(tmp_path / "small.lir")
    assert found.culprit == "simplify_roots"
    assert [node.op for node in found.graph.nodes] == [ops.sqrt]


def test_a_wrong_fusion_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A root that is divided by in its own kernel is another op; alone it is right."""
    compute = Builder._compute

    def computed(self: Builder, item: Item, forms: IndexMap) -> int:
        number = compute(self, item, forms)
        inst = self.body.insts[number]
        if inst.op == "sqrt" and any(other.op == "div" for other in self.group.items):
            self.body.insts[number] = inst._replace(op="abs")
        return number

    monkeypatch.setattr(Builder, "_compute", computed)
    found = bisected(tmp_path / "small.lir")
    assert found.culprit.startswith("kernels: k")
    assert {node.op for node in found.graph.nodes} == {ops.sqrt, ops.div}


def test_a_wrong_plan_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Temps of equal size lie at one place."""
    place = schedule.place

    def placed(lifetimes: Any) -> Any:
        offsets, size = place(lifetimes)
        first: dict[Any, int] = {}
        return {x: first.setdefault((x.dtype, x.size), at) for x, at in offsets.items()}, size

    monkeypatch.setenv("LUCID_VERIFY", "0")
    monkeypatch.setenv("LUCID_CACHE", "0")  # which would keep the wrong plan
    monkeypatch.setattr(schedule, "place", placed)
    found = bisected(tmp_path / "small.lir", lucid.optim.SGD)
    assert found.culprit.startswith("kernels: k")


def test_a_right_step_has_no_culprit(tmp_path: Path) -> None:
    step, batch = training_step()
    found = lucid.debug.bisect(step, *batch, path=tmp_path / "small.lir")
    assert (found.culprit, found.graph) == ("", None)
    assert str(found) == "the step computes what its ops mean"
    assert not [*tmp_path.iterdir()]


def test_what_is_not_compiled_is_refused() -> None:
    with pytest.raises(lucid.ArgumentError, match="bisect: function is not a compiled function"):
        lucid.debug.bisect(lambda x: x, lucid.ones(2))
