"""Custom Functions that leave lucid: NumPy, SciPy, Python's numbers, inside of a step."""

from __future__ import annotations

import re

import numpy as np
import pytest
from custom_functions import Square, define, leaf, numbers
from host_functions import Cube, Double, PlusOne, Sine, place_of

import lucid
from lucid import nn
from lucid.autograd import Function


@pytest.mark.parametrize("function", [Sine, Cube, Double])
def test_forward_and_backward_may_use_numpy(prepared, function):
    w = leaf([0.5, 1.5, -2.0])

    def body(x):
        y = function.apply(w * x).sum()
        y.backward()
        return y

    step = prepared(body)
    formula = {
        Sine: (np.sin, np.cos),
        Cube: (lambda z: z**3, lambda z: 3 * z**2),
        Double: (lambda z: 2 * z, lambda z: 2 + 0 * z),
    }
    value, derivative = formula[function]
    for k in range(3):
        x = np.array([1.0, 2.0, 3.0]) + k
        w.grad = None
        y = step(lucid.tensor(x))
        z = w.detach().numpy() * x
        np.testing.assert_allclose(y.item(), value(z).sum(), rtol=1e-12)
        np.testing.assert_allclose(w.grad.numpy(), derivative(z) * x, rtol=1e-12)


def test_a_branch_on_data_is_taken_anew_at_every_call(prepared):
    def forward(ctx, x):
        if x.sum() > 0:
            return x * 2
        return lucid.full_like(x, float(x[0]))

    step = prepared(lambda x: define(forward).apply(x) + 1)
    assert numbers(step(lucid.tensor([1.0, 2.0]))) == [3.0, 5.0]
    assert numbers(step(lucid.tensor([-1.0, -2.0]))) == [0.0, 0.0]


@pytest.mark.parametrize(
    "look", [lambda x: x.item(), float, lambda x: x.tolist(), lambda x: np.asarray(x).item()]
)
def test_every_way_to_the_numbers_works(prepared, look):
    fn = define(lambda ctx, x: lucid.tensor(look(x) * 3))
    step = prepared(lambda x: fn.apply(x * 2))
    assert [step(lucid.tensor(v)).item() for v in (1.0, 2.0)] == [6.0, 12.0]


def test_a_body_by_scipy(prepared):
    special = pytest.importorskip("scipy.special")

    class Gamma(Function):
        @staticmethod
        def forward(ctx, x):
            y = lucid.tensor(special.gammaln(x.numpy()))
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * lucid.tensor(special.digamma(x.numpy()))

    x = leaf([0.5, 2.5])

    def body():
        Gamma.apply(x * 2).sum().backward()

    prepared(body)()
    np.testing.assert_allclose(x.grad.numpy(), 2 * special.digamma([1.0, 5.0]), rtol=1e-12)


def test_in_place_by_numpy(prepared):
    x = leaf([1.0, 2.0])

    def body(scale):
        a = x * scale
        y = PlusOne.apply(a)
        y.sum().backward()
        return y is a, a._version, a.grad_fn.name(), a.detach()

    step = prepared(body)
    for scale in (1.0, 3.0):
        x.grad = None
        same, version, name, a = step(scale)
        assert (same, version, name) == (True, 1, "PlusOneBackward")
        assert numbers([a, x.grad]) == [[scale + 1, 2 * scale + 1], [10 * scale, 10 * scale]]


def test_in_place_by_numpy_on_a_view_writes_its_base(prepared):
    x = leaf([1.0, 2.0, 3.0])

    def body():
        a = x * 1
        PlusOne.apply(a[1:])
        a.sum().backward()
        return a.detach()

    assert numbers(prepared(body)()) == [1.0, 3.0, 4.0]
    assert numbers(x.grad) == [1.0, 10.0, 10.0]


def test_what_was_saved_before_a_write_by_numpy_is_missed(run):
    class Inplace(Function):
        @staticmethod
        def forward(ctx, x):
            x_npy = x.numpy()
            x_npy += 1
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad

    def body(x):
        a = x.clone()
        b = a * a
        Inplace.apply(a)
        b.backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf(1.0))
    assert str(caught.value) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [DoubleTensor []], which is output 0 of Inplace, is at version 1; expected "
        f"version 0 instead.\n  saved for MulBackward, recorded at {place_of(body, 'a * a')}"
    )


