"""Pipelines of passes: their order, what is checked between them, and what is noted of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

from lucid.ir import ops
from lucid.ir.environment import PRINT_AFTER, VERIFY
from lucid.ir.errors import OptionError, PassError, VerifyError
from lucid.ir.graph import Graph, Value
from lucid.ir.logs import to_stderr
from lucid.ir.passes.canonicalize import canonicalize
from lucid.ir.passes.checks import check_before_broadcasts, drop_satisfied_checks
from lucid.ir.passes.concat_pads import concat_pads
from lucid.ir.passes.constant_fold import constant_fold
from lucid.ir.passes.cse import cse
from lucid.ir.passes.dce import dce
from lucid.ir.passes.loops import hoist_from_loops, sink_from_loops, trim_loops
from lucid.ir.passes.recompute import recompute
from lucid.ir.passes.regions import inline
from lucid.ir.passes.rematerialize import rematerialize
from lucid.ir.passes.roll_up import roll_up_rounds
from lucid.ir.passes.simplify_algebra import simplify_algebra
from lucid.ir.types import TensorType
from lucid.ir.verify import verify

Pass = Callable[[Graph], bool]
"""Rewrites a graph in place, and says whether it changed anything. Its name is its `name`, if
it has that attribute, or its `__name__`: it stands in stages, times and `LUCID_PRINT_AFTER`."""

_known: set[str] = set()  # the names of all passes so far
_WHOLE: frozenset[Pass] = frozenset((
    inline, rematerialize, recompute, roll_up_rounds, dce, trim_loops, hoist_from_loops,
    sink_from_loops,
))  # fmt: skip
"""Passes that go into the functions of a graph themselves; all others are run on each of these."""


@dataclass(slots=True)
class PassLog:
    """What passes did to one graph: a pipeline that is given one writes it down.

    Attributes:
        seconds: by name; a pipeline's are those of its passes and of what is between them.
        changed: the stages: each pass that changed something, in order, with a number from its
            second time on; each pipeline at its end.
        texts: the graph at each stage, where they are kept; else `LUCID_PRINT_AFTER` prints them.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import PassLog, simplify
    >>> log = PassLog()
    >>> graph = parse("graph g(%x: f32[2]) { %y = neg %x %z = neg %y return %z }")
    >>> simplify(graph, log)
    True
    >>> log.changed
    ['simplify_algebra', 'simplify']
    """

    seconds: dict[str, float] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    texts: dict[str, str] | None = None

    def add(self, name: str, graph: Graph, seconds: float, is_stage: bool) -> None:
        """Note that a pass has run."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        if not is_stage:
            return
        times = 1 + sum(stage.partition(" ")[0] == name for stage in self.changed)
        stage = name if times == 1 else f"{name} {times}"
        self.changed.append(stage)
        if self.texts is not None:
            self.texts[stage] = str(graph)
        elif not {"all", name}.isdisjoint(PRINT_AFTER.read()):
            to_stderr(f"# {graph.name} after {stage}\n{graph}\n")


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Passes that run in their order. It is a pass itself, so pipelines nest.

    Called with a graph, and perhaps a `PassLog`, it returns whether anything has changed. With
    `LUCID_VERIFY=1` the graph is verified after each pass that changed it.

    Attributes:
        name: what logs and `LUCID_PRINT_AFTER` call it.
        passes: functions `Graph -> bool`, or pipelines.
        rounds: how often they run at most; they stop when none of them changes anything any more.
            Default: 1.
        in_bodies: whether they run on the bodies of region ops as well. Default: True.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes import Pipeline, cse, dce
    >>> graph = parse("graph g(%x: f32[2]) { %y = neg %x %z = exp %x return %y }")
    >>> Pipeline("tidy", (cse, dce), rounds=2)(graph)
    True
    >>> len(graph.nodes)
    1
    """

    name: str
    passes: Sequence[Pass]
    rounds: int = 1
    in_bodies: bool = True

    def __post_init__(self) -> None:
        _known.update((self.name, *map(name_of, self.passes)))

    def __call__(self, graph: Graph, log: PassLog | None = None) -> bool:
        """Run the passes; with `LUCID_VERIFY=1` verify the graph after each that changed it."""
        begin, changed = time.perf_counter(), False
        unchanged = 0  # passes that would find nothing now; cse finds no more by itself
        for run in chain.from_iterable(repeat(self.passes, self.rounds)):
            if unchanged == len(self.passes):
                break
            found = self._run(run, graph, log)
            changed, unchanged = changed or found, int(run is cse) if found else unchanged + 1
        if log is not None:
            log.add(self.name, graph, time.perf_counter() - begin, is_stage=True)
        return changed

    def begin(self, graph: Graph, last: Pass, log: PassLog) -> Pipeline:
        """Run the passes up to one of them; what is left of the pipeline."""
        start, count = time.perf_counter(), self.passes.index(last) + 1
        for run in self.passes[:count]:
            self._run(run, graph, log)
        log.seconds[self.name] = time.perf_counter() - start
        return Pipeline(self.name, self.passes[count:])

    def _run(self, run: Pass, graph: Graph, log: PassLog | None) -> bool:
        if isinstance(run, Pipeline):
            return run(graph, log)
        start, border = time.perf_counter(), Border.of(graph) if VERIFY.read() else None
        changed = run(graph)
        if self.in_bodies and run not in _WHOLE and not isinstance(run, UsersPass):
            for body in graph.functions.values():
                changed = run(body) or changed
        seconds = time.perf_counter() - start
        if changed and border is not None:
            border.require(graph, name_of(run))
        if log is not None:
            log.add(name_of(run), graph, seconds, changed)
        return changed


@dataclass(frozen=True, slots=True, eq=False)
class UsersPass:
    """A pass of the user's: always verified, and its faults are errors that name it."""

    run: Pass

    @property
    def name(self) -> str:
        return name_of(self.run)

    def __call__(self, graph: Graph) -> bool:
        border, exits = Border.of(graph), _exits(graph)
        for part in (graph, *graph.functions.values()):
            for node in part.nodes:
                node.attributes = dict(node.attributes)  # which the pass may change
        try:
            found = [self.run(part) for part in (graph, *graph.functions.values())]
        except Exception as error:
            kind = type(error).__name__
            raise PassError(f"the pass {self.name} has raised {kind}: {error}") from error
        for changed in found:
            if not isinstance(changed, bool):
                raise PassError(
                    f"the pass {self.name} returned {changed!r:.60}\n"
                    "hint: a pass returns whether it has changed the graph, True or False"
                )
        try:
            border.require(graph, self.name)
            has_exits = _exits(graph) == exits
        except (AttributeError, TypeError, LookupError, ValueError) as error:
            if isinstance(error, VerifyError):
                raise
            # A field holds what the verifier knows nothing of.
            text = f"the pass {self.name} has broken the graph: {type(error).__name__}: {error}"
            raise VerifyError(text) from error
        if not has_exits:
            raise VerifyError(f"the pass {self.name} has moved or removed an exit of {graph.name}")
        return any(found)


