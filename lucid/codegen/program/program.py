"""A program: calls of kernels in order, and the buffers that they work on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from lucid.codegen.kernel_ir.kernel import Kernel, Origins
from lucid.codegen.kernel_ir.regions import Buffer, BufferView
from lucid.codegen.kernels.check import CheckKernel
from lucid.codegen.kernels.host import HostKernel
from lucid.codegen.llvm.target import Target
from lucid.ir.extents import is_open
from lucid.ir.graph import Graph, Node, Value
from lucid.ir.strides import Strides


@dataclass(slots=True)
class KernelCall:
    """One call of a kernel.

    Attributes:
        origins: where in it the kernel's work with an argument begins, in elements, if not at 0.
        node: of a check the node whose index operand it looks at; of a call of Python its node.
        nodes: what is computed; none of a copy.
        leaves: values that are in memory as a whole after it, and where.
    """

    kernel: Kernel
    args: list[Buffer]
    origins: Origins = field(default_factory=dict)
    node: Node | None = None
    nodes: tuple[Node, ...] = ()
    leaves: tuple[tuple[Value, BufferView], ...] = ()
    _text: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """The kernel's text; calls of equal texts share their code."""
        if not self._text:
            self._text = str(self.kernel)
        return self._text

    def on(self, args: list[Buffer], node: Node | None, nodes: tuple[Node, ...]) -> KernelCall:
        """A call of the same kernel on other buffers."""
        return KernelCall(self.kernel, args, self.origins, node, nodes, _text=self.text)

    def key(self, target: Target) -> str:
        """What names the function of its kernel; equal for equal ones."""
        parts = repr(target), type(self.kernel).__name__, str(len(self.args)), self.text
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def call_text(self, name: str) -> str:
        """The call: `k3(input0, temp1 + 64)`."""
        origins = [self.origins.get(number, 0) for number in range(len(self.args))]
        pairs = zip(self.args, origins, strict=True)
        return f"call {name}({', '.join(f'{x} + {at}' if at else str(x) for x, at in pairs)})"


class Apart(NamedTuple):
    """Two calls by their numbers, of which the later one reads what the earlier one computes.

    Attributes:
        ops: what is computed, and what reads it.
        why: they are no single kernel.
        is_beside: neither reads the other: both, with these ops, read the same array.
    """

    earlier: int
    later: int
    ops: tuple[str, str]
    why: str
    is_beside: bool = False


@dataclass(slots=True)
class Program:
    """What a compiled step does.

    Attributes:
        offsets: byte offset of each temp in the arena.
        written: numbers of the inputs that the step writes.
        live: numbers of the inputs that are scalars in the table itself.
        strides: of the inputs, in elements.
        apart: what kept calls apart of which one reads what another has computed, if that is known.
    """

    graph: Graph
    calls: list[KernelCall]
    inputs: list[Buffer]
    outputs: list[Buffer]
    offsets: dict[Buffer, int]
    arena_bytes: int
    written: list[int]
    live: list[int]
    strides: tuple[Strides, ...]
    apart: Callable[[], Sequence[Apart]] = field(default=tuple, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether sizes are open."""
        buffers = (*self.inputs, *self.outputs, *self.offsets)
        return any(is_open(buffer.size) for buffer in buffers)

    @property
    def hosts(self) -> list[HostKernel]:
        """The calls of Python, those in loops and branches as well."""
        kernels = chain.from_iterable(call.kernel.hosts for call in self.calls)
        return [kernel for kernel in kernels if isinstance(kernel, HostKernel)]

    @property
    def checks(self) -> list[tuple[Node, CheckKernel]]:
        """The checks of indices, with the nodes that they are of."""
        pairs = [(call.node, call.kernel) for call in self.calls]
        return [(x, y) for x, y in pairs if x is not None and isinstance(y, CheckKernel)]

    def kernel_text(self) -> str:
        """The kernels in order, equal ones once."""
        seen: set[str] = set()
        lines: list[str] = []
        for name, call in zip(kernel_names(self.calls), self.calls, strict=True):
            if name not in seen:
                seen.add(name)
                lines.append(f"kernel {name} = {call.text}")
            lines.append(call.call_text(name) + "\n")
        return "\n".join(lines)

    def buffer_text(self) -> str:
        """The temps with offset, size and the calls between which they live."""
        lines = [f"arena of {self.arena_bytes} bytes"]
        spans = lifetimes(self.calls)
        for buffer, offset in self.offsets.items():
            first, last = spans[buffer]
            size = buffer.size * buffer.dtype.itemsize
            lines.append(f"  {buffer}: {offset} .. {offset + size}  calls {first} .. {last}")
        return "\n".join(lines)


def kernel_names(calls: Sequence[KernelCall]) -> list[str]:
    """The name of each call's kernel: in texts, in profiles, and of its function in LLVM IR.

    Native functions are k0, k1, ... in the order of their first calls, and calls with equal texts
    share one; calls of Python, which have no function, are python0, python1, ...
    """
    names: dict[str, str] = {}
    found: list[str] = []
    hosts = 0
    for call in calls:
        if call.kernel.has_function:
            found.append(names.setdefault(call.text, f"k{len(names)}"))
        else:
            found.append(f"python{hosts}")
            hosts += 1
    return found


def lifetimes(calls: Sequence[KernelCall]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last call that uses each temp."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for number, call in enumerate(calls):
        for buffer in call.args:
            if buffer.kind == "temp":
                spans[buffer] = (spans.get(buffer, (number, 0))[0], number)
    return spans
