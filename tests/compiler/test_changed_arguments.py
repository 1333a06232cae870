"""Lists, dicts and objects that a step is given and changes: the caller's own are changed."""

from __future__ import annotations

import collections
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function

X = [0.5, -1.0, 2.0]


def inputs(count=5):
    return [lucid.tensor(X) * (i + 1) for i in range(count)]


@dataclass
class Carry:
    h: lucid.Tensor
    c: lucid.Tensor
    scale: float = 1.0


@dataclass(slots=True)
class Slotted:
    h: lucid.Tensor


class Batch:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def test_entries_of_a_dict(agree):
    def scenario(compile):
        state = {"m": lucid.zeros(3), "rate": 1.0, "t": 0, "kept": lucid.ones(3)}
        kept = state["kept"]

        @compile
        def step(state, x):
            state["m"] = 0.9 * state["m"] + x
            state["rate"] = state["rate"] * 0.5
            state["t"] += 1
            return state["m"] * state["rate"] / state["t"] + state["kept"]

        results = [step(state, x) for x in inputs()]
        assert state["kept"] is kept and type(state["t"]) is int
        return [results, state]

    agree(scenario, traces=1)


def test_entries_that_come_go_and_move(agree):
    def scenario(compile):
        @compile
        def step(batch):
            x = batch.pop("x")
            batch["y"] = x * 2
            batch["x"] = x + 1
            del batch["label"]
            batch["nested"]["z"], batch["nested"]["list"][0] = x, batch["y"]
            return x.sum()

        seen = []
        for x in inputs(3):
            batch = {"x": x, "label": "a", "nested": {"list": [x, 3]}}
            nested = batch["nested"], batch["nested"]["list"]
            seen += [step(batch), batch, list(batch)]
            assert batch["nested"] is nested[0] and nested[0]["list"] is nested[1]
            assert nested[0]["z"] is x
        return seen

    agree(scenario, traces=1)


def test_lists_that_grow_and_shrink(agree):
    def scenario(compile):
        @compile
        def step(items, x, *, log):
            items.append(x * items[0])
            items.insert(0, items.pop(1))
            log += [x.sum(), 1]
            del log[0]

        seen = []
        for x in inputs(3):
            items, log = [lucid.ones(3), lucid.zeros(3)], [x]
            step(items, x, log=log)
            seen += [items, log]
        return seen

    agree(scenario, traces=1)


def test_a_list_is_one_trace_for_each_length(agree):
    def scenario(compile):
        step = compile(lambda items, x: items.append(items[-1] + x))
        items = [lucid.zeros(3)]
        for x in inputs(3):
            step(items, x)
        return items

    agree(scenario, traces=3)


def test_attributes_of_dataclass_instances(agree):
    def scenario(compile):
        cell = nn.LSTMCell(3, 4)

        @compile
        def step(carry, other, x):
            with lucid.no_grad():
                carry.h, carry.c = cell(x, (carry.h, carry.c))
            carry.scale = carry.scale / 2
            other.h = other.h + carry.h.sum() * carry.scale
            return carry.h

        carry, other = Carry(lucid.zeros(1, 4), lucid.zeros(1, 4)), Slotted(lucid.zeros(()))
        results = [step(carry, other, x.reshape(1, 3)) for x in inputs()]
        assert results[-1] is carry.h
        return [results, carry, other]

    agree(scenario, traces=1)


def test_attributes_of_objects_of_plain_data(agree):
    def scenario(compile):
        @compile
        def step(batch):
            batch.x = batch.x * 2
            batch.parts["y"] = batch.x + 1
            batch.total = batch.x.sum()
            return batch.total

        seen = []
        for x in inputs(4):
            batch = Batch(x=x, name="a", parts={})
            seen += [step(batch), vars(batch)]
        return seen

    agree(scenario, traces=1)


class Named(dict):
    pass


class SelfNamed(dict):
    def __init__(self, *args, **entries):
        super().__init__(*args, **entries)
        self.__dict__ = self


