"""Events before each instruction of the user's code, with the operands that it is about to use.

Nothing is rewritten. CPython tells before each instruction where it is (`sys.monitoring`, and
`sys.settrace` before 3.12); how many values are on the frame's stack there follows from the code
alone, and so does the place of each operand. What an instruction reads, writes or calls is handed
to a `GuardCollector`, the listener: to `call`, or to the method that the table below names. The
method's result takes the place of the first operand on the stack, that of `call` of the callable.

Reading a frame's stack depends on CPython's layout of frames. `is_supported` tries it on a function
of its own, so that an interpreter with another one is told, not read wrongly.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import gc
import itertools
import sys
import threading
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, ParamSpec, TypeVar

import numpy as np

from lucid.compiler.guards.mutable_sources import stands_for_list
from lucid.compiler.guards.restarts import RestartTrace
from lucid.ir.location import LIBRARY
from lucid.ir.types import DType
from lucid.ir.whose_code import is_followed, is_librarys
from lucid.tensor import write_locks
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.guards.calls import GuardCollector

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MONITORS = sys.version_info >= (3, 12)
_CALL_HAS_SELF = sys.version_info >= (3, 13)  # behind the callable; before it, until then
_WORD = 8
_FRAME = 24  # where a frame object has the interpreter's own frame
_LOCALS = 72  # where that has its variables, and after these its stack

ARITHMETIC = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "@": "matmul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "<<": "lshift",
    ">>": "rshift",
    "&": "and",
    "|": "or",
    "^": "xor",
}
COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}

_TRUSTED = {*sys.stdlib_module_names, "numpy", "lucid", "llvmlite"}  # they trace nothing
_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
_TRUTHS = ("TRUE", "FALSE")
_GETS_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
_ITERATES = (
    *("GET_ITER", "GET_YIELD_FROM_ITER", "UNPACK_SEQUENCE", "UNPACK_EX"),
    *("SET_UPDATE", "DICT_UPDATE", "DICT_MERGE"),
)
_TESTS = (
    *("GET_LEN", "UNARY_NOT", "TO_BOOL", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"),
    *(f"POP_JUMP_{way}IF_{x}" for way in ("", "FORWARD_", "BACKWARD_") for x in _TRUTHS),
)
_TESTS_NONE = tuple(
    f"POP_JUMP_{way}IF_{x}" for way in ("", "FORWARD_", "BACKWARD_") for x in ("NONE", "NOT_NONE")
)
_LOADS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_LOADS_CELL = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")

_UNARY = {"UNARY_NEGATIVE": "__neg__", "UNARY_INVERT": "__invert__", "UNARY_POSITIVE": "__pos__"}
# What UNARY_POSITIVE and LIST_TO_TUPLE have become.
_INTRINSICS = {5: "UNARY_POSITIVE", 6: "LIST_TO_TUPLE"}

# What an instruction does, and which operands it does it with: 1 is the top of the stack. `name` is
# the instruction's own: an attribute's or a variable's; `cell` the place of a variable's cell in
# the frame; `methods` those that an operator may call.
_READS_AND_WRITES: dict[str, tuple[str, Sequence[int | str]]] = {
    **dict.fromkeys(_GETS_ATTRIBUTE, ("load_attribute", (1, "name"))),
    "STORE_ATTR": ("store_attribute", (1, "name")),
    "DELETE_ATTR": ("delete_attribute", (1, "name")),
    "STORE_SUBSCR": ("assign_item", (2, 1, 3)),
    "DELETE_SUBSCR": ("delete_item", (2, 1)),
    **dict.fromkeys(_ITERATES, ("iterate", (1,))),
    "LIST_EXTEND": ("extend_display", (1,)),
    **dict.fromkeys(_TESTS, ("measure", (1,))),
    **dict.fromkeys(_TESTS_NONE, ("test_none", (1,))),
    **dict.fromkeys(("COMPARE_OP", "BINARY_OP"), ("operate", (2, 1, "methods"))),
    **dict.fromkeys(_UNARY, ("operate", (1, 1, "methods"))),
    "BEFORE_WITH": ("enter", (1,)),
    **dict.fromkeys(("FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE"), ("show", (1,))),
    **dict.fromkeys(_LOADS_GLOBAL, ("load_global", ("name",))),
    **dict.fromkeys(("STORE_GLOBAL", "DELETE_GLOBAL"), ("store_global", ("name",))),
    **dict.fromkeys(_LOADS_CELL, ("load_cell", ("cell", "name"))),
    **dict.fromkeys(("STORE_DEREF", "DELETE_DEREF"), ("store_cell", ("cell", "name"))),
    "IMPORT_NAME": ("import_module", ("name", 2, 1)),
    "LOAD_SUPER_ATTR": ("load_super", (2, 1, "name")),
    "BINARY_SUBSCR": ("load_item", (2, 1)),
    "BINARY_SLICE": ("load_slice", (3, 2, 1)),
    "STORE_SLICE": ("store_contents", (3, 2, 1, 4)),
    "IS_OP": ("identify", (2, 1)),
    "CONTAINS_OP": ("contains", (1, 2)),
    "FORMAT_WITH_SPEC": ("show", (2,)),
    "MATCH_CLASS": ("match_class", (3, 2, 1)),
    "MATCH_KEYS": ("match_keys", (2, 1)),
    "RETURN_VALUE": ("give_back", (1,)),
}
_TOLD_AFTER = {"BUILD_STRING": "joined", "IS_OP": "identified"}  # of the result, to a method
# What makes `[*a, b]`, and how far from the top the list is; the last one is told of.
_DISPLAYS = {"LIST_EXTEND": 2, "LIST_APPEND": 2, "LIST_TO_TUPLE": 1}
_CHANGES = ("assign_item", "store_contents", "operate_in_place")  # the first operand
_ARRAYS = (np.ndarray, np.generic, TensorCore)
_CALLS = ("CALL_KW", "CALL_FUNCTION_EX", "CALL" if _MONITORS else "PRECALL")
# In 3.11 an instruction of its own calls, behind the one that is told.
_CALL_AFTER = dis.opmap["CALL"] if not _MONITORS else -1
_OFFSET_AFTER = 4
# What `*` may take the elements of, and may do so again.
_COLLECTIONS = {deque, set, frozenset, dict, OrderedDict, defaultdict, Counter}
_COLLECTIONS |= {type({}.keys()), type({}.values()), type({}.items())}
_SPEC = 4  # the flag of FORMAT_VALUE for a specification behind the value
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD"}
_ENDS |= {"JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}


class _Row(NamedTuple):
    """What to tell the listener of one instruction.

    Attributes:
        method: the listener's method.
        operands: their places among the frame's words; or constants, such as an attribute's name.
        argument: of a call, the number of operands, and the names of those by keyword.
        before: a row to be told first, about the instruction that has just run.
    """

    method: str
    operands: Sequence[Any]
    argument: Any = None
    before: Any = None


_Rows = dict[int, _Row]
_NOTHING = _Row("", ())


@functools.lru_cache(maxsize=4096)
def catches(code: types.CodeType, offset: int) -> bool:
    """Whether an `except` in the code may handle an error of the instruction at an offset."""
    handlers: Any = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    instructions = list(dis.get_instructions(code))
    for _ in handlers:  # from a block to what is around it
        target = next((x.target for x in handlers if x.start <= offset < x.end), None)
        if target is None:
            break
        for this, following in itertools.pairwise(x for x in instructions if x.offset >= target):
            if this.opname == "RERAISE":
                offset = this.offset
                break
            ends = this.opname == "POP_EXCEPT" and following.opname != "RERAISE"
            if ends or this.opname in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH"):
                return True
    return False


@functools.lru_cache(maxsize=4096)
def _rows(code: types.CodeType) -> _Rows:
    """What the instructions of some code do, by their offset."""
    at = depths(code)
    variables = len(dict.fromkeys((*code.co_varnames, *code.co_cellvars))) + len(code.co_freevars)
    names: tuple[str, ...] = ()
    rows: _Rows = {}
    after, first, ends = "", None, _ends_of_displays(code, at)
    for instruction in dis.get_instructions(code):
        kind, offset = instruction.opname, instruction.offset
        if kind == "CALL_INTRINSIC_1":
            kind = _INTRINSICS.get(instruction.arg or 0, kind)
        if kind == "EXTENDED_ARG" and first is None:
            first = offset
        top = variables + at.get(offset, 0)
        before = _Row(after, [top - 1]) if after else None
        after = "displayed" if offset in ends else _TOLD_AFTER.get(kind, "")
        if kind == "KW_NAMES":
            assert instruction.arg is not None
            names = code.co_consts[instruction.arg]
        elif kind in _READS_AND_WRITES:
            method, operands = _READS_AND_WRITES[kind]
            if kind == "BINARY_OP" and instruction.argrepr.endswith("="):
                method = "operate_in_place"
            words: dict[Any, Any] = {"name": instruction.argval, "cell": instruction.arg}
            if "methods" in operands:
                words["methods"] = _methods_of(kind, instruction.argrepr)
            has_spec = kind == "FORMAT_VALUE" and bool((instruction.arg or 0) & _SPEC)
            found = [words[x] if isinstance(x, str) else top - x - has_spec for x in operands]
            rows[offset] = _Row(method, found)
        elif kind == "RAISE_VARARGS" and instruction.arg:
            rows[offset] = _Row("raises", [top - instruction.arg])
        elif kind in _CALLS:
            rows[offset] = _Row(kind, [top], (instruction.arg, names))
            names = ()
        elif kind == "BUILD_STRING":
            assert instruction.arg is not None
            rows[offset] = _Row("join", range(top - instruction.arg, top))
        if before is not None:
            rows[offset] = rows.get(offset, _NOTHING)._replace(before=before)
        if kind != "EXTENDED_ARG":
            if first is not None and offset in rows and not _MONITORS:  # which is told of alone
                rows[first] = rows[offset]._replace(before=rows.get(first, _NOTHING).before)
            first = None
    return rows


def _ends_of_displays(code: types.CodeType, at: Mapping[int, int]) -> set[int]:
    """The last instruction of each `[*a, b]` and `(*a, b)`, up to which a list is filled.

    The instructions that fill it don't check its class: it must be Python's own until then.
    """
    ends: set[int] = set()
    last: dict[int, int] = {}  # by the place of the list on the stack
    for instruction in dis.get_instructions(code):
        kind, top = instruction.opname, at.get(instruction.offset, 0)
        if kind == "CALL_INTRINSIC_1":
            kind = _INTRINSICS.get(instruction.arg or 0, kind)
        if kind == "BUILD_LIST":
            last.pop(top - (instruction.arg or 0), None)
        elif kind in _DISPLAYS and (kind != "LIST_APPEND" or instruction.arg == 1):
            place = top - _DISPLAYS[kind]
            ends.discard(last.get(place, -1))
            ends.add(instruction.offset)
            last[place] = instruction.offset
    return ends


def _methods_of(kind: str, symbol: str) -> tuple[str, ...]:
    """The special methods by which a class answers for an operator."""
    if kind.startswith("UNARY"):
        return (_UNARY[kind],)
    name = COMPARISONS.get(symbol) or ARITHMETIC.get(symbol.rstrip("="), "")
    return (f"__{name}__", f"__r{name}__", f"__i{name}__") if name else ()


class Starred(NamedTuple):
    """Marks, in the list that `[*a, b]` fills, all entries of `part`, the stand-in for a list.

    The instructions that fill it take Python's own lists alone; after the last one it is replaced.
    """

    part: Any


class Step(NamedTuple):
    """Where an instruction may go on: at an offset, with so many values more on the stack.

    Attributes:
        handled: whether this is the jump to an error's handler; `effect` is then the stack's depth.
    """

    target: int
    effect: int
    handled: bool = False


def steps(code: types.CodeType) -> dict[int, list[Step]]:
    """Where each instruction of some code may go on, by its offset."""
    handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    instructions = list(dis.get_instructions(code))
    found: dict[int, list[Step]] = {}
    for instruction, following in itertools.zip_longest(instructions, instructions[1:]):
        kind, number, offset = instruction.opname, instruction.opcode, instruction.offset
        argument = instruction.arg if number >= dis.HAVE_ARGUMENT else None
        found[offset] = [
            Step(entry.target, entry.depth + entry.lasti + 1, True)
            for entry in handlers
            if entry.start <= offset < entry.end
        ]
        if number in _JUMPS:
            effect = dis.stack_effect(number, argument, jump=True)
            found[offset].append(Step(instruction.argval, effect))
        if kind not in _ENDS and following is not None:
            effect = dis.stack_effect(number, argument, jump=False)
            effect += kind == "RETURN_GENERATOR" and not _CALL_HAS_SELF  # which `dis` denies
            found[offset].append(Step(following.offset, effect))
    return found


def depths(code: types.CodeType) -> dict[int, int]:
    """How many values are on the stack before each instruction, by its offset."""
    following, found = steps(code), {0: 0}
    pending = [0]
    while pending:
        offset = pending.pop()
        for target, effect, handled in following[offset]:
            if target not in found:
                found[target] = effect if handled else found[offset] + effect
                pending.append(target)
    return found


class _Listeners(threading.local):
    """The listeners of this thread, of which the innermost is told of instructions.

    Attributes:
        followed: code that the innermost one was asked about, by identity (a hash of code takes
            longer than all else), with its rows; {} where it isn't followed.
        tracer: the trace function of the innermost one for `sys.settrace`, unless it is paused.
        monitored: the traces of these listeners, as `_Monitor.begin` got them.
        stack: the listeners; the class's own, empty, serves while a thread's `__init__` runs.
    """

    stack: list[GuardCollector | None] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.stack = []
        self.monitored: list[object] = []
        self.followed: dict[int, tuple[types.CodeType, _Rows]] = {}
        self.tracer: _Tracer | None = None

    @property
    def innermost(self) -> GuardCollector | None:
        return self.stack[-1] if self.stack else None


_listeners = _Listeners()


_Object: Any = ctypes.py_object
_AT = _Object.from_address  # whose value isn't to be had where nothing is
_WORD_AT = ctypes.c_size_t.from_address


class Stack:
    """The variables and the stack of a running frame, by number."""

    __slots__ = ("_base",)

    def __init__(self, frame: types.FrameType) -> None:
        self._base: int = _WORD_AT(id(frame) + _FRAME).value + _LOCALS

    def __getitem__(self, number: int) -> Any:
        """The object in a word; None for an empty one."""
        try:
            return _AT(self._base + _WORD * number).value
        except ValueError:
            return None

    def values(self, places: Sequence[Any]) -> list[Any]:
        """The objects in some words; operands that aren't numbers of words are themselves."""
        base = self._base
        try:
            return [_AT(base + _WORD * x).value if type(x) is int else x for x in places]
        except ValueError:  # there is nothing in one
            return [self[x] if type(x) is int else x for x in places]

    def part(self, start: int, stop: int) -> list[Any]:
        """The objects in a range of words none of which is empty."""
        found: list[Any] = (_Object * (stop - start)).from_address(self._base + _WORD * start)[:]
        return found

    def __setitem__(self, number: int, value: Any) -> None:
        """Put another object into a word, with its reference counted."""
        place = ctypes.c_void_p.from_address(self._base + _WORD * number)
        before = place.value
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        place.value = id(value)
        if before:
            ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(before))


