"""The native step as a networkx graph: its kernels, and what has to run before what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lucid.codegen.kernel_ir.regions import Buffer
from lucid.codegen.program.program import KernelCall
from lucid.compiler.reports.kernels import kernels_of
from lucid.ir.late_imports import wholly

if TYPE_CHECKING:
    import networkx


def kernel_graph(calls: Sequence[KernelCall]) -> networkx.DiGraph[int]:
    """A node for each call of a kernel, by its number in the step, and its dependences as edges.

    An edge says why: "flow", the later one reads what the earlier one wrote; "anti", it
    overwrites what the earlier one reads; "output", both write; or several of them. Temps are
    told apart by what is in them, not by their place in the arena. All attributes are strings
    and numbers, so that every writer of networkx takes them.

    Reference: Kuck et al., "Dependence graphs and compiler optimizations", 1981.
    """
    with wholly("networkx"):  # takes 0.2 s, so only who asks waits for it
        import networkx

    graph: networkx.DiGraph[int] = networkx.DiGraph()
    writers: dict[Buffer, list[int]] = {}
    readers: dict[Buffer, list[int]] = {}
    for number, (call, kernel) in enumerate(zip(calls, kernels_of(calls), strict=True)):
        work, listed = call.kernel.work(call.args), ", ".join(kernel.ops)
        graph.add_node(
            number,
            label=f"{kernel.name} {kernel.kind}: {listed}",
            name=kernel.name,
            kind=kernel.kind,
            ops=listed,
            lines=kernel.place,
            text=call.text,
            bytes=kernel.bytes,
            flops=kernel.flops,
        )
        reads = dict.fromkeys(call.args[arg] for arg in work.reads)
        writes = dict.fromkeys(call.args[arg] for arg in work.writes)
        for buffer in reads:
            _connect(graph, writers.get(buffer, ()), number, "flow", buffer)
        for buffer in writes:
            _connect(graph, readers.get(buffer, ()), number, "anti", buffer)
            _connect(graph, writers.get(buffer, ()), number, "output", buffer)
        for buffer in writes:
            # Parts of a buffer may be written one after the other: all of them count.
            writers.setdefault(buffer, []).append(number)
            readers.pop(buffer, None)
        for buffer in reads:
            readers.setdefault(buffer, []).append(number)
    return graph


def _connect(
    graph: networkx.DiGraph[int], earlier: Sequence[int], later: int, why: str, buffer: Buffer
) -> None:
    """Enter edges; what two kernels have between them is listed."""
    for number in earlier:
        if number != later:
            graph.add_edge(number, later)
            for key, value in (("dependence", why), ("buffers", str(buffer))):
                known = graph.edges[number, later].get(key, "").split()
                graph.edges[number, later][key] = " ".join(dict.fromkeys([*known, value]))
