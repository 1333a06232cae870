"""Factorizations, inverses and solutions: NumPy's numbers, derivatives, vmap, errors."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import lucid
from lucid import linalg as L
from lucid.autograd import gradcheck, gradgradcheck
from lucid.codegen.llvm.jit import processors
from lucid.functions import factorizations, lapack
from lucid.functions.lapack import call
from lucid.runtime.threads import default_num_threads

Tensors = tuple[lucid.Tensor, ...]


def matrix(*shape: int) -> np.ndarray:
    return np.random.RandomState(sum(shape)).standard_normal(shape)


def definite(a: Any) -> Any:
    """A positive definite matrix, from any one."""
    return a @ a.mT + 0.5 * lucid.eye(a.shape[-1], dtype=a.dtype)


def signless(*parts: Any) -> Any:
    """Factors whose columns' signs are LAPACK's choice, without them."""
    return tuple(part.abs() for part in parts)


def rebuilt(a: Any) -> Any:
    u, s, vh = L.svd(a, False)
    return u @ lucid.diag_embed(s) @ vh, s


CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "inv": (L.inv, [matrix(2, 3, 3)]),
    "det": (L.det, [matrix(2, 3, 3)]),
    "slogdet": (lambda a: L.slogdet(a).logabsdet, [matrix(2, 3, 3)]),
    "logdet": (lambda a: definite(a).logdet(), [matrix(3, 3)]),
    "solve": (L.solve, [matrix(2, 3, 3), matrix(2, 3, 2)]),
    "solve a vector": (L.solve, [matrix(3, 3), matrix(3)]),
    "solve broadcast": (L.solve, [matrix(3, 3), matrix(2, 3, 1)]),
    "solve from the right": (lambda a, b: L.solve(a, b, left=False), [matrix(3, 3), matrix(2, 3)]),
    "upper": (lambda a, b: L.solve_triangular(a, b, upper=True), [matrix(3, 3), matrix(3, 2)]),
    "unit lower": (
        lambda a, b: L.solve_triangular(a, b, upper=False, left=False, unitriangular=True),
        [matrix(3, 3), matrix(2, 3)],
    ),
    "cholesky": (lambda a: L.cholesky(definite(a)), [matrix(2, 3, 3)]),
    "cholesky upper": (lambda a: L.cholesky(definite(a), upper=True), [matrix(3, 3)]),
    "cholesky_solve": (
        lambda a, b: lucid.cholesky_solve(b, L.cholesky(definite(a))),
        [matrix(3, 3), matrix(3, 2)],
    ),
    "lu": (lambda a: L.lu(a), [matrix(2, 3, 3)]),
    "lu of more rows": (lambda a: L.lu(a)[1:], [matrix(5, 3)]),
    "lu of more columns": (lambda a: L.lu(a)[1:], [matrix(2, 3, 5)]),
    "lu_factor": (lambda a: L.lu_factor(a).LU, [matrix(2, 3, 3)]),
    "lu_solve": (lambda a, b: L.lu_solve(*L.lu_factor(a), b), [matrix(2, 3, 3), matrix(2, 3, 2)]),
    "lu_solve from the right": (
        lambda a, b: L.lu_solve(*L.lu_factor(a), b, left=False),
        [matrix(3, 3), matrix(2, 3)],
    ),
    "lu_solve of the transpose": (
        lambda a, b: lucid.cat(
            [
                L.lu_solve(*L.lu_factor(a), b, adjoint=True),
                L.lu_solve(*L.lu_factor(a), b.mT, left=False, adjoint=True).mT,
            ]
        ),
        [matrix(3, 3), matrix(3, 2)],
    ),
    "householder_product": (L.householder_product, [matrix(2, 4, 3), matrix(2, 2)]),
    "eigvalsh": (lambda a: L.eigvalsh(a + a.mT), [matrix(2, 3, 3)]),
    "eigh": (lambda a: signless(L.eigh(a + a.mT).eigenvectors), [matrix(3, 3)]),
    "svd": (lambda a: signless(*L.svd(a, False)), [matrix(2, 4, 3)]),
    "svd of more columns": (rebuilt, [matrix(3, 5)]),
    "svd full": (lambda a: L.svd(a).U[..., :3].abs(), [matrix(4, 3)]),
    "qr": (lambda a: signless(*L.qr(a)), [matrix(2, 4, 3)]),
    "qr of more columns": (lambda a: signless(*L.qr(a)), [matrix(3, 5)]),
    "pinv": (L.pinv, [matrix(4, 3)]),
    "pinv of more columns": (L.pinv, [matrix(2, 3, 5)]),
    "lstsq": (lambda a, b: L.lstsq(a, b).solution, [matrix(5, 3), matrix(5, 2)]),
    "matrix_exp": (L.matrix_exp, [matrix(2, 3, 3)]),
    "nuclear norm": (lambda a: L.matrix_norm(a, "nuc"), [matrix(2, 4, 3)]),
    "spectral norm": (lambda a: L.norm(a, 2), [matrix(4, 3)]),
    "matrix_power": (lambda a: L.matrix_power(a, -2), [matrix(3, 3)]),
    "cond": (L.cond, [matrix(3, 3)]),
    "tensorinv": (L.tensorinv, [matrix(2, 3, 6)]),
    "tensorsolve": (L.tensorsolve, [matrix(2, 3, 6), matrix(2, 3)]),
    "vander": (lucid.vander, [matrix(4)]),
}


def leaves(name: str) -> Tensors:
    return tuple(lucid.tensor(array, requires_grad=True) for array in CASES[name][1])


def tensors(result: Any) -> Tensors:
    return result if isinstance(result, tuple) else (result,)


def assert_close(found: Any, expected: Any) -> None:
    for one, other in zip(tensors(found), tensors(expected), strict=True):
        np.testing.assert_allclose(
            one.detach().numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-11
        )


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_both_orders_are_the_numeric_ones(name: str) -> None:
    function, _ = CASES[name]
    gradcheck(function, leaves(name), check_forward_ad=True)
    gradgradcheck(function, leaves(name))


@pytest.mark.parametrize("name", CASES)
def test_compiled_equals_eager_with_its_gradients(name: str) -> None:
    function, _ = CASES[name]

    def step(*xs: lucid.Tensor) -> Any:
        results = tensors(function(*xs))
        loss = sum((result**3).sum() for result in results)
        return (*results, *lucid.autograd.grad(loss, xs))

    assert_close(lucid.compile(step)(*leaves(name)), step(*leaves(name)))


@pytest.mark.parametrize("name", CASES)
def test_vmap_runs_all_examples(name: str) -> None:
    function, arrays = CASES[name]
    stacked = [lucid.tensor(np.stack([a, 2 * a, a + 1])) for a in arrays]
    found = tensors(lucid.vmap(function)(*stacked))
    assert_close(tuple(x[2] for x in found), function(*(x[2] for x in stacked)))


@pytest.mark.parametrize("name", CASES)
def test_a_derivative_outside_of_vmap_is_the_sum_over_the_examples(
    run: Callable[..., Any], name: str
) -> None:
    """What the examples share requires grad, so the calls need a history inside as well."""
    function, arrays = CASES[name]
    stacked = [lucid.tensor(np.stack([a, 2 * a, a + 1])) for a in arrays]

    def gradients(mapped: bool) -> Any:
        def body(*shared: lucid.Tensor) -> Any:
            def loss(*xs: lucid.Tensor) -> Any:
                moved = [x + y for x, y in zip(xs, shared, strict=True)]
                return sum((result**2).sum() for result in tensors(function(*moved)))

            rows = zip(*stacked, strict=True)
            losses = lucid.vmap(loss)(*stacked) if mapped else lucid.stack([loss(*r) for r in rows])
            return lucid.autograd.grad(losses.sum(), shared)

        zeros = [lucid.zeros(*a.shape, dtype=lucid.float64, requires_grad=True) for a in arrays]
        return run(body, *zeros)

    assert_close(gradients(True), gradients(False))


A = matrix(4, 3)
S = matrix(3, 3)
AGAINST_NUMPY: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda t: L.inv(t[1]), np.linalg.inv(S)),
    (lambda t: t[1].inverse(), np.linalg.inv(S)),
    (lambda t: t[1].det(), np.linalg.det(S)),
    (lambda t: L.slogdet(t[1])[0], np.linalg.slogdet(S)[0]),
    (lambda t: lucid.pinverse(t[0]), np.linalg.pinv(A)),
    (lambda t: L.svdvals(t[0]), np.linalg.svd(A, compute_uv=False)),
    (lambda t: L.matrix_rank(t[0]), np.array(3)),
    (lambda t: L.matrix_rank(t[0] @ t[0].mT), np.array(3)),
    (lambda t: L.cond(t[0]), np.linalg.cond(A)),
    (lambda t: L.cond(t[1], 1), np.linalg.cond(S, 1)),
    (lambda t: L.matrix_norm(t[0], -2), np.linalg.norm(A, -2)),
    (lambda t: L.matrix_norm(t[0], "nuc", keepdim=True), [[np.linalg.norm(A, "nuc")]]),
    (lambda t: lucid.svd(t[0])[2].abs(), np.abs(np.linalg.svd(A, False)[2].T)),
    (lambda t: L.qr(t[0], "complete")[0].shape[1], 4),
    (lambda t: L.eigh(t[1], UPLO="U")[0], np.linalg.eigvalsh(S, "U")),
    (lambda t: lucid.vander(t[1][0], 4), np.vander(S[0], 4)),
    (lambda t: L.lu_factor(t[0]).LU, scipy.linalg.lu_factor(A)[0]),
    (lambda t: L.lu_factor(t[0]).pivots - 1, scipy.linalg.lu_factor(A)[1]),
    (lambda t: L.lu(t[0]).P, scipy.linalg.lu(A)[0]),
    (lambda t: L.lu(t[0].mT).L, scipy.linalg.lu(A.T)[1]),
    (lambda t: L.lu(t[0].mT).U, scipy.linalg.lu(A.T)[2]),
    (lambda t: lucid.lu_unpack(*t[0].lu())[0], scipy.linalg.lu(A)[0]),
    (lambda t: t[1].lu_solve(*t[1].lu()), np.eye(3)),
    (lambda t: L.lu_solve(*L.lu_factor(t[1]), t[1], adjoint=True), np.linalg.solve(S.T, S)),
    (lambda t: L.lu_factor_ex(t[1] * 0).info, np.array(1)),
    (lambda t: t[1].lu(get_infos=True)[2], np.array(0)),
    (lambda t: L.lstsq(t[0], t[0][:, 0]).solution, [1.0, 0.0, 0.0]),
    (lambda t: lucid.cholesky_inverse(L.cholesky(definite(t[1]))) @ definite(t[1]), np.eye(3)),
    (lambda t: lucid.triangular_solve(t[0][:3], t[1], transpose=True)[0],
     np.linalg.solve(np.triu(S).T, A[:3])),
]  # fmt: skip


@pytest.mark.parametrize(("function", "expected"), AGAINST_NUMPY)
def test_results_are_numpys(function: Callable[[Any], Any], expected: Any) -> None:
    found = function((lucid.tensor(A), lucid.tensor(S)))
    found = found.numpy() if isinstance(found, lucid.Tensor) else found
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_the_gradient_of_a_singular_matrix_s_determinant_are_its_cofactors() -> None:
    a = lucid.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=lucid.float64, requires_grad=True)
    L.det(a).backward()
    assert a.grad is not None
    np.testing.assert_allclose(a.grad.numpy(), [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)


def test_a_singular_matrix_has_factors_but_nothing_to_solve_with(run: Callable[..., Any]) -> None:
    singular = lucid.tensor([[1.0, 2.0], [2.0, 4.0]])
    p, lower, upper = run(L.lu, singular)
    assert lucid.allclose(p @ lower @ upper, singular)
    with pytest.raises(L.LinAlgError, match=r"lu_factor: U\[1, 1\] is zero: Singular matrix"):
        run(lambda a: L.lu_factor(a), singular)
    with pytest.raises(ValueError, match="LU without pivoting is not implemented on the CPU"):
        L.lu(singular, pivot=False)
    with pytest.raises(L.LinAlgError, match="pivots must be between 1 and 2, not 3"):
        L.lu_solve(singular, lucid.tensor([3, 2], dtype=lucid.int32), singular)


@pytest.fixture(params=["BLAS", "by parts"])
def triangular_solver(request: Any, monkeypatch: Any) -> None:
    """With the function of NumPy's BLAS, if it is known, and without."""
    if request.param == "by parts":
        monkeypatch.setattr(lapack, "_triangular_solver", lambda kind: None)
    elif lapack._triangular_solver("d") is None:
        pytest.skip("NumPy is linked with another library than OpenBLAS")


