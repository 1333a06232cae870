"""Arguments: structure, types, strides, sharing; which program serves a call."""

from __future__ import annotations

import argparse
import copy
import datetime
import decimal
import enum
import fractions
import functools
import math
import pathlib
import re
import types
import uuid
from collections import defaultdict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.tensor.tree import flatten

Pair = namedtuple("Pair", "a b")


@dataclass
class Batch:
    x: lucid.Tensor
    scale: float
    name: str = "train"

    def doubled(self):
        return self.x * 2


class Kind(enum.Enum):
    SUM = 1
    MEAN = 2


class Parts(enum.IntFlag):
    NOISE = 1
    FLIP = 2
    SCALE = 4


def test_nested_arguments_and_results_keep_their_structure(agree):
    def scenario(compile):
        @compile
        def step(pair, tree, batch):
            out = {"s": pair.a + pair.b, "l": [tree["x"][0] * 2, (tree["x"][1],)]}
            return Pair(out, batch.doubled() * batch.scale), batch

        one = lucid.ones(2)
        found = step(Pair(one, 2.0), {"x": [one, lucid.tensor(3)]}, Batch(one, 0.5))
        assert isinstance(found[0], Pair) and isinstance(found[1], Batch)
        return found

    agree(scenario, traces=1)


class Fit(Pair):
    """As SciPy makes the results of its tests: attributes besides, a constructor of its own."""

    def __new__(cls, a, b, **others):
        return super().__new__(cls, a, b)

    def __init__(self, a, b, count):
        self.count = count


def test_named_tuples_keep_their_attributes(agree):
    def scenario(compile):
        @compile
        def step(fit):
            return Fit(fit.b, fit.a * 2, count=fit.count + 1), fit

        made, given = step(Fit(lucid.ones(2), 2.0, count=lucid.tensor([3.0])))
        later, _ = step(Fit(lucid.ones(2), 2.0, count=lucid.tensor([5.0])))
        return [type(made), *made, made.count, type(given), *given, given.count, later.count]

    agree(scenario, traces=1)
    leaves, rebuild = flatten(Fit(1, 2, count=3))
    assert leaves == [1, 2] and rebuild([4, 5]) == (4, 5) and rebuild([4, 5]).count == 3


def test_defaults_keywords_and_variadics(agree):
    def scenario(compile):
        @compile
        def step(x, *rest, scale=2.0, flag=True, **others):
            out = x * scale if flag else x
            for item in rest:
                out = out + item
            for value in others.values():  # in the caller's order
                out = out * 2 + value
            return out

        one = lucid.ones(2)
        return [
            step(one),
            step(one, one, 3.0),
            step(x=one),
            step(one, scale=3.0),
            step(one, flag=False, scale=3.0),
            step(one, scale=3.0, flag=False),
            step(one, b=one * 2, a=one * 3),
            step(one, a=one * 3, b=one * 2),
            step(one, a=one * 3, scale=1.0, b=one * 2),
            step(one, scale=4.0, a=one * 3, b=one * 2),
        ]

    agree(scenario, traces=8)


def test_float_arguments_are_live_and_other_numbers_are_not(agree):
    def scenario(compile):
        @compile
        def step(x, n):
            return x * n

        one = lucid.ones(2)
        calls = [1.5, 2.5, np.float32(3.5), 2, 3, 2, True, 1, np.int64(3), -0.0, float("nan")]
        return [step(one, n) for n in calls]

    agree(scenario, traces=7)


def test_an_int_that_keeps_changing_is_read_at_each_call(agree):
    def scenario(compile):
        @compile
        def step(x, iteration, total=10, *, offset):
            rate = 0.5 * (1 + math.cos(math.pi * iteration / total)) + offset
            if iteration % 4 == 0:
                rate = rate + 100
            return x * rate + iteration, lucid.tensor(iteration), isinstance(iteration, int)

        found = [step(lucid.ones(2), i, offset=i // 2) for i in range(12)]
        return [*found, step(lucid.ones(2), 2, 20, offset=1)]

    (step,) = agree(scenario, traces=5)
    assert step.stats.retrace_reasons[-3:] == [
        "iteration: int 1 -> an int; offset: int 0 -> an int",
        "iteration % 4 == 0 (a branch looked at it): False -> True",
        "total: absent -> int 20",
    ]


def test_the_count_in_a_state_that_is_passed_along_is_read_at_each_call(agree):
    def scenario(compile):
        @compile
        def step(x, state):
            t = state["t"] + 1
            mean = state["mean"] * 0.9 + x * 0.1
            return mean / (1 - 0.9**t), {"t": t, "mean": mean}

        state, found = {"t": 0, "mean": lucid.zeros(2)}, []
        for i in range(8):
            result, state = step(lucid.ones(2) * i, state)
            found.append((result, state["t"]))
        return found

    agree(scenario, traces=3)


@pytest.mark.parametrize("starts", [(7,), (1, 30)])
def test_an_int_is_read_at_each_call_from_its_third_value_on(agree, starts):
    def scenario(compile):
        step = compile(lambda x, i: x * i)
        return [step(lucid.ones(2), start + i) for i in range(6) for start in starts]

    agree(scenario, traces=3)


@pytest.mark.parametrize(
    ("ints", "traces"), [(range(14), 4), ([403, 28, 5, 124, 60, 7, 88, 31, 2, 17, 95, 340], 4)]
)
def test_ints_keep_changing_though_flags_change_with_them(agree, ints, traces):
    def scenario(compile):
        step = compile(lambda x, i, *, verbose: (x * i, i + 1, verbose))
        return [step(lucid.ones(2), i, verbose=k % 3 == 0) for k, i in enumerate(ints)]

    (step,) = agree(scenario, traces=traces)
    assert not step.stats.eager_reasons


def test_ints_with_flags_that_come_back_have_their_programs(agree):
    def scenario(compile):
        step = compile(lambda x, i, flag: x * i + flag)
        return [step(lucid.ones(2), i, i > 1) for i in (1, 2, 4, 1, 2, 4, 2)]

    agree(scenario, traces=3)


def test_ints_that_come_back_have_their_programs_though_others_are_read_at_each_call(agree):
    def scenario(compile):
        step = compile(lambda x, i: x * weights[i])
        return [step(lucid.ones(2), i) for i in (0, 1, 2, 0, 1, 2, 1, 0)]

    weights = [lucid.full((2,), i) for i in range(3)]
    agree(scenario, traces=3)


def test_ints_that_shapes_depend_on_choose_the_program(agree):
    def scenario(compile):
        step = compile(lambda x, n: x.repeat(n) * lucid.arange(2 * n))
        return [step(lucid.ones(2), n) for n in (0, 1, 2, 3, 4, 5, 6, 5, 4)]

    agree(scenario, traces=3)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x[n],
        lambda x, n: x[-n, n:],
        lambda x, n: x.narrow(0, 1, n) * n,
        lambda x, n: x.unfold(0, n, 1),
        lambda x, n: F.pad(x, (n, 0)),
    ],
)
def test_ints_that_say_where_in_a_tensor_choose_the_program(agree, use):
    def scenario(compile):
        step = compile(use)
        return [step(lucid.arange(64.0).reshape(8, 8), n) for n in (1, 2, 3, 4, 5)]

    (step,) = agree(scenario, traces=3)
    assert not step.stats.eager_reasons


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x * lucid.arange(n, n + 4),
        lambda x, n: x * lucid.arange(2 * n, n + n + 8, 2, dtype=lucid.float32),
        lambda x, n: x * lucid.arange(n + 3, n - 1, -1),
        lambda x, n: x * lucid.arange(n * 0.5, n * 0.5 + 2, 0.5),
    ],
)
def test_a_range_of_one_length_starts_where_each_call_says(agree, use):
    def scenario(compile):
        step = compile(use)
        return [step(lucid.ones(4), n) for n in range(1, 12)]

    (step,) = agree(scenario, traces=3)
    assert not step.stats.eager_reasons


