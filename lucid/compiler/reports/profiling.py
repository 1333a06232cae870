"""Where the time of a compiled step goes: kernel by kernel, with what each computes and moves."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from statistics import median
from typing import Any

from lucid.codegen import costs
from lucid.codegen.program.program import KernelCall, Program as Lowered
from lucid.compiler.programs.program import ARGUMENTS, NATIVE, Program
from lucid.compiler.reports.events import event, write_events
from lucid.compiler.reports.kernels import Described, describe
from lucid.compiler.reports.tables import cut, micro, size, table
from lucid.ir.errors import ArgumentError, LucidError, OptionError
from lucid.ir.extents import hint
from lucid.ir.graph import Node

_ATTEMPTS = 4
BY = ("kernel", "line", "module", "op", "call")
MOST = 20  # rows of a printed table


@dataclass(frozen=True, slots=True)
class KernelTime(Described):
    """How long a kernel of a step takes, and what it does besides what `Described` says.

    Attributes:
        seconds: median over the calls; `share`: its part of all of the step, Python included.
        bytes: of the elements that it reads and writes, each counted once.
        flops: operations on floats; 0 for a call of Python.
        parts: how many pieces threads share; 1 if they don't.
        weights: what of its time is spent on each node, as far as can be told from their work.
    """

    seconds: float
    share: float
    bytes: int
    flops: int
    parts: int
    weights: tuple[tuple[Node, float], ...] = field(repr=False)

    @property
    def gigabytes_per_second(self) -> float:
        return self.bytes / self.seconds * 1e-9 if self.seconds else 0.0

    @property
    def gigaflops_per_second(self) -> float:
        return self.flops / self.seconds * 1e-9 if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Total:
    """The time of all that has a name in common.

    Attributes:
        calls: how many calls of kernels have a part in it.
        seconds, share, bytes, flops: as of a kernel; its parts of kernels that do more than that.
        kinds, ops, places: of these kernels; parts: how many pieces threads share, at most.
    """

    name: str
    calls: int
    seconds: float
    share: float
    bytes: int
    flops: int
    kinds: tuple[str, ...]
    parts: int
    ops: tuple[str, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What `step.profile(...)` measured; `print` shows it as a table, of what `by` says.

    Attributes:
        name: of the step.
        calls: how many were measured.
        seconds: a call, in all, as the program makes it; median over the calls.
        native_seconds: of it in kernels; `python_seconds`: around them.
        around: what of the latter goes where, in the order of the call. Where machine code serves
            calls from end to end it is one part, "native entry": guards, arguments and results. It
            is 0.0 where kernels vary more than that from call to call.
        rows: the kernels in the order in which they run.
        memory: bytes of arguments, state, results and of the arena, by name.
        by, top: what `print` shows totals of, and how many.
    """

    name: str
    calls: int
    seconds: float
    native_seconds: float
    python_seconds: float
    around: Mapping[str, float]
    rows: list[KernelTime] = field(repr=False)
    memory: Mapping[str, int] = field(repr=False)
    by: str = "kernel"
    top: int = MOST

    @property
    def host_seconds(self) -> dict[str, float]:
        """Time in calls of Python, by name: lending and copying what they get included."""
        found: dict[str, float] = {}
        for row in self.rows:
            if row.kind == "host":
                found[row.name] = found.get(row.name, 0.0) + row.seconds
        return found

    def totals(self, by: str) -> list[Total]:
        """Times added up by "kernel", "line", "module", "op", or "call", the longest first.

        A kernel of several lines, Modules or ops is shared out by the work of each: its elements,
        or the multiplications of a product.

        Raises: `OptionError` for another word.
        """
        if by not in BY:
            raise OptionError(f"profile: totals are by {', '.join(BY)}, not {by!r}")
        found: dict[str, list[tuple[KernelTime, float]]] = {}
        for number, row in enumerate(self.rows):
            for name, part in _parts(number, row, by).items():
                found.setdefault(name, []).append((row, part))
        totals = [self._total(name, rows) for name, rows in found.items()]
        return sorted(totals, key=lambda total: -total.seconds)

    def _total(self, name: str, rows: Sequence[tuple[KernelTime, float]]) -> Total:
        seconds = sum(row.seconds * part for row, part in rows)
        return Total(
            name,
            len(rows),
            seconds,
            seconds / self.seconds if self.seconds else 0.0,
            round(sum(row.bytes * part for row, part in rows)),
            round(sum(row.flops * part for row, part in rows)),
            tuple(dict.fromkeys(row.kind for row, _ in rows)),
            max(row.parts for row, _ in rows),
            tuple(dict.fromkeys(op for row, _ in rows for op in row.ops)),
            tuple(dict.fromkeys(row.place for row, _ in rows if row.place)),
        )

    def table(self, by: str | None = None, top: int | None = None) -> str:
        """Totals as text: see `totals`."""
        by, top = self.by if by is None else by, self.top if top is None else top
        totals = self.totals(by)
        name = "name" if by in ("kernel", "call") else by
        titles = ("µs", "%", "calls", "kind", name, "parts", "computes", "of", "kB", "GB/s", "GF/s")
        lines = table([titles, *map(_cells, totals[:top])], left=(3, 4, 6, 7))
        if totals[top:]:
            rest = sum(total.seconds for total in totals[top:])
            lines.append(f"… and {len(totals) - top} more: {micro(rest)} µs")
        return "\n".join(lines)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a call as trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing."""
        write_events(path, list(self.events()))

    def events(self) -> Iterator[dict[str, Any]]:
        """A call as trace events: the step, and its kernels one behind the other."""
        yield event(self.name, "step", 0.0, self.seconds, {"calls": self.calls})
        start = self.python_seconds / 2
        for row in self.rows:
            details = {
                "computes": ", ".join(row.ops),
                "of": row.place,
                "bytes": row.bytes,
                "flops": row.flops,
                "GB/s": round(row.gigabytes_per_second, 2),
                "GF/s": round(row.gigaflops_per_second, 2),
            }
            yield event(row.name, row.kind, start, row.seconds, details)
            start += row.seconds

    def __str__(self) -> str:
        head = (
            f"{self.name}: {micro(self.seconds)} µs per call, median of {self.calls}: "
            f"{micro(self.native_seconds)} native, {micro(self.python_seconds)} around it"
        )
        around = ", ".join(
            f"{name} {micro(seconds) if seconds else 'less than kernels vary'}"
            for name, seconds in self.around.items()
        )
        head += f"\naround it, µs: {around}" if around else ""
        memory = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in self.memory.items())
        head += f"\nmemory: {memory}"
        hosts = self.host_seconds
        if hosts:
            listed = ", ".join(f"{name} {micro(seconds)}" for name, seconds in hosts.items())
            head += f"\ncalls of Python, µs: {listed}"
        return f"{head}\n\n{self.table()}"


def _parts(number: int, row: KernelTime, by: str) -> dict[str, float]:
    """Which part of a kernel belongs to which name."""
    if by in ("kernel", "call") or not row.weights:
        return {f"{row.name} #{number}" if by == "call" else row.name: 1.0}
    found: dict[str, float] = {}
    for node, part in row.weights:
        name = _NAMES[by](node)
        found[name] = found.get(name, 0.0) + part
    return found


def _line(node: Node) -> str:
    if node.location is None:
        return "unknown"
    return f"{'grad of ' * (node.gradient_of is not None)}{node.location}"


_NAMES: dict[str, Callable[[Node], str]] = {
    "line": _line,
    "module": lambda node: node.scope or "outside of Modules",
    "op": lambda node: node.op.name,
}


def weights(nodes: Sequence[Node]) -> tuple[tuple[Node, float], ...]:
    """The share of each of a kernel's nodes in its work."""
    work = [(node, _work(node)) for node in nodes if not node.op.is_view]
    whole = sum(amount for _, amount in work)
    return tuple((node, amount / whole) for node, amount in work) if whole else ()


