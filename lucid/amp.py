"""Mixed precision as programs switch it off: lucid computes in the dtypes of its tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from lucid.ir import frames
from lucid.ir.errors import OptionError
from lucid.ir.location import warn

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_enabled"]

Function = Callable[..., Any]


class autocast:  # noqa: N801 - PyTorch's name
    """A context or decorator that does nothing: there is no shorter float.

    For a GPU `enabled=True` warns, as PyTorch does where there is none.

    Args:
        device_type: of which device; the CPU is the only one. Default: 'cpu'.
        dtype: not looked at while it is off.
        enabled: must be False for the CPU. Default: True.
        cache_enabled: accepted for PyTorch's sake.

    Raises:
        OptionError: it is enabled for the CPU.

    Example:
        >>> import lucid
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
        if enabled and str(device_type).partition(":")[0] != "cpu":
            warn(f"autocast: device_type of {device_type!r} is not available. Disabling")
        elif enabled:
            raise OptionError(
                "autocast: there are no shorter floats than float32\nhint: pass enabled=False"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Function) -> Function:
        return function


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Return False.

    There is no shorter float here, so autocast is never on.

    Args:
        device_type: of which device; the CPU is the only one.

    Example:
        >>> import lucid
        >>> lucid.amp.is_autocast_enabled()
        False
    """
    return False


def custom_fwd(
    fwd: Function | None = None, *, device_type: str = "cuda", cast_inputs: Any = None
) -> Function:
    """Return the forward of a custom Function as it is: it is never called with autocast on.

    Args:
        fwd: the forward; None gives a decorator.
        device_type: of which device; the CPU is the only one. Default: 'cuda'.
        cast_inputs: not looked at, for autocast is off.

    Example:
        >>> import lucid
        >>> class Exp(lucid.autograd.Function):
        ...     @staticmethod
        ...     @lucid.amp.custom_fwd(device_type="cpu")
        ...     def forward(ctx, x):
        ...         return x.exp()
        >>> Exp.apply(lucid.zeros(2))
        tensor([1., 1.])
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    return fwd


def custom_bwd(bwd: Function | None = None, *, device_type: str = "cuda") -> Function:
    """Return the backward of a custom Function as it is.

    What mixed precision would do around it is never on.

    Args:
        bwd: the backward; None gives a decorator.
        device_type: of which device; the CPU is the only one. Default: 'cuda'.

    Example:
        >>> import lucid
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
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    return bwd


class GradScaler:
    """A scaler of losses that is off, as PyTorch's is without a GPU.

    `scale` gives the loss as it is, and `step(optimizer)` steps.

    Args:
        device: accepted for PyTorch's sake. Default: 'cuda'.
        enabled: accepted for PyTorch's sake. Default: True.
        **options: accepted for PyTorch's sake.

    Example:
        >>> import lucid
        >>> scaler = lucid.amp.GradScaler(enabled=False)
        >>> scaler.scale(lucid.tensor(2.0)), scaler.get_scale()
        (tensor(2.), 1.0)
    """

    def __init__(self, device: str = "cuda", enabled: bool = True, **options: Any) -> None:
        pass

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
