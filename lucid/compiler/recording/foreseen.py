"""What effects after the call leave, for the rest of the step: a schedule's next learning rate.

An effect takes place after the native step, but follows from what the call finds. So what it will
have put into its dicts stands there as live numbers while the rest of the step is traced, and calls
find out what these are before they run. In the graph they are inputs, like all live numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from lucid.compiler.guards.guard import is_number
from lucid.compiler.inputs.objects import SCALARS, is_same
from lucid.compiler.inputs.scalars import Number, SymScalar, is_live
from lucid.compiler.recording.hooks import item_of
from lucid.compiler.recording.texts import tree_now
from lucid.compiler.results.replayed_effects import Entries, Forecast, ReplayedEffect
from lucid.tensor.context import context
from lucid.tensor.core import TensorCore

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder

Entry = tuple[dict[str, Any], str]


class Foreseen:
    """The numbers of one trace that stand where effects after the call will have put them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # By the identity of the dict and the key: the dict, what stands there, and what did before.
        self._standing: dict[tuple[int, str], tuple[dict[str, Any], Any, Any]] = {}

    def add(self, effect: ReplayedEffect, entries: Iterable[Entry]) -> None:
        """Let what an effect, after those before it, leaves in some entries stand there."""
        self.put_back()
        self.recorder.effects.append(effect)
        forecast = effect.forecast = Forecast(self.recorder.effects)
        collector = self.recorder.collector
        assert collector is not None
        found = _left_by(forecast) if effect.is_foreseen else []
        for owner, key in entries:
            before = dict.__getitem__(owner, key)
            if not found:
                collector.changed_later[id(owner), key] = partial(str, effect.what)
                continue
            collector.expect(f"{key!r} of {effect.what}", owner, key)
            text = f"{key.lstrip('_')} after {effect.what}"
            after = next(entries for entries in found if entries.owner is owner)[key]
            read = partial(forecast.value, owner, key)
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
            else:
                if key in effect.anew or isinstance(before, (*SCALARS, tuple, TensorCore)):
                    depend = partial(self._depend, text, effect.what, before, after, read)
                    collector.changed_later[id(owner), key] = depend
                continue
            self._standing[id(owner), key] = owner, standing, before
        for (_, key), (owner, standing, _) in self._standing.items():
            dict.__setitem__(owner, key, standing)

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
            is_bound = collector is not None and collector.has_written(owner, key)
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


def _left_by(forecast: Forecast) -> list[Entries]:
    """What effects leave; nothing if one raises an error, which is for the call.

    Meanwhile the dicts hold what the call that is traced has found there.
    """
    recorder, held = context.recorder, []
    try:
        context.recorder = None  # so that the dicts are asked for nothing
        held += [(owner, dict.copy(owner)) for owner in forecast.owners()]
        for owner, entries in held:
            dict.update(owner, {key: tree_now(value) for key, value in entries.items()})
        return forecast.entries()
    except Exception:
        return []
    finally:
        for owner, entries in held:
            dict.update(owner, entries)
        context.recorder = recorder
