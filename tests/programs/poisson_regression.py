"""NumPy arrays as arguments, float64, a rate per group, quantiles of the predictions, a penalty."""

import numpy as np
import torch

D = torch.float64


def build():
    w = torch.zeros(3, 1, dtype=D, requires_grad=True)
    b = torch.zeros(1, dtype=D, requires_grad=True)
    log_a = torch.tensor(0.0, dtype=D, requires_grad=True)
    groups = [{"params": [w, b]}, {"params": [log_a], "lr": 0.1}]
    optimizer = torch.optim.Adam(groups, lr=0.05)
    x = np.random.RandomState(0).randn(40, 3)
    y = np.random.RandomState(1).poisson(2.0, (40, 1)).astype(np.float64)

    def step(x, y, beta):
        x, y = torch.as_tensor(x, dtype=D), torch.as_tensor(y)
        rate = torch.exp(x @ w + b)
        upper = torch.quantile(rate.detach().flatten(), 0.75)
        loss = torch.mean(rate - y * torch.log(rate + 1e-8)) + beta * (w**2).sum()
        loss = loss + torch.nn.functional.softplus(log_a) * 0.1 - 0.01 * torch.atan(log_a)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), upper, rate.detach().median()

    calls = [(x[i : i + 20], y[i : i + 20], 0.1 / (i + 1)) for i in range(20)]
    return step, calls, [w, b, log_a]
