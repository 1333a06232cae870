"""Sizes that a call says: words, tables and objects are filled in.

What they need follows from them by steps on registers (`size_steps.py`): most of these are
products, sums and comparisons, and machine code does each in some nanoseconds.
"""

from __future__ import annotations

from enum import IntEnum

from lucid.codegen.llvm.builder import Module, Val
from lucid.codegen.vmath.integer import floor_divide
from lucid.runtime.entry.guards import ARGUMENT, array_of
from lucid.runtime.entry.words import (
    ADD,
    ARENA_BYTES,
    EQUAL,
    LESS,
    MOST_ARGUMENTS,
    MOST_AXES,
    MULTIPLY,
    QUOTIENT,
    SIZED_WORDS,
    EntryBuilder,
    Layout,
    Word,
    entry_function,
    records,
)


class Filling(IntEnum):
    """Words of what is filled in for sizes, behind those that say what came of it.

    Those are: their tuple, words at, bytes of memory, results at, tensors at, arguments at.
    """

    REGISTERS_AT = SIZED_WORDS  # the sizes, then what follows from them
    STEPS = SIZED_WORDS + 1  # op, registers of the operands and of the result
    STEPS_AT = SIZED_WORDS + 2
    REQUIRED = SIZED_WORDS + 3  # register, and what it must hold
    REQUIRED_AT = SIZED_WORDS + 4
    SHAPES = SIZED_WORDS + 5  # number among the objects, length, registers at, word at
    SHAPES_AT = SIZED_WORDS + 6
    TYPES = SIZED_WORDS + 7  # number among the objects, that of the shape, dtype, two words at
    TYPES_AT = SIZED_WORDS + 8
    STORED = SIZED_WORDS + 9  # word at, register
    STORED_AT = SIZED_WORDS + 10
    OBJECTS = SIZED_WORDS + 11  # a list of the shapes and types
    TYPE_OF = SIZED_WORDS + 12  # a callable: the type of a dtype and a shape


def define_sizes(module: Module, layout: Layout) -> None:
    """Add `sizes`: whether there are words for the sizes that a call says, which it reads then.

    What the call is given and makes has these sizes, too.
    """
    _define_size(module, layout)
    _define_steps(module)
    _define_fill(module)
    with entry_function(module, "use", "plan", "record") as b:
        plan, record = b.args
        room = b.word(b.word(plan, Word.BUFFERS_AT), ARENA_BYTES)
        b.require(b.ge(room, b.word(record, 2)))
        b.set_word(b.word(plan, Word.WORDS_AT), 0, b.word(record, 1))
        for number, word in enumerate((Word.RESULTS_AT, Word.TENSORS_AT, Word.ARGUMENTS_AT), 3):
            b.set_word(plan, word, b.word(record, number))
        b.set_word(plan, Word.SIZED, b.word(record))
        b.answer(1)
    with entry_function(module, "sizes", "plan", "args") as b:
        plan, args = b.args
        count, places = b.word(plan, Word.SIZES), b.word(plan, Word.SIZES_AT)
        with b.if_(b.eq(count, 0)):
            b.answer(1)
        now = b.record(places, count, 1)
        with b.loop(0, count) as loop:
            size = b.call("size", "i64", plan, args, b.word(places, loop.index))
            b.set_word(now, loop.index, size)
        with records(b, plan, Word.FILLINGS, 1) as place:
            filling = b.word(place)
            with b.if_(b.ne(b.call("fill", "i64", filling, now, count), 0)):
                b.answer(b.call("use", "i64", plan, filling))
        b.answer(0)


