"""Entries of containers at places that a number says which each call has: `data[i % len(data)]`.

What is there is one more argument, which each call finds by its own number. So a step isn't
specialized on each place, as long as what is there is of the same kind.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.compiler.guards.guard import ABSENT, item_at
from lucid.compiler.inputs.objects import SCALARS, data_of
from lucid.compiler.inputs.scalars import Formula, is_live
from lucid.ir.classes import isinstance
from lucid.ir.types import has_dtype
from lucid.tensor.core import TensorCore
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import flatten

HOLDERS = (list, tuple, deque, dict)


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


def is_data(value: Any) -> bool:
    """Whether a value is tensors or arrays, with numbers and texts perhaps, none of them a state.

    A tensor that requires grad is known to an optimizer as well, mostly.
    """
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