def test_ints_that_python_must_know_choose_the_program_until_they_keep_changing(agree):
    def scenario(compile):
        step = compile(lambda x, n: x * len(str(decimal.Decimal(n))))
        return [step(lucid.ones(2), n) for n in (0, 1, 20, 300, 4000, 50_000, 600_000)]

    (step,) = agree(scenario, traces=2)
    assert {reason.partition(":")[0] for reason in step.stats.eager_reasons} == {
        "with numbers that it would read at each call its trace fails"
    }


def test_a_flag_of_several_members_is_a_value(agree):
    """It has no name in its class, as those have that are one member, but is no object of data."""

    def scenario(compile):
        holder = types.SimpleNamespace(parts=None)

        @compile
        def step(x, parts):
            x = x.flip(0) if parts & Parts.FLIP else x
            return x * 2 if Parts.SCALE in holder.parts else x, holder.parts.value

        found = []
        for i in (1, 2, 3, 5, 1, 2, 3, 5, 6):
            holder.parts = Parts(i)
            found.append(step(lucid.tensor([1.0, 2.0]), Parts(3)))
        return [*found, step(lucid.tensor([1.0, 2.0]), Parts(5))]

    (step,) = agree(scenario, traces=6)
    assert not step.stats.eager_reasons


class Doubled(namedtuple("Doubled", "x y")):
    def __new__(cls, x):
        return super().__new__(cls, x, x * 2)


def test_named_tuples_of_the_users(agree):
    def scenario(compile):
        @compile
        def step(pair):
            pair.seen = pair.rate * 2
            return pair.x * pair.y * pair.rate

        found = []
        for i in range(4):
            pair = Doubled(lucid.ones(2) + i)
            pair.rate = 0.5 * i
            found += [step(pair), vars(pair)]
        return found

    agree(scenario, traces=1)


def test_values_strings_none_and_enums_choose_the_program(agree):
    def scenario(compile):
        @compile
        def step(x, kind, mode=None, axes=(0,)):
            out = x.sum(axes) if kind is Kind.SUM else x.mean(axes)
            return -out if mode == "neg" else out

        x = lucid.arange(6.0).reshape(2, 3)
        return [
            step(x, Kind.SUM),
            step(x, Kind.MEAN),
            step(x, Kind.SUM, "neg"),
            step(x, Kind.SUM, axes=(0, 1)),
            step(x, Kind.SUM, None),
        ]

    agree(scenario, traces=5)


def test_slices_ranges_and_dtypes_are_compared_by_value(agree):
    def scenario(compile):
        @compile
        def step(x, rows, dtype):
            return x[rows].to(dtype)

        x = lucid.arange(6.0)
        return [
            step(x, slice(0, 2), lucid.float64),
            step(x, slice(0, 2), lucid.float64),
            step(x, slice(0, 3), lucid.float64),
        ]

    agree(scenario, traces=2)


@pytest.mark.parametrize(
    ("first", "second", "use"),
    [
        (range(0, 10, 2), range(0, 9, 2), lambda x: x.stop),
        (defaultdict(int), defaultdict(list), lambda x: x["new"]),
        (defaultdict(lambda: 2), defaultdict(lambda: 3), lambda x: x["new"]),
    ],
    ids=["range", "factory", "lambda"],
)
def test_values_that_are_equal_and_not_alike_choose_the_program(agree, first, second, use):
    def scenario(compile):
        given = compile(lambda x, value: (x * 2, use(value)))
        bound = {}
        found = compile(lambda x: (x * 2, use(bound["value"])))
        results = []
        for value in (first, second, first):
            bound["value"] = copy.copy(value)
            results += [given(lucid.ones(2), copy.copy(value)), found(lucid.ones(2))]
        return results

    agree(scenario)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 3)])
def test_scalar_and_empty_arguments(agree, shape):
    def scenario(compile):
        @compile
        def step(x):
            return x * 2 + 1, x.sum()

        return step(lucid.ones(shape))

    agree(scenario, traces=1)


def test_strided_arguments_are_read_and_written_in_place(agree):
    def scenario(compile):
        base = lucid.arange(24.0).reshape(4, 6)

        @compile
        def step(x):
            x.mul_(2)
            return x.t() + 1

        views = [base[::2, 1:4], base.t()[1:3], base.flip(0)[1:], base[1]]
        return [[step(view) for view in views], base]

    agree(scenario, traces=4)


