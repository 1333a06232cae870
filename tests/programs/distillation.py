"""Knowledge distillation and label smoothing with mixup; a float argument that changes."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from inputs import fill, integers, numbers


class Smoothed(nn.Module):
    def __init__(self, classes, smoothing):
        super().__init__()
        self.classes, self.smoothing = classes, smoothing

    def forward(self, prediction, target):
        with torch.no_grad():
            wanted = torch.zeros_like(prediction)
            wanted.fill_(self.smoothing / (self.classes - 1))
            wanted.scatter_(1, target.data.unsqueeze(1), 1.0 - self.smoothing)
        return torch.mean(torch.sum(-wanted * prediction.log_softmax(dim=-1), dim=-1))


def build():
    teacher = fill(nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 4)), 0.7).eval()
    student = fill(nn.Sequential(nn.Linear(6, 8), nn.Mish(), nn.Dropout(0.0), nn.Linear(8, 4)))
    smoothed, hard = Smoothed(4, 0.1), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 1, 0.5]))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, dampening=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)

    def step(x, y, index, lam, T=4.0):
        x = lam * x + (1 - lam) * x[index, :]
        with torch.no_grad():
            soft = F.softmax(teacher(x) / T, dim=1)
        out = student(x)
        loss = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(out / T, dim=1), soft) * T * T
        loss = loss + lam * smoothed(out, y) + (1 - lam) * hard(out, y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), (out.argmax(-1) == soft.argmax(-1)).float().mean()

    events = []
    for i in range(20):
        x, y = torch.tensor(numbers(f"x{i}", 9, 6)), torch.tensor(integers(f"y{i}", 4, 9))
        events += [(x, y, torch.arange(8, -1, -1), 0.5 + i / 40), scheduler.step]
    return step, events, student
