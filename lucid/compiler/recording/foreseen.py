"""What effects after the call leave, for the rest of the step: a schedule's next learning rate.

An effect takes place after the native step, but follows from what the call finds. So what it will
have put into its dicts stands there as live numbers while the rest of the step is traced, and calls
find out what these are before they run. In the graph they are inputs, like all live numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from lucid.compiler.guards.collector import at_line
from lucid.compiler.guards.events import unheard
from lucid.compiler.guards.guard import is_number
from lucid.compiler.hosts.state import Surroundings
from lucid.compiler.inputs.objects import SCALARS, is_same
from lucid.compiler.inputs.scalars import Number, SymScalar, is_live
from lucid.compiler.recording.hooks import has_bound, item_of
from lucid.compiler.recording.late.texts import tree_now
from lucid.compiler.results.replayed_effects import Entries, ReplayedEffect, put_all
from lucid.ir.location import here
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.location import Location

Entry = tuple[dict[str, Any], str]


class _Told(NamedTuple):
    """A function that is called after the native step.

    Attributes:
        what: its name, for messages; line: the user's that calls it.
        may_be_traced: whether it could be called in the trace instead.
    """

    what: str
    line: Location | None
    may_be_traced: bool


class Foreseen:
    """The numbers of one trace that stand where effects after the call will have put them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # By the identity of the dict and the key: the dict, what stands there, and what did before.
        self._standing: dict[tuple[int, str], tuple[dict[str, Any], Any, Any]] = {}
        # What leaves, after the call, what follows from what the step computes, and its line.
        self._told: dict[tuple[int, str], _Told] = {}

    @unheard
    def add(self, effect: ReplayedEffect, entries: Sequence[Entry]) -> None:
        """Repeat an effect after each call; what it leaves in some entries stands there from now.

        The step can't have bound them before.
        """
        self._refuse_set(effect.what, entries)
        told = next(filter(None, (self._told.get((id(x), key)) for x, key in entries)), None)
        if told is not None:  # it begins with what only the call's end will tell
            self._give_up(told, f"it calls {effect.what}")
        self.put_back()
        self._try(effect)
        effects, collector = self.recorder.effects, self.recorder.collector
        effects.add(effect)
        number, found = len(effects) - 1, self._left_by_all()
        for owner, key in entries:
            before = dict.__getitem__(owner, key)
            if not found:
                self._refuse(owner, key, partial(str, effect.what))
                continue
            collector.expect(f"{key!r} of {effect.what}", owner, key)
            text = f"{key.lstrip('_')} after {effect.what}"
            after = next(entries for entries in found if entries.owner is owner)[key]
            read = partial(effects.value, number, owner, key)
            if (is_number(before) or is_live(before)) and is_number(after):
                standing: Any = self._number(text, after, read)
            elif (
                key in effect.anew and type(before) in (list, tuple) and all(map(is_number, after))
            ):
                numbers = [
                    self._number(f"{text}[{i}]", x, partial(item_of, read, i))
                    for i, x in enumerate(after)
                ]
                standing = type(before)(numbers)
            elif not effect.is_foreseen:
                self._refuse(owner, key, partial(str, effect.what))
                continue
            else:
                if key in effect.anew or isinstance(before, (*SCALARS, tuple, TensorCore)):
                    depend = partial(self._depend, text, effect.what, before, after, read)
                    collector.changed_later[id(owner), key] = depend
                continue
            self._standing[id(owner), key] = owner, standing, before
        for (_, key), (owner, standing, _) in self._standing.items():
            dict.__setitem__(owner, key, standing)

    def _try(self, effect: ReplayedEffect) -> None:
        """Do it once for nothing, and give up where it reads what the step has changed by now.

        Or where code of the user's, a function of epochs, changes more than its entries: it is
        found out before the native step what effects leave. Errors are for the call.
        """
        around = Surroundings(self.recorder, effect.what, (), (), 0)
        known = {*map(id, effect.owners)}
        with self._holding(effect.owners), around.untouched(known):
            put_back = partial(put_all, [*map(Entries, effect.owners)])
            with self.recorder.putting_back(put_back), suppress(Exception):
                effect.call()

    def tell(
        self,
        function: Callable[..., object],
        args: Sequence[Any],
        what: str,
        entries: Sequence[Entry],
        may_be_traced: bool,
    ) -> bool:
        """Let a function be called after the call, with what the step computes.

        What it leaves follows from that, so a step that reads it later is traced again, in which
        the function is called at once, as it is where the step has set an entry before.

        what, may_be_traced: see `_Told`; entries: what it sets. Returns whether it will be called
        after the call; else its caller is to call it now.
        """
        recorder = self.recorder
        told = _Told(what, here(), may_be_traced)
        is_known = told.line in recorder.at_start.at_once
        if any(self._is_bound(*entry) for entry in entries) or is_known:
            if may_be_traced:
                return False
            self._give_up(told, "it sets before, or reads later, what is set")
        for owner, key in entries:
            self._told[id(owner), key] = told
            self._refuse(owner, key, partial(self._give_up, told, f"it reads {key.lstrip('_')!r}"))
        recorder.endings.append(partial(self._refuse_bound, told, entries))
        recorder.outside.say(function, *args)
        recorder.outside.deferred[-1].owners = [*{id(x): x for x, _ in entries}.values()]
        return True

    def _refuse_set(self, what: str, entries: Sequence[Entry]) -> None:
        """Give up where the step has set what a function finds, and sets, after the call."""
        for _, key in (entry for entry in entries if has_bound(*entry)):
            self.recorder.exits.op_by_op(
                f"it calls {what}, which takes place after the native step, on {key!r} as it has "
                "set it",
                f"call {what} outside of the compiled function",
            )

    def _refuse_bound(self, told: _Told, entries: Sequence[Entry]) -> None:
        """Give up where the step has set what a function is to set after the call."""
        for owner, key in entries:
            if self._is_bound(owner, key):
                self._give_up(told, f"it sets {key.lstrip('_')!r}")

    def _is_bound(self, owner: dict[str, Any], key: str) -> bool:
        """Whether the step has set an entry itself."""
        is_written = self.recorder.collector.has_written(owner, key)
        return is_written or (id(owner), key) in self.recorder.bound

    def _give_up(self, told: _Told, use: str) -> NoReturn:
        """Begin the trace again where the function may be called at once; else go op by op."""
        use = f"{use} after {told.what}"
        if told.may_be_traced and told.line not in self.recorder.at_start.at_once:
            self.recorder.collector.begin_again(use, "at_once", [told.line])
        self.recorder.run_op_by_op(
            f"{use}, which takes place after the native step{at_line(here())}\n"
            f"hint: call {told.what} outside of the compiled function"
        )

    def _refuse(self, owner: dict[str, Any], key: str, refuse: Callable[[], str | None]) -> None:
        """Let nobody read an entry from now on; nothing stands there."""
        self.recorder.collector.changed_later[id(owner), key] = refuse
        _, standing, before = self._standing.pop((id(owner), key), (owner, None, None))
        if standing is not None and dict.get(owner, key) is standing:
            dict.__setitem__(owner, key, before)

    def _number(self, text: str, now: Number, read: Callable[[], Any]) -> SymScalar:
        """What stands for a number that an effect leaves."""
        text = self.recorder.unused_text(text)
        found = SymScalar(now, lambda call: read(), text, self.recorder, read)
        self.recorder.live[text] = found
        return found

    def put_back(self) -> None:
        """Let nothing stand anywhere, but for what the step has put there itself."""
        collector = self.recorder.collector
        for (_, key), (owner, standing, before) in self._standing.items():
            is_bound = collector.has_written(owner, key)
            if dict.get(owner, key) is standing and not is_bound:
                dict.__setitem__(owner, key, before)

    def _depend(
        self, text: str, what: str, before: Any, after: Any, read: Callable[[], Any]
    ) -> str | None:
        """Let the step depend on what an effect leaves that isn't a number; or why it can't."""
        parts = after if isinstance(after, (list, tuple)) else (after,)
        if any(isinstance(x, TensorCore) for x in parts) or not is_same(after, before):
            return what
        self.recorder.guard_value(text, read, after)
        return None

    def _left_by_all(self) -> list[Entries]:
        """What effects leave; nothing if one raises an error, which is for the call."""
        effects = self.recorder.effects
        try:
            with self._holding(effects.owners):
                return effects.entries()
        except Exception:
            return []

    @contextmanager
    def _holding(self, owners: Sequence[dict[str, Any]]) -> Iterator[None]:
        """In the block dicts hold what the call that is traced has found there."""
        recorder = context.recorder
        found = [(owner, {k: tree_now(x) for k, x in dict.items(owner)}) for owner in owners]
        try:
            context.recorder = None  # so that the dicts are asked for nothing
            held = [(owner, dict.copy(owner)) for owner in owners]
            with self.recorder.putting_back(partial(_update, held)):
                _update(found)
                yield
        finally:
            context.recorder = recorder


def _update(found: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for owner, entries in found:
        dict.update(owner, entries)
