"""Programs of kernels: what the verifier refuses, and what the interpreter finds in one."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations

import hypothesis
import numpy as np
import pytest
from fuzzing import FUZZED
from hypothesis import strategies as st
from ir.op_cases import cases as samples_of, named, standing_ops
from random_graphs import Case, cases
from random_programs import numbers, programs

import lucid
from lucid.autograd import Function
from lucid.codegen import costs
from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.codegen.kernel_ir.instruction import Inst
from lucid.codegen.kernel_ir.kernel import Kernel, Partition, TileGrid
from lucid.codegen.kernels.blocked import BlockedKernel
from lucid.codegen.kernels.body import BodyKernel
from lucid.codegen.kernels.host import WholeKernel
from lucid.codegen.kernels.loop import LoopKernel
from lucid.codegen.kernels.sort import SortKernel
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.interpret import interpret_program
from lucid.codegen.program.parse import parse_kernel, parse_kernels
from lucid.codegen.program.program import Program, kernel_names, lifetimes
from lucid.codegen.program.verify import verify_program
from lucid.ir import ops
from lucid.ir.errors import ParseError, VerifyError
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.ir.op import Op
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import TensorType, f32, f64, i64, type_of_array
from lucid.runtime import compile_graph

Results = list[np.ndarray]

SHARDS = 8 if FUZZED else 1


def lowered(graph: Graph, *, fuse: bool = True, share: bool = False) -> Program:
    """The kernels of a graph; all of them shared by threads, however short, if told so."""
    strides = [contiguous_strides(entry.value.shape) for entry in graph.inputs]
    with pytest.MonkeyPatch.context() as patch:
        if share:
            patch.setattr(costs, "WORTH_SECONDS", 0.0)
        return make_program(graph, strides, host_target(), fuse)


def chain() -> Graph:
    """Kernels over temps that follow one another."""
    graph = Graph()
    x = graph.add_input(TensorType(f32, (6, 40)))
    w = graph.add_input(TensorType(f32, (40, 40)))
    y = ops.matmul(ops.matmul(ops.tanh(x), w), w)
    graph.outputs = [ops.matmul(ops.exp(y), w), ops.sort(y, axis=1, descending=False)]
    return graph


def arrays_for(graph: Graph) -> Results:
    rng = np.random.default_rng(7)
    types = [entry.value.type for entry in graph.inputs]
    return [rng.normal(size=type.shape).astype(type.dtype.numpy) * 0.3 for type in types]


def assert_same(found: Results, expected: Results) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def test_infinities_and_nan_are_no_reason_to_warn() -> None:
    graph = chain()
    given = arrays_for(graph)
    given[0][0, :3], given[1][0] = (np.inf, -np.inf, np.nan), 0.0
    with np.errstate(all="ignore"):
        expected = interpret(graph, given)[0]
    assert_same(interpret_program(lowered(graph), given)[0], expected)


# Planted faults -------------------------------------------------------------------------------


def refused(program: Program) -> str:
    with pytest.raises(VerifyError) as error:
        verify_program(program)
    return str(error.value)


def test_what_is_compiled_is_verified_and_means_what_the_graph_does() -> None:
    graph = chain()
    program = lowered(graph, share=True)
    verify_program(program)
    assert len(program.calls) > 4 and any(call.kernel.parts for call in program.calls)
    given = arrays_for(graph)
    assert_same(interpret_program(program, given)[0], interpret(graph, given)[0])


def test_a_call_that_reads_before_another_one_writes_is_named() -> None:
    program = lowered(chain())
    program.calls[0], program.calls[1] = program.calls[1], program.calls[0]
    assert re.match(
        r"kernel k0 reads temp\d+ before any kernel has written it\n  call 0: call k0\(",
        refused(program),
    )


def test_temps_that_live_together_must_lie_apart() -> None:
    graph = chain()
    given = arrays_for(graph)
    expected = interpret_program(lowered(graph), given)[0]
    wrong = 0
    for one, two in combinations(range(len(lowered(graph).offsets)), 2):
        program = lowered(graph)
        lives = lifetimes(program.calls)
        first, second = list(lives)[one], list(lives)[two]
        if lives[first][1] < lives[second][0]:
            continue
        program.offsets[second] = program.offsets[first]
        program.arena_bytes *= 2
        assert re.match(
            r"kernel k\d+ finds temp\d+ and temp\d+ at bytes \d+ \.\. \d+ of the arena, "
            r"which both live up to call \d+\n  call \d+: call k",
            refused(program),
        )
        found = interpret_program(program, given)[0]
        pairs = zip(found, expected, strict=True)
        wrong += not all(np.allclose(a, b) for a, b in pairs)
    assert wrong, "in the interpreter, they overwrite each other"


def test_a_temp_outside_of_the_arena_is_named() -> None:
    program = lowered(chain())
    program.arena_bytes -= 64
    assert re.match(
        r"kernel k\d+ uses temp\d+, which lies at \d+ \.\. \d+ of \d+ bytes of arena\n",
        refused(program),
    )


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (Partition(0, 2, 2), "is cut into 2 parts of 2 along i0, which has 6 values"),
        (Partition(0, 3, 3), "is cut into 3 parts of 3 along i0, which has 6 values"),
        (Partition(4, 3, 2), "is cut along i4, and has 2 dims"),
        (Partition(1, 1, 40), "has parts of 1 along i1, whose values stay in 16s"),
    ],
)
def test_parts_that_are_not_all_of_a_loop_once_are_named(parts: Partition, problem: str) -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (40, 6)))
    graph.outputs = [ops.exp(ops.transpose(x, perm=(1, 0)))]
    program = lowered(graph)
    (call,) = program.calls
    assert isinstance(call.kernel, LoopKernel)
    call.kernel.body.vector, call.kernel.body.lanes = 1, 16
    call.kernel.parts = parts
    assert call.kernel.body.sizes == (6, 40)
    assert f"kernel k0 {problem}\n" in refused(program)


def test_parts_that_store_the_same_elements_are_named() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(f32, (6, 40)))
    graph.outputs = [ops.sum(x, axes=(1,))]
    program = lowered(graph)
    kernel = program.calls[0].kernel
    assert isinstance(kernel, LoopKernel) and kernel.body.reduced == (40,)
    kernel.parts = Partition(1, 32, 2)
    assert "kernel k0 is cut along i1: parts of it store the same elements of a1" in refused(
        program
    )


def test_sums_of_windows_that_overlap_are_cut_between_images() -> None:
    """Two threads may not add to what two windows share."""
    graph = Graph()
    windows = graph.add_input(TensorType(f32, (6, 400, 301, 3)))
    sizes = {"lengths": (801,), "steps": (2,), "dilations": (1,)}
    graph.outputs = [ops.overlap_add(windows, axes=(1,), **sizes)]
    program = lowered(graph)
    (kernel,) = [call.kernel for call in program.calls if "+=" in str(call.kernel)]
    assert isinstance(kernel, LoopKernel) and kernel.parts is not None
    assert kernel.parts.dim == 0
    kernel.parts = Partition(1, 200, 2)
    assert "parts of it store the same elements" in refused(program)


def test_a_wrong_grid_of_a_product_is_named_and_gives_wrong_numbers() -> None:
    graph = chain()
    program = lowered(graph)
    number, call = next(
        (n, c) for n, c in enumerate(program.calls) if isinstance(c.kernel, BlockedKernel)
    )
    assert isinstance(call.kernel, BlockedKernel)
    call.kernel.parts = TileGrid((1, 2, 40), (1, 2, 1), (0, 0))
    name = kernel_names(program.calls)[number]
    assert f"kernel {name} is cut into 2 parts of 2 rows, of which there are 6\n" in refused(
        program
    )
    given = arrays_for(graph)
    found, expected = interpret_program(program, given)[0], interpret(graph, given)[0]
    assert not np.allclose(found[0], expected[0])


def change(program: Program, op: str, changed: Callable[[Inst], Inst]) -> None:
    """Change the first instruction of an op in the first kernel that has one."""
    for call in program.calls:
        if isinstance(call.kernel, LoopKernel):
            for number, inst in enumerate(call.kernel.body.insts):
                if inst.op == op:
                    call.kernel.body.insts[number] = changed(inst)
                    return
    raise AssertionError(f"no {op}")


@pytest.mark.parametrize(
    ("op", "changed", "problem"),
    [
        ("load", lambda x: x._replace(form=AffineExpr(1, x.form.terms)),
         "k0 touches elements 1 .. 240 of input0, which has 0 .. 239"),
        ("store", lambda x: x._replace(form=AffineExpr(0, ((0, 2),))),
         "k0 touches elements 0 .. 478 of output0, which has 0 .. 239"),
        ("tanh", lambda x: x._replace(operands=(7,)),
         "k0 %1 = tanh reads (7,), which aren't all earlier values"),
        ("load", lambda x: x._replace(dtype=f64), "k0 %0 = load is f64 in memory of f32"),
        ("load", lambda x: x._replace(form=AffineExpr(0, ((3, 1),))),
         "k0 %0 = load has dims [3] in 1 loops"),
        ("tanh", lambda x: x._replace(op="frobnicate"), "k0 %1 = frobnicate is no instruction"),
        ("tanh", lambda x: x._replace(op="lt"), "k0 %1 = lt of f32 isn't of f32"),
        ("tanh", lambda x: x._replace(dtype=f64), "k0 %1 = tanh of f32 isn't of f64"),
        ("store", lambda x: x._replace(arg=9), "k0 %2 = store has no address in argument 9"),
    ],
)  # fmt: skip
def test_a_wrong_instruction_is_named(
    op: str, changed: Callable[[Inst], Inst], problem: str
) -> None:
    graph = Graph()
    graph.outputs = [ops.tanh(graph.add_input(TensorType(f32, (6, 40))))]
    program = lowered(graph)
    change(program, op, changed)
    assert refused(program).startswith(f"kernel {problem}\n  call 0: call k0(input0, output0)")


def test_state_is_written_behind_the_last_check_and_only_where_the_step_says_so() -> None:
    graph = Graph()
    w = graph.add_input(TensorType(f32, (5,)), "state")
    index = graph.add_input(TensorType(i64, (3,)))
    taken = ops.take(w, index, axis=0)
    graph.outputs = [taken]
    graph.writes = [(w, ops.exp(w))]
    program = lowered(graph)
    checks = [n for n, call in enumerate(program.calls) if call.kernel.effect == "check"]
    assert checks
    program.calls.append(program.calls.pop(checks[0]))
    assert "writes input0 before the last check or call of Python" in refused(program)
    other = lowered(graph)
    other.written.clear()
    assert "writes input0, which the step doesn't write" in refused(other)


def test_a_kernel_that_reads_what_another_turn_of_its_loops_writes_is_named() -> None:
    """The temp of a chain of two loops becomes the first one's own operand, one element off."""
    graph = Graph()
    w = graph.add_input(TensorType(f32, (6, 40)), "state")
    graph.writes = [(w, ops.exp(w))]
    given = arrays_for(graph)
    program = lowered(graph)
    interpret_program(program, given)
    change(program, "load", lambda x: x._replace(form=AffineExpr(0, ())))
    with pytest.raises(VerifyError) as error:
        interpret_program(program, given)
    assert str(error.value) == "%0 reads elements of a0 that %2 writes"
    assert error.value.__notes__ == ["in kernel k0: call k0(input0)"]


