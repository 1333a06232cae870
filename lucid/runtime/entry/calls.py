"""A call of a public function as machine code, where it comes again: the ops that it has applied.

`lucid_call(function, arguments, keywords[, key])` looks up a *record* by the function, the types
and strides of the tensors among the arguments, and the values of the others. A record is the list
of the ops that such a call applies, and of what it writes: what Python does between them follows
from its key. What has no record, or isn't plain, is Python's: nothing has happened then but what
can be done again.

A key that has come `MOST_TIMES` times, while no other one of its slot has, is to be recorded, which
takes as long as thirty calls. Who does that asks once more, and has the key written into an array
of its own.
"""

from __future__ import annotations

from enum import IntEnum

from lucid.codegen.llvm.builder import Module, Val, const
from lucid.runtime.entry.common import Common
from lucid.runtime.entry.programs import define_program
from lucid.runtime.entry.words import CONTIGUOUS, WRITEABLE, EntryBuilder, Layout, entry_function

CALL = "lucid_call"
CALL_SLOTS = 4096  # of the table of records, two of which may have a key; then of keys without one
MOST_TIMES = 7  # that these are counted, in the last bits of hashes
MOST_WORDS, MOST_TENSORS, MOST_VALUES = 128, 32, 128
MOST_CALL_OPERANDS = 32
MOST_AXES = 8  # of a tensor that isn't contiguous
_SHIFT = 29


class Key(IntEnum):
    """Words of a key, and the tensors that it has met."""

    WORDS = 0  # their number, and that of the tensors
    TENSORS = 1
    WORDS_AT = 2
    TENSORS_AT = WORDS_AT + MOST_WORDS
    HASH = TENSORS_AT + MOST_TENSORS
    SLOT = HASH + 1
    SIZE = SLOT + 1


class Call(IntEnum):
    """Words of a record."""

    HASH = 0
    WORDS = 1  # of the key
    WORDS_AT = 2
    OWNER = 3  # keeps it, and what it names, alive
    STEPS = 4  # -1: such calls are Python's
    STEPS_AT = 5
    CONSTANTS = 6  # what the steps are given besides the call's tensors
    CONSTANTS_AT = 7
    RESULTS = 8  # numbers of values; the first one alone, unless it is a tuple
    RESULTS_AT = 9
    KIND = 10  # as below, or a callable of a tuple
    WRITES = 11  # the last steps


IS_NONE, IS_TENSOR, IS_TUPLE = range(3)


class CallStep(IntEnum):
    """Words of an op, a program or a write.

    Operands are numbers of the call's tensors, of constants, and of what steps before it gave.
    """

    OP = 0  # 0: writes the second operand into the first
    ATTRIBUTES = 1  # 0: it is a callable of a tuple; of a write the bytes of a value of that shape
    COUNT = 2  # of operands; of a write 0: the value is to be cast or refused
    # Below 0 of a callable that writes into the first operand: ATTRIBUTES does so with arrays.
    OPERANDS_AT = 3
    PROGRAM_AT = 4  # of a callable that is a program: how machine code runs it; or 0


def define_call(module: Module, layout: Layout) -> None:
    """Add the function; `apply` and `grad` are there."""
    for define in (
        _define_key_of_tensor,
        _define_key,
        _define_record,
        _define_drop,
        _define_plain_memory,
        _define_plain_write,
        _define_plain_update,
        _define_tuple,
        define_program,
        _define_step,
        _define_results,
        _define_steps,
        _define_key_of_call,
        _define_call,
    ):
        define(module, layout)