def test_an_expanded_argument_is_read(agree):
    def scenario(compile):
        step = compile(lambda x: x * lucid.arange(6.0).reshape(2, 3))
        return step(lucid.ones(3).expand(2, 3))

    agree(scenario)


def test_the_same_tensor_in_two_slots_is_one_tensor(agree):
    def scenario(compile):
        @compile
        def step(a, b):
            a.add_(1)
            return a * b, a is b

        x, y = lucid.ones(2), lucid.full((2,), 5.0)
        return [step(x, y), step(x, x), step(y, x), x, y]

    agree(scenario, traces=2)


def test_different_views_of_one_tensor_are_told_apart(agree):
    def scenario(compile):
        @compile
        def step(a, b):
            out = a - b
            a.add_(10)
            return out, a + b

        x = lucid.arange(6.0)
        return [step(x[:2], x[2:4]), step(x[1:4], x[:3]), step(x[:2], lucid.ones(2)), x]

    agree(scenario)


def test_inputs_and_targets_from_one_stream_need_one_program(agree):
    def scenario(compile):
        stream = lucid.arange(20.0)
        step = compile(lambda x, y, again: ((x * y - again).sum(), x, y[1:]))
        found = []
        for i in range(4):
            result, x, rest = step(stream[i : i + 4], stream[2 * i + 1 : 2 * i + 5], stream[:4])
            rest += 100.0  # memory of the stream
            found.append((result, x))
        return found, stream

    agree(scenario, traces=1)


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_what_is_written_shows_in_the_other_parts_of_its_memory_op_by_op(agree, written):
    def scenario(compile):
        def body(*parts):
            parts[written].mul_(3.0)
            return (parts[0] * 1000 + parts[1] * 100 + parts[2] * 10 + parts[3]).sum()

        step = compile(body)
        found = [step(*(lucid.ones(4) for _ in range(4)))]  # a program for what is apart
        for i in range(3):
            stream = lucid.arange(20.0)
            x, y = stream[i : i + 4], stream[2 * i + 1 : 2 * i + 5]
            found.append((step(x, y, x.detach(), y), stream, x._version))
        return found

    (step,) = agree(scenario)
    assert step.stats.calls == 1
    assert len(step.stats.eager_reasons) == 3
    assert step.stats.eager_reasons[0].startswith("two inputs of the step share memory")


def test_a_loop_that_ends_by_a_value_whose_memory_it_writes_ends(agree):
    def scenario(compile):
        def body(x, y):
            while y.sum() < 30:
                x.add_(1)
            return x * 2

        step, x = compile(body), lucid.ones(4, 3)
        return step(x, x[:2]), x

    (step,) = agree(scenario)
    assert step.stats.eager_reasons[0].startswith("two inputs of the step share memory")


def test_parts_of_one_memory_that_lie_apart_are_written_natively(agree):
    def scenario(compile):
        step, stream = compile(lambda x, y: [x.mul_(y), y.add_(x)]), lucid.arange(12.0)
        pairs = [(stream[i : i + 3], stream[i + 3 : i + 6]) for i in range(3)]
        return [[step(*pair) for pair in pairs], stream, stream._version]

    (step,) = agree(scenario, traces=1)
    assert step.stats.calls == 3


def test_columns_of_one_memory_of_which_one_is_written_run_op_by_op(agree):
    def scenario(compile):
        step, rows = compile(lambda x, y: x.mul_(2.0).sum() + y.sum()), lucid.ones(3, 4)
        return [[step(rows[:, :2], rows[:, 2:]) for _ in range(2)], rows]

    (step,) = agree(scenario)
    assert [reason.partition(":")[0] for reason in step.stats.eager_reasons] == [
        "two inputs of the step share memory, and one is written"
    ] * 2


def test_gradients_of_parts_of_one_memory(agree):
    def scenario(compile):
        def body(x, y):
            (x * x * y).sum().backward()

        step, found = compile(body), []
        for i in range(3):
            stream = lucid.arange(9.0)
            x = stream[i : i + 3].requires_grad_()
            step(x, stream[4:7])
            found.append(x.grad)
        return found

    agree(scenario)


def test_an_alias_in_a_second_slot_keeps_its_own_flags(agree):
    def scenario(compile):
        @compile
        def step(a, b):
            return (a * b).sum(), a.requires_grad, b.requires_grad, a is b

        x = lucid.ones(3, requires_grad=True)
        y = step(x, x.detach())
        y[0].backward()
        return [y, x]

    agree(scenario, traces=1)


def test_a_parameter_may_be_passed_as_an_argument(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.tensor([1.0, 2.0]))

        @compile
        def step(x):
            y = w * x
            with lucid.no_grad():
                w.add_(1)
            return y.detach() + x.detach(), x is w

        return [step(w), step(lucid.ones(2)), step(w), step(w.detach()), w]

    agree(scenario)


@pytest.mark.parametrize("optimizer", [lucid.optim.SGD, lucid.optim.Adam])
def test_a_parameter_that_is_only_given_may_be_the_optimizers(agree, optimizer):
    """The step reads its data as an argument alone; the optimizer looks at its gradient first."""

    def scenario(compile):
        w = nn.Parameter(lucid.ones(4))
        updates = optimizer([w], lr=0.1)

        @compile
        def step(x, given, y):
            loss = (x * given - y).square().sum()
            updates.zero_grad()
            loss.backward()
            updates.step()
            return loss

        x = lucid.arange(4.0)
        return [step(x, w, 0.5 * k) for k in range(4)], w

    agree(scenario, traces=1)


def test_the_flag_of_an_argument_may_be_set_by_another_name(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(4))

        @compile
        def step(x, given):
            w.requires_grad_(False)
            return (x * given).sum(), given.requires_grad

        return [step(lucid.ones(4), w) for _ in range(3)], w.requires_grad

    agree(scenario)


def test_a_view_of_state_may_be_passed_as_an_argument(agree):
    def scenario(compile):
        w = lucid.arange(6.0)

        @compile
        def step(x):
            w.mul_(2)
            x.add_(1)
            return w.sum(), x * 1

        return [step(w[:2]), step(w[2:4]), step(lucid.ones(2)), w]

    agree(scenario)


