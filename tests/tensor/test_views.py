"""Views share memory, in-place operations write through them, copies are independent."""

from __future__ import annotations

import copy
import operator
import pickle
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import lucid
from lucid.ir.errors import ShapeError
from lucid.ir.strides import overlaps_itself

Tensor = lucid.Tensor

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "int": lambda x: x[1],
    "slice": lambda x: x[:, 1:3],
    "negative step": lambda x: x[::-1, ::-2],
    "None": lambda x: x[None, ..., None],
    "reshape": lambda x: x.reshape(6, 2),
    "view": lambda x: x.view(-1),
    "flatten": lambda x: x.flatten(),
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "permute": lambda x: x.permute(1, 0),
    "expand that repeats nothing": lambda x: x.t().expand(1, -1, x.shape[0]),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "select": lambda x: x.select(1, -1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(2)[0],
    "unbind": lambda x: x.unbind(1)[2],
    "diagonal": lambda x: x.diagonal(1),
    "diagonal of a transpose": lambda x: x.t().diagonal(-1),
    "diagonal of outer axes": lambda x: x.view(3, 2, 2).diagonal(1, 2, 0),
    "movedim": lambda x: x.movedim(0, 1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "windows that share nothing": lambda x: x.unfold(1, 2, 2),
    "as_strided of rows with gaps": lambda x: x.as_strided((2, 2), (4, 1), 1),
    "a window": lambda x: x.unfold(0, 3, 1).mT,
    "detach": lambda x: x.detach(),
    "as_strided without gaps": lambda x: x.as_strided((3, 2), (2, 1), 4),
    "as_strided of one axis": lambda x: x[1:].as_strided((1, 4), (9, 2)),
    "chain": lambda x: x.t()[1:3].reshape(2, 3)[:, 0],
}

COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda x: x.clone(),
    "reshape of a transpose": lambda x: x.t().reshape(12),
    "contiguous of a transpose": lambda x: x.t().contiguous(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(0),
    "repeat": lambda x: x.repeat(1, 1),
    "index tensor": lambda x: x[lucid.tensor([0, 1])],
    "copy to": lambda x: x.to(x.dtype, copy=True),
    "tensor": lambda x: lucid.tensor(x),
    "diag": lambda x: x.diag(),
    "floor of integers": lambda x: x.long().floor(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_a_view_shows_in_the_base_and_back(name: str) -> None:
    x = lucid.arange(12.0).reshape(3, 4).clone()
    view = VIEWS[name](x)
    before = view.tolist()
    view.add_(100)
    assert (x.numpy() >= 100).sum() == view.numel()
    x.sub_(100)
    assert view.tolist() == before
    assert x._version == view._version == 2


@pytest.mark.parametrize("compiles", [lucid.compile, lambda function: function])
@pytest.mark.parametrize(
    "name",
    ["windows that share nothing", "a window", "as_strided of rows with gaps", "diagonal", "chain"],
)
def test_a_write_to_a_view_has_a_gradient(name: str, compiles: Callable[..., Any]) -> None:
    """Each element is squared where the view shows it, and tripled elsewhere."""
    x = lucid.arange(12.0).reshape(3, 4).clone().requires_grad_()

    def step(x: Tensor) -> Tensor:
        y, factor = x * 1, lucid.full_like(x, 3.0)
        VIEWS[name](factor).fill_(1.0)
        view = VIEWS[name](y)
        view.mul_(VIEWS[name](x))
        (y * factor).sum().backward()
        return y.detach()

    y = compiles(step)(x)
    seen = lucid.zeros(3, 4)
    VIEWS[name](seen).add_(1.0)
    assert x.grad is not None
    assert y.tolist() == lucid.where(seen > 0, x * x, x).tolist()
    assert x.grad.tolist() == lucid.where(seen > 0, 2 * x, 3.0).tolist()


@pytest.mark.parametrize("compiles", [lucid.compile, lambda function: function])
def test_what_has_no_elements_is_written_and_counted_as_all_else(compiles: Any) -> None:
    def step(x: Tensor) -> None:
        x[None].add_(1)
        x[:, None][:, 0].fill_(2)
        x.expand(3, -1, -1).mul_(2)
        x.view(-1).expand(2, -1).neg_()

    x = lucid.ones(4, 5)[1:, 2:2]
    compiles(step)(x)
    assert x._version == 4


def test_a_gradient_without_elements_is_written() -> None:
    x = lucid.ones(0, requires_grad=True)
    for _ in range(2):
        x.mean().backward()
    assert x.grad is not None
    assert x.grad.mul_(2).zero_().tolist() == []


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_independent(name: str) -> None:
    x = lucid.arange(12.0).reshape(3, 4).clone()
    made = COPIES[name](x)
    assert not np.shares_memory(made.numpy(), x.numpy())
    made.zero_()
    assert x.sum().item() == 66


@pytest.mark.parametrize("same", [lambda x: x.contiguous(), lambda x: x.float(), lambda x: x.cpu()])
def test_without_a_change_the_tensor_itself_comes_back(same: Callable[[Tensor], Tensor]) -> None:
    x = lucid.ones(2, 3)
    assert same(x) is x


def test_a_view_that_strides_forbid_raises() -> None:
    with pytest.raises(lucid.ShapeError, match=r"use .reshape\(...\) instead"):
        lucid.ones(2, 3).t().view(6)


@pytest.mark.parametrize("compiles", [lucid.compile, lambda function: function])
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[0]])
def test_writing_to_repeated_memory_raises(
    part: Callable[[Tensor], Tensor], compiles: Callable[..., Callable[[], Tensor]]
) -> None:
    with pytest.raises(lucid.LucidError) as caught:
        compiles(lambda: part((lucid.zeros(1, 3) * 2).expand(2, 3)).add_(1))()
    assert str(caught.value).startswith(
        "unsupported operation: more than one element of the written-to tensor refers to a single "
        "memory location. Please clone() the tensor before performing the operation."
    )


def test_memory_is_shared_with_numpy() -> None:
    array = np.zeros((2, 3), np.float32)
    x = lucid.from_numpy(array.T)
    x[0] = 1.0
    assert array.tolist() == [[1, 0, 0], [1, 0, 0]]
    array[:] = 5
    assert x.sum().item() == 30
    assert np.shares_memory(x.numpy(), array)
    assert np.shares_memory(np.asarray(x), array)
    assert not np.shares_memory(np.array(x), array)
    assert np.shares_memory(lucid.as_tensor(array).numpy(), array)
    assert np.asarray(x, np.float64).dtype == np.float64


def test_memory_is_shared_through_dlpack() -> None:
    array = np.arange(3.0)
    x = lucid.from_dlpack(lucid.from_numpy(array))
    assert np.shares_memory(np.from_dlpack(x), array)
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(lucid.LucidError, match="can't export a tensor that requires grad"):
        lucid.ones(2, requires_grad=True).__dlpack__()


IN_PLACE: dict[str, tuple[Any, ...]] = {
    "add_": (2.0,), "sub_": (2.0,), "mul_": (2.0,), "div_": (2.0,), "pow_": (2,), "clamp_": (0, 1),
    "exp_": (), "sqrt_": (), "neg_": (), "lerp_": (lucid.ones(3), 0.3), "relu_": (), "round_": (),
    "addcmul_": (lucid.ones(3), lucid.ones(3)), "addcdiv_": (lucid.ones(3), lucid.ones(3)),
    "masked_fill_": (lucid.tensor([True, False, True]), 7.0), "cumsum_": (0,),
    "index_add_": (0, lucid.tensor([1]), lucid.ones(1)), "scatter_": (0, lucid.tensor([1]), 3.0),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_is_the_function_written_back(name: str) -> None:
    x = lucid.tensor([1.0, 4.0, 9.0])
    pointer = x.data_ptr()
    expected = getattr(x, name[:-1])(*IN_PLACE[name])
    assert getattr(x, name)(*IN_PLACE[name]) is x
    assert x.equal(expected)
    assert x.data_ptr() == pointer
    assert x._version == 1


def test_operators_with_assignment_write_in_place() -> None:
    x = before = lucid.tensor([4, 9])
    x += 1
    x -= 2
    x *= 3
    x //= 2
    x %= 5
    x **= 2
    x |= 8
    x &= 12
    x ^= 1
    x <<= 2
    x >>= 1
    assert x is before
    expected = np.array([4, 9])
    expected = ((((((expected - 1) * 3 // 2 % 5) ** 2) | 8) & 12) ^ 1) << 2 >> 1
    assert x.tolist() == expected.tolist()


def test_in_place_keeps_what_its_own_gradient_needs() -> None:
    """x.mul_(y) overwrites the x that the gradient of y is made of."""
    y = lucid.tensor([2.0, 3.0], requires_grad=True)
    x = lucid.tensor([5.0, 7.0])
    x.mul_(y).exp_().clamp_(0, 1e9)
    x.sum().backward()
    assert y.grad is not None
    np.testing.assert_allclose(y.grad.numpy(), [5 * np.exp(10), 0], rtol=1e-5)


def test_in_place_does_not_raise_the_category() -> None:
    with pytest.raises(lucid.DTypeError, match="can't be cast to the desired output type"):
        lucid.tensor([1, 2]).add_(0.5)
    with pytest.raises(lucid.ShapeError, match="doesn't match the broadcast shape"):
        lucid.zeros(2).add_(lucid.zeros(3, 2))
    with pytest.raises(lucid.LucidError, match="a leaf Variable that requires grad"):
        lucid.ones(2, requires_grad=True).add_(1)


def test_copies_of_python() -> None:
    x = lucid.tensor([[1.0, 2.0]], requires_grad=True)
    x.sum().backward()
    deep = copy.deepcopy(x)
    assert deep.requires_grad
    assert deep.grad is not None
    assert deep.grad is not x.grad
    assert not np.shares_memory(deep.detach().numpy(), x.detach().numpy())
    shared = copy.deepcopy([x, x])
    assert shared[0] is shared[1]
    assert copy.copy(x).data_ptr() == x.data_ptr()
    stored = pickle.loads(pickle.dumps(x[:, ::1].detach().t()))
    assert stored.tolist() == [[1], [2]]
    with pytest.raises(lucid.LucidError, match="graph leaves"):
        copy.deepcopy(x * 2)
    loaded = pickle.loads(pickle.dumps(x * 2))  # a checkpoint's "loss"
    assert (loaded.tolist(), loaded.is_leaf, loaded.requires_grad) == ([[2.0, 4.0]], True, True)


def test_a_deep_copy_in_a_step_is_a_value_of_its_own(run: Callable[..., Any]) -> None:
    weight = lucid.tensor([1.0, 2.0], requires_grad=True)

    def step(x: Tensor) -> Tensor:
        parts = [x * 2, x + 1]
        copied, before = copy.deepcopy(parts), copy.deepcopy(weight)
        parts[0].zero_()
        with lucid.no_grad():
            weight.mul_(10)
        assert before.requires_grad and before.is_leaf and not copied[0].requires_grad
        return lucid.stack([*parts, *copied, before.detach(), weight.detach()])

    result = run(step, lucid.tensor([3.0, 4.0]))
    assert result.tolist() == [[0, 0], [4, 5], [6, 8], [4, 5], [1, 2], [10, 20]]


def test_a_view_may_change_its_shape_in_place(run: Callable[..., Any]) -> None:
    scale = lucid.tensor(2.0, requires_grad=True)

    def step(x: Tensor, scale: Tensor) -> Tensor:
        whole = x * 1
        flat, turned = whole.view(6), whole.t()
        flat.unsqueeze_(0)
        turned.transpose_(0, 1)
        assert flat.shape == (1, 6) and turned.shape == (2, 3)
        flat.mul_(scale)
        assert whole.requires_grad and turned.requires_grad
        return (turned * x).sum() + flat[0, 5]

    result = run(step, lucid.arange(6.0).reshape(2, 3), scale)
    result.backward()
    assert result.item() == 120.0
    assert scale.grad is not None and scale.grad.item() == 60.0


def test_a_tensor_with_history_may_change_its_shape_in_place(run: Callable[..., Any]) -> None:
    """PyTorch's figures: views made before go on as those of what the tensor was."""
    x = lucid.tensor([[1.0, 2.0], [3.0, 0.5]], dtype=lucid.float64, requires_grad=True)
    scale = lucid.tensor(1.3, dtype=lucid.float64, requires_grad=True)

    def step(x: Tensor, scale: Tensor) -> Tensor:
        whole = x * scale
        turned = whole.t()
        row = turned[0]
        whole.t_()
        whole.mul_(scale)
        turned[1] *= scale
        row.add_(scale)
        part = whole[1].unsqueeze_(0)
        assert part.shape == (1, 2) and part.grad_fn is not None
        return (whole**3).sum() + (turned * x[0, 0]).sum() + row.sum() * part.sum()

    result = run(step, x, scale)
    result.backward()
    assert x.grad is not None and scale.grad is not None
    np.testing.assert_allclose(result.item(), 437.6296094056251)
    wanted = [[71.151132, 150.0149124760001], [216.697208, 30.714294529750006]]
    np.testing.assert_allclose(x.grad.numpy(), wanted)
    np.testing.assert_allclose(scale.grad.item(), 1976.1063297312508)


def test_a_gradient_that_is_retained_has_the_shape_that_the_tensor_got(
    run: Callable[..., Any],
) -> None:
    def step(x: Tensor) -> Tensor:
        doubled = x * 2
        doubled.retain_grad()
        doubled.unsqueeze_(0)
        (doubled * doubled).sum().backward()
        assert doubled.grad is not None
        return doubled.grad

    assert run(step, lucid.ones(3, requires_grad=True)).tolist() == [[4.0, 4.0, 4.0]]


def test_a_leaf_that_requires_grad_keeps_its_shape_in_place(run: Callable[..., Any]) -> None:
    message = "unsqueeze_: can't change the shape of a leaf that requires grad in place"
    with pytest.raises(lucid.LucidError, match=message):
        run(lambda x: x.unsqueeze_(0), lucid.ones(2, requires_grad=True))
    assert copy.deepcopy(lucid.float32) is lucid.float32


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-12, 30)), max_size=5),
)
def test_whether_memory_overlaps_itself_is_decided_exactly(axes: list[tuple[int, int]]) -> None:
    shape, strides = tuple(n for n, _ in axes), tuple(s for _, s in axes)
    places = [sum(map(operator.mul, index, strides)) for index in product(*map(range, shape))]
    assert overlaps_itself(shape, strides) == (len(set(places)) < len(places))


def test_many_interleaved_axes_are_held_to_overlap_in_bounded_time() -> None:
    strides = tuple(10**11 + 7919 * 10**7 * i * i for i in range(8))
    begin = time.perf_counter()
    overlaps_itself((50,) * 8, strides)
    assert time.perf_counter() - begin < 10


def test_elements_are_shown_by_strides(run: Callable[..., Any]) -> None:
    def step(x: Tensor) -> Any:
        windows = x.as_strided((3, 4), (2, 2))
        (windows * windows).sum().backward()
        rows = lucid.vmap(lambda row: row.as_strided((2, 2), (1, 1)))(x.detach().view(4, 3))
        return windows.detach(), x.grad, rows

    x = lucid.arange(12.0).requires_grad_()
    windows, gradient, rows = run(step, x)
    assert windows.tolist() == [[0, 2, 4, 6], [2, 4, 6, 8], [4, 6, 8, 10]]
    assert gradient[::2].tolist() == [0, 8, 24, 36, 32, 20] and not gradient[1::2].any()
    assert rows[3].tolist() == [[9, 10], [10, 11]]


def test_strides_that_no_memory_has_are_refused() -> None:
    x = lucid.arange(6.0).view(2, 3)
    with pytest.raises(lucid.ShapeError, match="elements 0 to 6 of input are needed, of 6"):
        x.as_strided((3, 3), (2, 1))
    with pytest.raises(lucid.ShapeError, match="elements -1 to 0 of input are needed"):
        x[:, 1].contiguous().as_strided((2,), (1,), -1)
    with pytest.raises(lucid.ShapeError, match=r"needs as many strides from 0 on, not \(1,\)"):
        x.as_strided((3, 3), (1,))
    with pytest.raises(lucid.ArgumentError, match="input must be contiguous"):
        x.t().as_strided((2,), (1,))
    with pytest.raises(lucid.LucidError, match="refers to a single memory location"):
        x.as_strided((2, 2), (1, 1)).add_(1)


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_broadcast_that_repeats_no_element_can_be_written(mode: str) -> None:
    def step(x: lucid.Tensor) -> lucid.Tensor:
        column = lucid.meshgrid(x, x, indexing="ij")[1]
        column[0, 0] = 5.0
        lucid.broadcast_tensors(x, lucid.ones(1, 1))[0].add_(2)
        return x

    x = lucid.tensor([3.0])
    assert (lucid.compile(step) if mode == "compiled" else step)(x).tolist() == [7.0]
    with pytest.raises(lucid.LucidError, match="more than one element"):
        lucid.meshgrid(lucid.ones(2), lucid.ones(3), indexing="ij")[1].zero_()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4), (0,)])
