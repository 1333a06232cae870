"""What a result was computed from is written between its call and its backward."""

from __future__ import annotations

import pytest

import lucid
from lucid import nn
from lucid.autograd import Function, grad


class Masked(Function):
    """Saves what is no input: its inputs may be written."""

    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask


class Scaled(Function):
    """Looks in its backward at a tensor that it has not saved, as that is by then."""

    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx, g):
        return g * ctx.by, None


def numbers(*values):
    return lucid.tensor(list(values))


def write(tensor):
    with lucid.no_grad():
        tensor.mul_(-1)


def outcome(call):
    """What it gives, or the text of its error, with the node that had saved the tensor."""
    try:
        return call()
    except lucid.LucidError as error:
        return str(error)


def test_state_that_no_node_saved_may_be_written_before_the_backward(agree):
    def scenario(compile):
        w, state = nn.Parameter(numbers(1.0, -2.0)), numbers(0.5, 1.0)
        step = compile(lambda x: (Masked.apply(w) * (state + x).tanh()).sum())
        found = []
        for number in range(3):
            first, second = step(numbers(1.0, 2.0)), step(numbers(3.0, 4.0))
            write(state)
            first.backward(retain_graph=number > 0)
            write(state)
            if number:
                first.backward()
            second.backward()
            found.append([first.detach(), second.detach()])
        return [found, w, state]

    agree(scenario, traces=1)


def test_arguments_that_no_node_saved_may_be_written_before_the_backward(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, -2.0))
        step = compile(lambda x, y: (w * (x + y[0]).exp() + x).sum())
        x, y, leaf = numbers(1.0, 2.0), numbers(0.5, 0.25), numbers(0.1, 0.2).requires_grad_()
        found = []
        for given in (x, leaf, leaf * 2):
            result = step(given, y)
            write(given.detach())
            write(y)
            write(given.detach())
            found.append(outcome(lambda result=result: result.backward(retain_graph=True)))
            write(y)
            found.append(outcome(result.backward))
        return [found, w, leaf, x, y]

    agree(scenario)


def test_a_gradient_that_no_node_saved_may_be_zeroed_before_the_backward(agree):
    def scenario(compile):
        v, w = nn.Parameter(numbers(1.0, 2.0)), nn.Parameter(numbers(3.0, 4.0))
        step = compile(lambda: (w * (v.grad + 1).tanh()).sum())
        for _ in range(2):
            v.grad = numbers(0.5, 0.25)
            loss = step()
            v.grad.zero_()
            loss.backward()
        return [v, w]

    agree(scenario)


def test_nothing_is_computed_again_from_what_may_be_written_unnoticed(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, -2.0))
        step = compile(lambda x: (Scaled.apply(w, x) + (w + x) * (x + 2.0) * w).sum())
        found = []
        for _ in range(2):
            x = numbers(3.0, 0.25)
            y = step(x)
            write(x)
            found.append(grad(y, w)[0])
        return found

    agree(scenario, traces=1)


