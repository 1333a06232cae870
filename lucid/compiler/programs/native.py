"""The short way through a call as one native function: its plan, and what keeps that alive.

It serves calls with plain tensors of the types that were traced, of a program without rarer parts,
and does what `Program.run` does. Python is called for what is bound, and for what has a history.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import operator
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid.autograd.node import Node, accumulator_of, sequence_numbers
from lucid.compiler.guards.guard import ABSENT, CONTENTS, field_of
from lucid.compiler.guards.mutable_sources import (
    AppendEffect,
    DynamicNumber,
    MutableSource,
    TensorProperty,
)
from lucid.compiler.guards.table import GuardTable
from lucid.compiler.inputs.cells import FormulaGuard
from lucid.compiler.inputs.scalars import Formula, Number
from lucid.compiler.inputs.signature import PlainType
from lucid.compiler.programs.gathering import Kind, Read
from lucid.compiler.recording.guards import Guards
from lucid.compiler.recording.hooks import item_of
from lucid.compiler.results.histories import Layer
from lucid.compiler.results.output_specs import (
    NO_COUNTER,
    Assembly,
    Constant,
    GraphOutput,
    GraphOutputView,
    OutputSpec,
    Part,
)
from lucid.compiler.results.side_effects import SideEffects
from lucid.dtypes import default_dtype_place
from lucid.ir.extents import is_open, replaced
from lucid.ir.location import Spot, user_spot
from lucid.ir.memory import address_of
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import Shape, TensorType, shared_type
from lucid.runtime import stance
from lucid.runtime.context import Context
from lucid.runtime.decided_sizes import DecidedProgram, FilledWords, Sized
from lucid.runtime.entry.guards import ARGUMENT
from lucid.runtime.entry.layout import (
    SLOW_PATH,
    Entry,
    entry_for,
    field_offset,
    slot_offset,
)
from lucid.runtime.entry.results import View
from lucid.runtime.entry.sizes import Filling
from lucid.runtime.entry.text import LEAVE
from lucid.runtime.entry.words import (
    A_DICT,
    A_VIEW,
    ALL,
    CALLED,
    CALLED_ON,
    CONSTANT,
    END_OF_ARGUMENT,
    END_OF_LAYER,
    HERE,
    IN_CELL,
    IN_DICT,
    IN_LIST,
    MADE,
    NUMBER_CALLED,
    NUMBER_IN_DICT,
    NUMBER_IN_TUPLE,
    OF_ARGUMENT,
    OF_MADE,
    OTHER,
    SIZED_WORDS,
    CallHistory,
    Checked,
    Recorded,
    Word,
    of_axis,
)
from lucid.runtime.executable import Executable, Results
from lucid.runtime.once import Once
from lucid.runtime.threads import pool
from lucid.tensor.context import context, epoch
from lucid.tensor.core import TensorCore
from lucid.tensor.objects import Offsets, Tables, measured, own, slots_of, template_of
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor
from lucid.tensor.write_locks import Keys, exchange_lock, held, lock, take_back

if TYPE_CHECKING:
    from lucid.compiler.programs.backward import CallRecord, CompiledBackward, Differentiable
    from lucid.compiler.programs.program import Program

logger = logging.getLogger("lucid.native")
NO_SHAPES: Mapping[int, Shape] = types.MappingProxyType({})
_MOST_FORMS = 16  # of sizes for which machine code fills words in
_SIMPLE = (MutableSource, TensorProperty)


def plain_reads(side_effects: SideEffects, values: Sequence[Any]) -> list[Read] | None:
    """How the places are read; None where native code can't, or one holds more than these.

    values: what they hold, and what is in other places.
    """
    for place in (*side_effects.read, *side_effects.bound):
        is_added_to = type(place) is AppendEffect
        if not is_added_to and (type(place) not in _SIMPLE or place.key is CONTENTS):
            return None
    reads: list[Read] = []
    for place, value in zip(side_effects.read, values, strict=False):
        size = len(value) if type(value) is tuple else -1
        kinds = [_kind(leaf) for leaf in (value if size >= 0 else (value,))]
        if any(kind is object for kind in kinds):
            return None
        if any(kind is None for kind in kinds) and _word_of(place) is None:
            return None
        reads.append(Read(place, size, kinds))
    return reads


def _word_of(place: MutableSource) -> int | None:
    """How native code finds what is in a place; None: it doesn't."""
    if type(place) is not MutableSource:
        return None
    if type(place.owner) is types.CellType:
        return IN_CELL
    if type(place.owner) is list:
        return IN_LIST if type(place.key) is int and place.key >= 0 else None
    is_dict = isinstance(place.owner, dict)
    return IN_DICT if is_dict and type(place.owner).__getitem__ is dict.__getitem__ else None


def _kind(leaf: Any) -> Kind:
    """`object` stands for what isn't plain."""
    if isinstance(leaf, TensorCore):
        return None
    return type(leaf) if type(leaf) in (int, float) else object


@Once
def _measured() -> tuple[Entry, Offsets] | None:
    """The native entry and the layout it is made for; None where calls stay in Python."""
    found = measured()
    return None if found is None else (entry_for(found[0]), found[1])


def is_measured() -> bool:
    """Whether objects lie in memory as native code expects; or it is switched off."""
    return _measured() is not None


