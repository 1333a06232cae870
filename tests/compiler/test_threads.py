"""Threads: what they update together loses nothing, whichever way each of them does it."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function
from lucid.compiler.programs import program
from lucid.compiler.recording import arguments, trace
from lucid.ir import Graph
from lucid.tensor import write_locks

SHORT, LONG = 3, 200_000  # elements: a step that keeps the interpreter's lock, and one that doesn't


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Let threads take turns as often as they can; nothing stays claimed."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
    assert not write_locks.held


def in_threads(*jobs: Callable[[], object]) -> None:
    """Start the jobs at once, wait for all, raise what the first one raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], object]) -> None:
        try:
            start.wait(20)
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    if errors:
        raise errors[0]


def times(count: int, call: Callable[..., object], *args: Any) -> Callable[[], None]:
    def job() -> None:
        for _ in range(count):
            call(*args)

    return job


def everywhere(tensor: lucid.Tensor | None) -> float:
    """The one value that all elements have."""
    assert tensor is not None
    values = np.unique(tensor.detach().numpy())
    assert len(values) == 1, values
    return float(values[0])


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_gradients_that_several_threads_accumulate_are_all_there(size: int) -> None:
    leaf = lucid.ones(size, requires_grad=True)
    step = lucid.compile(lambda x: (x + 1).pow(2).sum().backward())
    in_threads(*[times(20, step, leaf)] * 6)
    assert everywhere(leaf.grad) == 6 * 20 * 4


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_different_steps_and_eager_code_accumulate_into_one_leaf(size: int) -> None:
    weight = lucid.ones(size, requires_grad=True)

    def once() -> None:
        (2 * weight).sum().backward()

    def scaled(scale: lucid.Tensor) -> None:
        (weight * scale).sum().backward()

    def argument(leaf: lucid.Tensor) -> lucid.Tensor:
        loss = (leaf * leaf).sum()
        loss.backward()
        return loss.detach()

    in_threads(
        times(20, lucid.compile(once)),
        times(20, lucid.compile(scaled), lucid.tensor(3.0)),
        times(20, lucid.compile(argument), weight),
        times(20, once),
    )
    assert everywhere(weight.grad) == 20 * (2 + 3 + 2 + 2)


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_state_that_several_steps_update_loses_no_update(size: int) -> None:
    state = lucid.zeros(size)
    memory = np.zeros(size, np.float32)

    @lucid.compile
    def first(x: lucid.Tensor) -> None:
        state.add_(x)
        lucid.from_numpy(memory).add_(1)

    @lucid.compile
    def second(x: lucid.Tensor, other: lucid.Tensor) -> lucid.Tensor:
        other.add_(x)
        lucid.from_numpy(memory).add_(1)
        return other.sum()

    one = lucid.ones(1)
    in_threads(times(25, first, one), times(25, second, one, state), times(25, second, one, state))
    assert everywhere(state) == 75
    assert np.unique(memory).tolist() == [75]
    assert state._version == 75


def test_training_one_model_in_several_threads_counts_every_step() -> None:
    weight = lucid.zeros(5, requires_grad=True)
    optimizer = lucid.optim.SGD([weight], lr=1.0)

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    in_threads(*[times(30, step, lucid.ones(5))] * 4)
    assert everywhere(weight) == -120


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_a_trace_takes_nothing_back_from_other_threads(size: int) -> None:
    """One thread traces anew all the time, the others train the same parameter."""
    weight = lucid.zeros(size, requires_grad=True)
    optimizer = lucid.optim.SGD([weight], lr=1.0)

    def update(x: lucid.Tensor) -> None:
        (weight * x).sum().backward()
        with lucid.no_grad():
            weight.sub_(x)

    def traced() -> None:
        for i in range(8):
            lucid.compile(lambda x, i=i: (update(x), i)[1])(lucid.ones(1))

    def eager() -> None:
        for _ in range(40):
            (weight * 2).sum().backward()

    in_threads(traced, times(40, lucid.compile(update), lucid.ones(1)), eager)
    assert everywhere(weight.grad) == 8 + 40 + 80
    assert everywhere(weight) == -48
    optimizer.step()
    assert everywhere(weight) == -48 - 128


