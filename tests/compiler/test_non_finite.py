"""`lucid.compile(…, nan=…)`: what a step would leave is finite, or it leaves all as it was."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
import lucid.nn.functional as F
from lucid import nn


class Divides(lucid.autograd.Function):
    """An identity, whose backward divides by `scale`."""

    scale: lucid.Tensor

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        return g / Divides.scale  # the user's backward


class DividesOutside(lucid.autograd.Function):
    """The same with NumPy."""

    @staticmethod
    def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
        return lucid.from_numpy(x.numpy() * 1)

    @staticmethod
    def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
        with np.errstate(all="ignore"):
            return lucid.from_numpy(g.numpy() / Divides.scale.numpy())


class Trainer:
    """A model in training whose loss is fine while `scale` is 1, and isn't at 0."""

    def __init__(self, loss: Callable[[Any, Any], Any], nan: str = "raise", opt: str = "Adam"):
        lucid.manual_seed(0)
        self.scale = Divides.scale = lucid.tensor(1.0)
        self.model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.2))
        self.opt = getattr(lucid.optim, opt)(self.model.parameters(), lr=0.1)
        self.scheduler = lucid.optim.lr_scheduler.StepLR(self.opt, 2, 0.9)
        self.calls, self.log, self.seen = 0, [], {"drawn": 0.0}
        self.x = lucid.randn(5, 4)

        def step(x: lucid.Tensor) -> lucid.Tensor:
            self.opt.zero_grad()
            self.seen["drawn"] = random.random() + np.random.rand()
            value = loss(self.model(x), self.scale)
            value.backward()
            self.opt.step()
            self.scheduler.step()
            self.calls += 1
            self.log.append(value.detach())
            return value.detach()

        self.step = lucid.compile(step, nan=nan)

    def state(self) -> Any:
        tensors = [x for _, x in sorted(self.model.state_dict().items())]
        moments = [x for entry in self.opt.state.values() for x in entry.values()]
        tensors += [x for x in moments if isinstance(x, lucid.Tensor)]
        grads = [None if p.grad is None else p.grad.numpy().tobytes() for p in self.opt_params()]
        versions = [p._version for p in self.opt_params()]
        bits = [x.detach().numpy().tobytes() for x in tensors]
        generators = lucid.get_rng_state().numpy().tobytes(), random.getstate()
        generators += (str(np.random.get_state()),)
        rates = self.opt.param_groups[0]["lr"], self.scheduler.state_dict()
        python = self.calls, len(self.log), dict(self.seen)
        return bits, grads, versions, generators, rates, python

    def opt_params(self) -> list[Any]:
        return list(self.model.parameters())


LOSSES: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "forward": (
        lambda y, scale: (y.square() / scale).sum(),  # divides
        "div: made 15 infinite of 15 elements;",
        "divides",
    ),
    "backward of an op": (
        lambda y, scale: ((y.square() * scale).sqrt() + y).sum(),  # the root's
        "div: made 15 infinite of 15 elements, in the backward of test_non_finite.py:",
        "the root's",
    ),
    "the user's backward": (
        lambda y, scale: Divides.apply(y).square().sum(),
        "div: made 15 infinite of 15 elements, in Divides.backward;",
        "the user's backward",
    ),
    "a backward outside": (
        lambda y, scale: DividesOutside.apply(y).square().sum(),
        "DividesOutside.backward: made 15 infinite of 15 elements, in the backward of",
        "def backward(ctx: Any, g: lucid.Tensor)",
    ),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("opt", ["SGD", "Adam"])
@pytest.mark.parametrize("nan", ["raise", "skip"])
def test_it_names_the_op_and_leaves_all_as_it_was(
    kind: str, opt: str, nan: str, caplog: pytest.LogCaptureFixture
) -> None:
    loss, said, line = LOSSES[kind]
    trainer = Trainer(loss, nan, opt)
    trainer.model[2].p = 0.0
    for warm_up in (0, 3):  # the error is of the first call, or of one by native code
        for _ in range(warm_up):
            trainer.step(trainer.x)
        before = trainer.state()
        trainer.scale.fill_(0.0)
        if nan == "raise":
            with pytest.raises(lucid.NonFiniteError) as error:
                trainer.step(trainer.x)
            text = str(error.value)
            assert error.value.__suppress_context__
        else:
            skipped = trainer.step.stats.skipped
            with caplog.at_level(logging.WARNING, "lucid.nan"):
                trainer.step(trainer.x)
            assert trainer.step.stats.skipped == skipped + 1
            text = caplog.messages.pop().partition(" is skipped: ")[2]
        assert text.startswith(said), text
        assert line in text.splitlines()[-1], text
        assert trainer.state() == before
        trainer.scale.fill_(1.0)
    assert np.isfinite(trainer.step(trainer.x).item())


