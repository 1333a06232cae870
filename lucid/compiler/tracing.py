"""The traces of a compiled function: why there is another one, and what is compiled from it."""

from __future__ import annotations

import gc
import inspect
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import active_count
from typing import TYPE_CHECKING, Any

from lucid.autograd.host_replay import replaying
from lucid.compiler.cache import LIMIT, ProgramCache
from lucid.compiler.dynamic import Dynamic
from lucid.compiler.guards.events import ListenerSnapshot
from lucid.compiler.guards.mutable_sources import ELEMENTS, GrowingList, live_sources
from lucid.compiler.guards.restarts import MOST_RESTARTS, Known, RestartTrace, undo_all
from lucid.compiler.inputs.signature import Call, Description, changes, describe, name_of
from lucid.compiler.options import Options
from lucid.compiler.pacing import PATH_REMEDY, NotPaidForError, TooManyPathsError, TracePace
from lucid.compiler.programs.audits import difference, made_again
from lucid.compiler.reports.statistics import Stats, Traced, kind_of_change, signature_text
from lucid.ir.classes import isinstance
from lucid.ir.errors import EagerOnlyError, TraceError
from lucid.ir.location import Location, here
from lucid.ir.logs import is_on, say
from lucid.ir.passes.finite import check_finite, check_finite_exactly
from lucid.ir.passes.pipeline import optimizing
from lucid.ir.whose_code import is_interrupt
from lucid.runtime.progress import Progress
from lucid.tensor.context import context
from lucid.tensor.write_locks import TRACING, WriteLock, held, lock, wait_for

if TYPE_CHECKING:
    from lucid.compiler.compiled import Compiled
    from lucid.compiler.programs.program import Around, Departure, Program
    from lucid.compiler.recording.trace import Trace
    from lucid.compiler.results.output_specs import Run
    from lucid.ir.graph import Graph
    from lucid.runtime.open_programs import Families

ATTEMPTS = 16  # of one call to run a program before another thread changes what it depends on
_OTHERS = object()  # calls of signatures that are new


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


