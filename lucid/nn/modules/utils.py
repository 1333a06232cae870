"""Options as one number per axis, as modules of programs write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any


def _ntuple(count: int) -> Callable[[Any], tuple[Any, ...]]:
    """A function that repeats what is no iterable `count` times, and makes a tuple of one."""

    def parse(option: Any) -> tuple[Any, ...]:
        return tuple(option) if isinstance(option, Iterable) else tuple(repeat(option, count))

    return parse


_single, _pair, _triple, _quadruple = (_ntuple(count) for count in (1, 2, 3, 4))
