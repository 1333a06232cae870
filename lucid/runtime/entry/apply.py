"""An op of eager mode as machine code: what `apply_op` does where nothing but gradients matters.

`lucid_apply(op, operands, attributes)` looks up a *record* of the op on such operands, calls the
op's NumPy meaning, and makes the result: a tensor with storage and version counter, or a view;
and a node with what it saves, if an operand requires grad. New objects are copies of templates.
Like the entry of compiled steps it answers None for whatever it isn't sure of, and nothing has
happened yet. A record that is missing it asks for, by another answer. Operands of types that there
is no record of have one that the op has for all types, where Python says the type of the result,
unless it is that of the operands, as that of ops on elements often is.
"""

from __future__ import annotations

from enum import IntEnum

from lucid.codegen.llvm.builder import Module, Val, const
from lucid.codegen.llvm.target import Target
from lucid.ir.inference import MANY_ELEMENTS
from lucid.runtime.entry.calls import define_call
from lucid.runtime.entry.common import Common, define_right_array
from lucid.runtime.entry.objects import define_tensor
from lucid.runtime.entry.walk import define_walk
from lucid.runtime.entry.words import EntryBuilder, Layout, entry_function

APPLY = "lucid_apply"
MADE = "lucid_made"
KEPT = "lucid_kept"
MOST_OPERANDS = 32
MOST_TOLD_APART = 8  # operands of which any may require grad; of more all, or none
SLOTS = 4096  # of the table of records: each is found in one of two, whose last bits differ
UNIFORM_SLOTS = 512
_LOOKED_AT = 8  # of so many ops of a uniform record one is Python's, which sees what comes again
_EQUAL = 2  # Py_EQ


class Record(IntEnum):
    """Words of one op on operands of some types, or of any, whose templates get the right ones."""

    OP = 0
    COUNT = 1
    ATTRIBUTES = 2  # a dict, or 0: none
    EVALUATE = 3
    # Templates of a new storage, counter and tensor, as `define_tensor` takes them, after a word
    # of its own.
    TENSOR = 4
    STEP = 8  # of a view: the chain that it adds, a tuple of one pair; of any types 1; else 0
    CODE = 9  # a `function_of_arrays`, which gives what EVALUATE does; or 0
    TYPES = 10  # a word for each operand
    HISTORIES = 42  # by the operands that require grad, as bits: the words of one, or as below


class Uniform(IntEnum):
    """Words of an op for operands of any types, if it is one on elements: in the place of types.

    Its result is of the type that all operands have, but for those that are numbers.
    """

    DTYPE = Record.TYPES
    NUMBER = Record.TYPES + 1  # type
    APPLIED = Record.TYPES + 2  # how often


NO_HISTORY, UNKNOWN_HISTORY = range(2)


class History(IntEnum):
    """Words of a node."""

    NODE = 0  # template
    COUNT = 1  # of what is saved: then the numbers of operands, -1: the result
    SAVED = 2


assert Record.HISTORIES == Record.TYPES + MOST_OPERANDS


def apply_module(target: Target, layout: Layout) -> Module:
    """IR of `lucid_apply(plan array, arguments, their number)`, a METH_FASTCALL function."""
    module = Module(target)
    define_tensor(module, layout)
    define_right_array(module, layout)
    define_walk(module, layout)
    for define in (
        _define_grad,
        _define_fits,
        _define_find,
        _define_wanted,
        _define_evaluate,
        _define_copy,
        _define_view,
        _define_end,
        _define_saved,
        _define_node,
        _define_spot,
        _define_uniform,
        _define_types,
        _define_applied_by,
        _define_applied,
        _define_apply,
        _define_made,
        _define_kept,
    ):
        define(module, layout)
    define_call(module, layout)
    return module


def _define_apply(module: Module, layout: Layout) -> None:
    with entry_function(module, APPLY, "self", "args", "count", internal=False) as b:
        holder, args, _ = b.args
        plan = b.field(holder, layout.array_data)
        b.answer(b.call("apply", "i64", plan, *[b.word(args, i) for i in range(3)]))