def _define_key_of_tensor(module: Module, layout: Layout) -> None:
    """Add a tensor to the key: its type, its strides, whether it wants a gradient. 0: not."""
    with entry_function(module, "key_of_tensor", "plan", "grad", "key", "tensor") as b:
        plan, grad, key, tensor = b.args
        array = b.field(tensor, layout.tensor_array)
        b.require(b.eq(b.field(array, layout.kind), b.word(plan, Common.ARRAY)))
        none, true = b.word(plan, Common.NONE), b.word(plan, Common.TRUE)
        base = b.field(tensor, layout.tensor_base)
        with b.if_(b.ne(base, none)):
            own, bases = b.field(tensor, layout.tensor_epoch), b.field(base, layout.tensor_epoch)
            b.require(b.eq(own, bases))
        b.require(b.eq(b.field(tensor, layout.tensor_guard), none))
        count = b.word(key, Key.TENSORS)
        b.require(b.compare("slt", count, MOST_TENSORS))
        tensors = b.add(key, 8 * Key.TENSORS_AT)
        b.set_word(tensors, count, tensor)
        b.set_word(key, Key.TENSORS, b.add(count, 1))
        with b.loop(0, count) as loop:
            is_again = b.eq(b.word(tensors, loop.index), tensor)
            with b.if_(is_again):
                _push(b, key, loop.index)  # no type has such an address
                b.answer(1)
        flags = b.field(array, layout.array_flags, "i32")
        is_contiguous = b.cast("zext", b.and_(flags, CONTIGUOUS), "i64")
        requires = b.eq(b.field(tensor, layout.tensor_requires_grad), true)
        is_wanted = b.cast("zext", b.and_(b.eq(grad, true), requires), "i64")
        _push(b, key, b.field(tensor, layout.tensor_type))
        _push(b, key, b.or_(is_contiguous, b.shl(is_wanted, 1)))
        with b.if_(b.eq(is_contiguous, 0)):
            axes = b.cast("sext", b.field(array, layout.array_axes, "i32"), "i64")
            b.require(b.compare("sle", axes, MOST_AXES))
            strides = b.field(array, layout.array_strides)
            with b.loop(0, axes) as loop:
                _push(b, key, b.word(strides, loop.index))
        b.answer(1)


def _push(b: EntryBuilder, key: Val, word: Val) -> None:
    """Add a word to a key; there is room."""
    count = b.word(key, Key.WORDS)
    b.set_word(b.add(key, 8 * Key.WORDS_AT), count, word)
    b.set_word(key, Key.WORDS, b.add(count, 1))


def _require_room(b: EntryBuilder, key: Val) -> None:
    b.require(b.compare("sle", b.word(key, Key.WORDS), MOST_WORDS - MOST_AXES - 4))


def _define_key(module: Module, layout: Layout) -> None:
    """Add an argument to the key; 0: such a one has none."""
    with entry_function(module, "key", "plan", "grad", "key", "value") as b:
        plan, grad, key, value = b.args
        _require_room(b, key)
        kind = b.field(value, layout.kind)
        _push(b, key, kind)

        def is_of(word: Common) -> Val:
            return b.eq(kind, b.word(plan, word))

        def add(part: Val) -> None:
            b.require(b.ne(b.call("key", "i64", plan, grad, key, part), 0))

        with b.if_(is_of(Common.TENSOR)):
            b.answer(b.call("key_of_tensor", "i64", plan, grad, key, value))
        with b.if_(is_of(Common.INT)):
            number = b.api("PyLong_AsLongLong", value)
            is_error = b.eq(number, -1)  # also what one that is too large gives
            with b.if_(is_error), b.if_(b.ne(b.api("PyErr_Occurred"), 0)):
                b.api("PyErr_Clear")
                b.answer(0)
            _push(b, key, number)
            b.answer(1)
        with b.if_(is_of(Common.FLOAT)):
            _push(b, key, b.bits(b.call("PyFloat_AsDouble", "double", value)))
            b.answer(1)
        for word, size, item in (
            (Common.TUPLE, "PyTuple_Size", "PyTuple_GetItem"),
            (Common.SIZE, "PyTuple_Size", "PyTuple_GetItem"),
            (Common.LIST, "PyList_Size", "PyList_GetItem"),
        ):
            with b.if_(is_of(word)):
                count = b.api(size, value)
                _push(b, key, count)
                with b.loop(0, count) as loop:
                    add(b.api(item, value, loop.index))
                b.answer(1)
        with b.if_(is_of(Common.SLICE)):
            for offset in (layout.slice_start, layout.slice_stop, layout.slice_step):
                add(b.field(value, offset))
            b.answer(1)
        kinds = b.word(plan, Common.IDENTICAL_AT)
        with b.loop(0, b.word(plan, Common.IDENTICAL)) as loop:
            is_identical = b.eq(kind, b.word(kinds, loop.index))
            with b.if_(is_identical):
                _push(b, key, value)
                b.answer(1)
        b.require(
            b.ne(
                b.call("PyType_IsSubtype", "i32", kind, b.word(plan, Common.CORE)), const("i32", 0)
            )
        )
        b.answer(b.call("key_of_tensor", "i64", plan, grad, key, value))


