"""A compiled step against the NumPy meaning of its ops, and where it first goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from lucid.codegen.kernel_ir.kernel import Memory
from lucid.codegen.llvm.target import Target
from lucid.codegen.program.interpret import Run, interpret_program
from lucid.codegen.program.program import Program as Lowered
from lucid.compiler.programs.program import Program, texts_of
from lucid.compiler.reports.function_gradients import CalledFunctions
from lucid.compiler.results.output_specs import Run as Call
from lucid.ir import ops
from lucid.ir.clone import copy_graph, rewritten
from lucid.ir.errors import LucidError, VerifyError
from lucid.ir.graph import Graph, Node
from lucid.ir.interpret import evaluate_node, every_value, interpret
from lucid.ir.text.parser import parse
from lucid.ir.text.printer import value_names
from lucid.runtime.single import SingleKernel
from lucid.runtime.watched import WatchedStep
from lucid.tensor.context import repeating

Results = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]  # outputs, and what was written

# Of the largest element: sums may be rounded in another order.
TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-10}
# And so many times the difference that rounding each op otherwise makes.
ROUNDINGS = 4.0


@dataclass(frozen=True, slots=True)
class Compared:
    """One result of a step, native and by NumPy.

    Attributes:
        name: as in `dump_ir()`; of state that is written, the state's.
        difference: the largest one between elements, as a part of the largest element; inf where
            only one of them is NaN, or where infinities, integers or bools differ.
        tolerance: what `difference` may be: more where terms cancel that were rounded before.
        ulps: the largest difference between elements in units of the last place of NumPy's one;
            many where an element is next to nothing beside the terms that it is a sum of.
    """

    name: str
    difference: float
    tolerance: float
    ulps: float = 0.0

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        units = f" ({self.ulps:.3g} ulp)" if self.ulps else ""
        return f"{self.name}: {self.difference:.1e}{units}{'' if self.agrees else '  differs'}"


@dataclass(frozen=True, slots=True)
class Check:
    """What `step.check(...)` found; `print` shows the worst results.

    Attributes:
        rows: the step's results and the state that it writes.
        culprit: where the results first differ from those of the stage before: a pass, as
            `step.stages` names it, such as "cse"; "kernels: k3", whose kernel IR isn't what the
            graph says; or "native code: k3", which isn't what the kernel IR says. Empty where all
            agree.
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
    found, watched = watched_call(run, program)
    with repeating():
        return _checked(found, watched)


def verify(
    program: Program, call: Call, functions: CalledFunctions, native: Callable[[], None]
) -> None:
    """Run a program natively, and compare what it made with its recorded graph in the interpreter.

    Then compare the backwards of its custom Functions with differences of their forwards.

    Raises: `VerifyError` where they differ; all memory is as it was before.
    """
    with program.executable.watched() as watched:
        native()
    try:
        with repeating():
            found = _checked(program, watched)
            wrong = functions.wrong(watched.inputs) if found.agrees else str(found)
        if wrong:
            raise VerifyError(f"the first call went wrong; nothing was changed\n{wrong}")
    except BaseException:  # an interrupt as well
        for array, before in zip(call.inputs, watched.inputs, strict=True):
            if isinstance(array, np.ndarray) and array.tobytes() != np.asarray(before).tobytes():
                np.copyto(array, before)
        call.outputs.forget()
        raise


def _checked(found: Program, watched: WatchedStep) -> Check:
    meaning = Meaning(found.recorded, watched.inputs)
    rows = meaning.compared([*watched.outputs, *watched.written])
    is_right = all(row.agrees for row in rows)
    return Check(rows, "" if is_right else _culprit(found, watched, meaning.agrees))


def watched_call(
    run: Callable[[], object], program: Callable[[], Program]
) -> tuple[Program, WatchedStep]:
    """Run a step twice, and keep what the second call gets and makes. Raises as `check` does."""
    run()  # traces and compiles
    found = program()
    with found.executable.watched() as watched:
        run()
    if program() is not found or not watched.inputs:
        raise LucidError(
            "check: two calls in a row run different programs, or none\n"
            "hint: step.stats.retrace_reasons and step.stats.eager_reasons say why"
        )
    return found, watched


