"""Minimum cuts, against those of networkx."""

from __future__ import annotations

from math import inf

import networkx
import numpy as np
import pytest

from lucid.ir.passes.flow import sink_side


@pytest.mark.parametrize("seed", range(100))
def test_the_sinks_side_is_that_of_the_minimum_cut_nearest_to_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 12))
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(count))
    for _ in range(int(rng.integers(40))):
        tail, head = map(int, rng.choice(count, 2, replace=False))
        graph.add_edge(tail, head, capacity=float(rng.choice([0.0, 0.25, 1.0, 2.0, 4.0, inf])))
    endless = networkx.subgraph_view(graph, filter_edge=lambda a, b: graph[a][b]["capacity"] == inf)
    if networkx.has_path(endless, 0, 1):
        return
    edges = [(tail, head, capacity) for tail, head, capacity in graph.edges.data("capacity")]
    _, (_, wanted) = networkx.minimum_cut(graph, 0, 1)
    assert sink_side(edges, 0, 1) == wanted