def _tell(listener: GuardCollector, frame: types.FrameType, row: _Row) -> None:
    """Tell the listener what the instruction at which `frame` is does; put in what it returns."""
    listener.at = frame.f_code, frame.f_lasti
    method, operands, argument, before = row
    stack = Stack(frame)
    try:
        if before is not None:
            instead = getattr(listener, before.method)(stack[before.operands[0]])
            if instead is not None:
                stack[before.operands[0]] = instead
        if not method:
            return
        if method == "extend_display":
            part = listener.copied(stack[operands[0]])
            if part is not None:
                stack[operands[0]] = (Starred(part),)
                return
            method = "iterate"
        if argument is not None:
            _tell_call(listener, stack, row)
        elif method in ("load_global", "store_global"):
            scopes = frame.f_globals, frame.f_builtins
            getattr(listener, method)(*scopes, *operands)
        else:
            if listener.stand_ins and method != "give_back":
                others = _kept_by(stack, operands, method, listener)
                if _lend(stack, [x for x in operands if x not in others], listener):
                    things = stack[operands[0]] if method == "iterate" else None
                    instead = None if things is None else listener.substitutes.rounds(things)
                    if instead is not None:
                        stack[operands[0]] = instead
                    return
            instead = getattr(listener, method)(*stack.values(operands))
            if instead is not None:
                stack[operands[0]] = instead
    except ReferenceError:
        listener.refuse_proxy()


