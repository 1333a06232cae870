"""What containers and objects among the arguments hold, at the call and when its backward runs.

A step that runs again for its gradients has copies of them, with what they held at its call; what
backward methods of the user's read from them is what is in the caller's by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from lucid.compiler.inputs.owners import entries_of, owners_of
from lucid.compiler.inputs.tree import map_tree
from lucid.compiler.results.rebinding import VALUES


class Owned(NamedTuple):
    """One of the containers and objects among the arguments, by its number."""

    number: int


def present_contents(owners: Sequence[Any], given: Any) -> dict[int, dict[Any, Any]]:
    """What containers hold by now, by their numbers, where that is not what their copies hold.

    owners: those among the arguments of a call. given: its arguments, with copies of these.
    """
    copies = owners_in(given)
    owners = owners[: len(copies)]  # after them come those in places
    numbers = {id(owner): number for number, owner in reversed([*enumerate(owners)])}

    def known(leaf: Any, _: str) -> Any:
        return Owned(numbers[id(leaf)]) if id(leaf) in numbers else leaf

    def is_held(now: Any, then: Any) -> bool:
        if id(now) in numbers:
            return copies[numbers[id(now)]] is then
        if isinstance(now, tuple) and type(now) is type(then) and len(now) == len(then):
            return all(map(is_held, now, then))
        return now is then

    found = {}
    for number, (owner, copy) in enumerate(zip(owners, copies, strict=True)):
        if isinstance(owner, tuple):
            continue
        now, then = entries_of(owner), entries_of(copy)
        if [*now] != [*then] or not all(is_held(now[key], then[key]) for key in now):
            found[number] = {
                key: map_tree(known, value, leaves=numbers) for key, value in now.items()
            }
    return found


@contextmanager
def holding(given: Any, present: Mapping[int, dict[Any, Any]]) -> Iterator[None]:
    """Let containers and objects in `given` hold in the block what `present_contents` has found."""
    if not present:
        yield
        return
    owners = owners_in(given)
    before = [(owners[number], entries_of(owners[number])) for number in present]

    try:
        for number, entries in present.items():
            _hold(owners[number], {key: _with_owners(x, owners) for key, x in entries.items()})
        yield
    finally:
        for owner, entries in before:
            _hold(owner, entries)


def _with_owners(value: Any, owners: Sequence[Any]) -> Any:
    """A value with the containers of the arguments that are in it."""
    if isinstance(value, Owned):
        return owners[value.number]
    if isinstance(value, deque):
        return deque((_with_owners(item, owners) for item in value), value.maxlen)
    if isinstance(value, list):
        return [_with_owners(item, owners) for item in value]
    if type(value) is tuple:
        return tuple(_with_owners(item, owners) for item in value)
    if isinstance(value, dict):
        return {key: _with_owners(item, owners) for key, item in value.items()}
    return value


def owners_in(given: Any) -> list[Any]:
    """The containers and objects in arguments, and in those given by name."""
    args, kwargs = given
    values = (value for name, value in kwargs.items() if name != VALUES)
    named = [("", value) for value in (*args, *values)]
    return [owner for _, owner in owners_of(named)]


def _hold(owner: Any, entries: Mapping[Any, Any]) -> None:
    """Let a container have these entries, an object these attributes, and no others."""
    if isinstance(owner, list):
        owner[:] = entries.values()
    elif isinstance(owner, deque):
        owner.clear()
        owner.extend(entries.values())
    elif isinstance(owner, dict):
        dict.clear(owner)
        dict.update(owner, entries)
    else:
        for name in entries_of(owner).keys() - entries:
            object.__delattr__(owner, name)
        for name, value in entries.items():
            object.__setattr__(owner, name, value)
