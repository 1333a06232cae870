"""Windows of images as columns, and columns added up to images."""

from __future__ import annotations

from math import prod

from lucid.ir.errors import ShapeError
from lucid.nn.functional.sliding import Size, Windows, add_windows, batched, entries, windows_of
from lucid.tensor.tensor import Tensor

__all__ = ["fold", "unfold"]


def _windows(name: str, kernel: Size, dilation: Size, padding: Size, stride: Size) -> Windows:
    given = {"kernel_size": kernel, "stride": stride, "dilation": dilation}
    sizes, steps, dilations = (entries(name, what, size, 2) for what, size in given.items())
    ends = entries(name, "padding", padding, 2, 0)
    return Windows(sizes, steps, dilations, ends, ends)


def unfold(
    input: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """Return the windows of (n, c, h, w) as columns: (n, c * kernel, windows).

    The windows come row by row, and a column has the elements of a window channel by channel.

    Args:
        input: (n, c, h, w) or (c, h, w).
        padding: how many elements are added at both ends of each axis.
        stride: from window to window.

    Raises:
        ShapeError: a window is larger than the padded input, or the input hasn't such axes.

    >>> F.unfold(lucid.arange(9.0).reshape(1, 1, 3, 3), 2)
    tensor([[[0., 1., 3., 4.],
             [1., 2., 4., 5.],
             [3., 4., 6., 7.],
             [4., 5., 7., 8.]]])
    """
    x, had_batch = batched("unfold", input, 2)
    windows = _windows("unfold", kernel_size, dilation, padding, stride)
    count = windows.counts(tuple(x.shape[2:]))
    if min(count) < 1:
        raise ShapeError(f"unfold: no window fits into {x._type}")
    view = windows_of(x, windows).permute(0, 1, 4, 5, 2, 3)
    y = view.reshape(x.shape[0], x.shape[1] * prod(windows.sizes), prod(count))
    return y if had_batch else y.squeeze(0)


def fold(
    input: Tensor,
    output_size: Size,
    kernel_size: Size,
    dilation: Size = 1,
    padding: Size = 0,
    stride: Size = 1,
) -> Tensor:
    """Add columns (n, c * kernel, windows) up where their windows lie: (n, c, *output_size).

    Args:
        input: columns, (n, c * kernel, windows) or without n.
        output_size: the size of the axes before `unfold`.
        padding: how many elements are added at both ends of each axis.
        stride: from window to window.

    Raises:
        ShapeError: the windows of `output_size` aren't that many.

    >>> F.fold(lucid.ones(1, 4, 4), (3, 3), 2).squeeze()
    tensor([[1., 2., 1.],
            [2., 4., 2.],
            [1., 2., 1.]])
    """
    x, had_batch = batched("fold", input, 1)
    windows = _windows("fold", kernel_size, dilation, padding, stride)
    lengths = entries("fold", "output_size", output_size, 2)
    count, area = windows.counts(lengths), prod(windows.sizes)
    if x.shape[1] % area or x.shape[2] != prod(count):
        raise ShapeError(f"fold: expected {prod(count)} columns of a multiple of {area} elements")
    split = x.reshape(x.shape[0], x.shape[1] // area, *windows.sizes, *count)
    y = add_windows(split.permute(0, 1, 4, 5, 2, 3), windows, lengths)
    return y if had_batch else y.squeeze(0)
