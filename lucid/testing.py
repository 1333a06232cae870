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

    Nearly: |actual - expected| <= atol + rtol * |expected|, element by element.

    Args:
        actual: a tensor, a number, or lists, tuples and dicts of them, nested or not.
        expected: the same kind.
        rtol: by how much elements may differ in proportion to the expected one. Default: None,
            1.3e-6 of f32, 1e-7 of f64 and 0 of other dtypes.
        atol: by how much more. Default: None, 1e-5 of f32, 1e-7 of f64 and 0 of other dtypes.
        equal_nan: whether NaN equals NaN.
        check_dtype: whether dtypes must be the same.
        msg: what the error says. Default: None, what differs.

    Raises:
        AssertionError: they differ, in structure or shape, dtype or elements.

    >>> lucid.testing.assert_close(lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 2.0 + 1e-6]))
    >>> lucid.testing.assert_close(lucid.ones(2), lucid.ones(3))
    Traceback (most recent call last):
    AssertionError: shapes differ: (2,) and (3,)...
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
