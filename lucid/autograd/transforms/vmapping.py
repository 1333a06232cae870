"""`vmap`: a function of one example made one of many."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucid.functions.joining import cat
from lucid.ir import ops
from lucid.ir.errors import IndexOutOfRangeError, LucidError, OptionError
from lucid.tensor.batched import BatchLevel, moved
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import broadcast_prefix, flatten, structure

RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Map a function over an axis of its arguments: what it computes for one, for all at once.

    Keyword arguments are shared by all examples.

    Args:
        func: a function of tensors, or of nested lists, tuples and dicts of them, for one example.
        in_dims: the mapped axis of each argument, or None for one that all examples share: an int
            for all, or a tuple as the arguments, nested where they are.
        out_dims: where the mapped axis goes in each result; None for what is no tensor.
        randomness: whether random operations are errors, or draw "different" numbers for each
            example, or the "same".
        chunk_size: how many examples are computed at once. Default: None, all.

    Raises:
        OptionError: an unknown `randomness`, a `chunk_size` below 1; at the call, where axes don't
            fit the arguments or the results.
        IndexOutOfRangeError: at the call, where a result has no axis `out_dims`.

    >>> lucid.vmap(lucid.dot)(lucid.ones(2, 3), lucid.ones(2, 3))
    tensor([3., 3.])
    """
    if randomness not in RANDOMNESS:
        raise OptionError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. "
            f"Got {randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise OptionError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @_as(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        plan = _Plan(func, in_dims, out_dims, randomness)
        size = plan.read_inputs(args)
        if chunk_size is None or chunk_size >= size:
            return plan.run(plan.values, size, kwargs)
        return plan.run_chunks(size, chunk_size, kwargs)

    return mapped


