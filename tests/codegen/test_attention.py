"""The kernel of attention: against the plain ops, in blocks, by threads; and what is recognized."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.codegen import costs
from lucid.codegen.kernels.attention import AttentionKernel
from lucid.codegen.llvm.target import host_target
from lucid.codegen.lower.schedule import make_program
from lucid.codegen.program.interpret import interpret_program
from lucid.codegen.program.parse import parse_kernel
from lucid.codegen.program.verify import verify_program
from lucid.ir import ops
from lucid.ir.graph import Graph
from lucid.ir.interpret import interpret
from lucid.ir.strides import contiguous_strides
from lucid.ir.types import type_of_array
from lucid.nn import functional

Spelling = Callable[[Any, Any, Any], Any]
attend = functional.scaled_dot_product_attention


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every attention have a kernel."""
    monkeypatch.setattr(costs, "ATTENTION_BYTES", 0)
    monkeypatch.setattr(costs, "ATTENTION_ROWS", 1)


def tensors(
    rng: np.random.Generator, *shapes: tuple[int, ...], dtype: Any = np.float32
) -> list[Any]:
    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    return [lucid.tensor(array, requires_grad=True) for array in arrays]


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """A step that returns the function's result and the gradients of its tensors."""

    def step(w: Any, *given: Any) -> Any:
        y = function(*given)
        return (y, *lucid.autograd.grad((y * w).sum(), given))

    return step


