"""The nodes behind the results of a call that can be differentiated outside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid.autograd.node import CustomNode, Edge, Gradients, Node, accumulator_of, edge_of
from lucid.autograd.outputs import reaches_freed
from lucid.autograd.saved import FREED, modified
from lucid.compiler.results import Differentiable, tensor_of
from lucid.ir.errors import LucidError
from lucid.ir.types import TensorType
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.compiler.signature import Call


class Read(NamedTuple):
    """What the backward may read again, as it was at the call.

    Attributes:
        what: state, or an argument by its position.
        argument: it, for one, whose history a message names.
    """

    what: Storage | int
    counter: VersionCounter
    version: int
    type: TensorType
    argument: TensorCore | None


class History:
    """What one call keeps for the backward of its results.

    Attributes:
        freed: numbers of the recorded nodes whose saved values a backward has released.
        line: the user's line that called the step.
    """

    def __init__(
        self,
        rule: Differentiable,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        before: tuple[TensorCore, ...],
        line: tuple[str, int] | None,
    ) -> None:
        self.rule = rule
        self.line = line
        self.freed: set[int] = set()
        self._given: Any = (args, dict(sorted(kwargs.items())), before)
        self._read = [
            Read(storage, counter, counter.now, storage.root_type, None)
            for storage, counter in rule.read
        ]
        written = {call.tensors[position]._storage for position in rule.written_args}
        for i, tensor in enumerate(call.tensors):
            if tensor._storage not in written:
                counter = tensor._counter
                self._read.append(Read(i, counter, counter.now, tensor._type, tensor))

    def attach(self, results: Sequence[TensorCore], call: Call) -> None:
        """Give the results of the call, in order, their nodes."""
        nodes: list[CompiledBackward] = []
        for number, layer in enumerate(self.rule.layers):
            outputs = [results[output.position] for output in layer.outputs]
            upstream: list[Edge | None] = [(nodes[k], index) for k, index in layer.upstream]
            leaves = [tensor_of(leaf, call.tensors, results) for leaf in layer.leaves]
            edges = (*upstream, *map(_leaf_edge, leaves))
            nodes.append(CompiledBackward(self, number, edges, outputs))

    def free(self, numbers: Collection[int]) -> None:
        """Note what a backward has released, and drop everything if nothing can run any more."""
        self.freed.update(numbers)
        outputs = [output for layer in self.rule.layers for output in layer.outputs]
        if not any(self.freed.isdisjoint(output.saving) for output in outputs):
            self._given = None
            self._read = []

    def gradients(
        self, node: Node, number: int, gradients: Gradients, cut: tuple[int, ...]
    ) -> Sequence[TensorCore | None]:
        """Those of a layer's upstream results and leaves."""
        args, kwargs, before = self._given
        given = (args, kwargs, gradients, before, context.grad_enabled, number, cut)
        changed = [read for read in self._read if read.counter.value != read.version]
        rule = self.rule
        backward = rule.backward()
        found: Sequence[TensorCore | None]
        if context.recorder is not None:
            _refuse_changed(node, changed, [read.what for read in changed])
            found = backward(*given)
        elif context.levels or (context.anomaly and not rule.writes):
            _refuse_changed(node, changed, [read.what for read in changed])
            found = _op_by_op(rule, given)  # to map and push forward, or to name who makes NaN
        else:
            call, program = backward.prepare(given)
            _refuse_changed(node, changed, program.used_inputs)
            found = program.run(call, given, {})
        return found


def _leaf_edge(leaf: TensorCore) -> Edge:
    """Where its gradient goes. The step may have asked for it: the flag is set at the end."""
    return edge_of(leaf) or (accumulator_of(leaf), 0)


class CompiledBackward(CustomNode):
    """The node of one layer of a call's results."""

    _takes_undefined = False

    def __init__(
        self,
        history: History,
        number: int,
        edges: tuple[Edge | None, ...],
        results: Sequence[TensorCore],
    ) -> None:
        super().__init__(edges, tuple(result._type for result in results))
        self._line = history.line
        self._history = history
        self._number = number
        self._layer = history.rule.layers[number]
        self._walked: set[int] = set()
        for index, tensor in enumerate(results):
            tensor._grad_fn, tensor._output_nr, tensor._requires_grad = self, index, True
            if tensor._retains_grad:
                self._retain(index, tensor)

    def _output_name(self, number: int) -> str:
        return self._layer.outputs[number].name

    def apply(self, gradients: Gradients) -> Gradients:
        return self._apply(gradients, ())

    def _apply_in_run(self, run: BackwardRun, gradients: Gradients) -> Gradients:
        upstream = range(len(self._layer.upstream))
        return self._apply(gradients, tuple(i for i in upstream if self._is_seen(i, run)))

    def _is_seen(self, number: int, run: BackwardRun) -> bool:
        """Whether anybody looks at the gradient of an upstream result, or adds to it."""
        edge = self._edges[number]
        assert edge is not None
        node = edge[0]
        hooks = node._tensor_hooks or node._pre_hooks or node._post_hooks
        is_wanted = run.wanted is not None and edge in run.wanted
        return bool(hooks or node._retained or is_wanted or node in run.arrived)

    def _apply(self, gradients: Gradients, cut: tuple[int, ...]) -> Gradients:
        given = zip(self._layer.outputs, gradients, strict=True)
        self._walked = set().union(*(y.saving for y, g in given if g is not None))
        if not self._walked.isdisjoint(self._history.freed):
            raise LucidError(FREED)
        found = self._history.gradients(self, self._number, gradients, cut)
        return tuple(None if e is None else g for e, g in zip(self._edges, found, strict=True))

    def _release(self) -> None:
        self._history.free(self._walked)


def _op_by_op(rule: Differentiable, given: tuple[Any, ...]) -> tuple[Any, ...]:
    if rule.writes:
        raise LucidError(
            "the results of a compiled function that writes its state can't be differentiated "
            "in a vmap or a forward-mode derivative that it was not called in\n"
            "hint: call it inside, or return the new state instead of writing it"
        )
    return rule.gradients(*given)


def _refuse_changed(node: Node, changed: Sequence[Read], used: Collection[Storage | int]) -> None:
    """Raise when something that the gradients need was written in place since the call."""
    for read in changed:
        if read.what in used:
            written, source = read.argument, None
            if written is not None and written._grad_fn is not None:
                source = written._grad_fn, written._output_nr
            raise LucidError(modified(read.type, source, read.counter.value, read.version, node))


class LostBackward(Node):
    """Behind a result whose graph was freed inside of the compiled step, or was lost by a write."""

    def __init__(self, result: TensorCore, message: str) -> None:
        super().__init__((), (result._type,))
        self._message = message

    def apply(self, gradients: Gradients) -> Gradients:
        raise LucidError(self._message)


def lost_backward(result: TensorCore) -> LostBackward | None:
    """The node behind a result that can't be differentiated any more; None for all others."""
    if not result.requires_grad:
        return None
    message = result._lost_history()
    if message is None and reaches_freed(result):
        message = FREED
    return None if message is None else LostBackward(result, message)
