"""A step isn't traced forever: what changes at each call becomes an input, or is said once.

After some calls no further trace is made for the same cause. From then on calls are compiled, or
run op by op with a reason.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import random
import types

import numpy as np
import pytest
from border.harness import (
    Compiling,
    NotAsEagerError,
    WrongProgramError,
    X,
    is_same,
    run,
    same_as_eager,
    uncompiled,
)

import lucid
from lucid import nn
from lucid.compiler.dynamic import Dynamic
from lucid.compiler.tracing import Tracer
from lucid.nn import functional as F

CALLS = 30
TRACES = 8  # in which a cause must have been understood


class Limited(Compiling):
    """`compile` whose steps stop a program that is traced too often."""

    def __call__(self, function=None, **options):
        step = super().__call__(function, **options)

        def call(*args):
            result = step(*args)
            if self.traces > TRACES:
                reasons = collections.Counter(self.retrace_reasons).most_common(3)
                raise NotAsEagerError(f"{self.traces} traces: {reasons}")
            return result

        return call


def settles(program):
    """Make a test of a program of `CALLS` calls: results of eager mode, and an end of traces."""

    def test():
        expected = run(program, uncompiled)
        if len(expected) != CALLS or not is_same(run(program, Compiling(mode="eager")), expected):
            raise WrongProgramError("two runs in eager mode differ")
        compile = Limited()
        try:
            found = run(program, compile)
        except NotAsEagerError:
            raise
        except Exception as error:
            raise NotAsEagerError(f"{type(error).__name__}: {error}") from error
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            if not is_same(a, b):
                raise NotAsEagerError(f"result {i} is {a}, in eager mode {b}")
        if not all(compile.eager_reasons):
            raise NotAsEagerError("calls ran op by op without a reason")

    test.__name__ = program.__name__
    test.__doc__ = program.__doc__
    return test


# ------------------------------------------------------------------ as tutorials have it

Transition = collections.namedtuple("Transition", ("state", "action", "next_state", "reward"))


@settles
def test_a_none_in_a_list_of_transitions(compile):
    """Deep Q-learning: the last state of an episode has no next one."""
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    target = copy.deepcopy(net)
    optimizer = lucid.optim.SGD(net.parameters(), lr=0.1)
    drawn = random.Random(4)
    memory = [
        Transition(
            lucid.rand(1, 2),
            lucid.tensor([[i % 2]]),
            None if i % 3 == 0 else lucid.rand(1, 2),
            lucid.tensor([float(i % 5)]),
        )
        for i in range(30)
    ]

    @compile
    def optimize(transitions):
        batch = Transition(*zip(*transitions, strict=True))
        is_last = lucid.tensor([s is None for s in batch.next_state])
        states, actions = lucid.cat(batch.state), lucid.cat(batch.action)
        values = net(states).gather(1, actions)
        following = lucid.zeros(len(transitions))
        with lucid.no_grad():
            following[~is_last] = target(
                lucid.cat([s for s in batch.next_state if s is not None])
            ).max(1)[0]
        loss = F.smooth_l1_loss(values, (following * 0.9 + lucid.cat(batch.reward)).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [optimize(drawn.sample(memory, 5)) for _ in range(CALLS)]


@settles
def test_a_mixture_of_experts(compile):
    """Each expert computes the tokens that chose it, and adds them in at their places."""
    experts = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
    router = nn.Linear(3, 2)
    parameters = [*experts.parameters(), *router.parameters()]
    optimizer = lucid.optim.SGD(parameters, lr=0.01)

    @compile
    def step(x):
        weights, chosen = lucid.topk(F.softmax(router(x), -1), 1, -1)
        y = lucid.zeros_like(x)
        for i, expert in enumerate(experts):
            rows, which = lucid.where(chosen == i)
            if rows.numel() == 0:
                continue
            y.index_add_(0, rows, expert(x[rows]) * weights[rows, which].unsqueeze(1))
        loss = (y - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [step(lucid.randn(6, 3)) for _ in range(CALLS)]


@settles
def test_a_mixture_of_experts_without_a_branch(compile):
    experts = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
    router = nn.Linear(3, 2)

    @compile
    def step(x):
        weights, chosen = F.softmax(router(x), -1).max(-1)
        y = lucid.zeros_like(x)
        for i, expert in enumerate(experts):
            mask = chosen == i
            y.index_add_(0, lucid.where(mask)[0], expert(x[mask]) * weights[mask].unsqueeze(1))
        loss = y.square().mean()
        loss.backward()
        grad, router.weight.grad = router.weight.grad, None
        return loss.detach(), grad

    return [step(lucid.randn(6, 3)) for _ in range(CALLS)]


@settles
def test_rows_that_a_mask_chooses(compile):
    step = compile(lambda x: x[x.sum(1) > 0].sum())
    return [step(lucid.randn(8, 3)) for _ in range(CALLS)]


@settles
def test_batches_of_many_lengths(compile):
    step = compile(lambda x: (x * 2).sum())
    return [step(lucid.randn(1 + i % 20, 3)) for i in range(CALLS)]


@settles
def test_lists_of_many_lengths(compile):
    step = compile(lambda parts: sum(part.sum() for part in parts))
    return [step([lucid.ones(2)] * (1 + i * 7 % 23)) for i in range(CALLS)]


@settles
def test_episodes_of_many_lengths(compile):
    @compile
    def returns(rewards):
        total, found = 0.0, []
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            found.insert(0, total)
        return lucid.tensor(found)

    return [returns([float(j % 3) for j in range(1 + i * 7 % 23)]) for i in range(CALLS)]


# ------------------------------------------------------------------ numbers that move


def trained(compile, change, state):
    @compile
    def step(x):
        return x * state.value

    results = []
    for i in range(CALLS):
        change(i)
        results.append(step(X))
    return results


@settles
def test_a_float_attribute_that_moves(compile):
    state = types.SimpleNamespace(value=1.0)
    return trained(compile, lambda i: setattr(state, "value", 0.9**i), state)


@settles
def test_an_int_attribute_that_moves(compile):
    state = types.SimpleNamespace(value=1)
    return trained(compile, lambda i: setattr(state, "value", i), state)


@settles
def test_an_int_that_slices(compile):
    state = types.SimpleNamespace(k=1)
    step = compile(lambda x: x[: state.k].sum())
    results = []
    for i in range(CALLS):
        state.k = 1 + i * 7 % 23
        results.append(step(lucid.arange(24.0)))
    return results


@settles
def test_an_int_that_repeats(compile):
    """Curriculum: ever more unrolled steps."""
    state = types.SimpleNamespace(steps=1)

    @compile
    def step(x):
        for _ in range(state.steps):
            x = x * 0.5 + 1
        return x

    results = []
    for i in range(CALLS):
        state.steps = 1 + i // 2
        results.append(step(X))
    return results


@settles
def test_a_setting_that_alternates(compile):
    state = types.SimpleNamespace(mode="a")
    step = compile(lambda x: {"a": x * 2, "b": x + 1, "c": -x}[state.mode])
    results = []
    for i in range(CALLS):
        state.mode = "abc"[i % 3]
        results.append(step(X))
    return results


@settles
def test_a_name_of_each_call(compile):
    names = types.SimpleNamespace(run="")
    step = compile(lambda x: x * len(names.run))
    results = []
    for i in range(CALLS):
        names.run = f"step-{i:03d}"
        results.append(step(X))
    return results


@settles
def test_an_object_of_each_call(compile):
    @dataclasses.dataclass
    class Batch:
        x: lucid.Tensor
        weight: float
        name: str = "train"

    step = compile(lambda batch: batch.x * batch.weight)
    return [step(Batch(X, 0.5 * i)) for i in range(CALLS)]


@settles
def test_an_object_of_the_closure_of_each_call(compile):
    holder = types.SimpleNamespace(options=None)
    step = compile(lambda x: x * holder.options.scale)
    results = []
    for i in range(CALLS):
        holder.options = types.SimpleNamespace(scale=1.0 + i % 2)
        results.append(step(X))
    return results


@settles
def test_a_lambda_of_each_call(compile):
    step = compile(lambda x, f: f(x))
    return [step(X, lambda x, k=i % 3: x * k) for i in range(CALLS)]


@settles
def test_a_closure_of_each_call(compile):
    step = compile(lambda x, loss: loss(x))

    def make(target):
        return lambda x: (x - target).square().sum()

    return [step(X, make(lucid.rand(3))) for _ in range(CALLS)]


@settles
def test_a_list_that_grows(compile):
    history = []
    step = compile(lambda x: x - sum(history) / max(len(history), 1))
    results = []
    for i in range(CALLS):
        results.append(step(X))
        history.append(float(i % 4))
    return results


@settles
def test_a_dict_that_grows(compile):
    seen = {}
    step = compile(lambda x: x * len(seen) + seen.get("w0", 0.0))
    results = []
    for i in range(CALLS):
        results.append(step(X))
        seen[f"w{i}"] = 1.0
    return results


@settles
def test_a_replay_memory_that_is_drawn_from(compile):
    memory = collections.deque(maxlen=CALLS)
    drawn = random.Random(5)

    @compile
    def step():
        return sum(item for item in memory)

    results = []
    for _ in range(CALLS):
        memory.append(lucid.tensor([drawn.random()]))
        results.append(step())
    return results


@settles
def test_an_array_that_is_new_at_each_call(compile):
    holder = types.SimpleNamespace(data=None)
    step = compile(lambda x: x * lucid.from_numpy(holder.data))
    results = []
    for i in range(CALLS):
        holder.data = np.full(3, float(i), "f4")
        results.append(step(X))
    return results


@same_as_eager(traces=2)
def test_an_array_that_is_new_at_each_call_and_read_by_numpy(compile):
    holder = types.SimpleNamespace(data=np.ones(3))

    @compile
    def step(x):
        return x * float(holder.data.mean()), holder.data[0] + len(holder.data)

    results = []
    for i in range(CALLS):
        results.append(step(X))
        holder.data = np.full(3, float(i))
    return results


@same_as_eager(traces=2)
def test_statistics_in_arrays_that_the_step_binds(compile):
    class Statistics:
        def __init__(self):
            self.mean, self.square, self.count = np.zeros(3), np.ones(3), 0

        def update(self, rows):
            self.count += 1
            self.mean = self.mean + (rows.mean(0) - self.mean) / self.count
            self.square = 0.9 * self.square + 0.1 * (rows**2).mean(0)

    statistics, results = Statistics(), []

    @compile
    def step(x):
        statistics.update(x.numpy().astype(np.float64))
        scale = lucid.tensor(np.sqrt(statistics.square), dtype=lucid.float32)
        return (x - lucid.tensor(statistics.mean, dtype=lucid.float32)) / scale

    for i in range(CALLS):
        results.append((step(lucid.randn(4, 3) + i), statistics.mean, statistics.square))
    return results


@settles
def test_an_element_of_an_array_that_moves(compile):
    weights = np.ones(10)
    step = compile(lambda x: x * float(weights[3]))
    results = []
    for i in range(CALLS):
        weights[3] = 0.9**i
        results.append(step(X))
    return results


@settles
def test_betas_that_move(compile):
    net = nn.Linear(3, 3)
    optimizer = lucid.optim.Adam(net.parameters(), lr=0.1)

    @compile
    def step(x):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        return net.weight.detach().clone()

    results = []
    for i in range(CALLS):
        optimizer.param_groups[0]["betas"] = (0.9 - 0.01 * i, 0.99)
        results.append(step(X))
    return results


@settles
def test_a_loss_that_is_chosen_at_random(compile):
    drawn = random.Random(6)
    losses = [F.l1_loss, F.mse_loss, F.smooth_l1_loss]
    holder = types.SimpleNamespace(loss=losses[0])
    step = compile(lambda x: holder.loss(x, x * 2))
    results = []
    for _ in range(CALLS):
        holder.loss = drawn.choice(losses)
        results.append(step(X))
    return results


@settles
def test_layers_that_are_dropped_at_random(compile):
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(5)])
    drawn = random.Random(7)
    kept = [True] * 5

    @compile
    def step(x):
        for layer, is_kept in zip(layers, kept, strict=True):
            x = layer(x) if is_kept else x
        return x.detach()

    results = []
    for _ in range(CALLS):
        kept[:] = [drawn.random() < 0.5 for _ in layers]
        results.append(step(X))
    return results


@settles
def test_an_epoch_in_the_order_that_a_loader_draws(compile):
    """Each order is another path, and none comes back."""
    data = lucid.utils.data.TensorDataset(lucid.randn(12, 3), lucid.randn(12, 1))
    loader = lucid.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    net = nn.Linear(3, 1)
    optimizer = lucid.optim.SGD(net.parameters(), lr=0.1)

    @compile
    def epoch():
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    return [epoch() for _ in range(CALLS)]


@settles
def test_a_cache_that_grows_by_a_token_at_each_call(compile):
    """A trace for each length costs more than calls op by op, where none comes back."""
    embed, query, key, value = (nn.Embedding(9, 4), *(nn.Linear(4, 4) for _ in range(3)))
    cache = {"keys": None, "values": None}

    @compile
    def step(tokens):
        x = embed(tokens)
        keys, values = key(x), value(x)
        if cache["keys"] is not None:
            keys = lucid.cat([cache["keys"], keys], 1)
            values = lucid.cat([cache["values"], values], 1)
        cache["keys"], cache["values"] = keys, values
        return F.scaled_dot_product_attention(query(x), keys, values)[0, -1]

    with lucid.no_grad():
        prompt = [step(lucid.tensor([[1, 2, 3]]))]
        return prompt + [step(lucid.tensor([[i % 9]])) for i in range(CALLS - 1)]


def test_one_warning_says_that_calls_run_op_by_op_and_why(caplog):
    """Where retraces end in calls op by op, one warning names the line, the cause and a remedy."""
    state = types.SimpleNamespace(steps=1)

    def step(x):
        for _ in range(state.steps):
            x = x * 0.5 + 1
        return x

    compiled = lucid.compile(step)
    for i in range(CALLS):
        state.steps = 1 + i
        compiled(X)
        if compiled.stats.traces > TRACES:
            raise NotAsEagerError(f"{compiled.stats.traces} traces")
    said = [r.getMessage() for r in caplog.records if "test_retraces_end.py:" in r.getMessage()]
    if compiled.stats.eager_reasons and len(said) != 1:
        raise NotAsEagerError(f"{len(said)} warnings name the line")


def test_what_can_not_be_traced_is_tried_less_and_less_whatever_it_is_called_with():
    runs, counts = [], np.zeros(2, np.float16)

    @lucid.compile
    def step(x, number, is_counted=True):
        runs.append(number)
        if not is_counted:
            return x + number
        counts[number % 2] += 1
        return x * number

    for number in range(CALLS):
        assert step(X, number).tolist() == [x * number for x in X.tolist()]
    assert len(step.stats.eager_reasons) == CALLS
    assert len(runs) < CALLS + 8
    assert [step(X, 5, False).tolist() for _ in range(3)] == [[6.0, 7.0, 8.0]] * 3
    assert step.stats.calls == 2  # what comes again is traced in its turn


def test_a_way_that_can_not_be_traced_is_tried_less_and_less_beside_one_that_can(monkeypatch):
    """A replay memory: nothing is learnt before it is full, and then by transitions drawn of it."""
    memory, traces = collections.deque(maxlen=40), []
    trace = Tracer._trace
    monkeypatch.setattr(Tracer, "_trace", lambda *args: traces.append(1) or trace(*args))

    @lucid.compile
    def learn():
        if len(memory) < 4:
            return X
        return sum(random.sample(memory, 4))

    for number in range(4 * CALLS):
        memory.append(lucid.full((3,), float(number), requires_grad=True))
        found = learn()
        assert number < 3 or set(found.tolist()) <= {*map(float, range(4 * number))}
    assert len(learn.stats.eager_reasons) == 4 * CALLS - 3
    assert len(traces) < 16


def test_calls_that_no_program_serves_soon_take_no_longer_than_op_by_op(monkeypatch):
    """A look for a program takes as long as a call op by op here, whatever the machine does."""
    clock = types.SimpleNamespace(perf_counter=itertools.count(0.0, 1e-6).__next__)
    monkeypatch.setattr("lucid.compiler.compiled.time", clock)
    state = types.SimpleNamespace(text="a")  # whose length isn't read live
    looks = []
    signature = Dynamic.signature
    monkeypatch.setattr(
        Dynamic, "signature", lambda *args: looks.append(state.text) or signature(*args)
    )
    step = lucid.compile(lambda x: x[: len(state.text)].cumsum(0))
    x = lucid.ones(300)
    for size in range(1, 300):
        state.text = "a" * size
        assert step(x).tolist()[-1] == size
    assert len(step.stats.eager_reasons) > 200
    assert len(looks) < 100
    state.text, before = "aaa", step.stats.calls
    for _ in range(100):  # there is a program for it
        assert step(x).tolist() == [1.0, 2.0, 3.0]
    assert step.stats.calls >= before + 20


# ------------------------------------------------------------------ what crashed on the way


@same_as_eager
def test_an_attribute_dict_in_a_closure(compile):
    class AttrDict(dict):
        __getattr__ = dict.__getitem__

    cfg = AttrDict(lr=0.5, steps=2)
    step = compile(lambda x: x * cfg.lr + cfg.steps)
    results = [step(X)]
    cfg["lr"] = 2.0
    return [*results, step(X)]


@pytest.mark.parametrize("off", [0, 0.0])
@same_as_eager
def test_momentum_of_norms_that_is_switched_within_a_step(compile, off):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    x = lucid.randn(4, 3)

    def switch(momentum):
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.momentum = momentum

    @compile
    def step(x):
        switch(0.1)
        first = net(x).square().mean()
        switch(off)
        second = net(x + first.detach()).square().mean()
        return first.detach(), second.detach(), net[1].running_mean.clone()

    return [step(x) for _ in range(4)]


@pytest.mark.parametrize("before", ["compiled", "eager", "nothing"])
@pytest.mark.parametrize("make", [lucid.optim.Adam, lucid.optim.SGD])
@same_as_eager
def test_a_net_and_its_optimizer_copied_and_then_compiled(compile, make, before):
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    optimizer = make(net.parameters(), lr=0.01)
    x = lucid.randn(4, 3)

    def training(net, optimizer):
        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    first = training(net, optimizer)
    if before != "nothing":
        first = compile(first) if before == "compiled" else first
        first(x), first(x), first(x)
    other_net, other_optimizer = copy.deepcopy((net, optimizer))
    second = compile(training(other_net, other_optimizer))
    results = [second(x), first(x), second(x), first(x), second(x + 1)]
    return [*results, net[0].weight, other_net[0].weight]


def test_what_stays_after_it_has_changed_at_each_call_is_traced_once_more():
    """A buffer grows to its size; no program serves a full one, so none can pay for its trace."""

    def program(compile):
        buffer = collections.deque(maxlen=10)
        step = compile(lambda x: sum(buffer[i] for i in range(0, len(buffer), 2)) * x)
        found = []
        for i in range(CALLS):
            buffer.append(lucid.full((3,), float(i)))
            found.append(step(X))
        return found

    compile = Compiling()
    assert is_same(run(program, compile), run(program, uncompiled))
    (step,) = compile.steps
    assert step.stats.traces == 9
    assert step.stats.calls == CALLS - 1 - 6, "a length of 9, and calls that paid for that of 10"


def test_what_is_said_of_calls_is_kept_for_the_last_ones(monkeypatch):
    monkeypatch.setattr("lucid.compiler.reports.statistics.MOST_NOTES", 3)
    step = lucid.compile(lambda x: len({x.numpy().tobytes()}))
    assert [step(X) for _ in range(5)] == [1] * 5
    assert len(step.stats.eager_reasons) == 3
