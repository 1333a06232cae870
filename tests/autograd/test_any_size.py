"""Calls of the library's Functions with ever other sizes: after some a function serves any."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid.autograd import any_size, native
from lucid.compiler.dynamic import Dynamic
from lucid.compiler.repeated import Repeated
from tests.autograd.test_native_functions import CALLS, arrays_for, results, tensors_of
from tests.tensor.test_applied_ops import functions_called

f32, f64 = lucid.float32, lucid.float64


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The third size is served by the function, and nothing is left of other tests."""
    monkeypatch.setattr(any_size, "_MOST_SIZES", 2)
    monkeypatch.setattr(native, "_alike", {})
    before = {cls: dict(known) for cls, known in native._forwards.items()}
    native._forwards.clear()
    yield
    native._forwards.clear()
    native._forwards.update(before)


def functions() -> list[Repeated]:
    """Those that serve any sizes."""
    found = [alike.function for table in native._alike.values() for alike in table.values()]
    return [x for x in found if isinstance(x, Repeated)]


def traces() -> int:
    """Of all functions, each of which goes on serving."""
    steps = [function.compiled for function in functions()]
    assert steps and all(step is not None for step in steps)
    return sum(step.stats.traces for step in steps if step is not None)


SIZES = [3, 6, 11, 4, 19, 7]
# Those whose other sizes follow from the first one; a loop over an open axis is traced for each.
OTHERS = "linear of a vector", "embedding", "conv2d in groups", "ctc_loss"
# Each size has a program of its own, around the call of LAPACK.
LAPACK = (
    *("cholesky", "inv", "solve", "solve_triangular", "qr", "svdvals", "eigh", "pinv"),
    *("det", "slogdet"),
)
VARYING = [name for name in CALLS if name not in OTHERS]