@pytest.mark.parametrize("n", [16, 17, 65, 150])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.usefixtures("triangular_solver")
def test_larger_triangular_systems(n: int, upper: bool, unit: bool) -> None:
    """The other triangle isn't read, nor is a diagonal of ones; batches broadcast."""
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=(2, 1, n, n)) / n + 2 * np.eye(n), rng.normal(size=(3, n, 4))
    triangle = np.triu(a, int(unit)) if upper else np.tril(a, -int(unit))
    wanted = np.linalg.solve(triangle + unit * np.eye(n), np.broadcast_to(b, (2, 3, n, 4)))
    a = np.where(triangle == 0, np.nan, a)
    options = {"upper": upper, "unitriangular": unit}
    for left, x, y in ((True, a, b), (False, a.swapaxes(-1, -2), b.swapaxes(-1, -2))):
        options["upper"] = upper is left
        found = L.solve_triangular(lucid.tensor(x), lucid.tensor(y), left=left, **options).numpy()
        np.testing.assert_allclose(found if left else found.swapaxes(-1, -2), wanted, rtol=1e-9)
        of_floats = L.solve_triangular(
            lucid.tensor(x, dtype=lucid.float32).mT.contiguous().mT,
            lucid.tensor(y, dtype=lucid.float32),
            left=left,
            **options,
        )
        assert of_floats.dtype is lucid.float32
        np.testing.assert_allclose(of_floats.numpy(), found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.usefixtures("triangular_solver")
def test_singular_triangular_systems(n: int) -> None:
    a = lucid.eye(n) - (lucid.arange(n) == 2).float().diag()
    message = rf"linalg.solve_triangular: Singular matrix \(of f32\[{n},{n}\], f32\[{n},1\]\)"
    with pytest.raises(L.LinAlgError, match=message):
        L.solve_triangular(a, lucid.ones(n, 1), upper=True)
    found = L.solve_triangular(a, lucid.ones(n, 1), upper=True, unitriangular=True)
    assert found.tolist() == lucid.ones(n, 1).tolist()
    assert L.solve_triangular(lucid.eye(n), lucid.ones(n, 0), upper=True).shape == (n, 0)


SMALL = {
    "inv": (L.inv, np.linalg.inv),
    "solve": (lambda a: L.solve(a, a[..., :2] + 1), lambda a: np.linalg.solve(a, a[..., :2] + 1)),
    "det": (L.det, np.linalg.det),
    "slogdet": (lambda a: lucid.stack(L.slogdet(a)), lambda a: np.stack(np.linalg.slogdet(a))),
}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", SMALL)
def test_many_small_matrices(name: str, n: int, prepared: Any) -> None:
    """They are eliminated side by side: rows change places where a pivot is 0 or small."""
    function, expected = SMALL[name]
    a = np.random.default_rng(n).normal(size=(9, 8, n, n))
    if n > 1:
        a[0, :, 0, 0] = 0
        a[1, :, 0, 0] = 1e-12
        a[2, :, :, 0] = 0
        a[2, :, n - 1, 0] = 3
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 2e-3)):
        given = a.astype(dtype)
        found = prepared(function)(lucid.tensor(given)).numpy()
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected(given), rtol=tolerance, atol=tolerance)
    assert function(lucid.full((64, n, n), float("nan"))).isnan().all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", SMALL)
