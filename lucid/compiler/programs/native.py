"""The short way through a call as one native function: its plan, and what keeps that alive."""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.codegen.entry_words import (
    CONSTANT,
    FIRST,
    IN_LIST,
    NUMBER_CALLED,
    NUMBER_IN_DICT,
    NUMBER_IN_TUPLE,
    OTHER,
    Word,
)
from lucid.compiler import stance
from lucid.compiler.guards.guard import ABSENT
from lucid.compiler.hooks import item_of
from lucid.compiler.programs.plain_places import failure_of, kind_of, number_of
from lucid.compiler.results.outcomes import FromProgram, Same
from lucid.dtypes import default_dtype_place
from lucid.ir.environment import NATIVE_CALLS
from lucid.runtime.addresses import address_of
from lucid.runtime.context import Context
from lucid.runtime.entry import (
    LONG_WAY,
    Entry,
    UnknownLayoutError,
    constructor_of,
    entry_for,
    field_offset,
    layout_of,
    slot_offset,
)
from lucid.runtime.threads import pool
from lucid.tensor.claims import exchange_lock, held, lock, take_back
from lucid.tensor.context import context, epoch
from lucid.tensor.core import _new
from lucid.tensor.promises import Batch
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid.compiler.programs.plain import PlainCalls

logger = logging.getLogger("lucid.native")
_OWN_OF_EACH = (
    "_storage",
    "_array",
    "_counter",
    "array",
)  # of a result; the rest is as in a template


class _Offsets:
    """Where the slots of our own classes lie."""

    def __init__(self) -> None:
        tensor = object.__new__(Tensor)
        storage = object.__new__(Storage)
        batch = object.__new__(Batch)
        self.tensor = _copied_slots(tensor)
        self.storage = _copied_slots(storage)
        self.counter = slot_offset(VersionCounter(), "now")
        self.epoch = slot_offset(type(epoch)(), "count")
        self.fields = {
            "tensor_storage": slot_offset(tensor, "_storage"),
            "tensor_array": slot_offset(tensor, "_array"),
            "tensor_counter": slot_offset(tensor, "_counter"),
            "tensor_requires_grad": self.tensor["_requires_grad"],
            "tensor_base": self.tensor["_base"],
            "tensor_epoch": self.tensor["_epoch"],
            "storage_array": slot_offset(storage, "array"),
            "batch_words": slot_offset(batch, "words"),
            "batch_was_seen": slot_offset(batch, "was_seen"),
            "batch_promises": slot_offset(batch, "promises"),
        }


def _copied_slots(value: object) -> dict[str, int]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    chosen = [n for n in names if not n.startswith("__") and n not in _OWN_OF_EACH]
    return {name: slot_offset(value, name) for name in chosen}


@functools.cache
def _measured() -> tuple[Entry, _Offsets] | None:
    """The native entry and the layout it is made for; None where calls stay in Python."""
    if not NATIVE_CALLS.read():
        return None
    try:
        offsets = _Offsets()
        return entry_for(layout_of(offsets.fields)), offsets
    except UnknownLayoutError as reason:
        logger.info("calls go through Python: %s", reason)
        return None


def has_native_calls() -> bool:
    """Whether machine code can check and pass arguments here."""
    return _measured() is not None


