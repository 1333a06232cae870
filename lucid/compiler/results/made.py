"""Containers and objects that a step makes: each call makes its own."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from lucid.compiler.results.outcomes import Outcome, Run
from lucid.compiler.results.parts import Parts, kind_of


class Made(Outcome):
    """A container of which the results may hold several references.

    Attributes:
        is_shared: whether there is more than one.
        parts: what is in it.
    """

    __slots__ = ("is_shared", "parts")

    def __init__(self) -> None:
        self.is_shared = False
        self.parts: Sequence[Outcome] = ()

    def of(self, run: Run) -> Any:
        return super().of(run) if self.is_shared else self.make(run)


class MadeTuple(Made):
    """A tuple."""

    __slots__ = ()

    def make(self, run: Run) -> Any:
        return tuple([part.of(run) for part in self.parts])


class MadeList(Made):
    """A list."""

    __slots__ = ()

    def make(self, run: Run) -> Any:
        return [part.of(run) for part in self.parts]


class MadeDict(Made):
    """A dict whose keys don't depend on the call."""

    __slots__ = ("keys",)

    def __init__(self, keys: Sequence[Any]) -> None:
        super().__init__()
        self.keys = keys

    def make(self, run: Run) -> Any:
        return dict(zip(self.keys, [part.of(run) for part in self.parts], strict=True))


class MadeOther(Made):
    """A container or object of any other class that can be taken apart.

    Attributes:
        kind: its class.
        option: of a deque its greatest length, of a defaultdict what makes an entry.
    """

    __slots__ = ("_attributes", "_count", "_layout", "_slots", "kind", "option")

    def __init__(self, value: Any, parts: Parts) -> None:
        super().__init__()
        self.kind = kind_of(value, parts.layout)
        self.option = getattr(value, _OPTIONS.get(parts.layout, ""), None)
        self._layout = parts.layout
        self._count = len(parts.items)
        self._attributes = tuple(parts.attributes)
        self._slots = tuple(parts.slots)

    def make(self, run: Run) -> Any:
        layout: Any = self._layout
        parts = [part.of(run) for part in self.parts]
        items, between = parts[: self._count], self._count + len(self._attributes)
        made = layout.__new__(self.kind, *([items] if layout in (tuple, frozenset) else ()))
        if layout is deque:
            deque.__init__(made, (), self.option)
        elif layout is defaultdict:
            made.default_factory = self.option
        if self._attributes:
            made.__dict__.update(zip(self._attributes, parts[self._count : between], strict=True))
        for name, value in zip(self._slots, parts[between:], strict=True):
            object.__setattr__(made, name, value)
        add = _ADD.get(layout)
        if add is not None:
            add(made, items)
        return made


def _add_entries(kind: type[dict[Any, Any]], made: dict[Any, Any], parts: list[Any]) -> None:
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        kind.__setitem__(made, key, value)


def _add_to_dict(made: Any, parts: list[Any]) -> None:
    _add_entries(dict, made, parts)


def _add_to_ordered(made: Any, parts: list[Any]) -> None:
    _add_entries(OrderedDict, made, parts)


_OPTIONS: dict[type, str] = {deque: "maxlen", defaultdict: "default_factory"}
_ADD: dict[type, Callable[[Any, list[Any]], object]] = {
    list: list.extend,
    set: set.update,
    deque: deque.extend,
    bytearray: bytearray.extend,
    dict: _add_to_dict,
    defaultdict: _add_to_dict,
    OrderedDict: _add_to_ordered,
}
_CONSTANT_KEYS = (int, float, str, bytes, bool, type(None))


def made_like(value: Any, parts: Parts) -> Made:
    """What makes such a container; what is in it is added to it afterwards."""
    kind = type(value)
    if kind is tuple:
        return MadeTuple()
    if kind is list:
        return MadeList()
    if kind is dict and all(type(key) in _CONSTANT_KEYS for key in value):
        return MadeDict(tuple(value))
    return MadeOther(value, parts)


def values_in(made: Made, parts: Parts) -> list[Any]:
    """What of the parts is to be made at each call."""
    if isinstance(made, MadeDict):
        return [part.value for part in parts.items[1::2]]
    return [part.value for part in parts.all()]
