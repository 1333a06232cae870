"""The nodes behind the results of a call that can be differentiated outside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid.autograd.hooks import HookHandle
from lucid.autograd.host_replay import Differs
from lucid.autograd.node import CustomNode, Edge, Gradients, Node, edge_of, origin_line
from lucid.autograd.outputs import freed_behind
from lucid.autograd.saved import FREED, modified, with_history
from lucid.compiler.histories import (
    Ended,
    GradientOf,
    Made,
    Output,
    Saving,
    given,
    nodes_behind,
    tensor_of,
)
from lucid.compiler.results import Differentiable, Given, leaf_edge, no_data
from lucid.ir.errors import LucidError
from lucid.ir.types import TensorType
from lucid.tensor.context import context, epoch
from lucid.tensor.core import TensorCore, alias
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.writing import rebase_history

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
        freed: those of the recorded nodes whose saved values a backward has released.
        line: the user's line that called the step.
    """

    def __init__(
        self,
        rule: Differentiable,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bases: Sequence[TensorCore],
        line: tuple[str, int] | None,
    ) -> None:
        """Keep what there is before the step runs."""
        self.rule = rule
        self.line = line
        self.freed: set[Saving] = set()
        self._passed: set[int] = set()
        self._kept: dict[int, tuple[TensorType, VersionCounter, int]] = {}
        before, arguments = rule.before, call.tensors
        gradients = before.found(arguments)
        self._given: Given | None = Given(
            args,
            dict(sorted(kwargs.items())),
            bases,
            gradients,
            before.state(),
            before.histories(),
            before.numbers(),
        )
        self._edges = rule.edges(arguments)
        self._followed = [(tensor, edge_of(tensor)) for tensor in before.followed]
        written = {arguments[position]._storage for position in before.written_args}
        self._tensors: list[tuple[int, TensorCore]] = [
            (i, tensor) for i, tensor in enumerate(arguments) if tensor._storage not in written
        ]
        found = [gradient for gradient in gradients if gradient is not None]
        self._tensors += enumerate(found, len(arguments))
        self._read: list[Read] = []

    def attach(
        self, results: Sequence[TensorCore], gradients: Sequence[TensorCore], call: Call
    ) -> None:
        """Give the results of the call, and what else has one, their history.

        gradients: those among `Differentiable.further`, in order.
        """
        self._note_versions()
        rule, arguments = self.rule, call.tensors
        targets = [given(x, arguments) for x in rule.further if not isinstance(x, GradientOf)]
        values = [alias(target) for target in targets]
        receivers = [*results, *gradients, *values]
        nodes: list[CompiledBackward] = []
        for number, layer in enumerate(rule.layers):
            leaves = [
                leaf_edge(tensor_of(leaf, arguments, results)) if edge is None else edge
                for leaf, edge in zip(layer.leaves, self._edges[number], strict=True)
            ]
            upstream: list[Edge | None] = [(nodes[k], index) for k, index in layer.upstream]
            nodes.append(CompiledBackward(self, number, (*upstream, *leaves), receivers))
            for position in {i for output in layer.outputs for i in output.saved}:
                counter = receivers[position]._counter
                self._kept[position] = receivers[position]._type, counter, counter.now
        self._edges = []
        written = {id(target) for target in targets}
        for target, value in zip(targets, values, strict=True):
            if id(target._base) in written:
                take_history(target, value)
            else:
                rebase_history(target, value)

    def _note_versions(self) -> None:
        """Note what must not be written any more, as the step leaves it."""
        for storage, counter in self.rule.before.read:
            self._read.append(Read(storage, counter, counter.now, storage.root_type, None))
        for number, tensor in self._tensors:
            counter = tensor._counter
            self._read.append(Read(number, counter, counter.now, tensor._type, tensor))
        self._tensors = []

    def refuse_written(self, node: Node, outputs: Sequence[Output]) -> None:
        """Raise when a result that what led to `outputs` had saved was written since."""
        for position in sorted({i for output in outputs for i in output.saved}):
            type, counter, version = self._kept[position]
            if counter.value != version:
                known = [y for layer in self.rule.layers for y in layer.outputs]
                name = next((y.name for y in known if y.position == position), None)
                raise LucidError(modified(type, name, counter.value, version, node))

    def _refuse_other_histories(self, node: Node) -> None:
        """Raise when a backward in the function would follow another history than at the call."""
        for tensor, edge in self._followed:
            if edge_of(tensor) != edge:
                raise LucidError(
                    "a backward in a compiled function followed the history of a tensor from "
                    f"outside, which was written in place since\n  {tensor._describe()}\n"
                    f"  in {node._name()}{node._place()}\n"
                    "hint: call backward() outside, or pass the tensor as an argument"
                )

    def free(self, nodes: Collection[Saving]) -> None:
        """Note what a backward has released, and drop everything if nothing can run any more."""
        self.freed.update(nodes)
        outputs = [output for layer in self.rule.layers for output in layer.outputs]
        if not any(self.freed.isdisjoint(output.saving) for output in outputs):
            self._given = None
            self._read = []
            self._followed = []

    def gradients(
        self,
        node: Node,
        number: int,
        gradients: Gradients,
        cut: tuple[int, ...],
        wanted: tuple[int, ...],
    ) -> Sequence[TensorCore | None]:
        """Those of a layer's upstream results in `cut` and of its leaves in `wanted`."""
        if number in self._passed and self.rule.again.ctx_change is not None:
            raise LucidError(
                f"{self.rule.again.ctx_change}\n  a second backward through the result of a "
                "compiled function would not find the change\n"
                "hint: call backward() inside of the compiled function"
            )
        self._refuse_other_histories(node)
        assert self._given is not None
        known = self._stand_ins(node, number) if context.grad_enabled else {}
        asked = (self._given, gradients, context.grad_enabled, number, cut, wanted, known)
        changed = [read for read in self._read if read.counter.value != read.version]
        found = self._run(node, asked, changed)
        self._passed.add(number)
        return found

    def _stand_ins(self, node: Node, number: int) -> dict[int, TensorCore]:
        """What stands for results that gradients with a graph depend on, by their positions.

        Those are the upstream ones, leaves that the step made, and outputs that were saved.
        """
        layers = self.rule.layers
        layer = layers[number]
        upstream = [layers[k].outputs[index].position for k, index in layer.upstream]
        leaves = [leaf.position if isinstance(leaf, Made) else None for leaf in layer.leaves]
        known = dict(zip((*upstream, *leaves), node._edges, strict=True))
        saved = frozenset[int]().union(*(output.saved for output in layer.outputs))
        for index, output in enumerate(layer.outputs):
            if output.position in saved:
                known[output.position] = node, index
        return {
            position: with_history(no_data(edge[0]._output_types[edge[1]]), edge)
            for position, edge in known.items()
            if position is not None and edge is not None
        }

    def _run(
        self, node: Node, asked: tuple[Any, ...], changed: Sequence[Read]
    ) -> Sequence[TensorCore | None]:
        rule = self.rule
        backward = rule.backward()
        found: Sequence[TensorCore | None]
        if context.recorder is not None:
            if rule.writes:  # it would run again on what the trace has by now
                context.recorder.refuse(
                    "backward() through the result of a compiled function that writes tensors or "
                    f"gradients{node._place()},",
                    "pass the result as an argument, or call backward() outside",
                )
            _refuse_changed(node, changed, [read.what for read in changed])
            found = backward(*asked)
        elif context.levels or (context.anomaly and not rule.writes):
            _refuse_changed(node, changed, [read.what for read in changed])
            found = _op_by_op(rule, asked)  # to map and push forward, or to name who makes NaN
        else:
            call, program = backward.prepare(asked)
            _refuse_changed(node, changed, program.used_inputs)
            try:
                found = program.run(call, asked, {})
            except Differs as differs:
                found = backward.go_on(differs.with_traceback(None), asked)
        return found


