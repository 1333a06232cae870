"""What an input of a program is, so that two programs of one function know the same ones.

An argument or a float among them by its number, the memory of state, an entry of a dict. The
backward of a call has the arguments of the step as its own first ones.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from functools import partial
from typing import Any

from lucid.compiler.hooks import item_of
from lucid.compiler.inputs.cells import Cell
from lucid.compiler.inputs.scalars import LiveSource

Source = Hashable
_COUNT: Any = range(1 << 30)  # of which each item is its number


def source_of(entry: Cell | LiveSource) -> Source | None:
    """What an input is; None for what only one program has."""
    if isinstance(entry, Cell):
        if entry.kind == "arg":
            return argument(entry.position)
        return state(entry.storage) if entry.kind == "state" else None
    if type(entry.formula) is operator.itemgetter:
        return number(entry.formula(_COUNT))
    read, index = entry.read, -1
    if isinstance(read, partial) and read.func is item_of:
        read, index = read.args
    if isinstance(read, partial) and read.func is dict.__getitem__:
        owner, key = read.args
        return hyper_parameter(owner, key, index)
    return None


def argument(position: int) -> Source:
    """A tensor argument."""
    return "argument", position


def number(position: int) -> Source:
    """A float argument."""
    return "number", position


def state(storage: object) -> Source:
    """The memory of a tensor that the step met."""
    return "state", id(storage)


def hyper_parameter(owner: object, key: str, index: int = -1) -> Source:
    """An entry of a dict; index: an element of the tuple there, or -1."""
    return "entry", id(owner), key, index
