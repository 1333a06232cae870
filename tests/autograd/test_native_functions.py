"""Calls of the library's Functions outside of traces: native programs with NumPy's meaning."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import native
from lucid.autograd.function import BackwardCFunction
from lucid.autograd.rounds import Recurrence
from lucid.ir.ops.attention import _Arrays
from lucid.ir.types import shared_type
from lucid.nn.modules.recurrent import gru_step, lstm_step, rounds_of
from lucid.runtime import open_programs
from lucid.runtime.executable import Executable

f32, f64 = lucid.float32, lucid.float64


def layer(step: Any, rows: Any, state: Any, weight: Any, reverse: bool = False) -> lucid.Tensor:
    rounds = Recurrence(rounds_of(step), None, weight, None)
    end, (outputs,) = lucid.scan(rounds, state, rows, reverse=reverse)
    return lucid.cat([outputs.flatten(), *(x.flatten() for x in end)])


def regular(x: lucid.Tensor) -> lucid.Tensor:
    """Symmetric positive definite matrices."""
    return x @ x.mT + 3 * lucid.eye(x.shape[-1], dtype=x.dtype)


# Each with a call of tensors, and their shapes; None, or a number: of classes from 0 to 4.
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (lambda x: F.softmax(x, -1), ((3, 5),)),
    "softmax of axis 0": (lambda x: F.softmax(x, 0), ((3, 5, 2),)),
    "log_softmax": (lambda x: F.log_softmax(x, 1), ((3, 5),)),
    "relu": (F.relu, ((3, 5),)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), ((3, 5),)),
    "elu": (F.elu, ((3, 5),)),
    "gelu": (F.gelu, ((3, 5),)),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), ((3, 5),)),
    "silu": (F.silu, ((7,),)),
    "softplus": (F.softplus, ((3, 5),)),
    "logsigmoid": (F.logsigmoid, ((3, 5),)),
    "linear": (F.linear, ((3, 5), (4, 5), (4,))),
    "linear without bias": (F.linear, ((2, 3, 5), (4, 5))),
    "linear of a vector": (F.linear, ((5,), (4, 5), (4,))),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), ((3, 5), (5,), (5,))),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        ((6, 4), (4,), (4,)),
    ),
    "batch_norm of images": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        ((2, 4, 3, 3), (4,), (4,)),
    ),
    "batch_norm outside of training": (
        lambda x, m, w: F.batch_norm(x, m, lucid.full((4,), 1.5, dtype=x.dtype), w),
        ((6, 4), (4,), (4,)),
    ),
    "var of an axis": (lambda x: lucid.var(x, 1, keepdim=True), ((3, 5),)),
    "std": (lucid.std, ((3, 5),)),
    "std and mean": (lambda x: lucid.std_mean(x, 0)[0], ((3, 5),)),
    "norm": (lucid.norm, ((3, 5),)),
    "norm of another order": (lambda x: lucid.norm(x, 3.0, 1), ((3, 5),)),
    "logsumexp": (lambda x: lucid.logsumexp(x, 1), ((3, 5),)),
    "topk": (lambda x: lucid.topk(x, 3, 1)[0], ((3, 5),)),
    "normalize": (F.normalize, ((3, 5),)),
    "cosine_similarity": (F.cosine_similarity, ((3, 5), (3, 5))),
    "pairwise_distance": (F.pairwise_distance, ((3, 5), (3, 5))),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), ((2, 3, 9), (4, 3, 3))),
    "conv2d": (F.conv2d, ((2, 3, 8, 7), (4, 3, 3, 3), (4,))),
    "conv2d in steps": (
        lambda x, w: F.conv2d(x, w, stride=2, padding=1),
        ((2, 3, 8, 7), (4, 3, 3, 3)),
    ),
    "conv2d in groups": (lambda x, w: F.conv2d(x, w, groups=2), ((2, 4, 8, 7), (6, 2, 3, 3))),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        ((2, 3, 4, 5), (3, 4, 3, 3)),
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), ((2, 3, 8, 6),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), ((2, 3, 8, 6),)),
    "step of an LSTM": (
        lambda x, h, c, b, w: lucid.cat(lstm_step(x, (h, c), b, w)),
        ((3, 20), (3, 5), (3, 5), (20,), (20, 5)),
    ),
    "step of a GRU": (gru_step, ((3, 15), (3, 5), (15,), (15, 5))),
    "step of an RNN": (nn.RNNCell(2, 5)._step(), ((3, 5), (3, 5), (5,), (5, 5))),
    "layer of an LSTM": (
        lambda x, h, c, w: layer(lstm_step, (x,), (h, c), w),
        ((6, 3, 20), (3, 5), (3, 5), (20, 5)),
    ),
    "layer of a GRU from the end": (
        lambda x, h, w: layer(gru_step, (x,), (h,), w, reverse=True),
        ((6, 3, 15), (3, 5), (15, 5)),
    ),
    "layer of an RNN whose sequences end": (
        lambda x, h, w: layer(nn.RNNCell(2, 5)._step(), (x, x.detach()[..., :1] > 0), (h,), w),
        ((6, 3, 5), (3, 5), (5, 5)),
    ),
    "ctc_loss": (
        lambda x, t: F.ctc_loss(
            x.log_softmax(2), t.reshape(2, 3) % 3 + 1, (7, 4), (3, 1), reduction="sum"
        ),
        ((7, 2, 4), 6),
    ),
    "cholesky": (lambda x: lucid.linalg.cholesky(regular(x)), ((2, 5, 5),)),
    "inv": (lambda x: lucid.linalg.inv(regular(x)), ((5, 5),)),
    "solve": (lambda x, y: lucid.linalg.solve(regular(x), y), ((2, 5, 5), (2, 5, 3))),
    "solve_triangular": (
        lambda x, y: lucid.linalg.solve_triangular(regular(x), y, upper=True),
        ((5, 5), (2, 5, 3)),
    ),
    "qr": (lambda x: lucid.cat(lucid.linalg.qr(regular(x))), ((5, 5),)),
    "svdvals": (lambda x: lucid.linalg.svdvals(x), ((4, 5),)),
    "eigh": (lambda x: lucid.linalg.eigh(regular(x))[0], ((5, 5),)),
    "pinv": (lambda x: lucid.linalg.pinv(x), ((4, 5),)),
    "det": (lambda x: lucid.linalg.det(regular(x) / 4), ((5, 5),)),
    "slogdet": (lambda x: lucid.linalg.slogdet(regular(x))[1], ((5, 5),)),
    "embedding": (lambda i, w: F.embedding(i, w), (None, (5, 4))),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), ((7, 5), None)),
    "cross_entropy with weights": (
        lambda x, t, w: F.cross_entropy(x, t, w.detach().abs(), reduction="sum"),
        ((7, 5), None, (5,)),
    ),
    "cross_entropy smoothed": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=2),
        ((7, 5), None),
    ),
    "nll_loss": (lambda x, t: F.nll_loss(x, t, reduction="none"), ((7, 5), None)),
    "mse_loss": (F.mse_loss, ((3, 5), (3, 5))),
    "l1_loss": (F.l1_loss, ((3, 5), (3, 5))),
    "smooth_l1_loss": (F.smooth_l1_loss, ((3, 5), (3, 5))),
    "huber_loss": (F.huber_loss, ((3, 5), (3, 5))),
    "binary_cross_entropy": (
        lambda x, t: F.binary_cross_entropy(x.sigmoid(), t.detach().sigmoid()),
        ((3, 5), (3, 5)),
    ),
    "binary_cross_entropy_with_logits": (
        lambda x, t: F.binary_cross_entropy_with_logits(x, t.detach().sigmoid()),
        ((3, 5), (3, 5)),
    ),
}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No program from another test serves this one."""
    monkeypatch.setattr(native, "_alike", {})
    before = {cls: dict(known) for cls, known in native._forwards.items()}
    native._forwards.clear()
    yield
    native._forwards.clear()
    native._forwards.update(before)


