"""Differentially private SGD in a functional style: clipped gradients of single examples."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from inputs import fill, integers, numbers
from torch.func import functional_call, grad, vmap


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.fc = nn.Linear(3 * 9, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)


def build():
    net = fill(SimpleCNN())

    def compute_loss(params, sample, target):
        predictions = functional_call(net, params, (sample.unsqueeze(0),))
        return F.nll_loss(predictions, target.unsqueeze(0))

    per_sample_grads = vmap(grad(compute_loss), in_dims=(None, 0, 0))

    weights = {name: p.detach() for name, p in net.named_parameters()}
    carried = {"params": weights, "mean": {k: torch.zeros_like(v) for k, v in weights.items()}}
    carried["count"] = 0

    def step(x, y, noise):
        params = carried["params"]
        grads = per_sample_grads(params, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (0.5 / (norms + 1e-6)).clamp(max=1.0)
        carried["count"] += 1
        mean, new = {}, {}
        for name, g in grads.items():
            g = torch.einsum("i,i...->...", factor, g) / len(x) + 0.01 * noise
            mean[name] = 0.9 * carried["mean"][name] + 0.1 * g
            new[name] = params[name] - 0.5 * mean[name] / (1 - 0.9 ** carried["count"])
        carried["params"], carried["mean"] = new, mean
        return norms

    batches = [
        (
            torch.from_numpy(numbers(f"x{i}", 4, 1, 8, 8)),
            torch.from_numpy(integers(f"y{i}", 4, 4)),
            torch.from_numpy(numbers(f"n{i}", 1))[0],
        )
        for i in range(4)
    ]
    return step, batches, Params(carried)


class Params:
    """What is carried along, as a module shows its state."""

    def __init__(self, carried):
        self.carried = carried

    def state_dict(self):
        return self.carried["params"]

    def named_parameters(self):
        return []
