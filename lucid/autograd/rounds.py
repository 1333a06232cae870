"""Loops of the library's own, whose rounds compute with tensors alone.

Outside of traces all rounds are one native program and their gradient another, a `scan` each
(`native.py`). The backward goes through the rounds in the other direction: it computes a round
again, from the carry before it, and differentiates that. What rounds multiply again is one product
for all of them, and so are the gradients of weights (`ir/passes/loops.py`).

Reference: Griewank and Walther, "Evaluating Derivatives", 2008, on the adjoints of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid.autograd.engine import zeros_of
from lucid.autograd.entry_points import grad
from lucid.autograd.function import Function, FunctionMeta
from lucid.autograd.modes import enable_grad
from lucid.autograd.native import Composite, Notes, call_natively
from lucid.functions.joining import stack
from lucid.ir import ops
from lucid.ir.types import TensorType
from lucid.tensor.context import context
from lucid.tensor.core import of_own_array
from lucid.tensor.tensor import Tensor

Tensors = tuple[Tensor, ...]
Step = Callable[[Tensors, Tensors, tuple[Any, ...]], tuple[Tensors, Tensors]]


class Recurrence:
    """The f of a `scan` that computes with tensors alone: no round changes anything in Python.

    Args:
        step: takes tuples of the carry, of a row of each of xs, and of what is shared, to tuples of
            the next carry and of ys.
        shared: tensors, or None, that all rounds read.
    """

    def __init__(self, step: Step, *shared: Tensor | None) -> None:
        self._step, self._shared = step, shared
        self.__name__ = step.__name__

    def __call__(self, carry: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
        return self._step(carry, row, self._shared)

    def run(
        self, carry: Sequence[Tensor], xs: Sequence[Tensor], reverse: bool
    ) -> tuple[list[Tensor], list[Tensor]] | None:
        """The last carry, and ys, by one native program; None where rounds go one by one."""
        function: Any = _functions.get(self._step)
        if function is None:
            name = "".join(part.capitalize() for part in self._step.__name__.split("_"))
            function = FunctionMeta(name, (_Rounds,), {"_step": staticmethod(self._step)})
            _functions[self._step] = function
        found = call_natively(function, (reverse, len(carry), len(xs), *carry, *xs, *self._shared))
        return None if found is NotImplemented else ([*found[: len(carry)]], [*found[len(carry) :]])


_functions: dict[Step, Any] = {}


class _Rounds(Composite):
    """All rounds: a Function of (reverse, carries, rows), the carry, xs and what is shared."""

    _step: Step

    @classmethod
    def _function(cls, reverse: bool, carries: int, rows: int, *given: Any) -> Tensors:
        """All rounds, one after the other."""
        xs = [*given[carries : carries + rows]]

        def one(carry: list[Tensor], row: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            new, ys = cls._step(tuple(carry), tuple(row), given[carries + rows :])
            return [*new], [*ys]

        carry, length = [*given[:carries]], xs[0]._type.shape[0]
        if context.recorder is None:
            last, ys = one_by_one(one, carry, xs, length, reverse)
        else:  # which records one for all lengths
            last, ys = context.recorder.loops.scan(one, carry, xs, length, reverse, "recurrence")
        return *last, *ys

    @staticmethod
    def forward(ctx: Any, reverse: bool, carries: int, rows: int, *given: Any) -> tuple[Any, ...]:
        types, keeps = [None if x is None else x._type for x in given], any(ctx.needs_input_grad)

        def one(tensors: list[Any]) -> list[Any]:
            found = _round(ctx._forward_cls, types, carries, rows, tensors)
            return [*found, *tensors[:carries]] if keeps else found

        tensors = [x for x in given if x is not None]
        found = _notes().rounds("recurrence", one, tensors, carries, rows, reverse)
        count = len(found) - (carries if keeps else 0)
        ctx.others = reverse, carries, rows, *(None for _ in given)
        ctx.save_for_backward(*tensors, *found[count:])
        return tuple(found[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        if not (context.levels and isinstance(context.levels[-1], Notes)):
            return Composite.backward(ctx, *gradients)
        reverse, carries, rows = ctx.others[:3]
        types, cls = ctx._input_types[3:], ctx._forward_cls
        there = [n for n, type in enumerate(types) if type is not None]
        saved, count = ctx.saved_tensors, len(there)
        needs = [ctx.needs_input_grad[3 + n] for n in there]
        needs[:carries] = [x.dtype.is_floating_point for x in saved[:carries]]
        state, of_rows, of_all = (
            [n for n in part if needs[n]]
            for part in (
                range(carries),
                range(carries, carries + rows),
                range(carries + rows, count),
            )
        )
        of_ys = [n for n in range(carries, len(gradients)) if gradients[n].dtype.is_floating_point]

        def one(tensors: list[Any]) -> list[Any]:
            rest = iter(tensors)
            gradient, totals = {n: next(rest) for n in state}, [next(rest) for _ in of_all]
            gradient |= {n: next(rest) for n in of_ys}
            given = [x.detach() for x in rest]
            leaves = {n: given[n].requires_grad_() for n in (*state, *of_rows, *of_all)}
            with enable_grad():
                found = _round(cls, types, carries, rows, given)
            sent = [(y, gradient[n]) for n, y in enumerate(found) if y.requires_grad]
            outputs, seeds = zip(*sent, strict=True) if sent else ((), ())
            parts = grad(outputs, [*leaves.values()], seeds, allow_unused=True)
            new = {
                n: zeros_of(given[n]._type) if part is None else part
                for n, part in zip(leaves, parts, strict=True)
            }
            sums = [ops.add(total, new[n]) for n, total in zip(of_all, totals, strict=True)]
            return [*(new[n] for n in state), *sums, *(new[n] for n in of_rows)]

        given = [*(gradients[n] for n in state), *(zeros_of(saved[n]._type) for n in of_all)]
        xs = [*(gradients[n] for n in of_ys), *saved[count:], *saved[carries : carries + rows]]
        found = _notes().rounds(
            "recurrence.backward",
            one,
            [*given, *xs, *saved[carries + rows : count]],
            len(given),
            len(xs),
            not reverse,
        )
        of = dict(zip((*state, *of_all, *of_rows), found, strict=True))
        parts = {n: of[k] for k, n in enumerate(there) if ctx.needs_input_grad[3 + n]}
        return None, None, None, *(parts.get(n) for n in range(len(types)))


def _notes() -> Notes:
    """The graph that is noted here."""
    notes = context.levels[-1]
    assert isinstance(notes, Notes)
    return notes


def _round(
    cls: type[_Rounds],
    types: Sequence[TensorType | None],
    carries: int,
    rows: int,
    tensors: Sequence[Tensor],
) -> list[Tensor]:
    """The next carry and ys of one round.

    types: of all arguments, with None in the place of what is absent in `tensors`.
    """
    rest = iter(tensors)
    given = tuple([None if type is None else next(rest) for type in types])
    new, ys = cls._step(given[:carries], given[carries : carries + rows], given[carries + rows :])  # type: ignore[arg-type]
    return [*new, *ys]


# ---------------------------------------------------------------------- one round after the other


def one_by_one(
    step: Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]],
    carry: list[Tensor],
    xs: list[Tensor],
    count: int,
    reverse: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """The last carry, and ys, of a loop in Python."""
    rows = [_rows_of(x) for x in xs]
    outputs: list[list[Tensor]] = []
    for t in reversed(range(count)) if reverse else range(count):
        carry, y = step(carry, [row(t) for row in rows])
        outputs.append(y)
    if reverse:
        outputs.reverse()
    return carry, [stack(ys) for ys in zip(*outputs, strict=True)]


class _Unstack(Function):
    """The rows of a tensor, whose gradient is the stack of theirs: linear in their number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.row = TensorType(x.dtype, x._type.shape[1:])
        if context.recorder is not None or x._array is None:
            return tuple(x[t].clone() for t in range(x._type.shape[0]))
        return tuple([of_own_array(np.array(row, order="C"), ctx._spot) for row in x._array])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Tensor:
        nothing = zeros_of(ctx.row)
        return stack([nothing if g is None else g for g in gradients])


def _rows_of(x: Tensor) -> Callable[[int], Tensor]:
    if context.grad_enabled and x.requires_grad and not context.levels and len(x) > 1:
        rows: tuple[Tensor, ...] = _Unstack.apply(x)
        return rows.__getitem__
    return x.__getitem__
