"""The guards of the native entry: whether a call is one that the plan's program serves.

Each function answers 1 or 0; what it isn't sure of is a 0.
"""

from __future__ import annotations

from lucid.codegen.llvm.builder import Module, Val, const
from lucid.runtime.entry.words import (
    ALL,
    LEAF,
    NO_GRAD,
    NUMBER_CALLED,
    NUMBER_IN_TUPLE,
    WRITEABLE,
    Checked,
    EntryBuilder,
    Layout,
    Word,
    entry_function,
    records,
)

ARGUMENT = 10  # words of a record


def define_guards(module: Module, layout: Layout) -> None:
    """Add the functions `here`, `holds`, `arguments` and `numbers`."""
    _define_here(module, layout)
    _define_checked(module)
    for define in (_define_holds, _define_arguments, _define_numbers):
        define(module, layout)


def _define_here(module: Module, layout: Layout) -> None:
    """Whether this thread is in the modes that the step was traced in."""
    with entry_function(module, "here", "plan") as b:
        (plan,) = b.args
        number = b.api("PyThreadState_GetID", b.api("PyThreadState_Get"))
        with b.if_(b.ne(number, b.word(plan, Word.THREAD))):
            found = b.api("PyObject_GetAttr", b.word(plan, Word.CONTEXT), b.word(plan, Word.DICT))
            b.require_found(found)
            before = b.word(plan, Word.THREAD_ITEMS)
            b.set_word(plan, Word.THREAD_ITEMS, found)
            b.set_word(plan, Word.THREAD, number)
            b.drop(before)
        items = b.word(plan, Word.THREAD_ITEMS)
        table = b.word(plan, Word.MODES_AT)
        with b.loop(0, b.word(plan, Word.MODES)) as loop:
            mode = b.record(table, loop.index, 2)
            found = b.api("PyDict_GetItemWithError", items, b.word(mode))
            b.require(b.eq(found, b.word(mode, 1)))
        levels = b.api("PyDict_GetItemWithError", items, b.word(plan, Word.LEVELS))
        b.require_found(levels)
        b.require_size(levels, const("i64", 0))
        b.answer(1)


def _define_holds(module: Module, layout: Layout) -> None:
    """Whether the Python values are what they were."""
    with entry_function(module, "holds", "plan") as b:
        (plan,) = b.args
        now, known = b.word(b.word(plan, Word.EPOCH_AT)), b.word(plan, Word.KNOWN_EPOCH_AT)
        with b.if_(b.ne(now, b.word(known))):
            b.own(now)
            with b.if_(b.eq(b.call("checked", "i64", b.word(plan, Word.GATED_AT)), 0)):
                b.drop(now)
                b.answer(0)
            before = b.word(known)
            b.set_word(known, 0, now)
            b.drop(before)
        b.answer(b.call("checked", "i64", b.word(plan, Word.CHECKED_AT)))


def _define_checked(module: Module) -> None:
    """Whether all that some tables of `Checked` say is so."""
    with entry_function(module, "checked", "tables") as b:
        (tables,) = b.args
        with records(b, tables, Checked.FIELDS, 2) as field:
            b.require(b.eq(b.word(b.word(field)), b.word(field, 1)))
        with records(b, tables, Checked.DICTS, 3) as item:
            found = b.api("PyDict_GetItemWithError", b.word(item), b.word(item, 1))
            with b.if_(b.ne(found, b.word(item, 2))):
                b.api("PyErr_Clear")
                b.answer(0)
        with records(b, tables, Checked.CONTENTS, 6) as contents:
            owner, count = b.word(contents), b.word(contents, 1)
            b.require_size(owner, count)
            place, key, value = (b.add(contents, 8 * word) for word in (3, 4, 5))
            b.set_word(place, 0, 0)
            with b.loop(0, count) as loop:
                found = b.call("PyDict_Next", "i32", owner, place, key, value)
                b.require(b.ne(found, const("i32", 0)))
                entry = b.record(b.word(contents, 2), loop.index, 2)
                b.require(b.eq(b.word(key), b.word(entry)))
                b.require(b.eq(b.word(value), b.word(entry, 1)))
        with records(b, tables, Checked.ITEMS, 3) as item:
            found = b.api("PyObject_GetItem", b.word(item), b.word(item, 1))
            b.require_made(found)
            b.drop(found)
            b.require(b.eq(found, b.word(item, 2)))
        with records(b, tables, Checked.LENGTHS, 2) as length:
            b.require_size(b.word(length), b.word(length, 1))
        with records(b, tables, Checked.QUESTIONS, 2) as question:
            found = b.api("PyObject_CallNoArgs", b.word(question))
            b.require_made(found)
            b.drop(found)
            b.require(b.eq(found, b.word(question, 1)))
        b.answer(1)


