"""Stand-ins for what the nodes of a trace hold: tensors, and numbers, that each call has anew."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lucid.autograd.node import AccumulateGrad, Node, edge_of
from lucid.autograd.saved import SavedTensor, with_history
from lucid.compiler.inputs.scalars import Formula, is_live
from lucid.compiler.inputs.tree import map_tree
from lucid.ir.graph import Value
from lucid.ir.types import DType
from lucid.sparse.saved import SavedSparse
from lucid.tensor.core import TensorCore, _new
from lucid.tensor.storage import Storage, VersionCounter

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

_MOST_LOOKED_AT = 10_000
Contents = dict[Storage, Value]  # what memory without data holds, in the graph of a trace


class Holdings:
    """Puts stand-ins in the place of tensors that nodes hold.

    Attributes:
        saved: what the memory of stand-ins holds at the end of the trace, where each call has
            another content; held: the same of what isn't saved, but held by objects and hooks.
        originals: the memory of the trace for memory of stand-ins, where that is another.
        saved_state: memory of the step's state that was saved: a walk finds out if it was written.
    """

    def __init__(
        self,
        recorder: Recorder,
        formulas: list[Formula],
    ) -> None:
        self._recorder = recorder
        self._formulas = formulas
        self._objects = {*recorder.containers, *recorder.given}
        self._stand_ins: dict[int, tuple[TensorCore, TensorCore]] = {}
        self._storages: dict[Storage, Storage] = {}
        self._counters: dict[VersionCounter, VersionCounter] = {}
        self.saved: Contents = {}
        self.held: Contents = {}
        self.originals: dict[Storage, Storage] = {}
        self.saved_state: set[Storage] = set()

    def replace(self, node: Node) -> None:
        """Replace those of one node; one of an earlier trace has stand-ins already."""
        if node in self._recorder.past:
            for entry in saved_by(node):
                if entry.tensor is not None:
                    self._take(entry.tensor._storage, entry.tensor._storage, self.saved)
            for tensor in tensors_of_users(node):
                self._take(tensor._storage, tensor._storage, self.held)
        elif isinstance(node, AccumulateGrad):
            if not self._recorder.is_outside(node.variable):
                node.variable = self._stand_in(node.variable, {})
        else:
            for entry in saved_by(node):
                self._replace_saved(entry)
            for sparse in getattr(node, "_saved", None) or ():
                if isinstance(sparse, SavedSparse):
                    sparse.let_go()
            self._replace_attributes(node)
            for hook in _hooks_of(node):
                self._replaced_leaf(hook, "")

    def _replace_saved(self, entry: SavedTensor) -> None:
        tensor = entry.tensor
        if tensor is None:
            entry.packed = self._replaced(entry.packed)
            return
        if entry.output_nr < 0 and entry.edge is None and entry.private_edge is None:
            entry.edge = edge_of(tensor)
        if not self._is_of_a_call(tensor._storage):
            self.saved_state.add(tensor._storage)
        entry.tensor = self._stand_in(tensor, self.saved)

    def _replace_attributes(self, node: Node) -> None:
        attributes = vars(node)
        for name in _names_of_users(node):
            attributes[name] = self._replaced(attributes[name])

    def _replaced(self, value: Any) -> Any:
        return map_tree(self._replaced_leaf, value, leaves=self._objects)

    def _replaced_leaf(self, leaf: Any, _: str) -> Any:
        if isinstance(leaf, TensorCore):
            edge = edge_of(leaf)
            made = self._stand_in(leaf, self.held)
            return made if edge is None else with_history(made, edge)
        if is_live(leaf):
            self._formulas.append(leaf.formula)
            return _Number(len(self._formulas) - 1)
        self._refuse_argument(leaf)
        if refers_to_trace(leaf):
            self._recorder.run_op_by_op(
                "its results have a history, and a hook or an object in a ctx holds tensors or "
                "numbers of the step"
            )
        return leaf

    def _refuse_argument(self, value: Any) -> None:
        """Let eager mode run what looks at an argument again in its backward, in a ctx."""
        if id(value) in self._objects:
            self._recorder.run_op_by_op(
                f"its results have a history, and a backward in that is given the "
                f"{type(value).__name__} that is an argument, which may be another by then\n"
                "hint: let ctx keep what is in it"
            )

    def _stand_in(self, tensor: TensorCore, contents: Contents) -> TensorCore:
        """A tensor without data for one that each call has anew; one on the same memory else."""
        storage = tensor._storage
        known = self._stand_ins.get(id(tensor))
        if known is not None:
            self._take(storage, known[1]._storage, contents)
            return known[1]
        if self._is_of_a_call(storage):
            if storage not in self._storages:
                self._storages[storage] = own = Storage(storage.root_type)
                self.originals[own] = storage
            made = _new(self._storages[storage], tensor._type, None, tensor._chain)
            made._strides = tensor.element_strides()
        else:
            made = tensor._same_memory()
        self._take(storage, made._storage, contents)
        counter = tensor._counter
        if counter not in self._counters:
            self._counters[counter] = VersionCounter()
            self._counters[counter].now = counter.value
        made._counter = self._counters[counter]
        made._line = tensor._line
        self._stand_ins[id(tensor)] = tensor, made
        return made

    def _is_of_a_call(self, storage: Storage) -> bool:
        cell = self._recorder.cells.get(storage)
        if storage.array is None or cell is None:
            return storage.array is None
        return cell.kind in ("arg", "grad") or storage in self._recorder.arrays.copied

    def _take(self, storage: Storage, stand_in: Storage, contents: Contents) -> None:
        if storage.recorder is self._recorder and self._is_of_a_call(storage):
            assert storage.value is not None
            contents.setdefault(stand_in, storage.value)


@contextmanager
def as_recorded(nodes: Sequence[Node], numbers: Sequence[Any]) -> Iterator[None]:
    """Let contexts be in the block as forward left them, with numbers of a call; then again."""
    recorded = [{name: vars(node)[name] for name in _names_of_users(node)} for node in nodes]

    def found(leaf: Any, _: str) -> Any:
        return numbers[leaf.number] if isinstance(leaf, _Number) else leaf

    for node, attributes in zip(nodes, recorded, strict=True):
        vars(node).update((name, map_tree(found, tree)) for name, tree in attributes.items())
    try:
        yield
    finally:
        for node, attributes in zip(nodes, recorded, strict=True):
            for name in _names_of_users(node):
                del vars(node)[name]
            vars(node).update(attributes)


class _Number:
    """In the place of a live number that a ctx holds: its own among those of a call."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def is_ctx(node: Node) -> bool:
    """Whether it is the ctx of a custom Function, which users give attributes."""
    return hasattr(node, "_own_names")