def assert_close(found: Any, expected: Any, tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        a, b = a.detach().numpy(), b.detach().numpy()
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def kernels_of(step: Any) -> str:
    text: str = step.stages["kernels"]
    return text


# Numbers --------------------------------------------------------------------------------------

_SIZES = ((16, 16, 16, 16), (40, 70, 20, 24), (130, 65, 8, 5), (70, 100, 33, 1), (3, 200, 1, 3))


def spelled(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    """Attention by other functions, which is eager mode's meaning."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        seen = lucid.arange(k.shape[-2]) <= lucid.arange(q.shape[-2]).unsqueeze(-1)
        scores = lucid.where(seen, scores, -math.inf)
    if mask is None:
        return lucid.softmax(scores, -1) @ v
    scores = scores + mask if mask.is_floating_point() else lucid.where(mask, scores, -math.inf)
    weights = lucid.softmax(scores, -1)
    empty = scores.amax(-1, keepdim=True) == -math.inf
    return lucid.where(empty, 0.0, weights) @ v


@pytest.mark.parametrize(
    ("sizes", "causal", "dtype"),
    [  # each of the sizes with both dtypes and both kinds, and these with each other
        (sizes, causal, (np.float32, np.float64)[(i + causal) % 2])
        for i, sizes in enumerate(_SIZES)
        for causal in (False, True)
    ],
)
def test_results_and_gradients_are_those_of_the_plain_ops(
    always: None, rng: np.random.Generator, sizes: Any, causal: bool, dtype: Any
) -> None:
    rows, keys, inner, columns = sizes
    shapes = (2, 3, rows, inner), (2, 3, keys, inner), (2, 3, keys, columns)
    w, *given = tensors(rng, (2, 3, rows, columns), *shapes, dtype=dtype)
    step = lucid.compile(with_gradients(lambda q, k, v: attend(q, k, v, is_causal=causal)))
    found = step(w.detach(), *given)
    expected = with_gradients(lambda q, k, v: spelled(q, k, v, causal=causal))(w.detach(), *given)
    assert "attention gradient" in kernels_of(step)
    assert_close(found, expected, 2e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize(
    "shape", [(70, 90), (2, 1, 70, 90), (2, 1, 1, 90), (70, 1), (2, 3, 70, 90)]
)
def test_masks_broadcast(always: None, rng: np.random.Generator, shape: Any, kind: str) -> None:
    array = rng.random(shape) < 0.6
    array[..., 0, :] = False  # a row of nothing
    mask = lucid.tensor(array if kind == "bool" else np.where(array, 0.5, -np.inf).astype("f4"))
    w, *given = tensors(rng, (2, 3, 70, 17), (2, 3, 70, 8), (2, 3, 90, 8), (2, 3, 90, 17))
    step = lucid.compile(with_gradients(lambda q, k, v: attend(q, k, v, mask)))
    found = step(w.detach(), *given)
    assert "attention gradient" in kernels_of(step)
    for a, b in zip(found, with_gradients(lambda *x: attend(*x, mask))(w, *given), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        found[0].detach().numpy(), spelled(*given, mask).detach().numpy(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_dropout_draws_what_random_uniform_draws_and_moves_on(
    always: None, rng: np.random.Generator, dtype: Any
) -> None:
    w, *given = tensors(rng, (2, 70, 9), (2, 70, 8), (2, 90, 8), (2, 90, 9), dtype=dtype)

    def by_hand(q: Any, k: Any, v: Any) -> Any:
        weights = lucid.softmax(q @ k.mT / math.sqrt(8), -1)
        return functional.dropout(weights, 0.3) @ v

    step = lucid.compile(with_gradients(lambda q, k, v: attend(q, k, v, dropout_p=0.3)))
    results, after = [], []
    for run in (step, with_gradients(by_hand), with_gradients(lambda *x: attend(*x, None, 0.3))):
        lucid.manual_seed(5)
        results.append(run(w.detach(), *given))
        after.append(lucid.rand(3).numpy())
    assert "dropout" in kernels_of(step)
    for other in (1, 2):
        assert_close(results[0], results[other], 2e-5 if dtype is np.float32 else 1e-12)
        assert np.array_equal(after[0], after[other])


def test_heads_of_a_group_share_keys_and_values(always: None, rng: np.random.Generator) -> None:
    w, *given = tensors(rng, (2, 6, 40, 5), (2, 6, 40, 8), (2, 2, 50, 8), (2, 2, 50, 5))
    mask = lucid.tensor(rng.random((2, 6, 40, 50)) < 0.7)

    def repeated(q: Any, k: Any, v: Any) -> Any:
        k, v = (x.repeat_interleave(3, 1) for x in (k, v))
        return attend(q, k, v, mask)

    step = lucid.compile(with_gradients(lambda *x: attend(*x, mask, enable_gqa=True)))
    found = step(w.detach(), *given)
    assert "attention gradient" in kernels_of(step)
    assert_close(found, with_gradients(repeated)(w.detach(), *given), 2e-5)


def test_heads_are_read_and_written_where_projections_lie(
    always: None, rng: np.random.Generator
) -> None:
    def step(q: Any, k: Any, v: Any) -> Any:
        heads = [x.reshape(2, 40, 3, 8).transpose(1, 2) for x in (q, k, v)]
        return attend(*heads).transpose(1, 2).reshape(2, 40, 24)

    w, *given = tensors(rng, *[(2, 40, 24)] * 4)
    compiled = lucid.compile(with_gradients(step))
    found = compiled(w.detach(), *given)
    assert_close(found, with_gradients(step)(w.detach(), *given), 2e-5)
    temps = re.findall(r"(\w+): f32\[1920\]", compiled.stages["legalize"])
    assert len(temps) <= 3  # no copies of heads


@pytest.mark.parametrize(
    ("which", "place", "value"),
    [
        (which, place, (math.inf, math.nan)[(which + i) % 2])
        for which in range(4)
        for i, place in enumerate((3, 70, 149))
    ],
)
def test_infinities_and_nan_spread_as_in_eager_mode(
    always: None, rng: np.random.Generator, which: int, place: int, value: float
) -> None:
    arrays = [rng.normal(size=(1, 150, 20)).astype(np.float32) for _ in range(4)]
    arrays[which][0, place, 2] = value
    q, k, v, g = (lucid.tensor(array, requires_grad=n < 3) for n, array in enumerate(arrays))

    def step(q: Any, k: Any, v: Any, g: Any) -> Any:
        y = attend(q, k, v, is_causal=True)
        return (y, *lucid.autograd.grad(y, (q, k, v), g))

    with np.errstate(all="ignore"):
        found, expected = lucid.compile(step)(q, k, v, g), step(q, k, v, g)
        plain = spelled(q, k, v, causal=True)
    # Of an infinite cotangent eager mode adds up other products, whose infinities may cancel out.
    kind = np.isfinite if which == 3 else np.isnan
    for a, b in zip((*found, found[0]), (*expected, plain), strict=True):
        assert np.array_equal(kind(a.detach().numpy()), kind(b.detach().numpy()))


@pytest.mark.parametrize("shape", [(2, 0, 4), (0, 3, 4)])
def test_nothing_is_nothing(always: None, rng: np.random.Generator, shape: Any) -> None:
    w, *given = tensors(rng, *[shape] * 4)
    found = lucid.compile(with_gradients(attend))(w.detach(), *given)
    assert [x.shape for x in found] == [shape] * 4
    none = attend(lucid.ones(3, 4), lucid.ones(0, 4), lucid.ones(0, 2))
    assert np.array_equal(none.numpy(), np.zeros((3, 2)))


def test_derivatives_of_second_order(rng: np.random.Generator) -> None:
    given = tensors(rng, (2, 4, 3), (2, 5, 3), (2, 5, 2), dtype=np.float64)
    mask = tensors(rng, (4, 5), dtype=np.float64)[0]
    assert lucid.autograd.gradcheck(lambda *x: attend(*x), (*given, mask))
    assert lucid.autograd.gradgradcheck(lambda *x: attend(*x), (*given, mask))
    tangents = tuple(x.detach() * 0.5 for x in given)
    primals = tuple(x.detach() for x in given)
    found = lucid.func.jvp(attend, primals, tangents)[1]
    expected = lucid.func.jvp(spelled, primals, tangents)[1]
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)


# Kernels --------------------------------------------------------------------------------------


def graph_of(op: Any, arrays: list[np.ndarray], **attributes: Any) -> Graph:
    graph = Graph("attention")
    values = [graph.add_input(type_of_array(array)) for array in arrays]
    graph.outputs = [graph.append(op, values, attributes).result]
    return graph


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("fill", [-math.inf, -2.5])
@pytest.mark.parametrize("op", [ops.attention, ops.attention_grad], ids=lambda op: op.name)
def test_kernels_mean_what_the_op_does_and_are_what_their_texts_say(
    always: None, rng: np.random.Generator, op: Any, causal: bool, vector_bytes: int, fill: float
) -> None:
    shapes = [(3, 4, 200, 20), (3, 1, 300, 20), (3, 1, 300, 9)]
    if op is ops.attention_grad:
        shapes += [(3, 4, 200), (3, 4, 200), (3, 4, 200), (3, 4, 200, 9)]
    arrays = [rng.normal(size=shape) for shape in shapes]
    arrays[3:3] = [rng.random((200, 300)) < 0.7, np.array([3, 4]), np.array(0.75)]
    flags: dict[str, Any] = {"causal": causal, "has_mask": True, "has_dropout": True}
    graph = graph_of(op, arrays, **flags, nan_rows=False, fill=np.float64(fill))
    strides = [contiguous_strides(array.shape) for array in arrays]
    program = make_program(graph, strides, host_target().with_vector_bytes(vector_bytes))
    verify_program(program)
    (call,) = [call for call in program.calls if isinstance(call.kernel, AttentionKernel)]
    assert call.kernel.parts is not None
    parsed = parse_kernel(call.text)
    assert parsed == call.kernel and str(parsed) == call.text
    found, expected = interpret_program(program, arrays)[0], interpret(graph, arrays)[0]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12, atol=1e-12)


def test_threads_leave_the_same_bits(rng: np.random.Generator) -> None:
    w, *given = tensors(rng, *[(2, 4, 300, 32)] * 4)

    def run(count: int) -> Any:
        before = lucid.get_num_threads()
        lucid.set_num_threads(count)
        try:
            step = lucid.compile(with_gradients(lambda *x: attend(*x, is_causal=True)))
            return [x.detach().numpy().copy() for x in step(w.detach(), *given)]
        finally:
            lucid.set_num_threads(before)

    for a, b in zip(run(1), run(2), strict=True):
        assert np.array_equal(a, b)


def test_no_array_of_all_weights_is_in_memory(rng: np.random.Generator) -> None:
    size = 1024
    w, *given = tensors(rng, *[(1, 2, size, 16)] * 4)
    step = lucid.compile(with_gradients(attend))
    step(w.detach(), *given)
    sizes = [int(n) for n in re.findall(r"\w+\d+: \w+\[(\d+)\]", kernels_of(step))]
    assert "attention gradient" in kernels_of(step)
    assert all(n < size * size for n in sizes)
    assert f"{size},{size}]" not in step.stages["legalize"]


# Recognition ----------------------------------------------------------------------------------

_LENGTH = 37
_CAUSAL = lucid.tensor(np.tril(np.ones((_LENGTH, _LENGTH), bool)))
_BIAS = lucid.tensor(np.where(_CAUSAL.numpy(), 0, -np.inf).astype(np.float32))
_PADDING = lucid.tensor(np.arange(2 * _LENGTH).reshape(2, 1, 1, _LENGTH) % 3 == 1)
_ROWS = lucid.tensor((np.arange(_LENGTH)[:, None] % 4 == 1) | ~np.tri(_LENGTH, dtype=bool))


def _by_einsum(q: Any, k: Any, v: Any) -> Any:
    scores = lucid.einsum("bhqd,bhkd->bhqk", q, k) * 0.5 + lucid.where(_CAUSAL, 0.0, -math.inf)
    return lucid.einsum("bhqk,bhkd->bhqd", lucid.softmax(scores, -1), v)


def _by_bmm(q: Any, k: Any, v: Any) -> Any:
    a, b, c = (x.reshape(6, _LENGTH, 8) for x in (q, k, v))
    weights = functional.softmax(lucid.bmm(a, b.transpose(1, 2)) * 0.4, -1)
    return lucid.bmm(weights, c).reshape(q.shape)


def _in_heads(q: Any, k: Any, v: Any) -> Any:
    """As nets do it that project all heads at once, whose transposes of keys are one of two."""
    a, b, c = (x.reshape(2, _LENGTH, 3, 8).transpose(1, 2) for x in (q, k, v))
    scores = (a @ b.transpose(-2, -1) / 3).masked_fill(_CAUSAL == 0, -1e9)
    weights = functional.dropout(scores.softmax(-1), 0.1)
    return (weights @ c).transpose(1, 2).reshape(q.shape)


def _masked_by_ones(q: Any, k: Any, v: Any) -> Any:
    ones = lucid.tril(lucid.ones(_LENGTH, _LENGTH))
    return (q @ k.mT * 0.3).masked_fill(ones == 0, -math.inf).softmax(-1) @ v


def _masked_by_triu(q: Any, k: Any, v: Any) -> Any:
    bias = lucid.triu(lucid.full((_LENGTH, _LENGTH), -math.inf), 1)
    return ((q @ k.mT) * 0.3 + bias).softmax(-1) @ v


SPELLINGS: dict[str, Spelling] = {
    "scaled": lambda q, k, v: lucid.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), -1) @ v,
    "scaled before": lambda q, k, v: lucid.softmax((q * 0.3) @ k.mT, -1) @ v,
    "dropout": lambda q, k, v: functional.dropout(
        (q @ k.mT * 0.5).masked_fill(~_CAUSAL, -math.inf).softmax(-1), 0.1
    ) @ v,
    "masked_fill": lambda q, k, v: (
        (q @ k.mT * 0.5).masked_fill(_CAUSAL == 0, -math.inf).softmax(-1) @ v
    ),
    "padding": lambda q, k, v: (q @ k.mT).masked_fill(_PADDING, -math.inf).softmax(-1) @ v,
    "where": lambda q, k, v: lucid.where(_CAUSAL, q @ k.mT / 3, -math.inf).softmax(-1).matmul(v),
    "bias": lambda q, k, v: functional.softmax(lucid.matmul(q, k.mT) * 0.2 + _BIAS, -1) @ v,
    "einsum": _by_einsum,
    "bmm": _by_bmm,
    "finite mask": lambda q, k, v: (q @ k.mT).masked_fill(~_CAUSAL, -5.0).softmax(-1) @ v,
    "low mask": lambda q, k, v: functional.dropout(
        lucid.where(_PADDING, -1e9, q @ k.mT * 0.4).softmax(-1), 0.2
    ) @ v,
    "rows without scores": lambda q, k, v: (
        (q @ k.mT).masked_fill(_ROWS, lucid.finfo(q.dtype).min).softmax(-1) @ v
    ),
    "scaled behind a low mask": lambda q, k, v: (
        (lucid.einsum("bhqd,bhkd->bhqk", q, k).masked_fill(_PADDING == 1, -1e20) / 3).softmax(-1)
        @ v
    ),
    "in heads": _in_heads,
    "tril": _masked_by_ones,
    "triu": _masked_by_triu,
}  # fmt: skip


def _weights_used(q: Any, k: Any, v: Any) -> Any:
    weights = lucid.softmax(q @ k.mT, -1)
    return weights @ v + (weights * weights).sum()


def _scores_used(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT
    return lucid.softmax(scores, -1) @ v + scores.mean()


def _weights_used_twice(q: Any, k: Any, v: Any) -> Any:
    weights = lucid.softmax(q @ k.mT, -1)
    return weights @ (weights @ v)


OTHERS: dict[str, Spelling] = {
    "weights used": _weights_used,
    "scores used": _scores_used,
    "weights used twice": _weights_used_twice,
    "other axis": lambda q, k, v: lucid.softmax(q @ k.mT, -2) @ v,
    "sigmoid": lambda q, k, v: lucid.sigmoid(q @ k.mT) @ v,
    "scaled behind the mask": lambda q, k, v: lucid.softmax((q @ k.mT + _BIAS) * 2, -1) @ v,
    "scaled by rows": lambda q, k, v: (q @ k.mT * v[..., :1]).softmax(-1) @ v,
}


@pytest.mark.parametrize("name", [*SPELLINGS, *OTHERS])
def test_what_is_attention_is_recognized_with_its_gradient_and_nothing_else(
    always: None, rng: np.random.Generator, name: str
) -> None:
    function = {**SPELLINGS, **OTHERS}[name]
    w, *given = tensors(rng, *[(2, 3, _LENGTH, 8)] * 4)
    step = lucid.compile(with_gradients(function))
    lucid.manual_seed(1)
    found = step(w.detach(), *given)
    lucid.manual_seed(1)
    assert_close(found, with_gradients(function)(w.detach(), *given), 3e-4)
    kinds = set(re.findall(r"= (attention gradient|attention) ", kernels_of(step)))
    assert kinds == ({"attention gradient", "attention"} if name in SPELLINGS else set())


@pytest.mark.parametrize("fill", [-1e9, -1e30, 1e9])
@pytest.mark.parametrize("spelling", ["where", "add"])
def test_rows_whose_scores_are_all_large_have_the_gradient_of_equal_weights(
    always: None, rng: np.random.Generator, spelling: str, fill: float
) -> None:
    """The logarithm of a sum of exponentials near 1e9 says nothing of how many they are."""

    def masked(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.mT
        is_hidden = lucid.where(_ROWS, fill, 0.0)
        scores = scores + is_hidden if spelling == "add" else scores.masked_fill(_ROWS, fill)
        return scores.softmax(-1) @ v

    w, *given = tensors(rng, *[(2, 3, _LENGTH, 8)] * 4)
    step = lucid.compile(with_gradients(masked))
    assert_close(step(w.detach(), *given), with_gradients(masked)(w.detach(), *given), 2e-5)
    assert "attention gradient" in kernels_of(step)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("which", range(3))
def test_rows_without_scores_see_no_more_of_what_is_not_finite_than_in_eager_mode(
    always: None, rng: np.random.Generator, which: int, bad: float
) -> None:
    w, *given = tensors(rng, *[(2, 3, _LENGTH, 8)] * 4)
    with lucid.no_grad():
        given[which][0, 0, 5, 3] = bad
    function = with_gradients(SPELLINGS["rows without scores"])
    step = lucid.compile(function)
    assert_close(step(w.detach(), *given), function(w.detach(), *given), 2e-5)


def test_a_mask_with_a_gradient_needs_all_scores(always: None, rng: np.random.Generator) -> None:
    w, bias, *given = tensors(rng, (2, 37, 8), (37, 37), *[(2, 37, 8)] * 3)

    def biased(bias: Any, q: Any, k: Any, v: Any) -> Any:
        return lucid.softmax(q @ k.mT + bias, -1) @ v

    step = lucid.compile(with_gradients(biased))
    expected = with_gradients(biased)(w.detach(), bias, *given)
    assert_close(step(w.detach(), bias, *given), expected, 2e-5)
    assert "attention" not in kernels_of(step)
