"""What programs ask about other processes before they train in one alone: there are none."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid.docstrings import like
from lucid.ir import frames
from lucid.ir.errors import LucidError


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


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error: no other process forms a group with this one; programs import the name.

    Args:
        args, kwargs: what PyTorch's takes.

    Raises:
        LucidError: always.

    >>> lucid.distributed.init_process_group("gloo")
    Traceback (most recent call last):
    lucid.ir.errors.LucidError: distributed: lucid runs in one process, which belongs to no group
    hint: ask lucid.distributed.is_available() before
    """
    raise LucidError(
        "distributed: lucid runs in one process, which belongs to no group\n"
        "hint: ask lucid.distributed.is_available() before"
    )


@like(init_process_group)
def destroy_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error: there is no group that could be left."""
    init_process_group()


@like(init_process_group)
def get_rank(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error: the process has no number in a group."""
    init_process_group()


@like(init_process_group)
def get_world_size(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error: there is no group that would have a size."""
    init_process_group()


class DistributedDataParallel:
    """A module that the processes of a group train together: an error when it is made.

    Programs import the class, and ask whether their module is one.

    Args:
        args, kwargs: what PyTorch's takes.

    Raises:
        LucidError: always.

    >>> isinstance(nn.Linear(1, 1), lucid.distributed.DistributedDataParallel)
    False
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        init_process_group()


frames.edge_of_module(__name__)