def test_an_argument_can_be_written_by_numpy(run):
    x = lucid.tensor([1.0, 2.0])
    run(lambda x: PlusOne.apply(x) * 1, x)
    assert numbers(x) == [2.0, 3.0]
    assert x._version == 1


def test_a_write_without_mark_dirty_is_seen_too(run):
    def forward(ctx, x):
        x.numpy()[0] = 5.0
        return x * 2

    x = lucid.tensor([1.0, 2.0])
    assert numbers(run(lambda x: define(forward).apply(x), x)) == [10.0, 4.0]
    assert numbers(x) == [5.0, 2.0] and x._version == 0


def test_attributes_of_ctx_belong_to_one_call(prepared):
    def forward(ctx, x, k):
        ctx.largest = int(np.argmax(x.numpy()))
        ctx.k = k
        return x * k

    def backward(ctx, grad):
        g = lucid.zeros_like(grad)
        g[ctx.largest] = ctx.k
        return g, None

    w = leaf([1.0, 1.0, 1.0])
    fn = define(forward, backward)

    def body(x):
        (fn.apply(w * x, 2) + fn.apply(-w * x, 3)).sum().backward()

    step = prepared(body)
    for values, expected in (([1.0, 3.0, 2.0], [-3.0, 6.0, 0.0]), ([5.0, 3.0, 2.0], [10, 0, -6])):
        w.grad = None
        step(lucid.tensor(values))
        assert numbers(w.grad) == expected


def test_saved_intermediates_reach_a_recorded_backward(prepared):
    def forward(ctx, x):
        root = lucid.from_numpy(np.sqrt(x.numpy()))
        ctx.save_for_backward(None, root)
        return root * x

    def backward(ctx, grad):
        nothing, root = ctx.saved_tensors
        assert nothing is None
        return grad * 1.5 * root

    x = leaf([4.0, 9.0])

    def body():
        define(forward, backward).apply(x).sum().backward()

    prepared(body)()
    assert numbers(x.grad) == [3.0, 4.5]


def test_several_outputs_some_without_gradient(prepared):
    def forward(ctx, x):
        order = np.argsort(x.numpy())
        index = lucid.from_numpy(order)
        ctx.save_for_backward(index)
        ctx.mark_non_differentiable(index)
        return lucid.from_numpy(x.numpy()[order]), index

    def backward(ctx, grad, grad_of_index):
        (index,) = ctx.saved_tensors
        assert numbers(grad_of_index.sum()) == 0
        return lucid.zeros_like(grad).index_add_(0, index, grad)

    x = leaf([3.0, 1.0, 2.0])

    def body():
        values, index = define(forward, backward).apply(x)
        (values * lucid.tensor([1.0, 10.0, 100.0])).sum().backward()
        return values.detach(), index, values.requires_grad, index.requires_grad

    values, index, *flags = prepared(body)()
    assert numbers([values, index]) == [[1.0, 2.0, 3.0], [1, 2, 0]] and flags == [True, False]
    assert numbers(x.grad) == [100.0, 1.0, 10.0]


@pytest.mark.parametrize("materialize", [True, False])
def test_gradients_that_nobody_sent(prepared, materialize):
    seen = []

    def forward(ctx, x):
        ctx.set_materialize_grads(materialize)
        ctx.array = x.numpy().copy()
        return x * 2, x * 3

    def backward(ctx, first, second):
        seen.append(numbers(second))
        return first * 2

    x = leaf([1.0])

    def body():
        define(forward, backward).apply(x)[0].sum().backward()

    prepared(body)()
    assert seen == [[0.0] if materialize else None] and numbers(x.grad) == [2.0]


def test_an_input_or_a_view_of_it_may_be_returned(prepared):
    def forward(ctx, x):
        x.numpy()
        return x, x[1:]

    x = leaf([1.0, 2.0])

    def body():
        whole, part = define(forward, lambda ctx, g, h: g + h.sum()).apply(x)
        (whole.sum() + 5 * part.sum()).backward()
        return whole is x, numbers(part.detach()) if not part.is_traced else part.detach()

    same, part = prepared(body)()
    assert same is False
    assert part == [2.0] or numbers(part) == [2.0]
    assert numbers(x.grad) == [6.0, 6.0]


