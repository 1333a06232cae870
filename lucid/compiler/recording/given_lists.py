"""Lists of numbers and texts that a step is given, of ever other lengths: `step(words, tags)`.

Such a list is one input of the graph, an array of an open size that each call makes of its own. So
is what is looked up for each of its items, `[to_ix[w] for w in words]`: a comprehension whose round
only looks items up, or hands them to functions of texts, is made once, with what stands for each of
them. Other loops get the items by their numbers. What Python makes of the list as a whole, a slice
or a row that is padded to the length of the longest, is made anew for each call, and is such a list
again. With numbers that the step computes it is a part of a list (`growing_lists.py`). Whoever does
something else with the list, or looks into a text, begins the trace again, and there it is a list
with the items of the call.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lucid.compiler.guards.events import ARITHMETIC, Stack
from lucid.compiler.guards.guard import ABSENT, item_at
from lucid.compiler.guards.moving_entries import OF_ITEMS, Column
from lucid.compiler.guards.mutable_sources import stands_for_list
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import Bases, Late, Unseen, early_formula, now_of
from lucid.compiler.inputs.objects import SCALARS, kind_of_items
from lucid.compiler.inputs.scalars import Composite, Formula, SymScalar, is_live, short_text
from lucid.compiler.inputs.signature import LISTS, axis_of_argument
from lucid.compiler.recording.filled_lists import StackedList
from lucid.compiler.recording.growing_lists import ListPart
from lucid.compiler.recording.late_numbers import LateScalar, LateSize, number_by
from lucid.compiler.recording.loop_code import LoopCode, code_of_loop
from lucid.compiler.recording.loop_state import LoopState
from lucid.compiler.recording.loops import Loops
from lucid.ir.location import here
from lucid.ir.types import DType

if TYPE_CHECKING:
    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.recorder import Recorder
    from lucid.tensor.tensor import Tensor

_OF_TEXTS = ("find", "rfind", "index", "rindex", "count")  # methods that say where a text is
_OF_ITEMS = (ord, chr, abs, int, float, str)
_CHANGES = ("lower", "upper", "casefold", "capitalize", "title", "strip", "lstrip", "rstrip")


class GivenList(StackedList):
    """A list among the arguments, what is made of each of its items, or of it as a whole.

    Args:
        given: stands for the argument, which a call's numbers have.
        path: how the user gets at it.
        items: in the call that is traced; key: gives them, of the numbers that a call finds, or
            those that `each` takes, with the container in which it looks them up, its `owner`.
        item: the class of the items, of which there may be none now.
        then: what becomes of what `each` gives.
        lists: other arguments that it follows from.

    Attributes:
        item: the class of its items.
    """

    __slots__ = (
        *("_array", "_each", "_is_longer", "_items", "_key", "_lists", "_owner", "_size", "_then"),
        *("given", "item", "path"),
    )

    def __init__(
        self,
        given: SymScalar,
        path: str,
        items: Sequence[Any],
        key: Formula,
        owner: Any = (),
        each: Callable[[Any, Any], Any] | None = None,
        item: type | None = None,
        then: Sequence[tuple[Callable[..., Any], Sequence[Formula]]] = (),
        lists: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(list, (), None)
        self.given, self.path = given, path
        self._size: LateSize | None = None
        self._lists = lists | {given.text}
        self.recorder.at_start.lists.add(given.text)
        self._items, self._key, self._owner = items, key, owner
        self._each, self._then = each, then
        self._array: Any = None
        self._is_longer = False  # a part of a list stands for it then
        self.item: Any = kind_of_items(items) or item

    @property
    def number(self) -> DType | None:  # type: ignore[override]
        return OF_ITEMS.get(self.item)

    @property
    def recorder(self) -> Recorder:
        """The trace."""
        return self.given.recorder  # type: ignore[return-value]

    @property
    def kind(self) -> type:  # type: ignore[override]
        return type(self._items)

    @property
    def formula_of_items(self) -> Formula | None:
        """What gives its items, of the numbers that a call finds; None: a container says them."""
        if self._is_longer:
            self.refuse()
        return self._key if self._each is None else None

    @property
    def is_given(self) -> bool:
        """Whether it is the argument itself."""
        return self._items is self.given.now

    @property
    def filled(self) -> Any:
        return self

    @property
    def has_numbers(self) -> bool:
        return True

    @property
    def length(self) -> Any:
        """How many items there are."""
        if self._size is None:
            exits = self.recorder.exits
            if self.formula_of_items is None:
                return exits.shown(self.whole._type.shape[0])
            early = self._found(f"len({self.path})", len)
            self._size = LateSize.known(early, lambda: self.whole._type.shape[0], exits)
        size = None if self._array is None else self._array._type.shape[0]
        return size if type(size) is int else self._size

    @length.setter
    def length(self, count: Any) -> None:
        pass

    @property
    def whole(self) -> Any:
        """Its numbers; of texts, something else of each."""
        if self._is_longer:
            self.refuse()
        if self._array is None:
            each = self._each or (_itself if self.number else _length)
            path, kind = self.path, self.item if self.number else int
            column = Column(path, self._owner, self._key, each, kind, self._then)
            found = self.recorder.collector.take_entry(column)
            if found is ABSENT:
                self.refuse()
            place = axis_of_argument(self.recorder.positions[id(found.tensor)], 0)
            if place in self.recorder.at_start.closed:  # each length is a program of its own
                self.refuse()
            self._array = found.tensor
        return self._array

    def refuse(self) -> NoReturn:
        """Begin again, with the items of the call."""
        raise RestartTrace(f"looks into {self.given.text}", "exact", self._lists)

    def _look(self) -> NoReturn:
        self.refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self.kind, name):
            raise AttributeError(f"{self.kind.__name__!r} object has no attribute {name!r}")
        return self._look()

    # ------------------------------------------------------------------ as what a call has

    @property
    def now(self) -> Any:
        return self.refuse() if self._is_longer else self._items

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        if self.is_given:
            return {id(self.given): self.given}
        if self.number is None:
            self.refuse()
        value = self.recorder.value_of(self.whole)
        return {value: value}

    @property
    def formula(self) -> Formula:  # type: ignore[override]
        (key,) = self.bases
        read: Any = operator.itemgetter(key)
        return read if self.is_given else lambda known: read(known).tolist()

    def applied(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The number that a function gives of it; None: it gives something else."""
        text = f"{function.__module__}.{function.__name__}({self.path})"
        return number_by(function, args, kwargs, text, self.recorder.exits, self.recorder)

    def summed(self, start: Any = 0) -> Any:
        return self.applied(sum, (self, start), {})

    def as_tensor(self) -> Tensor:
        """What `tensor` makes of it."""
        found: Tensor = self.whole
        return found

    # ------------------------------------------------------------------ items

    def at(self, number: Any) -> Any:
        if self.number is None:
            return GivenItem(self, number)
        value = self.recorder.value_of(self.whole[number])
        return self.recorder.exits.number(value, value, (), f"an item of {self.path}")

    def __getitem__(self, index: Any) -> Any:
        if type(index) is slice:
            return self.made(f"{self.path}[{_shown(index)}]", operator.getitem, index)
        is_number = type(index) in (int, LateScalar, LateSize)
        if not is_number or not (self._is_behind_start(index) and index < self.length):
            return self._look()
        return self.at(index)

    def __iadd__(self, items: Any) -> Any:
        if self.kind is tuple:
            return self + items
        self.extend(items)
        return self

    def backwards(self) -> Any:
        return self.made(f"{self.path}[::-1]", operator.getitem, slice(None, None, -1))

    def __add__(self, others: Any) -> Any:
        return self.made(f"{self.path} + {_name_of(others)}", operator.add, others)

    def __radd__(self, others: Any) -> Any:
        return self.made(f"{_name_of(others)} + {self.path}", _added_to, others)

    def __mul__(self, count: Any) -> Any:
        return self.made(f"{self.path} * {_name_of(count)}", operator.mul, count)

    __rmul__ = __mul__

    def _found(self, text: str, function: Callable[..., Any], *others: Any) -> SymScalar:
        """What a function gives of the items that a call finds, and of what is known."""
        key = self.formula_of_items
        if key is None:
            self.refuse()
        found = Composite(lambda items: function(items, *others), [key])
        number = SymScalar(function(self._items, *others), found, text, self.recorder)
        number.lists = self._lists
        return number

    def _as_part(self) -> ListPart:
        """The same, for a list of it and of numbers that a call has later."""
        if self.kind is not list or self.number is None:
            self.refuse()
        value: Any = self.recorder.value_of(self.whole)
        size, count = self._found(f"len({self.path})", len), len(self._items)
        places: list[Any] = [(i - count, x) for i, x in enumerate(self._items)]
        formula: Any = lambda known: known[value].tolist()  # noqa: E731
        return ListPart(_View(self, size, {value: value}), places, size, formula, self.path)

    def copy(self) -> Any:
        """Another one of the same items."""
        return self.made(f"{self.path}.copy()", list) if self.kind is list else self._look()

    def append(self, item: Any) -> None:
        """Append a number; to one that the step has made."""
        self.extend([item])

    def extend(self, items: Any) -> None:
        """Append numbers."""
        if self.is_given:
            self.refuse()
        part = self._as_part()
        part.extend(items)
        self._is_longer, self._size = True, None
        self.recorder.collector.let_stand(self, part)

    def made(self, path: str, function: Callable[..., Any], *others: Any) -> Any:
        """The list that a function makes of it, in Python, before each call's step begins.

        Of others that are known later a part of a list, as of one that grows.
        """
        known = [*map(_known_formula, others)]
        formulas = [x for x in known if x is not None]
        if len(formulas) < len(known):
            return function(self._as_part(), *others)
        items = function(self._items, *map(_items_of, others))
        if items and kind_of_items(items) is not self.item:
            self._look()
        lists = self._lists.union(*map(_lists_of, others))
        if self._each is None:
            key = Composite(function, [self._key, *formulas])
            return GivenList(self.given, path, items, key, item=self.item, lists=lists)
        then = (*self._then, (function, formulas))
        of_each = self._key, self._owner, self._each
        return GivenList(self.given, path, items, *of_each, self.item, then, lists)

    def __iter__(self) -> Iterator[Any]:
        return map(self.at, range(int(self.length)))

    def of_each(self, name: str, each: Callable[[Any, Any], Any], owner: Any = ()) -> GivenList:
        """What a function makes of each item, and of a container in which that is looked up.

        Calls whose items it doesn't take run op by op.
        """
        try:
            items = [each(owner, x) for x in self._items]
        except Exception:
            items = [ABSENT]
        if ABSENT in items or not items:
            self.recorder.exits.op_by_op(f"not each of {self.path} is there in {name}")
        kind, path, key = kind_of_items(items), f"{self.path}, each {name}", self._key
        if kind is None or self._each is not None or (kind is str and owner != ()):
            self.refuse()
        if owner != ():
            return GivenList(self.given, path, items, key, owner, each, lists=self._lists)

        def of_all(items: Any) -> list[Any]:
            return [each(owner, x) for x in items]

        return GivenList(self.given, path, items, Composite(of_all, [key]), lists=self._lists)


