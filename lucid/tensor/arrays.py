"""NumPy's arrays at the entrances of the library: inside of it there are only plain `ndarray`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid.ir.errors import ArgumentError, DTypeError, OptionError, ShapeError, TooLargeError
from lucid.ir.inference import LESS, MOST_AXES, MOST_ELEMENTS
from lucid.ir.memory import copied
from lucid.ir.types import DType, dtype_of_numpy

OFTEN = {bool, int, float}
_NUMBERS = "biuf"  # kinds of dtypes whose elements are numbers that a tensor can hold


def plain_array(given: Any, what: str) -> np.ndarray:
    """An array as `np.asarray` gives it: of the class `ndarray`, on the same memory.

    Every entrance of the library takes arrays by this function. An `np.matrix`, an `np.memmap` or
    an array of a class of the user's is seen as what it is in memory, and none of its methods is
    called, then or later. What is no array is asked for its `__array__`.

    what: names it in a message.
    Raises: `OptionError` for masked elements, which are no numbers.
    """
    if type(given) is np.ndarray:
        return given
    array = np.asanyarray(given)
    if isinstance(array, np.ma.MaskedArray):
        _refuse_masked(array, what)
    return np.asarray(array)


def _refuse_masked(array: np.ma.MaskedArray[Any, Any], what: str) -> None:
    mask, plain = np.asarray(np.ma.getmask(array)), np.asarray(array)
    if mask.dtype.names is None and (count := np.count_nonzero(mask)):
        raise OptionError(
            f"{what}: {count} of the {plain.size} elements of a masked array are masked, and a "
            f"tensor has no mask\n  array: {plain.dtype}{list(plain.shape)}\n"
            "hint: x.filled(value) puts a number in their places"
        )


def shareable(given: Any, what: str) -> np.ndarray:
    """The plain array, one that a tensor can lie on. Raises `ArgumentError` for odd strides."""
    array = given if type(given) is np.ndarray else plain_array(given, what)
    if array.itemsize and any(stride % array.itemsize for stride in array.strides):
        raise ArgumentError(
            f"an array whose strides {array.strides} are no multiples of its item size "
            f"{array.itemsize} can't be shared\nhint: pass array.copy()"
        )
    return array


def native_dtype(dtype: np.dtype[Any]) -> DType:
    """The dtype of a copy, whose bytes are in the processor's order. Raises `DTypeError`."""
    return dtype_of_numpy(dtype if dtype.isnative else dtype.newbyteorder("="))


def copied_array(array: np.ndarray, dtype: DType | None, what: str) -> np.ndarray:
    """A row-major copy of a plain array, in the dtype asked for or in its own.

    The order of the bytes of a number is NumPy's business: a copy has that of the processor.
    Raises: `DTypeError` for what are no numbers, and for a dtype that lucid hasn't got.
    """
    own = array.dtype
    if dtype is None:
        dtype = native_dtype(own)
    elif own.kind not in _NUMBERS:
        raise DTypeError(
            f"{what}: elements of dtype {own} are no numbers that {dtype!r} could hold\n"
            f"  array: {own}{list(array.shape)}\n"
            "hint: convert with .astype(...) first"
        )
    return copied(array, dtype.numpy)


def is_nested(data: Any) -> bool:
    """Whether data has items in an order: a list, a tuple, a deque, a range."""
    if isinstance(data, (list, tuple)):
        return True
    return isinstance(data, Sequence) and not isinstance(data, (str, bytes))


def plain_data(data: Any, what: str, depth: int = 0) -> Any:
    """Nested lists and tuples with plain arrays in them.

    depth: how many levels there are around it.
    Raises: `ShapeError` for too many levels, `TooLargeError` for more items than can be counted.
    """
    if type(data) is range and data:
        return _of_range(data, what)
    if is_nested(data):
        if depth == MOST_AXES:
            raise ShapeError(f"{what}: lists on more than {MOST_AXES} levels, or one in itself")
        if not isinstance(data, (list, tuple)):
            # As many as it says: a sequence of the user's may go on without end.
            data = np.fromiter(data, object, len(data)).tolist()
        if OFTEN.issuperset(map(type, data)):
            return data
        return [plain_data(item, what, depth + 1) for item in data]
    return plain_array(data, what) if isinstance(data, np.ndarray) else data


def _of_range(data: range, what: str) -> Any:
    """The numbers of a range, as an array of i64 where they fit, so that none is an object."""
    count = (data[-1] - data[0]) // data.step + 1  # `len` has 63 bits
    if count > MOST_ELEMENTS:
        raise TooLargeError(f"{what}: {data} has {count:,} elements; {LESS}")
    limits = np.iinfo(np.int64)
    fits = all(limits.min <= end <= limits.max for end in (data[0], data[-1] + data.step))
    if not fits:
        return [*data]
    return np.arange(data[0], data[-1] + data.step, data.step, dtype=np.int64)
