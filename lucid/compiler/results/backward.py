"""The nodes behind the results of a call that can be differentiated outside."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.hooks import HookHandle
from lucid.autograd.host_replay import Differs
from lucid.autograd.node import CustomNode, Edge, Gradients, Node, edge_of, origin_line
from lucid.autograd.saved import FREED, modified, with_history
from lucid.compiler.results.argument_contents import owners_in, present_contents
from lucid.compiler.results.found_elsewhere import found_elsewhere
from lucid.compiler.results.histories import (
    GradientOf,
    Made,
    TracedHook,
    given,
    tensor_of,
)
from lucid.compiler.results.outcomes import with_copies
from lucid.compiler.results.recorded import Recorded
from lucid.compiler.results.results import Differentiable, Given, Rest, copied, leaf_edge, no_data
from lucid.ir.errors import LucidError
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, alias, of_array
from lucid.tensor.keepers import add_keeper, remove_keeper
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.writing import rebase_history

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.compiler.inputs.signature import Call
    from lucid.compiler.programs.joint import Joint
    from lucid.compiler.programs.program import Program


_NONE: frozenset[Recorded] = frozenset()
_NO_NUMBERS: frozenset[int] = frozenset()


class History:
    """What one call keeps for the backward of its results.

    Attributes:
        freed: those of the recorded nodes whose saved values a backward has released.
        line: the user's line that called the step.
        behind: of a backward's results, that of the results which it differentiates.
        _counters, _versions: version counters, and what they were after the call.
        _copied: numbers of the arguments and gradients of which it has a copy.
    """

    __slots__ = (
        "__weakref__",
        "_call",
        "_copied",
        "_counters",
        "_edges",
        "_followed",
        "_given",
        "_joint",
        "_passed",
        "_residuals",
        "_versions",
        "behind",
        "freed",
        "line",
        "rule",
    )

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
        before, arguments = rule.before, call.tensors
        self.rule = rule
        self.line = line
        self.freed: frozenset[Recorded] = _NONE
        self.behind: History | None = None
        self._call: Call | None = call
        self._joint: Joint | None = None
        self._residuals: Sequence[np.ndarray] = ()
        self._passed: frozenset[int] = _NO_NUMBERS
        self._edges: Sequence[list[Edge | None]] = rule.edges(arguments)
        followed = before.followed
        self._followed = [(x, edge_of(x)) for x in followed] if followed else ()
        self._counters = [tensor._counter for tensor in arguments]
        self._copied: set[int] = set()
        gradients = self._keep_gradients(call) if before.gradients else ()
        if before.written_args:
            written = {arguments[position]._storage for position in before.written_args}
            self._copied.update(i for i, x in enumerate(arguments) if x._storage in written)
        more: Rest | None = None
        if bases or rule.needs_more:
            more = Rest(
                bases,
                gradients,
                before.state(),
                before.histories(),
                before.numbers(),
                [of_array(np.array(storage.array)) for storage in before.arrays],
            )
        self._given: Given | None = Given(
            args, dict(sorted(kwargs.items())) if kwargs else None, more
        )

    def keep_residuals(self, joint: Joint, outputs: Sequence[np.ndarray]) -> None:
        """Keep what the forward half has left for the backward one."""
        self._joint, self._residuals = joint, joint.residuals_of(outputs)

    def _keep_gradients(self, call: Call) -> list[TensorCore | None]:
        before, count = self.rule.before, len(call.tensors)
        for number, (use, is_written) in enumerate(before.gradients):
            found = use.found(call.tensors)
            self._counters.append(VersionCounter() if found is None else found._counter)
            if is_written:
                self._copied.add(count + number)
        return before.found(call.tensors)

    def attach(
        self, results: Sequence[TensorCore], gradients: Sequence[TensorCore], call: Call
    ) -> None:
        """Give the results of the call, and what else has one, their history.

        gradients: those among `Differentiable.further`, in order.
        """
        rule, arguments = self.rule, call.tensors
        targets: list[TensorCore] = []
        if rule.further:
            targets = [given(x, arguments) for x in rule.further if not isinstance(x, GradientOf)]
        values = [alias(target) for target in targets]
        receivers = [*results, *gradients, *values]
        counters = self._counters
        counters += [tensor._counter for tensor in receivers]
        counters += rule.counters
        self._versions = [counter.now for counter in counters]
        nodes: list[CompiledBackward] = []
        for number, layer in enumerate(rule.layers):
            leaves = self._edges[number]
            if None in leaves:
                leaves = [
                    leaf_edge(tensor_of(leaf, arguments, results)) if edge is None else edge
                    for leaf, edge in zip(layer.leaves, leaves, strict=True)
                ]
            upstream: list[Edge | None] = [(nodes[k], index) for k, index in layer.upstream]
            nodes.append(CompiledBackward(self, number, (*upstream, *leaves), receivers))
        self._edges = ()
        add_keeper(self)
        written = {id(target) for target in targets} if targets else ()
        for target, value in zip(targets, values, strict=True):
            if id(target._base) in written:
                take_history(target, value)
            else:
                rebase_history(target, value)

    def before_write(self, storage: Storage) -> None:
        """Copy what the gradients may be computed from, and no node has saved."""
        given, call, before = self._given, self._call, self.rule.before
        if given is None or call is None:
            return
        is_argument = any(tensor._storage is storage for tensor in call.tensors)
        if storage not in self.rule.memory and not is_argument and not before.gradients:
            return
        saved = self._saved_by_all()
        if saved is None:
            return
        for i, (read, number) in enumerate(before.read):
            kept = given.rest.kept or {}
            if read is storage and i not in kept and self._needs(number, saved):
                content = of_array(np.array(storage.array))
                self._given = given = given.but(kept={**kept, i: content})
        written = [
            i
            for i, tensor in enumerate(call.tensors)
            if tensor._storage is storage and i not in self._copied and self._needs(i, saved)
        ]
        if written:
            given = self._copy(given, call, written)
            if self.rule.calls_users:
                now = {i: alias(call.tensors[i]) for i in written}
                self._given = given = given.but(written={**(given.rest.written or {}), **now})
        gradients, count = [*given.rest.gradients], len(call.tensors)
        for i, gradient in enumerate(gradients):
            is_there = gradient is not None and gradient._storage is storage
            if is_there and count + i not in self._copied and self._needs(count + i, saved):
                gradients[i] = copied(gradient)
                self._copied.add(count + i)
        if gradients:
            self._given = given.but(gradients=gradients)

    def before_assignment(self, tensor: TensorCore) -> None:
        """Copy an argument that gets other memory: gradients are those of what it had."""
        given, call = self._given, self._call
        if given is None or call is None or all(x is not tensor for x in call.tensors):
            return
        shown = [i for i, x in enumerate(call.tensors) if x._storage is tensor._storage]
        missing = [i for i in shown if i not in self._copied and self._needs(i, ())]
        if missing:
            self._copy(given, call, missing)

    def _copy(self, given: Given, call: Call, positions: Sequence[int]) -> Given:
        """Let the backward run from copies of arguments, from now on."""
        was = given.args, given.kwargs, given.rest.bases
        args, kwargs, bases = with_copies(*was, call, positions)
        found = Given(args, kwargs or None, given.more)
        self._given = found = found.but(bases=bases) if bases else found
        self._copied.update(positions)
        return found

    def _saved_by_all(self) -> set[int] | None:
        """What each backward that can still come has saved, by the numbers of the counters.

        None: whichever comes, it computes with nothing.
        """
        rule, freed = self.rule, self.freed
        kept = [
            numbers
            for numbers, nodes in zip(rule.kept, rule.saving, strict=True)
            if (nodes and not freed.issuperset(nodes)) or (rule.calls_users and not nodes)
        ]
        return set.intersection(*kept) if kept else None

    def _needs(self, number: int, saved: Collection[int]) -> bool:
        """Whether what a counter counts is as at the call, and may be written before a backward."""
        return self._counters[number].now == self._versions[number] and number not in saved

    def check(self, walked: Sequence[Recorded]) -> None:
        """Raise what the first node of a walk raises that finds what it saved freed or written."""
        if not self._has_freed() and not self._is_written():
            return
        counters, versions = self._counters, self._versions
        for node in walked:
            if not node.is_read:
                continue
            if self._is_freed(node):
                raise LucidError(FREED + origin_line(node.function, node.line))
            if (kept := node.written(counters, versions)) is not None:
                name = kept.name if kept.argument < 0 else self._name_of_argument(kept.argument)
                found, expected = counters[kept.counter].value, versions[kept.counter]
                raise LucidError(modified(kept.type, name, found, expected, node.origin))

    def _has_freed(self) -> bool:
        """Whether anything was freed, here or in a history behind it."""
        return bool(self.freed) or (self.behind is not None and self.behind._has_freed())

    def _is_freed(self, node: Recorded) -> bool:
        """Whether a node was freed, here or where it is a node of a history behind this one."""
        if node in self.freed:
            return True
        behind, twin = self.behind, node.twin
        return behind is not None and twin is not None and behind._is_freed(twin)

    def _is_written(self) -> bool:
        """Whether something was written since the call."""
        if context.recorder is None:
            return [counter.now for counter in self._counters] != self._versions
        return [counter.value for counter in self._counters] != self._versions

    def memory_read(self) -> list[Storage]:
        """Where that lies which a backward may compute from, and of which there is no copy."""
        if self._given is None or self._call is None:
            return []
        arguments = enumerate(self._call.tensors)
        read = enumerate(self.rule.before.read)
        return [
            *(x._storage for i, x in arguments if i not in self._copied),
            *(storage for i, (storage, _) in read if i not in (self._given.rest.kept or ())),
        ]

    def _refuse_over(self) -> None:
        """Raise when all that was kept of the call is dropped."""
        if self._given is None:
            met = max(self.freed, key=lambda node: node.sequence)
            raise LucidError(FREED + origin_line(met.function, met.line))

    def _name_of_argument(self, position: int) -> str | None:
        assert self._call is not None
        argument = self._call.tensors[position]
        node = argument._grad_fn
        return None if node is None else node._output_name(argument._output_nr)

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

    def free(self, nodes: Collection[Recorded]) -> None:
        """Note what a backward has released, and drop everything if nothing can run any more."""
        self.freed = self.freed.union(nodes) if self.freed else frozenset(nodes)
        if self.rule.is_over(self.freed):
            self._given = self._call = self._joint = None
            self._residuals = ()
            self._counters, self._versions = [], []
            self._followed = ()
            remove_keeper(self)
        if self.behind is not None:
            twins = [node.twin for node in nodes if node.twin is not None]
            if twins:
                self.behind.free(twins)

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
        self._refuse_over()
        self._refuse_other_histories(node)
        known = self._stand_ins(node, number) if context.grad_enabled else None
        given = self._given_now()
        asked = (given, gradients, context.grad_enabled, number, cut, wanted, known)
        found: Sequence[TensorCore | None] = self._run(node, self.rule.again.gradients, asked)
        if number not in self._passed:
            self._passed |= {number}
        if context.grad_enabled:
            self._go_before(found)
        return found

    def _go_before(self, found: Sequence[TensorCore | None]) -> None:
        """Let the history of gradients know this one: what the one frees, the other has not."""
        for gradient in found:
            node = None if gradient is None else gradient._grad_fn
            if isinstance(node, CompiledBackward) and node._history is not self:
                node._history.behind = self

    def hooked(
        self, reference: weakref.ref[CompiledBackward], number: int, index: int, hook: TracedHook
    ) -> Callable[..., Any]:
        """What a hook does that the step registered on a result, with tensors of the step.

        reference: to the node of layer `number`, with the result as output `index`.
        """

        def call(gradient: TensorCore) -> Any:
            node = reference()
            assert node is not None
            self._refuse_over()
            self._refuse_other_histories(node)
            known = self._stand_ins(node, number, is_all=True) if context.grad_enabled else {}
            given, place = self._given_now(), hook.place
            asked = (given, gradient, context.grad_enabled, number, index, place, known)
            return self._run(node, self.rule.again.hooked, asked)

        call.__name__ = hook.name
        return call

    def _given_now(self) -> Given:
        """What the backward runs the function from, and what there is in arguments by now."""
        given, call = self._given, self._call
        assert given is not None and call is not None
        if not (self.rule.calls_users and call.has_containers):
            return given
        present = present_contents(self._owners(call), (given.args, given.kwargs))
        return given.but(present=present) if present else given

    def _owners(self, call: Call) -> list[Any]:
        """The containers and objects that were given, not copies that a history behind has."""
        owners, behind = call.owners(), self.behind
        if behind is None or behind._given is None or behind._call is None:
            return owners
        copies = owners_in((behind._given.args, behind._given.kwargs))
        originals = behind._owners(behind._call)
        known = {id(x): original for x, original in zip(copies, originals, strict=False)}
        return [known.get(id(owner), owner) for owner in owners]

    def _stand_ins(self, node: Node, number: int, *, is_all: bool = False) -> dict[int, TensorCore]:
        """What stands for results that gradients with a graph depend on, by their positions.

        Those are the upstream ones, leaves that the step made, and outputs that were saved, or all.
        """
        layers = self.rule.layers
        layer = layers[number]
        upstream = [layers[k].outputs[index].position for k, index in layer.upstream]
        leaves = [leaf.position if isinstance(leaf, Made) else None for leaf in layer.leaves]
        known = dict(zip((*upstream, *leaves), node._edges, strict=True))
        saved = frozenset[int]().union(*(output.saved for output in layer.outputs))
        for index, output in enumerate(layer.outputs):
            if is_all or output.position in saved:
                known[output.position] = node, index
        assert self._call is not None
        first = len(self._call.tensors) + len(self.rule.before.gradients)
        stand_ins: dict[int, TensorCore] = {}
        for position, edge in known.items():
            if position is not None and edge is not None:
                made = with_history(no_data(edge[0]._output_types[edge[1]]), edge)
                made._counter = self._counters[first + position]
                stand_ins[position] = made
        return stand_ins

    def _refuse_written(self, node: Node, used: Collection[Storage | int] | None) -> None:
        """Raise when something was written since the call that the gradients are computed from.

        used: state and numbers of arguments that they are computed from; None: all.
        """
        if not self._is_written():
            return
        given, call, before = self._given, self._call, self.rule.before
        assert given is not None and call is not None
        count = len(call.tensors)
        found = [i for i, gradient in enumerate(given.rest.gradients) if gradient is not None]
        numbers = [*range(count), *(count + i for i in found)]
        kept = given.rest.kept or ()
        reads: list[tuple[Storage | int, int]] = [
            *(pair for pair in enumerate(numbers) if pair[1] not in self._copied),
            *(read for i, read in enumerate(before.read) if i not in kept),
        ]
        for what, number in reads:
            is_written = self._counters[number].value != self._versions[number]
            if is_written and (used is None or what in used):
                raise self._is_other(node)

    def _is_other(self, node: Node) -> LucidError:
        return LucidError(
            f"{_OF_GRADIENTS}\n  in {node._name()}{node._place()}\n"
            "hint: call backward() before it is written, or inside of the compiled function"
        )

    def _run(self, node: Node, method: Callable[..., Any], asked: tuple[Any, ...]) -> Any:
        """What one of `Again` returns."""
        rule = self.rule
        backward = rule.compiled(method)
        if context.recorder is not None:
            if rule.writes:  # it would run again on what the trace has by now
                context.recorder.run_op_by_op(
                    "a backward() in it goes through the result of a compiled function that writes "
                    f"tensors or gradients{node._place()}"
                )
            self._refuse_written(node, None)
            return backward(*asked)
        is_replaced = bool(asked[0].rest.kept or asked[0].rest.written)  # which needs a trace
        if context.levels or (context.anomaly and not rule.writes and not is_replaced):
            self._refuse_written(node, None)
            _refuse_writes(rule)
            if is_replaced:
                raise self._is_other(node)
            return method(*asked)  # to map and push forward, or to name who makes NaN
        call, program = backward.prepare(asked)
        self._refuse_written(node, program.used_inputs)
        joint = self._joint
        if joint is not None and joint.program is program:
            return program.run_half(joint.backward, call, self._residuals)
        if method == rule.again.gradients and not context.grad_enabled and rule.is_worth_joining():
            self._join(program, call, asked[0])
        try:
            return program.run(call, asked, {})
        except Differs as differs:
            return backward.go_on(differs.with_traceback(None), asked)

    def _join(self, backward: Program, call: Call, given: Given) -> None:
        """Have the function leave what its first backward would compute again."""
        rule = self.rule
        program = None if rule.program is None else rule.program()
        assert self._call is not None
        arguments = self._call.tensors
        count = len(arguments)
        firsts = call.tensors[:count]
        is_same = len(firsts) == count and all(map(operator.is_, firsts, arguments))
        rest = given.rest
        is_other = backward.is_claiming or rest.kept or rest.present or rest.written
        if program is not None and is_same and not is_other:
            program.join(backward, found_elsewhere(rule.before, rest, call, count))


_OF_GRADIENTS = (
    "the gradients of a compiled function's result are computed from a tensor that was written in "
    "place since the call"
)


def take_history(view: TensorCore, value: TensorCore) -> None:
    """Let the view of a base that was written have the history that the step has derived."""
    assert view._base is not None
    view._grad_fn, view._output_nr = value._grad_fn, value._output_nr
    view._requires_grad, view._epoch = True, view._base._epoch


class CompiledBackward(CustomNode):
    """The node of one layer of a call's results."""

    __slots__ = ("_history", "_layer", "_number", "_walked")
    _takes_undefined = False
    _has_separate_outputs = True

    def __init__(
        self,
        history: History,
        number: int,
        edges: tuple[Edge | None, ...],
        results: Sequence[TensorCore],
    ) -> None:
        layer = history.rule.layers[number]
        super().__init__(edges, layer.types)
        self._line = history.line
        self._history = history
        self._number = number
        self._layer = layer
        self._walked: Sequence[Recorded] = ()
        for index, output in enumerate(layer.outputs):
            if output.hooks:
                register = self._tensor_hooks = self._tensor_hooks or {}
                register[index] = {}
                for hook in output.hooks:
                    if isinstance(hook, TracedHook):
                        hook = history.hooked(weakref.ref(self), number, index, hook)
                    HookHandle.add(register[index], hook)
            for position in output.positions:
                tensor = results[position]
                tensor._grad_fn, tensor._output_nr, tensor._requires_grad = self, index, True
                if tensor._retains_grad:
                    self._retain(index, tensor)

    @property
    def _memory_read(self) -> list[Storage]:
        """Where that lies which the backward may read again."""
        return self._history.memory_read()

    def _output_name(self, number: int) -> str:
        return self._layer.outputs[number].name

    def apply(self, gradients: Gradients) -> Gradients:
        return self._apply(gradients, (), None)

    def _apply_in_run(self, run: BackwardRun, gradients: Gradients) -> Gradients:
        count = len(self._layer.upstream)
        is_cut = run.create_graph  # its gradient is to depend on the result outside
        cut = tuple(i for i in range(count) if is_cut or self._is_seen(i, run))
        if run.wanted is None:
            return self._apply(gradients, cut, None)
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
        self, gradients: Gradients, cut: tuple[int, ...], wanted: tuple[int, ...] | None
    ) -> Gradients:
        """wanted: the leaves whose gradients are asked for; None: all."""
        if self._pre_hooks:
            self._refuse_prehooks(gradients)
        history, number = self._history, self._number
        sent = tuple(gradient is not None for gradient in gradients)
        self._walked = history.rule.walk(number, sent, cut, wanted)
        history.check(self._walked)
        every = tuple(range(len(self._layer.leaves))) if wanted is None else wanted
        found = history.gradients(self, number, gradients, cut, every)
        return tuple(None if e is None else g for e, g in zip(self._edges, found, strict=True))

    def _refuse_prehooks(self, gradients: Gradients) -> None:
        """Raise where the step has registered a prehook beside those from outside."""
        for output, gradient in zip(self._layer.outputs, gradients, strict=True):
            if output.has_prehooks and gradient is not None:
                raise LucidError(
                    f"the node of {output.name} of a compiled function has a prehook from inside, "
                    "and one from outside, which would be called before it\n"
                    "hint: register both inside of the compiled function, or hooks on the tensor"
                )

    def _release(self) -> None:
        self._history.free(self._walked)


def _refuse_writes(rule: Differentiable) -> None:
    if rule.writes:
        raise LucidError(
            "the results of a compiled function that writes its state can't be differentiated "
            "in a vmap or a forward-mode derivative that it was not called in\n"
            "hint: call it inside, or return the new state instead of writing it"
        )
