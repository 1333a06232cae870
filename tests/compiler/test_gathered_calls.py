"""The short way for calls that give more than tensors, and for steps that do more than compute."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.runtime.entry.layout import SLOW_PATH

from .conftest import observed

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
    found = [step._programs.enter_recent((i, rows()[0]), {}, latest)[0] for i in range(24, 27)]
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


def _each_fourth(opt, number, **how):
    if number % 4 == 3:
        opt.step()
        opt.zero_grad(**how)


def _clipped(opt, number):
    nn.utils.clip_grad_norm_(opt.param_groups[0]["params"], 0.5)
    _each_fourth(opt, number)


def _by_hand_each_third(opt, number):
    first, second = opt.param_groups[0]["params"]
    if number % 3 == 2:
        opt.step()
        first.grad.zero_()
        second.grad = None


# What a step does with the gradients that it has added to, in the call of this number.
ENDS = {
    "each fourth": _each_fourth,
    "keeping their memory": functools.partial(_each_fourth, set_to_none=False),
    "clipped": _clipped,
    "by hand": _by_hand_each_third,
    "never": lambda opt, number: None,
}


def accumulating(compile, end, meddle=None):
    """A step that adds to gradients, 20 calls of it, and what is there after most of them."""
    first, second = leaves = [lucid.randn(2, 2).requires_grad_() for _ in range(2)]
    opt = lucid.optim.SGD(leaves, lr=0.05, momentum=0.9)
    count = 0

    @compile
    def step(x):
        nonlocal count
        loss = (x * first * second).sum()
        loss.backward()
        end(opt, count)
        count += 1
        return loss

    found, kept = [], []
    for i, x in enumerate(rows(20, (2, 2))):
        if meddle is not None and i in (9, 11, 14, 16, 18):
            kept.append(meddle(first, second, x))
        found.append(step(x).item())
        if i % 3:
            found.append(observed([first, second, x, first.grad is second.grad]))
    return found, kept


@pytest.mark.parametrize("end", ENDS)
def test_gradients_from_before_are_found_natively(agree, end):
    (step,) = agree(lambda compile: accumulating(compile, ENDS[end]))
    x = rows(1, (2, 2))[0]
    assert (
        is_native(step, x)
        or step._programs.enter_recent((x,), {}, step._programs.latest)[0] is not SLOW_PATH
    )


def _share(first, second, x):
    first.grad = second.grad = lucid.ones(2, 2)


def _overlap(first, second, x):
    whole = np.ones((3, 2), np.float32)
    first.grad, second.grad = lucid.from_numpy(whole[:2]), lucid.from_numpy(whole[1:])


def _halved(leaf):
    leaf.grad.mul_(0.5)


def _refused(first, value):
    with pytest.raises(lucid.LucidError):
        first.grad = value


# What happens to gradients between two calls.
MEDDLING = {
    "none": lambda a, b, x: setattr(a, "grad", None),
    "all none": lambda a, b, x: (setattr(a, "grad", None), setattr(b, "grad", None)),
    "zero": lambda a, b, x: a.grad is None or a.grad.zero_(),
    "another": lambda a, b, x: setattr(a, "grad", lucid.full((2, 2), 0.5)),
    "transposed": lambda a, b, x: setattr(a, "grad", lucid.rand(2, 2).t()),
    "a row of others": lambda a, b, x: setattr(a, "grad", lucid.rand(3, 2, 2)[1]),
    "shared": _share,
    "swapped": lambda a, b, x: (setattr(a, "grad", b.grad), setattr(b, "grad", a.grad)),
    "the argument": lambda a, b, x: setattr(a, "grad", x),
    "the leaf itself": lambda a, b, x: setattr(a, "grad", a.detach()),
    "the other leaf": lambda a, b, x: setattr(a, "grad", b.detach()),
    "memory that overlaps": _overlap,
    "another dtype": lambda a, b, x: _refused(a, lucid.ones(2, 2).double()),
    "another shape": lambda a, b, x: _refused(a, lucid.ones(3)),
    "kept": lambda a, b, x: [a.grad, b.grad],
    "a hook": lambda a, b, x: a.register_hook(lambda gradient: 2 * gradient) and None,
    "a hook behind": lambda a, b, x: a.register_post_accumulate_grad_hook(_halved) and None,
    "op by op": lambda a, b, x: (x * a * b).mean().backward(),
}


@pytest.mark.parametrize("kind", MEDDLING)
def test_gradients_that_others_have_set_are_seen(agree, kind):
    agree(lambda compile: accumulating(compile, _each_fourth, MEDDLING[kind]))


def _read_only(first, second, x):
    array = np.ones((2, 2), np.float32)
    array.flags.writeable = False
    first.grad = lucid.from_numpy(array)


# Whose memory a gradient is on that a step would write.
MEMORY = {
    "a leaf's": lambda a, b, x: setattr(a, "grad", lucid.from_numpy(b.detach().numpy())),
    "the argument's": lambda a, b, x: setattr(b, "grad", lucid.from_numpy(x.numpy())),
    "another gradient's": _overlap,
    "somebody's who lets nobody write": _read_only,
}


@pytest.mark.parametrize("kind", MEMORY)
def test_a_gradient_on_memory_of_others_is_left_to_the_long_way(kind):
    first, second = (lucid.ones(2, 2, requires_grad=True) for _ in range(2))
    step = lucid.compile(lambda x: (x * first * second).sum().backward())
    x = lucid.ones(2, 2)
    for _ in range(4):
        step(x)
    assert is_native(step, x)
    MEMORY[kind](first, second, x)
    assert not is_native(step, x)


def test_gradients_are_promised_natively_where_those_before_were_read():
    leaf = lucid.ones(3, requires_grad=True)

    @lucid.compile
    def step(x):
        leaf.grad = None
        (leaf * x).sum().backward()

    kept = []
    for i in range(6):
        x = lucid.full((3,), float(i))
        if i > 2:
            assert is_native(step, x)
        step(x)
        kept.append(leaf.grad)
    assert [x.tolist() for x in kept] == [[float(i)] * 3 for i in range(6)]


def test_a_list_that_holds_itself_is_an_argument_like_others() -> None:
    ring: list[Any] = []
    ring.append(ring)
    step = lucid.compile(lambda x, ring: x + 1)
    for _ in range(4):
        assert step(lucid.ones(1), ring).tolist() == [2.0]
    assert step.stats.traces == 1 and not step.stats.eager_reasons
