"""The state of Python's and NumPy's random generators."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)


def state_of(generator: Any) -> Any:
    """The state of a random generator, for `put_state`; None of None."""
    if generator is None:
        return None
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state()
    return generator.bit_generator.state


def put_state(generator: Any, state: Any) -> None:
    """Let a random generator go on as it did from a state."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state
