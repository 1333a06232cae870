"""Sparse matrices: what they are, products, gradients, and the custom Function of the documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid.autograd import Function

ROWS = np.array([0, 1, 2, 2, 1])
COLUMNS = np.array([1, 2, 0, 2, 2])
SHAPE = (3, 4)

Run = Callable[..., Any]


def places() -> lucid.Tensor:
    return lucid.tensor(np.stack([ROWS, COLUMNS]))


def numbers() -> lucid.Tensor:
    return lucid.tensor([1.0, 2.0, 3.0, 4.0, 0.5], dtype=lucid.float64, requires_grad=True)


def dense_of(values: np.ndarray) -> np.ndarray:
    dense = np.zeros(SHAPE)
    np.add.at(dense, (ROWS, COLUMNS), values)
    return dense


class SpecialSpmm(Function):
    """Sparse times dense, with a gradient on the stored entries only."""

    @staticmethod
    def forward(ctx, indices, values, shape, b):
        a = lucid.sparse_coo_tensor(indices, values, shape)
        ctx.save_for_backward(a, b)
        ctx.N = shape[1]
        return lucid.matmul(a, b)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad_values = grad_b = None
        if ctx.needs_input_grad[1]:
            grad_a_dense = grad_output.matmul(b.t())
            edge_idx = a._indices()[0] * ctx.N + a._indices()[1]
            grad_values = grad_a_dense.view(-1)[edge_idx]
        if ctx.needs_input_grad[3]:
            grad_b = a.t().matmul(grad_output)
        return None, grad_values, None, grad_b


def test_a_product_is_the_product_of_the_dense_matrix(run: Run) -> None:
    b = lucid.tensor(np.arange(8.0).reshape(4, 2))
    a = dense_of(numbers().detach().numpy())

    def body(values: Any, b: Any) -> Any:
        matrix = lucid.sparse_coo_tensor(places(), values, SHAPE)
        return matrix @ b, matrix @ b[:, 0], b.t() @ matrix.t(), matrix.to_dense(), (matrix * 2) @ b

    product, vector, left, dense, doubled = run(body, numbers(), b)
    np.testing.assert_allclose(product.detach().numpy(), a @ b.numpy())
    np.testing.assert_allclose(vector.detach().numpy(), a @ b.numpy()[:, 0])
    np.testing.assert_allclose(left.detach().numpy(), b.numpy().T @ a.T)
    np.testing.assert_allclose(dense.detach().numpy(), a)
    np.testing.assert_allclose(doubled.detach().numpy(), 2 * a @ b.numpy())


def test_gradients_flow_to_the_entries_and_to_the_dense_matrix(run: Run) -> None:
    b = lucid.randn(4, 2, dtype=lucid.float64, requires_grad=True)

    def body(values: Any, b: Any) -> Any:
        return lucid.sparse_coo_tensor(places(), values, SHAPE) @ b

    assert lucid.autograd.gradcheck(lambda *args: run(body, *args), (numbers(), b))


def test_a_sparse_tensor_can_be_saved_for_the_backward(run: Run) -> None:
    values, b = numbers(), lucid.randn(4, 2, dtype=lucid.float64, requires_grad=True)
    square = lucid.tensor(np.stack([ROWS, COLUMNS]))

    def body(values: Any, b: Any) -> Any:
        loss = SpecialSpmm.apply(square, values, SHAPE, b).pow(2).sum()
        loss.backward()
        return loss

    run(body, values, b)
    a = dense_of(values.detach().numpy())
    upstream = 2 * a @ b.detach().numpy()
    full = upstream @ b.detach().numpy().T
    np.testing.assert_allclose(values.grad.numpy(), full[ROWS, COLUMNS])
    np.testing.assert_allclose(b.grad.numpy(), a.T @ upstream)


def test_a_saved_sparse_tensor_notices_a_write_to_its_values() -> None:
    values, b = numbers(), lucid.ones(4, 2, dtype=lucid.float64, requires_grad=True)
    y = SpecialSpmm.apply(places(), values, SHAPE, b).sum()
    with lucid.no_grad():
        values.mul_(2)
    with pytest.raises(lucid.LucidError, match="modified by an inplace operation"):
        y.backward()


def test_equal_places_add_up_when_coalesced() -> None:
    a = lucid.sparse_coo_tensor(places(), numbers(), SHAPE)
    assert not a.is_coalesced()
    with pytest.raises(lucid.LucidError) as error:
        a.indices()
    assert str(error.value) == (
        "Cannot get indices on an uncoalesced tensor, please call .coalesce() first"
    )
    c = a.coalesce()
    assert c.is_coalesced()
    assert c._nnz() == 4
    assert c.indices().tolist() == [[0, 1, 2, 2], [1, 2, 0, 2]]
    assert c.values().tolist() == [1.0, 2.5, 3.0, 4.0]
    assert c.t().shape == (4, 3)


class Coalesced(Function):
    """How many places differ is known only at each call."""

    @staticmethod
    def forward(ctx, indices, values, b):
        a = lucid.sparse_coo_tensor(indices, values, (3, b.shape[0])).coalesce()
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, g):
        a, _ = ctx.saved_tensors
        return None, None, a.t() @ g


def test_a_function_may_coalesce(prepared: Run) -> None:
    def body(indices: Any, values: Any, b: Any) -> Any:
        y = Coalesced.apply(indices, values, b)
        y.sum().backward()
        return y

    step = prepared(body)
    values = numbers().detach()
    for indices in (places(), places().flip(1), places() * 0):
        b = lucid.ones(4, 2, dtype=lucid.float64, requires_grad=True)
        dense = np.zeros(SHAPE)
        np.add.at(dense, tuple(indices.numpy()), values.numpy())
        found = step(indices, values, b).detach().numpy()
        np.testing.assert_allclose(found, dense.sum(1)[:, None].repeat(2, 1))
        np.testing.assert_allclose(b.grad.numpy(), dense.sum(0)[:, None].repeat(2, 1))


def test_what_a_step_coalesces_can_be_used(run: Run) -> None:
    places_, b = places() * lucid.tensor([[0], [1]]), lucid.ones(4, 1, dtype=lucid.float64)

    def body(indices: Any, values: Any, b: Any) -> Any:
        a = lucid.sparse_coo_tensor(indices, values, SHAPE).coalesce()
        return a.is_coalesced(), a.to_dense(), a @ b, a.t() @ b[:3], a

    is_coalesced, dense, product, turned, a = run(body, places_, numbers().detach(), b)
    assert is_coalesced and a.is_coalesced()
    assert dense.tolist() == [[3.0, 1.0, 6.5, 0.0], [0.0] * 4, [0.0] * 4]
    assert (product.tolist(), turned.tolist()) == (
        [[10.5], [0.0], [0.0]],
        [[3.0], [1.0], [6.5], [0.0]],
    )
    assert a._nnz() == 3
    assert a.indices().tolist() == a._indices().tolist() == [[0, 0, 0], [0, 1, 2]]
    assert a.values().tolist() == a._values().tolist() == [3.0, 1.0, 6.5]


@pytest.mark.parametrize("what", ["indices", "values", "_indices", "_values", "_nnz"])
def test_but_how_many_places_differ_is_not_known_in_it(what: str) -> None:
    def body(values: Any) -> Any:
        return getattr(lucid.sparse_coo_tensor(places(), values, SHAPE).coalesce(), what)()

    with pytest.raises(lucid.TraceError) as caught:
        lucid.compile(body)(numbers())
    assert str(caught.value) == (
        f"{what} of a coalesced sparse tensor: how many places differ is known only when the step "
        "runs\nhint: coalesce before, pass is_coalesced=True to sparse_coo_tensor, or put it into "
        "a custom Function"
    )


def test_a_sparse_product_is_mapped_and_pushed_forward(run: Run) -> None:
    def body(values: Any, b: Any, v: Any) -> Any:
        spmm = lambda values, b: SpecialSpmm.apply(places(), values, SHAPE, b)  # noqa: E731
        each = lucid.vmap(spmm)(lucid.stack([values, 2 * values]), lucid.stack([b, b]))
        tangent = lucid.func.jvp(lambda b: spmm(values, b), (b,), (v,))[1]
        of_values = lucid.func.grad(lambda values: spmm(values, b).sum())(values)
        return each, tangent, of_values

    values, rng = numbers().detach(), np.random.default_rng(0)
    b, v = (lucid.tensor(rng.standard_normal((4, 2))) for _ in range(2))
    dense = dense_of(values.numpy())
    each, tangent, of_values = run(body, values, b, v)
    np.testing.assert_allclose(each.numpy(), np.stack([dense @ b.numpy(), 2 * dense @ b.numpy()]))
    np.testing.assert_allclose(tangent.numpy(), dense @ v.numpy())
    np.testing.assert_allclose(of_values.numpy(), b.numpy().sum(1)[COLUMNS])


def test_sparse_arguments_and_results_pass_through_a_compiled_function() -> None:
    @lucid.compile
    def turned(a: Any, b: Any) -> Any:
        return a.t(), a @ b

    a = lucid.sparse_coo_tensor(places(), numbers(), SHAPE)
    t, product = turned(a, lucid.ones(4, 1, dtype=lucid.float64))
    np.testing.assert_allclose(t.to_dense().detach().numpy(), dense_of(a._values().tolist()).T)
    assert product.shape == (3, 1)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(lucid.IndexOutOfRangeError, match="for dim 0, size is 2 but found index 2"):
        lucid.sparse_coo_tensor(places(), numbers(), (2, 4))
    with pytest.raises(lucid.ShapeError, match="number of dimensions must be the rows of indices"):
        lucid.sparse_coo_tensor(places(), numbers(), (2, 4, 5))
    with pytest.raises(lucid.ShapeError, match="indices \\(d, n\\) and values \\(n,\\) expected"):
        lucid.sparse_coo_tensor(places(), numbers()[:2], SHAPE)
    with pytest.raises(lucid.ShapeError, match="a sparse \\(n, k\\) and a dense"):
        lucid.sparse_coo_tensor(places(), numbers(), SHAPE) @ lucid.ones(3, 1)
    with pytest.raises(lucid.ArgumentError):
        lucid.matmul(lucid.sparse_coo_tensor(places(), numbers(), SHAPE), 3)


def test_older_names_and_what_is_made_of_a_dense_matrix() -> None:
    places, numbers = lucid.tensor([[0, 1], [1, 0]]), lucid.tensor([1.5, 2.0])
    a = lucid.sparse.FloatTensor(places, numbers, lucid.Size([2, 3]))
    assert a.dtype is lucid.float32 and a.shape == (2, 3)
    assert lucid.sparse.DoubleTensor(places, numbers).float().dtype is lucid.float32
    assert a.double().dtype is lucid.float64
    dense = lucid.eye(3, requires_grad=True)
    product = lucid.spmm(a, dense)
    assert product.tolist() == [[0.0, 1.5, 0.0], [2.0, 0.0, 0.0]]
    again = product.to_sparse()
    assert again.is_coalesced() and again._nnz() == 2
    assert again.to_dense().tolist() == product.tolist()
    again.values().sum().backward()
    assert dense.grad is not None and dense.grad.sum().item() == 3.5


def test_another_device_is_refused() -> None:
    with pytest.raises(lucid.OptionError, match="sparse_coo_tensor: device 'cuda' does not exist"):
        lucid.sparse_coo_tensor([[0]], [1.0], (1,), device="cuda")


def test_a_dense_tensor_is_dense_already(run: Callable[[Any], Any]) -> None:
    x = lucid.ones(2, requires_grad=True)
    assert x.to_dense() is x
    assert run(lambda: x.to_dense(lucid.float64, masked_grad=False)).dtype is lucid.float64
    with pytest.raises(lucid.ArgumentError, match="to_dense: masked_grad must be True or False"):
        x.to_dense(masked_grad=1)


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 1), [1]])
def test_a_sum_is_that_of_the_dense_matrix(dim: Any) -> None:
    places = [[0, 1, 1, 0], [2, 0, 1, 2]]

    def summed(entries: Any) -> tuple[Any, Any]:
        matrix = lucid.sparse_coo_tensor(places, entries, (2, 3))
        found = lucid.sparse.sum(matrix, dim)
        dense = found.to_dense() if isinstance(found, lucid.sparse.SparseTensor) else found
        return dense, matrix.to_dense().sum(dim)

    entries = lucid.tensor([3.0, 4.0, 5.0, 6.0], requires_grad=True)
    for found, expected in (summed(entries), lucid.compile(summed)(entries)):
        assert found.shape == expected.shape
        assert (found == expected).all()
        (gradient,) = lucid.autograd.grad(found.sum(), entries)
        assert (gradient == 1).all()
    matrix = lucid.sparse_coo_tensor(places, entries, (2, 3))
    assert matrix.sum(1).is_coalesced()
    assert matrix.sum(dtype=lucid.float64).dtype is lucid.float64
    with pytest.raises(IndexError):
        matrix.sum(2)
