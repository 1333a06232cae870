"""The key that object code is kept by: it tells apart whatever becomes different IR."""

from __future__ import annotations

import re
from collections.abc import Iterator

import hypothesis
import pytest
from random_graphs import Case, cases

import lucid
from lucid.codegen import costs
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program import emit
from lucid.codegen.program.program import Program
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.strides import Strides, contiguous_strides
from lucid.ir.types import TensorType, f32, f64

FUNCTION = re.compile(r"^define (?:internal )?void @k(\d+)(\w*)\(.*?^}$", re.M | re.S)

seen: dict[tuple[str, int], str] = {}  # the IR of all kernels so far, by text and vector width


def emitted(graph: Graph, vector_bytes: int, *, fuse: bool = True) -> tuple[Program, emit.Emitted]:
    target = host_target().with_vector_bytes(vector_bytes)
    strides: list[Strides] = [contiguous_strides(entry.value.shape) for entry in graph.inputs]
    program = make_program(graph, strides, target, fuse)
    return program, emit.emit_program(program, target)


def kernels(graph: Graph, vector_bytes: int) -> Iterator[tuple[str, str]]:
    """Each kernel's text with its IR, without its name."""
    program, result = emitted(graph, vector_bytes)
    plain = [call.text for call in program.calls if call.kernel.has_function]
    texts = list(dict.fromkeys(plain))
    bodies: dict[str, str] = {}
    for found in FUNCTION.finditer(result.module.text()):
        body = re.sub(rf"@k{found[1]}(?=_|\()", "@kernel", found[0])
        bodies[texts[int(found[1])]] = bodies.get(texts[int(found[1])], "") + body
    assert len(bodies) == len(result.functions) == len(texts)
    yield from bodies.items()


@pytest.mark.parametrize("worth", [None, 0.0])
@pytest.mark.parametrize("vector_bytes", [16, 64])
@hypothesis.given(case=cases())
def test_kernels_of_equal_texts_are_equal_code(
    case: Case, vector_bytes: int, worth: float | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if worth is not None:
            patch.setattr(costs, "WORTH_SECONDS", worth)
        for text, body in kernels(case.graph, vector_bytes):
            assert seen.setdefault((text, vector_bytes), body) == body


def graph_of(rows: int, *, swapped: bool = False, twice: bool = False) -> Graph:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (rows, 8)))
    y = graph.add_input(TensorType(f32, (rows, 8)))
    rate = graph.add_input(TensorType(f64, ()), "live")
    first, second = (y, x) if swapped else (x, y)
    result = ops.tanh(first) * ops.cast(rate, dtype=f32) + ops.exp(second)
    graph.outputs = [result, result] if twice else [result]
    return graph


def test_keys_are_equal_for_equal_programs_only() -> None:
    variants = {
        "same": graph_of(5),
        "more rows": graph_of(6),
        "operands swapped": graph_of(5, swapped=True),
        "another result": graph_of(5, twice=True),
    }
    found = {name: emitted(graph, 64)[1] for name, graph in variants.items()}
    again = {name: emitted(graph, 64)[1] for name, graph in variants.items()}
    for name, result in found.items():
        assert result.key == again[name].key
        assert result.module.text() == again[name].module.text()
    assert len({result.key for result in found.values()}) == len(variants)
    narrow, unfused = emitted(graph_of(5), 16)[1], emitted(graph_of(5), 64, fuse=False)[1]
    assert len({narrow.key, unfused.key, found["same"].key}) == 3
    program, _ = emitted(graph_of(5), 64)
    timed = emit.emit_program(program, host_target().with_vector_bytes(64), timed=True)
    assert timed.key != found["same"].key


def test_a_key_begins_with_what_writes_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    key = emitted(graph_of(5), 64)[1].key
    assert key.startswith(emit.generator_version())
    monkeypatch.setattr(emit, "generator_version", lambda: "another release")
    assert emitted(graph_of(5), 64)[1].key != key


def test_products_over_windows_whose_padding_lies_elsewhere_share_their_code() -> None:
    """A transposed convolution of stride 2 is four of them, one for each place between elements."""

    @lucid.compile
    def step(x: lucid.Tensor, weight: lucid.Tensor) -> lucid.Tensor:
        return lucid.nn.functional.conv_transpose2d(x, weight, stride=2, padding=1)

    step(lucid.ones(16, 32, 4, 4), lucid.ones(32, 16, 4, 4))
    text = step.stages["kernels"]
    (name,) = re.findall(r"kernel (k\d+) = contract", text)
    assert text.count(f"call {name}(") == 4
