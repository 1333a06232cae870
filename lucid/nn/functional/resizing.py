"""Images of other sizes: interpolation, sampling at points, channels turned into space.

Args:
    size: the new sizes; an int for all. Either this or `scale_factor`.
    scale_factor: how much longer the axes become; a number, or one for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import lucid
from lucid.autograd.native import fused, program
from lucid.docstrings import maps
from lucid.functions.arguments import integer
from lucid.ir import ops
from lucid.ir.errors import DTypeError, OptionError, ShapeError
from lucid.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from lucid.tensor.core import from_array
from lucid.tensor.tensor import Tensor

__all__ = [
    "affine_grid", "channel_shuffle", "grid_sample", "interpolate", "pixel_shuffle",
    "pixel_unshuffle", "upsample", "upsample_bilinear", "upsample_nearest",
]  # fmt: skip

_LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}
# Elements of an axis, for each neighbour of a point, up to which a product beats look-ups.
_DENSE = 32
_CUBIC = -0.75
Scales = tuple[float, ...]


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize all but the first two axes, to `size` or by `scale_factor`.

    Args:
        input: (n, c, *), one to three further axes, of floats; "nearest" and "nearest-exact" take
            all types, "bilinear" and "bicubic" bytes as well, rounded after each axis.
        mode: "nearest", "nearest-exact", "linear" (3 axes), "bilinear" or "bicubic" (4),
            "trilinear" (5), "area".
        align_corners: the centres of the corners stay where they are. Default: False.
        recompute_scale_factor: compute the factors anew from the sizes that come out. Default:
            False.
        antialias: smooth while shrinking, with a kernel as wide as a pixel of the result; bilinear
            and bicubic only.

    Raises:
        DTypeError: a mode that computes means of integers or bools.
        OptionError: a mode that there isn't, one that isn't smoothed with `antialias`, or sizes and
            factors that don't fit the axes.

    >>> F.interpolate(lucid.tensor([[[0.0, 2.0]]]), size=4, mode="linear", align_corners=True)
    tensor([[[0.0000, 0.6667, 1.3333, 2.0000]]])
    """
    sizes, scales = _target(input, size, scale_factor, bool(recompute_scale_factor))
    if antialias and mode not in ("bilinear", "bicubic"):
        raise OptionError(f"interpolate: antialias is for bilinear and bicubic, not {mode!r}")
    are_bytes = input.dtype == lucid.uint8 and mode in ("bilinear", "bicubic")
    if not (input.dtype.is_floating_point or are_bytes or mode.startswith("nearest")):
        raise DTypeError(
            f"interpolate: mode {mode!r} is not implemented for {input.dtype!r}\n"
            "hint: tensor.float()"
        )
    if mode == "area":
        pools = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
        return pools[input.ndim - 3](input, sizes)
    if mode in ("nearest", "nearest-exact"):
        if align_corners is not None:
            raise OptionError(f"interpolate: mode {mode!r} takes no align_corners")
        return _nearest(input, sizes, scales, 0.5 if mode == "nearest-exact" else 0.0)
    if _LINEAR.get(mode) != input.ndim:
        raise OptionError(f"interpolate: mode {mode!r} doesn't fit an input of {input.ndim} axes")
    y, is_cubic = input.float() if are_bytes else input, mode == "bicubic"
    for i in reversed(range(len(sizes))):
        axis, length, wanted, scale = i + 2, input.shape[i + 2], sizes[i], scales[i]
        options = wanted, scale, is_cubic, bool(align_corners)
        if antialias:
            y = _along(y, axis, _smooth_weights(length, *options))
        elif length <= (4 if is_cubic else 2) * _DENSE:
            y = _along(y, axis, _weights(length, *options))
        else:
            y = _between(y, axis, *options)
        if are_bytes:
            y = (y + 0.5).floor().clamp(0, 255)
    return y.to(input.dtype)


