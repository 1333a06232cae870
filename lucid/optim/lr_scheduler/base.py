"""The base of learning-rate schedules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from lucid.autograd.modes import no_grad
from lucid.compiler.recording import hooks
from lucid.compiler.results.replayed_effects import ReplayedEffect
from lucid.docstrings import like
from lucid.ir.errors import ArgumentError, MissingRuleError, OptionError
from lucid.ir.location import warn
from lucid.ir.whose_code import is_librarys
from lucid.nn.errors import NamingError
from lucid.nn.naming import trace_name, variable_name
from lucid.optim.groups import ParamGroup
from lucid.optim.optimizer import Optimizer
from lucid.tensor.core import constant
from lucid.tensor.tensor import Tensor
from lucid.tensor.writing import write_

S = TypeVar("S", bound="type[LRScheduler]")


def check_optimizer(optimizer: object) -> None:
    """Raise `ArgumentError` unless it is an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(
            f"{type(optimizer).__name__} is not an Optimizer\nhint: pass the optimizer first"
        )


def rate_of(group: ParamGroup, key: str = "lr") -> Any:
    """A group's learning rate; of one that is a tensor, a copy."""
    rate = group.raw(key)
    return rate.detach().clone() if isinstance(rate, Tensor) else rate


def set_rate(group: ParamGroup, rate: Any) -> None:
    """Set a group's learning rate; one that is a tensor is written in place."""
    present = group.raw("lr")
    if isinstance(present, Tensor):
        with no_grad():
            write_(present, rate if isinstance(rate, Tensor) else constant(rate, present.dtype))
    else:
        group["lr"] = rate


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

    Example:
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
            self._advance(None)
        finally:
            self._is_initial = False

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

        What it sets may be read later in the step, where the class is one of the library's.

        epoch: deprecated; the epoch to go to.
        """
        if epoch is not None:
            warn(
                "The epoch parameter in `scheduler.step()` is deprecated. Please use "
                "`scheduler.step()` to step the scheduler.",
                UserWarning,
            )
        if self._is_outside():
            name = trace_name(self, lambda: variable_name(self))
            groups, own = self.optimizer.param_groups, [*map(vars, self._parts())]
            is_foreseen = all(is_librarys(type(part)) for part in self._parts())
            changes = [(attributes, key) for attributes in own for key in attributes]
            changes += [(group, key) for group in groups for key in self._sets if key in group]
            owners = [*own, *groups]
            anew = ("_last_lr", *self._sets)
            call = partial(self._advance, epoch)
            effect = ReplayedEffect(call, f"{name}.step()", owners, anew, is_foreseen)
            hooks.after_call(effect, changes)
        else:
            self._advance(epoch)

    def _parts(self) -> Iterator[LRScheduler]:
        """This scheduler, and those inside of it."""
        yield self

    def _advance(self, epoch: int | None) -> None:
        """Do what `step` means, now."""
        if self._step_count == 1 and self.optimizer._is_known_unused():
            warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first value "
                "of the schedule is skipped\nhint: call opt.step() first, then scheduler.step()"
            )
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = epoch
            rates = self.closed_form()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = self._rates()

    def closed_form(self) -> list[Any]:
        """The learning rates for `last_epoch`, by a formula from those at the start."""
        return self.get_lr()

    def _rates(self) -> list[Any]:
        return [rate_of(group) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        hooks.watch_attributes(self, lambda: trace_name(self, lambda: variable_name(self)))
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; the optimizer's own state is loaded by itself."""
        vars(self).update(state_dict)


def example(arguments: str, rates: list[float], made: str = "lr=1.0") -> Callable[[S], S]:
    """Show in a schedule's docstring the first rates that it sets; what it lacks is the base's.

    arguments: of the schedule. made: those of the optimizer.
    """

    def complete(cls: S) -> S:
        lines = [
            f">>> opt = lucid.optim.SGD([lucid.ones(1, requires_grad=True)], {made})",
            f">>> scheduler = lucid.optim.lr_scheduler.{cls.__name__}({arguments})",
            ">>> rates = []",
            f">>> for _ in range({len(rates)}):",
            "...     opt.step()",
            "...     scheduler.step()",
            "...     rates.append(round(scheduler.get_last_lr()[0], 4))",
            ">>> rates",
            repr(rates),
        ]
        own = inspect.cleandoc(cls.__doc__ or "")
        cls.__doc__ = "\n    ".join([f"{own}\n\nExample:", *lines])
        return like(LRScheduler)(cls)

    return complete
