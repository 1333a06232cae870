"""Views and copies of other shapes."""

from __future__ import annotations

from math import prod
from typing import Any

from lucid.functions.arguments import (
    Dims,
    axis_of,
    describe,
    distinct_axes,
    infer_size,
    integer,
    one_way,
    shape_of,
    sizes_of,
    tensor_of,
)
from lucid.functions.elementwise import clone
from lucid.functions.naming import numpy_names
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, IndexOutOfRangeError, OptionError, ShapeError
from lucid.ir.strides import is_contiguous as strides_are_contiguous
from lucid.ir.strides import reshape_strides
from lucid.ir.types import Shape
from lucid.layouts import check_memory_format
from lucid.tensor.core import emit
from lucid.tensor.size import Size


def reshaped(x: Tensor, shape: Shape) -> Tensor:
    """The tensor in a shape of as many elements: a view where strides allow it."""
    return emit(ops.reshape, (x,), shape=shape)


def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """Return the elements in row-major order in another shape; one size may be -1.

    Aliasing: a view where the strides allow it, else a copy.
    """
    x = tensor_of(input, "reshape")
    given = _named(one_way(sizes, shape, "shape", "reshape"))
    return reshaped(x, infer_size(sizes_of(given, "reshape"), x._type.size, "reshape"))


