"""The programs of a compiled function: which one serves a call, and which ones go."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lucid.autograd.host_replay import HostCallMismatch
from lucid.compiler.guards.mutable_sources import follow
from lucid.compiler.guards.restarts import undo_all
from lucid.compiler.reports.statistics import Served, Stats, signature_text
from lucid.ir.classes import isinstance
from lucid.ir.errors import LeavesPath
from lucid.runtime.entry.layout import SLOW_PATH

if TYPE_CHECKING:
    from lucid.compiler.dynamic import Dynamic
    from lucid.compiler.guards.following import Images
    from lucid.compiler.inputs.signature import Call
    from lucid.compiler.pacing import Looks
    from lucid.compiler.programs.program import Departure, Program

LIMIT = 128  # programs of one function; the one used longest ago is dropped
LIMIT_BYTES = 1 << 29  # that they keep, as `Program.nbytes` says; two of any size may stay
RECENT = 8  # programs that native code tries for arguments that look alike
# What a run raises that has found another thing than its trace.
DEPARTS = (HostCallMismatch, LeavesPath)


class ProgramCache:
    """The programs of one function, by the signatures of calls, and those that calls begin with.

    Attributes:
        latest: the program used last.
        recent: programs by the looks of calls that began with them.
    """

    def __init__(self, stats: Stats, dynamic: Dynamic) -> None:
        self._stats, self._dynamic = stats, dynamic
        self.latest: Program | None = None
        self.recent: dict[Looks, list[weakref.ref[Program]]] = {}
        self._by_key: dict[Any, list[Program]] = {}
        self._took_over: tuple[Program | None, int] = (None, -1)  # after how many calls
        self._noted = 0  # calls that are counted as their programs'

    def all(self) -> list[Program]:
        """Those that there are; another thread may add some meanwhile."""
        return [x for found in [*self._by_key.values()] for x in [*found]]

    def of(self, call: Call) -> Sequence[Program]:
        """Those whose calls have the signature of this one."""
        return [*self._by_key.get(call.key, ())]

    def first(self, args: tuple[Any, ...]) -> tuple[Program, Looks]:
        """What native code tries first, of programs of which there is one; how the call looks."""
        looks = self._dynamic.looks(args)
        recent = self.recent.get(looks)
        program = (recent[0]() if recent else None) or self.latest
        assert program is not None
        return program, looks

    def enter_recent(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], first: Program
    ) -> tuple[Any, Departure | None]:
        """Let native code try the programs that such calls began with before; as `follow`.

        first: the one that was tried.
        """
        looks = self._dynamic.looks(args)
        for program in [reference() for reference in self.recent.get(looks, ())]:
            if program is None or program is first:
                continue
            try:
                result = program.call_native(args, kwargs)
            except DEPARTS as found:
                return self.follow(self.left(program, found), args, kwargs)
            if result is not SLOW_PATH:
                self.begin_with(program, looks)
                return result, None
        return SLOW_PATH, None

    def follow(
        self, differs: Departure, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Departure]:
        """Go on with the programs that took over before, as long as native code can enter them.

        Returns what the call gives, or `SLOW_PATH` and what was found by then.
        """
        while not differs.made:
            link = differs.program.links.get(differs.path)
            program = None if link is None else link()
            if program is None or program.enter is None or self._dynamic.refuses(program):
                break
            try:
                result = program.call_native(args, kwargs)
            except DEPARTS as found:
                before, differs = differs, self.left(program, found)
                if not differs.goes_beyond(before):
                    break
                continue
            if result is not SLOW_PATH:
                self.begin_with(program, self._dynamic.looks(args), took_over=True)
            return result, differs
        return SLOW_PATH, differs

    def left(self, program: Program, error: HostCallMismatch | LeavesPath) -> Departure:
        """What a run of a program has found that is another thing than in its trace."""
        self._stats.exits += isinstance(error, LeavesPath)
        if self._dynamic.may_open:
            self._dynamic.opened |= program.varied(error)
        program.used = self._stats.calls
        return program.departure(error)

    def begin_with(self, program: Program, looks: Looks, *, took_over: bool = False) -> None:
        """Note that a program has served a call of some looks, and let the next ones try it first.

        Native code doesn't say that it is used. took_over: from the one that was tried first; only
        one that does so twice in turn is preferred to that.
        """
        self._credit(program)
        program.used = calls = self._stats.calls
        latest, last = self.latest, self._took_over
        if took_over:
            self._took_over = program, calls
        if latest is program or (took_over and last != (program, calls - 1)):
            return
        reference = weakref.ref(program)
        if latest is not None:
            latest.used = calls
        self.latest = program
        known = self.recent.get(looks, ())
        if known and known[0]() is program:
            return
        others = [x for x in known if x() not in (None, program)]
        if not known and len(self.recent) >= LIMIT:
            self.recent.clear()
        self.recent[looks] = [reference, *others][:RECENT]

    def fitting(self, call: Call, differs: Departure | None) -> tuple[Program | None, str | None]:
        """The program for a call; or None, and the guard that failed for the latest one."""
        reason = None if differs is None else differs.reason
        for program in reversed(self.of(call)):
            refused = self._dynamic.refuses(program)
            if refused or (differs is not None and not program.fits(differs)):
                continue
            failure = program.guards.failure(call)
            if failure is not None and (images := program.follow()) is not None:
                self._let_follow(images)
                failure = program.guards.failure(call)
            if failure is None and (differs is None or program.has_sizes_of(differs, call)):
                return program, None
            reason = reason or failure
        key = call.key_of_others
        others = [x for x in reversed(self.all()) if x.key_of_others == key]
        others = [x for x in others if not self._dynamic.refuses(x)]
        found = self._following(call, others) if differs is None else None
        return found or self._twin(call, differs, others), reason

    def _following(self, call: Call, others: Sequence[Program]) -> Program | None:
        """A program whose calls were given other objects, in the place of which are this one's.

        As a meter is that each epoch makes anew. Objects that take turns have programs each.
        """
        given = [x for _, x in call.known]
        for program in others if given else ():
            if program.has_left(given):
                continue
            images = program.follow(given)
            if images is None:
                continue
            if program.guards.failure(call) is not None:
                program.go_back(images)
                continue
            self._let_follow(images)
            program.leave(was for was, now in images.pairs if program.is_given({id(now)}))
            by_key: dict[Any, list[Program]] = {}
            for each in self.all():
                by_key.setdefault(each.key, []).append(each)
            self._by_key = by_key  # at once: others look meanwhile
            return program
        return None

    def _twin(
        self, call: Call, differs: Departure | None, others: Sequence[Program]
    ) -> Program | None:
        """A program for other modules, optimizers and what holds such, than earlier calls had.

        It takes the place of the earlier one, unless calls come back to what they were given then.
        """
        tried = set()
        for program in others:
            is_other = differs is not None and not program.fits(differs)
            if is_other or program.recorded in tried:
                continue
            tried.add(program.recorded)  # the graph of all its twins
            found = program.twin(call)
            if found is None:
                continue
            made, roots = found
            if differs is not None and not made.has_sizes_of(differs, call):
                undo_all(made.undo)
                continue
            if not program.has_left(now for _, now in roots):
                self.drop([program])
            program.leave(was for was, _ in roots)
            self.add(call, made)
            return made
        return None

    def _let_follow(self, images: Images) -> None:
        """Let what later traces know be about the containers at which a program looks now."""
        sources = self._dynamic.sources
        places = [*sources.values()]
        for place in places:
            follow(place, images)
        sources.clear()
        sources.update((place.identity, place) for place in places)

    def add(self, call: Call, program: Program) -> None:
        """Have it serve calls like this one. What programs hold stays bounded.

        Those that ask for sizes which it has found go, and those used longest ago with their code;
        the newest and the one that calls begin with stay, and others let go of their last
        arguments.
        """
        opened = program.sizes_found - program.sizes_asked
        self.drop([x for x in self.all() if not opened.isdisjoint(x.sizes_asked)])
        self._by_key.setdefault(call.key, []).append(program)
        programs = self.all()
        count, kept = len(programs), sum(program.nbytes for program in programs)
        for old in sorted(programs, key=attrgetter("used")):
            if old is program or old is self.latest:
                continue
            old.forget_arguments()
            if count <= LIMIT and kept <= LIMIT_BYTES:
                continue
            count, kept = count - 1, kept - old.nbytes
            self.drop([old])
            self._stats.dropped += 1

    def drop(self, programs: Sequence[Program]) -> None:
        """Begin no more calls with these."""
        self._credit()
        for program in programs:
            same = self._by_key.get(program.key, [])
            same[:] = [other for other in same if other is not program]
            if not same:
                self._by_key.pop(program.key, None)
            if program is self.latest:
                self.latest = None
            for recent in [*self.recent.values()]:
                recent[:] = [x for x in recent if x() is not program]

    @contextmanager
    def of_known_sizes(self) -> Iterator[None]:
        """Have calls in the block run programs whose sizes are known: someone looks at code."""
        dynamic = self._dynamic
        if not dynamic.opened:
            yield
            return
        self._credit()
        kept = self.latest, self.recent, dynamic.opened, dynamic.may_open
        self.latest, self.recent, dynamic.opened, dynamic.may_open = None, {}, set(), False
        try:
            yield
        finally:
            self._credit()
            self.latest, self.recent, dynamic.opened, dynamic.may_open = kept

    def served(self) -> list[Served]:
        """What each program that there is serves, and how often it has."""
        self._credit()
        found = sorted(self.all(), key=attrgetter("number"))
        return [Served(signature_text(x.description), x.path, x.served) for x in found]

    def _credit(self, program: Program | None = None) -> None:
        """Count the latest call as a program's; those that nobody has noted are the latest one's.

        Native code counts the calls of all programs in one.
        """
        calls = self._stats.calls
        others = calls - self._noted
        if program is not None:
            program.served, others = program.served + 1, others - 1
        if self.latest is not None:
            self.latest.served += max(others, 0)
        self._noted = calls
