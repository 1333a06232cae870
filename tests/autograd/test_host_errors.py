"""What a host call can't do says so; and exceptions in it leave everything as it was."""

from __future__ import annotations

import signal
import traceback

import numpy as np
import pytest
from custom_functions import define, leaf, numbers
from host_functions import Cube, Sine, place_of

import lucid
from lucid import nn
from lucid.autograd.function import once_differentiable


class UnluckyError(Exception):
    pass


def unlucky(where):
    """A Function that raises, in its forward or backward, for a negative first element."""

    def look(what, x):
        if what == where and x.numpy()[0] < 0:
            raise UnluckyError(what, x.tolist())

    def forward(ctx, x):
        ctx.array = x.numpy().copy()
        look("forward", x)
        return x * 2

    def backward(ctx, grad):
        look("backward", lucid.tensor(ctx.array))
        return grad * 2

    return define(forward, backward, "Unlucky")


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_exception_comes_out_as_it_is_and_nothing_was_written(prepared, where):
    model = nn.Linear(2, 2)
    optimizer = lucid.optim.Adam(model.parameters(), lr=0.1)
    seen = lucid.zeros(())
    fn = unlucky(where)

    def body(x):
        seen.add_(1)
        fn.apply(model(x) * 0 + x).square().sum().backward()
        optimizer.step()

    step = prepared(body)
    step(lucid.tensor([[1.0, 2.0]]).reshape(2))

    def state():
        parameters = list(model.parameters())
        moments = [optimizer.state[p][key] for p in parameters for key in ("exp_avg", "step")]
        return [numbers(t) if isinstance(t, lucid.Tensor) else t for t in parameters + moments]

    before, count = state(), seen.item()
    with pytest.raises(UnluckyError) as caught:
        step(lucid.tensor([-1.0, 2.0]))
    assert caught.value.args == (where, [-1.0, 2.0])
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "raise UnluckyError(what, x.tolist())" in lines
    assert state() == before
    if step is not body:
        assert seen.item() == count  # eager has written by then what comes before
    step(lucid.tensor([1.0, 2.0]))
    assert state() != before


def test_an_interrupt_in_a_host_method_comes_out(prepared):
    count = lucid.zeros(())

    def forward(ctx, x):
        if x.item() < 0:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the interrupt comes first")
        return x * 2

    fn = define(forward)

    def body(x):
        y = fn.apply(x)
        count.add_(1)
        return y

    step = prepared(body)
    step(lucid.tensor(1.0))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have set it off
    try:
        with pytest.raises(KeyboardInterrupt):
            step(lucid.tensor(-1.0))
    finally:
        signal.signal(signal.SIGINT, before)
    assert count.item() == 1.0
    assert step(lucid.tensor(3.0)).item() == 6.0


def test_a_gradient_that_is_none_only_at_times_has_a_program_of_its_own():
    calls = []

    def backward(ctx, g):
        calls.append(g.numpy().sum())
        return None if calls[-1] < 0 else g

    fn = define(lambda ctx, x: x * 1, backward, name="Picky")

    @lucid.compile
    def step(k):
        x = leaf([1.0])
        return lucid.autograd.grad((fn.apply(x) * k).sum(), x, allow_unused=True)

    def given(k):
        return [None if g is None else g.item() for g in step(lucid.tensor(k))]

    assert [given(2.0), given(-2.0)] == [[2.0], [None]]
    calls.clear()
    assert [given(k) for k in (3.0, -3.0, 2.0)] == [[3.0], [None], [2.0]]
    assert calls == [3.0, -3.0, 2.0] and step.stats.traces == 2, "each is called once"


def by_op(t):
    t.add_(1)


def through_a_view(t):
    t.reshape(-1)[0] = 5.0


@lucid.compile
def by_step(t):
    t.add_(1)


