"""`dump_ir` of a part: it parses back, and computes the same as that part of the whole."""

from __future__ import annotations

import contextlib
import inspect
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.compiler.compiled import collecting
from lucid.ir import parse
from lucid.ir.graph import Graph
from lucid.ir.interpret import every_value, interpret
from lucid.ir.text.printer import value_names

ROOT = Path(__file__).resolve().parent.parent.parent


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.mlp = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


LINE = inspect.getsourcelines(Block.forward)[1] + 1


class Net(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(depth)])
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture(scope="module")
def step() -> Any:
    return trained(4)


def trained(depth: int) -> Any:
    lucid.manual_seed(0)
    model = Net(depth)
    opt = lucid.optim.Adam(model.parameters())

    @lucid.compile
    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    step(lucid.randn(5, 6), lucid.tensor([0, 1, 2, 1, 0]))
    return step


def values_for(graph: Graph) -> list[Any]:
    """Something for each input, by its name, so that equal names get equal values."""
    names, found = value_names(graph), []
    for entry in graph.inputs:
        rng = np.random.default_rng(sum(map(ord, names[entry.value])))
        type_ = entry.value.type
        if type_.dtype.is_floating_point:
            found.append(rng.random(type_.shape).astype(type_.dtype.numpy) + 0.5)
        else:
            found.append(rng.integers(0, 3, type_.shape).astype(type_.dtype.numpy))
    return found


def parsed(text: str) -> Graph:
    graph = parse(text)
    assert str(graph) == text
    return graph


def computed(graph: Graph, inputs: list[Any]) -> dict[str, np.ndarray]:
    names, values = value_names(graph), every_value(graph, inputs)
    return {names[value]: array for value, array in values.items()}


@pytest.mark.parametrize(
    "wanted",
    [
        {"module": "blocks.2"},
        {"module": "model.head"},
        {"module": "blocks.1.mlp.0", "part": "backward"},
        {"part": "forward"},
        {"part": "backward"},
        {"part": "update"},
        {"line": f"test_parts_of_dumps.py:{LINE}"},
        {"line": LINE, "part": "forward"},
        {"function": "LayerNorm"},
    ],
    ids=str,
)
def test_a_part_computes_what_it_does_in_the_whole(step: Any, wanted: dict[str, Any]) -> None:
    whole = parsed(step.dump_ir())
    known = computed(whole, values_for(whole))
    graph = parsed(step.dump_ir(**wanted))
    assert 0 < len(graph.nodes) < len(whole.nodes)
    names = value_names(graph)
    inputs = [known[names[entry.value]] for entry in graph.inputs]
    found = computed(graph, inputs)
    assert graph.outputs or graph.writes
    for name, array in found.items():
        np.testing.assert_array_equal(array, known[name])


def test_parts_are_a_partition(step: Any) -> None:
    parts = [parsed(step.dump_ir(part=part)) for part in ("forward", "backward", "update")]
    assert sum(len(part.nodes) for part in parts) == len(parsed(step.dump_ir()).nodes)
    forward, backward, update = parts
    assert not forward.writes and not backward.writes and update.writes
    assert all(node.gradient_of is None for node in forward.nodes)
    assert {node.scope for node in update.nodes} == {"opt.step"}


def test_a_modules_part_is_of_that_module_alone(step: Any) -> None:
    graph = parsed(step.dump_ir(module="blocks.2"))
    assert {node.scope.split(".")[2] for node in graph.nodes} == {"2"}
    assert {entry.source.split(".")[2] for entry in graph.inputs if entry.source} <= {"2"}


def test_what_there_is_not_is_an_error_that_lists_what_there_is(step: Any) -> None:
    with pytest.raises(lucid.ArgumentError) as error:
        step.dump_ir(module="layers.7")
    nothing = "dump_ir: there is nothing of "
    assert str(error.value).startswith(f"{nothing}module='layers.7'\nhint: there are ")
    with pytest.raises(lucid.ArgumentError, match=f"{nothing}function='Swish'; the graph has no "):
        plain = lucid.compile(lambda x: x * 2)
        plain(lucid.ones(2))
        plain.dump_ir(function="Swish")
    with pytest.raises(lucid.ArgumentError, match="part is one of forward, backward, update"):
        step.dump_ir(part="middle")
    with pytest.raises(lucid.ArgumentError, match=r"hint: there are .*LayerNorm"):
        step.dump_ir(function="Swish")


