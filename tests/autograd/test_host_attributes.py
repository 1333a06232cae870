"""What a host forward sets on its ctx: its backward is a host call as well, on the same ctx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from custom_functions import define, leaf, numbers

import lucid
from lucid.autograd import Function

FACTOR = 5.0


def gradients(prepare: Any, function: Any, calls: list[Any], *args: Any) -> tuple[Any, Any]:
    """The gradient of `function.apply(w * x, *args)` for each x, and the step."""

    def body(x):
        w.grad = None
        function.apply(w * x, *args).sum().backward()
        return w.grad.clone()

    w = leaf([1.0, 1.0, 1.0])
    step = prepare(body)
    return [numbers(step(lucid.tensor(x, dtype=lucid.float64))) for x in calls], step


def hosts_of(step: Any) -> list[str]:
    """The host calls of a compiled step, by name."""
    lines = step.stages["kernels"].splitlines()
    return [line.partition("= host ")[2].partition("(")[0] for line in lines if "= host " in line]


class Constant(Function):
    """A number and a shape."""

    @staticmethod
    def forward(ctx, x):
        ctx.k = 3
        ctx.shape = x.shape
        return lucid.from_numpy(x.numpy() * 3)

    @staticmethod
    def backward(ctx, grad):
        return (grad * ctx.k).reshape(ctx.shape)


class Arguments(Function):
    """Arguments, and what is computed from them and from shapes."""

    @staticmethod
    def forward(ctx, x, f, n, mode="up", *, extra=1):
        ctx.f, ctx.n = f, n
        count = x.shape[0] - 1
        ctx.sizes = (count, -n, x.dim() if n > 1 else 0)
        ctx.up = mode == "up" and len(x) == 3
        ctx.extra = extra + int(n / 2)
        return lucid.from_numpy(x.numpy() * f * n)

    @staticmethod
    def backward(ctx, grad):
        assert ctx.sizes == (2, -2, 1) and ctx.up
        return grad * ctx.f * ctx.n * ctx.extra, None, None, None


class TwoMethods(Function):
    @staticmethod
    def forward(x, f, n):
        return lucid.from_numpy(x.numpy() * f * n)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, f, _ = inputs
        ctx.f = f
        ctx.n = inputs[2]
        ctx.rows, *_ = x.shape

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.f * ctx.n, None, None


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize(
    ("function", "args", "factor"),
    [(Constant, (), 3.0), (Arguments, (0.5, 2), 2.0), (TwoMethods, (0.5, 2), 1.0)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_backward_beside_a_host_forward_is_a_host_call(mode, function, args, factor):
    prepare = lucid.compile if mode == "compiled" else lambda body: body
    found, step = gradients(prepare, function, [[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]], *args)
    assert found == [[factor * x for x in call] for call in ([1.0, 2.0, 3.0], [3.0, 4.0, 5.0])]
    if mode == "compiled":
        name = function.__name__
        assert hosts_of(step) == [name, f"{name}.backward"] and step.stats.traces == 1


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_backward_gets_the_ctx_that_forward_of_the_same_call_had(prepared, where):
    made, met = [], []

    def forward(ctx, x):
        made.append(ctx)
        return lucid.from_numpy(x.numpy() * 2)

    def backward(ctx, grad):
        met.append(ctx)
        return grad * 2

    fn = define(forward, backward)

    def body(x):
        y = fn.apply(fn.apply(x)).sum()
        return lucid.autograd.grad(y, x)[0] if where == "inside" else y

    step, x = prepared(body), leaf([1.0, 2.0])

    def gradient():
        found = step(x)
        return found if where == "inside" else lucid.autograd.grad(found, x)[0]

    gradient()  # a trace tries the methods on what there is
    for _ in range(2):
        made.clear()
        met.clear()
        assert numbers(gradient()) == [4.0, 4.0]
        if where == "inside" or step is body:
            assert len(made) == 2 and [id(ctx) for ctx in met] == [id(ctx) for ctx in made[::-1]]
        else:
            assert {id(ctx) for ctx in met} == {id(ctx) for ctx in made}


def test_a_float_argument_on_ctx_stays_live(prepared):
    fn = define(
        lambda ctx, x, f: (setattr(ctx, "unused", 0), lucid.from_numpy(x.numpy() * f))[1],
        lambda ctx, g: (g, None),
    )

    class Scale(Function):
        @staticmethod
        def forward(ctx, x, f):
            ctx.f = f
            return lucid.from_numpy(x.numpy() * f)

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.f, None

    x = leaf([1.0, 2.0])

    def body(f):
        y = Scale.apply(x, f) + fn.apply(x, f)
        return lucid.autograd.grad(y.sum(), x)[0]

    step = prepared(body)
    assert [numbers(step(f)) for f in (0.5, 4.0)] == [[1.5, 1.5], [5.0, 5.0]]
    if hasattr(step, "stats"):
        hosts = ["Scale", "Fn", "Fn.backward", "Scale.backward"]
        assert step.stats.traces == 1 and hosts_of(step) == hosts


class Largest(Function):
    """A number that is computed from the elements."""

    @staticmethod
    def forward(ctx, x):
        ctx.largest = int(np.argmax(x.numpy()))
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx, grad):
        return lucid.zeros_like(grad).index_fill(0, lucid.tensor([ctx.largest]), 1.0)


class Branch(Function):
    """Constants, but which one depends on the elements."""

    @staticmethod
    def forward(ctx, x):
        if x.sum() > 0:
            ctx.k = 2
        else:
            ctx.k = 3
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k


class Returns(Function):
    """A constant that is not always reached."""

    @staticmethod
    def forward(ctx, x):
        ctx.k = 2
        if x.sum() < 0:
            ctx.k = 3
            return lucid.from_numpy(x.numpy() * 2)
        ctx.k = 4
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k


def note_sum(ctx, x):
    ctx.k = int(x.numpy().sum())


class HandedOn(Function):
    """A constant at first sight, which somebody else sets anew."""

    @staticmethod
    def forward(ctx, x):
        ctx.k = 2
        note_sum(ctx, x)
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k


class SetByName(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.k = 2
        ctx.__setattr__("k", int(x.numpy().sum()))
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k


class FromOutside(Function):
    """A global, which may change."""

    @staticmethod
    def forward(ctx, x):
        ctx.k = FACTOR
        return lucid.from_numpy(x.numpy() * 2)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k


@pytest.mark.parametrize(
    ("function", "factors"),
    [
        (Largest, lambda x: np.arange(3) == np.argmax(x)),
        (Branch, lambda x: 2 if np.sum(x) > 0 else 3),
        (Returns, lambda x: 3 if np.sum(x) < 0 else 4),
        (HandedOn, lambda x: int(np.sum(x))),
        (SetByName, lambda x: int(np.sum(x))),
        (FromOutside, lambda x: 5),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_backward_sees_what_the_running_call_computed(prepared, function, factors):
    calls = [[1.0, 3.0, 2.0], [-5.0, -3.0, -1.0], [9.0, 3.0, -2.0]]
    found, step = gradients(prepared, function, calls)
    np.testing.assert_array_equal(found, [factors(x) * np.array(x) for x in calls])
    if hasattr(step, "stats"):
        assert hosts_of(step) == [function.__name__, f"{function.__name__}.backward"]
        assert step.stats.traces == 1


def test_a_global_that_changes_is_seen(prepared, monkeypatch):
    _, step = gradients(prepared, FromOutside, [[1.0, 1.0, 1.0]])
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    assert numbers(step(lucid.ones(3, dtype=lucid.float64))) == [7.0, 7.0, 7.0]


class Derivative(Function):
    """An array and a tensor on ctx."""

    @staticmethod
    def forward(ctx, x):
        array = x.numpy()
        ctx.derivative = np.cos(array)
        ctx.squared = x * x
        ctx.unread = np.array(["text"])
        return lucid.from_numpy(np.sin(array))

    @staticmethod
    def backward(ctx, grad):
        derivative = lucid.from_numpy(ctx.derivative)
        assert ctx.derivative.shape == (3,) and ctx.derivative.dtype == np.float64
        assert isinstance(ctx.derivative, np.ndarray) and ctx.derivative.ndim == 1
        return grad * derivative + 0 * ctx.squared + 0 * lucid.as_tensor(ctx.derivative)


def test_arrays_and_tensors_on_ctx_reach_the_backward(prepared):
    calls = [[1.0, 3.0, 2.0], [-5.0, -3.0, -1.0]]
    found, step = gradients(prepared, Derivative, calls)
    np.testing.assert_allclose(found, [np.cos(x) * np.array(x) for x in calls], rtol=1e-12)
    if hasattr(step, "stats"):
        assert hosts_of(step) == ["Derivative", "Derivative.backward"] and step.stats.traces == 1


def test_an_array_that_becomes_a_tensor_by_copy_is_one_of_the_running_call(prepared):
    class Copies(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mask = x.numpy() > 0
            return lucid.from_numpy(np.maximum(x.numpy(), 0))

        @staticmethod
        def backward(ctx, grad):
            return grad * lucid.tensor(ctx.mask, dtype=lucid.float64)

    calls = [[1.0, -3.0, 2.0], [-5.0, 3.0, -1.0]]
    found, step = gradients(prepared, Copies, calls)
    np.testing.assert_array_equal(found, np.maximum(calls, 0))
    if hasattr(step, "stats"):
        assert hosts_of(step) == ["Copies", "Copies.backward"]


@pytest.mark.parametrize(
    "use",
    [
        lambda array, g: lucid.from_numpy(np.where(array > 0, 1.0, 2.0)) * g,
        lambda array, g: g * float(array[0]),
        lambda array, g: lucid.from_numpy(2 * array) * g,
        lambda array, g: lucid.from_numpy(array.copy()) * g,
        lambda array, g: lucid.tensor([float(a) for a in array]) * g,
        lambda array, g: g[lucid.tensor(np.argsort(array))],
        lambda array, g: lucid.from_numpy(array.astype(np.float64)) * g,
        lambda array, g: g if array.max() > 4 else g * 2,
        lambda array, g: g.index_select(0, lucid.tensor(np.asarray(array).argsort())),
        lambda array, g: lucid.tensor([array.sum()] * 3, dtype=lucid.float64) * g,
    ],
)
def test_a_backward_may_compute_with_an_array_on_ctx(prepared, use):
    class Uses(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.array = x.numpy() + 0.0
            return lucid.from_numpy(x.numpy() * 2)

        @staticmethod
        def backward(ctx, grad):
            return use(ctx.array, grad * lucid.arange(1.0, 4.0, dtype=lucid.float64))

    calls = [[1.0, 3.0, 2.0], [-5.0, 9.0, -1.0]]
    found, step = gradients(prepared, Uses, calls)
    expected, _ = gradients(lambda body: body, Uses, calls)
    assert found == expected
    if hasattr(step, "stats"):
        assert hosts_of(step) == ["Uses", "Uses.backward"] and step.stats.traces == 1


def test_an_attribute_that_nobody_set_is_the_same_error(run):
    fn = define(lambda ctx, x: lucid.tensor(x.numpy() * 2), lambda ctx, g: g * ctx.missing)
    with pytest.raises(AttributeError, match=r"^'FnBackward' object has no attribute 'missing'$"):
        run(lambda x: fn.apply(x).sum().backward(), leaf([1.0]))


def test_a_step_that_reads_what_only_the_host_knows_outside_of_backward_runs_op_by_op():
    def body(x):
        y = Largest.apply(x)
        return y * y.grad_fn.largest

    step = lucid.compile(body)
    assert step(leaf([1.0, 2.0])).tolist() == body(leaf([1.0, 2.0])).tolist()
    reason = (
        "it reads ctx.largest outside of backward, which Largest.forward, a host call, computes "
        "anew at each call"
    )
    assert list(step.stats.eager_reasons) == [reason]


def test_python_state_that_a_backward_changes_is_changed_once_per_call(prepared):
    seen = []

    def forward(ctx, x):
        return lucid.from_numpy(x.numpy() * 2)

    def backward(ctx, grad):
        seen.append(1)
        return grad * 2

    found, _ = gradients(prepared, define(forward, backward), [[1.0, 1.0, 1.0]] * 3)
    assert found == [[2.0, 2.0, 2.0]] * 3 and seen == [1, 1, 1]


def test_the_second_derivative_is_eager_modes(prepared):
    class Power(Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.n = n
            ctx.save_for_backward(x)
            return lucid.from_numpy(x.numpy() ** n)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * ctx.n * x ** (ctx.n - 1), None

    def body(x):
        (g,) = lucid.autograd.grad(Power.apply(x, 3).sum(), x, create_graph=True)
        return lucid.autograd.grad(g.sum(), x)[0]

    step = prepared(body)
    assert numbers(step(leaf([1.0, 2.0]))) == [6.0, 12.0]
    if step is not body:
        assert step.stats.eager_reasons == [
            "it differentiates Power.backward, a host call, whose operations only eager mode sees"
        ]


def test_what_a_backward_leaves_on_ctx_is_there_for_the_next_one(prepared):
    class Counts(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.count = 0
            return lucid.from_numpy(x.numpy() * 2)

        @staticmethod
        def backward(ctx, grad):
            ctx.count += 1
            return grad * ctx.count

    step, x = prepared(Counts.apply), leaf([1.0])
    for _ in range(2):
        y = step(x)
        found = [lucid.autograd.grad(y, x, retain_graph=True)[0] for _ in range(3)]
        assert numbers(found) == [[1.0], [2.0], [3.0]]
