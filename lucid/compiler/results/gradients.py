"""The gradients that a step leaves on leaves: promises, in memory that calls take turns with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from lucid.compiler.inputs.cells import GradUse, look_of
from lucid.compiler.inputs.signature import Call
from lucid.compiler.results.output_specs import (
    GraphOutput,
    GraphOutputView,
    InputView,
    OutputSpec,
    leaf_of,
)
from lucid.runtime.executable import Executable
from lucid.tensor.core import TensorCore
from lucid.tensor.lazy_grads import GradBuffers, LazyGrad, WithGradient
from lucid.tensor.storage import Storage
from lucid.tensor.write_locks import lock

UseGrad = tuple[GradUse, OutputSpec | None]
KEPT_BYTES = 1 << 22  # more than this isn't kept for a later call: others can have the memory


class Gradients:
    """Puts gradients on leaves after each call.

    A call writes into memory of its own; it is the spare one when nobody has read the gradients
    that were in it. What the latest call left stays as it is until all leaves have newer ones, so
    that a failing step, or another thread that reads `.grad`, finds it unharmed. Large gradients
    are there once: a call that can't fail takes those of the latest one from the leaves, as
    `zero_grad` does, and writes into their memory.

    Attributes:
        are_promised: whether there are lazy gradients; is_kept: whether their memory is kept for
            later calls.
        others: gradients that are made at once: of arguments, and those that are None, a view or a
            result as well.
        spares: batches whose memory may be written; latest: the batch on the leaves, in a list.
    """

    def __init__(
        self, executable: Executable, grads: Sequence[UseGrad], leaves: Iterable[OutputSpec]
    ) -> None:
        specs = (*leaves, *(spec for _, spec in grads))
        used = Counter(slot for spec in specs for slot in _slots(spec))
        self._promised: list[tuple[TensorCore, GraphOutput]] = []
        self.others: list[UseGrad] = []
        for use, spec in grads:
            leaf = use.leaf if use.leaf is None or use.leaf._grad_fn is None else None
            own = spec if isinstance(spec, GraphOutput) and _is_own(spec) else None
            if own is not None and own.slot in executable.open_outputs:
                own = None
            if leaf is not None and own is not None and used[own.slot] == 1:
                self._promised.append((leaf, own))
            else:
                self.others.append((use, spec))
        self.are_promised = bool(self._promised)
        self._executable = executable
        self._slots = {spec.slot for _, spec in self._promised}
        size = sum(spec.type.nbytes for _, spec in self._promised)
        self.is_kept = size <= KEPT_BYTES
        self._place: int | None = None
        self.spares: list[GradBuffers] = []
        self.latest: list[GradBuffers | None] = [None]

    def __del__(self) -> None:
        """Break the cycle of a leaf, its lazy gradient, and the batch of that."""
        for batch in (*self.spares, *self.latest):
            if batch is not None:
                batch.promises.clear()

    @property
    def nbytes(self) -> int:
        """The bytes of memory kept for later calls."""
        size = sum(spec.type.nbytes for _, spec in self._promised)
        return size * (len(self.spares) + (self.latest[0] is not None))

    def kept_results(self, count: int) -> list[int]:
        """The numbers of the program's `count` outputs that are no lazy gradients."""
        return [number for number in range(count) if number not in self._slots]

    def share(self, place: int) -> None:
        """Let native code leave gradients too; place: the offset of a leaf's gradient, in bytes."""
        self._place = place
        for batch in (*self.spares, *self.latest):
            if batch is not None and self.is_kept:
                batch.words = self._words(batch)

    def begin(self, *, may_fail: bool = True) -> GradBuffers:
        """Memory for the gradients of a call.

        may_fail: whether the native step may end before it has written all.
        """
        try:
            return self.spares.pop()
        except IndexError:
            pass
        found = None if self.is_kept or may_fail else self._taken_from_leaves()
        if found is not None:
            return found
        outputs = self._executable.reusable(self._slots)
        batch = GradBuffers(outputs)
        for leaf, spec in self._promised:
            array = outputs.arrays[spec.slot]
            assert array is not None
            batch.promises.append((leaf, LazyGrad(batch, array, spec.on)))
        if self.is_kept and self._place is not None:
            batch.words = self._words(batch)
        return batch

    def _taken_from_leaves(self) -> GradBuffers | None:
        """The batch that an earlier call has left on all leaves; None if some of it was read."""
        with lock:
            first = self._promised[0][0]._gradient
            if not isinstance(first, LazyGrad) or first.batch.was_seen:
                return None
            batch = first.batch
            promises: list[tuple[WithGradient, LazyGrad]] = []
            if batch.outputs.missing != self.kept_results(len(self._executable.outputs)):
                return None  # another program's
            for leaf, spec in self._promised:
                promise = leaf._gradient
                if not isinstance(promise, LazyGrad) or promise.batch is not batch:
                    return None
                if promise.array is not batch.outputs.arrays[spec.slot]:
                    return None
                promises.append((leaf, promise))
            for leaf, _ in self._promised:
                leaf._gradient = None
            batch.promises = promises
        return batch

    def fill(self) -> None:
        """Have a spare batch for native code, even while all earlier ones are in use."""
        if self.is_kept and not self.spares:
            self.spares.append(self.begin())

    def _words(self, batch: GradBuffers) -> np.ndarray:
        assert self._place is not None
        addresses = dict(batch.outputs.addresses)
        words = [len(self._promised)]
        for (leaf, promise), (_, spec) in zip(batch.promises, self._promised, strict=True):
            slot = spec.slot
            words += (slot, addresses[slot], id(leaf) + self._place, id(promise))
        return np.array(words, np.int64)

    def leave(self, batch: GradBuffers) -> None:
        """Put lazy gradients on the leaves; the batch before becomes a spare."""
        with lock:
            for leaf, promise in batch.promises:
                leaf._gradient = promise
            if not self.is_kept:
                batch.was_left = True
                self.retire(batch)
            elif self.latest[0] is not batch:  # as it is when this is done again
                ended, self.latest[0] = self.latest[0], batch
                if ended is not None:
                    self.retire(ended)

    def give_back(self, batch: GradBuffers) -> None:
        """Undo `begin` after a call that has failed."""
        with lock:
            for leaf, promise in batch.promises if batch.was_left else ():
                if leaf._gradient is None:
                    leaf._gradient = promise
            self.retire(batch)

    def retire(self, batch: GradBuffers) -> None:
        """Keep a batch that no leaf needs any more as a spare, or let it go."""
        if self.is_kept and not batch.was_seen and not self.spares:
            self.spares.append(batch)
        else:
            batch.promises.clear()  # they refer to the batch: memory must not wait for gc