@pytest.mark.parametrize("wrap", [lambda a: a, lucid.from_numpy], ids=["array", "tensor"])
def test_a_call_runs_op_by_op_that_writes_overlapping_memory_which_lucid_cannot_see(agree, wrap):
    def scenario(compile):
        data = np.arange(6, dtype=np.float32)
        w = lucid.from_numpy(data)

        @compile
        def step(x):
            w.add_(1)
            return x * 2

        parts = (np.ones(2, np.float32), data[:2], data[2:4], np.ones(2, np.float32))
        return [[step(wrap(part)) for part in parts], w]

    (step,) = agree(scenario, traces=1)
    reason = (
        "two inputs of the step share memory, and one is written: w and x\n"
        "hint: clone() one of them"
    )
    assert step.stats.eager_reasons == [reason, reason]


def test_arguments_on_one_numpy_memory_show_what_is_written_to_one_of_them(agree):
    def scenario(compile):
        data = np.arange(8, dtype=np.float32)
        step = compile(lambda x, y: [lucid.as_tensor(x).add_(1), lucid.as_tensor(y) * 2][1])
        pairs = [(slice(0, 4), slice(4, 8)), (slice(0, 4), slice(2, 6)), (slice(2, 6),) * 2]
        found = [step(data[a], data[b]) for a, b in pairs]
        tensors = [(lucid.from_numpy(data[a]), lucid.from_numpy(data[b])) for a, b in pairs]
        found += [step(*pair) for pair in tensors]
        return [found, data]

    agree(scenario)


def test_state_on_one_numpy_memory_shows_what_is_written_to_it(agree):
    def scenario(compile):
        data = np.arange(8, dtype=np.float32)
        a, b = lucid.from_numpy(data[:4]), lucid.from_numpy(data[2:6])
        step = compile(lambda x: [a.add_(x), b * 2][1])
        inside = compile(lambda x: [lucid.from_numpy(data[:4]).add_(x), b * 2][1])
        return [[step(lucid.ones(4)), inside(lucid.ones(4))] for _ in range(3)], data

    agree(scenario)


def test_array_arguments_are_arrays(agree):
    def scenario(compile):
        weight = lucid.ones(2, requires_grad=True)

        @compile
        def step(x, batch):
            assert isinstance(x, np.ndarray) and not isinstance(x, lucid.Tensor)
            scaled = x.astype(np.float64) * batch["by"][1]
            (weight * lucid.from_numpy(x)).sum().backward()
            taken, weight.grad = weight.grad, None
            return scaled, x.mean(), lucid.tensor(x) * 2, batch["by"], x is batch["x"], taken

        found = []
        for i in range(4):
            x = np.array([i, 2.0], np.float32)
            scaled, mean, double, by, is_same, taken = step(x, {"x": x, "by": np.arange(i, i + 3)})
            assert type(mean) is np.float32 and type(by) is np.ndarray and by[0] == i
            found += [scaled, mean, double, is_same, taken]
        return found

    (step,) = agree(scenario)
    assert step.stats.traces == 1 and not step.stats.eager_reasons


def test_arrays_that_no_tensor_can_lie_on_are_arguments_of_calls_op_by_op(agree):
    class Marked(np.ndarray):
        pass

    def scenario(compile):
        step = compile(lambda x: (type(x), len(x), x.dtype))
        words, masked = np.array(["a", "b"]), np.ma.masked_array([1.0, 2.0], [True, False])
        return [step(x) for x in (words, masked, np.ones(2).view(Marked), np.ones(2, complex))]

    (step,) = agree(scenario)
    assert len(step.stats.eager_reasons) == 4


def test_tensors_on_the_memory_of_array_arguments(agree):
    def scenario(compile):
        @compile
        def step(x, y):
            x, y = lucid.from_numpy(x), lucid.from_numpy(y)
            y.add_(x)
            return x * y

        a, b = np.ones(2, np.float32), np.arange(2, dtype=np.float32)
        first = step(a, b)
        a *= 2
        return [first, step(a, b), b.tolist(), step(b, b), b.tolist()]

    agree(scenario)


def test_a_parameter_among_the_arguments_is_one(agree):
    def scenario(compile):
        @compile
        def step(p):
            net = nn.Module()
            net.weight = p
            kind = type(p).__name__
            return (p * 2 if isinstance(p, nn.Parameter) else p), kind, len([*net.parameters()])

        given = lucid.ones(3), nn.Parameter(lucid.zeros(3)), nn.Buffer(lucid.ones(3))
        return [step(p) for p in (*given, *given)]

    agree(scenario)


def test_requires_grad_is_part_of_the_signature(agree):
    def scenario(compile):
        @compile
        def step(x):
            return (x * x).sum()

        a, b = lucid.ones(2), lucid.full((2,), 3.0, requires_grad=True)
        outs = [step(a), step(b)]
        outs[1].backward()
        with lucid.no_grad():
            outs.append(step(b))
        return [outs, a, b]

    agree(scenario, traces=3)


def test_dtypes_and_shapes_choose_the_program(agree):
    def scenario(compile):
        step = compile(lambda x: x * 2)
        return [
            step(lucid.ones(s, dtype=d))
            for s in [(2,), (3,), (2,), (2, 1)]
            for d in (lucid.float32, lucid.int64)
        ]

    agree(scenario, traces=6)


def test_partials_lambdas_and_decorated_functions(agree):
    def scenario(compile):
        def base(w, x, scale=1.0):
            return w * x * scale

        def logged(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs) + 1

            return wrapper

        w = lucid.tensor([2.0])
        partial = compile(functools.partial(base, w, scale=3.0))
        wrapped = compile(logged(lambda x: x * w))
        results = [partial(lucid.ones(1)), wrapped(lucid.ones(1))]
        w.fill_(5.0)
        return [results, partial(lucid.ones(1)), wrapped(lucid.ones(1))]

    agree(scenario, traces=2)


def test_a_compiled_function_keeps_name_doc_and_the_original():
    def original(x):
        """Doubles."""
        return x * 2

    step = lucid.compile(original)
    assert (step.__name__, step.__doc__, step.__wrapped__) == ("original", "Doubles.", original)
    assert step.__module__ == original.__module__
    assert repr(step).startswith("<compiled <function")