@pytest.mark.parametrize("kind", [Named, SelfNamed], ids=["attributes", "entries"])
def test_attributes_of_dicts(agree, kind):
    def scenario(compile):
        @compile
        def step(batch):
            batch.count += 1
            batch.rate, batch.total = batch.rate * 0.5, (batch.x * batch["x"]).sum()
            batch["x"] = batch.x * batch.rate * batch.count
            del batch.kept
            return batch["x"] + batch.x

        found = []
        for i, x in enumerate(inputs()):
            batch = kind(x=x)
            batch.x, batch.rate, batch.count, batch.kept = x + 1, 1.0 * i, i, x
            found += [step(batch), dict(batch), dict(vars(batch)), [*batch]]
        return found

    agree(scenario, traces=1)


def test_keys_that_each_call_names(agree):
    def scenario(compile):
        @compile
        def step(x, state, name):
            state.pop(name, None)
            state[name] = x * 2
            return len(state)

        found = []
        for name in "abcdea":
            state = {"a": 1}
            found += [step(lucid.ones(2), state, name), state, [type(key) for key in state]]
        return found

    agree(scenario)


def _entries_move(batch):
    batch["x"] = batch.pop("x") * 2
    batch["y"], batch.scale = batch.pop("y"), 3
    return batch["x"] * batch.scale


def test_attributes_of_dicts_whose_entries_move(agree):
    def scenario(compile):
        step, found = compile(_entries_move), []
        for i, x in enumerate(inputs()):
            batch = Named(y=1, x=x)
            batch.scale = i
            found += [step(batch), [*batch.items()], vars(batch)]
        return found

    agree(scenario)


def _looks_into(batch):
    own = batch.__dict__
    own["seen"] = own.get("seen", 0) + 1
    vars(batch).update(x=batch.x * own["rate"])
    return batch.x + batch.seen


def _counts_by_it(batch):
    batch.counts["n"] = batch.__dict__["counts"]["n"] + 1
    return batch.x * batch.counts["n"]


def _returns_it(batch):
    return vars(batch)


@pytest.mark.parametrize("use", [_looks_into, _counts_by_it, _returns_it])
def test_the_dict_of_an_object_of_plain_data(agree, use):
    def scenario(compile):
        class Own(Batch):
            pass

        step, found = compile(use), []
        for i, x in enumerate(inputs()):
            batch = Own(x=x, rate=0.5 * i, counts={"n": i})
            result = step(batch)
            found += [result, vars(batch), result is vars(batch)]
        return found

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_objects_that_count_are_known_by_identity(agree):
    def scenario(compile):
        class State:
            def __init__(self):
                self.n, self.mean = 0, lucid.zeros(3)

        @compile
        def step(state, x):
            state.n += 1
            state.mean = state.mean + (x - state.mean) / state.n
            return state.mean

        state = State()
        return [[step(state, x) for x in inputs()], vars(state)]

    agree(scenario, traces=1)


def test_an_optimizer_as_a_function_of_dicts(agree):
    def scenario(compile):
        model = nn.Linear(3, 2)
        state = {"step": 0, "moments": {}}

        @compile
        def step(params, state, x, y):
            loss = F.mse_loss(model(x), y)
            grads = lucid.autograd.grad(loss, list(params.values()))
            state["step"] += 1
            with lucid.no_grad():
                for (name, p), g in zip(params.items(), grads, strict=True):
                    m, v = state["moments"].get(name, (lucid.zeros_like(p), lucid.zeros_like(p)))
                    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                    state["moments"][name] = (m, v)
                    m_hat = m / (1 - 0.9 ** state["step"])
                    v_hat = v / (1 - 0.999 ** state["step"])
                    p -= 0.05 * m_hat / (v_hat.sqrt() + 1e-8)
            return loss, state

        params = dict(model.named_parameters())
        losses = []
        for x in inputs(6):
            loss, returned = step(params, state, x, lucid.ones(2))
            assert returned is state
            losses.append(loss)
        return [losses, model, state]

    agree(scenario, traces=2)  # without and with moments


