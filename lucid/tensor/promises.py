"""Gradients that a compiled step has computed and that nobody has looked at yet.

A leaf's `.grad` becomes a tensor when somebody reads it. Memory that no one has seen can be written
again by a later call; memory that was shown once never is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from lucid.ir.op import Operand

if TYPE_CHECKING:
    from lucid.runtime.reuse import Reusable
    from lucid.tensor.core import TensorCore

lock = threading.RLock()  # held to put promises on leaves, to redeem and to replace one


class Batch:
    """The gradients that one call of a step leaves.

    Attributes:
        outputs: the memory that they are in.
        promises: with the leaf that each is for.
        was_seen: whether somebody has read one of them.
    """

    __slots__ = ("outputs", "promises", "was_seen")

    def __init__(self, outputs: Reusable) -> None:
        self.outputs = outputs
        self.promises: list[tuple[WithGradient, Promise]] = []
        self.was_seen = False


class Promise:
    """What stands for a leaf's gradient until it is read."""

    __slots__ = ("array", "batch", "make")

    def __init__(
        self, batch: Batch, array: np.ndarray, make: Callable[[np.ndarray], TensorCore]
    ) -> None:
        self.batch = batch
        self.array = array
        self.make = make


class WithGradient(Operand):
    """The place of a tensor's gradient, which may hold a promise."""

    __slots__ = ("_gradient",)

    _gradient: TensorCore | Promise | None

    @property
    def _grad(self) -> TensorCore | None:
        found = self._gradient
        return self._redeemed() if isinstance(found, Promise) else found

    @_grad.setter
    def _grad(self, value: TensorCore | None) -> None:
        if isinstance(self._gradient, Promise):
            with lock:
                self._gradient = value
        else:
            self._gradient = value

    def _redeemed(self) -> TensorCore | None:
        """The gradient, made now if it was a promise; making it may run other Python code."""
        with lock:
            while True:
                found = self._gradient
                if not isinstance(found, Promise):
                    return found
                found.batch.was_seen = True
                made = found.make(found.array)
                if self._gradient is found:
                    self._gradient = made