class Tracer:
    """Makes the programs of one function, one trace for each.

    Args:
        function: what is traced.
        options: what `lucid.compile` was asked for.
        stats: where traces are counted.
        programs: where those that it makes go.
        dynamic: what traces have found to differ between calls.
        pace: whether another trace is worth its time; None: all are.
        compiled: makes the compiled functions of backwards.

    Attributes:
        said: kinds of reasons to run op by op of which the user was told one.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        stats: Stats,
        programs: ProgramCache,
        dynamic: Dynamic,
        pace: TracePace | None,
        compiled: Callable[..., Compiled],
    ) -> None:
        self._function, self._options, self._stats = function, options, stats
        self._programs, self._dynamic, self._pace = programs, dynamic, pace
        self._compiled = compiled
        watch = check_finite_exactly if options.mode == "interpret" else check_finite
        last = None if options.nan == "allow" else watch
        self._optimize = optimizing(options.passes, last=last)
        self._families: Families | None = None
        self._is_unverified = options.verify == "first"
        self.said: set[str] = set()
        # How many calls had to run op by op, why, and the kind of that.
        self._untraceable: dict[Any, tuple[int, tuple[str, str]]] = {}

    def program_for(
        self, call: Call, undo: list[Callable[[], object]], differs: Departure | None = None
    ) -> tuple[Call, Program]:
        """The call as a program sees it that serves it, which is traced if there is none."""
        with lock:  # places hold stand-ins while another thread traces the function
            if held:
                wait_for(frozenset((id(self),)))
        dynamic, traces = self._dynamic, self._stats.traces
        program, why = self._programs.fitting(call, differs)
        if program is None and dynamic.counts and differs is None:
            as_given = dynamic.signature(*call.given, live=())  # from before ints and texts moved
            program, _ = self._programs.fitting(as_given, None)
            call = call if program is None else as_given
        if program is not None:
            if program.undo and program.undo is not undo:
                undo += program.undo
                program.undo = undo
            return call, program
        if self._untraceable:
            self._refuse_untraceable(call.key)
        known = dynamic.known(undo, self._programs.all())
        known.functions = [] if self._is_unverified else None
        closed, exact = {*dynamic.closed}, {*dynamic.exact}
        restarts = 0
        while restarts < MOST_RESTARTS:
            start = time.perf_counter()
            try:
                return call, self._program(call, known, differs, why, traces)
            except RestartTrace as restart:
                traceback.clear_frames(restart.__traceback__)  # which those followed keep
                restarts += 1
                self._stats._note_restart(restart)
                self._stats.compile_seconds += time.perf_counter() - start
                reason = restart.reason
                dynamic.enter(restart, known)
                call, traces = dynamic.signature(*call.given), -1
            except BaseException as error:
                dynamic.exact &= exact  # lists weren't why, as it fails with their items known
                is_reason = isinstance(error, EagerOnlyError) and error.__cause__ is None
                if not is_reason:  # nor were sizes, as the step fails with all of them known
                    dynamic.closed &= closed
                raise
        raise TraceError(
            f"{name_of(self._function)} {reason}, which can't be followed: its trace began "
            f"again {restarts} times\n"
            "hint: do that outside of the compiled function, or in plain dicts and lists"
        )

    def _program(
        self, call: Call, known: Known, differs: Departure | None, reason: str | None, traces: int
    ) -> Program:
        """A program for a call, traced if there is none.

        reason: why none fitted, as in `_trace`, after so many traces; -1: they weren't asked.
        """
        before = ListenerSnapshot()
        try:
            with (
                Progress(name_of(self._function)),
                WriteLock(frozenset((id(self), TRACING))) as claim,
            ):
                program = None
                # Another thread may have traced it meanwhile, or read places while one traced.
                if traces != self._stats.traces or active_count() > 1:
                    program, reason = self._programs.fitting(call, differs)
                if program is None:
                    program = self._trace(call, known, differs, reason, claim)
            return program
        except BaseException as error:
            before.put_back(error)
            raise

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
        description = describe(self._function, call)
        if self._dynamic.may_open:
            for program in self._programs.of(call):
                self._dynamic.opened |= program.varied_with_numbers()
        kind, reason, place = self._occasion(call, description, differs, reason)
        with replaying(*(((), ()) if differs is None else (differs.made, differs.answers))):
            recorded = self._record(call, known)
        claim.give_up(TRACING)
        program = self._made(recorded, description, call, known)
        executable = program.executable
        source = "LLVM" if executable.was_compiled else "cache"
        self._stats.cache_hits += not executable.was_compiled
        self._stats._note(
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
            say("compile", "%s: %d nodes in %.2f s", name_of(self._function), nodes, seconds)
        if self._options.mode != "interpret":
            program.take_plain(call, self._stats.counted)
        self._programs.add(call, program)
        return program

    def _occasion(
        self, call: Call, description: Description, differs: Departure | None, reason: str | None
    ) -> tuple[str, str, Location | None]:
        """Why there is a trace: its kind, the reason, and the user's line where words don't say it.

        Raises `RestartTrace` for ints that are to be read at each call, and where it isn't worth
        another trace.
        """
        is_path = differs is not None and bool(differs.path)
        siblings = [x for x in self._programs.of(call) if x.path] if is_path else []
        if len(siblings) >= self._options.max_paths:
            raise TooManyPathsError(
                f"its branches have taken {len(siblings)} paths by now, and would take another "
                f"one: {reason}\n"
                f"hint: {PATH_REMEDY}; lucid.compile(max_paths=…) sets how many paths are compiled"
            )
        if self._dynamic.signature(*call.given).key != call.key:
            raise RestartTrace("is called by several threads, of which one has found what moves")
        programs = self._programs.all()
        self._dynamic.find(call, description, programs)
        earlier = [program.description for program in programs]
        place = here()
        if not earlier:
            return "first", "the first call", place
        is_known = reason is not None
        reason = reason or changes(description, earlier)
        kind = "path" if is_path else "host" if differs is not None else kind_of_change(reason)
        if is_known and differs is None:
            kind = kind if kind in ("mode", "flag") else "guard"
            place = self._place_of_failure(call) or place
        if self._pace is not None:
            is_said = NotPaidForError.kind in self.said
            self._pace.refuse_trace(kind, reason, lambda: "" if is_said else self.line_of(place))
        channel, text = ("exits", "%s: takes a new path: %s")
        if not is_path:
            channel, text = "retrace", "retrace of %s: %s"
        say(channel, text, name_of(self._function), reason)
        return kind, reason, place if differs is None else None

    def _record(self, call: Call, known: Known) -> Trace:
        """Trace the function; numbers that will change again are read at each call.

        Where it raises an error with stand-ins for those, eager mode says whether it is one.
        """
        from lucid.compiler.recording.trace import raise_in_eager_mode, trace
        from lucid.compiler.results.side_effects import inside

        guards = [program.guards.guards for program in self._programs.all()]
        found = {place.identity: place for place in live_sources(guards)}
        fixed, lasting = self._dynamic.fixed, self._dynamic.sources
        sources = {key: x for key, x in found.items() if key not in fixed} | lasting
        for identity in inside(sources.values()):
            del sources[identity]
            lasting.pop(identity, None)
            known.inside.add(identity)
        try:
            context.interprets = self._options.mode == "interpret"
            recorded = trace(self._function, call, known, sources)
        except EagerOnlyError:
            arrays = {key for key in sources if key[1] == ELEMENTS and key not in lasting}
            if not arrays:
                raise
            fixed |= arrays  # what it does with them needs to be traced for each content
            return self._record(call, known)
        except Exception as error:
            if is_interrupt(error):
                raise
            if isinstance(error, RecursionError) and not self._programs.of(call):
                raise_in_eager_mode(error, "calls of its own on the stack")
            if self._dynamic.counts or found.keys() - lasting.keys():
                raise_in_eager_mode(error)
            if not isinstance(error, EagerOnlyError):
                for give in known.warnings:
                    give()
            raise
        lasting.update(sources)
        return recorded

    def _made(self, recorded: Trace, description: Description, call: Call, known: Known) -> Program:
        """What a trace is compiled to."""
        from lucid.compiler.programs.program import Program
        from lucid.runtime.open_programs import Families

        around: Around | None = None
        if self._options.mode == "interpret":
            around = Program.interpret
        elif self._is_unverified:
            around = self._verifying(recorded.graph, known)
        if self._families is None and not self._options.passes:
            self._families = Families()
        program = Program(
            recorded, description, call, self._compiled, self._optimize, self._families
        )
        program.used, program.number, program.around = self._stats.calls, self._stats.traces, around
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
            self._dynamic.may_open = self._options.may_open

        return around

    @collector_paused()
    def audit(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], undo: list[Callable[[], object]]
    ) -> str | None:
        """What a new trace has that the program for a call has not; None: nothing, or unknown.

        undo: takes back what the trace makes.
        """
        from lucid.compiler.recording.trace import trace

        program, _ = self._programs.fitting(self._dynamic.signature(args, kwargs), None)
        if program is None or program.hosts or not program.foresees():
            return None
        sources = {place.identity: place for place in program.sources}
        if any(isinstance(x, GrowingList) and not x.owner for x in sources.values()):
            return None  # a trace of it sees less than the program has
        known = Known(set(self._dynamic.counts), dict(sources), opened={*program.places_opened})
        known.types, known.undo = program.seen, undo
        failed: Exception | None = None
        told = program.answers(program.path)
        for _ in range(ATTEMPTS):
            call = self._dynamic.signature(args, kwargs)
            with WriteLock(frozenset((id(self), TRACING))):
                try:
                    with replaying((), told):
                        recorded = trace(self._function, call, known, sources)
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
            if isinstance(failed, TraceError):
                return None  # another thread's step was at the places that the trace has read
            if failed is not None:
                raise failed  # by somebody else, such as the handler of a signal
            self._stats.audits += 1
            if program.cut is not None and recorded.has_other_sizes(program.sizes_at_hand):
                return None  # for which the cut may keep something else
            if program.path and not told and recorded.path != program.path:
                return None  # what the values of this call decide is another path
            found = difference(program, *made_again(recorded, program.sizes_at_hand))
            if found is None or not told:
                return found
            told = []  # the difference may be one between these values and what it was told
        return None

    def note_untraceable(self, key: Any, error: EagerOnlyError) -> None:
        """Note that a trace had to be given up, since the call makes sense op by op only."""
        for each in (key, _OTHERS):
            count, _ = self._untraceable.get(each, (1, ""))
            self._untraceable[each] = count, (str(error), error.kind)
        while len(self._untraceable) > LIMIT:
            del self._untraceable[next(x for x in self._untraceable if x is not _OTHERS)]

    def note_traced(self, key: Any) -> None:
        """Note that a call has been traced which had to be given up before, or one like it."""
        for each in (key, _OTHERS):
            self._untraceable.pop(each, None)

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

    def _place_of_failure(self, call: Call) -> Location | None:
        """The line that read what has changed since a program was made for such a call."""
        programs = reversed(self._programs.of(call))
        return next(filter(None, (x.guards.place_of_failure() for x in programs)), None)

    def line_of(self, place: Location | None) -> str:
        """The line that read what has changed, or where the function begins, for a message."""
        if place is None:
            code = getattr(inspect.unwrap(self._function), "__code__", None)
            place = None if code is None else Location(code.co_filename, code.co_firstlineno)
        return "" if place is None else f"\n  at {place}   {place.text}"