def test_derivatives_for_small_matrices(name: str, n: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(factorizations, "_MANY", 1)
    function, _ = SMALL[name]
    a = np.random.default_rng(n).normal(size=(1, n, n)) + 2 * np.eye(n)[::-1]
    x = lucid.tensor(a, requires_grad=True)
    values = (lambda a: L.slogdet(a)[1]) if name == "slogdet" else function
    assert gradcheck(values, x)
    assert gradgradcheck(values, x)
    both = lucid.stack([x.detach()[0], x.detach()[0].mT])
    assert lucid.allclose(lucid.vmap(values)(both[:, None]), values(both)[:, None])


@pytest.mark.parametrize("name", ["inv", "solve"])
def test_a_singular_matrix_among_many(name: str, prepared: Any) -> None:
    a = lucid.eye(3).repeat(64, 1, 1)
    a[5, 1] = a[5, 0]
    function, _ = SMALL[name]
    kinds = r"f32\[64,3,3\]" + (r", f32\[64,3,2\]" if name == "solve" else "")
    with pytest.raises(L.LinAlgError, match=rf"linalg.{name}: Singular matrix \(of {kinds}\)"):
        prepared(function)(a)
    sign, log = L.slogdet(a)
    assert L.det(a)[4:7].tolist() == sign[4:7].tolist() == [1, 0, 1]
    assert log[4:7].tolist() == [0, float("-inf"), 0]


@pytest.mark.parametrize("n", [2, 5])
def test_the_gradient_of_a_determinant(n: int) -> None:
    """Of regular, singular and nearly singular matrices it is that of all cofactors."""
    rng = np.random.default_rng(n)
    a = rng.normal(size=(5, n, n))
    a[1, :, 0] = 2 * a[1, :, 1]
    a[2, :, 0] = 2 * a[2, :, 1] + 1e-13
    a[3] = 0
    x = lucid.tensor(a, requires_grad=True)
    L.det(x).sum().backward()
    minors = [np.delete(np.delete(a, i, -2), j, -1) for i in range(n) for j in range(n)]
    signs = np.array([(-1) ** (i + j) for i in range(n) for j in range(n)])
    expected = (np.stack([np.linalg.det(m) for m in minors], -1) * signs).reshape(5, n, n)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-7, atol=1e-9)


