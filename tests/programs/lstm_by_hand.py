"""An LSTM written with slices of one gate tensor; RMSprop and clipping."""

import math

import torch
import torch.nn as nn
from inputs import fill, numbers


class LSTM(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.W = nn.Parameter(torch.Tensor(inputs, hidden * 4))
        self.U = nn.Parameter(torch.Tensor(hidden, hidden * 4))
        self.bias = nn.Parameter(torch.Tensor(hidden * 4))
        bound = 1.0 / math.sqrt(hidden)
        for weight in self.parameters():
            weight.data.uniform_(-bound, bound)

    def forward(self, x):
        n, length, _ = x.size()
        H, outputs = self.hidden, []
        h, c = torch.zeros(n, H).to(x.device), torch.zeros(n, H).to(x.device)
        for t in range(length):
            gates = x[:, t, :] @ self.W + h @ self.U + self.bias
            i, f = torch.sigmoid(gates[:, :H]), torch.sigmoid(gates[:, H : H * 2])
            g, o = torch.tanh(gates[:, H * 2 : H * 3]), torch.sigmoid(gates[:, H * 3 :])
            c = f * c + i * g
            h = o * torch.tanh(c)
            outputs.append(h.unsqueeze(0))
        return torch.cat(outputs, dim=0).transpose(0, 1).contiguous(), (h, c)


def build():
    lstm, head = fill(LSTM(3, 8)), fill(nn.Linear(8, 1))
    params = list(lstm.parameters()) + list(head.parameters())
    opt = torch.optim.RMSprop(params, lr=1e-2)

    def step(x, y):
        opt.zero_grad()
        sequence, _ = lstm(x)
        loss = ((head(sequence).squeeze(-1) - y) ** 2).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, max_norm=0.5)
        opt.step()
        return loss.detach(), norm

    return (
        step,
        [
            (torch.tensor(numbers(f"x{i}", 4, 7, 3)), torch.tensor(numbers(f"y{i}", 4, 7)))
            for i in range(20)
        ],
        [lstm, head],
    )
