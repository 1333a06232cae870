"""Every retrace has a reason, old -> new; a change back finds the older program."""

from __future__ import annotations

import collections
import decimal
import functools
import itertools
import math
import sys
import types

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler import compiled
from lucid.compiler.pacing import NotPaidForError, TracePace
from lucid.compiler.recording.guards import Guards

SCALE = 2.0
CONFIG = {"scale": 2.0, "flags": [True, "a"]}
config = types.ModuleType("config")
config.__file__ = __file__
config.scale = 2.0


class Settings:
    scale = 2.0


class Frozen:
    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale


def reasons_after(step, *changes):
    """The reasons for the traces that each change causes."""
    step(lucid.ones(2))
    for change in changes:
        change()
        step(lucid.ones(2))
        step(lucid.ones(2))
    return step.stats.retrace_reasons


def test_globals(monkeypatch):
    step = lucid.compile(lambda x: x * SCALE)
    module = sys.modules.get(__name__) or types.SimpleNamespace(__dict__=globals())
    found = reasons_after(step, lambda: monkeypatch.setitem(module.__dict__, "SCALE", 3.0))
    assert found == ["SCALE: 2.0 -> 3.0"]


def test_attributes_of_python_modules(monkeypatch):
    step = lucid.compile(lambda x: x * config.scale)
    assert reasons_after(step, lambda: monkeypatch.setattr(config, "scale", 3.0)) == [
        "config.scale: 2.0 -> 3.0"
    ]


def test_entries_of_dicts_and_lists(monkeypatch):
    step = lucid.compile(lambda x: x * CONFIG["scale"] if CONFIG["flags"][0] else x)
    found = reasons_after(
        step,
        lambda: monkeypatch.setitem(CONFIG, "scale", 5.0),
        lambda: CONFIG["flags"].__setitem__(0, False),
        lambda: CONFIG["flags"].append(1),  # which the step doesn't read
    )
    CONFIG["flags"][:] = [True, "a"]
    assert found == [
        "CONFIG['scale']: 2.0 -> 5.0",
        "CONFIG['flags'][0]: True -> False",
    ]


def test_class_attributes_and_instance_attributes_that_cover_them(monkeypatch):
    settings = Settings()
    step = lucid.compile(lambda x: x * settings.scale)
    found = reasons_after(
        step,
        lambda: monkeypatch.setattr(Settings, "scale", 3.0),
        lambda: setattr(settings, "scale", 4.0),
    )
    assert found == ["Settings.scale: 2.0 -> 3.0", "settings.scale: absent -> 4.0"]


def test_names_on_both_sides_of_a_star():
    numbers = [1.0, 2.0, 3.0]

    def step(x):
        first, *_, last = numbers
        return x * first * last

    step = lucid.compile(step)
    assert reasons_after(step, lambda: numbers.append(5.0)) == ["len(numbers): 3 -> 4"]
    assert step(lucid.ones(1)).item() == 5.0


def test_a_function_of_more_names_than_a_byte_counts():
    lines = [f"    x = x * s{i}" for i in range(300)]
    names = {f"s{i}": 1.0 for i in range(300)}
    exec("\n".join(["def step(x):", *lines, "    return x"]), names)
    step = lucid.compile(names["step"])
    changes = [functools.partial(names.__setitem__, f"s{i}", 2.0) for i in (0, 200, 299)]
    reasons = [f"s{i}: 1.0 -> 2.0" for i in (0, 200, 299)]
    assert reasons_after(step, *changes) == reasons


class Answers:
    """A class that answers for many instructions; `value` is what it answers with."""

    __match_args__ = ("value",)
    value, other = 2.0, 7.0
    given = property(lambda self: self.value, lambda self, value: None)

    def __init__(self):
        self.count = 0

    def __enter__(self):
        return self.value

    def __exit__(self, *_):
        return False

    def __pos__(self):
        return self.value

    def __iter__(self):
        self.count = 0
        return self

    def __next__(self):
        self.count += 1
        if self.count > 2:
            raise StopIteration
        return self.value


