"""Averages of a model's weights over training, and the learning rate that goes with them.

Reference: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization",
2018.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import lucid
from lucid.autograd.modes import no_grad
from lucid.choices import check_choice
from lucid.device import check_device
from lucid.docstrings import like
from lucid.functions.border import constructors_at_border, explain_calls
from lucid.ir.errors import ArgumentError, OptionError, ShapeError
from lucid.nn.modules.batchnorm import _BatchNorm
from lucid.nn.modules.module import Module
from lucid.optim.groups import rate_of
from lucid.optim.lr_scheduler import LRScheduler
from lucid.optim.optimizer import Optimizer
from lucid.tensor.tensor import Tensor

Average = Callable[[Tensor, Tensor, Tensor], Tensor]
MultiAverage = Callable[[list[Tensor], list[Tensor], Tensor], None]


def get_swa_avg_fn() -> Average:
    """Return the function of the running mean, `average + (model - average) / (count + 1)`.

    It is the `avg_fn` that `AveragedModel` has by default; `count` is how many have been averaged.

    >>> mean = lucid.optim.swa_utils.get_swa_avg_fn()
    >>> mean(lucid.tensor(1.0), lucid.tensor(3.0), lucid.tensor(3))
    tensor(1.5000)
    """

    def mean(average: Tensor, model: Tensor, count: Tensor) -> Tensor:
        return average + (model - average) / (count + 1)

    return mean


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return the function of the exponential mean, `decay * average + (1 - decay) * model`.

    It is an `avg_fn` of `AveragedModel`.

    Args:
        decay: how much of the average stays, from 0 to 1.

    Raises:
        OptionError: another decay.

    >>> mean = lucid.optim.swa_utils.get_ema_avg_fn(0.75)
    >>> mean(lucid.tensor(1.0), lucid.tensor(3.0), lucid.tensor(5))
    tensor(1.5000)
    """
    if not 0.0 <= decay <= 1.0:
        raise OptionError(f"Invalid decay value {decay} provided. Please provide a value in [0, 1]")

    def mean(average: Tensor, model: Tensor, count: Tensor) -> Tensor:
        return decay * average + (1 - decay) * model

    return mean


