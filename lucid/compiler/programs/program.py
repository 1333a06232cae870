"""A compiled step: guards, the native executable, and the Python border around its call."""

from __future__ import annotations

import logging
import operator
import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import get_ident
from typing import Any

import numpy as np

from lucid.autograd.host_finding import Finding, FoundNumber
from lucid.autograd.host_replay import (
    HostCallMismatch,
    MadeHostCall,
    OpenAxis,
    made_in,
    replaying,
    undo_draws,
)
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower.legalize import legalize
from lucid.codegen.lower.schedule import make_program
from lucid.compiler.guards.age import owner_of
from lucid.compiler.guards.following import Images, is_known_by_place
from lucid.compiler.guards.guard import ArrayGuard, ContentsGuard
from lucid.compiler.guards.mutable_sources import AppendEffect, TensorProperty, follow
from lucid.compiler.guards.restarts import RestartTrace, undo_all
from lucid.compiler.inputs.cells import Cell, GradUse, SizesGuard
from lucid.compiler.inputs.scalars import Formula
from lucid.compiler.inputs.sharing import Sharing
from lucid.compiler.inputs.signature import Call, Description, PlainType, types_of
from lucid.compiler.programs.audits import outline_of
from lucid.compiler.programs.backward import CallRecord, CompileWalk, Differentiable
from lucid.compiler.programs.gathering import Gathering, NotReadableError, Read
from lucid.compiler.programs.native import NativeCalls, is_measured, native_calls, plain_reads
from lucid.compiler.programs.twins import Counterparts, Rebinding, UnlikeError, replaced, works_with
from lucid.compiler.recording.names import name_values
from lucid.compiler.recording.trace import Trace
from lucid.compiler.results.gradients import Gradients
from lucid.compiler.results.output_specs import (
    Constant,
    Found,
    GraphOutput,
    LateOutput,
    OutputSpec,
    Run,
    counter_of,
    is_early,
    leaf_of,
    storage_of,
)
from lucid.compiler.results.replayed_effects import all_or_nothing, put_all
from lucid.dtypes import get_default_dtype
from lucid.ir import ops
from lucid.ir.clone import Snapshot, copy_graph, rewritten
from lucid.ir.environment import VERIFY
from lucid.ir.errors import EagerOnlyError, LeavesPath, LucidError, NotFinite
from lucid.ir.extents import NotOpenError, Sizes, hint, is_open, symbol_of
from lucid.ir.graph import Graph, Node
from lucid.ir.non_finite import first_non_finite
from lucid.ir.opening import reopened
from lucid.ir.passes.finite import check_finite, check_finite_exactly, drop_finite_check
from lucid.ir.passes.pipeline import Pass, PassLog, Pipeline, require_known_names
from lucid.ir.passes.regions import outline
from lucid.ir.passes.roll_up import roll_up_rounds
from lucid.ir.passes.rounds import promising
from lucid.ir.region_ops import body_names, is_exit
from lucid.ir.stepping import step_through
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import TensorType
from lucid.ir.whose_code import is_defect
from lucid.runtime.decided_sizes import DecidedProgram, decided_program
from lucid.runtime.entry.layout import SLOW_PATH
from lucid.runtime.entry.words import MOST_ARGUMENTS, ROOM
from lucid.runtime.executable import Executable, Results, compile_graph
from lucid.runtime.open_programs import Families
from lucid.runtime.plans import KeptPlan
from lucid.runtime.progress import at
from lucid.runtime.reuse import Reusable
from lucid.runtime.stages import Stages
from lucid.tensor.context import context, epoch
from lucid.tensor.core import of_array
from lucid.tensor.lazy_grads import GradBuffers
from lucid.tensor.storage import Storage
from lucid.tensor.write_locks import Keys, held, lock, unlocked, wait_for

logger = logging.getLogger("lucid")
MOST_LEFT = 256  # objects in whose place others are given now are remembered
# What a program for other objects has for itself.
_BOUND = (
    *("guards", "_side_effects", "_effects", "sources", "_found", "numbers", "readers", "counters"),
    *(
        "grads",
        "_written",
        "result",
        "_finals",
        "tensors",
        "early",
        "_constants",
        "_deferred",
        "_leaves",
    ),
)
PROGRAM_BYTES = 1 << 16  # of Python's objects, besides nodes and guards


@dataclass(slots=True, eq=False)
class Departure:
    """Why a run of a program has ended before anything was stored.

    Attributes:
        path: the outcomes of the exits that were passed, with the one that came out otherwise.
        made: what host calls have done so far, in their order.
        reason: what is another thing: old -> new.
        program: the one that was left.
    """

    path: tuple[int, ...]
    made: Sequence[MadeHostCall]
    reason: str
    program: Program

    @property
    def answers(self) -> list[tuple[str, int]]:
        """What was asked, and the outcomes."""
        return self.program.answers(self.path)

    def goes_beyond(self, other: Departure) -> bool:
        """Whether it has come further than an earlier one of the same call."""
        return (len(self.made), len(self.path)) > (len(other.made), len(other.path))


# Runs the native step of a program, or something in its place.
Around = Callable[["Program", Run, Reusable | None, Callable[[], None]], None]


