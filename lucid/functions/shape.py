"""Views and copies of other shapes."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from lucid.docstrings import like, maps
from lucid.functions.arguments import (
    Dims,
    axis_of,
    distinct_axes,
    infer_size,
    integer,
    one_way,
    shape_of,
    shown,
    sizes_of,
    tensor_of,
)
from lucid.functions.elementwise import clone
from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, IndexOutOfRangeError, OptionError, ShapeError
from lucid.ir.extents import NotOpenError, is_open
from lucid.ir.op import Attributes
from lucid.ir.strides import Strides, is_contiguous as strides_are_contiguous, reshape_strides
from lucid.ir.types import DType, Shape
from lucid.layouts import check_memory_format
from lucid.tensor.context import context
from lucid.tensor.core import apply_op, emit, is_unrecorded, of_users_array, view_by
from lucid.tensor.size import Size, new_size

__all__ = [
    "broadcast_to", "flatten", "flip", "fliplr", "flipud", "moveaxis", "movedim", "narrow", "numel",
    "permute", "ravel", "repeat_interleave", "reshape", "select", "squeeze", "swapaxes", "swapdims",
    "t", "tile", "transpose", "unflatten", "unsqueeze",
]  # fmt: skip


def reshaped(x: Tensor, shape: Shape) -> Tensor:
    """The tensor in a shape of as many elements: a view where strides allow it."""
    return apply_op(ops.reshape, (x,), {"shape": shape})  # type: ignore[return-value]


def _seen_as(x: Tensor, shape: Shape) -> Tensor:
    """The same for who is called with a tensor of ever other sizes."""
    array = x._array
    if array is None or not array.flags.c_contiguous or not is_unrecorded(x):
        return reshaped(x, shape)
    if array.size != prod(shape) or not array.size:
        return reshaped(x, shape)  # which says what is wrong
    return view_by(ops.reshape, x, {"shape": shape})


def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """Return the elements in row-major order in another shape of as many elements.

    One size may be -1, which is then worked out from the others.

    Aliasing: a view where the strides allow it, which writes show through, else a copy; `view`
    never copies.

    Args:
        *sizes: the shape, as ints or as one tuple or list of them; `()` for one element.
        shape: the same by keyword, instead of `sizes`.

    Raises:
        ShapeError: the shape has another number of elements, or two sizes are -1.
        ArgumentError: there is no shape, or there are two.

    >>> x = lucid.arange(6)
    >>> x.reshape(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    x = tensor_of(input, "reshape")
    given = _named(one_way(sizes, shape, "shape", "reshape"))
    return _seen_as(x, infer_size(sizes_of(given, "reshape"), x._type.size, "reshape"))


def _named(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    if not shape:
        raise ArgumentError("reshape: missing the shape")
    return shape


def view(input: Tensor, *shape: Any, size: Any = None, dtype: DType | None = None) -> Tensor:
    """Return a view of another shape, which shares the memory of `input`.

    One size may be -1, which is then worked out from the others. A write to the view shows in
    `input`. Of a dtype instead of a shape, the same bytes are read as numbers of that dtype,
    without a gradient; the last axis shrinks or grows where these have another size, and a
    compiled function runs op by op.

    Args:
        *shape: the shape, as ints or as one tuple or list of them; or a dtype.
        size, dtype: the same by keyword, instead of `shape`.

    Raises:
        ShapeError: the strides don't allow a view, as after a transpose, or the number of elements
            is another; the bytes of the last axis are no whole numbers of the dtype.
        ArgumentError: there is no shape, or there are two.

    >>> lucid.tensor([1.0, -2.0]).view(lucid.int32)
    tensor([ 1065353216, -1073741824], dtype=lucid.int32)
    >>> x = lucid.arange(4)
    >>> x.view(2, 2)[0, 0] = 9
    >>> x
    tensor([9, 1, 2, 3])
    """
    x = tensor_of(input, "view")
    given = one_way(one_way(shape, size, "size", "view"), dtype, "dtype", "view")
    if len(_named(given)) == 1 and isinstance(given[0], DType):
        return _bits_of(x, given[0])
    sizes = infer_size(sizes_of(given, "view"), x._type.size, "view")
    if not is_contiguous(x) and _strides_of(x, sizes) is None:
        raise ShapeError(
            "view: view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces)\n"
            "hint: use .reshape(...) instead, which copies"
        )
    return _seen_as(x, sizes)


def _strides_of(x: Tensor, shape: Shape) -> Strides | None:
    """Those of a view in that shape; None: there is none."""
    return reshape_strides(x._type.shape, x.element_strides(), shape)


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """Return a view of `input` in the shape of `other`: `input.view(other.shape)`.

    Only the shape of `other` is looked at.

    Args:
        other: whose shape the view has.

    Raises:
        ShapeError: the strides don't allow a view, or the number of elements is another.

    >>> lucid.arange(4).view_as(lucid.zeros(2, 2))
    tensor([[0, 1],
            [2, 3]])
    """
    return view(input, other._type.shape)


def _bits_of(x: Tensor, dtype: DType) -> Tensor:
    if context.recorder is not None:
        context.recorder.run_op_by_op(f"it reads bytes as another dtype, by view({dtype})")
    try:
        bits = x.detach().numpy().view(dtype.numpy)
    except ValueError as error:
        raise ShapeError(f"view: {error}") from None
    if not bits.flags.aligned:  # the strides, or where it starts
        raise ShapeError(f"view: the elements of {dtype} would not be aligned\nhint: use .clone()")
    found = of_users_array(bits)
    found._counter = x._counter  # of the writes to this memory
    return found


@like(view_as)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """Return `input` in the shape of `other`: `input.reshape(other.shape)`.

    Aliasing: a view where the strides allow it, else a copy.

    Args:
        other: whose shape the result has.

    Raises:
        ShapeError: `other` has another number of elements.
    """
    return reshape(input, other._type.shape)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge the axes from `start_dim` to `end_dim`, both included, into one.

    A 0-d tensor becomes a vector of one element. A single axis is already flat: `input` itself is
    returned.

    Aliasing: a view where strides allow it, else a copy.

    Args:
        start_dim: the first axis to merge; negative ones count from the end.
        end_dim: the last axis to merge.

    Raises:
        OptionError: `start_dim` comes after `end_dim`.
        IndexOutOfRangeError: there is no such axis.

    >>> lucid.zeros(2, 3, 4).flatten(1).shape
    lucid.Size([2, 12])
    """
    x = tensor_of(input, "flatten")
    start, end = axis_of(start_dim, x.ndim, "flatten"), axis_of(end_dim, x.ndim, "flatten")
    if start > end:
        raise OptionError("flatten: start_dim cannot come after end_dim")
    shape = x._type.shape
    if shape and start == end:
        return x
    return reshaped(x, (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """Return all elements along one axis, in row-major order.

    A vector is returned itself, and a 0-d tensor becomes a vector of one element.

    Aliasing: a view where strides allow it, else a copy.

    >>> lucid.tensor([[1, 2], [3, 4]]).ravel()
    tensor([1, 2, 3, 4])
    """
    return flatten(input) if input.ndim != 1 else input


def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """Split the axis `dim` into axes of the given sizes: the inverse of `flatten`, as a view.

    Args:
        dim: the axis to split; negative ones count from the end.
        sizes: of the new axes, a tuple or list, of which one may be -1.

    Raises:
        ShapeError: the product of the sizes isn't that of the axis.

    >>> lucid.arange(6).unflatten(0, (2, -1))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    x = tensor_of(input, "unflatten")
    axis = axis_of(dim, x.ndim, "unflatten")
    shape = x._type.shape
    parts = infer_size(sizes_of((sizes,), "unflatten"), shape[axis], "unflatten")
    return view(x, (*shape[:axis], *parts, *shape[axis + 1 :]))


def squeeze(input: Tensor, dim: Dims = None) -> Tensor:
    """Return a view without axes of size 1: all of them, or those of `dim`.

    An axis of another size that `dim` names is kept, silently.

    Args:
        dim: an axis or several; negative ones count from the end. Default: None, all axes of size
            1.

    Raises:
        OptionError: an axis is named twice.

    >>> x = lucid.zeros(1, 3, 1)
    >>> x.squeeze().shape
    lucid.Size([3])
    >>> x.squeeze((0, 1)).shape
    lucid.Size([3, 1])
    """
    x = tensor_of(input, "squeeze")
    shape = x._type.shape
    if dim is None:
        axes = tuple(range(len(shape)))
    else:
        dims = dim if isinstance(dim, (tuple, list)) else (dim,)
        axes = distinct_axes(dims, len(shape), "squeeze")
    kept = tuple(size for axis, size in enumerate(shape) if size != 1 or axis not in axes)
    return reshaped(x, kept)


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Return a view with an axis of size 1, which becomes axis `dim` of the result.

    Args:
        input: the tensor, of n axes.
        dim: where the new axis goes, from -n - 1 to n; -1 puts it last.

    Raises:
        IndexOutOfRangeError: `dim` is outside of that range.

    >>> x = lucid.tensor([1, 2])
    >>> x.unsqueeze(0)
    tensor([[1, 2]])
    >>> x.unsqueeze(-1)
    tensor([[1],
            [2]])
    """
    x = tensor_of(input, "unsqueeze")
    shape = x._type.shape
    axis = axis_of(dim, len(shape) + 1, "unsqueeze")
    return _seen_as(x, (*shape[:axis], 1, *shape[axis:]))


def permuted(x: Tensor, perm: tuple[int, ...]) -> Tensor:
    """The view with the axes in this order; `perm` is normalized."""
    return view_by(ops.transpose, x, {"perm": perm})


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """Return a view in which axis i is axis `order[i]` of `input`.

    Only strides change, so the view isn't contiguous in general.

    Args:
        *order: all axes in their new order, as ints or as one tuple; negative ones count from the
            end.
        dims: the same by keyword, instead of `order`.

    Raises:
        ShapeError: there are more or fewer axes in the order than in the tensor.
        OptionError: an axis comes twice.

    >>> lucid.zeros(2, 3, 4).permute(2, 0, 1).shape
    lucid.Size([4, 2, 3])
    """
    x = tensor_of(input, "permute")
    given = sizes_of(one_way(order, dims, "dims", "permute"), "permute")
    perm = distinct_axes(given, x.ndim, "permute")
    if len(perm) != x.ndim:
        raise ShapeError(
            f"permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering: {x.ndim} and {len(perm)}"
        )
    return permuted(x, perm)


@maps("[[1, 2], [3, 4]]", "0", "1", "[[1, 3], [2, 4]]")
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Return a view with the axes `dim0` and `dim1` exchanged.

    For a matrix, `transpose(x, 0, 1)` is the matrix transpose. A 0-d tensor takes the axes 0 and
    -1.

    Args:
        dim0: an axis; negative ones count from the end.
        dim1: the axis that it changes places with.

    Raises:
        IndexOutOfRangeError: there is no such axis.
    """
    x = tensor_of(input, "transpose")
    first, second = axis_of(dim0, x.ndim, "transpose"), axis_of(dim1, x.ndim, "transpose")
    perm = list(range(x.ndim))
    if perm:
        perm[first], perm[second] = second, first
    return permuted(x, tuple(perm))


swapaxes = swapdims = transpose


@maps("[[1, 2, 3]]", "[[1], [2], [3]]")
def t(input: Tensor) -> Tensor:
    """Return the transpose of a matrix as a view; vectors and 0-d tensors stay as they are.

    Args:
        input: a tensor of at most two axes; `transpose` and `.mT` are for more.

    Raises:
        ShapeError: it has more than two axes.
    """
    x = tensor_of(input, "t")
    if x.ndim > 2:
        raise ShapeError(f"t: expects a tensor with <= 2 dimensions, but self is {x.ndim}D")
    return permuted(x, tuple(reversed(range(x.ndim))))


def reversed_axes(input: Tensor) -> Tensor:
    """`.T`: the view with all axes in reverse order, for a matrix its transpose."""
    return permuted(input, tuple(reversed(range(input.ndim))))


def matrix_transpose(input: Tensor) -> Tensor:
    """`.mT`: the view with the last two axes exchanged, each matrix of a batch transposed.

    Args:
        input: a tensor of at least two axes.

    Raises:
        ShapeError: it has fewer than two axes.

    >>> lucid.tensor([[[1, 2], [3, 4]]]).mT
    tensor([[[1, 3],
             [2, 4]]])
    """
    if input.ndim < 2:
        raise ShapeError(f"mT: needs at least 2 dimensions, not {input.ndim}")
    return transpose(input, -2, -1)


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Return a view with the axes `source` at the places `destination`, the others in order.

    Args:
        source: an axis, or a tuple of them; negative ones count from the end.
        destination: as many places of the result.

    Raises:
        ArgumentError: there are more sources than destinations, or fewer.
        OptionError: an axis comes twice.
        IndexOutOfRangeError: there is no such axis.

    >>> lucid.zeros(2, 3, 4).movedim(0, -1).shape
    lucid.Size([3, 4, 2])
    >>> lucid.zeros(2, 3, 4).movedim((0, 1), (1, 0)).shape
    lucid.Size([3, 2, 4])
    """
    x = tensor_of(input, "movedim")
    sources = source if isinstance(source, (tuple, list)) else (source,)
    targets = destination if isinstance(destination, (tuple, list)) else (destination,)
    if len(sources) != len(targets):
        raise ArgumentError("movedim: source and destination must name as many axes")
    from_axes = distinct_axes(sources, x.ndim, "movedim")
    to_axes = distinct_axes(targets, x.ndim, "movedim")
    moved = dict(zip(to_axes, from_axes, strict=True))
    rest = iter(axis for axis in range(x.ndim) if axis not in from_axes)
    return permuted(x, tuple(moved[i] if i in moved else next(rest) for i in range(x.ndim)))


moveaxis = movedim


def broadcast(x: Tensor, shape: Shape) -> Tensor:
    """The view repeated to a shape, itself where it has it."""
    return x if x._type.shape == shape else emit(ops.broadcast, (x,), shape=shape)


def expand(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Return a view in which axes of size 1 are repeated to the given sizes.

    New axes may come in front. Repeated elements share one place in memory, so clone the view
    before writing to it.

    Args:
        *sizes: the shape, as ints or as one tuple; -1 keeps a size.
        size: the same by keyword, instead of `sizes`.

    Raises:
        ShapeError: there are fewer sizes than axes, an axis that isn't 1 would change, or a new one
            has size -1.

    >>> lucid.tensor([[1], [2]]).expand(-1, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    x = tensor_of(input, "expand")
    wanted = sizes_of(one_way(sizes, size, "size", "expand"), "expand")
    shape = x._type.shape
    lead = len(wanted) - len(shape)
    if lead < 0:
        raise ShapeError(
            f"expand: the number of sizes provided ({len(wanted)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(shape)})"
        )
    result = []
    for axis, size in enumerate(wanted):
        old = shape[axis - lead] if axis >= lead else None
        if size == -1 and old is None:
            raise ShapeError(f"expand: the size -1 isn't allowed in a new leading dimension {axis}")
        if old is not None and size not in (-1, old) and old != 1:
            raise ShapeError(
                f"expand: The expanded size of the tensor ({size}) must match the existing size "
                f"({old}) at non-singleton dimension {axis}"
            )
        result.append(old if size == -1 and old is not None else size)
    if tuple(result) == (1,) * lead + shape:  # nothing is repeated, so it may be written
        return reshaped(x, tuple(result))
    return emit(ops.broadcast, (x,), shape=tuple(result))


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Return a view of `input` repeated to the shape of `other`: `input.expand(other.shape)`.

    Args:
        input: the tensor, which broadcasts to that shape.
        other: whose shape the view has.

    Raises:
        ShapeError: `input` doesn't broadcast to the shape of `other`.

    >>> lucid.tensor([1, 2]).expand_as(lucid.zeros(2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return expand(input, other._type.shape)


@maps("[1, 2]", "(3, 2)", "[[1, 2], [1, 2], [1, 2]]")
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Return a view of `input` repeated to a shape: `input.expand(size)`.

    Repeated elements share one place in memory, so the view isn't to be written to.

    Args:
        input: the tensor, which broadcasts to that shape.
        size: the shape, a tuple or list; -1 keeps a size.

    Raises:
        ShapeError: `input` doesn't broadcast to that shape.
    """
    return expand(input, *sizes_of((size,), "broadcast_to"))


def repeat(input: Tensor, *times: Any, repeats: Any = None) -> Tensor:
    """Return a copy with the whole tensor repeated `times[i]` times along axis i.

    More counts than axes add axes in front. A count of 0 leaves no element. To repeat each element
    for itself, see `repeat_interleave`; to repeat without a copy, `expand`.

    Shapes: size i of the result is `times[i]` times that of `input`.

    Args:
        *times: a count for each axis, as ints or as one tuple.
        repeats: the same by keyword, instead of `times`.

    Raises:
        ShapeError: there are fewer counts than axes, or one is negative.

    >>> lucid.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    x = tensor_of(input, "repeat")
    counts = shape_of(one_way(times, repeats, "repeats", "repeat"), "repeat")
    lead = len(counts) - x.ndim
    if lead < 0:
        raise ShapeError(
            "repeat: Number of dimensions of repeat dims can not be smaller than number of "
            f"dimensions of tensor: {len(counts)} and {x.ndim}"
        )
    shape = (1,) * lead + x._type.shape
    split = tuple(size for old in shape for size in (1, old))
    wide = tuple(size for pair in zip(counts, shape, strict=True) for size in pair)
    result = emit(ops.broadcast, (reshaped(x, split),), shape=wide)
    final = tuple(count * size for count, size in zip(counts, shape, strict=True))
    return reshaped(clone(result), final)


def tile(input: Tensor, *times: Any, dims: Any = None) -> Tensor:
    """Return a copy with the whole tensor repeated along its axes, as `repeat` does.

    Fewer counts than axes are for the last axes; the others are repeated once.

    Args:
        *times: a count for each axis, as ints or as one tuple.
        dims: the same by keyword, instead of `times`.

    Raises:
        ShapeError: a count is negative.

    >>> lucid.tensor([[1, 2], [3, 4]]).tile(2)
    tensor([[1, 2, 1, 2],
            [3, 4, 3, 4]])
    """
    counts = shape_of(one_way(times, dims, "dims", "tile"), "tile")
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Return a copy with each element repeated, along `dim` or in the flattened tensor.

    `repeat_interleave(counts)` gives the index of each count, as often as it says.

    With one count per element, the result's size depends on data: a compiled step is traced anew
    when that changes for the first time, and has one program for all sizes from two on.

    Args:
        repeats: an int, or an integer tensor with one count for each index along `dim`. Default:
            None, `input` has the counts.
        dim: the axis; negative ones count from the end. Default: None, the flattened tensor.

        output_size: how long the result is along `dim`, where it is known. Default: None.

    Raises:
        OptionError: a count is negative.
        ShapeError: there are not as many counts as indices, or they don't add up to `output_size`.

    >>> x = lucid.tensor([1, 2, 3])
    >>> x.repeat_interleave(2)
    tensor([1, 1, 2, 2, 3, 3])
    >>> x.repeat_interleave(lucid.tensor([0, 1, 2]))
    tensor([2, 3, 3])
    >>> lucid.repeat_interleave(lucid.tensor([2, 0, 1]))
    tensor([0, 0, 2])
    """
    from lucid.functions.gathering import index_select, repeated_positions

    x = tensor_of(input, "repeat_interleave")
    if repeats is None:
        places = repeated_positions(x, x._type.size)
        _check_length(output_size, places._type.shape[0])
        return places
    if dim is None:
        x, dim = reshaped(x, (x._type.size,)), 0
    axis = axis_of(dim, x.ndim, "repeat_interleave")
    shape = x._type.shape
    if isinstance(repeats, Tensor) and repeats.ndim:
        places = repeated_positions(repeats, shape[axis])
        _check_length(output_size, places._type.shape[0])
        return index_select(x, axis, places)
    count = integer(repeats, "repeat_interleave", "repeats")
    if count < 0:
        raise OptionError(f"repeat_interleave: repeats can not be negative, not {count}")
    _check_length(output_size, shape[axis] * count)
    wide = (*shape[: axis + 1], count, *shape[axis + 1 :])
    column = reshaped(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    final = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    return reshaped(clone(emit(ops.broadcast, (column,), shape=wide)), final)


def _check_length(wanted: int | None, length: int) -> None:
    if wanted is not None and integer(wanted, "repeat_interleave", "output_size") != length:
        raise ShapeError(f"repeat_interleave: output_size is {wanted}, the repeats make {length}")


def sliced(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """The view of a range along one axis; the range is normalized."""
    part = range_along(x._type.shape, axis, start, stop, step)
    return apply_op(ops.slice, (x,), part)  # type: ignore[return-value]


@lru_cache(1024, typed=True)
def range_along(shape: Shape, axis: int, start: int, stop: int, step: int) -> Attributes:
    """The attributes of a slice that takes a range of one axis, and all of the others."""
    before, after = (0,) * axis, (0,) * (len(shape) - axis - 1)
    starts, stops = (*before, start, *after), (*shape[:axis], stop, *shape[axis + 1 :])
    steps = (*(1,) * axis, step, *(1,) * len(after))
    return {"starts": starts, "stops": stops, "steps": steps}


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Return the view of `length` indices along `dim`, from `start` on.

    Unlike a slice it doesn't cut a range that is too long, but raises.

    Args:
        start: the first index; negative ones count from the end.
        length: how many indices; 0 gives a tensor without elements.

    Raises:
        IndexOutOfRangeError: the range isn't inside of the axis.
        ShapeError: the tensor is 0-d.

    >>> lucid.arange(5).narrow(0, 1, 3)
    tensor([1, 2, 3])
    """
    x = tensor_of(input, "narrow")
    axis = axis_of(dim, x.ndim, "narrow")
    if not x.ndim:
        raise ShapeError("narrow: narrow() cannot be applied to a 0-dim tensor.")
    size = x._type.shape[axis]
    first = integer(start, "narrow", "start")
    if not -size <= first <= size:
        raise IndexOutOfRangeError(f"narrow: start must be from {-size} to {size}, not {first}")
    first += size if first < 0 else 0
    length = integer(length, "narrow", "length")
    if length < 0 or first + length > size:
        stop = f"start ({first}) + length ({length})"
        raise IndexOutOfRangeError(f"narrow: {stop} exceeds the size {size}")
    return sliced(x, axis, first, first + length)


@maps("[[1, 2], [3, 4]]", "1", "-1", "[2, 4]")
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Return the view at one index along `dim`, without that axis: `input[:, index]` for dim 1.

    Args:
        index: the index; negative ones count from the end.

    Raises:
        IndexOutOfRangeError: there is no such axis, or the index isn't in it.
        ShapeError: the tensor is 0-d.
    """
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
            f"{op}: index {shown(index)} is out of bounds for dimension {axis} with size {size}"
        )
    return index + size if index < 0 else index


@maps("[[1, 2], [3, 4]]", "1", "[[2, 1], [4, 3]]")
def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """Return a copy with the order of the elements along the given axes reversed.

    It is a copy, not a view with negative strides: writes to it don't show in `input`.

    Args:
        *axes: the axes, as ints or as one tuple; negative ones count from the end.
        dims: the same by keyword, instead of `axes`.

    Raises:
        OptionError: an axis comes twice.
        IndexOutOfRangeError: there is no such axis.
    """
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


@maps("[[1, 2], [3, 4]]", "[[2, 1], [4, 3]]")
def fliplr(input: Tensor) -> Tensor:
    """Return a copy with the columns in reverse order: `flip(input, 1)`.

    Args:
        input: a tensor of at least two axes.

    Raises:
        IndexOutOfRangeError: it has fewer than two axes.
    """
    return flip(input, 1)


@maps("[[1, 2], [3, 4]]", "[[3, 4], [1, 2]]")
def flipud(input: Tensor) -> Tensor:
    """Return a copy with the rows in reverse order: `flip(input, 0)`.

    Args:
        input: a tensor, of which a vector is reversed as a whole.
    """
    return flip(input, 0)


def size(input: Tensor, dim: int | None = None) -> Any:
    """Return the shape as a `lucid.Size`, or with `dim` the size of one axis as an int.

    Args:
        dim: the axis; negative ones count from the end. Default: None, all of them.

    Raises:
        IndexOutOfRangeError: there is no such axis; a 0-d tensor has none.

    >>> x = lucid.zeros(2, 3)
    >>> x.size()
    lucid.Size([2, 3])
    >>> x.size(-1)
    3
    """
    if dim is None:
        return new_size(Size, input._type.shape)
    if not input.ndim:
        raise IndexOutOfRangeError("size: Dimension specified as 0 but tensor has no dimensions")
    return input._type.shape[axis_of(dim, input.ndim, "size")]


def storage_offset(input: Tensor) -> int:
    """Return where in its storage the tensor begins, counted in elements.

    It isn't 0 only for views. It looks at memory, so in a trace it raises `TraceError`.

    >>> lucid.arange(6)[2:].storage_offset()
    2
    """
    array = input._concrete("storage_offset()")
    whole: Any = array
    while isinstance(whole.base, type(array)):
        whole = whole.base
    first = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return int(first // array.itemsize)


@like(transpose)
def stride(input: Tensor, dim: int | None = None) -> Any:
    """Return the distance in memory of neighbours along each axis, or along one, in elements.

    An axis that `expand` has repeated has stride 0.

    Args:
        dim: the axis; negative ones count from the end. Default: None, a tuple of all.

    >>> x = lucid.zeros(2, 3)
    >>> x.stride()
    (3, 1)
    >>> x.T.stride(0)
    1
    """
    _require_known_strides(input)
    strides = input.element_strides()
    return strides if dim is None else strides[axis_of(dim, input.ndim, "stride")]


def _require_known_strides(x: Tensor) -> None:
    """Let the sizes be known, in a trace, of an argument that each call gives in another order.

    A step of open sizes has a row-major copy of it, and knows the strides of one call.
    """
    shape: tuple[Any, ...] = x._storage.root_type.shape
    memory, sizes = x._storage.array, [n for n in shape if is_open(n)]
    if sizes and memory is not None and not memory.flags.c_contiguous:
        raise NotOpenError("a stride of an argument is read", sizes)


@maps("lucid.zeros(2, 3)", "6")
def numel(input: Tensor) -> int:
    """Return the number of elements, the product of the sizes; a 0-d tensor has one."""
    return input._type.size


def dim(input: Tensor) -> int:
    """Return the number of axes; a 0-d tensor has none.

    >>> lucid.zeros(2, 3).dim()
    2
    """
    return input.ndim


def element_size(input: Tensor) -> int:
    """Return how many bytes an element takes, which the dtype says.

    >>> lucid.zeros(2, dtype=lucid.float64).element_size()
    8
    """
    return input._type.dtype.itemsize


def nbytes(input: Tensor) -> int:
    """Return how many bytes all elements take together.

    It is `numel() * element_size()`, also for a view that repeats elements.
    """
    return input._type.nbytes


def is_contiguous(input: Tensor, *, memory_format: object = None) -> bool:
    """Return whether the elements lie in row-major order without gaps.

    No other order is ever wanted, so all memory formats ask for the same.

    >>> x = lucid.zeros(2, 3)
    >>> x.is_contiguous(), x.T.is_contiguous()
    (True, False)
    """
    if memory_format is not None:
        check_memory_format(memory_format, "is_contiguous")
    array = input._array
    if array is not None and input._strides is None and array.flags.c_contiguous:
        return True
    return strides_are_contiguous(input._type.shape, input.element_strides())


@like(is_contiguous)
def contiguous(input: Tensor, *, memory_format: object = None) -> Tensor:
    """Return the tensor itself if it is contiguous, else a row-major copy.

    Gradients flow through either.

    >>> x = lucid.zeros(2, 3)
    >>> x.contiguous() is x
    True
    >>> x.T.contiguous().stride()
    (2, 1)
    """
    if memory_format is not None:
        check_memory_format(memory_format, "contiguous")
    return input if is_contiguous(input) else clone(input)
