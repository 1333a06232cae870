"""A denoiser of images: group norm, time embedding, upsampling, mean of the weights kept aside."""

import copy
import math

import torch
import torch.nn.functional as F
from inputs import fill, integers, numbers
from torch import nn

STEPS = 20


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8))
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.GroupNorm(4, 8)
        self.down = nn.Conv2d(8, 8, 3, 2, 1)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.last = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x, t):
        rates = torch.exp(-math.log(10000) * torch.arange(4, dtype=torch.float32) / 4)
        angles = t[:, None].float() * rates[None]
        embedded = self.time(torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1))
        h = F.silu(self.norm(self.first(x))) + embedded[:, :, None, None]
        return self.last(torch.cat([h, self.up(F.silu(self.down(h)))], dim=1))


def build():
    model = fill(Denoiser())
    mean = copy.deepcopy(model).requires_grad_(False)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, STEPS), dim=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, t, noise):
        a = kept.gather(-1, t).reshape(-1, 1, 1, 1)
        loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(mean.parameters(), model.parameters(), strict=True):
                average.lerp_(parameter, 0.1)
        return loss.detach()

    batches = [
        (
            torch.from_numpy(numbers(f"x{i}", 3, 1, 4, 4)),
            torch.from_numpy(integers(f"t{i}", STEPS, 3)),
            torch.from_numpy(numbers(f"n{i}", 3, 1, 4, 4)),
        )
        for i in range(4)
    ]
    return step, batches, [model, mean]
