"""Plans on disk: what a graph becomes, so that later processes need no pass and no planning.

An entry's name is a hash of the recorded graph, of the passes that it would go through, of the
sources of passes and codegen, of the table of costs, and of the processor. It holds plain data in
JSON: what an `Executable` asks of its program, and what the code is known by, which is an entry of
its own. Where that isn't there, or an entry doesn't make sense, the graph is compiled as ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from lucid.codegen import costs
from lucid.codegen.llvm.target import Target, host_target
from lucid.codegen.program.emit import Functions, Links, StepCode, generator_version
from lucid.codegen.program.program import Program
from lucid.ir import ops
from lucid.ir.environment import PRINT_AFTER, VERIFY
from lucid.ir.graph import Graph, Node
from lucid.ir.location import location_at
from lucid.ir.op import Trait
from lucid.ir.opening import Skeleton, is_told_later
from lucid.ir.ops.checks import ERRORS
from lucid.ir.passes.pipeline import PassLog, Pipeline, name_of
from lucid.ir.strides import Strides
from lucid.runtime.cache import cache_folder, cached, entry_name, read_entry, write_entry
from lucid.runtime.executable import Check, Executable, Facts
from lucid.runtime.kernel_code import kernel_code
from lucid.runtime.threads import pool

_KEPT = "lucid plan 1"


class Plan(NamedTuple):
    """What a graph becomes.

    Attributes:
        facts, code, functions, calls, seconds, shared: as of `Executable` and `StepCode`.
        begin: how the name of the code begins.
        stages: of the passes; optimized: how many of them come before kernels.
    """

    facts: Facts
    code: str
    functions: Functions
    calls: int
    seconds: float
    shared: int
    begin: str
    stages: Sequence[str]
    optimized: int

    def text(self) -> bytes:
        """As an entry holds it."""
        places = [(x, x.location) for x in self.facts.checks]
        checks = [[*x[:2], None if at is None else [at.file, at.line]] for x, at in places]
        return json.dumps([[*self.facts[:2], checks], *self[1:]]).encode()

    @staticmethod
    def parse(text: bytes) -> Plan:
        """The plan of an entry. Raises `ValueError` where it is none."""
        found = json.loads(text)
        if not _fits(found, _FORM):
            raise ValueError("this is no plan")
        (arena_bytes, written, checks), code, functions, *rest = found
        made = [Check(x, kind, at and location_at(*at)) for x, kind, at in checks]
        facts = Facts(arena_bytes, written, made)
        if not all(x.error in ("", *ERRORS) for x in made):
            raise ValueError("there is no such check")
        names = {name: (key, tuple(regions)) for name, (key, regions) in functions.items()}
        return Plan(facts, code, names, *rest)


# A tuple is a list of such parts, a list one of any length, and a dict has texts for keys.
_FORM: Any = (
    (int, [int], [(str, str, (str, int))]),
    *(str, {str: (str, [str])}, int, float, int, str, [str], int),
)


def _fits(found: Any, form: Any) -> bool:
    """Whether data have a form; a place in a file may be None."""
    if isinstance(form, tuple):
        if found is None:
            return form == (str, int)
        is_list = isinstance(found, list) and len(found) == len(form)
        return is_list and all(map(_fits, found, form))
    if isinstance(form, list):
        return isinstance(found, list) and all(_fits(x, form[0]) for x in found)
    if isinstance(form, dict):
        return isinstance(found, dict) and all(_fits(x, form[str]) for x in found.values())
    return type(found) is form and (form is str or found >= 0)


class KeptPlan:
    """The place on disk of the plan of a graph.

    Args:
        skeleton: of the graph, as it is before the passes.
    """

    def __init__(self, graph: Graph, skeleton: Skeleton, optimize: Pipeline) -> None:
        self._graph, self._target = graph, host_target()
        folder = None if VERIFY.read() or PRINT_AFTER.read() else cache_folder()
        self._path = None
        if folder is not None and not graph.hosts:
            key = "\0".join(_parts(graph, skeleton, optimize, self._target))
            self._path = folder / entry_name(key, self._target, _KEPT)

    def executable(
        self, strides: Sequence[Strides], lower: Callable[[], Program]
    ) -> tuple[Executable, Plan] | None:
        """What runs the graph, if its plan and its code are there."""
        begin = time.perf_counter()
        text = None if self._path is None else read_entry(self._path)
        if text is None:
            return None
        try:
            plan = Plan.parse(text)
        except (ValueError, RecursionError):
            return None
        facts, target = plan.facts, self._target
        if any(number >= len(self._graph.inputs) for number in facts.written):
            return None
        links = Links.of(plan.functions, kernel_code.known)
        code = StepCode(plan.code, plan.functions, links, plan.calls, plan.seconds, plan.shared)
        seconds = {"kernels": time.perf_counter() - begin, "emit": 0.0}
        library = cached(target, links.exports, links.imports, key=code.key, begin=plan.begin)
        if library is None:
            return None
        kernel_code.enter(links, library)
        if plan.shared:
            pool.load()
        total = time.perf_counter() - begin
        seconds["machine code"] = total - seconds["kernels"]
        made = Executable(
            *(self._graph, strides, facts, (), code, library, lower, target, total),
            stage_seconds=seconds,
        )
        return made, plan

    def keep(
        self,
        log: PassLog,
        begun: int,
        optimized: int,
        program: Program,
        code: StepCode,
        begin: str,
    ) -> None:
        """Write the plan of the graph: what passes and planning have made of it.

        log: of the passes, and of `begun` stages before; optimized: how many come before kernels.
        """
        if self._path is not None:
            parts = code.code, code.functions, code.calls, float(code.seconds), code.shared
            plan = Plan(Facts.of(program), *parts, begin, log.changed[begun:], optimized)
            write_entry(self._path, plan.text())


def _parts(graph: Graph, skeleton: Skeleton, optimize: Pipeline, target: Target) -> list[str]:
    """All that the plan of a graph depends on; what checks say, and where, is part of it."""
    nodes = [*graph.nodes, *(node for body in graph.functions.values() for node in body.nodes)]
    said = [node for node in nodes if node.has_effect or Trait.INDEXED in node.op.traits]
    places = [x.location or (None if x.region is None else x.region.location) for x in said]
    table = {name: x for name, x in vars(costs).items() if isinstance(x, (int, float, dict))}
    return [
        *(_KEPT, generator_version(), np.__version__, repr(target), repr(table)),
        *map(name_of, optimize.passes),
        *(skeleton.key.hex(), repr(skeleton.numbers)),
        *(cast(str, node.attributes["message"]) for node in said if is_told_later(node)),
        *map(repr, places),
        *_blocks(nodes),
    ]


def _blocks(nodes: Sequence[Node]) -> list[str]:
    """The checkpointed blocks around each node, where a backward reads what they have saved."""
    if not any(node.op is ops.barrier for node in nodes):
        return []
    numbers: dict[object, int] = {}
    return [
        " ".join(str(numbers.setdefault(x, len(numbers))) for x in node.region.blocks)
        for node in nodes
        if node.region is not None
    ]
