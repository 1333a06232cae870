"""What stands for a call's arguments while it is traced: handles on inputs, live scalars."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucid.autograd.hooks import take_hooks
from lucid.compiler.names import identifier
from lucid.compiler.objects import ChangesArgument, data_of
from lucid.compiler.recorder import Recorder
from lucid.compiler.scalars import LiveSource
from lucid.compiler.signature import Call, LiveInt, argument_names, same_view
from lucid.compiler.tree import containers, map_tree
from lucid.ir.errors import TraceError
from lucid.tensor.core import TensorCore, _new
from lucid.tensor.storage import Storage, VersionCounter


class StandIns:
    """The arguments with a traced handle for each tensor and a live scalar for each float.

    Tensors on one memory stand on one input, so that writes through one show in the others; those
    that show different parts of it do so only in a call that is exact. One that is state of the
    step as well stands for itself.

    Attributes:
        args, kwargs: what the function is called with.
        values: what the step's places hold for it.
        handles: one per tensor argument.
        pinned: tensor arguments that are state, by position.
    """

    def __init__(
        self,
        recorder: Recorder,
        call: Call,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        state: set[Storage],
        places: Sequence[str],
    ) -> None:
        self._recorder = recorder
        self._is_place = False
        self._call = call
        self.handles: list[TensorCore] = []
        self.pinned: dict[int, TensorCore] = {}
        self._apart = set[int]() if call.is_exact else call.overlapping
        self._shared = self._storages_with_several_views()
        self._storages: dict[tuple[Storage, int], Storage] = {}
        self._counters: dict[VersionCounter, VersionCounter] = {}
        self._names: list[str] = []
        self._data: list[tuple[Any, dict[str, Any]]] = []
        self._filled: list[tuple[Any, dict[str, Any]]] = []
        self._tensors, self._floats = iter(call.tensors), iter(range(len(call.floats)))
        self._state = state
        stand_in = self._stand_in
        names = argument_names(function, args)
        self.args = tuple(map_tree(stand_in, a, name) for a, name in zip(args, names, strict=True))
        self.kwargs = {name: map_tree(stand_in, kwargs[name], name) for name in sorted(kwargs)}
        self._is_place = True
        read = zip(call.values, places, strict=True)
        self.values = [map_tree(stand_in, value, path) for value, path in read]

        named = zip(names, self.args, strict=True)
        trees: list[tuple[type | None, str, Any]]
        trees = [(None, *pair) for pair in (*named, *self.kwargs.items())]
        trees += [(type(x), "", item) for x, given in self._filled for item in given.values()]
        self._held = [(of, *found) for of, name, tree in trees for found in containers(tree, name)]

    def _stand_in(self, leaf: Any, path: str) -> Any:
        recorder = self._recorder
        if isinstance(leaf, (TensorCore, np.ndarray)):
            return self._handle(next(self._tensors), path, self._state)
        if type(leaf) in (float, LiveInt) or isinstance(leaf, np.floating):
            i = next(self._floats)
            source = LiveSource(recorder.unused_text(path), argument=i)
            return recorder.live_scalar(source, self._call.floats[i])
        attributes = data_of(leaf)
        if attributes is not None and id(leaf) not in recorder.given:
            recorder.given[id(leaf)] = len(self._data)
            self._data.append((leaf, dict(attributes)))
            stand_in = self._stand_in
            given = {k: map_tree(stand_in, v, f"{path}.{k}") for k, v in attributes.items()}
            self._filled.append((leaf, given))
        return leaf

    def fill(self) -> None:
        """Put what stands for their contents into objects of plain data."""
        for value, given in self._filled:
            vars(value).update(given)

    def put_back(self) -> None:
        """Give them their contents again."""
        for value, attributes in self._data:
            vars(value).clear()
            vars(value).update(attributes)

    def refuse_changes(self) -> None:
        """Raise when the function changed a container that it was given.

        It has a copy, with traced tensors in it: the caller would not see the change.
        """
        for value, given in self._filled:
            now = vars(value)
            if now.keys() != given.keys() or any(now[name] is not given[name] for name in given):
                raise ChangesArgument(type(value))
        for kind, path, container, held in self._held:
            _, _, parts = next(containers(container, path))
            if len(parts) == len(held) and all(map(operator.is_, parts[1::2], held[1::2])):
                continue
            if kind is not None:
                raise ChangesArgument(kind)
            raise TraceError(
                f"the {type(container).__name__} {path} is an argument and was changed while "
                "the step was traced, which would not be seen outside\n"
                "hint: return the new values"
            )

    def _storages_with_several_views(self) -> set[Storage]:
        first: dict[Storage, TensorCore] = {}
        return {
            tensor._storage
            for tensor in self._call.tensors
            if not same_view(tensor, first.setdefault(tensor._storage, tensor))
        } - {self._call.tensors[number]._storage for number in self._apart}

    def _handle(self, tensor: TensorCore, path: str, state: set[Storage]) -> TensorCore:
        """A leaf that stands for an argument."""
        position = len(self.handles)
        earlier = self._call.tensors[:position]
        same = next((i for i, other in enumerate(earlier) if other is tensor), None)
        if same is not None:
            handle = self.handles[same]
            if same in self.pinned:
                self.pinned[position] = tensor
        elif tensor._array is None:
            raise TraceError(f"argument {path} belongs to a trace that has ended")
        elif tensor._storage in state:
            handle = self.pinned[position] = tensor
        else:
            handle = self._new_handle(tensor, tensor._array, position, path)
        self.handles.append(handle)
        self._recorder.positions.setdefault(id(handle), position)
        return handle

    def _new_handle(
        self, tensor: TensorCore, array: np.ndarray, position: int, path: str
    ) -> TensorCore:
        outer = tensor._storage
        is_whole = outer in self._shared
        part = (outer, position if position in self._apart else -1)
        storage = self._storages.get(part)
        if storage is None:
            assert outer.array is not None
            storage = self._storages[part] = Storage.of_array(outer.array if is_whole else array)
            cell = self._recorder.add_cell(storage, "arg", position)
            cell.is_whole = is_whole
            if self._is_place:
                entry = self._recorder.graph.inputs[-1]
                entry.kind, entry.source = "state", path
                cell.value.name = identifier(path)
            else:
                cell.value.name = path.replace("[", "_").replace("]", "").replace("'", "")
            self._recorder.argument_storages.add(outer)
        handle = _new(storage, tensor._type, array, tensor._chain if is_whole else ())
        handle._line = tensor._line
        handle._counter = self._counters.setdefault(tensor._counter, handle._counter)
        handle._requires_grad = tensor.requires_grad
        if tensor._grad_fn is not None:
            handle.__dict__["_stands_for_result"] = True
        if not self._is_place and not is_whole and tensor._base is None:
            self._recorder.rebasable.add(id(handle))
        handle._grad = tensor._grad
        take_hooks(handle, tensor)
        return handle
