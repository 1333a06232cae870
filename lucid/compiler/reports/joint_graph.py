"""A program and its backward as one graph, to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid.ir.clone import copy_graph, copy_node
from lucid.ir.graph import Graph, Value
from lucid.ir.passes.regions import inline_calls
from lucid.runtime.stages import Stages

if TYPE_CHECKING:
    from lucid.compiler.programs.program import Program
    from lucid.compiler.results.tape import Tape


def with_backward(program: Program) -> Stages:
    """The stages of a program; once its results were differentiated, the joint graph as well."""
    rule = program.differentiable
    backward = None if rule is None else rule.latest()
    if rule is None or backward is None:
        return program.stages
    joint = {"joint": lambda: str(joint_graph(program, backward, rule.tape))}
    return program.stages.then(Stages(joint))


def joint_graph(forward: Program, backward: Program, tape: Tape) -> Graph:
    """The nodes of both, where the second reads what the first has kept.

    It returns the results, and after them the gradients. What the backward repeats of the forward
    is there twice.
    """
    kept = tape.values[: len(tape.sources)]
    joint, mapping = _copied(forward.recorded)
    state = {id(array): i for i, array in enumerate(forward.inputs) if array is not None}
    flat = copy_graph(backward.graphs["trace"])
    inline_calls(flat)
    arguments = [entry.value for entry in flat.inputs if entry.kind == "arg"]
    given = dict(zip(arguments[len(arguments) - len(kept) :], kept, strict=True))
    for entry, array in zip(flat.inputs, backward.inputs, strict=True):
        if entry.value in given:
            mapping[entry.value] = mapping[given[entry.value]]
        elif id(array) in state:
            mapping[entry.value] = joint.inputs[state[id(array)]].value
        else:
            mapping[entry.value] = joint.add_input(
                entry.value.type, entry.kind, entry.value.name, entry.source
            )
    joint.nodes += [copy_node(node, joint, mapping) for node in flat.nodes]
    joint.hosts |= flat.hosts
    results = forward.recorded.outputs[: tape.results]
    joint.outputs = [mapping[x] for x in (*results, *flat.outputs)]
    joint.writes += [(mapping[cell], mapping[new]) for cell, new in flat.writes]
    return joint


def _copied(recorded: Graph) -> tuple[Graph, dict[Value, Value]]:
    graph, mapping = Graph(recorded.name), dict[Value, Value]()
    graph.location, graph.hosts = recorded.location, dict(recorded.hosts)
    for entry in recorded.inputs:
        mapping[entry.value] = graph.add_input(
            entry.value.type, entry.kind, entry.value.name, entry.source
        )
    for node in recorded.nodes:
        copied = copy_node(node, graph, mapping)
        copied.region = None
        graph.nodes.append(copied)
    graph.writes = [(mapping[cell], mapping[new]) for cell, new in recorded.writes]
    return graph, mapping
