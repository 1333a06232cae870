"""IR text to a graph: tokens first, then one function of the grammar each."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from typing import Any, TypeVar

from lucid.ir import ops
from lucid.ir.attributes import check_arguments, wrong_attribute
from lucid.ir.errors import LucidError, SizeError
from lucid.ir.frames import edge
from lucid.ir.graph import (
    INPUT_KINDS,
    REGION_KINDS,
    Graph,
    Input,
    InputKind,
    Node,
    Region,
    RegionKind,
    Value,
)
from lucid.ir.inference import result_type
from lucid.ir.location import Location
from lucid.ir.op import OPS, Attributes, Op
from lucid.ir.text.literals import number
from lucid.ir.text.tokens import Token, Tokens
from lucid.ir.types import DTYPES, DType, TensorType

_Row = TypeVar("_Row", Location, Region)
_CALLS = ("call", "cond", "host", "scan", "while_loop")
_DTYPES = {dtype.name: dtype for dtype in DTYPES}


@edge
def parse(text: str) -> Graph:
    """Read what `print_graph` writes.

    `//` starts a comment. The type of a node may be left out, except for calls and constants.

    Args:
        text: a graph, the functions that it calls, and the tables of regions and of the user's
            lines.

    Raises:
        ParseError: the text isn't a graph; the message shows the line, and a caret below the place.

    >>> from lucid.ir import parse
    >>> print(parse("graph double(%x: f32[3]) { %y = add %x, %x return %y }"), end="")
    graph double(%x: f32[3]) {
      %y = add %x, %x : f32[3]
      return %y
    }
    """
    tokens = Tokens(text)
    tables = _Tables(tokens)
    tokens.expect("graph")
    graph = _Body(tokens, tables).read()
    while tokens.accept("function"):
        at = tokens.current
        function = _Body(tokens, tables).read()
        if function.name in graph.functions:
            raise tokens.error(at, f"function {function.name} is defined twice")
        graph.functions[function.name] = function
    for name, at in tables.called.items():
        if name not in graph.functions:
            raise tokens.error(at, f"there is no function {name} below the graph")
    tables.read()
    tokens.expect_end()
    return graph


class _Tables:
    """Functions, lines and regions that nodes refer to before the text below defines them."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._locations: dict[str, Location] = {}
        self._regions: dict[str, Region] = {}
        self._waiting: list[Callable[[], None]] = []
        self.called: dict[str, Token] = {}  # functions, each with its first call

    def locate(self, target: Node | Graph, token: Token) -> None:
        def assign() -> None:
            target.location = self._find(self._locations, token, "location")

        self._waiting.append(assign)

    def place(self, node: Node, token: Token) -> None:
        def assign() -> None:
            node.region = self._find(self._regions, token, "region")

        self._waiting.append(assign)

    def _find(self, table: dict[str, _Row], token: Token, what: str) -> _Row:
        if token.text not in table:
            raise self._tokens.error(token, f"no {what} {token.text} in the table at the end")
        return table[token.text]

    def read(self) -> None:
        rows: list[tuple[RegionKind, Token, str, Token | None, Token | None]] = []
        tokens = self._tokens
        while kind := next((kind for kind in REGION_KINDS if tokens.accept(kind)), None):
            key, name = tokens.take("index"), _name(tokens)
            location = tokens.accept_kind("line")
            parent = tokens.take("index") if tokens.accept("in") else None
            rows.append((kind, key, name, location, parent))
        while tokens.accept("loc"):
            key = tokens.take("line")
            self._locations[key.text] = self._location()
        for kind, key, name, line, parent in rows:  # a parent stands before its regions
            self._regions[key.text] = Region(
                name,
                None if line is None else self._find(self._locations, line, "location"),
                None if parent is None else self._find(self._regions, parent, "region"),
                kind,
            )
        for assign in self._waiting:
            assign()

    def _location(self) -> Location:
        """`digits.py:22 "source"`, with the file in quotes where it isn't one word."""
        tokens = self._tokens
        if tokens.current.kind == "string":
            file = _string(tokens)
            tokens.expect(":")
            line = tokens.take_int()
        else:
            token = tokens.take("file")
            file, _, digits = token.text.rpartition(":")
            line = tokens.int_of(token, digits)
        source = _string(tokens) if tokens.current.kind == "string" else ""
        return Location(file, line, source)


