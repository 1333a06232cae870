"""Modules and optimizers in whose place others of the same structure stand: one trace for all."""

from __future__ import annotations

import copy
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

import lucid
from lucid import nn, optim
from lucid.compiler.programs import twins

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
