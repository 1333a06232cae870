"""Calls that don't fit a function's parameters: what is wrong with them, and what was meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from lucid.ir.location import warn

# What other libraries call the same.
_SYNONYMS = {
    "learning_rate": "lr",
    "use_bias": "bias",
    "epsilon": "eps",
    "axis": "dim",
    "keepdims": "keepdim",
    "kernel": "kernel_size",
    "strides": "stride",
    "filters": "out_channels",
    "units": "out_features",
    "rate": "p",
    "decay": "weight_decay",
    "l2": "weight_decay",
    "name": "names",
}


def misfit(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> str | None:
    """What is wrong with a call that doesn't fit a function's parameters, and what would fit."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as mismatch:
        known = [key for key in signature.parameters if key != "self"]
        for key in kwargs:
            if key in known:
                continue
            meant = _SYNONYMS.get(key)
            close = [meant] if meant in known else difflib.get_close_matches(key, known, 1)
            if close:
                return f"{name}: {mismatch}\nhint: did you mean {close[0]}?"
        return f"{name}: {mismatch}\nhint: it is {name}{_plain(signature)}"
    return None


def with_reduction(function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The keywords of a loss, with `reduction` for `size_average` and `reduce`, its older names.

    None where there are no such keywords, or the function is no loss.
    """
    known = inspect.signature(function).parameters if kwargs else {}
    older = {"size_average", "reduce"} & kwargs.keys() - known.keys()
    if not older or "reduction" not in known:
        return None
    rest = {key: value for key, value in kwargs.items() if key not in older}
    average, reduces = kwargs.get("size_average"), kwargs.get("reduce")
    return rest | {"reduction": reduction_of(average, reduces, rest.get("reduction", "mean"))}


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """What two flags, which older programs give, or else a name say of a loss's reduction."""
    if size_average is None and reduce is None:
        return reduction
    reduces, averages = (flag is None or flag for flag in (reduce, size_average))
    found = ("mean" if averages else "sum") if reduces else "none"
    warn(f"size_average and reduce are deprecated, please write reduction={found!r} instead")
    return found


def is_misfit(error: Exception) -> bool:
    """Whether it was raised by the call of the function itself, of which nothing has run."""
    place = error.__traceback__
    return type(error) is TypeError and place is not None and place.tb_next is None


def _plain(signature: inspect.Signature) -> str:
    """The parameters without their types."""
    parameters = [value for key, value in signature.parameters.items() if key != "self"]
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(bare))
