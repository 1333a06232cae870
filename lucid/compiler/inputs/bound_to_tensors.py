"""What users bind to tensors that are arguments, `x.mask = ...`: a step that uses it runs op by op.

Others, a number or a name that each batch carries, are nothing to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lucid.compiler.restarts import RestartTrace
from lucid.ir.errors import EagerOnlyError
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore, attributes_of

LIBRARYS = ("_compiled_", "_kept_accumulator")  # what compiled methods and hooks are kept as
_Search = tuple[Mapping[int, int], Collection[str], set[str]]
_NO_SEARCH: _Search = ({}, (), set())
_searches: dict[int, _Search] = {}  # by trace: host calls in one may begin another


def names_bound_to(tensor: TensorCore) -> list[str]:
    """The names of the attributes that users have bound to a tensor."""
    return [name for name in attributes_of(tensor) if not name.startswith(LIBRARYS)]


def refuse_attributes(tensor: TensorCore, asked: Collection[str]) -> None:
    """Raise `EagerOnlyError` for a tensor of a call with an attribute that the step looks for."""
    for name in attributes_of(tensor):
        if name in asked:
            raise EagerOnlyError(f"it reads .{name}, which is bound to a tensor that it is given")


@contextmanager
def noticing(handles: Mapping[int, int], asked: Collection[str]) -> Iterator[None]:
    """Raise `RestartTrace` where the running trace looks for others of the tensors it is given.

    And `EagerOnlyError` where it deletes one. Meanwhile tensors have a `__getattr__`, which makes
    every look at an attribute slower.

    handles: the positions of the arguments by the identity of what stands for them.
    """
    found: set[str] = set()
    of_trace = id(context.recorder)
    if not _searches:
        for name, method in _METHODS.items():
            setattr(TensorCore, name, method)
    _searches[of_trace] = handles, asked, found
    try:
        yield
    finally:
        del _searches[of_trace]
        if not _searches:
            for name in _METHODS:
                delattr(TensorCore, name)
        if found:  # whatever the user's code has made of it
            raise _asks(found) from None


def _asks(names: set[str]) -> RestartTrace:
    """Calls that have such attributes will run op by op."""
    text = ", ".join(f".{name}" for name in sorted(names))
    return RestartTrace(f"looks for {text} of a tensor that it is given", "attributes", names)


def _look_again(tensor: TensorCore, name: str) -> Any:
    handles, asked, found = _searches.get(id(context.recorder), _NO_SEARCH)
    if id(tensor) in handles and name not in asked and not name.startswith(("__", *LIBRARYS)):
        found.add(name)
        raise _asks(found)
    return object.__getattribute__(tensor, name)  # raises what it has raised


def _delete(tensor: TensorCore, name: str) -> None:
    recorder = context.recorder
    if recorder is not None and id(tensor) in recorder.positions and not hasattr(TensorCore, name):
        recorder.run_op_by_op(f"it deletes .{name} of a tensor that it is given")
    object.__delattr__(tensor, name)


_METHODS = {"__getattr__": _look_again, "__delattr__": _delete}
