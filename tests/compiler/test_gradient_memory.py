"""Gradients of compiled steps: their memory is written again only if nobody has ever seen it."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.compiler.programs.program import Program
from lucid.compiler.results.gradients import KEPT_BYTES
from lucid.tensor.lazy_grads import LazyGrad

pytestmark = pytest.mark.usefixtures("entry")

Leaves = list[lucid.Tensor]


def leaves() -> Leaves:
    return [lucid.ones(3, 5, requires_grad=True), lucid.ones(5, requires_grad=True)]


def fresh_step(parameters: Leaves) -> Callable[[lucid.Tensor], lucid.Tensor]:
    """Gradients without those before: `scale` for the second leaf, 2 * scale for the first."""

    def step(scale: lucid.Tensor) -> lucid.Tensor:
        for parameter in parameters:
            parameter.grad = None
        loss = ((2 * parameters[0]).sum() + parameters[1].sum()) * scale
        loss.backward()
        return loss.detach()

    return step


def adding_step(parameters: Leaves) -> Callable[[lucid.Tensor], lucid.Tensor]:
    """The same gradients, accumulated onto those before."""

    def step(scale: lucid.Tensor) -> lucid.Tensor:
        loss = ((2 * parameters[0]).sum() + parameters[1].sum()) * scale
        loss.backward()
        return loss.detach()

    return step


def number(value: float) -> lucid.Tensor:
    return lucid.tensor(float(value))


def memory_of(leaf: lucid.Tensor) -> int:
    """The address of a gradient that nobody has read, without reading it."""
    promise = leaf._gradient
    assert isinstance(promise, LazyGrad)
    return int(promise.array.__array_interface__["data"][0])


def places(step: Callable[..., Any], parameters: Leaves, count: int) -> list[list[int]]:
    """Where the gradients are that each of some calls leaves."""
    found = []
    for i in range(count):
        step(number(i))
        found.append([memory_of(leaf) for leaf in parameters])
    return found


def test_two_calls_take_turns_with_the_memory_of_unread_gradients() -> None:
    parameters = leaves()
    step = lucid.compile(fresh_step(parameters))
    seen = places(step, parameters, 8)
    assert seen[1:3] * 3 == seen[1:7]
    assert seen[1] != seen[2]
    assert step.stats.traces == 1


def large_leaves() -> Leaves:
    """More than is kept for later calls."""
    shape = (3, KEPT_BYTES // 8)
    return [lucid.ones(*shape, requires_grad=True), lucid.ones(shape[1], requires_grad=True)]


def test_large_gradients_are_there_once() -> None:
    parameters = large_leaves()
    step = lucid.compile(fresh_step(parameters))
    seen = places(step, parameters, 5)
    assert seen[1:] == seen[:-1]
    held = parameters[1].grad
    assert held is not None
    step(number(7))
    assert memory_of(parameters[1]) != seen[0][1]
    assert held.max().item() == 4
    assert [p.grad.max().item() for p in parameters] == [14, 7]  # type: ignore[union-attr]


def test_large_gradients_of_two_programs_leave_one_another_alone() -> None:
    parameters = large_leaves()
    steps = [lucid.compile(fresh_step(parameters[::order])) for order in (1, -1)]
    for i in range(8):
        steps[i // 2 % 2](number(i))
        first, second = parameters[:: (1, -1)[i // 2 % 2]]
        if i % 3 == 0:
            assert first.grad is not None
            assert first.grad.min().item() == first.grad.max().item() == 2 * i
        if i % 3 == 1:
            assert second.grad is not None
            assert second.grad.min().item() == second.grad.max().item() == i


def test_large_gradients_stay_where_a_call_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = large_leaves()
    step = lucid.compile(fresh_step(parameters))
    step(number(1))
    seen = [memory_of(leaf) for leaf in parameters]

    def interrupt(*_: object) -> None:
        assert parameters[0]._gradient is None
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Program, "_prepare", interrupt)
        with pytest.raises(KeyboardInterrupt):
            step(number(2))
    assert [memory_of(leaf) for leaf in parameters] == seen
    assert [p.grad.max().item() for p in parameters] == [2, 1]  # type: ignore[union-attr]


def test_a_step_that_may_fail_keeps_large_gradients_until_it_has_run() -> None:
    weight = lucid.ones(KEPT_BYTES // 2, requires_grad=True)

    @lucid.compile
    def step(index: lucid.Tensor, scale: lucid.Tensor) -> None:
        weight.grad = None
        (weight * scale).sum().backward()
        (weight[index] * scale).sum().backward()

    for i in range(1, 4):
        step(lucid.tensor([0, 3]), number(i))
        with pytest.raises(lucid.IndexOutOfRangeError):
            step(lucid.tensor([0, KEPT_BYTES]), number(100))
        assert memory_of(weight)
    assert weight.grad is not None
    assert weight.grad[:4].tolist() == [6, 3, 3, 6]


@pytest.mark.parametrize(
    "hold",
    [
        lambda grad: grad,
        lambda grad: grad.detach(),
        lambda grad: grad.data,
        lambda grad: grad[1:],
        lambda grad: grad.reshape(-1),
        lambda grad: grad.numpy(),
        lambda grad: grad.numpy()[::2],
        lambda grad: memoryview(grad.numpy()),
        lambda grad: np.from_dlpack(grad),
    ],
)
def test_what_is_held_of_a_gradient_is_never_overwritten(hold: Callable[[Any], Any]) -> None:
    parameters = leaves()
    step = lucid.compile(fresh_step(parameters))
    held = []
    for i in range(9):
        step(number(i))
        if i % 3 != 1:
            held.append((i, hold(parameters[i % 2].grad)))
        for before, what in held:
            values = what.numpy() if isinstance(what, lucid.Tensor) else np.asarray(what)
            assert np.all(values == (2 - before % 2) * before)


def test_a_gradient_is_one_object_until_the_next_call() -> None:
    parameters = leaves()
    step = lucid.compile(fresh_step(parameters))
    step(number(1))
    first = parameters[0].grad
    assert first is not None
    assert first is parameters[0].grad
    first.note = "mine"  # type: ignore[attr-defined]
    step(number(2))
    assert parameters[0].grad is not first
    assert not hasattr(parameters[0].grad, "note")


def test_a_gradient_dies_with_its_last_holder() -> None:
    parameters = leaves()
    step = lucid.compile(fresh_step(parameters))
    step(number(1))
    step(number(1))
    watched = weakref.ref(parameters[0].grad)  # type: ignore[arg-type, var-annotated]
    array = weakref.ref(parameters[1].grad.numpy().base)  # type: ignore[union-attr, var-annotated]
    parameters[0].grad = None
    gc.collect()
    assert watched() is None
    assert array() is not None
    for _ in range(3):
        step(number(2))
    gc.collect()
    assert array() is None


def test_a_failing_step_leaves_unread_gradients_as_they_were() -> None:
    weight = lucid.arange(4.0).requires_grad_()

    @lucid.compile
    def step(index: lucid.Tensor, scale: lucid.Tensor) -> None:
        weight.grad = None
        (weight * weight * scale).sum().backward()
        assert weight.grad is not None
        (weight[index] * scale).sum().backward()

    right, wrong = lucid.tensor([0, 3]), lucid.tensor([0, 4])
    for i in range(1, 6):
        step(right, number(i))
        for j in range(3):
            with pytest.raises(lucid.IndexOutOfRangeError):
                step(wrong, number(100 + j))
        if i % 2:
            assert weight.grad is not None
            assert weight.grad.tolist() == [i, 2 * i, 4 * i, 7 * i]


def test_a_gradient_that_is_on_two_leaves_or_returned_is_a_plain_tensor() -> None:
    parameters = leaves()

    @lucid.compile
    def step(scale: lucid.Tensor) -> Any:
        for parameter in parameters:
            parameter.grad = None
        ((2 * parameters[0]).sum() * scale + parameters[1].sum() * scale).backward()
        parameters[0].grad = parameters[1].grad.expand(3, 5).clone()  # type: ignore[union-attr]
        return parameters[1].grad

    kept = []
    for i in range(5):
        kept.append(step(number(i)))
        assert kept[-1] is parameters[1].grad
    assert [k.tolist() for k in kept] == [[i] * 5 for i in range(5)]


def test_programs_that_share_leaves_leave_one_another_alone() -> None:
    parameters = leaves()
    first = lucid.compile(fresh_step(parameters))
    second = lucid.compile(fresh_step(parameters[:1] + parameters[1:]))
    for i in range(12):
        (first, second)[i // 2 % 2](number(i))
        if i % 3 == 0:
            assert [p.grad.max().item() for p in parameters] == [2 * i, i]  # type: ignore[union-attr]


def test_copies_of_a_leaf_have_a_gradient_of_their_own() -> None:
    parameters = leaves()
    step = lucid.compile(fresh_step(parameters))
    step(number(1))
    deep, shallow = copy.deepcopy(parameters[1]), copy.copy(parameters[1])
    assert shallow.grad is parameters[1].grad
    step(number(2))
    step(number(3))
    assert deep.grad is not None
    assert shallow.grad is not None
    assert deep.grad.tolist() == shallow.grad.tolist() == [1] * 5


def test_a_hook_sees_and_may_keep_each_gradient() -> None:
    parameters = leaves()
    kept: list[lucid.Tensor] = []
    parameters[1].register_hook(lambda grad: grad * 10)
    step = lucid.compile(fresh_step(parameters))
    for i in range(4):
        step(number(i))
        if i != 1:
            kept.append(parameters[1].grad)  # type: ignore[arg-type]
    assert [k.tolist() for k in kept] == [[i * 10] * 5 for i in (0, 2, 3)]


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_uses_leaves_what_eager_leaves(seed: int) -> None:
    """A random walk over what one can do with gradients, on a compiled and an eager twin."""
    rng = np.random.default_rng(seed)
    twins = [leaves(), leaves()]
    steps: list[list[Callable[[lucid.Tensor], lucid.Tensor]]] = [
        [lucid.compile(make(twins[0])), make(twins[1])] for make in (fresh_step, adding_step)
    ]
    kept: list[list[Any]] = [[], []]
    for _ in range(60):
        action, which, value = (int(rng.integers(n)) for n in (9, 2, 9))
        for twin, parameters in enumerate(twins):
            leaf = parameters[which]
            if action <= 3:
                steps[action == 3][twin](number(value))
            elif action == 4:
                kept[twin].append(leaf.grad)
            elif action == 5 and leaf.grad is not None:
                kept[twin].append(leaf.grad[1:].numpy())
            elif action == 6:
                leaf.grad = None
            elif action == 7 and leaf.grad is not None:
                leaf.grad.add_(value)
            elif action == 8:
                leaf.grad = lucid.full(leaf.shape, float(value))
        for compiled, eager in zip(*kept, strict=True):
            assert (compiled is None) == (eager is None)
            if eager is not None:
                np.testing.assert_array_equal(np.asarray(compiled), np.asarray(eager))
    for compiled, eager in zip(*twins, strict=True):
        assert (compiled.grad is None) == (eager.grad is None)
        if eager.grad is not None:
            assert compiled.grad.tolist() == eager.grad.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("callers", [1, 2])
def test_threads_that_read_gradients_never_see_them_change(callers: int) -> None:
    weight = lucid.zeros(20000, requires_grad=True)

    @lucid.compile
    def step(scale: lucid.Tensor) -> None:
        weight.grad = None
        (weight * scale).sum().backward()

    step(number(0))
    wrong: list[Any] = []
    is_over = threading.Event()

    def read() -> None:
        held: list[tuple[float, lucid.Tensor]] = []
        while not is_over.is_set():
            grad = weight.grad
            if grad is None:
                wrong.append("no gradient")
                continue
            values = grad.numpy()
            held = [*held[-3:], (float(values[0]), grad)]
            wrong.extend(first for first, seen in held if not np.all(seen.numpy() == first))

    def call(start: int) -> None:
        for i in range(150):
            step(number(start + i))

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=call, args=(1000 * n,)) for n in range(callers)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    is_over.set()
    for thread in readers:
        thread.join()
    assert not wrong
