"""What must hold for a program to serve a call of its signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucid.compiler.guards.following import Images, Places, has_another
from lucid.compiler.guards.guard import Guard, asked_of, brief, identities_of
from lucid.compiler.guards.moving_entries import MovingEntry
from lucid.compiler.guards.mutable_sources import MutableSource, follow
from lucid.compiler.guards.table import GuardTable
from lucid.compiler.inputs.cells import FormulaGuard, GradUse, SizesGuard
from lucid.compiler.inputs.signature import Call
from lucid.compiler.results.gradients import grad_failure, shared_gradients
from lucid.compiler.results.side_effects import SideEffects
from lucid.ir.errors import EagerOnlyError
from lucid.ir.location import Location
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore
from lucid.tensor.storage import Storage


@dataclass(slots=True, eq=False, kw_only=True)
class Guards:
    """The guards of one program.

    Attributes:
        watched: guards that each call compares; gated: those compared when the epoch has moved.
        formulas: guards on live numbers.
        grads_read: the gradients that it reads; grads_shared: for each of them the first argument
            or gradient on the same memory.
        asked: the attributes that no tensor argument may have; `CONTENTS`: any.
        pinned: the tensor arguments that are its state, by position.
        state: the memory of its state, which no other argument may be on.
        side_effects: the places that it reads and binds itself; None: there are none.
        sources: all places that it reads at each call.
        moving: entries at places that move, which are further arguments.
        keys: for each read place and moving entry, what kind of value it must hold.
        is_own: whether binding the places leaves the guards true.
        sizes: the guard on open sizes that a call says; None: there are none. The short ways serve
            only sizes that an earlier call had.
        failed: the guard that failed last; None: something else did.
        has_other_sizes: whether `sizes` failed last.
        places: the containers that guards have found, made once another stood in place of one.
        apart: the containers that must not be among the arguments; see `_kept_apart`.
        epoch: the epoch at which `gated` held last; native code compares it, and moves it on.
    """

    watched: GuardTable
    gated: GuardTable
    formulas: list[FormulaGuard]
    grads_read: list[GradUse]
    grads_shared: list[int]
    asked: set[str]
    pinned: dict[int, TensorCore]
    state: set[Storage]
    side_effects: SideEffects | None
    sources: list[MutableSource]
    moving: list[MovingEntry]
    keys: list[tuple[Any, ...]]
    is_own: bool
    sizes: SizesGuard | None = None
    failed: Guard | None = None
    has_other_sizes: bool = False
    places: Places | None = None
    apart: tuple[set[int], set[int], set[int]] | None = None
    epoch: int = field(default_factory=lambda: epoch.count)

    @property
    def guards(self) -> list[Guard]:
        """Python values that the program is specialized on."""
        return [*self.watched.guards, *self.gated.guards]

    def failure(self, call: Call) -> str | None:
        """Why they don't hold any more for a call; None if they do."""
        self.failed, self.has_other_sizes = None, False
        held = call.containers
        return (
            self._failure_of_places(call)
            or self._failure_in(self.watched)
            or next(filter(None, (ask.failure(call.floats) for ask in self.formulas)), None)
            or self._failure_of_sizes(call)
            or self._failure_of_gradients(call)
            or self._failure_of_state(call)
            or ("arguments: one is changed by another name" if self.shares(held) else None)
            or self.gated_failure()
        )

    def follow(
        self, given: Sequence[tuple[Any, Any]], held: Callable[[], Iterable[Any]]
    ) -> Images | None:
        """After a failure, the images that guards and sources can follow; None: there are none.

        given: objects that the traced call was given, each with that of the call now.
        held: gives what the program holds besides these and guards.
        """
        is_moved = any(was is not now for was, now in given)
        if not is_moved and (self.failed is None or not has_another(self.failed)):
            return None
        if self.places is None:
            self.places = Places(self.guards, held())
        images = self.places.images(given, has_moved=self.epoch != epoch.count)
        if images is not None:
            self.take(images)
        return images

    def take(self, images: Images) -> None:
        """Have guards and sources look at these from now on."""
        assert self.places is not None
        self.places.take(images)
        self.watched, self.gated = map(GuardTable, (self.watched.guards, self.gated.guards))
        places: list[MutableSource | MovingEntry] = [*self.sources, *self.moving]
        for place in {id(x): x for x in places}.values():  # once: objects may change places
            follow(place, images)
        self.apart = None

    def move(self) -> None:
        """Forget `places`, after a call has moved windows to other lists."""
        self.apart = self.places = None

    def place_of_failure(self) -> Location | None:
        """The user's line that first read what has changed; None where it isn't known."""
        return next((guard.place() for guard in self.guards if not guard.holds()), None)

    def _failure_in(self, table: GuardTable) -> str | None:
        self.failed = table.failing()
        return None if self.failed is None else self.failed.failure()

    def _failure_of_places(self, call: Call) -> str | None:
        effects = self.side_effects
        read = [] if effects is None else effects.read
        if read or self.moving or call.values:  # of the places of another program
            call.take([] if effects is None else effects.values())
        places: list[MutableSource | MovingEntry] = [*read, *self.moving]
        for number, place in enumerate(places):
            if isinstance(place, MovingEntry):  # where depends on numbers in those before
                call.take_one(place.found(call.floats))
            if call.keys[number] != self.keys[number]:
                value = call.values[number]
                self.failed = self.watched.failing()  # who has it may be another one
                return f"{place.path}: another kind of value, {brief(value)}"
        return None

    def _failure_of_sizes(self, call: Call) -> str | None:
        failure = None if self.sizes is None else self.sizes.failure(call)
        self.has_other_sizes = failure is not None
        return failure

    def _failure_of_gradients(self, call: Call) -> str | None:
        uses = self.grads_read
        failure = next(filter(None, (grad_failure(use, call, self.state) for use in uses)), None)
        if failure is None and uses and shared_gradients(uses, call) != self.grads_shared:
            failure = "gradients: others share memory, with one another or with arguments"
        return failure

    def _failure_of_state(self, call: Call) -> str | None:
        """Whether the arguments that are state of the step are still the same ones.

        Raises `EagerOnlyError` where another has an attribute that the step has looked for.
        """
        for position, tensor in enumerate(call.tensors):
            expected = self.pinned.get(position)
            if expected is None:
                if tensor._storage in self.state:
                    return f"argument {position}: it is state of the step now"
                for name in asked_of(tensor, self.asked):
                    raise EagerOnlyError(
                        f"it reads .{name}, which is bound to a tensor that it is given"
                    )
            elif tensor is not expected:
                return f"argument {position}: another tensor than the step's state"
        return None

    def shares(self, owners: Callable[[], Sequence[Any]]) -> bool:
        """Whether the step changes a container or object that it knows by two names in this call.

        It finds one by itself and is given it: it was traced with others, which stand apart.

        owners: gives what the call has in its arguments and places.
        """
        if self.apart is None:
            self.apart = self._kept_apart()
        bound, changed, read = self.apart
        return bool(bound or changed) and any(
            not known.isdisjoint(identities_of(owner))
            for number, owner in enumerate(owners())
            if (known := read if number in changed else bound)
        )

    def _kept_apart(self) -> tuple[set[int], set[int], set[int]]:
        """What the step changes elsewhere, numbers of changed arguments, and all it looks into."""
        effects = self.side_effects
        if effects is None:
            return set(), set(), set()
        bound, changed = effects.bound_elsewhere, effects.bound_in_arguments
        read = {id(x) for guard in self.guards for x in guard.looked_into()} if changed else set()
        return bound, changed, bound | read | {source.identity[0] for source in self.sources}

    def gated_failure(self) -> str | None:
        """The failure of a gated guard; these are compared when the epoch has moved."""
        now = epoch.count
        failure = None if now == self.epoch else self._failure_in(self.gated)
        if failure is None:
            self.epoch = now  # this very object: native code compares addresses
        return failure

    def follow_epoch(self, before: int) -> None:
        """Take note that binding places, which can't break guards, has moved the epoch."""
        if self.epoch == before and self.is_own:
            self.epoch = epoch.count
