"""What the functions that make tensors take by keyword: declared once, in each one's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

from lucid.device import check_device
from lucid.dtypes import as_dtype, get_default_dtype
from lucid.ir.types import DType

F = TypeVar("F", bound=Callable[..., Any])


class TensorOptions(TypedDict, total=False):
    """Of each new tensor."""

    dtype: DType | None
    device: Any
    requires_grad: bool


class LikeOptions(TensorOptions, total=False):
    """Of one that is made as another, or for it."""

    memory_format: object


class WindowOptions(TensorOptions, total=False):
    """Of a window."""

    layout: object


def with_options(function: F) -> F:
    """Spell the options out in the signature of a function with `**options: Unpack[…]`."""
    signature = inspect.signature(function)
    *parameters, last = signature.parameters.values()
    declared = globals()[last.annotation.removeprefix("Unpack[").removesuffix("]")]
    for name, kind in inspect.get_annotations(declared).items():
        default = False if name == "requires_grad" else None
        option = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        parameters.append(option.replace(annotation=getattr(kind, "__forward_arg__", kind)))
    vars(function)["__signature__"] = signature.replace(parameters=parameters)
    return function


def taken(
    op: str,
    default: DType | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> tuple[DType, bool]:
    """The dtype that the options say, or else the default, and whether gradients are recorded."""
    check_device(device, op)
    if dtype is None:
        return default or get_default_dtype(), requires_grad
    return as_dtype(dtype, op), requires_grad
