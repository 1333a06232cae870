"""What a trace knows already: values that depend on nothing but constants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lucid.ir.graph import Value


def known_array(value: Value, constants: Mapping[Value, np.ndarray]) -> np.ndarray | None:
    """The data of a value that constants alone decide; None where an input has a part in it.

    So a mask made of `eye` and `arange` can be indexed with in a compiled step, and branched on.
    """
    known: dict[Value, np.ndarray] = {}
    pending = [value]
    while pending:
        current = pending[-1]
        if current in known:
            pending.pop()
            continue
        if current in constants:
            known[current] = constants[current]
            continue
        node = current.producer
        if node is None or node.op.kind in ("call", "host"):
            return None
        missing = [operand for operand in node.operands if operand not in known]
        if missing:
            pending += missing
            continue
        with np.errstate(all="ignore"):
            arrays = [np.asarray(known[operand], order="C") for operand in node.operands]
            known[current] = np.asarray(node.op.evaluate(*arrays, **node.attributes))
    return np.array(known[value], order="C")