def with_size(shapes: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """The shapes with another size in place of the first one, wherever it is."""
    first = shapes[0][0]
    return tuple(
        tuple(size if n == first else n for n in s) if isinstance(s, tuple) else s for s in shapes
    )


def softmax(size: int) -> lucid.Tensor:
    return F.softmax(lucid.arange(float(size)).reshape(size, 1).expand(size, 5) + 1, 0)


@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", VARYING)
def test_other_sizes_mean_what_the_ops_mean(name: str, dtype: Any) -> None:
    call, shapes = CALLS[name]
    batches = [arrays_for(with_size(shapes, size), dtype, size) for size in SIZES]
    found = [results(call, arrays) for arrays in batches]
    with native.op_by_op():
        expected = [results(call, arrays) for arrays in batches]
    tolerance = 2e-5 if dtype is f32 else 1e-12
    for ours, theirs in zip(found, expected, strict=True):
        for mine, right in zip(ours, theirs, strict=True):
            if right is None:
                assert mine is None
            else:
                assert mine is not None and mine.dtype == right.dtype
                np.testing.assert_allclose(mine, right, rtol=tolerance, atol=tolerance)
    if name not in LAPACK:
        assert name.startswith("layer of") or traces() <= 2 * len(functions())


def test_results_have_the_line_of_the_call_and_nodes_the_name_of_a_program() -> None:
    names, lines = set(), set()
    for size in SIZES:
        y = F.softmax(lucid.ones(size, 5, requires_grad=True), 0)
        names.add(y.grad_fn.name())
        lines.add((y.location.file, y.location.line))  # type: ignore[union-attr]
    assert names == {"SoftmaxBackward"} and traces() == 1
    assert len(lines) == 1 and lines.pop()[0] == __file__


def test_functions_of_python_that_a_call_with_another_size_takes() -> None:
    def given(size: int) -> tuple[lucid.Tensor, lucid.Tensor]:
        return lucid.ones(size, 5, requires_grad=True), lucid.zeros(size, dtype=lucid.int64)

    for size in range(40, 60):
        F.cross_entropy(*given(size)).backward()
    operands = iter([given(size) for size in range(60, 80)])
    assert functions_called(lambda: F.cross_entropy(*next(operands))) <= 180
    losses = iter([F.cross_entropy(*given(size)) for size in range(80, 100)])
    assert functions_called(lambda: next(losses).backward()) <= 160


def test_wrong_operands_are_refused_and_others_served() -> None:
    for size in SIZES:
        x = lucid.zeros(size, 5, requires_grad=True)
        right, wrong = lucid.full((size,), 4), lucid.full((size,), 5)
        for _ in range(2):
            with pytest.raises(lucid.IndexOutOfRangeError, match="cross_entropy: target 5 is out"):
                F.cross_entropy(x, wrong)
            with pytest.raises(lucid.ShapeError, match=r"cross_entropy"):
                F.cross_entropy(x, right[1:])
        np.testing.assert_allclose(F.cross_entropy(x, right).item(), np.log(5), rtol=1e-6)
    assert traces() <= 2


@pytest.mark.parametrize("name", [n for n in VARYING if not n.startswith(("step", "layer of"))])
def test_hooks_are_called_in_the_order_of_the_ops(name: str) -> None:
    call, shapes = CALLS[name]

    def order(size: int) -> list[int]:
        called: list[int] = []
        tensors = tensors_of(arrays_for(with_size(shapes, size), f32, size))
        for number, x in enumerate(tensors):
            if x.requires_grad:
                x.register_hook(lambda g, number=number: called.append(number))
        call(*tensors).sum().backward()
        return called

    for size in SIZES[:4]:
        call(*tensors_of(arrays_for(with_size(shapes, size), f32, size)))
    assert functions() or name in LAPACK
    for size in SIZES[4:]:
        found = order(size)
        with native.op_by_op():
            assert found == order(size)


def test_another_size_or_layout_of_what_was_always_the_same_is_seen() -> None:
    rng = np.random.default_rng(0)

    def check(n: int, width: int, *, transposed: bool = False) -> None:
        array, weights = rng.normal(size=(n, width)), rng.normal(size=(4, width))
        x = lucid.tensor(array).requires_grad_()
        w = lucid.tensor(weights.T.copy()).T if transposed else lucid.tensor(weights)
        y = F.linear(x, w)
        (y * y).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(y.detach(), array @ weights.T)
        np.testing.assert_allclose(x.grad, 2 * (array @ weights.T) @ weights)
        exps = np.exp(array)
        shares = F.softmax(lucid.tensor(array), 1)
        np.testing.assert_allclose(shares, exps / exps.sum(1, keepdims=True))

    for n in range(3, 9):
        check(n, 5)
    for n in range(10, 20):
        check(n, 5, transposed=True)
    check(20, 6)
    check(21, 5)
    assert traces()  # no function has been given up


def test_new_sizes_are_served_without_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code fills in what follows from them, of forward and backward, after a few sizes."""

    def loss(size: int) -> None:
        x = lucid.ones(size, 5, requires_grad=True)
        F.cross_entropy(x, lucid.zeros(size, dtype=lucid.int64)).backward()
        np.testing.assert_allclose(x.grad[:, 0], -0.8 / size, rtol=1e-5)  # type: ignore[index]

    for size in (*range(3, 9), *range(100, 110)):
        loss(size)
    made: list[Any] = []
    monkeypatch.setattr(Dynamic, "signature", lambda *args: made.append(args))
    for size in range(110, 120):
        loss(size)
    assert not made


def test_so_are_operands_of_any_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which nobody wants a gradient: heads of keys and values, say, that grow row by row."""
    rng = np.random.default_rng(4)
    query = lucid.tensor(rng.normal(size=(1, 2, 1, 8)).astype(np.float32))

    def attended(size: int) -> None:
        rows = rng.normal(size=(1, size, 2, 8)).astype(np.float32)
        heads = lucid.tensor(rows).transpose(1, 2)
        found = F.scaled_dot_product_attention(query, heads, heads)
        with native.op_by_op():
            expected = F.scaled_dot_product_attention(query, heads, heads)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
        y = F.softmax(heads, 2)
        np.testing.assert_allclose(y.sum(2), np.ones((1, 2, 8)), rtol=2e-5)

    for size in (*range(3, 9), *range(100, 110)):
        attended(size)
    made: list[Any] = []
    monkeypatch.setattr(Dynamic, "signature", lambda *args: made.append(args))
    for size in range(110, 120):
        attended(size)
    assert not made


def test_what_the_backward_reads_must_not_be_written_before_it() -> None:
    for size in SIZES:
        y = lucid.zeros(size, 5, requires_grad=True) + 0
        loss = F.softmax(y, 0).pow(2).sum()
        z = F.gelu(y).sum()
        y.add_(1)
        loss.backward()  # it reads its result
        with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
            z.backward()


def test_vmap_jvp_and_traces_see_the_ops() -> None:
    for size in SIZES:
        softmax(size)
    before = traces()
    for size in range(30, 40):
        x = lucid.linspace(0, 1, size * 5).reshape(size, 5)
        with native.op_by_op():
            expected = F.softmax(x, 0).numpy()
        mapped = lucid.vmap(lambda column: F.softmax(column, 0), in_dims=1, out_dims=1)(x)
        _, slope = lucid.func.jvp(lambda x: F.softmax(x, 0).sum(0), (x,), (lucid.ones(size, 5),))
        stepped = lucid.compile(lambda x: F.softmax(x, 0))(x)
        for found in (mapped, stepped):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(slope.numpy(), 0, atol=1e-6)
    assert traces() == before


def test_threads_share_a_function() -> None:
    wrong: list[Any] = []

    def run(first: int) -> None:
        for size in range(first, 60, 2):
            x = lucid.linspace(-1, 1, size).requires_grad_()
            F.softmax(x, 0)[0].backward()
            y = np.exp(x.detach().numpy())
            y /= y.sum()
            expected = y[0] * ((np.arange(size) == 0) - y)
            if not np.allclose(x.grad.numpy(), expected, atol=1e-6):
                wrong.append(size)

    threads = [threading.Thread(target=run, args=(first,)) for first in (2, 3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and traces() >= 1


def test_large_tensors_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_size, "_MOST_BYTES", 4 * 5 * 12)
    kept = []
    for size in (*SIZES, 30, 40):
        x = lucid.ones(size, 5)
        kept.append(weakref.ref(x._array))  # type: ignore[attr-defined]
        F.softmax(x, 0)
    del x
    gc.collect()
    assert [memory() is None for memory in kept[-2:]] == [True, True] and traces() == 1


def test_other_arguments_have_a_bounded_number_of_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(any_size, "_MOST_FORMS", 3)
    x = lucid.linspace(-1, 1, 4)
    for n in range(10):
        np.testing.assert_allclose(
            F.leaky_relu(x, n / 10).numpy(), [-n / 10, -n / 30, 1 / 3, 1], rtol=1e-5, atol=1e-7
        )
    assert {len(table) for table in native._alike.values()} == {3}


def test_a_function_may_return_more_than_tensors() -> None:
    @native.runs_natively
    class Halves(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> tuple[Any, int]:
            return x / 2, 7

        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            return g / 2

    for size in SIZES:
        half, number = Halves.apply(lucid.full((size, 5), 3.0))
        assert half.tolist() == [[1.5] * 5] * size and number == 7


def test_sizes_that_were_equal_before_may_differ() -> None:
    """A program that was made for squares has one size for both axes."""
    step = lucid.compile(lambda x: x.softmax(1) * 2)
    for size in (5, 6, 7, 8, 5, 7):
        step(lucid.randn(size, size))
    for shape in ((4, 10), (10, 4), (8, 8)):
        x = lucid.randn(*shape)
        found = step(x).numpy()
        np.testing.assert_allclose(found, 2 * _softmax(x.numpy()), 1e-5)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_of_other_lengths_share_a_program(stride: int) -> None:
    rng = np.random.default_rng(0)
    weight = lucid.tensor(rng.normal(size=(4, 3, 3))).requires_grad_()
    layers = [
        lambda x: F.conv1d(x, weight, stride=stride, padding=1),
        lambda x: F.conv_transpose1d(x, weight.detach().transpose(0, 1), stride=stride),
    ]
    for layer in layers:
        for length in (20, 24, 31, 37, 44, 21, 52):
            x = lucid.tensor(rng.normal(size=(2, 3, length))).requires_grad_()
            y = layer(x)
            (found,) = lucid.autograd.grad((y * y).sum(), x)
            with native.op_by_op():
                expected = layer(x)
                (right,) = lucid.autograd.grad((expected * expected).sum(), x)
            np.testing.assert_allclose(y.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    if stride == 1:  # else a backward needs the length
        assert traces() == len(functions()) == len(layers)


def test_layers_of_other_widths_have_programs_of_their_own() -> None:
    """What all calls of a layer have in common is known there, so new sizes are native code's."""
    rng = np.random.default_rng(0)
    weights = [lucid.nn.Parameter(lucid.tensor(rng.normal(size=(n, 5)))) for n in (4, 7)]
    for size in range(10, 20):
        for weight in weights:
            x = lucid.tensor(rng.normal(size=(size, 5)))
            np.testing.assert_allclose(
                F.linear(x, weight).detach(), x.numpy() @ weight.detach().numpy().T
            )
    assert traces() == len(functions()) == len(weights)


def test_a_count_of_blocks_that_is_a_size_by_chance_is_no_relation() -> None:
    """The sum of 8 * 119 rows is cut into 8 blocks, and its backward serves other rows as well."""
    layer = lucid.nn.Linear(64, 200)
    for size in (100, 110, 119, 51, 70, 140):
        x = lucid.ones(8, size, 64).requires_grad_() * 1
        layer(x).sum().backward()
    (function,) = functions()
    assert function.compiled is not None and function.compiled._programs.latest is not None
    rule = function.compiled._programs.latest.differentiable
    assert rule is not None and len(rule.programs) == 1 and not rule.needs_sizes


def test_a_recurrent_layer_is_traced_once_for_all_lengths_batches_first_as_well() -> None:
    rng = np.random.default_rng(0)
    layer = lucid.nn.LSTM(4, 5, batch_first=True)
    for size in (8, 11, 9, 14, 20, 7):
        array = rng.normal(size=(3, size, 4)).astype(np.float32)
        x = lucid.tensor(array).requires_grad_()
        found = lucid.autograd.grad(layer(x * 1)[0].pow(2).sum(), x)[0]
        with native.op_by_op():
            expected = lucid.autograd.grad(layer(x * 1)[0].pow(2).sum(), x)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert traces() == len(functions()) == 2


def test_writes_to_what_was_copied_for_any_size_are_told() -> None:
    layer = lucid.nn.Linear(4, 5)
    for size in (8, 11, 9, 14, 20, 7):
        x = lucid.ones(4, size).requires_grad_() * 1
        y = layer(x.T)
        x.mul_(2)
        with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
            y.sum().backward()
    assert traces() == 1
