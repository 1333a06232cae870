"""What calls NumPy's LAPACK, which a compiled step finds the results of by host calls.

Their gradients are written with tensor operations and with each other, so gradients of every order
exist, and in a compiled step all around the factorizations stays native.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from math import prod
from typing import Any, Protocol, overload

import numpy as np

from lucid.functions.arguments import listed, tensor_of
from lucid.functions.finding import computed
from lucid.functions.gradients import with_gradient
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, LinAlgError, ShapeError
from lucid.ir.memory import address_of, require_blas
from lucid.tensor.context import context
from lucid.tensor.core import is_unrecorded


class _Decorator(Protocol):
    @overload
    def __call__(self, value: Callable[..., np.ndarray], /) -> Callable[..., Tensor]: ...
    @overload
    def __call__(
        self, value: Callable[..., tuple[np.ndarray, ...]], /
    ) -> Callable[..., tuple[Tensor, ...]]: ...


def lapack(
    name: str,
    vjp: Callable[..., Any] | None,
    *,
    fixed: Sequence[int] = (),
    materialize: bool = True,
) -> _Decorator:
    """Make a function of batches of matrices, then options, by its value in NumPy.

    name: what the user calls, for errors. The other arguments are those of `with_gradient`.
    """

    def complete(value: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(value)
        def on_tensors(*given: Any) -> Any:
            tensors = [x for x in given if isinstance(x, Tensor)]
            options = given[len(tensors) :]
            return call(name, lambda *arrays: value(*arrays, *options), *tensors)

        on_tensors.__name__ = name.removeprefix("linalg.")
        decorate = with_gradient(vjp, fixed=fixed, materialize=materialize, calls_python=True)
        applied: Any = decorate(on_tensors)
        applied.__self__.vmap = staticmethod(_batched(applied))

        @wraps(value)
        def called(*given: Any) -> Any:
            """Its node and what it saves are made where somebody may ask for them."""
            for x in given:
                if isinstance(x, Tensor) and not is_unrecorded(x):
                    return applied(*given)
            return on_tensors(*given)

        return called

    return complete


def _batched(function: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """The vmap rule: examples become a leading batch axis, which NumPy's LAPACK takes anyway."""

    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        moved = []
        for value, dim in zip(args, in_dims, strict=True):
            if not isinstance(value, Tensor):
                moved.append(value)
            elif dim is None:
                moved.append(value.expand(info.batch_size, *value.shape))
            else:
                moved.append(value.movedim(dim, 0))
        results = function(*moved)
        return results, (0,) * len(results) if isinstance(results, tuple) else 0

    return vmap


