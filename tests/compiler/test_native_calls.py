"""The native entry of plain calls: what it takes, what it leaves to Python, and what it keeps."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler.programs import native
from lucid.runtime.entry import layout as runtime_entry
from lucid.runtime.entry.layout import SLOW_PATH, UnknownLayoutError, general_layout, layout_of
from lucid.tensor.context import context, epoch
from lucid.tensor.objects import measured
from lucid.tensor.write_locks import WriteLock, held, lock

from .conftest import assert_same, observed

pytestmark = [
    pytest.mark.skipif(native._measured() is None, reason="objects look different here"),
    pytest.mark.usefixtures("unaudited"),
]


def enter(step: Any, *args: Any) -> Any:
    """Call the native entry itself."""
    return step._latest_program().enter(*args)


def is_taken(step: Any, *args: Any) -> bool:
    return enter(step, *args) is not SLOW_PATH


def warm(step: Any, *args: Any) -> Any:
    for _ in range(3):
        step(*args)
    return step


def tensor(*shape: int, start: float = 0.0) -> lucid.Tensor:
    return lucid.arange(start, start + float(np.prod(shape))).reshape(*shape).clone()


def difference(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
    return 2 * x - y


@pytest.mark.parametrize("moves", ["a size", "a flag", "a number of the user's", "a path"])
def test_native_code_goes_from_one_program_to_another(moves: str, monkeypatch: Any) -> None:
    net, state = nn.Linear(3, 2), {"factor": 2}

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        y = net(x) if net.training else x @ net.weight.T
        return y * state["factor"] if moves != "a path" or x.sum() > 0 else -y

    def change(i: int) -> lucid.Tensor:
        if moves == "a flag":
            net.train(i % 2 == 0)
        if moves == "a number of the user's":
            state["factor"] = [True, 2, 3.5][i % 3]
        x = tensor(4 + i % 2, 3) if moves == "a size" else tensor(4, 3)
        return -x if moves == "a path" and i % 2 else x

    for i in range(12):
        step(change(i))
    traces, calls, found = step.stats.traces, step.stats.calls, []
    slowly = type(step)._call_natively

    def noted(compiled: Any, *args: Any) -> Any:
        return found.append(args) if compiled is step else slowly(compiled, *args)

    monkeypatch.setattr(type(step), "_call_natively", noted)
    for i in range(12):
        x = change(i)
        np.testing.assert_allclose(step(x).detach(), step.__wrapped__(x).detach(), atol=1e-5)
    assert not found and (step.stats.traces, step.stats.calls) == (traces, calls + 12)
    assert sum(program.calls for program in step.stats.programs) == calls + 12


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(3, 4), nn.Dropout(0.25), nn.Linear(4, 2)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        result: lucid.Tensor = self.second(self.drop(self.first(x)))
        return result


def training(kind: Callable[..., Any] = lucid.optim.Adam) -> Any:
    lucid.manual_seed(0)
    model = Net()
    optimizer = kind(model.parameters(), lr=1e-2)

    @lucid.compile
    def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    step.optimizer, step.model = optimizer, model
    return step


@pytest.mark.parametrize("kind", [lucid.optim.SGD, lucid.optim.Adam, lucid.optim.AdamW])
def test_training_is_native(kind: Callable[..., Any]) -> None:
    args = tensor(5, 3), tensor(5, 2)
    step = warm(training(kind), *args)
    before = step.stats.calls
    losses = [enter(step, *args).item() for _ in range(4)]
    assert len(set(losses)) == 4
    assert step.stats.calls == before + 4
    step.optimizer.param_groups[0]["lr"] = 1e-3  # live
    assert is_taken(step, *args)
    step.optimizer.param_groups[0]["lr"] = 1  # no float
    assert not is_taken(step, *args)


def test_calls_are_counted_whichever_way_they_go() -> None:
    step = lucid.compile(difference)
    args = tensor(2), tensor(2)
    for count in range(1, 7):
        step(*args)
        assert step.stats.calls == count
        assert f"traces=1, calls={count}, retrace_reasons=[]" in repr(step.stats)
    step(tensor(3), tensor(3))
    step(tensor(3), 1.5)
    assert step.stats.calls == 8


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (lambda x, y: None, None),
        (lambda x, y: 3, 3),
        (lambda x, y: x + y, [0.0, 2.0, 4.0]),
        (lambda x, y: (x + y, x - y), ([0.0, 2.0, 4.0], [0.0, 0.0, 0.0])),
        (lambda x, y: {"a": x * y, "b": (x + y)[1:], "c": x}, None),
    ],
)
def test_every_kind_of_result_is_native(body: Callable[..., Any], result: Any) -> None:
    x, y = tensor(3), tensor(3)
    step = warm(lucid.compile(body), x, y)
    found, eager = enter(step, x, y), body(x, y)

    def plain(value: Any) -> Any:
        if isinstance(value, lucid.Tensor):
            return value.tolist()
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value

    assert plain(found) == plain(eager)
    assert result is None or plain(found) == result


def test_a_native_result_is_a_tensor_like_any_other() -> None:
    x, y = tensor(2, 3), tensor(2, 3)
    step = warm(lucid.compile(difference), x, y)
    found, other = enter(step, x, y), difference(x, y)
    assert type(found) is lucid.Tensor
    names = [n for kind in lucid.Tensor.__mro__ for n in getattr(kind, "__slots__", ())]
    for name in set(names) - {"__dict__", "__weakref__"}:
        if name not in ("_storage", "_array", "_counter", "_spot", "_strides", "_type"):
            assert getattr(found, name) == getattr(other, name), name
    assert found._type == other._type
    assert found._strides in (None, other._strides)
    assert found.stride() == other.stride()
    found.note = "mine"
    assert weakref.ref(found)() is found
    assert found._storage.array is found._array
    second = enter(step, x, y)
    assert found._counter is not second._counter
    assert found._storage is not second._storage
    found.requires_grad_()
    (found * found).sum().backward()
    assert found.grad.tolist() == (2 * found.detach()).tolist()
    found.detach().add_(1)
    assert (found._version, second._version) == (1, 0)


BAD_ARGUMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "the same twice": lambda: (tensor(2, 3),) * 2,
    "two views of one": lambda: tuple(tensor(2, 2, 3)),
    "a leaf": lambda: (tensor(2, 3).requires_grad_(), tensor(2, 3)),
    "another dtype": lambda: (tensor(2, 3).double(), tensor(2, 3)),
    "another shape": lambda: (tensor(3, 2), tensor(2, 3)),
    "fewer axes": lambda: (tensor(3), tensor(2, 3)),
    "other strides": lambda: (tensor(3, 2).T, tensor(2, 3)),
    "an array": lambda: (np.ones((2, 3), np.float32), tensor(2, 3)),
    "a number": lambda: (2.0, tensor(2, 3)),
    "a Parameter": lambda: (nn.Parameter(tensor(2, 3)), tensor(2, 3)),
    "too few": lambda: (tensor(2, 3),),
    "too many": lambda: (tensor(2, 3),) * 3,
    "None": lambda: (None, None),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_other_arguments_go_the_long_way(name: str) -> None:
    args, others = (tensor(2, 3), tensor(2, 3)), BAD_ARGUMENTS[name]()
    step = warm(lucid.compile(difference), *args)
    assert not is_taken(step, *others)
    assert is_taken(step, *args)


def test_parameters_as_arguments_are_native_and_told_from_other_tensors() -> None:
    class Weight(nn.Parameter):
        pass

    plain, parameter = tensor(2, 3).requires_grad_(), nn.Parameter(tensor(2, 3))
    step = warm(lucid.compile(lambda x: x * (2 if isinstance(x, nn.Parameter) else 3)), parameter)
    found = enter(step, nn.Parameter(tensor(2, 3)))
    assert found.tolist() == (2 * tensor(2, 3)).tolist() and found.requires_grad
    others = plain, parameter.detach(), nn.Parameter(parameter, False), Weight(parameter)
    assert not any(is_taken(step, other) for other in others)
    for other in others:
        assert step(other).tolist() == (other * (3 if type(other) is lucid.Tensor else 2)).tolist()


def test_views_as_arguments_are_native_unless_they_have_a_history() -> None:
    data, weight = tensor(6, 3), lucid.ones(1, requires_grad=True)
    step = warm(lucid.compile(lambda x: x * 2), data[:2])
    assert enter(step, data[2:4]).tolist() == (data[2:4] * 2).tolist()
    part = data[4:]
    data.mul_(weight)
    assert not is_taken(step, part)
    assert is_taken(step, tensor(2, 3))


def test_state_as_an_argument_goes_the_long_way() -> None:
    states = [tensor(3) for _ in range(40)]

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return sum((state for state in states), x)

    warm(step, tensor(3))
    assert is_taken(step, tensor(3))
    assert not any(is_taken(step, state) for state in states)
    assert not any(is_taken(step, state.view(3)) for state in states)


def test_memory_of_written_state_behind_our_back_goes_the_long_way() -> None:
    memory = np.zeros(400, np.float32)
    states = [lucid.from_numpy(memory[20 * i : 20 * i + 10]) for i in range(20)]

    @lucid.compile(audit=False)
    def step(x: lucid.Tensor) -> None:
        for state in states:
            state.add_(x)

    warm(step, lucid.ones(10))
    for i in range(20):
        for start in range(20 * i - 9, 20 * i + 10):
            if start >= 0:
                assert not is_taken(step, lucid.from_numpy(memory[start : start + 10])), start
        assert is_taken(step, lucid.from_numpy(memory[20 * i + 10 : 20 * i + 20]))


def test_modes_of_the_thread_go_the_long_way() -> None:
    x = tensor(3)
    weight = lucid.ones(3)
    step = warm(lucid.compile(lambda x: x * weight), x)
    assert is_taken(step, x)
    with lucid.no_grad():
        assert not is_taken(step, x)
    with lucid.compiler.set_stance("force_eager"):
        assert not is_taken(step, x)
    with lucid.autograd.detect_anomaly():
        assert not is_taken(step, x)
    lucid.set_default_dtype(lucid.float64)
    assert not is_taken(step, x)
    lucid.set_default_dtype(lucid.float32)
    assert is_taken(step, x)
    seen: list[bool] = []

    def inside(y: lucid.Tensor) -> lucid.Tensor:
        seen.append(is_taken(step, x))
        return y

    lucid.func.vmap(inside)(tensor(2, 3))
    context.recorder = object()  # type: ignore[assignment]
    try:
        inside(x)
    finally:
        context.recorder = None
    assert seen == [False, False]
    thread = threading.Thread(target=lambda: seen.append(is_taken(step, x)))
    thread.start()
    thread.join()
    assert seen[-1]
    assert is_taken(step, x)


def test_what_the_step_has_read_is_looked_at() -> None:
    settings: dict[str, Any] = {"scale": 2, "shift": [1]}
    offset = 1

    def body(x: lucid.Tensor) -> lucid.Tensor:
        return x * settings["scale"] + settings["shift"][0] + offset

    x = tensor(3)
    step = warm(lucid.compile(body), x)
    assert is_taken(step, x)
    for change in (
        lambda: settings.update(scale=3),
        lambda: settings["shift"].__setitem__(0, 5),
        lambda: settings["shift"].append(1),
        lambda: settings.update(more=1),
    ):
        change()
        assert step(x).tolist() == body(x).tolist()
        warm(step, x)
        assert is_taken(step, x)
    offset = 7
    assert not is_taken(step, x)
    assert step(x).tolist() == body(x).tolist()


def test_numbers_around_the_step_that_keep_changing_are_read_natively() -> None:
    settings = {"scale": 2.0, "count": 1}
    shift = 0.5

    def body(x: lucid.Tensor) -> lucid.Tensor:
        return x * settings["scale"] + settings["count"] - shift

    x = tensor(3)
    step = warm(lucid.compile(body), x)
    for n in range(1, 6):
        settings.update(scale=3.0 + n, count=n * n + 1)
        shift += 1.0
        assert step(x).tolist() == body(x).tolist()
        assert is_taken(warm(step, x), x)
    assert step.stats.traces == 3
    settings.update(count=None)
    assert not is_taken(step, x)


def flags_there_and_back(model: nn.Module) -> None:
    for flag in (False, True):
        for parameter in model.parameters():
            parameter.requires_grad_(flag)


def other_order(model: nn.Module) -> None:
    model._modules["first"] = model._modules.pop("first")


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (lambda model: lucid.ones(3).requires_grad_(), True),  # somebody else's flag
        (lambda model: nn.Linear(2, 2), True),
        (lambda model: (model.eval(), model.train()), True),
        (flags_there_and_back, True),
        (lambda model: vars(model).get("first"), True),
        (lambda model: model.eval(), False),
        (lambda model: model.second.bias.requires_grad_(False), False),
        (lambda model: setattr(model.second.bias, "data", lucid.ones(2)), False),
        (lambda model: model.second.bias.register_hook(lambda grad: grad * 2), False),
        (lambda model: model.drop.register_forward_hook(lambda *_: None), False),
        (lambda model: model._modules.update(drop=nn.Identity()), False),
        (other_order, False),
    ],
)
def test_native_code_looks_at_what_moves_the_epoch(
    change: Callable[[Any], object], holds: bool
) -> None:
    args = tensor(5, 3), tensor(5, 2)
    step = warm(training(), *args)
    for _ in range(2):
        change(step.model)
        assert is_taken(step, *args) is holds
    step(*args)
    assert step.stats.traces == (1 if holds else 2)


def test_what_changes_nothing_doesnt_move_the_epoch() -> None:
    step = warm(training(), *(tensor(5, 3), tensor(5, 2)))
    before = epoch.count
    step.model.train()
    step.model.drop.p = step.model.drop.p
    lucid.ones(3).requires_grad_()
    lucid.tensor([1.0], requires_grad=True)
    assert epoch.count == before


def test_an_error_leaves_all_as_it_was() -> None:
    weight = lucid.arange(4.0).requires_grad_()

    @lucid.compile
    def step(index: lucid.Tensor) -> lucid.Tensor:
        weight.grad = None
        loss = (weight[index] * weight[index]).sum()
        loss.backward()
        return loss

    right, wrong = lucid.tensor([1, 3]), lucid.tensor([1, 4])
    warm(step, right)
    for _ in range(5):
        enter(step, right)
        kept = weight._gradient
        for _ in range(3):
            with pytest.raises(lucid.IndexOutOfRangeError, match="index 4 is out of bounds"):
                enter(step, wrong)
        assert weight._gradient is kept
    assert is_taken(step, right)
    assert weight.grad is not None
    assert weight.grad.tolist() == [0, 2, 0, 6]


def references(values: list[Any]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


def test_no_reference_is_lost_or_kept() -> None:
    args = tensor(5, 3), tensor(5, 2)
    step = warm(training(), *args)
    bodies = (lambda x, y: None, difference, lambda x, y: (x + y, y))
    others = [warm(lucid.compile(body), tensor(2, 3), tensor(2, 3)) for body in bodies]
    pair = tensor(2, 3), tensor(2, 3)
    index = warm(lucid.compile(lambda x, i: x[i]), tensor(3), lucid.tensor([1]))
    far = tensor(3), lucid.tensor([3])
    watched = [*args, *pair, *far, None, False, True, (), 0, SLOW_PATH, lucid.Tensor, np.ndarray]
    watched += [
        np.dtype(np.float32),
        lucid.tensor,
        step,
        step._programs.latest,
        *step.model.parameters(),
    ]
    watched += [
        args[0]._array,
        pair[0]._array,
        pair[0]._storage,
        *step._programs.latest.gradients.latest,
    ]

    def work(count: int) -> None:
        for _ in range(count):
            enter(step, *args)
            enter(step, *args)
            for other in others:
                enter(other, *pair)
                enter(other, *args)  # the long way
            with contextlib.suppress(lucid.IndexOutOfRangeError):
                enter(index, *far)

    work(5)
    while gc.collect():  # of earlier tests too
        pass
    before, objects = references(watched), len(gc.get_objects())
    work(500)
    gc.collect()
    after = references(watched)
    moved = [(v, b, a) for v, b, a in zip(watched, before, after, strict=True) if abs(a - b) > 300]
    assert not moved, [(type(v), b, a) for v, b, a in moved]
    assert abs(len(gc.get_objects()) - objects) < 50


def test_nothing_is_allocated_in_the_steady_state() -> None:
    args = tensor(5, 3), tensor(5, 2)
    step = warm(training(), *args)
    for _ in range(5):
        enter(step, *args)
    gc.collect()
    tracemalloc.start()
    try:
        enter(step, *args)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(50):
            enter(step, *args)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2000
    assert peak - before < 4000


def test_a_call_inside_of_a_call_goes_the_long_way() -> None:
    """The step reads a number with Python code, which calls the step."""
    found: list[bool] = []

    class Rate:
        value = 0.5

    x = tensor(3)

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return x * context.recorder.live_scalar("rate", 0.5, lambda call: read(), read)

    def read() -> float:
        latest = step._programs.latest
        if latest is not None and latest.enter is not None and not found:
            found.append(True)
            found[0] = is_taken(step, x)
        return Rate.value

    warm(step, x)
    Rate.value = 0.25
    assert step(x).tolist() == [0, 0.25, 0.5]
    assert found == [False]


def test_threads_share_a_step_natively() -> None:
    weight = lucid.zeros(200, 100, requires_grad=True)

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        weight.grad = None
        loss = ((weight + x) * x).sum()
        loss.backward()
        return loss

    warm(step, lucid.ones(200, 100))
    wrong: list[Any] = []

    def call(value: float) -> None:
        x = lucid.full((200, 100), value)
        for _ in range(100):
            if step(x).item() != 20000 * value * value:
                wrong.append(value)
            grad = weight.grad
            if grad is None or len(np.unique(grad.numpy())) != 1:
                wrong.append("gradient")

    threads = [threading.Thread(target=call, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_long_step_that_writes_lets_others_run_and_fails_like_a_short_one() -> None:
    state = lucid.zeros(1 << 20)

    @lucid.compile
    def step(index: lucid.Tensor) -> lucid.Tensor:
        state.add_(1)
        return state[index].sum()

    right, wrong = lucid.tensor([1, 3]), lucid.tensor([1, 1 << 20])
    warm(step, right)
    assert not step._programs.latest.executable.is_short
    for count in range(4, 8):
        assert enter(step, right).item() == 2 * count
        with pytest.raises(lucid.IndexOutOfRangeError, match="index 1048576 is out of bounds"):
            enter(step, wrong)
        assert not held
    assert lock.acquire(blocking=False)  # of this thread: not locked any more by any
    lock.release()
    thread_saw: list[bool] = []

    def look() -> None:
        thread_saw.append(lock.acquire(blocking=False))
        lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert thread_saw == [True]


def test_a_claim_of_another_thread_goes_the_long_way() -> None:
    args = tensor(5, 3), tensor(5, 2)
    step = warm(training(), *args)
    with WriteLock(frozenset((1,))):
        assert not is_taken(step, *args)
    assert is_taken(step, *args)
    done = threading.Event()
    inside = threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    assert not is_taken(step, *args)
    done.set()
    thread.join()
    assert is_taken(step, *args)


def test_a_step_that_is_dropped_is_freed() -> None:
    args = tensor(5, 3), tensor(5, 2)
    step = warm(training(), *args)
    kept = weakref.ref(step._programs.latest.executable)
    del step
    assert kept() is None  # at once


def test_fields_of_objects_are_found_by_looking() -> None:
    found = measured()
    assert found is not None
    assert layout_of(found[1].fields) == found[0]
    assert general_layout()["kind"] == object.__basicsize__ - 8


def test_unknown_objects_leave_calls_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> dict[str, int]:
        raise UnknownLayoutError("objects")

    monkeypatch.setattr(runtime_entry, "general_layout", refuse)
    native._measured.cache_clear()
    measured.cache_clear()
    try:
        step = warm(lucid.compile(difference), tensor(2), tensor(2))
        assert step._latest_program().enter is None
        assert step(tensor(2), tensor(2)).tolist() == [0, 1]
    finally:
        monkeypatch.undo()
        native._measured.cache_clear()
        measured.cache_clear()


def test_the_environment_leaves_calls_to_python() -> None:
    code = """
