"""Attention over a graph's edges: scatter_reduce, scatter_add and index_add; dropout in eval."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from inputs import fill, integers, numbers
from torch.nn.parameter import Parameter


class GraphAttention(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin = nn.Linear(inputs, outputs, bias=False)
        self.a = Parameter(torch.FloatTensor(2 * outputs))

    def forward(self, x, edges):
        source, target = edges
        h = self.lin(x)
        e = F.leaky_relu((torch.cat([h[source], h[target]], dim=1) * self.a).sum(dim=-1), 0.2)
        n = x.size(0)
        top = torch.full((n,), float("-inf")).scatter_reduce(0, target, e.detach(), reduce="amax")
        weight = torch.exp(e - top[target])
        total = torch.zeros(n).scatter_add_(0, target, weight)
        weight = (weight / total[target]).unsqueeze(-1)
        return torch.zeros_like(h).index_add_(0, target, weight * h[source])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.out = GraphAttention(5, 8), nn.Linear(8, 3)

    def forward(self, x, edges, adjacency):
        h = F.dropout(F.elu(self.attention(x, edges)), 0.5, training=False)
        return F.log_softmax(torch.mm(adjacency, self.out(h)), dim=1)


def build():
    net, n = fill(Net()), 10
    ends = np.concatenate([np.arange(n), integers("target", n, 20)])
    edges = torch.tensor(np.stack([integers("source", n, 30), ends]))
    adjacency = torch.zeros(n, n)
    adjacency[edges[0], edges[1]] = 1.0
    degree = (adjacency + torch.eye(n)).sum(1).pow(-0.5)
    adjacency = degree[:, None] * (adjacency + torch.eye(n)) * degree[None, :]
    x, y = torch.tensor(numbers("x", n, 5)), torch.tensor(integers("y", 3, n))
    train = (torch.arange(n) < 7).nonzero().view(-1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=5e-4)

    def step():
        optimizer.zero_grad()
        loss = F.nll_loss(net(x, edges, adjacency)[train], y[train])
        loss.backward()
        optimizer.step()
        return loss

    return step, [()] * 20, net
