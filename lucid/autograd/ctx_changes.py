"""What a backward changes in its ctx, for traces whose ctx is a new one at each backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction

_RULES = {"needs_input_grad", "to_save", "materialize_grads"}


@contextmanager
def noting_changes(ctx: BackwardCFunction) -> Iterator[None]:
    """Note for a running trace which attribute of `ctx` its backward changes.

    One that is new and that backward had not asked for is none: the next backward sets it again.
    """
    recorder = context.recorder
    if recorder is None:
        yield
        return
    before = _attributes(ctx)
    ctx._asked = set()
    try:
        yield
        for name, now in _attributes(ctx).items():
            is_own = name not in before and name not in ctx._asked
            if not is_own and not _is_same(before.get(name, ctx), now):
                text = f"{ctx._short_name()}.backward changes ctx.{name}{ctx._place()}"
                recorder.ctx_change = text
    finally:
        ctx._asked = None


def _attributes(ctx: BackwardCFunction) -> dict[str, Any]:
    """The user's attributes. A container is one value: lists on a ctx are logs, mostly."""
    own = ctx._own_names
    return {n: value for n, value in vars(ctx).items() if n not in own and n not in _RULES}


def _is_same(before: Any, now: Any) -> bool:
    is_plain = type(before) is type(now) and type(now) in (int, float, str)  # no live number
    return before is now or (is_plain and before == now)
