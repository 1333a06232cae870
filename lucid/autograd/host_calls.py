"""What a `host` node of a graph calls: forward or backward of a custom Function, in eager mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.function import Function, backward_of, run_forward
from lucid.autograd.host_world import (
    NOWHERE,
    Captured,
    Changes,
    Slot,
    State,
    eager_thread,
    lend,
    lent_state,
    place_text,
)
from lucid.autograd.outputs import TwiceDifferentiated
from lucid.autograd.private import custom_forward, noted_edge
from lucid.autograd.returned import checked_gradients
from lucid.ir import ops
from lucid.ir.errors import DTypeError, LucidError, ShapeError
from lucid.ir.hosts import Frame
from lucid.ir.types import TensorType, type_of_array
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction
    from lucid.autograd.hooks import SavedTensorHooks

Entry = tuple[Any, ...]
"""Which tensor is meant: ("input", operand), ("view" or "alias", operand, chain), ("shared",
operand) for one on a part of its memory, ("result", number); or ("none",), ("argument", position),
("other", value)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a forward did: what it returned, saved and marked, and what the results are.

    Attributes:
        is_tuple: whether it returned a tuple.
        written: operands whose content it changed, and which result that is.
        labels, types: of the results.
    """

    is_tuple: bool
    outputs: tuple[Entry, ...]
    dirty: tuple[Entry, ...]
    non_differentiable: tuple[Entry, ...]
    materialize_grads: bool
    written: tuple[tuple[int, int], ...]
    saved: tuple[Entry, ...] | None
    saved_for_forward: tuple[Entry, ...] | None
    labels: tuple[str, ...]
    types: tuple[TensorType, ...]


@dataclass(slots=True, eq=False)
class Evaluated:
    """One evaluation of a forward.

    Attributes:
        lent: what the call was given.
        tensors, inputs: the operands and the arguments, as forward got them.
        saved: what it saved.
        computed: identities of tensors whose history leads to the inputs.
        arrays: the results, in memory of their own.
        derived: results that were saved, and have such a history.
    """

    lent: Sequence[np.ndarray]
    ctx: BackwardCFunction
    output: Any
    tensors: list[Any]
    inputs: tuple[Any, ...]
    changes: Changes
    computed: set[int]
    plan: Plan | None = None
    arrays: list[np.ndarray] = field(default_factory=list)
    derived: list[int] = field(default_factory=list)

    @property
    def returned(self) -> tuple[Any, ...]:
        return self.output if isinstance(self.output, tuple) else (self.output,)


class _Reader:
    """Finds out which of a host call's tensors a value is."""

    def __init__(self, tensors: Sequence[Any], inputs: Sequence[Any]) -> None:
        self._tensors = tensors
        self._inputs = inputs
        self._numbers = {id(x): n for n, x in enumerate(tensors) if isinstance(x, TensorCore)}
        self._memory = {x._storage: n for n, x in enumerate(tensors) if isinstance(x, TensorCore)}
        self._known: dict[int, int] = {}
        self.arrays: list[np.ndarray] = []
        self.labels: list[str] = []

    def entry(self, value: Any, label: str) -> Entry:
        if value is None:
            return ("none",)
        if not isinstance(value, TensorCore):
            return self._no_tensor(value)
        if id(value) in self._numbers:
            return "input", self._numbers[id(value)]
        number = self._memory.get(value._storage)
        if number is not None:
            base = value._base
            kind = "view" if base is not None and base is self._tensors[number] else "alias"
            return kind, number, value._view_chain if kind == "view" else value._chain
        shared = self._on_memory_of_input(np.asarray(value._array))
        if shared is not None:
            return shared
        if id(value) not in self._known:
            self._known[id(value)] = self.add(np.asarray(value._array), label)
        return "result", self._known[id(value)]

    def _on_memory_of_input(self, array: np.ndarray) -> Entry | None:
        """What a tensor is that was made by NumPy on the memory of an input."""
        for number, tensor in enumerate(self._tensors):
            given = tensor._array if isinstance(tensor, TensorCore) else None
            if given is None or not np.may_share_memory(given, array):
                continue
            is_whole = array.size == given.size and array.flags.c_contiguous
            if is_whole and given.flags.c_contiguous and array.dtype == given.dtype:
                return "alias", number, ((ops.reshape, {"shape": array.shape}),)
            return "shared", number
        return None

    def _no_tensor(self, value: Any) -> Entry:
        for position, given in enumerate(self._inputs):
            if given is value:
                return "argument", position
        return "other", value

    def entries(self, values: Sequence[Any], label: str) -> tuple[Entry, ...]:
        return tuple(self.entry(value, f"{label} {i}") for i, value in enumerate(values))

    def known(self, values: Sequence[Any]) -> tuple[Entry, ...]:
        """Those of the values that are inputs, outputs or views of such; none for the others."""
        numbers = {*self._numbers, *self._known}
        return tuple(
            self.entry(x, "") if id(x) in numbers or self._is_view(x) else ("none",) for x in values
        )

    def _is_view(self, value: Any) -> bool:
        return not isinstance(value, TensorCore) or value._storage in self._memory

    def number_of(self, value: Any) -> int | None:
        return self._known.get(id(value))

    def add(self, array: np.ndarray, label: str) -> int:
        """Enter a result, with a copy of its data."""
        self.arrays.append(np.array(array, order="C"))
        self.labels.append(label)
        return len(self.arrays) - 1


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
        saves: whether what it saves goes on into the graph.
        keeps_ctx: whether its ctx is kept for the backward, which is a host call as well.
        saved_hooks: the hooks for what is kept so.
        sizes: attributes of ctx that hold the shape of an operand, which a traced backward reads.
        plan: what it did while tracing.
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
    saves: bool = False
    keeps_ctx: bool = False
    saved_hooks: tuple[SavedTensorHooks, ...] = ()
    sizes: dict[str, Any] = field(default_factory=dict)
    plan: Plan | None = None

    def __call__(self, frame: Frame, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        found = self.evaluate(operands)
        self.read(found)
        self._check(found)
        if self.keeps_ctx:
            self.keep(frame, found)
        return found.arrays

    def evaluate(self, arrays: Sequence[np.ndarray], with_history: bool = False) -> Evaluated:
        """Run the user's forward on copies.

        with_history: note which of the tensors that it saves it computed with ops.
        """
        with eager_thread(False), lent_state(self.states, arrays) as changes:
            tensors = lend(arrays, self.slots)
            ctx = self._new_ctx()
            inputs = tuple(value.fill(tensors) for value in self.inputs)
            keywords = {name: value.fill(tensors) for name, value in self.keywords.items()}
            with custom_forward(with_history):
                output = run_forward(ctx, inputs, keywords)
                computed = {id(x) for x in ctx.to_save or () if _has_history(x)}
        return Evaluated(arrays, ctx, output, tensors, inputs, changes, computed)

    def _new_ctx(self) -> BackwardCFunction:
        ctx = self.function._backward_cls()
        ctx.line = self.line
        ctx.needs_input_grad = self.needs_input_grad
        ctx._input_types = self.input_types
        ctx.edges = tuple((NOWHERE, 0) if edge else None for edge in self.has_edge)
        return ctx

    def read(self, found: Evaluated) -> None:
        """Find out what forward did, and copy the results."""
        ctx, tensors = found.ctx, found.tensors
        reader = _Reader(tensors, found.inputs)
        outputs = reader.entries(found.returned, "output")
        dirty = reader.entries(ctx.dirty_tensors, "dirty tensor")
        marked = reader.entries(ctx.non_differentiable, "non-differentiable tensor")
        changed = [n for n, tensor in enumerate(tensors) if _was_written(tensor, found.lent[n])]
        marks = {entry[1] for entry in dirty if entry[0] == "input"}
        written = tuple(
            (n, reader.add(tensors[n]._array, f"input {n} as it left it"))
            for n in sorted({*changed, *marks})
        )
        saved = for_forward = None
        if ctx.to_save is not None and self.saves:
            saved = reader.entries(ctx.to_save, "saved tensor")
            numbers = (reader.number_of(x) for x in ctx.to_save if id(x) in found.computed)
            found.derived = [number for number in numbers if number is not None]
        elif ctx.to_save is not None:
            saved = reader.known(ctx.to_save)
        if ctx.saved_for_forward is not None and self.saves:
            for_forward = reader.entries(ctx.saved_for_forward, "tensor saved for jvp")
        for content in found.changes.contents.values():
            reader.add(content, "state")
        found.arrays = reader.arrays
        found.plan = Plan(
            isinstance(found.output, tuple), outputs, dirty, marked, ctx.materialize_grads,
            written, saved, for_forward, tuple(reader.labels),
            tuple(map(type_of_array, reader.arrays)),
        )  # fmt: skip

    def keep(self, frame: Frame, found: Evaluated) -> None:
        """Leave the ctx for the backward of this run, with what it saved."""
        inputs = set(map(id, found.tensors))
        numbers = {
            id(value): i
            for i, value in enumerate(found.returned)
            if isinstance(value, TensorCore) and id(value) not in inputs
        }
        with eager_thread(False):
            context.saved_hooks = list(self.saved_hooks)
            found.ctx.seal(numbers)
        found.ctx.dirty_tensors = found.ctx.non_differentiable = ()
        frame[self] = found.ctx

    def _check(self, found: Evaluated) -> None:
        """Raise when forward did something else than while tracing."""
        plan, expected = found.plan, self.plan
        assert plan is not None and expected is not None
        name, place = f"{self.function.__name__}.forward", place_text(self.line)
        refuse_surprise(name, place, found.changes)
        for attribute, size in self.sizes.items():
            now = getattr(found.ctx, attribute, None)
            if now != size:
                raise ShapeError(
                    f"{name} set ctx.{attribute} to {now}, and to {size} when the step was "
                    f"traced{place}{_ONE_SHAPE}"
                )
        if plan == expected:
            return
        if plan.labels == expected.labels:
            pairs = zip(plan.labels, plan.types, expected.types, strict=True)
            for label, now, before in pairs:
                if now != before:
                    kind = ShapeError if now.dtype is before.dtype else DTypeError
                    raise kind(
                        f"{name}: {label} is {now}, and was {before} when the step was traced"
                        f"{place}{_ONE_SHAPE}"
                    )
        what = _difference(plan, expected)
        raise LucidError(
            f"{name} did something else than when the step was traced: {what}{place}\n"
            "hint: return, save and mark the same tensors at every call"
        )


_ONE_SHAPE = (
    "\nhint: in a compiled step each value has one shape and dtype: pad it to a fixed size, or run "
    'with lucid.compiler.set_stance("force_eager")'
)


def _difference(plan: Plan, expected: Plan) -> str:
    if plan.written != expected.written:
        now, before = ([n for n, _ in p.written] for p in (plan, expected))
        return f"it wrote its tensor arguments {now} in place, not {before}"
    if len(plan.outputs) != len(expected.outputs):
        return f"it returned {len(plan.outputs)} values, not {len(expected.outputs)}"
    for name in ("outputs", "saved", "saved_for_forward", "dirty", "non_differentiable"):
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


def _has_history(value: Any) -> bool:
    return isinstance(value, TensorCore) and noted_edge(value) is not None


def _was_written(tensor: Any, lent: np.ndarray) -> bool:
    """Whether the copy that forward got holds other bytes than what was lent."""
    if not isinstance(tensor, TensorCore):
        return False
    now, before = np.ascontiguousarray(tensor._array), np.ascontiguousarray(lent)
    return not np.array_equal(now.reshape(-1).view(np.uint8), before.reshape(-1).view(np.uint8))


@dataclass(slots=True, eq=False)
class HostBackward:
    """The backward of one call of a Function.

    Attributes:
        forward: the host call whose ctx it gets; None: the forward was recorded, and the ctx is
            made of `attributes` and `saved`.
        gradients: per output the operand that is its gradient; None where there is none.
        grad_enabled: the grad mode of the backward walk.
        present: per tensor argument whether backward returned a gradient, while tracing.
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

    def __call__(self, frame: Frame, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        parts, changes = self.evaluate(frame, operands)
        name, place = f"{self.function.__name__}.backward", place_text(self.line)
        refuse_surprise(name, place, changes)
        for index, (part, present) in enumerate(zip(parts, self.present, strict=True)):
            if (part is not None) != present:
                now, before = ("None", "a tensor") if present else ("a tensor", "None")
                raise LucidError(
                    f"{name} returned {now} for tensor argument {index}, and {before} when the "
                    f"step was traced{place}\nhint: return zeros where there is no gradient"
                )
        return self.arrays(parts, changes)

    def arrays(self, parts: Sequence[Any], changes: Changes) -> list[np.ndarray]:
        """The results of the node: gradients, then the contents of tensors from outside."""
        found = [np.array(part._array, order="C") for part in parts if part is not None]
        return [*found, *changes.contents.values()]

    def evaluate(
        self, frame: Frame, arrays: Sequence[np.ndarray]
    ) -> tuple[tuple[Any, ...], Changes]:
        """Run the user's backward on copies, and the checks on what it returns."""
        world = eager_thread(self.grad_enabled)
        with world, lent_state(self.states, arrays) as changes:
            tensors = lend(arrays, self.slots)
            ctx = self._recorded_ctx(tensors) if self.forward is None else frame[self.forward]
            ctx.needs_input_grad = self.needs_input_grad
            given = (None if number is None else tensors[number] for number in self.gradients)
            with _running(ctx):
                returned = ctx.apply(*given)
            values = returned if isinstance(returned, tuple) else (returned,)
            self.is_once = any(
                isinstance(value, TensorCore) and isinstance(value.grad_fn, TwiceDifferentiated)
                for value in values
            )
            parts = checked_gradients(ctx, returned, backward_of(self.function))
        return parts, changes

    def _recorded_ctx(self, tensors: Sequence[Any]) -> BackwardCFunction:
        ctx = self.function._backward_cls()
        ctx.line = self.line
        ctx._input_types = self.input_types
        ctx.edges = tuple((NOWHERE, 0) if edge else None for edge in self.has_edge)
        for name, value in self.attributes.items():
            setattr(ctx, name, value.fill(tensors))
        ctx.shown_saved = tuple(None if n is None else tensors[n] for n in self.saved)
        return ctx


@contextmanager
def _running(ctx: BackwardCFunction) -> Iterator[None]:
    before, ctx._is_running = ctx._is_running, True
    try:
        yield
    finally:
        ctx._is_running = before
