"""Attribute values as text, and back: every bit survives, NaN payloads and -0.0 included."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from lucid.ir.types import DType, dtype_of_numpy


def format_string(text: str) -> str:
    """A string in double quotes, on one line, with JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)


def format_number(value: np.generic, dtype: DType) -> str:
    """The shortest text from which `number` makes the same bits.

    A NaN other than the default one is written with its bits, `nan:0xffc00000`.
    """
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "int":
        return str(int(value))
    if np.isnan(value):
        default = number("nan", dtype).tobytes() == value.tobytes()
        return "nan" if default else f"nan:0x{int.from_bytes(value.tobytes(), sys.byteorder):x}"
    short = str(value)
    # The shortest digits of an f32 may round otherwise when they are read by way of f64.
    return short if number(short, dtype).tobytes() == value.tobytes() else repr(float(value))


def number(text: str, dtype: DType) -> np.generic:
    """The number of the dtype that the text spells. Raises `ValueError`, `OverflowError`."""
    if dtype.kind == "bool":
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is not true or false")
        return np.bool_(text == "true")
    if dtype.kind == "int":
        return dtype.numpy.type(int(text))
    if text.startswith("nan:"):
        nan: np.generic = np.frombuffer(
            int(text[4:], 16).to_bytes(dtype.itemsize, sys.byteorder), dtype.numpy
        )[0]
        return nan
    with np.errstate(all="ignore"):
        return dtype.numpy.type(float(text))


def format_attribute(value: Any) -> str:
    """An attribute's value: `3`, `[1,0]`, `f32`, `"name"`, `true`, `f64(0.5)`."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return f"[{','.join(map(format_attribute, value))}]"
    if isinstance(value, str):
        return format_string(value)
    if isinstance(value, int):
        return str(value)
    assert isinstance(value, np.generic), f"an attribute of type {type(value).__name__}"
    dtype = dtype_of_numpy(value.dtype)
    return f"{dtype.name}({format_number(value, dtype)})"