def test_the_message_has_the_operands_and_where_they_come_from() -> None:
    trainer = Trainer(lambda y, scale: (y.abs() + scale).log().sum())
    trainer.model = nn.Identity()
    trainer.opt = lucid.optim.SGD([w := lucid.zeros(2, requires_grad=True)], lr=1.0)
    scale = lucid.tensor([0.0, 3.0])

    @lucid.compile(nan="raise")
    def step() -> lucid.Tensor:
        trainer.opt.zero_grad()
        shifted = w + scale
        loss = shifted.log().sum()
        loss.backward()
        trainer.opt.step()
        return loss

    with pytest.raises(lucid.NonFiniteError) as error:
        step()
    first, operand, place = str(error.value).splitlines()
    assert first == "log: made 1 infinite of 2 elements; nothing was changed"
    assert operand.startswith("  shifted: f32[2]  0 to 3, mean 1.5, 1 zeros  from test_non_finite")
    assert operand.endswith("shifted = w + scale")
    assert place.startswith("  in test_non_finite.py:")
    assert place.endswith("loss = shifted.log().sum()")


def test_an_update_that_overflows_is_no_update() -> None:
    w = lucid.tensor([1.0, 2.0], requires_grad=True)
    opt = lucid.optim.SGD([w], lr=0.5)

    def step() -> lucid.Tensor:
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        opt.step()
        return loss

    compiled = lucid.compile(step, nan="raise")
    for _ in range(3):
        compiled()
    w.data.copy_(lucid.tensor([1.0, 2.0]))
    opt.param_groups[0]["lr"] = 3e38
    with pytest.raises(lucid.NonFiniteError, match=r"made . infinite of 2 elements"):
        compiled()
    assert w.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_updates_go_straight_into_the_state(name: str) -> None:
    """What they are made of is within bounds: so nothing waits in a temp, and is copied then."""
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    opt = getattr(lucid.optim, name)(model.parameters(), lr=0.1)

    @lucid.compile(nan="raise")
    def step(x: lucid.Tensor) -> None:
        opt.zero_grad()
        model(x).square().sum().backward()
        opt.step()

    for _ in range(3):
        step(lucid.randn(4, 6))
    kernels = step.kernel_graph().nodes(data="kind")
    assert "check" in dict(kernels).values()
    assert "copy" not in dict(kernels).values()


def momentum(nan: str) -> tuple[Any, lucid.Tensor, Any]:
    """A step whose gradient is its argument."""
    w = lucid.tensor([1.0, 2.0], requires_grad=True)
    opt = lucid.optim.SGD([w], lr=0.5, momentum=0.5)

    @lucid.compile(nan=nan)
    def step(x: lucid.Tensor) -> None:
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()

    return step, w, opt


def test_what_is_out_of_bounds_and_finite_is_no_error() -> None:
    """Such a call is run again, with a look at all results."""
    (plain, expected, _), (watched, w, opt) = momentum("allow"), momentum("raise")
    large, small = lucid.tensor([1e20, -1e30]), lucid.ones(2)
    for number in range(20):
        for step in (plain, watched):
            step(large if number % 2 else small)
        np.testing.assert_array_equal(w.detach().numpy(), expected.detach().numpy())
    kinds = [*dict(watched.kernel_graph().nodes(data="kind")).values()]
    assert kinds == ["reduce", "check", "map", "map"]  # nothing is written before the check
    assert watched.stats.traces == plain.stats.traces
    large.fill_(3.4e38)
    watched(large)
    before = w.tolist(), opt.state[w]["momentum_buffer"].tolist()
    with pytest.raises(lucid.NonFiniteError, match="add: made 2 infinite of 2 elements"):
        watched(large)
    assert before == (w.tolist(), opt.state[w]["momentum_buffer"].tolist())


