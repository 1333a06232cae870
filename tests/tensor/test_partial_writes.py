"""Writes to a part of a tensor: they take the time of the part, and differ in nothing else."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from ir.op_cases import filled
from numpy.lib.stride_tricks import as_strided

import lucid
from lucid import func
from lucid.autograd.rules import derivative_of
from lucid.ir.inference import application
from lucid.ir.op import OPS, Op, Sample
from lucid.ir.types import f32
from lucid.runtime.entry.calls import MOST_TIMES
from lucid.runtime.entry.common import Common
from lucid.tensor.applied import applied

ROWS, COLUMNS = 20, 6
INDEX = [3, 0, 17, 3]  # the last one of equal ones stays
PLACES = [[(3 * i + j) % 5 for j in range(COLUMNS)] for i in range(4)]
MASK = [i in (0, 3, 7, 8) for i in range(ROWS)]
FLAGS = [[i == 2 and j < 4 for j in range(COLUMNS)] for i in range(ROWS)]

MATRIX = lucid.tensor([[3, 0], [17, -3]])
TWICE = lucid.tensor([5, 5])
OUTSIDE = lucid.IndexOutOfRangeError

Write = Callable[[lucid.Tensor, lucid.Tensor], object]


def _item(index: Any, rows: Any = slice(None)) -> Write:
    def write(x: lucid.Tensor, v: lucid.Tensor) -> None:
        x[index] = v[rows]

    return write


def _add(index: Any, rows: Any = slice(None)) -> Write:
    def write(x: lucid.Tensor, v: lucid.Tensor) -> None:
        x[index] += v[rows]

    return write


def _grid() -> tuple[lucid.Tensor, lucid.Tensor]:
    return lucid.tensor(INDEX), lucid.tensor([1, 0, 5, 1])


WRITES: dict[str, Write] = {
    "row": _item(3, 0),
    "last row": _item(-1, 0),
    "rows": _item(slice(2, 6)),
    "every third row": _item(slice(2, 14, 3)),
    "element": _item((3, 2), (0, 0)),
    "column": _item((slice(4, 8), 2), (slice(None), 0)),
    "row of a 0-d tensor": _item(lucid.tensor(4), 0),
    "added row": _add(3, 0),
    "added rows": _add(slice(2, 6)),
    "picked rows": _item(lucid.tensor(INDEX)),
    "one value for picked rows": _item(lucid.tensor(INDEX), (0, 0)),
    "one row for picked rows": _item(lucid.tensor(INDEX), 0),
    "rows of a list": _item(INDEX),
    "rows of a matrix": lambda x, v: x.__setitem__(MATRIX, v.view(2, 2, -1)),
    "rows backwards": _item(lucid.tensor(INDEX).flip(0)),
    "added picked rows": _add(lucid.tensor(INDEX)),
    "elements": _item(_grid(), (slice(None), 0)),
    "one value for elements": _item(_grid(), (0, 0)),
    "elements of a column": _item((lucid.tensor(INDEX), 2), (slice(None), 0)),
    "one value for columns": _item((slice(None), lucid.tensor([1, 4])), (0, 0)),
    "masked rows": _item(lucid.tensor(MASK)),
    "one value for masked rows": _item(lucid.tensor(MASK), (0, 0)),
    "one row for masked rows": _item(lucid.tensor(MASK), 0),
    "masked elements": _item(lucid.tensor(FLAGS), (slice(None), 0)),
    "one value for masked elements": _item(lucid.tensor(FLAGS), (0, 0)),
    "index_add_": lambda x, v: x.index_add_(0, lucid.tensor(INDEX), v),
    "index_add_ of a factor": lambda x, v: x.index_add_(0, lucid.tensor(INDEX), v, alpha=2),
    "index_add_ of columns": lambda x, v: x.index_add_(1, TWICE, v[0, :2].expand(ROWS, 2)),
    "index_copy_": lambda x, v: x.index_copy_(0, lucid.tensor(INDEX), v),
    "index_fill_": lambda x, v: x.index_fill_(0, lucid.tensor([3, -1]), v[0, 0]),
    "index_put_": lambda x, v: x.index_put_(_grid(), v[:, 0]),
    "index_put_, added": lambda x, v: x.index_put_(_grid(), v[:, 0], accumulate=True),
    "put_": lambda x, v: x.put_(lucid.tensor([0, -1, 7, 0]), v[:, 0]),
    "put_, added": lambda x, v: x.put_(lucid.tensor([0, -1, 7, 0]), v[:, 0], accumulate=True),
    "scatter_": lambda x, v: x.scatter_(0, lucid.tensor(PLACES), v),
    "scatter_ along rows": lambda x, v: x.scatter_(1, lucid.tensor(PLACES), v),
    "scatter_, multiplied": lambda x, v: x.scatter_(0, lucid.tensor(PLACES), v, reduce="multiply"),
    "scatter_add_": lambda x, v: x.scatter_add_(0, lucid.tensor(PLACES), v),
    "masked_fill_": lambda x, v: x.masked_fill_(lucid.tensor(FLAGS), v[0, 0]),
    "masked_fill_ of rows": lambda x, v: x.masked_fill_(lucid.tensor(MASK)[:, None], v[0, 0]),
    "masked_scatter_": lambda x, v: x.masked_scatter_(lucid.tensor(FLAGS), v),
    "copy_": lambda x, v: x[3].copy_(v[0]),
    "zero_": lambda x, v: x[3].zero_(),
    "fill_": lambda x, v: x[3].fill_(v[0, 0]),
    "select": lambda x, v: x.select(0, 3).add_(v[0]),
    "narrow": lambda x, v: x.narrow(0, 3, 4).mul_(v),
}  # fmt: skip
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())


@pytest.fixture(params=["python", "machine code"])
def recorded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Calls by Python, and by machine code from the third one on."""
    found = applied()
    if found is None:
        pytest.skip("objects look different here")
    found.calls.forget()
    found._plan[Common.TIMES] = 0 if request.param == "machine code" else MOST_TIMES
    yield
    found._plan[Common.TIMES] = MOST_TIMES
    found.calls.forget()