def test_an_output_that_nothing_writes_is_named() -> None:
    program = lowered(chain())
    program.calls = [call for call in program.calls if not isinstance(call.kernel, SortKernel)]
    program.offsets = {b: at for b, at in program.offsets.items() if b in _used(program)}
    assert refused(program) == "output1 is written by no kernel"


def _used(program: Program) -> set[object]:
    return {buffer for call in program.calls for buffer in call.args}


def test_kernels_are_verified_as_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lucid.codegen.lower.schedule.place", lambda spans: (dict.fromkeys(spans, 0), 1 << 20)
    )
    with pytest.raises(VerifyError, match=r"kernel k\d+ finds temp\d+ and temp\d+ at bytes"):
        lowered(chain())
    monkeypatch.setenv("LUCID_VERIFY", "0")
    lowered(chain())


# One numbering --------------------------------------------------------------------------------


def test_a_kernel_has_one_name_in_stages_profile_and_llvm() -> None:
    class Host(Function):
        @staticmethod
        def forward(ctx, x):
            return lucid.from_numpy(np.sort(x.numpy()))

        @staticmethod
        def backward(ctx, g):
            return g

    def body(x, w):
        return Host.apply(lucid.exp(x)).cumsum(0), (Host.apply(x @ w) + 1).sort(dim=0)[0]

    step = lucid.compile(body)
    given = lucid.randn(30, 40), lucid.randn(40, 40)
    step(*given)
    text, llvm = step.stages["kernels"], step.stages["llvm"]
    printed = re.findall(r"^call (\w+)\(", text, re.M)
    rows = step.profile(*given, calls=1).rows
    assert [name for name in printed if name[0] == "k"] == [
        row.name for row in rows if row.kind != "host"
    ]
    assert {row.name for row in rows if row.kind == "host"} == {"Host", "Host_1"}
    assert [name for name in printed if name[0] == "p"] == ["python0", "python1"]
    called = re.findall(r"@(k\d+)[(,]", "\n".join(re.findall(r"^ .*call void .*", llvm, re.M)))
    assert list(dict.fromkeys(called)) == list(dict.fromkeys(n for n in printed if n[0] == "k"))
    defined = dict(re.findall(r"define void @(k\d+)\(([^)]*)\)", llvm))
    for name, kernel in re.findall(r"^kernel (k\d+) = (.*)", text, re.M):
        given_to = re.findall(rf"^call {name}\((.*)\)", text, re.M)[0].split(", ")
        count = 1 if " parts of " in kernel else len(given_to)
        assert defined[name].count("ptr") == count, kernel


