"""Datasets and loaders that cut them into batches, in this process.

The order of a shuffled loader comes from lucid's generator, so `manual_seed` fixes it.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any

import numpy as np

import lucid
from lucid.ir.errors import ArgumentError, MissingRuleError, OptionError, ShapeError
from lucid.ir.frames import edge_of_module
from lucid.random import Generator
from lucid.tensor.arrays import plain_array
from lucid.tensor.tensor import Tensor


class Dataset:
    """Samples by index: subclasses have `__getitem__` and, for most uses, `__len__`."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])

    def __class_getitem__(cls, parameters: Any) -> type:
        return cls


class IterableDataset(Dataset):
    """Samples in the order that `__iter__` gives them."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")


class TensorDataset(Dataset):
    """Rows of tensors of one length: a sample is a tuple of rows."""

    def __init__(self, *tensors: Tensor) -> None:
        if any(len(tensor) != len(tensors[0]) for tensor in tensors):
            raise ShapeError("TensorDataset: Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    """The samples of a dataset at given indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """The samples of several datasets, one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes = list(accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        which = bisect.bisect_right(self.cumulative_sizes, place)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][place - before]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.cumulative_sizes else 0


class StackDataset(Dataset):
    """Samples of several datasets side by side: tuples, or dicts of datasets given by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise OptionError("StackDataset: give datasets either by position or by name")
        datasets = list(args or kwargs.values())
        if any(len(dataset) != len(datasets[0]) for dataset in datasets):
            raise OptionError("StackDataset: Size mismatch between datasets")
        self.datasets: Any = args or kwargs

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __len__(self) -> int:
        given = self.datasets
        return len(next(iter(given.values())) if isinstance(given, dict) else given[0])


class ChainDataset(IterableDataset):
    """The samples of several iterable datasets, one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """Split a dataset at random into parts of these lengths, or of these fractions."""
    size = len(dataset)
    counts = [int(length) for length in lengths]
    if abs(sum(lengths) - 1) < 1e-6 and sum(lengths) <= 1 + 1e-6 and size != 1:
        counts = [int(size * share) for share in lengths]
        for i in range(size - sum(counts)):
            counts[i % len(counts)] += 1
    if sum(counts) != size:
        raise OptionError(
            "random_split: Sum of input lengths does not equal the length of the input dataset!"
        )
    order = lucid.randperm(size, generator=generator).tolist()
    ends = list(accumulate(counts))
    starts = [0, *ends[:-1]]
    return [Subset(dataset, order[i:j]) for i, j in zip(starts, ends, strict=True)]


def get_worker_info() -> None:
    """None: all data is loaded by the thread that asks for it, never by a worker."""


def default_convert(data: Any) -> Any:
    """Arrays and NumPy's numbers as tensors, also in lists, tuples and dicts; all else as it is."""
    if isinstance(data, np.ndarray | np.generic):
        if data.dtype.kind in "SUO":
            return data
        return lucid.as_tensor(plain_array(data, "default_convert"))
    if isinstance(data, Mapping):
        return {key: default_convert(item) for key, item in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, list | tuple):
        return [default_convert(item) for item in data]
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack samples: tensors, arrays and numbers along a new first axis, containers inside."""
    first = batch[0]
    if isinstance(first, Tensor):
        return lucid.stack(list(batch))
    if isinstance(first, (np.ndarray, np.generic)):
        return lucid.from_numpy(np.stack([plain_array(item, "default_collate") for item in batch]))
    if isinstance(first, float):
        return lucid.tensor(list(batch), dtype=lucid.float64)
    if isinstance(first, (bool, int)):
        return lucid.tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([item[key] for item in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(default_collate, zip(*batch, strict=True)))
    if isinstance(first, (tuple, list)):
        return [default_collate(column) for column in zip(*batch, strict=True)]
    raise ArgumentError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{type(first).__name__}"
    )


class Sampler:
    """Says in which order a dataset's samples come; subclasses define `__iter__`."""

    def __iter__(self) -> Iterator[Any]:
        raise MissingRuleError(f"{type(self).__name__} must define __iter__()")


class SequentialSampler(Sampler):
    """0, 1, 2, …"""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All samples in a random order, or `num_samples` draws with `replacement`."""

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self.num_samples = len(data_source) if num_samples is None else num_samples
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        size, left = len(self.data_source), self.num_samples
        if self.replacement:
            drawn = lucid.randint(0, size, (left,), generator=self.generator)
            yield from drawn.tolist()
            return
        while left > 0:
            order = lucid.randperm(size, generator=self.generator).tolist()
            yield from order[:left]
            left -= size

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The listed samples in a random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for place in lucid.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """`num_samples` draws, each sample as likely as its weight says."""

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        self.weights = lucid.as_tensor(weights, dtype=lucid.float64)
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = lucid.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` of another sampler's samples."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        source = iter(self.sampler)
        while group := list(islice(source, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield group

    def __len__(self) -> int:
        size = len(self.sampler)  # type: ignore[arg-type]
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


class DataLoader:
    """Batches of a dataset's samples.

    shuffle: in a new random order each time. drop_last: without an incomplete last batch, which a
    compiled step would trace anew. `num_workers` and its like, and pinned memory, choose an
    implementation in PyTorch; here this process loads all samples.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
    ) -> None:
        if num_workers < 0:
            raise OptionError("num_workers option should be non-negative")
        if sampler is not None and shuffle:
            raise OptionError("sampler option is mutually exclusive with shuffle")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self.drop_last = drop_last
        self.generator = generator
        self.num_workers = num_workers
        self.pin_memory = pin_memory

    def _order(self) -> Iterable[int]:
        if self.sampler is not None:
            return self.sampler
        size = len(self.dataset)
        if not self.shuffle:
            return range(size)
        order: list[int] = lucid.randperm(size, generator=self.generator).tolist()
        return order

    def _groups(self, items: Iterable[Any]) -> Iterator[list[Any]]:
        """Lists of `batch_size` items."""
        assert self.batch_size is not None
        source = iter(items)
        while group := list(islice(source, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield group

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            samples: Iterable[Any] = self.dataset
            yield from (
                samples if self.batch_size is None else map(self.collate_fn, self._groups(samples))
            )
            return
        if self.batch_sampler is None and self.batch_size is None:
            yield from (self.dataset[index] for index in self._order())
            return
        groups = self._groups(self._order()) if self.batch_sampler is None else self.batch_sampler
        whole_rows = isinstance(self.dataset, TensorDataset) and self.collate_fn is default_collate
        for group in groups:
            if whole_rows:  # one gather per tensor instead of one per row
                yield list(self.dataset[lucid.tensor(list(group), dtype=lucid.int64)])
            else:
                yield self.collate_fn([self.dataset[index] for index in group])

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        items = self.dataset if self.sampler is None else self.sampler
        size = len(items)  # type: ignore[arg-type]
        if self.batch_size is None:
            return size
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)


for _name in ("dataloader", "dataset", "sampler"):  # where PyTorch has parts of this module
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = sys.modules[__name__]


edge_of_module(__name__)
