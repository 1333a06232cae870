"""Host Functions whose results have sizes, dtypes and structures that depend on data."""

from __future__ import annotations

import numpy as np
import pytest
from custom_functions import define, leaf, numbers
from host_functions import place_of

import lucid
from lucid import nn
from lucid.autograd import Function

ROWS = [[1.0, -1.0, 3.0], [1.0, 2.0, 3.0], [5.0, -1.0, 3.0], [-1.0, -1.0, -1.0], [2.0, 2.0, 9.0]]


class Positive(Function):
    """The positive elements, with what was given to it noted."""

    given: list[list[float]]

    @staticmethod
    def forward(ctx, x):
        ctx.mask = x.numpy() > 0
        ctx.shape = x.shape
        return lucid.from_numpy(x.numpy()[ctx.mask])

    @staticmethod
    def backward(ctx, grad):
        found = np.zeros(tuple(ctx.shape))
        found[ctx.mask] = grad.numpy()
        return lucid.from_numpy(found)


def outcomes(mode, body, rows=ROWS):
    """What a body returns for some inputs; and the compiled step."""
    step = mode(body)
    results = [step(lucid.tensor(row, dtype=lucid.float64)) for row in rows]
    return [numbers(result) for result in results], step


def assert_agrees(body, traces=None, rows=ROWS):
    expected, _ = outcomes(lambda body: body, body, rows)
    found, step = outcomes(lucid.compile, body, rows)
    assert found == expected
    if traces is not None:
        assert step.stats.traces == traces, step.stats.retrace_reasons
    return step


def test_each_size_is_traced_once():
    step = assert_agrees(lambda x: [Positive.apply(x) * 2, x], traces=3, rows=ROWS + ROWS)
    assert step.stats.retrace_reasons == [
        "Positive.forward: output 0: f64[2] -> f64[3]",
        "Positive.forward: output 0: f64[n0] -> f64[0]",
    ]
    assert step.stats.calls == 10


def test_gradients_through_results_of_any_size():
    w = leaf([1.0, 2.0, 0.5])

    def body(x):
        w.grad = None
        y = Positive.apply(x * w)
        (y * y).sum().backward()
        return [w.grad, y.detach()]

    assert_agrees(body, traces=3)


def test_a_backward_of_operations_uses_what_was_saved_in_this_size():
    def forward(ctx, x):
        keep = np.nonzero(x.numpy() > 0)[0]
        ctx.save_for_backward(lucid.from_numpy(keep), x)
        return lucid.from_numpy(x.numpy()[keep] ** 2)

    def backward(ctx, grad):
        keep, x = ctx.saved_tensors
        return lucid.zeros_like(x).index_add(0, keep, 2 * x[keep] * grad)

    fn, w = define(forward, backward), leaf([1.0, 2.0, 0.5])

    def body(x):
        w.grad = None
        fn.apply(x * w).sum().backward()
        return w.grad

    assert_agrees(body, traces=3)


def test_results_can_be_differentiated_outside_in_any_size(prepared):
    step = prepared(lambda x: Positive.apply(x * 3).square())
    for row in ROWS:
        x = leaf(row)
        step(x).sum().backward()
        assert numbers(x.grad) == [18 * value * (value > 0) for value in row]


def test_the_methods_run_once_per_call_with_all_that_others_see():
    """The call that found another size isn't made again, nor are those before it."""
    seen, total = [], lucid.zeros((), dtype=lucid.float64)

    class Noting(Positive):
        @staticmethod
        def forward(ctx, x):
            seen.append(numbers(x))
            total.add_(x.sum())
            return Positive.forward(ctx, x)

        @staticmethod
        def backward(ctx, grad):
            seen.append(["backward", *numbers(grad)])
            return Positive.backward(ctx, grad)

    w = leaf([1.0, 2.0, 0.5])

    def body(x):
        w.grad = None
        y = Noting.apply(x * w)
        y.sum().backward()
        z = Noting.apply(Noting.apply(y.detach() - 1) * 2)
        return [w.grad, y.detach(), z, total.clone()]

    def observed(mode):
        seen.clear()
        total.zero_()
        found, _ = outcomes(mode, body, ROWS + ROWS)
        return found, [*seen], total.item()

    expected = observed(lambda body: body)
    assert observed(lucid.compile) == expected


