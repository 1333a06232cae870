"""Comparing results in tests: `assert_close`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucid.ir import frames
from lucid.tensor.arrays import plain_array
from lucid.tensor.tensor import Tensor

# As PyTorch chooses them: relative and absolute, by dtype.
_TOLERANCES = {"float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    msg: str | None = None,
) -> None:
    """Raise `AssertionError` unless both have the same shapes and dtypes and are nearly equal.

    Takes tensors, numbers, and lists, tuples and dicts of them.
    """
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), msg
        pairs = [(actual[key], expected[key]) for key in expected]
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), msg
        pairs = list(zip(actual, expected, strict=True))
    else:
        _compare(actual, expected, (rtol, atol), equal_nan, check_dtype, msg)
        return
    for one, other in pairs:
        assert_close(
            one, other, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, msg=msg
        )


def _compare(
    actual: Any,
    expected: Any,
    tolerances: tuple[float | None, float | None],
    equal_nan: bool,
    check_dtype: bool,
    msg: str | None,
) -> None:
    one, other = _array(actual), _array(expected)
    assert one.shape == other.shape, msg or f"shapes differ: {one.shape} and {other.shape}"
    if check_dtype:
        assert one.dtype == other.dtype, msg or f"dtypes differ: {one.dtype} and {other.dtype}"
    known = _TOLERANCES.get(str(np.result_type(one, other)), (0.0, 0.0))
    rtol, atol = (
        wanted if given is None else given for given, wanted in zip(tolerances, known, strict=True)
    )
    np.testing.assert_allclose(one, other, rtol, atol, equal_nan, err_msg=msg or "")


def _array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        return value.detach().numpy()
    return plain_array(value, "assert_close")


frames.edge_of_module(__name__)
