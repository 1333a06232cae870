"""Programs with sizes that values decide: numbers of a call, or what calls of Python find.

`x[mask]` has as many rows as NumPy finds in the mask, `x[:, :n]` as many columns as `n` says. Where
such a size differs from call to call, the step is traced and planned with it open. Once it is
known, the words of all that depends on it are filled in; what reads these comes later in the step.
Numbers that a step reads are known as it begins, and so is what arrays say that it is given, as a
backward is: the words for such sizes are kept (`Sized`), and a call that comes with them again
takes these. Temps have room for what was found before, and some more: a call of Python that finds
more makes room, and ends like one that finds another type, so the step is run again, without its
calls of Python.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.kernels.host import HostKernel
from lucid.codegen.program.instance import instance_of
from lucid.codegen.program.memory_plan import place, size_of
from lucid.codegen.program.program import KernelCall
from lucid.codegen.program.verify import verify_program
from lucid.ir.environment import VERIFY
from lucid.ir.extents import Extent, NotOpenError, Sizes, is_open, replaced, symbol_of
from lucid.ir.graph import Graph
from lucid.ir.memory import address_of
from lucid.ir.opening import reopened
from lucid.ir.passes.pipeline import PassLog, Pipeline
from lucid.ir.strides import Strides
from lucid.ir.types import TensorType
from lucid.runtime.executable import Executable, Facts, Instance
from lucid.runtime.kernel_code import open_code
from lucid.runtime.open_programs import OpenPlan
from lucid.runtime.size_steps import SizeSteps
from lucid.runtime.threads import pool

if TYPE_CHECKING:
    from lucid.codegen.program.open_kernels import Variant
    from lucid.runtime.context import Context

_MORE = 1.25  # of what temps take now they have room for
_MOST_KNOWN = 256  # sizes for which words are kept
BEFORE = -1  # the stage of what is known before the step runs

Key = Callable[[Sequence[int]], Any]
"""Of the symbols' values, those that something follows from."""


@dataclass(slots=True)
class _Group:
    """What follows from the same symbols, and is filled in together.

    Attributes:
        key: their values.
        numbers: a function of the symbols' values that gives what follows, in this order.
        words: places of words; temps; kernels, with how many formulas each has; outputs.
        known: what is filled in, by the values.
        form: what many values have in common: that of the latest ones.
    """

    key: Key
    numbers: Callable[[Sequence[int]], Sequence[int]] = lambda values: ()
    words: list[int] = field(default_factory=list)
    temps: list[Buffer] = field(default_factory=list)
    kernels: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    known: dict[Any, _Filled] = field(default_factory=dict)
    form: _Form | None = None


@dataclass(frozen=True, slots=True)
class _Form:
    """What is filled in, but for numbers: it is the same as long as kernels have the same code.

    Attributes:
        chosen: their code.
        places: of the words, those of sizes first; words: the addresses of functions among them.
        lists: which of the words are the address of a kernel's list, and where that begins, in
            bytes.
    """

    chosen: Mapping[int, Variant]
    places: np.ndarray
    words: np.ndarray
    lists: tuple[np.ndarray, np.ndarray]


@dataclass(slots=True)
class _Filled:
    """What a group is for some sizes.

    Attributes:
        places: of the words; words: what is there.
        temps: bytes that they need; layout: one that has room for them.
        outputs: their numbers, shapes and dtypes.
        lists: the kernels' lists, which words refer to.
        form: what the sizes have in common with others; it keeps code loaded.
    """

    places: np.ndarray
    words: np.ndarray
    temps: Mapping[Buffer, int]
    outputs: Sequence[tuple[int, tuple[int, ...], np.dtype[Any]]]
    lists: np.ndarray
    form: _Form
    layout: _Layout | None = None


@dataclass(slots=True)
class _Stage:
    """What is filled in when sizes have become known.

    Attributes:
        holds: whether what was assumed holds, of the symbols' values.
        groups: what is filled in.
    """

    holds: Callable[[Sequence[int]], bool] = lambda values: True
    groups: list[_Group] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sized:
    """What a program is for sizes that are known as it begins.

    Attributes:
        values: of all symbols, where others are as they were while tracing.
        words: what its code reads, but for what other sizes decide.
        layout: where temps are in it.
        filled: all that is in it.
    """

    values: tuple[int, ...]
    words: np.ndarray
    layout: _Layout
    filled: Sequence[_Filled]

    @property
    def form(self) -> tuple[object, ...]:
        """What it has in common with other sizes, for which machine code can fill words in."""
        return (self.layout, *[tuple(x.form.chosen.values()) for x in self.filled])

    @property
    def outputs(self) -> dict[int, tuple[int, ...]]:
        """The shapes of outputs that have such sizes, by their numbers."""
        return {number: shape for x in self.filled for number, shape, _ in x.outputs}


