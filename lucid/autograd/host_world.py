"""Where a custom Function's methods run on the host: on copies, in a context of their own.

A compiled step calls Python in the middle. What it is called with is lent memory of the step, so
the user's code gets tensors of its own; and it runs as in eager mode, whatever the thread is doing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from lucid.autograd.node import Node
from lucid.ir.location import Location
from lucid.ir.types import type_of_array
from lucid.tensor.context import Lending, _Context, context
from lucid.tensor.core import _new
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor

Made = TypeVar("Made")
NOWHERE = Node((), ())  # the end of an edge whose gradient leaves the host


_NEW_THREAD = {key: x for key, x in vars(_Context()).items() if key != "lent"}
_LISTS = [key for key, x in _NEW_THREAD.items() if isinstance(x, list)]


class EagerThread:
    """Lets the thread be in eager mode, with nothing going on but the block."""

    __slots__ = ("_before", "_grad_enabled")

    def __init__(self, grad_enabled: bool) -> None:
        self._grad_enabled = grad_enabled
        self._before = vars(context).copy()

    def __enter__(self) -> None:
        state = vars(context)
        state.update(_NEW_THREAD)
        for key in _LISTS:
            state[key] = []
        state["grad_enabled"] = self._grad_enabled

    def __exit__(self, *error: object) -> None:
        vars(context).update(self._before)


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
        tree = self.tree
        if type(tree) is Slot:
            return operands[tree.number]
        if not self.has_slots:
            return tree
        from lucid.compiler.inputs.tree import map_tree

        def filled(leaf: Any, _: str) -> Any:
            return operands[leaf.number] if isinstance(leaf, Slot) else leaf

        return map_tree(filled, tree)


def lend(arrays: Sequence[np.ndarray], slots: Sequence[Slot]) -> list[Any]:
    """The operands of a call as tensors in memory of their own, and as floats."""
    return [
        float(array) if slot.is_float else _own(array, slot.requires_grad)
        for array, slot in zip(arrays, slots, strict=False)
    ]


def _own(array: np.ndarray, requires_grad: bool) -> Tensor:
    storage = Storage(type_of_array(array))
    storage.array = copy = np.array(array, order="C")
    tensor = _new(storage, storage.root_type, copy, ())
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


SHOWN_BYTES = 1 << 20  # larger tensors from outside are shown to NumPy as read-only


class Changes:
    """What a host call does to tensors from outside; in its block they hold what eager has.

    Afterwards they are put back: the step writes what the call changed with all else. What it is
    not known to change, and did, is put back from a copy that is made before.

    Attributes:
        contents: after the call, of those that it is known to write, by their `result`.
        moved: how far the version of each went.
        surprise: one that it is not known to write, and wrote.
    """

    def __init__(self, states: Sequence[State], arrays: Sequence[np.ndarray]) -> None:
        self._states = states
        self._arrays = arrays
        self._kept: list[tuple[State, np.ndarray]] = []
        self._copies: dict[Storage, np.ndarray] = {}
        self._versions: list[int] = []
        self._around: Lending | None = None
        self.moved: list[int] = []
        self.contents: dict[int, np.ndarray] = {}
        self.surprise: State | None = None

    def begin(self) -> None:
        """Let the tensors hold what eager has."""
        for state in self._states:
            self._versions.append(state.counter.value)
            if state.given is not None or state.result is not None:
                self._kept.append((state, np.array(_memory(state))))
                if state.given is not None:
                    np.copyto(_memory(state), self._arrays[state.given])
        self._around, context.lent = context.lent, self

    def put_back(self) -> None:
        """Let the tensors hold what they did; not for the first time is fine."""
        for state, before in self._kept:
            np.copyto(_memory(state), before)
        for storage, before in self._copies.items():
            assert storage.array is not None
            np.copyto(storage.array, before)
        for state, version in zip(self._states, self._versions, strict=False):
            state.counter.value = version  # versions move with the step, as counted by the trace

    def before_write(self, storage: Storage, counter: VersionCounter | None = None) -> None:
        """Keep a copy of what the call is not known to write, and may write now."""
        if self._is_unknown(storage):
            self._copies[storage] = np.array(storage.array)
        if self._around is not None:
            self._around.before_write(storage, counter)

    def shown(self, storage: Storage, array: np.ndarray) -> np.ndarray:
        """What NumPy gets for a tensor's memory."""
        if array.nbytes > SHOWN_BYTES and self._is_unknown(storage):
            array = array.view()
            array.flags.writeable = False
        else:
            self.before_write(storage)
        return array

    def _is_unknown(self, storage: Storage) -> bool:
        if storage in self._copies:
            return False
        return any(
            state.storage is storage and state.given is None and state.result is None
            for state in self._states
        )

    def look(self) -> None:
        """See what there is now."""
        for state, version in zip(self._states, self._versions, strict=True):
            moved = state.counter.value - version
            self.moved.append(moved)
            if state.result is not None:
                self.contents[state.result] = np.array(_memory(state), order="C")
            elif (moved or self._differs(state)) and self.surprise is None:
                self.surprise = state

    def _differs(self, state: State) -> bool:
        """Whether NumPy wrote what it was shown."""
        copy = self._copies.get(state.storage)
        return copy is not None and copy.tobytes() != _memory(state).tobytes()


def in_eager_mode(grad_enabled: bool, changes: Changes, run: Callable[[], Made]) -> Made:
    """What `run()` returns, in eager mode; what it does to tensors from outside is in `changes`.

    Whoever interrupts it finds the thread and the tensors as they were.
    """
    thread = EagerThread(grad_enabled)
    try:
        thread.__enter__()
        changes.begin()
        made = run()
        changes.look()
        changes.put_back()
        thread.__exit__()
    except BaseException:
        changes.put_back()
        thread.__exit__()
        raise
    return made


def _memory(state: State) -> np.ndarray:
    assert state.storage.array is not None
    return state.storage.array


def place_text(line: tuple[str, int] | None) -> str:
    """The user's line that called the Function, for messages."""
    if line is None:
        return ""
    location = Location(*line)
    return f"\n  in {location}   {location.text}".rstrip()
