"""How the short way finds what a program is given, where that isn't tensors alone.

Arguments may be containers of tensors, arrays and numbers, others are known by their values or
identities, numbers stand in places, which entry of a container is meant follows from numbers, and
leaves have gradients from before.
What `Call.key` says of a call is compared on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid.compiler.guards.moving_entries import MovingEntry
from lucid.compiler.guards.mutable_sources import MutableSource
from lucid.compiler.inputs.cells import GradUse
from lucid.compiler.inputs.functions import Kept
from lucid.compiler.inputs.objects import (
    BY_VALUE,
    SCALARS,
    MarkedObject,
    data_of,
    is_set_of_values,
    kind_of_items,
    text_by_value,
    types_and_items,
)
from lucid.compiler.inputs.scalars import is_whole
from lucid.compiler.inputs.signature import LISTS, LiveArgument, live_text
from lucid.ir.classes import isinstance
from lucid.tensor.core import TensorCore
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import attributes_beside, fields_of, is_record

Kind = type | None  # of a number; None: a tensor


class Read(NamedTuple):
    """How a place is read that holds a tensor, a number, or a tuple of these.

    Attributes:
        size: the length of the tuple; -1: it is no tuple.
        kinds: the kind of each entry, or of the value.
    """

    place: MutableSource
    size: int
    kinds: list[Kind]


class Found(NamedTuple):
    """What a call is given: tensors and arrays, numbers, and the mutable containers and objects."""

    tensors: list[Any]
    numbers: list[Any]
    owners: list[Any]


# Adds a value's leaves; returns whether its structure is as traced. None stands for a tensor or an
# array, whose type native code compares.
Reader = Callable[[Any, Found], bool] | None


class NotReadableError(Exception):
    """A value that only `Program.run` can compare."""


class Gathering:
    """Finds the inputs of a native call: native code calls this with a call's arguments.

    Args:
        given: the arguments of the traced call, with marks on those that are read live.
        places: the places that the step reads, and moving entries, with their traced values.
        gradients: the gradients that the step reads; those that were there come last.
        shares: says whether the step changes one of the call's containers by another name as well.

    Raises: `NotReadableError`.
    """

    def __init__(
        self,
        given: tuple[Any, ...],
        places: Iterable[tuple[MutableSource | MovingEntry, Any]],
        gradients: Sequence[GradUse] = (),
        shares: Callable[[Callable[[], Sequence[Any]]], bool] = lambda _: False,
    ) -> None:
        self._arguments = reader_of(given)
        self._shares = shares
        self._places = [
            (place, reader_of(live_text(value), in_place=True)) for place, value in places
        ]
        self._leaves: list[tuple[Any, bool]] = [(x.leaf, x.found is not None) for x in gradients]
        self.numbers: list[Any] = []  # of the call that runs

    def __call__(self, *args: Any) -> tuple[Any, ...] | None:
        """The tensors and arrays in order; None where the call is another one."""
        found = Found([], [], [])
        assert self._arguments is not None
        try:
            if not self._arguments(args, found):
                return None
            for place, read in self._places:
                if isinstance(place, MovingEntry):
                    value = place.found(found.numbers)
                else:
                    value = place.found()
                if read is None:
                    found.tensors.append(value)
                elif not read(value, found):
                    return None
            if not self._find_gradients(found):
                return None
        except Exception:  # of the user's class: the long way meets it again
            return None
        owners = found.owners
        if len(owners) > 1 and len({*map(id, owners)}) < len(owners):
            return None
        lists = [x for x in found.numbers if type(x) in LISTS]
        if (owners or lists) and self._shares(lambda: [*owners, *lists]):
            return None
        self.numbers = found.numbers
        return tuple(found.tensors)

    def _find_gradients(self, found: Found) -> bool:
        for leaf, is_there in self._leaves:
            if (leaf._gradient is not None) is not is_there:
                return False
            if is_there:
                gradient = leaf._grad
                if gradient._chain:  # part of other memory
                    return False
                found.tensors.append(gradient)
        return True


def reader_of(value: Any, *, in_place: bool = False) -> Reader:
    """A reader of values of the same structure as this one. Raises `NotReadableError`.

    in_place: whether the value is in a place, where ints are read at each call.
    """
    kind = type(value)
    if kind is Tensor or kind is np.ndarray:
        return None
    if kind is LiveArgument:
        own, item = value.what
        return _number(own) if item is None else _list_of(own, item)
    if kind is float or isinstance(value, np.floating) or (in_place and is_whole(value)):
        return _number(kind)
    if isinstance(value, BY_VALUE) and kind is not range:
        return lambda found, _: found.__class__ is kind and bool(found == value)
    text = text_by_value(value)
    if text is not None:
        return lambda found, _: text_by_value(found) == text
    if is_set_of_values(value):
        items = types_and_items(value)
        return lambda found, _: found.__class__ is kind and types_and_items(found) == items
    if kind is list or isinstance(value, tuple):
        if attributes_beside(value):
            raise NotReadableError
        return _items(kind, [reader_of(item, in_place=in_place) for item in value])
    if kind is dict:
        readers = {key: reader_of(item, in_place=in_place) for key, item in value.items()}
        return _entries(kind, readers, lambda found: found)
    attributes = fields_of(value) if is_record(value) else data_of(value)
    if kind is MarkedObject:
        kind, attributes = type(value.value), value.attributes
    if attributes is not None:
        if kind is type(value) and attributes != getattr(value, "__dict__", None):
            raise NotReadableError
        readers = {name: reader_of(x, in_place=in_place) for name, x in attributes.items()}
        return _entries(kind, readers, vars)
    if isinstance(value, (TensorCore, np.ndarray, dict, range, slice, Kept)):
        raise NotReadableError
    return lambda found, _: found is value


def _number(kind: type) -> Reader:
    def read(value: Any, found: Found) -> bool:
        found.numbers.append(value)
        return value.__class__ is kind

    return read


def _list_of(kind: Any, item: type) -> Reader:
    """A reader of lists that are read live."""

    def read(value: Any, found: Found) -> bool:
        found.numbers.append(value)
        return value.__class__ == kind and kind_of_items(value) is item

    return read


def _items(kind: Any, readers: Sequence[Reader]) -> Reader:
    """A reader of lists and tuples."""
    size, can_change, take = len(readers), kind is list, _each(readers)

    def read(value: Any, found: Found) -> bool:
        if value.__class__ is not kind or len(value) != size:
            return False
        if can_change:
            found.owners.append(value)
        return take(value, found)

    return read


def _each(readers: Sequence[Reader]) -> Callable[[Iterable[Any], Found], bool]:
    """Reads a value by each of some readers."""

    def read(values: Iterable[Any], found: Found) -> bool:
        for value, inner in zip(values, readers, strict=True):
            if inner is None:
                found.tensors.append(value)
            elif not inner(value, found):
                return False
        return True

    return read


def _entries(
    kind: Any, readers: dict[Any, Reader], entries_of: Callable[[Any], dict[Any, Any]]
) -> Reader:
    """A reader of dicts, or of objects of plain data, whose attributes are the entries."""
    if not all(isinstance(key, SCALARS) for key in readers):
        raise NotReadableError
    keys, take = [*readers], _each([*readers.values()])

    def read(value: Any, found: Found) -> bool:
        if value.__class__ is not kind:
            return False
        entries = entries_of(value)
        if [*entries] != keys:
            return False
        found.owners.append(value)
        return take(entries.values(), found)

    return read
