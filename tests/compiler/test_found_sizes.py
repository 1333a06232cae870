"""Results whose sizes follow from values: `x[mask]`, `nonzero`, `unique` and the like."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function
from lucid.nn.utils import rnn

ROWS = [
    [1.0, -2.0, 3.0, 0.0],
    [2.0, 2.0, -1.0, -5.0],
    [0.0, 0.0, 0.0, 0.0],
    [4.0, 1.0, 1.0, 2.0],
]
SIZED = {
    "x[mask]": lambda x: x[x > 0],
    "x[mask, :]": lambda x: x.reshape(2, 2)[x.reshape(2, 2).sum(1) > 0],
    "x[:, mask]": lambda x: x.reshape(2, 2)[:, x[:2] > 0],
    "x[mask of two axes]": lambda x: x.reshape(2, 2)[x.reshape(2, 2) > 0],
    "x[mask, index]": lambda x: x.reshape(2, 2)[x[:2] > 0, lucid.tensor([1])],
    "x[0-d mask]": lambda x: x[x.sum() > 0],
    "masked_select": lambda x: x.masked_select(x > 0),
    "masked_select that broadcasts": lambda x: x.reshape(2, 2).masked_select(x[:2] > 0),
    "nonzero": lambda x: x.nonzero(),
    "nonzero as a tuple": lambda x: x.reshape(2, 2).nonzero(as_tuple=True),
    "argwhere": lambda x: lucid.argwhere(x.reshape(2, 2)),
    "where": lambda x: lucid.where(x > 0),
    "unique": lambda x: x.unique(),
    "unique with more": lambda x: lucid.unique(x, return_inverse=True, return_counts=True),
    "unique rows": lambda x: lucid.unique(x.reshape(2, 2), dim=0, return_counts=True),
    "unique_consecutive": lambda x: lucid.unique_consecutive(x, True, True),
    "unique_consecutive rows": lambda x: lucid.unique_consecutive(
        (x > 0).reshape(2, 2), return_counts=True, dim=0
    ),
    "bincount": lambda x: lucid.bincount(x.abs().long()),
    "bincount with weights": lambda x: lucid.bincount(x.abs().long(), x, minlength=3),
    "repeat_interleave": lambda x: x.repeat_interleave(x.abs().long()),
    "repeat_interleave of rows": lambda x: x.reshape(2, 2).repeat_interleave(x[:2].abs().long(), 0),
    "one_hot": lambda x: F.one_hot(x.abs().long()),
}


@pytest.mark.parametrize("name", SIZED)
def test_results_are_eagers(agree, name):
    function = SIZED[name]

    def scenario(compile):
        step = compile(lambda x: (function(x * 1), x + 1))
        return [step(lucid.tensor(row)) for row in ROWS + ROWS]

    (step,) = agree(scenario)
    assert step.stats.traces <= len(ROWS)
    assert all(" -> " in reason for reason in step.stats.retrace_reasons)


DIFFERENTIABLE = [
    *("x[mask]", "x[mask, :]", "x[:, mask]", "x[mask of two axes]", "x[mask, index]"),
    *("x[0-d mask]", "masked_select", "bincount with weights", "repeat_interleave"),
    "repeat_interleave of rows",
]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_eagers(agree, name):
    function = SIZED[name]

    def scenario(compile):
        w = nn.Parameter(lucid.tensor([1.0, 2.0, -1.0, 0.5]))

        def step(x):
            w.grad = None
            y = function(x + w - w.detach())  # exactly x
            (y * y + y).sum().backward()
            return w.grad.clone()

        step = compile(step)
        return [step(lucid.tensor(row)) for row in ROWS[:2] + ROWS[:2]]

    agree(scenario)


def test_a_semi_supervised_loss_keeps_one_trace(agree):
    def scenario(compile):
        lucid.manual_seed(0)
        x, y = lucid.randn(10, 4), lucid.randint(0, 3, (10,))
        train_mask = lucid.arange(10) % 3 != 0
        model = nn.Linear(4, 3)
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        @compile
        def step(x, y):
            optimizer.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out[train_mask], y[train_mask])
            loss.backward()
            optimizer.step()
            return loss, (out.argmax(1) == y)[~train_mask].float().mean()

        return [[step(x, y) for _ in range(5)], model]

    (step,) = agree(scenario, traces=1)
    assert step.dump_ir().count(" = host nonzero") == 2  # once for each mask


def test_a_mask_that_changes_in_place_is_looked_at_by_each_call(agree):
    def scenario(compile):
        mask = lucid.tensor([True, False, True, False])
        step = compile(lambda x: x[mask] * 2)
        found = [step(lucid.tensor(ROWS[0]))]
        mask[0], mask[1] = False, True
        found.append(step(lucid.tensor(ROWS[0])))
        mask[0] = True
        return [*found, step(lucid.tensor(ROWS[0]))]

    (step,) = agree(scenario, traces=2)
    assert step.stats.retrace_reasons == ["nonzero: i64[2] -> i64[3]"]


@pytest.mark.parametrize(
    "pick",
    [
        lambda x: x[lucid.arange(4) > 1],
        lambda x: x[np.array([True, False, True, False])],
        lambda x: x.repeat_interleave(lucid.tensor([1, 2, 0, 1])),
        lambda x: x[lucid.eye(2).reshape(4).nonzero()[:, 0]],
    ],
)
def test_what_constants_decide_needs_no_call_of_python(agree, pick):
    def scenario(compile):
        step = compile(pick)
        return [step(lucid.tensor(row)) for row in ROWS]

    (step,) = agree(scenario, traces=1)
    assert "host" not in step.dump_ir()


def test_assigning_as_many_values_as_a_mask_has(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor([1.0, 2.0, 3.0, 4.0]))
        total = lucid.zeros(4)

        @compile
        def step(x):
            w.grad = None
            mask = x > 0
            y = x.clone()
            y[mask] = w[mask] * 10
            total[mask] += x[mask]
            y[~mask] = -1.0
            y.sum().backward()
            return y.detach(), w.grad.clone()

        return [[step(lucid.tensor(row)) for row in ROWS + ROWS], total]

    agree(scenario, traces=3)  # two of the rows have two positive elements


def test_a_wrong_number_of_values_is_the_same_error(agree):
    def scenario(compile):
        def step(x):
            x = x.clone()
            x[x > 0] = lucid.ones(2)
            return x

        step = compile(step)
        found = [step(lucid.tensor(ROWS[0]))]
        try:
            step(lucid.tensor(ROWS[3]))
        except ValueError as error:
            found.append(str(error).split("\n")[0])
        return found

    agree(scenario)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: lucid.bincount(x.long()), "bincount: only supports non-negative integers"),
        (lambda x: x.repeat_interleave(x.long()), "repeat_interleave: repeats can not be negative"),
    ],
)
def test_what_numpy_can_not_count_is_the_same_error(function, message):
    step = lucid.compile(function)
    step(lucid.ones(4))
    for call in (function, step):
        with pytest.raises(lucid.LucidError, match=message):
            call(lucid.tensor(ROWS[0]))
    step(lucid.ones(4))
    assert step.stats.traces == 1


def test_in_custom_functions_only_the_places_are_found_by_python(agree):
    class Kept(Function):
        @staticmethod
        def forward(ctx, x):
            (places,) = lucid.where(x > 0)
            ctx.save_for_backward(x, places)
            return x[places] ** 2

        @staticmethod
        def backward(ctx, g):
            x, places = ctx.saved_tensors
            return lucid.zeros_like(x).index_add(0, places, 2 * x[x > 0] * g)

    def scenario(compile):
        w = nn.Parameter(lucid.tensor([1.0, 2.0, 3.0, 4.0]))

        @compile
        def step(x):
            w.grad = None
            Kept.apply(w * x).sum().backward()
            return w.grad.clone()

        return [step(lucid.tensor(row)) for row in ROWS + ROWS]

    (step,) = agree(scenario)
    assert "host nonzero(" in step.dump_ir() and "host Kept" not in step.dump_ir()


def test_several_sizes_that_follow_from_one_another(agree):
    def scenario(compile):
        @compile
        def step(x):
            y = x[x > 0]
            z = y[y < 3]
            return y, z, z.unique(), lucid.zeros(len(z)) + z.flip(0)

        return [step(lucid.tensor(row)) for row in ROWS + ROWS]

    (step,) = agree(scenario)
    assert step.stats.traces == 4


def test_random_and_state_move_once_per_call(agree):
    def scenario(compile):
        count = lucid.zeros(())

        @compile
        def step(x):
            count.add_(1)
            y = lucid.dropout(x, 0.5)
            return y[y != 0], lucid.rand(2)

        return [[step(lucid.ones(8)) for _ in range(6)], count]

    agree(scenario)


def test_results_can_be_differentiated_outside(agree):
    def scenario(compile):
        step = compile(lambda x: x[x > 0].square())
        found = []
        for row in ROWS + ROWS:
            x = lucid.tensor(row).requires_grad_()
            step(x).sum().backward()
            found.append(x.grad)
        return found

    agree(scenario)


def test_a_mask_from_outside_may_pick_examples_in_a_vmap(agree):
    def scenario(compile):
        mask = lucid.tensor([True, False, True, False])
        step = compile(lambda x: lucid.vmap(lambda row: row[mask] * 2)(x))
        return [step(lucid.tensor(ROWS)) for _ in range(2)]

    agree(scenario)
    with pytest.raises(lucid.LucidError, match=r"^vmap: indexing with a bool mask, whose"):
        lucid.compile(lambda x: lucid.vmap(lambda row: row[row > 0])(x))(lucid.tensor(ROWS))


def test_the_profile_names_what_python_finds():
    step = lucid.compile(lambda x: x[x > 0] * 2)
    profile = step.profile(lucid.tensor(ROWS[0]), calls=2)
    assert "nonzero" in profile.host_seconds
    assert step.check(lucid.tensor(ROWS[0])).agrees


@pytest.mark.parametrize("make", [lucid.tensor, np.array])
@pytest.mark.parametrize("order", [[4, 2, 1], [2, 4, 4], [1, 3, 2]])
def test_packed_sequences_whose_lengths_are_an_argument(agree, order, make):
    def scenario(compile):
        net = nn.GRU(3, 2, batch_first=True)

        @compile
        def step(x, lengths):
            packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, last = net(packed)
            padded, counts = rnn.pad_packed_sequence(out, batch_first=True)
            rows = rnn.unpad_sequence(padded, counts, batch_first=True)
            loss = padded.square().sum() + last.sum() + packed.data.sum() + packed.batch_sizes.sum()
            loss.backward()
            return padded.detach(), counts, [row.detach() for row in rows]

        given = [order, order, [4, 4, 4], order[::-1], order]
        return [[step(lucid.ones(3, 4, 3), make(x)) for x in given], net]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_labels_that_follow_each_other_have_one_program_for_all_lengths(agree):
    def scenario(compile):
        w = lucid.randn(8, 11, requires_grad=True)

        @compile
        def step(x, labels, lengths):
            w.grad = None
            rounds = lucid.full((4,), 20)
            loss = F.ctc_loss((x @ w).log_softmax(-1), labels, rounds, lengths)
            loss.backward()
            return loss

        found = []
        for lengths in ([5, 3, 4, 4], [6, 2, 4, 4], [4, 4, 4, 4], [7, 3, 3, 3], [5, 3, 4, 4]):
            x, labels = lucid.randn(20, 4, 8), lucid.randint(1, 11, (16,))
            found += [step(x, labels, lucid.tensor(lengths)), w.grad.clone()]
        return found

    (step,) = agree(scenario, traces=2)
    assert step.stats.eager_reasons == []


@pytest.mark.parametrize(
    "function", [F.one_hot, lucid.bincount, lambda x: lucid.ones(2).repeat_interleave(x)]
)
def test_sizes_beyond_all_memory_are_errors_of_the_library(function) -> None:
    step = lucid.compile(function)
    step(lucid.tensor([0, 1]))
    for run in (function, step):
        with pytest.raises(lucid.TooLargeError, match="more than 64 bits can count"):
            run(lucid.tensor([0, 2**63 - 1]))


# Sizes that differ from call to call are open ---------------------------------------------------


class _Experts(nn.Module):
    """A mixture of experts, each of which computes the rows that are given to it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        weights, chosen = F.softmax(self.gate(x), -1).max(-1)
        out = lucid.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (places,) = lucid.where(chosen == number)
            out.index_add_(0, places, expert(x[places]) * weights[places, None])
        return out


