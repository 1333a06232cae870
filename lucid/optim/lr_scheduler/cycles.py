"""Schedules that go up and down: warm restarts, one cycle, and cycles over and over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid.choices import check_choice
from lucid.ir.errors import OptionError
from lucid.optim.lr_scheduler.base import (
    LRScheduler,
    check_optimizer,
    example,
    per_group,
    set_rate,
)
from lucid.optim.optimizer import Optimizer

Scale = Callable[[float], float]


@example("opt, T_0=2", [0.5, 1.0, 0.5])
class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine wave down to `eta_min`, over and over; each period `T_mult` times as long.

    Reference: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017.

    Args:
        T_0: epochs of the first period.
        T_mult: how much longer each period is than the one before. Default: 1.
        eta_min: the lowest rate. Default: 0.0.

    Raises:
        OptionError: a period below 1.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise OptionError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise OptionError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def _advance(self, epoch: float | None) -> None:
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            self._find_period(epoch)
        self.last_epoch = math.floor(epoch)
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            set_rate(group, rate)
        self._last_lr = self._rates()

    def _find_period(self, epoch: float) -> None:
        """Set the period that an epoch, perhaps a fraction, falls into, and how far it is in it."""
        if epoch < 0:
            raise OptionError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            passed = epoch / self.T_0 * (self.T_mult - 1) + 1
            periods = int(math.log(passed, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**periods - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**periods


class _WithMomentum(LRScheduler):
    """Schedules that move momentum as well: that of SGD, or the first of Adam's betas."""

    _sets = ("lr", "momentum", "betas")
    cycle_momentum: bool

    def _find_momentum(self, optimizer: Optimizer, cycle_momentum: bool) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = "betas" in optimizer.defaults
        if cycle_momentum and not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise OptionError("cycle_momentum needs an optimizer with momentum or betas")

    def _set_momentum(self, group: Any, value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group.raw("betas")[1:])
        else:
            group["momentum"] = value


@example("opt, max_lr=1.0, total_steps=10", [0.52, 1.0, 0.9505], made="lr=1.0, momentum=0.9")
class OneCycleLR(_WithMomentum):
    """Up from `max_lr / div_factor` to `max_lr`, then down to that over `final_div_factor`.

    Reference: Smith and Topin, "Super-Convergence", 2017.

    Args:
        max_lr: the highest rate; a number, or one for each group.
        total_steps: how many steps there are. None is `epochs * steps_per_epoch`.
        epochs: beside `steps_per_epoch`.
        steps_per_epoch: beside `epochs`.
        pct_start: the part of the steps that goes up. Default: 0.3.
        anneal_strategy: "cos" or "linear". Default: 'cos'.
        cycle_momentum: momentum (or beta1) goes the other way, between `base_momentum` and
            `max_momentum`. Default: True.
        base_momentum: the lowest momentum. Default: 0.85.
        max_momentum: the highest momentum. Default: 0.95.
        div_factor: the first rate is max_lr over this. Default: 25.0.
        final_div_factor: the last rate is the first one over this. Default: 10000.0.
        three_phase: go down to the start symmetrically, then on to the end. Default: False.

    Raises:
        OptionError: a number out of range, or momentum is to be cycled where there is none.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self._find_momentum(optimizer, cycle_momentum)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise OptionError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        check_choice(anneal_strategy, "anneal_strategy", "OneCycleLR", ("cos", "linear"))
        self.anneal_strategy = anneal_strategy
        self._phases = _phases(self.total_steps, pct_start, three_phase)
        if last_epoch == -1:
            self._set_limits("lr", max_lr, None, div_factor, final_div_factor)
            if cycle_momentum:
                self._set_limits("momentum", max_momentum, base_momentum, 1.0, 1.0)
        super().__init__(optimizer, last_epoch)

    def _set_limits(self, what: str, high: Any, low: Any, divisor: float, final: float) -> None:
        """Enter into each group what its rate or momentum goes between."""
        groups = self.optimizer.param_groups
        highs = per_group(f"max_{what}", high, len(groups))
        lows = highs if low is None else per_group(f"base_{what}", low, len(groups))
        for group, top, bottom in zip(groups, highs, lows, strict=True):
            group[f"max_{what}"] = top
            if what == "lr":
                group["initial_lr"] = top / divisor
                group["min_lr"] = group["initial_lr"] / final
            else:
                group["base_momentum"] = bottom
                self._set_momentum(group, top)

    def get_lr(self) -> list[Any]:
        if self.last_epoch > self.total_steps:
            raise OptionError(
                f"OneCycleLR: step {self.last_epoch}, where total_steps is {self.total_steps}"
            )
        ends = [0.0, *(phase[0] for phase in self._phases)]
        passed = sum(self.last_epoch > end for end in ends[1:-1])
        start, end = ends[passed : passed + 2]
        done = (self.last_epoch - start) / (end - start)
        rates = []
        for group in self.optimizer.param_groups:
            keys = self._phases[passed][1:]
            lr_from, lr_to, momentum_from, momentum_to = (group.get(key) for key in keys)
            rates.append(self._between(lr_from, lr_to, done))
            if self.cycle_momentum:
                self._set_momentum(group, self._between(momentum_from, momentum_to, done))
        return rates

    def _between(self, start: float, end: float, done: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * done + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)


_UP = ("initial_lr", "max_lr", "max_momentum", "base_momentum")
_DOWN = ("max_lr", "min_lr", "base_momentum", "max_momentum")
_BACK = ("max_lr", "initial_lr", "base_momentum", "max_momentum")
_OUT = ("initial_lr", "min_lr", "max_momentum", "max_momentum")


def _phases(total: int, part: float, three: bool) -> list[tuple[Any, ...]]:
    """The last step of each phase, and the group's keys that rate and momentum go between."""
    first = float(part * total) - 1
    if three:
        return [(first, *_UP), (float(2 * part * total) - 2, *_BACK), (total - 1, *_OUT)]
    return [(first, *_UP), (total - 1, *_DOWN)]