class _View:
    """What a part of such a list asks of it."""

    def __init__(self, of: GivenList, size: SymScalar, bases: Bases) -> None:
        self.view, self.of, self.bases = self, of, bases
        self.recorder, self.size_at_start = of.recorder, size
        self.collector = of.recorder.collector
        self.collector.let_stand(self, self)  # so that it looks for parts of lists

    def found(self, places: Sequence[tuple[int | None, Any]]) -> list[Any]:
        return [x if at is None else self._entry(at) for at, x in places]

    def _entry(self, at: int) -> SymScalar:
        return self.of._found(f"{self.of.path}[{at}]", operator.getitem, at)

    def are_all(self, kind: type) -> bool:
        return self.of.item is kind


def repeated(items: Any, count: SymScalar) -> GivenList | None:
    """`[0] * (longest - len(x))`, of lengths of such lists; None: it is another number."""
    kind, of_items, of_call = kind_of_items(items), _known_formula(items), early_formula(count)
    if not count.lists or kind is None or of_items is None or of_call is None:
        return None
    path, key = f"{items!r} * {count.text}", Composite(operator.mul, [of_items, of_call])
    found = items * count.now
    return GivenList(count, path, found, key, item=kind, lists=count.lists)


def rows_of(lists: Any) -> Tensor | None:
    """The tensor of several such lists of one length in each call; None: they aren't such."""
    if type(lists) not in LISTS or not all(type(x) is GivenList for x in lists) or not lists:
        return None
    first: GivenList = lists[0]
    keys = [x.formula_of_items for x in lists if x.formula_of_items is not None]
    kinds, sizes = {x.item for x in lists}, {len(x.now) for x in lists}
    if len(keys) < len(lists) or first.number is None or len(kinds) > 1 or len(sizes) > 1:
        return None
    path = short_text(f"[{', '.join(x.path for x in lists)}]")
    column = Column(path, (), Composite(_listed, keys), _itself, first.item)
    found = first.recorder.collector.take_entry(column)
    if found is ABSENT:
        first.refuse()
    rows: Tensor = found.tensor
    return rows