class Meaning:
    """What a graph computes of some inputs, by NumPy, and how far rounding can be off it.

    Attributes:
        names: of its results, and of the state that it writes.
    """

    def __init__(self, graph: Graph, inputs: Sequence[np.ndarray | float]) -> None:
        names = value_names(graph)
        self.names = [f"%{names[value]}" for value in graph.outputs]
        self.names += [f"%{names[cell]} after the step" for cell, _ in graph.writes]
        self._interpret = partial(interpret, graph, inputs)
        self._expected = _flat(self._interpret())

    @cached_property
    def _otherwise(self) -> Sequence[np.ndarray]:
        """The same, rounded otherwise."""
        return _flat(self._interpret(_Rounding()))

    def compared(self, found: Sequence[np.ndarray]) -> list[Compared]:
        """Results, then what is written, beside it."""
        pairs = list(zip(self.names, found, self._expected, strict=True))
        rows = [_compared(name, x, wanted) for name, x, wanted in pairs]
        if all(row.agrees for row in rows):
            return rows
        return [_compared(*pair, other) for pair, other in zip(pairs, self._otherwise, strict=True)]

    def agrees(self, found: Results) -> bool:
        """Whether results differ from it by no more than rounding can make of it."""
        return all(row.agrees for row in self.compared(_flat(found)))


def _flat(results: Results) -> list[np.ndarray]:
    return [*results[0], *results[1]]


def _culprit(program: Program, watched: WatchedStep, agree: Callable[[Results], bool]) -> str:
    """The stage before which results `agree` with the reference, and behind which they don't."""
    graph = rewritten(program.recorded, program.optimize)
    if not agree(interpret(graph, watched.inputs)):
        wrong = wrong_pass(program, watched.inputs)
        return "optimize" if wrong is None else wrong[0]  # each pass may be off by a little
    return wrong_kernel(program, watched, agree)


def wrong_pass(program: Program, inputs: Sequence[np.ndarray | float]) -> tuple[str, Graph] | None:
    """The stage of the first pass behind which the graph means another, and the graph before it."""
    before = copy_graph(program.recorded)
    for stage, text in texts_of(program.recorded, program.optimize).items():
        graph = parse(text)
        graph.hosts = program.recorded.hosts
        if not Meaning(before, inputs).agrees(interpret(graph, inputs)):
            return stage, before
        before = graph
    return None


def wrong_kernel(program: Program, watched: WatchedStep, agree: Callable[[Results], bool]) -> str:
    """Which kernel is wrong where the optimized graph is right: as planned, or as emitted."""
    lowered = program.executable.lower()
    if not agree(interpret_program(lowered, watched.inputs)):
        return _named("kernels", _wrong_kernel(lowered, watched.inputs))
    name = _wrong_code(lowered, watched.inputs, program.executable.target)
    return _named("native code", name)


def _named(stage: str, kernel: str) -> str:
    return f"{stage}: {kernel}" if kernel else stage


def _wrong_kernel(lowered: Lowered, inputs: Sequence[np.ndarray | float]) -> str:
    """The kernel that leaves something else than the graph has, of what the graph has before it."""
    values = every_value(lowered.graph, inputs)
    worst = _Worst()

    def watch(number: int, run: Run) -> None:
        scale = _scale(run.given(number))
        for value, region in lowered.calls[number].leaves:
            if value in values:
                found = run.elements(region, value.shape)
                worst.enter(run.names[number], found, values[value], scale)
                found[...] = values[value]

    interpret_program(lowered, inputs, watch)
    return worst.name


