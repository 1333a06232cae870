"""What stands for any item of a list among the arguments: `[to_ix[w] for w in words]`.

A comprehension whose round only looks items up, or hands them to functions of texts, is made once,
with what stands for each of them, and gives a list of which each call makes an array. Other loops
get the items by their numbers. Whoever looks into a text begins the trace again, and there it is a
list with the items of the call (`late_sequences.py`).
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lucid.compiler.guards.events import ARITHMETIC, Stack
from lucid.compiler.guards.guard import item_at
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.inputs.late import Late, Unseen
from lucid.compiler.inputs.objects import SCALARS
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.loops.loop_code import LoopCode, code_of_loop
from lucid.compiler.recording.loops.loop_state import LoopState
from lucid.compiler.recording.loops.loops import Loops
from lucid.ir.location import here

if TYPE_CHECKING:
    from lucid.compiler.guards.calls import GuardCollector
    from lucid.compiler.recording.late.late_sequences import LateSequence

_OF_TEXTS = ("find", "rfind", "index", "rindex", "count")  # methods that say where a text is
_OF_ITEMS = (ord, chr, abs, int, float, str)
_CHANGES = ("lower", "upper", "casefold", "capitalize", "title", "strip", "lstrip", "rstrip")


class AnyItem(Unseen):
    """A text of such a list, or any of its items.

    Attributes:
        of: the list; number: where it is there, None: wherever; line: of who goes over it then.
    """

    __slots__ = ("line", "number", "of")

    def __init__(self, of: LateSequence, number: Any = None, line: Any = None) -> None:
        self.of, self.number, self.line = of, number, line

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind: type = self.of.item_kind
        return kind

    def _made(self, name: str, each: Callable[[Any, Any], Any], owner: Any = ()) -> Any:
        found = self.of.of_each(name, each, owner)
        return AnyItem(found, None, self.line) if self.number is None else found.row(self.number)

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
        if function is id:
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
        if name not in _CHANGES or self.of.item_kind is not str:
            return super().__getattr__(name)
        change = getattr(str, name)
        return lambda: self._made(name, lambda _, item: change(item))


def _computing(name: str, *, is_reflected: bool = False) -> Callable[[AnyItem, Any], Any]:
    """`__add__`, or `__radd__`, of an item and what is known; with others, begins again."""
    function: Callable[[Any, Any], Any] = getattr(operator, f"__{name}__")

    def compute(self: AnyItem, other: Any) -> Any:
        if not _is_known(other):
            return self._look()
        if is_reflected:
            return self._made(f"{other!r} {name}", lambda _, item: function(other, item))
        return self._made(f"{name} {other!r}", lambda _, item: function(item, other))

    return compute


for _name in ARITHMETIC.values():
    setattr(AnyItem, f"__{_name}__", _computing(_name))
    setattr(AnyItem, f"__r{_name}__", _computing(_name, is_reflected=True))


def _is_known(value: Any) -> bool:
    return isinstance(value, SCALARS) and not (is_live(value) or issubclass(type(value), Late))


def for_each(
    given: LateSequence, loops: Loops, code: types.CodeType, offset: int
) -> Iterator[Any] | None:
    """What a comprehension goes over instead, if it is made at once for all items of a list.

    offset: of the instruction that asks for its iterator.
    """
    found = code_of_loop(code, offset)
    if found is None or found.makes is None or here() in loops.recorder.at_start.looked_at:
        return None
    return _for_each(given, loops, found, found.makes)


def _for_each(given: LateSequence, loops: Loops, code: LoopCode, place: int) -> Iterator[Any]:
    """Any item; as the comprehension comes to its end, the list of all takes the place of its."""
    before, line = LoopState(code, sys._getframe(1), loops), here()
    with loops.looking(before.objects) as noted:
        yield AnyItem(given, None, line)
        stack = Stack(sys._getframe(1))
        made = stack[place]
        after = LoopState(code, sys._getframe(1), loops, before)
        is_plain = noted.problem() is None and not noted.changed and after.only_fills(made, before)
    nodes = loops.recorder.graph.nodes[noted.start :]
    items = [x.of for x in made if type(x) is AnyItem and x.number is None]
    if not is_plain or nodes or len(made) != 1 or not items:
        raise RestartTrace("goes over a list otherwise", "looked_at", [line])
    stack[place] = items[0]
