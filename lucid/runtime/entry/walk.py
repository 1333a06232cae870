"""A backward walk as machine code, where nobody watches it: from node to node gradients are arrays.

`lucid_walk(queue, arrived, spent, sum, reached, targets)` runs nodes of ops and of leaves from the
end of the queue on, as `BackwardRun` does, up to one that is Python's: another kind of node, one
that somebody looks at, as a target of the walk, or one whose rule isn't known as a table yet.
Gradients go to the nodes that are reached; None: to all. Rules are tables of calls of NumPy
(`Derive`).
"""

from __future__ import annotations

from enum import IntEnum

from lucid.codegen.llvm.builder import Module, Val, const
from lucid.runtime.entry.common import Common
from lucid.runtime.entry.words import EntryBuilder, Layout, entry_function

WALK = "lucid_walk"
MOST_ARRAYS = 96  # of a rule: the cotangent, what is saved, and what its steps give
STEP_OPERANDS = 3
# Of an array's flags: row-major, the owner of its memory, and that can be written; the same of one
# whose memory is another object's, as that of large results is.
_OWN, _LENT = 0x405, 0x401


class Derive(IntEnum):
    """Words of a rule; tables follow."""

    COUNT = 0  # of arrays
    KEPT = 1  # how many of these are there before: the cotangent and what is saved
    STEPS = 2
    COPIED = 3
    RESULTS = 4
    STEPS_AT = 5  # records: Step
    COPIED_AT = 6  # numbers of arrays
    RESULTS_AT = 7  # numbers of arrays, or -1, one for each edge


class Step(IntEnum):
    """Words of a step of a rule."""

    NUMBER = 0  # of the array that it gives
    FUNCTION = 1
    OPERANDS = 2  # their number, and three words: theirs
    ATTRIBUTES = 6  # whether it has some: a dict in the tuple of those of all steps
    IS_VIEW = 7


_STEP_WORDS = Step.IS_VIEW + 1


def define_walk(module: Module, layout: Layout) -> None:
    """Add the function."""
    for define in (_define_push, _define_sum, _define_send, _define_leaf, _define_target):
        define(module, layout)
    _define_drop(module)
    for define in (
        _define_saved,
        _define_steps,
        _define_like,
        _define_first,
        _define_accumulate,
        _define_leaf_turn,
        _define_node,
    ):
        define(module, layout)
    with entry_function(module, WALK, "self", "args", "count", internal=False) as b:
        holder, args, _ = b.args
        plan = b.field(holder, layout.array_data)
        goes_on = b.alloca("i64")
        b.store(const("i64", 1), goes_on)
        with b.while_(lambda: b.eq(b.load("i64", goes_on), 1)):
            b.store(b.call("run_node", "i64", plan, args), goes_on)
        b.require(b.eq(b.load("i64", goes_on), 2))
        none = b.word(plan, Common.NONE)
        b.own(none)
        b.answer(none)


def _leave_unless(b: EntryBuilder, condition: Val) -> None:
    """Leave the node to Python: nothing has happened yet."""
    with b.if_(b.not_(condition)):
        b.answer(2)


def _contains(b: EntryBuilder, nodes: Val, node: Val) -> Val:
    """Whether a node is in a set: 1, 0, or -1 with an exception."""
    return b.cast("sext", b.call("PySet_Contains", "i32", nodes, node), "i64")


