"""Numbers and texts that follow from what a step computes: Python has them after each call."""

from __future__ import annotations

import bisect
import copy
import csv
import heapq
import io
import itertools
import json
import logging
import math
import pickle
import pprint
import queue
import random
import re
import statistics
import string
import sys
import textwrap
import time
import warnings
from collections import Counter, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler.inputs import present
from lucid.compiler.inputs.scalars import Composite

Compile = Any


def scalars(*values: float) -> list[Any]:
    return [(lucid.tensor(v),) for v in values]


def calling(body: Any, calls: list[Any]) -> Any:
    def scenario(compile: Compile) -> Any:
        step = compile(body)
        return [step(*args) for args in calls]

    return scenario


def natively(steps: list[Any]) -> None:
    assert not [reason for step in steps for reason in step.stats.eager_reasons]


def test_python_maps_float_and_floor_over_tensors(agree: Any) -> None:
    def body(x: Any) -> Any:
        parts = [row.sum() for row in x]
        return (
            sum(map(float, parts)),
            [*map(int, x.argmax(1))],
            dict(zip("ab", map(math.sqrt, x.abs().sum(1)), strict=True)),
            sorted(map(float, parts))[0],
            math.floor(x.sum()) + math.ceil(x.mean()),
        )

    calls = [(lucid.tensor(v),) for v in ([[1.5, 2.0], [-3.5, 1.0]], [[1.75, -2.0], [3.0, 0.5]])]
    natively(agree(calling(body, calls)))


def test_functions_of_numbers_that_may_raise_are_called_within_the_step(agree: Any) -> None:
    def body(x: Any, k: Any) -> Any:
        count = int(k)
        return (
            math.pow(x[0].item(), 2),
            math.comb(5, count) + math.gcd(count, 4) + (1 << count),
            math.fsum(row.item() for row in x),
            math.dist(x.tolist(), [0.0, 1.0]),
            statistics.mean(row.item() for row in x),
            np.fromiter((row.item() for row in x), float),
            float(np.float32(x[1].item())) * np.float64(x[0]),
        )

    calls = [(lucid.tensor(v), lucid.tensor(k)) for v, k in (([1.5, 2.0], 2), ([-0.5, 1.0], 3))]
    natively(agree(calling(body, calls), traces=1))


