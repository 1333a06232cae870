"""`jvp`: derivatives in a direction, by forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid.autograd.dual import DualLevel, linked_alias
from lucid.autograd.transforms.reverse import split_aux
from lucid.ir import ops
from lucid.ir.errors import ArgumentError, LucidError, OptionError
from lucid.ir.frames import edge
from lucid.tensor.core import TensorCore
from lucid.tensor.tree import flatten, structure

API = "jvp(f, primals, tangents)"


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """Return `func(*primals)` and its derivative in the direction of the tangents.

    With `has_aux` the result is (output, tangent, aux).
    Shapes: tangents as the primals, and the output's tangent as the output.

    Args:
        primals: a tuple of its arguments.
        tangents: the direction, of the same structure.
        strict: an output that depends on no primal is an error instead of a zero tangent.

    Raises:
        ArgumentError: `primals` is no tuple, or has something else than tensors in it.
        LucidError: the tangents' structure isn't the primals', an output is no tensor, or one is
            independent of the primals under `strict`.
        OptionError: there are no primals, or some aren't of a float dtype.
        ShapeError: a tangent hasn't its primal's shape.

    >>> lucid.func.jvp(lucid.sin, (lucid.tensor(0.0),), (lucid.tensor(2.0),))
    (tensor(0.), tensor(2.))
    """
    if not isinstance(primals, tuple):
        raise ArgumentError(
            f"{API}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    values, rebuild = flatten(primals)
    directions = flatten(tangents)[0]
    if structure(primals) != structure(tangents):
        raise LucidError(
            f"{API}: Expected primals and tangents to have the same python structure. For example, "
            "if primals is a tuple of 3 tensors, tangents also must be. Got primals with structure "
            f"{structure(primals)} and tangents with structure {structure(tangents)}"
        )
    _check("primals", values)
    _check("tangents", directions)
    level = DualLevel()

    def run() -> tuple[Any, ...]:
        duals = []
        for value, direction in zip(values, directions, strict=True):
            dual = linked_alias(value)
            level.set_tangent(dual, direction)
            duals.append(dual)
        output, aux = split_aux(func(*rebuild(duals)), has_aux, API)
        results, rebuild_output = flatten(output)
        found = [_tangent(level, result, strict) for result in results]
        parts = (output, rebuild_output(found))
        return (*parts, aux) if has_aux else parts

    return level.run(run)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return `func(*primals)` and the linear function that pushes tangents forward there.

    Each call of that function evaluates `func` anew; in a compiled step equal parts are computed
    once. Shapes: its arguments as the primals.

    Args:
        *primals: its arguments: where it is linearized.

    >>> output, push_forward = lucid.func.linearize(lucid.sin, lucid.tensor(0.0))
    >>> push_forward(lucid.tensor(2.0))
    tensor(2.)
    """

    @edge
    def push_forward(*tangents: Any) -> Any:
        return jvp(func, primals, tangents)[1]

    return func(*primals), push_forward


def _check(name: str, values: list[Any]) -> None:
    if not values:
        raise OptionError(f"{API}: Expected {name} to contain at least one Tensor.")
    for value in values:
        if not isinstance(value, TensorCore):
            raise ArgumentError(
                f"{API}: Expected {name} to only contain Tensors, got {type(value)}"
            )
        if not value.dtype.is_floating_point:
            kind = name.removesuffix("s")
            raise OptionError(f"Expected {kind} to be floating point, but got: {value.dtype!r}")


def _tangent(level: DualLevel, result: Any, strict: bool) -> Any:
    if not isinstance(result, TensorCore):
        raise LucidError(
            f"{API}: expected f(*primals) to return only tensors, got unsupported type "
            f"{type(result)}"
        )
    tangent = level.tangent_of(result)
    if tangent is not None:
        return tangent
    if strict:
        raise LucidError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. "
            "This is not allowed with strict=True."
        )
    with level.below():
        return ops.zeros_like(result)
