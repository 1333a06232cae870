"""What effects after the call leave, for the rest of the step: a schedule's next learning rate.

An effect takes place after the native step, but follows from what the call finds. So what it will
have put into its dicts stands there as live numbers while the rest of the step is traced, and calls
find out what these are before they run. In the graph they are inputs, like all live numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from lucid.compiler.guards.events import unheard
from lucid.compiler.guards.guard import is_number, is_same
from lucid.compiler.inputs.scalars import Number, SymScalar, is_live
from lucid.compiler.results.replayed_effects import Forecast, ReplayedEffect
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

Entry = tuple[dict[str, Any], str]


class ForeseenScalar(SymScalar):
    """A number that an effect leaves; what it is now is found out when somebody looks."""

    __slots__ = ("_foreseen", "_found")

    def __init__(self, foreseen: Foreseen, text: str, read: Any) -> None:
        self._foreseen: Foreseen | None = foreseen
        self._found: Any = None
        recorder = foreseen.recorder
        text = recorder.unused_text(text)
        super().__init__(0, lambda call: read(), text, recorder, read)
        recorder.live[text] = self

    @property
    def now(self) -> Number:
        if self._found is None:
            assert self._foreseen is not None and self.read is not None
            with self._foreseen.as_found():
                self._found = self.read()
        found: Number = self._found
        return found

    @now.setter
    def now(self, _: Number) -> None:
        """It isn't known from the start."""


class Foreseen:
    """The numbers of one trace that stand where effects after the call will have put them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._standing: list[tuple[Entry, Any, Any]] = []  # what stands there, and what did before
        self._effects: list[ReplayedEffect] = []

    def add(self, effect: ReplayedEffect, entries: Iterable[Entry]) -> None:
        """Let what an effect, after those before it, leaves in some entries stand there."""
        self.put_back()
        self._effects.append(effect)
        forecast = effect.forecast = Forecast(self._effects)
        collector = self.recorder.collector
        for owner, key in entries:
            before = dict.__getitem__(owner, key)
            if not effect.is_foreseen:
                if collector is not None:
                    collector.changed_later[id(owner), key] = partial(str, effect.what)
                continue
            if collector is not None:
                collector.expect(f"{key!r} of {effect.what}", owner, key)
            text = f"{key.lstrip('_')} after {effect.what}"
            read, is_anew = partial(forecast.value, owner, key), key in effect.anew
            standing = self._standing_for(before, text, read, is_anew)
            if standing is not before:
                self._standing.append(((owner, key), standing, before))
            elif collector is not None and _is_fixed(before):
                collector.changed_later[id(owner), key] = partial(self._read, owner, key, effect)
        self._put()

    def _standing_for(self, before: Any, text: str, read: Any, is_anew: bool) -> Any:
        if _is_number(before):
            return ForeseenScalar(self, text, read)
        if is_anew and type(before) in (list, tuple) and all(map(_is_number, before)):
            return type(before)(
                ForeseenScalar(self, f"{text}[{i}]", partial(_item, read, i))
                for i in range(len(before))
            )
        return before

    def _put(self) -> None:
        for (owner, key), standing, _ in self._standing:
            dict.__setitem__(owner, key, standing)

    def put_back(self) -> None:
        """Let nothing stand anywhere, but for what the step has put there itself."""
        collector = self.recorder.collector
        for (owner, key), standing, before in self._standing:
            is_bound = collector is not None and collector.has_written(owner, key)
            if dict.get(owner, key) is standing and not is_bound:
                dict.__setitem__(owner, key, before)
        self._standing.clear()

    def _read(self, owner: dict[str, Any], key: str, effect: ReplayedEffect) -> str | None:
        """Let the step depend on what an effect leaves that isn't a number; or why it can't."""
        read, before = partial(effect.forecast.value, owner, key), dict.__getitem__(owner, key)
        with self.as_found():
            after = read()
        if isinstance(after, TensorCore) or not is_same(after, before):
            return effect.what
        self.recorder.guard_value(f"{key} after {effect.what}", read, after)
        return None

    @contextmanager
    def as_found(self) -> Iterator[None]:
        """Let the dicts of all effects hold for a while what the call has found there."""
        owners = {id(owner): owner for effect in self._effects for owner in effect.owners}
        found = {(id(owner), key): before for (owner, key), _, before in self._standing}
        recorder, held = context.recorder, []
        try:
            context.recorder = None  # so that the dicts are asked for nothing
            held += [(owner, dict.copy(owner)) for owner in owners.values()]
            for owner, entries in held:
                for key, value in entries.items():
                    value = found.get((id(owner), key), value)
                    dict.__setitem__(owner, key, _now(value))
            yield
        finally:
            for owner, entries in held:
                dict.update(owner, entries)
            context.recorder = recorder


def _is_number(value: Any) -> bool:
    return is_number(value) or is_live(value)


def _now(value: Any) -> Any:
    """A value as the call that is traced has found it."""
    if type(value) in (list, tuple) and any(map(is_live, value)):
        return type(value)(map(_now, value))
    return value.now if is_live(value) else value


def _is_fixed(value: Any) -> bool:
    """Whether a value can only be replaced, or is a tensor, which an effect may write."""
    return isinstance(value, (str, bool, tuple, TensorCore, type(None)))


@unheard
def _item(read: Any, index: int) -> Any:
    return read()[index]
