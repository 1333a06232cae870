"""Convolutions: contractions of windows over the padded input with the weights.

Where less than the highest precision will do, some are products of transformed tiles instead.

A convolution is linear in the input and in the weights, so each derivative of a convolution, of its
input's gradient and of its weights' gradient is one of these three again. Layouts are PyTorch's:
input (n, c, *lengths), weight (o, c / groups, *sizes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod
from operator import index

from lucid.choices import check_choice
from lucid.functions.creation import zeros
from lucid.functions.gradients import with_gradient
from lucid.ir import ops
from lucid.ir.errors import OptionError, ShapeError
from lucid.ir.ops.contraction import split_indices
from lucid.ir.types import Shape, f32
from lucid.nn.functional import winograd
from lucid.nn.functional.padding import pad
from lucid.nn.functional.sliding import (
    Ints,
    Size,
    Windows,
    add_windows,
    batched,
    entries,
    last_axes,
    of_each_rank,
    resized,
    same_dtype,
    same_padding,
    times,
    windows_of,
)
from lucid.settings import get_float32_matmul_precision
from lucid.tensor.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution but for its tensors: it has no sizes but those of its windows.

    Attributes:
        is_transformed: whether it is computed by Winograd's algorithm.
    """

    windows: Windows
    groups: int
    is_transformed: bool = False


def _split(x: Tensor, axis: int, groups: int) -> Tensor:
    """Make an axis of channels two: the group, and the channel within it."""
    return x.reshape(*x.shape[:axis], groups, -1, *x.shape[axis + 1 :])


def _contract(weight: Tensor, x: Tensor, indices: str, groups: int) -> Tensor:
    """Contract weights (o, c, ...) with (n, channels, ...) to (n, channels, ...).

    The axes have letters: n examples, o and c channels, xyz positions, ijk places in a window. With
    groups, which every axis of all channels is split into, `g` is one more.
    """
    if groups > 1:
        weight, x = _split(weight, 0, groups), _split(x, 1, groups)
        weights, others, result = split_indices(indices)
        wide = (f"g{weights}", f"{others[0]}g{others[1:]}", f"{result[0]}g{result[1:]}")
        indices = f"{wide[0]},{wide[1]}->{wide[2]}"
    y: Tensor = ops.contract(weight, x, indices=indices)
    return y.flatten(1, 2) if groups > 1 else y


def _letters(rank: int) -> tuple[str, str]:
    return "xyz"[:rank], "ijk"[:rank]


Needs = tuple[bool, ...]
Pair = tuple[Tensor | None, Tensor | None]


def _convolution_vjp(
    g: Tensor, x: Tensor, weight: Tensor, geometry: Geometry, needs: Needs
) -> Pair:
    rest = geometry.windows.rest(x.shape[2:], g.shape[2:])
    return (
        convolution_input_gradient(g, weight, geometry, rest) if needs[0] else None,
        convolution_weight_gradient(x, g, geometry) if needs[1] else None,
    )