def _wrong_code(lowered: Lowered, inputs: Sequence[np.ndarray | float], target: Target) -> str:
    """The kernel whose native code alone does something else than the kernel means."""
    run = Run(lowered, inputs)
    compiled: dict[tuple[str, ...], SingleKernel] = {}
    worst = _Worst()
    for number, call in enumerate(lowered.calls):
        if call.kernel.effect:
            run.call(number)
            continue
        before = [Memory(place.data.copy(), place.start) for place in run.given(number)]
        run.call(number)
        sizes = [f"{place.data.size} {place.start}" for place in before]
        key = (call.text, *sizes, *(str(call.args.index(buffer)) for buffer in call.args))
        if key not in compiled:
            compiled[key] = SingleKernel(call, before, target)
        native, after = compiled[key](before), run.given(number)
        for arg, array in enumerate(native):
            if arg not in call.kernel.scratch:
                worst.enter(run.names[number], array, after[arg].data, _scale(before))
    return worst.name


class _Worst:
    """The first kernel that is wrong by more than rounding can be.

    What is left where large numbers cancel may be nothing but rounding: so differences count as
    parts of the largest number that the kernel handles, unless there is no such difference.
    """

    def __init__(self) -> None:
        self._clearly = ""
        self._first = ""

    @property
    def name(self) -> str:
        return self._clearly or self._first

    def enter(self, name: str, found: np.ndarray, expected: np.ndarray, scale: float) -> None:
        if self._clearly:
            return
        off, allowed = _difference(found, expected), TOLERANCE.get(expected.dtype, 0.0)
        if off <= allowed:
            return
        self._first = self._first or name
        part = min(_largest(expected) / scale, 1.0) if scale else 1.0
        if np.isinf(off) or off * part > allowed:
            self._clearly = name


def _scale(memory: Sequence[Memory]) -> float:
    """The largest number in memory of floats."""
    return max((_largest(x.data) for x in memory if x.data.dtype.kind == "f"), default=0.0)


def _largest(array: np.ndarray) -> float:
    finite = array[np.isfinite(array)]
    return float(np.max(np.abs(finite))) if finite.size else 0.0


def _compared(
    name: str, found: np.ndarray, expected: np.ndarray, otherwise: np.ndarray | None = None
) -> Compared:
    """Compare a result; one `otherwise` rounded says by how much rounding alone can change it."""
    tolerance = TOLERANCE.get(expected.dtype, 0.0)
    rounding = _difference(otherwise, expected) if otherwise is not None and tolerance else 0.0
    if np.isfinite(rounding):
        tolerance = max(tolerance, ROUNDINGS * rounding)
    return Compared(name, _difference(found, expected), tolerance, _ulps(found, expected))


class _Rounding:
    """Monte Carlo arithmetic: each result is off by a unit in the last place, up or down.

    That of a sum by a unit of the sum of its terms' sizes, so results say by how much an error of
    this kind grows on its way to them: where terms cancel, little of them may be right.
    Reference: D. S. Parker, "Monte Carlo arithmetic", 1997.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def __call__(
        self, node: Node, operands: Sequence[np.ndarray], result: np.ndarray
    ) -> np.ndarray:
        if result.dtype.kind != "f" or node.op.kind not in ("map", "reduce", "contract"):
            return result
        size = np.abs(result)
        if node.op in (ops.sum, ops.matmul, ops.contract):
            size = evaluate_node(node, [np.abs(operand) for operand in operands])
        units = size * np.finfo(result.dtype).eps
        off = np.where(np.isfinite(units), units, 0)
        signs = self._random.choice([-1, 1], result.shape)
        return np.asarray(result + off * signs, result.dtype)


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


def _ulps(found: np.ndarray, expected: np.ndarray) -> float:
    """As `Compared` says; of no meaning where elements aren't finite."""
    if expected.dtype.kind != "f" or not expected.size:
        return 0.0
    with np.errstate(all="ignore"):
        apart = np.abs(found.astype(np.float64) - expected) / np.spacing(np.abs(expected))
    known = apart[np.isfinite(apart)]
    return float(known.max()) if known.size else 0.0
