"""What tests of loops and branches share: a world that these read, and texts of graphs, run."""

from __future__ import annotations

from typing import Any

import numpy as np

import lucid
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.interpret import interpret_program
from lucid.codegen.program.parse import parse_kernel
from lucid.codegen.program.program import Program
from lucid.ir import passes
from lucid.ir.graph import Graph, is_same_program
from lucid.ir.interpret import interpret
from lucid.ir.strides import contiguous_strides
from lucid.ir.text import parse
from lucid.ir.types import f64
from lucid.ir.verify import verify
from lucid.runtime import compile_graph
from lucid.tensor.tree import flatten


def tensor(*numbers: float, grad: bool = True) -> lucid.Tensor:
    return lucid.tensor(numbers, dtype=f64, requires_grad=grad)


def agree(wanted: Any, found: Any, rtol: float = 1e-9) -> None:
    for x, y in zip(flatten(wanted)[0], flatten(found)[0], strict=True):
        one, other = x.detach().numpy(), y.detach().numpy()
        largest = np.abs(one[np.isfinite(one)]).max(initial=0)
        np.testing.assert_allclose(other, one, rtol=rtol, atol=max(1e-12, 0.1 * rtol * largest))
        assert y.dtype is x.dtype


class World:
    """What a loop reads: a matrix, and memory that it writes."""

    def __init__(self) -> None:
        lucid.manual_seed(2)
        self.w = lucid.randn(3, 3, dtype=f64).requires_grad_()
        self.buffer = lucid.zeros(3, dtype=f64)
        self.list: list[Any] = []
        self.places = lucid.tensor([2, 0])


def lowered(graph: Graph) -> Program:
    strides = [contiguous_strides(entry.value.shape) for entry in graph.inputs]
    return make_program(graph, strides, host_target())


def results(text: str, given: list[np.ndarray]) -> list[np.ndarray]:
    """What the interpreter gives, after kernels and native code have given the same."""
    graph = parse(text)
    verify(graph)
    assert is_same_program(parse(str(graph)), graph)
    wanted = interpret(graph, given)[0]
    optimized = parse(text)
    passes.optimize(optimized)
    for each in (graph, optimized):
        for call in lowered(each).calls:
            assert parse_kernel(call.text) == call.kernel
        for found in (
            interpret(each, given)[0],
            interpret_program(lowered(each), given)[0],
            compile_graph(each)(given),
        ):
            for x, y in zip(wanted, found, strict=True):
                np.testing.assert_allclose(y, x, rtol=1e-5)
                assert y.dtype == x.dtype and y.shape == x.shape
    return wanted
