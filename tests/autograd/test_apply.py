"""Calling a custom Function: styles, grad mode, what a class may lack."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from custom_functions import Scale, Square, define, leaf, numbers, text_of

import lucid
from lucid.autograd import Function


def test_the_first_example(run):
    x = leaf([3.0])
    run(lambda x: Square.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [6.0]


def test_forward_runs_with_grad_off_but_its_inputs_still_require_grad(run):
    def forward(ctx, x):
        ctx.facts = x.requires_grad, (x * 2).requires_grad, lucid.is_grad_enabled()
        return x * 2

    fn = define(forward)
    assert run(lambda x: fn.apply(x).grad_fn.facts, leaf([1.0])) == (True, False, False)


def test_backward_runs_with_the_grad_mode_of_create_graph(run):
    def backward(ctx, grad):
        ctx.modes.append(lucid.is_grad_enabled())
        return grad, None

    def forward(ctx, x, modes):
        ctx.modes = modes
        return x * 1

    fn = define(forward, backward)

    def body(x):
        modes = []
        for create_graph in (False, True):
            lucid.autograd.grad(fn.apply(x, modes).sum(), x, create_graph=create_graph)
        return modes

    assert run(body, leaf([1.0])) == [False, True]


def test_enable_grad_inside_forward_builds_a_private_graph(run):
    def forward(ctx, x):
        with lucid.enable_grad():
            inner = x.detach().requires_grad_()
            cube = inner * inner * inner
        ctx.inner, ctx.cube = inner, cube
        return cube.detach()

    def backward(ctx, grad):
        return lucid.autograd.grad(ctx.cube, ctx.inner, grad)[0]

    fn = define(forward, backward)
    x = leaf([2.0])
    run(lambda x: fn.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [12.0]


def test_the_custom_backward_replaces_what_enable_grad_recorded_for_an_output(run):
    def forward(ctx, x):
        with lucid.enable_grad():
            return x * x * x

    fn = define(forward, lambda ctx, grad: grad * 100)
    x = leaf([2.0])
    run(lambda x: fn.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [100.0]


def test_setup_context_runs_once_with_all_arguments_and_the_output_and_grad_off(run):
    def body(x):
        y = Scale.apply(x, shift=7)
        ctx = y.grad_fn
        return y, len(ctx.inputs), ctx.inputs[1:], ctx.grad_mode, ctx.needs_input_grad

    y, count, defaults, grad_mode, needs = run(body, leaf([1.0]))
    assert numbers(y) == [9.0]
    assert (count, defaults, grad_mode) == (3, (2, 7), False)
    assert needs == (True, False, False)


def test_in_setup_context_inputs_require_grad_and_what_is_made_of_them_does_not(run):
    class Noting(Function):
        @staticmethod
        def forward(x, k=2):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            x = inputs[0]
            ctx.facts = (x.requires_grad, (x * 2).requires_grad, output.requires_grad)
            ctx.needs = ctx.needs_input_grad
            ctx.times = getattr(ctx, "times", 0) + 1

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    def body(x):
        ctx = Noting.apply(x).grad_fn
        return ctx.facts, ctx.needs, ctx.times

    assert run(body, leaf([1.0])) == ((True, False, False), (True, False), 1)


def test_overriding_setup_context_decides_about_the_style(run):
    class One(Function):
        @staticmethod
        def forward(*args):
            return args[-1] * len(args)

        @staticmethod
        def backward(ctx, grad):
            return grad * 5

    class Two(One):
        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.count = len(inputs)

    x = leaf([1.0])

    def body(x):
        both = One.apply(x), Two.apply(x)
        both[1].sum().backward()
        return both, both[1].grad_fn.count

    assert numbers(run(body, x)) == [[[2.0], [1.0]], 1]
    assert numbers(x.grad) == [5.0]


def test_setup_context_gets_what_forward_returned(run):
    Both = namedtuple("Both", "double name")

    class Named(Function):
        @staticmethod
        def forward(x, *, name):
            return Both(x * 2, name)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.kinds = type(inputs).__name__, len(inputs), type(output).__name__
            ctx.name_ = output.name
            ctx.save_for_backward(output.double)

        @staticmethod
        def backward(ctx, g, nothing):
            return g * ctx.saved_tensors[0]

    def body(x):
        y, name = Named.apply(x, name="twice")
        y.sum().backward()
        return y.grad_fn.kinds, y.grad_fn.name_, name

    x = leaf([3.0])
    assert run(body, x) == (("tuple", 1, "Both"), "twice", "twice")
    assert numbers(x.grad) == [6.0]


def test_no_graph_is_made_without_grad_mode_or_without_an_input_that_requires_grad(run):
    def body(x, constant):
        with lucid.no_grad():
            y = Square.apply(x)
        z = Square.apply(constant)
        return y.grad_fn, y.requires_grad, z.grad_fn, z.requires_grad

    assert run(body, leaf([1.0]), leaf([1.0], False)) == (None, False, None, False)


def test_a_tensor_that_is_no_argument_makes_no_graph(run):
    w = leaf([2.0])
    fn = define(lambda ctx, x: x * w)

    def body(x, constant):
        fn.apply(x).sum().backward()
        y = fn.apply(constant)
        return y, y.requires_grad, y.grad_fn

    assert numbers(run(body, leaf([1.0]), leaf([3.0], False))) == [[6.0], False, None]
    assert w.grad is None


def test_forward_may_ask_for_an_array_of_an_input_that_requires_grad(prepared):
    class Cos(Function):
        @staticmethod
        def forward(x):
            return lucid.tensor(np.cos(x.numpy()))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.sine = np.sin(inputs[0].numpy())

        @staticmethod
        def backward(ctx, grad):
            return -grad * lucid.tensor(ctx.sine)

    def body(x):
        y = Cos.apply(x)
        y.sum().backward()
        return y

    body = prepared(body)
    for value in 1.0, 2.0, 3.0:
        x = leaf([value])
        assert numbers(body(x)) == [np.cos(value)]
        assert numbers(x.grad) == [-np.sin(value)]


def test_saving_is_validated_only_when_a_graph_is_made(run):
    def forward(ctx, x):
        ctx.save_for_backward(3)
        return x * 2

    fn = define(forward)

    def body(x):
        with lucid.no_grad():
            return fn.apply(x)

    assert numbers(run(body, leaf([1.0]))) == [2.0]
    with pytest.raises(TypeError) as caught:
        run(lambda x: fn.apply(x), leaf([1.0]))
    assert text_of(caught) == (
        "save_for_backward can only save variables, but argument 0 is of type int\n"
        "  in Fn, recorded at test_apply.py"
    )


def test_saving_is_not_validated_in_another_forward_which_runs_without_grad(run):
    def forward(ctx, x):
        ctx.save_for_backward(3)
        return x * 2

    inner = define(forward)
    outer = define(lambda ctx, x: inner.apply(x) * 3, lambda ctx, grad: grad * 6)
    x = leaf([1.0])

    def body(x):
        y = outer.apply(x)
        y.sum().backward()
        return y

    assert numbers(run(body, x)) == [6.0]
    assert numbers(x.grad) == [6.0]


def test_the_base_class_has_no_forward(run):
    class Backward(Function):
        backward = Square.backward

    for fn in (Function, Backward):
        with pytest.raises(NotImplementedError) as caught:
            run(lambda x, fn=fn: fn.apply(x), leaf([1.0]))
        assert text_of(caught) == (
            "You must implement the forward function for custom autograd.Function.\n"
            f"  in {fn.__name__}, recorded at test_apply.py"
        )


def test_a_function_is_not_instantiated(run):
    with pytest.warns(DeprecationWarning) as warned:
        instance = Square()
    assert [str(warning.message) for warning in warned] == [
        "<class 'custom_functions.Square'> should not be instantiated. Methods on autograd "
        "functions are all static, so you should invoke them on the class itself."
    ]
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: instance(x), leaf([1.0]))
    assert str(caught.value) == (
        "Legacy autograd function with non-static forward method is not supported. Please use "
        "new-style autograd function with static forward method: Square.apply(...)"
    )


def test_forward_called_directly_is_an_ordinary_function(run):
    double = define(lambda ctx, x: x * 2, lambda ctx, grad: grad * 100)
    x = leaf([1.0])
    run(lambda x: double.forward(None, x).sum().backward(), x)
    assert numbers(x.grad) == [2.0]
    x = leaf([1.0])
    run(lambda x: Scale.forward(x, factor=5).sum().backward(), x)
    assert numbers(x.grad) == [5.0]


def test_a_class_without_backward_is_usable_until_it_is_differentiated(run):
    class Forward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    assert numbers(run(lambda x: Forward.apply(x), leaf([1.0]))) == [2.0]
    with pytest.raises(NotImplementedError) as caught:
        run(lambda x: Forward.apply(x).sum().backward(), leaf([1.0]))
    assert isinstance(caught.value, RuntimeError)
    assert text_of(caught) == (
        "You must implement either the backward or vjp method for your custom autograd.Function to "
        "use it with backward mode AD.\n  in Forward, recorded at test_apply.py"
    )


def test_vjp_is_the_other_name_of_backward(run):
    class ByVjp(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, grad):
            return grad * 7

    x = leaf([1.0])
    run(lambda x: ByVjp.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [7.0]


def test_backward_and_vjp_together_are_refused_when_differentiated(run):
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

        @staticmethod
        def vjp(ctx, grad):
            return grad

    assert numbers(run(lambda x: Both.apply(x), leaf([1.0]))) == [2.0]
    with pytest.raises(RuntimeError) as caught:
        run(lambda x: Both.apply(x).sum().backward(), leaf([1.0]))
    assert str(caught.value) == (
        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should "
        "only implement one of them.\n  in Both"
    )


def test_a_subclass_overrides_parts_and_names_its_node(run):
    class Base(Function):
        factor = 2

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    class Derived(Base):
        @staticmethod
        def backward(ctx, grad):
            return grad * Derived.scale()

        @staticmethod
        def scale():
            return Derived.factor * 50

    x = leaf([1.0])

    def body(x):
        y = Derived.apply(x)
        y.sum().backward()
        return y.grad_fn.name(), type(y.grad_fn).__name__

    assert run(body, x) == ("DerivedBackward", "DerivedBackward")
    assert numbers(x.grad) == [100.0]


def test_a_function_may_be_an_attribute_of_a_class(run):
    class Layer:
        fn = Square

        def __call__(self, x):
            return self.fn.apply(x)

    layer = Layer()
    x = leaf([3.0])
    run(lambda x: layer(x).sum().backward(), x)
    assert numbers(x.grad) == [6.0]