@pytest.mark.parametrize("kind", ["state", "argument", "part", "gradient", "result"])
def test_a_tensor_that_a_node_saved_may_not(agree, kind):
    def scenario(compile):
        w, state, x = nn.Parameter(numbers(1.0, -2.0)), numbers(0.5, 1.0), numbers(3.0, 4.0)
        state.grad = numbers(5.0, 6.0)
        take = {
            "state": lambda x: state,
            "argument": lambda x: x,
            "part": lambda x: x[1:],
            "gradient": lambda x: state.grad,
            "result": lambda x: (w + 1).exp(),
        }[kind]

        @compile
        def step(x):
            taken = take(x)
            return taken, (w * taken).sum()

        found = []
        for written in (False, True, True):
            taken, loss = step(x)
            if written:
                write({"state": state, "gradient": state.grad, "result": taken}.get(kind, x))
            found.append(outcome(loss.backward))
        return [found, w]

    if kind != "gradient":
        agree(scenario, traces=1)
        return
    reason = "its results have a history, and are computed from a .grad that it finds"
    (step,) = agree(scenario, traces=0)
    assert {*step.stats.eager_reasons} == {reason}


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_parameter_that_was_given_other_memory_before_may_not(calls):
    """Each call finds its memory then; its version counter is what it was."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    compiled, weight, x = lucid.compile(model), model[2].weight, lucid.ones(3, 2)
    compiled(x).sum().backward()
    weight.data = weight.data * 1.1
    for _ in range(calls):
        compiled(x).sum().backward()
    loss = compiled(x).sum()
    with lucid.no_grad():
        weight.add_(0.5)
    with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
        loss.backward()
    assert compiled.stats.traces == 2


def test_another_call_that_writes_what_the_first_one_saved_is_noticed(agree):
    def scenario(compile):
        w, state = nn.Parameter(numbers(1.0, -2.0)), numbers(0.5, 1.0)

        @compile
        def step(x):
            state.mul_(2)
            return (w * state * x).sum(), (w + state).sum()

        found = []
        for _ in range(2):
            (saved, free), other = step(numbers(1.0, 2.0)), step(numbers(3.0, 4.0))[0]
            found += [outcome(saved.backward), outcome(free.backward), outcome(other.backward)]
        return [found, w, state]

    agree(scenario, traces=1)


def test_an_optimizers_step_between_call_and_backward_is_noticed(agree):
    def scenario(compile):
        model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)
        forward = compile(lambda x: model(x).sum())

        @compile
        def train(x):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        x, found = lucid.ones(4, 2), []
        for _ in range(2):
            loss = forward(x)
            train(x)
            found.append(outcome(loss.backward))
            forward(x).backward()
        return [found, model]

    agree(scenario)


RETURNED = {
    "a view": lambda y: y[0],
    "transposed": lambda y: y.T,
    "the rest, too": lambda y: (y[0], y),
    "the whole first": lambda y: (y, y[0]),
    "views that share": lambda y: (y[0], y[:, 1:]),
    "a view of a view": lambda y: y.T[1:],
    "detached before the view": lambda y: (y.detach(), y[:1], y[0]),
}


@pytest.mark.parametrize("returned", RETURNED)
def test_a_result_that_is_a_view_of_what_the_step_made_may_be_written(agree, returned):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, -2.0, 3.0, -4.0).reshape(2, 2))
        step = compile(lambda x: RETURNED[returned](w * x))
        found = []
        for _ in range(4):
            w.grad = None
            results = step(lucid.ones(2, 2))
            results = results if isinstance(results, tuple) else (results,)
            results[0].mul_(2.0)
            results[-1][1:] = 7.0
            sum((result * result).sum() for result in results).backward()
            found += [w.grad.clone(), *(x.detach().clone() for x in results)]
            found += [(x._base is None, x.grad_fn and x.grad_fn.name()) for x in results]
        return found

    agree(scenario, traces=1)


@pytest.mark.parametrize("order", ["freed then written", "written then freed"])
def test_the_first_node_that_a_walk_comes_to_says_what_is_wrong(agree, order):
    """Each loss shares a part with the other; the walk meets what is freed or what is written."""

    def scenario(compile):
        v, w = nn.Parameter(numbers(1.0, 2.0)), nn.Parameter(numbers(3.0, 4.0))

        @compile
        def step(x):
            shared = w * x
            late = (shared * shared).sum()
            return late, (shared * v).exp().sum() if order[0] == "f" else (v * v + shared).sum()

        x = numbers(0.5, 0.25)
        late, other = step(x)
        other.backward()
        write(x if order[0] == "f" else v)
        return [outcome(late.backward), outcome(other.backward), v, w]

    agree(scenario)


def test_only_the_part_that_is_asked_for_is_checked_and_freed(agree):
    def scenario(compile):
        v, w = nn.Parameter(numbers(1.0, 2.0)), nn.Parameter(numbers(3.0, 4.0))
        step = compile(lambda x: ((v * v) * 2 + (w * w).exp() * x).sum())
        found = []
        for _ in range(2):
            loss = step(numbers(0.5, 0.25))
            found.append(grad(loss, v))
            found.append(outcome(lambda loss=loss: grad(loss, v)))
            found.append(grad(loss, w, retain_graph=True))
            write(v)
            found.append(grad(loss, w))
            found.append(outcome(loss.backward))
        return [found, v, w]

    agree(scenario, traces=1)


@pytest.mark.parametrize("way", ["in place", "data"])
@pytest.mark.parametrize("passed", [True, False], ids=["argument", "state"])
def test_another_compiled_step_may_write_what_no_node_saved(agree, passed, way):
    def scenario(compile):
        w, state = nn.Parameter(numbers(1.0, -2.0)), numbers(0.5, 1.0)
        take = (lambda x: x) if passed else (lambda x: state)
        step = compile(lambda x: (w * (take(x) + 1).tanh()).sum())

        @compile
        def other(x):
            written = take(x)
            (written.data if way == "data" else written).add_(1)

        found = []
        x = state if passed else numbers(7.0, 8.0)
        for is_between in (False, True, True, False, True):  # with nobody to tell it is native
            loss = step(x)
            if is_between:
                other(x)
            found.append(outcome(loss.backward))
            other(x)
            other(x)
        return [found, w, state]

    agree(scenario)


def test_a_discriminator_is_updated_between_two_of_its_results(agree):
    def scenario(compile):
        made, judge = nn.Parameter(numbers(1.0, 2.0)), nn.Parameter(numbers(0.5, -0.5))
        generate = compile(lambda x: (x + made).tanh())
        judged = compile(lambda y: (y + judge).tanh().sum())

        @compile
        def update():
            with lucid.no_grad():
                judge.sub_(0.1 * judge.grad)

        for _ in range(3):
            fake = generate(numbers(0.1, 0.2))
            first, second = judged(fake.detach()), judged(fake)
            first.backward()
            update()
            second.backward()
        return [made, judge]

    agree(scenario)


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("argument", "compiled"),
        ("part of an argument", "data"),
    ],
)
def test_gradients_are_those_of_the_memory_that_a_tensor_had_at_the_call(agree, what, how):
    """Nothing that a node saved is another one where the tensor is given other memory."""

    def scenario(compile):
        w, state = nn.Parameter(numbers(1.0, -2.0)), numbers(0.5, 1.0)
        x = numbers(3.0, 4.0)
        assigned = {"leaf": w, "buffer": state}.get(what, x)
        step = compile(lambda x: (w * w * (state + x[..., :2]).tanh() * state).sum())

        def assign(tensor, value):
            if how == "set_":
                tensor.set_(value)
            else:
                tensor.data = value

        if how == "compiled":
            assign = compile(assign)
        given = (lambda: x[...]) if what[0] == "p" else (lambda: x)
        found = []
        for number in range(2):
            passed = given()
            loss = step(passed)
            before = assigned.detach()
            assign(passed if what[0] == "p" else assigned, numbers(7.0 + number, -8.0))
            if number == 1:
                found.append(step(x).detach())
            loss.backward()
            assign(assigned, before)
        return [found, w, state, x]

    agree(scenario)


@pytest.mark.parametrize("tensor", ["leaf", "buffer"])
@pytest.mark.parametrize("when", ["before", "after", "between", "swapped", "view", "custom"])
def test_a_saved_tensor_shows_the_memory_that_the_step_has_given_it(agree, when, tensor):
    """As in eager mode, where a node saves the tensor and not what was in it."""

    def scenario(compile):
        w, state = nn.Parameter(numbers(0.5, -1.0)), numbers(1.5, 2.0)
        saved = w if tensor == "leaf" else state

        def step(x):
            before = saved.data
            if when in ("before", "custom"):
                saved.data = x.detach().amax(0) * 0.5
            elif when == "view":
                saved.data = x.detach().max().expand(2)
            elif when == "swapped":
                saved.data = before.sign()
            y = Scaled.apply(x, saved) if when == "custom" else x * saved * saved.sin() * w
            if when in ("after", "between"):
                saved.data = saved.data * 0.5 + x.detach()[0]
            elif when == "swapped":
                saved.data = before
            return (y * saved).tanh().sum() if when == "between" else y.sum()

        compiled = compile(step)
        found = []
        for number in range(3):
            x = (numbers([0.1, 0.2], [0.3, -0.4]) + 0.1 * number).requires_grad_()
            loss = compiled(x)
            (gradient,) = lucid.autograd.grad(loss, x, create_graph=True)
            (loss + gradient.square().sum()).backward()
            found += [loss, x.grad, saved.detach().clone()]
        return [found, w.grad]

    agree(scenario)


@pytest.mark.parametrize("tensor", ["leaf", "buffer"])
@pytest.mark.parametrize("how", ["read", "custom", "assigned", "differentiated"])
def test_a_saved_tensor_shows_the_memory_of_its_call(agree, how, tensor):
    """Each call finds other memory, as behind `p.data = averaged`, and what was written to it."""

    def scenario(compile):
        w, state = nn.Parameter(numbers(0.5, -1.0)), numbers(1.5, 2.0)
        saved, found = w if tensor == "leaf" else state, []

        def step(x):
            y = Scaled.apply(x, saved) if how == "custom" else x.exp() * saved * saved
            if how == "assigned":
                saved.data = saved.data * 2
            return (y * w).sum()

        compiled = compile(step)
        for number in range(5):
            x = (numbers(0.1, 0.2) + 0.1 * number).requires_grad_()
            loss = compiled(x)
            if how == "differentiated":
                (gradient,) = lucid.autograd.grad(loss, x, create_graph=True)
                loss = loss + gradient.square().sum()
            loss.backward()
            found += [loss.detach(), x.grad]
            saved.data = saved.data.clone()
            with lucid.no_grad():
                saved.add_(1.0)
        return [found, w.grad]

    agree(scenario)


@pytest.mark.parametrize("how", ["data", "set_", "compiled"])
@pytest.mark.parametrize("what", ["leaf", "argument"])
def test_a_saved_tensor_that_is_given_other_memory_is_found_out(how, what):
    w, x = nn.Parameter(numbers(1.0, -2.0)), numbers(3.0, 4.0)
    step = lucid.compile(lambda x: (w * w * x).sum())

    def assign(tensor, value):
        if how == "set_":
            with lucid.no_grad():
                tensor.set_(value)
        else:
            tensor.data = value

    assign = lucid.compile(assign) if how == "compiled" else assign
    for _ in range(2):
        loss = step(x)
        assign(w if what == "leaf" else x, numbers(7.0, -8.0))
        with pytest.raises(lucid.LucidError, match="was given other memory since the call"):
            loss.backward()
    assert w.grad is None


@pytest.mark.parametrize("writer", ["eager", "compiled"])
@pytest.mark.parametrize("passed", ["argument", "part", "state"])
def test_a_backward_method_finds_what_is_in_a_tensor_by_then(agree, passed, writer):
    """The forward computes with it as well, and what that has made is as it was."""

    def scenario(compile):
        w, state = nn.Parameter(numbers(1.0, -2.0)), numbers(0.5, 1.0)
        take = {"argument": lambda x: x, "part": lambda x: x[:], "state": lambda x: state}[passed]
        step = compile(lambda x: (Scaled.apply(w * 3, take(x)).sin() * (w + take(x)).exp()).sum())
        change = compile(write) if writer == "compiled" else write
        x, found = state if passed != "state" else numbers(7.0, 8.0), []
        for is_between in (True, False, True):
            loss = step(x)
            if is_between:
                change(state)
            loss.backward(retain_graph=True)
            change(state)
            found.append(w.grad.clone())
            loss.backward()
        return [found, w, state]

    agree(scenario)


@pytest.mark.parametrize("passed", [True, False], ids=["argument", "state"])
def test_anomaly_mode_computes_with_what_there_was_at_the_call(agree, passed):
    def scenario(compile):
        w, state = nn.Parameter(numbers(1.0, -2.0)), numbers(0.5, 1.0)
        take = (lambda x: x) if passed else (lambda x: state)
        step = compile(lambda x: (Scaled.apply(w, take(x)) * (take(x) + 1).tanh()).sum())
        for _ in range(2):
            loss = step(state if passed else numbers(7.0, 8.0))
            write(state)
            with lucid.autograd.detect_anomaly():
                loss.backward()
        return [w, state]

    agree(scenario)


def test_a_vmap_of_gradients_of_a_result_from_outside(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, -2.0))
        y = compile(lambda: w.tanh() * w)()
        rows = lucid.func.vmap(lambda g: grad(y, w, g, retain_graph=True)[0])(lucid.eye(2))
        each = lucid.func.vmap(
            lambda g: lucid.func.vmap(lambda h: grad(y, w, g * h, retain_graph=True)[0])(
                lucid.eye(2)
            )
        )(lucid.eye(2) + 1)
        return [rows, each]

    agree(scenario)


def test_a_forward_mode_derivative_of_a_gradient_of_a_result_from_outside_is_refused():
    w = nn.Parameter(numbers(1.0, -2.0))
    y = lucid.compile(lambda: w.tanh())()
    with pytest.raises(lucid.LucidError) as caught:
        lucid.func.jvp(
            lambda g: grad(y, w, g, retain_graph=True)[0], (lucid.ones(2),), (lucid.ones(2),)
        )
    assert str(caught.value).startswith(
        "the results of a compiled function can't be differentiated in a forward-mode derivative "
        "that it was not called in, recorded at test_written_between.py:"
    )
    assert str(caught.value).endswith("hint: call it inside")
