"""Random numbers of eager mode by native code: the bits of `lucid.ir.philox`."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from lucid.autograd.native import Code, NotStraightError
from lucid.ir.environment import NATIVE_FUNCTIONS
from lucid.ir.graph import Graph
from lucid.ir.op import Op
from lucid.ir.types import DType, Shape, TensorType, i64
from lucid.runtime.open_programs import Families

_families: dict[tuple[Op, DType], Families] = {}


def draw(op: Op, state: np.ndarray, shape: Shape, dtype: DType) -> np.ndarray:
    """What a random op gives for a generator's state.

    NumPy takes an array for each step of each round, so that a number costs some 200 ns. Code whose
    sizes are open serves all shapes.
    """
    code = _code(op, prod(shape), dtype) if NATIVE_FUNCTIONS.read() else None
    if code is None:
        found: np.ndarray = op.evaluate(state, shape=shape, dtype=dtype)
        return found
    return code.run([state])[0].reshape(shape)


@lru_cache(256)
def _code(op: Op, count: int, dtype: DType) -> Code | None:
    graph = Graph(op.name)
    state = graph.add_input(TensorType(i64, (2,)))
    attributes: dict[str, Any] = {"shape": (count,), "dtype": dtype}
    graph.outputs = [graph.append(op, [state], attributes).result]
    try:
        return Code(graph, (), _families.setdefault((op, dtype), Families()))
    except NotStraightError:
        return None
