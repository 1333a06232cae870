"""A sparse tensor: coordinates and values, two ordinary tensors that gradients flow through.

Products are a gather, a multiplication and an ordered scatter-add, so they trace, fuse and
differentiate like all else. Its fields make it a node of nested arguments: a compiled function
takes and returns sparse tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.device import check_device
from lucid.docstrings import like
from lucid.functions.arguments import Dims, axes_of, sizes_of
from lucid.functions.checks import in_range
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, LucidError, ShapeError, SizeError, TraceError
from lucid.ir.types import DType, TensorType, f32, f64, i64
from lucid.layouts import sparse_coo
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, constant, from_array
from lucid.tensor.size import Size

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class SparseTensor:
    """A tensor of which only some entries are stored; made by `lucid.sparse_coo_tensor`.

    Attributes:
        coordinates: i64[d, n], the place of each stored entry.
        entries: [n], the stored numbers; equal places add up.
        size_: the shape.
        is_sorted: whether places are row-major sorted and differ.
        is_pending: coalesced in a trace, where the number of places that differ isn't known: the
            parts are still those of before.

    >>> a = lucid.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> isinstance(a, lucid.sparse.SparseTensor), a.shape
    (True, lucid.Size([2, 3]))
    >>> (2 * a).to_dense()
    tensor([[0., 0., 6.],
            [8., 0., 0.]])
    """

    coordinates: Tensor
    entries: Tensor
    size_: tuple[int, ...]
    is_sorted: bool
    is_pending: bool = False

    is_sparse = True
    layout = sparse_coo

    @property
    def shape(self) -> Size:
        return Size(self.size_)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length of one axis."""
        return self.shape if dim is None else self.size_[dim]

    @property
    def dtype(self) -> DType:
        return self.entries.dtype

    @property
    def ndim(self) -> int:
        return len(self.size_)

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def sparse_dim(self) -> int:
        """The number of axes that are stored by coordinates: all of them."""
        return self.ndim

    def dense_dim(self) -> int:
        """The number of axes of each stored value: none."""
        return 0

    @property
    def requires_grad(self) -> bool:
        return self.entries.requires_grad

    def is_coalesced(self) -> bool:
        """Whether places are sorted and differ."""
        return self.is_sorted or self.is_pending

    def _nnz(self) -> int:
        return self._settled("_nnz").entries._type.size

    def _indices(self) -> Tensor:
        return self._settled("_indices").coordinates

    def _values(self) -> Tensor:
        return self._settled("_values").entries

    def _settled(self, what: str) -> SparseTensor:
        """The same with the parts that it has in eager mode. In a trace they aren't known."""
        if not self.is_pending:
            return self
        if context.recorder is not None:
            raise TraceError(
                f"{what} of a coalesced sparse tensor: how many places differ is known only when "
                "the step runs\nhint: coalesce before, pass is_coalesced=True to "
                "sparse_coo_tensor, or put it into a custom Function"
            )
        return replace(self, is_pending=False).coalesce()

    def indices(self) -> Tensor:
        """i64[d, n]. Raises `LucidError` unless coalesced."""
        settled = self._settled("indices")
        return settled._coalesced_only(settled.coordinates, "indices")

    def values(self) -> Tensor:
        """[n]. Raises `LucidError` unless coalesced."""
        settled = self._settled("values")
        return settled._coalesced_only(settled.entries, "values")

    def _coalesced_only(self, part: Tensor, what: str) -> Tensor:
        if not self.is_sorted:
            raise LucidError(
                f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )
        return part

    def coalesce(self) -> SparseTensor:
        """Sort the places and add up equal ones.

        How many differ isn't known in a trace: a custom Function that asks becomes a host call.
        Elsewhere in a step the result may be multiplied and made dense, but its parts not seen.
        """
        if self.is_coalesced():
            return self
        if context.recorder is not None:
            context.recorder.hosts.leave()
            return replace(self, is_pending=True)
        flat = np.ravel_multi_index(tuple(self.coordinates.detach().numpy()), self.size_)
        places, slots = np.unique(flat, return_inverse=True)
        zeros = from_array(np.zeros(len(places), self.dtype.numpy))
        entries = ops.index_add(zeros, from_array(slots.astype(np.int64)), self.entries, axis=0)
        coordinates = np.array(np.unravel_index(places, self.size_), np.int64)
        return SparseTensor(from_array(coordinates), entries, self.size_, True)

    def to_dense(self) -> Tensor:
        """The same with every entry stored."""
        cells = int(np.prod(self.size_))
        dense = ops.index_add(_zeros((cells,), self.dtype), self._flat(), self.entries, axis=0)
        return ops.reshape(dense, shape=self.size_)

    def _flat(self) -> Tensor:
        """Row-major numbers of the places."""
        flat: Any = constant(0, i64)
        for axis, length in enumerate(self.size_):
            flat = flat * length + self.coordinates[axis]
        return flat  # type: ignore[no-any-return]

    def t(self) -> SparseTensor:
        """The transposed matrix. Raises `ShapeError` for more than two axes."""
        if self.ndim != 2:
            raise ShapeError(f"t: expects a tensor with 2 dimensions, this one has {self.ndim}")
        flipped = ops.flip(self.coordinates, 0)
        return SparseTensor(flipped, self.entries, self.size_[::-1], False)

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """Swap the two axes of a matrix."""
        return self if dim0 % self.ndim == dim1 % self.ndim else self.t()

    def detach(self) -> SparseTensor:
        """The same without history."""
        return replace(self, entries=self.entries.detach())

    def clone(self) -> SparseTensor:
        """The same in memory of its own."""
        return replace(self, coordinates=self.coordinates.clone(), entries=self.entries.clone())

    def to(self, dtype: DType) -> SparseTensor:
        """The same with values of another dtype."""
        return replace(self, entries=self.entries.to(dtype))

    def float(self) -> SparseTensor:
        """The same with float32 values."""
        return self.to(f32)

    def double(self) -> SparseTensor:
        """The same with float64 values."""
        return self.to(f64)

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Ask for gradients of the values."""
        self.entries.requires_grad_(requires_grad)
        return self

    def matmul(self, other: Tensor) -> Tensor:
        """Multiply a matrix (n, k) with a dense (k, m) or (k,)."""
        result: Tensor = product(self, other)
        return result

    mm = matmul
    __matmul__ = matmul

    def sum(self, dim: Dims = None, *, dtype: DType | None = None) -> Any:
        """The sum of its entries along axes, as `lucid.sparse.sum` gives it."""
        return sum(self, dim, dtype)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        result: Tensor = product(other, self)
        return result

    def __mul__(self, number: Any) -> SparseTensor:
        if not isinstance(number, (int, float)) and number.ndim > 0:
            raise ArgumentError("a sparse tensor is multiplied by a number or a 0-d tensor only")
        return replace(self, entries=self.entries * number)

    __rmul__ = __mul__

    def __truediv__(self, number: Any) -> SparseTensor:
        return replace(self, entries=self.entries / number)

    def __neg__(self) -> SparseTensor:
        return replace(self, entries=-self.entries)

    def __add__(self, other: SparseTensor) -> SparseTensor:
        if getattr(other, "size_", None) != self.size_:
            raise ArgumentError("a sparse tensor is added to a sparse tensor of the same shape")
        coordinates = ops.concat(self.coordinates, other.coordinates, axis=1)
        entries = ops.concat(self.entries, other.entries, axis=0)
        return SparseTensor(coordinates, entries, self.size_, False)

    def __repr__(self) -> str:
        return (
            f"tensor(indices={self.coordinates!r},\n       values={self.entries!r},\n"
            f"       size={self.size_}, nnz={self._nnz()}, layout=sparse_coo)"
        )


def _zeros(shape: tuple[int, ...], dtype: DType) -> Tensor:
    zero = constant(0, dtype)
    return ops.broadcast(zero, shape=shape)


def FloatTensor(indices: Any, values: Any, size: Sequence[int] | None = None) -> SparseTensor:
    """Make a sparse tensor of float32 values: an older name of `lucid.sparse_coo_tensor`.

    Args:
        indices: the places of the entries, (d, n).
        values: the entries, (n,).
        size: the shape. Default: None, the smallest that holds all places.

    Raises:
        ShapeError: shapes that don't fit.
        IndexOutOfRangeError: a place outside of `size`.

    >>> lucid.sparse.FloatTensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    return sparse_coo_tensor(indices, values, size, dtype=f32)


