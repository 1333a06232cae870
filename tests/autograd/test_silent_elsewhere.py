"""What other compilers ignore or get wrong without a word, or refuse: here as in eager mode.

Each test runs op by op, with all of the step compiled, and with the call of the Function alone
compiled and the backward outside.
"""

from __future__ import annotations

import pytest
from custom_functions import Square, define, first_line, leaf, numbers

import lucid
from lucid import func
from lucid.autograd import Function, forward_ad
from lucid.autograd.function import once_differentiable


@pytest.fixture(params=["eager", "all of the step", "the call alone"])
def wraps(request):
    """What wraps a step, and what wraps the call in it: at most one of the two compiles."""
    plain = lambda body: body  # noqa: E731
    return {
        "eager": (plain, plain),
        "all of the step": (lucid.compile, plain),
        "the call alone": (plain, lucid.compile),
    }[request.param]


def test_set_materialize_grads_false_is_respected(wraps):
    step, call = wraps

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx, g, h):
        return g * (7 if h is None else 1)

    fn = define(forward, backward)
    x = leaf([1.0])
    double = call(lambda x: fn.apply(x))
    step(lambda x: double(x)[0].sum().backward())(x)
    assert numbers(x.grad) == [7.0]


def test_a_saved_tensor_that_was_written_is_an_error(wraps):
    step, call = wraps
    square = call(lambda a: Square.apply(a))

    def body(x):
        a = x * 1
        y = square(a)
        a.add_(1)
        y.sum().backward()

    x = leaf([1.0])
    with pytest.raises(RuntimeError) as caught:
        step(body)(x)
    assert first_line(caught) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [DoubleTensor [1]], which is output 0 of Add, is at version 1; expected "
        "version 0 instead."
    )
    assert x.grad is None


def test_a_wrong_number_of_gradients_is_an_error(wraps):
    step, call = wraps
    fn = define(lambda ctx, x, y: x * y, lambda ctx, g: g)
    product = call(lambda x: fn.apply(x, x))
    with pytest.raises(RuntimeError) as caught:
        step(lambda x: product(x).sum().backward())(leaf([1.0]))
    assert first_line(caught) == (
        "function FnBackward returned an incorrect number of gradients (expected 2, got 1)"
    )


def test_no_gradient_flows_through_an_output_marked_as_not_differentiable(wraps):
    step, call = wraps

    def forward(ctx, x):
        y, z = x * 2, x * 3
        ctx.mark_non_differentiable(z)
        return y, z

    fn = define(forward, lambda ctx, g, h: g * 2 + h * 100)
    x = leaf([1.0])

    both = call(lambda x: fn.apply(x))

    def body(x):
        y, z = both(x)
        (y + z).sum().backward()

    step(body)(x)
    assert numbers(x.grad) == [2.0]


def test_the_same_tensor_in_two_slots_is_fine(wraps):
    step, call = wraps
    fn = define(lambda ctx, a, b: a * b, lambda ctx, g: (g * 10, g * 100))
    product = call(lambda a, b: fn.apply(a, b))
    x = leaf([1.0])
    step(lambda x: product(x, x).sum().backward())(x)
    assert numbers(x.grad) == [110.0]