def test_a_tensor_without_elements_is_contiguous_in_both_modes(shape: tuple[int, ...]) -> None:
    def look(x: lucid.Tensor) -> list[bool]:
        return [x.is_contiguous(), x.T.is_contiguous(), (x + 1).is_contiguous()]

    assert look(lucid.zeros(shape)) == lucid.compile(look)(lucid.zeros(shape)) == [True] * 3


def test_a_view_of_another_dtype_reads_and_writes_the_same_bytes() -> None:
    x = lucid.tensor([[1.0, -2.0], [0.5, 4.0]])
    bits = x.view(lucid.int32)
    assert bits.tolist() == x.numpy().view(np.int32).tolist()
    assert not (x.requires_grad_() * 2).view(lucid.int32).requires_grad
    assert x.view(lucid.uint8).shape == (2, 8) and x.view(lucid.float64).shape == (2, 1)
    version = x._version
    bits &= 0x7FFFFFFF
    assert x._version > version
    assert x.tolist() == [[1.0, 2.0], [0.5, 4.0]]


def test_a_compiled_step_that_views_another_dtype_runs_op_by_op() -> None:
    @lucid.compile
    def magnitude(x: lucid.Tensor) -> lucid.Tensor:
        return (x.view(dtype=lucid.int32) & 0x7FFFFFFF).view(lucid.float32)

    assert magnitude(lucid.tensor([-1.0, 2.0])).tolist() == [1.0, 2.0]
    assert "view(lucid.int32)" in magnitude.stats.eager_reasons[0]


