"""Rows of a table by index, and the one-hot form of indices."""

from __future__ import annotations

import lucid
from lucid.autograd.modes import no_grad
from lucid.autograd.native import program
from lucid.choices import check_choice, refuse
from lucid.docstrings import maps
from lucid.functions.arguments import integer, typed
from lucid.functions.checks import in_range
from lucid.functions.elementwise import where
from lucid.functions.finding import extent, found
from lucid.functions.gradients import with_gradient
from lucid.functions.sorting import searchsorted
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, DTypeError, OptionError, ShapeError
from lucid.ir.types import i32, i64
from lucid.tensor.tensor import Tensor

__all__ = ["bilinear", "embedding", "embedding_bag", "one_hot"]

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


@maps("[0, 2]", "lucid.arange(6.0).reshape(3, 2)", "[[0., 1.], [4., 5.]]")
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
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up.

    Raises:
        OptionError: `padding_idx` is outside of the table; `sparse`.
    """
    refuse(sparse, "sparse", "embedding", DENSE)
    if max_norm is not None:
        check_rows("embedding", input, weight)
        shorten_rows(weight, input, max_norm, norm_type)
    return rows_of("embedding", input, weight, padding_idx, scale_grad_by_freq)


@no_grad()
def shorten_rows(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Shorten the rows that are looked up to `max_norm`, in place, where they are longer."""
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
    text = f"{name}: index {{}} is out of range for {{high}} rows"
    in_range(index, 0, weight.shape[0], text, input=index, weight=weight)


def rows_of(
    name: str, input: Tensor, weight: Tensor, padding_idx: int | None, by_frequency: bool
) -> Tensor:
    """As `embedding`, which messages call by another name."""
    check_rows(name, input, weight)
    rows = weight.shape[0]
    padding = -1
    if padding_idx is not None:
        padding = integer(padding_idx, name, "padding_idx")
        if not -rows <= padding < rows:
            raise OptionError(f"{name}: Padding_idx must be within num_embeddings")
        padding %= rows
    return _embedding(weight, input, rows, padding, bool(by_frequency))


@maps("[0, 2]", "[[1, 0, 0], [0, 0, 1]]")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """i64 zeros with a one at each index: shape (*tensor.shape, num_classes).

    Raises `IndexOutOfRangeError` for an index below 0 or past the end.

    Args:
        tensor: indices, int64.
        num_classes: how many classes there are; -1 takes the largest index plus one.

    Raises:
        DTypeError: the indices aren't int64.
        OptionError: `num_classes` is 0, or there is nothing to count it from.
    """
    if tensor.dtype is not i64:
        raise DTypeError("one_hot: only of a tensor of int64")
    num_classes = integer(num_classes, "one_hot", "num_classes")
    if num_classes == -1:
        if 0 in tensor.shape:
            raise OptionError("one_hot: the number of classes of no indices must be given")
        num_classes = found("one_hot", extent, tensor, "one_hot")[0].shape[0]
    elif num_classes < 1:
        raise OptionError(f"one_hot: num_classes should be positive, got {num_classes}")
    wanted = "non-negative and smaller than num_classes={high}"
    text = f"one_hot: Class values must be {wanted}, not {{}}"
    in_range(tensor, 0, num_classes, text, tensor=tensor)
    return _one_hot(tensor, num_classes)


@program
def _one_hot(tensor: Tensor, num_classes: int) -> Tensor:
    return (tensor.unsqueeze(-1) == lucid.arange(num_classes)).to(i64)


_MODES = ("sum", "mean", "max")


