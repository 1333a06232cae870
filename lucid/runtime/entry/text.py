"""The Python border of a compiled step as machine code: guards, the call, gradients, the result.

One function serves all steps. What it looks at stands in a step's *plan*, a table of words (`Word`)
that refers to further tables; addresses of Python objects are in there, never in the code.
Whatever the function isn't sure of it leaves to Python: it returns the plan's `SLOW_PATH` then, and
nothing has happened yet. Python objects are seen by fields at measured offsets (`Layout`), else by
CPython's stable functions. It runs with the interpreter's lock, except for a step that takes long.
"""

from __future__ import annotations

import functools

from lucid.codegen.llvm.builder import Module, Val, const
from lucid.codegen.llvm.target import Target
from lucid.runtime.entry.guards import define_guards
from lucid.runtime.entry.histories import define_history
from lucid.runtime.entry.objects import define_tensor
from lucid.runtime.entry.places import define_gather
from lucid.runtime.entry.results import define_result, drop_arrays, keep_error, raise_kept
from lucid.runtime.entry.sizes import define_sizes
from lucid.runtime.entry.words import (
    IS_READY,
    IS_TOUCHED,
    RAISED,
    EntryBuilder,
    Layout,
    Recorded,
    Word,
    entry_function,
    records,
)

ENTER = "lucid_enter"
LEAVE = "lucid_leave"
_LEFT = 6  # words of what is known of a leaf


def entry_module(target: Target, layout: Layout) -> Module:
    """IR of `lucid_enter` and `lucid_leave(plan array, arguments, their number)`, METH_FASTCALL."""
    module = Module(target)
    parts = (
        define_guards,
        define_sizes,
        define_gather,
        _define_allocate,
        _define_batch,
        _define_leave,
        define_tensor,
        define_history,
        define_result,
        _define_run,
        _define_enter,
        _define_leave_arrays,
    )
    for define in parts:
        define(module, layout)
    return module


# The call -------------------------------------------------------------------------------------


def _define_allocate(module: Module, layout: Layout) -> None:
    """Make the arrays of new results; 0 with an exception, and none is left then."""
    with entry_function(module, "allocate", "plan") as b:
        (plan,) = b.args
        table, arrays = b.word(plan, Word.RESULTS_AT), b.word(plan, Word.ARRAYS_AT)
        with b.loop(0, b.word(plan, Word.RESULTS)) as loop:
            record = b.record(table, loop.index, 4)
            args = b.word(record, 2), b.word(record, 3)
            array = b.api("PyObject_Vectorcall", b.word(record, 1), *args, 0)
            with b.if_(b.eq(array, 0)):
                with b.loop(0, loop.index) as earlier:
                    b.drop(b.word(arrays, earlier.index))
                b.answer(0)
            b.set_word(arrays, loop.index, array)
            data = b.field(array, layout.array_data)
            b.set_word(b.word(plan, Word.OUTPUTS_AT), b.word(record), data)
        b.answer(1)


def _define_batch(module: Module, layout: Layout) -> None:
    """Take the spare batch of gradients, and let the step write there."""
    with entry_function(module, "batch", "plan") as b:
        (plan,) = b.args
        spares = b.word(plan, Word.SPARES)
        count = b.api("PyList_Size", spares)
        last = b.sub(count, 1)
        batch = b.api("PyList_GetItem", spares, last)
        b.own(batch)
        b.api("PyList_SetSlice", spares, last, count, 0)
        words = b.field(b.field(batch, layout.batch_words), layout.array_data)
        with b.loop(0, b.word(words)) as loop:
            record = b.add(b.record(words, loop.index, 4), 8)
            b.set_word(b.word(plan, Word.OUTPUTS_AT), b.word(record), b.word(record, 1))
        b.answer(batch)


