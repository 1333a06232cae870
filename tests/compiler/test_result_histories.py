"""The history of results, from outside: intermediates, made leaves, what is freed, messages."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.autograd import Function, detect_anomaly, grad
from lucid.autograd.graph import saved_tensors_hooks
from lucid.autograd.saved import FREED

Scenario = Callable[[Any], Any]


def numbers(*values: float) -> lucid.Tensor:
    return lucid.tensor(list(values))


# ---------------------------------------------------------------------- retain_grad


def test_a_retained_gradient_that_was_read_is_not_written(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))
        hidden = w * 2
        hidden.retain_grad()
        step = compile(lambda x: (x**3).sum())
        found = []
        for _ in range(2):
            step(hidden).backward(retain_graph=True)
            found.append(hidden.grad)
        return [found, found[0] is found[1], w]

    agree(scenario)


@pytest.mark.parametrize("inside", [False, True])
def test_an_intermediate_that_is_returned_keeps_its_gradient(agree, inside):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))

        @compile
        def step(x):
            hidden, other = w * x, w + x
            hidden.retain_grad()
            other.retain_grad()  # nobody will look at it
            loss = (hidden * hidden * other).sum()
            if inside:
                loss.backward()
            return hidden, loss

        found = []
        for _ in range(2):
            hidden, loss = step(numbers(3.0, 4.0))
            if not inside:
                loss.backward()
            found.append([hidden.grad, hidden.retains_grad, hidden.is_leaf])
        return [found, w]

    agree(scenario)


def test_gradients_that_results_retain_outside(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))

        @compile
        def step(x):
            first = w * x
            second = first * first
            return {"first": first, "third": (second * w).sum(), "second": second}

        results = step(numbers(3.0, 4.0))
        for name in ("first", "second", "third"):
            results[name].retain_grad()
        results["third"].backward()
        (step(numbers(3.0, 4.0))["first"] * 2).sum().backward()
        return [[results[name].grad for name in ("first", "second", "third")], w]

    agree(scenario, traces=1)


# ---------------------------------------------------------------------- results from results


def test_a_result_can_be_differentiated_with_respect_to_another(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))

        @compile
        def step(x):
            hidden = lucid.exp(w * x)
            return hidden, (hidden**3).sum(), hidden.sum()

        hidden, loss, other = step(numbers(0.1, 0.2))
        first = grad(loss, [hidden, w], create_graph=True)
        second = grad(first[0].sum() + first[1].sum(), w, retain_graph=True)
        with pytest.raises(lucid.LucidError, match="appears to not have been used"):
            grad(hidden.sum(), other, retain_graph=True)
        return [first, second, grad(other, hidden)]

    agree(scenario)


def test_hooks_on_results_see_what_comes_through_other_results(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))
        seen = []

        @compile
        def step(x):
            hidden = w * x
            return hidden, hidden.sin(), hidden.cos() * w

        def backward(register):
            hidden, first, second = step(numbers(0.1, 0.2))
            register(hidden)
            (first.sum() + (second * hidden).sum()).backward()

        def tenfold(gradient):
            seen.append(gradient.clone())
            return gradient * 10

        backward(lambda hidden: hidden.register_hook(tenfold))
        backward(lambda hidden: None)
        backward(lambda hidden: hidden.grad_fn.register_prehook(lambda g: seen.append(g[0])))
        backward(lambda hidden: hidden.retain_grad())
        return [seen, w]

    agree(scenario, traces=1)


def test_outputs_of_one_function_are_results_side_by_side(agree):
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2, x * x

        @staticmethod
        def backward(ctx, first, second):
            (x,) = ctx.saved_tensors
            return first * 2 + second * 2 * x

    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))

        @compile
        def step(x):
            first, second = Both.apply(w * x)
            return second, first, (first * second).sum(), first

        second, first, loss, same = step(numbers(3.0, 4.0))
        assert same is first
        first.retain_grad()
        gradients = grad(loss, [second, first, w], retain_graph=True)
        loss.backward()
        return [gradients, first.grad, w]

    agree(scenario, traces=1)


# ---------------------------------------------------------------------- leaves of the step's own

NEW_LEAF = "it returns or keeps a tensor that is a new leaf\n  tensor: f32[2]"


def test_a_leaf_made_in_the_step_gets_its_gradient_outside(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))

        @compile
        def step(x):
            made = lucid.ones(2, requires_grad=True)
            kept = lucid.tensor([2.0, 3.0], requires_grad=True)  # not returned: nobody can ask
            return made, (made * x * w * kept).sum()

        found = []
        for _ in range(2):
            made, loss = step(numbers(3.0, 4.0))
            loss.backward()
            found.append(made)
        return [found, w]

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons[0].startswith(NEW_LEAF)


def test_backward_inside_and_again_outside_adds_up_in_a_made_leaf(agree):
    def scenario(compile):
        @compile
        def step(x):
            made = (x * 2).detach().requires_grad_()
            loss = (made * made * x).sum()
            loss.backward(retain_graph=True)
            return [made, loss]

        made, loss = step(numbers(3.0, 4.0))
        held = made.grad
        loss.backward()
        assert made.grad is held
        return [made, loss.detach()]

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons[0].startswith(NEW_LEAF)


@pytest.mark.parametrize("kind", ["argument", "part", "state", "data"])
def test_a_detached_leaf_that_is_returned_shares_memory(agree, kind):
    def scenario(compile):
        state, given = numbers(1.0, 2.0), numbers(3.0, 4.0)
        take = {
            "argument": lambda x: x.detach(),
            "part": lambda x: x[1:].detach(),
            "state": lambda x: state.detach(),
            "data": lambda x: x.data,
        }[kind]

        @compile
        def step(x):
            leaf = take(x).requires_grad_()
            return leaf, (leaf * leaf).sum()

        leaf, loss = step(given)
        loss.backward()
        source = state if kind == "state" else given
        assert np.shares_memory(leaf.detach().numpy(), source.numpy())
        with lucid.no_grad():
            leaf.add_(10)
        return [leaf, given, state, leaf._version, source._version]

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons[0].startswith("it returns or keeps a tensor that requires grad")


# ---------------------------------------------------------------------- written arguments


@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize("given", ["twice", "view", "views"])
def test_arguments_on_one_memory_of_which_one_is_written(agree, given, writes):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))

        @compile
        def step(x, y):
            (x, y)[writes].add_(1)
            return x.reshape(-1)[-1] * y * w

        whole = numbers(3.0, 4.0)
        args = {"twice": (whole, whole), "view": (whole, whole[1:]), "views": (whole[:1], whole)}
        results = [step(*args[given]) for _ in range(2)]
        sum(result.sum() for result in results).backward()
        return [[r.detach() for r in results], whole, w]

    agree(scenario, traces=1)


def test_keywords_in_any_order_are_the_same_arguments_in_the_backward(agree):
    def scenario(compile):
        step = compile(lambda *, b, a: a * a * b + b)
        a, b = (lucid.tensor([x], requires_grad=True) for x in (3.0, 5.0))
        step(b=b, a=a).backward()
        step(a=a, b=b).backward()
        return [a, b]

    agree(scenario)


# ---------------------------------------------------------------------- what is freed


def test_losses_that_share_nothing_are_differentiated_one_after_another(agree):
    def scenario(compile):
        v, w = nn.Parameter(numbers(1.0, 2.0)), nn.Parameter(numbers(3.0))
        step = compile(lambda x: ((v * v * x).sum(), (w * w).sum(), (v * w).sum()))
        first, second, third = step(numbers(1.0, 1.0))
        first.backward()
        second.backward()
        third.backward()
        for loss in (first, second, third):
            with pytest.raises(lucid.LucidError, match=f"^{re.escape(FREED)}\n  in [A-Z]"):
                loss.backward()
        return [v, w]

    agree(scenario, traces=1)


def test_a_shared_part_is_freed_by_the_first_backward(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))

        @compile
        def step(x):
            shared = w * w
            return (shared * x).sum(), shared.sum(), (w + x).sum()

        first, second, free = step(numbers(1.0, 1.0))
        free.backward()
        free.backward()  # a sum saves nothing
        second.backward(retain_graph=True)
        first.backward()
        with pytest.raises(lucid.LucidError, match=f"^{re.escape(FREED)}\n  in [A-Z]"):
            second.backward()
        free.backward()
        return [w]

    agree(scenario, traces=1)


def test_gradients_with_a_graph_share_what_is_freed_with_the_results_that_they_are_of(agree):
    def said(call):
        try:
            return call()
        except lucid.LucidError as error:
            return str(error).partition("\n  in ")[0]

    def scenario(compile):
        v, w = nn.Parameter(numbers(0.5, 2.0)), nn.Parameter(numbers(3.0, 4.0))

        @compile
        def step(x):
            return (w * w * x).exp().sum(), Square.apply(v * w).sum()

        found = []
        for first, second in ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)):
            for result in step(numbers(0.01, 0.02)):
                (g,) = grad(result, w, create_graph=True)
                (h,) = grad(g.sum(), w, create_graph=True)
                losses = [result, g.sum(), h.sum()]
                found += [said(losses[first].backward), said(losses[second].backward)]
                found.append(said(lambda g=g: grad(g.sum(), w)))
        return [found, v, w]

    agree(scenario)


class Doubled(Function):
    """Its backward needs nothing of what it saves, unless told so."""

    looks = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].detach() if Doubled.looks else g * 2


def test_what_a_backward_does_not_look_at_may_be_freed_and_written(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))
        step = compile(lambda x: Doubled.apply(x).exp())
        twice = compile(lambda x: Doubled.apply(Doubled.apply(x)))
        x = w + 0
        y = twice(x)
        for _ in range(3):
            (y + 0).sum().backward()
        (first,) = grad((y * y).sum(), w, create_graph=True)
        first.sum().backward()
        y.sum().backward()
        with lucid.no_grad():
            x.mul_(2)
        y.sum().backward()
        y = step(w)
        y.sum().backward()
        with pytest.raises(RuntimeError, match="a second time") as caught:
            y.sum().backward()
        return [w.grad, first, "in Exp" in str(caught.value)]

    agree(scenario)


def test_a_backward_that_looks_later_at_what_is_freed(agree, monkeypatch):
    def scenario(compile):
        monkeypatch.setattr(Doubled, "looks", False)
        w, v = nn.Parameter(numbers(1.0, 2.0)), nn.Parameter(numbers(3.0, 4.0))
        step = compile(lambda: Doubled.apply(w) * v)
        y = step()
        y.sum().backward(retain_graph=True)
        monkeypatch.setattr(Doubled, "looks", True)
        y.sum().backward()
        with pytest.raises(RuntimeError, match="a second time"):
            y.sum().backward()
        return [w.grad, v.grad]

    agree(scenario)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_backward_inside_that_does_not_look_at_what_it_saved_can_be_repeated(agree, is_compiled):
    def scenario(compile):
        w = nn.Parameter(numbers(1.0, 2.0))

        @compile
        def step(x):
            y = Doubled.apply(x)
            y.sum().backward()
            y.sum().backward()
            return y

        step(w).sum().backward()
        before = (compile if is_compiled else lambda function: function)(Doubled.apply)
        h = before(w)
        h.sum().backward()
        compile(lambda h: (h * h).sum().backward())(h)
        return w.grad

    agree(scenario)


def test_a_walk_that_comes_to_nothing_that_was_freed_is_allowed(agree):
    def scenario(compile):
        w, v = nn.Parameter(numbers(1.0, 2.0)), nn.Parameter(numbers(3.0, 4.0))
        y = compile(lambda: w.sin() + v)()
        y.sum().backward()
        found = [grad(y.sum(), v)]
        with pytest.raises(lucid.LucidError, match=re.escape(FREED + "\n  in Sin, recorded at ")):
            grad(y.sum(), w)
        return found

    agree(scenario, traces=1)


# ---------------------------------------------------------------------- messages


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: lucid.Tensor) -> lucid.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def message(call: Callable[[], object]) -> str:
    """What is raised, up to the line that says which node had saved it."""
    with pytest.raises(lucid.LucidError) as caught:
        call()
    return str(caught.value).partition("\n  saved for")[0]


def write(tensor: lucid.Tensor) -> None:
    with lucid.no_grad():
        tensor.add_(1)


def written_result(compile: Any) -> str:
    y = compile(lambda x: Square.apply(x * W))(numbers(1.0, 2.0))
    loss = (y * y).sum()
    write(y)
    return message(loss.backward)


def written_second_result(compile: Any) -> str:
    _, z = compile(lambda x: (x * W, lucid.exp(x * W)))(numbers(1.0, 2.0))
    loss = (z * z).sum()
    write(z)
    return message(loss.backward)


def written_argument(compile: Any) -> str:
    x = numbers(1.0, 2.0).double().requires_grad_()
    loss = compile(lambda x: Square.apply(x).sum())(x)
    write(x)
    return message(loss.backward)


def written_argument_with_history(compile: Any) -> str:
    x = Square.apply(W)
    loss = compile(lambda x: Square.apply(x).sum())(x)
    write(x)
    return message(loss.backward)


def written_state(compile: Any) -> str:
    state = nn.Parameter(numbers(1.0, 2.0))
    loss = compile(lambda x: Square.apply(state).sum())(numbers(1.0))
    write(state)
    return message(loss.backward)


def freed(compile: Any) -> str:
    loss = compile(lambda x: Square.apply(W * x).sum())(numbers(1.0))
    loss.backward()
    return message(loss.backward)


def freed_inside(compile: Any) -> str:
    def step(x: lucid.Tensor) -> lucid.Tensor:
        loss = Square.apply(W * x).sum()
        loss.backward()
        return loss

    return message(compile(step)(numbers(1.0)).backward)


def no_scalar(compile: Any) -> str:
    return message(compile(lambda x: W * x)(numbers(1.0)).backward).partition("\n")[0]


def no_history(compile: Any) -> str:
    return message(compile(lambda x: (W * x).detach())(numbers(1.0)).sum().backward)


def unused(compile: Any) -> str:
    y = compile(lambda x: (W * x).sum())(numbers(1.0))
    return message(lambda: grad(y, [lucid.ones(1, requires_grad=True)]))


def wrong_gradient(compile: Any) -> str:
    y = compile(lambda x: W * x)(numbers(1.0))
    return message(lambda: y.backward(lucid.ones(3)))


W = nn.Parameter(numbers(1.0, 2.0))


@pytest.mark.parametrize(
    "scenario",
    [
        written_result,
        written_second_result,
        written_argument,
        written_argument_with_history,
        written_state,
        freed,
        freed_inside,
        no_scalar,
        no_history,
        unused,
        wrong_gradient,
    ],
)
def test_errors_of_results_differentiated_outside_read_as_in_eager_mode(scenario):
    eager = scenario(lambda function: function)
    assert scenario(lucid.compile) == eager


def test_the_message_of_a_written_result_names_what_made_it():
    assert written_second_result(lucid.compile) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [FloatTensor [2]], which is output 0 of Exp, is at version 1; expected version "
        "0 instead."
    )


# ---------------------------------------------------------------------- in a custom forward


def test_what_a_forward_saves_of_a_compiled_result_is_differentiated_twice(agree):
    def scenario(compile):
        w, calls = nn.Parameter(numbers(2.0, 3.0)), lucid.zeros(())
        exponential = compile(lambda x, w: {"y": lucid.exp(x * w), "same": x})

        @compile
        def counted(x):
            calls.add_(x.sum() * 0 + 1)
            return x * x

        class Saved(Function):
            @staticmethod
            def forward(ctx, x):
                found = exponential(2 * x, w)
                assert not found["y"].requires_grad
                square = counted(found["same"])
                ctx.save_for_backward(found["y"], square)
                return found["y"] * square

            @staticmethod
            def backward(ctx, gradient):
                y, square = ctx.saved_tensors
                return gradient * y * square

        x = numbers(0.1, 0.2).requires_grad_()
        for _ in range(2):
            (first,) = grad(Saved.apply(x).sum(), x, create_graph=True)
            first.sum().backward()
        return [first.detach(), x, calls]

    agree(scenario, traces=0)


def within(block):
    def around(call):
        with block:
            call(lucid.ones(2))

    return around


def in_a_forward(call):
    Around.apply(lucid.ones(2, requires_grad=True), call)


@pytest.mark.parametrize(
    ("around", "named"),
    [
        (lambda call: lucid.vmap(call)(lucid.ones(3, 2)), "a vmap or a forward-mode derivative"),
        (in_a_forward, "the forward of a custom Function"),
        (within(detect_anomaly()), "detect_anomaly"),
        (within(saved_tensors_hooks(abs, abs)), "a block of hooks on saved tensors"),
    ],
)
def test_a_call_of_which_something_looks_at_single_ops_says_so(around, named):
    double = lucid.compile(lambda x: x * 2)
    around(double)
    reason = f"{named}, around this call, looks at single ops"
    assert double.stats.traces == 0 and double.stats.eager_reasons == [reason]
    double(lucid.ones(2))
    assert double.stats.traces == 1 and len(double.stats.eager_reasons) == 1


class Around(Function):
    """Calls what it is given in its forward."""

    @staticmethod
    def forward(ctx, x, call):
        return call(x)


def test_a_call_in_a_custom_forward_may_branch_on_a_tensor(agree):
    def scenario(compile):
        branches = compile(lambda x: x * 2 if x.sum() > 0 else x)

        class Doubled(lucid.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return branches(x)

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2

        return [Doubled.apply(lucid.ones(2, requires_grad=True))]

    agree(scenario, traces=0)


def test_returned_views_of_leaves_are_seen_by_hooks_and_kept_gradients(agree):
    def scenario(compile):
        w = lucid.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)

        @compile
        def step(x):
            flat = x.view(4)
            flat.register_hook(lambda g: g * 2)
            row = w[0]
            row.retain_grad()
            (row * 5).sum().backward()
            return flat, flat * 3, row, (row * row).sum()

        found = []
        for number in (1.0, 2.0):
            x = lucid.tensor([[number, 2.0], [3.0, 4.0]], requires_grad=True)
            flat, more, row, square = step(x)
            kept = row.grad.clone()
            more.register_hook(lambda g: g + 1)
            ((flat * flat).sum() + more.sum() + square * 2).backward()
            found += [x, w, kept, row.grad, flat._base is x]
        return found

    agree(scenario)


# ---------------------------------------------------------------------- what changes meanwhile


def test_a_backward_finds_around_the_function_what_its_call_found(agree):
    def scenario(compile):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        settings, state = {"scale": 2.0, "power": 2}, numbers(1.0)

        def body(x):
            return settings["scale"] * net(x) ** settings["power"] + state

        step, found = compile(body), []
        for i in range(4):
            x = lucid.randn(5, 3, requires_grad=True)
            loss = step(x).sum()
            net.eval()
            settings.update(scale=50.0 + i, power=3)
            state = numbers(7.0)
            loss.backward()
            found.append((loss, x.grad, [p.grad.clone() for p in net.parameters()]))
            assert not net.training and settings == {"scale": 50.0 + i, "power": 3}
            net.zero_grad()
            net.train()
            settings.update(scale=2.0, power=2)
            state = numbers(1.0) * i
        return found

    agree(scenario)


def test_messages_count_versions_as_eager_mode_does(agree):
    def scenario(compile):
        w = lucid.tensor([1.0, 2.0], requires_grad=True)

        @compile
        def step(x):
            y = w * x
            with lucid.no_grad():
                w.mul_(2)
                x.add_(1)
            return y

        x, found = lucid.ones(2).add_(1), []
        for _ in range(2):
            y = step(x)
            with pytest.raises(lucid.LucidError) as caught:
                y.sum().backward()
            found.append(str(caught.value).split("\n")[0])
        assert found[0].endswith("is at version 2; expected version 1 instead.")
        return found

    agree(scenario)


def test_hooks_on_a_result_are_called_in_the_order_of_their_registration(agree):
    def scenario(compile):
        order = []

        def noting(name, of):
            def hook(g):
                order.append(name)
                return of(g)

            return hook

        @compile
        def step(x):
            y = x * x
            y.register_hook(noting("inside", lambda g: g * 2))
            return y, y * 3

        found = []
        for number in (1.0, 2.0):
            x = lucid.tensor([number, 3.0], requires_grad=True)
            y, z = step(x)
            y.retain_grad()
            y.register_hook(noting("outside", lambda g: g + 1))
            (y.sum() + z.sum()).backward()
            found += [x, y.grad]
        return [*found, order]

    agree(scenario)


# ---------------------------------------------------------------------- the text of a history


def test_texts_of_results_name_what_eager_mode_would_have_behind_them(agree, capsys, caplog):
    log = logging.getLogger("histories")

    def scenario(compile):
        lucid.manual_seed(0)
        net = nn.Linear(3, 4)
        opt = lucid.optim.SGD(net.parameters(), lr=0.5)
        kept = []

        @compile
        def step(x, y):
            opt.zero_grad()
            output = net(x)
            loss = nn.functional.cross_entropy(output, y)
            print(loss, [output[0]])
            loss.backward()
            opt.step()
            log.warning("%s", loss)
            kept.append(loss)
            return loss, output, output.exp(), output.sum(1)

        x, y = lucid.randn(2, 3), lucid.tensor([1, 3])
        texts = [[repr(result) for result in step(x, y)] for _ in range(3)]
        texts += [repr(kept), capsys.readouterr().out, [*caplog.messages]]
        caplog.clear()
        return texts

    agree(scenario, traces=1)


def test_the_text_of_a_result_of_a_compiled_model(agree):
    def scenario(compile):
        lucid.manual_seed(0)
        net = compile(nn.Sequential(nn.Linear(3, 4), nn.GELU()))

        @compile
        def shift(h):
            print(h)
            return h + 1

        h = net(lucid.ones(2, 3))
        loss = nn.functional.mse_loss(h, lucid.zeros(2, 4))
        return [repr(h), repr(loss), repr(h[:, 1]), repr(shift(h))]

    agree(scenario)