def _rows_without_nan(model, x):
    x = lucid.where(x > 1.5, float("nan"), x)
    whole = ~lucid.isnan(x).any(dim=1)
    return F.mse_loss(model(x[whole]), x[whole])


def _hard_rows(model, x):
    losses = (model(x) - x).square().mean(1)
    hard = losses[losses > losses.detach().median()]
    return hard.sum() / hard.shape[0] if len(hard) > 0 else losses.mean()


def _told_apart(model, x):
    values, inverse = lucid.unique(x[:, 0].round(), return_inverse=True)
    return (values[:, None] * model(lucid.ones(values.shape[0], 4)))[inverse].square().mean()


def _by_two_sizes(model, x):
    """The second size is found in what the first one has left."""
    kept = model(x[x[:, 0] > 0])
    return kept[kept[:, 1] > kept.mean().detach()].square().sum() + kept.mean()


def _targets_in_places(model, x):
    """As detectors set the targets of the boxes that they have matched, `t[range(n), classes]`."""
    kept = model(x[x[:, 0] > 0])
    rows = range(kept.shape[0])
    targets = lucid.zeros_like(kept)
    targets[rows, kept.argmax(1)] = 0.9
    return F.binary_cross_entropy_with_logits(kept, targets) + kept[rows, 1].mean()


def _likeliest_in_places(model, x):
    """As parsers and Q-learning take the score of each row's choice, `x[arange(n), choices]`."""
    kept = model(x[x[:, 0] > 0])
    rows = lucid.arange(len(kept))
    targets = lucid.zeros_like(kept)
    targets[rows, kept.argmax(1)] = 0.9
    return (kept[rows, kept.argmin(1)] - targets[rows, kept.argmax(1)]).square().mean()


