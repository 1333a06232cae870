"""Sharpness-aware minimization: an Optimizer around another, two passes, switched statistics."""

import torch
from inputs import fill, integers, numbers
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

TRACES = 2  # the first call finds no state


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, adaptive=False, **kwargs):
        assert rho >= 0.0, f"Invalid rho, should be non-negative: {rho}"
        super().__init__(params, dict(rho=rho, adaptive=adaptive, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        grad_norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (grad_norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                e_w = (torch.pow(p, 2) if group["adaptive"] else 1.0) * p.grad * scale.to(p)
                p.add_(e_w)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def _grad_norm(self):
        device = self.param_groups[0]["params"][0].device
        norms = [
            ((torch.abs(p) if group["adaptive"] else 1.0) * p.grad).norm(p=2).to(device)
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        return torch.norm(torch.stack(norms), p=2)


def disable_running_stats(model):
    def _disable(module):
        if isinstance(module, _BatchNorm):
            module.backup_momentum = module.momentum
            module.momentum = 0

    model.apply(_disable)


def enable_running_stats(model):
    def _enable(module):
        if isinstance(module, _BatchNorm) and hasattr(module, "backup_momentum"):
            module.momentum = module.backup_momentum

    model.apply(_enable)


def build():
    model = fill(nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    optimizer = SAM(model.parameters(), torch.optim.SGD, adaptive=True, lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def step(x, y):
        enable_running_stats(model)
        loss = criterion(model(x), y)
        loss.mean().backward()
        optimizer.first_step(zero_grad=True)
        disable_running_stats(model)
        criterion(model(x), y).mean().backward()
        optimizer.second_step(zero_grad=True)
        return loss

    events = [
        (torch.tensor(numbers(f"x{i}", 9, 5)), torch.tensor(integers(f"y{i}", 3, 9)))
        for i in range(12)
    ]
    return step, events, model
