"""Proximal policy optimization of a Gaussian policy: ratios, clipped values, entropy."""

import torch
from inputs import fill, numbers
from torch import nn
from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        self.critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.log_std = nn.Parameter(torch.zeros(1, 2))

    def forward(self, state):
        mean = self.actor(state)
        return Normal(mean, self.log_std.expand_as(mean).exp()), self.critic(state).view(-1)


def build():
    model = fill(ActorCritic())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-5)

    def step(state, action, before, advantage, target, value_before):
        policy, value = model(state)
        log_prob = policy.log_prob(action).sum(1)
        ratio = (log_prob - before).exp()
        clipped = torch.clamp(ratio, 0.8, 1.2)
        gain = torch.min(advantage * ratio, advantage * clipped).mean()
        near = value_before + torch.clamp(value - value_before, -0.2, 0.2)
        error = torch.max((value - target) ** 2, (near - target) ** 2).mean()
        loss = 0.5 * error - gain - 0.01 * policy.entropy().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        with torch.no_grad():
            divergence = ((ratio - 1) - (log_prob - before)).mean()
        return loss.detach(), norm, divergence

    shapes = {"s": (8, 3), "a": (8, 2), "b": (8,), "v": (8,), "t": (8,), "o": (8,)}
    batches = [
        tuple(torch.from_numpy(numbers(f"{name}{i}", *shape)) for name, shape in shapes.items())
        for i in range(4)
    ]
    return step, batches, model
