"""What a Function saves and keeps, how it is called, and what its backward returns."""

from __future__ import annotations

from custom_nets import PERCEPTRON, Nets, mse

nets = Nets()


@nets.layer
def saved_input(L):
    class Cube(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * g

    return lambda h: Cube.apply(h.tanh())


@nets.layer
def saved_output(L):
    class Tanh(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.tanh()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * (1 - y * y)

    return Tanh.apply


@nets.layer
def saved_intermediate(L):
    class Swish(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            s = x.sigmoid()
            y = x * s
            ctx.save_for_backward(s, None, y)
            return y

        @staticmethod
        def backward(ctx, g):
            s, _, y = ctx.saved_tensors
            return g * (s + y * (1 - s))

    return Swish.apply


@nets.layer
def attributes_of_ctx(L):
    class Rescale(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape, ctx.axis = x.shape, 1
            ctx.options = {"factor": 1.5, "rows": x.shape[0]}
            ctx.mean = x.mean(ctx.axis, keepdim=True)
            return (x - ctx.mean) * ctx.options["factor"]

        @staticmethod
        def backward(ctx, g):
            assert g.shape == ctx.shape and len(g) == ctx.options["rows"]
            return (g - g.mean(ctx.axis, keepdim=True)) * ctx.options["factor"]

    return Rescale.apply


@nets.layer
def setup_context_style(L):
    class Softplus(L.autograd.Function):
        @staticmethod
        def forward(x, beta=1.0):
            return (1 + (beta * x).exp()).log() / beta

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.beta = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (ctx.beta * x).sigmoid(), None

    return lambda h: Softplus.apply(h) + Softplus.apply(h, 2.0)


@nets.layer
def backward_named_vjp(L):
    class Sine(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def vjp(ctx, g):
            return g * ctx.saved_tensors[0].cos()

    return Sine.apply


@nets.layer
def keyword_arguments(L):
    class Affine(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale=1.0, shift=None):
            ctx.scale = scale
            ctx.save_for_backward(shift)
            return x * scale if shift is None else x * scale + shift

        @staticmethod
        def backward(ctx, g):
            (shift,) = ctx.saved_tensors
            return g * ctx.scale, None, None if shift is None else g

    return lambda h: Affine.apply(h, scale=0.5, shift=Affine.apply(h, 2.0)).tanh()


@nets.layer
def keyword_only_arguments(L):
    """PyTorch has no keyword-only arguments: there the same, without a Function."""

    class ScaledSine(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, *, scale):
            ctx.save_for_backward(x)
            ctx.scale = scale
            return scale * x.sin()

        @staticmethod
        def backward(ctx, g):
            return ctx.scale * ctx.saved_tensors[0].cos() * g

    if L.__name__ == "torch":
        return lambda h: 1.5 * h.sin()
    return lambda h: ScaledSine.apply(h, scale=1.5)


@nets.layer
def arguments_that_are_no_tensors(L):
    class Apply(L.autograd.Function):
        @staticmethod
        def forward(ctx, name, x, options, rows, nothing):
            assert nothing is None
            ctx.rows, ctx.slope = rows, options["slopes"][name]
            ctx.save_for_backward(x)
            return x * ctx.slope + x[rows].sum(0)

        @staticmethod
        def backward(ctx, g):
            gradient = g * ctx.slope
            gradient[ctx.rows] += g.sum(0)
            return None, gradient, None, None, None

    options = {"slopes": {"left": 0.5, "right": -2.0}}
    return lambda h: Apply.apply("left", h, options, slice(1, 5, 2), None).tanh()


@nets.loss(**PERCEPTRON)
def none_as_gradient(L):
    class Detached(L.autograd.Function):
        """x * y, for which y is a constant."""

        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None

    return lambda P, x, t: mse(L, Detached.apply(x @ P["w"], P["b"]) @ P["v"] + P["b"][:3], t)


@nets.loss(**PERCEPTRON)
def needs_input_grad(L):
    class Linear(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b=None):
            ctx.save_for_backward(x, w, b)
            return x @ w if b is None else x @ w + b

        @staticmethod
        def backward(ctx, g):
            x, w, _ = ctx.saved_tensors
            grads = [None] * len(ctx.needs_input_grad)
            if ctx.needs_input_grad[0]:
                grads[0] = g @ w.t()
            if ctx.needs_input_grad[1]:
                grads[1] = x.t() @ g
            if len(grads) > 2 and ctx.needs_input_grad[2]:
                grads[2] = g.sum(0)
            return tuple(grads)

    return lambda P, x, t: mse(L, Linear.apply(Linear.apply(x, P["w"], P["b"]).tanh(), P["v"]), t)


@nets.loss(**PERCEPTRON)
def gradients_of_broadcast_shape(L):
    class Plus(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, b):
            return x + b

        @staticmethod
        def backward(ctx, g):
            return g, g  # the second is summed down to b's shape

    return lambda P, x, t: mse(L, Plus.apply(x @ P["w"], P["b"]).tanh() @ P["v"], t)


@nets.layer
def a_changed_dtype(L):
    class Precise(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.double().sin()
            ctx.save_for_backward(x)
            ctx.double = y.dtype
            return y

        @staticmethod
        def backward(ctx, g):
            assert g.dtype == ctx.double
            return g * ctx.saved_tensors[0].cos()

    return lambda h: Precise.apply(h).to(h.dtype)


@nets.layer
def once_differentiable(L):
    class Atan(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.atan()

        @staticmethod
        @L.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 + x * x)

    return Atan.apply


@nets.layer
def the_same_tensor_twice(L):
    class Product(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, 3 * g * x  # not the derivative: each slot is seen

    return lambda h: Product.apply(*[h.tanh()] * 2)


@nets.layer
def inherited_parts(L):
    class Power(L.autograd.Function):
        exponent = 2

        @classmethod
        def settings(cls):
            return cls.exponent

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    class Damped(Power):
        @staticmethod
        def backward(ctx, g):
            return Power.backward(ctx, g) * 0.5 + Power.settings()

    return lambda h: Power.apply(h) - Damped.apply(h)
