"""Datasets and loaders that cut them into batches, in this process.

The order of a shuffled loader comes from lucid's generator, so `manual_seed` fixes it.

Args:
    dataset: what is taken from.
    indices: which samples.
    generator: where random numbers come from. None is lucid's own.
    data_source: whose length counts.
    replacement: a sample may be drawn again.
"""

from __future__ import annotations

import bisect
import operator
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, cycle, islice
from multiprocessing import get_all_start_methods
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np

import lucid
from lucid.choices import check_choice, check_flag, check_flags, check_kind
from lucid.functions.border import module_at_border
from lucid.ir.errors import (
    ArgumentError,
    IndexOutOfRangeError,
    MissingRuleError,
    OptionError,
    ShapeError,
)
from lucid.random import Generator
from lucid.tensor.arrays import plain_array
from lucid.tensor.context import context
from lucid.tensor.tensor import Tensor


class Dataset:
    """Samples by index: subclasses have `__getitem__` and, for most uses, `__len__`.

    Where one has `__getitems__`, a `DataLoader` asks it for a whole batch's samples, as a list.

    >>> class Squares(lucid.utils.data.Dataset):
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, i):
    ...         return i * i
    >>> isinstance(Squares(), lucid.utils.data.Dataset), Squares()[2]
    (True, 4)
    """

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])

    def __class_getitem__(cls, parameters: Any) -> type:
        return cls


