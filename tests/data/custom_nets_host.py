"""Functions whose bodies leave the library: NumPy computes them."""

from __future__ import annotations

import numpy as np
from custom_nets import PERCEPTRON, Nets, mse

nets = Nets()


@nets.layer
def a_forward_by_numpy(L):
    class Tanh(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = L.from_numpy(np.tanh(x.detach().numpy()))
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * (1 - y * y)

    return Tanh.apply


@nets.layer
def a_backward_by_numpy(L):
    class Sine(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @L.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return L.from_numpy(g.numpy() * np.cos(x.detach().numpy()))

    return Sine.apply


@nets.loss(**PERCEPTRON)
def both_by_numpy(L):
    """Two inputs, of which one is a parameter, two outputs, and attributes."""

    class SortedTimes(L.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            array, factors = x.detach().numpy(), scale.detach().numpy()
            ctx.order = L.from_numpy(np.argsort(array, 1, kind="stable"))
            values = np.take_along_axis(array, ctx.order.numpy(), 1)
            ctx.mark_non_differentiable(ctx.order)
            ctx.save_for_backward(L.from_numpy(values), scale)
            return L.from_numpy(values * factors), ctx.order

        @staticmethod
        @L.autograd.function.once_differentiable
        def backward(ctx, g, of_order):
            values, scale = (t.detach().numpy() for t in ctx.saved_tensors)
            gradient = np.zeros_like(values)
            np.put_along_axis(gradient, ctx.order.numpy(), g.numpy() * scale, 1)
            return L.from_numpy(gradient), L.from_numpy((g.numpy() * values).sum(0))

    def loss(P, x, t):
        y, order = SortedTimes.apply((x @ P["w"]).tanh(), P["b"])
        return mse(L, (y + order / 10).to(x.dtype) @ P["v"], t)

    return loss


@nets.layer
def in_place_by_numpy(L):
    class AddOne(L.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            array = x.detach().numpy()
            array += 1
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def layer(h):
        a = h.tanh()
        b = a * 1.5
        AddOne.apply(b)
        return b * a

    return layer