def arrays_for(shapes: tuple[Any, ...], dtype: Any, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    classes = next((s[0] for s in shapes if isinstance(s, tuple) and len(s) == 2), 3)
    return [
        rng.normal(size=s).astype(dtype.numpy)
        if isinstance(s, tuple)
        else rng.integers(0, 5, s or classes)
        for s in shapes
    ]


def tensors_of(arrays: list[np.ndarray]) -> list[lucid.Tensor]:
    found = [lucid.tensor(array) for array in arrays]
    return [x.requires_grad_() if x.is_floating_point() else x for x in found]


def results(call: Callable[..., Any], arrays: list[np.ndarray]) -> list[np.ndarray | None]:
    """The value and the gradients."""
    tensors = tensors_of(arrays)
    y = call(*tensors)
    weights = np.random.default_rng(9).normal(size=tuple(y.shape)).astype(y.dtype.numpy)
    (y * lucid.tensor(weights)).sum().backward()
    return [y.numpy(force=True), *(x.grad if x.grad is None else x.grad.numpy() for x in tensors)]


def programs() -> list[Any]:
    return [forward for known in native._forwards.values() for forward in known.values()]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [f32, f64], ids=["f32", "f64"])
def test_a_program_means_what_the_ops_mean(name: str, dtype: Any) -> None:
    """It serves other values than those that it was noted on, in other sizes too."""
    call, shapes = CALLS[name]
    batches = [arrays_for(shapes, dtype, seed) for seed in range(3)]
    found = [results(call, arrays) for arrays in batches]
    assert any(forward is not None for forward in programs()), "nothing has run natively"
    with native.op_by_op():
        for arrays, ours in zip(batches, found, strict=True):
            for mine, right in zip(ours, results(call, arrays), strict=True):
                if right is None:
                    assert mine is None
                else:
                    assert mine is not None and mine.dtype == right.dtype
                    tolerance = 2e-5 if dtype is f32 else 1e-12
                    np.testing.assert_allclose(mine, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [n for n in CALLS if not n.startswith(("step", "layer of"))])