@like(FloatTensor)
def DoubleTensor(indices: Any, values: Any, size: Sequence[int] | None = None) -> SparseTensor:
    """Make a sparse tensor of float64 values: an older name of `lucid.sparse_coo_tensor`.

    >>> lucid.sparse.DoubleTensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).dtype
    lucid.float64
    """
    return sparse_coo_tensor(indices, values, size, dtype=f64)


def from_dense(dense: Tensor) -> SparseTensor:
    """Store the entries that aren't 0. In a trace it isn't known how many there are."""
    places = dense.detach().nonzero()
    entries = dense[tuple(places.unbind(1))]
    return sparse_coo_tensor(places.t(), entries, dense.shape, is_coalesced=True)


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: object = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """Make a sparse tensor from the places and the numbers of its entries.

    Places may occur several times, their entries add up. Gradients flow to `values`.
    Shapes: `indices` (d, n), `values` (n,); the result has d axes.

    Args:
        indices: the places, a tensor or what makes one; cast to int64.
        values: the numbers, likewise.
        size: the shape. Default: None, the smallest that holds all places, which a trace doesn't
            know.
        dtype: the entries' dtype. Default: None, that of `values`.
        device: the CPU, as there is no other.
        requires_grad: whether values that are no tensor yet get gradients.
        check_invariants: False leaves out the check that the places are in range.
        is_coalesced: whether the places are known to be sorted and to differ.

    Raises:
        ShapeError: shapes that don't fit each other, or `size`.
        IndexOutOfRangeError: a place outside of `size`.
        TraceError: no `size` in a trace.
        OptionError: a device that isn't there.

    >>> a = lucid.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> a @ lucid.ones(3, 1)
    tensor([[3.],
            [4.]])
    """
    from lucid.functions.from_data import as_tensor

    check_device(device, "sparse_coo_tensor")
    places = as_tensor(indices)
    if places.dtype is not i64:
        places = places.to(i64)
    numbers = as_tensor(values, dtype=dtype)
    if places.ndim != 2 or numbers.ndim != 1 or places._type.shape[1] != numbers._type.shape[0]:
        raise ShapeError(
            "sparse_coo_tensor: indices (d, n) and values (n,) expected\n"
            f"  indices: {places._type}\n  values: {numbers._type}"
        )
    if not isinstance(values, TensorCore) and requires_grad:
        numbers.requires_grad_()
    shape = _inferred_size(places) if size is None else sizes_of((size,), "sparse_coo_tensor")
    if len(shape) != places._type.shape[0]:
        raise ShapeError(
            "sparse_coo_tensor: number of dimensions must be the rows of indices "
            f"({places._type.shape[0]}), but size is {list(shape)}"
        )
    try:
        TensorType(numbers.dtype, shape)
    except SizeError as error:
        raise type(error)(f"sparse_coo_tensor: {error}") from None
    if check_invariants is not False:
        _check_places(places, shape)
    return SparseTensor(places, numbers, shape, bool(is_coalesced))


