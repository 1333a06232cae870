"""Small step functions as people write them, each with its results looked at in both modes."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd import Function, grad
from lucid.autograd.saved import FREED

Compile = Callable[..., Any]
STEPS: dict[str, Callable[[Compile], Any]] = {}


def scenario(function: Callable[[Compile], Any]) -> Callable[[Compile], Any]:
    STEPS[function.__name__] = function
    return function


def numbers(*values: float) -> lucid.Tensor:
    return lucid.tensor([float(value) for value in values])


def shared(*tensors: Any) -> list[bool]:
    """Which pairs share memory."""
    arrays = [x.detach().numpy() if isinstance(x, lucid.Tensor) else x for x in tensors]
    return [bool(np.shares_memory(a, b)) for i, a in enumerate(arrays) for b in arrays[:i]]


class Pair(NamedTuple):
    loss: Any
    extra: Any


@dataclasses.dataclass
class Report:
    loss: Any
    parts: dict[str, Any]
    count: int = 0
    note: str = "none"


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    other: Any = None


# ---------------------------------------------------------------------- structures


@scenario
def nested_dicts_and_lists(compile: Compile) -> Any:
    step = compile(lambda x: {"a": [x + 1, {"b": (x * 2, None)}], "c": [], "d": {}, 3: "text"})
    return [step(numbers(1, 2)) for _ in range(2)]


@scenario
def a_named_tuple(compile: Compile) -> Any:
    step = compile(lambda x: Pair(x.sum(), Pair([x], x.shape[0])))
    x = numbers(1, 2)
    found = [step(x) for _ in range(2)]
    return [found, [type(f).__name__ for f in found], found[0].extra.loss[0] is x]


@scenario
def a_dataclass(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x):
        y = w * x
        return Report(y.sum(), {"y": y, "again": y}, len(x))

    found = [step(numbers(3, 4)) for _ in range(2)]
    found[1].loss.backward()
    return [found, [f.parts["y"] is f.parts["again"] for f in found], w]


@scenario
def a_frozen_dataclass(compile: Compile) -> Any:
    step = compile(lambda x: Frozen(x * 2, Frozen(x)))
    x = numbers(1)
    found = step(x)
    return [found, found.other.value is x, type(found).__name__]


@scenario
def ordered_and_default_dicts(compile: Compile) -> Any:
    @compile
    def step(x):
        found = collections.defaultdict(list)
        found["a"].append(x + 1)
        return found, collections.OrderedDict(z=x * 2, a=x * 3)

    first, second = step(numbers(1))
    return [dict(first), type(first).__name__, list(second), type(second).__name__, second]


@scenario
def no_result_and_none_among_results(compile: Compile) -> Any:
    nothing, some = compile(lambda x: None), compile(lambda x: (None, x + 1, None))
    return [nothing(numbers(1)), some(numbers(1))]


@scenario
def an_empty_tuple_and_list(compile: Compile) -> Any:
    step = compile(lambda x: ((), [], {}))
    return step(numbers(1))


@scenario
def a_set_of_strings_and_other_constants(compile: Compile) -> Any:
    step = compile(lambda x: ({"a", "b"}, 1 + 2j, b"x", range(3), lucid.float32, x.dtype, ...))
    found = step(numbers(1))
    return [str(sorted(found[0])), str(found[1:])]


# ---------------------------------------------------------------------- identity


@scenario
def the_same_tensor_twice(compile: Compile) -> Any:
    @compile
    def step(x):
        y = x * 2
        return y, [y], {"y": y}

    a, b, c = step(numbers(1, 2))
    a.add_(1)
    return [a, b, c, a is b[0], a is c["y"]]


@scenario
def arguments_come_back(compile: Compile) -> Any:
    step = compile(lambda x, y: (y, x, x[0], x, y.view(-1)))
    x, y = numbers(1, 2), numbers(3).requires_grad_()
    found = step(x, y)
    return [found[0] is y, found[1] is x, found[3] is x, shared(x, found[2]), found]


@scenario
def parameters_come_back(compile: Compile) -> Any:
    model = nn.Linear(2, 1)
    step = compile(lambda x: (model.weight, list(model.parameters()), model.bias.detach()))
    weight, both, bias = step(numbers(1, 2))
    return [weight is model.weight, both[1] is model.bias, shared(bias, model.bias), bias]


@scenario
def a_module_comes_back(compile: Compile) -> Any:
    model = nn.Linear(2, 1)
    step = compile(lambda x: (model, model(x)))
    return [step(numbers(1, 2))[0] is model]


@scenario
def views_of_parameters(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2, 3, 4))
    step = compile(lambda: (w[1:], w.view(2, 2).t(), w.detach()[::2], w.data))
    tail, square, part, data = step()
    (tail.sum() + (square * square).sum()).backward()
    part.add_(5)
    data.mul_(2)
    return [tail, square, part, w, shared(w, tail, square, part, data)]


@scenario
def data_of_results(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x):
        y = w * x
        return y, y.data, y.detach()

    y, data, detached = step(numbers(3, 4))
    data.add_(1)
    y.sum().backward()
    return [y, data, detached, shared(y, data, detached), w]


@scenario
def detach_in_place_and_clone(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x):
        y = w * x
        z = y.clone()
        return y.detach_() if hasattr(y, "detach_") else y.detach(), z

    y, z = step(numbers(3, 4))
    z.sum().backward()
    return [y, z, w]


@scenario
def results_of_two_calls(compile: Compile) -> Any:
    step = compile(lambda x: [x + 1, lucid.zeros(2), lucid.arange(2.0), x.clone(), x.numpy is None])
    x = numbers(1, 2)
    first, second = step(x), step(x)
    return [shared(*first[:4], *second[:4]), first, second]


@scenario
def views_among_results(compile: Compile) -> Any:
    @compile
    def step(x):
        y = x * 2
        return y[0], y, y.t(), y.reshape(-1), y.expand(2, 2, 2), y[:, 1:].squeeze()

    found = step(lucid.arange(4.0).reshape(2, 2))
    found[3].add_(1)
    return [found, shared(*found)]


@scenario
def unbind_split_and_chunk(compile: Compile) -> Any:
    step = compile(lambda x: (x.unbind(0), x.split(1), lucid.chunk(x * 1, 2)))
    x = lucid.arange(4.0).reshape(2, 2)
    found = step(x)
    x.add_(1)
    return found


# ---------------------------------------------------------------------- Python numbers


@scenario
def numbers_computed_from_shapes(compile: Compile) -> Any:
    @compile
    def step(x):
        n = x.shape[0] * x.ndim
        return n, n / 2, x.numel(), x.size(), tuple(x.shape), x.sum() / n, f"{n} rows"

    return [step(lucid.ones(3, 2)), step(lucid.ones(4)), step(lucid.ones(3, 2))]


@scenario
def float_arguments_come_back(compile: Compile) -> Any:
    step = compile(lambda x, f, n: (f, f * 2, n, n * f, x * f, -f, f if n > 1 else n))
    return [step(numbers(1), 0.5, 2), step(numbers(1), 0.25, 2), step(numbers(1), 0.25, 1)]


@scenario
def booleans_and_loops(compile: Compile) -> Any:
    @compile
    def step(x, times, flip=False):
        for _ in range(times):
            x = x * 2
        return (-x if flip else x), flip, times

    return [step(numbers(1), 2), step(numbers(1), 3, flip=True), step(numbers(1), 2)]


@scenario
def learning_rates_come_back(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))
    optimizer = lucid.optim.SGD([w], lr=0.5)
    schedule = lucid.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    @compile
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        return optimizer.param_groups[0]["lr"]

    found = []
    for _ in range(3):
        found.append(step(numbers(1, 1)))
        schedule.step()
    return [found, w]


# ---------------------------------------------------------------------- state


@scenario
def a_counter_and_a_running_mean(compile: Compile) -> Any:
    count, mean = lucid.zeros((), dtype=lucid.int64), lucid.zeros(2)

    @compile
    def step(x):
        count.add_(1)
        mean.lerp_(x, 0.5) if hasattr(mean, "lerp_") else mean.mul_(0.5).add_(0.5 * x)
        return count, mean.clone(), mean

    found = [step(numbers(1, 2)) for _ in range(3)]
    return [found, found[0][0] is count]


@scenario
def arguments_written_in_place(compile: Compile) -> Any:
    step = compile(lambda x, y: (x.add_(1), y[0].mul_(3), x[0], None))
    x, y = numbers(1, 2), lucid.ones(2, 2)
    found = step(x, y)
    return [found, found[0] is x, x, y, shared(y, found[1])]


@scenario
def a_buffer_swapped_with_a_result(compile: Compile) -> Any:
    step = compile(lambda a, b: (b, a, a + b))
    a, b = numbers(1), numbers(2)
    found = []
    for _ in range(4):
        a, b, c = step(a, b)
        found.append([a.clone(), c])
    return found


@scenario
def a_result_fed_back(compile: Compile) -> Any:
    w = nn.Parameter(numbers(0.5, 0.25))
    step = compile(lambda h: lucid.tanh(w * h + 1))
    h = lucid.zeros(2)
    for _ in range(3):
        h = step(h)
    h.sum().backward()
    return [h, w]


@scenario
def a_result_fed_back_detached(compile: Compile) -> Any:
    w = nn.Parameter(numbers(0.5, 0.25))

    @compile
    def step(h):
        h = lucid.tanh(w * h + 1)
        h.sum().backward()
        return h.detach()

    h = lucid.zeros(2)
    for _ in range(3):
        h = step(h)
    return [h, w]


@scenario
def numpy_arguments_and_results(compile: Compile) -> Any:
    step = compile(lambda x: (x * 2, x, x[0]))
    array = np.ones(2, np.float32)
    found = step(array)
    return [list(found), shared(found[1], array)]


@scenario
def train_and_eval(compile: Compile) -> Any:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    step = compile(lambda x: model(x))
    x = lucid.arange(8.0).reshape(4, 2)
    found = [step(x).detach()]
    model.eval()
    found.append(step(x).detach())
    model.train()
    found.append(step(x).detach())
    return [found, model]


@scenario
def no_grad_around_and_inside(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x):
        with lucid.no_grad():
            y = w * x
        return y, w * x, y.requires_grad

    with lucid.no_grad():
        quiet = step(numbers(1, 1))
    loud = step(numbers(1, 1))
    loud[1].sum().backward()
    return [quiet, loud, w]


# ---------------------------------------------------------------------- compositions


@scenario
def compiled_in_compiled(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))
    inner = compile(lambda x: {"y": w * x})
    outer = compile(lambda x: (inner(x)["y"] * inner(x + 1)["y"]).sum())
    outer(numbers(1, 2)).backward()
    inner(numbers(1, 2))["y"].sum().backward()
    return [w]


@scenario
def two_compiled_functions_in_a_chain(compile: Compile) -> Any:
    v, w = nn.Parameter(numbers(1, 2)), nn.Parameter(numbers(3, 4))
    first, second = compile(lambda x: (v * x, x)), compile(lambda h, x: (h * w * x).sum())
    loss = second(*first(numbers(1, 2)))
    loss.backward(retain_graph=True)
    loss.backward()
    return [v, w]


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: lucid.Tensor) -> lucid.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


@scenario
def a_custom_function_differentiated_twice_outside(compile: Compile) -> Any:
    x = numbers(1, 2).requires_grad_()
    y = compile(lambda x: Cube.apply(x).sum())(x)
    (first,) = grad(y, x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    second.sum().backward()
    return [y.detach(), first.detach(), second.detach(), x]


@scenario
def a_gradient_penalty(compile: Compile) -> Any:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))

    @compile
    def step(x):
        x = x.detach().requires_grad_()
        (g,) = grad(model(x).sum(), x, create_graph=True)
        loss = (g.norm(dim=1) - 1).square().mean()
        loss.backward()
        return loss.detach(), g.detach(), x

    return [step(lucid.ones(2, 2)), model]


@scenario
def a_step_as_a_generator_of_batches(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))
    step = compile(lambda batch: [(w * x).sum() for x in batch])

    def batches() -> Iterator[list[lucid.Tensor]]:
        for n in (1, 2, 1):
            yield [numbers(i, i) for i in range(n)]

    found = [step(batch) for batch in batches()]
    sum(x for part in found for x in part).backward()
    return [[x.detach() for part in found for x in part], w]


@scenario
def methods_and_properties(compile: Compile) -> Any:
    class Trainer:
        def __init__(self) -> None:
            self.w = nn.Parameter(numbers(1, 2))
            self.optimizer = lucid.optim.SGD([self.w], lr=0.1)
            self.step = compile(self._step)

        def _step(self, x):
            self.optimizer.zero_grad()
            loss = (self.w * x).sum()
            loss.backward()
            self.optimizer.step()
            return {"loss": loss.detach(), "w": self.w}

    trainer = Trainer()
    found = [trainer.step(numbers(1, 1)) for _ in range(3)]
    return [[f["loss"] for f in found], found[0]["w"] is trainer.w, trainer.w]


@scenario
def metrics_and_predictions(compile: Compile) -> Any:
    model = nn.Linear(3, 4)

    @compile
    def step(x, target):
        logits = model(x)
        loss = F.cross_entropy(logits, target)
        loss.backward()
        found = logits.argmax(1)
        return {"loss": loss, "hits": (found == target).sum(), "found": found, "logits": logits}

    x, target = lucid.arange(6.0).reshape(2, 3) / 6, lucid.tensor([0, 3])
    found = step(x, target)
    with pytest.raises(lucid.LucidError, match=f"^{re.escape(FREED)}\n  in [A-Z]"):
        found["loss"].backward()
    return [{k: v.detach() for k, v in found.items()}, found["loss"].requires_grad, model]


@scenario
def integer_and_boolean_results(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))
    step = compile(lambda x: ((w * x) > 1, (w * x).long(), (w * x).argmax(), (w * x).double()))
    found = step(numbers(1, 1))
    found[3].sum().backward()
    return [found, w]


@scenario
def sorted_and_chosen_results(compile: Compile) -> Any:
    w = nn.Parameter(numbers(3, 1, 2))

    @compile
    def step(x):
        values, order = (w * x).sort()
        return values, order, values.max(dim=0)

    values, order, (top, place) = step(numbers(1, 1, 1))
    (values * numbers(1, 2, 3)).sum().backward(retain_graph=True)
    top.backward()
    return [values.detach(), order, place, w]


@scenario
def results_under_a_default_argument(compile: Compile) -> Any:
    table = {"scale": 2.0, "names": ["a", "b"]}

    @compile
    def step(x, table=table, *rest, key=None, **more):
        return dict.fromkeys(table["names"], x * table["scale"]), key, rest, sorted(more)

    found = [step(numbers(1)), step(numbers(1), table, 1, 2, key="k", z=3)]
    table["names"].append("c")
    return [found, step(numbers(1))]


@scenario
def exceptions_in_between(compile: Compile) -> Any:
    w = nn.Parameter(numbers(1, 2))

    @compile
    def step(x, fail):
        loss = (w * x).sum()
        loss.backward()
        if fail:
            raise KeyError("no")
        return loss.detach()

    found = []
    for fail in (False, True, False):
        try:
            found.append(step(numbers(1, 1), fail))
        except KeyError as error:
            found.append(str(error))
            w.grad = None
    return [len(found), found[1]]


@pytest.mark.parametrize("name", STEPS)
def test_a_small_step_gives_what_it_gives_in_eager_mode(agree: Any, name: str) -> None:
    agree(STEPS[name])
