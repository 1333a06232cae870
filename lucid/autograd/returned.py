"""The checks on what the backward of a custom Function returns."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, LucidError, ShapeError
from lucid.ir.location import Location
from lucid.ir.types import Shape, TensorType

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction


def checked_gradients(
    ctx: BackwardCFunction, returned: Any, backward: Callable[..., Any]
) -> tuple[Any, ...]:
    """One gradient per tensor argument, in the argument's shape and dtype, or None.

    Raises: `LucidError` that names the Function, the position, what was expected and what came.
    """
    name = f"function {ctx.name()}"
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
    pairs = zip(values, ctx._input_types, strict=True)
    parts = [_checked(name, i, value, type, place) for i, (value, type) in enumerate(pairs)]
    kept = [part for part, type in zip(parts, ctx._input_types, strict=True) if type is not None]
    return tuple(None if edge is None else part for part, edge in zip(kept, ctx.edges, strict=True))


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


def _checked(name: str, index: int, value: Any, type: TensorType | None, place: _Place) -> Any:
    from lucid.tensor.core import TensorCore

    if type is None:
        if value is not None:
            raise LucidError(
                f"{name} returned a gradient different than None at position {index + 1}, but the "
                f"corresponding forward input was not a Variable{place}"
            )
        return None
    if value is None:
        return None
    if not isinstance(value, TensorCore):
        kind = value.__class__
        raise ArgumentError(
            f"{name}: expected Variable or None (got {_qualified(kind)}) at position "
            f"{index + 1}{place}"
        )
    return _fitted(name, index, value, type, place)


def _qualified(kind: type) -> str:
    module = kind.__module__
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"


def _fitted(name: str, index: int, value: Any, type: TensorType, place: _Place) -> Any:
    shape: Shape = value._type.shape
    if shape != type.shape:
        if not _expandable(type.shape, shape):
            raise ShapeError(
                f"Function {name.removeprefix('function ')} returned an invalid gradient at index "
                f"{index} - got {list(shape)} but expected shape compatible with "
                f"{list(type.shape)}{place}"
            )
        value = ops.sum_to_shape(value, type.shape)
    if value.dtype is not type.dtype:
        if not type.dtype.is_floating_point:
            raise DTypeError(f"{name}: gradient at index {index} for an input of {type}{place}")
        value = ops.cast(value, dtype=type.dtype)
    return value


def _expandable(small: Shape, large: Shape) -> bool:
    """Whether `small` broadcasts to just `large`."""
    if len(small) > len(large):
        return False
    pairs = zip(reversed(small), reversed(large), strict=False)
    return all(a in (b, 1) for a, b in pairs)
