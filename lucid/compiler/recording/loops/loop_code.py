"""What the code of a loop tells of its rounds."""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import types
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from lucid.compiler.guards.events import depths, steps

_SHOW_VARIABLES = ("locals", "vars", "dir", "eval", "exec")
_MOST_CALLS = 3  # between what is made and the loop that goes over it
# Before the first round of a comprehension, within the function that it is in.
_OPENS = ("LOAD_FAST_AND_CLEAR", "SWAP", "BUILD_LIST", "PRECALL")
_PUTS = ("LIST_APPEND", "SET_ADD", "MAP_ADD")  # of a comprehension, into what is on the stack
_BEFORE_JUMPS = ("TO_BOOL", "UNARY_NOT", "EXTENDED_ARG", "NOP")
_NO_FUNCTION = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class LoopCode(NamedTuple):
    """What the code of a loop tells.

    Attributes:
        uses_number: whether a round reads what it is given; compares: and branches on how large
            that is, as in `if t > 0`; differs: or on more than that, as in `if t % 10 == 0`.
        live: the variables that a round, or what follows it, reads as they are before it, or that
            inner functions share, by their places in a frame; those of enclosing functions aren't
            the frame's.
        makes: of a comprehension, where on the stack its list is.
        yields: whether it is a generator expression's, which gives each of its items away.
    """

    uses_number: bool
    compares: bool
    differs: bool
    live: list[int]
    makes: int | None
    yields: bool

    @property
    def fills(self) -> bool:
        """Whether each round makes an item of a list, as the code says."""
        return self.makes is not None or self.yields


class LookCode(NamedTuple):
    """What the code tells of an instruction at which a value is looked at, in a loop.

    Attributes:
        header: where the loop begins; iterator: where on the stack it has its things from, if it is
            a `for`; target: the variable that is each of them, if nothing else sets that.
        live: the variables that are read behind it; below: the values on the stack.
        stored: those of them that a round may set; appended: that may hold a list, and be appended
            to.
        stays: the answer with which the loop goes on; None: with either.
        keeps: whether what is looked at stays on the stack, above `below`.
    """

    header: int
    iterator: int | None
    target: int | None
    live: list[int]
    stored: list[int]
    appended: list[int]
    below: range
    stays: bool | None
    keeps: bool = False


@functools.lru_cache(maxsize=1024)
def code_of_loop(code: types.CodeType, offset: int) -> LoopCode | None:
    """That of the loop which iterates over what an instruction gives; None: it stays Python's.

    Or which a comprehension does, or a generator expression, that is a function of its own.
    """
    found = _loop_over(code, offset)
    if found is None:
        return None
    code, advance, body = found
    shows = any(x.argval in _SHOW_VARIABLES for x in _instructions(code) if _loads_global(x))
    yields = code.co_name == "<genexpr>"
    if (code.co_flags & _NO_FUNCTION and not yields) or shows:
        return None
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
    branches = [_branches(body[i + 1 :]) for i in uses]
    names = [*dict.fromkeys((*code.co_varnames, *code.co_cellvars))]
    live = {*_live(code)[body[0].offset], *code.co_cellvars} - {*targets, *code.co_freevars}
    at, top = depths(code), depths(code)[advance.offset]
    puts = [x for x in body if x.opname in _PUTS and at[x.offset] - 1 - (x.arg or 0) < top]
    makes = None
    if puts and [x.opname for x in puts] == ["LIST_APPEND"]:
        below = at[puts[0].offset] - 1 - (puts[0].arg or 0)
        makes = len({*names, *code.co_freevars}) + below if below == top - 2 else None
    if puts and makes is None:
        return None
    places = sorted(map(names.index, live))
    return LoopCode(bool(uses), True in branches, False in branches, places, makes, yields)


@functools.lru_cache(maxsize=1024)
def list_without_none(code: types.CodeType, offset: int) -> int | None:
    """Where on the stack the list of `[x for x in … if x is not None]` is; None: it is another."""
    loop, found = code_of_loop(code, offset), _loop_over(code, offset)
    if loop is None or found is None or loop.differs or loop.makes is None:
        return None
    body = found[2]
    tests = [x for x in body if x.opname.endswith("_NONE")]
    puts = [x for x in body if x.opname == "LIST_APPEND"]
    if len(tests) != 1 or len(puts) != 1:
        return None
    target = tests[0].argval
    goes_on = target > tests[0].offset  # to what follows, else to the next round
    if tests[0].opname.endswith("_NOT_NONE") is not goes_on:
        return None
    variables = [x for x in body if _variables(x) != ([], [])]
    read = [name for x in variables for name in _variables(x)[0]]
    written = [name for x in variables for name in _variables(x)[1]]
    jumps = [x for x in body if x.opname.startswith("JUMP_BACKWARD")]
    is_all = len(body) == len(variables) + len(jumps) + 2
    is_one = len(written) == 1 and read == [written[0]] * 2
    return loop.makes if is_all and is_one else None


