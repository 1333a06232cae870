"""Host calls in a trace: custom Functions whose forward or backward leaves lucid.

A method that asks for the data of a traced tensor ends the trace. The next trace knows it, and
doesn't run it on traced tensors: it is evaluated once on the present values, which types its
results, and recorded as a `host` node. What the evaluation changes in Python is put back.
"""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from lucid.autograd.function import BackwardCFunction, FunctionCtx, backward_of
from lucid.autograd.generators import put_state, state_of
from lucid.autograd.host_calls import HostBackward, HostForward, code_of, template_of
from lucid.autograd.host_finding import Finding, FoundNumber, as_length
from lucid.autograd.host_reading import Entry, Evaluated
from lucid.autograd.host_replay import HostCall, MadeHostCall, OpenAxis
from lucid.autograd.host_world import Captured, EagerThread, Slot
from lucid.autograd.outputs import TwiceDifferentiated, refuse_second_derivative
from lucid.compiler.guards.events import unheard
from lucid.compiler.guards.guard import instance_dict
from lucid.compiler.guards.restarts import Known, RestartTrace
from lucid.compiler.hosts.state import Surroundings
from lucid.compiler.inputs.late import is_late
from lucid.compiler.inputs.objects import know_by_identity
from lucid.compiler.inputs.present import PresentValues
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.results.memory import TracedMemory
from lucid.ir.classes import isinstance
from lucid.ir.extents import LEAST, MOST, NotOpenError, hint, is_open, replaced, settled
from lucid.ir.graph import Node, Value, computation_of, unused_name
from lucid.ir.hosts import Frame, HostFunction
from lucid.ir.interpret import evaluated
from lucid.ir.location import Location, here
from lucid.ir.opening import reopened
from lucid.ir.types import TensorType, type_of_array
from lucid.tensor.context import context, repeating
from lucid.tensor.core import TensorCore, of_value
from lucid.tensor.tree import map_tree
from lucid.tensor.writing import refuse_overlaps

Method = Callable[..., Any]


def attributes_of(ctx: BackwardCFunction) -> dict[str, Any]:
    """What the user set on a ctx."""
    own = ctx._own_names | FunctionCtx.__annotations__.keys()
    return {name: value for name, value in vars(ctx).items() if name not in own}