def test_float32_stays_float32() -> None:
    a = lucid.tensor(S, dtype=lucid.float32)
    assert L.inv(a).dtype is lucid.float32
    assert L.matrix_exp(a).dtype is lucid.float32
    assert all(part.dtype is lucid.float32 for part in L.svd(a))


def test_cholesky_ex_says_where_there_is_none() -> None:
    both = lucid.stack([lucid.eye(2), -lucid.eye(2)])
    factor, info = L.cholesky_ex(both)
    assert info.tolist() == [0, 1]
    assert factor[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert factor[1].isnan().all()


@pytest.mark.parametrize("vectors", [True, False])
def test_solve_ex_says_where_there_is_no_solution(vectors: bool) -> None:
    both = lucid.tensor(np.stack([2 * np.eye(2), np.ones((2, 2))]), requires_grad=True)
    b = lucid.ones(2, 2, dtype=both.dtype) if vectors else lucid.ones(2, 2, 3, dtype=both.dtype)
    for solve_ex in (L.solve_ex, lucid.compile(lambda a, b: L.solve_ex(a, b))):
        x, info = solve_ex(both, b)
        assert info.tolist() == [0, 1]
        assert (x[0] == 0.5).all()
        assert x[1].isnan().all()
    assert L.solve_ex(both[:1], b[:1]).result.sum().grad_fn is not None
    with pytest.raises(L.LinAlgError):
        L.solve_ex(both, b, check_errors=True)


def test_a_matrix_without_a_result_raises_in_both_modes() -> None:
    bad = lucid.tensor([[1.0, 2.0], [2.0, 1.0]])
    for cholesky in (L.cholesky, lucid.compile(lambda a: L.cholesky(a))):
        with pytest.raises(L.LinAlgError, match="cholesky: Matrix is not positive definite"):
            cholesky(bad)
    with pytest.raises(RuntimeError, match=r"linalg.inv: Singular matrix \(of f32\[2,2\]\)"):
        L.inv(lucid.zeros(2, 2))


def test_a_failed_factorization_leaves_the_state_of_a_compiled_step() -> None:
    weight = lucid.eye(2).requires_grad_()

    @lucid.compile
    def step(a: lucid.Tensor) -> lucid.Tensor:
        with lucid.no_grad():
            weight.add_(1.0)
        return L.cholesky(a) @ weight

    step(lucid.eye(2))
    before = weight.tolist()
    with pytest.raises(L.LinAlgError):
        step(-lucid.eye(2))
    assert weight.tolist() == before


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: L.inv([[1.0]]), TypeError, "linalg.inv: A must be a Tensor, not list"),
    (lambda: L.inv(lucid.ones(3)), ValueError, "must have at least 2 dimensions"),
    (lambda: L.det(lucid.ones(2, 3)), ValueError, "must be batches of square matrices"),
    (lambda: L.inv(lucid.ones(2, 2).long()), TypeError, "hint: convert it with .float()"),
    (lambda: L.solve(lucid.eye(2), lucid.ones(3, 1)), ValueError, "Incompatible shapes of A and B"),
    (lambda: L.solve(lucid.eye(2), lucid.ones(2).double()), TypeError, "must have the same dtype"),
    (
        lambda: L.qr(lucid.eye(2), "full"),
        ValueError,
        "mode must be one of 'reduced'",
    ),
]


