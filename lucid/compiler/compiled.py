"""`lucid.compile`: the decorator, and the function that it makes."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import operator
import os
import sys
import time
import traceback
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from lucid.autograd.generators import put_state, state_of
from lucid.autograd.host_replay import HostCallMismatch, replaying, undo_draws
from lucid.choices import check_choice, check_flags, check_kind
from lucid.compiler.guards.events import ListenerSnapshot
from lucid.compiler.guards.guard import instance_dict, is_number
from lucid.compiler.guards.mutable_sources import ELEMENTS, GrowingList, live_sources
from lucid.compiler.guards.restarts import MOST_RESTARTS, Known, RestartTrace, undo_all
from lucid.compiler.inputs.objects import SETS, is_set_of_values, owners_of, walk
from lucid.compiler.inputs.signature import (
    Call,
    Description,
    axes_of_arguments,
    changes,
    describe,
    in_order,
    is_of_argument,
    moving_arguments,
    moving_axes,
    moving_lists,
    name_of,
    named_arguments,
    with_live_arguments,
)
from lucid.compiler.pacing import (
    PATH_REMEDY,
    Looks,
    NotPaidForError,
    TooManyPathsError,
    TracePace,
)
from lucid.compiler.programs.audits import Pace, difference, made_again, report
from lucid.compiler.reports.statistics import (
    Served,
    Stats,
    Traced,
    kind_of_change,
    signature_text,
)
from lucid.ir.classes import isinstance
from lucid.ir.clone import copy_graph
from lucid.ir.errors import (
    ArgumentError,
    EagerOnlyError,
    LeavesPath,
    LucidError,
    NonFiniteError,
    NotFinite,
    OptionError,
    TraceError,
)
from lucid.ir.frames import catching, edge, edge_of_class, leave
from lucid.ir.location import Location, here
from lucid.ir.logs import is_on, say
from lucid.ir.passes.finite import check_finite, check_finite_exactly
from lucid.ir.passes.pipeline import Pass, optimizing
from lucid.ir.passes.regions import outline_repeated
from lucid.ir.selecting import select
from lucid.runtime.entry.layout import SLOW_PATH
from lucid.runtime.progress import Progress
from lucid.runtime.stance import eager_is_forced
from lucid.tensor.context import context, epoch, within
from lucid.tensor.core import TensorCore
from lucid.tensor.write_locks import TRACING, WriteLock

if TYPE_CHECKING:
    import networkx

    from lucid.autograd.host_finding import OpenAxis
    from lucid.compiler.guards.mutable_sources import Identity, MutableSource
    from lucid.compiler.programs.program import Around, Departure, Program
    from lucid.compiler.recording.trace import Trace
    from lucid.compiler.reports.checking import Check
    from lucid.compiler.reports.explaining import Explanation
    from lucid.compiler.reports.page import Report
    from lucid.compiler.reports.profiling import Profile
    from lucid.compiler.results.output_specs import Run
    from lucid.ir.graph import Graph
    from lucid.ir.types import TensorType
    from lucid.runtime.open_programs import Families
    from lucid.runtime.stages import Stages

MODES = ("native", "eager", "interpret")
NANS = ("allow", "raise", "skip")
VERIFIED = ("never", "first")
_MODES_ELSEWHERE = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_BACKENDS = ("native", "eager", "inductor", "cudagraphs", "aot_eager")
MOST_PATHS = 32  # through the user's code, by branches on values, that are compiled
LIMIT = 128  # programs of one function; the one used longest ago is dropped
LIMIT_BYTES = 1 << 29  # that they keep, as `Program.nbytes` says; two of any size may stay
# What a run raises that has found another thing than its trace.
DEPARTS = (HostCallMismatch, LeavesPath)
MOST_KEPT = 16  # lists that are state, of which it holds the last ones
SHORTEST = 4  # such a list, where there has been another one
RECENT = 8  # programs that native code tries for arguments that look alike
ATTEMPTS = 16  # of one call to run a program before another thread changes what it depends on


@dataclass(frozen=True, slots=True)
class Options:
    """What `lucid.compile` was asked for; see there."""

    mode: str = "native"
    audit: bool = True
    max_paths: int = MOST_PATHS
    fullgraph: bool = False
    passes: tuple[Pass, ...] = ()
    nan: str = "allow"
    verify: str = "never"
    dynamic: bool | None = None


class _Leftovers:
    """Finds the cycles that traces leave behind: graphs of programs that are dropped or failed.

    What `Age` has put out of sight is old for Python's collector, which looks at that only when
    much has become old under its eyes: it would stay for good where nothing else makes objects.
    """

    share, cost, spent = 0.05, 0.1, 0.0
    """Of the time to trace, which a look may take; seconds: of one, and traced since the last."""

    def account(self, seconds: float) -> None:
        """Look for them when enough time has been spent on traces, of which this is one."""
        self.spent += seconds
        if self.spent * self.share >= self.cost:
            begin = time.perf_counter()
            gc.collect()
            self.spent, self.cost = 0.0, time.perf_counter() - begin


_leftovers = _Leftovers()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let no cycles be looked for: a program is made of many objects, none of which dies early.

    Each look goes over all of them, and would take a quarter of the time to compile; and what runs
    at it, such as a callback of another package, isn't the step's. Of several threads that do this
    at once the one that found the collector on turns it on again.
    """
    was_on, begin = gc.isenabled(), time.perf_counter()
    try:
        gc.disable()  # an interrupt may come right after it
        yield
    finally:
        if was_on:
            gc.enable()
            _leftovers.account(time.perf_counter() - begin)


# Of a compiled function.
_SET_BY_CALLS = frozenset(("_latest", "_noted", "_took_over", "_any_size"))
_EXACT = (int, bool, str, type(None))
_EXACT_BUT_MOVING = (bool, type(None))
_AXES, _SHAPE = attrgetter("ndim"), attrgetter("shape")  # of a type


def looks_of(
    args: tuple[Any, ...], exact: Collection[type] = _EXACT, *, of_any_size: bool = False
) -> Looks:
    """What can be said of arguments at a glance: sizes, constants, and else their classes.

    of_any_size: axes are counted only.
    """
    look = _AXES if of_any_size else _SHAPE
    return tuple(
        [
            look(x._type) if isinstance(x, TensorCore) else x if type(x) in exact else type(x)
            for x in args
        ]
    )


_MAY_HANDLE = "its run raises {}, which it may handle"
_OTHERS = object()  # calls of signatures that are new

_collecting: list[list[Compiled]] = []


@contextmanager
def collecting() -> Iterator[list[Compiled]]:
    """The functions that are compiled in the block, and in no block within it."""
    found: list[Compiled] = []
    _collecting.append(found)
    try:
        yield found
    finally:
        _collecting.remove(found)


