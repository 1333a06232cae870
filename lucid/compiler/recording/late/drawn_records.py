"""Records that a step draws from a container: `random.sample(memory, 32)` of a replay buffer.

Each call draws of the container as it is then, by one call of Python, which gives a *column* for
each place in a record: the tensors, arrays or numbers that the drawn records have there, stacked.
The user's code gets as many records of the same classes, whose leaves are rows of the columns; so
`zip(*batch)`, `torch.cat(batch.state)` and `np.stack` go on as with any tensors, arrays and numbers
of the step, and the rows that are put together again are the column. What it gets are copies: a
step that writes, returns or keeps one of them runs op by op. Records at places that the step
computes, `[memory[i] for i in rng.integers(0, len(memory), 32)]`, are drawn likewise. Records that
the step itself has put behind the others are among those; tensors of a list that grows are stacked
in the same way.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from lucid.compiler.guards.age import owner_of
from lucid.compiler.guards.mutable_sources import GrowingList
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import Applied, Late, is_late
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.late.late_arrays import LateArray, LateObject, result_of
from lucid.compiler.recording.late.late_numbers import within_step
from lucid.compiler.recording.late.late_sequences import open_or_begin
from lucid.compiler.recording.late.optional_rows import OptionalColumn, OptionalRow
from lucid.functions.indexing import getitem
from lucid.ir import ops
from lucid.ir.location import here
from lucid.ir.types import has_dtype
from lucid.tensor.core import TensorCore, of_value
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import Rebuild, children_of, containers_in, flatten

if TYPE_CHECKING:
    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.exits import Exits
    from lucid.compiler.recording.late.late_numbers import LateScalar
    from lucid.ir.graph import Value

_NUMBERS: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
}
_CONSTANTS = (str, type(None))
_FEW = 8  # records at a place that is looked at, where they can't be drawn
HINT = (
    "draw in a function with @lucid.compiler.disable, which each call makes and which returns the "
    "batch as tensors, or draw outside of the step"
)


def is_container(items: Any) -> bool:
    """Whether something may be a container of records, or of tensors or arrays."""
    if type(items) not in (list, deque) or len(items) == 0:
        return False
    return type(items[0]) in (Tensor, np.ndarray) or children_of(items[0]) is not None


def draw_records(
    exits: Exits,
    collector: GuardCollector,
    name: str,
    draw: Any,
    items: Any,
    *args: Any,
    **how: Any,
) -> list[Any]:
    """As many records as `draw(items, *args, **how)` gives, which each call draws anew.

    name: what messages call the function.
    """
    what = f"it draws, by {name}()"
    return _records(exits, collector, name, draw, items, args, how, what, draw.__self__)


def record_at(exits: Exits, collector: GuardCollector, items: Any, place: LateScalar) -> Any:
    """The record at a place that the step computes; None: specialize on the number.

    Where one call found several places, `np.random.choice(len(memory), 32)`, all their records are
    drawn at once when the first one is asked for.
    """
    is_told = here() in exits.recorder.at_start.looked_at
    if (is_told and len(items) <= _FEW) or not collector.was_there(items):
        return None
    whole, number = _element(place.whole)
    known, key = exits.recorder.at_places, (id(items), whole, number)
    if key not in known:
        path = collector.path_of(items)
        what, name = f"it reads at {path}[{place.text}]", f"{path}[…]"
        places: Any = LateArray(exits, whole)
        keys: list[Any] = [(whole, i) for i in range(whole.shape[0])] if whole.shape else []
        if not keys:
            size = len(items)
            values = [
                x
                for x in _found_with(whole, exits)
                if x is whole
                or ((id(items), x, 0) not in known and -size <= exits.now_of(x) < size)
            ]
            keys = [(x, 0) for x in values]
            places = [exits.number(x, x, (), place.text, int) for x in values]
        found = _records(exits, collector, name, _at_places, items, (places,), {}, what, None)
        known.update(((id(items), *key), x) for key, x in zip(keys, found, strict=True))
    return known[key]


def _element(value: Value) -> tuple[Value, int]:
    """The vector of which a number is an element, and which one it is; else itself, and 0."""
    of = value.producer
    of = of.operands[0].producer if of is not None and of.op is ops.reshape else None
    if of is None or of.op is not ops.slice or len(of.operands[0].shape) != 1:
        return value, 0
    return of.operands[0], of.attributes["starts"][0]


def _found_with(number: Value, exits: Exits) -> list[Value]:
    """The numbers that host calls of the same line have found so far; else the number alone."""
    of = number.producer
    if of is None or of.op is not ops.host:
        return [number]
    nodes = [x for x in exits.recorder.graph.nodes if x.op is of.op and x.location == of.location]
    return [x for node in nodes for x in node.results if x.type == number.type]


def _at_places(items: Sequence[Any], places: Sequence[int]) -> list[Any]:
    try:
        return [items[place] for place in places]
    except IndexError:  # of one that nobody may ask for
        raise _DifferError("one is at a place that isn't there") from None


def _records(
    exits: Exits,
    collector: GuardCollector,
    name: str,
    draw: Callable[..., Any],
    items: Any,
    args: Sequence[Any],
    how: dict[str, Any],
    what: str,
    generator: Any,
) -> list[Any]:
    """The records that `draw` gives of a container as each call finds it.

    what: how messages go on after the problem: "… from which it samples".
    """
    line, is_few = here(), generator is None and len(items) <= _FEW

    def refuse(problem: str) -> NoReturn:
        if is_few:
            raise RestartTrace(problem, "looked_at", [line])
        exits.op_by_op(f"{problem} {what}", HINT)
        raise AssertionError

    if not collector.was_there(items):
        refuse("it has made the container from which")
    if line in exits.recorder.at_start.looked_at:
        refuse("it writes, returns or keeps what")
    path = collector.path_of(items)
    if id(items) in exits.recorder.containers and any(map(_is_input, flatten(items[0])[0])):
        refuse(f"each call is given the {type(items).__name__} from which")
    new = _added(collector, path, items)
    if new is None or any(isinstance(x, TensorCore) and x.requires_grad for x in flatten(new)[0]):
        refuse(f"it has changed {path}, from which")
    collector.answer(f"type({path})", type, items)
    asked: Any = collector.guards[(type, id(items))]  # about the container that a call finds

    leaves, rebuild_how = flatten((args, how, new))  # as they are now: lists may change later

    def drawn(*leaves: Any) -> Any:
        args, how, new = rebuild_how([*leaves])
        found = _Longer(asked.args[0], new) if new else asked.args[0]
        return draw(found, *args, **how)

    whole = Applied(drawn, [_data(exits, x) for x in leaves])
    call, results = _called(exits, name, whole, items, new, refuse, "the records", generator)
    assert call.known is not None
    kind, _, rebuild, length = call.known
    rows = [*_rows(exits, kind, iter(results), length, name)]
    of_records = zip(*rows, strict=True) if rows else [()] * length
    call.given = [(rebuild([*leaves]), leaves) for leaves in of_records]
    given = [record for record, _ in call.given]
    exits.recorder.drawn.update((id(x), x) for x in containers_in(given) if x is not given)
    return given


def all_stacked(exits: Exits, collector: GuardCollector, view: Any) -> Tensor | None:
    """All tensors of a growing list, stacked by one call of Python; None: they differ.

    None as well where some require grad, or the step writes one.

    view: the list's stand-in.
    """
    recorder, line, source, name = exits.recorder, here(), view.source, f"stack({view.source.path})"
    first, new = view.places[0][1] if view.places else None, _added(collector, "", view.owner)
    if type(first) is not Tensor or new is None or line in recorder.at_start.looked_at:
        return None
    entries = [x for _, x in view.places]
    kinds = {(type(x), getattr(x, "_type", None), getattr(x, "requires_grad", 0)) for x in entries}
    if kinds != {(Tensor, first._type, False)} or not open_or_begin(recorder, view, name):
        return None

    def refuse(problem: str) -> NoReturn:
        raise RestartTrace(f"{problem} it stacks, of {source.path}", "looked_at", [line])

    def all_of(*new: Any) -> list[Any]:
        found, most = [*source.owner, *new], getattr(source.owner, "maxlen", None)
        return found if most is None else found[-most:]

    whole, rest = Applied(all_of, [_data(exits, x) for x in new]), (view.owner, new, refuse)
    _, results = _called(exits, name, whole, *rest, "tensors", any_length=True)
    found: Tensor = of_value(results[0])
    return found


def _called(
    exits: Exits,
    name: str,
    whole: Late,
    items: Any,
    new: Sequence[Any],
    refuse: Callable[[str], NoReturn],
    what: str,
    generator: Any = None,
    *,
    any_length: bool = False,
) -> tuple[_Draw, Sequence[Value]]:
    """Let each call of the step draw the records that `whole` is; the draw, and its columns.

    items: the container; new: what the step has put there.
    """
    values, compute = within_step(whole)
    call = _Draw(compute, any_length=any_length)
    call.added = new, [(x, _written(x)) for x in flatten(new)[0]]
    exits.recorder.endings.append(functools.partial(call.know_written, exits, items, refuse))
    options: Any = {"is_unheard": True, "is_followed": True}
    results, found_by = exits.call(name, call, values, generator, **options)
    call.known = known = found_by.found
    if type(known.kind) is str:
        refuse(f"{what} differ ({known.kind}) that")
    return call, results


def _added(collector: GuardCollector, path: str, items: Any) -> Sequence[Any] | None:
    """The records that the step has appended to the container; None: it changed it otherwise.

    Begins again where the list itself has them by now, with a stand-in that keeps them apart.
    """
    view = collector.stand_in_for(items)
    if view is not items:
        done = view.source.done
    elif done := collector.added_to(items):
        place = GrowingList(path, items)
        collector.begin_again(f"draws from {path}", "sources", {place.identity: place})
    are_added = done is not None and all(name == "append" for name, _ in done)
    return [record for _, (record,) in done] if are_added else None


def _written(leaf: Any) -> int:
    """How often the memory of a tensor has been written; of anything else, never."""
    return leaf._storage.generation if isinstance(leaf, TensorCore) else 0


class _Longer(Sequence[Any]):
    """A container followed by new items, as the container with these appended.

    A deque of a maximal length loses its first items then.
    """

    def __init__(self, items: Any, new: Sequence[Any]) -> None:
        self._items, self._new, count = items, new, len(items) + len(new)
        most = getattr(items, "maxlen", None)
        self._first = 0 if most is None else max(count - most, 0)
        self._count = count - self._first

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if not -self._count <= place < self._count:
            raise IndexError(place)
        number, size = place % self._count + self._first, len(self._items)
        return self._items[number] if number < size else self._new[number - size]


def _data(exits: Exits, leaf: Any) -> Any:
    """A tensor of the step's as each call has it by then; anything else is itself."""
    is_tensor = isinstance(leaf, TensorCore)
    return LateObject(exits, exits.recorder.value_of(leaf), Tensor) if is_tensor else leaf


