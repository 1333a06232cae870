"""Random training: losses, weights, gradients, state, attributes and draws are eager mode's.

A random model, loss, optimizer, schedule, clipping and hooks; between the calls layers are frozen,
state is saved and loaded, batches change. No optimizer here divides by what may be rounding alone,
such as the gradient of a bias before a batch norm. Eager mode against the whole step compiled, and
against the model compiled alone.
"""

from __future__ import annotations

import contextlib
import io
import random
import textwrap
from typing import Any

import numpy as np
import pytest
from fuzzing import many
from random_sources import filled, load, outcome, shown, table

import lucid

COUNT = many(8)
CALLS = 8
MODES = ("whole", "alone")

LAYERS = table("""
nn.Linear(6, 6)
nn.Linear(6, 6, bias=False)
nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6))
nn.LayerNorm(6)
nn.BatchNorm1d(6)
nn.BatchNorm1d(6, momentum=None)
nn.GroupNorm(2, 6)
nn.RMSNorm(6)
nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 2, 3, padding=1), nn.Flatten())
Planes(nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1), nn.MaxPool2d(3, 1, 1)))
Shaped(nn.MultiheadAttention(2, 2, batch_first=True, dropout=0.2), 3)
Shaped(nn.GRU(2, 2, batch_first=True), 1)
Shaped(nn.LSTM(2, 1, batch_first=True, bidirectional=True), 1)
Shaped(nn.RNN(2, 2, num_layers=2, dropout=0.3, batch_first=True), 1)
Embedded(nn.Embedding(5, 6))
Embedded(nn.Embedding(5, 6, max_norm=1.0))
Embedded(nn.Embedding(5, 6, padding_idx=0, scale_grad_by_freq=True))
Running()
Rebinding()
Swish()
OnHost()
Tied()
InPlace()
nn.Dropout(0.3)
nn.GELU()
nn.PReLU()
nn.RReLU()
nn.ELU(inplace=True)
nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))
nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
Residual($l)
Residual($l, $l)
nn.Sequential($l, $l)
""")
PARAMETERS = table("""
s.model.parameters()
s.model.parameters()
s.model.named_parameters()
[{"params": [p], "weight_decay": 0.1 * (p.ndim > 1)} for p in s.model.parameters()]
""")
OPTIMIZERS = table("""
SGD($p, lr=0.05$w)
SGD($p, lr=0.05, momentum=0.9$w$f)
SGD($p, lr=0.05, momentum=0.9, nesterov=True$f)
Adam($p, lr=0.05, eps=0.01$w$f)
Adam($p, lr=lucid.tensor(0.05), eps=0.01, amsgrad=True)
AdamW($p, lr=0.05, eps=0.01$w$f)
RMSprop($p, lr=0.02, eps=0.01, centered=True$w$f)
Adagrad($p, lr=0.05, eps=0.01, lr_decay=0.1$w$f)
NAdam($p, lr=0.05, eps=0.01$w$f)
Adadelta($p, lr=0.05, eps=0.01$w$f)
ASGD($p, lr=0.02$w$f)
""")
SCHEDULES = table("""
StepLR(s.opt, 2, 0.5)
LambdaLR(s.opt, lambda epoch: 0.9**epoch)
CosineAnnealingLR(s.opt, 5)
CyclicLR(s.opt, 0.01, 0.1, step_size_up=2, cycle_momentum=False)
SequentialLR(s.opt, [ConstantLR(s.opt, 0.1, 2), ExponentialLR(s.opt, 0.9)], [2])
""")
SETUP = table("""
pass
pass
s.model[0].register_forward_hook(lambda m, a, o: o * 1.1)
s.model[-1].register_forward_pre_hook(lambda m, a: (a[0] * 0.9,))
s.model[0].register_full_backward_hook(lambda m, gi, go: s.log.append(go[0].sum().item()))
for p in s.model.parameters(): p.register_hook(lambda g: g.clamp(-0.5, 0.5))
for p in s.model.parameters(): p.register_post_accumulate_grad_hook(halve)
s.opt.register_step_post_hook(lambda o, a, k: s.log.append(o.param_groups[0]['lr']))
for m in s.model: m.register_forward_hook(lambda m, a, o: s.log.append(o.mean().item()))
for p in s.model[0].parameters(): p.requires_grad_(False)
""")
BEFORE = table("""
s.opt.zero_grad()
s.opt.zero_grad()
s.opt.zero_grad(set_to_none=False)
if s.i % 2 == 0: s.opt.zero_grad()
for p in s.model.parameters(): p.grad = None
x = x + 0.1 * lucid.randn_like(x)
x = x.clone().requires_grad_()
""")
FORWARDS = table("""
out = s.model(x)
out = s.model(x) + s.model(x)
out = s.model(x)\\nout.register_hook(lambda g: g * 2)
out = s.model(x)\\ns.previous = out.detach()
out = s.model(x).clone()\\nout[0] = 0
with lucid.no_grad(): teacher = s.model(x)\\nout = s.model(x) - 0.1 * teacher
out = checkpoint(lambda t: t.tanh() * 2, s.model(x), use_reentrant=False)
""")
LOSSES = table("""
F.mse_loss(out, y)
F.cross_entropy(out, y.argmax(-1))
F.cross_entropy(out, y.softmax(-1), label_smoothing=0.1)
F.smooth_l1_loss(out, y)
(out - y).abs().mean() * s.scale
F.kl_div(F.log_softmax(out, -1), y.softmax(-1), reduction='batchmean')
F.mse_loss(out, y) + 0.01 * sum((p * p).sum() for p in s.model.parameters())
""")
BACKWARDS = table("""
loss.backward()
loss.backward()
loss.backward(retain_graph=True)\\nloss.backward()
if lucid.isfinite(loss): loss.backward()
(loss * 8).backward()\\n[p.grad.div_(8) for p in s.model.parameters() if p.requires_grad]
loss.backward()\\nnn.utils.clip_grad_norm_(s.model.parameters(), 1.0)
loss.backward()\\ns.norm = nn.utils.clip_grad_norm_(s.model.parameters(), 1.0).item()
loss.backward()\\nnn.utils.clip_grad_value_(s.model.parameters(), 0.1)
""")
UPDATES = table("""
s.opt.step()
s.opt.step()
if s.i % 2 == 1: s.opt.step()
with lucid.no_grad():\\n    for p in s.model.parameters(): p.sub_(0 if p.grad is None else p.grad)
""")
AFTER = table("""
s.opt.zero_grad()
s.schedule.step()
s.log.append(loss.item())
s.best = min(s.best, float(loss))
if loss < s.best: s.best, s.saved = float(loss), copy.deepcopy(s.model.state_dict())
s.opt.param_groups[0]['lr'] *= 0.9
with lucid.no_grad():\\n    for a, b in zip(s.ema.buffers(), s.model.buffers()): a.copy_(b)
s.gradients = [p.grad for p in s.model.parameters()]
s.model.train(not s.model.training)
print('loss', float(loss))
""")
RESULTS = table("""
loss
loss, out.detach()
{'loss': loss, 'out': out}
float(loss)
""")
BETWEEN = table("""
for p in s.model[0].parameters(): p.requires_grad_(False)
for p in s.model.parameters(): p.requires_grad_(True)
s.model.train(not s.model.training)
s.saved = copy.deepcopy(s.model.state_dict())
s.model.load_state_dict(s.saved or s.model.state_dict())
s.opt.load_state_dict(copy.deepcopy(s.opt.state_dict()))
s.size = 3
s.size = 6
s.opt.param_groups[0]['lr'] = 0.01
s.opt.zero_grad()
with lucid.no_grad(): [p.mul_(0.9) for p in s.model.parameters()]
s.model, s.opt = copy.deepcopy((s.model, s.opt))
s.opt.add_param_group({'params': [nn.Parameter(lucid.ones(1))]}) if s.i == 0 else None
s.model[-1] = nn.Linear(6, 6)
s.scale = 0.7
s.log.clear()
""")
HEAD = """
import copy
from types import SimpleNamespace
import numpy as np
import lucid, lucid.nn.functional as F
from lucid import nn, optim
from lucid.optim.lr_scheduler import *
from lucid.utils.checkpoint import checkpoint

class Gate(lucid.autograd.Function):
    @staticmethod
    def forward(ctx, x, b):
        s = lucid.sigmoid(x * b)
        ctx.save_for_backward(x, s, b)
        return x * s
    @staticmethod
    def backward(ctx, g):
        x, s, b = ctx.saved_tensors
        d = s * (1 - s)
        return g * (s + x * b * d), (g * x * x * d).sum()
class Tanh(lucid.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = np.tanh(x.numpy())
        return lucid.tensor(ctx.y)
    @staticmethod
    def backward(ctx, g): return g * lucid.tensor(1 - ctx.y**2)
class Swish(nn.Module):
    def __init__(self): super().__init__(); self.b = nn.Parameter(lucid.ones(()))
    def forward(self, x): return Gate.apply(x, self.b)
class OnHost(nn.Module):
    def forward(self, x): return Tanh.apply(x)
class Shaped(nn.Module):
    def __init__(self, inner, times): super().__init__(); self.inner, self.times = inner, times
    def forward(self, x):
        y, more = self.inner(*[x.reshape(-1, 3, 2)] * self.times)
        return y.reshape(x.shape)
class Planes(nn.Module):
    def __init__(self, inner): super().__init__(); self.inner = inner
    def forward(self, x): return self.inner(x.reshape(-1, 1, 2, 3)).reshape(x.shape)
class Embedded(nn.Module):
    def __init__(self, inner): super().__init__(); self.inner = inner
    def forward(self, x): return x + self.inner((x[:, 0].abs() * 2).long().clamp(0, 4))
class Running(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer("mean", lucid.zeros(6)); self.calls = 0
    def forward(self, x):
        self.calls += 1
        if self.training:
            with lucid.no_grad(): self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean
class Rebinding(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer("mean", lucid.zeros(6)); self.k = 0.5
    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.last, self.k = x.detach(), self.k * 0.99
        return x * self.k + self.mean
class Residual(nn.Module):
    def __init__(self, *inner):
        super().__init__(); self.inner = nn.ModuleList(inner)
        self.scales = nn.ParameterList([nn.Parameter(lucid.full((6,), 0.5)) for _ in inner])
    def forward(self, x):
        for scale, layer in zip(self.scales, self.inner): x = x + scale * layer(x)
        return x
class Tied(nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.b.weight = self.a.weight
    def forward(self, x): return self.b(lucid.tanh(self.a(x)))
class InPlace(nn.Module):
    def forward(self, x):
        y = x * 1.5
        y[:, 1:3] *= 2
        y.view(-1, 2, 3)[:, 0].add_(y.detach()[:, :3])
        return F.relu_(y)
def halve(p): p.grad.mul_(0.5)
def make(alone):
    s = SimpleNamespace(i=0, size=4, log=[], best=1e9, scale=1.0, saved=None)
"""


