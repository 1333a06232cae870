"""NumPy's names for arguments, which PyTorch takes as well: `axis` for `dim`, `keepdims`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from lucid.ir.errors import ArgumentError

P = ParamSpec("P")
R = TypeVar("R")

_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def numpy_names(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function be called with `axis=` for `dim=` and `keepdims=` for `keepdim=`."""

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs and not kwargs.keys().isdisjoint(_NAMES):
            _rename(kwargs, function.__name__)
        return function(*args, **kwargs)

    return named


def _rename(kwargs: dict[str, object], op: str) -> None:
    for theirs, ours in _NAMES.items():
        if theirs in kwargs:
            if ours in kwargs:
                raise ArgumentError(f"{op}: got {ours}= and {theirs}=, which mean the same")
            kwargs[ours] = kwargs.pop(theirs)
