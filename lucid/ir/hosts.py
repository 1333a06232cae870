"""Host calls: places in a graph where Python runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lucid.ir.errors import LucidError
from lucid.ir.extents import Extent

Frame = dict[object, Any]
"""What the host calls of one run of a graph leave for one another."""


SIZING = "what takes the sizes that a host call has found; gives why they don't fit, or None"
"""The key of a frame."""


class SizeFinder(Protocol):
    """A host call that finds sizes which are open in its results."""

    def sizes_of(self, found: Sequence[np.ndarray]) -> Mapping[Extent, int]:
        """What the open sizes are in what was found."""
        ...


class HostFunction(Protocol):
    """What a `host` node calls.

    The operands are only lent: it copies what it keeps. It returns an array for each result of the
    node, of its dtype and shape.
    """

    def __call__(self, frame: Frame, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]: ...


def host_function(hosts: Mapping[str, HostFunction], name: str) -> HostFunction:
    """The function of a name. Raises `LucidError` in a graph that was read from text."""
    function = hosts.get(name)
    if function is None:
        raise LucidError(
            f"host {name}: this graph has no Python function of that name\n"
            "hint: the text of a graph holds the names of host calls, not what they call; run the "
            "graph that was traced, or enter the function in `graph.hosts`"
        )
    return function
