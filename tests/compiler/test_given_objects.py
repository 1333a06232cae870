"""Objects and lists of the user's among the arguments, others of which come in later calls."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

import lucid
from lucid import nn, optim

ROWS = [lucid.arange(3 * n, dtype=lucid.float32).reshape(n, 3) for n in (4, 4, 2)]


class Meter:
    def __init__(self, scale: float = 1.0) -> None:
        self.count, self.total, self.scale = 0, 0.0, scale
        self.history: list[float] = []

    def update(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.history.append(value)


class Slotted:
    __slots__ = ("count", "state")

    def __init__(self) -> None:
        self.count, self.state = 0, lucid.zeros(3)


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Linear(3, 1)
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = 0


def measured(x: Any, meter: Meter) -> Any:
    loss = (x * meter.scale).mean()
    meter.update(loss.item())
    return loss


def seen(*meters: Meter) -> list[Any]:
    return [[m.count, m.total, m.history] for m in meters]


def test_each_epoch_may_have_a_meter_of_its_own(agree):
    def scenario(compile):
        step, meters, losses = compile(measured), [Meter() for _ in range(12)], []
        for meter in meters:
            losses += [step(ROWS[0], meter).item() for _ in range(3)]
        return losses, seen(*meters)

    agree(scenario, traces=1)


def test_other_threads_are_no_reason_for_another_trace(agree):
    """A program that none of them is in follows as it does where there are none."""
    done = threading.Event()
    waiting = threading.Thread(target=done.wait)
    waiting.start()
    try:
        test_each_epoch_may_have_a_meter_of_its_own(agree)
    finally:
        done.set()
        waiting.join()


def test_a_meter_of_an_earlier_epoch_is_the_one_that_is_given(agree):
    """The short way, too, tells it from the one that the latest calls were given."""

    def scenario(compile):
        step, meters, losses = compile(measured), [Meter() for _ in range(5)], []
        for i, meter in enumerate(meters):
            losses += [step(x, meter).item() for x in ROWS]
            if i > 1:
                losses += [step(x, meters[0]).item() for x in ROWS]
            if i == 3:
                losses.append(step(ROWS[2], meters[1]).item())
        return losses, seen(*meters)

    agree(scenario)


def test_meters_that_take_turns_have_a_program_each(agree):
    def scenario(compile):
        step, training, testing = compile(measured), Meter(), Meter()
        losses = [step(ROWS[0], meter).item() for meter in [training, testing] * 6]
        return losses, seen(training, testing)

    agree(scenario, traces=2)


def test_an_object_that_differs_has_a_program_of_its_own_and_the_first_stays_right(agree):
    def scenario(compile):
        step, one, other = compile(measured), Meter(1.0), Meter(2.0)
        other.history = (0.5,)  # type: ignore[assignment]  # whose append is an error
        found: list[Any] = []
        for meter in (one, other, one, other, Meter(1.0), one):
            try:
                found.append(step(ROWS[0], meter).item())
            except AttributeError as error:
                found.append(str(error))
        return found, seen(one)

    agree(scenario)


def test_trainers_that_hold_modules_and_optimizers_are_told_apart(agree):
    def scenario(compile):
        @compile
        def step(x, trainer):
            trainer.optimizer.zero_grad()
            loss = (trainer.model(x) ** 2).mean()
            loss.backward()
            trainer.optimizer.step()
            trainer.steps += 1
            return loss

        a, b, c = (Trainer() for _ in range(3))
        losses = [step(ROWS[0], t).item() for t in (a, a, b, b, a, b, a, c, c, b)]
        return losses, [[t.steps, t.model.weight] for t in (a, b, c)]

    agree(scenario, traces=1)


def test_a_model_that_comes_with_a_new_object_is_the_one_that_is_given(agree):
    def scenario(compile):
        @compile
        def step(x, model, meter):
            loss = model(x).mean()
            meter.update(loss.item())
            return loss

        models, meters = [nn.Linear(3, 1) for _ in range(2)], [Meter() for _ in range(5)]
        places = [(0, 0), (0, 0), (0, 1), (1, 2), (1, 2), (0, 3), (1, 4), (0, 0)]
        return [step(ROWS[0], models[i], meters[j]).item() for i, j in places], seen(*meters)

    agree(scenario)


def test_programs_that_know_other_places_of_objects_take_turns(agree):
    def scenario(compile):
        @compile
        def step(x, meter):
            meter.history.append(1.0)
            meter.extra = getattr(meter, "extra", 0) + 1
            return x * meter.scale

        meters, found = [Meter() for _ in range(6)], []
        for i in (0, 0, 0, 0, 0, 1, 1, 0, 2, 3, 1, 4, 4, 3, 3, 3, 5):
            found.append(step(ROWS[0], meters[i]).sum().item())
        return found, seen(*meters), [m.extra for m in meters]

    agree(scenario)


def test_an_object_that_has_another_name_is_not_taken_for_the_given_one(agree):
    def scenario(compile):
        held = SimpleNamespace(meter=Meter())

        @compile
        def step(x, meter):
            meter.count += 1
            held.meter.count += 10
            return x.sum() * held.meter.scale

        meters, found = [held.meter], []
        for _ in range(3):
            found += [step(ROWS[0], held.meter).item() for _ in range(2)]
            held.meter = Meter()
            meters.append(held.meter)
        meters += [Meter(3.0), Meter(5.0)]
        found += [step(ROWS[0], meters[-2]).item() for _ in range(2)]
        held.meter = meters[-1]
        found += [step(ROWS[0], meters[-2]).item() for _ in range(2)]
        held.meter = meters[-2]
        found += [step(ROWS[0], meters[-2]).item() for _ in range(2)]
        return found, [m.count for m in meters]

    agree(scenario)


def test_two_objects_may_be_one_and_change_their_places(agree):
    def scenario(compile):
        @compile
        def step(x, a, b):
            a.count += 1
            b.count += 10
            return x.sum() * a.scale - b.scale, a is b

        meters, found = [Meter(1.0 + i) for i in range(6)], []
        pairs = [(0, 1), (2, 3), (4, 5), (4, 4), (1, 0), (0, 1), (5, 5), (3, 2)]
        for i, j in pairs:
            for _ in range(2):
                y, are_one = step(ROWS[0], meters[i], meters[j])
                found.append((y.item(), are_one))
        return found, [m.count for m in meters]

    agree(scenario)


def test_tensors_in_objects_with_and_without_a_dict_are_those_of_the_given_one(agree):
    def scenario(compile):
        @compile
        def step(x, state):
            state.state = state.state * 0.5 + x.sum(0)
            state.count += 1
            return state.state + state.count

        found, states = [], []
        for make in (Slotted, lambda: SimpleNamespace(count=0, state=lucid.zeros(3))):
            news = [make() for _ in range(4)]
            for state in (*news, news[0], news[1]):
                found += [step(ROWS[0], state).tolist() for _ in range(3)]
            states += [(s.count, s.state) for s in news]
        return found, states

    agree(scenario)


def test_what_is_returned_and_kept_is_the_given_object(agree):
    def scenario(compile):
        @compile
        def step(x, meter):
            meter.count += 1
            meter.last = x * meter.count
            return meter, meter.last

        found, meters = [], [Meter() for _ in range(6)]
        for meter in (*meters, meters[0], meters[3]):
            for _ in range(2):
                same, last = step(ROWS[0], meter)
                found.append((same is meter, last is meter.last, last))
        return found, [m.count for m in meters]

    agree(scenario)


def test_each_epoch_may_give_a_list_of_its_own_to_fill(agree):
    def scenario(compile):
        @compile
        def step(x, losses):
            losses.append(x.mean().item())
            return x.sum() * len(losses)

        lists: list[list[float]] = [[] for _ in range(8)]
        found = []
        for losses in (*lists, lists[0], lists[5], [7.0, 8.0]):
            found += [step(ROWS[0], losses).item() for _ in range(4)]
        return found, lists

    agree(scenario, traces=2)


def test_an_object_that_python_changes_between_calls_is_read_anew(agree):
    def scenario(compile):
        @compile
        def step(x, meter):
            meter.total += 1
            return x.sum() * meter.scale * (2 if meter.history else 1)

        found = []
        for i in range(6):
            meter = Meter(1.0 + i)
            for j in range(3):
                found.append(step(ROWS[0], meter).item())
                if i == 3:
                    meter.scale = 7.0
                if i == 4 and j == 1:
                    meter.history = [1.0]
            found.append(meter.total)
        return found

    agree(scenario)


def test_threads_with_meters_of_their_own_don_t_mix_them():
    step, meters = lucid.compile(measured), [Meter() for _ in range(6)]

    def run(meter: Meter) -> None:
        for _ in range(40):
            step(ROWS[0], meter)

    threads = [threading.Thread(target=run, args=(meter,)) for meter in meters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    value = ROWS[0].mean().item()
    for meter in meters:
        assert meter.count == 40
        np.testing.assert_allclose(meter.history, [value] * 40, rtol=1e-6)