@pytest.mark.parametrize("fails", [False, True])
def test_a_trace_leaves_alone_what_a_step_of_another_thread_writes_meanwhile(fails: bool) -> None:
    memory = np.zeros(SHORT, np.float32)
    step = lucid.compile(lambda x: lucid.from_numpy(memory).add_(x) is None)
    one = lucid.ones(1)
    step(one)

    def traced(x: lucid.Tensor) -> lucid.Tensor:
        thread = threading.Thread(target=step, args=(one,))
        thread.start()
        thread.join(20)
        if fails:
            raise KeyError
        return lucid.from_numpy(memory) + x

    try:
        assert lucid.compile(traced)(lucid.ones(1)).tolist() == [3.0] * SHORT
    except KeyError:
        assert fails
    assert memory.tolist() == [2.0] * SHORT


def test_an_eager_thread_sees_nothing_of_a_trace() -> None:
    weight = lucid.ones(3, requires_grad=True)
    weight.grad = lucid.full((3,), 5.0)
    in_trace, looked = threading.Lock(), threading.Lock()
    in_trace.acquire()
    looked.acquire()
    seen: list[Any] = []

    def step(x: lucid.Tensor) -> None:
        (weight * x).sum().backward()
        with lucid.no_grad():
            weight.add_(1)
        in_trace.__exit__(None, None, None)  # by methods that a trace takes no note of
        looked.__enter__()

    def look() -> None:
        y = weight * weight
        in_trace.acquire(timeout=20)
        seen.extend([weight.grad, weight._version, lucid.is_grad_enabled()])
        y.sum().backward()
        looked.release()

    in_threads(lambda: lucid.compile(step)(lucid.ones(3)), look)
    assert isinstance(seen[0], lucid.Tensor)
    assert not seen[0].is_traced
    assert seen[1:] == [0, True]
    assert everywhere(weight.grad) == 5 + 2 + 1
    assert weight._version == 1


def test_threads_that_call_a_step_for_the_first_time_at_once_trace_it_once() -> None:
    weight = lucid.ones(4, requires_grad=True)

    @lucid.compile
    def step(x: lucid.Tensor) -> None:
        weight.grad = None if weight.grad is None else weight.grad * 0
        (weight * x).sum().backward()

    @lucid.compile
    def pure(x: lucid.Tensor) -> lucid.Tensor:
        return x * 2

    weight.grad = lucid.zeros(4)
    in_threads(*[times(3, step, lucid.ones(4)), times(3, pure, lucid.ones(4))] * 4)
    assert step.stats.traces == pure.stats.traces == 1
    assert step.stats.calls == pure.stats.calls == 12


def test_the_grad_mode_of_each_thread_is_its_own() -> None:
    weight = lucid.ones(4, requires_grad=True)
    step = lucid.compile(lambda x: weight * x)

    def recorded() -> None:
        for _ in range(30):
            assert step(lucid.ones(4)).requires_grad
            assert lucid.is_grad_enabled()

    def unrecorded() -> None:
        for _ in range(30):
            with lucid.no_grad():
                assert not step(lucid.ones(4)).requires_grad

    in_threads(recorded, unrecorded, recorded, unrecorded)
    assert step.stats.traces == 2


def test_random_numbers_of_threads_are_different_ones() -> None:
    @lucid.compile
    def draw() -> lucid.Tensor:
        return lucid.rand(2)

    found: list[tuple[float, ...]] = []
    in_threads(*[lambda: found.extend(tuple(draw().tolist()) for _ in range(25))] * 4)
    assert len(set(found)) == 100


class Twice(Function):
    """2 x, computed by a step of its own that counts its calls."""

    count = lucid.zeros(1)

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx: Any, gradient: lucid.Tensor) -> lucid.Tensor:
        return gradient * 2