def _is_input(leaf: Any) -> bool:
    """Whether a leaf is a stand-in for an argument, so that its container can't be drawn from."""
    return is_live(leaf) or is_late(leaf) or isinstance(leaf, Tensor)


class _DifferError(Exception):
    """Records differ in more than their data."""


class _Records(NamedTuple):
    """The structure of drawn records, without their data.

    Attributes:
        kind: the structure that all records have; a text: why they have none in common.
        marks: the number of empty results behind the columns. A draw with another structure gives
            one more, so that another program takes over even where the columns are alike.
        rebuild: makes a record of its leaves.
        length: the number of records.
    """

    kind: Any
    marks: int
    rebuild: Rebuild
    length: int


class _Draw:
    """A draw within the step; its results are the columns.

    Attributes:
        known: the structure that the trace has found; None: the trace is about to.
        found: the structure of the latest draw.
        written: the memory that the step writes.
        given: the records that the user's code got, with their leaves, until the trace's end.
        any_length: whether the number of records is open.
        added: records that the step had appended, and the write counts of their leaves.
    """

    def __init__(
        self, records: Callable[[Sequence[np.ndarray]], Any], *, any_length: bool = False
    ) -> None:
        self._records, self._any_length = records, any_length
        self.known: _Records | None = None
        self.found: Any = None
        self.written: frozenset[int] = frozenset()
        self.given: list[tuple[Any, Sequence[Any]]] = []
        self.added: tuple[Sequence[Any], list[tuple[Any, int]]] = [], []
        self._drawn: list[np.ndarray] = []

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        records: Any = []
        columns: list[np.ndarray] = []
        leaves: list[np.ndarray] = []
        try:
            records = self._records(arrays)
            like = None if self.known is None else self.known.kind
            kind = _kind(records, columns, leaves, like) if records else "none"
            if self.written and any(id(owner_of(x)) in self.written for x in leaves):
                raise _DifferError("memory that the step writes")
        except _DifferError as error:
            kind, columns = str(error), []
        known = self.known
        is_as_long = known is not None and (self._any_length or known.length == len(records))
        if known is not None and known.kind == kind and is_as_long:
            self.found = known
        else:
            rebuild = flatten(records[0])[1] if records else list
            marks = 0 if known is None else known.marks + 1
            self.found, self._drawn = _Records(kind, marks, rebuild, len(records)), leaves
        return columns + [np.zeros(())] * self.found.marks

    def know_written(
        self, exits: Exits, items: Sequence[Any], refuse: Callable[[str], NoReturn]
    ) -> None:
        """At the end of the user's code: refuse where it writes or keeps drawn records."""
        collector = exits.recorder.collector
        if collector.has_written_in(x for item in items for x in containers_in(item)):
            refuse("it changes records like those that")
        new, before = self.added
        now = [(x, _written(x)) for x in flatten(new)[0]]
        pairs = zip_longest(now, before, fillvalue=(None, -1))
        if any(x is not y or count != of for (x, count), (y, of) in pairs):
            refuse("it changes, when it has put it there, a record among those that")
        written = exits.recorder.written_arrays([])
        self.written = frozenset(id(owner_of(array)) for array in written)
        if any(id(owner_of(x)) in self.written for x in self._drawn):
            refuse("it writes memory of what")
        given = [x for x in exits.recorder.cells.values() if x.kind == "arg" and x.is_written]
        if not {x.dtype for x in self._drawn}.isdisjoint(x.value.dtype.numpy for x in given):
            refuse("it writes what each call is given, which may be memory of what")
        for record, leaves in self.given:
            found = flatten(record)[0]
            if len(found) != len(leaves) or not all(map(operator.is_, found, leaves)):
                refuse("it changes records that")
        self._drawn, self.given, self.added = [], [], ([], [])


