"""A trace or step that fails changes nothing; the error is the user's, or names the user's line."""

from __future__ import annotations

import copy
import gc
import inspect
import random
import re

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn
from lucid.autograd.saved import FREED


class World:
    """All kinds of state that a step may change, and what it looks like."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.opt = lucid.optim.Adam(self.model.parameters(), lr=0.1)
        self.model[0].weight.grad = lucid.ones(4, 3)
        self.buffer = lucid.zeros(2)
        self.data = np.zeros(2, np.float32)
        self.losses = []
        self.table = {"n": 0}
        self.count = 0

    def look(self):
        w = self.model[0].weight
        return copy.deepcopy(
            [
                {k: v.tolist() for k, v in self.model.state_dict().items()},
                [p._version for p in self.model.parameters()],
                [None if p.grad is None else p.grad.tolist() for p in self.model.parameters()],
                [p.requires_grad for p in self.model.parameters()],
                [w.grad_fn, self.model.training, lucid.is_grad_enabled()],
                {k: list(v) for k, v in self.opt.state_dict()["state"].items()},
                self.opt.state_dict()["param_groups"],
                self.buffer.tolist(),
                self.buffer._version,
                self.data.tolist(),
                self.losses,
                self.table,
                self.count,
                sorted(vars(self)),
                lucid.get_rng_state().tolist(),
                random.random.__self__.getstate(),
            ]
        )

    def change_everything(self, x):
        lucid.set_grad_enabled(True)
        self.model[2].requires_grad_(True)
        self.model.eval()
        self.model.train()
        loss = self.model(x).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.buffer.add_(loss.detach())
        self.model[0].weight.requires_grad_(False)
        return loss


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_while_tracing_leaves_no_trace(error):
    world = World()

    @lucid.compile
    def step(x):
        loss = world.change_everything(x)
        world.losses.append(1.0)
        world.table["n"] += 1
        world.table["new"] = 1
        world.count += 1
        world.extra = loss.detach()
        world.data += 1
        raise error("stop here")

    before = world.look()
    for _ in range(2):
        with pytest.raises(error, match="stop here"):
            step(lucid.ones(2, 3))
        assert world.look() == before
    assert step.stats.traces == 0


def test_an_exception_keeps_type_message_and_line():
    class MineError(Exception):
        pass

    @lucid.compile
    def step(x):
        y = x * 2
        raise MineError("about", y.shape)

    with pytest.raises(MineError) as found:
        step(lucid.ones(2))
    assert found.value.args == ("about", (2,))
    assert [entry.name for entry in found.traceback][-1] == "step"
    assert "raise MineError" in str(found.traceback[-1].statement)


class DivergedError(Exception):
    """What training loops raise: with the loss, and what else the caller looks at."""

    def __init__(self, loss, **found):
        super().__init__("diverged")
        self.__dict__.update(found, loss=loss)


class Report:
    def __init__(self, worst):
        self.worst = worst


@pytest.mark.parametrize(
    "error",
    [
        lambda loss, x: DivergedError(loss),
        lambda loss, x: DivergedError(None, rows=[{"row": x[0], "before": loss.detach()}]),
        lambda loss, x: DivergedError(None, report=Report(loss.detach())),
        lambda loss, x: DivergedError(None, report=Report(loss.item())),
        lambda loss, x: ValueError("too large", loss, x),
    ],
)
@pytest.mark.parametrize("is_cause", [False, True])
def test_an_exception_holds_the_tensors_that_eager_mode_gives_it(error, is_cause):
    """So a call that ends in one runs op by op; other calls don't."""

    def run(compile):
        lucid.manual_seed(1)
        model = nn.Linear(3, 1)
        opt = lucid.optim.SGD(model.parameters(), lr=0.01)

        @compile
        def step(x):
            opt.zero_grad()
            loss = model(x).pow(2).mean()
            if loss > 100:
                if is_cause:
                    raise RuntimeError("failed") from error(loss, x)
                raise error(loss, x)
            loss.backward()
            opt.step()
            return loss

        found = []
        for i in range(8):
            x = lucid.arange(6.0).reshape(2, 3) * (100 if i % 3 == 2 else 0.1)
            try:
                found.append(step(x).item())
            except (DivergedError, ValueError, RuntimeError) as raised:
                cause = raised.__cause__ if is_cause else raised
                shown = {k: vars(v) if type(v) is Report else v for k, v in vars(cause).items()}
                found += [repr(cause.args), repr(shown)]
                if getattr(cause, "loss", None) is not None:
                    cause.loss.backward()
                    found.append(repr([p.grad for p in model.parameters()]))
        return found, step

    expected, _ = run(lambda function: function)
    found, step = run(lucid.compile)
    numbers = re.compile(r"-?\d+\.?\d*")
    for now, then in zip(found, expected, strict=True):
        if isinstance(now, str):
            assert numbers.sub("#", now) == numbers.sub("#", then)
            now, then = (np.array(numbers.findall(x), float) for x in (now, then))
        np.testing.assert_allclose(now, then, rtol=1e-3)
    assert step.stats.calls == 6 and step.stats.traces == 1
    assert "which it has computed" in step.stats.eager_reasons[0]