def test_the_op_is_looked_for_with_what_the_call_has_drawn() -> None:
    """The root of a number that is drawn anew would be no NaN."""
    draws = np.random.RandomState(0)

    @lucid.compile(nan="raise")
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return (x - draws.rand()).sqrt()

    failed = 0
    for _ in range(20):
        before = str(draws.get_state())
        try:
            step(lucid.tensor([0.5]))
        except lucid.NonFiniteError as error:
            failed += 1
            assert str(error).startswith("sqrt: made 1 NaN of 1 elements")
            assert str(draws.get_state()) == before
            draws.rand()
    assert 0 < failed < 20


@pytest.mark.parametrize(
    ("number", "result"),
    [
        (1.0, lambda x: x + 1),
        (2.0**100, lambda x: x + 1),
        (float("inf"), lambda x: x + 1),
        (0.0, lambda x: x / x),
    ],
)
@pytest.mark.parametrize("nan", ["raise", "skip"])
def test_calls_of_python_are_made_once(
    number: float, result: Callable[[Any], Any], nan: str
) -> None:
    """Also of a step that is run again: out of bounds, for what comes in, to name the op."""
    seen: list[float] = []
    w = lucid.ones(2, requires_grad=True)
    opt = lucid.optim.SGD([w], lr=1e-30, momentum=0.9)

    @lucid.compile(nan=nan)
    def step(x: lucid.Tensor) -> lucid.Tensor:
        opt.zero_grad()
        lucid.debug.callback(lambda h: seen.append(h[0].item()), x * 2)
        (w * x).sum().backward()
        opt.step()
        lucid.debug.callback(lambda: seen.append(-1.0))
        return result(x)

    for _ in range(12):
        del seen[:]
        try:
            step(lucid.full((2,), number))
        except lucid.NonFiniteError:
            assert not number and nan == "raise"
        assert seen == [2 * number, -1.0]


def test_batches_of_all_sizes_are_looked_at() -> None:
    """By a program whose sizes are open."""
    trainer = Trainer(LOSSES["forward"][0])
    seen: list[float] = []

    @lucid.compile(nan="raise")
    def step(x: lucid.Tensor) -> None:
        trainer.opt.zero_grad()
        lucid.debug.callback(lambda n: seen.append(n.item()), x.sum() * 0)
        (trainer.model(x).square() / trainer.scale).sum().backward()
        trainer.opt.step()

    for size in (5, 7, 9, 12, 30, 8):
        step(lucid.randn(size, 4))
    assert step.stats.reused
    before = trainer.state()
    trainer.scale.fill_(0.0)
    del seen[:]
    for size in (6, 11, 5):
        with pytest.raises(lucid.NonFiniteError, match=f"div: made .* of {size * 3} elements"):
            step(lucid.full((size, 4), 2.0).cumsum(0))
    assert trainer.state() == before
    assert seen == [0.0] * 3


def test_a_step_that_is_interpreted_is_looked_at() -> None:
    seen: list[float] = []

    def body(x: lucid.Tensor) -> lucid.Tensor:
        lucid.debug.callback(lambda h: seen.append(h.item()), x)
        return x.sqrt()

    step = lucid.compile(body, mode="interpret", nan="raise")
    assert step(lucid.tensor(4.0)).item() == 2
    with pytest.raises(lucid.NonFiniteError, match="sqrt: made 1 NaN of 1 elements"):
        step(lucid.tensor(-1.0))
    assert step(lucid.tensor(float("inf"))).item() == float("inf")
    assert seen == [4.0, -1.0, float("inf")]


