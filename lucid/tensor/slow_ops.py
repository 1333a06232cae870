"""Ops at which NumPy is slow, in eager mode as native code: random numbers, sorts, gathers, erf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from lucid.autograd.native import Code, NotStraightError
from lucid.ir.environment import NATIVE_FUNCTIONS
from lucid.ir.graph import Graph
from lucid.ir.op import Attributes, Op
from lucid.ir.types import DType, TensorType, type_of_array
from lucid.runtime.open_programs import Families

_MOST_ROUNDED = 1 << 16  # elements; to draw a few more of larger ones takes longer than their code

_families: dict[tuple[Op, DType], Families] = {}


def evaluate(op: Op, *arrays: np.ndarray, **attributes: Any) -> np.ndarray:
    """What an op gives for arrays. Code whose sizes are open serves all shapes.

    A random number takes NumPy some 200 ns, an array for each step of each round. Its bits don't
    depend on who draws it, nor does the order of a sort; an erf may round otherwise.
    """
    types = tuple([type_of_array(array) for array in arrays])
    if op.kind == "random":
        return evaluator(op, types, attributes)(*arrays)
    code = _others(op, types, tuple(attributes.items()))
    if code is None:
        found: np.ndarray = op.evaluate(*arrays, **attributes)
    else:
        (found,) = code.run(list(arrays))
    return found


def evaluator(
    op: Op, types: Sequence[TensorType], attributes: Attributes
) -> Callable[..., np.ndarray]:
    """`evaluate` for arrays of some types with some attributes, which it may be given again."""
    if op.kind != "random":
        return partial(evaluate, op)
    shape = attributes["shape"]  # the draw of an array is that of its elements in a row
    count = prod(shape)  # and begins one of more elements, whose code serves other sizes too
    drawn_count = count if count > _MOST_ROUNDED else _rounded(count)
    code = _draws(op, tuple(types), tuple({**attributes, "shape": (drawn_count,)}.items()))
    if code is None:
        return partial(op.evaluate, **attributes)
    run = code.run

    def drawn(state: np.ndarray, **_: Any) -> np.ndarray:
        return run([state])[0][:count].reshape(shape)

    return drawn


def _rounded(count: int) -> int:
    """The next multiple of a power of two that is at most a sixteenth of the count."""
    step = max(1 << count.bit_length() >> 5, 1)
    return -(-count // step) * step


def _code(op: Op, types: tuple[TensorType, ...], given: tuple[tuple[str, Any], ...]) -> Code | None:
    if not NATIVE_FUNCTIONS.read():
        return None
    graph, attributes = Graph(op.name), dict(given)
    operands = [graph.add_input(type) for type in types]
    graph.outputs = [graph.append(op, operands, attributes).result]
    families = _families.setdefault((op, graph.outputs[0].dtype), Families())
    try:
        return Code(graph, (), families)
    except NotStraightError:
        return None


_draws = lru_cache(256)(_code)
_others = lru_cache(32)(_code)  # which keep the memory that they work in
