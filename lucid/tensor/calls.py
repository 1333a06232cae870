"""Records of calls of public functions, which machine code runs (`lucid/runtime/entry/calls.py`).

What most functions do between their ops follows from the types of their tensors and the values of
their other arguments. So a call that comes again and again is noted by a level: the ops that it
applies, and what it writes in the end. A call that does anything else has a record that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid.autograd.function import BackwardCFunction, call_function
from lucid.autograd.native import NotStraightError, call_natively, forward_of
from lucid.ir import ops
from lucid.ir.errors import LucidError
from lucid.ir.location import takers
from lucid.ir.op import Attributes, Op
from lucid.ir.whose_code import is_interrupt
from lucid.runtime.entry.calls import (
    CALL_SLOTS,
    IS_NONE,
    IS_TENSOR,
    IS_TUPLE,
    MOST_CALL_OPERANDS,
    MOST_VALUES,
    Call,
    Key,
)
from lucid.runtime.entry.programs import MOST_OUTPUTS, NOTHING, Program as ProgramWord
from lucid.tensor.combined import Combination
from lucid.tensor.context import context, within
from lucid.tensor.core import LEFT, MISSED, TensorCore, apply_op, from_array
from lucid.tensor.levels import Level, Result
from lucid.tensor.objects import Offsets, Tables, template_of
from lucid.tensor.size import Size
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import most_overwritten, overwrite_, write_

if TYPE_CHECKING:
    from lucid.autograd.function import Function
    from lucid.autograd.native import Forward

Run = Callable[[tuple[Any, ...]], Any]


class Overwrite(NamedTuple):
    """Lets an op replace elements of an operand, in place; that comes first."""

    op: Op
    attributes: Attributes

    def __call__(self, given: tuple[Any, ...]) -> None:
        target = given[0]
        operands = self._ordered(given)
        if not overwrite_(target, self.op, operands, self.attributes):
            if isinstance(self.op.overwrite, Combination):
                raise LucidError("its ops go one by one, this time")
            write_(target, apply_op(self.op, operands, self.attributes))  # type: ignore[arg-type]

    def _ordered(self, given: Sequence[Any]) -> list[Any]:
        """Operands as the op has them."""
        place = self.op.overwritten
        return [*given[1 : place + 1], given[0], *given[place + 1 :]]

    def of_arrays(self, given: Sequence[TensorCore]) -> Callable[..., bool]:
        """The same with arrays of the types of these; False: these need another way."""
        overwrite = self.op.overwrite
        if isinstance(overwrite, Combination):
            return overwrite.program(*[x._type for x in given])
        attributes = {**self.attributes, "most": most_overwritten(given[0]._type.size)}
        ordered = self._ordered if self.op.overwritten else None
        assert overwrite is not None

        def run(memory: np.ndarray, *others: np.ndarray) -> bool:
            for other in others:
                if np.may_share_memory(memory, other):
                    return False
            arrays = (memory, *others) if ordered is None else ordered((memory, *others))
            return overwrite(*arrays, **attributes)

        return run


class Program(NamedTuple):
    """A Function that is a native program.

    Attributes:
        forward: that of the call; None: it has none of its own.
    """

    function: type[Function]
    forward: Forward | None

    def __call__(self, inputs: tuple[Any, ...]) -> Any:
        """What it returns. Raises `LucidError` where its ops go one by one, this time."""
        result = call_natively(self.function, inputs)
        if result is NotImplemented:
            raise LucidError("it is no program")
        return result

    def saved(self) -> list[int]:
        """What a backward needs, by numbers of operands or outputs, as `entry.Program` has it."""
        forward = self.forward
        assert forward is not None
        numbers: list[int] = []
        for source in forward.saved or ():
            kind, number = source or ("", 0)
            place = {"input": number, "output": -1 - number, "extra": -1 - forward.count - number}
            numbers.append(place.get(kind, NOTHING))
        return numbers


Made = Op | Program | Run  # what gives a step's result
_NEVER = -1
MOST = 1024  # records of one function; calls with other arguments are Python's
_MOST_BYTES = 1 << 12  # of a tensor that is kept to be copied
_MOST_CONSTANT_BYTES = 1 << 16


class _Notes(Level):
    """Notes what a call does with its tensors, while it does it.

    Attributes:
        is_straight: whether the notes tell all of it.
        constants: what they were given besides the tensors.
        steps: an op with its operands and its attributes, a program, or a write: None or an
            `Overwrite`.
        results: what the ops gave; they are numbered after the tensors and the constants.
        states: of generators, which are constants too: draws read them, and write to them.
        written: what was written, by one write and those of draws before it. No op reads that, so
            all writes come last.
    """

    combines = True

    def __init__(self, tensors: Sequence[TensorCore]) -> None:
        self.is_straight = True
        self.tensors, self.results = tensors, list[TensorCore]()
        self.constants: list[Any] = []
        self.steps: list[tuple[Made | Overwrite | None, list[Any], Attributes]] = []
        self.states: list[TensorCore] = []
        self.written: list[TensorCore] = []
        self._grad_enabled = context.grad_enabled
        self._known = {id(tensor) for tensor in tensors}

    def _refuse(self) -> None:
        """Let Python call it again, unless something was written."""
        self.is_straight = False
        if not self.written:
            raise NotStraightError("it does more than apply ops")

    def acts_on(self, op: Op | None, tensors: Sequence[Any], position: int) -> bool:
        return True

    def apply(
        self, op: Op, operands: Sequence[TensorCore], attributes: Attributes, position: int
    ) -> TensorCore:
        is_plain = op.kind != "host" and len(operands) <= MOST_CALL_OPERANDS
        if not is_plain or context.grad_enabled != self._grad_enabled or self._are_new(operands):
            self._refuse()
        if op.kind == "random":
            self._keep_state(operands[0])
        result: TensorCore = _below(position, apply_op, op, operands, attributes)
        if not any(id(operand) in self._known for operand in operands):
            self.constants.append(result)  # as what it is made of
            return result
        self.note(op, operands, attributes, result)
        return result

    def note(
        self,
        made: Made,
        given: Sequence[Any],
        attributes: Attributes,
        result: TensorCore,
    ) -> None:
        """Note a step, and what it gave."""
        self._keep_constants(given)
        self.steps.append((made, [*given], attributes))
        self.results.append(result)
        self._known.add(id(result))

    def program(self, function: type[Function], inputs: tuple[Any, ...]) -> Any:
        is_plain = context.grad_enabled == self._grad_enabled
        if not is_plain or len(inputs) > MOST_CALL_OPERANDS or self._are_new(inputs):
            self._refuse()
        result = _below(0, call_natively, function, inputs)
        if not isinstance(result, TensorCore):
            self._refuse()
            return result
        self.note(Program(function, forward_of(function, inputs)), inputs, {}, result)
        return result

    def find(
        self, name: str, find: Callable[..., Sequence[np.ndarray]], tensors: Sequence[TensorCore]
    ) -> Sequence[TensorCore]:
        if len(tensors) > MOST_CALL_OPERANDS or self._are_new(tensors):
            self._refuse()
        arrays = find(*[x._array for x in tensors])
        if len(arrays) > 1:
            self._refuse()
        results = [*map(from_array, arrays)]
        self.note(partial(_found, find), tensors, {}, results[0])
        return results

    def _keep_constants(self, operands: Sequence[Any]) -> None:
        """Operands that nothing is known of are constants, if they aren't the call's memory."""
        for operand in operands:
            if id(operand) in self._known or any(operand is x for x in self.constants):
                continue
            if isinstance(operand, TensorCore):
                array = operand._array
                if array is None or self.shares(array) or operand.requires_grad:
                    self._refuse()
            self.constants.append(operand)

    def _keep_state(self, state: TensorCore) -> None:
        if id(state) not in self._known:
            self._keep_constants((state,))
            self._known.add(id(state))
            self.states.append(state)

    def _are_new(self, operands: Sequence[Any]) -> bool:
        """Whether one of them was written, by the call itself."""
        return any(
            isinstance(x, TensorCore) and _may_share(x, y) for y in self.written for x in operands
        )

    def shares(self, array: np.ndarray) -> bool:
        others = [tensor._array for tensor in (*self.tensors, *self.results)]
        return any(np.may_share_memory(array, x) for x in others if x is not None)

    def write(self, target: TensorCore, value: TensorCore, position: int) -> None:
        is_first = all(any(x is state for state in self.states) for x in self.written)
        if not is_first or id(target) not in self._known or self._are_new((target, value)):
            self._refuse()
        self._keep_constants((value,))
        self.steps.append((None, [target, value], {}))
        _below(position, write_, target, value)
        self.written.append(target)

    def update(
        self, target: TensorCore, op: Op, operands: Sequence[TensorCore], attributes: Attributes
    ) -> bool:
        step = Overwrite(op, attributes)
        are_known = {id(target), id(operands[op.overwritten])} <= self._known
        if self.written or not are_known or len(operands) > MOST_CALL_OPERANDS:
            self._refuse()
        self._keep_constants(operands)
        if not _below(0, overwrite_, target, op, operands, attributes):
            return False
        place = op.overwritten
        others = [*operands[:place], *operands[place + 1 :]]
        self.steps.append((step, [operands[place], *others], {}))
        self.written.append(target)
        return True

    def share_history(
        self,
        node: Callable[[TensorCore, Sequence[TensorCore]], object],
        of: TensorCore,
        parts: Sequence[TensorCore],
    ) -> None:
        if len(parts) >= MOST_CALL_OPERANDS:
            self._refuse()
        node(of, parts)
        self.note(partial(_shared, node), (of, *parts), {}, of)

    def look(self, tensor: TensorCore) -> None:
        self._refuse()

    def turn(self) -> None:
        self._refuse()

    def is_warned(self, *_: Any) -> bool:
        """Whether a warning is taken: it is given, and each call is to give it."""
        if self in context.levels:  # no other thread's
            self.turn()
        return False

    def checks(self, tensor: TensorCore, test: Callable[[np.ndarray], bool]) -> bool:
        array = tensor._array
        if array is None or not test(array):
            self._refuse()
            return False
        if id(tensor) in self._known:
            self.note(partial(_tested, test), (tensor,), {}, tensor)
        return True

    def alias(self, tensor: TensorCore, alias: TensorCore) -> None:
        self._refuse()

    def call(
        self,
        function: type[Any],
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        position: int,
    ) -> Result:
        self._refuse()
        return _below(position, call_function, function, inputs, keywords)  # type: ignore[no-any-return]

    def numbers(self) -> dict[int, int]:
        """The numbers of all values, by identity; what is checked comes again, later."""
        values = *self.tensors, *self.constants, *self.results
        return {id(tensor): number for number, tensor in reversed([*enumerate(values)])}


def _tested(test: Callable[[np.ndarray], bool], given: tuple[Any, ...]) -> Any:
    """The tensor of a check. Raises `LucidError` where it fails: Python says what is wrong."""
    if not test(given[0]._array):
        raise LucidError("a check fails")
    return given[0]


def _found(find: Callable[..., Sequence[np.ndarray]], given: tuple[Any, ...]) -> Any:
    """A tensor of the only array that is found. Raises `LucidError` where there is none."""
    (array,) = find(*[x._array for x in given])
    return from_array(array)


def _shared(
    node: Callable[[TensorCore, Sequence[TensorCore]], object], given: tuple[Any, ...]
) -> Any:
    """The tensor whose parts, the others, have got one node."""
    of, *parts = given
    node(of, parts)
    return of


def _below(position: int, function: Callable[..., Any], /, *args: Any) -> Any:
    """What a function returns where only the levels outside of one act."""
    levels = context.levels
    context.levels = levels[:position]
    try:
        return function(*args)
    finally:
        context.levels = levels


def _parts(value: Any) -> list[Any]:
    """What an argument consists of, as its key has it."""
    if type(value) in (tuple, Size, list):
        return [part for item in value for part in _parts(item)]
    if type(value) is slice:
        return _parts((value.start, value.stop, value.step))
    return [value]


class _Record(Tables):
    """The words of a call."""

    def __init__(self, offsets: Offsets, key: np.ndarray, kept: Sequence[Any]) -> None:
        super().__init__(offsets)
        self._kept += kept
        words = self.words = np.zeros(len(Call), np.int64)
        count = int(key[Key.WORDS])
        words[Call.HASH], words[Call.WORDS] = key[Key.HASH], count
        words[Call.WORDS_AT] = self._words(key[Key.WORDS_AT : Key.WORDS_AT + count].tolist())
        words[Call.OWNER] = id(self)
        words[Call.STEPS] = _NEVER

    def enter(self, notes: _Notes, returned: Any) -> None:
        """Let machine code make such calls, if these notes tell all that one did."""
        if not notes.steps and _is_fresh(returned, notes):
            notes.constants.clear()  # it may be one itself
            notes.note(ops.cast, (returned._own_copy(),), {"dtype": returned.dtype}, returned)
        outputs = [*returned] if isinstance(returned, (tuple, list)) else [returned]
        if len(outputs) > 1 and any(x is None for x in outputs):
            notes.constants.append(None)
        count = len(notes.tensors) + len(notes.constants) + len(notes.results)
        if not notes.is_straight or not notes.steps or count > MOST_VALUES:
            return
        made = {id(tensor) for tensor in notes.results}
        if len(notes.written) > len(notes.states):
            if returned is not None and returned is not notes.written[-1]:
                return
        elif not outputs or not all(id(x) in made or x is None for x in outputs):
            return
        given = {id(tensor) for tensor in notes.tensors}
        if any(x.requires_grad and x.is_leaf for x in notes.results if id(x) not in given):
            return  # which no op has made of it
        constants = [x for x in notes.constants if isinstance(x, TensorCore)]
        if any(_may_share(x, constant) for x in notes.results for constant in constants):
            return
        if sum(x._type.size * x.dtype.itemsize for x in constants) > _MOST_CONSTANT_BYTES:
            return
        numbers = notes.numbers()
        steps: list[int] = []
        # The states of generators come last, as nothing goes wrong there: the rest may be repeated.
        writes = [step for step in notes.steps if _is_write(step[0])][::-1]
        for op, operands, attributes in [x for x in notes.steps if not _is_write(x[0])] + writes:
            places = [numbers[id(x)] for x in operands]
            if isinstance(op, Overwrite):
                step = self._overwrite(op, operands)
            else:
                step = self._write(*operands) if op is None else self._op(op, attributes, operands)
            program = self._program(op, operands, places) if isinstance(op, Program) else 0
            steps += *step, self._words(places), program
        words = self.words
        words[Call.STEPS], words[Call.STEPS_AT] = len(notes.steps), self._words(steps)
        words[Call.WRITES] = len(writes)
        words[Call.CONSTANTS] = len(notes.constants)
        words[Call.CONSTANTS_AT] = self._words([self._keep(x) for x in notes.constants])
        words[Call.RESULTS] = len(outputs)
        if returned is not None:
            words[Call.RESULTS_AT] = self._words([numbers[id(x)] for x in outputs])
        words[Call.KIND] = self._kind(returned)

    def _op(self, op: Made, attributes: Attributes, operands: list[Any]) -> tuple[int, ...]:
        given = self._keep(attributes) if isinstance(op, Op) else 0
        return self._keep(op), given, len(operands)

    def _program(self, program: Program, operands: list[Any], places: list[int]) -> int:
        """How machine code runs a program; 0: Python does."""
        cls, forward = program
        if forward is None or forward.code.call is None or forward.is_tuple:
            return 0
        types = forward.code.types
        if len(types) > MOST_OUTPUTS:
            return 0
        tensors = [(n, x) for n, x in zip(places, operands, strict=True) if _is_tensor(x)]
        given = [(n, int(context.grad_enabled and x.requires_grad)) for n, x in tensors]
        templates = [(0, *self._tensor(type, template_of(type), 0)) for type in types]
        words = dict.fromkeys(ProgramWord, 0)
        words[ProgramWord.FUNCTION] = self._keep(forward.code.call)
        words[ProgramWord.COUNT] = len(given)
        words[ProgramWord.OPERANDS_AT] = self._words([*chain.from_iterable(given)])
        words[ProgramWord.OUTPUTS] = len(types)
        words[ProgramWord.TEMPLATES_AT] = self._words([*chain.from_iterable(templates)])
        if forward.tracked and any(is_wanted for _, is_wanted in given):
            ctx, saved = forward.new_ctx(cls), program.saved()
            words[ProgramWord.NODE] = self._template(ctx, BackwardCFunction)
            words[ProgramWord.ATTRIBUTES] = self._keep(ctx.__dict__)
            words[ProgramWord.SAVED] = -1 if forward.saved is None else len(saved)
            words[ProgramWord.SAVED_AT] = self._words(saved)
            words[ProgramWord.SAVED_NAME] = self._keep("_saved")
        return self._words([*words.values()])

    def _overwrite(self, step: Overwrite, operands: list[Any]) -> tuple[int, ...]:
        run = step.of_arrays(operands)
        return self._keep(step), self._keep(run), -len(operands)

    def _write(self, target: TensorCore, value: TensorCore) -> tuple[int, ...]:
        is_same, type = value._type is target._type, target._type
        fits = is_same or (not value._type.shape and value._type.dtype is type.dtype)
        return 0, type.size * type.dtype.numpy.itemsize if is_same else 0, 2 if fits else 0

    def _kind(self, returned: Any) -> int:
        if returned is None:
            return IS_NONE
        if isinstance(returned, TensorCore):
            return IS_TENSOR
        kind: Any = type(returned)
        return IS_TUPLE if kind is tuple else self._keep(getattr(kind, "_make", kind))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, TensorCore)


def _is_write(step: Made | Overwrite | None) -> bool:
    return step is None or isinstance(step, Overwrite)


def _is_fresh(returned: Any, notes: _Notes) -> bool:
    """Whether a call of no ops has made a tensor out of its other arguments, by copy again."""
    if not isinstance(returned, TensorCore) or returned.requires_grad:
        return False
    array = returned._array
    assert array is not None
    is_small = array.nbytes <= _MOST_BYTES and array.flags.c_contiguous
    is_new = returned._base is None and not returned._chain and array is returned._storage.array
    return is_small and is_new and not notes.shares(array) and type(returned) is Tensor


def _may_share(x: TensorCore, y: TensorCore) -> bool:
    assert x._array is not None and y._array is not None
    return np.may_share_memory(x._array, y._array)


class Calls:
    """The table of records.

    Attributes:
        key: where machine code puts the words of a key.
        table: addresses of records, and hashes of keys that came once.
    """

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets
        self.key = np.zeros(Key.SIZE, np.int64)
        self.table = np.zeros(2 * CALL_SLOTS, np.int64)
        self.forget()

    def forget(self) -> None:
        """Forget all calls."""
        self.table[:] = 0
        self._records: list[_Record | None] = [None] * CALL_SLOTS
        self._counts: dict[Callable[..., Any], int] = {}

    def record(
        self,
        call: Callable[..., Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> Any:
        """What a function returns, whose call was just found to come again.

        call: the machine code, which writes the key: another thread may have asked it meanwhile.
        """
        key = np.zeros(Key.SIZE, np.int64)
        made = call(function, args, keywords, key)
        if made is LEFT:
            return function(*args, **keywords)
        if made is not MISSED:
            return made
        count = self._counts[function] = self._counts.get(function, 0) + 1
        if count > MOST:
            return function(*args, **keywords)
        parts = [part for value in (*args, *keywords.values()) for part in _parts(value)]
        notes = _Notes([part for part in parts if isinstance(part, TensorCore)])
        kept = [part._type if isinstance(part, TensorCore) else part for part in parts]
        record = _Record(self._offsets, key, [*kept, *map(type, parts), *keywords])
        is_told, returned = True, None
        try:
            takers.append(notes.is_warned)
            returned = within({"levels": [notes]}, function, *args, **keywords)
        except Exception as error:
            if notes.written or is_interrupt(error):
                raise
            is_told = isinstance(error, NotStraightError)
            notes.is_straight = False
        finally:
            takers[:] = [taker for taker in takers if taker != notes.is_warned]
        if is_told:
            record.enter(notes, returned)
            self._put(int(key[Key.SLOT]), record)
        if notes.is_straight or notes.written:
            return returned
        return function(*args, **keywords)  # what is wrong it says outside of a level

    def _put(self, slot: int, record: _Record) -> None:
        there = self._records[slot]
        for place, kept in ((slot ^ 1, there), (slot, record)):
            if kept is not None:
                self.table[place] = kept.words.ctypes.data  # before the one that is there may end
                self._records[place] = kept