def _named(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    if not shape:
        raise ArgumentError("reshape: missing the shape")
    return shape


def view(input: Tensor, *shape: Any, size: Any = None) -> Tensor:
    """Return a view of another shape; one size may be -1.

    Raises: `ShapeError` where the strides don't allow a view.
    """
    x = tensor_of(input, "view")
    given = _named(one_way(shape, size, "size", "view"))
    sizes = infer_size(sizes_of(given, "view"), x._type.size, "view")
    if reshape_strides(x._type.shape, x.element_strides(), sizes) is None:
        raise ShapeError(
            "view: view size is not compatible with input tensor's size and stride (at least one "
            f"dimension spans across two contiguous subspaces){describe(x)}\n"
            "hint: use .reshape(...) instead, which copies"
        )
    return reshaped(x, sizes)


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """Return `input.view(other.shape)`."""
    return view(input, other._type.shape)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """Return `input.reshape(other.shape)`."""
    return reshape(input, other._type.shape)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge the axes from `start_dim` to `end_dim` into one. A view where strides allow it."""
    x = tensor_of(input, "flatten")
    start, end = axis_of(start_dim, x.ndim, "flatten"), axis_of(end_dim, x.ndim, "flatten")
    if start > end:
        raise OptionError("flatten: start_dim cannot come after end_dim")
    shape = x._type.shape
    if shape and start == end:
        return x
    return reshaped(x, (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """Return all elements along one axis. A view where strides allow it."""
    return flatten(input) if input.ndim != 1 else input


def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """Split axis `dim` into axes of `sizes`, of which one may be -1."""
    x = tensor_of(input, "unflatten")
    axis = axis_of(dim, x.ndim, "unflatten")
    shape = x._type.shape
    parts = infer_size(sizes_of((sizes,), "unflatten"), shape[axis], "unflatten")
    return view(x, (*shape[:axis], *parts, *shape[axis + 1 :]))


@numpy_names
def squeeze(input: Tensor, dim: Dims = None) -> Tensor:
    """Return a view without axes of size 1: all of them, or those of `dim`."""
    x = tensor_of(input, "squeeze")
    shape = x._type.shape
    if dim is None:
        axes = tuple(range(len(shape)))
    else:
        dims = dim if isinstance(dim, (tuple, list)) else (dim,)
        axes = distinct_axes(dims, len(shape), "squeeze")
    kept = tuple(size for axis, size in enumerate(shape) if size != 1 or axis not in axes)
    return reshaped(x, kept)


@numpy_names
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Return a view with an axis of size 1 before axis `dim` of the result."""
    x = tensor_of(input, "unsqueeze")
    shape = x._type.shape
    axis = axis_of(dim, len(shape) + 1, "unsqueeze")
    return reshaped(x, (*shape[:axis], 1, *shape[axis:]))


# ---------------------------------------------------------------------- order of axes


def permuted(x: Tensor, perm: tuple[int, ...]) -> Tensor:
    """The view with the axes in this order; `perm` is normalized."""
    return emit(ops.transpose, (x,), perm=perm)


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Return a view with axis `order[i]` as its axis i."""
    x = tensor_of(input, "permute")
    given = sizes_of(one_way(order, dims, "dims", "permute"), "permute")
    perm = distinct_axes(given, x.ndim, "permute")
    if len(perm) != x.ndim:
        raise ShapeError(
            f"permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering: {x.ndim} and {len(perm)}{describe(x)}"
        )
    return permuted(x, perm)


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Return a view with two axes exchanged."""
    x = tensor_of(input, "transpose")
    first, second = axis_of(dim0, x.ndim, "transpose"), axis_of(dim1, x.ndim, "transpose")
    perm = list(range(x.ndim))
    if perm:
        perm[first], perm[second] = second, first
    return permuted(x, tuple(perm))


def t(input: Tensor) -> Tensor:
    """Return the transpose of a matrix, a view; vectors and 0-d tensors stay as they are."""
    x = tensor_of(input, "t")
    if x.ndim > 2:
        raise ShapeError(f"t: expects a tensor with <= 2 dimensions, but self is {x.ndim}D")
    return permuted(x, tuple(reversed(range(x.ndim))))


def reversed_axes(input: Tensor) -> Tensor:
    """`.T`: the view with all axes in reverse."""
    return permuted(input, tuple(reversed(range(input.ndim))))


def matrix_transpose(input: Tensor) -> Tensor:
    """`.mT`: the view with the last two axes exchanged."""
    if input.ndim < 2:
        raise ShapeError(f"mT: needs at least 2 dimensions, not {input.ndim}{describe(input)}")
    return transpose(input, -2, -1)


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Return a view with the axes `source` at the places `destination`, the others in order."""
    x = tensor_of(input, "movedim")
    sources = source if isinstance(source, (tuple, list)) else (source,)
    targets = destination if isinstance(destination, (tuple, list)) else (destination,)
    if len(sources) != len(targets):
        raise ArgumentError(
            "movedim: Invalid source or destination dims: source and destination must have as many"
        )
    from_axes = distinct_axes(sources, x.ndim, "movedim")
    to_axes = distinct_axes(targets, x.ndim, "movedim")
    moved = dict(zip(to_axes, from_axes, strict=True))
    rest = iter(axis for axis in range(x.ndim) if axis not in from_axes)
    return permuted(x, tuple(moved[i] if i in moved else next(rest) for i in range(x.ndim)))


# ---------------------------------------------------------------------- repetition


def broadcast(x: Tensor, shape: Shape) -> Tensor:
    """The view repeated to a shape, itself where it has it."""
    return x if x._type.shape == shape else emit(ops.broadcast, (x,), shape=shape)


def expand(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Return a view in which axes of size 1 are repeated; -1 keeps a size."""
    x = tensor_of(input, "expand")
    wanted = sizes_of(one_way(sizes, size, "size", "expand"), "expand")
    shape = x._type.shape
    lead = len(wanted) - len(shape)
    if lead < 0:
        raise ShapeError(
            f"expand: the number of sizes provided ({len(wanted)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(shape)}){describe(x)}"
        )
    result = []
    for axis, size in enumerate(wanted):
        old = shape[axis - lead] if axis >= lead else None
        if size == -1 and old is None:
            raise ShapeError(
                f"expand: the expanded size of the tensor (-1) isn't allowed in a leading, "
                f"non-existing dimension {axis}"
            )
        if old is not None and size not in (-1, old) and old != 1:
            raise ShapeError(
                f"expand: The expanded size of the tensor ({size}) must match the existing size "
                f"({old}) at non-singleton dimension {axis}{describe(x)}"
            )
        result.append(old if size == -1 and old is not None else size)
    if tuple(result) == (1,) * lead + shape:  # nothing is repeated, so it may be written
        return reshaped(x, tuple(result))
    return emit(ops.broadcast, (x,), shape=tuple(result))


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Return `input.expand(other.shape)`."""
    return expand(input, other._type.shape)


def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Return `input.expand(size)`."""
    return expand(input, *sizes_of((size,), "broadcast_to"))


def repeat(input: Tensor, *times: Any, repeats: Any = None) -> Tensor:
    """Return a copy with the whole repeated `times[i]` times along axis i."""
    x = tensor_of(input, "repeat")
    counts = shape_of(one_way(times, repeats, "repeats", "repeat"), "repeat")
    lead = len(counts) - x.ndim
    if lead < 0:
        raise ShapeError(
            "repeat: Number of dimensions of repeat dims can not be smaller than number of "
            f"dimensions of tensor: {len(counts)} and {x.ndim}{describe(x)}"
        )
    shape = (1,) * lead + x._type.shape
    split = tuple(size for old in shape for size in (1, old))
    wide = tuple(size for pair in zip(counts, shape, strict=True) for size in pair)
    result = emit(ops.broadcast, (reshaped(x, split),), shape=wide)
    final = tuple(count * size for count, size in zip(counts, shape, strict=True))
    return reshaped(clone(result), final)


def tile(input: Tensor, *times: Any, dims: Any = None) -> Tensor:
    """As `repeat`; fewer counts than axes are filled with 1 at the front."""
    counts = shape_of(one_way(times, dims, "dims", "tile"), "tile")
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


@numpy_names
def repeat_interleave(input: Tensor, repeats: Any, dim: int | None = None) -> Tensor:
    """Return a copy with each element repeated, along `dim` or in the flattened tensor.

    `repeats` is an int, or a tensor with one count per element along `dim`.
    """
    x = tensor_of(input, "repeat_interleave")
    if dim is None:
        x, dim = reshaped(x, (x._type.size,)), 0
    axis = axis_of(dim, x.ndim, "repeat_interleave")
    shape = x._type.shape
    if isinstance(repeats, Tensor) and repeats.ndim:
        from lucid.functions.gathering import index_select, repeated_positions

        return index_select(x, axis, repeated_positions(repeats, shape[axis]))
    count = integer(repeats, "repeat_interleave", "repeats")
    if count < 0:
        raise OptionError(f"repeat_interleave: repeats can not be negative, not {count}")
    wide = (*shape[: axis + 1], count, *shape[axis + 1 :])
    column = reshaped(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    final = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    return reshaped(clone(emit(ops.broadcast, (column,), shape=wide)), final)


# ---------------------------------------------------------------------- parts


def sliced(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """The view of a range along one axis; the range is normalized."""
    shape = x._type.shape
    starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return emit(ops.slice, (x,), starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Return the view of `length` indices from `start` along `dim`."""
    x = tensor_of(input, "narrow")
    axis = axis_of(dim, x.ndim, "narrow")
    if not x.ndim:
        raise ShapeError("narrow: narrow() cannot be applied to a 0-dim tensor.")
    size = x._type.shape[axis]
    first = integer(start, "narrow", "start")
    if not -size <= first <= size:
        raise IndexOutOfRangeError(
            f"narrow: start out of range (expected to be in range of [{-size}, {size}], but got "
            f"{first})"
        )
    first += size if first < 0 else 0
    if length < 0 or first + length > size:
        raise IndexOutOfRangeError(
            f"narrow: start ({first}) + length ({length}) exceeds dimension size ({size})."
        )
    return sliced(x, axis, first, first + length)


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Return the view at one index along `dim`, without that axis."""
    x = tensor_of(input, "select")
    if not x.ndim:
        raise ShapeError("select: select() cannot be applied to a 0-dim tensor.")
    axis = axis_of(dim, x.ndim, "select")
    return item_at(x, axis, integer(index, "select", "index"), "select")


def item_at(x: Tensor, axis: int, index: int, op: str) -> Tensor:
    """The view at one index of an axis, without it; `op` is what the user called."""
    shape = x._type.shape
    at = checked_index(index, shape[axis], axis, op)
    return reshaped(sliced(x, axis, at, at + 1), (*shape[:axis], *shape[axis + 1 :]))


def checked_index(index: int, size: int, axis: int, op: str) -> int:
    """An index counted from the start. Raises `IndexOutOfRangeError`."""
    index = integer(index, op, "index")
    if not -size <= index < size:
        raise IndexOutOfRangeError(
            f"{op}: index {index} is out of bounds for dimension {axis} with size {size}"
        )
    return index + size if index < 0 else index


def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """Return a copy with the order along the axes reversed."""
    x = tensor_of(input, "flip")
    shape = x._type.shape
    given = sizes_of(one_way(axes, dims, "dims", "flip"), "flip")
    reversed_ = distinct_axes(given, len(shape), "flip")
    if not shape:
        return clone(x)
    starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
    for axis in reversed_:
        if shape[axis]:
            starts[axis], stops[axis], steps[axis] = shape[axis] - 1, -1, -1
    flipped = emit(ops.slice, (x,), starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    return clone(flipped)


def fliplr(input: Tensor) -> Tensor:
    """Return `flip(input, 1)`."""
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """Return `flip(input, 0)`."""
    return flip(input, 0)


# ---------------------------------------------------------------------- what it is


def size(input: Tensor, dim: int | None = None) -> Any:
    """Return the shape, or the size of one axis."""
    if dim is None:
        return Size(input._type.shape)
    if not input.ndim:
        raise IndexOutOfRangeError("size: Dimension specified as 0 but tensor has no dimensions")
    return input._type.shape[axis_of(dim, input.ndim, "size")]


def storage_offset(input: Tensor) -> int:
    """Return where in its storage the tensor begins, in elements. Eager only."""
    array = input._concrete("storage_offset()")
    whole: Any = array
    while isinstance(whole.base, type(array)):
        whole = whole.base
    first = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return int(first // array.itemsize)


def stride(input: Tensor, dim: int | None = None) -> Any:
    """Return the distance of neighbours along each axis, or one, in elements."""
    strides = input.element_strides()
    return strides if dim is None else strides[axis_of(dim, input.ndim, "stride")]


def numel(input: Tensor) -> int:
    """Number of elements."""
    return input._type.size


def dim(input: Tensor) -> int:
    """Number of axes."""
    return input.ndim


def element_size(input: Tensor) -> int:
    """Bytes per element."""
    return input._type.dtype.itemsize


def nbytes(input: Tensor) -> int:
    """Bytes of all elements."""
    return input._type.nbytes


def is_contiguous(input: Tensor, *, memory_format: object = None) -> bool:
    """Whether the elements lie in row-major order without gaps; no other order is ever wanted."""
    check_memory_format(memory_format, "is_contiguous")
    return strides_are_contiguous(input._type.shape, input.element_strides())


def contiguous(input: Tensor, *, memory_format: object = None) -> Tensor:
    """Return the tensor itself if it is contiguous, else a copy that is."""
    check_memory_format(memory_format, "contiguous")
    return input if is_contiguous(input) else clone(input)
