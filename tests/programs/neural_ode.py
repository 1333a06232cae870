"""A neural ODE: the solution is written into an empty tensor, step by step."""

import torch
from inputs import fill, numbers
from torch import nn


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3) * torch.cos(t)


def odeint(func, y0, t):
    solution = torch.empty(len(t), *y0.shape)
    solution[0] = y = y0
    for i in range(len(t) - 1):
        dt = t[i + 1] - t[i]
        middle = func(t[i] + dt / 2, y + dt / 2 * func(t[i], y))
        y = y + dt * middle
        solution[i + 1] = y
    return solution


def build():
    func = fill(Field())
    t = torch.linspace(0.0, 1.0, 6)
    optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-3, momentum=0.5, centered=True)

    def step(y0, y):
        optimizer.zero_grad()
        loss = torch.mean(torch.abs(odeint(func, y0, t) - y))
        loss.backward()
        optimizer.step()
        return loss

    return (
        step,
        [
            (torch.tensor(numbers(f"y0{i}", 5, 1, 2)), torch.tensor(numbers(f"y{i}", 6, 5, 1, 2)))
            for i in range(20)
        ],
        func,
    )