@pytest.mark.parametrize(
    ("x", "problem"),
    [
        (lucid.tensor(1.0), "0d array"),
        (lucid.zeros(2, 3), "divisor"),
        (lucid.zeros(4, 2).t(), "contiguous"),
        (lucid.zeros(4, 6)[:, 1:5], "aligned"),
    ],
)
def test_bytes_that_are_no_elements_of_another_dtype(x: lucid.Tensor, problem: str) -> None:
    with pytest.raises(ShapeError, match=problem):
        x.view(lucid.float64)


@pytest.mark.parametrize("mode", [lambda f: f, lucid.compile], ids=["eager", "compiled"])
def test_a_tensor_that_was_transposed_in_place_has_no_flat_view(mode) -> None:
    with pytest.raises(lucid.ShapeError, match="view size is not compatible"):
        mode(lambda x: x.t_().view(-1))(lucid.ones(2, 3))


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.t_()[0],
        lambda x: x.t_().view(3, 2, 1),
        lambda x: x.unsqueeze_(0)[0, 1],
        lambda x: (x[1], x.t_()[1]),
    ],
)
def test_views_of_an_argument_that_changes_its_shape_in_place(use: Callable[..., Any]) -> None:
    x, other = (lucid.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]) for _ in range(2))
    expected, found = use(x), lucid.compile(use)(other)
    lucid.testing.assert_close(found, expected)
    x.add_(1), other.add_(1)
    lucid.testing.assert_close(found, expected)