def _define_arguments(module: Module, layout: Layout) -> None:
    """Whether the arguments are what was traced; their addresses go into the table."""
    _define_argument(module, layout)
    with entry_function(module, "arguments", "plan", "args") as b:
        plan, args = b.args
        table = b.word(plan, Word.ARGUMENTS_AT)
        with b.loop(0, b.word(plan, Word.ARGUMENT_COUNT)) as loop:
            given = b.word(args, loop.index)
            record = b.record(table, loop.index, ARGUMENT)
            array = b.call("argument", "i64", plan, given, record)
            b.require(b.ne(array, 0))
            memory = b.call("memory", "i64", plan, given)
            data, is_written = b.field(array, layout.array_data), b.word(record, 8)
            low, high = b.add(data, b.word(record, 5)), b.add(data, b.word(record, 6))
            with b.loop(0, loop.index) as others:
                other = b.word(args, others.index)
                is_apart = b.ne(memory, b.call("memory", "i64", plan, other))
                b.require(b.or_(is_apart, b.eq(b.word(plan, Word.RESULT), ALL)))
                before = b.record(table, others.index, ARGUMENT)
                with b.if_(b.ne(b.or_(is_written, b.word(before, 8)), 0)):
                    held = b.word(b.word(plan, Word.HELD_AT), others.index)
                    data = b.field(held, layout.array_data)
                    start, stop = b.add(data, b.word(before, 5)), b.add(data, b.word(before, 6))
                    ends_before, ends_behind = b.ge(low, stop), b.ge(start, high)
                    b.require(b.or_(ends_before, ends_behind))
            b.set_word(b.word(plan, Word.HELD_AT), loop.index, array)
        b.answer(1)


def _define_argument(module: Module, layout: Layout) -> None:
    _define_same_axes(module)
    _define_is_state(module)
    _define_meets(module)
    _define_memory(module, layout)
    _define_array(module, layout)
    with entry_function(module, "argument", "plan", "given", "record") as b:
        plan, given, record = b.args
        array, axes = array_of(b, layout, plan, given, record)
        b.require(b.eq(b.field(array, layout.array_dtype), b.word(record, 1)))
        for offset, word in ((layout.array_shape, 2), (layout.array_strides, 3)):
            is_same = b.call("same_axes", "i64", axes, b.field(array, offset), b.word(record, word))
            b.require(b.ne(is_same, 0))
        place = b.word(record, 4)
        with b.if_(b.ne(place, 0)):
            data = b.field(array, layout.array_data)
            low, high = b.add(data, b.word(record, 5)), b.add(data, b.word(record, 6))
            is_written = b.ne(b.word(record, 8), 0)
            with b.if_(is_written):
                b.require(b.ne(b.and_(b.field(array, layout.array_flags, "i32"), WRITEABLE), 0))
            spans = b.select(is_written, *(const("i64", x) for x in (Word.STATE_SPANS, Word.SPANS)))
            b.require(b.eq(b.call("meets", "i64", plan, spans, low, high), 0))
            b.set_word(place, 0, data)
        b.answer(array)


def _define_memory(module: Module, layout: Layout) -> None:
    """What tells an argument's memory from others': its storage, or itself if it is an array."""
    with entry_function(module, "memory", "plan", "given") as b:
        plan, given = b.args
        with b.if_(b.eq(b.field(given, layout.kind), b.word(plan, Word.ARRAY))):
            b.answer(given)
        b.answer(b.field(given, layout.tensor_storage))


def _define_array(module: Module, layout: Layout) -> None:
    """The array of an argument; 0 for a tensor that isn't plain, or is on memory of the state."""
    with entry_function(module, "array", "plan", "tensor", "grad") as b:
        plan, tensor, grad = b.args
        with b.if_(b.eq(b.field(tensor, layout.kind), b.word(plan, Word.ARRAY))):
            b.answer(tensor)
        none, base = b.word(plan, Word.NONE), b.field(tensor, layout.tensor_base)
        flag = b.select(b.eq(grad, NO_GRAD), b.word(plan, Word.FALSE), b.word(plan, Word.TRUE))
        b.require(b.eq(b.field(tensor, layout.tensor_requires_grad), flag))
        with b.if_(b.ne(grad, NO_GRAD)):
            for field in (layout.tensor_base, layout.tensor_guard, layout.tensor_hooks):
                b.require(b.eq(b.field(tensor, field), none))
            is_leaf = b.eq(b.field(tensor, layout.tensor_grad_fn), none)
            b.require(b.eq(is_leaf, b.eq(grad, LEAF)))
            reference = b.field(tensor, layout.tensor_accumulator)
            with b.if_(b.ne(reference, none)):
                node = b.api("PyObject_CallNoArgs", reference)
                b.require_found(node)
                b.drop(node)  # what it refers to is alive, or it is None
                with b.if_(b.ne(node, none)):
                    for field in (layout.node_pre_hooks, layout.node_post_hooks, layout.leaf_hooks):
                        b.require(b.eq(b.field(node, field), none))
        with b.if_(b.ne(base, none)):
            now = b.field(base, layout.tensor_epoch)
            b.require(b.eq(b.field(tensor, layout.tensor_epoch), now))
        storage = b.field(tensor, layout.tensor_storage)
        b.require(b.eq(b.call("is_state", "i64", plan, storage), 0))
        b.answer(b.field(tensor, layout.tensor_array))


