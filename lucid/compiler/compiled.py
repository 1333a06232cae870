"""`lucid.compile`: the decorator, and the function that it makes."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from lucid.autograd.generators import put_state, state_of
from lucid.autograd.host_replay import undo_draws
from lucid.compiler.cache import DEPARTS, LIMIT, ProgramCache
from lucid.compiler.dynamic import Dynamic
from lucid.compiler.guards.events import ListenerSnapshot
from lucid.compiler.guards.guard import instance_dict
from lucid.compiler.guards.restarts import undo_all
from lucid.compiler.inputs.signature import Call, describe, name_of
from lucid.compiler.options import MOST_PATHS, Options, checked
from lucid.compiler.pacing import NotPaidForError, TracePace
from lucid.compiler.programs.audits import Pace, report
from lucid.compiler.reports.statistics import Stats, signature_text
from lucid.compiler.tracing import ATTEMPTS, Tracer
from lucid.ir.classes import isinstance
from lucid.ir.clone import copy_graph
from lucid.ir.errors import (
    ArgumentError,
    EagerOnlyError,
    LeavesPath,
    LucidError,
    NonFiniteError,
    NotFinite,
    TraceError,
)
from lucid.ir.frames import catching, edge, edge_of_class, leave
from lucid.ir.logs import say
from lucid.ir.passes.pipeline import Pass
from lucid.ir.passes.regions import outline_repeated
from lucid.ir.selecting import select
from lucid.ir.whose_code import is_interrupt
from lucid.runtime.entry.layout import SLOW_PATH
from lucid.runtime.stance import eager_is_forced
from lucid.tensor.context import context, epoch, within

if TYPE_CHECKING:
    import networkx

    from lucid.compiler.programs.program import Departure, Program
    from lucid.compiler.reports.checking import Check
    from lucid.compiler.reports.explaining import Explanation
    from lucid.compiler.reports.page import Report
    from lucid.compiler.reports.profiling import Profile
    from lucid.ir.types import TensorType
    from lucid.runtime.stages import Stages

_DEFAULTS = Options()
_MAY_HANDLE = "its run raises {}, which it may handle"

_collecting: list[list[Compiled]] = []


def watcher() -> str:
    """What looks at single ops around this call, which therefore runs op by op; "": nothing does.

    A custom forward that may be differentiated does: it notes the history of each op.
    """
    here = vars(context)  # of this thread; one look instead of five
    if here["anomaly"] is not None:
        return "detect_anomaly, around this call,"
    if here["saving"] is not None:
        return "a block of hooks on saved tensors, around this call,"
    if here["levels"]:
        return "a vmap or a forward-mode derivative, around this call,"
    if here["forward"] is not None and not here["grad_enabled"]:
        return "the forward of a custom Function, around this call,"
    return ""


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
        options: Options = _DEFAULTS,
        *,
        is_paced: bool = True,
        earlier: Sequence[TensorType] = (),
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self._options = options
        self.stats = stats = Stats()
        dynamic = self._dynamic = Dynamic(function, options, is_paced, earlier)
        programs = self._programs = ProgramCache(stats, dynamic)
        own = weakref.ref(programs)  # they die with the step's last user, and statistics may stay
        stats.served = lambda: () if (found := own()) is None else found.served()
        self._pace = TracePace(stats)
        # A backward that is skipped would leave no gradients.
        nan = "allow" if options.nan == "allow" else "raise"
        backward = Options(passes=options.passes, nan=nan)
        compiled = functools.partial(Compiled, options=backward, is_paced=False)
        pace = self._pace if is_paced else None
        self._tracer = Tracer(function, options, stats, programs, dynamic, pace, compiled)
        self._audits = Pace(stats.counted, options.audit and is_paced)
        self._audited = 0  # how many calls there had been at the last audit
        self._distrust: str | None = None  # what an audit has found
        self._is_made = True
        if _collecting and is_paced:
            _collecting[-1].append(self)

    @catching
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            programs = self._programs
            latest, differs = programs.latest, None
            if latest is not None:
                first, looks = latest, None
                if len(programs.recent) > 1:  # calls of several looks come
                    first, looks = programs.first(args)
                enter = first.enter
                if enter is not None:
                    try:
                        is_direct = first.is_direct and not kwargs
                        result = enter(*args) if is_direct else first.call_native(args, kwargs)
                    except DEPARTS as found:
                        differs = programs.left(first, found)
                        result, differs = programs.follow(differs, args, kwargs)
                    except Exception as error:  # nothing has happened; the long way says why
                        may_go_on = isinstance(error, NotFinite) or self._may_handle(first)
                        if not may_go_on or is_interrupt(error):
                            raise
                        result = SLOW_PATH
                    else:
                        if result is not SLOW_PATH:
                            if looks is not None and first is not latest:
                                programs.begin_with(first, looks)
                            return result
                    enter = None  # who still has it may be in it: see `Program.follow`
                    if result is SLOW_PATH and differs is None:
                        result, differs = programs.enter_recent(args, kwargs, first)
                    if result is not SLOW_PATH:
                        return result
            watching = None if self._runs_as_it_is() else watcher()
            if watching:
                self._note_eager(EagerOnlyError(f"{watching} looks at single ops"))
            elif watching is not None:
                asked = time.perf_counter()
                try:
                    return self._call(args, kwargs, differs)
                except NonFiniteError as error:
                    if self._options.nan != "skip":
                        raise
                    return self._skipped(error)
                except EagerOnlyError as reason:
                    if not self._options.may_be_eager:
                        raise self._refusal(str(reason)) from None
                    self._note_eager(reason)
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
            self._pace.note_eager(reason, self._dynamic.looks(args), looking, running)
        return result

    def _may_handle(self, program: Program) -> bool:
        """Whether a call whose run fails goes on op by op: the step may handle the error.

        Or its message is to have sizes in it that the trace didn't know.
        """
        return (program.may_catch or program.decides_sizes) and self._options.may_be_eager

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

    def _call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], differs: Departure | None
    ) -> Any:
        """Call natively, by the program used last if that fits. Raises `EagerOnlyError`.

        differs: what a run of a program has found that doesn't fit; it isn't asked again.
        """
        looks = self._dynamic.looks(args)
        self._pace.refuse_look(looks, looks in self._programs.recent)
        if differs is None and self._programs.latest is not None and self._audits.is_due():
            self._call_audit(args, kwargs)
        if self._distrust is not None:
            raise EagerOnlyError(self._distrust)
        call = self._dynamic.signature(args, kwargs)
        return self._call_natively(call, differs)

    def call_natively(self, args: tuple[Any, ...]) -> Any:
        """Call a function that is no use in eager mode. Raises `EagerOnlyError`."""
        latest = self._programs.latest
        result = SLOW_PATH if latest is None else latest.call_native(args, {})
        return self._call(args, {}, None) if result is SLOW_PATH else result

    def _runs_as_it_is(self) -> bool:
        """Whether a call is one of plain Python: that was asked for, or a trace records it."""
        is_traced = context.recorder is not None
        return self._options.mode == "eager" or is_traced or eager_is_forced()

    def _is_eager(self) -> bool:
        """Whether a call's ops run one by one, or are recorded."""
        return self._runs_as_it_is() or watcher() != ""

    def _call_audit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Trace a call again; no more programs are run if the trace isn't what it was."""
        start, calls, before = time.perf_counter(), self.stats.calls, ListenerSnapshot()
        undo: list[Callable[[], object]] = []
        try:
            found = self._tracer.audit(args, kwargs, undo)
        except BaseException as error:
            before.put_back(error)
            undo_all(undo)
            raise
        if found is not None:
            self._distrust = report(name_of(self.__wrapped__), found, calls - self._audited)
            self._programs.drop(self._programs.all())
            self._audits.stop()
        else:
            self._audited = calls
            self._audits.note(time.perf_counter() - start)

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
        program = self._programs.latest
        if program is not None and self._dynamic.refuses(program):
            program = None
        # One that is looked for fits; the latest one says so when it runs.
        is_fit = differs is not None or program is None or program.key != call.key
        while left:
            try:
                if is_fit or program is None:
                    call, program = self._tracer.program_for(call, undo, differs)
            except BaseException as reason:
                if differs is not None:
                    undo_draws(differs.made)
                if isinstance(reason, EagerOnlyError) and not isinstance(reason, NotPaidForError):
                    self._tracer.note_untraceable(call.key, reason)
                raise
            if self.stats.traces != traces:
                self._tracer.note_traced(call.key)
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
                before, differs = differs, self._programs.left(program, other)
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
                may_handle = isinstance(error, Exception) and self._may_handle(program)
                if may_handle and not is_interrupt(error):
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
                if program is not self._programs.latest:
                    took_over = differs is not None and bool(differs.path)
                    took_over = took_over and self._programs.latest is not None
                    looks = self._dynamic.looks(call.given[0])
                    self._programs.begin_with(program, looks, took_over=took_over)
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
                f"it looks at what its first call makes: {failure}{self._tracer.line_of(place)}"
            )

    def _forget_unused(self, undo: list[Callable[[], object]]) -> None:
        """Undo what traces have made, and drop the programs that no call has used."""
        if undo:
            self._programs.drop([x for x in self._programs.all() if x.undo is undo])
            undo_all(undo)

    def _note_eager(self, reason: EagerOnlyError) -> None:
        """Count a call that runs op by op, and say why, once for each kind of reason."""
        self.stats._note_eager(str(reason))
        kind, said = reason.kind or str(reason), self._tracer.said
        if kind not in said:
            if len(said) >= LIMIT:
                said.clear()
            said.add(kind)
            name = name_of(self.__wrapped__)
            say("eager", "%s: this call runs op by op: %s", name, reason, level=logging.WARNING)

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
            self.stats.objects += 1
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
        is_own = not self._is_made or name in (instance_dict(self) or ())
        if is_own or name.startswith("__"):
            object.__setattr__(self, name, value)
        else:
            setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__!r}>"

    # ------------------------------------------------------------------ looking inside

    def _latest_program(self) -> Program:
        if self._programs.latest is None:
            name = name_of(self.__wrapped__)
            if not self.stats.eager_reasons:
                raise LucidError(f"{name} has not been called yet, so nothing is compiled")
            reason = self.stats.eager_reasons[-1]
            raise LucidError(f"{name} has only run op by op, so nothing is compiled: {reason}")
        return self._programs.latest

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
        call = self._dynamic.signature(args, kwargs)
        program, _ = self._programs.fitting(call, None)
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

        is_eager = self._programs.latest is None and bool(self.stats.eager_reasons)
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
        with self._programs.of_known_sizes():
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
        with self._programs.of_known_sizes():
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
            with self._programs.of_known_sizes():
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
    chosen = checked(
        mode=mode,
        audit=audit,
        max_paths=max_paths,
        fullgraph=fullgraph,
        passes=passes,
        nan=nan,
        verify=verify,
        backend=backend,
        dynamic=dynamic,
        options=options,
        disable=disable,
    )
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


def _compiled_again(function: Callable[..., Any], options: Options) -> Compiled:
    from lucid.compiler.compiled_module import CompiledModule

    return (CompiledModule if isinstance(function, epoch.movers) else Compiled)(function, options)
