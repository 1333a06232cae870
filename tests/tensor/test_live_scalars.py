"""A live scalar is a Python float to every function, and none of them looks at its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucid
from lucid.compiler.recording.recorder import Recorder, recording

x = lucid.ones(3)
z = lucid.arange(3)

USES: dict[str, Callable[[Any], Any]] = {
    "mul": lambda lr: x * lr,
    "rmul": lambda lr: lr * x,
    "of integers": lambda lr: z * lr,
    "div": lambda lr: x / lr,
    "pow": lambda lr: x**lr,
    "rpow": lambda lr: lr**x,
    "alpha": lambda lr: x.add(x, alpha=lr),
    "in place": lambda lr: (x * 1).add_(x, alpha=-lr),
    "lerp": lambda lr: x.lerp(x, lr),
    "addcdiv": lambda lr: x.addcdiv(x, x, value=-lr),
    "addmm": lambda lr: lucid.addmm(x, lucid.eye(3), lucid.eye(3), alpha=lr),
    "clamp": lambda lr: x.clamp(-lr, lr),
    "compare": lambda lr: x == lr,
    "where": lambda lr: lucid.where(x > lr, x, lr),
    "masked_fill": lambda lr: x.masked_fill(x > 0, lr),
    "full": lambda lr: lucid.full((2,), lr),
    "tensor": lambda lr: lucid.tensor(lr),
    "fill_": lambda lr: lucid.zeros(2).fill_(lr),
    "setitem": lambda lr: (x * 1).__setitem__(0, lr),
    "softplus": lambda lr: x.softplus(lr),
}


@pytest.mark.parametrize("name", USES)
def test_using_it_guards_nothing(name: str) -> None:
    recorder = Recorder("step")
    with recording(recorder):
        USES[name](recorder.live_scalar("lr", 0.5, lambda call: 0.5))
    assert recorder.formulas == {}
    (live,) = [entry.value for entry in recorder.graph.inputs if entry.kind == "live"]
    assert any(live in node.operands for node in recorder.graph.nodes)
    recorder.restore(True)


def test_what_a_function_checks_of_it_guards_the_step_by_the_answer() -> None:
    recorder = Recorder("step")
    with recording(recorder):
        lr = recorder.live_scalar("lr", 0.5, lambda call: 0.5)
        x.bernoulli(lr)
        x.quantile(lr)
        lucid.addmm(x, lucid.eye(3), lucid.eye(3), beta=lr)
    answers = {text: guard.expected for text, guard in recorder.formulas.items()}
    assert answers == {"lr >= 0": True, "lr <= 1": True, "lr == 0": False}
    recorder.restore(True)


def test_as_an_integer_it_is_guarded_by_its_range_alone() -> None:
    recorder = Recorder("step")
    with recording(recorder):
        (z * 1).fill_(recorder.live_scalar("lr", 2.5, lambda call: 2.5))
        _ = z + recorder.live_scalar("count", 3, lambda call: 3)
    live = [entry for entry in recorder.graph.inputs if entry.kind == "live"]
    assert [(entry.source, entry.value.dtype) for entry in live] == [
        ("lr", lucid.float64),
        ("int(lr)", lucid.int64),
        ("count", lucid.int64),
    ]
    assert not any("==" in text for text in recorder.formulas)
    assert recorder.formulas["type(int(lr))"].expected is int
    assert all(g.expected in (int, True) for g in recorder.formulas.values())
    recorder.restore(True)


def test_where_shapes_depend_on_it_the_step_is_specialized() -> None:
    recorder = Recorder("step")
    with recording(recorder):
        live = recorder.live_scalar("count", 3, lambda call: 3)
        assert lucid.arange(live).shape == (3,)
        assert lucid.tensor(live).dtype is lucid.int64
    assert next(iter(recorder.formulas)) == "int(count)"
    assert [g.expected for g in recorder.formulas.values()] == [3, True]  # and it fits an i64
    recorder.restore(True)
