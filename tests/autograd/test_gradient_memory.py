"""The memory of first gradients: the one that arrived, where nobody else holds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn


def arrives_at(leaf: Tensor) -> list[int]:
    """The addresses of the gradients that arrive from now on."""
    addresses: list[int] = []
    leaf.register_hook(lambda gradient: addresses.append(gradient.data_ptr()))
    return addresses


def test_a_gradient_that_nobody_else_holds_is_not_copied() -> None:
    """For an embedding's weight the copy took as long as all the rest of backward."""
    net = nn.Embedding(5, 3)
    addresses = arrives_at(net.weight)
    net(lucid.tensor([1, 1, 4])).sum().backward()
    assert net.weight.grad is not None
    assert [net.weight.grad.data_ptr()] == addresses
    np.testing.assert_array_equal(net.weight.grad[:, 0], [0.0, 2.0, 0.0, 0.0, 1.0])


def kept_tensor(gradient: Tensor) -> Any:
    return gradient


def kept_alias(gradient: Tensor) -> Any:
    return gradient.detach()


def kept_array(gradient: Tensor) -> Any:
    return gradient.numpy()


def kept_view(gradient: Tensor) -> Any:
    return gradient[1:]


def kept_row(gradient: Tensor) -> Any:
    return gradient.numpy()[:1]


@pytest.mark.parametrize("keep", [kept_tensor, kept_alias, kept_array, kept_view, kept_row])
def test_a_gradient_that_a_hook_has_kept_is_copied(keep: Any) -> None:
    x = lucid.ones(3, requires_grad=True)
    kept: list[Any] = []
    x.register_hook(lambda gradient: kept.append(keep(gradient)))
    (x * 2).sum().backward()
    before = np.array(kept[0])
    assert x.grad is not None
    x.grad.zero_()
    np.testing.assert_array_equal(kept[0], before)


def test_leaves_that_get_one_gradient_have_memory_of_their_own() -> None:
    x, y = (lucid.ones(3, requires_grad=True) for _ in range(2))
    ((x + y) * lucid.ones(3)).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    x.grad.zero_()
    np.testing.assert_array_equal(y.grad, [1.0, 1.0, 1.0])


def test_a_gradient_that_the_graph_or_the_caller_holds_is_copied() -> None:
    class Saved(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(w)
            return (x * w).sum()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return ctx.saved_tensors[0], None

    x, w, start = lucid.ones(3, requires_grad=True), lucid.full((3,), 2.0), lucid.ones(3)
    Saved.apply(x, w).backward()
    assert x.grad is not None
    x.grad.zero_()
    np.testing.assert_array_equal(w, [2.0, 2.0, 2.0])

    y = lucid.ones(3, requires_grad=True)
    y.backward(start)
    assert y.grad is not None
    y.grad.zero_()
    np.testing.assert_array_equal(start, [1.0, 1.0, 1.0])


def test_hooks_of_the_accumulating_node_may_keep_what_they_get() -> None:
    x = lucid.ones(3, requires_grad=True)
    y = x * 2
    node = y.grad_fn.next_functions[0][0]
    kept: list[Any] = []
    node.register_hook(lambda _, gradients: kept.append(gradients[0]))
    node.register_prehook(lambda gradients: kept.append(gradients[0]))
    y.sum().backward()
    assert x.grad is not None
    x.grad.zero_()
    for gradient in kept:
        np.testing.assert_array_equal(gradient, [2.0, 2.0, 2.0])


def test_a_gradient_that_was_written_counts_its_versions_from_the_start() -> None:
    x = lucid.ones(3, requires_grad=True)
    x.register_hook(lambda gradient: gradient.mul_(2))
    (x * 2).sum().backward()
    assert x.grad is not None
    assert (x.grad._version, x.grad.tolist()) == (0, [4.0, 4.0, 4.0])


def test_a_gradient_that_shows_another_ones_memory_says_so():
    x = lucid.arange(6.0, requires_grad=True)
    y = x.reshape(2, 3)
    of_y, of_x = lucid.autograd.grad((y * y).sum(), (y, x))
    version = of_y._version
    of_x.mul_(2.0)
    shares = of_y.tolist() != [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    assert shares == (of_y._version > version)
