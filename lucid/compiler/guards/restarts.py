"""What a trace must know from its start, and may find out only later: then it begins again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lucid.autograd.function import Function
    from lucid.autograd.host_finding import OpenAxis
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


@dataclass(slots=True, eq=False)
class Known:
    """What traces know from their start.

    Attributes:
        counts: ints and texts among the arguments that are read at each call, by the user's
            expressions.
        sources: the mutable ones that it binds, or that move.
        kept: containers among the arguments that are state, by the user's expressions.
        inside: of the mutable sources, those in what others hold, which are known by these.
        hosts: code of the methods that run in Python in this call.
        state: memory of arguments of this call that is state of the step as well.
        unrolled: lines of loops whose rounds aren't all the same.
        lengths: of ranges at places that move, when they were looked at first, by line and place
            in the index.
        looked_at: lines with indices that must be known; taken: those where the trace takes data
            from a container by such as move.
        shared: lines whose `numpy()` is of constants, on memory that the step writes or keeps.
        lists: among the arguments that the trace reads live; exact: those that no trace does.
        opened: axes of what functions find whose sizes differ from call to call; closed: those
            whose sizes must be known all the same; least: from which size on others are open;
            may_open: whether more may be opened.
        types: of the tensors that earlier traces were given.
        undo: takes back what the trace has created in Python, while nobody has taken over.
        warnings: give those that the trace has met, where an error ends it.
        functions: where the trace keeps its calls of custom Functions; None: nobody asks.
    """

    counts: set[str]
    sources: dict[Identity, MutableSource]
    kept: set[str] = field(default_factory=set)
    inside: set[Identity] = field(default_factory=set)
    opened: set[OpenAxis] = field(default_factory=set)
    closed: set[OpenAxis] = field(default_factory=set)
    least: dict[OpenAxis, int] = field(default_factory=dict)
    may_open: bool = False
    types: Sequence[Sequence[TensorType]] = ()
    lengths: dict[tuple[Location | None, int], int] = field(default_factory=dict)
    hosts: set[object] = field(default_factory=set)
    state: set[Storage] = field(default_factory=set)
    unrolled: set[Location | None] = field(default_factory=set)
    looked_at: set[Location | None] = field(default_factory=set)
    taken: set[Location | None] = field(default_factory=set)
    shared: set[Location | None] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    exact: set[str] = field(default_factory=set)
    undo: list[Callable[[], object]] = field(default_factory=list)
    warnings: Sequence[Callable[[], None]] = ()
    functions: list[FunctionCall] | None = None


class RestartTrace(BaseException):
    """A trace has to begin again.

    No `Exception`, so that a program that is being traced doesn't catch it.

    Attributes:
        reason: what the function does, for messages.
        kind: what of `Known` is to have more in it; found: that.
    """

    def __init__(self, reason: str, kind: str = "", found: Iterable[Any] = ()) -> None:
        self.reason, self.kind, self.found = reason, kind, found

    def enter(self, known: Known) -> None:
        """Let the next trace know it."""
        if self.kind:
            getattr(known, self.kind).update(self.found)


def undo_all(callbacks: list[Callable[[], object]], start: int = 0) -> None:
    """Take back Python state that was created for a step; again after an interrupt."""
    for callback in reversed(callbacks[start:]):
        callback()
    del callbacks[start:]
