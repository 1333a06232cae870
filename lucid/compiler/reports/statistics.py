"""What happened to a compiled function so far: counts, and why it was traced each time."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.signature import TENSOR, Description, in_short
from lucid.compiler.reports.tables import table
from lucid.ir.location import Location

_PLAIN = ("int ", "an int", "bool ", "float ", "a float", "str ", "bytes ", "complex ", "None")
MOST_NOTES = 4096  # of each kind, that are kept
_LONGEST = 64  # outcomes of a path that are shown
_OF_CALLS = {"grad mode": "mode", "default dtype": "mode"}
_OF_ATTRIBUTES = {"training": "mode", "requires_grad": "flag"}


@dataclass(frozen=True, slots=True)
class Traced:
    """One trace of a function.

    Attributes:
        kind: why there was one: "first", "shape", "dtype", "layout", "flag", "scalar", "mode" or
            "structure" of what the call was given, "guard" for a value that the function reads,
            "path" for another way through branches on values, "host" for a call of Python that did
            something else.
        reason: in words: what, old -> new.
        location: the user's line: that reads the value, or that made the call.
        signature: of the call, in the user's names.
        seconds: tracing and compiling; `stage_seconds`: of it by stage, `pass_seconds`: by pass.
        source: where machine code came from: "LLVM", "cache", or "other sizes".
        kernels: how many calls of kernels a step is.
    """

    kind: str
    reason: str
    location: Location | None
    signature: str
    seconds: float
    stage_seconds: Mapping[str, float]
    pass_seconds: Mapping[str, float]
    source: str
    kernels: int

    def __str__(self) -> str:
        """One line: `shape: x: f32[2,4] -> f32[3,4]   at train.py:12   step(x)`."""
        place = "" if self.location is None else f"   at {self.location}"
        text = "" if self.location is None else f"   {self.location.text}".rstrip()
        return " ".join(f"{self.kind}: {self.reason}{place}{text}".splitlines())

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        found = {name: getattr(self, name) for name in self.__slots__}
        found["location"] = None if self.location is None else str(self.location)
        found["stage_seconds"] = dict(self.stage_seconds)
        found["pass_seconds"] = dict(self.pass_seconds)
        return found


def kind_of_change(reason: str) -> str:
    """What sort of thing a reason for a trace is about, of arguments and of what was read.

    >>> kind_of_change("x: f32[2,4] -> f32[3,4]"), kind_of_change("model.training: True -> False")
    ('shape', 'mode')
    """
    name, _, change = reason.partition("; ")[0].partition(": ")
    before, _, after = change.partition(" -> ")
    if name in _OF_CALLS:
        return _OF_CALLS[name]
    attribute = name.rpartition(".")[2]
    if attribute in _OF_ATTRIBUTES and name != attribute:
        return _OF_ATTRIBUTES[attribute]
    old, new = TENSOR.fullmatch(before), TENSOR.fullmatch(after)
    if old is not None and new is not None:
        for number, kind in ((1, "dtype"), (2, "shape")):
            if old[number] != new[number]:
                return kind
        return "layout" if "of strides" in (old[3] + new[3]) else "flag"
    if any(text.startswith(_PLAIN) for text in (before, after)):
        return "scalar"
    return "structure"


def signature_text(description: Description) -> str:
    """A call in the user's names: `x: f32[2,4], n: int 2`, and what of its modes isn't usual."""
    usual = {"grad mode": "on", "default dtype": "lucid.float32"}
    parts = [f"{name}: {text}" for name, text in description.items() if usual.get(name) != text]
    return ", ".join(parts) or "no arguments"


@dataclass(frozen=True, slots=True)
class Served:
    """What one program was made for, and how many calls it has served.

    Attributes:
        signature: of those calls; `path`: the outcomes of its branches on values.
    """

    signature: str
    path: tuple[int, ...]
    calls: int


@dataclass(repr=False)
class Stats:
    """What happened to a compiled function so far; `print` shows a small table.

    Attributes:
        traces: how often it was traced; 1 in a healthy training loop.
        restarts: how often a trace began again, with what it had to know from its start.
        host_reasons: for each method of a custom Function that runs in Python, op by op, at its
            place in the native step: the user's line that leaves lucid. So does its backward then.
        calls: calls that ran natively; counted in memory where native code counts them too.
        retrace_reasons: for each trace after the first, the guard that failed: old -> new. Of
            these, and of the next ones, the last few thousand are kept.
        history: each trace, with its reason, the user's line and what it took.
        programs: what each program serves and how often, as `served` tells.
        compile_seconds: tracing and compiling, in all.
        pass_seconds: how much of that each pass took, by name. A pipeline's time, such as that of
            "optimize", includes its passes'.
        eager_reasons: for each call that had to run op by op, why; it is logged as a warning too.
        paths: how many of the traces were for another way through branches on values.
        exits: how often a branch on a value went another way than in the program that was running.
        audits: how many calls were traced again, to be sure that nothing has moved unseen.
        dropped: how many programs there was no room for any more; see `LIMIT`.
        reused: how many traces found code that earlier ones had made for other sizes.
        cache_hits: how many found all their machine code on disk, or loaded.
        objects: how many objects call it as a method: each has a compiled function of its own,
            with stats of its own, `trainer.step.stats`.
        skipped: calls that made a NaN or an infinity, and were left out by `nan="skip"`.
        counted: the memory that native code counts in: the first of its numbers is `calls`.
        served: a function that returns what each program serves.

    >>> step = lucid.compile(lambda x: 2 * x)
    >>> for size in (2, 3, 3):
    ...     _ = step(lucid.ones(size))
    >>> isinstance(step.stats, lucid.compiler.Stats), step.stats.calls, step.stats.traces
    (True, 3, 2)
    """

    traces: int = 0
    restarts: int = 0
    retrace_reasons: list[str] = field(default_factory=list)
    history: list[Traced] = field(default_factory=list)
    compile_seconds: float = 0.0
    pass_seconds: Counter[str] = field(default_factory=Counter)
    eager_reasons: list[str] = field(default_factory=list)
    host_reasons: list[str] = field(default_factory=list)
    paths: int = 0
    exits: int = 0
    audits: int = 0
    dropped: int = 0
    reused: int = 0
    cache_hits: int = 0
    objects: int = 0
    skipped: int = 0
    counted: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64), compare=False)
    served: Callable[[], Sequence[Served]] = field(default=tuple, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle and a copy keep: programs as they are now, since later ones are others'."""
        return vars(self) | {"served": functools.partial(list, self.programs)}

    def __repr__(self) -> str:
        names = ("traces", "calls", "retrace_reasons", "compile_seconds", "eager_reasons")
        return f"Stats({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __str__(self) -> str:
        counts = f"calls {self.calls}, traces {self.traces}, exits {self.exits}"
        counts += f", op by op {len(self.eager_reasons)}, from the cache {self.cache_hits}"
        lines = [f"{counts}, compiled in {self.compile_seconds:.2f} s"]
        if self.objects:
            lines.append(f"calls of {self.objects} objects' methods: in stats of their own")
        rows = [("calls", "path", "signature")]
        for served in self.programs:
            path = "".join(map(str, served.path)) if max(served.path, default=0) < 2 else "…"
            path = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}… of {len(path)}"
            rows.append((str(served.calls), path, in_short(", ", served.signature.split(", "))))
        if self.programs:
            lines += table(rows, left=(1, 2))
        lines += [f"traced for {traced}" for traced in self.history[1:][-10:]]
        lines += [f"calls Python, as it {reason}" for reason in self.host_reasons]
        alike: dict[str, list[str]] = {}  # but for sizes and other numbers
        for reason in self.eager_reasons:
            line = reason.splitlines()[0]
            alike.setdefault(re.sub(r"\d+", "", line), []).append(line)
        for same in sorted(alike.values(), key=len, reverse=True)[:3]:
            first = "" if same.count(same[0]) == len(same) else ", the first since"
            lines.append(f"op by op, {len(same)} calls{first}: {same[0]}")
        return "\n".join(lines)

    @property
    def programs(self) -> Sequence[Served]:
        """What each program serves, and how often it has."""
        return self.served()

    @property
    def calls(self) -> int:
        """How many calls ran natively so far."""
        return int(self.counted[0])

    def add_call(self) -> None:
        self.counted[0] += 1

    def _note(self, traced: Traced) -> None:
        """One more trace."""
        self.traces += 1
        self.paths += traced.kind == "path"
        self.reused += traced.source == "other sizes"
        self.compile_seconds += traced.seconds
        self.pass_seconds.update(traced.pass_seconds)
        _keep(self.history, traced)
        if traced.kind != "first":
            _keep(self.retrace_reasons, traced.reason)

    def _note_restart(self, restart: RestartTrace) -> None:
        """A trace begins again."""
        self.restarts += 1
        if restart.kind == "hosts" and restart.reason not in self.host_reasons:
            _keep(self.host_reasons, restart.reason)

    def _note_eager(self, reason: str) -> None:
        """One more call that runs op by op."""
        same = self.eager_reasons[-1:]
        _keep(self.eager_reasons, same[0] if same == [reason] else reason)  # one text, not many

    @property
    def compiles(self) -> int:
        """How often it was compiled: another name of `traces`."""
        return self.traces


def _keep(notes: list[Any], note: Any) -> None:
    notes.append(note)
    del notes[:-MOST_NOTES]
