"""Windows of signals: PyTorch's numbers, and its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid

# torch.<name>(5, ...) of float64
EXPECTED: list[tuple[Callable[..., Any], list[float]]] = [
    (lambda **o: lucid.hann_window(5, **o), [0.0, 0.345492, 0.904508, 0.904508, 0.345492]),
    (lambda **o: lucid.hann_window(5, False, **o), [0.0, 0.5, 1.0, 0.5, 0.0]),
    (
        lambda **o: lucid.hamming_window(5, **o),
        [0.08, 0.397852, 0.912148, 0.912148, 0.397852],
    ),
    (
        lambda **o: lucid.hamming_window(5, False, 0.5, 0.25, **o),
        [0.25, 0.5, 0.75, 0.5, 0.25],
    ),
    (lambda **o: lucid.blackman_window(5, False, **o), [0.0, 0.34, 1.0, 0.34, 0.0]),
    (lambda **o: lucid.bartlett_window(5, False, **o), [0.0, 0.5, 1.0, 0.5, 0.0]),
    (
        lambda **o: lucid.kaiser_window(5, **o),
        [5.27734413e-05, 0.101719688, 0.792939834, 0.792939834, 0.101719688],
    ),
    (
        lambda **o: lucid.kaiser_window(4, False, 3.0, **o),
        [0.204884756, 0.871241874, 0.871241874, 0.204884756],
    ),
    (lambda **o: lucid.bartlett_window(1, **o), [1.0]),
    (lambda **o: lucid.hann_window(0, **o), []),
]


@pytest.mark.parametrize(("window", "expected"), EXPECTED)
def test_values_are_pytorchs(
    window: Callable[..., Any], expected: list[float], run: Callable[..., Any]
) -> None:
    found = run(lambda: window(dtype=lucid.float64))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert window().dtype is lucid.float32


@pytest.mark.parametrize(
    "name", ["hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"]
)
def test_options_are_those_of_other_new_tensors(name: str) -> None:
    make = getattr(lucid, name)
    made = make(4, dtype=lucid.float64, layout=lucid.strided, device="cpu", requires_grad=True)
    assert made.requires_grad and made.is_leaf and made.dtype is lucid.float64
    with pytest.raises(TypeError, match=f"{name}: expects floating point dtypes but got"):
        make(4, dtype=lucid.int64)
    with pytest.raises(ValueError, match=f"{name}: a tensor of layout lucid.sparse_coo can't"):
        make(4, layout=lucid.sparse_coo)
    with pytest.raises(ValueError, match=f"{name}: device 'cuda' does not exist"):
        make(4, device="cuda")
    with pytest.raises(ValueError, match=f"{name}: window_length must be non-negative"):
        make(-1)