@dataclass(frozen=True, slots=True)
class FilledWords:
    """Words that steps on sizes fill in.

    Attributes:
        steps: what fills them in; symbols: registers of these.
        outputs: the shapes of those with open sizes, by number.
        words: what the program's code reads.
        kept: what these refer to.
    """

    steps: SizeSteps
    symbols: Sequence[Any]
    outputs: Mapping[int, tuple[Any, ...]]
    words: np.ndarray
    kept: Sequence[object]


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Where temps lie, how many bytes each may have, and the words that say where they lie."""

    words: np.ndarray
    reserved: Mapping[Buffer, int]
    arena_bytes: int


class DecidedProgram(OpenPlan):
    """A program with sizes that values decide.

    Raises `NotOpenError` where passes or the plan need a size.

    Args:
        graph: with the extents of a trace; strides: of its inputs.
        sizes: those of the trace; planned: such of as many symbols that assume the same.
        numbers: of symbols that numbers are which the step reads: those inputs.

    Attributes:
        given: the inputs that say a size as the step begins, by symbols: number and axis of an
            array, or -1 for a number.
        stages: by the number of the call of Python that has sizes known, or `BEFORE`.
        layout: where temps are in runs that begin.
        sized: what it is for sizes that it was given, by these; latest: for the last ones.
    """

    def __init__(
        self,
        graph: Graph,
        strides: Sequence[Strides],
        sizes: Sizes,
        planned: Sizes,
        optimize: Pipeline,
        log: PassLog,
        numbers: Mapping[int, int],
    ) -> None:
        begin = time.perf_counter()
        self.sizes = planned
        self.given = {symbol: (number, -1) for symbol, number in numbers.items()}
        symbolic = reopened(graph, sizes.renamed(planned.symbols))
        self._graph, self._strides, self._hints = (
            graph,
            strides,
            tuple(sizes.hints[: len(sizes.symbols)]),
        )
        super().__init__(symbolic, strides, optimize, log)
        self._entries = self._emitted.words.entries
        self._places: dict[int, list[int]] = {number: [] for number in self._kernels}
        for place_, (kind, *of) in enumerate(self._entries):
            if kind in ("words", "function"):
                self._places[of[0]].append(place_)
        self.stages: dict[int, _Stage] = self._stages()
        self.layout = self._layout({}, self._bytes_at(self._hints))
        self.sized: dict[tuple[int, ...], Sized] = {}
        self.latest: Sized | None = None
        self._seconds = time.perf_counter() - begin

    # Plan ---------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Let what depends on a size come after the call of Python that finds it."""
        self._found_by = dict.fromkeys(self.given, BEFORE)  # the call of Python, by symbols
        written = {*self.program.written}
        for number, entry in enumerate(self.program.graph.inputs):
            for axis, size in enumerate(entry.value.shape):
                symbol = symbol_of(size)
                if symbol is not None:
                    self.given.setdefault(symbol, (number, axis))
                    self._found_by[symbol] = BEFORE
            sizes: list[Any] = [size for size in entry.value.shape if is_open(size)]
            if sizes and number in written:
                raise NotOpenError("an array of any size is written", sizes)
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
        groups: dict[tuple[int, ...], tuple[_Group, list[list[Any]]]] = {}

        def group_of(kind: int, formulas: Sequence[Any]) -> _Group:
            symbols = tuple(sorted(self._symbols(formulas)))
            if symbols not in groups:
                made = _Group(_key_of(symbols))
                groups[symbols] = made, [[], [], [], []]
                stages.setdefault(self._stage_of(*formulas), _Stage()).groups.append(made)
            group, wanted = groups[symbols]
            wanted[kind] += formulas
            return group

        for place_, (kind, *of) in enumerate(self._entries):
            if kind == "size":
                group_of(0, of).words.append(place_)
        for temp in self._temps:
            group_of(1, [temp.size]).temps.append(temp)
        for number, kernel in self._kernels.items():
            formulas = kernel.formulas
            group_of(2, formulas).kernels.append((number, len(formulas)))
        for number, value in enumerate(self.program.graph.outputs):
            if any(map(is_open, value.shape)):
                group_of(3, value.shape).outputs.append(number)
        for group, wanted in groups.values():
            group.numbers = self.sizes.evaluator(chain.from_iterable(wanted))
        tests: dict[int, list[Any]] = {BEFORE: []}
        for test in self.sizes.assumptions:
            stage = self._stage_of(Extent(self.sizes, test[0], 0))
            tests.setdefault(stage, []).append(test)
        for stage in {*stages, *tests}:
            known = [symbol for symbol, by in self._found_by.items() if by <= stage]
            holds = self.sizes.checker_of(tests.get(stage, ()), known)
            stages.setdefault(stage, _Stage()).holds = holds
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
        words = np.zeros(len(self._entries) or 1, np.int64)
        for place_, (kind, *of) in enumerate(self._entries):
            if kind == "offset":
                words[place_] = offsets[of[0]]
        return _Layout(words, {x: size_of(x, n) for x, n in counts.items()}, arena_bytes)

    def has_room(self, layout: _Layout, filled: Sequence[_Filled]) -> bool:
        """Whether there is room for temps; where not, runs that begin from now on have it."""
        needed: dict[Buffer, int] = {}
        for group in filled:
            if group.layout is not layout:
                needed |= group.temps
        if not needed:
            return True
        if any(size > layout.reserved[temp] for temp, size in needed.items()):
            self.layout = self._layout(layout.reserved, needed)
            return False
        for group in filled:
            group.layout = layout
        return True

    # Words --------------------------------------------------------------------------------

    def filled(self, stage: int, values: Sequence[int]) -> list[_Filled]:
        """What is filled in where the symbols that a stage knows have these values."""
        found = []
        for group in self.stages[stage].groups:
            key = group.key(values)
            made = group.known.get(key)
            if made is None:
                if len(group.known) >= _MOST_KNOWN:
                    group.known.clear()
                made = group.known[key] = self._filled(group, group.numbers(values))
            found.append(made)
        return found

    def _filled(self, group: _Group, numbers: Sequence[int]) -> _Filled:
        count = len(group.words)
        at = count + len(group.temps)
        pairs = zip(group.temps, numbers[count:at], strict=True)
        temps = {temp: size_of(temp, size) for temp, size in pairs}
        given: dict[int, Sequence[int]] = {}
        for number, formulas in group.kernels:
            given[number] = numbers[at : at + formulas]
            at += formulas
        chosen = self._chosen(given)
        lists = [variant.words(given[number]) for number, variant in chosen.items()]
        form = group.form
        if form is None or form.chosen != chosen:
            form = group.form = self._form(group, chosen, lists)
        read = _signed([x for known in lists for x in known] or [0])
        words, (indices, begins) = form.words.copy(), form.lists
        words[:count] = numbers[:count]
        words[indices] = begins + address_of(read)
        outputs = []
        for number in group.outputs:
            value = self.program.graph.outputs[number]
            shape = tuple(numbers[at : at + len(value.shape)])
            at += len(shape)
            outputs.append((number, shape, value.dtype.numpy))
        return _Filled(form.places, words, temps, outputs, read, form)

    def _form(
        self, group: _Group, chosen: Mapping[int, Variant], lists: Sequence[Sequence[int]]
    ) -> _Form:
        places, words = [*group.words], [0] * len(group.words)
        indices, begins, begin = [], [], 0
        for (number, variant), known in zip(chosen.items(), lists, strict=True):
            for place_ in self._places[number]:
                kind, _, *region = self._entries[place_]
                if kind == "words":
                    indices.append(len(words))
                    begins.append(begin)
                places.append(place_)
                words.append(0 if kind == "words" else variant.address(*region))
            begin += 8 * len(known)
        made = np.array(indices, int), np.array(begins, np.int64)
        return _Form(chosen, np.array(places, int), np.array(words, np.int64), made)

    def filling(self, sized: Sized) -> FilledWords | None:
        """What fills in words for all sizes for which kernels have the code that they have here.

        None where that takes more than steps on sizes that are given.
        """
        if len(self.given) < len(self.sizes.symbols):
            return None
        steps = SizeSteps(len(self.given))
        symbols = [steps.given[number] for number in map([*self.given].index, sorted(self.given))]
        try:
            steps.require_all(self.sizes, symbols)
            return self._filling(sized, steps, symbols)
        except NotOpenError:
            return None

    def _filling(self, sized: Sized, steps: SizeSteps, symbols: Sequence[Any]) -> FilledWords:
        rename = self.sizes.renamed(symbols)

        def value(size: Any) -> Any:
            return rename(size) if is_open(size) else size

        words = sized.words.copy()
        kept: list[object] = [sized]
        for group, filled in zip(self.stages[BEFORE].groups, sized.filled, strict=True):
            for place_ in group.words:
                (size,) = self._entries[place_][1:]
                steps.store(address_of(words) + 8 * place_, value(size))
            for temp in group.temps:
                room = sized.layout.reserved[temp] // temp.dtype.itemsize
                steps.require(value(temp.size), "<", room + 1)
            lists, form = filled.lists.copy(), filled.form
            kept.append(lists)
            moved = form.places[form.lists[0]]
            words[moved] += address_of(lists) - address_of(filled.lists)
            read: list[Any] = []
            for number, _ in group.kernels:
                kernel, chosen = self._kernels[number], form.chosen[number]
                given = [value(x) for x in kernel.formulas]
                read += _words_read(steps, kernel.key, chosen, given)
            for place_, word in enumerate(read):
                steps.store(address_of(lists) + 8 * place_, word)
        outputs = enumerate(self.program.graph.outputs)
        shapes = {number: x.shape for number, x in outputs if any(map(is_open, x.shape))}
        return FilledWords(steps, symbols, shapes, words, kept)

    def sized_as(self, given: tuple[int, ...]) -> Sized:
        """What it is for sizes that are known as it begins.

        Raises `NotOpenError` where its assumptions don't hold for them.
        """
        found = self.sized.get(given)
        if found is not None and found.layout is self.layout:
            self.latest = found
            return found
        values = self._values(given)
        if found is None and not self.stages[BEFORE].holds(values):
            raise NotOpenError("sizes are in another relation")
        filled = self.filled(BEFORE, values)
        self.has_room(self.layout, filled)
        layout = self.layout
        words = layout.words.copy()
        for group in filled:
            words[group.places] = group.words
        if len(self.sized) >= _MOST_KNOWN:
            self.sized = {}
        found = self.sized[given] = Sized(tuple(values), words, layout, filled)
        self.latest = found
        return found

    # Running ------------------------------------------------------------------------------

    def serves(self, given: Sequence[int]) -> bool:
        """Whether what was assumed holds for sizes that are known as it begins."""
        return self.stages[BEFORE].holds(self._values(given))

    def _values(self, given: Sequence[int]) -> list[int]:
        """Of all symbols; of those that calls of Python find, as they were while tracing."""
        values = [*self._hints]
        for symbol, value in zip(self.given, given, strict=True):
            values[symbol] = value
        return values

    def fits(self, given: Sequence[int], found: Sequence[Sequence[np.ndarray]]) -> bool:
        """Whether what was assumed holds for what calls of Python have found so far.

        given: the sizes that are known as it begins.
        """
        values = self._values(given)
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
            instance=Instance(None, [self], self),
        )

    @property
    def nbytes(self) -> int:
        """Of its code, its two graphs, and the words that are kept."""
        graphs = self._graph.nbytes + self.program.graph.nbytes
        return self._library.nbytes + graphs + 8 * len(self._entries) * len(self.sized)

    def sizing(self) -> Sizing:
        """What fills the words of a context in."""
        return Sizing(self)

    @property
    def hints(self) -> tuple[int, ...]:
        """The sizes at hand when it was traced."""
        return self._hints

    @property
    def is_staged(self) -> bool:
        """Whether calls of Python find sizes of it."""
        return len(self.stages) > 1

    @property
    def has_axes(self) -> bool:
        """Whether axes of arguments say sizes of it, not numbers alone."""
        return any(axis >= 0 for _, axis in self.given.values())

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