def _define_leave(module: Module, layout: Layout) -> None:
    """Promise the gradients to the leaves; the batch before is spare, if nobody has seen it."""
    with entry_function(module, "leave", "plan", "batch") as b:
        plan, batch = b.args
        words = b.field(b.field(batch, layout.batch_words), layout.array_data)
        with b.loop(0, b.word(words)) as loop:
            record = b.add(b.record(words, loop.index, 4), 8)
            place, promise = b.word(record, 2), b.word(record, 3)
            before = b.word(place)
            b.own(promise)
            b.set_word(place, 0, promise)
            b.drop(before)
        latest, spares = b.word(plan, Word.LATEST), b.word(plan, Word.SPARES)
        ended = b.api("PyList_GetItem", latest, 0)
        b.own(ended)
        b.api("PyList_SetItem", latest, 0, batch)  # takes over our reference
        with b.if_(b.ne(ended, b.word(plan, Word.NONE))):
            is_unseen = b.eq(b.field(ended, layout.batch_was_seen), b.word(plan, Word.FALSE))
            is_wanted = b.eq(b.api("PyList_Size", spares), 0)
            with b.if_else(b.and_(is_unseen, is_wanted)) as branch:
                with branch.then():
                    b.api("PyList_Append", spares, ended)
                with branch.otherwise():
                    promises = b.field(ended, layout.batch_promises)
                    b.api("PyList_SetSlice", promises, 0, b.api("PyList_Size", promises), 0)
        b.drop(ended)
        b.answer(1)


def _define_run(module: Module, layout: Layout) -> None:
    """Run the native step, for which others may have to wait, unless it takes long.

    Returns its error code, or `RAISED` with an exception.
    """
    with entry_function(module, "run", "plan") as b:
        (plan,) = b.args
        with b.if_(b.eq(b.call("allocate", "i64", plan), 0)):
            b.answer(RAISED)
        step = b.cast("inttoptr", b.word(plan, Word.STEP), "ptr").name
        table = b.cast("inttoptr", b.word(plan, Word.TABLE), "ptr")
        call = f"call i32 {step}({table})"
        with b.if_(b.eq(b.word(plan, Word.IS_LONG), 0)):
            b.answer(b.cast("zext", b.emit("i32", call), "i64"))
        is_claiming = b.ne(b.word(plan, Word.ACQUIRE), 0)
        with b.if_else(is_claiming) as branch:
            with branch.then():
                claimed = b.api("PyObject_CallNoArgs", b.word(plan, Word.CLAIM))
            with branch.otherwise():
                pass
        merged = branch.merge(claimed, const("i64", 0))
        with b.if_(b.and_(is_claiming, b.eq(merged, 0))):
            drop_arrays(b, plan)
            b.answer(RAISED)
        claim = b.alloca("i64")
        b.store(merged, claim)
        thread = b.api("PyEval_SaveThread")
        code = b.cast("zext", b.emit("i32", call), "i64")
        b.api("PyEval_RestoreThread", thread)
        with b.if_(is_claiming):
            args = b.cast("ptrtoint", claim, "i64")
            ended = b.api("PyObject_Vectorcall", b.word(plan, Word.UNCLAIM), args, 1, 0)
            with b.if_(b.eq(ended, 0)):  # interrupted: the step has run, and all else comes first
                keep_error(b, b.word(plan, Word.INTERRUPT_AT))
                b.drop(b.api("PyObject_Vectorcall", b.word(plan, Word.UNCLAIM), args, 1, 0))
                b.api("PyErr_Clear")
            b.drop(ended)
            b.drop(b.load("i64", claim))
        b.answer(code)


def _define_leave_arrays(module: Module, layout: Layout) -> None:
    """Let arrays be the gradients of a plan's leaves, if none of those has one; whether that is so.

    Nor where somebody is told of it. Records: the place of a leaf's gradient, the templates of a
    tensor, the leaf and its node.
    """
    with entry_function(module, LEAVE, "self", "args", "count", internal=False) as b:
        holder, args, _ = b.args
        plan = b.field(holder, layout.array_data)
        none, no, yes = (b.word(plan, word) for word in (Word.NONE, Word.FALSE, Word.TRUE))
        with records(b, plan, Word.TENSORS, _LEFT) as record:
            node, hooks = b.word(record, 5), ("node_pre_hooks", "node_post_hooks", "leaf_hooks")
            found = [b.word(b.word(record)), b.field(b.word(record, 4), layout.tensor_hooks)]
            found += [b.field(node, getattr(layout, name)) for name in hooks]
            is_plain = functools.reduce(b.and_, [b.eq(value, none) for value in found])
            with b.if_(b.not_(is_plain)):
                b.own(no)
                b.answer(no)
        with b.loop(0, b.word(plan, Word.TENSORS)) as loop:
            record = b.record(b.word(plan, Word.TENSORS_AT), loop.index, _LEFT)
            array = b.word(args, loop.index)
            b.own(array)
            made = b.call("tensor", "i64", record, array)
            b.require(b.ne(made, 0))
            place = b.word(record)
            before = b.word(place)
            b.set_word(place, 0, made)
            b.drop(before)
        b.own(yes)
        b.answer(yes)


