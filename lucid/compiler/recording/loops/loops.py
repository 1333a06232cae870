"""Loops in a trace: a body is recorded once, and stands in the graph as the function of a `scan`.

A body is recorded like all else, on stand-ins for the carry and for a row; then its nodes are cut
off the end of the graph and become a function. What they read of the graph before are its captures;
memory from before that they have written, such as running statistics or the state of a generator,
is one more carry. What a round changes in Python each round would have to change anew: such a loop
is unrolled, and so is one whose tensors turn up outside, by a restart of the trace. The body of a
`while_loop` computes its condition as well, for the round after it, and counts the rounds.

A host call is a node of the body like others, evaluated once, on what the stand-ins are in the
first round. The contexts that its calls leave are numbered, and the number is one more result: so
the backward of a round gets the one of its own as it gets all that the round has computed. Who asks
while tracing what a loop gives that calls Python has all rounds run, and what they change undone.

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
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from types import FrameType, GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lucid.autograd.engine import BackwardRun, zeros_of
from lucid.autograd.host_finding import Finding
from lucid.autograd.node import (
    AccumulateGrad,
    Edge,
    Gradients,
    Node,
    edge_of,
    iterate_graph,
    origin_line,
    sequence_numbers,
)
from lucid.autograd.saved import FREED, SavedTensor
from lucid.compiler.guards.age import Age
from lucid.compiler.guards.collector import Change
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.recording.hooks import running
from lucid.compiler.recording.loops.calls_of_rounds import may_be_of_rounds
from lucid.compiler.recording.loops.carried_checks import CarriedCheck, carry_checks
from lucid.ir import ops
from lucid.ir.clone import copy_node
from lucid.ir.errors import LucidError, TraceError
from lucid.ir.extents import NotOpenError, hint
from lucid.ir.graph import Graph, Input, Node as GraphNode, Value, unused_name
from lucid.ir.location import Location, here
from lucid.ir.op import Op, Trait
from lucid.ir.passes.dce import drop_unused_functions
from lucid.ir.passes.loops import Hoisting, Loop
from lucid.ir.passes.round_body import DEPTH, is_cheap, is_short
from lucid.ir.ranges import Range, Ranges
from lucid.ir.region_ops import BODIES, CONTROL, calls_python, is_exit, stacked
from lucid.ir.types import TensorType, bool_, i64
from lucid.ir.whose_code import is_interrupt
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, constant, of_value

if TYPE_CHECKING:
    from lucid.autograd.host_world import State
    from lucid.compiler.recording.deferred_calls import DeferredCall
    from lucid.compiler.recording.recorder import Recorder
    from lucid.tensor.storage import Storage, VersionCounter

Step = Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]
_FIRST_LENGTH, _GROWTH = 16, 4  # of what a while_loop stacks: so many rounds, and then more
_MOST_LAST = 8  # items of a list that rounds read, counted from its end
_SMALL = 8192  # bytes of stacks that may begin with more rounds
_REPEATED = ("view", "create", "random")  # kinds of ops that a backward computes again


class BodyInput(Node):
    """The history of a stand-in for the carry or a row: where walks through the body end."""

    __slots__ = ()
    _is_end = True

    def __init__(self, type: TensorType) -> None:
        super().__init__((), (type,))

    def apply(self, gradients: Gradients) -> Gradients:
        return ()


@dataclass(slots=True, eq=False)
class Body:
    """The body of a loop: while it is recorded, and as it was recorded.

    Attributes:
        op: of its node; name: of its function; place: the user's line that called the loop.
        carries, rows: how many inputs of the graph are carried, and how many are rows.
        length: the number of rounds; reverse: whether they go from the last row to the first.
        of: for the body of a backward, the body through which that walks.
        is_repeated: whether its values are computed again for the backward instead of being kept.
        graph: its function; None while it is recorded.
        nodes: the graph nodes that run it: the loop, and repetitions of that in backwards.
        given: the loop's tensors: the carry, `carried` many, and then xs.
        inputs: for each of `given` the node at which walks end; None where no gradient goes.
        results: the edges of the next carry and of the rows of ys; None: no gradient goes there.
        node: the autograd node of the loop.
        sequence: the numbers of the autograd nodes that were recorded in it.
        same: the values that are equal in all rounds; checks: the checks of each value.
        branches: for a side of a cond, both sides.
        is_settled: whether its trace has ended, so that its results can't change any more.
    """

    op: Op
    name: str
    place: Location | None
    of: Body | None = None
    carries: int = 0
    rows: int = 0
    length: int = 1
    reverse: bool = False
    is_repeated: bool = False
    graph: Graph | None = None
    nodes: list[GraphNode] = field(default_factory=list)
    given: list[TensorCore] = field(default_factory=list)
    carried: int = 0
    inputs: list[BodyInput | None] = field(default_factory=list)
    results: list[Edge | None] = field(default_factory=list)
    node: weakref.ref[RegionNode] | None = None
    sequence: range = range(0)
    same: set[Value] = field(default_factory=set)
    checks: dict[Value, list[GraphNode]] = field(default_factory=dict)
    branches: tuple[Body, ...] = ()
    is_settled: bool = False
    _repeated: dict[GraphNode, bool] = field(default_factory=dict)

    @property
    def is_while(self) -> bool:
        return self.op is ops.while_loop

    def repeats(self, node: GraphNode) -> bool:
        """Whether a backward computes a node again, and its results aren't residuals.

        So it is for views, random numbers, and short chains of ops from values of half its size,
        such as differences of all pairs, or from one of its size and values equal in all rounds.
        """
        if (self.is_repeated and not node.has_effect) or node.op.kind in _REPEATED:
            return True
        if node not in self._repeated:
            size = hint(sum(x.type.nbytes for x in node.results))
            sources = [x for x in node.operands if not self._is_outside(x)]
            factor = 1 if len(sources) == 1 else 2
            self._repeated[node] = is_short(node) and factor * self._read_for(node, DEPTH) <= size
        return self._repeated[node]

    def _is_outside(self, value: Value) -> bool:
        """Whether a value is the same in all rounds."""
        is_input = value.producer is None and value.index >= self.carries + self.rows
        return is_input or value in self.same

    def _read_for(self, node: GraphNode, depth: int) -> int:
        """The bytes of a round's values from which up to `depth` nodes compute a node's result."""
        found = 0
        for value in node.operands:
            before = value.producer
            if self._is_outside(value):
                continue
            if before is not None and depth and is_short(before):
                found += min(self._read_for(before, depth - 1), hint(value.type.nbytes))
            else:
                found += hint(value.type.nbytes)
        return found

    @property
    def chain(self) -> Iterator[Body]:
        """This body, the one through which it walks, and so on."""
        body: Body | None = self
        while body is not None:
            yield body
            body = body.of

    def operand_of(self, value: Value) -> Value:
        """The loop's operand that an input of the body is, or is a row of."""
        return self.nodes[0].operands[value.index + (1 if self.branches else 0)]

    def note_ranges(self) -> None:
        """Note the ranges of indices in the graph, for backwards that only get the numbers."""
        assert self.graph is not None
        ranges = Ranges()
        for node in self.graph.nodes:
            ranges.note(node)
        for node in self.graph.nodes:  # of which later checks say more
            for value in () if self.repeats(node) else node.results:
                check = ranges.check_of(value, value)
                if check is not None and value not in self.same and value not in self.checks:
                    self.checks[value] = [check]

    def read_around(self, value: Value) -> Sequence[Value]:
        """The values, outer ones or this body's, from which a backward's round computes one."""
        node = value.producer
        if node is None and value.index >= self.carries + self.rows:
            return [self.operand_of(value)]
        if node is None or not (value in self.same or self.repeats(node)):
            return [self.stack_of(value)]
        return node.operands

    def settle(self, nodes: Collection[Node]) -> None:
        """At the end of its trace, keep only the histories that belong to these nodes."""
        if not self.is_settled and (self.node is None or self.node() not in nodes):
            self.results.clear()
        self.is_settled = True

    def enter_inputs(self, stand_ins: Sequence[TensorCore], *, knows_gradients: bool) -> None:
        """Give the stand-ins for the operands nodes at which walks end."""
        may_get_one = 0 if knows_gradients else self.carried
        for number, (tensor, outer) in enumerate(zip(stand_ins, self.given, strict=True)):
            node, is_float = None, context.grad_enabled and tensor.dtype.is_floating_point
            if is_float and (number < may_get_one or outer.requires_grad):
                node = BodyInput(tensor._type)
                tensor._grad_fn, tensor._requires_grad = node, True
            self.inputs.append(node)

    def enter_results(self, tensors: Sequence[TensorCore]) -> None:
        """Note the edges of its results."""
        self.results = [edge_of(x) if x.dtype.is_floating_point else None for x in tensors]

    def leaves(self, inner: set[Node] | None = None) -> tuple[list[Edge], list[set[Edge]]]:
        """The edges at which walks from its results end; and those for each result.

        inner: the nodes on the way are added.
        """
        ranges = [body.sequence for body in self.chain]
        found: dict[Edge, None] = {}
        reached = []
        inner = set() if inner is None else inner
        for edge in self.results:
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
            inner |= seen
            reached.append(set(ends))
        return [*found], reached

    @property
    def checked_captures(self) -> list[Value]:
        """What it reads of the graph around and checks."""
        own = self.carries + self.rows
        return [value for value in self.checks if value.producer is None and value.index >= own]

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
        assert not self.is_settled, "a backward outside reads what was not kept for it"
        return self.stack(value)

    def stack(self, value: Value) -> Value:
        """Have the loop give the rows that a value has in all rounds, as one more result."""
        assert self.graph is not None
        self.graph.outputs.append(value)
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


