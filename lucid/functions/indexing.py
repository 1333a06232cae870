"""`x[index]` and `x[index] = value`.

Ints, slices, None and `...` give views. Integer tensors, lists, arrays and bool masks pick elements
by NumPy's advanced rules, after ints and slices were applied: so `x[0, :, picks]` has the axes of
`x[0][:, picks]`, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np

from lucid.functions.arguments import complete, kind_of
from lucid.functions.checks import at_hand, within_axis
from lucid.functions.conversion import cast
from lucid.functions.elementwise import choose, chosen
from lucid.functions.finding import found, nonzero_indices
from lucid.functions.from_data import tensor
from lucid.functions.promotion import operand
from lucid.functions.shape import broadcast, checked_index, permuted, reshaped
from lucid.functions.tensors import Tensor
from lucid.functions.updates import Update
from lucid.ir import ops
from lucid.ir.errors import (
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    IndexShapeError,
    NotAnIndexError,
    OptionError,
    ShapeError,
)
from lucid.ir.extents import indices_of, is_open, taken
from lucid.ir.location import warn
from lucid.ir.op import Attributes
from lucid.ir.ops.rules import broadcast_all
from lucid.ir.types import Shape, bool_, has_dtype, i64, u8
from lucid.tensor.arrays import plain_data
from lucid.tensor.context import context
from lucid.tensor.core import (
    emit,
    from_array,
    is_unrecorded,
    of_users_array,
    view_by,
    view_of_memory,
)
from lucid.tensor.levels import note_turn
from lucid.tensor.writing import (
    is_memory_alone,
    most_overwritten,
    write_,
    write_part,
    write_picked,
)


@dataclass(frozen=True, slots=True, eq=False)
class Pick:
    """An index tensor.

    Attributes:
        axis: of the view that ints, slices and None have made.
        index: what to pick along it.
        of: the axis of the input; None for places that were found and are in range.
    """

    axis: int
    index: Tensor
    of: int | None


Picks = list[Pick]


def getitem(input: Tensor, index: Any) -> Tensor:
    """Return `input[index]`: a view, or a copy if the index has tensors, lists or arrays.

    Ints take an axis away, slices and `...` keep axes, None adds one of size 1. Integer tensors
    pick elements along their axis and broadcast with each other; a bool mask picks the elements
    where it holds, along as many axes as it has.

    Args:
        index: an int, slice, None, `...`, integer or bool tensor, list or array, or a tuple of
            them.

    Raises:
        IndexOutOfRangeError: an index isn't in its axis, or there are more of them than axes.
        NotAnIndexError: an entry can't be an index, such as a tensor of floats.
        IndexShapeError: index tensors don't broadcast.

    >>> x = lucid.tensor([[1, 2, 3], [4, 5, 6]])
    >>> x[0, 1:]
    tensor([2, 3])
    >>> x[:, [2, 0]]
    tensor([[3, 1],
            [6, 4]])
    >>> x[x > 3]
    tensor([4, 5, 6])
    """
    recorder, found = context.recorder, index
    if recorder is not None:
        index = recorder.parts.with_numbers(index)
        in_turn = recorder.parts.in_turn(index)
        if in_turn is not None:
            return getitem(getitem(input, in_turn[0]), in_turn[1])
        found = recorder.parts.index_of_read(input, index)
    try:
        result = _picked(input, found)
        if recorder is not None and found is not index:
            recorder.parts.note(result, input, index)
        return result
    except IndexOutOfRangeError as error:
        complete(error, "", {"input": input})
        raise


def _picked(input: Tensor, index: Any) -> Tensor:
    seen = _seen_in_memory(input, index)
    if seen is None:
        seen = _plain_view(input, index)
    if seen is not None:
        return seen
    if isinstance(index, Tensor) and input._type.shape and index._type.shape:
        dtype = index._type.dtype
        if dtype.kind == "int" and dtype is not u8:
            within_axis("x[i]", index, 0, input._type.shape[0], True, _given(input, index))
            return emit(ops.take, (input, _wide(index)), axis=0)
        mask = at_hand(index) if dtype is bool_ else None
        if mask is not None and mask.shape == input._type.shape[: mask.ndim]:
            return _at_places(input, mask.ndim, np.flatnonzero(mask))
    if are_columns(index, input):
        places = _counted(index, input._type.shape[: len(index)])
        if places is None:
            return _pick(input, input, [Pick(axis, x, axis) for axis, x in enumerate(index)])
        return _at_places(input, len(index), places)
    view, parsed = _basic_view(input, index)
    if parsed.mask is not None:
        parsed.picks = [*parsed.picks, *_nonzero_picks(parsed)]
    return _pick(input, view, sorted(parsed.picks, key=_axis)) if parsed.picks else view


def _counted(index: tuple[Any, ...], lengths: Shape) -> np.ndarray | None:
    """Places by an index of each axis, counted in row-major order.

    None where that isn't plain: indices of a trace, negative ones, out of range, of another shape,
    and axes of any length.
    """
    if any(map(is_open, lengths)):
        return None
    arrays: Any = tuple(map(at_hand, index))
    try:
        return np.asarray(np.ravel_multi_index(arrays, lengths))
    except (TypeError, ValueError):
        return None


def are_columns(index: Any, x: Tensor) -> bool:
    """Whether an index is nothing but a tensor of numbers for each of the first axes."""
    return type(index) is tuple and 0 < len(index) <= x.ndim and all(map(_is_column, index))


def _at_places(x: Tensor, axes: int, places: np.ndarray) -> Tensor:
    """What lies at places of the first axes, counted in row-major order."""
    shape = x._type.shape
    merged = reshaped(x, (prod(shape[:axes]), *shape[axes:]))
    return emit(ops.take, (merged, from_array(places)), axis=0)


def replaced_at(
    x: Tensor, index: Sequence[Tensor], value: Tensor, accumulate: bool = False
) -> Update | None:
    """A tensor with elements replaced, or added to, where an index of each of its first axes says.

    None where the index isn't plain, as `_counted` has it.
    """
    shape = x._type.shape
    places = _counted(tuple(index), shape[: len(index)])
    if places is None:
        return None
    rest = shape[len(index) :]
    merged = reshaped(x, (prod(shape[: len(index)]), *rest))
    source = _fitted(value, (*places.shape, *rest))
    op = ops.index_add if accumulate else ops.index_set
    operands = merged, from_array(places), source
    return Update(op, operands, {"axis": 0}, partial(reshaped, shape=shape))


def _is_column(item: Any) -> bool:
    """Whether an entry of an index is nothing but a tensor of numbers."""
    return isinstance(item, Tensor) and item._type.dtype is i64


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """Write `value` to `input[index]`, in place.

    Of several values for one element the last one stays. The value is converted to the tensor's
    dtype.

    Args:
        input: the tensor that is written to, also through views of it.
        index: as `getitem` takes it.
        value: a number, or a tensor that broadcasts to what the index picks.

    Raises:
        ArgumentError: the value is a list or an array.
        ShapeError: the value doesn't broadcast.
        IndexOutOfRangeError: an index isn't in its axis.

    >>> x = lucid.zeros(2, 3)
    >>> x[:, 1] = lucid.tensor([7.0, 8.0])
    >>> x[x == 0] = -1.0
    >>> x
    tensor([[-1.,  7., -1.],
            [-1.,  8., -1.]])
    """
    new = _assigned(value, input)
    recorder, part = context.recorder, None
    if recorder is not None:
        index = recorder.parts.with_numbers(index)
        part = recorder.parts.store(input, index, value)
        index = recorder.parts.index(input, index)
    _store(input, index, new)
    if part is not None:
        part.agree(input, value)


def _store(input: Tensor, index: Any, new: Tensor) -> None:
    try:
        if _is_stored(input, index, new):
            return
        seen = _plain_view(input, index)
        if seen is not None:
            write_(seen, _without_leading_ones(new, seen.ndim))
            return
        if not new._type.shape and _is_mask_of(index, input):
            chosen(index, new, input).write(input)
            return
        if are_columns(index, input):
            update = replaced_at(input, index, new)
            if update is not None:
                update.write(input)
                return
        view, parsed = _basic_view(input, index)
    except IndexOutOfRangeError as error:
        complete(error, "", {"input": input})
        raise
    if parsed.mask is not None:
        update = None if parsed.picks else _masked(view, parsed.mask, parsed.mask_axis, new)
        if update is not None:
            update.write(view)
            return
        parsed.picks = [*parsed.picks, *_nonzero_picks(parsed)]
    if not parsed.picks:
        write_(view, _without_leading_ones(new, view.ndim))
    else:
        picks = sorted(parsed.picks, key=_axis)
        replaced("x[i] = value", input, view, picks, new).write(view)


def _is_stored(input: Tensor, index: Any, new: Tensor) -> bool:
    """Write where an index says with NumPy's own assignment, if only memory is to change.

    So no tensor is made between. What isn't plain, or is wrong, is left to the ops.
    """
    memory, array = input._array, new._array
    if memory is None or array is None or new._type.dtype is not input._type.dtype:
        return False
    if not is_memory_alone(input, new):
        return False
    items = index if type(index) is tuple else (index,)
    place: Any = _basic_place(items, True)
    if place is not None:
        try:
            part = memory[place]
        except IndexError:
            return False
        if array.ndim and array.shape != part.shape:
            return False
        write_part(input, part, array)
        return True
    place = _picking_place(items, memory, array)
    return place is not None and write_picked(input, memory, place, array)


def _basic_place(items: tuple[Any, ...], takes_tensors: bool) -> tuple[Any, ...] | None:
    """NumPy's index of ints and slices; None: it has others. What it shows is a view.

    takes_tensors: those without axes are ints, too.
    """
    place: list[Any] = []
    for item in items:
        if type(item) is slice:
            if not _is_plain_slice(item):
                return None
        elif type(item) is not int:
            if not takes_tensors or not isinstance(item, Tensor) or item._type.shape:
                return None
            if not _is_number(item):
                return None
            assert item._array is not None
            item = item._array.item()
        place.append(item)
    return (*place, ...)


def _is_plain_slice(item: slice) -> bool:
    """Whether NumPy takes a slice for the same."""
    for bound in (item.start, item.stop):
        if bound is not None and type(bound) is not int:
            return False
    return item.step is None or (type(item.step) is int and item.step != 0)


def _is_number(item: Tensor) -> bool:
    """Whether a tensor that has data holds indices, and no flags."""
    dtype = item._type.dtype
    return dtype.kind == "int" and dtype is not u8 and item._array is not None


def _picking_place(
    items: tuple[Any, ...], memory: np.ndarray, array: np.ndarray
) -> list[Any] | None:
    """NumPy's index of vectors for the first axes, or of a mask; None: it has something else.

    A number may stand between slices as well, where nobody asks for the order of the axes. None as
    well where so much is picked that native code does it faster.
    """
    shape = memory.shape
    if len(items) == 1 and isinstance(items[0], Tensor) and items[0]._type.dtype is bool_:
        mask = items[0]._array
        if mask is None or not mask.ndim or mask.shape != shape[: mask.ndim]:
            return None
        count, rest = int(np.count_nonzero(mask)), shape[mask.ndim :]
        is_first = True
        place: list[Any] = [np.flatnonzero(mask) if mask.ndim == 1 else mask]
    else:
        if len(items) > len(shape):
            return None
        place, count, is_first, rest = [], -1, True, shape[len(items) :]
        for item, size in zip(items, shape, strict=False):
            if type(item) is slice:
                if not _is_plain_slice(item):
                    return None
                is_first, rest = False, (size, *rest)
            elif type(item) is int:
                is_first = False
            elif isinstance(item, Tensor) and _is_number(item) and item.ndim == 1:
                if count not in (-1, item._type.shape[0]):
                    return None
                count, item = item._type.shape[0], np.ascontiguousarray(item._array)
            else:
                return None
            place.append(item)
    if array.ndim and not (is_first and array.shape == (count, *rest)):
        return None
    return place if count * prod(rest) <= most_overwritten(memory.size) else None


def _seen_in_memory(x: Tensor, index: Any) -> Tensor | None:
    """The view that an index makes of ints and slices, where nobody keeps its history.

    `_plain_view` makes the same one by its ops, of which much is looked up: rows that are read one
    by one have each an index that has not come before. Axes of size 1 are left to the ops.
    """
    items = index if type(index) is tuple else (index,)
    place, memory = _basic_place(items, False), x._array
    if place is None or memory is None or not is_unrecorded(x):
        return None
    try:
        part = memory[place]
    except IndexError:
        return None
    if part.shape and min(part.shape) < 2:
        return None
    starts, stops, steps = [], [], []
    keeps_axes = True
    for item, size in zip(items, memory.shape, strict=False):
        if type(item) is slice:
            start, stop, step = item.indices(size)
        else:
            start, step, keeps_axes = item + size if item < 0 else item, 1, False
            stop = start + 1
        starts.append(start)
        stops.append(stop)
        steps.append(step)
    for size in memory.shape[len(items) :]:
        starts.append(0)
        stops.append(size)
        steps.append(1)
    slices = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
    if keeps_axes:
        return view_of_memory(x, part, (ops.slice, slices))
    return view_of_memory(x, part, (ops.slice, slices), (ops.reshape, {"shape": part.shape}))


def _is_mask_of(index: Any, x: Tensor) -> bool:
    """Whether an index is a mask that says of each element of a tensor whether it is meant."""
    if not isinstance(index, Tensor) or index._type.dtype is not bool_:
        return False
    return index._type.shape == x._type.shape != ()


def _axis(pick: Pick) -> int:
    return pick.axis


def _assigned(value: Any, target: Tensor) -> Tensor:
    if isinstance(value, (list, tuple, np.ndarray)) and not isinstance(value, np.generic):
        raise ArgumentError(
            f"setitem: can't assign a {kind_of(value)} to a tensor\n"
            "hint: lucid.tensor(...) or lucid.from_numpy(array) makes a tensor"
        )
    return operand(value, target._type.dtype, "setitem")


def _without_leading_ones(x: Tensor, ndim: int) -> Tensor:
    """Drop axes that a value has above the target's, where they have size 1."""
    shape = x._type.shape
    surplus = len(shape) - ndim
    if surplus > 0 and all(size == 1 for size in shape[:surplus]):
        return reshaped(x, shape[surplus:])
    return x


