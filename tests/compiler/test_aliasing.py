"""Memory that tensors share across the border of calls: arguments, gradients, state, results."""

from __future__ import annotations

import pytest

import lucid


def ones(*shape: int, requires_grad: bool = False) -> lucid.Tensor:
    return lucid.ones(*shape, requires_grad=requires_grad)


# ---------------------------------------------------------------------- gradients on one memory


def test_gradients_are_found_where_they_lie_in_each_call(agree):
    def scenario(compile):
        leaf, short, long = ones(2, requires_grad=True), lucid.arange(4.0), lucid.arange(9.0)
        step = compile(lambda x: [leaf.grad * x, leaf.grad.add_(x)])
        found = []
        for gradient in (short[:2], short[2:], long[7:], short.view(2, 2)[1], ones(2)):
            leaf.grad = gradient
            found.append(step(ones(2)))
        return [found, short, long]

    agree(scenario)


@pytest.mark.parametrize("are_passed", [False, True], ids=["closed over", "passed"])
def test_gradients_in_one_buffer_may_move_into_another_one_by_one(agree, are_passed):
    def scenario(compile):
        a, b = ones(2, requires_grad=True), ones(2, requires_grad=True)
        first, second = lucid.arange(4.0), lucid.arange(4.0, 8.0)

        def add(a, b, x):
            ((a * x).sum() + (b * x * 2).sum()).backward()
            return a.grad + 1, b.grad * a.grad

        step = compile(add if are_passed else lambda x: add(a, b, x))
        found = []
        pairs = [
            (first[:2], first[2:]), (first[:2], second[2:]), (second[:2], second[2:]),
            (second[2:], second[2:]), (first[:2], first[1:3]), (ones(2), ones(2)),
        ]  # fmt: skip
        for a.grad, b.grad in pairs:
            for x in (ones(2), 3 * ones(2)):
                found.append(step(a, b, x) if are_passed else step(x))
        return [found, first, second]

    agree(scenario)


def test_a_gradient_that_is_written_may_be_that_of_another_leaf_in_some_calls(agree):
    def scenario(compile):
        a, b, c = (ones(2, requires_grad=True) for _ in range(3))
        step = compile(lambda a, b: [a.grad.mul_(3), b.grad * 1][1])
        a.grad = b.grad = lucid.arange(2.0)
        found = [step(a, b), step(a, b)]
        b.grad, c.grad = ones(2), a.grad
        found += [step(a, b), step(a, c), step(c, a), step(b, c)]
        return [found, a, b, c]

    agree(scenario)


@pytest.mark.parametrize("written", ["argument", "gradient"])
def test_an_argument_may_be_the_gradient_of_another_in_some_calls(agree, written):
    def scenario(compile):
        leaf, gradient = ones(2, requires_grad=True), lucid.arange(2.0)
        leaf.grad = gradient

        def step(leaf, x):
            if written == "argument":
                x.mul_(3)
                return leaf.grad * 1
            leaf.grad.mul_(3)
            return x * 1

        step, inside = compile(step), compile(lambda x: step(leaf, x))
        given = (ones(2), gradient, leaf.grad, gradient[:], ones(2), gradient.detach())
        return [[step(leaf, x), inside(x), leaf, x] for x in given]

    agree(scenario)


def test_a_gradient_may_be_state_of_the_step_in_some_calls(agree):
    def scenario(compile):
        leaf, total = ones(2, requires_grad=True), lucid.arange(2.0)
        step = compile(lambda x: [total.mul_(3), leaf.grad * x][1])
        found = []
        for leaf.grad in (ones(2), total, ones(2), total.detach(), total[0:2]):
            found += [step(ones(2)), step(ones(2))]
        return [found, leaf, total]

    agree(scenario)
