"""Lists, dicts and objects among the arguments that a step changes: each call changes its own.

A trace works on stand-ins for them; what it has changed there, calls change in the caller's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from lucid.compiler.guards.guard import ABSENT, CONTENTS, Attributes, has_kept_its_order, put_at
from lucid.compiler.guards.mutable_sources import MutableSource
from lucid.compiler.inputs.late import key_of
from lucid.compiler.inputs.objects import entries_of
from lucid.compiler.inputs.scalars import seen
from lucid.compiler.inputs.signature import Call
from lucid.ir.classes import isinstance
from lucid.tensor.tree import Attribute, path_of


class ArgumentSource(MutableSource):
    """An entry of a container that is an argument, an attribute of an object; or all entries.

    Attributes:
        number: which of the arguments' containers and objects it is, as `owners_of` finds them.
    """

    __slots__ = ("number",)

    def __init__(self, path: str, key: Any, number: int) -> None:
        super().__init__(path, None, key)
        self.number = number

    def bind(self, value: Any, call: Call) -> None:
        owner = call.owners()[self.number]
        if type(self.key) is Attribute:
            put_at(vars(owner), self.key.name, value)
        else:
            is_container = isinstance(owner, (list, deque, dict))
            put_at(owner if is_container else Attributes(owner), self.key, value)


def changed_entries(
    path: str, owner: Any, before: Mapping[Any, Any], number: int
) -> Iterator[tuple[ArgumentSource, Any, Any]]:
    """The entries or attributes that have changed: place, value before, value now."""
    now = entries_of(owner)
    if isinstance(owner, (list, deque, dict)) and not has_kept_its_order(owner, before):
        yield ArgumentSource(path, CONTENTS, number), None, owner.copy()
        before, now = ({k: x for k, x in y.items() if type(k) is Attribute} for y in (before, now))
    for key in dict.fromkeys((*before, *now)):
        was, value = before.get(key, ABSENT), now.get(key, ABSENT)
        if value is not was:
            place = key_of(seen(key))
            yield ArgumentSource(path_of(path, owner, key), place, number), was, value
