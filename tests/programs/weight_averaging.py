"""AveragedModel and SWALR; the averaged model's statistics are computed at the end."""

import torch
from inputs import fill, numbers
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_avg_fn, update_bn


def build():
    model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh())
    model = fill(model.append(nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mean = AveragedModel(model)
    smooth = AveragedModel(model, avg_fn=get_ema_avg_fn(0.9), use_buffers=True)
    anneal = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=30)
    swa = SWALR(optimizer, swa_lr=0.05, anneal_epochs=4)
    batches = [
        (torch.tensor(numbers(f"x{i}", 9, 5)), torch.tensor(numbers(f"y{i}", 9, 1)))
        for i in range(20)
    ]

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        smooth.update_parameters(model)
        return loss

    events = []
    for i, batch in enumerate(batches):
        events += [batch, anneal.step if i < 10 else swa.step]
        if i >= 10:
            events.append(lambda: mean.update_parameters(model))
    events.append(lambda: update_bn(batches, mean))
    return step, events, [model, mean, smooth]
