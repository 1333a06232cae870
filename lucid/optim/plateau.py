"""What `ReduceLROnPlateau` makes of a metric, in plain Python: traces follow it as users' code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsFloat

from lucid.optim.groups import set_rate
from lucid.optim.optimizer import Optimizer
from lucid.tensor.core import TensorCore


class Plateau:
    """The best metric so far, for how long there was none, and what follows for the rates."""

    optimizer: Optimizer
    mode: str
    threshold_mode: str
    factor: float
    threshold: float
    eps: float
    best: float
    patience: int
    cooldown: int
    last_epoch: int
    num_bad_epochs: int
    cooldown_counter: int
    min_lrs: list[Any]
    default_min_lr: Any
    _last_lr: list[Any]
    _rates: Callable[[], list[Any]]
    _check_count: Callable[[int], None]
    _is_deferred: Callable[[SupportsFloat, int | None], bool]

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:
        """Take note of an epoch's metric. In a compiled step that is done after each call.

        Where the step uses later what this sets, it is done at once, and branches on the metric.
        """
        if not self._is_deferred(metrics, epoch):
            self._take(metrics, epoch)

    def _take(self, metric: SupportsFloat, epoch: int | None) -> None:
        current = float(metric)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        groups, rates = self.optimizer.param_groups, self._rates()
        self._last_lr = [
            rate if isinstance(rate, TensorCore) else group["lr"]
            for group, rate in zip(groups, rates, strict=True)
        ]

    @property
    def in_cooldown(self) -> bool:
        """Whether it waits after a reduction."""
        return self.cooldown_counter > 0

    def _is_better(self, current: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "rel":
            limit = self.best * (1.0 + sign * self.threshold)
        else:
            limit = self.best + sign * self.threshold
        return current > limit if self.mode == "max" else current < limit

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if self.default_min_lr is not None:
            self.min_lrs = [self.default_min_lr] * len(groups)
        self._check_count(len(self.min_lrs))
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            before = float(group["lr"])
            after = max(before * self.factor, lowest)
            if before - after > self.eps:
                set_rate(group, after)