def _total_steps(total: int | None, epochs: int | None, per_epoch: int | None) -> int:
    if total is None:
        if epochs is None or per_epoch is None:
            raise OptionError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        for name, number in (("epochs", epochs), ("steps_per_epoch", per_epoch)):
            if number <= 0 or not isinstance(number, int):
                raise OptionError(f"Expected positive integer {name}, but got {number}")
        return epochs * per_epoch
    if total <= 0 or not isinstance(total, int):
        raise OptionError(f"Expected positive integer total_steps, but got {total}")
    return total


@example("opt, 0.1, 0.5, step_size_up=2", [0.3, 0.5, 0.3], made="lr=1.0, momentum=0.9")
class CyclicLR(_WithMomentum):
    """Up from `base_lr` to `max_lr` in `step_size_up` steps, down in `step_size_down`, repeated.

    Reference: Smith, "Cyclical Learning Rates for Training Neural Networks", 2017.

    Args:
        base_lr: the lowest rate; a number, or one for each group.
        max_lr: the highest rate; a number, or one for each group.
        step_size_up: steps from the lowest to the highest. Default: 2000.
        step_size_down: steps down again. None is `step_size_up`.
        mode: "triangular", "triangular2" (halves the height with each cycle) or "exp_range" (scales
            it by gamma**step). Default: 'triangular'.
        scale_fn: replaces the mode: the height, between 0 and 1.
        scale_mode: whether `scale_fn` gets the "cycle" or the "iterations". Default: 'cycle'.
        cycle_momentum: momentum (or beta1) goes the other way. Default: True.
        base_momentum: the lowest momentum. Default: 0.8.
        max_momentum: the highest momentum. Default: 0.9.

    Raises:
        OptionError: another mode, or momentum is to be cycled where there is none.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Scale | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self._find_momentum(optimizer, cycle_momentum)
        groups = optimizer.param_groups
        lows = per_group("base_lr", base_lr, len(groups))
        if last_epoch == -1:
            for group, low in zip(groups, lows, strict=True):
                set_rate(group, low)
        self.max_lrs = per_group("max_lr", max_lr, len(groups))
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self._scale_fn, self.scale_mode = _scale(mode, gamma, scale_fn, scale_mode)
        self.mode = mode
        self.gamma = gamma
        if cycle_momentum:
            self.base_momentums = per_group("base_momentum", base_momentum, len(groups))
            self.max_momentums = per_group("max_momentum", max_momentum, len(groups))
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def scale_fn(self, x: float) -> float:
        """How high the cycle (or iteration) `x` is, between 0 and 1."""
        return self._scale_fn(x)

    def get_lr(self) -> list[Any]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rising = x <= self.step_ratio
        height = x / self.step_ratio if rising else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            limits = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, limits, strict=True):
                self._set_momentum(group, high - (high - low) * height)
        return [
            low + (high - low) * height
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]


def _scale(mode: str, gamma: float, given: Scale | None, scale_mode: str) -> tuple[Scale, str]:
    """What scales a cycle's height, and whether it is a function of cycles or iterations."""
    if given is not None:
        return given, scale_mode
    modes: dict[str, tuple[Scale, str]] = {
        "triangular": (lambda x: 1.0, "cycle"),
        "triangular2": (lambda x: 1 / (2.0 ** (x - 1)), "cycle"),
        "exp_range": (lambda x: gamma**x, "iterations"),
    }
    if mode not in modes:
        raise OptionError(f"mode is invalid and scale_fn is None: {mode!r}, not in {list(modes)}")
    return modes[mode]
