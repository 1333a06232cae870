"""What a backward is given as an argument, and the step that it belongs to finds elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid.compiler.inputs import sources
from lucid.compiler.inputs.signature import Call
from lucid.compiler.inputs.sources import Source

if TYPE_CHECKING:
    from lucid.compiler.results.results import Before, Rest


def found_elsewhere(before: Before, rest: Rest, call: Call, count: int) -> dict[Source, Source]:
    """By what it is for the backward, what it is for the step.

    That is the memory which the step has written, whose contents are kept, and hyper-parameters.

    Args:
        call: of the backward; count: the first of its arguments, which are those of the step.
    """
    written = zip(rest.state, before.written, strict=True)
    kept = {id(content): storage for content, (storage, _) in written}
    found = {
        sources.argument(i): sources.state(kept[id(x)])
        for i, x in enumerate(call.tensors)
        if i >= count and id(x) in kept
    }
    entries = [
        sources.hyper_parameter(owner, key, index)
        for (owner, key), value in zip(before.entries, rest.numbers, strict=False)
        for index, item in (enumerate(value) if isinstance(value, tuple) else [(-1, value)])
        if type(item) is float
    ]
    first = len(call.floats) - len(entries)  # they come last
    return found | {sources.number(first + i): entry for i, entry in enumerate(entries)}
