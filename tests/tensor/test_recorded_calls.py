"""Calls of public functions that come again: machine code does what Python does."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import func, nn
from lucid.autograd import native
from lucid.nn import functional as F
from lucid.runtime.entry.calls import MOST_TIMES
from lucid.runtime.entry.common import Common
from lucid.tensor import calls, core
from lucid.tensor.applied import applied

found = applied()
pytestmark = pytest.mark.skipif(found is None, reason="objects look different here")


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Machine code does calls from the third one on, and knows nothing of those before."""
    assert found is not None
    monkeypatch.setattr(core, "natively", found.function)
    monkeypatch.setattr(core, "call", found.call)
    found.calls.forget()
    found._plan[Common.TIMES] = 0
    yield
    found._plan[Common.TIMES] = MOST_TIMES


class Watched:
    """Counts the calls that machine code has done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        call = core.call

        def counting(*args: Any) -> Any:
            made = call(*args)
            self.count += made is not core.LEFT and made is not core.MISSED
            return made

        monkeypatch.setattr(core, "call", counting)


@pytest.fixture
def by_machine(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def in_python(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> Any:
    with monkeypatch.context() as patched:
        patched.setattr(core, "call", core.leave_call)
        return run()


def seen(value: Any) -> Any:
    """What can be seen of what a call has returned."""
    if isinstance(value, (tuple, list)):
        return type(value), [seen(part) for part in value]
    if not isinstance(value, lucid.Tensor):
        return value
    node = value.grad_fn
    ends = node and [type(end and end[0]).__name__ for end in node.next_functions]
    numbers = value.detach().numpy()
    facts = value.dtype, value.shape, value.stride(), value.requires_grad, value._version
    return facts, numbers.tobytes(), type(node).__name__, ends, value._base is None, value.location


MATRIX = np.linspace(-2, 3, 20, dtype=np.float32).reshape(4, 5)
AT = np.array([[0, 3, 1, 1, 2], [2, 0, 0, 3, 3]])

CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x + y": lambda x, y, at: x + y,
    "2 - x": lambda x, y, at: 2 - x,
    "x / 3": lambda x, y, at: x / 3,
    "pow": lambda x, y, at: x.pow(2),
    "x > y": lambda x, y, at: x > y,
    "x @ y.T": lambda x, y, at: x @ y.T,
    "add alpha": lambda x, y, at: lucid.add(x, y, alpha=2),
    "sum": lambda x, y, at: x.sum(),
    "sum of an axis": lambda x, y, at: x.sum(1, keepdim=True),
    "mean": lambda x, y, at: lucid.mean(x, dim=(0, 1)),
    "max": lambda x, y, at: x.max(1),
    "argmax": lambda x, y, at: x.argmax(-1),
    "cumsum": lambda x, y, at: x.cumsum(0),
    "clamp": lambda x, y, at: x.clamp(-1, max=1),
    "where": lambda x, y, at: lucid.where(x > 0, x, y),
    "masked_fill": lambda x, y, at: x.masked_fill(x > 1, 0.5),
    "softmax": lambda x, y, at: F.softmax(x, -1),
    "layer_norm": lambda x, y, at: F.layer_norm(x, (5,)),
    "gelu": lambda x, y, at: F.gelu(x),
    "mse_loss": lambda x, y, at: F.mse_loss(x, y),
    "binary_cross_entropy": lambda x, y, at: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "tril": lambda x, y, at: lucid.tril(x),
    "cholesky": lambda x, y, at: lucid.linalg.cholesky(x @ x.T + 9 * lucid.eye(4)),
    "solve_triangular": lambda x, y, at: lucid.linalg.solve_triangular(y.T[:4], x, upper=False),
    "cholesky_solve": lambda x, y, at: lucid.cholesky_solve(x, x @ x.T + lucid.eye(4)),
    "vector_norm": lambda x, y, at: lucid.linalg.vector_norm(x, dim=1),
    "view": lambda x, y, at: x.view(-1),
    "view of a shape": lambda x, y, at: x.view(x.T.shape),
    "permute": lambda x, y, at: x.permute(1, 0),
    "expand": lambda x, y, at: x[0].expand(3, 5),
    "squeeze": lambda x, y, at: x[:1].squeeze(0),
    "chunk": lambda x, y, at: x.chunk(2),
    "unbind": lambda x, y, at: x.unbind(1),
    "rows": lambda x, y, at: [*x],
    "cat": lambda x, y, at: lucid.cat([x, y], 1),
    "stack": lambda x, y, at: lucid.stack((x, y)),
    "x[1]": lambda x, y, at: x[1],
    "x[1:3, ::2]": lambda x, y, at: x[1:3, ::2],
    "x[..., None]": lambda x, y, at: x[..., None],
    "x[at]": lambda x, y, at: x[at],
    "x[list]": lambda x, y, at: x[[0, 2, 1]],
    "gather": lambda x, y, at: x.gather(0, at),
    "scatter_add": lambda x, y, at: x.scatter_add(0, at, y),
    "index_select": lambda x, y, at: x.index_select(0, at[0]),
    "sort": lambda x, y, at: x.sort(1, descending=True),
    "one_hot": lambda x, y, at: F.one_hot(at, 4),
    "float": lambda x, y, at: at.float(),
    "zeros": lambda x, y, at: lucid.zeros(2, 3),
    "zeros_like": lambda x, y, at: lucid.zeros_like(x),
    "arange": lambda x, y, at: lucid.arange(1, 7, 2),
    "linspace": lambda x, y, at: lucid.linspace(0, 1, 4),
    "tensor": lambda x, y, at: lucid.tensor([[1.0, -0.0], [2.0, 3.0]]),
}
WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add_": lambda x, y, at: x.add_(y),
    "-=": lambda x, y, at: x.__isub__(1.5),
    "mul_": lambda x, y, at: x.mul_(0.5),
    "zero_": lambda x, y, at: x.zero_(),
    "copy_": lambda x, y, at: x.copy_(y),
    "copy_ of a row": lambda x, y, at: x.copy_(y[0]),
    "clamp_": lambda x, y, at: x.clamp_(min=0),
    "addcmul_": lambda x, y, at: x.addcmul_(y, y * 1, value=0.5),
    "masked_fill_": lambda x, y, at: x.masked_fill_(y > 0, -1.0),
    "scatter_": lambda x, y, at: x.scatter_(0, at, 2.0),
    "x[1] = 2": lambda x, y, at: (x.__setitem__(1, 2.0), x),
    "x[:, 0] = row": lambda x, y, at: (x.__setitem__((slice(None), 0), y[:, 1]), x),
    "x.T[0] = row": lambda x, y, at: (x.T.__setitem__(0, y[:, 1]), x),
    "x[mask] = 0": lambda x, y, at: (x.__setitem__(y > 0, 0.0), x),
    "x[i, j] = 1": lambda x, y, at: (x.__setitem__((at[0], at[1]), 1.0), x),
    "x[-i, j] = y": lambda x, y, at: (x.__setitem__((-at[0] - 1, at[1]), y[0]), x),
    "index_put_": lambda x, y, at: x.index_put_((at[0], at[1]), y[0], accumulate=True),
    "a view": lambda x, y, at: (x[1:3].mul_(2.0), x),
}
DRAWS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "rand": lambda x, y, at: lucid.rand(2, 3),
    "randn": lambda x, y, at: lucid.randn((3,), dtype=lucid.float64),
    "randn of a leaf": lambda x, y, at: lucid.randn(3, requires_grad=True),
    "randn_like": lambda x, y, at: lucid.randn_like(x),
    "randint": lambda x, y, at: lucid.randint(-3, 9, (4,)),
    "randperm": lambda x, y, at: lucid.randperm(5),
    "normal": lambda x, y, at: lucid.normal(1.0, 0.5, (3,)),
    "normal of means": lambda x, y, at: lucid.normal(y, 0.5),
    "bernoulli": lambda x, y, at: lucid.bernoulli(y, 0.3),
    "bernoulli of each": lambda x, y, at: lucid.bernoulli(y.sigmoid()),
    "normal of deviations": lambda x, y, at: lucid.normal(y, y.abs()),
    "multinomial": lambda x, y, at: lucid.multinomial(y.abs() + 0.1, 3),
    "dropout": lambda x, y, at: F.dropout(x, 0.4),
    "rrelu": lambda x, y, at: F.rrelu(x, training=True),
    "gumbel_softmax": lambda x, y, at: F.gumbel_softmax(x, tau=0.5),
    "normal_": lambda x, y, at: x.normal_(),
    "uniform_": lambda x, y, at: x.uniform_(-1, 1),
    "bernoulli_": lambda x, y, at: x.bernoulli_(0.5),
    "normal_ of a view": lambda x, y, at: (x[1].normal_(2.0), x),
    "of the state": lambda x, y, at: lucid.default_generator.state.random_(9).tolist(),
    "and its state": lambda x, y, at: (lucid.rand(2), lucid.get_rng_state()),
}
BY_PYTHON = {"randn of a leaf", "of the state"}


def operands(requires_grad: bool, strides: str) -> tuple[Any, Any, Any]:
    x, y = lucid.tensor(MATRIX), lucid.tensor(MATRIX[::-1].copy())
    if strides == "transposed":
        x = lucid.tensor(MATRIX.T.copy()).T
    if requires_grad:
        x.requires_grad_()
    return x, y, lucid.tensor(AT)


def outcome(call: Callable[..., Any], given: tuple[Any, Any, Any]) -> Any:
    try:
        return seen(call(*given))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("strides", ["row-major", "transposed"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_as_python_makes_it(
    name: str, requires_grad: bool, strides: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, given = CALLS[name], operands(requires_grad, strides)
    expected = in_python(monkeypatch, lambda: outcome(call, given))
    for _ in range(5):
        assert outcome(call, given) == expected


@pytest.mark.parametrize("way", ["plain", "no_grad", "of what has a history"])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_as_python_makes_it(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written() -> Any:
        found, call = [], WRITES[name]
        for _ in range(5):
            x, y, at = operands(way != "plain", "row-major")
            with lucid.set_grad_enabled(way != "no_grad"):
                given = x * 1 if way == "of what has a history" else x
                found += [outcome(call, (given, y, at)), given._version]
                if given.grad_fn is not None:
                    given.sum().backward()
                    found.append(seen(x.grad))
        return found

    assert written() == in_python(monkeypatch, written)


@pytest.mark.parametrize("way", ["plain", "no_grad"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_as_python_makes_them(
    name: str, requires_grad: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn() -> Any:
        lucid.manual_seed(3)
        with lucid.set_grad_enabled(way == "plain"):
            given = operands(requires_grad, "row-major")
            return [
                (outcome(DRAWS[name], given), seen(lucid.get_rng_state()), given[0]._version)
                for _ in range(5)
            ]

    expected = in_python(monkeypatch, drawn)
    assert drawn() == expected
    assert len({str(x[1]) for x in expected}) == 5


@pytest.mark.parametrize("name", ["dropout", "rrelu", "gumbel_softmax"])
def test_draws_without_programs_are_as_python_makes_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn() -> Any:
        lucid.manual_seed(3)
        given = operands(True, "row-major")
        return [(outcome(DRAWS[name], given), seen(lucid.get_rng_state())) for _ in range(5)]

    with native.op_by_op():
        expected = in_python(monkeypatch, drawn)
        assert drawn() == expected and not isinstance(expected[0][0][0], type)


def test_a_draw_that_fails_leaves_what_python_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> Any:
        lucid.manual_seed(3)
        free, leaf = lucid.zeros(3), lucid.zeros(3)
        for _ in range(4):
            free.normal_()
        shared, array = lucid.zeros(1).expand(3), np.zeros(3, np.float32)
        array.flags.writeable = False  # which no record knows
        found = []
        for target in (leaf.requires_grad_(), shared, lucid.from_numpy(array)) * 3:
            found.append(outcome(lambda x, y, at: x.normal_(), (target, None, None)))
            found.append((seen(lucid.get_rng_state()), target._version))
        return found

    expected = in_python(monkeypatch, drawn)
    assert drawn() == expected
    assert {type(x) for x in expected[::2]} == {tuple} and isinstance(expected[0][0], type)


@pytest.mark.parametrize("name", [*CALLS, *WRITES, *sorted(DRAWS.keys() - BY_PYTHON)])
def test_what_is_usual_is_done_by_machine_code(name: str, by_machine: Watched) -> None:
    call, given = {**CALLS, **WRITES, **DRAWS}[name], operands(False, "row-major")
    for _ in range(3):
        call(*given)
    before = by_machine.count
    call(*given)
    assert by_machine.count > before


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.MaxPool2d(2),
        lambda: nn.AvgPool2d(2),
        lambda: nn.AdaptiveAvgPool2d(2),
        lambda: nn.PixelShuffle(2),
        lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    ],
)
def test_modules_of_a_function_are_such_calls(
    make: Callable[[], Any], by_machine: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, image = make(), lucid.arange(256.0).reshape(1, 4, 8, 8)
    for _ in range(9):
        module(image)
    images = [image + k for k in range(3)]
    before = by_machine.count
    found = [*map(module, images)]
    assert by_machine.count == before + 3
    expected = in_python(monkeypatch, lambda: [*map(module, images)])
    assert all(map(lucid.equal, found, expected))


def test_what_a_module_was_made_with_may_change() -> None:
    module, image = nn.AvgPool2d(2), lucid.arange(16.0).reshape(1, 1, 4, 4)
    for _ in range(9):
        module(image)
    module.kernel_size = module.stride = 4
    assert [module(image).item() for _ in range(5)] == [7.5] * 5


def test_arguments_that_are_equal_are_told_apart() -> None:
    x, ints = lucid.tensor([1.0, 2.0]), lucid.tensor([3, 4])
    for _ in range(4):
        assert [(ints * n).dtype for n in (1, 1.0, True)] == [
            lucid.int64,
            lucid.float32,
            lucid.int64,
        ]
        assert [(x * n).signbit().tolist() for n in (0.0, -0.0)] == [[False] * 2, [True] * 2]
        assert x[1].item() == 2 and x[True].shape == (1, 2)
        assert x[(0,)].ndim == 0 and x[[0]].ndim == 1
        assert x.sum(0).ndim == 0 and x.sum(0, True).ndim == 1 and x.sum(dim=0).ndim == 0
        assert (x * float("nan")).isnan().all()


def test_one_tensor_in_two_places_is_another_call() -> None:
    x, y = lucid.tensor([1.0, 2.0]), lucid.tensor([5.0, 7.0])
    for _ in range(4):
        assert (x * x).tolist() == (x * x).tolist() == [1, 4]
        assert (x * y).tolist() == [5, 14]
        assert lucid.cat([x, x]).tolist() == lucid.cat([x, x]).tolist() == [1, 2, 1, 2]
        assert lucid.cat([x, y]).tolist() == [1, 2, 5, 7]


def test_machine_code_does_calls_with_one_tensor_in_several_places(by_machine: Watched) -> None:
    """Which places these are is part of the call, and so is what is written."""
    x, y = lucid.tensor([[1.0, 2.0], [3.0, 4.0]]), lucid.ones(2, 2)
    leaf = lucid.tensor([1.0, 2.0], requires_grad=True)
    expected = x @ x
    for _ in range(4):
        count = by_machine.count
        assert [product.tolist() for product in (x @ x, x @ y, y @ x)] == [
            expected.tolist(),
            [[3, 3], [7, 7]],
            [[4, 6], [4, 6]],
        ]
        assert lucid.where(x > 2, x, x).tolist() == x.tolist()
        assert lucid.stack([x, y, x])[2].tolist() == x.tolist()
        assert lucid.addcmul(x, y, x).tolist() == [[2, 4], [6, 8]]
        assert lucid.addcmul(x, y, y).tolist() == [[2, 3], [4, 5]]
        doubled = y.clone().add_(y)
        doubled.add_(doubled)
        assert doubled.tolist() == [[4, 4], [4, 4]]
        leaf.grad = None
        (leaf * leaf).sum().backward()
        assert leaf.grad is not None and leaf.grad.tolist() == [2, 4]
    assert by_machine.count - count >= 8


def test_the_default_dtype_is_part_of_a_call() -> None:
    ints = lucid.tensor([1, 2])
    for dtype in (lucid.float32, lucid.float64, lucid.float32):
        lucid.set_default_dtype(dtype)
        try:
            for _ in range(4):
                assert lucid.zeros(2).dtype is dtype
                assert (ints / 2).dtype is dtype
        finally:
            lucid.set_default_dtype(lucid.float32)


def test_what_a_call_makes_is_its_own() -> None:
    for _ in range(4):
        x = lucid.zeros(3)
        assert x.tolist() == [0, 0, 0]
        x += 1
        y = lucid.tensor([1.0, 2.0])
        assert y.tolist() == [1, 2]
        y.zero_()


def test_strides_are_looked_at_in_each_call() -> None:
    apart, turned = lucid.arange(12)[::2].view(2, 3), lucid.arange(6).reshape(3, 2).T
    square, across = lucid.arange(4).reshape(2, 2), lucid.arange(4).reshape(2, 2).T
    for _ in range(4):
        assert apart.view(6).tolist() == [0, 2, 4, 6, 8, 10]
        with pytest.raises(lucid.ShapeError, match="view: view size is not compatible"):
            turned.view(6)
        for x in apart, apart, turned:  # the second one is recorded
            x.diagonal()[0] = 7
            assert x[0, 0] == 7
            x[0, 0] = 0
        assert across.contiguous().is_contiguous() and across.contiguous() is not across
        assert square.contiguous() is square


def test_a_view_that_strides_do_not_allow_is_refused_each_time() -> None:
    x = lucid.arange(6).reshape(2, 3)
    for _ in range(4):
        assert x.view(6).tolist() == [0, 1, 2, 3, 4, 5]
        with pytest.raises(lucid.ShapeError, match=r"view: view size is not compatible"):
            x.T.view(6)
        assert x.T.reshape(6).tolist() == [0, 3, 1, 4, 2, 5]
        assert x[:, 1:].diagonal().tolist() == [1, 5]
        assert x.T.diagonal().tolist() == [0, 4]


def test_what_values_decide_is_decided_in_each_call() -> None:
    x = lucid.arange(4.0)
    for low in (0, 1, 2, 3, -1):
        assert x[x > low].tolist() == [n for n in range(4) if n > low]
        assert (x > low).nonzero().numel() == len([n for n in range(4) if n > low])
        assert lucid.searchsorted(x, lucid.tensor([low + 0.5])).item() == low + 1
        assert x.tolist() == [0, 1, 2, 3]


def test_an_index_is_checked_in_each_call() -> None:
    x, right, wrong = lucid.arange(4.0), lucid.tensor([3, 0]), lucid.tensor([1, 4])
    z = lucid.zeros(4)
    for _ in range(4):
        assert x[right].tolist() == x.gather(0, right).tolist() == [3, 0]
        z.scatter_(0, right, 1.0)
    before = z._version
    with pytest.raises(lucid.IndexOutOfRangeError) as error:
        x.gather(0, wrong)
    text = str(error.value)
    assert text.startswith("gather: index 4 is out of bounds for dimension 0 with size 4")
    assert "x.gather(0, wrong)" in text
    with pytest.raises(lucid.IndexOutOfRangeError):
        z.scatter_(0, wrong, 2.0)
    assert z.tolist() == [1, 0, 0, 1] and z._version == before
    assert x.gather(0, right).tolist() == [3, 0]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_matrix_without_a_factorization_is_named_in_each_call(requires_grad: bool) -> None:
    good, bad = lucid.eye(3), -lucid.eye(3)
    for matrix in (good, good, good, bad, good, bad):
        matrix.requires_grad_(requires_grad)
        if matrix is good:
            assert lucid.linalg.cholesky(matrix).trace() == 3
            continue
        with pytest.raises(lucid.linalg.LinAlgError, match="cholesky: Matrix is not positive def"):
            lucid.linalg.cholesky(matrix)


def test_numbers_are_checked_in_each_call() -> None:
    right, wrong = lucid.tensor([0.2, 1.0]), lucid.tensor([0.2, 1.5])
    state = lucid.get_rng_state()
    for _ in range(4):
        F.binary_cross_entropy(right, right)
        lucid.bernoulli(right)
        with pytest.raises(lucid.OptionError, match="all elements of input should be between"):
            F.binary_cross_entropy(wrong, right)
        with pytest.raises(lucid.OptionError, match="all elements of target should be between"):
            F.binary_cross_entropy(right, wrong)
        with pytest.raises(lucid.OptionError, match=r"expects p to be in \[0, 1\]") as error:
            lucid.bernoulli(wrong)
        assert "lucid.bernoulli(wrong)" in str(error.value)
    assert lucid.get_rng_state()[1] == state[1] + 4 * 2


def test_what_changes_a_tensor_besides_does_so_each_time() -> None:
    for _ in range(4):
        x = lucid.ones(3, requires_grad=True) * 2
        assert x.detach_().grad_fn is None and not x.requires_grad
        y = lucid.zeros(3)
        assert y.unsqueeze_(0).shape == (1, 3) and y.shape == (1, 3)
        assert y.resize_(2).shape == (2,)
        z = lucid.zeros(3).set_(lucid.ones(3))
        assert z.tolist() == [1, 1, 1]


def test_warnings_are_given_in_each_call() -> None:
    mask, x = lucid.tensor([1, 0], dtype=lucid.uint8), lucid.arange(2)
    for _ in range(4):
        with pytest.warns(UserWarning, match="uint8 is now deprecated"):
            assert x[mask].tolist() == [0]
        with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
            F.softmax(lucid.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            x[mask]


def test_draws_differ() -> None:
    x = lucid.ones(50)
    drawn = {tuple(F.dropout(x, 0.5).tolist()) for _ in range(5)}
    drawn |= {tuple(lucid.rand_like(x).tolist()) for _ in range(5)}
    assert len(drawn) == 10


def test_modes_and_transformations_see_the_ops() -> None:
    x = lucid.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        (x * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [9, 9]
    assert func.grad(lambda t: (t * 3).sum())(x.detach()).tolist() == [3, 3]
    assert func.vmap(lambda t: t * 3)(x.detach()).tolist() == [3, 6]
    packed: list[Any] = []
    with lucid.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        x * x.detach()
    assert packed
    with lucid.no_grad():
        for _ in range(3):
            assert not (x * 3).requires_grad
    assert (x * 3).requires_grad
    step = lucid.compile(lambda t: t * 3 + 1)
    assert step(x.detach()).tolist() == [4, 7]


def test_a_tensor_with_a_history_is_copied_before_it_is_written() -> None:
    for _ in range(4):
        for plain in lucid.full((2,), 3.0), lucid.full((2,), 3.0):
            assert plain.square_().tolist() == [9, 9]
        leaf = lucid.full((2,), 3.0).requires_grad_()
        (leaf * 1).square_().sum().backward()
        assert leaf.grad is not None and leaf.grad.tolist() == [6, 6]


def test_a_function_that_switches_gradients_off_is_called_each_time() -> None:
    def half(x: lucid.Tensor) -> lucid.Tensor:
        with lucid.no_grad():
            y = x * 2
        return x * y

    for _ in range(5):
        x = lucid.ones(2, requires_grad=True)
        made = core.call(half, (x,), {})
        if made is core.MISSED:
            made = core.record_call(half, (x,), {})
        made = half(x) if made is core.LEFT else made
        made.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2, 2]


def test_settings_are_looked_at_in_each_call() -> None:
    x, w = lucid.randn(8, 128, 16, 16), lucid.randn(128, 128, 3, 3)
    exact = F.conv2d(x, w, padding=1)
    try:
        for _ in range(4):
            lucid.set_float32_matmul_precision("high")
            quick = F.conv2d(x, w, padding=1)
    finally:
        lucid.set_float32_matmul_precision("highest")
    assert (F.conv2d(x, w, padding=1) == exact).all() and (quick != exact).any()


def test_a_profiler_sees_the_ops() -> None:
    x = lucid.ones(2, 3)
    for _ in range(4):
        x.sum(1)
    with lucid.profiler.profile() as profile:
        x.sum(1)
    assert "sum" in [event.key for event in profile.key_averages()]


def test_a_call_is_recorded_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may ask for another call before one that is missing is recorded."""
    record, x = core.record_call, lucid.arange(3.0)

    def recorded(*args: Any) -> Any:
        core.call(type(x).amax.__wrapped__, (x,), {})
        return record(*args)

    monkeypatch.setattr(core, "record_call", recorded)
    for _ in range(4):
        assert x.sum().item() == 3
    monkeypatch.undo()
    for _ in range(4):
        assert x.amax().item() == 2 and x.sum().item() == 3


