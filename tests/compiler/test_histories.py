"""Histories that a step leaves on gradients, and on tensors from outside that it writes."""

from __future__ import annotations

import pytest

import lucid
from lucid import nn
from lucid.autograd import Function, grad

WRITTEN = "it gives an argument, or a tensor from outside, another history, by writing it"
FOLLOWED = "a backward() in it follows history from outside, "


def numbers(*values: float, requires_grad: bool = False) -> lucid.Tensor:
    return lucid.tensor(list(map(float, values)), requires_grad=requires_grad)


def derivatives(y: lucid.Tensor, *leaves: lucid.Tensor) -> list[object]:
    """The first and the second derivatives of a sum."""
    first = grad(y.sum(), leaves, create_graph=True)
    sums = sum((g * g).sum() for g in first)
    second = grad(sums, leaves, retain_graph=True, allow_unused=True)
    return [first, second]


class Cube(Function):
    """Saves an input, an intermediate and its output."""

    @staticmethod
    def forward(ctx, x):
        square = x * x
        y = square * x
        ctx.save_for_backward(x, square, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, square, y = ctx.saved_tensors
        return gradient * (2 * square + y / x)


class Tripled(Function):
    """Works in place."""

    @staticmethod
    def forward(ctx, x):
        with lucid.no_grad():
            x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


# ---------------------------------------------------------------------- gradients


@pytest.mark.parametrize("cube", [lambda x: x**3, Cube.apply], ids=["op", "Function"])
@pytest.mark.parametrize("calls", [1, 3])
def test_a_gradient_with_a_graph_is_differentiated_outside(agree, cube, calls):
    def scenario(compile):
        x = numbers(1, 2, requires_grad=True)
        step = compile(lambda x: cube(x).sum().backward(create_graph=True))
        for _ in range(calls):
            step(x)
        return [x, x.grad, derivatives(x.grad, x)]

    agree(scenario)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_graph_is_added_to_a_gradient_that_is_there(agree, requires_grad):
    def scenario(compile):
        x = numbers(1, 2, requires_grad=True)
        x.grad = before = numbers(5, 6, requires_grad=requires_grad)
        step = compile(lambda x: ((x * before) ** 3).sum().backward(create_graph=True, inputs=[x]))
        step(x)
        step(x)
        leaves = [x, before] if requires_grad else [x]
        return [x.grad, x.grad is before, before, derivatives(x.grad, *leaves)]

    agree(scenario)


def test_a_gradient_without_a_graph_is_added_in_place_to_one_with_a_graph(agree):
    def scenario(compile):
        x = numbers(1, 2, requires_grad=True)
        with_graph = compile(lambda x: (x**3).sum().backward(create_graph=True))
        without = compile(lambda x: (x**2).sum().backward())
        with_graph(x)
        first = x.grad
        without(x)
        without(x)
        return [first is x.grad, x.grad, derivatives(x.grad, x)]

    agree(scenario)


def test_leaves_whose_gradients_are_one_value_with_one_history(agree):
    def scenario(compile):
        x, y, w = (numbers(i, 2, requires_grad=True) for i in (1, 3, 5))
        step = compile(lambda w: ((x + y) * w * w).sum().backward(create_graph=True))
        step(w)
        found = [x.grad, y.grad, w.grad]
        found += grad((x.grad * y.grad * w.grad).sum(), [x, w], retain_graph=True)
        return [*found, *grad(y.grad.sum(), w)]

    agree(scenario)


def test_gradients_of_parameters_are_penalized_outside(agree):
    def scenario(compile):
        lucid.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = lucid.optim.SGD(net.parameters(), lr=0.1)
        x = lucid.arange(6.0).reshape(2, 3) / 6

        @compile
        def step(x):
            optimizer.zero_grad()
            (net(x) ** 2).mean().backward(create_graph=True)

        found = []
        for _ in range(3):
            step(x)
            penalty = sum((p.grad**2).mean() for p in net.parameters())
            penalty.backward()
            optimizer.step()
            found.append([penalty, [p.grad for p in net.parameters()]])
        return [found, net]

    agree(scenario)


def test_a_penalty_inside_leaves_gradients_without_history_and_a_short_call(agree):
    steps = []

    def scenario(compile):
        lucid.manual_seed(0)
        net = nn.Linear(3, 2)
        optimizer = lucid.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        @compile
        def step(x):
            optimizer.zero_grad()
            (net(x) ** 2).sum().backward(create_graph=True)
            penalty = sum((p.grad**2).sum() for p in net.parameters())
            optimizer.zero_grad()
            penalty.backward()
            optimizer.step()
            return penalty.detach()

        steps.append(step)
        x = lucid.arange(6.0).reshape(2, 3)
        return [[step(x) for _ in range(3)], net, [p.grad for p in net.parameters()]]

    agree(scenario)
    assert steps[-1]._latest_program()._types is not None


def test_the_optimizer_writes_what_the_gradients_were_computed_from(agree):
    def scenario(compile):
        w = nn.Parameter(numbers(1, 2))
        optimizer = lucid.optim.SGD([w], lr=0.5)

        @compile
        def step(x):
            optimizer.zero_grad()
            (w * x * x).sum().backward(create_graph=True)
            optimizer.step()

        x = numbers(3, 4, requires_grad=True)
        step(x)
        step(x)
        (through_x,) = grad((w.grad * x).sum(), x, retain_graph=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            grad(x.grad.sum(), x)
        return [w, w.grad, x.grad, through_x]

    agree(scenario)


def test_a_gradient_is_freed_by_its_first_backward(agree):
    def scenario(compile):
        x = numbers(1, 2, requires_grad=True)
        step = compile(lambda x: (x**3).sum().backward(create_graph=True))
        step(x)
        first, x.grad = x.grad, None
        first.sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            first.sum().backward()
        return [first, x]

    agree(scenario)


def test_what_is_asked_of_a_result_whose_graph_is_freed_says_so(agree):
    def scenario(compile):
        w, other = numbers(1, 2, 4, requires_grad=True), numbers(1, requires_grad=True)

        @compile
        def step(x):
            y = (w * x).var()
            y.backward()
            return y

        for _ in range(3):
            x = numbers(1, 3, 2, requires_grad=True)
            y = step(x)
            for leaf in (w, x):
                for options in ({}, {"allow_unused": True}):
                    with pytest.raises(RuntimeError, match="through the graph a second time"):
                        grad(y, leaf, **options)
            assert grad(y, other, allow_unused=True) == (None,)
        return [w.grad]

    agree(scenario)


def test_a_gradient_with_a_graph_goes_on_into_the_history_of_an_argument(agree):
    def scenario(compile):
        w = numbers(1, 2, requires_grad=True)
        x = w * 2
        x.retain_grad()
        compile(lambda x: (x**3).sum().backward(create_graph=True))(x)
        return [x.grad, w.grad, derivatives(w.grad, w)]

    agree(scenario)


def test_a_gradient_that_is_constant_goes_on_with_a_graph(agree):
    def scenario(compile):
        w = numbers(1, 2, requires_grad=True)
        compile(lambda x: (x * 3).sum().backward(create_graph=True))(w * w)
        return [w.grad, derivatives(w.grad * w, w)]

    agree(scenario)


def test_a_result_and_a_gradient_have_one_graph(agree):
    def scenario(compile):
        x = numbers(1, 2, requires_grad=True)

        @compile
        def step(x):
            y = x**3
            y.sum().backward(create_graph=True)
            return y, x.grad * 2

        y, doubled = step(x)
        between = grad(doubled.sum(), x.grad, retain_graph=True)
        return [y, doubled, between, derivatives(y * doubled * x.grad, x)]

    agree(scenario)


def test_the_gradient_that_a_result_was_computed_from_is_the_one_of_the_call(agree):
    def scenario(compile):
        x, w = numbers(1, 2, requires_grad=True), numbers(5, 6, requires_grad=True)
        x.grad = numbers(3, 4)
        y = compile(lambda x: (x.grad * w * w).sum())(x)
        x.grad = numbers(7, 8)
        return derivatives(y, w)

    agree(scenario)


# ---------------------------------------------------------------------- arguments


WRITES = {
    "mul_": lambda x, w: x.mul_(w),
    "copy_": lambda x, w: x.copy_(w * w),
    "a part": lambda x, w: x[:1].add_(w[1:] ** 3),
    "zero_": lambda x, w: x.zero_(),
    "mark_dirty": lambda x, w: Tripled.apply(x),
    "twice": lambda x, w: x.mul_(w).add_(w * w),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize(
    "argument",
    [lambda w: w * w, lambda w: w.detach() * 2, lambda w: (lucid.cat([w, w * w]))[1:3]],
    ids=["computed", "without grad", "a view"],
)
def test_a_written_argument_has_the_history_of_the_write(agree, write, argument):
    def scenario(compile):
        w = numbers(2, 3, requires_grad=True)

        @compile
        def step(x):
            return write(x, w) is x, x[1:]

        x = argument(w)
        found = [step(x), step(x), x, x._version, x._base]
        if x.requires_grad:
            found += derivatives(x * w, w)
        return found

    agree(scenario)


@pytest.mark.parametrize("dirty", [False, True])
def test_a_view_as_argument_rewrites_the_history_of_its_base(agree, dirty):
    def scenario(compile):
        w = numbers(1, 2, 3, requires_grad=True)
        step = compile(lambda x: Tripled.apply(x) if dirty else x.mul_(w[1:]))
        base = w * w
        other, view = base[:2], base[1:]
        assert step(view) is view
        return [base, view, other, derivatives(base * w, w), derivatives(other * w[:2], w)]

    agree(scenario)


def test_hooks_and_retained_gradients_of_a_written_argument(agree):
    def scenario(compile):
        w, seen = numbers(1, 2, requires_grad=True), []
        x = w * 5
        x.register_hook(lambda g: seen.append(("before", g.tolist())))
        x.retain_grad()
        compile(lambda x: x.mul_(w.detach()))(x)
        x.register_hook(lambda g: seen.append(("after", g.tolist())))
        (x * x).sum().backward()
        return [x, x.grad, w.grad, seen]

    agree(scenario)


def test_an_alias_of_an_argument_is_written(agree):
    def scenario(compile):
        w = numbers(1, 2, requires_grad=True)

        @compile
        def step(x):
            alias = x.detach()
            alias.mul_(w)
            return alias

        x = numbers(3, 4)
        alias = step(x)
        return [x, alias, alias.data_ptr() == x.data_ptr(), derivatives(alias * w, w)]

    agree(scenario)


def test_a_leaf_and_a_view_of_one_are_not_written(agree):
    def scenario(compile):
        w = numbers(1, 2, 3, requires_grad=True)
        found = []
        for write in (lambda x: x.mul_(2), lambda x: Tripled.apply(x)):
            for x in (w, w[1:]):
                with pytest.raises(RuntimeError) as caught:
                    compile(write)(x)
                lines = str(caught.value).split("\n")  # an argument's base has none
                found.append([line for line in lines if not line.startswith("  leaf:")])
        return found

    agree(scenario)


def test_an_argument_with_a_history_is_written_op_by_op():
    w = numbers(1, 2, requires_grad=True)
    step = lucid.compile(lambda x: x.mul_(2))
    for _ in range(3):
        x = w * w
        step(x)
        (x * x).sum().backward()
    assert w.grad.tolist() == [48.0, 384.0]
    assert set(step.stats.eager_reasons) == {WRITTEN}
    with pytest.raises(lucid.LucidError, match="a leaf Variable that requires grad"):
        step(w)


# ---------------------------------------------------------------------- tensors from outside


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("is_computed", [False, True])
def test_a_written_tensor_from_outside_has_the_history_of_the_write(agree, write, is_computed):
    def scenario(compile):
        w = numbers(2, 3, requires_grad=True)
        outside = w * 5 if is_computed else numbers(4, 5)
        view = outside[1:]

        @compile
        def step(x):
            write(outside, w * x)
            return (outside * x).sum()

        found = [step(numbers(1, 2)) for _ in range(3)]
        if outside.requires_grad:
            found += derivatives(outside * w, w)
            found += grad(view.sum() + sum(found[:3]), w, retain_graph=True)
        return [found, outside, outside._version, view]

    agree(scenario)


def test_the_reader_of_a_tensor_that_is_given_a_history_outside_is_traced_again(agree):
    def scenario(compile):
        w, outside = numbers(2, 3, requires_grad=True), numbers(4, 5)
        view = outside[1:]
        step = compile(lambda x: (outside * x).sum() + view.sum())
        found = [step(numbers(1, 2))]
        outside.mul_(w)
        found.append(step(numbers(1, 2)))
        return [*found, derivatives(found[1] * w, w)]

    agree(scenario)


def test_results_go_on_into_the_history_of_a_tensor_from_outside(agree):
    def scenario(compile):
        w, b = numbers(2, 3, requires_grad=True), numbers(1, 1, requires_grad=True)
        outside = w * b
        view = outside[1:]
        step = compile(lambda x: (outside * outside * x).sum() + (view * b[1:]).sum())
        found = [step(numbers(1, 2)), step(numbers(3, 4))]
        return [found, derivatives(found[0] * found[1], w, b)]

    agree(scenario)


def test_a_tensor_from_outside_is_detached_in_place(agree):
    def scenario(compile):
        w = numbers(2, 3, requires_grad=True)
        outside, argument = w * w, w * 2

        @compile
        def step(x):
            outside.detach_()
            x.detach_()
            return outside * x * w

        found = [step(argument), step(argument)]
        return [found, outside, argument, grad(sum(found).sum(), w)]

    agree(scenario)


class Carried:
    """A state that each call goes on with, and cuts from the calls before."""

    def __init__(self) -> None:
        self.h = self.c = numbers(0, 0)


def detach_given(w, carried, state, x):
    for s in state:
        s.detach_()
    h = lucid.tanh(w * (x + state[0]))
    return h, h + state[1]


def detach_own(w, carried, state, x):
    carried.h.detach_()
    carried.c.detach_()
    carried.h = lucid.tanh(w * (x + carried.h))
    carried.c = carried.h + carried.c
    return carried.h, carried.c


@pytest.mark.parametrize("forward", [detach_given, detach_own], ids=["argument", "attribute"])
def test_a_state_that_each_call_detaches_in_place_is_native(agree, forward):
    def scenario(compile):
        w, carried = numbers(2, 3, requires_grad=True), Carried()

        @compile
        def step(state, x):
            found = forward(w, carried, state, x)
            w.grad = None
            sum(found).sum().backward()
            return found

        found, state = [], (carried.h, carried.c)
        for n in range(4):
            before, state = state, step(state, numbers(n, 1))
            flags = [(t.requires_grad, t.is_leaf) for t in (*before, *state)]
            found += [state, flags, w.grad.clone()]
        return found

    (step,) = agree(scenario)
    assert step.stats.eager_reasons == []


@pytest.mark.parametrize("calls", [0, 2], ids=["its trace", "a native call"])
def test_a_step_that_fails_leaves_what_it_has_detached_its_history(calls):
    w = numbers(2, 3, requires_grad=True)
    carried = Carried()

    @lucid.compile
    def step(x, limit):
        x.detach_()
        carried.h.detach_()
        assert x.sum() < limit, "too large"
        return x * w

    for _ in range(calls):
        carried.h = w * w
        step(w * w, 100.0)
    x, carried.h = w * w, w * w
    with pytest.raises(AssertionError, match="too large"):
        step(x, 1.0)
    for kept in (x, carried.h):
        (gradient,) = grad((3 * kept).sum(), w)
        assert gradient.tolist() == [12.0, 18.0]


def test_the_view_of_a_base_that_is_detached_keeps_its_history(agree):
    def scenario(compile):
        @compile
        def step(part, whole):
            whole.detach_()
            return part * whole.sum()

        found = []
        for _ in range(3):
            w = numbers(1, 2, 3, requires_grad=True)
            base = w**3
            view = base[1:]
            y = step(view, base)
            found += [y, base, view, derivatives((y**2).sum() + (view**3).sum(), w)]
        return found

    (step,) = agree(scenario)
    assert step.stats.eager_reasons == []


def test_a_step_that_writes_outside_is_differentiated_with_the_state_of_its_call(agree):
    def scenario(compile):
        w, total = numbers(2, 3, requires_grad=True), numbers(1, 1)

        @compile
        def step(x):
            total.mul_(w * x)
            return (total * 3).sum()

        first = step(numbers(1, 2))
        second = step(numbers(3, 4))
        return [first, second, total, derivatives(first * first + second * second, w)]

    agree(scenario)


def test_a_backward_inside_follows_the_history_that_the_call_finds(agree):
    def scenario(compile):
        w, x = numbers(2, 3, requires_grad=True), numbers(1, 2)
        outside = w * 5
        step = compile(lambda x: (outside * x).sum().backward(retain_graph=True))
        step(x)
        outside.mul_(w.detach())
        step(x)
        step(x)
        return [outside, w]

    (step,) = agree(scenario, traces=0)
    assert all(reason.startswith(FOLLOWED) for reason in step.stats.eager_reasons)


def test_a_backward_inside_that_retains_the_graph_leaves_the_history_of_an_argument(agree):
    def scenario(compile):
        w = numbers(2, 3, requires_grad=True)
        keep, free = (
            compile(lambda x, retain=retain: (x * x).sum().backward(retain_graph=retain))
            for retain in (True, False)
        )
        x = w * w
        for step in (keep, keep, free):
            step(x)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            free(x)
        return [x, w]

    agree(scenario)


def test_a_backward_inside_through_a_step_that_wrote_outside(agree):
    def scenario(compile):
        w, total = numbers(2, 3, requires_grad=True), numbers(1, 1)

        @compile
        def step(x):
            total.mul_(x)
            return (w * total).sum()

        y = step(numbers(1, 2))
        retaining = compile(lambda x: (y * x).sum().backward(retain_graph=True))
        for _ in range(3):
            retaining(numbers(1, 2))
        return [w, total]

    _, retaining = agree(scenario)
    assert all(reason.startswith(FOLLOWED) for reason in retaining.stats.eager_reasons)


def test_a_backward_inside_frees_history_from_outside_once(agree):
    def scenario(compile):
        w = numbers(2, 3, requires_grad=True)
        outside = w * w
        step = compile(lambda x: (outside * x).sum().backward())
        step(numbers(1, 2))
        for _ in range(2):
            with pytest.raises(lucid.LucidError, match="backward through the graph a second time"):
                step(numbers(1, 2))
        return w

    (step,) = agree(scenario)
    assert step.stats.eager_reasons[0].startswith(f"{FOLLOWED}MulBackward, recorded at ")


def test_a_backward_inside_frees_what_a_step_has_left_on_an_object(agree):
    def scenario(compile):
        w, total, left = numbers(2, 3, requires_grad=True), numbers(0, 0), {}

        @compile
        def forward(x):
            total.add_(x)
            left["y"] = w * w * total

        @compile
        def backward(x):
            (left["y"] * x).sum().backward()
            left.clear()

        for _ in range(3):
            forward(numbers(1, 2))
            backward(numbers(1, 2))
        return [w, total]

    agree(scenario)


@pytest.mark.parametrize("inside", [False, True])
def test_a_gradient_through_a_history_that_was_written_over(agree, inside):
    def scenario(compile):
        w = numbers(2, 3, requires_grad=True)
        outside = w * w

        @compile
        def step(x):
            (outside * x).sum().backward(create_graph=True)
            if inside:
                outside.mul_(x)

        step(numbers(1, 2))
        found = []
        if not inside:
            found += grad(w.grad.sum(), w, retain_graph=True)
            outside.mul_(2)
        return [*found, *grad(w.grad.sum(), w), outside]

    (step,) = agree(scenario, traces=0)
    assert step.stats.eager_reasons[0].startswith(FOLLOWED)


def test_the_gradient_of_an_argument_that_is_asked_for_stays_there(agree):
    def scenario(compile):
        w = lucid.tensor([1.0, 2.0], requires_grad=True)

        @compile
        def step(x):
            (x * x).sum().backward(inputs=[x])

        found = []
        for _ in range(2):
            x = w * 2
            step(x)
            found += [x.grad, w.grad is None]
        return found

    agree(scenario)


def test_a_leaf_that_stops_requiring_grad_before_it_is_written_has_its_first_history_outside(agree):
    def scenario(compile):
        q = lucid.ones(3, requires_grad=True)

        def step():
            product = q.exp()
            q.requires_grad_(False)
            q[...] = product * 0.5
            return q

        result = compile(step)()
        result.sum().backward()
        return [result.detach(), result.is_leaf, result.requires_grad, result is q]

    agree(scenario)
