"""A pass from outside: x / sqrt(y) becomes x * rsqrt(y) in what is compiled, gradients included.

lucid doesn't do that by itself, for it rounds otherwise. Run it with LUCID_PRINT_AFTER=use_rsqrt to
see the graph right after the pass.
"""

from __future__ import annotations

import lucid
from lucid.ir import Graph, Node, Value, ops
from lucid.ir.passes import Rules, producer_of, rewrite

RULES = Rules()


@RULES.on(ops.div)
def division_by_a_root(node: Node) -> Value | None:
    """x / sqrt(y) -> x * rsqrt(y)."""
    x, y = node.operands
    root = producer_of(y, ops.sqrt)
    return None if root is None else x * ops.rsqrt(*root.operands)


def use_rsqrt(graph: Graph) -> bool:
    """Apply the rules wherever they fit."""
    return rewrite(graph, RULES)


def rms_norm(x: lucid.Tensor, weight: lucid.Tensor) -> lucid.Tensor:
    """Each row divided by the root of its mean square."""
    return x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def main() -> None:
    """Compile it with the pass, and compare."""
    x, weight = lucid.randn(64, 256), lucid.ones(256)
    compiled = lucid.compile(rms_norm, passes=[use_rsqrt])
    difference = float((compiled(x, weight) - rms_norm(x, weight)).abs().max())
    print(f"largest difference  {difference:.1e}")
    print(f"time of the pass    {compiled.stats.pass_seconds['use_rsqrt'] * 1e3:.2f} ms")
    print(compiled.stages["use_rsqrt"])
    assert difference < 1e-5 and "rsqrt" in compiled.stages["optimize"]


if __name__ == "__main__":
    main()