def test_the_attributes_of_an_object_hold_numbers_of_the_step(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        state = SimpleNamespace(loss=0.0)

        def body(x: Any) -> Any:
            vars(state).update(loss=x.sum().item())
            return len(vars(state)), {name: value * 2 for name, value in vars(state).items()}

        step = compile(body)
        return [(step(lucid.tensor([v, 1.0])), state.loss) for v in (1.0, -2.0, 3.0)]

    natively(agree(scenario))


def test_a_method_of_a_class_takes_what_stands_for_a_list_or_bytes(agree: Any) -> None:
    def body(x: Any) -> Any:
        rows = x.tolist()
        return copy.copy(rows), list.copy(rows[0]), str.upper(f"a{x.sum().item():.1f}")

    calls = [(lucid.tensor(v),) for v in ([[1.5, 2.0], [-3.5, 1.0]], [[1.75, -2.0], [3.0, 0.5]])]
    natively(agree(calling(body, calls)))
    agree(calling(lambda x: b"".join(row.numpy().tobytes() for row in x), calls))


def test_item_is_a_float_of_each_call(agree: Any) -> None:
    def body(x: Any) -> Any:
        loss = (x * 2).sum()
        return loss.item(), loss.item() / 2 + 1, [loss.item() ** 2, -loss.item()], abs(x.item())

    steps = agree(calling(body, scalars(2.0, -3.0, 4.0)), traces=1)
    natively(steps)
    assert type(steps[0](lucid.tensor(1.0))[0]) is float


def test_float_and_int_of_a_tensor(agree: Any) -> None:
    def body(x: Any) -> Any:
        count = int((x > 0).sum())
        return (
            float(x.sum()),
            float(count),
            count,
            count / len(x),
            int(x.sum()),
            round(float(x[0]), 2),
        )

    calls = [(lucid.tensor(v),) for v in ([1.26, 2.0, -3.5], [1.0, 2.0, 3.25], [-1.0, -2.0, -3.0])]
    natively(agree(calling(body, calls), traces=1))


def test_a_type_is_that_of_the_number(agree: Any) -> None:
    def body(x: Any) -> Any:
        value = x.item()
        return type(value) is float, isinstance(value, float), type(int(x)) is int

    natively(agree(calling(body, scalars(2.0, 3.0)), traces=1))


def test_metrics_are_kept(agree: Any) -> None:
    class Meter:
        def __init__(self) -> None:
            self.total, self.count, self.right, self.best = 0.0, 0, 0, 1e9

        def update(self, value: float, right: int) -> None:
            self.total += value
            self.count += 1
            self.right += right
            self.best = min(self.best, value)

        @property
        def mean(self) -> float:
            return self.total / self.count

    def scenario(compile: Compile) -> Any:
        meter, history = Meter(), {"loss": [], "mean": []}
        model = nn.Linear(3, 1)
        opt = lucid.optim.SGD(model.parameters(), lr=0.1)

        @compile
        def step(x: Any, y: Any) -> Any:
            out = model(x)
            loss = ((out - y) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.update(loss.item(), ((out > 0) == (y > 0)).sum().item())
            history["loss"].append(loss.item())
            history["mean"].append(meter.mean)
            return meter.right / 4

        rng = np.random.default_rng(1)
        found = []
        for _ in range(8):
            x, y = rng.normal(size=(4, 3)).astype("f4"), rng.normal(size=(4, 1)).astype("f4")
            found.append(step(lucid.tensor(x), lucid.tensor(y)))
        assert all(type(value) is float for value in history["loss"])
        json.dumps(history)
        return found, history, meter.total, meter.count, meter.right, meter.best, model

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons and step.stats.traces <= 4


def test_a_number_goes_on_into_tensors(agree: Any) -> None:
    def body(x: Any) -> Any:
        scale = 1.0 / x.abs().max().item()
        count = (x > 0).sum().item()
        return x * scale, lucid.full((2,), scale), x + count, lucid.tensor(scale)

    calls = [(lucid.tensor(v),) for v in ([1.0, 2.0], [4.0, -2.0], [0.5, 0.25])]
    natively(agree(calling(body, calls), traces=1))


def test_functions_of_math(agree: Any) -> None:
    def body(x: Any) -> Any:
        value = x.item()
        return (
            *(math.exp(value), math.sqrt(value), math.log(value), math.sin(value)),
            *(math.floor(value), math.ceil(value), round(value), round(value, 1), int(value)),
            *(math.isnan(value), math.isfinite(value), value**2, value**-1.5, value // 0.3),
            *(value % 0.3, divmod(value, 0.7), max(value, 2.5), min(1.0, value)),
            *(math.fabs(-value), math.copysign(value, -1.0), math.atan2(value, 2.0)),
            *(x * math.erf(value), x * math.tan(value), math.log1p(value), math.expm1(value)),
            *(math.sinh(value), math.cosh(value), math.asinh(value), math.acosh(value)),
            *(math.asin(1 / value), math.acos(1 / value), math.atanh(1 / value)),
            *(math.exp2(value), math.cbrt(value), math.erfc(value), math.hypot(value, 3.0)),
            *(math.degrees(value), math.radians(value), math.fmod(value, 0.3)),
            *(math.remainder(value, 0.7), math.log(value, value + 1), math.log(3.0, value)),
            *(math.isclose(value, 2.3, abs_tol=0.1), math.isclose(value, value + 1e-12)),
        )

    (step,) = agree(calling(body, scalars(2.25, 3.5, 2.75)))
    natively([step])


def taken_by_math(count: int) -> list[str]:
    """Functions that take so many floats."""
    found = []
    for name, function in vars(math).items():
        try:
            function(*[0.5] * count)
        except TypeError:
            continue
        except ValueError:
            pass
        found.append(name)
    return found


@pytest.mark.parametrize(
    ("count", "name"), [(count, name) for count in (1, 2) for name in taken_by_math(count)]
)
def test_errors_of_math_that_the_step_handles(agree: Any, count: int, name: str) -> None:
    """Such as of the trace's number: the next one, a NaN perhaps, may give none."""
    function = getattr(math, name)

    def body(x: Any, y: Any) -> Any:
        try:
            return function(*(x.item(), y.item())[:count])
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            return type(error).__name__

    numbers = (-1.0, math.nan, 0.0, 2.0, math.inf, 800.0, -0.5, 1.0)
    others = numbers if count == 2 else (1.0,)
    calls = [
        (lucid.tensor(x, dtype=lucid.float64), lucid.tensor(y, dtype=lucid.float64))
        for y in others
        for x in numbers
    ]
    agree(calling(body, calls))


def test_functions_of_math_take_tensors(agree: Any) -> None:
    def body(x: Any) -> Any:
        if math.isnan(x) or not math.isfinite(x.numpy().sum()):
            raise ValueError("not finite")
        return math.exp(x), math.sqrt(x * x), math.log(x, 2), math.copysign(1.0, x)

    natively(agree(calling(body, scalars(2.25, 3.5, 2.75, 1e-3))))


def test_the_least_and_the_largest_have_one_path(agree: Any) -> None:
    """Whichever it is, and whatever comes first: of NaN, and of zeros, Python takes that one."""

    def body(x: Any) -> Any:
        value, count = x.item(), int(x.item() > 0) + int(x.isnan().item())
        least = (min(value, 1.0), min(1.0, value), min([value, -value, 0.0]), max(value, -value))
        ints = (min(count, 2**70), max(count, 0, 1), count + 2**70)
        return *least, *ints, x * max(0.0, value), lucid.full((2,), min(-0.0, value))

    values = (0.5, 2.5, 3.5, float("inf"))
    natively(agree(calling(body, scalars(*values)), traces=1))
    agree(calling(body, scalars(*values, -2.0, 0.0, -0.0, float("nan"))))


def test_losses_are_kept_in_order(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        worst: list[tuple[float, int]] = []
        losses: list[float] = []

        @compile
        def step(x: Any, i: int) -> Any:
            loss = x.sum().item()
            bisect.insort(losses, loss)
            del losses[2:]
            if len(worst) < 3:
                heapq.heappush(worst, (loss, i))
            elif loss > worst[0][0]:
                heapq.heapreplace(worst, (loss, i))
            parts = [part.item() for part in x]
            return heapq.nlargest(2, parts), bisect.bisect([0.0, 1.0], loss)

        calls = [(lucid.randn(3), i) for i in range(12)]
        return [(step(*args), list(losses), sorted(worst)) for args in calls]

    (step,) = agree(scenario)
    assert not [x for x in step.stats.eager_reasons if not x.startswith("it was traced ")]


def test_what_raises_in_python_raises_before_anything_is_stored() -> None:
    w = lucid.ones(1)

    @lucid.compile
    def step(x: Any) -> Any:
        with lucid.no_grad():
            w.add_(1.0)
        return 1.0 / x.item(), math.sqrt(x.item())

    assert step(lucid.tensor(4.0)) == (0.25, 2.0)
    for value, error in ((0.0, ZeroDivisionError), (-1.0, ValueError), (0.0, ZeroDivisionError)):
        with pytest.raises(error):
            step(lucid.tensor(value))
        assert w.item() == 2.0
    assert step(lucid.tensor(1.0)) == (1.0, 1.0)
    assert w.item() == 3.0


def test_who_needs_the_digits_runs_op_by_op(agree: Any) -> None:
    def body(x: Any) -> Any:
        return {x.item(): 1}, json.dumps({"loss": x.item()}), np.float32(x.item()).item()

    (step,) = agree(calling(body, scalars(2.0, 3.0)))
    assert len(step.stats.eager_reasons) == 2
    assert "test_late_numbers.py" in step.stats.eager_reasons[0]


def test_floats_are_listed(agree: Any) -> None:
    def body(x: Any) -> Any:
        values = (x * 2).tolist()
        return values, sum(values[0]), values[1][0] * 2

    calls = [(lucid.tensor(v),) for v in ([[1.0, 2.0], [3.0, 4.0]], [[0.5, -2.0], [1.0, 0.0]])]
    natively(agree(calling(body, calls), traces=1))


def test_texts_are_those_of_each_call(agree: Any) -> None:
    def body(x: Any) -> Any:
        loss = (x * 2).sum()
        number = loss.item()
        return (
            *(f"{number:.3f}", f"loss {number:8.2f} of {x}", f"{loss:.2f}", f"{number!r:>10}"),
            *(str(loss), repr(number), str(number), format(number, ".1e")),
            *("%.3f and %s" % (number, loss), "%5.1f" % number, "%s" % loss),  # noqa: UP031
            *("{:.2f} {}".format(number, loss), "{a:.1f}".format(a=loss)),  # noqa: UP032
            *(
                "loss " + f"{number}" + "!",
                ", ".join([f"{number:.1f}", "x"]),
                f"{f'{number:.1f}':>8}",
            ),
        )

    natively(agree(calling(body, scalars(2.0, -3.5, 1e-9)), traces=1))


def test_a_text_of_a_tensor_with_a_history(agree: Any) -> None:
    w = lucid.ones(2, requires_grad=True)

    def body(x: Any) -> Any:
        return str(w * x), repr((w * x).detach()), f"{w}", str(x.long()), str(x > 1)

    natively(agree(calling(body, [(lucid.tensor([v, 1.0]),) for v in (1.0, 2.5)]), traces=1))


def test_a_tensor_in_a_template_is_what_its_own_methods_say(agree: Any) -> None:
    def body(x: Any) -> Any:
        try:
            return "%d of %s" % (x.sum(), x), "{0.shape} {0}".format(x), "{:.2f}".format(x)  # noqa: UP031, UP032
        except ValueError as error:  # of the elements of an axis
            return str(error)

    natively(agree(calling(body, scalars(2.0, 2.5)), traces=1))
    natively(agree(calling(body, [(lucid.tensor([v]),) for v in (2.0, 2.5)]), traces=1))


def test_texts_that_map_makes_of_numbers_are_those_of_each_call(agree: Any) -> None:
    def scenario(compile: Any) -> Any:
        counted = {"n": 0}
        step = compile(lambda x: print(" ".join(map(str, [x.sum(), counted["n"]]))) or x * 2)
        found = []
        for n in range(5):
            counted["n"] = n
            found.append(step(lucid.full((2,), float(n))))
        return found

    (step,) = agree(scenario, traces=3)
    assert not step.stats.eager_reasons


def test_a_text_that_is_looked_into_runs_op_by_op(agree: Any) -> None:
    def body(x: Any) -> Any:
        text = f"{x.item():.3f}"
        return len(text), text.split("."), text[0], "2" in text, {text: 1}, text == "2.000"

    for part in range(6):
        (step,) = agree(calling(lambda x, part=part: body(x)[part], scalars(2.0, 31.0)))
        assert len(step.stats.eager_reasons) == 2

    def kept(x: Any) -> Any:
        names = [f"{x.item():.3f}", "2.5"]
        return sorted(names), " ".join(map(str.strip, names))

    (step,) = agree(calling(kept, scalars(2.0, 31.0)))
    assert len(step.stats.eager_reasons) == 2


NAMES = ("left", "right", "up")


@pytest.mark.parametrize("kept", [lambda k: frozenset([k, 1]), lambda k: (1, frozenset([(k, 2)]))])
def test_a_set_with_a_number_of_the_step_is_put_back_where_a_trace_ends(
    agree: Any, kept: Any
) -> None:
    """One that ends early: a dict gets an entry at a key that it looks at."""

    def scenario(compile: Any) -> Any:
        state, counts = SimpleNamespace(seen=kept(7)), Counter()

        @compile
        def step(x: Any) -> None:
            state.seen = kept(x.argmax().item())
            counts[x.argmin().tolist()] += 1

        found = []
        for row in ([3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [4.0, 3.0, 2.0], [3.0, 1.0, 2.0]):
            step(lucid.tensor(row))
            found.append((state.seen, dict(counts)))
        return found

    natively(agree(scenario))


@pytest.mark.parametrize(
    "name",
    [
        lambda k: f"act{k}",
        lambda k: "act%d" % k,  # noqa: UP031
        lambda k: "act" + str(k),
        lambda k: "{}{:d}".format("act", k),
        lambda k: "".join(["act", str(k + 0)]),
    ],
)
def test_a_name_that_an_int_says_is_looked_up_as_that_int_would_be(agree: Any, name: Any) -> None:
    """In dicts, modules, attributes: a path for each, as of a branch on the int."""

    def scenario(compile: Any) -> Any:
        layers = nn.ModuleDict({"act0": nn.ReLU(), "act1": nn.Tanh()})
        weights = SimpleNamespace(act0=2.0, act1=3.0)
        counts = Counter(act0=0, act1=0, second=0)

        @compile
        def step(x: Any) -> Any:
            found = name((x.sum() > 0).long().item())
            counts[found] += 1
            if found == "act1":
                counts["second"] += 1
            return layers[found](x) * getattr(weights, found), len(found), dict(counts)

        return [step(lucid.tensor([v, 1.0])) for v in (1.0, 2.0, -3.0, -4.0, 2.0, -2.0)]

    natively(agree(scenario, traces=3))


def test_texts_of_a_table_are_those_of_each_call(agree: Any, capsys: Any) -> None:
    by_number = dict(enumerate(NAMES))

    def scenario(compile: Any) -> Any:
        names = [*NAMES]

        @compile
        def step(x: Any) -> Any:
            first, *others = [names[i] for i in x.tolist()]
            print(first, f"{by_number[x[1].item()]:>8}")
            found = first.upper() + "!", by_number.get(x[2].item(), "?")
            return found, others, " ".join(names[i] for i in x.tolist())

        results = []
        for call in ((0, 1, 2), (2, 2, 0), (1, 0, 1), (2, 1, 0)):
            if call == (1, 0, 1):
                names[1] = "back"
            results.append((step(lucid.tensor(call)), capsys.readouterr().out))
        return results

    natively(agree(scenario, traces=2))


def test_numbers_of_a_table_are_those_of_each_call(agree: Any) -> None:
    """Of floats and ints, in lists, tuples and dicts: weights of classes, other labels."""
    by_number, data = {0: 2, 1: 0, 2: 1}, lucid.arange(12.0).reshape(3, 4)

    def scenario(compile: Any) -> Any:
        weights, others = [0.1, 0.2, 0.7], (2, 0, 1)

        @compile
        def step(x: Any) -> Any:
            first, *_ = numbers = x.tolist()
            labels = lucid.tensor([others[i] for i in numbers])
            rows = data[[by_number[i] for i in numbers]]
            scaled = x * weights[x.argmax().item()] + by_number.get(first, 5)
            return weights[first], others[first] + 1, labels, rows, scaled

        results = []
        for call in ((0, 1, 2), (2, 2, 0), (1, 0, 1), (2, 1, 0)):
            if call == (1, 0, 1):
                weights[1] = 0.25
            results.append(step(lucid.tensor(call)))
        return results

    natively(agree(scenario, traces=2))


TABLES_OF_OTHERS: list[Any] = [[True, False], [1, 2.5], [1, None], [2**70, 1], [], [[1], [2]]]


@pytest.mark.parametrize("table", TABLES_OF_OTHERS)
def test_what_is_no_table_of_numbers_is_looked_at(agree: Any, table: Any) -> None:
    def body(i: Any) -> Any:
        try:
            return table[i.item()], type(table[i.item()])
        except IndexError as error:
            return str(error)

    agree(calling(body, [(lucid.tensor(i),) for i in (0, 1, 0, -1, 1)]))


LOOKS_INTO_NAMES: list[Any] = [
    lambda name: name == "left",
    len,
    lambda name: {"left": 1, "right": 2}.get(name, 0),
    lambda name: {"go left": 1}.get(f"go {name}", 0),
    lambda name: name in NAMES[1:],
    lambda name: sorted({name, "middle"}),
    lambda name: getattr(lucid.ones(1), {"left": "sin"}.get(name, "cos"))(),
]


@pytest.mark.parametrize("look", LOOKS_INTO_NAMES)
def test_a_name_that_is_looked_into_says_which_number_it_was(agree: Any, look: Any) -> None:
    calls = [(lucid.tensor(i),) for i in (0, 1, 0, 1, 1)]
    natively(agree(calling(lambda i: look(NAMES[i.item()]), calls), traces=2))


@pytest.mark.parametrize("table", [NAMES, (0.5, 1.5, 2.5), [7, 8, 9], {0: 1, 1: 2, 2: 3}])
def test_places_outside_of_a_table(agree: Any, table: Any) -> None:
    def body(i: Any) -> Any:
        try:
            return table[i.item()]
        except KeyError as error:
            return error.args
        except IndexError as error:
            return str(error)

    agree(calling(body, [(lucid.tensor(i),) for i in (0, 3, -1, 2, -4, 1)]))


def test_a_vocabulary_is_not_compared_at_each_call(agree: Any) -> None:
    words = [f"w{i}" for i in range(5000)]
    calls = [(lucid.tensor(i),) for i in (7, 4999, 7, 7)]
    natively(agree(calling(lambda i: words[i.item()], calls), traces=2))  # one for each word


class Meter:
    """Counts, and writes itself in three ways."""

    def __init__(self) -> None:
        self.last, self.total, self.count = 0.0, 0.0, 0

    def update(self, value: float) -> None:
        self.last, self.total, self.count = value, self.total + value, self.count + 1

    def __str__(self) -> str:
        return "{last:.2f} of {n}".format(last=self.last, n=self.count)  # noqa: UP032

    def __repr__(self) -> str:
        return f"Meter({self.total!r:>8}, {self.count:>{self.count}})"

    def __format__(self, specification: str) -> str:
        return format(self.total / self.count, specification or ".3f")

    def __float__(self) -> float:
        return self.total

    def __int__(self) -> int:
        return self.count


@dataclass
class Epoch:
    meter: Any
    loss: float


Pair = namedtuple("Pair", "meter loss")
WRITTEN: list[Callable[[Any, float], Any]] = [
    lambda m, x: (str(m), f"{m} {m!r:>30} {m!s} {m:.1f}", format(m, ".2f"), m.__repr__()),
    lambda m, x: (str([m, x]), repr({"a": (m,)}), f"{[m]} {(m, x)!r}", f"{deque([m], 3)}"),
    lambda m, x: ("%s!" % m, "%(a)r" % {"a": m}, "%s %r" % (m, [m])),  # noqa: UP031
    lambda m, x: ("{} {!r} {a:.1f}".format(m, m, a=m), "{0.last:.1f} {a[0]}".format(m, a=[m])),  # noqa: UP032
    lambda m, x: ("{a}|".format_map({"a": m}), ", ".join(map(str, [m, m]))),
    lambda m, x: (str(Epoch(m, x)), str([Epoch(m, x)]), str(Pair(m, x)), str([Pair(m, x)])),
    lambda m, x: (json.dumps({"m": m}, default=str), json.dumps([x], default=vars)),
    lambda m, x: json.dumps({"t": lucid.ones(1) * x}, default=float),
    lambda m, x: str({"t": lucid.ones(2) * x, "m": m}),
    lambda m, x: f"{RuntimeError(f'no {m} at {x:.1f}')}",
    lambda m, x: (
        str(ValueError(x)),
        f"{ValueError(m, x)!r}",
        str([KeyError(x)]),
        str(KeyError(m)),
    ),
    lambda m, x: (str(SimpleNamespace(x=x, m=[m])), f"{[SimpleNamespace(x=x)]}"),
    lambda m, x: "|".join(map("{:.2f}".format, [x, m])),
    lambda m, x: ("=" * int(x) + ">" + "." * (9 - int(x)), f"{x:.1f}" * m.count, m.count * "ab"),
    lambda m, x: (float(m) / 2, int(m), lucid.ones(2) * float(m)),
]
LOOKED_INTO: list[Callable[[Any, float], Any]] = [
    lambda m, x: pprint.pformat({"n": m.count, "x": [x] * 30}, width=40),
    lambda m, x: textwrap.fill(f"{x} " * 30, 50),
    lambda m, x: "%d %.1f" % (m, m),  # noqa: UP031
    lambda m, x: json.dumps([m], default=vars),
    lambda m, x: (str(slice(x)), str(OSError(m, x))),
    lambda m, x: string.Template("$m").substitute(m=m),
    lambda m, x: re.sub("x", lambda _: f"{x:.1f}", "axb"),
    lambda m, x: math.sqrt(m),
]


@pytest.mark.parametrize("write", [*WRITTEN, *LOOKED_INTO])
def test_objects_whose_own_code_writes_them_are_those_of_each_call(agree: Any, write: Any) -> None:
    def scenario(compile: Compile) -> Any:
        meter = Meter()

        @compile
        def step(x: Any) -> Any:
            meter.update((x * 2).sum().item())
            return write(meter, meter.last)

        return [step(*args) for args in scalars(2.0, 3.5, 1.0, 7.0)]

    (step,) = agree(scenario)
    assert bool(step.stats.eager_reasons) == (write in LOOKED_INTO)
    assert write in LOOKED_INTO or step.stats.traces <= 2


def test_a_container_that_holds_itself_is_written_as_in_eager_mode(agree: Any) -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    natively(agree(calling(lambda x: f"{[ring, x.item()]}", scalars(2.0, 3.5)), traces=1))


def test_an_object_that_is_written_has_changed_between_calls(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        meter, found = Meter(), []
        step = compile(lambda x: (str({"m": meter}), f"{[meter]}", x + 1))
        for i in range(12):
            meter.update(i * 0.5)
            found.append(step(lucid.ones(2)))
        return found

    natively(agree(scenario))


def printed(capsys: Any, body: Any, calls: list[Any]) -> Any:
    """The step; it has printed at each call what eager mode prints."""
    found = []
    for mode in ("eager", "native"):
        step = lucid.compile(body, mode=mode)
        for args in calls:
            step(*args)
        found.append(capsys.readouterr())
    assert found[0] == found[1]
    assert found[0].out or found[0].err
    return step


def test_prints_are_made_at_every_call(capsys: Any) -> None:
    state = {"epoch": 0}

    def body(x: Any) -> Any:
        state["epoch"] += 1
        loss = (x**2).mean()
        print(f"epoch {state['epoch']} loss {loss.item():.3f}")
        print(
            "loss", loss, loss.item(), [loss.item(), 1], {"a": (loss.item(),)}, sep=" | ", end=";\n"
        )
        print("to the other side", file=sys.stderr)
        sys.stdout.write(f"{loss.item():.1f}\n")
        return loss

    calls = [(lucid.tensor([v, 1.0]),) for v in np.linspace(-2, 2, 50)]
    state["epoch"] = 0
    expected = []
    for args in calls:
        body(*args)
    expected = capsys.readouterr()
    state["epoch"] = 0
    step = lucid.compile(body)
    for args in calls:
        step(*args)
    assert capsys.readouterr() == expected
    assert not step.stats.eager_reasons and step.stats.traces <= 2 and step.stats.calls == 50


def test_prints_on_each_path(capsys: Any) -> None:
    def body(x: Any) -> Any:
        if x.sum() > 0:
            print("up", x.sum().item())
            return x
        print("down")
        return -x

    step = printed(capsys, body, [(lucid.tensor([v]),) for v in (1.0, -1.0, 2.0, 3.0, -2.0)])
    assert step.stats.traces == 2 and not step.stats.eager_reasons


def test_a_step_that_is_given_up_has_printed_once(capsys: Any) -> None:
    def body(x: Any) -> Any:
        print("before", x.sum().item())
        return {x.sum().item(): 1}

    printed(capsys, body, [(lucid.tensor([v]),) for v in (1.0, 2.0)])


def test_what_is_printed_is_what_was_there_then(capsys: Any) -> None:
    class Meter:
        total = 0.0

        def __str__(self) -> str:
            return f"total {self.total:.2f}"

    found = []
    for mode in ("eager", "native"):
        meter = Meter()

        def body(x: Any, meter: Any = meter) -> Any:
            print(meter)
            meter.total += x.sum().item()
            print(meter, f"{meter.total:.1f}")
            return x

        step = lucid.compile(body, mode=mode)
        for v in (1.0, 2.0, 3.0):
            step(lucid.tensor([v]))
        found.append(capsys.readouterr().out)
    assert found[0] == found[1] and "total 6.00 6.0" in found[0]


def test_errors_that_led_to_another_one_say_what_they_are_about(agree: Any) -> None:
    class BadLossError(Exception):
        def __init__(self, loss: float, number: int) -> None:
            super().__init__(f"loss {loss:.2f} at {number}")
            self.loss, self.found = loss, {"number": number}

    def scenario(compile: Compile) -> Any:
        state = SimpleNamespace(number=0)

        @compile
        def step(x: Any) -> Any:
            try:
                if x.item() > 2:
                    raise BadLossError(x.item(), state.number)
            except BadLossError as error:
                raise RuntimeError("failed", state.number) from error
            return x

        found = []
        for args in scalars(1.0, 2.0, 3.5, 1.0, 4.5):
            state.number += 1
            try:
                found.append(step(*args))
            except RuntimeError as error:
                cause = error.__cause__
                assert isinstance(cause, BadLossError)
                found.append((str(error), str(cause), cause.loss, cause.found))
        return found

    agree(scenario)


def test_a_queue_gets_a_container_and_not_a_copy() -> None:
    waiting: queue.Queue[Any] = queue.Queue()
    row = [0.0, 0]

    @lucid.compile
    def step(x: Any) -> Any:
        row[0] = x.item()
        waiting.put(row)
        row[1] += 1
        return x

    for count, args in enumerate(scalars(1.0, 2.0, 3.0)):
        step(*args)
        assert waiting.get() is row and row == [args[0].item(), count + 1]
    assert step.stats.calls == 3


def test_objects_that_a_queue_and_a_lengthened_list_get_are_those_of_each_call(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        waiting: queue.Queue[Any] = queue.Queue()
        log: list[Any] = []

        @compile
        def step(x: Any) -> None:
            log.extend(x.tolist())
            log.append(Epoch(Meter(), x.sum().item()))
            waiting.put(Epoch(Meter(), x.mean().item()))

        for i in range(4):
            step(lucid.arange(10.0) + i)
        log += [waiting.get() for _ in range(4)]
        kept = [x for x in log if isinstance(x, Epoch)]
        assert len({*map(id, kept)}) == 8
        return [x.loss if isinstance(x, Epoch) else x for x in log]

    natively(agree(scenario, traces=1))


def test_what_is_logged_and_dumped_is_what_was_there_then(caplog: Any) -> None:
    log, found = logging.getLogger("a.users"), []
    for mode in ("eager", "native"):
        meter, state, file = Meter(), {"losses": [0.0]}, io.StringIO()

        def body(x: Any, meter: Any = meter, state: Any = state, file: Any = file) -> Any:
            meter.update(x.sum().item())
            state["losses"].append(meter.last)
            log.info("%s after %s", meter, [meter])
            log.info(meter)
            log.info("%(losses)s", state)
            json.dump({"m": meter, **state}, fp=file, default=str)
            meter.update(100.0)
            state["losses"].append(100.0)
            return x

        step = lucid.compile(body, mode=mode)
        with caplog.at_level(logging.INFO, "a.users"):
            for v in (1.0, 2.0, 3.0):
                step(lucid.tensor([v]))
        found.append((file.getvalue(), caplog.text))
        caplog.clear()
    assert found[0] == found[1] and not step.stats.eager_reasons


class Listener(logging.Handler):
    count = 0

    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []
        self.letters = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.getMessage())
        self.count += 1

    def write(self, text: str) -> None:
        self.letters += len(text)


@pytest.mark.parametrize(
    ("tell", "look"),
    [
        (lambda log, listener: log.info("a"), lambda listener: len(listener.records)),
        (lambda log, listener: log.info("a"), lambda listener: listener.count),
        (lambda log, listener: print("abc", file=listener), lambda listener: listener.letters),
    ],
)
def test_what_listens_to_the_step_is_not_read_before_it_was_told(
    agree: Any, tell: Any, look: Any
) -> None:
    def scenario(compile: Compile) -> Any:
        log, listener = logging.getLogger("listened.to"), Listener()
        log.handlers, log.propagate = [listener], False
        log.setLevel(logging.INFO)

        @compile
        def step(x: Any) -> Any:
            tell(log, listener)
            return x * look(listener)

        @compile
        def tells(x: Any) -> Any:
            tell(log, listener)
            return x + 1

        return [f(lucid.ones(2)) for f in (step, step, tells, tells, step)], listener.records

    step, tells = agree(scenario)
    assert len(step.stats.eager_reasons) == 3 and not tells.stats.eager_reasons
    assert "which may listen to what the step tells" in step.stats.eager_reasons[0]


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda state, file: pickle.dump(state, file), "it writes a file, by _pickle.dump()"),
        (lambda state, file: np.save(file, state.sums), "it writes a file, by numpy.save()"),
        (lambda state, file: pprint.pprint(state), "it prints, by pprint.pprint()"),
    ],
)
def test_what_is_pickled_and_saved_is_what_was_there_then(
    agree: Any, capsys: Any, write: Any, reason: str
) -> None:
    def scenario(compile: Compile) -> Any:
        state, file = SimpleNamespace(sums=np.zeros(2)), io.BytesIO()

        @compile
        def step(x: Any) -> Any:
            state.sums = state.sums + x.numpy()
            write(state, file)
            state.sums = state.sums * 2
            return x

        for _ in range(3):
            step(lucid.ones(2))
        return file.getvalue().hex(), capsys.readouterr().out

    (step,) = agree(scenario)
    assert len(step.stats.eager_reasons) == 3
    assert all(found.startswith(reason) for found in step.stats.eager_reasons)


def test_a_row_is_written_as_it_was_then(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        rows, row = io.StringIO(), ["", "a"]
        table = csv.writer(rows)

        @compile
        def step(x: Any) -> Any:
            row[0] = "before"
            table.writerow(row)
            row[0] = "after"
            return x

        for _ in range(3):
            step(lucid.ones(2))
        return rows.getvalue()

    natively(agree(scenario))


def test_a_row_is_written_of_the_values_of_a_dict(agree: Any) -> None:
    """The row is made at the end of each call, and the step is done once."""

    def scenario(compile: Compile) -> Any:
        out, log = io.StringIO(), []
        writer = csv.writer(out)

        def body(i: int, x: Any) -> Any:
            found = {"i": i, "loss": round(x.sum().item(), 3)}
            log.append(i)
            writer.writerow(found.values())
            writer.writerow(found.keys())
            writer.writerow(itertools.chain([i], reversed([*found.values()])))
            found["i"] = -1
            return x * 2

        step = compile(body)
        rows = [step(i, lucid.tensor([0.5 * i, 1.25])).tolist() for i in range(3)]
        return rows, log, out.getvalue()

    natively(agree(scenario))


def test_logs_and_warnings(caplog: Any) -> None:
    log = logging.getLogger("a.users")

    def body(x: Any) -> Any:
        log.info("loss %.3f after %s", x.sum().item(), "a step")
        log.warning(f"loss {x.sum().item():.1f}")
        log.debug("nothing")
        return x

    records = []
    for mode in ("eager", "native"):
        step = lucid.compile(body, mode=mode)
        with caplog.at_level(logging.INFO, "a.users"):
            for v in (1.0, 2.0, 3.0):
                step(lucid.tensor([v]))
        lines = [(r.getMessage(), r.levelname, r.lineno, r.funcName) for r in caplog.records]
        records.append([line for line in lines if line[3] == "body"])
        caplog.clear()
    assert records[0] == records[1] and len(records[0]) == 6
    assert not step.stats.eager_reasons

    def quiet(x: Any) -> Any:
        log.debug("value %.1f", x.sum().item())
        return x

    step = lucid.compile(quiet)
    for level, expected in ((logging.INFO, 0), (logging.DEBUG, 2), (logging.INFO, 0)):
        caplog.clear()
        with caplog.at_level(level, "a.users"):
            for v in (1.0, 2.0):
                step(lucid.tensor([v]))
        assert len([r for r in caplog.records if r.funcName == "quiet"]) == expected
    assert step.stats.traces == 2 and not step.stats.eager_reasons

    @lucid.compile
    def warns(x: Any) -> Any:
        warnings.warn(f"value {x.sum().item()}", RuntimeWarning, stacklevel=1)
        return x

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for v in (1.0, 2.0):
            warns(lucid.tensor([v]))
    assert [str(w.message) for w in found] == ["value 1.0", "value 2.0"]
    assert {w.filename for w in found} == {__file__}


COUNTS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any, Any], Any]]] = {}