def _inferred_size(places: Tensor) -> tuple[int, ...]:
    if context.recorder is not None:
        context.recorder.hosts.leave()
        raise TraceError(
            "sparse_coo_tensor: the size depends on the indices' values\nhint: pass size"
        )
    highest = places.detach().numpy().max(axis=1, initial=-1)
    return tuple(int(n) + 1 for n in highest)


def _check_places(places: Tensor, shape: tuple[int, ...]) -> None:
    """Raise `IndexOutOfRangeError` for a place outside of the shape."""
    for axis, length in enumerate(shape):
        row = ops.slice_axis(places, 0, axis, axis + 1)
        text = "sparse_coo_tensor: size is inconsistent with indices: "
        text += f"for dim {axis}, size is {length} but found index {{}}"
        in_range(row, 0, length, text, indices=places)


def product(first: Any, second: Any) -> Any:
    """The product of a sparse matrix and a dense one, in either order; the result is dense."""
    if isinstance(first, SparseTensor) and isinstance(second, TensorCore):
        return _sparse_dense(first, second)
    if isinstance(second, SparseTensor) and isinstance(first, TensorCore):
        turned = _sparse_dense(second.t(), ops.swap_axes(first, 0, 1))
        return ops.swap_axes(turned, 0, 1)
    raise ArgumentError(
        f"matmul: tensors expected, not {type(first).__name__} and {type(second).__name__}"
    )


