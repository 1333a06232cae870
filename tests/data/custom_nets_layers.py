"""Layers and losses as people write them, Functions in Functions, and higher derivatives."""

from __future__ import annotations

import numpy as np
from custom_nets import PERCEPTRON, Nets, classification, mse
from parity_cases import integers, numbers, tensor

nets = Nets()


@nets.layer
def piecewise(L):
    class MyReLU(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0.0)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * (x > 0).to(g.dtype)

    return MyReLU.apply


@nets.loss(**PERCEPTRON, knots=(9,))
def spline(L):
    """Piecewise linear between learned values at -2, -1.5, …, 2."""

    class Spline(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, knots):
            place = ((x + 2) * 2).clamp(0.0, 7.999)
            left = place.floor()
            index, part = left.long(), place - left
            ctx.save_for_backward(index, part, knots)
            return knots[index] * (1 - part) + knots[index + 1] * part

        @staticmethod
        def backward(ctx, g):
            index, part, knots = ctx.saved_tensors
            slope = 2 * (knots[index + 1] - knots[index])
            flat = index.view(-1)
            of_knots = L.zeros_like(knots).index_add_(0, flat, (g * (1 - part)).view(-1))
            of_knots.index_add_(0, flat + 1, (g * part).view(-1))
            return g * slope, of_knots

    def loss(P, x, t):
        return mse(L, Spline.apply((x @ P["w"] + P["b"]).tanh(), P["knots"]) @ P["v"], t)

    return loss


