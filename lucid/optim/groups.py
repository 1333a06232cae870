"""Parameter groups and per-parameter state: dicts whose use in a compiled step stays live.

A step that is being compiled reads a group's floats as inputs of each later call, and is guarded by
everything else in it; which state tensors there are is part of what it was specialized on.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from types import NoneType
from typing import Any, ClassVar, Protocol, Self, cast

import numpy as np

from lucid.compiler.recording import hooks
from lucid.tensor.context import epoch, within
from lucid.tensor.core import TensorCore, constant
from lucid.tensor.writing import write_

SWITCHES = ("momentum", "dampening", "weight_decay")  # what takes no part when it is 0


class _Noted(dict[Any, Any]):
    """A dict that changes by `__setitem__` and `__delitem__` alone, however it is asked to."""

    __slots__ = ()

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, entries: Any) -> Self:  # type: ignore[misc]
        self.update(entries)
        return self

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: Any, *default: Any) -> Any:
        if key not in self:
            return super().pop(key, *default)
        found = dict.__getitem__(self, key)
        del self[key]
        return found

    def popitem(self) -> tuple[Any, Any]:
        if not self:
            return super().popitem()
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        for key in [*self]:
            del self[key]


def _is_setting(value: object) -> bool:
    """Whether it is of the kinds that optimizers set; another may change in its place."""
    parts = value if isinstance(value, tuple) else (value,)
    return all(isinstance(part, (int, float, str, TensorCore, NoneType)) for part in parts)


class ParamGroup(_Noted):
    """The parameters of one group, and the hyper-parameters that they share.

    Attributes:
        owner: the optimizer; position: the group's number in its `param_groups`.
        bound: what a compiled step sets, so that no other step is specialized on it.
    """

    __slots__ = ("bound", "owner", "position", "trace")

    def __init__(self, values: dict[str, Any], owner: Named, position: int) -> None:
        super().__init__({key: _plain(value) for key, value in values.items()})
        self.owner, self.position = owner, position
        self.bound: set[str] = set()
        self.trace = hooks.running_trace()  # one made in a trace is none of its inputs

    @property
    def source(self) -> str:
        """How the user gets at the group, `opt.param_groups[0]`; for traces."""
        return f"{self.owner.trace_name()}.param_groups[{self.position}]"

    def raw(self, key: str) -> Any:
        """The value of now, unseen by a trace."""
        return dict.__getitem__(self, key)

    def is_input(self) -> bool:
        """Whether a trace runs that found the group, and reads it again at each call."""
        return hooks.is_tracing() and hooks.running_trace() != self.trace

    def __getitem__(self, key: str) -> Any:
        value = dict.__getitem__(self, key)
        if not self.is_input():
            return value
        self.owner.guard()
        if hooks.has_bound(self, key):
            return value
        is_users = key != "params" and not _is_setting(value)
        if is_users or (key in self.bound and not isinstance(value, (float, tuple))):
            hooks.watch(self, key, lambda: f"{self.source}[{key!r}]")
        elif isinstance(value, (float, tuple)):
            return hooks.live(self, key, f"{self.source}[{key!r}]")
        if key != "params":
            hooks.reads(self, key)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if dict.__contains__(self, key) else default

    def __iter__(self) -> Iterator[str]:
        """Iterated over in Python, so that `dict(group)` and `**group` ask for each entry."""
        return dict.__iter__(self)

    def __copy__(self) -> ParamGroup:
        """A group that may take this one's place."""
        return ParamGroup(dict(self.items()), self.owner, self.position)

    def __deepcopy__(self, memo: dict[int, Any]) -> ParamGroup:
        """A group of the optimizer's copy, if that is copied as well."""
        owner = memo.get(id(self.owner), self.owner)
        return ParamGroup(deepcopy(dict(self.items()), memo), owner, self.position)

    def values(self) -> Any:
        return [self[key] for key in self] if self.is_input() else dict.values(self)

    def items(self) -> Any:
        return [(key, self[key]) for key in self] if self.is_input() else dict.items(self)

    def is_read_live(self, key: str) -> bool:
        """Whether traces read an entry at each call: one that is watched needn't stay the same."""
        return isinstance(dict.__getitem__(self, key), float)

    def is_nonzero(self, key: str) -> bool:
        """Whether a hyper-parameter takes part; a step is specialized on this, not on its value."""
        assert key in SWITCHES
        if self.is_input():
            self.owner.guard()
        return bool(self.raw(key) != 0)

    def settings(self) -> str:
        """What a step is specialized on: all but the floats, and of these whether they are 0."""
        shown = []
        for key, value in dict.items(self):
            if key in self.bound:
                continue
            if key in SWITCHES:
                shown.append(f"{key} {'!=' if value != 0 else '=='} 0")
            elif isinstance(value, TensorCore):
                shown.append(f"{key} is a tensor")
            elif key != "params" and not isinstance(value, (float, tuple)):
                shown.append(f"{key} = {value!r}")
        return ", ".join(shown)

    def tensors(self) -> list[TensorCore]:
        """Those among the settings, such as a learning rate."""
        found = [x for key, x in dict.items(self) if key not in self.bound]
        return [x for x in found if isinstance(x, TensorCore)]

    def __setitem__(self, key: str, value: Any) -> None:
        value = _plain(value)
        if self.is_input():
            self.bound.add(key)
            hooks.binds(self, key, lambda: f"{self.source}[{key!r}]", depends=False)
            super().__setitem__(key, value)
            return
        before = dict.get(self, key)
        if not _is_read_live(before, value) or (key in SWITCHES and (before != 0) != (value != 0)):
            note_change()
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        if self.is_input():
            hooks.run_op_by_op(f"it removes {self.source}[{key!r}]")
        note_change()
        super().__delitem__(key)


