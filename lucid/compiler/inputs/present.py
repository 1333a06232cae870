"""The data of a running trace's values in the call that is traced, evaluated when asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from lucid.autograd.native import Code, NotStraightError
from lucid.compiler.inputs.cells import Cell
from lucid.compiler.inputs.scalars import SymSource
from lucid.ir.clone import copy_node
from lucid.ir.errors import LucidError
from lucid.ir.extents import NotOpenError, Sizes
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.interpret import evaluated
from lucid.ir.opening import at_hand, has_extents
from lucid.ir.ops.contraction import split_indices
from lucid.ir.types import DType
from lucid.runtime.open_programs import Families
from lucid.tensor.storage import Storage

Run = Callable[[Node, Sequence[np.ndarray]], Sequence[np.ndarray]]
"""Evaluates a region op, whose bodies may call Python."""
_MANY_PRODUCTS = 1 << 23
"""Multiplications for each node, for which NumPy takes longer than it takes to compile the node."""


def evaluate(
    values: Sequence[Value],
    known: MutableMapping[Value, np.ndarray],
    stand_ins: Mapping[Value, tuple[Value, int | None]] = MappingProxyType({}),
    run: Run | None = None,
    undecided: set[Value] | None = None,
) -> bool:
    """Enter the data of values into `known`; whether that determines them all, without Python.

    Raises what their ops raise, such as `IndexOutOfRangeError`.

    stand_ins: for a value another one that it equals, or whose row of this number it is.
    run: evaluates loops that call Python.
    undecided: values that `known` doesn't determine, by earlier calls; those found now are added.
    """
    undecided = set() if undecided is None else undecided
    path: list[Value] = []  # from what is asked for: each needs the next one
    is_known = _evaluate(list(values), path, known, stand_ins, run, undecided)
    if not is_known:
        undecided.update(path)
    return is_known


def _evaluate(
    pending: list[Value],
    path: list[Value],
    known: MutableMapping[Value, np.ndarray],
    stand_ins: Mapping[Value, tuple[Value, int | None]],
    run: Run | None,
    undecided: Collection[Value],
) -> bool:
    with np.errstate(all="ignore"):
        while pending:
            value = pending[-1]
            if value in known:
                pending.pop()
                if path and path[-1] is value:
                    path.pop()
                continue
            if value in undecided:
                return False
            if not path or path[-1] is not value:
                path.append(value)
            node = value.producer
            if value in stand_ins:
                whole, row = stand_ins[value]
                if whole in known:
                    known[value] = known[whole] if row is None else _row(known[whole], row)
                else:
                    pending.append(whole)
                continue
            if node is None or node.op.kind in ("call", "host"):
                return False
            if run is None and node.attributes.get("python"):
                return False
            missing = [operand for operand in node.operands if operand not in known]
            pending += missing
            if not missing:
                results, operands = node.results, [known[operand] for operand in node.operands]
                if has_extents(node):
                    if run is None:
                        return False
                    node = at_hand(node)
                if run is not None and node.op.kind == "region":
                    found = run(node, operands)
                else:
                    found = evaluated(node, operands, value.graph.functions)
                known.update(zip(results, found, strict=True))
    return True


def _evaluate_natively(values: Sequence[Value], known: MutableMapping[Value, np.ndarray]) -> None:
    """Enter the data of values, and of the products of matrices behind them, if that is much work.

    It leaves alone what calls Python, and errors, which NumPy finds as well.
    """
    nodes, inputs = _behind(values, known)
    made = [node for node in nodes if node.op.kind == "contract"]
    is_code = all(node.op.kind not in ("call", "host", "region", "check") for node in nodes)
    work = sum(map(_multiplications, made))
    if not (is_code and made) or work < _MANY_PRODUCTS * len(nodes):
        return
    graph, copies = Graph("present"), {}
    for value in inputs:
        copies[value] = graph.add_input(value.type)
    for node in nodes:
        copied = copy_node(node, graph, copies)
        copied.gradient_of = None
        graph.nodes.append(copied)
    wanted = list(dict.fromkeys([*values, *(node.result for node in made)]))
    wanted = [value for value in wanted if value not in known]
    graph.outputs = [copies[value] for value in wanted]
    try:
        found = Code(graph, (), Families()).run([known[value] for value in inputs])
    except (LucidError, NotStraightError):
        return
    known.update(zip(wanted, found, strict=True))


def _behind(
    values: Sequence[Value], known: Mapping[Value, np.ndarray]
) -> tuple[list[Node], list[Value]]:
    """The nodes from what is known to some values, in order, and what they read of the known."""
    nodes: dict[Node, None] = {}
    inputs: dict[Value, None] = {}
    pending = [value for value in values if value not in known]
    while pending:
        node = pending[-1].producer
        if node is None or node in nodes:
            pending.pop()
            continue
        read = [value for value in node.operands if value in known]
        inputs.update(dict.fromkeys(read))
        missing = [
            value
            for value in node.operands
            if value not in known and value.producer is not None and value.producer not in nodes
        ]
        pending += missing
        if not missing:
            nodes[node] = None
    return [*nodes], [*inputs]


def _multiplications(node: Node) -> int:
    """Of a product of matrices."""
    shape, indices = node.operands[0].shape, node.attributes.get("indices")
    if indices is None:
        return node.result.type.size * shape[-1]
    names, _, result = split_indices(indices)
    inner = [size for name, size in zip(names, shape, strict=True) if name not in result]
    return node.result.type.size * prod(inner)


def _row(array: np.ndarray, row: int) -> np.ndarray:
    """A row; zeros of an array that has none."""
    return np.asarray(array[row]) if len(array) else np.zeros(array.shape[1:], array.dtype)


class PresentValues:
    """Evaluates nodes of the graph so far, each once; host calls are not repeated.

    NumPy does it, or native code where that takes long: then it is known what products of matrices
    give, and what was asked for.

    Attributes:
        stand_ins: of what the body of a loop reads, what it is in the first round: another value,
            or a row of it.
        run: evaluates loops and branches, which may call Python.
        refuse_unknown: raises; called where a value has no data now, as in a round of a loop.
        refuse_shared: called before an evaluation; raises where inputs share memory that the step
            has written, so that eager mode would see other data.
    """

    def __init__(
        self,
        cells: Mapping[Storage, Cell],
        live_inputs: Mapping[tuple[str, DType], tuple[Value, SymSource]],
        sizes: Sizes,
    ) -> None:
        self.stand_ins: dict[Value, tuple[Value, int | None]] = {}
        self.run: Run | None = None
        self._cells, self._live_inputs, self._sizes = cells, live_inputs, sizes
        self.refuse_unknown: Callable[[], object] = lambda: None
        self.refuse_shared: Callable[[], object] = lambda: None
        self._known: dict[Value, np.ndarray] = {}
        self._is_refused = False

    def refuse(self) -> None:
        """Raise `NotOpenError` from now on where values are asked for."""
        self._is_refused = True

    def note(self, node: Node, results: Sequence[np.ndarray]) -> None:
        """Enter what a host call gave."""
        self._known.update(zip(node.results, results, strict=True))

    def of(self, values: Sequence[Value]) -> list[np.ndarray]:
        """The data of values. Raises what their ops raise, such as `IndexOutOfRangeError`."""
        if self._is_refused:
            raise NotOpenError(
                "values of a call are needed, for a trace that is for others as well"
            )
        self.refuse_shared()
        known = self._known
        known.update(self._inputs())
        if not self.stand_ins and not self._sizes.symbols:
            _evaluate_natively(values, known)
        try:
            is_known = evaluate(values, known, self.stand_ins, self.run)
        except LucidError:
            self.examine(values[0].graph)
            raise
        if not is_known:
            self.refuse_unknown()
            raise AssertionError("its inputs and host calls decide all of a trace")
        return [known[value] for value in values]

    def examine(self, graph: Graph) -> None:
        """Raise what the first check of values says that fails now.

        In eager mode it would have stood before what has failed in the trace.
        """
        self.refuse_shared()
        self._known.update(self._inputs())
        for node in graph.nodes:
            if node.op.kind == "check" and node.attributes["error"] != "exit":
                evaluate(node.results, self._known, self.stand_ins, self.run)

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