def _define_applied(module: Module, layout: Layout) -> None:
    """What an op gives; None: Python is to apply it, as well as where a record is missing."""
    with entry_function(module, "apply", "plan", "op", "operands", "attributes") as b:
        plan, op, operands, attributes = b.args
        is_tuple = b.eq(b.field(operands, layout.kind), b.word(plan, Common.TUPLE))
        _leave_unless(b, plan, is_tuple)
        count = b.api("PyTuple_Size", operands)
        is_usual = b.and_(b.compare("sge", count, 1), b.compare("sle", count, MOST_OPERANDS))
        _leave_unless(b, plan, is_usual)
        grad = b.call("grad", "i64", plan)
        _leave_unless(b, plan, b.ne(grad, 0))
        record = b.call("find", "i64", plan, op, operands, count, attributes)
        _leave_unless(b, plan, b.ne(record, 0))
        given = operands, count, attributes
        zero = const("i64", 0)
        with b.if_(b.ne(record, 1)):
            step = b.word(record, Record.STEP)
            b.answer(b.call("applied_by", "i64", plan, grad, record, zero, zero, step, *given))
        words = b.cast("ptrtoint", b.alloca("i64", 3), "i64")
        record = b.call("uniform", "i64", plan, op, *given, words)
        with b.if_(b.ne(record, 0)):
            type_ = b.word(words)
            b.answer(b.call("applied_by", "i64", plan, grad, record, type_, zero, zero, *given))
        for i, value in enumerate((op, operands, attributes)):
            b.set_word(words, i, value)
        known = b.api("PyObject_Vectorcall", b.word(plan, Common.APPLICATION), words, 3, 0)
        b.require(b.ne(known, 0))
        with b.if_(b.eq(known, b.word(plan, Common.MISSED))):
            b.answer(known)
        record = b.field(b.field(known, layout.application_form), layout.array_data)
        type_ = b.field(known, layout.application_result_type)
        is_view = b.ne(b.word(record, Record.STEP), 0)
        step = b.select(is_view, b.field(known, layout.application_step), zero)
        made = b.call("applied_by", "i64", plan, grad, record, type_, known, step, *given)
        b.drop(known)
        b.answer(made)


def _define_uniform(module: Module, layout: Layout) -> None:
    """The record of an op on elements of operands of one type, which is put down; or 0."""
    names = "plan", "op", "operands", "count", "attributes", "found"
    with entry_function(module, "uniform", *names) as b:
        plan, op, operands, count, attributes, found = b.args
        b.require(b.eq(b.api("PyDict_Size", attributes), 0))
        first = b.field(b.api("PyTuple_GetItem", operands, 0), layout.tensor_type)
        dtype = b.field(first, layout.type_dtype)
        mixed = b.add(b.add(b.lshr(op, 4), b.mul(b.lshr(dtype, 4), 31)), count)
        slot = b.and_(b.xor(mixed, b.lshr(mixed, 9)), UNIFORM_SLOTS - 1)
        b.set_word(plan, Common.UNIFORM_SLOT, slot)
        record = b.word(b.word(plan, Common.UNIFORM_AT), slot)
        b.require(b.ne(record, 0))
        for word, value in ((Record.OP, op), (Record.COUNT, count), (Uniform.DTYPE, dtype)):
            b.require(b.eq(b.word(record, word), value))
        number = b.word(record, Uniform.NUMBER)
        b.set_word(found, 0, 0)
        with b.loop(0, count) as loop:
            type_ = b.field(b.api("PyTuple_GetItem", operands, loop.index), layout.tensor_type)
            with b.if_(b.ne(type_, number)):
                with b.if_(b.eq(b.word(found), 0)):
                    b.set_word(found, 0, type_)
                b.require(b.eq(b.word(found), type_))
        b.require(b.ne(b.word(found), 0))
        b.require(b.eq(b.field(b.word(found), layout.type_dtype), dtype))
        size = b.api("PyLong_AsLongLong", b.field(b.word(found), layout.type_size))
        b.require(b.lt(size, const("i64", MANY_ELEMENTS)))
        times = b.add(b.word(record, Uniform.APPLIED), 1)
        b.set_word(record, Uniform.APPLIED, times)
        b.require(b.ne(b.and_(times, _LOOKED_AT - 1), 0))
        b.answer(record)