def test_what_is_given_is_returned_and_kept_as_it_is(agree):
    def scenario(compile):
        class Pair(NamedTuple):
            first: dict
            second: list

        @compile
        def step(pair, x):
            pair.first["x"] = pair.second
            pair.second.append(x)
            return {"pair": pair, "list": pair.second}, [pair.first]

        pair = Pair({}, [])
        x = lucid.ones(2)
        result, (first,) = step(pair, x)
        assert result["list"] is pair.second is pair.first["x"] and first is pair.first
        assert pair.second[0] is x and len(pair.second) == 1
        return pair.second

    agree(scenario)


def test_what_is_left_in_an_argument_can_be_differentiated_outside(agree):
    def scenario(compile):
        net = nn.Linear(3, 3)

        @compile
        def step(state, x):
            state["h"] = lucid.tanh(net(x) + state["h"])
            return state, state["h"].sum()

        state = {"h": lucid.zeros(3)}
        for x in inputs(3):
            returned, total = step(state, x)
            (total + (state["h"] ** 2).sum()).backward()
            assert returned is state
            state["h"] = state["h"].detach()
        return [net, state]

    agree(scenario, traces=1)


def test_results_can_be_differentiated_though_the_step_consumes_its_arguments(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor(X))

        @compile
        def step(batch, carry):
            x = batch["x"].pop()
            carry.h = carry.h * x
            return (w * x * carry.h).sum()

        batch, carry = {"x": inputs(2)}, Carry(lucid.ones(3), lucid.ones(3))
        loss = step(batch, carry)
        (first,) = lucid.autograd.grad(loss, [w], create_graph=True)
        loss.backward()
        return [loss, first, w, batch, carry]

    agree(scenario)


def test_ordered_dicts_keep_their_class(agree):
    def scenario(compile):
        @compile
        def step(table, x):
            table["b"] = x * 2
            table.move_to_end("a")

        table = OrderedDict(a=lucid.ones(2), c=lucid.zeros(2))
        step(table, lucid.ones(2))
        assert type(table) is OrderedDict
        return [table, list(table)]

    agree(scenario)


def test_arrays_among_the_arguments_are_tensors_in_every_mode(agree):
    def scenario(compile):
        @compile
        def step(batch):
            batch["y"] = batch["x"] * 2
            batch["rows"].append(batch["x"])
            return batch

        batch = {"x": np.array(X, np.float32), "rows": [np.ones(2, np.float32)]}
        rows, x = batch["rows"], batch["x"]
        assert step(batch) is batch and batch["rows"] is rows and batch["x"] is x
        return [batch["y"], rows[1]]

    agree(scenario)


def test_a_failed_call_changes_no_argument():
    @lucid.compile
    def step(state, x, i):
        state["t"] += 1
        state["last"] = x[i].sum()

    state, x = {"t": 0, "last": lucid.zeros(())}, lucid.arange(4.0)
    step(state, x, lucid.tensor([1]))
    with pytest.raises(lucid.LucidError):
        step(state, x, lucid.tensor([9]))
    assert state["t"] == 1 and state["last"].item() == 1.0


def test_a_failed_trace_changes_no_argument():
    def step(state, batch):
        state["t"] += 1
        state["new"] = batch.x * 2
        batch.x = state["new"]
        raise KeyError("late")

    state, batch = {"t": 0}, Batch(x=lucid.ones(3))
    x = batch.x
    with pytest.raises(KeyError):
        lucid.compile(step)(state, batch)
    assert state == {"t": 0} and vars(batch) == {"x": x}


def test_one_container_under_several_names(agree):
    def scenario(compile):
        @compile
        def step(a, b):
            a["x"] = b["x"] * 2
            b["rows"].append(a["x"])
            return a is b, b["x"], [a, b]

        one, other = {"x": lucid.ones(2), "rows": []}, {"x": lucid.ones(2), "rows": []}
        seen = []
        for a, b in ((one, other), (one, one), (other, one), (other, other)):
            is_one, x, (first, second) = step(a, b)
            assert first is a and second is b
            seen.append((is_one, x))
        return [seen, one, other]

    agree(scenario)


def _count_in_dict(given):
    given["n"] += 1.0