@with_gradient(_convolution_vjp)
def _convolution(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The result at each position: the product of a window with the weights, summed."""
    windows = geometry.windows
    if geometry.is_transformed:
        return winograd.correlate(weight, x, windows.low, windows.high, "oc,cn->on")
    at, within = _letters(windows.rank)
    names = f"oc{within},nc{at}{within}->no{at}"
    return _contract(weight, windows_of(x, windows), names, geometry.groups)


def _input_gradient_vjp(
    u: Tensor, g: Tensor, weight: Tensor, geometry: Geometry, needs: Needs
) -> Pair:
    return (
        _convolution(u, weight, geometry) if needs[0] else None,
        convolution_weight_gradient(u, g, geometry) if needs[1] else None,
    )


@with_gradient(_input_gradient_vjp)
def convolution_input_gradient(g: Tensor, weight: Tensor, geometry: Geometry, rest: Ints) -> Tensor:
    """The transpose of a convolution with respect to its input; a transposed convolution.

    rest: how many elements of the padded input lie behind the last window, on each axis.
    """
    lengths = geometry.windows.lengths(g.shape[2:], rest)
    positions = g.shape[0] * prod(g.shape[2:])
    few = positions * geometry.groups * 8 <= g.shape[1]
    if max(geometry.windows.steps) > 1 and few:
        return _spread(g, weight, geometry, lengths)
    windows = geometry.windows
    along = [_phases(windows, lengths, axis) for axis in range(windows.rank)]
    if prod(map(len, along)) > 1:  # they share what is around all of them
        low, high = (
            tuple(max(0, *(getattr(phase, end) for phase in phases)) for phases in along)
            for end in ("low", "high")
        )
        g = resized(g, low, high)
        along = [
            [replace(phase, low=phase.low - a, high=phase.high - b) for phase in phases]
            for phases, a, b in zip(along, low, high, strict=True)
        ]
    parts = [_phase(g, weight, phases, geometry, lengths) for phases in product(*along)]
    if len(parts) == 1 and parts[0][0].shape[2:] == lengths:
        return parts[0][0]
    channels = weight.shape[1] * geometry.groups
    whole: Tensor = zeros(g.shape[0], channels, *lengths, dtype=g.dtype)
    for part, place in parts:
        whole = ops.update_slice(whole, part, **place)
    return whole


def _spread(g: Tensor, weight: Tensor, geometry: Geometry, lengths: Shape) -> Tensor:
    """Add up each position's weights, scaled by its cotangent.

    Where positions are few, that takes less than copies of the weights of each phase.
    """
    rank = geometry.windows.rank
    at, within = _letters(rank)
    spread = _contract(weight, g, f"oc{within},no{at}->nc{within}{at}", geometry.groups)
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    return add_windows(ops.transpose(spread, perm=order), geometry.windows, lengths)


@dataclass(frozen=True, slots=True)
class _Phase:
    """The elements along an axis of the input that meet the same weights: every `step`-th one.

    Attributes:
        first, count: of the elements.
        weight, every, taps: the first of the weights, their distance, and how many there are.
        dilation: between windows that are one tap apart.
        low, high: what the cotangent is padded with, or cut by.
    """

    first: int
    count: int
    weight: int
    every: int
    taps: int
    dilation: int
    low: int
    high: int


def _phases(windows: Windows, lengths: Shape, axis: int) -> list[_Phase]:
    """All that any window reaches along an axis."""
    length = lengths[axis]
    size, step, dilation = windows.sizes[axis], windows.steps[axis], windows.dilations[axis]
    before, windows_along = windows.low[axis], windows.counts(lengths)[axis]
    common = gcd(step, dilation)
    weights: dict[int, list[int]] = {}  # by the first element that they meet
    for i in range(size):
        weights.setdefault(index((i * dilation - before) % step), []).append(i)
    found = []
    for first, own in sorted(weights.items()):
        position, count = first + before, -(-(length - first) // step)
        apart, reach = dilation // common, (len(own) - 1) * (dilation // common)
        last = (position - own[0] * dilation) // step  # the window that the first weight is of
        low, high = reach - last, last + count - windows_along
        if first < length and last - reach < windows_along and last + count > 0:
            every = step // common
            found.append(_Phase(first, count, own[0], every, len(own), apart, low, high))
    return found


def _phase(
    g: Tensor, weight: Tensor, phases: Sequence[_Phase], geometry: Geometry, lengths: Shape
) -> tuple[Tensor, dict[str, Ints]]:
    """The gradient of one phase along each axis, and where it belongs in the whole."""
    lead, steps = (0, 0), geometry.windows.steps
    starts = (*lead, *(phase.weight for phase in phases))
    every = (1, 1, *(phase.every for phase in phases))
    own: Tensor = ops.slice(weight, starts=starts, stops=weight.shape, steps=every)
    for axis in last_axes(weight, len(phases)):
        own = ops.flip(own, axis)
    sizes, dilations, low, high = (
        tuple(getattr(phase, name) for phase in phases)
        for name in ("taps", "dilation", "low", "high")
    )
    if geometry.is_transformed:
        part = winograd.correlate(own, g, low, high, "oc,on->cn")
    else:
        around = Windows(sizes, (1,) * len(phases), dilations, low, high)
        at, within = _letters(len(phases))
        names = f"oc{within},no{at}{within}->nc{at}"
        part = _contract(own, windows_of(g, around), names, geometry.groups)
    place = {
        "starts": (*lead, *(phase.first for phase in phases)),
        "stops": (*part.shape[:2], *lengths),
        "steps": (1, 1, *steps),
    }
    return part, place


def _weight_gradient_vjp(u: Tensor, x: Tensor, g: Tensor, geometry: Geometry, needs: Needs) -> Pair:
    rest = geometry.windows.rest(x.shape[2:], g.shape[2:])
    return (
        convolution_input_gradient(g, u, geometry, rest) if needs[0] else None,
        _convolution(x, u, geometry) if needs[1] else None,
    )


@with_gradient(_weight_gradient_vjp)
def convolution_weight_gradient(x: Tensor, g: Tensor, geometry: Geometry) -> Tensor:
    """The transpose of a convolution with respect to its weights."""
    groups = geometry.groups
    if geometry.is_transformed:
        return winograd.weight_gradient(x, g, geometry.windows.low, geometry.windows.high)
    at, within = _letters(geometry.windows.rank)
    windows = windows_of(x, geometry.windows)
    if groups == 1:
        return ops.contract(g, windows, indices=f"no{at},nc{at}{within}->oc{within}")
    indices = f"ngo{at},ngc{at}{within}->goc{within}"
    split = ops.contract(_split(g, 1, groups), _split(windows, 1, groups), indices=indices)
    return split.reshape(g.shape[1], *split.shape[2:])


# The functions of the API ---------------------------------------------------------------------


def _check_channels(name: str, x: Tensor, weight: Tensor, groups: int, transposed: bool) -> None:
    same_dtype(name, x, weight)
    given = f"Given groups={groups}, weight of size {list(weight.shape)}"
    if weight.ndim != x.ndim:
        raise ShapeError(f"{name}: {given}: expected a weight of {x.ndim} axes")
    if groups < 1:
        raise OptionError(f"{name}: non-positive groups is not supported, got {groups}")
    if weight.shape[0] % groups:
        raise ShapeError(f"{name}: axis 0 of the weight must be divisible by groups={groups}")
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if x.shape[1] != expected:
        start = given.replace("groups", "transposed=1, groups") if transposed else given
        raise ShapeError(
            f"{name}: {start}, expected input{list(x.shape)} to have {expected} channels, but got "
            f"{x.shape[1]} channels instead"
        )


def _with_bias(name: str, y: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return y
    channels = y.shape[1]
    if tuple(bias.shape) != (channels,):
        raise ShapeError(f"{name}: expected a bias of {channels} elements, got {list(bias.shape)}")
    return y + bias.reshape(channels, *([1] * (y.ndim - 2)))


def _padding(
    name: str, padding: Size | str, sizes: Ints, steps: Ints, dilations: Ints
) -> tuple[Ints, Ints]:
    """How much is padded before and behind."""
    rank = len(sizes)
    if not isinstance(padding, str):
        both = entries(name, "padding", padding, rank, 0)
        return both, both
    if padding == "valid":
        return (0,) * rank, (0,) * rank
    check_choice(padding, "padding", name, ("valid", "same"))
    if max(steps) > 1:
        raise OptionError(f"{name}: padding='same' is not supported for strided convolutions")
    return same_padding(sizes, dilations)


def geometry_of(
    name: str,
    input: Shape,
    weight: Shape,
    options: tuple[Size, Size | str, Size],
    groups: int,
) -> Geometry:
    """The geometry for these shapes and for stride, padding and dilation."""
    stride, padding, dilation = options
    sizes, lengths = tuple(weight[2:]), tuple(input[2:])
    steps = entries(name, "stride", stride, len(sizes))
    dilations = entries(name, "dilation", dilation, len(sizes))
    low, high = _padding(name, padding, sizes, steps, dilations)
    windows = Windows(sizes, steps, dilations, low, high)
    if min(sizes) < 1 or min(windows.counts(lengths)) < 1:
        padded, spans = times(windows.padded(lengths)), times(windows.spans)
        raise ShapeError(f"{name}: kernel ({spans}) is greater than the padded input ({padded})")
    return Geometry(windows, groups)


def _transformed(geometry: Geometry, x: Tensor, weight: Tensor) -> Geometry:
    """The geometry of the same convolution by Winograd's algorithm, if that may be, and pays."""
    windows = geometry.windows
    if windows.sizes != (3, 3) or {*windows.steps, *windows.dilations, geometry.groups} != {1}:
        return geometry
    if x.dtype != f32 or get_float32_matmul_precision() == "highest":
        return geometry
    is_transformed = winograd.pays(x.shape, weight.shape, windows.counts(x.shape[2:]))
    return replace(geometry, is_transformed=is_transformed)


def _conv(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlate along the last axis.

    `out[n, o, i] = bias[o] + sum over c, j of weight[o, c, j] * input[n, c, i * stride + j *
    dilation - padding]`, for places i and j on each axis. An axis of size l becomes (l + 2 padding
    - dilation (k - 1) - 1) / stride + 1, rounded down.

    Raises: `ShapeError` where the channels or sizes don't go together, `OptionError` for a stride
    or dilation below 1.

    Args:
        input: (n, c, l) or (c, l).
        weight: (o, c / groups, k).
        bias: (o,), or None.
        stride: from one window to the next; an int, or one for each axis.
        padding: zeros at both ends of each axis, an int or one for each; "valid" for none, "same"
            for as many as keep the size (only with stride 1).
        groups: the channels are cut into this many groups, which don't mix.

    >>> F.conv1d(lucid.ones(1, 2, 8), lucid.ones(4, 2, 3), stride=2).shape
    lucid.Size([1, 4, 3])
    """
    name = f"conv{rank}d"
    x, had_batch = batched(name, input, rank)
    _check_channels(name, x, weight, groups, False)
    options = stride, padding, dilation
    geometry = geometry_of(name, x.shape, weight.shape, options, groups)
    y = _convolution(x, weight, _transformed(geometry, x, weight))
    y = _with_bias(name, y, weight, bias)
    return y if had_batch else y.squeeze(0)


conv1d, conv2d, conv3d = of_each_rank(_conv)


def _conv_transpose(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """Apply the transpose of `conv1d` with the same weight.

    It is the gradient of `conv1d` with respect to its input: each element spreads the weights over
    a window of the result. An axis of size l becomes (l - 1) stride - 2 padding + dilation (k - 1)
    + output_padding + 1.

    Args:
        input: (n, o, l) or (o, l).
        weight: (o, c / groups, k).
        bias: (c,), one for each channel of the result, or None.
        stride: the distance of windows in the result.
        padding: what `conv1d` would have added: cut off at both ends.
        output_padding: how much longer the result is at its ends, less than the stride or the
            dilation.
        groups: the channels are cut into this many groups, which don't mix.

    Raises:
        ShapeError: channels or sizes that don't go together.
        OptionError: a stride or dilation below 1, or an `output_padding` that is too large.

    >>> F.conv_transpose1d(lucid.ones(1, 2, 4), lucid.ones(2, 4, 3), stride=2).shape
    lucid.Size([1, 4, 9])
    """
    name = f"conv_transpose{rank}d"
    x, had_batch = batched(name, input, rank)
    _check_channels(name, x, weight, groups, True)
    steps = entries(name, "stride", stride, rank)
    dilations = entries(name, "dilation", dilation, rank)
    ends = entries(name, "padding", padding, rank, 0)
    extra = entries(name, "output_padding", output_padding, rank, 0)
    if any(n >= max(s, d) for n, s, d in zip(extra, steps, dilations, strict=True)):
        limits = f"stride {list(steps)} or dilation {list(dilations)}"
        raise OptionError(f"{name}: output_padding {list(extra)} must be smaller than {limits}")
    windows = Windows(tuple(weight.shape[2:]), steps, dilations, ends, ends)
    lengths = windows.lengths(x.shape[2:], extra)
    if min(lengths) < 1:
        raise ShapeError(f"{name}: the output size ({times(lengths)}) is too small")
    late = [more // step for more, step in zip(extra, steps, strict=True)]
    if any(late):  # further windows, of which the input says nothing
        x = pad(x, [width for more in reversed(late) for width in (0, more)])
    rest = windows.rest(lengths, x.shape[2:])
    y = convolution_input_gradient(x, weight, Geometry(windows, groups), rest)
    y = _with_bias(name, y, weight, bias)
    return y if had_batch else y.squeeze(0)


conv_transpose1d, conv_transpose2d, conv_transpose3d = of_each_rank(_conv_transpose)
