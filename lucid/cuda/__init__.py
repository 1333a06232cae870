"""What programs ask about GPUs before they fall back to the CPU: there are none."""

from __future__ import annotations

from lucid.cuda import amp as amp
from lucid.ir import frames


def is_available() -> bool:
    """Return False: lucid runs on the CPU."""
    return False


def device_count() -> int:
    """Return 0."""
    return 0


def manual_seed(seed: int) -> None:
    """Do nothing: there is no generator on a GPU."""


def manual_seed_all(seed: int) -> None:
    """Do nothing: there is no generator on a GPU."""


def synchronize(device: object = None) -> None:
    """Do nothing: nothing runs in the background."""


def empty_cache() -> None:
    """Do nothing: there is no memory on a GPU."""


frames.edge_of_module(__name__)
