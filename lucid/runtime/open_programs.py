"""Programs whose sizes are open: one plan and one piece of machine code for many sizes.

A graph that comes back with other sizes is planned once more, with these sizes open
(`ir/opening.py`). From then on a graph with the same skeleton needs no pass, no plan and no LLVM:
its numbers are compared with the formulas, the assumptions are looked at, temps are placed, and
words are filled in. A kernel whose code is right for other sizes only is compiled again by itself.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from lucid.codegen import costs
from lucid.codegen.kernels.host import HostKernel
from lucid.codegen.llvm.target import host_target
from lucid.codegen.llvm.values import Module
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.emit import Emitted, emit_program, generator_version, require_rules
from lucid.codegen.program.instance import instance_of
from lucid.codegen.program.memory_plan import place
from lucid.codegen.program.open_kernels import (
    Variant,
    emit_variant,
    open_kernel,
    words_of,
)
from lucid.codegen.program.program import Program, lifetimes
from lucid.codegen.program.verify import verify_program
from lucid.ir import ops
from lucid.ir.environment import VERIFY
from lucid.ir.extents import NotOpenError, replaced
from lucid.ir.graph import Graph, Node
from lucid.ir.opening import (
    Opening,
    Skeleton,
    is_told_later,
    opened,
    opening,
    skeleton_of,
    told_node,
)
from lucid.ir.passes.pipeline import PassLog, Pipeline
from lucid.ir.strides import Strides, contiguous_strides
from lucid.ir.whose_code import is_defect
from lucid.runtime.cache import compiled
from lucid.runtime.executable import Check, Executable, Facts, Instance
from lucid.runtime.kernel_code import kernel_code, open_code
from lucid.runtime.threads import pool

logger = logging.getLogger("lucid")
_MOST_FAMILIES = 64
_MUCH = 1 << 24  # elements of a value
_MOST_KNOWN = 4  # graphs with so much work that are planned for their own sizes
_SAMPLES = 4  # graphs from which formulas are found
_MOST_FAILURES = 2  # of plans with open sizes, before a family has no more of them
_RANGE = 8
"""A plan serves sizes from an eighth of those it was made for up to eight times these: beyond,
other tiles, parts and layouts are better."""


class Family:
    """The programs of graphs with one skeleton.

    Graphs in which other sizes are 0 or 1 have none in common: those of a prompt and of the single
    tokens that follow it, those of a sequence's first element and of what it grows to.

    Args:
        first: the numbers of the first graph, whose program knows its sizes, as does that of the
            first one with other sizes of 0 and 1.
    """

    def __init__(self, first: Skeleton) -> None:
        self._samples = {first.closed: [first]}
        self._programs: list[OpenProgram] = []
        self._failures = 0

    def executable(
        self,
        graph: Graph,
        strides: Sequence[Strides],
        now: Skeleton,
        optimize: Pipeline,
        log: PassLog,
    ) -> tuple[Executable, int] | None:
        """What runs a graph, with the number of stages in the log that come before kernels.

        None where its sizes must be known, as those of the first one.
        """
        begin = time.perf_counter()
        if any(now.numbers == first.numbers for first, *_ in self._samples.values()):
            return None
        for program in self._programs:
            if program.fits(now):
                log.changed[:] = program.changed
                return program.executable(graph, strides, now, begin), program.optimized
        alike = self._samples.get(now.closed) or [*self._samples.values()][-1]
        try:
            found = opening([*alike[-_SAMPLES:], now])
        except NotOpenError:
            self._samples.setdefault(now.closed, [now])
            return None
        planned = self._planned(graph, found, now, optimize, passes := PassLog())
        if planned is None or not planned.fits(now):
            self._failures += 1
            return None
        self._programs.append(planned)
        alike.append(now)
        log.seconds |= passes.seconds
        log.changed += passes.changed
        return planned.executable(graph, strides, now, begin), planned.optimized

    def _planned(
        self, graph: Graph, found: Opening, now: Skeleton, optimize: Pipeline, log: PassLog
    ) -> OpenProgram | None:
        """A program with open sizes; None where that can't be."""
        if self._failures == _MOST_FAILURES:
            return None
        try:
            return OpenProgram(graph, found, now, optimize, log)
        except NotOpenError:
            return None
        except Exception as error:  # of code that takes no extents; the program is right
            if VERIFY.read() or not is_defect(error):
                raise
            logger.exception("%s: sizes can't be open", graph.name)
            return None