class Computed:
    def __get__(self, owner, kind=None):
        return 2.0


def entered(x, made):
    with made as value:
        return x * value


def matched(x, made):
    match made:
        case Answers(value):
            return x * value


def assigned(x, made):
    made.given = 1.0
    return x * made.value


def gone_through(x, made):
    for value in made:
        x = x * value
    return x


@pytest.mark.parametrize(
    ("use", "name", "other"),
    [
        (entered, "__enter__", lambda self: 5.0),
        (entered, "__exit__", lambda self, *_: None),
        (matched, "__match_args__", ("other",)),
        (assigned, "given", property(None, lambda self, value: setattr(self, "value", 5.0))),
        (gone_through, "__iter__", lambda self: iter([5.0])),
        (gone_through, "__next__", lambda self: next(itertools.chain([]))),
        (lambda x, made: x * sum(made), "__next__", lambda self: next(itertools.chain([]))),
        (lambda x, made: x * +made, "__pos__", lambda self: 5.0),
    ],
)
def test_what_a_class_answers_with_is_replaced(monkeypatch, use, name, other):
    made = Answers()
    step = lucid.compile(lambda x: use(x, made))
    reasons = reasons_after(step, lambda: monkeypatch.setattr(Answers, name, other))
    assert [reason.partition(":")[0] for reason in reasons] == [f"Answers.{name}"]
    assert step(lucid.ones(2)).tolist() == use(lucid.ones(2), Answers()).tolist()


def test_a_descriptor_whose_class_is_changed(monkeypatch):
    class Holder:
        scale = Computed()

    holder = Holder()
    step = lucid.compile(lambda x: x * holder.scale)
    other = lambda self, owner, kind=None: 3.0  # noqa: E731
    reasons = reasons_after(
        step,
        lambda: monkeypatch.setattr(Computed, "__get__", other),
        lambda: vars(holder).update(scale=4.0),
        lambda: monkeypatch.setattr(Computed, "__set__", None, raising=False),
    )
    assert [reason.partition(":")[0] for reason in reasons] == [
        "Computed.__get__",
        "holder.scale",
        "Computed.__set__",
    ]
    assert step(lucid.ones(1)).item() == 3.0


def test_slots_namespaces_and_sets():
    frozen, space, names = Frozen(2.0), types.SimpleNamespace(scale=2.0), {"a"}
    step = lucid.compile(lambda x: x * frozen.scale * space.scale * len(names))
    found = reasons_after(
        step,
        lambda: setattr(frozen, "scale", 3.0),
        lambda: setattr(space, "scale", 3.0),
        lambda: names.add("b"),
    )
    assert found[:2] == ["frozen.scale: 2.0 -> 3.0", "space.scale: 2.0 -> 3.0"]
    assert found[2] == "len(names): 1 -> 2"


def test_closures_and_functions_that_they_hold():
    scale = 2.0

    def helper(x):
        return x * scale

    step = lucid.compile(lambda x: helper(x))

    def change():
        nonlocal scale
        scale = 3.0

    def replace():
        nonlocal helper
        helper = abs

    assert reasons_after(step, change, replace) == [
        "scale: 2.0 -> 3.0",
        "helper: a function -> <built-in function abs>",
    ]


def test_signs_of_zero_are_told_apart_and_one_nan_is_as_good_as_another():
    scale = 0.0
    step = lucid.compile(lambda x: x / scale)
    assert step(lucid.ones(1)).item() == float("inf")
    scale = -0.0
    assert step(lucid.ones(1)).item() == float("-inf")
    other = float("nan")
    step = lucid.compile(lambda x: x * other)
    for _ in range(2):
        assert math.isnan(step(lucid.ones(1)).item())
        other = float("nan")
    assert step.stats.traces == 1


