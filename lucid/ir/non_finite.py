"""The op of a step that first makes a NaN or an infinity."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from types import CodeType

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import NonFiniteError
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.interpret import interpret
from lucid.ir.location import Location, at_line

SHOWN = 4  # operands that a message describes


class _Watch:
    """Looks at each result of a run for what its op has made out of other numbers.

    An op makes a NaN where no operand has one, and an infinity where all operands are finite. What
    it gets and passes on, such as the -inf of a mask, it doesn't make.

    Attributes:
        error: about the first op; None: there is none so far.
    """

    def __init__(self, graph: Graph) -> None:
        self._inside = dict(_functions(graph))
        self._hosts = graph.hosts
        self.error: NonFiniteError | None = None

    def __call__(
        self, node: Node, operands: Sequence[np.ndarray], result: np.ndarray
    ) -> np.ndarray:
        if self.error is None and result.dtype.kind == "f" and not _is_given(node):
            made = _made(operands, result)
            if made is not None:
                inside, method = self._inside.get(node, ""), self._method(node)
                self.error = _error(node, operands, made, inside, method)
        return result

    def _method(self, node: Node) -> Location | None:
        """Where the user's code of a host call begins."""
        if node.op is not ops.host:
            return None
        code = getattr(self._hosts[node.attributes["function"]], "code", None)
        if not isinstance(code, CodeType):
            return None
        line = code.co_firstlineno
        while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
            line += 1
        return Location(code.co_filename, line)


def first_non_finite(
    graph: Graph, inputs: Sequence[np.ndarray | float]
) -> tuple[NonFiniteError | None, list[np.ndarray]]:
    """What a step says that has made a NaN or an infinity, and its outputs by NumPy.

    None if no op makes one and NumPy's results have some as well: then they are passed on.
    """
    watch = _Watch(graph)
    outputs, written = interpret(graph, inputs, watch)
    results = [array for array in (*outputs, *written) if array.dtype.kind == "f"]
    if watch.error is None and all(np.isfinite(array).all() for array in results):
        watch.error = NonFiniteError(
            "the native step makes a NaN or an infinity where NumPy makes none; nothing was "
            "changed\n"
            "hint: step.check(...) names the kernel"
        )
    return watch.error, outputs


def _is_given(node: Node) -> bool:
    """Whether a node is a number that stands in the program as such."""
    return node.op in (ops.constant, ops.parameter)


def _functions(graph: Graph) -> Iterator[tuple[Node, str]]:
    """The nodes in custom Functions, with the name of the one that is next to them."""
    for name, function in graph.functions.items():
        for node in function.nodes:
            yield node, name


def _made(operands: Sequence[np.ndarray], result: np.ndarray) -> str | None:
    """How many elements of which kind an op has made; None: none."""
    floats = [x for x in operands if x.dtype.kind in "fc"]
    nans = infinities = 0
    if not any(np.isnan(x).any() for x in floats):
        nans = int(np.isnan(result).sum())
        if not any(np.isinf(x).any() for x in floats):
            infinities = int(np.isinf(result).sum())
    counts = [f"{n} {what}" for n, what in ((nans, "NaN"), (infinities, "infinite")) if n]
    return f"{' and '.join(counts)} of {result.size} elements" if counts else None


def _error(
    node: Node,
    operands: Sequence[np.ndarray],
    made: str,
    function: str,
    method: Location | None,
) -> NonFiniteError:
    """function: the custom Function that the op is in; method: what a host call calls."""
    name = node.attributes["function"] if node.op is ops.host else node.op.name
    backward = node.gradient_of is not None
    where = ", in a backward" if backward else ""
    if function:
        where = f", in {function}"
    elif backward and node.location is not None:
        where = f", in the backward of {node.location}"
    lines = [f"{name}: made {made}{where}; nothing was changed"]
    for value, array in [*zip(node.operands, operands, strict=True)][:SHOWN]:
        lines.append(f"  {_described(value, array)}")
    location = node.location
    if node.op is ops.host:
        lines += [] if location is None else [f"  called at {location}   {location.text}"]
        location = method or location
    return at_line(NonFiniteError("\n".join(lines)), location)


def _described(value: Value, array: np.ndarray) -> str:
    text = f"{value.name or 'operand'}: {value.type}  {statistics(array)}"
    place = _birthplace(value)
    return text if place is None else f"{text}  from {place}   {place.text}".rstrip()


def _birthplace(value: Value) -> Location | None:
    return None if value.producer is None else value.producer.location


def statistics(array: np.ndarray) -> str:
    """The range of an array of numbers in one line."""
    if not array.size:
        return "no elements"
    if array.dtype.kind != "f":
        return f"{array.min()} to {array.max()}"
    finite = array[np.isfinite(array)].astype(np.float64)
    parts = []
    if finite.size:
        low, high, mean = (f"{x + 0.0:.4g}" for x in (finite.min(), finite.max(), finite.mean()))
        parts.append(f"{low} to {high}, mean {mean}")  # without the sign of zero
    zeros = int(array.size - np.count_nonzero(array))
    for count, what in (
        (zeros, "zeros"),
        (int(np.isinf(array).sum()), "infinite"),
        (int(np.isnan(array).sum()), "NaN"),
    ):
        if count:
            parts.append(f"{count} {what}")
    return ", ".join(parts)