def _tell_call(listener: GuardCollector, stack: Stack, row: _Row) -> None:
    """Tell the listener of a call, and put what it returns in the callable's place."""
    method, operands, argument, _ = row
    top: int = operands[0]
    place, function, args, kwargs = _called(stack, method, top, *argument)
    instead: Any = None
    if method == "CALL_FUNCTION_EX":
        listener.iterate(args)
        listener.iterate(kwargs)
        args = args if isinstance(args, (tuple, list)) else tuple(args)
        last = top - 1 - (argument[0] & 1)
        given = stack[last]
        if hasattr(type(given), "__next__"):
            stack[last] = ()  # Python takes all that it gives, whatever is called
            listener.advance(given)
            stack[last] = given
            instead = functools.partial(listener.tell, function)
        elif not isinstance(given, (tuple, list, TensorCore, range)):
            listener.iterate(given)
    instead = instead or listener.call(function, args, kwargs)
    if instead is None and not _MONITORS and _is_others(function):
        instead = functools.partial(_watched, listener, function)
    if instead is not None:
        if type(function) is types.MethodType and stack[place] is function.__func__:
            instead = without_first(instead)  # its owner is an argument of its own
        stack[place] = instead


def _is_others(function: Any) -> bool:
    """Whether a function in C is another package's: a profiler's may take the trace's place."""
    called = function.__func__ if type(function) is types.MethodType else function
    kind = type(called)
    calls = (vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base))
    is_class = isinstance(called, type)
    if is_class or not isinstance(next(calls, None), types.WrapperDescriptorType):
        return False  # or it is in Python
    package = kind.__module__
    if kind in _IN_C or kind.__name__ == "cython_function_or_method":
        owner = getattr(called, "__objclass__", type(getattr(called, "__self__", called)))
        package = getattr(called, "__module__", None) or owner.__module__
    elif package in sys.stdlib_module_names:
        return False  # a function, a `partial`
    return package.partition(".")[0] not in _TRUSTED


