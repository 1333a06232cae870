"""Places on the short way: tensors and numbers that a step reads there, and what it binds."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, NamedTuple

from lucid.codegen.entry_words import IN_CELL, IN_DICT, IN_LIST
from lucid.compiler.guards.guard import CONTENTS
from lucid.compiler.guards.places import Flag, Memory, Place
from lucid.compiler.inputs.cells import FormulaGuard
from lucid.compiler.inputs.scalars import Formula, Number
from lucid.compiler.inputs.signature import Call
from lucid.compiler.programs.guards import Guards
from lucid.compiler.results.outcomes import Outcome, Run
from lucid.compiler.results.rebinding import Rebinding
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore

_SIMPLE = (Place, Memory, Flag)
Kind = type | None  # of a number; None: a tensor


class Read(NamedTuple):
    """How a place is read.

    Attributes:
        size: how many entries the tuple has that is there; -1: there is none.
        kinds: what each of them is, or what is there.
    """

    place: Place
    size: int
    kinds: list[Kind]


class PlainPlaces:
    """Reads and binds a program's places. Each holds a tensor, a number or a tuple of such.

    Attributes:
        reads: how each place is read.
        early: numbers among the results, which are taken before the step runs.
    """

    def __init__(
        self,
        rebinding: Rebinding,
        reads: list[Read],
        finals: Sequence[Outcome],
        early: Sequence[Outcome],
        guards: Guards,
    ) -> None:
        self.reads = reads
        self.early = early
        self._rebinding = rebinding
        self._finals = finals
        self._guards = guards
        self._ready: Run | None = None  # the call that runs, where something is taken early
        self._with_numbers = [(p.found, size, kinds) for p, size, kinds in reads if any(kinds)]

    @property
    def is_bound(self) -> bool:
        """Whether there is something to do after the step has run."""
        return bool(self._finals or self.early)

    def numbers(self) -> list[Number]:
        """The numbers that are there. Raises `ValueError` when something else is."""
        numbers: list[Number] = []
        for find, size, kinds in self._with_numbers:
            value = find()
            if size < 0:
                value = (value,)
            elif value.__class__ is not tuple or len(value) != size:
                raise ValueError("another kind of value is there")
            for leaf, kind in zip(value, kinds, strict=True):
                if kind is not None and leaf.__class__ is not kind:
                    raise ValueError("another kind of number is there")
                if kind is not None:
                    numbers.append(leaf)
        return numbers

    def begin(self, output_count: int) -> None:
        """Take what is to be taken before the step runs. Raises what a formula raises."""
        call = Call.of_tensors(())
        call.floats = self.numbers()
        run = Run(call, output_count)
        for outcome in self.early:
            outcome.of(run)
        self._ready = run

    def run(self, output_count: int, tensors: Sequence[TensorCore]) -> Run:
        """The call that is running, whose arguments are `tensors`."""
        run = self._ready
        if run is None:
            return Run(Call.of_tensors(tensors), output_count)
        run.call.tensors = tensors
        return run

    def deliver(self, run: Run) -> bool:
        """Bind the places; whether the guards are known to hold still.

        It may be done again for the same call.
        """
        finals = [final.of(run) for final in self._finals]
        before = epoch.count
        self._rebinding.deliver(finals, run.call, run.appended)
        self._ready = None
        return self._guards.follow_epoch(before)


def plain_reads(rebinding: Rebinding, values: Sequence[Any]) -> list[Read] | None:
    """How the places are read; None where native code can't, or one holds more than these."""
    for place in (*rebinding.read, *rebinding.bound):
        if type(place) not in _SIMPLE or place.key is CONTENTS:
            return None
    reads: list[Read] = []
    for place, value in zip(rebinding.read, values, strict=True):
        size = len(value) if type(value) is tuple else -1
        kinds = [_kind(leaf) for leaf in (value if size >= 0 else (value,))]
        if any(kind is object for kind in kinds):
            return None
        if any(kind is None for kind in kinds) and kind_of(place) is None:
            return None
        reads.append(Read(place, size, kinds))
    return reads


def kind_of(place: Place) -> int | None:
    """How native code finds what is in a place; None: it doesn't."""
    if type(place) is not Place:
        return None
    if type(place.owner) is types.CellType:
        return IN_CELL
    if type(place.owner) is list:
        return IN_LIST if type(place.key) is int and place.key >= 0 else None
    return IN_DICT if _is_dict(place.owner) else None


def _is_dict(owner: Any) -> bool:
    return isinstance(owner, dict) and type(owner).__getitem__ is dict.__getitem__


def _kind(leaf: Any) -> Kind:
    """`object` stands for what isn't plain."""
    if type(leaf) is int:
        return int
    if isinstance(leaf, TensorCore):
        return None
    return float if type(leaf) is float else object


def number_of(formula: Formula, places: PlainPlaces | None) -> Any:
    """A number that follows from those in the places."""
    return formula(() if places is None else places.numbers())


def failure_of(question: FormulaGuard, places: PlainPlaces) -> str | None:
    """Whether the step is specialized on something else than follows from the places."""
    return question.failure(places.numbers())
