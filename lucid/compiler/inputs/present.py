"""What the values of a running trace are at present: with the data that its inputs hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lucid.ir.interpret import evaluate_node

if TYPE_CHECKING:
    from lucid.compiler.recording.recorder import Recorder
    from lucid.ir.graph import Node, Value


class PresentValues:
    """Evaluates nodes of the graph so far with NumPy, each once; host calls are not repeated."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: dict[Value, np.ndarray] = {}

    def note(self, node: Node, results: Sequence[np.ndarray]) -> None:
        """Enter what a host call gave."""
        self._known.update(zip(node.results, results, strict=True))

    def of(self, values: Sequence[Value]) -> list[np.ndarray]:
        """The data of values. Raises what their ops raise, such as `IndexOutOfRangeError`."""
        known = {**self._inputs(), **self._known}
        pending = list(values)
        with np.errstate(all="ignore"):
            while pending:
                value = pending[-1]
                node = value.producer
                missing = [] if node is None else [v for v in node.operands if v not in known]
                if value in known or node is None:
                    pending.pop()
                elif missing:
                    pending += missing
                else:
                    array = evaluate_node(node, [known[operand] for operand in node.operands])
                    known[value] = self._known[value] = array
        return [known[value] for value in values]

    def _inputs(self) -> dict[Value, np.ndarray]:
        """What cells and live scalars hold; it is read anew, as arrays are never copied."""
        recorder = self._recorder
        found = {
            cell.value: cell.storage.array
            for cell in recorder.cells.values()
            if cell.value.producer is None and cell.storage.array is not None
        }
        for value, source in recorder.live_inputs.values():
            found[value] = np.asarray(source.now, value.dtype.numpy)
        return found
