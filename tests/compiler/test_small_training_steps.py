"""Small steps that leave gradients, as people write them, looked at in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.autograd import grad

Compile = Callable[..., Any]
STEPS: dict[str, Callable[[Compile], Any]] = {}


def scenario(function: Callable[[Compile], Any]) -> Callable[[Compile], Any]:
    STEPS[function.__name__] = function
    return function


def numbers(*values: float) -> lucid.Tensor:
    return lucid.tensor([float(value) for value in values])


def shared(*tensors: Any) -> list[bool]:
    """Which pairs share memory."""
    arrays = [x.detach().numpy() if isinstance(x, lucid.Tensor) else x for x in tensors]
    return [bool(np.shares_memory(a, b)) for i, a in enumerate(arrays) for b in arrays[:i]]


# ---------------------------------------------------------------------- gradients


@scenario
def gradients_come_back(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x):
        loss = (w * x).pow(2).sum()
        loss.backward()
        return w.grad, w.grad.clone(), w.grad[0], loss.detach()

    found = [step(numbers(1, 1)), step(numbers(1, 1))]
    return [found, found[0][0] is found[1][0], found[1][0] is w.grad, shared(w.grad, found[1][2])]


@scenario
def gradients_by_grad_come_back(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x):
        return grad((w * x).pow(3).sum(), [w], create_graph=True)

    (first,) = step(numbers(1, 2))
    (second,) = grad(first.sum(), w)
    return [first, second, w]


@scenario
def hooks_on_tensors_of_the_step(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x):
        y = w * x
        y.register_hook(lambda g: g * 10)
        loss = (y * y).sum()
        loss.backward()
        return y.detach(), loss.detach()

    return [step(numbers(1, 1)), w]


@scenario
def hooks_on_results_that_are_differentiated_outside(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x):
        y = w * x
        y.register_hook(lambda g: g * 10)
        return y, (y * y).sum()

    y, loss = step(numbers(1, 1))
    loss.backward()
    (step(numbers(1, 1))[0]).sum().backward()
    return [w, y.detach()]


@scenario
def hooks_on_parameters(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))
    handle = w.register_hook(lambda g: g * 2)
    step = compile(lambda x: (w * x).sum().backward())
    step(numbers(1, 1))
    handle.remove()
    step(numbers(1, 1))
    return [w]


@scenario
def a_leaf_argument(compile: Compile) -> Any:
    step = compile(lambda leaf: ((leaf * leaf).sum().backward(), leaf.grad))
    leaf = numbers(1, 2).requires_grad_()
    found = [step(leaf)[1] for _ in range(3)]
    return [leaf, found[0] is found[2], found[2] is leaf.grad]


@scenario
def an_argument_with_a_history(compile: Compile) -> Any:
    leaf = numbers(1, 2).requires_grad_()
    step = compile(lambda h: (h * h).sum().backward())
    for _ in range(2):
        step(leaf * 3)
    return [leaf]


@scenario
def an_argument_with_a_history_differentiated_outside(compile: Compile) -> Any:
    leaf = numbers(1, 2).requires_grad_()
    step = compile(lambda h: (h.sin(), h))
    hidden = leaf * 3
    result, same = step(hidden)
    result.sum().backward()
    return [leaf, same is hidden, result.is_leaf]


@scenario
def freezing_and_unfreezing(compile: Compile) -> Any:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    step = compile(lambda x: model(x).sum().backward())
    for flag in (True, False, True):
        model[0].requires_grad_(flag)
        step(lucid.ones(1, 2))
    return [model]


@scenario
def gradients_set_to_none_by_hand(compile: Compile) -> Any:
    v, w = nn.Parameter(numbers(1, 2)), nn.Parameter(numbers(3))
    step = compile(lambda: (v * w).sum().backward())
    found = []
    for i in range(5):
        step()
        found.append([v.grad.clone(), w.grad.clone()])
        if i % 2:
            (v, w)[i // 2].grad = None
    return [found, v, w]


@scenario
def gradients_held_while_they_grow(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))
    step = compile(lambda x: (w * x).sum().backward())
    step(numbers(1, 1))
    held, address = w.grad, w.grad.data_ptr()
    for _ in range(3):
        step(numbers(1, 2))
    return [held, held is w.grad, address == w.grad.data_ptr(), held._version]


@scenario
def gradients_replaced_by_the_user(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))
    step = compile(lambda x: (w * x).sum().backward())
    whole = lucid.zeros(6)
    found = []
    for mine in (numbers(5, 5), whole[1:3], whole[::3], w.detach().clone()):
        w.grad = mine
        step(numbers(1, 2))
        step(numbers(1, 2))
        found.append([mine.clone(), w.grad is mine])
    return [found, whole]


@scenario
def one_gradient_on_two_leaves(compile: Compile) -> Any:
    v, w = nn.Parameter(numbers(1, 2)), nn.Parameter(numbers(3, 4))
    v.grad = w.grad = lucid.zeros(2)
    step = compile(lambda: (v + 2 * w).sum().backward())
    step()
    return [v, w, v.grad is w.grad]


@scenario
def zeroed_gradients_keep_their_memory(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))
    optimizer = lucid.optim.SGD([w], lr=0.1)

    @compile
    def step(x):
        optimizer.zero_grad(set_to_none=False)
        (w * x).sum().backward()
        optimizer.step()

    step(numbers(1, 1))
    held = w.grad
    for i in range(3):
        step(numbers(i, 1))
    return [held is w.grad, held, w]


@scenario
def an_empty_parameter(compile: Compile) -> Any:
    w, empty = nn.Parameter(numbers(1)), nn.Parameter(lucid.zeros(0, 3))
    step = compile(lambda: (w.sum() + empty.sum()).backward())
    for _ in range(3):
        step()
    return [w, empty]


@scenario
def accumulation_over_micro_batches(compile: Compile) -> Any:
    model = nn.Linear(2, 1)
    optimizer = lucid.optim.Adam(model.parameters(), lr=0.1)

    @compile
    def accumulate(x, is_last):
        loss = model(x).square().mean() / 2
        loss.backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    losses = [accumulate(lucid.ones(3, 2) * i, i % 2 == 1).detach() for i in range(4)]
    return [losses, model]


@scenario
def clipping(compile: Compile) -> Any:
    model = nn.Linear(2, 1)

    @compile
    def step(x):
        model.zero_grad()
        model(x).sum().backward()
        return nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    return [step(lucid.ones(3, 2)), model]


@pytest.mark.parametrize("name", STEPS)
def test_a_small_step_gives_what_it_gives_in_eager_mode(agree: Any, name: str) -> None:
    agree(STEPS[name])
