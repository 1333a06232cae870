"""Audits: now and then a call is traced again, to see whether anything moved that no guard knows.

Guards compare what a trace was seen to read. What can't be seen, such as a number in C's memory,
would stay what it was at the trace. So one of the first calls, and from then on one in a while, is
traced once more before it runs, with everything put back, and the graph, with its constants, and
the effects are compared with those of the program that is about to serve it. What differs is
reported; the function runs op by op from then on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from types import FunctionType
from typing import TYPE_CHECKING

import numpy as np

from lucid.compiler.inputs.objects import SCALARS
from lucid.compiler.results.output_specs import Constant, OutputSpec
from lucid.ir.classes import isinstance
from lucid.ir.clone import copy_graph
from lucid.ir.graph import Graph
from lucid.ir.opening import reopened
from lucid.ir.text import print_graph
from lucid.ir.whose_code import is_users

if TYPE_CHECKING:
    from lucid.compiler.programs.program import Program
    from lucid.compiler.recording.deferred_calls import DeferredCall
    from lucid.compiler.recording.trace import Trace
    from lucid.compiler.results.replayed_effects import ReplayedEffect

FIRST = 10  # calls before the first audit
SHARE = 0.01  # of the time that passes, which audits may take; the first one is free
LOOK = 0.125  # of the calls so far, as many as are made until somebody looks at the clock again
NEVER = np.iinfo(np.int64).max


class Pace:
    """When a function is audited next.

    Native calls count themselves, and leave a call to Python when its number has come. Most often
    nothing but the clock is looked at then.

    Args:
        counted: the number of native calls, and the number of the next one that Python looks at.
    """

    def __init__(self, counted: np.ndarray, is_on: bool) -> None:
        self._counted = counted
        self._not_before = 0.0
        counted[1] = FIRST if is_on else NEVER

    def is_due(self) -> bool:
        """Whether the next call is to be audited."""
        if self._counted[0] < self._counted[1]:
            return False
        if time.perf_counter() >= self._not_before:
            return True
        self._look_later()
        return False

    def note(self, seconds: float) -> None:
        """Note that an audit was made, or that there was none to be made."""
        self._not_before = time.perf_counter() + seconds / SHARE
        self._look_later()

    def stop(self) -> None:
        """Make no more of them."""
        self._counted[1] = NEVER

    def _look_later(self) -> None:
        calls = int(self._counted[0])
        self._counted[1] = calls + 1 + int(LOOK * calls)


def outline_of(
    leaves: Sequence[OutputSpec],
    effects: Sequence[ReplayedEffect],
    deferred: Sequence[DeferredCall],
) -> list[str]:
    """What a step leaves besides what its graph computes, as far as it's the same for all calls."""
    constants = [
        repr(leaf.value)
        for leaf in leaves
        if isinstance(leaf, Constant) and isinstance(leaf.value, SCALARS)
    ]
    shown = [f"effect {effect.what}" for effect in effects]
    shown += [f"call of {_name_of(call.function)}" for call in deferred]
    return [*constants, *shown, *(type(leaf).__name__ for leaf in leaves)]


def _name_of(function: Callable[..., object]) -> str:
    """What tells functions apart; one of the library's is made by each trace."""
    if isinstance(function, FunctionType) and not is_users(function):
        return function.__qualname__
    return repr(function)


def difference(program: Program, graph: Graph, outline: Sequence[str]) -> str | None:
    """What is another thing in a new trace than in a program, with the user's line; None: nothing.

    A Module may be called from several lines, and its result be named otherwise in each.

    graph, outline: of the new trace.
    """
    recorded, graph = _of_used_numbers(program.recorded), _of_used_numbers(graph)
    text = str(graph)
    computed = _computed(recorded), _computed(graph)
    shown = str(recorded).splitlines(), text.splitlines()
    for one, other, before, now in zip_longest(*computed, *shown, fillvalue="nothing"):
        if one != other:
            return f"  traced: {before.strip()}\n  now:    {now.strip()}{_line_of(now, text)}"
    for before, now in zip_longest(program.outline, outline, fillvalue="nothing"):
        if before != now:
            return f"  traced: {before}\n  now:    {now}"
    return None


def _of_used_numbers(graph: Graph) -> Graph:
    """The same without numbers of which nothing is computed: other programs know that they move."""
    graph = copy_graph(graph)
    used = {*graph.uses(), *graph.outputs, *(value for _, value in graph.writes)}
    graph.inputs = [entry for entry in graph.inputs if entry.kind != "live" or entry.value in used]
    return graph


def _computed(graph: Graph) -> Iterator[str]:
    """The lines of a printed graph without what doesn't say what is computed: names and places."""
    for line in print_graph(graph, numbered=True).splitlines():
        yield "" if line.startswith("loc @") else re.sub(r" @\d+", "", line)


def _line_of(node: str, text: str) -> str:
    """The user's line that a printed node comes from, on a line of its own."""
    number = re.search(r"@(\d+)", node)
    if number is None:
        return ""
    found = re.search(rf'^loc @{number[1]} (\S+) "?(.*?)"?$', text, re.MULTILINE)
    return "" if found is None else f"\n  at {found[1]}   {found[2]}"


def report(name: str, found: str, calls: int) -> str:
    """What to say of a difference.

    calls: how many there have been since the last audit.
    """
    return (
        f"an audit traced {name} again, and it is not what it was, though all that it was seen to "
        f"read is:\n{found}\n"
        f"Up to {calls} calls since the last audit may have gone on with what was there before.\n"
        "hint: pass what has changed as an argument, or keep it in a tensor or a Python object"
    )


def made_again(recorded: Trace, sizes: Sequence[int]) -> tuple[Graph, list[str]]:
    """The graph and the outline of a trace that is not to become a program.

    sizes: those to be shown, where some are open.
    """
    from lucid.compiler.programs.program import as_recorded

    recorded.graph.drop_dead_nodes()
    graph = as_recorded(recorded.graph)
    if recorded.sizes is not None:
        graph = reopened(graph, recorded.sizes.at(sizes))
    epilogue = recorded.epilogue
    return graph, outline_of(epilogue.leaves, recorded.effects.effects, epilogue.deferred)
