"""A graph as text: one op a line, stable names, a table of the user's lines at the end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from lucid.ir import ops
from lucid.ir.frames import edge
from lucid.ir.graph import Graph, Node, Region, Value
from lucid.ir.location import Location
from lucid.ir.text.literals import format_attribute, format_number, format_string

_NOT_IN_NAMES = re.compile(r"[^\w.]")
_BARE_NAME = re.compile(r"(?!(?:inf|nan)\Z)[^\W\d][\w.]*\Z")
_BARE_FILE = re.compile(r"[\w.<>+-]+\Z")
_NOTE_COLUMN = 64  # where the notes of a node (line, scope, gradient) start
_WIDTH = 100


@edge
def print_graph(graph: Graph, *, numbered: bool = False) -> str:
    """Return the text of a graph and of the functions that it calls, ending in a newline.

    `parse` reads it back. Two graphs with the same text are the same program: names, the user's
    lines and scopes included, directories of files excluded. Only a mark "gradient of" that points
    at a value which is no longer in the graph is left out.

    Args:
        graph: what is printed; `str(graph)` is the same.
        numbered: values have numbers instead of names (False): programs that differ in names alone
            have the same text.

    >>> from lucid.ir import parse, print_graph
    >>> graph = parse("graph double(%x: f32[3]) { %y = add %x, %x return %y }")
    >>> print_graph(graph).splitlines()
    ['graph double(%x: f32[3]) {', '  %y = add %x, %x : f32[3]', '  return %y', '}']
    """
    tables = _Tables()
    named = value_numbers if numbered else value_names
    lines = _body("graph", graph.name, graph, named(graph), tables)
    for name, function in graph.functions.items():
        lines += _body("function", name, function, named(function), tables)
    return "\n".join(lines + tables.lines()) + "\n"


class _Tables:
    """The numbered lines and regions that the nodes refer to, in order of first use."""

    def __init__(self) -> None:
        self._locations: dict[str, int] = {}
        self._regions: dict[Region, int] = {}

    def location(self, location: Location) -> str:
        entry = _location_entry(location)
        return f"@{self._locations.setdefault(entry, len(self._locations) + 1)}"

    def region(self, region: Region) -> str:
        outermost_first: list[Region] = []
        at: Region | None = region
        while at is not None and at not in self._regions:
            outermost_first.insert(0, at)
            at = at.parent
        for new in outermost_first:
            self._regions[new] = len(self._regions) + 1
        return f"#{self._regions[region]}"

    def lines(self) -> list[str]:
        regions = []
        for region, index in self._regions.items():
            line = f"{region.kind} #{index} {name_text(region.name)}"
            if region.location is not None:
                line += f" {self.location(region.location)}"
            if region.parent is not None:
                line += f" in {self.region(region.parent)}"
            regions.append(line)
        return regions + [f"loc @{index} {entry}" for entry, index in self._locations.items()]


def _location_entry(location: Location) -> str:
    file = os.path.basename(location.file)
    if not _BARE_FILE.match(file):
        file = format_string(file)
    source = location.text
    return f"{file}:{location.line}" + (f" {format_string(source)}" if source else "")


def name_text(name: str) -> str:
    """A name of a graph, function or region: bare where it reads as one word, quoted otherwise."""
    return name if _BARE_NAME.match(name) else format_string(name)


def value_names(graph: Graph) -> dict[Value, str]:
    """Give each value a name of its own: its hint, or its op's name, with a suffix where taken.

    Hints that are unique stay as they are, so that names survive printing and parsing.
    """
    names: dict[Value, str] = {}
    taken: set[str] = {hint for value in graph.values() if (hint := _hint(value))}
    used: set[str] = set()
    suffix: dict[str, int] = {}
    for value in graph.values():
        hint = _hint(value)
        name = hint or _unnamed(value)
        if name in used or (not hint and name in taken):
            stem = name
            while name in used or name in taken:
                suffix[stem] = suffix.get(stem, 0) + 1
                name = f"{stem}_{suffix[stem]}"
        used.add(name)
        names[value] = name
    return names


def value_numbers(graph: Graph) -> dict[Value, str]:
    """Give each value its place in the graph as its name: `v0`, `v1`."""
    return {value: f"v{number}" for number, value in enumerate(graph.values())}


def _hint(value: Value) -> str:
    return _NOT_IN_NAMES.sub("_", value.name)


def _unnamed(value: Value) -> str:
    if value.producer is None:
        return "x"
    return "c" if value.producer.op is ops.constant else value.producer.op.name


def _body(
    keyword: str, name: str, graph: Graph, names: dict[Value, str], tables: _Tables
) -> list[str]:
    lines = _header(f"{keyword} {name_text(name)}", graph, names, tables)
    lines += [_node_line(node, names, tables) for node in graph.nodes]
    lines += [f"  write %{names[cell]}, %{names[new]}" for cell, new in graph.writes]
    outputs = _listed(graph.outputs, names)
    lines.append(f"  return {outputs}".rstrip())
    lines.append("}")
    return lines


def _header(title: str, graph: Graph, names: dict[Value, str], tables: _Tables) -> list[str]:
    """Plain arguments stand in parentheses when they fit a line; others have a line each."""
    at = "" if graph.location is None else f" {tables.location(graph.location)}"
    inputs = graph.inputs
    if all(entry.kind == "arg" and not entry.source for entry in inputs):
        arguments = ", ".join(f"%{names[e.value]}: {e.value.type}" for e in inputs)
        line = f"{title}({arguments}){at} {{"
        if not inputs or len(line) <= _WIDTH:
            return [line]
    written = {cell for cell, _ in graph.writes}
    lines = [f"{title}{at} {{"]
    declared = [f"%{names[entry.value]}: {entry.value.type}" for entry in inputs]
    width = max(map(len, declared))
    for entry, value in zip(inputs, declared, strict=True):
        line = f"  {entry.kind:5} {value}"
        if entry.source:
            line = f"  {entry.kind:5} {value:{width}} = {format_string(entry.source)}"
        lines.append(line + ("  // written" if entry.value in written else ""))
    return [*lines, ""]


def node_text(node: Node, names: dict[Value, str]) -> str:
    """A node alone: `%y = mul %x, %x : f32[3]`."""
    if not node.results:
        return _expression(node, names)
    types = ", ".join(str(result.type) for result in node.results)
    types = types if len(node.results) == 1 else f"({types})"
    return f"{_listed(node.results, names)} = {_expression(node, names)} : {types}"


def _node_line(node: Node, names: dict[Value, str], tables: _Tables) -> str:
    line = f"  {node_text(node, names)}"
    notes = []
    if node.location is not None:
        notes.append(tables.location(node.location))
    if node.scope:
        notes.append(format_string(node.scope))
    if node.gradient_of is not None and node.gradient_of in names:
        notes.append(f"grad of %{names[node.gradient_of]}")
    if node.region is not None:
        notes.append(tables.region(node.region))
    if not notes:
        return line
    return f"{line:{_NOTE_COLUMN}}  {' '.join(notes)}"


def _expression(node: Node, names: dict[Value, str]) -> str:
    """The op with its operands and attributes; constants and calls have a form of their own."""
    attributes = node.attributes
    if node.op is ops.constant:
        return f"constant {format_number(attributes['value'], attributes['dtype'])}"
    operands = _listed(node.operands, names)
    text = f"{node.op.name} {operands}".rstrip()
    if "function" in attributes:
        attributes = {key: value for key, value in attributes.items() if key != "function"}
        text = f"{node.op.name} {name_text(node.attributes['function'])}({operands})"
    if attributes:
        pairs = ", ".join(f"{key} = {format_attribute(v)}" for key, v in attributes.items())
        text += f" {{{pairs}}}"
    return text


def _listed(values: Iterable[Value], names: dict[Value, str]) -> str:
    return ", ".join(f"%{names[value]}" for value in values)
