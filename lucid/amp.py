"""Mixed precision as programs switch it off: lucid computes in the dtypes of its tensors.

Args:
    device_type: of which device; the CPU is the only one.
    enabled: must be False for the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from lucid.choices import check_flag, check_flags, check_kind
from lucid.dtypes import MissingDType, as_dtype
from lucid.ir import frames
from lucid.ir.errors import ArgumentError, OptionError
from lucid.ir.location import warn

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_enabled"]

Function = Callable[..., Any]


def _check_device_type(device_type: Any, op: str) -> None:
    if not isinstance(device_type, str):
        raise ArgumentError(f"{op}: device_type must be a string, not {device_type!r}")


def _refuse_enabled(op: str, which: str, device: str) -> None:
    """Warn of a GPU, which isn't there, and raise for the CPU."""
    if device.partition(":")[0] == "cpu":
        raise OptionError(
            f"{op}: there are no shorter floats than float32\nhint: pass enabled=False"
        )
    warn(f"{op}: {which} of {device!r} is not available. Disabling")


class autocast:  # noqa: N801 - PyTorch's name
    """A context or decorator that does nothing: there is no shorter float.

    For a GPU `enabled=True` warns, as PyTorch does where there is none.

    Args:
        dtype: a dtype or None; nothing is computed in it, for this is off.
        cache_enabled: True, False or None; nothing is cast, and nothing kept.

    Raises:
        OptionError: it is enabled for the CPU.
        ArgumentError: an argument of another type.

    >>> with lucid.amp.autocast("cpu", enabled=False):
    ...     print((lucid.ones(2) @ lucid.ones(2)).dtype)
    lucid.float32
    """

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        _check_device_type(device_type, "autocast")
        check_flags("autocast", cache_enabled=cache_enabled)
        if dtype is not None and (enabled or not isinstance(dtype, MissingDType)):
            as_dtype(dtype, "autocast")
        if enabled:
            _refuse_enabled("autocast", "device_type", device_type)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Function) -> Function:
        return function


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Return False.

    There is no shorter float here, so autocast is never on.

    Raises:
        ArgumentError: `device_type` is no string.

    >>> lucid.amp.is_autocast_enabled()
    False
    """
    check_kind(device_type, str, "device_type", "is_autocast_enabled")
    return False


def custom_fwd(
    fwd: Function | None = None, *, device_type: str = "cuda", cast_inputs: Any = None
) -> Function:
    """Return the forward of a custom Function as it is: it is never called with autocast on.

    Args:
        fwd: the forward; None gives a decorator.
        cast_inputs: a dtype or None; nothing is cast to it, for autocast is off.

    Raises:
        ArgumentError: an argument of another type.

    >>> class Exp(lucid.autograd.Function):
    ...     @staticmethod
    ...     @lucid.amp.custom_fwd(device_type="cpu")
    ...     def forward(ctx, x):
    ...         return x.exp()
    >>> Exp.apply(lucid.zeros(2))
    tensor([1., 1.])
    """
    _check_device_type(device_type, "custom_fwd")
    if cast_inputs is not None:
        as_dtype(cast_inputs, "custom_fwd")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    return fwd


def custom_bwd(bwd: Function | None = None, *, device_type: str = "cuda") -> Function:
    """Return the backward of a custom Function as it is.

    What mixed precision would do around it is never on.

    Args:
        bwd: the backward; None gives a decorator.

    Raises:
        ArgumentError: `device_type` is no string.

    >>> class Half(lucid.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x / 2
    ...     @staticmethod
    ...     @lucid.amp.custom_bwd
    ...     def backward(ctx, grad):
    ...         return grad / 2
    >>> x = lucid.ones(2, requires_grad=True)
    >>> Half.apply(x).sum().backward()
    >>> x.grad
    tensor([0.5000, 0.5000])
    """
    _check_device_type(device_type, "custom_bwd")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    return bwd


class GradScaler:
    """A scaler of losses that is off, as PyTorch's is without a GPU.

    `scale` gives the loss as it is, and `step(optimizer)` steps. For a GPU `enabled=True` warns, as
    PyTorch does where there is none.

    Args:
        device: of which device; the CPU is the only one.
        init_scale: the first scale, above 0; there is none while it is off.
        growth_factor: what the scale would be multiplied by, above 1.
        backoff_factor: and after gradients that aren't finite, below 1.
        growth_interval: after how many steps it would grow.

    Raises:
        OptionError: it is enabled for the CPU, or a number isn't in its range.
        ArgumentError: an argument of another type.

    >>> scaler = lucid.amp.GradScaler(enabled=False)
    >>> scaler.scale(lucid.tensor(2.0)), scaler.get_scale()
    (tensor(2.), 1.0)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _check_device_type(device, "GradScaler")
        check_flag(enabled, "enabled", "GradScaler")
        for name, value in (
            ("init_scale", init_scale),
            ("growth_factor", growth_factor),
            ("backoff_factor", backoff_factor),
            ("growth_interval", growth_interval),
        ):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ArgumentError(f"GradScaler: {name} must be a number, not {value!r}")
        if init_scale <= 0 or growth_factor <= 1 or backoff_factor >= 1 or growth_interval < 1:
            raise OptionError(
                "GradScaler: init_scale must be above 0, growth_factor above 1, backoff_factor "
                "below 1, and growth_interval at least 1"
            )
        if enabled:
            _refuse_enabled("GradScaler", "device", device)

    def is_enabled(self) -> bool:
        """Return False."""
        return False

    def get_scale(self) -> float:
        """Return 1."""
        return 1.0

    def scale(self, outputs: Any) -> Any:
        """Return the outputs as they are."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Do nothing: nothing was scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Return `optimizer.step()`."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """Do nothing: there is no scale."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take nothing over."""


frames.edge_of_module(__name__)
