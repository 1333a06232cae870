"""Calls of the library's own that are alike but for their sizes: many of them share a function.

A program for each size has to be noted, and placed in memory, which takes ten times as long as a
call of the function, that only finds what follows from its sizes. The compiler, which is above,
makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lucid.ir.environment import NATIVE_FUNCTIONS
from lucid.ir.extents import LEAST
from lucid.ir.types import DType, Shape, TensorType
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

_MOST_SIZES = 16  # that have programs of their own
_MOST_FORMS = 128  # of one table: the calls that came first go then
_MOST_BYTES = 1 << 22  # of the tensors of a call, which the function keeps until the next one

makers: list[Callable[..., Callable[..., Any]]] = []
"""Makes a function of tensors native, by its name and the types of an earlier call, which tell what
sizes are open: the compiler's."""


@dataclass(slots=True)
class Alike:
    """Calls that are alike but for their sizes.

    Attributes:
        count: how many sizes they have come with; types: of the tensors of the latest of these.
        function: of their tensors; it may say `NotImplemented`.
    """

    count: int = 0
    types: Sequence[TensorType] = ()
    function: Callable[..., Any] | None = None


Table = dict[tuple[Any, ...], Alike]


def form_of(type: TensorType, *, is_parameter: bool) -> tuple[DType, Shape]:
    """What tensors have in common whose sizes are open: those that are too small differ.

    is_parameter: whether it has one size for all calls of a layer; layers have their own.
    """
    if is_parameter:
        return type.dtype, type.shape
    return type.dtype, tuple([n if n < LEAST else LEAST for n in type.shape])


def of_any_size(
    table: Table,
    key: tuple[Any, ...],
    types: Sequence[TensorType],
    tensors: Sequence[TensorCore],
    apply: Callable[..., Any],
    name: str,
) -> Any:
    """What a call with unfamiliar sizes gives; `NotImplemented`: there were few such, so far.

    key: what it has in common with others, and nothing else matters to `apply`, by which a trace
    records it.
    """
    alike = table.get(key)
    if alike is None:
        if len(table) >= _MOST_FORMS:
            table.pop(next(iter(table)), None)  # unless another thread has
        alike = table[key] = Alike()
    if alike.count < _MOST_SIZES:
        alike.count, alike.types = alike.count + 1, types
        return NotImplemented
    if sum([type.nbytes for type in types]) > _MOST_BYTES:
        return NotImplemented
    if alike.function is None:
        if not makers or not NATIVE_FUNCTIONS.read():
            return NotImplemented

        def traced(*tensors: TensorCore) -> Any:
            return NotImplemented if context.recorder is None else apply(*tensors)

        alike.function = makers[0](traced, name, alike.types)
    return alike.function(*tensors)
