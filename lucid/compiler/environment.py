"""What the traced function reads from its surroundings: closures, globals, modules, containers.

A trace holds as long as they are what they were. Before the trace everything within reach becomes a
`Watch`; after it, only those are kept that code which ran could have read. Watches of Modules are
looked at only when the epoch moved, since every change to a Module moves it.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage

_LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SCALARS = (int, float, bool, str, bytes, type(None))
_LIMIT = 20_000
_LARGE = 512  # containers with more entries are watched by their length alone
_MODULE_INTERNALS = {
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_fingerprint",
    "_transient",
}


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


@dataclass(slots=True)
class Watch:
    """One Python value that the trace could have read.

    Attributes:
        path: how the user gets at it.
        owner, key: where it stands: `owner[key]`, or the contents of a closure cell (key None).
        expected: what was there.
        in_module: whether it belongs to a Module, whose changes move the epoch.
        attribute: the name it is read by, for attributes of objects; else None.
        code: the function that reads it, for globals and closures; else None.
    """

    path: str
    owner: Any
    key: Any
    expected: Any
    in_module: bool
    attribute: str | None = None
    code: types.CodeType | None = None

    def found(self) -> Any:
        try:
            return self.owner.cell_contents if self.key is None else self.owner[self.key]
        except (ValueError, KeyError, IndexError):
            return ABSENT

    def holds(self) -> bool:
        found = self.found()
        if found is self.expected:
            return True
        if type(found) is not type(self.expected) or not isinstance(found, _SCALARS):
            return False
        return bool(found == self.expected) or (found != found and self.expected != self.expected)

    def failure(self) -> str:
        return f"{self.path}: {_brief(self.expected)} -> {_brief(self.found())}"

    def put_back(self) -> None:
        if self.key is None:
            self.owner.cell_contents = self.expected
        else:
            self.owner[self.key] = self.expected


@dataclass(slots=True)
class LengthWatch:
    """The number of entries of a list or dict that was walked."""

    path: str
    owner: Any
    copy: Any  # of a container that isn't large
    expected: int
    in_module: bool

    def holds(self) -> bool:
        return len(self.owner) == self.expected

    def failure(self) -> str:
        return f"len({self.path}): {self.expected} -> {len(self.owner)}"

    def put_back(self) -> None:
        if self.copy is None:
            return
        self.owner.clear()
        if isinstance(self.owner, dict):
            self.owner.update(self.copy)
        else:
            self.owner.extend(self.copy)


@dataclass(slots=True)
class FlagWatch:
    """Whether a tensor requires grad; changing it moves the epoch."""

    path: str
    tensor: TensorCore
    expected: bool
    storage: object
    in_module: bool = True

    def holds(self) -> bool:
        tensor = self.tensor
        return tensor._requires_grad == self.expected and tensor._storage is self.storage

    def failure(self) -> str:
        if self.tensor._storage is not self.storage:
            return f"{self.path}.data: assigned anew"
        return f"{self.path}.requires_grad: {self.expected} -> {self.tensor._requires_grad}"

    def storage_names(self) -> dict[Storage, str]:
        """The user's expressions for the storages within reach; Modules name theirs first."""
        found = {
            watch.tensor._storage: watch.path
            for watch in reversed(self.watches)
            if isinstance(watch, FlagWatch)
        }
        for path, value in self._library_objects:
            parameters = _parameter_names(value, found)
            for name, tensor in _named_tensors(path, value, parameters):
                found.setdefault(tensor._storage, name)
        return found

    def put_back(self) -> None:
        """Restored by the recorder."""


AnyWatch = Watch | LengthWatch | FlagWatch


def _brief(value: Any) -> str:
    if isinstance(value, TensorCore):
        return f"a tensor {value.type}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


