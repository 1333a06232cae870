"""nn.LSTM in both directions and nn.GRUCell, with a state that is carried from call to call."""

import torch
import torch.nn as nn
from inputs import fill, integers


class Tagger(nn.Module):
    def __init__(self, size, hidden, vocabulary, tags):
        super().__init__()
        self.hidden = hidden
        self.embeddings = nn.Embedding(vocabulary, size)
        self.lstm = nn.LSTM(size, hidden, batch_first=True, bidirectional=True)
        self.gru = nn.GRUCell(2 * hidden, hidden)
        self.out = nn.Linear(hidden, tags)

    def forward(self, sentence, state):
        outputs, (h, c) = self.lstm(self.embeddings(sentence), state)
        hidden, tags = torch.zeros(sentence.size(0), self.hidden), []
        for x in outputs.unbind(1):
            hidden = self.gru(x, hidden)
            tags.append(self.out(hidden))
        return torch.stack(tags, 1), (h.detach(), c.detach())


def build():
    model = fill(Tagger(4, 5, 9, 3))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    state = (torch.zeros(2, 2, 5), torch.zeros(2, 2, 5))

    def step(x, y):
        optimizer.zero_grad()
        tags, after = model(x, state)
        loss = nn.functional.cross_entropy(tags.transpose(1, 2), y)
        loss.backward()
        optimizer.step()
        for kept, new in zip(state, after, strict=True):
            kept.copy_(new)
        return loss

    return (
        step,
        [
            (torch.tensor(integers(f"x{i}", 9, 2, 4)), torch.tensor(integers(f"y{i}", 3, 2, 4)))
            for i in range(20)
        ],
        [model, list(state)],
    )
