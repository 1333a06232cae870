"""The backward walk: entry points, options, errors, what is visited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from custom_functions import Square, define, first_line, leaf, numbers, other_lines

import lucid
from lucid.autograd import backward, grad
from lucid.tensor import core


def refused(run, body, *args):
    with pytest.raises(RuntimeError) as caught:
        run(body, *args)
    return first_line(caught)


UNUSED = (
    "The differentiated Tensor at index 1 appears to not have been used in the graph. Set "
    "allow_unused=True if this is the desired behavior."
)


def test_a_single_input_still_gives_a_tuple(run):
    assert numbers(run(lambda x: grad((x * 2).sum(), x), leaf([1.0]))) == [[2.0]]


def test_a_repeated_input_is_fine(run):
    assert numbers(run(lambda x: grad((x * 2).sum(), [x, x]), leaf([1.0]))) == [[2.0], [2.0]]


def test_an_output_may_be_an_input(run):
    assert numbers(run(lambda x: grad(x, x), leaf(1.0))) == [1.0]


def test_gradients_of_intermediates(run):
    def body(x):
        a = x * 2
        return grad((a * a).sum(), [a, x])

    assert numbers(run(body, leaf([1.0]))) == [[4.0], [8.0]]


def test_gradients_of_several_outputs_are_summed(run):
    def body(x, seed):
        return grad([x * 2, (x * 3).sum()], [x], [seed, None])

    assert numbers(run(body, leaf([1.0, 1.0]), leaf([1.0, 10.0], False))) == [[5.0, 23.0]]


def test_grad_leaves_dot_grad_alone(run):
    x = leaf([1.0])
    run(lambda x: grad(Square.apply(x).sum(), x)[0], x)
    assert x.grad is None


def test_an_unused_input_is_an_error(run):
    body = lambda x, z: grad((x * 2).sum(), [x, z])  # noqa: E731
    assert refused(run, body, leaf([1.0]), leaf([1.0])) == UNUSED


def test_allow_unused_gives_none(run):
    body = lambda x, z: grad((x * 2).sum(), [x, z], allow_unused=True)  # noqa: E731
    assert numbers(run(body, leaf([1.0]), leaf([1.0]))) == [[2.0], None]


def test_materialize_grads_gives_zeros(run):
    body = lambda x, z: grad((x * 2).sum(), [x, z], materialize_grads=True)  # noqa: E731
    assert numbers(run(body, leaf([1.0]), leaf([1.0, 1.0]))) == [[2.0], [0.0, 0.0]]


def test_zeros_of_a_recorded_backward_can_be_differentiated_again(run):
    def slopes(x, a):
        y, found = a * x, []
        for _ in range(3):
            (y,) = grad(y, x, create_graph=True, materialize_grads=True)
            found.append(y.detach())
        return found

    assert numbers(run(slopes, leaf(3.0), leaf(2.0))) == [2.0, 0.0, 0.0]


def test_materialize_grads_contradicts_allow_unused_false(run):
    body = lambda x: grad(x.sum(), x, materialize_grads=True, allow_unused=False)  # noqa: E731
    with pytest.raises(ValueError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == (
        "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
        "allow_unused=False."
    )


def test_an_input_must_require_grad(run):
    body = lambda x, z: grad((x * 2).sum(), [x, z])  # noqa: E731
    message = "One of the differentiated Tensors does not require grad"
    assert refused(run, body, leaf([1.0]), leaf([1.0], False)) == message


@pytest.mark.parametrize("entry", ["grad", "backward"])
def test_an_output_must_require_grad(run, entry):
    def body(x, z):
        y = (z * 2).sum()
        grad(y, x) if entry == "grad" else y.backward()

    message = "element 0 of tensors does not require grad and does not have a grad_fn"
    assert refused(run, body, leaf([1.0]), leaf([1.0], False)) == message


@pytest.mark.parametrize("entry", ["grad", "backward"])
def test_a_gradient_is_created_for_scalars_only(run, entry):
    def body(x):
        y = x * 2
        grad(y, x) if entry == "grad" else y.backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0, 2.0]))
    assert first_line(caught) == "grad can be implicitly created only for scalar outputs"
    assert other_lines(caught).startswith("  output 0: f64[2]  from test_engine.py:")


def test_a_gradient_has_the_shape_of_its_output(run):
    message = (
        "Mismatch in shape: grad_output[0] has a shape of lucid.Size([3]) and output[0] has a "
        "shape of lucid.Size([2])."
    )
    body = lambda x, seed: grad(x * 2, x, seed)  # noqa: E731
    assert refused(run, body, leaf([1.0, 2.0]), leaf([1.0] * 3, False)) == message


def test_a_gradient_is_a_tensor_or_none(run):
    body = lambda x: grad([x * 2], x, [3])  # noqa: E731
    with pytest.raises(TypeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == "gradients can be either Tensors or None, but got int"


def test_there_are_as_many_gradients_as_outputs(run):
    body = lambda x, seed: grad([x * 2, x * 3], x, [seed])  # noqa: E731
    message = "got 2 tensors and 1 gradients"
    assert refused(run, body, leaf([1.0]), leaf([1.0], False)) == message


def test_inputs_are_not_empty(run):
    body = lambda x: grad((x * 2).sum(), [])  # noqa: E731
    assert refused(run, body, leaf([1.0])) == "`inputs` argument to `grad()` cannot be empty."
    body = lambda x: (x * 2).sum().backward(inputs=[])  # noqa: E731
    assert refused(run, body, leaf([1.0])) == ("`inputs` argument to `backward()` cannot be empty.")


def test_batched_grads_are_stacked(run):
    body = lambda x, seeds: grad(x * x, x, seeds, is_grads_batched=True)  # noqa: E731
    found = run(body, leaf([1.0, 2.0]), leaf([[1.0, 0.0], [0.0, 1.0]], False))
    assert numbers(found) == [[[2.0, 0.0], [0.0, 4.0]]]


def test_batched_grads_have_one_more_axis(run):
    body = lambda x, seeds: grad(x * x, x, seeds, is_grads_batched=True)  # noqa: E731
    assert refused(run, body, leaf([1.0, 2.0]), leaf([1.0, 1.0], False)) == (
        "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the "
        "batch dimension. The sizes of the remaining dimensions are expected to match the shape of "
        "corresponding output, but a mismatch was detected: grad_output[0] has a shape of "
        "lucid.Size([]) and output[0] has a shape of lucid.Size([2]). If you only want some "
        "tensors in `grad_output` to be considered batched, consider using vmap."
    )


def test_backward_accumulates_into_given_inputs_only(run):
    x, z = leaf([1.0]), leaf([1.0])

    def body(x, z):
        a = x * z
        (a * 2).sum().backward(inputs=[x, a])
        return a.grad

    assert numbers(run(body, x, z)) == [2.0]
    assert numbers(x.grad) == [2.0]
    assert z.grad is None


def test_backward_of_several_tensors(run):
    x = leaf([1.0])
    run(lambda x, seed: backward([x * 2, (x * 3).sum()], [seed, None]), x, leaf([10.0], False))
    assert numbers(x.grad) == [23.0]


def test_gradients_accumulate_over_backwards(run):
    x = leaf([1.0])
    for _ in range(3):
        run(lambda x: Square.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [6.0]


# ---------------------------------------------------------------------- what runs


def counting(ctx_backward=lambda ctx, *grads: grads[0]):
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 2, x * 3

    def run_backward(ctx, *grads):
        ctx.seen.append("run")
        return ctx_backward(ctx, *grads), None

    return define(forward, run_backward)


def test_backward_runs_once_however_many_outputs_and_paths(run):
    fn = counting()

    def body(x):
        seen = []
        a, b = fn.apply(x, seen)
        (a * b + a + b).sum().backward()
        return seen

    assert run(body, leaf([1.0])) == ["run"]


def test_parts_that_no_asked_input_needs_are_not_visited(run):
    fn = counting()

    def body(x, z):
        seen = []
        a, _ = fn.apply(x, seen)
        grad((a * z).sum(), z)
        return seen

    assert run(body, leaf([1.0]), leaf([1.0])) == []


def test_unsent_gradients_arrive_as_zeros_or_none(run):
    def prepared(materialize):
        def forward(ctx, x, seen):
            ctx.seen = seen
            ctx.set_materialize_grads(materialize)
            return x.clone(), x.clone()

        def run_backward(ctx, first, second):
            ctx.seen.append(second)
            return first, None

        return define(forward, run_backward)

    for materialize in (True, False):
        fn = prepared(materialize)

        def body(x, fn=fn):
            seen = []
            fn.apply(x, seen)[0].sum().backward()
            return seen

        assert numbers(run(body, leaf([1.0]))) == ([[0.0]] if materialize else [None])


# ---------------------------------------------------------------------- exceptions


def failing(where):
    """A Function whose backward fails for as long as its attribute says so."""

    def run_backward(ctx, g):
        if fn.fails:
            raise ZeroDivisionError(where)
        return g * 2

    fn = define(lambda ctx, x: x * 2, run_backward)
    fn.fails = True
    return fn


def test_after_an_exception_the_graph_can_be_retried_and_no_leaf_holds_a_part(prepared):
    x, z = leaf([1.0]), leaf([1.0])
    fn = failing("here")
    y = prepared(lambda x, z: (fn.apply(x) + z).sum())(x, z)
    with pytest.raises(ZeroDivisionError, match=r"^here$"):
        y.backward()
    assert (x.grad, z.grad, lucid.is_grad_enabled()) == (None, None, True)
    fn.fails = False
    y.backward()
    assert numbers([x.grad, z.grad]) == [[2.0], [1.0]]


def test_what_ran_before_the_exception_can_run_again(prepared):
    x = leaf([3.0])
    fn = failing("here")
    y = prepared(lambda x: Square.apply(fn.apply(Square.apply(x))).sum())(x)
    with pytest.raises(ZeroDivisionError, match=r"^here$"):
        y.backward()
    fn.fails = False
    y.backward()
    assert numbers(x.grad) == [2 * 18.0 * 2 * 2 * 3.0]


def test_a_step_that_failed_has_changed_nothing_and_can_be_retried(run):
    x, z = leaf([1.0]), leaf([1.0])
    fn = failing("here")

    def step(x, z):
        (fn.apply(x) + z).sum().backward()

    with pytest.raises(ZeroDivisionError, match=r"^here$"):
        run(step, x, z)
    assert (x.grad, z.grad, lucid.is_grad_enabled()) == (None, None, True)
    fn.fails = False
    run(step, x, z)
    assert numbers([x.grad, z.grad]) == [[2.0], [1.0]]


@pytest.mark.parametrize("where", ["forward", "setup_context", "backward", "hook"])
def test_exceptions_of_the_user_survive(run, where):
    class Failing(lucid.autograd.Function):
        @staticmethod
        def forward(x):
            if where == "forward":
                raise KeyError("in forward")
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            if where == "setup_context":
                raise KeyError("in setup_context")

        @staticmethod
        def backward(ctx, g):
            if where == "backward":
                raise KeyError("in backward")
            return g

    def hook(g):
        if where == "hook":
            raise KeyError("in hook")

    def body(x):
        y = Failing.apply(x)
        y.register_hook(hook)
        y.sum().backward()

    with pytest.raises(KeyError) as caught:
        run(body, leaf([1.0]))
    assert caught.value.args == (f"in {where}",)
    assert caught.traceback[-1].path.name == "test_engine.py"
    assert lucid.is_grad_enabled()


def test_a_walk_that_nobody_watches_makes_tensors_for_leaves_alone(monkeypatch):
    """Between nodes gradients are arrays; who hooks one gets a tensor, made at the user's line."""
    made = []

    def noting(storage, *rest, new=core._new):
        made.append(new(storage, *rest))
        return made[-1]

    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = z = x * w
    for _ in range(4):
        z = lucid.softmax((z * w - x).tanh(), 0)
    monkeypatch.setattr(core, "natively", core.leave_to_python)
    monkeypatch.setattr(core, "_new", noting)
    z.sum().backward(retain_graph=True)
    made.clear()  # a program's first run is noted, on tensors
    x.grad = w.grad = None
    loss = z.sum()
    del made[:]
    loss.backward(retain_graph=True)
    assert {id(tensor) for tensor in made} == {id(w.grad), id(x.grad)}
    expected = numbers([x.grad, w.grad])
    seen = []
    y.register_hook(seen.append)
    x.grad = w.grad = None
    loss.backward()  # line
    assert numbers([x.grad, w.grad]) == expected
    assert seen[0].location.text.endswith("# line")


