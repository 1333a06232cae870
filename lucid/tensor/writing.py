"""Writing in place: through view chains, with the checks and the history that PyTorch has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lucid.autograd.node import CopySlices, OverwriteBackward, edge_of, move_retained
from lucid.autograd.private import note_written, private_edge
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, LucidError, ShapeError, completed
from lucid.ir.inference import MANY_ELEMENTS, application
from lucid.ir.location import at_line, here
from lucid.ir.op import Attributes, Op
from lucid.ir.ops.evaluation import quiet
from lucid.ir.ops.rules import broadcast_all
from lucid.ir.strides import Strides, overlaps_itself, view_strides
from lucid.ir.types import TensorType
from lucid.tensor import core
from lucid.tensor.context import context, epoch
from lucid.tensor.core import TensorCore, ViewChain, keep_history
from lucid.tensor.levels import acting_level

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor

_OVERLAPS = (
    "unsupported operation: more than one element of the written-to tensor refers to a single "
    "memory location. Please clone() the tensor before performing the operation."
)
_REPEATING = (ops.broadcast, ops.windows)  # views that may show an element more than once
READ_ONLY = "the memory of this tensor is read-only\nhint: use clone() first"


def replay(tensor: Any, chain: ViewChain) -> Any:
    """Apply a chain of view ops to an operand."""
    for op, attributes in chain:
        tensor = op(tensor, **attributes)
    return tensor


def scatter(root: Any, chain: ViewChain, new: Any) -> Any:
    """The root with the part that the chain shows replaced by `new`.

    That is what a write through a view leaves in its base.
    """
    before = [root]
    for op, attributes in chain[:-1]:
        before.append(op(before[-1], **attributes))
    for (op, attributes), whole in zip(reversed(chain), reversed(before), strict=True):
        new = _unview(op, attributes, whole, new)
    return new


def _unview(op: Op, attributes: Attributes, whole: Any, new: Any) -> Any:
    """The whole with the part that one view op shows replaced by `new`."""
    if op not in _UNVIEWS or (op is ops.broadcast and new._type.size != whole._type.size):
        raise LucidError(READ_ONLY)  # as NumPy's arrays are that a broadcast or windows give
    return _UNVIEWS[op](whole, new, **attributes)


def _unwindow(whole: Any, new: Any, **attributes: Any) -> Any:
    """Of windows that share no element."""
    shape, size = tuple(whole._type.shape), whole._type.size
    places = ops.windows(ops.reshape(ops.indices(whole, (size,), 0), shape=shape), **attributes)
    flat, places, new = (ops.reshape(x, shape=(x._type.size,)) for x in (whole, places, new))
    return ops.reshape(ops.index_set(flat, places, new, axis=0), shape=shape)


def _reshaped(whole: Any, new: Any, **_: Any) -> Any:
    return ops.reshape(new, shape=tuple(whole._type.shape))


_UNVIEWS: dict[Op, Callable[..., Any]] = {
    ops.broadcast: _reshaped,
    ops.diagonal: lambda whole, new: ops.with_diagonal(whole, new),
    ops.reshape: _reshaped,
    ops.slice: ops.update_slice,
    ops.transpose: lambda _, new, perm: ops.transpose(new, perm=ops.inverse_permutation(perm)),
    ops.windows: _unwindow,
}


def replay_history(base: TensorCore, chain: ViewChain) -> TensorCore:
    """The view of `base` as recorded now, for its history."""
    before = context.grad_enabled
    context.grad_enabled = True
    try:
        return cast(TensorCore, replay(base, chain))
    finally:
        context.grad_enabled = before


def write_(target: TensorCore, value: TensorCore) -> Tensor:
    """Write `value` into `target`'s memory: the one in-place primitive.

    Shapes: `value` broadcasts to the target's shape. dtype: it is cast, but not to a lower kind.
    Raises: `LucidError` for a leaf that requires grad (unless under no_grad) and for memory that
    overlaps itself, `ShapeError`, `DTypeError`.
    """
    state: dict[str, Any] = context.__dict__  # one look-up of what belongs to the thread
    if state["levels"]:
        acting = acting_level(None, (target, value))
        if acting is not None:
            level, position = acting
            level.write(target, value, position)
            return cast("Tensor", target)
    is_recorded = False
    if state["grad_enabled"]:
        if target._base is None and not target._requires_grad:  # nothing could be lost
            is_recorded = value.requires_grad
        else:
            is_recorded = target.requires_grad or value.requires_grad
            _check_history(target)
    refuse_overlaps(target)
    recorder, forward = state["recorder"], state["forward"]
    is_recorded = is_recorded or recorder is not None or forward is not None
    value = fitted(target, value, is_recorded)
    if state["mutation_guard"] is not None:
        state["mutation_guard"].before_write(target)
    if forward is not None:
        forward.guard.before_write(target)
    if recorder is not None:
        recorder.write(target, value)
        target._counter.value += 1
    else:
        _store(target, value._array)  # type: ignore[arg-type]
        target._counter.now += 1
    if is_recorded:
        keep_written(target, value)
    return cast("Tensor", target)


def is_memory_alone(target: TensorCore, *others: TensorCore) -> bool:
    """Whether a write changes memory and nothing else: no trace, no history, no transformation.

    Where it may be refused, it isn't one.
    """
    state: dict[str, Any] = context.__dict__
    if state["recorder"] is not None or state["forward"] is not None or state["levels"]:
        return False
    memory, whole = target._array, target._storage.array
    if memory is None or whole is None:
        return False
    if not memory.flags.writeable or not whole.flags.c_contiguous:
        return False  # a view that shows an element more than once is one that NumPy doesn't write
    if not state["grad_enabled"]:
        return True
    if target.requires_grad or made_without_grad(target):
        return False
    return not any(other.requires_grad for other in others)


def write_part(target: TensorCore, part: np.ndarray, array: np.ndarray) -> None:
    """Write numbers that fit into a part of a tensor's memory, which is all that changes."""
    _before_write(target)
    part[...] = array
    target._counter.now += 1


