"""Hardest triplets of a batch, with writes through boolean masks; PReLU."""

import torch
import torch.nn as nn
from inputs import fill, integers, numbers


def distances(embeddings):
    products = torch.matmul(embeddings, embeddings.t())
    squares = torch.diag(products)
    d = squares.unsqueeze(0) - 2.0 * products + squares.unsqueeze(1)
    d[d < 0] = 0
    zero = d.eq(0).float()
    return (1.0 - zero) * torch.sqrt(d + zero * 1e-16)


def batch_hard(labels, embeddings, margin):
    d = distances(embeddings)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    positive = (same & ~torch.eye(labels.size(0)).bool()).float()
    farthest_positive, _ = (positive * d).max(1, keepdim=True)
    nearest_negative, _ = (d + d.max(1, keepdim=True)[0] * same.float()).min(1, keepdim=True)
    loss = farthest_positive - nearest_negative + margin
    loss[loss < 0] = 0
    return loss.mean()


def build():
    net = fill(nn.Sequential(nn.Linear(5, 12), nn.PReLU(), nn.Linear(12, 4, bias=False)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.TripletMarginLoss(margin=1.0, p=2)

    def step(x, y):
        optimizer.zero_grad()
        e = net(x)
        loss = batch_hard(y, e, 0.5) + criterion(e[:3], e[3:6], e[6:9])
        loss.backward()
        optimizer.step()
        return loss

    return (
        step,
        [
            (torch.tensor(numbers(f"x{i}", 9, 5)), torch.tensor(integers(f"y{i}", 3, 9)))
            for i in range(20)
        ],
        net,
    )
