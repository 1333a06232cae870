"""Training through custom Functions as scientists write them, with NumPy, SciPy and C libraries."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from custom_functions import numbers

import lucid
from lucid.autograd import Function
from lucid.autograd.function import once_differentiable

scipy = pytest.importorskip("scipy")
linalg = pytest.importorskip("scipy.linalg")
special = pytest.importorskip("scipy.special")
optimize = pytest.importorskip("scipy.optimize")
integrate = pytest.importorskip("scipy.integrate")
sparse = pytest.importorskip("scipy.sparse")
sparse_linalg = pytest.importorskip("scipy.sparse.linalg")

Case = tuple[str, Callable[[Any], Any]]
CASES: list[Case] = []


def case(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter a Function of six numbers z, made of a Function's class by `make(cls)(z)`."""

    def entered(cls: Any) -> Any:
        CASES.append((cls.__name__, lambda z: make(cls)(z)))
        return cls

    return entered


def tensor(array: Any) -> Any:
    return lucid.from_numpy(np.ascontiguousarray(array))


MATRIX = np.random.default_rng(1).normal(size=(6, 6)) + 6 * np.eye(6)


@case(lambda cls: lambda z: cls.apply(lucid.tensor(MATRIX) + 0.1 * lucid.outer(z, z), z))
class Solve(Function):
    """x with A x = b, by LU factors that backward uses again."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.factors = linalg.lu_factor(a.numpy())
        x = tensor(linalg.lu_solve(ctx.factors, b.numpy()))
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        g = tensor(linalg.lu_solve(ctx.factors, grad.numpy(), trans=1))
        return -lucid.outer(g, x), g


@case(lambda cls: lambda z: cls.apply(lucid.outer(z, z) + 3 * lucid.eye(6, dtype=z.dtype)))
class LogDet(Function):
    """Of a positive definite matrix; the inverse is saved, and backward is recorded."""

    @staticmethod
    def forward(ctx, a):
        factor = linalg.cho_factor(a.numpy())
        ctx.save_for_backward(tensor(linalg.cho_solve(factor, np.eye(len(a)))))
        return lucid.tensor(2 * np.log(np.diag(factor[0])).sum())

    @staticmethod
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        return grad * inverse.T


@case(lambda cls: lambda z: cls.apply(z.square() + 3, lucid.ones(6, dtype=z.dtype) * 2 + z))
class Tridiagonal(Function):
    """A sparse system by SciPy, its matrix kept on ctx."""

    @staticmethod
    def forward(ctx, diagonal, b):
        n = b.shape[0]
        off = -np.ones(n - 1)
        ctx.matrix = sparse.diags([off, diagonal.numpy(), off], [-1, 0, 1], format="csc")
        x = tensor(sparse_linalg.spsolve(ctx.matrix, b.numpy()))
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        g = sparse_linalg.spsolve(ctx.matrix.T.tocsc(), grad.numpy())
        return tensor(-g * ctx.saved_tensors[0].numpy()), tensor(g)


@case(lambda cls: lambda z: cls.apply(z.exp(), 0.5))
class Decay(Function):
    """y' = -k y - y^2, with the derivative by the variational equation, as an array on ctx."""

    @staticmethod
    def forward(ctx, k, time):
        n = k.numel()

        def slope(t, state):
            y, s = state[:n], state[n:]
            return np.concatenate([-k.numpy() * y - y**2, -k.numpy() * s - y - 2 * y * s])

        start = np.concatenate([np.ones(n), np.zeros(n)])
        found = integrate.solve_ivp(slope, (0, time), start, rtol=1e-9, atol=1e-12).y[:, -1]
        ctx.derivative = found[n:].copy()
        return tensor(found[:n])

    @staticmethod
    def backward(ctx, grad):
        return grad * lucid.from_numpy(ctx.derivative), None


