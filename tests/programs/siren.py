"""Sine layers and radial basis functions under a Laplacian: einsum, derivatives of gradients."""

import math

import torch
import torch.nn as nn
from inputs import fill, numbers, uniform


class Sine(nn.Module):
    def __init__(self, inputs, outputs, omega=3):
        super().__init__()
        self.omega = omega
        self.linear = nn.Linear(inputs, outputs)
        with torch.no_grad():
            bound = math.sqrt(6 / inputs) / omega
            self.linear.weight.uniform_(-bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


class Radial(nn.Module):
    def __init__(self, inputs, outputs, n=5):
        super().__init__()
        self.grid = nn.Parameter(torch.linspace(-2, 2, n), requires_grad=False)
        self.coefficients = nn.Parameter(torch.empty(inputs, outputs, n))
        self.widths = nn.ParameterList([nn.Parameter(torch.zeros(1))])

    def forward(self, x):
        basis = torch.exp(-(((x[..., None] - self.grid) / self.widths[0].exp()) ** 2))
        return torch.einsum("bin,ion->bo", basis, self.coefficients)


def gradient(y, x):
    return torch.autograd.grad(y, [x], grad_outputs=torch.ones_like(y), create_graph=True)[0]


def laplacian(y, x):
    slope = gradient(y, x)
    return sum(gradient(slope[..., i], x)[..., i : i + 1] for i in range(slope.shape[-1]))


def build():
    net = fill(nn.Sequential(Sine(2, 8), Sine(8, 8), Radial(8, 1)), 0.15)
    optimizer = torch.optim.Adam(lr=1e-3, params=[p for p in net.parameters() if p.requires_grad])

    def step(x, target):
        points = x.clone().detach().requires_grad_(True)
        out = net(points)
        loss = ((laplacian(out, points) - target) ** 2).mean()
        loss = loss + (gradient(out, points).norm(dim=-1) - 1).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return (
        step,
        [
            (torch.tensor(uniform(f"x{i}", 8, 2)), torch.tensor(numbers(f"t{i}", 8, 1)))
            for i in range(20)
        ],
        net,
    )
