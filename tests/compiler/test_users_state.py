"""State that users keep themselves: optimizers by hand, averages, statistics, schedules.

Each program trains for 20 calls as it would be written for PyTorch. It needs one trace, and a
second one where its state comes into being at the first call.
"""

from __future__ import annotations

import copy
import functools
import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pytest

import lucid as torch
import lucid.nn.functional as F
from lucid import nn


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batches(count=20):
    random = np.random.default_rng(0)
    shapes = (5, 3), (5, 2)
    return [
        tuple(torch.tensor(random.normal(size=shape).astype(np.float32)) for shape in shapes)
        for _ in range(count)
    ]


def train(compile, model, opt, after=lambda loss: None):
    """The losses of 20 steps; `after` is part of each."""

    @compile
    def step(x, y):
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        after(loss.detach())
        return loss

    return [step(x, y) for x, y in batches()]


# ---------------------------------------------------------------------- optimizers, plain classes


class ByHand:
    def __init__(self, params, lr=0.01):
        self.params, self.lr, self.t = list(params), lr, 0
        self.m, self.v = {}, {}
        self.bufs = [None] * len(self.params)
        self.moments = None
        self.state = defaultdict(dict)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @property
    def kept(self):
        """All that it remembers, without the tensors that are keys."""
        tables = [list(d.values()) for d in (self.m, self.v, self.state)]
        return [self.t, self.bufs, self.moments, *tables]