def _loop_over(
    code: types.CodeType, offset: int
) -> tuple[types.CodeType, dis.Instruction, list[dis.Instruction]] | None:
    """Of the loop over what an instruction gives the code, the `FOR_ITER`, and the body."""

    def is_before(x: dis.Instruction) -> bool:
        return x.offset <= offset or x.opname in _OPENS

    advance, *body = itertools.dropwhile(is_before, _instructions(code))
    if advance.opname == "CALL" and advance.arg == 0:
        inner = _function_below(code, offset)
        if inner is None:
            return None
        code = inner
        advance, *body = itertools.dropwhile(lambda x: x.opname != "FOR_ITER", _instructions(code))
    if advance.opname != "FOR_ITER":
        return None
    return code, advance, [x for x in body if x.offset < advance.argval]


@functools.lru_cache(maxsize=1024)
def code_of_look(code: types.CodeType, offset: int) -> LookCode | None:
    """That of an instruction whose answer decides a jump, in the innermost loop around it."""
    at, offset = _at(code), _instruction(code, offset)
    shows = any(x.argval in _SHOW_VARIABLES for x in at.values() if _loads_global(x))
    around = [(len(body), header) for header, body in _loops(code).items() if offset in body]
    if code.co_flags & _NO_FUNCTION or shows or not around:
        return None
    _, header = min(around)
    body, following = _loops(code)[header], _following(code)
    found = _jump_by(code, offset, is_made=False)
    if found is None:
        return None
    jump, negated, keeps = found
    ends, is_jump = following[jump], "IF_TRUE" in at[jump].opname
    if keeps:  # `done = a or b`, of which `while not done` is the end
        kept = _jump_by(code, ends[0], is_made=True)
        if kept is None or kept[2]:
            return None
        jumps = ("IF_TRUE" in at[kept[0]].opname) is (is_jump is not kept[1])
        ends = [following[kept[0]][0 if jumps else 1], ends[1]]
        if ends[0] in body:
            return None
    is_jump = is_jump is not negated  # if the answer is yes
    inside = [x in body for x in ends]
    stays = None if inside[0] is inside[1] else inside[0] is is_jump
    behind = jump if jump == offset else following[offset][0]
    return _look_in(code, header, behind, stays)._replace(keeps=keeps and jump == offset)


def _jump_by(code: types.CodeType, offset: int, *, is_made: bool) -> tuple[int, bool, bool] | None:
    """The jump that a value decides alone which an instruction makes; whether by `not` of it.

    And whether the value stays on the stack then. It may be in a variable meanwhile.

    is_made: before the instruction.
    """
    at, following = _at(code), _following(code)
    jump, negated, keeps, variable = offset, False, False, None
    while variable is not None or not at[jump].opname.startswith(("POP_JUMP", "JUMP_IF")):
        read, written = _variables(at[jump])
        if len(following[jump]) != 1 or (variable in written and variable is not None):
            return None
        is_on_stack = is_made or jump != offset
        if variable is not None:  # which holds the answer meanwhile
            if variable in read and read != [variable]:
                return None
            variable = None if variable in read else variable
        elif is_on_stack and len(written) == 1 and read in ([], written):
            variable = None if read else written[0]
        elif is_on_stack and at[jump].opname == "COPY" and at[jump].arg == 1 and not keeps:
            keeps = True
        elif is_on_stack and at[jump].opname not in _BEFORE_JUMPS:
            return None
        negated ^= variable is None and at[jump].opname == "UNARY_NOT"
        (jump,) = following[jump]
    keeps |= at[jump].opname.endswith("_OR_POP")
    is_by_truth = "IF_TRUE" in at[jump].opname or "IF_FALSE" in at[jump].opname
    return (jump, negated, keeps) if is_by_truth and len(following[jump]) == 2 else None


@functools.lru_cache(maxsize=1024)
def code_between(code: types.CodeType, offset: int) -> LookCode | None:
    """That of the end of a round, where the loop asks what an instruction gives for the next."""
    header = next(x for x, y in _at(code).items() if x > offset and y.opname not in _OPENS)
    return None if header not in _loops(code) else _look_in(code, header, header, True)