def _work(node: Node) -> float:
    """Elements that are computed or read, times the terms of a product."""
    shapes = [x.shape for x in (*node.results, *node.operands)]
    elements = max((hint(prod(shape)) for shape in shapes), default=1)
    if node.op.kind == "contract" and len(node.operands) == 2:
        a, b = (hint(prod(x.shape)) for x in node.operands)
        made = hint(prod(node.result.shape))
        return 2 * sqrt(float(a) * b * made) if a and b and made else 1.0
    return max(1.0, elements * costs.cost_of(node.op.name))


# Measuring ----------------------------------------------------------------------------------------


def profile(
    name: str,
    run: Callable[[], Any],
    program: Callable[[], Program],
    calls: int,
    by: str = "kernel",
    top: int = MOST,
) -> Profile:
    """Measure `calls` calls of a step as they are, and as many in parts, after one more.

    Args:
        run: calls the step; `program`: the one that the latest call used.

    Raises:
        ArgumentError: nothing is to be measured.
        OptionError: there are no totals `by` that.
        LucidError: the calls run other programs, one after the other.
    """
    if calls < 1:
        raise ArgumentError(f"profile: at least one call is measured, not calls={calls}")
    if by not in BY:
        raise OptionError(f"profile: totals are by {', '.join(BY)}, not {by!r}")
    for _ in range(_ATTEMPTS):
        run()  # traces and compiles
        plain = [_seconds(run) for _ in range(calls)]
        found = program()
        measured = _measure(run, found, calls)
        if measured is not None:
            break
    else:
        raise LucidError(
            f"profile: the calls of {name} run different programs, or none\n"
            "hint: step.stats.retrace_reasons and step.stats.eager_reasons say why"
        )
    parts, seconds, shortest = measured
    whole = sum(seconds) + sum(parts.values())
    if found.enter is not None:  # which Python's way stood in for, to have kernels measured
        # Two measurements are compared: of both the one that others have disturbed least.
        whole, parts = median(plain), {NATIVE: max(min(plain) - shortest, 0.0)}
    lowered = found.executable.lower()
    rows = list(_rows(lowered.calls, seconds, whole))
    outside, memory = sum(parts.values()), _memory(lowered)
    return Profile(name, calls, whole, whole - outside, outside, parts, rows, memory, by, top)


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


