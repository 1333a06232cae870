"""Lists and deques to which a step adds, or others between its calls, and at which it looks."""

from __future__ import annotations

import copy
import itertools
import math
import re
import statistics
import types
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn

CALLS = 24


class Meter:
    """What averages what it is given."""

    def __init__(self):
        self.values = []

    def update(self, value):
        self.values.append(value)

    @property
    def average(self):
        return sum(self.values) / len(self.values) if self.values else 0.0

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


def last_losses(found):
    def step(x):
        found.append(x.sum().item())
        return sum(found[-10:]) / len(found[-10:]), found[-1] - found[0]

    return step


def running_mean(found):
    found = deque(found, maxlen=6)

    def step(x):
        found.append(x.mean().item())
        return sum(found) / len(found), max(found), x - sum(found)

    return step


def window(found):
    def step(x):
        found.append(x.mean().item())
        oldest = found.pop(0) if len(found) > 5 else math.nan
        return np.mean(found), oldest, len(found)

    return step


def improvement(found):
    log = defaultdict(list)

    def step(x):
        log["loss"].append(x.mean().item())
        best = min(log["loss"][:-1], default=math.inf)
        return log["loss"][-1] < best, len(log["loss"]) % 7 == 0

    return step


def previous_tensor(found):
    found.append(lucid.zeros(3, dtype=lucid.float64))

    def step(x):
        x = 0.5 * x + found[-1]
        found.append(x)
        return x - found[-2]

    return step


def records(found):
    found.append({"loss": 0.0, "step": 0})

    def step(x):
        found.append({"loss": x.sum().item(), "step": found[-1]["step"] + 1})
        return found[-1]["loss"] - found[-2]["loss"]

    return step


def schedule(found):
    def step(x):
        rate = 0.1 * 0.9 ** len(found)
        found.append(rate)
        return x * rate

    return step


def meter(found):
    found = Meter()

    def step(x):
        found.update(x.mean().item())
        return found.average, len(found), found[-1], f"{found.average:.4f} of {len(found)}"

    return step


def told(found):
    def step(x):
        found.append(x.mean().item())
        print(f"{sum(found) / len(found):.4f} of {len(found)}", max(found[-9:]) - min(found))
        found.append(0.0)

    return step


def epochs(found):
    def step(x):
        found.append(x.mean().item())
        if len(found) == 4:
            mean = statistics.fmean(found)
            found.clear()
            return mean
        return found[-1:], [*found[-2:]]

    return step


def written_at_the_end(found):
    found.append(0.0)

    def step(x):
        found.append(0.0)
        found[-1] = x.sum().item()
        found[-2] += 1.0
        return found[-1], found[-2]

    return step


def shown(found):
    window = deque(maxlen=3)

    def step(x):
        window.append(x.abs().max().item())
        found.append(window[-1])
        print(window)
        return f"{window}", f"{found!r}"

    return step


PROGRAMS = [
    *((last_losses, 3), (running_mean, 4), (window, 4), (improvement, 6), (previous_tensor, 1)),
    *((records, 1), (schedule, 1), (meter, 3), (epochs, 4), (written_at_the_end, 2)),
    *((told, 2), (shown, 4)),
]


@pytest.mark.parametrize(("program", "traces"), PROGRAMS, ids=lambda x: getattr(x, "__name__", x))
def test_a_list_that_grows_is_read_at_each_call(agree, capsys, program, traces):
    def scenario(compile):
        found = []
        step = compile(program(found))
        results = [step(lucid.randn(3, dtype=lucid.float64)) for _ in range(CALLS)]
        return results, found, [*map(float, re.findall(r"[-.\d]+", capsys.readouterr().out))]

    (step,) = agree(scenario)
    assert step.stats.traces <= traces, step.stats.retrace_reasons
    assert not step.stats.eager_reasons


def smoothed(found, average):
    for number in found:
        average = 0.9 * average + 0.1 * number
    return average


def discounted(found):
    total, last = 0.0, 0
    for i, number in enumerate(reversed(found)):
        total, last = 0.9 * total + number, i
    for number in reversed(found):
        total = 0.5 * total + number
    return total, last


def in_displays(found):
    joined = bool(found) and [0.0, *found, (found[-1] if len(found) > 1 else 1.0), *(2.0, 3.0)]
    return joined, (*found[-3:], 2.0), max(*found[-2:], 0.5), sum([*found, 2.0])


