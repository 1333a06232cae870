"""A physics-informed network: second derivatives by autograd.grad inside of the loss."""

import torch
from inputs import fill
from torch import nn

TRACES = 2  # the points require grad, and nobody forgets what gathers there


def derivative(u, t):
    return torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]


def build():
    hidden = [nn.Sequential(nn.Linear(12, 12), nn.Tanh()) for _ in range(2)]
    net = fill(nn.Sequential(nn.Linear(1, 12), nn.Tanh(), *hidden, nn.Linear(12, 1)))
    start = torch.tensor(0.0).view(-1, 1).requires_grad_(True)
    points = torch.linspace(0, 1, 30).view(-1, 1).requires_grad_(True)
    mu, k = 4, 20**2
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        u = net(start)
        loss = (torch.squeeze(u) - 1) ** 2
        loss = loss + 1e-1 * torch.squeeze(derivative(u, start)) ** 2
        u = net(points)
        dudt = derivative(u, points)
        loss = loss + 1e-4 * torch.mean((derivative(dudt, points) + mu * dudt + k * u) ** 2)
        loss.backward()
        optimizer.step()
        return loss

    return step, [()] * 20, [net, points]
