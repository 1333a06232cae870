"""What a `host` node of a graph calls: forward or backward of a custom Function, in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.function import Function, backward_of, run_forward
from lucid.autograd.host_reading import Evaluated, Plan, Reader
from lucid.autograd.host_replay import (
    Differs,
    Made,
    MadeBackward,
    MadeForward,
    Written,
    note,
    replayed,
)
from lucid.autograd.host_world import (
    NOWHERE,
    Captured,
    Changes,
    Slot,
    State,
    in_eager_mode,
    lend,
    place_text,
)
from lucid.autograd.outputs import TwiceDifferentiated
from lucid.autograd.returned import checked_gradients
from lucid.ir.errors import LucidError
from lucid.ir.hosts import Frame
from lucid.ir.types import TensorType
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction
    from lucid.autograd.hooks import SavedTensorHooks


@dataclass(slots=True, eq=False)
class HostForward:
    """The forward of one call of a Function.

    Attributes:
        function: the user's class.
        inputs, keywords: the arguments of `apply`.
        slots: what the operands are.
        line: the user's line that called `apply`.
        input_types, has_edge: of the arguments, for the backward.
        states: tensors from outside that it can reach.
        keeps_ctx: whether its ctx is kept for backward and jvp, which are host calls as well.
        saved_hooks: the hooks for what is kept so.
        plan: what it did while tracing.
        is_followed: whether a forward that follows in the step may find something else.
    """

    function: type[Function]
    inputs: tuple[Captured, ...]
    keywords: dict[str, Captured]
    slots: tuple[Slot, ...]
    line: tuple[str, int] | None
    needs_input_grad: tuple[bool, ...]
    input_types: tuple[TensorType | None, ...]
    has_edge: tuple[bool, ...]
    states: list[State] = field(default_factory=list)
    keeps_ctx: bool = False
    saved_hooks: tuple[SavedTensorHooks, ...] = ()
    plan: Plan | None = None
    is_followed: bool = False

    @property
    def method(self) -> Callable[..., Any]:
        """The user's method that it calls."""
        return self.function.forward

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.function.__name__}.forward"

    def __call__(self, frame: Frame, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        made = replayed(self)
        if made is None:
            found = self.evaluate(frame, operands)
        else:
            assert isinstance(made, MadeForward)
            found = made.again(operands, self.states)
        self.read(found)
        difference = self._difference(found)
        if difference is not None or self.is_followed:
            calls = note(frame, MadeForward.of(self, found))
            if difference is not None:
                raise self._differs(difference, calls)
        self.keep(frame, found)
        return found.arrays

    def fits(self, made: Made) -> bool:
        """Whether this call is traced for what a call of another program did."""
        if not isinstance(made, MadeForward) or not made.written.is_within(self.states):
            return False
        found = made.again((), self.states)
        self.read(found)
        return self._difference(found) is None

    def evaluate(self, frame: Frame, arrays: Sequence[np.ndarray]) -> Evaluated:
        """Run the user's forward on copies."""
        changes = Changes(self.states, arrays)
        run = partial(self._run, frame, arrays, changes)
        return in_eager_mode(False, changes, run)

    def _run(self, frame: Frame, arrays: Sequence[np.ndarray], changes: Changes) -> Evaluated:
        tensors = lend(arrays, self.slots)
        ctx = self.function._backward_cls()
        ctx._line = self.line
        ctx.needs_input_grad = self.needs_input_grad
        ctx._input_types = self.input_types
        ctx._edges = tuple([(NOWHERE, 0) if edge else None for edge in self.has_edge])
        inputs = tuple([value.fill(tensors) for value in self.inputs])
        keywords = {name: value.fill(tensors) for name, value in self.keywords.items()}
        output = run_forward(ctx, inputs, keywords)
        marks = ctx.dirty_tensors, ctx.non_differentiable
        found = Evaluated(arrays, ctx, output, tensors, inputs, changes, ctx.to_save, *marks)
        ctx.dirty_tensors = ctx.non_differentiable = ()  # they may hold the ctx
        if self.keeps_ctx:
            self._seal(found)
        return found

    def _seal(self, found: Evaluated) -> None:
        """Let the ctx be what backward gets, with what it saved."""
        inputs = set(map(id, found.tensors))
        numbers = {
            id(value): i
            for i, value in enumerate(found.returned)
            if isinstance(value, TensorCore) and id(value) not in inputs
        }
        context.saved_hooks = list(self.saved_hooks)
        found.ctx._seal(numbers)

    def keep(self, frame: Frame, found: Evaluated) -> None:
        """Leave the ctx for the backward of this run, and of its results."""
        if self.keeps_ctx:
            frame[self] = found.ctx
            if context.contexts is not None:
                context.contexts[self] = found.ctx

    def read(self, found: Evaluated) -> None:
        """Find out what forward did, and collect the results."""
        reader = Reader(found.tensors, found.inputs)
        outputs = reader.entries(found.returned, "output")
        dirty = reader.entries(found.dirty, "dirty tensor")
        marked = reader.entries(found.non_differentiable, "non-differentiable tensor")
        if found.written is None:
            found.written = reader.changed(dirty, found.lent)
        written = reader.written(found.written)
        saved = None if found.saved is None else reader.known(found.saved)
        for content in found.changes.contents.values():
            reader.add(content, "state")
        found.arrays = reader.arrays
        found.plan = Plan(
            isinstance(found.output, tuple), outputs, dirty, marked, found.ctx.materialize_grads,
            written, saved, tuple(reader.labels), reader.types(),
        )  # fmt: skip

    def _difference(self, found: Evaluated) -> str | None:
        """How forward did something else than while tracing; None: it didn't.

        Raises for a write to a tensor from outside, which can't be made up for.
        """
        plan, expected = found.plan, self.plan
        assert plan is not None and expected is not None
        if found.changes.surprise is None and plan == expected:
            return None
        refuse_surprise(self.name, place_text(self.line), found.changes)
        if plan.labels == expected.labels:
            for label, now, before in zip(plan.labels, plan.types, expected.types, strict=True):
                if now != before:
                    return f"{label}: {before} -> {now}"
        return _difference(plan, expected)

    def _differs(self, difference: str, made: Sequence[Made]) -> Differs:
        what = f"{self.name} did something else than when the step was traced: {difference}"
        return Differs(f"{what}{place_text(self.line)}", f"{self.name}: {difference}", made)


def _difference(plan: Plan, expected: Plan) -> str:
    if plan.written != expected.written:
        written, before = ([n for n, _ in p.written] for p in (plan, expected))
        return f"it wrote its tensor arguments {written} in place, not {before}"
    if len(plan.outputs) != len(expected.outputs):
        return f"it returned {len(plan.outputs)} values, not {len(expected.outputs)}"
    for name in ("outputs", "saved", "dirty", "non_differentiable"):
        if getattr(plan, name) != getattr(expected, name):
            return f"other tensors are its {name.replace('_', ' ')}"
    return "another kind of result"


def refuse_surprise(name: str, place: str, changes: Changes) -> None:
    """Raise when a tensor from outside was written that was not written while tracing."""
    if changes.surprise is not None:
        raise LucidError(
            f"{name} wrote {changes.surprise.path} in place, which it didn't do when the step was "
            f"traced{place}\nhint: write it at every call, if only with what it holds"
        )


@dataclass(slots=True, eq=False)
class HostBackward:
    """The backward of one call of a Function.

    Attributes:
        forward: the host call whose ctx it gets; None: the forward was recorded, and the ctx is
            made of `attributes` and `saved`.
        gradients: per output the operand that is its gradient; None where there is none.
        grad_enabled: the grad mode of the backward walk.
        present: per tensor argument whether backward returned a gradient, while tracing.
        is_once: whether it was marked with @once_differentiable.
    """

    function: type[Function]
    forward: HostForward | None
    attributes: dict[str, Captured]
    saved: tuple[int | None, ...]
    gradients: tuple[int | None, ...]
    slots: tuple[Slot, ...]
    line: tuple[str, int] | None
    needs_input_grad: tuple[bool, ...]
    input_types: tuple[TensorType | None, ...]
    has_edge: tuple[bool, ...]
    grad_enabled: bool
    states: list[State] = field(default_factory=list)
    present: tuple[bool, ...] = ()
    is_once: bool = False
    is_followed: bool = False

    @property
    def method(self) -> Callable[..., Any]:
        """The user's method that it calls."""
        return backward_of(self.function)

    def __call__(self, frame: Frame, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        made = replayed(self)
        if made is None:
            parts, changes = self.evaluate(frame, operands)
        else:
            assert isinstance(made, MadeBackward)
            parts, changes = made.parts, made.written.changes(self.states)
        present = tuple([part is not None for part in parts])
        if present != self.present or changes.surprise is not None:
            self._refuse(present, changes)
        if self.is_followed:
            note(frame, MadeBackward(self, parts, Written(self.states, changes)))
        return self.arrays(parts, changes)

    def fits(self, made: Made) -> bool:
        """Whether this call is traced for what a call of another program did."""
        if not isinstance(made, MadeBackward) or not made.written.is_within(self.states):
            return False
        return tuple(part is not None for part in made.parts) == self.present

    def _refuse(self, present: tuple[bool, ...], changes: Changes) -> None:
        """Raise for what backward did not do while tracing."""
        name, place = f"{self.function.__name__}.backward", place_text(self.line)
        refuse_surprise(name, place, changes)
        for index, (is_there, was_there) in enumerate(zip(present, self.present, strict=True)):
            if is_there != was_there:
                now, before = ("None", "a tensor") if was_there else ("a tensor", "None")
                raise LucidError(
                    f"{name} returned {now} for tensor argument {index}, and {before} when the "
                    f"step was traced{place}\nhint: return zeros where there is no gradient"
                )

    def arrays(self, parts: Sequence[Any], changes: Changes) -> list[np.ndarray]:
        """The results of the node: gradients, then the contents of tensors from outside."""
        found: list[np.ndarray] = [part._array for part in parts if part is not None]
        return [*found, *changes.contents.values()]

    def evaluate(
        self, frame: Frame, arrays: Sequence[np.ndarray]
    ) -> tuple[tuple[Any, ...], Changes]:
        """Run the user's backward on copies, and the checks on what it returns."""
        kept = None if self.forward is None else self._kept_ctx(frame)
        changes = Changes(self.states, arrays)
        run = partial(self._run, kept, arrays)
        return in_eager_mode(self.grad_enabled, changes, run), changes

    def _run(self, kept: BackwardCFunction | None, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        tensors = lend(arrays, self.slots)
        ctx = self._recorded_ctx(tensors) if kept is None else kept
        ctx.needs_input_grad = self.needs_input_grad
        given = [None if number is None else tensors[number] for number in self.gradients]
        before, ctx._is_running = ctx._is_running, True
        try:
            returned = ctx.apply(*given)
        finally:
            ctx._is_running = before
        values = returned if isinstance(returned, tuple) else (returned,)
        self.is_once = any(
            isinstance(value, TensorCore) and isinstance(value.grad_fn, TwiceDifferentiated)
            for value in values
        )
        return checked_gradients(ctx, returned, backward_of(self.function))

    def _kept_ctx(self, frame: Frame) -> BackwardCFunction:
        """The ctx of the forward: of this step, or of the call whose backward this step is."""
        assert self.forward is not None
        kept = frame if self.forward in frame else context.contexts
        assert kept is not None
        found: BackwardCFunction = kept[self.forward]
        return found

    def _recorded_ctx(self, tensors: Sequence[Any]) -> BackwardCFunction:
        ctx = self.function._backward_cls()
        ctx._line = self.line
        ctx._input_types = self.input_types
        ctx._edges = tuple((NOWHERE, 0) if edge else None for edge in self.has_edge)
        for name, value in self.attributes.items():
            setattr(ctx, name, value.fill(tensors))
        ctx._shown_saved = tuple(None if n is None else tensors[n] for n in self.saved)
        return ctx
