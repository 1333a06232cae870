"""What the host calls of one run did, to be taken over by another run without calling them again.

A host call may do something else than while its step was traced: find three elements where there
were two. Nothing has been written then, since all stores come after the last host call. So another
program runs in place of this one, one traced for what was found, and the calls up to here, which
the user's code has made and can see, are not made again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lucid.autograd.generators import put_state
from lucid.autograd.host_world import place_text
from lucid.ir.errors import LucidError
from lucid.ir.extents import is_open
from lucid.ir.hosts import SIZING, Frame
from lucid.ir.types import TensorType
from lucid.tensor.context import context

_MADE = "what the host calls of this run did"


@dataclass(frozen=True, slots=True)
class MadeHostCall:
    """A host call that was made, and what it found: `evaluate` of it would give the same.

    Attributes:
        state: what the random generator of a `Finding` was in before it.
    """

    host: HostCall
    found: Any
    state: Any = None


class HostCallMismatch(LucidError):  # noqa: N818 - a finding, not an error
    """A host call did something else than while tracing; another program goes on from there.

    Attributes:
        made: the host calls of this run, in order, the one that differs last.
        reason: how it differs: old -> new.
        varied: the axes of results whose sizes differ.
    """

    def __init__(
        self,
        message: str,
        reason: str,
        made: Sequence[MadeHostCall],
        varied: Collection[Any] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.varied = varied
        self.made = made


@dataclass(slots=True, eq=False, kw_only=True)
class HostCall:
    """A call of Python that the native step makes.

    Attributes:
        name: what messages call it; code: what tells it from other host calls.
        line: the user's line.
        is_followed: whether one that follows in the step, or a draw of records itself, may find
            something else.
        expected: what it did while tracing, as `seen` says.
        is_made_again: whether another run makes it again, since nobody sees that.
    """

    is_made_again: ClassVar[bool] = False
    name: str
    code: object
    line: tuple[str, int] | None
    is_followed: bool = False
    expected: Any = None

    def __call__(self, frame: Frame, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Call it, unless another run has come up to here and has."""
        made = self.replayed() or self.make(frame, operands)
        found = self.read(made.found, operands)
        difference = self.compared(frame, found)
        if difference is not None or self.is_followed:
            calls: list[MadeHostCall] = frame.setdefault(_MADE, [])
            calls.append(self.kept(made, found))
            if difference is not None:
                reason = f"{self.name}: {difference}"
                text = f"{reason}, which was otherwise when the step was traced"
                text += place_text(self.line)
                raise HostCallMismatch(text, reason, calls, self.varied(found))
        return self.results(frame, found)

    def replayed(self) -> MadeHostCall | None:
        """This call, if it comes next of those that were made before, and is of the same code."""
        calls = context.replay
        while calls and calls[0].host.is_made_again:
            calls.pop(0)
        if calls:
            if calls[0].host.code == self.code:
                return calls.pop(0)
            calls.clear()
        return None

    def fits(self, made: MadeHostCall) -> bool:
        """Whether this call is traced for what a call of another program did."""
        is_same = made.host.code == self.code
        return is_same and self.difference(self.read(made.found, ())) is None

    def make(self, frame: Frame, operands: Sequence[np.ndarray]) -> MadeHostCall:
        """Call it."""
        raise NotImplementedError

    def read(self, found: Any, operands: Sequence[np.ndarray]) -> Any:
        """What it did, by this call or by one of another run, as one of these operands."""
        return found

    def kept(self, made: MadeHostCall, found: Any) -> MadeHostCall:
        """What another run may take over."""
        return made

    def compared(self, frame: Frame, found: Any) -> str | None:
        """The difference of what it did in a run, whose sizes may be open; None: there is none."""
        difference = self.difference(found)
        return frame.get(SIZING, _sizes_at_hand)(self, found) if difference is None else difference

    def difference(self, found: Any) -> str | None:
        """How it did something else than while tracing; None: it didn't."""
        now = self.seen(found)
        return None if now == self.expected else self.said(now)

    def difference_at_hand(self, found: Any) -> str | None:
        """How sizes that are open are others than while tracing."""
        return None

    @property
    def result_types(self) -> Sequence[TensorType]:
        """The types of its results, with open sizes, where each call may find other sizes."""
        return ()

    def axes_of(self, sizes: Collection[int]) -> set[Any]:
        """The axes of results that have one of these sizes, and aren't open."""
        return {
            (self.code, self.line, number, axis)
            for number, type in enumerate(self.result_types)
            for axis, size in enumerate(type.shape)
            if not is_open(size) and size in sizes
        }

    def varied(self, found: Any) -> Collection[Any]:
        """The axes of results whose sizes are others than while tracing."""
        return ()

    def seen(self, found: Any) -> Any:
        """What of it is compared."""
        raise NotImplementedError

    def said(self, now: Any) -> str:
        """The difference in words."""
        raise NotImplementedError

    def results(self, frame: Frame, found: Any) -> Sequence[np.ndarray]:
        """What the node gives."""
        raise NotImplementedError


def _sizes_at_hand(host: HostCall, found: Any) -> str | None:
    """What stands for the taker of sizes in a program that is made for those of its trace."""
    return host.difference_at_hand(found)


def made_in(frame: Frame) -> Sequence[MadeHostCall]:
    """The calls of a run, as far as they were noted."""
    calls: list[MadeHostCall] = frame.get(_MADE, [])
    return calls


@contextmanager
def replaying(
    calls: Sequence[MadeHostCall], answers: Sequence[tuple[str, int]] = ()
) -> Iterator[None]:
    """Let a trace or a program that runs in the block take over what a run has found so far.

    answers: what its exits have asked, and the outcomes.
    """
    before = context.replay, context.told
    context.replay, context.told = [*calls], answers
    try:
        yield
    finally:
        context.replay, context.told = before


def undo_draws(calls: Sequence[MadeHostCall]) -> None:
    """Let random generators draw again what they drew in a run that nothing goes on from."""
    for made in reversed(calls):
        if made.state is not None:
            put_state(made.host.generator, made.state)  # type: ignore[attr-defined]
