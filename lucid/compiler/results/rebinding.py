"""Places that a step binds anew: attributes, entries of containers, variables, a tensor's memory.

What such a place holds at the end of the step is one more result of it, which each call puts there.
If it held tensors or numbers at the start, they are one more argument, which each call reads there.
With its places as arguments and results the recorded function has no hidden state.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.compiler.inputs.objects import data_of
from lucid.compiler.inputs.scalars import is_live
from lucid.compiler.inputs.signature import Call
from lucid.compiler.inputs.tree import map_tree
from lucid.compiler.inputs.watches import (
    ABSENT,
    SCALARS,
    AnyWatch,
    LengthWatch,
    SetWatch,
    brief,
    is_number,
)
from lucid.compiler.results.parts import replaced, visit_parts
from lucid.compiler.surroundings.argument_places import OfArgument
from lucid.compiler.surroundings.logs import IsRead, Log, can_be_log
from lucid.compiler.surroundings.places import (
    Contents,
    Flag,
    Identity,
    Members,
    Memory,
    MovingNumber,
    OfTensor,
    Place,
    place_of,
)
from lucid.ir.errors import TraceError
from lucid.ir.types import DType
from lucid.tensor.claims import TRACING, Keys
from lucid.tensor.core import TensorCore
from lucid.tensor.tensor import Tensor

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder
    from lucid.compiler.surroundings.environment import Environment

VALUES = "~places"  # the name of an argument, the last one; no parameter can have it


_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


class Rebinds(BaseException):
    """The step binds places that hold its state: the trace starts again, with them as arguments.

    No `Exception`, so that a program that is being traced doesn't catch it.
    """

    def __init__(self, places: list[Place]) -> None:
        self.places = places


def holds_state(value: Any) -> bool:
    """Whether a value is a container, or has tensors, numbers or plain data in it."""
    found = [isinstance(value, (list, deque, dict))]

    def look(leaf: Any, _: str) -> None:
        found.append(isinstance(leaf, TensorCore) or is_number(leaf) or data_of(leaf) is not None)

    map_tree(look, value)
    return any(found)


class Rebinding:
    """A function with the places that it binds as further arguments and results.

    Attributes:
        read: the places whose state is an argument.
        logs: those that are written, and not looked at.
        bound: the places that get a new value.
        numbers: places that hold numbers, and that it only reads.
        found: identities of objects that it found and returns or keeps.
    """

    def __init__(
        self, function: Callable[..., Any], known: Iterable[Place], no_logs: Iterable[Identity] = ()
    ) -> None:
        self.function = function
        self.read: list[Place] = []
        self.logs: list[Log] = []
        self.bound: list[Place] = []
        self.numbers: list[MovingNumber] = []
        self.found: frozenset[int] = frozenset()
        self._is_in_arguments = False
        self._known: set[Identity] = set(no_logs)
        self._before: list[Any] = []
        self._given: list[Any] = []
        for place in known:
            if isinstance(place, MovingNumber):
                if is_number(place.found()):
                    self.numbers.append(place)
                continue
            self._known.add(place.identity)
            if isinstance(place, Log):
                self.logs.append(place)
                continue
            value = place.found()
            if holds_state(value):
                self.read.append(place)
                self._before.append(value)

    @property
    def of_arguments(self) -> list[OfArgument]:
        """Those of the places that are in arguments."""
        return [place for place in self.bound if isinstance(place, OfArgument)]

    @property
    def is_empty(self) -> bool:
        return not self.read and not self.bound

    @property
    def unwatched(self) -> frozenset[Identity]:
        """What the guards of the step need not look at."""
        return frozenset(place.identity for place in (*self.read, *self.logs, *self.numbers))

    @property
    def keeps_guards(self) -> bool:
        """Whether binding the places leaves what is watched as it is."""
        return all(place.identity in self.unwatched for place in self.bound)

    @property
    def claims(self) -> Keys:
        """What other threads may not do meanwhile: work with the owners of the places, or trace.

        A trace has stand-ins in its places.
        """
        places = (*self.read, *self.bound)
        owners = {place.identity[0] for place in places if not _is_given(place)}
        return frozenset({TRACING, *owners})

    def values(self) -> list[Any]:
        """What the places hold now."""
        return [place.found() for place in self.read]

    # ------------------------------------------------------------------ while tracing

    def enter(self, values: Sequence[Any], recorder: Recorder) -> None:
        """Put what stands for the arguments into the places, and what stands for logs."""
        environment = recorder.environment
        assert environment is not None
        for log in self.logs:
            log.note_holders(environment.watches, environment.functions())
            log.enter(recorder)
        recorder.logs = self.logs
        for number in self.numbers:
            number.enter(recorder)
        for place, value in zip(self.read, values, strict=True):
            place.put(value)
            self._given.append(value)

    def without_stand_ins(self, result: Any) -> Any:
        """A result with the logs themselves where what stands for them is returned."""
        stand_ins = {id(log.stand_in): log.owner for log in self.logs}
        return replaced(result, stand_ins) if stand_ins else result

    def leave(
        self,
        environment: Environment,
        recorder: Recorder,
        of_arguments: Sequence[tuple[Place, Any]],
    ) -> list[Any]:
        """Find what was bound and to what; then put everything back.

        of_arguments: what was changed in arguments, and to what.

        Raises: `Rebinds`, `IsRead`, `TraceError` for what can't be made again at each call.
        """
        bound_numbers = [number for number in self.numbers if not number.leave()]
        written = [(log, ops) for log in reversed(self.logs) if (ops := log.leave())]
        given = zip(self.read, self._given, strict=True)
        self.bound = [place for place, value in given if not place.holds(value)]
        known = {place.identity for place in self.read}
        of_tensors = [pair for pair in _set_properties(recorder) if pair[0].identity not in known]
        changed = [*environment.changes(), *of_tensors]
        self.bound += [place for place, _ in changed]
        finals = [place.found() for place in self.bound]
        recorder.restore_properties()
        self.put_back()
        environment.put_back()
        self.refuse_numbers(bound_numbers)
        self._take_up(changed)
        environment.accept_arguments((*recorder.given, *recorder.containers))
        self.bound += [log for log, _ in written]
        finals += [ops for _, ops in written]
        self._is_in_arguments = bool(of_arguments)
        self.bound += [place for place, _ in of_arguments]
        finals += [value for _, value in of_arguments]
        self._check(finals, environment)
        self._check_growth(finals, recorder, environment)
        return finals

    def _take_up(self, changed: list[tuple[Place, Any]]) -> None:
        """Raise `Rebinds` where there are places that the trace must know from its start."""
        new: list[Place] = []
        for place, before in changed:
            is_new = place.identity not in self._known
            if is_new and isinstance(place, (Contents, Members)) and can_be_log(place.owner):
                new.append(Log(place.path, place.owner))
            elif holds_state(before) and not _is_given(place):
                new.append(place)
        if new:
            raise Rebinds(new)

    def refuse_numbers(self, numbers: Sequence[MovingNumber]) -> None:
        """Raise `Rebinds` for numbers that are state of the step after all."""
        if numbers:
            raise Rebinds([place_of(number) for number in numbers])

    def take_up_logs(self, watches: Iterable[AnyWatch], written: Mapping[int, Any]) -> None:
        """Raise `Rebinds` for lists that host calls write and the traced code may have read.

        Whether it has will be seen; as long as it may have, each length is another trace.
        """
        lists = [x for x in watches if isinstance(x, (LengthWatch, SetWatch))]
        new = [
            Log(watch.path, watch.owner, of_host=True)
            for watch in lists
            if id(watch.owner) in written and can_be_log(watch.owner)
        ]
        new = [log for log in new if log.identity not in self._known]
        if new:
            raise Rebinds([*new])

    def put_back(self) -> None:
        """Take what stood for the arguments out of the places again."""
        self._leave_logs()
        for number in self.numbers:
            number.leave()
        if self._given:
            for place, value in zip(self.read, self._before, strict=True):
                place.put(value)
        self._given = []

    def _leave_logs(self) -> None:
        for log in reversed(self.logs):
            with suppress(IsRead):
                log.leave()

    def forget(self) -> None:
        """Let go of what the places held while the step was traced."""
        self._before = []
        for place in self.bound:
            if _is_given(place):
                place.owner = None

    def _check(self, finals: list[Any], environment: Environment) -> None:
        """Raise for what would be shared by all calls."""
        for place, final in zip(self.bound, finals, strict=True):
            check = partial(_check_leaf, environment, place.path)
            for value in _kept(place, final):
                visit_parts(check, value, place.path, environment.knows)

    def _check_growth(
        self, finals: list[Any], recorder: Recorder, environment: Environment
    ) -> None:
        """Raise for a list that gets longer with each call, without being read."""
        grown = [
            (place, before)
            for place, final in zip(self.bound, finals, strict=True)
            for known, before in zip(self.read, self._before, strict=True)
            if isinstance(place, Contents)
            and known is place
            and not place.is_looked_at
            and 0 < len(before) < len(final)
        ]
        if not grown:
            return
        used = {operand for node in recorder.graph.nodes for operand in node.operands}
        read = {entry.source for entry in recorder.graph.inputs if entry.value in used}
        for place, before in grown:
            if not any(source.startswith(place.path) for source in read):
                raise TraceError(
                    f"the {type(place.owner).__name__} {place.path} gets longer with every call, "
                    f"{len(before)} by now, and the step doesn't read what is in it: each length "
                    "would be traced anew"
                    f"{environment.binding_lines(place.path)}\n"
                    "hint: return the tensor, and append it outside of the compiled function"
                )

    # ------------------------------------------------------------------ calling

    def deliver(self, finals: Sequence[Any], call: Call) -> None:
        """Bind the places after a call."""
        if self._is_in_arguments:
            call.owners()  # before any of them changes
        for place, value in zip(self.bound, finals, strict=True):
            place.bind(value, call)


def _kept(place: Place, final: Any) -> Iterator[Any]:
    """The values that stay in a place."""
    if isinstance(place, Log):
        for _, args in final:
            yield from args
    else:
        yield final


def _is_given(place: Place) -> bool:
    """Whether it is in an argument, or a property of one: each call has another."""
    return isinstance(place, OfArgument) or (isinstance(place, OfTensor) and place.position >= 0)


def _set_properties(recorder: Recorder) -> list[tuple[Place, Any]]:
    """The flags and the memory of tensors that the step set, with what they were."""
    environment = recorder.environment
    assert environment is not None
    names = {id(tensor): path for path, tensor in environment.tensors()}
    found: list[tuple[Place, Any]] = []
    for tensor, flag in recorder.flags.values():
        name, position = names.get(id(tensor), "a tensor"), recorder.positions.get(id(tensor), -1)
        if tensor._requires_grad != flag:
            found.append((Flag(f"{name}.requires_grad", tensor, position), flag))
    for tensor, before in recorder.memories.values():
        name, position = names.get(id(tensor), "a tensor"), recorder.positions.get(id(tensor), -1)
        place = Memory(f"{name}.data", tensor, position)
        if not place.holds(before):
            found.append((place, before))
    return found


def _check_leaf(environment: Environment, place: str, leaf: Any, path: str) -> None:
    """Raise for what can't be made at each call, somewhere in what is bound to a place."""
    kept = (*SCALARS, *_CODE, type, DType, complex, range, slice)
    if is_live(leaf) or isinstance(leaf, kept) or leaf is ABSENT or environment.knows(leaf):
        return
    if isinstance(leaf, TensorCore):
        if type(leaf) is not Tensor and leaf._array is None:
            _refuse(f"a new {type(leaf).__name__} is kept in {path}", place, environment)
        return
    what = "an array" if isinstance(leaf, np.ndarray) else f"an object of {type(leaf).__name__}"
    what = f"{what} that the step made, {brief(leaf)}, is kept in {path}"
    _refuse(what, place, environment)


def _refuse(what: str, path: str, environment: Environment) -> None:
    raise TraceError(
        f"{what}, which can't be made again at each call{environment.binding_lines(path)}\n"
        "hint: keep tensors, numbers, and lists, tuples or dicts of them; or make the object "
        "before the step and set what is in it"
    )
