"""NumPy's and older PyTorch's names for arguments and functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid

X = lucid.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])


def test_axis_is_dim() -> None:
    assert X.sum(axis=1).tolist() == [6.0, 9.0]
    assert X.mean(axis=(0, 1), keepdims=True).shape == (1, 1)
    assert lucid.cat([X, X], axis=1).shape == (2, 6)
    assert lucid.stack([X, X], axis=-1).shape == (2, 3, 2)
    assert lucid.nn.functional.glu(X[:, :2], axis=1).shape == (2, 1)
    assert X.sort(axis=0).values.tolist() == [[0, 1, 2], [3, 5, 4]]
    with pytest.raises(lucid.ArgumentError, match="sum: got dim= and axis=, which mean the same"):
        X.sum(dim=0, axis=0)
    with pytest.raises(lucid.ArgumentError, match="exp: got an unexpected keyword argument 'axis'"):
        X.exp(axis=0)


def test_another_librarys_tensor_is_called_so() -> None:
    class Tensor:
        __module__ = "torch"

    with pytest.raises(lucid.ArgumentError, match=r"must be a Tensor, not torch\.Tensor"):
        X.copy_(Tensor())


@pytest.mark.parametrize(
    "kind", [lucid.float64, "torch.DoubleTensor", lucid.DoubleTensor, np.float64, float]
)
def test_the_method_type_converts_as_older_programs_ask(kind: Any) -> None:
    def twice(x: lucid.Tensor) -> tuple[lucid.Tensor, str]:
        y = (x + x).type(kind)
        return y, y.type()

    x = lucid.tensor([1.5, 2.5])
    for function in (twice, lucid.compile(twice)):
        y, name = function(x)
        assert y.dtype is lucid.float64
        assert y.tolist() == [3.0, 5.0]
        assert name == "torch.DoubleTensor"
    assert x.type(lucid.float32) is x
    assert (x > 2).type_as(x).tolist() == [0.0, 1.0]


def test_a_conversion_that_does_not_exist_says_what_would_work() -> None:
    with pytest.raises(lucid.ArgumentError, match=r"type: dtype must be one of .*not 'abc'"):
        X.type("abc")
    with pytest.raises(lucid.DTypeError, match=r"half: there is no float16\n.*\nhint: .*float\(\)"):
        X.half()
    with pytest.raises(AttributeError, match="no attribute 'HalfTensor'\nhint: dtypes are bool,"):
        lucid.HalfTensor
    for name in ("chalf", "fft", "view_as_complex"):
        with pytest.raises(AttributeError, match=f"'{name}'\nhint: there are no complex numbers;"):
            getattr(lucid, name)


def test_what_is_no_index_is_an_index_error_as_in_pytorch() -> None:
    with pytest.raises(IndexError, match=r"only integers, slices .*, not 1\.0"):
        X[1.0]
    with pytest.raises(IndexError, match="must be integers or bools"):
        X[lucid.tensor([0.0])]
    with pytest.raises(ValueError, match="cat: expected a non-empty list of Tensors"):
        lucid.cat([])


def test_a_variable_is_a_leaf_on_the_same_memory() -> None:
    variable = lucid.autograd.Variable(X, requires_grad=True)
    assert variable.is_leaf
    assert variable.data_ptr() == X.data_ptr()
    assert not X.requires_grad


def test_constructors_by_class() -> None:
    assert lucid.FloatTensor([[1, 2]]).dtype is lucid.float32
    assert lucid.LongTensor([1.7]).tolist() == [1]
    assert lucid.IntTensor(np.array([1, 2])).dtype is lucid.int32
    assert lucid.BoolTensor([0, 2]).tolist() == [False, True]
    assert lucid.Tensor(2, 3).shape == (2, 3)
    assert lucid.DoubleTensor(4).tolist() == [0.0] * 4


@pytest.mark.parametrize("name", ["zeros", "ones", "empty"])
def test_the_size_of_a_new_tensor_may_be_named(name: str) -> None:
    make = getattr(lucid, name)
    assert make(size=(2, 3)).shape == make(2, 3).shape == make([2, 3]).shape == (2, 3)
    with pytest.raises(TypeError) as caught:
        make(2, size=(2,))
    assert str(caught.value) == f"{name}: got multiple values for argument 'size'"


@pytest.mark.parametrize(
    ("method", "keyword", "sizes"),
    [
        ("reshape", "shape", (3, 2)),
        ("view", "size", (3, 2)),
        ("expand", "size", (2, 2, 3)),
        ("permute", "dims", (1, 0)),
        ("flip", "dims", (0, 1)),
        ("repeat", "repeats", (2, 1)),
        ("tile", "dims", (2,)),
    ],
)
def test_sizes_and_axes_are_given_one_by_one_or_as_a_sequence_or_by_name(
    method: str, keyword: str, sizes: tuple[int, ...]
) -> None:
    apply = getattr(X, method)
    expected = apply(*sizes).tolist()
    for found in (apply(sizes), apply(list(sizes)), apply(**{keyword: sizes})):
        assert found.tolist() == expected
    if method not in ("view", "expand", "repeat"):
        assert getattr(lucid, method)(X, **{keyword: sizes}).tolist() == expected
    with pytest.raises(TypeError) as caught:
        apply(*sizes, **{keyword: sizes})
    first, operand = str(caught.value).split("\n")
    assert first == f"{method}: got multiple values for argument '{keyword}'"
    assert operand.startswith(f"  input: {X._type}  from test_names_of_arguments.py:")


def test_the_method_split_calls_its_argument_otherwise() -> None:
    parts = lucid.arange(3.0).split(split_size=[1, 2], dim=0)
    assert [part.tolist() for part in parts] == [[0.0], [1.0, 2.0]]
    with pytest.raises(TypeError, match="split: missing a required argument: 'split_size'"):
        lucid.arange(3.0).split()