@dataclass(slots=True)
class _Parsed:
    """An index, taken apart.

    Attributes:
        starts, stops, steps: the slice of each axis of the input.
        shape: of the view: sliced axes, without those of ints, with those of None.
        picks: integer tensors, each with its axis of the view.
        mask, mask_axis: the first bool mask, with its first axis of the view.
        trivial: the view is the whole tensor.
    """

    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    picks: Picks = field(default_factory=list)
    mask: Tensor | np.ndarray | None = None
    mask_axis: int = 0
    trivial: bool = True

    def whole(self, size: int) -> None:
        self.starts.append(0)
        self.stops.append(size)
        self.steps.append(1)

    def keep(self, size: int) -> None:
        self.whole(size)
        self.shape.append(size)

    def views(self) -> tuple[Attributes | None, Attributes | None]:
        """The attributes of the slice and the reshape that make the view; None: it needs none."""
        starts, stops, steps = map(tuple, (self.starts, self.stops, self.steps))
        part = {"starts": starts, "stops": stops, "steps": steps} if starts else None
        shape, lengths = tuple(self.shape), map(taken, starts, stops, steps)
        return part, {"shape": shape} if not starts or shape != tuple(lengths) else None


def _basic_view(x: Tensor, index: Any) -> tuple[Tensor, _Parsed]:
    """The view that ints, slices and None make, and what is left to be picked from it."""
    parsed = _parse(x._type.shape, _items(index))
    if parsed.trivial and (parsed.picks or parsed.mask is not None):
        return x, parsed
    return _seen(x, *parsed.views()), parsed