@pytest.mark.parametrize(("function", "error", "message"), WRONG)
def test_what_is_refused(function: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        function()


def test_pivots_that_are_none_of_the_matrix_are_refused(run: Callable[..., Any]) -> None:
    a, b = lucid.eye(2), lucid.ones(2, 1)
    with pytest.raises(TypeError, match=r"pivots must be int32"):
        run(lucid.linalg.lu_solve, a, lucid.tensor([1.0, 2.0]), b)
    with pytest.raises(ValueError, match="Number of pivots per batch should be same as the dim"):
        run(lucid.linalg.lu_solve, a, lucid.tensor([2], dtype=lucid.int32), b)


def test_linalgs_cross_goes_along_the_last_axis() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 3))
    x, y = lucid.from_numpy(a), lucid.from_numpy(b)
    np.testing.assert_allclose(lucid.linalg.cross(x, y).numpy(), np.cross(a, b))
    np.testing.assert_allclose(lucid.cross(x, y).numpy(), np.cross(a, b, axis=0))


def test_what_addr_gives_no_weight_does_not_count() -> None:
    nans = lucid.full((2, 3), float("nan"))
    assert lucid.addr(nans, lucid.ones(2), lucid.ones(3), beta=0).tolist() == [[1.0] * 3] * 2


def test_cdist_refuses_a_negative_norm() -> None:
    with pytest.raises(lucid.OptionError, match="cdist: only supports non-negative p values, not"):
        lucid.cdist(lucid.ones(2, 3), lucid.ones(2, 3), p=-1.0)


