"""Memory: buffers, strided parts of them, and how values are read from them."""

from __future__ import annotations

from dataclasses import dataclass

from lucid.ir.graph import Value
from lucid.ir.strides import Strides
from lucid.ir.types import DType


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of one dtype.

    Attributes:
        kind: "input", "output" (a slot of the table) or "temp" (in the arena).
        index: number of the input or output; of a temp its serial number.
        size: elements; for inputs as many as their strides span.
    """

    kind: str
    index: int
    dtype: DType
    size: int

    def __str__(self) -> str:
        return f"{self.kind}{self.index}"


@dataclass(frozen=True, slots=True)
class BufferView:
    """A strided part of a buffer; offset and strides in elements."""

    buffer: Buffer
    offset: int
    strides: Strides


@dataclass(frozen=True, slots=True)
class Layout:
    """How a value is read: strides over its axes, in the home of `base`."""

    base: Value
    offset: int
    strides: Strides
