"""What the rest of the library tells a running trace, and asks it; without one, all do nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lucid.compiler.scalars import is_live
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.compiler.recorder import Recorder


def is_tracing() -> bool:
    """Whether this thread records a trace."""
    return context.recorder is not None


def running_trace() -> weakref.ref[Recorder] | None:
    """The trace that runs, to be compared with the one that made something."""
    return None if context.recorder is None else weakref.ref(context.recorder)


@contextmanager
def outside_trace() -> Iterator[None]:
    """Evaluate ops inside of the block at once, on concrete tensors, though a trace runs.

    For state that is created late, such as an optimizer's moments: tensors made here are state
    cells of the step when it meets them.
    """
    before = context.recorder
    context.recorder = None
    try:
        yield
    finally:
        context.recorder = before


def watch(owner: Any, key: Any, path: Callable[[], str]) -> None:
    """Let the running trace depend on `owner[key]`; `path` names it."""
    recorder = context.recorder
    if recorder is not None and recorder.environment is not None:
        recorder.environment.note(path(), owner, key)


def binds(owner: Any, key: Any, path: Callable[[], str]) -> None:
    """Note that the running trace is about to bind or delete `owner[key]`."""
    recorder = context.recorder
    if recorder is not None:
        watch(owner, key, path)
        recorder.bound.add((id(owner), key))


def has_bound(owner: Any, key: Any) -> bool:
    """Whether the running trace has bound `owner[key]` itself."""
    recorder = context.recorder
    return recorder is not None and (id(owner), key) in recorder.bound


def makes(owner: Any, key: Any, value: Any) -> None:
    """Note that the running trace made `owner[key]`, and that it stays unless the trace fails."""
    recorder = context.recorder
    if recorder is not None:
        recorder.undo.append(lambda: dict.pop(owner, key, None))
        if recorder.environment is not None:
            recorder.environment.accept(owner, key, value)


def item_of(read: Callable[[], Any], index: int) -> Any:
    """One element of the tuple that `read()` gives."""
    return read()[index]


def live(read: Callable[[], Any], source: str) -> Any:
    """What `read()` gives; in a trace a float stays an input of the step.

    Ints, bools, strings and None are guarded: when `read()` gives something else later, the step is
    traced again. Tuples are taken by element.
    """
    value = read()
    recorder = context.recorder
    if recorder is None or is_live(value):
        return value
    if type(value) is tuple:
        return tuple(live(partial(item_of, read, i), f"{source}[{i}]") for i in range(len(value)))
    if type(value) is float:
        return recorder.live_scalar(source, value, lambda call: read(), read)
    if value is None or isinstance(value, (bool, int, str)):
        recorder.guard_value(source, read, value)
    return value


def meet(module: object, path: str) -> None:
    """Let the running trace depend on a Module's attributes, parameters and flags."""
    recorder = context.recorder
    if recorder is not None and recorder.environment is not None:
        recorder.environment.meet(path, module)


def after_call(callback: Callable[[], object], what: str) -> None:
    """Repeat a Python effect after each call of the step that is being traced; `what` names it."""
    recorder = context.recorder
    assert recorder is not None, "after_call is for traces"
    recorder.effects.append((callback, what))


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Nodes recorded inside of the block belong to this module or library function."""
    recorder = context.recorder
    if recorder is None:
        yield
        return
    recorder.scopes.append(name)
    try:
        yield
    finally:
        recorder.scopes.pop()
