"""`lucid.Size`: the shape of a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, Self, SupportsIndex, overload

from lucid.ir.errors import ArgumentError

new_size = tuple.__new__
"""Makes a Size of a tuple that is known to hold ints."""


class Size(tuple[int, ...]):
    """A tuple of ints that knows how many elements it means: the shape of a tensor.

    It compares, adds and unpacks as a tuple; slices and sums are Sizes again.

    Args:
        iterable: the sizes. Default: (), that of a 0-d tensor.

    Raises:
        ArgumentError: one of them is no int.

    >>> shape = lucid.zeros(2, 3).shape
    >>> shape
    lucid.Size([2, 3])
    >>> shape == (2, 3), lucid.Size([2, 3]).numel()
    (True, 6)
    """

    __slots__ = ()

    def __new__(cls, iterable: Iterable[SupportsIndex] = ()) -> Self:
        sizes = tuple(iterable)
        for position, size in enumerate(sizes):
            if not hasattr(size, "__index__"):
                kind = type(size).__name__
                raise ArgumentError(f"Size: takes ints, and number {position} of them is {kind}")
        return new_size(cls, sizes)

    def numel(self) -> int:
        """Return the number of elements of a tensor of this shape; 1 for no axes.

        >>> lucid.Size([2, 3]).numel()
        6
        """
        return prod(self)

    def __repr__(self) -> str:
        return f"lucid.Size([{', '.join(map(str, self))}])"

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Size: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | Size:
        if isinstance(index, slice):
            return new_size(Size, tuple.__getitem__(self, index))
        return tuple.__getitem__(self, index)

    def __add__(self, other: Any) -> Size:
        return new_size(Size, tuple.__add__(self, tuple(other)))

    def __radd__(self, other: tuple[int, ...]) -> Size:
        return new_size(Size, tuple(other) + tuple(self))