class NativeCalls:
    """A plan, the function that follows it, and all that the plan refers to.

    Attributes:
        function: what to call with the arguments; it answers with `LONG_WAY` where it isn't sure:
            then nothing has happened yet.
        epoch: the count for which its guards hold.
        leaving: the form that leaves results on leaves, if there is one.
    """

    leaving: NativeCalls | None = None

    def __init__(self, calls: PlainCalls, buffers: Context) -> None:
        measured = _measured()
        assert measured is not None
        entry, self._offsets = measured
        # The entry as well: threads that ask for it at the same time may each make one, and the
        # cache holds one of these.
        self._kept: list[Any] = [calls, buffers, entry]
        self._plan = np.zeros(len(Word), np.int64)
        self._entry = entry
        self._enter_constants(calls)
        self._enter_guards(calls)
        self._enter_arguments(calls, buffers)
        self._enter_numbers(calls, buffers)
        self._enter_call(calls, buffers)
        self._enter_claims(calls)
        self._enter_gradients(calls)
        self._enter_result(calls)
        self.rearm()
        self.function: Callable[..., Any] = entry.function(self._plan)

    def __del__(self) -> None:
        items = getattr(self, "_plan", [0] * len(Word))[Word.THREAD_ITEMS]
        if items:
            _drop(int(items))

    def rearm(self) -> None:
        """Take the epoch of now for one that the guards hold for."""
        self.epoch = epoch.count  # kept, so that its address means this number
        self._plan[Word.EPOCH] = id(self.epoch)
        if self.leaving is not None:
            self.leaving.rearm()

    def leave_on(self, calls: PlainCalls) -> None:
        """Make the form for the same calls that leaves results on leaves."""
        self.leaving = NativeCalls(calls, self._kept[1])

    # Tables ------------------------------------------------------------------------------

    def _keep(self, value: Any) -> int:
        """The address of an object, which stays alive."""
        self._kept.append(value)
        return id(value)

    def _words(self, words: Sequence[int]) -> int:
        """The address of a table."""
        table = np.array(words or [0], np.int64)
        self._kept.append(table)
        return address_of(table)

    def _table(self, count: Word, records: Sequence[Sequence[int]]) -> None:
        self._plan[count] = len(records)
        self._plan[count + 1] = self._words([word for record in records for word in record])

    def _template(self, value: Any, offsets: Sequence[int]) -> int:
        """How to make an object like `value`."""
        kind = type(value)
        new, none = constructor_of(object), self._keep(())
        words = new, self._keep(kind), none, self._keep(value), len(offsets), self._words(offsets)
        return self._words(words)

    # Sections ----------------------------------------------------------------------------

    def _enter_constants(self, calls: PlainCalls) -> None:
        plan = self._plan
        plan[Word.LONG_WAY] = self._keep(LONG_WAY)
        plan[Word.TENSOR] = self._keep(Tensor)
        plan[Word.ARRAY] = self._keep(np.ndarray)
        plan[Word.FLOAT] = self._keep(float)
        plan[Word.NONE] = self._keep(None)
        plan[Word.FALSE] = self._keep(False)
        plan[Word.TRUE] = self._keep(True)
        plan[Word.CONTEXT] = self._keep(context)
        plan[Word.DICT] = self._keep("__dict__")
        plan[Word.LEVELS] = self._keep("levels")
        plan[Word.THREAD_ITEMS] = _own(None)
        self._kept.append(calls.counted)
        plan[Word.CALLS_AT] = address_of(calls.counted)

    def _enter_guards(self, calls: PlainCalls) -> None:
        keep, guard = self._keep, calls.guard
        plan = self._plan
        plan[Word.EPOCH_AT] = keep(epoch) + self._offsets.epoch
        plain = ("recorder", "anomaly", "saving", "forward", "lent")
        modes = {"grad_enabled": calls.in_grad_mode, **dict.fromkeys(plain)}
        self._table(Word.MODES, [(keep(name), keep(value)) for name, value in modes.items()])
        cell = self._entry.layout.cell
        fields = [(keep(owner) + cell, keep(value)) for owner, value in guard.cells]
        questions: list[tuple[Any, Any]] = [(other.holds, True) for other in guard.others]
        for owner, name, value in guard.fields:
            kind: Any = object if name == "__class__" else type(owner)
            offset = field_offset(name, kind)
            if offset is None:
                questions.append((functools.partial(_has, owner, name, value), True))
            else:
                fields.append((keep(owner) + offset, 0 if value is None else keep(value)))
        self._table(Word.FIELDS, fields)
        settings = [stance.place(), (*default_dtype_place(), calls.default_dtype)]
        dicts = [
            (keep(owner), keep(key), 0 if value is ABSENT else keep(value))
            for owner, key, value in (*guard.entries, *settings)
            if isinstance(owner, dict)
        ]
        self._table(Word.DICTS, dicts)
        items = [*guard.items, *(entry for entry in settings if not isinstance(entry[0], dict))]
        self._table(Word.ITEMS, [tuple(map(keep, item)) for item in items])
        self._table(Word.LENGTHS, [(keep(owner), length) for owner, length in guard.lengths])
        places = calls.places
        if places is None:
            questions += [(functools.partial(ask.failure, ()), None) for ask in calls.formulas]
        else:
            asked = calls.formulas
            questions += [(functools.partial(failure_of, ask, places), None) for ask in asked]
            if places.early:
                questions.append((functools.partial(places.begin, calls.output_count), None))
        self._table(Word.QUESTIONS, [(keep(ask), keep(answer)) for ask, answer in questions])

    def _enter_arguments(self, calls: PlainCalls, buffers: Context) -> None:
        records = []
        for number, (type, strides, place) in enumerate(calls.arguments):
            kind = Tensor if number < calls.tensor_count else np.ndarray
            low = high = at = 0
            if place is not None:
                expected = buffers.expected[place]
                low, high, at = expected.low, expected.high, buffers.address + 8 * place
            axes = len(type.shape), self._keep(type.dtype.numpy)
            given = self._words(type.shape), self._words(strides), at, low, high
            records.append((*axes, *given, self._keep(kind)))
        plan = self._plan
        self._enter_places(calls)
        plan[Word.ARGUMENT_COUNT] = len(records)
        plan[Word.ARGUMENTS_AT] = self._words([word for record in records for word in record])
        plan[Word.HELD_AT] = self._words([0] * len(records))
        buffers.entered = [place for _, _, place in calls.arguments if place is not None]
        spans = calls.sharing.written_spans
        self._table(Word.SPANS, [(low, high) for low, high, _ in spans])
        table = _hash_table([id(storage) for storage in calls.state])
        plan[Word.STATE_MASK], plan[Word.STATE_AT] = len(table) - 1, self._words(table)

    def _enter_places(self, calls: PlainCalls) -> None:
        """Where the last ones of the arguments are found."""
        plan, reads = self._plan, [] if calls.places is None else calls.places.reads
        records: list[tuple[int, ...]] = []
        for read in reads:
            kind = kind_of(read.place)
            if kind is None:
                continue  # it holds numbers, which Python reads
            owner, key = self._keep(read.place.owner), read.place.key
            key = key if kind == IN_LIST else self._keep(key)
            for index, number in enumerate(read.kinds):
                if number is None:
                    records.append((kind, owner, key, max(read.size, 0), index))
        self._table(Word.PLACES, records)
        plan[Word.GIVEN_COUNT] = len(calls.arguments) - len(records)
        plan[Word.GATHERED_AT] = self._words([0] * len(calls.arguments))
        plan[Word.TUPLE] = self._keep(tuple)

    def _enter_numbers(self, calls: PlainCalls, buffers: Context) -> None:
        records = []
        readers = [*calls.readers]
        for place, formula in calls.numbers:
            readers.append((place, functools.partial(number_of, formula, calls.places)))
        for place, read in readers:
            kind = int if buffers.expected[place].dtype.kind == "i" else float
            records.append((*self._reader(read), self._keep(kind), buffers.address + 8 * place))
        self._table(Word.NUMBERS, records)

    def _reader(self, read: Callable[[], Any]) -> tuple[int, int, int, int]:
        """How a live number is read: without Python where it stands in a dict, or a tuple there."""
        index, inner = -1, read
        if isinstance(read, functools.partial) and read.func is item_of:
            inner, index = read.args
        if isinstance(inner, functools.partial) and inner.func is dict.__getitem__:
            kind = NUMBER_IN_DICT if index < 0 else NUMBER_IN_TUPLE
            owner, key = inner.args
            return kind, self._keep(owner), self._keep(key), index
        return NUMBER_CALLED, self._keep(read), 0, 0

    def _enter_call(self, calls: PlainCalls, buffers: Context) -> None:
        plan, executable = self._plan, calls.executable
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
        records = []
        for number in calls.gradients.kept_results(calls.output_count):
            make, args = executable.maker(number)
            table = self._words([self._keep(arg) for arg in args])
            records.append((number, self._keep(make), table, len(args)))
        self._table(Word.RESULTS, records)
        plan[Word.VALUES_AT] = self._words([0] * (len(calls.arguments) + len(records)))
        plan[Word.ARRAYS_AT] = plan[Word.VALUES_AT] + 8 * len(calls.arguments)
        counters = [
            (self._keep(counter) + self._offsets.counter, self._keep(delta))
            for counter, delta in calls.counters
        ]
        self._table(Word.COUNTERS, counters)

    def _enter_claims(self, calls: PlainCalls) -> None:
        plan, keep = self._plan, self._keep
        if calls.claims:
            plan[Word.ACQUIRE] = keep(lock.acquire)
            plan[Word.ACQUIRE_AT] = self._words([id(False)])
            plan[Word.RELEASE] = keep(lock.release)
            plan[Word.CLAIMS] = keep(held)
            plan[Word.CLAIM] = keep(functools.partial(exchange_lock, calls.claims))
            plan[Word.UNCLAIM] = keep(take_back)
            plan[Word.INTERRUPT_AT] = self._words([0, 0, 0])

    def _enter_gradients(self, calls: PlainCalls) -> None:
        plan, gradients = self._plan, calls.gradients
        if not gradients.are_promised:
            return
        gradients.share(self._offsets.tensor["_gradient"])
        plan[Word.SPARES] = self._keep(gradients.spares)
        plan[Word.LATEST] = self._keep(gradients.latest)

    def _enter_result(self, calls: PlainCalls) -> None:
        plan, result = self._plan, calls.result
        kept = calls.gradients.kept_results(calls.output_count)
        place = self._offsets.tensor["_gradient"]
        made = [(outcome, self._keep(leaf) + place) for leaf, outcome in calls.left]
        if type(result) is FromProgram and calls.is_simple:
            made = [(result, 0)]
        self._table(Word.TENSORS, [(kept.index(x.slot), *self._tensor(x), at) for x, at in made])
        if calls.left:
            plan[Word.RESULT], plan[Word.RESULT_AT] = CONSTANT, self._keep(None)
        elif type(result) is Same and calls.is_simple:
            plan[Word.RESULT], plan[Word.RESULT_AT] = CONSTANT, self._keep(result.value)
        elif made and calls.rule is None:
            plan[Word.RESULT] = FIRST
        else:
            finish = functools.partial(_finish, calls, kept)
            plan[Word.RESULT], plan[Word.RESULT_AT] = OTHER, self._keep(finish)

    def _tensor(self, result: FromProgram) -> tuple[int, int, int]:
        """Templates of the storage, the counter and the tensor of a result."""
        storage = Storage(result.type)
        tensor = result.with_history(_new(storage, result.type, None, ()))
        tensor._strides = None
        counter = VersionCounter()
        counter.now = result.version
        offsets = self._offsets
        return (
            self._template(storage, list(offsets.storage.values())),
            self._template(counter, [offsets.counter]),
            self._template(tensor, list(offsets.tensor.values())),
        )


def _has(owner: Any, name: str, value: Any) -> bool:
    return getattr(owner, name) is value


def _finish(calls: PlainCalls, kept: Sequence[int], *values: Any) -> Any:
    """What a call returns, of its arguments and of the outputs of these numbers."""
    count = len(calls.arguments)
    outputs = [*values[count:]]
    if len(kept) < calls.output_count:
        outputs = [None] * calls.output_count
        for number, output in zip(kept, values[count:], strict=True):
            outputs[number] = output
    return calls.outcomes(outputs, values[:count])


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


def _own(value: Any) -> int:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return id(value)


def _drop(address: int) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(address))