@case(lambda cls: lambda z: cls.apply(z.square() + 0.5))
class LogGamma(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return tensor(special.gammaln(x.numpy()))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * tensor(special.digamma(x.numpy()))


@case(lambda cls: lambda z: cls.apply(z))
class Root(Function):
    """y with y^3 + y = x, number by number; the derivative by the implicit function theorem."""

    @staticmethod
    def forward(ctx, x):
        roots = [optimize.brentq(lambda y, v=v: y**3 + y - v, -9, 9) for v in x.tolist()]
        y = lucid.tensor(roots, dtype=x.dtype)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad / (3 * y * y + 1)


@case(lambda cls: lambda z: cls.apply(z, 0.3))
class Minimum(Function):
    """argmin over u of |u - z|^2 / 2 + f sum(log cosh u), by Newton steps of SciPy."""

    @staticmethod
    def forward(ctx, z, f):
        target = z.numpy()
        ctx.f = f
        found = optimize.minimize(
            lambda u: 0.5 * ((u - target) ** 2).sum() + f * np.log(np.cosh(u)).sum(),
            np.zeros_like(target),
            jac=lambda u: u - target + f * np.tanh(u),
            method="BFGS",
            options={"gtol": 1e-10},
        )
        u = tensor(found.x)
        ctx.save_for_backward(u)
        return u

    @staticmethod
    def backward(ctx, grad):
        (u,) = ctx.saved_tensors
        return grad / (1 + ctx.f / u.cosh().square()), None


LIBM = ctypes.CDLL(ctypes.util.find_library("m") or None)
LIBM.erf.restype, LIBM.erf.argtypes = ctypes.c_double, [ctypes.c_double]


@case(lambda cls: lambda z: cls.apply(z))
class ErfOfC(Function):
    """A function of the C library, called for each number, on raw memory."""

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        memory = ctypes.cast(y.data_ptr(), ctypes.POINTER(ctypes.c_double))
        for i in range(y.numel()):
            memory[i] = LIBM.erf(memory[i])
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (2 / np.pi**0.5) * lucid.exp(-x * x)


@case(lambda cls: lambda z: cls.apply(z)[0])
class SortByNumpy(Function):
    """Sorted values and the order, which has no gradient."""

    @staticmethod
    def forward(ctx, x):
        order = tensor(np.argsort(x.numpy(), kind="stable"))
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(order)
        return x[order], order

    @staticmethod
    def backward(ctx, grad, _):
        (order,) = ctx.saved_tensors
        return lucid.zeros_like(grad).index_add(0, order, grad)


@case(lambda cls: lambda z: cls.apply(z, 3))
class KeepLargest(Function):
    """The k largest; the mask is an array on ctx, which backward makes a tensor of."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.mask = np.zeros(x.shape)
        ctx.mask[np.argpartition(x.numpy(), -k)[-k:]] = 1
        return tensor(x.numpy() * ctx.mask)

    @staticmethod
    def backward(ctx, grad):
        return grad * lucid.from_numpy(ctx.mask), None


@case(lambda cls: lambda z: cls.apply(z, 2))
class LowPass(Function):
    """Frequencies above a bound dropped; its own transpose."""

    @staticmethod
    def forward(ctx, x, bound):
        ctx.bound = bound
        spectrum = np.fft.rfft(x.numpy())
        spectrum[bound:] = 0
        return tensor(np.fft.irfft(spectrum, len(x)))

    @staticmethod
    def backward(ctx, grad):
        return LowPass.apply(grad, ctx.bound), None


@case(lambda cls: lambda z: cls.apply(z))
class Table(Function):
    """Linear interpolation in a table on the class."""

    places = np.linspace(-3, 3, 13)
    values = np.tanh(np.linspace(-3, 3, 13))

    @staticmethod
    def forward(ctx, x):
        cell = np.clip(np.searchsorted(Table.places, x.numpy()) - 1, 0, 11)
        ctx.slope = np.diff(Table.values)[cell] / np.diff(Table.places)[cell]
        return tensor(np.interp(x.numpy(), Table.places, Table.values))

    @staticmethod
    def backward(ctx, grad):
        return tensor(ctx.slope * grad.numpy())


RUNNING = lucid.zeros(6, dtype=lucid.float64)


@case(lambda cls: lambda z: cls.apply(z))
class Normalize(Function):
    """Less a running mean, a tensor from outside that each call moves: op by op."""

    @staticmethod
    def forward(ctx, x):
        RUNNING.mul_(0.9).add_(0.1 * x)
        return tensor(x.numpy() - RUNNING.numpy())

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.9


@case(lambda cls: lambda z: cls.apply(z * 4) / 4)
class Rounded(Function):
    """Straight through."""

    @staticmethod
    def forward(ctx, x):
        return tensor(np.rint(x.numpy()))

    @staticmethod
    def backward(ctx, grad):
        return grad


@case(lambda cls: lambda z: cls.apply(z, 0.25))
class DropByNumpy(Function):
    """A mask of NumPy's random numbers."""

    @staticmethod
    def forward(ctx, x, p):
        ctx.keep = (np.random.rand(*x.shape) > p) / (1 - p)
        return tensor(x.numpy() * ctx.keep)

    @staticmethod
    def backward(ctx, grad):
        return tensor(grad.numpy() * ctx.keep), None


@case(lambda cls: lambda z: cls.apply(z, steps=20))
class Pendulums(Function):
    """A simulation with Python's floats, and its adjoint by going back through the states."""

    @staticmethod
    def forward(ctx, angle, *, steps):
        ctx.states = []
        q, v = angle.numpy().copy(), np.zeros(len(angle))
        for _ in range(steps):
            ctx.states.append(q.copy())
            v = v - 0.05 * np.sin(q)
            q = q + 0.05 * v
        return tensor(q)

    @staticmethod
    def backward(ctx, grad):
        gq, gv = grad.numpy().copy(), np.zeros(len(grad))
        for q in reversed(ctx.states):
            gv = gv + 0.05 * gq
            gq = gq - 0.05 * np.cos(q) * gv
        return tensor(gq)


@case(lambda cls: lambda z: cls.apply(z))
class Isotonic(Function):
    """Monotone regression: pools of neighbours, as a list on ctx."""

    @staticmethod
    def forward(ctx, x):
        pools: list[list[float]] = []
        for value in x.tolist():
            pools.append([value])
            while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
                pools[-2] += pools.pop()
        ctx.sizes = [len(pool) for pool in pools]
        means = [np.mean(pool) for pool in pools]
        return lucid.tensor(np.repeat(means, ctx.sizes))

    @staticmethod
    def backward(ctx, grad):
        parts = np.split(grad.numpy(), np.cumsum(ctx.sizes)[:-1])
        return tensor(np.concatenate([np.full(len(part), part.mean()) for part in parts]))


@case(lambda cls: lambda z: cls.apply(lucid.cdist(z.reshape(-1, 1), z.reshape(-1, 1) + 1), 0.5))
class SoftPath(Function):
    """The smoothed cheapest path through a matrix of costs (soft DTW)."""

    @staticmethod
    def forward(ctx, costs, gamma):
        n, m = ctx.size = tuple(costs.shape)
        ctx.gamma = gamma
        ctx.best = np.full((n + 1, m + 1), np.inf)
        ctx.best[0, 0] = 0
        c = costs.numpy()
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                before = ctx.best[[i - 1, i - 1, i], [j - 1, j, j - 1]]
                ctx.best[i, j] = c[i - 1, j - 1] - gamma * special.logsumexp(-before / gamma)
        ctx.save_for_backward(costs)
        return lucid.tensor(ctx.best[n, m])

    @staticmethod
    def backward(ctx, grad):
        (costs,) = ctx.saved_tensors
        c, (n, m), best = costs.numpy(), ctx.size, ctx.best
        weight = np.zeros((n + 2, m + 2))
        weight[n, m] = 1
        for i in range(n, 0, -1):
            for j in range(m, 0, -1):
                for a, b in ((i + 1, j), (i, j + 1), (i + 1, j + 1)):
                    if a <= n and b <= m:
                        share = (best[a, b] - best[i, j] - c[a - 1, b - 1]) / ctx.gamma
                        weight[i, j] += weight[a, b] * np.exp(share)
        return grad * tensor(weight[1:-1, 1:-1]), None


@case(lambda cls: lambda z: cls.apply(z, z[:3] * 0.5))
class Convolve(Function):
    @staticmethod
    def forward(ctx, x, kernel):
        ctx.save_for_backward(x, kernel)
        return tensor(np.convolve(x.numpy(), kernel.numpy()))

    @staticmethod
    def backward(ctx, grad):
        x, kernel = (t.numpy() for t in ctx.saved_tensors)
        parts = [kernel, x]
        found = [tensor(np.correlate(grad.numpy(), part, "valid")) for part in parts]
        needed = zip(found, ctx.needs_input_grad, strict=True)
        return tuple(g if need else None for g, need in needed)


@case(lambda cls: lambda z: cls.apply(z * 1, -0.5, 0.5))
class ClipInPlace(Function):
    """By NumPy in the argument's memory."""

    @staticmethod
    def forward(ctx, x, low, high):
        array = x.numpy()
        ctx.inside = (low <= array) & (array <= high)
        np.clip(array, low, high, out=array)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return lucid.where(lucid.from_numpy(ctx.inside), grad, 0.1 * grad), None, None


@case(lambda cls: lambda z: cls.apply(lucid.outer(z, z.sin()) * 0.3))
class MatrixExp(Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return tensor(linalg.expm(a.numpy()))

    @staticmethod
    def backward(ctx, grad):
        (a,) = ctx.saved_tensors
        return tensor(linalg.expm_frechet(a.numpy().T, grad.numpy(), compute_expm=False))


STEPS = lucid.diag(lucid.arange(6.0, dtype=lucid.float64))


@case(lambda cls: lambda z: cls.apply(lucid.outer(z, z) + STEPS)[0])
class Eigen(Function):
    """Eigenvalues and vectors; backward with recorded ops on what is saved."""

    @staticmethod
    def forward(ctx, a):
        values, vectors = (tensor(x) for x in np.linalg.eigh(a.numpy()))
        ctx.mark_non_differentiable(vectors)
        ctx.save_for_backward(vectors)
        return values, vectors

    @staticmethod
    def backward(ctx, grad, _):
        (v,) = ctx.saved_tensors
        return (v * grad) @ v.T


@case(lambda cls: lambda z: cls.apply(z))
class Cached(Function):
    """Nodes of a quadrature by size, kept in a dict on the class: the integral of exp(-x t^2)."""

    rules: dict[int, Any] = {}  # noqa: RUF012

    @staticmethod
    def forward(ctx, x):
        n = 8 + len(x)
        if n not in Cached.rules:
            Cached.rules[n] = np.polynomial.legendre.leggauss(n)
        nodes, weights = Cached.rules[n]
        parts = weights * np.exp(-np.outer(x.numpy(), nodes**2))
        ctx.save_for_backward(tensor(-(parts * nodes**2).sum(1)))
        return tensor(parts.sum(1))

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


MOVES = "Normalize.forward, a host call, writes RUNNING"


def train(prepare: Any, function: Any, dtype: Any, make: Any) -> list[Any]:
    """Ten steps; the losses, gradients and parameters after each."""
    w = lucid.tensor(np.linspace(-1.2, 1.3, 6), dtype=dtype, requires_grad=True)
    optimizer = make([w])
    RUNNING.zero_()
    np.random.seed(3)

    def body(x):
        optimizer.zero_grad()
        loss = (function(w * x) - 0.3).square().mean() + 0.01 * w.square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step, draw = prepare(body), np.random.default_rng(0)
    found = []
    for _ in range(10):
        x = lucid.tensor(1 + 0.2 * draw.normal(size=6), dtype=dtype)
        found.append([step(x).item(), numbers(w.grad), numbers(w)])
    if prepare is lucid.compile:
        reasons = {*step.stats.eager_reasons}
        assert step.stats.traces == 1 or reasons == {MOVES}, step.stats.retrace_reasons
    return [found, numbers(RUNNING), np.random.rand()]


@pytest.mark.parametrize(("name", "function"), CASES, ids=[name for name, _ in CASES])
def test_ten_steps_are_those_of_eager_mode(name: str, function: Any) -> None:
    make = lambda p: lucid.optim.Adam(p, lr=0.05)  # noqa: E731
    eager, compiled = (
        train(prepare, function, lucid.float64, make)
        for prepare in (lambda body: body, lucid.compile)
    )
    for (loss, grad, w), (loss_now, grad_now, w_now) in zip(eager[0], compiled[0], strict=True):
        np.testing.assert_allclose(loss_now, loss, rtol=1e-9)
        np.testing.assert_allclose(grad_now, grad, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(w_now, w, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(compiled[1:][0], eager[1:][0], rtol=1e-10)
    assert compiled[2] == eager[2]


# The others have a gradient that isn't the derivative, no derivative everywhere, or state.
SMOOTH = [
    (name, function)
    for name, function in CASES
    if name not in ("Rounded", "DropByNumpy", "Normalize", "ClipInPlace", "Table", "KeepLargest")
]


@pytest.mark.parametrize(("name", "function"), SMOOTH, ids=[name for name, _ in SMOOTH])
def test_the_gradients_are_right(name: str, function: Any) -> None:
    z = lucid.tensor(np.linspace(-1.2, 1.3, 6), dtype=lucid.float64, requires_grad=True)
    assert lucid.autograd.gradcheck(function, [z], eps=1e-5, atol=1e-4)