def test_numbers_that_have_changed_twice_are_read_at_each_call(monkeypatch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.temperature, self.calls = 1.0, 0

        def forward(self, x):
            return x / self.temperature + self.calls

    model, epoch = Model(), 0
    config = {"weight": np.float64(1.0)}

    def body(x):
        bonus = 100.0 if epoch > 5 else 0.0
        return model(x) * config["weight"] * SCALE + epoch + lucid.tensor(epoch) + bonus

    step = lucid.compile(body)
    x = lucid.ones(2)
    for epoch in range(8):  # noqa: B007 - what the step reads
        assert step(x).tolist() == body(x).tolist()
        model.temperature *= 0.5
        model.calls += 1
        config["weight"] += 0.5
        monkeypatch.setitem(globals(), "SCALE", SCALE + 1.0)
    assert step.stats.traces == 4
    assert step.stats.retrace_reasons[2] == "epoch > 5 (a branch looked at it): False -> True"


def test_a_step_that_begins_to_bind_a_number_that_moved(agree):
    def scenario(compile):
        state = {"n": 0, "by": 0}

        def body(x):
            if state["by"]:
                state["n"] += state["by"]
            return x * state["n"]

        step, found = compile(body), []
        for n, by in ((0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 0)):
            state.update(n=n, by=by)
            found.append((step(lucid.ones(2)), state["n"]))
        return found

    agree(scenario)


def test_a_backward_outside_sees_the_number_of_its_call():
    settings = types.SimpleNamespace(scale=1.0)
    step = lucid.compile(lambda x: x * x * settings.scale)
    for scale in (1.0, 2.0, 3.0, 4.0, 5.0):
        settings.scale = scale
        x = lucid.ones(2, requires_grad=True)
        y = step(x).sum()
        if scale > 3.0:
            settings.scale = 100.0
        y.backward()
        assert x.grad.tolist() == [2 * scale] * 2
    assert step.stats.traces == 2


def test_a_number_that_shapes_depend_on_is_traced_for_each_value():
    count = 0
    step = lucid.compile(lambda x: x.repeat(count + 1) * lucid.arange(count + 1))
    for count in (0, 1, 2, 1, 0):
        assert step(lucid.ones(1)).tolist() == [float(i) for i in range(count + 1)]
    assert step.stats.traces == 3


def test_a_number_that_moves_and_that_python_must_know_runs_op_by_op():
    options = {"count": 1}
    step = lucid.compile(lambda x: x * int(decimal.Decimal(options["count"])))
    for count in (1, 2, 30, 2):
        options["count"] = count
        assert step(lucid.ones(1)).item() == count
    assert step.stats.traces == 2
    (reason,) = step.stats.eager_reasons
    assert reason.splitlines()[0] == (
        "with numbers that it would read at each call its trace fails: "
        "TypeError: conversion from SymScalar to Decimal is not supported"
    )


def test_what_refuses_a_number_that_moves_is_no_error_that_the_step_handles(agree):
    """But an error of Python's own numbers is."""
    settings = types.SimpleNamespace(scale=1.0)

    def scenario(compile):
        @compile
        def step(x):
            try:
                scale = float(decimal.Decimal(settings.scale))
            except TypeError:
                scale = 0.0
            try:
                count = len(settings.scale)
            except TypeError as error:
                count = len(str(error))
            return x * scale + count

        found = []
        for settings.scale in (1.0, 2.0, 3.0, 4.0):
            found.append(step(lucid.ones(1)))
        return found

    agree(scenario)


@pytest.mark.parametrize("where", ["in a variable", "as an argument"])
def test_a_call_that_fails_says_nothing_about_the_numbers_that_move(agree, where):
    def scenario(compile):
        n, is_bad = 0, False

        def scaled(x, n):
            if is_bad:
                raise ValueError("bad")
            return x * n

        step = compile(lambda x: scaled(x, n)) if where == "in a variable" else compile(scaled)
        found = []
        for n in range(20):
            is_bad = n in (2, 3, 4, 5, 6, 12)
            try:
                given = (lucid.ones(2),) if where == "in a variable" else (lucid.ones(2), n)
                found.append(step(*given))
            except ValueError:
                found.append("bad")
        return found

    (step,) = agree(scenario)
    assert step.stats.traces == 3


def test_what_nobody_reads_causes_no_retrace():
    settings = types.SimpleNamespace(scale=2.0, counter=0)
    step = lucid.compile(lambda x: x * settings.scale)
    assert reasons_after(step, lambda: setattr(settings, "counter", 1)) == []


@pytest.mark.parametrize("took", [0.0, 1e9])
@pytest.mark.usefixtures("known_sizes")
def test_sizes_that_never_come_back_are_traced_as_long_as_that_is_faster(monkeypatch, took):
    note = TracePace.note_eager
    monkeypatch.setattr(TracePace, "note_eager", lambda *args: note(*args[:-1], took))
    step = lucid.compile(lambda x: x.cumsum(0) * 2)
    for size in range(2, 30):
        assert step(lucid.ones(size)).shape == (size,)
    assert step.stats.traces == (28 - 4 if took else 8), "four calls are timed"
    assert len(step.stats.eager_reasons) == 28 - step.stats.traces


@pytest.mark.parametrize(("seconds", "traces"), [(600.0, 8), (0.0, 4)])
def test_paths_that_never_come_back_are_traced_for_some_seconds(monkeypatch, seconds, traces):
    """As with a draw in each round: there are as many paths as there are calls."""
    monkeypatch.setattr("lucid.compiler.pacing.FREE_SECONDS", seconds)

    @lucid.compile
    def step(x, bits):
        for bit in bits:
            x = x * 2 if bit else x + 1
        return x

    for number in range(1, 12):
        step(lucid.ones(3), lucid.tensor([number >> k & 1 for k in range(4)]))
    assert step.stats.traces == traces
    assert len(step.stats.eager_reasons) == 11 - traces


@pytest.mark.parametrize(("seconds", "traces"), [(600.0, 8), (0.0, 4)])
def test_objects_that_never_come_back_are_traced_for_some_seconds(monkeypatch, seconds, traces):
    monkeypatch.setattr("lucid.compiler.pacing.FREE_SECONDS", seconds)

    class Table:
        __slots__ = ("scale",)

        def __init__(self, scale):
            self.scale = str(scale)

    step = lucid.compile(lambda x, table: x * float(table.scale))
    for number in range(9):
        assert step(lucid.ones(3), Table(number)).tolist() == [number] * 3
    assert step.stats.traces == traces
    assert len(step.stats.eager_reasons) == 9 - traces


def test_arguments_name_what_differs(monkeypatch):
    monkeypatch.setattr("lucid.compiler.pacing.MOST_FREE", 16)

    @lucid.compile
    def step(x, batch, mode="a", *, flag=True):
        return x * batch["y"] if flag else x

    one = lucid.ones(2, 3)
    step(one, {"y": one})
    step(lucid.ones(4, 3), {"y": lucid.ones(4, 3)})
    step(one, {"y": one}, "b")
    step(one, {"y": one}, flag=False)
    step(one.double(), {"y": one.double()})
    step(lucid.ones(3, 2).t(), {"y": one})
    step(one, {"y": one, "z": 1.5})
    step(one.clone().requires_grad_(), {"y": one})
    with lucid.no_grad():
        step(one, {"y": one})
    step(one, {"y": one})
    assert step.stats.retrace_reasons == [
        "x: f32[2,3] -> f32[4,3]; batch['y']: f32[2,3] on the memory of x -> f32[4,3]",
        "mode: absent -> str 'b'",
        "flag: absent -> bool False",
        "x: f32[2,3] -> f64[2,3]; batch['y']: f32[2,3] on the memory of x -> f64[2,3]",
        "x: f32[2,3] -> f32[2,3] of strides (1, 2); "
        "batch['y']: f32[2,3] on the memory of x -> f32[2,3]",
        "batch['z']: absent -> a float",
        "x: f32[2,3] of strides (1, 2) -> f32[2,3] that requires grad",
        "grad mode: on -> off",
    ]


@pytest.mark.usefixtures("known_sizes")
def test_of_many_differences_messages_name_a_few(monkeypatch):
    monkeypatch.setattr(TracePace, "_is_faster", lambda pace: False)
    step = lucid.compile(lambda caches: sum(cache.sum() for cache in caches))
    for size in range(1, 20):
        step([lucid.ones(size) for _ in range(7)])
    named = "; ".join(f"caches[{i}]: f32[1] -> f32[2]" for i in range(4))
    assert step.stats.retrace_reasons[0] == f"{named} and 3 more"
    *_, lines = str(step.stats).split("signature\n")
    assert "caches[3]: f32[1] and 3 more\n" in lines
    assert lines.count("op by op, ") == 1 and "op by op, 11 calls, the first since: " in lines


def test_the_default_dtype_is_part_of_the_signature():
    step = lucid.compile(lambda x: x + lucid.ones(2))
    step(lucid.ones(2))
    try:
        lucid.set_default_dtype(lucid.float64)
        assert step(lucid.ones(2, dtype=lucid.float32)).dtype == lucid.float64
    finally:
        lucid.set_default_dtype(lucid.float32)
    assert step.stats.retrace_reasons == ["default dtype: lucid.float32 -> lucid.float64"]


def test_train_and_eval_reuse_their_programs(agree):
    def scenario(compile):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        step = compile(lambda x: model(x))
        x, outs = lucid.arange(6.0).reshape(2, 3), []
        for _ in range(3):
            outs += [model.train() and step(x).detach(), model.eval() and step(x).detach()]
        return [outs, model]

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == ["model.training: True -> False"]


def test_the_last_smaller_batch_has_a_program_of_its_own(agree):
    def scenario(compile):
        model = nn.Linear(3, 1)
        opt = lucid.optim.Adam(model.parameters(), lr=0.01)

        @compile
        def step(x):
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            return loss

        sizes = [4, 4, 2] * 3
        return [[step(lucid.ones(n, 3)).detach() for n in sizes], model]

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == ["x: f32[4,3] -> f32[2,3]"]


def test_a_step_that_switches_to_train_mode_itself(agree):
    def scenario(compile):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

        @compile
        def train(x):
            model.train()
            return model(x).detach()

        @compile
        def evaluate(x):
            model.eval()
            return model(x).detach()

        x, outs = lucid.arange(6.0).reshape(2, 3), []
        for _ in range(3):
            outs += [train(x), model.training, evaluate(x), evaluate(x), model.training]
        return [outs, model]

    steps = agree(scenario)
    assert [step.stats.traces for step in steps] == [2, 2]


def test_a_retrace_is_logged(monkeypatch, capsys):
    monkeypatch.setenv("LUCID_LOG", "retrace")

    @lucid.compile
    def step(x):
        return x * 2

    step(lucid.ones(2))
    step(lucid.ones(3))
    assert capsys.readouterr().err == "lucid: retrace of step: x: f32[2] -> f32[3]\n"
    monkeypatch.setenv("LUCID_LOG", "")
    step(lucid.ones(4))
    assert not capsys.readouterr().err


def test_hooks_of_modules_are_guarded(agree):
    def scenario(compile):
        layer = nn.Linear(2, 2)
        step = compile(lambda x: layer(x))
        outs = [step(lucid.ones(1, 2)).detach()]
        handle = layer.register_forward_hook(lambda module, args, out: out * 2)
        outs.append(step(lucid.ones(1, 2)).detach())
        handle.remove()
        outs.append(step(lucid.ones(1, 2)).detach())
        return outs

    agree(scenario, traces=2)


def test_gradient_hooks_are_guarded(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))

        @compile
        def step(x):
            w.grad = None
            (w * x).sum().backward()
            return w.grad.clone()

        outs = [step(lucid.ones(2))]
        handle = w.register_hook(lambda grad: grad * 10)
        outs.append(step(lucid.ones(2)))
        handle.remove()
        outs.append(step(lucid.ones(2)))
        return outs

    agree(scenario)


