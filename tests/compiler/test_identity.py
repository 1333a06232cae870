"""Which containers and objects are one: those that a step makes, finds, keeps and returns."""

from __future__ import annotations

import functools
import types
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import distributions, nn

X = [0.5, -1.0, 2.0]


def x_of(i):
    return lucid.tensor(X) * (i + 1)


class Holder:
    def __init__(self, **attributes):
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("__weakref__", "content", "unset")

    def __init__(self, content):
        self.content = content


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Output:
    y: Any
    notes: list = field(default_factory=list)


@dataclass(eq=False)
class Unequal:
    y: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    y: Any
    notes: Any


class Rows(list):
    """A list of a class of its own, with attributes."""


class Table(dict):
    """A dict of a class of its own, with attributes."""


class Unnamed(list):
    __slots__ = ()


class Groups(defaultdict):
    """A defaultdict of a class of its own, with attributes."""


class AttributesAreItems(dict):
    def __init__(self, **items):
        super().__init__(items)
        self.__dict__ = self


class ModelOutput(OrderedDict):
    """As Hugging Face's: attributes that are items as well."""

    def __init__(self, **items):
        super().__init__()
        for key, value in items.items():
            self[key] = value

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(str(key), value)

    def __setattr__(self, name, value):
        self[name] = value


class Seen:
    """Numbers objects in the order in which they are met, over several looks."""

    def __init__(self):
        self._kept = {}

    def number(self, value):
        return self._kept.setdefault(id(value), (len(self._kept), value))[0]

    def look(self, value, inside=()):
        """A description of a value with the numbers of all objects in it."""
        if isinstance(value, (int, float, str, type(None), type, types.FunctionType)):
            return str(value)
        number = self.number(value) if value != () else ""
        if isinstance(value, lucid.Tensor):
            return f"{number}:{np.round(value.detach().numpy(), 4).tolist()}"
        if number in inside:
            return f"{number}:again"
        look = functools.partial(self.look, inside=(*inside, number))
        parts = []
        if isinstance(value, dict):
            parts = [f"{look(key)}: {look(item)}" for key, item in value.items()]
        elif isinstance(value, (list, tuple, deque)):
            parts = [look(item) for item in value]
        elif isinstance(value, (set, frozenset)):
            parts = sorted(map(str, value))
        parts += [look(getattr(value, name, None)) for name in getattr(value, "_options", ())]
        parts += [f"{k}={look(v)}" for k, v in getattr(value, "__dict__", {}).items()]
        parts += [look(value.content)] if isinstance(value, Slotted) else []
        parts += [look(value.y), look(value.notes)] if isinstance(value, Frozen) else []
        parts += [str(value.maxlen)] if isinstance(value, deque) else []
        return f"{number}:{type(value).__name__}({', '.join(parts)})"


def calls(compile, step, *around, count=4, after=None):
    """What is seen of the results of some calls and of what is around them, after each call."""
    step, seen, found = compile(step), Seen(), []
    for i in range(count):
        result = step(x_of(i))
        if after is not None:
            after(result, i)
        found.append(seen.look([result, *around]))
    return found


def test_a_container_that_is_returned_and_kept_is_one(agree):
    def scenario(compile):
        log, holder = [], Holder(last=None, table={})

        def step(x):
            made = {"y": x * 2}
            log.append(made)
            log.extend([made, (made, [made])])
            holder.last = holder.table["entry"] = rows = [made]
            return made, rows, [made]

        def change(result, i):
            result[0]["z"] = i
            result[1].append(i)

        return calls(compile, step, log, holder, after=change)

    agree(scenario, traces=1)


@pytest.mark.parametrize("make", [lambda *parts: parts, Pair, Frozen, list])
def test_a_call_that_makes_a_container_which_holds_itself_runs_op_by_op(agree, make):
    def scenario(compile):
        def step(x):
            inner = []
            made = make([inner, x * 2]) if make is list else make(inner, x * 2)
            inner.append(made)
            return made, inner, {"made": made}

        return calls(compile, step)

    (step,) = agree(scenario, traces=0)
    (reason,) = set(step.stats.eager_reasons)
    assert reason.startswith("it makes a container that holds itself, a ")


def test_shapes_stay_shapes(agree):
    def scenario(compile):
        @compile
        def step(x):
            return x.shape, [x.reshape(3, -1).shape], (x.shape[:1], x.sum())

        shape, (other,), (part, _) = step(x_of(0))
        return [type(size).__name__ for size in (shape, other, part)], other.numel(), shape

    agree(scenario)


