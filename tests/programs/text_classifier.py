"""nn.EmbeddingBag over ragged texts with offsets."""

import torch
from inputs import fill, integers
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocabulary, size, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, size, sparse=False)
        self.fc = nn.Linear(size, classes)

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


def build():
    model = fill(Classifier(20, 6, 4))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)

    def step(label, text, offsets):
        optimizer.zero_grad()
        predicted = model(text, offsets)
        loss = criterion(predicted, label)
        loss.backward()
        optimizer.step()
        return loss, (predicted.argmax(1) == label).sum()

    return (
        step,
        [
            (
                torch.tensor(integers(f"label{i}", 4, 3)),
                torch.tensor(integers(f"text{i}", 20, 12)),
                torch.tensor([0, 4, 4 + i % 7]),
            )
            for i in range(20)
        ],
        model,
    )
