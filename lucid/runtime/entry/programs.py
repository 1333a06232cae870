"""A call of one of the library's Functions as machine code: a native program, its tensor, its node.

What Python does of it (`autograd/native.py`: `call_natively`) where the call has no record.
"""

from __future__ import annotations

from enum import IntEnum

from lucid.codegen.llvm.builder import Module, Val, const
from lucid.runtime.entry.common import Common
from lucid.runtime.entry.words import EntryBuilder, Layout, entry_function

MOST_OPERANDS, MOST_OUTPUTS = 32, 16
NOTHING = -MOST_OUTPUTS - 1  # in the place of a number: None is saved
UNWATCHED = "lent", "anomaly", "saving", "by_numpy"  # None, besides what ops ask for


class Program(IntEnum):
    """Words of a program on tensors of some types."""

    FUNCTION = 0  # `function_of_arrays`
    COUNT = 1  # of operands
    OPERANDS_AT = 2  # numbers of values, each with whether its gradient is wanted
    OUTPUTS = 3  # what it returns, and then what else is saved
    TEMPLATES_AT = 4  # of each output, as `define_tensor` takes them
    NODE = 5  # template; 0: there is no history
    ATTRIBUTES = 6  # of the node: a dict, of which each has a copy
    SAVED = 7  # how many are saved; -1: `ctx.save_for_backward` wasn't called
    SAVED_AT = 8  # numbers of operands, or of outputs: -1, -2 …
    SAVED_NAME = 9  # where the node has them


TEMPLATE_WORDS = 4


def define_program(module: Module, layout: Layout) -> None:
    """Add `run_program`; tensors and what they are made of are there."""
    _define_arrays(module, layout)
    _define_kept(module, layout)
    _define_node(module, layout)
    with entry_function(module, "run_program", "plan", "program", "values") as b:
        plan, program, values = b.args
        zero, one = (const("i64", n) for n in range(2))
        outputs = b.cast("ptrtoint", b.alloca("i64", MOST_OUTPUTS), "i64")
        none = b.word(plan, Common.NONE)
        items, names = b.word(plan, Common.THREAD_ITEMS), b.word(plan, Common.UNWATCHED_AT)
        with b.loop(0, len(UNWATCHED)) as loop:
            found = b.api("PyDict_GetItemWithError", items, b.word(names, loop.index))
            _leave_unless(b, b.eq(found, none))
        arrays = b.cast("ptrtoint", b.alloca("i64", MOST_OPERANDS), "i64")
        b.require(b.ne(b.call("program_arrays", "i64", plan, program, values, arrays), 0))
        operands = b.word(program, Program.COUNT)
        function = b.word(program, Program.FUNCTION)
        made = b.api("PyObject_Vectorcall", function, arrays, operands, 0)
        b.call("drop_values", "i64", arrays, zero, operands)
        b.require(b.ne(made, 0))
        with b.if_(b.eq(made, none)):
            b.drop(made)
            b.answer(1)
        template = b.word(program, Program.NODE)
        has_history = b.ne(template, 0)
        count = b.select(has_history, b.word(program, Program.OUTPUTS), one)
        spot = b.call("spot", "i64", plan)
        with b.if_(b.eq(spot, 0)):
            b.drop(made)
            b.answer(0)
        templates = b.word(program, Program.TEMPLATES_AT)
        with b.loop(0, count) as loop:
            array = b.api("PyTuple_GetItem", made, loop.index)
            b.own(array)
            words = b.record(templates, loop.index, TEMPLATE_WORDS)
            tensor = b.call("tensor", "i64", words, array)
            with b.if_(b.eq(tensor, 0)):
                b.call("drop_values", "i64", outputs, zero, loop.index)
                b.drop(spot)
                b.drop(made)
                b.answer(0)
            b.own(spot)
            b.exchange(tensor, layout.tensor_spot, spot)
            b.set_word(outputs, loop.index, tensor)
        b.drop(spot)
        b.drop(made)
        result = b.word(outputs)
        with b.if_(has_history):
            node = b.call("program_node", "i64", plan, program, values, outputs)
            b.call("drop_values", "i64", outputs, one, count)
            with b.if_(b.eq(node, 0)):
                b.drop(result)
                b.answer(0)
            b.own(true := b.word(plan, Common.TRUE))
            b.exchange(result, layout.tensor_requires_grad, true)
            b.exchange(result, layout.tensor_grad_fn, node)
        b.answer(result)