class OpenPlan:
    """A plan with open sizes, and its machine code.

    Raises `NotOpenError` where passes or the plan need a size.

    Args:
        symbolic: a graph with open sizes, which passes change; strides: of its inputs.

    Attributes:
        program: the plan.
        changed: the stages of the passes, of which the first `optimized` come before kernels.
    """

    def __init__(
        self, symbolic: Graph, strides: Sequence[Strides], optimize: Pipeline, log: PassLog
    ) -> None:
        self._target = host_target()
        optimize(symbolic, log)
        require_rules(symbolic)
        self.optimized = len(log.changed)
        self.program = program = make_program(symbolic, strides, self._target, True, log)
        self.changed = tuple(log.changed)
        self._arrange()
        self._kernels = {
            number: kernel
            for number, call in enumerate(program.calls)
            if call.kernel.has_function and (kernel := open_kernel(call, self._target)) is not None
        }
        self._emitted = self._emit()
        self._used: set[Variant] = set()  # of which the next sizes may be in need
        self._spans = lifetimes(program.calls)
        self._temps = list(self._spans)
        emitted, links = self._emitted, self._emitted.links
        text = emitted.module.text()
        write = partial(emitted.module.write_parts, costs.PART_CHARACTERS)
        self._library = compiled(write, self._target, links.exports, links.imports, key=text)
        kernel_code.enter(links, self._library)

    def _arrange(self) -> None:
        """Change the order of the calls."""

    def _emit(self) -> Emitted:
        emitted = emit_program(
            self.program, self._target, find=kernel_code.known, opened=self._kernels.keys()
        )
        assert emitted.module.functions  # which numbers the words
        return emitted

    def _checks(self, graph: Graph, at: Callable[[Any], int]) -> list[Check]:
        """The checks of a graph with sizes."""
        found = self.program.checks
        return [Check.of(self._node_of(node, graph), replaced(x, at)) for node, x in found]

    def _node_of(self, node: Node, graph: Graph) -> Node:
        """The node whose message says what is wrong where a check fails."""
        return node

    def _hosts(self, at: Callable[[Any], int]) -> list[HostKernel]:
        """The calls of Python, with sizes."""
        kernels = [x for call in self.program.calls for x in call.kernel.hosts]
        return [replaced(x, at) for x in kernels if isinstance(x, HostKernel)]

    # Code ---------------------------------------------------------------------------------

    def _chosen(self, given: Mapping[int, Sequence[int]]) -> dict[int, Variant]:
        """The code of each open kernel for these sizes; what there isn't is compiled."""
        chosen: dict[int, Variant] = {}
        made: list[tuple[str, Variant]] = []
        module = Module(self._target)
        for number, values in given.items():
            kernel = self._kernels[number]
            found = open_code.find(kernel.key, values)
            for key, variant in () if found else made:
                if key == kernel.key and variant.fits(values):
                    found = variant
            if found is None:
                args = len(self.program.calls[number].args)
                found = emit_variant(module, f"open{len(made)}", kernel, values, args)
                made.append((kernel.key, found))
            chosen[number] = found
        if made:
            exports = [symbol for _, variant in made for symbol in variant.symbols.values()]
            text = f"; {generator_version()}\n{module.text()}"
            write = partial(module.write_parts, costs.PART_CHARACTERS)
            library = compiled(write, self._target, exports, key=text)
            for key, variant in made:
                variant.library = library
                open_code.enter(key, variant)
        self._used.update(chosen.values())
        return chosen


