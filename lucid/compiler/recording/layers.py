"""What a region op carries for tensors under levels: the plain ones that these are made of.

A loop in a graph knows no vmap and no forward-mode derivative. Of a handle it carries the tensor
behind it, with all examples, and of a tensor with a tangent both. In its body the levels that run
make such tensors of the stand-ins again, so that the round is recorded as their ops.

A handle has a history of its own, the tensor behind it another, so a body has one in each *layer*:
as it is seen outside of all vmaps, in the outermost one, and so on up to where the loop is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from lucid.autograd.node import Edge, Gradients, Node
from lucid.ir.types import TensorType
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore
from lucid.tensor.levels import Level

if TYPE_CHECKING:
    from lucid.compiler.recording.loops import RegionNode

Wanted = Callable[[int, int, TensorCore], bool]
"""Whether what is carried is to be a level's own: the level's position, its number, and itself."""


class BodyInput(Node):
    """The history of a stand-in for the carry or a row: where walks through the body end."""

    __slots__ = ()
    _is_end = True

    def __init__(self, type: TensorType) -> None:
        super().__init__((), (type,))

    def apply(self, gradients: Gradients) -> Gradients:
        return ()


@dataclass(slots=True, eq=False)
class Layer:
    """What a body is to one history.

    Attributes:
        level: the vmap whose handles are the innermost ones in it; None: outside of all.
        given: what the region op gets: the carry, and then rows.
        carries: how many of these are carried.
        inputs: of each of them the node at which walks end; None where none goes.
        results: the edges of the next carry and of the rows of ys; None: no gradient goes there.
        loop: the autograd node of the whole.
    """

    level: Level | None
    given: list[TensorCore]
    carries: int
    inputs: list[BodyInput | None] = field(default_factory=list)
    results: list[Edge | None] = field(default_factory=list)
    loop: weakref.ref[RegionNode] | None = None

    def enter_inputs(self, stand_ins: Sequence[TensorCore]) -> None:
        """Let walks end at what stands for the operands."""
        for number, (tensor, outer) in enumerate(zip(stand_ins, self.given, strict=True)):
            node = tensor._grad_fn  # of what is in a layer before
            assert node is None or isinstance(node, BodyInput)
            is_float = context.grad_enabled and tensor.dtype.is_floating_point
            if node is None and is_float and (number < self.carries or outer.requires_grad):
                node = BodyInput(tensor._type)
                tensor._grad_fn, tensor._requires_grad = node, True
            self.inputs.append(node)

    def enter_node(self, node: RegionNode, results: Sequence[TensorCore], alive: set[int]) -> None:
        """Give the results of a region op their history, as far as they have none."""
        for number, result in enumerate(results):
            if number in alive and result._grad_fn is None and result.dtype.is_floating_point:
                result._grad_fn, result._output_nr, result._requires_grad = node, number, True


class Lowering:
    """Tensors as the plain ones that they are made of.

    Attributes:
        plain: these.
        carries: of how many of them, the first ones, the first `carries` tensors are made.
        steps: the position of each level from the innermost on, of how many parts each tensor is
            there, 0 if it isn't the level's own, and how many are of the first `carries`.
        layers: what is seen outside of all vmaps, in the outermost, and so on; and of how many the
            first ones are.
    """

    def __init__(
        self, tensors: Sequence[TensorCore], carries: int, wanted: Wanted, *, stacked: bool
    ) -> None:
        levels, visible = context.levels, context.visible
        tensors = [*tensors]
        self.steps: list[tuple[int, list[int], int]] = []
        self.layers: list[tuple[Level | None, list[TensorCore], int]] = []
        try:
            for position in reversed(range(len(levels))):
                level, parts = levels[position], []
                for n, x in enumerate(tensors):
                    is_wanted = n < carries and level.can_split(x) and wanted(position, n, x)
                    if is_wanted or level.splits(x):
                        parts.append(level.split(x, stacked and n >= carries))
                    else:
                        parts.append([])
                if level.has_handles:
                    self.layers.append((level, tensors, carries))
                self.steps.append((position, [len(found) for found in parts], carries))
                context.visible = min(visible, position)  # nobody else's tangents are looked at
                made = [found or [x] for found, x in zip(parts, tensors, strict=True)]
                tensors, carries = [*chain(*made)], sum(map(len, made[:carries]))
        finally:
            context.visible = visible
        self.layers.append((None, tensors, carries))
        self.layers.reverse()
        self.plain, self.carries = tensors, carries

    def is_own(self, position: int, number: int, _: TensorCore) -> bool:
        """Whether a tensor is the own of the level at a position."""
        counts = next(counts for at, counts, _ in self.steps if at == position)
        return number < len(counts) and counts[number] > 0

    def acting(self) -> set[Level]:
        """The levels of which something is."""
        return {context.levels[position] for position, counts, _ in self.steps if any(counts)}

    def lift(
        self,
        plain: Sequence[TensorCore],
        enter: Callable[[int, Sequence[TensorCore]], None],
        *,
        stacked: bool,
    ) -> list[TensorCore]:
        """Tensors made of other plain ones, as these were made of theirs.

        enter: called for each layer, as soon as there is what is seen there.
        """
        levels, visible = context.levels, context.visible
        tensors, layer = [*plain], 0
        enter(layer, tensors)
        try:
            for position, counts, carries in reversed(self.steps):
                level = levels[position]
                context.visible = min(visible, position)
                ends = accumulate(max(1, count) for count in counts)
                spans = zip(counts, ends, strict=True)
                parts = [tensors[end - max(1, count) : end] for count, end in spans]
                tensors = [
                    level.join(found, stacked and n >= carries) if count else found[0]
                    for n, (found, count) in enumerate(zip(parts, counts, strict=True))
                ]
                if level.has_handles:
                    layer += 1
                    enter(layer, tensors)
        finally:
            context.visible = visible
        return tensors

    def more_than(self, other: Lowering) -> set[tuple[int, int]]:
        """What is a level's own here and isn't there, of the innermost level that has such."""
        for (position, mine, count), (_, theirs, _) in zip(self.steps, other.steps, strict=True):
            pairs = enumerate(zip(mine[:count], theirs, strict=False))
            if found := {(position, n) for n, (a, b) in pairs if a and not b}:
                return found
        return set()


def leaves_of(
    layer: Layer, ranges: Sequence[range], inner: set[Node] | None = None
) -> tuple[list[Edge], list[set[Edge]]]:
    """Where walks from the results of a body end; and where those of each of them do.

    ranges: the numbers of the nodes that were recorded in the body, and in those that it walks.
    inner: gets the nodes that they come to before.
    """
    found: dict[Edge, None] = {}
    reached = []
    inner = set() if inner is None else inner
    for edge in layer.results:
        ends: dict[Edge, None] = {}
        pending, seen = [] if edge is None else [edge], set()
        while pending:
            node, output = pending.pop()
            is_inside = any(node._sequence in numbers for numbers in ranges)
            if isinstance(node, BodyInput) or not is_inside:
                ends[node, output] = None
            elif node not in seen:
                seen.add(node)
                pending += [x for x in node._edges if x is not None]
        found |= ends
        inner |= seen
        reached.append(set(ends))
    return [*found], reached
