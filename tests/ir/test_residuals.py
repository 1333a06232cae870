"""The cut between a forward graph and its backward: what is kept, what is computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lucid.ir import ops
from lucid.ir.clone import copy_graph
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.passes.differentiate import differentiate
from lucid.ir.passes.residuals import Cut, common_values, keep_residuals
from lucid.ir.types import TensorType, f32, i64
from lucid.ir.verify import verify

Build = Callable[..., Value]


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


def cut(build: Build, *types: TensorType) -> Cut:
    forward, backward, inputs = halves(build, *types)
    return keep_residuals(forward, backward, inputs)


def kept(build: Build, *types: TensorType) -> list[str]:
    return [x.producer.op.name for x in cut(build, *types).kept if x.producer is not None]


def repeated(build: Build, *types: TensorType) -> list[str]:
    return [x.producer.op.name for x in cut(build, *types).repeated if x.producer is not None]


def f(*shape: int) -> TensorType:
    return TensorType(f32, shape)


def relu(x: Value) -> Value:
    return ops.maximum(x, ops.zero(x))


def chain(x: Value) -> Value:
    return ops.tanh(ops.exp(ops.mul(x, x)))


def diamond(x: Value, w: Value) -> Value:
    h = ops.matmul(x, w)
    return ops.add(ops.sigmoid(h), ops.mul(h, relu(h)))


def softmax(x: Value) -> Value:
    e = ops.exp(x)
    total = ops.reshape(ops.sum(e, axes=(1,)), shape=(x.shape[0], 1))
    return ops.div(e, total)


def dropout(state: Value, x: Value, w: Value) -> Value:
    h = ops.matmul(x, w)
    draws = ops.random_uniform(state, shape=h.shape, dtype=f32)
    return ops.where(ops.lt(draws, h.constant(0.5, f32)), h, h.constant(0.0, f32))


def layers(x: Value, v: Value, w: Value) -> Value:
    return ops.matmul(relu(ops.matmul(x, v)), w)


def cheap(x: Value, y: Value) -> Value:
    return ops.mul(ops.add(x, y), ops.sub(x, y))


def test_of_a_chain_the_last_value_is_kept_that_gives_the_others() -> None:
    """tanh and exp have derivatives in their results, x * x in x, which is there anyway."""
    assert kept(chain, f(40, 50)) == ["exp", "tanh"]


def test_a_product_is_kept_and_what_follows_from_it_is_cheap_again() -> None:
    assert kept(layers, f(8, 16), f(16, 32), f(32, 4)) == ["matmul"]
    assert repeated(layers, f(8, 16), f(16, 32), f(32, 4)) == ["maximum"]


def test_of_a_diamond_one_value_is_enough() -> None:
    assert kept(diamond, f(8, 16), f(16, 32))[0] == "matmul"
    assert "maximum" not in kept(diamond, f(8, 16), f(16, 32))


def test_a_reduction_is_not_made_again() -> None:
    assert {"sum", "reshape"} & set(kept(softmax, f(30, 40)))
    assert "sum" not in repeated(softmax, f(30, 40))


def test_of_a_dropout_the_mask_is_kept_a_byte_an_element() -> None:
    assert kept(dropout, TensorType(i64, (2,)), f(8, 16), f(16, 32)) == ["lt"]


def test_nothing_is_kept_that_follows_from_the_inputs_at_little_cost() -> None:
    assert kept(cheap, f(40), f(40)) == []
    assert repeated(cheap, f(40), f(40)) == ["add", "sub"]


def test_without_common_inputs_there_is_nothing_to_keep() -> None:
    forward, backward, _ = halves(layers, f(8, 16), f(16, 32), f(32, 4))
    text = str(backward)
    assert keep_residuals(forward, backward, {}).kept == []
    assert str(backward) == text


def test_equal_values_are_found_under_other_names_and_in_another_order() -> None:
    first, second = Graph(), Graph()
    a, b = (first.add_input(f(3)) for _ in range(2))
    first.outputs = [ops.add(a, b), ops.exp(ops.add(a, b)), ops.sub(a, b)]
    x, y = (second.add_input(f(3)) for _ in range(2))
    second.outputs = [ops.sub(y, x), ops.exp(ops.add(y, x))]
    common = common_values(first, second, {x: a, y: b})
    assert second.outputs[0] not in common
    assert common[second.outputs[1]] is first.outputs[1]


def test_a_check_that_has_passed_is_not_made_again() -> None:
    def build(table: Value, at: Value) -> Value:
        said = {"low": 0, "high": 5, "message": "{} is wrong", "error": "index"}
        return ops.exp(ops.take(table, ops.check(at, **said), axis=0))

    forward, backward, inputs = halves(build, f(5, 3), TensorType(i64, (4,)))
    keep_residuals(forward, backward, inputs)
    assert "check" in {node.op.name for node in forward.nodes}
    assert "check" not in {node.op.name for node in backward.nodes}


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


@pytest.mark.parametrize("seed", range(40))
def test_gradients_are_those_without_a_cut(seed: int) -> None:
    build, types = random_function(seed)
    forward, backward, inputs = halves(build, *types)
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=type.shape).astype(np.float32) * 0.3 for type in types]
    seed_of = np.ones((), np.float32)
    whole = copy_graph(backward)
    (result,), _ = interpret(forward, arrays)
    decided = keep_residuals(forward, backward, inputs)
    verify(forward)
    verify(backward)
    (again, *residuals), _ = interpret(forward, arrays)
    assert len(residuals) == len(decided.kept)
    np.testing.assert_array_equal(again, result)
    found, _ = interpret(backward, [*arrays, seed_of, *residuals])
    for a, b in zip(found, interpret(whole, [*arrays, seed_of])[0], strict=True):
        np.testing.assert_array_equal(a, b)
    for node in backward.nodes:
        assert node.op.name != "matmul" or node.gradient_of is not None
