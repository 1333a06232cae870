"""Loops in a trace: a body is recorded once, and stands in the graph as the function of a `scan`.

A body is recorded like all else, on stand-ins for the carry and for a row; then its nodes are cut
off the end of the graph and become a function. What they read of the graph before are its captures;
memory from before that they have written, such as running statistics or the state of a generator,
is one more carry. What a round does in Python each round would have to do anew: such a loop is
unrolled, and so is one whose tensors turn up outside, by a restart of the trace. The body of a
`while_loop` computes its condition as well, for the round after it, and counts the rounds.

The gradient of a loop is a loop in the other direction, whose body is the backward walk through one
round: the autograd nodes behind the body's results stay, and the walk runs as another body is
recorded. A value of the forward body that it reads becomes one more result of the forward loop,
stacked, and a row of this one; a short computation is done again, and so is all of a checkpointed
round. The walk is recorded by the engine, so a loop's gradient is differentiable like the loop.

A `while_loop` makes as many rounds as it likes, and all memory of a step is planned. So its stacks
hold as many rounds as fit (the first of 16, 64, 256 … that is enough), which is an exit of the
step: a call that needs more finds it out before anything is stored, and goes on in a program with
larger ones, traced once. The tape grows by programs rather than by allocations within a call: a
stack is then a tensor like that of a scan, its gradient as well, to any order, and it is reused
from call to call; what is too large is never touched beyond the zeros that fill it. A loop that
nobody differentiates has no stacks, and no limit.

Reference: Griewank and Walther, "Evaluating Derivatives", 2008, on the adjoints of loops.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

from lucid.autograd.engine import BackwardRun, zeros_of
from lucid.autograd.node import Edge, Gradients, Node, edge_of, origin_line, sequence_numbers
from lucid.autograd.saved import FREED
from lucid.compiler.guards.age import Age
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.recording.carried_checks import CarriedCheck, carry_checks
from lucid.compiler.recording.hooks import running
from lucid.ir import ops
from lucid.ir.clone import copy_node
from lucid.ir.errors import LucidError, TraceError
from lucid.ir.graph import Graph, Input, Node as GraphNode, Value
from lucid.ir.location import Location, here
from lucid.ir.op import Op, Trait
from lucid.ir.passes.loops import Hoisting, Loop
from lucid.ir.ranges import Ranges
from lucid.ir.region_ops import CONTROL, is_exit, stacked
from lucid.ir.types import TensorType, bool_, i64
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, constant, of_value

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder
    from lucid.tensor.storage import Storage, VersionCounter

Round = Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]
_FIRST_LENGTH, _GROWTH = 16, 4  # of what a while_loop stacks: so many rounds, and then more
_REPEATED = ("view", "create", "random")  # ops that a backward does again rather than keep


class BodyInput(Node):
    """The history of a stand-in for the carry or a row: where walks through the body end."""

    __slots__ = ()

    def __init__(self, type: TensorType) -> None:
        super().__init__((), (type,))

    def apply(self, gradients: Gradients) -> Gradients:
        return ()


@dataclass(slots=True, eq=False)
class Body:
    """The body of a loop: while it is recorded, and as it was recorded.

    Attributes:
        graph: what it has become; None while it is recorded.
        place: the user's line that called the loop.
        of: the body through which it walks backwards.
        is_repeated: its values are computed again for the backward instead of being kept.
        nodes: of the graph, that run it: the loop, and where that is computed again.
        inputs: of the carry and the rows, the nodes at which walks end; None where none goes.
        sequence: the numbers of the autograd nodes that were recorded in it.
        results: the tensors that are the next carry and the rows of ys.
        loop: the autograd node of the whole.
        same: the values that are the same in all rounds; checks: what is checked, and by what.
        count: how many rounds a `while_loop` has made; None where the length says it. Its `length`
            is 0 until a backward needs stacks.
        branches: of a cond both bodies, this one among them.
    """

    place: Location | None
    carries: int
    rows: int
    length: int
    reverse: bool
    of: Body | None
    is_repeated: bool
    graph: Graph | None = None
    nodes: list[GraphNode] = field(default_factory=list)
    inputs: list[BodyInput | None] = field(default_factory=list)
    sequence: range = range(0)
    results: list[TensorCore] = field(default_factory=list)
    loop: LoopNode | None = None
    same: set[Value] = field(default_factory=set)
    checks: dict[Value, list[GraphNode]] = field(default_factory=dict)
    count: TensorCore | None = None
    branches: tuple[Body, ...] = ()

    @property
    def is_while(self) -> bool:
        return self.nodes[0].op is ops.while_loop

    def repeats(self, node: GraphNode) -> bool:
        """Whether a backward computes a node again rather than being given what it computed."""
        return self.is_repeated or node.op.kind in _REPEATED

    @property
    def chain(self) -> Iterator[Body]:
        """It, and those through which it walks."""
        body: Body | None = self
        while body is not None:
            yield body
            body = body.of

    def operand_of(self, value: Value) -> Value:
        """What of the graph an input of the body is, or is a row of."""
        return self.nodes[0].operands[value.index + (1 if self.branches else 0)]

    def stack_of(self, value: Value) -> Value:
        """The rows that a value has in all rounds, as a result of the loop.

        Of a branch the value itself, zeros where the other one runs.
        """
        assert self.graph is not None
        if value.producer is None and value.index >= self.carries:
            return self.operand_of(value)
        outputs = self.graph.outputs
        for number in range(self.carries, len(outputs)):
            if outputs[number] is value:
                return self.nodes[0].results[number]
        outputs.append(value)
        for other in self.branches:
            if other is not self:
                assert other.graph is not None
                zero = other.graph.constant(0, value.dtype)
                other.graph.outputs.append(ops.broadcast(zero, shape=value.shape))
        type = value.type if self.branches else stacked(value.type, self.length)
        for node in self.nodes:
            home = next(x.graph for x in (*node.results, *node.operands))
            node.results = (*node.results, Value(type, home, node, len(node.results)))
        return self.nodes[0].results[-1]


class Frame:
    """What is noted while a body is recorded.

    Attributes:
        start: how many nodes the graph had before.
        stand_ins: for the carry and the rows.
        kept: what stands for values of the forward body.
        written: memory from before that it has written: what it held, and its version.
        again: values of other bodies that it has computed again; repeated: the nodes that did.
        changed: Python objects from before that were changed meanwhile.
        checked: checks that the forward body has made.
    """

    def __init__(self, recorder: Recorder, body: Body) -> None:
        self.body = body
        self.start = len(recorder.graph.nodes)
        self.stand_ins: list[Value] = []
        self.kept: dict[tuple[Body, Value], Value] = {}
        self.written: dict[Storage, tuple[Value, VersionCounter, int]] = {}
        self.again: dict[Value, Value] = {}
        self.repeated: dict[GraphNode, GraphNode] = {}
        self.checked: set[GraphNode] = set()
        self.changed: list[tuple[Any, bool]] = []
        self._recorder = recorder
        self._age = Age()
        self._told = self._what_was_told()

    def _what_was_told(self) -> tuple[int, ...]:
        """How much there is that each call does in Python."""
        recorder = self._recorder
        deferred = 0 if recorder.outside is None else len(recorder.outside.deferred)
        return len(recorder.exits.path), deferred, len(recorder.effects)

    def run(self, step: Round, tensors: Sequence[TensorCore]) -> tuple[list[Any], list[Any]]:
        """Call the function of the round, and see what it does besides computing."""
        carries = self.body.carries
        collector = self._recorder.collector
        watched = None if collector is None else collector.changed
        try:
            self._age.begin()
            if collector is not None:
                collector.changed = self.changed
            return step([*tensors[:carries]], [*tensors[carries:]])
        finally:
            if collector is not None:
                collector.changed = watched
            if watched is not None:
                watched += self.changed
            self.changed = [
                (x, is_tracked)
                for x, is_tracked in self.changed
                if not (is_tracked and self._age.is_new(x))
            ]
            self._age.end()

    def problem(self, values: Sequence[Value]) -> str | None:
        """Why the rounds aren't all the same, as the rest of a sentence; None if they are."""
        if self.changed:
            return f"changes a {type(self.changed[0][0]).__name__} from outside in each round"
        if self._told != self._what_was_told():
            return "does something in Python in each round"
        ranges = Ranges()
        for node in self._recorder.graph.nodes[self.start :]:
            if node.op is ops.host or is_exit(node):
                return "looks at values in each round"
            if Trait.INDEXED in node.op.traits:
                size = node.operands[0].shape[node.attributes["axis"]]
                known = ranges.of(node.operands[1])
                if known is None or not known.is_within(-size, size - 1):
                    return "has an index of its own in each round"
            ranges.note(node)
        if any(x in self.stand_ins for x, *_ in self.written.values()):
            return "writes its carry, or a row, in place"
        if any(x is not None and (x._tensor_hooks or x._retained) for x in self.body.inputs):
            return "has a hook on its carry, or a row"
        return None


