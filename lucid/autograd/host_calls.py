"""What a `host` node of a graph calls: forward or backward of a custom Function, in eager mode."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.function import Function, backward_of, run_forward
from lucid.autograd.host_reading import Evaluated, Plan, Reader
from lucid.autograd.host_replay import HostCall, MadeHostCall
from lucid.autograd.host_world import (
    NOWHERE,
    Captured,
    Outside,
    Slot,
    State,
    in_eager_mode,
    lend,
    refuse_write,
)
from lucid.autograd.returned import checked_gradients
from lucid.ir.extents import Extent, settled
from lucid.ir.hosts import Frame
from lucid.ir.types import TensorType
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction
    from lucid.autograd.hooks import SavedTensorHooks


def code_of(method: Callable[..., Any]) -> object:
    """What stays the same when a class is defined anew by each trace."""
    function = inspect.unwrap(method)
    return getattr(function, "__code__", function)


def template_of(ctx: BackwardCFunction, has_edge: Sequence[bool]) -> BackwardCFunction:
    """A ctx for calls of which a trace has this one.

    has_edge: of its arguments, for the backward.
    """
    made = ctx._forward_cls._backward_cls()
    made._line, made.needs_input_grad = ctx._line, ctx.needs_input_grad
    made._input_types = settled(ctx._input_types)
    made._edges = tuple([(NOWHERE, 0) if edge else None for edge in has_edge])
    return made


@dataclass(slots=True, eq=False, kw_only=True)
class HostMethod(HostCall):
    """A method of a custom Function that is called by the native step.

    Attributes:
        function: the user's class.
        slots: what the operands are.
        template: a ctx as each call gets it.
        states: tensors from outside that it can reach.
    """

    function: type[Function]
    slots: tuple[Slot, ...]
    template: BackwardCFunction
    states: list[State] = field(default_factory=list)

    def evaluate(self, frame: Frame, arrays: Sequence[np.ndarray], outside: Outside) -> Any:
        """Run the user's method on copies."""
        raise NotImplementedError

    def make(self, frame: Frame, operands: Sequence[np.ndarray]) -> MadeHostCall:
        outside = Outside(self.states, operands, partial(refuse_write, self.name, self.line))
        return MadeHostCall(self, self.evaluate(frame, operands, outside))


@dataclass(slots=True, eq=False, kw_only=True)
class HostForward(HostMethod):
    """The forward of one call of a Function.

    Attributes:
        inputs, keywords: the arguments of `apply`.
        keeps_ctx: whether its ctx is kept for backward and jvp, which are host calls as well.
        saved_hooks: those around it, for what is kept so.
        is_numbered: whether it runs in the rounds of a loop: its last result is the number of its
            ctx among those that its calls in one run have left.
    """

    inputs: tuple[Captured, ...]
    keywords: dict[str, Captured]
    keeps_ctx: bool = False
    saved_hooks: tuple[SavedTensorHooks, ...] = ()
    is_numbered: bool = False

    def replayed(self) -> MadeHostCall | None:
        made = HostCall.replayed(self)
        return None if made is None else self.kept(made)

    def kept(self, made: MadeHostCall) -> MadeHostCall:
        """Each run has a ctx of its own."""
        ctx = copy.copy(made.found.ctx)
        return MadeHostCall(self, dataclasses.replace(made.found, ctx=ctx))

    def evaluate(self, frame: Frame, arrays: Sequence[np.ndarray], outside: Outside) -> Evaluated:
        """Run the user's forward on copies."""
        return in_eager_mode(False, outside, partial(self._run, arrays))

    def _run(self, arrays: Sequence[np.ndarray]) -> Evaluated:
        tensors = lend(arrays, self.slots)
        ctx = copy.copy(self.template)
        inputs = tuple([value.fill(tensors) for value in self.inputs])
        if self.axes:
            ctx._input_types = tuple(
                [x._type if isinstance(x, TensorCore) else None for x in inputs]
            )
        keywords = {name: value.fill(tensors) for name, value in self.keywords.items()}
        output = run_forward(ctx, inputs, keywords)
        returned = output if isinstance(output, tuple) else (output,)
        given = {f"argument {i}": x for i, x in enumerate(zip(self.inputs, inputs, strict=True))}
        given |= {name: (self.keywords[name], x) for name, x in keywords.items()}
        containers = tuple(
            [name for name, (was, now) in given.items() if not was.is_left_by(tensors, now)]
        )
        reader = Reader(tensors, inputs)
        outputs = reader.entries(returned, "output")
        dirty = reader.entries(ctx.dirty_tensors, "dirty tensor")
        marked = reader.entries(ctx.non_differentiable, "non-differentiable tensor")
        written = reader.written(reader.changed(dirty, arrays))
        saved = None if ctx.to_save is None else reader.known(ctx.to_save)
        plan = Plan(
            isinstance(output, tuple), outputs, dirty, marked, ctx.materialize_grads,
            written, saved, containers, tuple(reader.labels),
        )  # fmt: skip
        ctx.dirty_tensors = ctx.non_differentiable = ()  # they may hold the ctx
        if self.keeps_ctx:
            known = {*map(id, tensors)}
            made = [(x, i) for i, x in enumerate(returned) if isinstance(x, TensorCore)]
            context.saved_hooks = list(self.saved_hooks)
            ctx._seal({id(x): i for x, i in made if id(x) not in known})
        shapes = [array.shape for array in arrays]
        return Evaluated(ctx, plan, tensors, shapes, reader.arrays, reader.types())

    def results(self, frame: Frame, found: Evaluated) -> Sequence[np.ndarray]:
        """Leave the ctx for the backward of this run, and of its results; what the call gives."""
        if self.is_numbered:
            kept = frame.setdefault(self, [])
            kept.append(found.ctx)
            return [*found.arrays, np.array(len(kept) - 1)]
        if self.keeps_ctx:
            frame[self] = found.ctx
            if context.contexts is not None:
                context.contexts[self] = found.ctx
        return found.arrays

    def seen(self, found: Evaluated) -> Plan:
        return found.plan

    def types_of(self, found: Evaluated) -> tuple[TensorType, ...]:
        return found.types

    def given(self, found: Evaluated) -> dict[Extent, int]:
        shapes = found.shapes
        return {
            size: shapes[number][axis]
            for size, (number, axis) in self.axes.items()
            if number < len(shapes) and axis < len(shapes[number])
        }

    def said(self, found: Evaluated) -> str:
        now = self.seen(found)
        before = self.expected
        if now.labels == before.labels:
            for label, was, type in zip(now.labels, self.types, found.types, strict=True):
                if str(type) != str(was):
                    return f"{label}: {was} -> {type}"
        for name in ("written", "outputs", "saved", "dirty", "non_differentiable", "containers"):
            if getattr(now, name) != getattr(before, name):
                return f"other tensors are its {name.replace('_', ' ')}"
        return "another kind of result"


