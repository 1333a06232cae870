"""What programs ask about other processes before they train in one alone: there are none."""

from __future__ import annotations

from lucid.ir import frames


def is_available() -> bool:
    """Return False: lucid runs in one process, so programs that ask don't form a group of them.

    >>> lucid.distributed.is_available()
    False
    """
    return False


def is_initialized() -> bool:
    """Return False: the process belongs to no group.

    >>> lucid.distributed.is_initialized()
    False
    """
    return False


frames.edge_of_module(__name__)