@pytest.mark.parametrize("grow", [lambda m: m.append(nn.Tanh()), lambda m: m.pop(1)])
def test_a_changed_module_tree_is_noticed(agree, grow):
    def scenario(compile):
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        step = compile(lambda x: model(x))
        outs = [step(lucid.ones(1, 2)).detach()]
        grow(model)
        return [outs, step(lucid.ones(1, 2)).detach()]

    agree(scenario, traces=2)


def test_a_replaced_method_is_noticed(monkeypatch):
    class Scaler:
        def scale(self, x):
            return x * 2

    scaler = Scaler()
    step = lucid.compile(lambda x: scaler.scale(x))
    found = reasons_after(step, lambda: monkeypatch.setattr(Scaler, "scale", lambda self, x: x * 3))
    assert found == ["Scaler.scale: a function -> a function"]
    assert step(lucid.ones(2)).tolist() == [3.0, 3.0]


@pytest.mark.usefixtures("known_sizes")
def test_traces_that_calls_have_not_paid_for_are_not_made(caplog):
    step = lucid.compile(lambda x: x * 2)
    for n in range(1, 12):
        assert step(lucid.ones(n)).tolist() == [2.0] * n
    assert step.stats.traces == 8
    (said,) = [record.getMessage() for record in caplog.records]
    first, line, hint = said.split("\n")
    assert first == (
        "<lambda>: this call runs op by op: it was traced 8 times in 8 calls that ran natively, "
        "and would be traced again now: x: f32[8] -> f32[9]"
    )
    assert line.endswith("   assert step(lucid.ones(n)).tolist() == [2.0] * n") and hint.startswith(
        "hint: "
    )
    for _ in range(8 * 8):
        step(lucid.ones(3))
    step(lucid.ones(11))
    assert step.stats.traces == 9, "now they have"


