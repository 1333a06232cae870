"""Iterables of which only a call knows how many items they have.

`range(n)`, the rows of a tensor, and these numbered or in pairs pass for what Python would make of
them. A loop whose rounds are alike takes one thing at a number (`python_loops.py`); whoever does
anything else looks at how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeGuard

from lucid.compiler.guards.mutable_sources import stands_for_list
from lucid.compiler.inputs.late import Applied, Bases, writer
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.recording.late.late_numbers import LateSize, extent_of
from lucid.functions.creation import arange
from lucid.functions.joining import rows_along
from lucid.ir.classes import isinstance
from lucid.ir.whose_code import is_librarys
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.exits import Exits
    from lucid.tensor.tensor import Tensor

MAKERS = frozenset({range, reversed, enumerate, zip, pairwise})


class LateIterable(Applied):
    """The result of a function that makes an iterable, such as `range` or `zip`.

    Attributes:
        kind: the type of Python's iterable.
        length: the number of items; has_numbers: whether `at` gives them by number.
        first, stride: the numbers that `at` takes: `first + i * stride`.
    """

    __slots__ = ("first", "length", "stride")

    kind: type

    def __init__(
        self, function: Any, args: Sequence[Any], length: Any, first: int = 0, stride: int = 1
    ) -> None:
        super().__init__(function, args)
        self.length, self.first, self.stride = length, first, stride

    @property
    def has_numbers(self) -> bool:
        return True

    def at(self, number: Any) -> Any:
        """What there is at a number."""
        raise NotImplementedError

    def backwards(self) -> LateIterable | None:
        """What `reversed` gives of it, if that is such a thing as well."""
        return None

    def rest(self, first: int, end: int) -> Iterable[Any]:
        """What there is at these numbers."""
        return map(self.at, range(first, end, self.stride))

    def _look(self) -> Any:
        return self._function(*self._args)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    @property
    def bases(self) -> Bases:  # type: ignore[override]
        if self.kind is not range:  # a call has no other than tensors, which it knows
            self._look()
        return super().bases

    def __eq__(self, other: object) -> bool:
        return bool(self._look() == (other._look() if is_iterable(other) else other))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look(), name)


def _asked(name: str) -> Callable[..., Any]:
    return lambda self, *args: getattr(self._look(), name)(*args)


for _name in (
    *("len", "getitem", "setitem", "delitem", "contains", "iter", "next", "reversed", "hash"),
    *("add", "radd", "iadd", "mul", "rmul", "imul", "lt", "le", "gt", "ge", "repr", "reduce_ex"),
):
    setattr(LateIterable, f"__{_name}__", _asked(f"__{_name}__"))


def is_iterable(x: object) -> TypeGuard[LateIterable]:
    """Whether something is such a thing; `isinstance` can't tell, for it passes for Python's."""
    return issubclass(type(x), LateIterable)


class LateRange(LateIterable):
    """`range(…)`, of numbers that each call has perhaps: among indices, these places."""

    __slots__ = ("_begin", "_by")

    kind = range

    def __init__(self, *args: Any) -> None:
        first, stop, stride = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        if any(map(is_live, args)):
            count = stop - first if stride == 1 else first - stop
        else:
            count = len(range(*args))
        self._begin, self._by = first, stride
        super().__init__(range, args, count, *((first, stride) if type(first) is int else ()))

    def at(self, number: Any) -> Any:
        if type(self._begin) is int:
            return number
        plain = int(number) if issubclass(type(number), int) else number  # of a size it is asked
        return self._begin + self._by * plain

    def rest(self, first: int, end: int) -> Iterable[Any]:
        is_plain = type(self._begin) is int
        return range(first, end, self.stride) if is_plain else super().rest(first, end)

    def backwards(self) -> LateRange | None:
        first, stride = self._begin, self._by
        if type(self.length) is int:
            return LateRange(*(first + (self.length - 1) * stride, first - stride, -stride))
        return LateRange(first + self.length - 1, first - 1, -1) if stride == 1 else None

    __str__, __repr__, __format__ = writer(str), writer(repr), writer(format)

    def as_tensor(self) -> Tensor:
        """What stands for it in an index."""
        return arange(*map(extent_of, self._args))


class LateRows(LateIterable):
    """The rows of a tensor along an axis."""

    __slots__ = ()

    kind = tuple

    def __init__(self, x: TensorCore, axis: int, exits: Exits) -> None:
        super().__init__(rows_along, (x, axis), exits.shown(x._type.shape[axis]))

    def at(self, number: Any) -> Any:
        x, axis = self._args
        return x[(*[slice(None)] * axis, number)]


class LateZip(LateIterable):
    """What `zip`, `pairwise` and `enumerate` give of others, for a loop to go over."""

    __slots__ = ("_begin", "_made", "_parts")

    def __init__(
        self,
        function: Any,
        args: Sequence[Any],
        parts: Sequence[LateIterable],
        length: Any,
        first: int | None = None,
    ) -> None:
        super().__init__(function, args, length)
        self._parts, self._begin = parts, first
        self._made: Iterable[Any] | None = None

    def _look(self) -> Any:
        if self._made is None:  # an iterator, which knows how far it is
            kinds = {type(x.length) for x in self._parts}
            is_short = type(self.length) is int and LateSize in kinds
            self._made = self.rest(0, self.length) if is_short else super()._look()
        return self._made

    @property
    def kind(self) -> type:  # type: ignore[override]
        found: Any = self._function
        return found  # type: ignore[no-any-return]

    def at(self, number: Any) -> Any:
        found = [part.at(part.first + part.stride * number) for part in self._parts]
        return tuple(found if self._begin is None else [self._begin + number, *found])


def iterable_of(x: Any, exits: Exits) -> LateIterable | None:
    """What a loop goes over, where its things can be had by their numbers; None: they can't."""
    if is_iterable(x):
        return x if x.has_numbers else None
    if stands_for_list(x):
        return x.rows()  # type: ignore[no-any-return]
    if isinstance(x, TensorCore) and is_librarys(type(x)) and x._type.shape:
        return None if context.levels else LateRows(x, 0, exits)
    return LateRange(x.start, x.stop, x.step) if type(x) is range else None


