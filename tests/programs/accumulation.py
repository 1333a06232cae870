"""Gradients accumulated over four parts of a batch, then clipped; the device is asked for."""

import torch
import torch.nn as nn
from inputs import fill, integers, numbers


def build():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(5, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 3))
    model = fill(model).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
    parts = 4

    def step(x, y):
        optimizer.zero_grad()
        total = 0.0
        for xb, yb in zip(x.to(device).split(4), y.chunk(parts), strict=True):
            loss = criterion(model(xb), yb) / parts
            loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return total, norm

    return (
        step,
        [
            (torch.tensor(numbers(f"x{i}", 16, 5)), torch.tensor(integers(f"y{i}", 3, 16)))
            for i in range(20)
        ],
        model,
    )
