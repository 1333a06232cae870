"""Rows of a table by index, and the one-hot form of indices."""

from __future__ import annotations

import lucid
from lucid.autograd.modes import no_grad
from lucid.choices import refuse
from lucid.functions.arguments import typed
from lucid.functions.checks import in_range
from lucid.functions.elementwise import where
from lucid.functions.finding import extent, found
from lucid.functions.gradients import with_gradient
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.ir.types import i32, i64
from lucid.tensor.tensor import Tensor

__all__ = ["embedding", "one_hot"]

DENSE = "gradients are dense sums"  # why there are no sparse ones


def _embedding_vjp(g: Tensor, index: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    if padding >= 0:
        g = where((index == padding).unsqueeze(-1), 0.0, g)
    if by_frequency:
        ones = lucid.ones(index.shape, dtype=g.dtype)
        counts = ops.index_add(lucid.zeros(rows, dtype=g.dtype), index, ones, axis=0)
        g = g / ops.take(counts, index, axis=0).unsqueeze(-1)
    return ops.index_add(lucid.zeros(rows, g.shape[-1], dtype=g.dtype), index, g, axis=0)


@with_gradient(_embedding_vjp)
def _embedding(
    weight: Tensor, index: Tensor, rows: int, padding: int, by_frequency: bool
) -> Tensor:
    """Rows of the weight; the gradient of row `padding` is left out (-1: of none).

    by_frequency: that of a row is divided by how often it was looked up.
    """
    return ops.take(weight, index, axis=0)


def check_index(name: str, index: Tensor) -> None:
    """Raise `DTypeError` unless `index` holds i64 or i32."""
    if index.dtype not in (i64, i32):
        raise DTypeError(f"{name}: indices must be int64 or int32\nhint: index.long()")


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` by index: shape (*input.shape, weight.shape[1]).

    Raises `IndexOutOfRangeError` for an index below 0 or past the end.

    Args:
        input: indices, of any shape.
        weight: the table of rows, (rows, size).
        padding_idx: the row that gets no gradient; negative counts from the end.
        max_norm: rows of `weight` that are looked up and longer are shortened to this norm before,
            in place and without a gradient; None for no bound.
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up. Default:
            False.

    Raises:
        OptionError: `padding_idx` is outside of the table; `sparse`.

    Example:
        >>> F.embedding(lucid.tensor([0, 2]), lucid.arange(6.0).reshape(3, 2))
        tensor([[0., 1.],
                [4., 5.]])
    """
    refuse(sparse, "sparse", "embedding", DENSE)
    if max_norm is not None:
        check_rows("embedding", input, weight)
        shorten_rows(weight, input, max_norm, norm_type)
    return rows_of("embedding", input, weight, padding_idx, scale_grad_by_freq)


def shorten_rows(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Shorten the rows that are looked up to `max_norm`, in place, where they are longer."""
    with no_grad():
        is_used = lucid.zeros(weight.shape[0], dtype=lucid.bool)
        is_used[index.reshape(-1)] = True
        norms = weight.norm(norm_type, 1, keepdim=True)
        is_long = is_used.unsqueeze(1) & (norms > max_norm)
        weight.mul_(where(is_long, max_norm / (norms + 1e-7), 1.0))


def check_rows(name: str, index: Tensor, weight: Tensor) -> None:
    """Raise unless the table has rows of all those numbers."""
    check_index(name, index)
    if weight.ndim != 2:
        raise ShapeError(f"{name}: 'weight' must be 2-D{typed(weight=weight)}")
    rows = weight.shape[0]
    in_range(
        index,
        0,
        rows,
        lambda: (
            f"{name}: index {{}} is out of range for {rows} rows{typed(input=index, weight=weight)}"
        ),
    )


def rows_of(
    name: str, input: Tensor, weight: Tensor, padding_idx: int | None, by_frequency: bool
) -> Tensor:
    """As `embedding`, which messages call by another name."""
    check_rows(name, input, weight)
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise OptionError(f"{name}: Padding_idx must be within num_embeddings")
    padding = -1 if padding_idx is None else padding_idx % rows
    return _embedding(weight, input, rows, padding, bool(by_frequency))


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """i64 zeros with a one at each index: shape (*tensor.shape, num_classes).

    Raises `IndexOutOfRangeError` for an index below 0 or past the end.

    Args:
        tensor: indices, int64.
        num_classes: how many classes there are; -1 takes the largest index plus one. Default: -1.

    Raises:
        DTypeError: the indices aren't int64.
        OptionError: `num_classes` is 0, or there is nothing to count it from.

    Example:
        >>> F.one_hot(lucid.tensor([0, 2]))
        tensor([[1, 0, 0],
                [0, 0, 1]])
    """
    if tensor.dtype is not i64:
        raise DTypeError("one_hot: only of a tensor of int64")
    if num_classes == -1:
        if 0 in tensor.shape:
            raise OptionError("one_hot: the number of classes of no indices must be given")
        num_classes = found("one_hot", extent, tensor)[0].shape[0]
    elif num_classes < 1:
        raise OptionError(f"one_hot: num_classes should be positive, got {num_classes}")
    in_range(
        tensor,
        0,
        num_classes,
        lambda: (
            f"one_hot: Class values must be non-negative and smaller than num_classes="
            f"{num_classes}, not {{}}{typed(tensor=tensor)}"
        ),
    )
    result: Tensor = (tensor.unsqueeze(-1) == lucid.arange(num_classes)).to(i64)
    return result
