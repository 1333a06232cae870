"""What Python code reads: the names in code objects, and which of these objects ran."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager


class Executed:
    """The code objects that this thread ran inside of the block.

    Attributes:
        codes: None where another profiler was running, which would not be disturbed.
    """

    def __init__(self) -> None:
        self.codes: set[types.CodeType] | None = None


@contextmanager
def executed_codes() -> Iterator[Executed]:
    """Collect the code objects that this thread runs inside of the block."""
    found = Executed()
    if sys.getprofile() is not None:
        yield found
        return
    codes: set[types.CodeType] = set()
    add = codes.add

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call":
            add(frame.f_code)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        found.codes = codes


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions defined in it."""
    stack = [code]
    while stack:
        code = stack.pop()
        yield code
        stack += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def global_names(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
    """Names that a function and those nested in it have from the globals, with the user."""
    for reader in nested(code):
        for instruction in dis.get_instructions(reader):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
                yield instruction.argval, reader
