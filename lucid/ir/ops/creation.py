"""Values from nothing: constants and counts. Without operands, they are made by `emit`."""

from __future__ import annotations

import numpy as np

from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.op import Op, Sample, declare
from lucid.ir.ops.rules import NUMBERS
from lucid.ir.types import DType, Shape, TensorType, bool_, f32, f64, i32, i64, u32

__all__ = ["constant", "iota", "parameter"]


def _infer_constant(value: np.generic, dtype: DType) -> TensorType:
    return TensorType(dtype, ())


def _constant(value: np.generic, dtype: DType) -> np.ndarray:
    return np.asarray(value, dtype.numpy)


constant = declare(
    Op(
        "constant",
        _infer_constant,
        _constant,
        kind="create",
        samples=(
            Sample((), {"value": np.float32(1.5), "dtype": f32}),
            Sample((), {"value": np.float64(-0.0), "dtype": f64}),
            Sample((), {"value": np.float64(np.nan), "dtype": f64}),
            Sample((), {"value": np.float32(-np.inf), "dtype": f32}),
            Sample((), {"value": np.int64(-(2**63)), "dtype": i64}),
            Sample((), {"value": np.uint32(2**32 - 1), "dtype": u32}),
            Sample((), {"value": np.bool_(True), "dtype": bool_}),
        ),
    )
)


def _infer_parameter(value: int, is_bits: bool, dtype: DType) -> TensorType:
    bits = dtype.is_floating_point and is_bits
    if type(value) is int and (bits or dtype.kind == "int"):  # no `Extent`
        held = np.iinfo("uint64" if bits else dtype.torch_name)
        if not held.min <= value <= held.max:
            raise OptionError(
                f"parameter: {value} is no {'f64 by its bits' if bits else dtype.name}"
            )
    return TensorType(dtype, ())


def _parameter(value: int, is_bits: bool, dtype: DType) -> np.ndarray:
    """A whole number, or where `is_bits` and dtype is a float, the f64 that has these 64 bits."""
    if is_bits and dtype.is_floating_point:
        return np.asarray(np.uint64(value).view(np.float64), dtype.numpy)
    return np.asarray(value, dtype.numpy)


parameter = declare(
    Op(
        "parameter",
        _infer_parameter,
        _parameter,
        kind="create",
        samples=(
            Sample((), {"value": 64, "is_bits": False, "dtype": f32}),
            Sample((), {"value": -3, "is_bits": True, "dtype": i64}),
            Sample((), {"value": 0x3FF8000000000000, "is_bits": True, "dtype": f32}),
        ),
    )
)
"""A constant that passes don't look at: of a program whose sizes are open (`extents.py`)."""


def _infer_iota(shape: Shape, axis: int, dtype: DType) -> TensorType:
    if dtype not in NUMBERS:
        raise DTypeError(f"iota: counts in {', '.join(d.name for d in NUMBERS)}, not {dtype.name}")
    if not 0 <= axis < len(shape):
        raise ShapeError(f"iota: axis {axis} is out of range for {len(shape)} axes")
    return TensorType(dtype, shape)


def _iota(shape: Shape, axis: int, dtype: DType) -> np.ndarray:
    """Each element is its own index along `axis`."""
    count = np.arange(shape[axis], dtype=dtype.numpy)
    column = count.reshape(-1, *(1 for _ in shape[axis + 1 :]))
    return np.broadcast_to(column, shape).copy()


iota = declare(
    Op(
        "iota",
        _infer_iota,
        _iota,
        kind="create",
        samples=(
            Sample((), {"shape": (5,), "axis": 0, "dtype": i64}),
            Sample((), {"shape": (3, 4), "axis": 0, "dtype": f32}),
            Sample((), {"shape": (3, 4), "axis": 1, "dtype": i32}),
            Sample((), {"shape": (2, 3, 4), "axis": 1, "dtype": f64}),
            Sample((), {"shape": (0,), "axis": 0, "dtype": i64}),
        ),
    )
)
