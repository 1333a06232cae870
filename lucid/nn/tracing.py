"""What a trace has to know about modules: the path of the one that runs, and what it depends on.

A compiled step holds what `forward` did with a module's attributes, `training` included: the trace
watches all modules within reach, and every change to a module moves the epoch. Those out of reach
are met when they are called, or a parameter is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from lucid.compiler.recording import hooks
from lucid.nn.naming import trace_name, variable_name
from lucid.tensor.context import epoch

if TYPE_CHECKING:
    from lucid.nn.modules.module import Module


class _Running(NamedTuple):
    """A module that runs, and the paths of those below it, by identity, once one is asked for."""

    module: Module
    paths: dict[int, tuple[Module, str]]


# By the trace, and gone with it: an interrupt may leave modules running.
_running: WeakKeyDictionary[object, list[_Running]] = WeakKeyDictionary()


def note_change() -> None:
    """Note that a module is not what it was: steps that met it look again whether they hold."""
    epoch.count += 1


def meet(module: Module, path: str) -> None:
    """Make the running trace depend on the module: attributes, parameters, submodules, hooks."""
    hooks.meet(module, path)


def binds(module: Module, name: str) -> None:
    """Let the running trace know of an attribute that is about to be bound, by code of ours too."""
    if hooks.is_tracing():
        path = partial(trace_name, module, lambda: _full_path(module))
        hooks.binds(module.__dict__, name, lambda: f"{path()}.{name}", depends=False)


def path_of(module: Module) -> str:
    """The path from the innermost running module that holds it, else the variable's name."""
    running = _running.get(hooks.running.recorder)
    if running:
        innermost, paths = running[-1]
        if innermost is module:
            return ""
        if id(module) not in paths:  # all at once: a container asks for each of its layers
            paths.clear()
            for name, child in innermost.walk():
                paths.setdefault(id(child), (child, name))
        if id(module) in paths:
            return paths[id(module)][1]
    return variable_name(module)


@contextmanager
def running(module: Module) -> Iterator[None]:
    """Guard the module, and give the ops that are recorded inside its path as their scope."""
    path = path_of(module)
    meet(module, path)
    stack = _running.setdefault(hooks.running.recorder, [])
    stack.append(_Running(module, {}))
    try:
        with hooks.scope(path):
            yield
    finally:
        stack.pop()


def _full_path(module: Module) -> str:
    """The path from the outermost running module's variable."""
    recorder = hooks.running.recorder
    assert recorder is not None
    return ".".join(filter(None, (recorder.scope, path_of(module))))


def meet_whole(module: Module) -> None:
    """Make the running trace depend on all attributes of the module, numbers read live as well."""
    if hooks.is_tracing():
        meet(module, path_of(module))
        hooks.watch_attributes(module, lambda: trace_name(module, lambda: _full_path(module)))


def live_attribute(module: Module, name: str) -> Any:
    """Read an attribute in such a way that a trace reads a float anew at each call."""
    if not hooks.is_tracing() or name not in module.__dict__:  # it is a parameter of the user's
        return getattr(module, name)
    owner = trace_name(module, lambda: _full_path(module))
    return hooks.live(module.__dict__, name, f"{owner}.{name}", module)
