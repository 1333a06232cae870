"""What covers a name after a step was traced: an attribute that hides a method, a new override."""

from __future__ import annotations

import argparse
import types

import pytest

import lucid
from lucid import nn, optim

X = [0.5, -1.0, 2.0]


class Base:
    factor = 2.0

    def scaled(self, x):
        return x * self.factor

    @staticmethod
    def shifted(x):
        return x + 1

    def total(self, x):
        return self.shifted(self.scaled(x))


class Net(nn.Module):
    gain = 2.0

    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()

    def act(self, x):
        return x.relu()

    def forward(self, x):
        return self.act(self.inner(x)) * self.gain


class Slots:
    __slots__ = ("factor",)


class Rows(list):
    def total(self):
        return sum(self)


def derived():
    """An object of a class of its own, which inherits all."""
    return type("Derived", (Base,), {"__module__": __name__})()


def tenfold(x):
    return x * 10


def agrees(agree, make, step, change, traces=2):
    def scenario(compile):
        thing = make()
        compiled = compile(lambda x: step(thing, x))
        found = [compiled(lucid.tensor(X)) for _ in range(2)]
        change(thing)
        return found + [compiled(lucid.tensor(X)) for _ in range(2)]

    agree(scenario, traces=traces)


@pytest.mark.parametrize("make", [Base, derived])
@pytest.mark.parametrize("name", ["scaled", "shifted", "total"])
def test_an_attribute_that_hides_a_method(agree, make, name):
    agrees(agree, make, lambda t, x: t.total(x), lambda t: setattr(t, name, tenfold))
    agrees(agree, make, lambda t, x: t.total(x), lambda t: vars(t).update({name: tenfold}))


@pytest.mark.parametrize("make", [Base, derived])
def test_an_attribute_that_hides_one_of_the_class(agree, make):
    agrees(agree, make, lambda t, x: t.total(x), lambda t: setattr(t, "factor", 7.0))


@pytest.mark.parametrize(("name", "value"), [("scaled", lambda s, x: x * 10), ("factor", 7.0)])
def test_a_class_that_overrides_its_base(agree, name, value):
    agrees(agree, derived, lambda t, x: t.total(x), lambda t: setattr(type(t), name, value))


@pytest.mark.parametrize(("name", "value"), [("act", tenfold), ("forward", tenfold), ("gain", 3.0)])
def test_an_attribute_that_hides_what_a_module_defines(agree, name, value):
    agrees(agree, Net, lambda t, x: t(x), lambda t: setattr(t, name, value))
    if callable(value):
        agrees(agree, Net, lambda t, x: t(x), lambda t: setattr(t.inner, "forward", tenfold))


def test_an_attribute_that_hides_an_optimizers_method(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(3))
        optimizer = optim.SGD([w], lr=0.5)

        @compile
        def step(x):
            optimizer.zero_grad()
            (w * x).sum().backward()
            optimizer.step()

        step(lucid.tensor(X))
        optimizer.step = lambda: None
        step(lucid.tensor(X))
        return w

    agree(scenario, traces=2)


@pytest.mark.parametrize(
    "step",
    [
        lambda t, x: x * getattr(t, "extra", 3.0),
        lambda t, x: x * 2 if hasattr(t, "extra") else x,
        lambda t, x: t.scaled(x) if "extra" in vars(t) else x,
    ],
)
def test_code_that_asks_whether_an_attribute_is_there(agree, step):
    agrees(agree, Base, step, lambda t: setattr(t, "extra", 5.0))


@pytest.mark.parametrize("make", [types.SimpleNamespace, argparse.Namespace])
@pytest.mark.parametrize(
    "step",
    [
        lambda t, x: x * getattr(t, "extra", 3.0),
        lambda t, x: x * 2 if hasattr(t, "extra") else x,
    ],
)
def test_so_does_code_that_asks_a_namespace(agree, make, step):
    agrees(agree, make, step, lambda t: setattr(t, "extra", 5.0))


def test_a_slot_that_was_empty(agree):
    change = lambda t: setattr(t, "factor", 5.0)  # noqa: E731
    agrees(agree, Slots, lambda t, x: x * getattr(t, "factor", 2.0), change)


def test_a_method_of_a_container(agree):
    change = lambda t: setattr(t, "total", lambda: 9)  # noqa: E731
    agrees(agree, lambda: Rows([1, 2]), lambda t, x: x * t.total(), change)


def test_a_global_that_hides_a_builtin(agree):
    def scenario(compile):
        names = {}
        exec("def step(x):\n    return x * abs(-2)", names)
        step = compile(names["step"])
        found = [step(lucid.tensor(X))]
        names["abs"] = lambda number: 50
        return [*found, step(lucid.tensor(X))]

    agree(scenario, traces=2)


def test_other_new_names_are_no_reason_to_trace_again(agree, entry):
    def change(thing):
        thing.note = "new"
        type(thing).remark = "new"

    agrees(agree, derived, lambda t, x: t.total(x), change, traces=1)


def test_the_reason_names_what_is_new():
    thing = Base()
    step = lucid.compile(lambda x: thing.total(x))
    step(lucid.tensor(X))
    thing.scaled = tenfold
    step(lucid.tensor(X))
    assert step.stats.retrace_reasons == ["thing.scaled: absent -> a function"]
