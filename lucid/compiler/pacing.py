"""When another trace of a function, or another look for a program, is worth its time."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from lucid.ir.errors import EagerOnlyError

if TYPE_CHECKING:
    from lucid.compiler.reports.statistics import Stats

MOST_FREE = 8  # traces of one function are made whatever comes of them
MOST_VAIN = 4  # where they took longer than is free, and no call has come back to one
_BY_VALUES = ("path", "host")  # which nothing that is found to move will spare
CALLS_PER_TRACE = 8  # that earlier ones must have served, before another one is made
FREE_SECONDS = 2.0  # that traces may take as long as calls come back, to other paths and sizes
OTHERS = 3  # times that, for what may yet be found to move: after some traces it is an input
# For each trace, its own included: one call in six found a program, or sizes came back twice.
CALLS_PER_RETURN = {"path": 1.2, "shape": 2.5}
TIMED = 4  # calls op by op, and traces, whose times are compared
VAIN = 8  # calls in turn that found no program: from then on looks for one are rarer
VAIN_SHARE = 0.1  # the share of calls' time op by op that looks in vain may take
STAYS = 6  # looks in turn with the same reason for a trace that pay for one

_REMEDY = (
    "let what differs from call to call be a tensor or a float, or one of a few values, sizes or "
    "functions that come back"
)
PATH_REMEDY = "lucid.cond and lucid.where make one program of both ways of an `if` on a tensor"
Looks = tuple[object, ...]
"""A cheap summary of arguments: see `dynamic.looks_of`."""


class NotPaidForError(EagerOnlyError):
    """Another trace would cost more than programs have saved."""

    kind = "retraces"


class TooManyPathsError(NotPaidForError):
    """The branches of a function have taken as many paths as are compiled."""

    kind = "paths"


class TracePace:
    """Whether one function's next trace, or look for a program, is worth its time.

    A trace must be paid for by the calls that earlier programs have served. Where calls come back
    to programs, other paths and sizes are free for some seconds; where none does in that time, a
    few traces are enough; where no size comes back, traces go on as long as they take less time
    than the calls that ran op by op. What has changed at each of the first calls may stay as it is
    from some call on, such as the length of a buffer that is full: no program serves calls then, so
    those that run op by op for it pay for another trace.
    """

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._eager_seconds: deque[float] = deque(maxlen=TIMED)
        self._reason: NotPaidForError
        self._calls = 0  # that ran natively; and of those since, which found no program:
        self._vain, self._looking, self._running = 0, 0.0, 0.0  # how many, and what they took
        self._looks: set[Looks] = set()
        self._asked, self._is_new = "", False  # why a call wanted a trace last; whether the last
        self._times, self._needed = 0, STAYS  # how often in turn, and how often it must
        self._paid: tuple[int, int] | None = None  # native calls and traces when these paid for one

    def note_eager(
        self, reason: NotPaidForError, looks: Looks, looking: float, running: float
    ) -> None:
        """Note a call that ran op by op for want of a trace.

        looks: of its arguments. looking, running: how long it looked for a program, and then ran.
        """
        self._eager_seconds.append(running)
        if self._calls != self._stats.calls:
            self._settle()
            self._calls, self._looks = self._stats.calls, set()
            self._vain, self._looking, self._running = 0, 0.0, 0.0
        if not self._is_spent:
            self._vain += 1
            self._looking += looking
            self._looks.add(looks)
        self._running += running
        self._times += self._is_new
        self._is_new = False
        self._reason = reason.with_traceback(None)

    @property
    def _is_spent(self) -> bool:
        """Whether another look would take more than it may."""
        return self._vain >= VAIN and self._looking > VAIN_SHARE * self._running

    def refuse_look(self, looks: Looks, is_known: bool) -> None:
        """Raise where the last calls have found no program, and this one needn't look.

        is_known: whether there is a program for arguments that look so.
        """
        in_turn = self._calls == self._stats.calls
        if in_turn and self._is_spent and (looks in self._looks or not is_known):
            raise type(self._reason)(*self._reason.args)

    def refuse_trace(self, kind: str, reason: str, line: Callable[[], str]) -> None:
        """Raise where the function was traced so often that running it op by op costs less.

        kind, reason: of the trace, as in `Traced`; line: of the user's, behind the reason.
        """
        stats, is_path = self._stats, kind == "path"
        traces = stats.paths + 1 if is_path else stats.traces - stats.paths  # one was left first
        returned = stats.calls >= CALLS_PER_RETURN.get(kind, inf) * traces
        none_returned = stats.calls < CALLS_PER_RETURN["path"] * stats.traces
        is_by_values = kind in _BY_VALUES
        patience = FREE_SECONDS * (1 if is_by_values else OTHERS)
        is_vain = none_returned and stats.compile_seconds >= patience
        if (
            traces < (MOST_VAIN if is_vain else MOST_FREE)
            or stats.calls >= CALLS_PER_TRACE * traces
            or (returned and stats.compile_seconds < FREE_SECONDS)
            or (not is_path and self._is_faster())
            or self._is_paid_for(reason, STAYS if is_by_values and is_vain else 1)
        ):
            return
        raise NotPaidForError(
            f"it was traced {traces} times in {stats.calls} calls that ran natively, and would be "
            f"traced again now: {reason}{line()}\nhint: {PATH_REMEDY if is_path else _REMEDY}"
        )

    def _is_paid_for(self, reason: str, times: int) -> bool:
        """Whether enough calls in turn ran op by op for one reason, which has come to stay.

        times: as many as otherwise.
        """
        stats = self._stats
        if self._paid is not None and self._paid[1] != stats.traces:
            self._settle()
        if reason != self._asked:
            self._asked, self._times = reason, 0
        self._is_new = True
        if self._times < self._needed * times:
            return False
        self._paid = stats.calls, stats.traces  # a trace may ask again when it begins again
        return True

    def _settle(self) -> None:
        """Look at what a trace has served that calls op by op have paid for.

        If that were fewer calls than a trace must serve, the next one needs twice as many.
        """
        if self._paid is not None:
            if self._stats.calls - self._paid[0] < CALLS_PER_TRACE:
                self._needed *= 2
            self._paid, self._times = None, 0

    def _is_faster(self) -> bool:
        """Whether another trace for other sizes will take less time than the call op by op."""
        latest = self._stats.history[-TIMED:]
        if latest[-1].source != "other sizes" or len(self._eager_seconds) < TIMED:
            return False
        seconds = statistics.median(traced.seconds for traced in latest)
        return seconds <= min(self._eager_seconds)