class _Laps:
    """How long each part of this thread's call took; calls within the native step are of that."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._thread, self._depth = threading.get_ident(), 0
        self._last = time.perf_counter()

    def __call__(self, part: str) -> None:
        now = time.perf_counter()
        if threading.get_ident() != self._thread:
            return
        self._depth -= part == NATIVE
        is_within = self._depth > 0
        self._depth += part == ARGUMENTS
        if is_within:
            return
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


def _memory(lowered: Lowered) -> dict[str, int]:
    inputs = lowered.graph.inputs
    kinds = {"arguments": "arg", "state": "state"}
    found = {
        name: sum(entry.value.type.nbytes for entry in inputs if entry.kind == kind)
        for name, kind in kinds.items()
    }
    found["results"] = sum(value.type.nbytes for value in dict.fromkeys(lowered.graph.outputs))
    return {**found, "arena": lowered.arena_bytes}


def _measure(
    run: Callable[[], Any], program: Program, calls: int
) -> tuple[dict[str, float], list[float], float] | None:
    """What is around kernels, of the call in the middle; median per kernel; least of all kernels.

    None when other programs ran.
    """
    ticks: list[list[int]] = []
    laps: list[_Laps] = []
    with program.executable.timed() as timed:
        try:
            for _ in range(calls):
                timed.forget()
                program.lap = lap = _Laps()
                run()
                lap("return")
                if not timed.was_called:
                    return None
                ticks.append(timed.read())
                laps.append(lap)
        finally:
            program.lap = None
        unit = timed.seconds_per_tick()
    for lap, row in zip(laps, ticks, strict=True):
        lap.seconds[NATIVE] = max(lap.seconds[NATIVE] - sum(row) * unit, 0.0)
    laps.sort(key=lambda lap: sum(lap.seconds.values()))
    seconds = [median(column) * unit for column in zip(*ticks, strict=True)]
    return laps[len(laps) // 2].seconds, seconds, min(map(sum, ticks)) * unit


def _rows(
    calls: Sequence[KernelCall], seconds: Sequence[float], whole: float
) -> Iterator[KernelTime]:
    for call, described, time_ in zip(calls, describe(calls), seconds, strict=True):
        work, parts = call.kernel.work(call.args), call.kernel.parts
        yield KernelTime(
            described.name,
            described.kind,
            described.ops,
            described.lines,
            described.gradient_lines,
            time_,
            time_ / whole,
            work.bytes,
            work.flops,
            1 if parts is None else parts.count,
            weights(call.nodes),
        )


# Printing -----------------------------------------------------------------------------------------


def _cells(total: Total) -> tuple[str, ...]:
    seconds = total.seconds
    return (
        micro(seconds),
        f"{100 * total.share:.1f}",
        str(total.calls),
        cut(", ".join(total.kinds)),
        total.name,
        str(total.parts) if total.parts > 1 else "",
        cut(", ".join(total.ops)),
        cut("; ".join(total.places)),
        f"{total.bytes / 1e3:.1f}",
        f"{total.bytes / seconds * 1e-9:.1f}" if seconds else "",
        f"{total.flops / seconds * 1e-9:.1f}" if total.flops and seconds else "",
    )