class Program:
    """One recorded step, compiled for one signature.

    Args:
        compiled: makes a walk behind the results a compiled function.
        optimize: the passes that the graph goes through.
        families: the function's graphs but for their sizes; None: its programs know theirs.

    Attributes:
        description: the call that it was traced for, in the user's words.
        stages: text of each stage of the compiler, by name, in order: first the graph as recorded,
            with custom Functions as regions of their own.
        recorded: that graph. What was made of it is made again for who looks at it.
        pass_seconds: how long each pass took, those that prepare the kernels included.
        executable: the native program.
        compile_seconds: tracing, passes and compiling together.
        hosts: the host calls, in order.
        path: the outcomes of its exits; questions: what each asks, with the user's line.
        sizes_asked: where exits look at numbers that may be sizes; sizes_found: at such that are;
            places_opened: where all sizes are found that are open in it.
        links: programs that took over, by what was found then.
        sources: the mutable ones that its trace knew from its start, for audits.
        is_claiming: whether it writes something that threads may share.
        guards: what must hold for a call.
        inputs: arrays of state, by the number of the input; None for others.
        native: the short way for calls with plain tensors, and the function to call; None: there is
            none, or not before a call has bound the state.
        reads: how the short way reads the places.
        gathering: how it finds what a call gives; None: that is tensors, and such are in places.
            names: of the arguments by keyword; given_count: of all; arrays: which are no tensors.
            tensor_count: with the tensors in places; behind them are the gradients that it finds.
            entered: which of these are inputs: their numbers, and the places among those tensors;
            counted_at: where versions move there, and by how much.
        is_direct: whether `enter` takes the arguments by position, and gives the result.
        is_simple: whether a short call has nothing to do after the step but to return its result.
        differentiable: how results get their history; None: they have none. cut: what it keeps.
        grads: how it uses `.grad` of leaves, and what it leaves there; None: nothing.
        undo: takes back what the trace made for the step; empty once a call has run.
        may_catch: whether the step may handle an error that a run finds.
        types: of the tensors that its trace was given; seen: and that earlier ones were.
        key: of the calls that it may serve; used: how many there had been when it last served one;
            served: how many it has served, as far as its function has noted.
        number: of its trace among its function's; stage_seconds: what took how long to compile it.
    """

    def __init__(
        self,
        trace: Trace,
        description: Description,
        call: Call,
        compiled: CompileWalk,
        optimize: Pipeline,
        families: Families | None,
    ) -> None:
        self._families = families
        self._objects = call.objects  # kept alive: the signature holds their identities
        self._known = call.known
        self._left: deque[weakref.ref[Any]] = deque(maxlen=MOST_LEFT)
        self._last_left: Any = None  # of containers, which nobody can refer to weakly
        self.key, self.key_of_others = call.key, call.key_of_others
        self.used = self.number = self.served = 0
        self.types = call.types()
        self.seen: Sequence[Sequence[TensorType]] = ()
        self.description = description
        self.optimize = optimize
        self._graph: Graph | None = None  # the optimized one, where it is interpreted
        self.around: Around | None = None
        self._decided: DecidedProgram | None = None
        self.places_opened: set[OpenAxis] = set()
        self._variants: dict[tuple[Pass, ...], Executable] = {}  # by passes at the end
        self.executable = self._compile(trace)
        self.sources = [*map(copy, trace.sources.values())]
        self.undo, self.may_catch = trace.undo, trace.may_catch
        stages = {"trace": trace.seconds, "passes": self.pass_seconds.get("optimize", 0.0)}
        later = self.executable.stage_seconds or {"placing": self.executable.compile_seconds}
        self.stage_seconds = stages | dict(later)
        self.compile_seconds = sum(self.stage_seconds.values())
        self.native: NativeCalls | None = None
        self.enter: Callable[..., Any] | None = None
        self._retired: list[NativeCalls] = []
        self._has_followed = False
        self._types: list[PlainType] | None = None
        self._lacks_types = False
        self.reads: Sequence[Read] = ()
        self.gathering: Gathering | None = None
        self.names: tuple[str, ...] = ()
        self.is_direct = True
        self.given_count = self.tensor_count = 0
        self.entered: list[tuple[int, int]] = []
        self.counted_at: list[tuple[int, int]] = []
        self.arrays: frozenset[int] = frozenset()
        self._begun: Run | None = None
        self.in_grad_mode = context.grad_enabled
        self.default_dtype = get_default_dtype()
        self.guards = trace.guards
        self._side_effects = trace.guards.side_effects
        self._function = trace.function
        self._take_inputs(trace)
        self._take_epilogue(trace, compiled)
        self._take_claims(trace)
        kinds = ArrayGuard, ContentsGuard
        copies = [x.expected for x in self.guards.guards if isinstance(x, kinds)]
        guards = 300 * len(self.guards.guards) + sum(map(sys.getsizeof, copies))
        self._fixed_bytes = PROGRAM_BYTES + self.recorded.nbytes + guards
        if self.differentiable is None:
            for cell, _ in trace.cells:  # who holds a value holds the graph that it is in
                del cell.value

    def _compile(self, trace: Trace) -> Executable:
        at("passes")
        by_value = {cell.value: strides for cell, strides in trace.cells}
        strides = [by_value.get(entry.value) for entry in trace.graph.inputs]
        self._strides = strides
        graph, history = trace.graph, trace.epilogue.history
        self.cut = None if history is None else history.tape.cut
        if history is not None:  # whose backwards repeat some of it
            graph = copy_graph(graph)
        require_known_names()
        self.path, self.questions = trace.path, trace.questions
        self.sizes_asked, self._numbers_asked = {*trace.sizes_asked.values()}, trace.sizes_asked
        self.links: dict[tuple[int, ...], weakref.ref[Program]] = {}
        log, optimize, recorded = PassLog(), self.optimize, None
        graph.drop_dead_nodes()
        if trace.sizes is not None:
            return self._compile_decided(trace, trace.sizes, graph, log)
        if self._families is not None and promising(graph.nodes):  # for loops of any length
            before = Snapshot(as_recorded(graph))
            optimize = optimize.begin(graph, roll_up_rounds, log)
            graph, recorded = copy_graph(graph), before.put_back()
        begun, found, kept = len(log.changed), None, None
        if self._families is not None:
            family, skeleton, full = self._families.of(graph, strides)
            if family is not None:
                passes = PassLog()
                found = family.executable(graph, full, skeleton, optimize, passes)
                log.seconds = {**Counter(log.seconds) + Counter(passes.seconds)}
                log.changed += passes.changed
            if found is None:
                kept = KeptPlan(graph, skeleton, optimize)
        flat = list(graph.nodes)
        if recorded is None:
            recorded = copy_graph(as_recorded(graph))
        self.recorded = recorded
        again = partial(rewritten, recorded, self.optimize)
        if kept is not None:
            known = kept.executable(full, lambda: make_program(again(), full, host_target()))
            if known is not None:
                found = known[0], known[1].optimized
                log.changed += known[1].stages
        if found is None:
            optimize(graph, log)
        self._take_hosts(graph, graph.nodes if found is None else flat)
        if found is None:
            count = len(log.changed) - begun
            keep = None if kept is None else partial(kept.keep, log, begun, count)
            made = compile_graph(graph, strides=strides, again=again, log=log, keep=keep)
            found = made, count
        executable, count = found
        self._take_stages(executable, log, begun + count)
        return executable

    def _compile_decided(
        self, trace: Trace, sizes: Sizes, graph: Graph, log: PassLog
    ) -> Executable:
        """The same where values decide sizes; the trace begins again where they must be known."""
        self.places_opened = sizes.origins_of(())
        self._take_hosts(graph, graph.nodes)
        for host in self.hosts:  # each may find that others are to be run, or more room
            host.is_followed = True
        self.recorded = reopened(as_recorded(graph), hint)  # for who looks, as it was traced
        full = [
            contiguous_strides(entry.value.shape) if known is None else known
            for entry, known in zip(graph.inputs, self._strides, strict=True)
        ]
        try:
            places = {entry.value: number for number, entry in enumerate(trace.graph.inputs)}
            numbers = {symbol: places[value] for symbol, value in trace.sized.items()}
            self._decided = decided_program(graph, full, sizes, self.optimize, log, numbers)
        except Exception as error:
            if not isinstance(error, NotOpenError):  # the program is right
                if VERIFY.read() or not is_defect(error):
                    raise
                logger.exception("%s: sizes can't be open", graph.name)
            undo_all(trace.undo)
            if trace.are_given:
                raise NotOpenError("its backward needs sizes that values decide") from None
            closed = sizes.origins_of(getattr(error, "symbols", ()))
            raise RestartTrace("needs sizes that values decide", "closed", closed) from None
        if self._decided.given and not trace.are_given:
            trace.guards.sizes = _sizes_guard(trace, self._decided)
        executable = self._decided.executable()
        self._take_stages(executable, log, 0)
        return executable

    def _take_stages(self, executable: Executable, log: PassLog, count: int) -> None:
        """What is shown of each stage; the cut comes behind the first `count` passes."""
        self.pass_seconds, cut, recorded = log.seconds, self.cut, self.recorded
        after = cache(partial(texts_of, recorded, self.optimize))
        texts = {"trace": lambda: str(recorded)}
        texts |= {name: partial(_text, after, name) for name in log.changed[:count]}
        if cut is not None:
            texts["residuals"] = lambda: str(cut)
        texts |= {name: partial(_text, after, name) for name in log.changed[count:]}
        self.stages = Stages(texts).then(executable.stages)

    @property
    def outline(self) -> list[str]:
        """What it leaves, besides what it computes, for audits."""
        return outline_of(self._leaves, self._effects.effects, self._deferred)

    @property
    def decides_sizes(self) -> bool:
        """Whether values decide sizes that are open in it."""
        return self._decided is not None

    @property
    def has_given_sizes(self) -> bool:
        """Whether a call says all sizes that are open in it, by its numbers or its arguments."""
        decided = self._decided
        return decided is not None and not decided.is_staged and not self.hosts

    @property
    def sizes_at_hand(self) -> Sequence[int]:
        """What those sizes were in its trace."""
        return () if self._decided is None else self._decided.hints

    @property
    def nbytes(self) -> int:
        """What it keeps, about: native code, memory of its own, graph, guards, and its backwards.

        Objects are counted by the piece. Memory that is lent to one program after the other, such
        as large arenas, isn't counted.
        """
        behind = () if self.differentiable is None else self.differentiable.programs
        own = self._fixed_bytes + self.executable.nbytes + self.gradients.nbytes
        return own + sum(program.nbytes for program in behind)

    def backward_stages(self) -> Stages:
        """The graph of the backward that ran last of those of its results; of what it keeps."""
        backward = self.backward_outside()
        return Stages({} if backward is None else {"backward": lambda: backward.stages["trace"]})

    def _take_hosts(self, graph: Graph, nodes: Sequence[Node]) -> None:
        """Find the host calls; what differs, or ends the step, needs what those before it did."""
        self.hosts: list[Any] = []
        self._passed: list[int] = []  # how many exits come before each of them
        passed = followed = 0
        self._in_rounds = False
        for node in _with_bodies(graph, nodes):
            if node.op is ops.host:
                host = graph.hosts[node.attributes["function"]]
                followed = len(self.hosts)
                self.hosts.append(host)
                self._passed.append(passed)
            elif node.op.kind == "region":  # behind its bodies, whose calls follow themselves
                self._in_rounds, followed = True, len(self.hosts)
            elif is_exit(node):
                passed, followed = int(node.attributes["message"]) + 1, len(self.hosts)
        if not {check_finite, check_finite_exactly}.isdisjoint(self.optimize.passes):
            followed = len(self.hosts)
        for host in self.hosts[:followed]:
            host.is_followed = True

    def fits(self, departure: Departure) -> bool:
        """Whether it was traced for what another program has found so far."""
        made, path = departure.made, departure.path
        if not self.sizes_found:  # it knows such numbers by guards and exits
            made = [call for call in made if not call.host.is_made_again]
        if self._in_rounds:  # each of which makes some of them
            is_way = self.path[: len(path)] == path
            return is_way and all(any(host.fits(call) for host in self.hosts) for call in made)
        if len(made) > len(self.hosts) or self.path[: len(path)] != path:
            return False
        return all(host.fits(call) for host, call in zip(self.hosts, made, strict=False))

    def has_sizes_of(self, departure: Departure, call: Call) -> bool:
        """The same of sizes, for a call of which all else fits."""
        if self._decided is None or self._in_rounds:
            return True
        sizes, found = self.guards.sizes, [made.found for made in departure.made]
        return self._decided.fits(() if sizes is None else sizes.of(call), found)

    def answers(self, path: tuple[int, ...]) -> list[tuple[str, int]]:
        """What the first exits ask, with such outcomes."""
        return [*zip(self.questions, path, strict=False)]

    def departure(self, error: HostCallMismatch | LeavesPath) -> Departure:
        """What a run has found that is another thing than in its trace."""
        if isinstance(error, HostCallMismatch):
            host = error.made[-1].host
            number = self.hosts.index(host) if self._in_rounds else len(error.made) - 1
            passed = self._passed[number]
            return Departure(self.path[:passed], error.made, error.reason, self)
        question, before = self.questions[error.number], self.path[error.number]
        path = (*self.path[: error.number], error.found)
        reason = f"{question}: {before} -> {error.found}"
        return Departure(path, made_in(error.frame), reason, self)

    def generators(self) -> Collection[Any]:
        """The random generators of Python's and NumPy's that it draws from."""
        found = [getattr(host, "generator", None) for host in self.hosts]
        return {id(x): x for x in found if x is not None}.values()

    @property
    def sizes_found(self) -> set[OpenAxis]:
        return {host.place for host in self.hosts if isinstance(host, FoundNumber)}

    def varied(self, error: HostCallMismatch | LeavesPath) -> set[OpenAxis]:
        """The axes whose sizes a run has found to be others than in its trace.

        Where those that are open aren't equal to known ones any more, these have come to vary.
        """
        if isinstance(error, HostCallMismatch):
            return {*error.varied} or self._equal_ones(error.made)
        place = self._numbers_asked.get(error.number)
        return set() if place is None else {place}

    def _equal_ones(self, calls: Sequence[MadeHostCall]) -> set[OpenAxis]:
        """The axes of known sizes that were equal to an open one of the last of some host calls."""
        types: Any = calls[-1].host.types
        equal = {size.hint for type in types for size in type.shape if is_open(size)}
        return self._axes_of(equal, len(calls))

    def _axes_of(self, sizes: Collection[int], first: int = 0) -> set[OpenAxis]:
        """The axes that have one of some sizes, and aren't open, of host calls from one on."""
        asked = self._numbers_asked.items()
        found = {place for number, place in asked if self.path[number] in sizes}
        return found.union(*[host.axes_of(sizes) for host in self.hosts[first:]])

    def varied_with_numbers(self) -> set[OpenAxis]:
        """The same where numbers that a call has say other sizes, as its guards have found."""
        if self._decided is None or not self.guards.has_other_sizes:
            return set()
        return self._axes_of({self._decided.hints[symbol] for symbol in self._decided.given})

    def _take_inputs(self, trace: Trace) -> None:
        """Arrays of state are bound once; arguments, gradients and floats are read at each call."""
        cells = {cell.value: cell for cell, _ in trace.cells}
        live = dict(trace.live)
        self.inputs: list[Any] = []
        self._state: list[tuple[int, Storage]] = []
        self.arguments: list[tuple[int, int]] = []
        self._open_types: dict[int, TensorType] = {}
        self._found: list[tuple[int, Cell]] = []
        self.numbers: list[tuple[int, Formula]] = []
        self.readers: list[tuple[int, Callable[[], Any]]] = []
        for number, entry in enumerate(trace.graph.inputs):
            self.inputs.append(None)
            if entry.value in live:
                source = live[entry.value]
                if source.read is None:
                    self.numbers.append((number, source.formula))
                else:
                    self.readers.append((number, source.read))
                continue
            cell = cells[entry.value]
            if cell.kind == "arg":
                self.arguments.append((number, cell.position))
                if is_open(entry.value.type.size):
                    self._open_types[cell.position] = entry.value.type
            elif cell.kind == "grad":
                self._found.append((number, cell))
            else:
                self.inputs[number] = cell.storage.array
                self._state.append((number, cell.storage))
        written, read = {cell for cell, _ in trace.graph.writes}, {*trace.graph.results()}
        read.update(*[node.operands for node in trace.graph.nodes])
        if trace.epilogue.history is not None:  # a backward reads what its calls were given
            read.update(entry.value for entry in trace.graph.inputs)
        guarded = [(x.path, x.owner) for x in trace.guards.guards if isinstance(x, ArrayGuard)]
        self.sharing = Sharing(trace.graph.inputs, self.inputs, written, read, guarded)

    def _take_claims(self, trace: Trace) -> None:
        """Note what other threads' steps may not work with meanwhile."""
        written = {value for value, _ in trace.graph.writes}
        self._written = [cell for cell, _ in trace.cells if cell.value in written]
        self._claim()

    def _claim(self) -> None:
        cells = self._written
        uses = [*self.guards.grads_read, *(use for use, _ in self.grads)]
        owners = [_owner(cell.storage) for cell in cells if cell.kind == "state"]
        leaves = [use.leaf for use in uses if use.leaf is not None]
        self._claimed: Keys = frozenset(map(id, (*owners, *leaves)))
        self.claims = self._claimed
        if self._side_effects is not None:
            self.claims |= self._side_effects.claims
        self._claimed_memory = [cell.position for cell in cells if cell.kind == "arg"]
        self._claimed_leaves = [use.position for use in uses if use.leaf is None]
        self.is_claiming = bool(self.claims or self._claimed_memory or self._claimed_leaves)

    def _claims_of(self, call: Call) -> Keys:
        """What no other thread's step may work with during this call."""
        tensors = call.tensors
        owners = [_owner(tensors[position]._storage) for position in self._claimed_memory]
        leaves = [tensors[position] for position in self._claimed_leaves]
        return self.claims.union(map(id, (*owners, *leaves)))

    def _take_epilogue(self, trace: Trace, compiled: CompileWalk) -> None:
        epilogue = trace.epilogue
        self.counters = epilogue.counters
        self.grads = epilogue.grads
        self._effects = trace.effects
        history = epilogue.history
        self.differentiable = None if history is None else Differentiable(history, compiled)
        self._deferred = epilogue.deferred
        self._untold: dict[int, Run] = {}  # by thread: what native code has run
        self.result, self._finals, self.tensors = epilogue.result, epilogue.finals, epilogue.tensors
        self.output_count = len(trace.graph.outputs)
        grads = [spec for _, spec in epilogue.grads if spec is not None]
        self.early = [spec for spec in (*epilogue.leaves, *grads) if is_early(spec)]
        for late in epilogue.leaves:
            if isinstance(late, LateOutput):
                self.early += late.early.values()
        made = [*epilogue.leaves]
        for deferred in self._deferred:
            made += [*deferred.args, *deferred.kwargs.values()]
        constants = [spec for spec in made if isinstance(spec, Constant)]
        self._constants = [*{id(spec): spec for spec in constants}.values()]
        found = [leaf for leaf in epilogue.leaves if isinstance(leaf, Found)]
        self._has_given = any(leaf.what == "container" for leaf in found)
        self._leaves = epilogue.leaves
        self.gradients = Gradients(self.executable, self.grads, self._leaves)

    # ------------------------------------------------------------------ guards

    def follow(self, given: Sequence[Any] | None = None) -> Images | None:
        """Look at other containers from now on, where Python has bound such anew; None: as before.

        What a walk of the user's code holds is not known. given: what calls are given now in the
        place of `known` objects, if not these.
        """
        rule = self.differentiable
        if rule is not None and rule.users is not None:
            return None
        moved = [] if given is None else zip(given, self._known, strict=True)
        if any(now is not was and not is_known_by_place(was) for now, (_, was) in moved):
            return None
        with lock:
            if held:
                wait_for(self.claims)
            if given is not None and self._is_in_use():
                return None
            known = [x for _, x in self._known]
            pairs = [*zip(known, known if given is None else given, strict=True)]
            images = self.guards.follow(pairs, self._held)
            if images is not None:
                self._take(images)
        return images

    def twin(self, call: Call) -> tuple[Program, Sequence[tuple[Any, Any]]] | None:
        """A program for other modules and optimizers of the same structure; None: there is none.

        They are given to a call in the place of `known` objects, or stand at places that it reads.
        It is this program, bound to their parts. What was made for it is in its `undo`. Comes with
        these objects: what was there, and what is.
        """
        # Hosts of the user's classes know the tensors that they reach.
        is_rare = any(self._decided or not isinstance(x, Finding) for x in self.hosts)
        if self.differentiable or self.guards.pinned or is_rare:
            return None
        if self.around not in (None, Program.interpret):
            return None
        with lock:
            if held:
                wait_for(self.claims)
            return self._twin(call)

    def _twin(self, call: Call) -> tuple[Program, Sequence[tuple[Any, Any]]] | None:
        written = {id(cell.storage) for cell in self._written}
        images, guards = Counterparts(lambda x: id(x._storage) in written), self.guards.guards
        given = [(was, now) for (_, was), (_, now) in zip(self._known, call.known, strict=True)]
        made: Program | None = None
        try:
            images.pair(given)
            images.pair([*replaced(guards, images)])
            met = works_with(guards) - images.identities
            are_found = all(images.of(was) is now for was, now in given)
            is_clear = images.are_clear and are_found and images.news.isdisjoint(met)
            if is_clear and images.are_models:
                twin = copy(self)
                twin._bind(Rebinding(images), call)
                twin.undo = images.undo
                made = twin if twin.guards.failure(call) is None else None
        except (UnlikeError, EagerOnlyError):  # memory is shared otherwise
            pass
        finally:  # also where Ctrl-C comes in between
            if made is None:
                undo_all(images.undo)
        return None if made is None else (made, images.roots)

    def _bind(self, anew: Rebinding, call: Call) -> None:
        """Be bound to other objects. Raises `UnlikeError` where there are none for some."""
        self._objects, self._known, self.key = call.objects, call.known, call.key
        self.executable = self.executable.twin()
        before, self._state = self._state, [(n, anew.of(x)) for n, x in self._state]
        self.inputs = self.inputs.copy()
        for number, storage in self._state:
            self.inputs[number] = storage.array
        self.sharing = self.sharing.on(self.inputs)
        for name in _BOUND:
            setattr(self, name, anew.of(getattr(self, name)))
        self.guards.places = self.guards.apart = None
        self.guards.epoch = -1
        self._claim()
        self.gradients = Gradients(self.executable, self.grads, self._leaves)
        self.links, self._variants, self._untold, self._retired = {}, {}, {}, []
        self.native, self.enter, self._begun, self._has_followed = None, None, None, True
        self._types, self._lacks_types = None, self._lacks_types or self._types is not None
        self.served = 0
        memory = sum(x.nbytes for x in self.inputs if x is not None)
        self._fixed_bytes += memory  # others' models may be gone, and this one's is kept
        anew.check([x for _, x in before], self.hosts, self.guards.guards)

    def _is_in_use(self) -> bool:
        """Whether another thread may be in native code, which binds what calls were given."""
        native = self.native
        is_running = native is not None and native.is_running(is_entered=self.enter is not None)
        return is_running or any(x.is_running() for x in self._retired)

    def go_back(self, images: Images) -> None:
        """Look at what was there before `follow`."""
        with lock:
            self.guards.take(images.back())
            self._take(images.back())

    def _take(self, images: Images) -> None:
        """Let what it holds be what stands there now."""
        for place in self.sources:
            follow(place, images)
        for constant in self._constants:
            constant.value = images.of(constant.value)
        self._objects = [*map(images.of, self._objects)]
        if self.is_given(images.identities):
            self._known, parts = [(n, images.of(x)) for n, x in self._known], [*self.key]
            for number, x in self._known:
                parts[number] = id(x)
            self.key = tuple(parts)
            self._types, self._lacks_types = None, self._lacks_types or self._types is not None
        if self._side_effects is not None:
            self.claims = self._claimed | self._side_effects.claims
        self._retire_native()
        self._has_followed = True

    def is_given(self, things: Collection[int]) -> bool:
        """Whether its calls are given one of these objects, by their identities."""
        return any(id(x) in things for _, x in self._known)

    def leave(self, things: Iterable[Any]) -> None:
        """Remember objects that calls find no more."""
        for thing in things:
            try:
                self._left.append(weakref.ref(thing))
            except TypeError:
                self._last_left = thing

    def has_left(self, given: Iterable[Any]) -> bool:
        """Whether calls were given one of these earlier, and then others: they take turns."""
        left = [self._last_left, *(x() for x in self._left)]
        return any(x is y for x in given for y in left)

    def _held(self) -> list[Any]:
        """What it holds besides its guards and the places that it reads or binds."""
        known = {id(x) for _, x in self._known if is_known_by_place(x)}
        held = [
            *(x for x in self._objects if id(x) not in known),
            *self.hosts,
            *(x for deferred in self._deferred for x in deferred.functions),
        ]
        held += [x.value for x in self._constants if not is_known_by_place(x.value)]
        return [*held, self._function]

    def _retire_native(self) -> None:
        """Have the short way made anew; what another thread is in stays until it has left."""
        native, self.native, self.enter = self.native, None, None
        self._retired = [x for x in (*self._retired, native) if x is not None and x.is_running()]

    def _take_plain_again(self, call: Call) -> None:
        """Note it anew, with the objects of this call, where earlier ones were given others."""
        if self._lacks_types:
            self._lacks_types = False
            self.take_plain(call, self.counted)

    def take_plain(self, call: Call, counted: np.ndarray) -> None:
        """Note that calls like this one, if it is a plain one, are calls of this program.

        Native code counts those that it runs in `counted`.
        """
        plain = call.plain_types()
        if plain is None or self.guards.asked:
            return
        for position, open_type in self._open_types.items():
            _, strides, grad, kind = plain[position]
            array = call.tensors[position]._array
            if array is None or not array.flags.c_contiguous:
                return  # a copy is made for the step, which serves no tensors that need none
            plain[position] = open_type, strides, grad, kind
        decided = self._decided
        if decided is not None and decided.has_axes and not self.has_given_sizes:
            return
        self.counted = counted
        effects = self._side_effects
        reads = () if effects is None else plain_reads(effects, call.values)
        if reads is None or not self._is_plain(len(plain)):
            return
        (args, kwargs), (marked, marked_kwargs) = call.given, call.marked
        given = (*args, *kwargs.values())
        tensors: Sequence[Any] = call.tensors
        gradients = self.guards.grads_read
        is_gathered = self.guards.moving or gradients or any(any(read.kinds) for read in reads)
        count = len(tensors) - sum(len(read.kinds) for read in reads)
        if is_gathered or len(given) != count or any(map(operator.is_not, given, tensors)):
            found_at: list[Any] = [*(read.place for read in reads), *self.guards.moving]
            places = zip(found_at, call.values, strict=True)
            try:
                values = (*marked, *marked_kwargs.values())
                self.gathering = Gathering(values, places, gradients, self.guards.shares)
            except (NotReadableError, RecursionError):  # a list in itself
                return
            found = self.gathering(*given)
            there = sum(use.found is not None for use in gradients)
            if found is None or len(found) != len(tensors) + there:
                return  # another thread fills a container meanwhile
            self.arrays = frozenset(i for i, x in enumerate(found) if type(x) is np.ndarray)
            plain += types_of(found[len(plain) :])
        self._types, self.reads, self.tensor_count = plain, reads, len(tensors)
        self.names, self.given_count = (*kwargs,), len(given)
        later = self._finals or self.early or self._effects or self._deferred
        self.is_simple = not (self.gradients.others or later)
        self.is_direct = not (kwargs or self._deferred)

    def _is_plain(self, count: int) -> bool:
        """Whether a call does nothing about gradients or effects but find, leave and record them.

        count: of its arguments.
        """
        given = {number for number, _ in (*self.arguments, *self.numbers, *self.readers)}
        rule, guards, uses = self.differentiable, self.guards, self.guards.grads_read
        places = [id(use.leaf) for use in uses if use.found is not None]
        leaves = {leaf: place for place, leaf in enumerate(places, count)}
        counted = [(x, n) for x, n in self.counters if isinstance(x, GradUse)]
        rare = (
            count + len(leaves) > MOST_ARGUMENTS,
            not self._only_finds(),
            guards.pinned,
            any(use.leaf is None or use.storage is not None for use in uses),
            guards.grads_shared != [*range(count, count + len(uses))],
            uses and self.asks_user,
            any(id(cell.leaf) not in leaves for _, cell in self._found),
            any(isinstance(x, int) for x, _ in self.counters),
            any(id(x.leaf) not in leaves for x, _ in counted),
            not all(type(early) is Found and early.what == "number" for early in self.early),
            any(use.leaf is None for use, _ in self.gradients.others),
            self._has_given,
            self._claimed_memory,
            rule is not None and not rule.is_plain(given),
        )
        if any(rare):
            return False
        self.entered = [*self.arguments, *((n, leaves[id(x.leaf)]) for n, x in self._found)]
        self.counted_at = [(leaves[id(x.leaf)], delta) for x, delta in counted]
        return True

    def _only_finds(self) -> bool:
        """Whether all calls of Python are the library's own, and may be made twice."""
        is_watched = not {check_finite, check_finite_exactly}.isdisjoint(self.optimize.passes)
        own = [isinstance(host, Finding) and host.is_own for host in self.hosts]
        return not own or (all(own) and not (is_watched or self._in_rounds))

    @property
    def found_numbers(self) -> list[Any]:
        """Those that the call has found which runs on the short way."""
        return [] if self.gathering is None else self.gathering.numbers

    @property
    def is_begun(self) -> bool:
        """Whether a call on the short way is more than what it finds after the native step."""
        bound = () if self._side_effects is None else self._side_effects.bound
        is_added_to = any(isinstance(place, AppendEffect) for place in bound)
        return bool(self.early or self._effects) or is_added_to

    @property
    def asks_user(self) -> bool:
        """Whether to find out what comes after a step may call the user's code."""
        return bool(self._effects)

    def begin(self) -> None:
        """Take what is to be taken before the step runs on the short way."""
        call = Call.of_tensors(())
        call.floats = self.found_numbers
        run = Run(call, ())
        for spec in self.early:
            spec.of(run)
        if self._effects:
            run.changed = self._effects.entries()
        self._begun = run

    @property
    def moves_memory(self) -> bool:
        """Whether it may give tensors of the state other memory, as assigning `.data` does."""
        places = () if self._side_effects is None else self._side_effects.sources
        return any(isinstance(place, TensorProperty) for place in places)

    def finish(
        self,
        outputs: Any,
        args: Sequence[Any],
        cells: Mapping[int, np.ndarray],
        made: Mapping[OutputSpec, Any],
        *,
        is_complete: bool,
    ) -> Any:
        """What a call returns that native code has run; also sets what could not be promised.

        Calls that come after it are left to `call_native`. It can be done again after an interrupt.

        outputs: `Results` of the call.
        cells: where live numbers lie that the backward is given, by the input's number.
        made: the results that native code has made, some of `outputs` among them.
        is_complete: whether these have their history.
        """
        rule, record = self.differentiable, None
        args = args[: self.tensor_count]
        if self.arrays:
            args = [of_array(x) if type(x) is np.ndarray else x for x in args]
        run = self._begun
        if run is None:
            run = Run(Call.of_tensors(args), outputs)
        else:
            run.call.tensors, run.outputs = args, outputs
        if rule is not None and not is_complete:
            record = CallRecord(rule, args, self.found_numbers)
            inputs = {number: args[position]._array for number, position in self.arguments}
            run.inputs = inputs | {number: cell.copy() for number, cell in cells.items()}
        for spec, value in made.items():
            run.done[spec] = value
            if type(spec) is GraphOutput:
                outputs[spec.slot] = value._array
        found = self._deliver(run, None, record)
        if self._effects:
            self._effects.forget()
        if self._deferred:
            self._untold[get_ident()] = run
        self._begun = None  # last of all: without it, done again, lists would grow again
        return found

    @property
    def gives_arrays(self) -> bool:
        """Whether a call does no more than make its outputs, of which each is one result."""
        own = [x.slot for x in self.tensors if type(x) is GraphOutput and x.past is None]
        rare = self.differentiable, self.gathering, self.claims, self.hosts
        is_all = own == [*range(self.output_count)] and len(own) == len(self.tensors)
        return is_all and self.is_simple and not any(rare)

    def call_native(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What native code gives for a call; `SLOW_PATH` where it isn't sure, or there is none."""
        if self.enter is None or self.may_catch:  # a run that raises goes on op by op
            return SLOW_PATH
        if self.names != (*kwargs,):
            return SLOW_PATH
        try:
            found = self.enter(*args, *kwargs.values())
            if self._untold:
                self._tell_untold()
        except LeavesPath:
            raise
        except BaseException as error:
            if self._tell_untold():  # an interrupt of a step that has run
                raise
            is_told_again = isinstance(error, NotFinite) or (
                self.decides_sizes and isinstance(error, Exception)
            )
            if not is_told_again:  # nothing has happened; the long way says what it is about
                raise
            return SLOW_PATH
        return found

    def _tell_untold(self) -> bool:
        """Make the calls that come after the one which native code has run in this thread."""
        run = self._untold.get(get_ident())
        if run is None:
            return False
        self._tell(run)
        self._untold.pop(get_ident(), None)
        return True

    def prepare_native(self) -> None:
        """Let native code run calls from now on where it can, after one that bound the state.

        Not for a step that finds another container at each call, nor for one whose gradients'
        memory isn't kept for it.
        """
        native = self.native
        if native is not None and self._decided is not None:
            native.know_sizes(self._decided)
        is_fit, self._has_followed = not self._has_followed, False
        types = self._types
        if not is_fit or types is None or self.native is not None:
            return
        if self.gradients.are_promised and not self.gradients.is_kept:
            return
        if self.guards.gated_failure() is not None:  # the call may have moved the epoch
            return
        is_measured()  # which may compile: no other step is to wait for that
        with lock:  # one that threads run is never replaced: it would end under them
            if self._types is types and self.native is None:  # none has followed meanwhile
                self.native = native_calls(self, types)
                self.enter = None if self.native is None else self.native.function

    def backward_outside(self) -> Program | None:
        """The program of the backward that was called last on results of this one; None: none."""
        return None if self.differentiable is None else self.differentiable.latest()

    # ------------------------------------------------------------------ calling

    def run(self, call: Call, *, is_fit: bool = False) -> Any:
        """The result of a call, or `SLOW_PATH` if a guard fails: then nothing has happened yet.

        Steps of several threads that write the same state run one after another.

        is_fit: whether the guards are known to hold, unless another step may be waited for.
        """
        if not self.is_claiming:
            is_fit = is_fit and not self._known
            if is_fit or (self.key == call.key and self.guards.failure(call) is None):
                self._take_plain_again(call)
                return self._run(Run(call, Results()))
            return SLOW_PATH
        with lock:
            if held:
                wait_for(self._claims_of(call))
            # Another thread's call may have been given other objects meanwhile.
            if self.key != call.key or self.guards.failure(call) is not None:
                return SLOW_PATH
            self._take_plain_again(call)
            return self._run(Run(call, Results()))

    def _run(self, run: Run) -> Any:
        """Call the native step, then leave `.grad`, versions and results as eager would.

        Nothing has changed before the step has run; then all of it does, whoever interrupts that.
        """
        rule, gradients = self.differentiable, self.gradients
        record = None if rule is None else CallRecord(rule, run.call.tensors, run.call.floats)
        may_fail = self.around is not None or self.executable.may_fail
        batch = gradients.begin(may_fail=may_fail) if gradients.are_promised else None
        before = context.contexts
        try:
            self._prepare(run)
            if record is not None and self.hosts:
                context.contexts = record.contexts
            self._run_native(run, None if batch is None else batch.outputs)
            context.contexts = before
            result = self._deliver(run, batch, record)
            if self._deferred:
                self._tell(run)
        except BaseException:
            context.contexts = before
            if run.outputs.have_run:
                limit = sys.getrecursionlimit()
                sys.setrecursionlimit(limit + ROOM)  # it may have ended the stack
                try:
                    if not run.told:
                        self._deliver(run, batch, record)
                    self._tell(run)
                finally:
                    sys.setrecursionlimit(limit)
            elif batch is not None:
                gradients.give_back(batch)
            raise
        return result

    def _tell(self, run: Run) -> None:
        """Make the calls that come after one of the step, those that an interrupt has left."""
        count = len(run.calls)
        try:
            while run.told < count:
                deferred = run.calls[run.told]
                call = partial(deferred.function, *deferred.args, **deferred.kwargs)
                if deferred.prepares:
                    call = call()
                if deferred.owners:
                    all_or_nothing(call, deferred.owners)
                    run.told += 1
                    continue
                run.told += 1  # nobody is interrupted between this and what a call of C does
                call()
        except Exception:  # of such a call: eager mode makes none after it
            run.told = count
            raise

    def foresees(self) -> bool:
        """Whether what is repeated after a call raises nothing; else the call is about to."""
        try:
            return not self._effects or bool(self._effects.entries())
        except Exception:
            return False

    def _prepare(self, run: Run) -> None:
        """Take what the call finds. Raises what eager would before it has changed anything."""
        call = run.call
        for early in self.early:
            early.of(run)
        run.inputs = self._arrays(call)
        for target, delta in self.counters:
            counter = counter_of(target, call)
            run.versions[counter] = run.versions.get(counter, counter.now) + delta
        if self._effects:
            run.changed = self._effects.take()

    def _run_native(self, run: Run, memory: Reusable | None) -> None:
        """Raises `NonFiniteError` where the step would leave what it has made a NaN or inf of."""
        try:
            if self.around is None:
                self._run_on(self.executable, run, memory)
            else:
                native = partial(self._run_on, self.executable, run, memory)
                self.around(self, run, memory, native)
        except NotFinite as found:
            self._run_again(run, memory, made_in(found.frame))

    def _run_again(self, run: Run, memory: Reusable | None, made: Sequence[MadeHostCall]) -> None:
        """Run a step that has ended since something isn't finite, or out of the bounds for that.

        made: its host calls, which are not made again.
        """
        run.outputs.forget()
        exact = self._compiled_after(drop_finite_check, check_finite_exactly)
        try:
            with replaying(made):
                self._run_on(exact, run, memory)
        except NotFinite:
            run.outputs.forget()
            self._refuse_non_finite(run, made)
            unchecked = self._compiled_after(drop_finite_check)
            with replaying(made):
                self._run_on(unchecked, run, memory)

    def _compiled_after(self, *passes: Pass) -> Executable:
        """The step with some more passes at the end."""
        if passes not in self._variants:
            optimize = replace(self.optimize, passes=(*self.optimize.passes, *passes))
            graph = rewritten(self.recorded, optimize)
            self._variants[passes] = compile_graph(graph, strides=self._strides)
        return self._variants[passes]

    def _refuse_non_finite(self, run: Run, made: Sequence[MadeHostCall]) -> None:
        """Raise unless all that isn't finite comes from what the step was given.

        Nothing has changed yet, so NumPy can do the same again, and look at each op.
        """
        with replaying(made):
            error, outputs = first_non_finite(self.recorded, run.inputs)
        if error is not None:
            undo_draws(made)

            def result() -> Any:
                run.outputs[:] = outputs
                return self.result.of(run)

            error.result = result
            raise error from None

    def _run_on(self, executable: Executable, run: Run, memory: Reusable | None) -> None:
        call = run.call
        if context.lent is not None:  # a host call, of another step, goes on
            for cell in self._written:
                context.lent.before_write(storage_of(cell, call))
        if self.is_claiming and not executable.is_short:
            native = partial(executable.call, run.inputs, memory, run.outputs)
            unlocked(self._claims_of(call), native)
        else:
            executable.call(run.inputs, memory, run.outputs)

    def interpret(self, run: Run, memory: Reusable | None, native: Callable[[], None]) -> None:
        """Run the optimized graph on the user's lines, in place of the native step."""
        if self._graph is None:
            self._graph = rewritten(self.recorded, self.optimize)
        graph = self._graph
        outputs, written = step_through(graph, run.inputs)
        places = [None] * len(outputs) if memory is None else memory.arrays
        for place, array in zip(places, outputs, strict=True):
            if place is None:
                run.outputs.append(array)
            else:
                np.copyto(place, array)
                run.outputs.append(place)
        numbers = {entry.value: number for number, entry in enumerate(graph.inputs)}
        for (cell, _), array in zip(graph.writes, written, strict=True):
            np.copyto(run.inputs[numbers[cell]], array)
        run.outputs.codes.append(0)

    def _deliver(self, run: Run, batch: GradBuffers | None, record: CallRecord | None) -> Any:
        """Put everything in its place, and give what the step returns.

        All of it can be done again from the start when somebody has interrupted it.
        """
        call, gradients = run.call, self.gradients
        self.undo.clear()
        for counter, version in run.versions.items():
            counter.now = version
        if batch is not None:
            gradients.leave(batch)
        for use, spec in gradients.others:
            leaf = leaf_of(use, call.tensors)
            leaf._grad = None if spec is None else spec.of(run)
        result = self.result.of(run)
        finals = [final.of(run) for final in self._finals]
        put_all(run.changed)
        run.calls = []
        for deferred in self._deferred:  # before lists grow, and calls change what is asked
            kwargs = {name: spec.of(run) for name, spec in deferred.kwargs.items()}
            run.calls += deferred.made([spec.of(run) for spec in deferred.args], kwargs)
        if record is not None:
            results = [spec.of(run) for spec in self.tensors]
            record.attach(call.tensors, run.outputs, run.inputs, results)
        if self._side_effects is not None:
            moved = epoch.count
            self._side_effects.deliver(finals, call, run.appended)
            if self._side_effects.windows:
                self.guards.move()
            if record is not None:
                record.note_memory()
            self.guards.follow_epoch(moved)
        return result

    def forget_arguments(self) -> None:
        """Let go of the arguments of earlier calls."""
        for idle in [*self.executable.free]:
            idle.forget([number for number, _ in self.arguments])

    def _arrays(self, call: Call) -> list[Any]:
        """The inputs of the native step. Raises when they share memory that is written."""
        arrays = self.inputs.copy()
        tensors = call.tensors
        given: list[tuple[int, np.ndarray]] = []
        for number, position in self.arguments:
            array: Any = tensors[position]._array
            given.append((number, array))
            if position in self._open_types and not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)  # which the step only reads
            arrays[number] = array
        for number, cell in self._found:
            array = storage_of(cell, call).array
            arrays[number] = array
            given.append((number, array))
        for number, formula in self.numbers:
            arrays[number] = formula(call.floats)
        for number, read in self.readers:
            arrays[number] = read()
        self.sharing.check(given)
        return arrays


