"""Schedules made of schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from lucid.ir.errors import OptionError
from lucid.optim.lr_scheduler.base import LRScheduler, set_rate
from lucid.optim.lr_scheduler.plateau import ReduceLROnPlateau
from lucid.optim.optimizer import Optimizer


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
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(_Composed):
    """Steps several schedulers at once; their factors multiply.

    Raises `OptionError` for none, for schedulers of other optimizers, and for `ReduceLROnPlateau`.

    Args:
        schedulers: of the same optimizer.
        optimizer: that optimizer; None takes it from the schedulers.

    Example:
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
            scheduler._advance(epoch)
        self._last_lr = self._rates()


class SequentialLR(_Composed):
    """One scheduler after the other; `milestones` are the epochs at which the next takes over.

    Args:
        schedulers: of the same optimizer, in their order.
        milestones: epochs, increasing.

    Raises:
        OptionError: another number of milestones, or schedulers of other optimizers.

    Example:
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
        scheduler._advance(0 if begins else None)
        self._last_lr = scheduler.get_last_lr()