class Round:
    """What is noted while Python makes a round of a loop, which the next one may be like.

    Args:
        variables: what a round may change.

    Attributes:
        start: how many nodes the graph had before.
        written: memory from before that it has written: the value before, and the version.
        variables: the identities of what it may change; changed: changes of other Python objects
            from before.
        ranges: the ranges of stand-ins for numbers of rounds; checked: checks that the forward body
            has made already.
        refused: why its rounds aren't all the same, if that was found out meanwhile.
        may_look: whether its rounds may look at the value by which the loop ends.
        walked: the autograd nodes that it has differentiated.
        hidden: memory from before to which it has given another history.
        number: the number of Python's round; keys: for each place of an index, by how much the ints
            there exceed the number; reads_last: how many of a list's last items are read.
    """

    def __init__(self, recorder: Recorder, variables: Collection[object] = ()) -> None:
        self.variables = {*map(id, variables)}
        self.start = len(recorder.graph.nodes)
        self.written: dict[Storage, tuple[Value, VersionCounter, int]] = {}
        self.changed: list[Change] = []
        self.ranges: dict[Value, Range] = {}
        self.checked: set[GraphNode] = set()
        self.refused: str | None = None
        self.may_look = False
        self.walked: set[Node] = set()
        self.hidden: set[Storage] = set()
        self.number: int | None = None
        self.keys: defaultdict[Any, set[int]] = defaultdict(set)
        self.reads_last = 0
        self._recorder = recorder
        self._age = Age()
        self._effects_before = self._effect_counts()

    def _effect_counts(self) -> tuple[int, ...]:
        """The numbers of exits, deferred calls and replayed effects so far."""
        recorder = self._recorder
        return len(recorder.exits.path), len(recorder.outside.deferred), len(recorder.effects)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note the Python objects that a round changes in the block."""
        collector = self._recorder.collector
        changed = self.changed
        try:
            self._age.begin()
            collector.watchers.append(changed)
            yield
        finally:
            collector.watchers = [x for x in collector.watchers if x is not changed]
            self.changed = [
                change
                for change in changed
                if id(change.owner) not in self.variables
                and not (change.is_tracked and self._age.is_new(change.owner))
            ]
            self._age.end()

    def problem(self) -> str | None:
        """Why the rounds aren't all the same, as the rest of a sentence; None if they are."""
        if self.refused is not None:
            return self.refused
        if self.changed:
            return f"changes a {type(self.changed[0].owner).__name__} from outside in each round"
        if self._effects_before != self._effect_counts():
            return "does something in Python in each round"
        ranges, nodes = Ranges(self.ranges), self._recorder.graph.nodes[self.start :]
        calls = [node for node in nodes if node.has_effect and node.op is not ops.check]
        for node in nodes:
            if is_exit(node):
                return "looks at values in each round"
            is_check = node.op is ops.check and node not in self.checked
            if calls and is_check and not ranges.is_satisfied(node):
                return "calls Python, and checks a value, in each round"
            if Trait.INDEXED in node.op.traits:
                size = node.operands[0].shape[node.attributes["axis"]]
                known = ranges.of(node.operands[1])
                if known is None or not known.is_within(-size, size - 1):
                    return "has an index of its own in each round"
            ranges.note(node)
        if any(self._sees_what_is_written(node) for node in calls):
            return "calls Python, and writes a tensor that this can see, in each round"
        return None

    def refuse(self, reason: str) -> None:
        """A round does what not all can do alike."""
        self.refused = reason

    def note_place(self, owner: TensorCore, what: str) -> None:
        """The gradient, or the memory, of a tensor is about to be set."""
        self.changed.append(Change(owner, True, None))

    def note_history(self, storage: Storage) -> None:
        """Memory from before is about to get another history."""
        self.hidden.add(storage)

    def note_write(self, target: TensorCore) -> None:
        """A tensor is about to be written."""
        storage, counter = target._storage, target._counter
        if storage not in self.written:
            assert storage.value is not None
            self.written[storage] = storage.value, counter, counter.value

    def is_new(self, thing: object) -> bool:
        """Whether an object was made in the round that runs."""
        return self._age.is_new(thing)

    def _sees_what_is_written(self, node: GraphNode) -> bool:
        """Whether a call of Python can see a tensor that the body writes, and isn't lent it."""
        if node.op is not ops.host:
            return False
        host = self._recorder.graph.hosts[node.attributes["function"]]
        states: Iterable[State] = getattr(host, "states", ())
        return any(x.storage in self.written and x.given is None for x in states)

    @property
    def numbered(self) -> set[Any]:
        """Places with one index in the round, and its difference to the round's number."""
        return {(at, *found) for at, found in self.keys.items() if len(found) == 1}

    @property
    def has_effects(self) -> bool:
        """Whether a round has effects besides exits, and deferred calls that rounds may make."""
        is_more = self._effects_before[2:] != self._effect_counts()[2:]
        told = self._recorder.outside.deferred[self._effects_before[1] :]
        return is_more or not all(map(may_be_of_rounds, told))

    def new_among(self, memory: Iterable[Storage]) -> set[Storage]:
        """The storages among some that the round has made, also once it is over.

        They hold a value of the round, or held one when they were first written.
        """
        nodes, known = {*self._recorder.graph.nodes[self.start :]}, self.written
        found = {x: known[x][0] if x in known else x.value for x in memory}
        return {x for x, value in found.items() if value is not None and value.producer in nodes}


