"""What the values of a running trace are: at present, or always."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import numpy as np

from lucid.compiler.inputs.cells import Cell
from lucid.compiler.inputs.scalars import SymSource
from lucid.ir.graph import Node, Value
from lucid.ir.interpret import evaluated
from lucid.ir.types import DType
from lucid.tensor.storage import Storage


def evaluate(values: Sequence[Value], known: MutableMapping[Value, np.ndarray]) -> bool:
    """Enter the data of values, and whether what is known decides it; calls of Python do not.

    Raises what their ops raise, such as `IndexOutOfRangeError`.
    """
    pending = list(values)
    with np.errstate(all="ignore"):
        while pending:
            value = pending[-1]
            if value in known:
                pending.pop()
                continue
            node = value.producer
            if node is None or node.op.kind in ("call", "host"):
                return False
            missing = [operand for operand in node.operands if operand not in known]
            pending += missing
            if not missing:
                operands = [known[operand] for operand in node.operands]
                found = evaluated(node, operands, value.graph.functions)
                known.update(zip(node.results, found, strict=True))
    return True


class PresentValues:
    """Evaluates nodes of the graph so far with NumPy, each once; host calls are not repeated.

    Attributes:
        refuse_unknown: called where a value has no data now, as that of each round of a loop.
    """

    def __init__(
        self,
        cells: Mapping[Storage, Cell],
        live_inputs: Mapping[tuple[str, DType], tuple[Value, SymSource]],
    ) -> None:
        self._cells, self._live_inputs = cells, live_inputs
        self.refuse_unknown: Callable[[], object] = lambda: None
        self._known: dict[Value, np.ndarray] = {}

    def note(self, node: Node, results: Sequence[np.ndarray]) -> None:
        """Enter what a host call gave."""
        self._known.update(zip(node.results, results, strict=True))

    def of(self, values: Sequence[Value]) -> list[np.ndarray]:
        """The data of values. Raises what their ops raise, such as `IndexOutOfRangeError`."""
        known = ChainMap(self._known, self._inputs())
        if not evaluate(values, known):
            self.refuse_unknown()
            raise AssertionError("its inputs and host calls decide all of a trace")
        return [known[value] for value in values]

    def _inputs(self) -> dict[Value, np.ndarray]:
        """What cells and live scalars hold; it is read anew, as arrays are never copied."""
        found = {
            cell.value: cell.storage.array
            for cell in self._cells.values()
            if cell.value.producer is None and cell.storage.array is not None
        }
        for value, source in self._live_inputs.values():
            found[value] = np.asarray(source.now, value.dtype.numpy)
        return found
