"""Arguments of wrong types are named, with their place; `out=` writes into what the user gave."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn import functional as F

x = lucid.arange(6.0).reshape(2, 3)
ARRAY = np.ones((2, 3), np.float32)

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: F.relu("a"), r"relu: argument 'input' \(position 1\) must be Tensor, not str"),
    (lambda: F.linear(x, [1.0]), r"linear: argument 'weight' \(position 2\) .* not list"),
    (lambda: F.softmax(ARRAY, dim=0), r"not ndarray\nhint: lucid.from_numpy\(array\) makes one"),
    (lambda: F.mse_loss(x, None), r"mse_loss: argument 'target' \(position 2\) .* not NoneType"),
    (lambda: F.one_hot([1, 2]), r"one_hot: argument 'tensor' \(position 1\) .* not list"),
    (lambda: x.allclose([1.0]), r"allclose: argument 'other' \(position 2\) must be Tensor"),
    (lambda: lucid.stack(3), r"stack: can't be called with \(int\): 'int' object is not iterable"),
    (lambda: x.add(), r"add: missing a required argument: 'other'\nhint: it is add\(input, other"),
    (lambda: x.mean(foo=1), "mean: got an unexpected keyword argument 'foo'"),
    (lambda: nn.Linear(3, 2)(None), r"Linear.forward: argument 'input' \(position 1\)"),
    (lambda: nn.Conv2d(1, 1, 1)([1.0]), r"Conv2d.forward: argument 'input' .* not list"),
    (lambda: nn.Sequential(nn.Linear(3, 2))(ARRAY), "must be Tensor, not ndarray"),
    (lambda: nn.LSTM(3, 3)("a"), "LSTM.forward: argument 'input' .* not str"),
    (lambda: lucid.max(x, 1, out=x), "max: out= takes 2 tensors, not lucid.Tensor"),
    (lambda: lucid.exp(x, out=ARRAY), "exp: out= takes a Tensor, not ndarray"),
]


@pytest.mark.parametrize(("function", "message"), WRONG)
def test_a_wrong_argument_is_named_with_its_place(
    function: Callable[[], Any], message: str
) -> None:
    with pytest.raises(lucid.ArgumentError, match=message) as found:
        function()
    assert isinstance(found.value, TypeError)


@pytest.mark.parametrize(
    "function",
    [
        nn.Linear(3, 2),
        nn.GRU(3, 2),
        nn.Conv1d(2, 1, 1),
        lambda given: F.linear(given, x),
        lambda given: F.one_hot(given),
        lambda given: lucid.zeros(2, 3).__setitem__(0, given),
    ],
)
def test_an_array_for_a_tensor_is_named_in_a_compiled_step(function: Callable[[Any], Any]) -> None:
    with pytest.raises(lucid.ArgumentError) as expected:
        function(ARRAY)
    with pytest.raises(lucid.ArgumentError) as found:
        lucid.compile(lambda given: function(given))(ARRAY)
    assert str(found.value).split("\n")[0] == str(expected.value).split("\n")[0]


def test_errors_of_the_users_own_code_pass_as_they_are() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.no_such_method()

    with pytest.raises(AttributeError, match="no attribute 'no_such_method'"):
        nn.Sequential(nn.Identity(), Wrong())(x)

    def distance(a: Any, b: Any) -> Any:
        return None + len(a)

    with pytest.raises(TypeError, match="unsupported operand") as found:
        F.triplet_margin_with_distance_loss(x, x, x, distance_function=distance)
    assert not isinstance(found.value, lucid.LucidError)


def test_functions_have_the_names_by_which_they_are_found() -> None:
    for function in (F.relu, lucid.add, lucid.Tensor.addcmul_, lucid.Tensor.random_):
        assert pickle.loads(pickle.dumps(function)) is function
    assert lucid.Tensor.add is lucid.add


class Scaled:
    """Answers for itself, as a wrapper of a unit, or of a weight that is annealed, does."""

    def __rmul__(self, other: lucid.Tensor) -> lucid.Tensor:
        return other * 3

    __radd__ = __rsub__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rmul__
    __rmatmul__ = __rand__ = __gt__ = __lt__ = __ge__ = __le__ = __rmul__  # type: ignore[assignment]


class Words(list[str]):
    """What it inherits is Python's: an operator of a tensor refuses it."""


@pytest.mark.parametrize(
    "operate",
    [
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
        *(operator.mod, operator.matmul, operator.and_),
        *(operator.lt, operator.le, operator.gt, operator.ge),
    ],
)
def test_an_operand_of_the_users_answers_by_its_reflected_method(
    operate: Callable[[Any, Any], Any],
) -> None:
    for run in (operate, lucid.compile(lambda x, scaled: operate(x, scaled))):
        assert run(x, Scaled()).tolist() == (x * 3).tolist()
        with pytest.raises(TypeError, match="not object"):
            run(x, object())
        with pytest.raises(TypeError, match="not Words"):
            run(x, Words("a"))
    with pytest.raises(TypeError, match="not Scaled"):
        lucid.mul(x, Scaled())


def test_out_is_written_and_returned_in_both_modes() -> None:
    def step(total: lucid.Tensor) -> lucid.Tensor:
        returned = lucid.mul(x, 2, out=total)
        assert returned is total
        return total + 1

    for run in (step, lucid.compile(step)):
        total = lucid.zeros(2, 3)
        assert run(total).tolist() == (2 * x + 1).tolist()
        assert total.tolist() == (2 * x).tolist()


def test_out_of_several_results_takes_a_tuple_and_empty_tensors_are_resized() -> None:
    out = (lucid.empty(0), lucid.empty(0, dtype=lucid.int64))
    values, places = lucid.max(x, 1, out=out)
    assert values is out[0]
    assert out[0].tolist() == [2.0, 5.0]
    assert places.tolist() == [2, 2]
    wide = lucid.zeros(3, dtype=lucid.float64)
    lucid.ones(3, out=wide)
    assert wide.tolist() == [1.0, 1.0, 1.0]


def test_what_out_refuses() -> None:
    with pytest.raises(ValueError, match=r"add: out= has shape \[3\], the result \[2, 3\]"):
        lucid.add(x, x, out=lucid.zeros(3))
    with pytest.raises(TypeError, match="can't be cast to the desired output type"):
        lucid.exp(x, out=lucid.zeros(2, 3, dtype=lucid.int64))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        lucid.exp(lucid.ones(2, requires_grad=True), out=lucid.zeros(2))