def _watched(
    listener: GuardCollector, function: Callable[..., _R], /, *args: Any, **kwargs: Any
) -> _R:
    """Call such a function. Where it has taken the trace's place, the call runs op by op."""
    found = function(*args, **kwargs)
    if sys.gettrace() is not _listeners.tracer:
        listener.refuse_tracing(function)
    return found


def _lend(stack: Stack, operands: Sequence[Any], listener: GuardCollector) -> bool:
    """Put stand-ins for lists and arrays on the stack; whether the first tells reads by itself."""
    found = False
    for place in operands:
        if isinstance(place, int):
            value = stack[place]
            stand_in = listener.stand_in_for(value)
            if stand_in is not value:
                stack[place] = stand_in
            found = found or stands_for_list(stand_in)
    return found


def _kept_by(
    stack: Stack, operands: Sequence[Any], method: str, listener: GuardCollector
) -> Sequence[int]:
    """The operands that are lists with stand-ins, and that a container is about to take in.

    As an entry the container gets the list itself, by `extend` and its like what is in it now.
    """
    if method not in _CHANGES or stands_for_list(listener.stand_in_for(stack[operands[0]])):
        return ()
    taken = {x: listener.stand_in_for(stack[x]) for x in operands[1:] if isinstance(x, int)}
    taken = {x: stand_in for x, stand_in in taken.items() if stands_for_list(stand_in)}
    changed, is_entry = stack[operands[0]], method == "assign_item"
    if is_entry and not isinstance(changed, _ARRAYS) and type(stack[operands[1]]) is not slice:
        return [*taken]
    if isinstance(changed, (list, deque, set, *_ARRAYS)):
        for place, stand_in in taken.items():
            stack[place] = stand_in.listed()
    return [*taken]


