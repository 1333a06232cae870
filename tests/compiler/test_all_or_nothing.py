"""A call of a compiled step is all or nothing, whoever interrupts it and whatever raises late."""

from __future__ import annotations

import ctypes
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.tensor.claims import held, lock
from lucid.tensor.context import context

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer's signal")


class Interrupt(BaseException):
    """What nobody else raises."""


class Doubled(lucid.autograd.Function):
    """Leaves lucid, so that each call of a step calls Python."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        return lucid.from_numpy(g.numpy() * 2)


class Trainer:
    """A model with an optimizer, and what a step does besides."""

    def __init__(self, *, counts: bool = False, leaves: bool = False, size: int = 4) -> None:
        lucid.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(size, size), nn.Dropout(0.3), nn.Linear(size, 1))
        self.opt = lucid.optim.Adam(self.model.parameters(), lr=0.01)
        self.sch = lucid.optim.lr_scheduler.StepLR(self.opt, 1, 0.9)
        self.counts, self.leaves = counts, leaves
        self.n, self.log, self.last = 0, [], lucid.zeros(())

    def step(self, x: lucid.Tensor) -> lucid.Tensor:
        self.opt.zero_grad()
        y = self.model(x)
        if self.leaves:
            y = Doubled.apply(y)
        loss = (y * y).mean()
        loss.backward()
        self.opt.step()
        if self.counts:
            self.n += 1
            self.last = loss.detach()
            self.log.append(1)
            self.sch.step()
        return loss.detach()

    def state(self) -> list[Any]:
        """All that a call changes, to be compared."""
        parameters = [*self.model.parameters()]
        grads = [None if p.grad is None else p.grad.tolist() for p in parameters]
        slots = [
            {key: lucid.as_tensor(value).tolist() for key, value in self.opt.state[p].items()}
            for p in parameters
            if p in self.opt.state
        ]
        rates = [group["lr"] for group in self.opt.param_groups]
        schedule = self.sch.last_epoch, self.sch._step_count, self.sch.get_last_lr()
        return [
            *([p.tolist() for p in parameters], grads, [p._version for p in parameters], slots),
            *(rates, schedule, self.n, [*self.log], self.last.tolist()),
            lucid.get_rng_state().tolist(),
        ]


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "large": {"size": 96},
    "with places, logs and a scheduler": {"counts": True},
    "with host calls": {"leaves": True},
    "with all of it": {"leaves": True, "counts": True, "size": 96},
}


def at_rest() -> list[Any]:
    """What the thread is doing, as far as lucid knows."""
    modes = {k: [*x] if isinstance(x, list) else x for k, x in vars(context).items()}
    return [modes, lock._is_owned(), [*held]]  # type: ignore[attr-defined]


def by_signal(run: Callable[[], object], delay: float) -> None:
    """Interrupt `run()` by a signal's handler that raises."""
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        run()
        time.sleep(max(2 * delay, 0.001))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def by_thread(run: Callable[[], object], delay: float) -> None:
    """Interrupt `run()` as another thread can."""
    target, is_over = threading.get_ident(), threading.Event()

    def interrupt() -> None:
        if not is_over.wait(delay):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(target), ctypes.py_object(Interrupt)
            )

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        run()
        time.sleep(0.0005)
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def alarm() -> Any:
    def handle(number: int, frame: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handle)
    yield
    signal.signal(signal.SIGALRM, before)


def is_like(found: Any, expected: Any) -> bool:
    """Whether states are the same up to the last bits of floats."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            is_like(found[k], expected[k]) for k in found
        )
    if isinstance(expected, (list, tuple)):
        if expected and isinstance(expected[0], float):
            return len(found) == len(expected) and np.allclose(
                found, expected, rtol=1e-4, atol=1e-6
            )
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(is_like(a, b) for a, b in pairs)
    return found == expected or (isinstance(expected, float) and abs(found - expected) < 1e-5)


class Pair:
    """A trainer whose step is compiled, and one that follows it in eager mode."""

    def __init__(self, kind: str) -> None:
        self.compiled, self.eager = Trainer(**KINDS[kind]), Trainer(**KINDS[kind])
        self.x = lucid.ones(3, len(self.eager.model[0].weight))
        self.step = lucid.compile(self.compiled.step)
        self.rest = at_rest()

    def call(self, times: int, interrupt: Any, delay: float) -> bool:
        """Call the step and interrupt that; whether it came to that."""
        done = [0]

        def run() -> None:
            for _ in range(times):
                self.step(self.x)
                done[0] += 1

        try:
            interrupt(run, delay)
        except Interrupt:
            is_interrupted = True
        else:
            is_interrupted = False
        self.compare(done[0], is_interrupted)
        return is_interrupted

    def compare(self, done: int, is_interrupted: bool) -> None:
        """Require the state after so many calls, or after one more that has come to its end."""
        assert at_rest() == self.rest
        for _ in range(done):
            self.eager.step(self.x)
        found, before = self.compiled.state(), self.eager.state()
        if not is_like(found, before):
            self.eager.step(self.x)
            after = self.eager.state()
            differences = [
                (a, b, c) for a, b, c in zip(found, before, after, strict=True) if not is_like(a, c)
            ]
            assert is_interrupted and not differences


@pytest.mark.parametrize("interrupt", [by_signal, by_thread])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_is_interrupted_has_happened_or_has_not(
    kind: str, interrupt: Any, alarm: None
) -> None:
    pair, draw = Pair(kind), random.Random(kind)
    for _ in range(5):
        start = time.perf_counter()
        pair.call(1, lambda run, delay: run(), 0.0)
        duration = time.perf_counter() - start
    count = sum(pair.call(8, interrupt, draw.uniform(1e-5, 1e-3)) for _ in range(40))
    assert count > 10
    pair.call(3, lambda run, delay: run(), 0.0)


@pytest.mark.parametrize("interrupt", [by_signal, by_thread])
@pytest.mark.parametrize("kind", KINDS)
def test_a_first_call_that_is_interrupted_has_happened_or_has_not(
    kind: str, interrupt: Any, alarm: None
) -> None:
    draw = random.Random(kind)
    for _ in range(3):
        pair = Pair(kind)
        pair.call(1, interrupt, draw.uniform(1e-3, 0.15))
        pair.call(2, lambda run, delay: run(), 0.0)
