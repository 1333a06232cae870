"""The history of a compiled function's results: what a call keeps for its backward, and nodes.

It is what `CallRecord` and `CompiledBackward` do in Python.
"""

from __future__ import annotations

from lucid.codegen.llvm.builder import Module, Val, const
from lucid.runtime.entry.words import (
    CALLED,
    END_OF_ARGUMENT,
    END_OF_LAYER,
    HERE,
    OF_ARGUMENT,
    CallHistory,
    EntryBuilder,
    Layout,
    Recorded,
    Word,
    entry_function,
)

LAYER = 8  # words of a record


def define_history(module: Module, layout: Layout) -> None:
    """Give the new tensors and parts their history; 0 with an exception: then they have none."""
    _define_source(module, layout)
    _define_listed(module)
    _define_fields(module)
    _define_are_leaves(module, layout)
    _define_record(module, layout)
    _define_node(module, layout)
    _define_take_kept(module, layout)
    with entry_function(module, "history", "plan", "args") as b:
        plan, args = b.args
        words, made = b.word(plan, Word.HISTORY_AT), b.word(plan, Word.ARRAYS_AT)
        record = b.call("record", "i64", plan, words, args)
        b.require(b.ne(record, 0))
        nodes, layers = b.word(words, CallHistory.NODES_AT), b.word(words, CallHistory.LAYERS_AT)
        with b.loop(0, b.word(words, CallHistory.LAYERS)) as loop:
            layer = b.record(layers, loop.index, LAYER)
            node = b.call("node", "i64", plan, args, record, layer)
            with b.if_(b.eq(node, 0)):
                with b.loop(0, loop.index) as earlier:
                    b.drop(b.word(nodes, earlier.index))
                b.drop(record)
                b.answer(0)
            b.set_word(nodes, loop.index, node)
        with b.loop(0, b.word(words, CallHistory.LAYERS)) as loop:
            layer, node = b.record(layers, loop.index, LAYER), b.word(nodes, loop.index)
            with b.loop(0, b.word(layer, 3)) as outputs:
                output = b.record(b.word(layer, 4), outputs.index, 2)
                tensor = b.word(made, b.word(output))
                number, yes = b.word(output, 1), b.word(plan, Word.TRUE)
                for value in number, yes, node:
                    b.own(value)
                b.exchange(tensor, layout.tensor_output_nr, number)
                b.exchange(tensor, layout.tensor_requires_grad, yes)
                b.exchange(tensor, layout.tensor_grad_fn, node)
            b.drop(node)
        b.drop(record)
        b.answer(1)


def _define_node(module: Module, layout: Layout) -> None:
    """The node of a layer; 0 with an exception."""
    with entry_function(module, "node", "plan", "args", "record", "layer") as b:
        plan, args, record, layer = b.args
        words = b.word(plan, Word.HISTORY_AT)
        node = b.call("instance", "i64", b.word(layer))
        b.require(b.ne(node, 0))
        b.own(record)
        _set(b, words, node, CallHistory.RECORD_OF_NODE, record)
        number = b.api("PyIter_Next", b.word(words, CallHistory.SEQUENCE))
        b.require_or_drop(number, node)
        _set(b, words, node, CallHistory.SEQUENCE_OF_NODE, number)
        spot = b.word(b.add(record, b.word(words, CallHistory.SPOT_OF_RECORD)))
        b.own(spot)
        _set(b, words, node, CallHistory.SPOT_OF_NODE, spot)
        with b.if_(b.ne(b.word(words, CallHistory.SIZES), 0)):  # each call has types of its own
            types = b.api("PyTuple_New", b.word(layer, 6))
            b.require_or_drop(types, node)
            with b.loop(0, b.word(layer, 6)) as loop:
                place = b.word(b.word(layer, 7), loop.index)
                type_ = b.field(b.word(b.word(plan, Word.ARRAYS_AT), place), layout.tensor_type)
                b.own(type_)
                b.api("PyTuple_SetItem", types, loop.index, type_)
            b.exchange(node, layout.node_output_types, types)
        count = b.word(layer, 1)
        with b.if_(b.ne(count, 0)):
            listed = b.call("listed", "i64", plan, args, count, b.word(layer, 2))
            b.require_or_drop(listed, node)
            ends = b.api("PyList_AsTuple", listed)
            b.drop(listed)
            b.require_or_drop(ends, node)
            place = b.add(node, b.word(layer, 5))
            before = b.word(place)
            b.set_word(place, 0, ends)
            b.drop(before)
        b.answer(node)


