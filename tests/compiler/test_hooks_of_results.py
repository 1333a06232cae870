"""Hooks that a step registers on its results, beside those registered outside: op by op."""

from __future__ import annotations

import pytest

import lucid
from lucid.autograd import grad
from lucid.autograd.graph import register_multi_grad_hook


def numbers(*values: float) -> lucid.Tensor:
    return lucid.tensor(list(values), requires_grad=True)


def plus_one(g):
    return g + 1


def test_hooks_that_use_tensors_of_the_step_are_called_in_their_order(agree):
    def scenario(compile):
        seen = []

        @compile
        def step(x, factor):
            y = x * x
            y.register_hook(plus_one)
            y.register_hook(lambda g: g * x)
            y.register_hook(lambda g: g * factor)
            y.register_hook(plus_one)
            return y, y * 3

        found = []
        for factor in (1.0, 2.0, 3.0):
            x = numbers(1.0, 3.0)
            y, z = step(x, factor)
            z.register_hook(lambda g: seen.append(g.tolist()))
            (y.sum() + z.sum()).backward()
            found.append(x)
        return [*found, seen]

    (step,) = agree(scenario)
    assert REASON in step.stats.eager_reasons[0]


def test_hooks_that_use_no_tensor_of_the_step_keep_their_order_with_those_from_outside(agree):
    def scenario(compile):
        @compile
        def step(x):
            y = x * x
            y.register_hook(lambda g: g * 2)
            y.register_hook(plus_one)
            return y

        found = []
        for has_hook in (False, True, False):
            x = numbers(1.0, 3.0)
            y = step(x)
            if has_hook:
                y.register_hook(lambda g: g.sin())
                y.retain_grad()
            y.sum().backward()
            found += [x, y.grad if has_hook else None]
        return found

    (step,) = agree(scenario)
    assert REASON in step.stats.eager_reasons[0]


def test_what_a_hook_makes_of_a_gradient_is_differentiated(agree):
    def scenario(compile):
        @compile
        def step(x):
            y = x * x
            z = y * 2
            y.register_hook(lambda g: g * z * y)
            return y, (y**3).sum()

        x = numbers(1.0, 3.0)
        y, z = step(x)
        first = grad(z + y.sum(), x, create_graph=True)
        return [first, grad(first[0].sum(), x)]

    (step,) = agree(scenario)
    assert REASON in step.stats.eager_reasons[0]


def test_hooks_are_called_in_each_of_several_walks(agree):
    def scenario(compile):
        @compile
        def step(x):
            y = x * x
            y.register_hook(lambda g: g * x)
            return y

        x = numbers(1.0, 3.0)
        y = step(x)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        with pytest.raises(RuntimeError, match="a second time"):
            y.sum().backward()
        return x

    (step,) = agree(scenario)
    assert REASON in step.stats.eager_reasons[0]


REASON = "it registers a hook on a result, output 0 of Mul, or on its node"

INSIDE = {
    "hook": lambda y, x: y.register_hook(lambda g: g * x),
    "prehook": lambda y, x: y.grad_fn.register_prehook(lambda gradients: (gradients[0] * x,)),
}
OUTSIDE = {
    "hook": lambda y: y.register_hook(plus_one),
    "retain_grad": lambda y: y.retain_grad(),
    "prehook": lambda y: y.grad_fn.register_prehook(lambda gradients: (gradients[0] + 1,)),
    "multi-grad hook": lambda y: register_multi_grad_hook((y,), lambda gradients: None),
}


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("inside", INSIDE)
def test_a_hook_that_needs_the_step_beside_one_from_outside(agree, inside, outside):
    def scenario(compile):
        @compile
        def step(x):
            y = x * x
            INSIDE[inside](y, x)
            return y

        x = numbers(1.0, 3.0)
        step(x).sum().backward()
        y = step(x)
        OUTSIDE[outside](y)
        y.sum().backward()
        return [x, y.grad if outside == "retain_grad" else None]

    (step,) = agree(scenario)
    assert REASON in step.stats.eager_reasons[0]


def test_a_gradient_that_is_asked_for_is_what_a_hook_of_the_step_has_made_of_it(agree):
    def scenario(compile):
        @compile
        def step(x):
            y = x * x
            y.register_hook(lambda g: g * x)
            return y, (y**3).sum()

        def of(call):
            try:
                return call()
            except lucid.LucidError:
                return None

        x = numbers(1.0, 3.0)
        y, z = step(x)
        found = [of(lambda: grad(z, [y, x], retain_graph=True))]
        of(lambda: z.backward(inputs=[y]))
        return [*found, y.grad]

    agree(scenario)


def test_a_wrong_hook_is_named(agree):
    def scenario(compile):
        @compile
        def step(x):
            def shorter(g):
                return (g * x)[:1]

            y = x * x
            y.register_hook(shorter)
            return y

        y = step(numbers(1.0, 3.0))
        with pytest.raises(lucid.LucidError) as caught:
            y.sum().backward()
        return str(caught.value)

    agree(scenario)


@pytest.mark.parametrize("writer", ["eager", "compiled"])
@pytest.mark.parametrize("passed", [True, False], ids=["argument", "state"])
def test_a_hook_finds_what_is_in_tensors_of_the_step_by_then(agree, passed, writer):
    """What the step has computed from them is as it was."""

    def scenario(compile):
        factor = lucid.tensor([2.0, 3.0])
        take = (lambda given: given) if passed else (lambda given: factor)

        @compile
        def step(x, given):
            y, before = (x + take(given)).exp(), take(given) * 3
            y.register_hook(lambda g: g * before * take(given))
            return y

        def write(tensor):
            tensor.mul_(0.5)

        change = compile(write) if writer == "compiled" else write
        x = numbers(1.0, 3.0)
        for _ in range(2):
            y = step(x, factor if passed else lucid.ones(2))
            change(factor)
            y.sum().backward(retain_graph=True)
            change(factor)
            y.sum().backward()
        return [x, factor]

    agree(scenario)


def test_a_multi_grad_hook_waits_for_no_result_that_the_walk_does_not_begin_with(agree):
    def scenario(compile):
        step = compile(lambda x: (x * x, x.sin()))
        seen = []
        x = numbers(1.0, 3.0)
        y, z = step(x)
        register_multi_grad_hook((y, z), lambda gradients: seen.append(gradients))
        (y.sum() + z.sum()).backward(retain_graph=True)
        y.sum().backward(retain_graph=True)
        z.sum().backward()
        return [[[g is None for g in gradients] for gradients in seen], x]

    agree(scenario, traces=1)