def _seen(x: Tensor, part: Attributes | None, shape: Attributes | None) -> Tensor:
    """The slice with such attributes, in such a shape."""
    view = x if part is None else view_by(ops.slice, x, part)
    return view if shape is None else view_by(ops.reshape, view, shape)


_Entry = int | tuple[int | None, ...] | EllipsisType | None


def _plain_view(x: Tensor, index: Any) -> Tensor | None:
    """The view that an index makes of ints, slices, None and `...`; None: it has something else."""
    entries: list[_Entry] = []
    for item in index if type(index) is tuple else (index,):
        if type(item) is slice:
            bounds = item.start, item.stop, item.step
            for bound in bounds:
                if bound is not None and type(bound) is not int:
                    return None
            entries.append(bounds)
        elif type(item) is int or item is None or item is Ellipsis:
            entries.append(item)
        else:
            return None
    shape = x._type.shape
    is_open_here = context.recorder is not None and any(map(is_open, shape))
    return _seen(x, *(_views.__wrapped__ if is_open_here else _views)(shape, tuple(entries)))


@lru_cache(1024)
def _views(
    shape: Shape, entries: tuple[_Entry, ...]
) -> tuple[Attributes | None, Attributes | None]:
    """The attributes of the views that an index makes, each of whose slices is a tuple here."""
    return _parse(shape, [slice(*x) if type(x) is tuple else x for x in entries]).views()


