"""Passes: each a plain function `Graph -> bool` that says whether it changed anything."""

from lucid.ir.passes.algebra import simplify_algebra
from lucid.ir.passes.canonicalize import canonicalize
from lucid.ir.passes.checks import drop_satisfied_checks
from lucid.ir.passes.dead import eliminate_dead_nodes
from lucid.ir.passes.differentiate import differentiate
from lucid.ir.passes.fold import fold_constants
from lucid.ir.passes.numbering import eliminate_common_subexpressions
from lucid.ir.passes.pipeline import PASSES, optimize
from lucid.ir.passes.regions import inline_calls, outline_regions
from lucid.ir.passes.rematerialize import rematerialize

__all__ = [
    "PASSES",
    "canonicalize",
    "differentiate",
    "drop_satisfied_checks",
    "eliminate_common_subexpressions",
    "eliminate_dead_nodes",
    "fold_constants",
    "inline_calls",
    "optimize",
    "outline_regions",
    "rematerialize",
    "simplify_algebra",
]
