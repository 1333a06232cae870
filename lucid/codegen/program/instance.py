"""A program whose sizes are open, for sizes that are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lucid.codegen.kernel_ir.regions import Buffer, BufferView
from lucid.codegen.program.memory_plan import place
from lucid.codegen.program.program import KernelCall, Program, lifetimes
from lucid.ir.clone import copy_node
from lucid.ir.extents import Extent, replaced
from lucid.ir.graph import Graph, Input, Node, Value
from lucid.ir.types import TensorType

Values = Callable[[Extent], int]
"""What an extent is."""


def instance_of(program: Program, value_of: Values) -> Program:
    """The same kernels on the same buffers, with these sizes; temps are placed anew."""
    return _Instance(program, value_of).make()


class _Instance:
    def __init__(self, program: Program, value_of: Values) -> None:
        self._program = program
        self._value_of = value_of
        self._values: dict[Value, Value] = {}
        self._nodes: dict[Node, Node] = {}
        self._buffers: dict[Buffer, Buffer] = {}

    def make(self) -> Program:
        program = self._program
        graph = self._graph(program.graph)
        calls = [self._call(call) for call in program.calls]
        offsets, size = place(lifetimes(calls))
        inputs, outputs = (
            [self._buffer(buffer) for buffer in buffers]
            for buffers in (program.inputs, program.outputs)
        )
        strides = tuple(self._known(steps) for steps in program.strides)
        return Program(
            graph, calls, inputs, outputs, offsets, size, program.written, program.live, strides,
            program.apart,
        )  # fmt: skip

    def _known(self, x: Any) -> Any:
        return replaced(x, self._value_of)

    def _graph(self, graph: Graph) -> Graph:
        made = Graph(graph.name)
        made.location, made.hosts = graph.location, graph.hosts
        made.functions = {name: self._graph(body) for name, body in graph.functions.items()}
        for entry in graph.inputs:
            old = entry.value
            value = Value(self._type(old.type), made, None, old.index, old.name)
            self._values[old] = value
            made.inputs.append(Input(value, entry.kind, entry.source))
        for node in graph.nodes:
            copied = self._nodes[node] = copy_node(node, made, self._values)
            copied.attributes = self._known(dict(node.attributes))
            for result in copied.results:
                result._type = self._type(result.type)
            made.nodes.append(copied)
        for node in made.nodes:
            if node.gradient_of is not None:
                node.gradient_of = self._value(node.gradient_of)
        made.outputs = [self._values[value] for value in graph.outputs]
        made.writes = [(self._values[cell], self._values[new]) for cell, new in graph.writes]
        return made

    def _type(self, type_: TensorType) -> TensorType:
        shape = self._known(type_.shape)
        return type_ if shape is type_.shape else type_.with_shape(shape)

    def _value(self, value: Value) -> Value:
        """A value of the graph, or of one that planning has put beside it."""
        found = self._values.get(value)
        if found is None:
            made = Value(self._type(value.type), value.graph, None, value.index, value.name)
            found = self._values[value] = made
        return found

    def _call(self, call: KernelCall) -> KernelCall:
        return KernelCall(
            self._known(call.kernel),
            [self._buffer(buffer) for buffer in call.args],
            self._known(call.origins),
            None if call.node is None else self._nodes.get(call.node, call.node),
            tuple(self._nodes.get(node, node) for node in call.nodes),
            tuple((self._value(value), self._view(view)) for value, view in call.leaves),
        )

    def _view(self, view: BufferView) -> BufferView:
        offset, strides = self._known((view.offset, view.strides))
        return BufferView(self._buffer(view.buffer), offset, strides)

    def _buffer(self, buffer: Buffer) -> Buffer:
        found = self._buffers.get(buffer)
        if found is None:
            found = self._buffers[buffer] = replace(buffer, size=self._known(buffer.size))
        return found
