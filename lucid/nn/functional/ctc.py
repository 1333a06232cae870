"""Connectionist temporal classification: the likelihood of labels without an alignment."""

from __future__ import annotations

from typing import Any

import lucid
from lucid.autograd.native import composite
from lucid.autograd.rounds import Recurrence, Tensors
from lucid.functions.checks import in_range
from lucid.functions.finding import extent, found
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import i64
from lucid.nn.functional.loss import check_reduction, reduce_loss
from lucid.nn.functional.padding import pad
from lucid.tensor.tensor import Tensor

__all__ = ["ctc_loss"]

_NEVER = -1e30  # the logarithm of no chance; finite, so that its differences are numbers


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log p(targets | log_probs), over all alignments with blanks between labels.

    Shapes: log_probs (t, n, classes) or (t, classes), targets (n, s) padded or (sum of lengths,).

    Reference: Graves et al., "Connectionist Temporal Classification", 2006.

    Args:
        log_probs: logarithms of probabilities, (t, n, classes) or (t, classes).
        targets: labels, (n, s) padded, or one after the other in a vector.
        input_lengths: how many of the t rounds each example has, (n,).
        target_lengths: how many labels each example has, (n,).
        blank: the class of the blank.
        reduction: "mean" divides each by its target's length first.
        zero_infinity: infinite losses, of targets that are too long, and their gradients are 0.

    Raises:
        ShapeError: the shapes don't go together.
        OptionError: the blank is out of range.
        IndexOutOfRangeError: a label or a length is.

    >>> log_probs = F.log_softmax(lucid.zeros(4, 1, 3), dim=-1)
    >>> F.ctc_loss(log_probs, lucid.tensor([[1, 2]]), lucid.tensor([4]), lucid.tensor([2]))
    tensor(0.8432)
    """
    check_reduction(reduction)
    had_batch = log_probs.ndim == 3
    if not had_batch:
        log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
    if log_probs.ndim != 3:
        raise ShapeError(f"ctc_loss: log_probs must be (t, n, classes), not {log_probs._type}")
    inputs = lucid.as_tensor(input_lengths, dtype=i64).reshape(-1)
    lengths = lucid.as_tensor(target_lengths, dtype=i64).reshape(-1)
    if targets.ndim == 1:
        targets = _padded(targets, lengths)
    if not 0 <= blank < log_probs.shape[2]:
        raise OptionError(f"ctc_loss: blank must be in label range, got {blank}")
    targets = targets.long()
    counts = lucid.arange(targets.shape[1]) < lengths.unsqueeze(1)
    classes, labels = log_probs.shape[2], lucid.where(counts, targets, blank)
    text = "ctc_loss: target {} is out of range for {high} classes"
    in_range(labels, 0, classes, text, log_probs=log_probs, targets=targets)
    text = "ctc_loss: input length {} is out of range for {last} rounds"
    in_range(inputs, 0, log_probs._type.shape[0] + 1, text, log_probs=log_probs)
    text = "ctc_loss: target length {} is out of range for {last} labels"
    in_range(lengths, 0, targets.shape[1] + 1, text, targets=targets)
    loss = _negative_log_likelihood(log_probs, labels, inputs, lengths, blank)
    impossible = loss > -_NEVER / 2
    loss = lucid.where(impossible, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "mean":
        loss = loss / lengths.clamp(min=1).to(loss.dtype)
    elif not had_batch:
        loss = loss.squeeze(0)
    return reduce_loss(loss, reduction)


def _padded(targets: Tensor, lengths: Tensor) -> Tensor:
    """Targets that follow each other as rows, as many columns as the longest has."""
    (longest,) = found("ctc_loss", extent, lengths - 1, "ctc_loss", what="ctc_loss()")
    columns = lucid.arange(longest.shape[0])
    places = (lengths.cumsum(0) - lengths).unsqueeze(1) + columns
    return targets[lucid.where(columns < lengths.unsqueeze(1), places, 0)]


def _negative_log_likelihood(
    log_probs: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int
) -> Tensor:
    alpha, emitted, is_on, may_skip = _beginning(log_probs, targets, inputs, blank)
    if emitted._type.size:
        forwards = Recurrence(_forwards, may_skip)
        (alpha,), _ = lucid.scan(forwards, (alpha,), (emitted, is_on))
    return _ending(alpha, lengths)


@composite
def _beginning(log_probs: Tensor, targets: Tensor, inputs: Tensor, blank: int) -> Tensors:
    """Before the rounds of `_forwards`: alpha, the rows for each later step, and what all share.

    Labels have blanks between them and around. Of alpha, log-likelihoods of the beginnings of each
    step, two columns that are never reached come first.
    """
    steps, count, _ = log_probs._type.shape
    blanks = lucid.full_like(targets, blank)
    labels = lucid.stack([blanks, targets], 2).flatten(1)
    labels = lucid.cat([labels, lucid.full((count, 1), blank, dtype=i64)], 1)
    width = labels._type.shape[1]
    emitted = ops.gather(log_probs, labels.unsqueeze(0).expand(steps, count, width), axis=2)
    never = lucid.zeros(count, min(2, width), dtype=lucid.bool)
    may_skip = lucid.cat([never, labels[:, 2:] != labels[:, :-2]], 1)
    alpha = lucid.where(lucid.arange(width) < 2, emitted[0], _NEVER)
    is_on = inputs > lucid.arange(1, steps).unsqueeze(1)
    return pad(alpha, (2, 0), value=_NEVER), emitted[1:], is_on.unsqueeze(2), may_skip


def _forwards(carry: Tensors, row: Tensors, shared: Tensors) -> tuple[Tensors, Tensors]:
    """A step later: each label, or the blank behind it, goes on, or the next one begins."""
    (alpha,), (emitted, is_on), (may_skip,) = carry, row, shared
    same, by_one = alpha[:, 2:], alpha[:, 1:-1]
    by_two = lucid.where(may_skip, alpha[:, :-2], _NEVER)
    reached = lucid.logaddexp(lucid.logaddexp(same, by_one), by_two) + emitted
    reached = lucid.where(is_on, reached.clamp(min=_NEVER), same)
    return (pad(reached, (2, 0), value=_NEVER),), ()


@composite
def _ending(alpha: Tensor, lengths: Tensor) -> Tensor:
    """-log of the chance of all labels, with the last blank or without it."""
    last = (2 * lengths).unsqueeze(1) + 2
    with_blank = ops.gather(alpha, last, axis=1).squeeze(1)
    with_label = ops.gather(alpha, last - 1, axis=1).squeeze(1)
    with_label = lucid.where(lengths > 0, with_label, _NEVER)
    return -lucid.logaddexp(with_blank, with_label)
