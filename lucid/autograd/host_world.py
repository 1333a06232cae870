"""Where a custom Function's methods run on the host: on copies, in a context of their own.

A compiled step calls Python in the middle. What it is called with is lent memory of the step, so
the user's code gets tensors of its own; and it runs as in eager mode, whatever the thread is doing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from lucid.autograd.node import Node
from lucid.ir.errors import LucidError
from lucid.ir.location import Location
from lucid.ir.memory import read_only
from lucid.ir.types import type_of_array
from lucid.tensor.context import Lending, _Context, context
from lucid.tensor.core import TensorCore, _new
from lucid.tensor.storage import Storage, VersionCounter
from lucid.tensor.tensor import Tensor
from lucid.tensor.tree import children_of, map_tree

Made = TypeVar("Made")
NOWHERE = Node((), ())  # the end of an edge whose gradient leaves the host


_KEPT = "lent", "repeats", "compared"
_NEW_THREAD = {x: y for x, y in vars(_Context()).items() if x not in _KEPT}
_LISTS = [key for key, x in _NEW_THREAD.items() if isinstance(x, list)]


def eager_thread(grad_enabled: bool) -> dict[str, Any]:
    """The state of a thread in eager mode in which nothing goes on."""
    return _NEW_THREAD | {key: [] for key in _LISTS} | {"grad_enabled": grad_enabled}


class EagerThread:
    """Lets the thread be in eager mode, with nothing going on but the block."""

    __slots__ = ("_before", "_grad_enabled")

    def __init__(self, grad_enabled: bool) -> None:
        self._grad_enabled = grad_enabled
        self._before = vars(context).copy()

    def __enter__(self) -> None:
        vars(context).update(eager_thread(self._grad_enabled))

    def __exit__(self, *error: object) -> None:
        vars(context).update(self._before)


class Slot:
    """Stands in captured arguments for a tensor, or for a number of each call: a float, a size.

    Attributes:
        number: which operand of the host call it is.
    """

    __slots__ = ("is_number", "number", "requires_grad")

    def __init__(self, number: int, is_number: bool, requires_grad: bool) -> None:
        self.number = number
        self.is_number = is_number
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

        def filled(leaf: Any, _: str) -> Any:
            return operands[leaf.number] if isinstance(leaf, Slot) else leaf

        return map_tree(filled, tree)

    def is_left_by(self, operands: Sequence[Any], value: Any) -> bool:
        """Whether a container that was filled for a call is as it was, after the call."""
        if type(self.tree) is Slot or not self.has_slots:
            return True
        return _are_alike(self.fill(operands), value, set())


def _are_alike(one: Any, other: Any, known: set[int]) -> bool:
    if one is other or id(other) in known:
        return True
    parts, others = children_of(one), children_of(other)
    if parts is None or others is None:
        return type(one) is type(other) in (int, float, bool, str) and one == other
    known.add(id(other))
    return [*parts] == [*others] and all(
        _are_alike(part, others[key], known) for key, part in parts.items()
    )


def lend(arrays: Sequence[np.ndarray], slots: Sequence[Slot]) -> list[Any]:
    """The operands of a call as tensors in memory of their own, and as numbers."""
    return [
        array.item() if slot.is_number else _own(array, slot.requires_grad)
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
    """A tensor from outside that host code can reach.

    The step writes what it changes at its end, and not before. So where it has changed the tensor
    by the time of the call, the call gets the new content lent.

    Attributes:
        given: which operand is the content at the time of the call; None: what is there.
        is_array: the call reaches an array of NumPy's there, whose writes nobody sees.
    """

    storage: Storage
    path: str
    given: int | None = None
    is_array: bool = False

    @property
    def memory(self) -> np.ndarray:
        array = self.storage.array
        assert array is not None
        return array


class Outside:
    """Tensors from outside while a host call runs: they hold what eager has, and stay as they are.

    Writes would have to be results of the call. So lucid's raise before they are done, and NumPy
    gets memory that can't be written.

    Args:
        gradients: tensors with the gradients that they have, which a call must leave there.

    Attributes:
        kept: what is put back.
    """

    def __init__(
        self,
        states: Sequence[State],
        arrays: Sequence[np.ndarray],
        refuse: Callable[[State], NoReturn],
        gradients: Sequence[tuple[TensorCore, Any, State]] = (),
    ) -> None:
        self.states = {state.storage: state for state in states}
        self.kept: dict[Storage, np.ndarray] = {}
        self._arrays = arrays
        self._refuse = refuse
        self._gradients = gradients
        self._around: Lending | None = None

    def begin(self) -> None:
        """Let the tensors hold what eager has."""
        for state in self.states.values():
            if state.given is not None:
                self.kept[state.storage] = np.array(state.memory)
                np.copyto(state.memory, self._arrays[state.given])
        self._around, context.lent = context.lent, self

    def look(self) -> None:
        """See what the call has done."""
        for tensor, gradient, state in self._gradients:
            if tensor._gradient is not gradient:
                self._refuse(state)
        for state in self.states.values():
            if state.is_array and state.given is not None:
                lent = self._arrays[state.given]
                if state.memory.tobytes() != lent.tobytes():
                    self._refuse(state)

    def put_back(self) -> None:
        """Let the tensors hold what they did; not for the first time is fine."""
        for storage, before in self.kept.items():
            np.copyto(self.states[storage].memory, before)
        for tensor, gradient, _ in self._gradients:
            tensor._gradient = gradient

    def before_write(self, storage: Storage, counter: VersionCounter | None = None) -> None:
        """Refuse what is to be written, if it is one of them."""
        if storage in self.states:
            self._refuse(self.states[storage])
        if self._around is not None:
            self._around.before_write(storage, counter)

    def shown(self, storage: Storage, array: np.ndarray) -> np.ndarray:
        """What NumPy gets for a tensor's memory."""
        if storage in self.states:
            return read_only(array)
        return array if self._around is None else self._around.shown(storage, array)


def in_eager_mode(grad_enabled: bool, outside: Outside, run: Callable[[], Made]) -> Made:
    """What `run()` returns, in eager mode.

    Whoever interrupts it finds the thread and the tensors as they were.
    """
    thread = EagerThread(grad_enabled)
    try:
        thread.__enter__()
        outside.begin()
        made = run()
        outside.look()
        outside.put_back()
        thread.__exit__()
    except BaseException:
        outside.put_back()
        thread.__exit__()
        raise
    return made


def refuse_write(name: str, line: tuple[str, int] | None, state: State) -> NoReturn:
    """Raise for a write to a tensor from outside: had it been seen, there would be no program."""
    raise LucidError(
        f"{name} writes {state.path} in place, which it didn't do when the step was traced"
        f"{place_text(line)}\nhint: return the new content, and write it in the step"
    )


def place_text(line: tuple[str, int] | None) -> str:
    """The user's line that called the Function, for messages."""
    if line is None:
        return ""
    location = Location(*line)
    return f"\n  in {location}   {location.text}".rstrip()