class Named(Protocol):
    """What a group asks of its optimizer."""

    def trace_name(self) -> str: ...
    def guard(self) -> None: ...


def _plain(value: Any) -> Any:
    """NumPy's floats as Python's, which a trace keeps live."""
    return hooks.as_float(value) if isinstance(value, np.floating) else value


def _is_read_live(before: Any, after: Any) -> bool:
    """Whether a step that was compiled with `before` reads `after` by itself."""
    if type(before) is tuple and type(after) is tuple and len(before) == len(after):
        return all(map(_is_read_live, before, after))
    return type(before) is float and type(after) is float


class StateEntry(_Noted):
    """The state of one parameter: moments, step counts.

    Attributes:
        trace: the trace whose function made it; None: made outside, or once for all calls.
    """

    __slots__ = ("trace",)

    trace: object

    def __new__(cls) -> StateEntry:
        entry = super().__new__(cls)
        entry.trace = None
        return entry

    def __getstate__(self) -> None:
        """Nothing besides the entries; a copy belongs to no trace."""

    def create(self, key: str, value: TensorCore) -> None:
        """Enter a concrete tensor that a step needs, of which a trace that made the entry knows."""
        note_change()
        if hooks.is_made_here(self.trace):
            hooks.adopt(value)
            super().__setitem__(key, value)
        else:
            hooks.makes(self, key, value)

    def __setitem__(self, key: str, value: Any) -> None:
        if value is dict.get(self, key) and hooks.is_tracing():
            return  # `state["step"] += 1` has written in place
        self._changes(key)
        super().__setitem__(key, value)

    def _changes(self, key: str) -> None:
        if hooks.is_made_here(self.trace):
            return  # the entry as a whole is what the step binds
        hooks.binds(self, key, lambda: f"an optimizer's state[{key!r}]")
        note_change()

    def __delitem__(self, key: str) -> None:
        if self.trace is None or self.trace != hooks.running_trace():
            _removes_state(self)
        super().__delitem__(key)


class Tensors(tuple[Any, ...]):
    """Which parameters and state tensors there are, by identity, in groups.

    They are weak references: a later tensor at the address of one that is gone is another one.
    """

    __slots__ = ()

    @classmethod
    def of(cls, groups: Iterable[Iterable[Any]]) -> Tensors:
        """The tensors of all groups, each of which a None ends."""
        return cls(x for group in groups for x in (*map(_reference, group), None))

    def __eq__(self, other: object) -> bool:
        is_like = isinstance(other, Tensors) and len(self) == len(other)
        return is_like and all(map(operator.is_, self, cast(Tensors, other)))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __repr__(self) -> str:
        return f"{len(self) - self.count(None)} tensors, #{hash(self) % 10_000}"


def _reference(value: Any) -> Any:
    """A weak reference to a tensor; what else a user keeps in a state stands for itself."""
    return weakref.ref(value) if isinstance(value, TensorCore) else value


class Layout:
    """What of an optimizer a compiled step was specialized on.

    Attributes:
        settings: per group, what its floats don't say; and which hooks `step` runs.
        parameters: which parameters there are, and tensors among the settings.
        tensors: the same, and which state tensors.
    """

    __slots__ = ("parameters", "settings", "tensors")

    def __init__(
        self, groups: Sequence[ParamGroup], state: State, hooks: tuple[tuple[int, ...], ...]
    ) -> None:
        self.settings = "; ".join(group.settings() for group in groups)
        if any(hooks):
            self.settings += f"; hooks {hooks}"
        parameters = [group.raw("params") for group in groups]
        self.parameters = Tensors.of([*parameters, *(group.tensors() for group in groups)])
        self.tensors = Tensors.of(
            (parameter, *state.get(parameter, {}).values())
            for group in parameters
            for parameter in group
        )


