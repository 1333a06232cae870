"""Host code and state: tensors from outside, random numbers, threads."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import numpy as np
import pytest
from custom_functions import define, leaf, numbers

import lucid
from lucid.autograd import Function


def test_host_code_sees_what_the_step_has_written_by_then(prepared):
    total = lucid.zeros(2)
    fn = define(lambda ctx, x: lucid.tensor(x.numpy() + total.numpy()))

    def body(x):
        total.add_(x)
        y = fn.apply(x)
        total.mul_(2)
        return y

    step = prepared(body)
    found = [numbers(step(lucid.tensor([k, 2 * k]))) for k in (1.0, 10.0)]
    assert found == [[2.0, 4.0], [22.0, 44.0]]
    assert numbers(total) == [24.0, 48.0]


def test_host_code_may_write_tensors_from_outside(prepared):
    count = lucid.zeros(())
    running = lucid.zeros(2)

    def forward(ctx, x):
        count.add_(1)
        running.numpy()[:] = 0.5 * running.numpy() + x.numpy()
        return x * count.item()

    fn = define(forward)

    def body(x):
        y = fn.apply(x)
        return y + running, count * 1

    step = prepared(body)
    found = [numbers(list(step(lucid.tensor([k, 2 * k])))) for k in (1.0, 10.0)]
    assert found == [[[2.0, 4.0], 1.0], [[30.5, 61.0], 2.0]]
    assert numbers([count, running]) == [2.0, [10.5, 21.0]] and count._version == 2
    if step is not body:
        assert {*step.stats.eager_reasons} == {"Fn.forward, a host call, writes count"}


def test_what_numpy_writes_outside_lets_the_call_run_op_by_op(prepared):
    running = lucid.zeros(2)

    def forward(ctx, x):
        running.numpy()[:] = 0.5 * running.numpy() + x.numpy()
        return x * 2

    fn = define(forward)

    def body(x):
        return fn.apply(x) + running

    step = prepared(body)
    found = [numbers(step(lucid.tensor([k, 2 * k]))) for k in (1.0, 10.0)]
    assert found == [[3.0, 6.0], [30.5, 61.0]] and numbers(running) == [10.5, 21.0]
    if step is not body:
        reason = "Fn.forward, a host call, writes memory of a tensor from outside, by NumPy"
        assert {*step.stats.eager_reasons} == {reason}


def test_host_code_sees_what_the_step_has_written_to_arrays_by_then(prepared):
    seen, rows = np.zeros(2), np.zeros((2, 2))
    fn = define(lambda ctx, x: lucid.tensor(x.numpy() + seen + rows[1]), lambda ctx, g: g)

    def body(x, k):
        seen[k % 2] = k
        rows[1] += 1
        y = fn.apply(x)
        seen[:] += 10
        return y

    step = prepared(body)
    found = [numbers(step(lucid.zeros(2), k)) for k in range(4)]
    assert found == [[1.0, 1.0], [12.0, 3.0], [5.0, 14.0], [16.0, 7.0]]
    assert seen.tolist() == [22.0, 13.0] and rows.tolist() == [[0.0, 0.0], [4.0, 4.0]]
    if step is not body:
        assert not step.stats.eager_reasons


def test_host_code_that_writes_an_array_which_the_step_has_written_runs_op_by_op(prepared):
    count = np.zeros(2)

    def forward(ctx, x):
        count[:] += 1
        return lucid.tensor(x.numpy() + count)

    fn = define(forward)

    def body(x, k):
        count[0] = k
        return fn.apply(x)

    step = prepared(body)
    assert [numbers(step(lucid.zeros(2), k)) for k in range(3)] == [[1, 1], [2, 2], [3, 3]]
    assert count.tolist() == [3.0, 3.0]
    if step is not body:
        assert {*step.stats.eager_reasons} == {"Fn.forward, a host call, writes count"}


class _Gains:
    gain = 2.0


@pytest.mark.parametrize(
    ("kept", "look"),
    [
        (bytearray(b"\x02"), lambda kept: kept[0]),
        (contextvars.ContextVar("kept", default=2.0), lambda kept: kept.get()),
        (vars(_Gains), lambda kept: kept["gain"]),
    ],
    ids=["buffer", "context variable", "class"],
)
def test_what_no_step_could_compare_is_looked_at_by_each_host_call(prepared, kept, look):
    fn = define(lambda ctx, x: lucid.tensor(x.numpy() * look(kept)))
    step = prepared(lambda x: fn.apply(x))
    assert [numbers(step(lucid.tensor([k]))) for k in (1.0, 3.0)] == [[2.0], [6.0]]


def test_a_compiled_function_inside_may_use_the_same_tensors(prepared):
    w, count = leaf([2.0, 3.0]), lucid.zeros(())

    @lucid.compile
    def inner(x):
        count.add_(1)
        return (w * x).sum()

    fn = define(lambda ctx, x: lucid.tensor(x.numpy() * inner(x).item()), lambda ctx, g: g)

    def body(x):
        count.mul_(2)
        (fn.apply(w * x) + w).sum().backward()
        return count + 0

    step = prepared(body)
    for k in range(1, 4):
        w.grad = None
        assert step(leaf([1.0, 1.0], False)).item() == 2**k - 1
        assert numbers(w.grad) == [2.0, 2.0]
    assert count.item() == 7.0


def test_random_numbers_drawn_on_the_host_continue_the_stream(prepared):
    def forward(ctx, x):
        return x * lucid.rand(2) + float(x.numpy()[0]) * 0

    fn = define(forward)

    def body(x):
        return lucid.rand(2), fn.apply(x), lucid.rand(2)

    def draws(step):
        lucid.manual_seed(7)
        return [numbers(list(step(lucid.ones(2)))) for _ in range(3)]

    assert draws(prepared(body)) == draws(body)
    lucid.manual_seed(7)
    assert numbers(lucid.rand(6).reshape(3, 2)) == draws(body)[0]


def test_numpys_random_numbers_are_drawn_at_every_call(prepared):
    fn = define(lambda ctx, x: lucid.tensor(x.numpy() + np.random.rand(2)))
    step = prepared(lambda x: fn.apply(x))
    np.random.seed(3)
    found = [numbers(step(lucid.tensor([0.0, 0.0], dtype=lucid.float64))) for _ in range(2)]
    np.random.seed(3)
    assert found == [np.random.rand(2).tolist() for _ in range(2)]


@pytest.mark.parametrize("clears", [True, False])
@pytest.mark.parametrize("make", [lucid.optim.SGD, lucid.optim.Adam])
def test_an_optimizer_that_steps_inside_starts_from_what_the_call_found(make, clears):
    def trained(mode):
        lucid.manual_seed(0)
        model = lucid.nn.Linear(2, 1)
        optimizer = make(model.parameters(), lr=0.1)

        def forward(ctx, x):
            with lucid.enable_grad():
                loss = (model(lucid.from_numpy(x.numpy().copy())) ** 2).sum()
                loss.backward()
            optimizer.step()
            if clears:
                optimizer.zero_grad()
            return lucid.from_numpy(x.numpy() * loss.item())

        step = lucid.compile(define(forward).apply, mode=mode)
        found = [numbers(step(lucid.ones(2))) for _ in range(4)]
        return found, numbers(list(model.parameters())), step.stats

    *eager, _ = trained("eager")
    *found, stats = trained("native")
    assert found == eager
    assert len(stats.eager_reasons) == 4
    assert all(x.startswith("Fn.forward, a host call, writes ") for x in stats.eager_reasons)


@pytest.mark.parametrize("mode", ["eager", "native"])
def test_a_scheduler_that_steps_inside_steps_once_a_call(mode):
    optimizer = lucid.optim.SGD([leaf([1.0])], lr=1.0)
    scheduler = lucid.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def forward(ctx, x):
        optimizer.step()
        scheduler.step()
        return lucid.from_numpy(x.numpy() * 2)

    step, rates = lucid.compile(define(forward).apply, mode=mode), []
    for _ in range(4):
        step(lucid.ones(2))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.5, 0.25, 0.125, 0.0625]
    assert not step.stats.eager_reasons


def test_a_gradient_that_is_left_on_a_leaf_from_outside_is_left_once(prepared):
    w = leaf([1.0, 2.0])

    def forward(ctx, x):
        with lucid.enable_grad():
            (w * float(x.numpy()[0])).sum().backward()
        return x * 1

    step = prepared(define(forward).apply)
    for _ in range(3):
        step(lucid.tensor([2.0]))
    assert numbers(w.grad) == [6.0, 6.0]


class Logging(Function):
    """Keeps a log, a cache, a set and a counter on its class."""

    log: list[float] = []  # noqa: RUF012
    cache: dict[float, float] = {}  # noqa: RUF012
    seen: set[float] = set()  # noqa: RUF012
    count = 0

    @staticmethod
    def forward(ctx, x):
        key = x.sum().item()
        Logging.count += 1
        Logging.log.append(key)
        Logging.seen.add(key)
        if key not in Logging.cache:
            Logging.cache[key] = float(np.sin(key))
        return x * Logging.cache[key]

    @staticmethod
    def backward(ctx, grad):
        return grad


class Solver:
    """Keeps a history on an object, which the traced code hands on."""

    def __init__(self) -> None:
        self.history: list[float] = []

    def __call__(self, x):
        return Solves.apply(x, self)


class Solves(Function):
    @staticmethod
    def forward(ctx, x, solver):
        solver.history.append(x.item())
        return x * len(solver.history)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def test_what_a_host_method_keeps_on_its_class_does_not_retrace(prepared):
    Logging.log.clear()
    Logging.cache.clear()
    Logging.seen.clear()
    Logging.count = 0
    step = prepared(lambda x: Logging.apply(x))
    for k in (1.0, 2.0, 1.0):
        assert step(lucid.tensor([k])).item() == pytest.approx(k * np.sin(k))
    assert (Logging.log, Logging.count) == ([1.0, 2.0, 1.0], 3)
    assert Logging.seen == Logging.cache.keys() == {1.0, 2.0}
    if hasattr(step, "stats"):
        assert step.stats.traces == 1


def test_what_a_host_method_keeps_on_an_object_does_not_retrace(prepared):
    solver = Solver()
    step = prepared(lambda x: solver(x))
    assert [step(lucid.tensor(k)).item() for k in (5.0, 6.0, 7.0)] == [5.0, 12.0, 21.0]
    assert solver.history == [5.0, 6.0, 7.0]
    if hasattr(step, "stats"):
        assert step.stats.traces == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda solver: len(solver.history),
        lambda solver: len(getattr(solver, "history")),  # noqa: B009
        lambda solver: len(vars(solver)["history"]),
        lambda solver: len([*solver.__dict__.values()][0]),  # noqa: RUF015
    ],
)
def test_what_the_traced_code_reads_as_well_is_watched(prepared, read):
    solver = Solver()

    def body(x):
        before = read(solver)
        y = solver(x)
        return [before, y, read(solver)]

    step = prepared(body)
    assert [[int(n) for n in step(lucid.tensor(1.0))] for _ in range(3)] == [
        [0, 1, 1], [1, 2, 2], [2, 3, 3]
    ]  # fmt: skip


def test_a_number_that_a_host_call_counts_and_the_step_reads_runs_op_by_op(prepared):
    class World:
        count = 0

    def forward(ctx, x):
        World.count += 1
        return lucid.tensor(x.numpy() * 2)

    fn = define(forward)
    step = prepared(lambda x: fn.apply(x) + World.count)
    assert [numbers(step(lucid.ones(1))) for _ in range(4)] == [[3.0], [4.0], [5.0], [6.0]]
    assert type(World.count) is int
    assert World.count == 4


class Notes(Function):
    kept: list[float] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx, x, log):
        log.append(x.sum().item())
        return lucid.tensor(x.numpy() * 2)


class Names(Function):
    @staticmethod
    def forward(ctx, x, found):
        found["sum"] = x.sum().item()
        return lucid.tensor(x.numpy() * 2)


def one_of_its_own(x, log):
    log = []
    return Notes.apply(x, log), log


def a_dict_of_numbers(x, log):
    found = {}
    return Names.apply(x, found), found


def one_from_outside(x, log):
    y = Notes.apply(Notes.apply(x, Notes.kept), Notes.kept)
    return y, len(Notes.kept), Notes.kept[-1]


def a_dict_of_tensors(x, log):
    found = {"x": x}
    return Names.apply(x, found), found["sum"]


class Late(Function):
    @staticmethod
    def forward(ctx, x, log, *, found):
        if x.sum().item() > 5:
            found["more"][0] += x.sum().item()
        return lucid.tensor(x.numpy() * 2)


def a_dict_that_is_changed_at_a_later_call(x, log):
    found = {"x": x, "more": [1.5]}
    return Late.apply(x, log, found=found), found["more"][0]


@pytest.mark.parametrize(
    "body",
    [
        lambda x, log: Notes.apply(x, log),
        one_of_its_own,
        a_dict_of_numbers,
        one_from_outside,
        a_dict_of_tensors,
        a_dict_that_is_changed_at_a_later_call,
    ],
)
def test_lists_that_a_host_call_lengthens_are_as_in_eager_mode(body):
    def run(step):
        Notes.kept.clear()
        logs = [[] for _ in range(4)]
        found = [step(lucid.ones(2) * (i + 1), log) for i, log in enumerate(logs)]
        return repr((found, logs, Notes.kept))

    step = lucid.compile(body)
    assert run(step) == run(body)
    assert "a host call, changes" in step.stats.eager_reasons[0]


def test_what_the_traced_code_changes_after_a_host_call_runs_op_by_op():
    solver = Solver()

    @lucid.compile
    def step(x):
        y = solver(x)
        solver.history.clear()
        return y

    step(lucid.tensor(1.0))
    first, line = step.stats.eager_reasons[0].splitlines()
    assert first.endswith("changes solver.history, which Solves.forward, a host call, changes")
    assert line.endswith("solver.history.clear()")
    assert solver.history == []


def test_a_number_that_the_step_counts_and_a_host_call_reads_runs_op_by_op():
    counted = {"calls": 0}

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return lucid.tensor(x.numpy() * counted["calls"])

    @lucid.compile
    def step(x):
        counted["calls"] += 1
        return Scaled.apply(x)

    assert [step(lucid.tensor(1.0)).item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert {*step.stats.eager_reasons} == {
        "Scaled.forward, a host call, reads counted['calls'], which the step has changed"
    }


class Scaled(Function):
    """Multiplies by a number, and its gradients by another one; NumPy does it."""

    @staticmethod
    def forward(ctx, x, settings, key):
        ctx.settings = settings
        scale = settings.scale if key is None else settings.scales[key]
        return lucid.from_numpy((x.detach().numpy() * scale).astype(np.float32))

    @staticmethod
    def backward(ctx, g):
        return lucid.from_numpy(g.numpy() * np.float32(ctx.settings.back)), None, None


def renamed(settings: Any, value: float) -> None:
    settings.scale, settings.scales[1] = value, value


def renewed(settings: Any, value: float) -> None:
    settings.scales, settings.seen = [2.0, value, 1.0], []


def annealed(settings: Any) -> None:
    settings.scale *= 0.5


SETTINGS = {
    "an attribute": (None, lambda s: s.scale, renamed, lambda s: None),
    "an entry": (1, lambda s: s.scales[1], renamed, lambda s: None),
    "a list bound anew": (None, lambda s: sum(s.scales), renewed, lambda s: None),
    "an entry of a list bound anew": (1, lambda s: s.scales[1], renewed, lambda s: None),
    "lists that it fills": (1, lambda s: 2.0, renewed, lambda s: s.seen.append(1.0)),
    "one that it changes afterwards": (None, lambda s: s.scale, renewed, annealed),
}


@pytest.mark.parametrize("is_argument", [True, False])
@pytest.mark.parametrize("case", SETTINGS)
def test_a_host_call_and_the_step_read_the_same_settings(case: str, is_argument: bool) -> None:
    key, read, change, end = SETTINGS[case]

    class Settings:  # one of its own, as whose objects are known by identity from then on
        def __init__(self) -> None:
            self.scale, self.back = 2.0, 0.5
            self.scales, self.seen = [1.0, 2.0, 3.0], []

    def called(compile: Any) -> tuple[Any, list[Any]]:
        settings = Settings()
        w, found = leaf([1.0, 2.0]), []

        def body(x: Any, settings: Any) -> Any:
            w.grad = None
            y = (Scaled.apply(w * x, settings, key) * read(settings)).sum()
            y.backward()
            end(settings)
            return y

        given = [settings] if is_argument else []
        step = compile(body if is_argument else lambda x: body(x, settings))
        for i in range(12):
            y = step(lucid.tensor([1.0, 3.0]), *given)
            found += [
                y.item(),
                *numbers(w.grad),
                settings.scale,
                [*settings.scales],
                len(settings.seen),
            ]
            change(settings, i / 4)
            settings.back = 1.0 + i
        return step, found

    step, found = called(lucid.compile)
    assert found == called(lambda function: function)[1]
    assert step.stats.traces <= 2 and not step.stats.eager_reasons


@pytest.mark.parametrize(
    ("look", "path"),
    [
        (lambda seen, named: len(seen), "len(seen)"),
        (lambda seen, named: sum(seen), "seen"),
        (lambda seen, named: max([0.0, *seen]), "seen"),
        (lambda seen, named: seen[-1] if seen else 0, "len(seen)"),
        (lambda seen, named: len(named), "len(named)"),
        (lambda seen, named: "a" in named, "'a' in named"),
        (lambda seen, named: len([*named.values()]), "named"),
    ],
)
def test_a_container_that_the_step_fills_and_a_host_call_looks_at_runs_op_by_op(look, path):
    def scenario(compile):
        seen, named = [], {}

        class Scaled(Function):
            @staticmethod
            def forward(ctx, x):
                return lucid.tensor(x.numpy() * look(seen, named))

        @compile
        def step(x):
            seen.append(3.0)
            named["a"] = True
            return Scaled.apply(x)

        return step, [step(lucid.tensor(1.0)).item() for _ in range(3)]

    step, found = scenario(lucid.compile)
    assert found == scenario(lambda function: function)[1]
    reason = f"Scaled.forward, a host call, reads {path}, which the step has changed"
    assert reason in step.stats.eager_reasons


class Rate:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("is_class", [True, False])
def test_what_no_dict_holds_and_a_host_call_reads_after_the_step_runs_op_by_op(is_class):
    def scenario(compile):
        class Settings:
            __slots__ = () if is_class else ("rate",)

        owner = Settings if is_class else Settings()
        owner.rate = Rate(0.0)

        class Scaled(Function):
            @staticmethod
            def forward(ctx, x):
                return lucid.from_numpy(x.numpy() * np.full((), owner.rate.value, np.float32))

        @compile
        def step(x, rate):
            owner.rate = rate
            return Scaled.apply(x)

        return step, [step(lucid.ones(1), Rate(k)).item() for k in (2.0, 3.0, 4.0)]

    step, found = scenario(lucid.compile)
    assert found == scenario(lambda function: function)[1]
    assert "rate, which the step has changed" in step.stats.eager_reasons[0]


def test_a_host_call_natively_asks_for_the_length_of_a_list_whose_entries_the_step_sets():
    losses = [0.0] * 4

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return lucid.tensor(x.numpy() * len(losses))

    @lucid.compile
    def step(x):
        losses[1] = x.item()
        return Scaled.apply(x)

    assert [step(lucid.tensor(i)).item() for i in (1.0, 2.0)] == [4.0, 8.0]
    assert losses == [0.0, 2.0, 0.0, 0.0] and not step.stats.eager_reasons


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("kind", ["bound", "added to"])
def test_what_the_traced_code_and_a_host_call_change_holds_what_the_later_one_left(
    prepared, kind, is_first
):
    class World:
        last, log = None, []

    def change(number):
        if kind == "bound":
            World.last = number
        else:
            World.log.append(number)

    def forward(ctx, x):
        change(x.sum().item())
        return x * 2

    fn = define(forward)

    @prepared
    def step(x):
        if is_first:
            change(-1)
        y = fn.apply(x)
        if not is_first:
            change(-1)
        return y

    for i in range(3):
        step(lucid.tensor([1.0, i]))
        pair = [-1, 1.0 + i] if is_first else [1.0 + i, -1]
        assert World.last == (pair[1] if kind == "bound" else None)
        assert World.log[2 * i :] == ([] if kind == "bound" else pair)


def test_a_container_on_a_class_that_is_read_through_an_object_is_watched(prepared):
    class Config:
        scales = [2.0]  # noqa: RUF012

        def __call__(self, x):
            return x * self.scales[0] * len(self.scales)

    config = Config()
    step = prepared(lambda x: config(x))
    assert step(lucid.tensor(1.0)).item() == 2.0
    Config.scales.append(1.0)
    assert step(lucid.tensor(1.0)).item() == 4.0
    Config.scales[0] = 3.0
    assert step(lucid.tensor(1.0)).item() == 6.0


def test_threads_do_not_share_a_ctx():
    barrier = threading.Barrier(4, timeout=30)

    def forward(ctx, x):
        ctx.mine = x.numpy().copy()
        barrier.wait()
        return x * 1

    def backward(ctx, grad):
        barrier.wait()
        return lucid.tensor(ctx.mine * grad.numpy())

    fn = define(forward, backward)

    def body(x):
        x = x.detach().requires_grad_()
        return lucid.autograd.grad(fn.apply(x).sum(), x)[0]

    step = lucid.compile(body)
    barrier_of_trace, barrier = barrier, threading.Barrier(1)
    step(lucid.tensor([0.0]))
    barrier = barrier_of_trace
    found: dict[float, Any] = {}

    def run(k: float) -> None:
        for _ in range(5):
            found[k] = numbers(step(lucid.tensor([k])))

    threads = [threading.Thread(target=run, args=(float(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {float(k): [float(k)] for k in range(4)}
    assert step.stats.traces == 1
