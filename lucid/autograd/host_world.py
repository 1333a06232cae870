"""Where a custom Function's methods run on the host: on copies, in a context of their own.

A compiled step calls Python in the middle. What it is called with is lent memory of the step, so
the user's code gets tensors of its own; and it runs as in eager mode, whatever the thread is doing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.autograd.node import Node
from lucid.ir.location import Location
from lucid.tensor.context import _Context, context
from lucid.tensor.core import of_array
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor

NOWHERE = Node((), ())  # the end of an edge whose gradient leaves the host


@contextmanager
def eager_thread(grad_enabled: bool) -> Iterator[None]:
    """Let the thread be in eager mode, with nothing going on but the block."""
    state = vars(context)
    before = state.copy()
    state.update(vars(_Context()))
    context.grad_enabled = grad_enabled
    try:
        yield
    finally:
        state.update(before)


class Slot:
    """Stands in captured arguments for a tensor, or for a float that is read at each call.

    Attributes:
        number: which operand of the host call it is.
    """

    __slots__ = ("is_float", "number", "requires_grad")

    def __init__(self, number: int, is_float: bool, requires_grad: bool) -> None:
        self.number = number
        self.is_float = is_float
        self.requires_grad = requires_grad


@dataclass(frozen=True, slots=True)
class Captured:
    """A Python value, as it was while tracing, with slots for what each call brings."""

    tree: Any
    has_slots: bool

    def fill(self, operands: Sequence[Any]) -> Any:
        """The value for one call."""
        if not self.has_slots:
            return self.tree
        from lucid.compiler.tree import map_tree

        def filled(leaf: Any, _: str) -> Any:
            return operands[leaf.number] if isinstance(leaf, Slot) else leaf

        return map_tree(filled, self.tree)


def lend(arrays: Sequence[np.ndarray], slots: Sequence[Slot]) -> list[Any]:
    """The operands of a call as tensors in memory of their own, and as floats."""
    return [
        float(array) if slot.is_float else _own(array, slot.requires_grad)
        for array, slot in zip(arrays, slots, strict=False)
    ]


def _own(array: np.ndarray, requires_grad: bool) -> Tensor:
    tensor = of_array(np.array(array, order="C"))
    tensor._requires_grad = requires_grad
    return tensor


@dataclass(slots=True, eq=False)
class State:
    """A tensor from outside that host code can reach, and the step works with as well.

    The step writes what it changes at its end, and not before. So where it has changed the tensor
    by the time of the call, the call gets the new content lent; and what the call changes becomes
    a result of the call, to be written with all else.

    Attributes:
        given: which operand is the content at the time of the call; None: what is there.
        result: says, and in which order, that the content after the call is a result of it; None:
        the call doesn't write it.
    """

    storage: Storage
    counter: VersionCounter
    path: str
    given: int | None = None
    result: int | None = None


@contextmanager
def lent_state(states: Sequence[State], arrays: Sequence[np.ndarray]) -> Iterator[Changes]:
    """Let the tensors from outside hold what they would in eager mode; put them back afterwards."""
    changes = Changes(states)
    kept = [
        (state, np.array(state.storage.array))
        for state in states
        if state.given is not None or state.result is not None
    ]
    for state, _ in kept:
        if state.given is not None:
            np.copyto(_memory(state), arrays[state.given])
    changes.start()
    try:
        yield changes
        changes.stop()
    finally:
        for state, before in kept:
            np.copyto(_memory(state), before)
        changes.rewind()


def _memory(state: State) -> np.ndarray:
    assert state.storage.array is not None
    return state.storage.array


class Changes:
    """What a host call did to tensors from outside.

    Attributes:
        contents: after the call, of those that it is known to write, by their `result`.
        moved: how far the version of each went.
        surprise: one that it is not known to write, and wrote.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._states = states
        self._versions: list[int] = []
        self.moved: list[int] = []
        self.contents: dict[int, np.ndarray] = {}
        self.surprise: State | None = None

    def start(self) -> None:
        self._versions = [state.counter.value for state in self._states]

    def stop(self) -> None:
        """Look at what there is now."""
        pairs = zip(self._states, self._versions, strict=True)
        self.moved = [state.counter.value - version for state, version in pairs]
        for state, version in zip(self._states, self._versions, strict=True):
            if state.result is not None:
                self.contents[state.result] = np.array(_memory(state), order="C")
            elif state.counter.value != version and self.surprise is None:
                self.surprise = state

    def rewind(self) -> None:
        """Versions move when the step is over, by what was counted while tracing."""
        for state, version in zip(self._states, self._versions, strict=True):
            state.counter.value = version


def place_text(line: tuple[str, int] | None) -> str:
    """The user's line that called the Function, for messages."""
    if line is None:
        return ""
    location = Location(*line)
    return f"\n  in {location}   {location.text}".rstrip()