def _define_node(module: Module, layout: Layout) -> None:
    """Run the last node of the queue. 1: go on, 2: that is Python's, 0: with an exception."""
    with entry_function(module, "run_node", "plan", "args") as b:
        plan, args = b.args
        queue, arrived, spent = (b.word(args, i) for i in range(3))
        none, array_kind = b.word(plan, Common.NONE), b.word(plan, Common.ARRAY)
        arrays = b.cast("ptrtoint", b.alloca("i64", MOST_ARRAYS), "i64")
        size = b.api("PyList_Size", queue)
        _leave_unless(b, b.ne(size, 0))
        last = b.sub(size, 1)
        node = b.api("PyTuple_GetItem", b.api("PyList_GetItem", queue, last), 1)
        is_leaf = b.eq(b.field(node, layout.kind), b.word(plan, Common.LEAF))
        with b.if_(is_leaf):
            b.answer(b.call("leaf_turn", "i64", plan, args, node, last))
        _leave_unless(b, b.eq(b.field(node, layout.kind), b.word(plan, Common.NODE)))
        for name in ("pre_hooks", "post_hooks", "tensor_hooks", "retained"):
            _leave_unless(b, b.eq(b.field(node, getattr(layout, f"node_{name}")), none))
        _leave_unless(b, b.eq(_contains(b, b.word(args, 5), node), 0))
        derivative = b.field(node, layout.node_derivative)
        _leave_unless(b, b.eq(b.field(derivative, layout.kind), b.word(plan, Common.DERIVATIVE)))
        words = b.field(derivative, layout.derivative_words)
        _leave_unless(b, b.ne(words, none))
        rule = b.field(words, layout.array_data)
        slots = b.api("PyDict_GetItemWithError", arrived, node)
        _leave_unless(b, b.ne(slots, 0))
        gradient = b.api("PyList_GetItem", slots, 0)
        _leave_unless(b, b.eq(b.field(gradient, layout.kind), array_kind))
        b.set_word(arrays, 0, gradient)
        saved = b.field(node, layout.node_saved)
        _leave_unless(b, b.ne(saved, none))
        _leave_unless(b, b.ne(b.call("saved_arrays", "i64", plan, saved, arrays), 0))
        for value in (node, gradient):
            b.own(value)
        b.api("PyList_SetSlice", queue, last, size, 0)
        b.api("PyDict_DelItem", arrived, node)
        given = b.field(derivative, layout.derivative_attributes)
        is_done = b.call("steps", "i64", plan, rule, given, arrays)
        with b.if_(b.eq(is_done, 0)):
            b.drop(gradient)
            b.drop(node)
            b.answer(0)
        b.api("PyList_Append", spent, node)
        failed = b.alloca("i64")
        b.store(const("i64", 0), failed)
        results = b.word(rule, Derive.RESULTS_AT)
        with b.loop(0, b.word(rule, Derive.RESULTS)) as loop:
            number = b.word(results, loop.index)
            is_sent = b.and_(b.compare("sge", number, 0), b.eq(b.load("i64", failed), 0))
            with b.if_(is_sent):
                array = b.word(arrays, number)
                sent = b.call("target", "i64", plan, args, node, loop.index, array)
                with b.if_(b.eq(sent, 0)):
                    b.store(const("i64", 1), failed)
        b.call("drop_arrays", "i64", rule, arrays)
        b.drop(gradient)
        b.drop(node)
        b.answer(b.sub(const("i64", 1), b.load("i64", failed)))


def _define_leaf_turn(module: Module, layout: Layout) -> None:
    """The same where the node is a leaf's, to which all gradients go."""
    with entry_function(module, "leaf_turn", "plan", "args", "node", "last") as b:
        plan, args, node, last = b.args
        queue, arrived, reached = b.word(args), b.word(args, 1), b.word(args, 4)
        none = b.word(plan, Common.NONE)
        _leave_unless(b, b.eq(reached, none))
        leaf = b.field(node, layout.leaf_variable)
        hooks = layout.node_pre_hooks, layout.node_post_hooks, layout.leaf_hooks
        for place in (*hooks, layout.node_retained):
            _leave_unless(b, b.eq(b.field(node, place), none))
        _leave_unless(b, b.eq(b.field(leaf, layout.tensor_hooks), none))
        slots = b.api("PyDict_GetItemWithError", arrived, node)
        _leave_unless(b, b.ne(slots, 0))
        gradient = b.api("PyList_GetItem", slots, 0)
        own = b.field(leaf, layout.tensor_array)
        _leave_unless(b, b.ne(b.call("are_alike", "i64", plan, gradient, own), 0))
        locked = b.api("PyObject_CallNoArgs", b.word(plan, Common.ACQUIRE))
        b.require(b.ne(locked, 0))
        b.drop(locked)
        done = b.call("accumulate", "i64", plan, leaf, gradient)
        error = b.cast("ptrtoint", b.alloca("i64", 3), "i64")
        b.api("PyErr_Fetch", *(b.add(error, 8 * i) for i in range(3)))
        b.drop(b.api("PyObject_CallNoArgs", b.word(plan, Common.RELEASE)))
        b.api("PyErr_Restore", *(b.word(error, i) for i in range(3)))
        with b.if_(b.eq(done, 1)):
            b.api("PyList_SetSlice", queue, last, b.add(last, 1), 0)
            b.api("PyDict_DelItem", arrived, node)
        b.answer(done)