def test_small_matrices_are_factorized_in_one_thread_of_numpys_blas() -> None:
    functions = lapack._functions()
    if functions is None:
        pytest.skip("NumPy has another BLAS than OpenBLAS")
    read, write = functions
    before, counts = read(), []
    write(3)

    def found(*arrays: np.ndarray) -> Any:
        counts.append(read())
        if len(counts) < 3:
            call("inner", found, lucid.ones(2, 2))  # while one runs, as in another thread
        if len(counts) == 3:
            raise np.linalg.LinAlgError("no")
        return arrays[0]

    try:
        with pytest.raises(lucid.linalg.LinAlgError, match="no"):
            call("outer", found, lucid.ones(2, 2))
        assert counts == [1, 1, 1]
        assert read() == 3
        lucid.set_num_threads(2)
        assert read() == min(2, processors())
        write(3)
        call("large", found, lucid.ones(300, 300))
        assert counts[3] == 2
        assert read() == 3
    finally:
        lucid.set_num_threads(default_num_threads())
        write(before)


def test_many_matrices_are_eliminated_in_the_steps_of_one() -> None:
    def steps(count: int) -> int:
        matrices, found = lucid.tensor(matrix(count, 5, 5)), cProfile.Profile()
        L.lu_factor(matrices)
        found.runcall(L.lu_factor, matrices)
        return sum(entry.callcount for entry in found.getstats())

    assert steps(40) < 2 * steps(1)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (0, 2, 2), (2, 0, 3, 3)])