import lucid
step = lucid.compile(lambda x: x + 1)
print([step(lucid.ones(1)).item() for _ in range(4)], step._programs.latest.enter)
"""
    given = {"LUCID_NATIVE_CALLS": "0", "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[2.0, 2.0, 2.0, 2.0] None"


def test_a_claim_that_is_interrupted_leaves_everything_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long step waits for others in Python, where Ctrl-C comes through."""
    claims, claim = [0], native.exchange_lock

    def interrupted(keys: Any) -> Any:
        claims[0] += 1
        if claims[0] == 2:
            raise KeyboardInterrupt
        return claim(keys)

    monkeypatch.setattr(native, "exchange_lock", interrupted)
    x, total = lucid.ones(300, 300), lucid.zeros(300, 300)

    @lucid.compile
    def step(x):
        total.add_(x @ x)
        return total.sum()

    warm(step, x)
    assert claims[0] < 2
    calls = 3
    while claims[0] < 2:
        before = total.clone()
        try:
            step(x)
            calls += 1
        except KeyboardInterrupt:
            assert lucid.equal(total, before)
    assert float(step(x)) == (calls + 1) * 300.0**3 and not held


def test_a_step_keeps_the_machine_code_that_checks_its_calls() -> None:
    """Threads that ask for it at the same time make one each, of which the cache keeps one."""

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return x + 1

    native._measured.cache_clear()
    runtime_entry.entry_for.cache_clear()
    x = lucid.ones(3)
    for _ in range(4):
        step(x)
    known = native._measured()
    assert known is not None
    entry = weakref.ref(known[0])
    del known
    native._measured.cache_clear()
    runtime_entry.entry_for.cache_clear()
    gc.collect()
    assert entry() is not None
    assert step(x).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.usefixtures("known_sizes")
