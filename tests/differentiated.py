"""Functions that are built into graphs, and graphs that differentiate them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.passes.differentiate import differentiate
from lucid.ir.types import TensorType, f32

Build = Callable[..., Value]


def f(*shape: int) -> TensorType:
    return TensorType(f32, shape)


def relu(x: Value) -> Value:
    return ops.maximum(x, ops.zero(x))


def halves(build: Build, *types: TensorType) -> tuple[Graph, Graph, dict[Value, Value]]:
    """A function, and a graph that runs it again and differentiates it, by all its floats."""
    forward, backward = Graph("forward"), Graph("backward")
    inputs = [forward.add_input(type, name=f"x{i}") for i, type in enumerate(types)]
    forward.outputs = [build(*inputs)]
    again = [backward.add_input(type, name=f"x{i}") for i, type in enumerate(types)]
    result = build(*again)
    cotangent = backward.add_input(result.type, name="g")
    floats = [x for x in again if x.dtype.is_floating_point]
    found = differentiate(backward, result, floats, cotangent)
    backward.outputs = [gradient for gradient in found if gradient is not None]
    backward.drop_dead_nodes()
    return forward, backward, dict(zip(again, inputs, strict=True))


def random_function(seed: int) -> tuple[Build, Sequence[TensorType]]:
    """Products, maps, reductions and views of three matrices, some used several times."""
    source = np.random.default_rng(seed)

    def build(*inputs: Value) -> Value:
        rng = np.random.default_rng(seed)
        values = list(inputs)
        for _ in range(12):
            x, y = (values[rng.integers(len(values))] for _ in range(2))
            match rng.integers(6):
                case 0:
                    values.append(ops.matmul(x, y))
                case 1:
                    values.append(rng.choice([ops.tanh, ops.sigmoid, relu, ops.sin])(x))  # type: ignore[arg-type]
                case 2:
                    values.append(rng.choice([ops.add, ops.mul, ops.sub])(x, y))  # type: ignore[arg-type]
                case 3:
                    values.append(ops.transpose(x, perm=(1, 0)))
                case 4:
                    total = ops.reshape(ops.sum(x, axes=(1,)), shape=(x.shape[0], 1))
                    values.append(ops.mul(ops.tanh(total), y))
                case _:
                    values.append(ops.where(ops.lt(x, y), x, y))
        return ops.sum(ops.mul(values[-1], values[-2]), axes=(0, 1))

    return build, [f(int(source.integers(4, 5)), 4) for _ in range(3)]