def _define_like(module: Module, layout: Layout) -> None:
    """Whether two are arrays of one dtype and shape."""
    with entry_function(module, "are_alike", "plan", "x", "y") as b:
        plan, *arrays = b.args
        for array in arrays:
            b.require(b.eq(b.field(array, layout.kind), b.word(plan, Common.ARRAY)))
        b.require(b.eq(*(b.field(array, layout.array_dtype) for array in arrays)))
        axes = [b.field(array, layout.array_axes, "i32") for array in arrays]
        b.require(b.eq(*axes))
        shapes = [b.field(array, layout.array_shape) for array in arrays]
        with b.loop(0, b.cast("sext", axes[0], "i64")) as loop:
            b.require(b.eq(*(b.word(shape, loop.index) for shape in shapes)))
        b.answer(1)


def _define_first(module: Module, layout: Layout) -> None:
    """Let a tensor on an array of its own be a leaf's gradient; answers as `accumulate`."""
    with entry_function(module, "first_gradient", "plan", "leaf", "array") as b:
        plan, leaf, array = b.args
        given = b.cast("ptrtoint", b.alloca("i64"), "i64")
        flags = b.and_(b.field(array, layout.array_flags, "i32"), _OWN)
        _leave_unless(b, b.ne(flags, _LENT))
        is_alone = b.eq(b.field(array, layout.references, "i32"), 1)
        with b.if_else(b.and_(is_alone, b.eq(flags, _OWN))) as branch:
            with branch.then():
                b.own(array)
            with branch.otherwise():
                b.set_word(given, 0, array)
                copy = b.api("PyObject_Vectorcall", b.word(plan, Common.COPY), given, 1, 0)
        own = branch.merge(array, copy)
        b.require(b.ne(own, 0))
        b.set_word(given, 0, b.field(leaf, layout.tensor_type))
        words = b.api("PyObject_Vectorcall", b.word(plan, Common.TEMPLATES), given, 1, 0)
        b.require_or_drop(words, own)
        made = b.call("tensor", "i64", b.field(words, layout.array_data), own)
        b.drop(words)
        b.require(b.ne(made, 0))
        spot = b.call("spot", "i64", plan)
        b.require_or_drop(spot, made)
        b.exchange(made, layout.tensor_spot, spot)
        b.exchange(leaf, layout.tensor_gradient, made)
        b.answer(1)


