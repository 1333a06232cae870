"""The names of `lucid.amp` where older programs import them from."""

from __future__ import annotations

from typing import Any

from lucid.amp import (
    GradScaler as _GradScaler,
    autocast as _autocast,
    custom_bwd as custom_bwd,
    custom_fwd as custom_fwd,
)


class autocast(_autocast):  # noqa: N801 - PyTorch's name
    """`lucid.autocast("cuda", …)`, which does nothing: there is no GPU."""

    def __init__(
        self, enabled: bool = True, dtype: Any = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`lucid.amp.GradScaler("cuda", …)`, which is off: there is no GPU."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