def test_tuples_that_are_one(agree):
    def scenario(compile):
        def step(x):
            pair = Pair([x], (x * 2,))
            return pair, pair.first, [pair, pair.second], ((), ())

        return calls(compile, step)

    agree(scenario, traces=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: deque([x, x * 2, 3], maxlen=2),
        lambda x: OrderedDict(b=x * 2, a=x),
        lambda x: defaultdict(list, a=[x]),
        lambda x: {1: x, (1, 2): "by tuple"},
        lambda x: types.SimpleNamespace(y=x * 2, notes=[]),
        lambda x: Holder(y=x * 2, notes=[Holder(x=x)]),
        lambda x: Output(x * 2, [x]),
        lambda x: Frozen(x * 2, [x]),
        lambda x: Counter("aab", n=len(x)),
        lambda x: attributed(OrderedDict(b=x * 2, a=x)),
        lambda x: Rows([x, 1]),
        lambda x: Table(a=x),
        lambda x: Groups(list, a=[x]),
        lambda x: AttributesAreItems(a=x),
        lambda x: ModelOutput(loss=x.sum(), logits=x),
    ],
)
def test_each_call_makes_its_own(agree, make):
    agree(containers_made_by(make), traces=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: {x: "by tensor"},
        lambda x: bytearray(b"ab"),
        lambda x: Slotted([x * 2]),
        lambda x: Unnamed([x, 1]),
    ],
)
def test_a_call_that_makes_a_container_of_another_kind_runs_op_by_op(agree, make):
    (step,) = agree(containers_made_by(make), traces=0)
    (reason,) = set(step.stats.eager_reasons)
    kind = type(make(lucid.tensor(X))).__name__
    assert reason == (
        f"it makes and returns or keeps a {kind}, which is no plain list, tuple, dict, set or "
        "object of data"
    )


@pytest.mark.parametrize(
    "make", [lambda x: {1, 2}, lambda x: {"a": {x * 2}}, lambda x: frozenset([x * 2, "a"])]
)
def test_sets_are_made_by_each_call(agree, make):
    (step,) = agree(containers_made_by(make), traces=1)
    assert not step.stats.eager_reasons


def attributed(container):
    container.note = "an attribute"
    return container


def containers_made_by(make):
    def scenario(compile):
        log = []

        def step(x):
            made = make(x)
            if hasattr(made, "__dict__") and not isinstance(made, OrderedDict):
                made.note = [x]
            if isinstance(made, OrderedDict) and "b" in made:
                made.move_to_end("b")
            log.append(made)
            return made, [made]

        def change(result, i):
            made = result[0]
            if isinstance(made, (list, deque)):
                made.append(i)
            elif isinstance(made, dict):
                made[i] = i
            elif isinstance(made, set):
                made.add(i)
            elif isinstance(made, bytearray):
                made += b"c"
            elif hasattr(made, "__dict__"):
                made.more = i

        return calls(compile, step, log, after=change)

    return scenario


def test_a_default_of_a_dict_that_is_returned(agree):
    def scenario(compile):
        def step(x):
            table = defaultdict(list)
            table["a"].append(x)
            return table, table["a"]

        return calls(compile, step, after=lambda result, i: result[0]["new"].append(i))

    agree(scenario, traces=1)


def test_what_was_there_before_the_call_is_returned_itself(agree):
    def scenario(compile):
        table, rows = {"w": lucid.ones(3)}, [1, [2], {"a": 3}]
        holder, large = Holder(notes=[]), [{"row": i} for i in range(600)]
        cached = functools.cache(lambda n: [n, Holder(n=n)])
        cached(3)

        def step(x):
            found = [table, rows[1], rows[2], holder, holder.notes, large[7], cached(3)]
            return table["w"] * x, found, {"rows": rows}

        return calls(compile, step, table, rows, holder, large[7], cached(3))

    agree(scenario, traces=1)


def test_arguments_are_returned_and_kept_themselves(agree):
    def scenario(compile):
        log, holder = [], Holder(last=None)

        @compile
        def step(batch, pair, queue, record):
            log.append(batch)
            holder.last = pair
            y = batch["x"] * 2 + pair.first[0]
            return batch, {"pair": pair, "rows": pair.first}, queue, record, record.notes, y

        seen, found = Seen(), []
        for i in range(4):
            given = {"x": x_of(i)}, Pair([x_of(i)], (1, 2)), deque([x_of(i)]), Output(x_of(i))
            found.append(seen.look([step(*given), *given, log, holder]))
        return found

    agree(scenario)


