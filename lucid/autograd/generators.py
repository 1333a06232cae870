"""The state of Python's and NumPy's random generators."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
# Methods of a RandomState that leave the normal number alone which it may have drawn in advance.
_OF_WORDS = frozenset(
    {
        *("rand", "random", "random_sample", "uniform", "randint", "choice"),
        *("permutation", "shuffle", "bytes"),
    }
)
_WORDS = 625 * 4  # bytes of a Mersenne Twister's state: its words, and the place among them


def state_of(generator: Any, draw: str = "") -> Any:
    """The state of a random generator, for `put_state`; None of None.

    draw: the method that is all that will be taken back: NumPy takes 50 us to write all down.
    """
    if generator is None:
        return None
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        words = generator._bit_generator
        if draw in _OF_WORDS and type(words) is np.random.MT19937:
            with words.lock:
                return ctypes.string_at(words.ctypes.state_address, _WORDS)
        return generator.get_state()
    return generator.bit_generator.state


def put_state(generator: Any, state: Any) -> None:
    """Let a random generator go on as it did from a state."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(state, bytes):
        words = generator._bit_generator
        with words.lock:
            ctypes.memmove(words.ctypes.state_address, state, len(state))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state
