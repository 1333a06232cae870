"""Entries of containers at places that a call's numbers and texts say: `data[i % len(data)]`.

The entry is one more argument, which each call finds by its own number. So a step isn't specialized
on the place, as long as entries are of one kind. For a list among the arguments,
`[to_ix[w] for w in words]`, the entries of all items are one array.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from lucid.compiler.guards.guard import ABSENT, item_at
from lucid.compiler.inputs.objects import SCALARS, kind_of_items, walk
from lucid.compiler.inputs.scalars import Formula, is_live, is_whole
from lucid.ir.classes import isinstance
from lucid.ir.types import DType, f64, has_dtype, i64
from lucid.tensor.core import TensorCore
from lucid.tensor.tensor import Tensor

HOLDERS = (list, tuple, deque, dict)
OF_ITEMS: dict[type | None, DType] = {int: i64, float: f64}


@dataclass(slots=True, eq=False)
class MovingEntry:
    """An entry of a container that was there before.

    Attributes:
        path: how the user gets at it.
        key: the formula of its key, by the numbers that a call finds.
    """

    path: str
    owner: Any
    key: Formula

    def found(self, numbers: list[Any]) -> Any:
        """The entry in a call; ABSENT: there is none, or no key."""
        try:
            return item_at(self.owner, self.key(numbers))
        except Exception:  # which the trace to come is to meet
            return ABSENT


@dataclass(slots=True, eq=False)
class Column(MovingEntry):
    """An array of what a function makes of each item of a live list.

    Attributes:
        key: the formula of the list, by the numbers that a call finds.
        each: `each(owner, item)` gives a number, such as the item's entry in the container `owner`.
        kind: the class of these numbers.
    """

    each: Callable[[Any, Any], Any]
    kind: type

    def found(self, numbers: list[Any]) -> Any:
        try:
            return as_column([self.each(self.owner, x) for x in self.key(numbers)], self.kind)
        except Exception:  # of a text that isn't there
            return ABSENT


def as_column(items: Sequence[Any], kind: type | None = None) -> Any:
    """Ints or floats as an array; ABSENT: items of other classes. Raises for an int above 64 bits.

    items: numbers, or lists of numbers of one length.
    kind: the class that the numbers must have; None: int or float.
    """
    parts = list(chain(*items)) if items and type(items[0]) in (list, tuple) else items
    found = kind_of_items(parts) if parts or kind is None else kind
    dtype = OF_ITEMS.get(found)
    return ABSENT if dtype is None or kind not in (None, found) else np.array(items, dtype.numpy)


def is_data(value: Any) -> bool:
    """Whether a value is data: a number, or a tree with tensors or arrays and no state in it.

    A tensor that requires grad counts as state: mostly an optimizer knows it as well.
    """
    if type(value) is float or is_whole(value):
        return True
    kinds = (*SCALARS, np.number, slice, range)
    leaves = leaves_of(value)
    others = [x for x in leaves if not _is_array(x)]
    are_plain = all(isinstance(x, kinds) and not is_live(x) for x in others)
    return len(others) < len(leaves) and are_plain


def leaves_of(value: Any) -> list[Any]:
    """What is in containers and objects of plain data."""
    return [leaf for _, leaf, is_leaf in walk(value, "", set()) if is_leaf]


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, TensorCore):
        return type(leaf) is Tensor and not leaf.requires_grad and leaf._array is not None
    return type(leaf) is np.ndarray and has_dtype(leaf)
