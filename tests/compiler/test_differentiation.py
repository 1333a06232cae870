"""Results of compiled functions are differentiated outside of them as eager results are."""

from __future__ import annotations

import re

import pytest
from host_functions import Sine

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function, grad
from lucid.autograd.saved import FREED

LEFT_HOOK = "it registers a hook on a tensor that it is given"


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x**2


def test_a_compiled_forward_in_an_eager_training_loop(agree):
    def scenario(compile):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
        opt = lucid.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        forward, losses = compile(model), []
        for i in range(4):
            opt.zero_grad()
            x = lucid.sin(lucid.arange(15.0).reshape(5, 3) + i)
            loss = F.mse_loss(forward(x), lucid.ones(5, 1))
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        return [losses, model]

    agree(scenario)


def test_custom_backward_and_double_backward(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor([2.0, 3.0]))
        cube = compile(lambda x: Cube.apply(x * w))
        x = lucid.tensor([1.0, -1.0], requires_grad=True)
        y = cube(x).sum()
        (first,) = grad(y, x, create_graph=True)
        (second,) = grad(first.sum(), x, create_graph=True)
        second.sum().backward()
        return [y.detach(), first.detach(), second.detach(), x, w]

    agree(scenario)


def test_part_of_the_outputs(agree):
    def scenario(compile):
        @compile
        def step(x, y):
            return x * y, (x + y).detach(), x.sum(), y * 2

        x, y = lucid.ones(2, requires_grad=True), lucid.full((2,), 3.0, requires_grad=True)
        a, _, total, _ = step(x, y)
        a.sum().backward(retain_graph=True)
        total.backward(retain_graph=True)
        (a * 2).sum().backward()
        return [a.detach(), x, y]

    agree(scenario)


def test_a_second_backward_finds_the_graph_freed(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))
        step = compile(lambda x: (w * w * x).sum())
        loss = step(lucid.ones(2))
        loss.backward()
        with pytest.raises(lucid.LucidError, match=f"^{re.escape(FREED)}\n  in [A-Z]"):
            loss.backward()
        return [w]

    agree(scenario)


def test_what_was_differentiated_inside_is_freed_outside(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))

        @compile
        def step(x):
            loss = (w * w * x).sum()
            loss.backward()
            return loss, w * 2

        loss, other = step(lucid.ones(2))
        flags = [loss.requires_grad, other.requires_grad]
        other.sum().backward()
        with pytest.raises(lucid.LucidError, match=f"^{re.escape(FREED)}\n  in [A-Z]"):
            loss.backward()
        return [flags, loss.detach(), w]

    agree(scenario)


def test_gradients_of_the_state_at_the_call(agree):
    def scenario(compile):
        w, buffer = nn.Parameter(lucid.tensor([2.0])), lucid.tensor([5.0])

        @compile
        def step(x):
            buffer.add_(1)
            return (w * x * buffer.clone()).sum()

        first, second = step(lucid.ones(1)), step(lucid.ones(1))
        first.backward()
        halfway = w.grad.clone()
        second.backward()
        return [first.detach(), second.detach(), halfway, w, buffer]

    agree(scenario)


def assert_refused(loss):
    """What it was computed from has been written once."""
    with pytest.raises(lucid.LucidError) as caught:
        loss.backward()
    assert str(caught.value).partition("\n")[0] == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [FloatTensor [1]] is at version 1; expected version 0 instead."
    )


def test_buffers_written_in_between_are_noticed_where_they_matter(agree):
    def scenario(compile):
        w, factor, shift = nn.Parameter(lucid.ones(1)), lucid.tensor([5.0]), lucid.tensor([1.0])
        step = compile(lambda x: (w * x * factor + shift).sum())
        first = step(lucid.ones(1))
        shift.add_(1)
        first.backward()
        second = step(lucid.ones(1))
        factor.add_(1)
        assert_refused(second)
        return [first.detach(), second.detach(), w]

    agree(scenario)


def test_state_written_in_between_is_noticed(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor([2.0]))
        step = compile(lambda x: (w * w * x).sum())
        loss = step(lucid.ones(1))
        with lucid.no_grad():
            w.add_(1)
        assert_refused(loss)
        return [w]

    agree(scenario)


def test_dropout_is_the_same_in_forward_and_backward(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(50))
        step = compile(lambda x: F.dropout(w * x, 0.5))
        y = step(lucid.ones(50))
        y.sum().backward()
        assert ((w.grad != 0) == (y != 0)).all().item()
        return [y.detach(), w, lucid.rand(2)]

    agree(scenario)


def test_autograd_grad_inside(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor([2.0, 3.0]))

        @compile
        def penalty(x):
            y = (w * x).pow(3).sum()
            (g,) = grad(y, w, create_graph=True)
            loss = y + g.square().sum()
            w.grad = None
            loss.backward()
            return loss.detach(), g.detach()

        return [penalty(lucid.ones(2)), penalty(lucid.full((2,), 2.0)), w]

    agree(scenario, traces=1)


