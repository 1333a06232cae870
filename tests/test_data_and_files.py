"""Datasets and loaders, saving and loading, and PyTorch's global switches."""

from __future__ import annotations

import pickle
import re
from typing import Any, ClassVar

import numpy as np
import pytest

import lucid
from lucid import ArgumentError, OptionError, ShapeError, nn
from lucid.utils import data
from lucid.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

X = lucid.arange(10)


def rows(loader: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


def test_a_loader_cuts_batches() -> None:
    assert rows(DataLoader(TensorDataset(X), batch_size=4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(DataLoader(TensorDataset(X), batch_size=4)) == 3
    whole = DataLoader(TensorDataset(X), batch_size=4, drop_last=True)
    assert rows(whole) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(whole) == 2


def test_a_shuffled_loader_follows_the_seed() -> None:
    loader = DataLoader(TensorDataset(X), batch_size=10, shuffle=True)
    lucid.manual_seed(3)
    first, second = rows(loader), rows(loader)
    lucid.manual_seed(3)
    assert rows(loader) == first
    assert first != second
    assert sorted(first[0]) == list(range(10))


class Pairs(Dataset):
    """Samples of many kinds."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < 3:
            raise IndexError(index)
        return {"x": lucid.ones(2) * index, "y": np.float32(index), "n": index, "s": str(index)}


def test_samples_are_collated_by_kind() -> None:
    (batch,) = DataLoader(Pairs(), batch_size=3)
    assert batch["x"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert batch["y"].dtype is lucid.float32
    assert batch["n"].tolist() == [0, 1, 2]
    assert batch["s"] == ["0", "1", "2"]
    (listed,) = DataLoader([(1, 2.5), (3, 4.5)], batch_size=2)
    assert [part.dtype for part in listed] == [lucid.int64, lucid.float64]
    with pytest.raises(lucid.ArgumentError, match="found object"):
        list(DataLoader([object()], batch_size=1))


@pytest.mark.parametrize(
    ("samples", "kind", "text"),
    [
        ([np.ones(2), np.ones(3)], lucid.ShapeError, "one shape, not [2] and [3]"),
        ([lucid.ones(2), lucid.ones(3)], lucid.ShapeError, "stack: "),
        ([(1, 2), (1,)], lucid.ShapeError, "one number of parts, not 2 and 1"),
        ([{"x": 1}, {"y": 1}], lucid.ArgumentError, "a sample lacks the key 'x'"),
        ([{"x": 1}, (1,)], lucid.ArgumentError, "several types, dict and tuple"),
        ([np.ones(2), None], lucid.LucidError, "default_collate: "),
        ([1, None], lucid.LucidError, "tensor: "),
    ],
)
def test_samples_that_differ_are_not_collated(samples: Any, kind: type, text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        list(DataLoader(samples, batch_size=2))
    with pytest.raises(lucid.ArgumentError, match="sampler must be iterable, not 3"):
        DataLoader(samples, sampler=3)


@pytest.mark.parametrize("size", [0, -2, 2.0, True])
def test_a_batch_has_samples(size: Any) -> None:
    for make in (
        lambda: DataLoader(TensorDataset(X), batch_size=size),
        lambda: data.BatchSampler(range(5), size, drop_last=False),
    ):
        with pytest.raises(ValueError, match="batch_size must be a positive int, not"):
            make()


@pytest.mark.parametrize("count", [0, -2, 2.0, "a"])
def test_samplers_draw_a_positive_number_of_samples(count: Any) -> None:
    for make in (data.RandomSampler, data.WeightedRandomSampler):
        with pytest.raises(lucid.OptionError, match="num_samples must be a positive int, not"):
            make([1.0, 2.0], num_samples=count)


def test_parts_of_datasets() -> None:
    data = TensorDataset(X, X * 2)
    parts = random_split(data, [0.6, 0.4])
    assert [len(part) for part in parts] == [6, 4]
    assert sorted(int(row[0]) for part in parts for row in part) == list(range(10))
    both = ConcatDataset([Subset(data, [3, 4]), data])
    assert (len(both), both[1][0].item(), both[2][0].item(), both[-1][1].item()) == (12, 4, 0, 18)
    with pytest.raises(lucid.OptionError, match="lengths must sum to"):
        random_split(data, [3, 3])
    with pytest.raises(lucid.ShapeError, match="Size mismatch"):
        TensorDataset(X, X[:3])


def test_a_loader_gives_a_dataset_plain_ints() -> None:
    """Of its own order, of a subset's, and where a batch is taken from a tensor's rows besides."""

    class Noting(Dataset):
        def __init__(self) -> None:
            self.asked: list[Any] = []

        def __len__(self) -> int:
            return 7

        def __getitem__(self, index: int) -> int:
            self.asked.append(index)
            return index

    for size in (3, None):
        for shuffle in (False, True):
            noting = Noting()
            given = list(DataLoader(noting, batch_size=size, shuffle=shuffle))
            assert sorted(noting.asked) == list(range(7))
            assert {type(index) for index in noting.asked} == {int}
            assert size is None or [len(batch) for batch in given] == [3, 3, 1]
    noting = Noting()
    part = Subset(noting, [5, 2, 4])
    batches = DataLoader(part, batch_size=2, drop_last=True)
    assert [batch.tolist() for batch in batches] == [[5, 2]] and noting.asked == [5, 2]
    nested = Subset(Subset(TensorDataset(X), [9, 8, 7]), [2, 0])
    assert rows(DataLoader(nested, batch_size=2)) == [[7, 9]]


def test_an_endless_dataset() -> None:
    class Count(IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(5))

    assert [b.tolist() for b in DataLoader(Count(), batch_size=2)] == [[0, 1], [2, 3], [4]]


def test_a_training_loop_over_a_loader_is_traced_once() -> None:
    layer = nn.Linear(1, 1)
    opt = lucid.optim.SGD(layer.parameters(), lr=0.01)

    @lucid.compile
    def step(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
        opt.zero_grad()
        loss = nn.functional.mse_loss(layer(x), y)
        loss.backward()
        opt.step()
        return loss

    x = lucid.linspace(0, 1, 10).view(-1, 1)
    loader = DataLoader(TensorDataset(x, 3 * x), batch_size=5, shuffle=True)
    for _ in range(3):
        for a, b in loader:
            step(a, b)
    assert step.stats.traces == 1


def test_programs_that_ask_for_a_gpu_get_the_cpu() -> None:
    device = lucid.device("cuda" if lucid.cuda.is_available() else "cpu")
    assert lucid.zeros(2).to(device).device == "cpu"
    assert not lucid.backends.mps.is_available()
    assert lucid.cuda.device_count() == 0
    assert not lucid.accelerator.is_available() and lucid.accelerator.device_count() == 0
    assert lucid.accelerator.current_accelerator(check_available=True) is None
    with pytest.raises(lucid.ArgumentError, match="current_accelerator: check_available must be"):
        lucid.accelerator.current_accelerator("cpu")
    assert not (lucid.distributed.is_available() or lucid.distributed.is_initialized())
    lucid.cuda.manual_seed_all(0)
    assert lucid.cuda.memory_allocated() == lucid.cuda.max_memory_allocated("cuda:0") == 0
    assert lucid.cuda.memory_reserved() == lucid.cuda.max_memory_reserved(0) == 0
    lucid.backends.cudnn.deterministic = True
    lucid.use_deterministic_algorithms(True)
    lucid.set_float32_matmul_precision("highest")
    lucid.set_num_threads(lucid.get_num_threads())
    with pytest.raises(lucid.OptionError):
        lucid.set_num_threads(0)


def test_samplers_say_what_comes_and_in_which_order() -> None:
    rows = list(range(6))
    assert list(data.SequentialSampler(rows)) == rows
    assert sorted(data.RandomSampler(rows)) == rows
    assert sorted(data.SubsetRandomSampler([5, 1])) == [1, 5]
    assert len(list(data.RandomSampler(rows, replacement=True, num_samples=9))) == 9
    assert set(data.WeightedRandomSampler([0.0, 1.0, 0.0], 4)) == {1}
    batches = data.BatchSampler(data.SequentialSampler(rows), 4, drop_last=False)
    assert list(batches) == [[0, 1, 2, 3], [4, 5]]
    assert len(batches) == 2
    dataset = data.TensorDataset(lucid.arange(6))
    loader = data.DataLoader(dataset, batch_sampler=batches, num_workers=2, in_order=False)
    assert [batch[0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5]]


def test_parts_of_a_dataset_are_equally_long_and_shuffled_alike() -> None:
    def parts(**options: Any) -> list[list[int]]:
        samplers = [data.DistributedSampler(range(7), 3, rank, **options) for rank in range(3)]
        for sampler in samplers:
            sampler.set_epoch(2)
        found = [list(sampler) for sampler in samplers]
        assert [len(sampler) for sampler in samplers] == [len(part) for part in found]
        return found

    assert parts(shuffle=False) == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert parts(shuffle=False, drop_last=True) == [[0, 3], [1, 4], [2, 5]]
    assert sorted({index for part in parts() for index in part}) == list(range(7))
    assert parts() == parts() != parts(seed=1)


def test_datasets_are_stacked_and_chained() -> None:
    x, y = data.TensorDataset(lucid.arange(3)), [10, 20, 30]
    pairs = data.StackDataset(x, y)
    assert len(pairs) == 3
    assert (pairs[1][0][0].item(), pairs[1][1]) == (1, 20)
    assert data.StackDataset(label=y)[2] == {"label": 30}
    with pytest.raises(ValueError, match="Size mismatch between datasets"):
        data.StackDataset(x, [1])
    assert list(data.ChainDataset([[1, 2], [3]])) == [1, 2, 3]  # type: ignore[list-item]


def test_of_a_tensor_with_history_pickle_keeps_data_and_flag() -> None:
    x = lucid.ones(2, requires_grad=True)
    loaded = pickle.loads(pickle.dumps(x * 3))
    assert loaded.tolist() == [3.0, 3.0]
    assert loaded.is_leaf and loaded.requires_grad


def test_other_layouts_and_memory_formats_change_nothing() -> None:
    x = lucid.ones(1, 2, 3, 3)
    assert x.layout is lucid.strided and repr(lucid.strided) == "lucid.strided"
    assert x.contiguous(memory_format=lucid.channels_last) is x
    assert x.to(memory_format=lucid.channels_last) is x
    assert x.is_contiguous(memory_format=lucid.contiguous_format)
    net = nn.Conv2d(2, 2, 3).to(memory_format=lucid.channels_last)
    assert net(x).shape == (1, 2, 1, 1)
    assert pickle.loads(pickle.dumps(lucid.channels_last)) is lucid.channels_last
    with pytest.raises(TypeError, match=r"contiguous: memory_format must be a lucid\.memory"):
        x.contiguous(memory_format="rows")


def test_programs_are_told_what_they_have_set() -> None:
    try:
        lucid.use_deterministic_algorithms(True, warn_only=True)
        assert lucid.are_deterministic_algorithms_enabled()
        assert lucid.is_deterministic_algorithms_warn_only_enabled()
        lucid.set_float32_matmul_precision("medium")
        assert lucid.get_float32_matmul_precision() == "medium"
    finally:
        lucid.use_deterministic_algorithms(False)
        lucid.set_float32_matmul_precision("highest")
    assert not lucid.are_deterministic_algorithms_enabled()
    assert lucid.get_num_interop_threads() == 1
    assert lucid.set_flush_denormal(False) and not lucid.set_flush_denormal(True)
    assert not lucid.is_anomaly_enabled()
    assert lucid.GradScaler is lucid.amp.GradScaler


def test_a_step_that_asks_for_settings_is_told_those_of_now(prepared: Any) -> None:
    @prepared
    def step() -> tuple[Any, ...]:
        return (
            lucid.are_deterministic_algorithms_enabled(),
            lucid.is_deterministic_algorithms_warn_only_enabled(),
            lucid.get_float32_matmul_precision(),
        )

    try:
        assert step() == (False, False, "highest")
        lucid.use_deterministic_algorithms(True, warn_only=True)
        assert step() == (True, True, "highest")
        lucid.set_float32_matmul_precision("high")
        assert step() == (True, True, "high")
    finally:
        lucid.use_deterministic_algorithms(False)
        lucid.set_float32_matmul_precision("highest")
    assert step() == (False, False, "highest")


def test_a_forked_generator_is_put_back() -> None:
    lucid.manual_seed(3)
    expected = lucid.rand(2)
    lucid.manual_seed(3)
    with pytest.raises(ZeroDivisionError), lucid.random.fork_rng():
        lucid.manual_seed(7)
        lucid.rand(5)
        _ = 1 / 0
    assert lucid.equal(lucid.rand(2), expected)
    with lucid.random.fork_rng(enabled=False):
        lucid.manual_seed(3)
    assert lucid.equal(lucid.rand(2), expected)


def test_a_module_whose_values_are_to_be_set_draws_nothing() -> None:
    lucid.manual_seed(3)
    expected = lucid.rand(2)
    lucid.manual_seed(3)
    layer = nn.utils.skip_init(nn.Linear, 3, 2, dtype=lucid.float64)
    assert layer.weight.shape == (2, 3) and layer.weight.dtype is lucid.float64
    assert lucid.equal(lucid.rand(2), expected)


def test_data_is_loaded_by_no_worker_and_converted_in_its_containers() -> None:
    assert data.get_worker_info() is None
    found = data.default_convert({"x": [np.ones(2), "name"], "y": (np.float64(2.0), 3)})
    assert isinstance(found["x"][0], lucid.Tensor) and found["x"][1] == "name"
    assert found["y"][0].item() == 2.0 and found["y"][1] == 3


def test_a_tensor_lies_on_the_bytes_of_a_file() -> None:
    data = bytearray(b"head" + np.arange(5, dtype=np.float32).tobytes())
    found = lucid.frombuffer(data, dtype=lucid.float32, offset=4)
    found[0] = 7.0
    assert np.frombuffer(data, np.float32, 5, 4).tolist() == found.tolist() == [7, 1, 2, 3, 4]
    part = lucid.frombuffer(data, dtype=lucid.float32, count=2, offset=8, requires_grad=True)
    assert part.tolist() == [1.0, 2.0] and part.requires_grad
    with pytest.raises(lucid.LucidError, match="the memory of this tensor is read-only"):
        lucid.frombuffer(bytes(4), dtype=lucid.uint8).add_(1)
    for wrong in (b"", b"abc"):
        with pytest.raises(ValueError, match="frombuffer: "):
            lucid.frombuffer(wrong, dtype=lucid.float32)


def test_a_dataset_gives_the_samples_of_a_batch_at_once() -> None:
    class Squares(Dataset):
        asked: ClassVar[list[list[int]]] = []

        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("one by one")

        def __getitems__(self, indices: list[int]) -> list[Any]:
            self.asked.append(list(indices))
            return [lucid.tensor(index * index) for index in indices]

    assert [batch.tolist() for batch in DataLoader(Squares(), 2)] == [[0, 1], [4, 9], [16]]
    assert Squares.asked == [[0, 1], [2, 3], [4]]
    part = Subset(Squares(), [4, 1, 3])
    assert [batch.tolist() for batch in DataLoader(part, 2)] == [[16, 1], [9]]


def test_a_tensor_dataset_with_samples_of_its_own_is_asked_for_each() -> None:
    class Alternating(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            (x,) = super().__getitem__(index)
            return -x if index % 2 else x

    found = DataLoader(Alternating(lucid.arange(5)), 3)
    assert [batch.tolist() for batch in found] == [[0, -1, 2], [-3, 4]]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: ConcatDataset([]), OptionError, "should not be an empty iterable"),
        (lambda: ConcatDataset([[1], [2]])[-3], IndexError, "index -3 is out of range for 2"),
        (lambda: ConcatDataset([[1], [2]])[2], IndexError, "index 2 is out of range for 2"),
        (lambda: data.RandomSampler([1], replacement="a"), ArgumentError, "replacement must be"),
        (lambda: data.WeightedRandomSampler([[1.0]], 1), ShapeError, r"not of shape \[1, 1\]"),
        (lambda: data.BatchSampler([1], 1, 5), ArgumentError, "drop_last must be True or False"),
        (lambda: data.DistributedSampler([1], 2, 2), OptionError, r"rank should be in \[0, 1\]"),
        (lambda: data.DistributedSampler([1]), OptionError, "num_replicas must be a positive int"),
    ],
)
def test_wrong_datasets_and_samplers(wrong: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()
