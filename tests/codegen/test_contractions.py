"""Contractions over axes and windows: right at every width, and made of the kernels they should."""

from __future__ import annotations

import re

import numpy as np
import pytest
from codegen.test_lowering import WIDTHS, run

import lucid
from lucid.codegen import costs
from lucid.codegen.contraction.axes import best_tile
from lucid.codegen.contraction.blocked import BlockedProduct
from lucid.codegen.contraction.lanes import LaneCopy
from lucid.codegen.kernels.blocked import BlockedKernel
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.interpret import interpret_program
from lucid.codegen.program.parse import parse_kernel
from lucid.ir import ops
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import DType, TensorType, bool_, f32, f64, type_of_array
from lucid.nn import functional as F
from lucid.runtime import Executable, compile_graph

# Indices, and the size of each: rows and columns in tiles with rests, lanes along either operand or
# along an inner axis, several inner axes, batches, neighbours that merge, nothing summed.
CONTRACTIONS = {
    "oij,nxyij->noxy": {"o": 19, "i": 3, "j": 3, "n": 2, "x": 5, "y": 21},
    "nxyij,oij->noxy": {"o": 9, "i": 2, "j": 3, "n": 3, "x": 4, "y": 14},
    "noy,ncy->oc": {"n": 4, "o": 5, "y": 700, "c": 3},
    "noxy,ncxyij->ocij": {"n": 3, "o": 11, "x": 5, "y": 18, "c": 2, "i": 3, "j": 2},
    "gocij,ngcxyij->ngoxy": {"g": 3, "o": 2, "c": 2, "i": 2, "j": 2, "n": 2, "x": 3, "y": 7},
    "gij,ngxyij->ngxy": {"g": 5, "i": 3, "j": 3, "n": 2, "x": 3, "y": 17},
    "xi,yi->yx": {"x": 33, "y": 3, "i": 5},
    "aib,cbi->ca": {"a": 7, "i": 20, "b": 3, "c": 6},
    "ij,k->jki": {"i": 18, "j": 3, "k": 4},
    "nab,nab->": {"n": 2, "a": 5, "b": 37},
    "abc,bad->cd": {"a": 3, "b": 2, "c": 50, "d": 17},
    "xi,yi->xy": {"x": 0, "y": 3, "i": 5},
    "xij,yij->xy": {"x": 2, "y": 3, "i": 0, "j": 4},
}


def operands(indices: str, sizes: dict[str, int], rng: np.random.Generator) -> list[np.ndarray]:
    terms = indices.split("->")[0].split(",")
    return [rng.integers(-3, 4, [sizes[n] for n in term]).astype(np.float32) for term in terms]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("indices", CONTRACTIONS)
def test_a_contraction_is_the_sum_of_products(
    indices: str, flipped: bool, width: int, rng: np.random.Generator
) -> None:
    """Exactly, in small integers; also where the operands lie backwards and with gaps."""
    arrays = operands(indices, CONTRACTIONS[indices], rng)
    if flipped:
        arrays = [np.flip(np.repeat(x, 3, -1))[..., ::3] for x in arrays]
    for dtype in (np.float32, np.float64, np.int64):
        given = [x if x.dtype == dtype else x.astype(dtype) for x in arrays]
        graph = Graph()
        a, b = (graph.add_input(type_of_array(x)) for x in given)
        graph.outputs = [ops.contract(a, b, indices=indices)]
        np.testing.assert_array_equal(run(graph, given, width)[0], np.einsum(indices, *given))


@pytest.mark.parametrize("cost", ["cheap", "dear"])
@pytest.mark.parametrize("indices", list(CONTRACTIONS)[:8])
def test_what_follows_is_computed_in_the_same_kernel(
    indices: str, cost: str, rng: np.random.Generator
) -> None:
    arrays = operands(indices, CONTRACTIONS[indices], rng)
    graph = Graph()
    a, b = (graph.add_input(type_of_array(x)) for x in arrays)
    y = ops.contract(a, b, indices=indices)
    added = rng.normal(size=y.shape).astype(np.float32)
    z = ops.add(y * 0.1, graph.add_input(type_of_array(added)))
    row = rng.normal(size=y.shape[-1:]).astype(np.float32)
    z = ops.mul(z, graph.add_input(type_of_array(row)))
    graph.outputs = [ops.tanh(z) if cost == "dear" else ops.maximum(z, ops.zero(z))]
    given = [*arrays, added, row]
    executable = compile_graph(graph)
    assert executable.stages["kernels"].count("call k") == 1
    expected = interpret(graph, given)[0][0]
    np.testing.assert_allclose(executable.call(given)[0], expected, rtol=2e-6, atol=1e-6)