def write_picked(
    target: TensorCore, memory: np.ndarray, place: list[Any], array: np.ndarray
) -> bool:
    """The same for elements that an index of NumPy's picks; False: it has refused the index.

    It looks at all of the index before it writes.
    """
    for i, index in enumerate(place):  # NumPy sees to the values, but not to a mask
        if type(index) is np.ndarray and np.may_share_memory(memory, index):
            place[i] = index.copy()
    _before_write(target)
    try:
        memory[tuple(place)] = array
    except IndexError:
        return False
    target._counter.now += 1
    return True


def _before_write(target: TensorCore) -> None:
    """Tell those who keep memory as it was that it is about to be written."""
    state: dict[str, Any] = context.__dict__
    if state["mutation_guard"] is not None:
        state["mutation_guard"].before_write(target)
    if state["lent"] is not None:
        state["lent"].before_write(target._storage, target._counter)


def overwrite_(
    target: TensorCore, op: Op, operands: Sequence[TensorCore], attributes: Attributes
) -> bool:
    """Let an op replace elements of its operand that shows the target's memory, where that is.

    In place it takes the time of what is written. False: nothing was done, the caller is to write
    the op's result with `write_`. So it is in a trace or a transformation, where the operand is a
    copy, where much is written, and where something is wrong.
    """
    state: dict[str, Any] = context.__dict__
    whole = operands[op.overwritten]
    memory = whole._array
    if memory is None or whole._storage is not target._storage:
        return False
    if state["recorder"] is not None or state["forward"] is not None:
        return False
    if op.is_elementwise and memory.size < _SMALL:
        return False
    if state["levels"]:
        return bool(state["levels"][-1].update(target, op, operands, attributes))
    if core.natively is core.not_yet:
        core.not_yet(op, operands, attributes)
    value = None
    if state["grad_enabled"]:
        _check_history(target)
        if any(operand.requires_grad for operand in operands):
            if state["saved_hooks"]:  # they are called once for what is saved
                return False
            value = whole._alias()
    refuse_overlaps(target)
    arrays: list[Any] = [operand._array for operand in operands]
    try:
        known = application(op, operands, attributes)
    except LucidError:
        return False
    if not memory.flags.writeable or known.result_type.shape != memory.shape:
        return False
    for i, array in enumerate(arrays):
        if i != op.overwritten and np.may_share_memory(array, memory):
            arrays[i] = array.copy()
    if value is not None:
        keep_history(op, operands, attributes, value, known)
    _before_write(target)
    assert op.overwrite is not None
    if not op.overwrite(*arrays, **attributes, most=most_overwritten(memory.size)):
        return False
    target._counter.now += 1
    if value is not None:
        rebase_history(whole, value)
    return True


