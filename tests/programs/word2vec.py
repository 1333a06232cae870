"""Skip-gram with negative sampling: three lookups, batched products, SGD with momentum."""

import torch
import torch.nn as nn
from inputs import fill, integers


class SkipGram(nn.Module):
    def __init__(self, vocabulary, size):
        super().__init__()
        self.centers = nn.Embedding(vocabulary, size)
        self.contexts = nn.Embedding(vocabulary, size, padding_idx=0)
        self.centers.weight.data.uniform_(-1, 1)

    def forward(self, center, context, noise):
        n, size = len(center), self.centers.embedding_dim
        v = self.centers(center).view(n, size, 1)
        good = torch.bmm(self.contexts(context).view(n, 1, size), v).sigmoid().log().squeeze()
        bad = torch.bmm(self.contexts(noise).neg(), v).sigmoid().log().squeeze().sum(1)
        return -(good + bad).mean()


def build():
    model = fill(SkipGram(17, 6))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)

    def step(center, context, noise):
        loss = model(center, context, noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return (
        step,
        [
            (
                torch.LongTensor(integers(f"center{i}", 17, 9)),
                torch.LongTensor(integers(f"context{i}", 17, 9)),
                torch.LongTensor(integers(f"noise{i}", 17, 9, 5)),
            )
            for i in range(20)
        ],
        model,
    )
