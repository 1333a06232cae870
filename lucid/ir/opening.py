"""Graphs that differ in sizes only, as one graph whose sizes are open.

A step that is traced for a second batch size leaves a graph of the same ops with other numbers in
it. Where they differ, the numbers follow from a few sizes: these are the symbols (`extents.py`),
and what else has changed is a formula of them, or a symbol of its own. A third trace is an instance
if its numbers are what the formulas say.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.clone import copy_graph
from lucid.ir.extents import LEAST, Extent, NotOpenError, Sizes, hint, is_open, replaced
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.op import Trait
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

    @property
    def closed(self) -> tuple[tuple[int, int], ...]:
        """The numbers that are too small to be open ones, as sizes of 0 and 1 are, by place."""
        pairs = enumerate(self.numbers)
        return tuple([(n, x) for n, x in pairs if x < LEAST and n not in self.bits])


def skeleton_of(graph: Graph, strides: Sequence[Strides]) -> Skeleton:
    """Take a flat graph and the bodies of its loops apart."""
    texts: list[str] = []
    numbers: list[int] = []
    bits: set[int] = set()

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

    def add_graph(part: Graph, strides: Sequence[Strides]) -> None:
        places = {value: place for place, value in enumerate(part.values())}
        for entry, steps in zip(part.inputs, strides, strict=True):
            texts.append(entry.kind)
            add_type(entry.value.type)
            add(tuple(steps))
        for node in part.nodes:
            texts.extend([node.op.name, *(str(places[value]) for value in node.operands)])
            if node.has_effect or Trait.INDEXED in node.op.traits:  # its error names the line
                texts.append(str(node.location))
            for name in sorted(node.attributes):
                if not (name == "message" and is_told_later(node)):
                    texts.append(name)
                    add(node.attributes[name])
            for result in node.results:
                add_type(result.type)
        texts.append("return")
        texts.extend(str(places[value]) for value in part.outputs)
        texts.extend(f"{places[cell]} <- {places[new]}" for cell, new in part.writes)

    add_graph(graph, strides)
    for name, body in graph.functions.items():
        texts.append(name)
        add_graph(body, [()] * len(body.inputs))
    key = hashlib.sha256("\n".join(texts).encode()).digest()
    return Skeleton(key, tuple(numbers), frozenset(bits))


def is_told_later(node: Node) -> bool:
    """Whether it is a check whose message, with sizes in it, is only asked for when it fails."""
    return node.op is ops.check and node.attributes["error"] not in ("exit", "finite")


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


def opening(samples: Sequence[Skeleton]) -> Opening:
    """Find what differs between graphs of one skeleton, and how it follows from few sizes.

    The sizes at hand are those of the last one. Raises `NotOpenError` where a size is 0 or 1 in one
    of them, or nothing differs.
    """
    *_, now = samples
    columns = list(zip(*(sample.numbers for sample in samples), strict=True))
    places: dict[_Column, int] = {}
    formulas: dict[_Column, _Formula] = {}
    bits: dict[_Column, int] = {}
    for place, column in enumerate(columns):
        if column.count(column[0]) == len(column):
            continue
        if place in now.bits:
            bits.setdefault(column, place)
        elif column not in formulas:
            found = _formula(column, formulas)
            if found is None:
                if min(column) < LEAST:
                    raise NotOpenError(f"a size is {min(column)} in one of the graphs")
                places[column] = place
                found = (column,), 1, 0, 1
            formulas[column] = found
    if not places and not bits:
        raise NotOpenError("nothing differs")
    known = [*places.values(), *bits.values()]
    sizes = Sizes([now.numbers[place] for place in known], bits=range(len(places), len(known)))
    symbols = dict(zip(places, sizes.symbols, strict=False))
    of_bits = dict(zip(bits, sizes.symbols[len(places) :], strict=True))

    def value(column: _Column, place: int) -> Any:
        if column.count(column[0]) == len(column):
            return column[0]
        if place in now.bits:
            return of_bits[column]
        if column in symbols:
            return symbols[column]
        factors, factor, rest, divisor = formulas[column]
        return prod(value(x, -1) for x in factors) * factor // divisor + rest

    numbers = tuple(value(column, place) for place, column in enumerate(columns))
    return Opening(sizes, tuple(known), numbers)


_Column = tuple[int, ...]
"""A number in each of some graphs."""
_Formula = tuple[tuple[_Column, ...], int, int, int]
"""Columns that are multiplied, a factor, a rest that is added in the end, and a divisor before."""
_KNOWN = 16  # formulas that others are made from


def _formula(column: _Column, known: dict[_Column, _Formula]) -> _Formula | None:
    """How a number follows from others, the plainest way: c·a, c·a·b, a + c, a // c, c·a + d."""
    few = list(known)[:_KNOWN]
    products: list[tuple[tuple[_Column, ...], _Column]] = [((a,), a) for a in few]
    products += [
        ((a, b), tuple(x * y for x, y in zip(a, b, strict=True)))
        for n, a in enumerate(few)
        for b in few[n:]
    ]
    for factors, values in products:
        factor = column[0] // values[0] if values[0] else 0
        if factor and all(x == factor * y for x, y in zip(column, values, strict=True)):
            return factors, factor, 0, 1
    for a in few:
        rest = column[0] - a[0]
        if all(x - y == rest for x, y in zip(column, a, strict=True)):
            return (a,), 1, rest, 1
    for a in few:
        divisor = a[0] // (column[0] or 1)
        if divisor > 1 and all(x == y // divisor for x, y in zip(column, a, strict=True)):
            return (a,), 1, 0, divisor
    for a in few:
        factor, left = divmod(column[-1] - column[0], a[-1] - a[0] or 1)
        rest = column[0] - factor * a[0]
        is_right = all(x == factor * y + rest for x, y in zip(column, a, strict=True))
        if factor and not left and abs(rest) <= 2 * abs(factor) and is_right:
            return (a,), factor, rest, 1
    return None


def opened(graph: Graph, numbers: Sequence[Any]) -> tuple[Graph, list[Strides]]:
    """A copy of a graph, and its inputs' strides, with these numbers in a skeleton's places.

    The message of a check is the number of its node, and the name of the body that it is in.
    """
    copied = copy_graph(graph)
    rest = iter(numbers)
    strides = []
    for entry in copied.inputs:
        _retype(entry.value, rest)
        strides.append(tuple(next(rest) for _ in entry.value.shape))
    _open_nodes(copied, rest)
    for name, body in copied.functions.items():
        for entry in body.inputs:
            _retype(entry.value, rest)
        _open_nodes(body, rest, name)
    return copied, strides


def reopened(graph: Graph, rename: Callable[[Extent], Any]) -> Graph:
    """A copy of a graph with other extents."""
    copied = copy_graph(graph)
    rename_sizes(copied, rename)
    return copied


def rename_sizes(graph: Graph, rename: Callable[[Extent], Any]) -> None:
    """Give a graph other extents."""
    for part in (graph, *graph.functions.values()):
        for value in part.values():
            shape = replaced(value.type.shape, rename)
            if shape is not value.type.shape:
                value._type = TensorType(value.type.dtype, shape)
        for node in part.nodes:
            node.attributes = replaced(node.attributes, rename)


def has_extents(node: Node) -> bool:
    """Whether a size is open in the attributes or the results of a node."""
    if any(is_open(size) for value in node.results for size in value.shape):
        return True
    return replaced(node.attributes, hint) is not node.attributes


def at_hand(node: Node) -> Node:
    """The node for the sizes at hand, by itself."""
    types = [x.type.with_shape(replaced(x.type.shape, hint)) for x in node.results]
    graph = node.results[0].graph
    return Node(node.op, node.operands, replaced(node.attributes, hint), types, graph)


def told_node(node: Node, graph: Graph) -> Node:
    """The node of a graph whose message a check of its opened copy has the number of."""
    number, _, name = node.attributes["message"].partition(" ")
    return (graph.functions[name] if name else graph).nodes[int(number)]


def _open_nodes(graph: Graph, rest: Iterator[Any], name: str = "") -> None:
    for number, node in enumerate(graph.nodes):
        attributes = {name: _taken(node.attributes[name], rest) for name in sorted(node.attributes)}
        if is_told_later(node):
            attributes["message"] = f"{number} {name}".rstrip()
        _set_attributes(node, attributes)
        for result in node.results:
            _retype(result, rest)


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