def test_long_dot_products_go_block_by_block() -> None:
    """Each tile sees a part of the operands that stays in the cache, then comes the next part."""
    graph = Graph()
    a = graph.add_input(TensorType(f32, (8, 6, 4096)))
    b = graph.add_input(TensorType(f32, (8, 32, 4096)))
    graph.outputs = [ops.contract(a, b, indices="noy,ncy->oc")]
    executable = compile_graph(graph)
    assert "inner k0 in 8 in blocks of 1\n" in executable.stages["kernels"]
    assert arena_bytes(executable) == 6 * 32 * 4


# Strided lanes --------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_strided_lanes_touch_nothing_else(
    step: int, dtype: type, width: int, rng: np.random.Generator
) -> None:
    """Sources and results end with their last element, and gaps keep what they had."""
    for count in (1, 2, 3, 5, 7, 16, 37):
        base = rng.integers(0, 2, (3, step * (count - 1) + 1)).astype(dtype)
        new = rng.integers(0, 2, (3, count)).astype(dtype)
        graph = Graph()
        x, update = (graph.add_input(type_of_array(array)) for array in (base, new))
        place = {"starts": (0, 0), "stops": base.shape, "steps": (1, step)}
        graph.outputs = [ops.slice(x, **place), ops.update_slice(x, update, **place)]
        expected = base.copy()
        expected[:, ::step] = new
        taken, written = run(graph, [base, new], width)
        np.testing.assert_array_equal(taken, base[:, ::step])
        np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("dtype", [f32, bool_])
def test_nothing_is_stored_with_a_mask_where_that_is_slow(step: int, dtype: DType) -> None:
    """Of rows of 15, the last 7 are two stores of 4 that overlap; strided ones are stored alone."""
    graph = Graph()
    sizes = ((4, 15 * step), (4, 15))
    x, update = (graph.add_input(TensorType(dtype, size)) for size in sizes)
    place = {"starts": (0, 0), "stops": sizes[0], "steps": (1, step)}
    new = ops.logical_not(update) if dtype is bool_ else ops.neg(update)
    graph.outputs = [ops.update_slice(x, new, **place)]
    text = compile_graph(graph, target=host_target().with_vector_bytes(32)).llvm
    assert "masked.store" not in text and ("masked.load" not in text or dtype is f32)


# Facts about whole convolutions ---------------------------------------------------------------

N, C, OUT, H, W = 3, 4, 8, 10, 20


def convolution(x: Value, w: Value, bias: Value) -> Value:
    """3 x 3 with padding 1, then bias and relu."""
    padded = ops.pad(x, ops.zero(x), low=(0, 0, 1, 1), high=(0, 0, 1, 1))
    place = {"axes": (2, 3), "sizes": (3, 3), "steps": (1, 1), "dilations": (1, 1)}
    y = ops.contract(w, ops.windows(padded, **place), indices="ocij,ncxyij->noxy")
    y = ops.add(y, ops.reshape(bias, shape=(OUT, 1, 1)))
    return ops.maximum(y, ops.zero(y))


def arena_bytes(executable: Executable) -> int:
    """The memory for all that isn't an input or an output."""
    found = re.match(r"arena of (\d+) bytes", executable.stages["buffers"])
    assert found is not None
    return int(found[1])


def compiled_convolution() -> tuple[Graph, Executable]:
    graph = Graph()
    shapes = ((N, C, H, W), (OUT, C, 3, 3), (OUT,))
    values = [graph.add_input(TensorType(f32, shape)) for shape in shapes]
    graph.outputs = [convolution(*values)]
    return graph, compile_graph(graph)


def test_a_convolution_stores_the_padded_input_and_no_windows() -> None:
    _, executable = compiled_convolution()
    padded = N * C * (H + 2) * (W + 2) * 4
    assert padded <= arena_bytes(executable) <= padded + 64
    kernels = executable.stages["kernels"]
    assert kernels.count("contract over axes") == 1
    assert kernels.count("maximum") == 1
    assert kernels.index("contract over axes") < kernels.index("maximum")