def _define_accumulate(module: Module, layout: Layout) -> None:
    """Add an array to a leaf's gradient, as `engine.accumulate`; the lock is held.

    1: that is done, 2: it is Python's, 0: with an exception.
    """
    with entry_function(module, "accumulate", "plan", "leaf", "array") as b:
        plan, leaf, array = b.args
        grad = b.call("grad", "i64", plan)
        _leave_unless(b, b.ne(grad, 0))
        _leave_unless(b, b.eq(b.api("PyList_Size", b.word(plan, Common.HELD)), 0))
        present = b.field(leaf, layout.tensor_gradient)
        with b.if_(b.eq(present, b.word(plan, Common.NONE))):
            b.answer(b.call("first_gradient", "i64", plan, leaf, array))
        is_tensor = b.eq(b.field(present, layout.kind), b.word(plan, Common.TENSOR))
        _leave_unless(b, is_tensor)
        memory = b.call("plain_memory", "i64", plan, b.word(plan, Common.FALSE), present)
        _leave_unless(b, b.ne(memory, 0))
        _leave_unless(b, b.ne(b.call("are_alike", "i64", plan, memory, array), 0))
        given = b.cast("ptrtoint", b.alloca("i64", 3), "i64")
        for i, value in enumerate((memory, array, memory)):
            b.set_word(given, i, value)
        b.own(present)
        added = b.api("PyObject_Vectorcall", b.word(plan, Common.ADD), given, 3, 0)
        with b.if_(b.ne(added, 0)):
            b.drop(added)
            b.call("count_write", "i64", plan, present)
        b.drop(present)
        b.require(b.ne(added, 0))
        b.answer(1)


def _define_saved(module: Module, layout: Layout) -> None:
    """Put the arrays of what a node has saved behind the cotangent; 0 where Python must look."""
    with entry_function(module, "saved_arrays", "plan", "saved", "arrays") as b:
        plan, saved, arrays = b.args
        words = b.cast("ptrtoint", b.alloca("i64", 4), "i64")
        place, key, value, count = (b.add(words, 8 * i) for i in range(4))
        none, array_kind = b.word(plan, Common.NONE), b.word(plan, Common.ARRAY)
        b.set_word(place, 0, 0)
        b.set_word(count, 0, 1)

        def has_next() -> Val:
            found = b.call("PyDict_Next", "i32", saved, place, key, value)
            return b.ne(found, const("i32", 0))

        with b.while_(has_next):
            kept = b.word(value)
            tensor = b.field(kept, layout.saved_tensor)
            b.require(b.ne(tensor, none))
            b.require(b.eq(b.field(kept, layout.saved_unpack_hook), none))
            version = b.field(b.field(tensor, layout.tensor_counter), layout.counter_now)
            before = b.field(kept, layout.saved_version)
            with b.if_(b.ne(version, before)):  # perhaps equal ints
                same = b.call("PyObject_RichCompareBool", "i32", version, before, const("i32", 2))
                b.require(b.eq(same, const("i32", 1)))
            array = b.field(tensor, layout.tensor_array)
            b.require(b.eq(b.field(array, layout.kind), array_kind))
            b.set_word(arrays, b.word(count), array)
            b.set_word(count, 0, b.add(b.word(count), 1))
        b.answer(1)


def _define_steps(module: Module, layout: Layout) -> None:
    """Run the steps of a rule; 0 with an exception, and their arrays are dropped then."""
    with entry_function(module, "steps", "plan", "rule", "attributes", "arrays") as b:
        plan, rule, attributes, arrays = b.args
        given = b.cast("ptrtoint", b.alloca("i64", STEP_OPERANDS), "i64")
        kept = b.word(rule, Derive.KEPT)
        with b.loop(kept, b.word(rule, Derive.COUNT)) as loop:
            b.set_word(arrays, loop.index, 0)
        with b.loop(0, b.word(rule, Derive.STEPS)) as loop:
            step = b.record(b.word(rule, Derive.STEPS_AT), loop.index, _STEP_WORDS)
            count = b.word(step, Step.OPERANDS)
            with b.loop(0, count) as operands:
                number = b.word(b.add(step, b.mul(operands.index, 8)), Step.OPERANDS + 1)
                b.set_word(given, operands.index, b.word(arrays, number))
            own = b.api("PyTuple_GetItem", attributes, loop.index)
            own = b.select(b.ne(b.word(step, Step.ATTRIBUTES), 0), own, const("i64", 0))
            function = b.word(step, Step.FUNCTION)
            made = b.api("PyObject_VectorcallDict", function, given, count, own)
            right = b.call("right_array", "i64", plan, made, b.word(step, Step.IS_VIEW))
            b.set_word(arrays, b.word(step), right)
            with b.if_(b.eq(right, 0)):
                b.call("drop_arrays", "i64", rule, arrays)
                b.answer(0)
        copied = b.word(rule, Derive.COPIED_AT)
        with b.loop(0, b.word(rule, Derive.COPIED)) as loop:
            number = b.word(copied, loop.index)
            right = b.call("right_array", "i64", plan, b.word(arrays, number), const("i64", 0))
            b.set_word(arrays, number, right)
            with b.if_(b.eq(right, 0)):
                b.call("drop_arrays", "i64", rule, arrays)
                b.answer(0)
        b.answer(1)