def _kind(
    values: Sequence[Any], columns: list[np.ndarray], leaves: list[np.ndarray], like: Any = None
) -> Any:
    """The structure that all of some values have; a column of each leaf is added to `columns`.

    leaves: the arrays that columns are made of are added.
    like: the structure of earlier draws: where leaves of it may be None, these may be.
    """
    kinds = {*map(type, values)}
    if any(is_live(x) or is_late(x) for x in values):
        names = sorted({x.__class__.__name__ for x in values})
        raise _DifferError(f"{' and '.join(names)} that the step is given, or computes")
    of, *parts = like if type(like) is tuple else (None,)
    if kinds == {Tensor, type(None)} or (of is OptionalRow and kinds <= {Tensor, type(None)}):
        return _optional(values, columns, leaves, parts[0] if of is OptionalRow else None)
    if len(kinds) != 1:
        names = sorted(kind.__name__ for kind in kinds)
        raise _DifferError(" and ".join(names))
    (kind,) = kinds
    if kind is Tensor or kind is np.ndarray:
        if kind is Tensor and any(x._requires_grad or x._grad_fn is not None for x in values):
            raise _DifferError("tensors that require grad")
        arrays = [x._array for x in values] if kind is Tensor else values
        columns.append(_stacked(arrays))
        leaves += arrays
        return kind, None
    if kind in _NUMBERS or issubclass(kind, np.generic):
        columns.append(_of_numbers(values, kind))
        return kind, None
    if kind in _CONSTANTS:
        if any(x != values[0] for x in values):
            raise _DifferError(f"objects of {kind.__name__}")
        return kind, values[0]
    known: Any = parts[-1] if of is kind and type(parts[-1]) is tuple else ()
    if issubclass(kind, tuple) and not kind.__dictoffset__:
        if len({*map(len, values)}) != 1:
            raise _DifferError(f"lengths of {kind.__name__}")
        pairs = zip_longest(zip(*values, strict=True), known[: len(values[0])])
        return kind, tuple([_kind(x, columns, leaves, part) for x, part in pairs])
    children = [children_of(x) for x in values]
    keys = None if children[0] is None else [*children[0]]
    if keys is None:
        raise _DifferError(f"objects of {kind.__name__}")
    if any(x is None or [*x] != keys for x in children):
        raise _DifferError(f"entries of {kind.__name__}")
    entries = [[x[key] for x in children if x is not None] for key in keys]
    pairs = zip_longest(entries, known[: len(keys)])
    return kind, tuple(keys), tuple([_kind(x, columns, leaves, part) for x, part in pairs])


