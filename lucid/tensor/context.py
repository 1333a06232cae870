"""What the running thread is doing: whether gradients are recorded, and into which trace."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    import numpy as np

    from lucid.autograd.engine import BackwardRun
    from lucid.autograd.hooks import SavedTensorHooks
    from lucid.autograd.host_replay import MadeHostCall
    from lucid.autograd.private import CustomForward
    from lucid.autograd.saved import MutationGuard
    from lucid.tensor.core import TensorCore
    from lucid.tensor.levels import Level
    from lucid.tensor.recording import Recording
    from lucid.tensor.storage import Storage, VersionCounter


R = TypeVar("R")


class Lending(Protocol):
    """A call after which tensors from outside are to be what they were before it."""

    def before_write(self, storage: Storage, counter: VersionCounter | None = None) -> None:
        """Copy what is needed of memory that is about to be written."""

    def shown(self, storage: Storage, array: np.ndarray) -> np.ndarray:
        """What NumPy gets for a tensor's memory."""


class _Context(threading.local):
    """One per thread.

    Attributes:
        grad_enabled: whether ops record what their gradients need.
        recorder: the trace that ops are recorded into; None in eager mode.
        forward: the custom forward that runs with gradients off but may be differentiated later.
        saved_hooks: the hooks on saved tensors that are in force, innermost last.
        saved_hooks_refused: why no such hooks may be set; None: they may.
        mutation_guard: keeps saved tensors as they were when somebody writes to them in place.
        saving: how many blocks say what becomes of saved tensors; None: none.
        by_numpy: whether Functions run op by op, to be compared with; None: they may be programs.
        levels: the transformations that run (vmap, forward-mode derivatives), innermost last.
        visible: how many of the levels' tangents ops see: the rule of a level's tangents computes
            with what is outside of it.
        backward_run: the backward walk that is going on, the innermost one.
        backward_depth: how many of them are inside one another.
        anomaly: whether backwards are watched for NaN; None outside of anomaly mode.
        lent: in a host call, or a checkpointed block, what keeps tensors from outside as they were.
        contexts: what host calls of a compiled call leave for its backward; None: nobody asks.
        replay: what host calls of an earlier run did, and those of this run need not do.
        told: what its exits have asked, and the outcomes, for a trace.
        op_by_op: whether a compiled function runs as plain Python, since no trace can have it.
        repeats: whether what was computed is computed again, for what a checkpointed block has
            saved or to be compared: `lucid.debug` calls nobody then.
        interprets: whether what the latest trace made runs on the user's lines.
    """

    def __init__(self) -> None:
        self.grad_enabled = True
        self.recorder: Recording | None = None
        self.repeats = False
        self.interprets = False
        self.forward: CustomForward | None = None
        self.saved_hooks: list[SavedTensorHooks] = []
        self.saved_hooks_refused: str | None = None
        self.mutation_guard: MutationGuard | None = None
        self.saving: int | None = None
        self.by_numpy: bool | None = None
        self.levels: list[Level] = []
        self.visible = sys.maxsize
        self.backward_run: BackwardRun | None = None
        self.backward_depth = 0
        self.anomaly: bool | None = None
        self.lent: Lending | None = None
        self.contexts: dict[Any, Any] | None = None
        self.replay: list[MadeHostCall] | None = None
        self.told: Sequence[tuple[str, int]] = ()
        self.op_by_op = False


context = _Context()


def within(state: dict[str, Any], function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
    """What a function returns that runs with some of the thread's state set to something else.

    An interrupt can't leave that behind, as it can with a `with` block: Python looks for signals
    where functions begin, an `__exit__` as well, and behind calls.
    """
    present = vars(context)
    before = {name: present[name] for name in state}
    try:
        present.update(state)
        return function(*args, **kwargs)
    finally:
        present.update(before)


@contextmanager
def repeating() -> Iterator[None]:
    """In the block what was computed is computed again."""
    before, context.repeats = context.repeats, True
    try:
        yield
    finally:
        context.repeats = before


class _Epoch:
    """Counts changes to what a compiled step was specialized on: flags, parameters, storages.

    A compiled step checks its guards in full only when the count moved since its last call.

    Attributes:
        movers: classes whose objects count each change of theirs, as Modules do.
        watched: tensors whose flags guards look at, by identity.
    """

    __slots__ = ("count", "movers", "watched")

    def __init__(self) -> None:
        self.count = 0
        self.movers: tuple[type, ...] = ()
        self.watched: WeakValueDictionary[int, TensorCore] = WeakValueDictionary()


epoch = _Epoch()