def _define_arrays(module: Module, layout: Layout) -> None:
    """Put the operands' arrays, as row-major ones, one after another; 0: an exception is set."""
    with entry_function(module, "program_arrays", "plan", "program", "values", "arrays") as b:
        plan, program, values, arrays = b.args
        operands = b.word(program, Program.OPERANDS_AT)
        with b.loop(0, b.word(program, Program.COUNT)) as loop:
            tensor = b.word(values, b.word(b.record(operands, loop.index, 2)))
            array = b.field(tensor, layout.tensor_array)
            b.own(array)
            right = b.call("right_array", "i64", plan, array, const("i64", 0))
            with b.if_(b.eq(right, 0)):
                b.call("drop_values", "i64", arrays, const("i64", 0), loop.index)
                b.answer(0)
            b.set_word(arrays, loop.index, right)
        b.answer(1)


def _define_kept(module: Module, layout: Layout) -> None:
    """A list of what keeps saved tensors; 0: an exception is set."""
    with entry_function(module, "program_saved", "plan", "program", "values", "outputs") as b:
        plan, program, values, outputs = b.args
        count, numbers = b.word(program, Program.SAVED), b.word(program, Program.SAVED_AT)
        operands = b.word(program, Program.OPERANDS_AT)
        zero, none = const("i64", 0), b.word(plan, Common.NONE)
        made = b.api("PyList_New", count)
        b.require(b.ne(made, 0))
        kept = b.cast("ptrtoint", b.alloca("i64"), "i64")
        with b.loop(0, count) as loop:
            number = b.word(numbers, loop.index)
            with b.if_(b.compare("sge", number, 0)):
                operand = b.word(values, b.word(b.record(operands, number, 2)))
                b.set_word(kept, 0, b.call("saved", "i64", plan, zero, operand, operand))
            with b.if_(b.eq(number, -1)):
                templates = b.word(program, Program.TEMPLATES_AT)
                result = b.word(outputs)
                b.set_word(kept, 0, b.call("saved", "i64", plan, templates, zero, result))
            with b.if_(b.compare("slt", number, -1)):
                with b.if_(b.eq(number, NOTHING)):
                    b.own(none)
                    b.set_word(kept, 0, none)
                with b.if_(b.ne(number, NOTHING)):
                    extra = b.word(outputs, b.sub(-1, number))
                    b.set_word(kept, 0, b.call("saved", "i64", plan, zero, extra, extra))
            with b.if_(b.eq(b.word(kept), 0)):
                b.drop(made)
                b.answer(0)
            b.api("PyList_SetItem", made, loop.index, b.word(kept))
        b.answer(made)


def _define_node(module: Module, layout: Layout) -> None:
    """The ctx of a call: its ends, its number, its line, and what it saves."""
    with entry_function(module, "program_node", "plan", "program", "values", "outputs") as b:
        plan, program, values, outputs = b.args
        node = b.call("instance", "i64", b.word(program, Program.NODE))
        b.require(b.ne(node, 0))

        def require(value: Val) -> Val:
            with b.if_(b.eq(value, 0)):
                b.drop(node)
                b.answer(0)
            return value

        count, operands = b.word(program, Program.COUNT), b.word(program, Program.OPERANDS_AT)
        ends = require(b.api("PyTuple_New", count))
        b.set_field(node, layout.node_ends, ends)
        with b.loop(0, count) as loop:
            operand = b.record(operands, loop.index, 2)
            tensor = b.word(values, b.word(operand))
            end = require(b.call("end", "i64", plan, tensor, b.word(operand, 1)))
            b.api("PyTuple_SetItem", ends, loop.index, end)
        number = require(b.api("PyIter_Next", b.word(plan, Common.SEQUENCE)))
        b.set_field(node, layout.node_sequence, number)
        spot = b.field(b.word(outputs), layout.tensor_spot)
        b.own(spot)
        b.set_field(node, layout.node_spot, spot)
        items = require(b.api("PyDict_Copy", b.word(program, Program.ATTRIBUTES)))
        failed = b.call("PyObject_SetAttr", "i32", node, b.word(plan, Common.DICT), items)
        b.drop(items)  # the node has it
        with b.if_(b.ne(failed, const("i32", 0))):
            require(const("i64", 0))
        with b.if_(b.compare("sge", b.word(program, Program.SAVED), 0)):
            saved = require(b.call("program_saved", "i64", plan, program, values, outputs))
            b.api("PyDict_SetItem", items, b.word(program, Program.SAVED_NAME), saved)
            b.drop(saved)
        b.answer(node)


def _leave_unless(b: EntryBuilder, condition: Val) -> None:
    """Leave the call to Python: nothing has happened yet."""
    with b.if_(b.not_(condition)):
        b.answer(1)
