"""Losses on real numbers and probabilities, in the input's shape and then reduced.

Args:
    weight: factors of the losses; None for 1.
"""

from __future__ import annotations

import math

from lucid.autograd.native import composite
from lucid.docstrings import like, maps
from lucid.functions.checks import require
from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.location import warn
from lucid.nn.functional.activation import logsigmoid
from lucid.tensor.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "gaussian_nll_loss",
    "huber_loss", "kl_div", "l1_loss", "mse_loss", "poisson_nll_loss", "smooth_l1_loss",
]  # fmt: skip

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> None:
    """Raise `OptionError` unless `reduction` is "none", "mean" or "sum"."""
    if reduction not in REDUCTIONS:
        raise OptionError(
            f"{reduction} is not a valid value for reduction\nhint: it is 'none', 'mean' or 'sum'"
        )


def reduce_loss(loss: Tensor, reduction: str) -> Tensor:
    """Return the loss as it is, its mean, or its sum. The mean of nothing is NaN."""
    check_reduction(reduction)
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def warn_if_broadcast(name: str, input: Tensor, target: Tensor) -> None:
    """Warn when the shapes differ: (n, 1) against (n,) is a loss over n * n pairs."""
    if input.shape != target.shape:
        warn(
            f"{name}: using a target of size {list(target.shape)} that is different to the input "
            f"size {list(input.shape)}. This will likely lead to incorrect results due to "
            "broadcasting. Please ensure they have the same size.",
            UserWarning,
        )


_LOG_2_PI = math.log(2 * math.pi)

_SMALLEST_LOG = -100.0  # a loss stays finite for a probability of 0
_SMALLEST_VARIANCE = 1e-12


@maps("[1.0, 3.0]", "lucid.zeros(2)", "tensor(5.)")
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """(input - target)^2, reduced.

    Shapes broadcast, with a warning where they differ. The result is a number, but for reduction
    "none".

    Args:
        target: what `input` is compared with.
        weight: factors of the losses, of input's shape, by whose sum a mean divides; None for 1.

    Raises:
        ShapeError: `weight` has another shape.
    """
    warn_if_broadcast("mse_loss", input, target)
    _check_weight("mse_loss", weight, input)
    return _mse_loss(input, target, weight, reduction)


@composite
def _mse_loss(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    difference = input - target
    return _weighted(difference * difference, weight, reduction)


@like(mse_loss)
@maps("[1.0, 3.0]", "lucid.zeros(2)", "tensor(2.)")
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None
) -> Tensor:
    """|input - target|, reduced."""
    warn_if_broadcast("l1_loss", input, target)
    _check_weight("l1_loss", weight, input)
    # The derivative asks for the difference alone: who writes the input afterwards may.
    return _size(input - target, weight, reduction)


