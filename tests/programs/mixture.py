"""A Gaussian mixture fitted by gradient descent: logsumexp over components."""

import math

import torch
from inputs import integers, numbers


def build():
    K, D = 3, 2
    data = numbers("data", 50, D) + 2 * integers("component", 3, 50, 1)
    x = torch.tensor(data, dtype=torch.float32)
    logits = torch.nn.Parameter(torch.zeros(K))
    means = torch.nn.Parameter(torch.tensor(numbers("means", K, D)))
    log_scales = torch.nn.Parameter(torch.zeros(K, D))
    optimizer = torch.optim.Adam([logits, means, log_scales], lr=0.05)

    def step():
        log_pi = torch.log_softmax(logits, dim=0)
        diff = (x[:, None, :] - means[None]) / log_scales.exp()[None, ...]
        log_prob = -0.5 * (diff**2).sum(-1) - log_scales.sum(-1) - 0.5 * D * math.log(2 * math.pi)
        loss = -torch.logsumexp(log_prob + log_pi, dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, [()] * 20, [logits, means, log_scales]
