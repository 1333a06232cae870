"""Hyper-parameters: which values make sense, and how a group holds them.

An optimizer declares them by the signature of its constructor: names, types and defaults. Its
`_ranges` has a check for each that not every value suits, in the constructor and in groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lucid.choices import check_flags, refuse
from lucid.ir.errors import ArgumentError, OptionError
from lucid.tensor.tensor import Tensor

Check = Callable[[Any], Any]
"""The value of a hyper-parameter to the one that a group holds; raises for one without meaning."""

FLAGS = ("foreach", "fused", "capturable", "differentiable")


def only(holds: Callable[[Any], bool], message: str) -> Check:
    """The values of which something holds; `message` is formatted with another one."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise OptionError(message.format(value))
        return value

    return check


def nonnegative(name: str) -> Check:
    """Numbers from 0 on, which errors call `name`; a tensor (a learning rate) of one element."""

    def check(value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise OptionError(f"{name} must have one element, not {value.numel()}")
            return value
        try:
            is_valid = value >= 0.0
        except TypeError:
            kind = type(value).__name__
            raise ArgumentError(f"{name} must be a number, not {kind}") from None
        if not is_valid:
            raise OptionError(f"Invalid {name}: {value}")
        return value

    return check


def floats(values: Any) -> tuple[float, ...]:
    """Several numbers, which a compiled step reads at each call."""
    return tuple(map(float, values))


def betas(values: Any) -> tuple[Any, ...]:
    """Two numbers, each from 0 to below 1."""
    for position, beta in enumerate(values):
        if not 0.0 <= beta < 1.0:
            raise OptionError(f"Invalid beta parameter at index {position}: {beta}")
    if len(values) != 2:
        raise OptionError(f"betas must be two numbers, not {tuple(values)}")
    return tuple(values)


COMMON: dict[str, Check] = {
    "lr": nonnegative("learning rate"), "eps": nonnegative("epsilon value"), "betas": betas,
    "momentum": nonnegative("momentum value"), "weight_decay": nonnegative("weight_decay value"),
}  # fmt: skip


def hyper_parameters(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a constructor's groups, of its `locals()`; its flags are checked and gone."""
    name = type(arguments["self"]).__name__
    check_implementation(name, **{key: arguments[key] for key in FLAGS if key in arguments})
    without = {"self", "__class__", "params", *FLAGS}
    return {key: value for key, value in arguments.items() if key not in without}


def check_implementation(name: str, differentiable: bool = False, **flags: bool | None) -> None:
    """Check the flags that choose an implementation in PyTorch: here all make the same update.

    Raises `ArgumentError` for what is no bool, `OptionError` for what is a choice of two, and for
    an update that has a history.
    """
    check_flags(name, **flags)
    because = "an update has no history\nhint: write the update with lucid.func.grad"
    refuse(differentiable, "differentiable", name, because)
    if flags.get("fused") and flags.get("foreach"):
        raise OptionError(f"{name}: `fused` and `foreach` cannot be `True` together.")
