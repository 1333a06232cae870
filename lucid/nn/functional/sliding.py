"""What convolutions and pools have in common: arguments per axis, and padding for windows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import lucid
from lucid.docstrings import over
from lucid.functions.arguments import integer
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import Shape
from lucid.tensor.core import constant
from lucid.tensor.tensor import Tensor

Ints = tuple[int, ...]
Size = int | Sequence[int]
P = ParamSpec("P")
R = TypeVar("R")


def of_each_rank(
    function: Callable[Concatenate[int, P], R],
) -> tuple[Callable[P, R], Callable[P, R], Callable[P, R]]:
    """A function over one, two and three axes: `_conv` makes `conv1d`, `conv2d` and `conv3d`.

    Of `_convnd_input` it makes `conv1d_input` and so on.

    Its first parameter is the number of axes; its docstring is about one of them.
    """
    return _of_rank(function, 1), _of_rank(function, 2), _of_rank(function, 3)


def _of_rank(function: Callable[Concatenate[int, P], R], rank: int) -> Callable[P, R]:
    @wraps(function)
    def variant(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(rank, *args, **kwargs)

    signature, shown = inspect.signature(function), variant.__dict__
    _, *parameters = signature.parameters.values()
    shown["__signature__"] = signature.replace(parameters=parameters)
    name, count = re.subn("nd(?=_|$)", f"{rank}d", function.__name__.removeprefix("_"))
    variant.__name__ = variant.__qualname__ = name if count else f"{name}{rank}d"
    variant.__doc__ = over(variant.__doc__ or "", rank)
    return variant


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows slide over the last axes, one entry per axis.

    Attributes:
        low, high: how much is padded before and behind.
    """

    sizes: Ints
    steps: Ints
    dilations: Ints
    low: Ints
    high: Ints

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def spans(self) -> Ints:
        """Elements from the first to the last one of a window."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.sizes, self.dilations, strict=True))

    def padded(self, lengths: Shape) -> Shape:
        return tuple(a + n + b for a, n, b in zip(self.low, lengths, self.high, strict=True))

    def counts(self, lengths: Shape) -> Shape:
        """How many windows each axis has."""
        found = zip(self.padded(lengths), self.spans, self.steps, strict=True)
        return tuple((n - span) // step + 1 for n, span, step in found)

    def rest(self, lengths: Shape, counts: Shape) -> Ints:
        """How many padded elements lie behind the last of so many windows, on each axis."""
        found = zip(self.padded(lengths), counts, self.steps, self.spans, strict=True)
        return tuple(n - (count - 1) * step - span for n, count, step, span in found)

    def lengths(self, counts: Shape, rest: Ints) -> Shape:
        """How many elements each axis has, without the padding, with so many windows."""
        found = zip(counts, self.steps, self.spans, self.low, self.high, rest, strict=True)
        return tuple(
            (count - 1) * step + span - low - high + more
            for count, step, span, low, high, more in found
        )

    def attributes(self, axes: Ints) -> dict[str, Ints]:
        """As attributes of the op `overlap_add`, without the lengths."""
        return {"axes": axes, "steps": self.steps, "dilations": self.dilations}


def last_axes(x: Tensor, rank: int) -> Ints:
    """The numbers of the last `rank` axes."""
    return tuple(range(x.ndim - rank, x.ndim))


def windows_of(x: Tensor, windows: Windows, value: float = 0.0) -> Tensor:
    """View the windows over the last axes of `x`, padded with `value`, as new axes at the end."""
    place = windows.attributes(last_axes(x, windows.rank))
    padded = resized(x, windows.low, windows.high, value)
    return ops.windows(padded, sizes=windows.sizes, **place)


def add_windows(x: Tensor, windows: Windows, lengths: Shape) -> Tensor:
    """Add up windows, of the shape that `windows_of` has, where they lie; cut the padding off."""
    rank = windows.rank
    axes = tuple(range(x.ndim - 2 * rank, x.ndim - rank))
    padded = windows.padded(lengths)
    whole: Tensor = ops.overlap_add(x, lengths=padded, **windows.attributes(axes))
    return resized(whole, tuple(-n for n in windows.low), tuple(-n for n in windows.high))


def resized(x: Tensor, low: Ints, high: Ints, value: float = 0.0) -> Tensor:
    """Pad the last axes at both ends, or cut off where a count is negative."""
    rank, lead = len(low), (0,) * (x.ndim - len(low))
    if min((*low, *high), default=0) < 0:
        starts = tuple(max(-n, 0) for n in low)
        stops = tuple(n - max(-h, 0) for n, h in zip(x.shape[-rank:], high, strict=True))
        bounds = {"starts": lead + starts, "stops": tuple(x.shape[:-rank]) + stops}
        x = ops.slice(x, steps=(1,) * x.ndim, **bounds)
    if max((*low, *high), default=0) <= 0:
        return x
    low, high = (lead + tuple(max(n, 0) for n in end) for end in (low, high))
    return ops.pad(x, constant(value, x.dtype), low=low, high=high)


def entries(name: str, argument: str, value: Size, rank: int, least: int = 1) -> Ints:
    """One integer per axis, from one for all or one each.

    Raises `OptionError`, and `ArgumentError` for what is no int.
    """
    is_one = type(value) is int or not isinstance(value, Sequence)
    given: Any = (value,) if is_one else value
    found = tuple([integer(n, name, argument) for n in given])
    found = found * rank if len(found) == 1 else found
    if len(found) != rank:
        raise OptionError(f"{name}: {argument} must be an int or {rank} of them, not {list(found)}")
    if min(found, default=least) < least:
        kind = "negative" if least == 0 else "non-positive"
        raise OptionError(f"{name}: {kind} {argument} is not supported, got {list(found)}")
    return found


def same_padding(sizes: Ints, dilations: Ints) -> tuple[Ints, Ints]:
    """Zeros before and behind that make the result as long as the input, the odd one behind."""
    totals = [d * (k - 1) for k, d in zip(sizes, dilations, strict=True)]
    return tuple(n // 2 for n in totals), tuple(n - n // 2 for n in totals)


def batched(name: str, x: Tensor, rank: int) -> tuple[Tensor, bool]:
    """The input with a batch axis, and whether it had one."""
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{name}: Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input")
    return (x, True) if x.ndim == rank + 2 else (x.unsqueeze(0), False)


def times(sizes: Sequence[Any]) -> str:
    """Sizes as PyTorch's messages print them: `3 x 4`."""
    return " x ".join(map(str, sizes))


def same_dtype(name: str, input: Tensor, weight: Tensor) -> None:
    """Raise unless both have one dtype."""
    if input.dtype is not weight.dtype:
        raise lucid.DTypeError(f"{name}: expected input and weight of one dtype")