def _items(index: Any) -> list[Any]:
    """The entries of an index. A list that holds slices, None, `...` or tensors is a tuple."""
    if isinstance(index, tuple):
        return [_entry(item) for item in index]
    if isinstance(index, list) and not hasattr(type(index), "as_tensor"):
        kinds = (slice, Tensor, type(None), type(Ellipsis))
        if any(isinstance(item, kinds) for item in index):
            return [_entry(item) for item in index]
        if any(isinstance(item, (list, tuple, np.ndarray)) for item in index):
            raise OptionError(
                "indexing: a list of lists may mean one index per axis, or one index array\n"
                "hint: write x[a, b] for the first, x[lucid.tensor([a, b])] for the second"
            )
    return [_entry(index)]


def _entry(item: Any) -> Any:
    """An entry as int, bool, slice, None, Ellipsis, or a tensor or array of indices."""
    if (
        item is None
        or item is Ellipsis
        or is_open(item)
        or isinstance(item, (slice, bool, int, Tensor))
    ):
        if isinstance(item, Tensor) and item._type.dtype.kind == "float":
            raise NotAnIndexError("indexing: tensors used as indices must be integers or bools")
        if isinstance(item, Tensor) and item._type.dtype is u8:
            return _mask_of_bytes(item)
        return item
    if type(item) is not item.__class__ and hasattr(type(item), "as_tensor"):
        return _entry(item.as_tensor())  # an array that is known when the step has run
    if isinstance(item, np.generic) and item.dtype.kind in "biu":
        return item.item()
    are_ints = isinstance(item, (list, tuple)) and {x.__class__ for x in item} == {int}
    if are_ints and any(type(x) is not int for x in item):
        return tensor([*item])  # some are known when the step runs
    if isinstance(item, (list, tuple, range, np.ndarray)):
        array = np.asarray(plain_data(item, "indexing"))
        if array.size == 0 and not isinstance(item, np.ndarray):
            array = array.astype(np.int64)
        if array.dtype.kind not in "biu":
            raise DTypeError(f"indexing: arrays used as indices hold integers or bools, not {item}")
        if array.dtype.kind == "b":
            return array
        if isinstance(item, np.ndarray) and context.recorder is not None and has_dtype(item):
            return cast(of_users_array(array), i64)  # read at each call
        return from_array(array.astype(np.int64))
    if hasattr(item.__class__, "__index__") and not isinstance(item, np.generic):
        return item.__index__()
    raise NotAnIndexError(
        "indexing: only integers, slices (`:`), ellipsis (`...`), None and integer or bool "
        f"tensors, lists and arrays are valid indices, not {item!r}"
    )