def _define_size(module: Module, layout: Layout) -> None:
    with entry_function(module, "size", "plan", "args", "place") as b:
        plan, args, place = b.args
        with b.if_(b.ge(place, MOST_ARGUMENTS * MOST_AXES)):
            b.answer(b.word(place))
        argument, axis = b.lshr(place, MOST_AXES.bit_length() - 1), b.and_(place, MOST_AXES - 1)
        given = b.word(args, argument)
        record = b.record(b.word(plan, Word.ARGUMENTS_AT), argument, ARGUMENT)
        array, _ = array_of(b, layout, plan, given, record)
        b.answer(b.word(b.field(array, layout.array_shape), axis))


def _define_steps(module: Module) -> None:
    """Do the steps; 0 where a number has no 64 bits."""
    with entry_function(module, "steps", "filling") as b:
        (filling,) = b.args
        registers = b.word(filling, Filling.REGISTERS_AT)
        with records(b, filling, Filling.STEPS, 4) as step:
            x, y = (b.word(registers, b.word(step, number)) for number in (1, 2))
            op, place = b.word(step), b.word(step, 3)
            for arithmetic in (MULTIPLY, ADD):
                with b.if_(b.eq(op, arithmetic)):
                    wide = [b.cast("sext", operand, "i128") for operand in (x, y)]
                    exact = b.mul(*wide) if arithmetic == MULTIPLY else b.add(*wide)
                    result = b.cast("trunc", exact, "i64")
                    b.require(b.eq(b.cast("sext", result, "i128"), exact))
                    b.set_word(registers, place, result)
            for relation, holds in ((LESS, b.lt(x, y)), (EQUAL, b.eq(x, y))):
                with b.if_(b.eq(op, relation)):
                    b.set_word(registers, place, b.cast("zext", holds, "i64"))
            with b.if_(b.eq(op, QUOTIENT)):
                b.set_word(registers, place, floor_divide(b, x, y))
        b.answer(1)


def _define_fill(module: Module) -> None:
    """Fill in what follows from new sizes; 0: it isn't for these."""
    with entry_function(module, "fill", "filling", "now", "count") as b:
        filling, now, count = b.args
        typed = b.cast("ptrtoint", b.alloca("i64", 2), "i64")
        registers, objects = b.word(filling, Filling.REGISTERS_AT), b.word(filling, Filling.OBJECTS)
        with b.loop(0, count) as loop:
            b.set_word(registers, loop.index, b.word(now, loop.index))
        b.require(b.ne(b.call("steps", "i64", filling), 0))
        with records(b, filling, Filling.REQUIRED, 2) as record:
            b.require(b.eq(b.word(registers, b.word(record)), b.word(record, 1)))
        with records(b, filling, Filling.SHAPES, 4) as record:
            shape = b.api("PyTuple_New", b.word(record, 1))
            b.require_found(shape)
            with b.loop(0, b.word(record, 1)) as loop:
                size = b.word(registers, b.word(b.word(record, 2), loop.index))
                b.api("PyTuple_SetItem", shape, loop.index, b.api("PyLong_FromLongLong", size))
            _keep(b, objects, b.word(record), shape)
            b.set_word(b.word(record, 3), 0, shape)
        with records(b, filling, Filling.TYPES, 5) as record:
            b.set_word(typed, 0, b.word(record, 2))
            b.set_word(typed, 1, b.api("PyList_GetItem", objects, b.word(record, 1)))
            type_of = b.word(filling, Filling.TYPE_OF)
            made = b.api("PyObject_Vectorcall", type_of, typed, 2, 0)
            b.require_found(made)
            for place in (b.word(record, 3), b.word(record, 4)):
                before = b.word(place)
                b.own(made)
                b.set_word(place, 0, made)
                b.drop(before)
            _keep(b, objects, b.word(record), made)
        with records(b, filling, Filling.STORED, 2) as record:
            b.set_word(b.word(record), 0, b.word(registers, b.word(record, 1)))
        b.answer(1)


def _keep(b: EntryBuilder, objects: Val, number: Val, value: Val) -> None:
    """Put a new object into the list of those that the latest sizes have."""
    b.api("PyList_SetItem", objects, number, value)