def test_the_sums_of_a_convolution_are_vectors_without_calls() -> None:
    _, executable = compiled_convolution()
    kernels = re.findall(r"^define [^@]*@k\d+\(.*?^}", executable.stages["llvm"], re.M | re.S)
    calls = set(re.findall(r"call [^@]*@([\w.]+)\(", "\n".join(kernels)))
    assert all(re.match(r"llvm\.(masked|fma|fmuladd|maximum|maxnum)", name) for name in calls)
    lanes = host_target().lanes("float")
    assert any(name.startswith("llvm.fm") and name.endswith(f"v{lanes}f32") for name in calls)


def test_a_convolution_is_what_numpy_says(rng: np.random.Generator) -> None:
    graph, executable = compiled_convolution()
    given = [rng.normal(size=v.value.shape).astype(np.float32) for v in graph.inputs]
    got, want = executable.call(given)[0], interpret(graph, given)[0][0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_windows_that_touch_are_put_back_by_a_reshape() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f64, (3, 4, 5, 2, 3)))
    place = {"axes": (1, 2), "steps": (2, 3), "dilations": (1, 1)}
    y = ops.overlap_add(ops.exp(x), lengths=(8, 15), **place)
    graph.outputs = [y]
    executable = compile_graph(graph)
    assert executable.stages["kernels"].count("call k") == 1
    assert "+=" not in executable.stages["kernels"]
    assert arena_bytes(executable) == 0


def test_a_pool_reads_its_windows_in_place() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (3, 8, 40)))
    place = {"axes": (1, 2), "sizes": (2, 2), "steps": (2, 2), "dilations": (1, 1)}
    graph.outputs = [ops.amax(ops.windows(x, **place), axes=(3, 4))]
    executable = compile_graph(graph)
    assert executable.stages["kernels"].count("call k") == 1
    assert arena_bytes(executable) == 0
    assert "gather" not in executable.stages["llvm"]


@pytest.mark.parametrize("dots", [False, True])
@pytest.mark.parametrize("registers", [16, 32])
def test_a_tile_fits_into_the_registers(registers: int, dots: bool) -> None:
    for rows in (1, 3, 8, 64):
        for columns in ((1,), (2, 14), (3, 3), (7, 1)):
            height, *widths = best_tile(rows, columns, registers, dots)
            count = np.prod(widths, dtype=int)
            assert height * count + min(height, count) + 1 < registers
            assert 1 <= height <= rows
            assert all(1 <= w <= n for w, n in zip(widths, columns, strict=True))


