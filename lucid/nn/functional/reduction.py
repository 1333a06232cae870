"""How a loss per element becomes the loss that is returned."""

from __future__ import annotations

from lucid.ir.errors import OptionError
from lucid.ir.location import warn
from lucid.tensor.tensor import Tensor

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
