"""REINFORCE: actions by the inverse CDF, discounted returns in a loop, a running baseline."""

import torch
import torch.nn.functional as F
from inputs import fill, numbers, uniform
from torch import nn


def build():
    policy = fill(nn.Sequential(nn.Linear(4, 12), nn.Dropout(p=0.0), nn.ReLU(), nn.Linear(12, 2)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    baseline = torch.zeros(())

    def step(states, u, rewards):
        probs = F.softmax(policy(states), dim=1)
        actions = (u.unsqueeze(1) > probs.cumsum(dim=1)).sum(dim=1).clamp(max=1)
        logp = torch.log(probs).gather(1, actions.unsqueeze(1)).squeeze(1)
        total, returns = 0, []
        for r in rewards.flip(0):
            total = r + 0.99 * total
            returns.insert(0, total)
        returns = torch.stack(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-7) - baseline
        losses = [-log_prob * R for log_prob, R in zip(logp, returns, strict=True)]
        entropy = -(probs * probs.log()).sum(-1).mean()
        optimizer.zero_grad()
        loss = torch.stack(losses).sum() - 0.01 * entropy
        loss.backward()
        optimizer.step()
        baseline.mul_(0.9).add_(rewards.mean(), alpha=0.1)
        return loss, actions

    return (
        step,
        [
            (
                torch.tensor(numbers(f"s{i}", 6, 4)),
                torch.tensor(uniform(f"u{i}", 6)),
                torch.tensor(uniform(f"r{i}", 6)),
            )
            for i in range(20)
        ],
        [policy, baseline],
    )
