"""`repr(tensor)`, as PyTorch prints it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.choices import check_flag, check_kind
from lucid.dtypes import get_default_dtype
from lucid.ir.errors import OptionError
from lucid.ir.types import DType, bool_, i64
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.tensor.tensor import Tensor


_MOST_DIGITS = 1074  # behind the point, of the smallest f64


@dataclass(frozen=True)
class PrintOptions:
    """How tensors are printed.

    Attributes:
        precision: digits after the point.
        threshold: tensors with more elements are abbreviated.
        edgeitems: elements shown at each end of an abbreviated axis.
        linewidth: characters per line.
        sci_mode: scientific notation always, never, or (None) where the numbers ask for it.
    """

    precision: int = 4
    threshold: int = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


class _Current:
    options = PrintOptions()


def get_printoptions() -> dict[str, Any]:
    """Return the options for printing tensors, by name, as `set_printoptions` sets them.

    >>> lucid.get_printoptions()["precision"]
    4
    """
    return dict(vars(_Current.options))


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; what isn't named stays, but for `sci_mode`.

    The options hold for all threads, until they are set again.

    Args:
        precision: digits behind the point. Default: None, at first 4.
        threshold: from how many elements on only the edges are shown. Default: None, at first 1000.
        edgeitems: how many elements are shown at each edge. Default: None, at first 3.
        linewidth: characters in a line. Default: None, at first 80.
        profile: "default", "short" or "full", which resets what isn't named.
        sci_mode: whether floats have exponents. Default: None, as their sizes are.

    Raises:
        OptionError: another `profile`, a number below 0, or more digits than any float has.
        ArgumentError: a value of another type.

    >>> lucid.set_printoptions(precision=2)
    >>> lucid.tensor([1.23456])
    tensor([1.23])
    >>> lucid.set_printoptions(profile="default")
    """
    if profile not in (None, "default", "short", "full"):
        raise OptionError(f"set_printoptions: no profile {profile!r}")
    options = _Current.options
    if profile is not None:
        options = PrintOptions(
            precision=2 if profile == "short" else 4,
            threshold=2**63 if profile == "full" else 1000,
            edgeitems=2 if profile == "short" else 3,
        )
    given = {
        "precision": precision, "threshold": threshold, "edgeitems": edgeitems,
        "linewidth": linewidth,
    }  # fmt: skip
    for name, value in given.items():
        check_kind(value, int, name, "set_printoptions")
        if value is not None and value < 0:
            raise OptionError(f"set_printoptions: {name} must be 0 or more, not {value}")
    if precision is not None and precision > _MOST_DIGITS:
        raise OptionError(f"set_printoptions: precision must be at most {_MOST_DIGITS}")
    check_flag(sci_mode, "sci_mode", "set_printoptions", or_none=True)
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _Current.options = replace(options, sci_mode=sci_mode, **changed)


class _Formatter:
    """Formats the elements of one tensor to one width, that of its finite nonzero ones."""

    def __init__(self, shown: np.ndarray, options: PrintOptions) -> None:
        self._options = options
        self._is_float = shown.dtype.kind == "f"
        self._scientific = False
        self._whole = True
        counted = shown.ravel()
        if self._is_float:
            counted = counted[np.isfinite(counted) & (counted != 0)]
            if counted.size:
                self._choose_notation(counted.astype(np.float64))
        self.width = max((len(self._text(value)) for value in counted), default=1)

    def _choose_notation(self, numbers: np.ndarray) -> None:
        """Whole numbers get a bare point; a wide range of magnitudes gets exponents."""
        low, high = float(np.abs(numbers).min()), float(np.abs(numbers).max())
        self._whole = bool((numbers == np.ceil(numbers)).all())
        self._scientific = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
        if self._options.sci_mode is not None:
            self._scientific = self._options.sci_mode

    def _text(self, value: Any) -> str:
        if not self._is_float:
            return str(value.item())
        number = float(value)
        if self._scientific:
            return f"{number:.{self._options.precision}e}"
        if self._whole:
            return f"{number:.0f}" + ("." if math.isfinite(number) else "")
        return f"{number:.{self._options.precision}f}"

    def __call__(self, value: Any) -> str:
        return self._text(value).rjust(self.width)