def _define_applied_by(module: Module, layout: Layout) -> None:
    """What an op gives, by its record on such operands, or by that for any.

    For any: `type` is that of the result, `known` what is known of the op on such; 0: the operands
    have that type, or are numbers.
    """
    names = "plan", "grad", "record", "type", "known", "step", "operands", "count", "attributes"
    with entry_function(module, "applied_by", *names) as b:
        plan, grad, record, type_, known, step, operands, count, attributes = b.args
        is_of_any = b.ne(type_, 0)
        wanted = b.call("wanted", "i64", plan, grad, operands, count)
        _leave_unless(b, plan, b.compare("sge", wanted, 0))
        is_some = b.and_(b.compare("sgt", count, MOST_TOLD_APART), b.ne(wanted, 0))
        with b.if_(is_some):
            is_all = b.eq(b.add(wanted, 1), b.shl(const("i64", 1), count))
            _leave_unless(b, plan, is_all)
        wanted = b.select(is_some, const("i64", 1), wanted)
        history = b.word(b.add(record, b.mul(wanted, 8)), Record.HISTORIES)
        with b.if_(b.eq(history, UNKNOWN_HISTORY)):
            b.own(missed := b.word(plan, Common.MISSED))
            b.answer(missed)
        array = b.call("evaluate", "i64", plan, record, operands, count, attributes)
        _leave_unless(b, plan, b.ne(array, 1))
        b.require(b.ne(array, 0))
        is_new = b.eq(step, 0)
        templates = b.add(record, 8 * Record.TENSOR)
        with b.if_else(is_new) as branch:
            with branch.then():
                new = b.call("tensor", "i64", templates, array)
            with branch.otherwise():
                viewed = b.api("PyTuple_GetItem", operands, 0)
                view = b.call("view", "i64", plan, record, step, viewed, array)
        tensor = branch.merge(new, view)
        _leave_unless(b, plan, b.ne(tensor, 1))
        b.require(b.ne(tensor, 0))
        with b.if_(is_of_any):
            b.own(type_)
            b.exchange(tensor, layout.tensor_type, type_)
            with b.if_(b.eq(b.field(tensor, layout.tensor_base), b.word(plan, Common.NONE))):
                b.own(type_)
                storage = b.field(tensor, layout.tensor_storage)
                b.exchange(storage, layout.storage_root_type, type_)
        spot = b.call("spot", "i64", plan)
        b.require_or_drop(spot, tensor)
        b.exchange(tensor, layout.tensor_spot, spot)
        with b.if_(b.ne(history, NO_HISTORY)):
            true = b.word(plan, Common.TRUE)
            b.own(true)
            b.exchange(tensor, layout.tensor_requires_grad, true)
            made = b.call("node", "i64", plan, record, history, operands, count, attributes, tensor)
            b.require_or_drop(made, tensor)
            b.exchange(tensor, layout.tensor_grad_fn, made)
            with b.if_(is_of_any):
                types = b.api("PyTuple_New", 1)
                b.require_or_drop(types, tensor)
                b.own(type_)
                b.api("PyTuple_SetItem", types, 0, type_)
                b.exchange(made, layout.node_output_types, types)
                with b.if_else(b.ne(known, 0)) as branch:
                    with branch.then():
                        b.own(known)
                    with branch.otherwise():
                        types = b.call("types_of", "i64", operands, count)
                told = branch.merge(known, types)
                b.require_or_drop(told, tensor)
                b.exchange(made, layout.node_derivative, told)
        b.answer(tensor)


def _define_made(module: Module, layout: Layout) -> None:
    """`lucid_made(words of templates, array, spot)`: a tensor on an array, as in a record."""
    with entry_function(module, MADE, "self", "args", "count", internal=False) as b:
        _, args, _ = b.args
        templates, array, spot = (b.word(args, i) for i in range(3))
        b.own(array)
        made = b.call("tensor", "i64", b.field(templates, layout.array_data), array)
        b.require(b.ne(made, 0))
        b.own(spot)
        b.exchange(made, layout.tensor_spot, spot)
        b.answer(made)