def _mask_of_bytes(item: Tensor) -> Tensor:
    """What a uint8 tensor means as an index: a mask, as in PyTorch before there were bools."""
    warn(
        "indexing with dtype lucid.uint8 is now deprecated, please use a dtype lucid.bool instead.",
        UserWarning,
    )
    return cast(item, bool_)


def _consumed(item: Any) -> int:
    """How many axes of the input an entry stands for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if _is_mask(item):
        return int(item.ndim)
    return 1


def _is_mask(item: Any) -> bool:
    if isinstance(item, Tensor):
        return item._type.dtype.kind == "bool"
    return isinstance(item, np.ndarray)


def _parse(shape: Shape, items: list[Any]) -> _Parsed:
    used = sum(map(_consumed, items))
    if used > len(shape):
        raise IndexOutOfRangeError(
            f"indexing: too many indices for tensor of dimension {len(shape)}: {used}"
        )
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise OptionError("indexing: an index can only have a single ellipsis ('...')")
    at = ellipses[0] if ellipses else len(items)
    filled = [*items[:at], *[slice(None)] * (len(shape) - used), *items[at + 1 :]]
    parsed = _Parsed()
    for item in filled:
        _parse_entry(parsed, item, shape)
    return parsed


def _parse_entry(parsed: _Parsed, item: Any, shape: Shape) -> None:
    axis = len(parsed.starts)
    if item is None or item is True:
        parsed.shape.append(1)
        parsed.trivial = False
    elif item is False:
        parsed.shape.append(1)
        nothing = from_array(np.zeros(0, np.int64))
        parsed.picks.append(Pick(len(parsed.shape) - 1, nothing, None))
        parsed.trivial = False
    elif isinstance(item, slice):
        _parse_slice(parsed, item, shape[axis])
    elif isinstance(item, int) or is_open(item):
        at = checked_index(item, shape[axis], axis, "x[i]")
        parsed.starts.append(at)
        parsed.stops.append(at + 1)
        parsed.steps.append(1)
        parsed.trivial = False
    elif _is_mask(item):
        _parse_mask(parsed, item, shape)
    else:
        parsed.picks.append(Pick(len(parsed.shape), item, axis))
        parsed.keep(shape[axis])


def _parse_slice(parsed: _Parsed, item: slice, size: int) -> None:
    try:
        start, stop, step = indices_of(item, size)
    except ValueError:
        raise OptionError("indexing: slice step cannot be zero") from None
    length = taken(start, stop, step)
    if length == 0:
        start = stop = 0
        step = 1
    elif length == 1:
        stop, step = start + 1, 1  # whatever the step was, it isn't taken
    parsed.starts.append(start)
    parsed.stops.append(stop)
    parsed.steps.append(step)
    parsed.shape.append(length)
    if is_open(length - size) or length != size or step != 1:
        parsed.trivial = False


def _parse_mask(parsed: _Parsed, mask: Tensor | np.ndarray, shape: Shape) -> None:
    axis = len(parsed.starts)
    covered = shape[axis : axis + mask.ndim]
    if tuple(mask.shape) != covered:
        raise IndexOutOfRangeError(
            f"indexing: the shape of the mask {list(mask.shape)} at axis {axis} does not match the "
            f"shape of the indexed tensor {list(shape)}"
        )
    first = len(parsed.shape)
    if mask.ndim == 0:  # a 0-d mask adds an axis of size 0 or 1
        parsed.shape.append(1)
        parsed.trivial = False
    for size in covered:
        parsed.keep(size)
    if parsed.mask is None:
        parsed.mask, parsed.mask_axis = mask, first
    else:
        parsed.picks += _picks_of_mask(mask, first)


def _nonzero_picks(parsed: _Parsed) -> Picks:
    assert parsed.mask is not None
    return _picks_of_mask(parsed.mask, parsed.mask_axis)


def _picks_of_mask(mask: Tensor | np.ndarray, axis: int) -> Picks:
    """Indices of the mask's true elements, one tensor per axis."""
    if isinstance(mask, Tensor):
        what = "indexing with a bool mask, whose result's size depends on its data,"
        indices = found("nonzero", nonzero_indices, mask, what=what)
    else:
        indices = tuple(map(from_array, nonzero_indices(mask)))
    return [Pick(axis + i, index, None) for i, index in enumerate(indices)]