@pytest.mark.parametrize("write", [by_op, through_a_view, by_step])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_tensor_from_outside_that_is_written_only_at_times_is_an_error(write, where):
    count, w = lucid.zeros(2), leaf([1.0, 2.0])

    def look(what, x):
        if what == where and x.numpy()[0] < 0:
            write(count)

    def forward(ctx, x):
        look("forward", x)
        return lucid.from_numpy(x.numpy() * 2)

    def backward(ctx, grad):
        look("backward", grad)
        return grad * 2

    fn = define(forward, backward, name="Counts")

    def body(x):
        w.grad = None
        (fn.apply(w * x) * x).sum().backward()
        with lucid.no_grad():
            w.sub_(0.1 * w.grad)
        return count + 1

    step = lucid.compile(body)
    assert numbers(step(lucid.tensor([1.0, 1.0]))) == [1.0, 1.0]

    def state():
        return [numbers(t) for t in (count, w, w.grad)], count._version, w._version

    before = state()
    with pytest.raises(lucid.LucidError) as caught:
        step(lucid.tensor([-1.0, 1.0]))
    assert str(caught.value) == (
        f"Counts.{where} writes count in place, which it didn't do when the step was traced\n"
        f"  in {place_of(body, 'fn.apply')}\n"
        "hint: return the new content, and write it in the step"
    )
    assert state() == before
    step(lucid.tensor([1.0, 1.0]))
    assert state() != before and step.stats.traces == 1


def test_a_native_step_inside_of_a_host_call_writes_no_tensor_from_outside():
    count = lucid.zeros(2)

    @lucid.compile
    def inner(x):
        count.add_(x)
        return x

    for _ in range(3):  # the third is native from its start
        inner(lucid.ones(2))

    def forward(ctx, x):
        if x.item() < 0:
            inner(lucid.ones(2))
        return x * 2

    fn = define(forward, name="Counts")

    def body(x):
        return fn.apply(x) + count.sum()

    step = lucid.compile(body)
    assert step(lucid.tensor(1.0)).item() == 8.0
    before = numbers(count), count._version
    with pytest.raises(lucid.LucidError) as caught:
        step(lucid.tensor(-1.0))
    assert str(caught.value) == (
        "Counts.forward writes count in place, which it didn't do when the step was traced\n"
        f"  in {place_of(body, 'fn.apply')}\n"
        "hint: return the new content, and write it in the step"
    )
    assert (numbers(count), count._version) == before
    inner(lucid.ones(2))
    assert numbers(count) == [4.0, 4.0]


def test_numpy_can_only_read_tensors_from_outside_that_it_did_not_write_while_tracing():
    table = lucid.zeros(2)

    def forward(ctx, x):
        if x.item() < 0:
            table.numpy()[0] = 1.0
        return x + float(table.numpy()[1])

    step = lucid.compile(define(forward).apply)
    assert step(lucid.tensor(1.0)).item() == 1.0
    with pytest.raises(ValueError, match=r"^assignment destination is read-only$"):
        step(lucid.tensor(-1.0))
    assert table[0].item() == 0.0 and step(lucid.tensor(2.0)).item() == 2.0


def test_values_that_are_no_tensors_are_returned_op_by_op():
    fn = define(lambda ctx, x: (x * 1, int(x.numpy()[0])), name="Counted")
    step = lucid.compile(lambda x: fn.apply(x))
    assert [step(lucid.full((1,), n))[1] for n in (1.0, 2.0)] == [1, 2]
    assert step.stats.eager_reasons[0] == (
        "Counted.forward, a host call, gives back a value of type int, which may be another one at "
        "each call"
    )


@pytest.mark.parametrize(
    "part",
    [lambda x: lucid.from_numpy(x.numpy()[1:]), lambda x: x[x.numpy().shape[0] - 1 :]],
    ids=["by NumPy", "a view"],
)
def test_a_part_of_an_arguments_memory_is_given_back_op_by_op(part):
    fn = define(lambda ctx, x: part(x), name="Tail")

    def body(x):
        y = x * 1
        tail = fn.apply(y)
        y.add_(1)
        return tail * 1

    step = lucid.compile(body)
    assert numbers(step(lucid.ones(2))) == numbers(body(lucid.ones(2))) == [2.0]
    assert step.stats.eager_reasons == [
        "Tail.forward, a host call, gives back a part, or a view, of an argument's memory"
    ]