def _define_kept(module: Module, layout: Layout) -> None:
    """`lucid_kept(tensor)`: what keeps it for a backward; of a result with words of templates."""
    with entry_function(module, KEPT, "self", "args", "count", internal=False) as b:
        holder, args, count = b.args
        plan = b.field(holder, layout.array_data)
        tensor = b.word(args)
        with b.if_(b.eq(count, 1)):
            b.answer(b.call("saved", "i64", plan, const("i64", 0), tensor, tensor))
        templates = b.field(b.word(args, 1), layout.array_data)
        b.answer(b.call("saved", "i64", plan, templates, const("i64", 0), tensor))


def _define_spot(module: Module, layout: Layout) -> None:
    """Where the user's code stands: the code and the instruction of the first frame of its own.

    The frame that runs is that of who has called this code, which nobody asks for.
    """
    with entry_function(module, "spot", "plan") as b:
        (plan,) = b.args
        words = b.cast("ptrtoint", b.alloca("i64", 3), "i64")
        given, frame, code = (b.add(words, 8 * i) for i in range(3))
        b.set_word(given, 0, b.word(b.word(plan, Common.NUMBERS_AT), 2))
        b.set_word(frame, 0, b.api("PyObject_Vectorcall", b.word(plan, Common.FRAME), given, 1, 0))
        b.require(b.ne(b.word(frame), 0))
        b.set_word(code, 0, b.api("PyFrame_GetCode", b.word(frame)))

        def is_in(files: Common) -> Val:
            file = b.api("PyObject_GetAttr", b.word(code), b.word(plan, Common.FILENAME))
            found = b.call("PySet_Contains", "i32", b.word(plan, files), file)
            b.drop(file)
            return b.eq(found, const("i32", 1))

        with b.while_(lambda: is_in(Common.PASSED)):
            before = b.api("PyFrame_GetBack", b.word(frame))
            for place in (code, frame):
                b.drop(b.word(place))
            with b.if_(b.eq(before, 0)):  # there is none of the user's
                b.answer(b.api("PyObject_CallNoArgs", b.word(plan, Common.SPOT)))
            b.set_word(frame, 0, before)
            b.set_word(code, 0, b.api("PyFrame_GetCode", before))
        with b.if_(b.not_(is_in(Common.USERS))):  # a file that is seen for the first time
            for place in (code, frame):
                b.drop(b.word(place))
            b.answer(b.api("PyObject_CallNoArgs", b.word(plan, Common.SPOT)))
        last = b.cast("sext", b.call("PyFrame_GetLasti", "i32", b.word(frame)), "i64")
        b.drop(b.word(frame))
        made = b.api("PyTuple_New", 2)
        b.require_or_drop(made, b.word(code))
        b.api("PyTuple_SetItem", made, 0, b.word(code))
        b.api("PyTuple_SetItem", made, 1, b.api("PyLong_FromLongLong", last))
        b.answer(made)


def _define_grad(module: Module, layout: Layout) -> None:
    """`grad_enabled` of this thread; 0 if anything else matters there."""
    with entry_function(module, "grad", "plan") as b:
        (plan,) = b.args
        number = b.api("PyThreadState_GetID", b.api("PyThreadState_Get"))
        with b.if_(b.ne(number, b.word(plan, Common.THREAD))):
            found = b.api(
                "PyObject_GetAttr", b.word(plan, Common.CONTEXT), b.word(plan, Common.DICT)
            )
            b.require_found(found)
            before = b.word(plan, Common.THREAD_ITEMS)
            b.set_word(plan, Common.THREAD_ITEMS, found)
            b.set_word(plan, Common.THREAD, number)
            b.drop(before)
        items = b.word(plan, Common.THREAD_ITEMS)
        names = b.word(plan, Common.ABSENT_AT)
        with b.loop(0, b.word(plan, Common.ABSENT)) as loop:
            found = b.api("PyDict_GetItemWithError", items, b.word(names, loop.index))
            b.require(b.eq(found, b.word(plan, Common.NONE)))
        names = b.word(plan, Common.EMPTY_AT)
        with b.loop(0, b.word(plan, Common.EMPTY)) as loop:
            found = b.api("PyDict_GetItemWithError", items, b.word(names, loop.index))
            b.require_found(found)
            b.require(b.eq(b.api("PyList_Size", found), 0))
        found = b.api("PyDict_GetItemWithError", items, b.word(plan, Common.GRAD_ENABLED))
        b.require_found(found)
        b.answer(found)


