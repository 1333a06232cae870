"""Losses on classes: negative log likelihood and cross entropy."""

from __future__ import annotations

import math

import lucid
from lucid.autograd.native import composite
from lucid.docstrings import maps
from lucid.functions.arguments import integer
from lucid.functions.checks import in_range
from lucid.functions.elementwise import where
from lucid.functions.gradients import with_gradient
from lucid.functions.softmax import log_softmax
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, OptionError, ShapeError
from lucid.ir.types import i64, u8
from lucid.nn.functional.loss import check_reduction
from lucid.tensor.tensor import Tensor

__all__ = ["cross_entropy", "nll_loss"]


def _picked(values: Tensor, index: Tensor) -> Tensor:
    """values[n, index[n], ...]: one entry along axis 1 for each index; index lacks that axis."""
    return ops.gather(values, index.unsqueeze(1), axis=1).squeeze(1)


def _weights(
    target: Tensor, index: Tensor, weight: Tensor | None, ignore: int, like: Tensor
) -> Tensor:
    """How much each target counts: its class's weight, or 1; 0 where it is ignored."""
    if weight is None:
        counted: Tensor = target != ignore
        return counted.to(like.dtype)
    return where(target != ignore, ops.take(weight, index, axis=0), 0.0)


def _nll_vjp(g: Tensor, index: Tensor, weights: Tensor, classes: int) -> Tensor:
    share = where(weights == 0, 0.0, -g * weights)  # g is infinite when none counts
    return where(_is_target(classes, index), share.unsqueeze(1), 0.0)


@with_gradient(_nll_vjp)
def _nll_losses(log_probs: Tensor, index: Tensor, weights: Tensor, classes: int) -> Tensor:
    """-log_probs[n, index[n]] per target, times the target's weight."""
    return where(weights == 0, 0.0, -_picked(log_probs, index) * weights)