def test_the_program_may_catch_its_own_exceptions(agree):
    def scenario(compile):
        @compile
        def step(x, table):
            try:
                y = x * table["missing"]
            except KeyError:
                y = x * 2
            try:
                y = y.reshape(7)
            except lucid.ShapeError:
                y = y + 1
            finally:
                y = y * 3
            return y

        return step(lucid.ones(2), {})

    agree(scenario, traces=1)


class RootOf(lucid.autograd.Function):
    """Of a number that isn't negative, by a host call."""

    @staticmethod
    def forward(ctx, x):
        if x.numpy() < 0:
            raise ArithmeticError("no root")
        return lucid.tensor(np.sqrt(x.numpy()))

    @staticmethod
    def backward(ctx, g):
        return g


def root(x):
    return RootOf.apply(x[0, 0])


def entry_of(x):
    return x[x[:1, 0].long()].sum()


@pytest.mark.parametrize("around", ["nothing", "with", "finally", "another handler", "a function"])
@pytest.mark.parametrize("found", [lucid.linalg.cholesky, root, entry_of])
@pytest.mark.parametrize("first", ["good", "bad"])
def test_an_error_that_values_cause_is_handled_as_in_eager_mode(agree, found, around, first):
    """A Cholesky factor of a matrix that may not have one, in whichever call it is."""
    good, bad = lucid.tensor([[1.0, 0.0], [0.0, 2.0]]), lucid.tensor([[-5.0, 2.0], [2.0, 1.0]])

    def looked_for(x):
        if around == "with":
            with lucid.no_grad():
                return found(x)
        if around == "finally":
            try:
                return found(x)
            finally:
                x = x + 1
        if around == "another handler":
            try:
                return found(x)
            except KeyError:
                return x
        return found(x)

    def scenario(compile):
        state = lucid.zeros(2)
        total = []

        @compile
        def step(x):
            state.add_(1)
            total.append(1)
            try:
                y = looked_for(x) if around != "nothing" else found(x)
            except (RuntimeError, IndexError, ArithmeticError) as error:
                return type(error).__name__, x - state.sum()
            return "", y * state.sum()

        order = (good, bad) if first == "good" else (bad, good)
        return [step(x) for x in (*order, *order, *order)], state, len(total)

    agree(scenario)


