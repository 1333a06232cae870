"""How a call outside of a trace gets its gradients.

Each call of a differentiable program makes a `CallRecord`: what it has kept for its backward, and
the version counters of what it read. Behind the results stands a `CompiledBackward` per layer. When
a walk comes to it, a compiled function of the gradients and of what was kept walks through the
nodes that the trace has left (`tape.py`); there is one for each `BackwardKind`. Its own results may
have a history of the same kind, so derivatives of any order come without a further rule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid.autograd.engine import BackwardRun
from lucid.autograd.entry_points import find_gradients
from lucid.autograd.node import (
    CustomNode,
    Edge,
    Gradient,
    GradientEdge,
    Gradients,
    Node,
    origin_line,
)
from lucid.autograd.saved import FREED, modified, with_history_of
from lucid.compiler.inputs.scalars import Number
from lucid.compiler.programs.native import NativeLeaves
from lucid.compiler.recording import hooks
from lucid.compiler.recording.recorder import Recorder
from lucid.compiler.results.histories import (
    EndOf,
    History,
    Layer,
    Leaf,
    OwnLeaves,
    joined,
    leaf_edge,
)
from lucid.compiler.results.output_specs import NO_COUNTER
from lucid.compiler.results.tape import Tape, is_read
from lucid.functions.joining import stack
from lucid.ir.errors import EagerOnlyError, LucidError, NotFinite
from lucid.ir.extents import NotOpenError, Sizes, is_open, replaced
from lucid.ir.location import user_spot
from lucid.ir.strides import Strides, contiguous_strides
from lucid.ir.types import TensorType, type_of_array
from lucid.runtime.entry.layout import SLOW_PATH
from lucid.tensor.batched import Batched, BatchLevel, outside
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, _new, of_array
from lucid.tensor.storage import Storage
from lucid.tensor.write_locks import held, lock, wait_for

if TYPE_CHECKING:
    from lucid.compiler.programs.program import Program

_counter, _storage, _now = attrgetter("_counter"), attrgetter("_storage"), attrgetter("now")


class BackwardKind(NamedTuple):
    """What a backward computes.

    Attributes:
        layer: whose results it differentiates; or a number of several (`Differentiable.first`).
        sent: for each of these whether it has a gradient.
        wanted: numbers of the layer's ends whose gradients are asked for.
        is_open: whether it is itself differentiated.
    """

    layer: int
    sent: tuple[bool, ...]
    wanted: tuple[int, ...]
    is_open: bool


CompileWalk = Callable[["Walk"], Any]
"""Makes a walk a `Compiled`, whose file imports this one; its `__wrapped__` is the walk."""


class Walk:
    """A walk through the nodes that a trace has left, from the results of one layer.

    Attributes:
        nodes: those with something saved that it comes to, in its order.
        ctx_change: what a backward of the user's changes in its ctx, for messages.
    """

    def __init__(
        self, kind: BackwardKind, layer: Layer, tape: Tape, users: Callable[..., Any] | None
    ) -> None:
        self.__name__ = "backward"
        if users is not None:  # what code of theirs reads is watched
            self.__wrapped__ = users
        self.kind = kind
        self._layer = layer
        self._tape = tape
        pairs = zip(layer.outputs, kind.sent, strict=True)
        self._roots = [GradientEdge(*output.root) for output, is_sent in pairs if is_sent]
        self._wanted = [GradientEdge(*layer.ends[i]) for i in kind.wanted]
        self.nodes = tape.walked(self._roots, {*layer.ends}, {*self._wanted})
        self.ctx_change: str | None = None

    def __call__(self, *arguments: Any) -> tuple[TensorCore | None, ...]:
        """In a trace, the gradients at the ends of the layer.

        arguments: what has the sizes that values decided, gradients of the results, and what a
            call has kept.
        """
        recorder, is_differentiated, tape = hooks.running.recorder, self.kind.is_open, self._tape
        assert recorder is not None
        recorder.ctx_change = None
        if tape.sizes is not None:
            first, arguments = arguments[0], arguments[len(tape.sizes.symbols) :]
            self._take_sizes(recorder, tape.sizes, is_open(first._type.shape[0]))
        recorder.hosts.know(running.record.contexts if running.record is not None else {})
        count = len(self._roots)
        gradients, kept = arguments[:count], arguments[count:]
        numbers = [_live_number(recorder, i) for i in range(len(tape.formulas))]
        if is_differentiated:
            ends = [*self._layer.ends, *(output.root for output in self._layer.outputs)]
            recorder.ends = {edge: _placeholder(edge) for edge in ends}

        def walked() -> list[TensorCore | None]:
            return find_gradients(
                self._roots, self._wanted, gradients, True, is_differentiated, is_part=True
            )

        found = tape.walk(recorder, kept, numbers, walked, with_hidden=is_differentiated)
        self.ctx_change = recorder.ctx_change
        return tuple(x if x is None or is_differentiated else _whole(x) for x in found)

    def _take_sizes(self, recorder: Recorder, sizes: Sizes, are_open: bool) -> None:
        """Go on with the sizes of the call, or with what they are in this one."""
        assert running.record is not None
        sizes.needed, sizes.known = set(), None if are_open else running.record.sizes
        recorder.sizes, recorder.has_given_sizes = sizes, True
        if are_open:
            recorder.hosts.opened = ()  # no values are known: sizes may be others than at hand
            recorder.hosts.present.refuse()


def _placeholder(edge: Edge) -> TensorCore:
    type = edge[0]._output_types[edge[1]]
    return of_array(np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape))


def _whole(gradient: TensorCore) -> TensorCore:
    """A gradient in row-major memory of its own, as leaves have theirs."""
    return gradient._own_copy() if gradient._chain else gradient


class _Running(threading.local):
    """Which call's backward is running, of which node.

    Attributes:
        is_open: whether it is itself differentiated.
    """

    record: CallRecord | None = None
    node: CompiledBackward | None = None
    is_open = False


running = _Running()


def _live_number(recorder: Recorder, number: int) -> Any:
    """A number that each call has kept."""

    def read() -> Any:
        assert running.record is not None
        return running.record.numbers[number]

    text = recorder.unused_text(f"number {number} that a ctx holds")
    return recorder.live_scalar(text, read(), lambda call: read(), read)


class Differentiable:
    """The history behind a program's results, and the backwards that calls have needed so far.

    Attributes:
        layers, tape, counters, users: of the history.
        own_leaves: per layer what it leads to, if these are leaves of the state's alone; then of
            layers that are differentiated together.
        needs_sizes: whether a backward has needed sizes that values decide.
    """

    def __init__(self, history: History, compiled: CompileWalk) -> None:
        self.layers, self.tape, self.counters, self.users = history
        self._compiled = compiled
        self._kinds: dict[Any, Any] = {}  # by `BackwardKind`
        self.own_leaves = [OwnLeaves(layer.leaves) for layer in self.layers]
        self._all = [*self.layers]
        self._first: dict[int, tuple[int, Sequence[tuple[int, int]]]] = {}
        self.needs_sizes = self.tape.needs_sizes
        self._shapes: dict[int, Callable[[Sequence[int]], Sequence[Any]]] = {}
        self._given: dict[BackwardKind, tuple[list[TensorType], list[Strides | None]]] = {}

    def is_plain(self, given: Collection[int]) -> bool:
        """Whether calls record nothing but outputs, and inputs that each call gives."""
        tape = self.tape
        inputs = {number for is_output, number in tape.sources if not is_output}
        rare = tape.goes_on, inputs - {*given}
        return not any(rare)

    def likeness(self) -> tuple[CallRecord, list[CompiledBackward]] | None:
        """The record of a call and its nodes, without what each call has of its own.

        None: what they lead to isn't the same for all calls, arguments aside.
        """
        of_state = [x for layer in self.layers for x in layer.leaves if isinstance(x, TensorCore)]
        earlier, sizes = running.record, self.tape.sizes
        is_sized_by = sizes is not None and earlier is not None and earlier.rule.tape.sizes is sizes
        if self.tape.goes_on or is_sized_by or not all(leaf.is_leaf for leaf in of_state):
            return None
        record = CallRecord.__new__(CallRecord)
        record.rule, record.behind = self, None
        record._edges, record._passed = [], frozenset()
        nodes = []
        for number, (own, layer) in enumerate(zip(self.own_leaves, self.layers, strict=False)):
            node = CompiledBackward.__new__(CompiledBackward)
            is_same = own.tensors and not layer.upstream
            node._initialize(own.edges, layer.types)
            node._led_to = own.edges if is_same else None
            node._layer, node._number, node._walked = layer, number, ()
            nodes.append(node)
        return record, nodes

    def first(self, count: int) -> tuple[int, Sequence[tuple[int, int]]]:
        """The number of the first layers together, as one; and the layer and number of each end."""
        found = self._first.get(count)
        if found is None:
            layer, places = joined(self.layers[:count])
            self._all.append(layer)
            self.own_leaves.append(OwnLeaves(layer.leaves))
            found = self._first[count] = len(self._all) - 1, places
        return found

    def numbers(self, floats: Sequence[Number]) -> list[Number]:
        """The Python numbers that a call keeps, which follow from those that it was given."""
        formulas = self.tape.formulas
        return [formula(floats) for formula in formulas] if formulas else []

    def edges(self, arguments: Sequence[TensorCore]) -> list[Sequence[Edge | None]]:
        """Per layer where gradients of its leaves go."""
        found: list[Sequence[Edge | None]] = []
        for own, layer in zip(self.own_leaves, self.layers, strict=False):
            is_own = own.are_leaves
            found.append(own.edges if is_own else [_edge_of(x, arguments) for x in layer.leaves])
        return found

    def types_at(self, number: int, sizes: Sequence[int]) -> tuple[TensorType, ...]:
        """The types of a layer's outputs in a call that has such sizes."""
        types, of = self.layers[number].types, self.tape.sizes
        if of is None:
            return types
        if number not in self._shapes:
            self._shapes[number] = of.shapes([x.shape for x in types])
        pairs = zip(types, self._shapes[number](sizes), strict=True)
        return tuple([x.with_shape(tuple(shape)) for x, shape in pairs])

    def given_to(self, kind: BackwardKind) -> tuple[Sequence[TensorType], Sequence[Strides | None]]:
        """The types of what a backward is given that has open sizes, and the strides of such."""
        found = self._given.get(kind)
        if found is None:
            pairs = zip(self._all[kind.layer].types, kind.sent, strict=True)
            sent = [type for type, is_sent in pairs if is_sent]
            types = [*self.tape.lengths, *sent, *self.tape.types]
            strides = [contiguous_strides(x.shape) if is_open(x.size) else None for x in types]
            found = self._given[kind] = types, strides
        return found

    def latest(self) -> Program | None:
        """The program of a backward that was run last, of those that aren't differentiated."""
        found = [
            backward._programs.latest for kind, backward in self._kinds.items() if not kind.is_open
        ]
        return next(filter(None, reversed(found)), None)

    @property
    def programs(self) -> list[Program]:
        """Those of all backwards."""
        return [program for kind in self._kinds.values() for program in kind._programs.all()]

    def backward(self, key: tuple[int, tuple[bool, ...], tuple[int, ...], bool]) -> Any:
        """The compiled function that computes the gradients.

        key: what a `BackwardKind` is made of, and equal to it.
        """
        found = self._kinds.get(key)
        if found is None:
            kind = BackwardKind(*key)
            walk = Walk(kind, self._all[kind.layer], self.tape, self.users)
            found = self._kinds[kind] = self._compiled(walk)
        return found


