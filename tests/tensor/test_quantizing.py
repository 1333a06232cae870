"""Fake quantization: the values, and the gradient that passes where nothing is cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucid

X = [[-3.0, -0.26, 0.25], [0.75, 1.1, 90.0]]
SCALES, ZEROS = [0.5, 0.25, 2.0], [0, 1, -2]
PER_CHANNEL = [[-3.0, -0.25, 0.0], [1.0, 1.0, 18.0]]  # as PyTorch 2.13 computes it
PER_TENSOR = [[-1.0, -0.5, 0.0], [1.0, 1.0, 2.5]]


def test_values_and_gradients_are_those_of_pytorch(run: Callable[[Any], Any]) -> None:
    x = lucid.tensor(X, requires_grad=True)

    def per_channel() -> Any:
        scales, zeros = lucid.tensor(SCALES), lucid.tensor(ZEROS, dtype=lucid.int32)
        return lucid.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7)

    y = run(per_channel)
    assert y.tolist() == PER_CHANNEL
    (grad,) = lucid.autograd.grad(y.sum(), x)
    assert grad.tolist() == [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
    for scale, zero_point in ((0.5, 2), (lucid.tensor(0.5), lucid.tensor(2, dtype=lucid.int32))):
        y = run(lambda s=scale, z=zero_point: lucid.fake_quantize_per_tensor_affine(x, s, z, 0, 7))
        assert y.tolist() == PER_TENSOR
        (grad,) = lucid.autograd.grad(y.sum(), x)
        assert grad.tolist() == [[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: lucid.fake_quantize_per_tensor_affine(x, 1.0, 0, 3, 2), "quant_min` should be"),
        (lambda x: lucid.fake_quantize_per_tensor_affine(x, 1.0, 9, 0, 7), "zero_point` must be"),
        (
            lambda x: lucid.fake_quantize_per_channel_affine(x, x[0], x[0], 0, 0, 7),
            "one entry for each of axis 0",
        ),
    ],
)
def test_ranges_and_shapes_that_do_not_fit(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(lucid.tensor(X))
