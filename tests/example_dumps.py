"""What a script's compiled steps print at each stage, parsed and run: `python … SCRIPT`.

Each text must parse back to itself, and all stages of a step must compute the same.
"""

from __future__ import annotations

import contextlib
import itertools
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from lucid.compiler.compiled import Compiled, collecting
from lucid.ir import Graph, parse
from lucid.ir.interpret import interpret

CUT = "residuals"  # a table, no graph


def graphs_of(stages: Any) -> Iterator[tuple[str, Graph]]:
    """The stages of a program that are graphs, by name."""
    for name in itertools.takewhile(lambda name: name != "kernels", stages):
        if name != CUT:
            text = stages[name]
            graph = parse(text)
            assert str(graph) == text, f"{name} parses back to something else"
            yield name, graph


def results(graph: Graph) -> list[np.ndarray]:
    """Outputs, and what is written, of inputs that are drawn."""
    rng = np.random.default_rng(0)
    arrays = []
    for entry in graph.inputs:
        dtype, shape = entry.value.dtype, entry.value.shape
        drawn = rng.uniform(0.5, 1.5, shape) if dtype.is_floating_point else np.zeros(shape)
        arrays.append(np.asarray(drawn, dtype.numpy))
    outputs, written = interpret(graph, arrays)
    return [*outputs, *written]


def compare(step: Compiled) -> int:
    """How many stages of a step's programs compute what the recorded graph computes."""
    count = 0
    for program in itertools.chain(*step._programs.values()):
        graphs = dict(graphs_of(program.stages))
        expected = results(graphs.pop("trace"))
        for name, graph in graphs.items():
            for one, other in zip(results(graph), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=name)
            count += 1
    return count


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    with collecting() as found, contextlib.suppress(SystemExit):
        runpy.run_path(sys.argv[0], run_name="__main__")
    print(f"stages compared: {sum(map(compare, found))}")
