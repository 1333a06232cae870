"""Which groups wait for which, against paths in a graph of networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from lucid.codegen.lower.precedence import Precedence


@pytest.mark.parametrize("seed", range(20))
def test_groups_that_join_and_merge_wait_for_what_paths_lead_to(seed: int) -> None:
    rng = np.random.default_rng(seed)
    precedence, graph = Precedence(), nx.DiGraph()

    def same_paths() -> bool:
        return all(
            precedence.waits(a, b) == (a != b and nx.has_path(graph, b, a))
            for a in graph
            for b in graph
        )

    for _ in range(60):
        nodes = list(graph)
        a, b = (int(rng.choice(nodes)) for _ in range(2)) if nodes else (0, 0)
        what = rng.choice(["add", "wait", "merge"])
        if what == "add" or len(nodes) < 2:
            graph.add_node(precedence.add())
        elif what == "wait" and a != b and not nx.has_path(graph, a, b):
            precedence.wait(a, 1 << b)
            graph.add_edge(b, a)
        elif what == "merge" and a != b:
            paths = [*nx.all_simple_paths(graph, a, b), *nx.all_simple_paths(graph, b, a)]
            is_between = any(len(path) > 2 for path in paths)
            assert precedence.has_path_between(a, b) == is_between
            if not is_between:
                precedence.merge(a, b)
                graph = nx.contracted_nodes(graph, a, b, self_loops=False)
        assert same_paths()
    for number in graph:
        assert precedence.direct(number) <= set(graph.predecessors(number))
        assert precedence.current(number) == number


def test_one_of_several_waits() -> None:
    precedence = Precedence()
    first, second, third, fourth = (precedence.add() for _ in range(4))
    precedence.wait(second, 1 << first)
    precedence.wait(third, 1 << second)
    assert precedence.waits_any(1 << fourth | 1 << third, first)
    assert not precedence.waits_any(1 << fourth | 1 << first, second)


def test_who_waits_learns_what_joins_later() -> None:
    precedence = Precedence()
    first, second, third = (precedence.add() for _ in range(3))
    precedence.wait(second, 1 << first)
    precedence.wait(first, 1 << third)
    assert precedence.waits(second, third)
