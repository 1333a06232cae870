"""`step.report(...)`: one HTML page that says all of a compiled step, and needs nothing else."""

from __future__ import annotations

import base64
import json
import linecache
import math
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from lucid.compiler.programs.program import Program
from lucid.compiler.reports.explaining import Explanation
from lucid.compiler.reports.kernel_graph import kernel_graph
from lucid.compiler.reports.kernels import Kernel, cells_of, totals
from lucid.compiler.reports.picture import COLORS, svg
from lucid.compiler.reports.profiling import Profile
from lucid.compiler.reports.roofline import Roof, roof
from lucid.compiler.reports.tables import micro, size
from lucid.ir.clone import copy_graph
from lucid.ir.graph import Graph, Node
from lucid.ir.location import Location
from lucid.ir.passes.regions import outline_repeated
from lucid.ir.selecting import parts_of
from lucid.ir.text.printer import node_text, value_names

MOST_NODES = 8000  # of a graph that is shown as it is; in a larger one repeated layers are one
MOST_KERNELS = 600  # in the picture
MOST_OPEN = 12  # lines of what isn't to be opened first
_AROUND = 2  # lines of source that are shown before and after those that compute something
_COLUMNS = ("name", "kind", "µs", "parts", "computes", "of", "in", "kB", "GB/s", "GF/s")
_PLACEHOLDERS = ("TITLE", "BODY", "DATA")
_TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Report:
    """A page on one program of a step. In a notebook it shows itself.

    Attributes:
        explanation: what it says; profile: the times, None where they are expected ones.
    """

    explanation: Explanation
    profile: Profile | None
    program: Program

    @cached_property
    def html(self) -> str:
        """The page: no file, server or network is needed to read it."""
        page = _TEMPLATE.read_text(encoding="utf-8")
        made = _Page(self.explanation, self.profile, self.program)
        texts = (escape(self.explanation.name), made.body(), made.data())
        for placeholder, text in zip(_PLACEHOLDERS, texts, strict=True):
            before, _, after = page.partition(f"<!--{placeholder}-->")
            page = before + text + after
        return page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file."""
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.html.encode()).decode()
        return (
            f'<iframe src="data:text/html;base64,{data}" width="100%" height="700" '
            f'title="{escape(self.explanation.name)}" style="border:0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<report on {self.explanation.name}({self.explanation.signature})>"


class _Page:
    def __init__(self, explanation: Explanation, profile: Profile | None, program: Program) -> None:
        self._explained, self._program = explanation, program
        self._kernels = profile.rows if profile else explanation.kernels
        self._whole = profile.seconds if profile else sum(x.seconds for x in self._kernels)
        self._calls = program.executable.calls
        self._how = "measured" if profile else "expected by shapes: pass arguments to measure"

    def body(self) -> str:
        sections = (
            ("overview", "Overview", self._overview()),
            ("source", "Source", self._source()),
            ("graph", "Graph", _GRAPH),
            ("kernels", "Kernels", self._kernel_table()),
            ("roofline", "Roofline", self._roofline(roof())),
            ("memory", "Memory", self._memory()),
        )
        links = "".join(f'<a href="#{key}">{title}</a>' for key, title, _ in sections)
        return (
            f'<nav aria-label="sections">{links}</nav><main>'
            + "".join(
                f'<section id="{key}" aria-labelledby="h-{key}"><h2 id="h-{key}">{title}</h2>{text}'
                "</section>"
                for key, title, text in sections
            )
            + "</main>"
        )

    def _overview(self) -> str:
        """What `explain` says, but for the kernels, which have a table of their own."""
        explained = replace(self._explained, is_full=True)
        head = f"{escape(explained.name)}({escape(explained.signature)})"
        sections = (x for x in explained.sections() if not x[0].startswith("kernels, "))
        return (
            f"<p><code>{head}</code></p><p>A call takes {micro(self._whole)} µs, {self._how}.</p>"
            + "".join(
                f"<details{' open' * (len(lines) <= MOST_OPEN)}><summary>{escape(title)}</summary>"
                f"<pre>{escape(chr(10).join(lines))}</pre></details>"
                for title, lines in sections
            )
        )

    # Source -------------------------------------------------------------------------------

    def _line_seconds(self) -> tuple[dict[Location, float], dict[Location, float]]:
        """Of each line what its own computation takes, and what its gradient does."""
        own: dict[Location, float] = {}
        gradient: dict[Location, float] = {}
        for kernel in self._kernels:
            for node, part in kernel.weights:
                if node.location is not None:
                    times = own if node.gradient_of is None else gradient
                    known = times.get(node.location, 0.0)
                    times[node.location] = known + part * kernel.seconds
        return own, gradient

    def _source(self) -> str:
        own, gradient = self._line_seconds()
        files: dict[str, set[int]] = {}
        for place in {**own, **gradient}:
            files.setdefault(place.file, set()).add(place.line)
        most = max([*own.values(), *gradient.values()], default=1.0) or 1.0
        tables = []
        for file, lines in sorted(files.items()):
            rows = []
            before = 0
            for line in sorted(_surrounded(lines, file)):
                if before and line > before + 1:
                    rows.append("<tr class=gap><td colspan=4>⋯</td></tr>")
                before = line
                place = Location(file, line)
                code = linecache.getline(file, line).rstrip() or " "
                rows.append(
                    f"<tr><td class=num>{line}</td>"
                    f"{_bar(own.get(place), most)}{_bar(gradient.get(place), most)}"
                    f"<td><code>{escape(code)}</code></td></tr>"
                )
            tables.append(
                f"<h3>{escape(os.path.basename(file))}</h3><table class=source><thead><tr>"
                "<th class=num>line</th><th>µs</th><th>its gradient, µs</th><th></th></tr></thead>"
                f"<tbody>{''.join(rows)}</tbody></table>"
            )
        return f"<p class=note>Time per line, {self._how}.</p>{''.join(tables)}"

    # Kernels ------------------------------------------------------------------------------

    def _kernel_table(self) -> str:
        rows, texts = cells_of(totals(self._kernels, "call", self._whole), _COLUMNS, is_full=True)
        picture = (
            f"<div class=scroll tabindex=0 aria-label='kernels and their dependences'>"
            f"{svg(kernel_graph(self._calls))}</div>"
            if len(self._kernels) <= MOST_KERNELS
            else "<p class=note>Too many kernels for a picture.</p>"
        )
        return (
            f"<p class=note>Times {self._how}. A title sorts; the box filters.</p>"
            '<p><label>filter <input type=search data-filters="kernel-table"></label></p>'
            + _table("kernel-table", rows, texts)
            + f"<details><summary>what depends on what</summary>{picture}</details>"
        )

    def _roofline(self, limits: Roof) -> str:
        shown = [x for x in self._kernels if x.flops and x.bytes and x.seconds > 0]
        return _roofline_svg(shown, limits) + (
            f"<p class=note>Products reach {limits.flops * 1e-9:.0f} GF/s on this machine, memory "
            f"{limits.bandwidth * 1e-9:.1f} GB/s, the nearest cache "
            f"{limits.cache_bandwidth * 1e-9:.0f} GB/s, each measured with lucid's own kernels. "
            f"Area: a kernel's time, {self._how}.</p>"
        )

    def _memory(self) -> str:
        memory = self._explained.memory
        assert memory is not None, "a page is of a program"
        live = [0] * max(len(self._calls), 1)
        for temp in memory.temps:
            for number in range(temp.first, temp.last + 1):
                live[number] += temp.bytes
        return _memory_svg(live, memory.arena)

    # The graph ----------------------------------------------------------------------------

    def data(self) -> str:
        """The graph as JSON, which the page shows as a tree."""
        graph = self._program.recorded
        if len(graph.nodes) > MOST_NODES:
            graph = copy_graph(graph)
            outline_repeated(graph)
        functions = {name: _nodes(body) for name, body in graph.functions.items()}
        found = {"graph": _nodes(graph), "functions": functions}
        return json.dumps(found, separators=(",", ":")).replace("<", "\\u003c")


_GRAPH = (
    "<p class=note>As recorded, by part, Module and Function; Enter opens and closes. An operand "
    "leads to what computes it.</p>"
    "<p><label>find <input type=search id=find></label> <span id=found role=status></span></p>"
    "<div id=tree></div>"
)


def _nodes(graph: Graph) -> list[list[Any]]:
    """Of each node: name, text, part, path, line, and the function that it calls."""
    names, parts = value_names(graph), parts_of(graph)
    return [
        [
            names[node.results[0]] if node.results else "",
            node_text(node, names),
            parts[node],
            node.scope,
            "" if node.location is None else str(node.location),
            _called(node, graph),
        ]
        for node in graph.nodes
    ]


def _called(node: Node, graph: Graph) -> str:
    name = node.attributes.get("function", "")
    return name if name in graph.functions else ""


def _surrounded(lines: Iterable[int], file: str) -> set[int]:
    last = len(linecache.getlines(file))
    found = {at for line in lines for at in range(line - _AROUND, line + _AROUND + 1)}
    return {line for line in found if 1 <= line <= last} | {*lines}


def _bar(seconds: float | None, most: float) -> str:
    if not seconds:
        return "<td class=bar></td>"
    share = 100 * seconds / most
    return f"<td class=bar><i style='width:{share:.1f}%'></i><span>{micro(seconds)}</span></td>"


def _table(name: str, rows: Sequence[Sequence[str]], texts: Collection[int]) -> str:
    """A table whose titles, the first row, are buttons that sort it; texts: columns of text."""

    def shown(tag: str, row: Sequence[str]) -> str:
        kinds = ("" if column in texts else " class=num" for column in range(len(row)))
        return "".join(f"<{tag}{kind}>{x}</{tag}>" for kind, x in zip(kinds, row, strict=True))

    head = shown("th", [f"<button type=button>{escape(title)}</button>" for title in rows[0]])
    body = "".join(f"<tr>{shown('td', [*map(escape, row)])}</tr>" for row in rows[1:])
    return (
        f"<div class=scroll tabindex=0><table class=sorted id={name}><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


# Pictures -----------------------------------------------------------------------------------

_W, _H, _LEFT, _BOTTOM, _EDGE = 760, 360, 60, 40, 10


class _Chart:
    """A picture with a grid; what is drawn has the coordinates of the data."""

    def __init__(self, title: str, left: float, right: float, low: float, high: float) -> None:
        self._left, self._across = left, (_W - _LEFT - _EDGE) / (right - left)
        self._low, self._up = low, (_H - _BOTTOM - _EDGE) / (high - low)
        self.parts = [
            f'<svg viewBox="0 0 {_W} {_H}" role="img" aria-label="{title}" class="chart" '
            'xmlns="http://www.w3.org/2000/svg">'
        ]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point, in pixels."""
        return _LEFT + (x - self._left) * self._across, _H - _BOTTOM - (y - self._low) * self._up

    def column(self, x: float, label: str) -> None:
        """A line of the grid from below to above."""
        place, _ = self.at(x, 0)
        self._grid(place, _EDGE, place, _H - _BOTTOM)
        self.text(place, _H - 22, label)

    def row(self, y: float, label: str) -> None:
        """A line of the grid from left to right."""
        _, place = self.at(0, y)
        self._grid(_LEFT, place, _W - _EDGE, place)
        self.text(_LEFT - 26, place + 4, label)

    def _grid(self, *ends: float) -> None:
        names = ("x1", "y1", "x2", "y2")
        places = " ".join(f'{name}="{end:.1f}"' for name, end in zip(names, ends, strict=True))
        self.parts.append(f"<line class=grid {places}/>")

    def text(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        self.parts.append(
            f'<text class=label x="{x:.1f}" y="{y:.1f}" style="text-anchor:{anchor}">'
            f"{escape(text)}</text>"
        )

    def shape(self, kind: str, style: str, points: Iterable[tuple[float, float]]) -> None:
        """A polyline or a polygon."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))
        self.parts.append(f'<{kind} class="{style}" points="{places}"/>')

    def __str__(self) -> str:
        return "".join([*self.parts, "</svg>"])


def _powers(low: float, high: float) -> range:
    """The powers of ten in a range."""
    return range(math.ceil(low), math.floor(high) + 1)


def _roofline_svg(kernels: Sequence[Kernel], limits: Roof) -> str:
    """Operations per second over operations per byte, in logarithms."""
    points = [
        (math.log10(x.flops / x.bytes), math.log10(x.flops / x.seconds), x)
        for x in sorted(kernels, key=lambda x: -x.seconds)
    ]
    peak = math.log10(limits.flops)
    xs = [*(x for x, _, _ in points), peak - math.log10(limits.bandwidth), -1.5, 2.0]
    ys = [*(y for _, y, _ in points), peak, 8.0]
    left, right, low, high = min(xs) - 0.3, max(xs) + 0.3, min(ys) - 0.2, max(ys) + 0.3
    chart = _Chart("kernels under the roofline of this machine", left, right, low, high)
    for power in _powers(left, right):
        chart.column(power, f"{10.0**power:g}")
    for power in _powers(low, high):
        chart.row(power, f"{10.0 ** (power - 9):g}")
    chart.text(_W // 2, _H - 6, "operations per byte")
    chart.text(4, 12, "GF/s", "start")
    for bandwidth, style in ((limits.bandwidth, "roof"), (limits.cache_bandwidth, "roof cache")):
        slope = math.log10(bandwidth)
        start, corner = max(left, low - slope), min(peak - slope, right)
        line = [(start, start + slope), (corner, corner + slope)]
        chart.shape("polyline", style, line + [(right, peak)] * (corner < right))
    for x, y, kernel in points:
        radius = 3 + 11 * math.sqrt(kernel.seconds / points[0][2].seconds)
        title = f"{kernel.name} {', '.join(kernel.ops)}\n{kernel.place}\n{micro(kernel.seconds)} µs"
        across, up = chart.at(x, y)
        chart.parts.append(
            f'<circle cx="{across:.1f}" cy="{up:.1f}" r="{radius:.1f}" '
            f'fill="{COLORS.get(kernel.kind, "#888")}" fill-opacity=".65">'
            f"<title>{escape(title)}</title></circle>"
        )
    for number, kind in enumerate(dict.fromkeys(kernel.kind for kernel in kernels)):
        y, color = 24 + 16 * number, COLORS.get(kind, "#888")
        chart.parts.append(f'<circle cx="{_LEFT + 14}" cy="{y}" r="5" fill="{color}"/>')
        chart.text(_LEFT + 24, y + 4, kind, "start")
    return str(chart)


def _memory_svg(live: Sequence[int], arena: int) -> str:
    """Bytes that temps need, over the calls of a step."""
    most, count = max([*live, arena, 1]), len(live)
    chart = _Chart("memory of temps over the step", 0, count, 0, 1.04 * most)
    for part in (0.0, 0.5, 1.0):
        chart.row(most * part, size(most * part))
    steps = [(i + part, nbytes) for i, nbytes in enumerate(live) for part in (0, 1)]
    chart.shape("polygon", "area", [(0, 0), *steps, (count, 0)])
    chart.shape("polyline", "roof", [(0, arena), (count, arena)])
    chart.text(_W - 12, chart.at(0, arena)[1] - 4, "arena", "end")
    chart.text(_W // 2, _H - 6, f"calls of kernels, 0 to {count - 1}")
    return str(chart)