def counts(make: Callable[[], Any]) -> Callable[[Any], Any]:
    """Enters a body that counts in `state.of`, of what `make` gives, by two lists of labels."""

    def enter(body: Any) -> Any:
        COUNTS[body.__name__] = make, body
        return body

    return enter


@counts(Counter)
def a_counter(state: Any, rows: Any, columns: Any) -> Any:
    for label in rows:
        state.of[label] += 1


@counts(Counter)
def a_counter_of_lists(state: Any, rows: Any, columns: Any) -> Any:
    state.of.update(rows)
    state.of.subtract([column + 1 for column in columns])


@counts(lambda: defaultdict(float))
def a_dict_of_sums(state: Any, rows: Any, columns: Any) -> Any:
    state.of[rows[0] + 10] += columns[1] / 2
    state.of[rows[1]] -= 1.5


@counts(lambda: [[0] * 3 for _ in range(3)])
def a_confusion_matrix(state: Any, rows: Any, columns: Any) -> Any:
    for row, column in zip(rows, columns, strict=True):
        state.of[row][column] += 1


@counts(lambda: [Counter() for _ in range(3)])
def a_list_of_counters(state: Any, rows: Any, columns: Any) -> Any:
    for row, column in zip(rows, columns, strict=True):
        state.of[2 - row][column * 2] += row