def _define_record(module: Module, layout: Layout) -> None:
    """The record of the key; 1: it has come often enough to be recorded, 0: there is none."""
    with entry_function(module, "record", "plan", "key") as b:
        plan, key = b.args
        state = b.cast("ptrtoint", b.alloca("i64"), "i64")
        b.set_word(state, 0, 0)
        words, count = b.add(key, 8 * Key.WORDS_AT), b.word(key, Key.WORDS)
        with b.loop(0, count) as loop:
            mixed = b.mul(b.xor(b.word(state), b.word(words, loop.index)), _MIXER)
            b.set_word(state, 0, b.xor(mixed, b.lshr(mixed, 32)))
        mixed = b.word(state)
        slot = b.and_(b.xor(mixed, b.lshr(mixed, _SHIFT)), CALL_SLOTS - 1)
        table = b.word(plan, Common.CALLS_AT)
        for way in range(2):
            record = b.word(table, b.xor(slot, way))
            with b.if_(b.ne(record, 0)):
                is_same = b.call("is_key", "i64", record, mixed, count, words)
                with b.if_(b.ne(is_same, 0)):
                    b.answer(record)
        seen = b.add(table, 8 * CALL_SLOTS)
        before, counted = b.word(seen, slot), b.and_(mixed, -(MOST_TIMES + 1))
        times = b.and_(before, MOST_TIMES)
        is_other = b.ne(b.sub(before, times), counted)
        with b.if_(is_other):
            b.set_word(seen, slot, counted)
            b.answer(0)
        with b.if_(b.compare("slt", times, b.word(plan, Common.TIMES))):
            b.set_word(seen, slot, b.add(before, 1))
            b.answer(0)
        b.set_word(key, Key.HASH, mixed)
        b.set_word(key, Key.SLOT, slot)
        b.answer(1)
    with entry_function(module, "is_key", "record", "hash", "count", "words") as b:
        record, mixed, count, words = b.args
        b.require(b.eq(b.word(record, Call.HASH), mixed))
        b.require(b.eq(b.word(record, Call.WORDS), count))
        known = b.word(record, Call.WORDS_AT)
        with b.loop(0, count) as loop:
            b.require(b.eq(b.word(known, loop.index), b.word(words, loop.index)))
        b.answer(1)


_MIXER = 0x9E3779B97F4A7C15 - (1 << 64)


def _define_drop(module: Module, layout: Layout) -> None:
    """Drop values of a call from one number to another."""
    with entry_function(module, "drop_values", "values", "first", "end") as b:
        values, first, end = b.args
        with b.loop(first, end) as loop:
            b.drop(b.word(values, loop.index))
        b.answer(1)


def _define_plain_memory(module: Module, layout: Layout) -> None:
    """The array of a tensor without history, and that of one to write besides; 0: it isn't plain.

    A view that shows an element more than once is one that NumPy doesn't write, either.
    """
    array_kind = Common.ARRAY

    with entry_function(module, "plain_array", "plan", "grad", "tensor") as b:
        plan, grad, tensor = b.args
        none, false = b.word(plan, Common.NONE), b.word(plan, Common.FALSE)
        with b.if_(b.ne(grad, false)):
            b.require(b.eq(b.field(tensor, layout.tensor_requires_grad), false))
            base = b.field(tensor, layout.tensor_base)
            with b.if_(b.ne(base, none)):
                b.require(b.eq(b.field(base, layout.tensor_base), none))
                own, its = (b.field(x, layout.tensor_epoch) for x in (tensor, base))
                b.require(b.eq(own, its))
                b.require(b.eq(b.field(base, layout.tensor_requires_grad), false))
        array = b.field(tensor, layout.tensor_array)
        b.require(b.eq(b.field(array, layout.kind), b.word(plan, array_kind)))
        b.answer(array)
    with entry_function(module, "plain_memory", "plan", "grad", "target") as b:
        plan, grad, target = b.args
        none, items = b.word(plan, Common.NONE), b.word(plan, Common.THREAD_ITEMS)
        lent = b.api("PyDict_GetItemWithError", items, b.word(plan, Common.LENT))
        b.require(b.eq(lent, none))
        b.require(b.eq(b.field(target, layout.tensor_guard), none))
        memory = b.call("plain_array", "i64", plan, grad, target)
        b.require(b.ne(memory, 0))
        whole = b.field(b.field(target, layout.tensor_storage), layout.storage_array)
        b.require(b.eq(b.field(whole, layout.kind), b.word(plan, array_kind)))
        b.require(b.and_(_has(b, layout, whole, CONTIGUOUS), _has(b, layout, memory, WRITEABLE)))
        b.answer(memory)
    with entry_function(module, "count_write", "plan", "target") as b:
        plan, target = b.args
        counter = b.field(target, layout.tensor_counter)
        before = b.field(counter, layout.counter_now)
        after = b.api("PyNumber_Add", before, b.word(b.word(plan, Common.NUMBERS_AT), 2))
        b.require_found(after)
        b.set_field(counter, layout.counter_now, after)
        b.drop(before)
        b.answer(1)


