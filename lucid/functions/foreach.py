"""PyTorch's `_foreach_*`: one method, on each tensor of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from lucid.functions.norms import vector_norm
from lucid.ir.errors import LucidError
from lucid.tensor.tensor import Tensor

PREFIX = "_foreach_"
_METHODS = frozenset((
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min",
    "clone", "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp",
    "lgamma", "log", "log10", "log1p", "log2", "max", "maximum", "minimum", "mul", "neg", "norm",
    "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
    "tanh", "trunc", "abs_", "acos_", "add_", "addcdiv_", "addcmul_", "asin_", "atan_", "ceil_",
    "clamp_max_", "clamp_min_", "copy_", "cos_", "cosh_", "div_", "erf_", "erfc_", "exp_",
    "expm1_", "floor_", "frac_", "lerp_", "lgamma_", "log10_", "log1p_", "log2_", "log_",
    "maximum_", "minimum_", "mul_", "neg_", "pow_", "reciprocal_", "round_", "rsqrt_", "sigmoid_",
    "sign_", "sin_", "sinh_", "sqrt_", "sub_", "tan_", "tanh_", "trunc_", "zero_",
))  # fmt: skip
_WITH_VALUE = ("addcdiv", "addcmul")  # whose number is a keyword of the method


def find(name: str) -> Callable[..., Any] | None:
    """The function `_foreach_*` of this name; None if there is none.

    It returns a tuple of tensors, or, in place, the sequence that it was given. An operand is a
    sequence, of which each tensor has its own, or one for all.
    """
    method = name.removeprefix(PREFIX)
    if method not in _METHODS:
        return None

    def foreach(tensors: Iterable[Tensor], *operands: Any, **options: Any) -> Any:
        given = tensors if isinstance(tensors, Sequence) else tuple(tensors)
        rows = zip(given, *(_each(name, given, operand) for operand in operands), strict=True)
        results = tuple(_apply(method, row, options) for row in rows)
        return given if method.endswith("_") else results

    foreach.__name__ = foreach.__qualname__ = name
    foreach.__doc__ = f"`Tensor.{method}` of each tensor of a list."
    return foreach


def _each(name: str, tensors: Sequence[Tensor], operand: Any) -> Iterable[Any]:
    """The operand of each tensor."""
    if not tensors:
        raise LucidError(f"{name}: Tensor list must have at least one tensor.")
    if not isinstance(operand, (list, tuple)):
        return repeat(operand, len(tensors))
    if len(operand) != len(tensors):
        raise LucidError(f"{name}: {len(tensors)} and {len(operand)} tensors don't go together")
    return operand


def _apply(method: str, row: tuple[Any, ...], options: dict[str, Any]) -> Any:
    tensor, *operands = row
    if method == "norm":
        return vector_norm(tensor, *operands, **options)
    if method in ("maximum_", "minimum_"):
        return tensor.copy_(getattr(tensor, method[:-1])(*operands))
    if method.removesuffix("_") in _WITH_VALUE and len(operands) == 3:
        options = {"value": operands.pop(), **options}
    return getattr(tensor, method)(*operands, **options)