def test_hooks_of_arguments_are_called_in_the_order_of_the_ops(name: str) -> None:
    call, shapes = CALLS[name]

    def order() -> list[int]:
        tensors, called = tensors_of(arrays_for(shapes, f32, 0)), list[int]()
        for number, x in enumerate(tensors):
            if x.requires_grad:
                x.register_hook(lambda g, number=number: called.append(number))
        call(*tensors).sum().backward()
        return called

    found = order()
    with native.op_by_op():
        assert found == order()


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_is_a_program_where_all_scores_are_many(is_causal: bool) -> None:
    def call(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    few, many = (arrays_for(((n, 3), (n, 3), (n, 5)), f32, n) for n in (7, 523))

    def names() -> list[str]:
        return [cls.__name__ for cls in native._forwards]

    results(call, few)
    assert names() == ["Softmax"]
    found = results(call, many)
    assert names() == ["Softmax", "Weighted"]
    *_, forward = programs()
    assert all(code is not None for code in forward.backwards.values())
    with native.op_by_op():
        expected = results(call, many)
    for mine, right in zip(found, expected, strict=True):
        assert mine is not None and right is not None
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5)


def test_numpy_computes_no_attention_of_a_call_that_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(_Arrays, "scores", refuse)
    q, k, v = tensors_of(arrays_for(((541, 3), (541, 3), (541, 5)), f32, 0))
    F.scaled_dot_product_attention(q, k, v).sum().backward()
    assert all(code is not None for code in programs()[-1].backwards.values())


@pytest.mark.parametrize("name", [n for n in CALLS if n.startswith(("step", "layer"))])
def test_a_backward_that_looks_at_results_is_a_program(name: str) -> None:
    """A node keeps an alias of a result, which is no other value of the program."""
    call, shapes = CALLS[name]
    results(call, arrays_for(shapes, f32, 0))
    backwards = [code for forward in programs() for code in forward.backwards.values()]
    assert len(backwards) == 1 and backwards[0] is not None