@counts(lambda: [[0] * 3, [1] * 3])
def rows_that_are_known(state: Any, rows: Any, columns: Any) -> Any:
    state.of[1][columns[1]] += 1
    state.of[0][rows[2]] += columns[0]


@pytest.mark.parametrize("name", COUNTS)
def test_counts_at_keys_that_the_step_computes(agree: Any, name: str) -> None:
    """The keys are looked at: a path for each; `state.of` is replaced between calls."""
    make, body = COUNTS[name]

    def scenario(compile: Compile) -> Any:
        state, found, rng = SimpleNamespace(of=make()), [], np.random.default_rng(0)

        @compile
        def step(x: Any, y: Any) -> Any:
            body(state, x.argmax(1).tolist(), y.tolist())
            return x.sum()

        for i in range(12):
            if i == 8:
                state.of = make()
            x, y = rng.normal(size=(4, 3)), rng.integers(0, 3, 4)
            found += [step(lucid.tensor(x), lucid.tensor(y)), pickle.loads(pickle.dumps(state.of))]
        return found

    agree(scenario)


def test_counts_where_there_is_no_place_or_no_number(agree: Any) -> None:
    """Errors are Python's, within the step's handler; what the step looks at is as eager has it."""

    def scenario(compile: Compile) -> Any:
        short, seen, sums = [0, 0], [0] * 3, [lucid.zeros(()) for _ in range(3)]
        found = []

        @compile
        def step(label: Any) -> Any:
            key = label.item()
            try:
                short[key] += 1
            except IndexError as error:
                found.append(str(error))
            seen[key] += 1
            sums[key] += label * 2
            return list(seen), sum(short)

        for i in range(12):
            if i == 9:
                short.append(5)
            results = step(lucid.tensor((i * 2) % 3))
            found += [results, [*short], [*seen], [x.item() for x in sums]]
        return found

    natively(agree(scenario))


