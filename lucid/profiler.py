"""PyTorch's profiler: what ran within a block, compiled steps by kernel and eager ops one by one.

>>> import lucid
>>> step = lucid.compile(lambda x: (x * 2).exp())
>>> _ = step(lucid.ones(3))
>>> with lucid.profiler.profile() as prof:
...     _ = step(lucid.ones(3))
>>> [(event.category, event.name.split(":")[0]) for event in prof.events()]
[('profiler', '<lambda>'), ('step', '<lambda>'), ('kernel', 'k0')]
"""

from __future__ import annotations

import enum
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ContextDecorator, ExitStack
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from lucid.autograd.native import Code
from lucid.autograd.node import Node, OpNode, PartsNode
from lucid.choices import check_flags, check_kind
from lucid.compiler.compiled import Compiled
from lucid.compiler.reports.events import event, write_events
from lucid.compiler.reports.kernels import Kernel, kernels_of
from lucid.compiler.reports.tables import table
from lucid.ir import frames
from lucid.ir.errors import ArgumentError, OptionError
from lucid.ir.frames import edge, leave
from lucid.ir.location import line_of, user_spot
from lucid.ir.op import Op
from lucid.runtime.executable import Executable
from lucid.runtime.timed import TimedStep
from lucid.tensor import core
from lucid.tensor.context import context


class ProfilerActivity(enum.Enum):
    """What is looked at; there is just the processor."""

    CPU = 0


class ProfilerAction(enum.Enum):
    """What a profiler does until its next `step`: nothing, warm up, note, or note and hand over."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has run: a compiled step, a kernel, an eager op, or a block with a name.

    Attributes:
        name: a compiled function's, a kernel's with what it computes, an op's, or what
            `record_function` was given.
        category: "step", "kernel", "op" or "user"; "profiler" for what it does by itself: a step is
            compiled again before its kernels are timed for the first time.
        start, seconds: by `time.perf_counter`. Of a kernel the latter is measured, and `start`
            follows from what came before it in its step.
        place: the user's lines; of a block with a name what it was given as `args`.
        shapes: of an op's operands.
        bytes, flops: what a kernel reads and writes, and its operations.

    >>> from lucid.profiler import Event
    >>> Event("exp", "op", start=0.0, seconds=1e-6).place
    ''
    """

    name: str
    category: str
    start: float
    seconds: float
    place: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    bytes: int = 0
    flops: int = 0


@dataclass(frozen=True, slots=True)
class EventAverage:
    """All events of a name: how many, and their time, self time without what ran within them.

    Attributes:
        key: their name.
        count: how many there are.
        cpu_time_total, self_cpu_time_total: microseconds of all, with what ran within and without.
        input_shapes: of their operands, where groups are told apart by these.

    >>> from lucid.profiler import EventAverage
    >>> EventAverage("exp", 4, 10.0, 8.0).cpu_time
    2.5
    """

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    input_shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def cpu_time(self) -> float:
        """Microseconds of one, as all times here."""
        return self.cpu_time_total / self.count


class EventAverages(list[EventAverage]):
    """What `profile.key_averages` gives, a list; `print` shows a table of it.

    Args:
        iterable: what to make the list of.

    >>> from lucid.profiler import EventAverage, EventAverages
    >>> found = EventAverages([EventAverage("exp", 4, 10.0, 8.0)])
    >>> found.total_average().count
    4
    """

    def table(self, sort_by: str | None = "self_cpu_time_total", row_limit: int = 100) -> str:
        """A table of `row_limit` rows, the largest first.

        Args:
            sort_by: "self_cpu_time_total", "cpu_time_total", "cpu_time" or "count"; None: as they
                came.

        Raises: `OptionError` for another word.
        """
        keys = ("self_cpu_time_total", "cpu_time_total", "cpu_time", "count")
        if sort_by is not None and sort_by not in keys:
            raise OptionError(f"table: rows are sorted by {', '.join(keys)}, not {sort_by!r}")
        rows = list(self)
        if sort_by is not None:
            rows.sort(key=lambda row: -getattr(row, sort_by))
        whole = sum(row.self_cpu_time_total for row in self) or 1.0
        titles = ("name", "self %", "self µs", "total µs", "average µs", "calls")
        cells = [
            (
                row.key if len(row.key) <= 60 else row.key[:59] + "…",
                f"{100 * row.self_cpu_time_total / whole:.1f}",
                f"{row.self_cpu_time_total:.2f}",
                f"{row.cpu_time_total:.2f}",
                f"{row.cpu_time:.2f}",
                str(row.count),
            )
            for row in (rows if row_limit < 0 else rows[:row_limit])
        ]
        return "\n".join(table([titles, *cells], left=(0,)))

    def total_average(self) -> EventAverage:
        """All of them as one."""
        total = sum(row.self_cpu_time_total for row in self)
        return EventAverage("Total", sum(row.count for row in self), total, total)

    def __str__(self) -> str:
        return self.table()