def test_repeated_layers_are_shown_once_and_compute_the_same() -> None:
    lines = []
    for depth in (3, 6):
        step = trained(depth)
        text = step.dump_ir(collapse=True)
        whole, graph = parsed(step.dump_ir()), parsed(text)
        expected, found = (interpret(x, values_for(x)) for x in (whole, graph))
        for a, b in zip((*expected[0], *expected[1]), (*found[0], *found[1]), strict=True):
            np.testing.assert_array_equal(a, b)
        assert text.count(" = call blocks(") == depth
        # The first one's input needs no gradient: its backward is another, which is there once.
        assert text.count(" = call blocks.backward(") == depth - 1
        assert text.count("function blocks {") == 1
        assert text.count("function blocks.backward {") == 1
        assert text.partition("\n}")[0].count("call Gelu.backward") == 1
        assert len(graph.nodes) < len(whole.nodes) / 2
        lines.append(len(graph.functions))
    assert lines[0] == lines[1]


def test_what_is_there_once_stays_as_it_is() -> None:
    step = lucid.compile(nn.Sequential(nn.Linear(3, 4), nn.Tanh()))
    step(lucid.ones(2, 3))
    assert step.dump_ir(collapse=True) == step.dump_ir()


def test_updates_are_collapsed_where_only_they_are_shown(step: Any) -> None:
    text = step.dump_ir(part="update", collapse=True)
    parsed(text)
    assert " = call opt.step" in text
    assert len(text.splitlines()) < len(step.dump_ir(part="update").splitlines()) * 0.65


def test_gradients_are_named_by_their_leaves(step: Any) -> None:
    text = step.dump_ir()
    assert "  %model_head_bias.grad = sum " in text
    assert "%blocks_0_mlp_0_weight.grad" in text.partition("  return ")[2]


@pytest.mark.usefixtures("known_sizes")
def test_arguments_choose_the_program() -> None:
    step = lucid.compile(lambda x: x * 2)
    for size in (3, 4, 5):
        step(lucid.ones(size))
    assert "%x: f32[4]" in step.dump_ir(lucid.ones(4)) and "%x: f32[5]" in step.dump_ir()
    assert "f32[3]" in step.stages(lucid.ones(3))["trace"]
    assert "f32[5]" in step.stages["trace"]
    assert step.stages(lucid.ones(3))["kernels"] != step.stages["kernels"]
    with pytest.raises(lucid.LucidError, match=r"dump_ir: <lambda> has no program for x: f32\[9\]"):
        step.dump_ir(lucid.ones(9))


# The digits demo trains for long: its step has a test of its own.
EXAMPLES = sorted({path.name for path in (ROOT / "examples").glob("*.py")} - {"digits.py"})
OF_KERNELS = {"kernels", "buffers", "llvm"}  # stages that aren't graphs


def assert_all_stages_compute_the_same(stages: Any) -> None:
    whole = parsed(stages["trace"])
    expected = interpret(whole, values_for(whole))
    for stage in stages.keys() - OF_KERNELS:
        graph = parsed(stages[stage])
        found = interpret(graph, values_for(graph))
        for a, b in zip((*expected[0], *expected[1]), (*found[0], *found[1]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5, err_msg=stage)


@pytest.mark.parametrize("name", EXAMPLES)
def test_dumps_of_the_examples_parse_back_and_run(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with collecting() as steps, contextlib.suppress(SystemExit):
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    dumped = 0
    for step in steps:
        for program in step._programs.all():
            dumped += 1
            assert_all_stages_compute_the_same(program.stages)
        for part in ({"collapse": True}, {"part": "forward"}) if step.stats.traces else ():
            parsed(step.dump_ir(**part))
    assert dumped or "lucid.compile" not in (ROOT / "examples" / name).read_text()


def test_dumps_of_the_digits_demo_parse_back_and_run() -> None:
    names = runpy.run_path(str(ROOT / "examples" / "digits.py"))
    trainer = names["make_trainer"](0, 4)
    trainer.train_step(lucid.randn(64, 64), lucid.zeros(64, dtype=lucid.int64))
    step = trainer.train_step
    assert_all_stages_compute_the_same(step.stages)
    for part in ("forward", "backward", "update"):
        parsed(step.dump_ir(part=part, collapse=True))
