"""The first pass or kernel of a compiled step that changes its meaning, and a small graph of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lucid.codegen.llvm.target import Target
from lucid.codegen.lower.legalize import LEGALIZE
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.interpret import interpret_program
from lucid.compiler.programs.program import Program
from lucid.compiler.reports.checking import Meaning, Results, watched_call, wrong_kernel, wrong_pass
from lucid.ir.clone import rewritten
from lucid.ir.graph import Graph
from lucid.ir.interpret import every_value, interpret
from lucid.ir.passes.pipeline import Pass, Pipeline, name_of
from lucid.ir.reduce import reduce_graph
from lucid.ir.selecting import part_of
from lucid.ir.strides import contiguous_strides
from lucid.ir.text.printer import value_names
from lucid.runtime.executable import compile_graph
from lucid.runtime.watched import WatchedStep
from lucid.tensor.context import repeating

Inputs = Sequence[np.ndarray | float]
Way = Callable[[Graph, Inputs], Results]  # to what a graph computes, which may be wrong


@dataclass(frozen=True, slots=True)
class Bisection:
    """What `lucid.debug.bisect` found; `print` shows it.

    Attributes:
        culprit: the first pass that changes the meaning, such as "cse"; or, as `step.check` says,
            "kernels: k3" or "native code: k3"; empty if the step is right.
        graph: a part of the graph before it that shows the fault; None if there is none.
        path: the file that has its text. A file beside it, `.npz`, has the inputs.
    """

    culprit: str
    graph: Graph | None = None
    path: Path | None = None

    def __str__(self) -> str:
        if self.graph is None:
            return "the step computes what its ops mean"
        place = "" if self.path is None else f", in {self.path}"
        return f"{self.culprit} changes the meaning of{place}\n{self.graph}"


def bisect(
    run: Callable[[], object], program: Callable[[], Program], path: Path | None
) -> Bisection:
    """Run a step twice, and find what changes its meaning. Raises what `step.check` does."""
    found, watched = watched_call(run, program)
    with repeating():
        return _bisected(found, watched, path)


def _bisected(found: Program, watched: WatchedStep, path: Path | None) -> Bisection:
    inputs, target = watched.inputs, found.executable.target
    meaning = Meaning(found.recorded, inputs)
    if meaning.agrees((watched.outputs, watched.written)):
        return Bisection("")
    before = rewritten(found.recorded, found.optimize)
    rewrite = wrong_pass(found, inputs)
    if rewrite is not None:
        culprit, before = rewrite
        way = _by_pass(_pass_of(found, culprit))
    else:
        culprit = wrong_kernel(found, watched, meaning.agrees)
        is_planned = culprit.startswith("kernels")
        way = _by_plan(target) if is_planned else _by_code(target)
    values = _by_name(before, inputs)

    def fails(graph: Graph) -> bool:
        try:
            given = [values[entry.value.name] for entry in graph.inputs]
            return not Meaning(graph, given).agrees(way(graph, given))
        except Exception:  # of a part that can't be compiled, or run
            return False

    whole = part_of(before, before.nodes)  # which names all values as its text does
    small = reduce_graph(whole, fails) if fails(whole) else whole
    return _written(culprit, small, values, path)


def _written(
    culprit: str, small: Graph, values: Mapping[str, np.ndarray | float], path: Path | None
) -> Bisection:
    """What was found, after it has been written to its files."""
    if path is not None:
        path.write_text(f"// {culprit} changes the meaning of\n{small}")
        arrays = {x.value.name: np.asarray(values[x.value.name]) for x in small.inputs}
        with path.with_suffix(".npz").open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    return Bisection(culprit, small, path)


def _by_name(graph: Graph, inputs: Inputs) -> Mapping[str, np.ndarray | float]:
    """All values of a graph by the names in its text; live numbers stay numbers."""
    names = value_names(graph)
    values: dict[str, np.ndarray | float] = {
        names[value]: array for value, array in every_value(graph, inputs).items()
    }
    live = zip(graph.inputs, inputs, strict=True)
    return values | {names[x.value]: given for x, given in live if x.kind == "live"}


def _pass_of(program: Program, stage: str) -> Pass:
    """The pass whose stage it is; a later round of it has a number behind its name."""
    passes = {name_of(run): run for run in _passes((*program.optimize.passes, LEGALIZE))}
    return passes[stage.partition(" ")[0]]


def _passes(passes: Sequence[Pass]) -> Iterator[Pass]:
    for run in passes:
        if isinstance(run, Pipeline):
            yield from _passes(run.passes)
        else:
            yield run


def _by_pass(run: Pass) -> Way:
    alone = Pipeline(name_of(run), (run,))
    return lambda graph, inputs: interpret(rewritten(graph, alone), inputs)


def _by_plan(target: Target) -> Way:
    def run(graph: Graph, inputs: Inputs) -> Results:
        strides = [contiguous_strides(entry.value.shape) for entry in graph.inputs]
        return interpret_program(make_program(graph, strides, target), inputs)

    return run


def _by_code(target: Target) -> Way:
    def run(graph: Graph, inputs: Inputs) -> Results:
        given = [np.array(x, order="C") if isinstance(x, np.ndarray) else x for x in inputs]
        outputs = compile_graph(graph, target=target).call(given)
        cells = {entry.value: number for number, entry in enumerate(graph.inputs)}
        return [*outputs], [np.asarray(given[cells[cell]]) for cell, _ in graph.writes]

    return run
