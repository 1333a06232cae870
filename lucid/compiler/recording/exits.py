"""Exits: what Python sees of a step's values while it is traced, as conditions of the graph.

A branch on a traced value is answered from the values of the call that is traced. The answer is a
`check` of the graph: the native step evaluates it before it stores anything. Where it comes out
otherwise, a program of another path through the user's code takes over. Exits and host calls are
in one order; what a run has found of both is its `Departure`, and a trace for another path is told
them, since NumPy may round otherwise than native code does.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.compiler.guards.collector import at_line
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.scalars import WHOLE, Composite, SymScalar, is_known_before
from lucid.compiler.inputs.signature import is_of_argument
from lucid.compiler.recording.late.late_numbers import LateList, LateScalar, LateSize, extent_of
from lucid.ir import ops
from lucid.ir.extents import LEAST, MOST, Extent, is_open
from lucid.ir.graph import computation_of
from lucid.ir.location import LIBRARY, Location, here
from lucid.ir.types import f64, i64
from lucid.tensor.context import context
from lucid.tensor.size import Size, new_size

if TYPE_CHECKING:
    from lucid.autograd.host_replay import OpenAxis
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.graph import Value
    from lucid.tensor.core import TensorCore


def number_at(place: Location | None, kind: str = "number") -> OpenAxis:
    """The key, in the form of an axis, for numbers that are needed as sizes in a line."""
    return kind, None if place is None else (place.file, place.line), 0, 0


HINT = (
    "return the tensor and look at it outside, or look at it in the forward of an "
    "autograd.Function, which the step calls"
)
LAST = 2**63 - 1  # that an i64 can be
_FEW_LISTED = 8  # whose numbers are looked at one by one, mostly
LISTED = 1024  # elements of a tensor that `tolist` gives at most
MOST_STEPS = 16  # by which an open size follows from others; one of more has a program for each
TRUTHS_LISTED = 64  # the same for bools, each of which is an exit


class Exits:
    """The exits of one trace.

    Attributes:
        path: the outcomes so far; texts: the questions, with the user's lines.
        sizes_asked: for exits that ask for a number, which may be a size, the key of its line.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._known_outcomes = context.told
        self.path: list[int] = []
        self.texts: list[str] = []
        self._answers: dict[Value, int] = {}
        self._numbers: dict[Any, LateScalar] = {}
        self._sizes: dict[Extent, LateSize] = {}
        self._sizes_found: dict[Any, Any] = {}
        self.sizes_asked: dict[int, OpenAxis] = {}
        self._error_state: Any = np.geterr()

    def error_state(self) -> dict[Any, Any]:
        """The settings for floating-point errors, by `np.errstate`, that the step has changed."""
        return {kind: how for kind, how in np.geterr().items() if how != self._error_state[kind]}

    def ask(self, question: Value, what: str, *, is_number: bool = False) -> int:
        """The outcome of an i64[] in this call, which the program is specialized on."""
        if question in self._answers:
            return self._answers[question]
        number, place = len(self.path), here()
        text = what if place is None else f"{what} at {place}   {place.text}"
        told = dict(self._known_outcomes[number : number + 1])
        if text not in told:  # of a trace that has found other places to be state
            self._known_outcomes = self._known_outcomes[:number]
        answer = told[text] if text in told else int(self._now(question))
        if answer == LAST:  # a check's end is excluded
            self.op_by_op(f"it looks at {answer}, the largest number of 64 bits")
        if is_number:
            self.sizes_asked[number] = number_at(place)
        self.texts.append(text)
        self.path.append(answer)
        self._answers[question] = answer
        with self.recorder.annotated():
            limits = {"low": answer, "high": answer + 1}
            attributes = {**limits, "message": str(number), "error": "exit"}
            self.recorder.graph.append(ops.check, (question,), attributes)
        return answer

    def as_size(self, number: SymScalar) -> Any:
        """A number as an argument of the library: an open size if its values differ in calls."""
        hosts, formula = self.recorder.hosts, number.formula
        if hosts.rounds or not hosts.opened or not issubclass(number.kind, WHOLE):
            return number
        if type(formula) is Composite and formula.count > MOST_STEPS:
            return number
        place = number_at(here())
        found = None if place in hosts.closed else self._size_of(number, place)
        return number if found is None else found

    def _size_of(self, number: Any, place: OpenAxis) -> Any:
        """The size of a number, open or an int, by the sizes that it is computed of; None: no size.

        A number that is a size in one line is a size in all lines.
        """
        if type(number) not in (SymScalar, LateScalar):
            return int(number) if isinstance(number, np.integer) else extent_of(number)
        if number.size is None and number.made_of is not None:
            meaning, args = number.made_of
            sides = [self._size_of(x, place) for x in args]
            is_division = meaning in (operator.floordiv, operator.mod)
            if None not in sides and not (is_division and sides[1] == 0):
                number.size = meaning(*sides)
        return self.size_found(number, place)

    def size_found(self, number: SymScalar, place: OpenAxis) -> Any:
        """A size, open or an int, for a number by itself; None: it is no size."""
        is_open = place in self.recorder.hosts.opened
        is_known = type(number) is SymScalar
        if number.size is None and is_open and is_known and not LEAST <= number.now <= MOST:
            number.size = operator.index(number)  # which the step is specialized on
        if number.size is None and (is_open or number.is_recorded):
            whole = self.recorder.live_value(number, i64)
            key = computation_of(whole)
            if key not in self._sizes_found and is_open:
                self._sizes_found[key] = self._new_size(number, whole, place)
            number.size = self._sizes_found.get(key)
        return number.size

    def _new_size(self, number: Any, whole: Value, place: OpenAxis) -> Any:
        """A new size for a number, which each call knows as it begins, or finds in the step.

        It is open, an int, or None if the number can't be a size.
        """
        if type(number) is SymScalar:
            return self.recorder.size_of_number(whole, int(number.now), place)
        node = self.recorder.hosts.size(whole, place)
        return next(iter(node.results[0].type.shape), None)

    def opened(self, number: Any, line: Location | None) -> Any:
        """A number as an open size if that is possible; else as an int that is guarded."""
        hosts, place = self.recorder.hosts, number_at(line)
        if hosts.rounds or place in hosts.closed:
            return operator.index(number)
        if place not in hosts.opened:
            if not hosts.may_open:
                return operator.index(number)
            raise RestartTrace(f"has {number.text} for a size", "opened", [place])
        found = self.size_found(number, place)
        return operator.index(number) if found is None else found

    def note_size(self, number: SymScalar) -> None:
        """Begin again with an open size where the library needs a live number as an int."""
        hosts = self.recorder.hosts
        if hosts.rounds or not hosts.may_open or not is_known_before(number):
            return
        place = number_at(here())
        if place in hosts.opened or place in hosts.closed:
            return
        if sys._getframe(3).f_code.co_filename.startswith(LIBRARY):
            raise RestartTrace(f"has {number.text} for a size", "opened", [place])

    def refuse_given(self, size: Extent) -> None:
        """Begin again with a known size where the user's code looks at an open one of an argument.

        As an exit, each size would be a path that calls of other sizes leave after they have begun.
        """
        closed = size.sizes.origins_of(size.sizes.symbols_in(size.key))
        if not self.recorder.has_given_sizes and all(map(is_of_argument, closed)):
            raise RestartTrace("looks at a size of an argument", "closed", closed)

    def refuse_short(self, size: Extent) -> None:
        """Begin again, with this size known, where that of arguments is too small for a loop."""
        symbols = size.sizes.symbols_in(size.key)
        places = size.sizes.origins_of(symbols)
        if len(symbols) == 1 and places and all(map(is_of_argument, places)):
            least = size.sizes.hints[next(iter(symbols))] + 1
            found = [(place, least) for place in places]
            raise RestartTrace("goes round too few times for any number of them", "least", found)

    def end(self) -> None:
        """Let go of the numbers, which refer to this."""
        self._numbers.clear()
        self._sizes.clear()
        self._sizes_found.clear()
        self._answers.clear()

    def holds(self, condition: Value, what: str, known: bool | None = None) -> bool:
        """The outcome of a bool[]; no exit is needed if constants alone decide it."""

        def find() -> int:
            if known is not None:
                return known
            with self.recorder.annotated():
                question = ops.cast(condition, dtype=i64)
            return self.ask(question, what)

        return self.recorder.ended_loops.ask(condition, find)

    def _now(self, value: Value) -> Any:
        return self.now_of(value).item()

    def now_of(self, value: Value) -> np.ndarray:
        """What a value is in the call that is traced."""
        with self.recorder.noting_failure():
            return self.recorder.hosts.present.of([value])[0]

    def op_by_op(self, what: str, hint: str = HINT) -> Any:
        """Give the trace up where Python needs to know what only a call computes."""
        self.recorder.run_op_by_op(f"{what}{at_line(here())}\nhint: {hint}")

    def call(self, name: str, *args: Any, **kind: Any) -> tuple[Sequence[Value], Any]:
        """`HostRecording.call`, with arrays that the function can't write."""
        try:
            return self.recorder.hosts.call(name, *args, **kind)
        except ValueError as error:
            if "read-only" in str(error):
                self.op_by_op(f"it writes an array that the step computes, by {name}()")
            raise

    def latest(self) -> list[Value]:
        """What the step computed last, for calls that are to follow it."""
        found = (node.results[0] for node in reversed(self.recorder.graph.nodes) if node.results)
        value = next(found, None)
        return [] if value is None else [value]

    # ------------------------------------------------------------------ what is asked of tensors

    def of(self, tensor: TensorCore, what: str) -> Any:
        """What Python gets for the only element of a tensor, by `bool()`, `int()` or `item()`."""
        value = self.only(self.recorder.value_of(tensor, what))
        if what == "bool()" or value.dtype.kind == "bool":
            return self.truth(value, what)
        number = self.number(value, value, (), f"a tensor's {what}")
        return int(number) if what == "int()" else number

    def list_of(self, whole: Value) -> Any:
        """`tolist()`: numbers that are known after the call; truths are exits each.

        A list of any size, or of more than a few, is one that each call has, until the step looks
        into it.
        """
        size, is_bool = whole.type.size, whole.dtype.kind == "bool"
        is_many = is_open(size) or size > _FEW_LISTED
        if whole.shape and is_many and here() not in self.recorder.at_start.looked_at:
            return LateList(self, whole, here())
        if size > (TRUTHS_LISTED if is_bool else LISTED):
            self.op_by_op(f"it lists the {size} elements of a tensor, by tolist()")
        with self.recorder.annotated():
            flat = ops.reshape(whole, shape=(size,))
        items = np.empty(size, object)
        for i in range(size):
            with self.recorder.annotated():
                part = ops.slice_axis(flat, 0, i, i + 1)
                element = ops.reshape(part, shape=())
            if is_bool:
                items[i] = self.truth(element, "tolist()")
            else:
                items[i] = self.number(whole, element, (i,), "an element of tolist()")
        return items.reshape(whole.shape).tolist()

    def shown(self, x: Any) -> Any:
        """Sizes as the user's code sees them: an open one is a late number."""
        if type(x) is Size:
            return new_size(Size, map(self.shown, x)) if any(map(is_open, x)) else x
        if not is_open(x):
            return x
        if x not in self._sizes:
            with self.recorder.annotated():
                value = self.recorder.graph.constant(x, i64)
            made: Any = self.number(value, value, (), "a size", make=LateSize)
            made.extent, self._sizes[x] = x, made
        return self._sizes[x]

    def truth(self, value: Value, what: str, known: bool | None = None) -> bool:
        """The outcome of `bool()` of a 0-d value."""
        with self.recorder.annotated():
            if value.dtype.kind != "bool":
                value = ops.ne(value, self.recorder.graph.constant(0, value.dtype))
        return self.holds(value, what, known)

    def only(self, value: Value) -> Value:
        """The only element of a value, as a 0-d one."""
        with self.recorder.annotated():
            return ops.reshape(value, shape=()) if value.shape else value

    def number(
        self,
        base: Value,
        element: Value,
        index: tuple[int, ...],
        what: str,
        kind: type | None = None,
        make: type[LateScalar] = LateScalar,
    ) -> LateScalar:
        """The number that an element is after the call.

        base: the output that it is read from.
        kind: its class; None: `int` or `float`. make: the class of what stands for it.
        """
        key = base, index
        found = self._numbers.get(key)
        if found is None:
            wide = i64 if element.dtype.kind == "int" else f64
            with self.recorder.annotated():
                value = element if element.dtype is wide else ops.cast(element, dtype=wide)
            at = index[0] if index else 0

            def formula(known: Any) -> Any:
                item = known[base].item(at)
                return item if kind is None else kind(item)

            def find() -> Any:
                now = self._now(element)
                return now if kind is None else kind(now)

            of = element.dtype.numpy.type().item().__class__ if kind is None else kind
            found = make(of, find, formula, what, self, {base: base}, value)
            self._numbers[key] = found
        return found