def _look_in(code: types.CodeType, header: int, behind: int, stays: bool | None) -> LookCode:
    """What a loop's code tells, as Python is about to go on at an instruction."""
    at, body, following = _at(code), _loops(code)[header], _following(code)
    names = [*dict.fromkeys((*code.co_varnames, *code.co_cellvars))]
    live = {*code.co_cellvars} | _live(code)[behind]
    first = len({*names, *code.co_freevars})
    advance = header
    while at[advance].opname == "EXTENDED_ARG":
        (advance,) = following[advance]
    is_for = at[advance].opname == "FOR_ITER"
    iterator = first + depths(code)[header] - 1 if is_for else None
    live -= {*code.co_freevars}
    places = sorted(map(names.index, live))
    count = depths(code)[behind] - (behind != header)  # but for what is looked at
    below = range(first, first + count)
    written = [*chain.from_iterable(_variables(at[x])[1] for x in body)]
    stored = sorted(map(names.index, live & {*written}))
    pairs = itertools.pairwise(x for x in at.values() if x.offset in body)
    lists = {x.argval for x, y in pairs if x.argval in live and y.argval == "append"}
    appended = sorted(map(names.index, lists))
    target = None
    if is_for:
        given = _variables(at[min(x for x in body if x > advance)])[1][:1]
        target = next((names.index(x) for x in given if written.count(x) == 1), None)
    return LookCode(header, iterator, target, places, stored, appended, below, stays)


def reads_nothing_behind(code: types.CodeType, offset: int) -> bool:
    """Whether no variable of a function's is read behind an instruction, as it is before it."""
    following = _following(code)[_instruction(code, offset)]
    live = set[str]().union(*(_live(code)[x] for x in following))
    return not live and not code.co_flags & _NO_FUNCTION


def _instruction(code: types.CodeType, offset: int) -> int:
    """Where the instruction begins that a frame is at, which may be said by what is behind it."""
    return max(x for x in _following(code) if x <= offset)


@functools.lru_cache(maxsize=256)
def _at(code: types.CodeType) -> dict[int, dis.Instruction]:
    """The instructions of some code, by their offsets."""
    return {x.offset: x for x in dis.get_instructions(code)}


@functools.lru_cache(maxsize=256)
def _following(code: types.CodeType) -> dict[int, list[int]]:
    """Where each instruction goes on but for errors, the target of a jump first."""
    return {x: [y.target for y in found if not y.handled] for x, found in steps(code).items()}


@functools.lru_cache(maxsize=256)
def _loops(code: types.CodeType) -> dict[int, set[int]]:
    """The natural loops of some code: their instructions, by the first one.

    Reference: Aho, Lam, Sethi, and Ullman, "Compilers", 2007, 9.6.6.
    """
    before: dict[int, list[int]] = {}
    for offset, targets in _following(code).items():
        for target in targets:
            before.setdefault(target, []).append(offset)
    found: dict[int, set[int]] = {}
    for header, sources in before.items():
        pending = [x for x in sources if x >= header]
        if pending:
            body = found[header] = {header}
            while pending:
                offset = pending.pop()
                if offset not in body:
                    body.add(offset)
                    pending += before.get(offset, ())
    return found


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    return [x for x in _at(code).values() if x.opname != "EXTENDED_ARG"]


def _function_below(code: types.CodeType, offset: int) -> types.CodeType | None:
    """That of the comprehension which is on the stack below what an instruction makes."""
    at, found = depths(code), None
    for one, two in itertools.pairwise(x for x in _instructions(code) if x.offset <= offset):
        is_made = one.opname in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE")
        if isinstance(one.argval, types.CodeType):
            made = one.argval
        elif is_made and at[two.offset] == at[offset] - 1:
            found = made
    return found if found is not None and found.co_name in ("<listcomp>", "<genexpr>") else None


def _branches(following: Sequence[dis.Instruction]) -> bool | None:
    """Whether what comes next branches on how large a number is, as most rounds of a loop agree.

    False: on it in another way, such as `t % 2`; None: it doesn't branch.
    """
    compares = True
    for x in following:
        if x.opname.startswith("POP_JUMP") or x.opname == "TO_BOOL":
            return compares
        is_operand = x.opname.startswith(("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF"))
        if x.opname == "CONTAINS_OP" or (x.opname == "BINARY_OP" and x.argrepr not in ("+", "-")):
            compares = False
        elif not is_operand and x.opname not in ("BINARY_OP", "COMPARE_OP"):
            break
    return None


def loop_behind(code: types.CodeType, offset: int) -> LoopCode | None:
    """What the code of the loop tells that goes over what a call gives; None: there is none.

    Or over what another function makes of that alone, as in `enumerate(zip(a, b))`.
    """
    calls = 0
    for x in _at(code).values():
        if x.offset < offset or x.opname in ("PRECALL", "EXTENDED_ARG", "KW_NAMES", "LOAD_CONST"):
            continue
        if x.opname == "GET_ITER":
            return code_of_loop(code, x.offset)
        calls += 1
        if x.opname not in ("CALL", "CALL_KW") or calls > _MOST_CALLS:
            break
    return None


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
    instructions, following = [*_at(code).values()], steps(code)
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
