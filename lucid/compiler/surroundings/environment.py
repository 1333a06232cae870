"""What the traced function reads from its surroundings: closures, globals, modules, containers.

A trace holds as long as they are what they were. Before the trace everything within reach becomes a
watch; after it, only those are kept that code which ran could have read. Watches of Modules are
looked at only when the epoch moved, since every change to a Module moves it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, NoReturn

import numpy as np

from lucid.compiler.collector import Newborns
from lucid.compiler.inputs.bound_to_tensors import LIBRARYS
from lucid.compiler.inputs.scalars import key_of
from lucid.compiler.inputs.watches import (
    ABSENT,
    AnyWatch,
    ArrayWatch,
    FlagWatch,
    LengthWatch,
    SetWatch,
    Watch,
)
from lucid.compiler.surroundings.binding_lines import binding_lines
from lucid.compiler.surroundings.codes import Executed
from lucid.compiler.surroundings.places import (
    CONTENTS,
    Contents,
    Identity,
    Members,
    Place,
    identity_of,
    place_of,
)
from lucid.compiler.surroundings.reach import LARGE, Reach, owner_of
from lucid.compiler.surroundings.reads import Reads
from lucid.compiler.whose_code import is_users_file
from lucid.ir.errors import TraceError
from lucid.tensor.claims import written_meanwhile


class Environment(Reach):
    """The surroundings of a function, as they are when it is built.

    Attributes:
        ran: the code that ran since, in this thread; None: unknown.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: dict[str, Any],
        skipped: frozenset[object] = frozenset(),
        read: frozenset[Identity] = frozenset(),
    ) -> None:
        super().__init__(function, arguments, skipped, read)
        self._accepted: set[Identity] = set()  # made in the trace, and there from then on
        self.ran: Executed | None = None
        self._newborns = Newborns()

    def meet(self, path: str, module: Any) -> None:
        """Take in a Module that the trace met and the walk had not found."""
        if id(module) not in self._seen:
            self._queue.append((path, module, False))
            self._walk()

    def note(self, path: str, owner: Any, key: Any) -> None:
        """Watch an entry that is about to be bound, and that the walk had not found."""
        place = identity_of(owner, key)
        if place not in self._watched and place not in self._read:
            self._watched.add(place)
            before = dict.get(owner, key, ABSENT)
            if place in self._accepted:
                self._accepted.remove(place)
                self._expect(owner, key, ABSENT)
                before = ABSENT
            self.watches.append(Watch(path, owner, key, before, True))

    def accept(self, owner: Any, key: Any, value: Any) -> None:
        """Take an entry that the trace made for good as one that was there before."""
        self._accepted.add(identity_of(owner, key))
        self._expect(owner, key, value)

    def _expect(self, owner: Any, key: Any, value: Any) -> None:
        """Let it be normal that a dict has an entry, or that it hasn't."""
        length = self._lengths.get(id(owner))
        if length is not None and length.copy is not None:
            length.copy.pop(key, None)
            if value is not ABSENT:
                length.copy[key] = value
            length.expected = len(length.copy)

    def accept_arguments(self, identities: Iterable[int]) -> None:
        """Know objects that were given."""
        self._seen.update(identities)

    def knows(self, thing: object) -> bool:
        """Whether an object was within reach before the trace."""
        return id(thing) in self._seen

    def was_there(self, thing: object) -> bool:
        """Whether an object is known to have been there before the trace, within reach or not."""
        return self.knows(thing) or not self._newborns.may_have(thing) or self._is_far(thing)

    def _is_far(self, thing: object) -> bool:
        """Whether it stands in a list that is too long to be looked into."""
        far = (w.copy for w in self.watches if isinstance(w, LengthWatch) and w.expected > LARGE)
        return any(thing is item for copy in far if isinstance(copy, list) for item in copy)

    def failure(self) -> AnyWatch | None:
        """The first watch that doesn't hold."""
        return next((watch for watch in self.watches if not watch.holds()), None)

    def changes(self) -> list[tuple[Place, Any]]:
        """The places that are bound to something else now, with what they held.

        Raises `TraceError` for other changes of Python state.
        """
        found: dict[Identity, tuple[Place, Any]] = {}
        moved: set[int] = set()
        for watch in self.watches:
            if watch.holds():
                continue
            if isinstance(watch, LengthWatch) and watch.copy is not None:
                if not isinstance(watch.owner, dict):
                    moved.add(id(watch.owner))
                    kind = Members if isinstance(watch.owner, set) else Contents
                    place: Place = kind(watch.path, watch.owner, CONTENTS, watch.in_module)
                    found[place.identity] = place, watch.copy
            elif isinstance(watch, Watch):
                place = place_of(watch)
                if id(watch.owner) not in moved:
                    found[place.identity] = place, watch.expected
            elif isinstance(watch, SetWatch):
                place = Members(watch.path, watch.owner, CONTENTS, watch.in_module)
                found[place.identity] = place, watch.expected
            elif self._is_of_others(watch):
                continue
            elif not isinstance(watch, FlagWatch) or not watch.has_its_hooks():
                _refuse_change(watch, self.binding_lines(watch.path))
        for place in self._new_entries():
            found.setdefault(place.identity, (place, ABSENT))
        return list(found.values())

    def _new_entries(self) -> Iterator[Place]:
        """Attributes and entries of dicts that were not there."""
        for path, attributes, names, in_module in self._grown:
            for name in attributes:
                if name not in names and not name.startswith(LIBRARYS):
                    yield Place(f"{path}.{name}".lstrip("."), attributes, name, in_module)
        for watch in self.watches:
            if isinstance(watch, LengthWatch) and isinstance(watch.copy, dict):
                for key in [key for key in watch.owner if key not in watch.copy]:
                    path = f"{watch.path}[{self._key_text(key, len(watch.copy))}]"
                    yield Place(path, watch.owner, key_of(key), watch.in_module)

    def name_of(self, thing: object) -> str:
        """The user's expression for a Module or an object of the library; empty when unknown."""
        return self._names.get(id(thing), "")

    def keep_read(self, executed: set[types.CodeType] | None, live: set[int]) -> None:
        """Keep the watches of what the functions that ran could have read.

        executed: None when that is unknown. live: owners of memory that the program reads itself.
        """
        if executed is not None:
            reads = Reads(executed, lambda code: is_users_file(code.co_filename))
            self.watches = [w for w in self.watches if self._ways.was_read(w, reads)]
            self.watches += self._lookups.watches(reads)
        self.watches = [
            watch
            for watch in self.watches
            if not (isinstance(watch, ArrayWatch) and id(owner_of(watch.array)) in live)
        ]

    def settle_training(self) -> list[tuple[Any, bool]]:
        """Modules whose `training` the trace changed, with what it is now; it's put back.

        The watch goes on to expect what the trace found at its start.
        """
        changed = []
        for watch in self.watches:
            is_flag = isinstance(watch, Watch) and watch.attribute == "training"
            if isinstance(watch, Watch) and is_flag and watch.in_module and not watch.holds():
                changed.append((watch.owner, watch.found()))
                watch.put_back()
        return changed

    def functions(self) -> Iterator[types.FunctionType]:
        """The functions within reach."""
        return (value for value in self._keep if isinstance(value, types.FunctionType))

    def binding_lines(self, path: str) -> str:
        """The user's lines that can have bound a place, each on a line of its own."""
        ran = None if self.ran is None else self.ran.codes
        users = [code for code in ran or () if is_users_file(code.co_filename)]
        return binding_lines(path, users)

    def holds_memory_of(self, array: np.ndarray) -> bool:
        """Whether the array's memory was within reach before the trace."""
        root = owner_of(array)
        return id(root) in self._owners or not isinstance(root, np.ndarray)

    def put_back(self, logs: Set[int] = frozenset()) -> None:
        """Restore the Python values that changed since; for a trace that failed.

        logs: identities of lists that are put back otherwise.
        """
        for watch in self.watches:
            is_log = id(getattr(watch, "owner", None)) in logs
            if not is_log and not watch.holds() and not self._is_of_others(watch):
                watch.put_back()
        for _, attributes, names, _ in self._grown:
            for name in attributes.keys() - names:
                if not name.startswith(LIBRARYS):
                    del attributes[name]

    def _is_of_others(self, watch: AnyWatch) -> bool:
        """Whether an array was, or may have been, written by another thread, which goes on."""
        if not isinstance(watch, ArrayWatch):
            return False
        if id(owner_of(watch.array)) in written_meanwhile():
            return True
        return self.ran is not None and not self.ran.could_write_arrays()


def _refuse_change(watch: AnyWatch, lines: str) -> NoReturn:
    raise TraceError(
        f"Python state changed while the step was traced: {watch.failure()}{lines}\n"
        "That would happen once, at this trace, and not at every call.\n"
        "hint: keep the count in a tensor and write it in place (self.n.add_(1)), return the "
        "value, or change it outside of the compiled function"
    )
