"""Functions of elements that write over their first operand: the numbers are those of its result.

They are written where they are computed, once that pays.
"""

from __future__ import annotations

import signal
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from ir.op_cases import accepted, filled

import lucid
from lucid.autograd.native import Code
from lucid.ir.errors import DTypeError
from lucid.ir.graph import Graph
from lucid.ir.inference import MANY_ELEMENTS
from lucid.ir.op import OPS, Trait
from lucid.ir.types import DTYPES, DType, type_of_array
from lucid.runtime.open_programs import Families
from lucid.tensor import combined, core
from lucid.tensor.applied import applied

Write = Callable[[Any, Any, Any], Any]
WRITES: dict[str, tuple[Write, Write]] = {
    "add_": (lambda x, y, z: x.add_(y), lambda x, y, z: x + y),
    "add_ of a factor": (lambda x, y, z: x.add_(y, alpha=0.3), lambda x, y, z: x + 0.3 * y),
    "sub_ of a row": (lambda x, y, z: x.sub_(y[0]), lambda x, y, z: x - y[0]),
    "mul_": (lambda x, y, z: x.mul_(0.99), lambda x, y, z: x * 0.99),
    "div_ by a column": (lambda x, y, z: x.div_(y[:, :1]), lambda x, y, z: x / y[:, :1]),
    "lerp_": (lambda x, y, z: x.lerp_(y, 0.3), lambda x, y, z: x.lerp(y, 0.3)),
    "lerp_ by tensors": (lambda x, y, z: x.lerp_(y, z), lambda x, y, z: x.lerp(y, z)),
    "addcmul_": (
        lambda x, y, z: x.addcmul_(y, z, value=0.1),
        lambda x, y, z: x.addcmul(y, z, value=0.1),
    ),
    "addcdiv_": (lambda x, y, z: x.addcdiv_(y, z), lambda x, y, z: x.addcdiv(y, z)),
    "clamp_": (lambda x, y, z: x.clamp_(-1, y), lambda x, y, z: x.clamp(-1, y)),
    "sqrt_": (lambda x, y, z: x.sqrt_(), lambda x, y, z: x.sqrt()),
    "exp_": (lambda x, y, z: x.exp_(), lambda x, y, z: x.exp()),
    "log_": (lambda x, y, z: x.log_(), lambda x, y, z: x.log()),
    "relu_": (lambda x, y, z: x.relu_(), lambda x, y, z: x.relu()),
    "gt_": (lambda x, y, z: x.gt_(y), lambda x, y, z: (x > y).to(x.dtype)),
    "x += y": (lambda x, y, z: x.__iadd__(y), lambda x, y, z: x + y),
    "x.add_(x)": (lambda x, y, z: x.add_(x), lambda x, y, z: x + x),
    "itself, transposed": (lambda x, y, z: x.add_(x.t()), lambda x, y, z: x + x.t()),
    "an element of itself": (lambda x, y, z: x.mul_(x[1, 1]), lambda x, y, z: x * x[1, 1]),
    "a row of itself": (lambda x, y, z: x.sub_(x[1]), lambda x, y, z: x - x[1]),
    "another dtype": (lambda x, y, z: x.add_(y.double()), lambda x, y, z: (x + y.double()).float()),
    "floor_divide_ of ints": (
        lambda x, y, z: x.copy_(x.long().floor_divide_(z.long() + 99)),
        lambda x, y, z: (x.long() // (z.long() + 99)).float(),
    ),
}
every_write = pytest.mark.parametrize(("write", "result"), WRITES.values(), ids=WRITES)
FEW, MANY = 6, 256
assert FEW * FEW < MANY_ELEMENTS <= MANY * MANY


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Machine code pays soon."""
    found = applied()
    if found is not None:
        monkeypatch.setattr(core, "natively", found.function)
        monkeypatch.setattr(core, "call", found.call)
        found.calls.forget()
    monkeypatch.setattr(combined, "_PAYS", 1 << 13)
    combined._op_of.cache_clear()
    yield
    combined._op_of.cache_clear()


def numbers(n: int) -> list[lucid.Tensor]:
    rng = np.random.default_rng(n)
    return [lucid.from_numpy(rng.normal(size=(n, n)).astype(np.float32) * 3) for _ in range(3)]


@every_write
@pytest.mark.parametrize("n", [FEW, MANY])
def test_memory_has_the_bits_of_the_result(write: Write, result: Write, n: int) -> None:
    given, y, z = numbers(n)
    expected = result(given, y, z).numpy()
    for _ in range(9):
        x = given.clone()
        place, version = x.data_ptr(), x._version
        assert write(x, y, z) is x
        np.testing.assert_array_equal(x.numpy(), expected)
        assert (
            np.signbit(x.numpy()[~np.isnan(expected)]).tolist()
            == np.signbit(expected[~np.isnan(expected)]).tolist()
        )
        assert (x.data_ptr(), x._version) == (place, version + 1)


@every_write
@pytest.mark.parametrize("n", [FEW, MANY])
def test_memory_may_be_a_part_of_other_memory(write: Write, result: Write, n: int) -> None:
    given, y, z = numbers(n)
    expected = result(given, y, z).numpy()
    for make in (
        lambda: lucid.zeros(n, n).t(),
        lambda: lucid.zeros(n, 2 * n)[:, ::2],
        lambda: lucid.zeros(3 * n, n)[n : 2 * n],
    ):
        for _ in range(9):
            x = make().copy_(given)
            write(x, y, z)
            np.testing.assert_array_equal(x.numpy(), expected)
            whole = x._base
            assert whole is not None
            assert np.count_nonzero(whole.numpy()) <= n * n


def test_what_shares_a_part_of_the_memory_is_read_first() -> None:
    for n in (FEW, MANY):
        memory = numbers(n)[0].flatten()
        for _ in range(9):
            x = memory.clone()
            x[1:].add_(x[:-1])
            np.testing.assert_array_equal(
                x.numpy(), np.append(memory[:1].numpy(), memory[1:].numpy() + memory[:-1].numpy())
            )


def test_numbers_that_differ_from_call_to_call_are_read_in_each() -> None:
    given, y, _ = numbers(MANY)
    for i in range(9):
        x = given.clone().add_(y, alpha=0.1 * i)
        np.testing.assert_array_equal(x.numpy(), (given + y * (0.1 * i)).numpy())


def test_no_memory_is_taken_for_what_is_between() -> None:
    x, y, _ = numbers(512)
    for _ in range(8):
        x.mul_(0.99).add_(y, alpha=0.01)
    tracemalloc.start()
    x.mul_(0.99).add_(y, alpha=0.01).lerp_(y, 0.2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.numel()


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda x: x.add_(lucid.ones(3, MANY, MANY)), lucid.ShapeError),
        (lambda x: x.add_(lucid.ones(7)), lucid.ShapeError),
        (lambda x: x.long().add_(0.5), DTypeError),
        (lambda x: x.add_("1"), lucid.ArgumentError),
        (lambda x: x.addcmul_(x), lucid.ArgumentError),
        (lambda x: x[:1].expand(MANY, MANY).mul_(2), lucid.LucidError),
        (lambda x: x.requires_grad_().mul_(2), lucid.LucidError),
    ],
)
def test_what_is_refused_changes_nothing(write: Any, error: type[Exception]) -> None:
    given = numbers(MANY)[0]
    for _ in range(3):
        x = given.clone()
        with pytest.raises(error):
            write(x)
        assert x._version == 0
        assert (x == given).all()


def test_a_backward_pass_that_needs_the_old_numbers_is_refused() -> None:
    for n in (FEW, MANY):
        x, w, _ = numbers(n)
        w.requires_grad_()
        for _ in range(10):
            loss = (x * w).sum()
            x.mul_(0.5)
            with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
                loss.backward()


@pytest.mark.parametrize("n", [FEW, MANY])
def test_a_history_is_kept_of_operands_by_position_and_by_name(n: int) -> None:
    given, w, _ = numbers(n)
    w.requires_grad_()
    for _ in range(10):
        x = given.clone()
        x.mul_(other=w)
        x.mul_(w)
        (gradient,) = lucid.autograd.grad(x.sum(), (w,))
        np.testing.assert_allclose(gradient.numpy(), (2 * given * w).detach().numpy(), rtol=1e-6)


def test_a_profiler_sees_the_ops_of_a_write() -> None:
    x, y, _ = numbers(MANY)
    with lucid.profiler.profile() as profile:
        x.add_(y, alpha=0.5)
    assert {"mul", "add"} <= {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_native_code_rounds_as_numpy_does(dtype: DType, rng: np.random.Generator) -> None:
    """So it may take over at any call; an op that is rounded otherwise says so."""
    graph, arrays, expected = Graph("ops"), list[np.ndarray](), list[np.ndarray]()
    for op in OPS.values():
        if not op.is_elementwise or Trait.APPROXIMATE in op.traits:
            continue
        for sample in op.samples:
            given = filled(sample, dtype, rng)
            if accepted(op, given, sample.attributes) is not None:
                values = [graph.add_input(type_of_array(array)) for array in given]
                graph.outputs.append(graph.append(op, values, sample.attributes).result)
                arrays += given
                expected.append(op.evaluate(*given, **sample.attributes))
    found = Code(graph, (), Families()).run(arrays)
    for value, array, wanted in zip(graph.outputs, found, expected, strict=True):
        assert array.dtype == wanted.dtype
        assert array.tobytes() == wanted.tobytes() or np.isnan(wanted).any(), value
        np.testing.assert_array_equal(array, wanted)


def test_what_the_handler_of_a_signal_raises_is_raised() -> None:
    """It isn't the function that failed."""

    def interrupted(x: lucid.Tensor) -> lucid.Tensor:
        signal.raise_signal(signal.SIGINT)
        return x + 1

    def handler(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(TimeoutError):
            combined.combined(interrupted, lucid.ones(4), (), {})
    finally:
        signal.signal(signal.SIGINT, before)
