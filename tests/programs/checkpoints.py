"""A loader with a smaller last batch, validation, a plateau schedule, saving and resuming."""

import io

import numpy as np
import torch
import torch.nn as nn
from inputs import fill, numbers
from torch.utils.data import DataLoader, TensorDataset

TRACES = 2  # whole batches, and the last one


def build():
    x = torch.from_numpy(numbers("x", 44, 5)).double()
    y = torch.from_numpy(numbers("y", 44, 1).astype(np.float64))
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=False)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    net = fill(net).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    file = io.BytesIO()

    def step(x, y):
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def validate():
        net.eval()
        with torch.no_grad():
            losses = [nn.functional.mse_loss(net(x), y, reduction="sum").item() for x, y in loader]
        scheduler.step(sum(losses) / len(loader.dataset))
        net.train()

    def save():
        state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
        torch.save(state, file)

    def resume():
        file.seek(0)
        state = torch.load(file)
        assert state["epoch"] == 3
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    events = []
    for epoch in range(7):
        events += [*loader, validate]
        events += {2: [save], 4: [resume]}.get(epoch, [])
    return step, events, net
