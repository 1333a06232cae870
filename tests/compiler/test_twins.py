"""Modules and optimizers in whose place others of the same structure stand: one trace for all."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn, optim
from lucid.compiler.programs import audits, twins

X, Y = lucid.linspace(-1, 1, 12).reshape(4, 3), lucid.ones(4, 1)


def network() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def adam(model: Any) -> Any:
    return optim.Adam(model.parameters(), lr=0.01)


def train(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss


def state(models: Any, optimizers: Any) -> list[Any]:
    moments = [[*o.state_dict()["state"].values()] for o in optimizers]
    return [[m.state_dict() for m in models], moments]


def test_clients_that_take_turns_share_one_trace(agree):
    def scenario(compile):
        step, models = compile(train), [network() for _ in range(12)]
        optimizers = [adam(m) for m in models]
        losses = [
            step(m, o, X, Y).item()
            for _ in range(5)
            for m, o in zip(models, optimizers, strict=True)
        ]
        return losses, state(models, optimizers)

    agree(scenario, traces=1)


def test_a_model_that_differed_before_the_first_call_is_seen_to(agree):
    """Nothing has changed since, so that no epoch tells of it."""

    def scenario(compile):
        models = [network() for _ in range(3)]
        models[2].register_forward_hook(lambda module, args, out: out * 2)
        optimizers = [optim.SGD(m.parameters(), lr=0.01) for m in models]
        for model, optimizer in zip(models, optimizers, strict=True):
            train(model, optimizer, X, Y)  # so none needs the state of a first step
        step = compile(train)
        losses = [step(models[i], optimizers[i], X, Y).item() for i in (0, 0, 1, 2, 1, 0)]
        return losses, state(models, optimizers)

    agree(scenario, traces=2)


@pytest.mark.parametrize("place", ["global", "closure", "attribute", "list"])
def test_each_fold_may_put_a_model_of_its_own_at_a_place(agree, place):
    def scenario(compile):
        space: dict[str, Any] = {}
        model = optimizer = None
        held = SimpleNamespace(model=None, optimizer=None)
        pair: list[Any] = [None, None]
        exec("def of_globals(x, y): return train(model, optimizer, x, y)", space)
        space["train"] = train
        functions = {
            "global": space["of_globals"],
            "closure": lambda x, y: train(model, optimizer, x, y),
            "attribute": lambda x, y: train(held.model, held.optimizer, x, y),
            "list": lambda x, y: train(*pair, x, y),
        }
        step, losses, models, optimizers = compile(functions[place]), [], [], []
        for _ in range(4):
            model = network()
            optimizer = adam(model)
            space.update(model=model, optimizer=optimizer)
            held.model, held.optimizer = pair[:] = model, optimizer
            losses += [step(X, Y).item() for _ in range(3)]
            models.append(model)
            optimizers.append(optimizer)
        return losses, state(models, optimizers)

    agree(scenario, traces=1)


CHANGES: dict[str, Any] = {
    "evaluates": lambda m, o: m.eval(),
    "has a frozen parameter": lambda m, o: m[0].weight.requires_grad_(False),
    "has a hook": lambda m, o: m[0].register_forward_hook(lambda *given: given[-1] * 2),
    "has a hook of a gradient": lambda m, o: m[2].bias.register_hook(lambda g: g * 3),
    "has another decay": lambda m, o: o.param_groups[0].update(weight_decay=0.1),
    "has other numbers": lambda m, o: o.param_groups[0].update(lr=0.5, betas=(0.5, 0.6)),
    "has another flag": lambda m, o: o.param_groups[0].update(maximize=True),
    "has other memory": lambda m, o: setattr(m[0].bias, "data", lucid.ones(4)),
    "has a gradient": lambda m, o: setattr(m[0].bias, "grad", lucid.ones(4)),
    "has another layer": lambda m, o: m.__setitem__(1, nn.ReLU()),
    "has a weight of its state": lambda m, o: m.__setitem__(2, nn.Linear(4, 1)),
    "has an attribute": lambda m, o: setattr(m[1], "inplace", True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_that_differs_is_as_it_is(agree, name):
    def scenario(compile):
        step, models = compile(train), [nn.Sequential(*network(), nn.Dropout(0.5)) for _ in "123"]
        optimizers, losses = [adam(m) for m in models], []
        CHANGES[name](models[1], optimizers[1])
        for i in (0, 0, 1, 1, 2, 0, 1, 1, 2):
            losses.append(step(models[i], optimizers[i], X, Y).item())
        CHANGES[name](models[2], optimizers[2])
        losses += [step(models[i], optimizers[i], X, Y).item() for i in (2, 2, 0, 1)]
        return losses, state(models, optimizers)

    agree(scenario)


def test_weights_are_shared_as_in_each_model(agree):
    def scenario(compile):
        step, found = compile(train), []
        for is_tied in (False, False, True, True, False, True):
            model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
            if is_tied:
                model[1].weight = model[0].weight
            optimizer = adam(model)
            found += [step(model, optimizer, X, Y).item() for _ in range(3)]
            found.append(state([model], [optimizer]))
        return found

    agree(scenario)


def test_an_optimizer_of_another_model_updates_that(agree):
    def scenario(compile):
        step, models = compile(train), [network() for _ in range(4)]
        optimizers = [adam(m) for m in models]
        pairs = [(0, 0), (0, 0), (1, 1), (0, 1), (0, 1), (2, 3), (3, 2), (1, 1), (0, 0)]
        losses = [step(models[i], optimizers[j], X, Y).item() for i, j in pairs]
        return losses, state(models, optimizers)

    agree(scenario)


def test_a_target_that_is_copied_anew_is_the_one_that_is_read(agree):
    def scenario(compile):
        online, target, losses = network(), network(), []
        optimizer = adam(online)

        @compile
        def step(x):
            with lucid.no_grad():
                y = target(x)
            return train(online, optimizer, x, y)

        for _ in range(5):
            losses += [step(X).item() for _ in range(3)]
            target = copy.deepcopy(online)
        target = online
        losses += [step(X).item() for _ in range(2)]
        return losses, state([online], [optimizer])

    agree(scenario)


GIVEN: dict[str, Any] = {
    "a method": lambda m: m.forward,
    "a method in C": lambda m: [m].__getitem__,
    "a weak reference": lambda m: weakref.ref(m),
    "a dict by models": lambda m: {m: 1},
    "a list": lambda m: [m, m[0].weight],
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_a_step_gives_of_a_model_is_of_the_one_that_it_was_given(name):
    def step(model, optimizer):
        train(model, optimizer, X, Y)
        model.held = give(model)
        return give(model)

    def of(given: Any) -> Any:
        if isinstance(given, weakref.ref):
            return given()
        if callable(given):
            return given(0) if name == "a method in C" else given.__self__
        return next(iter(given))

    give, step = GIVEN[name], lucid.compile(step)
    models = [network() for _ in range(3)]
    optimizers = [adam(m) for m in models]
    for i in (0, 0, 1, 1, 2, 0, 1):
        given = step(models[i], optimizers[i])
        assert of(given) is models[i]
        assert of(vars(models[i]).pop("held")) is models[i]


def of_epochs(factor: float) -> Any:
    return lambda epoch: factor**epoch


SCHEDULES: dict[str, Any] = {
    "the same": lambda o, i: optim.lr_scheduler.StepLR(o, 2, 0.5),
    "other numbers": lambda o, i: optim.lr_scheduler.StepLR(o, 2 + i, 0.5 + 0.1 * i),
    "with momentum": lambda o, i: optim.lr_scheduler.OneCycleLR(o, 0.1 * (i + 1), 20),
    "a chain": lambda o, i: optim.lr_scheduler.ChainedScheduler(
        [optim.lr_scheduler.ExponentialLR(o, 0.9), optim.lr_scheduler.ConstantLR(o, 0.5, 2)]
    ),
    "a function": lambda o, i: optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
}


@pytest.mark.parametrize("place", ["argument", "closure"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_each_fold_may_have_a_schedule_of_its_own_in_the_step(agree, name, place):
    def scenario(compile):
        schedule: Any = None

        def step(model, optimizer, schedule, x, y):
            loss = train(model, optimizer, x, y)
            schedule.step()
            return loss * optimizer.param_groups[0]["lr"]

        def of_closure(model, optimizer, x, y):
            return step(model, optimizer, schedule, x, y)

        steps = {"argument": step, "closure": of_closure}
        compiled, found = compile(steps[place]), []
        for i in range(4):
            model = network()
            optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            schedule = SCHEDULES[name](optimizer, i)
            given = (schedule,) if place == "argument" else ()
            for _ in range(5):
                found.append(compiled(model, optimizer, *given, X, Y).item())
                found.append(schedule.get_last_lr())
            found.append(state([model], [optimizer]))
        return found

    agree(scenario, traces=1)


def test_an_audit_finds_that_the_schedule_of_each_fold_is_told(agree, monkeypatch):
    monkeypatch.setattr(audits.Pace, "is_due", lambda _: True)

    def scenario(compile):
        @compile(audit=True)
        def step(model, optimizer, schedule, x, y):
            loss = train(model, optimizer, x, y)
            schedule.step(loss.detach())
            return loss

        found = []
        for i in range(3):
            model = network()
            optimizer = optim.SGD(model.parameters(), lr=0.1)
            schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=i)
            for _ in range(4):
                found.append(step(model, optimizer, schedule, X, Y).item())
                found += [schedule.num_bad_epochs, schedule.last_epoch, schedule.get_last_lr()]
        return found

    (step,) = agree(scenario, traces=1)
    assert step.stats.audits and not step.stats.eager_reasons


def test_a_learning_rate_that_is_a_tensor_is_that_of_each_fold(agree):
    def scenario(compile):
        step, found = compile(train), []
        for i in range(4):
            model, rate = network(), lucid.tensor(0.01 * (i + 1))
            optimizer = optim.Adam(model.parameters(), lr=rate)
            for _ in range(3):
                found.append(step(model, optimizer, X, Y).item())
                rate.mul_(0.5)
            found.append(state([model], [optimizer]))
        optimizer.param_groups[0]["lr"] = lucid.tensor(0.3)
        found += [step(model, optimizer, X, Y).item() for _ in range(3)]
        optimizer.param_groups[0]["lr"] = 0.2
        return found, [step(model, optimizer, X, Y).item() for _ in range(3)]

    agree(scenario, traces=3)  # one more for another tensor, and one for a float


UNLIKE_SCHEDULES: dict[str, Any] = {
    "another function": lambda o: optim.lr_scheduler.LambdaLR(o, lambda epoch: 1 + epoch),
    "another factor": lambda o: optim.lr_scheduler.LambdaLR(o, of_epochs(0.5)),
    "another class": lambda o: optim.lr_scheduler.StepLR(o, 1, 0.5),
    "a longer chain": lambda o: optim.lr_scheduler.ChainedScheduler(
        [optim.lr_scheduler.ConstantLR(o, 0.5, 2), optim.lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "no schedule": lambda o: None,
}


@pytest.mark.parametrize("name", UNLIKE_SCHEDULES)
def test_a_schedule_that_differs_is_as_it_is(agree, name):
    def scenario(compile):
        @compile
        def step(model, optimizer, schedule, x, y):
            loss = train(model, optimizer, x, y)
            if schedule is not None:
                schedule.step()
            return loss

        models, found = [network() for _ in range(3)], []
        optimizers = [optim.SGD(m.parameters(), lr=0.1) for m in models]
        schedules = [optim.lr_scheduler.LambdaLR(o, of_epochs(0.9)) for o in optimizers]
        schedules[1] = UNLIKE_SCHEDULES[name](optimizers[1])
        for i in (0, 0, 1, 1, 2, 2, 1, 0):
            found.append(step(models[i], optimizers[i], schedules[i], X, Y).item())
            found.append(optimizers[i].param_groups[0]["lr"])
        return found, state(models, optimizers)

    agree(scenario)


def test_a_schedule_of_another_optimizer_steps_that(agree):
    def scenario(compile):
        @compile
        def step(model, optimizer, schedule, x, y):
            loss = train(model, optimizer, x, y)
            schedule.step()
            return loss

        models, found = [network() for _ in range(3)], []
        optimizers = [optim.SGD(m.parameters(), lr=0.1) for m in models]
        schedules = [optim.lr_scheduler.ExponentialLR(o, 0.9) for o in optimizers]
        for model, optimizer in zip(models, optimizers, strict=True):
            train(model, optimizer, X, Y)
        for i, j in [(0, 0), (0, 0), (1, 1), (1, 2), (2, 1), (0, 1), (2, 2)]:
            found.append(step(models[i], optimizers[i], schedules[j], X, Y).item())
            found += [o.param_groups[0]["lr"] for o in optimizers]
        return found, state(models, optimizers)

    agree(scenario)


@pytest.mark.parametrize("draw", ["uniform", "beta", "branch"])
def test_each_fold_goes_on_with_the_random_numbers(agree, draw):
    def scenario(compile):
        random.seed(3)
        np.random.seed(3)

        @compile
        def step(model, optimizer, x, y):
            if draw == "branch" and random.random() < 0.5:
                x = x.flip(1)
            scale = np.random.beta(0.4, 0.4) if draw == "beta" else random.uniform(0.9, 1.1)
            return train(model, optimizer, x * scale, y)

        found = []
        for _ in range(4):
            model = network()
            optimizer = adam(model)
            found += [step(model, optimizer, X, Y).item() for _ in range(6)]
            found.append(state([model], [optimizer]))
        return found, random.random(), np.random.rand()

    agree(scenario, traces=2 if draw == "branch" else 1)


class Headed(nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(3, 3)
        self.out = nn.Linear(3, 1)

    def forward(self, x: Any) -> Any:
        return self.out(self.head(self.body(x)))


@pytest.mark.parametrize("is_tied", [False, True])
def test_models_may_have_layers_in_common(agree, is_tied):
    def scenario(compile):
        body, step, found = nn.Linear(3, 3).requires_grad_(False), compile(train), []
        for i in range(4):
            model = Headed(body)
            if is_tied and i % 2 == 0:  # the weight of the head is that of the common layer
                model.head.weight = body.weight
            optimizer = optim.Adam([x for x in model.parameters() if x.requires_grad], lr=0.01)
            found += [step(model, optimizer, X, Y).item() for _ in range(3)]
            found.append(state([model], [optimizer]))
        return found

    agree(scenario, traces=None if is_tied else 1)


class Acting(nn.Module):
    def __init__(self, act: Any, mean: Any = None) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(3, 1), act
        self.mean = np.zeros(3, np.float32) if mean is None else mean
        self.scale, self.scaled = 2.0, lambda x: x * self.scale

    def forward(self, x: Any) -> Any:
        return self.scaled(self.act(self.layer(x - lucid.tensor(self.mean))))


class Measured(nn.Module):
    """Computes with an array in Python."""

    def __init__(self, mean: Any) -> None:
        super().__init__()
        self.layer, self.mean, self.scale = nn.Linear(3, 1), mean, 1.0

    def forward(self, x: Any) -> Any:
        return self.layer(x - float(self.mean.sum()) * self.scale)


def made(number: float) -> Any:
    return lambda x: x * number


ACTS: dict[str, Any] = {
    "a function": lambda i: Acting(lambda x: x.tanh()),
    "a method": lambda i: Acting(nn.Tanh().forward),
    "a partial": lambda i: Acting(partial(nn.functional.gelu, approximate="tanh")),
    "an array": lambda i: Acting(nn.Tanh(), np.array([0.5, 1.0, i], np.float32)),
    "an array of Python's": lambda i: Measured(np.array([0.5, 1.0, 2.0], np.float32)),
}


@pytest.mark.parametrize("name", ACTS)
def test_models_may_have_functions_and_arrays_that_are_alike(agree, name):
    def scenario(compile):
        step, found = compile(train), []
        for i in range(4):
            model = ACTS[name](i)
            optimizer = adam(model)
            found += [step(model, optimizer, X, Y).item() for _ in range(3)]
            found.append(state([model], [optimizer]))
        return found

    agree(scenario, traces=1)


LAYER = nn.Linear(1, 2)
UNLIKE_ACTS: dict[str, Any] = {
    "other code": lambda i: Acting((lambda x: x.tanh()) if i else lambda x: x.sigmoid()),
    "another variable": lambda i: Acting(made(1.0 + i)),
    "another default": lambda i: Acting(lambda x, n=1.0 + i: x * n),
    "another argument": lambda i: Acting(partial(nn.functional.elu, alpha=1.0 + i)),
    "another function": lambda i: Acting(partial([nn.functional.elu, nn.functional.gelu][i % 2])),
    "another array": lambda i: Measured(np.array([0.5, 1.0, i], np.float32)),
    "another shape": lambda i: Acting(nn.Tanh(), np.zeros((1, 3)[: 1 + i % 2][-1], np.float32)),
    "a part of an array": lambda i: Acting(nn.Tanh(), np.full((2, 3), i, np.float32)[i % 2]),
    "an object's": lambda i: Acting(lambda x: -x),
    "a method": lambda i: Acting([nn.Linear(1, 2).forward, LAYER.forward][i % 2]),
    "another method": lambda i: Acting([lucid.Tensor.tanh, lucid.Tensor.relu][i % 2]),
}


@pytest.mark.parametrize("name", UNLIKE_ACTS)
def test_functions_and_arrays_that_differ_are_as_they_are(agree, name):
    def scenario(compile):
        step, models, found = compile(train), [UNLIKE_ACTS[name](i) for i in range(3)], []
        if name == "an object's":
            models[1].scaled = lambda x: x * models[0].scale
            models[0].scale = 5.0
        optimizers = [adam(m) for m in models]
        for i in (0, 0, 1, 1, 2, 0, 1, 2):
            found.append(step(models[i], optimizers[i], X, Y).item())
            models[i].scale += 0.5
        return found, state(models, optimizers)

    agree(scenario)


HOLD: dict[str, Any] = {
    "a method": lambda log: log.append,
    "a partial": lambda log: partial(list.append, log),
}


@pytest.mark.parametrize("name", HOLD)
def test_what_holds_the_list_of_an_earlier_model_goes_on_with_it(agree, name):
    def scenario(compile):
        held: Any = None

        @compile
        def step(model, optimizer, x, y):
            held(1.0)
            model.log.append(2.0)
            return train(model, optimizer, x, y)

        found, logs = [], []
        for i in range(3):
            model = network()
            model.log = []
            logs.append(model.log)
            held = HOLD[name](model.log) if i == 0 else held
            optimizer = adam(model)
            found += [step(model, optimizer, X, Y).item() for _ in range(3)]
        return found, logs

    agree(scenario)


class Monitor:
    def __init__(self) -> None:
        self.metrics: Any = defaultdict(lambda: {"sum": 0.0, "count": 0})

    def update(self, name: str, value: float) -> None:
        self.metrics[name]["sum"] += value
        self.metrics[name]["count"] += 1


def test_epochs_may_have_meters_that_make_their_entries(agree):
    def scenario(compile):
        @compile
        def step(model, optimizer, monitor, x, y):
            loss = train(model, optimizer, x, y)
            monitor.update("loss", loss.item())
            return loss

        found = []
        for _ in range(3):
            model = network()
            optimizer = adam(model)
            for _ in range(3):
                monitor = Monitor()
                for _ in range(3):
                    step(model, optimizer, monitor, X, Y)
                found.append({key: {**value} for key, value in monitor.metrics.items()})
                assert monitor.metrics["none"] == {"sum": 0.0, "count": 0}
        return found

    agree(scenario, traces=3)  # the first entries, and whether a step changes what it is given


def test_a_mean_of_weights_and_a_scaler_may_be_of_each_fold(agree):
    def scenario(compile):
        @compile
        def step(model, mean, optimizer, scaler, x, y):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            mean.update_parameters(model)
            return loss

        found = []
        for decay in (0.9, 0.9, 0.9, 0.5, 0.5):
            model = network()
            average = optim.swa_utils.get_ema_multi_avg_fn(decay)
            mean = optim.swa_utils.AveragedModel(model, multi_avg_fn=average)
            optimizer, scaler = adam(model), lucid.amp.GradScaler("cpu", enabled=False)
            for _ in range(4):
                found.append(step(model, mean, optimizer, scaler, X, Y).item())
            found.append(state([model, mean], [optimizer]))
        return found

    agree(scenario, traces=2)  # one for each decay


def test_an_optimizer_that_only_looks_on_has_no_state():
    models = [network() for _ in range(3)]
    optimizers = [adam(m) for m in models]
    train(models[0], optimizers[0], X, Y)
    evaluate = lucid.compile(lambda m, o, x: (m(x).detach() * o.param_groups[0]["lr"]).sum())
    for model, optimizer in zip(models, optimizers, strict=True):
        evaluate(model, optimizer, X)
    assert not optimizers[1].state and not optimizers[2].state


def test_a_call_that_raises_leaves_another_optimizer_as_it_was():
    @lucid.compile
    def step(model, optimizer, x, y, index):
        train(model, optimizer, x, y)
        return x[index]

    models = [network() for _ in range(2)]
    optimizers = [adam(m) for m in models]
    index = lucid.tensor(1)
    for _ in range(2):
        step(models[0], optimizers[0], X, Y, index)
    before = models[1][0].weight.tolist()
    with pytest.raises(IndexError):
        step(models[1], optimizers[1], X, Y, lucid.tensor(9))
    assert not optimizers[1].state
    assert models[1][0].weight.tolist() == before
    step(models[1], optimizers[1], X, Y, index)
    assert len(optimizers[1].state) == 4


@pytest.mark.parametrize("method", ["of", "check"])
def test_one_that_is_interrupted_leaves_another_optimizer_as_it_was(monkeypatch, method):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    step, models = lucid.compile(train), [network() for _ in range(2)]
    optimizers = [adam(m) for m in models]
    for _ in range(2):
        step(models[0], optimizers[0], X, Y)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(twins.Rebinding, method, interrupt)
        step(models[1], optimizers[1], X, Y)
    assert not optimizers[1].state
    assert not optimizers[1]._has_stepped
    step(models[1], optimizers[1], X, Y)
    assert [x["step"].item() for x in optimizers[1].state.values()] == [1] * 4
    assert step.stats.traces == 1


def test_models_of_earlier_folds_are_freed():
    step, gone = lucid.compile(train), []
    for _ in range(4):
        model = network()
        optimizer = adam(model)
        for _ in range(3):
            step(model, optimizer, X, Y)
        gone.append(weakref.ref(model))
    del model, optimizer
    gc.collect()
    assert sum(x() is not None for x in gone) <= 1
    assert step.stats.traces == 1