# Together -------------------------------------------------------------------------------------


def _define_enter(module: Module, layout: Layout) -> None:
    _define_attempt(module, layout)
    _define_fails(module)
    _define_finish(module, layout)
    with entry_function(module, ENTER, "self", "args", "count", internal=False) as b:
        holder, args, count = b.args
        plan = b.field(holder, layout.array_data)
        is_busy = b.ne(b.word(plan, Word.IS_BUSY), 0)
        is_other = b.ne(count, b.word(plan, Word.GIVEN_COUNT))
        calls = b.word(plan, Word.CALLS_AT)
        is_looked_at = b.compare("sge", b.word(calls), b.word(calls, 1))
        long_way = b.word(plan, Word.SLOW_PATH)
        with b.if_(b.or_(is_looked_at, b.or_(is_busy, is_other))):
            b.own(long_way)
            b.answer(long_way)
        b.set_word(plan, Word.IS_BUSY, 1)
        result = b.call("attempt", "i64", plan, args)
        b.set_word(plan, Word.IS_BUSY, 0)
        b.answer(result)


def _define_attempt(module: Module, layout: Layout) -> None:
    """All of a call, with the lock on what threads share; answers as a whole call does."""
    _define_lock(module)
    _define_unlock(module)
    _define_locked(module, layout)
    _define_with_places(module, layout)
    _define_with_record(module)
    with entry_function(module, "attempt", "plan", "args") as b:
        plan, args = b.args
        with b.if_(b.eq(b.word(plan, Word.ACQUIRE), 0)):
            b.answer(b.call("with_record", "i64", plan, args))
        _go_long_way_unless(b, plan, b.ne(b.call("lock", "i64", plan), 0))
        result = b.call("with_record", "i64", plan, args)
        b.call("unlock", "i64", plan, result)
        b.answer(result)


def _define_lock(module: Module) -> None:
    """Take the lock, unless one has to wait for it or for a claim."""
    with entry_function(module, "lock", "plan") as b:
        (plan,) = b.args
        args = b.word(plan, Word.ACQUIRE_AT)
        found = b.api("PyObject_Vectorcall", b.word(plan, Word.ACQUIRE), args, 1, 0)
        b.require_made(found)
        b.drop(found)
        b.require(b.eq(found, b.word(plan, Word.TRUE)))
        is_alone = b.eq(b.api("PyList_Size", b.word(plan, Word.CLAIMS)), 0)
        with b.if_(b.not_(is_alone)):
            b.drop(b.api("PyObject_CallNoArgs", b.word(plan, Word.RELEASE)))
            b.answer(0)
        b.answer(1)


def _define_unlock(module: Module) -> None:
    """Release the lock; an exception that goes with a null result is kept meanwhile."""
    with entry_function(module, "unlock", "plan", "result") as b:
        plan, result = b.args
        error = b.cast("ptrtoint", b.alloca("i64", 3), "i64")
        is_error = b.eq(result, 0)
        with b.if_(is_error):
            keep_error(b, error)
        b.drop(b.api("PyObject_CallNoArgs", b.word(plan, Word.RELEASE)))
        with b.if_(is_error):
            raise_kept(b, error)
        b.answer(1)


def _define_with_record(module: Module) -> None:
    """The same as `with_places`, with what a call has kept behind what is given now."""
    with entry_function(module, "with_record", "plan", "args") as b:
        plan, args = b.args
        words = b.word(plan, Word.RECORDED_AT)
        with b.if_(b.eq(words, 0)):
            b.answer(b.call("with_places", "i64", plan, args))
        _go_long_way_unless(b, plan, b.ne(b.call("take_kept", "i64", plan, args), 0))
        kept = b.word(b.add(b.word(args), b.word(words, Recorded.KEPT)))
        b.own(kept)  # another thread may run this backward, and free it
        result = b.call("with_places", "i64", plan, b.word(words, Recorded.ROOM_AT))
        b.drop(kept)
        b.answer(result)