def _pick(input: Tensor, view: Tensor, picks: Picks) -> Tensor:
    if len(picks) > 1:
        _picked_shape(view._type.shape, picks)  # which looks at whether they go together
    _check_picks("x[i]", input, picks)
    view, picks = _take_scalars(view, picks)
    if not picks:
        return view
    merged, axis, index, _ = _merge(view, picks)
    return emit(ops.take, (merged, index), axis=axis)


def _check_picks(op: str, input: Tensor, picks: Picks) -> None:
    """Raise `IndexOutOfRangeError` for an index that isn't in its axis of the input."""
    for pick in picks:
        if (axis := pick.of) is not None:
            size, given = input._type.shape[axis], _given(input, pick.index)
            within_axis(op, pick.index, axis, size, True, given)


def _given(input: Tensor, index: Tensor) -> dict[str, Tensor]:
    return {"input": input, "index": index}


def _picked_shape(shape: Shape, picks: Picks) -> Shape:
    """The shape of what is picked. Raises `ShapeError` for indices that don't go together."""
    scalars = [pick.axis for pick in picks if pick.index.ndim == 0]
    picked = [pick for pick in picks if pick.index.ndim]
    rest = [size for axis, size in enumerate(shape) if axis not in {pick.axis for pick in picks}]
    if not picked:
        return tuple(rest)
    common = broadcast_all(*(pick.index._type.shape for pick in picked))
    if common is None:
        raise IndexShapeError(
            "indexing: shape mismatch: indexing tensors could not be broadcast together"
        )
    axes = [pick.axis - sum(axis < pick.axis for axis in scalars) for pick in picked]
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    return (*rest[:first], *common, *rest[first:])


