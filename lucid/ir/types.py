"""Element types and tensor types: what a value of the IR is.

`f32[64,128]` is a row-major idea only; layout is decided when buffers are assigned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import prod
from typing import Literal
from weakref import WeakValueDictionary

import numpy as np

from lucid.ir.errors import DTypeError, SizeError, TooLargeError
from lucid.ir.extents import is_open

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type; one instance each, compared by identity.

    Attributes:
        name: as IR text spells it, `f32`.
        torch_name: as users spell it, `float32`.
        numpy: the NumPy dtype with the same bytes.
        kind: "bool", "int" or "float".

    >>> from lucid.ir import DType
    >>> isinstance(lucid.float32, DType), lucid.float32.name, lucid.float32.itemsize
    (True, 'f32', 4)
    """

    name: str
    torch_name: str
    numpy: np.dtype[np.generic]
    kind: Literal["bool", "int", "float"]

    @property
    def itemsize(self) -> int:
        """Bytes per element in memory; a bool takes one."""
        return int(self.numpy.itemsize)

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "float"

    @property
    def is_signed(self) -> bool:
        return self.numpy.kind in "if"

    @property
    def is_complex(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"lucid.{self.torch_name}"

    def __reduce__(self) -> tuple[object, ...]:
        return dtype_named, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self


bool_ = DType("bool", "bool", np.dtype(np.bool_), "bool")
u8 = DType("u8", "uint8", np.dtype(np.uint8), "int")
i8 = DType("i8", "int8", np.dtype(np.int8), "int")
i16 = DType("i16", "int16", np.dtype(np.int16), "int")
i32 = DType("i32", "int32", np.dtype(np.int32), "int")
u32 = DType("u32", "uint32", np.dtype(np.uint32), "int")
i64 = DType("i64", "int64", np.dtype(np.int64), "int")
f32 = DType("f32", "float32", np.dtype(np.float32), "float")
f64 = DType("f64", "float64", np.dtype(np.float64), "float")

DTYPES = (bool_, u8, i8, i16, i32, i64, u32, f32, f64)
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}


def dtype_named(name: str) -> DType:
    """Return the dtype that IR text calls `name`. Raises `DTypeError`."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DTypeError(f"no dtype {name!r}; there are {', '.join(_BY_NAME)}") from None


def dtype_of_numpy(dtype: np.dtype[np.generic]) -> DType:
    """Return the dtype with the bytes of a NumPy dtype. Raises `DTypeError` for all others."""
    try:
        return _BY_NUMPY[dtype]
    except (KeyError, TypeError):
        supported = ", ".join(str(d.numpy) for d in DTYPES)
        raise DTypeError(
            f"arrays of dtype {dtype} are not supported; supported are {supported}\n"
            "hint: convert with .astype(...) first"
        ) from None


@cache
def limits_of(dtype: DType) -> tuple[int, int]:
    """The least and the greatest number of a dtype of integers."""
    limits = np.iinfo(dtype.torch_name)
    return int(limits.min), int(limits.max)


def has_dtype(array: np.ndarray) -> bool:
    """Whether lucid has a dtype for the array's elements."""
    return array.dtype in _BY_NUMPY


MOST_BYTES = 2**63 - 1
"""Of a value: its bytes, and so its elements, strides and offsets, are counted in an i64."""
_SMALL = 2**60  # elements of 8 bytes are fewer than that


@dataclass(frozen=True, slots=True, init=False, weakref_slot=True)
class TensorType:
    """Element type and static shape: `f32[64,128]`, `i64[]`.

    Axes of size 0 count as one element for the limit of bytes, since the strides of the others are
    products of the sizes; NumPy has the same limit.

    Args:
        dtype: the element type, such as `lucid.float32`.
        shape: the sizes of the axes.

    Attributes:
        size: the number of elements.

    Raises:
        SizeError: a negative size.
        TooLargeError: the elements, in row-major order without gaps, would take more than
            `MOST_BYTES`.

    >>> type = lucid.ir.TensorType(lucid.float32, (64, 128))
    >>> str(type), type.size, type.nbytes
    ('f32[64,128]', 8192, 32768)
    """

    dtype: DType
    shape: Shape

    size: int = field(repr=False, compare=False)

    def __init__(self, dtype: DType, shape: Shape) -> None:
        size = prod(shape)
        _set_dtype(self, dtype)
        _set_shape(self, shape)
        _set_size(self, size)
        if size.__class__ is int and 0 < size < _SMALL and min(shape, default=1) > 0:
            return
        if shape and not (all(n > 0 for n in shape) and size < _SMALL):
            self._check_sizes()

    def _check_sizes(self) -> None:
        if min(self.shape) < 0:
            raise SizeError(f"a size is negative in {self}")
        if prod(max(size, 1) for size in self.shape) * self.dtype.itemsize > MOST_BYTES:
            raise TooLargeError(f"the bytes of {self} are more than 64 bits can count")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)


# Eager ops make types: what a frozen dataclass is set with otherwise takes twice as long.
_set_dtype = vars(TensorType)["dtype"].__set__
_set_shape = vars(TensorType)["shape"].__set__
_set_size = vars(TensorType)["size"].__set__


def type_of_array(array: np.ndarray) -> TensorType:
    """The type of an array's elements and shape. Raises `DTypeError`."""
    return shared_type(dtype_of_numpy(array.dtype), array.shape)


@lru_cache(maxsize=4096)
def shared_type(dtype: DType, shape: Shape) -> TensorType:
    """One object for equal types, so that most comparisons end at once.

    It stays the one as long as anything holds it, such as what is known of an op on it.
    """
    sizes = tuple([n if n.__class__ is int or is_open(n) else int(n) for n in shape])
    return _in_use.setdefault((dtype, sizes), TensorType(dtype, sizes))


_in_use: WeakValueDictionary[tuple[DType, Shape], TensorType] = WeakValueDictionary()