def test_nested_compiled_functions_are_one_program(agree):
    def scenario(compile):
        inner = compile(lambda x: x * 2)

        @compile
        def outer(x):
            return inner(x) + inner(x + 1)

        return [outer(lucid.ones(2)), inner(lucid.ones(2))]

    steps = agree(scenario)
    assert [step.stats.traces for step in steps] == [1, 1]


def test_recursion_and_generators_inside(agree):
    def scenario(compile):
        @compile
        def power(x, n):
            return x if n == 1 else x * power(x, n - 1)

        @compile
        def total(xs):
            return sum(x * i for i, x in enumerate(xs))

        return [power(lucid.full((2,), 3.0), 4), total([lucid.ones(2), lucid.ones(2)])]

    agree(scenario, traces=2)


def test_generator_functions_are_refused():
    def walk(x):
        yield x

    with pytest.raises(lucid.ArgumentError) as error:
        lucid.compile(walk)
    assert str(error.value) == (
        "compile: walk is a generator function, whose body runs after the call\nhint: return a list"
    )


def test_objects_are_arguments_by_identity_and_their_attributes_are_guarded(agree):
    class Config:
        def __init__(self, scale):
            self.scale = scale
            self.w = lucid.ones(2)
            self.check = abs  # so that it is no object of plain data

    def scenario(compile):
        @compile
        def step(x, config):
            return x * config.scale + config.w

        config = Config(2.0)
        results = [step(lucid.ones(2), config)]
        config.scale = 3.0
        config.w.add_(1)
        results += [step(lucid.ones(2), config), step(lucid.ones(2), Config(4.0))]
        return results

    agree(scenario, traces=3)


def test_an_array_that_is_state_as_well_shows_what_is_written_to_that(agree):
    def scenario(compile):
        data = np.ones(3, np.float32)
        w = lucid.from_numpy(data)

        @compile
        def step(x):
            w.add_(1)
            return lucid.as_tensor(x) * 2

        return [step(np.zeros(3, np.float32)), step(data), step(data), data]

    agree(scenario)


class Given:
    """A class of the user's for what a step is given."""

    scale = 2.0

    def __init__(self, x, y, **more):
        self.x, self.y = x, y
        vars(self).update(more)

    def __len__(self):
        return self.x.shape[0]


def test_objects_of_plain_data_are_known_by_what_is_in_them(agree):
    def scenario(compile):
        @compile
        def step(batch, config, nested):
            loss = (batch.x * config.rate - batch.y).sum() * batch.scale / len(batch)
            batch.y.add_(1.0)
            return loss + nested["deep"].more.x[0], batch.kind * config.depth

        results = []
        for i in range(4):
            x = lucid.tensor([[1.0, 2.0]]) * i
            batch = Given(x, x + 1, kind="a", parts=[x, (i * 0.5, None)])
            config = types.SimpleNamespace(rate=0.5 * i, depth=2)
            nested = {"deep": argparse.Namespace(more=Given(x, x), same=batch)}
            results += [step(batch, config, nested), batch.y, vars(config)]
        results.append(step(Given(x, x, kind="b", parts=[x, (0.5, None)]), config, nested))
        return results

    agree(scenario, traces=2)


def test_an_object_that_is_given_can_be_returned_and_kept(agree):
    def scenario(compile):
        kept = types.SimpleNamespace(last=None)

        @compile
        def step(batch):
            kept.last = batch
            return batch, batch.x * 2

        for i in range(3):
            batch = Given(lucid.ones(2) * i, lucid.zeros(2))
            given, doubled = step(batch)
            assert given is batch is kept.last
            assert doubled.tolist() == [2.0 * i] * 2
        return []

    agree(scenario)


def test_an_object_that_is_given_and_changed_is_known_by_its_identity(agree):
    class Meter:
        def __init__(self):
            self.total, self.count, self.latest = 0.0, 0, lucid.zeros(2)

        def update(self, x):
            self.total, self.count = self.total + 0.5, self.count + 1
            self.latest = self.latest * 0.5 + x

    def scenario(compile):
        meter = Meter()

        @compile
        def step(meter, x):
            meter.update(x)
            return meter.latest / meter.count

        return [*(step(meter, lucid.ones(2) * i) for i in range(4)), vars(meter)]

    agree(scenario, traces=1)


class Known:
    def __init__(self, rate):
        self.rate = rate


@pytest.mark.parametrize(
    "ask",
    [
        lambda given, known: given is known,
        lambda given, known: given == known,
        lambda given, known: known in [given],
        lambda given, known: [known].count(given),
        lambda given, known: {known: 1.0}.get(given, 0.0),
        lambda given, known: id(given) == id(known),
    ],
)
def test_an_object_that_is_looked_for_is_known_by_its_identity(agree, ask):
    class Own(Known):
        pass

    def scenario(compile):
        known, other = Own(0.5), Own(0.5)
        step = compile(lambda x, given: x * given.rate + 5.0 * ask(given, known))
        return [step(lucid.ones(3), given) for given in (known, other, known, other)]

    agree(scenario, traces=2)


@pytest.mark.parametrize("kind", ["list", "dict", "tensor", "parameter", "array"])
def test_a_container_or_a_tensor_that_is_compared_by_identity_runs_op_by_op(agree, kind):
    def made():
        tensor = lucid.ones(3)
        found = {"list": [tensor], "dict": {"x": tensor}, "parameter": nn.Parameter(tensor)}
        found["array"] = np.ones(3)
        return found.get(kind, tensor)

    def scenario(compile):
        known = made()
        holder = types.SimpleNamespace(others=(made(), known))

        @compile
        def step(x, given):
            return x * 2 if any(given is other for other in holder.others[1:]) else x

        return [step(lucid.ones(2), given) for given in (made(), known, made())]

    (step,) = agree(scenario)
    assert "it looks whether a" in step.stats.eager_reasons[0]


def test_what_was_kept_of_the_last_call_is_compared_by_identity_natively(agree):
    def scenario(compile):
        kept = types.SimpleNamespace(last=None, hits=0)

        @compile
        def step(x):
            kept.hits += x is kept.last
            kept.last = x
            return x * 2 + kept.hits

        one, other = lucid.ones(3), lucid.zeros(3)
        return [step(x) for x in (one, one, other, other, one, one)]

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def _scaled(x, by=1.0):
    return x * by