def numbers(round: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(round)
    x, v = (rng.normal(size=(count, COLUMNS)).astype(np.float32) for count in (ROWS, 4))
    return x, v


def compiled(write: Write) -> Callable[[lucid.Tensor, lucid.Tensor], lucid.Tensor]:
    """The same by functional updates of a trace."""

    @lucid.compile
    def step(x: lucid.Tensor, v: lucid.Tensor) -> lucid.Tensor:
        x = x.clone()
        write(x, v)
        return x

    return step


@every_write
@pytest.mark.usefixtures("recorded")
def test_memory_has_what_a_trace_gives_and_all_who_share_it_see_it(write: Write) -> None:
    step = compiled(write)
    for round in range(6):
        x, v = map(lucid.from_numpy, numbers(round))
        expected = step(x, v).numpy()
        array, view, place, version = x.numpy(), x[2:5], x.data_ptr(), x._version
        write(x, v)
        np.testing.assert_array_equal(array, expected)
        np.testing.assert_array_equal(view.numpy(), expected[2:5])
        assert x.data_ptr() == place
        assert x._version > version


@every_write
def test_so_it_is_where_memory_is_not_row_major(write: Write) -> None:
    step = compiled(write)
    x, v = map(lucid.from_numpy, numbers())
    for strided in (
        lucid.zeros(COLUMNS, ROWS).t().copy_(x),
        lucid.zeros(ROWS, 2 * COLUMNS)[:, ::2].copy_(x),
        lucid.zeros(2 * ROWS, COLUMNS)[ROWS:].copy_(x),
    ):
        write(strided, v)
        np.testing.assert_array_equal(strided.numpy(), step(x, v).numpy())


@every_write
@pytest.mark.usefixtures("recorded")
def test_gradients_are_those_of_a_trace(write: Write) -> None:
    if write is WRITES["scatter_, multiplied"]:
        write = WRITES["scatter_add_"]  # whose products are summed in another order

    def loss(x: lucid.Tensor, v: lucid.Tensor) -> lucid.Tensor:
        y = x * 1
        part = y[2:5]
        write(y, v)
        return (y * y.detach() * 3).sum() + part.sin().sum()

    step = lucid.compile(loss)
    for wanted in 3 * ((True, True), (True, False), (False, True)):
        found = []
        for run in (loss, step):
            x, v = map(lucid.from_numpy, numbers())
            x.requires_grad_(wanted[0])
            v.requires_grad_(wanted[1])
            result = run(x, v)
            if result.requires_grad:
                result.backward()
            found.append([None if t.grad is None else t.grad.numpy() for t in (x, v)])
        for eager, traced in zip(*found, strict=True):
            assert (eager is None) == (traced is None)
            if eager is not None:
                np.testing.assert_allclose(eager, traced, rtol=1e-5, atol=1e-6)


@every_write
@pytest.mark.usefixtures("recorded")
def test_a_backward_pass_that_needs_the_old_numbers_is_refused(write: Write) -> None:
    _, v = map(lucid.from_numpy, numbers())
    for _ in range(4):
        w = lucid.ones(ROWS, COLUMNS, requires_grad=True)
        x = lucid.ones(ROWS, COLUMNS)
        y = (w * x).sum()
        write(x, v)
        with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
            y.backward()


@every_write
@pytest.mark.usefixtures("recorded")
def test_a_leaf_that_requires_grad_is_not_written(write: Write) -> None:
    x, v = map(lucid.from_numpy, numbers())
    before = x.clone()
    for _ in range(3):
        write(x, v)
        x.copy_(before)
    version = x._version
    x.requires_grad_()
    for _ in range(4):
        with pytest.raises(lucid.LucidError, match="leaf Variable that requires grad"):
            write(x, v)
    with lucid.no_grad():
        np.testing.assert_array_equal(x.numpy(), before.numpy())
        assert x._version == version
        write(x, v)
        assert not np.array_equal(x.numpy(), before.numpy())


@every_write
def test_a_tangent_is_written_as_the_numbers_are(write: Write) -> None:
    x, v = map(lucid.from_numpy, numbers())

    def written(x: lucid.Tensor, v: lucid.Tensor) -> lucid.Tensor:
        y = x * 1
        write(y, v)
        return y

    dx, dv = map(lucid.from_numpy, numbers(1))
    found, tangent = func.jvp(written, (x, v), (dx, dv))
    np.testing.assert_array_equal(found.numpy(), written(x, v).numpy())
    reverse = func.vjp(written, x, v)[1](lucid.ones_like(x))
    expected = sum((g * d).sum().item() for g, d in zip(reverse, (dx, dv), strict=True))
    assert tangent.sum().item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


OF_EACH = {name: write for name, write in WRITES.items() if "masked_sc" not in name}


@pytest.mark.parametrize("write", OF_EACH.values(), ids=OF_EACH.keys())
def test_a_vmap_writes_each_example(write: Write) -> None:
    examples = [[*map(lucid.from_numpy, numbers(round))] for round in range(2)]

    def written(x: lucid.Tensor, v: lucid.Tensor) -> lucid.Tensor:
        y = x.clone()
        write(y, v)
        return y

    x, v = (lucid.stack(column) for column in zip(*examples, strict=True))
    for found, example in zip(lucid.vmap(written)(x, v), examples, strict=True):
        np.testing.assert_allclose(found.numpy(), written(*example).numpy(), rtol=1e-6)


LARGE = 1 << 17  # rows
LITTLE = {
    name: write
    for name, write in WRITES.items()
    if "column" not in name and "mask" not in name and "multiplied" not in name
} | {
    "masked rows": lambda x, v: x.__setitem__(lucid.arange(LARGE) == 5, v[0]),
    "elements of a column": WRITES["elements of a column"],
}


@pytest.mark.parametrize("write", LITTLE.values(), ids=LITTLE.keys())
@pytest.mark.parametrize("has_history", [False, True])
@pytest.mark.usefixtures("recorded")
def test_memory_is_taken_for_what_is_written_alone(write: Write, has_history: bool) -> None:
    """NumPy tells of what it allocates: a copy of the tensor would be 6 MB."""
    v = lucid.ones(4, COLUMNS, dtype=lucid.float64)
    if has_history:
        v.requires_grad_()
    for round in range(5):
        x = lucid.zeros(LARGE, COLUMNS, dtype=lucid.float64)
        tracemalloc.start()
        try:
            write(x, v)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1 << 21, round


def _large(x: lucid.Tensor) -> lucid.Tensor:
    return lucid.zeros(LARGE, x.shape[1])


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (_item(ROWS, 0), OUTSIDE),
        (_item(slice(2, 5)), lucid.ShapeError),
        (_item(lucid.tensor([0, 1, 2, ROWS])), OUTSIDE),
        (_item(lucid.tensor([0, 1, 2, -ROWS - 1]), (0, 0)), OUTSIDE),
        (_item(lucid.tensor([0, 1, 2])), lucid.ShapeError),
        (_item((lucid.tensor([0, 1]), lucid.tensor([0, COLUMNS])), (0, 0)), OUTSIDE),
        (_item((lucid.tensor([0, 1]), lucid.tensor([0, 1, 2])), (0, 0)), lucid.LucidError),
        (_item(lucid.tensor(MASK), slice(3)), lucid.LucidError),
        (_item(lucid.tensor(MASK[:-1]), (0, 0)), OUTSIDE),
        (lambda x, v: x.index_add_(0, lucid.tensor([0, 1, 2, ROWS]), v), OUTSIDE),
        (lambda x, v: x.index_copy_(0, lucid.tensor([0, 1, 2, -1]), v), OUTSIDE),
        (lambda x, v: x.index_add_(0, lucid.tensor([0, 1]), v), lucid.ShapeError),
        (lambda x, v: x.index_add_(0, lucid.tensor(INDEX), v.double()), lucid.DTypeError),
        (lambda x, v: x.scatter_(0, lucid.tensor(PLACES) + 16, v), OUTSIDE),
        (lambda x, v: _large(x).scatter_reduce_(0, lucid.tensor([[-1]]), v, "amax"), OUTSIDE),
        (lambda x, v: _large(x).scatter_reduce_(0, TWICE[:, None], v[:1], "sum"), lucid.ShapeError),
        (lambda x, v: x.scatter_(0, lucid.tensor(PLACES), v[:3]), lucid.ShapeError),
        (lambda x, v: x.masked_fill_(lucid.tensor(MASK), 0.0), lucid.ShapeError),
        (lambda x, v: x.masked_scatter_(lucid.tensor(MASK)[:, None], v[:3]), OUTSIDE),
        (lambda x, v: x.put_(lucid.tensor([0, ROWS * COLUMNS]), v[0, :2]), OUTSIDE),
        (lambda x, v: x.long().masked_fill_(lucid.tensor(FLAGS), 2**70), lucid.LucidError),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("recorded")
def test_what_is_refused_changes_nothing(write: Write, error: type[Exception]) -> None:
    x, v = map(lucid.from_numpy, numbers())
    before, version = x.numpy().copy(), x._version
    for _ in range(4):
        with pytest.raises(error):
            write(x, v)
        np.testing.assert_array_equal(x.numpy(), before)
        assert x._version == version


@pytest.mark.usefixtures("recorded")
def test_an_index_that_goes_wrong_later_is_refused_by_a_call_that_is_known() -> None:
    x, v = map(lucid.from_numpy, numbers())
    for write in (WRITES["picked rows"], WRITES["index_add_"], WRITES["index_copy_"]):
        for _ in range(4):
            write(x, v)
    before, index = x.numpy().copy(), lucid.tensor([0, 1, 2, ROWS])
    for write in (
        _item(index),
        lambda x, v: x.index_add_(0, index, v),
        lambda x, v: x.index_copy_(0, index, v),
    ):
        with pytest.raises(OUTSIDE):
            write(x, v)
        np.testing.assert_array_equal(x.numpy(), before)


@pytest.mark.usefixtures("recorded")
def test_what_is_read_is_read_before_anything_is_written() -> None:
    index, other = lucid.tensor([1, 2, 3, 4]), lucid.tensor([0, 1, 2, 3])

    def shifted(x: lucid.Tensor) -> None:
        x[1:] = x[:-1]

    def picked(x: lucid.Tensor) -> None:
        x[index] = x[other]

    def from_rows(x: lucid.Tensor) -> None:
        x[index] = x[:4]

    def copied(x: lucid.Tensor) -> None:
        x.index_copy_(0, index, x[:4])

    def added(x: lucid.Tensor) -> None:
        x.index_add_(0, index, x[:4])

    def scattered(x: lucid.Tensor) -> None:
        x.scatter_(0, lucid.tensor(PLACES), x[1:5])

    def masked(x: lucid.Tensor) -> None:
        x[lucid.tensor(MASK)] = x[4:8]

    for write in (shifted, picked, from_rows, copied, added, scattered, masked):
        step = compiled(lambda x, v, write=write: write(x))
        for round in range(4):
            x, v = map(lucid.from_numpy, numbers(round))
            expected = step(x, v).numpy()
            write(x)
            np.testing.assert_array_equal(x.numpy(), expected, write.__name__)


def test_an_index_that_is_the_tensor_itself_is_read_first() -> None:
    x = lucid.tensor([1, 2, 3, 0])
    x[x] = lucid.tensor([10, 11, 12, 13])
    assert x.tolist() == [13, 10, 11, 12]
    x = lucid.tensor([1, 2, 3, 0])
    x.index_add_(0, x, x)
    assert x.tolist() == [1 + 0, 2 + 1, 3 + 2, 0 + 3]


@pytest.mark.parametrize("flip", [False, True])
def test_the_last_of_equal_indices_stays_and_all_are_added(flip: bool) -> None:
    index, source = np.array([1, 1, 4, 1]), np.arange(8.0).reshape(4, 2)
    if flip:
        index, source = index[::-1], source[::-1]
    expected, sums = np.zeros((5, 2)), np.zeros((5, 2))
    for place, row in zip(index, source, strict=True):
        expected[place] = row
        sums[place] += row
    at, rows = lucid.from_numpy(index.copy()), lucid.from_numpy(source.copy())
    if flip:  # of memory that runs the other way
        at, rows = lucid.tensor(index.copy()).flip(0).flip(0), rows.flip(0).flip(0)
    x = lucid.zeros(5, 2, dtype=lucid.float64)
    x[at] = rows
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(x.zero_().index_copy_(0, at, rows).numpy(), expected)
    np.testing.assert_array_equal(x.zero_().index_add_(0, at, rows).numpy(), sums)
    wide = lucid.zeros(2, 5, dtype=lucid.float64)
    wide[:, at] = rows.t()
    np.testing.assert_array_equal(wide.numpy(), expected.T)


@every_write
def test_memory_that_may_not_be_written_is_refused(write: Write) -> None:
    v = lucid.from_numpy(numbers()[1])
    with pytest.raises(lucid.LucidError, match=r"single memory|read-only"):
        write(lucid.zeros(1, COLUMNS).expand(ROWS, COLUMNS), v)


def test_many_rows_are_written_as_few_are() -> None:
    """Native code makes all of the tensor anew where that is quicker."""
    rng = np.random.default_rng(0)
    array = rng.normal(size=(9000, 5))
    for count in (10, 8000):
        index, mask = rng.integers(0, 9000, count), np.arange(9000) < count
        source = rng.normal(size=(count, 5))
        expected, x = array.copy(), lucid.tensor(array)
        for _ in range(3):
            expected[index], expected[mask], expected[expected > 2] = source, source, 0.5
            x[lucid.tensor(index)], x[lucid.tensor(mask)] = (
                lucid.tensor(source),
                lucid.tensor(source),
            )
            x[x > 2] = 0.5
            np.add.at(expected, index, source)
            x.index_add_(0, lucid.tensor(index), lucid.tensor(source))
        np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12)


