"""A GAN: two networks, two optimizers, three backward calls, in-place activations and labels."""

import torch
import torch.nn as nn
from inputs import fill, numbers


def build():
    generator = nn.Sequential(
        nn.Linear(4, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(True), nn.Linear(12, 3), nn.Tanh()
    )
    discriminator = nn.Sequential(
        nn.Linear(3, 12), nn.LeakyReLU(0.2, inplace=True), nn.Linear(12, 1), nn.Sigmoid()
    )
    fill(generator), fill(discriminator)
    criterion = nn.BCELoss()
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))

    def step(real, noise):
        discriminator.zero_grad()
        label = torch.full((real.size(0),), 1.0, dtype=torch.float)
        error_real = criterion(discriminator(real).view(-1), label)
        error_real.backward()
        fake = generator(noise)
        label.fill_(0.0)
        error_fake = criterion(discriminator(fake.detach()).view(-1), label)
        error_fake.backward()
        optimizer_d.step()
        generator.zero_grad()
        label.fill_(1.0)
        error_g = criterion(discriminator(fake).view(-1), label)
        error_g.backward()
        optimizer_g.step()
        return error_real + error_fake, error_g

    return (
        step,
        [
            (torch.tensor(numbers(f"real{i}", 8, 3)), torch.tensor(numbers(f"noise{i}", 8, 4)))
            for i in range(20)
        ],
        [generator, discriminator],
    )