def _as(func: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`functools.wraps`, also for callables without a name."""
    names = [name for name in functools.WRAPPER_ASSIGNMENTS if hasattr(func, name)]
    return functools.wraps(func, assigned=names, updated=())


def name_of(func: Any) -> str:
    """What messages call a function."""
    if hasattr(func, "__name__"):
        return str(func.__name__)
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return repr(func)


class _Plan:
    """One call of a mapped function: which axes of its inputs and outputs are mapped."""

    def __init__(
        self, func: Callable[..., Any], in_dims: Any, out_dims: Any, randomness: str
    ) -> None:
        self.func = func
        self.name = name_of(func)
        self.in_dims = in_dims
        self.out_dims = out_dims
        self.randomness = randomness
        self.values: list[Any] = []
        self.dims: list[int | None] = []
        self._check_out_dims()

    def _check_out_dims(self) -> None:
        if any(dim is not None and type(dim) is not int for dim in flatten(self.out_dims)[0]):
            raise OptionError(
                f"vmap({self.name}, ..., out_dims={self.out_dims}): `out_dims` must be an int, "
                "None or a python collection of ints representing where in the outputs the "
                "vmapped dimension should appear."
            )

    # ------------------------------------------------------------------ inputs

    def _inputs_error(self, text: str) -> OptionError:
        return OptionError(f"vmap({self.name}, in_dims={self.in_dims}, ...)(<inputs>): {text}")

    def read_inputs(self, args: tuple[Any, ...]) -> int:
        """Check the axes of the inputs, and return how many examples there are."""
        if not isinstance(self.in_dims, (int, tuple)):
            raise self._inputs_error(
                "expected `in_dims` to be int or a (potentially nested) tuple matching the "
                f"structure of inputs, got: {type(self.in_dims)}."
            )
        if not args:
            raise OptionError(
                f"vmap({self.name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or "
                "you are trying to vmap over a function with no inputs. The latter is unsupported."
            )
        self.values, self.rebuild = flatten(args)
        dims = broadcast_prefix(self.in_dims, args)
        if dims is None:
            raise self._inputs_error(
                "in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                f"{structure(self.in_dims)} but inputs has structure {structure(args)}."
            )
        pairs = zip(self.values, dims, strict=True)
        self.dims = [self._checked(value, dim) for value, dim in pairs]
        mapped = zip(self.values, self.dims, strict=True)
        sizes: list[int] = [value._type.shape[dim] for value, dim in mapped if dim is not None]
        if not sizes:
            raise OptionError("vmap: Expected at least one Tensor to vmap over")
        if any(size != sizes[0] for size in sizes):
            raise OptionError(
                "vmap: Expected all tensors to have the same size in the mapped dimension, got "
                f"sizes {sizes} for the mapped dimension"
            )
        return sizes[0]

    def _checked(self, value: Any, dim: Any) -> int | None:
        if dim is None:
            return None
        if not isinstance(dim, int):
            raise self._inputs_error(
                f"Got in_dim={dim} for an input but in_dim must be either an integer dimension or "
                "None."
            )
        if not isinstance(value, TensorCore):
            raise self._inputs_error(
                f"Got in_dim={dim} for an input but the input is of type {type(value)}. We cannot "
                "vmap over non-Tensor arguments, please use None as the respective in_dim"
            )
        rank = value.ndim
        if not -rank <= dim < rank:
            raise self._inputs_error(
                f"Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                f"{rank} so expected in_dim to satisfy -{rank} <= in_dim < {rank}."
            )
        return dim % rank

    # ------------------------------------------------------------------ running

    def run(self, values: list[Any], size: int, kwargs: dict[str, Any]) -> Any:
        """Run the function on handles, and return what is behind those that it returns."""
        level = BatchLevel(size, self.randomness)
        handles = [
            value if dim is None else level.wrap(moved(value, dim, 0), dim)
            for value, dim in zip(values, self.dims, strict=True)
        ]
        result = level.run(self.func, *self.rebuild(handles), **kwargs)
        outputs, rebuild = flatten(result)
        dims = self._result_dims(result)
        pairs = zip(outputs, dims, strict=True)
        return rebuild([self._unwrapped(level, value, dim) for value, dim in pairs])

    def run_chunks(self, size: int, chunk_size: int, kwargs: dict[str, Any]) -> Any:
        """Run a few examples at a time, and concatenate."""
        results = []
        for start in range(0, size, chunk_size):
            stop = min(start + chunk_size, size)
            part = [
                value if dim is None else ops.slice_axis(value, dim, start, stop)
                for value, dim in zip(self.values, self.dims, strict=True)
            ]
            results.append(self.run(part, stop - start, kwargs))
        dims = self._result_dims(results[0])
        rebuild = flatten(results[0])[1]
        columns = zip(*(flatten(result)[0] for result in results), strict=True)
        return rebuild(
            [
                parts[0] if dim is None else cat(parts, dim)
                for parts, dim in zip(columns, dims, strict=True)
            ]
        )

    # ------------------------------------------------------------------ outputs

    def _result_dims(self, result: Any) -> list[Any]:
        dims = self.out_dims
        if isinstance(result, TensorCore) and isinstance(dims, tuple) and len(dims) == 1:
            dims = dims[0]
        found = broadcast_prefix(dims, result)
        if found is None:
            raise OptionError(
                f"vmap({self.name}, ..., out_dims={self.out_dims})(<inputs>): out_dims is not "
                "compatible with the structure of `outputs`. out_dims has structure "
                f"{structure(self.out_dims)} but outputs has structure {structure(result)}."
            )
        return found

    def _unwrapped(self, level: BatchLevel, value: Any, dim: int | None) -> Any:
        if dim is None:
            if level.owns(value):
                raise OptionError(
                    f"vmap({self.name}, ...): `{self.name}` can not return a BatchedTensor when "
                    "out_dim is None"
                )
            return value
        if not isinstance(value, TensorCore):
            raise OptionError(
                f"vmap({self.name}, ...): `{self.name}` must only return Tensors, got type "
                f"{type(value)}. Did you mean to set out_dims= to None for output?"
            )
        rank = value.ndim + 1
        if not -rank <= dim < rank:
            raise IndexOutOfRangeError(
                f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but "
                f"got {dim})"
            )
        if value.__class__.__name__ == "Batched" and not level.owns(value):
            self._refuse_stale(value)
        return moved(level.unwrap(value), 0, dim)

    def _refuse_stale(self, value: Any) -> None:
        from lucid.tensor.context import context

        if not any(value._level is level for level in context.levels):
            raise LucidError(f"vmap({self.name}, ...): a result belongs to a vmap that has ended")