def test_elements_of_a_large_tensor_that_a_mask_says_get_those_of_another_in_order() -> None:
    source = lucid.arange(45000.0)
    for share in (1, 60):
        flags = np.arange(45000).reshape(9000, 5) * 7 % 100 < share
        for is_wanted in (False, True):
            x, given = lucid.zeros(9000, 5), source.clone().requires_grad_(is_wanted)
            for _ in range(3):
                x.detach_().zero_().masked_scatter_(lucid.tensor(flags), given)
            expected = np.zeros((9000, 5), np.float32)
            expected[flags] = np.arange(flags.sum())
            np.testing.assert_array_equal(x.detach().numpy(), expected)
            if is_wanted:
                x.sum().backward()
                assert given.grad is not None
                np.testing.assert_array_equal(given.grad.numpy(), np.arange(45000) < flags.sum())
        with pytest.raises(lucid.IndexOutOfRangeError, match="fewer elements"):
            x.detach_().masked_scatter_(lucid.tensor(flags), source[: flags.sum() - 1])


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("axis", [0, -1])
def test_few_elements_of_a_large_tensor_are_reduced_apart(
    reduce: str, include_self: bool, axis: int
) -> None:
    """As in a trace, which reduces all of it; rows that the index names twice as well."""
    rng = np.random.default_rng(0)
    index = lucid.tensor(rng.integers(0, 4, (5, 4)))

    def written(x: lucid.Tensor, src: lucid.Tensor) -> lucid.Tensor:
        y = x * 1
        y.scatter_reduce_(axis, index, src, reduce, include_self=include_self)
        if reduce != "sum":
            y.index_reduce_(0, index[:, 0], src[:, :4] * 2, reduce, include_self=include_self)
        return y

    found = []
    for run in (written, lucid.compile(written)):
        x = lucid.tensor(rng.normal(size=(9000, 4)) if not found else found[0][0].numpy())
        src = lucid.tensor(np.arange(24.0).reshape(6, 4) % 7 - 2)[:5]
        x.requires_grad_()
        src.requires_grad_()
        result = run(x, src)
        gradients = lucid.autograd.grad((result * result).sum(), (x, src))
        with lucid.no_grad():
            found.append((x.detach(), run(x, src), result.detach(), *gradients))
    for eager, traced in zip(*found, strict=True):
        np.testing.assert_allclose(eager.numpy(), traced.numpy(), rtol=1e-12)


