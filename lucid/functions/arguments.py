"""Arguments as users pass them, by NumPy's names as well: axes, sizes, tensors, checked once."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from lucid.functions.tensors import Tensor
from lucid.ir import ops
from lucid.ir.errors import (
    ArgumentError,
    IndexOutOfRangeError,
    LucidError,
    OptionError,
    ShapeError,
    TooLargeError,
)
from lucid.ir.extents import is_open
from lucid.ir.inference import LESS, MOST_AXES, MOST_ELEMENTS, too_many_axes
from lucid.ir.op import Op
from lucid.ir.ops import rules
from lucid.ir.types import Shape, f64, shared_type
from lucid.tensor.context import context

_MOST_PARTS = 2**24
Dims = int | Sequence[int] | None
_LONG = 256  # bits of a number that a message writes out


def listed(**tensors: Any) -> str:
    """Lines for an error message: what each operand is and where it was made, by name."""
    width = max(map(len, tensors), default=0) + 1
    lines = []
    for name, tensor in tensors.items():
        known = isinstance(tensor, Tensor)
        shown = tensor._describe().rstrip() if known else repr(tensor)
        lines.append(f"\n  {name + ':':<{width}} {shown}")
    return "".join(lines)


def typed(**tensors: Tensor) -> str:
    """As `listed`, without what only this call knows: for a message that a step keeps."""
    width = max(map(len, tensors)) + 1
    return "".join(f"\n  {name + ':':<{width}} {x._type}" for name, x in tensors.items())


# Problems that many functions have in common: the one that was called is named with them.
_COMMON = ("dropout probability has", "is not a valid value for reduction")
_OPERAND = re.compile(r"  (\w+):\s")  # its line in a message
_COMMON_IN_PLACE = ("a leaf Variable", "a view of a leaf Variable")


def complete(error: LucidError, op: str, given: dict[str, Tensor]) -> None:
    """Let an error's message say which op it is about, what the operands are and who made them.

    What it says of these already stays as it is. The operands are kept for who knows more of them.
    """
    if error.__dict__.get("_is_complete"):
        return
    error.__dict__["_is_complete"] = True
    error.__dict__["_operands"] = given
    problem, hint, remedy = str(error).partition("\nhint: ")
    first, *rest = problem.split("\n")
    if op and any(problem in first for problem in _COMMON) and ": " not in first:
        first = f"{op}: {first}"
    elif op and first.startswith(_COMMON_IN_PLACE):
        first = f"{first} ({op})"
    if _is_of_inner(op, first, rest, given):
        first = f"{op}: {first.partition(': ')[2]}"
        hint, remedy = _of_operands(rest, given, hint, remedy)
        rest = listed(**given).split("\n")[1:]
    elif rest:
        rest = [_with_birthplace(line, given) for line in rest]
    else:
        rest = listed(**given).split("\n")[1:]
    error.args = ("\n".join([first, *rest]) + hint + remedy,)


def _is_of_inner(op: str, first: str, rest: Sequence[str], given: Collection[str]) -> bool:
    """Whether a message is about an op that a function consists of, and about that one's operands.

    first, rest: its lines; given: the names of the function's tensors.
    """
    inner, found, _ = first.partition(": ")
    names = [_OPERAND.match(line) for line in rest]
    if not found or not given or not rest or not all(names) or op.startswith("__"):
        return False
    is_op = isinstance(getattr(ops, inner, None), Op) and inner != op.rstrip("_")
    return bool(op) and is_op and any(name and name[1] not in given for name in names)


def _of_operands(
    rest: Sequence[str], given: dict[str, Tensor], hint: str, remedy: str
) -> tuple[str, str]:
    """A hint about an inner op's operands, by the names of what is given if that's the same."""
    names = [line.strip().partition(":")[0] for line in rest]
    types = [line.partition(":")[2].split()[0] for line in rest]
    if types == [str(tensor._type) for tensor in given.values()]:
        for name, own in zip(names, given, strict=True):
            remedy = re.sub(rf"\b{name}\b", own, remedy)
    elif any(re.search(rf"\b{name}\b", remedy) for name in names):
        return "", ""
    return hint, remedy


def _with_birthplace(line: str, given: dict[str, Tensor]) -> str:
    """An operand's line `  name: type` of a message with the place where it was made."""
    name, _, text = line.strip().partition(":")
    tensor = given.get(name)
    if tensor is None or text.strip() != str(tensor._type):
        return line
    return line.replace(text.strip(), tensor._describe())