@pytest.mark.parametrize(
    "make",
    [
        lambda holder: lambda x, by=2.0: _scaled(x, by),
        lambda holder: holder.weighed,
        lambda holder: functools.partial(_scaled, by=3.0),
        lambda holder: functools.partial(holder.weighed),
    ],
)
def test_functions_that_each_call_makes_need_one_program(agree, make):
    class Weighing(Known):
        def weighed(self, x):
            return x * self.rate

    def scenario(compile):
        holder = Weighing(2.0)
        step = compile(lambda x, function: function(x).sum())
        results = [step(lucid.ones(3), make(holder)) for _ in range(4)]
        holder.rate = 5.0
        other = Weighing(7.0)
        return [*results, *(step(lucid.ones(3), make(x)) for x in (holder, other))]

    (step,) = agree(scenario)
    assert step.stats.traces <= 3 and not step.stats.eager_reasons


def test_a_variable_that_functions_of_the_callers_share_is_read_at_each_call(agree):
    def scenario(compile):
        count = 0

        @compile
        def step(x, function):
            nonlocal count
            count += 1
            return function(x)

        return [step(lucid.ones(3), lambda x: x * count) for _ in range(5)], count

    agree(scenario, traces=1)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda f, s: setattr(f, "calls", getattr(f, "calls", 0) + 1), "it binds .calls to a"),
        (lambda f, s: s.kept.append(f), "an object of function that it is given"),
        (lambda f, s: s.found.append(f is s.known), "it looks whether a function"),
        (lambda f, s: s.found.append(f in {s.known: 1}), "it looks for a function"),
    ],
)
def test_which_function_it_is_given_is_seen_op_by_op(agree, use, reason):
    def scenario(compile):
        def make():
            return lambda x: x * 2

        state = types.SimpleNamespace(kept=[], found=[], known=make())

        @compile
        def step(x, function):
            use(function, state)
            return function(x)

        given = [state.known, make(), make(), state.known]
        results = [step(lucid.ones(3), function) for function in given]
        which = [given.index(function) for function in state.kept]
        return results, state.found, which, [getattr(f, "calls", 0) for f in given]

    (step,) = agree(scenario)
    assert any(reason in found for found in step.stats.eager_reasons)


def test_gradients_reach_the_tensors_of_a_given_object(agree):
    def scenario(compile):
        step = compile(lambda batch, w: (batch.x.exp() * w).sum() + batch.y.square().sum())
        w = lucid.ones(2, requires_grad=True)
        found = []
        for i in range(2):
            x = lucid.tensor([1.0, 2.0 * i], requires_grad=True)
            batch = Given(x, lucid.ones(2, requires_grad=True))
            loss = step(batch, w)
            batch.x = None
            loss.backward()
            found += [x.grad, batch.y.grad, w.grad]
        return found

    agree(scenario, traces=1)


def _around(value, number):
    return lambda out: out * value + number


def _with_defaults(value, number):
    def loss(out, y=value, *, factor=number):
        return (out - y) * factor

    return lambda out, f=loss: f(out) * 2


def _of_a_batch(value, number):
    batch, log = {"y": value, "weight": number}, (number, 2)
    return lambda out: (out * batch["y"]).sum() * batch["weight"] + log[0] * log[1]


def _with_number(number, out, *, value):
    return out * number + value


def _generated(value, number):
    def parts(out):
        yield out * number
        yield out * value

    return lambda out: sum(parts(out))