def test_memory_of_an_input_that_numpy_gives_back_is_shared(run):
    fn = define(lambda ctx, x: lucid.from_numpy(x.numpy().reshape(3, 1)))

    def body(x):
        y = x * 1
        z = fn.apply(y)
        y.add_(1)
        return z * 1

    assert numbers(run(body, lucid.tensor([1.0, 2.0, 3.0]))) == [[2.0], [3.0], [4.0]]


def test_a_constant_of_the_step_can_be_written_by_numpy(prepared):
    def body(x):
        y = lucid.zeros(2)
        PlusOne.apply(y)
        return x + y

    step = prepared(body)
    for _ in range(2):
        assert numbers(step(lucid.tensor([1.0, 2.0]))) == [2.0, 3.0]


def test_hooks_on_saved_tensors_run_at_every_call(prepared):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1

    def backward(ctx, grad):
        return lucid.tensor(grad.numpy() * ctx.saved_tensors[0].numpy())

    fn, x = define(forward, backward), leaf([1.0, 2.0])

    def body():
        with lucid.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t + 1):
            y = fn.apply(x)
        return lucid.autograd.grad(y.sum(), x)[0]

    step = prepared(body)
    for _ in range(2):
        assert numbers(step()) == [3.0, 5.0]


def test_one_tensor_in_two_places_is_one_object(run):
    def forward(ctx, a, b):
        return lucid.tensor(float(a is b) + a.numpy() - b.numpy())

    assert numbers(run(lambda x: define(forward).apply(x, x), lucid.ones(2))) == [1.0, 1.0]


def test_arguments_in_containers_and_by_keyword(prepared):
    def forward(ctx, x, parts, *, scale):
        return lucid.tensor(x.numpy() + parts["a"].numpy() * parts["n"] + scale)

    def body(x, y, scale):
        return define(forward).apply(x, {"a": y * 2, "n": 3}, scale=scale)

    step = prepared(body)
    assert numbers(step(lucid.ones(1), lucid.ones(1), 0.5)) == [7.5]
    assert numbers(step(lucid.ones(1), lucid.ones(1), 1.5)) == [8.5]


def test_sparse_arguments_may_be_saved(prepared):
    def forward(ctx, matrix, x):
        ctx.save_for_backward(matrix, x)
        return lucid.tensor(matrix.to_dense().numpy() @ x.numpy())

    def backward(ctx, grad):
        matrix, _ = ctx.saved_tensors
        return None, lucid.tensor(matrix.to_dense().numpy().T @ grad.numpy())

    fn, x = define(forward, backward), leaf([1.0, 2.0])

    def body(values):
        matrix = lucid.sparse_coo_tensor([[0, 1], [1, 0]], values, (2, 2))
        return lucid.autograd.grad(fn.apply(matrix, x).sum(), x)[0]

    step = prepared(body)
    for k in (1.0, 2.0):
        assert numbers(step(leaf([k, 3 * k], False))) == [3 * k, k]


def test_a_float_that_changes_does_not_retrace():
    fn = define(lambda ctx, x, k: lucid.tensor(x.numpy() * k))
    step = lucid.compile(lambda x, k: fn.apply(x, k * 2))
    assert [numbers(step(lucid.ones(1), k)) for k in (1.0, 2.5)] == [[2.0], [5.0]]
    assert step.stats.traces == 1


def test_the_line_that_leaves_lucid_is_in_the_stats():
    def doubled(ctx, x):
        return x * (2 if x.sum().item() > 0 else 3)

    fn = define(doubled, name="Doubled")
    step = lucid.compile(lambda x: fn.apply(x))
    step(lucid.ones(1)), step(lucid.ones(1))
    (reason,) = step.stats.host_reasons
    line = re.escape("   return x * (2 if x.sum().item() > 0 else 3)")
    assert re.fullmatch(rf"leaves lucid in Doubled, at test_host_functions\.py:\d+{line}", reason)
    assert f"calls Python, as it {reason}" in str(step.stats).splitlines()
    assert f"calls Python, as it {reason}" in str(step.explain())


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
def test_every_shape_and_dtype_goes_through(shape, dtype):
    fn = define(lambda ctx, x: lucid.tensor(x.numpy().copy()))
    x = lucid.tensor(np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype))
    y = lucid.compile(lambda x: fn.apply(x))(x)
    assert y.dtype is x.dtype and y.shape == x.shape and numbers(y) == numbers(x)