def test_a_recorded_walk_makes_tensors_for_those_who_see_gradients_alone(monkeypatch):
    """Between nodes gradients are values of the graph, unless they are differentiated again."""
    made = []

    def noting(storage, *rest, new=core._new):
        made.append(new(storage, *rest)._type)
        return new(storage, *rest)

    def body(x, w, create_graph):
        y = z = (x * w).T
        for _ in range(5):
            z = lucid.maximum((z.T * w - x).tanh(), x).T
        return grad(z.sum(), [x, y], create_graph=create_graph)

    monkeypatch.setattr(core, "_new", noting)
    given = leaf([[1.0, 2.0, 5.0], [2.0, 1.0, 3.0]]), leaf([[3.0, 4.0, 0.5], [1.0, 1.0, 2.0]])
    expected = body(*given, False)
    counts = []
    for create_graph in (True, False):
        step = lucid.compile(body)
        del made[:]
        found = step(*given, create_graph)
        assert numbers(found) == numbers(expected)
        assert [x.stride() for x in found] == [x.stride() for x in expected]
        counts.append(len(made))
    assert 2 * counts[1] < counts[0]


def test_a_part_without_elements_has_a_gradient(run: Callable[..., Any]) -> None:
    """A vector of no elements fits to all, as what a mask has found may be empty."""

    def body(x: lucid.Tensor, other: lucid.Tensor) -> lucid.Tensor:
        y = lucid.cat([other, x, x], -1)
        y.sum().backward()
        return y

    for other in (lucid.ones(3), lucid.ones(2, 3), lucid.ones(0)):
        x = lucid.zeros(0, requires_grad=True)
        y = run(body, x, other)
        assert y.requires_grad and y.shape == other.shape
        assert x.grad is not None and x.grad.shape == (0,)


class DoubledInPlace(lucid.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: lucid.Tensor) -> lucid.Tensor:
        return gradient.mul_(2)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_backward_that_writes_its_gradient_writes_no_other_one(
    run: Callable[..., Any], is_first: bool
) -> None:
    """One array may be several gradients; who gets one that is not its own alone gets a copy."""
    x, y = (lucid.ones(3, requires_grad=True) for _ in range(2))

    def body(x: lucid.Tensor, y: lucid.Tensor) -> None:
        kept, written = y * 1, DoubledInPlace.apply(x)  # whose backward comes first
        total = written + kept if is_first else kept + written
        (total * total).sum().backward()

    run(body, x, y)
    assert x.grad is not None and y.grad is not None
    assert x.grad.tolist() == [8.0] * 3 and y.grad.tolist() == [4.0] * 3


def test_a_gradient_may_be_read_where_it_is_added():
    x = lucid.zeros(2, 2, requires_grad=True)
    x.grad = kept = lucid.tensor([[1.0, 2.0], [3.0, 4.0]])
    x.backward(kept.T)
    assert x.grad is kept
    assert numbers(kept) == [[2.0, 5.0], [5.0, 8.0]]
