"""What the code of a `for` tells of its rounds."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Sequence
from typing import NamedTuple

from lucid.compiler.guards.events import depths, steps

_SHOW_VARIABLES = ("locals", "vars", "dir", "eval", "exec")
_MOST_CALLS = 3  # between what is made and the loop that goes over it
_NO_FUNCTION = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class LoopCode(NamedTuple):
    """What the code of a loop tells.

    Attributes:
        uses_number: whether a round reads what it is given.
        live: the variables that a round, or what follows it, reads as they are before it, or that
            inner functions share, by their places in a frame; those of enclosing functions aren't
            the frame's.
        lists: those that show lists which a round, at most, appends to, and which nobody else has.
    """

    uses_number: bool
    live: list[int]
    lists: list[int]


@functools.lru_cache(maxsize=1024)
def code_of_loop(code: types.CodeType, offset: int) -> LoopCode | None:
    """That of the loop which iterates over what an instruction gives; None: it stays Python's."""
    instructions = [x for x in dis.get_instructions(code) if x.opname != "EXTENDED_ARG"]
    advance = next(x for x in instructions if x.offset > offset)
    shows = any(x.argval in _SHOW_VARIABLES for x in instructions if _loads_global(x))
    if code.co_flags & _NO_FUNCTION or shows or advance.opname != "FOR_ITER":
        return None
    body = [x for x in instructions if advance.offset < x.offset < advance.argval]
    targets, wanted = [], 1
    for instruction in body:
        if not wanted:
            break
        if instruction.opname == "UNPACK_SEQUENCE":
            wanted += (instruction.arg or 0) - 1
            continue
        stored = _variables(instruction)[1]
        if not stored:
            return None
        targets += stored
        wanted -= len(stored)
    uses = [i for i, x in enumerate(body) if not {*targets}.isdisjoint(_variables(x)[0])]
    if any(_branches(body[i + 1 :]) for i in uses):
        return None
    uses_number = bool(uses)
    names = [*dict.fromkeys((*code.co_varnames, *code.co_cellvars))]
    live = {*_live(code)[body[0].offset], *code.co_cellvars} - {*targets, *code.co_freevars}
    lists = live.intersection(code.co_varnames).difference(code.co_cellvars)
    filled = [x for x in lists if _is_filled(code, instructions, x, body[0].offset, advance.argval)]
    return LoopCode(uses_number, sorted(map(names.index, live)), [*map(names.index, filled)])


def _branches(following: Sequence[dis.Instruction]) -> bool:
    """Whether what comes next branches on a value, by itself or compared with others."""
    for x in following:
        if x.opname.startswith("POP_JUMP") or x.opname == "TO_BOOL":
            return True
        is_operand = x.opname.startswith(("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF"))
        if not is_operand and x.opname not in ("BINARY_OP", "COMPARE_OP", "CONTAINS_OP"):
            break
    return False


def loop_behind(code: types.CodeType, offset: int) -> LoopCode | None:
    """What the code of the loop tells that goes over what a call gives; None: there is none.

    Or over what another function makes of that alone, as in `enumerate(zip(a, b))`.
    """
    calls = 0
    for x in dis.get_instructions(code):
        if x.offset < offset or x.opname in ("PRECALL", "EXTENDED_ARG", "KW_NAMES", "LOAD_CONST"):
            continue
        if x.opname == "GET_ITER":
            return code_of_loop(code, x.offset)
        calls += 1
        if x.opname not in ("CALL", "CALL_KW") or calls > _MOST_CALLS:
            break
    return None


def _is_filled(
    code: types.CodeType, instructions: list[dis.Instruction], name: str, start: int, end: int
) -> bool:
    """Whether a variable has a new list before a loop, which the code up to its end appends to.

    So nobody else has it: it is made by a display, and between that and the end of the loop there
    is no way in, and no other use than `name.append(…)`.
    """
    before = [x for x in instructions if x.offset < start]
    stores = [i for i, x in enumerate(before) if name in _variables(x)[1]]
    if not stores or _maker(code, before[: stores[-1] + 1], name) != "BUILD_LIST":
        return False
    first = before[stores[-1]].offset
    for i, x in enumerate(instructions):
        is_within = first < x.offset < end
        if is_within and name in _variables(x)[1]:
            return False
        following = instructions[i + 1] if i + 1 < len(instructions) else x
        gets = following.opname in ("LOAD_METHOD", "LOAD_ATTR") and following.argval == "append"
        if is_within and name in _variables(x)[0] and not (gets and _variables(x)[0][-1] == name):
            return False
    ways = [(x, y.target) for x, others in steps(code).items() for y in others]
    return not any(first < y < end and not first <= x < end for x, y in ways)


def _maker(code: types.CodeType, instructions: list[dis.Instruction], name: str) -> str:
    """The name of the instruction that has made what the last one of some stores in a variable."""
    *before, last = instructions
    at = depths(code)
    place, after = at[last.offset] - 1 - _variables(last)[1].index(name), at[last.offset]
    for x in reversed(before):
        depth = at.get(x.offset, after)
        if x.opname == "SWAP":
            swapped = {after - 1: depth - (x.arg or 0), depth - (x.arg or 0): after - 1}
            place = swapped.get(place, place)
        elif depth <= place < after or (after == place + 1 and not _leaves_top(x)):
            made: str = x.opname
            return made
        after = depth
    return ""


def _leaves_top(instruction: dis.Instruction) -> bool:
    """Whether what is on top behind an instruction was there before it."""
    return bool(_variables(instruction)[1]) or instruction.opname in ("POP_TOP", "NOP")


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