@dataclass(slots=True, eq=False, kw_only=True)
class HostBackward(HostMethod):
    """The backward of one call of a Function.

    Attributes:
        forward: the host call whose ctx it gets; None: the forward was recorded, and `on_ctx` has
            the attributes of the ctx and the saved tensors.
        gradients: per output the operand that is its gradient; None where there is none.
        number: the operand that says which of the contexts it is that calls in rounds have left.
        grad_enabled: the grad mode of the backward walk.
    """

    forward: HostForward | None
    on_ctx: Captured
    gradients: tuple[int | None, ...]
    number: int | None
    grad_enabled: bool

    def seen(self, found: Sequence[Any]) -> list[str]:
        return ["None" if gradient is None else "a tensor" for gradient in found]

    def said(self, found: Sequence[Any]) -> str:
        pairs = enumerate(zip(self.expected, self.seen(found), strict=True))
        differ = (f"{i}: {before} -> {after}" for i, (before, after) in pairs if before != after)
        return f"gradient of tensor argument {next(differ)}"

    def results(self, frame: Frame, found: Sequence[Any]) -> Sequence[np.ndarray]:
        return [part._array for part in found if part is not None]

    def evaluate(
        self, frame: Frame, arrays: Sequence[np.ndarray], outside: Outside
    ) -> tuple[Any, ...]:
        """Run the user's backward on copies, and the checks on what it returns."""
        kept = None if self.forward is None else self._kept_ctx(frame, arrays)
        return in_eager_mode(self.grad_enabled, outside, partial(self._run, kept, arrays))

    def _run(self, kept: BackwardCFunction | None, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        tensors = lend(arrays, self.slots)
        ctx = self._recorded_ctx(tensors) if kept is None else kept
        ctx.needs_input_grad = self.template.needs_input_grad
        given = [None if number is None else tensors[number] for number in self.gradients]
        before, ctx._is_running = ctx._is_running, True
        try:
            returned = ctx.apply(*given)
        finally:
            ctx._is_running = before
        return checked_gradients(ctx, returned, backward_of(self.function))

    def _kept_ctx(self, frame: Frame, arrays: Sequence[np.ndarray]) -> BackwardCFunction:
        """The ctx of the forward: of this step, or of the call whose backward this step is."""
        assert self.forward is not None
        kept = frame if self.forward in frame else context.contexts
        assert kept is not None
        found = kept[self.forward]
        ctx: BackwardCFunction = found if self.number is None else found[arrays[self.number]]
        return ctx

    def _recorded_ctx(self, tensors: Sequence[Any]) -> BackwardCFunction:
        ctx = copy.copy(self.template)
        attributes, ctx._shown_saved = self.on_ctx.fill(tensors)
        vars(ctx).update(attributes)
        return ctx