def _count_in_list(given):
    given[0] += 1.0


def _append(given):
    given.append(1.0)


def _count_in_object(given):
    given.scale += 1.0


KNOWN_OTHERWISE = {
    "a dict": (lambda n: {"n": n}, _count_in_dict, lambda given: given["n"]),
    "a list": (lambda n: [n], _count_in_list, lambda given: given[0]),
    "a list that grows": (lambda n: [n], _append, len),
    "a deque": (lambda n: collections.deque([n]), _count_in_list, lambda given: given[-1]),
    "a dataclass": (lambda n: Carry(0, 0, n), _count_in_object, lambda given: given.scale),
    "an object": (lambda n: Batch(scale=n), _count_in_object, lambda given: given.scale),
    "a list in an object": (
        lambda n: Batch(rows=[n]),
        lambda given: _append(given.rows),
        lambda given: len(given.rows),
    ),
}


@pytest.mark.parametrize("first", [True, False], ids=["from the first call on", "later"])
@pytest.mark.parametrize("is_given", [True, False], ids=["as the argument", "elsewhere"])
@pytest.mark.parametrize("kind", KNOWN_OTHERWISE)
def test_what_is_an_argument_and_known_otherwise(agree, kind, is_given, first):
    """A step is given now and then what it knows by another name, and changes it by one of them."""
    make, change, read = KNOWN_OTHERWISE[kind]

    def scenario(compile):
        shared, other = make(1.0), make(10.0)

        @compile
        def step(given, x):
            change(given if is_given else shared)
            return x * read(shared if is_given else given) + read(given)

        turns = [first, *[True, False] * 4]
        results = [step(shared if turn else other, lucid.ones(2)) for turn in turns]
        return [results, read(shared), read(other)]

    made = agree(scenario)
    assert not made[0].stats.eager_reasons


def test_an_array_that_is_written_and_read_in_python_by_another_name(agree):
    def scenario(compile):
        shared, other = np.ones(2), np.full(2, 10.0)

        @compile
        def step(given, x):
            given[0] += 1.0
            return x * float(shared[0])

        return [step(given, lucid.ones(2)) for given in (other, other, shared, other, shared)]

    agree(scenario)


def test_objects_that_a_step_changes_and_takes_out_of_their_list(agree):
    class Timer:
        def __init__(self, left):
            self.left = left

        def has_rung(self):
            self.left -= 1
            return self.left <= 0

    def scenario(compile):
        timers = [Timer(left) for left in (2, 3, 9)]

        @compile
        def step(x):
            timers[:] = [timer for timer in timers if not timer.has_rung()]
            return x * len(timers)

        return [(step(lucid.ones(2)), [timer.left for timer in timers]) for _ in range(5)]

    agree(scenario)


def test_what_cannot_be_made_again_is_made_op_by_op():
    @lucid.compile
    def step(state, x):
        state["made"] = KeyError(x)

    state = {}
    step(state, lucid.ones(2))
    assert step.stats.eager_reasons[0].startswith("it keeps in state['made'] an object of KeyError")
    assert state["made"].args[0].tolist() == [1, 1]


def test_a_counter_is_counted_in(agree):
    def scenario(compile):
        @compile
        def step(x, counted):
            counted["n"] += 1
            return x * counted["n"]

        counted = collections.Counter(n=1)
        return [[step(lucid.tensor(1.0), counted), dict(counted)] for _ in range(4)]

    agree(scenario)


def test_an_argument_is_changed_by_a_step_in_a_custom_forward(agree):
    def scenario(compile):
        @compile
        def step(x, counted):
            counted["n"] += 1
            return x * 3

        class Triple(Function):
            @staticmethod
            def forward(ctx, x, counted):
                return step(x, counted)

            @staticmethod
            def backward(ctx, g):
                return g * 3, None

        counted, found = {"n": 1}, []
        for _ in range(3):
            x = lucid.ones(2, requires_grad=True)
            Triple.apply(x, counted).sum().backward()
            found += [x, dict(counted)]
        return found

    agree(scenario)
