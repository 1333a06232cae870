"""Minimum cuts of networks: what has to be taken away so that nothing flows any more."""

from __future__ import annotations

from math import inf


class FlowNetwork:
    """Nodes, and edges through which so much may flow from one node to another.

    networkx has this as well, but to import it takes as long as a tenth of a first call.
    """

    def __init__(self) -> None:
        # Edge 2n goes somewhere, edge 2n + 1 back; what flows through the one may be taken back
        # through the other.
        self._heads: list[int] = []
        self._left: list[float] = []  # what may still flow through an edge
        self._edges: list[list[int]] = []  # that leave a node

    def node(self) -> int:
        """Add a node; gives its number."""
        self._edges.append([])
        return len(self._edges) - 1

    def connect(self, tail: int, head: int, capacity: float = inf) -> None:
        """Add an edge."""
        self._edges[tail].append(len(self._heads))
        self._edges[head].append(len(self._heads) + 1)
        self._heads += (head, tail)
        self._left += (capacity, 0.0)

    def sink_side(self, source: int, sink: int) -> set[int]:
        """The nodes behind the minimum cut that lies nearest to the sink, which is unique.

        Reference: Dinitz, "Algorithm for solution of a problem of maximum flow in networks with
        power estimation", 1970.
        """
        while source in (distance := self._distances(sink)):
            self._block(source, sink, distance)
        return {*distance}

    def _distances(self, sink: int) -> dict[int, int]:
        """How many edges lie between a node and the sink, for those that flow may leave there."""
        found, queue = {sink: 0}, [sink]
        for node in queue:  # which grows meanwhile
            for edge in self._edges[node]:
                tail = self._heads[edge]
                if tail not in found and self._left[edge ^ 1] > 0.0:
                    found[tail] = found[node] + 1
                    queue.append(tail)
        return found

    def _block(self, source: int, sink: int, distance: dict[int, int]) -> None:
        """Let flow through until none of the shortest ways lets anything through."""
        heads, left, edges = self._heads, self._left, self._edges
        tried = [0] * len(edges)  # of a node's edges, those that lead nowhere any more
        way: list[int] = []
        node = source
        while node != source or tried[node] < len(edges[node]):
            if tried[node] == len(edges[node]):
                node = heads[way.pop() ^ 1]
                tried[node] += 1
                continue
            edge = edges[node][tried[node]]
            if left[edge] == 0.0 or distance.get(heads[edge]) != distance[node] - 1:
                tried[node] += 1
                continue
            way.append(edge)
            node = heads[edge]
            if node == sink:
                flow = min([left[edge] for edge in way])
                for edge in way:
                    left[edge] -= flow
                    left[edge ^ 1] += flow
                way, node = [], source
