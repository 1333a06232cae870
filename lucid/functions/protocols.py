"""What Python, NumPy, copy and pickle ask of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex

import numpy as np

from lucid.choices import check_flags
from lucid.functions.arguments import listed
from lucid.functions.conversion import to
from lucid.functions.reduction import any as any_of
from lucid.functions.shape import flip
from lucid.functions.tensors import Tensor
from lucid.ir.errors import ArgumentError, LucidError, OptionError, ShapeError
from lucid.ir.inference import MOST_ELEMENTS, too_many
from lucid.ir.types import DType
from lucid.tensor.context import context
from lucid.tensor.core import attributes_of, of_array, with_origins


def item(input: Tensor) -> Any:
    """Return the only element as a Python number: a bool, an int or a float.

    A compiled step goes on with a live number, which each call reads.

    Args:
        input: a tensor of one element, of any shape.

    Raises:
        ShapeError: several elements, or none.

    >>> lucid.tensor([2.5]).item()
    2.5
    """
    if input._type.size != 1:
        raise ShapeError(
            f"item: a Tensor with {input._type.size} elements cannot be converted to Scalar"
            f"{listed(input=input)}"
        )
    return input._number("item()")


def tolist(input: Tensor) -> Any:
    """Return nested lists of Python numbers; of a 0-d tensor its number.

    The lists are the caller's own.

    Args:
        input: a tensor of any dtype.

    Raises:
        TooLargeError: more elements than can be listed.

    >>> lucid.tensor([[1, 2], [3, 4]]).tolist()
    [[1, 2], [3, 4]]
    """
    if context.recorder is not None and input._known("tolist()") is None:
        return context.recorder.list_of(input)
    array = input._concrete("tolist()")
    if array.size > MOST_ELEMENTS:
        raise with_origins(too_many("tolist", "read", input._type, [input._type]), [input])
    return array.tolist()


def to_bool(input: Tensor) -> bool:
    """`bool(x)` of one element. Raises `OptionError` for several, `TraceError` in a trace."""
    if input._type.size != 1:
        count = "more than one value" if input._type.size else "no values"
        raise OptionError(
            f"bool: Boolean value of Tensor with {count} is ambiguous{listed(input=input)}\n"
            "hint: use .any() or .all()"
        )
    return bool(input._number("bool()"))


def to_float(input: Tensor) -> float:
    """`float(x)` of one element."""
    return float(_only(input, "float()"))


def to_int(input: Tensor) -> int:
    """`int(x)` of one element, without its fraction."""
    return int(_only(input, "int()"))


def _only(input: Tensor, what: str) -> Any:
    if input._type.size != 1:
        raise ShapeError(
            f"{what}: only one element tensors can be converted to Python scalars"
            f"{listed(input=input)}"
        )
    return input._number(what)


def to_index(input: Tensor) -> int:
    """`operator.index(x)` of one integer, as ranges and list indices ask."""
    if input._type.dtype.kind == "float" or input._type.size != 1:
        raise ArgumentError(
            "index: only integer tensors of a single element can be converted to an index"
            f"{listed(input=input)}"
        )
    return int(input._number("int()"))


def length(input: Tensor) -> int:
    """`len(x)`: the size of the first axis. Raises `ArgumentError` for 0-d tensors."""
    if not input._type.shape:
        raise ArgumentError("len: len() of a 0-d tensor")
    return input._type.shape[0]


def iterate(input: Tensor) -> Iterator[Tensor]:
    """`iter(x)`: views along the first axis. Raises `ArgumentError` for 0-d tensors."""
    if not input._type.shape:
        raise ArgumentError("iter: iteration over a 0-d tensor")
    return iter(input.unbind())


def backwards(input: Tensor) -> Tensor:
    """`reversed(x)`: the tensor with the order of the first axis reversed."""
    return flip(input, 0) if input.ndim else input


def contains(input: Tensor, element: Any) -> bool:
    """`element in x`: whether any element equals it."""
    return to_bool(any_of(input == element))


def as_array(input: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """What `np.asarray(x)` gets: the tensor's memory, or a copy in another dtype."""
    array = input.numpy()
    wanted = array.dtype if dtype is None else np.dtype(dtype)
    if wanted != array.dtype and copy is False:
        raise OptionError(f"__array__: dtype {wanted} needs a copy of a tensor of {array.dtype}")
    return np.array(array, wanted) if copy else np.asarray(array, wanted)


