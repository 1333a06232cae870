"""Gradients inside of a step that go on into the histories that its arguments have outside.

Such a call runs op by op, as eager mode.
"""

from __future__ import annotations

import pytest

import lucid
from lucid import nn
from lucid.autograd import grad


def numbers(*values: float) -> lucid.Tensor:
    return lucid.tensor(list(values), requires_grad=True)


def reasons(steps) -> list[str]:
    """Why calls have run op by op, without what follows the first comma."""
    return [reason.partition(",")[0] for step in steps for reason in step.stats.eager_reasons]


GOES_ON = "a backward() in it goes on into the history of an argument"
ASKS = "it asks for the gradient with respect to a tensor that an argument may be computed from"


# ---------------------------------------------------------------------- behind an argument


@pytest.mark.parametrize("is_argument", [False, True])
def test_gradients_with_respect_to_what_an_argument_was_computed_from(agree, is_argument):
    def scenario(compile):
        w = numbers(1.0, 2.0)
        step = compile(lambda x, v: grad((x**3).sum(), v if is_argument else w))
        return [step(w * 2, w) for _ in range(4)]

    assert reasons(agree(scenario)) == [ASKS] * 4


@pytest.mark.parametrize("kind", ["leaf", "intermediate", "view"])
@pytest.mark.parametrize("ask", ["grad", "backward"])
def test_an_argument_may_be_the_tensor_outside_that_gradients_are_asked_for(agree, ask, kind):
    def scenario(compile):
        w = numbers(1.0, 2.0)
        target = {"leaf": lambda: w, "intermediate": w.exp, "view": lambda: w.view(2)}[kind]()

        @compile
        def step(x):
            loss = (x * x * x).sum()
            if ask == "grad":
                return lucid.autograd.grad(loss, target, retain_graph=True)
            loss.backward(inputs=w, retain_graph=True)
            return loss.detach()

        return [step(target), step(target * 2), step(target), w]

    agree(scenario)


def test_the_reason_names_what_computed_the_argument():
    w = numbers(1.0, 2.0)
    step = lucid.compile(lambda x: grad((x**3).sum(), w))
    step(w * 2)
    assert step.stats.eager_reasons == [f"{ASKS}, outside, by Mul"]


def test_whether_an_argument_has_a_history_is_part_of_its_signature(agree):
    def scenario(compile):
        w, v = numbers(1.0, 2.0), numbers(3.0, 4.0)
        step = compile(lambda x, y: grad((x**3).sum(), [x, y], allow_unused=True))
        pairs = [(w, v), (w * 2, v), (w, v), (v * 2, w), (w, w)]
        return [step(a, b) for a, b in pairs]

    (step,) = agree(scenario)
    assert step.stats.calls == 3 and reasons([step]) == [ASKS] * 2


def test_gradients_of_arguments_with_histories_are_native_where_they_are_all_that_is_asked(agree):
    def scenario(compile):
        w = numbers(1.0, 2.0)
        step = compile(lambda x: grad((x**3).sum(), x))
        return [step(x) for x in (w * 2, w.sin(), w * 3)]

    assert not reasons(agree(scenario, traces=1))


def test_a_signature_that_could_not_be_traced_is_tried_again_now_and_then():
    w, goes_on = numbers(1.0, 2.0), {"is": True}

    @lucid.compile
    def step(x):
        loss = (x**3).sum()
        if goes_on["is"]:
            loss.backward()
        return grad((x**3).sum(), x)

    for _ in range(6):
        step(w * 2)
    assert step.stats.traces == 0 and reasons([step]) == [GOES_ON] * 6
    goes_on["is"] = False
    for _ in range(12):
        step(w * 2)
    assert step.stats.traces == 1 and step.stats.calls > 8


def test_an_intermediate_of_several_steps_is_what_gradients_are_asked_for(agree):
    def scenario(compile):
        first = compile(lambda w: (w * w, w.sin()))
        second = compile(lambda a, b, w: grad((a * b).sum(), [w, a, b]))
        found = []
        for _ in range(3):
            w = numbers(1.0, 2.0)
            found += second(*first(w), w)
        return found

    agree(scenario)


def test_a_penalty_on_the_gradient_of_what_an_argument_was_computed_from(agree):
    def scenario(compile):
        net = nn.Linear(2, 1)

        @compile
        def step(x, inputs):
            z = net(x).tanh().sum()
            (g,) = grad(z, inputs, create_graph=True)
            loss = z + (g**2).sum()
            loss.backward()
            return loss

        found = []
        for _ in range(3):
            inputs = numbers(1.0, 2.0)
            found += [step(inputs * 2, inputs), inputs]
        return [found, net]

    agree(scenario)


def test_backward_with_inputs_behind_an_argument(agree):
    def scenario(compile):
        w = numbers(1.0, 2.0)
        step = compile(lambda x: (x**3).sum().backward(inputs=[w]))
        for _ in range(3):
            step(w * 2)
        return w

    agree(scenario)


# ---------------------------------------------------------------------- one walk for all arguments


def test_arguments_with_a_common_history_are_walked_together(agree):
    def scenario(compile):
        w = numbers(1.0, 2.0)
        step = compile(lambda x, y: (x * y).sum().backward())
        seen = []
        for _ in range(3):
            h = w * w
            h.register_hook(lambda g: seen.append(g.tolist()))
            step(h.sin(), h * 2)
        return [w, seen]

    assert reasons(agree(scenario)) == [GOES_ON] * 3


