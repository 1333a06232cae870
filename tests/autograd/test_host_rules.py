"""A jvp or a vmap staticmethod that leaves lucid lets the call run op by op."""

from __future__ import annotations

import numpy as np
import pytest
from custom_functions import define, leaf, numbers

import lucid
from lucid.autograd import Function, forward_ad

X = [[0.3, 1.2, 2.0], [1.0, -1.0, 0.5], [0.3, 1.2, 2.0]]
T = lucid.tensor([1.0, 2.0, 3.0])
LOOKS = ", a host call, runs in a vmap or a forward-mode derivative, which look at its operations"


class Sine(Function):
    """Recorded, but for its jvp."""

    @staticmethod
    def forward(ctx, x, scale=2.0):
        ctx.save_for_forward(x)
        ctx.scale = scale
        return x.sin() * scale

    @staticmethod
    def backward(ctx, grad):
        return grad * 3, None

    @staticmethod
    def jvp(ctx, tangent, _=None):
        (x,) = ctx.saved_tensors
        x, tangent = x.detach().numpy(), tangent.detach().numpy()
        return lucid.from_numpy(np.cos(x) * tangent * np.float32(ctx.scale))


class HostSine(Sine):
    """Forward leaves as well, and jvp needs an object that it left on ctx."""

    @staticmethod
    def forward(ctx, x, scale=2.0):
        ctx.save_for_forward(x)
        ctx.state = {"cos": np.cos(x.numpy()), "sum": float(x.sum())}
        return lucid.from_numpy(np.sin(x.numpy()))

    @staticmethod
    def jvp(ctx, tangent, _=None):
        (x,) = ctx.saved_tensors
        return lucid.from_numpy(ctx.state["cos"] * tangent.numpy()) * ctx.state["sum"] + 0 * x


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def jvp(ctx, tangent):
        array = tangent.numpy()
        array *= 3
        return tangent


