"""Version counters that a step reads: numbers that each call finds."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

from lucid.compiler.inputs.cells import GradUse
from lucid.compiler.inputs.signature import Call
from lucid.compiler.inputs.views import base_of
from lucid.compiler.results.outcomes import leaf_of
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import VersionCounter

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

Target = int | GradUse
"""An argument by its position, or a gradient that a call finds."""


class Versions:
    """The versions that a trace has read: live numbers, and what it has added to them.

    Attributes:
        given: the arguments that counters belong to, by position.
        targets: whose versions a call enters after its own numbers.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self.count = len(call.floats)
        self.given: dict[VersionCounter, int] = {}
        self.targets: list[Target] = []
        self._numbers: dict[VersionCounter, Any] = {}

    def of(self, tensor: TensorCore, recorder: Recorder) -> int:
        """The version by now: a plain number for what the step makes."""
        counter = tensor._counter
        if counter not in self._numbers:
            self._numbers[counter] = self._number(tensor, recorder)
        number = self._numbers[counter]
        if number is None:
            return counter.value
        moved = counter.value - counter.now
        return cast(int, number + moved if moved else number)

    def _number(self, tensor: TensorCore, recorder: Recorder) -> Any:
        """The live number that each call finds; None for a counter of the step's own."""
        counter = tensor._counter
        target: Target | None = self.given.get(counter)
        if target is None:
            for use in recorder.grads.values():
                if use.original is not None and use.original._counter is counter:
                    target = use
        text = recorder.unused_text("_version")
        if target is not None:
            self.targets.append(target)
            self._call.floats.append(counter.now)
            place = self.count + len(self.targets) - 1
            return recorder.live_scalar(text, counter.now, operator.itemgetter(place))
        cells = recorder.cells.values()
        is_known = any(cell.kind == "state" and cell.counter is counter for cell in cells)
        if not is_known and not recorder.is_outside(base_of(tensor)):
            return None
        return recorder.live_scalar(
            text, counter.now, lambda call: counter.now, lambda: counter.now
        )


class VersionsFound:
    """Enters the versions that a program reads among the numbers of a call."""

    def __init__(self, versions: Versions) -> None:
        self._count = versions.count
        self._targets = list(versions.targets)

    def __bool__(self) -> bool:
        return bool(self._targets)

    def enter(self, call: Call) -> None:
        found = [_version(target, call) for target in self._targets]
        call.floats = [*call.floats[: self._count], *found]


def _version(target: Target, call: Call) -> int:
    tensor = leaf_of(target, call)._grad if isinstance(target, GradUse) else call.tensors[target]
    return 0 if tensor is None else tensor._counter.now  # without a gradient the program won't do
