"""Custom Functions in one network: straight-through, quantizer, spline, top-k, reversal, …"""

import math

import torch
import torch.nn.functional as F
from inputs import fill, integers, numbers
from torch import nn
from torch.autograd import Function


class Sign(Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).float()

    @staticmethod
    def backward(ctx, g):
        return F.hardtanh(g)


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


class Quantize(Function):
    @staticmethod
    def forward(ctx, x, scale, low, high):
        q = torch.round(x / scale)
        ctx.save_for_backward(x, scale, q)
        ctx.limits = (low, high)
        return torch.clamp(q, low, high) * scale

    @staticmethod
    def backward(ctx, g):
        x, scale, q = ctx.saved_tensors
        low, high = ctx.limits
        inside = (q >= low) & (q <= high)
        slope = torch.where(inside, q - x / scale, q.clamp(low, high))
        return g * inside.to(g.dtype), (g * slope).sum().reshape(scale.shape), None, None


class Gelu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        density = torch.exp(-x.pow(2) / 2) / math.sqrt(2 * math.pi)
        return g * (0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * density)


class TopK(Function):
    @staticmethod
    def forward(ctx, x, k):
        _, index = x.topk(k, dim=-1)
        ctx.mask = torch.zeros_like(x).scatter_(-1, index, 1.0)
        return x * ctx.mask

    @staticmethod
    def backward(ctx, g):
        return g * ctx.mask, None


class Affine(Function):
    @staticmethod
    def forward(x, weight, bias):
        output = x.mm(weight.t())
        output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, weight, _ = ctx.saved_tensors
        grad_x = g.mm(weight) if ctx.needs_input_grad[0] else None
        return grad_x, g.t().mm(x), g.sum(0)


class Spline(Function):
    @staticmethod
    def forward(ctx, x, knots, values):
        i = torch.bucketize(x.detach().contiguous(), knots[1:-1])
        width = knots[i + 1] - knots[i]
        t, rise = (x - knots[i]) / width, values[i + 1] - values[i]
        ctx.save_for_backward(i, t, rise / width)
        ctx.n = values.shape[0]
        return values[i] + t * rise

    @staticmethod
    def backward(ctx, g):
        i, t, slope = ctx.saved_tensors
        grad_values = torch.zeros(ctx.n, dtype=g.dtype)
        grad_values.index_add_(0, i.flatten(), (g * (1 - t)).flatten())
        grad_values.index_add_(0, i.flatten() + 1, (g * t).flatten())
        return g * slope, None, grad_values


class Clipped(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g / (g.norm() + 1e-6) * torch.clamp(g.norm(), max=1.0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.empty(16, 6)), nn.Parameter(torch.empty(16))
        self.scale, self.values = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(7))
        self.register_buffer("knots", torch.linspace(-3, 3, 7))
        self.gate, self.out, self.domain = nn.Linear(16, 16), nn.Linear(16, 3), nn.Linear(16, 2)

    def forward(self, x):
        h = Gelu.apply(Affine.apply(x, self.w, self.b))
        h = Spline.apply(h.clamp(-2.9, 2.9), self.knots, self.values) + h
        h = TopK.apply(h * (0.5 + Sign.apply(self.gate(h))), 9)
        h = Clipped.apply(Quantize.apply(h, self.scale, -8, 7))
        return self.out(h), self.domain(Reverse.apply(h, 0.3))


def build():
    net = fill(Net())
    with torch.no_grad():
        net.scale.fill_(0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)

    def step(x, y, d):
        optimizer.zero_grad()
        classes, domains = net(x)
        loss = F.cross_entropy(classes, y) + F.cross_entropy(domains, d)
        loss.backward()
        optimizer.step()
        return loss

    return (
        step,
        [
            (
                torch.tensor(numbers(f"x{i}", 10, 6)),
                torch.tensor(integers(f"y{i}", 3, 10)),
                torch.tensor(integers(f"d{i}", 2, 10)),
            )
            for i in range(20)
        ],
        net,
    )