def dlpack(input: Tensor, **options: Any) -> Any:
    """What `np.from_dlpack(x)` and other libraries get: the tensor's memory."""
    if input.requires_grad:
        raise LucidError("dlpack: can't export a tensor that requires grad\nhint: tensor.detach()")
    return input._concrete("__dlpack__()").__dlpack__(**options)


def dlpack_device(input: Tensor) -> tuple[int, int]:
    """The CPU, as DLPack numbers it."""
    return (1, 0)


def formatted(input: Tensor, specification: str) -> str:
    """`format(x, specification)`: of a 0-d tensor as its number."""
    if not input._type.shape:
        return format(item(input), specification)
    return format(str(input), specification)


def to_sparse(self: Tensor) -> Any:
    """Return a sparse tensor of the entries that aren't 0, which get gradients.

    In a trace it isn't known how many there are: it is a host call there.

    >>> lucid.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    tensor(indices=tensor([[0],
            [1]]),
           values=tensor([2.]),
           size=(2, 2), nnz=1, layout=sparse_coo)
    """
    from lucid.sparse.tensor import from_dense

    return from_dense(self)


def to_dense(
    self: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """Return the tensor itself, or in another dtype: all of its entries are stored.

    Args:
        dtype: of the result.
        masked_grad: of sparse tensors; changes nothing.

    >>> lucid.ones(2).to_dense()
    tensor([1., 1.])
    """
    check_flags("to_dense", masked_grad=masked_grad)
    return self if dtype is None else to(self, dtype)


def shallow_copy(input: Tensor) -> Tensor:
    """`copy.copy(x)`: another tensor of that class on the same memory."""
    copied = input._alias()
    copied.__class__ = input.__class__
    copied.__dict__.update(_attributes_of(input))
    copied._base, copied._view_chain, copied._epoch = input._base, input._view_chain, input._epoch
    copied._grad_fn, copied._output_nr = input._grad_fn, input._output_nr
    copied._requires_grad, copied._grad = input._requires_grad, input._grad
    return copied


def deep_copy(input: Tensor, memo: dict[int, Any]) -> Tensor:
    """`copy.deepcopy(x)` of a leaf: its own memory, its gradient copied.

    Raises: `LucidError` for a tensor with history.
    """
    if id(input) in memo:
        known: Tensor = memo[id(input)]
        return known
    if not input.is_leaf:
        raise LucidError(
            "deepcopy: Only Tensors created explicitly by the user (graph leaves) support the "
            f"deepcopy protocol at the moment{listed(input=input)}\nhint: use detach()"
        )
    copied = input._own_copy()
    copied.__class__ = input.__class__
    copied._requires_grad = input.requires_grad
    memo[id(input)] = copied
    if input.grad is not None:
        copied.grad = deep_copy(input.grad, memo)
    copied.__dict__.update(_attributes_of(input))
    return copied


def _attributes_of(input: Tensor) -> dict[str, Any]:
    """What users have bound to a tensor that is copied."""
    if context.recorder is not None:
        context.recorder.note_attributes(input)
    return attributes_of(input)


def reduced(input: Tensor, protocol: SupportsIndex = 2) -> tuple[Any, ...]:
    """What pickle stores: class, data, whether it requires grad; history stays behind."""
    array = np.ascontiguousarray(input._concrete("pickle")).reshape(input._type.shape)
    return _rebuilt, (input.__class__, array, input.requires_grad)


def _rebuilt(kind: type[Tensor], array: np.ndarray, requires_grad: bool) -> Tensor:
    result = of_array(array)
    if result.__class__ is not kind:
        result.__class__ = kind
    result._requires_grad = requires_grad
    return result
