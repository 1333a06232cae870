"""What host code can reach besides its arguments: Python state, and tensors from outside."""

from __future__ import annotations

import logging
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any, NoReturn

import numpy as np

from lucid.autograd.generators import put_state, state_of
from lucid.autograd.host_world import Outside, State
from lucid.compiler.guards.calls import GuardCollector
from lucid.compiler.guards.collector import Substitutes
from lucid.compiler.guards.events import listening
from lucid.compiler.guards.guard import (
    ArrayGuard,
    Guard,
    PlaceGuard,
    TensorGuard,
    closure_of,
    instance_dict,
)
from lucid.compiler.results.memory import TracedMemory
from lucid.ir.classes import isinstance
from lucid.ir.graph import Value
from lucid.ir.location import takers
from lucid.ir.whose_code import PRINT, is_librarys, is_users
from lucid.random import default_generator
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage

_CONTAINERS = (list, tuple, set, frozenset, deque)
_LOGS = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "log"})
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_KINDS = (PlaceGuard, ArrayGuard)


class Surroundings:
    """The surroundings of one host call, while it is recorded.

    Args:
        methods, objects: the roots of what it can reach.
        first: the number of the first operand that is one of `values`.
        in_rounds: whether it is in a loop, each of whose rounds draws other random numbers.

    Attributes:
        states: the tensors from outside within reach.
        values: what the trace has written to tensors from outside by now, to be lent to the call.
    """

    def __init__(
        self,
        recorder: TracedMemory,
        name: str,
        methods: Sequence[Callable[..., Any]],
        objects: Sequence[Any],
        first: int,
        *,
        in_rounds: bool = False,
    ) -> None:
        self._recorder = recorder
        self._name = name
        given = [(f"argument {i}", x) for i, x in enumerate(objects)]
        others = [(path, x) for path, x in given if not isinstance(x, TensorCore)]
        self._roots: list[tuple[str, Any]] = [*(("", method) for method in methods), *others]
        self.states: list[State] = []
        self.values: list[Value] = []
        self._gradients: list[tuple[TensorCore, Any, State]] = []
        if in_rounds:
            recorder.value_of(default_generator.state)
        path = "the state of lucid's random generator"
        self._take_up(path, default_generator.state, first, in_rounds)
        for path, tensor in reachable(self._roots, TensorCore):
            self._take_up(path, tensor, first)
        self._written = [cell.storage for cell in recorder.cells.values() if cell.is_written]
        for path, array in reachable(self._roots, np.ndarray) if self._written else ():
            for storage in self._written_on(array):
                if self._enter(path, storage, first):
                    self.states[-1].is_array = True

    def _written_on(self, array: np.ndarray) -> list[Storage]:
        """The memory behind an array that the trace has written by now."""
        return [
            storage
            for storage in self._written
            if storage.array is not None and np.may_share_memory(storage.array, array)
        ]

    def _enter(self, path: str, storage: Storage, first: int, is_lent: bool = False) -> bool:
        """Enter memory from outside; whether it is concrete, and wasn't entered before."""
        array = storage.array
        known = any(state.storage is storage for state in self.states)
        if array is None or known or not array.flags.writeable:
            return False
        state = State(storage, path)
        cell = self._recorder.cells.get(storage)
        if cell is not None and (
            is_lent or cell.kind == "replaced" or storage.value is not cell.value
        ):
            assert storage.value is not None
            state.given = first + len(self.values)
            self.values.append(storage.value)
        self.states.append(state)
        return True

    def _take_up(self, path: str, tensor: TensorCore, first: int, is_lent: bool = False) -> None:
        """Enter a tensor from outside, and its gradient."""
        storage = tensor._storage
        if self._enter(path, storage, first, is_lent) and tensor._requires_grad:
            gradient = tensor._redeemed()
            self._gradients.append((tensor, gradient, State(storage, f"{path}.grad")))
            if gradient is not None and gradient._array is not None:
                self._take_up(f"{path}.grad", gradient, first)

    @contextmanager
    def untouched(self, known: Set[int] | None = None) -> Iterator[None]:
        """Undo what the block, an evaluation that eager mode doesn't make, changes in Python.

        Gives the trace up where traced code reads or changes the same state, or has changed state
        that the block reads; also where the block fails for want of an undone change of another.
        The trace is suspended: another one may run inside, on the same tensors.

        known: identities of dicts that the block restores by itself. If it is given and the block
            changes other state, the call runs op by op.
        """
        outer, collector = self._recorder.collector, _Writes()
        assert outer is not None
        collector.substitutes = _Unsaid()
        suspended = [(s, s.value, s.generation) for s in self._recorder.cells]
        aside = [x for x in self._recorder.aside if x[0].found() is x[1]]
        with self._recorder.putting_back(partial(self._go_on, collector, suspended, aside)):
            for storage, _, _ in suspended:
                storage.value = storage.recorder = None
            for place, _, before in aside:
                place.put(before)
            try:
                collector.begin()
                for path, value in self._roots:
                    if path:
                        collector.value(value, path)
                        collector.accept(value, value)
                for path, entries in reachable(self._roots, dict):
                    if is_librarys(type(entries)):  # as an optimizer's state, which its steps make
                        collector.contents(path, entries, write=True)
                takers.insert(0, collector.drops_warning)
                with listening(collector):
                    yield
                collector.finish()
            except BaseException as error:
                self._take_back(collector)
                if isinstance(error, ValueError) and "read-only" in str(error):
                    error = _WritesOutsideError("memory of a tensor from outside, by NumPy")
                if isinstance(error, _WritesOutsideError):
                    self._recorder.run_op_by_op(f"{self._name}, a host call, writes {error}")
                if isinstance(error, Exception) and outer.has_hosts:
                    self._recorder.run_op_by_op(
                        f"{self._name}, a host call, may need what one before it has changed: "
                        f"{error}"
                    )
                raise
            self._note(outer, collector, known)

    def _note(self, outer: GuardCollector, collector: _Writes, known: Set[int] | None) -> None:
        """Take back what the call has changed, and let the trace know of it."""
        self._forget_lent(collector.guards)
        guards = [x for x in collector.guards.values() if isinstance(x, _KINDS)]
        changed = [guard for guard in guards if not guard.holds()]
        if known is not None:
            changed = [guard for guard in changed if id(guard.owner) not in known]
        self._take_back(collector)
        epoch.count += 1  # which objects of the library's go by
        if known is not None and (changed or collector.drawn):
            what = f"changes {changed[0].path}" if changed else "draws random numbers"
            self._recorder.run_op_by_op(f"it calls {self._name}, which {what}")
        given = {id(value) for path, value in self._roots if path}
        outer.note_host(self._name, changed, given)
        for guard in collector.guards.values():
            if outer.has_changed_for(guard) or self._looks_at(guard):
                self._recorder.run_op_by_op(
                    f"{self._name}, a host call, reads {guard.path}, which the step has changed"
                )

    def _take_back(self, collector: _Writes) -> None:
        """Undo what an evaluation has changed in Python, once."""
        if not collector.is_put_back:
            self._forget_lent(collector.guards)
            collector.put_back()

    def _go_on(
        self,
        collector: _Writes,
        suspended: Sequence[tuple[Storage, Value | None, int]],
        aside: Sequence[tuple[Any, Any, Any]],
    ) -> None:
        """End an evaluation: the trace goes on. It can be done again after an interrupt."""
        self._take_back(collector)
        takers[:] = [taker for taker in takers if taker != collector.drops_warning]
        for generator, state in collector.drawn.values():  # which draw the same again
            put_state(generator, state)
        collector.end()
        for place, stand_in, _ in aside:
            place.put(stand_in)
        for storage, value, generation in suspended:
            storage.value, storage.generation = value, generation
            storage.recorder = self._recorder

    def _looks_at(self, guard: Guard) -> list[Storage]:
        """The memory that the trace has written and a guard is about."""
        if isinstance(guard, TensorGuard):
            return [x for x in self._written if x is guard.tensor._storage]
        return self._written_on(guard.owner) if isinstance(guard, ArrayGuard) else []

    def _forget_lent(self, guards: dict[Any, Guard]) -> None:
        """Drop the guards of memory that was lent: they expect the data that it had meanwhile."""
        lent = {state.storage for state in self.states if state.given is not None}
        for identity, guard in list(guards.items()):
            looked_at = self._looks_at(guard)
            if looked_at and lent.issuperset(looked_at):
                del guards[identity]

    def outside(self, arrays: Sequence[np.ndarray]) -> Outside:
        """The tensors within reach while the call, whose operands these are, is evaluated."""
        return Outside(self.states, arrays, _refuse, self._gradients)


