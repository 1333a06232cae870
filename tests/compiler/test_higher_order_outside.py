"""Gradients of gradients of results, with respect to results: what they depend on outside."""

from __future__ import annotations

import pytest

import lucid
from lucid import nn
from lucid.autograd import Function, detect_anomaly, grad
from lucid.autograd.function import once_differentiable
from lucid.autograd.graph import get_gradient_edge


def numbers(*values: float) -> lucid.Tensor:
    return lucid.tensor(list(values), requires_grad=True)


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        square = x * x
        ctx.save_for_backward(x, square)
        return square * x

    @staticmethod
    def backward(ctx, g):
        _, square = ctx.saved_tensors
        return 3 * square * g


class ExpAndSquare(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y, x * x

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y + 2 * x * h


def plain(x):
    y = x * x
    return y, (y**3).sum()


def written(x):
    y = x * 2
    y.mul_(x)
    return y, (y**3).sum()


def custom(x):
    y = x * x
    return y, Cube.apply(y).sum()


def of_two_outputs(x):
    y, other = ExpAndSquare.apply(x * 1.5)
    return y, (other * y).sum()


def of_a_view(x):
    y = (x * x)[1:]
    return y, (y**3).sum() + x.sum()


def twice_returned(x):
    y = x * x
    return y, (y**3).sum(), y, y.view(-1)


@pytest.mark.parametrize(
    "function", [plain, written, custom, of_two_outputs, of_a_view, twice_returned]
)
def test_gradients_with_respect_to_a_result_depend_on_it(agree, function):
    def scenario(compile):
        step = compile(function)
        found = []
        for _ in range(2):
            x = numbers(1.0, 2.0, 3.0)
            y, z, *_ = step(x)
            first = grad(z, [y, x], create_graph=True)
            second = grad(first[0].sum() + first[1].sum(), [y, x], create_graph=True)
            third = grad(second[0].sum() + second[1].sum(), [y, x])
            found += [first, second, third]
        return found

    agree(scenario, traces=1)


def test_gradients_with_respect_to_several_results_depend_on_all(agree):
    def scenario(compile):
        @compile
        def step(x):
            a = x.sin()
            b = a * x
            d = (b * b * a).exp()
            return a, b, d, d.sum()

        x = numbers(0.1, 0.2, 0.3)
        *inner, z = step(x)
        first = grad(z, inner, create_graph=True)
        second = grad(sum(g.sum() for g in first), [*inner, x], create_graph=True)
        third = grad(sum((g * g).sum() for g in second), [*inner, x])
        return [first, second, third]

    agree(scenario, traces=1)


def test_hooks_and_retained_gradients_of_a_result_see_second_derivatives(agree):
    def scenario(compile):
        step = compile(plain)
        seen = []

        def double(g):
            seen.append(g.detach().clone())
            return g * 2

        x = numbers(1.0, 2.0, 3.0)
        y, z = step(x)
        y.retain_grad()
        y.register_hook(double)
        (first,) = grad(z, x, create_graph=True)
        first.sum().backward()
        return [first, y.grad, x, seen]

    agree(scenario, traces=1)


def test_a_result_that_was_saved_is_what_its_gradient_depends_on(agree):
    def scenario(compile):
        step = compile(lambda x: x.tanh())
        x = numbers(1.0, 2.0, 3.0)
        y = step(x)
        (first,) = grad(y.sum(), x, create_graph=True)
        (second,) = grad(first.sum(), y, create_graph=True)
        return [first, second, grad((second * second * first).sum(), [y, x])]

    agree(scenario, traces=1)


def test_a_gradient_depends_on_cotangents_and_on_the_state_of_the_call(agree):
    def scenario(compile):
        count = lucid.zeros(3)

        @compile
        def step(x):
            count.add_(1)
            y = x * count
            return y, y.exp() * count

        found = []
        for _ in range(2):
            x, v = numbers(0.1, 0.2, 0.3), numbers(1.0, 2.0, 3.0)
            y, z = step(x)
            (first,) = grad(z, y, v * v, create_graph=True)
            found += [first, grad(first.sum(), [v, y, x])]
        return found

    agree(scenario, traces=1)


def test_gradients_with_respect_to_results_go_through_several_steps(agree):
    def scenario(compile):
        first_step = compile(lambda x: (x * x, (x * x) ** 3))

        @compile
        def second_step(w, z):
            p = w * z
            return p, p.sin().sum()

        x = numbers(0.1, 0.2, 0.3)
        y, z = first_step(x * 1.0)
        w = y * y
        p, q = second_step(w, z)
        first = grad(q, [p, w, y, z], create_graph=True)
        return [first, grad(sum(g.sum() for g in first), [x, y, z, p, w])]

    agree(scenario)


def test_a_penalty_on_the_gradient_at_a_hidden_layer_trains(agree):
    def scenario(compile):
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

        @compile
        def step(x):
            hidden = net[1](net[0](x))
            return hidden, net[2](hidden * hidden).sum()

        for _ in range(2):
            hidden, z = step(lucid.ones(3))
            (first,) = grad(z, hidden, create_graph=True)
            (z + (first**2).sum()).backward()
        return net

    agree(scenario, traces=1)


def test_anomaly_mode_sees_the_same_second_derivatives(agree):
    def scenario(compile):
        step = compile(plain)
        x = numbers(1.0, 2.0, 3.0)
        y, z = step(x)
        with detect_anomaly():
            (first,) = grad(z, y, create_graph=True)
            return [first, grad(first.sum(), [y, x])]

    agree(scenario)


def test_the_edge_of_a_once_differentiable_gradient_says_what_is_wrong_with_it(agree):
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2

    def scenario(compile):
        x = numbers(1.0, 2.0)
        (first,) = grad(compile(Double.apply)(x).prod(), x, create_graph=True)
        with pytest.raises(lucid.LucidError) as caught:
            grad([get_gradient_edge(first)], x, lucid.ones(2))
        return str(caught.value).partition("\n")[0]

    agree(scenario)


def test_a_result_that_was_written_before_its_second_derivative_is_noticed(agree):
    def scenario(compile):
        step = compile(plain)
        found = []
        for _ in range(2):
            x = numbers(1.0, 2.0, 3.0)
            y, z = step(x)
            (first,) = grad(z, y, create_graph=True)
            second = grad(first.sum(), y, retain_graph=True)
            y.detach().mul_(2)
            with pytest.raises(lucid.LucidError) as caught:
                grad(first.sum(), y)
            found += [second, str(caught.value).partition("\n")[0]]
        return found

    agree(scenario, traces=1)


def test_what_only_a_forward_has_seen_is_kept_as_it_was():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, w):
            scaled = (x * w).exp()
            ctx.save_for_backward(scaled, total := scaled.sum())
            return scaled * total

        @staticmethod
        def backward(ctx, g):
            scaled, total = ctx.saved_tensors
            return g * scaled * total, (g * scaled).sum() * scaled

    def second(step, is_written):
        x, w = numbers(0.1, 0.2, 0.3), numbers(1.0, 2.0, 1.5)
        y = step(x, w)
        if is_written:
            x.detach().mul_(5.0)
        first = grad(y.sum(), [x, w], create_graph=True)
        return grad(sum((g * g).sum() for g in first), [x, w])

    step = lucid.compile(lambda x, w: Scaled.apply(x, w))
    expected = second(lambda x, w: Scaled.apply(x, w), False)
    for is_written in (False, True):
        for found, wanted in zip(second(step, is_written), expected, strict=True):
            assert lucid.allclose(found, wanted)
