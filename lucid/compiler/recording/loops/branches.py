"""Branches in a trace: both sides of a `cond` are recorded, and one node runs one of them.

A side is recorded like the body of a loop (`loops.py`), of no carry and no rows: what it reads of
the graph before are captures, and memory from before that it has written is one more result, of
the other side what it was. The gradient is a `cond` of the two walks, which give the gradients of
whatever either side reads, zeros where its own doesn't. Values of a side that its walk reads become
further results, zeros where the other side runs. Sides that change something in Python, or that
give different types, are no bodies: the trace starts again, and Python looks at the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid.autograd.node import Edge, Gradients
from lucid.compiler.recording.loops.loops import (
    Body,
    Loops,
    RecordedRound,
    RegionNode,
    cut,
    loops_here,
    or_zeros,
    unrolling,
)
from lucid.ir import ops
from lucid.ir.graph import Input, Value
from lucid.ir.location import here
from lucid.ir.passes.loops import Loop
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, constant
from lucid.tensor.storage import Storage

Side = Callable[[], tuple[list[Any], Any]]
"""Runs one side; returns its tensors, and a value in which both sides must agree."""
_DIFFERENT = "has branches that give different types"


class _Branch(Loop):
    """A side of a cond in a graph: a loop of one round, which carries nothing."""

    carries = 0
    rows = range(0)
    length = 1

    def operand_of(self, value: Value) -> Value:
        return self.node.operands[1 + value.index]


class _Side(RecordedRound):
    """A side as it was recorded.

    Attributes:
        tensors: its results; values: their values; other: the value in which sides agree.
        held: memory from before that it has written, with the values before and after.
        versions: the version counters of that memory, with their counts after it.
        graph: its nodes as a function; captures: the values of the outer graph that it reads.
    """

    def __init__(self, loops: Loops, side: Side, body: Body) -> None:
        recorder = loops.recorder
        super().__init__(recorder, body)
        with loops.recording(self):
            with self.watching():
                self.tensors, self.other = side()
            body.enter_results(self.tensors)
            self.values = [recorder.value_of(x) for x in self.tensors]
        self.held = {storage: (before, now) for storage, before, now in self.states(1)}
        left = self.take_back()
        self.versions = [(self.written[x][1], left[x][1]) for x in self.held]
        outputs = [*self.values, *(now for _, now in self.held.values())]
        self.graph, self.captures = cut(recorder.graph, self.start, body.name, [], {}, outputs)
        body.graph = self.graph

    def fit(self, captures: Sequence[Value], states: dict[Storage, Value]) -> None:
        """Let it read these values, its own among them, and give this memory, as it was or is."""
        graph, count = self.graph, len(self.values)
        own = dict(zip(self.captures, (x.value for x in graph.inputs), strict=True))
        held = dict(zip(self.held, graph.outputs[count:], strict=True))
        known = {
            x: own[x] if x in own else Value(x.type, graph, None, name=x.name) for x in captures
        }
        graph.inputs = [Input(value, "arg") for value in known.values()]
        for number, value in enumerate(known.values()):
            value.index = number
        graph.outputs[count:] = [held[x] if x in held else known[y] for x, y in states.items()]
        stand_ins = self._recorder.hosts.present.stand_ins
        stand_ins.update((value, (x, None)) for x, value in known.items())


def branch(
    loops: Loops,
    pred: TensorCore,
    sides: tuple[Side, Side],
    name: str,
    of: Sequence[Body] = (),
) -> tuple[list[Any], Any]:
    """Record a cond; returns its tensors, and the value in which both sides agree.

    of: for the backward of a cond, the bodies of that.
    """
    recorder = loops.recorder
    place = of[0].place if of else here()
    loops.places[place] = None
    decides = recorder.value_of(pred)
    found = []
    for number, (side, suffix) in enumerate(zip(sides, ("", ".else"), strict=True)):
        forward = of[number] if of else None
        found.append(_Side(loops, side, Body(ops.cond, name + suffix, place, forward)))
    then, otherwise = found
    states = {storage: x[0] for each in found for storage, x in each.held.items()}
    types = [[x._type for x in each.tensors] for each in found]
    if types[0] != types[1] or then.other != otherwise.other:
        raise unrolling(_DIFFERENT, [place])
    read = [x for each in found for x in each.captures]
    read += [x for each in found for storage, x in states.items() if storage not in each.held]
    captures = [*dict.fromkeys(read)]
    for each in found:
        each.fit(captures, states)
    bodies, outputs = [each.body for each in found], then.graph.outputs
    node = loops.append(bodies, [decides, *captures], [x.type for x in outputs], {})
    for each, body in zip(found, bodies, strict=True):
        body.branches = bodies[0], bodies[1]
        _check_before(loops, each, decides, body is bodies[0])
        body.note_ranges()
    loops.take_replayed(node)
    results = [*map(loops.tensor_on, node.results)]
    count = len(then.values)
    for storage, value in zip(states, node.results[count:], strict=True):
        storage.value = value
        storage.generation += 1
    for counter, version in (*then.versions, *otherwise.versions):
        counter.value = max(counter.value, version)
    made = results[:count]
    if context.grad_enabled:
        CondNode(pred, bodies, made)
    return made, then.other


def _check_before(loops: Loops, side: _Side, decides: Value, is_then: bool) -> None:
    """Make the checks of a side before the cond, with valid values where it doesn't run."""
    if not any(node.op is ops.check for node in side.graph.nodes):
        return
    loop = _Branch(loops.recorder.graph, side.body.nodes[0], side.graph)
    runs = decides
    if not is_then:
        runs = loop.emit(lambda: ops.logical_not(decides), behind=False)
    loops.check_before(side, loop, runs)


class CondNode(RegionNode):
    """The backward of a cond: the one of the side that ran."""

    __slots__ = ()

    def __init__(
        self, pred: TensorCore, bodies: Sequence[Body], results: Sequence[TensorCore]
    ) -> None:
        leaves, alive = dict[Edge, None](), set[int]()
        for body in bodies:
            found, reached = body.leaves()
            leaves |= dict.fromkeys(found)
            alive |= {n for n, ends in enumerate(reached) if ends}
        ends, types = [*leaves], [x._type for x in results]
        super().__init__(bodies, ends, ends, types, {"pred": pred})
        self._enter(results, alive)

    def _name(self) -> str:
        return "CondBackward"

    def apply(self, gradients: Gradients) -> Gradients:
        loops, pred = self._begin(), self._read("pred")
        assert pred is not None
        if not loops.frames:
            self.fit(loops)
        seeds = [(n, gradient) for n, gradient in enumerate(gradients) if gradient is not None]

        def walk(body: Body) -> Side:
            def run() -> tuple[list[Any], None]:
                found = self._walk(body, seeds)
                types = map(self._leaf_type, range(len(found)))
                return [*map(or_zeros, found, types)], None

            return run

        then, otherwise = self._bodies
        sides = walk(then), walk(otherwise)
        found, _ = branch(loops, pred, sides, f"{then.name}.backward", self._bodies)
        return tuple(found)


def record_cond(pred: TensorCore, sides: tuple[Side, Side], name: str) -> tuple[Any, Any] | None:
    """What a cond gives in the running trace; None where Python looks at its condition."""
    loops = loops_here()
    if loops is None:
        return None
    flat = ops.reshape(pred, shape=())
    if flat.dtype.kind != "bool":
        flat = ops.ne(flat, constant(0, flat.dtype))
    return branch(loops, flat, sides, name)
