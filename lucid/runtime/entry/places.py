"""Tensors that a step finds in places, beside its arguments: entries, attributes, variables.

Numbers in places are read by Python, as others that follow from one another.
"""

from __future__ import annotations

from lucid.codegen.llvm.builder import Module, Val
from lucid.runtime.entry.words import (
    IN_CELL,
    IN_LIST,
    EntryBuilder,
    Layout,
    Word,
    entry_function,
)


def define_gather(module: Module, layout: Layout) -> None:
    """Add `gather`, which enters arguments and places side by side, and `release`, its reverse.

    Meanwhile what was found in places is ours too: nobody who binds one can end its life.
    """
    _define_in_place(module, layout)
    with entry_function(module, "gather", "plan", "args") as b:
        plan, args = b.args
        gathered, given = b.word(plan, Word.GATHERED_AT), _given(b, plan)
        with b.loop(0, given) as loop:
            b.set_word(gathered, loop.index, b.word(args, loop.index))
        table = b.word(plan, Word.PLACES_AT)
        with b.loop(0, b.word(plan, Word.PLACES)) as loop:
            found = b.call("in_place", "i64", plan, b.record(table, loop.index, 5))
            b.require_found(found)
            b.set_word(gathered, b.add(given, loop.index), found)
        with b.loop(0, b.word(plan, Word.PLACES)) as loop:
            b.own(b.word(gathered, b.add(given, loop.index)))
        b.answer(1)
    with entry_function(module, "release", "plan") as b:
        (plan,) = b.args
        gathered, given = b.word(plan, Word.GATHERED_AT), _given(b, plan)
        with b.loop(0, b.word(plan, Word.PLACES)) as loop:
            b.drop(b.word(gathered, b.add(given, loop.index)))
        b.answer(1)


def _given(b: EntryBuilder, plan: Val) -> Val:
    """How many of the arguments are there before."""
    return b.sub(b.word(plan, Word.ARGUMENT_COUNT), b.word(plan, Word.PLACES))


def _define_in_place(module: Module, layout: Layout) -> None:
    """What is there, or the entry of a tuple there, as a reference that is not ours; or null."""
    with entry_function(module, "in_container", "record") as b:
        (record,) = b.args
        kind, owner, key = b.word(record), b.word(record, 1), b.word(record, 2)
        with b.if_(b.eq(kind, IN_CELL)):
            b.answer(b.field(owner, layout.cell))
        with b.if_(b.eq(kind, IN_LIST)):
            b.answer(b.api("PyList_GetItem", owner, key))
        b.answer(b.api("PyDict_GetItemWithError", owner, key))
    with entry_function(module, "in_place", "plan", "record") as b:
        plan, record = b.args
        found = b.call("in_container", "i64", record)
        b.require(b.ne(found, 0))
        size = b.word(record, 3)
        with b.if_(b.eq(size, 0)):
            b.answer(found)
        b.require(b.eq(b.field(found, layout.kind), b.word(plan, Word.TUPLE)))
        b.require_size(found, size)
        b.answer(b.api("PyTuple_GetItem", found, b.word(record, 4)))
