"""The passes that make a graph smaller, in their order."""

from __future__ import annotations

from collections.abc import Callable

from lucid.ir.clone import copy_graph
from lucid.ir.environment import VERIFY
from lucid.ir.graph import Graph
from lucid.ir.passes.algebra import simplify_algebra
from lucid.ir.passes.canonicalize import canonicalize
from lucid.ir.passes.checks import drop_satisfied_checks
from lucid.ir.passes.dead import eliminate_dead_nodes
from lucid.ir.passes.fold import fold_constants
from lucid.ir.passes.numbering import eliminate_common_subexpressions
from lucid.ir.passes.regions import inline_calls
from lucid.ir.passes.rematerialize import rematerialize
from lucid.ir.verify import verify

PASSES: tuple[Callable[[Graph], bool], ...] = (
    inline_calls,
    rematerialize,
    canonicalize,
    simplify_algebra,
    fold_constants,
    eliminate_common_subexpressions,
    drop_satisfied_checks,
    eliminate_dead_nodes,
)
_ROUNDS = 8  # each round is linear; what a ninth could still find is left


def optimize(graph: Graph, observe: Callable[[str, Graph], None] | None = None) -> bool:
    """Run `PASSES` until none changes anything; inline, then clean up. Results stay bit for bit.

    Args:
        graph: rewritten in place.
        observe: called with the pass's name and the graph after each pass that changed it.

    With `LUCID_VERIFY=1` in the environment the graph is verified after each pass.
    """
    verifying = VERIFY.read()
    changed = False
    for _ in range(_ROUNDS):
        stable = True
        for run in PASSES:
            if not run(graph):
                continue
            stable, changed = False, True
            if verifying:
                verify(graph)
            if observe is not None:
                observe(run.__name__, graph)
        if stable:
            break
    return changed


def rewritten(graph: Graph, rewrite: Callable[[Graph], object]) -> Graph:
    """Return a copy that one pass has rewritten, or `optimize`."""
    copied = copy_graph(graph)
    rewrite(copied)
    return copied
