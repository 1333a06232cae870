"""Meta-learning: two inner steps that are differentiated through, on parameters in a dict."""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from inputs import fill, numbers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = torch.nn.Linear(1, 10)
        self.layer2 = torch.nn.Linear(10, 1)

    def functional_forward(self, x, params):
        x = F.linear(x, params["layer1.weight"], params["layer1.bias"]).relu()
        return F.linear(x, weight=params["layer2.weight"], bias=params["layer2.bias"])


def build():
    model = fill(Model())
    meta_optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(xs, ys, xq, yq):
        meta_optimizer.zero_grad()
        meta_loss = torch.tensor(0.0)
        for k in range(xs.size(0)):
            params = OrderedDict(model.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(model.functional_forward(xs[k], params), ys[k])
                grads = torch.autograd.grad(loss, params.values(), create_graph=True)
                pairs = zip(params.items(), grads, strict=True)
                params = OrderedDict((name, p - 0.1 * g) for (name, p), g in pairs)
            meta_loss += F.mse_loss(model.functional_forward(xq[k], params), yq[k])
        meta_loss /= xs.size(0)
        meta_loss.backward()
        meta_optimizer.step()
        return meta_loss.detach()

    return (
        step,
        [tuple(torch.tensor(numbers(f"{name}{i}", 2, 5, 1)) for name in "abcd") for i in range(20)],
        model,
    )