def _define_with_places(module: Module, layout: Layout) -> None:
    """The same as `locked`, with what is in places beside the arguments, or all that Python finds.

    An exception in Python, such as an interrupt, comes before anything has happened.
    """
    with entry_function(module, "with_places", "plan", "args") as b:
        plan, args = b.args
        with b.if_(b.ne(b.word(plan, Word.GATHER), 0)):
            given = b.word(plan, Word.GIVEN_COUNT)
            found = b.api("PyObject_Vectorcall", b.word(plan, Word.GATHER), args, given, 0)
            b.require(b.ne(found, 0))
            is_other = b.ne(b.field(found, layout.kind), b.word(plan, Word.TUPLE))
            with b.if_(is_other):
                b.drop(found)
            _go_long_way_unless(b, plan, b.not_(is_other))
            gathered = b.word(plan, Word.GATHERED_AT)
            with b.loop(0, b.word(plan, Word.ARGUMENT_COUNT)) as loop:
                b.set_word(gathered, loop.index, b.api("PyTuple_GetItem", found, loop.index))
            result = b.call("locked", "i64", plan, gathered)
            b.drop(found)
            b.answer(result)
        with b.if_(b.eq(b.word(plan, Word.PLACES), 0)):
            b.answer(b.call("locked", "i64", plan, args))
        _go_long_way_unless(b, plan, b.ne(b.call("gather", "i64", plan, args), 0))
        result = b.call("locked", "i64", plan, b.word(plan, Word.GATHERED_AT))
        b.call("release", "i64", plan)
        b.answer(result)


def _define_locked(module: Module, layout: Layout) -> None:
    """A call's result, or `SLOW_PATH`, or null with an exception."""
    _define_take(module)
    _define_fits(module, layout)
    with entry_function(module, "locked", "plan", "args") as b:
        plan, args = b.args
        _go_long_way_unless(b, plan, b.ne(b.call("take", "i64", plan), 0))
        fits = b.ne(b.call("fits", "i64", plan, args), 0)
        with b.if_(b.not_(fits)):
            b.api("PyList_Append", b.word(plan, Word.FREE), b.word(plan, Word.BUFFERS))
        _go_long_way_unless(b, plan, fits)
        with b.if_else(b.ne(b.word(plan, Word.SPARES), 0)) as branch:
            with branch.then():
                found = b.call("batch", "i64", plan)
            with branch.otherwise():
                pass
        batch = branch.merge(found, const("i64", 0))
        held, count = b.word(plan, Word.HELD_AT), b.word(plan, Word.ARGUMENT_COUNT)
        with b.loop(0, count) as loop:
            b.own(b.word(held, loop.index))
        sized = b.word(plan, Word.SIZED)
        b.own(sized)
        code = b.call("run", "i64", plan)
        with b.loop(0, count) as loop:
            b.drop(b.word(held, loop.index))
        with b.if_else(b.ne(code, 0)) as branch:
            with branch.then():
                failed = b.call("fails", "i64", plan, batch, code)
            with branch.otherwise():
                finished = b.call("finish", "i64", plan, args, batch)
        result = branch.merge(failed, finished)
        b.drop(sized)
        # Last: what an error is, and what calls of Python have found, is there.
        b.api("PyList_Append", b.word(plan, Word.FREE), b.word(plan, Word.BUFFERS))
        interrupt = b.word(plan, Word.INTERRUPT_AT)
        with b.if_(b.ne(interrupt, 0)), b.if_(b.ne(b.word(interrupt), 0)):
            b.drop(result)
            raise_kept(b, interrupt)
            b.answer(0)
        b.answer(result)


def _define_take(module: Module) -> None:
    """Take the buffers, if they are free and ready."""
    with entry_function(module, "take", "plan") as b:
        (plan,) = b.args
        words, free = b.word(plan, Word.BUFFERS_AT), b.word(plan, Word.FREE)
        b.require(b.ne(b.word(words, IS_READY), 0))
        b.require(b.ne(b.word(b.word(plan, Word.IS_OPEN_AT)), 0))
        with b.loop(0, b.api("PyList_Size", free)) as loop:
            found = b.api("PyList_GetItem", free, loop.index)
            with b.if_(b.eq(found, b.word(plan, Word.BUFFERS))):
                b.api("PyList_SetSlice", free, loop.index, b.add(loop.index, 1), 0)
                b.set_word(words, IS_TOUCHED, 1)
                b.answer(1)
        b.answer(0)