_FEW = 16  # of so many elements one is written in place
_SMALL = 2**12  # elements of which one op makes all anew as quickly as it finds some


def most_overwritten(size: int) -> int:
    """How many elements of a tensor NumPy writes before native code makes all of it anew."""
    return size // _FEW if size >= MANY_ELEMENTS else size


@quiet
def _add(x: np.ndarray, y: np.ndarray, into: np.ndarray) -> np.ndarray:
    added: np.ndarray = np.add(x, y, into)
    return added


def add_array(target: TensorCore, array: np.ndarray) -> None:
    """Add numbers of the target's type to its own, in place, where nothing is recorded."""
    refuse_overlaps(target)
    if context.mutation_guard is not None:
        context.mutation_guard.before_write(target)
    memory = _writable(target)
    if memory is not None:
        _add(memory, array, memory)
    target._counter.value += 1


def _store(target: TensorCore, array: np.ndarray) -> None:
    """Write numbers into the memory of a tensor outside of traces."""
    memory = _writable(target)
    if memory is not None:
        memory[...] = array  # in half the time of `np.copyto`


def _writable(target: TensorCore) -> np.ndarray | None:
    """The memory of a tensor, which is about to be written; None: there are no elements."""
    memory = target._array
    if memory is None:
        memory = target._concrete("an in-place operation")
    if not memory.flags.writeable:
        if memory.size:
            raise LucidError(READ_ONLY)
        return None  # an expanded tensor without elements, for one
    if context.lent is not None:
        context.lent.before_write(target._storage, target._counter)
    return memory


def keep_written(target: TensorCore, value: TensorCore) -> None:
    """Record that `value` was written into `target`, for its gradient."""
    if context.grad_enabled:
        if value.requires_grad or target.requires_grad:
            rebase_history(target, value)
    elif context.forward is not None:
        note_written(target, private_edge(value))


def refusal_of_writes(view: TensorCore) -> str | None:
    """What a write through a view in grad mode raises, if the view requires grad."""
    if view._guard is not None:
        return view._guard.written
    base = view._base
    if base is not None and base.is_leaf and (base._requires_grad or not view.is_leaf):
        return (
            "a view of a leaf Variable that requires grad is being used in an in-place operation."
        )
    return None


def check_writable(target: TensorCore) -> None:
    """Raise where an in-place write would lose a gradient."""
    if context.grad_enabled:
        _check_history(target)
    refuse_overlaps(target)


def _check_history(target: TensorCore) -> None:
    if target.requires_grad:
        refusal = refusal_of_writes(target)
        if refusal is not None:
            leaf = target._base
            origin = "" if leaf is None else f"\n  leaf:   {leaf._describe()}"
            raise LucidError(
                f"{refusal}\n  target: {target._describe()}{origin}\n"
                "hint: write under lucid.no_grad(), or into a clone()"
            )
        if target.is_leaf:
            raise LucidError(
                "a leaf Variable that requires grad is being used in an in-place operation.\n"
                f"  target: {target._describe()}\n"
                "hint: write under lucid.no_grad(), or into a clone()"
            )
    if made_without_grad(target):
        raise LucidError(MADE_WITHOUT_GRAD)


def refuse_overlaps(target: TensorCore) -> None:
    """Raise where the memory that a write to `target` goes to has several elements at one address.

    That may be the memory itself, an array of `as_strided`, or a view that leads to `target`: an
    expanded tensor, or sliding windows. PyTorch looks at `target` alone, so it writes one row of
    rows that overlap, and others change with it. Here the elements of a storage are independent
    values: a step that is compiled gives each a place of its own, and so neither mode does that.
    """
    storage, chain = target._storage, target._chain
    type, strides = storage.root_type, None
    if storage.array is not None and not storage.array.flags.c_contiguous:
        strides = storage.strides
        if overlaps_itself(type.shape, strides):
            raise _overlap(target, type, strides)
    if not chain or not any(op in _REPEATING for op, _ in chain):
        return
    strides = strides or storage.strides
    for op, attributes in chain:
        seen = view_strides(op, attributes, type.shape, strides)
        assert seen is not None
        type, strides = op.infer(type, **attributes), seen
        if op in _REPEATING and overlaps_itself(type.shape, strides):
            raise _overlap(target, type, strides)