def _has(b: EntryBuilder, layout: Layout, array: Val, flags: int) -> Val:
    found = b.and_(b.field(array, layout.array_flags, "i32"), flags)
    return b.eq(found, const("i32", flags))


def _define_plain_write(module: Module, layout: Layout) -> None:
    """Write a value, which fits, into a tensor where no history is kept; 0: Python is to do it."""
    with entry_function(module, "plain_write", "plan", "target", "value", "bytes") as b:
        plan, target, value, size = b.args
        grad = b.call("grad", "i64", plan)
        b.require(b.ne(grad, 0))
        memory = b.call("plain_memory", "i64", plan, grad, target)
        b.require(b.ne(memory, 0))
        given = b.call("plain_array", "i64", plan, grad, value)
        b.require(b.ne(given, 0))
        are_rows = b.and_(_has(b, layout, memory, CONTIGUOUS), _has(b, layout, given, CONTIGUOUS))
        is_copied = b.and_(b.ne(size, 0), are_rows)
        with b.if_(is_copied):
            data = [b.field(array, layout.array_data) for array in (memory, given)]
            places = [b.cast("inttoptr", place, "ptr") for place in data]
            b.call("llvm.memmove.p0.p0.i64", "void", *places, size, const("i1", 0))
        with b.if_(b.not_(is_copied)):
            failed = b.call("PyObject_SetItem", "i32", memory, b.word(plan, Common.ALL), given)
            with b.if_(b.ne(failed, const("i32", 0))):
                b.api("PyErr_Clear")
                b.answer(0)
        b.answer(b.call("count_write", "i64", plan, target))


def _define_plain_update(module: Module, layout: Layout) -> None:
    """Let an op write into its first operand where no history is kept; 0: Python is to do it."""
    with entry_function(module, "plain_update", "plan", "function", "values", "numbers", "n") as b:
        plan, function, values, numbers, count = b.args
        given = b.cast("ptrtoint", b.alloca("i64", MOST_CALL_OPERANDS), "i64")
        grad = b.call("grad", "i64", plan)
        b.require(b.ne(grad, 0))
        target = b.word(values, b.word(numbers))
        b.require(b.ne(b.call("plain_memory", "i64", plan, grad, target), 0))
        with b.loop(0, count) as loop:
            operand = b.word(values, b.word(numbers, loop.index))
            array = b.call("plain_array", "i64", plan, grad, operand)
            b.require(b.ne(array, 0))
            b.set_word(given, loop.index, array)
        done = b.api("PyObject_Vectorcall", function, given, count, 0)
        with b.if_(b.eq(done, 0)):
            b.api("PyErr_Clear")
            b.answer(0)
        b.drop(done)
        b.require(b.eq(done, b.word(plan, Common.TRUE)))
        b.answer(b.call("count_write", "i64", plan, target))


def _define_tuple(module: Module, layout: Layout) -> None:
    """A new tuple of the values that some numbers name; 0: an exception is set."""
    with entry_function(module, "tuple_of", "values", "numbers", "count") as b:
        values, numbers, count = b.args
        made = b.api("PyTuple_New", count)
        b.require(b.ne(made, 0))
        with b.loop(0, count) as loop:
            value = b.word(values, b.word(numbers, loop.index))
            b.own(value)
            b.api("PyTuple_SetItem", made, loop.index, value)
        b.answer(made)