def _edge_of(leaf: Leaf, arguments: Sequence[TensorCore]) -> Edge | None:
    if isinstance(leaf, TensorCore):
        return leaf_edge(leaf)
    if isinstance(leaf, EndOf):
        node = running.node
        assert node is not None
        inner = leaf.number - len(node._edges)
        return node._edges[leaf.number] if inner < 0 else (node, inner)
    return leaf_edge(arguments[leaf])


class CallRecord:
    """What one call keeps for the backward of its results.

    Attributes:
        freed: those of the nodes whose saved values a backward has released.
        spot: where the user's code called the step.
        behind: of a backward's results, that of the results which it differentiates.
        contexts: what host calls of the call have left for those of the backward.
        numbers: the Python numbers that it has kept.
        sizes: those that values have decided.
        OWN: what each call has for itself, in the order of `entry.words.CallHistory`.
    """

    OWN = (
        *("spot", "freed", "contexts", "numbers", "_counters"),
        *("_versions", "_kept", "_shown", "_storages", "sizes"),
    )
    __slots__ = (
        "__weakref__",
        "_counters",
        "_edges",
        "_kept",
        "_passed",
        "_shown",
        "_storages",
        "_versions",
        "behind",
        "contexts",
        "freed",
        "numbers",
        "rule",
        "sizes",
        "spot",
    )

    def __init__(
        self, rule: Differentiable, arguments: Sequence[TensorCore], floats: Sequence[Number]
    ) -> None:
        """Note what there is before the step runs, if that changes any of it."""
        self.rule = rule
        self.sizes: Sequence[int] = ()
        self.spot = user_spot()
        self.behind = running.record if rule.tape.goes_on and running.is_open else None
        self.freed: set[Node] = set() if self.behind is None else self.behind.freed
        self.contexts: dict[Any, Any] = {} if self.behind is None else {**self.behind.contexts}
        self._passed: frozenset[BackwardKind] = frozenset()
        self._edges = rule.edges(arguments)
        self._counters = [*map(_counter, arguments)]
        self.numbers = rule.numbers(floats)

    def attach(
        self,
        arguments: Sequence[TensorCore],
        outputs: Sequence[np.ndarray],
        inputs: Any,
        results: Sequence[TensorCore],
    ) -> None:
        """Give the results of the call their history.

        inputs: those of the program, by number.
        """
        rule = self.rule
        counters, tape = self._counters, rule.tape
        for result in results:
            counters.append(getattr(result, "_counter", NO_COUNTER))
        counters += rule.counters
        self._versions = [*map(_now, counters)]
        if tape.sizes is not None:
            earlier = running.record
            is_same = earlier is not None and earlier.rule.tape.sizes is tape.sizes
            self.sizes = (earlier if is_same else outputs).sizes  # type: ignore[union-attr]
        self._kept: list[np.ndarray] = []
        for (is_output, number), type in zip(tape.sources, tape.types, strict=True):
            found = outputs[number] if is_output else inputs[number]
            is_array = isinstance(found, np.ndarray)  # and no live number
            self._kept.append(found if is_array else np.array(found, type.dtype.numpy))
        self._shown = [*tape.tensors, *map(arguments.__getitem__, tape.arguments)]
        self.note_memory()
        nodes: list[CompiledBackward] = []
        for number, layer in enumerate(rule.layers):
            leaves = self._edges[number]
            if layer.upstream:
                leaves = (*((nodes[k], index) for k, index in layer.upstream), *leaves)
            nodes.append(CompiledBackward(self, number, tuple(leaves), results))
        self._edges = []

    def note_memory(self) -> None:
        """Note which memory the saved tensors show, also once the call has assigned `.data`."""
        self._storages = [*map(_storage, self._shown)]

    def check(self, node: CompiledBackward, walked: Sequence[Node]) -> None:
        """Raise what the first node of a walk raises that finds what it saved freed or written."""
        if not (self.freed or self.rule.tape.is_written or self._is_written()):
            return
        for met in walked:
            if not is_read(met):
                continue
            if met in self.freed:
                raise LucidError(FREED + origin_line(met._short_name(), met._line))
            self._refuse_written(node, met)

    def _is_written(self) -> bool:
        """Whether something that a node saved was written since the call."""
        now, then, checked = [*map(_now, self._counters)], self._versions, self.rule.tape.checked
        is_here = now != then and any(now[i] != then[i] for i in checked)
        return is_here or (self.behind is not None and self.behind._is_written())

    def _refuse_written(self, node: CompiledBackward, met: Node) -> None:
        counters, versions = self._counters, self._versions
        for kept in self.rule.tape.kept.get(met, ()):
            found, expected = counters[kept.counter].now, versions[kept.counter] - kept.writes
            if found != expected:
                name = kept.name if kept.argument < 0 else self._name_of(kept.argument)
                saver = f"{met._name()}{met._place()}"
                raise LucidError(modified(kept.type, name, found, expected, saver))
        if self.behind is not None:
            self.behind._refuse_written(node, met)

    def _name_of(self, argument: int) -> str | None:
        """What messages call an argument that has a history by now."""
        tape = self.rule.tape
        tensor = self._shown[len(tape.tensors) + tape.arguments.index(argument)]
        node = tensor.grad_fn
        return None if node is None else node._output_name(tensor._output_nr)

    def refuse_moved(self, node: Node) -> None:
        """Raise when a tensor that was saved shows other memory than at the call."""
        for tensor, storage in zip(self._shown, self._storages, strict=True):
            if tensor._storage is not storage:
                raise LucidError(
                    "a tensor that the gradients of a compiled function's result are computed from "
                    f"was given other memory since the call\n  {tensor._describe()}\n"
                    f"  in {node._name()}{node._place()}\n"
                    "hint: call backward() before assigning .data or calling set_()"
                )

    def free(self, nodes: Sequence[Node]) -> None:
        """Note what a backward has released, and drop everything if nothing can run any more."""
        self.freed.update(nodes)
        record: CallRecord | None = self
        while record is not None:
            saving = record.rule.tape.kept.keys()
            if saving and saving <= self.freed and all(map(is_read, record.rule.tape.custom)):
                record._kept, record._shown, record._storages, record.contexts = [], [], [], {}
            record = record.behind

    def on_arrays(self, backward: Any, gradients: Sequence[Any]) -> Sequence[np.ndarray] | None:
        """What `gradients` returns, by one native call; None where it has to be asked.

        Only where a backward has nothing to report: all is there, and as it was.
        """
        program, tape, walk = backward._programs.latest, self.rule.tape, backward.__wrapped__
        native = None if program is None else program.native
        form = None if native is None else native.of_record(self)
        if form is None or walk.ctx_change is not None:
            return None
        if program.output_count < len(walk.kind.wanted):  # some are None
            return None
        if tape.lengths:
            gradients = [*self._lengths(), *gradients]
        before = running.record
        try:
            if tape.formulas:
                running.record = self  # its numbers are read
            found: Sequence[np.ndarray] | None = form.function(self, *gradients)
        except NotFinite:  # the long way says where it is made
            return None
        finally:
            if tape.formulas:
                running.record = before
        return None if found is SLOW_PATH else found

    def _lengths(self) -> list[np.ndarray]:
        """Arrays that have the sizes which values decided."""
        tape = self.rule.tape
        return [np.empty((size, 0), bool) for size in self.sizes[: len(tape.lengths)]]

    def gradients(
        self, node: CompiledBackward, backward: Any, gradients: Sequence[TensorCore]
    ) -> Sequence[TensorCore | None]:
        """Those at the ends of a layer that are asked for."""
        walk = backward.__wrapped__
        kind = walk.kind
        self.check(node, walk.nodes)
        self.refuse_moved(node)
        if walk.ctx_change is not None and kind in self._passed:
            raise LucidError(
                f"{walk.ctx_change}\n  a second backward through the result of a compiled "
                "function would not find the change\n"
                "hint: call backward() inside of the compiled function"
            )
        before = running.record, running.node, running.is_open
        running.record, running.node, running.is_open = self, node, kind.is_open
        contexts, context.contexts = context.contexts, self.contexts
        try:
            found = self._run(backward, kind, _apart(gradients))
        except EagerOnlyError as error:
            raise LucidError(
                f"the gradients of a compiled function's result can't be computed natively: {error}"
                f"\n  in {node._name()}{node._place()}\n"
                "hint: call backward() inside of the compiled function"
            ) from None
        finally:
            running.record, running.node, running.is_open = before
            context.contexts = contexts
        if backward._programs.latest is not None:
            backward._programs.latest.forget_arguments()
        if walk.ctx_change is not None:
            self._passed |= {kind}
        return found

    def _run(
        self, backward: Any, kind: BackwardKind, gradients: Sequence[TensorCore]
    ) -> Sequence[TensorCore | None]:
        """Call a backward: with open sizes where values have decided some, unless it needs them."""
        rule, tape = self.rule, self.rule.tape
        found: Sequence[TensorCore | None]
        if tape.sizes is None:
            found = backward.call_natively((*gradients, *map(_tensor_on, self._kept, tape.types)))
            return found
        given, strides = rule.given_to(kind)
        lengths = self._lengths()
        contents: list[Any] = [*lengths, *(gradient._array for gradient in gradients), *self._kept]
        types = replaced(given, tape.sizes.at(self.sizes))

        def known(number: int) -> TensorCore:
            at = number - len(lengths)
            is_gradient = 0 <= at < len(gradients)
            return gradients[at] if is_gradient else _tensor_on(contents[number], types[number])

        if not (kind.is_open or rule.needs_sizes):
            opened = [*map(_tensor_on, contents, given, strides)]
            numbers = {id(tensor): number for number, tensor in enumerate(opened)}
            try:
                found = backward.call_natively((*opened,))
            except (NotOpenError, EagerOnlyError):
                pass
            else:  # what it gives back as it was given has a size of its own
                return [known(numbers[id(x)]) if id(x) in numbers else x for x in found]
        rule.needs_sizes = True
        found = backward.call_natively((*map(known, range(len(contents))),))
        return found


