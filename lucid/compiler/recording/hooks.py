"""What the rest of the library tells a running trace, and asks it; without one, all do nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from lucid.compiler.guards.collector import at_line
from lucid.compiler.guards.events import unheard
from lucid.compiler.guards.guard import instance_dict
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.loops.repetition import Repetition
from lucid.ir.location import here, takers
from lucid.tensor.context import context

if TYPE_CHECKING:
    from types import FrameType

    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.recorder import Recorder
    from lucid.compiler.results.replayed_effects import ReplayedEffect
    from lucid.tensor.core import TensorCore


class Running(Protocol):
    """What this thread is doing, of which the compiler knows that its traces are `Recorder`s."""

    recorder: Recorder | None


running = cast(Running, context)


def is_tracing() -> bool:
    """Whether this thread records a trace: True in a compiled step while it is being compiled.

    To users it is `lucid.compiler.is_compiling`.

    >>> step = lucid.compile(lambda x: x * 2 if lucid.compiler.is_compiling() else x)
    >>> step(lucid.ones(2)), lucid.compiler.is_compiling()
    (tensor([2., 2.]), False)
    """
    return running.recorder is not None


def running_trace() -> weakref.ref[Recorder] | None:
    """The trace that runs, to be compared with the one that made something."""
    return None if running.recorder is None else weakref.ref(running.recorder)


def is_made_here(trace: object) -> bool:
    """Whether what says `trace` of itself, by `running_trace`, was made in the trace that runs."""
    return trace is not None and trace == running_trace()


def adopt(tensor: TensorCore) -> None:
    """Take concrete data as a constant of the running trace, made anew by each call."""
    assert running.recorder is not None
    running.recorder.adopt_constant(tensor)


def takes_warning(frame: FrameType, text: str, category: type[Warning]) -> bool:
    """Whether the running trace lets each call give a warning; that of a body is given now."""
    recorder = running.recorder
    if recorder is None or recorder.loops.frames:
        return False
    recorder.outside.warn(frame, text, category)
    return True


takers.append(takes_warning)


def at_the_end(action: Callable[[], object]) -> None:
    """Let the running trace, if there is one, do something once its function has returned."""
    if running.recorder is not None:
        running.recorder.endings.append(action)


def _collector() -> GuardCollector | None:
    """What enters the reads and writes of the trace that runs; None: none does."""
    return None if running.recorder is None else running.recorder.collector


def remembered() -> dict[Any, Any] | None:
    """Where values are kept by owner until the end of the running trace; None: none runs."""
    return None if running.recorder is None else running.recorder.remembered


def repetition() -> Repetition:
    """What records work once for tensors of some types in the running trace."""
    assert running.recorder is not None
    return Repetition(running.recorder)


def run_op_by_op(reason: str, remedy: str = "") -> None:
    """Give the running trace up: what the user's line does makes sense op by op only."""
    recorder = running.recorder
    if recorder is not None:
        hint = f"\nhint: {remedy}" if remedy else ""
        recorder.run_op_by_op(f"{reason}{at_line(here())}{hint}")


@unheard
def watch(owner: Any, key: Any, path: Callable[[], str]) -> None:
    """Let the running trace depend on `owner[key]`; `path` names it."""
    collector = _collector()
    if collector is not None:
        collector.note(path(), owner, key)


@unheard
def watch_attributes(thing: object, path: Callable[[], str]) -> None:
    """Let the running trace depend on all attributes of an object, as they are at each call."""
    collector = _collector()
    attributes = instance_dict(thing) or {}
    if collector is not None:
        for key in list(attributes):
            collector.entry(f"{path()}.{key}", attributes, key, holder=thing)


@unheard
def watch_entries(owner: Any, key: Any, path: str, holder: Any = None) -> None:
    """Let the running trace depend on `owner[key]`, and on the entries of the list that is there.

    holder: the object whose attributes `owner` has.
    """
    collector = _collector()
    if collector is not None:
        collector.entry(path, owner, key, holder=holder)
        collector.contents(path, dict.__getitem__(owner, key), takes=False)


@unheard
def watch_tensor(tensor: TensorCore, path: str) -> str:
    """Let the running trace depend on a tensor's memory, hooks, and whether it requires grad.

    The user's expression for it: one that the trace knows, else `path`.
    """
    collector = _collector()
    if collector is None:
        return path
    path = collector.name_of(tensor) or path
    collector.tensor(path, tensor)
    return path


@unheard
def binds(owner: Any, key: Any, path: Callable[[], str], *, depends: bool = True) -> None:
    """Note that the running trace is about to bind or delete `owner[key]`.

    depends: whether it depends on what was there before.
    """
    collector = _collector()
    if collector is not None:
        collector.note(path(), owner, key, write=not depends)
    if running.recorder is not None:
        running.recorder.bound.add((id(owner), key))