@edge_of_class
class Compiled:
    """A function that runs as one native call per signature of its arguments; `compile` makes it.

    Args:
        function: what is compiled.
        options: what `lucid.compile` was asked for. Default: its defaults.
        is_paced: whether calls may be audited, and run op by op where they can't run natively.
        earlier: the types of a call with other sizes: what differs from them is open from the first
            call on.

    Attributes:
        stats: traces, calls, reasons of retraces.
        stages: text of each stage of the compiler, for the program used last.

    >>> step = lucid.compiler.Compiled(lambda x: 2 * x)
    >>> step(lucid.tensor([1.0, 2.0])), step.stats.traces
    (tensor([2., 4.]), 1)
    """

    _is_made = False

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options = Options(),
        *,
        is_paced: bool = True,
        earlier: Sequence[TensorType] = (),
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self._options = options
        watch = check_finite_exactly if options.mode == "interpret" else check_finite
        last = None if options.nan == "allow" else watch
        self._optimize = optimizing(options.passes, last=last)
        self._families: Families | None = None
        self._programs: dict[Any, list[Program]] = {}
        self._sources: dict[Identity, MutableSource] = {}  # that it binds, or that move
        self._fixed: set[Identity] = set()  # that move, and for which it is traced all the same
        self._opened: set[OpenAxis] = set()  # whose sizes values decide, and
        self._closed: set[OpenAxis] = set()  # those of them that must be known
        self._least: dict[OpenAxis, int] = {}  # from which size on others are open
        self._knows_sizes = False  # whether all must be
        self._earlier = earlier
        self._any_size = (0, 0), False  # of how many of these; whether some are of arguments
        self._lengths: dict[tuple[Location | None, int], int] = {}  # of ranges that move, at first
        self._ints: set[str] = set()  # among the arguments, which are read at each call
        self._exact: set[str] = set()  # lists among these at which it looks
        self._kept: dict[int, Any] = {}  # lists among them that grow, and are state
        self._lists: list[tuple[Any, list[Any]]] = []  # of numbers, of the last trace's call
        self._latest: Program | None = None
        self._recent: dict[Looks, list[weakref.ref[Program]]] = {}  # by whom they began with
        # How many calls, why, and the kind of that.
        self._untraceable: dict[Any, tuple[int, tuple[str, str]]] = {}
        self._took_over: tuple[Program | None, int] = (None, -1)  # after how many calls
        self._is_paced = is_paced  # False for what can't run op by op
        self._said: set[str] = set()  # reasons that were logged
        self._noted = 0  # calls that are counted as their programs'
        own = weakref.ref(self)  # a step dies with its last user, whose statistics may stay
        self.stats = Stats(served=lambda: () if (step := own()) is None else step._served())
        self._audits = Pace(self.stats.counted, options.audit and is_paced)
        self._pace = TracePace(self.stats)
        self._audited = 0  # how many calls there had been at the last audit
        self._distrust: str | None = None  # what an audit has found
        self._is_unverified = options.verify == "first"
        self._is_made = True
        if _collecting and is_paced:
            _collecting[-1].append(self)

    @catching
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            latest = self._latest
            differs = None
            if latest is not None:
                first, looks = latest, None
                if len(self._recent) > 1:  # calls of several looks come
                    looks = self._looks(args)
                    recent = self._recent.get(looks)
                    first = (recent[0]() if recent else None) or latest
                enter = first.enter
                if enter is not None:
                    try:
                        is_direct = first.is_direct and not kwargs
                        result = enter(*args) if is_direct else first.call_native(args, kwargs)
                    except DEPARTS as found:
                        result, differs = self._follow(self._left(first, found), args, kwargs)
                    except Exception as error:  # nothing has happened; the long way says why
                        if not (isinstance(error, NotFinite) or self._may_handle(first)):
                            raise
                        result = SLOW_PATH
                    else:
                        if result is not SLOW_PATH:
                            if looks is not None and first is not latest:
                                self._begin_with(first, looks)
                            return result
                    if result is SLOW_PATH and differs is None:
                        result, differs = self._enter_recent(args, kwargs, first)
                    if result is not SLOW_PATH:
                        return result
            if not self._is_eager():
                asked = time.perf_counter()
                try:
                    return self._call(args, kwargs, differs)
                except NonFiniteError as error:
                    if self._options.nan != "skip":
                        raise
                    return self._skipped(error)
                except EagerOnlyError as reason:
                    if self._options.fullgraph or self._options.nan != "allow":
                        raise self._refusal(str(reason)) from None
                    self.note_eager(str(reason), reason.kind)
                    return self._op_by_op(args, kwargs, reason, time.perf_counter() - asked)
            return self.__wrapped__(*args, **kwargs)
        except Exception as error:
            leave(error)
            raise

    def _op_by_op(self, args: Any, kwargs: Any, reason: EagerOnlyError, looking: float) -> Any:
        """Run as plain Python. A frame of `reason`'s traceback would keep the result alive."""
        begin = time.perf_counter()
        result = within({"op_by_op": True}, self.__wrapped__, *args, **kwargs)
        if isinstance(reason, NotPaidForError):
            running = time.perf_counter() - begin
            self._pace.note_eager(reason, self._looks(args), looking, running)
        return result

    def _may_handle(self, program: Program) -> bool:
        """Whether a call whose run fails goes on op by op: the step may handle the error.

        Or its message is to have sizes in it that the trace didn't know.
        """
        may_be_eager = not self._options.fullgraph and self._options.nan == "allow"
        return (program.may_catch or program.decides_sizes) and may_be_eager

    def _refusal(self, reason: str) -> TraceError:
        """What a call says that would have to run op by op, and may not."""
        options, name = self._options, name_of(self.__wrapped__)
        if options.fullgraph:
            return TraceError(f"{name}, with fullgraph=True: {reason}")
        text = (
            f'{name}, with nan="{options.nan}", would have to run op by op, where nothing is '
            f"looked at before it changes: {reason}"
        )
        if "\nhint: " not in text:
            text += "\nhint: do that outside of the compiled function, or leave nan= out"
        return TraceError(text)

    def _skipped(self, error: NonFiniteError) -> Any:
        """What a call returns that has made a NaN or an infinity, and leaves nothing else."""
        self.stats.skipped += 1
        name = name_of(self.__wrapped__)
        say("nan", "%s: this call is skipped: %s", name, error, level=logging.WARNING)
        return error.result()

    def _follow(
        self, differs: Departure, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Departure]:
        """Go on with the programs that took over before, as long as native code can enter them.

        Returns what the call gives, or `SLOW_PATH` and what was found by then.
        """
        while not differs.made:
            link = differs.program.links.get(differs.path)
            program = None if link is None else link()
            if program is None or program.enter is None or self._refuses(program):
                break
            try:
                result = program.call_native(args, kwargs)
            except DEPARTS as found:
                before, differs = differs, self._left(program, found)
                if not differs.goes_beyond(before):
                    break
                continue
            if result is not SLOW_PATH:
                self._begin_with(program, self._looks(args), took_over=True)
            return result, differs
        return SLOW_PATH, differs

    def _enter_recent(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], first: Program
    ) -> tuple[Any, Departure | None]:
        """Let native code try the programs that such calls began with before; as `_follow`.

        first: the one that was tried.
        """
        looks = self._looks(args)
        for program in [reference() for reference in self._recent.get(looks, ())]:
            if program is None or program is first:
                continue
            try:
                result = program.call_native(args, kwargs)
            except DEPARTS as found:
                return self._follow(self._left(program, found), args, kwargs)
            if result is not SLOW_PATH:
                self._begin_with(program, looks)
                return result, None
        return SLOW_PATH, None

    @property
    def _may_open(self) -> bool:
        """Whether sizes may be open that values decide."""
        options = self._options
        is_plain = options.nan == "allow" and not options.passes and not self._is_unverified
        return is_plain and options.mode != "interpret" and not self._knows_sizes

    def _refuses(self, program: Program) -> bool:
        """Whether values decide sizes of a program, and they must be known."""
        if not program.decides_sizes:
            return False
        rule = program.differentiable
        if rule is not None and rule.needs_sizes:
            self._closed |= program.places_opened
            return True
        return self._knows_sizes

    @contextmanager
    def _with_known_sizes(self) -> Iterator[None]:
        """Have calls in the block run programs whose sizes are known: someone looks at code."""
        if not self._opened:
            yield
            return
        self._credit()
        kept = self._latest, self._recent, self._opened
        self._latest, self._recent, self._opened, self._knows_sizes = None, {}, set(), True
        try:
            yield
        finally:
            self._credit()
            self._latest, self._recent, self._opened = kept
            self._knows_sizes = False

    def _left(self, program: Program, error: HostCallMismatch | LeavesPath) -> Departure:
        """What a run of a program has found that is another thing than in its trace."""
        self.stats.exits += isinstance(error, LeavesPath)
        if self._may_open:
            self._opened |= program.varied(error)
        program.used = self.stats.calls
        return program.departure(error)

    def _credit(self, program: Program | None = None) -> None:
        """Count the latest call as a program's; those that nobody has noted are the latest one's.

        Native code counts the calls of all programs in one.
        """
        calls = self.stats.calls
        others = calls - self._noted
        if program is not None:
            program.served, others = program.served + 1, others - 1
        if self._latest is not None:
            self._latest.served += max(others, 0)
        self._noted = calls

    def _served(self) -> list[Served]:
        """What each program that there is serves, and how often it has."""
        self._credit()
        found = self._all_programs()
        found.sort(key=attrgetter("number"))
        return [Served(signature_text(x.description), x.path, x.served) for x in found]

    def _begin_with(self, program: Program, looks: Looks, *, took_over: bool = False) -> None:
        """Note that a program has served a call of some looks, and let the next ones try it first.

        Native code doesn't say that it is used. took_over: from the one that was tried first; only
        one that does so twice in turn is preferred to that.
        """
        self._credit(program)
        program.used = calls = self.stats.calls
        latest, last = self._latest, self._took_over
        if took_over:
            self._took_over = program, calls
        if latest is program or (took_over and last != (program, calls - 1)):
            return
        reference = weakref.ref(program)
        if latest is not None:
            latest.used = calls
        self._latest = program
        known = self._recent.get(looks, ())
        if known and known[0]() is program:
            return
        others = [x for x in known if x() not in (None, program)]
        if not known and len(self._recent) >= LIMIT:
            self._recent.clear()
        self._recent[looks] = [reference, *others][:RECENT]

    def _looks(self, args: tuple[Any, ...]) -> Looks:
        """The same for calls that may begin with the same programs: what moves is left out."""
        exact = _EXACT_BUT_MOVING if self._ints else _EXACT
        counts = len(self._opened), len(self._closed)
        if self._any_size[0] != counts:
            is_open = any(map(is_of_argument, self._opened - self._closed))
            self._any_size = counts, is_open
        return looks_of(args, exact, of_any_size=self._any_size[1])

    def _call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], differs: Departure | None
    ) -> Any:
        """Call natively, by the program used last if that fits. Raises `EagerOnlyError`.

        differs: what a run of a program has found that doesn't fit; it isn't asked again.
        """
        looks = self._looks(args)
        self._pace.refuse_look(looks, looks in self._recent)
        if differs is None and self._latest is not None and self._audits.is_due():
            self._call_audit(args, kwargs)
        if self._distrust is not None:
            raise EagerOnlyError(self._distrust)
        call = self._signature(args, kwargs)
        return self._call_natively(call, differs)

    def call_natively(self, args: tuple[Any, ...]) -> Any:
        """Call a function that is no use in eager mode. Raises `EagerOnlyError`."""
        result = SLOW_PATH if self._latest is None else self._latest.call_native(args, {})
        return self._call(args, {}, None) if result is SLOW_PATH else result

    def call_of_any_size(self, tensors: Sequence[TensorCore]) -> Any:
        """Call a function of tensors whose calls differ in nothing but sizes."""
        latest = self._latest
        if latest is not None and latest.enter is not None and not self._is_eager():
            result = latest.call_native((*tensors,), {})
            if result is SLOW_PATH:
                result = latest.run_of_any_size(tensors)
                if result is not SLOW_PATH:
                    self.stats.add_call()
            if result is not SLOW_PATH:
                return result
        return self(*tensors)

    def _is_eager(self) -> bool:
        """Whether ops run one by one: in a trace, for a stance, or for what looks at single ops.

        So do those in a custom forward that may be differentiated: it notes the history of each.
        """
        here = vars(context)  # of this thread; one look instead of six
        looks = here["anomaly"] is not None or here["saving"] is not None or bool(here["levels"])
        notes = here["forward"] is not None and not here["grad_enabled"]
        is_traced = here["recorder"] is not None
        return self._options.mode == "eager" or is_traced or looks or notes or eager_is_forced()

    def _call_audit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Trace a call again; no more programs are run if the trace isn't what it was."""
        start, calls, before = time.perf_counter(), self.stats.calls, ListenerSnapshot()
        undo: list[Callable[[], object]] = []
        try:
            found = self._audit(args, kwargs, undo)
        except BaseException as error:
            before.put_back(error)
            undo_all(undo)
            raise
        if found is not None:
            self._distrust = report(name_of(self.__wrapped__), found, calls - self._audited)
            self._latest = None
            self._recent.clear()
            self._programs.clear()
            self._audits.stop()
        else:
            self._audited = calls
            self._audits.note(time.perf_counter() - start)

    @collector_paused()
    def _audit(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], undo: list[Callable[[], object]]
    ) -> str | None:
        """What a new trace has that the program for a call has not; None: nothing, or unknown.

        undo: takes back what the trace makes.
        """
        from lucid.compiler.recording.trace import trace

        program, _ = self._fitting(self._signature(args, kwargs), None)
        if program is None or program.hosts or not program.foresees():
            return None
        sources = {place.identity: place for place in program.sources.values()}
        if any(isinstance(x, GrowingList) and not x.owner for x in sources.values()):
            return None  # a trace of it sees less than the program has
        known = Known(set(self._ints), dict(sources), opened={*program.places_opened})
        known.types, known.undo = program.seen, undo
        failed: Exception | None = None
        told = program.answers(program.path)
        for _ in range(ATTEMPTS):
            call = self._signature(args, kwargs)
            with WriteLock(frozenset((id(self), TRACING))):
                try:
                    with replaying((), told):
                        recorded = trace(self.__wrapped__, call, known, sources)
                except RestartTrace as restart:
                    traceback.clear_frames(restart.__traceback__)
                    restart.enter(known)
                    continue
                except Exception as error:
                    if program.path:
                        return None  # whose branches this call doesn't take
                    if isinstance(error, (MemoryError, RecursionError)):
                        return None  # of which this place had too little
                    if failed is None:
                        failed = error
                        continue
                    return f"  traced: a graph\n  now:    {type(error).__name__}: {error}"
                undo_all(undo)
            if failed is not None:
                raise failed  # by somebody else, such as the handler of a signal
            self.stats.audits += 1
            if program.cut is not None and recorded.has_other_sizes(program.sizes_at_hand):
                return None  # for which the cut may keep something else
            if program.path and not told and recorded.path != program.path:
                return None  # what the values of this call decide is another path
            found = difference(program, *made_again(recorded, program.sizes_at_hand))
            if found is None or not told:
                return found
            told = []  # the difference may be one between these values and what it was told
        return None

    def _call_natively(self, call: Call, differs: Departure | None) -> Any:
        """Run a program that fits, the latest one first, tracing one if there is none.

        What traces have made for a step stays once a call has run. Raises `LucidError` when
        programs never fit at the time they are to run.
        """
        undo: list[Callable[[], object]] = []
        try:
            return self._run_fitting(call, differs, undo)
        except BaseException:  # an interrupt, at whichever place
            try:
                self._forget_unused(undo)
            except BaseException:  # an interrupt of that
                self._forget_unused(undo)
                raise
            raise

    def _run_fitting(
        self, call: Call, differs: Departure | None, undo: list[Callable[[], object]]
    ) -> Any:
        """undo: takes back what traces make; empty once a call has run."""
        left, traces = ATTEMPTS, self.stats.traces
        program = self._latest
        if program is not None and self._refuses(program):
            program = None
        # One that is looked for fits; the latest one says so when it runs.
        is_fit = differs is not None or program is None or program.key != call.key
        while left:
            try:
                if is_fit or program is None:
                    call, program = self._prepared(call, undo, differs)
            except BaseException as reason:
                if differs is not None:
                    undo_draws(differs.made)
                if isinstance(reason, EagerOnlyError) and not isinstance(reason, NotPaidForError):
                    self._note_untraceable(call.key, reason)
                raise
            if self._untraceable and self.stats.traces != traces:
                for each in (call.key, _OTHERS):
                    self._untraceable.pop(each, None)
            replay = context.replay
            drawn = program.generators() if self._may_handle(program) else ()
            states = [*map(state_of, drawn)]
            try:
                if differs is not None:
                    context.replay = [*differs.made]
                result = program.run(call, is_fit=is_fit)
                context.replay = replay
            except DEPARTS as other:
                context.replay, is_fit = replay, True
                before, differs = differs, self._left(program, other)
                if before is not None and not differs.goes_beyond(before):
                    left -= 1
                    is_number = bool(differs.made) and differs.made[-1].host.is_made_again
                    if isinstance(other, LeavesPath) or (is_number and not left):
                        undo_draws(differs.made)
                        raise EagerOnlyError(
                            "two programs of it find another outcome of one condition, which "
                            f"rounding decides: {differs.reason}"
                        ) from None
                continue
            except BaseException as error:
                context.replay = replay
                if isinstance(error, Exception) and self._may_handle(program):
                    for generator, state in zip(drawn, states, strict=True):
                        put_state(generator, state)
                    undo_draws(() if differs is None else differs.made)
                    raise EagerOnlyError(_MAY_HANDLE.format(type(error).__name__)) from error
                raise
            if differs is not None and result is not SLOW_PATH:
                differs.program.links[differs.path] = weakref.ref(program)
            if result is not SLOW_PATH:  # as it is when another thread changed what guards look at
                self.stats.add_call()
                if self.stats.traces == traces:  # it serves calls again
                    program.prepare_native()
                if program is not self._latest:
                    took_over = differs is not None and bool(differs.path)
                    took_over = took_over and self._latest is not None
                    looks = self._looks(call.given[0])
                    self._begin_with(program, looks, took_over=took_over)
                return result
            self._refuse_what_it_makes(program, call)
            is_fit, left = True, left - 1
        assert program is not None
        failure = program.guards.failure(call)
        raise LucidError(
            f"{name_of(self.__wrapped__)}: {ATTEMPTS} programs in turn didn't fit the call any "
            f"more when they were to run{f': {failure}' if failure else ''}\n"
            "hint: let nothing change meanwhile what the function reads, such as another thread, "
            "or pass it as an argument"
        )

    def _refuse_what_it_makes(self, program: Program, call: Call) -> None:
        """Raise where a program doesn't fit since its trace has made what the step looked for."""
        failure = program.guards.failure(call)
        if not program.undo:
            return
        place = program.guards.place_of_failure()
        self._forget_unused(program.undo)
        if failure is not None and program.guards.failure(call) is None:
            raise EagerOnlyError(
                f"it looks at what its first call makes: {failure}{self._line_of(place)}"
            )

    def _forget_unused(self, undo: list[Callable[[], object]]) -> None:
        """Undo what traces have made, and drop the programs that no call has used."""
        if undo:
            self._drop([program for program in self._all_programs() if program.undo is undo])
            undo_all(undo)

    def _note_untraceable(self, key: Any, error: EagerOnlyError) -> None:
        """Note that a trace had to be given up, since the call makes sense op by op only."""
        for each in (key, _OTHERS):
            count, _ = self._untraceable.get(each, (1, ""))
            self._untraceable[each] = count, (str(error), error.kind)
        while len(self._untraceable) > LIMIT:
            del self._untraceable[next(x for x in self._untraceable if x is not _OTHERS)]

    def _refuse_untraceable(self, key: Any) -> None:
        """Raise `EagerOnlyError` where traces were given up for such calls.

        It is tried again at the second, fourth, eighth such call and so on: what a call meets may
        depend on more than its signature. All calls whose signatures are new count as one kind, as
        those of a step that is told its number are; what comes again has its own count.
        """
        each = key if key in self._untraceable else _OTHERS
        if each not in self._untraceable:  # others have been traced since
            return
        count, why = self._untraceable[each]
        self._untraceable[each] = count + 1, why
        if count & (count - 1):
            self._untraceable.setdefault(key, (1, why))
            raise EagerOnlyError(*why)

    def _signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], live: Collection[str] | None = None
    ) -> Call:
        """The call, with live numbers for ints that are read at each call; `live`: which."""
        kwargs = in_order(self.__wrapped__, kwargs) if len(kwargs) > 1 else kwargs
        live = self._ints - self._exact if live is None else live
        marked = with_live_arguments(live, self._kept, self.__wrapped__, args, kwargs)
        try:
            call = Call(*marked, axes_of_arguments(self._opened - self._closed, self._least))
        except RecursionError:
            raise EagerOnlyError("its arguments are nested more deeply than Python calls") from None
        call.given = args, kwargs
        return call

    def note_eager(self, reason: str, kind: str = "") -> None:
        """Count a call that runs op by op, and say why, once for each reason.

        kind: what reasons have in common of which one is enough to be said.
        """
        self.stats._note_eager(reason)
        kind = kind or reason
        if kind not in self._said:
            if len(self._said) >= LIMIT:
                self._said.clear()
            self._said.add(kind)
            name = name_of(self.__wrapped__)
            say("eager", "%s: this call runs op by op: %s", name, reason, level=logging.WARNING)

    def _prepared(
        self, call: Call, undo: list[Callable[[], object]], differs: Departure | None = None
    ) -> tuple[Call, Program]:
        """The call as a program sees it that serves it, which is traced if there is none."""
        found = self._from_before_ints_moved(call) if self._ints and differs is None else None
        if found is not None:
            return found
        if self._untraceable and self._fitting(call, differs)[0] is None:
            self._refuse_untraceable(call.key)
        known = Known(
            self._ints, self._sources, self._kept, opened=self._opened, closed=self._closed
        )
        known.undo, known.exact = undo, self._exact
        known.may_open, known.lengths, known.least = self._may_open, self._lengths, self._least
        known.types = self._types_seen() if self._opened else ()
        known.functions = [] if self._is_unverified else None
        closed, exact = {*self._closed}, {*self._exact}
        restarts = 0
        while restarts < MOST_RESTARTS:
            start = time.perf_counter()
            try:
                return call, self._program(call, known, differs)
            except RestartTrace as restart:
                traceback.clear_frames(restart.__traceback__)  # which those followed keep
                restarts += 1
                self.stats.restarts += 1
                self.stats.compile_seconds += time.perf_counter() - start
                reason = restart.reason
                if restart.kind == "sources" and not known.inside.isdisjoint(restart.found):
                    reason = f"it {restart.reason}, which it knows by two names"
                    raise EagerOnlyError(reason) from None
                while restart.kind == "kept" and len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                restart.enter(known)
                call = self._signature(*call.given)
            except BaseException as error:
                self._exact &= exact  # lists weren't why, as it fails with their items known
                is_reason = isinstance(error, EagerOnlyError) and error.__cause__ is None
                if not is_reason:  # nor were sizes, as the step fails with all of them known
                    self._closed &= closed
                raise
        raise TraceError(
            f"{name_of(self.__wrapped__)} {reason}, which can't be followed: its trace began "
            f"again {restarts} times\n"
            "hint: do that outside of the compiled function, or in plain dicts and lists"
        )

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: one compiled function per object, kept on the object."""
        if instance is None:
            return self
        held = getattr(instance, "__dict__", None)
        if not isinstance(held, dict):  # __slots__, or a class
            return types.MethodType(self, instance)
        name = f"_compiled_{self.__qualname__}"
        bound = held.get(name)
        if bound is None:
            method = types.MethodType(self.__wrapped__, instance)
            bound = Compiled(method, self._options)
            held[name] = bound
        return bound

    def __reduce__(self) -> Any:
        """By name where that finds it, else what was compiled; programs stay behind."""
        module: Any = sys.modules.get(self.__module__)
        place = self.__dict__.get("__qualname__", "")
        for name in place.split("."):
            module = getattr(module, name, None)
        if module is self:
            return place
        return _compiled_again, (self.__wrapped__, self._options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Attributes, such as a count of calls, are those of the function, or the Module."""
        is_own = name in _SET_BY_CALLS or not self._is_made or name in (instance_dict(self) or ())
        if is_own or name.startswith("__"):
            object.__setattr__(self, name, value)
        else:
            setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__!r}>"

    def _program(self, call: Call, known: Known, differs: Departure | None) -> Program:
        """A program for a call, traced if there is none."""
        program, _ = self._fitting(call, differs)
        if program is not None:
            return program
        before = ListenerSnapshot()
        try:
            with (
                Progress(name_of(self.__wrapped__)),
                WriteLock(frozenset((id(self), TRACING))) as claim,
            ):
                program, reason = self._fitting(call, differs)
                if program is None:  # nor has another thread traced it meanwhile
                    program = self._trace(call, known, differs, reason, claim)
            return program
        except BaseException as error:
            before.put_back(error)
            raise

    def _fitting(self, call: Call, differs: Departure | None) -> tuple[Program | None, str | None]:
        """The program for a call; or None, and the guard that failed for the latest one."""
        reason = None if differs is None else differs.reason
        for program in reversed(self._programs.get(call.key, [])):
            if self._refuses(program) or (differs is not None and not program.fits(differs)):
                continue
            failure = program.guards.failure(call)
            if failure is not None and self._follows(program):
                failure = program.guards.failure(call)
            if failure is None and (differs is None or program.has_sizes_of(differs, call)):
                return program, None
            reason = reason or failure
        return None, reason

    def _follows(self, program: Program) -> bool:
        """Whether a program looks at other containers from now on, bound anew by Python."""
        images = program.follow()
        if images is None:
            return False
        places = [*self._sources.values()]
        for place in {id(x): x for x in (*places, *program.sources.values())}.values():
            place.owner = images.of(place.owner)
        self._sources.clear()
        self._sources.update((place.identity, place) for place in places)
        return True

    def _from_before_ints_moved(self, call: Call) -> tuple[Call, Program] | None:
        """A program for just the ints and texts of a call, where none that reads them fits."""
        if self._fitting(call, None)[0] is not None:
            return None
        found = self._signature(*call.given, live=())
        program, _ = self._fitting(found, None)
        return None if program is None else (found, program)

    def _drop_least_used(self, newest: Program) -> None:
        """Keep what programs hold bounded: those used longest ago go, and their code with them.

        The newest and the one that calls begin with stay; others let go of their last arguments.
        """
        programs = self._all_programs()
        count, kept = len(programs), sum(program.nbytes for program in programs)
        for program in sorted(programs, key=attrgetter("used")):
            if program is newest or program is self._latest:
                continue
            program.forget_arguments()
            if count <= LIMIT and kept <= LIMIT_BYTES:
                continue
            count, kept = count - 1, kept - program.nbytes
            self._drop([program])
            self.stats.dropped += 1

    def _all_programs(self) -> list[Program]:
        return [x for found in self._programs.values() for x in found]

    def _drop(self, programs: Sequence[Program]) -> None:
        """Begin no more calls with these."""
        self._credit()
        for program in programs:
            same = self._programs.get(program.key, [])
            same[:] = [other for other in same if other is not program]
            if not same:
                self._programs.pop(program.key, None)
            if program is self._latest:
                self._latest = None
            for recent in [*self._recent.values()]:
                recent[:] = [x for x in recent if x() is not program]

    @collector_paused()
    def _trace(
        self,
        call: Call,
        known: Known,
        differs: Departure | None,
        reason: str | None,
        claim: WriteLock,
    ) -> Program:
        """A new program, which is one of those that serve calls from now on.

        reason: why those that there are don't fit, if it is known; claim: of this trace.
        """
        description = describe(self.__wrapped__, call)
        if self._may_open:
            for program in self._programs.get(call.key, ()):
                self._opened |= program.varied_with_numbers()
        kind, reason, place = self._occasion(call, description, differs, reason)
        with replaying(*(((), ()) if differs is None else (differs.made, differs.answers))):
            recorded = self._record(call, known)
        claim.give_up(TRACING)
        program = self._made(recorded, description, call, known)
        executable = program.executable
        source = "LLVM" if executable.was_compiled else "cache"
        self.stats.cache_hits += not executable.was_compiled
        self.stats._note(
            Traced(
                kind,
                reason,
                place,
                signature_text(description),
                program.compile_seconds,
                program.stage_seconds,
                program.pass_seconds,
                "other sizes" if executable.instance is not None else source,
                executable.kernel_count,
            )
        )
        if is_on("compile"):
            nodes, seconds = len(program.recorded.nodes), program.compile_seconds
            say("compile", "%s: %d nodes in %.2f s", name_of(self.__wrapped__), nodes, seconds)
        if self._options.mode != "interpret":
            program.take_plain(call, self.stats.counted)
        opened = program.sizes_found - program.sizes_asked
        self._drop([x for x in self._all_programs() if not opened.isdisjoint(x.sizes_asked)])
        self._programs.setdefault(call.key, []).append(program)
        self._drop_least_used(program)
        return program

    def _occasion(
        self, call: Call, description: Description, differs: Departure | None, reason: str | None
    ) -> tuple[str, str, Location | None]:
        """Why there is a trace: its kind, the reason, and the user's line where words don't say it.

        Raises `RestartTrace` for ints that are to be read at each call, and where it isn't worth
        another trace.
        """
        is_path = differs is not None and bool(differs.path)
        siblings = [x for x in self._programs.get(call.key, ()) if x.path] if is_path else []
        if len(siblings) >= self._options.max_paths:
            raise TooManyPathsError(
                f"its branches have taken {len(siblings)} paths by now, and would take another "
                f"one: {reason}\n"
                f"hint: {PATH_REMEDY}; lucid.compile(max_paths=…) sets how many paths are compiled"
            )
        if self._signature(*call.given).key != call.key:
            raise RestartTrace("is called by several threads, of which one has found what moves")
        earlier = [program.description for found in self._programs.values() for program in found]
        moved = moving_arguments(description, earlier)
        moved -= self._ints  # one in an object stays as it is
        if moved:
            raise RestartTrace("is called with ints or texts that keep changing", "counts", moved)
        self._keep_grown(call)
        if self._may_open and self._options.dynamic is not False:
            lists = moving_lists(named_arguments(self.__wrapped__, *call.marked), earlier)
            lists -= self._ints
            if lists:
                raise RestartTrace("is given lists of ever other lengths", "counts", lists)
        self._open_moving(call)
        place = here()
        if not earlier:
            return "first", "the first call", place
        is_known = reason is not None
        reason = reason or changes(description, earlier)
        kind = "path" if is_path else "host" if differs is not None else kind_of_change(reason)
        if is_known and differs is None:
            kind = kind if kind in ("mode", "flag") else "guard"
            place = self._place_of_failure(call) or place
        if self._is_paced:
            is_said = NotPaidForError.kind in self._said
            self._pace.refuse_trace(kind, reason, lambda: "" if is_said else self._line_of(place))
        channel, text = ("exits", "%s: takes a new path: %s")
        if not is_path:
            channel, text = "retrace", "retrace of %s: %s"
        say(channel, text, name_of(self.__wrapped__), reason)
        return kind, reason, place if differs is None else None

    def _open_moving(self, call: Call) -> None:
        """Raise `RestartTrace` for axes of what it is given whose sizes keep changing."""
        dynamic, is_told = self._options.dynamic, bool(self._earlier)
        if dynamic is False or not (self._may_open and (self._is_paced or is_told)):
            return  # a backward's are those of its forward
        moved = moving_axes(call.types(), self._types_seen(), 2 if dynamic or is_told else None)
        moved -= self._opened | self._closed
        if moved:
            raise RestartTrace("is called with sizes that keep changing", "opened", moved)

    def _types_seen(self) -> list[Sequence[TensorType]]:
        earlier = [self._earlier] if self._earlier else []
        return [*(program.types for program in self._all_programs()), *earlier]

    def _keep_grown(self, call: Call) -> None:
        """Raise `RestartTrace` for lists that have grown since the trace before was given them.

        Or for sets that have changed, of which the signature had what was in them. A history that
        is handed to each call is state, as it is in a global. Where there has been another one, as
        of an epoch, the first lengths have programs that serve all of them. Of lists that weren't
        found to grow only those of numbers are remembered.
        """
        before = {id(known): entries for known, entries in self._lists}
        named = owners_of(named_arguments(self.__wrapped__, *call.given), call.kept)
        lists = [(path, x) for path, x in named if type(x) in (list, deque)]
        marked = named_arguments(self.__wrapped__, *call.marked)
        parts = [part for name, value in marked for part in walk(value, name, set())]
        sets = [(path, x) for path, x, _ in parts if type(x) in SETS and is_set_of_values(x)]
        changed = [path for path, x in sets if [*x] != before.get(id(x), [*x])]
        self._lists = [(x, [*x]) for _, x in lists if all(map(is_number, x))]
        self._lists += [(x, [*x]) for _, x in sets]
        if changed:
            raise RestartTrace("is given a set that changes", "counts", changed)
        least = SHORTEST if self._kept else 1
        grown = {
            id(x): GrowingList(path, x)
            for path, x in lists
            if len(x) > len(before.get(id(x), x))
            and len(x) >= least
            and all(map(operator.is_, x, before[id(x)]))
        }
        if grown:
            of_numbers = [x for x in grown.values() if all(map(is_number, x.owner))]
            self._sources.update({source.identity: source for source in of_numbers})
            found = {key: source.owner for key, source in grown.items()}
            raise RestartTrace("is given a list that grows", "kept", found)

    def _made(self, recorded: Trace, description: Description, call: Call, known: Known) -> Program:
        """What a trace is compiled to."""
        from lucid.compiler.programs.program import Program
        from lucid.runtime.open_programs import Families

        around: Around | None = None
        if self._options.mode == "interpret":
            around = Program.interpret
        elif self._is_unverified:
            around = self._verifying(recorded.graph, known)
        # A backward that is skipped would leave no gradients.
        nan = "allow" if self._options.nan == "allow" else "raise"
        options = Options(passes=self._options.passes, nan=nan)
        compiled = functools.partial(Compiled, options=options, is_paced=False)
        if self._families is None and not self._options.passes:
            self._families = Families()
        program = Program(recorded, description, call, compiled, self._optimize, self._families)
        program.used, program.number, program.around = self.stats.calls, self.stats.traces, around
        program.seen = [*known.types, program.types]
        return program

    def _verifying(self, graph: Graph, known: Known) -> Around:
        """What compares a first call with what it should make; its program is to be given yet."""
        from lucid.compiler.reports.checking import verify
        from lucid.compiler.reports.function_gradients import CalledFunctions

        functions = CalledFunctions(graph, known.functions or ())
        known.functions = None

        def around(program: Program, run: Run, _: Any, native: Callable[[], None]) -> None:
            verify(program, run, functions, native)
            self._is_unverified, program.around = False, None

        return around

    def _place_of_failure(self, call: Call) -> Location | None:
        """The line that read what has changed since a program was made for such a call."""
        programs = reversed(self._programs.get(call.key, []))
        return next(filter(None, (x.guards.place_of_failure() for x in programs)), None)

    def _line_of(self, place: Location | None) -> str:
        """The line that read what has changed, or where the function begins, for a message."""
        if place is None:
            code = getattr(inspect.unwrap(self.__wrapped__), "__code__", None)
            place = None if code is None else Location(code.co_filename, code.co_firstlineno)
        return "" if place is None else f"\n  at {place}   {place.text}"

    def _record(self, call: Call, known: Known) -> Trace:
        """Trace the function; numbers that will change again are read at each call.

        Where it raises an error with stand-ins for those, eager mode says whether it is one.
        """
        from lucid.compiler.recording.trace import raise_in_eager_mode, trace
        from lucid.compiler.results.side_effects import inside

        guards = [program.guards.guards for program in self._all_programs()]
        found = {place.identity: place for place in live_sources(guards)}
        sources = {key: x for key, x in found.items() if key not in self._fixed} | self._sources
        for identity in inside(sources.values()):
            del sources[identity]
            self._sources.pop(identity, None)
            known.inside.add(identity)
        try:
            context.interprets = self._options.mode == "interpret"
            recorded = trace(self.__wrapped__, call, known, sources)
        except EagerOnlyError:
            arrays = {k for k in sources if k[1] == ELEMENTS and k not in self._sources}
            if not arrays:
                raise
            self._fixed |= arrays  # what it does with them needs to be traced for each content
            return self._record(call, known)
        except Exception as error:
            if isinstance(error, RecursionError) and call.key not in self._programs:
                raise_in_eager_mode(error, "calls of its own on the stack")
            if self._ints or found.keys() - self._sources.keys():
                raise_in_eager_mode(error)
            if not isinstance(error, EagerOnlyError):
                for give in known.warnings:
                    give()
            raise
        self._sources.update(sources)
        return recorded

    # ------------------------------------------------------------------ looking inside

    def _latest_program(self) -> Program:
        if self._latest is None:
            name = name_of(self.__wrapped__)
            if not self.stats.eager_reasons:
                raise LucidError(f"{name} has not been called yet, so nothing is compiled")
            reason = self.stats.eager_reasons[-1]
            raise LucidError(f"{name} has only run op by op, so nothing is compiled: {reason}")
        return self._latest

    @property
    def stages(self) -> Stages:
        """The program at each stage of the compiler, as text by name; `stages(x, y)` chooses one.

        Raises: `LucidError` where nothing is compiled yet.
        """
        return self._stages().choosing(self._stages)

    def _stages(self, *args: Any, **kwargs: Any) -> Stages:
        program = self._chosen(args, kwargs, "stages")
        return program.stages.then(program.backward_stages())

    def _chosen(self, args: tuple[Any, ...], kwargs: dict[str, Any], method: str) -> Program:
        """The program that serves such a call; the one used last where none is given.

        Raises `LucidError` where there is none: nothing is called to get one.
        """
        if not args and not kwargs:
            return self._latest_program()
        call = self._signature(args, kwargs)
        program, _ = self._fitting(call, None)
        if program is None:
            name = name_of(self.__wrapped__)
            asked = signature_text(describe(self.__wrapped__, call))
            known = dict.fromkeys(served.signature for served in self.stats.programs)
            raise LucidError(
                f"{method}: {name} has no program for {asked}\n"
                f"  there are programs for {'; '.join(known) or 'nothing yet'}\n"
                "hint: call it with these arguments first"
            )
        return program

    def explain(self, *args: Any, full: bool = False, **kwargs: Any) -> Explanation:
        """Why the step is as it is: `print` shows it, `to_dict()` has it as plain data.

        Each trace with its reason (the guard, old -> new, the user's line); branches on values and
        their paths; what ran op by op and why; the kernels, what is fused in each, and what kept
        two of them apart; the memory plan; which gradients and residuals are stored; the time of
        each stage and pass of the compiler, and hits of the cache. Nothing is called. Of a function
        that has only run op by op it says why.

        Args:
            args, kwargs: as of a call, which choose the program; none: the one used last.
            full: show all of it, not just the ten things of each kind that cost most.

        Raises: `LucidError` where there is no such program.

        >>> step = lucid.compile(lambda x: (x * 2).sum())
        >>> _ = step(lucid.ones(3)), step(lucid.ones(4))
        >>> print(step.explain().stats.history[1].reason)
        x: f32[3] -> f32[4]
        """
        from lucid.compiler.reports.explaining import explain

        is_eager = self._latest is None and bool(self.stats.eager_reasons)
        has_program = args or kwargs or not is_eager
        program = self._chosen(args, kwargs, "explain") if has_program else None
        return explain(name_of(self.__wrapped__), self.stats, program, full)

    def dump_ir(
        self,
        *args: Any,
        module: str | None = None,
        line: int | str | None = None,
        function: str | None = None,
        part: str | None = None,
        collapse: bool = False,
        **kwargs: Any,
    ) -> str:
        """The graph of a program as text, with custom Functions as regions of their own.

        `lucid.ir.parse` reads it back, and `interpret` runs it, of a part as well: what that reads
        from the rest is its arguments.

        Args:
            args, kwargs: as of a call, which choose the program; none: the one used last.
            module: only what is computed in a Module, by its path or the end of one: `blocks.3`.
            line: only what stands in a line of yours, `24` or `"train.py:24"`, and its gradients.
            function: only the calls of a custom Function.
            part: only the "forward", the "backward", or the "update" that reads gradients. The
                backward of a step that calls none is the program of the latest one outside.
            collapse: show repeated layers, and updates of parameters that are alike, once, as a
                function that is called.

        Raises: `ArgumentError` where there is nothing of the kind, `LucidError` where there is no
        such program.

        >>> layer = lucid.nn.Linear(3, 2)
        >>> step = lucid.compile(lambda x: layer(x).tanh())
        >>> _ = step(lucid.ones(4, 3))
        >>> print(step.dump_ir(module="layer").splitlines()[5].split("  @")[0].strip())
        %transpose = transpose %layer_weight {perm = [1,0]} : f32[3,2]
        """
        program = self._chosen(args, kwargs, "dump_ir")
        is_whole = module is line is function is part is None
        if is_whole and not collapse:
            return program.stages["trace"]
        outside = program.backward_outside() if part == "backward" else None
        if outside is not None:
            program, part = outside, None
            is_whole = module is line is function is None
        graph = copy_graph(program.recorded)
        is_early = module is line is function is None  # layers are found in the whole
        if collapse and is_early:
            outline_repeated(graph)
        if not is_whole:
            graph = select(graph, module=module, line=line, function=function, part=part)
        if collapse and not is_early:
            outline_repeated(graph)
        return str(graph)

    def profile(
        self, *args: Any, calls: int = 20, by: str = "kernel", top: int = 20, **kwargs: Any
    ) -> Profile:
        """Call the step with these arguments: what took how long.

        It is called `calls` times as it is, `calls` times with its parts measured, and once before;
        these are real calls: each of them trains. `print` shows a table; `rows` has the calls of
        native kernels with the lines that they come from, `totals(by)` adds them up, and
        `export_chrome_trace(path)` writes a call for Perfetto. The time of a kernel that comes from
        several lines, Modules or ops is shared out among them by their counted work.

        Args:
            args, kwargs: as of a call.
            calls: how many are measured in each way.
            by: what the table has totals of: "kernel", "line", "module", "op", or "call", which
                adds nothing up.
            top: how many rows it has.

        Raises: what a call raises, `OptionError` for another `by`, `ArgumentError` for no calls,
        and `LucidError` where nothing runs natively.

        >>> step = lucid.compile(lambda x: (x * 2).exp().sum())
        >>> sorted(total.name for total in step.profile(lucid.ones(3), calls=2).totals("op"))
        ['exp', 'mul', 'sum']
        """
        from lucid.compiler.reports.profiling import profile

        self._refuse_eager("profile")
        with self._with_known_sizes():
            return profile(
                name_of(self.__wrapped__),
                lambda: self(*args, **kwargs),
                self._latest_program,
                calls,
                by,
                top,
            )

    def check(self, *args: Any, **kwargs: Any) -> Check:
        """Call the step twice, and compare what it did with the NumPy meaning of its ops.

        The calls are real ones: they train. `agrees` says the result, `print` shows the largest
        differences, and `culprit` which stage of the compiler, and there which kernel, brought them
        in.
        A custom Function that leaves lucid, for SciPy say, is called again for the comparison.

        Args:
            args, kwargs: as of a call.

        Raises: what a call raises, and `LucidError` where nothing runs natively.

        >>> step = lucid.compile(lambda x: (x * 2).exp().sum())
        >>> step.check(lucid.ones(3)).agrees
        True
        """
        from lucid.compiler.reports.checking import check

        self._refuse_eager("check")
        with self._with_known_sizes():
            return check(lambda: self(*args, **kwargs), self._latest_program)

    def _refuse_eager(self, method: str) -> None:
        if self._is_eager():
            name = name_of(self.__wrapped__)
            raise LucidError(f"{method}: {name} runs op by op here, so nothing is native")

    def kernel_graph(self, *args: Any, **kwargs: Any) -> networkx.DiGraph[int]:
        """The native step of a program, as a networkx graph: what each kernel waits for.

        A node is a call of a kernel, with `label`, `name`, `kind`, `ops`, `lines`, `text`, `bytes`
        and `flops`; an edge has its `dependence` ("flow", "anti", "output") and `buffers`.

        Args:
            args, kwargs: as of a call, which choose the program; none: the one used last.

        Raises: `LucidError` where there is no such program.

        >>> step = lucid.compile(lambda x: x.exp() @ x)
        >>> _ = step(lucid.ones(4, 4))
        >>> [(a, b, e["dependence"]) for a, b, e in step.kernel_graph().edges(data=True)]
        [(0, 1, 'flow')]
        """
        from lucid.compiler.reports.kernel_graph import kernel_graph

        return kernel_graph(self._chosen(args, kwargs, "kernel_graph").executable.calls)

    def export_kernel_graph(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Draw `kernel_graph`: kernels stand below those that they wait for.

        networkx writes the graph itself in other forms, such as by `write_graphml`.

        Args:
            path: the picture's file, an .svg.
            args, kwargs: as of a call, which choose the program; none: the one used last.

        Raises: `ArgumentError` for another ending, `LucidError` where nothing is compiled.

        >>> import lucid, os, tempfile
        >>> step = lucid.compile(lambda x: x.exp().sum() * x)
        >>> _ = step(lucid.ones(3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     step.export_kernel_graph(os.path.join(folder, "step.svg"))
        ...     os.listdir(folder)
        ['step.svg']
        """
        from lucid.compiler.reports.picture import write_kernel_graph

        write_kernel_graph(self.kernel_graph(*args, **kwargs), path)

    def report(
        self, path: str | os.PathLike[str] | None = None, *args: Any, calls: int = 20, **kwargs: Any
    ) -> Report:
        """One self-contained HTML page on a program of the step; in a notebook it shows itself.

        The graph by Module and Function, your source with the time of each line, kernels on a
        roofline of this machine, memory over the step, traces and guards.

        Args:
            path: where to write it; None writes nothing.
            args, kwargs: as of a call, to measure times with by `profile`, whose calls are real
                ones. Without them times are those expected by shapes, of the program used last.
            calls: how many are measured, as by `profile`.

        Raises: as `profile` with arguments, and `LucidError` where nothing is compiled.

        >>> step = lucid.compile(lambda x: x.exp().sum())
        >>> _ = step(lucid.ones(3))
        >>> step.report()
        <report on <lambda>(x: f32[3])>
        """
        from lucid.compiler.reports.page import Report

        if not (args or kwargs):
            report = Report(self.explain(), None, self._latest_program())
        else:
            with self._with_known_sizes():
                profile = self.profile(*args, calls=calls, **kwargs)
                report = Report(self.explain(), profile, self._latest_program())
        if path is not None:
            report.save(path)
        return report

    def dump_llvm(self) -> str:
        """Return the LLVM IR of the program used last, as it was handed to LLVM: not optimized.

        Raises: `LucidError` where nothing is compiled.

        >>> step = lucid.compile(lambda x: x.exp())
        >>> _ = step(lucid.ones(3))
        >>> "define" in step.dump_llvm()
        True
        """
        return self._latest_program().executable.llvm


def _refuse_late(function: Callable[..., Any]) -> None:
    """Raise for functions whose body runs after the call."""
    kinds = (
        (inspect.isgeneratorfunction, "a generator function", "return a list"),
        (inspect.iscoroutinefunction, "a coroutine function", "compile what it calls"),
    )
    for is_kind, kind, remedy in kinds:
        if is_kind(function):
            raise ArgumentError(
                f"compile: {function.__name__} is {kind}, whose body runs after the call\n"
                f"hint: {remedy}"
            )


@edge
def compile(
    function: Callable[..., Any] | None = None,
    *,
    mode: str = "native",
    audit: bool = True,
    max_paths: int = MOST_PATHS,
    fullgraph: bool = False,
    passes: Sequence[Pass] = (),
    nan: str = "allow",
    verify: str = "never",
    backend: str = "native",
    dynamic: bool | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or Module: its first call per signature is traced, then it runs natively.

    As a decorator with or without arguments.

    Args:
        function: a function or a Module. Default: None, for a decorator with these options.
        mode: "eager" runs the function as it is. "interpret" runs the optimized graph op by op,
            each as a statement at its line in your file, for a debugger (`lucid.debug.breakpoint`).
            PyTorch's own modes choose an implementation there and nothing here.
        audit: whether one of the first calls, and from then on one in a while, is traced again, and
            a difference that no guard explains is reported (≤ 1 % of the time).
        max_paths: a branch on a value makes a program for each way that calls take; those that
            would take one more run op by op.
        fullgraph: True makes an error of what would run a call op by op.
        passes: functions `lucid.ir.Graph -> bool` that rewrite each graph that is compiled, those
            of backwards included, and say whether they changed it. They run once, when calls of
            custom Functions are inlined, and what they leave is simplified. Whoever looks at
            `stages` has them run again. Default: none.
        nan: "raise" for an error of each call that makes a NaN or an infinity out of finite numbers
            and would return it or leave it in a tensor. Nothing has changed then: parameters,
            buffers, the optimizer's state, Python objects. It names the op, its operands and the
            line. "skip" leaves all as it was, returns what the call returns and goes on;
            `stats.skipped` counts. What stands in arguments, state and constants as such, such as
            the -inf of a mask, isn't made. A call that can't be recorded is an error. Where all is
            to run op by op – for `LUCID_EAGER=1`, a stance, anomaly mode, a `vmap` around the call
            – nobody looks.
        verify: "first" for a comparison of what the first call makes with the NumPy meaning of its
            ops, as `check` does; then of the backwards of its custom Functions with central
            differences, one call of each and signature, which run again op by op in float64. Python
            that the step calls is called again for it, but for what `lucid.debug` calls. Not with
            the mode "interpret".
        backend: "eager" as the mode; "inductor", "cudagraphs" and "aot_eager", PyTorch's, are the
            default.
        dynamic: for which arguments one program serves all sizes. None: along axes that have had
            three; True: two; False: none, each size is traced.
        options: what PyTorch's compiler is tuned with, by name; there is nothing to be tuned here.
        disable: True is the mode "eager".

    Raises:
        OptionError: an unknown mode, `backend`, `nan` or `verify`.
        ArgumentError: an option of another type, what can't be called, or `passes` that aren't
            functions.
        NonFiniteError: at the call, as `nan` says.
        TraceError: at the call, where `fullgraph` or `nan` refuses it. What tracing raises comes at
            the call as well.
        PassError: at the call, for a pass that raises or doesn't say what it did.
        VerifyError: at the call, for a pass that breaks the graph, or where a first call that is
            verified has gone wrong: nothing has changed then.

    >>> @lucid.compile
    ... def double(x):
    ...     return 2 * x
    >>> double(lucid.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """
    check_choice(backend, "backend", "compile", _BACKENDS)
    check_flags("compile", audit=audit, fullgraph=fullgraph, dynamic=dynamic, disable=disable)
    check_kind(options, dict, "options", "compile")
    check_kind(max_paths, int, "max_paths", "compile")
    mode = "native" if mode in _MODES_ELSEWHERE else mode
    mode = "eager" if backend == "eager" or disable else mode
    check_choice(mode, "mode", "compile", MODES)
    check_choice(nan, "nan", "compile", NANS)
    check_choice(verify, "verify", "compile", VERIFIED)
    if mode == "interpret" and verify != "never":
        raise OptionError(
            f'compile: verify="{verify}" compares what native code makes, and mode="interpret" has '
            "none\nhint: leave one of them out"
        )
    chosen = Options(mode, audit, max_paths, fullgraph, _passes(passes), nan, verify, dynamic)
    made = functools.partial(_compiled_with, chosen)
    return made if function is None else made(function)


@edge
def _compiled_with(options: Options, function: Callable[..., Any]) -> Compiled:
    """The decorator that options make."""
    if isinstance(function, (staticmethod, classmethod)):  # below which it stands in a class
        made: Any = type(function)(_compiled_with(options, function.__func__))
        return cast(Compiled, made)
    if not callable(function):
        raise ArgumentError(
            f"compile: {type(function).__name__} is not callable\n"
            "hint: compile the function, then call it: lucid.compile(f)(x)"
        )
    _refuse_late(function)
    return _compiled_again(function, options)


def _passes(given: Any) -> tuple[Pass, ...]:
    """The passes of the option. Raises `ArgumentError` for what is none."""
    if not isinstance(given, (list, tuple)):
        raise ArgumentError(
            f"compile: passes is a list of functions, not {type(given).__name__}\n"
            "hint: passes=[my_pass]"
        )
    for index, run in enumerate(given):
        if not callable(run):
            raise ArgumentError(
                f"compile: passes[{index}] is not callable, but {type(run).__name__}\n"
                "hint: a pass is a function that takes a lucid.ir.Graph and returns a bool"
            )
    return tuple(given)


def _compiled_again(function: Callable[..., Any], options: Options) -> Compiled:
    from lucid.compiler.compiled_module import CompiledModule

    return (CompiledModule if isinstance(function, epoch.movers) else Compiled)(function, options)
