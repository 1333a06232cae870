"""Federated averaging: clients train copies with optimizers of their own, the server averages."""

import copy

import torch
import torch.nn.functional as F
from inputs import fill, integers, numbers
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.fc = nn.Linear(27, 4)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv(x), 2, ceil_mode=True))
        x = x.view(-1, x.shape[1] * x.shape[-2] * x.shape[-1])
        return F.log_softmax(self.fc(x), dim=1)


def average(weights):
    mean = copy.deepcopy(weights[0])
    for key in mean:
        for other in weights[1:]:
            mean[key] += other[key]
        mean[key] = torch.div(mean[key], len(weights))
    return mean


def build():
    server = fill(Net())

    def client(x, y):
        model = copy.deepcopy(server)
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
        for _ in range(2):
            model.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
        return model.state_dict(), loss.item()

    def step(images, labels):
        found = [client(x, y) for x, y in zip(images, labels, strict=True)]
        weights = [copy.deepcopy(state) for state, _ in found]
        losses = [loss for _, loss in found]
        server.load_state_dict(average(weights))
        return torch.tensor([sum(losses) / len(losses), losses[-1]])

    rounds = []
    for i in range(4):
        images = [torch.from_numpy(numbers(f"x{i}{j}", 4, 1, 7, 7)) for j in range(3)]
        labels = [torch.from_numpy(integers(f"y{i}{j}", 4, 4)) for j in range(3)]
        rounds.append((images, labels))
    return step, rounds, server