def has_bound(owner: Any, key: Any) -> bool:
    """Whether the running trace has bound `owner[key]` itself."""
    collector = _collector()
    is_written = collector is not None and collector.has_written(owner, key)
    recorder = running.recorder
    return is_written or (recorder is not None and (id(owner), key) in recorder.bound)


@unheard
def makes(owner: Any, key: Any, value: Any) -> None:
    """Make `owner[key]`; in a trace it stays unless that fails, or is interrupted."""
    recorder = running.recorder
    if recorder is not None:
        recorder.undo.append(lambda: dict.pop(owner, key, None))
    dict.__setitem__(owner, key, value)
    collector = _collector()
    if collector is not None:
        collector.accept(owner, value)


def reads(owner: dict[str, Any], key: str) -> None:
    """Give up where a hyper-parameter is read that an effect after the call will have changed."""
    collector = _collector()
    if collector is not None:
        collector.refuse_later(owner, key)


def item_of(read: Callable[[], Any], index: int) -> Any:
    """One element of the tuple that `read()` gives."""
    return read()[index]


def as_float(number: Any) -> Any:
    """A number as Python's float, of each call if it is one of each call."""
    return number.apply("float", float) if is_live(number) else float(number)


@unheard
def live(owner: dict[str, Any], key: str, source: str, holder: Any = None) -> Any:
    """The entry of a dict; in a trace a float stays an input of the step.

    Ints, bools, strings and None are guarded: when something else is there later, the step is
    traced again. Lists and tuples are taken by element, as tuples.

    holder: the object whose attributes `owner` has. One that the step makes, each call makes anew.
    """
    value = dict.__getitem__(owner, key)
    recorder, collector = running.recorder, _collector()
    is_foreseen = any(map(is_live, value if isinstance(value, (list, tuple)) else (value,)))
    is_made = holder is not None and collector is not None and not collector.was_there(holder)
    if recorder is None or is_made or is_foreseen or has_bound(owner, key):
        return value
    reads(owner, key)
    read = partial(dict.__getitem__, owner, key)  # at each call: no Python function
    return _live(recorder, value, read, source)


def _live(recorder: Recorder, value: Any, read: Callable[[], Any], source: str) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(
            _live(recorder, x, partial(item_of, read, i), f"{source}[{i}]")
            for i, x in enumerate(value)
        )
    if type(value) is float:
        recorder.guard_value(f"type({source})", lambda: type(read()), float, gated=True)
        return recorder.live_scalar(source, value, lambda call: read(), read)
    if value is None or isinstance(value, (bool, int, str)):
        recorder.guard_value(source, read, value)
    return value


@unheard
def meet(module: object, path: str) -> None:
    """Let the running trace depend on a Module, or a function, and all that is within its reach."""
    collector = _collector()
    if collector is not None:
        collector.meet(path, module)


@unheard
def after_call(effect: ReplayedEffect, changes: Sequence[tuple[dict[str, Any], str]]) -> None:
    """Repeat a Python effect after each call of the step that is being traced.

    changes: entries that it sets, from those of now. The step can't bind them before this; what it
    reads there afterwards is what the effect will leave.
    """
    recorder = running.recorder
    assert recorder is not None, "after_call is for traces"
    _refuse_bound(recorder, effect.what, changes)
    recorder.foreseen.add(effect, changes)


def tell(
    function: Callable[..., object],
    args: Sequence[Any],
    what: str,
    changes: Sequence[tuple[dict[str, Any], str]],
    may_be_traced: bool,
) -> bool:
    """Call a function after each call of the step that is being traced, with that call's values.

    what: its name, for messages.
    changes: entries that it sets. Where the step has bound one, or a trace of it has found that it
        uses one afterwards, nothing is done, and the caller is to call the function at once.
    may_be_traced: whether the function can be called in a trace.

    Returns whether it will be called.
    """
    recorder = running.recorder
    return recorder is not None and recorder.foreseen.tell(
        function, args, what, changes, may_be_traced
    )


def _refuse_bound(
    recorder: Recorder, what: str, changes: Iterable[tuple[dict[str, Any], str]]
) -> None:
    for owner, key in changes:
        if has_bound(owner, key):
            recorder.exits.op_by_op(
                f"it calls {what}, which takes place after the native step, on {key!r} as it has "
                "set it",
                f"call {what} outside of the compiled function",
            )


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Nodes recorded inside of the block belong to this module or library function."""
    recorder = running.recorder
    if recorder is None:
        yield
        return
    recorder.scopes.append(name)
    try:
        yield
    finally:
        recorder.scopes.pop()