def _sizes_guard(trace: Trace, decided: DecidedProgram) -> SizesGuard:
    """Whether a program is for the sizes that a call says, by its numbers and its tensors."""
    live, cells = dict(trace.live), {cell.value: cell for cell, _ in trace.cells}
    found: list[tuple[str, Callable[[Call], int]]] = []
    equal: list[tuple[str, Callable[[Call], int], int]] = []
    symbols = [*decided.given]
    for number, axis in decided.given.values():
        value = trace.graph.inputs[number].value
        if axis < 0:
            found.append((live[value].text, partial(_number_in, live[value].formula)))
        else:
            found.append(_size_in(cells[value], axis))
    for value, cell in cells.items():
        for axis, size in enumerate(value.shape):
            symbol = symbol_of(size)
            if cell.kind == "arg" and symbol is not None:
                equal.append((*_size_in(cell, axis), symbols.index(symbol)))
    texts, sources = zip(*found, strict=True)
    return SizesGuard(texts, sources, equal, decided.serves)


def _number_in(formula: Formula, call: Call) -> int:
    return int(formula(call.floats))


def _size_in(cell: Cell, axis: int) -> tuple[str, Callable[[Call], int]]:
    """The size of an argument, and its text."""

    def source(call: Call) -> int:
        return call.tensors[cell.position]._type.shape[axis]

    return f"{cell.value.name}.shape[{axis}]", source


def texts_of(recorded: Graph, optimize: Pipeline) -> dict[str, str]:
    """The graph after each pass that changes it, all of which run again."""
    texts: dict[str, str] = {}
    graph, log = copy_graph(recorded), PassLog(texts=texts)
    optimize(graph, log)
    legalize(graph, log)
    return texts


def _with_bodies(graph: Graph, nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, and those of bodies that call Python before who runs them."""
    for node in nodes:
        if node.op is not ops.host and node.attributes.get("python"):
            for name in body_names(node):
                yield from _with_bodies(graph, graph.functions[name].nodes)
        if node.op.kind != "region" or node.has_effect:
            yield node


def _text(texts: Callable[[], Mapping[str, str]], name: str) -> str:
    found = texts().get(name)
    if found is None:
        raise LucidError(f"stages: the pass {name} changes nothing when it runs again")
    return found


def as_recorded(graph: Graph) -> Graph:
    """A graph without dead nodes as `dump_ir` shows it, with custom Functions as regions."""
    outline(graph)
    name_values(graph)
    return graph


def _owner(storage: Storage) -> Any:
    assert storage.array is not None
    return owner_of(storage.array)