def program(seed: int) -> str:
    """The source of one program."""
    rng = random.Random(seed)

    def layer(depth: int = 0) -> str:
        forms = LAYERS if depth < 2 else LAYERS[:-3]
        return filled(rng, rng.choice(forms), {"l": lambda: layer(depth + 1)})

    def drawn(forms: list[str], least: int = 1, most: int = 1) -> list[str]:
        return rng.choices(forms, k=rng.randint(least, most))

    kinds = {"p": PARAMETERS, "w": ["", ", weight_decay=0.1"]}
    kinds["f"] = ["", ", foreach=True", ", foreach=False", ", maximize=True"]
    layers = ", ".join([*(layer() for _ in range(rng.randint(0, 3))), "nn.Linear(6, 6)"])
    setup = [f"s.model = alone(nn.Sequential({layers}))", "s.ema = copy.deepcopy(s.model)"]
    setup += [f"s.opt = optim.{filled(rng, rng.choice(OPTIMIZERS), kinds)}"]
    setup += [f"s.schedule = {rng.choice(SCHEDULES)}", *drawn(SETUP, 1, 2)]
    step = [*drawn(BEFORE, 1, 2), *drawn(FORWARDS), f"loss = {rng.choice(LOSSES)}"]
    step += [*drawn(BACKWARDS), *drawn(UPDATES), *drawn(AFTER, 0, 3), "s.i += 1"]
    step += [f"return {rng.choice(RESULTS)}"]
    between = [
        f"if i == {i}:\n{textwrap.indent(*drawn(BETWEEN), ' ' * 4)}" for i in range(1, CALLS)
    ]
    between = [*rng.sample(between, rng.randint(0, 5)), "pass"]
    parts = [
        *("\n".join(setup), "def step(x, y):", textwrap.indent("\n".join(step), " " * 4)),
        *("def between(i):", textwrap.indent("\n".join(between), " " * 4)),
        "return s, step, between",
    ]
    return HEAD + textwrap.indent("\n".join(parts), " " * 4) + "\n"