def name_of(run: Pass) -> str:
    """What a pass is called."""
    plain = getattr(run, "__name__", type(run).__name__)
    return str(getattr(run, "name", plain))


def require_known_names() -> None:
    """Raise `OptionError` where `LUCID_PRINT_AFTER` names a pass that there isn't."""
    unknown = sorted({*PRINT_AFTER.read()} - _known - {"all"})
    if unknown:
        raise OptionError(
            f"{PRINT_AFTER.name}: there is no pass {', '.join(unknown)}; "
            f"there are {', '.join(sorted(_known))}, and all"
        )


@dataclass(frozen=True, slots=True)
class Border:
    """What a graph is to those who call it, which no pass changes."""

    inputs: list[Value]
    outputs: list[TensorType]
    writes: list[Value]
    hosts: list[str] | None

    @staticmethod
    def of(graph: Graph) -> Border:
        """The border of a graph. Calls of Python are listed where no function is called."""
        inputs = [entry.value for entry in graph.inputs]
        outputs = [value.type for value in graph.outputs]
        hosts = [node.attributes["function"] for node in graph.nodes if node.op is ops.host]
        cells = [cell for cell, _ in graph.writes]
        is_flat = not any(node.op is ops.call for node in graph.nodes)
        return Border(inputs, outputs, cells, hosts if is_flat else None)

    def require(self, graph: Graph, name: str) -> None:
        """Raise `VerifyError` unless the pass of a name has left a graph with this border."""
        try:
            verify(graph)
        except VerifyError as error:
            raise VerifyError(f"the pass {name} has broken the graph: {error}") from None
        now = Border.of(graph)
        for what, before, after in (
            ("inputs", self.inputs, now.inputs),
            ("types of outputs", self.outputs, now.outputs),
            ("written inputs", self.writes, now.writes),
            ("calls of Python", self.hosts, now.hosts),
        ):
            if before is not None and before != after:
                was, found = (", ".join(map(str, x or ())) or "none" for x in (before, after))
                raise VerifyError(
                    f"the pass {name} has broken the graph: graph {graph.name}: "
                    f"the {what} were {was}; now they are {found}"
                )


