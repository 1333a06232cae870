"""What programs ask about accelerators of any maker before they take the CPU: there are none."""

from __future__ import annotations

from lucid.choices import check_flag
from lucid.cuda import device_count as device_count, is_available as is_available
from lucid.ir import frames


def current_accelerator(check_available: bool = False) -> None:
    """Return None, for there is no accelerator: `is_available()` is False.

    Args:
        check_available: whether one that this machine lacks counts as none; there is none anyway.

    Raises:
        ArgumentError: it is neither True nor False.

    >>> accelerator = lucid.accelerator
    >>> accelerator.current_accelerator().type if accelerator.is_available() else "cpu"
    'cpu'
    """
    check_flag(check_available, "check_available", "accelerator.current_accelerator")


frames.edge_of_module(__name__)