def _words_read(
    steps: SizeSteps, key: str, variant: Variant, given: Sequence[Any]
) -> Iterator[Any]:
    """What a kernel's code reads, where `given` are its symbols, and this is the code to take."""
    for other in open_code.before(key, variant):
        if other.sizes is not None:
            steps.refuse_all(other.sizes, given)
        elif other.hints != variant.hints or variant.sizes is not None:
            steps.refuse(given, other.hints)
    if variant.sizes is None:
        for value, hint in zip(given, variant.hints, strict=True):
            steps.require(value, "==", hint)
        return
    steps.require_all(variant.sizes, given)
    value = variant.sizes.renamed(given)
    yield from (value(Extent(variant.sizes, key, 0)) for key in variant.sizes.slots)


def _signed(words: Sequence[int]) -> np.ndarray:
    """Words of 64 bits, with or without a sign."""
    try:
        return np.array(words, np.int64)
    except OverflowError:
        return np.array([ctypes.c_int64(word).value for word in words])


class Sizing:
    """The sizes of one running call, and the words that a step reads.

    Attributes:
        values: of the symbols, as far as they are known.
        results: the outputs, those of open sizes once these are known.
    """

    def __init__(self, program: DecidedProgram) -> None:
        self.program = program
        self.values: list[int] = []
        self._words: np.ndarray | None = None
        self._begun: Sized | None = None
        self._layout = program.layout
        self._kept: dict[int, Sequence[_Filled]] = {}
        self._numbers = {id(x): n for n, x in enumerate(program.hosts)}
        self.results_of = program.open_results
        self.results: list[Any] = []
        self._context: Context | None = None
        self._axes = [*program.given.values()]

    def begin(self, context: Context, results: list[Any]) -> None:
        """Get ready for a run, whose outputs of open sizes are entered into `results`.

        Raises `NotOpenError` where the program isn't for the sizes that it is given.
        """
        self._context, self.results = context, results
        program, before = self.program, self._begun
        sized, self._begun = self._sized(context), None
        context.need(sized.layout.arena_bytes)
        if sized is not before or self._words is None:
            self.values = [*sized.values]
            self._layout = sized.layout
            self._kept[BEFORE] = sized.filled
            words = sized.words
            if program.is_staged:
                words = self._words = words.copy() if self._words is None else self._words
                words[:] = sized.words
            context.enter_words(address_of(words))
        self._begun = sized
        self._make_outputs(sized.filled)

    def _sized(self, context: Context) -> Sized:
        program, integers = self.program, context.integers
        bound: list[Any] = context.bound
        given = tuple([integers[n] if axis < 0 else bound[n].shape[axis] for n, axis in self._axes])
        return program.sized_as(given)

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
        filled = self.program.filled(number, self.values)
        if not self.program.has_room(self._layout, filled):
            return "more elements than there was room for"
        words = self._words
        assert words is not None
        for group in filled:
            words[group.places] = group.words
        self._kept[number] = filled
        self._make_outputs(filled)
        return None

    def _make_outputs(self, filled: Sequence[_Filled]) -> None:
        """Make the outputs whose sizes have become known."""
        context = self._context
        assert context is not None
        for group in filled:
            for number, shape, dtype in group.outputs:
                array = self.results[number] = np.empty(shape, dtype)
                context.table[len(context.expected) + number] = address_of(array)

    def result(self, number: int, result: int) -> np.ndarray | None:
        """The output that the result of a call of Python is, if its size is open."""
        output = self.results_of.get(number, {}).get(result)
        return None if output is None else self.results[output]

    def known(self, x: Any) -> Any:
        """The same for the sizes of now."""
        return replaced(x, self.program.sizes.at(self.values))

    def shapes(self, types: Sequence[TensorType]) -> Callable[[Sequence[int]], Sequence[Any]]:
        """A function of the symbols' values that gives the shapes of some types."""
        return self.program.sizes.shapes([x.shape for x in types])


def _key_of(symbols: Sequence[int]) -> Key:
    return itemgetter(*symbols) if symbols else lambda values: ()


def take(values: list[int], host: Any, found: Sequence[np.ndarray]) -> None:
    """Enter the sizes of what a call of Python has found among the symbols' values."""
    sizes: Mapping[Extent, int] = host.sizes_of(found) if hasattr(host, "sizes_of") else {}
    for size, value in sizes.items():
        symbol = symbol_of(size)
        assert symbol is not None
        values[symbol] = value


def decided_program(
    graph: Graph,
    strides: Sequence[Strides],
    sizes: Sizes,
    optimize: Pipeline,
    log: PassLog,
    numbers: Mapping[int, int],
) -> DecidedProgram:
    """A program with sizes that values decide, one of which serves the call that is traced.

    Sizes that are equal by chance would be taken as equal: so they are made others, and a plan is
    made for those at hand only where one for these others holds for these alone.

    Args:
        graph: with the extents of a trace; strides: of its inputs.
        sizes: what the trace has assumed about them.
        numbers: of symbols that numbers are which the step reads: those inputs.

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
            program = DecidedProgram(graph, strides, sizes, made, optimize, passes, numbers)
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
