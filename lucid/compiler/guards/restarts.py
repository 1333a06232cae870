"""Restarts: a trace finds out late what it must know from its start, and begins again with that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lucid.autograd.function import Function
    from lucid.autograd.host_replay import OpenAxis
    from lucid.compiler.guards.mutable_sources import Identity, MutableSource
    from lucid.ir.location import Location
    from lucid.ir.types import TensorType
    from lucid.tensor.storage import Storage

MOST_RESTARTS = 64  # of the trace for one call


@dataclass(frozen=True, slots=True, eq=False)
class FunctionCall:
    """A call of a custom Function in a trace, with values of the graph in the place of tensors.

    Attributes:
        needed: of each argument, whether it has a gradient.
    """

    function: type[Function]
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    needed: tuple[bool, ...]
    line: Location | None


@dataclass(eq=False)
class Lasting:
    """What all traces of a function know from their start once one has found it.

    Attributes:
        counts: ints and texts among the arguments that are read at each call, by the user's
            expressions; lists among them too, but for those that are exact.
        sources: the mutable sources that the step binds or reads at each call.
        kept: containers among the arguments that are state, by the user's expressions.
        opened: axes whose sizes differ from call to call; closed: those of them whose sizes must
            be known all the same; least: the least open size, where it isn't the usual one;
            may_open: whether more axes may be opened.
        lengths: first lengths of ranges with live bounds in an index, by line and place there.
        at_once: lines of calls that could follow the native step, but whose effects the step uses.
    """

    counts: set[str] = field(default_factory=set)
    sources: dict[Identity, MutableSource] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    exact: set[str] = field(default_factory=set)
    opened: set[OpenAxis] = field(default_factory=set)
    closed: set[OpenAxis] = field(default_factory=set)
    least: dict[OpenAxis, int] = field(default_factory=dict)
    may_open: bool = False
    lengths: dict[tuple[Location | None, int], int] = field(default_factory=dict)
    at_once: set[Location | None] = field(default_factory=set)


@dataclass(eq=False)
class Known(Lasting):
    """What the traces for one call know from their start; a `RestartTrace` adds to it.

    Attributes:
        inside: the mutable sources in values of others, which are arguments as a whole.
        hosts: code of the methods that run in Python in this call.
        state: memory of arguments of this call that is state of the step as well.
        unrolled: lines of loops that are to be unrolled, as rounds differ.
        looked_at: lines whose indices must be exact; taken: lines where the running trace takes
            data from a container by a live index.
        lists: list arguments that the running trace reads live.
        types: of the tensors that earlier traces were given.
        undo: takes back what the trace has created in Python, until a program owns that.
        warnings: give the warnings that the trace has deferred, if an error ends it.
        functions: where the trace keeps its calls of custom Functions; None: nobody asks.
    """

    inside: set[Identity] = field(default_factory=set)
    types: Sequence[Sequence[TensorType]] = ()
    hosts: set[object] = field(default_factory=set)
    state: set[Storage] = field(default_factory=set)
    unrolled: set[Location | None] = field(default_factory=set)
    looked_at: set[Location | None] = field(default_factory=set)
    taken: set[Location | None] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    undo: list[Callable[[], object]] = field(default_factory=list)
    warnings: Sequence[Callable[[], None]] = ()
    functions: list[FunctionCall] | None = None


class RestartTrace(BaseException):
    """A trace has to begin again.

    No `Exception`, so that a program that is being traced doesn't catch it.

    Attributes:
        reason: what the function does, for messages.
        kind: the attribute of `Known` to be extended; found: the items for it.
    """

    def __init__(self, reason: str, kind: str = "", found: Iterable[Any] = ()) -> None:
        self.reason, self.kind, self.found = reason, kind, found

    def enter(self, known: Known) -> None:
        """Add what was found to what the next trace knows."""
        if self.kind:
            getattr(known, self.kind).update(self.found)


def undo_all(callbacks: list[Callable[[], object]], start: int = 0) -> None:
    """Take back Python state that was created for a step; again after an interrupt."""
    for callback in reversed(callbacks[start:]):
        callback()
    del callbacks[start:]