def native_calls(program: Program, types: Sequence[PlainType]) -> NativeCalls | None:
    """The short way through calls of a program; None where calls stay in Python, or not yet.

    types: of the arguments and the tensors in its places.
    """
    buffers = program.executable.ready() if _measured() is not None else None
    if buffers is None:
        return None
    native = NativeCalls(program, types, buffers)
    program.executable.put_back(buffers)
    return native


class _CallTables(Tables):
    """Those of what a call makes.

    shapes: of outputs whose sizes are open.
    """

    _open_arguments: Collection[int] = ()  # those of open sizes

    def _arguments(
        self, records: Sequence[Sequence[int]], types: Sequence[tuple[Any, ...]] | None
    ) -> int:
        """The address of a table of what is given, of these types; None: they aren't known yet."""
        words: list[int] = []
        for number, (axes, dtype, _, _, at, low, high, *rest) in enumerate(records):
            shape: Shape = () if types is None else types[number][0].shape
            strides: Shape = () if types is None else types[number][1]
            if types is not None and number in self._open_arguments:
                high = types[number][0].nbytes
            words += axes, dtype, self._words(shape), self._words(strides), at, low, high, *rest
        return self._words(words)

    def _results(
        self, executable: Executable, kept: Sequence[int], shapes: Mapping[int, Shape] = NO_SHAPES
    ) -> int:
        """The address of a table of those that have no other memory."""
        words: list[int] = []
        for number in kept:
            make, args = executable.maker(number, shapes)
            table = self._words([self._keep(arg) for arg in args])
            words += number, self._keep(make), table, len(args)
        return self._words(words)

    def _tensors(
        self,
        kept: Sequence[int],
        made: Sequence[GraphOutput],
        shapes: Mapping[int, Shape] = NO_SHAPES,
    ) -> int:
        """The same of tensors that are made of these."""
        words: list[int] = []
        for x in made:
            type = x.type if x.slot not in shapes else x.type.with_shape(shapes[x.slot])
            template = x.with_history(template_of(type))
            words += kept.index(x.slot), *self._tensor(type, template, x.version)
        return self._words(words)


class FilledTables(_CallTables):
    """A program for sizes that a call says, as native code sees it.

    It is for all those for which kernels have the same code; machine code fills in what differs.

    Args:
        calls: that of all sizes; sized: for some of these.
        filled: the words that follow from the sizes.

    Attributes:
        words: of `Filling`.
    """

    def __init__(
        self, calls: NativeCalls, sized: Sized, executable: Executable, filled: FilledWords
    ) -> None:
        super().__init__(calls._offsets)
        self._open_arguments = calls._open_arguments
        shapes, kept = sized.outputs, calls._kept_results
        types = [_sized_type(type, strides, sized) for type, strides, *_ in calls._types]
        results = self._results(executable, kept, shapes)
        tensors = self._tensors(kept, calls._made, shapes)
        arguments = self._arguments(calls._given, types)
        self._steps, self._symbols = filled.steps, filled.symbols
        self._objects: list[object] = []
        self._shapes: list[tuple[int, ...]] = []
        typed = self._fill_results(calls, filled.outputs, results, tensors)
        self._fill_arguments(calls, arguments)
        words = self.words = np.zeros(SIZED_WORDS + len(Filling), np.int64)
        self._shape(self._symbols, address_of(words))
        self._keep(filled)
        words[1:3] = address_of(filled.words), sized.layout.arena_bytes
        words[3:SIZED_WORDS] = results, tensors, arguments
        steps = self._steps
        words[Filling.REGISTERS_AT] = self._words(steps.registers)
        for word, table in (
            (Filling.STEPS, steps.steps),
            (Filling.REQUIRED, [*steps.required]),
            (Filling.SHAPES, self._shapes),
            (Filling.TYPES, typed),
            (Filling.STORED, steps.stored),
        ):
            records: Sequence[Sequence[int]] = table
            words[word] = len(records)
            words[word + 1] = self._words([x for record in records for x in record])
        words[Filling.OBJECTS] = self._keep(self._objects)
        words[Filling.TYPE_OF] = self._keep(shared_type)

    def _value(self, size: Any) -> Any:
        return size.sizes.renamed(self._symbols)(size) if is_open(size) else size

    def _shape(self, sizes: Sequence[Any], place: int) -> int:
        """Have a shape put into a word; its number among the objects."""
        numbers = [self._steps.register(self._value(size)).number for size in sizes]
        self._objects.append(None)
        number = len(self._objects) - 1
        self._shapes.append((number, len(numbers), self._words(numbers), place))
        return number

    def _fill_results(
        self, calls: NativeCalls, shapes: Mapping[int, Shape], results: int, tensors: int
    ) -> list[tuple[int, ...]]:
        """Have the shapes of outputs filled in; the records of tensors' types."""
        numbers: dict[int, int] = {}
        for place, output in enumerate(calls._kept_results):
            if output in shapes:
                given = _word_at(results + 8 * (4 * place + 2))
                numbers[output] = self._shape(shapes[output], given)
        typed: list[tuple[int, ...]] = []
        for place, made in enumerate(calls._made):
            if made.slot in numbers:
                self._objects.append(None)
                count, dtype = len(self._objects) - 1, self._keep(made.type.dtype)
                at = tensors + 8 * 4 * place
                storage, tensor = (_word_at(_word_at(at + 8 * n) + 24) for n in (1, 3))
                storage += _offset_of_root_type()
                tensor += self._offsets.fields["tensor_type"]
                typed.append((count, numbers[made.slot], dtype, storage, tensor))
        return typed

    def _fill_arguments(self, calls: NativeCalls, arguments: int) -> None:
        store = self._steps.store
        for number, (type, *_) in enumerate(calls._types):
            if not any(map(is_open, type.shape)):
                continue
            record = arguments + 8 * ARGUMENT * number
            shape = [self._value(size) for size in type.shape]
            steps = [*accumulate(reversed(shape), operator.mul, initial=type.dtype.itemsize)]
            places = [_word_at(record + 8 * at) for at in (2, 3)]
            for axis, (size, step) in enumerate(zip(shape, steps[-2::-1], strict=True)):
                store(places[0] + 8 * axis, size)
                if 0 not in shape:  # NumPy has strides of its own there
                    store(places[1] + 8 * axis, step)
            store(record + 8 * 6, steps[-1])


