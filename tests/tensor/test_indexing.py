"""`x[index]` reads and writes what NumPy's index does; basic indices give views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import lucid
from lucid.compiler.recording.recorder import Recorder, recording


@dataclass(frozen=True)
class Case:
    """A shape and an index for it: slices, None, `...` and either ints, or arrays and masks."""

    shape: tuple[int, ...]
    index: tuple[Any, ...]

    @property
    def array(self) -> np.ndarray:
        return np.arange(float(np.prod(self.shape)), dtype=np.float32).reshape(self.shape)

    def of(self, library: Any) -> tuple[Any, ...]:
        """The index with arrays as tensors."""
        if library is np:
            return self.index
        return tuple(lucid.tensor(i) if isinstance(i, np.ndarray) else i for i in self.index)


def slices(size: int) -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = st.none() | st.integers(-3, 3).filter(bool)
    return st.builds(slice, bound, bound, step)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    advanced = draw(st.booleans())
    picked = draw(st.sampled_from([(2,), (3, 2), (1,), (0,)]))
    index: list[Any] = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 9)):
        size = shape[axis]
        kind = draw(st.sampled_from(["slice", "slice", "none", "pick", "pick", "dots"]))
        if kind == "none":
            index.append(None)
        elif kind == "dots" and Ellipsis not in [i for i in index if not isinstance(i, np.ndarray)]:
            # One that stands for no axis parts indices in NumPy, but not in PyTorch.
            index.append(Ellipsis)
            axis += draw(st.integers(1, len(shape) - axis))
        elif kind == "pick" and size and not advanced:
            index.append(draw(st.integers(-size, size - 1)))
            axis += 1
        elif kind == "pick" and size and draw(st.booleans()):
            count = int(np.prod(picked))
            numbers = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count))
            index.append(np.array(numbers, np.int64).reshape(picked))
            axis += 1
        elif kind == "pick" and advanced and not any(_is_mask(i) for i in index) and picked == (1,):
            covered = shape[axis : axis + draw(st.integers(1, 2))]
            count = int(np.prod(covered))
            bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
            index.append(np.array(bits, bool).reshape(covered))
            axis += len(covered)
        else:
            index.append(draw(slices(size)))
            axis += 1
    if any(i is Ellipsis for i in index):  # what follows it counts from the end
        index += [slice(None)] * (len(shape) - axis)
    return Case(shape, tuple(index))


def _is_mask(index: Any) -> bool:
    return isinstance(index, np.ndarray) and index.dtype == bool


@given(cases())
def test_reading_is_numpys(case: Case) -> None:
    expected = case.array[case.of(np)]
    found = lucid.tensor(case.array)[case.of(lucid)]
    assert tuple(found.shape) == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)


@given(cases(), st.data())
def test_writing_is_numpys(case: Case, data: st.DataObject) -> None:
    expected, target = case.array, lucid.tensor(case.array)
    shape = expected[case.of(np)].shape
    value_shape = tuple(1 if data.draw(st.booleans()) else size for size in shape)
    value_shape = value_shape[data.draw(st.integers(0, len(shape))) :]
    value = -np.arange(1.0, np.prod(value_shape) + 1, dtype=np.float32).reshape(value_shape)
    expected[case.of(np)] = value
    target[case.of(lucid)] = lucid.tensor(value)
    np.testing.assert_array_equal(target.numpy(), expected)


@given(cases())
def test_an_index_without_arrays_gives_a_view(case: Case) -> None:
    x = lucid.tensor(case.array)
    found = x[case.of(lucid)]
    if not any(isinstance(i, np.ndarray) for i in case.index):
        assert found.numel() == 0 or np.shares_memory(found.numpy(), x.numpy())
    else:
        assert not np.shares_memory(found.numpy(), x.numpy())


def test_ints_come_before_index_tensors() -> None:
    """As in PyTorch; NumPy counts an int among the index arrays and puts their axes first."""
    x = lucid.arange(24).reshape(2, 3, 4)
    assert x[0, :, [0, 1]].shape == (3, 2)
    assert x[lucid.tensor(0), :, lucid.tensor([0, 1])].equal(x[0][:, [0, 1]])
    assert x[[0], :, [0, 1]].shape == (2, 3)


def test_lists_arrays_ranges_and_bools() -> None:
    x = lucid.arange(6).reshape(2, 3)
    assert x[[1, 0]].equal(x.flip(0))
    assert x[np.array([1, 0])].equal(x.flip(0))
    assert x[:, range(2)].equal(x[:, :2])
    assert x[[True, False]].equal(x[:1])
    assert x[[]].shape == (0, 3)
    assert x[True].shape == (1, 2, 3)
    assert x[False].shape == (0, 2, 3)
    assert x[[slice(0, 1), slice(1, 2)]].equal(x[0:1, 1:2])
    assert x[lucid.tensor(1)].equal(x[1])
    assert x[np.int64(1)].equal(x[1])


@pytest.mark.parametrize("dtype", [lucid.int8, lucid.int16, lucid.int32])
def test_an_index_may_be_of_any_signed_integers(run: Callable[..., Any], dtype: Any) -> None:
    def body(x: lucid.Tensor, i: lucid.Tensor) -> tuple[lucid.Tensor, ...]:
        y = x.clone()
        y[i] = 0
        return x[i], x[i, i], y

    x, i = lucid.arange(6).reshape(2, 3), lucid.tensor([-1, 0], dtype=dtype)
    found = [tensor.tolist() for tensor in run(body, x, i)]
    assert found == [[[3, 4, 5], [0, 1, 2]], [5, 0], [[0, 0, 0], [0, 0, 0]]]
    with pytest.raises(IndexError, match=r"x\[i\] = value: index -3 is out of bounds"):
        run(body, x, lucid.tensor([-3, 0], dtype=dtype))


def test_a_mask_is_written_through_where() -> None:
    x = lucid.arange(6.0).reshape(2, 3)
    x[x > 2] = 0.0
    assert x.tolist() == [[0, 1, 2], [0, 0, 0]]
    x[lucid.tensor([True, False])] = lucid.tensor([7.0, 8.0, 9.0])
    assert x.tolist() == [[7, 8, 9], [0, 0, 0]]
    x[x > 7] = lucid.tensor([1.0, 2.0])
    assert x.tolist() == [[7, 1, 2], [0, 0, 0]]


def test_in_a_trace_one_value_is_written_through_a_mask_without_its_places() -> None:
    x = lucid.arange(6.0)
    recorder = Recorder("step")
    with recording(recorder):
        x[x > 2] = 0.0
    names = [node.op.name for node in recorder.graph.nodes]
    assert names.count("where") == 1 and "host" not in names
    recorder.restore(True)
    assert x.sum().item() == 15


def test_several_indices_out_of_range_are_found() -> None:
    x = lucid.zeros(3, 4)
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 1 with size 4"):
        x[[0, 1], [0, 4]]
    with pytest.raises(IndexError, match="index -4 is out of bounds for dimension 0 with size 3"):
        x[[0, -4], [0, 1]] = 1.0
    with pytest.raises(IndexError, match="out of bounds"):
        x[lucid.tensor([0, 3])]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (3, IndexError, "index 3 is out of bounds for dimension 0 with size 2"),
        ((0, 0, 0), IndexError, "too many indices for tensor of dimension 2: 3"),
        ((..., 0, ...), ValueError, "can only have a single ellipsis"),
        (slice(None, None, 0), ValueError, "slice step cannot be zero"),
        (1.5, TypeError, "are valid indices, not 1.5"),
        ([0.5], TypeError, "arrays used as indices hold integers or bools"),
        ([[0], [1]], ValueError, "a list of lists may mean"),
        (lucid.tensor([0.5]), TypeError, "must be integers or bools"),
        (lucid.tensor([True]), IndexError, r"the shape of the mask \[1\] at axis 0 does not match"),
        (([0, 1], [0, 1, 2]), ValueError, "could not be broadcast together"),
    ],
)
def test_a_wrong_index_raises(index: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(lucid.LucidError, match=message) as caught:
        lucid.zeros(2, 3)[index]
    assert isinstance(caught.value, error)


def test_a_wrong_value_raises() -> None:
    x = lucid.zeros(2, 3)
    with pytest.raises(lucid.ArgumentError, match="can't assign a list to a tensor"):
        x[0] = [1.0, 2.0, 3.0]
    with pytest.raises(lucid.ShapeError):
        x[0] = lucid.zeros(2)
    with pytest.raises(lucid.ShapeError, match=r"value tensor of shape \[2\] cannot be broadcast"):
        x[[0, 1]] = lucid.zeros(2)
    assert x.sum().item() == 0


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("far", [2**31, 2**62, 2**70])
def test_slices_may_say_more_than_there_is(far: int, mode: str) -> None:
    def pick(x: lucid.Tensor) -> list[lucid.Tensor]:
        return [x[:far] + 0, x[::far] * 2, x[-far:far] + 0, x[far:] + 0, x[-1:-far:-far] * 2]

    call = lucid.compile(pick) if mode == "compiled" else pick
    whole, first, same, nothing, last = call(lucid.arange(3.0))
    assert whole.tolist() == same.tolist() == [0.0, 1.0, 2.0]
    assert (first.tolist(), nothing.tolist(), last.tolist()) == ([0.0], [], [4.0])


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amax", "amin", "prod"])
@pytest.mark.parametrize(("shape", "count", "dim"), [((7, 5), 11, 0), ((250, 70), 133, 1)])
def test_reductions_by_index_are_those_of_loops(
    shape: tuple[int, int], count: int, dim: int, reduce: str, include_self: bool
) -> None:
    """With ties, a NaN and zeros; of those that reach an extreme each has its share."""
    rng = np.random.default_rng(8)
    given = tuple(count if axis == dim else size - 1 for axis, size in enumerate(shape))
    x, source = (rng.integers(-3, 4, size).astype(np.float64) for size in (shape, given))
    index = rng.integers(0, shape[dim] - 1, given)
    if reduce != "prod":
        source[2, 3] = np.nan
    fold: Any = {"amax": np.maximum, "amin": np.minimum, "prod": np.multiply}[reduce]
    results, went = x.copy(), [[[] for _ in row] for row in x]
    for place in np.ndindex(*given):
        at = list(place)
        at[dim] = index[place]
        went[at[0]][at[1]].append(place)
    for place in np.ndindex(*shape):
        parts = [source[p] for p in went[place[0]][place[1]]]
        if parts:
            results[place] = fold.reduce([x[place], *parts] if include_self else parts)
    tensors = [lucid.tensor(array, requires_grad=True) for array in (x, source)]
    y = tensors[0].scatter_reduce(
        dim, lucid.tensor(index), tensors[1], reduce, include_self=include_self
    )
    np.testing.assert_array_equal(y.detach().numpy(), results)
    shares = [gradient.numpy() for gradient in lucid.autograd.grad(y.sum(), tensors)]
    for place in map(tuple, rng.permutation([*np.ndindex(*shape)])[:500]):
        places = went[place[0]][place[1]]
        parts = np.array(
            [*([x[place]] if include_self or not places else []), *[source[p] for p in places]]
        )
        if reduce == "prod":
            expected = [np.prod(np.delete(parts, i)) for i in range(len(parts))]
        else:
            reached = parts == results[place]
            expected = reached / reached.sum() if reached.any() else [np.nan] * len(parts)
        own = [shares[0][place]] if include_self or not places else []
        if np.isfinite(expected).all():
            np.testing.assert_allclose(
                [*own, *[shares[1][p] for p in places]], expected, atol=1e-12
            )