def _define_find(module: Module, layout: Layout) -> None:
    """The record of an op on such operands; 1: there is none yet, 0: there can't be one."""
    with entry_function(module, "find", "plan", "op", "operands", "count", "attributes") as b:
        plan, op, operands, count, attributes = b.args
        words = b.cast("ptrtoint", b.alloca("i64", 4), "i64")
        state, place, key, value = (b.add(words, 8 * i) for i in range(4))
        b.set_word(state, 0, b.lshr(op, 4))
        with b.loop(0, count) as loop:
            operand = b.api("PyTuple_GetItem", operands, loop.index)
            kind = b.field(operand, layout.kind)
            with b.if_(b.ne(kind, b.word(plan, Common.TENSOR))):
                core = b.word(plan, Common.CORE)
                b.require(b.ne(b.call("PyType_IsSubtype", "i32", kind, core), const("i32", 0)))
            array = b.field(operand, layout.tensor_array)
            b.require(b.eq(b.field(array, layout.kind), b.word(plan, Common.ARRAY)))
            _mix(b, state, b.lshr(b.field(operand, layout.tensor_type), 4))
        is_plain = b.eq(b.api("PyDict_Size", attributes), 0)
        with b.if_(b.not_(is_plain)):
            b.set_word(place, 0, 0)
            with b.while_(lambda: _has_next(b, attributes, place, key, value)):
                hashed = b.api("PyObject_Hash", b.word(value))
                with b.if_(b.eq(hashed, -1)):
                    b.api("PyErr_Clear")
                    b.answer(0)
                _mix(b, state, hashed)
        mixed = b.word(state)
        slot = b.and_(b.xor(mixed, b.lshr(mixed, 29)), SLOTS - 1)
        b.set_word(plan, Common.SLOT, slot)
        given = op, operands, count, attributes
        for way in range(2):
            record = b.word(b.word(plan, Common.TABLE_AT), b.xor(slot, way))
            with b.if_(b.ne(record, 0)):
                fits = b.call("fits", "i64", record, *given)
                with b.if_(b.eq(fits, 1)):
                    b.answer(record)
                b.require(b.eq(fits, 0))
        b.answer(1)


def _define_fits(module: Module, layout: Layout) -> None:
    """Whether a record is of an op on such operands: 1 or 0; 2: Python is to find it out."""
    with entry_function(module, "fits", "record", "op", "operands", "count", "attributes") as b:
        record, op, operands, count, attributes = b.args
        b.require(b.eq(b.word(record, Record.OP), op))
        b.require(b.eq(b.word(record, Record.COUNT), count))
        with b.loop(0, count) as loop:
            type_ = b.field(b.api("PyTuple_GetItem", operands, loop.index), layout.tensor_type)
            expected = b.word(b.add(record, b.mul(loop.index, 8)), Record.TYPES)
            b.require(b.eq(type_, expected))
        expected = b.word(record, Record.ATTRIBUTES)
        with b.if_(b.eq(b.api("PyDict_Size", attributes), 0)):
            b.answer(b.cast("zext", b.eq(expected, 0), "i64"))
        b.require(b.ne(expected, 0))
        same = b.call("PyObject_RichCompareBool", "i32", expected, attributes, const("i32", _EQUAL))
        with b.if_(b.compare("slt", same, 0)):
            b.api("PyErr_Clear")
            b.answer(2)
        b.answer(b.cast("zext", same, "i64"))


