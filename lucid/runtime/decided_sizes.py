"""Programs with sizes that values decide: a call of Python finds them while the step runs.

`x[mask]` has as many rows as NumPy finds in the mask. Where such a size differs from call to call,
the step is traced and planned with it open. Once a call of Python has found it, the words of all
that depends on it are filled in; what reads these comes later in the step. Temps have room for
what was found before, and some more: a call that finds more makes room, and ends like one that
finds another type, so it is run again, without its calls of Python.

A backward of such a step is given what has these sizes: they are known as it begins.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernels.host import HostKernel
from lucid.codegen.program.instance import instance_of
from lucid.codegen.program.memory_plan import place, size_of
from lucid.codegen.program.open_kernels import Variant
from lucid.codegen.program.program import KernelCall
from lucid.codegen.program.verify import verify_program
from lucid.ir.environment import VERIFY
from lucid.ir.extents import Extent, NotOpenError, Sizes, is_open, replaced, symbol_of
from lucid.ir.graph import Graph
from lucid.ir.memory import address_of
from lucid.ir.opening import reopened
from lucid.ir.passes.pipeline import PassLog, Pipeline
from lucid.ir.strides import Strides
from lucid.runtime.executable import Executable, Facts, Instance
from lucid.runtime.open_programs import OpenPlan
from lucid.runtime.threads import pool

if TYPE_CHECKING:
    from lucid.runtime.context import Context

_Pointers = tuple[Sequence[tuple[int, int]], object]
_MORE = 1.25  # of what temps take now they have room for
_MOST_KNOWN = 64  # sizes of a kernel whose words are kept
BEFORE = -1  # the stage of what no size decides


@dataclass(slots=True)
class _Stage:
    """What is filled in when a call of Python has found sizes.

    Attributes:
        numbers: a function of the symbols' values that gives what follows, in this order.
        words: places of words; temps; kernels, with how many formulas each has; outputs.
        holds: whether what was assumed holds, of the symbols' values.
    """

    numbers: Callable[[Sequence[int]], Sequence[int]] = lambda values: ()
    holds: Callable[[Sequence[int]], bool] = lambda values: True
    words: list[int] = field(default_factory=list)
    temps: list[Buffer] = field(default_factory=list)
    kernels: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where temps lie, and how many bytes each may have."""

    offsets: Mapping[Buffer, int]
    reserved: Mapping[Buffer, int]
    arena_bytes: int


