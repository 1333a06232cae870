"""Dead code."""

from __future__ import annotations

from lucid.ir.graph import Graph
from lucid.ir.verify import called_functions


def dce(graph: Graph) -> bool:
    """Remove nodes that no result depends on, and functions that nothing calls.

    Ops are pure, random ones included, so nothing else is lost; what has an effect stays: calls of
    Python and checks. (Dead code elimination.)

    Args:
        graph: what is rewritten, in place.

    >>> from lucid.ir import parse
    >>> from lucid.ir.passes.dce import dce
    >>> graph = parse("graph g(%x: f32[3]) { %a = exp %x %y = neg %x return %y }")
    >>> dce(graph)
    True
    >>> print(graph, end="")
    graph g(%x: f32[3]) {
      %y = neg %x : f32[3]
      return %y
    }
    """
    changed = [part.drop_dead_nodes() for part in (graph, *graph.functions.values())]
    return drop_unused_functions(graph) or any(changed)


def drop_unused_functions(graph: Graph) -> bool:
    """Remove functions that nothing calls or runs."""
    called: set[str] = set()
    waiting = called_functions(graph)
    while waiting:
        name = waiting.pop()
        if name not in called:
            called.add(name)
            waiting += called_functions(graph.functions[name])
    uncalled = [name for name in graph.functions if name not in called]
    for name in uncalled:
        del graph.functions[name]
    return bool(uncalled)
