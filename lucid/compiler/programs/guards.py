"""What must hold for a program to serve a call of its signature."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Iterator
from typing import Any

from lucid.compiler.guards.guard import (
    ABSENT,
    AnswerGuard,
    ClassAttributes,
    ContentsGuard,
    EntryGuard,
    FieldGuard,
    Guard,
    brief,
)
from lucid.compiler.inputs.objects import SCALARS
from lucid.compiler.inputs.signature import Call
from lucid.compiler.recording.trace import Trace
from lucid.compiler.results.gradients import grad_failure, shared_gradients
from lucid.ir.location import Location
from lucid.tensor.context import epoch
from lucid.tensor.core import attributes_of
from lucid.tensor.storage import Storage


class Guards:
    """The guards of one program, arranged so that one call's look at them costs little.

    Native code looks at the same tables.

    Attributes:
        guards: of the Python values that the program is specialized on.
        cells: closures' cells, with what must be in each.
        entries: dict, key and what must be there, or ABSENT; `items`: the same of lists.
        fields: object, name of the field and what it must hold.
        lengths: containers with the number of their entries.
        others: all else that each call looks at.
        formulas: what the trace asked live numbers.
        grads_read: the gradients that it reads.
        asked: the attributes that no tensor may have that it is given.
        pinned: the tensor arguments that are its state, by position.
        state: the memory of its state, which no other argument may be on.
        epoch: the count at which the gated ones were last known to hold.
    """

    def __init__(self, trace: Trace) -> None:
        self.guards = trace.guards
        self.cells: list[tuple[Any, Any]] = []
        self.entries: list[tuple[dict[Any, Any], Any, Any]] = []
        self.items: list[tuple[Any, Any, Any]] = []
        self.fields: list[tuple[Any, str, Any]] = []
        self.lengths: list[tuple[Any, int]] = []
        self.others: list[Guard] = []
        self._gated = [guard for guard in self.guards if guard.gated]
        for guard in self.guards:
            if not guard.gated:
                self._enter(guard)
        self.formulas = trace.formulas
        self.grads_read = trace.grads_read
        self._grads_shared = trace.grads_shared
        self.pinned = trace.pinned
        self.state: set[Storage] = {c.storage for c, _ in trace.cells if c.kind == "state"}
        self.epoch = epoch.count
        self.asked = trace.asked
        self._keys = trace.keys
        self._side_effects = trace.side_effects
        self._is_own = trace.side_effects is not None and trace.side_effects.keeps_guards

    def _enter(self, guard: Guard) -> None:
        if isinstance(guard, AnswerGuard) and guard.ask is len:
            self.lengths.append((guard.args[0], guard.expected))
        elif isinstance(guard, FieldGuard):
            self.fields.append((guard.owner.of, guard.key, guard.expected))
        elif isinstance(guard, ContentsGuard) and _is_of_objects(guard):
            self.lengths.append((guard.owner, len(guard.expected)))
            self.items += [(guard.owner, i, item) for i, item in enumerate(guard.expected)]
        elif isinstance(guard, EntryGuard):
            self._enter_entry(guard, guard.owner)
        else:
            self.others.append(guard)

    def _enter_entry(self, guard: EntryGuard, owner: Any) -> None:
        if isinstance(owner, ClassAttributes):
            owner = _dict_of(owner.of)
        if isinstance(owner, dict):
            self.entries.append((owner, guard.key, guard.expected))
        elif guard.expected is ABSENT or type(owner) not in (list, types.CellType):
            self.others.append(guard)
        elif type(owner) is list:
            self.items.append((owner, guard.key, guard.expected))
        else:
            self.cells.append((owner, guard.expected))

    def failure(self, call: Call) -> str | None:
        """Why they don't hold any more for a call; None if they do."""
        return next(filter(None, self._failures(call)), None)

    def _failures(self, call: Call) -> Iterator[str | None]:
        """What fails, in the order of looking at it; None for what holds."""
        yield self._failure_of_places(call)
        if not self._hold():
            yield _first_failure(guard for guard in self.guards if not guard.gated)
        for question in self.formulas:
            yield question.failure(call.floats)
        for use in self.grads_read:
            yield grad_failure(use, call, self.state)
        if self.grads_read and shared_gradients(self.grads_read, call) != self._grads_shared:
            yield "gradients: others share memory, with one another or with arguments"
        yield self._failure_of_state(call)
        yield self.gated_failure()

    def place_of_failure(self) -> Location | None:
        """The user's line that first read what has changed; None where it isn't known."""
        return next((guard.place() for guard in self.guards if not guard.holds()), None)

    def _hold(self) -> bool:
        """Whether all do that each call looks at; an equal number may be taken for another one."""
        try:
            for cell, expected in self.cells:
                if cell.cell_contents is not expected:
                    return False
            for owner, key, expected in self.items:
                if owner[key] is not expected:
                    return False
        except (ValueError, IndexError):
            return False
        get = dict.get
        for owner, key, expected in self.entries:
            if get(owner, key, ABSENT) is not expected:
                return False
        for owner, name, expected in self.fields:
            now = type(owner) if name == "__class__" else getattr(owner, name)
            if now is not expected:
                return False
        for owner, length in self.lengths:
            if len(owner) != length:
                return False
        return all(guard.holds() for guard in self.others)

    def _failure_of_places(self, call: Call) -> str | None:
        if self._side_effects is not None:
            call.take(self._side_effects.values())
            for place, value, key, expected in zip(
                self._side_effects.read, call.values, call.keys, self._keys, strict=True
            ):
                if key != expected:
                    return f"{place.path}: another kind of value, {brief(value)}"
        return None

    def _failure_of_state(self, call: Call) -> str | None:
        """Whether the same arguments are state of the step, and others have nothing bound to them.

        That is, nothing that the step has looked for.
        """
        pinned, given = self.pinned, call.given_count
        for position, tensor in enumerate(call.tensors):
            expected = pinned.get(position)
            if expected is None:
                if tensor._storage in self.state:
                    return f"argument {position}: it is state of the step now"
                for name in self.asked and self.asked & attributes_of(tensor).keys():
                    return f"argument {position}: .{name} is bound to it"
            elif tensor is not expected and (
                tensor._storage is not expected._storage
                or (position < given and tensor._counter is not expected._counter)
                or tensor._chain != expected._chain
                or tensor.requires_grad
                or attributes_of(tensor)
                or attributes_of(expected)
            ):
                return f"argument {position}: another tensor than the step's state"
        return None

    def gated_failure(self) -> str | None:
        """The same for those that move the epoch, which are looked at when it has moved."""
        now = epoch.count
        failure = None if now == self.epoch else _first_failure(self._gated)
        if failure is None:
            self.epoch = now
        return failure

    def follow_epoch(self, before: int) -> bool:
        """Take note that binding places has moved the epoch; whether the guards hold still."""
        if self.epoch == before and self._is_own:
            self.epoch = epoch.count
        return self.epoch == epoch.count


def _is_of_objects(guard: ContentsGuard) -> bool:
    """Whether it is a list of objects, such as parameters: each is compared by what it is."""
    is_list = type(guard.owner) is list and not guard.apart
    return is_list and not any(isinstance(item, SCALARS) for item in guard.expected)


def _first_failure(guards: Iterable[Guard]) -> str | None:
    """Why the first guard that doesn't hold fails; None if all hold."""
    return next((guard.failure() for guard in guards if not guard.holds()), None)


def _dict_of(kind: Any) -> Any:
    """The dict of a class's attributes, which Python shows as a read-only mapping."""
    found = [x for x in gc.get_referents(vars(kind)) if type(x) is dict]
    return found[0] if len(found) == 1 else vars(kind)