def test_each_of_many_sizes_is_entered_by_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the lengths of a cache are that grows with each word that a model says."""
    weights = lucid.ones(3, requires_grad=True)

    @lucid.compile(audit=False)
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return (x * weights).sum()

    batches = [lucid.ones(size, 3) for size in range(1, 21)]
    for _ in range(40):
        for x in batches:
            step(x)
    assert step.stats.traces == len(batches)

    def long_way(*args: Any) -> Any:
        raise AssertionError("a call looked for a program in Python")

    monkeypatch.setattr(type(step), "_call", long_way)
    for size in (*range(1, 21), 7, 3, 19, 3, 3, 11):
        assert step(batches[size - 1]).item() == 3 * size


# Sizes that numbers say ---------------------------------------------------------------------------


class Lengths:
    length = 3


def bodies_of_lengths() -> dict[str, tuple[Callable[..., Any], lucid.Tensor]]:
    """Steps of an `x` and a length, and what they read and may write."""
    lucid.manual_seed(0)
    weight = lucid.randn(30, 4).requires_grad_()

    def training(x: lucid.Tensor, n: int) -> lucid.Tensor:
        loss = (x[:, :n].cumsum(1) @ weight[:n]).square().mean()
        loss.backward()
        with lucid.no_grad():
            weight.sub_(weight.grad * 0.01)
        weight.grad = None
        return loss

    bodies: dict[str, Callable[..., Any]] = {
        "a result": lambda x, n: x[:, :n] * 2,
        "several": lambda x, n: (x[:, :n] * 2, x[:, :n].sum(), lucid.arange(n), n, x[:, n:]),
        "history": lambda x, n: x[:, :n].tanh() @ weight[:n],
        "an open history": lambda x, n: weight[:n].tanh().cumsum(0),
        "training": training,
        "with a mask": lambda x, n: x[x > 0.5].square().sum() + x[:, :n].sum(),
        "several with a mask": lambda x, n: (x[x > 0.5] * 2, x[:, :n] + 1, lucid.arange(n), n),
        "history with a mask": lambda x, n: x[x > 0.5].mean() * x[:, :n].tanh() @ weight[:n],
        "training with a mask": lambda x, n: training(x, n) + training(x[:, x[0] > 0.5], 2),
    }
    return {name: (body, weight) for name, body in bodies.items()}


def called(step: Callable[..., Any], settings: Lengths, place: str, x: Any, n: int) -> Any:
    settings.length = n
    if place == "keyword":
        return step(x, n=n)
    return step(x, n) if place == "argument" else step(x)


def placed(body: Callable[..., Any], settings: Lengths, place: str) -> Callable[..., Any]:
    return body if place != "attribute" else lambda x: body(x, settings.length)


def long_ways_of(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions whose calls go the long way from now on, once for each call."""
    found: list[Any] = []
    long_way = lucid.compiler.Compiled._call

    def noted(self: Any, *args: Any) -> Any:
        found.append(self)
        return long_way(self, *args)

    monkeypatch.setattr(lucid.compiler.Compiled, "_call", noted)
    return found


