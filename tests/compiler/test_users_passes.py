"""`lucid.compile(function, passes=[...])`: what passes of the user's do, and when they go wrong."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.codegen.lower import legalize
from lucid.ir import Graph, LucidError, Node, Value, ops
from lucid.ir.errors import ArgumentError, OptionError, PassError, VerifyError
from lucid.ir.passes import Pipeline, Rules, rewrite

X = lucid.tensor([1.0, 2.0, 3.0])


def replaces(name: str, old: Any, new: Callable[[Node], Any]) -> Callable[[Graph], bool]:
    """A pass of that name that has what `new` makes in place of nodes of one op."""
    rules = Rules()
    rules.on(old)(new)

    def run(graph: Graph) -> bool:
        return rewrite(graph, rules)

    run.__name__ = name
    return run


def test_a_pass_changes_what_is_computed_in_one_trace() -> None:
    cosine = replaces("cosine", ops.sin, lambda node: ops.cos(*node.operands))
    step = lucid.compile(lambda x: x.sin() * 2, passes=[cosine])
    for _ in range(3):
        np.testing.assert_allclose(step(X).numpy(), X.cos().numpy() * 2, rtol=1e-6)
    assert step.stats.traces == 1 and not step.stats.eager_reasons
    assert "cos" in step.stages["cosine"] and "sin" in step.stages["trace"]
    assert step.stats.pass_seconds["cosine"] > 0


def test_what_a_pass_leaves_is_simplified() -> None:
    negations = replaces("negations", ops.exp, lambda node: ops.neg(ops.neg(*node.operands)))
    step = lucid.compile(lambda x: x.exp() + x, passes=[negations])
    assert step(X).tolist() == [2.0, 4.0, 6.0]
    assert step.stages["negations"].count("= neg") == 2
    assert "= neg" not in step.stages["optimize"]


def test_a_pass_runs_once_for_each_program() -> None:
    seen: list[int] = []

    def count(graph: Graph) -> bool:
        seen.append(len(graph.inputs))
        return True

    step = lucid.compile(lambda x: x + 1, passes=[count])
    step(X), step(X), step(lucid.ones(2, 2))
    assert seen == [1, 1]
    assert "add" in step.stages["count"]
    assert len(seen) == 3, "made again for who looks"


def test_passes_see_custom_functions_inlined_and_checkpoints_repeated() -> None:
    class Double(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            return x + x

    found: list[bool] = []

    def look(graph: Graph) -> bool:
        found.append(any(node.op is ops.call for node in graph.nodes) or bool(graph.functions))
        return False

    lucid.compile(lambda x: Double.apply(x), passes=[look])(X)
    assert found == [False]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(lucid.ones(3))

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return (x * self.weight).sin()


def exponential(graph: Graph) -> bool:
    """sin -> exp, in forwards and backwards."""
    rules = Rules()
    rules.on(ops.sin)(lambda node: cast(Value, ops.exp(*node.operands)))
    return rewrite(graph, rules)


def test_a_module_a_method_and_a_decorator_with_arguments() -> None:
    expected = X.exp().tolist()
    assert lucid.compile(Scaled(), passes=[exponential])(X).tolist() == pytest.approx(expected)

    class Holder:
        @lucid.compile(passes=(exponential,))
        def method(self, x: lucid.Tensor) -> lucid.Tensor:
            return x.sin()

    @lucid.compile(passes=[exponential])
    def decorated(x: lucid.Tensor) -> lucid.Tensor:
        return x.sin()

    assert Holder().method(X).tolist() == pytest.approx(expected)
    assert decorated(X).tolist() == pytest.approx(expected)


def test_the_backward_outside_goes_through_them_as_well() -> None:
    seen: list[str] = []

    def note(graph: Graph) -> bool:
        seen.append(graph.name)
        return False

    model = lucid.compile(Scaled(), passes=[note])
    model(X).sum().backward()
    assert seen == ["Scaled", "backward"]


def test_a_pass_may_change_the_attributes_of_a_node() -> None:
    """Nodes that do the same share them, in one trace and in later ones."""

    def takes_another_row(graph: Graph) -> bool:
        part = next(node for node in graph.nodes if node.op is ops.slice)
        part.attributes.update(starts=(1, 0), stops=(2, 3))
        return True

    def step(x: lucid.Tensor) -> lucid.Tensor:
        return x[0] + 10 * x[0]

    x = lucid.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    changed = lucid.compile(step, passes=[takes_another_row])
    np.testing.assert_array_equal(changed(x).numpy(), (x[1] + 10 * x[0]).numpy())
    np.testing.assert_array_equal(lucid.compile(step)(x).numpy(), step(x).numpy())


def test_a_pipeline_is_a_pass() -> None:
    both = Pipeline(
        "both", [exponential, replaces("tanh", ops.exp, lambda n: ops.tanh(*n.operands))]
    )
    step = lucid.compile(lambda x: x.sin(), passes=[both])
    assert step(X).tolist() == pytest.approx(X.tanh().tolist())
    names = [name for name in step.stages if name in ("both", "exponential", "tanh")]
    assert names == ["exponential", "tanh", "both"]
    broken = Pipeline("broken", [exponential, drops_what_is_needed])
    with pytest.raises(VerifyError, match="the pass drops_what_is_needed has broken the graph"):
        lucid.compile(lambda x: x.sin(), passes=[broken])(X)


def test_code_on_disk_is_not_that_of_a_function_without_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCID_CACHE_DIR", str(tmp_path))

    def body(x: lucid.Tensor) -> lucid.Tensor:
        return x.sin() * 3

    for _ in range(2):
        plain, changed = lucid.compile(body)(X), lucid.compile(body, passes=[exponential])(X)
        assert plain.tolist() == pytest.approx((X.sin() * 3).tolist())
        assert changed.tolist() == pytest.approx((X.exp() * 3).tolist())


# What goes wrong ------------------------------------------------------------------------------


def drops_what_is_needed(graph: Graph) -> bool:
    del graph.nodes[0]
    return True


def lies(graph: Graph) -> bool:
    del graph.nodes[0]
    return False


def raises(graph: Graph) -> bool:
    raise KeyError("exp")


def forgets(graph: Graph) -> None:
    """Returns nothing."""


def adds_shapes_that_do_not_fit(graph: Graph) -> bool:
    ops.add(graph.inputs[0].value, ops.reshape(graph.inputs[0].value, shape=(2,)))
    return True


def swaps_types(graph: Graph) -> bool:
    graph.outputs = [ops.cast(value, dtype=lucid.float64) for value in graph.outputs]
    return True


WRONG: list[tuple[Any, type[LucidError], str]] = [
    (
        drops_what_is_needed,
        VerifyError,
        r"the pass drops_what_is_needed has broken the graph: graph step: \w+: "
        r"operand %\S+: f32\[3\] isn't defined before it\n.*\n  from .*test_users_passes.py:\d+",
    ),
    (lies, VerifyError, "the pass lies has broken the graph: .* isn't defined before it"),
    (raises, PassError, "the pass raises has raised KeyError: 'exp'"),
    (
        forgets,
        PassError,
        "the pass forgets returned None\n"
        "hint: a pass returns whether it has changed the graph, True or False",
    ),
    (
        adds_shapes_that_do_not_fit,
        PassError,
        "the pass adds_shapes_that_do_not_fit has raised ShapeError: reshape: ",
    ),
    (
        swaps_types,
        VerifyError,
        r"the pass swaps_types has broken the graph: graph step: "
        r"the types of outputs were f32\[\], f32\[3\]; now they are f64\[\], f64\[3\]",
    ),
]


@pytest.mark.parametrize("verifying", ["0", "1"])
@pytest.mark.parametrize(
    ("run", "kind", "message"), WRONG, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_pass_that_goes_wrong_is_named_and_nothing_has_happened(
    run: Any,
    kind: type[LucidError],
    message: str,
    verifying: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LUCID_VERIFY", verifying)
    weight = nn.Parameter(lucid.ones(3))
    opt = lucid.optim.SGD([weight], lr=0.5)

    def step(x: lucid.Tensor) -> lucid.Tensor:
        opt.zero_grad()
        loss = (x * weight).sin().sum()
        loss.backward()
        opt.step()
        return loss

    compiled = lucid.compile(step, passes=[run])
    for _ in range(2):
        with pytest.raises(kind) as caught:
            compiled(X)
        assert re.match(message, str(caught.value)), str(caught.value)
        assert weight.tolist() == [1.0, 1.0, 1.0] and weight.grad is None
    assert compiled.stats.calls == 0
    assert lucid.compile(step)(X).item() == pytest.approx(float(X.sin().sum()))


def test_a_pass_that_drops_a_branch_or_a_call_of_python_is_refused() -> None:
    def unchecked(graph: Graph) -> bool:
        graph.nodes = [node for node in graph.nodes if node.op is not ops.check]
        return True

    @functools.partial(lucid.compile, passes=[unchecked])
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(
        VerifyError, match="the pass unchecked has moved or removed an exit of step"
    ):
        step(X)


@pytest.mark.parametrize("what", ["outputs", "nodes", "writes"])
def test_what_a_pass_leaves_is_looked_at_whatever_it_is(what: str) -> None:
    def broken(graph: Graph) -> bool:
        setattr(graph, what, None)
        return True

    with pytest.raises(VerifyError, match=r"^the pass broken has broken the graph: TypeError"):
        lucid.compile(lambda x: (x + 1) * 2, passes=[broken])(X)


def test_what_a_pass_makes_of_an_op_is_looked_at() -> None:
    def broken(graph: Graph) -> bool:
        for node in graph.nodes:
            node.op = "add"  # type: ignore[assignment]
        return True

    with pytest.raises(VerifyError, match=r"^the pass broken has broken the graph: Attri"):
        lucid.compile(lambda x: (x + 1) * 2, passes=[broken])(X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            exponential,
            "compile: passes is a list of functions, not function\nhint: passes=[my_pass]",
        ),
        ("cse", "compile: passes is a list of functions, not str\nhint: passes=[my_pass]"),
        (
            [exponential, "cse"],
            "compile: passes[1] is not callable, but str\n"
            "hint: a pass is a function that takes a lucid.ir.Graph and returns a bool",
        ),
    ],
)
def test_what_is_no_list_of_passes_is_refused(given: Any, message: str) -> None:
    for make in (
        lambda: lucid.compile(passes=given),
        lambda: lucid.compile(exponential, passes=given),
    ):
        with pytest.raises(ArgumentError) as caught:
            make()
        assert str(caught.value) == message


# What is printed ------------------------------------------------------------------------------


def test_the_graph_is_printed_after_the_passes_that_are_named_and_changed_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUCID_PRINT_AFTER", "cse, exponential,rematerialize")

    @lucid.compile(passes=[exponential])
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return x.sin() + x.sin()

    step(X)
    printed = capsys.readouterr().err
    assert re.findall(r"^# (.*)$", printed, re.M) == ["step after exponential", "step after cse"]
    assert printed == "".join(
        f"# step after {x}\n{step.stages[x]}\n" for x in ("exponential", "cse")
    )
    assert not capsys.readouterr().err, "looking at stages prints nothing"


def test_all_passes_can_be_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUCID_PRINT_AFTER", "all")
    step = lucid.compile(lambda x: x.sin() + x.sin())
    step(X)
    printed = re.findall(r"^# .* after (.*)$", capsys.readouterr().err, re.M)
    stages = [name for name in step.stages if name not in ("trace", "kernels", "buffers", "llvm")]
    assert printed == stages == ["cse", "simplify", "optimize", "legalize"]


def test_a_pass_that_there_is_not_is_an_error_that_names_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LUCID_PRINT_AFTER", "cse,cze")
    with pytest.raises(
        OptionError, match=r"LUCID_PRINT_AFTER: there is no pass cze; there are .*cse, "
    ):
        lucid.compile(lambda x: x + 1)(X)


def test_what_legalizes_is_a_pass_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the stages, by their names, with times and with the verifier."""
    monkeypatch.setenv("LUCID_PRINT_AFTER", "expand_scatters")
    index = lucid.tensor([[0], [6], [3], [3]])

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return x.scatter_add(1, index, lucid.ones(4, 1))

    step(lucid.zeros(4, 7))
    stages = list(step.stages)
    assert stages.index("optimize") < stages.index("expand_scatters") < stages.index("legalize")
    assert step.stats.pass_seconds["legalize"] > step.stats.pass_seconds["expand_scatters"] > 0
    text = step.stages["expand_scatters"]
    assert capsys.readouterr().err == f"# step after expand_scatters\n{text}\n"

    def loses_nodes(graph: Graph) -> bool:
        graph.nodes = []
        return True

    monkeypatch.setattr(legalize, "LEGALIZE", Pipeline("legalize", [loses_nodes]))
    with pytest.raises(VerifyError, match="the pass loses_nodes has broken the graph: graph "):
        lucid.compile(lambda x: x.sin())(X)