@like(get_ema_avg_fn)
def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """Return the function of the exponential mean of two lists of tensors, written into the first.

    It is a `multi_avg_fn` of `AveragedModel`.

    >>> averages = [lucid.tensor(1.0)]
    >>> update = lucid.optim.swa_utils.get_ema_multi_avg_fn(0.75)
    >>> update(averages, [lucid.tensor(3.0)], lucid.tensor(5))
    >>> averages
    [tensor(1.5000)]
    """
    return _each(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> MultiAverage:
    """Return the function of the running mean of two lists of tensors, written into the first.

    It is a `multi_avg_fn` of `AveragedModel`.

    >>> averages = [lucid.tensor(1.0)]
    >>> update = lucid.optim.swa_utils.get_swa_multi_avg_fn()
    >>> update(averages, [lucid.tensor(3.0)], lucid.tensor(3))
    >>> averages
    [tensor(1.5000)]
    """
    return _each(get_swa_avg_fn())


def _each(mean: Average) -> MultiAverage:
    def update(averages: list[Tensor], models: list[Tensor], count: Tensor) -> None:
        for average, model in zip(averages, models, strict=True):
            average.copy_(mean(average, model, count))

    return update


_UPDATE = "AveragedModel.update_parameters"


def _alike(
    averages: Iterable[Tensor], models: Iterable[Tensor], what: str
) -> list[tuple[Tensor, Tensor]]:
    """The tensors of the two models in pairs. Raises `ShapeError` unless their shapes are equal."""
    averages, models = list(averages), list(models)
    kept, given = ([list(tensor.shape) for tensor in each] for each in (averages, models))
    if kept != given:
        raise ShapeError(f"{_UPDATE}: the copy has {what} of shapes {kept}, the model {given}")
    return list(zip(averages, models, strict=True))


class AveragedModel(Module):
    """A copy of a model with the average of its weights; calls go to the copy.

    Args:
        model: what is copied; `update_parameters` takes it, or one like it.
        device: where the copy is. Default: None, as the model.
        avg_fn: `(average, model's, count) -> new average` of a parameter. Default: None, the
            running mean.
        multi_avg_fn: `(averages, model's, count)`, which writes all of them.
        use_buffers: average the buffers too (integers without their fractions), else copy them.

    Attributes:
        n_averaged: how often `update_parameters` was called, i64; it may be called in a step.

    Raises:
        OptionError: both `avg_fn` and `multi_avg_fn` are given.

    >>> layer = lucid.nn.Linear(1, 1, bias=False)
    >>> average = lucid.optim.swa_utils.AveragedModel(layer)
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = lucid.nn.init.constant_(layer.weight, value)
    ...     average.update_parameters(layer)
    >>> average(lucid.ones(1)).detach()
    tensor([3.])
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: object = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise OptionError("AveragedModel: only one of avg_fn and multi_avg_fn can be given")
        self.module = copy.deepcopy(model).to(device)
        self.register_buffer("n_averaged", lucid.tensor(0, dtype=lucid.int64))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Let the weights of now take part in the average; the first ones are copied.

        Raises `ArgumentError` for what is no Module, `ShapeError` for a model whose parameters or
        buffers are others than those of the one that was copied.
        """
        if not isinstance(model, Module):
            raise ArgumentError(f"{_UPDATE}: takes a Module, not {type(model).__name__}")
        pairs = _alike(self.module.parameters(), model.parameters(), "parameters")
        buffers = _alike(self.module.buffers(), model.buffers(), "buffers")
        if self.use_buffers:
            pairs += buffers
        first = self.n_averaged == 0
        averages = [average.detach() for average, _ in pairs]
        tensors = [tensor.detach() for _, tensor in pairs]
        update = self.multi_avg_fn or _each(self.avg_fn or get_swa_avg_fn())
        update(averages, tensors, self.n_averaged)
        for average, tensor in zip(averages, tensors, strict=True):
            average.copy_(lucid.where(first, tensor, average))
        if not self.use_buffers:
            for kept, buffer in buffers:
                kept.copy_(buffer)
        self.n_averaged.add_(1)


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: object = None) -> None:
    """Compute the running statistics of batch norms anew, over the batches of a loader.

    They are the plain means over all batches; modes and momenta are as before at the end.

    Args:
        loader: batches; one that is a list or tuple is read for its first element.
        model: whose batch norms are meant; without any nothing happens.
        device: the CPU or None.

    Raises:
        OptionError: another device.

    >>> model = lucid.nn.BatchNorm1d(1)
    >>> batches = [lucid.tensor([[1.0], [3.0]]), lucid.tensor([[5.0], [7.0]])]
    >>> lucid.optim.swa_utils.update_bn(batches, model)
    >>> model.running_mean
    tensor([4.])
    """
    check_device(device, "update_bn")
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not layers:
        return
    was_training, momenta = model.training, [layer.momentum for layer in layers]
    model.train()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    try:
        for batch in loader:
            model(batch[0] if isinstance(batch, (list, tuple)) else batch)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Go to `swa_lr` within `anneal_epochs`, along a cosine or a line, and stay there.

    Args:
        optimizer: whose learning rates are set.
        swa_lr: the last rate, or a list with one for each group.
        anneal_epochs: how many steps of the scheduler it takes.
        anneal_strategy: "cos" or "linear".
        last_epoch: the number of the epoch to go on after. Default: -1, from the start.

    Raises:
        OptionError: another strategy, fewer than 0 epochs, or as many rates as there aren't groups.

    >>> optimizer = lucid.optim.SGD([lucid.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = lucid.optim.swa_utils.SWALR(optimizer, 0.5, 2, "linear")
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    ...     print(scheduler.get_last_lr())
    [0.75]
    [0.5]
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        check_choice(anneal_strategy, "anneal_strategy", "SWALR", ("cos", "linear"))
        if anneal_epochs < 0:
            raise OptionError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        rates = swa_lr if isinstance(swa_lr, (list, tuple)) else [swa_lr]
        groups = optimizer.param_groups
        if len(rates) not in (1, len(groups)):
            raise OptionError(f"swa_lr: {len(rates)} rates for {len(groups)} groups")
        for i, group in enumerate(groups):
            group["swa_lr"] = rates[i % len(rates)]
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How far the rate has gone to `swa_lr`, from 0 to 1."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self.anneal_strategy == "cos" else t

    def get_lr(self) -> list[Any]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        found = []
        for group in self.optimizer.param_groups:
            rate, target = rate_of(group), group.raw("swa_lr")
            start = target if before == 1 else (rate - before * target) / (1 - before)
            found.append(target * now + start * (1 - now))
        return found


explain_calls(sys.modules[__name__], dict(vars()), __name__)
constructors_at_border(dict(vars()), __name__)
