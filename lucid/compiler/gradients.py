"""The gradients that a step leaves on leaves: promises, in memory that calls take turns with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from lucid.compiler.outcomes import FromProgram, NewLeaf, Outcome, PartOfProgram, View
from lucid.runtime.executable import Executable
from lucid.tensor.claims import lock
from lucid.tensor.core import TensorCore
from lucid.tensor.promises import Batch, Promise

LeafGrad = tuple[TensorCore, Outcome | None]
KEPT_BYTES = 1 << 22  # more than this isn't kept for a later call: others can have the memory


class Gradients:
    """Puts gradients on leaves after each call.

    A call writes into memory of its own; it is the spare one when nobody has read the gradients
    that were in it. What the latest call left stays as it is until all leaves have newer ones, so
    that a failing step, or another thread that reads `.grad`, finds it unharmed.

    Attributes:
        are_promised: whether there are gradients to promise.
        others: leaves whose gradient is no array of its own: a view, None, a result as well.
    """

    def __init__(
        self, executable: Executable, grads: Sequence[LeafGrad], outcomes: Iterable[Outcome]
    ) -> None:
        used = Counter(slot for outcome in outcomes for slot in _slots(outcome))
        self._promised: list[tuple[TensorCore, FromProgram]] = []
        self.others: list[LeafGrad] = []
        for leaf, outcome in grads:
            if type(outcome) is FromProgram and outcome.past is None and used[outcome.slot] == 1:
                self._promised.append((leaf, outcome))
            else:
                self.others.append((leaf, outcome))
        self.are_promised = bool(self._promised)
        self._executable = executable
        self._slots = {outcome.slot for _, outcome in self._promised}
        size = sum(outcome.type.nbytes for _, outcome in self._promised)
        self._is_kept = size <= KEPT_BYTES
        self._spares: list[Batch] = []
        self._latest: Batch | None = None

    def begin(self) -> Batch:
        """Memory for the gradients of a call."""
        try:
            return self._spares.pop()
        except IndexError:
            pass
        outputs = self._executable.reusable(self._slots)
        batch = Batch(outputs)
        for leaf, outcome in self._promised:
            array = outputs.arrays[outcome.slot]
            assert array is not None
            batch.promises.append((leaf, Promise(batch, array, outcome.on)))
        return batch

    def leave(self, batch: Batch) -> None:
        """Promise the gradients to the leaves; the memory of those before is spare now."""
        with lock:
            for leaf, promise in batch.promises:
                leaf._gradient = promise
            ended: Batch | None = batch
            if self._is_kept:
                ended, self._latest = self._latest, batch
            if ended is None:
                return
            if self._is_kept and not ended.was_seen and not self._spares:
                self._spares.append(ended)
            else:
                ended.promises.clear()  # they refer to the batch: memory must not wait for gc


def _slots(outcome: Outcome | None) -> Iterator[int]:
    """The program's outputs that an outcome is made of."""
    if isinstance(outcome, PartOfProgram):
        yield from _slots(outcome.owner)
        yield outcome.slot
    elif isinstance(outcome, NewLeaf):
        yield from (*_slots(outcome.tensor), *_slots(outcome.grad))
    elif isinstance(outcome, View):
        yield from _slots(outcome.base)
    elif outcome is not None and hasattr(outcome, "slot"):
        yield outcome.slot