class AdamById(ByHand):
    @torch.no_grad()
    def step(self):
        self.t += 1
        for p in self.params:
            if id(p) not in self.m:
                self.m[id(p)] = torch.zeros_like(p)
                self.v[id(p)] = torch.zeros_like(p)
            m, v = self.m[id(p)], self.v[id(p)]
            m.mul_(0.9).add_(p.grad, alpha=0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            corrected = m / (1 - 0.9**self.t), v / (1 - 0.999**self.t)
            p.sub_(self.lr * corrected[0] / (corrected[1].sqrt() + 1e-8))


class AdamByParameter(ByHand):
    @torch.no_grad()
    def step(self):
        self.t += 1
        for p in self.params:
            if p not in self.m:
                self.m[p], self.v[p] = torch.zeros_like(p), torch.zeros_like(p)
            self.m[p] = 0.9 * self.m[p] + 0.1 * p.grad
            self.v[p] = 0.999 * self.v[p] + 0.001 * p.grad**2
            m, v = self.m[p] / (1 - 0.9**self.t), self.v[p] / (1 - 0.999**self.t)
            p.data -= self.lr * m / (v.sqrt() + 1e-8)


class AdamWithLists(ByHand):
    def __init__(self, params):
        super().__init__(params)
        self.moments = [[torch.zeros_like(p) for p in self.params] for _ in range(2)]

    def step(self):
        self.t += 1
        m, v = self.moments
        with torch.no_grad():
            for i, p in enumerate(self.params):
                m[i] = 0.9 * m[i] + 0.1 * p.grad
                v[i] = 0.999 * v[i] + 0.001 * p.grad * p.grad
                mean, square = m[i] / (1 - 0.9**self.t), v[i] / (1 - 0.999**self.t)
                p -= self.lr * mean / (square**0.5 + 1e-8)


class MomentumMadeAtOnce(ByHand):
    @torch.no_grad()
    def step(self):
        if self.moments is None:
            self.moments = [torch.clone(p.grad) for p in self.params]
        else:
            for buf, p in zip(self.moments, self.params, strict=True):
                buf.mul_(0.9).add_(p.grad)
        for buf, p in zip(self.moments, self.params, strict=True):
            p.add_(buf, alpha=-self.lr)


class MomentumWithGaps(ByHand):
    @torch.no_grad()
    def step(self):
        for i, p in enumerate(self.params):
            buf = self.bufs[i]
            self.bufs[i] = p.grad.clone() if buf is None else buf.mul_(0.9).add_(p.grad)
            p.add_(self.bufs[i], alpha=-self.lr)


class RMSpropBySetdefault(ByHand):
    @torch.no_grad()
    def step(self):
        for p in self.params:
            square = self.v.setdefault(p, torch.zeros_like(p))
            square.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
            p.addcdiv_(p.grad, square.sqrt().add_(1e-8), value=-self.lr)


class AdagradWithDefaultDict(ByHand):
    @torch.no_grad()
    def step(self):
        for p in self.params:
            state = self.state[p]
            if len(state) == 0:
                state["step"], state["sum"] = 0, torch.zeros_like(p)
            state["step"] += 1
            state["sum"].addcmul_(p.grad, p.grad)
            rate = self.lr / (1 + (state["step"] - 1) * 0.01)
            p.addcdiv_(p.grad, state["sum"].sqrt().add_(1e-10), value=-rate)


class WithSlots:
    __slots__ = ("largest", "params", "t")

    def __init__(self, params):
        self.params, self.t = list(params), 0
        self.largest = [torch.zeros_like(p) for p in self.params]

    zero_grad = ByHand.zero_grad

    @property
    def kept(self):
        return [self.t, self.largest]

    def step(self):
        self.t += 1
        with torch.no_grad():
            for i, p in enumerate(self.params):
                self.largest[i] = torch.maximum(self.largest[i], p.grad**2)
                p.add_(p.grad / (self.largest[i].sqrt() + 1e-8), alpha=-0.01 / math.sqrt(self.t))


# ---------------------------------------------------------------------- subclasses of Optimizer


class Own(torch.optim.Optimizer):
    def __init__(self, params, **defaults):
        super().__init__(params, {"lr": 0.01, "betas": (0.9, 0.999), "decay": 0.01, **defaults})

    @property
    def kept(self):
        return [list(self.state.values()), [group.get("step") for group in self.param_groups]]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(group, p)


class OwnAdamW(Own):
    def update(self, group, p):
        state = self.state[p]
        if len(state) == 0:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(p)
            state["exp_avg_sq"] = torch.zeros_like(p)
        state["step"] += 1
        m, v, (b1, b2) = state["exp_avg"], state["exp_avg_sq"], group["betas"]
        p.mul_(1 - group["lr"] * group["decay"])
        m.mul_(b1).add_(p.grad, alpha=1 - b1)
        v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
        denominator = (v.sqrt() / math.sqrt(1 - b2 ** state["step"])).add_(1e-8)
        p.addcdiv_(m, denominator, value=-group["lr"] / (1 - b1 ** state["step"]))


class OwnLion(Own):
    def update(self, group, p):
        state = self.state[p]
        if "exp_avg" not in state:
            state["exp_avg"] = torch.zeros_like(p)
        p.add_(torch.sign(state["exp_avg"] * 0.9 + p.grad * 0.1), alpha=-group["lr"])
        state["exp_avg"].mul_(0.99).add_(p.grad, alpha=0.01)


class OwnStateAsADict(Own):
    def update(self, group, p):
        if p not in self.state:
            self.state[p] = {"m": torch.zeros_like(p), "n": 0}
        state = self.state[p]
        state["n"] += 1
        state["m"] = 0.9 * state["m"] + p.grad
        p.add_(state["m"] / state["n"], alpha=-group["lr"])


class OwnStateAsADictFilledLater(Own):
    def update(self, group, p):
        if p in self.state:
            state = self.state[p]
        else:
            state = self.state[p] = {}
            state["n"] = 0
            state["m"] = torch.zeros_like(p)
        state["n"] += 1
        p.add_(state["m"].mul_(0.9).add_(p.grad), alpha=-group["lr"] / state["n"])


class OwnStateMadeInAdvance(Own):
    def __init__(self, params):
        super().__init__(params)
        self.state = {}
        for p in self.param_groups[0]["params"]:
            state = self.state[p] = {}
            state["slow"] = p.detach().clone()

    def update(self, group, p):
        p.sub_(group["lr"] * p.grad)
        p.copy_(self.state[p]["slow"].add_(p - self.state[p]["slow"], alpha=0.5))


class OwnStateReplaced(Own):
    def update(self, group, p):
        before = self.state[p].get("m", torch.zeros_like(p))
        self.state[p] = {"m": before * 0.9 + p.grad}
        p.add_(self.state[p]["m"], alpha=-group["lr"])


class OwnStateBySetdefault(Own):
    def update(self, group, p):
        average = self.state[p].setdefault("m", torch.zeros_like(p))
        p.add_(average.mul_(0.9).add_(p.grad), alpha=-group["lr"])


class OwnEntryBySetdefault(Own):
    def update(self, group, p):
        average = self.state.setdefault(p, {}).setdefault("m", torch.zeros_like(p))
        p.add_(average.mul_(0.9).add_(p.grad), alpha=-group["lr"])


class OwnStepAsATensor(Own):
    def update(self, group, p):
        state = self.state[p]
        if len(state) == 0:
            state["step"], state["buf"] = torch.tensor(0.0), torch.zeros_like(p.data)
        state["step"] += 1
        state["buf"].mul_(0.9).add_(p.grad.data)
        p.data.add_(state["buf"] / state["step"], alpha=-group["lr"])


class OwnMomentumByGet(Own):
    def update(self, group, p):
        buf = self.state[p].get("momentum_buffer")
        if buf is None:
            buf = self.state[p]["momentum_buffer"] = torch.clone(p.grad).detach()
        else:
            buf.mul_(0.9).add_(p.grad)
        p.add_(buf, alpha=-group["lr"])


class OwnCountInTheGroup(Own):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group["step"] + 1 if "step" in group else 1
            settings = dict(group)
            for p in group["params"]:
                p.add_(p.grad, alpha=-settings["lr"] / settings["step"])


class OwnFactored(Own):
    def update(self, group, p):
        state, grad = self.state[p], p.grad
        if not state:
            state["step"] = 0
            for axis, size in enumerate(p.shape):
                state[f"pre_{axis}"] = torch.eye(size) * 1e-3
        state["step"] += 1
        for axis, size in enumerate(p.shape):
            rows = grad.movedim(axis, 0).reshape(size, -1)
            state[f"pre_{axis}"].add_(rows @ rows.t())
            grad = grad / (1 + state[f"pre_{axis}"].diagonal().mean())
        p.add_(grad, alpha=-group["lr"] * (1 - state["step"] ** -0.8))


class OwnWholeGradient(Own):
    @torch.no_grad()
    def step(self, closure=None):
        state, params = self.state["all"], self.param_groups[0]["params"]
        grad = torch.cat([p.grad.reshape(-1) for p in params])
        direction = -(grad + 0.1 * state["before"]) if "before" in state else -grad
        state["before"] = grad
        state["n"] = state.get("n", 0) + 1
        start = 0
        for p in params:
            p.add_(direction[start : start + p.numel()].view_as(p), alpha=0.05 / state["n"])
            start += p.numel()


OPTIMIZERS = [
    AdamById,
    AdamByParameter,
    AdamWithLists,
    MomentumMadeAtOnce,
    MomentumWithGaps,
    RMSpropBySetdefault,
    AdagradWithDefaultDict,
    WithSlots,
    OwnAdamW,
    OwnLion,
    OwnStateAsADict,
    OwnStateAsADictFilledLater,
    OwnStateMadeInAdvance,
    OwnStateReplaced,
    OwnStateBySetdefault,
    OwnEntryBySetdefault,
    OwnStepAsATensor,
    OwnMomentumByGet,
    OwnCountInTheGroup,
    OwnFactored,
    OwnWholeGradient,
]


def assert_healthy(steps, traces):
    """Not more traces than said, and no call that runs op by op."""
    for step in steps:
        assert step.stats.traces <= traces, step.stats.retrace_reasons
        assert not step.stats.eager_reasons


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_written_by_hand_is_traced_twice_at_most(agree, kind):
    def scenario(compile):
        model = net()
        opt = kind(model.parameters())
        return [train(compile, model, opt), model, opt.kept]

    assert_healthy(agree(scenario), 2)


@pytest.mark.parametrize("kind", [OwnAdamW, OwnStateAsADict, OwnCountInTheGroup])
def test_a_rate_that_is_set_outside_needs_no_trace_of_its_own(agree, kind):
    def scenario(compile):
        model = net()
        opt = kind(model.parameters())

        @compile
        def step(x, y):
            opt.zero_grad()
            F.mse_loss(model(x), y).backward()
            opt.step()

        for i, (x, y) in enumerate(batches()):
            for group in opt.param_groups:
                group["lr"] = 0.01 * (1 + i)
            step(x, y)
        return [model, opt.kept]

    assert_healthy(agree(scenario), 2)


# ---------------------------------------------------------------------- around an optimizer


def test_lookahead(agree):
    def scenario(compile):
        model = net()
        inner = torch.optim.Adam(model.parameters(), 0.01)
        slow = [p.detach().clone() for p in model.parameters()]
        count = 0

        def after(loss):
            nonlocal count
            count += 1
            if count % 5 == 0:
                with torch.no_grad():
                    for s, f in zip(slow, model.parameters(), strict=True):
                        s.add_(f - s, alpha=0.5)
                        f.copy_(s)

        return [train(compile, model, inner, after), model, slow, count]

    assert_healthy(agree(scenario), 2)


def test_sharpness_aware_minimization(agree):
    def scenario(compile):
        model = net()
        base = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        moved = {}

        @compile
        def step(x, y):
            loss = F.mse_loss(model(x), y)
            loss.backward()
            with torch.no_grad():
                norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
                for p in model.parameters():
                    moved[p] = p.grad * (0.05 / (norm + 1e-12))
                    p.add_(moved[p])
            base.zero_grad()
            F.mse_loss(model(x), y).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(moved[p])
            base.step()
            base.zero_grad()
            return loss

        return [[step(x, y) for x, y in batches()], model, list(moved.values())]

    assert_healthy(agree(scenario), 2)


def test_averages_of_weights(agree):
    class Shadow:
        def __init__(self, model):
            self.model, self.updates = model, 0
            self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
            self.copied = copy.deepcopy(model).requires_grad_(False)
            self.means = [p.detach().clone() for p in model.parameters()]

        @torch.no_grad()
        def update(self, loss):
            self.updates += 1
            decay = min(0.99, (1 + self.updates) / (10 + self.updates))
            for name, p in self.model.named_parameters():
                self.shadow[name] = decay * self.shadow[name] + (1 - decay) * p
            pairs = zip(self.copied.parameters(), self.model.parameters(), strict=True)
            for i, (mean, p) in enumerate(pairs):
                mean.data = 0.9 * mean.data + 0.1 * p.data
                self.means[i] = self.means[i] + (p - self.means[i]) / self.updates

    def scenario(compile):
        model = net()
        average = Shadow(model)
        losses = train(compile, model, torch.optim.SGD(model.parameters(), 0.05), average.update)
        return [losses, model, average.shadow, average.copied, average.means, average.updates]

    assert_healthy(agree(scenario), 2)


def test_an_averaged_module_that_writes_its_state_dict(agree):
    class Averaged(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.module, self.updates = copy.deepcopy(model).eval(), 0

        @torch.no_grad()
        def update(self, model):
            self.updates += 1
            decay = 0.9 * (1 - math.exp(-self.updates / 20))
            now = model.state_dict()
            for name, value in self.module.state_dict().items():
                value *= decay
                value += (1 - decay) * now[name].detach()

    def scenario(compile):
        model = net()
        average = Averaged(model)
        opt = torch.optim.SGD(model.parameters(), 0.05)
        losses = train(compile, model, opt, lambda loss: average.update(model))
        return [losses, model, average, average.updates]

    assert_healthy(agree(scenario), 2)


class RunningNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.count = 0

    def forward(self, x):
        if not self.training:
            return (x - self.mean) / torch.sqrt(self.var + 1e-5)
        mean, var = x.mean(0), x.var(0)
        self.mean = 0.9 * self.mean + 0.1 * mean.detach()
        self.var = 0.9 * self.var + 0.1 * var.detach()
        self.count += 1
        return (x - mean) / torch.sqrt(var + 1e-5)


def test_running_statistics_in_a_step_and_in_an_evaluation(agree):
    def scenario(compile):
        norm = RunningNorm(3)
        model = nn.Sequential(norm, nn.Linear(3, 2))
        opt = torch.optim.SGD(model.parameters(), 0.05)

        @compile
        def step(x, y):
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            return loss

        @compile
        def evaluate(x):
            with torch.no_grad():
                return model(x)

        results = []
        for x, y in batches():
            model.train()
            results.append(step(x, y))
            model.eval()
            results.append(evaluate(x))
        return [results, model, norm.count]

    assert_healthy(agree(scenario), 2)


def test_statistics_of_single_rows(agree):
    class Welford:
        def __init__(self):
            self.n, self.mean, self.squares = 0, torch.zeros(3), torch.zeros(3)

        def update(self, x):
            for row in x:
                self.n += 1
                delta = row - self.mean
                self.mean = self.mean + delta / self.n
                self.squares = self.squares + delta * (row - self.mean)

    def scenario(compile):
        stats = Welford()

        @compile
        def step(x):
            stats.update(x)
            return (x - stats.mean) / torch.sqrt(stats.squares / max(stats.n - 1, 1) + 1e-5)

        return [[step(x) for x, _ in batches()], vars(stats)]

    assert_healthy(agree(scenario), 2)


def test_a_schedule_written_by_hand_inside_of_the_step(agree):
    class Warmup:
        def __init__(self, opt):
            self.opt, self.t = opt, 0

        def step(self, loss):
            self.t += 1
            if self.t < 4:
                lr = 0.05 * self.t / 4
            else:
                lr = 0.025 * (1 + math.cos(math.pi * (self.t - 4) / 16))
            for group in self.opt.param_groups:
                group["lr"] = lr

    def scenario(compile):
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        schedule = Warmup(opt)
        losses = train(compile, model, opt, schedule.step)
        return [losses, model, schedule.t, opt.param_groups[0]["lr"]]

    assert_healthy(agree(scenario), 2)


def test_a_recurrent_net_that_keeps_its_state(agree):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out, self.h = nn.RNNCell(3, 4), nn.Linear(4, 2), None

        def forward(self, x):
            if self.h is None:
                self.h = torch.zeros(5, 4)
            h = self.cell(x, self.h)
            self.h = h.detach()
            return self.out(h)

    def scenario(compile):
        model = Recurrent()
        opt = torch.optim.SGD(model.parameters(), 0.05)
        return [train(compile, model, opt), model, model.h]

    assert_healthy(agree(scenario), 2)


def test_a_codebook_that_follows_its_clusters(agree):
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("embedding", torch.randn(4, 3))
            self.register_buffer("sizes", torch.zeros(4))
            self.register_buffer("sums", self.embedding.clone())

        def forward(self, x):
            distances = ((x[:, None] - self.embedding[None]) ** 2).sum(-1)
            nearest = distances.argmin(1)
            chosen = F.one_hot(nearest, 4).float()
            with torch.no_grad():
                self.sizes = 0.9 * self.sizes + 0.1 * chosen.sum(0)
                self.sums = 0.9 * self.sums + 0.1 * chosen.t() @ x
                self.embedding.data.copy_(self.sums / (self.sizes + 1e-5).unsqueeze(1))
            return self.embedding[nearest]

    def scenario(compile):
        codebook = Codebook()
        step = compile(lambda x: codebook(x))
        return [[step(x) for x, _ in batches()], codebook]

    assert_healthy(agree(scenario), 1)


def test_a_meter_of_losses(agree):
    class Meter:
        def __init__(self):
            self.sum, self.count, self.average, self.last = 0.0, 0, 0.0, 0

        def update(self, value):
            self.last = value
            self.sum = self.sum + value * 5
            self.count += 5
            self.average = self.sum / self.count

    def scenario(compile):
        model, meter = net(), Meter()
        opt = torch.optim.SGD(model.parameters(), 0.05)
        return [train(compile, model, opt, meter.update), vars(meter)]

    assert_healthy(agree(scenario), 2)


def test_an_agent_with_a_target_network(agree):
    class Agent:
        def __init__(self):
            self.q, self.target = net(), net()
            self.target.load_state_dict(self.q.state_dict())
            self.opt = torch.optim.Adam(self.q.parameters(), 0.01)
            self.steps, self.epsilon = 0, 1.0

        def learn(self, x, y):
            with torch.no_grad():
                best = self.target(x).max(1)[0]
            loss = F.smooth_l1_loss(self.q(x)[:, 0], best + y[:, 0])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.steps += 1
            self.epsilon = max(0.1, self.epsilon * 0.9)
            if self.steps % 5 == 0:
                self.target.load_state_dict(self.q.state_dict())
            return loss

    def scenario(compile):
        agent = Agent()
        learn = compile(agent.learn)
        losses = [learn(x, y) for x, y in batches()]
        return [losses, agent.q, agent.target, agent.steps, agent.epsilon]

    assert_healthy(agree(scenario), 2)


def test_a_scale_of_losses_that_follows_overflows(agree):
    def scenario(compile):
        scaler = {"scale": torch.tensor(1024.0), "good": torch.tensor(0)}
        model = net()
        opt = torch.optim.SGD(model.parameters(), 0.05)

        @compile
        def step(x, y):
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            (loss * scaler["scale"]).backward()
            for p in model.parameters():
                p.grad = p.grad / scaler["scale"]
            finite = torch.stack([p.grad.isfinite().all() for p in model.parameters()]).all()
            good = torch.where(finite, scaler["good"] + 1, 0)
            scaler["scale"] = torch.where(good >= 5, scaler["scale"] * 2, scaler["scale"])
            scaler["good"] = torch.where(good >= 5, 0, good)
            opt.step()
            return loss

        return [[step(x, y) for x, y in batches()], scaler, model]

    assert_healthy(agree(scenario), 1)


class TrainState(NamedTuple):
    step: int
    moments: list


def test_a_state_of_training_that_is_replaced_whole(agree):
    def scenario(compile):
        model = net()
        held = {"state": TrainState(0, [torch.zeros_like(p) for p in model.parameters()])}

        @compile
        def step(x, y):
            state = held["state"]
            model.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            with torch.no_grad():
                pairs = zip(state.moments, model.parameters(), strict=True)
                moments = [0.9 * m + p.grad for m, p in pairs]
                for p, m in zip(model.parameters(), moments, strict=True):
                    p -= 0.05 * m / (state.step + 1)
            held["state"] = TrainState(state.step + 1, moments)
            return loss

        losses = [step(x, y) for x, y in batches()]
        return [losses, model, held["state"].step, held["state"].moments]

    assert_healthy(agree(scenario), 1)


def test_gradients_that_are_accumulated_by_a_count_need_a_trace_for_each_answer(agree):
    def scenario(compile):
        model, counts = net(), {"i": 0}
        opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

        @compile
        def step(x, y):
            (F.mse_loss(model(x), y) / 4).backward()
            counts["i"] += 1
            if counts["i"] % 4 == 0:
                opt.step()
                opt.zero_grad()

        for x, y in batches():
            step(x, y)
        return [model, counts]

    assert_healthy(agree(scenario), 3)  # without a gradient, with one, and with an update


@functools.lru_cache(maxsize=4)
def future(size):
    """What may not be looked at, as many programs keep it."""
    return {"mask": torch.ones(size, size).triu(1).bool()}


@functools.cache
def table(size):
    return torch.arange(size) / size


FACTOR = 3.0


@functools.cache
def doubled(number):
    return number * FACTOR


def test_gradients_are_deleted_in_a_step_and_between_its_calls(agree):
    def scenario(compile):
        w, found = torch.ones(2, requires_grad=True), []

        @compile
        def step(x, k):
            if k > 5:
                del w.grad
            (w * x).sum().backward()
            return w.grad * 1

        for k in range(9):
            if k == 3:
                del w.grad
            found.append(step(torch.ones(2), k))
        del w.grad
        assert w.grad is None
        return found

    agree(scenario)


def test_results_that_a_function_keeps(agree):
    def scenario(compile):
        future.cache_clear()
        doubled.cache_clear()
        table.cache_clear()

        class Positions(nn.Module):
            def forward(self, x):
                x = x + table(x.shape[1])
                return x.masked_fill(future(x.shape[1])["mask"], doubled(-2.0))

        kept = future(3)["mask"]
        model = compile(Positions())
        results = [model(torch.ones(2, size, size)) for size in (2, 3, 2, 4)]
        assert kept.sum().item() == 3
        return [*results, model(torch.ones(1, 2, 2)), future(4)["mask"], table(2)]

    agree(scenario)


@pytest.mark.parametrize("size", [None, 0, 2])
def test_a_cache_is_filled_by_what_the_step_asks_alone(agree, size):
    """What is gone from it, calls ask for that look for a program as well."""

    def scenario(compile):
        asked = []

        @functools.lru_cache(size)
        def root(number):
            asked.append(number)
            return number**0.5

        step = compile(lambda x, n: x * root(n) + root(2))
        for k in range(14):
            step(torch.ones(3), 1 + k % 3)
            if k in (5, 8, 9):
                root.cache_clear()
        return step(torch.ones(3), 1), {*asked}

    agree(scenario)


def test_a_step_whose_results_displace_each_other_runs_op_by_op(agree):
    def scenario(compile):
        @functools.lru_cache(maxsize=1)
        def root(number):
            return number**0.5

        step = compile(lambda x: x * root(2) + root(3))
        return [step(torch.ones(3) * k) for k in range(4)]

    (step,) = agree(scenario)
    assert "which is full" in step.stats.eager_reasons[0]


def test_numbers_that_move_choose_what_a_function_keeps(agree):
    def scenario(compile):
        asked = []

        @functools.cache
        def root(number, scale=1.0):
            asked.append(number)
            return number**0.5 * scale

        @compile
        def step(x, n, rate):
            return x * root(n) + root(n + 1, scale=rate)

        results = [step(torch.ones(3), k % 3, 0.5) for k in range(30)]
        return results, asked, root.cache_info().misses

    (step,) = agree(scenario)
    assert step.stats.calls >= 27


def test_what_a_function_keeps_is_computed_once(agree):
    def scenario(compile):
        asked = []

        @functools.cache
        def positions(size):
            asked.append(size)
            return torch.arange(size) / size

        @compile
        def step(x):
            return x + positions(x.shape[0])

        positions(4)
        results = [step(torch.ones(size)) for size in (3, 3, 4, 3)]
        return [*results, positions(4), asked]

    assert_healthy(agree(scenario), 3)


def test_a_function_made_in_the_step_keeps_its_results_for_one_call(agree):
    def scenario(compile):
        asked = []

        @compile
        def step(x):
            @functools.cache
            def scaled(size):
                asked.append(size)
                return x * size

            return scaled(2) + scaled(3) + scaled(2)

        return step(torch.ones(2)), step(torch.zeros(2)), asked

    assert_healthy(agree(scenario), 1)


def test_the_state_of_an_optimizer_of_the_users_is_emptied_and_loaded(agree):
    class Momentum(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                if "sum" not in state:
                    state["sum"] = torch.zeros_like(p)
                p.sub_(state["sum"].mul_(0.5).add_(p.grad), alpha=0.1)

    def scenario(compile):
        w = torch.ones(2, requires_grad=True)
        opt, found = Momentum([w]), []

        @compile
        def step(x):
            opt.zero_grad()
            (w * x).sum().backward()
            opt.step()

        for i in range(8):
            if i == 3:
                saved = opt.state_dict()
            if i in (4, 6):
                opt.state.clear()
            if i == 6:
                opt.load_state_dict(saved)
            step(torch.tensor([1.0, 2.0]) * i)
            found.append([w.tolist(), [x["sum"].tolist() for x in opt.state.values()]])
        return found

    agree(scenario)


def test_what_is_kept_for_a_size_is_computed_by_each_call_where_sizes_are_open(agree):
    def scenario(compile):
        @functools.cache
        def mask(size):
            return torch.ones(size, size).tril()

        @functools.cache
        def sizes(shape):
            return shape[0] * 2, shape[1]

        @compile
        def step(x):
            rows, columns = sizes(x.shape)
            return (x @ x.T * mask(x.shape[0])).sum() + x.repeat(2, 1).reshape(rows, columns) * rows

        return [step(torch.arange(4.0 * n).reshape(n, 4)) for n in range(3, 11)]

    assert_healthy(agree(scenario), 3)


SETTINGS = {"scale": 2.0, "asked": []}


@functools.cache
def drawn(size):
    return torch.rand(size)


@functools.cache
def of_ones(size):
    return torch.ones(size)


@functools.cache
def scaled(size):
    return torch.ones(size) * SETTINGS["scale"]


@functools.cache
def counted(size):
    SETTINGS["asked"].append(size)
    return torch.ones(size)


@pytest.mark.parametrize("table", [drawn, of_ones, scaled, counted])
def test_what_does_more_than_to_compute_is_kept_for_each_open_size(agree, table):
    def scenario(compile):
        torch.manual_seed(0)
        table.cache_clear()
        SETTINGS.update(scale=2.0, asked=[])

        @compile
        def step(x):
            found = table(x.shape[0])
            if table is of_ones:  # which then are kept so
                found.add_(1)
            return x * found

        found = [step(torch.ones(n)) for _ in range(2) for n in range(3, 9)]
        SETTINGS["scale"] = 5.0  # of which those that are kept know nothing
        return found, [step(torch.ones(n)) for n in range(3, 11)], SETTINGS["asked"]

    agree(scenario)
