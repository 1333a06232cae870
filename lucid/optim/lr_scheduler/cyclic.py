"""Cycles between two learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid.docstrings import like
from lucid.ir.errors import OptionError
from lucid.optim.lr_scheduler.base import LRScheduler, check_optimizer, set_rate
from lucid.optim.lr_scheduler.cycles import per_group
from lucid.optim.optimizer import Optimizer

Scale = Callable[[float], float]


@like(LRScheduler)
class CyclicLR(LRScheduler):
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

    Example:
        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
        >>> scheduler = lucid.optim.lr_scheduler.CyclicLR(opt, 0.1, 0.5, step_size_up=2)
        >>> rates = []
        >>> for _ in range(3):
        ...     opt.step()
        ...     scheduler.step()
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        >>> rates
        [0.3, 0.5, 0.3]
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
        check_optimizer(optimizer)
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
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise OptionError("cycle_momentum needs an optimizer with momentum or betas")
            self.use_beta1 = "betas" in optimizer.defaults
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
            self._set_momenta(height)
        return [
            low + (high - low) * height
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def _set_momenta(self, height: float) -> None:
        limits = zip(self.base_momentums, self.max_momentums, strict=True)
        for group, (low, high) in zip(self.optimizer.param_groups, limits, strict=True):
            momentum = high - (high - low) * height
            if self.use_beta1:
                group["betas"] = (momentum, *group.raw("betas")[1:])
            else:
                group["momentum"] = momentum


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
