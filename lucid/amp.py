"""Mixed precision as programs switch it off: lucid computes in the dtypes of its tensors."""

from __future__ import annotations

from typing import Any, Self

from lucid.ir.errors import OptionError


class autocast:  # noqa: N801 - PyTorch's name
    """A context that does nothing; `enabled=True` is refused, for there is no shorter float.

    Raises: `OptionError` when it is entered enabled.
    """

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if enabled:
            raise OptionError(
                "autocast: there are no shorter floats than float32\nhint: pass enabled=False"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


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
