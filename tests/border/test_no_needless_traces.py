"""Ordinary training programs are traced once or twice, and never run op by op.

Guards that ask too much would show here: nothing in these programs changes what a step computes, or
only in ways that a program has an input for.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import gc
import itertools
import logging
import math
import random
import threading
import time
import types
import typing

import numpy as np
import pytest
from border.harness import X, fresh, same_as_eager

import lucid
from lucid import nn
from lucid.nn import functional as F

STEPS = 8
EPSILON = 1e-6
healthy = functools.partial(same_as_eager, changes=False, traces=2)


class Net(nn.Module):
    def __init__(self, width=4, dropout=0.0):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, width), nn.Linear(width, 3)])
        self.norm = nn.LayerNorm(3)
        self.drop = nn.Dropout(dropout)
        self.width = width

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i < len(self.layers) - 1:
                x = F.relu(x)
        return self.norm(self.drop(x))


def batches(n=STEPS):
    return [lucid.randn(4, 3) for _ in range(n)]


def training(net, optimizer, loss=F.mse_loss):
    def step(x):
        optimizer.zero_grad()
        found = loss(net(x), x)
        found.backward()
        optimizer.step()
        return found.detach()

    return step


def sgd(net, lr=0.01):
    return lucid.optim.SGD(net.parameters(), lr=lr, momentum=0.9)


# ------------------------------------------------------------------ loops


@healthy()
def test_a_plain_loop(compile):
    net = Net()
    step = compile(training(net, sgd(net)))
    return [*(step(x) for x in batches()), net.norm.weight]


@healthy()
def test_losses_in_a_list(compile):
    net, losses = Net(), []
    step = compile(training(net, sgd(net)))
    for epoch in range(3):
        for x in batches(4):
            losses.append(step(x).item())
        mean = sum(losses[-4:]) / 4
        losses.append(mean + epoch)
    return losses


@healthy()
def test_losses_that_the_step_appends(compile):
    net, losses = Net(), []
    optimizer = sgd(net)

    @compile
    def step(x):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), x)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    for x in batches():
        step(x)
    return losses


@healthy()
def test_training_and_evaluation(compile):
    net = Net(dropout=0.5)
    train = compile(training(net, sgd(net)))
    evaluate = compile(lambda x: net(x).detach())
    results = []
    for _ in range(3):
        net.train()
        results += [train(x) for x in batches(3)]
        net.eval()
        with lucid.no_grad():
            results += [evaluate(x) for x in batches(2)]
    return results


@same_as_eager(changes=False, traces=3)
def test_one_compiled_net_for_training_and_evaluation(compile):
    net = Net(dropout=0.5)
    model = compile(net)
    results = []
    for _ in range(3):
        net.train()
        results += [model(x).detach() for x in batches(2)]
        net.eval()
        with lucid.no_grad():
            results += [model(x) for x in batches(2)]
    return results


@pytest.mark.parametrize(
    "schedule",
    [
        lambda opt: lucid.optim.lr_scheduler.StepLR(opt, 3),
        lambda opt: lucid.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS),
        lambda opt: lucid.optim.lr_scheduler.LambdaLR(opt, lambda i: 1 / (1 + i)),
        lambda opt: lucid.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=STEPS + 1),
    ],
    ids=["step", "cosine", "lambda", "one_cycle"],
)
@healthy()
def test_a_schedule_of_the_learning_rate(compile, schedule):
    net = Net()
    optimizer = sgd(net)
    scheduler = schedule(optimizer)
    step = compile(training(net, optimizer))
    results = []
    for x in batches():
        results.append(step(x))
        scheduler.step()
    return [*results, scheduler.get_last_lr()]


@healthy()
def test_a_learning_rate_by_hand(compile):
    net = Net()
    optimizer = sgd(net)
    step = compile(training(net, optimizer))
    results = []
    for i, x in enumerate(batches()):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * 0.5 * (1 + math.cos(math.pi * i / STEPS))
        results.append(step(x))
    return results


@healthy()
def test_early_stopping(compile):
    class EarlyStopping:
        def __init__(self, patience):
            self.patience, self.best, self.bad = patience, math.inf, 0
            self.weights = None

        def should_stop(self, loss, net):
            if loss < self.best:
                self.best, self.bad = loss, 0
                self.weights = copy.deepcopy(net.state_dict())
            else:
                self.bad += 1
            return self.bad > self.patience

    net, stopping = Net(), EarlyStopping(2)
    step = compile(training(net, sgd(net)))
    results = []
    for x in batches():
        results.append(step(x))
        if stopping.should_stop(results[-1].item(), net):
            break
    net.load_state_dict(stopping.weights)
    return [*results, net.norm.weight]


@healthy()
def test_a_step_counter_of_the_trainer(compile):
    class Trainer:
        def __init__(self):
            self.net = Net()
            self.optimizer = sgd(self.net)
            self.steps = 0
            self.epoch = 0
            self.history = collections.defaultdict(list)

        def step(self, x):
            self.optimizer.zero_grad()
            loss = F.mse_loss(self.net(x), x)
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            return loss.detach()

    trainer = Trainer()
    step = compile(trainer.step)
    for epoch in range(3):
        trainer.epoch = epoch
        for x in batches(4):
            trainer.history["loss"].append(step(x).item())
    return [trainer.steps, trainer.history["loss"]]


@same_as_eager(traces=4)
def test_a_number_that_moves_is_read_by_programs_of_all_structures(compile):
    clock = types.SimpleNamespace(now=0)
    step = compile(lambda batch: sum(x.sum() for x in batch) * clock.now)
    results = []
    for now in range(8):
        clock.now = now
        results.append(step([X] * (1 + now % 2)))
    return results


@healthy()
def test_a_meter_outside(compile):
    class Meter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.total, self.count = 0.0, 0

        def update(self, value, n):
            self.total += value * n
            self.count += n

    net, meter, results = Net(), Meter(), []
    step = compile(training(net, sgd(net)))
    for _ in range(3):
        meter.reset()
        for x in batches(3):
            meter.update(step(x).item(), len(x))
        results.append(meter.total / meter.count)
    return results


@healthy()
def test_an_exponential_average(compile):
    class EMA:
        def __init__(self, net, decay=0.9):
            self.decay = decay
            self.shadow = {name: p.detach().clone() for name, p in net.named_parameters()}

        @lucid.no_grad()
        def update(self, net):
            for name, p in net.named_parameters():
                self.shadow[name].mul_(self.decay).add_(p, alpha=1 - self.decay)

    net = Net()
    average = EMA(net)
    inner = training(net, sgd(net))

    @compile
    def step(x):
        loss = inner(x)
        average.update(net)
        return loss

    return [*(step(x) for x in batches()), average.shadow]


@healthy()
def test_gradients_of_several_batches_together(compile):
    net = Net()
    optimizer = sgd(net)

    @compile
    def step(parts):
        optimizer.zero_grad()
        for part in parts:
            (F.mse_loss(net(part), part) / len(parts)).backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return norm

    return [step(batches(3)) for _ in range(4)]


@healthy()
def test_a_checkpoint_in_between(compile):
    net = Net()
    optimizer = sgd(net)
    step = compile(training(net, optimizer))
    results = [step(x) for x in batches(4)]
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    results += [step(x) for x in batches(4)]
    net.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    return [*results, *(step(x) for x in batches(4))]


@healthy()
def test_generator_and_discriminator(compile):
    generator, critic = Net(), Net()
    first, second = sgd(generator), sgd(critic)

    @compile
    def step(x):
        fake = generator(lucid.randn_like(x))
        second.zero_grad()
        loss = critic(fake.detach()).mean() - critic(x).square().mean()
        loss.backward()
        second.step()
        first.zero_grad()
        other = -critic(fake).square().mean()
        other.backward()
        first.step()
        return loss.detach(), other.detach()

    return [step(x) for x in batches()]


@healthy()
def test_logging_now_and_then(compile):
    logger = logging.getLogger("border.training")
    net = Net()
    step = compile(training(net, sgd(net)))
    results = []
    start = time.perf_counter()
    for i, x in enumerate(batches()):
        results.append(step(x))
        if i % 4 == 0:
            logger.info("step %d: %.4f (%.1f s)", i, results[-1], time.perf_counter() - start)
    return results


@healthy()
def test_a_logger_that_the_step_has(compile):
    logger = logging.getLogger("border.quiet")

    @compile
    def step(x):
        if logger.isEnabledFor(logging.DEBUG):
            return x * 0
        return x * 2

    return [step(x) for x in batches()]


# ------------------------------------------------------------------ configurations


@pytest.mark.parametrize("installed", [False, True])
@healthy()
def test_a_config_that_stays(compile, installed):
    @dataclasses.dataclass(frozen=True)
    class Config:
        lr: float = 0.01
        widths: tuple[int, ...] = (4, 3)
        act: str = "relu"
        options: dict[str, float] = dataclasses.field(default_factory=lambda: {"scale": 2.0})

    config = Config()
    if installed:
        config = fresh("conflike").DictConfig(dataclasses.asdict(config))
    net = Net(config.widths[0])
    inner = training(net, sgd(net, config.lr))

    @compile
    def step(x):
        return getattr(F, config.act)(inner(x)) * config.options["scale"]

    return [step(x) for x in batches()]


@healthy()
def test_a_config_that_is_equal_again(compile):
    """A new object with the same values in it."""

    @dataclasses.dataclass
    class Config:
        scale: float = 2.0
        act: str = "relu"

    step = compile(lambda x, config: getattr(F, config.act)(x) * config.scale)
    return [step(x, Config()) for x in batches()]


@healthy()
def test_parsed_arguments(compile):
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=2.0)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args([])

    @compile
    def step(x):
        if args.verbose:
            print(x.shape)
        return x * args.scale

    return [step(x) for x in batches()]


@healthy()
def test_a_config_whose_other_fields_change(compile):
    config = types.SimpleNamespace(scale=2.0, epoch=0, best=None, notes=[], name="run")
    step = compile(lambda x: x * config.scale)
    results = []
    for i, x in enumerate(batches()):
        config.epoch, config.best, config.name = i, float(i), f"run-{i}"
        config.notes.append(i)
        results.append(step(x))
    return results


@healthy()
def test_a_dict_whose_other_keys_change(compile):
    table = {"scale": 2.0, "epoch": 0}
    step = compile(lambda x: x * table["scale"])
    results = []
    for i, x in enumerate(batches()):
        table["epoch"] = i
        table[f"loss{i}"] = float(i)
        results.append(step(x))
    return results


@healthy()
def test_a_long_list_whose_other_items_change(compile):
    row = [float(i) for i in range(2000)]
    step = compile(lambda x: x * row[3])
    results = []
    for i, x in enumerate(batches()):
        row[100 + i] = -1.0
        results.append(step(x))
    return results


@healthy()
def test_environment_variables_that_change_elsewhere(compile, monkeypatch):
    step = compile(lambda x: x * 2)
    results = []
    for i, x in enumerate(batches()):
        monkeypatch.setenv("BORDER_RUN", str(i))
        results.append(step(x))
    return results


# ------------------------------------------------------------------ Python as it is written


@healthy()
def test_closures_made_anew_at_each_call(compile):
    @compile
    def step(x):
        def scaled(y, factor=2.0):
            return y * factor

        terms = [lambda y, k=k: y * k for k in range(3)]
        return scaled(x) + sum(term(x) for term in terms)

    return [step(x) for x in batches()]


@healthy()
def test_names_by_f_strings(compile):
    net = nn.Module()
    for i in range(3):
        setattr(net, f"layer{i}", nn.Linear(3, 3))

    @compile
    def step(x):
        for i in range(3):
            x = getattr(net, f"layer{i}")(x)
        return {f"out_{i}": x[i].detach() for i in range(3)}

    return [step(x) for x in batches()]


@healthy()
def test_modules_enumerated_and_zipped(compile):
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
    scales = [1.0, 2.0, 3.0]

    @compile
    def step(x):
        states = []
        for i, (layer, scale) in enumerate(zip(layers, scales, strict=True)):
            x = layer(x) * scale + i
            states.append(x)
        return lucid.stack(states).detach()

    return [step(x) for x in batches()]


@healthy()
def test_isinstance_and_modules(compile):
    net = Net()
    optimizer = sgd(net)

    @compile
    def step(x):
        optimizer.zero_grad()
        decay = sum(m.weight.square().sum() for m in net.modules() if isinstance(m, nn.Linear))
        loss = F.mse_loss(net(x), x) + 1e-3 * decay
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [step(x) for x in batches()]


@healthy()
def test_partial_functions(compile):
    loss = functools.partial(F.smooth_l1_loss, beta=0.5)
    net = Net()
    step = compile(training(net, sgd(net), loss))
    return [step(x) for x in batches()]


@healthy()
def test_super_properties_and_class_methods(compile):
    class Base(nn.Module):
        factor = 2.0

        def forward(self, x):
            return x * self.scale

        @property
        def scale(self):
            return self.factor * self.shift()

        @classmethod
        def shift(cls):
            return cls.factor + 1

        @staticmethod
        def cut(x):
            return x.clamp(-1, 1)

    class Derived(Base):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(3, 3)

        def forward(self, x):
            return self.cut(super().forward(self.dense(x)))

    net = Derived()
    step = compile(lambda x: net(x).detach())
    return [step(x) for x in batches()]


@healthy()
def test_named_tuples(compile):
    class Output(typing.NamedTuple):
        loss: lucid.Tensor
        logits: lucid.Tensor

    net = Net()

    @compile
    def step(batch):
        logits = net(batch.x)
        return Output(F.mse_loss(logits, batch.y).detach(), logits.detach())

    pair = collections.namedtuple("pair", "x y")
    return [tuple(step(pair(x, x * 2))) for x in batches()]


@healthy()
def test_batches_as_dicts_and_dataclasses(compile):
    @dataclasses.dataclass
    class Batch:
        inputs: dict[str, lucid.Tensor]
        weight: float = 1.0

    step = compile(lambda b: sum(v.sum() for v in b.inputs.values()) * b.weight)
    return [step(Batch({"a": x, "b": x * 2}, 0.5)) for x in batches()]


@healthy()
def test_keyword_arguments_and_defaults(compile):
    @compile
    def step(x, *, scale=1.0, mask=None, reduction="mean"):
        y = x * scale if mask is None else x * mask
        return getattr(y, reduction)()

    return [step(x, scale=2.0) for x in batches()]


@healthy()
def test_floats_as_arguments(compile):
    step = compile(lambda x, weight: x * weight)
    return [step(x, 0.1 * i) for i, x in enumerate(batches())]


@healthy()
def test_numbers_in_a_container_that_is_an_argument(compile):
    step = compile(lambda x, options: x * options["weight"] + options["shift"])
    return [step(x, {"weight": 0.1 * i, "shift": 1.0}) for i, x in enumerate(batches())]


@same_as_eager(changes=False, traces=5)
def test_the_number_of_the_step_as_an_argument(compile):
    step = compile(lambda x, i: x / (1 + i))
    return [step(x, i) for i, x in enumerate(batches())]


@healthy()
def test_comprehensions_and_generators(compile):
    weights = {"a": 1.0, "b": 2.0}

    @compile
    def step(x):
        terms = {name: x * w for name, w in weights.items() if w > 0}
        total = sum(term.sum() for term in terms.values())
        return total + max(w for w in weights.values()) + len([*itertools.chain(terms, terms)])

    return [step(x) for x in batches()]


@healthy()
def test_enums_and_matches(compile):
    class Mode(enum.Enum):
        TRAIN = "train"
        TEST = "test"

    mode = Mode.TRAIN

    @compile
    def step(x):
        match mode:
            case Mode.TRAIN:
                return x * 2
            case _:
                return x

    return [step(x) for x in batches()]


@healthy()
def test_a_context_manager_of_the_users(compile):
    @contextlib.contextmanager
    def frozen(module):
        for p in module.parameters():
            p.requires_grad_(False)
        try:
            yield
        finally:
            for p in module.parameters():
                p.requires_grad_(True)

    net, head = Net(), nn.Linear(3, 3)

    @compile
    def step(x):
        with frozen(net):
            loss = head(net(x)).square().mean()
        loss.backward()
        grad, head.weight.grad = head.weight.grad, None
        head.bias.grad = None
        return loss.detach(), grad

    return [step(x) for x in batches()]


@same_as_eager(changes=False, traces=1)
def test_a_context_manager_that_is_a_decorator(compile):
    class Scaled(contextlib.ContextDecorator):
        def __init__(self):
            self.depth, self.log = 0, []

        def __enter__(self):
            self.depth += 1
            return self

        def __exit__(self, *error):
            self.log.append(self.depth)
            self.depth -= 1

    scaled = Scaled()

    @scaled
    def double(x):
        return x * scaled.depth

    @compile
    def step(x):
        with scaled:
            return double(x)

    return [(step(x), list(scaled.log)) for x in batches()]


@same_as_eager(traces=1)
def test_a_context_manager_that_is_a_method(compile):
    class Average:
        def __init__(self):
            self.values, self.updates = lucid.ones(3), 0

        @contextlib.contextmanager
        def used(self):
            yield self.values

    average = Average()

    @compile
    def look(x):
        with average.used() as values:
            return x * values

    found = []
    for number in range(4):
        found.append(look(X + number))
        average.updates += 1
    return found


@healthy()
def test_attributes_that_cache(compile):
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = {}

        def forward(self, x):
            key = x.shape[0]
            if key not in self.cache:
                self.cache[key] = lucid.arange(float(key)).unsqueeze(1)
            return x + self.cache[key]

    net = Positions()
    net(lucid.ones(4, 3))
    step = compile(lambda x: net(x))
    return [step(x) for x in batches()]


@healthy()
def test_constants_of_numpy_and_math(compile):
    table = np.linspace(0.0, 1.0, 5)
    mask = np.array([True, False, True])

    @compile
    def step(x):
        y = x * np.pi + math.sqrt(2.0) + float(table[1]) + np.float32(0.5)
        return y * lucid.from_numpy(mask.astype("f4")) + EPSILON

    return [step(x) for x in batches()]


NUMBERS = {
    "float": lambda x, s: x * float(s.rate),
    "int": lambda x, s: x + int(s.rate * 100),
    "a_float_of_numpys": lambda x, s: x * float(0.5 * (1 + np.cos(np.pi * s.number / 20))),
    "a_float64": lambda x, s: x * np.float64(s.rate) + np.float32(s.rate),
    "clip": lambda x, s: x * np.clip(np.exp(-s.rate), a_min=0.3, a_max=0.9),
    "interp": lambda x, s: x * np.interp(s.number, [0, 4, 8], [0.1, 1.0, s.rate]),
    "interp_in_arrays": lambda x, s: x * np.interp(s.number, np.arange(9.0), np.linspace(0, 1, 9)),
    "interp_in_a_table": lambda x, s: x * np.interp(s.number, np.arange(9.0), s.table),
    "mean": lambda x, s: x * np.mean([s.rate, 1.0]) + math.fsum([s.rate, 2.0]),
    "an_array": lambda x, s: x * lucid.tensor(np.array([s.rate, 1.0, s.number]), dtype=x.dtype),
    "a_full_array": lambda x, s: x * lucid.from_numpy(np.full(3, s.rate, np.float32)),
    "a_list": lambda x, s: x * lucid.from_numpy(np.array(s.weights, np.float32)),
    "reductions_of_a_list": lambda x, s: x * np.mean(s.weights) + np.dot(s.weights, [1.0, 2, 3]),
    "a_sum_of_a_list": lambda x, s: x * math.fsum(s.weights),
    "a_matrix_of_a_list": lambda x, s: x @ lucid.from_numpy(np.diag(s.weights).astype("f")),
}


@pytest.mark.parametrize("name", NUMBERS)
@same_as_eager(traces=3)
def test_functions_of_numbers_that_move(compile, name):
    table, weights = np.linspace(0, 1, 9), [0.5, 1.0, 2.0]
    schedule = types.SimpleNamespace(rate=0.5, number=0, table=table, weights=weights)
    step = compile(lambda x: NUMBERS[name](x, schedule))
    results = []
    for x in batches():
        results.append(step(x[0]))
        schedule.rate *= 0.8
        schedule.number += 1
        schedule.table = schedule.table.copy()
        weights[1] *= 0.9
    return results


@healthy()
def test_random_numbers_outside(compile):
    order = list(range(STEPS))
    random.shuffle(order)
    data, rng = batches(), np.random.default_rng(0)
    step = compile(lambda x: x * 2)
    results = []
    for i in order:
        results.append(step(data[i] + float(rng.normal()) + random.random()))
    return results


@healthy()
def test_random_numbers_of_lucid_inside(compile):
    step = compile(lambda x: x + 0.1 * lucid.randn_like(x) * (lucid.rand(()) < 0.5))
    return [step(x) for x in batches()]


@healthy()
def test_shapes_and_dtypes(compile):
    @compile
    def step(x):
        n, d = x.shape
        assert x.dtype == lucid.float32, f"{x.dtype} isn't f32"
        assert d == 3, f"{d} columns"
        return x.reshape(n * d).view(d, n).sum() / x.numel()

    return [step(x) for x in batches()]


@healthy()
def test_a_registry_of_functions(compile):
    registry = {}

    def register(function):
        registry[function.__name__] = function
        return function

    @register
    def double(x):
        return x * 2

    @register
    def shift(x):
        return x + 1

    step = compile(lambda x: registry["shift"](registry["double"](x)))
    return [step(x) for x in batches()]


@healthy()
def test_decorated_functions(compile):
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            wrapper.calls = getattr(wrapper, "calls", 0)
            return function(*args, **kwargs)

        return wrapper

    @logged
    @lucid.no_grad()
    def evaluate(x):
        return x * 2

    step = compile(lambda x: evaluate(x))
    return [step(x) for x in batches()]


@healthy()
def test_try_and_finally(compile):
    cfg = {"scale": 2.0}

    @compile
    def step(x):
        try:
            return x * cfg["missing"]
        except KeyError:
            y = x * cfg["scale"]
        finally:
            y = x + 1
        return y

    return [step(x) for x in batches()]


@healthy()
def test_hooks_that_stay(compile):
    net, seen = Net(), []
    net.layers[0].register_forward_hook(lambda module, args, output: output * 2)
    net.norm.weight.register_hook(lambda grad: grad.clamp(-1, 1))
    step = compile(training(net, sgd(net)))
    return [*(step(x) for x in batches()), seen]


@healthy()
def test_an_installed_trainer(compile):
    trainlib = fresh("trainlib")
    trainer = trainlib.Trainer(trainlib.Net(), lr=0.01)
    meter = trainlib.Meter()
    step = compile(trainer.net)
    for x in batches():
        meter.update(step(x).mean().item())
    return [meter.average]


@healthy()
def test_a_hubs_model(compile):
    hub = fresh("hublike")
    model = hub.Model(hub.PretrainedConfig(scale=0.5))
    optimizer = sgd(model)
    step = compile(training(model, optimizer))
    return [step(x) for x in batches()]


@healthy()
def test_a_net_called_by_threads_in_turn(compile):
    net, results = Net(), []
    step = compile(lambda x: net(x).detach())
    for x in batches(6):
        thread = threading.Thread(target=lambda x=x: results.append(step(x)))
        thread.start()
        thread.join()
    return results


@healthy()
def test_the_collector_in_between(compile):
    net = Net()
    step = compile(training(net, sgd(net)))
    results = []
    for x in batches():
        results.append(step(x))
        if len(results) % 4 == 0:
            gc.collect()
    return results


@healthy()
def test_other_models_are_made_meanwhile(compile):
    net = Net()
    step = compile(training(net, sgd(net)))
    results = []
    for x in batches():
        other = Net()
        other.eval()
        sgd(other).zero_grad()
        results.append(step(x))
    return results


@healthy()
def test_imports_within_the_function(compile):
    @compile
    def step(x):
        import math as m

        from lucid.nn import functional as f

        return f.relu(x) * m.pi

    return [step(x) for x in batches()]


@healthy()
def test_a_large_table_that_stays(compile):
    vocabulary = {f"w{i}": i for i in range(30_000)}
    weights = np.ones(100_000)
    embedding = nn.Embedding(10, 3)

    @compile
    def step(x):
        token = lucid.tensor([vocabulary["w5"], vocabulary["w7"]])
        return embedding(token).sum().detach() + x * float(weights.sum()) + len(vocabulary)

    return [step(x) for x in batches()]


@healthy()
def test_two_steps_that_share_a_net(compile):
    net = Net()
    optimizer = sgd(net)
    warm = compile(training(net, optimizer))
    other = compile(training(net, optimizer, F.l1_loss))
    results = []
    for x in batches(4):
        results += [warm(x), other(x)]
    return [*results, X]


class SAM(lucid.optim.Optimizer):
    """Sharpness-aware minimization as many write it: it keeps the memory of the old weights."""

    def __init__(self, params, base, rho=0.05, **settings):
        super().__init__(params, {"rho": rho, **settings})
        self.base = base(self.param_groups, **settings)
        self.param_groups = self.base.param_groups

    @lucid.no_grad()
    def first_step(self):
        norm = lucid.norm(lucid.stack([p.grad.norm() for p in self.parameters()]))
        for p in self.parameters():
            self.state[p]["old_p"] = p.data.clone()
            p.add_(p.grad * (self.param_groups[0]["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @lucid.no_grad()
    def second_step(self):
        for p in self.parameters():
            p.data = self.state[p]["old_p"]
        self.base.step()
        self.zero_grad()

    def parameters(self):
        return [p for group in self.param_groups for p in group["params"]]


@healthy()
def test_weights_that_are_put_back_after_a_look_around(compile):
    net = Net()
    optimizer = SAM(net.parameters(), lucid.optim.SGD, lr=0.1, momentum=0.9)

    @compile
    def step(x):
        first = F.mse_loss(net(x), x * 2)
        first.backward()
        optimizer.first_step()
        F.mse_loss(net(x), x * 2).backward()
        optimizer.second_step()
        return first.detach()

    results = [step(x) for x in batches()]
    return [*results, *(optimizer.state[p]["old_p"] for p in net.parameters()), *net.parameters()]


def batches_with_names(n=12):
    return [
        {"x": lucid.randn(2, 3), "id": [f"a{i}", f"b{i}"], "name": f"n{i}", "kind": "uv"[i % 2]}
        for i in range(n)
    ]


@same_as_eager(changes=False, traces=3)
def test_batches_whose_names_nobody_reads(compile):
    step = compile(lambda batch: batch["x"].sum(-1))
    return [step(batch) for batch in batches_with_names()]


@same_as_eager(changes=False, traces=3)
def test_batches_with_names_that_are_counted(compile):
    step = compile(lambda batch, i: batch["x"].sum(-1) * i)
    return [step(batch, i) for i, batch in enumerate(batches_with_names())]


@same_as_eager(changes=False, traces=3)
def test_names_that_are_told_kept_and_returned(compile):
    seen = []

    @compile
    def step(batch, name):
        seen.append(f"{batch['id'][0]}: {name.upper()}")
        return batch["x"].sum(), batch["id"], {"name": batch["name"] + "!"}, batch["kind"]

    found = [step(batch, name=batch["name"]) for batch in batches_with_names()]
    assert {type(x) for x in seen} == {type(found[-1][1][0])} == {type(found[-1][3])} == {str}
    return [found, seen]


@same_as_eager(changes=False, traces=7)
def test_names_that_a_branch_asks_about(compile):
    weights = {"u": 2.0, "v": 3.0}

    @compile
    def step(batch):
        if batch["name"] == "n7" or batch["kind"] == batch["name"]:
            return batch["x"].sum()
        if batch["name"].startswith("n1") and "b" in batch["id"][1] and len(batch["name"]) == 2:
            return batch["x"].sum() * 5
        return batch["x"].sum() * weights[batch["kind"]]

    return [step(batch) for batch in batches_with_names(20)]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@same_as_eager(changes=False, traces=2)
def test_an_optimizer_alone_whose_parameters_get_other_memory(compile, momentum):
    """Nothing of the step reads the parameter but the optimizer, whose code isn't followed."""
    p = nn.Parameter(lucid.ones(3))
    optimizer = lucid.optim.SGD([p], lr=0.1, momentum=momentum)
    step = compile(optimizer.step)
    found = []
    for _ in range(6):
        p.data = p.data.clone()
        p.grad = lucid.ones(3)
        step()
        found.append(p.detach().clone())
    return found


