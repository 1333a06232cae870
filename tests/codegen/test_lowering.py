"""Compiled code computes what the ops' NumPy references say, at every vector width."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis
import numpy as np
import pytest
from fuzzing import many
from hypothesis import strategies as st
from ir.op_cases import cases, named, standing_ops
from random_graphs import Case, cases as random_cases

from lucid.codegen.emit.lowering import RULES
from lucid.codegen.kernels.loop import LoopKernel
from lucid.codegen.llvm.target import Target, host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.parse import parse_kernels
from lucid.ir import ops
from lucid.ir.errors import MissingRuleError
from lucid.ir.graph import Graph, Value
from lucid.ir.interpret import interpret
from lucid.ir.op import OPS, Op
from lucid.ir.types import DType, TensorType, f32, f64, i64, type_of_array
from lucid.runtime import compile_graph

WIDTHS = [host_target().vector_bytes, *(w for w in (32, 16) if w < host_target().vector_bytes)]
# Rounded like NumPy's up to some units in the last place.
APPROXIMATE = {
    "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "sigmoid", "erf", "pow",
}  # fmt: skip
# Sums and products in another order than NumPy's.
REORDERED = {
    "sum", "prod", "cumsum", "cumlogsumexp", "matmul", "contract", "overlap_add", "attention",
    "attention_grad",
}  # fmt: skip
# Which of two zeros is the greater isn't defined.
EITHER_ZERO = {"maximum", "minimum", "clamp", "amax", "amin", "sort"}
ULPS = 4


def target_of(width: int) -> Target:
    return host_target().with_vector_bytes(width)


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def run(graph: Graph, arrays: Sequence[np.ndarray], width: int = WIDTHS[0]) -> list[np.ndarray]:
    strides = [strides_of(array) for array in arrays]
    return compile_graph(graph, strides, target=target_of(width)).call(arrays)


def assert_same(got: np.ndarray, want: np.ndarray, signed_zeros: bool = True) -> None:
    """Equal bits, but any NaN equals any other."""
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    if signed_zeros and got.dtype.kind == "f":
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


def assert_close(op: Op, got: np.ndarray, arrays: Sequence[np.ndarray], attributes: dict) -> None:
    """Within some units in the last place of what the op gives in float64."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    with np.errstate(all="ignore"):
        exact = np.asarray(op.evaluate(*wide, **attributes))
        want = exact.astype(got.dtype)
        finite = np.isfinite(exact) & np.isfinite(want) & np.isfinite(got)
        # Results beyond the range may round to infinity or to the greatest number.
        edge = np.abs(exact) >= np.finfo(got.dtype).max * (1 - 1e-6)
        np.testing.assert_array_equal(got[~finite & ~edge], want[~finite & ~edge])
        error = np.abs(got[finite].astype(np.float64) - exact[finite])
        unit = np.spacing(np.abs(want[finite])).astype(np.float64)
    assert (error <= ULPS * unit).all(), f"{op.name}: {(error / unit).max()} ulp"


def assert_op(op: Op, got: np.ndarray, arrays: Sequence[np.ndarray], attributes: dict) -> None:
    want = np.asarray(op.evaluate(*arrays, **attributes))
    if got.dtype.kind != "f" or op.name not in APPROXIMATE | REORDERED:
        assert_same(got, want, op.name not in EITHER_ZERO)
    elif op.name in REORDERED:
        tolerance = 2e-6 if got.dtype == np.float32 else 1e-14
        scale = max((np.abs(a[np.isfinite(a)]).max(initial=1.0) for a in arrays), default=1.0)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)
    else:
        assert_close(op, got, arrays, attributes)


def test_every_elementwise_op_has_one_rule() -> None:
    assert {op.name for op in OPS.values() if op.kind == "map"} == set(RULES)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op", standing_ops(), ids=named)