def records(source: str, file: str, mode: str) -> list[Any]:
    """What can be seen after each of some calls: of the eager, whole or alone compiled program."""
    lucid.manual_seed(0)
    found: list[Any] = []
    make = load(source, file)["make"]
    state, step, between = make(lucid.compile if mode == "alone" else lambda model: model)
    step, rng = lucid.compile(step) if mode == "whole" else step, np.random.default_rng(1)
    for i in range(CALLS):
        said = io.StringIO()
        try:
            between(i)
            x, y = (lucid.tensor(rng.normal(size=(state.size, 6))) for _ in range(2))
            with contextlib.redirect_stdout(said):
                got = step(x, y)
        except Exception as error:  # of the program's own
            return [*found, type(error).__name__]
        found.append([shown([got, state]), said.getvalue(), lucid.get_rng_state().tolist()])
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, COUNT, 4))
def test_random_training_agrees_with_eager_mode(first: int) -> None:
    before, lasted = lucid.get_default_dtype(), 0
    lucid.set_default_dtype(lucid.float64)
    try:
        for seed in range(first, min(first + 4, COUNT)):
            source, file = program(seed), f"<training {seed}>"
            expected = records(source, file, "eager")
            lasted += isinstance(expected[-1], list)
            for mode in MODES:
                at = outcome(records(source, file, mode), expected)
                assert at is None, f"seed {seed}, {mode}: {at}\n{source[len(HEAD) :]}"
    finally:
        lucid.set_default_dtype(before)
    assert lasted >= (min(first + 4, COUNT) - first) // 2
