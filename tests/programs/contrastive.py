"""InfoNCE as SimCLR programs have it: boolean masks of constants; a learned temperature."""

import math

import torch
import torch.nn.functional as F
from inputs import fill, numbers
from torch import nn


def info_nce(features, n):
    labels = torch.cat([torch.arange(n) for _ in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
    features = F.normalize(features, dim=1)
    similarity = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity = similarity[~mask].view(similarity.shape[0], -1)
    positives = similarity[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity[~labels.bool()].view(similarity.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1)
    return logits, torch.zeros(logits.shape[0], dtype=torch.long)


def build():
    encoder = fill(
        nn.Sequential(
            nn.Linear(5, 16, bias=False),
            nn.BatchNorm1d(16),
            nn.ReLU(inplace=True),
            nn.Linear(16, 8),
        )
    )
    scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.3))
    optimizer = torch.optim.AdamW([*encoder.parameters(), scale], lr=1e-3)

    def step(a, b):
        logits, labels = info_nce(encoder(torch.cat((a, b), dim=0)), len(a))
        loss = F.cross_entropy(logits * scale.exp(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, math.log(100))
        return loss

    return (
        step,
        [
            (torch.tensor(numbers(f"a{i}", 6, 5)), torch.tensor(numbers(f"b{i}", 6, 5)))
            for i in range(20)
        ],
        [encoder, scale],
    )