def _take_scalars(view: Tensor, picks: Picks) -> tuple[Tensor, Picks]:
    """Apply 0-d index tensors first, as ints are; the axes of the others move down."""
    remaining: Picks = []
    taken = 0
    for pick in picks:
        axis = pick.axis - taken
        if pick.index.ndim == 0:
            view = emit(ops.take, (view, _wide(pick.index)), axis=axis)
            taken += 1
        else:
            remaining.append(Pick(axis, pick.index, pick.of))
    return view, remaining


def _wide(index: Tensor) -> Tensor:
    return index if index._type.dtype is i64 else emit(ops.cast, (index,), dtype=i64)


def _merge(view: Tensor, picks: Picks) -> tuple[Tensor, int, Tensor, tuple[int, ...]]:
    """Lay the picked axes side by side and make one of them.

    Returns the tensor, the merged axis, one index into it, and the order that the axes were put in.
    Where the axes are apart the result's axes of the index come first, else in their place.
    """
    axes = [pick.axis for pick in picks]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    first = axes[0] if adjacent else 0
    rest = [axis for axis in range(view.ndim) if axis not in axes]
    perm = (*rest[:first], *axes, *rest[first:])
    if perm != tuple(range(view.ndim)):
        view = permuted(view, perm)
    if len(picks) == 1:
        return view, first, _wide(picks[0].index), perm
    shape = view._type.shape
    sizes = shape[first : first + len(axes)]
    index = _linear([pick.index for pick in picks], sizes)
    merged = (*shape[:first], prod(sizes), *shape[first + len(axes) :])
    return reshaped(view, merged), first, index, perm


