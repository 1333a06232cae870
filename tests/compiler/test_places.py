"""Containers and objects that are bound anew, and programs that know them by their places."""

from __future__ import annotations

import collections
import contextvars
import functools
import types
import weakref

import pytest

import lucid
from lucid.compiler.cache import ProgramCache


class Thing:
    """An object of the user's, with the attributes that it is given."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Meter:
    """The mean of what it has been told."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count=1):
        self.total += value * count
        self.count += count


class Slotted:
    __slots__ = ("log", "scale")

    def __init__(self, scale):
        self.scale, self.log = scale, []


def shown(value):
    """What is in an object, whatever it is."""
    if isinstance(value, dict):
        return {key: shown(x) for key, x in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return [*map(shown, value)]
    if isinstance(value, (Thing, Meter, types.SimpleNamespace)):
        return shown(vars(value))
    return sorted(value) if isinstance(value, set) else value


def check(agree, at, body, changes, *, count=14, traces=None, names=()):
    """A step that works with `at`, whose attributes are bound anew before some of the calls.

    changes: what is done before a call, by its number.
    """

    def scenario(compile):
        owner = at()
        step, found = compile(lambda x: body(owner, x)), []
        for i in range(count):
            if i in changes:
                changes[i](owner)
            result = step(lucid.tensor([0.5, -1.0, 2.0]))
            found.append((result, {name: shown(getattr(owner, name)) for name in names}))
        return found

    (step,) = agree(scenario, traces=traces)
    return step


def bind(**makers):
    """A change: attributes are bound to what these make."""

    def change(owner):
        for name, make in makers.items():
            setattr(owner, name, make())

    return change


def append(owner, x):
    owner.log.append((x * 2).sum().item())
    return x * 3


def mean(owner, x):
    owner.log.append(x.sum().item())
    return x * (sum(owner.log) / len(owner.log))


def store(owner, x):
    owner.log["loss"] = x.sum().item()
    return x * 3


def add_up(owner, x):
    owner.log["loss"] = owner.log.get("loss", 0.0) + x.sum().item()
    return x * owner.log["loss"]


def fill(owner, x):
    owner.log["loss"].append(x.sum().item())
    return x * 3


def update(owner, x):
    owner.log.update(x.sum().item(), len(x))
    return x * owner.log.total


def configured(owner, x):
    return x * owner.log.scale if owner.log.on else x


def through(owner, x):
    for i, entry in enumerate(owner.log):
        entry.append(i)
    return x * 3


def each(make):
    """What is made when an epoch begins."""
    return dict.fromkeys((3, 6, 9), bind(log=make))


@pytest.mark.parametrize(
    ("make", "body", "traces"),
    [
        (list, append, 1),
        (list, mean, 2),
        (lambda: collections.deque(maxlen=2), append, 1),
        (dict, store, 1),
        (dict, add_up, 2),
        (lambda: collections.defaultdict(list), fill, 2),
        (lambda: {"loss": []}, fill, 1),
        (Meter, update, 1),
        (lambda: types.SimpleNamespace(scale=2.0, on=True), configured, 1),
        (lambda: [[], [], []], through, 1),
        (lambda: Thing(log=[], scale=2.0), lambda t, x: append(t.log, x) * t.log.scale, 1),
    ],
)
def test_a_container_bound_anew_needs_no_trace(agree, make, body, traces):
    at = lambda: Thing(log=make())  # noqa: E731
    step = check(agree, at, body, each(make), names=["log"], traces=traces)
    assert not step.stats.eager_reasons


def twice(owner, x):
    owner.log.append(1.0)
    owner.other.append(2.0)
    return x * len(owner.log)


def one_list(owner):
    owner.log = owner.other = []


def swapped(owner):
    owner.log, owner.other = owner.other, owner.log


def test_which_places_show_one_object_is_compared(agree):
    """Two lists become one, two again, and change places."""
    at = lambda: Thing(log=[], other=[])  # noqa: E731
    apart = bind(other=list)
    changes = {3: one_list, 6: apart, 8: swapped, 10: one_list, 12: bind(log=list)}
    check(agree, at, twice, changes, names=["log", "other"])


def same(owner, x):
    return x * (2 if owner.log is owner.other else 3)


def test_what_is_asked_of_identity_is_compared(agree):
    at = lambda: Thing(log=[1.0], other=[1.0])  # noqa: E731
    check(agree, at, same, {3: one_list, 5: bind(log=list), 7: swapped, 9: one_list})


OLD: list[object] = []  # so that no object has the identity of an earlier one


@pytest.mark.parametrize("ask", [id, hash, str])
def test_who_shows_the_identity_of_an_object_is_traced_again(agree, ask):
    def body(owner, x):
        return x * (2 if ask(owner.thing) == owner.known else 3)

    def at():
        thing = Thing(scale=2.0)
        OLD.append(thing)
        return Thing(thing=thing, known=ask(thing))

    check(agree, at, body, {3: bind(thing=lambda: Thing(scale=2.0))}, traces=2, count=6)


@pytest.mark.parametrize(
    ("hold", "body"),
    [
        (lambda log: log.append, lambda t, x: (t.held(1.0), append(t, x))[1]),
        (
            lambda log: functools.partial(list.append, log),
            lambda t, x: (t.held(1.0), append(t, x))[1],
        ),
        (lambda log: (log, 1), lambda t, x: (t.held[0].append(1.0), append(t, x))[1]),
    ],
)
def test_what_holds_the_old_container_goes_on_with_it(agree, hold, body):
    """A bound method, a partial or a tuple is not bound anew with the list that it holds."""

    def at():
        log = []
        return Thing(log=log, old=log, held=hold(log))

    check(agree, at, body, {3: bind(log=list), 6: bind(log=list)}, names=["log", "old"])


@pytest.mark.parametrize(
    ("hold", "body"),
    [
        (lambda thing: {thing: 2.0}, lambda t, x: x * t.held.get(t.thing, 5.0)),
        (lambda thing: {thing}, lambda t, x: x * (2 if t.thing in t.held else 3)),
        (lambda thing: [thing], lambda t, x: x * (2 if t.thing in t.held else 3)),
        (lambda thing: weakref.ref(thing), lambda t, x: x * (2 if t.held() is t.thing else 3)),
    ],
)
def test_an_object_that_is_looked_for_is_itself(agree, hold, body):
    def at():
        thing = Thing(scale=2.0)
        OLD.append(thing)
        return Thing(thing=thing, held=hold(thing))

    check(agree, at, body, {3: bind(thing=lambda: Thing(scale=2.0))}, count=8)


@pytest.mark.parametrize(
    ("make", "others", "body"),
    [
        (list, lambda: [5.0], mean),
        (list, lambda: collections.deque([1.0]), append),
        (lambda: collections.deque(maxlen=3), lambda: collections.deque(maxlen=2), append),
        (lambda: Slotted(2.0), lambda: Slotted(3.0), lambda t, x: append(t.log, x) * t.log.scale),
        (lambda: Thing(log=[]), lambda: Thing(log=[], scale=2.0), lambda t, x: append(t.log, x)),
        (lambda: {"loss": []}, lambda: {"loss": [1.0], "more": 2}, fill),
        (lambda: Thing(log=[], k=1.0), lambda: Thing(log=[], k=5.0), lambda t, x: x * t.log.k),
    ],
)
def test_what_is_in_the_new_one_is_compared_as_before(agree, make, others, body):
    at = lambda: Thing(log=make())  # noqa: E731
    check(agree, at, body, {3: bind(log=others), 6: bind(log=make), 9: bind(log=others)})


def test_the_object_of_a_compiled_method_stays_what_it_is(agree):
    """`self` is no place: another one where `self.me` was is not `self`."""

    class Counter:
        def __init__(self):
            self.count, self.me = 0, self

        def step(self, x):
            self.me.count += 1
            self.count += 10
            return x * self.count + self.me.count

    def scenario(compile):
        counter, others = Counter(), [Counter(), Counter()]
        step, found = compile(counter.step), []
        for i in range(12):
            if i in (4, 8):
                counter.me = others[i // 8]
            result = step(lucid.tensor([0.5, -1.0, 2.0]))
            found.append((result, counter.count, [x.count for x in others]))
        return found

    agree(scenario)


def test_a_result_is_the_container_of_the_call(agree):
    def scenario(compile):
        owner, found = Thing(log=[]), []

        def step(x):
            owner.log.append(x.sum().item())
            owner.last = owner.log
            return owner.log, x * 2

        step = compile(step)
        for i in range(9):
            if i % 3 == 0:
                owner.log = []
            log, result = step(lucid.tensor([0.5, -1.0, 2.0]))
            found.append((log is owner.log is owner.last, [*log], result))
        return found

    agree(scenario, traces=1)


def test_data_that_a_number_chooses_is_that_of_the_new_list(agree):
    def scenario(compile):
        owner = Thing(data=[lucid.full((3,), float(i)) for i in range(4)], at=0)

        def step(x):
            owner.at += 1
            return x * owner.data[owner.at % len(owner.data)]

        step, found = compile(step), []
        for i in range(16):
            if i in (6, 11):
                owner.data = [x + 10 * i for x in owner.data][::-1]
            found.append(step(lucid.tensor([0.5, -1.0, 2.0])))
        return found

    agree(scenario, traces=1)


def test_an_entry_is_put_at_a_place_of_the_new_list(agree):
    """One that it hasn't is an error before anything has changed, as at any other call."""

    def scenario(compile):
        ring, seen = Thing(values=[0.0] * 9, at=0), []

        @compile
        def step(x):
            ring.values[ring.at] = 7.0
            ring.at += 1
            return x * 2

        for i in range(12):
            if i == 5:
                ring.values = [0.0] * 9
            if i == 7:
                ring.values = [0.0] * 3
            if i == 10:
                ring.at = 1
            try:
                seen.append(step(lucid.ones(2)))
            except IndexError as error:
                seen.append(str(error))
            seen.append([[*ring.values], ring.at])
        return seen

    agree(scenario)


def test_an_entry_that_was_put_at_a_place_is_what_is_read_there(agree):
    """Also where numbers that moved stood in the list: what a call finds isn't there any more."""

    def scenario(compile):
        values = [0.5, 1.5, 2.5, 3.5]

        @compile
        def step(at, x):
            values[at] = 3.0
            values[at] = values[at] + 1
            return x * len(values)

        return [(step(at, lucid.ones(2)), [*values]) for at in (0, 1, 2, 3, 0, 1, 2, 3, 1)]

    agree(scenario)


def test_calls_are_native_again_when_a_container_stays():
    owner = Thing(log=[])
    step = lucid.compile(lambda x: append(owner, x), audit=False)
    program = None
    for i in range(12):
        if i == 6:
            owner.log = []
        step(lucid.ones(3))
        program = step._programs.latest
        assert i in (0, 6) or program.enter is not None
    assert owner.log == [6.0] * 6


def test_an_aliased_argument_is_not_the_container_at_a_place(agree):
    def scenario(compile):
        owner, other, found = Thing(log=[]), [], []

        def step(x, given):
            given.append(1.0)
            owner.log.append(2.0)
            return x * 2

        step = compile(step)
        for i in range(12):
            if i in (4, 8):
                owner.log = []
            if i == 6:
                other = owner.log
            if i == 10:
                owner.log = other
            found.append((step(lucid.ones(3), other), [*other], [*owner.log]))
        return found

    agree(scenario)


def test_programs_of_one_function_follow_each_their_own(agree):
    """One program works with two lists, another one with one list in both places."""

    def body(owner, x):
        owner.log.append(1.0)
        owner.count += len(owner.other) + len(owner.log)
        return x

    def one(owner):
        owner.other = owner.log

    at = lambda: Thing(log=[], other=[], count=0)  # noqa: E731
    changes = {2: one, 6: bind(log=list), 9: swapped, 10: one, 12: bind(other=list)}
    check(agree, at, body, changes, names=["log", "other", "count"])


def test_what_a_context_variable_holds_is_known_by_its_place(agree):
    log = contextvars.ContextVar("log")

    def scenario(compile):
        step, found = compile(lambda x: (log.get().append(x.sum().item()), len(log.get()))[1]), []
        for i in range(14):
            if i % 4 == 0:
                log.set([])
            found.append((step(lucid.ones(2) * i), [*log.get()]))
        return found

    agree(scenario, traces=1)


def test_a_call_for_another_program_asks_each_of_them_once(monkeypatch):
    looks, fitting = [], ProgramCache.fitting

    def counted(*args):
        looks.append(args)
        return fitting(*args)

    owner = Thing(kept={})
    step = lucid.compile(lambda x, i: x * len(owner.kept) + i)
    x = lucid.ones(2)
    for i in range(24):
        if i == 18:
            traces = step.stats.traces
            monkeypatch.setattr(ProgramCache, "fitting", counted)
        owner.kept = dict.fromkeys(range(i % 3), x)
        assert step(x, i).tolist() == [i % 3 + i] * 2
    assert step.stats.traces == traces
    assert 0 < len(looks) <= 6