def _optional(
    values: Sequence[Any], columns: list[np.ndarray], leaves: list[np.ndarray], like: Any
) -> Any:
    """Tensors of one type and Nones: which are there, and rows, with zeros for what isn't.

    like: the type of those that others have been; None: there are none.
    """
    is_there = np.array([x is not None for x in values])
    found: list[np.ndarray] = []
    if is_there.any():
        _kind([x for x in values if x is not None], found, leaves)
        like = found[0].shape[1:], found[0].dtype
    shape, dtype = like
    rows = np.zeros((len(values), *shape), dtype)
    rows[is_there] = found[0] if found else 0
    columns += [is_there, rows]
    return OptionalRow, like, None


def _stacked(arrays: Sequence[Any]) -> np.ndarray:
    """A column of arrays of one shape and dtype."""
    first = arrays[0]
    if first is None:
        raise _DifferError("tensors that the step is given, or computes")
    if not has_dtype(first):
        raise _DifferError("arrays of a dtype that lucid hasn't")
    shape, dtype = first.shape, first.dtype
    if any(x is None or x.shape != shape or x.dtype != dtype for x in arrays):
        raise _DifferError("arrays of other shapes or dtypes")
    return np.concatenate(arrays).reshape(-1, *shape) if first.size and shape else np.stack(arrays)


