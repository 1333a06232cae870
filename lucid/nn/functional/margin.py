"""Losses on pairs, triples and margins.

Args:
    margin: how far apart the two must be for no loss.
"""

from __future__ import annotations

from collections.abc import Callable

import lucid
from lucid.docstrings import like, maps
from lucid.functions.elementwise import where
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.nn.functional.activation import logsigmoid
from lucid.nn.functional.classification import within_classes
from lucid.nn.functional.distance import cosine_similarity, pairwise_distance
from lucid.nn.functional.loss import reduce_loss
from lucid.tensor.tensor import Tensor

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


@maps("lucid.zeros(1, 2)", "lucid.zeros(1, 2)", "[[0.3, 0.4]]", "tensor(0.5000)")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) for the p-norm, reduced.

    Args:
        anchor: vectors, (n, d).
        positive: vectors that should be near.
        negative: vectors that should be far.
        p: the order of the norm.
        eps: added to each difference.
        swap: the negative's distance is the smaller of those to anchor and positive.

    Raises:
        OptionError: `margin` isn't above 0.
    """

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance, margin=margin, swap=swap,
        reduction=reduction,
    )  # fmt: skip


@like(triplet_margin_loss)
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """As `triplet_margin_loss`, with a distance of the caller's.

    max(d(anchor, positive) - d(anchor, negative) + margin, 0), reduced.

    Args:
        anchor: what is compared.
        positive: what should be near.
        negative: what should be far.
        distance_function: gives the distances of two batches. None is the Euclidean distance.

    >>> x, y = lucid.zeros(1, 2), lucid.ones(1, 2)
    >>> taxi = lambda a, b: (a - b).abs().sum(-1)
    >>> F.triplet_margin_with_distance_loss(x, x, y, distance_function=taxi)
    tensor(0.)
    """
    if margin <= 0:
        raise OptionError(f"triplet_margin_loss: margin must be above 0, not {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduce_loss((near - far + margin).clamp(min=0.0), reduction)


@maps("lucid.eye(2)", "lucid.eye(2)", "[1, -1]", "tensor(0.5000)")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos where the target is 1, max(cos - margin, 0) where it is -1; reduced.

    Args:
        input1: vectors, (n, d) or (d,).
        input2: vectors, of the same shape.
        target: 1 or -1 for each pair, (n,) or ().
        margin: the cosine from which on pairs of target -1 count.
    """
    cosine = cosine_similarity(input1, input2, -1)
    apart = (cosine - margin).clamp(min=0.0)
    loss = where(target == 1, 1.0 - cosine, where(target == -1, apart, cosine * 0.0))
    return reduce_loss(loss, reduction)


@maps("[1.0]", "[3.0]", "[1.0]", "tensor(2.)")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """max(-target * (input1 - input2) + margin, 0), reduced.

    Pairs in the right order, and far enough apart, cost nothing.

    Args:
        input1: scores of the first.
        input2: scores, of the same shape.
        target: 1 where the first should be greater, -1 where the second.
    """
    return reduce_loss((-target * (input1 - input2) + margin).clamp(min=0.0), reduction)


@maps("[0.2, 0.3]", "[1.0, -1.0]", "tensor(0.4500)")
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """input where the target is 1, max(margin - input, 0) where it is -1; reduced.

    Args:
        input: distances of pairs.
        target: 1 for what is alike, -1 for what is not.
    """
    apart = where(target == 1, 0.0, (margin - input).clamp(min=0.0))
    return reduce_loss(apart + where(target == -1, 0.0, input), reduction)


@maps("lucid.zeros(2)", "[1.0, -1.0]", "tensor(0.6931)")
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)), reduced.

    The logistic loss of a score for one of two classes.

    Args:
        target: 1 or -1, of the input's shape.
    """
    return reduce_loss(-logsigmoid(target * input), reduction)


@maps("lucid.zeros(1, 2)", "lucid.ones(1, 2)", "tensor(0.6931)")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Binary cross entropy of each class, averaged over the last axis; reduced.

    Args:
        input: logits, (*, classes).
        target: 0 or 1 for each.
        weight: a factor for each class. None for 1.
    """
    loss = -(target * logsigmoid(input) + (1.0 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return reduce_loss(loss.mean(-1), reduction)


@maps("[[0.1, 0.9]]", "[0]", "tensor(0.9000)")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Mean over the other classes of max(margin - input[target] + input, 0) ** p; reduced.

    Shapes: input (n, c), target (n,).

    Args:
        input: scores, (n, classes) or (classes,).
        target: classes, (n,) or ().
        p: the power, 1 or 2.
        weight: a factor for each class. None for 1.

    Raises:
        OptionError: p is neither 1 nor 2.
        ShapeError: input and target don't go together.
    """
    if p not in (1, 2):
        raise OptionError("multi_margin_loss: only p == 1 and p == 2 supported")
    if input.ndim != 2 or target.shape != input.shape[:1]:
        raise ShapeError("multi_margin_loss: (n, c) and (n,) are needed")
    within_classes("multi_margin_loss", input, target, target, input.shape[-1])
    classes = target.long().unsqueeze(1)
    violation = lucid.relu(margin - ops.gather(input, classes, axis=1) + input)
    loss = violation if p == 1 else violation * violation
    if weight is not None:
        loss = loss * ops.take(weight, classes, axis=0)
    loss = where(lucid.arange(input.shape[1]) == classes, 0.0, loss)
    return reduce_loss(loss.sum(1) / input.shape[1], reduction)


@maps("[[0.1, 0.9, 0.4]]", "[[1, -1, 0]]", "tensor(0.2333)")
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The mean over classes of max(1 - (x[target] - x[other]), 0), for targets up to the first -1.

    Shapes: input and target (n, classes) or (classes,).

    Args:
        target: the classes of each example, up to the first -1; of the input's shape.

    Raises:
        ShapeError: the shapes differ, or have more than two axes.
    """
    if input.shape != target.shape:
        raise ShapeError(f"multilabel_margin_loss: {input._type} and {target._type} differ")
    valid = (target < 0).long().cumsum(-1) == 0
    named = where(valid, target, 0)
    within_classes("multilabel_margin_loss", input, target, named, input.shape[-1])
    places, last = target.clamp(min=0), input.ndim - 1
    is_target = ops.scatter_add(lucid.zeros_like(target), places, valid.long(), axis=last) > 0
    chosen = ops.gather(input, places, axis=last)
    margin = 1.0 - chosen.unsqueeze(-1) + input.unsqueeze(-2)
    counts = valid.unsqueeze(-1) & ~is_target.unsqueeze(-2)
    loss = where(counts, lucid.relu(margin), 0.0).sum((-2, -1)) / input.shape[-1]
    return reduce_loss(loss, reduction)
