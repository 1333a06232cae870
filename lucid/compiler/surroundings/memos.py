"""Results that `functools.lru_cache` keeps: what a trace made holds no data, and is forgotten."""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Iterable
from typing import Any

from lucid.tensor.core import TensorCore

MEMO = type(functools.lru_cache(lambda: None))
_SHARED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.CodeType)
_DEPTH = 8  # from a function to the tensors in the objects that it has returned


def misses(memo: Any) -> int:
    """How often the function itself had to run."""
    return int(memo.cache_info().misses)


def forget(memos: Iterable[tuple[Any, int]]) -> None:
    """Clear those with results that were added since and are traced: who asks again computes anew.

    memos: each with its misses before the trace.
    """
    for memo, before in memos:
        if misses(memo) != before and _holds_traced(memo):
            memo.cache_clear()


def _holds_traced(memo: Any) -> bool:
    """Whether a tensor without data is among the results, or in the objects among them."""
    seen: set[int] = set()
    level: list[Any] = [memo]
    for _ in range(_DEPTH):
        found = [item for item in gc.get_referents(*level) if id(item) not in seen]
        seen.update(map(id, found))
        if any(isinstance(item, TensorCore) and item.is_traced for item in found):
            return True
        level = [item for item in found if not isinstance(item, (TensorCore, *_SHARED))]
    return False
