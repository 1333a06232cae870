"""What the host calls of one run did, to be taken over by another run without calling them again.

A host call may do something else than while its step was traced: find three elements where there
were two. Nothing has been written then, since all stores come after the last host call. So another
program runs in place of this one, one traced for what was found, and the calls up to here, which
the user's code has made and can see, are not made again.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.host_world import Changes, State
from lucid.ir.errors import LucidError
from lucid.ir.hosts import Frame, HostFunction
from lucid.tensor.context import context
from lucid.tensor.storage import Storage

if TYPE_CHECKING:
    from lucid.autograd.function import BackwardCFunction
    from lucid.autograd.host_calls import HostBackward, HostForward
    from lucid.autograd.host_finding import Finding
    from lucid.autograd.host_reading import Evaluated

_MADE = "what the host calls of this run did"


class Differs(LucidError):  # noqa: N818 - a finding, not an error
    """A host call did something else than while tracing; another program goes on from there.

    Attributes:
        made: the host calls of this run, in order, the one that differs last.
        reason: how it differs: old -> new.
    """

    def __init__(self, message: str, reason: str, made: Sequence[Made]) -> None:
        super().__init__(message)
        self.reason = reason
        self.made = made


class Written:
    """What one call left in tensors from outside."""

    def __init__(self, states: Sequence[State], changes: Changes) -> None:
        self.contents: dict[Storage, np.ndarray] = {
            state.storage: changes.contents[state.result]
            for state in states
            if state.result is not None and state.result in changes.contents
        }
        moved = zip(states, changes.moved, strict=True)
        self._moved = {state.storage: count for state, count in moved}

    def changes(self, states: Sequence[State]) -> Changes:
        """The same for another call's list of such tensors."""
        found = Changes(states, ())
        found.moved = [self._moved.get(state.storage, 0) for state in states]
        for state in states:
            if state.result is not None:
                assert state.storage.array is not None
                after = self.contents.get(state.storage, state.storage.array)
                found.contents[state.result] = np.array(after, order="C")
        return found

    def is_within(self, states: Sequence[State]) -> bool:
        """Whether a call that is known to write `states` can have left this."""
        known = {state.storage for state in states if state.result is not None}
        return known.issuperset(self.contents)


@dataclass(slots=True, eq=False)
class MadeForward:
    """A forward that ran: what it returned, and its ctx as it was then."""

    host: HostForward
    found: Evaluated
    ctx: BackwardCFunction
    written: Written

    @staticmethod
    def of(host: HostForward, found: Evaluated) -> MadeForward:
        """Take it down."""
        return MadeForward(host, found, copy.copy(found.ctx), Written(host.states, found.changes))

    def again(self, lent: Sequence[np.ndarray], states: Sequence[State]) -> Evaluated:
        """The evaluation, with a ctx of its own and the operands that another call has."""
        ctx, changes = copy.copy(self.ctx), self.written.changes(states)
        return dataclasses.replace(self.found, lent=lent, ctx=ctx, changes=changes, plan=None)


@dataclass(slots=True, eq=False)
class MadeBackward:
    """A backward that ran: its gradients, checked."""

    host: HostBackward
    parts: tuple[Any, ...]
    written: Written


@dataclass(slots=True, eq=False)
class MadeFinding:
    """What NumPy found for a function of lucid's."""

    host: Finding
    arrays: Sequence[np.ndarray]


Made = MadeForward | MadeBackward | MadeFinding


def made_in(frame: Frame) -> Sequence[Made]:
    """The calls of a run, as far as they were noted."""
    calls: list[Made] = frame.get(_MADE, [])
    return calls


def note(frame: Frame, made: Made) -> Sequence[Made]:
    """Enter a call into those of its run; return all."""
    calls: list[Made] = frame.setdefault(_MADE, [])
    calls.append(made)
    return calls


class Replay:
    """Calls to be taken over: by a trace in their order, or by the host calls of a program.

    Attributes:
        calls: for a trace; path: the outcomes of its exits, as far as a run has come.
    """

    def __init__(self, calls: Sequence[Made], path: tuple[int, ...] = ()) -> None:
        self.calls = calls
        self.path = path
        self._of: dict[HostFunction, Made] = {}

    @staticmethod
    def into(hosts: Sequence[HostFunction], calls: Sequence[Made]) -> Replay:
        """For a program, by its host calls in their order."""
        replay = Replay(())
        replay._of = dict(zip(hosts, calls, strict=False))
        return replay

    def take(self, host: HostFunction) -> Made | None:
        """What a host call of the program did already."""
        return self._of.pop(host, None)


@contextmanager
def replaying(replay: Replay | None) -> Iterator[None]:
    """Let this thread take over in the block what was done."""
    before, context.replay = context.replay, replay
    try:
        yield
    finally:
        context.replay = before


def replayed(host: HostFunction) -> Made | None:
    """What a host call of the running program has done already; None: it must be made."""
    return None if context.replay is None else context.replay.take(host)
