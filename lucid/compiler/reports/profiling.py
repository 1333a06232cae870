"""Where the time of a compiled step goes: kernel by kernel, with what each computes and moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from lucid.codegen.program.program import KernelCall
from lucid.compiler.reports.kernels import Described, describe
from lucid.ir.errors import ArgumentError, LucidError
from lucid.runtime.executable import Executable

_ATTEMPTS = 4
_WIDTH = 36  # of the columns of ops and of lines; what is longer is cut


@dataclass(frozen=True, slots=True)
class KernelTime(Described):
    """How long a kernel of a step takes, and what it does besides what `Described` says.

    Attributes:
        seconds: median over the calls; `share`: its part of all of the step, Python included.
        bytes: of the elements that it reads and writes, each counted once.
        flops: operations on floats; 0 for a call of Python.
        parts: how many pieces threads share; 1 if they don't.
    """

    seconds: float
    share: float
    bytes: int
    flops: int
    parts: int

    @property
    def gigabytes_per_second(self) -> float:
        return self.bytes / self.seconds * 1e-9 if self.seconds else 0.0

    @property
    def gigaflops_per_second(self) -> float:
        return self.flops / self.seconds * 1e-9 if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """What `step.profile(...)` measured; `print` shows it as a table.

    Attributes:
        name: of the step.
        calls: how many were measured.
        seconds: a call, in all; median over the calls.
        native_seconds: of it inside of the native step; `python_seconds`: around it.
        rows: the kernels in the order in which they run.
    """

    name: str
    calls: int
    seconds: float
    native_seconds: float
    python_seconds: float
    rows: list[KernelTime] = field(repr=False)

    @property
    def host_seconds(self) -> dict[str, float]:
        """Time in calls of Python, by name: lending and copying what they get included."""
        found: dict[str, float] = {}
        for row in self.rows:
            if row.kind == "host":
                found[row.name] = found.get(row.name, 0.0) + row.seconds
        return found

    def __str__(self) -> str:
        head = (
            f"{self.name}: {_micro(self.seconds)} µs per call, median of {self.calls}: "
            f"{_micro(self.native_seconds)} native, {_micro(self.python_seconds)} around it"
        )
        hosts = self.host_seconds
        if hosts:
            listed = ", ".join(f"{name} {_micro(seconds)}" for name, seconds in hosts.items())
            head += f"\ncalls of Python, µs: {listed}"
        rows = sorted(self.rows, key=lambda row: -row.seconds)
        return "\n".join([head, "", *_table([_TITLES, *map(_cells, rows)])])


# Measuring ----------------------------------------------------------------------------------------


def profile(
    name: str, run: Callable[[], Any], executable: Callable[[], Executable], calls: int
) -> Profile:
    """Measure `calls` calls of a step, after one that isn't measured.

    Args:
        run: calls the step; `executable`: of the program that the latest call used.

    Raises:
        ArgumentError: nothing is to be measured.
        LucidError: the calls run other programs, one after the other.
    """
    if calls < 1:
        raise ArgumentError(f"profile: at least one call is measured, not calls={calls}")
    for _ in range(_ATTEMPTS):
        run()  # traces and compiles
        found = _measure(name, run, executable(), calls)
        if found is not None:
            return found
    raise LucidError(
        f"profile: the calls of {name} run different programs, or none\n"
        "hint: step.stats.retrace_reasons and step.stats.eager_reasons say why"
    )


def _measure(name: str, run: Callable[[], Any], native: Executable, calls: int) -> Profile | None:
    """None when a call ran something else."""
    ticks: list[list[int]] = []
    totals: list[float] = []
    with native.timed() as timed:
        for _ in range(calls):
            timed.forget()
            begin = time.perf_counter()
            run()
            totals.append(time.perf_counter() - begin)
            if not timed.was_called:
                return None
            ticks.append(timed.read())
        unit = timed.seconds_per_tick()
    inside = [sum(row) * unit for row in ticks]
    around = [total - native for total, native in zip(totals, inside, strict=True)]
    seconds = [median(column) * unit for column in zip(*ticks, strict=True)]
    whole = median(totals)
    rows = list(_rows(native.calls, seconds, whole))
    return Profile(name, calls, whole, median(inside), median(around), rows)


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
        )


# Printing -----------------------------------------------------------------------------------------

_TITLES = ("µs", "%", "kind", "name", "parts", "computes", "of", "kB", "GB/s", "GF/s")
_LEFT = (2, 3, 5, 6)


def _cells(row: KernelTime) -> tuple[str, ...]:
    return (
        _micro(row.seconds),
        f"{100 * row.share:.1f}",
        row.kind,
        row.name,
        str(row.parts) if row.parts > 1 else "",
        _cut(", ".join(row.ops)),
        _cut(row.place),
        f"{row.bytes / 1e3:.1f}",
        f"{row.gigabytes_per_second:.1f}",
        f"{row.gigaflops_per_second:.1f}" if row.flops else "",
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(_aligned, row, widths, range(len(widths)))).rstrip() for row in rows]


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column in _LEFT else cell.rjust(width)


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
