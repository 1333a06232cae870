"""Learning-rate schedules against their formulas."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lucid
from lucid import nn, optim
from lucid.optim import lr_scheduler as schedules, swa_utils

# The rates alone are looked at.
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")

BASE = 0.5
Make = Callable[[optim.Optimizer], schedules.LRScheduler]


def optimizer() -> optim.Optimizer:
    return optim.SGD([lucid.ones(1, requires_grad=True)], lr=BASE, momentum=0.9)


def cosine(epoch: float, period: float, low: float = 0.0) -> float:
    return low + (BASE - low) * (1 + math.cos(math.pi * epoch / period)) / 2


def annealed(start: float, end: float, done: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2


FORMULAS: dict[str, tuple[Make, Callable[[int], float]]] = {
    "LambdaLR": (lambda o: schedules.LambdaLR(o, lambda e: 1 / (1 + e)), lambda e: BASE / (1 + e)),
    "MultiplicativeLR": (
        lambda o: schedules.MultiplicativeLR(o, lambda e: 0.9),
        lambda e: BASE * 0.9**e,
    ),
    "StepLR": (lambda o: schedules.StepLR(o, 3, 0.1), lambda e: BASE * 0.1 ** (e // 3)),
    "StepLR of a float": (
        lambda o: schedules.StepLR(o, 3.0, 0.1),
        lambda e: BASE * 0.1 ** (e // 3),
    ),
    "MultiStepLR": (
        lambda o: schedules.MultiStepLR(o, [2, 5, 5], 0.1),
        lambda e: BASE * 0.1 ** ((e >= 2) + 2 * (e >= 5)),
    ),
    "ExponentialLR": (lambda o: schedules.ExponentialLR(o, 0.8), lambda e: BASE * 0.8**e),
    "ConstantLR": (
        lambda o: schedules.ConstantLR(o, 0.25, 4),
        lambda e: BASE * (0.25 if e < 4 else 1.0),
    ),
    "LinearLR": (
        lambda o: schedules.LinearLR(o, 0.2, 0.8, 6),
        lambda e: BASE * (0.2 + 0.6 * min(e, 6) / 6),
    ),
    "PolynomialLR": (
        lambda o: schedules.PolynomialLR(o, 15, 2.0),
        lambda e: BASE * (1 - min(e, 15) / 15) ** 2,
    ),
    "CosineAnnealingLR": (
        lambda o: schedules.CosineAnnealingLR(o, 5, 0.01),
        lambda e: cosine(e, 5, 0.01),
    ),
    "CosineAnnealingWarmRestarts": (
        lambda o: schedules.CosineAnnealingWarmRestarts(o, 2, 2),
        lambda e: cosine(e, 2) if e < 2 else cosine(e - 2, 4) if e < 6 else cosine(e - 6, 8),
    ),
    "OneCycleLR": (
        lambda o: schedules.OneCycleLR(o, 1.0, total_steps=20, pct_start=0.25),
        lambda e: annealed(0.04, 1.0, e / 4) if e <= 4 else annealed(1.0, 4e-6, (e - 4) / 15),
    ),
    "SequentialLR": (
        lambda o: schedules.SequentialLR(
            o, [schedules.LinearLR(o, 0.25, total_iters=3), schedules.ExponentialLR(o, 0.5)], [3]
        ),
        lambda e: BASE * (0.25 + 0.75 * e / 3) if e < 3 else BASE * 0.5 ** (e - 3),
    ),
    "ChainedScheduler": (
        lambda o: schedules.ChainedScheduler(
            [schedules.ConstantLR(o, 0.5, 2), schedules.ExponentialLR(o, 0.5)]
        ),
        lambda e: BASE * (0.5 if e < 2 else 1.0) * 0.5**e,
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_rates_follow_the_formula(name: str) -> None:
    make, formula = FORMULAS[name]
    opt = optimizer()
    scheduler = make(opt)
    for epoch in range(13):
        rate = opt.param_groups[0]["lr"]
        assert rate == pytest.approx(formula(epoch), rel=1e-9), epoch
        assert scheduler.get_last_lr() == [rate]
        scheduler.step()


@pytest.mark.parametrize("name", [name for name in FORMULAS if name != "LambdaLR"])
def test_a_loaded_schedule_goes_on_as_the_saved_one(name: str) -> None:
    make, formula = FORMULAS[name]
    opt, other = optimizer(), optimizer()
    scheduler, twin = make(opt), make(other)
    for _ in range(4):
        scheduler.step()
    twin.load_state_dict(copy.deepcopy(scheduler.state_dict()))
    other.load_state_dict(opt.state_dict())
    for epoch in range(5, 9):
        twin.step()
        assert other.param_groups[0]["lr"] == pytest.approx(formula(epoch), rel=1e-9)


def test_schedules_on_one_optimizer_multiply() -> None:
    opt = optimizer()
    both = [schedules.ExponentialLR(opt, 0.5), schedules.StepLR(opt, 2, 0.1)]
    for _ in range(3):
        for scheduler in both:
            scheduler.step()
    assert opt.param_groups[0]["lr"] == pytest.approx(BASE * 0.5**3 * 0.1)


def test_every_group_has_its_own_rate() -> None:
    a, b = (lucid.ones(1, requires_grad=True) for _ in range(2))
    opt = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.1}], lr=BASE)
    scheduler = schedules.LambdaLR(opt, [lambda e: 0.5**e, lambda e: 1.0])
    scheduler.step()
    assert scheduler.get_last_lr() == [BASE * 0.5, 0.1]
    with pytest.raises(ValueError, match="Expected 2 lr_lambdas, but got 1"):
        schedules.LambdaLR(opt, [lambda e: 1.0])


def test_callable_objects_keep_their_attributes() -> None:
    class Factor:
        def __init__(self, base: float) -> None:
            self.base = base

        def __call__(self, epoch: int) -> float:
            return self.base**epoch

    scheduler = schedules.LambdaLR(optimizer(), Factor(0.5))
    assert scheduler.state_dict()["lr_lambdas"] == [{"base": 0.5}]
    twin = schedules.LambdaLR(optimizer(), Factor(0.9))
    twin.load_state_dict(scheduler.state_dict())
    twin.step()
    assert twin.get_last_lr() == [BASE * 0.5]
    plain = schedules.LambdaLR(optimizer(), lambda e: 1.0)
    assert plain.state_dict()["lr_lambdas"] == [None]


def test_one_cycle_moves_momentum_the_other_way() -> None:
    opt = optimizer()
    scheduler = schedules.OneCycleLR(opt, 1.0, epochs=2, steps_per_epoch=10, pct_start=0.25)
    assert opt.param_groups[0]["momentum"] == 0.95
    for _ in range(4):
        scheduler.step()
    assert opt.param_groups[0]["momentum"] == pytest.approx(0.85)
    adam = optim.Adam([lucid.ones(1, requires_grad=True)])
    schedules.OneCycleLR(adam, 1.0, total_steps=10)
    assert adam.param_groups[0]["betas"] == (0.95, 0.999)
    for _ in range(16):
        scheduler.step()
    with pytest.raises(ValueError, match=r"OneCycleLR: step 21, where total_steps is 20"):
        scheduler.step()


def test_momentum_that_a_schedule_sets_is_read_later_in_the_step(
    prepared: Callable[..., Any],
) -> None:
    opt = optimizer()
    scheduler = schedules.CyclicLR(opt, 0.1, 0.5, step_size_up=2)

    def body(x: lucid.Tensor) -> lucid.Tensor:
        scheduler.step()
        return x * opt.param_groups[0]["momentum"]

    step = prepared(body)
    found = [step(lucid.ones(1)).item() for _ in range(4)]
    assert found == pytest.approx([0.85, 0.8, 0.85, 0.9])


def test_a_plateau_lowers_the_rate() -> None:
    opt = optimizer()
    scheduler = schedules.ReduceLROnPlateau(opt, factor=0.5, patience=1, cooldown=1, min_lr=0.2)
    rates = []
    for metric in (1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5):
        scheduler.step(lucid.tensor(metric))
        rates.append(opt.param_groups[0]["lr"])
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2]
    assert scheduler.get_last_lr() == [0.2]
    rising = schedules.ReduceLROnPlateau(
        opt, "max", patience=0, threshold=0.1, threshold_mode="abs"
    )
    rising.step(1.0)
    rising.step(1.05)
    assert opt.param_groups[0]["lr"] == pytest.approx(0.02)


def test_a_rate_that_is_a_tensor_is_written_in_place() -> None:
    rate = lucid.tensor(0.5)
    opt = optim.SGD([lucid.ones(1, requires_grad=True)], lr=rate)
    scheduler = schedules.ExponentialLR(opt, 0.5)
    scheduler.step()
    assert opt.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda o: schedules.StepLR(3, 1), TypeError, "int is not an Optimizer"),
        (lambda o: schedules.LinearLR(o, 0.0), ValueError, "start_factor must be in"),
        (
            lambda o: schedules.ConstantLR(o, 2.0),
            ValueError,
            "must be in [0, 1], not 2",
        ),
        (lambda o: schedules.OneCycleLR(o, 1.0), ValueError, "You must define either total_steps"),
        (
            lambda o: schedules.ReduceLROnPlateau(o, factor=1.0),
            ValueError,
            "Factor should be < 1.0.",
        ),
        (
            lambda o: schedules.ReduceLROnPlateau(o, "low"),
            ValueError,
            "mode must be one of 'min', 'max'",
        ),
        (
            lambda o: schedules.CosineAnnealingWarmRestarts(o, 0),
            ValueError,
            "Expected positive integer T_0, but got 0",
        ),
        (
            lambda o: schedules.StepLR(o, 1, last_epoch=3),
            KeyError,
            "param 'initial_lr' is not specified in param_groups[0] when resuming",
        ),
        (lambda o: schedules.SequentialLR(o, [], []), ValueError, "expects at least one scheduler"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        make(optimizer())
    assert message in str(caught.value)
    assert isinstance(caught.value, lucid.LucidError)


class Constant(schedules.LRScheduler):
    def get_lr(self) -> list[Any]:
        return self.base_lrs


GROUPS_ADDED: dict[str, tuple[Make, str]] = {
    "lambda": (lambda o: schedules.LambdaLR(o, lambda e: 0.9), "lr_lambdas, scheduler.base_lrs"),
    "product": (
        lambda o: schedules.MultiplicativeLR(o, lambda e: 0.9),
        "lr_lambdas, scheduler.base_lrs",
    ),
    "restarts": (lambda o: schedules.CosineAnnealingWarmRestarts(o, 2), "base_lrs"),
    "cosine": (lambda o: schedules.CosineAnnealingLR(o, 1), "base_lrs"),
    "cycle": (
        lambda o: schedules.CyclicLR(o, 0.1, 0.2, 3, cycle_momentum=False),
        "max_lrs, scheduler.base_lrs",
    ),
    "one cycle": (lambda o: schedules.OneCycleLR(o, 0.1, total_steps=9), ""),
    "user's": (Constant, "base_lrs"),
}


@pytest.mark.parametrize("name", GROUPS_ADDED)
def test_a_group_without_its_part_of_the_schedule_is_an_error_that_changes_nothing(
    name: str,
) -> None:
    make, lists = GROUPS_ADDED[name]
    opt = optimizer()
    scheduler = make(opt)
    scheduler.step()
    opt.add_param_group({"params": [lucid.ones(3, requires_grad=True)], "lr": 0.25})
    before = copy.deepcopy(scheduler.state_dict()), [dict(group) for group in opt.param_groups]
    append = f"append its entries to scheduler.{lists}, or " if lists else ""
    for _ in range(2):
        with pytest.raises(ValueError) as caught:
            scheduler.step()
        assert isinstance(caught.value, lucid.LucidError)
        assert str(caught.value) == (
            f"{type(scheduler).__name__}: the optimizer has 2 param groups, the scheduler "
            f"learning rates for 1\nhint: after add_param_group {append}make the scheduler anew"
        )
    after = scheduler.state_dict(), [dict(group) for group in opt.param_groups]
    assert repr(after) == repr(before)
    for part in lists.replace("scheduler.", "").split(", ") if lists else ():
        getattr(scheduler, part).append(getattr(scheduler, part)[0])
    if lists:
        scheduler.step()


def test_a_cycles_state_goes_into_a_file(tmp_path: Path) -> None:
    def made(**scale: Any) -> schedules.CyclicLR:
        return schedules.CyclicLR(optimizer(), 0.1, 0.5, 2, mode="triangular2", **scale)

    scheduler = made()
    for _ in range(6):
        scheduler.step()
    lucid.save(scheduler.state_dict(), tmp_path / "schedule.pt")
    other = made()
    other.load_state_dict(lucid.load(tmp_path / "schedule.pt"))
    other.step()
    scheduler.step()
    assert other.get_last_lr() == scheduler.get_last_lr()
    custom = made(scale_fn=lambda x: 0.5)
    custom.load_state_dict(custom.state_dict())
    custom.step()
    assert custom.get_last_lr() == [pytest.approx(0.2)]
    assert "_scale_fn_custom" not in custom.state_dict()


@pytest.mark.parametrize(
    ("key", "wrong", "message"),
    [
        ("last_epoch", "x", "'last_epoch' is str in the saved state and int here"),
        ("base_lrs", 5, "'base_lrs' is int in the saved state and list here"),
        ("get_lr", 5, "'get_lr' is int in the saved state and function here"),
        ("optimizer", None, "'optimizer' is no attribute of the state"),
        (7, None, "7 is no attribute of the state"),
    ],
)
def test_state_of_another_kind_is_refused_and_changes_nothing(
    key: Any, wrong: Any, message: str
) -> None:
    opt = optimizer()
    parts = [schedules.LambdaLR(opt, lambda epoch: 0.9), schedules.ExponentialLR(opt, 0.9)]
    scheduler = schedules.SequentialLR(opt, parts, [2])
    saved = copy.deepcopy(scheduler.state_dict())
    scheduler.load_state_dict(saved)
    before = repr([vars(scheduler), *map(vars, parts)])
    saved["_milestones"], saved["_schedulers"][0]["base_lrs"] = [3], [7.0]
    saved["_schedulers"][1][key] = wrong
    with pytest.raises(lucid.ArgumentError, match=message):
        scheduler.load_state_dict(saved)
    saved["_schedulers"].pop()
    with pytest.raises(lucid.OptionError, match="'_schedulers' has 1 entries, and the scheduler 2"):
        scheduler.load_state_dict(saved)
    assert repr([vars(scheduler), *map(vars, parts)]) == before


def test_a_plateau_with_one_lowest_rate_has_it_for_groups_that_come_later() -> None:
    opt = optimizer()
    scheduler = schedules.ReduceLROnPlateau(opt, factor=0.5, patience=0, min_lr=0.2)
    opt.add_param_group({"params": [lucid.ones(3, requires_grad=True)], "lr": 0.25})
    for _ in range(2):
        scheduler.step(1.0)
    assert [group["lr"] for group in opt.param_groups] == [0.25, 0.2]
    single = optimizer()
    scheduler = schedules.ReduceLROnPlateau(single, patience=0, min_lr=[0.2])
    single.add_param_group({"params": [lucid.ones(3, requires_grad=True)]})
    scheduler.step(1.0)
    with pytest.raises(ValueError, match=r"append its entries to scheduler.min_lrs, or make"):
        scheduler.step(1.0)


@pytest.mark.parametrize("average", ["ema", "swa"])
def test_averages_of_all_weights_at_once_are_those_of_each(
    average: str, prepared: Callable[..., Any]
) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    fns: Any = {
        "ema": (swa_utils.get_ema_avg_fn(0.9), swa_utils.get_ema_multi_avg_fn(0.9)),
        "swa": (swa_utils.get_swa_avg_fn(), swa_utils.get_swa_multi_avg_fn()),
    }[average]
    one = swa_utils.AveragedModel(model, avg_fn=fns[0], use_buffers=True)
    all_at_once = swa_utils.AveragedModel(model, multi_avg_fn=fns[1], use_buffers=True)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def body(x: lucid.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        one.update_parameters(model)
        all_at_once.update_parameters(model)

    step = prepared(body)
    for i in range(3):
        step(lucid.arange(8.0).reshape(4, 2) * (i + 1))
    for (name, a), b in zip(
        one.state_dict().items(), all_at_once.state_dict().values(), strict=True
    ):
        assert a.tolist() == b.tolist(), name
    with pytest.raises(ValueError, match="only one of avg_fn and multi_avg_fn can be given"):
        swa_utils.AveragedModel(model, avg_fn=fns[0], multi_avg_fn=fns[1])


def test_a_model_without_weights_has_an_average(prepared: Callable[..., Any]) -> None:
    model = nn.ReLU()
    average = swa_utils.AveragedModel(model)
    prepared(lambda: average.update_parameters(model))()
    assert average.n_averaged.item() == 1


def test_another_model_has_no_part_in_an_average(run: Callable[..., Any]) -> None:
    average = swa_utils.AveragedModel(nn.Linear(2, 2))
    kept = [tensor.tolist() for tensor in average.parameters()]
    other, narrow, without = nn.Linear(3, 2), nn.Linear(2, 1), nn.Linear(2, 2, bias=False)
    for model in (other, narrow, without):
        with pytest.raises(ValueError, match="the copy has parameters of shapes"):
            run(lambda model=model: average.update_parameters(model))
    with pytest.raises(TypeError, match="takes a Module, not int"):
        run(lambda: average.update_parameters(3))
    assert [tensor.tolist() for tensor in average.parameters()] == kept
    assert average.n_averaged.item() == 0


def test_a_closed_form_of_the_users_says_the_rate_of_an_epoch_that_is_named() -> None:
    class Closed(schedules.LRScheduler):
        def get_lr(self) -> list[Any]:
            return [1.0 for _ in self.base_lrs]

        def _get_closed_form_lr(self) -> list[Any]:
            return [float(self.last_epoch) for _ in self.base_lrs]

    scheduler = Closed(optimizer())
    with pytest.warns(UserWarning, match="epoch parameter"):
        scheduler.step(7)
    assert scheduler.get_last_lr() == [7.0]


@pytest.mark.filterwarnings("error")
def test_warm_restarts_go_to_parts_of_epochs(prepared: Callable[..., Any]) -> None:
    """As their reference has it, `step(epoch + i / iters)`: without a word about it."""
    opt = optimizer()
    scheduler = schedules.CosineAnnealingWarmRestarts(opt, 2)
    step = prepared(lambda part: scheduler.step(part))
    for part in (0.0, 0.25, 0.5, 1.75, 2.5, 3.0):
        step(part)
        wanted = opt.param_groups[0]["initial_lr"] * (1 + math.cos(math.pi * (part % 2) / 2)) / 2
        assert scheduler.get_last_lr() == [pytest.approx(wanted)]


class Ramp(schedules.LRScheduler):
    """A schedule whose `step` does all by itself, as in many repositories."""

    def __init__(self, opt: optim.Optimizer, steps: int) -> None:
        self.steps = steps
        super().__init__(opt)

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base * min(1.0, (self.last_epoch + 1) / self.steps)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


def test_a_step_of_the_users_sets_the_first_rate_and_is_asked_by_other_schedules() -> None:
    def rates(make: Callable[[Any], Any]) -> list[float]:
        opt = optimizer()
        scheduler = make(opt)
        found = [opt.param_groups[0]["lr"]]
        for _ in range(4):
            scheduler.step()
            found.append(opt.param_groups[0]["lr"])
        return found

    assert rates(lambda o: Ramp(o, 4)) == [0.125, 0.25, 0.375, 0.5, 0.5]
    chained = rates(lambda o: schedules.ChainedScheduler([Ramp(o, 4)]))
    assert chained == [0.125, 0.25, 0.375, 0.5, 0.5]
    both = rates(
        lambda o: schedules.SequentialLR(o, [Ramp(o, 2), schedules.ExponentialLR(o, 0.5)], [2])
    )
    assert both == [0.25, 0.5, 0.5, 0.25, 0.125]
