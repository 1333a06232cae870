"""What a call of a step returns: tensors of the new arrays, and containers and views of those."""

from __future__ import annotations

from enum import IntEnum

from lucid.codegen.llvm.builder import Module, Val, const
from lucid.runtime.entry.words import (
    A_CONSTANT,
    A_DICT,
    A_TUPLE,
    A_VIEW,
    ALL,
    CONSTANT,
    MADE,
    OTHER,
    ROOM,
    EntryBuilder,
    Layout,
    Word,
    entry_function,
    records,
)


class View(IntEnum):
    """Words of a view of a new tensor."""

    TENSOR = 0  # a template
    ARRAY_AT = 1  # what NumPy makes the array of, its third argument aside; or 0: it is the same
    IS_BASED = 2  # whether a write through it is one to that tensor


def define_result(module: Module, layout: Layout) -> None:
    """What the call returns; null with an exception. `tensor` and `history` are there."""
    _define_tensors(module)
    _define_view(module, layout)
    _define_part(module)
    _define_parts(module)
    _define_rest(module)
    with entry_function(module, "result", "plan", "args") as b:
        plan, args = b.args
        b.require(b.ne(b.call("tensors", "i64", plan), 0))
        kind, value = b.word(plan, Word.RESULT), b.word(plan, Word.RESULT_AT)
        with b.if_(b.eq(kind, CONSTANT)):
            b.own(value)
            b.answer(value)
        with b.if_(b.eq(kind, ALL)):
            count, arrays = b.word(plan, Word.RESULTS), b.word(plan, Word.ARRAYS_AT)
            made = b.api("PyTuple_New", count)
            with b.if_(b.eq(made, 0)):
                drop_arrays(b, plan)
                b.answer(0)
            with b.loop(0, count) as loop:
                b.api("PyTuple_SetItem", made, loop.index, b.word(arrays, loop.index))
            b.answer(made)
        made = b.call("rest", "i64", plan, args)
        error = b.cast("ptrtoint", b.alloca("i64", 3), "i64")
        with b.if_(b.and_(b.eq(made, 0), b.eq(kind, OTHER))):
            keep_error(b, error)  # whoever interrupts it, or ends the stack, comes after all
            limit = b.call("Py_GetRecursionLimit", "i32")
            b.call("Py_SetRecursionLimit", "void", b.add(limit, const("i32", ROOM)))
            b.drop(b.call("rest", "i64", plan, args))
            b.call("Py_SetRecursionLimit", "void", limit)
            raise_kept(b, error)
        drop_arrays(b, plan)
        b.answer(made)


def _define_rest(module: Module) -> None:
    """What becomes of the new tensors: parts, a history, a result. It can be done again."""
    _define_told(module)
    with entry_function(module, "rest", "plan", "args") as b:
        plan, args = b.args
        b.require(b.ne(b.call("parts", "i64", plan), 0))
        with b.if_(b.ne(b.word(plan, Word.HISTORY_AT), 0)):
            is_done = b.ne(b.call("history", "i64", plan, args), 0)
            with b.if_(b.not_(is_done)):
                _drop_parts(b, plan, b.word(plan, Word.PARTS))
                b.answer(0)
        with b.if_else(b.eq(b.word(plan, Word.RESULT), MADE)) as branch:
            with branch.then():
                found = b.word(b.word(plan, Word.ARRAYS_AT), b.word(plan, Word.RESULT_AT))
                b.own(found)
            with branch.otherwise():
                told = b.call("told", "i64", plan, args)
        made = branch.merge(found, told)
        _drop_parts(b, plan, b.word(plan, Word.PARTS))
        b.answer(made)


def _define_told(module: Module) -> None:
    """What a callable makes of the arguments and of what was made; null with an exception."""
    with entry_function(module, "told", "plan", "args") as b:
        plan, args = b.args
        values, count = b.word(plan, Word.VALUES_AT), b.word(plan, Word.ARGUMENT_COUNT)
        with b.loop(0, count) as loop:
            b.set_word(values, loop.index, b.word(args, loop.index))
        count = b.add(count, b.add(b.word(plan, Word.RESULTS), b.word(plan, Word.PARTS)))
        b.answer(b.api("PyObject_Vectorcall", b.word(plan, Word.RESULT_AT), values, count, 0))


def _define_tensors(module: Module) -> None:
    """Make tensors of arrays."""
    with entry_function(module, "tensors", "plan") as b:
        (plan,) = b.args
        arrays = b.word(plan, Word.ARRAYS_AT)
        with records(b, plan, Word.TENSORS, 4) as record:
            index = b.word(record)
            made = b.call("tensor", "i64", record, b.word(arrays, index))
            b.set_word(arrays, index, made)
            with b.if_(b.eq(made, 0)):
                drop_arrays(b, plan)
                b.answer(0)
        b.answer(1)