@pytest.mark.parametrize(
    "make",
    [
        _around,
        _with_defaults,
        _of_a_batch,
        _generated,
        lambda value, number: functools.partial(_with_number, number, value=value),
        lambda value, number: functools.partial(_around(value, number)),
    ],
)
def test_what_a_function_holds_is_an_argument_where_each_call_makes_its_own(agree, make):
    def scenario(compile):
        model = nn.Linear(3, 3)
        optimizer = lucid.optim.SGD(model.parameters(), lr=0.1)

        @compile
        def step(x, loss_of):
            loss = loss_of(model(x)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        found = [step(lucid.ones(3), make(lucid.ones(3) * k, 0.5 + k)) for k in range(12)]
        return found, list(model.parameters())

    (step,) = agree(scenario, traces=2)
    assert not step.stats.eager_reasons


def test_a_callback_made_for_each_call_reports_what_it_is_told(agree):
    def scenario(compile):
        told = []

        @compile
        def step(x, callbacks):
            for name, callback in callbacks.items():
                callback(name, x.sum().item())
            return x * len(told)

        for epoch in range(12):
            report = {"loss": lambda name, value, at=epoch: told.append((at, name, value))}
            step(lucid.ones(3) * epoch, report)
        return told

    (step,) = agree(scenario)
    assert not step.stats.eager_reasons


def test_a_parameter_in_a_function_made_for_each_call_is_trained(agree):
    def scenario(compile):
        w = nn.Parameter(lucid.ones(4))
        optimizer = lucid.optim.Adam([w], lr=0.1)

        @compile
        def step(x, loss_of):
            optimizer.zero_grad()
            loss = loss_of(x).sum()
            loss.backward()
            optimizer.step()
            return loss

        def call(target):
            return step(lucid.arange(4.0), lambda x: (x * w - target).square())

        return [call(0.1 * k) for k in range(6)], w

    agree(scenario, traces=2)


def _counts(total, x, held):
    def add(value):
        nonlocal total
        total += value

    return add, lambda: total


def _changes_a_batch(total, x, held):
    return lambda value: held.update(last=value), lambda: held["x"].sum() * held.get("last", 0.0)


def _keeps_tensors(total, x, held):
    kept = [x]
    return lambda value: kept.append(x * value), lambda: len(kept)


@pytest.mark.parametrize("make", [_counts, _changes_a_batch, _keeps_tensors])
def test_what_functions_made_for_each_call_change_is_theirs(agree, make):
    def scenario(compile):
        @compile
        def step(x, change, look):
            change(x.sum().item())
            before = look()
            change(2.0)
            return before, look()

        found = []
        for k in range(6):
            x = lucid.ones(3) * k
            change, look = make(0.5 * k, x, {"x": x})
            found.append((step(x, change, look), look()))
        return found

    agree(scenario)


def test_a_function_made_for_each_call_is_itself_where_a_step_keeps_or_compares_it(agree):
    def scenario(compile):
        kept = {}

        @compile
        def step(x, one, other):
            kept["f"] = one
            return one(x) if one is other else other(x)

        found = []
        for k in range(6):
            one = _around(lucid.ones(3), 0.5 * k)
            found.append(step(lucid.ones(3), one, one if k % 2 else _around(lucid.ones(3), 1.0)))
            found.append(kept["f"] is one)
        return found

    agree(scenario)


@pytest.mark.parametrize(
    "first, second, traces",
    [
        (["l1"], ["l2", "a"], 2),
        ([1], [True], 2),
        ([1, 2], [2, 1], 1),
        ([0, 8], [8, 0], 2),  # equal, but gone through in another order
        ([], [3], 2),
    ],
)
def test_frozen_sets_are_known_by_what_is_in_them(agree, first, second, traces):
    def scenario(compile):
        @compile
        def step(x, names):
            for name in names:
                x = x * 0.7 + len(str(name))
            return (2 * x if "l1" in names else x), len(names), names

        return [step(lucid.ones(3), frozenset(names)) for names in [first, second] * 5]

    (step,) = agree(scenario, traces=traces)
    assert not step.stats.eager_reasons


@pytest.mark.parametrize(
    "kind", [set, lambda names: dict.fromkeys(names).keys()], ids=["set", "keys"]
)
@pytest.mark.parametrize(
    ("first", "second", "traces"),
    [
        (["l1"], ["l1"], 1),
        (["l1"], ["l2", "a"], 2),
        ([1], [True], 2),
        ([0, 8], [8, 0], 2),  # equal, but gone through in another order
        ([], [3], 2),
    ],
)
def test_sets_made_anew_are_known_by_what_is_in_them(agree, kind, first, second, traces):
    def scenario(compile):
        @compile
        def step(x, names, skipped=()):
            for name in names:
                x = x * 0.7 + len(str(name))
            print("without", skipped, f"{names}")
            return (2 * x if "l1" in names else x), len(names), [*names]

        return [step(lucid.ones(3), kind(x), skipped={"a": kind(x)}) for x in [first, second] * 5]

    (step,) = agree(scenario, traces=traces)
    assert not step.stats.eager_reasons


def _adds_to(x, names, kept):
    names.add("new")
    return x * len(names)


def _takes_from(x, names, kept):
    names -= {"a"}
    return x * len(names)


def _keeps(x, names, kept):
    kept["names"] = names
    return x * len(names)


def _compares(x, names, kept):
    return x * (1 + (names is _usual)) * len(names)


_usual = {"a", "b"}


class _Counted(lucid.autograd.Function):
    @staticmethod
    def forward(ctx, x, names):
        ctx.names = names
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return grad * len(ctx.names), None


class _CountedByNumPy(_Counted):
    @staticmethod
    def forward(ctx, x, names):
        ctx.names = names
        return lucid.from_numpy(x.detach().numpy() * 2)


@pytest.mark.parametrize(
    "function",
    [
        *(_adds_to, _takes_from, _keeps, _compares),
        lambda x, names, kept: (x * len(names), names),
        lambda x, names, kept: _Counted.apply(x, names),
        lambda x, names, kept: _CountedByNumPy.apply(x, names),
    ],
)
def test_a_set_that_is_changed_or_kept_is_the_callers(agree, function):
    def scenario(compile):
        kept, found = {}, []
        step = compile(function)
        for names in (_usual, {"a", "b"}, {"a", "b"}, _usual, {"a", "b"}):
            x = lucid.ones(3, requires_grad=True)
            y = step(x, names, kept)
            y, is_same = (y[0], y[1] is names) if isinstance(y, tuple) else (y, None)
            found += [y, is_same, kept.get("names") is names, sorted(names)]
            names.add("later")
            y.sum().backward()
            found.append(x.grad)
            names.symmetric_difference_update(names ^ {"a", "b"})
        return found

    agree(scenario)


def test_a_set_that_changes_between_calls_is_state(agree):
    def scenario(compile):
        seen, found = set(), []
        step = compile(lambda x, names: 2 * x if "b7" in names else x)
        for i in range(12):
            found.append(step(lucid.ones(3), seen))
            seen.add(f"b{i}")
        return found

    (step,) = agree(scenario, traces=3)  # the first one, as a set that changes, and with it
    assert not step.stats.eager_reasons


def test_a_set_of_tensors_may_change_between_calls(agree):
    def scenario(compile):
        step, found, items = compile(lambda x, items: x * len([*items])), [], set()
        for i in range(5):
            items.clear()
            items.add(lucid.ones(i + 2))  # of which two can't be compared
            found.append(step(lucid.ones(3), items))
        return found

    agree(scenario)


def test_a_set_that_natively_served_calls_have_had_may_change(agree):
    def scenario(compile):
        names, found = {1}, []
        step = compile(lambda x, names: x * len(names))
        for i in range(12):
            found.append(step(lucid.ones(3), names))
            if i % 4 == 3:
                names.add(i)
        return found

    agree(scenario)


def test_a_frozen_set_that_is_compared_by_identity_runs_op_by_op(agree):
    usual = frozenset({"a"})

    def scenario(compile):
        step = compile(lambda x, names: (names is usual, x + len(names)))
        return [step(lucid.ones(3), x) for x in (usual, frozenset(["a"]), usual)]

    (step,) = agree(scenario)
    assert "looks whether a frozenset that it is given is" in step.stats.eager_reasons[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: F.pad(x, (n, 0, n, n)),
        lambda x, n: F.pad(x, [n, n], mode="circular"),
        lambda x, n: x.unfold(1, n, n),
        lambda x, n: x.diagonal(n),
        lambda x, n: x.roll(n, n - n),
        lambda x, n: x.roll((n, n), (0, 1)),
        lambda x, n: nn.LayerNorm(n + n)(x),
        lambda x, n: x.reshape(n, -1).split(n, 1)[0].repeat(n, 1).topk(n).values,
    ],
    ids=["pad", "circular", "unfold", "diagonal", "roll", "roll twice", "LayerNorm", "others"],
)
def test_whole_numbers_of_numpys_are_ints(agree, function):
    def scenario(compile):
        x = lucid.randn(6, 4)
        step = compile(function)
        found = [step(x, np.int64(2)), compile(lambda x: function(x, np.int32(2)))(x)]
        assert all(result.equal(step(x, 2)) for result in found)
        return found

    for step in agree(scenario):
        assert not step.stats.eager_reasons


