"""A short native step as a function of arrays that are known to fit, which holds no memory of them.

The library's own calls come through here: types have been looked up, nothing is written, and what
is wrong with values is left to `Executable.call_known`, which says it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.codegen.llvm.builder import Module
from lucid.codegen.llvm.target import Target, host_target
from lucid.ir.environment import NATIVE_CALLS
from lucid.ir.memory import ALIGNED_FROM, address_of
from lucid.runtime.entry.layout import NativeFunctions, UnknownLayoutError, general_layout
from lucid.runtime.entry.words import CONTIGUOUS, EntryBuilder, entry_function
from lucid.runtime.once import Once
from lucid.runtime.recycling import recycling
from lucid.runtime.threads import pool

if TYPE_CHECKING:
    from lucid.codegen.llvm.builder import Val
    from lucid.runtime.executable import Executable

logger = logging.getLogger("lucid")
_CALL = "lucid_call_arrays"


class _Word(IntEnum):
    """Words of a plan."""

    NONE = 0  # the answer to a call that is left to Python
    IS_OPEN_AT = 1  # a word: whether native code may call the step now
    STEP = 2
    TABLE = 3  # of the step: inputs, outputs
    OUTPUTS_AT = 4  # where the outputs are in the table
    OUTPUTS = 5  # their number
    MAKERS_AT = 6  # of each output: a callable, its arguments, their number
    RECORD_AT = 7  # of an error of the step
    TRUE = 8  # the answer of a step that writes over its first input
    WRITTEN = 9  # the bytes of that; 0: it writes none
    BYTES_AT = 10  # of each input
    AWAKE_AT = 11  # a word that is 0 as long as the threads don't run; or 0


def function_of_arrays(
    executable: Executable, constants: Sequence[np.ndarray]
) -> Callable[..., tuple[np.ndarray, ...] | None] | None:
    """The step as a function of its first inputs, for which `constants` are the others.

    It answers None where `call_known` has to be asked: for an array that isn't contiguous, and
    where the step has found an error. A step that writes over its first input answers True, or None
    where another one shares a part of its memory. None in its place: the step takes long or calls
    Python, or the interpreter's objects aren't as expected.
    """
    native = _native()
    context = executable.context_of_its_own()
    if native is None or context is None:
        return None
    plan = _Plan(len(_Word), np.int64)
    plan.kept = [native, executable, context, *constants]
    first = len(context.expected) - len(constants)
    for number, array in enumerate(constants, first):
        context.table[number] = address_of(array)
    makers: list[int] = []
    for output in executable.outputs:
        is_numpys = output[2] < ALIGNED_FROM
        make, args = (np.empty, output[:2]) if is_numpys else (recycling.empty, output)
        table = np.array([id(arg) for arg in args], np.int64)
        plan.kept += [make, args, table]
        makers += id(make), address_of(table), len(args)
    table = np.array(makers or [0], np.int64)
    plan.kept.append(table)
    plan[_Word.NONE] = id(None)
    plan[_Word.IS_OPEN_AT] = executable.open_at
    plan[_Word.STEP] = executable.address
    plan[_Word.TABLE] = context.address
    plan[_Word.OUTPUTS_AT] = context.address + 8 * len(context.expected)
    plan[_Word.OUTPUTS] = len(executable.outputs)
    plan[_Word.MAKERS_AT] = address_of(table)
    plan[_Word.RECORD_AT] = context.record_at
    sizes = np.array([expected.high for expected in context.expected] or [0], np.int64)
    plan.kept.append(sizes)
    plan[_Word.TRUE] = id(True)
    plan[_Word.WRITTEN] = sizes[0] if context.expected and context.expected[0].written else 0
    plan[_Word.BYTES_AT] = address_of(sizes)
    plan[_Word.AWAKE_AT] = pool.awake_address if executable.shared_count else 0
    return native.function(plan)


class _Plan(np.ndarray):
    """The words, with all that they are about; the function keeps it alive."""

    kept: list[Any]


@Once
def _native() -> NativeFunctions | None:
    if not NATIVE_CALLS.read():
        return None
    try:
        layout = general_layout()
        return NativeFunctions(_module(host_target(), layout), _CALL)
    except UnknownLayoutError as reason:
        logger.info("library Functions are called through Python: %s", reason)
        return None


def _module(target: Target, layout: dict[str, int]) -> Module:
    """IR of `lucid_call_arrays(plan array, arrays, their number)`, a METH_FASTCALL function.

    Making arrays may run other Python code, and with it other calls of the plan: from the first
    word in the table to the step's end nothing does.
    """
    module = Module(target)
    data = layout["array_data"]
    with entry_function(module, _CALL, "self", "args", "count", internal=False) as b:
        holder, args, count = b.args
        plan = b.field(holder, data)
        with b.if_(b.eq(b.word(b.word(plan, _Word.IS_OPEN_AT)), 0)):
            _leave(b, plan)
        awake = b.word(plan, _Word.AWAKE_AT)
        with b.if_(b.ne(awake, 0)), b.if_(b.eq(b.word(awake), 0)):
            _leave(b, plan)
        with b.loop(0, count) as loop:
            flags = b.field(b.word(args, loop.index), layout["array_flags"], "i32")
            with b.if_(b.eq(b.and_(flags, CONTIGUOUS), 0)):
                _leave(b, plan)
        written = b.word(plan, _Word.WRITTEN)
        is_written = b.ne(written, 0)
        with b.if_(is_written):
            own = b.field(b.word(args), data)
            end = b.add(own, written)
            with b.loop(1, count) as loop:
                other = b.field(b.word(args, loop.index), data)
                size = b.word(b.word(plan, _Word.BYTES_AT), loop.index)
                is_apart = b.or_(b.le(b.add(other, size), own), b.le(end, other))
                with b.if_(b.not_(is_apart)):
                    _leave(b, plan)
        outputs = b.word(plan, _Word.OUTPUTS)
        made = b.api("PyTuple_New", outputs)
        b.require(b.ne(made, 0))
        with b.loop(0, outputs) as loop:
            maker = b.record(b.word(plan, _Word.MAKERS_AT), loop.index, 3)
            given = b.word(maker, 1), b.word(maker, 2)
            array = b.api("PyObject_Vectorcall", b.word(maker), *given, 0)
            with b.if_(b.eq(array, 0)):
                b.drop(made)
                b.answer(0)
            b.api("PyTuple_SetItem", made, loop.index, array)
        table = b.word(plan, _Word.TABLE)
        with b.loop(0, count) as loop:
            b.set_word(table, loop.index, b.field(b.word(args, loop.index), data))
        with b.loop(0, outputs) as loop:
            array = b.api("PyTuple_GetItem", made, loop.index)
            b.set_word(b.word(plan, _Word.OUTPUTS_AT), loop.index, b.field(array, data))
        step = b.cast("inttoptr", b.word(plan, _Word.STEP), "ptr").name
        address = b.cast("inttoptr", table, "ptr")
        code = b.emit("i32", f"call i32 {step}({address})")
        with b.if_(b.ne(code, 0)):
            b.set_word(b.word(plan, _Word.RECORD_AT), 0, 0)
            b.drop(made)
            _leave(b, plan)
        with b.if_(is_written):
            b.drop(made)
            b.own(done := b.word(plan, _Word.TRUE))
            b.answer(done)
        b.answer(made)
    return module


def _leave(b: EntryBuilder, plan: Val) -> None:
    """Answer that Python has to be asked."""
    none = b.word(plan, _Word.NONE)
    b.own(none)
    b.answer(none)
