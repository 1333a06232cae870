"""The short way through a call: it is taken where it may be, and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.compiler.inputs.signature import Call
from lucid.runtime.entry.layout import SLOW_PATH

pytestmark = pytest.mark.usefixtures("entry", "unaudited")

Args = tuple[Any, ...]
WEIGHT = lucid.ones(1, requires_grad=True)


def tensor(*shape: int, start: float = 0.0) -> lucid.Tensor:
    return lucid.arange(start, start + float(np.prod(shape))).reshape(*shape).clone()


def takes_the_short_way(step: Any, args: Args) -> bool:
    """Whether a call would; this makes one if so."""
    latest = step._latest_program()
    if latest.enter is not None:
        return latest.enter(*args) is not SLOW_PATH
    call = Call(args, {})
    is_plain = call.key == latest.key and call.plain_types() is not None
    return is_plain and latest.run(call) is not SLOW_PATH


def difference(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
    return 2 * x - y


def test_training_takes_the_short_way_with_each_optimizer() -> None:
    x, y = tensor(4, 3), tensor(4, 2)
    for kind in (lucid.optim.SGD, lucid.optim.Adam):
        model = lucid.nn.Linear(3, 2)
        optimizer = kind(model.parameters(), lr=1e-3)

        @lucid.compile
        def step(
            x: lucid.Tensor, y: lucid.Tensor, model: Any = model, optimizer: Any = optimizer
        ) -> lucid.Tensor:
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(x, y).item() for _ in range(4)]
        assert takes_the_short_way(step, (x, y))
        assert sorted(losses, reverse=True) == losses
        assert step.stats.traces == 1


def same_twice() -> Args:
    x = tensor(2, 3)
    return x, x


def views_of_one() -> Args:
    x = tensor(3, 2, 3)
    return x[0], x[1]


def leaf() -> Args:
    return tensor(2, 3).requires_grad_(), tensor(2, 3)


def with_history() -> Args:
    return tensor(2, 3) * WEIGHT, tensor(2, 3)


def view_that_got_a_history() -> Args:
    x = tensor(2, 2, 3)
    part = x[0]
    x.mul_(WEIGHT)
    return part, tensor(2, 3)


@pytest.mark.parametrize(
    "other",
    [
        same_twice,
        views_of_one,
        leaf,
        with_history,
        view_that_got_a_history,
        lambda: (tensor(3, 2).T, tensor(2, 3)),
        lambda: (tensor(2, 6)[:, ::2], tensor(2, 3)),
        lambda: (tensor(1, 3).expand(2, 3), tensor(2, 3)),
        lambda: (tensor(2, 3).double(), tensor(2, 3)),
        lambda: (tensor(3), tensor(2, 3)),
        lambda: (tensor(2, 3), 1.5),
        lambda: (tensor(2, 3), 3),
        lambda: (lucid.nn.Parameter(tensor(2, 3)), tensor(2, 3)),
        lambda: (tensor(2, 3, start=5.0), tensor(2, 3)),
    ],
)
def test_other_arguments_get_what_eager_gives(other: Callable[[], Args]) -> None:
    step, eager = lucid.compile(difference), lucid.compile(difference, mode="eager")
    for _ in range(3):
        step(tensor(2, 3), tensor(2, 3))
    for args in (other(), other(), (tensor(2, 3), tensor(2, 3))):
        found, expected = step(*args), eager(*args)
        assert found._type == expected._type
        assert found.requires_grad == expected.requires_grad
        np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())


def test_results_are_fresh_at_each_call() -> None:
    step = lucid.compile(difference)
    x = tensor(2, 3)
    results = [step(x, tensor(2, 3, start=float(i))) for i in range(6)]
    for i, result in enumerate(results):
        assert result.tolist() == difference(x, tensor(2, 3, start=float(i))).tolist()


def test_modes_of_the_thread_are_respected() -> None:
    weight = lucid.ones(3, requires_grad=True)
    step = lucid.compile(lambda x: x * weight)
    x = tensor(3)
    with lucid.no_grad():
        for _ in range(3):
            assert not step(x).requires_grad
        assert takes_the_short_way(step, (x,))
    assert not takes_the_short_way(step, (x,))
    assert step(x).requires_grad
    with lucid.no_grad():
        step(x)
        assert takes_the_short_way(step, (x,))
        calls = step.stats.calls
        with lucid.compiler.set_stance("force_eager"):
            step(x)
        with lucid.autograd.detect_anomaly():
            step(x)
        assert step.stats.calls == calls
        mapped = lucid.func.vmap(step)(tensor(2, 3))
        assert mapped.tolist() == tensor(2, 3).tolist()
        _, tangent = lucid.func.jvp(step, (x,), (lucid.ones(3),))
        assert tangent.tolist() == [1, 1, 1]
        outer = lucid.compile(lambda x: step(x) + 1)
        for start in (0.0, 1.0, 5.0):
            assert outer(tensor(3, start=start)).tolist() == [start + i for i in (1, 2, 3)]
        assert takes_the_short_way(step, (x,))


def test_an_argument_that_is_state_is_written_like_state() -> None:
    state = tensor(3)

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        state.add_(1)
        return x * 2

    for _ in range(3):
        step(tensor(3))
    assert step(state).tolist() == [8, 10, 12]
    assert step(state.view(3)).tolist() == [10, 12, 14]


def test_what_the_step_read_is_looked_at() -> None:
    factor = [2.0, 3]

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return x * factor[1]

    x = tensor(3)
    for _ in range(3):
        assert step(x).tolist() == [0, 3, 6]
    factor[1] = 5
    assert step(x).tolist() == [0, 5, 10]
    assert step.stats.traces == 2


def test_a_call_with_memory_shared_with_state_behind_our_back_runs_op_by_op() -> None:
    memory = np.arange(6, dtype=np.float32)
    state = lucid.from_numpy(memory)

    @lucid.compile
    def step(x: lucid.Tensor) -> None:
        state.add_(x)

    for _ in range(3):
        step(lucid.ones(6))
    before = memory.copy()
    shared = lucid.from_numpy(memory[:])
    step(shared)
    np.testing.assert_array_equal(memory, before * 2)
    step(lucid.ones(6))
    np.testing.assert_array_equal(memory, before * 2 + 1)
    assert len(step.stats.eager_reasons) == 1


def test_a_learning_rate_may_change_its_class() -> None:
    weight = lucid.zeros(2, requires_grad=True)
    optimizer = lucid.optim.SGD([weight], lr=0.5)

    @lucid.compile
    def step(x: lucid.Tensor) -> None:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    expected = 0.0
    for rate in (0.5, 0.5, 0.25, 1, np.float32(0.5), np.float64(0.25), 0.5):
        optimizer.param_groups[0]["lr"] = rate
        step(lucid.ones(2))
        expected -= float(rate)
        assert weight.tolist() == [expected] * 2


def test_threads_may_call_at_once() -> None:
    step = lucid.compile(difference)
    step(tensor(50, 20), tensor(50, 20))
    wrong: list[float] = []

    def call(value: float) -> None:
        x, y = tensor(50, 20, start=value), tensor(50, 20)
        expected = difference(x, y).numpy()
        for _ in range(200):
            if not np.array_equal(step(x, y).numpy(), expected):
                wrong.append(value)

    threads = [threading.Thread(target=call, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