class IterableDataset(Dataset):
    """Samples in the order that `__iter__` gives them.

    >>> class Count(lucid.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(Count()), isinstance(Count(), lucid.utils.data.IterableDataset)
    ([0, 1, 2], True)
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")


class TensorDataset(Dataset):
    """Rows of tensors of one length: a sample is a tuple of rows.

    Args:
        *tensors: rows along axis 0, as many in each.

    Raises:
        ShapeError: their lengths differ.

    >>> dataset = lucid.utils.data.TensorDataset(lucid.arange(4), lucid.arange(4) * 10)
    >>> len(dataset), dataset[1]
    (4, (tensor(1), tensor(10)))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(len(tensor) != len(tensors[0]) for tensor in tensors):
            raise ShapeError("TensorDataset: Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset):
    """The samples of a dataset at given indices.

    Index i gives the dataset's sample at `indices[i]`.

    >>> list(lucid.utils.data.Subset([5, 6, 7], [2, 0]))
    [7, 5]
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return _samples(self.dataset, [self.indices[index] for index in indices])

    def __len__(self) -> int:
        return len(self.indices)


def _samples(dataset: Any, indices: Sequence[Any]) -> list[Any]:
    """The samples at these indices, all at once where the dataset can."""
    if callable(getattr(dataset, "__getitems__", None)):
        found: list[Any] = dataset.__getitems__(indices)
        return found
    return [dataset[index] for index in indices]


def _rows(dataset: Any, indices: Any) -> list[Tensor]:
    """A batch of the rows of a `TensorDataset`, or of a subset of one: one gather for each tensor.

    indices: a list, or a tensor.
    """
    if type(dataset) is Subset:
        listed = indices.tolist() if isinstance(indices, Tensor) else indices
        return _rows(dataset.dataset, [dataset.indices[index] for index in listed])
    return list(dataset[lucid.as_tensor(indices, dtype=lucid.int64)])


def _has_rows(dataset: Any) -> bool:
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return getattr(type(dataset), "__getitem__", None) is TensorDataset.__getitem__


class ConcatDataset(Dataset):
    """The samples of several datasets, one after the other.

    Args:
        datasets: with length and index, at least one.

    Raises:
        OptionError: there is no dataset.
        IndexOutOfRangeError: a sample is asked for that there isn't.

    >>> list(lucid.utils.data.ConcatDataset([[1, 2], [3]]))
    [1, 2, 3]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise OptionError("ConcatDataset: datasets should not be an empty iterable")
        self.cumulative_sizes = list(accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            problem = f"index {index} is out of range for {len(self)} samples"
            raise IndexOutOfRangeError(f"ConcatDataset: {problem}")
        which = bisect.bisect_right(self.cumulative_sizes, place)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][place - before]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class StackDataset(Dataset):
    """Samples of several datasets side by side: tuples, or dicts of datasets given by name.

    Args:
        *args: datasets, for tuples.
        **kwargs: datasets by name, for dicts.

    Raises:
        OptionError: both or none are given, or their lengths differ.

    >>> lucid.utils.data.StackDataset([1, 2], [3, 4])[1]
    (2, 4)
    """

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
    """The samples of several iterable datasets, one after the other.

    Args:
        datasets: that are iterated over.

    >>> class Count(lucid.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(lucid.utils.data.ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

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
    """Split a dataset at random into parts of these lengths, or of these fractions.

    Args:
        lengths: of the parts, or fractions that add up to 1.

    Raises:
        OptionError: they don't add up to the dataset's length, or to 1.

    >>> [len(part) for part in lucid.utils.data.random_split(range(10), [0.8, 0.2])]
    [8, 2]
    """
    size = len(dataset)
    counts = [int(length) for length in lengths]
    if abs(sum(lengths) - 1) < 1e-6 and sum(lengths) <= 1 + 1e-6 and size != 1:
        counts = [int(size * share) for share in lengths]
        for i in range(size - sum(counts)):
            counts[i % len(counts)] += 1
    if sum(counts) != size:
        raise OptionError(f"random_split: lengths must sum to {size}, not {sum(counts)}")
    order = lucid.randperm(size, generator=generator).tolist()
    ends = list(accumulate(counts))
    starts = [0, *ends[:-1]]
    return [Subset(dataset, order[i:j]) for i, j in zip(starts, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What loads samples for a `DataLoader` with workers: this process, as the only one.

    Attributes:
        id: its number, 0.
        num_workers: how many there are, 1.
        seed: of lucid's generator when the loader began.
        dataset: the loader's.

    >>> lucid.utils.data.WorkerInfo(0, 1, 5, "abc").dataset
    'abc'
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_working: dict[int, WorkerInfo] = {}  # what a thread is loading for, by its number


@contextmanager
def _working_as(info: WorkerInfo) -> Iterator[None]:
    thread = threading.get_ident()
    before = _working.get(thread)
    _working[thread] = info
    try:
        yield
    finally:
        if before is None:
            del _working[thread]
        else:
            _working[thread] = before


def get_worker_info() -> WorkerInfo | None:
    """Return what loads samples now, where a `DataLoader` was asked for workers; None elsewhere.

    Datasets that share their samples among workers ask it; the only worker gets all of them.

    >>> from lucid.utils import data
    >>> print(data.get_worker_info())
    None
    >>> class Count(data.IterableDataset):
    ...     def __iter__(self):
    ...         info = data.get_worker_info()
    ...         return iter(range(info.id, 4, info.num_workers))
    >>> [batch.tolist() for batch in data.DataLoader(Count(), batch_size=2, num_workers=3)]
    [[0, 1], [2, 3]]
    """
    return _working.get(threading.get_ident())


def default_convert(data: Any) -> Any:
    """Arrays and NumPy's numbers as tensors, also in lists, tuples and dicts; all else as it is.

    Args:
        data: arrays, numbers, or containers of them.

    >>> import numpy as np
    >>> lucid.utils.data.default_convert({"a": np.zeros(2)})
    {'a': tensor([0., 0.], dtype=lucid.float64)}
    """
    if isinstance(data, np.ndarray | np.generic):
        if data.dtype.kind in "SUO":
            return data
        return lucid.as_tensor(data)
    if isinstance(data, Mapping):
        return {key: default_convert(item) for key, item in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, list | tuple):
        return [default_convert(item) for item in data]
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack samples: tensors, arrays and numbers along a new first axis, containers inside.

    Args:
        batch: a list of samples of one structure.

    Raises:
        ArgumentError: samples of a type that can't be stacked, or of several; none.
        ShapeError: samples of several shapes, or with more parts than others.

    >>> lucid.utils.data.default_collate([(1, 2.0), (3, 4.0)])
    [tensor([1, 3]), tensor([2., 4.], dtype=lucid.float64)]
    """
    if not batch:
        raise ArgumentError("default_collate: there are no samples")
    first = batch[0]
    if isinstance(first, Tensor):
        return lucid.stack(list(batch))
    if isinstance(first, (np.ndarray, np.generic)):
        if any(type(item) is not item.__class__ for item in batch):  # which only a call knows
            return lucid.stack([lucid.as_tensor(item) for item in batch])
        arrays = [plain_array(item, "default_collate") for item in batch]
        for array in arrays:
            _require_equal("shape", list(arrays[0].shape), list(array.shape))
        return lucid.from_numpy(np.stack(arrays))
    if isinstance(first, float):
        return lucid.tensor(list(batch), dtype=lucid.float64)
    if isinstance(first, (bool, int)):
        return lucid.tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, (Mapping, tuple, list)):
        for item in batch:
            if not isinstance(item, Mapping if isinstance(first, Mapping) else (tuple, list)):
                kinds = f"{type(first).__name__} and {type(item).__name__}"
                raise ArgumentError(f"default_collate: samples of several types, {kinds}")
    if isinstance(first, Mapping):
        for item in batch:
            if lacks := first.keys() - item.keys():
                raise ArgumentError(f"default_collate: a sample lacks the key {lacks.pop()!r}")
        return {key: default_collate([item[key] for item in batch]) for key in first}
    if isinstance(first, (tuple, list)):
        for item in batch:
            _require_equal("number of parts", len(first), len(item))
        columns = [default_collate(column) for column in zip(*batch, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    raise ArgumentError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{type(first).__name__}"
    )


def _require_equal(what: str, first: object, other: object) -> None:
    if other != first:
        raise ShapeError(
            f"default_collate: samples are stacked that have one {what}, not {first} and {other}\n"
            "hint: pad them in the dataset, or pass a collate_fn that does"
        )


class Sampler:
    """Says in which order a dataset's samples come; subclasses define `__iter__`.

    >>> class Backwards(lucid.utils.data.Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> list(Backwards()), isinstance(Backwards(), lucid.utils.data.Sampler)
    ([2, 1, 0], True)
    """

    def __iter__(self) -> Iterator[Any]:
        raise MissingRuleError(f"{type(self).__name__} must define __iter__()")


class SequentialSampler(Sampler):
    """Samples in the order in which they lie in the dataset.

    It gives the numbers 0, 1, 2 and so on, up to the length.

    >>> list(lucid.utils.data.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All samples in a random order, or `num_samples` draws with `replacement`.

    Args:
        num_samples: how many are drawn. None is all of them.

    Raises:
        ArgumentError: `replacement` is no bool.
        OptionError: `num_samples` below 1.

    >>> sorted(lucid.utils.data.RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        check_flag(replacement, "replacement", "RandomSampler")
        if num_samples is not None:
            _require_count("num_samples", num_samples)
        self.data_source, self.replacement = data_source, replacement
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
    """The listed samples in a random order.

    Each of them comes once in each round.

    >>> sorted(lucid.utils.data.SubsetRandomSampler([5, 7]))
    [5, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for place in lucid.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """`num_samples` draws, each sample as likely as its weight says.

    Args:
        weights: one for each sample; they needn't add up to 1.
        num_samples: how many are drawn.

    Raises:
        ArgumentError: `replacement` is no bool.
        OptionError: `num_samples` below 1.
        ShapeError: weights that aren't in a row.

    >>> list(lucid.utils.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        check_flag(replacement, "replacement", "WeightedRandomSampler")
        _require_count("num_samples", num_samples)
        self.weights = lucid.as_tensor(weights, dtype=lucid.float64)
        if self.weights.ndim != 1:
            problem = f"weights must be in a row, not of shape {list(self.weights.shape)}"
            raise ShapeError(f"WeightedRandomSampler: {problem}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = lucid.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class DistributedSampler(Sampler):
    """One part's share of the samples, where several processes have one each.

    All parts are equally long: the first samples come again where the length can't be divided.
    Shuffled, all parts cut the same order, which `set_epoch` changes.

    Args:
        num_replicas: how many parts there are.
        rank: which one this is, from 0.
        shuffle: cut a random order, else the dataset's.
        seed: where the random order comes from, with the epoch.
        drop_last: leave the last samples out instead of taking the first ones again.

    Raises:
        ArgumentError: `shuffle` or `drop_last` is no bool.
        OptionError: no `num_replicas`, or a `rank` that isn't below it.

    >>> list(lucid.utils.data.DistributedSampler("abcde", num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        _require_count("num_replicas", num_replicas)
        check_flag(shuffle, "shuffle", "DistributedSampler")
        check_flag(drop_last, "drop_last", "DistributedSampler")
        if rank not in range(num_replicas := int(num_replicas or 0)):
            raise OptionError(f"Invalid rank {rank}, rank should be in [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        self.num_samples = _count(dataset, num_replicas, drop_last)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        order = list(range(len(self.dataset)))
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = lucid.randperm(len(order), generator=generator).tolist()
        return islice(cycle(order), self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Take another random order from now on.

        Args:
            epoch: its number.
        """
        self.epoch = epoch


def _require_count(name: str, size: Any) -> None:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise OptionError(f"{name} must be a positive int, not {size!r}")


class BatchSampler(Sampler):
    """Lists of `batch_size` of another sampler's samples.

    A `DataLoader` makes one of its `batch_size` and its sampler.

    Args:
        sampler: gives single samples.
        batch_size: how many make a batch.
        drop_last: leave a last, shorter one out.

    Raises:
        ArgumentError: `drop_last` is no bool.
        OptionError: a `batch_size` below 1.

    >>> list(lucid.utils.data.BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        _require_count("batch_size", batch_size)
        check_flag(drop_last, "drop_last", "BatchSampler")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return _groups(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        return _count(self.sampler, self.batch_size, self.drop_last)


def _groups(items: Iterable[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    """Lists of so many items; the last one may be shorter."""
    source, size = iter(items), operator.index(size)  # a number that moves is looked at
    while group := list(islice(source, size)):
        if len(group) == size or not drop_last:
            yield group


def _count(items: Any, size: int, drop_last: bool) -> int:
    """How many of these lists there are."""
    return len(items) // size if drop_last else -(-len(items) // size)


_END = object()


def _check_workers(
    num_workers: Any, timeout: Any, context: Any, prefetch_factor: Any, is_persistent: Any
) -> None:
    """Raise for options that workers haven't, or of which there would have to be some."""
    if isinstance(num_workers, bool) or not isinstance(num_workers, (int, np.integer)):
        raise ArgumentError(f"DataLoader: num_workers must be an int, not {num_workers!r}")
    if num_workers < 0:
        raise OptionError("num_workers option should be non-negative")
    if not isinstance(timeout, (int, float)):
        raise ArgumentError(f"DataLoader: timeout must be a number, not {timeout!r}")
    if timeout < 0:
        raise OptionError("timeout option should be non-negative")
    check_flag(is_persistent, "persistent_workers", "DataLoader")
    check_kind(prefetch_factor, int, "prefetch_factor", "DataLoader")
    check_kind(context, (str, BaseContext), "multiprocessing_context", "DataLoader")
    if isinstance(context, str):
        check_choice(context, "multiprocessing_context", "DataLoader", get_all_start_methods())
    if prefetch_factor is not None and prefetch_factor < 0:
        raise OptionError("prefetch_factor option should be non-negative")
    asked = [
        name
        for name, is_asked in (
            ("persistent_workers", is_persistent),
            ("prefetch_factor", prefetch_factor is not None),
            ("multiprocessing_context", context is not None),
        )
        if is_asked
    ]
    if asked and not num_workers:
        raise OptionError(f"{asked[0]} option needs num_workers > 0")


def _check_order(dataset: Any, sampler: Any, batch_sampler: Any, shuffle: bool) -> None:
    """Raise where two things say the order of the samples, or one can't."""
    for name, value in {"sampler": sampler, "batch_sampler": batch_sampler}.items():
        can = hasattr(value, "__iter__") or hasattr(value, "__getitem__")
        if value is not None and not can:
            raise ArgumentError(f"DataLoader: {name} must be iterable, not {value!r}")
    if isinstance(dataset, IterableDataset):
        given = {"shuffle": shuffle, "sampler": sampler, "batch_sampler": batch_sampler}
        for name, value in given.items():
            if value is not None and value is not False:
                raise OptionError(
                    f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                    f"{name}={value}"
                )
    if sampler is not None and shuffle:
        raise OptionError("sampler option is mutually exclusive with shuffle")


class DataLoader:
    """Batches of a dataset's samples.

    A last batch that is shorter is a new size for a compiled step. This process loads all samples,
    where they are asked for: it is the only worker, number 0, however many are wanted.

    Args:
        dataset: with length and index, or one to iterate over.
        batch_size: how many samples make a batch; None for single samples.
        shuffle: in a new random order each time. Default: False.
        sampler: says the order; not beside `shuffle`.
        batch_sampler: says whole batches; not beside the others.
        num_workers: 0 or more; above 0 `worker_init_fn` is called, and `get_worker_info` tells of
            the only worker that there is.
        collate_fn: makes a batch of a list of samples, or of a single sample what is given. None is
            `default_collate`, for single samples `default_convert`.
        pin_memory: True or False; no GPU reads the memory.
        drop_last: leave a last, shorter batch out.
        timeout: seconds to wait for a worker, 0 or more; none is ever waited for.
        worker_init_fn: called with 0 before the first sample of each iteration is loaded, where
            there are workers.
        multiprocessing_context: how processes would be started; None, or, with workers, a name or a
            context of `multiprocessing`'s.
        prefetch_factor: how many batches workers would load ahead; None, or, with workers, an int.
        persistent_workers: call `worker_init_fn` for the first iteration alone; only with workers.
        pin_memory_device: a device's name; no memory is pinned.
        in_order: True or False; batches of the only worker come in order.

    Raises:
        OptionError: options that exclude each other, or one that isn't in its range.
        ArgumentError: an argument of another type.

    >>> dataset = lucid.utils.data.TensorDataset(lucid.arange(4), lucid.arange(4) * 10)
    >>> loader = lucid.utils.data.DataLoader(dataset, batch_size=2)
    >>> [x.tolist() for x, _ in loader]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
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
        in_order: bool = True,
    ) -> None:
        check_flags("DataLoader", shuffle=shuffle, drop_last=drop_last)
        check_kind(generator, Generator, "generator", "DataLoader")
        for name, function in (("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
            if function is not None and not callable(function):
                raise ArgumentError(f"DataLoader: {name} must be a function, not {function!r}")
        _check_workers(
            num_workers, timeout, multiprocessing_context, prefetch_factor, persistent_workers
        )
        check_flag(pin_memory, "pin_memory", "DataLoader")
        check_flag(in_order, "in_order", "DataLoader")
        check_kind(pin_memory_device, str, "pin_memory_device", "DataLoader")
        _check_order(dataset, sampler, batch_sampler, bool(shuffle))
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler or drop_last):
            raise OptionError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if batch_size is None and drop_last:
            raise OptionError("batch_size=None, without batches, excludes drop_last")
        if batch_size is not None:
            _require_count("batch_size", batch_size)
        is_single = batch_size is None and batch_sampler is None
        self.dataset, self.batch_size = dataset, batch_size
        self.shuffle = bool(shuffle)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        default = default_convert if is_single else default_collate
        self.collate_fn = default if collate_fn is None else collate_fn
        self.drop_last, self.generator, self.num_workers = drop_last, generator, num_workers
        self.pin_memory, self.worker_init_fn = pin_memory, worker_init_fn
        self.persistent_workers = persistent_workers
        self._has_begun = False

    def __iter__(self) -> Iterator[Any]:
        return _Iteration(self)

    def _begin(self) -> WorkerInfo | None:
        """What the worker of an iteration is told, which begins; None: there is none."""
        if not self.num_workers:
            return None
        info = WorkerInfo(0, 1, lucid.initial_seed(), self.dataset)
        if self.worker_init_fn is not None and not (self.persistent_workers and self._has_begun):
            with _working_as(info):
                self.worker_init_fn(info.id)
        self._has_begun = True
        return info

    def _order(self) -> Tensor:
        """The indices of one iteration."""
        size = len(self.dataset)
        if self.shuffle:
            return lucid.randperm(size, generator=self.generator)
        return lucid.arange(size)

    def _parts(self) -> Iterator[Any]:
        """Batches, or single samples, in an order that others say."""
        size, groups = self.batch_size, self.batch_sampler
        if isinstance(self.dataset, IterableDataset):
            samples: Iterable[Any] = self.dataset
            parts = samples if size is None else _groups(samples, size, self.drop_last)
            yield from map(self.collate_fn, parts)
            return
        if groups is None:
            assert self.sampler is not None
            if size is None:
                yield from (self.collate_fn(self.dataset[index]) for index in self.sampler)
                return
            groups = _groups(self.sampler, size, self.drop_last)
        for group in groups:
            yield self._batch(list(group))

    def _batch(self, indices: Any) -> Any:
        """The batch of the samples at these indices, a list or a tensor."""
        if self._takes_rows():
            return _rows(self.dataset, indices)
        listed = indices.tolist() if isinstance(indices, Tensor) else indices
        return self.collate_fn(_samples(self.dataset, listed))

    def _takes_rows(self) -> bool:
        return self.collate_fn is default_collate and _has_rows(self.dataset)

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        items: Any = self.dataset if self.sampler is None else self.sampler
        if self.batch_size is None:
            return len(items)
        return _count(items, self.batch_size, self.drop_last)


class _Iteration:
    """One way through a loader's batches.

    How far it has come stands in attributes, so a compiled step may go on with one that it found,
    as with an object of the user's.
    """

    def __init__(self, loader: DataLoader) -> None:
        self.loader, self.at = loader, 0
        self.order: Tensor | None = None  # known once the first batch is asked for
        self.listed: list[int] | None = None  # the same, outside of a compiled step
        self.parts: Iterator[Any] | None = None  # where it isn't the loader that says the order
        self.info: WorkerInfo | None = None

    def __iter__(self) -> _Iteration:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        loader = self.loader
        if self.order is None and self.parts is None:
            self.info = loader._begin()
            is_told = (
                isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is not None
            )
            if is_told or loader.sampler is not None:
                self.parts = loader._parts()
            else:
                self.order = loader._order()
        if self.info is None:
            return self._next()
        with _working_as(self.info):
            return self._next()

    def _next(self) -> Any:
        if self.parts is not None:
            return next(self.parts)
        loader, at = self.loader, self.at
        size = loader.batch_size
        order = self._places(size is not None and loader._takes_rows())
        if at + (size if size is not None and loader.drop_last else 1) > len(order):
            raise StopIteration
        if size is None:
            self.at = at + 1
            index = order[at]
            if isinstance(index, Tensor):
                index = index.item()
            return loader.collate_fn(loader.dataset[index])
        self.at = at + size
        return loader._batch(order[at : at + size])

    def _places(self, as_rows: bool) -> Any:
        """The order: a list where samples are taken one by one, outside of a compiled step."""
        if as_rows or context.recorder is not None:
            return self.order
        if self.listed is None:
            assert self.order is not None
            self.listed = self.order.tolist()
        return self.listed


# Where PyTorch has parts of this module.
for _name in ("dataloader", "dataset", "distributed", "sampler"):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = sys.modules[__name__]


module_at_border(__name__)