# The whole table of ops -----------------------------------------------------------------------


@pytest.mark.parametrize("op", [op for op in standing_ops() if op.kind != "check"], ids=named)
def test_the_kernels_of_an_op_mean_what_it_does_and_are_what_their_texts_say(
    op: Op, rng: np.random.Generator
) -> None:
    graph = Graph(op.name)
    given: Results = []
    for sample, arrays, _ in samples_of(op, rng):
        values = [graph.add_input(type_of_array(array)) for array in arrays]
        graph.outputs.append(graph.append(op, values, dict(sample.attributes)).result)
        given += arrays
    program = lowered(graph, share=True)
    assert_parsed(program)
    for found, expected in zip(
        interpret_program(program, given)[0], interpret(graph, given)[0], strict=True
    ):
        tolerance = 1e-12 if expected.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def assert_parsed(program: Program) -> None:
    for call in program.calls:
        parsed = parse_kernel(call.text)
        assert parsed == call.kernel and str(parsed) == call.text


def test_every_kind_of_kernel_has_a_text_that_is_parsed() -> None:
    text = step_of_all_kinds()
    kernels = parse_kernels(text)
    bases = Kernel, WholeKernel, BodyKernel
    kinds = {cls for base in bases for cls in base.__subclasses__()} - {*bases}
    assert {type(kernel) for kernel in kernels.values()} == kinds
    for name, kernel in kernels.items():
        assert f"kernel {name} = {kernel}\ncall " in text