def test_a_gradient_that_is_the_cotangent_is_a_copy_that_a_program_makes() -> None:
    x, w, b = tensors_of(arrays_for(((5,), (4, 5), (4,)), f32, 0))
    weights = lucid.randn(4)
    F.linear(x, w, b).backward(weights)
    assert all(code is not None for code in programs()[0].backwards.values())
    assert b.grad is not None and b.grad.tolist() == weights.tolist()
    b.grad.zero_()
    assert weights.count_nonzero() == 4


@pytest.mark.parametrize("name", CALLS)
def test_a_value_does_not_depend_on_how_often_it_was_computed(name: str) -> None:
    call, shapes = CALLS[name]
    arrays = arrays_for(shapes, f32, 0)
    first = results(call, arrays)
    for again in (results(call, arrays), results(call, arrays)):
        for a, b in zip(first, again, strict=True):
            assert (a is None and b is None) or (a is not None and a.tobytes() == b.tobytes())  # type: ignore[union-attr]


@pytest.mark.parametrize("name", CALLS)
def test_second_derivatives_are_those_of_the_ops(name: str) -> None:
    call, shapes = CALLS[name]
    arrays = arrays_for(shapes, f64, 0)

    def second() -> list[np.ndarray]:
        tensors = tensors_of(arrays)
        leaves = [x for x in tensors if x.requires_grad]
        y = call(*tensors)
        found = lucid.autograd.grad((y * y).sum(), leaves, create_graph=True, allow_unused=True)
        total = sum((g * g).sum() for g in found if g is not None)
        total.backward()
        return [np.zeros(()) if x.grad is None else x.grad.numpy() for x in leaves]

    ours = second()
    with native.op_by_op():
        for mine, right in zip(ours, second(), strict=True):
            np.testing.assert_allclose(mine, right, rtol=1e-10, atol=1e-10)


def test_gradients_of_gradients_record_the_ops_of_the_noted_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The function isn't run again."""

    def curvature() -> np.ndarray:
        loss = F.linear(x, w).pow(3).sum()
        (slope,) = lucid.autograd.grad(loss, x, create_graph=True)
        (found,) = lucid.autograd.grad(slope.sum(), w)
        return found.numpy()

    x, w = lucid.randn(5, 3, requires_grad=True), lucid.randn(4, 3, requires_grad=True)
    curvature()
    monkeypatch.setattr(native.Composite, "backward", None)
    a, v = x.detach().numpy(), w.detach().numpy()
    by_hand = 3 * ((a @ v.T) ** 2).sum(0)[:, None] + 6 * (a @ v.T * v.sum(1)).T @ a
    np.testing.assert_allclose(curvature(), by_hand, rtol=1e-4, atol=1e-4)
    monkeypatch.undo()
    y = F.linear(x, w)
    with lucid.no_grad():
        x.mul_(2.0)
    lucid.autograd.grad(y.sum(), x, create_graph=True)  # which doesn't read it
    with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
        lucid.autograd.grad(F.linear(x, w).sum() + y.sum(), w, create_graph=True)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -0.0])
@pytest.mark.parametrize("name", ["softmax", "relu", "gelu", "layer_norm", "max_pool2d", "linear"])
def test_special_values_are_those_of_the_ops(name: str, special: float) -> None:
    call, shapes = CALLS[name]
    arrays = arrays_for(shapes, f32, 0)
    arrays[0].flat[3] = special
    ours = results(call, arrays)[0]
    with native.op_by_op():
        np.testing.assert_allclose(ours, results(call, arrays)[0], rtol=2e-5, atol=2e-5)  # type: ignore[arg-type]


def test_compiled_functions_stay_compiled_where_functions_run_op_by_op() -> None:
    """Else what compares the two would compare eager mode with itself."""
    step = lucid.compile(lambda x: F.softmax(x, 0) * 2)
    with native.op_by_op():
        for _ in range(3):
            step(lucid.ones(3))
    assert (step.stats.traces, step.stats.calls, step.stats.eager_reasons) == (1, 3, [])


