"""Data at a place that a number says which moves, `data[i % len(data)]`: one program for all."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict, deque

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.utils.data import DataLoader

COUNT, CALLS = 12, 30


def tensors(count=COUNT, shape=(4, 3)):
    lucid.manual_seed(1)
    return [lucid.randn(*shape) for _ in range(count)]


def labels():
    return [(lucid.arange(4) + i) % 2 for i in range(COUNT)]


@dataclasses.dataclass
class Batch:
    x: lucid.Tensor
    y: lucid.Tensor


class Sample:
    def __init__(self, x, y, weight):
        self.x, self.y, self.weight = x, y, weight


class Dataset:
    def __init__(self):
        self.x, self.y = tensors(), labels()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Endless:
    def __init__(self):
        self.batches, self.at = [*zip(tensors(), labels(), strict=True)], 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        return self.batches[self.at % len(self.batches)]


def pairs():
    return [*zip(tensors(), labels(), strict=True)]


ORDER = [7, 3, 11, 0, 5, 2, 9, 1, 10, 4, 8, 6]

# How a step gets a batch of what it finds outside, by the number that it is given.
WAYS = {
    "list of pairs": (pairs, lambda data, i: data[i % len(data)]),
    "tuple of pairs": (lambda: (*pairs(),), lambda data, i: data[i % COUNT]),
    "deque": (lambda: deque(pairs(), maxlen=COUNT), lambda data, i: data[i % COUNT]),
    "two lists": (lambda: (tensors(), labels()), lambda d, i: (d[0][i % 12], d[1][i % 12])),
    "from the end": (pairs, lambda data, i: data[-1 - i % COUNT]),
    "by numbers": (lambda: dict(enumerate(pairs())), lambda data, i: data[i % COUNT]),
    "by another order": (pairs, lambda data, i: data[ORDER[i % COUNT]]),
    "arrays": (
        lambda: [(x.numpy(), y.numpy()) for x, y in pairs()],
        lambda data, i: [lucid.from_numpy(array) for array in data[i % COUNT]],
    ),
    "dicts": (
        lambda: [{"x": x, "y": y} for x, y in pairs()],
        lambda data, i: [*data[i % COUNT].values()],
    ),
    "dataclasses": (
        lambda: [Batch(x, y) for x, y in pairs()],
        lambda data, i: (data[i % COUNT].x, data[i % COUNT].y),
    ),
    "objects": (
        lambda: [Sample(x, y, float(i)) for i, (x, y) in enumerate(pairs())],
        lambda data, i: (data[i % COUNT].x * data[i % COUNT].weight, data[i % COUNT].y),
    ),
    "dataset": (Dataset, lambda data, i: data[i % len(data)]),
    "iterator": (Endless, lambda data, i: next(data)),
    "neighbours": (
        pairs,
        lambda data, i: (data[i % COUNT][0] + data[(i + 1) % COUNT][0], data[i % COUNT][1]),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_step_takes_its_batch_by_a_number_that_moves(agree, way):
    make, take = WAYS[way]

    def scenario(compile):
        data, model = make(), nn.Linear(3, 2)
        opt = lucid.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        @compile
        def step(i):
            x, y = take(data, i)
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        return [step(i) for i in range(CALLS)], model

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and not step.stats.eager_reasons, step.stats


def test_a_text_says_the_place(agree):
    def scenario(compile):
        data = {f"batch {i}": x for i, x in enumerate(tensors())}
        step = compile(lambda name: data[name].sum())
        return [step(f"batch {i % COUNT}") for i in range(CALLS)]

    (step,) = agree(scenario, traces=3)
    assert not step.stats.eager_reasons


def test_a_count_of_the_object_says_the_place(agree):
    def scenario(compile):
        class Trainer:
            def __init__(self):
                self.batches, self.at, self.losses = pairs(), 0, []

            def batch(self):
                self.at += 1
                return self.batches[self.at % len(self.batches)]

            @compile
            def step(self):
                x, y = self.batch()
                loss = F.cross_entropy(x[:, :2], y)
                self.losses.append(loss.item())
                return loss

        trainer = Trainer()
        return [trainer.step() for _ in range(CALLS)], trainer.losses, trainer.at

    agree(scenario)


# What happens to the data, and what a step does with it: the step, and what is done before a call.
def _replaces(data, i):
    data[i % COUNT] = lucid.full((4, 3), float(i))


def _lengthens(data, i):
    if i == 20:
        data.append(lucid.ones(4, 3))


def _moves_all(data, i):
    if i == 20:
        data.insert(0, data.pop())


def _has_other_kinds(data, i):
    if i == 15:
        data[5], data[6] = lucid.ones(3), lucid.ones(4, 3, dtype=lucid.float64)
        data[7] = lucid.ones(3, 4).T


def _requires_grad(data, i):
    if i == 15:
        data[5].requires_grad_(True)


def _becomes_another(data, i):
    if i == 15:
        data[5], data[6] = data[4], data[4][:2]


def _writes(data, i):
    data[i % COUNT].add_(1.0)


def _nothing(data, i):
    pass


def _stores_first(data, i):
    data[0] = data[i % COUNT] + 1


def _appends_first(data, i):
    data.append(data[-1] * 2)
    return data[i % len(data)]


CHANGES = {
    "replaced": (lambda data, i: data[i % len(data)], _replaces),
    "longer": (lambda data, i: data[i % len(data)], _lengthens),
    "moved": (lambda data, i: data[i % len(data)], _moves_all),
    "other kinds": (lambda data, i: data[i % len(data)] * 2, _has_other_kinds),
    "requires grad": (lambda data, i: data[i % len(data)] * 2, _requires_grad),
    "the same twice": (
        lambda data, i: data[i % 12].sum() + data[i * 5 % 12].sum(),
        _becomes_another,
    ),
    "written outside": (lambda data, i: data[i % len(data)].sum(), _writes),
    "written": (lambda data, i: data[i % 12].add_(1.0).sum() + data[i * 5 % 12].sum(), _nothing),
    "written, and shared": (
        lambda data, i: data[i % 12].mul_(2.0).sum() + data[i * 5 % 12].sum(),
        _becomes_another,
    ),
    "written, and one by a known number": (
        lambda data, i: data[i % 12].mul_(2.0).sum() + data[0].add_(1.0).sum(),
        _nothing,
    ),
    "stored beside": (
        lambda data, i: (_stores_first(data, i), data[i % 12].sum())[1],
        _nothing,
    ),
    "appended first": (_appends_first, _nothing),
    "compared": (lambda data, i: (data[i % 12] is data[4], data[i % 12].sum()), _becomes_another),
    "gone through": (lambda data, i: sum(x.sum() for x in data) + data[i % 12].mean(), _replaces),
    "too far": (lambda data, i: data[i % 14].sum(), _nothing),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_seen(agree, change):
    run, between = CHANGES[change]

    def scenario(compile):
        data, found = tensors(), []
        step = compile(lambda i: run(data, i))
        for i in range(CALLS):
            between(data, i)
            try:
                found.append(step(i))
            except IndexError as error:
                found.append(str(error))
        return found, data

    agree(scenario)


def test_another_kind_of_data_gets_a_program_of_its_own():
    data = tensors()
    step = lucid.compile(lambda i: data[i % COUNT].sum())
    for i in range(CALLS):
        step(i)
    data[5] = lucid.ones(2, 3)
    for i in range(CALLS):
        step(i)
    assert step.stats.traces == 4 and not step.stats.eager_reasons
    assert step.stats.retrace_reasons[-1] == (
        "data[i % 12]: another kind of value, a tensor f32[2,3]"
    )


def test_what_is_returned_or_kept_is_what_the_list_has():
    data, last = pairs(), {}

    def step(i):
        last["pair"] = data[i % COUNT]
        return data[i % COUNT][0]

    compiled = lucid.compile(step)
    for i in range(CALLS):
        assert compiled(i) is data[i % COUNT][0] and last["pair"] is data[i % COUNT]
    assert compiled.stats.traces == 3


def test_changes_of_an_entry_are_its_own(agree):
    def scenario(compile):
        data = [{"x": x, "seen": 0} for x in tensors()]

        @compile
        def step(i):
            entry = data[i % COUNT]
            entry["x"] = entry["x"] * 0.5
            entry["seen"] += 1
            return entry["x"].sum()

        return [step(i) for i in range(CALLS)], data

    (step,) = agree(scenario)
    assert step.stats.traces <= 5 and not step.stats.eager_reasons


def test_a_missing_key_is_made_as_always(agree):
    def scenario(compile):
        data = defaultdict(lambda: lucid.ones(4, 3), enumerate(tensors()))
        step = compile(lambda i: data[i].sum())
        return [step(i % 14) for i in range(CALLS)], [*data]

    agree(scenario)


def test_the_step_may_differentiate_by_what_it_takes(agree):
    def scenario(compile):
        data, weight = tensors(), lucid.ones(3, requires_grad=True)

        @compile
        def step(i):
            x = data[i % COUNT].detach().requires_grad_()
            (x * weight).pow(2).sum().backward()
            return x.grad

        losses = []
        outside = compile(lambda i: (data[i % COUNT] * weight).sum())
        for i in range(CALLS):
            losses.append(step(i))
            outside(i).backward()
        return losses, weight.grad

    for step in agree(scenario):
        assert step.stats.traces <= 3 and not step.stats.eager_reasons


class Item:
    def __init__(self, x):
        self.x = x


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("is_given", [False, True])
def test_an_object_that_the_step_has_elsewhere_as_well_stays_that(agree, is_given, is_first):
    class Own(Item):
        pass

    def scenario(compile):
        data = [Own(x) for x in tensors(5)]
        first = data[0]

        def taken(item):
            if is_first:
                return 10 * first.x.sum() + item().x.sum()
            return item().x.sum() + 10 * first.x.sum()

        step = (
            compile(lambda b: taken(lambda: b))
            if is_given
            else compile(lambda i: taken(lambda: data[i % 5]))
        )
        return [step(data[i % 5] if is_given else i) for i in range(12)]

    agree(scenario)


class Trainer:
    def __init__(self):
        self.i, self.losses, self.memory = 0, [0.0] * COUNT, [None] * COUNT


def _by_length(t, x):
    t.losses[t.i % len(t.losses)] = x.sum().item()


def _a_tuple(t, x):
    t.memory[t.i % COUNT] = (x, t.i, x.sum().item())


def _a_result(t, x):
    t.memory[t.i % COUNT] = x.sum(0)


def _twice(t, x):
    t.losses[t.i % len(t.losses)] = 1.0
    t.losses[2 * t.i % len(t.losses)] = x.mean().item()


STORES = {"a number": _by_length, "a tuple": _a_tuple, "a tensor": _a_result, "twice": _twice}


@pytest.mark.parametrize("way", STORES)
def test_a_list_is_filled_by_a_number_that_moves(agree, way):
    def scenario(compile):
        trainer = Trainer()

        def step(x):
            STORES[way](trainer, x)
            trainer.i += 1
            return x * 2

        step = compile(step)
        return [step(x) for x in tensors() * 3], trainer.losses, trainer.memory

    (step,) = agree(scenario, traces=1)
    assert not step.stats.eager_reasons
    assert step._latest_program().enter is not None


def _too_far(t, x):
    t.losses[t.i] = x.sum().item()


def _from_the_end(t, x):
    t.losses[-1 - t.i % 3] = x.sum().item()


def _read_before(t, x):
    t.losses[t.i % 3] = t.losses[(t.i + 1) % 3] + x.sum().item()


def _read_after(t, x):
    t.losses[t.i % 3] = x.sum().item()
    return sum(t.losses)


def _read_after_by_a_number(t, x):
    t.memory[t.i % 3] = x * 2
    return t.memory[t.i * 2 % 3]


def _read_then_stored(t, x):
    found = t.memory[t.i % 2]
    t.memory[(t.i + 1) % 2] = x * 2
    return found


def _appended_after(t, x):
    t.losses[t.i % 3] = x.sum().item()
    t.losses.append(1.0)


def _removed_after(t, x):
    t.losses[t.i % 3] = x.sum().item()
    if t.i > 8:
        return t.losses.pop(0)


def _kept(t, x):
    t.losses[t.i % 3] = x.sum().item()
    return t.losses


AROUND = [
    _too_far,
    _from_the_end,
    _read_before,
    _read_after,
    _read_after_by_a_number,
    _read_then_stored,
    _appended_after,
    _removed_after,
    _kept,
]


@pytest.mark.parametrize("body", AROUND)
def test_a_list_that_is_filled_is_looked_into_as_well(agree, body):
    def scenario(compile):
        trainer, found, given = Trainer(), [], tensors() * 2
        trainer.memory = tensors(3)

        def step(x):
            result = body(trainer, x)
            trainer.i += 1
            return result, x * 2

        step = compile(step)
        for x in given:
            try:
                result, other = step(x)
                found.append(([*result] if isinstance(result, list) else result, other))
            except IndexError as error:
                found.append(str(error))
                trainer.i += 1
        return found, given, trainer.losses, trainer.memory

    agree(scenario)


def test_a_shorter_list_is_an_error_as_always(agree):
    def scenario(compile):
        trainer, found = Trainer(), []

        def step(x):
            trainer.losses[trainer.i % COUNT] = x.sum().item()
            trainer.i += 1

        step = compile(step)
        for number, x in enumerate(tensors() * 2):
            if number == COUNT:
                del trainer.losses[7:]
            try:
                found.append(step(x))
            except IndexError as error:
                found.append(str(error))
                trainer.i += 1
        return found, trainer.losses, trainer.i

    agree(scenario)


class Rows:
    """A dataset as people write it: rows of arrays."""

    def __init__(self):
        self.x = np.random.default_rng(0).normal(size=(COUNT, 3)).astype(np.float32)
        self.y = np.arange(COUNT) % 2

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return lucid.from_numpy(self.x[i]), self.y[i]


def _by_an_argument(rows):
    return lambda i: rows[i][0]


def _by_a_draw(rows):
    draw = random.Random(3)
    return lambda i: lucid.stack([rows[draw.randrange(len(rows))][0] for _ in range(3)])


def _of_a_shuffled_loader(rows):
    loader = DataLoader(rows, batch_size=5, shuffle=True)
    return lambda i: lucid.cat([x * y[:, None] for x, y in loader])


class Arrays(Rows):
    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i].item(), "weight": self.x[i, 0]}


def _of_a_loader_that_makes_tensors(rows):
    loader = DataLoader(Arrays(), batch_size=4, shuffle=True)
    return lambda i: lucid.cat([b["x"] * b["y"][:, None] + b["weight"][:, None] for b in loader])


OF_ROWS = [
    *(_by_an_argument, _by_a_draw, _of_a_shuffled_loader),
    _of_a_loader_that_makes_tensors,
]


@pytest.mark.parametrize("way", OF_ROWS)
def test_a_row_of_an_array_becomes_a_tensor_at_any_place(agree, way):
    def scenario(compile):
        model, take = nn.Linear(3, 1), way(Rows())

        @compile
        def step(i):
            model.zero_grad()
            loss = model(take(i)).square().mean()
            loss.backward()
            return loss, model.weight.grad.clone()

        return [step(i * 5 % COUNT) for i in range(14)]

    (step,) = agree(scenario)
    assert step.stats.traces <= 5 and not step.stats.eager_reasons


def _returned(a, i, kept):
    return lucid.from_numpy(a[i])


def _written(a, i, kept):
    row = a[i]
    lucid.from_numpy(row).add_(1)


def _written_twice(a, i, kept):
    lucid.from_numpy(a[i][1:]).mul_(2)
    lucid.as_tensor(a[i, 1:]).add_(1)


def _appended(a, i, kept):
    kept.append(lucid.from_numpy(a[i]))


def _read_before_the_array_is_written(a, i, kept):
    row = lucid.from_numpy(a[i])
    lucid.from_numpy(a).add_(1)
    return row.sum()


def _read_before_a_row_is_written(a, i, kept):
    row = lucid.from_numpy(a[i])
    a[i] += 1
    return row.sum()


SHARED = [
    *(_returned, _written, _written_twice, _appended),
    *(_read_before_the_array_is_written, _read_before_a_row_is_written),
]


@pytest.mark.parametrize("body", SHARED)
def test_a_tensor_of_a_row_shares_its_memory(agree, body):
    def scenario(compile):
        a, kept, found = np.arange(12, dtype=np.float32).reshape(4, 3), [], []
        step = compile(lambda i: body(a, i, kept))
        for i in range(12):
            found.append(step(i * 3 % 4))
            found.append((a.copy(), [x.tolist() for x in kept]))
        a += 5
        return found, [x.tolist() for x in kept], [x for x in found if isinstance(x, lucid.Tensor)]

    agree(scenario)
