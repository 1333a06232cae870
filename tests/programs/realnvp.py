"""A normalizing flow of affine couplings with a mask buffer; the graph is kept."""

import math

import numpy as np
import torch
from inputs import fill, numbers
from torch import nn


class RealNVP(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)

        def net(*last):
            return nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 2), *last)

        self.t = nn.ModuleList([net() for _ in range(len(mask))])
        self.s = nn.ModuleList([net(nn.Tanh()) for _ in range(len(mask))])

    def log_prob(self, x):
        log_det, z = x.new_zeros(x.shape[0]), x
        for i in reversed(range(len(self.t))):
            free = 1 - self.mask[i]
            kept = self.mask[i] * z
            s, t = self.s[i](kept) * free, self.t[i](kept) * free
            z = free * (z - t) * torch.exp(-s) + kept
            log_det -= s.sum(dim=1)
        return -0.5 * (z**2).sum(dim=1) - math.log(2 * math.pi) + log_det


def build():
    flow = fill(RealNVP(torch.from_numpy(np.array([[0, 1], [1, 0]] * 2, dtype=np.float32))))
    optimizer = torch.optim.Adam([p for p in flow.parameters() if p.requires_grad], lr=1e-3)

    def step(x):
        loss = -flow.log_prob(x).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        return loss

    return step, [(torch.from_numpy(numbers(f"x{i}", 16, 2)),) for i in range(20)], flow
