"""Places on the short way: read and bound with little Python, or left to the long way."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.compiler.inputs.signature import Call
from lucid.compiler.programs import native
from lucid.runtime.entry.layout import SLOW_PATH

pytestmark = pytest.mark.usefixtures("entry", "unaudited")

X = [0.5, -1.0, 2.0]
COUNT, TOTAL = 0, lucid.zeros(3)


def takes_the_short_way(step: Any, *args: Any) -> bool:
    """Whether a call would; this makes one if so."""
    latest = step._latest_program()
    if native._measured() is not None and latest._side_effects is not None and latest._types:
        assert latest.enter is not None
        return latest.enter(*args) is not SLOW_PATH
    call = Call(args, {})
    return call.key == latest.key and latest.run(call) is not SLOW_PATH


def attribute():
    holder = SimpleNamespace(h=lucid.zeros(3))

    def step(x):
        holder.h = lucid.tanh(holder.h + x)
        return holder.h * 2

    return step, lambda: holder


def module():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.h, self.steps = lucid.zeros(3), 0
            self.register_buffer("mean", lucid.zeros(3))

        def forward(self, x):
            self.h = lucid.tanh(self.h + x)
            self.mean = 0.9 * self.mean + 0.1 * self.h
            self.steps += 1
            return self.mean * self.steps

    model = Recurrent()
    return model.forward, lambda: [model, model.h, model.steps]


def entries():
    table, rows = {"m": lucid.zeros(3), "t": 0}, [lucid.zeros(3), lucid.ones(3)]

    def step(x):
        table["m"] = 0.5 * table["m"] + x
        table["t"] += 1
        rows[1], rows[0] = rows[0] + table["m"] / table["t"], rows[1] * 2
        return rows[0]

    return step, lambda: [table, rows]


def variables():
    h, count = lucid.zeros(3), 0

    def step(x):
        nonlocal h, count
        global COUNT, TOTAL
        count += 1
        COUNT, TOTAL = count * 2, TOTAL * 0.5 + x
        h = h + TOTAL
        return h / count

    return step, lambda: [h, count, COUNT, TOTAL]


def tuples():
    holder = SimpleNamespace(state=(lucid.zeros(3), lucid.ones(3), 1.0))

    def step(x):
        h, c, scale = holder.state
        c = c * lucid.sigmoid(x) + h
        holder.state = (lucid.tanh(c), c, scale * 0.5)
        return c * scale

    return step, lambda: holder.state


def slots():
    class Slotted:
        __slots__ = ("h",)

    holder = Slotted()
    holder.h = lucid.zeros(3)

    def step(x):
        holder.h = holder.h * 0.5 + x
        return holder.h.sum()

    return step, lambda: holder.h


def data():
    model = nn.Linear(3, 2)

    def step(x):
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        for p in model.parameters():
            p.data = p.data - 0.1 * p.grad
        return loss.detach()

    return step, lambda: model


@pytest.mark.parametrize(
    "program",
    [attribute, module, entries, variables, tuples, slots, data],
    ids=lambda f: f.__name__,
)
def test_places_are_read_and_bound_on_the_short_way(agree, program) -> None:
    def scenario(compile):
        global COUNT, TOTAL
        COUNT, TOTAL = 0, lucid.zeros(3)
        step, state = program()
        compiled = compile(step)
        results = [compiled(lucid.tensor(X) * i) for i in range(6)]
        if compiled._options.mode == "native":
            assert takes_the_short_way(compiled, lucid.tensor(X))
        else:
            compiled(lucid.tensor(X))
        found = state()
        return [results, vars(found) if isinstance(found, SimpleNamespace) else found]

    assert agree(scenario)[0].stats.traces <= 2


def warmed():
    holder = SimpleNamespace(h=lucid.zeros(3), t=0, gain=1.0)

    @lucid.compile
    def step(x):
        holder.t += 1
        holder.gain = holder.gain / holder.t
        holder.h = holder.h * 0.5 + x * holder.gain
        return holder.h

    for _ in range(3):
        step(lucid.tensor(X))
    assert takes_the_short_way(step, lucid.tensor(X))
    return holder, step


OTHERS = {
    "h": [
        lambda: lucid.ones(3, dtype=lucid.float64),
        lambda: lucid.ones(2, 3),
        lambda: lucid.ones(6)[::2],
        lambda: lucid.ones(3, requires_grad=True) * 2,
        lambda: nn.Parameter(lucid.ones(3)),
        lambda: 2.0,
    ],
    "t": [lambda: 4.0, lambda: True, lambda: lucid.tensor(3.0)],
    "gain": [lambda: 2, lambda: lucid.tensor(0.5)],
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name, makers in OTHERS.items() for i in range(len(makers))]
)
def test_what_is_of_another_kind_goes_the_long_way(name: str, number: int) -> None:
    holder, step = warmed()
    expected, eager = warmed()
    for target in (holder, expected):
        setattr(target, name, OTHERS[name][number]())
    assert not takes_the_short_way(step, lucid.tensor(X))
    x = lucid.tensor(X)
    found, wanted = step(x), eager.__wrapped__(x)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-6)
    assert found._type == wanted._type and holder.t == expected.t and holder.gain == expected.gain
    assert type(holder.t) is type(expected.t) and type(holder.gain) is type(expected.gain)


def test_what_is_gone_goes_the_long_way_and_is_missed_there() -> None:
    holder, step = warmed()
    del holder.h
    assert not takes_the_short_way(step, lucid.tensor(X))
    with pytest.raises(AttributeError):
        step(lucid.tensor(X))
    assert holder.t == 4


def test_an_argument_that_is_in_a_place_goes_the_long_way() -> None:
    holder, step = warmed()
    expected, eager = warmed()
    x, y = holder.h, expected.h
    assert not takes_the_short_way(step, x)
    assert step(x).tolist() == eager.__wrapped__(y).tolist()
    assert holder.h.tolist() == expected.h.tolist()


def test_a_number_that_can_t_be_computed_raises_before_anything_happens() -> None:
    holder, step = warmed()
    holder.t = -1
    before = holder.h, holder.gain
    with pytest.raises(ZeroDivisionError):
        step(lucid.tensor(X))
    assert holder.t == -1 and (holder.h, holder.gain) == before
    holder.t = 1
    assert step(lucid.tensor(X)) is holder.h and holder.t == 2


def test_a_step_that_fails_leaves_its_places() -> None:
    holder = SimpleNamespace(t=0, last=lucid.zeros(()))

    @lucid.compile
    def step(x, i):
        holder.t += 1
        holder.last = holder.last + x[i].sum()
        return holder.last

    x = lucid.arange(4.0)
    for _ in range(3):
        step(x, lucid.tensor([1]))
    for _ in range(2):
        before = holder.last
        with pytest.raises(lucid.LucidError):
            step(x, lucid.tensor([9]))
        assert holder.t == 3 and holder.last is before
    step(x, lucid.tensor([2]))
    assert holder.t == 4 and holder.last.item() == 5.0 and step.stats.traces == 1


def test_a_branch_on_a_number_in_a_place_is_looked_at() -> None:
    holder = SimpleNamespace(t=0)

    @lucid.compile
    def step(x):
        holder.t += 1
        return x * 2 if holder.t % 3 == 0 else x

    found = [step(lucid.ones(())).item() for _ in range(9)]
    assert found == [1.0, 1.0, 2.0] * 3 and step.stats.traces == 2


def test_a_module_whose_places_move_the_epoch_leaves_others_on_the_short_way() -> None:
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = lucid.zeros(3)

        def forward(self, x):
            self.h = self.h * 0.5 + x
            return self.h

    first, second = (lucid.compile(Recurrent()) for _ in range(2))
    x = lucid.tensor(X)
    for _ in range(3):
        first(x), second(x)
    for step in (first, second, first, second):
        assert takes_the_short_way(step, x)
    assert first.stats.traces == second.stats.traces == 1


def test_a_reader_takes_the_short_way_once_it_knows_the_place() -> None:
    holder = SimpleNamespace(h=lucid.zeros(3))
    read = lucid.compile(lambda x: x * holder.h)
    for i in range(4):
        holder.h = lucid.ones(3) * i
        assert read(lucid.tensor(X)).tolist() == [i * x for x in X]
    holder.h = lucid.ones(3) * 5
    assert takes_the_short_way(read, lucid.tensor(X)) and read.stats.traces == 2


def test_nothing_that_was_in_a_place_is_kept() -> None:
    holder, step = warmed()
    x = lucid.tensor(X)
    references = []
    for _ in range(5):
        references.append(weakref.ref(holder.h))
        step(x)
    assert not any(reference() for reference in references[:-1])
    del x
    gc.collect()
    assert references[-1]() is None


def test_threads_on_the_short_way_lose_no_update() -> None:
    holder = SimpleNamespace(t=0, total=lucid.zeros(3))

    @lucid.compile
    def step(x):
        holder.t += 1
        holder.total = holder.total + x
        return holder.total

    x = [lucid.ones(3) for _ in range(4)]
    for _ in range(4):
        step(x[0])

    def work(x):
        for _ in range(100):
            step(x)

    threads = [threading.Thread(target=work, args=(one,)) for one in x]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert holder.t == 404 and holder.total.tolist() == [404.0] * 3
