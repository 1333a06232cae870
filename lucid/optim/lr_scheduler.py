"""Learning-rate schedules; inside a compiled step their `step()` takes effect after each call.

Args:
    optimizer: whose groups' rate is set.
    last_epoch: the epoch to go on after; -1 begins.
    gamma: the factor.
    total_iters: how many epochs it takes.
    lr_lambda: gets the epoch and gives the factor; one function, or one for each group.
    milestones: epochs, increasing.
    factor: what the rate is multiplied with.
    eta_min: the lowest rate.
    max_lr: the highest rate; a number, or one for each group.
    base_momentum: the lowest momentum.
    max_momentum: the highest momentum.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, ClassVar, SupportsFloat, TypeVar

from lucid.choices import check_choice
from lucid.compiler.recording import hooks
from lucid.compiler.results.replayed_effects import ReplayedEffect
from lucid.docstrings import ending, like
from lucid.functions.arguments import integer, kind_of
from lucid.functions.border import constructors_at_border
from lucid.ir.errors import ArgumentError, MissingRuleError, OptionError
from lucid.ir.location import warn
from lucid.ir.whose_code import is_librarys
from lucid.nn.naming import NamingError, trace_name, variable_name
from lucid.optim.groups import rate_of, set_rate
from lucid.optim.optimizer import Optimizer
from lucid.optim.plateau import Plateau
from lucid.tensor.tensor import Tensor

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

S = TypeVar("S", bound="type[LRScheduler]")


def check_optimizer(optimizer: object) -> None:
    """Raise `ArgumentError` unless it is an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(
            f"{optimizer.__class__.__name__} is not an Optimizer\nhint: pass the optimizer first"
        )


