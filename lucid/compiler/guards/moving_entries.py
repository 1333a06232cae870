"""Entries of containers at places that a call's numbers and texts say: `data[i % len(data)]`.

What is there is one more argument, which each call finds by its own number. So a step isn't
specialized on each place, as long as what is there is of the same kind. Of a list among the
arguments, `[to_ix[w] for w in words]`, the entries of all items are one array.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from lucid.compiler.guards.guard import ABSENT, item_at
from lucid.compiler.inputs.objects import SCALARS, data_of, kind_of_items
from lucid.compiler.inputs.scalars import Formula, is_live, is_whole
from lucid.ir.classes import isinstance
from lucid.ir.types import DType, f64, has_dtype, i64
from lucid.tensor.core import TensorCore
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten

HOLDERS = (list, tuple, deque, dict)
OF_ITEMS: dict[type | None, DType] = {int: i64, float: f64}


@dataclass(slots=True, eq=False)
class MovingEntry:
    """An entry of a container that was there before.

    Attributes:
        path: how the user gets at it.
        key: gives its key, of the numbers that a call finds.
    """

    path: str
    owner: Any
    key: Formula

    def found(self, numbers: list[Any]) -> Any:
        """What is there in a call; ABSENT: nothing, or there is no key."""
        try:
            return item_at(self.owner, self.key(numbers))
        except Exception:  # which the trace to come is to meet
            return ABSENT


@dataclass(slots=True, eq=False)
class Column(MovingEntry):
    """What a function makes of each item of a list that a call has, as an array.

    Attributes:
        key: gives the list, of the numbers that a call finds.
        each: makes a number of an item, and of the container in which that is looked up.
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
    """Ints or floats as an array; ABSENT: they are others. Raises for an int that is too large.

    items: these, or lists of them, of one length. kind: the class that they must have; None: any.
    """
    parts = list(chain(*items)) if items and type(items[0]) in (list, tuple) else items
    found = kind_of_items(parts) if parts or kind is None else kind
    dtype = OF_ITEMS.get(found)
    return ABSENT if dtype is None or kind not in (None, found) else np.array(items, dtype.numpy)


def is_data(value: Any) -> bool:
    """Whether a value is a number; or tensors or arrays, with others perhaps, none of them a state.

    A tensor that requires grad is known to an optimizer as well, mostly.
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
    found: list[Any] = []
    for leaf in flatten(value)[0]:
        attributes = data_of(leaf)
        found += [leaf] if attributes is None else leaves_of([*attributes.values()])
    return found


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, TensorCore):
        return type(leaf) is Tensor and not leaf.requires_grad and leaf._array is not None
    return type(leaf) is np.ndarray and has_dtype(leaf)