@pytest.mark.parametrize("name", bodies_of_lengths())
@pytest.mark.parametrize("place", ["attribute", "argument"])
def test_lengths_that_come_again_are_served_by_native_code(
    name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are longer than all before need more memory."""

    def run(compile: Callable[..., Any]) -> Any:
        body, weight = bodies_of_lengths()[name]
        settings, found, rng = Lengths(), [], np.random.default_rng(0)
        step = compile(placed(body, settings, place))
        lengths = [3, 5, 4, 7, 6, 9, 8, 2, 12, 11]
        for n in [*lengths, 30, *lengths, *range(13, 27), *lengths * 3]:
            made = called(step, settings, place, lucid.tensor(rng.random((2, 30), np.float32)), n)
            if "history" in name:
                made.square().sum().backward()
            found.append(made)
            ways.append(long_ways.count(step))
        return step, found, weight.detach(), weight.grad

    long_ways, ways = long_ways_of(monkeypatch), list[int]()
    step, *found = run(lambda body: lucid.compile(body, audit=False))
    assert ways[-11] == ways[-1], "the last ten calls have gone the long way"
    assert step.stats.traces <= 6 and not step.stats.eager_reasons
    _, *expected = run(lambda body: lucid.compile(body, mode="eager"))
    assert_same(observed(found), observed(expected))


@pytest.mark.parametrize("place", ["attribute", "argument", "keyword"])
def test_an_error_in_a_call_of_any_length_is_eagers(place: str) -> None:
    weight, settings = lucid.ones(30).requires_grad_(), Lengths()

    def body(x: lucid.Tensor, n: int, index: lucid.Tensor) -> lucid.Tensor:
        loss: lucid.Tensor = (x[:n] * weight[:n])[index].sum()
        loss.backward()
        return loss

    index = lucid.tensor([0, 2])
    step = lucid.compile(placed(lambda x, n: body(x, n, index), settings, place), audit=False)
    lengths, several = (4, 6, 5, 8, 7), (tensor(30), tensor(40))
    for n in lengths * 3:
        for x in several:
            called(step, settings, place, x, n)
    for x in (*several, several[0]):  # the program of the call before, and another one
        kept = weight.grad.tolist()
        index[1] = 6
        for n in (4, 6, 5):
            with pytest.raises(lucid.IndexOutOfRangeError, match=rf"index 6 is out of .* size {n}"):
                called(step, settings, place, x, n)
            assert weight.grad.tolist() == kept
        assert called(step, settings, place, x, 8).item() == 6
        index[1] = 2


def test_a_length_that_buffers_have_no_room_for_goes_the_long_way() -> None:
    settings, x = Lengths(), lucid.randn(2, 3000)

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return x[:, : settings.length].cumsum(1).flip(1).cumsum(1).sum()

    for n in (3, 5, 4, 7, 6, 5, 4, 7):
        settings.length = n
        step(x)
    assert is_taken(step, x)
    free, (buffers, *_) = step._programs.latest.executable.free, step._programs.latest.native._kept
    settings.length = 2900
    free.remove(buffers)  # as if another thread ran on them
    for _ in range(2):
        expected = step(x)
    free.append(buffers)
    assert not is_taken(step, x)
    assert [step(x).item() for _ in range(3)] == [expected.item()] * 3
    free.clear()
    free.append(buffers)
    step(x)
    assert is_taken(step, x)


def test_no_memory_is_kept_of_calls_of_many_lengths() -> None:
    settings, x = Lengths(), tensor(2, 30)
    step = lucid.compile(lambda x: (x[:, : settings.length] * 2, lucid.arange(settings.length)))
    lengths = [3, 5, 4, 7, 6, 9, 8, 2, 12, 11]

    def work(count: int) -> None:
        for i in range(count):
            settings.length = lengths[i % len(lengths)]
            step(x)

    work(60)
    watched = [x, x._array, None, step._programs.latest.executable.decided.latest]
    while gc.collect():
        pass
    before, objects = references(watched), len(gc.get_objects())
    work(1000)
    gc.collect()
    after = references(watched)
    moved = [b - a for b, a in zip(before, after, strict=True)]
    assert max(map(abs, moved)) < 100, moved
    assert len(gc.get_objects()) - objects < 50


def test_a_backward_that_needs_sizes_has_later_calls_know_theirs() -> None:
    settings, weight = Lengths(), lucid.randn(30, requires_grad=True)

    class Counting(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: lucid.Tensor) -> lucid.Tensor:
            return gradient * int(np.sqrt(gradient.shape[0]) + 1)

    step = lucid.compile(lambda x: Counting.apply(x[: settings.length] * weight[: settings.length]))
    x = tensor(30)
    waiting = []
    for n in (4, 6, 5, 9, 7, 4, 6, 5, 9, 7):
        settings.length = n
        waiting.append(step(x))
    for made in waiting:
        weight.grad = None
        made.sum().backward()
        n = made.shape[0]
        expected = x[:n] * int(np.sqrt(n) + 1)
        np.testing.assert_allclose(weight.grad[:n], expected)
    assert step._programs.latest.differentiable.needs_sizes
    for n in (4, 6, 5, 9, 7):
        settings.length = n
        step(x)
        assert not step._programs.latest.decides_sizes


def test_threads_have_lengths_of_their_own() -> None:
    body, _ = bodies_of_lengths()["history"]
    step = lucid.compile(body, audit=False)
    x = lucid.randn(2, 30)
    lengths = [3, 5, 4, 7, 6, 9, 8, 2, 12, 11]
    for n in lengths * 2:
        step(x, n)
    expected = {n: body(x, n).detach().numpy() for n in range(2, 31)}
    wrong: list[int] = []

    def work(seed: int) -> None:
        for n in np.random.default_rng(seed).integers(2, 31, 3000).tolist():
            made = step(x, n)
            if not np.allclose(made.detach().numpy(), expected[n], atol=1e-5):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)  # so that threads learn the same sizes beside one another
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


# What the library finds in Python -----------------------------------------------------------------


def finding_bodies() -> dict[str, tuple[Callable[..., Any], lucid.Tensor]]:
    """Steps of an `x` in which Python finds something, and what they read and may write."""
    lucid.manual_seed(0)
    weight = lucid.randn(4, 4).requires_grad_()

    def training(x: lucid.Tensor) -> lucid.Tensor:
        loss = (x[x[:, 0] > 0] @ weight).square().mean()
        loss.backward()
        with lucid.no_grad():
            weight.sub_(weight.grad * 0.01)
        weight.grad = None
        return loss

    def solved(x: lucid.Tensor) -> lucid.Tensor:
        loss = lucid.linalg.solve(x.T @ x + 2 * lucid.eye(4), weight).square().sum()
        loss.backward()
        return loss

    bodies: dict[str, Callable[..., Any]] = {
        "rows": lambda x: x[x[:, 0] > 0],
        "several": lambda x: (x[x > 0] * 2, x.sum(), lucid.unique((x * 3).int())),
        "two": lambda x: x[x[:, 0] > 0].sum() * x[x[:, 1] > 0].mean(0),
        "history": lambda x: (x @ weight)[x[:, 0] > 0],
        "a number": lambda x: x[: int((x[:, 0] > 0).sum())].cumsum(0).sum(),
        "training": training,
        "solved": solved,
    }
    return {name: (body, weight) for name, body in bodies.items()}


@pytest.mark.parametrize("name", finding_bodies())
def test_what_the_library_finds_in_python_is_found_in_native_calls(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(compile: Callable[..., Any]) -> Any:
        body, weight = finding_bodies()[name]
        step, rng, found = compile(body), np.random.default_rng(0), []
        for i in range(40):
            x = rng.standard_normal((6 if i < 20 else 9, 4)).astype(np.float32)
            x[: 2 + i % 3, :2], x[2 + i % 3 : 5, :2] = 1 + i, -1 - i
            made = step(lucid.tensor(x))
            if name == "history":
                made.square().sum().backward()
            found.append(made)
            ways.append(long_ways.count(step))
        return step, found, weight.detach(), weight.grad

    long_ways, ways = long_ways_of(monkeypatch), list[int]()
    step, *found = run(lambda body: lucid.compile(body, audit=False))
    assert not step.stats.eager_reasons
    if name != "several":  # where more and more elements are found, which need more room
        assert ways[19] - ways[9] + ways[39] - ways[29] <= 2
    assert not step._programs.latest.native._kept[0].hosts.frame, "what was found is kept"
    _, *expected = run(lambda body: lucid.compile(body, mode="eager"))
    assert_same(observed(found), observed(expected))


def test_an_error_of_what_is_found_leaves_all_as_it_was() -> None:
    weight = lucid.eye(3).requires_grad_()

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        weight.grad = None
        loss = (lucid.linalg.inv(x) @ weight).sum()
        loss.backward()
        return loss

    right, wrong = lucid.eye(3) * 2, lucid.zeros(3, 3)
    warm(step, right)
    assert is_taken(step, right)
    watched = [right, right._array, wrong, wrong._array, weight]
    before = references(watched)
    for _ in range(50):
        kept = weight._gradient
        with pytest.raises(lucid.LucidError, match="Singular"):
            enter(step, wrong)
        assert weight._gradient is kept
        assert is_taken(step, right)
    assert step(right).item() == 1.5
    del kept
    assert [abs(a - b) < 10 for a, b in zip(references(watched), before, strict=True)] == [True] * 5


def test_an_interrupt_while_something_is_found_comes_before_all() -> None:
    """The handler of a signal runs in NumPy's place, in the middle of the native step."""
    counter, interrupts = lucid.zeros(()), [False]

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        counter.add_(1)
        return x[x > 0].sum()

    x = lucid.tensor([1.0, -1.0, 2.0])
    warm(step, x)
    (host,) = step._programs.latest.hosts
    find = host.find

    def interrupted(*args: Any) -> Any:
        if interrupts[0]:
            raise KeyboardInterrupt
        return find(*args)

    host.find = interrupted
    before = counter.item()
    for _ in range(3):
        interrupts[0] = True
        with pytest.raises(KeyboardInterrupt):
            enter(step, x)
        interrupts[0] = False
        assert counter.item() == before
        assert enter(step, x).item() == 3
        before += 1
        assert counter.item() == before


def test_functions_of_numpys_are_called_from_native_code() -> None:
    """With data they only compute; nobody sees that one is called again on the long way."""

    @lucid.compile
    def step(x: lucid.Tensor) -> Any:
        found = x.numpy().argmax(1)
        return np.bincount(found, minlength=4), float(np.percentile(x.numpy(), 50, axis=(0, 1)))

    x = lucid.tensor([[1.0, 2.0], [0.0, 4.0], [5.0, 2.0]])
    warm(step, x)
    assert is_taken(step, x)
    counts, median = step(x)
    assert counts.tolist() == [1, 2, 0, 0]
    assert median == 2.0


def test_threads_find_sizes_of_their_own_in_native_calls() -> None:
    body, _ = finding_bodies()["history"]
    step = lucid.compile(body, audit=False)
    rng = np.random.default_rng(0)
    batches = [lucid.tensor(rng.standard_normal((8, 4)).astype(np.float32)) for _ in range(20)]
    expected = [body(x).detach().numpy() for x in batches]
    for x in batches:
        step(x)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for i in np.random.default_rng(seed).integers(0, len(batches), 300).tolist():
            made = step(batches[i]).detach().numpy()
            if made.shape != expected[i].shape or not np.allclose(made, expected[i], atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_buffers_are_a_calls_own_until_its_results_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread would find other sizes in them."""
    step = lucid.compile(lambda x: x[x > 0], audit=False)
    for count in (3, 4, 3, 4, 5, 4, 3):
        step(count - lucid.arange(6).float())
    program, noted = step._programs.latest, []
    finish = type(program).finish

    def noting(self: Any, *args: Any, **named: Any) -> Any:
        noted.append(self.native._kept[0] in self.executable.free)
        return finish(self, *args, **named)

    monkeypatch.setattr(type(program), "finish", noting)
    assert enter(step, 4 - lucid.arange(6).float()).tolist() == [4, 3, 2, 1]
    assert noted == [False]
    assert program.native._kept[0] in program.executable.free
