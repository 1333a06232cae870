"""Python values that a program read, put back for as long as its function runs again."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from lucid.compiler.inputs.watches import AnyWatch, ArrayWatch, FlagWatch, LengthWatch, SetWatch
from lucid.ir.errors import LucidError
from lucid.tensor.context import epoch
from lucid.tensor.writing import take_memory


@contextmanager
def as_expected(watches: Sequence[AnyWatch]) -> Iterator[None]:
    """Let watched values be in the block what they were when the function was traced.

    Of tensors only the memory: the backward is told their flags. Raises `LucidError` for what
    can't be put back.
    """
    changed: list[AnyWatch] = [w for w in watches if not isinstance(w, FlagWatch) and not w.holds()]
    moved = [w for w in watches if isinstance(w, FlagWatch) and w.has_other_memory()]
    if not changed and not moved:
        yield
        return
    try:
        with ExitStack() as afterwards:
            for assigned in moved:
                assert assigned.memory is not None
                afterwards.callback(take_memory, assigned.tensor, assigned.tensor._same_memory())
                take_memory(assigned.tensor, assigned.memory)
            for watch in changed:
                as_it_is = _as_it_is(watch)
                _put_back(watch, as_it_is)
                afterwards.callback(as_it_is.put_back)
            epoch.count += 1
            yield
    finally:
        epoch.count += 1


def _put_back(watch: AnyWatch, as_it_is: AnyWatch) -> None:
    """Put a value back, or leave it as it is and raise `LucidError`."""
    failure = watch.failure()
    try:
        watch.put_back()
        is_back = watch.holds()
    except Exception:  # of a setter of the user's
        is_back = False
    if not is_back:
        with suppress(Exception):  # the setter may have set something, or nothing
            as_it_is.put_back()
        raise LucidError(
            "what a compiled function read has changed since the call, and can't be put back to "
            f"differentiate its results\n  {failure}\n"
            "hint: call backward() before it changes, or inside of the compiled function"
        )


def _as_it_is(watch: AnyWatch) -> AnyWatch:
    """A watch that puts back what is there now."""
    if isinstance(watch, LengthWatch):
        return replace(watch, copy=copy.copy(watch.owner), expected=len(watch.owner))
    if isinstance(watch, SetWatch):
        return replace(watch, expected=frozenset(watch.owner))
    if isinstance(watch, ArrayWatch):
        return replace(watch, expected=watch.array.copy())
    if isinstance(watch, FlagWatch):
        return watch
    return replace(watch, expected=watch.found())