def per_group(name: str, value: Any, count: int) -> list[Any]:
    """One value for each of `count` groups: a list of them, or one for all."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise OptionError(f"expected {count} values for {name}, got {len(value)}")
    return list(value)


class LRScheduler:
    """Sets the learning rate of an optimizer's groups as epochs go by; subclasses define `get_lr`.

    Inside a compiled step, `step()` takes effect after each call of it; the learning rate is an
    input of the step, so it is never traced again for that. What it sets may be read later in the
    same step where the class is one of the library's; of others that is an error.

    Attributes:
        last_epoch: how often `step` was called.
        base_lrs: each group's learning rate at the start.

    Raises:
        NamingError: `last_epoch` isn't -1, and the groups have no "initial_lr".

    >>> class Halving(lucid.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [lr * 0.5**self.last_epoch for lr in self.base_lrs]
    >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = Halving(opt)
    >>> for _ in range(2):
    ...     opt.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.25]
    """

    optimizer: Optimizer
    last_epoch: int
    base_lrs: list[Any]
    _step_count: int
    _is_initial: bool = False
    _goes_to_epochs: ClassVar = False  # whether `step(epoch)` is how it is used
    _sets: tuple[str, ...] = ("lr",)
    _last_lr: list[Any]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for position, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", rate_of(group))
            elif "initial_lr" not in group:
                raise NamingError(
                    f"param 'initial_lr' is not specified in param_groups[{position}] when "
                    "resuming scheduler with last_epoch >= 0.\n"
                    "hint: load the optimizer's state dict first, or leave last_epoch out"
                )
        self.base_lrs = [rate_of(group, "initial_lr") for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._start()

    def _start(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self._go_on()
        finally:
            self._is_initial = False

    def _go_on(self, epoch: int | None = None) -> None:
        """Do now what `step` means, which a class of the user's may say."""
        owner = next(cls for cls in type(self).__mro__ if "step" in vars(cls))
        if is_librarys(owner):
            self._advance(epoch)
        else:
            self.step() if epoch is None else self.step(epoch)

    def get_lr(self) -> list[Any]:
        """The learning rates for `last_epoch`, from those of now. Users want `get_last_lr`."""
        raise MissingRuleError(f"{type(self).__name__} must define get_lr()")

    def get_last_lr(self) -> list[Any]:
        """The learning rates that were set last, one per group."""
        if self._is_outside():
            name = trace_name(self, lambda: variable_name(self))
            return list(hooks.live(self.__dict__, "_last_lr", f"{name}.get_last_lr()"))
        return self._last_lr

    def _is_outside(self) -> bool:
        """Whether a trace runs that did not make the optimizer."""
        return any(group.is_input() for group in self.optimizer.param_groups)

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch; inside a compiled step, after each call of it.

        What it sets may be read later in the step; of a class of the user's, only numbers.

        epoch: the epoch to go to, or a part of one; deprecated but for warm restarts.
        """
        if epoch is not None and not self._goes_to_epochs:
            warn(
                "The epoch parameter in `scheduler.step()` is deprecated. Please use "
                "`scheduler.step()` to step the scheduler.",
                UserWarning,
            )
        groups, own = self.optimizer.param_groups, [*map(vars, self._parts())]
        call, owners = partial(self._advance, epoch), [*own, *groups]
        if self._is_outside():
            name = trace_name(self, lambda: variable_name(self))
            is_foreseen = all(is_librarys(type(part)) for part in self._parts())
            changes = [(attributes, key) for attributes in own for key in attributes]
            changes += [(group, key) for group in groups for key in self._sets if key in group]
            anew = ("_last_lr", *self._sets)
            effect = ReplayedEffect(call, f"{name}.step()", owners, anew, is_foreseen)
            hooks.foreseen().add(effect, changes)
        else:
            call()

    def _parts(self) -> Iterator[LRScheduler]:
        """This scheduler, and those inside of it."""
        yield self

    def _advance(self, epoch: Any) -> None:
        """Do what `step` means, now; what it raises leaves the scheduler as it was."""
        before = dict(vars(self))
        try:
            rates = self._move(epoch)
            self._check_count(len(rates))
        except BaseException:
            vars(self).update(before)
            raise
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = self._rates()

    def _check_count(self, count: int, by_lists: bool = True) -> None:
        """Raise `OptionError` unless there are so many groups; some may have been added since.

        by_lists: the scheduler's public lists say what each group's rate is made of.
        """
        groups = len(self.optimizer.param_groups)
        if count == groups:
            return
        lists = [
            f"scheduler.{name}"
            for name, value in vars(self).items()
            if by_lists and name[0] != "_" and isinstance(value, list) and len(value) < groups
        ]
        append = f"append its entries to {', '.join(lists)}, or " if lists else ""
        raise OptionError(
            f"{type(self).__name__}: the optimizer has {groups} param groups, the scheduler "
            f"learning rates for {count}\n"
            f"hint: after add_param_group {append}make the scheduler anew"
        )

    def _move(self, epoch: Any) -> list[Any]:
        """Go to an epoch, None is the next, and return its rates."""
        if self._step_count == 1 and self.optimizer._is_known_unused():
            warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first value "
                "of the schedule is skipped\nhint: call opt.step() first, then scheduler.step()"
            )
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            return self.get_lr()
        self.last_epoch = epoch
        return self._get_closed_form_lr()

    def _get_closed_form_lr(self) -> list[Any]:
        """The learning rates for `last_epoch`, by a formula from those at the start."""
        return self.get_lr()

    def _rates(self) -> list[Any]:
        return [rate_of(group) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        hooks.watch_attributes(self, lambda: trace_name(self, lambda: variable_name(self)))
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; the optimizer's own state is loaded by itself.

        An error leaves all as it was.

        Raises `ArgumentError` for what isn't a dict of attributes, each of the kind that it has.
        """
        self._check_state(state_dict)
        vars(self).update(state_dict)

    def _check_state(self, state_dict: object) -> None:
        """Raise `ArgumentError` for what isn't a scheduler's state."""
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"load_state_dict: a dict is needed, not {kind_of(state_dict)}")
        for key, value in state_dict.items():
            if not isinstance(key, str) or key == "optimizer":
                raise ArgumentError(f"load_state_dict: {key!r} is no attribute of the state")
            present = vars(self).get(key, getattr(type(self), key, None))
            for kind in _KINDS:
                if isinstance(present, kind) and not isinstance(value, kind):
                    kinds = f"{kind_of(value)} in the saved state and {kind_of(present)} here"
                    raise ArgumentError(f"load_state_dict: {key!r} is {kinds}")


# Of an attribute, the saved value is of the kind that the present one is of.
_KINDS: tuple[Any, ...] = (SupportsFloat, str, (list, tuple), Mapping, Callable)


def _states_of_parts(state_dict: Any, key: str, count: int) -> Sequence[Any]:
    """The saved states of a scheduler's parts. Raises where they aren't so many."""
    if key not in state_dict:
        raise ArgumentError(f"load_state_dict: a dict with {key!r} is needed")
    states: Sequence[Any] = state_dict[key]
    if len(states) != count:
        raise OptionError(
            f"load_state_dict: {key!r} has {len(states)} entries, and the scheduler {count}"
        )
    return states