def step_of_all_kinds() -> str:
    class Host(Function):
        @staticmethod
        def forward(ctx, x):
            return lucid.from_numpy(np.sort(x.numpy()))

        @staticmethod
        def backward(ctx, g):
            return g

    @lucid.compile
    def step(x, w, index, image, kernels):
        y = Host.apply((x @ w).cumsum(0))[index]
        total = lucid.scan(lambda total, row: (total + row, None), y[0], y)[0]
        total = lucid.cond(x.sum() > 0, lambda: total.exp(), lambda: total * 2)
        convolved = [lucid.nn.functional.conv2d(image, w).exp() for w in kernels]
        q = image.reshape(2, 600, 2).expand(2, 600, 2)
        attended = lucid.nn.functional.scaled_dot_product_attention(q, q, q)
        return y.sort(dim=0)[0], total, convolved, attended

    image, kernels = lucid.randn(2, 3, 20, 20), [lucid.randn(n, 3, 3, 3) for n in (4, 96)]
    step(lucid.randn(5, 6), lucid.randn(6, 7), lucid.tensor([1, 0, 1]), image, kernels)
    return step.stages["kernels"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lop() {", "no kernel begins with ['lop() {']"),
        ("loop(a0: f32*) {\n  %0 = load a0 : f32\n}",
         "kernel: no instruction load"),
        ("loop(a0: f32*) {\n  %0 is a0[0]\n}",
         "kernel: this line isn't understood: %0 is a0[0]"),
        ("loop(a0: f32*) {\n  %1 = load a0[0] : f32\n}",
         "kernel: %1 follows 0 others, and needs all its operands"),
        ("loop(a0: f32*) {\n  %0 = tanh %3 : f32\n}",
         "kernel: %0 follows 0 others, and needs all its operands"),
        ("check(i0 in 3) 0 <= a0[i0] : i64",
         "kernel: this line isn't understood: check(i0 in 3) 0 <= a0[i0] : i64"),
        ("loop(a0: f32*) {\n  %0 = load a0[0] : f32\n  %1: a1[0] <- %0\n}",
         "kernel: loop(a0: f32*) { isn't understood: list index out of range"),
        ("loop(a0: f32*) {\n  %0 = load a0[x] : f32\n}",
         "kernel: loop(a0: f32*) { isn't understood: invalid literal for int() with base 10: 'x'"),
    ],
)  # fmt: skip
def test_what_is_no_text_of_a_kernel_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as error:
        parse_kernel(text)
    assert str(error.value) == problem