def _overlap(target: TensorCore, type: TensorType, strides: Strides) -> LucidError:
    place = target.location
    origin = "" if place is None else f"  from {place}   {place.text}"
    error = LucidError(
        f"{_OVERLAPS}\n  target: {target._type} of strides {target.element_strides()}{origin}\n"
        f"  memory: {type} of strides {strides}\n"
        "hint: the gradient of a sum, for one, is such a tensor: compute out of place, or write "
        "into x.clone()"
    )
    return completed(at_line(error, here()))


MADE_WITHOUT_GRAD = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled. "
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your "
    "code by moving both the view and the inplace either both inside the no_grad block (if you "
    "don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)


def made_without_grad(tensor: TensorCore) -> bool:
    """Whether it is a view that knows nothing of the history that its base has."""
    base = tensor._base
    return base is not None and base.requires_grad and not tensor.requires_grad


_KINDS = ("bool", "int", "float")


def fitted(target: TensorCore, value: TensorCore, broadcasts: bool = True) -> TensorCore:
    """`value` in the target's dtype and shape, or in a shape that broadcasts to it."""
    type, wanted = value._type, target._type
    if type is wanted:
        return value
    if _KINDS.index(type.dtype.kind) > _KINDS.index(wanted.dtype.kind):
        raise DTypeError(
            f"result type {value.dtype!r} can't be cast to the desired output type "
            f"{target.dtype!r}\n  target: {target._describe()}\n  value:  {value._describe()}"
        )
    if type.shape and broadcast_all(type.shape, wanted.shape) != wanted.shape:
        raise ShapeError(
            f"output with shape {list(wanted.shape)} doesn't match the broadcast shape "
            f"of the value, {list(type.shape)}\n  target: {target._describe()}\n"
            f"  value:  {value._describe()}"
        )
    if type.dtype is not wanted.dtype:
        value = ops.cast(value, dtype=wanted.dtype)
    if broadcasts and type.shape != wanted.shape:
        value = ops.broadcast(value, shape=wanted.shape)
    return value


def rebase_history(target: TensorCore, value: TensorCore) -> None:
    """Give `target`, just written, the history of `value`; a view rewrites its base's."""
    if context.recorder is not None:
        context.recorder.note_history(target if target._base is None else target._base)
    base = target._base
    before = target._grad_fn, target._output_nr
    if base is None:
        if not value.requires_grad:
            target._grad_fn, target._output_nr = OverwriteBackward(target), 0
        elif value.grad_fn is None:  # a leaf was copied in
            copied = ops.reshape(value, shape=value._type.shape)
            target._grad_fn, target._output_nr = copied.grad_fn, copied._output_nr
        else:
            target._grad_fn, target._output_nr = value.grad_fn, value._output_nr
        note_flag(target)
        target._requires_grad = True
        target._epoch += 1
    else:
        before = base._grad_fn, base._output_nr
        edges = (edge_of(base), edge_of(value))
        base._grad_fn = CopySlices(base._type, edges, target._view_chain)
        base._output_nr = 0
        note_flag(base)
        base._requires_grad = True
        base._epoch += 1
    move_retained(target if base is None else base, *before)


def note_flag(written: TensorCore) -> None:
    """Let guards look again, where a tensor that they know requires grad from now on."""
    if not written._requires_grad and context.recorder is None and id(written) in epoch.watched:
        epoch.count += 1


def set_data(target: TensorCore, value: TensorCore) -> None:
    """`target.data = value`: the handle gets the value's memory and keeps its identity."""
    if not isinstance(value, TensorCore):
        raise ArgumentError(f"data expects a Tensor, not {type(value).__name__}")
    if target._requires_grad and not value.dtype.is_floating_point:
        raise LucidError("data set to a tensor that requires gradients must be floating point")
    is_same = value._storage is target._storage and value._chain == target._chain
    if context.recorder is not None and is_same:
        return  # as at the end of `w.data -= step`
    if context.recorder is not None:
        context.recorder.note_property(target, "data")
        take_memory(target, value)
    else:
        assign_memory(target, value)
    epoch.count += 1


def assign_memory(target: TensorCore, value: TensorCore) -> None:
    """Give `target` the memory that `value` shows, where calls go on from now."""
    take_memory(target, value)


def take_memory(target: TensorCore, value: TensorCore) -> None:
    """Let `target` show the memory that `value` shows."""
    target._storage, target._type = value._storage, value._type
    target._chain, target._value = value._chain, None
    target._strides = value.element_strides()  # those of an array that it had are others
    if value._array is not None or context.recorder is None:  # in a trace it also says: concrete
        target._array = value._array