class RecordedRound(Round):
    """A round that is recorded for all; behind that, what the loop gives.

    Attributes:
        stand_ins: the inputs for the carry and the rows.
        own: those for a carry that nobody else refers to, so that it may be written.
        kept: the inputs for values of the forward body, in the body of a backward.
        again: values of other bodies that it has computed again; repeated: the nodes that did.
        walks: for each walk that came to stand-ins, which ones, and the nodes from before the round
            whose gradients it asks for; None: all leaves.
        first: the number of its first autograd node.
        carry, rows: the round's carry, and its row of each of xs; then the last carry, and ys.
        made: the next carry and the round's row of each of ys.
        counted: which of the carry says how many rounds have a gradient.
        undone: whether a round is undone, and is made again by Python; None: none is.
        checks: what is checked behind the loop.
    """

    def __init__(self, recorder: Recorder, body: Body, variables: Collection[object] = ()) -> None:
        super().__init__(recorder, variables)
        self.body = body
        self.stand_ins: list[Value] = []
        self.own: list[Value] = []
        self.kept: dict[tuple[Body, Value], Value] = {}
        self.again: dict[Value, Value] = {}
        self.repeated: dict[GraphNode, GraphNode] = {}
        self.walks: list[tuple[list[int], list[Node] | None]] = []
        self.first = 0
        self.carry: list[Any] = []
        self.rows: list[Any] = []
        self.made: tuple[list[Any], list[Any]] = [], []
        self.counted = 1
        self.undone: TensorCore | None = None
        self.checks: list[GraphNode] = []

    def take_told(self) -> list[DeferredCall]:
        """Take the calls that the round has deferred out of those of the step."""
        deferred, count = self._recorder.outside.deferred, self._effects_before[1]
        told = deferred[count:]
        if not all(map(may_be_of_rounds, told)):
            self.refuse("does something in Python in each round")
        del deferred[count:]
        return told

    def refuse(self, reason: str) -> None:
        raise unrolling(reason, [self.body.place])

    def note_place(self, owner: TensorCore, what: str) -> None:
        if not (id(owner) in self.variables or self.is_new(owner)):
            self.refuse(what)

    def note_history(self, storage: Storage) -> None:
        if storage.value not in self.own:
            self.refuse("writes a tensor from outside, with a history, in place")

    def problem(self) -> str | None:
        if found := super().problem():
            return found
        if any(x in self.stand_ins and x not in self.own for x, *_ in self.written.values()):
            return "writes its carry, or a row, in place"
        if any(x is not None and (x._tensor_hooks or x._retained) for x in self.body.inputs):
            return "has a hook on its carry, or a row"
        if any(self._is_cut_short(*walk) for walk in self.walks):
            return "asks for the gradient of what its carry, or a row, was computed from"
        return None

    def note_walk(self, run: BackwardRun, roots: Sequence[Node]) -> None:
        """Note a walk that comes to stand-ins, if it asks for gradients from before the round."""
        found = set(iterate_graph(roots))
        reached = [number for number, node in enumerate(self.body.inputs) if node in found]
        asked = None if run.wanted is None else [*filter(self._is_older, run.targets)]
        if reached and asked != []:
            self.walks.append((reached, asked))

    def _is_older(self, node: Node) -> bool:
        if isinstance(node, AccumulateGrad):
            return not self.is_new(node.variable)
        return node._sequence < self.first

    def _is_cut_short(self, reached: Sequence[int], asked: Sequence[Node] | None) -> bool:
        """Whether a walk ended at stand-ins behind which eager mode finds what it asks for."""
        body = self.body
        given = [*map(edge_of, body.given)]
        leaves, ends = body.leaves()
        alive = _depending(body, leaves, [_edge_outside(leaf, body) for leaf in leaves], ends)
        beyond = [n for n in reached if given[n] is not None or (n < body.carried and n in alive)]
        if asked is None:
            return bool(beyond)
        carried = body.results[: body.carried]
        if any(
            body.inputs[n] in asked and None in (given[n], carried[n]) for n in range(len(carried))
        ):
            return True  # the carry has no history in the first round, or none in those after it
        for n, before in ((n, x) for n in beyond if n < body.carried for x in (given, carried)):
            known = _edges_behind(before[n])  # a tensor of the same round
            others = [m for m in range(body.carried) if m != n and body.inputs[m] in asked]
            if any(before[m] in known for m in others):
                return True
        for n in beyond:  # which grows by those of the round before
            known = _edges_behind(given[n], *carried[n : n + 1])
            if any(node in asked and node not in body.inputs for node, _ in known):
                return True
            ends_here = {node for node, _ in known if isinstance(node, BodyInput)}
            new = [m for m, node in enumerate(body.inputs) if node in ends_here]
            beyond += [m for m in new if m not in beyond]
        return False

    def is_from_before(self, storage: Storage) -> bool:
        """Whether memory that was written was there before the round."""
        before = self.written[storage][0]
        is_there = before.graph is self._recorder.graph
        return is_there and before.producer not in self._recorder.graph.nodes[self.start :]

    def states(self, length: int) -> list[tuple[Storage, Value, Value]]:
        """The memory from before that it has written: what that held, and what it holds now."""
        found = []
        for storage, (before, counter, version) in self.written.items():
            assert storage.value is not None
            if before not in self.own and self.is_from_before(storage):
                counter.value += (length - 1) * (counter.value - version)
                found.append((storage, before, storage.value))
        return found

    def take_back(self) -> dict[Storage, tuple[Value, int]]:
        """Undo its writes to memory from before; returns what they left there, and the versions."""
        found = {}
        for storage in filter(self.is_from_before, self.written):
            before, counter, version = self.written[storage]
            assert storage.value is not None
            found[storage] = storage.value, counter.value
            storage.value, counter.value = before, version
            storage.generation += 1
        return found

    def leaves_made(self, tensors: Sequence[TensorCore]) -> list[int]:
        """Which of these are leaves that require grad, and that the round has made."""
        ends = [edge_of(x) for x in tensors]
        found = [i for i, end in enumerate(ends) if end and isinstance(end[0], AccumulateGrad)]
        return [i for i in found if self.is_new(tensors[i])]


# ---------------------------------------------------------------------- recording