def _word_at(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


@functools.cache
def _offset_of_root_type() -> int:
    return slot_offset(object.__new__(Storage), "root_type")


class NativeLeaves(Tables):
    """Leaves, as native code sees them.

    Attributes:
        leave: lets arrays, one for each leaf, be their gradients, if none of them has one, and
            nobody is told when it arrives.
    """

    def __init__(self, leaves: Sequence[TensorCore], nodes: Sequence[Node]) -> None:
        known = _measured()
        assert known is not None
        entry, offsets = known
        super().__init__(offsets)
        plan = np.zeros(len(Word), np.int64)
        words: list[int] = []
        for leaf, node in zip(leaves, nodes, strict=True):
            templates = self._tensor(leaf._type, template_of(leaf._type), 0)
            place = self._keep(leaf) + offsets.gradient
            words += place, *templates, id(leaf), self._keep(node)
        plan[Word.NONE], plan[Word.FALSE], plan[Word.TRUE] = map(id, (None, False, True))
        plan[Word.TENSORS], plan[Word.TENSORS_AT] = len(leaves), self._words(words)
        self._kept.append(entry)
        self.leave: Callable[..., bool] = entry.function(plan, LEAVE)


class NativeCalls(_CallTables):
    """A plan, the function that follows it, and all that the plan refers to.

    Args:
        record: of a backward, whose arguments are a call's record, like this one, and arrays of
            gradients, and whose result is a tuple of arrays.

    Attributes:
        function: what to call with the arguments; it answers with `SLOW_PATH` where it isn't sure:
            then nothing has happened yet.
    """

    def __init__(
        self,
        program: Program,
        types: Sequence[PlainType],
        buffers: Context,
        *,
        record: CallRecord | None = None,
    ) -> None:
        known = _measured()
        assert known is not None
        entry, offsets = known
        super().__init__(offsets)
        # The entry as well: threads that ask for it at the same time may each make one, and the
        # cache holds one of these.
        self._kept += [buffers, entry]
        self._program = weakref.ref(program)  # which holds this
        self._types = types
        self._open_arguments = {n for n, (type, *_) in enumerate(types) if is_open(type.size)}
        self._of_record: NativeCalls | None = None
        self._made: list[GraphOutput] = []
        self._has_sized = program.has_given_sizes
        self._plan = np.zeros(len(Word), np.int64)
        self._entry = entry
        self._enter_constants(program)
        self._enter_guards(program)
        self._enter_arguments(program, buffers, are_arrays=record is not None)
        self._enter_numbers(program, buffers)
        self._enter_call(program, buffers)
        self._enter_sizes(program, buffers)
        self._enter_claims(program.claims)
        self._enter_gradients(program)
        if record is None:
            self._enter_result(program)
        else:
            self._enter_record(record)
        decided = program.executable.decided
        if decided is not None:
            self.know_sizes(decided)
        self.function: Callable[..., Any] = entry.function(self._plan)

    def __del__(self) -> None:
        plan: Any = getattr(self, "_plan", None)
        if plan is None or Word is None:  # as names are when the interpreter ends
            return
        if plan[Word.THREAD_ITEMS]:
            _drop(int(plan[Word.THREAD_ITEMS]))

    def is_running(self, *, is_entered: bool = False) -> bool:
        """Whether somebody has got hold of the function, perhaps to call it.

        is_entered: whether its program has it, for who calls it next.
        """
        return sys.getrefcount(self.function) > 2 + is_entered  # this object's, the call's own

    def of_record(self, record: CallRecord) -> NativeCalls | None:
        """The form that takes a call's record and arrays, and gives arrays; None: none."""
        if self._of_record is None:
            program, buffers, tape = self._program(), self._kept[0], record.rule.tape
            assert program is not None
            if not program.gives_arrays or tape.is_written or tape.goes_on:
                return None
            with lock:
                if self._of_record is None:
                    self._of_record = NativeCalls(program, self._types, buffers, record=record)
        return self._of_record

    # Tables ------------------------------------------------------------------------------

    def _table(
        self,
        count: Word | Checked | CallHistory | Recorded,
        records: Sequence[Sequence[int]],
        plan: np.ndarray | None = None,
    ) -> None:
        plan = self._plan if plan is None else plan
        plan[count] = len(records)
        plan[count + 1] = self._words([word for record in records for word in record])

    # Sections ----------------------------------------------------------------------------

    def _enter_constants(self, program: Program) -> None:
        plan = self._plan
        constants = {
            Word.SLOW_PATH: SLOW_PATH,
            Word.EXCEPTION: Exception,
            Word.TENSOR: Tensor,
            Word.ARRAY: np.ndarray,
            Word.TUPLE: tuple,
            Word.FLOAT: float,
            Word.NONE: None,
            Word.FALSE: False,
            Word.TRUE: True,
            Word.CONTEXT: context,
            Word.DICT: "__dict__",
            Word.LEVELS: "levels",
        }
        plan[[*constants]] = [*map(self._keep, constants.values())]
        plan[Word.THREAD_ITEMS] = own(None)
        self._kept.append(program.counted)
        plan[Word.CALLS_AT] = address_of(program.counted)

    def _enter_guards(self, program: Program) -> None:
        keep, plan, guards = self._keep, self._plan, program.guards
        plan[Word.EPOCH_AT] = keep(epoch) + self._offsets.epoch
        plan[Word.KNOWN_EPOCH_AT] = keep(guards) + _offset_of_epoch()
        plain = ("recorder", "anomaly", "saving", "forward", "lent")
        modes = {"grad_enabled": program.in_grad_mode, **dict.fromkeys(plain)}
        self._table(Word.MODES, [(keep(name), keep(value)) for name, value in modes.items()])
        settings = [stance.place(), (*default_dtype_place(), program.default_dtype)]
        rule = program.differentiable
        if program.decides_sizes and rule is not None:
            settings.append((vars(rule), "needs_sizes", rule.needs_sizes))
        asked = [ask for ask in guards.formulas if not ask.is_entered]
        questions: list[tuple[Callable[[], Any], object]] = []
        if asked:
            questions.append((functools.partial(_failure_of, asked, self._program), None))
        if program.is_begun:
            questions.append((functools.partial(_begin, self._program), None))
        plan[Word.ASKS_USER] = program.asks_user
        plan[Word.CHECKED_AT] = self._checked(guards.watched, settings, questions)
        plan[Word.GATED_AT] = self._checked(guards.gated)

    def _checked(
        self,
        guard: GuardTable,
        settings: Sequence[tuple[Any, Any, Any]] = (),
        questions: Sequence[tuple[Any, Any]] = (),
    ) -> int:
        """The address of the tables of what must hold.

        settings: container, key and value; questions: callable and answer, which are asked last.
        """
        keep, plan = self._keep, np.zeros(len(Checked), np.int64)
        cell = self._entry.layout.cell
        fields = [(keep(owner) + cell, keep(value)) for owner, value in guard.cells]
        asked: list[tuple[Any, Any]] = [(other.holds, True) for other in guard.others]
        for owner, name, value in guard.fields:
            kind: Any = object if name == "__class__" else type(owner)
            offset = field_offset(name, kind)
            if offset is None:
                asked.append((functools.partial(_has, owner, name, value), True))
            else:
                fields.append((keep(owner) + offset, 0 if value is None else keep(value)))
        self._table(Checked.FIELDS, fields, plan)
        dicts = [
            (keep(owner), keep(key), 0 if value is ABSENT else keep(value))
            for owner, key, value in (*guard.entries, *settings)
            if isinstance(owner, dict)
        ]
        self._table(Checked.DICTS, dicts, plan)
        contents = [
            (
                keep(owner),
                len(expected),
                self._words([keep(x) for item in expected.items() for x in item]),
                *[0] * 3,  # where the walk is, and what is there
            )
            for owner, expected in guard.contents
        ]
        self._table(Checked.CONTENTS, contents, plan)
        items = [*guard.items, *(entry for entry in settings if not isinstance(entry[0], dict))]
        self._table(Checked.ITEMS, [tuple(map(keep, item)) for item in items], plan)
        lengths = [(keep(owner), length) for owner, length in guard.lengths]
        self._table(Checked.LENGTHS, lengths, plan)
        asked += questions
        self._table(Checked.QUESTIONS, [(keep(ask), keep(answer)) for ask, answer in asked], plan)
        return self._words([*plan])

    def _enter_arguments(self, program: Program, buffers: Context, *, are_arrays: bool) -> None:
        records = []
        inputs = {position: number for number, position in program.entered}
        arrays = program.arrays
        for number, (type, _, grad, kind) in enumerate(self._types):
            is_array = are_arrays or number in arrays
            kind = np.ndarray if is_array else kind
            place = inputs.get(number)
            low = high = at = is_written = 0
            if place is not None:
                expected = buffers.expected[place]
                low, high, at = expected.low, expected.high, buffers.address + 8 * place
                is_written = program.sharing.is_written(place)
            axes = len(type.shape), self._keep(type.dtype.numpy)
            records.append((*axes, 0, 0, at, low, high, self._keep(kind), is_written, grad))
        plan, self._given = self._plan, records
        self._enter_places(program)
        plan[Word.ARGUMENT_COUNT] = len(records)
        plan[Word.ARGUMENTS_AT] = self._arguments(records, None if self._has_sized else self._types)
        plan[Word.HELD_AT] = self._words([0] * len(records))
        buffers.entered = [number for number, _ in program.entered]
        spans = program.sharing.written_spans
        self._table(Word.SPANS, [(low, high) for low, high, _ in spans])
        self._table(Word.STATE_SPANS, program.sharing.spans)
        table = _hash_table([id(storage) for storage in program.guards.state])
        plan[Word.STATE_MASK], plan[Word.STATE_AT] = len(table) - 1, self._words(table)

    def _enter_places(self, program: Program) -> None:
        """Where the last ones of the arguments are found."""
        plan = self._plan
        plan[Word.GATHERED_AT] = self._words([0] * len(self._types))
        if program.gathering is not None:
            plan[Word.GATHER] = self._keep(program.gathering)
            plan[Word.GIVEN_COUNT] = program.given_count
            return
        records: list[tuple[int, ...]] = []
        for read in program.reads:
            kind = _word_of(read.place)
            assert kind is not None
            owner, key = self._keep(read.place.owner), read.place.key
            key = key if kind == IN_LIST else self._keep(key)
            for index, number in enumerate(read.kinds):
                if number is None:
                    records.append((kind, owner, key, max(read.size, 0), index))
        self._table(Word.PLACES, records)
        plan[Word.GIVEN_COUNT] = len(self._types) - len(records)

    def _enter_numbers(self, program: Program, buffers: Context) -> None:
        records = []
        readers = [*program.readers]
        for place, formula in program.numbers:
            readers.append((place, functools.partial(_number_of, formula, self._program)))
        for place, read in readers:
            kind = int if buffers.expected[place].dtype.kind == "i" else float
            records.append((*self._reader(read), self._keep(kind), buffers.address + 8 * place))
        self._table(Word.NUMBERS, records)

    def _reader(self, read: Callable[[], Any]) -> tuple[int, int, int, int]:
        """How a live number is read: without Python where it stands in a dict, or a tuple there."""
        index, inner = -1, read
        if isinstance(read, functools.partial) and read.func is item_of:
            inner, index = read.args
        kind = NUMBER_IN_DICT if index < 0 else NUMBER_IN_TUPLE
        place = getattr(inner, "__self__", None)
        if isinstance(inner, functools.partial) and inner.func is dict.__getitem__:
            owner, key = inner.args
        elif isinstance(place, DynamicNumber) and type(place.owner) is dict:
            owner, key = place.owner, place.key
        else:
            return NUMBER_CALLED, self._keep(read), 0, 0
        return kind, self._keep(owner), self._keep(key), index

    def _enter_call(self, program: Program, buffers: Context) -> None:
        plan, executable = self._plan, program.executable
        plan[Word.STEP] = executable.address
        plan[Word.IS_OPEN_AT] = ctypes.addressof(executable.is_open)
        plan[Word.TABLE] = buffers.address
        plan[Word.OUTPUTS_AT] = buffers.address + 8 * len(buffers.expected)
        plan[Word.IS_LONG] = not executable.is_short
        plan[Word.AWAKE_AT] = pool.awake_address if executable.shared_count else 0
        plan[Word.FREE] = self._keep(executable.free)
        plan[Word.BUFFERS] = id(buffers)
        plan[Word.BUFFERS_AT] = ctypes.addressof(buffers.words)
        plan[Word.RAISE] = self._keep(functools.partial(executable.raise_error, buffers))
        found = executable.found_outputs
        numbers = program.gradients.kept_results(program.output_count)
        kept = self._kept_results = [n for n in numbers if n not in found]
        plan[Word.RESULTS] = len(kept)
        if not self._has_sized:
            plan[Word.RESULTS_AT] = self._results(executable, kept)
        counters = [
            (self._keep(counter) + self._offsets.fields["counter_now"], self._keep(delta))
            for counter, delta in program.counters
            if isinstance(counter, VersionCounter)
        ]
        self._table(Word.COUNTERS, counters)
        moved = [(place, self._keep(delta)) for place, delta in program.counted_at]
        self._table(Word.FOUND_COUNTERS, moved)

    def _enter_sizes(self, program: Program, buffers: Context) -> None:
        """Where numbers are that say sizes."""
        plan, decided = self._plan, program.executable.decided
        plan[Word.SIZED] = self._keep(None)
        if decided is None:
            return
        if not self._has_sized:
            begin = functools.partial(program.executable.begin_found, buffers)
            plan[Word.BEGIN] = self._keep(begin)
            return
        arguments = dict(program.entered)
        places = [
            buffers.address + 8 * number if axis < 0 else of_axis(arguments[number], axis)
            for number, axis in decided.given.values()
        ]
        plan[Word.SIZES] = len(places)
        plan[Word.SIZES_AT] = self._words([*places, *places])
        plan[Word.WORDS_AT] = buffers.words_at
        self._left: list[object] = []  # tables that a call may run on that began with them
        self._fillings: dict[tuple[object, ...], FilledTables | None] = {}
        self._filling_words: np.ndarray | None = None
        self._missed: set[tuple[object, ...]] = set()  # forms of sizes that came once
        self._is_learning = threading.Lock()

    def know_sizes(self, decided: DecidedProgram) -> None:
        """Serve calls of such sizes as have come to Python last, if those are new here."""
        program, sized = self._program(), decided.latest
        if program is None or sized is None or not self._has_sized:
            return
        if self._of_record is not None:
            self._of_record.know_sizes(decided)
        if self._is_learning.acquire(blocking=False):  # else another call does: these come again
            try:
                self._know(sized, decided, program)
            finally:
                self._is_learning.release()

    def _know(self, sized: Sized, decided: DecidedProgram, program: Program) -> None:
        """The same, of one thread at a time: native code keeps addresses of tables."""
        self._make_room(program.executable, sized.layout.arena_bytes)
        form = sized.form
        if form in self._fillings:
            return
        if form not in self._missed:  # nor is it worth the time for sizes that come once
            if len(self._missed) >= _MOST_FORMS:
                self._missed.clear()
            self._missed.add(form)
            return
        if not self._plan[Word.IS_BUSY]:
            self._left.clear()
        if len(self._fillings) >= _MOST_FORMS:
            self._left.append(self._fillings.pop(next(iter(self._fillings))))
        filled = decided.filling(sized)
        made = None if filled is None else FilledTables(self, sized, program.executable, filled)
        self._fillings[form] = made
        latest_first = [x for x in reversed(self._fillings.values()) if x is not None]
        known = np.array([address_of(x.words) for x in latest_first], np.int64)
        self._left.append(self._filling_words)
        both = slice(Word.FILLINGS, Word.FILLINGS_AT + 1)  # at once: other threads call meanwhile
        self._plan[both] = len(known), address_of(known)
        self._filling_words = known

    def _make_room(self, executable: Executable, arena_bytes: int) -> None:
        """Have buffers with enough memory for temporaries, unless a call uses them.

        Nor where there is no such memory: native code leaves what needs it to Python.
        """
        buffers, free = self._kept[0], executable.free
        if buffers.arena_bytes < arena_bytes:
            with suppress(ValueError):  # a call has taken them
                free.remove(buffers)
                try:
                    with suppress(MemoryError):
                        buffers.need(arena_bytes)
                finally:
                    free.append(buffers)

    def _enter_claims(self, claims: Keys) -> None:
        plan, keep = self._plan, self._keep
        if claims:
            plan[Word.ACQUIRE] = keep(lock.acquire)
            plan[Word.ACQUIRE_AT] = self._words([id(False)])
            plan[Word.RELEASE] = keep(lock.release)
            plan[Word.CLAIMS] = keep(held)
            plan[Word.CLAIM] = keep(functools.partial(exchange_lock, claims))
            plan[Word.UNCLAIM] = keep(take_back)
            plan[Word.INTERRUPT_AT] = self._words([0, 0, 0])

    def _enter_gradients(self, program: Program) -> None:
        plan, gradients = self._plan, program.gradients
        if not gradients.are_promised:
            return
        gradients.share(self._offsets.gradient)
        plan[Word.SPARES] = self._keep(gradients.spares)
        plan[Word.LATEST] = self._keep(gradients.latest)
        plan[Word.FILL] = self._keep(gradients.fill)

    def _enter_record(self, record: CallRecord) -> None:
        """Have what a call has kept come behind what is given."""
        slots, words = slots_of(type(record)), np.zeros(len(Recorded), np.int64)
        tape = record.rule.tape
        names = "freed", "_counters", "_versions", "_kept", "_shown", "_storages"
        words[: Recorded.CHECKED] = [slots[name] for name in names]
        self._table(Recorded.CHECKED, [(number,) for number in sorted(tape.checked)], words)
        words[Recorded.ROOM_AT] = self._words([0] * len(self._types))
        self._plan[Word.GIVEN_COUNT] += 1 - len(tape.sources)
        self._plan[Word.RECORDED_AT] = self._words([*words])
        self._plan[Word.RESULT] = ALL
        self._enter_values(0)

    def _enter_values(self, parts: int) -> None:
        """Room for arguments, outputs, and so many parts of these."""
        plan, types, kept = self._plan, self._types, self._kept_results
        plan[Word.VALUES_AT] = self._words([0] * (len(types) + len(kept) + parts))
        plan[Word.ARRAYS_AT] = plan[Word.VALUES_AT] + 8 * len(types)

    def _enter_result(self, program: Program) -> None:
        plan, result, kept = self._plan, program.result, self._kept_results
        made = Assembly(kept)
        for spec in program.tensors:
            made.of(spec)
        place = made.of(result) if program.is_simple else None
        self._made = made.tensors
        buffers = self._kept[0]
        plan[Word.TENSORS] = len(self._made)
        if not self._has_sized:
            plan[Word.TENSORS_AT] = self._tensors(kept, self._made)
        self._enter_values(len(made.parts))
        if type(result) is Constant and program.is_simple and not program.hosts:
            plan[Word.RESULT], plan[Word.RESULT_AT] = CONSTANT, self._keep(result.value)
            return
        places = {spec: self._place(at) for spec, at in made.made.items()}
        self._enter_parts(made.parts)
        cells = self._cells(program, buffers)
        is_complete = self._enter_history(program, cells, places)
        if place is not None and is_complete and not program.hosts:
            plan[Word.RESULT], plan[Word.RESULT_AT] = MADE, places[result]
            return
        known = _Made(kept, len(self._types), plan, buffers, cells, places, is_complete)
        finish = functools.partial(_finish, self._program, known)
        plan[Word.RESULT], plan[Word.RESULT_AT] = OTHER, self._keep(finish)

    def _place(self, place: int) -> int:
        """Where something made is, behind the arguments: `Part.values` says how it is told."""
        kept = self._kept_results
        return kept.index(place) if place >= 0 else len(kept) + ~place

    def _enter_parts(self, parts: Sequence[Part]) -> None:
        records = []
        for part in parts:
            kind, what = part.kind, part.what
            view = self._view(what) if kind == A_VIEW else 0
            if kind == A_DICT:
                given = self._words([*map(self._keep, what)])
            elif view:
                given = view
            else:
                kind, what = (CALLED_ON, what.made_of) if kind == A_VIEW else (kind, what)
                given = self._keep(what)
            numbers = [*map(self._place, part.values)]
            room = self._words([0] * len(numbers))
            records.append((kind, given, len(numbers), self._words(numbers), room))
        self._table(Word.PARTS, records)

    def _view(self, view: GraphOutputView) -> int:
        """The words by which a view is made of the tensor that owns its memory; 0: by Python."""
        type = view.owner.type
        if is_open(type.size) or not type.size or context.levels:
            return 0
        root = view.owner.on(np.empty(type.shape, type.dtype.numpy))
        shown = view.made_of(root)
        whole, array, base = root._array, shown._array, shown._base
        is_like = shown._storage is root._storage and shown._counter is root._counter
        if not is_like or array is None or whole is None or not array.flags.writeable:
            return 0
        args, own = 0, ("_storage", "_counter", "_base", "_array")
        if array is not whole:
            offset = address_of(array) - address_of(whole)
            places = array.shape, array.dtype, None, offset, array.strides
            args = self._words([*map(self._keep, places)])
        words = {View.TENSOR: self._template(shown, own=own), View.ARRAY_AT: args}
        words[View.IS_BASED] = int(base is root)
        return self._words([words[word] for word in View]) if base is None or base is root else 0

    def _cells(self, program: Program, buffers: Context) -> Mapping[int, np.ndarray]:
        """Where the live numbers lie that a call keeps for its backward, by the input's number."""
        rule = program.differentiable
        numbers = {number for number, _ in (*program.numbers, *program.readers)}
        cells = {}
        for is_output, number in () if rule is None else rule.tape.sources:
            if not is_output and number in numbers:
                memory: Any = (ctypes.c_char * 8).from_address(buffers.address + 8 * number)
                cells[number] = np.ndarray((), buffers.expected[number].dtype, memory)
        return cells

    def _enter_history(
        self,
        program: Program,
        cells: Mapping[int, np.ndarray],
        made: Mapping[OutputSpec, int],
    ) -> bool:
        """Let native code give results their history; whether they have all that they are to have.

        cells: where live numbers lie that a call keeps. made: where native code has results.
        """
        rule = program.differentiable
        if rule is None:
            return True
        like = rule.likeness()
        is_whole = self._kept_results == [*range(program.output_count)]
        rare = program.hosts, program.arrays, program.moves_memory
        if rule.tape.sizes is not None and not self._has_sized:
            return False
        if like is None or not is_whole or any(rare) or not made.keys() >= {*program.tensors}:
            return False
        record, nodes = like
        numbers = functools.partial(_kept_numbers, self._program)
        results = [made[spec] for spec in program.tensors]
        layers: list[int] = []
        for layer, node in zip(rule.layers, nodes, strict=True):
            layers += self._layer(layer, node, results)
        words = {
            CallHistory.RECORD: self._template(record, own=record.OWN),
            CallHistory.LAYERS: len(nodes),
            CallHistory.LAYERS_AT: self._words(layers),
            CallHistory.NODES_AT: self._words([0] * len(nodes)),
            CallHistory.SPOT: self._keep(_spot),
            CallHistory.NUMBERS: self._keep(numbers) if rule.tape.formulas else 0,
            CallHistory.SEQUENCE: self._keep(sequence_numbers),
            CallHistory.EMPTY: self._keep(()),
            CallHistory.SIZES: int(rule.tape.sizes is not None),
        }
        of_record, of_node = slots_of(type(record)), slots_of(type(nodes[0]))
        owns = (*(of_record[x] for x in record.OWN), *(of_node[x] for x in nodes[0].OWN))
        words |= dict(zip([*CallHistory][-len(owns) :], owns, strict=True))
        plan = np.zeros(len(CallHistory), np.int64)
        for word, value in words.items():
            plan[word] = value
        self._enter_sources(program, rule, cells, results, plan)
        self._kept.append(plan)
        self._plan[Word.HISTORY_AT] = address_of(plan)
        return True

    def _enter_sources(
        self,
        program: Program,
        rule: Differentiable,
        cells: Mapping[int, np.ndarray],
        results: Sequence[int],
        plan: np.ndarray,
    ) -> None:
        """Where a call's record has what it keeps; results: where these are, a number for each."""
        tape, places, fields = rule.tape, dict(program.arguments), self._offsets.fields
        counter, array = fields["tensor_counter"], fields["tensor_array"]
        counters = [(OF_ARGUMENT, i, counter) for i in range(program.tensor_count)]
        for spec, place in zip(program.tensors, results, strict=True):
            has_none = type(spec) is Constant and isinstance(spec.value, np.ndarray)
            own = (HERE, self._keep(NO_COUNTER), 0) if has_none else (OF_MADE, place, counter)
            counters.append(own)
        counters += [(HERE, self._keep(x), 0) for x in rule.counters]
        kept, tensors = [], {output.slot for output in self._made}
        for is_output, i in tape.sources:
            if is_output:
                kept.append((OF_MADE, i, array if i in tensors else 0))
            elif i in cells:
                kept.append((CALLED, self._keep(cells[i].copy), 0))
            else:
                kept.append((OF_ARGUMENT, places[i], array))
        shown = [(HERE, self._keep(x), 0) for x in tape.tensors]
        shown += [(OF_ARGUMENT, i, 0) for i in tape.arguments]
        of_state = [x for layer in rule.layers for x in layer.leaves if isinstance(x, TensorCore)]
        self._table(CallHistory.LEAVES, [(self._keep(x),) for x in of_state], plan)
        self._table(CallHistory.COUNTERS, counters, plan)
        self._table(CallHistory.KEPT, kept, plan)
        self._table(CallHistory.SHOWN, shown, plan)

    def _layer(self, layer: Layer, node: CompiledBackward, results: Sequence[int]) -> Sequence[int]:
        """The words of a layer; results: where these are."""
        ends: list[int] = []
        of_arguments = [leaf for leaf in layer.leaves if isinstance(leaf, int)]
        if node._led_to is None:
            for number, output in layer.upstream:
                ends += END_OF_LAYER, number, self._keep(output)
            for leaf in layer.leaves:
                if isinstance(leaf, TensorCore):
                    ends += HERE, self._keep((accumulator_of(leaf), 0)), 0
                else:
                    assert isinstance(leaf, int)
                    ends += END_OF_ARGUMENT, leaf, 0
        place = slots_of(type(node))["_ends" if of_arguments else "_led_to"]
        outputs: list[int] = []
        for number, made in enumerate(layer.outputs):
            for position in made.positions:
                outputs += results[position], self._keep(number)
        tables = len(ends) // 3, self._words(ends), len(outputs) // 2, self._words(outputs)
        typed = [results[made.positions[0]] for made in layer.outputs]
        template = self._template(node, own=node.OWN)
        return template, *tables, place, len(typed), self._words(typed)


@functools.cache
def _offset_of_epoch() -> int:
    """Where the guards of a program have the count at which they held."""
    return slot_offset(object.__new__(Guards), "epoch")


def _has(owner: Any, name: str, value: Any) -> bool:
    return field_of(owner, name) is value


def _sized_type(type: TensorType, strides: Shape, sized: Sized) -> tuple[TensorType, Shape]:
    """That of an argument where sizes are known; one with open sizes is row-major."""
    shape = replaced(type.shape, lambda extent: extent.sizes.at(sized.values)(extent))
    if shape is type.shape:
        return type, strides
    known = type.with_shape(shape)
    if not known.size:  # NumPy has strides of its own there
        return known, np.empty(shape, known.dtype.numpy).strides
    size = known.dtype.itemsize
    return known, tuple(n * size for n in contiguous_strides(shape))


# What native code calls gets the program by a weak reference: who calls holds it.


def _begin(reference: weakref.ref[Program]) -> None:
    """Take what is to be taken before the step runs."""
    reference().begin()  # type: ignore[union-attr]


def _kept_numbers(reference: weakref.ref[Program]) -> list[Number]:
    """Those that a call keeps for its backward."""
    program: Any = reference()
    found: list[Number] = program.differentiable.numbers(program.found_numbers)
    return found


def _spot() -> Spot:
    """The line of the user's that has called the step."""
    return user_spot()


class _Made(NamedTuple):
    """What native code gives to who makes a call's result: arguments, outputs, then parts.

    Attributes:
        kept: the numbers of the outputs; arguments: how many there are.
        plan, buffers: of the call.
        cells: where live numbers lie that a call keeps, by the input's number.
        places: where, behind the arguments, results are that are made.
        is_complete: whether these have their history.
    """

    kept: Sequence[int]
    arguments: int
    plan: np.ndarray
    buffers: Context
    cells: Mapping[int, np.ndarray]
    places: Mapping[OutputSpec, int]
    is_complete: bool


def _finish(reference: weakref.ref[Program], known: _Made, *values: Any) -> Any:
    """What a call returns."""
    program, buffers = reference(), known.buffers
    assert program is not None
    outputs = Results()
    outputs += [None] * program.output_count  # type: ignore[list-item]
    args, made = values[: known.arguments], values[known.arguments :]
    for number, output in zip(known.kept, made, strict=False):  # parts follow
        outputs[number] = output
    if buffers.has_hosts:
        buffers.hosts.finish()
        if buffers.sizing is not None:
            outputs.sizes = (*buffers.sizing.values,)
            for number in program.executable.found_outputs:
                outputs[number] = buffers.sizing.results[number]
    elif program.decides_sizes:
        outputs.sizes = ctypes.cast(int(known.plan[Word.SIZED]), ctypes.py_object).value
    results = {spec: made[place] for spec, place in known.places.items()}
    return program.finish(outputs, args, known.cells, results, is_complete=known.is_complete)


def _number_of(formula: Formula, reference: weakref.ref[Program]) -> Any:
    """A number that follows from those that the call finds."""
    return formula(reference().found_numbers)  # type: ignore[union-attr]


def _failure_of(asked: Sequence[FormulaGuard], reference: weakref.ref[Program]) -> str | None:
    """Whether the step is specialized on something else than follows from those numbers."""
    numbers = reference().found_numbers  # type: ignore[union-attr]
    for question in asked:
        failure = question.failure(numbers)
        if failure is not None:
            return failure
    return None


def _hash_table(words: Sequence[int]) -> list[int]:
    """Linear probing; at most half full."""
    size = 2
    while size < 2 * len(words):
        size *= 2
    table = [0] * size
    for word in words:
        place = (word >> 4) % size
        while table[place]:
            place = (place + 1) % size
        table[place] = word
    return table


def _drop(address: int) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(address))