def test_steps_that_call_python_lose_nothing_either() -> None:
    leaf = lucid.ones(3, requires_grad=True)
    step = lucid.compile(lambda x: Twice.apply(x).sum().backward())
    in_threads(*[times(20, step, leaf)] * 4, times(20, lambda: (3 * leaf).sum().backward()))
    assert everywhere(leaf.grad) == 4 * 20 * 2 + 20 * 3


def test_python_in_a_step_may_call_steps_on_the_same_state() -> None:
    leaf = lucid.ones(3, requires_grad=True)
    inner = lucid.compile(lambda x: (x * 3).sum().backward())

    class Nested(Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            found = x.numpy().copy()
            other = lucid.tensor(found, requires_grad=True)
            with lucid.enable_grad():
                inner(other)
            assert other.grad is not None
            return other.grad

        @staticmethod
        def backward(ctx: Any, gradient: lucid.Tensor) -> lucid.Tensor:
            return gradient * 2

    outer = lucid.compile(lambda x: Nested.apply(x).sum().backward())
    in_threads(*[times(10, outer, leaf)] * 3, times(10, inner, leaf))
    assert everywhere(leaf.grad) == 30 * 2 + 10 * 3


def test_who_waits_in_a_circle_gets_an_error() -> None:
    first, second = frozenset((1,)), frozenset((2,))
    both = threading.Barrier(2)
    outcomes: list[str] = []

    def take(mine: frozenset[int], others: frozenset[int]) -> None:
        with write_locks.WriteLock(mine):
            both.wait(20)
            try:
                with write_locks.WriteLock(others):
                    outcomes.append("waited")
            except lucid.LucidError as error:
                outcomes.append(str(error))

    in_threads(lambda: take(first, second), lambda: take(second, first))
    assert sorted(outcomes) == [
        "two threads wait for each other: each is inside of a step that calls Python, and there "
        "calls another step that writes what the other thread's step works with\n"
        "hint: call it outside of the custom Function",
        "waited",
    ]


def test_steps_on_different_state_run_at_the_same_time() -> None:
    """Each waits in its host call for the other one to be there."""
    both = threading.Barrier(2)
    is_traced = threading.Event()

    class Meeting(Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            if is_traced.is_set():
                both.wait(20)
            return lucid.from_numpy(x.numpy() + 1)

    def train(state: lucid.Tensor) -> Callable[[], None]:
        step = lucid.compile(lambda: state.add_(Meeting.apply(state)) is None)
        step()
        return times(3, step)

    jobs = [train(lucid.zeros(2)), train(lucid.zeros(2))]
    is_traced.set()
    in_threads(*jobs)


@pytest.mark.parametrize("size", [SHORT, LONG])
def test_a_failed_step_lets_the_others_go_on(size: int) -> None:
    weight = lucid.zeros(size, requires_grad=True)

    @lucid.compile
    def step(index: lucid.Tensor) -> None:
        (weight + weight[index].sum()).sum().backward()
        with lucid.no_grad():
            weight.add_(1)

    wrong, right = lucid.tensor([size]), lucid.tensor([0])

    def fail() -> None:
        for _ in range(10):
            with pytest.raises(lucid.IndexOutOfRangeError):
                step(wrong)

    in_threads(fail, times(10, step, right), fail)
    assert everywhere(weight) == 10
    with pytest.raises(lucid.IndexOutOfRangeError):
        step(wrong)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_while_another_thread_is_in_a_step_goes_on() -> None:
    weight = lucid.zeros(LONG, requires_grad=True)
    step = lucid.compile(lambda x: (weight * x).sum().backward())
    step(lucid.ones(1))
    is_over = threading.Event()

    def call() -> None:
        while not is_over.is_set():
            step(lucid.ones(1))

    thread = threading.Thread(target=call)
    thread.start()
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                faulthandler.dump_traceback_later(20, exit=True)  # it waits for a dead thread
                try:
                    step(lucid.ones(1))
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        is_over.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_while_another_thread_traces_finds_what_was_there_before_or_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What stands for the numbers of a trace nobody would take back in the child."""
    leave, is_within = trace.SideEffects.leave, threading.Event()

    def slowly(*args: Any) -> Any:
        is_within.set()
        time.sleep(0.2)
        return leave(*args)

    monkeypatch.setattr(trace.SideEffects, "leave", slowly)
    weight = lucid.ones(1, requires_grad=True)
    group = lucid.optim.SGD([weight], lr=0.5).param_groups[0]

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        group["lr"] *= 0.5
        return x * group["lr"]

    thread = threading.Thread(target=step, args=(lucid.ones(1),))
    thread.start()
    assert is_within.wait(60)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(20, exit=True)
        was = group["lr"]
        is_whole = type(was) is float and step(lucid.ones(1)).item() == group["lr"] == was / 2
        os._exit(0 if is_whole else 2)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_training_modules_in_threads_gives_what_one_thread_gives() -> None:
    def train() -> list[float]:
        model = nn.Linear(4, 2)
        with lucid.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.5)
        optimizer = lucid.optim.Adam(model.parameters(), lr=0.1)

        @lucid.compile
        def step(x: lucid.Tensor) -> lucid.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), lucid.zeros(1, 2))
            loss.backward()
            optimizer.step()
            return loss

        return [step(lucid.ones(1, 4)).item() for _ in range(10)]

    found: list[list[float]] = []
    expected = train()
    in_threads(*[lambda: found.append(train())] * 4)
    assert found == [expected] * 4


def test_threads_that_call_a_step_first_make_its_short_way_once(monkeypatch):
    made, make = [], program.native_calls

    def slowly(*args):
        made.append(args)
        time.sleep(0.02)
        return make(*args)

    monkeypatch.setattr(program, "native_calls", slowly)
    step, x = lucid.compile(lambda x: x * 2), lucid.ones(3)
    threads = [threading.Thread(target=lambda: [step(x) for _ in range(3)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


@pytest.mark.parametrize("count", [-3, 3])
def test_a_list_that_another_thread_changes_while_it_is_compiled(count: int) -> None:
    """It does so in the pass: the short way must not read what it isn't given then."""
    items = [lucid.tensor([float(i)]) for i in range(8)]
    before, changes = [*items], [count]

    def other(graph: Graph) -> bool:
        if changes:
            if changes.pop() < 0:
                del items[count:]
            else:
                items.extend(lucid.tensor([9.0]) for _ in range(count))
        return False

    step = lucid.compile(lambda x: x[0] + x[1] * 2, passes=[other])
    for given in (items, before, before, before, items, items, before):
        assert step(given).tolist() == [2.0]


def test_a_list_that_grows_before_it_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [lucid.tensor([1.0]) for _ in range(3)]
    names = arguments.argument_names

    def other(function: Any, args: Any) -> Any:
        items.append(lucid.tensor([2.0]))
        return names(function, args)

    monkeypatch.setattr(arguments, "argument_names", other)
    step = lucid.compile(lambda x: x[0] + x[1] * 2)
    assert step(items).tolist() == [3.0]
    assert step.stats.eager_reasons == ["another thread changes its arguments meanwhile"]
    monkeypatch.undo()
    assert step(items).tolist() == [3.0] and step.stats.traces == 1


def test_an_audit_that_another_thread_s_step_has_disturbed_once_says_nothing(monkeypatch):
    """It met what stood in a place for a moment, and has nothing to say of the call."""
    from lucid.compiler.recording import trace as tracing

    step, x, failures = lucid.compile(lambda x: x * 2), lucid.ones(3), [lucid.TraceError("escaped")]
    step(x)
    trace = tracing.trace

    def disturbed(*args):
        if failures:
            raise failures.pop()
        return trace(*args)

    monkeypatch.setattr(tracing, "trace", disturbed)
    assert step._tracer.audit((x,), {}, []) is None and not failures