def call(name: str, function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Call NumPy on the tensors' data; tensors of what it returns.

    Raises: `LinAlgError` where LAPACK does.
    """
    types = [tensor._type for tensor in tensors]

    def find(*arrays: np.ndarray) -> list[np.ndarray]:
        require_blas()
        try:
            with few_threads(arrays), np.errstate(all="ignore"):
                found = function(*arrays)
        except np.linalg.LinAlgError as error:
            kinds = ", ".join(map(str, types))
            raise LinAlgError(f"{name}: {error} (of {kinds})") from None
        parts = found if isinstance(found, tuple) else (found,)
        return [np.array(part, order="C") for part in parts]

    level = context.levels[-1] if context.levels else None
    made = None if level is None else level.find(name, find, tensors)
    results: Any = computed(name, find, tensors) if made is None else tuple(made)
    return results if len(results) > 1 else results[0]


def matrices(value: Any, op: str, name: str = "A", *, square: bool = False) -> Tensor:
    """Check that an argument is a batch of matrices of floats. Raises what fits."""
    x = tensor_of(value, op, name)
    if x.ndim < 2:
        raise ShapeError(
            f"{op}: The input tensor {name} must have at least 2 dimensions.{listed(**{name: x})}"
        )
    if square and x._type.shape[-1] != x._type.shape[-2]:
        raise ShapeError(f"{op}: {name} must be batches of square matrices{listed(**{name: x})}")
    if x._type.dtype.kind != "float":
        raise DTypeError(
            f"{op}: Expected a floating point tensor as input, got {x.dtype!r}\n"
            "hint: convert it with .float()"
        )
    return x


# Rows from which a factorization gains by threads. With fewer they cost more than they do, and
# where other processes run as well hundreds of times more: OpenBLAS' threads wait by spinning.
_LARGE = 256

# Builds for NumPy's wheels, with 64-bit integers, and of distributions.
_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)

# BLAS of the first two of them, whose integers have 64 bits for certain.
_SOLVERS = ("scipy_cblas_{}trsm64_", "cblas_{}trsm64_")

_lock = threading.Lock()
_before = [0, 0]  # calls under way, and how many threads there were before the first


@contextmanager
def few_threads(arrays: Iterable[np.ndarray]) -> Iterator[None]:
    """Let NumPy's BLAS have one thread for small matrices, and else no more than lucid has.

    Where it isn't OpenBLAS nothing changes.
    """
    functions = _functions()
    if functions is None:
        yield
        return
    read, write = functions
    is_small = all(size < _LARGE for array in arrays for size in array.shape[-2:])
    most = 1 if is_small else _threads()
    if read() <= most:
        yield
        return
    with _lock:
        if not _before[0]:
            _before[1] = read()
        _before[0] += 1
        write(min(read(), most))
    try:
        yield
    finally:
        with _lock:
            _before[0] -= 1
            if not _before[0]:
                write(_before[1])


def set_blas_threads(count: int) -> None:
    """Let NumPy's BLAS have no more threads than so many, which eager products run in."""
    functions = _functions()
    if functions is not None:
        with _lock:
            if _before[0]:
                _before[1] = count  # for when the calls under way have ended
            else:
                functions[1](count)


def _threads() -> int:
    from lucid.runtime.threads import pool  # LLVM comes with it

    return pool.num_threads


@cache
def _triangular_solver(kind: str) -> Callable[..., None] | None:
    """BLAS' function for this type, of the library that NumPy is linked with, if it is known."""
    library = ctypes.CDLL(np.linalg._umath_linalg.__file__)
    letter, number = {"f": ("s", ctypes.c_float), "d": ("d", ctypes.c_double)}[kind]
    size, array = ctypes.c_int64, (ctypes.c_void_p, ctypes.c_int64)
    for name in _SOLVERS:
        found: Any = getattr(library, name.format(letter), None)
        if found is not None:
            found.argtypes = (*(ctypes.c_int,) * 5, size, size, number, *array, *array)
            found.restype = None
            return found  # type: ignore[no-any-return]
    return None


def solve_triangular(a: np.ndarray, x: np.ndarray, upper: bool, unit: bool) -> bool:
    """Put the X with A X = B where B is, contiguous matrices; False if no function for it is known.

    Raises: NumPy's `LinAlgError` for a singular matrix.
    """
    solver = _triangular_solver(a.dtype.char)
    if solver is None:
        return False
    if not unit and not np.diagonal(a, axis1=-2, axis2=-1).all():
        raise np.linalg.LinAlgError("Singular matrix")
    is_turned = a.strides[-2] == a.itemsize
    a = np.ascontiguousarray(a.mT if is_turned else a)
    own, place = address_of(a), address_of(x)
    by_rows, left = 101, 141  # CBLAS' enumerations
    triangle = 121 if upper is not is_turned else 122
    how = (by_rows, left, triangle, 112 if is_turned else 111, 132 if unit else 131)
    rows, columns = x.shape[-2:]
    for _ in range(prod(x.shape[:-2])):
        solver(*how, rows, columns, 1.0, own, rows, place, columns)
        own, place = own + rows * rows * a.itemsize, place + rows * columns * x.itemsize
    return True


@cache
def _functions() -> tuple[ctypes._NamedFuncPointer, ctypes._NamedFuncPointer] | None:
    """What reads and what sets the number of threads, of the library that NumPy is linked with."""
    module = np.linalg._umath_linalg
    library = ctypes.PyDLL(module.__file__)  # a look-up goes through what it is linked with
    for name in _NAMES:
        get, put = name.format("get"), name.format("set")
        if hasattr(library, get) and hasattr(library, put):
            return getattr(library, get), getattr(library, put)
    return None
