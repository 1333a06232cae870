"""Random numbers: pure functions of a state `i64[2]`, (seed, offset).

Element i of the result, in row-major order, is drawn from counter `offset + i`: equal states give
equal numbers, in every shape, eager and compiled.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lucid.ir import philox
from lucid.ir.errors import DTypeError, ShapeError
from lucid.ir.op import Op, Sample, declare
from lucid.ir.ops.rules import FLOATS, failure
from lucid.ir.types import DType, Shape, TensorType, f32, f64, i64

__all__ = ["random_normal", "random_uniform"]


def _random(name: str, draw: Callable[..., np.ndarray]) -> Op:
    def infer(state: TensorType, shape: Shape, dtype: DType) -> TensorType:
        if dtype not in FLOATS:
            problem = f"draws f32 and f64, not {dtype.name}"
            raise failure(DTypeError, name, problem, ("state",), (state,))
        if state.dtype is not i64:
            raise failure(DTypeError, name, "the state is i64[2]", ("state",), (state,))
        if state.shape != (2,):
            raise failure(ShapeError, name, "the state is i64[2]", ("state",), (state,))
        return TensorType(dtype, shape)

    def evaluate(state: np.ndarray, shape: Shape, dtype: DType) -> np.ndarray:
        return draw(int(state[0]), int(state[1]), shape, dtype.numpy)

    def no_gradient(*operands: object, **attributes: object) -> tuple[None]:
        return (None,)

    samples = tuple(
        Sample((np.array([seed, offset]),), {"shape": shape, "dtype": dtype})
        for seed, offset in ((0, 0), (1234, 17), (-3, 2**33 + 1))
        for shape in ((), (5,), (3, 7), (0, 2))
        for dtype in (f32, f64)
    )
    return declare(Op(name, infer, evaluate, no_gradient, kind="random", samples=samples))


random_uniform = _random("random_uniform", philox.uniform)
random_normal = _random("random_normal", philox.normal)
