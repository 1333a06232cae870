"""What the step writes into an attribute is what the rest of the same step reads there."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import dataclasses
import io
import json
import operator
import threading
import types
import warnings
import weakref

import numpy as np
import pytest
from border.harness import X, calls, same_as_eager

import lucid
from lucid import nn, optim

ROWS = lucid.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
OTHER = lucid.tensor([[0.5, 1.0, -3.0], [2.0, -4.0, 1.5]])
SIGNS = lucid.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])
CLASSES = lucid.tensor([2, 0])


class Schedule:
    """A phase of training, and what it means."""

    def __init__(self, **fields):
        self.warm = False
        self.__dict__.update(fields)


BUILT_IN = [
    (nn.Dropout, "p", 1.0, 0.0, lambda m: m(ROWS)),
    (nn.Dropout1d, "p", 1.0, 0.0, lambda m: m(ROWS)),
    (nn.AlphaDropout, "p", 1.0, 0.0, lambda m: m(ROWS)),
    (nn.BatchNorm1d, "eps", 1.0, 5.0, lambda m: m(ROWS)),
    (nn.BatchNorm1d, "momentum", 0.5, 0.9, lambda m: [m(ROWS), m.running_mean.clone()]),
    (nn.InstanceNorm1d, "eps", 1.0, 5.0, lambda m: m(ROWS)),
    (nn.LayerNorm, "eps", 1.0, 5.0, lambda m: m(ROWS)),
    (nn.RMSNorm, "eps", 1.0, 5.0, lambda m: m(ROWS)),
    (nn.LeakyReLU, "negative_slope", 0.3, 0.7, lambda m: m(ROWS)),
    (nn.ELU, "alpha", 0.3, 0.7, lambda m: m(ROWS)),
    (nn.CELU, "alpha", 0.3, 0.7, lambda m: m(ROWS)),
    (nn.Softplus, "beta", 2.0, 3.0, lambda m: m(ROWS)),
    (nn.Softplus, "threshold", 2.5, 0.5, lambda m: m(ROWS)),
    (nn.Softshrink, "lambd", 1.5, 0.7, lambda m: m(ROWS)),
    (nn.Hardshrink, "lambd", 1.5, 2.5, lambda m: m(ROWS)),
    (nn.Hardtanh, "min_val", -0.3, -0.7, lambda m: m(ROWS)),
    (nn.Hardtanh, "max_val", 0.3, 0.7, lambda m: m(ROWS)),
    (lambda: nn.Threshold(0.0, 0.0), "threshold", 2.0, 0.7, lambda m: m(ROWS)),
    (lambda: nn.Threshold(0.0, 0.0), "value", 2.0, 0.7, lambda m: m(ROWS)),
    (nn.CrossEntropyLoss, "label_smoothing", 0.3, 0.7, lambda m: m(ROWS, CLASSES)),
    (nn.CrossEntropyLoss, "reduction", "sum", "mean", lambda m: m(ROWS, CLASSES)),
    (nn.CrossEntropyLoss, "ignore_index", 2, 0, lambda m: m(ROWS, CLASSES)),
    (nn.MarginRankingLoss, "margin", 0.5, 3.0, lambda m: m(ROWS, OTHER, SIGNS)),
    (nn.HingeEmbeddingLoss, "margin", 0.5, 3.0, lambda m: m(ROWS, SIGNS)),
    (nn.TripletMarginLoss, "margin", 5.0, 9.0, lambda m: m(ROWS, OTHER, ROWS + 1)),
    (nn.TripletMarginLoss, "swap", False, True, lambda m: m(ROWS, OTHER, OTHER + 1)),
    (nn.CosineEmbeddingLoss, "margin", 0.1, 0.7, lambda m: m(ROWS, ROWS, -lucid.ones(2))),
    (nn.MultiMarginLoss, "margin", 0.5, 3.0, lambda m: m(ROWS, CLASSES)),
    (nn.SmoothL1Loss, "beta", 0.5, 3.0, lambda m: m(ROWS, OTHER)),
    (nn.HuberLoss, "delta", 0.5, 3.0, lambda m: m(ROWS, OTHER)),
    (nn.CosineSimilarity, "eps", 50.0, 90.0, lambda m: m(ROWS, OTHER)),
    (nn.PairwiseDistance, "eps", 0.5, 3.0, lambda m: m(ROWS, OTHER)),
    (nn.PairwiseDistance, "norm", 1.0, 3.0, lambda m: m(ROWS, OTHER)),
    (nn.GELU, "approximate", "none", "tanh", lambda m: 1000 * m(ROWS)),
    (nn.Softmax, "dim", 0, 1, lambda m: m(ROWS)),
    (lambda: nn.Linear(3, 3), "scale", 0.5, 3.0, lambda m: m(ROWS) * m.scale),
]
IDS = [f"{getattr(make, '__name__', 'x')}.{name}" for make, name, *_ in BUILT_IN]
ARGUMENTS = {nn.BatchNorm1d: (3,), nn.InstanceNorm1d: (3,), nn.LayerNorm: (3,), nn.RMSNorm: (3,)}


def built(make):
    return make(*ARGUMENTS.get(make, ()))


@pytest.mark.parametrize(("make", "name", "cold", "warm", "use"), BUILT_IN, ids=IDS)
@same_as_eager
def test_an_attribute_of_a_built_in_module(compile, make, name, cold, warm, use):
    module, schedule = built(make), Schedule()

    @compile
    def step(x):
        setattr(module, name, warm if schedule.warm else cold)
        return use(module)

    return calls(step, lambda: setattr(schedule, "warm", True))


@same_as_eager
def test_dropout_by_phase_in_a_net(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(3, 3)
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            return self.drop(self.dense(x))

    net, schedule = Net(), Schedule()

    @compile
    def step(x):
        net.drop.p = 1.0 if schedule.warm else 0.0
        loss = net(x).square().mean()
        loss.backward()
        grad, net.dense.weight.grad = net.dense.weight.grad, None
        net.dense.bias.grad = None
        return loss.detach(), grad

    return calls(step, lambda: setattr(schedule, "warm", True))


@same_as_eager
def test_a_module_before_and_after_the_write(compile):
    act, schedule = nn.LeakyReLU(0.1), Schedule()

    @compile
    def step(x):
        before = act(-x)
        act.negative_slope = 0.9 if schedule.warm else 0.5
        return before, act(-x)

    return [*calls(step, lambda: setattr(schedule, "warm", True)), act.negative_slope]


@same_as_eager
def test_a_value_that_is_put_back_at_the_end(compile):
    norm = nn.LayerNorm(3)

    @compile
    def step(x):
        before, norm.eps = norm.eps, 2.0
        y = norm(x)
        norm.eps = before
        return y, norm(x)

    return calls(step, lambda: setattr(norm, "eps", 5.0))


@same_as_eager
def test_written_in_a_context_manager(compile):
    import contextlib

    norm = nn.BatchNorm1d(3)
    schedule = Schedule(momentum=0.0)

    @contextlib.contextmanager
    def momentum_of(value):
        before, norm.momentum = norm.momentum, value
        try:
            yield
        finally:
            norm.momentum = before

    @compile
    def step(x):
        with momentum_of(schedule.momentum):
            norm(ROWS)
        return norm.running_mean.clone(), norm(ROWS), norm.running_mean.clone()

    return calls(step, lambda: setattr(schedule, "momentum", 0.5))


@same_as_eager
def test_written_by_all_modules_of_a_net(compile):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.5))
    schedule = Schedule()

    @compile
    def step(x):
        for module in net.modules():
            if isinstance(module, nn.Dropout):
                module.p = 1.0 if schedule.warm else 0.0
        return net(x)

    return calls(step, lambda: setattr(schedule, "warm", True))


@same_as_eager
def test_written_by_a_method_of_the_net(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.LeakyReLU(0.1)
            self.loss = nn.SmoothL1Loss()

        def anneal(self, epoch):
            self.act.negative_slope = 0.5 / epoch
            self.loss.beta = 1.0 * epoch

        def forward(self, x):
            return self.loss(self.act(x - 2), x)

    net, schedule = Net(), Schedule(epoch=1)

    @compile
    def step(x):
        net.anneal(schedule.epoch)
        return net(x)

    return calls(step, lambda: setattr(schedule, "epoch", 2), lambda: setattr(schedule, "epoch", 4))


@pytest.mark.parametrize(
    "write",
    [
        lambda m, value: setattr(m, "negative_slope", value),
        lambda m, value: m.__setattr__("negative_slope", value),
        lambda m, value: m.__dict__.update(negative_slope=value),
        lambda m, value: vars(m).__setitem__("negative_slope", value),
        lambda m, value: object.__setattr__(m, "negative_slope", value),
    ],
    ids=["setattr", "dunder", "dict", "vars", "object"],
)
@same_as_eager
def test_written_in_another_way(compile, write):
    act, schedule = nn.LeakyReLU(0.1), Schedule()

    @compile
    def step(x):
        write(act, 0.9 if schedule.warm else 0.5)
        return act(-x)

    return calls(step, lambda: setattr(schedule, "warm", True))


@same_as_eager
def test_a_number_of_an_argument_that_is_written(compile):
    drop = nn.Dropout(0.5)

    @compile
    def step(x, p):
        drop.p = p
        return drop(x)

    return [step(X, 0.0), step(X, 0.0), step(X, 1.0), step(X, 1.0), step(X, 0.0)]


@same_as_eager
def test_a_constant_that_counts_down(compile):
    act = nn.LeakyReLU(0.1)

    @compile
    def step(x):
        act.negative_slope *= 0.5
        return act(-x)

    return [step(X) for _ in range(5)] + [act.negative_slope]


@same_as_eager
def test_a_flag_of_a_built_in_module(compile):
    net, schedule = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0)), Schedule()

    @compile
    def step(x):
        net.train(schedule.warm)
        return net(x)

    return calls(step, lambda: setattr(schedule, "warm", True))


@same_as_eager
def test_a_learning_rate_that_is_written_and_read(compile):
    net, schedule = nn.Linear(3, 3), Schedule()
    optimizer = lucid.optim.SGD(net.parameters(), lr=0.1)

    @compile
    def step(x):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 if schedule.warm else 0.5
            group["momentum"] = 0.9 if schedule.warm else 0.0
        optimizer.zero_grad()
        loss = net(x).square().mean() * optimizer.param_groups[0]["lr"]
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [*calls(step, lambda: setattr(schedule, "warm", True)), net.weight]


@same_as_eager
def test_betas_that_are_written(compile):
    net, schedule = nn.Linear(3, 3), Schedule()
    optimizer = lucid.optim.Adam(net.parameters(), lr=0.1)

    @compile
    def step(x):
        optimizer.param_groups[0]["betas"] = (0.5, 0.6) if schedule.warm else (0.8, 0.99)
        optimizer.param_groups[0]["eps"] = 1.0 if schedule.warm else 0.1
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        return net.weight.detach().clone()

    return calls(step, lambda: setattr(schedule, "warm", True))


@same_as_eager
def test_objects_and_containers_of_the_users(compile):
    schedule = Schedule(scale=1.0, table={"k": 1.0}, row=[1.0, 2.0])

    @compile
    def step(x):
        schedule.scale = 4.0 if schedule.warm else 2.0
        schedule.table["k"] = schedule.scale + 1
        schedule.row[0] = schedule.table["k"] * 2
        return x * schedule.scale + schedule.table["k"] * schedule.row[0]

    results = calls(step, lambda: setattr(schedule, "warm", True))
    return [*results, schedule.scale, schedule.table, schedule.row]


@same_as_eager
def test_a_class_attribute_and_a_global(compile):
    class Loss:
        margin = 0.1

    schedule, names = Schedule(), {"Loss": Loss, "K": 1.0}

    @compile
    def step(x):
        Loss.margin = 3.0 if schedule.warm else 2.0
        names["K"] = Loss.margin * 2
        return x * Loss.margin + names["K"]

    return [*calls(step, lambda: setattr(schedule, "warm", True)), Loss.margin, names["K"]]


@same_as_eager
def test_the_norm_is_switched_within_a_step(compile):
    """Sharpness-aware training: statistics move at the first of two forwards only."""
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizer = lucid.optim.SGD(net.parameters(), lr=0.1)

    def set_momentum(value):
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.momentum = value

    @compile
    def step(x):
        set_momentum(0.1)
        net(x).square().mean().backward()
        with lucid.no_grad():
            for p in net.parameters():
                p.add_(p.grad, alpha=0.05)
        optimizer.zero_grad()
        set_momentum(0.0)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    results = [step(ROWS) for _ in range(4)]
    return [*results, net[1].running_mean, net[1].momentum, net[0].weight]


@same_as_eager
def test_the_norms_own_momentum_is_kept_and_put_back(compile):
    norm = nn.BatchNorm1d(3)

    def disable(module):
        if isinstance(module, nn.BatchNorm1d):
            module.backup_momentum = module.momentum
            module.momentum = 0

    def enable(module):
        if isinstance(module, nn.BatchNorm1d) and hasattr(module, "backup_momentum"):
            module.momentum = module.backup_momentum

    net = nn.Sequential(nn.Linear(3, 3), norm)

    @compile
    def step(x):
        net.apply(enable)
        first = net(x).square().mean()
        net.apply(disable)
        return first, net(x + 1).square().mean()

    return [*(step(ROWS) for _ in range(4)), norm.running_mean, norm.momentum]


LEVEL = 0


@same_as_eager(traces=4)
def test_what_is_set_to_what_was_there_when_the_step_was_traced(compile):
    """The first call resets what nobody has counted yet."""
    global LEVEL
    LEVEL = 0

    class State:
        count = 0

        def __init__(self):
            self.count, self.best = 0, None

    state, entries, slots, seen, log, calls = State(), {"k": 0}, [0, 5], set(), [], 0

    @compile
    def step(x, is_reset):
        nonlocal calls
        global LEVEL
        if is_reset:
            state.count = entries["k"] = slots[0] = calls = LEVEL = 0
            state.best = None
            seen.clear()
            log.clear()
        else:
            state.count += 1
            entries["k"] += 1
            slots[0] += 1
            calls += 1
            LEVEL += 1
            state.best = "some"
            seen.add(1)
            log.append(x)
        return x * 2

    found = []
    for is_reset in (True, False, False, True, False, True, True, False):
        step(ROWS, is_reset)
        left = [state.count, state.best, entries["k"], slots[0], len(seen), len(log), calls, LEVEL]
        found.append(str(left))
    return found


@same_as_eager
def test_the_last_entry_of_a_list_that_gets_longer(compile):
    entries = [0.0, 1.0]

    @compile
    def step(x):
        entries[-1] = 7.0
        return x

    found = []
    for _ in range(4):
        step(ROWS)
        entries.append(2.0)
        found.append(str(entries))
    return found


@same_as_eager
def test_entries_of_lists_that_the_step_changes_otherwise_as_well(compile):
    turned, longer, table = [1.0, 2.0, 3.0], [0.0, 2.0], {"a": 1.0}

    @compile
    def step(x):
        turned.reverse()
        turned[-1] = 1.0
        longer.append(5.0)
        longer[0] = 0.0
        table["b"] = 2.0
        table.pop("b", None)
        return x

    found = []
    for number in range(4):
        step(ROWS)
        found.append(str([turned, longer, table]))
        turned[0], longer[0], longer[1], table["b"] = number, number, number, number
    return found


@same_as_eager
def test_a_rate_that_is_set_to_what_it_was(compile):
    weight = nn.Parameter(lucid.ones(3))
    opt = optim.SGD([weight], lr=0.25)

    @compile
    def step(x):
        opt.param_groups[0]["lr"] = 0.5
        (weight * x).sum().backward()
        opt.param_groups[0]["lr"] *= 0.5
        opt.step()
        opt.zero_grad()
        return weight.detach() * 1

    found = []
    for rate in (0.125, 1.0, 0.25):
        found += [step(ROWS), opt.param_groups[0]["lr"]]
        opt.param_groups[0]["lr"] = rate
    return found


def taken_out(table, key):
    table[key] = table.pop(key, 0.0) + 1.0


def deleted(table, key):
    before = table.get(key, 0.0)
    if key in table:
        del table[key]
    table[key] = before + 1.0


def moved(table, key):
    table[key] = table.get(key, 0.0) + 1.0
    table.move_to_end(key)


@pytest.mark.parametrize("use", [taken_out, deleted, moved])
@same_as_eager(traces=8)
def test_entries_of_a_dict_that_go_to_its_end(compile, use):
    recent = collections.OrderedDict(a=0.0, b=1.0) if use is moved else {"a": 0.0, "b": 1.0}

    @compile
    def step(x, key):
        use(recent, key)
        return x

    found = []
    for key in "aababbab":
        step(ROWS, key)
        found.append(str([*recent.items()]))
    return found


def told_by_a_stack(log, x):
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, 1)


def told_by_map(log, x):
    list(map(log.append, [1, 2]))


@pytest.mark.parametrize("tell", [told_by_a_stack, told_by_map])
@same_as_eager
def test_a_method_of_a_list_that_other_code_calls(compile, tell):
    log = []

    @compile
    def step(x):
        tell(log, x)
        return x * 2

    found = []
    for _ in range(4):
        step(ROWS)
        found.append(str(log))
    return found


def longer(data):
    data += b"x"


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (bytearray, lambda data: data.extend(b"x")),
        (lambda: bytearray(1), longer),
        (lambda: array.array("i"), lambda data: data.append(len(data))),
        (lambda: array.array("i", [0]), lambda data: operator.setitem(data, 0, data[0] + 1)),
        (lambda: array.array("i"), lambda data: list(map(data.append, [1]))),
    ],
)
@same_as_eager(or_said=True)
def test_memory_that_a_trace_cannot_put_back(compile, make, change):
    data, counts = make(), {"calls": 0}

    @compile
    def step(x):
        change(data)
        counts["calls"] += 1  # which a trace begins again for
        return x * len(data)

    found = []
    for _ in range(4):
        found += [step(ROWS), str(list(data))]
    return found


@same_as_eager(or_said=True)
def test_a_count_by_weak_references(compile):
    counts = weakref.WeakKeyDictionary()
    net = nn.Linear(3, 3)

    @compile
    def step(x):
        counts[net] = counts.get(net, 0) + 1
        return x * counts[net]

    return [step(ROWS) for _ in range(4)]


@same_as_eager
def test_an_exception_that_was_there_is_raised(compile):
    errors = {"error": ValueError("first")}

    @compile
    def step(x):
        found = x * 2
        try:
            raise errors["error"] from KeyError("cause")
        except ValueError as error:
            return found * len(error.args)

    return calls(step, lambda: errors.update(error=ValueError("other", 1)))


@same_as_eager
def test_a_text_of_a_container_that_the_step_changes(compile):
    state = {"losses": [1.0], "n": 0}

    @compile
    def step(x):
        state["losses"].append(x.sum().item())
        state["n"] += 1
        state["text"] = json.dumps(state["losses"]) + repr(state["losses"]) + str(state["n"])
        return x

    found = []
    for number in range(4):
        step(ROWS + number)
        found.append(state["text"])
    return found


def deleted_or_set(held):
    try:
        del held["a"]
    except KeyError:
        held["a"] = 1


def deleted_attribute_or_set(held):
    try:
        del held.a
    except AttributeError:
        held.a = 1


@pytest.mark.parametrize(
    ("make", "change"),
    [(dict, deleted_or_set), (types.SimpleNamespace, deleted_attribute_or_set)],
)
@same_as_eager
def test_what_is_deleted_must_be_there(compile, make, change):
    held = make()

    @compile
    def step(x):
        change(held)
        return x * 2

    found = []
    for _ in range(4):
        step(ROWS)
        found.append(str(held))
    return found


@pytest.mark.parametrize("kind", [list, collections.deque])
@same_as_eager
def test_the_first_entry_of_a_list_that_was_empty(compile, kind):
    seen = kind()

    @compile
    def step(x):
        seen.append(x.sum().item())
        return x * seen[0] + len(seen)

    return [step(ROWS + number) for number in range(4)]


@same_as_eager
def test_the_only_object_of_a_class(compile):
    made = {}

    class Only(type):
        def __call__(cls, *args):
            if cls not in made:
                made[cls] = super().__call__(*args)
            return made[cls]

    class Counts(metaclass=Only):
        def __init__(self):
            self.calls = 0

    @compile
    def step(x):
        counts = Counts()
        counts.calls += 1
        return x * counts.calls

    return [step(ROWS) for _ in range(4)]


def count_in_a_context(variable, x):
    variable.set(variable.get() + 1)
    return x * variable.get()


def count_in_a_thread(held, x):
    held.calls = getattr(held, "calls", 0) + 1
    return x * held.calls


def catch_warnings(held, x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("so", stacklevel=1)
    return x * len(caught) * (1 + x.sum())


def catch_prints(held, x):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print("so")
    return x * len(printed.getvalue())


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (lambda: contextvars.ContextVar("count", default=0), count_in_a_context),
        (threading.local, count_in_a_thread),
        (dict, catch_warnings),
        (dict, catch_prints),
    ],
)
@same_as_eager(or_said=True)
def test_what_threads_and_streams_hold(compile, make, use):
    held = make()
    step = compile(lambda x: use(held, x))
    return [step(ROWS + number) for number in range(4)]


@same_as_eager
def test_what_a_step_changes_of_its_threads_values(compile):
    class Depth(threading.local):
        depth = 0

        def __init__(self):
            self.calls, self.stack = 0, []

    held = Depth()

    @compile
    def step(x):
        held.calls += 1
        held.stack.append(held.calls)
        held.depth += 1
        try:
            found = x * held.depth + held.calls
            scale = held.scale
        except AttributeError:
            scale = 1.0
        finally:
            held.depth -= 1
        held.last = held.stack.pop()
        return found * scale

    def calls(count):
        return [(step(ROWS + n), held.calls, held.last, [*held.stack]) for n in range(count)]

    found = calls(4)
    held.scale = 3.0
    found += calls(2)
    thread = threading.Thread(target=lambda: found.extend(calls(3)))
    thread.start()
    thread.join()
    return [*found, *calls(2)]


@dataclasses.dataclass(frozen=True)
class Place:
    row: int


KEYS = [lambda n: (n, "a"), lambda n: ("a", (1, 2)), np.int64, lambda n: frozenset([n]), Place]


@pytest.mark.parametrize("make", KEYS, ids=["tuple", "constant", "numpy", "frozenset", "record"])
@same_as_eager
def test_keys_that_are_made_anew(compile, make):
    counts, calls = {}, [0]

    @compile
    def step(x):
        key = make(calls[0] % 2)
        counts[key] = counts.get(key, 0.0) + x.sum().item()
        calls[0] += 1
        return x * counts[key]

    found = []
    for number in range(6):
        found += [step(ROWS + number), sorted(counts.values())]
    return found


@pytest.mark.parametrize("place", [2, -3])
@same_as_eager
def test_an_entry_that_the_step_replaces_may_be_gone(compile, place):
    latest = [0.0, 0.0, 0.0]

    @compile
    def step(x):
        try:
            latest[place] = x.sum().item()
        except IndexError:
            return -x
        return x

    return calls(step, latest.pop, lambda: latest.append(5.0), latest.clear)


def test_an_entry_that_is_gone_is_an_error_before_anything_is_stored():
    latest, weight = [0.0, 0.0], lucid.ones(3)

    @lucid.compile
    def step(x):
        weight.add_(x)
        latest[1] = 1.0

    step(X), step(X)
    del latest[1]
    before = weight.tolist()
    for _ in range(2):
        with pytest.raises(IndexError):
            step(X)
    assert weight.tolist() == before and latest == [0.0]


@same_as_eager
def test_an_object_that_the_step_changes_and_then_replaces(compile):
    """Those of earlier calls stay as they were left."""
    holder = types.SimpleNamespace(state=types.SimpleNamespace(count=0, mean=0.0))
    seen, found = [], []

    @compile
    def step(x):
        state = holder.state
        state.count += 1
        state.mean += (x.mean().item() - state.mean) / state.count
        holder.state = types.SimpleNamespace(count=state.count, mean=state.mean)

    for i in range(14):
        seen.append(holder.state)
        step(X * i)
        found.append([(state.count, state.mean) for state in (*seen, holder.state)])
    return found


@pytest.mark.parametrize(
    "rate", [np.float64(0.5), lambda t: np.float64(0.5) / (t + 1)], ids=["a number", "a function"]
)
def test_a_rate_of_numpys_is_a_float_when_it_is_read(rate):
    def read(compile):
        opt = optim.SGD(nn.Linear(3, 1).parameters(), lr=1.0)
        group, calls = opt.param_groups[0], types.SimpleNamespace(count=0)

        @compile
        def step():
            calls.count += 1
            group["lr"] = rate(calls.count) if callable(rate) else rate
            return group["lr"]

        return [(type(found), found) for found in (step() for _ in range(6))]

    assert read(lucid.compile) == read(lambda step: step)