class HostRecording:
    """The host calls of one trace.

    Attributes:
        rounds: the number of loop bodies that are being recorded.
        in_rounds: the host calls in such bodies, with what they can reach.
        left: the restart by which a method left the trace, as the user's code may have caught it.
        opened: the axes whose sizes are open; closed: those whose sizes must be known.
        may_open: whether there may be further open axes.
    """

    def __init__(self, recorder: TracedMemory, known: Known) -> None:
        self._recorder = recorder
        self._known, self.closed, self.may_open = known.hosts, known.closed, known.may_open
        self.opened: Collection[OpenAxis] = known.opened - known.closed
        self._attempts: list[tuple[str, tuple[Method, ...]]] = []
        self.present = PresentValues(recorder.cells, recorder.live_inputs, recorder.sizes)
        self.rounds = 0
        self.in_rounds: dict[HostFunction, Surroundings] = {}
        self._frame: Frame = {}
        self._findings: dict[Any, Sequence[Value]] = {}
        self._generators: dict[int, tuple[Any, Any, bytes]] = {}  # with states before and after
        self.left: RestartTrace | None = None

    def know(self, contexts: Mapping[HostForward, BackwardCFunction]) -> None:
        """Take what host calls of an earlier call have left for those of its backward."""
        self._frame.update((host, copy.copy(ctx)) for host, ctx in contexts.items())

    # ---------------------------------------------------------------- which methods

    @contextmanager
    def attempt(self, name: str, *methods: Method) -> Iterator[None]:
        """Trace methods of the user's in the block; if they ask for data, they become a host call.

        methods: none for the rule of a transformation; if that asks for data, the call runs op by
            op.
        """
        if methods and (methods[0].__module__ or "").startswith("lucid."):
            yield
            return
        self._attempts.append((name, methods))
        try:
            yield
        finally:
            self._attempts.pop()

    def put_back(self) -> None:
        """Put random generators back to where they were before evaluations."""
        while self._generators:
            generator, before, left = self._generators.popitem()[1]
            if pickle.dumps(state_of(generator)) == left:  # else another thread has drawn as well
                put_state(generator, before)

    def leave(self) -> None:
        """Start again with the innermost method that is being traced as a host call, if any."""
        if self._attempts:
            name, methods = self._attempts[-1]
            self._refuse_transformed(name, is_rule=not methods)
            line = here()
            reason = f"leaves lucid in {name}"
            if line is not None:
                reason += f", at {line}   {line.text}".rstrip()
            self.left = RestartTrace(reason, "hosts", set(map(code_of, methods)))
            raise self.left

    def _refuse_transformed(self, name: str, *, is_rule: bool = False) -> None:
        """Give the trace up in a vmap or a forward-mode derivative, which look at operations."""
        if is_rule or context.levels:
            self._recorder.run_op_by_op(
                f"{name}, a host call, runs in a vmap or a forward-mode derivative, which look at "
                "its operations"
            )

    def refuse_attribute(self, ctx: BackwardCFunction, name: str) -> None:
        """Raise where the ctx of a host forward is asked for what forward left there."""
        if ctx._host_forward in self._frame and name in attributes_of(self._kept(ctx)):
            self._recorder.run_op_by_op(
                f"it reads ctx.{name} outside of backward, which {ctx._forward_cls.__name__}."
                "forward, a host call, computes anew at each call"
            )

    def _kept(self, ctx: BackwardCFunction) -> BackwardCFunction:
        """The ctx that a host forward has left while tracing; in a loop, the first round's."""
        found = self._frame[ctx._host_forward]
        kept: BackwardCFunction = found[0] if type(found) is list else found
        return kept

    def takes(self, method: Method) -> bool:
        """Whether a method is known to leave the trace."""
        return code_of(method) in self._known

    # ---------------------------------------------------------------- forward

    def forward(
        self,
        ctx: BackwardCFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        is_differentiable: bool,
    ) -> Any:
        """What `forward` returns, as tensors of the trace; ctx gets what it saved and marked."""
        function = ctx._forward_cls
        self._refuse_transformed(f"{function.__name__}.forward")
        operands = Operands(self._recorder, inputs)
        edges = zip(ctx._input_types, ctx.needs_input_grad, strict=True)
        host = HostForward(
            name=f"{function.__name__}.forward",
            code=code_of(function.forward),
            function=function,
            inputs=operands.captured,
            keywords={name: operands.capture(value) for name, value in keywords.items()},
            slots=tuple(operands.slots),
            line=ctx._line,
            template=template_of(ctx, [needed for type, needed in edges if type is not None]),
            keeps_ctx=is_differentiable,
            saved_hooks=tuple(context.saved_hooks),
            is_numbered=is_differentiable and self.rounds > 0,
        )
        if is_differentiable:
            ctx._host_forward = host
        host.template._input_types = replaced(ctx._input_types, hint)
        methods = (function.forward, function.setup_context)
        reached = (*inputs, *keywords.values())
        node, found = self._called_with(function.__name__, host, methods, reached, operands)
        if host.is_numbered:
            (ctx._number,) = tensors_of(self._recorder, node.results[-1:])
        return self._finish(ctx, node, found, operands, host.name)

    def _called_with(
        self,
        name: str,
        host: HostForward | HostBackward,
        methods: Sequence[Method],
        reached: Sequence[Any],
        operands: Operands,
        like: Sequence[TensorType | None] = (),
    ) -> tuple[Node, Any]:
        """Make a call of methods, with what they can reach besides their arguments, and append it.

        Gives its node, and what it did. like: as for `_called`.
        """
        in_rounds = self.rounds > 0
        around = Surroundings(
            self._recorder, host.name, methods, reached, len(operands.values), in_rounds=in_rounds
        )
        host.states = around.states
        if in_rounds:
            self.in_rounds[host] = around
        values = [*operands.values, *around.values]
        if isinstance(host, HostForward):
            host.axes = _open_axes(values)
            if host.axes and in_rounds:
                what = "a call of Python in rounds of a loop is given sizes of each call"
                raise NotOpenError(what)

        def evaluate(lent: Sequence[np.ndarray]) -> Any:
            with around.untouched():
                return host.evaluate(self._frame, lent, around.outside(lent))

        node, found, _ = self._called(name, host, values, evaluate, like=like)
        return node, found

    def _called(
        self,
        name: str,
        host: HostCall,
        values: Sequence[Value],
        evaluate: Callable[[Sequence[np.ndarray]], Any],
        after: Sequence[Value] = (),
        like: Sequence[TensorType | None] = (),
    ) -> tuple[Node, Any, MadeHostCall | None]:
        """Make a call once, on the values of now, and append its node; gives also what it did.

        If an unfinished run, with which this trace goes on, has made the call, its outcome is
        taken, and returned as the third item.

        like: for a backward, the types of the arguments, which are those of the gradients.
        """
        self._recorder.note_failing()
        with self._recorder.noting_failure():
            lent = self.present.of(values)
            # Rounds take theirs when all are recorded.
            made = None if self.rounds else host.replayed()
            found = evaluate(lent) if made is None else made.found
        host.expected, host.types = host.seen(found), host.types_of(found)
        if isinstance(host, HostBackward):
            of_tensors = [type for type in like if type is not None]
            pairs = zip(found, of_tensors, strict=True)
            like = [type for part, type in pairs if part is not None]
        results = [np.array(array, order="C") for array in host.results(self._frame, found)]
        return self._record(name, host, [*values, *after], results, like), found, made

    def _finish(
        self, ctx: BackwardCFunction, node: Node, found: Evaluated, operands: Operands, name: str
    ) -> Any:
        """Write what forward wrote, fill in the ctx, and give what it returned, as tensors here."""
        plan, tensors = found.plan, tensors_of(self._recorder, node.results)

        known: dict[str, Sequence[Any]] = {"none": (None,), "argument": operands.inputs}
        known |= {"input": operands.tensors, "result": tensors}

        def traced(entry: Entry) -> Any:
            kind, which = entry
            if kind in known:
                return known[kind][which]
            of = "another result's" if kind == "part" else "an argument's"
            what = f"a part, or a view, of {of} memory"
            if kind == "other":
                of_type = type(which).__name__
                what = f"a value of type {of_type}, which may be another one at each call"
            self._recorder.run_op_by_op(f"{name}, a host call, gives back {what}")

        if plan.containers:
            which = ", ".join(plan.containers)
            self._recorder.run_op_by_op(f"{name}, a host call, changes what is in {which}")
        for operand, result in plan.written:
            target = operands.tensors[operand]
            refuse_overlaps(target)
            if context.mutation_guard is not None:
                context.mutation_guard.before_write(target)
            if context.forward is not None:
                context.forward.guard.before_write(target)
            self._recorder.write(target, tensors[result])
            target._counter.value += found.tensors[operand]._counter.value
        if tensors and ctx._origin is None:
            ctx._origin = tensors[0]._storage.value
        outputs = tuple(map(traced, plan.outputs))
        ctx.materialize_grads = plan.materialize_grads
        ctx.dirty_tensors = tuple(map(traced, plan.dirty))
        ctx.non_differentiable = tuple(map(traced, plan.non_differentiable))
        ctx.to_save = None if plan.saved is None else tuple(map(traced, plan.saved))
        return outputs if plan.is_tuple else outputs[0]

    def now(self, node: Node, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The results of a loop whose rounds call Python: all rounds run, and are undone."""
        graph = self._recorder.graph
        hosts = {name: partial(self._call_again, host) for name, host in graph.hosts.items()}
        bodies = graph.functions
        if self._recorder.sizes.symbols:
            bodies = {name: reopened(body, hint) for name, body in bodies.items()}
        with repeating():
            return evaluated(node, operands, bodies, hosts, self._frame)

    def _call_again(
        self, host: Any, frame: Frame, arrays: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray]:
        """Call a host call that has been recorded, and undo what it changes."""
        found: Sequence[np.ndarray]
        if host in self.in_rounds:
            with self.in_rounds[host].untouched():
                found = host(frame, arrays)
            return found
        before = state_of(host.generator)
        with EagerThread(context.grad_enabled):
            found = host(frame, arrays)
        self._note_draw(host.generator, before)
        return found

    # ---------------------------------------------------------------- backward

    def backward(self, ctx: BackwardCFunction, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """One gradient per tensor argument, or None: what `backward` returns, checked."""
        function, name = ctx._forward_cls, f"{ctx._forward_cls.__name__}.backward"
        self._refuse_transformed(name)
        operands = Operands(self._recorder)
        given = tuple(operands.number(gradient) for gradient in gradients)
        number = operands.number(ctx._number)
        saved = ctx.saved_tensors  # raises for what was written since, as in eager mode
        keeper = ctx._host_forward
        types = settled(ctx._input_types)
        if keeper is None and replaced(types, hint) is not types:
            raise NotOpenError("the ctx of a forward of operations has sizes of each call")
        on_ctx: tuple[dict[str, Any], Any] = attributes_of(ctx), saved
        host = HostBackward(
            name=name,
            code=code_of(backward_of(function)),
            function=function,
            forward=keeper,
            on_ctx=operands.capture(on_ctx if keeper is None else None),
            gradients=given,
            number=number,
            slots=tuple(operands.slots),
            line=ctx._line,
            template=template_of(ctx, [edge is not None for edge in ctx._edges]),
            grad_enabled=context.grad_enabled,
        )
        reached = [*attributes_of(ctx if keeper is None else self._kept(ctx)).values()]
        node, parts = self._called_with(
            name, host, [backward_of(function)], reached, operands, types
        )
        tensors = iter(tensors_of(self._recorder, node.results))
        found = tuple(None if part is None else next(tensors) for part in parts)
        if not context.grad_enabled:
            return found
        sent = [gradient for gradient in gradients if gradient is not None]
        is_once = hasattr(backward_of(function), "is_once_differentiable")
        kind = TwiceDifferentiated if is_once else _OnHost
        guarded: tuple[Any, ...] = refuse_second_derivative(ctx, sent, found, kind)
        return guarded

    # ---------------------------------------------------------------- single functions

    def find(
        self,
        name: str,
        find: Callable[..., Any],
        tensors: Sequence[TensorCore],
        options: tuple[Any, ...],
        **kind: Any,
    ) -> tuple[Any, ...]:
        """What `find(*arrays, *options)` finds at each call; once for the same values.

        kind: further attributes of the `Finding`.
        """
        values = [self._recorder.value_of(tensor) for tensor in tensors]
        key = (find, options, *map(computation_of, values))
        found = self._findings.get(key)
        if found is None or any(x.graph is not self._recorder.graph for x in found):
            found, _ = self.call(name, find, values, options=options, **kind)
            self._findings[key] = found
        return tuple(tensors_of(self._recorder, found))

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        values: Sequence[Value] = (),
        generator: Any = None,
        after: Sequence[Value] = (),
        *,
        is_unheard: bool = False,
        **kind: Any,
    ) -> tuple[Sequence[Value], Callable[..., Any]]:
        """Record a call of a function at each call of the step.

        Returns its results, and the function that found the present ones: another one if an
        unfinished run, with which this trace goes on, has made the call.

        generator: what it draws random numbers from; after the trace it is as it was.
        after: what is to be computed before the call, which the function leaves alone.
        is_unheard: whether what it reads is no part of the step.
        kind: further attributes of the `Finding`.
        """
        place = here()
        line = None if place is None else (place.file, place.line)
        host = Finding(
            name=name,
            code=name,
            line=line,
            find=function,
            generator=generator,
            **kind,
        )

        def evaluate(lent: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            before = state_of(generator)
            with EagerThread(context.grad_enabled):  # for what a function of the user's does
                arrays = (unheard(host.evaluate) if is_unheard else host.evaluate)(lent)
            self._note_draw(generator, before)
            return arrays

        node, _, made = self._called(name, host, values, evaluate, after)
        found_by = function if made is None else made.host.find  # type: ignore[attr-defined]
        return node.results, found_by

    def size(self, number: Value, place: OpenAxis) -> Node:
        """A vector of empty rows, as many as an i64[] of the graph says; see `FoundNumber`."""
        code, line, *_ = place
        host = FoundNumber(name="number", code=code, line=line, find=as_length, is_own=True)
        return self._called("number", host, [number], host.evaluate)[0]

    def _note_draw(self, generator: Any, before: Any) -> None:
        if generator is not None:
            _, before, _ = self._generators.get(id(generator), (generator, before, b""))
            self._generators[id(generator)] = generator, before, pickle.dumps(state_of(generator))

    # ---------------------------------------------------------------- recording

    def _with_open_sizes(
        self, host: HostCall, types: Sequence[TensorType]
    ) -> tuple[TensorType, ...]:
        """The types of a call's results, with open sizes along axes that have had other sizes.

        In results of a custom Function a size equal to an operand's counts as that size, until a
        call finds another.
        """
        made: dict[int, Any] = {}
        given = {size.hint: size for size in host.axes}
        found, sizes = [], self._recorder.sizes
        for number, type in enumerate(types):
            shape: list[Any] = [*type.shape]
            for axis, size in enumerate(shape):
                place = host.code, host.line, number, axis
                if LEAST <= size <= MOST and place in self.opened:
                    if size not in made:
                        made[size] = sizes.add(size), sizes.origins[-1]
                    shape[axis], places = made[size]
                    places.add(place)
                elif size in given:
                    shape[axis] = given[size]
            found.append(type.with_shape(tuple(shape)))
        return tuple(found)

    def _record(
        self,
        name: str,
        host: HostCall,
        values: Sequence[Value],
        results: Sequence[np.ndarray],
        like: Sequence[Any] = (),
    ) -> Node:
        """Append the call, with the results of its first evaluation."""
        graph = self._recorder.graph
        unique = unused_name(name, graph.hosts)
        graph.hosts[unique] = host
        types: Sequence[TensorType] = [type_of_array(array) for array in results]
        if not self.rounds:
            if like:
                types = [type.with_shape(of.shape) for type, of in zip(types, like, strict=True)]
            else:
                host.types = types = self._with_open_sizes(host, types)
        with self._recorder.annotated(None if host.line is None else Location(*host.line)):
            node = graph.append_host(unique, values, types)
        for value in node.results if name.endswith(".backward") else ():
            value.name = "grad"
        self.present.note(node, results)
        return node


def _open_axes(values: Sequence[Value]) -> dict[Any, tuple[int, int]]:
    """The open sizes of values, each with one axis that has it: (operand, axis)."""
    return {
        size: (number, axis)
        for number, value in enumerate(values)
        for axis, size in enumerate(value.type.shape)
        if is_open(size)
    }


class Operands:
    """What a host call gets from the graph: each tensor once, and floats that are live.

    Attributes:
        inputs: the arguments of the user's method; `captured`: with slots for the operands.
    """

    def __init__(self, recorder: TracedMemory, inputs: Sequence[Any] = ()) -> None:
        self._recorder = recorder
        self.inputs = inputs
        self._numbers: dict[int, Slot] = {}
        self.values: list[Value] = []
        self.tensors: list[Any] = []
        self.slots: list[Slot] = []
        self.captured = tuple(map(self.capture, inputs))

    def number(self, tensor: TensorCore | None) -> int | None:
        return None if tensor is None else self._slot(tensor).number

    def capture(self, value: Any) -> Captured:
        """A Python value with slots for the tensors and live floats in it."""
        found: list[Slot] = []

        def captured(leaf: Any, _: str) -> Any:
            if isinstance(leaf, TensorCore) or is_live(leaf):
                found.append(self._slot(leaf))
                return found[-1]
            if is_late(leaf):
                self._recorder.run_op_by_op(
                    f"it hands a {type(leaf).__name__}, a value that only a call knows, to a "
                    "custom Function that is a call of Python"
                )
            self._recorder.collector.know_set(leaf)
            kind = self._recorder.dicts.get(id(instance_dict(leaf)))
            if kind is not None:  # Python is to find what is in it, not what stands for that
                know_by_identity([kind])
                raise RestartTrace("hands an object that it is given to a call of Python")
            return leaf

        tree = map_tree(captured, value)
        return Captured(tree if found else value, bool(found))

    def _slot(self, leaf: Any) -> Slot:
        slot = self._numbers.get(id(leaf))
        if slot is None:
            number = len(self.values)
            if is_live(leaf):
                slot, value = Slot(number, True, False), leaf.value
            else:
                slot = Slot(number, False, leaf.requires_grad)
                value = self._recorder.value_of(leaf)
            self._numbers[id(leaf)] = slot
            self.values.append(value)
            self.tensors.append(leaf)
            self.slots.append(slot)
        return slot


def tensors_of(recorder: TracedMemory, values: Sequence[Value]) -> list[TensorCore]:
    """Tensors of the trace for the results of a node."""
    tensors: list[TensorCore] = []
    for value in values:
        tensor = of_value(value)
        place = None if value.producer is None else value.producer.location
        tensor._line = None if place is None else (place.file, place.line)
        recorder.made.append(weakref.ref(tensor))
        tensors.append(tensor)
    return tensors


class _OnHost(TwiceDifferentiated):
    """Stands behind the gradients that a host call returned: eager mode has their derivatives."""

    def apply(self, gradients: Any) -> Any:
        assert context.recorder is not None
        context.recorder.run_op_by_op(
            f"it differentiates {self.of}.backward, a host call, whose operations only eager mode "
            "sees"
        )