def used_in(frame: types.FrameType) -> tuple[str, Any, Callable[[], Any]]:
    """What a frame does that waits for the code which runs now.

    Returns the listener's method, or "run" if the frame runs a Python function by itself; for
    "call" the function; and what gives the first operand, to be asked only where the function is in
    C, as others may have let go of it.
    """
    code, rows = frame.f_code, _rows(frame.f_code)
    row = rows.get(frame.f_lasti, _NOTHING)
    if not row.method and code.co_code[frame.f_lasti] == _CALL_AFTER:
        row = rows.get(frame.f_lasti - _OFFSET_AFTER, _NOTHING)
    method, operands, argument, _ = row
    stack = Stack(frame)
    if not method and _is_behind_call(code.co_code, frame.f_lasti):
        return "run", None, lambda: None
    if argument is None:
        return method, None, lambda: stack[operands[0]]
    _, function = _callable(stack, method, operands[0], argument[0])
    if method == "CALL_FUNCTION_EX" and not code.co_filename.startswith(LIBRARY):
        return "call", function, lambda: None  # a tuple took the place of what it was given
    top = operands[0]
    return "call", function, lambda: next(iter(_called(stack, method, top, *argument)[2]), None)


def _is_behind_call(instructions: bytes, at: int) -> bool:
    """Whether an offset is in a call's inline cache: the frame waits for a Python function."""
    is_cache = instructions[at] == 0
    while at > 0 and instructions[at] == 0:
        at -= 2
    return is_cache and instructions[at] == dis.opmap["CALL"]


def is_text_of(frame: types.FrameType, value: Any) -> bool:
    """Whether a frame waits for the text of a value, as `str` and f-strings ask for it.

    Also if the value is a tensor's number, or a text of the value: `f"{value!r}"` asks twice.
    """
    method, function, first = used_in(frame)
    if method == "show" and isinstance(value, str):
        return True
    if method == "show" or (method == "call" and function in (str, repr, format)):
        found = first()
        return found is value or isinstance(found, TensorCore)
    return False


def _callable(stack: Stack, kind: str, top: int, count: int) -> tuple[int, Any]:
    """The place of the callable on the stack, and the callable."""
    if kind == "CALL_FUNCTION_EX":
        place = top - 2 - (count & 1) - _CALL_HAS_SELF
        return place, stack[place]
    place = top - count - 2 - (kind == "CALL_KW")
    if not _CALL_HAS_SELF and stack[place] is None:
        place += 1
    return place, stack[place]


def without_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is not told its first argument."""
    return lambda first, *args, **kwargs: function(*args, **kwargs)


def _called(
    stack: Stack, kind: str, top: int, count: int, names: tuple[str, ...]
) -> tuple[int, Any, Sequence[Any], dict[str, Any]]:
    """The place of the callable on the stack, the callable, its arguments and keyword arguments."""
    place, function = _callable(stack, kind, top, count)
    if kind == "CALL_FUNCTION_EX":
        has_kwargs = count & 1
        args, kwargs = stack[top - 1 - has_kwargs], (stack[top - 1] if has_kwargs else {})
        if not isinstance(args, (tuple, list)) and type(args) not in _COLLECTIONS:
            args = ()  # an iterator is left alone
        return place, function, args, kwargs if isinstance(kwargs, dict) else {}
    if kind == "CALL_KW":
        top -= 1
        names = stack[top]
    args, kwargs = stack.part(top - count, top), {}
    if names:
        positional = count - len(names)
        args, kwargs = args[:positional], dict(zip(names, args[positional:], strict=True))
    owner = stack[place + 1] if place == top - count - 2 else None
    if owner is None:
        return place, function, args, kwargs
    if isinstance(function, types.FunctionType):
        return place, types.MethodType(function, owner), args, kwargs
    return place, function, [owner, *args], kwargs


@contextmanager
def listening(listener: GuardCollector) -> Iterator[None]:
    """Tell `listener`, and nobody else, what this thread's code does inside of the block."""
    depth = len(_listeners.stack)
    try:
        _listeners.stack.append(listener)
        with (_monitored if _MONITORS else _traced)(listener):
            yield
    finally:
        del _listeners.stack[depth:]


