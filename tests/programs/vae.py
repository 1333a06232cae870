"""A variational autoencoder: noise as an input, two loss terms, Adam."""

import torch
from inputs import fill, numbers, uniform
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(24, 16)
        self.mean, self.logvar = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 24), nn.Sigmoid())

    def forward(self, x, eps):
        h = F.relu(self.hidden(x.view(-1, 24)))
        mu, logvar = self.mean(h), self.logvar(h)
        std = torch.exp(0.5 * logvar)
        return self.decoder(mu + eps * std), mu, logvar


def build():
    model = fill(VAE().to("cpu"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, eps):
        model.train()
        optimizer.zero_grad()
        recon, mu, logvar = model(x, eps)
        bce = F.binary_cross_entropy(recon, x.view(-1, 24), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + kld
        loss.backward()
        optimizer.step()
        return loss

    return (
        step,
        [
            (
                torch.from_numpy(uniform(f"x{i}", 8, 4, 6)),
                torch.from_numpy(numbers(f"eps{i}", 8, 4)),
            )
            for i in range(20)
        ],
        model,
    )
