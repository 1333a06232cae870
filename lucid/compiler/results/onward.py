"""Gradients that go on, from a compiled step, into the histories that its arguments have outside.

A `backward()` in the step arrives at arguments; what happens behind them follows after the native
call. That is eager mode's order only as long as the step doesn't look at it in between. Whether it
does depends on the histories of each call: where it does, the call runs op by op.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from lucid.autograd.entry_points import backward
from lucid.autograd.node import (
    AccumulateGrad,
    CustomNode,
    GradientEdge,
    Node,
    edge_of,
    iterate_graph,
)
from lucid.autograd.outputs import freed_behind
from lucid.compiler.results.histories import Given, HistoryOutside, given, memory_saved_by
from lucid.compiler.results.outcomes import leaf_of
from lucid.ir.errors import EagerOnlyError, LucidError

if TYPE_CHECKING:
    from lucid.autograd.engine import BackwardRun
    from lucid.compiler.inputs.cells import GradUse
    from lucid.compiler.inputs.signature import Call
    from lucid.compiler.recording.recorder import Recorder
    from lucid.tensor.core import TensorCore
    from lucid.tensor.storage import Storage

Target = Union[int, "TensorCore", "weakref.ref[Node]"]
KEEPS_GRADIENT = (
    "it gives a tensor another history, by writing it, that keeps its gradient by retain_grad()"
)

Arrived = tuple[GradientEdge, "TensorCore"]


@dataclass(slots=True, eq=False)
class Walk:
    """A `backward()` in the step.

    Attributes:
        positions: of the arguments that it arrived at and has to go on from.
    """

    retain_graph: bool
    create_graph: bool
    positions: set[int]


@dataclass(slots=True, eq=False)
class Onward:
    """What a step does with gradients at the border of its arguments.

    Attributes:
        walks: in their order.
        asked: arguments through which gradients were asked for, by position, and with respect to
            what: another argument, a tensor from outside, or what computed one.
        late: uses of gradients after a walk that has to go on: it would have changed them.
        added: other uses that set a gradient.
        rewritten: tensors that get another history.
    """

    walks: list[Walk] = field(default_factory=list)
    asked: list[tuple[list[int], list[Target]]] = field(default_factory=list)
    late: list[GradUse] = field(default_factory=list)
    added: list[GradUse] = field(default_factory=list)
    rewritten: list[Given] = field(default_factory=list)
    _running: BackwardRun | None = None

    def arrive(self, run: BackwardRun, position: int) -> None:
        """Note that a walk of the trace has come to an argument with a history."""
        if self._running is not run:
            self._running = run
            self.walks.append(Walk(run.retain_graph, run.create_graph, set()))
        self.walks[-1].positions.add(position)

    def ask(self, recorder: Recorder, run: BackwardRun) -> None:
        """Note what gradients a walk asks for that leads to arguments with histories.

        Raises: `EagerOnlyError` where they are those of what the arguments were computed from.
        """
        nodes = [node for node in iterate_graph(run.roots) if isinstance(node, HistoryOutside)]
        found = [_target(node, recorder) for node, _ in run.wanted or ()]
        targets = [target for target in found if target is not None]
        if nodes and targets:
            positions = [recorder.positions[id(node.variable)] for node in nodes]
            _refuse_paths(positions, targets, recorder.arguments)
            self.asked.append((positions, targets))

    def use(self, use: GradUse, run: BackwardRun | None, arguments: Sequence[TensorCore]) -> None:
        """Note that the trace reads or sets a gradient; `run`: the walk that does.

        Raises: `EagerOnlyError` where one that goes on is to have changed it by then.
        """
        if self.walks and run is not self._running and use not in self.late:
            leaf = use.leaf if use.position < 0 else arguments[use.position]
            nodes = set().union(*(_behind(walk, arguments) for walk in self.walks))
            if not use.goes_on and id(leaf) in _reached(nodes):
                raise _late(leaf)
            self.late.append(use)

    def end(self, uses: Iterable[GradUse]) -> None:
        """Take down what else the step sets, and let go of the walk."""
        self._running = None
        self.late = [use for use in self.late if not use.goes_on]
        self.added = [use for use in uses if use.was_set and not use.goes_on]

    @property
    def is_empty(self) -> bool:
        return not self.walks and not self.asked and not self.rewritten

    def check(self, call: Call, written: Collection[Storage]) -> None:
        """Raise where a call can't go on into the histories that it finds.

        written: memory that the step writes.
        Raises: `LucidError` for what is freed; `EagerOnlyError` where eager mode does more.
        """
        for positions, targets in self.asked:
            _refuse_paths(positions, targets, call.tensors)
        for known in self.rewritten:
            _check_rewritten(given(known, call.tensors), isinstance(known, int), call)
        if not self.walks:
            return
        behind = [_behind(walk, call.tensors) for walk in self.walks]
        nodes = set().union(*behind)
        if freed := freed_behind(nodes):
            raise LucidError(freed)
        self._check_order(behind)
        self._check_uses(nodes, call)
        for node in nodes if written else ():
            if any(memory in written for memory in memory_saved_by(node)):
                raise EagerOnlyError(
                    "a backward() in it goes on into the history of an argument, which has saved "
                    f"for {node._name()}{node._place()} what the function writes"
                )

    def _check_order(self, behind: Sequence[set[Node]]) -> None:
        """Refuse walks that would meet what earlier ones have freed, or can't be one walk."""
        if len({walk.create_graph for walk in self.walks}) > 1:
            raise EagerOnlyError(
                "several backward() in it go on into the history of an argument, and not all with "
                "create_graph"
            )
        freed: set[Node] = set()
        seen: set[Node] = set()
        for walk, nodes in zip(self.walks, behind, strict=True):
            if any(_saves(node) for node in nodes & freed):
                raise EagerOnlyError(
                    "a backward() in it goes on into the history of an argument, which another "
                    "one has freed"
                )
            if any(map(_is_watched, nodes & seen)):
                raise EagerOnlyError(
                    "several backward() in it go on into the history of an argument, in which "
                    "hooks or custom Functions see each of them"
                )
            seen |= nodes
            freed |= set() if walk.retain_graph else nodes
        if freed and any(map(_saves, seen - freed)):
            raise EagerOnlyError(
                "several backward() in it go on into histories of arguments, and not all free them"
            )

    def _check_uses(self, nodes: Collection[Node], call: Call) -> None:
        """Refuse what has to know gradients that the walk adds to after the call."""
        leaves = _reached(nodes)
        watched = {
            id(node.variable)
            for node in nodes
            if isinstance(node, AccumulateGrad) and _is_watched(node)
        }
        late = [leaf_of(use, call) for use in self.late]
        late = [leaf for leaf in late if id(leaf) in leaves]
        added = (leaf_of(use, call) for use in self.added)
        late += [leaf for leaf in added if id(leaf) in watched]
        if late:
            raise _late(late[0])

    def go_on(self, arrived: Sequence[Arrived]) -> None:
        """Walk on from arguments, with the gradients that have arrived there."""
        if arrived:
            edges, gradients = zip(*arrived, strict=True)
            retains = all(walk.retain_graph for walk in self.walks)
            creates = any(walk.create_graph for walk in self.walks)
            backward(edges, gradients, retains, creates)