class Split(Function):
    """Several outputs, one of them without a tangent; the jvp gets None."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, x.argmax(), y * 1

    @staticmethod
    def jvp(ctx, tangent, other):
        assert other is None
        return lucid.from_numpy(tangent.numpy() * 2), None, None


def pushed(function, *constants):
    return lambda x: lucid.func.jvp(lambda x: function.apply(x, *constants), (x,), (T,))


def in_place(x):
    with forward_ad.dual_level():
        y = InPlace.apply(forward_ad.make_dual(x.clone(), T.clone()) * 1)
        return tuple(forward_ad.unpack_dual(y))


def several(x):
    with forward_ad.dual_level():
        outputs = Split.apply(forward_ad.make_dual(x, T), x * 2)
        return [forward_ad.unpack_dual(y)[1] for y in outputs], outputs[1]


def over_reverse(x):
    function = lucid.func.grad(lambda x: (Sine.apply(x) * x).sum())
    return lucid.func.jvp(function, (x,), (T,))


@pytest.mark.parametrize(
    "body",
    [pushed(Sine), pushed(Sine, 0.5), pushed(HostSine), in_place, several, over_reverse],
    ids=["recorded", "with an attribute", "host", "in place", "several", "over reverse"],
)
def test_a_jvp_that_leaves_lucid_runs_op_by_op(body):
    step = lucid.compile(body)
    for row in X:
        assert_close(step(lucid.tensor(row)), body(lucid.tensor(row)))
    (reason,) = {*step.stats.eager_reasons}
    assert reason.endswith(LOOKS) and step.stats.traces == 0


def assert_close(found, expected):
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b)
    elif expected is None:
        assert found is None
    else:
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def test_what_a_host_jvp_returns_is_checked_as_in_eager_mode(prepared):
    def checked(returned, message):
        fn = define(
            lambda ctx, x: x * 2,
            jvp=staticmethod(lambda ctx, t: returned(float(t.numpy().sum()), t)),
            name="Wrong",
        )
        with pytest.raises(lucid.LucidError) as caught:
            prepared(pushed(fn))(lucid.tensor(X[0]))
        assert str(caught.value) == message

    checked(
        lambda s, t: (t, t),
        "Function Wrong's jvp returned an invalid number of forward gradients "
        "(expected 1 but got 2)",
    )
    checked(
        lambda s, t: s,
        "Function Wrong's jvp: expected Variable or None (got float) for grad output 0.",
    )
    checked(
        lambda s, t: t[:2],
        "Trying to set a forward gradient that has a different size than that of the original "
        "Tensor, this is not supported. Tensor is of size [3] while the given forward gradient is "
        "of size [2].",
    )


def test_a_host_jvp_runs_in_the_grad_mode_of_its_caller(prepared):
    fn = define(lambda ctx, x: x * 2, jvp=staticmethod(lambda ctx, t: lucid.tensor(t.numpy() * 2)))

    def body(x):
        with forward_ad.dual_level():
            y = fn.apply(forward_ad.make_dual(x, x * 3))
            return forward_ad.unpack_dual(y)[1]

    with pytest.raises(RuntimeError) as caught:
        prepared(body)(leaf([1.0]))
    assert str(caught.value) == (
        "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
    )
    assert numbers(prepared(body)(leaf([1.0], False))) == [6.0]


def test_an_exception_in_a_host_jvp_comes_out(prepared):
    def jvp(ctx, tangent):
        if tangent.numpy()[0] < 0:
            raise KeyError("negative")
        return tangent * 2

    fn = define(lambda ctx, x: x * 2, jvp=staticmethod(jvp))
    step = prepared(lambda x, t: lucid.func.jvp(fn.apply, (x,), (t,))[1])
    assert numbers(step(lucid.ones(2), lucid.ones(2))) == [2.0, 2.0]
    with pytest.raises(KeyError, match="negative"):
        step(lucid.ones(2), -lucid.ones(2))


def test_a_setup_context_that_leaves_lucid(prepared):
    class Squared(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            (x,) = inputs
            ctx.save_for_backward(lucid.from_numpy(x.numpy() ** 2))
            ctx.factor = 3

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0] * ctx.factor

    def body(x):
        return lucid.autograd.grad(Squared.apply(x).sum(), x)[0]

    step = prepared(body)
    for row in X:
        np.testing.assert_allclose(step(leaf(row)).numpy(), 3 * np.array(row) ** 2, rtol=1e-12)


class Cumulated(Function):
    """Its vmap staticmethod runs NumPy on all examples."""

    calls: list[object]

    @staticmethod
    def forward(x, weight):
        return lucid.from_numpy(np.cumsum(x.numpy())) * weight

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad.flip(0).cumsum(0).flip(0) * weight, None

    @staticmethod
    def vmap(info, in_dims, x, weight):
        assert info.batch_size == 2 and in_dims[1] is None
        axis = 1 - in_dims[0]
        return lucid.from_numpy(np.cumsum(x.numpy(), axis=axis)) * weight, in_dims[0]


@pytest.mark.parametrize("dim", [0, 1])
def test_a_vmap_staticmethod_that_leaves_lucid_runs_op_by_op(dim):
    weight = lucid.tensor(2.0)

    def body(x):
        return lucid.vmap(Cumulated.apply, in_dims=(dim, None), out_dims=dim)(x, weight)

    step = lucid.compile(body)
    for row in X:
        x = lucid.stack([lucid.tensor(row), T], dim)
        assert_close(step(x), body(x))
    assert {*step.stats.eager_reasons} == {f"Cumulated.vmap{LOOKS}"}


def test_gradients_of_examples_through_such_a_rule(prepared):
    def body(x):
        weight = lucid.tensor(2.0)
        return lucid.vmap(lucid.func.grad(lambda row: Cumulated.apply(row, weight).sum()))(x)

    step = prepared(body)
    for row in X:
        found = step(lucid.stack([lucid.tensor(row), T]))
        assert numbers(found) == [[6.0, 4.0, 2.0], [6.0, 4.0, 2.0]]
