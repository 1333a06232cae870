"""Sequences of different lengths in one tensor.

Args:
    batch_first: sequences are (n, t, …), not (t, n, …).
    sequences: tensors that differ in their first axis only.
    padding_value: what is put behind them.
    enforce_sorted: refuse sequences that don't come from the longest to the shortest; False takes
        any order.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

import lucid
from lucid.choices import check_choice
from lucid.functions.arguments import typed
from lucid.functions.checks import in_range, require
from lucid.functions.finding import found
from lucid.ir.errors import ArgumentError, OptionError, ShapeError
from lucid.ir.extents import is_open
from lucid.ir.types import f32, f64, i64
from lucid.tensor.tensor import Tensor


def pad_sequence(
    sequences: Sequence[Tensor] | Tensor,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Return sequences (l_i, …) as one tensor (l, n, …) or (n, l, …), padded to the longest.

    Args:
        padding_side: where: "right" or "left".

    Raises:
        ArgumentError: there are none, or they aren't tensors.
        OptionError: another side.

    >>> nn.utils.rnn.pad_sequence([lucid.ones(2), lucid.ones(3)], batch_first=True)
    tensor([[1., 1., 0.],
            [1., 1., 1.]])
    """
    parts = list(sequences)
    if not parts:
        raise ArgumentError("pad_sequence: expected a non-empty list of Tensors")
    check_choice(padding_side, "padding_side", "pad_sequence", ("left", "right"))
    if any(is_open(part.shape[0]) for part in parts) and len({x.dtype for x in parts}) == 1:
        batch = _gathered(parts, padding_value, from_left=padding_side == "left")
        return batch if batch_first else batch.transpose(0, 1)
    longest = max(part.shape[0] for part in parts)
    padded = []
    for part in parts:
        rest = longest - part.shape[0]
        width = [0, 0] * (part.ndim - 1)
        width += [0, rest] if padding_side == "right" else [rest, 0]
        padded.append(lucid.nn.functional.pad(part, width, value=padding_value))
    return lucid.stack(padded, 0 if batch_first else 1)


def _gathered(parts: list[Tensor], value: float, *, from_left: bool) -> Tensor:
    """Sequences (n, l, …) of lengths of each call, of which any may be the longest."""
    counts = lucid.tensor([part.shape[0] for part in parts])
    (longest,) = _listed(counts, longest_only=True)
    elements = lucid.cat(parts)
    counts = counts[:, None]
    places = lucid.arange(longest) - (longest - counts if from_left else 0)
    reached = (places >= 0) & (places < counts)
    starts = counts.cumsum(0) - counts
    padded = elements[lucid.where(reached, starts + places, 0)]
    behind = (1,) * (elements.ndim - 1)
    return padded.masked_fill(~reached.reshape(*reached.shape, *behind), value)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """Return the sequences of a padded tensor without their padding.

    The inverse of `pad_sequence`, for known lengths.

    Args:
        padded_sequences: (l, n, …).
        lengths: (n,), i64.

    >>> nn.utils.rnn.unpad_sequence(lucid.ones(3, 2), lucid.tensor([3, 1]))
    [tensor([1., 1., 1.]), tensor([1.])]
    """
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, _listed(lengths), strict=True)]


def _listed(lengths: Any, longest_only: bool = False) -> list[int]:
    """The lengths as numbers, which are open sizes of a compiled step where they vary."""
    if not isinstance(lengths, Tensor):
        return [int(n) for n in lengths]
    if lengths._known("the lengths of sequences") is not None:
        numbers: list[int] = lengths.tolist()
        return numbers
    operator.index(lengths.shape[0])  # how many there are must be known
    if longest_only:
        parts = found("longest_length", _longest, lengths)
    else:
        parts = found("sequence_lengths", _parts, lengths)
    return [part.shape[0] for part in parts]


def _parts(lengths: np.ndarray) -> list[np.ndarray]:
    """For each length an array that is so long."""
    return [np.zeros(max(int(length), 0), np.bool_) for length in lengths]


def _longest(lengths: np.ndarray) -> list[np.ndarray]:
    return _parts(lengths.max(initial=0, keepdims=True))


