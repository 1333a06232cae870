"""Newton's direction by conjugate gradients on Hessian-vector products, in float64."""

import torch
from inputs import numbers


def hvp(y, x, v):
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (hv,) = torch.autograd.grad(g, x, v, retain_graph=True)
    return hv


def conjugate_gradients(f, x, b, n):
    d, r, p = torch.zeros_like(b), b.clone(), b.clone()
    rs = r.dot(r)
    for _ in range(n):
        ap = hvp(f(x), x, p)
        a = rs / torch.dot(p, ap)
        d, r = d + a * p, r - a * ap
        new = r @ r
        p, rs = r + (new / rs) * p, new
    return d


def build():
    a = torch.from_numpy(numbers("A", 6, 6)).double()
    a = a @ a.T / 6 + torch.eye(6, dtype=torch.float64)
    b = torch.from_numpy(numbers("b", 6)).double()
    x = torch.zeros(6, dtype=torch.float64, requires_grad=True)

    def f(x):
        return 0.5 * x @ a @ x - b @ x + 0.1 * torch.logsumexp(x, 0) + 0.05 * (x**4).sum()

    def step():
        loss = f(x)
        (g,) = torch.autograd.grad(loss, x)
        direction = conjugate_gradients(f, x, -g, 3)
        with torch.no_grad():
            x.add_(0.5 * direction)
        return loss.detach(), direction.norm()

    return step, [()] * 8, x
