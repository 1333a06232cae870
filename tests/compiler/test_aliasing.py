"""Gradients and arguments that share memory, in some calls of a step and not in others."""

from __future__ import annotations

import pytest

import lucid
from lucid.autograd import grad


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


# ---------------------------------------------------------------------- arguments on one memory

WRITTEN = "it gives an argument, or a tensor from outside, another history, by writing it"


def weights(count: int = 3) -> lucid.Tensor:
    return lucid.arange(1.0, count + 1).requires_grad_()


def derivatives(y: lucid.Tensor, leaf: lucid.Tensor) -> list[object]:
    """The first and the second derivative."""
    first = grad(y, leaf, create_graph=True)
    return [first, grad((first[0] ** 2).sum(), leaf)]


def written_twice(part, whole):
    part.mul_(2)
    whole.add_(whole.detach().clone() * part.sum())
    return part + 1


WRITES = {
    "the view": lambda part, whole: part.mul_(2) + whole.sum(),
    "the base": lambda part, whole: [whole.mul_(2), part + 1][1],
    "both": written_twice,
    "the view, after a read": lambda part, whole: part * 3 + whole[1:] + part.mul_(2) * whole.sum(),
    "the view, with a constant": lambda part, whole: part.copy_(ones(2)) * 2 + whole.sum(),
    "the base, with zeros": lambda part, whole: whole.zero_().sum() + part * 2,
    "a view of the view": lambda part, whole: [part[:1].mul_(5), part + whole.sum()][1],
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writing_one_of_a_base_and_its_view_gives_both_a_history_op_by_op(agree, write):
    def scenario(compile):
        step, found = compile(write), []
        for _ in range(3):
            w = weights()
            base = w**3
            view = base[1:]
            y = step(view, base)
            found.append([y, base, view, base._version, view._version])
            z = (y**2).sum() + (view**3).sum()
            found.append(derivatives(z + (base**2).sum() if base.requires_grad else z, w))
        return found

    (step,) = agree(scenario)
    assert step.stats.calls == 0
    assert set(step.stats.eager_reasons) == {WRITTEN}


def test_a_base_is_written_through_one_view_and_read_through_another(agree):
    def scenario(compile):
        step, found = compile(lambda a, b: a.mul_(2) + b), []
        for part in (slice(1, 3), slice(0, 3, 2)):
            w = weights()
            base = w**3
            a, b = base[:2], base[part]
            y = step(a, b)
            found.append([y, base, a, b, derivatives((y**2).sum() + (base * base).sum(), w)])
        equal = w * 1
        y = step(equal[1:], equal[1:])
        return [found, y, equal, grad((y * y).sum(), w)]

    agree(scenario)


def test_memory_without_a_history_gets_one_under_all_names_that_it_is_passed_by(agree):
    def scenario(compile):
        step, found = compile(lambda a, b, w: a.mul_(w) + b.sum()), []
        for start, stop in [(0, 2), (1, 3), (1, 3), (2, 4)]:
            base, w = lucid.arange(4.0), weights(2)
            a = base[start:stop]
            for others in (base, base[1:3], a):
                y = step(a, others, w)
                found += [y, a, base, others, grad((base * base).sum() + y.sum(), w)]
                base.detach_().requires_grad_(False)
                base.fill_(2)
                a = base[start:stop]
        return found

    agree(scenario)


def test_views_in_containers_share_the_history_of_their_base(agree):
    def scenario(compile):
        @compile
        def step(tensors):
            for part in tensors["parts"]:
                part.mul_(2)
            return tensors["whole"] * tensors["parts"][0].sum()

        w = weights()
        base = w**3
        tensors = {"parts": [base[:2], base[1:]], "whole": base}
        y = step(tensors)
        return [y, tensors, grad((y * base).sum(), w)]

    agree(scenario)


@pytest.mark.parametrize("written", ["base", "view"])
def test_what_was_detached_before_shows_the_values_and_not_the_history(agree, written):
    def scenario(compile):
        def write(base, alias):
            (base if written == "base" else alias).mul_(2)
            return base.sum() + alias

        step, found = compile(write), []
        for alias_of in (lambda x: x.detach(), lambda x: x.data, lambda x: x.detach()[:2]):
            w = weights()
            base = w * 3
            alias = alias_of(base)
            y = step(base, alias) if alias.shape == base.shape else step(base[:2], alias)
            found.append([y, base, alias, grad((y * y).sum() + base.sum(), w)])
        return found

    agree(scenario)


def test_a_call_runs_op_by_op_that_is_given_state_which_gets_a_history(agree):
    def scenario(compile):
        w, total = weights(2), ones(2)

        @compile
        def step(x):
            total.mul_(w)
            return x + total

        given = (ones(2), total, total[:], total.detach(), ones(2))
        found = [step(x) for x in given]
        return [found, total, grad(total.sum() + sum(y.sum() for y in found), w)]

    (step,) = agree(scenario)
    assert step.stats.eager_reasons == [WRITTEN] * 5


@pytest.mark.parametrize("is_base_passed", [True, False])
@pytest.mark.parametrize("base_of", [lambda w: w, lambda w: w**3], ids=["leaf", "computed"])
def test_a_view_made_without_grad_is_refused_as_in_eager_mode(agree, base_of, is_base_passed):
    def scenario(compile):
        step = compile(lambda view, base=None: view.mul_(2))
        plain = [step(ones(3)[1:]), step(ones(2))]
        base = base_of(weights())
        with lucid.no_grad():
            view = base[1:]
        with pytest.raises(RuntimeError, match="A view was created in no_grad mode") as caught:
            step(view, base) if is_base_passed else step(view)
        with lucid.no_grad():
            step(view)
        return [plain, str(caught.value).split("\n")[0], view, base]

    agree(scenario)


@pytest.mark.parametrize("written", ["base", "view", "neither"])
def test_a_backward_inside_goes_on_into_the_history_that_arguments_share(agree, written):
    def scenario(compile):
        @compile
        def step(view, base):
            if written != "neither":
                (base if written == "base" else view).mul_(2)
            (view * base.sum()).sum().backward()
            return view.detach() * 1

        found = []
        for _ in range(3):
            w = weights()
            base = w**3
            found.append([step(base[1:], base), w, base])
        return found

    (step,) = agree(scenario, traces=0)
    goes_on = "a backward() in it goes on into the history of an argument, outside, by "
    assert step.stats.eager_reasons[0].startswith(goes_on if written == "neither" else WRITTEN)


def test_gradients_go_on_outside_in_as_many_backwards_as_the_step_made(agree):
    def scenario(compile):
        def one(a, b):
            (a * b).sum().backward()

        def retaining(a, b):
            a.sum().backward(retain_graph=True)
            (b * 3).sum().backward()

        def freeing(a, b):
            a.sum().backward()
            b.sum().backward()

        found = []
        for step in map(compile, (one, retaining)):
            w, log = weights(), []
            h = w**3
            h.register_hook(lambda g, log=log: log.append(g.tolist()))
            step(h * 2, h**2)
            found += [w, log]
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            h = weights() ** 3
            compile(freeing)(h * 2, h**2)
        return found

    agree(scenario)