def test_a_text_of_a_dict_by_numbers_of_the_step(agree: Any, capsys: Any) -> None:
    """Keys that were looked at are those of the program when the texts are made."""

    def scenario(compile: Compile) -> Any:
        counts: Counter[int] = Counter()

        @compile
        def step(label: Any) -> Any:
            counts[label.item()] += 1
            print(counts)
            return str({label.item(): label.item() + 1, "n": len(counts)})

        found = [step(lucid.tensor((i * i) % 3)) for i in range(10)]
        return found, capsys.readouterr().out

    natively(agree(scenario))


def test_each_call_gives_the_warnings_of_the_library(caplog: Any) -> None:
    """As the filters are then: a trace that is repeated gives none, nor one that an audit makes."""

    def texts(mode: str) -> list[Any]:
        step = lucid.compile(lambda x, n: nn.functional.mse_loss(x[:n], x[:1]), mode=mode)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for i in range(12):
                step(lucid.ones(9, 2), 2 + i % 4)
            warnings.simplefilter("ignore")
            step(lucid.ones(9, 2), 3)
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match=r"\[1, 2\].*size \[3, 2\]"):
                step(lucid.ones(9, 2), 3)
        return [(str(w.message), w.filename, w.lineno) for w in found]

    with caplog.at_level(logging.CRITICAL, "lucid"):
        expected = texts("eager")
        assert len(expected) == 12 and texts("native") == expected