def test_a_constant_outside_of_a_function_can_be_read_and_written():
    def body(x):
        y = lucid.zeros(2)
        assert y.numpy().tolist() == [0.0, 0.0]
        y.numpy()[0] = 1.0
        return x + y

    step = lucid.compile(body)
    assert step(lucid.ones(2)).tolist() == body(lucid.ones(2)).tolist() == [2.0, 1.0]
    assert not step.stats.eager_reasons


def test_numpy_under_vmap_is_the_same_error(run):
    def body():
        return lucid.vmap(Sine.apply)(lucid.ones(2, 3))

    with pytest.raises(lucid.LucidError) as caught:
        run(body)
    assert str(caught.value) == (
        "You tried to vmap over Sine, but it does not have vmap support: it has no vmap "
        "staticmethod, and its forward can't run on all examples at once. "
        "Please override and implement the vmap staticmethod.\n"
        "vmap: numpy() needs the data of one example, but all are computed at once\n"
        f"  f32[3]  from {place_of(body, 'vmap')}"
    )


def test_what_needs_no_tensor_stays_the_same_error(run):
    fn = define(lambda ctx, x: [x * float(x.numpy()[0])])

    def body(x):
        return fn.apply(x)

    with pytest.raises(TypeError) as caught:
        run(body, lucid.ones(1))
    assert str(caught.value) == (
        "Fn.forward returned a list, whose tensors would have no gradient\n"
        f"  in Fn, recorded at {place_of(body, 'fn.apply')}\n"
        "hint: return a tensor or a tuple of tensors"
    )

    def backward(ctx, g):
        return lucid.tensor(g.numpy()), g, g

    fn = define(lambda ctx, x: x * x.numpy()[0], backward)
    with pytest.raises(RuntimeError) as miscounted:
        run(lambda x: fn.apply(x).sum().backward(), leaf([1.0]))
    assert str(miscounted.value) == (
        "function FnBackward returned an incorrect number of gradients (expected 1, got 3)\n"
        f"  returned at {place_of(backward, 'return')}"
    )


def test_outside_of_a_function_a_look_at_data_makes_the_call_run_op_by_op():
    def array(x):
        return bytes(memoryview((x * 1).numpy()))

    step, x = lucid.compile(array), lucid.ones(1)
    assert step(x) == x.numpy().tobytes()
    assert step.stats.eager_reasons == [
        "it hands a value that the step computes to memoryview(), which isn't traced\n"
        f"  at {place_of(array, 'return')}\n"
        "hint: return the tensor and look at it outside, or look at it in the forward of an "
        "autograd.Function, which the step calls"
    ]


def test_a_number_of_a_host_call_is_one_of_each_call():
    def item(x):
        return Sine.apply(x).item() + 1

    step = lucid.compile(item)
    for value in (1.0, 2.0):
        assert step(lucid.full((1,), value)) == item(lucid.full((1,), value))
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def test_a_derivative_of_what_a_number_scales_takes_the_number_as_a_constant():
    def body(x):
        return lucid.func.jvp(lambda x: x * float(x.sum()), (x,), (x,))[1]

    x = lucid.full((2,), 3.0)
    assert lucid.compile(body)(x).tolist() == body(x).tolist()


# Higher order, and transformations ----------------------------------------------------------------


REASON = "it differentiates {}.backward, a host call, whose operations only eager mode sees"


def opaque(x):
    """A part of the gradient is a constant, which no second derivative sees."""
    fn = define(
        lambda ctx, x: x * 1, lambda ctx, g: g * lucid.tensor(g.detach().numpy()), name="Opaque"
    )
    y = (fn.apply(x) ** 2).sum()
    (g,) = lucid.autograd.grad(y, x, create_graph=True)
    return lucid.autograd.grad(g.sum(), x)[0]