# Indices and sizes of contractions over windows that move in steps, and the kernels that compute
# them: over the axes where they lie, in blocks that are copied, one image after the other or all
# of them at once.
PRODUCTS = {
    "few rows": ("ocij,ncxyij->noxy", (8, 8, 16, 18), 1, "axes"),
    "images": ("ocij,ncxyij->noxy", (64, 3, 16, 18), 1, "blocks, 3 times"),
    "steps": ("ocij,ncxyij->noxy", (64, 3, 16, 33), 2, "blocks, 3 times"),
    "small images": ("ocij,ncxyij->noxy", (64, 8, 16, 4), 1, "blocks"),
    "weights of few channels": ("noxy,ncxyij->ocij", (8, 4, 3, 20), 1, "axes"),
    "weights of steps": ("noxy,ncxyij->ocij", (64, 8, 32, 9), 2, "blocks"),
    "channels alone": ("ocij,ncxyij->noxy", (200, 3, 32, 18), 1, "blocks, 3 times"),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", PRODUCTS)
def test_a_contraction_over_windows_is_copied_in_blocks_where_that_is_faster(
    case: str, width: int, rng: np.random.Generator
) -> None:
    indices, (channels, examples, given, side), step, expected = PRODUCTS[case]
    kernel = 1 if case == "channels alone" else 3
    at = (side - kernel) // step + 1
    x = rng.integers(-3, 4, (examples, given, side, side)).astype(np.float32)
    shape = {"o": channels, "n": examples, "c": given, "x": at, "y": at, "i": kernel, "j": kernel}
    other = rng.integers(-3, 4, [shape[name] for name in indices.split(",")[0]]).astype(np.float32)
    graph = Graph()
    a, b = (graph.add_input(type_of_array(value)) for value in (other, x))
    place = {"axes": (2, 3), "sizes": (kernel,) * 2, "steps": (step,) * 2, "dilations": (1, 1)}
    graph.outputs = [ops.contract(a, ops.windows(b, **place), indices=indices)]
    expected_result = interpret(graph, [other, x])[0][0]
    np.testing.assert_array_equal(run(graph, [other, x], width)[0], expected_result)
    if width == WIDTHS[0] == 64:
        text = compile_graph(graph).stages["kernels"]
        found = re.search(r"contract (over axes|in blocks)", text)
        assert found is not None
        images = re.search(r"^  column i0 in (\d+)", text, re.M)
        kind = "axes" if found[1] == "over axes" else "blocks"
        assert kind + (f", {images[1]} times" if images and kind != "axes" else "") == expected


# Copies in blocks -----------------------------------------------------------------------------

# Groups, channels in and out, sides of images and of weights, steps, dilations, examples.
LAYERS = {
    "odd": (1, 5, 19, (13, 11), (3, 2), (1, 1), (1, 1), 3),
    "steps": (1, 3, 21, (17, 23), (3, 5), (2, 3), (1, 1), 2),
    "far steps": (1, 4, 17, (31, 29), (2, 2), (7, 6), (1, 1), 2),
    "dilated": (1, 6, 18, (19, 20), (3, 3), (1, 2), (3, 2), 2),
    "groups": (3, 12, 57, (9, 16), (3, 3), (1, 1), (1, 1), 2),
    "channels alone": (1, 37, 20, (7, 9), (1, 1), (1, 1), (1, 1), 3),
    "few positions": (1, 18, 33, (4, 3), (3, 3), (1, 1), (1, 1), 5),
    "a line": (1, 7, 19, (65,), (5,), (2,), (1,), 3),
    "volumes": (1, 3, 17, (6, 5, 9), (2, 3, 2), (1, 2, 1), (1, 1, 2), 2),
}
PASSES = ("forward", "mirrored", "input", "weights")


def layer_of(case: str, kind: str, dtype: type, rng: np.random.Generator) -> tuple[Graph, list]:
    """One pass of a convolution as a contraction of windows, and its operands.

    "mirrored" is a forward with the weights of an input's gradient: channels change places, and
    every second weight is read, from the last one on.
    """
    groups, given, made, sides, kernel, steps, dilations, examples = LAYERS[case]
    rank = len(sides)
    at = tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(sides, kernel, steps, dilations, strict=True)
    )
    axes = tuple(range(3, 3 + rank))
    x = (examples, groups, given // groups, *sides)
    w = (groups, made // groups, given // groups, *kernel)
    g = (examples, groups, made // groups, *at)
    mirrored = (groups, given // groups, made // groups, *(2 * size for size in kernel))
    p, q = "xyz"[:rank], "ijk"[:rank]
    shapes, indices = {
        "forward": ((w, x), f"goc{q},ngc{p}{q}->ngo{p}"),
        "mirrored": ((mirrored, x), f"gco{q},ngc{p}{q}->ngo{p}"),
        "weights": ((g, x), f"ngo{p},ngc{p}{q}->goc{q}"),
        "input": ((w, g), f"goc{q},ngo{p}->ngc{q}{p}"),
    }[kind]
    arrays = [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    graph = Graph()
    a, b = (graph.add_input(type_of_array(array)) for array in arrays)
    place = {"axes": axes, "sizes": kernel, "steps": steps, "dilations": dilations}
    windows = b if kind == "input" else ops.windows(b, **place)
    if kind == "mirrored":
        steps = (1, 1, 1, *(2,) * rank)
        a = ops.slice(a, starts=(0,) * len(mirrored), stops=mirrored, steps=steps)
        for axis in axes:
            a = ops.flip(a, axis=axis)
    graph.outputs = [ops.contract(a, windows, indices=indices)]
    return graph, arrays


def always_in_blocks(patch: pytest.MonkeyPatch, small: bool, *, reads: bool = False) -> None:
    """Copy operands always; small blocks have a few inner indices, rows and columns.

    Args:
        reads: the first operand lies where it is, if it can.
    """
    if not reads:
        patch.setattr(BlockedProduct, "is_near", False)
    for name in ("AXES_LANES", "FOLDED_LANES"):
        patch.setattr(costs, name, 1e-6)
    if small:
        patch.setattr(costs, "PANEL_BYTES", 1 << 10)
        patch.setattr(costs, "BLOCK_BYTES", 1 << 12)
        patch.setattr(costs, "PACK_BYTES", 1 << 8)
        patch.setattr(costs, "PART_ROWS", 5)


@pytest.mark.parametrize(
    ("case", "small", "width"),
    [  # each layer with each width and size of blocks, and these with each other
        (case, (i + j) % 2 == 1, width)
        for i, case in enumerate(LAYERS)
        for j, width in enumerate(WIDTHS)
    ],
)
def test_copies_in_blocks_have_every_element_once(
    case: str, small: bool, width: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly, in small integers, whatever the blocks and the parts, and so are their texts."""
    for number, kind in enumerate(PASSES, small):  # in small blocks in the other dtype
        graph, arrays = layer_of(case, kind, (np.float32, np.float64)[number % 2], rng)
        expected = interpret(graph, arrays)[0][0]
        for worth, reads in ((np.inf, False), (0.0, False), (np.inf, True), (0.0, True)):
            with monkeypatch.context() as patch:
                always_in_blocks(patch, small, reads=reads)
                patch.setattr(costs, "WORTH_SECONDS", worth)
                np.testing.assert_array_equal(run(graph, arrays, width)[0], expected)
        always_in_blocks(monkeypatch, small, reads=True)
        monkeypatch.setattr(costs, "WORTH_SECONDS", 0.0)
        strides = [contiguous_strides(array.shape) for array in arrays]
        program = make_program(graph, strides, host_target().with_vector_bytes(width))
        assert any(isinstance(call.kernel, BlockedKernel) for call in program.calls)
        for call in program.calls:
            assert parse_kernel(call.text) == call.kernel
        found = interpret_program(program, arrays)[0][0]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("way", ["RUN", "SHUFFLED", "GATHERED_LANES"])
@pytest.mark.parametrize("case", LAYERS)
def test_lanes_are_copied_in_any_way(
    case: str, way: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_in_blocks(monkeypatch, True)
    monkeypatch.setattr(costs, way, 0.0)
    if way == "RUN":
        monkeypatch.setattr(costs, "NEAR_RUN", 0.0)
    for kind in PASSES:
        graph, arrays = layer_of(case, kind, np.float32, rng)
        np.testing.assert_array_equal(run(graph, arrays)[0], interpret(graph, arrays)[0][0])


def test_weights_are_transposed_in_registers_where_what_is_wanted_of_a_line_is_near() -> None:
    """As for the gradient of an input, which reads 3x3 weights from the last one on."""
    copy = LaneCopy(f32, "float", 16, ((512, 9),), False)
    assert copy.way(((4608, 1),))[1] == "across"
    assert copy.way(((32, 4608), (9, -1)))[1] == "across"
    assert copy.way(((32, 4608), (2, -6), (2, -2)))[1] == "across"
    assert copy.way(((32, 4608),))[1] == "gathered"


def test_sums_have_the_same_bits_in_any_blocks_and_parts(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    graph, arrays = layer_of("odd", "weights", np.float32, rng)
    arrays = [rng.normal(size=array.shape).astype(np.float32) for array in arrays]
    for small, reads in ((False, False), (True, False), (True, True), (False, True)):
        for worth in (np.inf, 0.0):
            with monkeypatch.context() as patch:
                always_in_blocks(patch, small, reads=reads)
                patch.setattr(costs, "WORTH_SECONDS", worth)
                found.append(run(graph, arrays)[0].tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("kind", ["forward", "input"])
def test_weights_are_read_where_they_lie(kind: str) -> None:
    for examples, channels in ((8, 512), (64, 256)):
        graph = Graph()
        w = graph.add_input(TensorType(f32, (channels, channels, 3, 3)))
        x = graph.add_input(TensorType(f32, (channels, examples, 6, 6)))
        place = {"axes": (2, 3), "sizes": (3, 3), "steps": (1, 1), "dilations": (1, 1)}
        if kind == "input":
            for axis in (2, 3):
                w = ops.flip(w, axis=axis)
        letters = "ocij" if kind == "forward" else "coij"
        windows = ops.windows(x, **place)
        graph.outputs = [ops.contract(w, windows, indices=f"{letters},cnxyij->onxy")]
        text = compile_graph(graph).stages["kernels"]
        assert "a in place" in text


# Parts along the inner indices ----------------------------------------------------------------

# Products with few elements, and what their first operand, the windows' operand and windows are.
FEW: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "axes": ("noxy,ncxyij->ocij", (8, 3, 38, 38), (8, 2, 40, 40), (3, 3)),
    "narrow axes": ("noxy,ncxyij->ocij", (72, 2, 16, 90), (72, 1, 17, 91), (2, 2)),
    "groups": ("gnox,gncxi->goci", (2, 64, 3, 400), (2, 64, 2, 402), (3,)),
    "one number": ("nxy,xny->", (160, 60, 100), (60, 160, 100), ()),
    "blocks": ("noxy,ncxyij->ocij", (12, 21, 33, 34), (12, 2, 35, 36), (3, 3)),
    "blocks of lines": ("noxy,ncxyij->ocij", (11, 40, 32, 31), (11, 1, 35, 34), (4, 4)),
    "matrices": ("kp,kq->pq", (9000, 40), (9000, 33), ()),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", FEW)
def test_a_product_of_few_elements_is_cut_along_what_it_sums(
    case: str, width: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are summed in their order, and what follows is computed once, of all."""
    if case.startswith("blocks"):
        always_in_blocks(monkeypatch, False)
    indices, *shapes, sizes = FEW[case]
    arrays = [rng.integers(-2, 3, shape).astype(np.float32) for shape in shapes]
    graph = Graph()
    a, b = (graph.add_input(type_of_array(array)) for array in arrays)
    if sizes:
        axes = tuple(range(len(b.shape) - len(sizes), len(b.shape)))
        ones = (1,) * len(sizes)
        b = ops.windows(b, axes=axes, sizes=sizes, steps=ones, dilations=ones)
    y = ops.contract(a, b, indices=indices)
    arrays.append(rng.integers(-2, 3, y.shape).astype(np.float32))
    z = ops.add(ops.maximum(y, ops.zero(y)), graph.add_input(type_of_array(arrays[-1])))
    graph.outputs = [z, y]
    expected = interpret(graph, arrays)[0]
    strides = [contiguous_strides(array.shape) for array in arrays]
    program = make_program(graph, strides, host_target().with_vector_bytes(width))
    *_, product, total = (call.kernel for call in program.calls)
    assert (product.kind, total.kind) == ("contract", "reduce")
    assert product.parts is not None and product.parts.count >= costs.LEAST_PARTS
    for call in program.calls:
        assert parse_kernel(call.text) == call.kernel
    for found in (run(graph, arrays, width), interpret_program(program, arrays)[0]):
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_product_of_many_elements_is_not_cut_along_what_it_sums() -> None:
    """That of few inner indices isn't, either."""
    for rows, inner, columns in ((512, 16384, 512), (16, 512, 16), (400, 2000, 64)):
        graph = Graph()
        a, b = (graph.add_input(TensorType(f32, x)) for x in ((inner, rows), (inner, columns)))
        graph.outputs = [ops.contract(a, b, indices="kp,kq->pq")]
        strides = [contiguous_strides(entry.value.shape) for entry in graph.inputs]
        (call,) = make_program(graph, strides, host_target()).calls
        assert call.kernel.kind == "contract"


# Padding that is left out ---------------------------------------------------------------------

# Channels in and out, sides of images and of weights, steps, dilations, zeros around, examples.
PADDED = {
    "one position a panel": (6, 19, (4, 3), (3, 3), (1, 1), (1, 1), (1, 1), 32),
    "positions that share panels": (7, 15, (4, 5), (3, 3), (1, 1), (1, 1), (1, 1), 11),
    "uneven": (6, 18, (3, 4), (3, 2), (1, 1), (1, 1), (2, 0), 16),
    "steps": (6, 17, (6, 5), (4, 3), (2, 1), (1, 1), (1, 1), 17),
    "dilated": (8, 20, (5, 4), (3, 3), (1, 1), (2, 3), (2, 3), 18),
    "nothing inside": (6, 14, (1, 2), (3, 3), (1, 1), (1, 1), (2, 1), 16),
    "a line": (6, 19, (5,), (3,), (1,), (1,), (1,), 20),
    "volumes": (5, 16, (3, 2, 3), (3, 3, 2), (1, 1, 1), (1, 1, 1), (1, 1, 1), 17),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", PADDED)
def test_zeros_around_images_are_left_out_unless_weights_are_not_finite(
    case: str, width: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 * inf is NaN, at the border of images as elsewhere."""
    given, made, sides, kernel, steps, dilations, around, examples = PADDED[case]
    always_in_blocks(monkeypatch, False)
    monkeypatch.setattr(costs, "PADDED_MATRIX", 4)
    monkeypatch.setattr(costs, "IMAGES", 8)
    p, q = "xyz"[: len(sides)], "ijk"[: len(sides)]
    axes = tuple(range(2, 2 + len(sides)))
    x = rng.integers(-3, 4, (examples, given, *sides)).astype(np.float32)
    w = rng.integers(-3, 4, (made, given, *kernel)).astype(np.float32)
    far = w.copy()
    far[3, 1].flat[0], far[-1, 2].flat[-1] = np.inf, np.nan
    for mirrored in (False, True):
        graph = Graph()
        shape = (given, made, *kernel) if mirrored else w.shape
        weights, images = graph.add_input(TensorType(f32, shape)), graph.add_input(type_of_array(x))
        letters, read = (f"co{q}", weights) if mirrored else (f"oc{q}", weights)
        for axis in axes if mirrored else ():
            read = ops.flip(read, axis=axis)
        low = (0, 0, *(size + mirrored for size in around))
        padded = ops.pad(images, images.constant(0, f32), low=low, high=low)
        if mirrored:  # a part of what is padded for all phases of a transposed convolution
            starts, steps_of_all = (0, 0, *(1 for _ in sides)), (1,) * len(low)
            stops = tuple(size - n for size, n in zip(padded.shape, starts, strict=True))
            padded = ops.slice(padded, starts=starts, stops=stops, steps=steps_of_all)
        place = {"axes": axes, "sizes": kernel, "steps": steps, "dilations": dilations}
        indices = f"{letters},nc{p}{q}->no{p}"
        graph.outputs = [ops.contract(read, ops.windows(padded, **place), indices=indices)]
        for values in (w, far):
            own = np.flip(values.swapaxes(0, 1), axes) if mirrored else values
            arrays = [np.ascontiguousarray(own), x]
            expected = interpret(graph, arrays)[0][0]
            for worth in (np.inf, 0.0):
                monkeypatch.setattr(costs, "WORTH_SECONDS", worth)
                np.testing.assert_array_equal(run(graph, arrays, width)[0], expected)
            strides = [contiguous_strides(array.shape) for array in arrays]
            program = make_program(graph, strides, host_target().with_vector_bytes(width))
            (product,) = (c for c in program.calls if isinstance(c.kernel, BlockedKernel))
            assert "without padding" in product.text
            assert parse_kernel(product.text) == product.kernel
            np.testing.assert_array_equal(interpret_program(program, arrays)[0][0], expected)


@pytest.mark.parametrize("channels", [192, 193, 211, 509])
def test_a_block_fits_into_the_nearest_cache_for_any_number_of_channels(channels: int) -> None:
    """A prime number of them isn't cut evenly: then a block has all places of a window."""
    x, w = np.zeros((32, channels, 4, 4), np.float32), np.zeros((64, channels, 3, 3), np.float32)
    step = lucid.compile(lambda x, w: F.conv2d(x, w, padding=1))
    step(lucid.tensor(x), lucid.tensor(w))
    (text,) = re.findall(r"contract in blocks of .*", step.stages["kernels"])
    block, split, columns = map(int, re.findall(r"of (\d+) of k(\d).* tile \d+x(\d+)", text)[0])
    inner = block if "without padding" in text else block * (9, 3, 1)[split]
    panel = inner * columns * host_target().vector_bytes
    assert panel <= 3 * costs.PANEL_BYTES  # of whole blocks of lanes