def note_change() -> None:
    """Note that an optimizer is not what it was: steps that met it look again whether they hold."""
    State.changes += 1
    epoch.count += 1


class State(_Noted):
    """State by parameter; an entry comes into being when it is first asked for.

    Attributes:
        changes: how often state or groups of any optimizer have changed.
        layout: what `Optimizer.layout` found last, and when.
        trace: the trace whose function made it, with its optimizer: each call has its own.
        given: entries that stand for a user's dict, which is written until the state is read:
            `entry = state[p] = {}` and then `entry["step"] = 0`.
    """

    __slots__ = ("given", "layout", "trace")

    tells_reads: ClassVar[bool] = False  # whoever looks an entry up depends on it, as of any dict
    changes: ClassVar[int] = 0
    given: dict[Any, tuple[StateEntry, dict[str, Any]]]
    layout: tuple[Any, Layout] | None
    trace: object

    def __new__(cls) -> State:
        """Copies and pickles are made by this alone."""
        state = super().__new__(cls)
        state.given, state.layout = {}, None
        state.trace = hooks.running_trace()
        return state

    @classmethod
    def of(cls, entries: dict[Any, Any], before: State | None) -> State:
        """What a user binds in the place of an optimizer's state, such as a `defaultdict(dict)`."""
        if before is not None:
            _removes_state(before)
        if isinstance(entries, State):
            return entries
        state = cls()
        state.update(entries)
        return state

    def settle(self) -> State:
        """Let the entries have what their users' dicts have by now."""
        while self.given:
            _, (entry, values) = self.given.popitem()
            dict.update(entry, values)
            note_change()
        return self

    def __getitem__(self, parameter: Any) -> Any:
        return dict.__getitem__(self.settle(), parameter)

    def get(self, parameter: Any, default: Any = None) -> Any:
        return dict.get(self.settle(), parameter, default)

    def values(self) -> Any:
        return dict.values(self.settle())

    def items(self) -> Any:
        return dict.items(self.settle())

    def __getstate__(self) -> None:
        """Nothing besides the entries; object ids mean nothing to a copy."""

    def __missing__(self, parameter: Any) -> StateEntry:
        entry = StateEntry()
        note_change()
        if hooks.is_made_here(self.trace):
            entry.trace = self.trace
            super().__setitem__(parameter, entry)
        else:
            hooks.makes(self, parameter, entry)
        return entry

    def __setitem__(self, parameter: Any, value: Any) -> None:
        hooks.binds(self, parameter, lambda: "an optimizer's state of a parameter")
        note_change()
        entry = value if isinstance(value, StateEntry) else _entry(value)
        super().__setitem__(parameter, entry)
        if entry is not value:
            self.given[parameter] = entry, value
            hooks.at_the_end(self.settle)

    def __delitem__(self, parameter: Any) -> None:
        _removes_state(self.settle())  # who pops an entry may write it, and put it elsewhere
        super().__delitem__(parameter)

    def setdefault(self, parameter: Any, default: Any = None) -> Any:
        if parameter not in self and default is not None:
            self[parameter] = default
        return self[parameter]


def _removes_state(state: dict[Any, Any]) -> None:
    """State is about to be removed, if there is any; a step makes it once for all of its calls."""
    note_change()
    if state:
        hooks.run_op_by_op(
            "it removes state of an optimizer, which the next call would have to make anew",
            "remove it between the calls, or write it in place: buffer.zero_()",
        )


def _entry(values: dict[str, Any]) -> StateEntry:
    entry = StateEntry()
    entry.trace = hooks.running_trace()
    dict.update(entry, values)
    return entry


def rate_of(group: ParamGroup, key: str = "lr") -> Any:
    """A group's learning rate; of one that is a tensor, a copy."""
    rate = group.raw(key)
    return rate.detach().clone() if isinstance(rate, TensorCore) else rate


def set_rate(group: ParamGroup, rate: Any) -> None:
    """Set a group's learning rate; one that is a tensor is written in place."""
    present = group.raw("lr")
    if isinstance(present, TensorCore):
        new = rate if isinstance(rate, TensorCore) else constant(rate, present.dtype)
        within({"grad_enabled": False}, write_, present, new)
    else:
        group["lr"] = rate
