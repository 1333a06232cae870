"""Training loops as people write them: one trace, and the same numbers as in eager."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn, optim
from lucid.optim import lr_scheduler
from lucid.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    random_split,
)

OPTIMIZERS = {
    "sgd": lambda p: lucid.optim.SGD(p, lr=0.05),
    "momentum": lambda p: lucid.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "decay": lambda p: lucid.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: lucid.optim.Adam(p, lr=0.01),
    "adamw": lambda p: lucid.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "amsgrad": lambda p: lucid.optim.Adam(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: lucid.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
}
SCHEDULES = {
    "none": lambda opt: None,
    "step": lambda opt: lr_scheduler.StepLR(opt, 2, 0.5),
    "cosine": lambda opt: lr_scheduler.CosineAnnealingLR(opt, T_max=8),
    "lambda": lambda opt: lr_scheduler.LambdaLR(opt, lambda epoch: 1 / (1 + epoch)),
}


def make_model():
    return nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 3)
    )


def batch(i):
    x = lucid.sin(lucid.arange(24.0).reshape(6, 4) * (i + 1))
    return x, (lucid.arange(6) + i) % 3


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_loop_is_traced_once(agree, optimizer, schedule):
    def scenario(compile):
        model = make_model()
        opt = OPTIMIZERS[optimizer](model.parameters())
        scheduler = SCHEDULES[schedule](opt)

        @compile
        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            return loss

        losses = []
        for i in range(5):
            losses.append(step(*batch(i)).detach())
            if scheduler is not None:
                scheduler.step()
        state = [list(entry.values()) for entry in opt.state_dict()["state"].values()]
        return [losses, model, state, lucid.rand(2)]

    agree(scenario, traces=1)


@pytest.mark.parametrize("schedule", ["step", "cosine", "lambda"])
def test_the_scheduler_may_step_inside(agree, schedule):
    def scenario(compile):
        model = nn.Linear(4, 3)
        opt = lucid.optim.Adam(model.parameters(), lr=0.1)
        scheduler = SCHEDULES[schedule](opt)

        @compile
        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            scheduler.step()
            return loss

        losses, rates = [], []
        for i in range(5):
            losses.append(step(*batch(i)).detach())
            rates.append(opt.param_groups[0]["lr"])
        return [losses, rates, scheduler.last_epoch, model]

    agree(scenario, traces=1)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_a_scheduler_in_a_trace_that_fails_does_not_move(agree):
    def scenario(compile):
        model = nn.Linear(4, 3)
        opt = lucid.optim.SGD(model.parameters(), lr=0.1)
        scheduler = lr_scheduler.StepLR(opt, 1, 0.5)

        @compile
        def step(x):
            scheduler.step()
            raise ValueError

        with pytest.raises(ValueError):
            step(lucid.ones(2))
        return [opt.param_groups[0]["lr"] if compile(abs)._options.mode == "native" else 0.1]

    agree(scenario)


def test_train_and_evaluate_alternate(agree):
    def scenario(compile):
        model = make_model()
        opt = lucid.optim.AdamW(model.parameters(), lr=0.01)

        @compile
        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        @compile
        def accuracy(x, y):
            with lucid.no_grad():
                return (model(x).argmax(1) == y).float().mean()

        found = []
        for i in range(3):
            model.train()
            found += [step(*batch(i)).detach(), step(*batch(i + 5)).detach()]
            model.eval()
            found.append(accuracy(*batch(0)))
        return [found, model]

    agree(scenario, traces=2)


def test_a_closure_of_the_optimizer(agree):
    def scenario(compile):
        model = nn.Linear(4, 3)
        opt = lucid.optim.SGD(model.parameters(), lr=0.1)

        @compile
        def step(x, y):
            def closure():
                opt.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            return opt.step(closure)

        return [[step(*batch(i)).detach() for i in range(3)], model]

    agree(scenario, traces=1)


def test_a_loaded_optimizer_state_goes_on(agree):
    def scenario(compile):
        model = nn.Linear(4, 3)
        opt = lucid.optim.Adam(model.parameters(), lr=0.1)

        @compile
        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        step(*batch(0))
        saved = opt.state_dict()
        weights = {k: v.clone() for k, v in model.state_dict().items()}
        moments = {i: {k: v.clone() for k, v in e.items()} for i, e in saved["state"].items()}
        step(*batch(1))
        opt.load_state_dict({"state": moments, "param_groups": saved["param_groups"]})
        model.load_state_dict(weights)
        return [step(*batch(1)).detach(), model]

    agree(scenario, traces=1)


def test_a_parameter_that_gets_no_gradient_is_left_alone(agree):
    def scenario(compile):
        used, unused = nn.Linear(2, 1), nn.Linear(2, 1)
        opt = lucid.optim.Adam([*used.parameters(), *unused.parameters()], lr=0.1)

        @compile
        def step(x):
            opt.zero_grad()
            used(x).square().sum().backward()
            opt.step()

        for _ in range(3):
            step(lucid.ones(2, 2))
        return [used, unused, len(opt.state_dict()["state"])]

    agree(scenario, traces=1)


def test_an_added_parameter_group_is_noticed(agree):
    def scenario(compile):
        a, b = nn.Linear(2, 2), nn.Linear(2, 1)
        opt = lucid.optim.SGD(a.parameters(), lr=0.1)

        @compile
        def step(x):
            opt.zero_grad()
            b.zero_grad()
            b(a(x)).square().sum().backward()
            opt.step()

        step(lucid.ones(3, 2))
        opt.add_param_group({"params": b.parameters(), "lr": 0.01})
        step(lucid.ones(3, 2))
        return [a, b]

    agree(scenario, traces=2)


def test_a_layer_is_unfrozen_by_the_step_that_adds_it_to_the_optimizer(agree):
    """Once: the step asks how many groups there are before it adds one."""

    def scenario(compile):
        a, b = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3)
        opt = lucid.optim.Adam(b.parameters(), lr=0.1)

        @compile
        def step(number, x):
            if number == 4 and len(opt.param_groups) == 1:
                a.requires_grad_(True)
                opt.add_param_group({"params": a.parameters(), "lr": 0.01})
            opt.zero_grad()
            b(a(x)).square().sum().backward()
            opt.step()

        for number in range(8):
            step(number, lucid.ones(2, 4))
        return [a, b, len(opt.param_groups), a.weight.requires_grad]

    (step,) = agree(scenario)
    assert [reason.split("\n")[0] for reason in step.stats.eager_reasons] == [
        "it gives an optimizer one more group, by add_param_group()"
    ]


@pytest.mark.parametrize("size", [1, 0])
def test_a_batch_may_be_short_or_empty(agree, size):
    """An empty mean is NaN, and so are the parameters after it, in both modes."""

    def scenario(compile):
        model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
        opt = lucid.optim.Adam(model.parameters())

        @compile
        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            return loss

        x, y = batch(0)
        return [step(x, y), step(x[:size], y[:size]), model]

    agree(scenario, traces=2)


def _subset():
    return Subset(TensorDataset(lucid.arange(20.0)), [1, 2, 3, 4])


def _chosen():
    return DataLoader(
        TensorDataset(lucid.arange(9.0)), 3, sampler=SubsetRandomSampler([1, 2, 3, 4])
    )


def _ten(places):
    return DataLoader(TensorDataset(lucid.arange(10.0)), batch_sampler=places)


CHANGES = {
    "an index": (lambda: DataLoader(_subset(), 2), lambda x: x.dataset.indices.__setitem__(0, 9)),
    "one more": (lambda: DataLoader(_subset(), 2), lambda x: x.dataset.indices.append(9)),
    "the indices": (
        lambda: DataLoader(_subset(), 2),
        lambda x: setattr(x.dataset, "indices", [5, 6]),
    ),
    "the dataset": (
        lambda: DataLoader(_subset(), 2),
        lambda x: setattr(x.dataset, "dataset", TensorDataset(-lucid.arange(20.0))),
    ),
    "the tensors": (
        lambda: DataLoader(_subset(), 2),
        lambda x: setattr(x.dataset.dataset, "tensors", (-lucid.arange(20.0),)),
    ),
    "drop_last": (
        lambda: DataLoader(TensorDataset(lucid.arange(7.0)), 3),
        lambda x: setattr(x, "drop_last", True),
    ),
    "collate_fn": (
        lambda: DataLoader(TensorDataset(lucid.arange(7.0)), 3),
        lambda x: setattr(x, "collate_fn", lambda samples: [-lucid.stack([s for (s,) in samples])]),
    ),
    "a sampler's": (_chosen, lambda x: x.sampler.indices.__setitem__(0, 8)),
    "a batch": (lambda: _ten([[1, 2], [3]]), lambda x: x.batch_sampler[1].append(8)),
    "a sample": (
        lambda: DataLoader([(lucid.ones(2),), (lucid.zeros(2),)]),
        lambda x: x.dataset.__setitem__(1, (lucid.ones(2) * 5,)),
    ),
    "a part": (
        lambda: DataLoader(ConcatDataset([_subset(), _subset()]), 3),
        lambda x: x.dataset.datasets.__setitem__(0, TensorDataset(-lucid.arange(4.0))),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_loader_holds_may_change_between_calls(agree, name):
    make, change = CHANGES[name]

    def scenario(compile):
        lucid.manual_seed(1)
        loader = make()
        step = compile(lambda: sum((i + 1) * x.sum() for i, (x,) in enumerate(loader)))
        found = [step(), step()]
        change(loader)
        return [*found, step(), step()]

    (step,) = agree(scenario, traces=2)
    assert not step.stats.eager_reasons


def test_the_size_of_batches_may_change_between_epochs(agree):
    def scenario(compile):
        sampler, found = BatchSampler(range(10), 2, drop_last=True), []
        loader = DataLoader(TensorDataset(lucid.arange(10.0)), batch_sampler=sampler)
        step = compile(lambda: [x.sum() for (x,) in loader])
        for sampler.batch_size in (2, 3, 4, 3, 5, 2):
            found.append(step())
        return found

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


class _Squares(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return lucid.arange(20.0)[index] ** 2, index


@pytest.mark.parametrize(
    "dataset", [TensorDataset(lucid.arange(20.0), lucid.arange(20)), _Squares()]
)
@pytest.mark.parametrize("sampled", ["split", "list", "range"])
def test_a_shuffled_part_of_a_dataset_is_traced_once(agree, dataset, sampled):
    def scenario(compile):
        lucid.manual_seed(2)
        if sampled == "split":
            part, _ = random_split(dataset, [0.75, 0.25])
            loader = DataLoader(part, 4, shuffle=True)
        else:
            places = [3, 1, 4, 15, 9, 2, 6] if sampled == "list" else range(3, 17, 2)
            loader = DataLoader(dataset, 4, sampler=SubsetRandomSampler(places))
        step = compile(lambda: [(x * y).sum() for x, y in loader])
        return [step() for _ in range(5)]

    (step,) = agree(scenario, traces=1)
    assert not step.stats.eager_reasons


class Rows(Dataset):
    """Pairs of a row of an array and a number of NumPy's, as people write it."""

    def __init__(self, count):
        self.x = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
        self.y = np.arange(count, dtype=np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return lucid.from_numpy(self.x[i]), self.y[i]


def _tensors(count):
    lucid.manual_seed(1)
    return TensorDataset(lucid.randn(count, 3), lucid.arange(count) * 1.0)


class Own:
    """A loader of the user's, and the class of its iterations."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        return OwnIteration(self)


class OwnIteration:
    def __init__(self, loader):
        self.loader, self.order, self.at = loader, lucid.randperm(len(loader.x)), 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= len(self.order):
            raise StopIteration
        places = self.order[self.at : self.at + 5]
        self.at += 5
        return self.loader.x[places], self.loader.y[places]


KEPT = {
    "of the user's": (lambda: Own(*_tensors(15).tensors), 5),
    "shuffled": (lambda: DataLoader(_tensors(15), 5, shuffle=True), 5),
    "in order": (lambda: DataLoader(_tensors(15), 5), 5),
    "a shorter last batch": (lambda: DataLoader(_tensors(14), 5, shuffle=True), 7),
    "without the shorter one": (
        lambda: DataLoader(_tensors(17), 5, shuffle=True, drop_last=True),
        5,
    ),
    "with workers": (lambda: DataLoader(_tensors(15), 5, shuffle=True, num_workers=2), 5),
    "a part": (lambda: DataLoader(Subset(_tensors(20), range(3, 18)), 5, shuffle=True), 5),
    "rows of arrays": (lambda: DataLoader(Rows(15), 5, shuffle=True), 5),
    "a generator": (
        lambda: DataLoader(Rows(15), 5, shuffle=True, generator=lucid.Generator().manual_seed(4)),
        5,
    ),
    "single samples": (lambda: DataLoader(Rows(6), None), 5),
}


@pytest.mark.parametrize("way", ["except", "default"])
@pytest.mark.parametrize("name", KEPT)
def test_the_step_takes_the_next_batch_of_a_loader_that_goes_on(agree, name, way):
    make, traces = KEPT[name]

    class Trainer:
        def __init__(self):
            self.model, self.loader = nn.Linear(3, 1), make()
            self.optimizer = optim.SGD(self.model.parameters(), lr=0.05)
            self.batches, self.epoch = iter(self.loader), 0

        def batch(self):
            if way == "except":
                try:
                    return next(self.batches)
                except StopIteration:
                    self.epoch += 1
                    self.batches = iter(self.loader)
                    return next(self.batches)
            found = next(self.batches, None)
            if found is None:
                self.epoch, self.batches = self.epoch + 1, iter(self.loader)
                found = next(self.batches)
            return found

        def step(self):
            x, y = self.batch()
            loss = (self.model(x).squeeze(-1) - y).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss

    def scenario(compile):
        trainer = Trainer()
        step, found = compile(trainer.step), []
        for call in range(26):
            found.append((step(), trainer.epoch))
            if call == 10:  # others may take a batch as well
                found.append(trainer.batch())
        return found, trainer.model.weight

    (step,) = agree(scenario)
    assert step.stats.traces <= traces + 1 and not step.stats.eager_reasons, step.stats


def test_an_iteration_of_a_loader_is_an_object_of_its_own():
    loader = DataLoader(TensorDataset(lucid.arange(5)), 2)
    one, other = iter(loader), iter(loader)
    assert iter(one) is one and len(one) == 3
    assert [x.tolist() for (x,) in (next(one), next(other), next(one))] == [[0, 1], [0, 1], [2, 3]]
    assert [x.tolist() for (x,) in one] == [[4]] and next(one, None) is None
    before = lucid.get_rng_state()
    shuffled = iter(DataLoader(TensorDataset(lucid.arange(5)), 2, shuffle=True))
    assert lucid.get_rng_state().equal(before)
    next(shuffled)
    assert not lucid.get_rng_state().equal(before)
