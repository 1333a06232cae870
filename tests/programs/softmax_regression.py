"""Softmax regression from scratch: list indexing, `axis=`, updates in no_grad, a penalty."""

import torch
from inputs import integers, numbers

TRACES = 2  # the gradients are there from the second step on


def softmax(x):
    e = torch.exp(x - x.max(dim=1, keepdim=True)[0])
    return e / e.sum(axis=1, keepdims=True)


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


def build():
    w = torch.tensor(numbers("w", 12, 5) * 0.1, requires_grad=True)
    b = torch.zeros(5, requires_grad=True)

    def step(x, y):
        y_hat = softmax(torch.matmul(x.reshape((-1, w.shape[0])), w) + b)
        losses = -torch.log(y_hat[list(range(len(y_hat))), y])
        penalty = 1e-2 * w.norm(2) ** 2 + 1e-2 * torch.norm(w, p=1)
        (losses.sum() + penalty).backward()
        sgd([w, b], 0.1, x.shape[0])
        right = (y_hat.argmax(axis=1).to(y.dtype) == y).float()
        return losses.mean(), right.mean().detach()

    return (
        step,
        [
            (torch.tensor(numbers(f"x{i}", 16, 3, 4)), torch.tensor(integers(f"y{i}", 5, 16)))
            for i in range(20)
        ],
        [w, b],
    )
