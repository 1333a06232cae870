"""Tensors that some of the records which a step draws have, and others don't: `next_state=None`.

A column has zeros where a record has None, and a vector says which have a tensor. The user's code
gets an `OptionalRow` for each record. Whether that is None is a number of the call, so that a list
of such answers is a mask; a comprehension that keeps those that aren't None gives a list of the
rows at which the mask is true. Whoever does anything else with one runs op by op.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lucid.compiler.guards.events import Stack
from lucid.compiler.inputs.late import Unseen, looks
from lucid.compiler.recording.late.filled_lists import Rows
from lucid.compiler.recording.loops.loop_code import list_without_none
from lucid.tensor.core import of_value

if TYPE_CHECKING:
    import types

    from lucid.compiler.recording.exits import Exits
    from lucid.tensor.tensor import Tensor

HINT = (
    "let [x is not None for x in …] and [x for x in … if x is not None] be all that asks for it, "
    "or have a tensor of zeros there, and a number that tells"
)


class OptionalColumn:
    """One tensor of all records that have one.

    Attributes:
        rows: of all of them; where one has None, there are zeros.
        is_there: which of them have a tensor.
        of: what has given the records, in messages.
        is_alone: whether an item of those that are there can be had alone; number: None, they are
            tensors.
    """

    is_alone, number = False, None

    def __init__(self, exits: Exits, rows: Tensor, is_there: Tensor, of: str) -> None:
        self.exits, self.rows, self.is_there, self.of = exits, rows, is_there, of
        self.shown = exits.shown
        self._answers = [exits.recorder.value_of(x) for x in (~is_there, is_there)]

    @property
    def length(self) -> int:
        return int(self.rows._type.shape[0])

    def answers(self, number: int) -> tuple[Any, Any]:
        """What `x is not None` gives of one row where Python finds False, and where it finds True.

        So the answer of `x is None`, which Python finds to be False, is the first.
        """
        text = f"whether {self.of} has given a None"
        missing, there = (
            self.exits.number(
                column,
                self.exits.recorder.value_of(of_value(column)[number]),
                (number,),
                text,
                bool,
            )
            for column in self._answers
        )
        return missing, there

    def refuse(self) -> NoReturn:
        what = (
            f"it looks at what is None in some of the records of {self.of}, and a tensor in others"
        )
        self.exits.op_by_op(what, HINT)
        raise AssertionError


class OptionalRow(Unseen):
    """A tensor or None, as one record has it."""

    __slots__ = ("column", "number")

    def __init__(self, column: OptionalColumn, number: int) -> None:
        self.column, self.number = column, number

    def _look(self, *_: Any) -> NoReturn:
        self.column.refuse()


looks(OptionalRow, "call")


def column_of(items: Any) -> OptionalColumn | None:
    """The column whose rows some items are, all of them in their order; None: they aren't."""
    if type(items) not in (tuple, list) or not items or type(items[0]) is not OptionalRow:
        return None
    column: OptionalColumn = items[0].column
    is_whole = len(items) == column.length and all(
        type(x) is OptionalRow and x.column is column and x.number == i for i, x in enumerate(items)
    )
    return column if is_whole else None


def without_none(items: Sequence[Any], code: types.CodeType, offset: int) -> Iterator[Any] | None:
    """What a comprehension that leaves out what is None goes over instead: nothing.

    As it comes to its end, `Rows` take the place of its list.

    offset: of the instruction that asks for its iterator.
    """
    column = column_of(items)
    place = None if column is None else list_without_none(code, offset)
    return None if column is None or place is None else _ended(column, place)


def _ended(column: OptionalColumn, place: int) -> Iterator[Any]:
    Stack(sys._getframe(1))[place] = Rows(column.rows[column.is_there], column)
    yield from ()
