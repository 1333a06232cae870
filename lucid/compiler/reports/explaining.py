"""Why a compiled step is as it is: traces, kernels and what kept them apart, memory, gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lucid.codegen.program.program import Program as Lowered, lifetimes
from lucid.compiler.programs.program import Program
from lucid.compiler.reports.kernels import (
    Kernel,
    Neighbour,
    kernels_of,
    memory_of,
    table_of,
    totals,
)
from lucid.compiler.reports.statistics import Stats, signature_text
from lucid.compiler.reports.tables import size
from lucid.compiler.results.output_specs import OutputSpec
from lucid.ir.passes.residuals import bytes_of, described

MOST = 10  # of each kind of thing, in a short text
_COLUMNS = ("µs", "%", "calls", "kind", "name", "parts", "computes", "of", "in", "bytes")


@dataclass(frozen=True, slots=True)
class Temp:
    """Memory of the arena: `first` and `last` are the numbers of the calls that use it."""

    name: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryNote:
    """The memory of one call, in bytes.

    Attributes:
        arguments, state, results: outside of the step: what it is given, finds, and makes.
        written: of the state that it writes in place.
        arena: for all temps; separately: what they would take if no memory was used again.
    """

    arguments: int
    state: int
    written: int
    results: int
    arena: int
    separately: int
    temps: tuple[Temp, ...]


@dataclass(frozen=True, slots=True)
class GradientNote:
    """A gradient that the step computes; `is_stored`: whether memory is kept for it, and `why`."""

    leaf: str
    is_stored: bool
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `step.explain()` says; `print` shows it, `to_dict` has it as plain data.

    Attributes:
        name: of the step.
        signature: of the calls that the program serves; branches: what it asks of values, with the
            user's line and this program's answer.
        stats: counts, and each trace with its reason; guards: what of Python each call compares.
        kernels: the calls in order; memory: where they work, None where nothing is compiled.
        gradients: which of them are stored; residuals: what is kept, or computed again, for a
            backward outside of the step; backward: the kernels of the latest one.
        is_full: whether the text shows all, or the ten of each kind that cost most.
    """

    name: str
    signature: str
    branches: tuple[tuple[str, int], ...]
    stats: Stats
    guards: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    memory: MemoryNote | None
    gradients: tuple[GradientNote, ...]
    residuals: tuple[str, ...]
    backward: tuple[Kernel, ...] = ()
    is_full: bool = False

    @property
    def stage_seconds(self) -> dict[str, float]:
        """What the stages of the compiler took, over all traces."""
        total: Counter[str] = Counter()
        for traced in self.stats.history:
            total.update(traced.stage_seconds)
        return dict(total)

    @property
    def eager(self) -> dict[str, int]:
        """How many calls ran op by op, by the reason."""
        return dict(Counter(self.stats.eager_reasons))

    def to_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, numbers and strings."""
        stats = self.stats
        counts = ("calls", "traces", "restarts", "paths", "exits", "audits", "dropped", "reused")
        return {
            "name": self.name,
            "signature": self.signature,
            "counts": {key: getattr(stats, key) for key in (*counts, "cache_hits")},
            "programs": [asdict(served) for served in stats.programs],
            "traces": [traced.to_dict() for traced in stats.history],
            "guards": list(self.guards),
            "branches": [{"question": text, "answer": answer} for text, answer in self.branches],
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "memory": self.memory and asdict(self.memory),
            "gradients": [asdict(gradient) for gradient in self.gradients],
            "residuals": list(self.residuals),
            "backward": [kernel.to_dict() for kernel in self.backward],
            "op_by_op": self.eager,
            "stage_seconds": self.stage_seconds,
            "pass_seconds": dict(stats.pass_seconds),
        }

    def __str__(self) -> str:
        lines = [f"{self.name}({self.signature})"]
        for title, section in self.sections():
            lines += [f"{title}:", *(f"  {line}" for line in section)]
        return "\n".join(lines)

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """The parts of the text that there are: a title each, and lines."""
        by_time = "by the time that they should take"
        parts = (
            ("calls and traces", self._traces()),
            ("guards", self.guards if self.is_full else ()),
            ("branches on values", [f"{text} is {answer}" for text, answer in self.branches]),
            ("op by op", self._most([f"{n} calls: {why}" for why, n in self.eager.items()])),
            (f"kernels, {by_time}", self._kernels(self.kernels)),
            ("kept apart, by the time of the two", self._apart()),
            ("memory", self._memory()),
            ("gradients", self._gradients()),
            ("kept for a backward outside", self._most([*self.residuals])),
            (f"kernels of the backward outside, {by_time}", self._kernels(self.backward)),
            ("compile time", self._compiling()),
        )
        for title, texts in parts:
            lines = [line for text in texts for line in text.splitlines()]
            if lines:
                yield title, lines

    def _most(self, lines: list[str]) -> list[str]:
        """The first lines, and how many there are besides."""
        if self.is_full or len(lines) <= MOST:
            return lines
        return [*lines[:MOST], f"… and {len(lines) - MOST} more: explain(full=True)"]

    def _traces(self) -> Iterator[str]:
        yield str(self.stats).partition("\n")[0]
        _, *rest = str(replace(self.stats, eager_reasons=[], history=[])).splitlines()
        yield from rest if self.is_full else rest[: MOST + 1]
        history = self.stats.history
        shown = history[1:] if self.is_full else history[1:][-MOST:]
        if len(shown) < len(history) - 1:
            yield f"… {len(history) - 1 - len(shown)} earlier traces: explain(full=True)"
        for traced in shown:
            yield f"traced for {traced}"

    def _kernels(self, kernels: Sequence[Kernel]) -> list[str]:
        """A row for each kernel with all its calls; of a full text for each call."""
        if not kernels:
            return []
        by, whole = "call" if self.is_full else "kernel", sum(kernel.seconds for kernel in kernels)
        titles, *lines = table_of(totals(kernels, by, whole), _COLUMNS, is_full=self.is_full)
        return [f"{len(kernels)} calls", titles, *self._most(lines)]

    def _apart(self) -> list[str]:
        found: dict[str, float] = {}
        for kernel in self.kernels:
            for other in kernel.apart:
                seconds = kernel.seconds + self.kernels[other.call].seconds
                between = " and " if other.is_beside else " -> "
                ops = between.join(other.ops) + " of one array" * other.is_beside
                text = f"{kernel.name} and {other.kernel}, {ops}: {other.why}"
                found[text] = found.get(text, 0.0) + seconds
        return self._most(sorted(found, key=lambda text: -found[text]))

    def _memory(self) -> Iterator[str]:
        memory = self.memory
        if memory is None:
            return
        yield (
            f"arguments {size(memory.arguments)}, state {size(memory.state)} "
            f"({size(memory.written)} written in place), results {size(memory.results)}"
        )
        yield (
            f"temps {size(memory.arena)} for {len(memory.temps)} of {size(memory.separately)} "
            "together"
        )
        largest = sorted(memory.temps, key=lambda temp: -temp.bytes)
        shown = largest if self.is_full else largest[:3]
        for temp in shown:
            yield f"  {temp.name}: {size(temp.bytes)}, calls {temp.first} to {temp.last}"

    def _gradients(self) -> list[str]:
        groups: dict[tuple[bool, str], list[str]] = {}
        for x in self.gradients:
            groups.setdefault((x.is_stored, x.why), []).append(x.leaf)
        lines = []
        for (is_stored, why), names in sorted(groups.items()):
            listed = ", ".join(names if self.is_full else names[:4])
            more = "" if self.is_full or len(names) <= 4 else f" and {len(names) - 4} more"
            lines.append(f"{'stored' if is_stored else 'not stored'}: {listed}{more}: {why}")
        return lines

    def _compiling(self) -> Iterator[str]:
        stats = self.stats
        if not stats.traces:
            return
        stages = ", ".join(f"{name} {x * 1e3:.1f} ms" for name, x in self.stage_seconds.items())
        yield f"{stats.compile_seconds * 1e3:.1f} ms in {stats.traces} traces: {stages}"
        passes = ", ".join(
            f"{name} {x * 1e3:.1f} ms"
            for name, x in stats.pass_seconds.most_common(None if self.is_full else MOST)
        )
        yield f"passes: {passes}"
        yield (
            f"machine code: {stats.cache_hits} of {stats.traces} from the cache or other programs"
            f", {stats.reused} for other sizes of an earlier one"
        )


def explain(name: str, stats: Stats, program: Program | None, full: bool) -> Explanation:
    """Explain a program of a step; None: one that has only run op by op."""
    if program is None:
        return Explanation(name, "...", (), stats, (), (), None, (), (), is_full=full)
    signature = signature_text(program.description)
    later = program.backward_outside()
    return Explanation(
        name,
        signature,
        tuple(zip(program.questions, program.path, strict=False)),
        stats,
        tuple(sorted({x.path for x in program.guards.guards if x.was_read})),
        tuple(_kernels(program)),
        _memory(program.executable.lower()),
        tuple(_gradients(program)),
        tuple(_residuals(program)),
        () if later is None else tuple(_kernels(later)),
        full,
    )


def _kernels(program: Program) -> Iterator[Kernel]:
    """The calls of its kernels, with the times that are to be expected by their shapes."""
    lowered = program.executable.lower()
    names = [kernel.name for kernel in kernels_of(lowered.calls)]
    apart: dict[int, dict[Neighbour, None]] = {}
    for earlier, later, ops, why, is_beside in lowered.apart():
        found = Neighbour(names[later], later, ops, why, is_beside)
        apart.setdefault(earlier, {})[found] = None
    target = program.executable.target
    return kernels_of(lowered.calls, (x.kernel.seconds(target) for x in lowered.calls), apart)


def _memory(lowered: Lowered) -> MemoryNote:
    spans = lifetimes(lowered.calls)
    temps = tuple(
        Temp(str(buffer), offset, int(buffer.size) * buffer.dtype.itemsize, *spans[buffer])
        for buffer, offset in lowered.offsets.items()
    )
    return MemoryNote(
        **memory_of(lowered),
        written=sum(cell.type.nbytes for cell, _ in lowered.graph.writes),
        separately=sum(temp.bytes for temp in temps),
        temps=temps,
    )


def _gradients(program: Program) -> Iterator[GradientNote]:
    left = dict(program.grads)
    found = {use: None for use in program.guards.grads_read if use.was_set}  # None, as before
    for use, spec in (found | left).items():
        leaf = use.name or ("a tensor" if use.position < 0 else f"argument {use.position}")
        yield GradientNote(leaf, spec is not None, _why(spec, use.was_read))


def _why(spec: OutputSpec | None, was_read: bool) -> str:
    if spec is None:
        return ".grad is None after the step: it is a value within it, fused where it is used"
    if was_read:
        return ".grad is there after the step, and what was there before is read"
    return ".grad is there after the step, where others may read it"


def _residuals(program: Program) -> Iterator[str]:
    if program.cut is None:
        return
    for value in sorted(program.cut.kept, key=bytes_of, reverse=True):
        yield f"kept, {size(bytes_of(value))}: {described(value)}"
    for node in program.cut.repeated:
        if node.operands:
            yield f"computed again: {described(node.results[0])}"
