"""A schedule that goes by a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsFloat

from lucid.choices import check_choice
from lucid.compiler.recording import hooks
from lucid.ir.errors import OptionError
from lucid.optim.lr_scheduler.base import (
    LRScheduler,
    check_optimizer,
    per_group,
    rate_of,
    set_rate,
)
from lucid.optim.optimizer import Optimizer
from lucid.tensor.tensor import Tensor


class ReduceLROnPlateau(LRScheduler):
    """Multiply by `factor` when the metric has not become better for more than `patience` epochs.

    Args:
        mode: what is better: "min" or "max". Default: 'min'.
        factor: what the rate is multiplied with. Default: 0.1.
        patience: how many bad epochs are borne. Default: 10.
        threshold: by how much it must be better. Default: 0.0001.
        threshold_mode: whether that is "rel" (a part of the best) or "abs". Default: 'rel'.
        cooldown: epochs to wait after a reduction. Default: 0.
        min_lr: the lowest rate; a number, or one for each group. Default: 0.0.
        eps: smaller changes of the rate are not made. Default: 1e-08.

    Raises:
        OptionError: `factor` isn't below 1, or another mode.

    Example:
        >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1)
        >>> for loss in (3.0, 2.0, 2.0, 2.0):
        ...     scheduler.step(loss)
        >>> opt.param_groups[0]["lr"]
        0.1
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise OptionError("Factor should be < 1.0.")
        check_choice(mode, "mode", "ReduceLROnPlateau", ("min", "max"))
        check_choice(threshold_mode, "threshold_mode", "ReduceLROnPlateau", ("rel", "abs"))
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.min_lrs = per_group("min_lr", min_lr, len(optimizer.param_groups))
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._last_lr = self._rates()

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of an epoch's metric. In a compiled step that is done after each call.

        A step that reads the learning rate, or what this has noted, later on runs op by op.
        """
        if hooks.is_tracing():
            value = metrics.item() if isinstance(metrics, Tensor) else metrics
            changes = [(group, "lr") for group in self.optimizer.param_groups]
            own = [(vars(self), key) for key in vars(self)]
            hooks.tell(self._take, (value, epoch), "ReduceLROnPlateau.step()", changes + own)
        else:
            self._take(float(metrics), epoch)

    def _take(self, current: float, epoch: int | None) -> None:
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
        self._last_lr = self._rates()

    @property
    def in_cooldown(self) -> bool:
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
        if len(groups) != len(self.min_lrs):
            raise OptionError(
                f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)})\n"
                "hint: set scheduler.min_lrs to one rate per group"
            )
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            before = float(rate_of(group))
            after = max(before * self.factor, lowest)
            if before - after > self.eps:
                set_rate(group, after)
