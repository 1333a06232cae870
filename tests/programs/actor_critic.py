"""Actor-critic of PyTorch's examples: discounted returns in a Python list, made a tensor."""

from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from inputs import fill, integers, numbers, uniform
from torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 16)
        self.action_head = nn.Linear(16, 2)
        self.value_head = nn.Linear(16, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def build():
    model = fill(Policy())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    eps = 1e-5

    def finish_episode():
        R = 0.0
        policy_losses, value_losses, returns = [], [], []
        for r in model.rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + eps)
        for (log_prob, value), R in zip(model.saved_actions, returns, strict=True):
            advantage = R - value.item()
            policy_losses.append(-log_prob * advantage)
            value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
        optimizer.zero_grad()
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss.backward()
        optimizer.step()
        del model.rewards[:]
        del model.saved_actions[:]
        return loss

    def step(states, actions, rewards):
        for state, action, reward in zip(states, actions, rewards, strict=True):
            probs, value = model(state)
            model.saved_actions.append(SavedAction(Categorical(probs).log_prob(action), value))
            model.rewards.append(reward)
        return finish_episode()

    episodes = [
        (
            torch.from_numpy(numbers(f"s{i}", 6, 4)),
            torch.from_numpy(integers(f"a{i}", 2, 6)),
            uniform(f"r{i}", 6).tolist(),
        )
        for i in range(4)
    ]
    return step, episodes, model
