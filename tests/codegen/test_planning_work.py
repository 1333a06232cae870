"""Planning takes work in proportion to the nodes: counted, since seconds depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

import lucid
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower import horizontal_fusion, rewrites
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.program import kernel_names
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import TensorType, f32
from lucid.nn import functional as F
from lucid.optim import groups
from lucid.runtime import executable


def trained(layers: int) -> Callable[[], Any]:
    """A training step of as many equal blocks, which isn't compiled yet."""

    class Block(lucid.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = lucid.nn.LayerNorm(8), lucid.nn.Linear(8, 24)
            self.down = lucid.nn.Linear(24, 8)

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            return x + self.down(F.gelu(self.up(self.norm(x))))

    model = lucid.nn.Sequential(*(Block() for _ in range(layers)))
    optimizer = lucid.optim.Adam(model.parameters())

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), lucid.arange(5))
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(lucid.ones(5, 8))


def assert_linear(count: Callable[[int], int], few: int) -> None:
    """Of four times the layers it is no more than in proportion, with what doesn't depend on them.

    What grows with the square would come to twice as much.
    """
    least, middle, most = (count(few * n) for n in (1, 2, 4))
    assert 0 < least <= middle <= most
    assert most - middle <= 2.4 * (middle - least) + 20, (least, middle, most)


@contextmanager
def calls_of(code: CodeType | None = None) -> Iterator[list[int]]:
    """How many functions of Python are called in the block, or how often that of this code."""
    count = [0]

    def note(frame: FrameType, event: str, arg: object) -> None:
        count[0] += event == "call" and (code is None or frame.f_code is code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(before)


def test_functions_called_while_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(layers: int) -> int:
        counts: list[list[int]] = []

        def planned(*args: Any, take: object = None, **kwargs: Any) -> Any:
            with calls_of() as calls:  # without what is written while it is planned
                counts.append(calls)
                return make_program(*args, **kwargs)

        monkeypatch.setattr(executable, "make_program", planned)
        trained(layers)()
        return counts[-1][0]

    assert_linear(count, 3)


def test_loops_that_are_compared_as_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parameters' updates read the learning rate: few of them are compared with each other."""
    tried = horizontal_fusion._try

    def count(layers: int) -> int:
        pairs: list[object] = []
        monkeypatch.setattr(
            horizontal_fusion, "_try", lambda *pair: pairs.append(pair) or tried(*pair)
        )
        trained(layers)()
        return len(pairs)

    assert_linear(count, 3)


def test_loops_that_read_a_repeated_number_are_no_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As second derivatives read the cotangent of a sum: it says nothing of the loops' order."""
    tried = horizontal_fusion._try

    def count(loops: int) -> int:
        pairs: list[object] = []
        monkeypatch.setattr(
            horizontal_fusion, "_try", lambda *pair: pairs.append(pair) or tried(*pair)
        )
        graph = Graph()
        number = ops.broadcast(graph.add_input(TensorType(f32, ())), shape=(4, 5))
        graph.outputs = [graph.add_input(TensorType(f32, (4, 5))) * number for _ in range(loops)]
        strides = [contiguous_strides(entry.value.shape) for entry in graph.inputs]
        make_program(graph, strides, host_target())
        return len(pairs)

    assert count(12) == 0


def test_sizes_that_are_compared_for_reductions(monkeypatch: pytest.MonkeyPatch) -> None:
    comparisons = 0

    class Counted(int):
        """A size that notes when it is compared."""

        def _noting(name: str) -> Any:  # type: ignore[misc]  # noqa: N805
            def compare(self: Counted, other: int) -> bool:
                nonlocal comparisons
                comparisons += 1
                return bool(getattr(int, name)(self, other))

            return compare

        __lt__, __le__, __gt__, __ge__ = map(_noting, ("__lt__", "__le__", "__gt__", "__ge__"))

    def count(sums: int) -> int:
        nonlocal comparisons
        graph = Graph()
        x = graph.add_input(TensorType(f32, (4, 5)))
        for _ in range(sums):
            x = x + ops.sum(x, axes=(0, 1))
        graph.outputs = [x]
        comparisons = 0
        assert not rewrites.reduce_small_first(graph)
        return comparisons

    monkeypatch.setattr(rewrites, "hint", Counted)
    assert_linear(count, 20)


def test_equal_products_are_one_kernel() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (96, 64)))
    for _ in range(3):
        up, down = (graph.add_input(TensorType(f32, shape)) for shape in ((64, 80), (80, 64)))
        x = ops.tanh(ops.matmul(ops.tanh(ops.matmul(x, up)), down))
    graph.outputs = [x, ops.matmul(x, graph.add_input(TensorType(f32, (64, 80))))]
    strides = [contiguous_strides(entry.value.shape) for entry in graph.inputs]
    calls = make_program(graph, strides, host_target()).calls
    names = kernel_names(calls)
    assert len(calls) == 7
    assert len({id(call.kernel) for call in calls}) == len(set(names))
    assert len(set(names)) <= 4  # the last one isn't followed by a tanh, and stores to an output


def test_layouts_of_an_optimizer_that_is_traced() -> None:
    """It is made for the guards: once of its groups, and once of the state that the step made."""
    with calls_of(groups.Layout.__init__.__code__) as layouts:
        trained(5)()
    assert 0 < layouts[0] <= 4