class OpenProgram(OpenPlan):
    """A program whose arguments may have other sizes, and what it takes to run it with given ones.

    Raises `NotOpenError` where passes or the plan need a size.
    """

    def __init__(
        self, graph: Graph, found: Opening, now: Skeleton, optimize: Pipeline, log: PassLog
    ) -> None:
        self._opening = found
        super().__init__(*opened(graph, found.numbers), optimize, log)
        sizes = found.sizes
        formulas = [formula for kernel in self._kernels.values() for formula in kernel.formulas]
        words = [entry[1] for entry in self._emitted.words.entries if entry[0] == "size"]
        self._numbers_at = sizes.evaluator(
            [*found.numbers, *(temp.size for temp in self._temps), *formulas, *words]
        )
        self._holds = sizes.checker()
        self._hints = found.values(now)

    def fits(self, now: Skeleton) -> bool:
        """Whether a graph of the same skeleton is an instance."""
        values = self._opening.values(now)
        for number in self._opening.sizes.counted:
            hint, value = self._hints[number], values[number]
            if hint > _RANGE * value or value > _RANGE * hint:
                return False
        if not self._holds(values):
            return False
        found = self._numbers_at(values)[: len(now.numbers)]
        return tuple(found) == now.numbers

    def executable(
        self, graph: Graph, strides: Sequence[Strides], now: Skeleton, begin: float
    ) -> Executable:
        """What runs an instance."""
        values = self._opening.values(now)
        numbers = list(self._numbers_at(values)[len(now.numbers) :])
        sizes = dict(zip(self._temps, numbers, strict=False))
        offsets, arena_bytes = place(self._spans, sizes)
        del numbers[: len(self._temps)]
        given: dict[int, list[int]] = {}
        for number, kernel in self._kernels.items():
            given[number] = numbers[: len(kernel.formulas)]
            del numbers[: len(kernel.formulas)]
        chosen = self._chosen(given)
        entries = self._emitted.words.entries
        array = _words(entries, numbers, offsets, chosen, given)
        at = self._opening.sizes.at(values)
        if VERIFY.read():
            verify_program(instance_of(self.program, at))

        hosts = graph.hosts

        def lower() -> Program:
            made = instance_of(self.program, at)
            made.graph.hosts = hosts
            return made

        if self._emitted.shared:
            pool.load()
        libraries = {variant.library for variant in chosen.values()}
        seconds = time.perf_counter() - begin
        return Executable(
            graph,
            strides,
            Facts(arena_bytes, self.program.written, self._checks(graph, at)),
            self._hosts(at),
            self._emitted,
            self._library,
            lower,
            self._target,
            seconds,
            instance=Instance(array, [*libraries, self]),
        )

    def _node_of(self, node: Node, graph: Graph) -> Node:
        if node.op is ops.check and is_told_later(node):
            return told_node(node, graph)
        return node


def _words(
    entries: Sequence[tuple[Any, ...]],
    numbers: list[int],
    offsets: dict[Any, int],
    chosen: dict[int, Variant],
    given: dict[int, list[int]],
) -> Any:
    """The words of a step, and behind them those of each of its kernels."""
    order = list(chosen)
    begins: dict[int, int] = {}
    behind: list[int] = []
    placed = words_of([(chosen[number], given[number]) for number in order])
    for number, (at, words) in zip(order, placed, strict=True):
        begins[number] = at
        behind += words
    array = (ctypes.c_int64 * (len(entries) + len(behind) or 1))()
    base = ctypes.addressof(array) + 8 * len(entries)
    rest = iter(numbers)
    for place_, (kind, *of) in enumerate(entries):
        if kind == "size":
            array[place_] = next(rest)
        elif kind == "offset":
            array[place_] = offsets[of[0]]
        elif kind == "words":
            array[place_] = base + 8 * begins[of[0]]
        else:
            array[place_] = chosen[of[0]].address(of[1])
    for place_, word in enumerate(behind, len(entries)):
        array[place_] = ctypes.c_int64(word).value
    return array


class Families:
    """The families of the graphs that a function leaves; the last `_MOST_FAMILIES` of them."""

    def __init__(self) -> None:
        self._families: dict[bytes, Family] = {}
        self._known = 0

    def knows_sizes(self, graph: Graph) -> bool:
        """Whether to plan a graph for its own sizes, not to share code with others.

        That is where it computes much more than it reads and writes, as the distances of all pairs
        do, and few such have come: what is gained there by tiles is worth a compilation.
        """
        values = [*(entry.value for entry in graph.inputs), *graph.outputs]
        data = sum(value.type.size for value in values)
        work = max((value.type.size for value in graph.values()), default=0)
        if work < max(_MUCH, 4 * data) or self._known == _MOST_KNOWN:
            return False
        self._known += 1
        return True

    def of(
        self, graph: Graph, strides: Sequence[Strides | None]
    ) -> tuple[Family | None, Skeleton, list[Strides]]:
        """The family of a flat graph, None where that is new; its skeleton and all strides."""
        full = [
            contiguous_strides(entry.value.shape) if known is None else known
            for entry, known in zip(graph.inputs, strides, strict=True)
        ]
        skeleton = skeleton_of(graph, full)
        family = self._families.pop(skeleton.key, None)
        self._families[skeleton.key] = family or Family(skeleton)
        if len(self._families) > _MOST_FAMILIES:
            del self._families[next(iter(self._families))]
        return family, skeleton, full
