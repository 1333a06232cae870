"""What Python code reads and could do: the names in code objects, and which of these ran."""

from __future__ import annotations

import dis
import functools
import random
import sys
import threading
import types
from collections.abc import Iterator, Set
from contextlib import contextmanager

import numpy as np

from lucid.compiler.whose_code import is_installed_or_users_file

_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random)
_LOOKS = {"bit_generator", "get_state", "getstate", "test"}
_DRAWS = {n for kind in _GENERATORS for n in dir(kind) if not n.startswith("_")} - _LOOKS
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST", "IMPORT_FROM", *_ATTRIBUTES)
_WRITES = {
    *("at", "byteswap", "copyto", "fill", "fill_diagonal", "itemset", "partition", "place", "put"),
    *("put_along_axis", "putmask", "readinto", "resize", "setfield", "setitem", "shuffle", "sort"),
}


class Executed:
    """The code objects that this thread ran inside of the block.

    What other threads do at the same time can't be told from what this one does; but what the code
    that ran here doesn't even name, others have done.

    Attributes:
        codes: None where another profiler was running, which would not be disturbed.
    """

    def __init__(self) -> None:
        self.codes: set[types.CodeType] | None = None
        self._globals: dict[types.CodeType, dict[str, object]] = {}

    def could_draw(self, methods: frozenset[str]) -> bool:
        """Whether this thread may have drawn from a random generator of Python's or NumPy's.

        methods: variables and attributes that hold a method of one.
        """
        names = _DRAWS | methods
        return self._is_alone() or any(self._names(code, names) for code in self._users())

    def could_write_arrays(self) -> bool:
        """Whether this thread may have written into a NumPy array."""
        return self._is_alone() or any(map(_writes, self._users()))

    def _is_alone(self) -> bool:
        return self.codes is None or threading.active_count() == 1

    def _users(self) -> Iterator[types.CodeType]:
        """Neither lucid's nor Python's own; who calls those to draw or to write names it."""
        return (code for code in self.codes or () if is_installed_or_users_file(code.co_filename))

    def _names(self, code: types.CodeType, names: Set[str]) -> bool:
        """Whether it names a method of a generator; `lucid.rand` is none."""
        before: dis.Instruction | None = None
        for instruction in dis.get_instructions(code):
            if instruction.opname in _READS and instruction.argval in names:
                owner = None
                if instruction.opname in _ATTRIBUTES and before is not None:
                    owner = self._globals[code].get(str(before.argval))
                name = getattr(owner, "__name__", "")
                if not isinstance(owner, types.ModuleType) or not name.startswith("lucid"):
                    return True
            before = instruction
        return False


@contextmanager
def executed_codes(found: Executed) -> Iterator[None]:
    """Collect the code objects that this thread runs inside of the block."""
    if sys.getprofile() is not None:
        yield
        return
    codes = found._globals

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call":
            codes[frame.f_code] = frame.f_globals

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        found.codes = set(codes)
        for code, names in codes.items():
            if not _is_a_modules(names):  # of exec and eval; they may hold what the trace made
                codes[code] = {}


def _is_a_modules(names: dict[str, object]) -> bool:
    module = sys.modules.get(str(names.get("__name__")))
    return module is not None and vars(module) is names


def _writes(code: types.CodeType) -> bool:
    """Whether it assigns to items, works in place, or names what writes arrays."""
    if not _WRITES.isdisjoint(code.co_names):
        return True
    if any(isinstance(constant, tuple) and "out" in constant for constant in code.co_consts):
        return True  # of keywords
    return any(
        instruction.opname in ("STORE_SUBSCR", "STORE_SLICE")
        or (instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("="))
        for instruction in dis.get_instructions(code)
    )


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions defined in it."""
    stack = [code]
    while stack:
        code = stack.pop()
        yield code
        stack += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


@functools.lru_cache(maxsize=4096)
def read_variables(code: types.CodeType) -> frozenset[str]:
    """Variables of outer functions that a function itself reads or binds."""
    return frozenset(
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname.endswith("DEREF")
    )


@functools.lru_cache(maxsize=4096)
def loaded_attributes(code: types.CodeType) -> frozenset[str]:
    """The attributes that a function reads, by name or, as it may, by a constant."""
    loaded = [i.argval for i in dis.get_instructions(code) if i.opname in _ATTRIBUTES]
    texts = [text for text in code.co_consts if isinstance(text, str) and text.isidentifier()]
    return frozenset((*loaded, *texts))


def global_names(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
    """Names that a function and those nested in it have from the globals, with the user."""
    for reader in nested(code):
        for instruction in dis.get_instructions(reader):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
                yield instruction.argval, reader