class Environment:
    """The surroundings of a function, as they are when it is built.

    Attributes:
        watches: all that must stay the same.
    """

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.watches: list[AnyWatch] = []
        self._library_objects: list[tuple[str, Any]] = []
        self._keep: list[Any] = []
        self._seen: set[int] = set()
        self._stack: list[tuple[str, Any, bool]] = []
        self._visit("", function, False)
        self._stack += [(name, value, False) for name, value in arguments.items()]
        self._walk()

    def meet(self, path: str, module: Any) -> None:
        """Take in a Module that the trace met and the walk had not found."""
        self._stack.append((path, module, False))
        self._walk()

    def keep_read(self, executed: set[types.CodeType]) -> None:
        """Keep the watches of what the functions that ran could have read."""
        names = {name for code in executed for name in code.co_names}
        self.watches = [watch for watch in self.watches if _was_read(watch, executed, names)]

    def failure(self, modules_too: bool) -> str | None:
        """Why the surroundings differ from what they were; None when they don't."""
        for watch in self.watches:
            if (modules_too or not watch.in_module) and not watch.holds():
                return watch.failure()
        return None

    def storage_names(self) -> dict[Storage, str]:
        """The user's expressions for the storages within reach; Modules name theirs first."""
        found = {
            watch.tensor._storage: watch.path
            for watch in reversed(self.watches)
            if isinstance(watch, FlagWatch)
        }
        for path, value in self._library_objects:
            parameters = _parameter_names(value, found)
            for name, tensor in _named_tensors(path, value, parameters):
                found.setdefault(tensor._storage, name)
        return found

    def put_back(self) -> None:
        """Restore the Python values that changed since; for a trace that failed."""
        for watch in self.watches:
            if not watch.holds():
                watch.put_back()

    def split(self) -> tuple[list[AnyWatch], list[AnyWatch]]:
        """The watches to look at on every call, and those to look at when the epoch moved."""
        always = [watch for watch in self.watches if not watch.in_module]
        return always, [watch for watch in self.watches if watch.in_module]

    # ------------------------------------------------------------------ walking

    def _walk(self) -> None:
        while self._stack and len(self.watches) < _LIMIT:
            self._visit(*self._stack.pop())

    def _watch(
        self,
        path: str,
        owner: Any,
        key: Any,
        value: Any,
        in_module: bool,
        attribute: str | None = None,
        code: types.CodeType | None = None,
    ) -> None:
        self.watches.append(Watch(path, owner, key, value, in_module, attribute, code))
        self._stack.append((path, value, in_module))

    def _visit(self, path: str, value: Any, in_module: bool) -> None:
        if isinstance(value, _SCALARS) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._keep.append(value)
        if isinstance(value, TensorCore):
            self.watches.append(FlagWatch(path, value, value._requires_grad, value._storage))
        elif isinstance(value, (list, tuple, dict)):
            self._visit_container(path, value, in_module)
        elif isinstance(value, types.FunctionType):
            if _is_users(value):
                self._visit_function(value)
            elif hasattr(value, "__wrapped__"):
                self._stack.append((path, value.__wrapped__, in_module))
        elif isinstance(value, types.MethodType):
            self._stack.append((path.rpartition(".")[0] or "self", value.__self__, False))
            self._stack.append((path, value.__func__, False))
        elif isinstance(value, type):
            self._visit_class(value)
        elif not isinstance(value, (np.ndarray, np.generic, types.ModuleType)):
            self._visit_object(path, value, in_module)

    def _visit_container(self, path: str, value: Any, in_module: bool) -> None:
        if type(value).__module__.partition(".")[0] == "lucid":  # an optimizer's: guards itself
            self._library_objects.append((path, value))
            return
        if isinstance(value, tuple):
            self._stack += [(f"{path}[{i}]", item, in_module) for i, item in enumerate(value)]
            return
        copy = type(value)(value) if type(value) in (list, dict) and len(value) <= _LARGE else None
        self.watches.append(LengthWatch(path, value, copy, len(value), in_module))
        if len(value) <= _LARGE:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in list(items):
                if key is not None:
                    self._watch(f"{path}[{key!r}]", value, key, item, in_module)

    def _visit_object(self, path: str, value: Any, in_module: bool) -> None:
        from lucid.nn.module import Module

        kind = type(value)
        attributes = getattr(value, "__dict__", None)
        if isinstance(value, Module):
            self._visit_module(path, value)
        elif isinstance(value, functools.partial):
            self._stack += [(path, value.func, False), (f"{path}.args", value.args, False)]
        elif kind.__module__.partition(".")[0] == "lucid":
            self._library_objects.append((path, value))
            if hasattr(value, "__wrapped__"):
                self._stack.append((path, value.__wrapped__, in_module))
        elif attributes is not None and _is_users(kind):
            for name, item in list(attributes.items()):
                self._watch(f"{path}.{name}", attributes, name, item, in_module, name)
            self._visit_class(kind)

    def _visit_module(self, path: str, module: Any) -> None:
        attributes = module.__dict__
        for group in ("_parameters", "_buffers", "_modules"):
            entries = attributes.get(group, {})
            self.watches.append(
                LengthWatch(f"{path}.{group}", entries, dict(entries), len(entries), True)
            )
            for name, item in list(entries.items()):
                self._watch(f"{path}.{name}" if path else name, entries, name, item, True)
        for name, item in list(attributes.items()):
            if name not in _MODULE_INTERNALS:
                full = f"{path}.{name}" if path else name
                gated = not isinstance(
                    item, (list, dict)
                )  # those change without the module's notice
                self._watch(full, attributes, name, item, gated, name)
        self._visit_class(type(module))

    def _visit_class(self, kind: type) -> None:
        for base in kind.__mro__:
            if not _is_users(base):
                continue
            for item in vars(base).values():
                function = getattr(item, "__func__", item)
                if isinstance(function, types.FunctionType):
                    self._stack.append(("", function, False))

    def _visit_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                self._watch(name, cell, None, cell.cell_contents, False, None, code)
            except ValueError:
                continue
        if function.__defaults__:
            self._stack.append(("", function.__defaults__, False))
        for name, reader in _global_names(code):
            if name in function.__globals__:
                value = function.__globals__[name]
                if not isinstance(value, types.ModuleType):
                    self._watch(name, function.__globals__, name, value, False, None, reader)