def test_compiled_inside_of_a_custom_function(agree):
    def scenario(compile):
        inner = compile(lambda x: lucid.exp(x) * 2)

        class Outer(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.y = inner(x)
                return ctx.y.clone()

            @staticmethod
            def backward(ctx, g):
                return g * ctx.y

        x = lucid.ones(2, requires_grad=True)
        Outer.apply(x).sum().backward()
        outer = compile(lambda x: Outer.apply(x).sum())
        z = lucid.ones(2, requires_grad=True)
        outer(z).backward()
        return [x, z]

    agree(scenario)


@pytest.mark.parametrize("data", [[2.0], [2.0, 3.0, 4.0]])
def test_a_leaf_of_data_that_the_step_makes_has_a_gradient_of_each_call(agree, data):
    """As the scale of an invariant risk: its gradient is the step's own, and ends with the call."""

    def scenario(compile):
        w = lucid.tensor([1.0, -2.0, 0.5], requires_grad=True)

        @compile
        def step(x):
            scale = lucid.tensor(data).requires_grad_()
            loss = (w * x * scale).sum(0, keepdim=True).square()
            (slope,) = lucid.autograd.grad(loss, [scale], create_graph=True)
            w.grad = None
            (loss.sum() + slope.square().sum()).backward()
            assert scale.grad is not None
            return scale.grad * 1.0

        return [(step(lucid.ones(3) * i), w.grad.clone()) for i in range(1, 4)]

    agree(scenario, traces=1)


def test_no_grad_calls_have_no_history(agree):
    def scenario(compile):
        model = nn.Linear(2, 1)
        forward = compile(lambda x: model(x))
        with lucid.no_grad():
            a = forward(lucid.ones(1, 2))
        with lucid.inference_mode():
            b = forward(lucid.ones(1, 2))
        return [a, b, forward(lucid.ones(1, 2)).detach()]

    agree(scenario, traces=2)


def test_grad_mode_that_a_step_leaves(agree):
    def scenario(compile):
        @compile
        def off(x):
            lucid.set_grad_enabled(False)
            return x * 2

        x = lucid.ones(2, requires_grad=True)
        try:
            return [off(x), lucid.is_grad_enabled(), off(x), lucid.is_grad_enabled()]
        finally:
            lucid.set_grad_enabled(True)

    (step,) = agree(scenario)
    assert {*step.stats.eager_reasons} == {"it leaves another grad mode than it finds"}


def test_hooks_inside_and_outside(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(2))

        @compile
        def step(x):
            h = w * x
            h.register_hook(lambda g: g * 2)
            return h * 3

        y = step(lucid.ones(2))
        y.register_hook(lambda g: g * 5)
        y.sum().backward()
        return [w]

    agree(scenario)


def test_hooks_that_a_step_leaves_on_its_arguments_see_gradients_outside(agree):
    def scenario(compile):
        @compile
        def step(x, y):
            x.register_hook(lambda g: g * 2)
            x.register_post_accumulate_grad_hook(halve)
            y.register_hook(lambda g: g + 1)
            return (x * x * y).sum()

        def halve(leaf):
            with lucid.no_grad():
                leaf.grad.mul_(0.5)

        found = []
        for number in (1.0, 2.0, 3.0):
            x = lucid.tensor([number, 2.0], requires_grad=True)
            w = lucid.tensor([number, -1.0], requires_grad=True)
            loss = step(x, w * 3)
            loss.backward(retain_graph=True)
            (x * 5).sum().backward()
            found += [lucid.autograd.grad(loss, w), x, w]
        return found

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons == [LEFT_HOOK] * 3


def test_hooks_left_on_one_argument_by_each_call_add_up(agree):
    def scenario(compile):
        @compile
        def step(x):
            x.register_hook(lambda g: g * 2)
            return (x * x).sum()

        x = lucid.tensor([1.0, 2.0], requires_grad=True)
        for _ in range(3):
            step(x).backward()
        return [x]

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons == [LEFT_HOOK] * 3


def test_a_hook_that_a_step_leaves_on_an_argument_may_use_tensors_of_the_step(agree):
    def scenario(compile):
        @compile
        def step(x, scale):
            x.register_hook(lambda g: g * x * scale)
            (x * x).sum().backward()

        x = lucid.tensor([1.0, 2.0], requires_grad=True)
        step(x, 2.0)
        (x * 2).sum().backward()
        return [x]

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons == [LEFT_HOOK]


def test_a_hook_that_a_step_takes_off_its_argument_again_is_none_that_it_leaves(agree):
    def scenario(compile):
        @compile
        def step(x):
            with x.register_hook(lambda g: g * 2):
                (x * x).sum().backward()

        x = lucid.tensor([1.0, 2.0], requires_grad=True)
        for _ in range(2):
            step(x)
        return [x]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_vmap_and_func_transforms_of_a_compiled_function(agree):
    def scenario(compile):
        f = compile(lambda x: (x**3).sum())
        x = lucid.tensor([1.0, 2.0])
        return [lucid.func.grad(f)(x)]

    agree(scenario)


def test_a_step_that_reads_grad_and_calls_python_in_its_backward(agree):
    def scenario(compile):
        @compile
        def step(x, w):
            seen = lucid.zeros(2) if x.grad is None else x.grad * 1.0
            return seen, Sine.apply(w * x)

        x = lucid.tensor([1.0, 2.0], requires_grad=True)
        w = lucid.tensor([0.5, -1.0], requires_grad=True)
        found = []
        for _ in range(3):
            seen, y = step(x, w)
            y.sum().backward()
            found.append(seen)
        return [*found, x, w]

    agree(scenario, traces=2)
