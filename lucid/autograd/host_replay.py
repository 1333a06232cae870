"""What the host calls of one run did, to be taken over by another run without calling them again.

A host call may do something else than while its step was traced: find three elements where there
were two. Nothing has been written then, since all stores come after the last host call. So another
program runs in place of this one, one traced for what was found, and the calls up to here, which
the user's code has made and can see, are not made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lucid.autograd.generators import put_state
from lucid.ir.errors import LucidError
from lucid.ir.hosts import Frame
from lucid.tensor.context import context

if TYPE_CHECKING:
    from lucid.autograd.host_calls import HostBackward, HostForward
    from lucid.autograd.host_finding import Finding

_MADE = "what the host calls of this run did"


@dataclass(frozen=True, slots=True)
class MadeHostCall:
    """A host call that was made, and what it found: `evaluate` of it would give the same.

    Attributes:
        state: what the random generator of a `Finding` was in before it.
    """

    host: HostForward | HostBackward | Finding
    found: Any
    state: Any = None


class HostCallMismatch(LucidError):  # noqa: N818 - a finding, not an error
    """A host call did something else than while tracing; another program goes on from there.

    Attributes:
        made: the host calls of this run, in order, the one that differs last.
        reason: how it differs: old -> new.
    """

    def __init__(self, message: str, reason: str, made: Sequence[MadeHostCall]) -> None:
        super().__init__(message)
        self.reason = reason
        self.made = made


def made_in(frame: Frame) -> Sequence[MadeHostCall]:
    """The calls of a run, as far as they were noted."""
    calls: list[MadeHostCall] = frame.get(_MADE, [])
    return calls


def note(frame: Frame, made: MadeHostCall) -> Sequence[MadeHostCall]:
    """Enter a call into those of its run; return all."""
    calls: list[MadeHostCall] = frame.setdefault(_MADE, [])
    calls.append(made)
    return calls


@contextmanager
def replaying(calls: Sequence[MadeHostCall], path: tuple[int, ...] = ()) -> Iterator[None]:
    """Let a trace or a program that runs in the block take over what a run has found so far.

    path: the outcomes of its exits.
    """
    before = context.replay, context.told
    context.replay, context.told = [*calls], path
    try:
        yield
    finally:
        context.replay, context.told = before


def undo_draws(calls: Sequence[MadeHostCall]) -> None:
    """Let random generators draw again what they drew in a run that nothing goes on from."""
    for made in reversed(calls):
        if made.state is not None:
            put_state(made.host.generator, made.state)  # type: ignore[union-attr]


def replayed(code: object) -> MadeHostCall | None:
    """The call that comes next, if it was made before; it must be of the same code."""
    calls = context.replay
    if calls:
        if calls[0].host.code == code:
            return calls.pop(0)
        calls.clear()
    return None
