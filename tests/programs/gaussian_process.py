"""A Gaussian process: hyper-parameters by the marginal likelihood, through a Cholesky factor."""

import math

import torch
from inputs import numbers


def build():
    x = torch.from_numpy(numbers("x", 12, 2)).double()
    y = torch.sin(x).sum(1)
    logs = [torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in range(3)]
    length, scale, noise = logs
    optimizer = torch.optim.Adam(logs, lr=0.1)

    def step():
        distance = ((x[:, None] - x[None]) / length.exp()).pow(2).sum(-1)
        k = scale.exp() * torch.exp(-0.5 * distance) + noise.exp() * torch.eye(12, dtype=x.dtype)
        factor = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(y[:, None], factor).squeeze(-1)
        loss = 0.5 * y @ alpha + factor.diagonal().log().sum() + 6 * math.log(2 * math.pi)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), torch.logdet(k.detach())

    return step, [()] * 5, logs