def _mix(b: EntryBuilder, state: Val, value: Val) -> None:
    mixed = b.mul(b.xor(b.word(state), value), 0x9E3779B97F4A7C15 - (1 << 64))
    b.set_word(state, 0, b.xor(mixed, b.lshr(mixed, 32)))


def _has_next(b: EntryBuilder, items: Val, place: Val, key: Val, value: Val) -> Val:
    found = b.call("PyDict_Next", "i32", items, place, key, value)
    return b.ne(found, const("i32", 0))


def _define_wanted(module: Module, layout: Layout) -> None:
    """The operands that require grad, as bits; -1 where a history has to be looked at first."""
    with entry_function(module, "wanted", "plan", "grad", "operands", "count") as b:
        plan, grad, operands, count = b.args
        true, none = b.word(plan, Common.TRUE), b.word(plan, Common.NONE)
        with b.if_(b.ne(grad, true)):
            b.answer(0)
        bits = b.cast("ptrtoint", b.alloca("i64"), "i64")
        b.set_word(bits, 0, 0)
        with b.loop(0, count) as loop:
            operand = b.api("PyTuple_GetItem", operands, loop.index)
            base = b.field(operand, layout.tensor_base)
            with b.if_(b.ne(base, none)):
                own, bases = (
                    b.field(operand, layout.tensor_epoch),
                    b.field(base, layout.tensor_epoch),
                )
                _answer_unless(b, b.eq(own, bases), -1)
            _answer_unless(b, b.eq(b.field(operand, layout.tensor_guard), none), -1)
            with b.if_(b.eq(b.field(operand, layout.tensor_requires_grad), true)):
                b.set_word(bits, 0, b.or_(b.word(bits), b.shl(const("i64", 1), loop.index)))
        b.answer(b.word(bits))


def _define_evaluate(module: Module, layout: Layout) -> None:
    """The op's array; 1: Python is to raise what the op has raised, 0: with another exception."""
    names = "plan", "record", "operands", "count", "attributes"
    with entry_function(module, "evaluate", *names) as b:
        plan, record, operands, count, attributes = b.args
        arrays = b.cast("ptrtoint", b.alloca("i64", MOST_OPERANDS), "i64")
        with b.loop(0, count) as loop:
            operand = b.api("PyTuple_GetItem", operands, loop.index)
            b.set_word(arrays, loop.index, b.field(operand, layout.tensor_array))
        code = b.word(record, Record.CODE)
        with b.if_(b.ne(code, 0)):
            made = b.api("PyObject_Vectorcall", code, arrays, count, 0)
            b.require(b.ne(made, 0))
            with b.if_(b.ne(made, b.word(plan, Common.NONE))):
                array = b.api("PyTuple_GetItem", made, 0)
                b.own(array)
                b.drop(made)
                b.answer(array)
            b.drop(made)
        is_plain = b.eq(b.word(record, Record.ATTRIBUTES), 0)
        keywords = b.select(is_plain, const("i64", 0), attributes)
        evaluate = b.word(record, Record.EVALUATE)
        array = b.api("PyObject_VectorcallDict", evaluate, arrays, count, keywords)
        with b.if_(b.eq(array, 0)):
            repeated = b.word(plan, Common.REPEATED)
            is_repeated = b.call("PyErr_ExceptionMatches", "i32", repeated)
            with b.if_(b.ne(is_repeated, const("i32", 0))):
                b.api("PyErr_Clear")
                b.answer(1)
            b.answer(0)
        is_view = b.cast("zext", b.ne(b.word(record, Record.STEP), 0), "i64")
        b.answer(b.call("right_array", "i64", plan, array, is_view))