def format_tensor(tensor: Tensor) -> str:
    """The tensor with its data; one of a trace as its type, name and the line that made it."""
    if context.recorder is not None:
        return context.recorder.text_of(tensor)
    if tensor.is_traced:
        return _format_traced(tensor)
    assert tensor._array is not None
    return format_data(tensor._array, tensor.dtype, suffixes_of(tensor))


def format_data(array: np.ndarray, dtype: DType, of_history: Sequence[str]) -> str:
    """The text of a tensor with this data."""
    suffixes = [*of_history]
    default = (get_default_dtype(), i64, bool_)
    if dtype not in default or (array.size == 0 and dtype is not default[0]):
        suffixes.insert(0, f"dtype={dtype!r}")
    if array.size == 0:
        body = "[]"
        if array.ndim != 1:
            suffixes.insert(0, f"size={tuple(map(int, array.shape))}")
    else:
        body = format_array(array, len("tensor("))
    return _joined("tensor(" + body, suffixes)


def suffixes_of(tensor: Tensor) -> list[str]:
    """What the text of a tensor says of its history."""
    suffixes = []
    if tensor._lost_history() is not None and tensor.requires_grad:
        suffixes.append("grad_fn=<Invalid>")
    elif (grad_fn := tensor.grad_fn) is not None:
        suffixes.append(f"grad_fn=<{grad_fn._name_at(tensor._output_nr)}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    return suffixes


def _joined(text: str, suffixes: list[str]) -> str:
    """Append the suffixes, each on a new line where the last one is full."""
    last_line = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if last_line + len(suffix) + 2 > _Current.options.linewidth:
            text += ",\n" + " " * len("tensor(")
            last_line = len("tensor(") + len(suffix)
        else:
            text += ", "
            last_line += len(suffix) + 2
        text += suffix
    return text + ")"


def _format_traced(tensor: Tensor) -> str:
    value = tensor._value[1] if tensor._value is not None else tensor._storage.value
    name = f" %{value.name}" if value is not None and value.name else ""
    place = tensor.location
    return f"{tensor._type}{name}" + (f" ({place})" if place is not None else "")


def format_array(array: np.ndarray, indent: int) -> str:
    """Nested brackets around equally wide numbers, abbreviated above the threshold."""
    options = _Current.options
    abbreviated = array.size > options.threshold
    shown = _edges(array, options.edgeitems) if abbreviated else array
    formatter = _Formatter(shown, options)
    return _nested(array, indent, abbreviated, formatter)


def _edges(array: np.ndarray, count: int) -> np.ndarray:
    """The part of an abbreviated array that is shown."""
    places = (
        [*range(count), *range(size - count, size)] if size > 2 * count else [*range(size)]
        for size in array.shape
    )
    return array[np.ix_(*places)]  # nothing else is copied: a view may be vast


def _nested(array: np.ndarray, indent: int, abbreviated: bool, formatter: _Formatter) -> str:
    if array.ndim == 0:
        return formatter(array[()])
    edge = _Current.options.edgeitems
    if array.ndim == 1:
        return _row(array, indent, abbreviated, formatter)
    rows: list[str]
    if abbreviated and len(array) > 2 * edge:
        rows = [_nested(row, indent + 1, abbreviated, formatter) for row in array[:edge]]
        rows.append("...")
        rows += [_nested(row, indent + 1, abbreviated, formatter) for row in array[-edge:]]
    else:
        rows = [_nested(row, indent + 1, abbreviated, formatter) for row in array]
    separator = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return f"[{separator.join(rows)}]"


def _row(array: np.ndarray, indent: int, abbreviated: bool, formatter: _Formatter) -> str:
    edge = _Current.options.edgeitems
    if abbreviated and len(array) > 2 * edge:
        entries = [*map(formatter, array[:edge]), " ...", *map(formatter, array[-edge:])]
    else:
        entries = list(map(formatter, array))
    per_line = max(1, (_Current.options.linewidth - indent) // (formatter.width + 2))
    lines = [entries[i : i + per_line] for i in range(0, len(entries), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(", ".join(line) for line in lines) + "]"