def _was_read(watch: AnyWatch, executed: set[types.CodeType], names: set[str]) -> bool:
    if not isinstance(watch, Watch):
        return True
    if watch.code is not None:
        return watch.code in executed
    return watch.attribute is None or watch.attribute in names


@contextmanager
def executed_codes() -> Iterator[set[types.CodeType]]:
    """The code objects that this thread runs inside of the block."""
    executed: set[types.CodeType] = set()
    add = executed.add

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call":
            add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield executed
    finally:
        sys.setprofile(before)


def _global_names(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
    """Names that a function and those nested in it read from the globals, with the reader."""
    stack = [code]
    while stack:
        code = stack.pop()
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield instruction.argval, code
        stack += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _is_users(thing: Any) -> bool:
    """Whether a class or function is the user's, not the library's nor an installed package's."""
    code = getattr(thing, "__code__", None)
    if code is not None:
        file = code.co_filename
    else:
        module = sys.modules.get(getattr(thing, "__module__", ""))
        file = getattr(module, "__file__", None) or ("" if module is not None else "?")
        if module is not None and module.__name__ == "builtins":
            return False
    standard = os.path.dirname(os.__file__) + os.sep
    return not file.startswith((_LIBRARY, standard)) and "site-packages" not in file


def _parameter_names(value: Any, names: dict[Storage, str]) -> dict[int, str]:
    """What to call the parameters that key an optimizer's state."""
    state = getattr(value, "state", None)
    if not isinstance(state, dict):
        return {}
    keys = [key for key in state if isinstance(key, TensorCore)]
    return {id(key): names.get(key._storage, str(i)) for i, key in enumerate(keys)}


def _named_tensors(
    path: str, value: Any, parameters: dict[int, str]
) -> Iterator[tuple[str, TensorCore]]:
    """Tensors that a library object holds, each with the user's way to it."""
    stack: list[tuple[str, Any, int]] = [(path, value, 0)]
    seen: set[int] = set()
    while stack:
        name, item, depth = stack.pop()
        if id(item) in seen or depth > 5:
            continue
        seen.add(id(item))
        if isinstance(item, TensorCore):
            yield name, item
        elif isinstance(item, dict):
            stack += [
                (f"{name}[{parameters.get(id(key), repr(key))}]", entry, depth + 1)
                for key, entry in item.items()
                if isinstance(key, (str, int)) or id(key) in parameters
            ]
        elif isinstance(item, (list, tuple)):
            stack += [(f"{name}[{i}]", entry, depth + 1) for i, entry in enumerate(item)]
        elif depth == 0 and hasattr(item, "__dict__"):
            stack += [(f"{name}.{key}", entry, 1) for key, entry in vars(item).items()]