def _define_step(module: Module, layout: Layout) -> None:
    """What an op of a call gives, or a write, which is 1; 0: an exception is set."""
    with entry_function(module, "call_step", "plan", "step", "values") as b:
        plan, step, values = b.args
        op, count = b.word(step), b.word(step, CallStep.COUNT)
        numbers = b.word(step, CallStep.OPERANDS_AT)
        given = b.cast("ptrtoint", b.alloca("i64", 4), "i64")
        with b.if_(b.eq(op, 0)):
            target, value = (b.word(values, b.word(numbers, i)) for i in range(2))
            with b.if_(b.eq(count, 2)):
                size = b.word(step, CallStep.ATTRIBUTES)
                is_done = b.call("plain_write", "i64", plan, target, value, size)
                with b.if_(b.ne(is_done, 0)):
                    b.answer(1)
            b.set_word(given, 0, target)
            b.set_word(given, 1, value)
            written = b.api("PyObject_Vectorcall", b.word(plan, Common.WRITE), given, 2, 0)
            b.require(b.ne(written, 0))
            b.drop(written)
            b.answer(1)
        attributes = b.word(step, CallStep.ATTRIBUTES)
        with b.if_(b.compare("slt", count, 0)):
            given_ones = b.sub(0, count)
            is_done = b.call("plain_update", "i64", plan, attributes, values, numbers, given_ones)
            with b.if_(b.ne(is_done, 0)):
                b.answer(1)
            operands = b.call("tuple_of", "i64", values, numbers, given_ones)
            b.require(b.ne(operands, 0))
            b.set_word(given, 0, operands)
            written = b.api("PyObject_Vectorcall", op, given, 1, 0)
            b.drop(operands)
            b.require(b.ne(written, 0))
            b.drop(written)
            b.answer(1)
        program = b.word(step, CallStep.PROGRAM_AT)
        with b.if_(b.ne(program, 0)):
            made = b.call("run_program", "i64", plan, program, values)
            with b.if_(b.ne(made, 1)):
                b.answer(made)
        operands = b.call("tuple_of", "i64", values, numbers, count)
        b.require(b.ne(operands, 0))
        with b.if_(b.eq(attributes, 0)):
            b.set_word(given, 0, operands)
            returned = b.api("PyObject_Vectorcall", op, given, 1, 0)
            b.drop(operands)
            b.answer(returned)
        made = b.call("apply", "i64", plan, op, operands, attributes)
        is_missing = b.eq(made, b.word(plan, Common.MISSED))
        is_left = b.or_(is_missing, b.eq(made, b.word(plan, Common.NONE)))
        with b.if_(is_left):
            for place, word in enumerate((op, operands, attributes, made)):
                b.set_word(given, place, word)
            applied = b.api("PyObject_Vectorcall", b.word(plan, Common.APPLY_OP), given, 4, 0)
            b.drop(made)
            b.drop(operands)
            b.answer(applied)
        b.drop(operands)
        b.answer(made)


def _define_results(module: Module, layout: Layout) -> None:
    """What a call returns."""
    with entry_function(module, "call_results", "plan", "record", "values") as b:
        plan, record, values = b.args
        kind, numbers = b.word(record, Call.KIND), b.word(record, Call.RESULTS_AT)
        with b.if_(b.eq(kind, IS_NONE)):
            none = b.word(plan, Common.NONE)
            b.own(none)
            b.answer(none)
        with b.if_(b.eq(kind, IS_TENSOR)):
            result = b.word(values, b.word(numbers))
            b.own(result)
            b.answer(result)
        count = b.word(record, Call.RESULTS)
        results = b.call("tuple_of", "i64", values, numbers, count)
        b.require(b.ne(results, 0))
        with b.if_(b.eq(kind, IS_TUPLE)):
            b.answer(results)
        given = b.cast("ptrtoint", b.alloca("i64"), "i64")
        b.set_word(given, 0, results)
        made = b.api("PyObject_Vectorcall", kind, given, 1, 0)
        b.drop(results)
        b.answer(made)


