"""Passes: each a plain function `Graph -> bool` that says whether it changed anything.

With these, `lucid.ir.Graph`, `lucid.ir.ops` and the rewriter one writes passes of one's own, for
`lucid.compile(function, passes=[...])`.
"""

from lucid.ir.passes.canonicalize import canonicalize
from lucid.ir.passes.checks import check_before_broadcasts, drop_satisfied_checks
from lucid.ir.passes.concat_pads import concat_pads
from lucid.ir.passes.constant_fold import constant_fold
from lucid.ir.passes.cse import cse
from lucid.ir.passes.dce import dce
from lucid.ir.passes.pipeline import Pass, PassLog, Pipeline, optimize, optimizing, simplify
from lucid.ir.passes.regions import inline, outline
from lucid.ir.passes.rematerialize import rematerialize
from lucid.ir.passes.rewrite import (
    Rewriter,
    Rules,
    broadcast_like,
    constant_like,
    producer_of,
    rewrite,
    uniform,
)
from lucid.ir.passes.simplify_algebra import simplify_algebra

__all__ = [
    "Pass", "PassLog", "Pipeline", "Rewriter", "Rules", "broadcast_like", "canonicalize",
    "check_before_broadcasts", "concat_pads", "constant_fold", "constant_like", "cse", "dce",
    "drop_satisfied_checks", "inline", "optimize", "optimizing", "outline", "producer_of",
    "rematerialize", "rewrite", "simplify", "simplify_algebra", "uniform",
]  # fmt: skip
