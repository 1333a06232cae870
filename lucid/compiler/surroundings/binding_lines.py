"""The lines of the user's that bind a place, for messages: found in the code that ran."""

from __future__ import annotations

import dis
import re
import types
from collections.abc import Iterable, Iterator

from lucid.ir.location import Location

_NAMES = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF", "DELETE_ATTR", "DELETE_GLOBAL"})
_ENTRIES = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
_METHODS = frozenset(
    {
        *("append", "appendleft", "extend", "insert", "pop", "popleft", "clear", "remove"),
        *("add", "discard", "update", "setdefault", "popitem", "sort", "reverse", "rotate"),
    }
)
_MOST = 3


def binding_lines(path: str, codes: Iterable[types.CodeType]) -> str:
    """Lines for a message: those that can have bound the place at `path`; not more than a few."""
    stored = list(dict.fromkeys(line for code in codes for line in _lines(path, code)))
    if len(stored) > _MOST:
        return ""
    return "".join(f"\n  at {line}   {line.text}" for line in stored)


def _lines(path: str, code: types.CodeType) -> Iterator[Location]:
    entry = re.fullmatch(r"(.*)\[(.*?)\]", path)
    name = re.findall(r"\w+", entry[1] if entry else path)[-1:]
    for instruction in dis.get_instructions(code):
        line = None if instruction.positions is None else instruction.positions.lineno
        if line is not None and name:
            place = Location(code.co_filename, line)
            if _binds(instruction, place, name[0], entry):
                yield place


def _binds(
    instruction: dis.Instruction, place: Location, name: str, entry: re.Match[str] | None
) -> bool:
    """Whether an instruction can be what binds an attribute or variable, or an entry of it."""
    kind, operand = instruction.opname, instruction.argval
    if kind in _NAMES:
        return entry is None and bool(operand == name)
    if kind in _ENTRIES:
        return _mentions(place, name, entry)
    is_call = kind in ("LOAD_METHOD", "LOAD_ATTR") and operand in _METHODS
    return is_call and re.search(rf"\b{name}\b.*\.{operand}\(", place.text) is not None


def _mentions(place: Location, name: str, entry: re.Match[str] | None) -> bool:
    """Whether the line has the container's name, and the key where that is a text."""
    text = place.text.replace('"', "'")
    is_named = re.search(rf"\b{name}\b.*\[", text) is not None
    if entry is None or not entry[2].startswith("'"):
        return is_named
    return entry[2] in text
