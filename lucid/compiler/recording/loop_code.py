"""What the code of a `for` over a `range` tells of its rounds."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Sequence
from typing import NamedTuple

from lucid.compiler.guards.events import depths, steps

_SHOW_VARIABLES = ("locals", "vars", "dir", "eval", "exec")
_NO_FUNCTION = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# How many values some instructions take from the stack, while an index is put together.
_TAKEN = {"BINARY_OP": 2, "BINARY_SUBSCR": 2, "LOAD_ATTR": 1, "LOAD_METHOD": 1, "UNARY_NEGATIVE": 1}
_NONE = ("NOP", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF")


class LoopCode(NamedTuple):
    """What the code of a loop tells.

    Attributes:
        is_index: whether a round uses its number, as an index of something alone.
        live: the variables that a round, or what follows it, reads as they are before it, or that
            inner functions share, by their places in a frame; those of enclosing functions aren't
            the frame's.
    """

    is_index: bool
    live: list[int]


@functools.lru_cache(maxsize=1024)
def code_of_loop(code: types.CodeType, offset: int) -> LoopCode | None:
    """That of the loop which iterates over what an instruction gives; None: it stays Python's."""
    instructions = [x for x in dis.get_instructions(code) if x.opname != "EXTENDED_ARG"]
    advance = next(x for x in instructions if x.offset > offset)
    shows = any(x.argval in _SHOW_VARIABLES for x in instructions if _loads_global(x))
    if code.co_flags & _NO_FUNCTION or shows or advance.opname != "FOR_ITER":
        return None
    body = [x for x in instructions if advance.offset < x.offset < advance.argval]
    if not body[0].opname.startswith("STORE_FAST"):
        return None
    number = _variables(body[0])[1][0]
    at = dict.fromkeys([x.offset for x in body], 0) | depths(code)  # 0: nothing leads there
    uses = [
        (i, at[x.offset] + place - len(_variables(x)[1]))
        for i, x in enumerate(body)
        for place, name in enumerate(_variables(x)[0])
        if name == number
    ]
    if not all(_is_index(body[i + 1 :], at, place) for i, place in uses):
        return None
    names = [*dict.fromkeys((*code.co_varnames, *code.co_cellvars))]
    live = {*_live(code)[body[0].offset], *code.co_cellvars} - {number, *code.co_freevars}
    return LoopCode(bool(uses), sorted(map(names.index, live)))


def loop_behind(code: types.CodeType, offset: int) -> LoopCode | None:
    """What the code of the loop tells that goes over what a call gives; None: there is none."""
    call, *behind = [x for x in dis.get_instructions(code) if x.offset >= offset]
    following = behind[call.opname == "PRECALL"]  # in 3.11 the call itself is behind that
    return code_of_loop(code, following.offset) if following.opname == "GET_ITER" else None


def _is_index(following: Sequence[dis.Instruction], at: dict[int, int], place: int) -> bool:
    """Whether a value, at a place on the stack, is used as an index, perhaps one of several."""
    for instruction in following:
        name, depth = instruction.opname, at[instruction.offset]
        if name == "BUILD_TUPLE" and depth - (instruction.arg or 0) <= place:
            place = depth - (instruction.arg or 0)
            continue
        if name == "BINARY_SUBSCR" and depth == place + 1:
            return True
        is_known = name in _NONE or name.startswith("LOAD_FAST")
        taken = (
            0 if is_known else _TAKEN.get(name, instruction.arg if name == "BUILD_SLICE" else None)
        )
        if taken is None or depth - taken <= place:
            return False
    return False


def _loads_global(instruction: dis.Instruction) -> bool:
    return instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")


def _variables(instruction: dis.Instruction) -> tuple[list[str], list[str]]:
    """The variables that an instruction reads, and those that it writes."""
    name, variables = instruction.opname, instruction.argval
    found = [*variables] if isinstance(variables, tuple) else [variables]
    if name == "STORE_FAST_LOAD_FAST":
        return found[1:], found[:1]
    if name.startswith("STORE_FAST"):
        return [], found
    is_read = name.startswith(("LOAD_FAST", "LOAD_CLOSURE")) or name == "DELETE_FAST"
    return (found if is_read else []), []


@functools.lru_cache(maxsize=256)
def _live(code: types.CodeType) -> dict[int, set[str]]:
    """The variables that are read as they are before an instruction, by the offset of that."""
    instructions, following = [*dis.get_instructions(code)], steps(code)
    found = {x.offset: set[str]() for x in instructions}
    is_new = True
    while is_new:
        is_new = False
        for instruction in reversed(instructions):
            read, written = _variables(instruction)
            if instruction.opname == "STORE_FAST_LOAD_FAST":
                read = [x for x in read if x not in written]
            after = set[str]().union(*(found[x.target] for x in following[instruction.offset]))
            live = (after - {*written}) | {*read}
            is_new = is_new or live != found[instruction.offset]
            found[instruction.offset] = live
    return found