class Cube(Function):
    """x ** 3, whose derivatives are 7 times (forward) and 10 times (reverse) too large."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x * x

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        return 30 * x * x * g

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return 21 * x * x * tangent


def test_a_custom_jvp_is_used(wraps):
    step, call = wraps
    cube = call(lambda x: Cube.apply(x))

    def by_dual(x, v):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(cube(forward_ad.make_dual(x, v))).tangent

    def by_func(x, v):
        return func.jvp(cube, (x,), (v,))[1], func.jacfwd(cube)(x)

    x, v = leaf([1.0, 2.0], False), leaf([1.0, 10.0], False)
    assert numbers(step(by_dual)(x, v)) == [21.0, 840.0]
    assert numbers(step(by_func)(x, v)) == [[21.0, 840.0], [[21.0, 0.0], [0.0, 84.0]]]


def test_a_custom_vjp_is_used(wraps):
    step, call = wraps
    cube = call(lambda x: Cube.apply(x))
    x = leaf([1.0, 2.0])
    step(lambda x: cube(x).sum().backward())(x)
    assert numbers(x.grad) == [30.0, 120.0]
    pulled = step(lambda x: func.grad(lambda x: cube(x).sum())(x))(x.detach())
    assert numbers(pulled) == [30.0, 120.0]


def test_double_backward_goes_through_the_custom_backward(wraps):
    step, call = wraps
    cube = call(lambda x: Cube.apply(x))

    def body(x):
        (first,) = lucid.autograd.grad(cube(x).sum(), x, create_graph=True)
        first.sum().backward()
        return first

    x = leaf([1.0, 2.0])
    assert numbers(step(body)(x)) == [30.0, 120.0]
    assert numbers(x.grad) == [60.0, 120.0]


def test_double_backward_of_what_is_once_differentiable_is_an_error(wraps):
    step, call = wraps
    once = once_differentiable(lambda ctx, g: g * 2)
    fn = define(lambda ctx, x: x * 2, once)
    double = call(lambda x: fn.apply(x))

    def body(x):
        (first,) = lucid.autograd.grad((double(x) ** 2).sum(), x, create_graph=True)
        first.sum().backward()

    with pytest.raises(RuntimeError) as caught:
        step(body)(leaf([1.0]))
    assert first_line(caught) == (
        "trying to differentiate twice a function that was marked with @once_differentiable"
    )


def test_sparse_matrices_in_forward_are_fine(wraps):
    step, call = wraps

    def forward(ctx, places, values, dense):
        matrix = lucid.sparse_coo_tensor(places, values, (2, 2))
        ctx.save_for_backward(matrix)
        return matrix @ dense

    def backward(ctx, g):
        (matrix,) = ctx.saved_tensors
        return None, None, matrix.t() @ g

    fn = define(forward, backward)
    values, dense = leaf([2.0, 3.0], False), leaf([[1.0], [10.0]])

    product = call(lambda *args: fn.apply(*args))

    def body(places, values, dense):
        y = product(places, values, dense)
        y.sum().backward()
        return y

    y = step(body)(lucid.tensor([[0, 1], [1, 1]]), values, dense)
    assert numbers(y) == [[20.0], [30.0]]
    assert numbers(dense.grad) == [[0.0], [5.0]]


def test_keyword_only_arguments_are_fine(wraps):
    step, call = wraps

    class Scale(Function):
        @staticmethod
        def forward(ctx, x, *, factor, shift=0.0):
            ctx.factor = factor
            return x * factor + shift

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor

    x = leaf([1.0])

    scaled = call(lambda x, **keywords: Scale.apply(x, **keywords))
    body = step(
        lambda x, factor: (
            (scaled(x, factor=factor) + scaled(x, factor=2, shift=1.0)).sum().backward()
        )
    )
    for factor in 3.0, 5.0:
        body(x, factor)
    assert numbers(x.grad) == [12.0]
    if isinstance(body, lucid.compiler.Compiled):
        assert body.stats.retrace_reasons == [".grad of argument 0: None -> f64[1]"]


def test_hooks_inside_are_fine(run):
    def body(x):
        seen = []
        y = Square.apply(x)
        y.register_hook(lambda g: g * 10)
        y.grad_fn.register_prehook(lambda grads: (grads[0] + 1,))
        y.grad_fn.register_hook(lambda inputs, outputs: seen.extend([*inputs, *outputs]))
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad * 1))
        y.sum().backward()
        return seen

    x = leaf([3.0])
    assert numbers(run(body, x)) == [[66.0], [11.0], [66.0]]
    assert numbers(x.grad) == [66.0]


def test_backward_inside_of_a_forward_and_of_a_backward_is_fine(wraps):
    step, call = wraps

    def forward(ctx, x):
        with lucid.enable_grad():
            inner = x.detach().requires_grad_()
            Square.apply(inner).sum().backward()
        ctx.save_for_backward(inner)
        return inner.grad * 1

    def backward(ctx, g):
        inner = ctx.saved_tensors[0].detach().requires_grad_()
        with lucid.enable_grad():
            y = Square.apply(inner)
        y.backward(g)
        return inner.grad

    fn = define(forward, backward)
    x = leaf([3.0])
    double = call(lambda x: fn.apply(x))

    def body(x):
        y = double(x * 1)
        y.sum().backward()
        return y

    body = step(body)
    for _ in range(2):
        assert numbers(body(x)) == [6.0]
    assert numbers(x.grad) == [12.0]
    if isinstance(body, lucid.compiler.Compiled):
        assert body.stats.traces == 2  # without .grad, and with


# ---------------------------------------------------------------------- not with jax.custom_vjp


def test_one_function_has_both_modes(run):
    def body(x):
        def forward_over_reverse(x):
            return func.jvp(func.grad(lambda x: Cube.apply(x).sum()), (x,), (x * 0 + 1,))[1]

        return func.jacrev(Cube.apply)(x), func.jacfwd(Cube.apply)(x), forward_over_reverse(x)

    rev, fwd, mixed = run(body, leaf([2.0], False))
    assert numbers([rev, fwd, mixed]) == [[[120.0]], [[84.0]], [120.0]]


def test_residuals_and_outputs_may_be_anything(wraps):
    step, call = wraps

    def forward(ctx, x, mode):
        ctx.mode = {"name": mode, "shape": x.shape, "apply": lambda g: g * 3}
        return x * 2, mode.upper(), None, len(x)

    def backward(ctx, g, *others):
        assert others == (None, None, None)
        assert (ctx.mode["name"], ctx.mode["shape"]) == ("fast", g.shape)
        return ctx.mode["apply"](g), None

    fn = define(forward, backward)

    fast = call(lambda x: fn.apply(x, "fast"))

    def body(x):
        y, name, nothing, count = fast(x)
        (y * count).sum().backward()
        return name, nothing, count

    x = leaf([1.0, 1.0])
    assert step(body)(x) == ("FAST", None, 2)
    assert numbers(x.grad) == [6.0, 6.0]


@pytest.mark.parametrize("asked", [(True, False), (False, True), (True, True)])
def test_a_backward_knows_which_gradients_are_needed(wraps, asked):
    step, call = wraps
    seen = []
    note = seen.append  # a trace can't see that it changes state

    def backward(ctx, g):
        note(ctx.needs_input_grad)
        return tuple(g * 2 if needed else None for needed in ctx.needs_input_grad)

    fn = define(lambda ctx, x, y: x * y, backward)
    x, y = (leaf([1.0], requires_grad) for requires_grad in asked)
    product = call(lambda x, y: fn.apply(x, y))
    step(lambda x, y: product(x, y).sum().backward())(x, y)
    assert seen == [asked]
    assert [t.grad is not None for t in (x, y)] == list(asked)


def test_a_function_may_write_to_its_input(run):
    def forward(ctx, x, y):
        x.mul_(y)
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return x

    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None

    fn = define(forward, backward)
    x, y, buffer = leaf([1.0, 2.0]), leaf([3.0, 4.0], False), leaf([1.0, 1.0], False)

    def body(x, y, buffer):
        a = x * 2
        out = fn.apply(a, y)
        out.sum().backward()
        fn.apply(buffer, y)
        return out is a, a

    is_input, a = run(body, x, y, buffer)
    assert is_input
    assert numbers([a, x.grad, buffer]) == [[6.0, 16.0], [6.0, 8.0], [3.0, 4.0]]
