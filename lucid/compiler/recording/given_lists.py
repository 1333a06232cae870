"""Lists of numbers and texts that a step is given, of ever other lengths: `step(words, tags)`.

Such a list is one input of the graph, an array of an open size that each call makes of its own. So
is what is looked up for each of its items, `[to_ix[w] for w in words]`: a comprehension whose round
only looks items up, or hands them to functions of texts, is made once, with what stands for each of
them. Other loops get the items by their numbers. Whoever does something else with the list, or
looks into a text, begins the trace again, and there it is a list with the items of the call.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lucid.compiler.guards.events import ARITHMETIC, COMPARISONS, Stack
from lucid.compiler.guards.guard import ABSENT, item_at
from lucid.compiler.guards.moving_entries import OF_ITEMS, Column
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import Bases, Late
from lucid.compiler.inputs.objects import SCALARS, kind_of_items
from lucid.compiler.inputs.scalars import Formula, SymScalar, is_live
from lucid.compiler.inputs.signature import axis_of_argument
from lucid.compiler.recording.filled_lists import StackedList
from lucid.compiler.recording.late_numbers import LateScalar, number_by
from lucid.compiler.recording.loop_code import LoopCode, code_of_loop
from lucid.compiler.recording.loop_state import LoopState
from lucid.compiler.recording.loops import Loops
from lucid.ir import ops
from lucid.ir.location import here
from lucid.ir.types import i64
from lucid.tensor.core import constant

if TYPE_CHECKING:
    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.recorder import Recorder
    from lucid.tensor.tensor import Tensor

_OF_TEXTS = ("find", "rfind", "index", "rindex", "count")  # methods that say where a text is
_OF_ITEMS = (ord, chr, abs, int, float, str)
_CHANGES = ("lower", "upper", "casefold", "capitalize", "title", "strip", "lstrip", "rstrip")


class GivenList(StackedList):
    """A list among the arguments, or what is made of each of its items.

    Args:
        given: stands for the argument, which a call's numbers have.
        path: how the user gets at it.
        items: in the call that is traced; key: gives them, of the numbers that a call finds; None:
            they follow from a container that may be another one then.
        column: the items, or if these are texts something of each; None: the items.

    Attributes:
        item: the class of its items.
    """

    __slots__ = ("_array", "_column", "_items", "_key", "given", "item", "number", "path")

    def __init__(
        self,
        given: SymScalar,
        path: str,
        items: Sequence[Any],
        key: Formula | None,
        column: Column | None = None,
    ) -> None:
        super().__init__(list, (), None)
        self.given, self.path = given, path
        self.recorder.at_start.lists.add(given.text)
        self._items, self._key = items, key
        self._array: Any = None
        self.item: Any = kind_of_items(items)
        self.number = OF_ITEMS.get(self.item)
        each: Callable[[Any, Any], Any] = _itself if self.number else _length
        if column is None:
            assert key is not None
            column = Column(f"{path}, each {each.__name__}", (), key, each)
        self._column = column

    @property
    def recorder(self) -> Recorder:
        """The trace."""
        return self.given.recorder  # type: ignore[return-value]

    @property
    def kind(self) -> type:  # type: ignore[override]
        return self.given.kind if self.is_given else list

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
        return self.recorder.exits.shown(self.whole._type.shape[0])

    @length.setter
    def length(self, count: Any) -> None:
        pass

    @property
    def whole(self) -> Any:
        """Its numbers; of texts, something else of each."""
        if self._array is None:
            found = self.recorder.collector.take_entry(self._column)  # type: ignore[union-attr]
            if found is ABSENT:
                self.refuse()
            place = axis_of_argument(self.recorder.positions[id(found.tensor)], 0)
            if place in self.recorder.at_start.closed:  # each length is a program of its own
                self.refuse()
            self._array = found.tensor
        return self._array

    def refuse(self) -> NoReturn:
        """Begin again, with the items of the call."""
        raise RestartTrace(f"looks into {self.given.text}", "exact", [self.given.text])

    def _look(self) -> NoReturn:
        self.refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(self.kind, name):
            raise AttributeError(f"{self.kind.__name__!r} object has no attribute {name!r}")
        return self._look()

    # ------------------------------------------------------------------ as what a call has

    @property
    def now(self) -> Any:
        return self._items

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
        rows, recorder = self.whole, self.recorder
        last = constant(rows._type.shape[0] - 1, i64)
        place = self.length + number if type(number) is int and number < 0 else number
        row = ops.take(rows, ops.minimum(recorder.constant(place, i64), last), axis=0)
        value = recorder.value_of(row)
        return recorder.exits.number(value, value, (), f"an item of {self.path}")

    def __getitem__(self, index: Any) -> Any:
        is_number = type(index) in (int, LateScalar)
        if not is_number or not (self._is_behind_start(index) and index < self.length):
            return self._look()
        return self.at(index)

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
        if kind is None or key is None or (kind is str and owner != ()):
            self.refuse()
        column = None if kind is str else Column(path, owner, key, each)

        def then(numbers: Any) -> list[Any]:
            return [each(owner, x) for x in key(numbers)]

        return GivenList(self.given, path, items, then if owner == () else None, column)


class GivenItem(Late):
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

    @property
    def now(self) -> Any:
        return self._look()

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        return self._look()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in _CHANGES or self.of.item is not str:
            return self._look()
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
# Everything else that Python asks an object for is a look, what every object answers above all.
for _name in (
    *COMPARISONS.values(),
    *("bool", "hash", "len", "iter", "contains", "getitem", "index", "int", "float", "complex"),
    *("str", "repr", "format", "neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil"),
    *("divmod", "rdivmod", "reversed"),
):
    setattr(GivenItem, f"__{_name}__", GivenItem._look)


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