def _check_rewritten(tensor: TensorCore, is_argument: bool, call: Call) -> None:
    """Refuse a tensor whose history isn't its own alone, though it gets another in the step."""
    if tensor._retains_grad:
        raise EagerOnlyError(KEEPS_GRADIENT)
    base = tensor._base
    is_view = is_argument and base is not None and base._storage is tensor._storage
    if is_view and not any(other is base for other in call.tensors):
        raise EagerOnlyError(
            "it gives an argument another history, by writing it, that is a view of a tensor which "
            "is no argument"
        )


def _behind(walk: Walk, arguments: Sequence[TensorCore]) -> set[Node]:
    """The nodes outside that a walk comes to."""
    histories = [arguments[position].grad_fn for position in walk.positions]
    return set(iterate_graph([node for node in histories if node is not None]))


def _reached(nodes: Collection[Node]) -> set[int]:
    """The identities of the tensors whose `.grad` they add to."""
    found = {id(node.variable) for node in nodes if isinstance(node, AccumulateGrad)}
    return found | {id(kept()) for node in nodes for kept in (node._retained or {}).values()}


def _late(leaf: TensorCore | None) -> EagerOnlyError:
    described = "" if leaf is None else f"\n  {leaf._describe()}"
    return EagerOnlyError(
        "a backward() in it goes on into the history of an argument, and adds to a .grad that it "
        f"looks at as well{described}"
    )


def _refuse_paths(
    positions: Sequence[int], targets: Sequence[Target], arguments: Sequence[TensorCore]
) -> None:
    """Raise where a target is in the history of an argument, behind what that begins with."""
    wanted = {_node_of(target, arguments) for target in targets}
    for position in positions:
        first = arguments[position].grad_fn
        others = wanted - {first, None}
        if first is None or not others:
            continue
        if any(node in others for node in iterate_graph([first])):
            raise EagerOnlyError(
                "it asks for the gradient with respect to a tensor that an argument was computed "
                f"from, outside, by {first._short_name()}{first._place()}"
            )


def _target(node: Node, recorder: Recorder) -> Target | None:
    """What a node outside belongs to, as each call finds it; None for one of the trace's."""
    if isinstance(node, AccumulateGrad):
        position = recorder.positions.get(id(node.variable))
        if position is not None:
            return position
        return node.variable if recorder.is_outside(node.variable) else None
    return weakref.ref(node) if recorder.is_outer(node) else None


def _node_of(target: Target, arguments: Sequence[TensorCore]) -> Node | None:
    if isinstance(target, weakref.ref):
        return target()
    edge = edge_of(arguments[target] if isinstance(target, int) else target)
    return None if edge is None else edge[0]


def _saves(node: Node) -> bool:
    return bool(getattr(node, "saved", None) or getattr(node, "_saved", None))


def _is_watched(node: Node) -> bool:
    """Whether code of the user's sees each gradient that comes to a node."""
    hooks = node._tensor_hooks or node._pre_hooks or node._post_hooks
    if isinstance(node, AccumulateGrad):
        hooks = hooks or node.variable._hooks or node.post_accumulate_hooks
    return bool(hooks or node._retained or isinstance(node, CustomNode))