def _linear(indices: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """One row-major index from one per axis."""
    if context.recorder is None and not context.levels:
        arrays: Any = tuple([index._array for index in indices])
        return from_array(np.ravel_multi_index(arrays, tuple(sizes), "wrap"))
    note_turn()
    shape = broadcast_all(*(index._type.shape for index in indices))
    assert shape is not None
    linear: Any = None
    for index, size in zip(map(_wide, indices), sizes, strict=True):
        wrapped = choose(index < 0, index + size, index)
        linear = wrapped if linear is None else linear * size + wrapped
    return broadcast(linear, shape)


def replaced(
    op: str, input: Tensor, view: Tensor, picks: Picks, value: Tensor, accumulate: bool = False
) -> Update:
    """`view` with the picked elements replaced by `value`, or with `value` added to them.

    Of several values for one element the last one stays; when accumulating, all count.
    op: what the user called with `input`, of which `view` is the basic part.
    """
    value = _fitted(value, _picked_shape(view._type.shape, picks))
    _check_picks(op, input, picks)
    return _replaced(view, picks, value, accumulate)


def _replaced(view: Tensor, picks: Picks, value: Tensor, accumulate: bool) -> Update:
    for pick in picks:
        if pick.index.ndim == 0:
            return _replaced_slice(view, pick, picks, value, accumulate)
    merged, axis, index, perm = _merge(view, picks)
    shape = merged._type.shape
    source = _fitted(value, (*shape[:axis], *index._type.shape, *shape[axis + 1 :]))
    op = ops.index_add if accumulate else ops.index_set
    ordered = tuple(view._type.shape[i] for i in perm)

    def seen(result: Tensor) -> Tensor:
        if result._type.shape != ordered:
            result = reshaped(result, ordered)
        if perm == tuple(range(len(perm))):
            return result
        return permuted(result, tuple(sorted(range(len(perm)), key=perm.__getitem__)))

    return Update(op, (merged, index, source), {"axis": axis}, seen)


def _replaced_slice(
    view: Tensor, pick: Pick, picks: Picks, value: Tensor, accumulate: bool
) -> Update:
    """As `replaced`, inside the slice that a 0-d index names, as an int would."""
    axis, index = pick.axis, _wide(pick.index)
    part = emit(ops.take, (view, index), axis=axis)
    rest = [Pick(x.axis - (x.axis > axis), x.index, x.of) for x in picks if x is not pick]
    if rest:
        part = _replaced(part, rest, value, accumulate).result()
    else:
        new = _fitted(value, part._type.shape)
        part = part + new if accumulate else new
    shape = view._type.shape
    row = reshaped(part, (*shape[:axis], 1, *shape[axis + 1 :]))
    return Update(ops.index_set, (view, reshaped(index, (1,)), row), {"axis": axis})


def _fitted(value: Tensor, target: Shape) -> Tensor:
    value = _without_leading_ones(value, len(target))
    if broadcast_all(value._type.shape, target) != target:
        raise ShapeError(
            f"indexing: shape mismatch: value tensor of shape {list(value._type.shape)} cannot be "
            f"broadcast to indexing result of shape {list(target)}"
        )
    return broadcast(value, target)


def _masked(view: Tensor, mask: Tensor | np.ndarray, axis: int, value: Tensor) -> Update | None:
    """`view` with `value` where the mask holds; None if true elements have a value each."""
    ndim = mask.ndim
    behind = view.ndim - axis - max(ndim, 1)
    value = _without_leading_ones(value, axis + 1 + behind)
    shape = value._type.shape
    if len(shape) > behind:
        place = len(shape) - behind - 1
        if shape[place] != 1:
            return None
        value = reshaped(value, (*shape[:place], *(1,) * max(ndim, 1), *shape[place + 1 :]))
    condition = mask if isinstance(mask, Tensor) else from_array(mask)
    condition = reshaped(condition, (*(condition._type.shape or (1,)), *(1,) * behind))
    if broadcast_all(value._type.shape, view._type.shape) != view._type.shape:
        raise ShapeError(
            f"indexing: shape mismatch: value tensor of shape {list(shape)} cannot be broadcast to "
            f"the masked part of {list(view._type.shape)}"
        )
    return chosen(condition, value, view)