class Apart:
    """Memory that is separate in a trace, and may be shared in eager mode.

    That depends on the rounds of a loop. Who writes it must see that, and the caller may write what
    the step leaves: then the loop is unrolled.
    """

    def __init__(self) -> None:
        self._shared: dict[Storage, dict[Storage, Location | None]] = {}

    def note(self, pairs: Iterable[tuple[Storage, Storage]], place: Location | None) -> None:
        """Note storages that may be one behind a loop: two that it leaves, or one and an older."""
        links = [x for one, other in pairs for x in ((one, other), (other, one))]
        may_be: dict[Storage, list[Storage]] = defaultdict(list)
        for one, other in links:
            may_be[one].append(other)
        for one, other in links[:]:
            for known in self._shared.get(other, ()):
                links += [(one, x) for x in (known, *may_be.get(known, ()))]
        for one, other in links:
            if one is not other:
                self._shared.setdefault(one, {}).setdefault(other, place)
                self._shared.setdefault(other, {}).setdefault(one, place)

    def knows(self, storage: Storage) -> bool:
        """Whether memory may be shared."""
        return storage in self._shared

    def refuse_write(self, storage: Storage) -> None:
        """Begin again where memory is written that may be shared."""
        for place in self._shared.get(storage, {}).values():
            raise unrolling("leaves memory that may be shared, and is written,", [place])

    def refuse_leaving(self, kept: Collection[Storage], given: Collection[Storage]) -> None:
        """Begin again where the caller gets memory that may be shared.

        kept: what outlives the step; given: what was there before it.
        """
        for x in kept:
            for other, place in self._shared.get(x, {}).items():
                if other in kept or other in given:
                    raise unrolling("leaves memory that may be shared", [place])


class _Lent:
    """A tensor that Python has got for another one: a row of a stack, for an item of a list."""

    def __init__(self, tensor: TensorCore, restart: Callable[[], RestartTrace]) -> None:
        self._tensor, self._restart = tensor, restart
        self._before = self._now

    @property
    def _now(self) -> tuple[int, Node | None, bool]:
        x = self._tensor
        return x._storage.generation, x._grad_fn, x.requires_grad

    def check(self, wanted: Collection[Node] = ()) -> None:
        """Begin again if something is done to it that the other one must see.

        wanted: where gradients are asked for.
        """
        node = self._tensor._grad_fn
        is_seen = node is not None and (node._is_observed or node in wanted)
        if is_seen or self._now != self._before:
            raise self._restart()


