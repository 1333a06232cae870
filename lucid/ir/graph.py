"""Value, Node, Graph: a pure SSA graph with explicit reads and writes of state at its border."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from lucid.ir import ops
from lucid.ir.attributes import check_arguments
from lucid.ir.extents import is_open
from lucid.ir.hosts import HostFunction
from lucid.ir.inference import result_type
from lucid.ir.location import Location
from lucid.ir.op import Attributes, Op, Operand
from lucid.ir.types import DType, TensorType, shared_type


class Value(Operand):
    """One SSA value: an input of the graph, or a result of the node that produces it.

    Args:
        type: element type and shape, which never change.
        graph: the graph that operators on it append to.
        producer: the node that computes it; None for a graph's input.
        index: which of the node's results, or of the graph's inputs.
        name: a hint for printing, often the user's own name for it; not unique, may be empty.

    Attributes:
        name, producer: as given; passes may change both.

    >>> from lucid.ir import Value, parse
    >>> graph = parse("graph double(%x: f32[3]) { %y = add %x, %x return %y }")
    >>> (y,) = graph.outputs
    >>> isinstance(y, Value), y, y.producer.op
    (True, %y: f32[3], <op add>)
    """

    __slots__ = ("_type", "graph", "index", "name", "producer")

    def __init__(
        self, type: TensorType, graph: Graph, producer: Node | None, index: int = 0, name: str = ""
    ) -> None:
        self._type = type
        self.graph = graph
        self.producer = producer
        self.index = index
        self.name = name

    @property
    def type(self) -> TensorType:
        return self._type

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Value:
        return self.graph.append(op, operands, attributes).result

    def constant(self, value: float, dtype: DType) -> Value:
        return self.graph.constant(value, dtype)

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


RegionKind = Literal["region", "checkpoint", "repeated"]
REGION_KINDS: tuple[RegionKind, ...] = get_args(RegionKind)
InputKind = Literal["arg", "state", "live"]
INPUT_KINDS: tuple[InputKind, ...] = get_args(InputKind)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """One call of a custom Function, or of a block of `checkpoint`, while it was traced.

    Attributes:
        name: the Function's name, with ".backward" for its backward; or the block's.
        location: the user's line that called `apply` (or `backward`, or `checkpoint`).
        parent: the region around it; None at the top.
        kind: "region" (a custom Function's: nodes carry it until they are outlined), "checkpoint"
            (a checkpointed block's) or "repeated" (what is computed again of such a block).

    >>> from lucid.ir import Region
    >>> outer = Region("Block", None, None, "checkpoint")
    >>> [region.name for region in Region("Square", None, outer).blocks]
    ['Block']
    """

    name: str
    location: Location | None
    parent: Region | None
    kind: RegionKind = "region"

    @property
    def blocks(self) -> Iterator[Region]:
        """The checkpointed blocks that it is in, or is itself, the innermost first."""
        region: Region | None = self
        while region is not None:
            if region.kind == "checkpoint":
                yield region
            region = region.parent


class Node:
    """One operation: `results = op(operands, attributes)`; `Graph.append` makes one.

    Args:
        op: which operation of `lucid.ir.ops`.
        operands: the values that it reads.
        attributes: its constants, by the names of the op's type rule. Nodes share them: they are
            replaced, never changed, but for those of region ops.
        types: of the results, of which every op but calls and region ops has one.
        graph: the graph that the results belong to; it is the caller who puts the node into it.

    Attributes:
        location: the user's line that it came from.
        scope: path of the module or library function around it, such as `model.0`.
        gradient_of: the value whose gradient this node helps to compute, None in the forward.
        region: the call of a custom Function, or the checkpointed block, that it was recorded in. A
            barrier with one operand carries the block that has saved that operand.

    >>> from lucid.ir import Node, parse
    >>> graph = parse("graph double(%x: f32[3]) { %y = add %x, %x return %y }")
    >>> (node,) = graph.nodes
    >>> isinstance(node, Node), node.op, node.result
    (True, <op add>, %y: f32[3])
    """

    __slots__ = (
        "attributes",
        "gradient_of",
        "location",
        "op",
        "operands",
        "region",
        "results",
        "scope",
    )

    def __init__(
        self,
        op: Op,
        operands: Sequence[Value],
        attributes: Attributes,
        types: Sequence[TensorType],
        graph: Graph,
    ) -> None:
        self.op = op
        self.operands: tuple[Value, ...] = tuple(operands)
        self.attributes = attributes
        if len(types) == 1:
            self.results: tuple[Value, ...] = (Value(types[0], graph, self),)
        else:
            self.results = tuple([Value(type, graph, self, i) for i, type in enumerate(types)])
        self.location: Location | None = None
        self.scope = ""
        self.gradient_of: Value | None = None
        self.region: Region | None = None

    @property
    def result(self) -> Value:
        """The only result; every op but calls and region ops has just one."""
        assert len(self.results) == 1
        return self.results[0]

    @property
    def has_effect(self) -> bool:
        """Whether it must run, once and in its order: it checks a value, or calls Python."""
        return self.op.has_effect or bool(self.attributes.get("python"))

    def __repr__(self) -> str:
        operands = ", ".join(map(repr, self.operands))
        return f"<{self.op.name}({operands}) {self.attributes}>"


@dataclass(slots=True, eq=False)
class Input:
    """An input of a graph: a value without a producer, and where calls take it from.

    Attributes:
        value: the value that nodes read.
        kind: "arg" (a tensor argument), "state" (a tensor that the trace met: parameter, moment,
            buffer) or "live" (a Python number read at each call: f64[], or i64[] where it is used
            as an int).
        source: how the user gets at it, such as `model.0.weight`; empty when unknown.

    >>> from lucid.ir import Input, parse
    >>> graph = parse("graph double(%x: f32[3]) { %y = add %x, %x return %y }")
    >>> (x,) = graph.inputs
    >>> isinstance(x, Input), x.kind, x.value
    (True, 'arg', %x: f32[3])
    """

    value: Value
    kind: InputKind
    source: str = ""


class Graph:
    """A typed program: inputs, nodes in an order that respects dependence, results, writes.

    Args:
        name: what its text calls it.

    Attributes:
        outputs: the returned values.
        writes: `(input, new value)`: what the step leaves in the buffer of an input.
        functions: regions of custom Functions by name, which `call` nodes refer to, and the bodies
            of region ops.
        hosts: Python functions by name, which `host` nodes call; those of `functions` as well. The
            text of a graph leaves them out.
        location: the user's function that was traced.

    >>> from lucid.ir import Graph, TensorType, ops
    >>> graph = Graph("shifted")
    >>> x = graph.add_input(TensorType(lucid.float32, (3,)), name="x")
    >>> graph.outputs = [ops.exp(x) + 1]
    >>> print(graph, end="")
    graph shifted(%x: f32[3]) {
      %exp = exp %x : f32[3]
      %c = constant 1.0 : f32[]
      %add = add %exp, %c : f32[3]
      return %add
    }
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.outputs: list[Value] = []
        self.writes: list[tuple[Value, Value]] = []
        self.functions: dict[str, Graph] = {}
        self.hosts: dict[str, HostFunction] = {}
        self.location: Location | None = None

    @property
    def nbytes(self) -> int:
        """The memory that it takes, about: its objects, counted by the node, and its constants."""
        nodes = [node for graph in (self, *self.functions.values()) for node in graph.nodes]
        attributes = {id(node.attributes): node.attributes for node in nodes}
        values = (value for found in attributes.values() for value in found.values())
        constants = (value.nbytes for value in values if isinstance(value, np.ndarray))
        return 600 * len(nodes) + sum(constants)

    def add_input(
        self, type: TensorType, kind: InputKind = "arg", name: str = "", source: str = ""
    ) -> Value:
        """Append an input; see `Input` for its kinds."""
        value = Value(type, self, None, len(self.inputs), name)
        self.inputs.append(Input(value, kind, source))
        return value

    def append(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Node:
        """Append a node; its type is inferred. Raises what the op's type rule raises."""
        values = [value for value in operands if isinstance(value, Value)]
        assert len(values) == len(operands), "operands of a node are values"
        type = result_type(op, [value._type for value in values], attributes)
        check_arguments(op, len(operands), attributes)
        return self.append_typed(op, values, attributes, type)

    def append_typed(
        self, op: Op, operands: Sequence[Value], attributes: Attributes, type: TensorType
    ) -> Node:
        """The same where the type rule and the schema have been asked already."""
        node = Node(op, operands, attributes, (type,), self)
        self.nodes.append(node)
        return node

    def append_host(
        self, name: str, operands: Sequence[Value], types: Sequence[TensorType]
    ) -> Node:
        """Append a call of a Python function that `hosts` has, or will have."""
        node = Node(ops.host, operands, {"function": name}, types, self)
        self.nodes.append(node)
        return node

    def append_region(
        self, op: Op, operands: Sequence[Value], attributes: Attributes, types: Sequence[TensorType]
    ) -> Node:
        """Append an op that runs functions of the graph, which it has, or will have."""
        check_arguments(op, len(operands), attributes)
        node = Node(op, operands, attributes, types, self)
        self.nodes.append(node)
        return node

    def constant(self, value: float, dtype: DType) -> Value:
        """Append a 0-d constant; of an open size one whose value passes don't see."""
        if is_open(value):
            given = {"value": value, "is_bits": False, "dtype": dtype}
            return self.append(ops.parameter, (), given).result
        attributes = {"value": dtype.numpy.type(value), "dtype": dtype}
        return self.append_typed(ops.constant, (), attributes, shared_type(dtype, ())).result

    def values(self) -> Iterator[Value]:
        """Every value, inputs first."""
        made = [node.results for node in self.nodes]
        return itertools.chain([entry.value for entry in self.inputs], *made)

    def results(self) -> list[Value]:
        """What must be computed: outputs, then the written values."""
        return [*self.outputs, *(new for _, new in self.writes)]

    def substitute(self, replacement: dict[Value, Value]) -> None:
        """Replace values by others everywhere; chains of replacements are followed."""

        def final(value: Value) -> Value:
            while value in replacement:
                value = replacement[value]
            return value

        replaced = replacement.keys()
        for node in self.nodes:
            if not replaced.isdisjoint(node.operands):
                node.operands = tuple(map(final, node.operands))
            if node.gradient_of in replacement:
                node.gradient_of = final(node.gradient_of)
        self.outputs = [final(value) for value in self.outputs]
        self.writes = [(cell, final(value)) for cell, value in self.writes]

    def drop_dead_nodes(self) -> bool:
        """Remove nodes that no output and no write depends on; True if any went.

        All ops are pure but checks and calls of Python, which stay.
        """
        live: set[Value] = set(self.results())
        is_dead, use = live.isdisjoint, live.update
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if is_dead(node.results) and not self.has_effect(node):
                continue
            use(node.operands)
            kept.append(node)
        changed = len(kept) != len(self.nodes)
        self.nodes = kept[::-1]
        return changed

    def has_effect(self, node: Node) -> bool:
        """Whether a node must run: it checks a value, or calls Python, once and in its order."""
        return node.has_effect or (node.op is ops.call and has_effect(node, self.functions))

    def uses(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, in order; a node is listed once per operand slot."""
        users: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for operand in node.operands:
                users.setdefault(operand, []).append(node)
        return users

    def __str__(self) -> str:
        from lucid.ir.text import print_graph

        return print_graph(self)


def is_same_program(a: Graph, b: Graph) -> bool:
    """Whether two graphs have the same text, names of values included. `==` is identity.

    Args:
        a, b: the two graphs.

    >>> from lucid.ir import is_same_program, parse
    >>> text = "graph double(%x: f32[3]) { %y = add %x, %x return %y }"
    >>> is_same_program(parse(text), parse(text)), parse(text) == parse(text)
    (True, False)
    """
    return str(a) == str(b)


def has_effect(node: Node, functions: dict[str, Graph]) -> bool:
    """Whether a node checks a value or calls Python, itself or in one of the functions."""
    if node.op is not ops.call:
        return node.has_effect
    pending, seen = [node.attributes["function"]], set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        for inner in functions[name].nodes:
            if inner.has_effect:
                return True
            if inner.op is ops.call:
                pending.append(inner.attributes["function"])
    return False


def unused_name(stem: str, taken: Container[str]) -> str:
    """The stem, or it with the first number behind it that makes a name which isn't taken."""
    numbered = (f"{stem}_{number}" for number in itertools.count(1))
    return next(name for name in itertools.chain((stem,), numbered) if name not in taken)


def computation_of(value: Value, depth: int = 6) -> object:
    """The same for two values that are computed alike by a few nodes, as every op is pure."""
    node = value.producer
    if node is None or node.has_effect or not depth or len(node.results) != 1:
        return value
    operands = tuple(computation_of(operand, depth - 1) for operand in node.operands)
    return node.op, value._type, freeze_attributes(node.attributes), operands


def freeze_attributes(attributes: Attributes) -> tuple[tuple[str, Any], ...]:
    """A hashable form, equal for equal attributes; floats compare by their bits."""
    if not attributes:
        return ()
    items = attributes.items()
    return tuple(
        [
            (key, value if type(value) in _EXACT else _frozen(value))
            for key, value in (sorted(items) if len(items) > 1 else items)
        ]
    )


_EXACT = frozenset((int, str, bool, type(None)))
_ONLY_INTS = {int}


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(value if _ONLY_INTS.issuperset(map(type, value)) else map(_frozen, value))
    if hasattr(value, "tobytes"):  # a NumPy scalar: -0.0 is not 0.0, and NaN equals itself
        return (value.dtype.str, value.tobytes())
    if isinstance(value, DType):
        return value.name
    return value