def _sparse_dense(sparse: SparseTensor, dense: Any) -> Any:
    if sparse.ndim != 2 or dense.ndim not in (1, 2) or sparse.size_[1] != dense._type.shape[0]:
        raise ShapeError(
            "matmul: a sparse (n, k) and a dense (k, m) or (k,) expected\n"
            f"  lhs: sparse {list(sparse.size_)}\n  rhs: {dense._type}"
        )
    rows, columns = sparse.coordinates[0], sparse.coordinates[1]
    gathered = ops.take(dense, columns, axis=0)
    entries = sparse.entries
    if dense.ndim == 2:
        entries = ops.reshape(entries, shape=(entries._type.size, 1))
    total = _zeros((sparse.size_[0], *dense._type.shape[1:]), dense.dtype)
    return ops.index_add(total, rows, entries * gathered, axis=0)


def mm(first: Any, second: Any) -> Any:
    """Return the product of two matrices of which one is sparse; the result is dense.

    Shapes: (n, k) and (k, m) give (n, m). Gradients flow to the entries and to the dense one.

    Args:
        first: a matrix, sparse or dense.
        second: a matrix, dense if the first is sparse, else sparse.

    Raises:
        ArgumentError: both are sparse, or both dense.
        ShapeError: the inner sizes differ.

    >>> a = lucid.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> lucid.sparse.mm(a, lucid.ones(3, 2))
    tensor([[3., 3.],
            [4., 4.]])
    """
    return product(first, second)


def sum(input: SparseTensor, dim: Dims = None, dtype: DType | None = None) -> Any:
    """Return the sum of the entries along axes: a coalesced sparse tensor of the others.

    Shapes: of all axes, by default, a dense 0-d tensor. Gradients flow to the entries.

    Args:
        input: a sparse tensor.
        dim: an axis, or several.
        dtype: of the result; default: the same.

    Raises:
        IndexOutOfRangeError: there is no such axis.

    >>> a = lucid.sparse_coo_tensor([[0, 1, 1], [2, 0, 1]], [3.0, 4.0, 5.0], (2, 3))
    >>> lucid.sparse.sum(a, dim=1).to_dense()
    tensor([3., 9.])
    >>> lucid.sparse.sum(a)
    tensor(12.)
    """
    entries = input.entries if dtype is None else input.entries.to(dtype)
    summed = range(input.ndim) if dim is None else axes_of(dim, input.ndim, "sum")
    kept = [axis for axis in range(input.ndim) if axis not in summed]
    if not kept:
        return entries.sum()
    size = tuple([input.size_[axis] for axis in kept])
    coordinates = ops.concat(
        *(ops.slice_axis(input.coordinates, 0, axis, axis + 1) for axis in kept), axis=0
    )
    return SparseTensor(coordinates, entries, size, False).coalesce()