@pytest.mark.parametrize(
    "make",
    [
        lambda n: datetime.date(2024, 1, 1 + n),
        lambda n: datetime.datetime(2024, 1, 1, n, tzinfo=datetime.UTC),
        lambda n: datetime.timedelta(days=n),
        lambda n: decimal.Decimal("1.0" if n else "1.00"),  # equal, with other digits
        lambda n: fractions.Fraction(1, 2 + n),
        lambda n: pathlib.Path(f"run{n}"),
        lambda n: uuid.UUID(int=n),
        lambda n: np.datetime64(f"2024-01-0{1 + n}"),
    ],
)
def test_values_made_anew_are_known_by_what_they_say(agree, make):
    def scenario(compile):
        step = compile(lambda x, given: (x * 2, [str(value) for value in given["when"]]))
        return [step(lucid.ones(2), {"when": [make(i // 3), make(i // 3)]}) for i in range(6)]

    agree(scenario, traces=2)


def test_a_date_that_is_compared_by_identity():
    kept = [datetime.date(2024, 1, 1) for _ in range(3)]

    def scenario(compile):
        last = types.SimpleNamespace(day=None)

        @compile
        def step(x, day):
            is_new = day is not last.day
            last.day = day
            return x.sum().item(), is_new

        return [(step(lucid.ones(2), kept[i // 2]), last.day is kept[i // 2]) for i in range(6)]

    assert scenario(lucid.compile) == scenario(lambda function: function)


class _Zone(datetime.tzinfo):
    """One whose text doesn't say what it is."""

    def __init__(self, hours):
        self.hours = hours

    def utcoffset(self, when):
        return datetime.timedelta(hours=self.hours)

    def __repr__(self):
        return "zone"


def test_times_in_zones_of_the_users_are_known_by_identity():
    step = lucid.compile(lambda x, when: x * when.utcoffset().total_seconds())
    for hours in (1, 2):
        when = datetime.datetime(2024, 1, 1, tzinfo=_Zone(hours))
        assert step(lucid.ones(1), when).item() == 3600 * hours


@pytest.mark.parametrize("sizes", [[4] * 8, [4, 5, 6, 7, 8, 9, 6, 4]])
def test_batches_that_are_objects_may_hold_arrays(agree, sizes):
    """Each call has another one; their arrays are arguments, as those in a dict are."""

    class Batch:
        def __init__(self, size):
            self.x = lucid.ones(size, 3)
            self.weights = np.arange(size, dtype="float32")

    def scenario(compile):
        @compile
        def step(batch):
            batch.weights += 1
            return (batch.x * lucid.from_numpy(batch.weights)[:, None]).sum()

        batches = [Batch(size) for size in sizes]
        return [[step(batch), batch.weights.copy()] for batch in batches]

    agree(scenario, 1 if len({*sizes}) == 1 else None)


@pytest.mark.parametrize(
    "use",
    [
        lambda b: b.x.sum(),
        lambda b: (b.x / b.n, b.n + b.inner.m, b.inner.m),
        lambda b: b.x[: b.n - 1].sum() + lucid.zeros(b.n, 2).sum(),
        lambda b: (b.x.sum(), f"{b.name} of {b.n}"),
        lambda b: b.x[b.ids].sum() + len(b.ids),
        lambda b: b,
    ],
    ids=["unread", "number", "size", "text", "list", "returned"],
)
def test_what_moves_in_a_batch_that_is_an_object_is_read_at_each_call(agree, use):
    """As in one that is a dict: ints, texts and lists of numbers beside tensors of open sizes."""

    class Batch:
        def __init__(self, size):
            self.x = lucid.arange(3 * size).reshape(size, 3).float()
            self.n, self.name, self.ids = size, f"batch {size}", [*range(size)]
            self.inner = types.SimpleNamespace(m=2 * size)

    def scenario(compile):
        step = compile(lambda b: use(b))
        results = []
        for size in (4, 5, 6, 7, 8, 9, 12, 10, 5, 11):
            batch = Batch(size)
            found = step(batch)
            is_it = found is batch
            parts = [batch.x, batch.n, batch.name, batch.ids, batch.inner.m]
            results.append([None if is_it else found, is_it, *parts])
        return results

    assert not agree(scenario, 3)[0].stats.eager_reasons


def test_an_object_in_two_places_is_one_where_its_numbers_move(agree):
    def scenario(compile):
        @compile
        def step(first, second, ids):
            assert first is second
            assert first.ids is ids
            return first.x.sum() * second.n + len(ids)

        results = []
        for size in (4, 5, 6, 7, 8, 9):
            batch = types.SimpleNamespace(x=lucid.ones(size), n=size, ids=[*range(size)])
            results.append(step(batch, batch, batch.ids))
        return results

    agree(scenario)


def test_an_object_with_an_array_of_texts_is_known_by_its_identity(agree):
    """No tensor can lie on that."""

    def scenario(compile):
        @compile
        def step(batch):
            return batch.x * len(batch.names)

        batch = types.SimpleNamespace(x=lucid.ones(3), names=np.array(["a", "b"], dtype=object))
        return [step(batch) for _ in range(4)]

    assert not agree(scenario, 1)[0].stats.eager_reasons


def test_a_class_that_has_changed_is_named() -> None:
    class Batch:
        def __init__(self) -> None:
            self.x = lucid.ones(3)

    class Padded(Batch):
        pass

    step = lucid.compile(lambda batch: batch.x * 2)
    for batch in (Batch(), Padded()):
        step(batch)
    (reason,) = step.stats.retrace_reasons
    assert re.search(r"__class__: the type \S+Batch at \S+ -> the type \S+Padded at ", reason)
