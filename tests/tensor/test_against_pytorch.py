"""Results, gradients, dtypes and errors are those that PyTorch gave."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from expressions import (
    GRADIENTS,
    PROMOTION,
    RESULTS,
    array_of,
    encoded,
    load,
    names,
    promoted,
    weights,
)

import lucid
from lucid.autograd.native import op_by_op
from lucid.compiler.guards.restarts import RestartTrace
from lucid.compiler.recording.recorder import Recorder, recording
from lucid.ir.interpret import interpret

RECORDED = load(RESULTS)
DERIVED = load(GRADIENTS)
TABLE = load(PROMOTION)

# lucid raises for bools, where PyTorch computes with them.
REFUSED = {("pow", "1-d bool, number bool")}


def evaluate(expression: str) -> Any:
    return eval(expression, names(lucid, RECORDED["inputs"]))


def assert_same(found: Any, expected: Any) -> None:
    """Same structure, dtypes and shapes; floats to the rounding of a few float32 operations."""
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif "python" in expected:
        assert found.get("python") == expected["python"]
    else:
        assert found["dtype"] == expected["dtype"]
        assert found["shape"] == expected["shape"]
        np.testing.assert_allclose(array_of(found), array_of(expected), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("expression", RECORDED["results"])
def test_the_result_is_the_recorded_one(expression: str) -> None:
    expected = RECORDED["results"][expression]
    if expected == "error":
        with pytest.raises(lucid.LucidError):
            evaluate(expression)
    else:
        assert_same(encoded(evaluate(expression)), expected)


def tensors_in(value: Any) -> list[lucid.Tensor]:
    if isinstance(value, lucid.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


# What these return is known only from data: no trace can record them.
DATA_DEPENDENT = (
    "m.allclose", "m.equal", "nonzero", "masked_select", "m.where(z)", "m.argwhere(z)", " in ",
    "tolist", "np.asarray(x)", "bool(T(1.))", "item()", "float(", "int(T", "range(", 'f"{',
    "unique_consecutive", "storage_offset", ".apply_(", ".map_(", "m.frexp", "w.frexp", "nextafter",
    "w[1].as_strided",
)  # fmt: skip


@pytest.mark.parametrize(
    "expression",
    [text for text, result in RECORDED["results"].items() if result != "error"],
)
def test_a_trace_of_it_computes_the_same_bits(expression: str) -> None:
    with op_by_op():
        expected = tensors_in(evaluate(expression))
    environment = names(lucid, RECORDED["inputs"])
    recorder = Recorder("expression")
    with recording(recorder):
        try:
            found = tensors_in(eval(expression, environment))
        except (lucid.TraceError, RestartTrace):
            recorder.restore(True)
            assert any(part in expression for part in DATA_DEPENDENT)
            return
        recorder.graph.outputs = [recorder.value_of(tensor) for tensor in found]
    arrays = {cell.value: cell.storage.array for cell in recorder.cells.values()}
    recorder.restore(False)
    outputs, _ = interpret(recorder.graph, [arrays[entry.value] for entry in recorder.graph.inputs])
    for one, other in zip(outputs, expected, strict=True):
        assert one.dtype == other.numpy().dtype
        np.testing.assert_array_equal(one, other.numpy())


@pytest.mark.parametrize("expression", DERIVED["results"])
def test_the_gradient_is_the_recorded_one(expression: str) -> None:
    leaves = {
        name: lucid.tensor(array_of(entry), requires_grad=True)
        for name, entry in DERIVED["inputs"].items()
    }
    result = eval(expression, {"m": lucid, **leaves})
    factor = lucid.tensor(weights(result.numel())).reshape(result.shape)
    (result * factor).sum().backward()
    for name, expected in DERIVED["results"][expression].items():
        grad = leaves[name].grad
        assert (grad is None) == (expected is None)
        if grad is not None:
            np.testing.assert_allclose(grad.numpy().ravel(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("operation", TABLE)
def test_the_dtype_is_the_recorded_one(operation: str) -> None:
    for operands, expected in TABLE[operation].items():
        if expected == "error" or (operation, operands) in REFUSED:
            with pytest.raises(lucid.LucidError):
                promoted(lucid, operation, operands)
        else:
            assert (operands, promoted(lucid, operation, operands)) == (operands, expected)


def test_a_planted_difference_is_found() -> None:
    expected = RECORDED["results"]["x+y"]
    wrong = copy.deepcopy(expected)
    wrong["values"][3] += 1e-4
    with pytest.raises(AssertionError):
        assert_same(wrong, expected)
    with pytest.raises(AssertionError):
        assert_same({**expected, "dtype": "float64"}, expected)


def test_uint32_is_an_integer_like_the_others() -> None:
    u = lucid.tensor([1, 2], dtype=lucid.uint32)
    assert (u + 1).dtype is lucid.uint32
    assert (u + u.long()).dtype is lucid.int64
    assert (u + u.int()).dtype is lucid.int64  # holds both; PyTorch refuses
    assert (u / 2).dtype is lucid.float32
    assert u.sum().dtype is lucid.int64