@maps("[0, 2, 1]", "lucid.eye(3)", "[0, 2]", "[[0.5000, 0.0000, 0.5000], [0.0000, 1.0000, 0.0000]]")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Reduce the rows that each bag names: shape (bags, weight.shape[1]); an empty bag gives 0.

    Args:
        input: (bags, n), or a vector with `offsets`.
        weight: the table of rows, (rows, size).
        offsets: where in the vector each bag begins, (bags,).
        max_norm: rows of `weight` that are looked up and longer are shortened to this norm before,
            in place and without a gradient; None for no bound.
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up; not with
            "max".
        mode: "sum", "mean" or "max" of a bag's rows.
        per_sample_weights: factors of input's shape, for mode "sum".
        include_last_offset: the last offset is the end of the last bag.
        padding_idx: the row that counts nothing; None for none.

    Raises:
        ArgumentError: offsets are missing for a vector, or given for a matrix.
        OptionError: a mode that there isn't, or one that doesn't go with the other options.
    """
    check_choice(mode, "mode", "embedding_bag", _MODES)
    if per_sample_weights is not None and mode != "sum":
        raise OptionError("embedding_bag: per_sample_weights only works with mode='sum'")
    if (input.ndim == 1) != (offsets is not None) or input.ndim not in (1, 2):
        raise ArgumentError("embedding_bag: takes a matrix of bags, or a vector and offsets")
    if mode == "max" and scale_grad_by_freq:
        raise OptionError("embedding_bag: max mode does not support scaling the gradient by freq")
    refuse(sparse, "sparse", "embedding_bag", DENSE)
    if offsets is not None:
        _check_offsets(input, offsets)
    if max_norm is not None:
        check_rows("embedding_bag", input, weight)
        shorten_rows(weight, input, max_norm, norm_type)
    rows = rows_of("embedding_bag", input, weight, padding_idx, scale_grad_by_freq)
    counts = lucid.ones_like(rows.detach()[..., :1])
    if padding_idx is not None:
        counts = (input != padding_idx % weight.shape[0]).to(rows.dtype).unsqueeze(-1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        return _reduced_rows(rows, counts, mode)
    if include_last_offset:
        offsets = offsets[:-1]
    bag = searchsorted(offsets, lucid.arange(input.shape[0]), right=True) - 1
    return _reduced_bags(rows, counts, bag, offsets.shape[0], mode)


def _check_offsets(input: Tensor, offsets: Tensor) -> None:
    """Raise `IndexOutOfRangeError` unless the first bag begins at 0, and all within the input."""
    given, count = {"input": input, "offsets": offsets}, input.shape[0]
    in_range(offsets[:1], 0, 1, "embedding_bag: offsets[0] has to be 0, not {}", **given)
    text = "embedding_bag: offset {} is outside of an input of length {last}"
    in_range(offsets, 0, count + 1, text, **given)


def _reduced_rows(rows: Tensor, counts: Tensor, mode: str) -> Tensor:
    if mode == "max":
        top = rows.masked_fill(counts == 0, -float("inf")).amax(1)
        return top.masked_fill(counts.sum(1) == 0, 0.0)
    total = (rows * counts).sum(1)
    return total / counts.sum(1).clamp(min=1.0) if mode == "mean" else total


def _reduced_bags(rows: Tensor, counts: Tensor, bag: Tensor, bags: int, mode: str) -> Tensor:
    zeros = lucid.zeros(bags, rows.shape[1], dtype=rows.dtype)
    if mode == "max":
        at = bag.unsqueeze(1).expand(rows.shape)
        masked = rows.masked_fill(counts == 0, -float("inf"))
        top = zeros.scatter_reduce(0, at, masked, "amax", include_self=False)
        return top.masked_fill(top == -float("inf"), 0.0)
    total = zeros.index_add(0, bag, rows * counts)
    if mode == "sum":
        return total
    size = lucid.zeros(bags, 1, dtype=rows.dtype).index_add(0, bag, counts)
    return total / size.clamp(min=1.0)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1 @ weight[k] @ input2 + bias[k] for each k.

    A product of two vectors for each feature of the result.

    Shapes: the result is (*, n) for n matrices.

    Args:
        input1: (*, a).
        input2: (*, b), of the same leading axes.
        weight: a matrix for each feature of the result, (n, a, b).
        bias: what is added; None for nothing.

    Raises:
        ShapeError: the sizes don't go together.

    >>> F.bilinear(lucid.ones(3, 2), lucid.ones(3, 4), lucid.ones(5, 2, 4)).shape
    lucid.Size([3, 5])
    """
    fits = weight.ndim == 3 and input1.shape[:-1] == input2.shape[:-1]
    if not fits or (input1.shape[-1], input2.shape[-1]) != tuple(weight.shape[1:]):
        raise ShapeError("bilinear: (*, a), (*, b) and weight (n, a, b) are needed")
    n, a, b = weight.shape
    left = input1.reshape(-1, a) @ weight.permute(1, 0, 2).reshape(a, n * b)
    products = left.reshape(-1, n, b) * input2.reshape(-1, 1, b)
    product = products.sum(-1, dtype=products.dtype)
    result = product.reshape(*input1.shape[:-1], n)
    return result if bias is None else result + bias
