"""A GRU of bare tensors, as a textbook has it: windows of one stream, state carried along."""

import torch
import torch.nn.functional as F
from inputs import integers, numbers
from torch import nn

VOCABULARY, HIDDEN = 8, 6
TRACES = 2  # the state has no history in the first call


def get_params():
    params = []
    for gate in "zrh":
        params.append(torch.tensor(numbers("x" + gate, VOCABULARY, HIDDEN) * 0.1))
        params.append(torch.tensor(numbers("h" + gate, HIDDEN, HIDDEN) * 0.1))
        params.append(torch.zeros(HIDDEN))
    params += [torch.tensor(numbers("q", HIDDEN, VOCABULARY) * 0.1), torch.zeros(VOCABULARY)]
    for param in params:
        param.requires_grad_(True)
        param.grad = torch.zeros_like(param)
    return params


def gru(inputs, state, params):
    W_xz, W_hz, b_z, W_xr, W_hr, b_r, W_xh, W_hh, b_h, W_hq, b_q = params
    (H,) = state
    outputs = []
    for X in inputs:
        Z = torch.sigmoid((X @ W_xz) + (H @ W_hz) + b_z)
        R = torch.sigmoid((X @ W_xr) + (H @ W_hr) + b_r)
        H_tilda = torch.tanh((X @ W_xh) + ((R * H) @ W_hh) + b_h)
        H = Z * H + (1 - Z) * H_tilda
        outputs.append(H @ W_hq + b_q)
    return torch.cat(outputs, dim=0), (H,)


def grad_clipping(params, theta):
    norm = torch.sqrt(sum(torch.sum(p.grad**2) for p in params))
    scale = torch.clamp(theta / norm, max=1.0)
    for param in params:
        param.grad[:] *= scale


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


class Stream:
    """Sequences that go on from batch to batch: one step sees where the last one ended."""

    def __init__(self, corpus, batch_size, num_steps):
        count = ((len(corpus) - 1) // batch_size) * batch_size
        self.xs = corpus[:count].reshape(batch_size, -1)
        self.ys = corpus[1 : count + 1].reshape(batch_size, -1)
        self.num_steps = num_steps

    def __iter__(self):
        for i in range(0, self.xs.shape[1] - self.num_steps + 1, self.num_steps):
            yield self.xs[:, i : i + self.num_steps], self.ys[:, i : i + self.num_steps]


def build():
    params = get_params()
    criterion = nn.CrossEntropyLoss()
    carried = {"state": (torch.zeros(2, HIDDEN),)}

    def step(X, Y):
        state = tuple(s.detach() for s in carried["state"])
        y_hat, state = gru(F.one_hot(X.T, VOCABULARY).type(torch.float32), state, params)
        loss = criterion(y_hat, Y.T.reshape(-1).long()).mean()
        loss.backward()
        grad_clipping(params, 1)
        sgd(params, lr=1, batch_size=1)
        carried["state"] = state
        return loss

    batches = list(Stream(torch.from_numpy(integers("corpus", VOCABULARY, 60)), 2, 5))
    return step, batches, params