LOOKS = {
    "sorted": (lambda x: (sorted(x)[:3], sorted(x, reverse=True)[0], sorted(x)[len(x) // 2]), 2),
    "places": (lambda x: (x[0], x[len(x) // 2], x[1:][0] if len(x) > 1 else 0.0), 2),
    "a tensor": (lambda x: lucid.tensor(x).mean(), 3),
    "an array": (lambda x: (np.array(x), np.diff(x)), 4),
    "a loop": (lambda x: smoothed(x[1:], x[0]), 6),
    "numbered": (lambda x: [i * number for i, number in enumerate(x)], 6),
    "pairs": (lambda x: sum(abs(b - a) for a, b in zip(x[:-1], x[1:], strict=True)), 6),  # noqa: RUF007
    "displays": (in_displays, 4),
    "following": (lambda x: sum(abs(b - a) for a, b in zip(x, x[1:])), 7),  # noqa: B905, RUF007
    "pairwise": (lambda x: sum(abs(b - a) for a, b in itertools.pairwise(x)), 7),
    "of some": (lambda x: sum(i * number for i, number in zip(range(40), x)), 6),  # noqa: B905
    "backwards": (discounted, 6),
    "counted": (lambda x: (x.count(x[-1]), x.index(x[0])), None),
    "looks": (lambda x: sum(int(number) % 7 for number in x[-5:]), 8),
}


GONE_OVER = ("a loop", "numbered", "following", "pairwise", "of some", "backwards", "displays")


def strictly(found):
    total = 0.0
    for one, other in zip(found, found[len(found) % 2 :], strict=True):
        total = 0.5 * total + one * other
    return total


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("given", [list, lambda: deque(maxlen=7)])
def test_numbers_of_a_list_that_grows_are_ordered_and_gone_over(agree, name, given):
    look, traces = LOOKS[name]
    if name in ("places", "a loop", "pairs", "displays", "following", "looks"):
        given = list  # of which there are slices

    def scenario(compile):
        found = given()

        @compile
        def step(x):
            found.append(x.sum().item())
            return look(found)

        return [step(lucid.randn(3, dtype=lucid.float64)) for _ in range(CALLS)]

    (step,) = agree(scenario)
    if traces is not None:
        assert step.stats.traces <= traces + (given is not list), step.stats.retrace_reasons
        assert not step.stats.eager_reasons


@pytest.mark.parametrize("look", [strictly, *(LOOKS[x][0] for x in GONE_OVER)])
def test_numbers_are_gone_over_as_far_as_eager_mode_does(agree, look):
    """Others change the list in between, and the step goes on in the way that eager mode does."""

    def scenario(compile):
        found, results = [3.0, 1.0, 2.0], []

        @compile
        def step(x):
            found.append(x.sum().item())
            try:
                return look(found)
            except (TypeError, ValueError) as error:
                return type(error).__name__

        changes = [[5.0], [], [1, 2], [None], ["a"], [1.0], [lucid.ones(2)], [1.0] * 9]
        for number in range(2 * CALLS):
            results.append(step(lucid.ones(2, dtype=lucid.float64) * number))
            if number % 6 == 5:
                found[0] = 7.0
                found[: len(found) // (1 + number % 4)] = changes[number // 6]
        return results

    agree(scenario)


@pytest.mark.parametrize("kind", [int, np.float32, np.float64, bool])
def test_numbers_that_an_array_would_have_otherwise_stay_what_they_are(agree, kind):
    def scenario(compile):
        found = []

        @compile
        def step(x):
            made = sorted(found)[0], found[len(found) // 2], sum(number * 2 for number in found)
            return x + 1, made, [type(number).__name__ for number in made]

        results = []
        for i in range(20):
            found.append(kind(2 ** (5 * i)) if kind is int else kind(i % 3))
            results.append(step(lucid.ones(2)))
        return results

    agree(scenario)


STACKS = {
    "stacked": lambda found: lucid.stack(found).mean(0),
    "behind": lambda found: lucid.stack(found, dim=1).sum(1),
    "joined": lambda found: lucid.cat(found).std(),
    "a mean": lambda found: sum(found) / len(found),
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("given", [list, lambda: deque(maxlen=7)])
@pytest.mark.parametrize("adds", [lambda x: x * 2, lambda x: x, lambda x: (2 * x).flip(0)])
def test_tensors_of_a_list_that_grows_are_stacked_by_each_call(agree, name, given, adds):
    def scenario(compile):
        found, w = given(), lucid.ones(3, dtype=lucid.float64, requires_grad=True)

        @compile
        def step(x):
            found.append(adds(x))
            loss = (STACKS[name](found) * w).sum()
            loss.backward()
            gradient, w.grad = w.grad, None
            return loss.detach(), gradient

        results = [step(lucid.randn(3, dtype=lucid.float64)) for _ in range(CALLS)]
        return results, [*found]

    (step,) = agree(scenario)
    assert step.stats.traces <= 5, step.stats.retrace_reasons
    assert not step.stats.eager_reasons


def _state_is_there(found, state, x):
    found.append(state)
    state.add_(x)


def _written_after(found, state, x):
    found.append(made := x * 2)
    total = lucid.stack(found).sum(0)
    made.add_(1.0)
    return total


def _first_is_written(found, state, x):
    found.append(x * 2)
    found[0].mul_(1.5)


def _requires_grad(found, state, x):
    found.append(lucid.ones(3, requires_grad=True) * x)


def _ints(found, state, x):
    found.append((x > 0).int())
    return sum(found)


@pytest.mark.parametrize(
    "use", [_state_is_there, _written_after, _first_is_written, _requires_grad, _ints]
)
def test_tensors_that_are_no_rows_are_stacked_as_eager_mode_does(agree, use):
    def scenario(compile):
        found, state = [lucid.ones(3)], lucid.zeros(3)
        if use is _ints:
            found.clear()

        @compile
        def step(x):
            made = use(found, state, x)
            return lucid.stack(found).sum(0).detach() if made is None else made

        results = []
        for i in range(12):
            if i == 8 and use is _first_is_written:
                found.append(state)
            results.append(step(lucid.randn(3)))
        return results, [x.detach() for x in found]

    agree(scenario)


def test_lists_with_other_numbers_behind_them_are_others(agree):
    """Both had one name, and a sum of the one was that of the other."""

    def scenario(compile):
        found, results = [1.0] * 3, []

        @compile
        def step(x):
            return x * sum(found + [1.0]), x * sum(found + [2.0]), x * sum([3.0, *found])

        for i in range(6):
            results.append(step(lucid.ones(2)))
            found.append(0.5 * i)
        return results

    (step,) = agree(scenario)
    assert step.stats.traces == 2 and not step.stats.eager_reasons


def test_two_lists_that_grow_are_joined_at_each_call(agree):
    def scenario(compile):
        one, two, results = [1.0, 2.0], [3.0], []

        @compile
        def step(x):
            one.append(x.sum().item())
            both, twice = [*one, *two], sorted(two + two)
            seen = max(both), both[0], both[-1], len(both), sum(twice[:3]), lucid.tensor(twice)
            both.append(7.0)
            return both, seen

        for i in range(CALLS):
            results.append(step(lucid.ones(2) * (i % 5)))
            two.append(0.5 * i)
            if i == 9:
                two[:3] = []
            if i == 14:
                two.clear()
        return results

    (step,) = agree(scenario)
    assert step.stats.traces <= 5 and not step.stats.eager_reasons


def test_a_list_that_grows_between_calls():
    losses = []

    @lucid.compile
    def step(x):
        weight = sum(losses[-3:]) / 3 if len(losses) >= 3 else 1.0
        return (weight * x).sum() + len(losses)

    for i in range(12):
        weight = sum(losses[-3:]) / 3 if i >= 3 else 1.0
        assert step(lucid.ones(2)).item() == pytest.approx(2 * weight + i)
        losses.append(0.5 * i)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


@pytest.mark.parametrize("use", [lambda x, seen: x.sum(), lambda x, seen: x @ seen[-1][0]])
@pytest.mark.parametrize("given", [list, lambda: deque(maxlen=9)])
def test_of_a_buffer_that_others_fill_the_length_is_read_at_each_call(agree, use, given):
    def scenario(compile):
        buffer = given()

        @compile
        def step(x):
            return use(x, buffer) if len(buffer) >= 4 else None

        results = []
        for i in range(CALLS):
            buffer.append((lucid.full((3,), float(i)), i))
            results.append(step(lucid.randn(3)))
        return results

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


def test_other_entries_and_other_lengths_are_seen():
    losses = []

    @lucid.compile
    def step(x):
        losses.append(x.item())
        return sum(losses) / len(losses), losses[-1] - losses[0]

    def check(value, *before):
        expected = (*before, value)
        mean, moved = step(lucid.tensor(value))
        assert (mean, moved) == (sum(expected) / len(expected), value - expected[0])
        assert losses == [*expected]

    check(1.0)
    check(2.0, 1.0)
    losses[:] = [3, 4.0]
    check(5.0, 3, 4.0)
    losses.clear()
    check(6.0)
    losses[0] = 7.0
    check(8.0, 7.0)
    losses.append("a")
    with pytest.raises(TypeError):
        step(lucid.tensor(1.0))


def test_a_list_that_is_kept_short_and_sorted(agree):
    def scenario(compile):
        found, best = [], []

        @compile
        def step(x):
            found.append(x.abs().max().item())
            if len(found) > 4:
                del found[:-4]
            best.append(found[-1])
            best.sort()
            return sum(found) / len(found), best[0], best.pop() if len(best) > 3 else None

        return [step(lucid.randn(3)) for _ in range(CALLS)], found, best

    (step,) = agree(scenario)
    assert step.stats.traces <= 6 and not step.stats.eager_reasons


def sorted_in_place(found, x):
    before = found[-3:]
    found.sort()
    return before, found[0], found[-1], found[len(found) // 2], sum(found[-3:])


def from_the_greatest(found, x):
    found.sort(reverse=True)
    found.append(x.max().item())
    return found[-1], found[-2], found[0], max(found), len(found)


def turned_round(found, x):
    found[:] = found[::-1]
    return found[-1], found[-2], found[0]


def cut_in_order(found, x):
    best = sorted(found)
    found[:] = best[:8]
    best.append(-1.0)
    found.append(5.0)
    return found[-2], found.pop(), len(best)


SORTS = [sorted_in_place, from_the_greatest, turned_round, cut_in_order]


@pytest.mark.parametrize("order", SORTS)
def test_a_list_is_brought_in_order_by_each_call(agree, order):
    def scenario(compile):
        found, results = [3.0, 1.0], []

        @compile
        def step(x):
            found.append(x.sum().item())
            return order(found, x)

        for i in range(CALLS):
            results.append([step(lucid.ones(2) * (i * 5 % 7)), [*found]])
            if i == 12:
                found[:] = [4.0, 0.0, 2.0]
        return results

    (step,) = agree(scenario)
    assert step.stats.traces <= 6 and not step.stats.eager_reasons, step.stats


def test_what_a_part_is_does_not_follow_the_list():
    found = []

    @lucid.compile
    def step(x):
        found.append(x.item())
        before = list(found)
        last = found[-20:]
        found.append(0.0)
        return before, last, sum(before), found is found

    for i in range(4):
        before, last, total, same = step(lucid.tensor(1.0 + i))
        assert before == last == found[:-1] and total == sum(before) and same
        last.append(5.0)
    assert len(found) == 8


def set_first(entries):
    entries[0] = 4.0


def delete_rest(entries):
    del entries[1:]


COPIES = [
    list, lambda found: found[:], lambda found: found[::-1], lambda found: found.copy(), copy.copy,
    sorted, lambda found: found + [5.0],
]  # fmt: skip
CHANGES = [
    lambda entries: entries.remove(max(entries)), lambda entries: entries.append(9.0),
    lambda entries: entries.insert(0, 7.0), lambda entries: entries.pop(), set_first, delete_rest,
    lambda entries: entries.sort(), lambda entries: entries.extend([1.0, 2.0]),
    lambda entries: entries.clear(),
]  # fmt: skip


@pytest.mark.parametrize(
    "copied", COPIES, ids=["list", "slice", "reversed", "method", "copy", "sorted", "joined"]
)
@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_that_the_step_changes_is_what_it_has_made_of_it(agree, copied, change):
    """The list itself, which others make longer, is none of its business."""

    def scenario(compile):
        found, results = [1.0, 2.0], []

        @compile
        def step(x):
            entries = copied(found)
            change(entries)
            seen = [x * len(entries) + sum(entries), list(entries), entries[-2:], bool(entries)]
            shown = f"{entries}", 9.0 in entries, tuple(entries), len(found)
            return *seen, *shown, entries

        for i in range(6):
            results.append(step(lucid.ones(1)))
            found.append(float(i % 3))
        return results

    agree(scenario)


@pytest.mark.parametrize("change", [lambda found: found.pop(0), set_first, delete_rest])
def test_the_greatest_number_does_not_follow_the_list(agree, change):
    """It was looked for among what was there once the step had run."""

    def scenario(compile):
        found = [1.0, 2.0, 3.0]

        @compile
        def step(x):
            found[:] = [*found[-3:], x.item()]
            greatest, least = max(found), min(found)
            change(found)
            return greatest, least

        return [step(lucid.tensor(float(x))) for x in (5, 1, 4, 2)], found

    agree(scenario)


def test_losses_of_a_training_step_need_no_trace_each():
    losses = []
    model = nn.Linear(3, 2)
    optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)

    @lucid.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        losses.append(loss.item())
        if len(losses) > 4 and losses[-1] > sum(losses[-5:]) / 5:
            optimizer.param_groups[0]["lr"] *= 0.5
        optimizer.step()
        return losses[-1]

    lucid.manual_seed(1)
    for _ in range(20):
        assert step(lucid.randn(5, 3), lucid.randn(5, 2)) == losses[-1]
    assert step.stats.traces <= 5 and not step.stats.eager_reasons


def test_an_object_of_the_users_is_none_of_the_stand_ins():
    class Config:
        scale = 1.0

        def listed(self):
            return [self.scale]

    found, config = [], Config()

    @lucid.compile
    def step(x):
        found.append(x.item())
        return found[-1] * config.scale + len(found) + sum(config.listed())

    for i in range(6):
        config.scale = 2.0 if i > 3 else 1.0
        assert step(lucid.tensor(3.0)) == 4 * config.scale + i + 1


def keeps(loss, history):
    history.append(loss.item())
    return loss


def averages(loss, history):
    history.append(loss.item())
    return sum(history) / len(history), min(history), len(history)


def only_reads(loss, history):
    return loss * (1 + sum(history))


def keeps_dicts(loss, history):
    history.append({"step": len(history), "loss": loss.item()})
    return history


def keeps_tensors(loss, history):
    history.append(loss.detach())


@pytest.mark.parametrize("given", [list, lambda: deque(maxlen=8)])
@pytest.mark.parametrize("use", [keeps, averages, only_reads])
def test_a_history_that_each_call_is_given_is_state(agree, use, given):
    def scenario(compile):
        history = given()

        @compile
        def step(x, history):
            return use((x * x).mean(), history)

        found = []
        for k in range(CALLS):
            found.append(step(lucid.ones(3) * k, history))
            history.extend([0.5] * (use is only_reads))
        return found, [*history]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons
    assert step.stats.traces <= 4, step.stats.retrace_reasons


@pytest.mark.parametrize("use", [keeps_dicts, keeps_tensors])
def test_a_history_of_other_things_than_numbers_is_state_where_a_step_adds_to_it(agree, use):
    def scenario(compile):
        log = {"train": [], "calls": 0}

        @compile
        def step(x, log):
            log["calls"] += 1
            return use((x * x).mean(), log["train"]) is log["train"]

        return [step(lucid.ones(3) * k, log) for k in range(CALLS)], log

    (step,) = agree(scenario, traces=2)
    assert not step.stats.eager_reasons


def test_a_history_that_is_given_may_change_in_between_and_be_another(agree):
    def scenario(compile):
        @compile
        def step(x, history):
            return averages((x * x).mean(), history)

        found = []
        for _ in range(3):
            history = []
            for k in range(CALLS):
                found.append(step(lucid.ones(3) * k, history))
                if k == 5:
                    history[-1] = 100.0
                if k == 7:
                    del history[2:4]
            found.append(history)
        return found

    (step,) = agree(scenario)
    assert step.stats.calls > 2 * CALLS


def test_lists_that_are_made_for_each_call_are_contents(agree):
    def scenario(compile):
        @compile
        def step(x, found, weights):
            found.append(x.sum().item())
            return x * sum(weights)

        found = [[] for _ in range(CALLS)]
        return [step(lucid.ones(3) * k, each, [0.5 * k]) for k, each in enumerate(found)], found

    agree(scenario, traces=1)


def _row(i):
    return lucid.sin(lucid.arange(3.0) + i)


def _takes_two(q, i):
    return q.pop() + q.pop()


def _puts_back(q, i):
    x = q.pop()
    q.append(0.5 * x)
    return x


def _takes_what_it_adds(q, i):
    q.append(_row(i))
    return q.pop() + q[-1]


def _takes_what_it_sets(q, i):
    q[-1] = _row(i)
    return q.pop() + q[1]


def _sets_behind(q, i):
    x = q.pop()
    q[-1] = 0.1 * x
    return x


def _takes_both_ends(q, i):
    return q.pop() + (q.pop(0) if type(q) is list else q.popleft())


def _reads_the_third(q, i):
    x = q.pop()
    return x + q[2] * len(q)


def _may_be_empty(q, i):
    return q.pop() if q else _row(i)


def _handles_the_end(q, i):
    try:
        return q.pop()
    except IndexError:
        return _row(i)


def _pops_or_adds(q, i):
    if i % 3 == 0:
        return q.pop()
    q.append(_row(i))
    return q[-1]


def _deletes(q, i):
    x = q[-1]
    if type(q) is list:
        del q[-1]
    else:
        q.pop()
    return x


TAKE_LAST = {
    f"{kind.__name__}{use.__name__}": (kind, use, count)
    for kind in (list, deque)
    for use, count in (
        *((_takes_two, 40), (_puts_back, 20), (_takes_what_it_adds, 20), (_takes_what_it_sets, 30)),
        *((_sets_behind, 30), (_takes_both_ends, 40), (_reads_the_third, 30), (_may_be_empty, 9)),
        *((_handles_the_end, 9), (_pops_or_adds, 9), (_deletes, 30)),
    )
}


@pytest.mark.parametrize("name", TAKE_LAST)
def test_the_last_entry_is_taken_by_each_call(agree, name):
    kind, use, count = TAKE_LAST[name]

    def scenario(compile):
        todo = kind([_row(i) for i in range(count)])

        @compile
        def step(x, i):
            x *= 0.9
            return x + use(todo, i), len(todo)

        x = lucid.ones(3)
        return [step(x, i) for i in range(14)], [*todo]

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons, step.stats


@pytest.mark.parametrize("kind", [list, deque])
def test_an_entry_that_is_gone_by_then_is_not_read(kind):
    todo = kind(map(float, range(12)))

    @lucid.compile
    def step(x):
        todo.pop()
        return x * todo[5]

    x = lucid.ones(2)
    assert [step(x).tolist() for _ in range(6)] == [[5, 5]] * 6 and len(todo) == 6
    with pytest.raises(IndexError):
        step(x)


@pytest.mark.parametrize("kind", [list, deque])
def test_an_entry_that_is_set_from_the_end_may_be_the_one_that_is_read_from_the_start(agree, kind):
    def scenario(compile):
        todo = kind(map(float, range(12)))

        @compile
        def step(x):
            todo.pop()
            todo[-3] = -todo[-1]
            return x * todo[2] + todo[4], x * todo[1]

        x = lucid.ones(2)
        return [step(x) for _ in range(6)], [*todo]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("kind", [list, deque])
def test_what_was_added_and_taken_again_leaves_the_first_ones_to_be_taken(agree, kind):
    def scenario(compile):
        todo = kind(map(float, range(9)))
        first = (lambda: todo.pop(0)) if kind is list else todo.popleft

        @compile
        def step(x):
            todo.append(7.0)
            return x * todo.pop() + first()

        x = lucid.ones(2)
        return [step(x) for _ in range(9)], [*todo]

    (step,) = agree(scenario, traces=1)
    assert not step.stats.eager_reasons


class Taker:
    """Keeps what its operators are given."""

    taken = None

    def __iadd__(self, other):
        self.taken = other
        return self

    def __setitem__(self, key, value):
        self.taken = value


def adds_in_place(kept, found):
    kept["list"] += found
    kept["taker"] += found


def sets_parts(kept, found):
    kept["list"][0:1] = found
    kept["list"][0:0] = found[-9:] if isinstance(found, list) else ()


def sets_elements(kept, found):
    kept["array"][: len(found)] = found


TAKES: dict[str, Callable[[dict[str, Any], Any], object]] = {
    "an entry of a dict": lambda kept, found: kept.__setitem__("here", found),
    "an attribute by name": lambda kept, found: setattr(kept["taker"], "taken", found),
    "a default": lambda kept, found: kept.update(here=getattr(kept["taker"], "none", found)),
    "a dict by keyword": lambda kept, found: kept.update(here=dict(there=found)),
    "a copy": lambda kept, found: kept.update(here=[found.copy(), copy.copy(found)]),
    "operators": adds_in_place,
    "slices": sets_parts,
    "an array": sets_elements,
}


def sets_entries(kept, found):
    kept["here"] = found
    kept["part"] = found[-9:] if isinstance(found, list) else ()
    kept["list"][0] = found
    kept["taker"][0] = found


TAKES["entries"] = sets_entries


@pytest.mark.parametrize("kind", [list, deque])
@pytest.mark.parametrize("take", TAKES)
def test_others_take_the_list_itself_or_what_is_in_it_by_then(agree, take, kind):
    """What stands for a list while the step is traced stays in nobody's place."""

    def scenario(compile):
        found, seen = kind([1.0]), []
        kept = {"list": [0.0], "array": np.zeros(9), "taker": Taker()}

        @compile
        def step(x):
            found.append(2.0)
            TAKES[take](kept, found)
            return x * len(found) + found[-1]

        for i in range(6):
            seen.append(step(lucid.ones(2)))
            here, taken = kept.get("here"), kept["taker"].taken
            seen.append([here is found, taken is found, type(here), type(taken)])
            seen.append([repr(here), repr(taken), repr(kept["list"]), kept["array"].copy()])
            if i == 2:
                found.append(7.0)
                kept["list"] = [0.0]
        return seen

    agree(scenario)


def test_two_lists_that_were_found_in_one_place(agree):
    """Both have the one name; an entry of the one is none of the other."""

    def scenario(compile):
        histories = {"now": [1.0], "first": None}

        @compile
        def step(x, given):
            histories["now"].append(2.0)
            return x * histories["now"][0], histories["first"][0]

        seen = []
        for i in range(8):
            histories["first"] = histories["first"] or histories["now"]
            if i == 2:
                histories["now"] = [5.0]
            seen.append(step(lucid.ones(2), i > 2))
        return seen

    agree(scenario)


class ReplayBuffer:
    """Fills up, and begins again at its start: as DQN's is written."""

    def __init__(self, capacity):
        self.memory = []
        self.capacity = capacity
        self.position = 0

    def push(self, *record):
        if len(self.memory) < self.capacity:
            self.memory.append(None)
        self.memory[self.position] = record
        self.position = (self.position + 1) % self.capacity


@pytest.mark.parametrize(
    ("look", "traces"),
    [
        (len, 4),
        (lambda memory: memory, 4),
        (lambda memory: memory[-1], None),
        (lambda memory: [record[0] for record in memory if record], None),
    ],
)
def test_a_buffer_that_fills_up_and_begins_again(agree, look, traces):
    """The place of a record follows from the length, or is a place that each call says."""

    def scenario(compile):
        buffer, seen = ReplayBuffer(4), []

        @compile
        def step(x):
            buffer.push(x * 2, (x * x).sum().item())
            return look(buffer.memory)

        for i in range(20):
            if i == 14:
                buffer.capacity = 7
            seen.append([copy.copy(step(lucid.ones(2) * i)), [*buffer.memory], buffer.position])
        return seen

    agree(scenario, traces)


def test_a_place_of_a_list_that_has_been_appended_to_is_within_it(agree):
    """Also where it is none of the last ones, and another list has come, in which it may not be."""

    def scenario(compile):
        state, seen = types.SimpleNamespace(found=[], at=0), []

        @compile
        def step(x):
            state.found.append(0.0)
            state.found[state.at] = 7.0
            state.at += 2
            return x * len(state.found)

        for i in range(18):
            if i in (4, 9):
                state.found, state.at = [1.0] * (i + 3), i % 2 + 1
            seen.append([step(lucid.ones(2)), [*state.found], state.at])
            state.at %= len(state.found)
        return seen

    agree(scenario)


def test_a_chain_of_states_grows_beside_a_loop_that_ends_on_a_value(agree):
    """Who watches the loop makes named tuples of what changes, whose code is nobody's to follow."""

    def scenario(compile):
        chain, seen = [lucid.zeros(4)], []

        @compile
        def step(x):
            state, rounds, goes_on = chain[-1], 0, True
            while goes_on and rounds < 1:
                state = state + x
                goes_on = bool(state.sum() < 3)
                rounds += 1
            chain.append(state)
            return state, rounds

        for _ in range(12):
            seen.append([step(lucid.full((4,), 0.1)), len(chain)])
        return [seen, chain]

    agree(scenario, 2)


class Windowed:
    def __init__(self):
        self.last = []
        self.other = []


def cut_behind(self, loss):
    self.last.append(loss)
    self.last = self.last[-5:]


def joined_and_cut(self, loss):
    self.last = (self.last + [loss])[-5:]


def longer_part(self, loss):
    last = self.last[-6:]
    last.append(loss)
    self.last = last


def newest_first(self, loss):
    self.last = ([loss] + self.last)[:5]


def deleted_in_front(self, loss):
    self.last.append(loss)
    del self.last[:-5]


def starred(self, loss):
    self.last = [*self.last[-5:], loss]


def starred_behind(self, loss):
    self.last = [loss, *self.last, loss / 2][:5]


def replaced_in_place(self, loss):
    self.last.append(loss)
    self.last[:] = self.last[-5:]


WINDOWS = [
    *(cut_behind, joined_and_cut, longer_part, newest_first, deleted_in_front, replaced_in_place),
    *(starred, starred_behind),
]


def windowed(compile, keep, between):
    """What a step makes of a window, which it shows, and `between` changes after its calls."""
    state, results = Windowed(), []

    @compile
    def step(x):
        keep(state, x.sum().item())
        return sum(state.last) / len(state.last), max(state.last), x * len(state.last)

    for number in range(CALLS):
        results.append((*step(lucid.ones(2) * (number % 7)), [*state.last]))
        between(state, number)
    return results, step


@pytest.mark.parametrize("keep", WINDOWS)
def test_the_window_that_each_call_leaves_is_the_one_that_the_next_finds(keep):
    """It was an argument of its length, so a step was traced for each one, and then op by op."""
    results, step = windowed(lucid.compile, keep, lambda state, number: None)
    expected, _ = windowed(lambda function: function, keep, lambda state, number: None)
    for found, eager in zip(results, expected, strict=True):
        assert found[:2] == eager[:2] and found[3] == eager[3]
        np.testing.assert_array_equal(found[2].numpy(), eager[2].numpy())
    assert step.stats.traces <= 3 and not step.stats.eager_reasons


def other_window(state, number):
    if number in (6, 7, 15):
        state.last = [float(number), *range(number % 3)] if number < 15 else [2.0]


def longer_and_empty(state, number):
    if number == 6:
        state.last.append(3.0)
    elif number == 9:
        state.last[0] = 9.0
    elif number == 12:
        state.last = []


def of_others(state, number):
    state.other.append(state.last)
    if number == 9:
        state.other[-1].append(-1.0)


@pytest.mark.parametrize("keep", WINDOWS)
@pytest.mark.parametrize("between", [other_window, longer_and_empty, of_others])
def test_a_window_is_what_stands_in_its_place(agree, keep, between):
    """Whoever else holds an old one finds it as the step has left it."""
    agree(lambda compile: windowed(compile, keep, between)[0])


def test_windows_that_are_one_list_for_a_while(agree):
    def scenario(compile):
        state, results = Windowed(), []

        @compile
        def step(x):
            state.last.append(x.sum().item())
            state.last = state.last[-4:]
            state.other.append(0.5)
            state.other = state.other[-3:]
            return sum(state.last), sum(state.other), len(state.last)

        for number in range(CALLS):
            results.append((*step(lucid.ones(2) * (number % 7)), [*state.last], [*state.other]))
            if number in (5, 6):
                state.other = state.last
            elif number == 14:
                state.last = state.other
        return results

    agree(scenario)


def test_a_list_that_is_replaced_by_parts_of_another(agree):
    def scenario(compile):
        found, other, results = [1.0, 2.0], [5.0] * 9, []

        @compile
        def step(x):
            other.append(x.sum().item())
            kept = other[-6:]
            other[:] = kept
            other.append(0.5)
            found[:] = other[-5:]
            return sum(found), found[-1], found[0], other[-2], sum(kept), len(kept)

        for number in range(8):
            results.append((*step(lucid.ones(2) * number), [*found], [*other]))
        return results

    agree(scenario)


def test_one_new_list_in_two_places_is_one_list(agree):
    def scenario(compile):
        state = Windowed()

        @compile
        def step(x):
            state.last = state.other = (state.last + [x.sum().item()])[-4:]
            return sum(state.other)

        found = [(step(lucid.ones(2) * i), state.last is state.other) for i in range(8)]
        state.last.append(7.0)
        return found, step(lucid.ones(2)), state.last, state.other

    agree(scenario)