class Task(enum.Enum):
    NEXT = 1
    MASKED = 2


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float
    name: str = "net"


WEIGHTS = {
    "a dict": (
        lambda s: [w * len(name) for name, w in s.named.items()],
        lambda s, w: s.named.update(aux=w),
    ),
    "a dict by members": (
        lambda s: [*s.by_task.values()],
        lambda s, w: s.by_task.update({Task.MASKED: w}),
    ),
    "a dict by members, one by one": (
        lambda s: [s.by_task[Task.MASKED], sum(s.by_task.values())],
        lambda s, w: s.by_task.update({Task.MASKED: w}),
    ),
    "a list": (lambda s: [*s.listed], lambda s, w: s.listed.__setitem__(1, w)),
    "a deque": (lambda s: [*s.queue], lambda s, w: s.queue.__setitem__(0, w)),
    "keywords": (lambda s: [dict(**s.named)["aux"]], lambda s, w: s.named.update(aux=w)),
    "attributes": (lambda s: [*vars(s.config).values()], lambda s, w: setattr(s.config, "a", w)),
    "pairs with functions": (
        lambda s: [w * f(2.0) for w, f in s.pairs],
        lambda s, w: s.pairs.__setitem__(0, (w, math.sqrt)),
    ),
    "a configuration that is replaced": (
        lambda s: [s.frozen.rate * len(s.frozen.name)],
        lambda s, w: setattr(s, "frozen", dataclasses.replace(s.frozen, rate=w)),
    ),
}


