"""What other threads do while one thread traces is theirs: random numbers, and NumPy arrays."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest

import lucid
from lucid.autograd import Function
from lucid.compiler.guards import events


@pytest.fixture
def while_tracing():
    """`while_tracing(job)`: what a step calls; another thread does the job then, to its end."""
    threads = []

    def prepared(job: Callable[[], object]) -> Callable[[], None]:
        begin, done, is_over = threading.Lock(), threading.Lock(), threading.Event()
        begin.acquire()
        done.acquire()

        def work():
            while begin.acquire() and not is_over.is_set():
                job()
                done.release()

        def visit():  # by methods that a trace takes no note of
            begin.__exit__(None, None, None)
            done.__enter__()

        def end():
            is_over.set()
            begin.release()

        threads.append((threading.Thread(target=work), end))
        threads[-1][0].start()
        return visit

    yield prepared
    for thread, end in threads:
        end()
        thread.join()


GENERATOR = np.random.default_rng(0)
DRAWS = {
    "random": (random.random, random.getstate, random.setstate),
    "numpy.random": (np.random.rand, np.random.get_state, np.random.set_state),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_that_another_thread_draws_are_no_concern_of_a_trace(name, while_tracing):
    draw, get, put = DRAWS[name]
    before = get()
    try:
        numbers = []
        visit = while_tracing(lambda: numbers.append(draw()))

        @lucid.compile
        def step(x):
            visit()
            return x * 2

        assert step(lucid.ones(2)).tolist() == [2.0, 2.0]
        assert len(numbers) == 1
        put(before)
        assert draw() == numbers[0]
    finally:
        put(before)


@pytest.mark.parametrize("name", DRAWS)
def test_a_failed_trace_leaves_other_threads_draws(name, while_tracing):
    draw, get, put = DRAWS[name]
    before = get()
    try:
        numbers = []
        visit = while_tracing(lambda: numbers.append(draw()))

        def step(x):
            visit()
            raise KeyError("late")

        with pytest.raises(KeyError):
            lucid.compile(step)(lucid.ones(2))
        after = draw()
        put(before)
        assert [draw(), draw()] == [numbers[0], after]
    finally:
        put(before)


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_that_the_step_draws_beside_others(name, while_tracing):
    """The draws of the others stay: the step's trace doesn't set the generator back then."""
    draw, get, put = DRAWS[name]
    before = get()
    try:
        visit = while_tracing(draw)

        @lucid.compile
        def step(x):
            visit()
            return x * float(draw())

        first, second = step(lucid.ones(1)).item(), step(lucid.ones(1)).item()
        put(before)
        drawn = [np.float32(draw()).item() for _ in range(4)]
        assert first in drawn[1:] and drawn.index(second) > drawn.index(first)
    finally:
        put(before)


def test_lucids_own_numbers_are_no_use_of_others(while_tracing):
    before = random.getstate()
    visit = while_tracing(random.random)

    @lucid.compile
    def step(x):
        visit()
        return x + lucid.rand(2) + lucid.randn(2)

    try:
        step(lucid.ones(2))
        assert random.getstate() != before
    finally:
        random.setstate(before)


def test_what_a_host_call_draws_is_put_back_and_what_others_draw_is_not(while_tracing):
    mine, others = np.random.default_rng(0), np.random.default_rng(1)
    drawn = []
    visit = while_tracing(lambda: drawn.append(others.random()))
    fn = type(Function)(
        "Noise",
        (Function,),
        {"forward": staticmethod(lambda ctx, x: x + float(x.numpy()[0]) * mine.random())},
    )

    @lucid.compile
    def step(x):
        visit()
        return fn.apply(x)

    expected = np.random.default_rng(0).random(2)
    found = [step(lucid.ones(1, dtype=lucid.float64)).item() for _ in range(2)]
    assert found == [1 + number for number in expected]
    fresh = np.random.default_rng(1)
    assert drawn == [fresh.random() for _ in drawn] and others.random() == fresh.random()


def test_an_array_that_another_thread_fills_is_read_and_not_refused(while_tracing):
    """A loader fills a buffer in place; the step is traced meanwhile."""
    buffer = np.zeros(3, np.float32)

    def load():
        buffer[...] += 1

    visit = while_tracing(load)

    @lucid.compile
    def step(x):
        visit()
        return x + lucid.from_numpy(buffer)

    results = [step(lucid.zeros(3)).tolist()[0]]
    loads = buffer[0]
    for _ in range(2):
        load()
        results.append(step(lucid.zeros(3)).tolist()[0])
    assert results == [loads, loads + 1, loads + 2] and step.stats.traces == 1


def test_a_failed_trace_leaves_what_another_thread_wrote(while_tracing):
    buffer = np.zeros(3)
    shared = lucid.from_numpy(buffer)
    count = lucid.zeros(2)

    def fill():
        buffer[...] = 7.0

    def failing(visit, x):
        count.add_(1)
        visit()
        raise KeyError(float(buffer.sum()))

    for write in (fill, lambda: shared.add_(1.0)):
        step = lucid.compile(functools.partial(failing, while_tracing(write)))
        with pytest.raises(KeyError):
            step(lucid.zeros(3))
    assert buffer.tolist() == [8.0] * 3 and count.tolist() == [0.0, 0.0]


def test_an_array_that_the_graph_can_not_have_is_written_op_by_op_all_the_same(while_tracing):
    while_tracing(print)
    counts = np.zeros(3, np.float16)

    def by_item(x):
        counts[0] = 1.0
        return x

    def by_operator(x):
        nonlocal counts
        counts += 1
        return x

    def by_method(x):
        counts.fill(2.0)
        return x

    def by_option(x):
        np.add(counts, 1.0, out=counts)
        return x

    for step, expected in ((by_item, 1.0), (by_operator, 2.0), (by_method, 2.0), (by_option, 3.0)):
        compiled = lucid.compile(step)
        compiled(lucid.ones(2))
        (reason,) = compiled.stats.eager_reasons
        assert reason.startswith("it changes counts, an array of NumPy's")
        assert counts[0] == expected


def test_a_thread_may_ask_who_listens_for_the_first_time_while_another_one_traces():
    """Python code that makes what a thread has of its own is told of as it starts."""
    begin, done = threading.Lock(), threading.Lock()
    begin.acquire()
    done.acquire()
    found = []

    def work():
        begin.acquire()
        try:
            found.append(getattr(events._listeners, "monitored"))  # noqa: B009 - by code in C
        finally:
            done.release()

    thread = threading.Thread(target=work)
    thread.start()

    @lucid.compile
    def step(x):
        begin.__exit__(None, None, None)  # by methods that a trace takes no note of
        done.__enter__()
        return x * 2

    step(lucid.ones(2))
    thread.join()
    assert found == [[]]