_active: list[profile] = []


class profile:  # noqa: N801 - the name PyTorch gives it
    """Note what runs within the block; of other threads steps and ops, but not kernels.

    A compiled step is an event, and so is each of its kernels, unless that call has compiled it;
    outside of compiled steps each op is one. Steps run as in `step.profile`, a little slower.

    Args:
        activities: `[ProfilerActivity.CPU]`, or None: the processor is looked at anyway.
        schedule: what to do at which step, as `schedule` makes it; `step()` goes on to the next.
        on_trace_ready: called with the profiler when a cycle of the schedule is over, and at the
            end of the block without one.
        record_shapes: whether events of ops have the shapes of their operands.
        profile_memory, with_stack, with_flops, with_modules: True or False: events have lines,
            bytes and operations anyway.

    Raises: `ArgumentError` in a block of another profiler, and for an argument of another type.

    >>> with lucid.profiler.profile() as found:
    ...     _ = lucid.ones(3).exp()
    >>> [event.name for event in found.events()]
    ['exp']
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
    ) -> None:
        check_flags(
            "profile",
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
        )
        for activity in activities or ():
            if not isinstance(activity, ProfilerActivity):
                raise ArgumentError(f"profile: no activity {activity!r}")
        self._schedule = schedule
        self._on_trace_ready = on_trace_ready
        self._record_shapes = record_shapes
        self.step_num = 0
        self.current_action = ProfilerAction.RECORD if schedule is None else schedule(0)
        self._events: list[Event] = []
        self._raw: list[tuple[Compiled, Executable, float, float, list[int]]] = []
        self._timed: dict[Executable, TimedStep] = {}
        self._open = ExitStack()
        self._thread = 0

    # The block ----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, where there is no block."""
        if _active:
            raise ArgumentError("profile: another profiler is running")
        _active.append(self)
        self._thread = threading.get_ident()
        self._open.callback(_active.remove, self)
        self._replace(Compiled, "__call__", self._noting_calls)
        self._replace(core, "natively", lambda _: core.leave_to_python)
        self._replace(core, "call", lambda _: core.leave_call)
        self._replace(core, "_evaluate", self._noting(_of_op))
        self._replace(Code, "run", self._noting(_of_program))
        for kind in (OpNode, PartsNode):
            self._replace(kind, "_on_arrays", self._noting(_of_rule))

    def _replace(self, owner: Any, name: str, noting: Callable[[Any], Any]) -> None:
        """Let a function note its calls until the block ends."""
        function = getattr(owner, name)
        self._open.callback(setattr, owner, name, function)
        setattr(owner, name, noting(function))

    def stop(self) -> None:
        """End; `on_trace_ready` is called if there is anything to be told."""
        self._settle()
        self._open.close()
        self._timed.clear()
        if self._on_trace_ready is not None and self._is_recording:
            self._on_trace_ready(self)

    def step(self) -> None:
        """Go on to the next step of the schedule."""
        if self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self._settle()
            if self._on_trace_ready is not None:
                self._on_trace_ready(self)
            self._events.clear()
        self.step_num += 1
        if self._schedule is not None:
            self.current_action = self._schedule(self.step_num)

    @property
    def _is_recording(self) -> bool:
        return self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def _noting_calls(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def noting(compiled: Compiled, *args: Any, **kwargs: Any) -> Any:
            if not self._is_recording or context.recorder is not None:
                return edge(call)(compiled, *args, **kwargs)
            if threading.get_ident() == self._thread:
                self._watch(compiled)
            begin = time.perf_counter()
            try:
                return call(compiled, *args, **kwargs)
            except Exception as error:
                leave(error)
                raise
            finally:
                seconds = time.perf_counter() - begin
                self._note_call(compiled, begin, seconds)

        return noting

    def _watch(self, compiled: Compiled) -> None:
        """Let the next call of this thread note how long each kernel takes."""
        latest = compiled._programs.latest
        if latest is not None and latest.executable not in self._timed:
            begin = time.perf_counter()
            self._timed[latest.executable] = self._open.enter_context(latest.executable.timed())
            seconds = time.perf_counter() - begin
            name = f"{_name(compiled)}: compiled again, with clocks"
            self._events.append(Event(name, "profiler", begin, seconds))
        for timed in self._timed.values():
            timed.forget()

    def _note_call(self, compiled: Compiled, begin: float, seconds: float) -> None:
        self._events.append(Event(_name(compiled), "step", begin, seconds))
        if threading.get_ident() != self._thread:
            return
        latest = compiled._programs.latest
        timed = None if latest is None else self._timed.get(latest.executable)
        if latest is not None and timed is not None and timed.was_called:
            self._raw.append((compiled, latest.executable, begin, seconds, timed.read()))

    def _noting(self, said: Callable[..., tuple[str, Any, Iterable[Any]] | None]) -> Any:
        """What lets a function note its calls as ops.

        said: of its arguments and result the op's name, the line, and the shapes of its operands.
        """

        def replaced(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def noting(*args: Any) -> Any:
                if not self._is_recording:
                    return function(*args)
                begin = time.perf_counter()
                result = function(*args)
                seconds, found = time.perf_counter() - begin, said(*args, result)
                if found is not None:
                    name, line, shapes = found
                    kept = tuple(map(tuple, shapes)) if self._record_shapes else ()
                    place = _place(line) if line else ""
                    self._events.append(Event(name, "op", begin, seconds, place, kept))
                return result

            return noting

        return replaced

    def _settle(self) -> None:
        """Make events of kernels of the ticks so far."""
        units: dict[Executable, float] = {}
        kernels: dict[Executable, list[Kernel]] = {}
        for _, native, begin, seconds, ticks in self._raw:
            if native not in units:
                units[native] = self._timed[native].seconds_per_tick()
                kernels[native] = [*kernels_of(native.calls)]
            unit = units[native]
            at = begin + max(0.0, seconds - sum(ticks) * unit) / 2
            for kernel, count in zip(kernels[native], ticks, strict=True):
                name = f"{kernel.name}: {', '.join(kernel.ops)}"
                took = count * unit
                self._events.append(
                    Event(name, "kernel", at, took, kernel.place, (), kernel.bytes, kernel.flops)
                )
                at += took
        self._raw.clear()

    # What was noted -----------------------------------------------------------------------

    def events(self) -> list[Event]:
        """All events by their begin, those around others first."""
        self._settle()
        return sorted(self._events, key=lambda x: (x.start, -x.seconds))

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventAverages:
        """The events of each name together; with shapes those of each name and shapes.

        Args:
            group_by_stack_n: more than 0 tells lines apart.
        """
        groups: dict[Any, list[tuple[Event, float]]] = {}
        for found, own in _own_seconds(self.events()):
            shapes = found.shapes if group_by_input_shape else ()
            place = found.place if group_by_stack_n > 0 else ""
            groups.setdefault((found.name, shapes, place), []).append((found, own))
        return EventAverages(
            EventAverage(
                f"{name}  {place}" if place else name,
                len(group),
                sum(x.seconds for x, _ in group) * 1e6,
                sum(own for _, own in group) * 1e6,
                shapes,
            )
            for (name, shapes, place), group in groups.items()
        )

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        found = self.events()
        first = found[0].start if found else 0.0
        details = (
            {"of": x.place, "shapes": str(x.shapes), "bytes": x.bytes, "flops": x.flops}
            for x in found
        )
        write_events(
            path,
            [
                event(x.name, x.category, x.start - first, x.seconds, more)
                for x, more in zip(found, details, strict=True)
            ],
        )


def _own_seconds(found: Sequence[Event]) -> Iterator[tuple[Event, float]]:
    """Each event with its time less that of the events right within it."""
    inside = [0.0] * len(found)
    around: list[int] = []
    for number, one in enumerate(found):
        while around and found[around[-1]].start + found[around[-1]].seconds <= one.start:
            around.pop()
        if around:
            inside[around[-1]] += one.seconds
        around.append(number)
    for one, within in zip(found, inside, strict=True):
        yield one, max(0.0, one.seconds - within)


def _name(compiled: Compiled) -> str:
    function = compiled.__wrapped__
    return str(getattr(function, "__name__", type(function).__name__))


def _of_op(op: Op, operands: Sequence[Any], *rest: Any) -> tuple[str, Any, Iterable[Any]]:
    return op.name, rest[-1]._line, [x.shape for x in operands]


def _of_program(code: Code, arrays: list[np.ndarray], _: Any) -> tuple[str, Any, Iterable[Any]]:
    return code.name, line_of(user_spot()), [x.shape for x in arrays]


def _of_rule(node: Node, gradients: Any, result: Any) -> tuple[str, Any, Iterable[Any]] | None:
    if result is None:
        return None  # its ops follow, one by one
    return node.name(), node._line, [x.shape for x in gradients if x is not None]


def _place(line: Any) -> str:
    file, number = line
    return f"{os.path.basename(file)}:{number}"


class record_function(ContextDecorator):  # noqa: N801 - the name PyTorch gives it
    """Name a block, or each call of a function, in what a profiler notes.

    Within a compiled step it does nothing: there are only kernels.

    Args:
        name: what the event is called.
        args: a text about the block, the event's `place`.

    >>> from lucid.profiler import profile, record_function
    >>> with profile() as found, record_function("forward"):
    ...     _ = lucid.ones(3).exp()
    >>> [event.name for event in found.events()]
    ['forward', 'exp']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        check_kind(args, str, "args", "record_function")
        self.name = name
        self.args = args or ""
        self._begins: list[float] = []

    def __enter__(self) -> Self:
        if _active and context.recorder is None:
            self._begins.append(time.perf_counter())
        return self

    def __exit__(self, *_: object) -> None:
        if self._begins and context.recorder is None:
            begin = self._begins.pop()
            for profiler in _active:
                if profiler._is_recording:
                    seconds = time.perf_counter() - begin
                    profiler._events.append(Event(self.name, "user", begin, seconds, self.args))


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """What to do at each step: after `skip_first` ones cycles of waiting, warming up, recording.

    Args:
        wait: steps of a cycle at which nothing is done.
        warmup: steps after these at which nothing is noted either.
        active: steps after these that are noted; at the last one they are handed over.
        repeat: how many cycles there are; 0: no end.
        skip_first: steps before the first cycle.

    Raises: `ArgumentError` where nothing is recorded, or a count is negative.

    >>> from lucid.profiler import schedule
    >>> action = schedule(wait=1, warmup=0, active=2)
    >>> [action(step).name for step in range(3)]
    ['NONE', 'RECORD', 'RECORD_AND_SAVE']
    """
    if active < 1 or min(wait, warmup, repeat, skip_first) < 0:
        raise ArgumentError("schedule: active is at least 1, and nothing is negative")
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        cycle, at = divmod(step - skip_first, length)
        if cycle < 0 or (repeat and cycle >= repeat) or at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        is_last = at == length - 1
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each trace to a file of its own in a folder.

    Args:
        dir_name: the folder, made if it isn't there.
        worker_name: what the files' names begin with. Default: the number of the process.
        use_gzip: PyTorch's; traces are plain JSON.

    Raises: `OptionError` for `use_gzip`.

    >>> from lucid.profiler import tensorboard_trace_handler
    >>> callable(tensorboard_trace_handler("traces"))
    True
    """
    if use_gzip:
        raise OptionError("tensorboard_trace_handler: traces are written as plain JSON")

    @edge
    def handle(profiler: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        name = f"{worker_name or os.getpid()}.{time.time_ns()}.pt.trace.json"
        profiler.export_chrome_trace(os.path.join(dir_name, name))

    return handle


__all__ = [
    "Event", "EventAverage", "EventAverages", "ProfilerAction", "ProfilerActivity", "profile",
    "record_function", "schedule", "tensorboard_trace_handler",
]  # fmt: skip


frames.edge_of_module(__name__)
