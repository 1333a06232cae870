"""New arrays begin at a cache line, and are otherwise what NumPy gives."""

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.ir import memory


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (511,), (513,), (33, 65), (3, 1, 999)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i1", "?", "f2"])
def test_a_full_array_is_numpys(shape: tuple[int, ...], dtype: str) -> None:
    wanted = np.full(shape, 1, dtype)
    array = memory.full(shape, 1, np.dtype(dtype))
    assert array.dtype == wanted.dtype
    assert array.shape == wanted.shape
    assert array.strides == wanted.strides
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert (array == wanted).all()


@pytest.mark.parametrize("size", [2048, 2049, 100_000, 5_000_001])
def test_an_array_of_some_size_begins_at_a_line_and_has_its_own_bytes(size: int) -> None:
    arrays = [memory.empty((size,), np.dtype("i1"), size) for _ in range(5)]
    for number, array in enumerate(arrays):
        array.fill(number)
    assert all(memory.address_of(array) % 64 == 0 for array in arrays)
    assert all((array == number).all() for number, array in enumerate(arrays))


def test_what_steps_read_and_write_begins_at_a_line() -> None:
    layer = nn.Linear(64, 48)
    opt = lucid.optim.Adam(layer.parameters())

    @lucid.compile
    def step(x: lucid.Tensor) -> lucid.Tensor:
        opt.zero_grad()
        y = layer(x)
        y.sum().backward()
        opt.step()
        return y

    data = np.random.default_rng(0).normal(size=(32, 64))
    y = step(lucid.ones(32, 64))
    moments = [opt.state[layer.weight][key] for key in ("exp_avg", "exp_avg_sq")]
    made = [lucid.zeros(30, 30), lucid.tensor(data), lucid.tensor(data, dtype=lucid.float32)]
    for tensor in (layer.weight, layer.weight.grad, *moments, y, *made):
        assert isinstance(tensor, lucid.Tensor)
        assert tensor.data_ptr() % 64 == 0


def test_too_large_a_shape_is_an_error_with_its_size() -> None:
    with pytest.raises(lucid.LucidError, match=r"zeros|full|allocate"):
        lucid.zeros(1 << 30, 1 << 30)