OPEN = {
    "mean of elements": lambda model, x: (model(x) - 1)[x > 0.3].square().mean(),
    "rows": lambda model, x: F.mse_loss(model(x[x[:, 0] > 0]), x[x[:, 0] > 0]),
    "rows without nan": _rows_without_nan,
    "hard rows": _hard_rows,
    "nonzero": lambda model, x: model(x)[(x[:, 1] > 0).nonzero().squeeze(1)].square().mean(),
    "masked_select": lambda model, x: model(x).masked_select(x[:, :1] > 0).view(-1, 4).exp().mean(),
    "unique": _told_apart,
    "repeat_interleave": lambda model, x: (
        model(x.repeat_interleave((x[:, 0] * 3).abs().long() + 1, 0)).square().mean()
    ),
    "two sizes": _by_two_sizes,
    "rows of both kinds": lambda model, x: (
        model(x[x[:, 0] > 0]).sum().tanh() + model(x[x[:, 0] <= 0]).square().mean()
    ),
    "a range among indices": _targets_in_places,
    "counted rows among indices": _likeliest_in_places,
    "zeros of that size": lambda model, x: (
        (lucid.zeros_like(x[x[:, 0] > 0]) + model(x)[x[:, 0] > 0]).square().mean()
    ),
}


def _trained(compile, model, loss, batches):
    opt = lucid.optim.SGD(model.parameters(), 0.1)

    @compile
    def step(x):
        opt.zero_grad()
        found = loss(model, x)
        found.backward()
        opt.step()
        return found

    return [*map(step, batches), *model.parameters()]


def _batches(count, rows=24):
    rng = np.random.default_rng(7)
    return [lucid.tensor(rng.standard_normal((rows, 4)).astype("f")) for _ in range(count)]


@pytest.mark.parametrize("name", OPEN)
def test_one_program_serves_all_sizes(agree, name):
    def scenario(compile):
        lucid.manual_seed(1)
        return _trained(compile, nn.Linear(4, 4), OPEN[name], _batches(12))

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and step.stats.calls == 12


def test_who_looks_at_code_sees_that_of_sizes_that_are_known(tmp_path):
    model, batches = nn.Linear(4, 4), _batches(4)
    step = lucid.compile(lambda x: OPEN["rows"](model, x).detach())
    for x in batches:
        step(x)
    before = step.stats.traces
    found = step.profile(batches[3], calls=2)
    assert {"take", "matmul"} <= {total.name for total in found.totals("op")}
    assert step.check(batches[3]).agrees
    assert lucid.debug.bisect(step, batches[3]).culprit == ""
    step.report(tmp_path / "page.html", batches[3], calls=1)
    assert "nonzero" in (tmp_path / "page.html").read_text()
    assert step.stats.traces == before + 1
    for x in batches:  # by the programs that were there
        step(x)
    assert step.stats.traces == before + 1


def test_a_mixture_of_experts_settles_on_one_program(agree):
    def loss(model, x):
        return F.mse_loss(model(x), x)

    def scenario(compile):
        lucid.manual_seed(1)
        return _trained(compile, _Experts(), loss, _batches(14, 96))

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and step.stats.calls == 14


@pytest.mark.parametrize("counts", [(3, 9, 2, 400, 7, 90), (5, 0, 6, 1, 4, 0, 1, 8), (2, 2, 3, 2)])
def test_sizes_may_be_any(agree, counts):
    """Few or many elements: those that there was no room for, none, and only one."""

    def loss(model, x):
        kept = model(x[x[:, 0] > 0])
        return (kept.softmax(0) @ kept.T.exp()).mean() if len(kept) > 1 else x.mean() + kept.sum()

    def scenario(compile):
        batches = [lucid.full((400, 4), 0.5) for _ in counts]
        for batch, count in zip(batches, counts, strict=True):
            batch[count:, 0] = -1
        lucid.manual_seed(1)
        return _trained(compile, nn.Linear(4, 4), loss, batches)

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and step.stats.calls == len(counts)


SEEN = {
    "returned": lambda x: (x.sum(), x.shape[0], len(x), x.numel(), x.size()),
    "computed with": lambda x: (x.shape[0] * 2 + 1, x.sum() / x.size(0), x.shape[0] / 2),
    "in a text": lambda x: f"{x.shape[0]} rows",
    "compared": lambda x: x * 2 if x.shape[0] > 10 else x + 1,
    "as a key": lambda x: {8: "eight"}.get(x.shape[0], "another"),
    "of an int": lambda x: isinstance(x.shape[0], int) and int(x.shape[0]),
    "of new tensors": lambda x: (lucid.ones(x.shape[0], 2), lucid.arange(len(x)) * x[:, 0]),
    "of a slice": lambda x: x[: x.shape[0] // 2] + x[-(x.shape[0] // 2) :],
    "of a view": lambda x: x.view(-1),
    "of a list": lambda x: [row.sum() for row in x],
    "kept in a dict": lambda x: {"count": x.shape[0]},
    "of a range": lambda x: range(x.shape[0]),
    "of what is in a range": lambda x: (
        [x[i, 1] * i for i in range(x.shape[0])],
        [*reversed(range(len(x)))][:2] + [range(len(x))[-1], max(range(len(x)))],
        len(range(len(x))),
        (7 in range(len(x)), range(len(x)) == range(8), isinstance(range(len(x)), range)),
        random.Random(3).sample(range(len(x)), 2),
        dict(enumerate(range(x.size(0))))[2] + range(len(x)).stop,
        np.array(range(len(x))).sum(),
    ),
    "of statistics": lambda x: (x.mean(0), x.var(0), x.std()),
    "of a transpose": lambda x: x.T.contiguous(),
}


@pytest.mark.parametrize("name", SEEN)
def test_python_sees_sizes_of_the_call(agree, name):
    def scenario(compile):
        step = compile(lambda x: SEEN[name](x[x[:, 0] > 0] * 1))
        return [step(x) for x in _batches(8)]

    agree(scenario)


def test_what_was_assumed_of_sizes_holds_or_another_program_takes_over(agree):
    """Two sizes that must be equal, and aren't in the end: eager mode's error."""

    def scenario(compile):
        step = compile(lambda x: (x[x[:, 0] > 0] * x[x[:, 1] > 0]).sum())
        found = []
        for batch in _batches(6):
            batch[:, 1] = batch[:, 0]
            found.append(step(batch))
        batch[0, :2] = lucid.tensor([1.0, -1.0])
        batch[1, :2] = lucid.tensor([1.0, 1.0])
        batch[2, :2] = lucid.tensor([1.0, 1.0])
        with pytest.raises(lucid.ShapeError) as error:
            step(batch)
        return [*found, str(error.value).split("\n")[0], step(_batches(1)[0][:, [0, 0, 1, 2]])]

    agree(scenario)


def test_an_index_beyond_a_found_size_is_eagers_error(agree):
    def scenario(compile):
        step = compile(lambda x, at: x[x > 0][at].sum())
        ones = [lucid.tensor(row) for row in ([1.0, 2.0, -1.0], [1.0, 1.0, 3.0], [0.0, 1.0, 2.0])]
        found = [step(x, lucid.tensor([0, 1])) for x in (*ones, *ones)]
        with pytest.raises(lucid.IndexOutOfRangeError) as error:
            step(ones[0], lucid.tensor([0, 2]))
        return [*found, str(error.value).split("\n")[0]]

    agree(scenario)


def test_threads_find_sizes_of_their_own():
    weight = lucid.linspace(-1, 1, 16).reshape(4, 4)
    step = lucid.compile(lambda x: (x[x[:, 0] > 0] @ weight).exp().sum(0))
    batches = [x * scale for scale in (1.0, -1.0) for x in _batches(20, 64)]
    expected = [(x[x[:, 0] > 0] @ weight).exp().sum(0) for x in batches]
    for x in batches[:3]:
        step(x)
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(step, batches)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4)