class _WritesOutsideError(BaseException):
    """A host call is about to write a tensor from outside. No code of the user's catches it."""


def _refuse(state: State) -> NoReturn:
    raise _WritesOutsideError(state.path)


class _Writes(GuardCollector):
    """Collects what host code changes in Python. What it reads needs no guards: it runs each call.

    Attributes:
        drawn: the random generators from which it draws, with their states before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.drawn: dict[int, tuple[Any, Any]] = {}
        self._thread = get_ident()

    def drops_warning(self, *_: object) -> bool:
        """Let the library give none in this thread."""
        return get_ident() == self._thread

    def advance(self, iterator: Any) -> None:
        """Each call advances it again."""

    def _restart_with(self, found: Any, what: str) -> None:
        """An array is read and written where the host code does it."""

    def _draw(self, generator: Any, name: str) -> None:
        """Each call draws anew."""
        if id(generator) not in self.drawn:
            self.drawn[id(generator)] = generator, state_of(generator)

    def _op_by_op(self, *why: Any, **where: Any) -> None:  # type: ignore[override]
        """Each call does it again."""


def _is_terminal(file: Any) -> bool:
    return file is sys.stdout or file is sys.stderr


class _Unsaid(Substitutes):
    """Silences an evaluation that eager mode doesn't make: prints and logs are the call's."""

    def called(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What is called instead of a function that writes on the terminal, or logs."""
        name = getattr(function, "__name__", "")
        if isinstance(function, types.MethodDescriptorType) and args:
            function = getattr(args[0], name, function)
        if not isinstance(function, _FUNCTIONS):
            return None
        owner = getattr(function, "__self__", None)
        is_logger = isinstance(owner, logging.Logger) or function.__module__ == "logging"
        says = (
            function is warnings.warn
            or (function is PRINT and _is_terminal(kwargs.get("file") or sys.stdout))
            or (is_logger and name in _LOGS)
            or (_is_terminal(owner) and name in ("write", "writelines", "flush"))
        )
        return (lambda *_, **__: None) if says else None