def test_an_argument_that_holds_itself_or_another_twice(agree):
    def scenario(compile):
        @compile
        def step(given):
            given["rows"][0].append(given["x"] * 2)
            return given["me"], given["rows"][0] is given["rows"][1], len(given["rows"][1])

        seen, found = Seen(), []
        for i in range(6):
            rows = [i]
            given = {"x": x_of(i), "rows": [rows, rows if i % 2 else [i]]}
            given["me"] = given
            found.append(seen.look([step(given), given]))
        return found

    agree(scenario)


def test_a_deque_that_is_an_argument(agree):
    def scenario(compile):
        @compile
        def step(history, x):
            history.append(x)
            return sum(history), history

        history, growing, seen, found = deque(maxlen=2), deque(), Seen(), []
        for i in range(4):
            found.append(seen.look([step(history, x_of(i)), step(growing, x_of(i)), history]))
        return [found, list(growing)]

    agree(scenario)


def test_other_names_of_what_a_step_changes_see_it(agree):
    def scenario(compile):
        holder = Holder(cache=None, state={"n": lucid.zeros(3)}, rows=[1, 2.5])
        names = [holder.state, holder.rows]

        def step(x):
            if holder.cache is None:
                holder.cache = {}
            holder.cache["x"] = x * 2
            holder.state["n"] = holder.state["n"] + x
            holder.rows[0] += 1
            return holder.cache, holder.state, holder.rows

        return calls(compile, step, holder, names, after=lambda r, i: names.append(r[0]))

    agree(scenario)


@pytest.mark.parametrize("kind", [Holder, Output])
def test_an_object_that_each_call_makes_from_the_one_before(agree, kind):
    def scenario(compile):
        holder = Holder(last=kind(y=lucid.ones(3)))
        first = holder.last

        def step(x):
            holder.last = kind(y=holder.last.y + x)
            return holder.last, holder.last.y.sum()

        return calls(compile, step, holder, first)

    agree(scenario, traces=1)


def test_a_log_that_is_returned(agree):
    def scenario(compile):
        log, queue = [], deque(maxlen=3)

        def step(x, notes=[]):  # noqa: B006
            log.append(x * 2)
            queue.append(x)
            notes.append("called")
            return log, {"queue": queue, "pair": (notes, x)}

        return calls(compile, step, log, queue, count=6)

    agree(scenario, traces=1)


def test_containers_with_results_that_are_differentiated(agree):
    def scenario(compile):
        w, log = nn.Parameter(lucid.tensor(X)), []

        @compile
        def step(batch):
            made = Holder(y=w * batch["x"])
            log.append(made)
            return made, batch, {"y": made.y}, [made]

        found = []
        for i in range(3):
            batch = {"x": x_of(i)}
            made, returned, found_in, (again,) = step(batch)
            batch["x"] = None  # the backward has what the call was given
            assert made is again is log[-1] and returned is batch and found_in["y"] is made.y
            made.y.sum().backward()
            found.append(made.y)
        return [found, w]

    agree(scenario, traces=1)


def test_a_distribution_is_a_result(agree):
    def scenario(compile):
        step = compile(lambda x: distributions.Normal(x, x.abs() + 1))
        found = [step(x_of(i)) for i in range(3)]
        return [[d.loc, d.scale, d.log_prob(lucid.ones(3))] for d in found]

    agree(scenario, traces=1)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda given, s: given is s.known, "looks whether a Output that it is given is"),
        (lambda given, s: given in s.table, "looks for a Unequal that it is given, by identity"),
        (lambda given, s: given == s.known, None),
    ],
    ids=["is", "in", "=="],
)
def test_which_object_with_fields_is_given_is_looked_at_op_by_op(agree, use, reason):
    """A step is given one made anew. Since Python 3.13 `==` of such begins with `is`."""

    def scenario(compile):
        kind = Unequal if reason and "Unequal" in reason else Output
        known = kind(1.0)
        s = types.SimpleNamespace(known=known, table={known: 1} if kind is Unequal else {})
        step = compile(lambda x, given: x * 2 if use(given, s) else x * given.y)
        return [step(x_of(0), given) for given in (known, kind(3.0), known, kind(1.0))]

    (step,) = agree(scenario)
    assert reason is None or reason in step.stats.eager_reasons[0]


def test_no_tensor_is_a_sentinel(agree):
    """`object()` as a default says that nothing was given."""

    def scenario(compile):
        missing = object()

        @compile
        def step(x, weight=missing):
            return x if weight is missing else x * weight

        return [step(x_of(0)), step(x_of(0), x_of(1)), step(x_of(0)), step(x_of(0), x_of(2))]

    (step,) = agree(scenario, traces=2)
    assert not step.stats.eager_reasons