def example(arguments: str, rates: list[float], made: str = "lr=1.0") -> Callable[[S], S]:
    """Show in a schedule's docstring the first rates that it sets; what it lacks is the base's.

    arguments: of the schedule. made: those of the optimizer.
    """

    def complete(cls: S) -> S:
        lines = (
            f">>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], {made})",
            f">>> scheduler = lucid.optim.lr_scheduler.{cls.__name__}({arguments})",
            ">>> rates = []",
            f">>> for _ in range({len(rates)}):",
            "...     opt.step()",
            "...     scheduler.step()",
            "...     rates.append(round(scheduler.get_last_lr()[0], 4))",
            ">>> rates",
            repr(rates),
        )
        return like(LRScheduler)(ending(cls, *lines))

    return complete


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
        self._check_count(min(len(rates), len(self.lr_lambdas)))
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
        self._check_state(state_dict)
        vars(self).update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                vars(function).update(attributes)

    def _check_state(self, state_dict: object) -> None:
        super()._check_state(state_dict)
        states = _states_of_parts(state_dict, "lr_lambdas", len(self.lr_lambdas))
        for function, state in zip(self.lr_lambdas, states, strict=True):
            is_fit = isinstance(state, dict) and hasattr(function, "__dict__")
            if state is not None and not is_fit:
                kind = f"attributes of functions, not {kind_of(state)}"
                raise ArgumentError(f"load_state_dict: 'lr_lambdas' lists None or {kind}")


@example("opt, lambda epoch: 1 / (epoch + 1)", [0.5, 0.3333, 0.25])
class LambdaLR(_ByFunction):
    """The initial rate times `lr_lambda(epoch)`; one function, or one per group."""

    def get_lr(self) -> list[Any]:
        return self._times(self.base_lrs)


@example("opt, lambda epoch: 0.5", [0.5, 0.25, 0.125])
class MultiplicativeLR(_ByFunction):
    """The rate before times `lr_lambda(epoch)`; one function, or one per group."""

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

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self._factor(self.last_epoch) for base in self.base_lrs]


