"""What calls NumPy's LAPACK, which a compiled step finds the results of by host calls.

The backwards of these Functions are written with tensor operations and with each other, so
gradients of every order exist, and in a compiled step all around the factorizations stays native.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.autograd.function import Function
from lucid.functions.arguments import listed, tensor_of
from lucid.functions.blas import few_threads
from lucid.functions.finding import computed
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, LucidError, ShapeError


class LinAlgError(LucidError):
    """A matrix for which the result doesn't exist: singular, or not positive definite."""


class OfNumPy(Function):
    """A Function of batches, of numbers or of matrices, whose forward runs NumPy."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.vmap = staticmethod(_batched(cls))  # type: ignore[method-assign]


def _batched(function: type[OfNumPy]) -> Callable[..., tuple[Any, Any]]:
    """The vmap rule: examples become a leading batch axis, which NumPy takes anyway."""

    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        moved = []
        for value, dim in zip(args, in_dims, strict=True):
            if not isinstance(value, Tensor):
                moved.append(value)
            elif dim is None:
                moved.append(value.expand(info.batch_size, *value.shape))
            else:
                moved.append(value.movedim(dim, 0))
        results = function.apply(*moved)
        return results, (0,) * len(results) if isinstance(results, tuple) else 0

    return vmap


def call(name: str, function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Call NumPy on the tensors' data; tensors of what it returns.

    Raises: `LinAlgError` where LAPACK does.
    """
    kinds = ", ".join(str(tensor._type) for tensor in tensors)

    def find(*arrays: np.ndarray) -> list[np.ndarray]:
        try:
            with few_threads(arrays):
                found = function(*arrays)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"linalg.{name}: {error} (of {kinds})") from None
        parts = found if isinstance(found, tuple) else (found,)
        return [np.array(part, order="C") for part in parts]

    results = computed(f"linalg.{name}", find, tensors)
    return results if len(results) > 1 else results[0]


def matrices(value: Any, op: str, name: str = "A", *, square: bool = False) -> Tensor:
    """Check that an argument is a batch of matrices of floats. Raises what fits."""
    x = tensor_of(value, op, name)
    if x.ndim < 2:
        raise ShapeError(
            f"{op}: The input tensor {name} must have at least 2 dimensions.{listed(**{name: x})}"
        )
    if square and x._type.shape[-1] != x._type.shape[-2]:
        raise ShapeError(f"{op}: {name} must be batches of square matrices{listed(**{name: x})}")
    if x._type.dtype.kind != "float":
        raise DTypeError(
            f"{op}: Expected a floating point tensor as input, got {x.dtype!r}\n"
            "hint: convert it with .float()"
        )
    return x