class DecidedProgram(OpenPlan):
    """A program with sizes that values decide.

    Raises `NotOpenError` where passes or the plan need a size.

    Args:
        graph: with the extents of a trace; strides: of its inputs.
        sizes: those of the trace; planned: such of as many symbols that assume the same.
    """

    def __init__(
        self,
        graph: Graph,
        strides: Sequence[Strides],
        sizes: Sizes,
        planned: Sizes,
        optimize: Pipeline,
        log: PassLog,
    ) -> None:
        begin = time.perf_counter()
        self.sizes = planned
        symbolic = reopened(graph, sizes.renamed(planned.symbols))
        self._graph, self._strides, self._hints = graph, strides, tuple(sizes.hints[: sizes.count])
        super().__init__(symbolic, strides, optimize, log)
        entries = self._emitted.words.entries
        self._places = {
            number: [n for n, (kind, of, *_) in enumerate(entries) if kind in _OF and of == number]
            for number in self._kernels
        }
        self._memo: dict[int, dict[tuple[int, ...], _Pointers]] = {
            number: {} for number in self._kernels
        }
        self.stages: dict[int, _Stage] = self._stages()
        self.layout = self._layout({}, self._bytes_at(self._hints))
        self._seconds = time.perf_counter() - begin

    # Plan ---------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Let what depends on a size come after the call of Python that finds it."""
        self._found_by: dict[int, int] = {}  # the call of Python, by symbols
        self.given: dict[int, tuple[int, int]] = {}  # of what symbols are in inputs: input, axis
        for number, entry in enumerate(self.program.graph.inputs):
            for axis, size in enumerate(entry.value.shape):
                symbol = symbol_of(size)
                if symbol is not None:
                    self.given.setdefault(symbol, (number, axis))
                    self._found_by[symbol] = BEFORE
        if self.given and self.program.written:
            raise NotOpenError("what is written may share memory with arrays of any size")
        self.hosts: list[Any] = []
        for kernel in self.program.hosts:
            host = self.program.graph.hosts[kernel.name]
            number = len(self.hosts)
            self.hosts.append(host)
            for type in kernel.results:
                for symbol in self._symbols(type.shape):
                    self._found_by.setdefault(symbol, number)
        self.program.calls = self._ordered(self.program.calls)

    def _stage_of(self, *sizes: Any) -> int:
        """The call of Python that finds the last of what sizes consist of."""
        return max((self._found_by[n] for n in self._symbols(sizes)), default=BEFORE)

    def _symbols(self, sizes: Sequence[Any]) -> set[int]:
        return {n for x in sizes if is_open(x) for n in self.sizes.symbols_in(x.key)}

    def _ordered(self, calls: Sequence[KernelCall]) -> list[KernelCall]:
        made: list[KernelCall] = []
        waiting: list[tuple[int, KernelCall]] = []
        at = 0  # calls of Python so far
        for call in calls:
            count = len(call.kernel.hosts)
            stage = BEFORE if count else self._stage_of(*_extents_in(call))
            held = [n for n, other in waiting if _conflict(call, other)]
            stage = max(stage, *held, BEFORE)
            if stage >= at:
                if count or call.kernel.effect in ("check", "host"):
                    late = [x for x in _extents_in(call) if self._stage_of(x) >= at]
                    raise NotOpenError("a call of Python waits for a size that it finds", late)
                waiting.append((stage, call))
                continue
            made.append(call)
            at += count
            if count:
                made += [x for n, x in waiting if n < at]
                waiting = [(n, x) for n, x in waiting if n >= at]
        assert not waiting
        return made

    def _stages(self) -> dict[int, _Stage]:
        stages: dict[int, _Stage] = {BEFORE: _Stage()}
        wanted: dict[int, list[list[Any]]] = {}

        def at(stage: int, kind: int, formulas: Iterable[Any]) -> _Stage:
            lists = wanted.setdefault(stage, [[], [], [], []])
            lists[kind] += formulas
            return stages.setdefault(stage, _Stage())

        for place_, (kind, *of) in enumerate(self._emitted.words.entries):
            if kind == "size":
                at(self._stage_of(of[0]), 0, of).words.append(place_)
        for temp in self._temps:
            at(self._stage_of(temp.size), 1, [temp.size]).temps.append(temp)
        for number, kernel in self._kernels.items():
            formulas = kernel.formulas
            at(self._stage_of(*formulas), 2, formulas).kernels.append((number, len(formulas)))
        for number, value in enumerate(self.program.graph.outputs):
            if is_open(value.type.size) or any(map(is_open, value.shape)):
                stage = self._stage_of(*value.shape)
                at(stage, 3, value.shape).outputs.append(number)
        tests: dict[int, list[Any]] = {}
        for test in self.sizes.assumptions:
            stage = self._stage_of(Extent(self.sizes, test[0], 0))
            tests.setdefault(stage, []).append(test)
        for stage in {*wanted, *tests}:
            found = stages.setdefault(stage, _Stage())
            found.numbers = self.sizes.evaluator(chain.from_iterable(wanted.get(stage, ())))
            known = [symbol for symbol, by in self._found_by.items() if by <= stage]
            found.holds = self.sizes.checker_of(tests.get(stage, ()), known)
        return stages

    # Memory -------------------------------------------------------------------------------

    def _bytes_at(self, values: Sequence[int]) -> dict[Buffer, int]:
        elements = self.sizes.evaluator([temp.size for temp in self._temps])(values)
        return {x: size_of(x, n) for x, n in zip(self._temps, elements, strict=True)}

    def _layout(self, before: Mapping[Buffer, int], needed: Mapping[Buffer, int]) -> _Layout:
        """Place temps so that each has room for what it needs now, and some more."""
        reserved = dict(before)
        for temp, size in needed.items():
            if size > reserved.get(temp, -1):
                reserved[temp] = int(size * _MORE) if is_open(temp.size) else size
        counts = {x: -(-n // x.dtype.itemsize) for x, n in reserved.items()}
        offsets, arena_bytes = place(self._spans, counts)
        return _Layout(offsets, {x: size_of(x, n) for x, n in counts.items()}, arena_bytes)

    def has_room(self, layout: _Layout, temps: Sequence[Buffer], elements: Sequence[int]) -> bool:
        """Whether temps of so many elements have room; where not, the next run has it for them."""
        needed = {x: size_of(x, n) for x, n in zip(temps, elements, strict=True)}
        if all(size <= layout.reserved[temp] for temp, size in needed.items()):
            return True
        self.layout = self._layout(self.layout.reserved, needed)
        return False

    # Code ---------------------------------------------------------------------------------

    def pointers(self, given: dict[int, tuple[int, ...]]) -> dict[int, _Pointers]:
        """For kernels with these sizes: the places of words, what to write, and what to keep."""
        known = {n: self._memo[n].get(values) for n, values in given.items()}
        missing = {n: [*given[n]] for n, found in known.items() if found is None}
        for number, variant in self._chosen(missing).items() if missing else ():
            known[number] = self._enter(number, given[number], variant)
        return {n: found for n, found in known.items() if found is not None}

    def _enter(self, number: int, values: tuple[int, ...], variant: Variant) -> _Pointers:
        memo = self._memo[number]
        if len(memo) >= _MOST_KNOWN:
            memo.clear()
        words = [ctypes.c_int64(word).value for word in variant.words(values)]
        array = (ctypes.c_int64 * (len(words) or 1))(*words)
        made = []
        for place_ in self._places[number]:
            kind, _, *region = self._emitted.words.entries[place_]
            address = ctypes.addressof(array) if kind == "words" else variant.address(*region)
            made.append((place_, address))
        found = memo[values] = made, (array, variant)
        return found

    # Running ------------------------------------------------------------------------------

    def fits(self, found: Sequence[Sequence[np.ndarray]]) -> bool:
        """Whether what was assumed holds for what calls of Python have found so far."""
        values = [*self._hints]
        for number, (host, arrays) in enumerate(zip(self.hosts, found, strict=False)):
            take(values, host, arrays)
            if number in self.stages and not self.stages[number].holds(values):
                return False
        return True

    def executable(self) -> Executable:
        """What runs it."""
        at = self.sizes.at(self._hints)
        arena_bytes = self.layout.arena_bytes
        graph, written = self.program.graph, self.program.written
        if VERIFY.read():
            verify_program(instance_of(self.program, at))
        if self._emitted.shared:
            pool.load()
        return Executable(
            graph,
            self._strides,
            Facts(arena_bytes, written, self._checks(graph, lambda x: x)),
            self._hosts(lambda x: x),
            self._emitted,
            self._library,
            lambda: instance_of(self.program, at),
            self._target,
            self._seconds,
            instance=Instance(self.words(), [self], self),
        )

    def words(self) -> Any:
        """The words of a context, which are filled in yet."""
        return (ctypes.c_int64 * (len(self._emitted.words.entries) or 1))()

    def sizing(self) -> Sizing:
        """What fills the words of a context in."""
        return Sizing(self)

    def enter_offsets(self, layout: _Layout, words: Any) -> None:
        """Write where temps are."""
        for place_, (kind, *of) in enumerate(self._emitted.words.entries):
            if kind == "offset":
                words[place_] = layout.offsets[of[0]]

    @property
    def hints(self) -> tuple[int, ...]:
        """The sizes at hand when it was traced."""
        return self._hints

    @property
    def open_results(self) -> dict[int, dict[int, int]]:
        """By calls of Python: which of their results are outputs whose sizes are open."""
        found: dict[int, dict[int, int]] = {}
        number = 0
        for call in self.program.calls:
            kernel = call.kernel
            if isinstance(kernel, HostKernel):
                buffers = call.args[len(kernel.operands) :]
                found[number] = {
                    n: buffer.index
                    for n, buffer in enumerate(buffers)
                    if buffer.kind == "output" and is_open(buffer.size)
                }
            number += len(kernel.hosts)
        return found


class Sizing:
    """The sizes of one running call, and the words that a step reads.

    Attributes:
        values: of the symbols, as far as they are known.
        words: what the step reads.
    """

    def __init__(self, program: DecidedProgram) -> None:
        self.program = program
        self.values = [*program.hints]
        self.words = program.words()
        self._layout: _Layout | None = None
        self._kept: dict[int, Any] = {}
        self._numbers = {id(x): n for n, x in enumerate(program.hosts)}
        self.results_of = program.open_results
        self._results: list[Any] = []
        self._context: Context | None = None
        for stage in program.stages.values():
            self._fill(stage, stage.numbers(self.values))

    def begin(self, context: Context, results: list[Any]) -> None:
        """Get ready for a run, whose outputs of open sizes are entered into `results`."""
        self._context, self._results = context, results
        program = self.program
        numbers = self._sizes_given(context) if program.given else None
        layout = program.layout
        if layout is not self._layout:
            program.enter_offsets(layout, self.words)
            context.need(layout.arena_bytes)
            self._layout = layout
        if numbers is not None:
            self._fill(program.stages[BEFORE], numbers)

    def _sizes_given(self, context: Context) -> Sequence[int]:
        """Take the sizes that inputs have. Raises `NotOpenError` where the program can't."""
        stage = self.program.stages[BEFORE]
        for symbol, (number, axis) in self.program.given.items():
            given: Any = context.bound[number]
            self.values[symbol] = given.shape[axis]
        if not stage.holds(self.values):
            raise NotOpenError("sizes are in another relation")
        numbers = stage.numbers(self.values)
        first = len(stage.words)
        self.program.has_room(self.program.layout, stage.temps, numbers[first:][: len(stage.temps)])
        return numbers

    def __call__(self, host: Any, found: Sequence[np.ndarray]) -> str | None:
        """Take the sizes of what a call of Python has found; why the program can't, or None."""
        number = self._numbers.get(id(host))
        if number is None:
            return None
        take(self.values, host, found)
        stage = self.program.stages.get(number)
        if stage is None:  # all that depends on it waits for another size as well
            return None
        if not stage.holds(self.values):
            return "sizes are in another relation"
        numbers = stage.numbers(self.values)
        first = len(stage.words)
        elements = numbers[first : first + len(stage.temps)]
        assert self._layout is not None
        if not self.program.has_room(self._layout, stage.temps, elements):
            return "more elements than there was room for"
        self._fill(stage, numbers)
        return None

    def _fill(self, stage: _Stage, numbers: Sequence[int]) -> None:
        words, rest = self.words, iter(numbers)
        for place_ in stage.words:
            words[place_] = next(rest)
        for _ in stage.temps:
            next(rest)
        given = {n: tuple(next(rest) for _ in range(count)) for n, count in stage.kernels}
        for number, (pointers, kept) in self.program.pointers(given).items():
            for place_, address in pointers:
                words[place_] = address
            self._kept[number] = kept
        graph, context = self.program.program.graph, self._context
        for output in stage.outputs:
            value = graph.outputs[output]
            shape = tuple(next(rest) for _ in value.shape)
            if context is not None:
                array = self._results[output] = np.empty(shape, value.dtype.numpy)
                context.table[len(context.expected) + output] = address_of(array)

    def result(self, number: int, result: int) -> np.ndarray | None:
        """The output that the result of a call of Python is, if its size is open."""
        output = self.results_of.get(number, {}).get(result)
        return None if output is None else self._results[output]

    def known(self, x: Any) -> Any:
        """The same for the sizes of now."""
        return replaced(x, self.program.sizes.at(self.values))


_OF = ("words", "function")


def take(values: list[int], host: Any, found: Sequence[np.ndarray]) -> None:
    """Enter the sizes of what a call of Python has found among the symbols' values."""
    sizes: Mapping[Extent, int] = host.sizes_of(found) if hasattr(host, "sizes_of") else {}
    for size, value in sizes.items():
        symbol = symbol_of(size)
        assert symbol is not None
        values[symbol] = value


def decided_program(
    graph: Graph, strides: Sequence[Strides], sizes: Sizes, optimize: Pipeline, log: PassLog
) -> DecidedProgram:
    """A program with sizes that values decide, one of which serves the call that is traced.

    Sizes that are equal by chance would be taken as equal: so they are made others, and a plan is
    made for those at hand only where one for these others holds for these alone.

    Args:
        graph: with the extents of a trace; strides: of its inputs.
        sizes: what the trace has assumed about them.

    Raises:
        NotOpenError: passes or the plan need a size.
    """
    at_hand = sizes.hints[: len(sizes.symbols)]
    taken: set[Any] = {n for value in graph.values() for n in value.shape if not is_open(n)}
    apart: list[int] = []
    same = sizes.equal_symbols()
    for number, size in enumerate(at_hand):
        if same[number] == number:
            while any(not (size % x and x % size) for x in taken if x > 1):
                size += 1
        else:
            size = apart[same[number]]
        taken.add(size)
        apart.append(size)
    for hints in (apart, at_hand):
        made = Sizes(hints, is_strict=False, room=sizes.count, is_generic=True)
        if sizes.checker()(made.hints):
            made.assume_as(sizes, made.symbols)
            passes = PassLog()
            program = DecidedProgram(graph, strides, sizes, made, optimize, passes)
            if made.checker()(program.hints):
                log.seconds |= passes.seconds
                log.changed += passes.changed
                return program
    raise NotOpenError("what passes assume of sizes doesn't hold for those at hand")


def _extents_in(call: KernelCall) -> list[Extent]:
    found: list[Extent] = []

    def note(extent: Extent) -> Extent:
        found.append(extent)
        return extent

    replaced((call.kernel, call.origins, [buffer.size for buffer in call.args]), note)
    return found


def _conflict(later: KernelCall, earlier: KernelCall) -> bool:
    """Whether a call must stay behind another one: it touches memory that one of both writes."""
    shared = {id(x) for x in later.args} & {id(x) for x in earlier.args}
    return any(
        id(call.args[access.arg]) in shared
        for call in ((later, earlier) if shared else ())
        for access in call.kernel.accesses()
        if access.writes
    )