def _define_fits(module: Module, layout: Layout) -> None:
    """Whether the program serves this call, and what else it needs is there: threads, memory."""
    with entry_function(module, "fits", "plan", "args") as b:
        plan, args = b.args
        awake = b.word(plan, Word.AWAKE_AT)
        with b.if_(b.ne(awake, 0)):
            b.require(b.ne(b.word(awake), 0))
        with b.if_(b.ne(b.word(plan, Word.ASKS_USER), 0)):
            b.require(b.ne(b.call("arguments", "i64", plan, args), 0))
        for guard in ("here", "holds", "are_leaves", "numbers"):
            b.require(b.ne(b.call(guard, "i64", plan), 0))
        b.require(b.ne(b.call("sizes", "i64", plan, args), 0))
        begin = b.word(plan, Word.BEGIN)
        with b.if_(b.ne(begin, 0)):
            begun = b.api("PyObject_CallNoArgs", begin)
            b.require_made(begun)
            b.drop(begun)
        spares = b.word(plan, Word.SPARES)
        with b.if_(b.ne(spares, 0)), b.if_(b.eq(b.api("PyList_Size", spares), 0)):
            filled = b.api("PyObject_CallNoArgs", b.word(plan, Word.FILL))
            b.require_made(filled)
            b.drop(filled)
        b.require(b.ne(b.call("arguments", "i64", plan, args), 0))
        with b.if_(b.eq(spares, 0)):
            b.answer(1)
        count = b.api("PyList_Size", spares)
        b.require(b.ne(count, 0))
        spare = b.api("PyList_GetItem", spares, b.sub(count, 1))
        b.answer(
            b.cast("zext", b.ne(b.field(spare, layout.batch_words), b.word(plan, Word.NONE)), "i64")
        )


def _go_long_way_unless(b: EntryBuilder, plan: Val, condition: Val) -> None:
    """An exception of a guard's is raised again there, if at all, but an interrupt is now."""
    with b.if_(b.not_(condition)):
        with b.if_(b.ne(b.api("PyErr_Occurred"), 0)):
            matches = b.call("PyErr_ExceptionMatches", "i32", b.word(plan, Word.EXCEPTION))
            b.require(b.ne(matches, const("i32", 0)))
            b.api("PyErr_Clear")
        long_way = b.word(plan, Word.SLOW_PATH)
        b.own(long_way)
        b.answer(long_way)


def _define_fails(module: Module) -> None:
    """Raise what the step found, and undo what was taken for it."""
    with entry_function(module, "give_back", "plan", "batch") as b:
        plan, batch = b.args
        with b.if_(b.ne(batch, 0)):
            b.api("PyList_Append", b.word(plan, Word.SPARES), batch)
            b.drop(batch)
        b.answer(0)
    with entry_function(module, "fails", "plan", "batch", "code") as b:
        plan, batch, code = b.args
        with b.if_(b.eq(code, RAISED)):
            b.call("give_back", "i64", plan, batch)
            b.answer(0)
        drop_arrays(b, plan)
        b.call("give_back", "i64", plan, batch)
        b.answer(b.api("PyObject_CallNoArgs", b.word(plan, Word.RAISE)))


def _define_finish(module: Module, layout: Layout) -> None:
    """What happens after a step that succeeded."""
    with entry_function(module, "count_on", "place", "increment") as b:
        place, increment = b.args
        before = b.word(place)
        now = b.api("PyNumber_Add", before, increment)
        b.require(b.ne(now, 0))
        b.set_word(place, 0, now)
        b.drop(before)
        b.answer(1)
    with entry_function(module, "finish", "plan", "args", "batch") as b:
        plan, args, batch = b.args
        with b.if_(b.ne(batch, 0)):
            b.call("leave", "i64", plan, batch)
        with records(b, plan, Word.COUNTERS, 2) as record:
            counted = b.call("count_on", "i64", b.word(record), b.word(record, 1))
            b.require(b.ne(counted, 0))
        with records(b, plan, Word.FOUND_COUNTERS, 2) as record:
            counter = b.field(b.word(args, b.word(record)), layout.tensor_counter)
            place = b.add(counter, layout.counter_now)
            b.require(b.ne(b.call("count_on", "i64", place, b.word(record, 1)), 0))
        calls = b.word(plan, Word.CALLS_AT)
        b.set_word(calls, 0, b.add(b.word(calls), 1))
        b.answer(b.call("result", "i64", plan, args))