def test_skip_leaves_the_state_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    trainer = Trainer(LOSSES["forward"][0], nan="skip")
    for _ in range(3):
        trainer.step(trainer.x)
    before = trainer.state()
    trainer.scale.fill_(0.0)
    with caplog.at_level(logging.WARNING, "lucid.nan"):
        for _ in range(2):
            assert not np.isfinite(
                trainer.step(trainer.x).item()
            )  # what the call returns all the same
    assert trainer.state() == before
    assert trainer.step.stats.skipped == 2
    assert caplog.text.count("this call is skipped: div: made") == 2
    trainer.scale.fill_(1.0)
    trainer.step(trainer.x)
    assert trainer.calls == before[-1][0] + 1
    assert trainer.step.stats.skipped == 2


def test_what_comes_in_is_not_made() -> None:
    """Infinities of masks, of state and of arguments pass, and so do NaN."""
    best = lucid.tensor(float("inf"))
    mask = lucid.tensor([True, False, False])

    @lucid.compile(nan="raise")
    def step(x: lucid.Tensor) -> Any:
        scores = x.masked_fill(mask, float("-inf"))
        best.copy_(lucid.minimum(best, x.sum()))
        return best.clone(), scores

    for x in ([1.0, 2.0, 3.0], [1.0, 2.0, float("inf")], [float("nan"), 2.0, 3.0]):
        eager = step.__wrapped__(lucid.tensor(x))[1]
        found = step(lucid.tensor(x))[1]
        np.testing.assert_array_equal(found.numpy(), eager.numpy())
    assert np.isnan(best.item())


def test_a_nan_of_infinities_is_made() -> None:
    @lucid.compile(nan="raise")
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return F.softmax(x.masked_fill(x > 0, float("-inf")), -1)

    step(lucid.tensor([-1.0, 1.0]))
    with pytest.raises(lucid.NonFiniteError, match=r"^sub: made 2 NaN of 2 elements"):
        step(lucid.tensor([1.0, 1.0]))


def test_what_nobody_gets_is_not_looked_at() -> None:
    @lucid.compile(nan="raise")
    def step(x: lucid.Tensor) -> lucid.Tensor:
        return lucid.where(x > 0, x.log(), 0.0)

    assert step(lucid.tensor([0.0, 1.0])).tolist() == [0.0, 0.0]


def test_a_backward_outside_raises_too() -> None:
    model = lucid.compile(lambda x: x.sqrt() * 1.0, nan="raise")
    for value in (1.0, 1.0, 0.0):
        x = lucid.tensor([value], requires_grad=True)
        y = model(x).sum()
        if value:
            y.backward()
            continue
        with pytest.raises(lucid.NonFiniteError, match="div: made 1 infinite of 1 elements"):
            y.backward()
        assert x.grad is None


def test_results_are_those_of_a_step_without_it() -> None:
    plain, watched = (Trainer(LOSSES["forward"][0], nan=nan) for nan in ("allow", "raise"))
    lucid.manual_seed(1)
    for trainer in (plain, watched):
        lucid.manual_seed(1)
        for _ in range(5):
            trainer.step(trainer.x)
    for a, b in zip(plain.opt_params(), watched.opt_params(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)
    assert watched.step.stats.traces == plain.step.stats.traces


def test_wrong_options_and_calls() -> None:
    with pytest.raises(lucid.OptionError, match="nan must be one of 'allow', 'raise'"):
        lucid.compile(lambda x: x, nan="no")


def test_a_call_that_cannot_be_recorded_says_so() -> None:
    @lucid.compile(nan="skip")
    def digits(x: lucid.Tensor) -> Any:
        return hash(str(x))

    @lucid.compile(nan="raise")
    def writes(x: lucid.Tensor, path: str) -> None:
        with open(path, "w"):
            pass

    with pytest.raises(lucid.TraceError) as error:
        digits(lucid.ones(2))
    said, place, hint = str(error.value).splitlines()
    assert said == (
        'digits, with nan="skip", would have to run op by op, where nothing is looked at before it '
        "changes: it looks into a text with values that the step computes"
    )
    assert place.endswith("return hash(str(x))")
    assert hint.startswith("hint: return the tensor and look at it outside")
    with pytest.raises(lucid.TraceError) as error:
        writes(lucid.ones(2), "never")
    said, _, hint = str(error.value).splitlines()
    assert 'writes, with nan="raise", would have to run op by op, where' in said
    assert said.endswith("it uses a file, by io.open()")
    assert hint == "hint: do that outside of the compiled function, or leave nan= out"
