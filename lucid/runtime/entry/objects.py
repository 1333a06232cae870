"""New objects that native code makes: copies of templates."""

from __future__ import annotations

from lucid.codegen.llvm.builder import Module, Val
from lucid.runtime.entry.words import Layout, entry_function


def define_tensor(module: Module, layout: Layout) -> None:
    """A tensor that owns an array, whose reference it takes over."""
    _define_instance(module)
    with entry_function(module, "tensor", "record", "array") as b:
        record, array = b.args
        parts: list[Val] = []
        for template in (1, 2, 3):
            made = b.call("instance", "i64", b.word(record, template))
            with b.if_(b.eq(made, 0)):
                for part in (*parts, array):
                    b.drop(part)
                b.answer(0)
            parts.append(made)
        storage, counter, tensor = parts
        b.own(array)
        b.set_field(storage, layout.storage_array, array)
        b.set_field(tensor, layout.tensor_array, array)
        b.set_field(tensor, layout.tensor_storage, storage)
        b.set_field(tensor, layout.tensor_counter, counter)
        b.answer(tensor)


def _define_instance(module: Module) -> None:
    """A new object like a template, by the words of it that are to be copied."""
    with entry_function(module, "instance", "record") as b:
        (record,) = b.args
        make = b.cast("inttoptr", b.word(record), "ptr").name
        made = b.emit("i64", f"call i64 {make}({b.word(record, 1)}, {b.word(record, 2)}, i64 0)")
        b.require(b.ne(made, 0))
        template, offsets = b.word(record, 3), b.word(record, 5)
        with b.loop(0, b.word(record, 4)) as loop:
            offset = b.word(offsets, loop.index)
            value = b.word(b.add(template, offset))
            b.own(value)
            b.set_word(b.add(made, offset), 0, value)
        b.answer(made)
