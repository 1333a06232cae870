"""Let histories end at results: what was recorded again goes on where the call's own goes on.

A backward that runs its function again finds results that others were computed from, and leaves
that the function makes, once more. Outside it is those of the call that gradients of gradients are
asked for, so a gradient with a graph has to depend on them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence

from lucid.autograd.node import AccumulateGrad, Edge, GradientEdge, Node, edge_of
from lucid.compiler.results.histories import HistoryOutside
from lucid.compiler.results.recorded import saved_by
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import VersionCounter

Counters = dict[VersionCounter, VersionCounter]


def lead_to(
    stand_ins: Mapping[int, TensorCore],
    results: Sequence[TensorCore],
    roots: Sequence[GradientEdge],
) -> None:
    """Let what leads to a result behind `roots` lead to what stands for it, by its position."""
    ends: dict[Edge, Edge] = {}
    for position, stand_in in stand_ins.items():
        inner, outer = edge_of(results[position]), edge_of(stand_in)
        if inner is not None and outer is not None:
            ends[inner] = outer
    counters = _counters(stand_ins, results)
    tensors = [results[position] for position in stand_ins]
    if context.recorder is not None:  # also what hooks and backwards hold
        made = [reference() for reference in context.recorder.made]
        tensors += [tensor for tensor in made if tensor is not None]
    held = [tensor._grad_fn for tensor in tensors]
    nodes = [*(node for node, _ in roots), *(node for node in held if node is not None)]
    saved = _lead_nodes(dict.fromkeys(nodes), ends, counters)
    for tensor in (*tensors, *saved):
        _lead_tensor(tensor, ends)
        tensor._counter = counters.get(tensor._counter, tensor._counter)


def _counters(stand_ins: Mapping[int, TensorCore], results: Sequence[TensorCore]) -> Counters:
    """Those that count outside what is written to a result, by those of a trace."""
    made = [(results[position], stand_in) for position, stand_in in stand_ins.items()]
    return {x._counter: stand_in._counter for x, stand_in in made if x._array is None}


def _lead_nodes(
    roots: Iterable[Node], ends: Mapping[Edge, Edge], counters: Counters
) -> list[TensorCore]:
    """Change the edges of nodes, and the histories and versions of what they saved.

    Returns the tensors that they saved, which are as they were.
    """
    tensors: list[TensorCore] = []
    stack = list(roots)
    seen = set(stack)
    while stack:
        node = stack.pop()
        found = [edge for edge in node._edges if edge is not None]
        if not ends.keys().isdisjoint(found):
            node._edges = tuple(None if e is None else ends.get(e, e) for e in node._edges)
        for saved in saved_by(node):
            own = (node, saved.output_nr)
            if own in ends:
                saved.edge, saved.output_nr = ends[own], -1
            if saved.edge is not None:
                saved.edge = ends.get(saved.edge, saved.edge)
            if saved.private_edge is not None:
                found.append(saved.private_edge)
                saved.private_edge = ends.get(saved.private_edge, saved.private_edge)
            if saved.tensor is not None:
                tensors.append(saved.tensor)
                outside = counters.get(saved.tensor._counter)
                if outside is not None and saved.version == saved.tensor._counter.value:
                    saved.version = outside.value  # writes outside are to be found
        for edge in found:
            if edge not in ends and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return tensors


def _lead_tensor(tensor: TensorCore, ends: Mapping[Edge, Edge]) -> None:
    """Give a tensor the history of what stands for it, if it has that of a result."""
    node: Node | None = tensor._grad_fn
    if node is None and tensor._accumulator is not None:
        node = tensor._accumulator()
    outer = None if node is None else ends.get((node, tensor._output_nr))
    if outer is None:
        return
    node, tensor._output_nr = outer
    if isinstance(node, AccumulateGrad) and not isinstance(node, HistoryOutside):
        tensor._grad_fn, tensor._accumulator = None, weakref.ref(node)
        tensor.__dict__["_kept_accumulator"] = node
    else:
        tensor._grad_fn = node