def test_an_op_computes_its_reference(op: Op, width: int, rng: np.random.Generator) -> None:
    graph = Graph(op.name)
    given: list[np.ndarray] = []
    expected = []
    for sample, arrays, _ in cases(op, rng):
        values = [graph.add_input(type_of_array(array)) for array in arrays]
        graph.outputs.append(graph.append(op, values, dict(sample.attributes)).result)
        given += arrays
        expected.append((arrays, sample.attributes))
    results = run(graph, given, width)
    for got, (arrays, attributes) in zip(results, expected, strict=True):
        assert_op(op, got, arrays, attributes)


def test_an_op_without_a_lowering_is_refused_by_name() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (3,)))
    unknown = Op("frobnicate", lambda x: x, np.negative)
    graph.outputs = [graph.append(unknown, [x], {}).result]
    with pytest.raises(MissingRuleError, match=r"^frobnicate: no lowering to native code$"):
        compile_graph(graph)


# Layouts --------------------------------------------------------------------------------------


def layouts(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays of shape (6, 10) that lie in memory in different ways."""
    base = rng.normal(size=(24, 40)).astype(np.float32)
    return {
        "transposed": np.ascontiguousarray(base[:10, :6]).T,
        "every other": base[:12:2, :20:2],
        "backward": base[5::-1, 9::-1],
        "rows": base[:6, 3:13],
        "repeated rows": np.broadcast_to(base[0, :10], (6, 10)),
        "repeated columns": np.broadcast_to(base[:6, :1], (6, 10)),
        "one number": np.broadcast_to(base[0, 0], (6, 10)),
    }


LAYOUTS = sorted(layouts(np.random.default_rng(0)))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_read_with_their_strides(
    layout: str, width: int, rng: np.random.Generator
) -> None:
    x = layouts(rng)[layout]
    other = rng.normal(size=(6, 10)).astype(np.float32)
    index = np.array([[3, 0, -1], [9, 2, 2]])
    graph = Graph()
    vx, vo, vi = (graph.add_input(type_of_array(a)) for a in (x, other, index))
    graph.outputs = [
        ops.add(vx, vo),
        ops.neg(vx),
        ops.sum(vx, axes=(0,)),
        ops.sum(vx, axes=(1,)),
        ops.sum(vx, axes=(0, 1)),
        ops.amax(vx, axes=(1,)),
        ops.argmin(vx, axis=0),
        ops.reshape(vx, shape=(4, 15)),
        ops.transpose(vx, perm=(1, 0)),
        ops.matmul(vx, ops.transpose(vo, perm=(1, 0))),
        ops.matmul(ops.transpose(vx, perm=(1, 0)), vo),
        ops.cumsum(vx, axis=0),
        ops.cumsum(vx, axis=1),
        ops.cummax(ops.transpose(vx, perm=(1, 0)), axis=0),
        ops.recurrence(vx, vo, axis=0),
        ops.sort(vx, axis=0, descending=True),
        ops.take(vx, vi, axis=1),
        ops.take(ops.transpose(vx, perm=(1, 0)), vi, axis=0),
        ops.gather(vx, vi, axis=1),
        ops.concat(vx, vo, axis=0),
        ops.index_add(vx, graph.constant(2, i64), ops.sum(vo, axes=(1,)), axis=1),
    ]
    got = run(graph, [x, other, index], width)
    want, _ = interpret(graph, [x, other, index])
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("size", [1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 129])
def test_tails_are_neither_lost_nor_overrun(
    size: int, width: int, rng: np.random.Generator
) -> None:
    arrays = [rng.normal(size=(3, size)).astype(np.float32), rng.integers(0, 9, (3, size))]
    graph = Graph()
    x, n = (graph.add_input(type_of_array(array)) for array in arrays)
    graph.outputs = [
        ops.mul(x, x),
        ops.lt(x, ops.zero(x)),
        ops.sum(n, axes=(1,)),
        ops.prod(n, axes=(0,)),
        ops.argmax(x, axis=1),
        ops.amin(x, axes=(0, 1)),
        ops.all(ops.ge(n, ops.zero(n)), axes=(1,)),
        ops.cast(n, dtype=f64),
    ]
    want, _ = interpret(graph, arrays)
    for ours, theirs in zip(run(graph, arrays, width), want, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize("shape", [(100_000,), (300, 700), (5000, 3), (3, 5000)])
@pytest.mark.parametrize("axes", [(0,), (-1,), None])
def test_long_sums_are_as_accurate_as_pairwise_ones(
    shape: tuple[int, ...], axes: tuple[int, ...] | None, rng: np.random.Generator
) -> None:
    x = rng.random(shape).astype(np.float32)
    axes = tuple(range(len(shape))) if axes is None else tuple(a % len(shape) for a in axes)
    graph = Graph()
    graph.outputs = [ops.sum(graph.add_input(type_of_array(x)), axes=axes)]
    (got,) = run(graph, [x])
    np.testing.assert_allclose(got, x.sum(axes, dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "shape", [(257, 203), (128, 1024), (40, 7, 200), (33, 8300), (2, 16, 17001)]
)
def test_large_columns_are_folded_row_by_row(
    shape: tuple[int, ...], width: int, rng: np.random.Generator
) -> None:
    x = rng.random(shape).astype(np.float32)
    graph = Graph()
    value = graph.add_input(type_of_array(x))
    root = ops.sqrt(value)
    axes = tuple(range(len(shape) - 1))
    rows = ops.reshape(root, shape=(x.size // shape[-1], shape[-1]))
    graph.outputs = [
        root,
        ops.sum(root, axes=axes),
        ops.amax(root, axes=axes),
        ops.argmin(rows, axis=0),
        ops.argmax(rows, axis=0),
        ops.neg(ops.sum(ops.cast(ops.lt(value, value.constant(0.5, f32)), dtype=i64), axes=axes)),
    ]
    want, _ = interpret(graph, [x])
    for ours, theirs in zip(run(graph, [x], width), want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape", [(256, 40), (75, 19), (3, 64, 21), (40, 3, 37)])
def test_sums_along_rows_and_over_them_are_one_kernel(
    shape: tuple[int, ...], width: int, rng: np.random.Generator
) -> None:
    """The second one adds blocks of rows up in memory; a NaN there from before is not added."""
    x = rng.random(shape)
    graph = Graph()
    root = ops.exp(graph.add_input(type_of_array(x)))
    axis = int(np.argmax(shape[:-1]))
    last = len(shape) - 1
    scaled = ops.div(root, ops.keep_axes(ops.sum(root, axes=(last,)), shape, (last,)))
    graph.outputs = [ops.sum(scaled, axes=(last,)), ops.sum(scaled, axes=(axis,))]
    want, _ = interpret(graph, [x])
    for ours, theirs in zip(run(graph, [x], width), want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    executable = compile_graph(graph)
    assert executable.kernel_count == 2
    kernels = executable.stages["kernels"]
    assert "] += %" in kernels
    for name, kernel in parse_kernels(kernels).items():
        assert f"kernel {name} = {kernel}\ncall " in kernels


@pytest.mark.parametrize("shape", [(128, 192), (130, 70), (3, 128, 256)])
def test_large_transpositions(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.normal(size=shape)
    graph = Graph()
    value = graph.add_input(type_of_array(x))
    perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    graph.outputs = [
        ops.transpose(ops.neg(value), perm=perm),
        ops.transpose(value, perm=perm[::-1]),
    ]
    want, _ = interpret(graph, [x])
    for ours, theirs in zip(run(graph, [x]), want, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize(
    "shape", [(0,), (0, 3), (3, 0), (1,), (3, 1), (2,), (1000,), (4, 300), (300, 4)]
)
@pytest.mark.parametrize("dtype", [f32, f64])
def test_a_sum_of_nothing_or_of_negative_zeros_is_positive_zero(
    shape: tuple[int, ...], dtype: DType
) -> None:
    graph = Graph("step")
    x = graph.add_input(TensorType(dtype, shape))
    graph.outputs = [ops.sum(x, axes=(axis,)) for axis in range(len(shape))]
    array = -np.zeros(shape, dtype.numpy)
    want, _ = interpret(graph, [array])
    for ours, theirs in zip(run(graph, [array]), want, strict=True):
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


def test_special_numbers_pass_through_reductions() -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[1, nan, 3], [-inf, -inf, -inf], [inf, 0, -inf], [-0.0, -0.0, -0.0]], np.float32)
    graph = Graph()
    value = graph.add_input(type_of_array(x))
    graph.outputs = [
        op(value, **{name: (1,) if name == "axes" else 1})
        for op, name in (
            (ops.sum, "axes"), (ops.amax, "axes"), (ops.amin, "axes"), (ops.prod, "axes"),
            (ops.argmax, "axis"), (ops.argmin, "axis"),
        )
    ]  # fmt: skip
    want, _ = interpret(graph, [x])
    for ours, theirs in zip(run(graph, [x]), want, strict=True):
        assert_same(ours, theirs, signed_zeros=False)


@pytest.mark.parametrize("op", [ops.index_add, ops.scatter_add], ids=named)
@pytest.mark.parametrize("number", [1.0, 0.5])
def test_one_number_is_added_at_one_place_as_often_as_it_is_there(op: Op, number: float) -> None:
    graph = Graph()
    base = graph.add_input(TensorType(f32, (5,)))
    index = ops.broadcast(graph.constant(2, i64), shape=(7,))
    source = ops.broadcast(graph.constant(number, f32), shape=(7,))
    graph.outputs = [op(base, index, source, axis=0)]
    (found,) = run(graph, [np.zeros(5, np.float32)])
    assert found.tolist() == [0, 0, 7 * number, 0, 0]


# Whole graphs ---------------------------------------------------------------------------------


def exact_values(graph: Graph) -> list[Value]:
    """What depends only on ops that have one right result, so that compiled bits must agree."""
    inexact = APPROXIMATE | REORDERED | EITHER_ZERO
    known = {entry.value for entry in graph.inputs}
    for node in graph.nodes:
        rounds = node.op.name in inexact and node.result.dtype.is_floating_point
        if not rounds and known.issuperset(node.operands):
            known.update(node.results)
    return [value for value in graph.values() if value in known and value.producer]


@hypothesis.settings(max_examples=many(30))
@hypothesis.given(random_cases(), st.sampled_from(WIDTHS), st.booleans())
def test_a_random_graph_computes_what_the_interpreter_does(
    case: Case, width: int, fuse: bool
) -> None:
    graph = case.graph
    hypothesis.note(str(graph))
    graph.outputs = exact_values(graph)[-8:]
    try:
        want, _ = interpret(graph, case.inputs)
    except IndexError:
        return
    got = compile_graph(graph, target=target_of(width), fuse=fuse).call(case.inputs)
    for ours, theirs in zip(got, want, strict=True):
        assert_same(ours, theirs)


def test_what_runs_along_rows_in_order_takes_one_row_after_the_other() -> None:
    """Lanes that are a power of two of lines apart would evict each other from the cache."""

    def lanes(shape: tuple[int, int], axis: int, op: Op) -> int:
        types = [TensorType(f32, shape), TensorType(i64, shape), TensorType(f32, shape)]
        graph = Graph()
        values = [
            graph.add_input(type_) for type_ in (types if op is ops.scatter_add else types[:1])
        ]
        graph.outputs = [op(*values, axis=axis)]
        strides = [(shape[1], 1)] * len(values)
        kernels = [call.kernel for call in make_program(graph, strides, host_target()).calls]
        (nest,) = [
            kernel.body
            for kernel in kernels
            if isinstance(kernel, LoopKernel) and kernel.kind in ("scan", "scatter")
        ]
        return nest.lanes

    assert lanes((256, 1024), 1, ops.cumsum) == 1
    assert lanes((256, 1024), 0, ops.cumsum) > 1
    assert lanes((1024, 4), 1, ops.cumprod) > 1
    assert lanes((256, 1024), 1, ops.cumlogsumexp) > 1
    assert lanes((256, 1024), 1, ops.scatter_add) == 1
    assert lanes((256, 1024), 0, ops.scatter_add) > 1
