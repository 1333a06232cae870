"""What differs between the calls of a function, so that its programs read it at each call."""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lucid.compiler.guards.guard import is_number
from lucid.compiler.guards.mutable_sources import GrowingList
from lucid.compiler.guards.restarts import Known, RestartTrace
from lucid.compiler.inputs.objects import SETS, is_set_of_values, owners_of, walk
from lucid.compiler.inputs.signature import (
    Call,
    Description,
    axes_of_arguments,
    in_order,
    is_of_argument,
    moving_arguments,
    moving_axes,
    moving_lists,
    named_arguments,
    with_live_arguments,
)
from lucid.ir.classes import isinstance
from lucid.ir.errors import EagerOnlyError
from lucid.tensor.context import epoch
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.autograd.host_finding import OpenAxis
    from lucid.compiler.guards.mutable_sources import Identity, MutableSource
    from lucid.compiler.options import Options
    from lucid.compiler.pacing import Looks
    from lucid.compiler.programs.program import Program
    from lucid.ir.location import Location
    from lucid.ir.types import TensorType

_EXACT = (int, bool, str, type(None))
_EXACT_BUT_MOVING = (bool, type(None))
_AXES, _SHAPE = attrgetter("ndim"), attrgetter("shape")  # of a type


def looks_of(
    args: tuple[Any, ...], exact: Collection[type] = _EXACT, *, of_any_size: bool = False
) -> Looks:
    """A cheap summary of arguments: shapes of tensors, plain constants, and else their classes.

    of_any_size: numbers of axes in place of shapes.
    """
    look = _AXES if of_any_size else _SHAPE
    return tuple(
        [
            look(x._type) if isinstance(x, TensorCore) else x if type(x) in exact else _which(x)
            for x in args
        ]
    )


def _which(thing: Any) -> object:
    """The class of an argument; the identity of a Module or an optimizer: programs are its own.

    It isn't kept alive: another object may have the identity later.
    """
    kind: Any = type(thing)
    return id(thing) if _is_model(kind) else kind


@functools.cache
def _is_model(kind: type) -> bool:
    return issubclass(kind, epoch.movers) or hasattr(kind, "_state_like")