def test_state_is_written_once_and_only_at_the_end():
    x = lucid.tensor([[1.0, 2.0, 3.0]])

    def train(mode):
        lucid.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = lucid.optim.Adam(model.parameters(), lr=0.1)
        calls = lucid.zeros(())

        def body(x):
            calls.add_(1)
            optimizer.zero_grad()
            Positive.apply(lucid.dropout(model(x), 0.3) * 1.0).square().sum().backward()
            optimizer.step()
            return calls.clone()

        step = mode(body)
        counts = [step(x).item() for _ in range(12)]
        return counts, np.array(model.weight.detach().numpy())

    counts, expected = train(lambda body: body)
    found_counts, found = train(lucid.compile)
    assert found_counts == counts
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_random_numbers_that_a_host_method_draws_are_drawn_once(prepared):
    generator = np.random.default_rng(0)

    def forward(ctx, x):
        noise = generator.random(3)
        kept = x.numpy()[x.numpy() > 0]
        return lucid.from_numpy(np.concatenate([noise, kept]))

    fn = define(forward)
    found, _ = outcomes(prepared, lambda x: fn.apply(x))
    drawn = [value for row in found for value in row[:3]]
    assert drawn == np.random.default_rng(0).random(15).tolist()


def test_another_dtype_or_number_of_results_is_traced_anew():
    def forward(ctx, x):
        total = x.numpy().sum()
        if total > 8:
            return lucid.tensor(int(total)), x * 1
        return lucid.tensor(float(total)), None

    fn = define(forward, name="Total")

    def body(x):
        total, more = fn.apply(x)
        return [total * 2, lucid.zeros(1) if more is None else more]

    step = assert_agrees(body, traces=2, rows=ROWS + ROWS)
    assert step.stats.retrace_reasons == ["Total.forward: other tensors are its outputs"]


def test_writing_its_argument_only_at_times_is_traced_anew():
    def forward(ctx, x):
        if x.sum().item() > 4:
            x.numpy()[0] = 7.0
            ctx.mark_dirty(x)
            return x
        return x * 2

    fn = define(forward)

    def body(x):
        y = x * 1
        return [fn.apply(y), y]

    assert_agrees(body, traces=2, rows=ROWS + ROWS)


def test_an_array_on_ctx_of_another_shape():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.positive = x.numpy()[x.numpy() > 0]
            return lucid.from_numpy(x.numpy() * 2)

        @staticmethod
        def backward(ctx, grad):
            return grad * lucid.from_numpy(ctx.positive).sum()

    w = leaf([1.0, 1.0, 1.0])

    def body(x):
        w.grad = None
        Scaled.apply(x * w).sum().backward()
        return w.grad

    assert_agrees(body, traces=1)  # it stays with Python


def test_python_that_follows_from_a_size():
    def body(x):
        y = Positive.apply(x)
        parts = [y[i] * (i + 1) for i in range(len(y))]
        return sum(parts) + lucid.zeros(1) if len(y) < 3 else lucid.stack(parts)

    assert_agrees(body, traces=3)


def test_an_error_that_only_one_size_has_changes_nothing(prepared):
    count = lucid.zeros(())

    def body(x):
        count.add_(1)
        return Positive.apply(x).reshape(2, -1)

    step = prepared(body)
    step(lucid.tensor([1.0, -1.0, 3.0]))
    before = count.item()
    with pytest.raises(lucid.ShapeError) as caught:
        step(lucid.tensor([1.0, 2.0, 3.0]))
    assert str(caught.value) == (
        "reshape: shape '[2, -1]' is invalid for input of size 3\n"
        f"  input: f32[3]  from {place_of(body, 'reshape')}"
    )
    assert count.item() == before or step is body
    assert numbers(step(lucid.tensor([4.0, 2.0, -3.0]))) == [[4.0], [2.0]]


def test_a_step_that_a_host_method_calls_has_sizes_of_its_own():
    inner = lucid.compile(lambda x: Positive.apply(x) + 1)
    fn = define(lambda ctx, x: lucid.from_numpy(inner(x - 1).numpy() * 2))
    assert_agrees(lambda x: [fn.apply(x), Positive.apply(x)], rows=ROWS + ROWS)


def test_the_history_of_a_saved_intermediate_is_eager_modes_in_any_size(prepared):
    def forward(ctx, x):
        kept = x[lucid.from_numpy(np.nonzero(x.numpy() > 0)[0])]
        ctx.save_for_backward(kept * 2, x)
        return lucid.from_numpy(kept.detach().numpy() ** 2)

    def backward(ctx, grad):
        doubled, x = ctx.saved_tensors
        keep = lucid.tensor([0, 1, 2][: len(doubled)])
        return lucid.zeros_like(x).index_add(0, keep, grad * doubled)

    fn = define(forward, backward, name="Squared")

    def body(x, twice):
        (g,) = lucid.autograd.grad(fn.apply(x).sum(), x, create_graph=True)
        return lucid.autograd.grad(g.sum(), x)[0] if twice else g.detach()

    step = prepared(body)
    assert numbers(step(leaf([1.0, 2.0, -1.0]), False)) == [2.0, 4.0, 0.0]
    assert numbers(step(leaf([1.0, 2.0, 4.0]), False)) == [2.0, 4.0, 8.0]
    assert numbers(step(leaf([1.0, 2.0, -1.0]), True)) == [2.0, 2.0, 0.0]


