"""What users bind to tensors that are arguments: `x.mask = ...`.

Of these attributes a program knows those that the function has been seen to ask for: others, a
number or a name that each batch carries, are nothing to it. A function that asks for none is called
as if there were none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

LIBRARYS = ("_compiled_", "_kept_accumulator")  # what compiled methods and hooks are kept as
_LOOK_AGAIN = "__getattr__"
_Search = tuple[Mapping[int, int], Collection[str], set[str]]
_NO_SEARCH: _Search = ({}, (), set())
_searches: dict[int, _Search] = {}  # by trace: host calls in one may begin another


class AsksAttributes(BaseException):
    """A step looks for attributes of tensors that it was given: its calls know them from now on.

    No `Exception`, so that a program that is being traced doesn't catch it.

    Attributes:
        names: of the attributes, on whichever of the tensors.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)


def attributes_of(tensor: TensorCore, asked: Collection[str]) -> dict[str, Any]:
    """What users have bound to a tensor under these names, in the order of the alphabet."""
    attributes = vars(tensor) if asked else {}
    return {name: attributes[name] for name in sorted(asked) if name in attributes}


def unasked(tensors: Collection[TensorCore], asked: Collection[str]) -> set[str]:
    """The names of all other attributes that users have bound to some of the tensors."""
    names = {name for tensor in tensors for name in vars(tensor) if name not in asked}
    return {name for name in names if not name.startswith(LIBRARYS)}


@contextmanager
def noticing(handles: Mapping[int, int], asked: Collection[str]) -> Iterator[None]:
    """Raise `AsksAttributes` where the running trace looks for others of the tensors it is given.

    Meanwhile tensors have a `__getattr__`, which makes every look at an attribute slower.

    handles: the positions of the arguments by the identity of what stands for them.
    """
    found: set[str] = set()
    of_trace = id(context.recorder)
    if not _searches:
        setattr(TensorCore, _LOOK_AGAIN, _look_again)
    _searches[of_trace] = handles, asked, found
    try:
        yield
    finally:
        del _searches[of_trace]
        if not _searches:
            delattr(TensorCore, _LOOK_AGAIN)
        if found:  # whatever the user's code has made of it
            raise AsksAttributes(found) from None


def _look_again(tensor: TensorCore, name: str) -> Any:
    handles, asked, found = _searches.get(id(context.recorder), _NO_SEARCH)
    if id(tensor) in handles and name not in asked and not name.startswith(("__", *LIBRARYS)):
        found.add(name)
        raise AsksAttributes(found)
    return object.__getattribute__(tensor, name)  # raises what it has raised
