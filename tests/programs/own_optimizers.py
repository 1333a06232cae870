"""Optimizers of the user's own: one makes its state at the first update, one in advance."""

import torch
from inputs import fill, integers, numbers
from torch import nn
from torch.optim.optimizer import Optimizer

TRACES = 2  # the first call finds no state


class Signs(Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                mean, (beta1, beta2) = state["exp_avg"], group["betas"]
                update = mean * beta1 + p.grad * (1 - beta1)
                p.add_(update.sign_(), alpha=-group["lr"])
                mean.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Moments(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["step"] = torch.tensor(0.0)
                self.state[p]["mean"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                self.state[p]["square"] = torch.zeros_like(p.data)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                s = self.state[p]
                s["step"] += 1
                s["mean"].mul_(b1).add_(p.grad, alpha=1 - b1)
                s["square"].mul_(b2).addcmul_(p.grad, p.grad.conj(), value=1 - b2)
                size = (s["square"].sqrt() / torch.sqrt(1 - b2 ** s["step"])).add_(group["eps"])
                p.addcdiv_(s["mean"], size * (1 - b1 ** s["step"]), value=-group["lr"])


def build():
    net, head = fill(nn.Sequential(nn.Linear(5, 12), nn.Tanh())), fill(nn.Linear(12, 3))
    signs = Signs(net.parameters(), lr=1e-3, weight_decay=1e-2)
    moments = Moments(head.parameters(), lr=1e-2)

    def step(x, y):
        signs.zero_grad()
        moments.zero_grad()
        loss = nn.functional.cross_entropy(head(net(x)), y)
        loss.backward()
        signs.step()
        moments.step()
        return loss

    def decay():
        for group in signs.param_groups + moments.param_groups:
            group["lr"] *= 0.95

    events = []
    for i in range(20):
        x, y = torch.tensor(numbers(f"x{i}", 9, 5)), torch.tensor(integers(f"y{i}", 3, 9))
        events += [(x, y), decay]
    return step, events, [net, head]
