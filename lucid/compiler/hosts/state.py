"""What host code can reach besides its arguments: Python state, and tensors from outside."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from lucid.autograd.host_world import Changes, State
from lucid.compiler.inputs.watches import (
    AnyWatch,
    ArrayWatch,
    LengthWatch,
    SetWatch,
    Watch,
    is_same,
)
from lucid.compiler.surroundings.codes import Executed, executed_codes
from lucid.compiler.surroundings.environment import Environment
from lucid.compiler.surroundings.generators import Generators
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.graph import Node, Value


class Surroundings:
    """The surroundings of one host call, while it is recorded.

    Attributes:
        values: what the trace has written to tensors from outside by now, to be lent to the call.
    """

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        methods: Sequence[Callable[..., Any]],
        objects: Sequence[Any],
    ) -> None:
        self._recorder = recorder
        self._name = name
        named = {f"argument {i}": x for i, x in enumerate(objects) if not isinstance(x, TensorCore)}
        self._environments = [Environment(method, named) for method in methods]
        self._tensors: list[TensorCore] = []
        self._states: list[State] = []
        self.values: list[Value] = []

    def states(self, first: int) -> list[State]:
        """The tensors within reach; `first` is the number of the first operand that is one."""
        for path, tensor in self._reached():
            storage = tensor._storage
            array = storage.array
            known = any(state.storage is storage for state in self._states)
            if array is None or known or not array.flags.writeable:
                continue
            state = State(storage, tensor._counter, path)
            cell = self._recorder.cells.get(storage)
            if cell is not None and (cell.kind == "replaced" or storage.value is not cell.value):
                assert storage.value is not None
                state.given = first + len(self.values)
                self.values.append(storage.value)
            state.result = len(self._states)  # until it is known what the call changes
            self._states.append(state)
            self._tensors.append(tensor)
        return self._states

    def _reached(self) -> Iterator[tuple[str, TensorCore]]:
        from lucid.random import Generator, default_generator

        yield "the state of lucid's random generator", default_generator.state
        for environment in self._environments:
            yield from environment.tensors()
            for path, value in environment.library_objects:
                if isinstance(value, Generator):
                    yield f"{path}.state", value.state
        yield from OptimizerStates(self._environments).tensors()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Undo what the block changes in Python: it is an evaluation more than eager has.

        Objects hold until the trace ends what the block left, which code that follows may read.
        The trace is suspended: another one may run inside, on the same tensors.
        """
        profile = sys.getprofile()
        suspended = [(s, s.value, s.generation) for s in self._recorder.cells]
        for storage, _, _ in suspended:
            storage.value = storage.recorder = None
        optimizers = OptimizerStates(self._environments)
        generators = Generators(
            [generator for found in self._environments for generator in found.generators],
            [name for found in self._environments for name in found.drawing],
        )
        if callable(profile):  # as that of the trace is; one in C, such as cProfile, isn't
            sys.setprofile(None)
        ran = Executed()
        logs = [(log, log.copy()) for log in self._recorder.logs]
        try:
            with self._recorder.iterators.ignoring_moves(), executed_codes(ran):
                yield
        except BaseException:
            for environment in self._environments:
                environment.put_back()
            for log, before in logs:
                log.restore(before)
            raise
        else:
            changes = PythonChanges(self._name, self._environments)
            self._recorder.hosts.undo.append(changes)
            self._recorder.hosts.written |= changes.written()
            for log, before in logs:
                log.note_host(self._name, before)
        finally:
            if callable(profile):
                sys.setprofile(profile)
            for storage, value, generation in suspended:
                storage.value, storage.generation = value, generation
                storage.recorder = self._recorder
            generators.put_back(ran)
            optimizers.put_back()

    def settle(self, changes: Changes, lent: Sequence[np.ndarray]) -> list[int]:
        """Find which tensors the call changed: only their contents are results of it.

        lent: the operands of the call.
        """
        changed = []
        for number, state in enumerate(self._states):
            before = state.storage.array if state.given is None else lent[state.given]
            assert before is not None
            after = changes.contents[number]
            is_same = not changes.moved[number] and after.tobytes() == before.tobytes()
            state.result = None if is_same else number
            if is_same:
                del changes.contents[number]
            else:
                changed.append(number)
        return changed

    def note_changes(self, node: Node, changed: Sequence[int], changes: Changes) -> None:
        """Let the trace know what the call, which has been recorded, left in tensors."""
        recorder = self._recorder
        results = node.results[len(node.results) - len(changed) :]
        for number, value in zip(changed, results, strict=True):
            tensor = self._tensors[number]
            recorder.value_of(tensor)  # makes it a cell
            tensor._storage.value = value
            tensor._storage.generation += 1
            recorder.note_counter(tensor._counter)
            tensor._counter.value += changes.moved[number]


class OptimizerStates:
    """What optimizers within reach keep for their parameters; a step makes it when it is needed."""

    def __init__(self, environments: Sequence[Environment]) -> None:
        from lucid.optim.optimizer import Optimizer

        found = (entry for environment in environments for entry in environment.library_objects)
        self._before = [
            (path, value.state, {key: dict(entry) for key, entry in dict.items(value.state)})
            for path, value in found
            if isinstance(value, Optimizer)
        ]

    def tensors(self) -> Iterator[tuple[str, TensorCore]]:
        for path, _, before in self._before:
            for number, entry in enumerate(before.values()):
                for key, value in entry.items():
                    if isinstance(value, TensorCore):
                        yield f"{path}.state[#{number}][{key!r}]", value

    def put_back(self) -> None:
        """Forget what was made since."""
        for _, state, before in self._before:
            for parameter in [*state]:
                entry, known = dict.__getitem__(state, parameter), before.get(parameter)
                if known is None:
                    dict.__delitem__(state, parameter)
                else:
                    dict.clear(entry)
                    dict.update(entry, known)
            state.layout = None
        epoch.count += len(self._before)


class PythonChanges:
    """What one evaluation changed in Python objects."""

    def __init__(self, name: str, environments: Sequence[Environment]) -> None:
        self._name = name
        self._environments = environments
        watches = (watch for environment in environments for watch in environment.watches)
        self._left = [(watch, state_of(watch)) for watch in watches if not watch.holds()]

    def written(self) -> dict[int, Any]:
        """Lists, deques and sets, by identity."""
        kinds = (LengthWatch, SetWatch)
        return {id(w.owner): w.owner for w, _ in self._left if isinstance(w, kinds)}

    def put_back(self, logs: set[int]) -> tuple[str, str] | None:
        """Undo it; return what the traced code has changed since, if it has, and the call.

        logs: identities of lists that are put back otherwise.
        """
        own = [(w, left) for w, left in self._left if id(getattr(w, "owner", None)) not in logs]
        pairs = ((watch.path, _are_same(state_of(watch), left)) for watch, left in own)
        changed = next((path for path, same in pairs if not same), None)
        for environment in self._environments:
            environment.put_back(logs)
        return None if changed is None else (changed, self._name)


def state_of(watch: AnyWatch) -> list[Any]:
    """What a watch looks at, in a form that stays as it is now."""
    if isinstance(watch, Watch):
        return [watch.found()]
    if isinstance(watch, ArrayWatch):
        return [watch.array.tobytes()]
    if isinstance(watch, (LengthWatch, SetWatch)):
        owner = watch.owner
        return [*owner, *owner.values()] if isinstance(owner, dict) else list(owner)
    return []


def _are_same(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(map(is_same, now, before))