# Numbers of the step as sizes ---------------------------------------------------------------------


def _padded_to_the_longest(model, x, lengths):
    n = int(lengths.max())
    inside = lucid.arange(n) < lengths[:, None]
    return (model(x[:, :n]).square().sum(-1) * inside).sum() / inside.sum()


def _attention_over_the_longest(model, x, lengths):
    n = lengths.max().item()
    y = model(x[:, :n])
    inside = lucid.ones(n, n, dtype=lucid.bool).tril()
    scores = (y @ y.transpose(1, 2)).masked_fill(~inside, float("-inf"))
    return (scores.softmax(-1) @ y).square().mean()


def _each_by_its_length(model, x, lengths):
    return sum(model(x[b, : lengths[b]]).square().mean() for b in range(len(x)))


def _parts_of_a_list(model, x, lengths):
    parts = x.reshape(-1, 4)[: int(lengths.sum())].split(lengths.tolist())
    return sum(model(part).square().mean() for part in parts)


def _share_of_the_best(model, x, lengths):
    scores = model(x)[..., 0].flatten()
    return scores.topk(int(0.3 * lengths.sum().item()) + 1).values.square().mean()


def _around(model, x, lengths):
    n = int(lengths[0])
    y = lucid.cat([x[:, n - 2 :], F.pad(x[:, :n], (0, 0, 0, 9 - n)), x.narrow(1, 9 - n, n)], 1)
    return model(y).square().mean() / n


