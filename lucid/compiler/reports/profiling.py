"""Where the time of a compiled step goes: kernel by kernel, with what each computes and moves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from lucid.compiler.programs.program import Program
from lucid.compiler.reports.events import event, write_events
from lucid.compiler.reports.kernels import Kernel, Total, kernels_of, memory_of, table_of, totals
from lucid.compiler.reports.tables import micro, size
from lucid.ir.errors import ArgumentError, LucidError

_ATTEMPTS = 4
MOST = 20  # rows of a printed table
_COLUMNS = ("µs", "%", "calls", "kind", "name", "parts", "computes", "of", "kB", "GB/s", "GF/s")


@dataclass(frozen=True, slots=True)
class Profile:
    """What `step.profile(...)` measured; `print` shows it as a table, of what `by` says.

    Attributes:
        name: of the step.
        calls: how many were measured.
        seconds: a call, in all, as the program makes it; median over the calls.
        native_seconds: of it in kernels; `python_seconds`: around them, for guards, arguments,
            results and effects. It is 0.0 where kernels vary more than that from call to call.
        rows: the kernels in the order in which they run.
        memory: bytes of arguments, state, results and of the arena, by name.
        by, top: what `print` shows totals of, and how many.
    """

    name: str
    calls: int
    seconds: float
    native_seconds: float
    python_seconds: float
    rows: list[Kernel] = field(repr=False)
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
        return totals(self.rows, by, self.seconds)

    def table(self, by: str | None = None, top: int | None = None) -> str:
        """Totals as text: see `totals`."""
        by, top = self.by if by is None else by, self.top if top is None else top
        found = self.totals(by)
        lines = table_of(found[:top], _COLUMNS, "name" if by in ("kernel", "call") else by)
        if found[top:]:
            rest = sum(total.seconds for total in found[top:])
            lines.append(f"… and {len(found) - top} more: {micro(rest)} µs")
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
        memory = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in self.memory.items())
        head += f"\nmemory: {memory}"
        hosts = self.host_seconds
        if hosts:
            listed = ", ".join(f"{name} {micro(seconds)}" for name, seconds in hosts.items())
            head += f"\ncalls of Python, µs: {listed}"
        return f"{head}\n\n{self.table()}"


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
    totals((), by, 0.0)
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
    timed, ticks = measured
    if found.enter is None:  # else Python's way stood in for it, to have kernels measured
        plain = timed
    # Two measurements are compared: of both the one that others have disturbed least.
    whole, outside = median(plain), max(min(plain) - min(map(sum, ticks)), 0.0)
    lowered = found.executable.lower()
    rows = list(kernels_of(lowered.calls, map(median, zip(*ticks, strict=True))))
    return Profile(name, calls, whole, whole - outside, outside, rows, memory_of(lowered), by, top)


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _measure(
    run: Callable[[], Any], program: Program, calls: int
) -> tuple[list[float], list[list[float]]] | None:
    """The seconds of each call, and of each kernel in it; None when other programs ran."""
    whole: list[float] = []
    found: list[list[int]] = []
    with program.executable.timed() as timed:
        for _ in range(calls):
            timed.forget()
            whole.append(_seconds(run))
            if not timed.was_called:
                return None
            found.append(timed.read())
        unit = timed.seconds_per_tick()
    return whole, [[ticks * unit for ticks in row] for row in found]