def test_arrays_of_every_kind_may_be_returned(prepared):
    def forward(ctx, x):
        array = x.numpy()
        return (
            lucid.from_numpy((np.arange(12.0).reshape(3, 4) * array[0]).T[::2]),
            lucid.tensor(array.sum()),
            lucid.from_numpy(array[array > 99]),
            lucid.from_numpy(np.argsort(array)),
            lucid.from_numpy(array > 1),
            None,
        )

    def backward(ctx, strided, total, empty, order, mask, nothing):
        assert (strided.shape, empty.shape, nothing) == ((2, 3), (0,), None)
        return total + strided.sum() + lucid.zeros(2, dtype=total.dtype)

    fn = define(forward, backward)

    def body(x):
        found = fn.apply(x)
        assert found[5] is None and [y.requires_grad for y in found[:5]] == [1, 1, 1, 0, 0]
        loss = 2 * found[0].sum() + found[1] + found[2].sum()
        return [y.detach() for y in found[:5]], lucid.autograd.grad(loss, x)[0]

    step = prepared(body)
    for values in ([2.0, 1.0], [0.5, 3.0]):
        found, gradient = step(leaf(values))
        strided = (np.arange(12.0).reshape(3, 4) * values[0]).T[::2].tolist()
        order = np.argsort(values).tolist()
        assert numbers(found) == [strided, sum(values), [], order, [v > 1 for v in values]]
        assert numbers(gradient) == [13.0, 13.0]


def test_prints_come_at_every_call(prepared, capsys):
    fn = define(lambda ctx, x: (print(f"x is {x.item()}"), x * 2)[1])
    step = prepared(lambda x: fn.apply(x))
    step(lucid.tensor(0.0))
    capsys.readouterr()
    for k in (1.0, 2.0):
        step(lucid.tensor(k))
    assert capsys.readouterr().out == "x is 1.0\nx is 2.0\n"


def test_strided_operands_arrive_in_order(run):
    fn = define(lambda ctx, x: lucid.tensor(x.numpy().copy()))
    x = lucid.tensor(np.arange(6.0).reshape(2, 3))
    body = lambda x: fn.apply(x.T) + fn.apply(x[:, ::2]).sum()  # noqa: E731
    assert numbers(run(body, x)) == [[10.0, 13.0], [11.0, 14.0], [12.0, 15.0]]


def test_results_and_what_the_user_keeps_stay_as_they_are():
    kept = []

    def forward(ctx, x):
        kept.append(x)
        return x * 1 if x.sum().item() < 1e9 else x

    fn = define(forward)
    step = lucid.compile(lambda x: fn.apply(x + 1))
    first = step(lucid.tensor([1.0]))
    step(lucid.tensor([5.0]))
    assert numbers(first) == [2.0] and [numbers(x) for x in kept] == [[2.0], [6.0]]


# Order, and how often ---------------------------------------------------------------------------


def test_calls_run_once_and_in_their_order(prepared):
    log = []

    def logging(name):
        def forward(ctx, x):
            log.append((f"{name} forward", x.tolist()))
            return x * 2

        def backward(ctx, grad):
            log.append((f"{name} backward", grad.tolist()))
            return grad * 2

        return define(forward, backward, name)

    a, b = logging("A"), logging("B")
    x = leaf([1.0])

    def body(k):
        y = a.apply(x)
        a.apply(x * 10)
        (b.apply(y) * k).sum().backward()

    step = prepared(body)
    once = [
        ("A forward", [1.0]),
        ("A forward", [10.0]),
        ("B forward", [2.0]),
        ("B backward", [1.0]),
        ("A backward", [2.0]),
    ]
    for _ in range(2):
        log.clear()
        step(lucid.ones(1))
        assert log == once