def may_be_iterable(x: Any) -> bool:
    """Whether something may be gone over by numbers, or say how many there are."""
    return is_iterable(x) or is_live(x) or stands_for_list(x) or isinstance(x, (TensorCore, range))


def iterable_made(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], exits: Exits, *, is_looped: bool
) -> LateIterable | None:
    """The stand-in for the iterable that one of `MAKERS` makes; None: Python makes it.

    is_looped: whether a loop goes over it, and nobody else sees it.
    """
    if function is range:
        return None if kwargs else _range_of(args, is_looped=is_looped)
    parts = [iterable_of(x, exits) for x in (args[:1] if function is enumerate else args)]
    found = [x for x in parts if x is not None]
    if not is_looped or len(found) < len(parts) or not found:
        return None
    if function is reversed:
        return found[0].backwards()
    if function is enumerate:
        first = [*args[1:], *kwargs.values(), 0][0]
        given = (args[0], first), found, found[0].length, first
        return LateZip(enumerate, *given) if type(first) is int else None
    if function is pairwise:
        parts.append(iterable_of(args[0][1:], exits))
    found = [x for x in parts if x is not None]
    if {*kwargs} - {"strict"} or len(found) < len(parts):
        return None
    length = _least(found, is_same=bool(kwargs.get("strict")))
    return None if length is None else LateZip(function, args, found, length)


def _least(parts: Sequence[LateIterable], *, is_same: bool) -> Any:
    """The least length of all parts; None: it isn't known, or they differ and may not."""
    lengths = [x.length for x in parts]
    counts = [*map(extent_of, lengths)]
    if all(type(x) is type(counts[0]) and x == counts[0] for x in counts):
        return lengths[0]
    is_known = not is_same and all(type(x) in (int, LateSize) for x in lengths)
    return min(lengths) if is_known else None


def _range_of(args: Sequence[Any], *, is_looped: bool) -> LateRange | None:
    """A range of sizes; or up to a number that each call has, with a start for a loop alone."""
    if not any(map(is_live, args)) or [*args[2:]] not in ([], [1], [-1]):
        return None
    if all(type(x) in (int, LateSize) for x in args):
        found = LateRange(*args)
        return found if found.length >= 0 else None
    *firsts, last = args
    is_count = is_live(last) and last.kind is int and (not firsts or (is_looped and len(args) == 2))
    return LateRange(*args) if is_count and all(type(x) is int for x in firsts) else None