def test_other_layouts_of_memory_are_taken() -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    right = F.softmax(lucid.tensor(x.T.copy()), 1)
    for strided in (lucid.tensor(x).T, lucid.tensor(np.repeat(x.T, 2, 1))[:, ::2]):
        assert F.softmax(strided, 1).tolist() == right.tolist()
    row = lucid.tensor(x[:1]).expand(4, 3)
    assert F.softmax(row, 1)[3].tolist() == F.softmax(row, 1)[0].tolist()


def test_one_tensor_as_two_arguments_runs_op_by_op() -> None:
    x = lucid.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = F.linear(x, x)
    assert y.tolist() == [[5.0, 11.0], [11.0, 25.0]]
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[8.0, 12.0], [8.0, 12.0]]
    other = lucid.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert F.linear(x, other).tolist() == x.tolist()


def test_numbers_that_are_equal_and_not_the_same_have_programs_of_their_own() -> None:
    x = lucid.tensor([-1.0])
    assert np.signbit(F.leaky_relu(x, 0.0).numpy())[0]
    assert not np.signbit(F.leaky_relu(x, -0.0).numpy())[0]


@pytest.mark.parametrize("function", [lucid.atan2, lucid.hypot])
def test_an_argument_is_no_constant_of_the_function_that_it_equals(function: Any) -> None:
    x = lucid.tensor([[0.5, -1.0, 3.0]]).expand(7, 3)
    function(x, 1)  # a number within either, too
    y = lucid.tensor(0.3)
    assert function(x, y).tolist() == function(x, y.expand(7, 3)).tolist()


