"""Calls that make sense op by op only: each runs in eager mode, with one reason."""

from __future__ import annotations

import sys

import pytest

import lucid
from lucid import nn

STATE = lucid.ones(3, 4)
LEAF = lucid.ones(3, requires_grad=True)


def assert_reasons(steps, reason):
    """Each call ran op by op, with the same reason."""
    for step in steps:
        assert step.stats.calls == 0
        assert set(step.stats.eager_reasons) == {reason}


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.data_ptr() == x[1:].data_ptr(),
        lambda x: (x * 2).data_ptr() % 4,
        lambda x: {STATE.data_ptr(): x * 2}[STATE.data_ptr()],
    ],
    ids=["of an argument", "of a result", "of state"],
)
def test_a_call_that_asks_for_an_address_runs_op_by_op(agree, use):
    def scenario(compile):
        step = compile(lambda x: [use(x), x.sum()])
        return [step(lucid.ones(3, 4)) for _ in range(3)]

    reason = "it asks for the address of a tensor, by data_ptr()"
    assert_reasons(agree(scenario, traces=0), reason)


@pytest.mark.parametrize(
    "version",
    [
        lambda x: x._version,
        lambda x: x[1:].detach()._version,
        lambda x: x.add_(1)._version,
        lambda x: STATE._version,
        lambda x: STATE.detach()._version,
        lambda x: LEAF.grad._version,
        lambda x: x * 2 if x._version > 1 else x * 3,
        lambda x: (x * 2).add_(1)._version,
    ],
    ids=["argument", "view", "written", "state", "alias of state", "gradient", "branch", "own"],
)
def test_a_call_that_asks_for_the_version_of_what_it_finds_runs_op_by_op(agree, version):
    def scenario(compile):
        x = lucid.ones(3, 4)
        LEAF.grad = lucid.ones(3)
        step = compile(lambda x: [version(x), x.sum()])
        found = []
        for _ in range(3):
            found.append(step(x))
            x.mul_(2)
            LEAF.grad.add_(1)
        return found

    reason = "it asks for the _version of a tensor"
    assert_reasons(agree(scenario, traces=0), reason)


def test_a_call_that_catches_all_that_its_trace_may_not_do_runs_op_by_op(agree):
    def scenario(compile):
        numbers = iter(range(10))

        def step(x):
            try:
                return x * next(numbers)
            except:  # noqa: E722 - as users write it
                return x

        step = compile(step)
        return [step(LEAF.detach()) for _ in range(3)]

    for step in agree(scenario):
        assert step.stats.calls == 0
        assert all("it advances numbers" in reason for reason in step.stats.eager_reasons)


def test_named_tuples_of_the_librarys_that_such_a_call_keeps_are_compared_by_what_is_in_them():
    """A trace that is given up looks whether what it has kept is what was there."""
    kept = {}

    @lucid.compile
    def step(x):
        kept["largest"] = x.max(0)
        return hash(x.sum().item())

    for k in range(3):
        x = lucid.tensor([1.0, float(k), 0.5])
        assert step(x) == hash(x.sum().item())
        assert kept["largest"].values.item() == max(1.0, k)
    assert step.stats.calls == 0


def nested(x):
    for _ in range(3000):
        x = [x]
    return x


def innermost(x):
    while isinstance(x, list):
        (x,) = x
    return x


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (lambda x: innermost(x) * 2, "its arguments are"),
        (lambda x: nested(innermost(x) * 2), "what it leaves is"),
    ],
)
def test_a_call_whose_lists_are_deeper_than_the_stack_runs_op_by_op(step, what):
    made = lucid.compile(step)
    given = nested(lucid.ones(2)) if what == "its arguments are" else lucid.ones(2)
    assert [innermost(made(given)).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    assert_reasons([made], f"{what} nested more deeply than Python calls")


def test_a_model_that_is_too_deep_for_a_trace_runs_op_by_op():
    model = nn.Linear(3, 3)
    for _ in range(150):
        model = nn.Sequential(model)
    x, step = lucid.ones(2, 3), lucid.compile(lambda x: model(x).sum())
    assert [step(x).item() for _ in range(2)] == pytest.approx([model(x).sum().item()] * 2)
    if sys.version_info < (3, 12):  # from then on calls in C have a limit of their own
        (reason,) = {*step.stats.eager_reasons}
        why = "with calls of its own on the stack its trace fails: RecursionError"
        assert reason.startswith(why)


def test_what_was_once_given_up_is_no_reason_for_calls_that_are_traced_since():
    """Those that run op by op for another reason tell that one."""

    @lucid.compile
    def step(x, *scales):
        if not scales:
            return x * x.data_ptr() * 0
        for scale in scales:
            x = x * scale
        return x

    step(lucid.ones(3))
    for count in range(1, 16):
        step(lucid.ones(3), *[0.5] * count)
    asked, *others = step.stats.eager_reasons
    assert "data_ptr()" in asked
    assert others and all(reason.startswith("it was traced") for reason in others)
    assert "data_ptr()" in str(step.stats)