def test_a_leaf_is_not_written_where_gradients_are_recorded() -> None:
    x, y = lucid.zeros(2), lucid.zeros(2)
    for _ in range(4):
        x.add_(1)
        y[0] = 1.0
    for leaf in (x.requires_grad_(), y.requires_grad_()):
        before = leaf.tolist()
        with pytest.raises(lucid.LucidError, match="a leaf Variable that requires grad"):
            leaf.add_(1)
        with pytest.raises(lucid.LucidError, match="a view of a leaf Variable"):
            leaf[0] = 1.0
        assert leaf.tolist() == before
    z = lucid.zeros(4)
    for _ in range(4):
        z[:2].add_(1)
    with lucid.no_grad():
        view = z.requires_grad_()[:2]
    with pytest.raises(lucid.LucidError, match="A view was created in no_grad mode"):
        view.add_(1)


def test_a_write_is_seen_by_what_was_saved() -> None:
    for _ in range(4):
        x, w = lucid.ones(2, requires_grad=True), lucid.ones(2)
        y = (x * w).sum()
        w.mul_(2.0)
        with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
            y.backward()


def test_read_only_and_repeated_memory_is_not_written() -> None:
    for _ in range(4):
        lucid.zeros(3).add_(1.0)
        lucid.zeros(6)[::2].add_(1.0)
        lucid.zeros(7)[1:].unfold(0, 2, 3).add_(1.0)
        expanded = lucid.zeros(1).expand(3)
        with pytest.raises(lucid.LucidError, match="more than one element"):
            lucid.zeros(3).unfold(0, 2, 1).add_(1.0)
        with pytest.raises(lucid.LucidError, match="more than one element"):
            expanded.add_(1.0)
        with pytest.raises(lucid.LucidError, match="more than one element"):
            expanded[1:].zero_()
        fixed = np.zeros(3, np.float32)
        fixed.flags.writeable = False
        with pytest.raises(lucid.LucidError, match="read-only"):
            lucid.from_numpy(fixed).add_(1.0)