@example("opt, step_size=2", [1.0, 0.1, 0.1])
class StepLR(_ByFactor):
    """Multiply by `gamma` every `step_size` epochs.

    At epoch t the rate is `initial * gamma ** (t // step_size)`.

    Args:
        step_size: how many epochs a rate holds; a whole number, which may be a float.
    """

    _is_stepwise = True

    def __init__(
        self, optimizer: Optimizer, step_size: float, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        is_whole = type(step_size) is float and step_size.is_integer()
        self.step_size = integer(int(step_size) if is_whole else step_size, "StepLR", "step_size")
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return self.gamma ** (epoch // self.step_size)


@example("opt, milestones=[1, 3]", [0.1, 0.1, 0.01])
class MultiStepLR(_ByFactor):
    """Multiply by `gamma` at each of the milestones.

    At epoch t the rate is `initial * gamma ** (milestones up to t)`.
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
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        return 1.0 if epoch >= self.total_iters else self.factor


@example("opt, total_iters=2", [0.6667, 1.0, 1.0])
class LinearLR(_ByFactor):
    """From `start_factor` to `end_factor` times the initial rate in `total_iters` equal steps.

    Args:
        start_factor: the factor at first.
        end_factor: the factor at last.

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
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        done = min(self.total_iters, epoch) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done


@example("opt, total_iters=4", [0.75, 0.5, 0.25])
class PolynomialLR(_ByFactor):
    """The initial rate times (1 - epoch / total_iters)^power, then 0.

    Args:
        power: the power of the fall; 1 is a line.
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
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

    Raises:
        OptionError: `T_max` is 0.
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not T_max:
            raise OptionError("CosineAnnealingLR: T_max must not be 0")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            self._check_count(len(self.base_lrs))
            pairs = zip(self._rates(), self.base_lrs, strict=True)
            return [rate + (base - self.eta_min) * rise for rate, base in pairs]
        now = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        before = 1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        return [now / before * (rate - self.eta_min) + self.eta_min for rate in self._rates()]

    def _get_closed_form_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


Scale = Callable[[float], float]


@example("opt, T_0=2", [0.5, 1.0, 0.5])
class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine wave down to `eta_min`, over and over; each period `T_mult` times as long.

    Reference: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017.

    Args:
        T_0: epochs of the first period.
        T_mult: how much longer each period is than the one before.

    Raises:
        OptionError: a period below 1.
    """

    _goes_to_epochs = True

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
        self.T_mult, self.eta_min = T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def _move(self, epoch: float | None) -> list[Any]:
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
        return self.get_lr()

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
        self.optimizer, self.cycle_momentum = optimizer, cycle_momentum
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
        total_steps: how many steps there are. None is `epochs * steps_per_epoch`.
        epochs: beside `steps_per_epoch`.
        steps_per_epoch: beside `epochs`.
        pct_start: the part of the steps that goes up.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: momentum (or beta1) goes the other way, between `base_momentum` and
            `max_momentum`.
        div_factor: the first rate is max_lr over this.
        final_div_factor: the last rate is the first one over this.
        three_phase: go down to the start symmetrically, then on to the end.

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
        groups = self.optimizer.param_groups
        self._check_count(sum("max_lr" in group for group in groups), by_lists=False)
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
        step_size_up: steps from the lowest to the highest.
        step_size_down: steps down again. None is `step_size_up`.
        mode: "triangular", "triangular2" (halves the height with each cycle) or "exp_range" (scales
            it by gamma**step).
        scale_fn: replaces the mode: the height, between 0 and 1.
        scale_mode: whether `scale_fn` gets the "cycle" or the "iterations".
        cycle_momentum: momentum (or beta1) goes the other way.

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
        if scale_fn is None and mode not in _SCALES:
            listed = f"{mode!r}, not in {list(_SCALES)}"
            raise OptionError(f"mode is invalid and scale_fn is None: {listed}")
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else _SCALES[mode][1]
        self.mode, self.gamma = mode, gamma
        if cycle_momentum:
            self.base_momentums = per_group("base_momentum", base_momentum, len(groups))
            self.max_momentums = per_group("max_momentum", max_momentum, len(groups))
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def scale_fn(self, x: float) -> float:
        """How high the cycle (or iteration) `x` is, between 0 and 1."""
        own = self._scale_fn_custom
        return _SCALES[self.mode][0](self.gamma, x) if own is None else own(x)

    def state_dict(self) -> dict[str, Any]:
        """As for all, but without a `scale_fn` that is a function, which no file keeps."""
        state = super().state_dict()
        if isinstance(self._scale_fn_custom, FunctionType):
            del state["_scale_fn_custom"]
        return state

    def get_lr(self) -> list[Any]:
        self._check_count(min(len(self.base_lrs), len(self.max_lrs)))
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


# What scales a cycle's height, by gamma and x, and whether x counts cycles or iterations.
_SCALES: dict[str, tuple[Callable[[float, float], float], str]] = {
    "triangular": (lambda gamma, x: 1.0, "cycle"),
    "triangular2": (lambda gamma, x: 1 / (2.0 ** (x - 1)), "cycle"),
    "exp_range": (lambda gamma, x: gamma**x, "iterations"),
}


_NOTED = ("last_epoch", "best", "num_bad_epochs", "cooldown_counter", "_last_lr", "min_lrs")


class ReduceLROnPlateau(Plateau, LRScheduler):  # type: ignore[misc]  # another `step`
    """Multiply by `factor` when the metric has not become better for more than `patience` epochs.

    Args:
        mode: what is better: "min" or "max".
        patience: how many bad epochs are borne.
        threshold: by how much it must be better.
        threshold_mode: whether that is "rel" (a part of the best) or "abs".
        cooldown: epochs to wait after a reduction.
        min_lr: the lowest rate; a number, or one for each group.
        eps: smaller changes of the rate are not made.

    Raises:
        OptionError: `factor` isn't below 1, or another mode.

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
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = per_group("min_lr", min_lr, len(optimizer.param_groups))
        self.mode, self.factor, self.patience, self.threshold = mode, factor, patience, threshold
        self.threshold_mode, self.cooldown, self.eps = threshold_mode, cooldown, eps
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._last_lr = self._rates()

    def _is_deferred(self, metrics: SupportsFloat, epoch: int | None) -> bool:
        if not hooks.is_tracing():
            return False
        groups, what = self.optimizer.param_groups, "ReduceLROnPlateau.step()"
        changes = [(group, "lr") for group in groups] + [(vars(self), key) for key in _NOTED]
        has_numbers = not any(isinstance(group.raw("lr"), Tensor) for group in groups)
        metric = metrics.item() if isinstance(metrics, Tensor) else metrics
        return hooks.foreseen().tell(self._take, (metric, epoch), what, changes, has_numbers)


class _Composed(LRScheduler):
    """A scheduler with others inside."""

    _schedulers: list[Any]

    def _take(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        name = type(self).__name__
        if not schedulers:
            raise OptionError(f"{name} expects at least one scheduler, but got no scheduler.")
        for position, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise OptionError(f"{name}: ReduceLROnPlateau, number {position}, needs a metric")
            if scheduler.optimizer is not optimizer:
                raise OptionError(f"{name}: number {position} belongs to another optimizer")
        self.optimizer = optimizer
        self._schedulers = list(schedulers)

    def _parts(self) -> Iterator[LRScheduler]:
        yield self
        for scheduler in self._schedulers:
            yield from scheduler._parts()

    def state_dict(self) -> dict[str, Any]:
        """As for all, with the state dicts of the schedulers inside."""
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As for all; each scheduler inside loads its own."""
        self._check_state(state_dict)
        vars(self).update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)

    def _check_state(self, state_dict: object) -> None:
        super()._check_state(state_dict)
        states = _states_of_parts(state_dict, "_schedulers", len(self._schedulers))
        for scheduler, state in zip(self._schedulers, states, strict=True):
            scheduler._check_state(state)


class ChainedScheduler(_Composed):
    """Steps several schedulers at once; their factors multiply.

    Raises `OptionError` for none, for schedulers of other optimizers, and for `ReduceLROnPlateau`.

    Args:
        schedulers: of the same optimizer.
        optimizer: that optimizer; None takes it from the schedulers.

    >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=1.0)
    >>> warmup = lucid.optim.lr_scheduler.LinearLR(opt, 0.5, total_iters=2)
    >>> decay = lucid.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    >>> scheduler = lucid.optim.lr_scheduler.ChainedScheduler([warmup, decay])
    >>> rates = []
    >>> for _ in range(4):
    ...     opt.step()
    ...     scheduler.step()
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    >>> rates
    [0.375, 0.25, 0.125, 0.0625]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        owner = optimizer or (schedulers[0].optimizer if schedulers else None)
        self._take(owner, schedulers)  # type: ignore[arg-type]  # no schedulers: refused there
        self._last_lr = self._rates()

    def _advance(self, epoch: int | None) -> None:
        for scheduler in self._schedulers:
            scheduler._go_on(epoch)
        self._last_lr = self._rates()


class SequentialLR(_Composed):
    """One scheduler after the other; `milestones` are the epochs at which the next takes over.

    Args:
        schedulers: of the same optimizer, in their order.

    Raises:
        OptionError: another number of milestones, or schedulers of other optimizers.

    >>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], lr=1.0)
    >>> warmup = lucid.optim.lr_scheduler.LinearLR(opt, 0.5, total_iters=2)
    >>> decay = lucid.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    >>> scheduler = lucid.optim.lr_scheduler.SequentialLR(opt, [warmup, decay], milestones=[2])
    >>> rates = []
    >>> for _ in range(4):
    ...     opt.step()
    ...     scheduler.step()
    ...     rates.append(round(scheduler.get_last_lr()[0], 4))
    >>> rates
    [0.75, 1.0, 0.5, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self._take(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            wanted = f"{len(schedulers)} schedulers need {len(schedulers) - 1} milestones"
            raise OptionError(f"SequentialLR: {wanted}, not {len(milestones)}")
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        for scheduler in self._innermost(self._schedulers):
            scheduler.last_epoch -= 1
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._start()
        self._last_lr = first.get_last_lr()

    @classmethod
    def _innermost(cls, schedulers: Sequence[Any]) -> list[Any]:
        """The schedulers that are not made of others; making each has stepped it once."""
        found = []
        for scheduler in schedulers:
            inner = getattr(scheduler, "_schedulers", None)
            found.extend(cls._innermost(inner) if inner else [scheduler])
        return found

    def _advance(self, epoch: int | None) -> None:
        self.last_epoch += 1
        current = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[current]
        begins = current > 0 and self._milestones[current - 1] == self.last_epoch
        scheduler._go_on(0 if begins else None)
        self._last_lr = scheduler.get_last_lr()


_LRScheduler = LRScheduler  # the name that older programs import

constructors_at_border(dict(vars()), "lucid.optim.")
