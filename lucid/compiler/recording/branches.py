"""Branches in a trace: both sides of a `cond` are recorded, and one node runs one of them.

A side is recorded like the body of a loop (`loops.py`), of no carry and no rows: what it reads of
the graph before are captures, and memory from before that it has written is one more result, of
the other side what it was. The gradient is a `cond` of the two walks, which give the gradients of
whatever either side reads, zeros where its own doesn't. Values of a side that its walk reads become
further results, zeros where the other side runs. Sides that do something in Python, or that give
different types, are no bodies: the trace starts again, and Python looks at the condition.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from lucid.autograd.engine import BackwardRun
from lucid.autograd.node import Edge, Gradients, Node, edge_of, origin_line, sequence_numbers
from lucid.autograd.saved import FREED
from lucid.compiler.recording.hooks import running
from lucid.compiler.recording.loops import (
    Body,
    Frame,
    Loops,
    cut,
    leaves_of,
    loops_here,
    or_zeros,
    unrolling,
)
from lucid.ir import ops
from lucid.ir.errors import LucidError, TraceError
from lucid.ir.graph import Graph, Input, Node as GraphNode, Value
from lucid.ir.location import here
from lucid.ir.passes.loops import Loop
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, constant, of_value
from lucid.tensor.storage import Storage, VersionCounter

Side = Callable[[], tuple[list[Any], Any]]
"""A side: its tensors, and what else it gives, in which both sides must agree."""
_DIFFERENT = "has branches that give different types"


class _Branch(Loop):
    """A side of a cond in a graph: a loop of one round, which carries nothing."""

    carries = 0
    rows = range(0)
    length = 1

    def operand_of(self, value: Value) -> Value:
        return self.node.operands[1 + value.index]


class _Recorded:
    """A side as it was recorded.

    Attributes:
        other: what it gives besides tensors; values: those of its tensors.
        states: memory from before that it has written: what it held, and what it holds then.
        versions: of that memory, the counters, and what they counted then.
        graph: what it has become; captures: what that reads of the graph around.
    """

    def __init__(self, loops: Loops, side: Side, body: Body, name: str) -> None:
        recorder, self.body = loops.recorder, body
        self.frame = frame = Frame(recorder, body)
        first = next(sequence_numbers)
        loops.frames.append(frame)
        try:
            loops.check_captures_again(frame)
            kept: list[Any] = []

            def run(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
                tensors, other = side()
                kept.append(other)
                return tensors, []

            body.results = [*frame.run(run, [])[0]]
            self.other = kept[0]
            self.values = [recorder.value_of(x) for x in body.results]
            body.sequence = range(first, next(sequence_numbers))
            if problem := frame.problem(self.values):
                loops.unroll(problem)
        except TraceError:
            raise
        except Exception as error:  # which only one side may do
            loops.unroll(f"raises {type(error).__name__}")
            raise
        finally:
            loops.frames.pop()
        self.states: dict[Storage, tuple[Value, Value]] = {}
        self.versions: list[tuple[VersionCounter, int]] = []
        for storage, before, now in loops.written(frame, 1):
            self.states[storage] = before, now
            _, counter, version = frame.written[storage]
            self.versions.append((counter, counter.value))
            counter.value = version
            storage.value = before
            storage.generation += 1
        outputs = [*self.values, *(now for _, now in self.states.values())]
        self.graph, self.captures = cut(recorder.graph, frame.start, name, [], {}, outputs)
        body.graph = self.graph

    def give_states(self, states: dict[Storage, Value]) -> None:
        """Let what it gives end with what these hold: what it has written, or what they held."""
        outputs = self.graph.outputs
        held = dict(zip(self.states, outputs[len(self.values) :], strict=True))
        del outputs[len(self.values) :]
        for storage, before in states.items():
            outputs.append(held[storage] if storage in held else self._capture(before))

    def _capture(self, value: Value) -> Value:
        for number, known in enumerate(self.captures):
            if known is value:
                return self.graph.inputs[number].value
        self.captures.append(value)
        inner = Value(value.type, self.graph, None, len(self.graph.inputs), value.name)
        self.graph.inputs.append(Input(inner, "arg"))
        return inner

    def read(self, captures: Sequence[Value]) -> None:
        """Take these, in their order, which hold what it reads."""
        inputs = [self._capture(value) for value in captures]
        self.graph.inputs = [Input(value, "arg") for value in inputs]
        for number, value in enumerate(inputs):
            value.index = number


def branch(
    loops: Loops,
    pred: TensorCore,
    sides: tuple[Side, Side],
    name: str,
    of: Sequence[Body] = (),
) -> tuple[list[Any], Any]:
    """Record a cond; the tensors that it gives, and what else both sides do.

    of: the sides of the cond through which it walks backwards.
    """
    recorder = loops.recorder
    place = of[0].place if of else here()
    loops.places[place] = None
    decides = recorder.value_of(pred)
    found = []
    for number, (side, suffix) in enumerate(zip(sides, ("", ".else"), strict=True)):
        forward = of[number] if of else None
        body = Body(place, 0, 0, 1, False, forward, False)
        found.append(_Recorded(loops, side, body, name + suffix))
    then, otherwise = found
    states = {storage: x[0] for each in found for storage, x in each.states.items()}
    types = [[value.type for value in each.values] for each in found]
    if types[0] != types[1] or then.other != otherwise.other:
        raise unrolling(_DIFFERENT, [place])
    for each in found:
        each.give_states(states)
    captures = [*dict.fromkeys([*then.captures, *otherwise.captures])]
    for each in found:
        each.read(captures)
    node = _append(loops, [decides, *captures], [each.graph for each in found])
    bodies = loops.bodies[node] = [each.body for each in found]
    for each, body in zip(found, bodies, strict=True):
        body.branches, body.nodes = (bodies[0], bodies[1]), [node]
        _check_before(loops, each, decides, body is bodies[0])
    tensors = [of_value(x) for x in node.results]
    recorder.made += map(weakref.ref, tensors)
    results = tensors[: len(then.values)]
    for storage, value in zip(states, node.results[len(results) :], strict=True):
        storage.value = value
        storage.generation += 1
    for counter, version in (*then.versions, *otherwise.versions):
        counter.value = max(counter.value, version)
    if context.grad_enabled:
        CondNode.enter(loops, pred, bodies, results, name)
    return results, then.other


def _append(loops: Loops, operands: Sequence[Value], bodies: Sequence[Graph]) -> GraphNode:
    """Append the node to what is being recorded."""
    for body in bodies:
        loops.enter(body)
    then, otherwise = bodies
    attributes = {"function": then.name, "otherwise": otherwise.name}
    types = [value.type for value in then.outputs]
    with loops.recorder.annotated():
        return loops.recorder.graph.append_region(ops.cond, operands, attributes, types)


def _check_before(loops: Loops, side: _Recorded, decides: Value, is_then: bool) -> None:
    """Check before the cond what a side checks, as far as it runs."""
    if not any(node.op is ops.check for node in side.graph.nodes):
        return
    loop = _Branch(loops.recorder.graph, side.body.nodes[0], side.graph)
    runs = decides
    if not is_then:
        runs = loop.emit(lambda: ops.logical_not(decides), behind=False)
    loops.check_before(side.frame, side.body, loop, runs)


class CondNode(Node):
    """The backward of a cond: the one of the side that ran.

    Attributes:
        _bodies: both sides.
        _leaves: where walks through either side end.
    """

    __slots__ = ("_bodies", "_called", "_leaves", "_loops", "_pred", "saved")

    @staticmethod
    def enter(
        loops: Loops,
        pred: TensorCore,
        bodies: Sequence[Body],
        results: Sequence[TensorCore],
        name: str,
    ) -> None:
        """Give the results of a cond their history, as far as a side's have one."""
        leaves: dict[Edge, None] = {}
        alive: set[int] = set()
        for body in bodies:
            found, reached = leaves_of(body)
            leaves |= dict.fromkeys(found)
            alive |= {number for number, ends in enumerate(reached) if ends}
        if not leaves:
            return
        node = CondNode(loops, pred, bodies, [*leaves], results, name)
        for number, result in enumerate(results):
            if number in alive and result.dtype.is_floating_point:
                result._grad_fn, result._output_nr, result._requires_grad = node, number, True

    def __init__(
        self,
        loops: Loops,
        pred: TensorCore,
        bodies: Sequence[Body],
        leaves: list[Edge],
        results: Sequence[TensorCore],
        name: str,
    ) -> None:
        super().__init__(tuple(leaves), tuple(result._type for result in results))
        self._loops = weakref.ref(loops)
        self._pred = pred
        self._bodies = bodies
        self._leaves = leaves
        self._called = name
        self.saved: tuple[()] | None = ()  # None: an earlier backward has freed the graph
        place = bodies[0].place
        if place is not None:
            self._line = place.file, place.line

    def _name(self) -> str:
        return "CondBackward"

    def _release(self) -> None:
        self.saved = None

    def apply(self, gradients: Gradients) -> Gradients:
        if self.saved is None:
            raise LucidError(FREED + origin_line(self._short_name(), self._line))
        loops, recorder = self._loops(), running.recorder
        assert loops is not None and recorder is not None and recorder.loops is loops
        for body in self._bodies:
            if not loops.frames:
                loops.fit(body)

        def walk(body: Body) -> Side:
            return lambda: (self._walk(body, gradients), None)

        then, otherwise = self._bodies
        sides = walk(then), walk(otherwise)
        found, _ = branch(loops, self._pred, sides, f"{self._called}.backward", self._bodies)
        return tuple(found)

    def _walk(self, body: Body, gradients: Gradients) -> list[Any]:
        """The gradients of the leaves, of those of results, on one side."""
        pairs = zip(body.results, gradients, strict=True)
        edges = [(edge_of(result), gradient) for result, gradient in pairs if gradient is not None]
        run = BackwardRun(True, context.grad_enabled, self._leaves, is_part=True)
        run.run([(edge, gradient) for edge, gradient in edges if edge is not None])
        return [
            or_zeros(run.captured.get((node, output)), node._output_types[output])
            for node, output in self._leaves
        ]


def record_cond(pred: TensorCore, sides: tuple[Side, Side], name: str) -> tuple[Any, Any] | None:
    """What a cond gives in the running trace; None where Python looks at its condition."""
    loops = loops_here()
    if loops is None:
        return None
    flat = ops.reshape(pred, shape=())
    if flat.dtype.kind != "bool":
        flat = ops.ne(flat, constant(0, flat.dtype))
    return branch(loops, flat, sides, name)