def _define_take_kept(module: Module, layout: Layout) -> None:
    """Put what a call has kept behind what is given now; 0 where not all is as it was."""
    with entry_function(module, "take_kept", "plan", "args") as b:
        plan, args = b.args
        words, record = b.word(plan, Word.RECORDED_AT), b.word(args)
        freed, counters, versions, kept, shown, storages = (
            b.word(b.add(record, b.word(words, i))) for i in range(Recorded.CHECKED)
        )
        b.require_size(freed, const("i64", 0))
        with b.loop(0, b.word(words, Recorded.CHECKED)) as loop:
            number = b.word(b.word(words, Recorded.CHECKED_AT), loop.index)
            now = b.field(b.api("PyList_GetItem", counters, number), layout.counter_now)
            before = b.api("PyList_GetItem", versions, number)
            with b.if_(b.ne(now, before)):  # perhaps equal ints
                same = b.call("PyObject_RichCompareBool", "i32", now, before, const("i32", 2))
                b.require(b.eq(same, const("i32", 1)))
        with b.loop(0, b.api("PyList_Size", shown)) as loop:
            now = b.field(b.api("PyList_GetItem", shown, loop.index), layout.tensor_storage)
            b.require(b.eq(now, b.api("PyList_GetItem", storages, loop.index)))
        room, given = b.word(words, Recorded.ROOM_AT), b.sub(b.word(plan, Word.GIVEN_COUNT), 1)
        count = b.sub(b.word(plan, Word.ARGUMENT_COUNT), b.word(plan, Word.PLACES))
        b.require_size(kept, b.sub(count, given))
        with b.loop(0, given) as loop:
            b.set_word(room, loop.index, b.word(args, b.add(loop.index, 1)))
        with b.loop(given, count) as loop:
            array = b.api("PyList_GetItem", kept, b.sub(loop.index, given))
            b.set_word(room, loop.index, array)
        b.answer(1)


def _define_source(module: Module, layout: Layout) -> None:
    """What is at a source; 0 with an exception."""
    with entry_function(module, "pair", "first", "second") as b:
        made = b.api("PyTuple_New", 2)
        b.require(b.ne(made, 0))
        for i, value in enumerate(b.args):
            b.own(value)
            b.api("PyTuple_SetItem", made, i, value)
        b.answer(made)
    with entry_function(module, "at_source", "plan", "args", "source") as b:
        plan, args, source = b.args
        where, number, field = (b.word(source, i) for i in range(3))
        with b.if_(b.eq(where, CALLED)):
            b.answer(b.api("PyObject_CallNoArgs", number))
        with b.if_(b.eq(where, HERE)):
            b.own(number)
            b.answer(number)
        with b.if_(b.eq(where, END_OF_LAYER)):
            nodes = b.word(b.word(plan, Word.HISTORY_AT), CallHistory.NODES_AT)
            b.answer(b.call("pair", "i64", b.word(nodes, number), field))
        of_argument = b.or_(b.eq(where, OF_ARGUMENT), b.eq(where, END_OF_ARGUMENT))
        found = b.word(b.select(of_argument, args, b.word(plan, Word.ARRAYS_AT)), number)
        with b.if_(b.eq(where, END_OF_ARGUMENT)):
            history = b.field(found, layout.tensor_grad_fn)
            with b.if_(b.ne(history, b.word(plan, Word.NONE))):
                b.answer(b.call("pair", "i64", history, b.field(found, layout.tensor_output_nr)))
        with b.if_(b.ne(field, 0)):
            part = b.word(b.add(found, field))
            b.own(part)
            b.answer(part)
        b.own(found)
        b.answer(found)


