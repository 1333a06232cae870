"""The kernels of a native step: what each is, and tables of what they cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import repeat
from math import prod, sqrt
from typing import Any

from lucid.codegen import costs
from lucid.codegen.program.program import KernelCall, Program as Lowered, kernel_names
from lucid.compiler.reports.tables import cut, micro, size, table
from lucid.ir.errors import OptionError
from lucid.ir.extents import hint
from lucid.ir.graph import Node
from lucid.ir.location import Location

BY = ("kernel", "line", "module", "op", "call")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A kernel that reads what another one computes, and why they aren't one.

    Attributes:
        kernel: the later one's name; call: its number in the step.
        ops: what is computed, and what reads it.
        is_beside: it reads the same array instead, with the second of these ops.
    """

    kernel: str
    call: int
    ops: tuple[str, str]
    why: str
    is_beside: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """A call of a kernel, once in a step; or of Python.

    Attributes:
        call: its number in the step.
        name: of the native function, which kernels with the same code share; of a call of Python
            the custom Function's, with ".backward" for its backward.
        kind: "map", "reduce", "scan", "scatter", "contract", "sort", "check", "copy", "loop" or
            "host".
        ops: what it computes, in order, each op once.
        lines: the user's lines that it computes; `gradient_lines`: those whose gradients.
        modules: whose work it does.
        seconds: what it takes: as measured, or as its shapes let expect.
        bytes: of the elements that it reads and writes, each counted once.
        flops: operations on floats; 0 for a call of Python.
        parts: how many pieces threads share; 1 if they don't.
        apart: who reads what it computes in a kernel of its own, where that is asked for.
        weights: what of its time is spent on each node, as far as can be told from their work.
    """

    call: int
    name: str
    kind: str
    ops: tuple[str, ...]
    lines: tuple[Location, ...]
    gradient_lines: tuple[Location, ...]
    modules: tuple[str, ...]
    seconds: float
    bytes: int
    flops: int
    parts: int
    apart: tuple[Neighbour, ...] = ()
    weights: tuple[tuple[Node, float], ...] = field(default=(), repr=False)

    @property
    def place(self) -> str:
        """The lines, in short: `train.py:24,26, grad of train.py:24`."""
        listed = _listed(self.lines), _listed(self.gradient_lines, "grad of ")
        return ", ".join(filter(None, listed))

    @property
    def gigabytes_per_second(self) -> float:
        return _rate(self.bytes, self.seconds)

    @property
    def gigaflops_per_second(self) -> float:
        return _rate(self.flops, self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, without the nodes."""
        found = {x.name: getattr(self, x.name) for x in fields(self)}
        for name in ("lines", "gradient_lines", "weights"):
            del found[name]
        return found | {"place": self.place, "apart": [asdict(other) for other in self.apart]}


def kernels_of(
    calls: Sequence[KernelCall],
    seconds: Iterable[float] = repeat(0.0),
    apart: Mapping[int, Iterable[Neighbour]] = {},
) -> Iterator[Kernel]:
    """Say what each call of a native step is, and how long it takes."""
    for number, (call, name, took) in enumerate(
        zip(calls, kernel_names(calls), seconds, strict=False)
    ):
        nodes, work, parts = call.nodes, call.kernel.work(call.args), call.kernel.parts
        yield Kernel(
            number,
            call.kernel.label or name,
            call.kernel.kind,
            tuple(dict.fromkeys(n.op.name for n in nodes if n.op.kind not in ("view", "host"))),
            _lines(node for node in nodes if node.gradient_of is None),
            _lines(node for node in nodes if node.gradient_of is not None),
            tuple(dict.fromkeys(node.scope for node in nodes if node.scope)),
            took,
            work.bytes,
            work.flops,
            1 if parts is None else parts.count,
            tuple(apart.get(number, ())),
            weights(nodes),
        )


def memory_of(lowered: Lowered) -> dict[str, int]:
    """The bytes of one call: outside of the step, what it is given, finds, and makes; for temps."""
    inputs, results = lowered.graph.inputs, dict.fromkeys(lowered.graph.outputs)
    return {
        "arguments": sum(entry.value.type.nbytes for entry in inputs if entry.kind == "arg"),
        "state": sum(entry.value.type.nbytes for entry in inputs if entry.kind == "state"),
        "results": sum(value.type.nbytes for value in results),
        "arena": lowered.arena_bytes,
    }


def _lines(nodes: Iterable[Node]) -> tuple[Location, ...]:
    found = {node.location for node in nodes if node.location is not None}
    return tuple(sorted(found, key=lambda place: (place.file, place.line)))


def _listed(places: Iterable[Location], before: str = "") -> str:
    """`train.py:24,26`, for each file."""
    files: dict[str, list[str]] = {}
    for place in places:
        files.setdefault(os.path.basename(place.file), []).append(str(place.line))
    return ", ".join(f"{before}{file}:{','.join(lines)}" for file, lines in files.items())


def weights(nodes: Sequence[Node]) -> tuple[tuple[Node, float], ...]:
    """The share of each of a kernel's nodes in its work."""
    work = [(node, _work(node)) for node in nodes if not node.op.is_view]
    whole = sum(amount for _, amount in work)
    return tuple((node, amount / whole) for node, amount in work) if whole else ()


def _work(node: Node) -> float:
    """Elements that are computed or read, times the terms of a product."""
    shapes = [x.shape for x in (*node.results, *node.operands)]
    elements = max((hint(prod(shape)) for shape in shapes), default=1)
    if node.op.kind == "contract" and len(node.operands) == 2:
        a, b = (hint(prod(x.shape)) for x in node.operands)
        made = hint(prod(node.result.shape))
        return 2 * sqrt(float(a) * b * made) if a and b and made else 1.0
    return max(1.0, elements * costs.cost_of(node.op.name))


# Totals -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Total:
    """The time of all that has a name in common.

    Attributes:
        calls: how many calls of kernels have a part in it.
        seconds, bytes, flops: as of a kernel; its parts of kernels that do more than that.
        share: of the time of a call of the step.
        kinds, ops, places, modules: of these kernels; parts: how many pieces threads share, at
            most.
    """

    name: str
    calls: int
    seconds: float
    share: float
    bytes: int
    flops: int
    kinds: tuple[str, ...]
    parts: int
    ops: tuple[str, ...]
    places: tuple[str, ...]
    modules: tuple[str, ...]


def totals(kernels: Iterable[Kernel], by: str, whole: float) -> list[Total]:
    """Times added up by "kernel", "line", "module", "op", or "call", the longest first.

    A kernel of several lines, Modules or ops is shared out by the work of each: its elements, or
    the multiplications of a product. `whole`: the time of a call. Raises `OptionError` for another
    word.
    """
    if by not in BY:
        raise OptionError(f"profile: totals are by {', '.join(BY)}, not {by!r}")
    found: dict[str, list[tuple[Kernel, float]]] = {}
    for kernel in kernels:
        for name, part in _parts(kernel, by).items():
            found.setdefault(name, []).append((kernel, part))
    made = [_total(name, parts, whole) for name, parts in found.items()]
    return sorted(made, key=lambda total: -total.seconds)


def _total(name: str, parts: Sequence[tuple[Kernel, float]], whole: float) -> Total:
    seconds = sum(kernel.seconds * part for kernel, part in parts)
    kernels = [kernel for kernel, _ in parts]
    return Total(
        name,
        len(parts),
        seconds,
        seconds / whole if whole else 0.0,
        round(sum(kernel.bytes * part for kernel, part in parts)),
        round(sum(kernel.flops * part for kernel, part in parts)),
        tuple(dict.fromkeys(kernel.kind for kernel in kernels)),
        max(kernel.parts for kernel in kernels),
        tuple(dict.fromkeys(op for kernel in kernels for op in kernel.ops)),
        tuple(dict.fromkeys(kernel.place for kernel in kernels if kernel.place)),
        tuple(dict.fromkeys(name for kernel in kernels for name in kernel.modules)),
    )


def _parts(kernel: Kernel, by: str) -> dict[str, float]:
    """Which part of a kernel belongs to which name."""
    if by in ("kernel", "call") or not kernel.weights:
        return {f"{kernel.name} #{kernel.call}" if by == "call" else kernel.name: 1.0}
    found: dict[str, float] = {}
    for node, part in kernel.weights:
        name = _NAMES[by](node)
        found[name] = found.get(name, 0.0) + part
    return found


def _line(node: Node) -> str:
    if node.location is None:
        return "unknown"
    return f"{'grad of ' * (node.gradient_of is not None)}{node.location}"


_NAMES: dict[str, Callable[[Node], str]] = {
    "line": _line,
    "module": lambda node: node.scope or "outside of Modules",
    "op": lambda node: node.op.name,
}


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds * 1e-9 if seconds > 0 else 0.0


def _billions(amount: float, seconds: float) -> str:
    """Per second, or nothing where there is none."""
    return f"{_rate(amount, seconds):.1f}" if amount and seconds > 0 else ""


_COLUMNS: dict[str, Callable[[Total], str]] = {
    "µs": lambda x: micro(x.seconds),
    "%": lambda x: f"{100 * x.share:.1f}",
    "calls": lambda x: str(x.calls),
    "kind": lambda x: ", ".join(x.kinds),
    "name": lambda x: x.name,
    "parts": lambda x: str(x.parts) if x.parts > 1 else "",
    "computes": lambda x: ", ".join(x.ops),
    "of": lambda x: "; ".join(x.places),
    "in": lambda x: ", ".join(x.modules),
    "bytes": lambda x: size(x.bytes),
    "kB": lambda x: f"{x.bytes / 1e3:.1f}",
    "GB/s": lambda x: _billions(x.bytes, x.seconds),
    "GF/s": lambda x: _billions(x.flops, x.seconds),
}
_CUT = ("kind", "computes", "of", "in")
_LEFT = ("name", *_CUT)


def cells_of(
    found: Sequence[Total], columns: Sequence[str], name: str = "name", *, is_full: bool = False
) -> tuple[list[list[str]], list[int]]:
    """The titles and a row for each total, and which columns are text.

    name: of what has one; is_full: nothing is cut.
    """

    def cell(total: Total, column: str) -> str:
        text = _COLUMNS[column](total)
        return text if is_full or column not in _CUT else cut(text)

    rows = [[cell(total, column) for column in columns] for total in found]
    titles = [name if column == "name" else column for column in columns]
    return [titles, *rows], [i for i, column in enumerate(columns) if column in _LEFT]


def table_of(
    found: Sequence[Total], columns: Sequence[str], name: str = "name", *, is_full: bool = False
) -> list[str]:
    """The same as lines of text."""
    return table(*cells_of(found, columns, name, is_full=is_full))
