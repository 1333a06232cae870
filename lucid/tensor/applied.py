"""The records by which machine code applies ops (`lucid/runtime/entry/apply.py`)."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid.autograd.native import row_major
from lucid.autograd.node import AccumulateGrad, OpNode, accumulator_of, sequence_numbers
from lucid.autograd.rules import Derivative, Rule, derivative_of
from lucid.autograd.saved import SavedTensor
from lucid.codegen.llvm.target import host_target
from lucid.dtypes import default_dtype_place
from lucid.ir import location
from lucid.ir.errors import LucidError
from lucid.ir.inference import MOST_ELEMENTS, Application, application
from lucid.ir.location import Spot, user_spot
from lucid.ir.op import Attributes, Op, Operand
from lucid.ir.ops.evaluation import quiet
from lucid.ir.types import DType, TensorType, f32, shared_type
from lucid.runtime.entry.apply import (
    APPLY,
    KEPT,
    MADE,
    MOST_OPERANDS,
    MOST_TOLD_APART,
    NO_HISTORY,
    SLOTS,
    UNIFORM_SLOTS,
    UNKNOWN_HISTORY,
    Record,
    Uniform,
    apply_module,
)
from lucid.runtime.entry.calls import CALL, MOST_TIMES
from lucid.runtime.entry.common import Common
from lucid.runtime.entry.layout import NativeFunctions
from lucid.runtime.entry.programs import UNWATCHED
from lucid.runtime.entry.walk import MOST_ARRAYS, STEP_OPERANDS, WALK, Derive
from lucid.runtime.once import Once
from lucid.tensor import slow_ops, write_locks
from lucid.tensor.calls import Calls
from lucid.tensor.context import context
from lucid.tensor.core import LEFT, MISSED, TensorCore, apply_in_python
from lucid.tensor.objects import Offsets, Tables, measured, own, template_of
from lucid.tensor.size import Size
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

# Ops without a record, between the first time and the latest of one that gets one, and how often it
# has come till then: a record takes as long as it saves in so many calls.
APART, TIMES = 128, 6
_ABSENT = "recorder", "forward", "mutation_guard"
_EMPTY = "levels", "saved_hooks"
_IDENTICAL = str, type(None), bool, type(...), DType  # what a call is known by, as it is


class _Record(Tables):
    """The words of an op on operands of some types, or on as many of any."""

    def __init__(self, offsets: Offsets, known: Application, *, is_of_any: bool = False) -> None:
        super().__init__(offsets)
        self._known = known
        histories = 1 << len(known.types) if len(known.types) <= MOST_TOLD_APART else 2
        count = Record.HISTORIES + histories
        words = self.words = np.zeros(count, np.int64)
        op, type = known.op, known.result_type
        words[Record.OP] = id(op)
        words[Record.COUNT] = len(known.types)
        for i, operand_type in enumerate(known.types):
            words[Record.TYPES + i] = self._keep(operand_type)
        words[Record.TENSOR + 1 : Record.TENSOR + 4] = self._tensor(type, template_of(type), 0)
        if is_of_any:
            words[Record.ATTRIBUTES], words[Record.STEP] = 1, int(op.is_view)
            words[Record.EVALUATE] = self._keep(op.evaluate)
        else:
            words[Record.ATTRIBUTES] = self._keep(known.attributes) if known.attributes else 0
            words[Record.STEP] = self._keep(known.step) if op.is_view else 0
            words[Record.EVALUATE] = self._keep(_evaluator(known))
            code = slow_ops.exact_code(op, known.types, known.attributes)
            words[Record.CODE] = 0 if code is None else self._keep(code)
        is_differentiable = op.vjp is not None and type.dtype.kind == "float"
        words[Record.HISTORIES + 1 :] = UNKNOWN_HISTORY if is_differentiable else NO_HISTORY

    def set_uniform(self) -> None:
        """Let it be for operands of one type each time, or numbers."""
        dtype = self._known.result_type.dtype
        self.words[Uniform.DTYPE] = self._keep(dtype)
        self.words[Uniform.NUMBER] = self._keep(shared_type(dtype, ()))

    def add_history(self, wanted: tuple[bool, ...]) -> None:
        """Enter what a node needs if the gradients of some of the operands are wanted."""
        place: int = Record.HISTORIES
        if len(wanted) <= MOST_TOLD_APART:
            place += sum(1 << i for i, is_wanted in enumerate(wanted) if is_wanted)
        elif any(wanted):
            place += 1
        is_told = len(wanted) <= MOST_TOLD_APART or all(wanted)
        if not is_told or self.words[place] != UNKNOWN_HISTORY:
            return
        known = self._known
        result = template_of(known.result_type)
        ends = (None,) * len(wanted)
        node = OpNode(known.op, (result,) * len(wanted), known.attributes, result, ends, known)
        node._derivative = derivative_of(known, wanted)
        needed = node._derivative.needed
        self.words[place] = self._words([self._template(node), len(needed), *needed])


class _Table(Tables):
    """The words of a rule."""

    def of_rule(self, rule: Rule) -> np.ndarray:
        steps: list[int] = []
        for number, evaluate, operands, attributes, is_view in rule.steps:
            numbers = [*operands, *[0] * (STEP_OPERANDS - len(operands))]
            has_some = int(bool(attributes))
            steps += number, self._keep(evaluate), len(operands), *numbers, has_some, int(is_view)
        results = [-1 if number is None else number for number in rule.results]
        words = {
            Derive.COUNT: rule.count,
            Derive.KEPT: rule.kept,
            Derive.STEPS: len(rule.steps),
            Derive.COPIED: len(rule.copied),
            Derive.RESULTS: len(results),
            Derive.STEPS_AT: self._words(steps),
            Derive.COPIED_AT: self._words(rule.copied),
            Derive.RESULTS_AT: self._words(results),
        }
        return np.array([words[word] for word in Derive], np.int64)


class Applied(Tables):
    """What machine code knows of ops, and the function that it is."""

    def __init__(self, offsets: Offsets, code: NativeFunctions) -> None:
        super().__init__(offsets)
        self._records: list[_Record | None] = [None] * SLOTS
        self._table = np.zeros(SLOTS, np.int64)
        self._forms: dict[tuple[Op, int, bool], _Record] = {}
        self._uniform: dict[tuple[Op, int, DType] | None, _Record] = {}
        self._uniform_table = np.zeros(UNIFORM_SLOTS, np.int64)
        self._templates: dict[TensorType, np.ndarray] = {}
        self._others = 0  # ops that there was no record of
        plan = self._plan = np.zeros(len(Common), np.int64)
        constants = {
            Common.NONE: None, Common.TRUE: True, Common.FALSE: False, Common.MISSED: MISSED,
            Common.TUPLE: tuple, Common.ARRAY: np.ndarray, Common.TENSOR: Tensor,
            Common.CORE: TensorCore, Common.CONTEXT: context, Common.DICT: "__dict__",
            Common.GRAD_ENABLED: "grad_enabled", Common.CONTIGUOUS: _contiguous, Common.SPOT: _spot,
            Common.FRAME: sys._getframe, Common.FILENAME: "co_filename",
            Common.PASSED: location.PASSED, Common.USERS: location.USERS,
            Common.SEQUENCE: sequence_numbers, Common.REPEATED: (LucidError, MemoryError),
            Common.LEFT: LEFT, Common.APPLY_OP: apply_in_python, Common.WRITE: write_,
            Common.LENT: "lent",
            Common.INT: int, Common.FLOAT: float, Common.LIST: list, Common.SLICE: slice,
            Common.SIZE: Size, Common.ALL: ..., Common.NODE: OpNode,
            Common.ACCUMULATOR: accumulator_of, Common.ADD: quiet(_sum),
            Common.APPLICATION: self._application, Common.DERIVATIVE: Derivative,
            Common.LEAF: AccumulateGrad, Common.ACQUIRE: write_locks.lock.acquire,
            Common.RELEASE: write_locks.lock.release, Common.HELD: write_locks.held,
            Common.COPY: np.ndarray.copy, Common.TEMPLATES: self.templates,
        }  # fmt: skip
        for word, value in constants.items():
            plan[word] = self._keep(value)
        plan[Common.ABSENT], plan[Common.ABSENT_AT] = len(_ABSENT), self._objects(_ABSENT)
        plan[Common.UNWATCHED_AT] = self._objects(UNWATCHED)
        plan[Common.EMPTY], plan[Common.EMPTY_AT] = len(_EMPTY), self._objects(_EMPTY)
        plan[Common.IDENTICAL_AT] = self._objects(_IDENTICAL)
        plan[Common.IDENTICAL] = len(_IDENTICAL)
        place, name = default_dtype_place()
        plan[Common.DEFAULTS], plan[Common.FLOATING] = self._keep(place), self._keep(name)
        plan[Common.TIMES] = MOST_TIMES
        self.calls = Calls(offsets)
        plan[Common.KEY_AT] = self.calls.key.ctypes.data
        plan[Common.CALLS_AT] = self.calls.table.ctypes.data
        plan[Common.NUMBERS_AT] = self._objects(range(-1, MOST_OPERANDS))
        plan[Common.TABLE_AT] = self._table.ctypes.data
        plan[Common.UNIFORM_AT] = self._uniform_table.ctypes.data
        plan[Common.THREAD_ITEMS] = own(None)
        tensor = template_of(TensorType(f32, ()))
        plan[Common.OPERAND] = self._template(SavedTensor(tensor, -1))
        plan[Common.RESULT] = self._template(SavedTensor(tensor, 0))
        self._kept.append(code)
        self.function: Callable[..., Any] = code.function(plan, APPLY)
        self.call: Callable[..., Any] = code.function(plan, CALL)
        self.walk: Callable[..., Any] = code.function(plan, WALK)
        self.made: Callable[..., Tensor] = code.function(plan, MADE)
        self.kept: Callable[..., SavedTensor] = code.function(plan, KEPT)

    def _objects(self, values: Sequence[Any]) -> int:
        return self._words([self._keep(value) for value in values])

    def templates(self, type: TensorType) -> np.ndarray:
        """The words of a new tensor's templates, for `made` and `kept`."""
        found: np.ndarray | None = self._templates.get(type)
        if found is None:
            words = [0, *self._tensor(type, template_of(type), 0)]
            found = self._templates[type] = np.array(words, np.int64)
        return found

    def enter_rule(self, derivative: Derivative) -> None:
        """Let the walk run a derivative's rule, if a table can hold it."""
        rule = derivative.rule
        steps = rule.steps
        most = max((len(step[2]) for step in steps), default=0)
        if (
            rule.code is not None
            or not rule.serves_arrays
            or rule.count > MOST_ARRAYS
            or most > STEP_OPERANDS
        ):
            return
        if not rule.table:
            table = _Table(self._offsets)
            rule.table[:] = table.of_rule(rule), table
        derivative.words, derivative.kept = rule.table

    def _application(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Any:
        """What is known of an op on operands that there is no record of; or `MISSED`.

        Then Python is to apply it: it raises an error, or `enter` is to be asked.
        """
        try:
            known = application(op, operands, attributes)
        except (LucidError, MemoryError):
            return MISSED
        if known.form is None:
            known.form = self._form(known)
        if known.form is False or self._is_due(known):
            return MISSED
        key = _key_of_uniform(known)
        if key is not None:
            record = self._uniform.get(key)
            if record is None:
                record = self._uniform[key] = _Record(self._offsets, known, is_of_any=True)
                record.set_uniform()
            self._uniform_table[self._plan[Common.UNIFORM_SLOT]] = record.words.ctypes.data
        return known

    def _is_due(self, known: Application) -> bool:
        """Whether an op on operands of such types, asked for again, is to have a record of these.

        That pays after some calls: those of a model's equal layers are too few, where each batch
        has a size of its own.
        """
        self._others += 1
        known.asked += 1
        if known.native is None:
            known.native = self._others
        is_number = type(known.native) is int
        return not is_number or (known.asked >= TIMES and self._others - known.native >= APART)

    def _form(self, known: Application) -> Any:
        """The words of an op on operands of any types; False where those of each matter."""
        op, type = known.op, known.result_type
        if op.kind in ("host", "random") or known.is_slow or type.size > MOST_ELEMENTS:
            return False
        key = _key_of_form(known)
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = _Record(self._offsets, known, is_of_any=True)
        return found.words

    def enter(self, known: Application, operands: Sequence[Operand]) -> None:
        """Enter an op on operands of such types, when it has been asked for often enough.

        That was just now, by a call of this thread. What the op has for operands of any types is
        entered at once. Types that aren't shared aren't known again.
        """
        tensors: Sequence[TensorCore] = operands  # type: ignore[assignment]
        wanted = tuple([context.grad_enabled and x.requires_grad for x in tensors])
        forms = self._forms.get(_key_of_form(known)), self._uniform.get(_key_of_uniform(known))
        for form in forms:
            if form is not None:
                form.add_history(wanted)
        if not self._is_due(known):
            return
        record = known.native
        if type(record) is int:
            types = [operand._type for operand in operands]
            is_shared = all(map(operator.is_, types, known.types))
            is_large = known.result_type.size > MOST_ELEMENTS  # the view may be refused
            if known.op.kind == "host" or is_large or not is_shared:
                return
            record = known.native = _Record(self._offsets, known)
        record.add_history(wanted)
        slot = int(self._plan[Common.SLOT])
        there, other = self._records[slot], self._records[slot ^ 1]
        if record is there or record is other:
            return
        if there is not None:
            self._put(slot ^ 1, there)
        self._put(slot, record)

    def _put(self, slot: int, record: _Record) -> None:
        self._table[slot], self._records[slot] = record.words.ctypes.data, record  # in this order


def _key_of_form(known: Application) -> tuple[Op, int, bool]:
    op = known.op
    return op, len(known.types), op.vjp is not None and known.result_type.dtype.kind == "float"


def _key_of_uniform(known: Application) -> tuple[Op, int, DType] | None:
    """None unless it is an op on elements whose result has the type of all that are no numbers."""
    op, result = known.op, known.result_type
    if not op.is_elementwise or known.attributes or known.is_slow or not result.shape:
        return None
    usual = result, shared_type(result.dtype, ())
    if any(type is not usual[0] and type is not usual[1] for type in known.types):
        return None
    return op, len(known.types), result.dtype


def _evaluator(known: Application) -> Callable[..., np.ndarray]:
    """The op on arrays of such types."""
    op = known.op
    is_native = op.kind == "random" or known.is_slow
    return slow_ops.evaluator(op, known.types, known.attributes) if is_native else op.evaluate


def _spot() -> Spot:
    """The line of the user's that has applied the op."""
    return user_spot()


def _sum(x: np.ndarray, y: np.ndarray, *into: np.ndarray) -> np.ndarray:
    """The sum of two arrays, into the memory of a third one if that is given."""
    added: np.ndarray = np.add(x, y, *into)
    return added


def _contiguous(array: Any) -> np.ndarray:
    """What an op has given, a scalar too, as an array of its own, row-major."""
    array = np.asarray(array)
    return array if array.flags.c_contiguous else row_major(array)


@Once
def applied() -> Applied | None:
    """What machine code does of ops; None where it does nothing."""
    found = measured()
    if found is None:
        return None
    layout, offsets = found
    return Applied(
        offsets, NativeFunctions(apply_module(host_target(), layout), APPLY, CALL, WALK, MADE, KEPT)
    )