class PackedSequence:
    """Sequences of different lengths without padding, for recurrent layers.

    Programs get it from `pack_padded_sequence`, and may make another one with other elements: by
    `packed._replace(data=…)` or of its four parts, in which it can be unpacked.

    Args:
        data: the elements step by step, longer sequences first.
        batch_sizes: how many sequences reach each step, i64.
        sorted_indices: the examples from the longest to the shortest; None for all in order.
        unsorted_indices: where each example stands among them; None for what the former says.

    Raises:
        ShapeError: the batch sizes rise, or their sum isn't the number of elements.

    >>> packed = nn.utils.rnn.PackedSequence(lucid.tensor([1.0, 3.0, 2.0]), lucid.tensor([2, 1]))
    >>> nn.utils.rnn.pad_packed_sequence(packed)
    (tensor([[1., 3.],
            [2., 0.]]), tensor([2, 1]))
    """

    padded: Tensor
    lengths: Tensor

    def __init__(
        self,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> None:
        sizes = _listed(batch_sizes)
        count = sizes[0] if sizes else 0
        if sum(sizes) != data.shape[0] or sorted(sizes, reverse=True) != sizes:
            raise ShapeError(
                f"PackedSequence: batch_sizes {sizes} must fall, with a sum of {data.shape[0]}, "
                f"the number of elements{typed(data=data)}"
            )
        behind = [0, 0] * (data.ndim - 1)
        steps = [
            lucid.nn.functional.pad(step, [*behind, 0, count - step.shape[0]])
            for step in data.split(sizes)
        ]
        padded = lucid.stack(steps)
        lengths = lucid.tensor([sum(n > i for n in sizes) for i in range(count)], dtype=i64)
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = sorted_indices.argsort()
        if unsorted_indices is not None:
            padded, lengths = padded[:, unsorted_indices], lengths[unsorted_indices]
        self.padded, self.lengths = padded, lengths

    @classmethod
    def of_padded(cls, padded: Tensor, lengths: Tensor) -> Self:
        """Of sequences (l, n, …), padded behind, with these lengths, (n,) of i64."""
        made = cls.__new__(cls)
        made.padded, made.lengths = padded, lengths
        return made

    def _replace(self, **parts: Tensor | None) -> PackedSequence:
        """The same with other parts; with other `data` of as many elements the lengths stay."""
        known = dict(zip(_PARTS, self, strict=True))
        if unknown := [name for name in parts if name not in known]:
            raise ArgumentError(f"PackedSequence: has no {unknown[0]}, but {', '.join(_PARTS)}")
        return PackedSequence(**{**known, **parts})  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Tensor]:
        return (getattr(self, name) for name in _PARTS)

    def __getitem__(self, index: int) -> Tensor:
        found: Tensor = getattr(self, _PARTS[index])
        return found

    def __len__(self) -> int:
        return len(_PARTS)

    is_cuda = False

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with elements of another dtype, as `Tensor.to` says."""
        return self.of_padded(self.padded.to(*args, **kwargs), self.lengths)

    def cpu(self) -> PackedSequence:
        return self

    def float(self) -> PackedSequence:
        """With elements of float32."""
        return self.to(f32)

    def double(self) -> PackedSequence:
        """With elements of float64."""
        return self.to(f64)

    @property
    def sorted_indices(self) -> Tensor:
        """The examples from the longest to the shortest."""
        return self.lengths.argsort(descending=True, stable=True)

    @property
    def unsorted_indices(self) -> Tensor:
        """Where each example stands among them."""
        return self.sorted_indices.argsort()

    @property
    def batch_sizes(self) -> Tensor:
        """How many sequences reach each step, up to the last one that any reaches."""
        sizes = self._reached(self.lengths).sum(1)
        return sizes[sizes > 0]

    @property
    def data(self) -> Tensor:
        """The elements without padding, step by step, longer sequences first."""
        order = self.sorted_indices
        return self.padded[:, order][self._reached(self.lengths[order])]

    def _reached(self, lengths: Tensor) -> Tensor:
        """Whether sequences of these lengths reach each step: (l, n)."""
        steps = len(self.padded)
        text = "PackedSequence: there are {last} steps, but a sequence has the length {}"
        in_range(lengths, 0, steps + 1, text)
        return lucid.arange(steps)[:, None] < lengths


_PARTS = ("data", "batch_sizes", "sorted_indices", "unsorted_indices")


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Say of a padded tensor (l, n, …) how long its sequences are.

    Args:
        input: (l, n, …).
        lengths: (n,), a list or a tensor. Of a tensor only the order is looked at here.

    Raises:
        OptionError: there isn't one length for each sequence, a listed one isn't in 1 … l, or they
            aren't sorted.

    >>> nn.utils.rnn.pack_padded_sequence(lucid.ones(3, 2, 1), [3, 2]).lengths
    tensor([3, 2])
    """
    padded = input.transpose(0, 1) if batch_first else input
    counts = lucid.as_tensor(lengths, dtype=i64)
    if counts.shape != (padded.shape[1],):
        raise OptionError(f"pack_padded_sequence: {padded.shape[1]} lengths needed")
    if isinstance(lengths, (list, tuple)) and all(type(length) is int for length in lengths):
        wrong = [length for length in lengths if not 1 <= length <= padded.shape[0]]
        if wrong:
            raise OptionError(f"pack_padded_sequence: {wrong[0]} isn't from 1 to {padded.shape[0]}")
    elif isinstance(lengths, (list, tuple)):  # of numbers that a compiled step reads in each call
        inside = (counts >= 1) & (counts <= padded.shape[0])
        require(inside, "pack_padded_sequence: a length isn't from 1 to that of the sequences")
    if enforce_sorted:
        text = "pack_padded_sequence: lengths must be sorted in decreasing order"
        falls = (counts[1:] <= counts[:-1]).all()
        require(falls, text, "option", "\nhint: enforce_sorted=False takes any order")
    return PackedSequence.of_padded(padded, counts)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the padded tensor, as long as its longest sequence (or `total_length`), and lengths.

    Args:
        sequence: as a recurrent layer returns it.
        total_length: how long the result shall be. None for the longest.

    Raises:
        IndexOutOfRangeError: a sequence is longer than `total_length`.

    >>> packed = nn.utils.rnn.pack_sequence([lucid.ones(3), lucid.ones(2)])
    >>> nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    (tensor([[1., 1., 1.],
            [1., 1., 0.]]), tensor([3, 2]))
    """
    size = total_length
    if size is None:
        size = max(_listed(sequence.lengths, longest_only=True), default=0)
    text = "pad_packed_sequence: total_length is {last}, but a sequence has the length {}"
    in_range(sequence.lengths, 0, size + 1, text)
    padded = sequence.padded[:size]
    if size > padded.shape[0]:
        width = [0, 0] * (padded.ndim - 1) + [0, size - padded.shape[0]]
        padded = lucid.nn.functional.pad(padded, width)
    step = lucid.arange(size).reshape(-1, 1, *(1,) * (padded.ndim - 2))
    reached = step < sequence.lengths.reshape(1, -1, *(1,) * (padded.ndim - 2))
    masked: Tensor = padded.masked_fill(~reached, padding_value)
    return (masked.transpose(0, 1) if batch_first else masked), sequence.lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Return `pack_padded_sequence` of `pad_sequence`.

    What recurrent layers take where sequences differ in length.

    Raises:
        OptionError: they aren't sorted.

    >>> nn.utils.rnn.pack_sequence([lucid.ones(3, 1), lucid.ones(2, 1)]).lengths
    tensor([3, 2])
    """
    lengths = [len(part) for part in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the sequences of a `pack_sequence`, in the order that they had.

    Args:
        packed_sequences: what `pack_sequence` or a recurrent layer gave.

    >>> packed = nn.utils.rnn.pack_sequence([lucid.tensor([1, 2, 3]), lucid.tensor([4, 5])])
    >>> nn.utils.rnn.unpack_sequence(packed)
    [tensor([1, 2, 3]), tensor([4, 5])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