def _leave_on(own: OwnLeaves, gradients: Sequence[np.ndarray]) -> bool:
    """Let arrays be the gradients of leaves that have none, nor hooks; whether that is so."""
    with lock:
        if held:
            wait_for(frozenset(map(id, own.tensors)))
        if own.native is None:
            pairs = zip(own.tensors, gradients, strict=True)
            if not all(leaf._type == type_of_array(array) for leaf, array in pairs):
                return False
            own.native = NativeLeaves(own.tensors, own.nodes)
        is_left: bool = own.native.leave(*gradients)
    return is_left


def _tensor_on(array: np.ndarray, type: TensorType, strides: Strides | None = None) -> TensorCore:
    """A tensor on an array of that type.

    strides: those of an open type.
    """
    storage = Storage(type)
    storage.array = array
    made = _new(storage, type, array, ())
    if strides is not None:
        made._strides = strides
    return made


def _apart(gradients: Sequence[TensorCore]) -> list[TensorCore]:
    """Gradients as a backward is compiled for: row-major, and none on the memory of another."""
    found: list[TensorCore] = []
    for gradient in gradients:
        array = gradient._array
        is_right = array is None or array.flags.c_contiguous
        if not is_right or any(x._storage is gradient._storage for x in found):
            gradient = with_history_of(gradient, gradient._own_copy())
        found.append(gradient)
    return found


