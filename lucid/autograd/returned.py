"""The checks on what the backward of a custom Function returns."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lucid.ir import ops
from lucid.ir.errors import ArgumentError, LucidError, ShapeError
from lucid.ir.location import Location
from lucid.ir.types import Shape, TensorType, bool_

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction


def checked_gradients(
    ctx: BackwardCFunction, returned: Any, backward: Callable[..., Any]
) -> tuple[Any, ...]:
    """One gradient per tensor argument, in the argument's shape and dtype, or None.

    What is returned for a tensor that doesn't require grad is dropped, whatever its shape is.

    Raises: `LucidError` that names the Function, the position, what was expected and what came.
    """
    name = f"function {ctx._name()}"
    place = _Place(backward)
    if isinstance(returned, list):
        raise ArgumentError(
            f"{name}: expected Variable or None (got list){place}\nhint: return a tuple"
        )
    values = returned if isinstance(returned, tuple) else (returned,)
    expected = len(ctx._input_types)
    if len(values) > expected and all(value is None for value in values[expected:]):
        values = values[:expected]
    if len(values) != expected:
        raise LucidError(
            f"{name} returned an incorrect number of gradients (expected {expected}, got "
            f"{len(values)}){place}"
        )
    edges = iter(ctx._edges)
    parts = []
    for index, (value, type) in enumerate(zip(values, ctx._input_types, strict=True)):
        _require_kind(name, index, value, type, place)
        if type is None:
            continue
        is_wanted = next(edges) is not None and value is not None
        parts.append(_fitted(name, index, value, type, place) if is_wanted else None)
    return tuple(parts)


class _Place:
    """Where backward returned, for messages: its only `return`, or where it begins."""

    def __init__(self, backward: Callable[..., Any]) -> None:
        self._backward = backward

    def __str__(self) -> str:
        return _return_line(self._backward)


def _return_line(backward: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(backward), "__code__", None)
    if code is None:
        return ""
    lines = {
        instruction.positions.lineno
        for instruction in dis.get_instructions(code)
        if instruction.opname == "RETURN_VALUE" and instruction.positions is not None
    }
    line = lines.pop() if len(lines) == 1 else None
    location = Location(code.co_filename, code.co_firstlineno if line is None else line)
    return f"\n  returned at {location}   {location.text}"


def _require_kind(
    name: str, index: int, value: Any, type: TensorType | None, place: _Place
) -> None:
    """Raise unless the value is a tensor or None, and None for an argument that is no tensor."""
    from lucid.tensor.core import TensorCore

    if value is None:
        return
    if type is None:
        raise LucidError(
            f"{name} returned a gradient different than None at position {index + 1}, but the "
            f"corresponding forward input was not a Variable{place}"
        )
    if not isinstance(value, TensorCore):
        raise ArgumentError(
            f"{name}: expected Variable or None (got {type_name(value)}) at position "
            f"{index + 1}{place}"
        )


def type_name(value: Any) -> str:
    """The name of a value's type as PyTorch's messages have it: `list`, `numpy.ndarray`, `Foo`."""
    kind = value.__class__
    is_numpy = kind.__module__.partition(".")[0] == "numpy"
    return f"numpy.{kind.__name__}" if is_numpy else str(kind.__name__)


def _fitted(name: str, index: int, value: Any, type: TensorType, place: _Place) -> Any:
    shape: Shape = value._type.shape
    if shape != type.shape:
        if not _expandable(type.shape, shape):
            raise ShapeError(
                f"Function {name.removeprefix('function ')} returned an invalid gradient at index "
                f"{index} - got {list(shape)} but expected shape compatible with "
                f"{list(type.shape)}{place}"
            )
        if value.dtype is bool_:  # of which there is no sum
            value = ops.cast(value, dtype=type.dtype)
        value = ops.sum_to_shape(value, type.shape)
    if value.dtype is not type.dtype:
        value = ops.cast(value, dtype=type.dtype)
    return value


def _expandable(small: Shape, large: Shape) -> bool:
    """Whether `small` broadcasts to just `large`."""
    if len(small) > len(large):
        return False
    pairs = zip(reversed(small), reversed(large), strict=False)
    return all(a in (b, 1) for a, b in pairs)