@pytest.mark.parametrize(
    ("make", "add"),
    [
        (list, lambda x: x.append(1)),
        (collections.deque, lambda x: x.append(1)),
        (dict, lambda x: x.update(last=1)),
        (set, lambda x: x.add(1)),
    ],
)
def test_a_new_container_in_the_place_of_another_needs_no_trace(make, add):
    owner = types.SimpleNamespace(seen=make())

    @lucid.compile
    def step(x):
        add(owner.seen)
        return x * 2

    for _ in range(12):
        owner.seen = make()
        step(lucid.ones(2))
        assert len(owner.seen) == 1
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def traces_of(sizes, step=None):
    """How often a function is traced that is called with tensors of these sizes."""
    step = step or lucid.compile(lambda x: x * 2, audit=False)
    for n in sizes:
        assert step(lucid.ones(n)).tolist() == [2.0] * n
    return step.stats.traces, step.stats.dropped


@pytest.mark.usefixtures("known_sizes")
def test_the_programs_used_longest_ago_are_dropped(monkeypatch):
    monkeypatch.setattr("lucid.compiler.cache.LIMIT", 2)
    assert traces_of((1, 2, 3, 1, 3)) == (4, 2)
    assert traces_of((1, 2, 1, 3, 1)) == (3, 1), "2 was used longer ago than 1"