class _Tracer:
    """The trace function of a thread: one of these, so that a trace within another is told.

    Attributes:
        theirs: the trace function that was there, such as a debugger's, which goes on being called.
    """

    __slots__ = ("_known", "_listener", "theirs")

    def __init__(self, listener: GuardCollector, theirs: Any) -> None:
        self._listener = listener
        self.theirs = theirs
        self._known: dict[int, tuple[types.CodeType, _Follower | None]] = {}  # as `followed`

    def __call__(self, frame: types.FrameType, event: str, value: Any) -> Any:
        code = frame.f_code
        known = self._known.get(id(code))
        if known is None:
            is_heard = self._listener.listens_to(code, frame.f_globals)
            follow = _Follower(self._listener, _rows(code)) if is_heard else None
            known = self._known[id(code)] = code, follow
        follow = known[1]
        local = None if self.theirs is None else self._tell_theirs(frame, event, value)
        if follow is None or not self._listener.listens_in(frame):
            return local
        frame.f_trace_opcodes, frame.f_trace_lines = True, local is not None
        return follow if local is None else _Follower(self._listener, follow.rows, local)

    def _tell_theirs(self, frame: types.FrameType, event: str, value: Any) -> Any:
        """Call their function, which may put itself in this one's place, as that of coverage.py."""
        local = self.theirs(frame, event, value)
        now = sys.gettrace()
        if now is not self:
            self.theirs = now
            _set_trace(self)
        return local


def _own_set_trace() -> Callable[[Any], None]:
    """Python's own `sys.settrace`; a debugger may have put one in its place that complains."""
    if isinstance(sys.settrace, types.BuiltinFunctionType):
        return sys.settrace
    functions = (x for x in gc.get_objects() if type(x) is types.BuiltinFunctionType)
    own = (x for x in functions if x.__self__ is sys and x.__name__ == "settrace")
    return next(own, sys.settrace)


_set_trace = _own_set_trace()


@contextmanager
def _traced(listener: GuardCollector) -> Iterator[None]:
    """By `sys.settrace`; a debugger's or a coverage tool's own function goes on being called."""
    before, outer = sys.gettrace(), _listeners.tracer
    tracer = _Tracer(listener, None if isinstance(before, _Tracer) else before)
    try:
        _listeners.tracer = tracer
        _set_trace(tracer)
        yield
        if sys.gettrace() is None:
            raise _lost()
    finally:
        _set_trace(before)
        _listeners.tracer = outer


def _lost() -> RestartTrace:
    """The error for a trace function that Python has removed, so that events are lost.

    Python removes one that raises, as a signal's handler in it may do, and drops the error where
    a generator is closed meanwhile.
    """
    return RestartTrace("is interrupted")