def test_nothing_is_kept_alive() -> None:
    x, y = lucid.ones(2, 3), lucid.ones(2, 3)
    kept = [weakref.ref(tensor) for tensor in (x, y)]
    for _ in range(4):
        x + y, x.sum(1), x[0], x.max(1), x.add_(y), x.__setitem__(0, 1.0), lucid.cat([x, y])
    del x, y
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_no_reference_is_lost_or_left() -> None:
    x, y, at = operands(True, "row-major")
    pairs = [(call, (x, y, at)) for call in CALLS.values()]
    plain = operands(False, "row-major")
    pairs += [(call, plain) for call in [*CALLS.values(), *WRITES.values()]]
    watched = [None, True, x, y, at, *plain, x._type, lucid.float32, ..., core.LEFT, core.MISSED]

    def run(times: int) -> list[int]:
        for _ in range(times):
            for call, given in pairs:
                outcome(call, given)
        gc.collect()
        return [sys.getrefcount(value) for value in watched]

    before = run(100)  # by then all calls have their records
    after = run(30)
    assert np.abs(np.subtract(after, before)).max() < 25
    assert found is not None
    assert max(sys.getrefcount(x) for x in found.calls._records if x is not None) < 10


def test_more_calls_than_the_table_holds() -> None:
    assert found is not None
    x = lucid.arange(4.0)
    for _ in range(3):
        for n in range(3 * calls.MOST):
            assert (x + n)[3].item() == 3 + n
    assert sum(record is not None for record in found.calls._records) <= calls.MOST + 8


