"""A picture of the graph of kernels (SVG)."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lucid.ir.errors import ArgumentError

if TYPE_CHECKING:
    import networkx

_WIDTH, _HEIGHT, _GAP, _ROW = 150, 26, 14, 58
_SWEEPS = 4  # over the rows, to put kernels near those that they read


def write_kernel_graph(graph: networkx.DiGraph[int], path: str | os.PathLike[str]) -> None:
    """Write the picture to a file. Raises `ArgumentError` for one that isn't called .svg."""
    if Path(path).suffix.lower() != ".svg":
        raise ArgumentError(
            f"export_kernel_graph: {os.fspath(path)!r} isn't the name of an .svg\n"
            "hint: networkx writes step.kernel_graph() in other forms, such as by write_graphml"
        )
    Path(path).write_text(svg(graph), encoding="utf-8")


def svg(graph: networkx.DiGraph[int]) -> str:
    """A picture, in which kernels stand below those that they depend on.

    Reference: Sugiyama et al., "Methods for visual understanding of hierarchical system
    structures", 1981.
    """
    rows = _rows(graph)
    place = {
        number: (_GAP + (_WIDTH + _GAP) * at, _GAP + _ROW * rank)
        for rank, row in enumerate(rows)
        for at, number in enumerate(row)
    }
    width = max((x for x, _ in place.values()), default=0) + _WIDTH + _GAP
    height = _ROW * max(len(rows), 1) + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="kernels" '
        'font-family="sans-serif" font-size="11">'
    ]
    for one, other, edge in graph.edges(data=True):
        (x, y), (to_x, to_y) = place[one], place[other]
        start, end = y + _HEIGHT, to_y
        middle = (start + end) // 2
        dashes = "" if "flow" in edge["dependence"] else ' stroke-dasharray="3 3"'
        parts.append(
            f'<path d="M{x + _WIDTH // 2} {start}C{x + _WIDTH // 2} {middle} '
            f'{to_x + _WIDTH // 2} {middle} {to_x + _WIDTH // 2} {end}" fill="none" '
            f'stroke="#8a94a6" stroke-opacity=".55"{dashes}/>'
        )
    for number, (x, y) in place.items():
        node = graph.nodes[number]
        title = escape(f"{node['label']}\n{node['lines']}")
        text = escape(f"{node['name']} {node['ops']}"[:24])
        parts.append(
            f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" rx="4" fill="{COLORS.get(node["kind"], "#888")}"/>'
            f'<text x="{x + 6}" y="{y + 17}" fill="#fff">{text}</text></g>'
        )
    return "".join([*parts, "</svg>"])


COLORS = {
    "map": "#2f6f9f",
    "reduce": "#7a4fa3",
    "scan": "#7a4fa3",
    "contract": "#b3541e",
    "sort": "#3d7a3d",
    "scatter": "#3d7a3d",
    "check": "#6b6b6b",
    "copy": "#6b6b6b",
    "loop": "#94313f",
    "host": "#94313f",
}


def _rows(graph: networkx.DiGraph[int]) -> list[list[int]]:
    """The kernels by the longest way to them; in a row near those that they depend on."""
    import networkx

    rows = [sorted(row) for row in networkx.topological_generations(graph)]
    for _ in range(_SWEEPS):
        column = {number: i for row in rows for i, number in enumerate(row)}
        for row in rows:
            before = {number: [column[x] for x in graph.predecessors(number)] for number in row}
            row.sort(key=lambda number: sum(before[number]) / max(len(before[number]), 1))
    return rows
