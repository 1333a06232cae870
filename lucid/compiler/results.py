"""The history of a compiled step's results, for programs that differentiate them outside.

The backward of a compiled function is a compiled function as well: it runs the recorded function
again, from the state that the call found, and returns the gradients. Its own results have a history
of the same kind, so derivatives of any order come without a further rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.entry_points import find_gradients
from lucid.autograd.modes import enable_grad
from lucid.autograd.node import AccumulateGrad, Gradients, Node, edge_of, iterate_graph
from lucid.autograd.saved import FREED
from lucid.compiler.tree import map_tree
from lucid.ir.errors import LucidError
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, of_array
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.compiler.compiled import Compiled
    from lucid.compiler.signature import Call

Leaf = int | TensorCore  # an argument by position, or a tensor from outside
Read = tuple[Storage | int, VersionCounter, int, str]


def leaves_of(outputs: Sequence[TensorCore], handles: Sequence[TensorCore]) -> list[Leaf]:
    """The leaves that the outputs of a trace depend on."""
    position = {id(handle): i for i, handle in enumerate(handles)}
    roots = [t.grad_fn if t.grad_fn is not None else None for t in outputs]
    found: dict[int, Leaf] = {}
    for node in iterate_graph([root for root in roots if root is not None]):
        if isinstance(node, AccumulateGrad):
            variable = node.variable
            found[id(variable)] = position.get(id(variable), variable)
    return list(found.values())


class Differentiable:
    """What a program needs to give its results a history.

    Attributes:
        outputs: positions, among the flattened results, of those that require grad.
        leaves: what they depend on.
        written: buffers that the program writes; their contents are kept for the backward.
        written_args: arguments that it writes, which are copied for the backward.
        read: buffers that it only reads, and which must not change until then.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        outputs: list[int],
        leaves: list[Leaf],
        written: list[Storage],
        written_args: list[int],
        read: list[tuple[Storage, VersionCounter]],
    ) -> None:
        self.read = read
        self.outputs = outputs
        self.leaves = leaves
        self.written = written
        self.written_args = written_args
        self._function = function
        self._backward: Compiled | None = None

    @property
    def writes(self) -> bool:
        """Whether the function writes what it computes from."""
        return bool(self.written or self.written_args)

    def backward(self) -> Compiled:
        """The compiled function that computes the gradients."""
        from lucid.compiler.compiled import Compiled

        if self._backward is None:
            self._backward = Compiled(self.gradients, "native", is_pure=True)
        return self._backward

    def gradients(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        cotangents: tuple[TensorCore | None, ...],
        before: tuple[TensorCore, ...],
        create_graph: bool,
    ) -> tuple[Any, ...]:
        """Run the function again from the state `before`, and differentiate it.

        Hooks of what it returns are left to the walk that asks: it goes on from here.
        """
        recorder = context.recorder
        if recorder is not None:
            for storage, snapshot in zip(self.written, before, strict=True):
                recorder.replace_cell(storage, snapshot)
        handles = flat_tensors((args, kwargs))
        with enable_grad():
            results = flat_tensors(self._function(*args, **kwargs))
            pairs = zip(self.outputs, cotangents, strict=True)
            given = [(results[i], g) for i, g in pairs if g is not None]
            wanted, seeds = [y for y, _ in given], [g for _, g in given]
            leaves = [handles[leaf] if isinstance(leaf, int) else leaf for leaf in self.leaves]
            return tuple(
                find_gradients(wanted, leaves, seeds, create_graph, create_graph, is_part=True)
            )


def flat_tensors(tree: Any) -> list[TensorCore]:
    """The tensors of a tree, in order."""
    found: list[TensorCore] = []

    def collect(leaf: Any, _: str) -> None:
        if isinstance(leaf, np.ndarray):
            leaf = of_array(leaf)
        if isinstance(leaf, TensorCore):
            found.append(leaf)

    map_tree(collect, tree)
    return found


class CompiledBackward(Node):
    """The node of one call of a compiled function."""

    def __init__(
        self,
        rule: Differentiable,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        results: Sequence[TensorCore],
        before: tuple[TensorCore, ...],
    ) -> None:
        leaves = [call.tensors[x] if isinstance(x, int) else x for x in rule.leaves]
        super().__init__(tuple(map(edge_of, leaves)), tuple(t.type for t in results))
        self._rule = rule
        self._saved: Any = (args, kwargs, before)
        kept = [i for i in range(len(call.tensors)) if i not in rule.written_args]
        self._read: list[Read] = [
            (storage, counter, counter.value, f"a tensor {storage.root_type} of its state")
            for storage, counter in rule.read
        ]
        for i in kept:
            counter = call.tensors[i]._counter
            self._read.append((i, counter, counter.value, call.tensors[i]._describe()))
        for index, tensor in enumerate(results):
            tensor._grad_fn, tensor._output_nr, tensor._requires_grad = self, index, True

    def apply(self, gradients: Gradients) -> Gradients:
        if self._saved is None:
            raise LucidError(FREED)
        args, kwargs, before = self._saved
        given = (args, kwargs, gradients, before, context.grad_enabled)
        changed = [entry for entry in self._read if entry[1].value != entry[2]]
        backward = self._rule.backward()
        if context.recorder is not None:
            _refuse_changed(changed, [entry[0] for entry in changed])
            found = backward(*given)
        elif context.levels or (context.anomaly and not self._rule.writes):
            _refuse_changed(changed, [entry[0] for entry in changed])
            found = self._op_by_op(given)  # to map and push forward, or to name who makes NaN
        else:
            call, program = backward.prepare(given)
            _refuse_changed(changed, program.used_inputs)
            found = program.run(call, given, {})
        return tuple(None if e is None else g for e, g in zip(self.edges, found, strict=True))

    def _op_by_op(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._rule.writes:
            raise LucidError(
                "the results of a compiled function that writes its state can't be differentiated "
                "in a vmap or a forward-mode derivative that it was not called in\n"
                "hint: call it inside, or return the new state instead of writing it"
            )
        return self._rule.gradients(*given)

    def release(self) -> None:
        self._saved = None
        self._read = []


def _refuse_changed(changed: Sequence[Read], used: Collection[Storage | int]) -> None:
    """Raise when something that the gradients need was written in place since the call."""
    for what, counter, version, description in changed:
        if what in used:
            raise LucidError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: {description}, is at version {counter.value}; expected "
                f"version {version} instead."
            )


class FreedBackward(Node):
    """Behind a result whose graph was walked, and freed, inside of the compiled step."""

    def __init__(self, result: TensorCore) -> None:
        super().__init__((), (result.type,))

    def apply(self, gradients: Gradients) -> Gradients:
        raise LucidError(FREED)