def test_threads_record_at_the_same_time() -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = lucid.full((3,), float(seed))
        for n in range(300):
            if (x + n).tolist() != [seed + n] * 3 or x[n % 3].item() != seed:
                wrong.append((seed, n))
            with lucid.no_grad():
                x.mul_(1.0)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_interrupt_in_an_op_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lucid.arange(4.0).view(2, 2).T

    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    for _ in range(4):
        x.softmax(0)
    monkeypatch.setattr(sys.modules["lucid.tensor.applied"], "row_major", stopped)
    with pytest.raises(KeyboardInterrupt):
        x.softmax(0)
    monkeypatch.undo()
    assert x.softmax(0).sum().item() == pytest.approx(2.0)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("wants", [False, True])
def test_a_program_in_a_call_is_machine_codes(
    wants: bool, is_transposed: bool, by_machine: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tensor and its node as well, with all that Python gives them."""
    x = lucid.tensor(MATRIX).requires_grad_(wants)
    w, b = lucid.ones(5), lucid.zeros(5).requires_grad_(wants)

    def run() -> tuple[Any, ...]:
        given = (x * 1.0).T.contiguous().T if is_transposed else x * 1.0
        normed, chosen = F.layer_norm(given, (5,), w, b), F.softmax(given, -1)
        facts = seen(normed), seen(chosen)
        if not wants:
            return facts
        saved = [[*map(seen, y.grad_fn.saved_tensors)] for y in (normed, chosen)]
        names = [sorted(vars(y.grad_fn)) for y in (normed, chosen)]
        (found,) = lucid.autograd.grad((normed * chosen).sum(), x)
        return *facts, saved, names, seen(found)

    expected = in_python(monkeypatch, run)
    for _ in range(MOST_TIMES):
        run()
    with monkeypatch.context() as patched:
        patched.setattr(calls, "call_natively", None)
        assert repr(run()) == repr(expected)
    (x[0, 0] if not wants else x.detach()[0, 0]).fill_(2.0)
    assert repr(run()) == repr(in_python(monkeypatch, run))


def test_a_program_runs_op_by_op_where_somebody_may_see_inside() -> None:
    x = lucid.tensor(MATRIX).requires_grad_()
    for _ in range(MOST_TIMES):
        y = F.softmax(x, -1)
    packed: list[Any] = []
    with lucid.autograd.graph.saved_tensors_hooks(packed.append, lambda _: y.detach()):
        F.softmax(x, -1)
    assert packed
    with lucid.autograd.detect_anomaly(check_nan=False):
        assert F.softmax(x, -1).grad_fn._native is None
    with native.op_by_op():
        assert F.softmax(x, -1).grad_fn._native is None
    assert F.softmax(x, -1).grad_fn._native is not None


def test_what_comes_a_few_times_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as many calls: an index that is drawn would be recorded for nothing."""
    assert found is not None
    found._plan[Common.TIMES] = MOST_TIMES
    recorded: list[Any] = []
    record = core.record_call
    monkeypatch.setattr(core, "record_call", lambda *a: recorded.append(a) or record(*a))
    x = lucid.arange(400.0)
    for _ in range(MOST_TIMES):
        for n in range(400):
            assert x[n].item() == n
    assert not recorded
    for _ in range(MOST_TIMES + 2):  # another key of its slot may have taken its count
        assert x[5].item() == 5
    assert len(recorded) == 1


def test_parts_with_one_history_are_machine_codes(by_machine: Watched) -> None:
    x = lucid.tensor(MATRIX).requires_grad_()
    for _ in range(MOST_TIMES):
        x.chunk(2)
    before = by_machine.count
    first, second = x.chunk(2)
    assert by_machine.count == before + 1
    assert first.grad_fn is second.grad_fn
    (first.sum() + 2 * second.sum()).backward()
    assert x.grad is not None
    assert x.grad[:, 0].tolist() == [1, 1, 2, 2]


def test_strides_are_part_of_what_a_call_is_known_by(by_machine: Watched) -> None:
    """A view of a part is machine code's; one that can't be is refused, whatever came before."""
    part, turned = lucid.zeros(4, 9).split(3, 1)[1], lucid.zeros(3, 4).T
    for _ in range(MOST_TIMES):
        assert part.view(2, 2, 3).stride() == (18, 9, 1)
    before = by_machine.count
    assert part.view(2, 2, 3).stride() == (18, 9, 1)
    assert by_machine.count > before
    with pytest.raises(lucid.ShapeError, match="not compatible"):
        turned.view(2, 6)


LAYERS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "Linear": lambda: (nn.Linear(5, 3), (4, 5)),
    "Conv1d": lambda: (nn.Conv1d(2, 3, 3, padding=1), (1, 2, 5)),
    "LayerNorm": lambda: (nn.LayerNorm(5), (4, 5)),
    "GroupNorm": lambda: (nn.GroupNorm(2, 4), (2, 4, 3)),
    "ConstantPad1d": lambda: (nn.ConstantPad1d(1, 0.5), (2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_comes_again_is_machine_codes(name: str, by_machine: Watched) -> None:
    layer, shape = LAYERS[name]()
    x = lucid.ones(shape)
    for _ in range(MOST_TIMES):
        expected = seen(layer(x))[:-1]
    before = by_machine.count
    assert seen(layer(x))[:-1] == expected
    assert by_machine.count > before


def test_statistics_of_batches_move_by_machine_code(
    by_machine: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [lucid.randn(6, 3) for _ in range(8)]

    def moved() -> list[bytes]:
        norm = nn.BatchNorm1d(3)
        for batch in batches:
            by_machine.count = 0
            norm(batch)
        return [buffer.numpy().tobytes() for buffer in norm.buffers()]

    expected = in_python(monkeypatch, moved)
    assert moved() == expected
    assert by_machine.count >= 3  # the count of batches, the mean and the variance
