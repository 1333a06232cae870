"""A discrete VAE: straight-through Gumbel-softmax, temperature and weights that change outside."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from inputs import fill, integers, numbers

TRACES = 3  # numbers that have changed twice are read at each call
KL_WEIGHT = 0.0


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4 * 3))
        self.decoder = nn.Sequential(nn.Linear(4 * 3, 12), nn.ReLU(), nn.Linear(12, 6))
        self.temperature = 1.0

    def forward(self, x, gumbel):
        logits = self.encoder(x).view(-1, 4, 3)
        soft = F.softmax((logits + gumbel) / self.temperature, dim=-1)
        hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
        z = hard - soft.detach() + soft
        return self.decoder(z.view(-1, 12)), logits


def build():
    global KL_WEIGHT
    KL_WEIGHT = 0.0
    model = fill(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = {"epoch": 0}

    def step(x, gumbel):
        recon, logits = model(x, gumbel)
        q = F.softmax(logits, -1)
        kl = (q * (torch.log(q + 1e-8) + torch.log(torch.tensor(3.0)))).sum((1, 2)).mean()
        warm = min(1.0, (schedule["epoch"] + 1) / 8)
        bce = F.binary_cross_entropy_with_logits(recon, x, reduction="sum") / x.size(0)
        loss = warm * bce + KL_WEIGHT * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, kl

    def anneal():
        global KL_WEIGHT
        KL_WEIGHT += 0.125
        schedule["epoch"] += 1
        model.temperature = max(0.5, model.temperature * 0.9)

    events = []
    for i in range(4):
        x = torch.from_numpy(integers(f"x{i}", 2, 5, 6)).float()
        events += [(x, torch.from_numpy(numbers(f"g{i}{k}", 5, 4, 3))) for k in range(2)]
        events.append(anneal)
    return step, events[:-1], model