def common_shape(op: str, **tensors: Tensor) -> Shape:
    """The shape that all broadcast to. Raises `ShapeError`."""
    shape = rules.broadcast_all(*(tensor._type.shape for tensor in tensors.values()))
    if shape is None:
        raise ShapeError(f"{op}: the shapes don't broadcast{listed(**tensors)}")
    return shape


def tensor_of(value: Any, op: str, name: str = "input") -> Tensor:
    """Check that an argument is a tensor. Raises `ArgumentError`."""
    if isinstance(value, Tensor):
        return value
    raise ArgumentError(f"{op}: {name} must be a Tensor, not {kind_of(value)}{remedy_for(value)}")


def remedy_for(value: Any) -> str:
    """The hint for a value where a tensor should be."""
    if isinstance(value, np.ndarray):
        return "\nhint: lucid.from_numpy(array) makes one"
    names = getattr(type(value), "_fields", None)
    if isinstance(value, tuple) and names and any(isinstance(part, Tensor) for part in value):
        made_by = type(value).__name__
        return f"\nhint: {made_by}(dim) gives ({', '.join(names)}): use .{names[0]}"
    if callable(value) and hasattr(value, "forward"):
        return "\nhint: call the module on a tensor first"
    return "\nhint: lucid.tensor(...) makes one" if value is not None else ""


def kind_of(value: Any) -> str:
    """The name of a value's type, with the library's for another library's tensor."""
    kind = value.__class__  # of a live number, what it stands for
    library = kind.__module__.partition(".")[0]
    return f"{library}.{kind.__name__}" if kind.__name__ == "Tensor" else kind.__name__


def shown(number: Any) -> str:
    """As a message has a number. Python writes none of more than some thousand digits."""
    is_long = type(number) is int and number.bit_length() > _LONG
    return f"of {number.bit_length()} bits" if is_long else str(number)


def integer(value: Any, op: str, name: str = "dim") -> int:
    """An int, or what stands for one. Raises `ArgumentError`."""
    if context.recorder is not None and isinstance(value, Tensor):
        value = context.recorder.size_of(value)
    try:
        return value if is_open(value) else operator.index(value)
    except TypeError:
        raise ArgumentError(f"{op}: {name} must be an int, not {value!r}") from None


def is_live(value: Any) -> bool:
    """Whether a number is one that each call of a step reads, which guards what is seen of it."""
    return type(value) is not value.__class__


def axis_of(dim: Any, ndim: int, op: str) -> int:
    """Normalize an axis; a 0-d tensor takes 0 and -1, as in PyTorch."""
    axis = dim if type(dim) is int else integer(dim, op)
    limit = ndim or 1
    if not -limit <= axis < limit:
        span = f"(expected to be in range of [{-limit}, {limit - 1}], but got {axis})"
        raise IndexOutOfRangeError(f"{op}: Dimension out of range {span}")
    return axis % limit


def axes_of(dim: Dims, ndim: int, op: str) -> tuple[int, ...]:
    """Normalize axes to reduce over; None and () mean all of them. Sorted."""
    if dim is None:
        return tuple(range(ndim))
    if not isinstance(dim, (tuple, list)):
        axis = axis_of(dim, ndim, op)
        return (axis,) if ndim else ()
    axes = distinct_axes(dim, ndim, op)
    return tuple(sorted(axes)) if axes and ndim else tuple(range(ndim))


def distinct_axes(dims: Iterable[Any], ndim: int, op: str) -> tuple[int, ...]:
    """Normalize axes in the order given. Raises `OptionError` when one comes twice."""
    axes = tuple(axis_of(dim, ndim, op) for dim in dims)
    for i, axis in enumerate(axes):
        if axis in axes[:i]:
            raise OptionError(f"{op}: dim {axis} appears multiple times in the list of dims")
    return axes