# ---------------------------------------------------------------------- arguments of any size


class Softmax(Function):
    @staticmethod
    def forward(ctx, x):
        e = np.exp(x.numpy() - x.numpy().max(-1, keepdims=True))
        y = lucid.from_numpy(e / e.sum(-1, keepdims=True))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, g = ctx.saved_tensors[0].numpy(), grad.numpy()
        return lucid.from_numpy(y * (g - (g * y).sum(-1, keepdims=True)))


class MeanOfRows(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        return lucid.from_numpy(x.numpy().mean(0))

    @staticmethod
    def backward(ctx, grad):
        return lucid.from_numpy(np.repeat(grad.numpy()[None] / ctx.n, ctx.n, 0))


class Divided(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n, ctx.shape = n, x.shape
        return lucid.from_numpy(x.numpy() / n)

    @staticmethod
    def backward(ctx, grad):
        return lucid.from_numpy(grad.numpy().reshape(ctx.shape) / ctx.n), None


class Inner(Function):
    """All rows but the first and the last."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return lucid.from_numpy(x.numpy()[1:-1].copy())

    @staticmethod
    def backward(ctx, grad):
        found = np.zeros(tuple(ctx.shape))
        found[1:-1] = grad.numpy()
        return lucid.from_numpy(found)


class EightRows(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        return lucid.from_numpy(np.repeat(x.numpy().mean(0, keepdims=True), 8, 0))

    @staticmethod
    def backward(ctx, grad):
        return lucid.from_numpy(np.repeat(grad.numpy().sum(0, keepdims=True) / ctx.n, ctx.n, 0))


@pytest.mark.parametrize(
    ("function", "traces"),
    [
        (lambda x: Softmax.apply(x) * x, 3),
        (lambda x: Softmax.apply(x @ x.T) @ x, 3),
        (MeanOfRows.apply, 3),
        (lambda x: Divided.apply(x, x.shape[0]), 3),
        (lambda x: Inner.apply(Inner.apply(x)), 4),  # whose sizes only a call finds
        (EightRows.apply, 4),  # which are eight by chance for x as well, as it is traced
    ],
    ids=["softmax", "attention", "mean", "divided", "inner", "eight rows"],
)
def test_host_functions_of_arguments_of_any_size_are_one_program(function, traces):
    def made(mode):
        w = lucid.nn.Parameter(lucid.linspace(-1.0, 1.0, 9, dtype=lucid.float64).reshape(3, 3))

        def body(x):
            w.grad = None
            loss = function(x @ w).square().mean()
            loss.backward()
            return [loss.detach(), w.grad]

        return mode(body)

    step, eager = made(lucid.compile), made(lambda body: body)
    for n in (5, 6, 8, 7, 12, 9, 30, 10, 8, 23, 11):
        x = lucid.randn(n, 3, dtype=lucid.float64)
        np.testing.assert_allclose(*map(numbers, (step(x)[1], eager(x)[1])), rtol=1e-9)
    assert not step.stats.eager_reasons
    assert step.stats.traces == traces, step.stats.retrace_reasons


def test_a_forward_that_finds_another_size_than_its_operands_runs_once():
    seen = []

    class Noting(EightRows):
        @staticmethod
        def forward(ctx, x):
            seen.append(x.shape[0])
            return EightRows.forward(ctx, x)

    w = leaf([1.0, 2.0, 0.5])
    step = lucid.compile(lambda x: Noting.apply(x * w).sum().backward())
    sizes = [5, 6, 8, 7, 9]
    for n in sizes:
        step(lucid.ones(n, 3, dtype=lucid.float64))
    assert seen == sizes
    assert numbers(w.grad) == [40.0, 40.0, 40.0]


def test_a_gradient_of_a_wrong_size_is_an_error_in_any_size():
    class Wrong(MeanOfRows):
        @staticmethod
        def backward(ctx, grad):
            return lucid.zeros(ctx.n + (ctx.n == 9), 3, dtype=lucid.float64)

    w = leaf([1.0, 2.0, 0.5])

    def body(x):
        w.grad = None
        Wrong.apply(x * w).sum().backward()

    step = lucid.compile(body)
    for n in (5, 6, 7, 8):
        step(lucid.ones(n, 3, dtype=lucid.float64))
    for call in (body, step):
        with pytest.raises(lucid.LucidError, match=r"invalid gradient at index 0.*\[10, 3\]"):
            call(lucid.ones(9, 3, dtype=lucid.float64))