@pytest.mark.parametrize("where", WEIGHTS)
@same_as_eager(changes=False, traces=2)
def test_weights_that_are_annealed_between_calls(compile, where):
    weigh, change = WEIGHTS[where]
    state = types.SimpleNamespace(
        named={"main": 1.0, "aux": 0.5},
        by_task={Task.NEXT: 1.0, Task.MASKED: 0.5},
        listed=[1.0, 0.5],
        queue=collections.deque([0.5, 1.0]),
        config=types.SimpleNamespace(a=0.5, b=1.0),
        pairs=[(1.0, math.sqrt), (0.5, math.exp)],
        frozen=Config(1.0),
    )
    step = compile(lambda x: sum(w * x.pow(i).sum() for i, w in enumerate(weigh(state))))
    results = []
    for i in range(10):
        results.append(step(X))
        change(state, 0.25 * i + 0.125)
    return results


class Counted:
    def __init__(self, rate):
        self.rate, self.calls = rate, 0

    def scale(self, x):
        self.calls += 1
        return x * self.rate


@same_as_eager(changes=False, traces=6)
def test_an_object_that_is_replaced_and_that_the_step_changes(compile):
    holder = types.SimpleNamespace(scale=Counted(1.0))
    step = compile(lambda x: holder.scale.scale(x))
    results, met = [], []
    for i in range(10):
        if i % 2:
            holder.scale = Counted(0.5 * i)
        results.append(step(X))
        met.append(holder.scale)
    return [*results, *(counted.calls for counted in met)]


