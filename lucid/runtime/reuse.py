"""Outputs that a step may write again, because nobody has seen them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lucid.ir.memory import address_of


class Reusable:
    """Arrays for some outputs of a step, to be given to one call at a time.

    Attributes:
        arrays: by number of the output; None where each call makes a new array.
        addresses: (number of the output, address of its array).
        missing: numbers of the outputs without an array.
    """

    __slots__ = ("addresses", "arrays", "missing")

    def __init__(self, arrays: Iterable[np.ndarray | None]) -> None:
        self.arrays = list(arrays)
        pairs = enumerate(self.arrays)
        self.addresses = [(number, address_of(a)) for number, a in pairs if a is not None]
        self.missing = [number for number, a in enumerate(self.arrays) if a is None]
