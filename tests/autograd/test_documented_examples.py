"""The examples that documents of `Function` and `FunctionCtx` give."""

from __future__ import annotations

import numpy as np
import pytest
from custom_functions import Square, first_line, leaf, numbers

import lucid
from lucid.autograd import Function, forward_ad, gradcheck, gradgradcheck
from lucid.autograd.function import (
    FunctionMeta,
    InplaceFunction,
    once_differentiable,
)


class SquareWithShape(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        assert grad_out.shape == ctx.shape
        return 2 * x * grad_out


class MyReLU(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0.0)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        return grad_out * (x > 0).float()


class Inplace(Function):
    @staticmethod
    def forward(ctx, x):
        x += 1
        ctx.mark_dirty(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output


class SortIdx(Function):
    @staticmethod
    def forward(ctx, x):
        values, idx = x.sort()
        ctx.mark_non_differentiable(idx)
        ctx.save_for_backward(x, idx)
        return values, idx

    @staticmethod
    @once_differentiable
    def backward(ctx, g1, g2):  # g2 is zeros
        x, idx = ctx.saved_tensors
        grad_input = lucid.zeros_like(x)
        grad_input.index_add_(0, idx, g1)
        return grad_input


class Func(Function):
    @staticmethod
    def forward(ctx, x: lucid.Tensor, y: lucid.Tensor, z: int):
        w = x * z
        out = x * y + y * z + w * y
        ctx.save_for_backward(x, y, w, out)
        ctx.z = z
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        x, y, _, _ = ctx.saved_tensors
        z = ctx.z
        gx = grad_out * (y + y * z)
        gy = grad_out * (x + z + x * z)
        return gx, gy, None


class FuncFwd(Function):
    """`Func` with a derivative for each mode, each with tensors saved for it."""

    @staticmethod
    def forward(ctx, x: lucid.Tensor, y: lucid.Tensor, z: int):
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        ctx.z = z
        return x * y * z

    @staticmethod
    def jvp(ctx, x_t, y_t, _):
        x, y = ctx.saved_tensors
        return ctx.z * (y * x_t + x * y_t)

    @staticmethod
    def vjp(ctx, grad_out):
        x, y = ctx.saved_tensors
        z = ctx.z
        return z * grad_out * y, z * grad_out * x, None


class SpecialSpmm(Function):
    """A sparse matrix times a dense one, with a gradient for the stored entries only."""

    @staticmethod
    def forward(ctx, indices, values, shape, b):
        assert not indices.requires_grad
        a = lucid.sparse_coo_tensor(indices, values, shape)
        ctx.save_for_backward(a, b)
        ctx.N = shape[1]  # the entry (i, j) of the gradient of a is at i * N + j
        return lucid.matmul(a, b)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad_values = grad_b = None
        if ctx.needs_input_grad[1]:
            grad_a_dense = grad_output.matmul(b.t())
            edge_idx = a._indices()[0, :] * ctx.N + a._indices()[1, :]
            grad_values = grad_a_dense.view(-1)[edge_idx]
        if ctx.needs_input_grad[3]:
            grad_b = a.t().matmul(grad_output)
        return None, grad_values, None, grad_b


class TwoClones(Function):
    @staticmethod
    def forward(ctx, x, seen, materialize):
        ctx.set_materialize_grads(materialize)
        ctx.save_for_backward(x)
        ctx.seen = seen
        return x.clone(), x.clone()

    @staticmethod
    def backward(ctx, g1, g2):
        ctx.seen.append(g2)
        (x,) = ctx.saved_tensors
        grad_input = lucid.zeros_like(x)
        for g in (g1, g2):
            if g is not None:
                grad_input = grad_input + g
        return grad_input, None, None


class GradFactor(Function):
    @staticmethod
    def forward(ctx, x, f):
        ctx.f = f
        return x

    @staticmethod
    def backward(ctx, grad_y):
        return grad_y * ctx.f, None


def test_square(run):
    x = leaf([1.0, -3.0])
    run(lambda x: SquareWithShape.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [2.0, -6.0]
    assert gradcheck(lambda x: run(SquareWithShape.apply, x), (leaf([1.0, -3.0]),))
    assert gradgradcheck(lambda x: run(SquareWithShape.apply, x), (leaf([1.0, -3.0]),))


def test_my_relu(run):
    x = leaf([1.0, -3.0])

    def body(x):
        y = MyReLU.apply(x)
        y.sum().backward()
        return y

    assert numbers(run(body, x)) == [1.0, 0.0]
    assert numbers(x.grad) == [1.0, 0.0]


def test_inplace_without_a_conflict(run):
    x = leaf([2.0])

    def body(x):
        a = x.clone()
        b = Inplace.apply(a)
        b.sum().backward()
        return b is a, b

    same, b = run(body, x)
    assert same
    assert numbers(b) == [3.0]
    assert numbers(x.grad) == [1.0]


def test_inplace_on_what_another_op_saved_raises(run):
    def body(x):
        a = x.clone()
        b = a * a
        Inplace.apply(a)
        b.backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf(1.0))
    assert first_line(caught) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [DoubleTensor []], which is output 0 of Inplace, is at version 2; expected "
        "version 0 instead."
    )


class InplaceByNumPy(Function):
    @staticmethod
    def forward(ctx, x):
        x_npy = x.numpy()  # x_npy shares storage with x
        x_npy += 1
        ctx.mark_dirty(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output


def test_inplace_by_numpy(run):
    def body(x):
        a = x.clone()
        y = InplaceByNumPy.apply(a)
        (y * 3).sum().backward()
        return y is a, a

    x = leaf([1.0, 2.0])
    same, a = run(body, x)
    assert same
    assert numbers([a, x.grad]) == [[2.0, 3.0], [3.0, 3.0]]


def test_inplace_by_numpy_on_what_another_op_saved_raises(run):
    def body(x):
        a = x.clone()
        b = a * a
        InplaceByNumPy.apply(a)
        b.backward()

    with pytest.raises(RuntimeError) as caught:
        run(body, leaf(1.0))
    assert first_line(caught) == (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [DoubleTensor []], which is output 0 of InplaceByNumPy, is at version 1; "
        "expected version 0 instead."
    )


def test_sort_with_indices(run):
    x = leaf([3.0, 1.0, 2.0])

    def body(x, weights):
        values, idx = SortIdx.apply(x)
        (values * weights).sum().backward()
        return values, idx, idx.requires_grad

    values, idx, requires_grad = run(body, x, leaf([1.0, 10.0, 100.0], False))
    assert numbers([values, idx]) == [[1.0, 2.0, 3.0], [1, 2, 0]]
    assert requires_grad is False
    assert numbers(x.grad) == [100.0, 1.0, 10.0]


def test_func(run):
    x, y = leaf([1.0]), leaf([2.0])
    out = run(lambda x, y: Func.apply(x, y, 4), x, y)
    assert numbers(out) == [18.0]
    out.sum().backward()
    assert numbers([x.grad, y.grad]) == [[10.0], [9.0]]


def test_func_fwd_in_forward_mode(run):
    def body(a, da, b):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(a, da)
            c = forward_ad.unpack_dual(FuncFwd.apply(dual, b, 4))
            both = forward_ad.unpack_dual(FuncFwd.apply(dual, dual, 4))
            return c.primal, c.tangent, both.tangent

    a, da, b = leaf([1.0], False), leaf([0.5], False), leaf([2.0], False)
    assert numbers(run(body, a, da, b)) == [[8.0], [4.0], [4.0]]


def test_func_fwd_in_reverse_mode(run):
    x, y = leaf([1.0]), leaf([2.0])
    run(lambda x, y: FuncFwd.apply(x, y, 4).sum().backward(), x, y)
    assert numbers([x.grad, y.grad]) == [[8.0], [4.0]]
    assert gradcheck(
        lambda x, y: run(lambda x, y: FuncFwd.apply(x, y, 4), x, y), (x, y), check_forward_ad=True
    )


@pytest.mark.parametrize("wanted", ["values", "b", "both"])
def test_special_spmm(run, wanted):
    rows, columns = [0, 1, 1, 2], [1, 0, 3, 2]
    values = leaf([1.0, 2.0, 3.0, 4.0], wanted != "b")
    b = leaf([[1.0, -1.0], [2.0, 0.5], [0.0, 3.0], [-2.0, 1.0]], wanted != "values")
    weights = leaf([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], False)

    def body(indices, values, b, weights):
        y = SpecialSpmm.apply(indices, values, lucid.Size([3, 4]), b)
        (y * weights).sum().backward()
        return y, y.grad_fn.needs_input_grad

    y, needs = run(body, lucid.tensor([rows, columns]), values, b, weights)
    dense = np.zeros((3, 4))
    dense[rows, columns] = values.detach().numpy()
    g, dense_b = weights.numpy(), b.detach().numpy()
    np.testing.assert_allclose(y.detach().numpy(), dense @ dense_b)
    assert needs == (False, wanted != "b", False, wanted != "values")
    if wanted == "b":
        assert values.grad is None
    else:
        np.testing.assert_allclose(values.grad.numpy(), (g @ dense_b.T)[rows, columns])
    if wanted == "values":
        assert b.grad is None
    else:
        np.testing.assert_allclose(b.grad.numpy(), dense.T @ g)


@pytest.mark.parametrize("materialize", [True, False])
def test_two_clones(run, materialize):
    x = leaf([1.0, 2.0])

    def body(x):
        seen = []
        first, _ = TwoClones.apply(x, seen, materialize)
        first.sum().backward()
        return seen

    seen = run(body, x)
    assert numbers(seen) == ([[0.0, 0.0]] if materialize else [None])
    assert numbers(x.grad) == [1.0, 1.0]


def test_grad_factor(run):
    x = leaf([1.0, 2.0])
    run(lambda x: (GradFactor.apply(x, 0.5) ** 2).sum().backward(), x)
    assert numbers(x.grad) == [1.0, 2.0]


def test_grad_factor_by_an_argument_of_the_step_that_changes(run):
    def body(x, factor):
        return lucid.autograd.grad(GradFactor.apply(x, factor).sum(), x)[0]

    x = leaf([1.0])
    assert [numbers(run(body, x, f)) for f in (0.5, -3.0)] == [[0.5], [-3.0]]


def test_inplace_function_is_a_function(run):
    class Doubled(InplaceFunction):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf([1.0])
    run(lambda x: Doubled.apply(x).sum().backward(), x)
    assert numbers(x.grad) == [2.0]
    assert type(Doubled) is FunctionMeta


def test_a_network_with_custom_functions_trains_alike_in_both_modes():
    def trained(wrap):
        w = lucid.tensor(np.linspace(-1, 1, 12).reshape(3, 4), requires_grad=True)
        x = lucid.tensor(np.linspace(0, 1, 15).reshape(5, 3))

        @wrap
        def step(x):
            loss = Square.apply(MyReLU.apply(x @ w) - 1).mean()
            w.grad = None
            loss.backward()
            with lucid.no_grad():
                w.sub_(w.grad * 0.1)
            return loss

        return [step(x).item() for _ in range(5)], numbers(w)

    eager, compiled = trained(lambda f: f), trained(lucid.compile)
    np.testing.assert_allclose(eager[0], compiled[0], rtol=1e-12)
    np.testing.assert_allclose(eager[1], compiled[1], rtol=1e-12)


# ---------------------------------------------------------------------- every use of each

X = [[1.0, -3.0, 2.0], [-2.0, 0.5, 4.0]]
SMOOTH = {  # the example, and what it computes, to be differentiated by hand
    "Square": (SquareWithShape.apply, lambda x: x**2, lambda x: 2 * x),
    "MyReLU": (MyReLU.apply, lambda x: np.maximum(x, 0), lambda x: np.where(x > 0, 1.0, 0.0)),
    "FuncFwd": (lambda x: FuncFwd.apply(x, x, 4), lambda x: 4 * x * x, lambda x: 8 * x),
    "TwoClones": (
        lambda x: sum(TwoClones.apply(x, [], True)),
        lambda x: 2 * x,
        lambda x: np.full_like(x, 2),
    ),
    "TwoClones without zeros": (
        lambda x: TwoClones.apply(x, [], False)[1],
        lambda x: x,
        np.ones_like,
    ),
    "GradFactor": (lambda x: GradFactor.apply(x, 1.0), lambda x: x, np.ones_like),
}
ONCE = {
    "Inplace": lambda x: Inplace.apply(x.clone()),
    "InplaceByNumPy": lambda x: InplaceByNumPy.apply(x.clone()),
    "SortIdx": lambda x: SortIdx.apply(x)[0],
    "Func": lambda x: Func.apply(x, x, 4),
}


def assert_close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_each_order_are_checked(prepared, name):
    fn = prepared(SMOOTH[name][0])
    assert gradcheck(fn, (leaf(X[0]),), check_forward_ad=True)
    assert gradgradcheck(fn, (leaf(X[0]),))


@pytest.mark.parametrize("name", ONCE)
def test_gradients_that_are_differentiable_once_are_checked(prepared, name):
    fn = prepared(ONCE[name])
    assert gradcheck(fn, (leaf(X[0]),))
    with pytest.raises(RuntimeError) as caught:
        gradgradcheck(fn, (leaf(X[0]),))
    assert first_line(caught) == (
        "trying to differentiate twice a function that was marked with @once_differentiable"
    )


@pytest.mark.parametrize("name", SMOOTH)
def test_each_is_mapped_and_pushed_forward(run, name):
    fn, values, derivative = SMOOTH[name]
    x, v = leaf(X, False), leaf([[1.0, 2.0, -1.0], [0.5, 1.0, 3.0]], False)

    def body(x, v):
        gradient = lucid.func.grad(lambda row: fn(row).sum())
        return (
            lucid.vmap(fn)(x),
            lucid.vmap(gradient)(x),
            lucid.func.jvp(fn, (x,), (v,))[1],
            lucid.func.jacrev(fn)(x[0]),
            lucid.func.jacfwd(fn)(x[0]),
        )

    mapped, gradients, tangent, backward, forward = run(body, x, v)
    slope = derivative(np.array(X))
    assert_close(mapped, values(np.array(X)))
    assert_close(gradients, slope)
    assert_close(tangent, slope * v.numpy())
    assert_close(backward, np.diag(slope[0]))
    assert_close(forward, np.diag(slope[0]))


@pytest.mark.parametrize("name", ["Inplace", "SortIdx", "Func"])
def test_what_is_differentiable_once_is_mapped_as_well(run, name):
    fn = ONCE[name]

    def body(x):
        return lucid.vmap(fn)(x), lucid.vmap(lucid.func.grad(lambda row: fn(row).sum()))(x)

    mapped, gradients = run(body, leaf(X, False))
    rows = [leaf(row) for row in X]
    for i, row in enumerate(rows):
        y = fn(row)
        y.sum().backward()
        assert_close(mapped[i], y.detach().numpy())
        assert_close(gradients[i], row.grad.numpy())
