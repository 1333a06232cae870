"""A program and the one that computes its gradients, compiled once more as halves of one graph.

The backward of a call that is differentiated outside is traced as a function that runs the step
again. What both programs compute is computed once here: the forward half leaves it as residuals,
and the backward half reads them (`ir/passes/residuals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lucid.compiler.inputs.sources import Source
from lucid.ir.clone import copy_graph
from lucid.ir.graph import Graph, Value
from lucid.ir.passes.pipeline import optimize
from lucid.ir.passes.regions import inline_calls
from lucid.ir.passes.residuals import keep_residuals
from lucid.ir.strides import Strides
from lucid.runtime.executable import Executable, compile_graph
from lucid.runtime.stages import Stages

if TYPE_CHECKING:
    from lucid.compiler.programs.program import Program


class Joint:
    """The two halves.

    Attributes:
        forward: makes the results, and after them the residuals.
        backward: takes what the program that it stands for takes, and after that the residuals.
        program: the one that it stands for.
        count: of residuals.
        stages: text of both halves as graphs, and of what is kept and what is computed again.
    """

    def __init__(
        self,
        program: Program,
        forward: Executable,
        backward: Executable,
        stages: Stages,
        count: int,
    ) -> None:
        self.program = program
        self.forward = forward
        self.backward = backward
        self.stages = stages
        self.count = count

    def residuals_of(self, outputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """What a call of the forward half leaves for the backward one."""
        return outputs[len(outputs) - self.count :]


def joined(forward: Program, backward: Program, given: Mapping[Source, Source]) -> Joint | None:
    """The halves of a program and of its backward; None where they have nothing in common.

    given: what the backward is given as an argument, and the step finds elsewhere.
    """
    if forward.hosts or backward.hosts or not forward.may_leave_residuals:
        return None
    graphs = first, second = _flat(forward), _flat(backward)
    by_source = dict(zip(forward.sources, (entry.value for entry in first.inputs), strict=True))
    common: dict[Value, Value] = {}
    for source, entry in zip(backward.sources, second.inputs, strict=True):
        known = None if source is None else by_source.get(given.get(source, source))
        if known is not None and known.type == entry.value.type:
            common[entry.value] = known
    cut = keep_residuals(first, second, common)
    if not cut.kept:
        return None
    decided = str(cut)
    for graph in graphs:
        optimize(graph)
    strides: list[Strides | None] = [*backward.strides, *[None] * len(cut.kept)]
    halves = {"residuals": lambda: decided}
    halves |= {"forward half": lambda: str(first), "backward half": lambda: str(second)}
    return Joint(
        backward,
        compile_graph(first, strides=forward.strides),
        compile_graph(second, strides=strides),
        Stages(halves),
        len(cut.kept),
    )


def _flat(program: Program) -> Graph:
    graph = copy_graph(program.graphs["trace"])
    inline_calls(graph)
    return graph
