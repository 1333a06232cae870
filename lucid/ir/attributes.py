"""Operands and attributes against an op's arity and schema.

Eager mode calls ops with attributes that the library has made, and doesn't look; graphs, which may
come from text, do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lucid.ir.errors import ArgumentError, LucidError
from lucid.ir.extents import is_open
from lucid.ir.op import Attributes, Op
from lucid.ir.types import DTYPES, DType


def is_whole(value: Any) -> bool:
    """Whether it is an int of 64 bits, as compiled code counts with, or open; a bool is none."""
    return (type(value) is int and -(2**63) <= value < 2**63) or is_open(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(is_whole, value))


_KINDS: Mapping[Any, tuple[Callable[[Any], bool], str]] = {
    int: (is_whole, "a whole number of 64 bits"),
    tuple[int, ...]: (_is_list, "a list of whole numbers of 64 bits, such as [2,3]"),
    bool: (lambda value: type(value) is bool, "true or false"),
    str: (lambda value: type(value) is str, 'text, such as "ij->ji"'),
    DType: (lambda value: isinstance(value, DType) and value in DTYPES, "a dtype, such as f32"),
    np.generic: (lambda value: isinstance(value, np.generic), "a number, such as f32(0.5)"),
}


def wrong_attribute(op: Op, name: str, value: Any) -> LucidError | None:
    """The error that an attribute deserves; None for one of the op's, of the right type."""
    if name not in op.schema:
        takes = f"; it has {', '.join(op.schema)}" if op.schema else ""
        return ArgumentError(f"{op.name}: there is no attribute {name}{takes}")
    fits, wanted = _KINDS[op.schema[name]]
    if not fits(value):
        return ArgumentError(f"{op.name}: {name} is {wanted}, not {value!r:.60}")
    return None


def check_arguments(op: Op, operands: int, attributes: Attributes) -> None:
    """Raise `ArgumentError` unless there are as many operands as the op takes, and all attributes.

    What the numbers must be, and go together, is the type rule's to say.
    """
    least, has_more, schema = op.signature
    for name, value in attributes.items():
        if error := wrong_attribute(op, name, value):
            raise error
    if len(attributes) < len(schema):
        missing = [x for x in schema if x not in attributes and x not in op.optional]
        if missing:
            raise ArgumentError(f"{op.name}: the attribute {missing[0]} is missing")
    if operands < least or (operands > least and not has_more):
        count = "at least " if has_more else ""
        raise ArgumentError(f"{op.name}: takes {count}{least} operands, not {operands}")