def test_a_function_without_results_is_called_as_well(prepared):
    log = []

    def forward(ctx, x):
        log.append(x.item())

    def body(x):
        assert define(forward, name="Log").apply(x.sum()) is None
        return x * 2

    step = prepared(body)
    for k in (1.0, 2.0):
        assert numbers(step(lucid.tensor([k]))) == [2 * k]
    assert log == [1.0, 2.0]


def test_log_lists_do_not_retrace():
    log = []
    fn = define(lambda ctx, x: log.append(x.item()) or x * 1)
    step = lucid.compile(lambda x: fn.apply(x))
    for k in range(4):
        step(lucid.tensor(float(k)))
    assert log == [0.0, 1.0, 2.0, 3.0] and step.stats.traces == 1


def test_host_in_recorded_and_recorded_in_host(prepared):
    outer = define(lambda ctx, x: Sine.apply(x * 2) + 1, lambda ctx, g: g, "Outer")
    compiled = lucid.compile(lambda x: x * x)
    inner = define(
        lambda ctx, x: compiled(Square.apply(x)) + float(x.numpy().sum() * 0), name="Inner"
    )

    x = np.array([1.0, 2.0])
    y = prepared(lambda x: outer.apply(x) + inner.apply(x))(lucid.tensor(x))
    np.testing.assert_allclose(y.numpy(), np.sin(2 * x) + 1 + x**4, rtol=1e-6)


def test_a_signal_is_not_caught_by_the_user(run):
    def forward(ctx, x):
        try:
            return lucid.tensor(x.numpy() * 2)
        except Exception:
            return x * 0

    def bare(ctx, x):
        try:
            return lucid.tensor(x.numpy() * 2)
        except:  # noqa: E722
            return x * 0

    assert numbers(run(lambda x: define(forward).apply(x), lucid.ones(1))) == [2.0]
    assert numbers(run(lambda x: define(bare).apply(x), lucid.ones(1))) == [2.0]


# Dumps ------------------------------------------------------------------------------------------


def test_the_dump_names_the_call():
    def body(x):
        y = Cube.apply(x.exp())
        y.sum().backward()
        return y.detach()

    step = lucid.compile(body)
    step(leaf([1.0, 2.0]))
    text = step.dump_ir()
    assert "  %y = host Cube(%exp) : f64[2] " in text
    line = next(line for line in text.splitlines() if "host Cube.backward(" in line)
    assert "grad of %y" in line and line.index("@") == 66
    assert "loc @2 test_host_functions.py:" in text and "Cube.apply(x.exp())" in text
    assert "= host Cube(a0: f64[2]) -> (a1: f64[2])" in step.stages["kernels"]


# Training ---------------------------------------------------------------------------------------


class Noise(Function):
    """A piecewise function by NumPy, with a mask on ctx."""

    @staticmethod
    def forward(ctx, x, slope):
        array = x.numpy()
        ctx.mask = array > 0
        ctx.slope = slope
        return lucid.from_numpy(np.where(ctx.mask, array, slope * array).astype(array.dtype))

    @staticmethod
    def backward(ctx, grad):
        factor = np.where(ctx.mask, 1.0, ctx.slope).astype(np.float32)
        return grad * lucid.from_numpy(factor), None


@pytest.mark.parametrize(
    "make",
    [
        lambda p: lucid.optim.SGD(p, lr=0.01, momentum=0.5),
        lambda p: lucid.optim.Adam(p, lr=0.01),
    ],
    ids=["SGD", "Adam"],
)
@pytest.mark.parametrize("function", [Sine, Cube, Double, Noise])
def test_twenty_steps_of_training(make, function):
    def train(prepare):
        lucid.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        optimizer = make(model.parameters())

        def body(x, y):
            optimizer.zero_grad()
            z = model[0](x)
            z = function.apply(z, 0.1) if function is Noise else function.apply(z)
            loss = ((model[1](z) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = prepare(body)
        draw = np.random.default_rng(0)
        losses = []
        for _ in range(20):
            x = draw.normal(size=(5, 3)).astype(np.float32)
            losses.append(step(lucid.tensor(x), lucid.tensor(x.sum(1, keepdims=True))).item())
        return losses, [p.detach().numpy() for p in model.parameters()]

    (eager, expected), (compiled, found) = train(lambda body: body), train(lucid.compile)
    np.testing.assert_allclose(compiled, eager, rtol=2e-5)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)