NUMBERS = {
    "padded": _padded_to_the_longest,
    "attention": _attention_over_the_longest,
    "each by a tensor": _each_by_its_length,
    "parts of a list": _parts_of_a_list,
    "topk": _share_of_the_best,
    "computed with": _around,
    "an index": lambda model, x, lengths: model(x)[:, int(lengths[0]) - 2].square().mean(),
    "of new tensors": lambda model, x, lengths: (
        model(lucid.zeros(int(lengths[0]), 4) + x[0, : int(lengths[0])]).square().sum()
        * lucid.linspace(0, 1, int(lengths[0])).sum()
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_one_program_serves_all_numbers_that_are_sizes(agree, name):
    def scenario(compile):
        lucid.manual_seed(1)
        model = nn.Linear(4, 4)
        opt = lucid.optim.SGD(model.parameters(), 0.1)

        @compile
        def step(x, lengths):
            opt.zero_grad()
            loss = NUMBERS[name](model, x, lengths)
            loss.backward()
            opt.step()
            return loss

        x, rng = lucid.linspace(-1, 1, 108).reshape(3, 9, 4), np.random.default_rng(3)
        lengths = [lucid.tensor(rng.integers(2, 10, 3)) for _ in range(10)]
        return [*[step(x, each) for each in lengths], *model.parameters()]

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and step.stats.calls == 10


AT_BOUNDS = {
    "x[:n]": lambda x, n: x[:n] * 2,
    "x[n:]": lambda x, n: x[n:] * 2,
    "x[-n:]": lambda x, n: x[-n:] * 2,
    "x[n]": lambda x, n: x[n] * 2,
    "narrow": lambda x, n: x.narrow(0, 0, n) * 2,
    "topk": lambda x, n: x.topk(n).values * 2,
    "zeros": lambda x, n: lucid.zeros(n, 2) + x[0],
    "arange": lambda x, n: lucid.arange(2, n) * x[0],
    "split": lambda x, n: x.split([n, 6 - n])[0] * 2,
    "to broadcast": lambda x, n: x * lucid.ones(n),
    "a dim": lambda x, n: (x * 2).sum(n),
    "rolled": lambda x, n: x.roll(n) * x,
    "a part of an argument": lambda x, n: (x[:n], x[-n:].view(-1, 1)),
    "rounds of a loop": lambda x, n: sum(x[i] for i in range(n)) + x,
}


@pytest.mark.parametrize("name", AT_BOUNDS)
def test_numbers_may_be_any(agree, name):
    """None, one, all, too many, negative ones: eager mode's results, and its errors."""

    def scenario(compile):
        @compile
        def step(x, count):
            return AT_BOUNDS[name](x, int(count))

        found = []
        for count in [3, 5, 4, 6, 0, 1, 7, 5, -1, 2, 6, 3, -7, 4, 1, 0]:
            try:
                found.append(step(lucid.arange(6).float(), lucid.tensor([count])))
            except lucid.LucidError as error:
                found.append((type(error), str(error).split("\n")[0]))
        return found

    (step,) = agree(scenario)
    assert not any("rounding" in reason for reason in step.stats.eager_reasons)


def test_numbers_that_choose_a_path_and_are_sizes(agree):
    def scenario(compile):
        calls = []

        @compile
        def step(x, count):
            n = int(count)
            y = x[:n].exp() if n > 3 else x[:n].cumsum(0)
            calls.append(n)
            return y, n, n / 2, f"{n} rows"

        counts = [2, 5, 3, 4, 6, 2, 5]
        return [[step(lucid.arange(6).float(), lucid.tensor(n)) for n in counts], calls]

    (step,) = agree(scenario)
    assert step.stats.traces <= 4


def test_an_error_leaves_sizes_open(agree):
    """The call that would be the second trace, with the size open, finds an error instead."""

    def scenario(compile):
        step = compile(lambda x, count: x.narrow(0, 0, int(count)).exp())
        found = []
        for count in [3, 25, 4, 5, 25, 6, 7]:
            try:
                found.append(step(lucid.arange(20).float(), lucid.tensor(count)))
            except lucid.IndexOutOfRangeError as error:
                found.append(str(error).split("\n")[0])
        return found

    (step,) = agree(scenario)
    assert step.stats.traces == 2


def test_a_size_that_is_equal_to_another_one_by_chance_has_a_program_of_its_own(agree):
    def scenario(compile):
        model = nn.Linear(4, 4)

        @compile
        def step(x, count):
            n = int(count)
            return (model(x).exp().sum() * lucid.arange(n).sum() + model(x[:n]).square().sum(),)

        x = lucid.linspace(-1, 1, 24).reshape(6, 4)
        with lucid.no_grad():
            return [step(x, lucid.tensor(n)) for n in [6, 3, 6, 2, 4, 6, 5, 3]]

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and step.stats.calls == 8


def test_a_step_looks_at_what_a_recurrent_layer_makes_of_an_open_length() -> None:
    def trained(compile: Any) -> tuple[list[float], Any]:
        lucid.manual_seed(0)
        layer, best, found = lucid.nn.GRU(3, 4, batch_first=True), [1e9], []
        optimizer = lucid.optim.SGD(layer.parameters(), lr=0.1)

        @compile
        def step(x: lucid.Tensor, lengths: lucid.Tensor) -> lucid.Tensor:
            optimizer.zero_grad()
            loss = layer(x[:, : int(lengths.max())])[0].square().mean()
            loss.backward()
            optimizer.step()
            if loss < best[0]:
                best[0] = loss.item()
            return loss

        for n in (4, 5, 7, 6, 9, 8, 3, 5, 10, 4):
            found += [step(lucid.randn(2, 12, 3), lucid.tensor([2, n])).item(), *best]
        return found, step

    found, step = trained(lucid.compile)
    assert found == pytest.approx(trained(lambda step: step)[0], rel=1e-4)
    assert step.stats.traces <= 4
    assert not step.stats.eager_reasons


# Ints that are read at each call as sizes ---------------------------------------------------------


class _Settings:
    def __init__(self, length: int, rows: Any = None) -> None:
        self.length, self.rows, self.at, self.part = length, rows, 0, None


def _masked(x, n):
    return (x[:, :n] * (lucid.arange(n) < x.shape[1])).sum(1)


def _discounted(x, n):
    return (x[:, :n] * 0.9 ** lucid.arange(n).float()).sum(1) / n


def _causal(x, n):
    scores = x[:, :n].T @ x[:, :n]
    return scores.masked_fill(lucid.triu(lucid.ones(n, n), 1).bool(), float("-inf")).softmax(-1)


def _padded_to_a_multiple(x, n):
    return F.pad(x[:, :n], (0, -(-n // 4) * 4 - n)).reshape(-1, 4).sum(1)


VARYING = {
    "x[:n]": lambda x, n: x[:, :n] * 2,
    "x[-n:]": lambda x, n: x[:, -n:].mean(1) + x[:, :-n].sum(),
    "arange": _masked,
    "discounted": _discounted,
    "causal": _causal,
    "padded": _padded_to_a_multiple,
    "topk": lambda x, n: x.topk(n).values.mean(1),
    "a share": lambda x, n: x.topk(max(1, int(n * 0.75))).values.mean(1),
    "at most": lambda x, n: x[:, : min(n, 12)].square().sum(1),
    "one more": lambda x, n: x[:, : n + np.int64(1)] * x[:, : 1 + n],
    "expanded": lambda x, n: x[0].expand(n, 24).cumsum(0),
    "in two": lambda x, n: x[:, :n].mean(1) - x[:, n:].mean(1),
    "compared": lambda x, n: (x[:, :n] < n, lucid.arange(n) == n - 1, lucid.arange(n).char() != n),
    "stacked": lambda x, n: lucid.stack([x[:, :n], x[:, -int((lucid.arange(24) < n).sum()) :]]),
    "rolled": lambda x, n: x.roll((n - 9, n), (0, 1)) * x,
    "views": lambda x, n: (x[:, n:], (x * 2)[:, :n].T, (x * 2).reshape(-1)[:n]),
}


@pytest.mark.parametrize("name", VARYING)
@pytest.mark.parametrize("place", ["argument", "NumPy's", "attribute"])
def test_one_program_serves_all_lengths_that_a_caller_sets(agree, name, place):
    def scenario(compile):
        settings = _Settings(0)
        of_argument = compile(VARYING[name])
        of_attribute = compile(lambda x: VARYING[name](x, settings.length))
        found = []
        for n in (5, 6, 7, 9, 10, 8, 13, 11, 15, 14, 5, 17):
            settings.length, x = n, lucid.randn(3, 24)
            given = np.int64(n) if place == "NumPy's" else n
            found.append(of_attribute(x) if place == "attribute" else of_argument(x, given))
        return found

    made = agree(scenario)
    step = made[place == "attribute"]
    assert step.stats.traces <= 5 + (place == "NumPy's") and not step.stats.eager_reasons


def _erased(x, top, bottom, left, right):
    x = x.clone()
    x[:, top:bottom, left:right] = 0.0
    return x * 2


def _cutmix(x, top, bottom, left, right):
    order = lucid.tensor([2, 0, 1])
    x = x.clone()
    x[:, top:bottom, left:right] = x[order, top:bottom, left:right]
    area = (bottom - top) * (right - left) / (x.shape[1] * x.shape[2])
    return x * (1 - area)


def _row_by_view(x, top, bottom, left, right):
    x = x.clone()
    row = x[:, top]
    row += 1.0
    x[:, top, left:right] *= 2
    return x * 2


BOXES = {
    "read": lambda x, t, b, m, n: x[:, t:b, m:n].square().mean((1, 2)),
    "axes": lambda x, t, b, m, n: x[:, t:b].sum((1, 2)) - x[..., m:n].sum((1, 2)),
    "a row": lambda x, t, b, m, n: x[:, t, m:n].sum(1),
    "a column": lambda x, t, b, m, n: x[..., t:b, m].sum(1),
    "a crop": lambda x, t, b, m, n: x[:, t : t + 3, m : m + 4].flatten(1) * 2,
    "apart": lambda x, t, b, m, n: x[t % 3 : t % 3 + 1, :, m:n].sum(2),
    "erased": _erased,
    "cutmix": _cutmix,
    "a row that is written": _row_by_view,
}
OF_ONE_PLACE = ("apart", "a row that is written")  # at which Python looks


@pytest.mark.parametrize("kind", [int, np.int64, "computed", "an entry of an array", "a tensor"])
@pytest.mark.parametrize("name", BOXES)
def test_boxes_whose_bounds_are_ints_are_eagers(agree, name, kind):
    """Also those that are empty, turned around, beyond the end and counted from it."""
    rng = np.random.default_rng(1)
    boxes = []
    for _ in range(14):
        (top, left), (height, width) = rng.integers(0, 5, 2), rng.integers(2, 5, 2)
        boxes.append([top, top + height, left, left + width])
    boxes += [
        [2, 2, 1, 3],
        [1, 2, 0, 9],
        [3, 1, 0, 4],
        [2, 12, 1, 4],
        [-4, -1, 2, 5],
        [0, 3, 1, 20],
    ]

    def scenario(compile):
        w = lucid.randn(3, 9, 10, requires_grad=True)

        @compile
        def step(x, box):
            w.grad = None
            if kind == "computed":
                box = [np.clip(bound.item(), -4, 20) for bound in box]
            elif kind == "an entry of an array":
                box = box.numpy() + 0
                box = [box[i] for i in range(4)]
            found = BOXES[name](x * w, *box)
            found.sum().backward()
            return found

        given = [
            lucid.tensor(box) if isinstance(kind, str) else [kind(bound) for bound in box]
            for box in boxes
        ]
        return [(step(lucid.randn(3, 9, 10), box), w.grad.clone()) for box in given]

    (step,) = agree(scenario)
    if name not in OF_ONE_PLACE and (name, kind) != (
        "a column",
        "a tensor",
    ):  # which picks elements
        assert max(program.calls for program in step.stats.programs) >= 8, step.stats


def test_a_gradient_has_its_leafs_size_however_that_is_computed(agree):
    places = [3, 3, 0, 2, 1, 3, 2, 3, 0, 1, 3, 2]

    def scenario(compile):
        w = lucid.ones(4, 3, requires_grad=True)
        optimizer = lucid.optim.SGD([w], 0.1)

        @compile
        def step(x, place):
            at = place.item()
            loss = (w[at] - x[at]).square().sum() + w[:at].sum() + w[at : at + 2].prod()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        found = [step(lucid.randn(4, 3), lucid.tensor(at)) for at in places]
        return found, w, w.grad

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


OF_TWO = {
    "a sum": lambda x, n, m: x[: n + m] * 2,
    "a product": lambda x, n, m: x[: n * m].square().sum(),
    "a difference": lambda x, n, m: x[: n + 2 * m - 1].cumsum(0) + (n - m),
    "a quotient": lambda x, n, m: x[: n * 8 // m].mean(),
    "counted": lambda x, n, m: x[: int((x < n).sum()) + int((x < m).sum())] + 1,
    "both": lambda x, n, m: (x[: n * m].sum(), x[:n].sum(), lucid.arange(n + m) * m),
}


@pytest.mark.parametrize("name", OF_TWO)
@pytest.mark.parametrize("place", ["argument", "attribute"])
def test_a_size_is_computed_of_numbers_that_are_none_themselves(agree, name, place):
    def scenario(compile):
        settings = _Settings(0)
        of_argument = compile(lambda x, n, m: OF_TWO[name](x, n, m))
        of_attribute = compile(lambda x: OF_TWO[name](x, settings.length, settings.at))
        found, x = [], lucid.arange(4000).float()
        lengths = (5, 9), (7, 13), (11, 17), (20, 31), (33, 44), (50, 2), (17, 33), (60, 44)
        for n, m in (*lengths, (33, 60), (2, 7), (0, 3), (1, 1), (60, 9)):
            settings.length, settings.at = n, m
            found.append(of_argument(x, n, m) if place == "argument" else of_attribute(x))
        return found

    made = agree(scenario)
    assert not made[place == "attribute"].stats.eager_reasons


def test_a_curriculum_that_grows_outside_of_the_step(agree):
    def scenario(compile):
        lucid.manual_seed(0)
        layer, settings = nn.GRU(3, 4, batch_first=True), _Settings(2)
        opt = lucid.optim.SGD(layer.parameters(), 0.1)

        @compile
        def step(x):
            opt.zero_grad()
            loss = layer(x[:, : settings.length])[0].square().mean()
            loss.backward()
            opt.step()
            return loss

        found = []
        for _ in range(8):
            found += [step(lucid.randn(2, 12, 3)) for _ in range(2)]
            settings.length += 1
        return [found, *layer.parameters()]

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and not step.stats.eager_reasons


def test_a_cache_whose_length_the_step_advances(agree):
    def scenario(compile):
        cache = _Settings(0, lucid.zeros(2, 16, 4))

        @compile
        def step(query):
            cache.rows[:, cache.at] = query
            cache.at += 1
            rows = cache.rows[:, : cache.at]
            cache.part = (rows @ query[:, :, None]).softmax(1)
            return (cache.part * rows).sum(1)

        return [(step(lucid.randn(2, 4)), cache.part, cache.at) for _ in range(16)]

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and not step.stats.eager_reasons


def test_a_length_beyond_64_bits_takes_all_that_there_is(agree):
    def scenario(compile):
        settings = _Settings(0)
        step, found = compile(lambda x: x[:, : settings.length] * 2), []
        for settings.length in (3, 4, 5, 6, 2**70, 5, 2**70, 2**40, -(2**70), 7):
            found.append(step(lucid.randn(3, 9)))
        return found

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("name", AT_BOUNDS)
def test_lengths_that_a_caller_sets_may_be_any(agree, name):
    def scenario(compile):
        step = compile(lambda x, n: AT_BOUNDS[name](x, n))
        found = []
        for n in [3, 5, 4, 6, 0, 1, 7, 5, -1, 2, 6, 3, -7, 4, 1, 0, 2**70]:
            try:
                found.append(step(lucid.arange(6).float(), n))
            except (lucid.LucidError, OverflowError) as error:
                found.append((type(error), str(error).split("\n")[0]))
        return found

    agree(scenario)


class _Rows(nn.Module):
    """Results with as many rows as are positive, and one that is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        rows = self.layer(x).tanh()[x[:, 0] > 0]
        return rows, rows.sum() / rows.shape[0]


class _Padded(nn.Module):
    """Attention over as much of a padded batch as there is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        count = int((x[0, :, 0] > 0).sum())
        x = self.layer(x[:, :count])
        return (x @ x.transpose(1, 2)).softmax(-1) @ x, x.mean()


def _trained_alone(model, step, x):
    rows, number = step(x)
    (rows.square().mean() + number).backward()
    return [*model.parameters()]


def _one_result_alone(model, step, x):
    return lucid.autograd.grad(step(x)[1], [*model.parameters()])


def _twice(model, step, x):
    loss = step(x)[0].sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(lucid.LucidError, match="a second time"):
        loss.backward()


def _with_respect_to_inputs(model, step, x):
    x.requires_grad_()
    step(x)[0].square().mean().backward()
    return x.grad


def _without_gradients(model, step, x):
    with lucid.no_grad():
        result = step(x)
    step(x)[1].backward()
    return result


def _transposed_gradient(model, step, x):
    rows, _ = step(x)
    rows.backward(lucid.linspace(0, 1, rows.numel()).reshape(rows.shape[::-1]).mT.reshape_as(rows))


ALONE = [
    _trained_alone,
    _one_result_alone,
    _twice,
    _with_respect_to_inputs,
    _without_gradients,
    _transposed_gradient,
]


TAKING = {
    "windows": lambda x, n: x.unfold(1, n % 4 + 2, 1).sin(),
    "padding": lambda x, n: F.pad(x, (n % 5, n % 3)).cumsum(1),
    "stride": lambda x, n: F.conv1d(x[None], lucid.ones(2, 6, 3), stride=n % 2 + 1, padding=n % 3),
    "turn": lambda x, n: x.roll(n, 0) * x,
}


@pytest.mark.parametrize("name", TAKING)
def test_a_model_alone_takes_numbers_that_change(agree, name):
    def scenario(compile):
        model, settings, found = nn.Linear(6, 6), _Settings(0), []
        step = compile(lambda x: TAKING[name](model(x), settings.length))
        for n in (3, 5, 8, 4, 9, 2, 7, 6, 10, 4, 1, 0, 12):
            settings.length = n
            model.zero_grad()
            step(lucid.randn(6, 6)).square().sum().backward()
            found.append(model.weight.grad.clone())
        return found

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


@pytest.mark.parametrize("use", ALONE)
@pytest.mark.parametrize("kind", [_Rows, _Padded])
def test_a_model_alone_has_one_backward_for_all_sizes(agree, kind, use):
    shape = (40, 6) if kind is _Rows else (2, 40, 6)

    def scenario(compile):
        model, rng = kind(), np.random.default_rng(0)
        step, found = compile(model), []
        for size in (21, 18, 13, 16, 25, 2, 30, 13):
            x = rng.standard_normal(shape).astype(np.float32)
            x[..., 0] = np.where(np.arange(40) < size, 1, -1)
            model.zero_grad()
            found.append(use(model, step, lucid.tensor(x)))
            found += [p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]
        return found

    (step,) = agree(scenario)
    assert step.stats.traces <= 2 * (1 + (use is _without_gradients)), step.stats.retrace_reasons
    for program in step._programs.all():
        rule = program.differentiable
        if rule is not None:
            assert not rule.needs_sizes
            assert all(len(backward._programs.all()) <= 1 for backward in rule._kinds.values())


def test_experts_of_a_model_alone_have_calls_of_their_own(agree):
    """Each call's sizes are its own, also where several wait for their backward."""

    def scenario(compile):
        model = _Experts()
        step, found = compile(model), []
        for _ in range(3):
            losses = [step(x).square().sum() for x in _batches(5, 96)]
            for loss in reversed(losses):
                model.zero_grad()
                loss.backward()
                found += [parameter.grad.clone() for parameter in model.parameters()]
        return found

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and step.stats.calls == 15
    assert "take : f32[n0,4]" in step.stages["residuals"]
    assert re.search(r"kept, [\d.]+ \w+: +\w.*f32\[n0,4\]", str(step.explain()))


class _OnHost(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return lucid.tensor(2 * x.numpy() * gradient.numpy())


class _Counting(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.count = x.shape[0]
        return x / x.shape[0]

    @staticmethod
    def backward(ctx, gradient):
        return gradient / ctx.count


@pytest.mark.parametrize("function", [_OnHost, _Counting])
def test_a_backward_that_needs_sizes_is_eagers(agree, function):
    """Calls that wait for it have backwards for their sizes, and later calls know theirs."""

    def scenario(compile):
        model = nn.Linear(6, 6)
        step, found = compile(lambda x: function.apply(model(x)[x[:, 0] > 0])), []
        for _ in range(2):
            losses = [step(x).tanh().sum() for x in _rows(4)]
            for loss in losses:
                loss.backward()
            found += [parameter.grad.clone() for parameter in model.parameters()]
        return found

    agree(scenario)


def test_what_must_be_known_leaves_other_sizes_open(agree):
    def scenario(compile):
        @compile
        def step(x, n, k):
            averages = F.avg_pool1d(x.T[None], k)
            rows = x[:n]
            chosen = x[x[:, 0] > 0]
            return averages.sum(), rows.sum(0), chosen.sum(0)

        return [step(lucid.randn(12, 3), 2 + i % 9, 2 + i // 6) for i in range(18)]

    (step,) = agree(scenario)
    assert step.stats.traces <= 8 and not step.stats.eager_reasons


def test_a_call_that_fails_leaves_lengths_open(agree):
    def scenario(compile):
        step = compile(lambda x, n: x[:n] * lucid.ones(n))
        found = []
        for n in (3, 4, 5, 6, 20, 7, 8, 20, 9, 10, 11):
            try:
                found.append(step(lucid.randn(12), n))
            except lucid.ShapeError as error:
                found.append(str(error).split("\n")[0])
        return found

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and step.stats.calls == 9


def _of_two_masks(x, lengths):
    inside = lucid.arange(9) < lengths[:, None]
    return x[inside] * x.square()[(lengths[:, None] > lucid.arange(9)) & inside.square().bool()]


def _of_a_mask_and_a_number(x, lengths):
    inside = lucid.arange(9) < lengths[:, None]
    count = int(lengths.sum())
    return x[inside] * lucid.arange(count)[:, None]


@pytest.mark.parametrize("rows", [_of_two_masks, _of_a_mask_and_a_number])
def test_sizes_that_are_equal_in_all_calls_are_found_to_vary_together(agree, rows):
    def scenario(compile):
        step = compile(lambda x, lengths: rows(x, lengths).sum(0))
        rng = np.random.default_rng(2)
        return [step(lucid.randn(3, 9, 4), lucid.tensor(rng.integers(2, 10, 3))) for _ in range(9)]

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and not step.stats.eager_reasons


def test_numbers_that_are_equal_to_found_sizes_vary_with_them(agree):
    def scenario(compile):
        settings = _Settings(0)
        step = compile(lambda x, mask: x[mask] * lucid.arange(settings.length)[:, None])
        found = []
        for length in (4, 6, 5, 9, 7, 8, 3, 10, 6):
            settings.length = length
            found.append(step(lucid.randn(12, 2), lucid.arange(12) < length))
        return found

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


def test_the_elements_of_packed_sequences_are_of_any_number(agree):
    """A language model: a loss over the elements that a recurrent layer makes of packed ones."""

    def scenario(compile):
        lucid.manual_seed(0)
        words, layer = nn.Embedding(9, 3), nn.GRU(3, 9, batch_first=True)
        opt = lucid.optim.SGD([*words.parameters(), *layer.parameters()], 0.1)

        @compile
        def step(ids, lengths):
            opt.zero_grad()
            packed = rnn.pack_padded_sequence(words(ids[:, :-1]), lengths, batch_first=True)
            found, _ = layer(packed)
            aims = rnn.pack_padded_sequence(ids[:, 1:], lengths, batch_first=True)
            loss = F.cross_entropy(found.data, aims.data)
            loss.backward()
            opt.step()
            return loss, found.batch_sizes

        rng, found = np.random.default_rng(1), []
        for _ in range(10):
            lengths = lucid.tensor(np.sort(rng.integers(2, 9, 4))[::-1].copy())
            found.append(step(lucid.tensor(rng.integers(0, 9, (4, 9))), lengths))
        return [found, *layer.parameters()]

    (step,) = agree(scenario)
    assert step.stats.traces <= 4 and not step.stats.eager_reasons


_COUNTED = {
    "a mean by hand": lambda s, n: s / n,
    "of one more": lambda s, n: s / (n + 1e-16),
    "a share": lambda s, n: s * (n / 30),
    "at least one": lambda s, n: s / max(n, 1),
}


@pytest.mark.parametrize("name", _COUNTED)
def test_a_count_may_be_a_number_alone(agree, name):
    """As triplet losses have it: the rows that are counted aren't read otherwise."""

    def scenario(compile):
        weight = lucid.ones(5).requires_grad_()

        @compile
        def step(x):
            y = (x * weight).sum(1)
            loss = _COUNTED[name](y.clamp(min=0).sum(), y[y > 0].size(0))
            loss.backward()
            return loss

        return [step(lucid.randn(30, 5)) for _ in range(9)] + [weight.grad]

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and not step.stats.eager_reasons


def test_second_derivatives_of_a_model_alone(agree):
    def scenario(compile):
        model = _Rows()
        step, found = compile(model), []
        for _ in range(2):
            inputs = [x.requires_grad_() for x in _rows(4)]
            for x, (rows, number) in [(x, step(x)) for x in inputs]:
                loss = rows.square().sum() * number
                (gradient,) = lucid.autograd.grad(loss, x, create_graph=True)
                gradient.square().sum().backward()
                found += [gradient, x.grad]
        return [*found, *(parameter.grad for parameter in model.parameters())]

    agree(scenario)


def _rows(count):
    rng = np.random.default_rng(0)
    return [lucid.tensor(rng.standard_normal((20, 6)).astype(np.float32)) for _ in range(count)]


@pytest.mark.parametrize("place", ["argument", "item"])
def test_a_size_that_many_rounds_compute_has_a_program_for_each(agree, place):
    """Formulas of open sizes would double with each round, which reads the one before twice."""

    def scenario(compile):
        @compile
        def step(x, n):
            a, b = n.item() if place == "item" else n, 1
            for _ in range(40):
                a, b = (a + b) % 1009, a
            return x[: a % 7 + 2].sum(), lucid.zeros(a % 7 + 2)

        given = [lucid.tensor(n) if place == "item" else n for n in (5, 7, 8, 9, 11, 8, 9)]
        return [step(lucid.randn(12), n) for n in given]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_an_error_that_the_step_handles_has_numbers_for_open_sizes(agree):
    """So has a warning: the trace begins again, and knows the sizes that a text is to show."""

    def scenario(compile):
        @compile
        def step(x, n):
            try:
                return x[:n] @ x[:n]
            except lucid.ShapeError as error:
                return str(error).splitlines()[0]

        return [step(lucid.ones(12, 3), n) for n in (2, 4, 5, 6, 7, 3, 5)]

    steps = agree(scenario)
    assert not steps[0].stats.eager_reasons


def test_a_check_of_a_run_has_a_text_for_any_open_size(agree):
    """It is no reason to know them: eager mode says what a call has found."""

    def scenario(compile):
        table = lucid.arange(12.0).reshape(6, 2)

        @compile
        def step(x, n, at):
            return F.embedding(at, table[:n]) + F.one_hot(at, n).sum() + x[at]

        found = []
        for n in (2, 3, 4, 5, 6, 3):
            found.append(step(lucid.ones(6, 1), n, lucid.tensor([0, n - 1])))
        with pytest.raises(IndexError, match="index 4 is out of range for 4 rows"):
            step(lucid.ones(6, 1), 4, lucid.tensor([0, 4]))
        return found

    steps = agree(scenario)
    assert steps[0].stats.traces <= 3


def _kept(log: Any, found: Any) -> Any:
    log["list"] += found.tolist()
    log["list"].append(-1)
    more = [len(log), 2]
    log["list"].extend(more)
    more.append(9)
    return found.tolist(), {"found": found.tolist()}


def _counted(log: Any, found: Any) -> None:
    log["counts"].update(found.tolist())


def _read(log: Any, found: Any) -> int:
    log["list"].extend(found.tolist())
    return len(log["list"])


def _begun(log: Any, found: Any) -> Any:
    known, kept = found.tolist(), log["list"]
    kept.append(known[0] if known else None)


# What a step does with a list of any size: natively, and in how many traces.
LISTED: dict[str, tuple[Any, int]] = {
    "extend": (lambda log, found: log["list"].extend(found.tolist()), 3),
    "a deque's extend": (lambda log, found: log["deque"].extend(found.tolist()), 3),
    "append": (lambda log, found: log["list"].append((1, found.tolist())), 3),
    "what comes after it": (_kept, 3),
    "rows": (lambda log, found: log["list"].extend(found[:, None].tolist()), 3),
    "truths": (lambda log, found: log["list"].extend((found > 1).tolist()), 3),
    "an array's": (lambda log, found: log["list"].extend(found.numpy().tolist()), 3),
    "an entry": (lambda log, found: log.__setitem__("last", found.tolist()), 3),
    "a text": (lambda log, found: log["list"].append(f"{found.tolist()}"), 3),
    "json": (lambda log, found: log["list"].append(json.dumps({"at": found.tolist()})), 3),
    "counts": (_counted, 14),  # whose numbers are looked at
    "its class": (lambda log, found: isinstance(found.tolist(), list) and found.tolist(), 3),
    "a result that is computed": (lambda log, found: found + 0, 3),
    "its entries": (lambda log, found: [2 * x for x in found.tolist()], 6),
    "its length": (lambda log, found: len(found.tolist()), 6),
    "its sum": (lambda log, found: sum(found.tolist()), 6),
    "an entry of it": (lambda log, found: (found.tolist() or [9])[0], 6),
    "a comparison": (lambda log, found: found.tolist() == [0, 1], 6),
    "whether there are any": (_begun, 6),
    "a change": (lambda log, found: [*found.tolist(), 5], 6),
    "a list that is read": (_read, 6),
}  # fmt: skip


@pytest.mark.parametrize("use", LISTED)
def test_lists_of_what_is_found(use: str) -> None:
    function, traces = LISTED[use]

    def called(compile: Any) -> tuple[Any, list[Any]]:
        log: dict[str, Any] = {"list": [], "deque": deque(maxlen=5), "counts": Counter(), "last": 0}
        step, random = compile(lambda x: function(log, x.nonzero().flatten())), np.random
        rows = random.default_rng(0).integers(0, 3, (14, 6))
        return step, [[repr(step(lucid.from_numpy(row))), repr(log)] for row in rows]

    step, found = called(lucid.compile)
    assert found == called(lambda function: function)[1]
    assert step.stats.traces <= traces and not step.stats.eager_reasons


def test_a_list_of_very_many_numbers_is_kept() -> None:
    kept: list[int] = []

    @lucid.compile
    def step(x: lucid.Tensor) -> None:
        kept.extend(x.tolist())

    for i in range(3):
        step(lucid.arange(3000) + i)
    assert kept == [n + i for i in range(3) for n in range(3000)]
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def test_a_list_of_what_is_found_is_one_object_wherever_it_is() -> None:
    log: dict[str, Any] = {"all": []}

    @lucid.compile
    def step(x: lucid.Tensor) -> Any:
        found = x.nonzero().flatten().tolist()
        log["last"] = found, 1
        log["all"].append(found)
        return found

    for row in ([1, 0, 2], [0, 0, 2], [1, 1, 1], [0, 3, 3]):
        result = step(lucid.tensor(row))
        assert result == [i for i, x in enumerate(row) if x]
        assert result is log["last"][0] is log["all"][-1]
    assert not step.stats.eager_reasons


def test_what_is_found_is_added_to_the_list_that_each_call_is_given() -> None:
    @lucid.compile
    def step(x: lucid.Tensor, log: list[int], also: dict[str, Any]) -> None:
        log.extend((2 * x).tolist())
        also["list"] += x.nonzero().flatten().tolist()

    given: list[tuple[list[int], dict[str, Any]]] = [([], {"list": []}) for _ in range(6)]
    for number, (log, also) in enumerate(given):
        step(lucid.arange(12) % (number + 2), log, also)
    for number, (log, also) in enumerate(given):
        found = np.arange(12) % (number + 2)
        assert log == (2 * found).tolist() and also["list"] == np.flatnonzero(found).tolist()
    assert not step.stats.eager_reasons


def test_whether_there_are_any_is_asked_of_a_list_that_each_call_has() -> None:
    @lucid.compile
    def step(x: lucid.Tensor) -> int:
        found = (2 * x).tolist()
        if found:
            return found[1]
        return -1

    assert [step(lucid.arange(12) + i) for i in range(3)] == [2, 4, 6]
    assert not step.stats.eager_reasons
