"""A dueling DQN: a namedtuple of tensors, masked writes, a target network through state dicts."""

from collections import namedtuple

import torch
import torch.nn.functional as F
from inputs import fill, integers, numbers, uniform
from torch import nn, optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward", "done"))


class DQN(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.hidden = nn.Linear(observations, 16)
        self.value, self.advantage = nn.Linear(16, 1), nn.Linear(16, actions, bias=False)

    def forward(self, x):
        x = F.relu(self.hidden(x))
        a = self.advantage(x)
        return self.value(x) + a - a.mean(1, keepdim=True)


def build():
    policy, target = fill(DQN(4, 2)), DQN(4, 2)
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)

    def step(batch):
        values = policy(batch.state).gather(1, batch.action)
        with torch.no_grad():
            best = policy(batch.next_state).max(1).indices
            following = target(batch.next_state).gather(1, best[:, None]).squeeze(1)
            following[batch.done] = 0.0
        loss = nn.SmoothL1Loss()(values, (following * 0.99 + batch.reward).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy.parameters(), 0.1)
        optimizer.step()
        slow, fast = target.state_dict(), policy.state_dict()
        for key in fast:
            slow[key] = fast[key] * 0.05 + slow[key] * 0.95
        target.load_state_dict(slow)
        return loss

    return (
        step,
        [
            (
                Transition(
                    torch.tensor(numbers(f"s{i}", 8, 4)),
                    torch.tensor(integers(f"a{i}", 2, 8, 1)),
                    torch.tensor(numbers(f"n{i}", 8, 4)),
                    torch.tensor(uniform(f"r{i}", 8)),
                    torch.tensor(integers(f"d{i}", 2, 8)).bool(),
                ),
            )
            for i in range(20)
        ],
        [policy, target],
    )
