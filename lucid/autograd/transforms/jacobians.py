"""Jacobians and Hessians: a derivative in every direction, all directions at once by vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from lucid.autograd.transforms.arguments import Argnums, chosen, normalized, replaced
from lucid.autograd.transforms.forward import jvp
from lucid.autograd.transforms.reverse import require_tensors, vjp
from lucid.autograd.transforms.vmapping import _as, vmap
from lucid.ir import ops
from lucid.ir.errors import OptionError
from lucid.ir.types import i64
from lucid.tensor.batched import moved
from lucid.tensor.core import TensorCore, emit
from lucid.tensor.tree import flatten


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `func` by reverse mode.

    It is the cheaper one where the inputs are more than the outputs. With `has_aux` the result is
    (jacobian, aux).
    Shapes: for an output of shape s and an argument of shape t, s + t. For nested outputs and
    arguments: the structure of the outputs, each with that of the argument inside.

    Args:
        chunk_size: how many rows are computed at once. Default: None, all.

    Raises:
        OptionError: a `chunk_size` below 1.

    >>> lucid.func.jacrev(lucid.square)(lucid.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise OptionError("jacrev: `chunk_size` should be greater than 0.")

    @_as(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        part, argument = _by(func, argnums, args, kwargs)
        found = vjp(part, argument, has_aux=has_aux)
        output, pull_back = found[:2]
        outputs, rebuild_output = flatten(output)
        inputs, rebuild_input = flatten(argument)

        def rows(*seeds: TensorCore) -> Any:
            return tuple(flatten(pull_back(rebuild_output(list(seeds)))[0])[0])

        columns = vmap(rows, chunk_size=chunk_size)(*_basis(outputs))
        blocks: list[list[Any]] = [[] for _ in outputs]
        for column, x in zip(columns, inputs, strict=True):
            for row, y, part_ in zip(blocks, outputs, _split(column, outputs, 0), strict=True):
                row.append(ops.reshape_to(part_, (*y._type.shape, *x._type.shape)))
        result = rebuild_output([rebuild_input(row) for row in blocks])
        return (result, found[2]) if has_aux else result

    return jacobian


def _by(
    func: Callable[..., Any], argnums: Argnums, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[[Any], Any], Any]:
    """A call as a function of the chosen argument, and that argument."""
    numbers = normalized(argnums, len(args))
    return lambda own: func(*replaced(args, numbers, own), **kwargs), chosen(args, numbers)


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `func` by forward mode.

    It is the cheaper one where the outputs are more than the inputs: one tangent per element of the
    inputs is pushed forward. Shapes and structures are those of `jacrev`; with `has_aux` the result
    is (jacobian, aux).

    Args:
        randomness: what random operations do while columns are computed at once, as of `vmap`.
        chunk_size: how many columns are computed at once. Default: None, all.

    >>> lucid.func.jacfwd(lambda x: lucid.cat([x, x * x]))(lucid.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 1.],
            [2., 0.],
            [0., 4.]])
    """

    @_as(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        part, argument = _by(func, argnums, args, kwargs)
        inputs, rebuild_input = flatten(argument)
        require_tensors(inputs)
        seen: dict[str, Any] = {}

        def column(*directions: TensorCore) -> Any:
            result = jvp(part, (argument,), (rebuild_input(list(directions)),), has_aux=has_aux)
            tangents, seen["rebuild"] = flatten(result[1])
            seen["aux"] = result[2] if has_aux else None
            return tuple(tangents)

        mapped = vmap(column, randomness=randomness, chunk_size=chunk_size)
        columns = mapped(*_basis(inputs))
        blocks = []
        for column_ in columns:
            last = moved(column_, 0, -1)
            shape = last._type.shape[:-1]
            parts = zip(_split(last, inputs, -1), inputs, strict=True)
            block = [ops.reshape_to(p, (*shape, *x._type.shape)) for p, x in parts]
            blocks.append(rebuild_input(block))
        result = seen["rebuild"](blocks)
        return (result, seen["aux"]) if has_aux else result

    return jacobian


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that computes the Hessian of `func`: forward over reverse.

    It is `jacfwd(jacrev(func, argnums), argnums)`.
    Shapes: for an output of shape s and an argument of shape t, s + t + t.

    Args:
        func: a function of tensors that can be differentiated twice.
        argnums: the position of the argument to differentiate by, or a tuple of positions, which
            gives blocks for all pairs.

    >>> lucid.func.hessian(lambda x: (x**3).sum())(lucid.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def _basis(tensors: Sequence[TensorCore]) -> Sequence[TensorCore]:
    """For each tensor, the unit vectors of all: shape (elements of all tensors, *its own shape)."""
    total = sum(tensor._type.size for tensor in tensors)
    basis, start = [], 0
    for tensor in tensors:
        size = tensor._type.size
        shape = (total, size)
        row = emit(ops.iota, (), shape=shape, axis=0, dtype=i64)
        column = emit(ops.iota, (), shape=shape, axis=1, dtype=i64)
        unit = ops.cast(ops.eq(row, column + start), dtype=tensor.dtype)
        basis.append(ops.reshape(unit, shape=(total, *tensor._type.shape)))
        start += size
    return basis


def _split(tensor: TensorCore, like: Sequence[TensorCore], axis: int) -> list[TensorCore]:
    """Cut an axis of the elements of all tensors into those of each."""
    axis %= tensor.ndim
    parts, start = [], 0
    for other in like:
        stop = start + other._type.size
        parts.append(cast(TensorCore, ops.slice_axis(tensor, axis, start, stop)))
        start = stop
    return parts