def _define_drop(module: Module) -> None:
    """Drop the arrays that a rule has made so far."""
    with entry_function(module, "drop_arrays", "rule", "arrays") as b:
        rule, arrays = b.args
        with b.loop(b.word(rule, Derive.KEPT), b.word(rule, Derive.COUNT)) as loop:
            b.drop(b.word(arrays, loop.index))
        b.answer(1)


def _define_target(module: Module, layout: Layout) -> None:
    """Send a gradient along an edge of a node; 0 with an exception."""
    with entry_function(module, "target", "plan", "args", "node", "index", "array") as b:
        plan, args, node, index, array = b.args
        none = b.word(plan, Common.NONE)
        edges = b.field(node, layout.node_led_to)
        is_known = b.ne(edges, none)
        ends = b.select(is_known, edges, b.field(node, layout.node_ends))
        end = b.api("PyTuple_GetItem", ends, index)
        with b.if_(b.eq(end, none)):
            b.answer(1)
        reached = b.word(args, 4)
        is_edge = b.eq(b.field(end, layout.kind), b.word(plan, Common.TUPLE))
        with b.if_(is_edge):
            target = b.api("PyTuple_GetItem", end, 0)
            with b.if_(b.ne(reached, none)):
                found = _contains(b, reached, target)
                with b.if_(b.le(found, 0)):
                    b.answer(b.add(found, 1))
            number = b.api("PyLong_AsLongLong", b.api("PyTuple_GetItem", end, 1))
            b.answer(b.call("send", "i64", plan, args, target, number, array))
        is_first = b.eq(b.field(end, layout.tensor_accumulator), none)
        with b.if_(b.and_(b.ne(reached, none), is_first)):  # who asks for a leaf has made its node
            b.answer(1)
        leaf = b.call("leaf_node", "i64", plan, end)
        b.require(b.ne(leaf, 0))
        sent = b.alloca("i64")
        b.store(const("i64", 1), sent)
        with b.if_(b.ne(reached, none)):
            b.store(_contains(b, reached, leaf), sent)
        with b.if_(b.eq(b.load("i64", sent), 1)):
            b.store(b.call("send", "i64", plan, args, leaf, const("i64", 0), array), sent)
            b.drop(leaf)
            b.answer(b.load("i64", sent))
        b.drop(leaf)
        b.answer(b.add(b.load("i64", sent), 1))


def _define_leaf(module: Module, layout: Layout) -> None:
    """The node that accumulates into a leaf."""
    with entry_function(module, "leaf_node", "plan", "tensor") as b:
        plan, tensor = b.args
        none = b.word(plan, Common.NONE)
        reference = b.field(tensor, layout.tensor_accumulator)
        with b.if_(b.ne(reference, none)):
            node = b.api("PyObject_CallNoArgs", reference)
            with b.if_(b.ne(node, none)):
                b.answer(node)
            b.drop(node)
        given = b.cast("ptrtoint", b.alloca("i64"), "i64")
        b.set_word(given, 0, tensor)
        b.answer(b.api("PyObject_Vectorcall", b.word(plan, Common.ACCUMULATOR), given, 1, 0))