def test_a_schedule_that_steps_first_is_warned_of_once() -> None:
    """What a trace finds out before the schedule steps is said when it does."""

    def count(mode: str) -> int:
        opt = lucid.optim.SGD([lucid.ones(2, requires_grad=True)], lr=1.0)
        schedule = lucid.optim.lr_scheduler.StepLR(opt, 2)

        @lucid.compile(mode=mode)
        def step(x: Any) -> Any:
            schedule.step()
            opt.step()
            return x * opt.param_groups[0]["lr"]

        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(4):
                step(lucid.ones(2))
        return len(found)

    assert count("native") == count("eager") == 1


def test_a_text_that_refuses_a_number_is_an_error_that_the_step_may_handle(agree: Any) -> None:
    template = "{:c}!"

    def body(x: Any) -> Any:
        found = []
        for write in (
            lambda: "%d" % x.sum().item(),  # noqa: UP031
            lambda: "%(n)5i%%" % {"n": x.sum().item()},  # noqa: UP031
            lambda: f"{int(x[0]):c}",
            lambda: template.format(x[0].long().item()),
            lambda: "%s %c" % (1, x[0].long().item()),  # noqa: UP031
            lambda: f"{x.sum().item():.1f} {x[0].long().item():d}",
        ):
            try:
                found.append(write())
            except (OverflowError, ValueError) as error:
                found.append(f"{type(error).__name__}: {error}")
        return found

    rows = [[65, 1], [-1, 2], [66, np.inf], [67, np.nan], [70, 3], [-2, 1], [72, np.inf]]
    natively(agree(calling(body, [(lucid.tensor(row),) for row in rows]), traces=4))


