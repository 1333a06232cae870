"""A compiled step against the NumPy meaning of its ops, and where it first goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lucid.compiler.programs.program import Program
from lucid.ir.clone import rewritten
from lucid.ir.errors import LucidError
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.ir.text.printer import value_names
from lucid.runtime.executable import compile_graph
from lucid.runtime.watched import WatchedStep

Results = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]  # outputs, and what was written

# Of the largest element: sums may be rounded in another order.
TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-10}


@dataclass(frozen=True, slots=True)
class Compared:
    """One result of a step, native and by NumPy.

    Attributes:
        name: as in `dump_ir()`; of state that is written, the state's.
        difference: the largest one between elements, as a part of the largest element; inf where
            only one of them is NaN, or where infinities, integers or bools differ.
        tolerance: what `difference` may be.
    """

    name: str
    difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        return f"{self.name}: {self.difference:.1e}" + ("" if self.agrees else "  differs")


@dataclass(frozen=True, slots=True)
class Check:
    """What `step.check(...)` found; `print` shows the worst results.

    Attributes:
        rows: the step's results and the state that it writes.
        culprit: where the results first differ from those of the stage before: a stage's name,
            "kernels without fusion", or "kernels"; empty if all agree.
    """

    rows: list[Compared]
    culprit: str

    @property
    def agrees(self) -> bool:
        return not self.culprit

    def __str__(self) -> str:
        worst = sorted(self.rows, key=lambda row: -row.difference)[:10]
        if self.agrees:
            head = f"{len(self.rows)} results agree with NumPy"
        else:
            wrong = sum(not row.agrees for row in self.rows)
            head = f"{wrong} of {len(self.rows)} results differ from NumPy, since {self.culprit}"
        return "\n".join([f"{head}; the largest differences, relative:", *map(str, worst)])


def check(run: Callable[[], object], program: Callable[[], Program]) -> Check:
    """Run a step, and compare with its recorded graph in the interpreter.

    Args:
        run: calls the step; `program`: the one that the latest call used.

    Raises:
        LucidError: each call runs another program, so that none can be watched.
    """
    run()  # traces and compiles
    found = program()
    with found.executable.watched() as watched:
        run()
    if program() is not found or not watched.inputs:
        raise LucidError(
            "check: two calls in a row run different programs, or none\n"
            "hint: step.stats.retrace_reasons and step.stats.eager_reasons say why"
        )
    names = _names(found.recorded)
    stages = _stages(found, watched)
    _, expected = next(stages)
    rows = list(_compare(names, (watched.outputs, watched.written), expected))
    culprit = "" if all(row.agrees for row in rows) else "kernels"
    if culprit:
        for stage, results in stages:
            if not all(row.agrees for row in _compare(names, results, expected)):
                culprit = stage
                break
    return Check(rows, culprit)


def _names(graph: Graph) -> list[str]:
    names = value_names(graph)
    outputs = [f"%{names[value]}" for value in graph.outputs]
    return outputs + [f"%{names[cell]} after the step" for cell, _ in graph.writes]


def _stages(program: Program, watched: WatchedStep) -> Iterator[tuple[str, Results]]:
    """The results of each stage before the last, by name; the first one is the reference."""
    yield "trace", interpret(program.recorded, watched.inputs)
    graph = rewritten(program.recorded, program.optimize)
    yield "optimize", interpret(graph, watched.inputs)
    inputs = [np.array(x) if isinstance(x, np.ndarray) else x for x in watched.inputs]
    unfused = compile_graph(graph, fuse=False)
    outputs = unfused(inputs)
    numbers = {entry.value: number for number, entry in enumerate(graph.inputs)}
    written = [np.asarray(inputs[numbers[cell]]) for cell, _ in graph.writes]
    yield "kernels without fusion", (outputs, written)


def _compare(names: Sequence[str], found: Results, expected: Results) -> Iterator[Compared]:
    pairs = zip((*found[0], *found[1]), (*expected[0], *expected[1]), strict=True)
    for name, (array, wanted) in zip(names, pairs, strict=True):
        yield Compared(name, _difference(array, wanted), TOLERANCE.get(wanted.dtype, 0.0))


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    """As `Compared` says."""
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(found, expected) else np.inf
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return np.inf
    a, b = found[finite].astype(np.float64), expected[finite].astype(np.float64)
    if not b.size:
        return 0.0
    off = float(np.max(np.abs(a - b)))
    if np.isnan(off):
        return np.inf
    return off / max(float(np.max(np.abs(b))), float(np.finfo(expected.dtype).tiny))