def _exits(graph: Graph) -> list[str]:
    """The branches of Python's that a flat graph depends on, in their order."""
    nodes = (node for node in graph.nodes if node.op is ops.check)
    return [x.attributes["message"] for x in nodes if x.attributes["error"] == "exit"]


# What a step goes through ---------------------------------------------------------------------

simplify = Pipeline(
    "simplify",
    (
        canonicalize,
        simplify_algebra,
        constant_fold,
        cse,
        check_before_broadcasts,
        drop_satisfied_checks,
        dce,
    ),
    rounds=8,  # each is linear; what a ninth could still find is left
)
"""What makes a graph smaller. Results stay bit for bit."""


_LOOPS: tuple[Pass, ...] = (
    concat_pads,
    drop_satisfied_checks,
    roll_up_rounds,
    trim_loops,
    hoist_from_loops,
    sink_from_loops,
    trim_loops,
)
"""What makes loops smaller; sums of products over rounds may round otherwise."""

optimize = Pipeline("optimize", (inline, rematerialize, *_LOOPS, simplify, recompute))
"""What each step goes through: functions are inlined, checkpointed blocks repeated; last, what is
cheap is computed again rather than kept."""


def optimizing(passes: Sequence[Pass], *, last: Pass | None = None) -> Pipeline:
    """Return `optimize` with passes of the user's before what simplifies.

    Args:
        passes: functions `Graph -> bool`, or pipelines; none of them: `optimize` itself. Each is
            verified, and what it does wrong is a `PassError` or `VerifyError` that names it.
        last: a pass that comes behind them all, such as `check_finite`.

    >>> from lucid.ir import Graph, parse
    >>> from lucid.ir.passes import optimizing
    >>> def count(graph: Graph) -> bool:
    ...     print(len(graph.nodes), "nodes")
    ...     return False
    >>> graph = parse("graph g(%x: f32[2]) { %y = neg %x %z = neg %y return %z }")
    >>> optimizing([count])(graph)
    2 nodes
    True
    """
    if not passes and last is None:
        return optimize
    users, end = map(_users, passes), () if last is None else (last,)
    return Pipeline("optimize", (inline, rematerialize, *users, *_LOOPS, simplify, recompute, *end))


def _users(run: Pass) -> Pass:
    """A pass of the user's, or each in a pipeline of theirs, as one that is verified."""
    if isinstance(run, Pipeline):
        return Pipeline(run.name, [*map(_users, run.passes)], run.rounds)
    return UsersPass(run)
