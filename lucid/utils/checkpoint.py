"""`checkpoint` of PyTorch's: what it computes, without its saving of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Return `function(*args, **kwargs)`; its intermediate values are kept for the backward.

    A compiled step decides by itself what it computes again.
    """
    return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Sequence[Callable[[Any], Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Return what the functions, one after the other, make of the input."""
    for function in functions:
        input = function(input)
    return input
