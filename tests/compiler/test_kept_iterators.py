"""Iterators that outlive a call: a step takes their next item, and a failed call loses none."""

from __future__ import annotations

import collections
import heapq
import itertools
import operator
import random
import types

import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn, optim


def _pairs(count, sizes=(4,)):
    rows = [lucid.sin(lucid.arange(3.0 * sizes[i % len(sizes)]) + i) for i in range(count)]
    return [(x.reshape(-1, 3), x.reshape(-1, 3).sum(1, keepdim=True)) for x in rows]


class Trainer:
    """Takes batches from an iterator of its own."""

    def __init__(self, items):
        self.items, self.epoch = items, 0
        self.model = nn.Linear(3, 1)
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.05)
        self.start()

    def start(self):
        self.it = iter(self.items)

    def train(self, x, y):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def step(self):
        return self.train(*next(self.it))

    def left(self):
        return operator.length_hint(self.it)


class Zipped(Trainer):
    def start(self):
        self.x = iter([x for x, _ in self.items])
        self.it = zip(self.x, iter([y for _, y in self.items]), strict=False)

    def left(self):
        return operator.length_hint(self.x)


class TakesPairsOfBatches(Trainer):
    def step(self):
        return self.train(*next(self.it)) + self.train(*next(self.it)).detach()


class WritesWhatItTakes(Trainer):
    def step(self):
        x, y = next(self.it)
        x *= 0.5
        self.last = x
        return self.train(x, y)

    def left(self):
        return [(x, x is self.last) for x, _ in self.items], super().left()


TAKES = {
    "a list": lambda: Trainer(_pairs(12)),
    "a tuple": lambda: Trainer(tuple(_pairs(12))),
    "sizes that keep changing": lambda: Trainer(_pairs(12, (4, 5, 6, 2))),
    "two at once": lambda: TakesPairsOfBatches(_pairs(24)),
    "pairs": lambda: Zipped(_pairs(12)),
    "it is written": lambda: WritesWhatItTakes(_pairs(12)),
}


@pytest.mark.parametrize("name", TAKES)
def test_the_next_item_is_one_of_each_call(agree, name):
    def scenario(compile):
        trainer = TAKES[name]()
        step, found = compile(trainer.step), []
        for call in range(10):
            found.append((step(), trainer.left()))
            if call == 6:  # others may take an item as well
                next(trainer.it)
        return found, trainer.model.weight

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and not step.stats.eager_reasons, step.stats


@pytest.mark.parametrize("way", ["the same list", "a shuffled copy"])
def test_an_epoch_begins_anew_between_the_calls(agree, way):
    def scenario(compile):
        trainer, draws = Trainer(_pairs(5)), random.Random(3)
        step, found = compile(trainer.step), []
        for call in range(20):
            found.append((step(), trainer.left()))
            if call % 5 == 4:
                if way == "a shuffled copy":
                    trainer.items = draws.sample(trainer.items, 5)
                trainer.start()
        return found, trainer.model.weight

    agree(scenario, traces=1)


@pytest.mark.parametrize("way", ["except", "default"])
def test_an_epoch_begins_anew_in_the_step(agree, way):
    class Again(Trainer):
        def step(self):
            if way == "except":
                try:
                    batch = next(self.it)
                except StopIteration:
                    self.it, self.epoch = iter(self.items), self.epoch + 1
                    batch = next(self.it)
            else:
                batch = next(self.it, None)
                if batch is None:
                    self.it, self.epoch = iter(self.items), self.epoch + 1
                    batch = next(self.it)
            return self.train(*batch)

    def scenario(compile):
        trainer = Again(_pairs(7))
        step = compile(trainer.step)
        return [(step(), trainer.epoch, trainer.left()) for _ in range(22)]

    agree(scenario, traces=2)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("first", [0, 3])
def test_an_iterator_that_has_told_of_its_end_stays_there(agree, kind, first):
    """The first call may be the one that meets the end."""

    def scenario(compile):
        items = kind(lucid.full((2,), float(i)) for i in range(3))
        it = iter(items)
        for _ in range(first):
            next(it)

        @compile
        def step(x):
            item = next(it, None)
            return (x, "none") if item is None else (x + item, "some")

        found = [(step(lucid.ones(2)), operator.length_hint(it)) for _ in range(7 - first)]
        if kind is list:
            items.append(lucid.ones(2))
        return found, operator.length_hint(it), next(it, "nothing")

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons, step.stats


def test_an_iterator_that_has_ended_is_replaced_between_the_calls(agree):
    def scenario(compile):
        holder = types.SimpleNamespace(stages=iter([0.5, 2.0]), scale=1.0)

        @compile
        def step(x):
            try:
                holder.scale = next(holder.stages)
            except StopIteration:
                return x, "done"
            return x * holder.scale, "on"

        found = [step(lucid.ones(2)) for _ in range(6)]
        holder.stages = iter([3.0, 4.0, 5.0])
        return found, [step(lucid.ones(2)) for _ in range(6)], holder.scale

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons and step.stats.traces <= 7, step.stats


