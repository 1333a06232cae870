"""Averages of weights: a shadow dict, a target network, a running mean with a count."""

import copy

import torch
import torch.nn as nn
from inputs import fill, numbers


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = {name: p.data.clone() for name, p in model.named_parameters()}

    def update(self):
        for name, p in self.model.named_parameters():
            average = (1.0 - self.decay) * p.data + self.decay * self.shadow[name]
            self.shadow[name].copy_(average)


@torch.no_grad()
def update_target(online, target, tau):
    for slow, p in zip(target.parameters(), online.parameters(), strict=True):
        slow.data.copy_(tau * p.data + (1.0 - tau) * slow.data)


def build():
    net = nn.Sequential(nn.Linear(5, 12, bias=False), nn.BatchNorm1d(12), nn.ELU())
    net.append(nn.Linear(12, 1))
    target = copy.deepcopy(fill(net)).requires_grad_(False)
    mean, count = copy.deepcopy(net), torch.zeros((), dtype=torch.long)
    ema = EMA(net, 0.9)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def step(x, y):
        loss = nn.functional.smooth_l1_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update()
        update_target(net, target, 0.05)
        with torch.no_grad():
            for average, p in zip(mean.parameters(), net.parameters(), strict=True):
                average += (p - average) / (count + 1)
            count.add_(1)
        return loss

    return (
        step,
        [
            (torch.tensor(numbers(f"x{i}", 9, 5)), torch.tensor(numbers(f"y{i}", 9, 1)))
            for i in range(20)
        ],
        [net, target, mean, count, ema.shadow],
    )