@nets.loss(w=(5, 4), weights=(24,))
def sort(L):
    class SortIdx(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values, index = x.sort()
            ctx.mark_non_differentiable(index)
            ctx.save_for_backward(x, index)
            return values, index

        @staticmethod
        @L.autograd.function.once_differentiable
        def backward(ctx, g1, g2):
            x, index = ctx.saved_tensors
            gradient = L.zeros_like(x)
            gradient.index_add_(0, index, g1)
            return gradient

    def loss(P, x, t):
        values, index = SortIdx.apply((x @ P["w"]).view(-1))
        ranks = index.to(x.dtype) / 24
        return ((values - ranks) * P["weights"] - t.reshape(-1)[:1]).pow(2).mean()

    return loss


@nets.loss(w=(5, 7), v=(7, 3), edges=(11,))
def sparse(L):
    class SpecialSpmm(L.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, b):
            a = L.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(a, b)
            ctx.N = shape[0]
            return L.matmul(a, b)

        @staticmethod
        def backward(ctx, grad_output):
            a, b = ctx.saved_tensors
            grad_values = grad_b = None
            if ctx.needs_input_grad[1]:
                grad_a_dense = grad_output.matmul(b.t())
                edge_idx = a._indices()[0] * ctx.N + a._indices()[1]
                grad_values = grad_a_dense.view(-1)[edge_idx]
            if ctx.needs_input_grad[3]:
                grad_b = a.t().matmul(grad_output)
            return None, grad_values, None, grad_b

    indices = L.tensor(integers("edges", 6, 2, 11))
    shape = L.Size([6, 6])
    return lambda P, x, t: mse(
        L, SpecialSpmm.apply(indices, P["edges"], shape, (x @ P["w"]).tanh()) @ P["v"], t
    )


@nets.loss(batch=classification, **PERCEPTRON)
def softmax_cross_entropy(L):
    class CrossEntropy(L.autograd.Function):
        @staticmethod
        def forward(ctx, z, labels):
            z = z - z.max(1, keepdim=True)[0]
            e = z.exp()
            total = e.sum(1, keepdim=True)
            ctx.save_for_backward(e / total, labels)
            return (total.log() - z.gather(1, labels[:, None])).mean()

        @staticmethod
        def backward(ctx, g):
            p, labels = ctx.saved_tensors
            gradient = p.clone()
            gradient[L.arange(len(labels)), labels] -= 1
            return gradient * (g / len(labels)), None

    def loss(P, x, t):
        return CrossEntropy.apply((x @ P["w"] + P["b"]).tanh() @ P["v"], t)

    return loss


@nets.loss(**PERCEPTRON, gamma=(7,), beta=(7,))
def layer_norm(L):
    class LayerNorm(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, gamma, beta, eps=1e-5):
            centred = x - x.mean(-1, keepdim=True)
            scale = ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
            normal = centred * scale
            ctx.save_for_backward(normal, scale, gamma)
            return normal * gamma + beta

        @staticmethod
        def backward(ctx, g):
            normal, scale, gamma = ctx.saved_tensors
            gg = g * gamma
            along = normal * (gg * normal).mean(-1, keepdim=True)
            gx = (gg - gg.mean(-1, keepdim=True) - along) * scale
            return gx, (g * normal).sum(0), g.sum(0)

    return lambda P, x, t: mse(
        L, LayerNorm.apply(x @ P["w"] + P["b"], P["gamma"], P["beta"]) @ P["v"], t
    )


@nets.loss(q=(5, 4), k=(5, 4), values=(5, 4), out=(4, 3))
def attention(L):
    class Attention(L.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.scale = q.shape[-1] ** -0.5
            p = L.softmax(q @ k.transpose(-1, -2) * ctx.scale, -1)
            ctx.save_for_backward(q, k, v, p)
            return p @ v

        @staticmethod
        def backward(ctx, g):
            q, k, v, p = ctx.saved_tensors
            gp = g @ v.transpose(-1, -2)
            gs = p * (gp - (gp * p).sum(-1, keepdim=True)) * ctx.scale
            return gs @ k, gs.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g

    def loss(P, x, t):
        batch = x.reshape(2, 3, 5)
        mixed = Attention.apply(batch @ P["q"], batch @ P["k"], batch @ P["values"])
        return mse(L, (mixed @ P["out"]).reshape(6, 3), t)

    return loss


@nets.loss(w=(3, 5), b=(3,))
def linear_with_bias(L):
    class LinearFunction(L.autograd.Function):
        @staticmethod
        def forward(x, weight, bias):
            output = x.mm(weight.t())
            if bias is not None:
                output += bias.unsqueeze(0).expand_as(output)
            return output

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            x, weight, bias = ctx.saved_tensors
            gx = g.mm(weight) if ctx.needs_input_grad[0] else None
            gw = g.t().mm(x) if ctx.needs_input_grad[1] else None
            gb = g.sum(0) if bias is not None and ctx.needs_input_grad[2] else None
            return gx, gw, gb

    return lambda P, x, t: mse(L, LinearFunction.apply(x, P["w"], P["b"]), t)


GATES = """
    0 0 0 0  0 0 0 1  0 1 0 -1  0 1 0 0  0 0 1 -1  0 0 1 0  0 1 1 -2  0 1 1 -1
    1 -1 -1 1  1 -1 -1 2  1 0 -1 0  1 0 -1 1  1 -1 0 0  1 -1 0 1  1 0 0 -1  1 0 0 0
"""  # each of the 16 gates as its coefficients of 1, a, b, ab


def bits(i):
    """Inputs (6, 5) of zeros and ones, and classes."""
    x, y = classification(i)
    return (x > 0).astype(np.float64), y


@nets.loss(batch=bits, first=(8, 16), second=(6, 16))
def logic_gates(L):
    """Each neuron mixes the 16 gates of its two inputs."""

    class GradFactor(L.autograd.Function):
        @staticmethod
        def forward(x, f):
            return x.view_as(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.f = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.f, None

    wires = {
        name: [L.tensor(integers(f"{name} {side}", size, neurons)) for side in "ab"]
        for name, size, neurons in (("first", 5, 8), ("second", 8, 6))
    }

    def loss(P, x, t):
        gates = tensor(L, np.array(GATES.split(), float).reshape(16, 4), str(x.dtype)[-7:])
        for name, (ia, ib) in wires.items():
            if name != "first":
                x = GradFactor.apply(x, 2.0)
            a, b = x[:, ia], x[:, ib]
            c = L.nn.functional.softmax(P[name], dim=1) @ gates
            x = c[:, 0] + c[:, 1] * a + c[:, 2] * b + c[:, 3] * (a * b)
        return L.nn.functional.cross_entropy(x.view(6, 3, 2).sum(-1) / 0.5, t)

    return loss


def square_of(L):
    class Square(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    return Square


@nets.layer
def apply_inside_forward(L):
    Square = square_of(L)

    class Fourth(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = Square.apply(x)
            ctx.save_for_backward(x, y)
            return Square.apply(y)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return 4 * x * y * g

    return lambda h: Fourth.apply(h.tanh())


@nets.layer
def apply_inside_backward(L):
    Square = square_of(L)

    class Cube(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            return 3 * Square.apply(ctx.saved_tensors[0]) * g

    return lambda h: Cube.apply(h.tanh())


@nets.layer
def checkpoint(L):
    """Forward runs again in backward, with a backward of its own."""

    class Checkpoint(L.autograd.Function):
        @staticmethod
        def forward(ctx, f, x):
            ctx.f = f
            ctx.save_for_backward(x)
            return f(x)

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with L.enable_grad():
                y = ctx.f(x)
            y.backward(g)
            return None, x.grad

    return lambda h: Checkpoint.apply(lambda x: (x.sin() * x).tanh(), h)


@nets.loss(**PERCEPTRON, u=(7, 7))
def implicit_differentiation(L):
    """A fixed point z = tanh(z u / 4 + h); backward solves the adjoint equation."""

    class FixedPoint(L.autograd.Function):
        @staticmethod
        def forward(ctx, h, u):
            z = L.zeros_like(h)
            for _ in range(8):
                z = (z @ u / 4 + h).tanh()
            ctx.save_for_backward(z, u)
            return z

        @staticmethod
        def backward(ctx, g):
            z, u = ctx.saved_tensors
            slope = 1 - z * z
            a = g
            for _ in range(8):
                a = g + (a * slope) @ u.t() / 4
            a = a * slope
            return a, z.t() @ a / 4

    return lambda P, x, t: mse(L, FixedPoint.apply(x @ P["w"] + P["b"], P["u"]) @ P["v"], t)


@nets.loss(**PERCEPTRON)
def gradient_penalty(L):
    """A double backward inside of the loss, through a saved output."""

    class Sigmoid(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.sigmoid()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y * (1 - y)

    def loss(P, x, t):
        x = x.detach().requires_grad_()
        y = Sigmoid.apply(x @ P["w"] + P["b"]) @ P["v"]
        (gx,) = L.autograd.grad(y.sum(), x, create_graph=True)
        return mse(L, y, t) + (gx**2).sum(1).mean()

    return loss


@nets.loss(**PERCEPTRON)
def a_backward_that_is_a_function(L):
    """The activation and its derivative both have a hand-written backward."""

    class SineBackward(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, g):
            ctx.save_for_backward(x, g)
            return g * x.cos()

        @staticmethod
        def backward(ctx, gg):
            x, g = ctx.saved_tensors
            return -gg * g * x.sin(), gg * x.cos()

    class Sine(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return SineBackward.apply(ctx.saved_tensors[0], g)

    def loss(P, x, t):
        x = x.detach().requires_grad_()
        y = Sine.apply(x @ P["w"] + P["b"]) @ P["v"]
        (gx,) = L.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        return mse(L, y, t) + 0.1 * gx.pow(2).mean()

    return loss


@nets.layer
def hooks_on_tensor_and_node(L):
    Square = square_of(L)

    def layer(h):
        y = Square.apply(h.tanh())
        y.register_hook(lambda g: g * 0.5)
        y.grad_fn.register_hook(lambda grad_inputs, _: (grad_inputs[0] * 3,))
        y.grad_fn.register_prehook(lambda grads: (grads[0] + 0.01,))
        return y

    return layer


@nets.loss(**PERCEPTRON)
def a_directional_derivative(L):
    """A tangent by the Function's own jvp, in the loss."""
    forward_ad = L.autograd.forward_ad

    class Product(L.autograd.Function):
        @staticmethod
        def forward(x, y):
            return x * y * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y * y, 2 * g * x * y

        @staticmethod
        def jvp(ctx, dx, dy):
            x, y = ctx.saved_tensors
            return dx * y * y + 2 * x * y * dy

    def loss(P, x, t):
        with forward_ad.dual_level():
            h = forward_ad.make_dual(x, x.sign()) @ P["w"] + P["b"]
            y, tangent = forward_ad.unpack_dual(Product.apply(h.sin(), h.tanh()) @ P["v"])
            return mse(L, y, t) + 0.1 * (tangent**2).mean()

    return loss


@nets.loss(**PERCEPTRON)
def a_mapped_function(L):
    """One example's loss, mapped over the batch."""

    class Cube(L.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    def loss(P, x, t):
        def of_one(x, t):
            return ((Cube.apply((x @ P["w"] + P["b"]).tanh()) @ P["v"] - t) ** 2).mean()

        return L.func.vmap(of_one)(x, t).mean()

    return loss


@nets.loss(table=(11, 5), v=(5, 3))
def embedding(L):
    class Embedding(L.autograd.Function):
        @staticmethod
        def forward(ctx, table, index):
            ctx.save_for_backward(index)
            ctx.rows = table.shape[0]
            return table[index]

        @staticmethod
        def backward(ctx, g):
            (index,) = ctx.saved_tensors
            gradient = L.zeros(ctx.rows, g.shape[-1], dtype=g.dtype)
            return gradient.index_add_(0, index.view(-1), g.reshape(-1, g.shape[-1])), None

    words = L.tensor(integers("words", 11, 6, 4))
    weight = numbers("weights of words", 4, 1)

    def loss(P, x, t):
        embedded = Embedding.apply(P["table"], words) * tensor(L, weight, str(x.dtype)[-7:])
        return mse(L, embedded.sum(1).tanh() @ P["v"], t)

    return loss
