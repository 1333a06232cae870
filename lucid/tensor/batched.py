"""The handles of a vmap: one example's view of a tensor that holds them all.

The function that is mapped computes with handles, whose shapes are those of one example. Behind a
handle is a tensor with the examples along its first axis; an op on handles becomes an op on these
by the batching rule of the op. A handle has a history of its own, for gradients that are taken
inside of the mapped function; the tensor behind it has one for what is outside.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

from lucid.ir import ops
from lucid.ir.errors import ExampleDataError, LucidError, MissingRuleError
from lucid.ir.inference import application, result_type
from lucid.ir.op import Attributes, Op
from lucid.ir.types import shared_type
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, _new, apply_op, keep_history, link_view, with_origins
from lucid.tensor.levels import Level, Result
from lucid.tensor.storage import Storage
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import check_writable, fitted, keep_written, write_

if TYPE_CHECKING:
    from lucid.autograd.function import Function

RANDOM_IN_VMAP = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)
UNMAPPED_TARGET = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor "
    "`other` in extra_args that has more elements than `self`. This happened due to `other` being "
    "vmapped over but `self` not being vmapped over in a vmap. Please try to use out-of-place "
    "operators instead of inplace arithmetic."
)


class Batched(Tensor):
    """A tensor of the mapped function: it stands for one of the examples, whichever."""

    __slots__ = ("_given_axis", "_inner", "_level")

    _given_axis: int  # along which the user gave the examples
    _inner: TensorCore  # the examples along axis 0
    _level: BatchLevel

    def _same_memory(self) -> Tensor:
        return self._level.wrap(self._inner)

    def _own_copy(self) -> Tensor:
        return self._level.wrap(self._inner._own_copy())

    def detach(self) -> Tensor:
        """A tensor on the same memory without history, also of what is outside of the vmap."""
        return self._level.wrap(self._inner.detach())

    def _known(self, what: str) -> NoReturn:
        self._concrete(what)

    def _number(self, what: str) -> NoReturn:
        self._concrete(what)

    def _concrete(self, what: str) -> NoReturn:
        if not any(level is self._level for level in context.levels):
            raise LucidError(
                f"{what}: a tensor {self._type} belongs to a vmap that has ended\n"
                "hint: return it from the mapped function instead of keeping it elsewhere"
            )
        if what == "item()":
            raise ExampleDataError(
                "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap "
                "over calling .item() on a Tensor, please try to rewrite what you're doing with "
                f"other operations.\n  {self._describe()}"
            )
        if what == "bool()":
            raise ExampleDataError(
                "vmap: It looks like you're attempting to use a Tensor in some data-dependent "
                f"control flow. We don't support that yet.\n  {self._describe()}\n"
                "hint: lucid.where chooses for each example"
            )
        raise ExampleDataError(
            f"vmap: {what} needs the data of one example, but all are computed at once\n"
            f"  {self._describe()}"
        )

    def _is_recorded(self) -> bool:
        return self.requires_grad or self._inner._is_recorded()

    def _refuse_outside(self, holder: TensorCore) -> None:
        if not self._level.owns(holder):
            raise LucidError(
                "vmap: a gradient for each example can't be accumulated into the .grad of a tensor "
                f"that all examples share\n  {holder._describe()}\n"
                "hint: return the gradients that lucid.func.grad or lucid.autograd.grad computes"
            )

    def __repr__(self) -> str:
        return f"Batched({self._type}, each of {self._level.size})"

    __str__ = __repr__


class BatchLevel(Level):
    """One vmap.

    Attributes:
        size: how many examples there are.
        randomness: "error", "different" (each example draws its own numbers) or "same".
    """

    def __init__(self, size: int, randomness: str) -> None:
        self.size = size
        self.randomness = randomness

    def wrap(self, inner: TensorCore, given_axis: int = 0) -> Batched:
        """A handle of the examples that `inner` has along its first axis."""
        type = shared_type(inner._type.dtype, inner._type.shape[1:])
        handle = cast(Batched, _new(Storage(type), type, None, (), Batched))
        handle._inner = inner
        handle._level = self
        handle._given_axis = given_axis
        handle._storage.value = inner._storage.value  # for the origin of gradients in a trace
        handle._value = inner._value
        handle._strides = inner.element_strides()[1:]
        handle._counter = inner._counter
        handle._spot = inner._spot
        return handle

    def owns(self, tensor: Any) -> bool:
        """Whether the tensor is a handle of this vmap."""
        return tensor.__class__ is Batched and tensor._level is self

    def unwrap(self, tensor: TensorCore) -> TensorCore:
        """All examples along axis 0; what is the same for all is repeated."""
        if self.owns(tensor):
            return cast(Batched, tensor)._inner
        return ops.broadcast(tensor, shape=(self.size, *tensor._type.shape))

    def inner(self, tensor: Any) -> Any:
        """What is behind a handle of this vmap; anything else is itself."""
        return tensor._inner if self.owns(tensor) else tensor

    # ------------------------------------------------------------------ as a level

    def acts_on(self, op: Op | None, tensors: Sequence[Any], position: int) -> bool:
        if op is not None and op.kind == "random":
            return True
        return any(map(self.owns, tensors))

    def apply(
        self, op: Op, operands: Sequence[TensorCore], attributes: Attributes, position: int
    ) -> TensorCore:
        if op.kind == "random":
            return self._draw(op, operands, attributes, position)
        known = None
        try:
            if context.recorder is None:
                known = application(op, operands, attributes)
            else:
                result_type(op, [operand._type for operand in operands], attributes)
        except LucidError as error:
            raise with_origins(error, operands) from None
        assert op.batch is not None, f"{op.name} has no batching rule"
        batched = tuple([x.__class__ is Batched and x._level is self for x in operands])
        inner = [
            cast(Batched, x)._inner if is_own else x
            for x, is_own in zip(operands, batched, strict=True)
        ]
        levels = context.levels
        context.levels = levels[:position]  # nobody further in knows of these operands
        try:
            result = op.batch(op, self.size, batched, *inner, **attributes)
        finally:
            context.levels = levels
        handle = self.wrap(result)
        if op.is_view and result._storage is inner[0]._storage:
            link_view(handle, operands[0], op, attributes)
        keep_history(op, operands, attributes, handle, known)
        return handle

    def _draw(
        self, op: Op, operands: Sequence[TensorCore], attributes: Attributes, position: int
    ) -> TensorCore:
        if self.randomness == "error":
            raise LucidError(RANDOM_IN_VMAP)
        if any(map(self.owns, operands)):
            raise MissingRuleError(
                f"vmap: {op.name} can't be mapped over its state\n"
                "hint: use one generator, and randomness='different'"
            )
        with outside(position):
            if self.randomness == "same":
                return cast(TensorCore, apply_op(op, operands, attributes))
            wide = {**attributes, "shape": (self.size, *attributes["shape"])}
            return self.wrap(cast(TensorCore, apply_op(op, operands, wide)))

    def write(self, target: TensorCore, value: TensorCore, position: int) -> None:
        if not self.owns(target):
            raise LucidError(
                f"{UNMAPPED_TARGET}\n  self:  {target._describe()}\n  other: {value._describe()}\n"
                "hint: lucid.zeros_like of a mapped tensor makes one that can be written"
            )
        check_writable(target)
        value = fitted(target, value)
        if context.recorder is not None and (target.requires_grad or value.requires_grad):
            context.recorder.note_hidden_write(innermost(target))
        write_(self.inner(target), self.inner(value))
        keep_written(target, value)

    def call(
        self,
        function: type[Function],
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        position: int,
    ) -> Result:
        from lucid.autograd.function_batching import call_batched

        return call_batched(self, function, inputs, keywords, position)


@contextmanager
def outside(position: int) -> Iterator[None]:
    """Leave the level at `position`, and those inside of it, for the block."""
    before = context.levels
    context.levels = before[:position]
    try:
        yield
    finally:
        context.levels = before


def innermost(tensor: TensorCore) -> TensorCore:
    """The tensor that is behind all handles."""
    while isinstance(tensor, Batched):
        tensor = tensor._inner
    return tensor


def mapped_as(like: TensorCore, tensor: TensorCore) -> Tensor:
    """The tensor with memory for each example of the vmaps that `like` is a handle of."""
    if not isinstance(like, Batched):
        return cast(Tensor, ops.cast(tensor, dtype=tensor.dtype))
    level = like._level
    return level.wrap(mapped_as(like._inner, level.unwrap(tensor)))


def drawn_numbers(tensor: TensorCore) -> int:
    """How many elements a tensor really has, those of all examples."""
    return innermost(tensor)._type.size


def moved(tensor: TensorCore, source: int, destination: int) -> Any:
    """The tensor with one axis moved to another place: a view."""
    rank = len(tensor._type.shape)
    order = [axis for axis in range(rank) if axis != source % rank]
    order.insert(operator.index(destination) % rank, source % rank)
    perm = tuple(order)
    return tensor if perm == tuple(range(rank)) else ops.transpose(tensor, perm=perm)