# ---------------------------------------------------------------------- recording


class Loops:
    """The loops of one trace.

    Attributes:
        frames: the bodies that are being recorded, the innermost last.
        unrolled: lines whose loops are to be unrolled.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.unrolled: set[Location | None] = set()
        self.frames: list[Frame] = []
        self.places: dict[Location | None, None] = {}
        self.bodies: dict[GraphNode, list[Body]] = {}
        self._derived: set[GraphNode] = set()  # checks before loops of what these check

    def unroll(self, reason: str) -> None:
        """Begin again, with the innermost loop that is being recorded unrolled, if there is one."""
        if self.frames:
            raise unrolling(reason, [self.frames[-1].body.place])

    def unroll_all(self, reason: str) -> NoReturn:
        """Begin again without loops."""
        raise unrolling(reason, self.places)

    def finish(self) -> None:
        """Let go of what is known of bodies; begin again where the graph reads a value of one."""
        graph = self.recorder.graph
        read = chain(graph.results(), *(node.operands for node in graph.nodes))
        if self.places and any(value.graph is not graph for value in read):
            self.unroll_all("computes what is used outside of it")
        for body in chain.from_iterable(self.bodies.values()):
            body.loop = None  # which has the body: no cycle may outlive the trace
        self.bodies.clear()

    def local(self, value: Value) -> Value:
        """A value as what is being recorded can read it."""
        if value.graph is self.recorder.graph:
            return value
        for frame in reversed(self.frames):
            for body in () if frame.body.of is None else frame.body.of.chain:
                if value.graph is body.graph:
                    return self._of_forward(frame, body, value)
        self.unroll_all("computes what is used outside of it")

    def _of_forward(self, frame: Frame, body: Body, wanted: Value) -> Value:
        """A value of a body, in a round of its backward: kept, or computed again."""
        known = frame.again
        pending = [wanted]
        while pending:
            value, node = pending[-1], pending[-1].producer
            if value in known:
                pending.pop()
            elif (body, value) in frame.kept:
                known[value] = frame.kept[body, value]
                self._check_again(frame, body, value)
            elif node is None and value.index >= body.carries + body.rows:
                known[value] = self.local(body.operand_of(value))
                self._check_again(frame, body, value)
            elif node is None or not (value in body.same or body.repeats(node)):
                if body.branches:
                    known[value] = self.local(body.stack_of(value))
                    self._check_again(frame, body, value)
                else:
                    frame.kept[body, value] = Value(value.type, self.recorder.graph, None)
            elif missing := [x for x in node.operands if x not in known]:
                pending += missing
            else:
                known.update(zip(node.results, self._repeat(frame, node).results, strict=True))
                self._check_again(frame, body, value)
        return known[wanted]

    def _check_again(self, frame: Frame, body: Body, value: Value) -> None:
        """Say in a backward what the forward body has checked of a value."""
        for node in body.checks.get(value, ()):
            frame.checked.add(self._repeat(frame, node))

    def check_captures_again(self, frame: Frame) -> None:
        """Say in a backward what the forward bodies have checked of values from outside of them.

        A walk reads these where they are, not as the forward body does.
        """
        for body in () if frame.body.of is None else frame.body.of.chain:
            for value in body.checks:
                if value.producer is None and value.index >= body.carries + body.rows:
                    self._of_forward(frame, body, value)

    def _repeat(self, frame: Frame, node: GraphNode) -> GraphNode:
        """Compute a node of the forward body again, before what is being recorded in the frame."""
        graph, inner = self.recorder.graph, self.frames[self.frames.index(frame) + 1 :]
        if node not in frame.repeated:
            copied = frame.repeated[node] = copy_node(node, graph, dict(frame.again))
            copied.gradient_of = None
            graph.nodes.insert(inner[0].start if inner else len(graph.nodes), copied)
            for each in inner:
                each.start += 1
            if node in self.bodies:
                self.bodies[copied] = self.bodies[node]
                for body in self.bodies[node]:
                    body.nodes.append(copied)
        return frame.repeated[node]

    # -------------------------------------------------------------- one loop

    def scan(
        self,
        step: Round,
        carry: Sequence[TensorCore],
        xs: Sequence[TensorCore],
        length: int,
        reverse: bool,
        name: str,
        of: Body | None = None,
        is_repeated: bool = False,
        op: Op = ops.scan,
    ) -> tuple[list[Any], list[Any]]:
        """Record a loop; the tensors that are the last carry, and those of the stacked ys.

        of: the body through which it walks backwards.
        op: `while_loop`, if the carry begins with whether there is a round, and its row.
        """
        recorder, given = self.recorder, [*carry, *xs]
        place = here() if of is None else of.place
        self.places[place] = None
        operands = [recorder.value_of(x) for x in given]
        body = Body(place, len(carry), len(xs), length, reverse, of, is_repeated)
        frame = Frame(recorder, body)
        first = next(sequence_numbers)
        tensors = [self._stand_in(frame, x) for x in given]
        self.frames.append(frame)
        try:
            self.check_captures_again(frame)
            new, ys = frame.run(step, tensors)
            body.results = [*new, *ys]
            values = [recorder.value_of(x) for x in body.results]
            body.sequence = range(first, next(sequence_numbers))
            checks = self._carry_checks(frame, values, is_while=op is ops.while_loop)
            if problem := frame.problem(values):
                self.unroll(problem)
        except TraceError:
            raise
        except Exception as error:  # some rounds may have run before it, in eager mode
            self.unroll(f"raises {type(error).__name__}")
            raise
        finally:
            self.frames.pop()
        writes = 1 if op is ops.while_loop else length  # of memory, as versions count them
        states, kept = self.written(frame, writes), [*frame.kept]
        before = [value for _, value, _ in states]
        inner = [Value(value.type, recorder.graph, None) for value in before]
        known = dict(zip(before, inner, strict=True))
        inner += [check.before for check in checks]
        inputs, outputs = [*frame.stand_ins, *frame.kept.values()], values
        for values, new in (
            (operands, before),
            (inputs, inner),
            (outputs, [*(x for *_, x in states), *(check.after for check in checks)]),
        ):
            values[len(carry) : len(carry)] = new
        body.carries, body.rows = len(carry) + len(inner), len(xs) + len(kept)
        body.graph, captures = cut(recorder.graph, frame.start, name, inputs, known, outputs)
        neutral = [recorder.graph.constant(check.neutral, i64) for check in checks]
        operands[len(carry) + len(states) : len(carry) + len(states)] = neutral
        operands += [self.local(forward.stack_of(value)) for forward, value in kept]
        node = self._append(op, body, [*operands, *captures])
        loop = Loop(recorder.graph, node, body.graph)
        self.check_before(frame, body, loop, node.operands[0] if body.is_while else None)
        body.same = {entry.value for entry in body.graph.inputs[body.carries + body.rows :]}
        for inner_node in body.graph.nodes:
            if body.same.issuperset(inner_node.operands):
                body.same.update(inner_node.results)
        results = [of_value(x) for x in node.results]
        recorder.made += map(weakref.ref, results)
        for (storage, *_), value in zip(states, node.results[len(carry) :], strict=False):
            storage.value = value
            storage.generation += 1
        self._check_behind(checks, node.results[len(carry) + len(states) :])
        found = [*results[: len(carry)], *results[body.carries :]]
        if body.is_while:
            body.count = found[1] if of is None else of.count
        if context.grad_enabled:
            LoopNode.enter(self, body, given, found, len(carry), name)
        return found[: len(carry)], found[len(carry) :]

    def _stand_in(self, frame: Frame, x: TensorCore) -> TensorCore:
        """What the body gets for a carry or, of rows, for one of them."""
        body, number = frame.body, len(frame.stand_ins)
        is_row = number >= body.carries
        type = TensorType(x.dtype, x._type.shape[1:]) if is_row else x._type
        value = Value(type, self.recorder.graph, None, number)
        frame.stand_ins.append(value)
        tensor = of_value(value)
        self.recorder.made.append(weakref.ref(tensor))
        node = None
        if context.grad_enabled and type.dtype.is_floating_point:
            node = BodyInput(type) if x.requires_grad or not is_row else None
        body.inputs.append(node)
        if node is not None:
            tensor._grad_fn, tensor._requires_grad = node, True
        return tensor

    def note_write(self, target: TensorCore, value: TensorCore) -> None:
        """Note that a tensor is about to be written."""
        storage = target._storage
        for frame in self.frames:
            if storage not in frame.written:
                assert storage.value is not None
                counter = target._counter
                frame.written[storage] = storage.value, counter, counter.value
        if self.frames and context.grad_enabled and (target.requires_grad or value.requires_grad):
            nodes = self.recorder.graph.nodes[self.frames[-1].start :]
            before = self.frames[-1].written[storage][0]
            if before.producer not in nodes:
                self.unroll("writes a tensor from outside, with a history, in place")

    def written(self, frame: Frame, length: int) -> list[tuple[Storage, Value, Value]]:
        """The memory from before that the body has written: what it held, and what it holds now."""
        made = set(self.recorder.graph.nodes[frame.start :])
        found = []
        for storage, (before, counter, version) in frame.written.items():
            assert storage.value is not None
            is_there = before.graph is self.recorder.graph
            if is_there and (before.producer is None or before.producer not in made):
                counter.value += (length - 1) * (counter.value - version)
                found.append((storage, before, storage.value))
        return found

    def check_before(self, frame: Frame, body: Body, loop: Loop, runs: Value | None) -> None:
        """Check what the body checks before the loop, of all rounds together.

        runs: whether there is a round at all; None: there is.
        """
        hoisting = Hoisting(loop)
        free = hoisting.free()
        for node in loop.body.nodes:
            if node.op is not ops.check:
                continue
            body.checks.setdefault(node.operands[0], []).append(node)
            if node in frame.checked:
                continue
            value = node.operands[0]
            if value not in hoisting.outside and value.producer not in free:
                raise unrolling("checks what it computes in each round", [body.place])
            whole, is_row = hoisting.place(value, behind=False)
            if runs is not None:
                if is_row:
                    raise unrolling("checks what it computes in each round", [body.place])
                whole = _if_it_runs(loop, runs, whole, node.attributes["low"])
            check = node.op
            made = loop.emit(
                lambda check=check, x=whole, at=node.attributes: check(x, **at),  # type: ignore[misc]
                behind=False,
            )
            if made.producer is not None:
                made.producer.location = node.location
                self._derived.add(made.producer)

    def _carry_checks(
        self, frame: Frame, values: list[Value], *, is_while: bool
    ) -> list[CarriedCheck]:
        """Let a body carry what it checks of its carry; a `while_loop` ends at what is wrong."""
        inputs = frame.stand_ins
        own = [*inputs, *frame.kept.values()] if is_while else inputs[: frame.body.carries]
        carried = [*own, *(value for value, *_ in frame.written.values())]
        known = self._derived | frame.checked
        found = carry_checks(self.recorder.graph, frame.start, inputs, carried, known)
        frame.checked.update(check.node for check in found)
        for check in found if is_while else ():
            values[0] = ops.logical_and(values[0], check.holds(check.after))
        return found

    def _check_behind(self, checks: Sequence[CarriedCheck], results: Sequence[Value]) -> None:
        """Check behind a loop what its rounds have carried of their checks."""
        for check, result in zip(checks, results, strict=False):
            found = self.recorder.graph.append(ops.check, (result,), check.node.attributes)
            found.location, found.scope = check.node.location, check.node.scope

    def enter(self, body: Graph) -> None:
        """File the function of a body, under a name of its own."""
        functions, stem, count = self.recorder.graph.functions, body.name, 0
        while body.name in functions:
            count += 1
            body.name = f"{stem}_{count}"
        functions[body.name] = body

    def _append(self, op: Op, body: Body, operands: list[Value]) -> GraphNode:
        """Append the loop to what is being recorded."""
        graph, inner = self.recorder.graph, body.graph
        assert inner is not None
        self.enter(inner)
        types = [value.type for value in inner.outputs]
        types[body.carries :] = [stacked(type, body.length) for type in types[body.carries :]]
        attributes = {
            "function": inner.name,
            "carries": body.carries,
            "rows": body.rows,
            "length": body.length,
        }
        if op is ops.scan:
            attributes["reverse"] = body.reverse
        with self.recorder.annotated():
            node = graph.append_region(op, operands, attributes, types)
        body.nodes.append(node)
        self.bodies[node] = [body]
        return node

    # -------------------------------------------------------------- rounds that a carry counts

    def rounds(
        self,
        step: Callable[[list[Any]], list[Any]],
        goes_on: Callable[[list[Any]], Any],
        begins: TensorCore,
        carry: Sequence[TensorCore],
        name: str,
    ) -> list[Any]:
        """Record a loop of as many rounds as its condition holds.

        goes_on: one element, of the carry; begins: that of the carry to begin with.
        """

        def truth(answer: Any) -> Any:
            if not isinstance(answer, TensorCore):
                self.unroll("has a condition that is no tensor")
            flat = ops.reshape(answer, shape=())
            return flat if flat.dtype is bool_ else ops.ne(flat, constant(0, flat.dtype))

        def body(state: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
            new = step(state[CONTROL:])
            return [truth(goes_on(new)), ops.add(state[1], constant(1, i64)), *new], []

        first = [truth(begins), constant(0, i64), *carry]
        return self.scan(body, first, [], 0, False, name, op=ops.while_loop)[0][CONTROL:]

    def backwards(
        self,
        step: Round,
        carry: Sequence[TensorCore],
        xs: Sequence[TensorCore],
        name: str,
        of: Body,
    ) -> tuple[list[Any], list[Any]]:
        """Record a loop through the rounds of another one, the last one first."""
        count, reverse = of.count, not of.reverse
        if count is None:
            return self.scan(step, carry, xs, of.length, reverse, name, of)
        by = constant(-1 if reverse else 1, i64)

        def goes_on(t: TensorCore) -> Any:
            return ops.ge(t, constant(0, i64)) if reverse else ops.lt(t, count)

        def body(state: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
            new, ys = step(state[CONTROL:], rows)
            t = ops.add(state[1], by)
            return [goes_on(t), t, *new], ys

        t = ops.add(count, by) if reverse else constant(0, i64)
        first = [goes_on(t), t, *carry]
        last, ys = self.scan(body, first, xs, of.length, reverse, name, of, op=ops.while_loop)
        return last[CONTROL:], ys

    def fit(self, body: Body, outside: Callable[[Value], Value] = lambda value: value) -> None:
        """Let stacks hold all rounds of a `while_loop`, and of those in its body, of this call.

        outside: what a value of the graph that the loop is in is in the whole graph.
        """
        assert body.graph is not None
        if body.count is not None and not body.length:
            body.length = _FIRST_LENGTH
            with self.recorder.annotated():
                counts = outside(body.nodes[0].results[1])
                axes = tuple(range(len(counts.shape)))
                most = ops.amax(counts, axes=axes) if axes else counts
            while counts.type.size and not self._fits(most, body.length):
                body.length *= _GROWTH
            for node in body.nodes:
                node.attributes["length"] = body.length
        for node in body.graph.nodes:
            for inner in self.bodies.get(node, ()):
                self.fit(inner, lambda value: outside(body.stack_of(value)))

    def _fits(self, rounds: Value, length: int) -> bool:
        graph, exits = self.recorder.graph, self.recorder.exits
        with self.recorder.annotated():
            condition = ops.le(rounds, graph.constant(length, i64))
        return exits.holds(condition, f"a while_loop of at most {length} rounds")


def _if_it_runs(loop: Loop, runs: Value, value: Value, otherwise: int) -> Value:
    """A value from outside of a loop, or what is right if that makes no round."""
    return loop.emit(
        lambda: ops.where(runs, value, loop.graph.constant(otherwise, value.dtype)), behind=False
    )


def unrolling(reason: str, places: Iterable[Location | None]) -> RestartTrace:
    """The restart of a trace in which Python runs the loops and branches of some lines."""
    return RestartTrace(f"has a loop that {reason}, and is unrolled", "unrolled", places)


def cut(
    graph: Graph,
    start: int,
    name: str,
    inputs: Sequence[Value],
    known: dict[Value, Value],
    outputs: Sequence[Value],
) -> tuple[Graph, list[Value]]:
    """Make the nodes behind a place in the graph a function; also what else they read of it.

    Constants and views that they read are made again in the function.

    known: what stands for values of before.
    """
    body, nodes = Graph(name), graph.nodes[start:]
    del graph.nodes[start:]
    inside = {*inputs, *(value for node in nodes for value in node.results)}
    captures: list[Value] = []
    taken: list[Value] = []

    def inner(value: Value) -> Value:
        if value in inside:
            return value
        node = value.producer
        if value not in known and node is not None and _is_cheap(node):
            copied = copy_node(node, body, {x: inner(x) for x in node.operands})
            copied.region, copied.gradient_of = None, None
            body.nodes.append(copied)
            known[value] = copied.result
        elif value not in known:
            captures.append(value)
            taken.append(Value(value.type, body, None, name=value.name))
            known[value] = taken[-1]
        return known[value]

    for node in nodes:
        node.operands = tuple(map(inner, node.operands))
        node.region = None
        if node.gradient_of not in inside:
            node.gradient_of = None
        body.nodes.append(node)
    body.outputs = [*map(inner, outputs)]
    for value in inside:
        value.graph = body
    for number, value in enumerate((*inputs, *taken)):
        value.index = number
        body.inputs.append(Input(value, "arg"))
    return body, captures


def _is_cheap(node: GraphNode) -> bool:
    return node.op in (ops.constant, ops.iota) or (node.op.is_view and len(node.operands) == 1)


# ---------------------------------------------------------------------- gradients


class LoopNode(Node):
    """The backward of a loop: the loop through its rounds in the other direction.

    Its outputs are the last carry and ys; and, of each number carried, what it was in each round,
    which the backward reads and its own derivative asks for.

    Attributes:
        _leaves: where walks through one round end; for each an edge says where its gradient goes.
        _carried: of what is carried, the leaf that it is; _state: what has a gradient from round to
            round; both by number.
        _rows: leaves that are rows, or of the forward's round; _sums: all that is read besides.
    """

    __slots__ = (
        "_body", "_called", "_carried", "_carries", "_leaves", "_loops", "_rows", "_state", "_sums",
        "saved",
    )  # fmt: skip

    @staticmethod
    def enter(
        loops: Loops,
        body: Body,
        given: Sequence[TensorCore],
        results: Sequence[TensorCore],
        carries: int,
        name: str,
    ) -> None:
        """Give the results of a loop their history, as far as they depend on what has one."""
        leaves, reached = leaves_of(body)
        if not leaves:
            return
        edges: list[Edge | None] = []
        for leaf in leaves:
            edges.append(_edge_outside(leaf, body, given, carries))
        alive = _depending(body, leaves, edges, reached, carries)
        if not alive:
            return
        node = LoopNode(loops, body, leaves, edges, results, carries, name)
        body.loop = node
        for number, result in enumerate(results):
            if number in alive and result.dtype.is_floating_point:
                result._grad_fn, result._output_nr, result._requires_grad = node, number, True

    def __init__(
        self,
        loops: Loops,
        body: Body,
        leaves: list[Edge],
        edges: list[Edge | None],
        results: Sequence[TensorCore],
        carries: int,
        name: str,
    ) -> None:
        types = [result._type for result in results]
        types += [stacked(type, body.length) for type in types[:carries]]
        super().__init__(tuple(edges), tuple(types))
        self._loops = weakref.ref(loops)
        self._body = body
        self._leaves = leaves
        self._carries = carries
        self._called = name
        self.saved: tuple[()] | None = ()  # None: an earlier backward has freed the graph
        if body.place is not None:
            self._line = body.place.file, body.place.line
        at = {node: number for number, (node, _) in enumerate(leaves)}
        found = [None if node is None else at.get(node) for node in body.inputs]
        self._carried = {i: n for i, n in enumerate(found[:carries]) if n is not None}
        goes_on = [i for i, x in enumerate(body.results[:carries]) if edge_of(x) is not None]
        self._state = sorted({*self._carried, *goes_on})
        own = [node for node in body.inputs[:carries] if node is not None]
        ends = {node for each in body.chain for node in each.inputs}
        inputs = [n for n, (node, _) in enumerate(leaves) if node in ends]
        self._rows = [n for n in inputs if leaves[n][0] not in own]
        self._sums = [n for n in range(len(leaves)) if n not in inputs]

    def _name(self) -> str:
        return "WhileLoopBackward" if self._body.is_while else "ScanBackward"

    def _release(self) -> None:
        self.saved = None

    def apply(self, gradients: Gradients) -> Gradients:
        if self.saved is None:
            raise LucidError(FREED + origin_line(self._short_name(), self._line))
        loops, body, recorder = self._loops(), self._body, running.recorder
        assert loops is not None and recorder is not None and recorder.loops is loops
        if not loops.frames:
            loops.fit(body)
        elif body.is_while and not body.length:
            loops.unroll("differentiates a while_loop in each round")
        count = len(body.results)
        ys = [i for i in range(self._carries, count) if gradients[i] is not None]
        past = [i for i in self._state if gradients[count + i] is not None]

        def step(given: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
            state, sums = given[: len(self._state)], given[len(self._state) :]
            of_y, of_past = rows[: len(ys)], rows[len(ys) :]
            found = self._walk(zip((*self._state, *ys), (*state, *of_y), strict=True))
            for i, gradient in zip(past, of_past, strict=True):
                leaf = self._carried.get(i)
                if leaf is not None:
                    found[leaf] = _sum(found[leaf], gradient)
            new = [found.get(self._carried.get(i)) for i in self._state]
            totals = [_sum(before, found[n]) for n, before in zip(self._sums, sums, strict=True)]
            return (
                [*map(or_zeros, new, map(self._output_types.__getitem__, self._state)), *totals],
                [or_zeros(found[n], self._leaf_type(n)) for n in self._rows],
            )

        first = [or_zeros(gradients[i], self._output_types[i]) for i in self._state]
        first += [zeros_of(self._leaf_type(n)) for n in self._sums]
        xs: list[Any] = [gradients[i] for i in (*ys, *(count + i for i in past))]
        name = f"{self._called}.backward"
        last, rows = loops.backwards(step, first, xs, name, body)
        parts: dict[int | None, Any] = dict(
            zip(map(self._carried.get, self._state), last, strict=False)
        )
        parts |= zip((*self._sums, *self._rows), (*last[len(self._state) :], *rows), strict=True)
        return tuple(parts.get(n) for n in range(len(self._leaves)))

    def _walk(self, seeds: Iterable[tuple[int, Any]]) -> dict[int | None, Any]:
        """The gradients of the leaves in one round, from those of results by their numbers."""
        results = self._body.results
        edges = [(edge_of(results[i]), gradient) for i, gradient in seeds]
        run = BackwardRun(True, context.grad_enabled, self._leaves, is_part=True)
        run.run([(edge, gradient) for edge, gradient in edges if edge is not None])
        return {number: run.captured.get(leaf) for number, leaf in enumerate(self._leaves)}

    def _leaf_type(self, number: int) -> TensorType:
        node, output = self._leaves[number]
        return node._output_types[output]


def _sum(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return ops.add(a, b)


def or_zeros(gradient: Any, type: TensorType) -> Any:
    """A gradient that may be none."""
    return zeros_of(type) if gradient is None else gradient


def leaves_of(body: Body) -> tuple[list[Edge], list[set[Edge]]]:
    """Where walks from the results of a body end; and where those of each of them do."""
    ranges = [each.sequence for each in body.chain]
    found: dict[Edge, None] = {}
    reached = []
    for result in body.results:
        edge = edge_of(result) if result.dtype.is_floating_point else None
        ends: dict[Edge, None] = {}
        pending, seen = [] if edge is None else [edge], set()
        while pending:
            node, output = pending.pop()
            is_inside = any(node._sequence in numbers for numbers in ranges)
            if isinstance(node, BodyInput) or not is_inside:
                ends[node, output] = None
            elif node not in seen:
                seen.add(node)
                pending += [x for x in node._edges if x is not None]
        found |= ends
        reached.append(set(ends))
    return [*found], reached


def _edge_outside(leaf: Edge, body: Body, given: Sequence[TensorCore], carries: int) -> Edge | None:
    """Where the gradient of a leaf goes on, outside of the loop."""
    for each in body.chain:
        if leaf[0] not in each.inputs:
            continue
        number = each.inputs.index(leaf[0])
        if each is body:
            return edge_of(given[number])
        loop = each.loop
        assert loop is not None
        if number < loop._carries:
            return loop, len(each.results) + number
        return loop._edges[loop._leaves.index(leaf)] if leaf in loop._leaves else None
    return leaf


def _depending(
    body: Body,
    leaves: Sequence[Edge],
    edges: Sequence[Edge | None],
    reached: Sequence[set[Edge]],
    carries: int,
) -> set[int]:
    """The results that depend on what has a history outside."""
    alive = {leaf for leaf, edge in zip(leaves, edges, strict=True) if edge is not None}
    found: set[int] = set()
    while True:
        new = {i for i, ends in enumerate(reached) if not ends.isdisjoint(alive)} - found
        if not new:
            return found
        found |= new
        for i in new:
            node = body.inputs[i] if i < carries else None
            if node is not None:
                alive.add((node, 0))


def record_while(
    step: Callable[[list[Any]], list[Any]],
    goes_on: Callable[[list[Any]], Any],
    begins: Any,
    carry: list[Any],
    name: str,
) -> list[Any] | None:
    """What a while_loop leaves in the running trace; None where Python looks at its condition.

    begins: the condition of the carry to begin with.
    """
    loops = loops_here() if isinstance(begins, TensorCore) else None
    return None if loops is None else loops.rounds(step, goes_on, begins, carry, name)


def loops_here() -> Loops | None:
    """The loops of the running trace; None where one is to be unrolled."""
    recorder = running.recorder
    if recorder is None or context.levels or context.forward is not None or context.saved_hooks:
        return None
    is_unrolled = context.anomaly is not None or here() in recorder.loops.unrolled
    return None if is_unrolled else recorder.loops


def record_scan(
    step: Round,
    carry: list[Any],
    xs: list[Any],
    length: int,
    reverse: bool,
    every: int | None,
    name: str,
) -> tuple[list[Any], list[Any]] | None:
    """What a scan gives in the running trace; None where it is to be unrolled there.

    every: a checkpoint is made of the carry before so many rounds.
    """
    loops = loops_here()
    if loops is None:
        return None
    if every is None or every >= length or not context.grad_enabled:
        return loops.scan(step, carry, xs, length, reverse, name)
    whole = length // every * every
    cuts = [(0, whole, every), (whole, length, length - whole)]
    parts = []
    for start, stop, size in reversed(cuts) if reverse else cuts:
        if start < stop:

            def block(state: list[Any], rows: list[Any], size: int = size) -> Any:
                return loops.scan(step, state, rows, size, reverse, name)

            count = (stop - start) // size
            rows = [ops.reshape(x[start:stop], shape=(count, size, *x._type.shape[1:])) for x in xs]
            carry, ys = loops.scan(
                block, carry, rows, count, reverse, f"{name}.block", is_repeated=True
            )
            parts.append([ops.reshape(y, shape=(stop - start, *y._type.shape[2:])) for y in ys])
    if reverse:
        parts.reverse()
    return carry, [ops.concat(*found, axis=0) for found in zip(*parts, strict=True)]
