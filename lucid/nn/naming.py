"""What the user calls an object, a variable or attribute that holds it; and errors of names.

The errors are those of modules and optimizers that no op can raise.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary, ref

from lucid.compiler.recording import hooks
from lucid.ir.errors import LucidError
from lucid.ir.location import user_frame
from lucid.tensor.core import TensorCore


class NamingError(LucidError, KeyError):
    """A name or key that is missing, taken, or not allowed."""

    __str__ = RuntimeError.__str__  # KeyError would show the text's repr


class NoSuchAttributeError(LucidError, AttributeError):
    """A module hasn't the attribute, or can't hold it yet."""


class ModuleStateError(LucidError):
    """A state dict that doesn't fit the module."""


class UninitializedError(LucidError, ValueError):
    """A parameter or buffer of a lazy module is used before the module's first call."""


_names: WeakKeyDictionary[object, dict[str, ref[object]]] = WeakKeyDictionary()


def variable_name(target: object) -> str:
    """The name of `target` in the user's frame or those that called it: `model`, `self.model`.

    It serves dumps and messages only; empty where nothing holds the object by name.
    """
    recorder = hooks.running.recorder
    if recorder is not None:
        known = recorder.collector.name_of(target)
        if known:
            return known
    frame = user_frame()
    while frame is not None:
        for scope in (frame.f_locals, frame.f_globals):
            for name, value in list(scope.items()):
                if value is target and not name.startswith("_"):
                    return name
        for owner in frame.f_code.co_varnames[:1]:  # `self`, in a method
            holder = frame.f_locals.get(owner)
            if isinstance(holder, TensorCore):
                continue
            attributes = getattr(holder, "__dict__", {})
            for name, value in list(attributes.items()):
                if value is target:
                    return f"{owner}.{name}"
        frame = frame.f_back
    return ""


def trace_name(target: object, proposal: Callable[[], str]) -> str:
    """The name of an object in the running trace, which no other object has; kept once given.

    Live scalars and guards are told apart by such names.
    """
    recorder = hooks.running.recorder
    assert recorder is not None, "names are given in traces"
    names = _names.setdefault(recorder, {})
    for name, named in names.items():
        if named() is target:
            return name
    first = name = proposal() or type(target).__name__.lower()
    count = 1
    while name in names:
        count += 1
        name = f"{first}#{count}"
    names[name] = ref(target)  # what the step makes goes when its trace ends
    return name