def test_a_float_is_no_index(agree: Any) -> None:
    """Neither one that moves nor one that the step computes, whatever is indexed."""
    state = SimpleNamespace(place=0.0)

    def body(x: Any) -> Any:
        found = []
        for read in (
            lambda: x[state.place],
            lambda: [1, 2][state.place],
            lambda: (1, 2)[x.sum().item()],
            lambda: "ab"[state.place],
            lambda: deque([1])[state.place],
        ):
            try:
                found.append(read())
            except (TypeError, IndexError) as error:
                found.append(f"{type(error).__name__}: {error}")
        return found

    def scenario(compile: Compile) -> Any:
        step, found = compile(body), []
        for i in range(6):
            state.place = i / 4
            found.append(step(lucid.tensor([1.0, i])))
        return found

    natively(agree(scenario))


def test_files_tables_and_queues_get_each_call(tmp_path: Any) -> None:
    def scenario(mode: str) -> Any:
        with open(tmp_path / mode, "w+", newline="") as file:
            table, jobs = csv.writer(file), queue.Queue()

            @lucid.compile(mode=mode)
            def step(x: Any) -> Any:
                file.write(f"loss {x.sum().item():.2f}\n")
                table.writerow([x.sum().item(), "a"])
                jobs.put(x.sum().item())
                return x

            for v in (1.0, 2.0, 3.0):
                step(lucid.tensor([v]))
            file.seek(0)
            return file.read(), [jobs.get() for _ in range(jobs.qsize())], step

    *expected, _ = scenario("eager")
    *found, step = scenario("native")
    assert found == expected and len(found[1]) == 3
    assert not step.stats.eager_reasons


def test_what_writing_returns_can_be_used(agree: Any) -> None:
    def scenario(compile: Compile) -> Any:
        buffer = io.StringIO()

        @compile
        def step(x: Any) -> Any:
            return buffer.write(f"{x.item():.2f}")

        return [step(lucid.tensor(v)) for v in (1.0, 12.0)], buffer.getvalue()

    agree(scenario)


def test_a_progress_bar(capsys: Any) -> None:
    tqdm = pytest.importorskip("tqdm")
    outputs = []
    for mode in ("eager", "native"):
        file = io.StringIO()
        bar = tqdm.tqdm(total=4, file=file, mininterval=0, miniters=1, bar_format="{n} {postfix}")

        @lucid.compile(mode=mode)
        def step(x: Any, bar: Any = bar) -> Any:
            loss = (x**2).sum()
            bar.set_postfix(loss=f"{loss.item():.2f}", raw=loss.item())
            bar.update(1)
            return loss

        for v in (1.0, 2.0, 3.0, 4.0):
            step(lucid.tensor([v]))
        bar.close()
        outputs.append(file.getvalue())
    assert outputs[0] == outputs[1] and "16.00" in outputs[1]
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("which", ["console", "print", "progress", "loguru", "tracker", "function"])
def test_loggers_and_trackers_of_other_packages(which: str, monkeypatch: Any) -> None:
    import loguru
    import rich.console
    import rich.progress

    Run: Any = type("Run", (), {"__module__": "wandb.sdk.wandb_run", "log": list.append})
    outputs = []
    for mode in ("eager", "native"):
        file, told = io.StringIO(), type("Run", (Run, list), {})()
        monkeypatch.setattr("sys.stdout", file)
        console = rich.console.Console(file=file)
        logger = loguru.logger.bind(of=which)
        sink = logger.add(file, format="{file.path}:{module}:{name}:{function}:{line}:{message}")
        progress = rich.progress.Progress(disable=True)
        task = progress.add_task("losses", total=None)

        def log_metric(name: str, value: float, told: Any = told) -> None:
            list.append(told, (name, value))

        log_metric.__module__ = "mlflow.tracking.fluent"

        @lucid.compile(mode=mode)
        def step(x: Any, file: Any = file) -> Any:
            loss = (x**2).sum()
            if which == "console":
                console.print(f"loss {loss.item():.2f}", loss.item())  # noqa: B023
            elif which == "print":
                rich.print("loss", loss.item())
            elif which == "progress":
                progress.update(task, advance=loss.item())  # noqa: B023
            elif which == "loguru":
                logger.info("loss {:.2f}", loss.item())  # noqa: B023
            elif which == "tracker":
                told.log({"loss": loss.item(), "step": 1})  # noqa: B023
            else:
                log_metric("loss", loss.item())
            return loss

        for v in (1.0, 2.0, 3.0, 4.0):
            step(lucid.tensor([v]))
        logger.remove(sink)
        outputs.append([file.getvalue(), [*told], progress.tasks[0].completed])
    assert outputs[0] == outputs[1]
    assert "16.0" in outputs[1][0] or outputs[1][1] or outputs[1][2] == 30.0
    assert (step.stats.traces, step.stats.eager_reasons) == (1, [])


def test_what_a_progress_bar_counts_is_read_op_by_op_when_the_step_has_told_it() -> None:
    import rich.progress

    def calls(compile: Compile) -> Any:
        progress = rich.progress.Progress(disable=True)
        task = progress.add_task("steps", total=9)

        @compile
        def step(x: Any) -> Any:
            progress.update(task, advance=1)
            return x * progress.tasks[0].completed

        return [step(lucid.ones(2)).tolist() for _ in range(4)], step

    expected, _ = calls(lambda function: function)
    found, step = calls(lucid.compile)
    assert found == expected == [[n, n] for n in (1.0, 2.0, 3.0, 4.0)]
    assert "may listen to what the step tells" in step.stats.eager_reasons[0]