def _is_own(spec: GraphOutput) -> bool:
    """Whether a result has memory of its own, and no history that is special."""
    return type(spec) is GraphOutput and spec.past is None


def _slots(spec: OutputSpec | None) -> Iterator[int]:
    """The program's outputs that a result is made of."""
    if isinstance(spec, GraphOutputView):
        yield from _slots(spec.owner)
        yield spec.slot
    elif isinstance(spec, InputView):
        yield from _slots(spec.base)
    elif spec is not None and hasattr(spec, "slot"):
        yield spec.slot


def grad_failure(use: GradUse, call: Call, state: Collection[Storage]) -> str | None:
    """Why a program doesn't fit the gradient that a call finds; None if it fits.

    state: the memory of the step's state.
    """
    leaf = leaf_of(use, call.tensors)
    found = look_of(leaf._grad)
    grad = leaf._grad
    is_other = False
    if grad is not None and grad._storage is not use.storage:
        is_other = use.storage is not None or grad._storage in state
    if found == use.found and not is_other:
        return None
    before, now = (
        "None" if look is None else str(look[0]) + (" that requires grad" if look[1] else "")
        for look in (use.found, found)
    )
    name = f"{use.name}.grad" if use.name else f".grad of argument {use.position}"
    if is_other:
        return f"{name}: another tensor than the step's state"
    return f"{name}: other memory" if before == now else f"{name}: {before} -> {now}"


def shared_gradients(uses: Sequence[GradUse], call: Call) -> list[int]:
    """For each gradient that a call finds, the first argument or gradient on the same memory."""
    first: dict[Storage, int] = {}
    for number, tensor in enumerate(call.tensors):
        first.setdefault(tensor._storage, number)
    found = []
    for number, use in enumerate(uses, len(call.tensors)):
        grad = leaf_of(use, call.tensors)._grad
        found.append(number if grad is None else first.setdefault(grad._storage, number))
    return found
