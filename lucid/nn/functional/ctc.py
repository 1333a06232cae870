"""Connectionist temporal classification: the likelihood of labels without an alignment."""

from __future__ import annotations

from typing import Any

import lucid
from lucid.functions.checks import in_range
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.types import i64
from lucid.nn.functional.loss import check_reduction, reduce_loss
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
        OptionError: a length or the blank is out of range.

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
    text = f"ctc_loss: target {{}} is out of range for {classes} classes"
    in_range(labels, 0, classes, text, log_probs=log_probs, targets=targets)
    loss = _negative_log_likelihood(log_probs, labels, inputs, lengths, blank)
    impossible = loss > -_NEVER / 2
    loss = lucid.where(impossible, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "mean":
        loss = loss / lengths.clamp(min=1).to(loss.dtype)
    elif not had_batch:
        loss = loss.squeeze(0)
    return reduce_loss(loss, reduction)


def _padded(targets: Tensor, lengths: Tensor) -> Tensor:
    """Targets that follow each other as rows; needs the lengths' values, so eager only."""
    sizes = lengths.tolist()
    rows, start = [], 0
    for size in sizes:
        rows.append(lucid.nn.functional.pad(targets[start : start + size], (0, max(sizes) - size)))
        start += size
    return lucid.stack(rows)


def _negative_log_likelihood(
    log_probs: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int
) -> Tensor:
    steps, count, _ = log_probs.shape
    width = 2 * targets.shape[1] + 1
    labels = lucid.full((count, width), blank, dtype=i64)
    labels[:, 1::2] = targets
    emitted = ops.gather(log_probs, labels.unsqueeze(0).expand(steps, count, width), axis=2)
    never = lucid.full((count, 2), _NEVER, dtype=log_probs.dtype)
    may_skip = labels[:, 2:] != labels[:, :-2]
    may_skip = lucid.cat([lucid.zeros(count, min(2, width), dtype=lucid.bool), may_skip], 1)
    first = lucid.arange(width) < 2
    alpha = lucid.where(first, emitted[0], _NEVER)
    for step in range(1, steps):
        by_one = lucid.cat([never[:, :1], alpha[:, :-1]], 1)
        by_two = lucid.where(may_skip, lucid.cat([never, alpha], 1)[:, :width], _NEVER)
        reached = lucid.stack([alpha, by_one, by_two]).logsumexp(0) + emitted[step]
        alpha = lucid.where((inputs > step).unsqueeze(1), reached.clamp(min=_NEVER), alpha)
    last = (2 * lengths).unsqueeze(1)
    with_blank = ops.gather(alpha, last, axis=1).squeeze(1)
    with_label = ops.gather(alpha, (last - 1).clamp(min=0), axis=1).squeeze(1)
    with_label = lucid.where(lengths > 0, with_label, _NEVER)
    return -lucid.logaddexp(with_blank, with_label)
