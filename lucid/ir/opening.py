"""Graphs that differ in sizes only, as one graph whose sizes are open.

A step that is traced for a second batch size leaves a graph of the same ops with other numbers in
it. Where they differ, the numbers follow from a few sizes: these are the symbols (`extents.py`),
and what else has changed is a formula of them, or a symbol of its own. A third trace is an instance
if its numbers are what the formulas say.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.clone import copy_graph
from lucid.ir.extents import LEAST, NotOpenError, Sizes
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.strides import Strides
from lucid.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A graph and the strides of its inputs: what is left without numbers, and the numbers.

    Attributes:
        key: equal for graphs that differ in numbers alone.
        numbers: sizes, whole attributes and strides, and the values of constants as 64 bits.
        bits: the places of those of constants.
    """

    key: bytes
    numbers: tuple[int, ...]
    bits: frozenset[int]


def skeleton_of(graph: Graph, strides: Sequence[Strides]) -> Skeleton:
    """Take a flat graph apart."""
    texts: list[str] = []
    numbers: list[int] = []
    bits: set[int] = set()
    places = {value: place for place, value in enumerate(graph.values())}

    def add(value: object) -> None:
        if type(value) is int:
            numbers.append(value)
            texts.append("#")
        elif isinstance(value, tuple):
            numbers.extend(value)
            texts.append(f"#{len(value)}")
        elif isinstance(value, np.generic):
            bits.add(len(numbers))
            numbers.append(_bits(value))
            texts.append("=" + value.dtype.str)
        else:
            texts.append(repr(value))

    def add_type(type_: TensorType) -> None:
        texts.append(type_.dtype.name)
        add(type_.shape)

    for entry, steps in zip(graph.inputs, strides, strict=True):
        texts.append(entry.kind)
        add_type(entry.value.type)
        add(tuple(steps))
    for node in graph.nodes:
        texts += [node.op.name, *(str(places[value]) for value in node.operands)]
        for name in sorted(node.attributes):
            if not (name == "message" and is_told_later(node)):
                texts.append(name)
                add(node.attributes[name])
        for result in node.results:
            add_type(result.type)
    texts.append("return")
    texts += [str(places[value]) for value in graph.outputs]
    texts += [f"{places[cell]} <- {places[new]}" for cell, new in graph.writes]
    key = hashlib.sha256("\n".join(texts).encode()).digest()
    return Skeleton(key, tuple(numbers), frozenset(bits))


def is_told_later(node: Node) -> bool:
    """Whether it is a check whose message, with sizes in it, is only asked for when it fails."""
    return node.op is ops.check and node.attributes["error"] != "exit"


def _bits(value: np.generic) -> int:
    """A number's 64 bits: of floats as f64, of whole numbers as i64."""
    if value.dtype.kind == "f":
        return int(struct.unpack("<Q", struct.pack("<d", float(value)))[0])
    return int(value)


@dataclass(frozen=True, slots=True)
class Opening:
    """Which numbers of a skeleton are open.

    Attributes:
        sizes: the symbols.
        places: where the number that each symbol stands for is.
        numbers: all numbers: ints, and extents where they are open.
    """

    sizes: Sizes
    places: tuple[int, ...]
    numbers: tuple[Any, ...]

    def values(self, skeleton: Skeleton) -> tuple[int, ...]:
        """The symbols' values in another skeleton of the same key."""
        return tuple(skeleton.numbers[place] for place in self.places)


def opening(earlier: Skeleton, now: Skeleton) -> Opening:
    """Find what differs, and how it follows from as few sizes as may be.

    Raises `NotOpenError` where a number is 0 or 1 in one of them, or nothing differs.
    """
    pairs = list(zip(earlier.numbers, now.numbers, strict=True))
    found: dict[tuple[int, int, bool], Any] = {}
    places: list[int] = []
    for place, (old, new) in enumerate(pairs):
        key = old, new, place in now.bits
        if old == new or key in found:
            continue
        symbols = [(n, pairs[x]) for n, x in enumerate(places) if x not in now.bits]
        formula = None if key[2] else _formula((old, new), symbols)
        if formula is None:
            if not key[2] and min(old, new) < LEAST:
                raise NotOpenError(f"a number is {old} in one graph and {new} in another")
            formula = len(places), 1, 0
            places.append(place)
        found[key] = formula
    if not places:
        raise NotOpenError("nothing differs")
    bits = [number for number, place in enumerate(places) if place in now.bits]
    sizes = Sizes([now.numbers[place] for place in places], bits=bits)
    opened = {
        key: sizes.symbols[symbol] * factor + rest for key, (symbol, factor, rest) in found.items()
    }
    numbers = [
        new if old == new else opened[old, new, place in now.bits]
        for place, (old, new) in enumerate(pairs)
    ]
    return Opening(sizes, tuple(places), tuple(numbers))


def _formula(
    pair: tuple[int, int], symbols: Sequence[tuple[int, tuple[int, int]]]
) -> tuple[int, int, int] | None:
    """A symbol, a factor and a rest that give both numbers; those without a rest first."""
    found: list[tuple[int, int, int, int]] = []
    for number, (x, y) in symbols:
        factor, left = divmod(pair[1] - pair[0], y - x)
        if factor and not left:
            rest = pair[0] - factor * x
            found.append((abs(rest), number, factor, rest))
    return min(found)[1:] if found else None


def opened(graph: Graph, numbers: Sequence[Any]) -> tuple[Graph, list[Strides]]:
    """A copy of a graph, and its inputs' strides, with these numbers in a skeleton's places.

    The message of a check is the number of its node.
    """
    copied = copy_graph(graph)
    rest = iter(numbers)
    strides = []
    for entry in copied.inputs:
        _retype(entry.value, rest)
        strides.append(tuple(next(rest) for _ in entry.value.shape))
    for number, node in enumerate(copied.nodes):
        attributes = {name: _taken(node.attributes[name], rest) for name in sorted(node.attributes)}
        if is_told_later(node):
            attributes["message"] = str(number)
        _set_attributes(node, attributes)
        for result in node.results:
            _retype(result, rest)
    return copied, strides


def _taken(old: Any, rest: Iterator[Any]) -> Any:
    if type(old) is int:
        return next(rest)
    if isinstance(old, tuple):
        return tuple(next(rest) for _ in old)
    if isinstance(old, np.generic):
        new = next(rest)
        return old if isinstance(new, int) else new
    return old


def _set_attributes(node: Node, attributes: dict[str, Any]) -> None:
    if node.op is ops.constant and not isinstance(attributes["value"], np.generic):
        node.op = ops.parameter
        attributes["is_bits"] = True
    node.attributes = attributes


def _retype(value: Value, rest: Iterator[Any]) -> None:
    shape = tuple(next(rest) for _ in value.type.shape)
    if any(new is not old for new, old in zip(shape, value.type.shape, strict=True)):
        value._type = TensorType(value.type.dtype, shape)