def _define_view(module: Module, layout: Layout) -> None:
    """A view of a tensor; null with an exception."""
    with entry_function(module, "view", "plan", "words", "root") as b:
        plan, words, root = b.args
        whole, args = b.field(root, layout.tensor_array), b.word(words, View.ARRAY_AT)
        with b.if_else(b.ne(args, 0)) as branch:
            with branch.then():
                b.set_word(args, 2, whole)
                part = b.api("PyObject_Vectorcall", b.word(plan, Word.ARRAY), args, 5, 0)
            with branch.otherwise():
                b.own(whole)
        array = branch.merge(part, whole)
        b.require(b.ne(array, 0))
        made = b.call("instance", "i64", b.word(words, View.TENSOR))
        b.require_or_drop(made, array)
        is_based = b.ne(b.word(words, View.IS_BASED), 0)
        base = b.select(is_based, root, b.word(plan, Word.NONE))
        for offset in layout.tensor_storage, layout.tensor_counter:
            shared = b.field(root, offset)
            b.own(shared)
            b.set_field(made, offset, shared)
        b.own(base)
        b.set_field(made, layout.tensor_base, base)
        b.set_field(made, layout.tensor_array, array)
        b.answer(made)


def _define_part(module: Module) -> None:
    """One part; null with an exception."""
    with entry_function(module, "part", "plan", "record") as b:
        plan, record = b.args
        kind, what, count, numbers, given = (b.word(record, i) for i in range(5))
        with b.if_(b.eq(kind, A_CONSTANT)):
            b.own(what)
            b.answer(what)
        arrays = b.word(plan, Word.ARRAYS_AT)
        with b.loop(0, count) as loop:
            b.set_word(given, loop.index, b.word(arrays, b.word(numbers, loop.index)))
        with b.if_(b.eq(kind, A_TUPLE)):
            made = b.api("PyTuple_New", count)
            b.require(b.ne(made, 0))
            with b.loop(0, count) as loop:
                value = b.word(given, loop.index)
                b.own(value)
                b.api("PyTuple_SetItem", made, loop.index, value)
            b.answer(made)
        with b.if_(b.eq(kind, A_VIEW)):
            b.answer(b.call("view", "i64", plan, what, b.word(given)))
        with b.if_(b.eq(kind, A_DICT)):
            made = b.api("PyDict_New")
            b.require(b.ne(made, 0))
            with b.loop(0, count) as loop:
                entry = b.word(what, loop.index), b.word(given, loop.index)
                code = b.call("PyDict_SetItem", "i32", made, *entry)
                with b.if_(b.ne(code, const("i32", 0))):
                    b.drop(made)
                    b.answer(0)
            b.answer(made)
        b.answer(b.api("PyObject_Vectorcall", what, given, count, 0))


def _define_parts(module: Module) -> None:
    """Make the parts, behind the new arrays; 0 with an exception, and none is left then."""
    with entry_function(module, "parts", "plan") as b:
        (plan,) = b.args
        with b.loop(0, b.word(plan, Word.PARTS)) as loop:
            record = b.record(b.word(plan, Word.PARTS_AT), loop.index, 5)
            made = b.call("part", "i64", plan, record)
            with b.if_(b.eq(made, 0)):
                _drop_parts(b, plan, loop.index)
                b.answer(0)
            b.set_word(_parts_at(b, plan), loop.index, made)
        b.answer(1)


def _parts_at(b: EntryBuilder, plan: Val) -> Val:
    return b.record(b.word(plan, Word.ARRAYS_AT), b.word(plan, Word.RESULTS), 1)


def _drop_parts(b: EntryBuilder, plan: Val, count: Val) -> None:
    place = _parts_at(b, plan)
    with b.loop(0, count) as loop:
        b.drop(b.word(place, loop.index))


def drop_arrays(b: EntryBuilder, plan: Val) -> None:
    """Let go of the results that were made for a call."""
    arrays = b.word(plan, Word.ARRAYS_AT)
    with b.loop(0, b.word(plan, Word.RESULTS)) as loop:
        b.drop(b.word(arrays, loop.index))


def keep_error(b: EntryBuilder, error: Val) -> None:
    """Move CPython's exception to three words at an address."""
    b.api("PyErr_Fetch", *(b.add(error, 8 * i) for i in range(3)))


def raise_kept(b: EntryBuilder, error: Val) -> None:
    """Raise what is kept there, in place of what is raised now."""
    b.api("PyErr_Restore", *(b.word(error, i) for i in range(3)))
    b.set_word(error, 0, 0)