overwriting = [op for op in OPS.values() if op.overwrite is not None]


@pytest.mark.parametrize("op", overwriting, ids=[op.name for op in overwriting])
def test_an_op_that_overwrites_an_operand_means_the_same(op: Op, rng: np.random.Generator) -> None:
    assert op.overwrite is not None
    for sample in op.samples:
        arrays: list[Any] = filled(sample, f32, rng)
        expected = op.evaluate(*arrays, **sample.attributes)
        if arrays[op.overwritten].shape != expected.shape:
            continue
        for make in (np.array, _strided):
            given = [*arrays]
            memory = given[op.overwritten] = make(arrays[op.overwritten])
            assert op.overwrite(*given, **sample.attributes, most=expected.size)
            np.testing.assert_array_equal(memory, expected)
        assert_derivative_needs_neither(op, sample, arrays)


def _strided(array: np.ndarray) -> np.ndarray:
    """The same numbers, in memory with gaps."""
    gaps = np.zeros((*array.shape, 2), array.dtype)
    gaps[..., 0] = array
    return gaps[..., 0]


def assert_derivative_needs_neither(op: Op, sample: Sample, arrays: list[Any]) -> None:
    """What is overwritten isn't saved, nor what it becomes."""
    known = application(op, [lucid.tensor(x) for x in arrays], sample.attributes)
    needed = derivative_of(known, tuple(x.dtype == np.float32 for x in arrays)).needed
    assert op.overwritten not in needed
    assert -1 not in needed


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x[-2],
        lambda x: x[1:][2:5],
        lambda x: x[2:][:, -3][1:4],
        lambda x: x[::-2],
        lambda x: x[5:1:-1, ::-1],
        lambda x: x[3:17:4, 1:-1],
        lambda x: x[..., 2],
        lambda x: x[-15:-3][-1],
        lambda x: x[4, 2:4],
        lambda x: x[4:4],
        lambda x: x[4:5, 2:3],
    ],
)
def test_a_view_is_what_its_ops_make_of_a_tensor(look: Callable[[lucid.Tensor], Any]) -> None:
    """Made before its base has a history, it finds the way to that; a trace writes through it."""

    def loss(x: lucid.Tensor, v: lucid.Tensor) -> lucid.Tensor:
        y = x * 1
        part = look(y)
        y[1:] *= v[0]
        part += 1
        return (part * part).sum() + y.sin().sum()

    gradients = []
    for run in (loss, lucid.compile(loss)):
        x, v = map(lucid.from_numpy, numbers())
        run(x, v.requires_grad_()).backward()
        gradients.append(v.grad)
    np.testing.assert_allclose(*(x.numpy() for x in gradients if x is not None), rtol=1e-5)
    x, _ = map(lucid.from_numpy, numbers())
    part, expected = look(x), look(x.numpy())
    assert part.shape == expected.shape
    assert part.stride() == tuple(stride // 4 for stride in expected.strides)
    assert part.data_ptr() == expected.ctypes.data or not expected.size
    expected += 1  # of the same memory
    lucid.compile(lambda: part.add_(1))()
    np.testing.assert_array_equal(part.numpy(), expected)


@pytest.mark.usefixtures("recorded")
def test_flags_that_are_written_by_flags_beside_them_are_read_first() -> None:
    few = np.array([True, False, False, True, False, False])
    for flags in (few, np.tile(few, 1000)):
        for write in (
            lambda x: x[1:].masked_fill_(x[:-1], True),
            lambda x: x[1:].__setitem__(x[:-1], True),
            lambda x: x.view(-1, 3)[:, 1:].masked_fill_(x.view(-1, 3)[:, :-1], True),
            lambda x: x.view(-1, 3)[:, 1:].__setitem__(x.view(-1, 3)[:, :-1], True),
        ):
            for _ in range(4):
                x = lucid.from_numpy(flags.copy())
                write(x)
                np.testing.assert_array_equal(x.numpy(), flags | np.roll(flags, 1))


@every_write
@pytest.mark.usefixtures("recorded")
def test_memory_with_two_elements_at_one_address_is_refused(write: Write) -> None:
    v = lucid.from_numpy(numbers()[1])
    memory = np.arange(2.0 * ROWS + COLUMNS, dtype=np.float32)
    rows = lucid.from_numpy(as_strided(memory, (ROWS, COLUMNS), (8, 4)))
    groups = lucid.from_numpy(as_strided(memory, (2, ROWS, COLUMNS), (0, 8, 4)))
    for target in (rows, groups[1]):
        for _ in range(4):
            with pytest.raises(lucid.LucidError, match="single memory location"):
                write(target, v)
    np.testing.assert_array_equal(memory, np.arange(2 * ROWS + COLUMNS))


def test_a_condition_for_each_row_chooses_rows_of_what_is_new() -> None:
    new, base = np.arange(6.0).reshape(3, 2), np.zeros((3, 2))
    condition = np.array([[True], [False], [True]])
    overwrite = OPS["where"].overwrite
    assert overwrite is not None
    assert overwrite(condition, new, base, most=4)
    np.testing.assert_array_equal(base, [[0, 1], [0, 0], [4, 5]])
    assert not overwrite(condition, new, base, most=3)
