"""What isn't there for code that looks: attributes of objects and classes, and globals.

An instance's attribute covers its class's, one of a class those of its bases, and a global a
builtin. Code that ran has found what is covered, so it must stay uncovered.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Set
from typing import Any

from lucid.compiler.inputs.watches import AbsenceWatch, ClassAttributes
from lucid.compiler.surroundings.reads import Reads


class Lookups:
    """The objects, classes and namespaces in which a walk has seen names looked up."""

    def __init__(self) -> None:
        self._objects: list[tuple[str, Any, dict[str, Any], bool]] = []
        self._functions: list[types.FunctionType] = []
        self._classes: dict[int, type] = {}
        self._globals: dict[int, tuple[dict[str, Any], dict[str, set[types.CodeType]]]] = {}

    def add_object(self, path: str, value: Any, in_module: bool) -> None:
        """An object of whose attributes some are its class's."""
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict:
            self._objects.append((path, value, attributes, in_module))

    def add_function(self, function: types.FunctionType) -> None:
        """A function, which may have attributes: counts of its calls, say."""
        self._functions.append(function)

    def add_class(self, kind: type) -> None:
        """A class of the user's, some of whose attributes are its bases'."""
        self._classes[id(kind)] = kind

    def add_builtin(self, name: str, names: dict[str, Any], reader: types.CodeType) -> None:
        """A function that finds a builtin, as its module has nothing of that name."""
        readers = self._globals.setdefault(id(names), (names, {}))[1]
        readers.setdefault(name, set()).add(reader)

    def watches(self, reads: Reads) -> Iterator[AbsenceWatch]:
        """What is to stay absent, for code that has read all this."""
        for path, value, attributes, in_module in self._objects:
            names = _read(reads, type(value).__mro__) - attributes.keys()
            if names:
                yield AbsenceWatch(path, attributes, names, in_module)
        for function in self._functions if reads.asked else ():
            names = reads.asked - vars(function).keys()
            if names:
                yield AbsenceWatch(function.__name__, vars(function), names, False)
        for kind in self._classes.values():
            names = _read(reads, kind.__mro__[1:]) - vars(kind).keys()
            if names:
                yield AbsenceWatch(kind.__name__, ClassAttributes(kind), names, False)
        for entries, readers in self._globals.values():
            names = frozenset(name for name, codes in readers.items() if codes & reads.codes)
            if names:
                yield AbsenceWatch("", entries, names, False)


def _read(reads: Reads, kinds: tuple[type, ...]) -> frozenset[str]:
    """Names of attributes that code has read and that some of the classes have, or nobody."""
    held: Set[str] = {name for kind in kinds if kind is not object for name in vars(kind)}
    names = (held & reads.names) | reads.loaded
    return frozenset(name for name in names if not name.startswith("__"))
