"""What a function can read: a walk through closures, globals, modules and containers.

Everything within reach becomes a watch.
"""

from __future__ import annotations

import argparse
import builtins
import functools
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lucid.compiler.inputs.bound_to_tensors import LIBRARYS
from lucid.compiler.inputs.watches import (
    ABSENT,
    SCALARS,
    AnyWatch,
    ArrayWatch,
    Attributes,
    ClassAttributes,
    FlagWatch,
    LengthWatch,
    SetWatch,
    Watch,
    hooks_of,
    item_at,
)
from lucid.compiler.surroundings.absences import Lookups
from lucid.compiler.surroundings.codes import global_names, nested
from lucid.compiler.surroundings.generators import GENERATORS
from lucid.compiler.surroundings.iterators import is_iterator
from lucid.compiler.surroundings.memos import MEMO, misses
from lucid.compiler.surroundings.places import (
    CONTENTS,
    Identity,
    identity_of,
)
from lucid.compiler.surroundings.reads import CONTAINERS, DIRECT, Way, Ways
from lucid.compiler.whose_code import is_librarys, is_users, is_users_file
from lucid.tensor.core import TensorCore

_LIMIT = 20_000
LARGE = 512  # containers with more entries are watched by their length alone
_COPIED_BYTES = 1 << 16  # larger arrays are not compared
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace, UserDict, UserList, ChainMap)
_MODULE_INTERNALS = {
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_hooks_with_kwargs",
    "_hooks_always_called",
    "_transient",
}


