"""Places on the short way: tensors and numbers that a step reads there, and what it binds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lucid.compiler.guards.guard import CONTENTS
from lucid.compiler.guards.places import Flag, Memory, Place
from lucid.compiler.inputs.cells import FormulaGuard
from lucid.compiler.inputs.scalars import Formula, Number
from lucid.compiler.inputs.signature import Call
from lucid.compiler.results.outcomes import Outcome, Run, Same
from lucid.compiler.results.rebinding import Rebinding
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore

_Finder = tuple[Callable[[], Any], int, list["Kind"]]
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
        ready: the call that runs, where something is taken early; None once all is bound.
        on_change: is told from where binding has moved the epoch; answers whether guards hold.
    """

    def __init__(
        self,
        rebinding: Rebinding,
        reads: list[Read],
        finals: Sequence[Outcome],
        early: Sequence[Outcome],
        on_change: Callable[[int], bool],
    ) -> None:
        self.reads = reads
        self.early = early
        self.ready: Run | None = None
        self.on_change = on_change
        pairs = list(zip(rebinding.bound, finals, strict=True))
        simple = [pair for pair in pairs if _is_entry(*pair)]
        self._entries = [(place.owner, place.key, final) for place, final in simple]
        self._moves = any(place.in_module for place, _ in simple)
        self._others = [pair for pair in pairs if not _is_entry(*pair)]
        self._finders = [(place.found, size, kinds) for place, size, kinds in reads]
        self._with_numbers = [finder for finder in self._finders if any(finder[2])]

    @property
    def is_bound(self) -> bool:
        """Whether there is something to do after the step has run."""
        return bool(self._entries or self._others or self.early)

    def found(self) -> tuple[list[Any], list[Number]] | None:
        """The tensors and the numbers that are there; None: something else is."""
        tensors: list[Any] = []
        numbers: list[Number] = []
        is_fit = _take(self._finders, tensors, numbers)
        return (tensors, numbers) if is_fit else None

    def numbers(self) -> list[Number]:
        """The numbers that are there. Raises `ValueError` when something else is."""
        numbers: list[Number] = []
        if not _take(self._with_numbers, [], numbers):
            raise ValueError("another kind of value is there")
        return numbers

    def begin(self, numbers: Sequence[Number], output_count: int) -> None:
        """Take what is to be taken before the step runs. Raises what a formula raises."""
        call = Call.of_tensors(())
        call.floats = list(numbers)
        run = Run(call, output_count)
        for outcome in self.early:
            outcome.of(run)
        self.ready = run

    def begin_with_found(self, output_count: int) -> None:
        """The same, for the numbers that are there."""
        self.begin(self.numbers(), output_count)

    def run(self, output_count: int, tensors: Sequence[TensorCore]) -> Run:
        """The call that is running, whose arguments are `tensors`."""
        run = self.ready
        if run is None:
            return Run(Call.of_tensors(tensors), output_count)
        run.call.tensors = tensors
        return run

    def deliver(self, run: Run) -> bool:
        """Bind the places; whether the guards are known to hold still.

        It may be done again for the same call.
        """
        entries = [outcome.of(run) for _, _, outcome in self._entries]
        values = [final.of(run) for _, final in self._others]
        before = epoch.count
        for (owner, key, _), value in zip(self._entries, entries, strict=True):
            owner[key] = value
        for (place, _), value in zip(self._others, values, strict=True):
            place.bind(value, run.call)
        if self._moves:
            epoch.count += 1
        return epoch.count == before or self.on_change(before)


def _is_entry(place: Place, final: Outcome) -> bool:
    """Whether binding the place is to set one entry, to what the step has made."""
    is_entry = type(place) is Place and type(place.owner) in (dict, list)
    return is_entry and type(final) is not Same


def _take(finders: Sequence[_Finder], tensors: list[Any], numbers: list[Any]) -> bool:
    """Add what is there to the lists; whether it is of the kinds that were traced."""
    for find, size, kinds in finders:
        value = find()
        if size < 0:
            value = (value,)
        elif value.__class__ is not tuple or len(value) != size:
            return False
        for leaf, kind in zip(value, kinds, strict=True):
            if kind is None:
                tensors.append(leaf)
            elif leaf.__class__ is kind:
                numbers.append(leaf)
            else:
                return False
    return True


def plain_reads(rebinding: Rebinding, values: Sequence[Any]) -> list[Read] | None:
    """How the places are read; None where one holds more than tensors and numbers."""
    for place in (*rebinding.read, *rebinding.bound):
        if type(place) not in _SIMPLE or place.key is CONTENTS:
            return None
    reads: list[Read] = []
    for place, value in zip(rebinding.read, values, strict=True):
        size = len(value) if type(value) is tuple else -1
        kinds = [_kind(leaf) for leaf in (value if size >= 0 else (value,))]
        if any(kind is object for kind in kinds):
            return None
        reads.append(Read(place, size, kinds))
    return reads


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
