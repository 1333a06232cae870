"""The parameters of the Lorenz system from a trajectory, through an unrolled RK4, in float64."""

import torch


def lorenz(state, sigma, rho, beta):
    x, y, z = state.unbind(-1)
    return torch.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z], dim=-1)


def rk4(f, y, dt, *args):
    k1 = f(y, *args)
    k2 = f(y + dt / 2 * k1, *args)
    k3 = f(y + dt / 2 * k2, *args)
    k4 = f(y + dt * k3, *args)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def simulate(y0, params, n, dt=0.02):
    ys = [y0]
    for _ in range(n):
        ys.append(rk4(lorenz, ys[-1], dt, *params))
    return torch.stack(ys)


def build():
    y0 = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    with torch.no_grad():
        target = simulate(y0, torch.tensor([10.0, 28.0, 8 / 3], dtype=torch.float64), 8)
    params = torch.tensor([8.0, 24.0, 2.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([params], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)

    def step():
        optimizer.zero_grad()
        loss = torch.mean((simulate(y0, params, 8) - target) ** 2)
        loss.backward()
        optimizer.step()
        return loss

    return step, [(), scheduler.step] * 20, params
