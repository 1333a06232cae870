"""Schedules that multiply the learning rate, or go down a curve.

They compute each rate from the one before, so that several can be chained on one optimizer.

Args:
    total_iters: how many epochs it takes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

from lucid.functions.arguments import integer
from lucid.ir.errors import OptionError
from lucid.optim.lr_scheduler.base import LRScheduler, example
from lucid.optim.optimizer import Optimizer


class _ByFunction(LRScheduler):
    """A factor `lr_lambda(epoch)`; one function, or one per group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(lambdas) != count:
            raise OptionError(f"Expected {count} lr_lambdas, but got {len(lambdas)}")
        self.lr_lambdas: list[Any] = lambdas
        super().__init__(optimizer, last_epoch)

    def _times(self, rates: list[Any]) -> list[Any]:
        factors = (function(self.last_epoch) for function in self.lr_lambdas)
        return [rate * factor for rate, factor in zip(rates, factors, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """As for all, but of the functions only the attributes of callable objects."""
        state = super().state_dict()
        state["lr_lambdas"] = [
            None if isinstance(function, FunctionType) else dict(vars(function))
            for function in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As for all, but the functions stay, and callable objects get their attributes."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                vars(function).update(attributes)


@example("opt, lambda epoch: 1 / (epoch + 1)", [0.5, 0.3333, 0.25])
class LambdaLR(_ByFunction):
    """The initial rate times `lr_lambda(epoch)`; one function, or one per group.

    Args:
        lr_lambda: gets the epoch and gives the factor; one function, or one for each group.
    """

    def get_lr(self) -> list[Any]:
        return self._times(self.base_lrs)


@example("opt, lambda epoch: 0.5", [0.5, 0.25, 0.125])
class MultiplicativeLR(_ByFunction):
    """The rate before times `lr_lambda(epoch)`; one function, or one per group.

    Args:
        lr_lambda: gets the epoch and gives the factor; one function, or one for each group.
    """

    def get_lr(self) -> list[Any]:
        return self._rates() if self._is_initial else self._times(self._rates())


class _ByFactor(LRScheduler):
    """The initial rate times a factor of the epoch, which subclasses define."""

    _is_stepwise = False  # then a schedule that goes on after some epoch makes its step at once

    def _factor(self, epoch: int) -> float:
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        now = self._factor(self.last_epoch)
        before = self._factor(self.last_epoch - 1) if self.last_epoch else 1.0
        goes_on = self._is_initial and self.last_epoch and not self._is_stepwise
        if now == before or goes_on:
            return self._rates()
        return [rate * (now / before) for rate in self._rates()]

    def closed_form(self) -> list[Any]:
        return [base * self._factor(self.last_epoch) for base in self.base_lrs]


@example("opt, step_size=2", [1.0, 0.1, 0.1])
class StepLR(_ByFactor):
    """Multiply by `gamma` every `step_size` epochs.

    At epoch t the rate is `initial * gamma ** (t // step_size)`.

    Args:
        step_size: how many epochs a rate holds.
    """

    _is_stepwise = True

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = integer(step_size, "StepLR", "step_size")
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.gamma ** (epoch // self.step_size)


@example("opt, milestones=[1, 3]", [0.1, 0.1, 0.01])
class MultiStepLR(_ByFactor):
    """Multiply by `gamma` at each of the milestones.

    At epoch t the rate is `initial * gamma ** (milestones up to t)`.

    Args:
        milestones: epochs, increasing.
    """

    _is_stepwise = True

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), epoch)


@example("opt, gamma=0.5", [0.5, 0.25, 0.125])
class ExponentialLR(_ByFactor):
    """Multiply by `gamma` at each epoch.

    At epoch t the rate is `initial * gamma ** t`.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.gamma**epoch


@example("opt, factor=0.5, total_iters=2", [0.5, 1.0, 1.0])
class ConstantLR(_ByFactor):
    """The initial rate times `factor` for `total_iters` epochs, then the initial rate.

    Args:
        factor: what the rate is multiplied with. Default: 0.3333333333333333.

    Raises:
        OptionError: `factor` is outside of [0, 1].
    """

    _is_stepwise = True

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise OptionError(f"ConstantLR: factor must be in [0, 1], not {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return 1.0 if epoch >= self.total_iters else self.factor


@example("opt, total_iters=2", [0.6667, 1.0, 1.0])
class LinearLR(_ByFactor):
    """From `start_factor` to `end_factor` times the initial rate in `total_iters` equal steps.

    Args:
        start_factor: the factor at first. Default: 0.3333333333333333.
        end_factor: the factor at last. Default: 1.0.

    Raises:
        OptionError: a factor outside of [0, 1].
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise OptionError(f"LinearLR: start_factor must be in (0, 1], not {start_factor}")
        if not 0 <= end_factor <= 1:
            raise OptionError(f"LinearLR: end_factor must be in [0, 1], not {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        done = min(self.total_iters, epoch) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done


@example("opt, total_iters=4", [0.75, 0.5, 0.25])
class PolynomialLR(_ByFactor):
    """The initial rate times (1 - epoch / total_iters)^power, then 0.

    Args:
        power: the power of the fall; 1 is a line. Default: 1.0.
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        left: float = (1.0 - min(self.total_iters, epoch) / self.total_iters) ** self.power
        return left


@example("opt, T_max=4", [0.8536, 0.5, 0.1464])
class CosineAnnealingLR(LRScheduler):
    """Half a cosine wave from the initial rate to `eta_min` in `T_max` epochs, and back.

    At epoch t the rate is `eta_min + (initial - eta_min) * (1 + cos(pi * t / T_max)) / 2`.

    Reference: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017.

    Args:
        T_max: epochs of half a wave.
        eta_min: the lowest rate. Default: 0.0.
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self.closed_form()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            pairs = zip(self._rates(), self.base_lrs, strict=True)
            return [rate + (base - self.eta_min) * rise for rate, base in pairs]
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return [now / before * (rate - self.eta_min) + self.eta_min for rate in self._rates()]

    def closed_form(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]
