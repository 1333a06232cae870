"""Maximum flows, and the minimum cuts that they show."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def sink_side(edges: Iterable[tuple[N, N, float]], source: N, sink: N) -> set[N]:
    """The nodes on the sink's side of a minimum cut; of several cuts that nearest to the sink.

    Args:
        edges: tail, head and capacity, which may be infinite; no path has infinite ones alone.

    Reference: Dinitz, "Algorithm for solution of a problem of maximum flow in networks with power
    estimation", 1970.

    >>> from lucid.ir.passes.flow import sink_side
    >>> sorted(sink_side([("s", "a", 2.0), ("a", "b", 1.0), ("b", "t", 1.0)], "s", "t"))
    ['t']
    """
    heads: list[N] = []
    rest: list[float] = []  # of the capacity; an edge and the one back are neighbours
    out: dict[N, list[int]] = {source: [], sink: []}
    for tail, head, capacity in edges:
        for start, stop, room in ((tail, head, capacity), (head, tail, 0.0)):
            out.setdefault(start, []).append(len(heads))
            heads.append(stop)
            rest.append(room)
    while source in (distance := _distances(out, heads, rest, sink)):
        _block(out, heads, rest, distance, source, sink)
    return {*distance}


def _distances(out: dict[N, list[int]], heads: list[N], rest: list[float], sink: N) -> dict[N, int]:
    """How many edges with room the nodes are from the sink; those that reach it."""
    distance, queue = {sink: 0}, [sink]
    for node in queue:  # which grows meanwhile
        for edge in out[node]:
            if rest[edge ^ 1] > 0 and heads[edge] not in distance:
                distance[heads[edge]] = distance[node] + 1
                queue.append(heads[edge])
    return distance


def _block(
    out: dict[N, list[int]],
    heads: list[N],
    rest: list[float],
    distance: dict[N, int],
    source: N,
    sink: N,
) -> None:
    """Let flow along shortest paths until each has an edge without room."""
    tried = dict.fromkeys(distance, 0)  # of the edges of a node, how many lead no further
    path: list[int] = []
    node = source
    while True:
        if node == sink:
            flow = min(rest[edge] for edge in path)
            for edge in path:
                rest[edge] -= flow
                rest[edge ^ 1] += flow
            del path[next(n for n, edge in enumerate(path) if not rest[edge]) :]
            node = heads[path[-1]] if path else source
        elif tried[node] < len(out[node]):
            edge = out[node][tried[node]]
            if rest[edge] > 0 and distance.get(heads[edge]) == distance[node] - 1:
                path.append(edge)
                node = heads[edge]
            else:
                tried[node] += 1
        elif path:
            node = heads[path.pop() ^ 1]
            tried[node] += 1
        else:
            return