def test_matrices_without_elements_have_factors(shape: tuple[int, ...]) -> None:
    rows, columns = shape[-2:]
    packed, pivots = L.lu_factor(lucid.zeros(shape))
    assert packed.shape == shape and pivots.shape == (*shape[:-2], min(rows, columns))


def test_singular_values_of_low_rank_take_pytorchs_options(prepared: Any) -> None:
    a, m = np.random.default_rng(0).normal(size=(2, 5, 3))
    x, mean = lucid.tensor(a), lucid.tensor(m)
    found = prepared(lambda x: lucid.svd_lowrank(x, 2, niter=4, M=mean).S)(x)
    wanted = np.linalg.svd(a - m)[1][:2]
    assert np.abs(found.numpy() - wanted).max() < 1e-9
    center = lucid.pca_lowrank(x, 2, True, 0).S
    assert np.abs(center.numpy() - np.linalg.svd(a - a.mean(0))[1][:2]).max() < 1e-9
    with pytest.raises(ValueError, match="niter must be at least 0, not -1"):
        lucid.svd_lowrank(x, niter=-1)


@pytest.mark.parametrize("name", ["inv", "cholesky", "det", "eigvalsh", "svdvals", "qr", "solve"])
def test_factorizations_are_nodes_just_where_a_gradient_may_be_asked_for(name: str) -> None:
    a = np.array([[3.0, 1.0], [1.0, 2.0]])
    function = getattr(lucid.linalg, name)

    def found(x: lucid.Tensor) -> lucid.Tensor:
        result = (
            function(x, lucid.ones(2, 1, dtype=lucid.float64)) if name == "solve" else function(x)
        )
        return result if isinstance(result, lucid.Tensor) else result[0]

    plain, asked = lucid.tensor(a), lucid.tensor(a, requires_grad=True)
    view = (asked * 1.0).mT.mT
    with lucid.no_grad():
        unrecorded = found(asked)
    results = [found(plain), unrecorded, found(asked), found(view)]
    assert [y.grad_fn is not None for y in results] == [False, False, True, True]
    assert {y.numpy().tobytes() for y in (results[0], unrecorded)} == {
        y.detach().numpy().tobytes() for y in results[2:]
    }
    assert all(y.data_ptr() != plain.data_ptr() for y in results)
    with lucid.autograd.forward_ad.dual_level():
        dual = lucid.autograd.forward_ad.make_dual(plain, lucid.ones_like(plain))
        assert lucid.autograd.forward_ad.unpack_dual(found(dual)).tangent is not None
