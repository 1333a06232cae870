"""Mixed precision as programs switch it off: lucid computes in the dtypes of its tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from lucid.ir.errors import OptionError
from lucid.ir.frames import edge_of_module
from lucid.ir.location import warn

Function = Callable[..., Any]


class autocast:  # noqa: N801 - PyTorch's name
    """A context or decorator that does nothing: there is no shorter float.

    For a GPU `enabled=True` warns, as PyTorch does where there is none.

    Raises: `OptionError` for one that is enabled for the CPU.
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
    """Return False."""
    return False


def custom_fwd(
    fwd: Function | None = None, *, device_type: str = "cuda", cast_inputs: Any = None
) -> Function:
    """Return the forward of a custom Function as it is: it is never called with autocast on."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    return fwd


def custom_bwd(bwd: Function | None = None, *, device_type: str = "cuda") -> Function:
    """Return the backward of a custom Function as it is."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    return bwd


class GradScaler:
    """A scaler of losses that is off, as PyTorch's is without a GPU."""

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


edge_of_module(__name__)
