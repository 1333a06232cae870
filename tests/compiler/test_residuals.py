"""A model compiled alone: each call keeps what its backward needs, and that is compiled as well."""

from __future__ import annotations

import copy
import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function, grad


class Cubed(Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        square = x * x
        ctx.save_for_backward(x, square)
        return square * x

    @staticmethod
    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        _, square = ctx.saved_tensors
        return 3 * square * g


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + lucid.softmax(q @ k.transpose(-1, -2), -1) @ v


class Branches(nn.Module):
    """Several results, one of which isn't used."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        h = lucid.tanh(self.a(x))
        return {"h": h, "y": Cubed.apply(self.b(h))}["y"]


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), (5, 6)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh()), (5, 6)),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.4), nn.Linear(9, 3)), (5, 6)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten()),
        (3, 2, 8, 8),
    ),
    "attention": (lambda: nn.Sequential(Attention(), Attention()), (2, 5, 8)),
    "a custom function": (Branches, (5, 6)),
    "softmax": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Softmax(-1)), (5, 6)),
}  # fmt: skip


def kept_by(result: lucid.Tensor) -> list[Any]:
    """What a call keeps for the backward of its result."""
    kept: list[Any] = result.grad_fn._record._kept  # type: ignore[union-attr]
    return kept


def backwards_of(result: lucid.Tensor) -> list[Any]:
    """The compiled functions that have computed gradients of such a result."""
    return [*result.grad_fn._record.rule._kinds.values()]  # type: ignore[union-attr]


def train(model: Any, net: nn.Module, size: tuple[int, ...], steps: int = 4) -> list[np.ndarray]:
    """Gradients of parameters and input, and parameters, after each step of a loop."""
    lucid.manual_seed(1)
    opt = lucid.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    found = []
    for _ in range(steps):
        x = lucid.randn(size).requires_grad_()
        opt.zero_grad()
        y = model(x)
        (y * y).mean().backward()
        found += [p.grad.numpy().copy() for p in (x, *net.parameters())]
        opt.step()
        found += [p.detach().numpy().copy() for p in (*net.parameters(), *net.buffers())]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_eager_mode(name: str) -> None:
    make, size = MODELS[name]
    lucid.manual_seed(0)
    net = make()
    twin = copy.deepcopy(net)
    model = lucid.compile(net)
    for a, b in zip(train(model, net, size), train(twin, twin, size), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert model.stats.traces == 1
    (backward,) = backwards_of(model(lucid.randn(size).requires_grad_()))
    assert backward.stats.traces == 1


def prepared(name: str = "mlp") -> tuple[Any, nn.Module, lucid.Tensor]:
    """A model, compiled, and an input for it."""
    make, size = MODELS[name]
    lucid.manual_seed(0)
    net = make()
    return lucid.compile(net), net, lucid.randn(size).requires_grad_()


def eager_gradients(net: nn.Module, x: lucid.Tensor) -> list[np.ndarray]:
    net.zero_grad()
    (net(x) * 2).sum().backward()
    found = [p.grad.numpy().copy() for p in net.parameters()]
    net.zero_grad()
    return found


def assert_gradients(net: nn.Module, expected: list[np.ndarray], times: float = 1) -> None:
    for p, e in zip(net.parameters(), expected, strict=True):
        np.testing.assert_allclose(p.grad, times * e, rtol=2e-5, atol=2e-6)


def test_the_backward_makes_no_product_of_the_forward_again() -> None:
    model, _, x = prepared()
    y = model(x)
    assert model.stages["residuals"].startswith("kept      ")
    assert model.stages["optimize"].count("= matmul") == 2
    y.sum().backward()
    (backward,) = backwards_of(y)
    assert backward.stages["optimize"].count("= matmul") == 4  # two for each layer, with the input
    assert model.stages["backward"] == backward.stages["trace"]


def test_residuals_are_decided_when_the_forward_is_traced() -> None:
    """There is no warm-up: the first call keeps what all others do."""
    model, _, x = prepared()
    first, second = model(x), model(x)
    assert [kept.shape for kept in kept_by(first)] == [kept.shape for kept in kept_by(second)]
    assert [kept.shape for kept in kept_by(first)] == [(5, 6), (5, 9)]
    assert kept_by(first)[0] is x._storage.array
    assert kept_by(first)[1] is not kept_by(second)[1]


def test_what_a_custom_function_saved_is_kept_or_computed_again() -> None:
    """Of `y` and `y * y` only one is kept; `sin(y)`, an attribute, costs more than it weighs."""

    class Weighted(Function):
        @staticmethod
        def forward(ctx: Any, y: lucid.Tensor) -> lucid.Tensor:
            ctx.save_for_backward(y, y * y)
            ctx.wave = y.sin()
            return y * y * ctx.wave

        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
            y, square = ctx.saved_tensors
            return g * (2 * y * ctx.wave + square * y.cos())

    def scaled(x: lucid.Tensor) -> lucid.Tensor:
        return Weighted.apply(x @ w)

    w = nn.Parameter(lucid.randn(4, 3))
    model, x = lucid.compile(scaled), lucid.randn(5, 4)
    y = model(x)
    text = re.sub(r"  test_residuals.py:\d+", "", model.stages["residuals"])
    assert text.split("\n") == [
        "kept      matmul : f32[5,3], 60 bytes",
        "kept      sin : f32[5,3], 60 bytes",
        "repeated  mul : f32[5,3], work of 15 bytes",
    ]
    y.sum().backward()
    found = w.grad
    w.grad = None
    scaled(x).sum().backward()
    np.testing.assert_allclose(found, w.grad, rtol=1e-5, atol=1e-6)


def test_two_calls_keep_their_own_residuals() -> None:
    model, net, x = prepared()
    expected = [eager_gradients(net, x), eager_gradients(net, x + 1)]
    first, second = model(x), model((x + 1).detach().requires_grad_())
    (first * 2).sum().backward()
    assert_gradients(net, expected[0])
    net.zero_grad()
    (second * 2).sum().backward()
    assert_gradients(net, expected[1])


def written(tensor: lucid.Tensor) -> None:
    with lucid.no_grad():
        tensor.mul_(2)


WRITTEN: dict[str, tuple[str, Callable[[Any, Any, Any], lucid.Tensor]]] = {
    "a result that is not saved": ("mlp", lambda net, x, y: y),
    "a result that is saved": ("softmax", lambda net, x, y: y),
    "an input": ("mlp", lambda net, x, y: x),
    "a weight that is saved": ("mlp", lambda net, x, y: net[2].weight),
    "a weight that is not saved": ("softmax", lambda net, x, y: net[0].weight),
    "a bias": ("mlp", lambda net, x, y: net[0].bias),
    "a buffer": ("batch norm", lambda net, x, y: net[1].running_mean),
    "a bias that is computed with again": ("attention", lambda net, x, y: net[0].norm.bias),
}


@pytest.mark.parametrize("has_input_grad", [True, False])
@pytest.mark.parametrize("case", WRITTEN)
def test_what_is_written_between_call_and_backward(agree: Any, case: str, has_input_grad: bool):
    """An error where a node has saved it, with eager mode's text; else it makes no difference."""
    name, choose = WRITTEN[case]

    def scenario(compile: Any) -> Any:
        make, size = MODELS[name]
        net = make()
        model, found = compile(net), []
        for number in range(3):
            x = lucid.randn(size).requires_grad_(has_input_grad)
            y = model(x)
            if number:
                written(choose(net, x, y))
            try:
                y.sum().backward()
            except lucid.LucidError as error:
                found.append(str(error).partition("\n")[0])
        return [found, net]

    agree(scenario, traces=1)


def test_a_graph_that_is_kept_is_walked_again() -> None:
    model, net, x = prepared()
    expected = eager_gradients(net, x)
    y = model(x)
    loss = (y * 2).sum()
    loss.backward(retain_graph=True)
    assert kept_by(y)
    loss.backward()
    assert_gradients(net, expected, times=2)
    assert not kept_by(y)
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


@pytest.mark.parametrize("name", MODELS)
def test_second_derivatives_are_those_of_eager_mode(name: str) -> None:
    make, size = MODELS[name]
    lucid.manual_seed(0)
    net, results = make(), []
    x = lucid.randn(size).requires_grad_()
    for function in (lucid.compile(net), net):
        lucid.manual_seed(5)
        y = function(x)
        (g,) = grad((y * y).sum(), x, create_graph=True)
        net.zero_grad()
        (g * g).sum().backward(inputs=[x, *net.parameters()])
        results.append([None if t.grad is None else t.grad.clone() for t in (x, *net.parameters())])
        x.grad = None
    for found, expected in zip(*results, strict=True):
        assert (found is None) == (expected is None)
        if expected is not None:
            # of a bias in front of a batch norm it is rounding alone
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_each_choice_of_leaves_has_a_backward_of_its_own() -> None:
    model, net, x = prepared()
    expected = eager_gradients(net, x)
    for _ in range(2):
        y = model(x)
        for number in (0, 3):
            (found,) = grad((y * 2).sum(), [*net.parameters()][number], retain_graph=True)
            np.testing.assert_allclose(found, expected[number], rtol=2e-5, atol=2e-6)
    products = [b.stages["optimize"].count("= matmul") for b in backwards_of(y)]
    assert products == [2, 0]  # of the last bias it is a sum


def test_some_of_the_results_may_have_a_gradient() -> None:
    lucid.manual_seed(0)
    a, b = nn.Linear(4, 3), nn.Linear(4, 3)
    model, x = lucid.compile(lambda x: (a(x).tanh(), b(x).exp())), lucid.randn(5, 4)
    for number in (0, 1, 0):
        for layer in (a, b):
            layer.weight.grad = None
        results = model(x)
        results[number].sum().backward()
        assert [layer.weight.grad is not None for layer in (a, b)] == [number == 0, number == 1]
        assert kept_by(results[0])  # the other one can be differentiated still
        results[1 - number].sum().backward()
        assert not kept_by(results[0])
    (expected,) = grad(b(x).exp().sum(), b.weight)
    np.testing.assert_allclose(b.weight.grad, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("walks", [True, False])
def test_residuals_go_with_the_backward_and_with_the_result(walks: bool) -> None:
    model, _, x = prepared()
    y = model(x)
    record = weakref.ref(y.grad_fn._record)  # type: ignore[union-attr]
    if walks:
        y.sum().backward()
        assert record() is not None
        assert not kept_by(y)
    del y
    gc.collect()
    assert record() is None


@pytest.mark.parametrize("mode", [lucid.no_grad, lucid.inference_mode])
def test_nothing_is_kept_where_no_gradient_can_be_asked_for(mode: Any) -> None:
    model, _, x = prepared()
    with mode():
        y = model(x)
    assert y.grad_fn is None
    assert "residuals" not in model.stages


def test_all_calls_compute_the_same_bits() -> None:
    model, net, x = prepared("attention")
    found = []
    for _ in range(4):
        net.zero_grad()
        model(x).sum().backward()
        found.append([p.grad.numpy().copy() for p in net.parameters()])
    for later in found[1:]:
        for a, b in zip(found[0], later, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_profile_and_a_check_of_a_model_alone_work() -> None:
    model, _, x = prepared()
    assert model.profile(x).rows
    assert "agree" in str(model.check(x))
    model(x).sum().backward()


@pytest.mark.parametrize("half", ["forward", "backward", "both"])
def test_host_functions_in_either_half(agree: Any, half: str) -> None:
    class OnHost(Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            ctx.save_for_backward(x)
            ctx.times = 3.0
            return x.sin() if half == "backward" else lucid.from_numpy(np.sin(x.numpy()))

        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
            (x,) = ctx.saved_tensors
            cos = x.cos() if half == "forward" else lucid.from_numpy(np.cos(x.numpy()))
            return g * cos * ctx.times

    def scenario(compile: Any) -> Any:
        w = lucid.ones(3, requires_grad=True)
        model, found = compile(lambda x: OnHost.apply(x * w).exp()), []
        for number in range(3):
            first, second = model(lucid.ones(3) + number), model(lucid.ones(3) * 0.5)
            second.sum().backward()
            first.sum().backward(retain_graph=True)
            first.sum().backward()
            with pytest.raises(RuntimeError, match="a second time"):
                first.sum().backward()
            found.append(w.grad.clone())
        return found

    agree(scenario)


def test_losses_are_functions_of_their_own() -> None:
    lucid.manual_seed(0)
    net = nn.Linear(4, 3)
    model, loss = lucid.compile(net), lucid.compile(F.cross_entropy)
    x, y = lucid.randn(5, 4), lucid.tensor([0, 2, 1, 1, 0])
    for _ in range(3):
        net.zero_grad()
        loss(model(x), y).backward()
        found = net.weight.grad.clone()
        net.zero_grad()
        F.cross_entropy(net(x), y).backward()
        np.testing.assert_allclose(found, net.weight.grad, rtol=1e-5, atol=1e-6)
    assert loss.stats.traces == model.stats.traces == 1


def test_hyper_parameters_are_the_same_in_both_halves() -> None:
    """eps is a live number of the step; a backward has the one of its call."""
    model, net, x = prepared("attention")
    expected = eager_gradients(net, x)
    for eps in (0.5, 0.25, 0.125):
        net.zero_grad()
        y = model(x)
        net[0].norm.eps = eps  # type: ignore[index, union-attr]
        (y * 2).sum().backward()
        assert_gradients(net, expected)
        expected = eager_gradients(net, x)


def test_numbers_in_ctx_are_those_of_the_call(agree: Any) -> None:
    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor, by: float) -> lucid.Tensor:
            ctx.by, ctx.nested = by, {"half": (by / 2, "text")}
            return x * by

        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> tuple[lucid.Tensor, None]:
            return g * ctx.by + ctx.nested["half"][0], None

    def scenario(compile: Any) -> Any:
        w = nn.Parameter(lucid.tensor([1.0, 2.0]))
        model, found = compile(lambda x, by: Scaled.apply(w * x, by)), []
        for by in (1.0, 2.5, 4.0):
            first, second = model(lucid.ones(2), by), model(lucid.ones(2), by * 3)
            (first.sum() + second.sum() * 2).backward()
            found.append(w.grad.clone())
        return found

    agree(scenario, traces=1)