def test_a_gradient_that_nobody_sent_keeps_a_backward_from_no_native_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as that of the statistics of a batch, which no loss depends on."""
    x, norm = lucid.arange(24.0).view(2, 3, 4).requires_grad_(), nn.BatchNorm1d(3)
    norm(x).sin().sum().backward()
    with native.op_by_op():
        (expected,) = lucid.autograd.grad(norm(x).sin().sum(), x)
    monkeypatch.setattr(
        BackwardCFunction, "_differentiate", lambda *_: pytest.fail("it runs on tensors")
    )
    x.grad = None
    norm(x).sin().sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_what_the_backward_reads_must_not_be_written_before_it() -> None:
    x, w, b = lucid.ones(2, 3), lucid.ones(4, 3), lucid.zeros(4)
    for tensor in (x, w, b):
        tensor.requires_grad_()
    y = F.linear(x, w, b)
    with lucid.no_grad():
        b.add_(1.0)  # the bias isn't looked at
    y.sum().backward()
    assert b.grad is not None and b.grad.tolist() == [2.0] * 4
    y = F.linear(x, w, b)
    with lucid.no_grad():
        w.mul_(2.0)
    with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_argument_that_follows_from_another_one_is_one_of_its_own() -> None:
    w = lucid.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
    x = lucid.tensor([[1.0, 2.0]])
    once = F.linear(x, w)
    twice = F.linear(once, w)  # which depends on w in two ways
    (found,) = lucid.autograd.grad(twice.sum(), w)
    column = np.array([[1.0, 1.0]])
    by_hand = column.T @ once.detach().numpy() + (column @ w.detach().numpy()).T @ x.numpy()
    np.testing.assert_allclose(found.numpy(), by_hand)


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (lambda x, n: x.norm(n), (1.0, 2.0)),
        (lambda x, n: x.logsumexp(n), (0, 1)),
        (lambda x, n: x.repeat(160, 160).var(n), (0, 1)),
        (lambda x, n: x.std(correction=n), (1.0, 9.0)),
    ],
)
def test_a_call_that_looks_at_a_number_goes_by_the_one_it_gets(
    function: Callable[..., lucid.Tensor], numbers: tuple[float, float]
) -> None:
    x = lucid.tensor([[3.0, 5.0], [7.0, 11.0]])
    for number in numbers:
        found = function(x, lucid.tensor(number))
        np.testing.assert_allclose(found.numpy(), function(x, number).numpy(), rtol=1e-6)


def test_the_switch_of_the_environment_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_NATIVE_FUNCTIONS", "off")
    F.softmax(lucid.randn(3, 4), 1)
    assert not any(programs())


def test_hooks_and_nodes_are_there() -> None:
    x = lucid.randn(3, 5, requires_grad=True)
    y = F.softmax(x, 1)
    assert y.grad_fn.name() == "SoftmaxBackward"
    seen: list[str] = []
    y.register_hook(lambda g: seen.append("result"))
    y.grad_fn.register_hook(lambda into, out: seen.append("node"))
    y.retain_grad()
    (y * y).sum().backward()
    assert seen == ["result", "node"]
    np.testing.assert_allclose(y.grad.numpy(), 2 * y.detach().numpy(), rtol=1e-6)
    assert F.cross_entropy(x, lucid.tensor([0, 1, 2])).grad_fn.name() == "CrossEntropyBackward"


def test_hooks_on_saved_tensors_see_them() -> None:
    packed: list[lucid.Tensor] = []

    def pack(tensor: lucid.Tensor) -> lucid.Tensor:
        packed.append(tensor)
        return tensor

    x = lucid.randn(3, 5, requires_grad=True)
    with lucid.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = F.gelu(x)
    assert packed
    y.sum().backward()


def test_transformations_and_steps_see_the_ops() -> None:
    x = lucid.randn(4, 3, 5)
    by_row = lucid.stack([F.softmax(row, 1) for row in x])
    lucid.testing.assert_close(lucid.vmap(lambda row: F.softmax(row, 1))(x), by_row)
    primal, tangent = lucid.func.jvp(lambda x: F.gelu(x), (x,), (lucid.ones_like(x),))
    lucid.testing.assert_close(primal, F.gelu(x))
    (slope,) = lucid.autograd.grad(F.gelu(leaf := x.detach().requires_grad_()).sum(), leaf)
    lucid.testing.assert_close(tangent, slope)
    step = lucid.compile(lambda x: F.softmax(x, 1))
    step(x[0])
    assert "exp" in step.dump_ir()


def test_errors_are_those_of_the_ops() -> None:
    x = lucid.randn(3, 5, requires_grad=True)
    good, wrong = lucid.tensor([0, 1, 2]), lucid.tensor([0, 7, 2])

    def said() -> str:
        with pytest.raises(lucid.IndexOutOfRangeError) as error:
            F.cross_entropy(x, wrong)
        return str(error.value)

    F.cross_entropy(x, good)
    ours = said()
    with native.op_by_op():
        assert ours == said()
    assert "target 7 is out of range for 5 classes" in ours


def test_modules_in_training_move_their_statistics() -> None:
    def trained() -> list[float]:
        lucid.manual_seed(0)
        norm = nn.BatchNorm2d(3)
        for _ in range(4):
            norm(lucid.randn(5, 3, 4, 4)).sum().backward()
        return [*norm.running_mean.tolist(), *norm.running_var.tolist()]

    ours = trained()
    with native.op_by_op():
        np.testing.assert_allclose(ours, trained(), rtol=1e-5)


def test_after_many_types_new_ones_run_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_MOST", 3)
    sizes = [2, 3, 4, 5, 6]
    first = [F.softmax(lucid.arange(float(n)), 0).tolist() for n in sizes]
    assert len(native._forwards[lucid.functions.softmax._softmax.__self__]) == 3
    assert [F.softmax(lucid.arange(float(n)), 0).tolist() for n in sizes] == first


def test_nothing_of_a_call_is_kept() -> None:
    x = lucid.randn(4, 5, requires_grad=True)
    for _ in range(2):
        y = F.layer_norm(x, (5,))
        y.sum().backward()
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_threads_share_programs() -> None:
    x = np.random.default_rng(0).normal(size=(8, 40, 50)).astype(np.float32)
    right = [F.softmax(lucid.tensor(part), 1).tolist() for part in x]
    native._forwards.clear()
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        part = lucid.tensor(x[number], requires_grad=True)
        for _ in range(20):
            y = F.softmax(part, 1)
            y.sum().backward()
        found[number] = y.tolist()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(8)] == right


def test_nothing_is_taken_as_well() -> None:
    for call, shapes in (
        (F.linear, [(0, 5), (4, 5), (4,)]),
        (lambda x: F.layer_norm(x, (5,)), [(0, 5)]),
        (F.gelu, [(0,)]),
        (lambda x, w: F.conv2d(x, w), [(0, 3, 8, 7), (4, 3, 3, 3)]),
    ):
        arrays = arrays_for(tuple(shapes), f32, 0)
        ours = results(call, arrays)
        with native.op_by_op():
            for mine, right in zip(ours, results(call, arrays), strict=True):
                np.testing.assert_array_equal(mine, right)  # type: ignore[arg-type]


def test_a_defect_of_the_compiler_is_told_and_the_call_runs_op_by_op(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setenv("LUCID_VERIFY", "0")
    monkeypatch.setattr("lucid.runtime.executable.compile_graph", defect)
    monkeypatch.setattr("lucid.autograd.native._families", {})  # none has code for it
    x = lucid.tensor([[0.0, 1.0]], requires_grad=True)
    assert F.softmax(x, 1).sum().item() == 1.0
    assert "Softmax runs op by op" in caplog.text


def test_short_programs_are_called_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but arrays that lie otherwise, and values that a check refuses: these come to Python."""
    asked: list[Any] = []
    call_known = Executable.call_known

    def asking(self: Executable, inputs: Any) -> Any:
        asked.append(inputs)
        return call_known(self, inputs)

    monkeypatch.setattr(Executable, "call_known", asking)
    x, classes = lucid.randn(4, 3, requires_grad=True), lucid.tensor([0, 2, 1, 1])
    first, second = (F.softmax(x, 1) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first.data_ptr() != second.data_ptr()
    F.cross_entropy(x, classes).backward()
    assert not asked
    np.testing.assert_allclose(F.softmax(x.T, 0).T.detach(), first.detach(), rtol=1e-6)
    assert len(asked) == 1
    with pytest.raises(IndexError):
        F.cross_entropy(x, lucid.tensor([0, 2, 3, 1]))
    assert len(asked) > 1
    asked.clear()
    F.cross_entropy(x, classes)
    assert not asked


def test_the_first_calls_tensors_do_not_stay() -> None:
    """Each list of types has a program: its first call's tensors would be kept for each."""
    for requires_grad in (False, True):
        x = lucid.randn(37, 11, requires_grad=requires_grad)
        memory = weakref.ref(x._array)
        F.layer_norm(x, (11,))
        del x
        gc.collect()
        assert memory() is None


def test_the_type_of_a_result_is_the_object_that_machine_code_knows() -> None:
    for made in (lucid.histc(lucid.ones(3), 37), lucid.ones(3, 41).mode(1).indices):
        assert made._type is shared_type(made.dtype, tuple(made.shape))


def test_the_first_few_of_much_work_are_planned_for_their_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others share code; what only goes over its data does so from the second size on."""
    shared: list[str] = []
    executable = open_programs.Family.executable

    def noting(self: Any, graph: Any, *rest: Any) -> Any:
        found = executable(self, graph, *rest)
        shared.append(graph.name if found else "")
        return found

    monkeypatch.setattr(open_programs.Family, "executable", noting)
    monkeypatch.setattr(open_programs, "_MUCH", 1 << 12)

    @native.composite
    def all_pairs(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        return (x.unsqueeze(1) - y).abs().sum(0)

    @native.composite
    def each(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        return (x - y).abs() * x

    rng = np.random.default_rng(0)
    for n in (3, 20, 21, 22, 23, 24, 25):
        x, y = (rng.normal(size=(n, 17)).astype(np.float32) for _ in range(2))
        found = all_pairs(lucid.from_numpy(x), lucid.from_numpy(y)).numpy()
        np.testing.assert_allclose(found, np.abs(x[:, None] - y).sum(0), rtol=1e-5)
    assert shared == ["AllPairs"] * 2  # with 24 and 25 rows
    shared.clear()
    for n in (600, 601, 602):
        each(lucid.ones(n, 17), lucid.ones(n, 17))
    assert shared == ["Each"] * 2
