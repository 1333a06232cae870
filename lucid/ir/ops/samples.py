"""Operands that the generated tests feed, shared by many ops: shapes, and numbers at the edges."""

from __future__ import annotations

import numpy as np

from lucid.ir.op import Sample

_PAIRS = (
    ((4, 7), (4, 7)),
    ((4, 7), (7,)),
    ((5, 1), (1, 3)),
    ((), (3, 2)),
    ((), ()),
    ((0, 3), (1, 3)),
    ((33,), (33,)),
)
_SHAPES = ((), (7,), (3, 5), (0, 4), (33,))

_NAN, _INF = float("nan"), float("inf")
# As integers, NaN is 0 and the infinities are the least and the greatest one.
EDGES = np.array([_NAN, _INF, -_INF, 0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 2.5, 1e30, -1e30, 1e-40])
ZEROS = np.array([0.0, -0.0])


def singles(low: float, high: float) -> tuple[Sample, ...]:
    """One operand with numbers in the interval, then the edges."""
    inside = (Sample((shape,), {}, (low, high)) for shape in _SHAPES)
    return (*inside, Sample((EDGES,)), Sample((ZEROS,)))


def pairs(low: float, high: float, zeros: bool = True) -> tuple[Sample, ...]:
    """Two operands with numbers in the interval, then each edge with each; `zeros`: -0.0 too."""
    inside = (Sample(shapes, {}, (low, high)) for shapes in _PAIRS)
    edges = np.concatenate([EDGES, ZEROS]) if zeros else EDGES
    return (*inside, Sample((edges[:, None], edges)))
