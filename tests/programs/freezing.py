"""A frozen layer that thaws midway; groups with rates of their own and a lambda for each."""

import torch
import torch.nn as nn
from inputs import fill, numbers

TRACES = 2  # before and after the thaw


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU())
        self.head = nn.Linear(12, 2)

    def forward(self, x):
        h = self.backbone(x)
        return self.head(h), nn.functional.linear(h, self.backbone[0].weight.t())


def build():
    net = fill(Net())
    for p in net.backbone[2].parameters():
        p.requires_grad = False
    groups = [{"params": net.backbone.parameters(), "lr": 1e-2}, {"params": net.head.parameters()}]
    optimizer = torch.optim.SGD(groups, lr=1e-1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lr_lambda=[lambda epoch: 0.9**epoch, lambda epoch: 1 / (1 + epoch)]
    )

    def step(x, y):
        optimizer.zero_grad()
        out, reconstructed = net(x)
        loss = nn.functional.mse_loss(out, y) + 0.1 * nn.functional.l1_loss(reconstructed, x)
        loss.backward()
        optimizer.step()
        return loss

    def thaw():
        for p in net.backbone[2].parameters():
            p.requires_grad = True

    events = []
    for i in range(20):
        x, y = torch.tensor(numbers(f"x{i}", 9, 5)), torch.tensor(numbers(f"y{i}", 9, 2))
        events += [(x, y), scheduler.step]
        if i == 9:
            events.append(thaw)
    return step, events, net
