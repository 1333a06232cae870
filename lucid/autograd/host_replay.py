"""What the host calls of one run did, to be taken over by another run without calling them again.

A host call may do something else than while its step was traced: find three elements where there
were two. Nothing has been written then, since all stores come after the last host call. So another
program runs in place of this one, one traced for what was found, and the calls up to here, which
the user's code has made and can see, are not made again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lucid.autograd.generators import put_state
from lucid.autograd.host_world import place_text
from lucid.ir.errors import LucidError
from lucid.ir.extents import LEAST, MOST, Extent, is_open
from lucid.ir.hosts import SIZING, Frame
from lucid.ir.types import TensorType
from lucid.tensor.context import context

_MADE = "what the host calls of this run did"
_MOST_KNOWN = 256  # types of what is found
_UNKNOWN: Any = object()

OpenAxis = tuple[object, tuple[str, int] | None, int, int]
"""An axis of a result whose size values decide: which function, the user's line, which result."""


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
        types: of its results, where calls may find others: with open sizes, or those of the trace.
        axes: where its operands have open sizes: operand and axis.
        is_made_again: whether another run makes it again, since nobody sees that.
    """

    is_made_again: ClassVar[bool] = False
    name: str
    code: object
    line: tuple[str, int] | None
    is_followed: bool = False
    expected: Any = None
    types: tuple[TensorType, ...] = ()
    axes: dict[Extent, tuple[int, int]] = field(default_factory=dict)
    _known: tuple[Any, dict[Any, Any]] = ((), {})  # sizes by types, for those that are expected

    def __call__(self, frame: Frame, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Call it, unless another run has come up to here and has."""
        made = self.replayed() or self.make(frame, operands)
        found = made.found
        difference = self.compared(frame, found)
        if difference is not None or self.is_followed:
            calls: list[MadeHostCall] = frame.setdefault(_MADE, [])
            calls.append(self.kept(made))
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
        return is_same and self.difference(made.found) is None

    def make(self, frame: Frame, operands: Sequence[np.ndarray]) -> MadeHostCall:
        """Call it."""
        raise NotImplementedError

    def kept(self, made: MadeHostCall) -> MadeHostCall:
        """What another run may take over."""
        return made

    def compared(self, frame: Frame, found: Any) -> str | None:
        """The difference of what it did in a run, whose sizes may be open; None: there is none.

        In a program that is made for the sizes of its trace, such sizes have to be those.
        """
        difference = self.difference(found)
        if difference is not None or (not self._sizes(found) and SIZING not in frame):
            return difference
        if SIZING in frame:
            taken: str | None = frame[SIZING](self, found)
            return taken
        is_same = all(size.hint == value for size, value in self.sizes_of(found).items())
        return None if is_same else self.said(found)

    def difference(self, found: Any) -> str | None:
        """How it did something else than while tracing; None: it didn't."""
        is_alike = self.seen(found) == self.expected and self._sizes(found) is not None
        return None if is_alike else self.said(found)

    def sizes_of(self, found: Any) -> Mapping[Extent, int]:
        """What the open sizes are that this call finds, and its operands don't have."""
        sizes = self._sizes(found) or {}
        return {size: n for size, n in sizes.items() if size not in self.axes} if sizes else sizes

    def _sizes(self, found: Any) -> Mapping[Extent, int] | None:
        """What the open sizes of results are, most often as before; None: they have other types."""
        now, given = self.types_of(found), self.given(found)
        of, known = self._known
        if of is not self.types:
            self._known = of, known = self.types, {}
        key = now, *given.values()
        sizes: Mapping[Extent, int] | None = known.get(key, _UNKNOWN)
        if sizes is _UNKNOWN:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            sizes = known[key] = _sizes_in(self.types, now, given)
        return sizes

    def given(self, found: Any) -> dict[Extent, int]:
        """The open sizes of its operands, as far as a call of another trace has such."""
        return {}

    def axes_of(self, sizes: Collection[int]) -> set[OpenAxis]:
        """The axes of results that have one of these sizes, and aren't open."""
        return {
            (self.code, self.line, number, axis)
            for number, type in enumerate(self.types)
            for axis, size in enumerate(type.shape)
            if not is_open(size) and size in sizes
        }

    def varied(self, found: Any) -> set[OpenAxis]:
        """The axes of results whose sizes are others than known ones, or than those of operands."""
        now, given = self.types_of(found), self.given(found)
        if [(x.dtype, x.ndim) for x in now] != [(x.dtype, x.ndim) for x in self.types]:
            return set()
        shapes: Sequence[Sequence[Any]] = [type.shape for type in self.types]
        return {
            (self.code, self.line, number, axis)
            for number, (shape, type) in enumerate(zip(shapes, now, strict=True))
            for axis, (known, size) in enumerate(zip(shape, type.shape, strict=True))
            if size != (given.get(known, size) if is_open(known) else known)
        }

    def types_of(self, found: Any) -> tuple[TensorType, ...]:
        """The types of its results, where calls may find others."""
        return ()

    def seen(self, found: Any) -> Any:
        """What of it is compared, besides the types."""
        return None

    def said(self, found: Any) -> str:
        """The difference in words."""
        raise NotImplementedError

    def results(self, frame: Frame, found: Any) -> Sequence[np.ndarray]:
        """What the node gives."""
        raise NotImplementedError


def _sizes_in(
    expected: Sequence[TensorType], now: Sequence[TensorType], given: Mapping[Extent, int]
) -> dict[Extent, int] | None:
    """What the open sizes of results are in results of now's types; None: they don't fit.

    given: open sizes that are known before, as those of operands.
    """
    sizes = {**given}
    known: Any
    if len(now) != len(expected):
        return None
    for before, type in zip(expected, now, strict=True):
        if before.dtype is not type.dtype or before.ndim != type.ndim:
            return None
        for known, size in zip(before.shape, type.shape, strict=True):
            if not is_open(known):
                if known != size:
                    return None
            elif not LEAST <= size <= MOST or sizes.setdefault(known, size) != size:
                return None
    return sizes


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