def _define_same_axes(module: Module) -> None:
    with entry_function(module, "same_axes", "count", "found", "expected") as b:
        count, found, expected = b.args
        with b.loop(0, count) as loop:
            b.require(b.eq(b.word(found, loop.index), b.word(expected, loop.index)))
        b.answer(1)


def _define_is_state(module: Module) -> None:
    """Whether a storage is one of the state's: linear probing, from the slot of its address."""
    with entry_function(module, "is_state", "plan", "storage") as b:
        plan, storage = b.args
        mask, table = b.word(plan, Word.STATE_MASK), b.word(plan, Word.STATE_AT)
        start = b.lshr(storage, 4)
        with b.loop(0, b.add(mask, 1)) as loop:
            found = b.word(table, b.and_(b.add(start, loop.index), mask))
            with b.if_(b.eq(found, storage)):
                b.answer(1)
            with b.if_(b.eq(found, 0)):
                b.answer(0)
        b.answer(0)


def _define_meets(module: Module) -> None:
    """Whether any byte from `low` up to `high` is in one of the spans: a binary search.

    spans: the plan's word of these.
    """
    with entry_function(module, "meets", "plan", "spans", "low", "high") as b:
        plan, spans, low, high = b.args
        count, table = b.word(plan, spans), b.word(plan, b.add(spans, 1))
        with b.loop(0, 64, carried=[const("i64", 0), count]) as loop:
            first, last = loop.carried
            with b.if_(b.ge(first, last)):
                b.answer(0)
            middle = b.lshr(b.add(first, last), 1)
            span = b.record(table, middle, 2)
            start, stop = b.word(span), b.word(span, 1)
            is_before, is_after = (b.compare("ule", *p) for p in ((stop, low), (high, start)))
            with b.if_(b.not_(b.or_(is_before, is_after))):
                b.answer(1)
            loop.carry(
                b.select(is_before, b.add(middle, 1), first), b.select(is_before, last, middle)
            )
        b.answer(1)


def _define_numbers(module: Module, layout: Layout) -> None:
    """Enter the live numbers; whether all are of their classes, and fit."""
    _define_number(module)
    with entry_function(module, "numbers", "plan") as b:
        (plan,) = b.args
        with records(b, plan, Word.NUMBERS, 6) as record:
            found = b.call("number", "i64", record)
            b.require_made(found)
            kind, place = b.word(record, 4), b.word(record, 5)
            with b.if_(b.not_(b.eq(b.field(found, layout.kind), kind))):
                b.drop(found)
                b.answer(0)
            with b.if_else(b.eq(kind, b.word(plan, Word.FLOAT))) as branch:
                with branch.then():
                    double = b.bits(b.call("PyFloat_AsDouble", "double", found))
                with branch.otherwise():
                    whole = b.api("PyLong_AsLongLong", found)
            value = branch.merge(double, whole)
            b.drop(found)
            is_error = b.eq(value, -1)  # also what an int that is too large gives
            with b.if_(is_error), b.if_(b.ne(b.api("PyErr_Occurred"), 0)):
                b.api("PyErr_Clear")
                b.answer(0)
            b.set_word(place, 0, value)
        b.answer(1)


def _define_number(module: Module) -> None:
    """A new reference to the object that a live number is read from; null with an exception."""
    with entry_function(module, "number", "record") as b:
        (record,) = b.args
        kind, owner = b.word(record), b.word(record, 1)
        with b.if_(b.eq(kind, NUMBER_CALLED)):
            b.answer(b.api("PyObject_CallNoArgs", owner))
        found = b.api("PyDict_GetItemWithError", owner, b.word(record, 2))
        b.require(b.ne(found, 0))
        with b.if_(b.eq(kind, NUMBER_IN_TUPLE)):
            item = b.api("PyTuple_GetItem", found, b.word(record, 3))
            b.require(b.ne(item, 0))
            b.own(item)
            b.answer(item)
        b.own(found)
        b.answer(found)


def array_of(
    b: EntryBuilder, layout: Layout, plan: Val, given: Val, record: Val
) -> tuple[Val, Val]:
    """The array that an argument is on, and how many axes it has, if both are as recorded."""
    b.require(b.eq(b.field(given, layout.kind), b.word(record, 7)))
    array = b.call("array", "i64", plan, given, b.word(record, 9))
    b.require(b.ne(array, 0))
    b.require(b.eq(b.field(array, layout.kind), b.word(plan, Word.ARRAY)))
    axes = b.cast("zext", b.field(array, layout.array_axes, "i32"), "i64")
    b.require(b.eq(axes, b.word(record)))
    return array, axes
