"""A curve fitted by L-BFGS with a line search; the number of evaluations depends on values."""

import torch
from inputs import numbers
from torch import nn

TRACES = 0  # it decides by values, so the step runs op by op


def build():
    x = torch.from_numpy(numbers("x", 30, 2)).double()
    y = torch.sin(2 * x[:, :1]) * x[:, 1:]
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(0.5 * torch.from_numpy(numbers(name, *p.shape)))
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=6, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        return loss

    def step():
        return optimizer.step(closure).detach()

    return step, [()] * 5, net