def _along(x: Tensor, axis: int, matrix: np.ndarray) -> Tensor:
    """Multiply one axis by a matrix (in, out)."""
    weights = from_array(matrix.astype(x.dtype.numpy))
    return (x.movedim(axis, -1) @ weights).movedim(-1, axis)


def _target(
    input: Tensor, size: Any, scale_factor: Any, recompute: bool
) -> tuple[tuple[int, ...], Scales]:
    """The wanted sizes, and how far apart their points are in the input."""
    lengths = input.shape[2:]
    if not 3 <= input.ndim <= 5:
        raise ShapeError(f"interpolate: takes 3, 4 or 5 axes, not {input._type}")
    if (size is None) == (scale_factor is None):
        raise OptionError("interpolate: exactly one of size or scale_factor should be defined")
    given = scale_factor if size is None else size
    entries = tuple(given) if isinstance(given, Sequence) else (given,) * len(lengths)
    if len(entries) != len(lengths):
        raise OptionError(f"interpolate: needs {len(lengths)} sizes or factors, not {entries}")
    if size is not None:
        sizes = tuple([integer(n, "interpolate", "size") for n in entries])
        if min(sizes) < 1:
            raise OptionError(f"interpolate: sizes should be greater than 0, not {sizes}")
        return sizes, tuple(n / m for n, m in zip(lengths, sizes, strict=True))
    sizes = tuple(int(n * factor) for n, factor in zip(lengths, entries, strict=True))
    if recompute:
        return sizes, tuple(n / m for n, m in zip(lengths, sizes, strict=True))
    return sizes, tuple(1.0 / factor for factor in entries)