def one_way(given: tuple[Any, ...], keyword: Any, name: str, op: str) -> tuple[Any, ...]:
    """What was passed as `f(2, 3)` or as `f(name=(2, 3))`. Raises `ArgumentError` for both."""
    if keyword is None:
        return given
    if given:
        raise ArgumentError(f"{op}: got multiple values for argument '{name}'")
    return (keyword,)


def sizes_of(sizes: tuple[Any, ...], op: str) -> Shape:
    """Read `f(2, 3)`, `f((2, 3))` and `f([2, 3])` as a tuple of ints; negative ones pass."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    for size in sizes:
        if type(size) is not int:
            return tuple([integer(each, op, "size") for each in sizes])
    return sizes


def shape_of(sizes: tuple[Any, ...], op: str) -> Shape:
    """As `sizes_of`, for the shape of a new tensor.

    Raises `ShapeError` for negative sizes, `TooLargeError` for more elements than an op computes.
    """
    if not sizes:
        raise ArgumentError(f"{op}: missing the size; that of a 0-d tensor is ()")
    shape = sizes_of(sizes, op)
    if any(size < 0 for size in shape):
        raise ShapeError(f"{op}: Trying to create tensor with negative dimension: {list(shape)}")
    require_computable(shape, op)
    return shape


def require_computable(shape: Shape, op: str) -> None:
    """Raise `ShapeError` unless an op can make a tensor of this shape, of any dtype."""
    if len(shape) > MOST_AXES:
        raise ShapeError(f"{op}: {too_many_axes(len(shape))}")
    try:
        size = shared_type(f64, shape).size
    except TooLargeError:
        problem = f"the bytes of the shape {list(shape)} are more than 64 bits can count"
        raise TooLargeError(f"{op}: {problem}") from None
    if size > MOST_ELEMENTS:
        raise TooLargeError(f"{op}: the shape {list(shape)} has {size:,} elements; {LESS}")


def require_listable(count: int, op: str) -> None:
    """Raise `TooLargeError` for more tensors than a tuple of them can be meant to hold."""
    if count > _MOST_PARTS:
        raise TooLargeError(f"{op}: {count:,} tensors at once; at most {_MOST_PARTS:,} are made")


@lru_cache(maxsize=1024)
def infer_size(shape: Shape, numel: int, op: str) -> Shape:
    """Resolve one -1 in the shape of `numel` elements. Raises `ShapeError` where none fits."""
    known = prod(size for size in shape if size != -1)
    holes = shape.count(-1)
    if holes > 1:
        raise ShapeError(f"{op}: only one dimension can be inferred, not {holes}: {list(shape)}")
    if any(size < -1 for size in shape):
        raise ShapeError(f"{op}: invalid shape dimension {min(shape)} in {list(shape)}")
    if holes and known == 0:
        raise ShapeError(f"{op}: the size -1 is ambiguous in {list(shape)} for {numel} elements")
    if numel % known if holes else known != numel:
        raise ShapeError(f"{op}: shape '{list(shape)}' is invalid for input of size {numel}")
    return tuple(numel // known if size == -1 else size for size in shape)


# What NumPy calls parameters.
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def take_numpy_names(kwargs: dict[str, Any], function: Callable[..., Any]) -> None:
    """Let a function be called with `axis=` for `dim=` and `keepdims=` for `keepdim=`.

    Raises `ArgumentError` if both are given.
    """
    for theirs in NUMPY_NAMES.keys() & kwargs.keys():
        ours = NUMPY_NAMES[theirs]
        if ours in _parameters(function):
            if ours in kwargs:
                problem = f"got {ours}= and {theirs}=, which mean the same"
                raise ArgumentError(f"{function.__name__}: {problem}")
            kwargs[ours] = kwargs.pop(theirs)


@cache
def _parameters(function: Callable[..., Any]) -> Collection[str]:
    return inspect.signature(function).parameters.keys()