def _define_view(module: Module, layout: Layout) -> None:
    """A view on an operand's memory, which takes over `array`, or a tensor of what was copied.

    1: Python is to find out which.
    """
    with entry_function(module, "view", "plan", "record", "step", "operand", "array") as b:
        plan, record, step, operand, array = b.args
        none = b.word(plan, Common.NONE)
        base, whole = b.field(array, layout.array_base), b.field(operand, layout.tensor_array)
        is_part = b.eq(base, b.field(whole, layout.array_base))
        shares = b.or_(b.eq(base, whole), b.and_(b.ne(base, 0), is_part))
        with b.if_(b.not_(shares)):
            with b.if_(b.eq(b.call("is_copy", "i64", plan, array), 1)):
                b.answer(b.call("tensor", "i64", b.add(record, 8 * Record.TENSOR), array))
            b.drop(array)
            b.answer(1)
        view = b.call("instance", "i64", b.word(record, Record.TENSOR + 3))
        b.require_or_drop(view, array)
        b.set_field(view, layout.tensor_array, array)
        for place in (layout.tensor_storage, layout.tensor_counter):
            shared = b.field(operand, place)
            b.own(shared)
            b.set_field(view, place, shared)
        chain = b.api("PySequence_Concat", b.field(operand, layout.tensor_chain), step)
        b.require_or_drop(chain, view)
        b.exchange(view, layout.tensor_chain, chain)
        base = b.field(operand, layout.tensor_base)
        is_first = b.eq(base, none)
        with b.if_else(is_first) as branch:
            with branch.then():
                b.own(step)
            with branch.otherwise():
                longer = b.api(
                    "PySequence_Concat", b.field(operand, layout.tensor_view_chain), step
                )
        chain, base = branch.merge(step, longer), b.select(is_first, operand, base)
        b.require_or_drop(chain, view)
        b.exchange(view, layout.tensor_view_chain, chain)
        for place, value in (
            (layout.tensor_base, base),
            (layout.tensor_epoch, b.field(base, layout.tensor_epoch)),
            (layout.tensor_guard, b.field(operand, layout.tensor_guard)),
        ):
            b.own(value)
            b.exchange(view, place, value)
        b.answer(view)


def _define_copy(module: Module, layout: Layout) -> None:
    """Whether an array with elements shows memory that only it has, which it was copied to."""
    with entry_function(module, "is_copy", "plan", "array") as b:
        plan, array = b.args
        base = b.field(array, layout.array_base)
        b.require(b.ne(base, 0))
        b.require(b.eq(b.field(base, layout.kind), b.word(plan, Common.ARRAY)))
        b.require(b.eq(b.field(base, layout.array_base), 0))
        b.require(b.eq(b.field(base, layout.references, "i32"), 1))
        shape = b.field(array, layout.array_shape)
        with b.loop(0, b.cast("sext", b.field(array, layout.array_axes, "i32"), "i64")) as loop:
            b.require(b.ne(b.word(shape, loop.index), 0))
        b.answer(1)


def _define_types(module: Module, layout: Layout) -> None:
    """A tuple of the types of operands."""
    with entry_function(module, "types_of", "operands", "count") as b:
        operands, count = b.args
        types = b.api("PyTuple_New", count)
        b.require(b.ne(types, 0))
        with b.loop(0, count) as loop:
            type_ = b.field(b.api("PyTuple_GetItem", operands, loop.index), layout.tensor_type)
            b.own(type_)
            b.api("PyTuple_SetItem", types, loop.index, type_)
        b.answer(types)


def _define_end(module: Module, layout: Layout) -> None:
    """Where an operand's gradient goes: `end_of`."""
    with entry_function(module, "end", "plan", "operand", "is_wanted") as b:
        plan, operand, is_wanted = b.args
        none = b.word(plan, Common.NONE)
        with b.if_(b.eq(is_wanted, 0)):
            b.own(none)
            b.answer(none)
        node = b.field(operand, layout.tensor_grad_fn)
        with b.if_(b.eq(node, none)):
            b.own(operand)
            b.answer(operand)
        made = b.api("PyTuple_New", 2)
        b.require(b.ne(made, 0))
        for i, value in enumerate((node, b.field(operand, layout.tensor_output_nr))):
            b.own(value)
            b.api("PyTuple_SetItem", made, i, value)
        b.answer(made)


