"""The short way for calls that give more than tensors, and for steps that do more than compute."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.runtime.entry.layout import SLOW_PATH

pytestmark = pytest.mark.usefixtures("unaudited")

COUNT = 6
Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Batch:
    x: lucid.Tensor
    weight: float


class Sample:
    def __init__(self, x, y):
        self.x, self.y = x, y


def rows(count=COUNT, shape=(4, 3)):
    lucid.manual_seed(3)
    return [lucid.randn(*shape) for _ in range(count)]


def is_native(step, *args, **kwargs):
    """Whether native code serves a call; this makes one if so."""
    return step._latest_program().call_native(args, kwargs) is not SLOW_PATH


MODEL = nn.Linear(3, 2)
# A step, and what it is given of a tensor and the call's number.
GIVEN = {
    "a pair": (lambda pair: pair[0] * pair[1], lambda x, i: (((x, x + 1),), {})),
    "a list": (lambda items: items[0] - items[1], lambda x, i: (([x, x + 1],), {})),
    "a dict": (lambda b: b["x"] - b["y"]["z"], lambda x, i: (({"x": x, "y": {"z": x + 1}},), {})),
    "a named tuple": (lambda b: b.x - b.y, lambda x, i: ((Pair(x, x + 1),), {})),
    "a dataclass": (lambda b: b.x * b.weight, lambda x, i: ((Batch(x, 0.5 * i),), {})),
    "an object": (lambda b: b.x - b.y, lambda x, i: ((Sample(x, x + 1),), {})),
    "an array": (
        lambda a, x: lucid.from_numpy(a) * x,
        lambda x, i: ((np.full(3, i, np.float32), x), {}),
    ),
    "an array that comes back": (
        lambda a, x: (a, lucid.from_numpy(a) * x),
        lambda x, i: ((np.full(3, i, np.float32), x), {}),
    ),
    "a float": (lambda x, scale: x * scale, lambda x, i: ((x, 0.5 * i), {})),
    "a count": (lambda x, n: x * n, lambda x, i: ((x, i), {})),
    "a float that comes back": (lambda x, scale: (x, scale * 2), lambda x, i: ((x, 0.5 * i), {})),
    "constants": (lambda x, *how: (x, how), lambda x, i: ((x, "mean", None, True, 3), {})),
    "by name": (lambda x, y: x - 2 * y, lambda x, i: ((), {"x": x, "y": x + 1})),
    "one by name": (lambda x, y, s: x - s * y, lambda x, i: ((x,), {"y": x + 1, "s": 0.5 * i})),
    "a model": (lambda model, x: model(x).sum(), lambda x, i: ((MODEL, x), {})),
    "a pair from a list": (
        lambda data, i: data[i % 2][0] * data[i % 2][1],
        lambda x, i: (([(x, x + 1), (x + 2, x + 3)], 1), {}),
    ),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_native_code_serves_what_holds_tensors_arrays_and_numbers(agree, kind):
    function, give = GIVEN[kind]

    def scenario(compile):
        step, found = compile(function), []
        for i, x in enumerate(rows()):
            args, kwargs = give(x, i)
            found.append(step(*args, **kwargs))
        return found

    (step,) = agree(scenario)
    args, kwargs = give(rows()[0], COUNT)
    assert is_native(step, *args, **kwargs)


X = lucid.ones(4, 3)
BOTH = [X, X + 1]
# A step, what it is given, and what it is given then, which isn't of that kind.
OTHERS = {
    "a list for a tuple": (lambda b: len(b) * b[0], [(X, X + 1)], [[X, X + 1]]),
    "another length": (lambda b: len(b) * b[0], [[X, X + 1]], [[X, X + 1, X + 2]]),
    "other keys": (lambda b: (b["x"], [*b]), [{"x": X, "y": X + 1}], [{"x": X, "z": X + 1}]),
    "another order": (lambda b: [*b.items()], [{"x": X, "y": X + 1}], [{"y": X + 1, "x": X}]),
    "a dict of another class": (
        lambda b: (type(b).__name__, b["x"] * 2),
        [{"x": X}],
        [OrderedDict(x=X)],
    ),
    "a bool for an int": (lambda x, n: (x, str(n)), [X, 1], [X, True]),
    "a float of NumPy's": (lambda x, n: (x, type(n).__name__), [X, 1.0], [X, np.float64(1.0)]),
    "another text": (lambda x, how: getattr(x, how)(), [X, "sum"], [X, "mean"]),
    "the same tensor twice": (lambda b: (b[0] is b[1], b[0] + b[1]), [[X, X + 1]], [[X, X]]),
    "the same list twice": (lambda a, b: (a is b, a[0] + b[1]), [BOTH, [X, X]], [BOTH, BOTH]),
    "views of one memory": (lambda b: 2 * b[0] + b[1], [[X[0], X[1]]], [[X[0], X[0]]]),
    "an array for a tensor": (
        lambda b: (type(b["x"]).__name__, 2 * lucid.as_tensor(b["x"])),
        [{"x": X}],
        [{"x": X.numpy()}],
    ),
    "another dtype": (lambda b: b[0] * 2, [[X]], [[X.double()]]),
    "one that requires grad": (
        lambda b: (b[0] * 2).requires_grad,
        [[X]],
        [[lucid.ones(4, 3, requires_grad=True)]],
    ),
    "another model": (lambda m, x: m(x).sum(), [MODEL, X], [nn.Linear(3, 2, bias=False), X]),
    "another attribute": (lambda b: [*vars(b)], [Sample(X, 2.0)], [Sample(X, "text")]),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_of_another_kind_is_seen(agree, kind):
    function, first, second = OTHERS[kind]

    def scenario(compile):
        step, found = compile(function), []
        for given in (first, first, first, second, first, second):
            args = [x.clone() if isinstance(x, lucid.Tensor) else x for x in given]
            found.append(step(*args))
        return found

    agree(scenario)


def test_arguments_by_name_may_come_in_any_order_and_by_position(agree):
    def scenario(compile):
        step = compile(lambda x, y, scale=2.0: x - scale * y)
        x, y = rows(2)
        calls = [{"x": x, "y": y}, {"y": y, "x": x}, {"x": x, "y": y, "scale": 0.5}]
        found = [step(**kwargs) for _ in range(4) for kwargs in calls]
        return found, [step(x, y), step(x, y=y), step(x, scale=0.1, y=y), step(**calls[0])]

    agree(scenario)


def _scheduled(kind, **how):
    def make(opt):
        return kind(opt, **how).step

    return make


def _by_hand(opt):
    count = 0

    def step():
        nonlocal count
        count += 1
        for group in opt.param_groups:
            group["lr"] = 0.1 / count

    return step


SCHEDULES = {
    "StepLR": _scheduled(lucid.optim.lr_scheduler.StepLR, step_size=3),
    "CosineAnnealingLR": _scheduled(lucid.optim.lr_scheduler.CosineAnnealingLR, T_max=5),
    "LambdaLR": _scheduled(lucid.optim.lr_scheduler.LambdaLR, lr_lambda=lambda n: 1 / (1 + n)),
    "by hand": _by_hand,
}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_step_with_a_schedule_is_native(agree, kind):
    def scenario(compile):
        lucid.manual_seed(0)
        model = nn.Linear(3, 2)
        opt = lucid.optim.SGD(model.parameters(), lr=0.1)
        schedule = SCHEDULES[kind](opt)

        def step(x):
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            opt.step()
            schedule()
            return loss

        step = compile(step)
        return [(step(x), opt.param_groups[0]["lr"]) for x in rows(8)], model

    (step,) = agree(scenario, traces=1)
    assert is_native(step, rows()[0])


def test_a_schedule_asks_its_function_once_in_a_call():
    asked = []
    model = nn.Linear(3, 2)
    opt = lucid.optim.SGD(model.parameters(), lr=0.1)

    def ratio(n):
        asked.append(n)
        return 1 / (1 + n)

    schedule = lucid.optim.lr_scheduler.LambdaLR(opt, ratio)

    @lucid.compile
    def step(x):
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
        schedule.step()

    for x in rows(5):
        step(x)
    step(rows(shape=(2, 3))[0])
    step(rows()[0])
    assert asked == [*range(8)]


def test_what_is_told_after_a_step_is_told_once_and_in_order(capsys):
    class Refusing:
        def __init__(self):
            self.lines = []

        def write(self, text):
            self.lines.append(text)
            if len(self.lines) == 12:
                raise OSError("no space left")

        def flush(self):
            pass

    out, weight = Refusing(), lucid.zeros(3)

    @lucid.compile
    def step(x):
        weight.add_(1.0)
        print("sum", x.sum().item(), file=out)
        return weight.sum()

    for i in range(5):
        if i == 2:
            assert step._latest_program().enter is not None
        try:
            assert step(lucid.full((3,), float(i))).item() == 3 * (i + 1)
        except OSError as error:
            assert str(error) == "no space left" and i == 2
    assert weight.tolist() == [5.0] * 3
    text = "".join(out.lines)
    assert text.startswith("sum 0.0\nsum 3.0\nsum 6.0") and text.endswith("sum 9.0\nsum 12.0\n")


def test_one_of_several_models_is_chosen_natively(agree):
    def scenario(compile):
        lucid.manual_seed(0)
        models = [nn.Linear(3, 2) for _ in range(4)]
        opts = [lucid.optim.SGD(model.parameters(), lr=0.1) for model in models]

        def step(i, x):
            opts[i % 4].zero_grad()
            loss = models[i % 4](x).pow(2).mean()
            loss.backward()
            opts[i % 4].step()
            return loss

        step = compile(step)
        return [step(i, x) for i, x in enumerate(rows(24))], models

    (step,) = agree(scenario)
    assert step.stats.traces <= 7 and not step.stats.eager_reasons
    latest = step._latest_program()
    found = [step._enter_recent((i, rows()[0]), {})[0] for i in range(24, 27)]
    assert latest.enter is not None and all(x is not SLOW_PATH for x in found)


def test_threads_that_call_one_step_have_their_own_numbers():
    step = lucid.compile(lambda x, scale: (x * scale, scale * 2))
    x, found = rows()[0], {}

    def call(scale):
        found[scale] = [step(x, scale) for _ in range(50)]

    call(0.0)
    threads = [threading.Thread(target=call, args=(float(i),)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for scale, results in found.items():
        assert all(twice == 2 * scale for _, twice in results)
        assert all(np.array_equal(y.numpy(), x.numpy() * scale) for y, _ in results)
