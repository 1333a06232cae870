"""Ops at which NumPy is slow, in eager mode as native code: random numbers, sorts, gathers, erf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from lucid.autograd.native import Code, Codes, NotStraightError
from lucid.ir.environment import NATIVE_FUNCTIONS
from lucid.ir.graph import Graph
from lucid.ir.op import Attributes, Op, Trait
from lucid.ir.types import TensorType, type_of_array
from lucid.runtime.open_programs import Families

_MOST_ROUNDED = 1 << 16  # elements; to draw a few more of larger ones takes longer than their code


def evaluate(op: Op, *arrays: np.ndarray, **attributes: Any) -> np.ndarray:
    """What an op gives for arrays. Code whose sizes are open serves all shapes.

    A random number takes NumPy some 200 ns, an array for each step of each round. Its bits don't
    depend on who draws it, nor does the order of a sort; an erf may round otherwise.
    """
    if op.kind == "random":
        types = [type_of_array(array) for array in arrays]
        return evaluator(op, types, attributes)(*arrays)
    if NATIVE_FUNCTIONS.read():
        try:
            (found,) = _codes(op, tuple(attributes.items())).run(arrays)
            return found
        except NotStraightError:
            pass
    evaluated: np.ndarray = op.evaluate(*arrays, **attributes)
    return evaluated


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


def exact_code(
    op: Op, types: Sequence[TensorType], attributes: Attributes
) -> Callable[..., Any] | None:
    """What draws, sorts, gathers or scatters few elements, too, as a `function_of_arrays`.

    It pays for what comes again. None: there is none, or others may round otherwise than NumPy.
    """
    is_exact = op.kind in ("random", "sort") or Trait.INDEXED in op.traits
    if Trait.SLOW not in op.traits or not is_exact or not NATIVE_FUNCTIONS.read():
        return None
    try:
        return Code(_graph(op, attributes, types), (), _families.setdefault(op, Families())).call
    except NotStraightError:
        return None


def _rounded(count: int) -> int:
    """The next multiple of a power of two that is at most a sixteenth of the count."""
    step = max(1 << count.bit_length() >> 5, 1)
    return -(-count // step) * step


@lru_cache(256)
def _draws(
    op: Op, types: tuple[TensorType, ...], given: tuple[tuple[str, Any], ...]
) -> Code | None:
    if not NATIVE_FUNCTIONS.read():
        return None
    try:
        return Code(_graph(op, dict(given), types), (), _families.setdefault(op, Families()))
    except NotStraightError:
        return None


@lru_cache(256)
def _codes(op: Op, given: tuple[tuple[str, Any], ...]) -> Codes:
    return Codes(partial(_graph, op, dict(given)))


def _graph(op: Op, attributes: Attributes, types: Sequence[TensorType]) -> Graph:
    graph = Graph(op.name)
    operands = [graph.add_input(type) for type in types]
    graph.outputs = [graph.append(op, operands, attributes).result]
    return graph


_families: dict[Op, Families] = {}