@composite
def _size(difference: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    return _weighted(difference.abs(), weight, reduction)


def _check_weight(name: str, weight: Tensor | None, input: Tensor) -> None:
    if weight is not None and weight.shape != input.shape:
        raise ShapeError(f"{name}: weight and input must have the same size")


def _weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return reduce_loss(loss, reduction)
    total = reduce_loss(loss * weight, "sum" if reduction == "mean" else reduction)
    return total / weight.sum() if reduction == "mean" else total


@maps("[0.5, 3.0]", "lucid.zeros(2)", 'reduction="none"', "[0.1250, 2.5000]")
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, for d = input - target; reduced.

    It grows like a square for small differences, and like a line for large ones.

    Args:
        target: what `input` is compared with.
        beta: where squares turn to a line; 0 is `l1_loss`.

    Raises:
        OptionError: `beta` is negative.
    """
    warn_if_broadcast("smooth_l1_loss", input, target)
    if beta < 0.0:
        raise OptionError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0.0:
        return l1_loss(input, target, reduction)
    return _smooth_l1_loss(input, target, reduction, beta)


@composite
def _smooth_l1_loss(input: Tensor, target: Tensor, reduction: str, beta: float) -> Tensor:
    distance = (input - target).abs()
    near = distance * distance * (0.5 / beta)
    return reduce_loss(where(distance < beta, near, distance - 0.5 * beta), reduction)


@like(smooth_l1_loss)
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), for d = input - target; reduced.

    Args:
        delta: where squares turn to a line.

    Raises:
        OptionError: `delta` isn't positive.
    """
    warn_if_broadcast("huber_loss", input, target)
    if delta <= 0.0:
        raise OptionError("huber_loss does not support non-positive values for delta.")
    return _huber_loss(input, target, reduction, delta, weight)


@composite
def _huber_loss(
    input: Tensor, target: Tensor, reduction: str, delta: float, weight: Tensor | None
) -> Tensor:
    distance = (input - target).abs()
    far = (distance - 0.5 * delta) * delta
    loss = where(distance <= delta, distance * distance * 0.5, far)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def _bce_loss_vjp(
    g: Tensor, p: Tensor, target: Tensor, needs: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    variance = ((1.0 - p) * p).clamp(min=_SMALLEST_VARIANCE)
    on, off = _clamped_logs(p) if needs[1] else (p, p)
    return (g * (p - target) / variance if needs[0] else None, g * (off - on) if needs[1] else None)


@with_gradient(_bce_loss_vjp)
def _bce_loss(p: Tensor, target: Tensor) -> Tensor:
    """-(t log p + (1 - t) log(1 - p)), each logarithm at least -100."""
    on, off = _clamped_logs(p)
    return (target - 1.0) * off - target * on


def _clamped_logs(p: Tensor) -> tuple[Tensor, Tensor]:
    """log p and log(1 - p), not below -100."""
    return p.log().clamp(min=_SMALLEST_LOG), (-p).log1p().clamp(min=_SMALLEST_LOG)


@maps("[0.5, 0.9]", "[1.0, 1.0]", "tensor(0.3993)")
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Cross entropy of probabilities with targets in [0, 1]; logarithms are clamped at -100.

    It is -(target * log(input) + (1 - target) * log(1 - input)) of each element.

    Raises `ShapeError` for different shapes, `OptionError` for an input that is no probability.

    Args:
        input: probabilities, from 0 to 1.
        target: what each should be, from 0 to 1.
    """
    check_reduction(reduction)
    _same_shape("binary_cross_entropy", input, target)
    _require_float("binary_cross_entropy", input, target)
    for name, given in (("input", input), ("target", target)):
        inside = (given >= 0) & (given <= 1)
        text = f"binary_cross_entropy: all elements of {name} should be between 0 and 1"
        hint = "\nhint: binary_cross_entropy_with_logits takes any input"
        require(inside, text, "option", hint, input=input, target=target)
    loss = _bce_loss(input, target)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


@maps("lucid.zeros(3)", "lucid.ones(3)", "tensor(0.6931)")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Cross entropy of sigmoid(input) with targets in [0, 1], accurate for inputs of any size.

    Args:
        input: logits, of any size.
        target: what sigmoid(input) should be, from 0 to 1.
        pos_weight: what a positive target counts; broadcast against the target.
    """
    check_reduction(reduction)
    _same_shape("binary_cross_entropy_with_logits", input, target)
    _require_float("binary_cross_entropy_with_logits", input, target)
    return _binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


@composite
def _binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, pos_weight: Tensor | None
) -> Tensor:
    log_on = logsigmoid(input)
    if pos_weight is not None:
        log_on = log_on * ((pos_weight - 1.0) * target + 1.0)
    loss = (1.0 - target) * input - log_on
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def _require_float(name: str, input: Tensor, target: Tensor) -> None:
    if not target.dtype.is_floating_point:
        raise DTypeError(f"{name}: target is {target.dtype!r}, not floats\nhint: target.float()")


def _same_shape(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise ShapeError(f"{name}: Target size must be the same as input size")


@maps("lucid.tensor([0.5, 0.5]).log()", "[0.25, 0.75]", 'reduction="sum"', "tensor(0.1308)")
def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target * (log(target) - input), reduced: input holds log probabilities.

    The Kullback-Leibler divergence of distributions; where a target is 0 the term is 0.

    Args:
        input: log probabilities.
        target: probabilities, of the input's shape.
        reduction: also "batchmean", the sum over the size of axis 0, which is the divergence's
            mean.
        log_target: the target holds log probabilities too.
    """
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = target * where(target == 0, 1.0, target).log() - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return reduce_loss(loss, reduction)


@maps("lucid.zeros(2)", "lucid.ones(2)", "lucid.ones(2)", "tensor(0.5000)")
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of a normal distribution with mean `input` and variance `var`.

    The variance is eps at least, where no gradient enters.

    Args:
        input: the means.
        target: the observations.
        var: the variances, of the input's shape, or without its last axis.
        full: with the constant term.
        eps: variances count as this much at least.
    """
    variance = input.detach() * 0.0 + var if isinstance(var, float) else var
    text = "gaussian_nll_loss: var has negative entry/entries"
    require(variance >= 0, text, input=input, var=variance)
    if variance.ndim != input.ndim and variance.shape == input.shape[:-1]:
        variance = variance.unsqueeze(-1)
    safe = variance.detach().clamp(min=eps) + (variance - variance.detach())
    loss = 0.5 * (safe.log() + (input - target) ** 2 / safe)
    return reduce_loss(loss + 0.5 * _LOG_2_PI if full else loss, reduction)


@maps("lucid.zeros(2)", "lucid.ones(2)", "tensor(1.)")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of a Poisson distribution with (the logarithm of) rate `input`.

    Args:
        input: rates, or their logarithms.
        target: counts, of the input's shape.
        log_input: `input` holds logarithms: exp(input) - target * input; else input - target *
            log(input + eps).
        full: with Stirling's approximation of log(target!).
    """
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + eps).log()
    if full:
        count = where(target > 1, target, 1.0)
        stirling = count * count.log() - count + 0.5 * (2 * math.pi * count).log()
        loss = loss + where(target > 1, stirling, 0.0)
    return reduce_loss(loss, reduction)
