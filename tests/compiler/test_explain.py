"""`step.explain()` and `step.stats`: why a step is as it is."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from typing import Any

import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.ir import parse

scale = 2.0


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def retraced(*calls: Any, step: Any) -> Any:
    for call in calls:
        call()
    assert step.stats.traces == 2, step.stats
    return step.explain().stats.history[-1]


def a_step() -> Any:
    return lucid.compile(lambda x, n=1: x * n)


@pytest.mark.parametrize(
    ("kind", "reason", "first", "second"),
    [
        ("shape", "x: f32[3] -> f32[4]", (lucid.ones(3),), (lucid.ones(4),)),
        ("dtype", "x: f32[3] -> f64[3]", (lucid.ones(3),), (lucid.ones(3).double(),)),
        (
            "layout",
            "x: f32[3,2] -> f32[3,2] of strides (1, 3)",
            (lucid.ones(3, 2),),
            (lucid.ones(2, 3).T,),
        ),
        (
            "flag",
            "x: f32[3] -> f32[3] that requires grad",
            (lucid.ones(3),),
            (lucid.ones(3).requires_grad_(),),
        ),
        ("scalar", "n: int 2 -> int 3", (lucid.ones(3), 2), (lucid.ones(3), 3)),
        (
            "structure",
            "x['a']: f32[3] -> absent; x: absent -> f32[3]",
            ({"a": lucid.ones(3)},),
            (lucid.ones(3),),
        ),
    ],
)
def test_a_retrace_for_what_the_call_is_given_is_one_line(
    kind: str, reason: str, first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    @lucid.compile
    def step(x, n=1):
        return (x["a"] if isinstance(x, dict) else x) * n

    step(*first)
    step(*second)  # this line
    (_, traced) = step.stats.history
    line = line_of(
        test_a_retrace_for_what_the_call_is_given_is_one_line, "step(*second)  # this line"
    )
    assert (traced.kind, traced.location.line) == (kind, line)
    assert reason in traced.reason
    assert "\n" not in str(traced)
    assert str(traced).startswith(f"{kind}: ") and f"at test_explain.py:{line}" in str(traced)
    assert f"  traced for {traced}" in str(step.explain())


def test_a_retrace_is_explained_by_the_most_similar_call_before() -> None:
    """Of a tensor, its dtype, its shape and the rest count: here one of them is new each time."""
    step = lucid.compile(lambda x: x * 2)
    step(lucid.ones(4, 3))
    step(lucid.ones(5, 3, dtype=lucid.float64))
    step(lucid.ones(4, 3, requires_grad=True))
    step(lucid.ones(5, 3))
    reasons = [(traced.kind, traced.reason) for traced in step.stats.history[2:]]
    assert reasons == [
        ("flag", "x: f32[4,3] -> f32[4,3] that requires grad"),
        ("dtype", "x: f64[5,3] -> f32[5,3]"),
    ]


def test_a_retrace_for_a_mode_is_one_line() -> None:
    step = a_step()
    step(lucid.ones(3))
    with lucid.no_grad():
        step(lucid.ones(3))
    assert str(step.stats.history[1]).startswith("mode: grad mode: on -> off   at test_explain.py:")

    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout())
    net = lucid.compile(lambda x: model(x))
    net(lucid.ones(3))
    model.eval()
    net(lucid.ones(3))
    traced = net.stats.history[1]
    assert (traced.kind, traced.reason) == ("mode", "model.training: True -> False")
    assert traced.location.text == "net = lucid.compile(lambda x: model(x))"


def test_a_retrace_for_a_guard_names_the_line_that_reads() -> None:
    global scale

    @lucid.compile
    def step(x):
        y = x + 1
        return y * scale

    scale = 2.0
    step(lucid.ones(3))
    scale = 3.0
    step(lucid.ones(3))
    traced = step.stats.history[1]
    assert (traced.kind, traced.reason) == ("guard", "scale: 2.0 -> 3.0")
    assert traced.location.line == line_of(step.__wrapped__, "y * scale")


def test_a_path_says_the_branch_and_its_outcomes() -> None:
    @lucid.compile
    def step(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    for sign in (1, -1, 1, -1):
        step(lucid.ones(3) * sign)
    traced = step.stats.history[1]
    line = line_of(step.__wrapped__, "if x.sum()")
    assert traced.kind == "path" and str(traced).endswith(": 1 -> 0")
    assert f"at test_explain.py:{line}   if x.sum() > 0:" in str(traced)
    answers = [answer for _, answer in step.explain().branches]
    assert answers in ([0], [1])
    assert [served.path for served in step.stats.programs] == [(1,), (0,)]


def test_each_program_says_how_many_calls_it_served() -> None:
    @lucid.compile
    def step(x):
        return x * 2

    for size, count in ((3, 7), (4, 5), (3, 2)):
        x = lucid.ones(size)
        for _ in range(count):
            step(x)
    assert [served.calls for served in step.stats.programs] == [9, 5]
    assert [served.signature for served in step.stats.programs] == ["x: f32[3]", "x: f32[4]"]
    assert sum(served.calls for served in step.stats.programs) == step.stats.calls
    head, titles, first, _, _ = str(step.stats).splitlines()
    assert head.startswith("calls 14, traces 2, exits 0, op by op 0, from the cache ")
    assert titles.split() == ["calls", "path", "signature"]
    assert first.split() == ["9", "x:", "f32[3]"]


def test_the_paths_of_one_signature_are_counted_apart() -> None:
    @lucid.compile
    def step(x):
        return x + 1 if x.sum() > 0 else x - 1

    for sign in (1, 1, -1, 1, 1, 1, -1, -1, -1, -1):
        step(lucid.ones(3) * sign)
    assert {x.path: x.calls for x in step.stats.programs} == {(1,): 5, (0,): 5}


def trained(*, zero_last: bool) -> Any:
    layer = nn.Linear(4, 3)
    optimizer = lucid.optim.SGD(layer.parameters(), lr=0.1)

    @lucid.compile
    def step(x):
        if not zero_last:
            optimizer.zero_grad()
        F.relu(layer(x)).square().mean().backward()
        optimizer.step()
        if zero_last:
            optimizer.zero_grad()

    step(lucid.ones(5, 4))
    return step


def test_gradients_are_stored_where_others_may_read_them() -> None:
    stored = trained(zero_last=False).explain().gradients
    assert {(x.leaf, x.is_stored) for x in stored} == {
        ("layer.weight", True),
        ("layer.bias", True),
    }
    gone = trained(zero_last=True).explain()
    assert {(x.leaf, x.is_stored) for x in gone.gradients} == {
        ("layer.weight", False),
        ("layer.bias", False),
    }
    assert "not stored: layer.bias, layer.weight" in str(gone) or (
        "not stored: layer.weight, layer.bias" in str(gone)
    )


def reasons(function: Any, *args: lucid.Tensor) -> dict[tuple[str, str], str]:
    step = lucid.compile(function)
    step(*args)
    return {other.ops: other.why for kernel in step.explain().kernels for other in kernel.apart}


def chain(x: lucid.Tensor) -> lucid.Tensor:
    for _ in range(14):
        x = (x * 1.5).tanh()
    return x


def test_what_keeps_two_kernels_apart_is_said() -> None:
    x = lucid.randn(40, 30)
    assert reasons(lambda x: (x.exp() + 1).sum(), x) == {}
    products = reasons(lambda x: ((x @ x.T).exp() + 1).sum(), x)
    assert products == {("exp", "add"): "all that reads it sums it, in loops of their own"}
    axes = reasons(lambda x: x.sum(0).exp().sum() + x.sum(1).sum(), x)
    assert axes["exp", "sum"] == "it goes over other axes than the other's sums"
    scan = reasons(lambda x: x.softmax(0).cumsum(1).exp(), x)
    assert scan["cumsum", "exp"] == "the loop of cumsum takes in nothing more"
    sort = reasons(lambda x: x.exp().sort().values * 2, x)
    assert sort["exp", "argsort"] == "argsort is a kernel of its own"
    beside = reasons(lambda x: (x.sum(0), x.amax(1)), x)
    assert beside["sum", "amax"] == "they sum over different axes"
    much = reasons(lambda x: (chain(x), chain(x.sin())), x)
    assert much["mul", "sin"] == "one kernel would compute too much at a time"
    product = reasons(lambda x: x.exp() @ x.T, x)
    assert product["exp", "matmul"] == "matmul reads elements of it in an order of its own"


def test_kernels_memory_and_compile_time_are_those_of_the_step() -> None:
    step = trained(zero_last=False)
    explanation = step.explain()
    executable = step._programs.latest.executable
    assert len(explanation.kernels) == executable.kernel_count == step.stats.history[0].kernels
    assert all(kernel.seconds > 0 for kernel in explanation.kernels)
    memory = explanation.memory
    assert (memory.arguments, memory.state, memory.written) == (5 * 4 * 4, 60, 60)
    assert memory.results == 60  # the gradients
    assert all(x.offset + x.bytes <= memory.arena for x in memory.temps)
    assert {"trace", "passes"} < explanation.stage_seconds.keys()
    assert step.stats.restarts == 0
    assert sum(explanation.stage_seconds.values()) == pytest.approx(step.stats.compile_seconds)


def test_what_a_backward_outside_needs_is_said() -> None:
    layer = nn.Linear(4, 30)
    model = lucid.compile(lambda x: layer(x).sigmoid().exp())
    model(lucid.ones(3, 4)).sum().backward()
    found = model.explain().residuals
    assert found and all(text.startswith(("kept, ", "computed again: ")) for text in found)
    assert "kept for a backward outside:" in str(model.explain())


def test_what_ran_op_by_op_is_said(caplog: pytest.LogCaptureFixture) -> None:
    @lucid.compile
    def step(x):
        return x * len(f"{x.sum().item():.3f}")

    step(lucid.ones(3))
    assert step.stats.eager_reasons and not step.stats.traces
    found = step.explain()
    (reason,) = found.eager
    assert reason.split("\n")[0] in str(found) and ", op by op 1, " in str(found)
    assert found.to_dict()["memory"] is None and "compile time" not in str(found)
    with pytest.raises(lucid.LucidError) as error:
        step.dump_ir()
    assert str(error.value) == f"step has only run op by op, so nothing is compiled: {reason}"
    assert "op by op, 1 calls: " in str(step.stats)


def test_it_is_short_unless_all_is_asked_for_and_plain_data() -> None:
    torso = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(9)])
    optimizer = lucid.optim.Adam(torso.parameters())

    @lucid.compile
    def step(x):
        optimizer.zero_grad()
        torso(x).square().mean().backward()
        optimizer.step()

    step(lucid.ones(5, 8))
    short, full = step.explain(), step.explain(full=True)
    assert len(str(short).splitlines()) < 70 < len(str(full).splitlines())
    assert "more: explain(full=True)" in str(short) and "explain(full=True)" not in str(full)
    found = json.loads(json.dumps(short.to_dict()))
    assert found == json.loads(json.dumps(full.to_dict()))
    assert found["counts"]["traces"] == 1 and len(found["kernels"]) == len(short.kernels)
    assert found["programs"] == [{"signature": "x: f32[5,8]", "path": [], "calls": 1}]


def test_arguments_choose_the_program() -> None:
    step = a_step()
    step(lucid.ones(3))
    step(lucid.ones(4))
    assert step.explain(lucid.ones(3)).signature == "x: f32[3]"
    assert step.explain().signature == "x: f32[4]"
    with pytest.raises(lucid.LucidError) as error:
        step.explain(lucid.ones(5))
    assert str(error.value) == (
        "explain: <lambda> has no program for x: f32[5]\n"
        "  there are programs for x: f32[3]; x: f32[4]\n"
        "hint: call it with these arguments first"
    )
    assert step.stats.calls == 2


def test_the_backward_outside_of_a_compiled_module_is_explained_and_dumped() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    compiled = lucid.compile(model)
    loss = compiled(lucid.ones(5, 4)).sum()
    assert compiled.explain().backward == ()
    with pytest.raises(lucid.ArgumentError, match="dump_ir: there is nothing of part='backward'"):
        compiled.dump_ir(part="backward")
    loss.backward()
    explanation = compiled.explain()
    text = str(explanation).partition("kernels of the backward outside, by ")[2]
    assert {"matmul", "sum"} <= {op for kernel in explanation.backward for op in kernel.ops}
    assert all(kernel.place.startswith("grad of ") for kernel in explanation.backward)
    assert f"{len(explanation.backward)} calls" in text and "a Sequential.0" in text
    assert len(explanation.to_dict()["backward"]) == len(explanation.backward)
    graph = parse(compiled.dump_ir(part="backward"))
    assert [tuple(value.type.shape) for value in graph.outputs] == [(2,), (2, 6), (6,), (6, 4)]
    part = parse(compiled.dump_ir(part="backward", module="a Sequential.2"))
    assert 0 < len(part.nodes) < len(graph.nodes)


def test_the_calls_of_one_kernel_are_one_row_unless_all_is_asked_for() -> None:
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
    step = lucid.compile(nn.Sequential(*layers))
    step(lucid.ones(8, 16))
    explanation = step.explain()
    names = [kernel.name for kernel in explanation.kernels]
    (name,) = {name for name in names if names.count(name) > 1}

    def rows(text: str) -> list[str]:
        listed = text.partition("kernels, by")[2].partition("kept apart")[0].splitlines()
        return [row for row in listed if f" {name} " in row]

    (row,) = rows(str(explanation))
    assert row.split()[2] == str(names.count(name))
    assert len(rows(str(step.explain(full=True)))) == names.count(name)


def test_statistics_are_pickled_and_copied_as_they_are_now() -> None:
    step = lucid.compile(lambda x: 2 * x)
    for size in (2, 3, 3):
        step(lucid.ones(size))
    kept, copied = pickle.loads(pickle.dumps(step.stats)), copy.deepcopy(step.stats)
    before = str(step.stats)
    step(lucid.ones(3))
    assert str(kept) == str(copied) == before != str(step.stats)
    assert kept.calls == 3 and [served.calls for served in kept.programs] == [1, 2]