def _of_numbers(values: Sequence[Any], kind: type) -> np.ndarray:
    try:
        column = np.array(values, _NUMBERS.get(kind))
    except OverflowError:
        raise _DifferError("ints of more than 64 bits") from None
    if not has_dtype(column):
        raise _DifferError(f"numbers of {kind.__name__}")
    return column


def _rows(
    exits: Exits, kind: Any, columns: Iterator[Value], length: int, name: str
) -> Iterator[list[Any]]:
    """For each leaf of a record what stands for it in each of as many records."""
    of, *_, parts = kind
    if of in _CONSTANTS:
        yield [parts] * length
        return
    if parts is not None:
        for part in parts:
            yield from _rows(exits, part, columns, length, name)
        return
    column = next(columns)
    if of is OptionalRow:
        optional = OptionalColumn(exits, of_value(next(columns)), of_value(column), f"{name}()")
        yield [OptionalRow(optional, i) for i in range(length)]
        return
    whole, data = of_value(column), LateArray(exits, column)
    values = [exits.recorder.value_of(getitem(whole, i)) for i in range(length)]
    text = f"a number that {name}() has drawn"
    rows: list[Any]
    if of is Tensor:
        rows = [*map(of_value, values)]
        for i, row in enumerate(rows):
            exits.recorder.parts.note(row, whole, i)
    elif of is np.ndarray:
        rows = [LateArray(exits, value, whole=data) for value in values]
        for row in rows:
            row.is_copy = True
    elif of in _NUMBERS:
        rows = [exits.number(column, x, (i,), text, of) for i, x in enumerate(values)]
    else:
        rows = [result_of(exits, text, value, of, None) for value in values]
    yield rows
