"""Global settings of PyTorch that programs set: here they are always as good as on."""

from __future__ import annotations

from lucid.ir.errors import OptionError

# Every tensor is laid out row by row: what PyTorch's memory formats ask for means nothing.
contiguous_format = "contiguous_format"
preserve_format = "preserve_format"
strided = "strided"


def get_num_threads() -> int:
    """Return 1: a step runs on the thread that calls it."""
    return 1


def set_num_threads(num: int) -> None:
    """Do nothing. Raises `OptionError` for less than one thread."""
    if num < 1:
        raise OptionError("set_num_threads expects a positive integer")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Do nothing: results are always the same."""


def set_float32_matmul_precision(precision: str) -> None:
    """Do nothing: products of float32 are always computed in float32."""
    if precision not in ("highest", "high", "medium"):
        raise OptionError(f"set_float32_matmul_precision: {precision!r} is not a precision")
