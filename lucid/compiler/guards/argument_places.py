"""Lists, dicts and objects among the arguments that a step changes: each call changes its own.

While a step is traced, others stand for them. What was changed in those is bound in the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from lucid.compiler.guards.guard import ABSENT, CONTENTS, put_at
from lucid.compiler.guards.places import Place
from lucid.compiler.inputs.arrays import refuse_arrays
from lucid.compiler.inputs.objects import entries_of, owners_of
from lucid.compiler.inputs.scalars import key_of
from lucid.compiler.inputs.signature import Call
from lucid.compiler.inputs.tree import map_tree, path_of
from lucid.tensor.core import TensorCore, of_array


class OfArgument(Place):
    """An entry of a container that is an argument, an attribute of an object; or all entries.

    Attributes:
        number: which of the arguments' containers and objects it is, as `owners_of` finds them.
    """

    __slots__ = ("number",)

    def __init__(self, path: str, key: Any, number: int) -> None:
        super().__init__(path, None, key)
        self.number = number

    def bind(self, value: Any, call: Call) -> None:
        _bind(call.owners()[self.number], self.key, value)


def _bind(owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, (list, deque, dict)):
        put_at(owner, key, value)
    elif value is not ABSENT:
        object.__setattr__(owner, key, value)
    else:
        with suppress(AttributeError):  # an interrupted call has done it
            object.__delattr__(owner, key)


def changed_entries(
    path: str, owner: Any, before: Mapping[Any, Any], number: int
) -> Iterator[tuple[OfArgument, Any, Any]]:
    """What of a container or an object is something else now: place, what was there, what is."""
    now = entries_of(owner)
    kept = [key for key in before if key in now]
    has_moved = isinstance(owner, (list, deque)) and len(now) != len(before)
    if has_moved or (isinstance(owner, dict) and [*now][: len(kept)] != kept):
        yield OfArgument(path, CONTENTS, number), None, owner.copy()
        return
    for key in [key for key in before if key not in now]:
        yield OfArgument(path_of(path, owner, key), key, number), before[key], ABSENT
    for key, value in now.items():
        was = before.get(key, ABSENT)
        if value is not was:
            yield OfArgument(path_of(path, owner, key), key_of(key), number), was, value


def call_with_tensors(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call it op by op, with tensors on the memory of NumPy arrays, as in a compiled call.

    What it changes in containers is changed in the caller's.
    """
    if not _has_arrays((args, kwargs)):
        return function(*args, **kwargs)
    refuse_arrays(function, args, kwargs)
    as_tensor = partial(_as_tensor, {})
    given = [("", value) for value in (*args, *kwargs.values())]
    known: dict[int, Any] = {}
    values = [map_tree(as_tensor, value, known=known) for _, value in given]
    theirs, ours = owners_of(given), owners_of([("", value) for value in values])
    before = [entries_of(owner) for _, owner in ours]
    result = function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
    originals = {id(ours[i][1]): theirs[i][1] for i in range(len(ours))}

    def original(leaf: Any, _: str) -> Any:
        return originals.get(id(leaf), leaf)

    for number, (_, owner) in enumerate(ours):
        for place, _, value in list(changed_entries("", owner, before[number], number)):
            new = map_tree(original, value, leaves=originals)
            if owner is not theirs[number][1]:  # an object of plain data has changed by itself
                _bind(theirs[number][1], place.key, new)
    return map_tree(original, result, leaves=originals)


def _has_arrays(tree: Any) -> bool:
    found: list[bool] = []
    map_tree(lambda leaf, _: found.append(isinstance(leaf, np.ndarray)), tree)
    return any(found)


def _as_tensor(known: dict[int, TensorCore], leaf: Any, _: str) -> Any:
    return known.setdefault(id(leaf), of_array(leaf)) if isinstance(leaf, np.ndarray) else leaf
