"""What a trace records once and copies for other tensors: an optimizer's update of a parameter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lucid.ir.clone import copy_node
from lucid.ir.graph import Graph, Node, Value
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, of_value
from lucid.tensor.writing import write_

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What some work has recorded.

    Attributes:
        found: the values of its tensors before; nodes: those that depend on them.
        outer: what else these read: numbers, and what is computed of numbers alone.
        written: positions of the tensors that it wrote, the new values, and how often it did.
    """

    found: list[Value]
    nodes: list[Node]
    outer: list[Value]
    written: list[tuple[int, Value, int]]

    def repeat(self, graph: Graph, found: list[Value], tensors: Sequence[TensorCore]) -> None:
        """Append the same for other tensors."""
        mapping = dict(zip(self.outer, self.outer, strict=True))
        mapping.update(zip(self.found, found, strict=True))
        for node in self.nodes:
            graph.nodes.append(copy_node(node, graph, mapping))
        for position, value, count in self.written:
            target = tensors[position]
            write_(target, of_value(mapping[value]))
            target._counter.value += count - 1


class Repetition:
    """Does the same work for many lists of tensors: again by Python only where types differ.

    The work reads and writes these tensors, looks at no value of theirs, and records no history.
    What it does with numbers alone it does once.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: dict[Hashable, _Recorded | None] = {}

    def __call__(
        self, what: Hashable, tensors: Sequence[TensorCore], work: Callable[[], object]
    ) -> None:
        """Record `work()`, which `what` and the types of the tensors decide."""
        if context.levels:  # whose rules record other ops
            work()
            return
        graph = self._recorder.graph
        found = [self._recorder.value_of(tensor) for tensor in tensors]
        if len(set(found)) < len(found):
            work()
            return
        views = [bool(tensor._chain) for tensor in tensors]
        key = what, *views, *(value._type for value in found)
        known = self._known.get(key)
        if known is not None:
            known.repeat(graph, found, tensors)
            return
        start, counts = len(graph.nodes), [tensor._counter.value for tensor in tensors]
        work()
        self._known[key] = self._noted(graph.nodes[start:], found, tensors, counts)

    def _noted(
        self,
        nodes: Sequence[Node],
        found: list[Value],
        tensors: Sequence[TensorCore],
        counts: Sequence[int],
    ) -> _Recorded | None:
        if any(node.op.has_effect for node in nodes):
            return None
        own, kept, outer = set(found), [], dict[Value, None]()
        for node in nodes:
            if not own.isdisjoint(node.operands):
                own.update(node.results)
                kept.append(node)
        for node in kept:
            outer.update(dict.fromkeys(x for x in node.operands if x not in own))
        written = []
        for position, (tensor, before) in enumerate(zip(tensors, counts, strict=True)):
            if tensor._counter.value != before:
                if tensor._chain:
                    return None
                value = self._recorder.value_of(tensor)
                written.append((position, value, tensor._counter.value - before))
        outer.update(dict.fromkeys(value for _, value, _ in written if value not in own))
        return _Recorded(found, kept, list(outer), written)
