"""A character network unrolled in Python, its parameters updated through `.data`."""

import torch
import torch.nn as nn
from inputs import fill, integers


class RNN(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.hidden_size = hidden
        self.i2h = nn.Linear(inputs + hidden, hidden)
        self.i2o = nn.Linear(inputs + hidden, outputs)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, x, hidden):
        combined = torch.cat((x, hidden), 1)
        return self.softmax(self.i2o(combined)), torch.tanh(self.i2h(combined))


def build():
    rnn = fill(RNN(10, 12, 5))
    criterion = nn.NLLLoss()

    def step(category, line):
        hidden = torch.zeros(1, rnn.hidden_size)
        rnn.zero_grad()
        for i in range(line.size()[0]):
            output, hidden = rnn(line[i], hidden)
        loss = criterion(output, category)
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-0.05)
        return output, loss

    calls = []
    for i in range(20):
        line = torch.zeros(6, 1, 10)
        for j, letter in enumerate(integers(f"line{i}", 10, 6)):
            line[j][0][letter] = 1
        calls.append((torch.tensor([i % 5], dtype=torch.long), line))
    return step, calls, rnn
