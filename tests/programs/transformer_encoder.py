"""nn.TransformerEncoder; positional encodings by strided writes, and a rate that decays."""

import math

import torch
from inputs import fill, integers
from torch import Tensor, nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 50):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        rate = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * rate)
        pe[:, 0, 1::2] = torch.cos(position * rate)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.pe[: x.size(0)])


class Model(nn.Module):
    def __init__(self, tokens: int, d_model: int, heads: int, hidden: int, layers: int):
        super().__init__()
        self.encoder = nn.Embedding(tokens, d_model)
        self.positions = PositionalEncoding(d_model, 0.0)
        layer = nn.TransformerEncoderLayer(d_model, heads, hidden, 0.0, norm_first=True)
        layer.self_attn.in_proj_bias = None  # a key's bias has no gradient but rounding
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decoder = nn.Linear(d_model, tokens)
        self.d_model = d_model

    def forward(self, src: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(len(src))
        x = self.positions(self.encoder(src) * math.sqrt(self.d_model))
        return self.decoder(self.layers(x, mask))


def build():
    tokens = 11
    model = fill(Model(tokens, 8, 2, 16, 2), 0.2)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.95)

    def step(data, targets):
        model.train()
        loss = criterion(model(data).view(-1, tokens), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    events = []
    for i in range(20):
        d = torch.tensor(integers(f"text{i}", tokens, 7, 3))
        events += [(d[:-1], d[1:].reshape(-1)), scheduler.step]
    return step, events, model