def test_arrays_are_given(agree: Any) -> None:
    kept: list[Any] = []

    def scenario(compile: Compile) -> Any:
        model = nn.Linear(3, 2)
        kept.clear()

        @compile
        def step(x: Any) -> Any:
            out = model(x)
            array = out.detach().numpy()
            assert array.shape == (4, 2) and isinstance(array, np.ndarray)
            kept.append(array)
            return out.argmax(1).numpy(), {"p": lucid.softmax(out, 1).detach().numpy()}

        rng = np.random.default_rng(2)
        found = [step(lucid.tensor(rng.normal(size=(4, 3)).astype("f4"))) for _ in range(4)]
        assert type(found[-1][0]) is np.ndarray
        return found, list(kept)

    natively(agree(scenario, traces=1))


def test_an_array_that_is_looked_at_is_eager_modes(agree: Any) -> None:
    def written(x: Any) -> Any:
        y = x * 2
        array = y.numpy()
        y.add_(1)
        return array

    def looked_at(x: Any) -> Any:
        return hash((x * 2).numpy().tobytes())

    def argument(x: Any) -> Any:
        return x.numpy()

    calls = [(lucid.tensor([v, 2.0]),) for v in (1.0, 3.0)]
    for body in (written, looked_at, argument):
        (step,) = agree(calling(body, calls))
        assert len(step.stats.eager_reasons) == (2 if body is looked_at else 0)


def test_what_is_only_kept_or_printed_is_not_computed_by_the_trace(
    agree: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ops are evaluated with NumPy, which takes seconds for a network, where Python asks."""
    monkeypatch.setattr(present, "evaluated", None)

    def scenario(compile: Compile) -> Any:
        losses, total, times = [], [0.0], []

        @compile
        def step(x: Any) -> Any:
            begin = time.perf_counter()
            loss = (x * x + x).sum()
            losses.append(loss.item())
            total[0] += loss.item() * len(x) / 4
            times.append(time.perf_counter() - begin)
            print("loss", loss.item(), 2 * loss.item() - 1)
            return loss

        results = [step(lucid.tensor([v, 1.0])) for v in (0.5, -1.0, 2.0)]
        return results, losses, total, len(times), min(times) >= 0, capsys.readouterr().out

    steps = agree(scenario, traces=1)
    natively(steps)


# What a round makes of the numbers of the round before, each of which it reads twice: written out,
# the last number has 2**60 terms.


def _logistic(x: Any, r: float) -> Any:
    number = 0.3
    for _ in range(60):
        number = r * number * (1 - number)
    return x * number, number


def _momenta(x: Any, t: float) -> Any:
    for _ in range(60):
        following = (1 + math.sqrt(1 + 4 * t * t)) / 2
        x, t = x + (t - 1) / following * x, following
    return x, t


def _of_a_value(x: Any, r: float) -> Any:
    number = x.sum().item()
    for _ in range(60):
        number = r * number / (1 + number * number)
    return x * number, number


def _of_a_value_alone(x: Any, r: float) -> Any:
    return [r, _of_a_value(x, r)[1]]


@pytest.mark.parametrize("body", [_logistic, _momenta, _of_a_value, _of_a_value_alone])
def test_rounds_of_numbers_take_linear_time(agree: Any, body: Any) -> None:
    natively(agree(calling(body, [(lucid.tensor([0.5, 0.25]), r) for r in (1.5, 1.25)]), traces=1))


def test_a_formula_is_computed_once_for_a_call() -> None:
    done: list[int] = []

    def add(x: int, y: int) -> int:
        done.append(x)
        return x + y

    formula: Any = lambda known: known  # noqa: E731
    for _ in range(20):
        formula = Composite(add, [formula, formula])
    for number in (1, 3):
        done.clear()
        assert formula(number) == number << 20
        assert len(done) < 200


def test_a_long_sum_of_values(agree: Any) -> None:
    def body(x: Any) -> Any:
        total, text = 0.0, ""
        for i in range(500):
            total += (x * i).item()
            text += f"{total} "
        return total, text

    natively(agree(calling(body, scalars(0.5, 0.25)), traces=1))


def test_long_questions_that_differ_in_the_middle_are_different_guards(agree: Any) -> None:
    def body(x: Any, r: float) -> Any:
        found = []
        for middle in (101, 200):
            number = r
            for i in range(80):
                number = number + (middle if i == 40 else 1)
            found.append(number > 240)
        return x, found

    agree(calling(body, [(lucid.tensor(1.0), r) for r in (35.0, 25.0, -65.0)]), traces=2)


def test_rounds_whose_length_a_value_decides(agree: Any) -> None:
    """A step of an ODE is refused or taken, and the next one is as long as the error allows."""

    def body(y: Any, tolerance: float) -> Any:
        t, h, rounds = 0.0, 0.1, 0
        while t < 1.0 and rounds < 100:
            h = min(h, 1.0 - t)
            first = -5 * y * y
            euler = y + h * first
            heun = y + h / 2 * (first - 5 * euler * euler)
            error = (heun - euler).abs().max().item()
            if error < tolerance:
                t, y = t + h, heun
            h *= min(2.0, max(0.3, 0.9 * math.sqrt(tolerance / (error + 1e-12))))
            rounds += 1
        return y, rounds, h

    y = lucid.tensor([1.0, 2.0], dtype=lucid.float64)
    steps = agree(calling(body, [(y, tolerance) for tolerance in (1e-2, 1e-2, 3e-3)]), traces=2)
    assert len(str(steps[0].stats).splitlines()[-1]) < 400


def test_rows_that_have_been_lists_are_a_tensor_of_the_dtype_that_is_asked_for() -> None:
    step = lucid.compile(lambda x: lucid.tensor((x * 2).tolist(), dtype=lucid.float64))
    for i in range(3):
        found = step(lucid.full((3, 4), i + 0.5))
        assert found.dtype is lucid.float64
        assert found.tolist() == [[2 * i + 1.0] * 4] * 3


READERS: list[Callable[[list[int]], Any]] = [
    max, statistics.mean, math.fsum, np.mean, np.array, json.dumps, "{}".format,
    random.Random(1).choice, lambda values: random.Random(1).choices("abcd", weights=values),
]  # fmt: skip


@pytest.mark.parametrize("read", READERS)
def test_who_reads_a_list_finds_what_the_call_has_put_at_a_place_of_its_own(read: Any) -> None:
    def called(compile: Any) -> list[str]:
        values = [1, 2, 3, 4]

        def body(n: int) -> Any:
            values[n] = n * 3 + 1
            return read(values)

        step, state = compile(body), getattr(read, "__self__", None)
        if isinstance(state, random.Random):
            state.seed(1)
        return [repr(step(n)) for n in (0, 1, 2, 3, 1, 2, 0, 3)]

    assert called(lucid.compile) == called(lambda function: function)