def _nearest(x: Tensor, sizes: tuple[int, ...], scales: Scales, shift: float) -> Tensor:
    for i, (wanted, scale) in enumerate(zip(sizes, scales, strict=True)):
        axis, length = i + 2, x.shape[i + 2]
        if wanted == length:
            continue
        if wanted % length == 0:
            continue
        places = np.floor((np.arange(wanted) + shift) * scale).astype(np.int64)
        x = ops.take(x, from_array(np.minimum(places, length - 1)), axis=axis)
    times = tuple([n // m for n, m in zip(sizes, x.shape[2:], strict=True)])
    return x if max(times) == 1 else _spread(x, times)


@fused
def _spread(x: Tensor, times: tuple[int, ...]) -> Tensor:
    """Each element so many times, along all but the first two axes."""
    n, c, *lengths = x.shape
    apart = x.reshape(n, c, *(size for length in lengths for size in (length, 1)))
    pairs = [*zip(lengths, times, strict=True)]
    wide = apart.expand(n, c, *(size for pair in pairs for size in pair))
    return wide.reshape(n, c, *(length * count for length, count in pairs))


def _weights(length: int, size: int, scale: float, is_cubic: bool, align: bool) -> np.ndarray:
    """The matrix (length, size) that interpolates between neighbours."""
    matrix = np.zeros((length, size))
    for places, weight in _neighbours(length, size, scale, is_cubic, align):
        np.add.at(matrix, (places, np.arange(size)), weight)
    return matrix


@fused
def _between(x: Tensor, axis: int, size: int, scale: float, is_cubic: bool, align: bool) -> Tensor:
    """Interpolate between the neighbours along a long axis, each of which is looked up."""
    shape = [-1] + [1] * (x.ndim - 1 - axis)
    total: Any = 0.0
    for places, weight in _neighbours(x.shape[axis], size, scale, is_cubic, align):
        factor = from_array(weight.astype(x.dtype.numpy).reshape(shape))
        total = total + ops.take(x, from_array(places), axis=axis) * factor
    result: Tensor = total
    return result


def _neighbours(
    length: int, size: int, scale: float, is_cubic: bool, align: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The places of each point's neighbours, and their weights."""
    if align:
        points = np.arange(size) * ((length - 1) / (size - 1) if size > 1 else 0.0)
    else:
        points = (np.arange(size) + 0.5) * scale - 0.5
        points = points if is_cubic else np.maximum(points, 0.0)
    first = np.floor(points).astype(np.int64)
    part = points - first
    if is_cubic:
        taps = [(-1, _far(part + 1)), (0, _near(part)), (1, _near(1 - part)), (2, _far(2 - part))]
    else:
        taps = [(0, 1 - part), (1, part)]
    for offset, weight in taps:
        yield np.clip(first + offset, 0, length - 1), weight


def _smooth_weights(
    length: int, size: int, scale: float, is_cubic: bool, align: bool
) -> np.ndarray:
    """The matrix (length, size) of a kernel that is as wide as the points are apart."""
    if align:
        scale = (length - 1) / (size - 1) if size > 1 else 0.0
    width = max(scale, 1.0)
    centre, reach = (np.arange(size) + 0.5) * scale, (2 if is_cubic else 1) * width
    first, end = (np.trunc(centre + side * reach + 0.5) for side in (-1, 1))
    place = np.arange(length)[:, None]
    distance = np.abs(place + 0.5 - centre) / width
    if is_cubic:
        near, far = (kernel(distance, -0.5) for kernel in (_near, _far))
        kernel = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    else:
        kernel = np.maximum(1 - distance, 0.0)
    kernel = np.where((place >= first) & (place < end), kernel, 0.0)
    result: np.ndarray = kernel / kernel.sum(0)
    return result


def _near(x: Any, a: float = _CUBIC) -> Any:
    """Keys' cubic kernel up to distance 1."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _far(x: Any, a: float = _CUBIC) -> Any:
    """Keys' cubic kernel at distances from 1 to 2."""
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


@maps("[[[1.0, 2.0]]]", "size=4", "[[[1., 1., 2., 2.]]]")
def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Return `interpolate(input, size, scale_factor, mode, align_corners)`.

    The older name of `interpolate`. Either size or factor is given.

    Args:
        input: (n, c, *).
        mode: as in `interpolate`.
        align_corners: the centres of the corners stay where they are, not the corners.
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


@maps("[[[1.0, 2.0]]]", "scale_factor=2", "[[[1., 1., 2., 2.]]]")
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Return `interpolate(input, size, scale_factor, mode="nearest")`, whose older name it is.

    Args:
        input: (n, c, *).
    """
    return interpolate(input, size, scale_factor)


@maps("[[[[1.0, 2.0]]]]", "size=(1, 3)", "[[[[1.0000, 1.5000, 2.0000]]]]")
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Return `interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)`.

    The corners of an image stay where they are, unlike by `interpolate`'s default.

    Args:
        input: (n, c, h, w).
    """
    return interpolate(input, size, scale_factor, "bilinear", True)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Return points (n, h, w, 2) for `grid_sample`, from matrices (n, 2, 3).

    A point of the grid says where in the input its pixel of the result is looked up, from -1 to 1
    on each axis.

    Args:
        theta: matrices (n, 2, 3) that map points (x, y, 1) of the result to points of the input.
        size: (n, c, h, w) of the result that `grid_sample` shall give.
        align_corners: let -1 and 1 be the centres of the corners, not their edges. Default: False.

    Raises:
        ShapeError: `theta` isn't (n, 2, 3), or `size` hasn't four numbers.

    >>> theta = lucid.tensor([[[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]]])
    >>> F.affine_grid(theta, (1, 1, 2, 2), align_corners=True)
    tensor([[[[-0.5000, -1.0000],
              [ 1.5000, -1.0000]],
    <BLANKLINE>
             [[-0.5000,  1.0000],
              [ 1.5000,  1.0000]]]])
    """
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (2, 3) or len(size) != 4:
        raise ShapeError(f"affine_grid: takes matrices (n, 2, 3) and 4 sizes, not {theta._type}")
    height, width = size[2:]
    ys, xs = (_centres(n, bool(align_corners)) for n in (height, width))
    points = np.stack(
        [*np.broadcast_arrays(xs[None, :], ys[:, None]), np.ones((height, width))], -1
    )
    base = from_array(points.reshape(-1, 3).astype(theta.dtype.numpy))
    return (base @ theta.mT).reshape(theta.shape[0], height, width, 2)


def _centres(count: int, align: bool) -> np.ndarray:
    """Points from -1 to 1: elements' centres lie on the ends, or half an element within."""
    if count <= 1:
        return np.zeros(count)
    points = np.linspace(-1, 1, count)
    return points if align else points * (count - 1) / count


@program
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Return `input` (n, c, h, w) at the points `grid` (n, oh, ow, 2): x and y from -1 to 1.

    Of volumes, (n, c, d, h, w), at points (n, od, oh, ow, 3): x, y and z.

    Args:
        input: images, (n, c, h, w), or volumes.
        grid: where to look in them, (n, oh, ow, 2): x and y, from -1 to 1.
        mode: "bilinear", "nearest", or of images "bicubic".
        padding_mode: what is outside: "zeros", the "border", or the image's "reflection".
        align_corners: let -1 and 1 be the centres of the corners, not their edges, also where it
            is reflected. Default: False.

    Raises:
        ShapeError: `input` and `grid` aren't of four axes, or of five, or the batches differ.
        OptionError: a mode that there isn't.

    >>> grid = F.affine_grid(lucid.eye(2, 3)[None], (1, 1, 2, 2), align_corners=False)
    >>> F.grid_sample(lucid.arange(4.0).reshape(1, 1, 2, 2), grid, align_corners=False)
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    axes = input.ndim - 2
    fits = axes in (2, 3) and grid.ndim == input.ndim and grid.shape[-1] == axes
    if not fits or len(input) != len(grid):
        raise ShapeError(f"grid_sample: takes (n, c, h, w) and (n, oh, ow, 2), not {grid._type}")
    modes = ("bilinear", "nearest", "bicubic")[: 5 - axes]
    if mode not in modes or padding_mode not in ("zeros", "border", "reflection"):
        raise OptionError(f"grid_sample: no mode {mode!r} with padding_mode {padding_mode!r}")
    places = []
    for axis, length in enumerate(reversed(input.shape[2:])):
        point = grid[..., axis] + 1
        places.append(point * ((length - 1) / 2) if align_corners else (point * length - 1) / 2)

    def inside(axis: int, place: Tensor) -> Tensor:
        if padding_mode == "zeros":
            return place
        last = input.shape[-1 - axis] - 1
        if padding_mode == "reflection":
            place = _reflected(place, last + 1, bool(align_corners))
        is_between = (place > 0) & (place < last)  # at the ends it has no gradient any more
        return lucid.where(is_between, place, place.detach().clamp(0, last))

    if mode == "nearest":
        found = _at(input, [inside(axis, place).round() for axis, place in enumerate(places)])
        always = lucid.ones_like(found, dtype=lucid.bool)
        return lucid.where(always, found, places[0].unsqueeze(1))  # the grid's gradient is zeros
    taps = [
        _cubic_taps(place, partial(inside, axis))
        if mode == "bicubic"
        else _linear_taps(inside(axis, place))
        for axis, place in enumerate(places)
    ]
    total: Any = 0.0
    for corner in product(*taps):
        weight = math.prod(weight for _, weight in corner)
        total = total + _at(input, [place for place, _ in corner]) * weight.unsqueeze(1)
    result: Tensor = total
    return result


Taps = list[tuple[Tensor, Any]]


def _linear_taps(place: Tensor) -> Taps:
    """Both whole places beside one, with their weights."""
    first = place.detach().floor()
    part = place - first
    return [(first, 1 - part), (first + 1, part)]


def _cubic_taps(place: Tensor, inside: Callable[[Tensor], Tensor]) -> Taps:
    """The four whole places around one, each of them brought inside, with Keys' weights."""
    first = place.detach().floor()
    part = place - first
    weights = _far(part + 1), _near(part), _near(1 - part), _far(2 - part)
    return [(inside(first + i - 1), weight) for i, weight in enumerate(weights)]


def _reflected(place: Tensor, length: int, align: bool) -> Tensor:
    """A place as mirrors at both ends show it: at the centres of the last elements, or edges."""
    low, span = (0.0, length - 1) if align else (-0.5, length)
    if not span:
        return place * 0.0
    distance = (place - low).abs()
    part = lucid.fmod(distance, span)
    is_odd = (distance.detach() / span).floor() % 2 == 1
    return lucid.where(is_odd, span - part, part) + low


def _at(input: Tensor, places: Sequence[Tensor]) -> Tensor:
    """The elements at whole places, an index (n, *out) for each axis, the last first; 0 outside."""
    count, channels, *lengths = input.shape
    out = places[0].shape[1:]
    inside, index, step = None, None, 1
    for place, length in zip(places, reversed(lengths), strict=True):
        is_inside = (place >= 0) & (place < length)
        part = place.clamp(0, length - 1).long() * step
        inside = is_inside if inside is None else inside & is_inside
        index, step = part if index is None else index + part, step * length
    assert index is not None and inside is not None
    index = index.reshape(count, 1, -1)
    flat = input.reshape(count, channels, step)
    found = ops.gather(flat, index.expand(count, channels, index.shape[-1]), axis=2)
    return lucid.where(inside.unsqueeze(1), found.reshape(count, channels, *out), 0.0)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Turn channels into space: (…, c * r * r, h, w) becomes (…, c, h * r, w * r).

    Each run of r squared channels becomes a square of pixels, row by row.

    Reference: Shi et al., 2016.

    Args:
        upscale_factor: r, by how much both axes grow.

    Raises:
        ShapeError: the channels aren't a multiple of r squared.

    >>> F.pixel_shuffle(lucid.arange(4.0).reshape(1, 4, 1, 1), 2).squeeze()
    tensor([[0., 1.],
            [2., 3.]])
    """
    r = upscale_factor
    if input.ndim < 3 or input.shape[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle: channels must be divisible by the square of {r}")
    *lead, channels, height, width = input.shape
    split = input.reshape(*lead, channels // (r * r), r, r, height, width)
    n = len(lead)
    turned = split.permute(*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return turned.reshape(*lead, channels // (r * r), height * r, width * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Turn space into channels: (…, c, h * r, w * r) becomes (…, c * r * r, h, w).

    The inverse of `pixel_shuffle`: each square of pixels becomes a run of channels.

    Args:
        downscale_factor: r, by how much both axes shrink.

    Raises:
        ShapeError: an axis isn't a multiple of r.

    >>> F.pixel_unshuffle(lucid.arange(4.0).reshape(1, 1, 2, 2), 2).flatten()
    tensor([0., 1., 2., 3.])
    """
    r = downscale_factor
    if input.ndim < 3 or input.shape[-1] % r or input.shape[-2] % r:
        raise ShapeError(f"pixel_unshuffle: height and width must be divisible by {r}")
    *lead, channels, height, width = input.shape
    split = input.reshape(*lead, channels, height // r, r, width // r, r)
    n = len(lead)
    turned = split.permute(*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return turned.reshape(*lead, channels * r * r, height // r, width // r)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Return the channels (axis 1) in an order that takes one of each group in turn.

    Args:
        input: (n, c, *).
        groups: the channels are cut into this many groups, which don't mix.

    Raises:
        ShapeError: the channels can't be cut into that many groups.

    >>> F.channel_shuffle(lucid.arange(4.0).reshape(1, 4, 1), 2).flatten()
    tensor([0., 2., 1., 3.])
    """
    if input.ndim < 3 or input.shape[1] % groups:
        raise ShapeError(f"channel_shuffle: {groups} groups don't divide the channels")
    count, channels, *rest = input.shape
    split = input.reshape(count, groups, channels // groups, *rest)
    return split.transpose(1, 2).reshape(input.shape)
