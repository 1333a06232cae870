"""What the tests of forward mode share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lucid
from lucid.autograd import forward_ad


def f(*numbers: float) -> lucid.Tensor:
    return lucid.tensor(list(numbers), dtype=lucid.float64)


def tangent_of(body: Callable[..., Any], x: lucid.Tensor, v: lucid.Tensor) -> Any:
    """The tangents of what `body` returns for the dual of `x` and `v`."""
    with forward_ad.dual_level():
        result = body(forward_ad.make_dual(x, v))
        if isinstance(result, tuple):
            return tuple(forward_ad.unpack_dual(y).tangent for y in result)
        return forward_ad.unpack_dual(result).tangent


def same(found: Any, expected: Any) -> None:
    assert found is not None
    np.testing.assert_allclose(
        found.detach().numpy(), np.asarray(expected), rtol=1e-6, atol=1e-8, strict=True
    )