def _define_saved(module: Module, layout: Layout) -> None:
    """What keeps an operand, or an alias of the result, for the backward."""
    with entry_function(module, "saved", "plan", "templates", "operand", "result") as b:
        plan, templates, operand, result = b.args
        is_result = b.eq(operand, 0)
        tensor = b.select(is_result, result, operand)
        saved_result, saved_operand = b.word(plan, Common.RESULT), b.word(plan, Common.OPERAND)
        made = b.call("instance", "i64", b.select(is_result, saved_result, saved_operand))
        b.require(b.ne(made, 0))
        version = b.field(b.field(tensor, layout.tensor_counter), layout.counter_now)
        b.own(version)
        b.set_field(made, layout.saved_version, version)
        with b.if_else(is_result) as branch:
            with branch.then():
                alias = b.call("instance", "i64", b.word(templates, 3))
                b.require_or_drop(alias, made)
                shared = ("array", "storage", "counter")
                for name in shared:
                    value = b.field(tensor, getattr(layout, f"tensor_{name}"))
                    b.own(value)
                    b.set_field(alias, getattr(layout, f"tensor_{name}"), value)
                for place in (layout.tensor_spot, layout.tensor_chain, layout.tensor_type):
                    value = b.field(tensor, place)
                    b.own(value)
                    b.exchange(alias, place, value)
            with branch.otherwise():
                b.own(operand)
        b.set_field(made, layout.saved_tensor, branch.merge(alias, operand))
        b.answer(made)


def _define_node(module: Module, layout: Layout) -> None:
    """The node of a result: its ends, its number, and what it saves."""
    names = "plan", "record", "history", "operands", "count", "attributes", "tensor"
    with entry_function(module, "node", *names) as b:
        plan, record, history, operands, count, attributes, tensor = b.args
        node = b.call("instance", "i64", b.word(history, History.NODE))
        b.require(b.ne(node, 0))
        ends = b.api("PyTuple_New", count)
        b.require_or_drop(ends, node)
        b.set_field(node, layout.node_ends, ends)
        true, grad = b.word(plan, Common.TRUE), layout.tensor_requires_grad
        with b.loop(0, count) as loop:
            operand = b.api("PyTuple_GetItem", operands, loop.index)
            is_wanted = b.cast("zext", b.eq(b.field(operand, grad), true), "i64")
            end = b.call("end", "i64", plan, operand, is_wanted)
            b.require_or_drop(end, node)
            b.api("PyTuple_SetItem", ends, loop.index, end)
        number = b.api("PyIter_Next", b.word(plan, Common.SEQUENCE))
        b.require_or_drop(number, node)
        b.set_field(node, layout.node_sequence, number)
        spot = b.field(tensor, layout.tensor_spot)
        for offset, value in ((layout.node_spot, spot), (layout.node_attributes, attributes)):
            b.own(value)
            b.set_field(node, offset, value)
        kept = b.api("PyDict_New")
        b.require_or_drop(kept, node)
        b.set_field(node, layout.node_saved, kept)
        table = b.add(history, 8 * History.SAVED)
        with b.loop(0, b.word(history, History.COUNT)) as loop:
            number = b.word(table, loop.index)
            is_result = b.compare("slt", number, 0)
            place = b.select(is_result, const("i64", 0), number)
            operand = b.api("PyTuple_GetItem", operands, place)
            operand = b.select(is_result, const("i64", 0), operand)
            templates = b.add(record, 8 * Record.TENSOR)
            saved = b.call("saved", "i64", plan, templates, operand, tensor)
            b.require_or_drop(saved, node)
            key = b.word(b.word(plan, Common.NUMBERS_AT), b.add(number, 1))
            b.api("PyDict_SetItem", kept, key, saved)
            b.drop(saved)
        b.answer(node)


def _leave_unless(b: EntryBuilder, plan: Val, condition: Val) -> None:
    with b.if_(b.not_(condition)):
        none = b.word(plan, Common.NONE)
        b.own(none)
        b.answer(none)


def _answer_unless(b: EntryBuilder, condition: Val, value: int) -> None:
    with b.if_(b.not_(condition)):
        b.answer(value)
