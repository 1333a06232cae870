"""Golden tests of passes: `tests/golden/*.lir` hold a graph, the passes to run, and the result.

    # passes: canonicalize, dce
    # What happens here, in a sentence.
    graph before ...
    ---
    graph after ...

`--update-golden` writes what the passes print in place of what is there; then read the diff.
A pass named `gradient` differentiates the first output with respect to all float inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from differentiated import differentiate

from lucid.codegen.lower.legalize import LEGALIZE
from lucid.ir import passes
from lucid.ir.clone import copy_graph
from lucid.ir.graph import Graph, is_same_program
from lucid.ir.passes.pipeline import name_of
from lucid.ir.text import parse, print_graph
from lucid.ir.verify import verify

ALL = (*passes.simplify.passes, *LEGALIZE.passes)
GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("*.lir"))


def gradient(graph: Graph) -> bool:
    """Return, besides the outputs, the cotangents of all float inputs that have one."""
    inputs = [e.value for e in graph.inputs if e.value.dtype.is_floating_point]
    cotangents = differentiate(graph, graph.outputs[0], inputs)
    graph.outputs += [cotangent for cotangent in cotangents if cotangent is not None]
    return True


def passes_of(head: str) -> list[Callable[[Graph], bool]]:
    names = head.partition("\n")[0].removeprefix("# passes:").split(",")
    found = {"gradient": gradient, "optimize": passes.optimize, "outline": passes.outline}
    found |= {name_of(run): run for run in (*passes.optimize.passes, *ALL)}
    return [found[name.strip()] for name in names]


def split(text: str) -> tuple[str, str, str]:
    """The comment at the top, the graph before, and the graph after."""
    lines = text.splitlines(keepends=True)
    count = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    before, _, after = "".join(lines[count:]).partition("---\n")
    return "".join(lines[:count]), before, after


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_passes_make_of_the_graph_what_the_file_says(path: Path, update_golden: bool) -> None:
    head, before, after = split(path.read_text(encoding="utf-8"))
    graph = parse(before)
    verify(graph)
    printed_before = print_graph(graph)
    for run in passes_of(head):
        run(graph)
        verify(graph)
    printed = print_graph(graph)
    assert is_same_program(parse(printed), graph)
    assert is_same_program(copy_graph(graph), graph)
    if update_golden:
        path.write_text(f"{head}{printed_before}---\n{printed}", encoding="utf-8")
        return
    assert printed_before == before
    assert printed == after


def test_every_pass_has_a_golden_file() -> None:
    used = {name_of(run) for path in GOLDEN for run in passes_of(path.read_text(encoding="utf-8"))}
    assert {*map(name_of, ALL), "inline", "outline", "rematerialize", "gradient"} <= used
