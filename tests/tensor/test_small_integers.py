"""Integers of 8 and 16 bits: PyTorch's results in both modes, and images as steps get them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from expressions import SMALL_INTEGERS, array_of, encoded, load, of_small, small

import lucid
import lucid.nn.functional as F

RECORDED = load(SMALL_INTEGERS)
CASES = [(dtype, text) for dtype, texts in RECORDED.items() for text in texts]
DTYPES = [lucid.uint8, lucid.int8, lucid.int16]


@pytest.mark.parametrize("dtype", RECORDED)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_each_result_is_the_recorded_one(dtype: str, mode: str) -> None:
    """One step for all expressions, since each alone would be a compilation."""
    known = {text: found for text, found in RECORDED[dtype].items() if found != "error"}

    def all_of(x: lucid.Tensor) -> list[Any]:
        return [of_small(lucid, text, x.clone()) for text in known]

    results = (lucid.compile(all_of) if mode == "compiled" else all_of)(small(lucid, dtype))
    for text, result in zip(known, results, strict=True):
        found, expected = encoded(result), known[text]
        if "python" in expected:
            assert found == expected, text
            continue
        assert (found["dtype"], found["shape"]) == (expected["dtype"], expected["shape"]), text
        np.testing.assert_allclose(array_of(found), array_of(expected), rtol=2e-6, err_msg=text)


@pytest.mark.parametrize(
    ("dtype", "expression"), [case for case in CASES if RECORDED[case[0]][case[1]] == "error"]
)
def test_what_pytorch_refuses_is_refused(run: Any, dtype: str, expression: str) -> None:
    with pytest.raises(lucid.LucidError):
        run(lambda x: of_small(lucid, expression, x), small(lucid, dtype))


def test_an_image_of_bytes_is_scaled_in_the_step(run: Any) -> None:
    images = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4) * 2
    weight = lucid.full((1, 3, 3, 3), 0.1, requires_grad=True)

    def step(images: lucid.Tensor) -> lucid.Tensor:
        x = images.float() / 255
        loss = F.conv2d((x - 0.5) / 0.25, weight).square().mean()
        loss.backward()
        return loss

    loss = run(step, lucid.from_numpy(images))
    x = lucid.from_numpy((images / np.float32(255)).astype(np.float32))
    again = lucid.full((1, 3, 3, 3), 0.1, requires_grad=True)
    expected = F.conv2d((x - 0.5) / 0.25, again).square().mean()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert weight.grad is not None
    assert again.grad is not None
    assert (weight.grad - again.grad).abs().max() < 1e-4


def test_a_step_gives_images_of_bytes_back(run: Any) -> None:
    x = lucid.tensor([-0.5, 0.0, 0.5, 1.0, 1.5])
    result = run(lambda x: (x.clamp(0, 1) * 255).round().byte(), x)
    assert result.dtype is lucid.uint8
    assert result.tolist() == [0, 0, 128, 255, 255]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_state_of_small_integers_is_written_in_place(dtype: lucid.dtype, prepared: Any) -> None:
    state = lucid.zeros(3, dtype=dtype)
    info = lucid.iinfo(dtype)

    @prepared
    def step(x: lucid.Tensor) -> None:
        state.add_(x)
        state[1:] += 1

    for _ in range(3):
        step(lucid.full((3,), info.max // 2, dtype=dtype))
    whole = np.array([info.max // 2] * 3) * 3 + np.array([0, 3, 3])
    assert state.tolist() == whole.astype(dtype.numpy).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_are_shared_printed_and_pickled(dtype: lucid.dtype) -> None:
    array = np.array([1, 2, 100]).astype(dtype.numpy)
    x = lucid.from_numpy(array)
    assert x.dtype is dtype
    array[0] = 7
    assert x.tolist() == [7, 2, 100]
    assert x.numpy() is not None
    assert x.element_size() == array.itemsize
    assert repr(x) == f"tensor([  7,   2, 100], dtype={dtype!r})"
    assert pickle.loads(pickle.dumps(x)).dtype is copy.deepcopy(x).dtype is dtype


def test_numbers_that_do_not_fit_are_refused(run: Any) -> None:
    x = lucid.tensor([1, 2], dtype=lucid.uint8)
    for operation in (lambda x: x + 256, lambda x: x.clamp(0, 300)):
        with pytest.raises(ValueError, match=r"cannot be converted to lucid\.uint8 without"):
            run(operation, x)
    with pytest.raises(ValueError, match=r"tensor: a value doesn't fit lucid\.uint8"):
        lucid.tensor([256], dtype=lucid.uint8)


def test_they_are_compared_with_any_number(run: Any) -> None:
    x = lucid.tensor([1, 2], dtype=lucid.uint8)
    y = lucid.tensor([-3, 5], dtype=lucid.int32)

    def step(x: Any, y: Any) -> Any:
        return x < -1, x > -1, x == 257, x != 257, x < 300, y < 2**40, y >= -(2**40)

    found = [answer.tolist() for answer in run(step, x, y)]
    assert found == [[False] * 2, [True] * 2, [False] * 2, *[[True] * 2] * 4]


@pytest.mark.filterwarnings("ignore:indexing with dtype lucid.uint8:UserWarning")
def test_bytes_are_a_mask_as_an_index() -> None:
    mask = lucid.tensor([1, 0, 1], dtype=lucid.uint8)
    assert lucid.arange(3)[mask].tolist() == [0, 2]
    x = lucid.arange(3)
    x[mask] = 9
    assert x.tolist() == [9, 1, 9]
    with pytest.warns(UserWarning, match="use a dtype lucid.bool instead") as warned:
        x[mask]
    assert warned[0].filename == __file__


def test_draws_are_of_the_dtype(run: Any) -> None:
    x = run(lambda: lucid.randint(0, 256, (1000,), dtype=lucid.uint8))
    assert x.dtype is lucid.uint8
    assert x.long().max() > 200
    state = run(lambda: lucid.empty(1000, dtype=lucid.int8).random_())
    assert 100 < state.max().item() <= 127
    assert state.min().item() >= 0


def test_targets_of_bytes_are_classes(run: Any) -> None:
    scores, classes = lucid.eye(3), [0, 1, 2]
    expected = F.cross_entropy(scores, lucid.tensor(classes))
    found = run(lambda c: F.cross_entropy(scores, c), lucid.tensor(classes, dtype=lucid.uint8))
    assert found.item() == pytest.approx(expected.item())


def test_small_integers_keep_their_dtype_and_wrap(run: Any) -> None:
    def step(x: lucid.Tensor, y: lucid.Tensor) -> list[lucid.Tensor]:
        places = lucid.tensor([0, 1])
        return [lucid.fmod(x, y), x.scatter_reduce(0, places, y, "prod"), x.byte().bincount()]

    x, y = (lucid.tensor(values, dtype=lucid.int8) for values in ([5, 3], [-128, 4]))
    rest, product, counts = run(step, x, y)
    assert rest.tolist() == [5, 3]
    assert product.dtype is lucid.int8
    assert product.tolist() == [-128, 12]
    assert counts.tolist() == [0, 0, 0, 1, 0, 1]
