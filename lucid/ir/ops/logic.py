"""Comparisons, truth values, bits, and the choice between two values."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import DTypeError
from lucid.ir.op import Op, Operand, Sample, Trait, declare
from lucid.ir.ops import batching
from lucid.ir.ops.evaluation import quiet
from lucid.ir.ops.rules import (
    ANY,
    BOOLS,
    INTEGERS,
    DTypeSet,
    common_shape,
    elementwise,
    failure,
    require_dtype,
)
from lucid.ir.ops.samples import EDGES, ZEROS
from lucid.ir.types import DType, TensorType, bool_

__all__ = [
    "bit_and", "bit_not", "bit_or", "bit_xor", "eq", "gcd", "ge", "gt", "le", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "ne", "shift_left", "shift_right", "where",
]  # fmt: skip

_PAIRS = (
    Sample(((4, 7), (4, 7))),
    Sample(((5, 1), (1, 3))),
    Sample(((), (3, 2))),
    Sample(((), ())),
    Sample(((0, 3), (3,))),
    Sample((np.concatenate([EDGES, ZEROS])[:, None], np.concatenate([EDGES, ZEROS]))),
)
_SHIFTS = (
    Sample(((4, 7), np.arange(7.0))),
    Sample(((), np.array(3.0))),
    Sample(((5,), np.array([0.0, 31.0, 32.0, 63.0, 64.0]))),
    Sample(((0,), np.array(1.0))),
    _PAIRS[-1],
)


def _pair(
    name: str,
    evaluate: Callable[..., Any],
    dtypes: DTypeSet,
    result: DType | None = None,
    traits: Set[Trait] = frozenset(),
    samples: tuple[Sample, ...] = _PAIRS,
) -> Op:
    infer = elementwise(name, ("lhs", "rhs"), dtypes, result)
    return declare(
        Op(
            name,
            infer,
            quiet(evaluate),
            traits=traits,
            samples=samples,
            batch=batching.elementwise,
        )
    )


def _negation(name: str, evaluate: Callable[..., Any], dtypes: DTypeSet) -> Op:
    samples = (Sample(((3, 5),)), Sample(((),)), Sample(((0,),)))
    infer, rule = elementwise(name, ("x",), dtypes), batching.elementwise
    traits = {Trait.INVOLUTION}
    return declare(Op(name, infer, quiet(evaluate), traits=traits, samples=samples, batch=rule))


_SYMMETRIC = {Trait.COMMUTATIVE}
_LATTICE = {Trait.COMMUTATIVE, Trait.IDEMPOTENT}

# A NaN is unequal to everything, itself included; -0.0 equals 0.0.
eq = _pair("eq", np.equal, ANY, bool_, _SYMMETRIC)
ne = _pair("ne", np.not_equal, ANY, bool_, _SYMMETRIC)
lt = _pair("lt", np.less, ANY, bool_)
le = _pair("le", np.less_equal, ANY, bool_)
gt = _pair("gt", np.greater, ANY, bool_)
ge = _pair("ge", np.greater_equal, ANY, bool_)

logical_and = _pair("logical_and", np.logical_and, BOOLS, traits=_LATTICE)
logical_or = _pair("logical_or", np.logical_or, BOOLS, traits=_LATTICE)
logical_xor = _pair("logical_xor", np.logical_xor, BOOLS, traits=_SYMMETRIC)
logical_not = _negation("logical_not", np.logical_not, BOOLS)

bit_and = _pair("bit_and", np.bitwise_and, INTEGERS, traits=_LATTICE)
bit_or = _pair("bit_or", np.bitwise_or, INTEGERS, traits=_LATTICE)
bit_xor = _pair("bit_xor", np.bitwise_xor, INTEGERS, traits=_SYMMETRIC)
bit_not = _negation("bit_not", np.invert, INTEGERS)
# A shift by a negative number, or by the width or more, moves every bit out; a negative number
# shifted right keeps its sign.
shift_left = _pair("shift_left", np.left_shift, INTEGERS, samples=_SHIFTS)
shift_right = _pair("shift_right", np.right_shift, INTEGERS, samples=_SHIFTS)

# Not negative, but that of the lowest number and 0 is the lowest number; that of 0 and 0 is 0.
gcd = _pair("gcd", np.gcd, INTEGERS, traits=_SYMMETRIC)

_WHERE = ("condition", "x", "other")


def _infer_where(condition: TensorType, x: TensorType, other: TensorType) -> TensorType:
    types = (condition, x, other)
    if condition.dtype is not bool_:
        problem = f"the condition is bool, not {condition.dtype.name}"
        raise failure(DTypeError, "where", problem, _WHERE, types, "compare with 0")
    require_dtype("where", _WHERE, types, ANY, besides=0)
    return TensorType(x.dtype, common_shape("where", _WHERE, types))


def _where_vjp(g: Operand, y: Operand, c: Operand, a: Operand, b: Operand) -> tuple[Any, ...]:
    return None, ops.where(c, g, ops.zero(g)), ops.where(c, ops.zero(g), g)


def _overwrite_where(condition: np.ndarray, new: np.ndarray, base: np.ndarray, most: int) -> bool:
    """Write where the condition holds: into slices where it has one element for each."""
    shape, given = base.shape, condition.shape
    count = np.count_nonzero(condition)
    if count * (base.size // max(condition.size, 1)) > most:
        return False
    axes = len(given)
    while axes and given[axes - 1] == 1:
        axes -= 1
    if len(given) == len(shape) and 0 < axes < len(shape) and given[:axes] == shape[:axes]:
        places = np.nonzero(condition.reshape(given[:axes]))
        if new.ndim >= len(shape) - axes + 1:
            new = np.broadcast_to(new, shape)[places]
        base[places] = new
    else:
        np.copyto(base, new, where=condition)
    return True


_CHECKED = np.array([[True, False, True], [False, True, True]])

where = declare(
    Op(
        "where",
        _infer_where,
        quiet(np.where),
        _where_vjp,
        traits={Trait.SLOW},
        overwrite=_overwrite_where,
        overwritten=2,
        samples=(
            Sample((_CHECKED, (2, 3), (2, 3))),
            Sample((_CHECKED, (), (3,))),
            Sample((np.array(True), (4,), ())),
            Sample((np.array([[True], [False]]), (1, 5), (2, 1))),
            Sample((np.zeros((0, 3), np.bool_), (3,), ())),
        ),
        batch=batching.elementwise,
    )
)
