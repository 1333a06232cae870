"""A model compiled alone: its backward reads what the forward has kept."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function


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


def joint_of(model: Any) -> Any:
    return model._latest_program().joint


def residuals_of(result: lucid.Tensor) -> Any:
    """What a call keeps for the backward of its result."""
    return result.grad_fn._history._residuals  # type: ignore[union-attr]


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
    assert joint_of(model).count > 0
    assert model.stats.traces == 1


def prepared(name: str = "mlp") -> tuple[Any, nn.Module, lucid.Tensor]:
    """A model whose backward was seen, so that it keeps residuals."""
    make, size = MODELS[name]
    lucid.manual_seed(0)
    net = make()
    model = lucid.compile(net)
    train(model, net, size, 2)
    assert joint_of(model) is not None
    net.zero_grad()
    x = lucid.randn(size).requires_grad_()
    assert residuals_of(model(x))
    return model, net, x


def eager_gradients(net: nn.Module, x: lucid.Tensor) -> list[np.ndarray]:
    net.zero_grad()
    (net(x) * 2).sum().backward()
    return [p.grad.numpy().copy() for p in net.parameters()]


def assert_gradients(net: nn.Module, expected: list[np.ndarray], times: float = 1) -> None:
    for p, e in zip(net.parameters(), expected, strict=True):
        np.testing.assert_allclose(p.grad, times * e, rtol=2e-5, atol=2e-6)


def test_the_backward_makes_no_product_of_the_forward_again() -> None:
    model, _, _ = prepared()
    stages = model.stages
    assert stages["residuals"].startswith("kept      %")
    assert stages["forward half"].count("= matmul") == 2
    assert stages["backward half"].count("= matmul") == 4  # two for each layer, input included


def test_two_calls_keep_their_own_residuals() -> None:
    model, net, x = prepared()
    expected = [eager_gradients(net, x), eager_gradients(net, x + 1)]
    net.zero_grad()
    first, second = model(x), model((x + 1).detach().requires_grad_())
    assert residuals_of(first) and residuals_of(second)
    (first * 2).sum().backward()
    assert_gradients(net, expected[0])
    net.zero_grad()
    (second * 2).sum().backward()
    assert_gradients(net, expected[1])


def test_a_result_that_is_written_before_the_backward_is_no_residual() -> None:
    """The softmax saves its result: eager mode refuses; the linear layer doesn't."""
    model, net, x = prepared()
    expected = eager_gradients(net, x)
    net.zero_grad()
    y = model(x)
    loss = (y * 2).sum()
    with lucid.no_grad():
        y.zero_()
    loss.backward()
    assert_gradients(net, expected)
    model, net, x = prepared("softmax")
    y = model(x)
    loss = y.sum()
    with lucid.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_weight_that_is_written_before_the_backward_is_found_out() -> None:
    model, net, x = prepared()
    loss = model(x).sum()
    with lucid.no_grad():
        net[2].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_bias_that_nobody_saved_may_be_written_before_the_backward() -> None:
    model, net, x = prepared()
    expected = eager_gradients(net, x)
    net.zero_grad()
    loss = (model(x) * 2).sum()
    with lucid.no_grad():
        net[0].bias.add_(3)
    loss.backward()
    assert_gradients(net, expected)


def test_a_backward_that_needs_a_copy_leaves_joining_to_a_later_one() -> None:
    make, size = MODELS["mlp"]
    net = make()
    model, x = lucid.compile(net), lucid.randn(size)
    for number in range(4):
        y = model(x).sum()
        if number == 1:
            with lucid.no_grad():
                net[0].bias.add_(1)  # type: ignore[index]
        y.backward()
        assert (joint_of(model) is not None) == (number >= 2)


def test_a_graph_that_is_kept_is_walked_again() -> None:
    model, net, x = prepared()
    expected = eager_gradients(net, x)
    net.zero_grad()
    loss = (model(x) * 2).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert_gradients(net, expected, times=2)
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


def test_second_derivatives_run_the_forward_again() -> None:
    model, net, x = prepared("batch norm")
    twin = copy.deepcopy(net)
    results = []
    for function in (model, twin):
        y = function(x)
        (g,) = lucid.autograd.grad((y * y).sum(), x, create_graph=True)
        results.append(lucid.autograd.grad((g * g).sum(), x)[0].numpy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_gradients_of_some_leaves_only_are_right_too() -> None:
    model, net, x = prepared()
    expected = eager_gradients(net, x)
    for _ in range(2):
        (found,) = lucid.autograd.grad((model(x) * 2).sum(), net[0].weight)
        np.testing.assert_allclose(found, expected[0], rtol=2e-5, atol=2e-6)


def test_residuals_go_with_the_backward_and_with_the_result() -> None:
    model, _, x = prepared()
    for walk in (True, False):
        y = model(x)
        residual = weakref.ref(residuals_of(y)[0])
        assert residual() is not None
        if walk:
            y.sum().backward()
        else:
            del y
        gc.collect()
        assert residual() is None


def test_nothing_is_kept_where_no_gradient_can_be_asked_for() -> None:
    model, _, x = prepared()
    with lucid.no_grad():
        y = model(x)
    assert y.grad_fn is None
    assert model._latest_program().joint is None


def test_a_model_that_changed_over_computes_the_same_bits() -> None:
    """From the third call on the halves run; before, the forward ran twice."""
    lucid.manual_seed(0)
    net = MODELS["attention"][0]()
    model, x = lucid.compile(net), lucid.randn(2, 5, 8)
    found = []
    for _ in range(4):
        net.zero_grad()
        model(x).sum().backward()
        found.append([p.grad.numpy().copy() for p in net.parameters()])
    assert joint_of(model) is not None
    for later in found[1:]:
        for a, b in zip(found[0], later, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_profile_and_a_check_of_a_model_alone_still_work() -> None:
    model, _, x = prepared()
    assert model.profile(x).rows
    assert "agree" in str(model.check(x)) or model.check(x)
    model(x).sum().backward()


def test_host_functions_run_as_before() -> None:
    class OnHost(Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            return lucid.from_numpy(np.sin(x.numpy()))

        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
            return g * 2

    w = lucid.ones(3, requires_grad=True)
    model = lucid.compile(lambda x: OnHost.apply(x * w).exp())
    for _ in range(3):
        w.grad = None
        model(lucid.ones(3)).sum().backward()
        np.testing.assert_allclose(w.grad, np.full(3, 2 * np.exp(np.sin(1))), rtol=1e-6)
    assert joint_of(model) is None


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
    assert joint_of(loss) is not None


def test_hyper_parameters_are_the_same_in_both_halves() -> None:
    """eps is a live number of the step, and handed on to its backward: both have the same one."""
    model, net, x = prepared("attention")
    assert model.stages["backward half"].count("rsqrt") == 0
    expected = eager_gradients(net, x)
    for _ in range(2):
        net.zero_grad()
        (model(x) * 2).sum().backward()
        assert_gradients(net, expected)
        net[0].norm.eps = 0.5  # type: ignore[union-attr]
        expected = eager_gradients(net, x)