class GivenItem(Unseen):
    """A text of such a list, or any of its items.

    Attributes:
        of: the list; number: where it is there, None: wherever; line: of who goes over it then.
    """

    __slots__ = ("line", "number", "of")

    def __init__(self, of: GivenList, number: Any = None, line: Any = None) -> None:
        self.of, self.number, self.line = of, number, line

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind: type = self.of.item
        return kind

    def _made(self, name: str, each: Callable[[Any, Any], Any], owner: Any = ()) -> Any:
        found = self.of.of_each(name, each, owner)
        return GivenItem(found, None, self.line) if self.number is None else found.at(self.number)

    def looked_up(self, collector: GuardCollector, owner: Any, *default: Any) -> Any:
        """What there is for it in a container from outside."""
        if not (collector.may_move(owner) and all(map(_is_known, default))):
            self._look()
        if not default:
            return self._made(collector.path_of(owner), item_at, owner)

        def each(owner: Any, item: Any) -> Any:
            return owner.get(item, *default)

        return self._made(f"{collector.path_of(owner)}.get, or {default[0]!r},", each, owner)

    def handed_to(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What is called instead of a function in C that gets it; None: it keeps it."""
        if function in (isinstance, type, id):
            return None
        text = getattr(function, "__self__", None)
        is_of_text = type(text) is str and function.__name__ in _OF_TEXTS
        if not (is_of_text or function in _OF_ITEMS) or len(args) != 1 or kwargs:
            self._look()
        name = f"{text!r}.{function.__name__}" if is_of_text else function.__name__
        return lambda _: self._made(name, lambda _, item: function(item))

    def _look(self, *_: Any) -> NoReturn:
        """Begin again without this; of any item, with items by their numbers."""
        if self.number is not None:
            self.of.refuse()
        raise RestartTrace("looks at the items of a list", "looked_at", [self.line])

    def __getattr__(self, name: str) -> Any:
        if name not in _CHANGES or self.of.item is not str:
            return super().__getattr__(name)
        change = getattr(str, name)
        return lambda: self._made(name, lambda _, item: change(item))


def _computing(name: str, *, is_reflected: bool = False) -> Callable[[GivenItem, Any], Any]:
    """`__add__`, or `__radd__`, of an item and what is known; with others, begins again."""
    function: Callable[[Any, Any], Any] = getattr(operator, f"__{name}__")

    def compute(self: GivenItem, other: Any) -> Any:
        if not _is_known(other):
            return self._look()
        if is_reflected:
            return self._made(f"{other!r} {name}", lambda _, item: function(other, item))
        return self._made(f"{name} {other!r}", lambda _, item: function(item, other))

    return compute


for _name in ARITHMETIC.values():
    setattr(GivenItem, f"__{_name}__", _computing(_name))
    setattr(GivenItem, f"__r{_name}__", _computing(_name, is_reflected=True))


def _known_formula(value: Any) -> Formula | None:
    """What gives something before a call's step, of the numbers that it finds; None: nothing."""
    if type(value) is GivenList:
        return value.formula_of_items
    parts = value if type(value) in (list, tuple) else [value]
    if type(value) is slice:
        found = map(_known_formula, (value.start, value.stop, value.step))
        bounds = [x for x in found if x is not None]
        return Composite(slice, bounds) if len(bounds) == 3 else None
    if not all(x is None or _is_known(x) for x in parts):
        return early_formula(value)
    known = [*value] if type(value) is list else value  # which the step may change afterwards
    return lambda _: known


def _lists_of(value: Any) -> frozenset[str]:
    if type(value) is GivenList:
        return value._lists
    if type(value) is slice:
        return frozenset().union(*map(_lists_of, (value.start, value.stop, value.step)))
    return value.lists if is_live(value) else frozenset()


def _items_of(value: Any) -> Any:
    if type(value) is slice:
        return slice(*map(now_of, (value.start, value.stop, value.step)))
    return value.now if type(value) is GivenList else now_of(value)


def _added_to(items: Any, others: Any) -> Any:
    return others + items


def _shown(part: slice) -> str:
    bounds = ["" if x is None else _name_of(x) for x in (part.start, part.stop)]
    return ":".join([*bounds, *([] if part.step is None else [_name_of(part.step)])])


def _name_of(value: Any) -> str:
    if type(value) is GivenList:
        return value.path
    if type(value) in LISTS:
        return f"[{', '.join(map(_name_of, value))}]"
    return value.text if is_live(value) or stands_for_list(value) else repr(value)


def _listed(*items: Any) -> list[Any]:
    return [*items]


def _itself(_: Any, item: Any) -> Any:
    return item


def _length(_: Any, item: Any) -> int:
    return len(item)


def _is_known(value: Any) -> bool:
    return isinstance(value, SCALARS) and not (is_live(value) or issubclass(type(value), Late))


def for_each(
    given: GivenList, loops: Loops, code: types.CodeType, offset: int
) -> Iterator[Any] | None:
    """What a comprehension goes over instead, if it is made at once for all items of a list.

    offset: of the instruction that asks for its iterator.
    """
    found = code_of_loop(code, offset)
    if found is None or found.makes is None or here() in loops.recorder.at_start.looked_at:
        return None
    return _for_each(given, loops, found, found.makes)


def _for_each(given: GivenList, loops: Loops, code: LoopCode, place: int) -> Iterator[Any]:
    """Any item; as the comprehension comes to its end, the list of all takes the place of its."""
    before, line = LoopState(code, sys._getframe(1), loops), here()
    with loops.looking(before.objects) as noted:
        yield GivenItem(given, None, line)
        stack = Stack(sys._getframe(1))
        made = stack[place]
        after = LoopState(code, sys._getframe(1), loops, before)
        is_plain = noted.problem() is None and not noted.changed and after.only_fills(made, before)
    nodes = loops.recorder.graph.nodes[noted.start :]
    items = [x.of for x in made if type(x) is GivenItem and x.number is None]
    if not is_plain or nodes or len(made) != 1 or not items:
        raise RestartTrace("goes over a list otherwise", "looked_at", [line])
    stack[place] = items[0]
