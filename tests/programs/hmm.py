"""A hidden Markov model's forward algorithm in log space, written into slices of one tensor."""

import torch
from inputs import fill, integers


class HMM(torch.nn.Module):
    def __init__(self, states, symbols):
        super().__init__()
        self.transitions = torch.nn.Parameter(torch.randn(states, states))
        self.emissions = torch.nn.Parameter(torch.randn(states, symbols))
        self.priors = torch.nn.Parameter(torch.randn(states))

    def forward(self, x, lengths):
        log_a = torch.nn.functional.log_softmax(self.transitions, dim=0)
        log_e = torch.nn.functional.log_softmax(self.emissions, dim=1)
        log_alpha = torch.zeros(*x.shape, len(self.priors))
        log_alpha[:, 0, :] = log_e[:, x[:, 0]].transpose(0, 1) + self.priors.log_softmax(0)
        for t in range(1, x.shape[1]):
            before = log_alpha[:, t - 1, :].unsqueeze(1)
            moved = torch.logsumexp(log_a.unsqueeze(0) + before, dim=2)
            log_alpha[:, t, :] = log_e[:, x[:, t]].transpose(0, 1) + moved
        return torch.gather(log_alpha.logsumexp(dim=2), 1, lengths.view(-1, 1) - 1)


def build():
    model = fill(HMM(4, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def step(x, lengths):
        loss = -model(x, lengths).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return (
        step,
        [
            (torch.tensor(integers(f"x{i}", 6, 5, 5)), torch.tensor(1 + integers(f"n{i}", 5, 5)))
            for i in range(20)
        ],
        model,
    )
