"""A Lagrangian network: accelerations from Hessians, a linear system per example, under vmap."""

import torch
from inputs import fill, numbers
from torch import nn
from torch.func import grad, hessian, jacrev, vmap


def build():
    net = fill(nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)

    def lagrangian(q, q_t):
        kinetic = 0.5 * (q_t**2).sum()
        return kinetic + net(torch.cat([q, q_t], -1)).squeeze(-1)

    def equation_of_motion(state):
        q, q_t = torch.split(state, 2)
        mass = hessian(lagrangian, 1)(q, q_t)
        mixed = jacrev(jacrev(lagrangian, 1), 0)(q, q_t)
        force = grad(lagrangian, 0)(q, q_t)
        return torch.cat([q_t, torch.linalg.solve(mass, force - mixed @ q_t)])

    def step(state, target):
        optimizer.zero_grad()
        loss = ((vmap(equation_of_motion)(state) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    batches = [
        (torch.tensor(numbers(f"s{i}", 6, 4)), torch.tensor(numbers(f"t{i}", 6, 4)))
        for i in range(3)
    ]
    return step, batches, net
