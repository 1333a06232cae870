"""What the kernels of a native step are: their names, their sort, the user's lines behind them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lucid.codegen.program.program import KernelCall, kernel_names
from lucid.ir.graph import Node
from lucid.ir.location import Location


@dataclass(frozen=True, slots=True)
class Described:
    """A call of a kernel, once in a step; or of Python.

    Attributes:
        name: of the native function, which kernels with the same code share; of a call of Python
            the custom Function's, with ".backward" for its backward.
        kind: "map", "reduce", "scan", "scatter", "contract", "sort", "check", "copy", "loop" or
            "host".
        ops: what it computes, in order, each op once.
        lines: the user's lines that it computes; `gradient_lines`: those whose gradients.
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    lines: tuple[Location, ...]
    gradient_lines: tuple[Location, ...]

    @property
    def place(self) -> str:
        """The lines, in short: `train.py:24,26, grad of train.py:24`."""
        listed = _listed(self.lines), _listed(self.gradient_lines, "grad of ")
        return ", ".join(filter(None, listed))


def describe(calls: Sequence[KernelCall]) -> Iterator[Described]:
    """Say what each call of a native step is."""
    for name, call in zip(kernel_names(calls), calls, strict=True):
        ops = dict.fromkeys(n.op.name for n in call.nodes if n.op.kind not in ("view", "host"))
        is_gradient = [node.gradient_of is not None for node in call.nodes]
        yield Described(
            call.kernel.label or name,
            call.kernel.kind,
            tuple(ops),
            _lines(n for n, grad in zip(call.nodes, is_gradient, strict=True) if not grad),
            _lines(n for n, grad in zip(call.nodes, is_gradient, strict=True) if grad),
        )


def _lines(nodes: Iterable[Node]) -> tuple[Location, ...]:
    found = {node.location for node in nodes if node.location is not None}
    return tuple(sorted(found, key=lambda place: (place.file, place.line)))


def _listed(places: Iterable[Location], before: str = "") -> str:
    """`train.py:24,26`, for each file."""
    files: dict[str, list[str]] = {}
    for place in places:
        files.setdefault(os.path.basename(place.file), []).append(str(place.line))
    return ", ".join(f"{before}{file}:{','.join(lines)}" for file, lines in files.items())