class Dynamic:
    """What traces of one function have found to differ between its calls, for those to come.

    Args:
        function: the user's.
        is_paced: whether axes of the arguments may be open without `earlier`; a backward's are
            those of its forward.
        earlier: the types of a call with other sizes: what differs from them is open from the first
            call on.

    Attributes:
        may_open: whether sizes that values decide may be open.
        counts: names of arguments that are read live: ints, texts, lists; exact: lists that aren't.
        kept: names of containers among the arguments that grow, and are state.
        sources: places that the step binds, or reads at each call.
        fixed: places that change, and that are guarded all the same.
        opened: axes of open sizes; closed: those of them that must be known; least: the least open
            size of axes, where it isn't the usual one.
        at_once: lines of calls that can't follow the native step.
        lengths: the first lengths of ranges with live bounds.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        is_paced: bool,
        earlier: Sequence[TensorType],
    ) -> None:
        self._function, self._dynamic = function, options.dynamic
        self.may_open = options.may_open and options.verify == "never"
        self._opens_arguments = is_paced or bool(earlier)
        self._earlier = [earlier] if earlier else []
        self.counts: set[str] = set()
        self.exact: set[str] = set()
        self.kept: set[str] = set()
        self.sources: dict[Identity, MutableSource] = {}
        self.fixed: set[Identity] = set()
        self.opened: set[OpenAxis] = set()
        self.closed: set[OpenAxis] = set()
        self.least: dict[OpenAxis, int] = {}
        self.at_once: set[Location | None] = set()
        self.lengths: dict[tuple[Location | None, int], int] = {}
        self._any_size = (0, 0), False  # of how many axes; whether some are of arguments
        self._lists: list[tuple[Any, list[Any]]] = []  # of numbers, of the last trace's call

    def looks(self, args: tuple[Any, ...]) -> Looks:
        """A summary of arguments that calls of the same programs share: live ints are left out."""
        exact = _EXACT_BUT_MOVING if self.counts else _EXACT
        counts = len(self.opened), len(self.closed)
        if self._any_size[0] != counts:
            self._any_size = counts, any(map(is_of_argument, self.opened - self.closed))
        return looks_of(args, exact, of_any_size=self._any_size[1])

    def signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], live: Collection[str] | None = None
    ) -> Call:
        """The call, with live numbers for ints that are read at each call; `live`: which."""
        kwargs = in_order(self._function, kwargs) if len(kwargs) > 1 else kwargs
        live = self.counts - self.exact if live is None else live
        kept = {}
        if self.kept:
            named = owners_of(named_arguments(self._function, args, kwargs))
            named = [(path, x) for path, x in named if not isinstance(x, tuple)]
            kept = {id(x): x for path, x in named if path in self.kept}
        marked = with_live_arguments(live, kept, self._function, args, kwargs)
        try:
            call = Call(*marked, axes_of_arguments(self.opened - self.closed, self.least))
        except RecursionError:
            raise EagerOnlyError("its arguments are nested more deeply than Python calls") from None
        call.given = args, kwargs
        return call

    def refuses(self, program: Program) -> bool:
        """Whether a program has open sizes that must be known by now."""
        if not program.decides_sizes:
            return False
        rule = program.differentiable
        if rule is not None and rule.needs_sizes:
            self.closed |= program.places_opened
            return True
        return not self.may_open

    def known(self, undo: list[Callable[[], object]], programs: Sequence[Program]) -> Known:
        """What the next trace knows from its start; it adds to that what it finds.

        undo: takes back what traces make; programs: the programs of earlier traces.
        """
        return Known(
            self.counts,
            self.sources,
            self.kept,
            opened=self.opened,
            closed=self.closed,
            undo=undo,
            exact=self.exact,
            may_open=self.may_open,
            at_once=self.at_once,
            lengths=self.lengths,
            least=self.least,
            types=self._types_seen(programs) if self.opened else (),
        )

    def enter(self, restart: RestartTrace, known: Known) -> None:
        """Let the next trace know what this one has found. Raises `EagerOnlyError`."""
        if restart.kind == "sources" and not known.inside.isdisjoint(restart.found):
            raise EagerOnlyError(f"it {restart.reason}, which it knows by two names") from None
        restart.enter(known)

    def find(self, call: Call, description: Description, programs: Sequence[Program]) -> None:
        """Raise `RestartTrace` where a call that no program serves differs from earlier ones.

        programs: the programs of the earlier calls.
        """
        earlier = [program.description for program in programs]
        moved = moving_arguments(description, earlier)
        moved -= self.counts  # a function that binds its variables stays as it is
        if moved:
            raise RestartTrace("is called with ints or texts that keep changing", "counts", moved)
        self._find_grown(call)
        if not self.may_open or self._dynamic is False:
            return
        lists = moving_lists(named_arguments(self._function, *call.marked), earlier) - self.counts
        if lists:
            raise RestartTrace("is given lists of ever other lengths", "counts", lists)
        if self._opens_arguments:
            sizes = 2 if self._dynamic or self._earlier else None
            axes = moving_axes(call.types(), self._types_seen(programs), sizes)
            axes -= self.opened | self.closed
            if axes:
                raise RestartTrace("is called with sizes that keep changing", "opened", axes)

    def _types_seen(self, programs: Sequence[Program]) -> list[Sequence[TensorType]]:
        return [*(program.types for program in programs), *self._earlier]

    def _find_grown(self, call: Call) -> None:
        """Raise `RestartTrace` for lists that have grown since the trace before was given them.

        Also for sets known by value that have changed. A history that is handed to each call is
        state, as it is in a global; so is another one in its place, as each epoch may have. Of
        lists that didn't grow only those of numbers are remembered.
        """
        before = {id(known): entries for known, entries in self._lists}
        named = owners_of(named_arguments(self._function, *call.given), call.kept)
        lists = [(path, x) for path, x in named if type(x) in (list, deque)]
        marked = named_arguments(self._function, *call.marked)
        parts = [part for name, value in marked for part in walk(value, name, set())]
        sets = [(path, x) for path, x, _ in parts if type(x) in SETS and is_set_of_values(x)]
        changed = [path for path, x in sets if [*x] != before.get(id(x), [*x])]
        self._lists = [(x, [*x]) for _, x in lists if all(map(is_number, x))]
        self._lists += [(x, [*x]) for _, x in sets]
        if changed:
            raise RestartTrace("is given a set that changes", "counts", changed)
        grown = {
            id(x): GrowingList(path, x)
            for path, x in lists
            if len(x) > len(before.get(id(x), x)) and all(map(operator.is_, x, before[id(x)]))
        }
        if grown:
            of_numbers = [x for x in grown.values() if all(map(is_number, x.owner))]
            self.sources.update({source.identity: source for source in of_numbers})
            paths = {source.path for source in grown.values()}
            raise RestartTrace("is given a list that grows", "kept", paths)