def _define_listed(module: Module) -> None:
    """A list of what is at sources."""
    with entry_function(module, "listed", "plan", "args", "count", "sources") as b:
        plan, args, count, sources = b.args
        made = b.api("PyList_New", count)
        b.require(b.ne(made, 0))
        with b.loop(0, count) as loop:
            found = b.call("at_source", "i64", plan, args, b.record(sources, loop.index, 3))
            b.require_or_drop(found, made)
            b.api("PyList_SetItem", made, loop.index, found)
        b.answer(made)


def _define_fields(module: Module) -> None:
    """A list of a field of each object in a list."""
    with entry_function(module, "fields", "objects", "offset") as b:
        objects, offset = b.args
        count = b.api("PyList_Size", objects)
        made = b.api("PyList_New", count)
        b.require(b.ne(made, 0))
        with b.loop(0, count) as loop:
            found = b.word(b.add(b.api("PyList_GetItem", objects, loop.index), offset))
            b.own(found)
            b.api("PyList_SetItem", made, loop.index, found)
        b.answer(made)


def _define_are_leaves(module: Module, layout: Layout) -> None:
    """Whether the state's tensors that gradients go to are leaves still."""
    with entry_function(module, "are_leaves", "plan") as b:
        (plan,) = b.args
        words = b.word(plan, Word.HISTORY_AT)
        with b.if_(b.eq(words, 0)):
            b.answer(1)
        with b.loop(0, b.word(words, CallHistory.LEAVES)) as loop:
            leaf = b.word(b.word(words, CallHistory.LEAVES_AT), loop.index)
            b.require(b.eq(b.field(leaf, layout.tensor_grad_fn), b.word(plan, Word.NONE)))
            chain = b.field(leaf, layout.tensor_view_chain)
            b.require(b.eq(chain, b.word(words, CallHistory.EMPTY)))
        b.answer(1)


def _define_record(module: Module, layout: Layout) -> None:
    """The record of a call; 0 with an exception."""
    with entry_function(module, "record", "plan", "words", "args") as b:
        plan, words, args = b.args
        record = b.call("instance", "i64", b.word(words, CallHistory.RECORD))
        b.require(b.ne(record, 0))

        def put(field: CallHistory, value: Val) -> Val:
            b.require_or_drop(value, record)
            _set(b, words, record, field, value)
            return value

        def listed(field: CallHistory, count: CallHistory) -> Val:
            sources = b.word(words, count), b.word(words, count + 1)
            return put(field, b.call("listed", "i64", plan, args, *sources))

        spot = b.api("PyObject_CallNoArgs", b.word(words, CallHistory.SPOT))
        put(CallHistory.SPOT_OF_RECORD, spot)
        put(CallHistory.FREED, b.api("PySet_New", 0))
        put(CallHistory.CONTEXTS, b.api("PyDict_New"))
        with b.if_else(b.ne(b.word(words, CallHistory.NUMBERS), 0)) as branch:
            with branch.then():
                found = b.api("PyObject_CallNoArgs", b.word(words, CallHistory.NUMBERS))
            with branch.otherwise():
                empty = b.api("PyList_New", 0)
        put(CallHistory.NUMBERS_OF_RECORD, branch.merge(found, empty))
        has_sizes = b.ne(b.word(words, CallHistory.SIZES), 0)
        sizes = b.select(has_sizes, b.word(plan, Word.SIZED), b.word(words, CallHistory.EMPTY))
        b.own(sizes)
        put(CallHistory.SIZES_OF_RECORD, sizes)
        listed(CallHistory.KEPT_OF_RECORD, CallHistory.KEPT)
        counters = listed(CallHistory.COUNTERS_OF_RECORD, CallHistory.COUNTERS)
        now = const("i64", layout.counter_now)
        put(CallHistory.VERSIONS, b.call("fields", "i64", counters, now))
        shown = listed(CallHistory.SHOWN_OF_RECORD, CallHistory.SHOWN)
        storage = const("i64", layout.tensor_storage)
        put(CallHistory.STORAGES, b.call("fields", "i64", shown, storage))
        b.answer(record)


def _set(b: EntryBuilder, words: Val, made: Val, field: CallHistory, value: Val) -> None:
    """Put a value that is ours into a field that the template has left empty."""
    b.set_word(b.add(made, b.word(words, field)), 0, value)