def _define_send(module: Module, layout: Layout) -> None:
    """Add a contribution to the gradient of an output of a node; 0 with an exception."""
    with entry_function(module, "send", "plan", "args", "node", "number", "array") as b:
        plan, args, node, number, array = b.args
        arrived = b.word(args, 1)
        slots = b.api("PyDict_GetItemWithError", arrived, node)
        with b.if_(b.eq(slots, 0)):
            types = b.api("PyTuple_Size", b.field(node, layout.node_output_types))
            made = b.api("PyList_New", types)
            b.require(b.ne(made, 0))
            with b.loop(0, types) as loop:
                none = b.word(plan, Common.NONE)
                b.own(none)
                b.api("PyList_SetItem", made, loop.index, none)
            b.own(array)
            b.api("PyList_SetItem", made, number, array)
            b.api("PyDict_SetItem", arrived, node, made)
            b.drop(made)
            b.answer(b.call("push", "i64", plan, b.word(args), node))
        present = b.api("PyList_GetItem", slots, number)
        with b.if_(b.eq(present, b.word(plan, Common.NONE))):
            b.own(array)
            b.api("PyList_SetItem", slots, number, array)
            b.answer(1)
        both = b.call("sum_of", "i64", plan, args, present, array)
        b.require(b.ne(both, 0))
        b.api("PyList_SetItem", slots, number, both)
        b.answer(1)


def _define_sum(module: Module, layout: Layout) -> None:
    """Two contributions together, in the memory of the first one if that is all its own."""
    with entry_function(module, "sum_of", "plan", "args", "present", "array") as b:
        plan, args, present, array = b.args
        given = b.cast("ptrtoint", b.alloca("i64", 3), "i64")
        for i, value in enumerate((present, array, present)):
            b.set_word(given, i, value)
        is_array = b.eq(b.field(present, layout.kind), b.word(plan, Common.ARRAY))
        with b.if_(b.not_(is_array)):
            b.answer(b.api("PyObject_Vectorcall", b.word(args, 3), given, 2, 0))
        flags = b.and_(b.field(present, layout.array_flags, "i32"), _OWN)
        is_own = b.eq(flags, _OWN)
        types = (b.field(x, layout.array_dtype) for x in (present, array))
        is_held_once = b.eq(b.field(present, layout.references, "i32"), 1)
        is_one = b.and_(b.and_(is_own, is_held_once), b.eq(*types))
        count = b.select(is_one, const("i64", 3), const("i64", 2))
        made = b.api("PyObject_Vectorcall", b.word(plan, Common.ADD), given, count, 0)
        b.answer(b.call("right_array", "i64", plan, made, const("i64", 0)))


def _define_push(module: Module, layout: Layout) -> None:
    """Put a node in its place in the queue, before those that come as late."""
    with entry_function(module, "push", "plan", "queue", "node") as b:
        _, queue, node = b.args
        number = b.field(node, layout.node_sequence)
        sequence = b.api("PyLong_AsLongLong", number)
        words = b.cast("ptrtoint", b.alloca("i64", 2), "i64")
        low, high = words, b.add(words, 8)
        b.set_word(low, 0, 0)
        b.set_word(high, 0, b.api("PyList_Size", queue))
        with b.while_(lambda: b.lt(b.word(low), b.word(high))):
            middle = b.lshr(b.add(b.word(low), b.word(high)), 1)
            entry = b.api("PyList_GetItem", queue, middle)
            there = b.api("PyLong_AsLongLong", b.api("PyTuple_GetItem", entry, 0))
            is_before = b.lt(there, sequence)
            b.set_word(low, 0, b.select(is_before, b.add(middle, 1), b.word(low)))
            b.set_word(high, 0, b.select(is_before, b.word(high), middle))
        entry = b.api("PyTuple_New", 2)
        b.require(b.ne(entry, 0))
        for i, value in enumerate((number, node)):
            b.own(value)
            b.api("PyTuple_SetItem", entry, i, value)
        b.api("PyList_Insert", queue, b.word(low), entry)
        b.drop(entry)
        b.answer(1)