# ---------------------------------------------------------------------- what is within reach


def reachable(roots: Sequence[tuple[str, Any]], kind: type) -> Iterator[tuple[str, Any]]:
    """Walk through variables of functions, attributes of objects and entries of containers.

    roots: functions and objects, each with the user's expression for it.
    kind: the class of which the objects are wanted.
    """
    pending = deque(roots)
    seen: set[int] = set()
    while pending:
        path, value = pending.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, kind):
            yield path, value
        if not isinstance(value, TensorCore):
            pending += _parts(path, value)


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is within an object, one step further."""
    if isinstance(value, types.FunctionType):
        if is_users(value):
            yield from _variables(value)
        else:  # what decorates a function has that in its closure
            yield from closure_of(value).items()
    elif isinstance(value, types.MethodType):
        yield path.rpartition(".")[0] or "self", value.__self__
        yield path, value.__func__
    elif isinstance(value, dict):
        for key, item in list(dict.items(value)):
            yield f"{path}[{key!r}]" if not isinstance(key, TensorCore) else path, item
    elif isinstance(value, _CONTAINERS):
        for i, item in enumerate(value):
            yield f"{path}[{i}]", item
    elif isinstance(value, type):
        for base in filter(is_users, value.__mro__):
            for name, item in list(vars(base).items()):
                yield f"{base.__name__}.{name}", getattr(item, "__func__", item)
    elif is_users(type(value)) or is_librarys(type(value)):
        for name, item in list((instance_dict(value) or {}).items()):
            yield f"{path}.{name}" if path else name, item
        if is_users(type(value)):
            yield "", type(value)


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    yield from closure_of(function).items()
    for code in _nested(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                value = function.__globals__[name]
                if not isinstance(value, types.ModuleType):
                    yield name, value
    yield "", function.__defaults__
    yield "", function.__kwdefaults__


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)
