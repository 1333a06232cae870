"""What a Function returns: several outputs, integers, its input, its input written in place."""

from __future__ import annotations

from custom_nets import PERCEPTRON, Nets, classification, mse

nets = Nets()


@nets.layer
def several_outputs(L):
    class SinCos(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            s, c = x.sin(), x.cos()
            ctx.save_for_backward(s, c)
            return s, c

        @staticmethod
        def backward(ctx, gs, gc):
            s, c = ctx.saved_tensors
            return gs * c - gc * s

    def layer(h):
        s, c = SinCos.apply(h)
        return s * 2 + c * s

    return layer


@nets.layer
def a_tuple_of_one(L):
    class Sine(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x.sin(),)

        @staticmethod
        def backward(ctx, g):
            return (g * ctx.saved_tensors[0].cos(),)

    def layer(h):
        (y,) = Sine.apply(h)
        return y

    return layer


def two_clones(L, materialize):
    class TwoClones(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x.clone(), x.clone()

        @staticmethod
        def backward(ctx, g1, g2):
            if not materialize:
                return g1 * 2 if g2 is None else g1 + g2
            return g1 + g2

    def layer(h):
        first, second = TwoClones.apply(h)
        only, _ = TwoClones.apply(h)
        return first.tanh() + second.sin() - only / 4

    return layer


@nets.layer
def materialized_gradients(L):
    return two_clones(L, True)


@nets.layer
def gradients_not_materialized(L):
    return two_clones(L, False)


@nets.layer
def a_non_differentiable_output(L):
    class Largest(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            index = x.argmax(1, keepdim=True)
            ctx.mark_non_differentiable(index)
            ctx.save_for_backward(index)
            ctx.shape = x.shape
            return x.gather(1, index), index

        @staticmethod
        def backward(ctx, g, of_index):
            (index,) = ctx.saved_tensors
            gradient = L.zeros(ctx.shape, dtype=g.dtype)
            return gradient.scatter_add(1, index, g)

    def layer(h):
        values, index = Largest.apply(h)
        return h.sin() * values.tanh() + index / 7

    return layer


@nets.layer
def an_integer_output(L):
    class Bucket(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            level = (x.clamp(-2.0, 1.9) * 2).floor().long()
            return x * 2, level, x > 0

        @staticmethod
        def backward(ctx, g, of_level, of_sign):
            assert not of_level.is_floating_point()
            return g * 2 + of_level

    def layer(h):
        y, level, positive = Bucket.apply(h)
        return (y.tanh() * level.to(y.dtype) + y * positive) / 4

    return layer


@nets.layer
def outputs_that_are_no_tensors(L):
    class Described(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return "twice", x * 2, 2, None, {"rows": x.shape[0]}

        @staticmethod
        def backward(ctx, text, g, number, nothing, facts):
            assert text is number is nothing is facts is None
            return g * 2

    def layer(h):
        _, y, factor, _, facts = Described.apply(h)
        return y.sin() * (factor / facts["rows"])

    return layer


@nets.layer
def no_tensor_output_used(L):
    class Observe(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.exp(), x.ndim

        @staticmethod
        def backward(ctx, g, ndim):
            raise AssertionError("nothing asks for this gradient")

    def layer(h):
        _, ndim = Observe.apply(h)
        return h.tanh() * ndim

    return layer


@nets.layer
def factor_on_the_gradient(L):
    class GradFactor(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, f):
            ctx.f = f
            return x

        @staticmethod
        def backward(ctx, g):
            return g * ctx.f, None

    return lambda h: GradFactor.apply(GradFactor.apply(h, 2.0).tanh(), 0.75)


@nets.loss(**PERCEPTRON, domain=(7, 1))
def gradient_reversal(L):
    """Domain-adversarial training: features that a second head can't use."""

    class Reverse(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, strength):
            ctx.strength = strength
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.strength * g, None

    def loss(P, x, t):
        h = (x @ P["w"] + P["b"]).tanh()
        domain = (Reverse.apply(h, 0.3) @ P["domain"]).sigmoid()
        return mse(L, h @ P["v"], t) + mse(L, domain, (x[:, :1] > 0).to(x.dtype))

    return loss


@nets.layer
def in_place(L):
    class Double(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 3

    def layer(h):
        a = h.tanh()
        b = a + 1
        Double.apply(b)
        return b * a

    return layer


@nets.layer
def in_place_on_a_view(L):
    class Plus(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            x.add_(y)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g, g * 2

    def layer(h):
        board = h.tanh() / 2
        Plus.apply(board[:, 1:5], h[:, 3:7] * h[:, :4])
        Plus.apply(board[2:4], board[:2] + 1)
        return board

    return layer


@nets.loss(**PERCEPTRON, scores=(3,), batch=classification)
def in_place_saving_its_result(L):
    class Exponential(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.exp_()
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    def loss(P, x, t):
        z = (x @ P["w"] + P["b"]).tanh() @ P["v"] + P["scores"]
        e = Exponential.apply(z - z.amax(1, keepdim=True).detach())
        return -(e / e.sum(1, keepdim=True)).log()[range(len(t)), t].mean()

    return loss


@nets.layer
def straight_through(L):
    class Round(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x * 4).round() / 4

        @staticmethod
        def backward(ctx, g):
            return g

    return lambda h: Round.apply(h.tanh())


@nets.loss(**PERCEPTRON, size=(1,))
def quantization_with_a_learned_step(L):
    class Quantize(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, size, low, high):
            ctx.save_for_backward(x, size)
            ctx.range = low, high
            return (x / size).clamp(low, high).round() * size

        @staticmethod
        def backward(ctx, g):
            x, size = ctx.saved_tensors
            low, high = ctx.range
            scaled = x / size
            inside = (scaled >= low) & (scaled <= high)
            of_size = L.where(inside, scaled.round() - scaled, scaled.clamp(low, high))
            return g * inside, g * of_size, None, None

    def loss(P, x, t):
        size = P["size"].abs() + 0.3
        return mse(L, Quantize.apply(x @ P["w"] + P["b"], size, -4, 3) @ P["v"], t)

    return loss


@nets.layer
def clamp_of_the_gradient(L):
    class ClampGradient(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, limit):
            ctx.limit = limit
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g.clamp(-ctx.limit, ctx.limit), None

    return lambda h: ClampGradient.apply(h, 0.02).tanh()