def _string(tokens: Tokens) -> str:
    token = tokens.take("string")
    try:
        return str(json.loads(token.text, strict=False))
    except json.JSONDecodeError as error:
        raise tokens.error(token, f"a string that can't be read: {error.msg}") from None


def _name(tokens: Tokens) -> str:
    return _string(tokens) if tokens.current.kind == "string" else tokens.take("word").text


class _Body:
    """One `graph` or `function`: header, nodes, writes, results."""

    def __init__(self, tokens: Tokens, tables: _Tables) -> None:
        self._tokens = tokens
        self._tables = tables
        self._values: dict[str, Value] = {}
        self._marks: list[tuple[Node, Token]] = []

    def read(self) -> Graph:
        tokens = self._tokens
        self._graph = graph = Graph(_name(tokens))
        if tokens.accept("("):
            while not tokens.accept(")"):
                self._input("arg")
                if tokens.current.text != ")":
                    tokens.expect(",")
        if location := tokens.accept_kind("line"):
            self._tables.locate(graph, location)
        tokens.expect("{")
        while kind := next((kind for kind in INPUT_KINDS if tokens.accept(kind)), None):
            self._input(kind)
        while tokens.current.kind == "value" or tokens.current.text in _CALLS:
            self._node()
        while tokens.accept("write"):
            self._write()
        tokens.expect("return")
        graph.outputs = self._operands()
        tokens.expect("}")
        for node, token in self._marks:
            node.gradient_of = self._value(token)
        return graph

    def _input(self, kind: InputKind) -> None:
        tokens = self._tokens
        name = tokens.take("value")
        tokens.expect(":")
        value = Value(self._type(), self._graph, None, len(self._graph.inputs), name.text[1:])
        self._define(name, value)
        source = _string(tokens) if tokens.accept("=") else ""
        self._graph.inputs.append(Input(value, kind, source))

    def _write(self) -> None:
        cell = self._tokens.take("value")
        self._tokens.expect(",")
        new = self._tokens.take("value")
        self._graph.writes.append((self._value(cell), self._value(new)))

    def _define(self, token: Token, value: Value) -> None:
        if token.text in self._values:
            raise self._tokens.error(token, f"{token.text} is defined twice")
        self._values[token.text] = value

    def _value(self, token: Token) -> Value:
        value = self._values.get(token.text)
        if value is None:
            close = difflib.get_close_matches(token.text, self._values, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise self._tokens.error(token, f"{token.text} isn't defined before here{hint}")
        return value

    def _operands(self) -> list[Value]:
        tokens = self._tokens
        if tokens.current.kind != "value":
            return []
        values = [self._value(tokens.take("value"))]
        while tokens.accept(","):
            values.append(self._value(tokens.take("value")))
        return values

    def _node(self) -> None:
        """`%a = op %x, %y {key = value} : type  notes`; a call may have any number of results."""
        tokens = self._tokens
        results = self._results() if tokens.current.kind == "value" else []
        op_token = tokens.take("word")
        op = OPS.get(op_token.text)
        if op is None:
            close = difflib.get_close_matches(op_token.text, OPS, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise tokens.error(op_token, f"no op {op_token.text}{hint}")
        if op.name in _CALLS:
            node = self._call(op, bool(results))
        elif op is ops.constant:
            node = self._constant(op)
        else:
            node = self._plain(op, op_token)
        if len(node.results) != len(results):
            raise tokens.error(results[-1], f"{len(results)} names for {len(node.results)} results")
        for token, value in zip(results, node.results, strict=True):
            value.name = token.text[1:]
            self._define(token, value)
        self._graph.nodes.append(node)
        self._notes(node)

    def _results(self) -> list[Token]:
        tokens = self._tokens
        results = [tokens.take("value")]
        while tokens.accept(","):
            results.append(tokens.take("value"))
        tokens.expect("=")
        return results

    def _call(self, op: Op, has_results: bool) -> Node:
        tokens = self._tokens
        at, function = tokens.current, _name(tokens)
        if op is ops.call:
            self._tables.called.setdefault(function, at)
        tokens.expect("(")
        operands = self._operands()
        tokens.expect(")")
        attributes: Attributes = {"function": function}
        if tokens.accept("{"):
            attributes |= self._attributes(op)
        types: list[TensorType] = []
        if not has_results:
            return Node(op, operands, attributes, types, self._graph)
        tokens.expect(":")
        if tokens.accept("("):
            types.append(self._type())
            while tokens.accept(","):
                types.append(self._type())
            tokens.expect(")")
        else:
            types.append(self._type())
        return Node(op, operands, attributes, types, self._graph)

    def _constant(self, op: Op) -> Node:
        tokens = self._tokens
        literal = tokens.take("number", "word")
        tokens.expect(":")
        at = tokens.current
        type = self._type()
        if type.shape:
            raise tokens.error(at, "a constant has no axes: write `[]`, and broadcast it")
        value = self._number(literal, type.dtype)
        return Node(op, (), {"value": value, "dtype": type.dtype}, (type,), self._graph)

    def _plain(self, op: Op, at: Token) -> Node:
        tokens = self._tokens
        operands = self._operands()
        attributes = self._attributes(op) if tokens.accept("{") else {}
        try:
            check_arguments(op, len(operands), attributes)
            inferred = result_type(op, [value.type for value in operands], attributes)
        except LucidError as error:
            raise tokens.error(at, str(error)) from error
        if tokens.accept(":"):
            at = tokens.current
            if (declared := self._type()) != inferred:
                raise tokens.error(at, f"{op.name} gives {inferred} here, not {declared}")
        return Node(op, operands, attributes, (inferred,), self._graph)

    def _notes(self, node: Node) -> None:
        tokens = self._tokens
        if location := tokens.accept_kind("line"):
            self._tables.locate(node, location)
        if tokens.current.kind == "string":
            node.scope = _string(tokens)
        if tokens.accept("grad"):
            tokens.expect("of")
            self._marks.append((node, tokens.take("value")))
        if region := tokens.accept_kind("index"):
            self._tables.place(node, region)

    def _type(self) -> TensorType:
        """`f32[4,8]`."""
        tokens = self._tokens
        at = tokens.current
        dtype = self._dtype(tokens.take("word"))
        tokens.expect("[")
        shape = []
        while not tokens.accept("]"):
            shape.append(tokens.take_int())
            if tokens.current.text != "]":
                tokens.expect(",")
        try:
            return TensorType(dtype, tuple(shape))
        except SizeError as error:
            raise tokens.error(at, str(error)) from None

    def _dtype(self, token: Token) -> DType:
        if token.text not in _DTYPES:
            raise self._tokens.error(
                token, f"no dtype {token.text}; there are {', '.join(_DTYPES)}"
            )
        return _DTYPES[token.text]

    def _attributes(self, op: Op) -> Attributes:
        tokens = self._tokens
        attributes: Attributes = {}
        while not tokens.accept("}"):
            key = tokens.take("word")
            if key.text in attributes:
                raise tokens.error(key, f"{op.name}: {key.text} is given twice")
            tokens.expect("=")
            at = tokens.current
            attributes[key.text] = value = self._attribute()
            if error := wrong_attribute(op, key.text, value):
                raise tokens.error(at, str(error))
            if tokens.current.text != "}":
                tokens.expect(",")
        return attributes

    def _attribute(self) -> Any:
        tokens = self._tokens
        if tokens.accept("["):
            items = []
            while not tokens.accept("]"):
                items.append(self._plain_attribute())
                if tokens.current.text != "]":
                    tokens.expect(",")
            return tuple(items)
        return self._plain_attribute()

    def _plain_attribute(self) -> Any:
        """An attribute that is no list; lists hold no others."""
        tokens = self._tokens
        if tokens.current.kind == "string":
            return _string(tokens)
        token = tokens.take("number", "word")
        if token.text in ("true", "false"):
            return token.text == "true"
        if token.kind == "word":
            dtype = self._dtype(token)
            if not tokens.accept("("):
                return dtype
            value = self._number(tokens.take("number", "word"), dtype)
            tokens.expect(")")
            return value
        try:
            return int(token.text)
        except ValueError:
            raise tokens.error(token, "a float says its type: `f32(0.5)`") from None

    def _number(self, token: Token, dtype: DType) -> Any:
        try:
            return number(token.text, dtype)
        except (ValueError, OverflowError):
            raise self._tokens.error(token, f"{token.text} is no {dtype.name}") from None