def test_pairs_end_with_the_shorter_one(agree):
    def scenario(compile):
        first, second = [lucid.full((2,), float(i)) for i in range(3)], [1.0, 2.0]
        it = zip(iter(first), iter(second), strict=False)
        step = compile(lambda x: (x, next(it, "none")))
        return [step(lucid.ones(2)) for _ in range(4)]

    agree(scenario)


def test_a_call_that_fails_behind_the_end_leaves_the_iterator_there(agree):
    def scenario(compile):
        items = [lucid.ones(2)]
        it = iter(items)

        @compile
        def step(x):
            if next(it, None) is None:
                x = lucid.linalg.cholesky(x)
            return x

        step(lucid.eye(2))
        with pytest.raises(RuntimeError):
            step(-lucid.eye(2))
        found = operator.length_hint(it), step(lucid.eye(2))
        items.append(lucid.ones(2))
        return found, operator.length_hint(it)

    agree(scenario)


def test_an_iterator_that_the_step_makes_begins_at_a_place(agree):
    def scenario(compile):
        items, others = [lucid.full((2,), float(i)) for i in range(4)], (1.0, 2.0)
        kept = {}

        @compile
        def step(x):
            kept["it"], kept["others"] = iter(items), iter(others)
            return x + next(kept["it"]) + next(kept["it"]), iter(others)

        found = [step(lucid.ones(2)) for _ in range(3)]
        left = [[*it] for *_, it in found], [*kept["it"]], [*kept["others"]]
        return [y for y, _ in found], left, found[0][1] is found[1][1]

    agree(scenario, traces=1)


def test_a_call_that_fails_takes_nothing():
    rows = lucid.arange(12.0).reshape(4, 3)
    items = [lucid.tensor([i]) for i in (0, 1, 2, 9, 3)]
    it = iter(items)

    @lucid.compile
    def step():
        return rows[next(it)].sum()

    assert [step().item() for _ in range(3)] == [3, 12, 21]
    for _ in range(2):
        with pytest.raises(IndexError):
            step()
        assert operator.length_hint(it) == 2
    next(it)
    assert step().item() == 30 and operator.length_hint(it) == 0
    with pytest.raises(StopIteration):
        step()


LOOKS = {
    "sum": lambda it: sum(it),
    "max": lambda it: max(it),
    "in": lambda it: 5.0 in it,
    "unpacked into a call": lambda it: (lambda first, *_: first)(*it),
    "list": lambda it: list(it),
    "heapq.merge": lambda it: next(heapq.merge(it)),
    "heapq.nsmallest": lambda it: heapq.nsmallest(1, it),
    "Counter": lambda it: len(collections.Counter(it)),
    "islice": lambda it: [*itertools.islice(it, 2)],
    "zip": lambda it: next(zip(it, it, strict=False)),
    "iter": lambda it: next(iter(it)),
    "for": lambda it: [x + 1 for x in it],
    "__next__": lambda it: it.__next__(),
    "length_hint": lambda it: operator.length_hint(it),
    "__length_hint__": lambda it: it.__length_hint__(),
    "__reduce__": lambda it: it.__reduce__()[2],
    "__setstate__": lambda it: it.__setstate__(3),
}


@pytest.mark.parametrize("is_behind_next", [False, True])
@pytest.mark.parametrize("name", LOOKS)
def test_what_else_takes_items_runs_op_by_op(agree, name, is_behind_next):
    def scenario(compile):
        items = [float(i) for i in range(9)]
        it = iter(items)

        @compile
        def step(x):
            if is_behind_next:
                x = x + next(it)
            return x, LOOKS[name](it)

        found = [step(lucid.ones(2)), operator.length_hint(it)]
        it = iter(items)
        return found, step(lucid.ones(2)), operator.length_hint(it)

    (step,) = agree(scenario)
    assert len(step.stats.eager_reasons) == 2, step.stats


OF_COUNTS = {
    "one": lambda count: next(count),
    "two": lambda count: next(count) * 10 + next(count),
    "method": lambda count: count.__next__(),
    "text": repr,
    "format": lambda count: f"{count}",
    "others": lambda count: list(zip(count, "ab", strict=False)),
}


@pytest.mark.parametrize("look", OF_COUNTS)
@pytest.mark.parametrize("start", [(1,), (0.5, 0.5), (2**63,)], ids=str)
def test_a_count_that_is_kept(agree, look, start):
    def scenario(compile):
        kept, seen = {"count": itertools.count(*start)}, []

        @compile
        def step(x):
            number = next(kept["count"])
            if number % 3 == 2:
                return x, OF_COUNTS[look](kept["count"])
            return x * number, number

        for i in range(9):
            seen.append((step(lucid.ones(2)), repr(kept["count"])))
            if i == 4:
                kept["count"] = itertools.count(20)
        return seen

    (step,) = agree(scenario)
    if look in ("one", "two") and start == (1,):
        assert not step.stats.eager_reasons