@pytest.mark.usefixtures("known_sizes")
def test_calls_that_native_code_serves_are_uses_of_their_program(monkeypatch):
    monkeypatch.setattr("lucid.compiler.cache.LIMIT", 3)
    step = lucid.compile(lambda x: x * 2, audit=False)
    assert traces_of((1, 2, 3, *(1 for _ in range(20)), 3), step) == (3, 0)
    assert traces_of((4, 1, 3), step) == (4, 1), "2 went"
    assert traces_of((2,), step) == (5, 2)


@pytest.mark.usefixtures("known_sizes")
def test_paths_that_take_over_are_uses_of_their_program(monkeypatch):
    monkeypatch.setattr("lucid.compiler.cache.LIMIT", 3)
    step = lucid.compile(lambda x: x * 2 if x.sum() > 0 else -x, audit=False)
    up, down = lucid.ones(2), -lucid.ones(2)
    for x in (up, down, lucid.ones(3), up, down, up, down, lucid.ones(4), up, down):
        assert step(x).tolist() == (x * 2 if x is not down else -x).tolist()
    assert (step.stats.traces, step.stats.dropped) == (4, 1)


@pytest.mark.usefixtures("known_sizes")
def test_programs_are_dropped_for_the_memory_that_they_keep(monkeypatch):
    monkeypatch.setattr("lucid.compiler.cache.LIMIT_BYTES", 1)
    table = np.zeros(1 << 16)
    step = lucid.compile(lambda x: x * 2 + float(table[3]) + float(table.sum()), audit=False)
    assert traces_of((1, 2, 1, 2), step) == (2, 0), "the newest, and what calls began with, stay"
    assert traces_of((3, 1), step) == (4, 2)
    large = step._latest_program()
    assert large.nbytes > table.nbytes, "the copy that guards compare with"
    monkeypatch.setattr("lucid.compiler.cache.LIMIT_BYTES", 7 * large.nbytes // 2)
    assert traces_of((3, 1, 2, 3, 1), step) == (5, 2)


def test_arguments_of_ones_own_class_are_not_confused_with_later_ones():
    class Box:
        def __init__(self, n):
            self.n = n

    step = lucid.compile(lambda x, box: x * box.n)
    for n in range(20):
        assert step(lucid.ones(1), Box(n)).item() == n


def test_a_module_of_the_librarys_that_a_step_imports_is_no_reason_to_trace_again(monkeypatch):
    monkeypatch.delattr(lucid, "special", raising=False)
    monkeypatch.delitem(sys.modules, "lucid.special", raising=False)
    step = lucid.compile(lambda x: lucid.special.expit(x))
    for _ in range(3):
        assert step(lucid.zeros(1)).item() == 0.5
    assert step.stats.traces == 1


FACTOR = 2.0


class Scaled(lucid.autograd.Function):
    offset = 1.0

    @staticmethod
    def forward(ctx, x):
        return x * FACTOR + Scaled.offset

    @staticmethod
    def backward(ctx, grad):
        return grad * FACTOR


def test_what_a_custom_function_reads_is_watched(monkeypatch):
    step = lucid.compile(lambda x: Scaled.apply(x))
    reasons = reasons_after(
        step,
        lambda: monkeypatch.setitem(globals(), "FACTOR", 3.0),
        lambda: monkeypatch.setattr(Scaled, "offset", 4.0),
    )
    assert reasons == ["FACTOR: 2.0 -> 3.0", "Scaled.offset: 1.0 -> 4.0"]
    assert step(lucid.ones(2)).tolist() == [7.0, 7.0]


def test_a_program_that_never_fits_when_it_is_to_run_is_an_error(monkeypatch):
    """As where another thread changes what the step reads faster than it is traced."""
    state = lucid.zeros(1)
    step = lucid.compile(lambda x: state.add_(x) is None)
    monkeypatch.setattr(Guards, "failure", lambda guards, call: "FACTOR: 2.0 -> 3.0")
    monkeypatch.setattr(compiled, "ATTEMPTS", 2)
    with pytest.raises(lucid.LucidError) as error:
        step(lucid.ones(1))
    assert str(error.value) == (
        "<lambda>: 2 programs in turn didn't fit the call any more when they were to run: "
        "FACTOR: 2.0 -> 3.0\n"
        "hint: let nothing change meanwhile what the function reads, such as another thread, or "
        "pass it as an argument"
    )
    assert state.item() == 0
    monkeypatch.undo()
    step(lucid.ones(1))
    assert state.item() == 1


def test_traces_that_serve_no_calls_are_made_less_and_less() -> None:
    seen = types.SimpleNamespace(traces=8, paths=0, calls=8, compile_seconds=100.0, history=[])
    seen.history.append(types.SimpleNamespace(source="", seconds=0.1))
    pace, traced = TracePace(seen), []  # type: ignore[arg-type]
    for call in range(1000):
        try:
            pace.refuse_trace("guard", "self.n: 2 -> 3", lambda: "")
        except NotPaidForError as reason:
            pace.note_eager(reason, (), 0.0, 0.0)
            continue
        traced.append(call)
        seen.traces, seen.calls = seen.traces + 1, seen.calls + 1  # which serves this one alone
    waits = np.diff(traced)
    assert len(waits) >= 5 and all(waits[1:] > 1.5 * waits[:-1])