@same_as_eager(changes=False, traces=6)
def test_weights_beside_a_list_that_grows(compile):
    table = [(1.0, []), (2.0, [])]

    @compile
    def step(x):
        for weight, log in table:
            log.append(weight)
        return sum(weight * x for weight, _ in table)

    results = []
    for i in range(10):
        results.append(step(X))
        if i % 2:
            table[0] = (0.5 * i, table[0][1])
    return [*results, table]


@healthy()
def test_a_container_that_is_emptied_and_asked_for_what_it_had(compile):
    caches = {"seen": 1}, {"seen"}

    @compile
    def step(x):
        for cache in caches:
            cache.clear()
            x = x + ("seen" in cache) + 10 * ("other" in cache)
        return x

    found = []
    for x in batches():
        caches[0]["seen"] = 1
        caches[1].add("seen")
        found.append(step(x))
    return found


@healthy
def test_a_singledispatch_of_several_classes(compile):
    """It keeps what it has found for a class, at which nobody looks."""

    class Double:
        pass

    class Triple:
        pass

    scaled = functools.singledispatch(lambda thing, x: x)
    scaled.register(Double)(lambda thing, x: x * 2)
    scaled.register(Triple)(lambda thing, x: x * 3)
    step = compile(lambda thing, x: scaled(thing, x))
    double, triple = Double(), Triple()
    return [step(double, X), step(double, X), step(triple, X), step(triple, X), step(double, X)]