def _define_key_of_call(module: Module, layout: Layout) -> None:
    """Write the key of a call: the function, the default dtype, and the arguments; 0: it has none.

    Nothing of Python's runs meanwhile.
    """
    names = "plan", "grad", "key", "function", "arguments", "keywords"
    with entry_function(module, "key_of_call", *names) as b:
        plan, grad, key, function, arguments, keywords = b.args
        place = b.cast("ptrtoint", b.alloca("i64", 3), "i64")
        name, value = b.add(place, 8), b.add(place, 16)
        b.set_word(key, Key.WORDS, 0)
        b.set_word(key, Key.TENSORS, 0)
        _push(b, key, function)
        defaults, floating = b.word(plan, Common.DEFAULTS), b.word(plan, Common.FLOATING)
        dtype = b.api("PyObject_GetItem", defaults, floating)
        b.require_found(dtype)
        _push(b, key, dtype)
        b.drop(dtype)  # its place has it

        def add(part: Val) -> None:
            b.require(b.ne(b.call("key", "i64", plan, grad, key, part), 0))

        count = b.api("PyTuple_Size", arguments)
        _push(b, key, count)
        with b.loop(0, count) as loop:
            add(b.api("PyTuple_GetItem", arguments, loop.index))
        with b.if_(b.ne(b.api("PyDict_Size", keywords), 0)):
            b.set_word(place, 0, 0)

            def has_next() -> Val:
                found = b.call("PyDict_Next", "i32", keywords, place, name, value)
                return b.ne(found, const("i32", 0))

            with b.while_(has_next):
                add(b.word(name))
                add(b.word(value))
        b.answer(1)


def _define_steps(module: Module, layout: Layout) -> None:
    """Run the steps of a record on values, and return what the call does; 0: with an exception."""
    with entry_function(module, "call_steps", "plan", "record", "values", "first") as b:
        plan, record, values, first = b.args
        steps, table = b.word(record, Call.STEPS), b.word(record, Call.STEPS_AT)
        made_ones = b.sub(steps, b.word(record, Call.WRITES))
        with b.loop(0, steps) as loop:
            step = b.record(table, loop.index, len(CallStep))
            made = b.call("call_step", "i64", plan, step, values)
            with b.if_(b.eq(made, 0)):
                is_write = b.compare("sgt", loop.index, made_ones)
                count = b.select(is_write, made_ones, loop.index)
                b.call("drop_values", "i64", values, first, b.add(first, count))
                b.answer(0)
            with b.if_(b.ne(made, 1)):
                b.set_word(values, b.add(first, loop.index), made)
        results = b.call("call_results", "i64", plan, record, values)
        end = b.add(first, made_ones)
        b.call("drop_values", "i64", values, first, end)
        b.answer(results)


def _define_call(module: Module, layout: Layout) -> None:
    with entry_function(module, CALL, "self", "args", "count", internal=False) as b:
        holder, args, given = b.args
        plan = b.field(holder, layout.array_data)
        left, missed = b.word(plan, Common.LEFT), b.word(plan, Common.MISSED)
        values = b.cast("ptrtoint", b.alloca("i64", MOST_VALUES), "i64")

        def leave_unless(condition: Val) -> None:
            with b.if_(b.not_(condition)):
                b.own(left)
                b.answer(left)

        grad = b.call("grad", "i64", plan)
        leave_unless(b.ne(grad, 0))
        with b.if_else(b.eq(given, 4)) as branch:
            with branch.then():
                own = b.field(b.word(args, 3), layout.array_data)
            with branch.otherwise():
                shared = b.word(plan, Common.KEY_AT)
        key = branch.merge(own, shared)
        call = [b.word(args, i) for i in range(3)]
        leave_unless(b.ne(b.call("key_of_call", "i64", plan, grad, key, *call), 0))
        record = b.call("record", "i64", plan, key)
        with b.if_(b.eq(record, 1)):
            b.own(missed)
            b.answer(missed)
        leave_unless(b.ne(record, 0))
        leave_unless(b.compare("sge", b.word(record, Call.STEPS), 0))
        tensors, constants = b.word(key, Key.TENSORS), b.word(record, Call.CONSTANTS)
        with b.loop(0, tensors) as loop:
            b.set_word(values, loop.index, b.word(b.add(key, 8 * Key.TENSORS_AT), loop.index))
        with b.loop(0, constants) as loop:
            constant = b.word(b.word(record, Call.CONSTANTS_AT), loop.index)
            b.set_word(values, b.add(tensors, loop.index), constant)
        owner = b.word(record, Call.OWNER)
        b.own(owner)
        results = b.call("call_steps", "i64", plan, record, values, b.add(tensors, constants))
        b.drop(owner)
        with b.if_(b.ne(results, 0)):
            b.answer(results)
        is_repeated = b.call("PyErr_ExceptionMatches", "i32", b.word(plan, Common.REPEATED))
        b.require(b.ne(is_repeated, const("i32", 0)))
        b.api("PyErr_Clear")  # Python does it all again, and says what is wrong
        b.own(left)
        b.answer(left)
