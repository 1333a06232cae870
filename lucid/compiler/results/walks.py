"""The backward of a compiled function's results, as a compiled function of its own.

Its trace lets the stand-ins that a tape has left hold its arguments, and walks through the nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lucid.autograd.entry_points import find_gradients
from lucid.autograd.node import Edge, GradientEdge, Node
from lucid.compiler.results.histories import Layer
from lucid.compiler.results.tape import Tape
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, of_array

if TYPE_CHECKING:
    from lucid.compiler.programs.native import NativeCalls
    from lucid.compiler.programs.program import Program
    from lucid.compiler.recording.recorder import Recorder
    from lucid.compiler.results.backward import Record


class Kind(NamedTuple):
    """What a backward computes.

    Attributes:
        layer: whose results it differentiates.
        sent: for each of these whether it has a gradient.
        wanted: numbers of the layer's ends whose gradients are asked for.
        is_open: whether it is itself differentiated.
    """

    layer: int
    sent: tuple[bool, ...]
    wanted: tuple[int, ...]
    is_open: bool


class Backward:
    """One kind of backward of a program's results, as a compiled function.

    Attributes:
        walk: what is compiled.
        walked: the nodes with something saved that it comes to, in its order.
    """

    def __init__(self, walk: Walk) -> None:
        from lucid.compiler.compiled import Compiled

        self.walk = walk
        self.walked = walk.nodes()
        self._compiled = Compiled(walk, is_paced=False)
        self.run: Callable[..., Sequence[TensorCore | None]] = self._compiled.call_natively

    @property
    def program(self) -> Program | None:
        """The one that ran last."""
        return self._compiled._latest

    def leaving(self, leaves: Sequence[TensorCore]) -> NativeCalls | None:
        """The native form that leaves the gradients on leaves; None: there is none by now.

        Its arguments are the gradients of results, then the arrays that a call has kept.
        """
        program = self._compiled._latest
        native = None if program is None else program.native
        return None if native is None else native.leaving(leaves, len(self.walk.kind.sent))


class Walk:
    """A walk through the nodes that a trace has left, from the results of one layer.

    Attributes:
        ctx_change: what a backward of the user's changes in its ctx, for messages.
    """

    def __init__(
        self, kind: Kind, layer: Layer, tape: Tape, users: Callable[..., Any] | None
    ) -> None:
        self.__name__ = "backward"
        if users is not None:  # what code of theirs reads is watched
            self.__wrapped__ = users
        self.kind = kind
        self._layer = layer
        self._tape = tape
        pairs = zip(layer.outputs, kind.sent, strict=True)
        self._roots = [GradientEdge(*output.root) for output, is_sent in pairs if is_sent]
        self._wanted = [GradientEdge(*layer.ends[i]) for i in kind.wanted]
        self.ctx_change: str | None = None

    def nodes(self) -> list[Node]:
        """The nodes with something saved that it comes to, in its order."""
        return self._tape.walked(self._roots, {*self._layer.ends}, {*self._wanted})

    def __call__(self, *arguments: Any) -> tuple[TensorCore | None, ...]:
        """In a trace, the gradients at the ends of the layer.

        arguments: gradients of the results, and what a call has kept.
        """
        recorder, is_open, tape = context.recorder, self.kind.is_open, self._tape
        assert recorder is not None
        recorder.ctx_change = None
        recorder.hosts.know(running.contexts)
        count = len(self._roots)
        gradients, kept = arguments[:count], arguments[count:]
        numbers = [_live_number(recorder, i) for i in range(len(tape.formulas))]
        if is_open:
            ends = [*self._layer.ends, *(output.root for output in self._layer.outputs)]
            recorder.ends = {edge: _placeholder(edge) for edge in ends}

        def walked() -> list[TensorCore | None]:
            return find_gradients(self._roots, self._wanted, gradients, True, is_open, is_part=True)

        found = tape.walk(kept, numbers, walked, with_hidden=is_open)
        self.ctx_change = recorder.ctx_change
        return tuple(x if x is None or is_open else _whole(x) for x in found)


def _placeholder(edge: Edge) -> TensorCore:
    type = edge[0]._output_types[edge[1]]
    return of_array(np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape))


def _whole(gradient: TensorCore) -> TensorCore:
    """A gradient in row-major memory of its own, as leaves have theirs."""
    return gradient._own_copy() if gradient._chain else gradient


class _Running(threading.local):
    """Which call's backward is running.

    Attributes:
        record: that of the call.
        edges: of its node: where the gradients go; and where those of its outputs do.
        contexts: what host calls of the call have left.
        numbers: the Python numbers that it has kept.
    """

    record: Record | None = None
    edges: Sequence[Edge | None] = ()
    contexts: dict[Any, Any] = {}  # noqa: RUF012 - never written
    numbers: Sequence[float] = ()


running = _Running()


def _live_number(recorder: Recorder, number: int) -> Any:
    """A number that each call has kept."""

    def read() -> float:
        return running.numbers[number]

    text = recorder.unused_text(f"number {number} that a ctx holds")
    return recorder.live_scalar(text, read(), lambda call: read(), read)