def unheard(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function of the library's run without events: what it calls is no part of the step.

    Under `sys.settrace` all Python code is slower, and calls are ten times as slow.
    """

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not _MONITORS:
            return _quietly(True, function, *args, **kwargs)
        depth = len(_listeners.stack)
        _listeners.stack.append(None)
        try:
            return function(*args, **kwargs)
        finally:
            del _listeners.stack[depth:]

    return run


def call(function: Callable[..., _R], *args: Any, **kwargs: Any) -> _R:
    """Call a public function of the library's, unheard if its arguments have no code of the user's.

    No user's code runs in it then but hooks, such as those on saved tensors.
    """
    if _MONITORS:
        return function(*args, **kwargs)
    return _quietly(False, function, *args, **kwargs)


def _quietly(is_sure: bool, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    tracer = sys.gettrace()
    if type(tracer) is not _Tracer or tracer.theirs is not None:
        if tracer is None and _listeners.tracer is not None:
            raise _lost()
        return function(*args, **kwargs)
    _listeners.tracer = None
    _set_trace(None)
    try:
        if is_sure or (_are_plain((*args, *kwargs.values())) and not context.saved_hooks):
            return function(*args, **kwargs)
    finally:
        _set_trace(tracer)
        _listeners.tracer = tracer
    return function(*args, **kwargs)


# Types of arguments that have no code of the user's; tensors' are entered as they come.
_plain_types: set[type] = {int, float, bool, complex, str, type(None), type(...), DType}


def are_single(values: Sequence[Any]) -> bool:
    """Whether these are the library's tensors and plain data, and no containers."""
    if _plain_types.issuperset(map(type, values)):
        return True
    kinds = {type(value) for value in values} - _plain_types
    tensors = {kind for kind in kinds if issubclass(kind, TensorCore) and is_librarys(kind)}
    _plain_types.update(tensors)
    return tensors == kinds


_MOST_LEVELS = 64


def _are_plain(values: Sequence[Any], level: int = 0) -> bool:
    """Whether values are such as `are_single` takes, or nested lists and tuples of them."""
    if level > _MOST_LEVELS:
        return False
    if are_single(values):
        return True
    for value in values:
        if type(value) is slice:
            value = (value.start, value.stop, value.step)
        is_list = type(value) in (tuple, list)
        if not (type(value) in _plain_types or (is_list and _are_plain(value, level + 1))):
            return False
    return True


class _Follower:
    """The local trace function of some code's frames: tells of their instructions.

    Args:
        theirs: the local trace function that was there, of one frame.
    """

    __slots__ = ("_listener", "_theirs", "rows")

    def __init__(self, listener: GuardCollector, rows: _Rows, theirs: Any = None) -> None:
        self._listener = listener
        self._theirs = theirs
        self.rows = rows

    def __call__(self, frame: types.FrameType, event: str, value: Any) -> Any:
        if event == "opcode":
            row = self.rows.get(frame.f_lasti)
            if row is not None:
                try:
                    _tell(self._listener, frame, row)
                except (Exception, RestartTrace) as error:
                    if not _let_raise(frame, row, error):
                        raise
        elif self._theirs is not None:
            self._theirs = self._theirs(frame, event, value) or self._theirs
            frame.f_trace_opcodes = True  # whatever theirs asks for
        return self


class _Raising:
    """Takes the place of an instruction's first operand, so that the instruction raises an error.

    If the trace function raised it, Python would remove the function, and nobody would hear what a
    `finally` or a `with` changes.
    """

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        object.__setattr__(self, "_error", error)

    def _raise(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise object.__getattribute__(self, "_error")

    __setattr__ = __delattr__ = __call__ = __enter__ = __exit__ = __iter__ = __bool__ = _raise
    __getitem__ = __setitem__ = __delitem__ = __contains__ = __len__ = __format__ = _raise
    __str__ = __repr__ = __neg__ = __invert__ = __pos__ = __hash__ = __getattribute__ = _raise


for _name in (*ARITHMETIC.values(), *COMPARISONS.values()):
    for _method in (f"__{_name}__", f"__i{_name}__"):
        setattr(_Raising, _method, _Raising._raise)

_ASKS = (  # methods for instructions that use their first operand at once
    *("load_attribute", "store_attribute", "delete_attribute", "assign_item", "delete_item"),
    *("load_item", "operate", "operate_in_place", "enter", "iterate", "contains", "show"),
    *("measure", "extend_display"),
)


def _let_raise(frame: types.FrameType, row: _Row, error: BaseException) -> bool:
    """Let the instruction that `frame` is at raise an error by itself; whether it can."""
    if row.argument is None and row.method not in _ASKS:
        return False
    stack, place = Stack(frame), row.operands[0]
    if row.argument is not None:
        place, *_ = _called(stack, row.method, place, *row.argument)
    stack[place] = _Raising(error)
    return True


_TOOLS = (4, 3, 5)  # of sys.monitoring, those that no debugger, coverage or profiler has


class _Monitor:
    """The tool of `sys.monitoring` for traces of all threads: it calls for chosen code alone.

    An interrupt may come anywhere. Whoever begins ends as well, if need be once more: both look at
    what there is, so that no tool stays taken.
    """

    _NAME = "lucid"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: set[object] = set()  # that run
        self._tool: int | None = None
        self._codes: dict[int, tuple[types.CodeType, _Rows]] = {}  # that somebody follows
        self._monitoring: Any = getattr(sys, "monitoring", None)
        # It is told of code that runs when globals are gone.
        self._listeners, self._is_followed = _listeners, is_followed

    def begin(self, trace: object) -> None:
        """Take a tool, and hear which code starts; also code that earlier traces didn't follow."""
        monitoring = self._monitoring
        with self._lock:
            self._traces.add(trace)
            if self._own_tool() is None:
                names = [*map(monitoring.get_tool, _TOOLS)]
                if None not in names:
                    raise UnsupportedError("all tools of sys.monitoring are in use")
                monitoring.use_tool_id(_TOOLS[names.index(None)], self._NAME)
            self._tool = tool = self._own_tool()
            events = monitoring.events
            monitoring.register_callback(tool, events.PY_START, self._started)
            monitoring.register_callback(tool, events.INSTRUCTION, self._stepped)
            monitoring.set_events(tool, events.PY_START)
            monitoring.restart_events()

    def end(self, trace: object) -> None:
        """Give the tool back after the last trace."""
        monitoring = self._monitoring
        with self._lock:
            self._traces.discard(trace)
            tool = self._own_tool()
            if self._traces or tool is None:
                return
            monitoring.set_events(tool, 0)
            for code, _ in self._codes.values():
                monitoring.set_local_events(tool, code, 0)
            self._codes.clear()
            monitoring.register_callback(tool, monitoring.events.PY_START, None)
            monitoring.register_callback(tool, monitoring.events.INSTRUCTION, None)
            monitoring.free_tool_id(tool)

    def _own_tool(self) -> int | None:
        """The tool that this has taken; None: none."""
        names = [*map(self._monitoring.get_tool, _TOOLS)]
        return _TOOLS[names.index(self._NAME)] if self._NAME in names else None

    def _started(self, code: types.CodeType, _: int) -> Any:
        listener = self._listeners.innermost
        if listener is None:  # somebody may want it later, but not what nobody follows
            return None if self._is_followed(code) else self._monitoring.DISABLE
        followed = _listeners.followed.get(id(code))
        if followed is None:
            names = sys._getframe(1).f_globals
            is_heard = listener.listens_to(code, names)
            followed = _listeners.followed[id(code)] = code, _rows(code) if is_heard else {}
            if is_heard:
                self._codes[id(code)] = followed
                self._monitoring.set_local_events(
                    self._tool, code, self._monitoring.events.INSTRUCTION
                )
        is_asked_once = len(self._traces) == 1  # another trace may want to know of it
        return self._monitoring.DISABLE if is_asked_once else None

    def _stepped(self, code: types.CodeType, offset: int) -> Any:
        known = self._codes.get(id(code))
        if known is None or offset not in known[1]:
            return self._monitoring.DISABLE
        listener, followed = self._listeners.innermost, _listeners.followed.get(id(code))
        if listener is not None and followed is not None:
            row, frame = followed[1].get(offset), sys._getframe(1)
            if row is not None and listener.listens_in(frame):
                _tell(listener, frame, row)
        return None


_monitor = _Monitor()


@contextmanager
def _monitored(listener: GuardCollector) -> Iterator[None]:
    """By `sys.monitoring`."""
    outer, trace, depth = _listeners.followed, object(), len(_listeners.monitored)
    try:
        _listeners.followed = {}
        _listeners.monitored.append(trace)
        _monitor.begin(trace)
        yield
    finally:
        try:
            _monitor.end(trace)
        except BaseException:  # whoever interrupts
            _monitor.end(trace)
            raise
        finally:
            _listeners.followed = outer
            del _listeners.monitored[depth:]


class ListenerSnapshot(write_locks.ThreadSnapshot):
    """A thread's listeners and trace function, to be restored: no `finally` is sure to run."""

    def __init__(self) -> None:
        super().__init__()
        self._depths = len(_listeners.stack), len(_listeners.monitored)
        self._followed, self._tracer = _listeners.followed, _listeners.tracer
        self._function = sys.gettrace()

    def put_back(self, error: BaseException) -> None:
        """Restore them after an error; may be called again."""
        super().put_back(error)
        depth, monitored = self._depths
        del _listeners.stack[depth:]
        for trace in _listeners.monitored[monitored:]:
            _monitor.end(trace)
        del _listeners.monitored[monitored:]
        _listeners.followed, _listeners.tracer = self._followed, self._tracer
        if type(sys.gettrace()) in (_Tracer, type(None)):  # a debugger's may have come meanwhile
            _set_trace(self._function)


# ------------------------------------------------------------------ whether it can be done


class UnsupportedError(Exception):
    """Other tools have taken all of `sys.monitoring` that tells of instructions."""


class _Recorded:
    """A listener that notes what it is told of `_tried`."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.stand_ins: dict[int, Any] = {}
        self.at: tuple[types.CodeType, int] | None = None

    def listens_to(self, code: types.CodeType, names: dict[str, Any]) -> bool:
        return code is _tried.__code__

    def listens_in(self, frame: types.FrameType) -> bool:
        return True

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        self.told.append(("call", function, [*args], kwargs))
        return (lambda items: f"{len(items)} counted") if function is len else None

    def joined(self, text: str) -> Any:
        return f"not {text}"

    def __getattr__(self, method: str) -> Callable[..., None]:
        return lambda *operands: self.told.append((method, *operands))


class _Sample:
    def method(self, *args: Any, **kwargs: Any) -> Any:
        return args


def _tried(sample: Any, items: Any, key: str) -> Any:
    def inner() -> Any:
        return items

    found = [x for x in items]  # noqa: C416 - a frame of its own, until 3.12
    sample.method(sample, items[key], more=len(found))
    sample.kept = inner()
    return f"{key} of {sample.method(*found)}"


@functools.cache
def is_supported() -> bool:
    """Whether the operands of instructions are found where this file expects them.

    Raises `UnsupportedError` where instructions can't be told of now.
    """
    is_known = (3, 11) <= sys.version_info < (3, 14)
    if sys.implementation.name != "cpython" or not is_known:
        return False
    sample, items, key = _Sample(), {"a key": object()}, "a key"
    listener: Any = _Recorded()
    expected = [
        ("load_attribute", sample, "method"),
        ("load_item", items, key),
        ("call", sample.method, [sample, items[key]], {"more": "1 counted"}),
        ("call", len, [[key]], {}),
        ("store_attribute", sample, "kept"),
        ("call", sample.method, [key], {}),
    ]
    with listening(listener):
        text = _tried(sample, items, key)
    is_replaced = text == f"not {key} of {(key,)}"
    return is_replaced and all(event in listener.told for event in expected)