def _cross_entropy_vjp(g: Tensor, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    _, e, total = _exponentials(x)
    share = where(weights == 0, 0.0, g * weights).unsqueeze(1)  # g is infinite if none counts
    return e * (share / total) - where(_is_target(x.shape[1], index), share, 0.0)


@with_gradient(_cross_entropy_vjp)
def _cross_entropies(x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """log(sum(exp(x[n]))) - x[n, index[n]] per target, times the target's weight.

    The gradient is softmax(x) less one at the target: x alone is saved, no array of
    log-probabilities is made, and compiled code computes each exponential once.
    """
    z, _, total = _exponentials(x)
    return where(weights == 0, 0.0, (total.log().squeeze(1) - _picked(z, index)) * weights)


def _exponentials(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Along axis 1: x less its largest element, the exponentials of that, and their sum."""
    z = x - x.amax(1, keepdim=True)
    e = z.exp()
    return z, e, e.sum(1, keepdim=True)


def _is_target(classes: int, index: Tensor) -> Tensor:
    """A comparison per class rather than a scatter: it fuses with the softmax's gradient."""
    numbers = lucid.arange(classes, dtype=index.dtype)
    return numbers.reshape(1, -1, *([1] * (index.ndim - 1))) == index.unsqueeze(1)


def _check_shapes(name: str, input: Tensor, target: Tensor) -> None:
    shape = input._type.shape
    if not shape:
        raise ShapeError(f"{name}: the input needs an axis of classes, got {input._type}")
    batch = shape[:1] + shape[2:] if len(shape) > 1 else ()
    if target._type.shape != batch:
        axis = min(len(shape) - 1, 1)
        raise ShapeError(f"{name}: target must be {list(batch)}, as axis {axis} has the classes")


def _check_weight(name: str, weight: Tensor | None, input: Tensor, classes: int) -> None:
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(f"{name}: the weight must be one number for each of {classes} classes")
    if weight is not None and weight.dtype is not input.dtype:
        raise DTypeError(f"{name}: the weight must have the input's dtype")


def within_classes(
    name: str, input: Tensor, target: Tensor, index: Tensor, classes: int, hint: str = ""
) -> None:
    """Raise `IndexOutOfRangeError` for an index, of the target's, that is no class."""
    text = f"{name}: target {{}} is out of range for {{high}} classes"
    in_range(index, 0, classes, text, hint, input=input, target=target)


def _index_and_weights(
    name: str, input: Tensor, target: Tensor, weight: Tensor | None, ignore: int
) -> tuple[Tensor, Tensor]:
    """The class of each target, 0 where it is ignored, and its weight.

    Raises `IndexOutOfRangeError`, and `ArgumentError` for a bool as `ignore`.
    """
    if isinstance(ignore, bool):
        raise ArgumentError(
            f"{name}: ignore_index must be an int, not {ignore}\n"
            "hint: name reduction=, or size_average= in an older program"
        )
    ignore = integer(ignore, name, "ignore_index")
    classes = input.shape[1]
    index = where(target == ignore, 0, target)
    hint = f"\nhint: only ignore_index ({ignore}) may lie outside"
    within_classes(name, input, target, index, classes, hint)
    return index, _weights(target, index, weight, ignore, input)


def _classes(name: str, target: Tensor) -> Tensor:
    """Targets as indices: int64, or bytes. Raises `DTypeError`."""
    if target.dtype is u8:
        return target.long()
    if target.dtype is not i64:
        raise DTypeError(
            f"{name}: expected an int64 target of class indices, but got {target.dtype!r}\n"
            "hint: target.long()"
        )
    return target


@maps("[[-0.5, -1.0]]", "[1]", "tensor(1.)")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of the target classes under log probabilities.

    Shapes: input (n, classes, *) or (classes,), target of class indices (n, *) or (). The mean is
    over the weights of the targets that are not ignored; NaN when all are.

    Raises `IndexOutOfRangeError` for a target that is no class.

    Args:
        input: log probabilities, (n, classes, *) or (classes,).
        target: classes, (n, *) or ().
        weight: a factor for each class, (classes,). None for 1.
        ignore_index: targets of this class count nothing.
    """
    check_reduction(reduction)
    _check_shapes("nll_loss", input, target)
    target = _classes("nll_loss", target)
    if input.ndim == 1:
        loss = nll_loss(input.unsqueeze(0), target.unsqueeze(0), weight, ignore_index, reduction)
        return loss.squeeze(0) if reduction == "none" else loss
    _check_weight("nll_loss", weight, input, input.shape[1])
    return _nll_loss(input, target, weight, ignore_index, reduction)


@composite
def _nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore: int, reduction: str
) -> Tensor:
    index, weights = _index_and_weights("nll_loss", input, target, weight, ignore)
    return _reduced(_nll_losses(input, index, weights, input.shape[1]), weights, reduction)


def _reduced(loss: Tensor, weights: Tensor, reduction: str) -> Tensor:
    """The mean over the weights, the sum, or each target's loss."""
    if reduction == "mean":
        return loss.sum() / weights.sum()
    return loss.sum() if reduction == "sum" else loss


@maps("lucid.zeros(1, 4)", "[3]", 'reduction="none"', "[1.3863]")
@maps("[[2.0, 0.0, 0.0]]", "[0]", "tensor(0.2395)")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of the softmax of `input` with the target classes or class probabilities.

    Shapes: input (n, classes, *) or (classes,); target of class indices (n, *) or (), or of
    probabilities, of the input's shape and a float dtype. The mean over class indices is over the
    weights of those that are not ignored.

    Raises `IndexOutOfRangeError` for a target that is no class.

    Args:
        input: logits, (n, classes, *) or (classes,).
        target: class indices (n, *) or (), or probabilities of the input's shape.
        weight: a factor for each class, (classes,). None for 1.
        ignore_index: targets of this class count nothing.
        label_smoothing: how much of each target is spread over all classes, from 0 to 1.

    Raises:
        ShapeError: the shapes of input, target and weight don't go together.
        OptionError: `label_smoothing` is outside of [0, 1].
    """
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise OptionError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    shape = input._type.shape
    if not shape:
        raise ShapeError(f"cross_entropy: the input needs an axis of classes, got {input._type}")
    if shape == target._type.shape and target.dtype.is_floating_point:
        return _with_probabilities(input, target, weight, reduction, label_smoothing)
    _check_shapes("cross_entropy", input, target)
    target = _classes("cross_entropy", target)
    if len(shape) == 1:
        row = input.unsqueeze(0), target.unsqueeze(0)
        loss = cross_entropy(*row, weight, ignore_index, reduction, label_smoothing)
        return loss.squeeze(0) if reduction == "none" else loss
    _check_weight("cross_entropy", weight, input, shape[1])
    return _cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


@composite
def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """Cross entropy with classes."""
    if smoothing > 0.0 or not input.numel() or not input.dtype.is_floating_point:
        log_probs = log_softmax(input, 1)
        index, weights = _index_and_weights("cross_entropy", input, target, weight, ignore)
        loss = _nll_losses(log_probs, index, weights, input.shape[1])
    else:
        index, weights = _index_and_weights("cross_entropy", input, target, weight, ignore)
        loss = _cross_entropies(input, index, weights)
    if smoothing > 0.0:
        share = smoothing / input.shape[1]
        scored = log_probs if weight is None else log_probs * _per_class(weight, input)
        smooth = where(target == ignore, 0.0, -scored.sum(1))
        loss = loss * (1.0 - smoothing) + smooth * share
    return _reduced(loss, weights, reduction)


def _per_class(weight: Tensor, input: Tensor) -> Tensor:
    """View the weights along the axis of classes."""
    return weight if input.ndim == 1 else weight.reshape(1, -1, *([1] * (input.ndim - 2)))


def _with_probabilities(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """Cross entropy with class probabilities; the mean is over the rows, whatever the weights."""
    axis = min(input.ndim - 1, 1)
    classes = input.shape[axis]
    _check_weight("cross_entropy", weight, input, classes)
    if smoothing > 0.0:
        target = target * (1.0 - smoothing) + smoothing / classes
    scored = log_softmax(input, axis) * target
    if weight is not None:
        scored = scored * _per_class(weight, input)
    if reduction == "none":
        return -scored.sum(axis)
    total = -scored.sum()
    if reduction == "sum":
        return total
    rows = input.numel() // classes if classes else 0
    return total / rows if rows else total * math.nan