class CompiledBackward(CustomNode):
    """The node of one layer of a call's results.

    Attributes:
        OWN: what that of each call has for itself, in the order of `entry.words.CallHistory`.
    """

    OWN = "_record", "_sequence", "_spot"
    __slots__ = ("_layer", "_number", "_record", "_walked")
    _takes_undefined = False
    _has_separate_outputs = True
    _asks_what_is_wanted = True

    def __init__(
        self,
        record: CallRecord,
        number: int,
        edges: tuple[Edge | None, ...],
        results: Sequence[TensorCore],
    ) -> None:
        layer, types = record.rule.layers[number], record.rule.layers[number].types
        if record.rule.tape.sizes is not None:
            places = [output.positions for output in layer.outputs]
            if all(places):
                types = tuple([results[positions[0]]._type for positions in places])
            else:
                types = record.rule.types_at(number, record.sizes)
        self._initialize(edges, types)
        self._spot = record.spot
        self._record = record
        self._number = number
        self._layer = layer
        self._walked: Sequence[Node] = ()
        for index, output in enumerate(layer.outputs):
            for position in output.positions:
                tensor = results[position]
                tensor._grad_fn, tensor._output_nr, tensor._requires_grad = self, index, True

    def _output_name(self, number: int) -> str:
        return self._layer.outputs[number].name

    def _name_at(self, number: int) -> str:
        return self._layer.outputs[number].history

    def apply(self, gradients: Gradients) -> Gradients:
        wanted = tuple(i for i, edge in enumerate(self._edges) if edge is not None)
        return self._apply(gradients, wanted, context.grad_enabled)

    def _on_arrays(self, gradients: Sequence[Gradient | None]) -> Sequence[Gradient | None] | None:
        run, rule = context.backward_run, self._record.rule
        if run is None:
            return None
        nodes = self._nodes_before(run) if self._layer.upstream else ()
        if not nodes:
            return self._at_once(run, self._number, self._edges, gradients)
        arrived = [*(x for node in nodes for x in run.take(node)), *gradients]
        number, places = rule.first(self._number + 1)
        edges = [(self if k == self._number else nodes[k])._edges[i] for k, i in places]
        parts = self._at_once(run, number, edges, arrived)
        if parts is None:
            given = tuple([None if x is None else run.shown(_unshared(x)) for x in arrived])
            parts = self._differentiate(number, edges, given, _wanted(edges, run), is_open=False)
        for edge, part in zip(edges, parts, strict=False):  # none: they are where the walk ends
            if edge is not None and part is not None:
                run.send(edge, part)
        return ()

    def _nodes_before(self, run: BackwardRun) -> Sequence[CompiledBackward]:
        """The nodes of all layers before this one, if nobody is to see what arrives there.

        They are run with it: whatever else leads to their results was recorded later, and has run.
        """
        pairs = zip(self._layer.upstream, self._edges, strict=False)
        found: dict[int, Any] = {number: edge[0] for (number, _), edge in pairs if edge is not None}
        if any(node._is_observed or node in run.targets for node in found.values()):
            return ()
        return [found[number] for number in range(self._number)]

    def _at_once(
        self,
        run: BackwardRun,
        number: int,
        edges: Sequence[Edge | None],
        gradients: Sequence[Gradient | None],
    ) -> Sequence[Gradient | None] | None:
        """Gradients at edges by a native call; none if they are on leaves; None if it can't be."""
        given, sent = [], []
        for gradient in gradients:
            sent.append(gradient is not None)
            if gradient is None:
                continue
            array = gradient if isinstance(gradient, np.ndarray) else gradient._array
            if array is None:
                return None
            given.append(np.asarray(array, order="C"))  # a mean's is one number everywhere
        if not given:
            return None
        rule = self._record.rule
        own = rule.own_leaves[number]
        is_own = edges is own.edges or own.leads_to(edges)
        wanted = own.every if is_own and run.wanted is None else _wanted(edges, run)
        backward = rule.backward((number, tuple(sent), wanted, False))
        found = self._record.on_arrays(backward, given)
        if found is None:
            return None
        self._walked = backward.__wrapped__.nodes
        if is_own and run.ends_here and _leave_on(own, found):
            return ()
        return _at_edges(edges, wanted, found)

    def _apply_in_run(self, run: BackwardRun, gradients: Gradients) -> Gradients:
        return self._apply(gradients, _wanted(self._edges, run), run.create_graph)

    def _apply(self, gradients: Gradients, wanted: tuple[int, ...], is_open: bool) -> Gradients:
        if context.levels:
            return self._apply_in_levels(gradients, wanted, is_open)
        return self._differentiate(self._number, self._edges, gradients, wanted, is_open=is_open)

    def _differentiate(
        self,
        number: int,
        edges: Sequence[Edge | None],
        gradients: Gradients,
        wanted: tuple[int, ...],
        *,
        is_open: bool,
    ) -> Gradients:
        """Gradients at edges by a call of the backward of a layer, or of several together."""
        sent = tuple([gradient is not None for gradient in gradients])
        backward = self._record.rule.backward((number, sent, wanted, is_open))
        given = [gradient for gradient in gradients if gradient is not None]
        found = self._record.gradients(self, backward, given)
        self._walked = backward.__wrapped__.nodes
        return _at_edges(edges, wanted, found)

    def _apply_in_levels(
        self, gradients: Gradients, wanted: tuple[int, ...], is_open: bool
    ) -> Gradients:
        """The same in a vmap that the call was not in: one backward for each example."""
        levels = context.levels
        if not all(isinstance(level, BatchLevel) for level in levels):
            raise LucidError(
                "the results of a compiled function can't be differentiated in a forward-mode "
                f"derivative that it was not called in{self._place()}\nhint: call it inside"
            )
        found = [gradient._level for gradient in gradients if isinstance(gradient, Batched)]
        if not found:
            with outside(0):
                return self._apply(gradients, wanted, is_open)
        level = max(found, key=levels.index)
        rows = []
        for i in range(level.size):
            example = tuple(level.inner(x)[i] if level.owns(x) else x for x in gradients)
            rows.append(self._apply(example, wanted, is_open))
        columns = [[x for x in column if x is not None] for column in zip(*rows, strict=True)]
        return tuple(level.wrap(stack(column)) if column else None for column in columns)

    def _release(self) -> None:
        self._record.free(self._walked)


def _unshared(gradient: Gradient) -> Gradient:
    return np.array(gradient, order="C") if isinstance(gradient, np.ndarray) else gradient


def _wanted(edges: Sequence[Edge | None], run: BackwardRun) -> tuple[int, ...]:
    """The numbers of the edges along which a walk wants gradients."""
    if run.wanted is None and None not in edges:
        return tuple(range(len(edges)))
    return tuple([i for i, edge in enumerate(edges) if run.matters(edge)])


def _at_edges(
    edges: Sequence[Edge | None], wanted: tuple[int, ...], found: Sequence[Any]
) -> tuple[Any, ...]:
    """Gradients at those edges as a node gives them: one for each of its edges."""
    if len(wanted) == len(edges):
        return tuple(found)
    parts = dict(zip(wanted, found, strict=True))
    return tuple(map(parts.get, range(len(edges))))