# Random graphs --------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", range(SHARDS))
@hypothesis.settings(max_examples=FUZZED // SHARDS or 500, derandomize=not FUZZED, database=None)
@hypothesis.given(case=cases(), fuse=st.booleans(), share=st.booleans())
def test_graph_kernels_and_native_code_agree_on_random_graphs(
    case: Case, fuse: bool, share: bool, shard: int
) -> None:
    hypothesis.note(str(case.graph))
    agree(case.graph, case.inputs, fuse=fuse, share=share)


@hypothesis.settings(max_examples=40, derandomize=not FUZZED)
@hypothesis.given(programs(), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_graph_kernels_and_native_code_agree_on_random_steps(
    graph: Graph, seed: int, fuse: bool, share: bool
) -> None:
    hypothesis.note(str(graph))
    agree(graph, numbers(graph, seed), fuse=fuse, share=share)


def agree(graph: Graph, inputs: Results, *, fuse: bool, share: bool) -> None:
    expected = interpret(graph, inputs)
    program = lowered(graph, fuse=fuse, share=share)
    verify_program(program)
    assert_parsed(program)
    kernels = interpret_program(program, inputs)
    given = [np.array(array) for array in inputs]
    with pytest.MonkeyPatch.context() as patch:
        if share:
            patch.setattr(costs, "WORTH_SECONDS", 0.0)
        native = compile_graph(graph, fuse=fuse).call(given)
    written = [given[number] for number in program.written]
    for found in (kernels, (native, written)):
        with np.errstate(all="ignore"):
            assert_same([*found[0], *found[1]], [*expected[0], *expected[1]])
