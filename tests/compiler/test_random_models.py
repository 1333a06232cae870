"""Random models that are compiled alone: loss and backward outside give eager mode's gradients."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st
from random_programs import numbers, programs

import lucid
from lucid.ir.graph import Graph
from lucid.tensor.core import apply_op


def model_of(graph: Graph, state: list[lucid.Tensor], writes: bool) -> Any:
    """A function of the labels that runs a graph on the state; tensors that are views stay such."""
    inputs = [entry.value for entry in graph.inputs]

    def model(labels: lucid.Tensor, *arguments: lucid.Tensor) -> list[lucid.Tensor]:
        given = [*state[: len(inputs) - 1 - len(arguments)], *arguments, labels]
        values = dict(zip(inputs, given, strict=True))
        for node in graph.nodes:
            operands = [values[operand] for operand in node.operands]
            values[node.result] = apply_op(node.op, operands, node.attributes)
        if writes:
            with lucid.no_grad():
                for cell, value in graph.writes:
                    values[cell].mul_(0.5).add_(values[value].detach())
        return [values[value] for value in graph.outputs]

    return model


def outcome(graph: Graph, arrays: list[np.ndarray], seed: int, options: Any, compiled: bool) -> Any:
    """Gradients of two calls, and second derivatives; or the first line of an error."""
    arguments, wanted, writes, higher = options
    tensors = [lucid.tensor(array.copy()) for array in arrays[:-1]]
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(bool(wanted >> i & 1))
    labels = lucid.tensor(arrays[-1])
    model = model_of(graph, tensors, writes)
    if compiled:
        model = lucid.compile(model)
    rng = np.random.default_rng(seed)
    weights = [
        lucid.tensor(rng.uniform(-1, 1, value.shape).astype(value.dtype.numpy))
        for value in graph.outputs
    ]
    leaves = [tensor for tensor in tensors if tensor.requires_grad]

    def loss_of(results: list[lucid.Tensor]) -> lucid.Tensor | None:
        pairs = zip(results, weights, strict=True)
        parts = [(y * w * y).sum() for y, w in pairs if y.requires_grad and y.is_floating_point()]
        return sum(parts[1:], parts[0]) if parts else None

    def call() -> list[lucid.Tensor]:
        return model(labels, *tensors[len(tensors) - arguments :])

    found: list[Any] = []
    try:
        first = loss_of(call())
        second = None if writes else loss_of(call())
        if first is not None:
            if higher:
                gradients = lucid.autograd.grad(first, leaves, create_graph=True, allow_unused=True)
                found += gradients
                open_ones = [g for g in gradients if g is not None and g.requires_grad]
                first = sum(((g * g).sum() for g in open_ones), first * 1)
            first.backward()
        if second is not None:
            second.backward()
    except lucid.LucidError as error:
        found.append(str(error).partition("\n")[0])
    found += [tensor.grad for tensor in leaves]
    found += [tensor.detach() for tensor in tensors]
    return [x.detach().numpy() if isinstance(x, lucid.Tensor) else x for x in found]


@hypothesis.settings(max_examples=12, deadline=None)
@hypothesis.given(
    programs(steps=8, sizes=(1, 2, 3, 4)),
    st.integers(0, 2**32),
    st.tuples(st.integers(0, 3), st.integers(1, 63), st.booleans(), st.booleans()),
)
def test_a_random_model_has_the_gradients_of_eager_mode(
    graph: Graph, seed: int, options: tuple[int, int, bool, bool]
) -> None:
    """options: how many inputs are arguments, which require grad, whether state is written."""
    hypothesis.note(str(graph))
    arrays = numbers(graph, seed)
    expected = outcome(graph, arrays, seed, options, compiled=False)
    found = outcome(graph, arrays, seed, options, compiled=True)
    for ours, theirs in zip(found, expected, strict=True):
        if isinstance(theirs, np.ndarray):
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)
        else:
            assert ours == theirs