def test_a_host_call_before_an_error_that_is_handled_is_made_once(agree):
    def scenario(compile):
        called = []

        class Doubled(lucid.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                called.append(x.numpy().sum())
                return 2 * x

            @staticmethod
            def backward(ctx, grad):
                return 2 * grad

        @compile
        def step(x, at):
            y = Doubled.apply(x)
            try:
                return y[at]
            except IndexError:
                return y[:1]

        found = [step(lucid.arange(3).float(), lucid.tensor([i])) for i in range(6)]
        return found, called

    (step,) = agree(scenario)
    assert "by when it has changed Python objects" in step.stats.eager_reasons[0]


def test_what_cannot_be_compiled_is_no_exception_to_be_caught():
    @lucid.compile
    def step(x):
        try:
            return x * len({x.numpy().tobytes()})
        except Exception:
            return x

    assert step(lucid.full((4,), 2.0)).tolist() == [2.0] * 4
    assert "it looks at bytes" in step.stats.eager_reasons[0]


def test_a_step_that_fails_while_running_changes_nothing():
    world = World()
    table = lucid.arange(10.0)

    @lucid.compile
    def step(x, index):
        world.buffer.add_(1)
        w = world.model[0].weight
        w.grad = None
        (w.sum() * table[index].sum()).backward()
        with lucid.no_grad():
            w.sub_(w.grad)
        return lucid.rand(2)

    world.model[0].weight.grad = None
    step(lucid.ones(2, 3), lucid.tensor([1, 2]))
    before, grad = world.look(), world.model[0].weight.grad
    line = inspect.getsourcelines(step.__wrapped__)[1] + 5
    with pytest.raises(lucid.IndexOutOfRangeError, match="index 10 is out of bounds") as error:
        step(lucid.ones(2, 3), lucid.tensor([1, 10]))
    place = f"test_failures.py:{line}   (w.sum() * table[index].sum()).backward()"
    assert place in str(error.value)
    assert world.look() == before and world.model[0].weight.grad is grad
    step(lucid.ones(2, 3), lucid.tensor([1, 9]))
    assert world.look() != before


def test_a_trace_succeeds_after_one_that_failed(agree):
    def scenario(compile):
        model = nn.Linear(3, 1)
        opt = lucid.optim.AdamW(model.parameters(), lr=0.1)
        fail = True

        @compile
        def step(x):
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            if fail:
                raise ValueError("not yet")
            opt.step()
            return loss

        with pytest.raises(ValueError, match=r"^not yet$"):
            step(lucid.ones(2, 3))
        model.zero_grad()
        fail = False
        return [[step(lucid.ones(2, 3)).detach() for _ in range(3)], model]

    agree(scenario, traces=1)


def test_a_second_backward_inside_of_a_step_raises_as_in_eager():
    w = nn.Parameter(lucid.ones(2))

    @lucid.compile
    def step(x):
        loss = (w * w * x).sum()
        loss.backward()
        loss.backward()

    with pytest.raises(lucid.LucidError, match=f"^{re.escape(FREED)}\n  in [A-Z]"):
        step(lucid.ones(2))
    assert w.grad is None


def test_shape_errors_name_the_users_lines():
    @lucid.compile
    def step(x, w):
        h = x.reshape(2, 6)
        return h @ w

    with pytest.raises(lucid.ShapeError) as error:
        step(lucid.ones(3, 4), lucid.ones(5, 2))
    assert "h = x.reshape(2, 6)" in str(error.value)


def test_a_loss_that_is_nan_is_numpys_nan(agree):
    def scenario(compile):
        model = nn.Linear(2, 2)
        opt = lucid.optim.SGD(model.parameters(), lr=0.1)

        @compile
        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        x = lucid.tensor([[1.0, float("nan")]])
        return [step(x, lucid.tensor([0])).detach(), model]

    agree(scenario)


def test_a_compiler_that_fails_leaves_no_state_behind(monkeypatch):
    model = nn.Linear(2, 1)
    opt = lucid.optim.Adam(model.parameters(), lr=0.1)

    @lucid.compile
    def step(x):
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()

    def fail(*args, **options):
        raise lucid.MissingRuleError("no lowering")

    with monkeypatch.context() as patch, pytest.raises(lucid.MissingRuleError):
        patch.setattr("lucid.compiler.programs.program.compile_graph", fail)
        step(lucid.ones(1, 2))
    assert opt.state_dict()["state"] == {} and model.weight.grad is None
    step(lucid.ones(1, 2))
    assert step.stats.traces == 1 and len(opt.state_dict()["state"]) == 2


@pytest.mark.parametrize("enabled", [True, False])
def test_the_cycle_collector_is_as_before_after_a_trace_that_failed(enabled):
    seen = []

    @lucid.compile
    def step(x):
        seen.append(gc.isenabled())
        raise ValueError("not today")

    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ValueError, match="not today"):
            step(lucid.ones(()))
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
    assert not any(seen)


def picks_and_reshapes(x, index):
    y = x[index]
    return y + x.reshape(17)


def picks_and_raises(x, index):
    y = x[index]
    if y.sum() > -1:
        raise KeyError("later")


def draws_and_raises(x, index):
    lucid.bernoulli(index - 0.5)
    raise KeyError("later")


def fills_and_looks(x, index):
    y = x * 2
    y.index_fill_(0, index, 0.5)
    return y if y.sum() > 0 else x


def handles_the_later_one(x, index):
    try:
        y = x[index]
        raise KeyError("later")
    except KeyError:
        return x + y


@pytest.mark.parametrize(
    "step",
    [
        picks_and_reshapes,
        picks_and_raises,
        draws_and_raises,
        fills_and_looks,
        handles_the_later_one,
    ],
)
def test_a_trace_that_fails_raises_what_eager_mode_finds_first(step):
    given = lucid.ones(2, 3), lucid.tensor([0, 7])
    with pytest.raises(lucid.LucidError) as expected:
        step(*given)
    with pytest.raises(type(expected.value)) as found:
        lucid.compile(step)(*given)
    assert str(found.value) == str(expected.value)


class Counting:
    """What leaves a block changes state."""

    def __init__(self, counts):
        self.counts = counts

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.counts["exits"] = self.counts.get("exits", 0) + 1


GIVEN_UP = {
    "an array is written": lambda x, data: data.__setitem__(0, 3.0),
    "an array is changed": lambda x, data: np.add(data, 1, out=data),
    "a file is opened": lambda x, data: open(__file__).close(),
    "an address is asked for": lambda x, data: x.data_ptr(),
    "a list of numbers is sorted": lambda x, data: sorted(x.tolist()),
}


@pytest.mark.parametrize("action", GIVEN_UP.values(), ids=GIVEN_UP)
def test_what_is_done_on_the_way_out_of_a_trace_is_put_back(agree, action):
    """A trace begins again, or is given up, in a block: what its handlers change is undone too."""

    def scenario(compile):
        counts, data, found = {"steps": 0}, np.ones(2), []

        @compile
        def step(x):
            with Counting(counts):
                try:
                    action(x, data)
                finally:
                    counts["steps"] += 1
                    found.append(counts["steps"])
            return x * 2

        return [step(lucid.ones(2)) for _ in range(3)], counts, data, found

    agree(scenario)