class Reach:
    """All within reach of a function, as it is when this is built.

    Attributes:
        watches: all that must stay the same.
        library_objects: objects of the library's own classes, such as optimizers.
        generators: random generators of Python's and NumPy's, with the user's way to each.
        iterators: those of Python's own, with the user's way to each.
        drawing: variables and attributes that hold a method of such a generator.
        memos: functions that keep their results, with how often they have run.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: dict[str, Any],
        skipped: frozenset[object] = frozenset(),
        read: frozenset[Identity] = frozenset(),
    ) -> None:
        self.watches: list[AnyWatch] = []
        self._read = read  # places that the step reads itself
        self._watched: set[Identity] = set()
        self._lengths: dict[int, LengthWatch] = {}
        self._owners: set[int] = set()  # of the memory of NumPy arrays
        self.library_objects: list[tuple[str, Any]] = []
        self.generators: list[tuple[str, Any]] = []
        self.iterators: list[tuple[str, Any]] = []
        self.drawing: set[str] = set()
        self.memos: list[tuple[Any, int]] = []
        self._grown: list[tuple[str, dict[str, Any], frozenset[str], bool]] = []
        self._names: dict[int, str] = {}
        self._skipped = skipped  # code objects that run at every call, and read it anew
        self._keep: list[Any] = []
        self._seen: set[Any] = set()
        self._queue: deque[tuple[str, Any, bool] | tuple[str, Any, bool, Way]] = deque()
        self._ways = Ways()
        self._lookups = Lookups()
        self._visit("", function, False)
        self._queue += [(name, value, False) for name, value in arguments.items()]
        self._walk()

    def _key_text(self, key: Any, number: int) -> str:
        """A dict's key in a path; a tensor by its name, or as which of the entries it is."""
        if not isinstance(key, TensorCore):
            return repr(key)
        return next((path for path, tensor in self.tensors() if tensor is key), f"#{number}")

    def tensors(self) -> Iterator[tuple[str, TensorCore]]:
        """The tensors within reach, by the user's expressions for them."""
        for watch in self.watches:
            if isinstance(watch, FlagWatch):
                yield watch.path, watch.tensor

    def _walk(self) -> None:
        while self._queue and len(self.watches) < _LIMIT:
            self._visit(*self._queue.popleft())

    def _watch(
        self,
        path: str,
        owner: Any,
        key: Any,
        value: Any,
        in_module: bool,
        attribute: str | None = None,
        code: types.CodeType | None = None,
        holder: object = None,
    ) -> None:
        if identity_of(owner, key) in self._read:
            return
        self._watched.add(identity_of(owner, key))
        watch = Watch(path, owner, key, value, in_module, attribute, code)
        self.watches.append(watch)
        if isinstance(holder, CONTAINERS):
            self._ways.belongs(watch, holder)
        if isinstance(value, np.ndarray):
            self._visit_array(path, value, attribute, code, holder)
        else:
            self._queue.append((path, value, in_module, (watch, holder)))

    def _visit(self, path: str, value: Any, in_module: bool, way: Way = DIRECT) -> None:
        if isinstance(value, SCALARS):
            return
        if isinstance(value, np.ndarray):
            self._visit_array(path, value, None, None, way[1])
            return
        self._ways.add(value, way)
        if isinstance(_bound_to(value), GENERATORS):
            self.drawing.add(path.partition("[")[0].rpartition(".")[2])
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._keep.append(value)
        if isinstance(value, TensorCore):
            moves = identity_of(value, "Memory") in self._read
            storage = None if moves else value._storage
            flag, is_leaf = value.requires_grad, value._grad_fn is None
            watch = FlagWatch(path, value, flag, is_leaf, storage, hooks_of(value))
            self.watches.append(watch)
            self._queue += [("", hook, False) for hook in watch.hooks.values()]
            self._visit_attributes(path, value, vars(value), False)
            self._lookups.add_object(path, value, False)
        elif (
            is_librarys(type(value))
            and not isinstance(value, type)  # custom Functions are types
            and not isinstance(value, dict)  # an optimizer's state
        ):
            self._visit_object(path, value, in_module)
        elif isinstance(value, (list, tuple, dict, deque)):
            self._visit_container(path, value, in_module)
            if hasattr(value, "__dict__") and is_users(type(value)):
                self._visit_users_object(path, value, in_module)
        elif isinstance(value, set):
            if identity_of(value, CONTENTS) not in self._read:
                members: AnyWatch = SetWatch(path, value, frozenset(value), in_module)
                if len(value) > LARGE:
                    members = LengthWatch(path, value, frozenset(value), len(value), in_module)
                self.watches.append(members)
                self._ways.belongs(members, value)
        elif isinstance(value, types.FunctionType):
            if is_users(value):
                self._visit_function(value)
            elif hasattr(value, "__wrapped__"):
                self._queue.append((path, value.__wrapped__, in_module))
        elif isinstance(value, MEMO):
            self.memos.append((value, misses(value)))
            self._queue.append((path, value.__wrapped__, in_module))
        elif isinstance(value, types.MethodType):
            owner = path.rpartition(".")[0] or (f"{path}.__self__" if path else "self")
            self._queue.append((owner, value.__self__, False))
            self._queue.append((path, value.__func__, False))
        elif isinstance(value, type):
            self._visit_class(value)
        elif isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, CONTAINERS):
            self._queue.append((f"{path}.__self__", value.__self__, in_module, (None, value)))
        elif isinstance(value, GENERATORS):
            self.generators.append((path, value))
        elif not is_users(type(value)) and isinstance(_bound_to(value), GENERATORS):
            self.generators.append((path, _bound_to(value)))
        elif is_iterator(value):
            self.iterators.append((path, value))
        elif not isinstance(value, (np.generic, types.ModuleType)):
            self._visit_object(path, value, in_module)

    def _visit_array(
        self,
        path: str,
        array: np.ndarray,
        attribute: str | None,
        code: types.CodeType | None,
        holder: object,
        is_mask: bool = False,
    ) -> None:
        if id(array) not in self._seen:
            self._seen.add(id(array))
            self._keep.append(array)
            self._owners.add(id(owner_of(array)))
            plain = np.asarray(array)  # whose methods are NumPy's
            is_compared = plain.nbytes <= _COPIED_BYTES or is_mask
            if is_compared and not plain.dtype.hasobject:
                watch = ArrayWatch(path, plain, plain.copy(), code, attribute)
                self.watches.append(watch)
                if isinstance(holder, CONTAINERS):
                    self._ways.belongs(watch, holder)
            if isinstance(array, np.ma.MaskedArray):
                mask = np.ma.getmask(array)
                if isinstance(mask, np.ndarray):
                    self._visit_array(f"{path}.mask", mask, None, None, None, is_mask=True)
                self._watch(f"{path}.mask", vars(array), "_mask", mask, False)
            elif is_users(type(array)):
                self._visit_users_object(path, array, False)

    def _visit_container(self, path: str, value: Any, in_module: bool) -> None:
        if isinstance(value, tuple):
            way = (None, value)
            self._queue += [(f"{path}[{i}]", item, in_module, way) for i, item in enumerate(value)]
            return
        if identity_of(value, CONTENTS) in self._read:
            return
        kinds = (list, dict, deque, defaultdict, OrderedDict, Counter)
        copy: Any = None
        is_small = len(value) <= LARGE and (type(value) in kinds or is_librarys(type(value)))
        if is_small or type(value) in (list, deque):
            copy = dict(dict.items(value)) if isinstance(value, dict) else list(value)
        length = LengthWatch(path, value, copy, len(value), in_module)
        self._lengths[id(value)] = length
        self.watches.append(length)
        self._ways.belongs(length, value)
        if len(value) <= LARGE:
            items = dict.items(value) if isinstance(value, dict) else enumerate(value)
            is_read_live = getattr(value, "is_read_live", None)  # in an optimizer's group
            for i, (key, item) in enumerate(list(items)):
                if is_read_live is not None and is_read_live(key):
                    continue
                if key is not None:  # which means the contents of a closure's cell
                    place = f"{path}[{self._key_text(key, i)}]"
                    self._watch(place, value, key, item, in_module, holder=value)

    def _visit_object(self, path: str, value: Any, in_module: bool) -> None:
        from lucid.nn.modules.module import Module

        kind = type(value)
        attributes = getattr(value, "__dict__", None)
        self._names[id(value)] = path
        if isinstance(value, Module) and attributes is not None and "_modules" in attributes:
            self._visit_module(path, value)
        elif isinstance(value, functools.partial):
            self._queue += [(path, value.func, False), (f"{path}.args", value.args, False)]
            self._queue.append((f"{path}.keywords", value.keywords, False))
        elif is_librarys(kind):
            self._visit_library_object(path, value)
            if getattr(kind, "_is_changed_by_users", False):  # a distribution: they set attributes
                self._visit_attributes(path, value, vars(value), in_module)
            self._lookups.add_object(path, value, in_module)
            if hasattr(value, "__wrapped__"):
                self._queue.append((path, value.__wrapped__, in_module))
        elif isinstance(value, _NAMESPACES) or is_users(kind):
            if any(map(is_librarys, kind.__mro__)):
                self._visit_library_object(path, value)
            self._visit_users_object(path, value, in_module)

    def _visit_library_object(self, path: str, value: Any) -> None:
        """An optimizer, a distribution, a random generator; and what it runs of the user's code."""
        self.library_objects.append((path, value))
        parts = getattr(type(value), "_users_parts", None)
        if parts is not None:
            self._queue += [(path, part, False) for part in parts(value)]

    def _visit_users_object(self, path: str, value: Any, in_module: bool) -> None:
        kind = type(value)
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            self._visit_attributes(path, value, attributes, in_module)
        for base in kind.__mro__:
            slots = vars(base).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__"):
                    owner = Attributes(value)
                    item = item_at(owner, name)
                    place = f"{path}.{name}"
                    self._watch(place, owner, name, item, in_module, name, holder=value)
        self._lookups.add_object(path, value, in_module)
        if not isinstance(value, _NAMESPACES):
            self._visit_class(kind)

    def _visit_attributes(
        self, path: str, holder: Any, attributes: dict[str, Any], in_module: bool
    ) -> None:
        """What a user's object has in its `__dict__`, or a user has given a tensor."""
        self._grown.append((path, attributes, frozenset(attributes), in_module))
        for name, item in list(attributes.items()):
            if not name.startswith(LIBRARYS):
                place = f"{path}.{name}"
                self._watch(place, attributes, name, item, in_module, name, holder=holder)

    def _visit_module(self, path: str, module: Any) -> None:
        from lucid.nn.modules.hooked import REGISTERS, global_hooks

        attributes = module.__dict__
        self._grown.append((path, attributes, frozenset(attributes), True))
        for group in ("_parameters", "_buffers", "_modules", *REGISTERS):
            self._visit_register(path, group, attributes.get(group, {}))
        for group, entries in global_hooks().items():
            if id(entries) not in self._seen:
                self._seen.add(id(entries))
                self._visit_register("nn.modules.module", group, entries)
        for name, item in list(attributes.items()):
            if name not in _MODULE_INTERNALS and not name.startswith(LIBRARYS):
                gated = not isinstance(item, (list, dict, set, deque, np.ndarray))
                full = f"{path}.{name}" if path else name  # containers change unnoticed
                self._watch(full, attributes, name, item, gated, name, holder=module)
        self._lookups.add_object(path, module, True)
        self._visit_class(type(module))

    def _visit_register(self, path: str, group: str, entries: dict[Any, Any]) -> None:
        """Members of a module by name, or hooks by number."""
        length = LengthWatch(f"{path}.{group}", entries, dict(entries), len(entries), True)
        self.watches.append(length)
        for name, item in list(entries.items()):
            place = f"{path}.{group}[{name}]" if isinstance(name, int) else f"{path}.{name}"
            self._watch(place.lstrip("."), entries, name, item, True)

    def _visit_class(self, kind: type) -> None:
        """What a class of the user's defines."""
        for base in filter(is_users, kind.__mro__):
            self._ways.add(base, DIRECT)
            self._lookups.add_class(base)
            for name, item in list(vars(base).items()):
                function = getattr(item, "__func__", getattr(item, "fget", item))
                is_function = isinstance(function, types.FunctionType)
                if is_function:
                    self._queue.append(("", function, False))
                if name.startswith("__") or isinstance(item, types.MemberDescriptorType):
                    continue
                if (id(base), name) not in self._seen:
                    self._seen.add((id(base), name))
                    place = f"{base.__name__}.{name}"
                    owner = ClassAttributes(base)
                    self._watch(place, owner, name, item, False, name, holder=base)

    def _visit_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        if code in self._skipped:
            return
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                content = cell.cell_contents
            except ValueError:
                content = ABSENT
            self._watch(name, cell, None, content, False, None, code)
        self._visit_attributes(function.__name__, function, vars(function), False)
        self._lookups.add_function(function)
        if function.__defaults__:
            self._queue.append(("", function.__defaults__, False))
        if function.__kwdefaults__:
            self._queue.append(("", function.__kwdefaults__, False))
        for name, reader in global_names(code):
            value = function.__globals__.get(name, ABSENT)
            if isinstance(value, types.ModuleType):
                self._visit_python_module(name, value, code)
            elif value is not ABSENT or name not in vars(builtins):
                self._watch(name, function.__globals__, name, value, False, None, reader)
            else:
                self._lookups.add_builtin(name, function.__globals__, reader)

    def _visit_python_module(
        self, path: str, module: types.ModuleType, code: types.CodeType
    ) -> None:
        """What a function reads from a module of the user's, `config.scale`."""
        file = getattr(module, "__file__", None)
        if file is None or not is_users_file(file):
            return
        for reader in nested(code):
            for name in reader.co_names:
                if name in vars(module) and (id(module), name) not in self._seen:
                    self._seen.add((id(module), name))
                    item = vars(module)[name]
                    if isinstance(item, types.ModuleType):
                        self._visit_python_module(f"{path}.{name}", item, code)
                    else:
                        self._watch(f"{path}.{name}", vars(module), name, item, False, name)


def _bound_to(method: Any) -> Any:
    """What a method of an installed package's, `rng.random`, is bound to."""
    return getattr(method, "__self__", None)


def owner_of(array: np.ndarray) -> Any:
    """The array whose memory this one is a view of; or the file or buffer that it comes from."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner
