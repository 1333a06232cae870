"""Gradients that a compiled step has computed and that nobody has looked at yet.

A leaf's `.grad` becomes a tensor when somebody reads it. Memory that no one has seen can be written
again by a later call; memory that was shown once never is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from lucid.ir.op import Operand
from lucid.tensor.context import context
from lucid.tensor.write_locks import lock

if TYPE_CHECKING:
    from lucid.runtime.reuse import Reusable
    from lucid.tensor.core import TensorCore


class GradBuffers:
    """The gradients that one call of a step leaves.

    Attributes:
        outputs: the memory that they are in.
        promises: with the leaf that each is for.
        was_seen: whether somebody has read one of them.
        was_left: whether the leaves have got them, and memory that isn't kept is theirs alone.
        words: the same for native code, if that leaves gradients too: their number, and for each
            the number of the output, its address, the place of the lazy one on the leaf, and that.
    """

    __slots__ = ("outputs", "promises", "was_left", "was_seen", "words")

    def __init__(self, outputs: Reusable) -> None:
        self.outputs = outputs
        self.promises: list[tuple[WithGradient, LazyGrad]] = []
        self.was_seen = self.was_left = False
        self.words: np.ndarray | None = None


class LazyGrad:
    """What stands for a leaf's gradient until it is read."""

    __slots__ = ("array", "batch", "make")

    def __init__(
        self, batch: GradBuffers, array: np.ndarray, make: Callable[[np.ndarray], TensorCore]
    ) -> None:
        self.batch = batch
        self.array = array
        self.make = make


class WithGradient(Operand):
    """The place of a tensor's gradient, which may hold a lazy one.

    A trace has its own idea of what is there, so that other threads see nothing of it.
    """

    __slots__ = ("_gradient",)

    _gradient: TensorCore | LazyGrad | None

    @property
    def _grad(self) -> TensorCore | None:
        recorder = context.recorder
        if recorder is not None and (use := recorder.grads.get(id(self))) is not None:
            return use.now
        found = self._gradient
        return self._redeemed() if isinstance(found, LazyGrad) else found

    @_grad.setter
    def _grad(self, value: TensorCore | None) -> None:
        recorder = context.recorder
        if recorder is not None and (use := recorder.grads.get(id(self))) is not None:
            use.now = value
        else:
            with lock:
                self._gradient = value

    def _redeemed(self) -> TensorCore | None:
        """The gradient, made now if it was lazy; making it may run other Python code."""
        with lock:
            while True:
                found = self._gradient
                if not isinstance(found, LazyGrad):
                    return found
                found.batch.was_seen = True
                made = found.make(found.array)
                if self._gradient is found:
                    self._gradient = made