class Loops:
    """The loops of one trace.

    Attributes:
        frames: the bodies that are being recorded, the innermost last.
        looks: the frames of rounds that Python makes, the innermost last.
        left: lines of loops that Python has left in the round that was to be their body.
        away: memory that places of Python's rounds don't show while one is recorded.
        looked_at: Python's loops, by the identity of their `LoopCode`, with a number of rounds at
            which they weren't worth recording.
        apart: memory that may be shared in eager mode.
        lent: tensors that Python has got for others, as rows of stacks for items of lists.
        assigned: identities of tensors whose `.data` rounds assign; memories: tensors that show it.
        gathering: for frames of generator expressions, the list that takes their items; offered:
            things that generator expressions may go over by numbers.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.frames: list[RecordedRound] = []
        self.looks: list[Round] = []
        self.left: list[Location | None] = []
        self.away: set[Storage] = set()
        self.looked_at: dict[int, int] = {}
        self.apart = Apart()
        self.lent: list[_Lent] = []
        self.assigned: set[int] = set()
        self.memories: dict[Storage, TensorCore] = {}
        self.gathering: list[tuple[FrameType | None, list[Any]]] = []
        self.offered: dict[int, Iterator[Any]] = {}
        self.places: dict[Location | None, None] = {}
        self.bodies: dict[GraphNode, list[Body]] = {}
        self._derived: set[GraphNode] = set()  # checks before loops of what these check

    def note_key(self, key: int, at: Any, size: int | None) -> None:
        """Note where something else than a tensor is read at an index, in rounds of Python's.

        size: of a list, how many items it has.
        """
        is_last = size is not None and key == size - 1
        for frame in self.looks:
            if size is not None and -_MOST_LAST <= key < 0:
                frame.reads_last = max(frame.reads_last, -key)
            elif frame.number is not None and is_last:
                frame.reads_last = max(frame.reads_last, 1)
            elif frame.number is not None:
                frame.keys[at].add(key - frame.number)

    def look(self) -> None:
        """A value is looked at: unroll the loop that is being recorded, unless it ends by that."""
        for frame in self._rounds:
            if not frame.may_look:
                frame.refuse("looks at a value")

    def unroll(self, reason: str) -> None:
        """Begin again, with the innermost loop that is being recorded unrolled, if there is one."""
        for frame in self._rounds:
            frame.refuse(reason)

    @property
    def _rounds(self) -> Iterator[Round]:
        """Those that Python makes, and the innermost one that is being recorded."""
        return chain(self.looks, self.frames[-1:])

    def gather(self, generator: GeneratorType[Any, Any, Any]) -> Any:
        """The items of a generator expression that goes over something offered: a list, or so."""
        row: list[Any] = [[]]
        self.gathering.append((generator.gi_frame, row))
        try:
            for item in generator:
                row[0].append(item)
        finally:
            self.gathering.pop()
        return row[0]

    def gathered(self, frame: FrameType) -> list[Any]:
        """The list into which the items are put that a frame yields, if they are."""
        return [
            row[0] for each, row in self.gathering[-1:] if each is frame and type(row[0]) is list
        ]

    def offers(self, generator: object) -> bool:
        """Whether something is a generator expression that goes over what was offered."""
        if type(generator) is not GeneratorType or generator.gi_code.co_name != "<genexpr>":
            return False
        return (
            generator.gi_frame is not None and id(generator.gi_frame.f_locals[".0"]) in self.offered
        )

    def check_left(self) -> None:
        """Begin again where Python has left a loop, whose rounds can't be the same."""
        self.recorder.ended_loops.end()
        if self.left:
            raise unrolling("is left in a round", self.left)

    def unroll_all(self, reason: str) -> NoReturn:
        """Begin again without loops."""
        raise unrolling(reason, self.places)

    def lend(self, x: TensorCore, restart: Callable[[], RestartTrace]) -> TensorCore:
        """Give Python a tensor for another one, from which nothing may tell it.

        restart: how the trace begins again where something does.
        """
        self.lent.append(_Lent(x, restart))
        return x

    def finish(self) -> None:
        """Begin again where the graph reads a value of a body."""
        graph = self.recorder.graph
        for lent in self.lent:
            lent.check()
        self.lent.clear()
        self.memories.clear()
        self.offered.clear()  # which hold arguments, where some items are left
        if self.places:
            read = chain(graph.results(), *(node.operands for node in graph.nodes))
            if any(value.graph is not graph for value in read):
                self.unroll_all("computes what is used outside of it")
        self.bodies.clear()
        self.recorder.hosts.in_rounds.clear()  # which hold arguments
        drop_unused_functions(graph)

    def local(self, value: Value) -> Value:
        """A value as what is being recorded can read it."""
        if value.graph is self.recorder.graph:
            return value
        if value in self.recorder.around:
            return self.recorder.around[value]
        for frame in reversed(self.frames):
            for body in [*frame.body.chain][1:]:
                if value.graph is body.graph:
                    return self._of_forward(frame, body, value)
        self.unroll_all("computes what is used outside of it")

    def _of_forward(self, frame: RecordedRound, body: Body, wanted: Value) -> Value:
        """A value of a body, in a round of its backward: kept, or computed again."""
        known = frame.again
        pending = [wanted]
        while pending:
            value, node = pending[-1], pending[-1].producer
            if value in known:
                pending.pop()
                continue
            if (body, value) in frame.kept:
                known[value] = frame.kept[body, value]
            elif node is None and value.index >= body.carries + body.rows:
                known[value] = self.local(body.operand_of(value))
            elif node is None or not (value in body.same or body.repeats(node)):
                if body.branches:
                    known[value] = self.local(body.stack_of(value))
                else:
                    kept = frame.kept[body, value] = Value(value.type, self.recorder.graph, None)
                    found: tuple[Value, int | None] = value, None
                    if body.is_settled:  # in another trace, whose call has kept the rows
                        found = self.local(body.stack_of(value)), 0
                    self.recorder.hosts.present.stand_ins[kept] = found
            elif missing := [x for x in node.operands if x not in known]:
                pending += missing
            else:
                known.update(zip(node.results, self._repeat(frame, node).results, strict=True))
            for check in body.checks.get(value, ()) if value in known else ():
                frame.checked.add(self._repeat(frame, check))  # the forward body has made it
        return known[wanted]

    def _repeat(self, frame: RecordedRound, node: GraphNode) -> GraphNode:
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

    def scan(self, step: Step, *given: Any, **options: Any) -> tuple[list[Any], list[Any]]:
        """Record a loop; the tensors that are the last carry, and those of the stacked ys.

        given, options: as of `scanned`.
        """
        with self.scanned(*given, **options) as found:
            found.made = step(found.carry, found.rows)
        return found.carry, found.rows

    @contextmanager
    def scanned(
        self,
        carry: Sequence[TensorCore],
        xs: Sequence[TensorCore],
        length: int,
        reverse: bool,
        name: str,
        of: Body | None = None,
        is_repeated: bool = False,
        op: Op = ops.scan,
        count: TensorCore | None = None,
        variables: Collection[object] | None = None,
    ) -> Iterator[RecordedRound]:
        """Record a loop whose body is the block, which sets what the round has `made`.

        of: for a backward, the body through which it walks; count: the number of its rounds.
        op: `while_loop` if the carry begins with whether there is a round, and the round's row.
        variables: cells that a round of Python's may change, which then are carried: there a carry
            without a gradient never gets one, and may be written.
        """
        recorder = self.recorder
        place, carries = here() if of is None else of.place, len(carry)
        self.places[place] = None
        body = Body(op, name, place, of, carries, len(xs), length, reverse, is_repeated)
        body.given, body.carried = [*carry, *xs], carries
        operands = [recorder.value_of(x) for x in body.given]
        frame = RecordedRound(recorder, body, variables or ())
        tensors = [self._stand_in(frame, x) for x in body.given]
        body.enter_inputs(tensors, knows_gradients=variables is not None)
        frame.carry, frame.rows = tensors[:carries], tensors[carries:]
        frame.own = [] if variables is None else frame.stand_ins[:]
        with self.recording(frame):
            with frame.watching():
                yield frame
                leaves = [] if variables is not None else frame.leaves_made(frame.made[0])
            if leaves and body.is_while:
                self.unroll("gives a leaf that it has made, if there is a round,")
            new, ys = frame.made
            body.enter_results([*new, *ys])
            has_gradient = any(x.requires_grad for x in (*new, *ys))
            values = [recorder.value_of(x) for x in (*new, *ys)]
            checks = self._carry_checks(frame, values)
        states = frame.states(1 if body.is_while else length)  # as versions count writes
        node, stacks = self._cut_body(frame, operands, values, states, checks)
        for (storage, *_), value in zip(states, node.results[carries:], strict=False):
            storage.value = value
            storage.generation += 1
        for check, result in zip(checks, node.results[carries + len(states) :], strict=False):
            made = recorder.graph.append(ops.check, (result,), check.node.attributes)
            made.location, made.scope = check.node.location, check.node.scope
            frame.checks.append(made)
        if stacks:
            self._fit_stacks(body, stacks, has_gradient=has_gradient)
        results = [*map(self.tensor_on, node.results)]
        read = {}
        if body.is_while:
            read["count"] = results[frame.counted] if count is None else count
        self.take_replayed(node)
        found = [*results[:carries], *results[body.carries :]]
        if context.grad_enabled:
            LoopNode(body, found, read)
        for i in leaves:
            found[i] = found[i].detach().requires_grad_()
        body.given.clear()  # the tensors of a trace end with it, its nodes may not
        frame.carry, frame.rows = found[:carries], found[carries:]

    def _cut_body(
        self,
        frame: RecordedRound,
        operands: list[Value],
        outputs: list[Value],
        states: Sequence[tuple[Storage, Value, Value]],
        checks: Sequence[CarriedCheck],
    ) -> tuple[GraphNode, list[Value]]:
        """Make the nodes of a body a function, and append the loop; also the values to be stacked.

        Written memory and carried checks are further carries, values of the forward body further
        rows. Only a `while_loop` of unknown length has values to be stacked afterwards.

        operands: of the carry and xs; outputs: of the next carry and rows of ys. states: as
        they were and are.
        """
        recorder, body, carries = self.recorder, frame.body, frame.body.carries
        kept, before = [*frame.kept], [value for _, value, _ in states]
        inner = [Value(value.type, recorder.graph, None) for value in before]
        stand_ins = recorder.hosts.present.stand_ins
        stand_ins.update((x, (value, None)) for x, value in zip(inner, before, strict=True))
        known = dict(zip(before, inner, strict=True))
        inner += [check.before for check in checks]
        inputs = [*frame.stand_ins, *frame.kept.values()]
        inputs[carries:carries] = inner
        outputs[carries:carries] = [*(x for *_, x in states), *(check.after for check in checks)]
        body.carries, body.rows = carries + len(inner), body.rows + len(kept)
        body.graph, captures = cut(recorder.graph, frame.start, body.name, inputs, known, outputs)
        taken = body.graph.inputs[len(inputs) :]
        stand_ins.update((x.value, (y, None)) for x, y in zip(taken, captures, strict=True))
        neutral = [recorder.graph.constant(check.neutral, i64) for check in checks]
        operands[carries:carries] = [*before, *neutral]
        operands += [self.local(forward.stack_of(value)) for forward, value in kept]
        stacks: list[Value] = []
        if body.is_while and not body.length:  # how many rows they have isn't known yet
            stacks = body.graph.outputs[body.carries :]
            del body.graph.outputs[body.carries :]
        types = [value.type for value in body.graph.outputs]
        types[body.carries :] = [stacked(type, body.length) for type in types[body.carries :]]
        attributes = {"carries": body.carries, "rows": body.rows, "length": body.length}
        attributes |= {} if body.is_while else {"reverse": body.reverse}
        node = self.append([body], [*operands, *captures], types, attributes)
        loop = Loop(recorder.graph, node, body.graph)
        self.check_before(frame, loop, node.operands[0] if body.is_while else None)
        body.same = {entry.value for entry in body.graph.inputs[body.carries + body.rows :]}
        for inner_node in body.graph.nodes:
            if body.same.issuperset(inner_node.operands) and not inner_node.has_effect:
                body.same.update(inner_node.results)
        body.note_ranges()
        return node, stacks

    def take_replayed(self, node: GraphNode) -> None:
        """Let rounds take what their calls of Python have done in the run that goes on here."""
        if context.replay and node.has_effect and not self.frames:
            self.recorder.hosts.present.of(node.results)

    def run(self, node: GraphNode, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The present results of a loop or a branch; one that raises is unrolled."""
        try:
            return self.recorder.hosts.now(node, operands)
        except NotOpenError:
            raise
        except Exception as error:
            if is_interrupt(error):
                raise
            places = [body.place for body in self.bodies.get(node, ())]
            raise unrolling(f"raises {type(error).__name__}", places) from None

    @contextmanager
    def looking(self, variables: Collection[object]) -> Iterator[Round]:
        """Note what Python's round in the block does; it may change these cells."""
        frame = Round(self.recorder, variables)
        self.looks.append(frame)
        try:
            with frame.watching():
                yield frame
        finally:
            self.looks.remove(frame)

    @contextmanager
    def recording(self, frame: RecordedRound) -> Iterator[None]:
        """Record the body of a frame; where that is none, begin again and unroll it."""
        first = frame.first = next(sequence_numbers)
        self.frames.append(frame)
        self.recorder.hosts.rounds += 1
        try:
            for body in [*frame.body.chain][1:]:
                for value in body.checked_captures:  # which a walk reads where they are
                    self._of_forward(frame, body, value)
            yield
            frame.body.sequence = range(first, next(sequence_numbers))
            if problem := frame.problem():
                self.unroll(problem)
        except (TraceError, NotOpenError):
            raise
        except Exception as error:  # some rounds may have run before it, in eager mode
            self.unroll(f"raises {type(error).__name__}")
            raise
        finally:
            self.frames.pop()
            self.recorder.hosts.rounds -= 1

    def _stand_in(self, frame: RecordedRound, x: TensorCore) -> TensorCore:
        """A body's stand-in for a tensor of the carry, or for a row of one of xs."""
        number = len(frame.stand_ins)
        is_row = number >= frame.body.carries
        type = TensorType(x.dtype, x._type.shape[1:]) if is_row else x._type
        value = Value(type, self.recorder.graph, None, number)
        frame.stand_ins.append(value)
        last = frame.body.length - 1 if frame.body.reverse else 0
        whole = self.recorder.value_of(x), last if is_row else None
        self.recorder.hosts.present.stand_ins[value] = whole
        return self.tensor_on(value)

    def tensor_on(self, value: Value) -> TensorCore:
        """A tensor for a value of the graph."""
        tensor = of_value(value)
        self.recorder.made.append(weakref.ref(tensor))
        return tensor

    def note_walk(self, run: BackwardRun) -> None:
        """Note in the bodies that are being recorded that a walk begins."""
        for lent in self.lent:
            lent.check(run.targets)
        for each in self.looks:
            each.walked.update(iterate_graph(run.roots))
        roots = [*run.roots]
        for frame in reversed(self.frames):
            frame.note_walk(run, roots)
            given = filter(None, map(edge_of, frame.body.given))
            roots += [node for node, _ in given]  # as eager mode goes on from the inner one

    def note_change(self, tensor: TensorCore, what: str) -> None:
        """Note that `.grad` or `.data` of a tensor is set, which rounds of Python's may do."""
        for frame in self._rounds:
            frame.note_place(tensor, what)

    def note_gradient(self, leaf: TensorCore) -> None:
        """Note that the `.grad` of a tensor is read."""
        for inner in self.frames[-1:]:
            if any(x is leaf for x in (*inner.carry, *inner.rows)):
                inner.note_place(leaf, "reads a gradient")

    def note_memory(self, tensor: TensorCore) -> None:
        """Note that `.data` of a tensor is assigned, which rounds of Python's may do."""
        if self.looks:
            self.assigned.add(id(tensor))
        self.note_change(tensor, "assigns the memory of a tensor")

    def memory_of(self, tensor: TensorCore) -> TensorCore:
        """A tensor on the memory of another one: the same until its `.data` is assigned."""
        known = self.memories.get(tensor._storage)
        if known is None or known._chain != tensor._chain:
            known = self.memories[tensor._storage] = tensor.data
        return known

    def note_write(self, target: TensorCore, value: TensorCore) -> None:
        """Note that a tensor is about to be written."""
        frames = *self.frames, *self.looks
        self.apart.refuse_write(target._storage)
        for frame in frames:
            frame.note_write(target)
        if frames and context.grad_enabled and (target.requires_grad or value.requires_grad):
            self.note_hidden_write(target)

    def note_hidden_write(self, target: TensorCore) -> None:
        """Note that a tensor is about to get the history, or the tangent, of what is written."""
        nodes, value = self.recorder.graph.nodes, target._storage.value
        for frame in self._rounds:
            if value is None or value.producer not in nodes[frame.start :]:
                frame.note_history(target._storage)

    def refuse_effects(self, frame: RecordedRound, draws: Collection[GraphNode]) -> None:
        """Unroll where a round has effects on ways that eager mode wouldn't go.

        A check, or a factorization, may fail on such a way: eager mode is asked then.

        draws: effects that all ways have in common.
        """
        ranges, nodes = Ranges(frame.ranges), self.recorder.graph.nodes
        known = [_what_is_checked(node) for node in nodes[: frame.start] if node.op is ops.check]
        for node in nodes[frame.start :]:
            is_check = node.op is ops.check
            if is_check and node not in frame.checked and not ranges.is_satisfied(node):
                self.recorder.may_catch |= _what_is_checked(node) not in known
            elif node.has_effect and not is_check and node not in draws:
                if not self.is_own(node):
                    self.unroll("branches, and calls Python,")
                self.recorder.may_catch = True
            ranges.note(node)

    def is_own(self, call: GraphNode) -> bool:
        """Whether a call of Python is the library's own, as a factorization is: nobody sees it.

        Where it finds sizes, these may be others in each round.
        """
        host = self.recorder.graph.hosts.get(call.attributes.get("function", ""))
        return isinstance(host, Finding) and host.is_own and not host.finds_sizes

    def check_before(self, frame: RecordedRound, loop: Loop, runs: Value | None) -> None:
        """Check what the body checks before the loop, of all rounds together.

        runs: whether there is a round at all; None: there is.
        """
        body, hoisting = frame.body, Hoisting(loop)
        free, checked = hoisting.free(), set[Value]()
        for node in loop.body.nodes:
            if node.op is not ops.check:
                continue
            body.checks.setdefault(node.operands[0], []).append(node)
            if node in frame.checked:
                continue
            value = node.operands[0]
            if value not in hoisting.outside and value.producer not in free:
                free = hoisting.free(checked)
            checked.add(value)
            if value not in hoisting.outside and value.producer not in free:
                raise unrolling("checks what it computes in each round", [body.place])
            whole, is_row = hoisting.place(value, behind=False)
            if runs is not None and is_row:
                raise unrolling("checks what it computes in each round", [body.place])

            def check(node: GraphNode = node, x: Value = whole) -> Value:
                if runs is not None:  # or else there may be no round
                    x = ops.where(runs, x, loop.graph.constant(node.attributes["low"], x.dtype))
                return node.op(x, **node.attributes)

            made = loop.emit(check, behind=False)
            if made.producer is not None:
                made.producer.location = node.location
                self._derived.add(made.producer)

    def _carry_checks(self, frame: RecordedRound, values: list[Value]) -> list[CarriedCheck]:
        """Let a body carry what it checks of its carry; a `while_loop` ends at what is wrong."""
        inputs, is_while = frame.stand_ins, frame.body.is_while
        undone = None if frame.undone is None else self.recorder.value_of(frame.undone)
        own = [*inputs, *frame.kept.values()] if is_while else inputs[: frame.body.carries]
        carried = [*own, *(value for value, *_ in frame.written.values())]
        known = self._derived | frame.checked
        found = carry_checks(self.recorder.graph, frame.start, inputs, carried, known, undone)
        frame.checked.update(check.node for check in found)
        for check in found if is_while else ():
            values[0] = ops.logical_and(values[0], check.holds(check.after))
        return found

    def append(
        self,
        bodies: Sequence[Body],
        operands: Sequence[Value],
        types: Sequence[TensorType],
        attributes: dict[str, Any],
    ) -> GraphNode:
        """Append a region op to what is being recorded, and file the functions that it runs."""
        op, graphs = bodies[0].op, [body.graph for body in bodies if body.graph is not None]
        functions, named = self.recorder.graph.functions, dict[str, Any]()
        for key, inner in zip(BODIES[op], graphs, strict=True):
            named[key] = inner.name = unused_name(inner.name, functions)
            functions[inner.name] = inner
        attributes = named | attributes | ({"python": True} if calls_python(graphs) else {})
        with self.recorder.annotated():
            node = self.recorder.graph.append_region(op, operands, attributes, types)
        self.bodies[node] = [*bodies]
        for body in bodies:
            body.nodes.append(node)
        return node

    # -------------------------------------------------------------- rounds that a carry counts

    def backwards(
        self,
        step: Step,
        carry: Sequence[TensorCore],
        xs: Sequence[TensorCore],
        of: Body,
        count: TensorCore | None,
    ) -> tuple[list[Any], list[Any]]:
        """Record a loop through the rounds of another one, the last one first.

        count: how many rounds a `while_loop` has made.
        """
        reverse, name = not of.reverse, f"{of.name}.backward"
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
        last, ys = self.scan(
            body, first, xs, of.length, reverse, name, of, op=ops.while_loop, count=count
        )
        return last[CONTROL:], ys

    def fit(self, body: Body, outside: Callable[[Value], Value] = lambda value: value) -> None:
        """Let stacks hold all rounds of a `while_loop`, and of those in its body, of this call.

        outside: what a value of the graph that the loop is in is in the whole graph.
        """
        assert body.graph is not None
        if body.is_while and not body.length:
            self._fit_rounds(body, outside(body.nodes[0].results[1]), _FIRST_LENGTH)
        for node in body.graph.nodes:
            for inner in self.bodies.get(node, ()):
                self.fit(inner, lambda value: outside(body.stack_of(value)))

    def _fit_stacks(self, body: Body, stacks: Sequence[Value], *, has_gradient: bool) -> None:
        """Have a `while_loop` give the rows of values, in stacks that hold all rounds of this call.

        Small ones begin larger, unless a tape may be as long.
        """
        first, size = _FIRST_LENGTH, sum(hint(x.type.nbytes) for x in stacks)
        while not has_gradient and first * _GROWTH * size <= _SMALL:
            first *= _GROWTH
        self._fit_rounds(body, body.nodes[0].results[1], first)
        for value in stacks:
            body.stack(value)

    def _fit_rounds(self, body: Body, counts: Value, first: int) -> None:
        """Let the stacks of a loop have as many rows as it makes rounds, `first` at least."""
        body.length = first
        with self.recorder.annotated():
            axes = tuple(range(len(counts.shape)))
            most = ops.amax(counts, axes=axes) if axes else counts
        while counts.type.size:
            with self.recorder.annotated():
                fits = ops.le(most, self.recorder.graph.constant(body.length, i64))
                question = ops.cast(fits, dtype=i64)
            if self.recorder.exits.ask(question, f"a while_loop of at most {body.length} rounds"):
                break
            body.length *= _GROWTH
        for node in body.nodes:
            node.attributes["length"] = body.length


def _what_is_checked(node: GraphNode) -> tuple[Value, Any, Any]:
    return node.operands[0], node.attributes["low"], node.attributes["high"]


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
        if value not in known and node is not None and is_cheap(node):
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


# ---------------------------------------------------------------------- gradients


class RegionNode(Node):
    """The backward of a loop or a branch, which walks through what was recorded of a round.

    Attributes:
        _bodies: that, both sides of a cond.
        _leaves: where walks through a round end; for each an edge says where its gradient goes.
        saved: the number of rounds, or the condition; None: an earlier backward has freed it.
    """

    __slots__ = ("_bodies", "_leaves", "saved")
    _is_joint = True

    def __init__(
        self,
        bodies: Sequence[Body],
        leaves: list[Edge],
        edges: Sequence[Edge | None],
        types: Sequence[TensorType],
        read: dict[str, TensorCore],
    ) -> None:
        super().__init__(tuple(edges), tuple(types))
        self._bodies = bodies
        for body in bodies:
            body.node = weakref.ref(self)
        self._leaves = leaves
        self.saved: dict[str, SavedTensor] | None
        self.saved = {key: SavedTensor(tensor, -1) for key, tensor in read.items()}
        place = bodies[0].place
        if place is not None:
            self._line = place.file, place.line

    def _inner_nodes(self) -> Iterable[Node]:
        found: set[Node] = set()
        for body in self._bodies:
            body.leaves(found)
        return sorted(found, key=lambda node: node._sequence)

    def _enter(self, results: Sequence[TensorCore], alive: set[int]) -> None:
        """Be the history of results, as far as they have none."""
        for number, result in enumerate(results):
            if number in alive and result._grad_fn is None and result.dtype.is_floating_point:
                result._grad_fn, result._output_nr, result._requires_grad = self, number, True

    def _inner_bodies(self) -> dict[Graph, Body]:
        found = {body.graph: body for of in self._bodies for body in of.chain}
        return {graph: body for graph, body in found.items() if graph is not None}

    def fit(self, loops: Loops) -> None:
        """Let stacks hold the rounds of this call."""
        for body in self._bodies:
            loops.fit(body)

    def _read(self, key: str) -> TensorCore | None:
        """What it has saved."""
        saved = (self.saved or {}).get(key)
        return None if saved is None else saved.unpack(self)

    def _release(self) -> None:
        self.saved = None

    def _begin(self) -> Loops:
        """The loops of the trace that runs."""
        if self.saved is None:
            raise LucidError(FREED + origin_line(self._short_name(), self._line))
        recorder = running.recorder
        assert recorder is not None
        if context.levels:
            places = [body.place for body in self._bodies]
            raise unrolling("is differentiated in a vmap or a forward-mode derivative", places)
        return recorder.loops

    def _walk(self, body: Body, seeds: Iterable[tuple[int, Any]]) -> list[Any]:
        """The gradients of the leaves in one round, from those of results by their numbers."""
        edges = [(body.results[i], gradient) for i, gradient in seeds]
        run = BackwardRun(True, context.grad_enabled, self._leaves, is_part=True)
        run.run([(edge, gradient) for edge, gradient in edges if edge is not None])
        return [run.captured.get(leaf) for leaf in self._leaves]

    def _leaf_type(self, number: int) -> TensorType:
        node, output = self._leaves[number]
        return node._output_types[output]


class LoopNode(RegionNode):
    """The backward of a loop: the loop through its rounds in the other direction.

    Its outputs are the last carry and ys; and, of each number carried, what it was in each round,
    which the backward reads and its own derivative asks for.

    Attributes:
        _carried: of what is carried, the leaf that it is; _state: what has a gradient from round to
            round; both by number.
        _rows: leaves that are rows, or of the forward's round; _sums: all that is read besides.
        _reached: of each result the numbers of the leaves that it depends on, in one round.
    """

    __slots__ = ("_carried", "_reached", "_rows", "_state", "_sums")

    def __init__(
        self, body: Body, results: Sequence[TensorCore], read: dict[str, TensorCore]
    ) -> None:
        leaves, reached = body.leaves()
        if body.is_while:  # which may make no round
            for ends, start in zip(reached, body.inputs[: body.carried], strict=False):
                ends |= set() if start is None else {(start, 0)}
            leaves = [*dict.fromkeys(chain(leaves, *reached))]
        edges = [_edge_outside(leaf, body) for leaf in leaves]
        types, carries = [result._type for result in results], body.carried
        types += [stacked(type, body.length) for type in types[:carries]]
        super().__init__([body], leaves, edges, types, read)
        numbers = {leaf: n for n, leaf in enumerate(leaves)}
        self._reached = [{numbers[leaf] for leaf in ends} for ends in reached]
        at = {node: number for number, (node, _) in enumerate(leaves)}
        found = [None if node is None else at.get(node) for node in body.inputs]
        self._carried = {i: n for i, n in enumerate(found[:carries]) if n is not None}
        goes_on = [i for i, edge in enumerate(body.results[:carries]) if edge is not None]
        self._state = sorted({*self._carried, *goes_on})
        own = [node for node in body.inputs[:carries] if node is not None]
        stand_ins = {node for each in body.chain for node in each.inputs}
        inputs = [n for n, (node, _) in enumerate(leaves) if node in stand_ins]
        self._rows = [n for n in inputs if leaves[n][0] not in own]
        self._sums = [n for n in range(len(leaves)) if n not in inputs]
        self._enter(results, _depending(body, leaves, edges, reached))

    def _name(self) -> str:
        return "WhileLoopBackward" if self._bodies[0].is_while else "ScanBackward"

    def apply(self, gradients: Gradients) -> Gradients:
        loops, (body,) = self._begin(), self._bodies
        if not loops.frames:
            self.fit(loops)
        elif body.is_while and not body.length:
            loops.unroll("differentiates a while_loop in each round")
        count = len(body.results)
        ys = [i for i in range(body.carried, count) if gradients[i] is not None]
        past = [i for i in self._state if gradients[count + i] is not None]
        last = [i for i in self._state if gradients[i] is not None]
        state, rows, sums = self._needed([*ys, *past, *last])

        def step(given: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
            of_state, of_sums = given[: len(state)], given[len(state) :]
            of_y, of_past = xs[: len(ys)], xs[len(ys) :]
            seeds = zip((*state, *ys), (*of_state, *of_y), strict=True)
            found: dict[int | None, Any] = dict(enumerate(self._walk(body, seeds)))
            for i, gradient in zip(past, of_past, strict=True):
                leaf = self._carried.get(i)
                if leaf is not None:
                    found[leaf] = _sum(found[leaf], gradient)
            new = [found.get(self._carried.get(i)) for i in state]
            totals = [_sum(before, found[n]) for n, before in zip(sums, of_sums, strict=True)]
            return (
                [*map(or_zeros, new, map(self._output_types.__getitem__, state)), *totals],
                [or_zeros(found[n], self._leaf_type(n)) for n in rows],
            )

        first = [or_zeros(gradients[i], self._output_types[i]) for i in state]
        first += [zeros_of(self._leaf_type(n)) for n in sums]
        given: list[Any] = [gradients[i] for i in (*ys, *(count + i for i in past))]
        ends, of_rows = loops.backwards(step, first, given, body, self._read("count"))
        parts: dict[int | None, Any] = dict(zip(map(self._carried.get, state), ends, strict=False))
        parts |= zip((*sums, *rows), (*ends[len(state) :], *of_rows), strict=True)
        return tuple(parts.get(n) for n in range(len(self._leaves)))

    def _needed(self, results: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """What has a gradient if these results have one: of the state, of rows, and of sums."""
        carry_of = {leaf: i for i, leaf in self._carried.items()}
        pending, leaves = [*dict.fromkeys(results)], set[int]()
        for i in pending:  # which grows meanwhile
            leaves |= self._reached[i]
            new = {carry_of[n] for n in self._reached[i] if n in carry_of}
            pending += sorted(new - {*pending})
        return (
            [i for i in self._state if i in pending],
            [n for n in self._rows if n in leaves],
            [n for n in self._sums if n in leaves],
        )


def _sum(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return ops.add(a, b)


def or_zeros(gradient: Any, type: TensorType) -> Any:
    """A gradient that may be none."""
    return zeros_of(type) if gradient is None else gradient


def _edge_outside(leaf: Edge, body: Body) -> Edge | None:
    """Where the gradient of a leaf goes on, outside of the loop."""
    node, _ = leaf
    if not isinstance(node, BodyInput):
        return leaf
    if node in body.inputs:
        return edge_of(body.given[body.inputs.index(node)])
    forward = next((each for each in body.chain if node in each.inputs), None)
    if forward is None:
        return leaf
    loop = None if forward.node is None else forward.node()
    number = forward.inputs.index(node)
    if not isinstance(loop, LoopNode):
        return None
    if number < forward.carried:
        return loop, len(forward.results) + number
    return loop._edges[loop._leaves.index(leaf)] if leaf in loop._leaves else None


def _edges_behind(*edges: Edge | None) -> set[Edge]:
    """These, and all that a walk from there comes to."""
    found = {edge for edge in edges if edge is not None}
    pending = [*found]
    while pending:
        node, _ = pending.pop()
        new = {x for x in node._edges if x is not None} - found
        found |= new
        pending += new
    return found


def _depending(
    body: Body,
    leaves: Sequence[Edge],
    edges: Sequence[Edge | None],
    reached: Sequence[set[Edge]],
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
            node = body.inputs[i] if i < body.carried else None
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

    goes_on: one element, of the carry; begins: that of the carry to begin with.
    """
    loops = loops_here() if isinstance(begins, TensorCore) else None
    if loops is None:
        return None

    def truth(answer: Any) -> Any:
        if not isinstance(answer, TensorCore):
            loops.unroll("has a condition that is no tensor")
        flat = ops.reshape(answer, shape=())
        return flat if flat.dtype is bool_ else ops.ne(flat, constant(0, flat.dtype))

    def body(state: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        new = step(state[CONTROL:])
        return [truth(goes_on(new)), ops.add(state[1], constant(1, i64)), *new], []

    first = [truth(begins), constant(0, i64), *carry]
    return loops.scan(body, first, [], 0, False, name, op=ops.while_loop)[0][CONTROL:]


def loops_here() -> Loops | None:
    """The loops of the running trace; None where one is to be unrolled.

    Within a vmap or a forward-mode derivative rounds consist of the ops that these make of them;
    where they are equal, a pass makes a loop of them again (`passes/roll_up.py`).
    """
    recorder = running.recorder
    if recorder is None or context.forward is not None or context.saved_hooks or context.levels:
        return None
    is_unrolled = context.anomaly is not None or here() in recorder.at_start.unrolled
    return None if is_unrolled else recorder.loops


def record_scan(
    step: Step,
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