def _names_of_users(node: Node) -> list[str]:
    """The attributes of a node that may hold tensors of the user's, besides what it saved."""
    known: frozenset[str] = getattr(node, "_own_names", frozenset())
    return [name for name in vars(node) if name not in known]


def saved_by(node: Node) -> Iterator[SavedTensor]:
    """What a node saved, in the order in which its backward looks at it."""
    saved = getattr(node, "saved", None)
    entries = getattr(node, "_saved", None) or () if saved is None else saved.values()
    for entry in entries:
        if isinstance(entry, SavedTensor):
            yield entry
        elif isinstance(entry, SavedSparse):
            yield from entry.parts


def _hooks_of(node: Node) -> list[Callable[..., Any]]:
    registers = (node._pre_hooks, node._post_hooks, *(node._tensor_hooks or {}).values())
    return [hook for hooks in registers for hook in (hooks or {}).values()]


def tensors_of_users(node: Node) -> list[TensorCore]:
    """Those in attributes that users gave a node."""
    found: list[Any] = []
    map_tree(lambda leaf, _: found.append(leaf), [vars(node)[x] for x in _names_of_users(node)])
    return [tensor for tensor in found if isinstance(tensor, TensorCore)]


_NO_HOLDERS = (type, types.ModuleType, Node, DType)


def refers_to_trace(value: Any) -> bool:
    """Whether an object or a hook holds what stands for tensors and numbers in a trace."""
    stack: list[Any] = [value]
    seen: set[int] = set()
    while stack and len(seen) < _MOST_LOOKED_AT:
        item = stack.pop()
        if id(item) in seen or isinstance(item, _NO_HOLDERS):
            continue
        seen.add(id(item))
        if is_live(item) or (isinstance(item, TensorCore) and item._storage.value is not None):
            return True
        if isinstance(item, types.FunctionType):  # not what is global to it
            stack += [item.__closure__, item.__defaults__, item.__kwdefaults__]
        elif not isinstance(item, TensorCore):
            stack += gc.get_referents(item)
    return bool(stack)
