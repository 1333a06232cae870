"""What a backward changes in its ctx, for traces whose ctx is a new one at each backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lucid.ir.whose_code import is_users
from lucid.tensor.context import context
from lucid.tensor.tree import children_of

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction

_RULES = {"needs_input_grad", "to_save", "materialize_grads"}


@contextmanager
def noting_changes(ctx: BackwardCFunction) -> Iterator[None]:
    """Note for a running trace which attribute of `ctx` its backward changes.

    One that is new and that backward had not asked for is none: the next backward sets it again.
    Nor is a list to which it adds something, and at which it doesn't look: a log.
    """
    recorder = context.recorder
    if recorder is None:
        yield
        return
    before = _attributes(ctx)
    contents = {name: _contents(value) for name, value in before.items()}
    ctx._asked = set()
    try:
        yield
        for name, now in _attributes(ctx).items():
            is_own = name not in before and name not in ctx._asked
            is_same = _is_same(before.get(name, ctx), now)
            if is_same and (is_plain_object(now) or recorder.has_looked_at(now)):
                is_same = _are_same(contents[name], _contents(now))
            if not is_own and not is_same:
                text = f"{ctx._short_name()}.backward changes ctx.{name}{ctx._place()}"
                recorder.ctx_change = text
    finally:
        ctx._asked = None


def _attributes(ctx: BackwardCFunction) -> dict[str, Any]:
    """The user's attributes."""
    own = ctx._own_names
    return {n: value for n, value in vars(ctx).items() if n not in own and n not in _RULES}


def is_plain_object(value: Any) -> bool:
    """Whether it is an object of a class of the user's, with attributes in its `__dict__` alone."""
    kinds = type(value).__mro__[:-1]
    return all(is_users(kind) and not vars(kind).get("__slots__") for kind in kinds) and (
        not isinstance(value, type) and type(value).__dictoffset__ != 0
    )


def _contents(value: Any) -> dict[Any, Any] | None:
    return dict(vars(value)) if is_plain_object(value) else children_of(value)


def _is_same(before: Any, now: Any) -> bool:
    is_plain = type(before) is type(now) and type(now) in (int, float, str)  # no live number
    return before is now or (is_plain and before == now)


def _are_same(before: dict[Any, Any] | None, now: dict[Any, Any] | None) -> bool:
    if before is None or now is None:
        return before is now
    return [*before] == [*now] and all(map(_is_same, before.values(), now.values()))
