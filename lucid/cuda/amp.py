"""The names of `lucid.amp` where older programs import them from."""

from __future__ import annotations

from typing import Any

from lucid.amp import GradScaler as GradScaler
from lucid.amp import autocast as _autocast
from lucid.amp import custom_bwd as custom_bwd
from lucid.amp import custom_fwd as custom_fwd


class autocast(_autocast):  # noqa: N801 - PyTorch's name
    """`lucid.autocast("cuda", …)`, which does nothing: there is no GPU."""

    def __init__(
        self, enabled: bool = True, dtype: Any = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)