def sine(x):
    (g,) = lucid.autograd.grad(Sine.apply(x).sum(), x, create_graph=True)
    return lucid.autograd.grad(g.sum(), x)[0]


def intermediate(x):
    def forward(ctx, x):
        ctx.save_for_backward(x * 2)
        return lucid.tensor(x.numpy() ** 2)

    fn = define(forward, lambda ctx, g: g * ctx.saved_tensors[0], name="Squared")
    (g,) = lucid.autograd.grad(fn.apply(x).sum(), x, create_graph=True)
    return lucid.autograd.grad(g.sum(), x)[0]


@pytest.mark.parametrize(
    ("body", "name", "expected"),
    [
        (opaque, "Opaque", [1.44, 23.04]),
        (sine, "Sine", None),
        (intermediate, "Squared", [2.0, 2.0]),
    ],
)
def test_a_step_that_differentiates_a_host_backward_runs_op_by_op(body, name, expected):
    x = leaf([0.3, 1.2])
    step = lucid.compile(body)
    found = numbers(step(x))
    assert found == numbers(body(x)) and step.stats.eager_reasons == [REASON.format(name)]
    np.testing.assert_allclose(found, -np.sin([0.3, 1.2]) if expected is None else expected)


def test_a_host_backward_without_a_second_derivative_is_native():
    def body(x):
        (g,) = lucid.autograd.grad(Sine.apply(x).sum(), x, create_graph=True)
        return g.detach()

    step, x = lucid.compile(body), leaf([0.3, 1.2])
    np.testing.assert_allclose(step(x).numpy(), np.cos([0.3, 1.2]), rtol=1e-12)
    assert step.stats.eager_reasons == []


def test_the_second_derivative_outside_of_a_step_is_an_error():
    step, x = lucid.compile(lambda x: Sine.apply(x * 2)), leaf([0.3, 1.2])

    def body():
        (g,) = lucid.autograd.grad(step(x).sum(), x, create_graph=True)
        return lucid.autograd.grad(g.sum(), x)

    with pytest.raises(lucid.LucidError) as caught:
        body()
    assert str(caught.value) == (
        "the gradients of a compiled function's result can't be computed natively: "
        f"{REASON.format('Sine')}\n"
        f"  in CompiledBackward, recorded at {place_of(body, 'create_graph')}\n"
        "hint: call backward() inside of the compiled function"
    )


def test_once_differentiable_says_so(run):
    backward = once_differentiable(lambda ctx, g: g * float(g.numpy()[0]))
    fn = define(lambda ctx, x: x * 1, backward)

    def body(x):
        (g,) = lucid.autograd.grad((fn.apply(x) ** 2).sum(), x, create_graph=True)
        g.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf([1.0]))
    assert str(caught.value) == (
        "trying to differentiate twice a function that was marked with @once_differentiable\n"
        f"  in the backward of Fn, recorded at {place_of(body, 'fn.apply')}"
    )


def test_forward_mode_uses_the_jvp_beside_a_host_forward(prepared):
    fn = define(
        lambda ctx, x: (ctx.save_for_forward(x), lucid.tensor(np.sin(x.numpy())))[1],
        jvp=staticmethod(lambda ctx, t: t * ctx.saved_tensors[0].cos()),
    )

    def body(x, t):
        return lucid.func.jvp(lambda x: fn.apply(x), (x,), (t,))

    x, t = leaf([0.3], False), leaf([2.0], False)
    y, dy = prepared(body)(x, t)
    np.testing.assert_allclose([y.item(), dy.item()], [np.sin(0.3), 2 * np.cos(0.3)], rtol=1e-12)


def test_results_can_be_differentiated_outside():
    step = lucid.compile(lambda x: Cube.apply(x * 2))
    for values in ([1.0], [2.0]):
        x = leaf(values)
        step(x).sum().backward()
        assert numbers(x.grad) == [24 * values[0] ** 2]