def test_a_leaf_gets_gradients_from_inside_and_from_the_history_of_an_argument(agree):
    def scenario(compile):
        w = numbers(1.0, 2.0)
        step = compile(lambda x: (x * w).sum().backward())
        for _ in range(3):
            step(w * w)
        return w.grad.clone()

    assert set(reasons(agree(scenario))) == {GOES_ON}


# ---------------------------------------------------------------------- several walks


def test_a_walk_into_a_history_that_an_earlier_one_has_freed_is_an_error(agree):
    def scenario(compile):
        w = numbers(1.0, 2.0)

        @compile
        def step(x):
            (x**3).sum().backward()
            (x * x).sum().backward()

        found = []
        for _ in range(3):
            with pytest.raises(RuntimeError) as caught:
                step(w * w)
            found += [str(caught.value).partition("\n")[0], w.grad.clone()]
        return found

    agree(scenario)


def test_hooks_outside_see_each_of_several_walks(agree):
    def scenario(compile):
        w = numbers(1.0, 2.0)
        seen = []

        @compile
        def step(x):
            (x**3).sum().backward(retain_graph=True)
            (x * x).sum().backward()

        for has_hook in (False, True):
            x = w * w
            if has_hook:
                x.register_hook(lambda g: (seen.append(g.tolist()), g.clamp(max=1.0))[1])
            step(x)
        return [w.grad.clone(), seen]

    assert reasons(agree(scenario)) == [GOES_ON] * 2


def test_one_walk_that_frees_and_one_that_does_not(agree):
    def scenario(compile):
        w, v = numbers(1.0, 2.0), numbers(3.0, 4.0)

        @compile
        def step(x, y):
            (x**3).sum().backward(retain_graph=True)
            (y * y).sum().backward()

        x, y = w * w, v.sin()
        step(x, y)
        x.sum().backward()
        with pytest.raises(RuntimeError, match="a second time"):
            y.sum().backward()
        return [w, v]

    agree(scenario)


# ---------------------------------------------------------------------- gradients that stay


def read(w, optimizer):
    return w.grad * 2


def update(w, optimizer):
    optimizer.step()


def zero(w, optimizer):
    optimizer.zero_grad()


def catch(w, optimizer):
    try:
        return w.grad * 2
    except TypeError:
        return None


@pytest.mark.parametrize("then", [read, update, zero, catch])
def test_a_step_looks_at_a_gradient_that_goes_on_outside(agree, then):
    def scenario(compile):
        w = numbers(1.0, 2.0)
        optimizer = lucid.optim.SGD([w], lr=0.01)

        @compile
        def step(x):
            (x**3).sum().backward()
            return then(w, optimizer)

        return [[step(w * w) for _ in range(3)], w, w.grad is None]

    assert set(reasons(agree(scenario))) == {GOES_ON}


def test_a_step_looks_at_a_gradient_that_is_retained_outside(agree):
    def scenario(compile):
        w = numbers(1.0, 2.0)

        @compile
        def step(x, h):
            (x**3).sum().backward()
            return h.grad * 2

        found = []
        for _ in range(2):
            h = w * w
            h.retain_grad()
            found.append(step(h.sin(), h))
        return found

    agree(scenario)


def is_kept_by_the_step(x, h):
    h.copy_(x * 2)
    h.retain_grad()


def is_written(x, h):
    h.mul_(x)


def is_kept_with_its_history(x, h):
    h.retain_grad()


@pytest.mark.parametrize("is_state", [False, True])
@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("act", [is_kept_by_the_step, is_written, is_kept_with_its_history])
def test_a_tensor_from_outside_keeps_its_gradient(agree, act, is_inside, is_state):
    def scenario(compile):
        x, w, found = numbers(1.0, 2.0), numbers(3.0, 4.0), []

        @compile
        def step(given):
            h = state if is_state else given
            act(x, h)
            loss = (x * h).sum()
            if is_inside:
                loss.backward(retain_graph=True)
            return loss

        for _ in range(3):
            state = w * 3 if act is is_kept_with_its_history else lucid.zeros(2)
            if act is is_written:
                state = w * 3
                state.retain_grad()
            loss = step(None if is_state else state)
            if not is_inside:
                loss.backward()
            found += [state.grad, state.retains_grad, x.grad.clone()]
        return found

    agree(scenario)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("is_hooked", [False, True])
@pytest.mark.parametrize("is_base", [False, True])
def test_results_contribute_to_a_view_that_the_step_has_written(agree, is_base, is_hooked):
    def scenario(compile):
        step, found = compile(lambda v, w: (v.mul_(w), (v * v).sum())[1]), []
        for _ in range(3):
            w, base = numbers(1.0, 2.0), lucid.ones(4)
            view = base[1:3]
            loss = step(view, w)
            x = base if is_base else view
            if is_hooked:
                x.register_hook(lambda g: g * 2)
            else:
                x.retain_grad()
            (loss + view.sum()).backward(retain_graph=True)
            found += [w.grad, x.grad, grad(loss, x), base]
        return found

    agree(scenario)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_step_writes_what_the_history_of_an_argument_has_saved(agree, is_compiled):
    def scenario(compile):
        w, mean = numbers(1.0, 2.0), lucid.ones(2)
        before = (compile if is_compiled else lambda function: function)(lambda w: w * mean)

        @compile
        def step(x):
            (x**3).sum().backward()
            mean.add_(1)

        for _ in range(3):
            step(before(w))
        return [w, mean]

    agree(scenario)
