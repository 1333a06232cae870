"""Exits: what Python sees of a step's values while it is traced, as conditions of the graph.

A branch on a traced value is answered from the values of the call that is traced. The answer is a
`check` of the graph: the native step evaluates it before it stores anything. Where it comes out
otherwise, a program of another path through the user's code takes over. Exits and host calls are
in one order; what a run has found of both is its `Departure`, and a trace for another path is told
them, since NumPy may round otherwise than native code does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.host_replay import Made
from lucid.compiler.recording.late_numbers import LateScalar
from lucid.ir import ops
from lucid.ir.location import here
from lucid.ir.types import DType, f64, i64
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.compiler.programs.program import Program
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.graph import Value
    from lucid.tensor.core import TensorCore

HINT = (
    "return the tensor and look at it outside, or look at it in the forward of an "
    "autograd.Function, which the step calls"
)
LISTED = 1024  # elements of a tensor that `tolist` gives at most
TRUTHS_LISTED = 64  # the same for bools, each of which is an exit


@dataclass(slots=True, eq=False)
class Departure:
    """Why a run of a program has ended before anything was stored.

    Attributes:
        path: the outcomes of the exits that were passed, with the one that came out otherwise.
        made: what host calls have done so far, in their order.
        reason: what is another thing: old -> new.
        program: the one that was left.
    """

    path: tuple[int, ...]
    made: Sequence[Made]
    reason: str
    program: Program

    def goes_beyond(self, other: Departure) -> bool:
        """Whether it has come further than an earlier one of the same call."""
        return (len(self.made), len(self.path)) > (len(other.made), len(other.path))


class Exits:
    """The exits of one trace.

    Attributes:
        path: the outcomes so far; texts: what was asked, with the user's line.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._told = context.told
        self.path: list[int] = []
        self.texts: list[str] = []
        self._answers: dict[Any, int] = {}
        self._numbers: dict[Any, LateScalar] = {}

    def ask(self, question: Value, what: str) -> int:
        """The outcome of an i64[] in this call, which the program is specialized on."""
        key = _key_of(question)
        if key in self._answers:
            return self._answers[key]
        number = len(self.path)
        if number < len(self._told):
            answer = self._told[number]
        else:
            answer = int(self._now(question))
        place = here()
        self.texts.append(what if place is None else f"{what} at {place}   {place.text}")
        self.path.append(answer)
        self._answers[key] = answer
        with self._recorder.annotated():
            limits = {"low": answer, "high": answer + 1}
            attributes = {**limits, "message": str(number), "error": "exit"}
            self._recorder.graph.append(ops.check, (question,), attributes)
        return answer

    def end(self) -> None:
        """Let go of the numbers, which refer to this."""
        self._numbers.clear()
        self._answers.clear()

    def holds(self, condition: Value, what: str) -> bool:
        """The outcome of a bool[]."""
        with self._recorder.annotated():
            question = ops.cast(condition, dtype=i64)
        return bool(self.ask(question, what))

    def _now(self, value: Value) -> Any:
        return self._recorder.hosts.present.of([value])[0].item()

    def op_by_op(self, what: str, hint: str = HINT) -> Any:
        """Give the trace up where Python needs to know what only a call computes."""
        place = here()
        line = "" if place is None else f"\n  at {place}   {place.text}"
        self._recorder.run_op_by_op(f"{what}{line}\nhint: {hint}")

    # ------------------------------------------------------------------ what is asked of tensors

    def of(self, tensor: TensorCore, what: str) -> Any:
        """What Python gets for the only element of a tensor, by `bool()`, `int()` or `item()`."""
        with self._recorder.annotated():
            value = self._recorder.value_of(tensor, what)
            value = ops.reshape(value, shape=()) if value.shape else value
        if what == "bool()" or value.dtype.kind == "bool":
            return self._truth(value, what)
        if what == "int()":
            return self._whole(value, what)
        return self.number(value, value, (), f"a tensor's {what}")

    def list_of(self, tensor: TensorCore) -> Any:
        """`tolist()`: numbers that are known after the call; truths are exits each."""
        size = tensor._type.size
        if size > (TRUTHS_LISTED if tensor.dtype.kind == "bool" else LISTED):
            self.op_by_op(f"it lists the {size} elements of a tensor, by tolist()")
        with self._recorder.annotated():
            whole = self._recorder.value_of(tensor, "tolist()")
            flat = ops.reshape(whole, shape=(size,))
        items = np.empty(size, object)
        for i in range(size):
            with self._recorder.annotated():
                part = ops.slice_axis(flat, 0, i, i + 1)
                element = ops.reshape(part, shape=())
            if tensor.dtype.kind == "bool":
                items[i] = self._truth(element, "tolist()")
            else:
                items[i] = self.number(whole, element, (i,), "an element of tolist()")
        return items.reshape(tensor._type.shape).tolist()

    def _truth(self, value: Value, what: str) -> bool:
        with self._recorder.annotated():
            if value.dtype.kind != "bool":
                value = ops.ne(value, self._recorder.graph.constant(0, value.dtype))
        return self.holds(value, what)

    def _whole(self, value: Value, what: str) -> int:
        if value.dtype.kind == "float":
            now = self._now(value)
            if not abs(now) < 2.0**63:
                return int(now) if not np.isfinite(now) else self.op_by_op(f"it asks for {what}")
        with self._recorder.annotated():
            return self.ask(self._as(value, i64), what)

    def _as(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype is dtype else ops.cast(value, dtype=dtype)

    def number(self, base: Value, element: Value, index: tuple[int, ...], what: str) -> LateScalar:
        """The number that an element is after the call; base: the output that it is read from."""
        key = base, index
        found = self._numbers.get(key)
        if found is None:
            wide = i64 if element.dtype.kind == "int" else f64
            with self._recorder.annotated():
                value = self._as(element, wide)
            at = index[0] if index else 0

            def formula(known: Any) -> Any:
                return known[base].item(at)

            now = self._now(element)
            found = LateScalar(now, formula, what, self, self._recorder, {base: base}, value)
            self._numbers[key] = found
        return found


def _key_of(question: Value) -> Any:
    """What tells questions apart: the same one is asked once."""
    keys: list[Any] = []
    pending = [question]
    while pending:  # through what asking itself has appended
        value = pending.pop()
        node = value.producer
        if node is None or node.op not in _ASKING:
            keys.append(value)
            continue
        keys += [node.op, tuple(sorted((k, str(x)) for k, x in node.attributes.items()))]
        pending += node.operands
    return tuple(keys)


_ASKING: set[Any] = {ops.cast, ops.constant, ops.reshape}
_ASKING |= {ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge, ops.abs}