def take_history(view: TensorCore, value: TensorCore) -> None:
    """Let the view of a base that was written have the history that the step has derived."""
    assert view._base is not None
    view._grad_fn, view._output_nr = value._grad_fn, value._output_nr
    view._requires_grad, view._epoch = True, view._base._epoch


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
        layer = history.rule.layers[number]
        super().__init__(edges, tuple(results[output.position]._type for output in layer.outputs))
        self._line = history.line
        self._history = history
        self._number = number
        self._layer = layer
        self._walked: set[Saving] = set()
        for index, output in enumerate(layer.outputs):
            if output.hooks:
                register = self._tensor_hooks = self._tensor_hooks or {}
                register[index] = {}
                for hook in output.hooks:
                    HookHandle.add(register[index], hook)
            for position in (output.position, *output.twins):
                tensor = results[position]
                tensor._grad_fn, tensor._output_nr, tensor._requires_grad = self, index, True
                if tensor._retains_grad:
                    self._retain(index, tensor)

    @property
    def _memory_read(self) -> list[Storage]:
        """Where that lies which the backward may read again."""
        reads = self._history._read
        arguments = [read.argument._storage for read in reads if read.argument is not None]
        return [*arguments, *(r.what for r in reads if isinstance(r.what, Storage))]

    def _output_name(self, number: int) -> str:
        return self._layer.outputs[number].name

    def apply(self, gradients: Gradients) -> Gradients:
        return self._apply(gradients, (), tuple(range(len(self._layer.leaves))))

    def _apply_in_run(self, run: BackwardRun, gradients: Gradients) -> Gradients:
        count = len(self._layer.upstream)
        is_cut = run.create_graph  # its gradient is to depend on the result outside
        cut = tuple(i for i in range(count) if is_cut or self._is_seen(i, run))
        leaves = enumerate(self._edges[count:])
        return self._apply(gradients, cut, tuple(i for i, e in leaves if run.matters(e)))

    def _is_seen(self, number: int, run: BackwardRun) -> bool:
        """Whether anybody looks at the gradient of an upstream result, or adds to it."""
        edge = self._edges[number]
        assert edge is not None
        node = edge[0]
        hooks = node._tensor_hooks or node._pre_hooks or node._post_hooks
        is_wanted = run.wanted is not None and edge in run.wanted
        return bool(hooks or node._retained or is_wanted or node in run.arrived)

    def _apply(
        self, gradients: Gradients, cut: tuple[int, ...], wanted: tuple[int, ...]
    ) -> Gradients:
        given = zip(self._layer.outputs, gradients, strict=True)
        outputs = [y for y, g in given if g is not None]
        for index, output in enumerate(self._layer.outputs):
            if output.has_traced_hooks and gradients[index] is not None and self._hooks_at(index):
                raise LucidError(
                    f"{output.name} of a compiled function has a hook from inside, which uses "
                    "tensors or floats of the step, and one from outside, which would be called "
                    "before it\nhint: register both outside of the compiled function"
                )
        self._walked = set().union(*(y.saving for y in outputs))
        if freed := self._walked & self._history.freed:
            met = max(freed)  # the first that the walk comes to
            raise LucidError(FREED + origin_line(met.function, met.line))
        self._history.refuse_written(self, outputs)
        found = self._history.gradients(self, self._number, gradients, cut, wanted)
        return tuple(None if e is None else g for e, g in zip(self._edges, found, strict=True))

    def _release(self) -> None:
        self._history.free(self._walked)


