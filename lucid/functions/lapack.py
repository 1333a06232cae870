"""What calls NumPy's LAPACK, which a compiled step finds the results of by host calls.

Their gradients are written with tensor operations and with each other, so gradients of every order
exist, and in a compiled step all around the factorizations stays native.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, Protocol, overload

import numpy as np

from lucid.autograd.function import Function
from lucid.functions.arguments import listed, tensor_of
from lucid.functions.finding import computed
from lucid.functions.tensors import Tensor
from lucid.ir.errors import DTypeError, LucidError, ShapeError


class LinAlgError(LucidError):
    """A matrix for which the result doesn't exist: singular, or not positive definite."""


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
    """Make a function of batches of matrices, and of options, by its value in NumPy.

    name: what the user calls, for errors.
    vjp: the rule of its gradient, written with tensor operations: it takes the cotangent, or a
        tuple of those of several results, and what it names of the value's arguments, of `y`, the
        results, and of `needs`, whether each argument's gradient is asked for. It gives a cotangent
        for each tensor.
    fixed: which results have no derivative.
    materialize: whether cotangents that nobody sent are zeros, else None.
    """
    wanted = [*inspect.signature(vjp).parameters][1:] if vjp else []

    def complete(value: Callable[..., Any]) -> Callable[..., Any]:
        parameters = [*inspect.signature(value).parameters]

        def forward(*given: Any) -> Any:
            tensors = [x for x in given if isinstance(x, Tensor)]
            options = given[len(tensors) :]
            return call(name, lambda *arrays: value(*arrays, *options), *tensors)

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            results = output if isinstance(output, tuple) else (output,)
            arguments = dict(zip(parameters, inputs, strict=True))
            tensors = [key for key, x in arguments.items() if isinstance(x, Tensor)]
            ctx.options = {k: x for k, x in arguments.items() if k not in tensors}
            ctx.saved_names = [key for key in tensors if key in wanted]
            kept = [arguments[key] for key in ctx.saved_names]
            ctx.save_for_backward(*kept, *(results if "y" in wanted else ()))
            ctx.mark_non_differentiable(*(results[i] for i in fixed))
            ctx.set_materialize_grads(materialize)

        def backward(ctx: Any, *g: Tensor | None) -> tuple[Tensor | None, ...]:
            count, saved = len(ctx.saved_names), ctx.saved_tensors
            known = dict(zip(ctx.saved_names, saved, strict=False)) | ctx.options
            known["y"] = saved[count] if len(saved) == count + 1 else saved[count:]
            known["needs"] = ctx.needs_input_grad
            assert vjp is not None
            found = vjp(g[0] if len(g) == 1 else g, *(known[key] for key in wanted))
            parts = found if isinstance(found, tuple) else (found,)
            return *parts, *(None for _ in ctx.options)

        words = name.removeprefix("linalg.").split("_")
        methods = {"forward": forward, "setup_context": setup_context, "backward": backward}
        made: dict[str, Any] = {"__doc__": value.__doc__, "__module__": value.__module__}
        made |= {key: staticmethod(method) for key, method in methods.items()}
        cls: Any = type("".join(word.capitalize() for word in words), (Function,), made)
        cls.vmap = staticmethod(_batched(cls))

        @wraps(value)
        def applied(*given: Any) -> Any:
            return cls.apply(*given)

        return applied

    return complete


def _batched(function: Any) -> Callable[..., tuple[Any, Any]]:
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
        results = function.apply(*moved)
        return results, (0,) * len(results) if isinstance(results, tuple) else 0

    return vmap


def call(name: str, function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Call NumPy on the tensors' data; tensors of what it returns.

    Raises: `LinAlgError` where LAPACK does.
    """
    kinds = ", ".join(str(tensor._type) for tensor in tensors)

    def find(*arrays: np.ndarray) -> list[np.ndarray]:
        try:
            with few_threads(arrays):
                found = function(*arrays)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"{name}: {error} (of {kinds})") from None
        parts = found if isinstance(found, tuple) else (found,)
        return [np.array(part, order="C") for part in parts]

    results = computed(name, find, tensors)
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


# ---------------------------------------------------------------------- the threads of NumPy's BLAS

# Rows from which a factorization gains by threads. With fewer they cost more than they do, and
# where other processes run as well hundreds of times more: OpenBLAS' threads wait by spinning.
_LARGE = 256

# Builds for NumPy's wheels, with 64-bit integers, and of distributions.
_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)

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


def _threads() -> int:
    from lucid.runtime.threads import pool  # LLVM comes with it

    return pool.num_threads


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
