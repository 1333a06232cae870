"""What a step binds anew: attributes, entries, variables, a tensor's memory and its flag."""

from __future__ import annotations

import collections
import itertools
import math
import threading
import types
from collections import ChainMap, UserDict, UserList, deque

import numpy as np
import pytest

import lucid
from lucid import nn


class Holder:
    """An object of the user's, with the attributes that it is given."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


X = [0.5, -1.0, 2.0]


def run(compile, step, count=5, *, inputs=None):
    """What `count` calls return, and the step."""
    step = compile(step)
    inputs = inputs or [lucid.tensor(X) * (i + 1) for i in range(count)]
    return [step(x) for x in inputs], step


def test_an_attribute_that_each_step_replaces(agree):
    def scenario(compile):
        holder = Holder(mean=lucid.zeros(3), steps=0, bias=1.0)

        def step(x):
            holder.mean = 0.9 * holder.mean + 0.1 * x
            holder.steps += 1
            holder.bias = holder.bias * 0.5 + holder.steps
            return x * holder.bias - holder.mean / (1 - 0.9**holder.steps)

        results, _ = run(compile, step)
        assert type(holder.steps) is int and type(holder.bias) is float
        return [results, holder.mean, holder.steps, holder.bias]

    agree(scenario, traces=1)


STATE = {}


class Shared:
    """All objects have the attributes of each, in one dict that is older than they are."""

    def __init__(self):
        self.__dict__ = STATE


def test_attributes_in_a_dict_that_objects_share(agree):
    def scenario(compile):
        STATE.clear()
        STATE.update(scale=1.0, steps=0)

        def step(x):
            made = Shared()
            made.steps += 1
            made.last = x.sum().item()
            return x * made.scale * made.steps

        step = compile(step)
        found = []
        for i in range(6):
            if i == 4:
                STATE["scale"] = 3.0
            found.append((step(lucid.tensor(X)), dict(STATE)))
        return found

    (step,) = agree(scenario, traces=2)
    assert not step.stats.eager_reasons


def test_what_is_none_at_first_is_one_more_trace(agree):
    def scenario(compile):
        holder = Holder(hidden=None)

        def step(x):
            if holder.hidden is None:
                holder.hidden = lucid.zeros(3)
            holder.hidden = lucid.tanh(holder.hidden + x)
            holder.latest = x * 2
            return holder.hidden.sum()

        first, step = run(compile, step)
        before, holder.hidden = holder.hidden, None
        return [first, run(lambda f: step, step)[0], before, holder.hidden, holder.latest]

    steps = agree(scenario, traces=2)
    assert steps[0].stats.retrace_reasons == ["holder.hidden: None -> a tensor f32[3]"]


def test_attributes_that_a_step_gives_parameters(agree):
    def scenario(compile):
        layer = nn.Linear(3, 2)
        layer.weight.detach().copy_(lucid.arange(6.0).reshape(2, 3) / 10)
        for p in layer.parameters():
            p.curvature, p.seen = lucid.zeros_like(p), 0

        def step(x):
            layer.zero_grad()
            layer(x).square().sum().backward()
            for p in layer.parameters():
                p.curvature = 0.9 * p.curvature + p.grad.abs()
                p.seen += 1
                p.latest = p.grad * 2
            return layer.weight.curvature / layer.weight.seen

        results, _ = run(compile, step)
        return [results, [[p.curvature, p.seen, p.latest] for p in layer.parameters()]]

    agree(scenario, traces=1)


def test_attributes_of_parameters_that_change_outside(agree):
    def scenario(compile):
        weight = nn.Parameter(lucid.ones(3))
        weight.scale, weight.mask = "none", None

        def step(x):
            masked = weight if weight.mask is None else weight * weight.mask
            return (x * masked).sum() * (2.0 if weight.scale == "double" else 1.0)

        results, step = run(compile, step, 2)
        weight.scale = "double"
        results += run(lambda f: step, step, 2)[0]
        weight.mask = lucid.tensor([1.0, 0.0, 1.0])
        return [results, run(lambda f: step, step, 2)[0]]

    steps = agree(scenario, traces=3)
    assert steps[0].stats.retrace_reasons == [
        "weight.scale: 'none' -> 'double'",
        "weight.mask: None -> a tensor f32[3]",
    ]


def test_attributes_of_parameters_that_a_step_makes_where_there_are_none(agree):
    def scenario(compile):
        weights = [nn.Parameter(lucid.ones(3)), nn.Parameter(lucid.full((3,), 2.0))]

        def step(x):
            for p in weights:
                if not hasattr(p, "velocity"):
                    p.velocity = lucid.zeros_like(p)
                p.velocity.mul_(0.5).add_(x)
            return weights[0].velocity.sum()

        return [run(compile, step)[0], [p.velocity for p in weights]]

    agree(scenario, traces=2)


def test_variables_of_functions_and_of_the_module(agree):
    def scenario(compile):
        global COUNT, LATEST
        COUNT, LATEST = 0, lucid.zeros(3)
        total, peak = 0.0, lucid.zeros(3)

        def step(x):
            nonlocal total, peak
            global COUNT, LATEST
            COUNT += 2
            total += 0.5 * COUNT
            peak, LATEST = lucid.maximum(peak, x), peak
            return LATEST * total

        return [run(compile, step)[0], COUNT, total, peak, LATEST]

    agree(scenario, traces=1)


def test_entries_of_dicts_lists_and_deques(agree):
    def scenario(compile):
        table = {"m": lucid.zeros(3), "deep": [lucid.ones(3), 7]}
        recent = deque([lucid.zeros(3), lucid.zeros(3)], maxlen=2)

        def step(x):
            table["m"] = table["m"] * 0.5 + x
            table["deep"][1] += 1
            table["deep"][0] = table["deep"][0] + table["m"] / table["deep"][1]
            recent.append(x)
            return recent[0] + table["deep"][0]

        results, _ = run(compile, step)
        return [results, table, list(recent)]

    agree(scenario, traces=1)


def test_places_that_begin_with_one_tensor_which_is_state_as_well(agree):
    def scenario(compile):
        zeros = lucid.zeros(3)
        moments = {"m": zeros, "v": zeros}

        def step(x):
            moments["m"] = moments["m"] * 0.5 + x - zeros
            moments["v"] = moments["v"] * 0.5 + x * x
            return moments["m"] / (moments["v"] + 1)

        return [run(compile, step)[0], moments, zeros]

    agree(scenario)


def test_a_history_of_bounded_length(agree):
    """One trace per length, then none: the entries move by one place at each call."""

    def scenario(compile):
        history = []

        def step(x):
            mixed = x.clone()
            for weight, old in enumerate(history):
                mixed = mixed + old / (weight + 2)
            if len(history) == 3:
                history.pop(0)
            history.append(mixed * 0.5)
            return mixed

        return [run(compile, step, 8)[0], history]

    agree(scenario, traces=4)


def _lengthen(run, loss):
    run.log += f"{run.count}: {loss.item():.4f}\n"


def _show_the_end(run, loss):
    run.log = (run.log + f"{loss.item():.2f} ")[-20:]


def _go_on(run, loss):
    if run.phase == "warmup" and run.count > 3:
        run.phase = "main"
    run.log = f"{run.phase} {run.weights[run.phase]}"


def _take_turns(run, loss):
    run.phase = "main" if run.phase == "warmup" else "warmup"


def _stop(run, loss):
    run.log = None if run.log is not None and len(run.log) > 2 else (run.log or "") + "."


@pytest.mark.parametrize(
    "change, traces",
    [(_lengthen, 1), (_show_the_end, 1), (_go_on, 3), (_take_turns, 2), (_stop, 6)],
)
def test_texts_that_a_step_replaces(agree, change, traces):
    """Each call finds its own, as it does numbers; what is asked of one is guarded."""

    def scenario(compile):
        run = Holder(log="", phase="warmup", count=0, weights={"warmup": 1, "main": 2})
        x, seen = lucid.tensor([1.0, 2.0]), []

        @compile
        def step():
            loss = (x * run.count).sum()
            run.count += 1
            change(run, loss)
            return loss

        for _ in range(12):
            seen.append([step(), run.log, run.phase])
        run.log, run.phase = "another", "main"
        return seen, [step(), run.log, run.phase]

    (step,) = agree(scenario)
    assert step.stats.traces <= traces and not step.stats.eager_reasons, step.stats


def test_tuples_and_dicts_that_are_replaced_whole(agree):
    def scenario(compile):
        holder = Holder(state=(lucid.zeros(3), lucid.ones(3)), stats={"n": 0, "sum": 0.0})

        def step(x):
            h, c = holder.state
            c = c * lucid.sigmoid(x) + h
            holder.state = (lucid.tanh(c), c)
            holder.stats = {"n": holder.stats["n"] + 1, "sum": holder.stats["sum"] + 0.25}
            return holder.state[0] * holder.stats["sum"] / holder.stats["n"]

        return [run(compile, step)[0], holder.state, holder.stats]

    agree(scenario, traces=1)


def test_places_that_swap_what_they_hold(agree):
    def scenario(compile):
        holder = Holder(a=lucid.zeros(3), b=lucid.ones(3), m=2, n=3.0)

        def step(x):
            holder.a, holder.b = holder.b, holder.a + x
            holder.m, holder.n = holder.n, holder.m
            return holder.a * holder.m

        return [run(compile, step)[0], holder.a, holder.b, holder.m, holder.n]

    agree(scenario, traces=2)


def test_leaves_that_swap_their_gradients(agree):
    def scenario(compile):
        a, b = (lucid.ones(3, requires_grad=True) for _ in range(2))
        a.grad, b.grad = lucid.full((3,), 10.0), lucid.full((3,), 100.0)

        def step(x):
            (x * a).sum().backward()
            a.grad, b.grad = b.grad, a.grad

        run(compile, step)
        return [a.grad, b.grad]

    agree(scenario, traces=1)


def test_an_argument_that_is_kept_is_the_callers_tensor(agree):
    def scenario(compile):
        holder = Holder(last=lucid.zeros(3))

        @compile
        def step(x):
            change = x - holder.last
            holder.last = x
            return change

        inputs = [lucid.tensor(X) * i for i in range(4)]
        results = []
        for x in inputs:
            results.append(step(x))
            assert holder.last is x
            x.add_(10.0)
        return [results, step(inputs[-1])]

    agree(scenario)


def test_what_is_returned_and_kept_is_one_tensor(agree):
    def scenario(compile):
        holder = Holder(h=lucid.zeros(3))

        @compile
        def step(x):
            holder.h = holder.h + x
            return holder.h, holder.h[1:]

        results = []
        for i in range(3):
            h, tail = step(lucid.tensor(X) * i)
            assert h is holder.h
            tail.mul_(2.0)
            results += [h.clone(), tail.clone()]
        return results

    agree(scenario, traces=1)


def test_variables_of_one_name_are_told_apart(agree):
    def counter(step):
        count, scale = 0, step * 0.5

        def update(x):
            nonlocal count
            count += step
            return x * count * scale

        def rescale(by):
            nonlocal scale
            scale *= by

        return update, rescale

    def scenario(compile):
        (first, rescale), (second, _) = counter(1), counter(5)
        step, found = compile(lambda x: (first(x), second(x))), []
        for i in range(4):
            found.append(step(lucid.ones(2)))
            rescale(1.0 + i)
        return found

    agree(scenario)


def test_a_branch_on_a_count_is_one_trace_per_answer(agree):
    def scenario(compile):
        holder = Holder(t=0, target=lucid.zeros(3), online=lucid.zeros(3))

        def step(x):
            holder.t += 1
            holder.online = holder.online + x
            if holder.t % 3 == 0:
                holder.target = holder.online * 1.0
            return x * min(1.0, holder.t / 4) - holder.target

        return [run(compile, step, 9)[0], holder.t, holder.target]

    steps = agree(scenario)
    assert steps[0].stats.traces <= 4  # update or not, before and after the warm-up


def test_functions_of_a_count(agree):
    def scenario(compile):
        holder = Holder(t=0)

        def step(x):
            holder.t += 1
            t = holder.t
            rate = math.sqrt(1 - 0.99**t) / (1 - 0.9**t) * 0.5 * (1 + math.cos(math.pi * t / 10))
            return x * rate + t // 2 + (t - 1) % 4

        return [run(compile, step, 6)[0], holder.t]

    agree(scenario, traces=1)


def test_a_failed_call_binds_nothing():
    holder = Holder(t=0, last=lucid.zeros(()))

    @lucid.compile
    def step(x, i):
        holder.t += 1
        holder.last = x[i].sum()
        return holder.last

    x = lucid.arange(4.0)
    step(x, lucid.tensor([1]))
    with pytest.raises(lucid.LucidError):
        step(x, lucid.tensor([9]))
    assert holder.t == 1 and holder.last.item() == 1.0
    step(x, lucid.tensor([2]))
    assert holder.t == 2 and holder.last.item() == 2.0 and step.stats.traces == 1


def test_a_failed_trace_binds_nothing():
    holder = Holder(t=0, last=lucid.zeros(3), items=[lucid.ones(3)])

    @lucid.compile
    def step(x):
        holder.t += 1
        holder.last = x * 2
        holder.items.append(x)
        holder.new = x
        raise KeyError("late")

    before = dict(vars(holder))
    with pytest.raises(KeyError):
        step(lucid.ones(3))
    assert vars(holder) == before and len(holder.items) == 1


def test_kept_results_can_be_differentiated_outside(agree):
    def scenario(compile):
        net = nn.Linear(3, 2)

        class Features(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.seen, self.calls = net, None, 0

            def forward(self, x):
                self.calls += 1
                self.seen = lucid.tanh(self.net(x))
                return self.seen.sum() * self.calls

        module = Features()
        forward = compile(module.forward)
        for i in range(3):
            loss = forward(lucid.tensor(X) * i) + module.seen.square().sum()
            loss.backward()
            module.seen = None
        return [net, module.calls]

    agree(scenario)


@pytest.mark.parametrize("is_argument", [False, True])
def test_a_buffer_that_is_replaced_by_each_call_whose_result_is_differentiated(agree, is_argument):
    class Smoothed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(3, 2)
            self.register_buffer("mean", lucid.ones(2))

        def forward(self, x):
            y = self.net(x)
            self.mean = self.mean * 0.5 + y.detach().mean(0) * 0.5
            return (y - self.mean).square()

    def scenario(compile):
        module = Smoothed()
        forward = compile((lambda m, x: m(x)) if is_argument else (lambda _, x: module(x)))
        for i in range(3):
            forward(module if is_argument else None, lucid.tensor(X) * i).sum().backward()
        return [module, module.mean]

    agree(scenario)


def test_data_of_parameters_buffers_and_arguments(agree):
    def scenario(compile):
        model = nn.Linear(3, 2)
        model.register_buffer("count", lucid.zeros(2))

        @compile
        def step(x):
            loss = (model(x) + model.count).square().sum()
            loss.backward()
            for p in model.parameters():
                p.data = p.data - 0.1 * p.grad
                p.data.clamp_(-0.5, 0.5)
                p.grad.data.zero_()
            model.count.data = model.count + 1
            fresh = x * 2
            fresh.data = x * 3
            x.data = x / 2
            return loss, fresh

        x = lucid.tensor(X)
        return [[step(x) for _ in range(4)], x, model]

    agree(scenario)


def test_data_that_two_parameters_share_or_swap(agree):
    def scenario(compile):
        a, b, c = (nn.Parameter(lucid.tensor(X) * i) for i in (1, 2, 3))

        @compile
        def step(x):
            a.data, b.data = b.data, a.data
            c.data = a.data
            c.data.add_(x)
            return a * b

        results = [step(lucid.ones(3)) for _ in range(3)]
        assert np.shares_memory(a.detach().numpy(), c.detach().numpy())
        return [results, a, b, c]

    agree(scenario)


def test_flags_that_a_step_sets_and_takes_back(agree):
    def scenario(compile):
        net = nn.Linear(3, 1)

        @compile
        def step(x, y):
            for p in net.parameters():
                p.requires_grad_(False)
            x.requires_grad_(True)
            net(x).sum().backward()
            y = (y * 2).requires_grad_(True)
            (net(y) ** 2).sum().backward()
            for p in net.parameters():
                p.requires_grad_(True)
            net(x.detach()).sum().backward()
            return y.grad, x.grad

        x = lucid.tensor(X)
        return [step(x, lucid.ones(3)), step(x, lucid.ones(3)), x, net]

    agree(scenario)


def test_a_flag_that_differs_at_the_end_is_set_at_every_call(agree):
    def scenario(compile):
        a, b = nn.Parameter(lucid.ones(3)), nn.Parameter(lucid.ones(3))

        @compile
        def step(x):
            a.grad = b.grad = None
            a.requires_grad_(not a.requires_grad)
            (a * b * x).sum().backward()
            return x * 2

        seen = []
        for i in range(5):
            step(lucid.tensor(X) * i)
            seen += [a.requires_grad, a.grad, b.grad]
        return seen

    agree(scenario, traces=2)


def test_a_dict_that_is_filled_and_replaced(agree):
    """Weights are swapped for their averages and back, with a backup that is emptied."""

    def scenario(compile):
        model = nn.Linear(3, 2)
        holder = Holder(backup={}, shadow={n: p.data.clone() for n, p in model.named_parameters()})

        def step(x):
            for name, p in model.named_parameters():
                holder.shadow[name] = 0.9 * holder.shadow[name] + 0.1 * p.data
            for name, p in model.named_parameters():
                holder.backup[name] = p.data
                p.data = holder.shadow[name]
            averaged = model(x).detach()
            for name, p in model.named_parameters():
                p.data = holder.backup[name]
                p.data.add_(0.1)
            holder.backup = {}
            return averaged

        return [run(compile, step)[0], model, holder.shadow, holder.backup]

    agree(scenario, traces=1)


def test_a_group_that_counts(agree):
    """As Lookahead does: an int in a parameter group, set to 0 again at times."""

    def scenario(compile):
        w = nn.Parameter(lucid.ones(3))
        opt = lucid.optim.SGD([w], lr=0.1)
        slow = {w: w.detach().clone()}
        for group in opt.param_groups:
            group["counter"] = 0

        def step(x):
            opt.zero_grad()
            (w * x).square().sum().backward()
            opt.step()
            for group in opt.param_groups:
                group["counter"] += 1
                if group["counter"] >= 3:
                    slow[w] = 0.5 * slow[w] + 0.5 * w.detach()
                    w.data.copy_(slow[w])
                    group["counter"] = 0
                group["lr"] = 0.2 if group["counter"] == 0 else 0.1
            return w.sum()

        return [run(compile, step, 8)[0], w, opt.param_groups[0]["counter"]]

    agree(scenario, traces=3)  # once more after it is known that slow[w] is replaced at times


def test_an_optimizer_with_a_limited_history(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(4, dtype=lucid.float64))
        holder = Holder(changes=[], steps=[], before=None)

        @lucid.no_grad()
        def update():
            gradient = w.grad.clone()
            if holder.before is not None:
                if len(holder.changes) == 2:
                    holder.changes.pop(0)
                    holder.steps.pop(0)
                holder.changes.append(gradient - holder.before[0])
                holder.steps.append(w.data - holder.before[1])
            direction = -gradient
            for change, moved in zip(holder.changes, holder.steps, strict=True):
                share = moved.dot(direction) / (change.dot(moved) + 1e-3)
                direction = direction - 0.1 * share * change
            holder.before = (gradient, w.data.clone())
            w.add_(direction, alpha=0.05)

        @compile
        def step(x):
            w.grad = None
            loss = ((w * x).sum() - 1) ** 2 + (w - 1).square().sum()
            loss.backward()
            update()
            return loss

        inputs = [lucid.tensor([1.0, -0.5, 0.25, 0.75], dtype=lucid.float64) * i for i in range(7)]
        return [[step(x) for x in inputs], w, holder.changes, holder.steps]

    agree(scenario, traces=4)


def test_threads_that_bind_the_same_places_lose_no_update():
    holder = Holder(t=0, total=lucid.zeros(3))

    @lucid.compile
    def step(x):
        holder.t += 1
        holder.total = holder.total + x
        return holder.total

    def work():
        for _ in range(50):
            step(lucid.ones(3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert holder.t == 200 and holder.total.tolist() == [200.0] * 3


# ---------------------------------------------------------------------- those who only read


def test_a_reader_of_what_another_step_binds_is_traced_once_more(agree):
    def scenario(compile):
        holder = Holder(h=lucid.zeros(3), pair=(lucid.zeros(3), 0), count=0, rates=[0.5])

        @compile
        def step(x):
            holder.h = lucid.tanh(holder.h + x)
            holder.pair = (holder.h * 2, holder.pair[1] + 1)
            holder.count += 1
            holder.rates[0] = holder.rates[0] * 0.5
            return holder.h

        @compile
        def read(x):
            shown, steps = holder.pair
            return holder.h * x + shown * steps + holder.count / 2 - holder.rates[0]

        return [[step(x), read(x)] for x in [lucid.tensor(X) * i for i in range(5)]]

    step, read = agree(scenario)
    assert step.stats.traces == 1 and read.stats.traces == 2


def test_a_reader_of_data_that_another_step_assigns_is_traced_once_more(agree):
    def scenario(compile):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

        @compile
        def step(x):
            model.train()
            model.zero_grad()
            model(x).square().sum().backward()
            for p in model.parameters():
                p.data = p.data - 0.01 * p.grad

        @compile
        def evaluate(x):
            model.eval()
            with lucid.no_grad():
                return model(x)

        results = []
        for i in range(5):
            x = lucid.arange(12.0).reshape(4, 3) * (i + 1) / 10
            step(x)
            results.append(evaluate(x))
        return [results, model]

    step, evaluate = agree(scenario)
    assert step.stats.traces <= 2 and evaluate.stats.traces == 2


def test_a_reader_of_what_is_bound_outside_is_traced_once_more(agree):
    def scenario(compile):
        model = nn.Linear(3, 2)
        holder = Holder(target=lucid.zeros(2), rows={"a": lucid.ones(2)})
        step = compile(lambda x: (model(x) - holder.target * holder.rows["a"]).square().sum())
        results = []
        for i in range(5):
            holder.target = lucid.tensor([1.0, -1.0]) * i
            holder.rows["a"] = holder.target + 1
            model.bias.data = lucid.ones(2) * i
            model.zero_grad()
            loss = step(lucid.tensor(X))
            loss.backward()
            results += [loss, model.bias.grad.clone()]
        return results

    agree(scenario, traces=2)


def test_containers_of_nothing_that_are_replaced_by_others(agree):
    def scenario(compile):
        found = {}
        step = compile(lambda x: x * len(found["rows"]) + len(found["rows"].get("a", "abc")))
        results = []
        for rows in ({"a": []}, {}, {"b": [], "a": ()}, {"a": [], "b": 1}, {"a": []}):
            found["rows"] = rows
            results.append(step(lucid.tensor(X)))
        return results

    agree(scenario)


def test_a_number_that_changes_outside_is_read_at_each_call_from_its_second_change_on(agree):
    def scenario(compile):
        holder = Holder(temperature=1.0, depth=1)
        step = compile(lambda x: sum((x / holder.temperature for _ in range(holder.depth)), x))
        results = []
        for i in range(6):
            holder.temperature = 0.9**i
            results.append(step(lucid.tensor(X)))
        for depth in (2, 3, 2):
            holder.depth = depth
            results.append(step(lucid.tensor(X)))
        return results

    agree(scenario, traces=4)  # 1.0, any temperature, and two depths


def test_a_tensor_of_another_type_in_a_place_that_is_read_is_one_more_trace(agree):
    def scenario(compile):
        holder = Holder(h=lucid.zeros(3))
        read = compile(lambda x: holder.h.sum() + x)
        results = []
        for size in (3, 3, 4, 4, 3):
            holder.h = lucid.ones(size)
            results.append(read(lucid.tensor(X)))
        return results

    agree(scenario, traces=3)


def test_a_tensor_that_is_read_at_two_places_may_be_bound_anew_at_one(agree):
    def scenario(compile):
        h = lucid.ones(3)
        holder, other = Holder(h=h), Holder(h=h)
        read = compile(lambda x: holder.h * other.h + x)
        results = []
        for i in range(4):
            results.append(read(lucid.tensor(X)))
            holder.h = lucid.ones(3) * i
            results.append(read(lucid.tensor(X)))
            holder.h = h
        return results

    agree(scenario)


def test_a_default_dict_is_asked_for_nothing_that_is_not_there(agree):
    def scenario(compile):
        from collections import defaultdict

        table = defaultdict(lambda: lucid.zeros(3))

        @compile
        def step(x):
            if len(table) < 2:
                table[len(table)] = x * 2
            return table[0] + x

        results = [step(lucid.tensor(X)) for _ in range(4)]
        del table[0], table[1]
        results.append(step(lucid.tensor(X)))
        return [results, dict(table)]

    agree(scenario)


def test_attributes_of_functions_are_read_and_bound_at_every_call(agree, entry):
    def scenario(compile):
        def scaled(x):
            scaled.calls += 1
            scaled.last = x * scaled.factor
            return scaled.last * scaled.calls

        scaled.calls, scaled.factor = 0, 2.0

        @compile
        def step(x):
            scaled.times = getattr(scaled, "times", 0) + 1
            return scaled(x)

        results = []
        for i in range(7):
            scaled.factor = 2.0 if i < 4 else 3.0
            results += [step(lucid.tensor(X)), scaled.calls, scaled.times, scaled.last]
        return results

    agree(scenario, traces=3)


def test_attributes_that_functions_may_get_are_looked_for_at_every_call(agree, entry):
    def scenario(compile):
        def scaled(x):
            return x * getattr(scaled, "factor", 2.0)

        step = compile(lambda x: scaled(x))
        results = [step(lucid.tensor(X)) for _ in range(2)]
        for factor in (3.0, 4.0):
            scaled.factor = factor
            results.append(step(lucid.tensor(X)))
        del scaled.factor
        return [*results, step(lucid.tensor(X))]

    agree(scenario)


def test_a_variable_that_is_bound_after_the_first_call_is_noticed(agree, entry):
    def scenario(compile):
        @compile
        def step(x):
            try:
                return x * factor
            except NameError:
                return x

        results = [step(lucid.tensor(X)) for _ in range(2)]
        factor = 3.0
        return [*results, *(step(lucid.tensor(X)) for _ in range(2))]

    agree(scenario, traces=2)


def test_attributes_of_the_step_itself_are_read_and_bound_at_every_call(agree, entry):
    def scenario(compile):
        @compile
        def step(x):
            step.calls += 1
            return x * step.calls * step.factor

        step.calls, step.factor, results = 0, 2.0, []
        for i in range(6):
            step.factor = 2.0 if i < 3 else 3.0
            results += [step(lucid.tensor(X)), step.calls]
        del step.factor
        return [*results, hasattr(step, "factor"), step.__wrapped__.calls]

    agree(scenario, traces=2)


def test_containers_of_pythons_own_library_are_state(agree, entry):
    def scenario(compile):
        counts, rows, layers = UserDict(n=0), UserList([0.5]), ChainMap({"n": 0}, {"by": 2.0})

        @compile
        def step(x):
            counts["n"] += 1
            rows[0] *= 2
            layers["n"] += counts["n"]
            return x * counts["n"] + rows[0] - layers["n"] * layers["by"]

        results = [step(lucid.tensor(X)) for _ in range(5)]
        return [results, dict(counts), list(rows), dict(layers)]

    agree(scenario, traces=1)


def test_a_parameter_that_each_step_makes_anew(agree):
    def scenario(compile):
        lucid.manual_seed(2)
        net, found = nn.Linear(3, 2), []
        other = Holder(weight=lucid.ones(3, requires_grad=True))

        def step(x):
            loss = (net(x) ** 2).sum() + (other.weight * x).sum()
            loss.backward()
            net.weight = nn.Parameter(net.weight.data - 0.1 * net.weight.grad)
            net.bias = nn.Parameter(0.5 * net.bias, requires_grad=False)
            other.weight = (other.weight - 0.1 * other.weight.grad).detach().requires_grad_()
            return loss, nn.Parameter(2 * x)

        step = compile(step)
        for _ in range(4):
            found += step(lucid.randn(3))
            assert type(net.weight) is type(net.bias) is type(found[-1]) is nn.Parameter
            assert net.weight.is_leaf and not net.bias.requires_grad and net.weight.grad is None
            (net(lucid.ones(3)).sum() * found[-1].sum() + other.weight.sum()).backward()
            found += [net.weight.grad, other.weight.grad, found[-1].grad]
        return [found, net.weight, net.bias, other.weight]

    (step,) = agree(scenario)
    assert step.stats.traces <= 2 and not step.stats.eager_reasons


@pytest.mark.parametrize(
    "write",
    [
        lambda state, name, loss: state.log.__setitem__(name, loss),
        lambda state, name, loss: state.log.update({name: loss}),
        lambda state, name, loss: state.log.__init__({name: loss}),
        lambda state, name, loss: state.lists[name].append(loss),
        lambda state, name, loss: state.log.setdefault(name, []).append(loss),
        lambda state, name, loss: state.log.__setitem__((name, 1), loss),
        lambda state, name, loss: setattr(state, name, loss),
        lambda state, name, loss: setattr(state, "log", {name: loss, **state.log}),
        lambda state, name, loss: state.counts.update([name]),
        lambda state, name, loss: list(map(state.log.__setitem__, [name, "a"], [loss, loss])),
        lambda state, name, loss: list(map(setattr, [state], ["kept"], [loss])),
        lambda state, name, loss: list(itertools.starmap(state.row.__setitem__, [(0, loss)])),
    ],
)
def test_keys_and_what_map_writes_are_pythons_own(agree, write):
    """Nothing that stood for a text or a number while tracing stays in a dict or an object."""

    def scenario(compile):
        state = types.SimpleNamespace(log={}, row=[0], n=0, kept=None)
        state.lists, state.counts = collections.defaultdict(list), collections.Counter()

        @compile
        def step(x):
            state.n += 1
            write(state, f"loss/{state.n % 2}", x.sum().item())
            return list(state.log), len(state.lists)

        found = [step(lucid.ones(2) * i) for i in range(5)]
        keys = [*state.log, *state.lists, *state.counts, *vars(state)]
        kinds = [type(part) for key in keys for part in (key if type(key) is tuple else (key,))]
        values = [*state.log.values(), *state.row, state.kept]
        return found, vars(state), kinds, [type(value) for value in values]

    agree(scenario)


def test_containers_whose_class_has_methods_that_go_on_to_pythons_own(agree):
    class Doubled(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value * 2)

        def __delitem__(self, key):
            super().__delitem__(key)

    class Shifted(list):
        def append(self, value):
            super().append(value + 1)

        def extend(self, values):
            for value in values:
                self.append(value)

    class Recent(collections.OrderedDict):
        def __getitem__(self, key):
            self.move_to_end(key)
            return super().__getitem__(key)

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            if len(self) > 2:
                del self[next(iter(self))]

    class Attributes(dict):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            super().__setitem__(name, value)

    def scenario(compile):
        doubled, shifted, recent, attributes = Doubled(), Shifted(), Recent(), Attributes()

        @compile
        def step(x, key):
            doubled["loss"] = x.sum().item()
            doubled["gone"] = 1
            del doubled["gone"]
            shifted.extend([x.mean().item(), 1])
            recent[key] = x * 2
            attributes.last = x.sum()
            return recent[key] + doubled["loss"]

        found = []
        for i in range(5):
            found += [step(lucid.ones(2) * i, "abcab"[i]), dict(doubled), [*shifted]]
            found += [[*recent], [*recent.values()], dict(attributes), attributes.last]
        return found

    agree(scenario)