def _op_by_op(rule: Differentiable, asked: tuple[Any, ...]) -> tuple[Any, ...]:
    if rule.writes:
        raise LucidError(
            "the results of a compiled function that writes its state can't be differentiated "
            "in a vmap or a forward-mode derivative that it was not called in\n"
            "hint: call it inside, or return the new state instead of writing it"
        )
    return rule.gradients(*asked)


def _refuse_changed(node: Node, changed: Sequence[Read], used: Collection[Storage | int]) -> None:
    """Raise when something that the gradients need was written in place since the call."""
    for read in changed:
        if read.what in used:
            written, source = read.argument, None
            if written is not None and written._grad_fn is not None:
                source = written._grad_fn._output_name(written._output_nr)
            raise LucidError(modified(read.type, source, read.counter.value, read.version, node))


class LostBackward(Node):
    """Behind a result whose graph was freed inside of the compiled step, or was lost by a write."""

    def __init__(self, result: TensorCore, message: str) -> None:
        super().__init__((), (result._type,))
        self._message = message

    def apply(self, gradients: Gradients) -> Gradients:
        raise LucidError(self._message)


def lost_backward(result: TensorCore, outer: Collection[Edge]) -> LostBackward | None:
    """The node behind a result that can't be differentiated any more; None for all others.

    outer: where history from outside begins, which is known at each call only.
    """
    if not result.requires_grad:
        return None
    message = result._lost_history()
    edge = None if message is not None else edge_of(result)
    if edge is not None:
        message = freed_behind(nodes_behind(edge, outer))
    return None if message is None else LostBackward(result, message)


def end_history(ended: Ended, arguments: Sequence[TensorCore]) -> None:
    """Cut a tensor from its history, or leave it one that says why there is none."""
    tensor, node = given(ended.tensor, arguments), ended.node
    tensor._grad_fn, tensor._output_nr = node, 0
    tensor._epoch += ended.shows_in_views
    if tensor._requires_grad != (node is not None):
        tensor._requires_grad = node is not None
        epoch.count += 1
