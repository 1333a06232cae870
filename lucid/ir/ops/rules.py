"""What type rules are made of: broadcasting, sets of dtypes, and the errors.

Each message has the op and the problem on its first line, then the operands, in order, one a line,
as `  name: type`; then perhaps a hint. `with_birthplaces` extends exactly this form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature

from lucid.ir.errors import ArgumentError, DTypeError, LucidError, ShapeError
from lucid.ir.types import DTYPES, DType, Shape, TensorType, i32, i64

DTypeSet = tuple[DType, ...]
Infer = Callable[..., TensorType]
Names = tuple[str, ...]

ANY: DTypeSet = DTYPES
BOOLS = tuple(dtype for dtype in DTYPES if dtype.kind == "bool")
INTEGERS = tuple(dtype for dtype in DTYPES if dtype.kind == "int")
FLOATS = tuple(dtype for dtype in DTYPES if dtype.kind == "float")
NUMBERS = INTEGERS + FLOATS
INDEXES = (i32, i64)

_CONVERSION = {
    BOOLS: "convert with .bool(), or compare with 0",
    INTEGERS: "convert with .long()",
    FLOATS: "convert with .float()",
    NUMBERS: "convert with .float() or .long()",
    INDEXES: "convert with .long()",
}


def failure(
    error: type[LucidError],
    op: str,
    problem: str,
    names: Sequence[str] = (),
    types: Sequence[TensorType] = (),
    hint: str = "",
) -> LucidError:
    """Return the error `op: problem` that lists the operands, to be raised.

    >>> from lucid.ir.types import TensorType, f32
    >>> print(failure(ShapeError, "neg", "no", ["x"], [TensorType(f32, (2, 3))], "try abs"))
    neg: no
      x: f32[2,3]
    hint: try abs
    """
    width = max(map(len, names), default=0) + 1
    lines = [f"{op}: {problem}"]
    for name, type in zip(names, types, strict=True):
        lines.append(f"  {name + ':':<{width}} {type}")
    if hint:
        lines.append(f"hint: {hint}")
    return error("\n".join(lines))


def with_birthplaces(message: str, places: Sequence[str]) -> str:
    """Append to each operand's line of a rule's message where the operand was made.

    Places are in the order of the operands; an empty one adds nothing. A message that lists no
    operands is returned as it is.

    >>> print(with_birthplaces("neg: no\\n  x: f32[2]\\nhint: try abs", ["train.py:3   x = f(y)"]))
    neg: no
      x: f32[2]  from train.py:3   x = f(y)
    hint: try abs
    """
    first, *rest = message.split("\n")
    listed = sum(line.startswith("  ") for line in rest)
    if listed != len(places):
        return message
    width = max(map(len, rest[:listed]), default=0)
    extended = [
        f"{line:<{width}}  from {place}" if place else line
        for line, place in zip(rest[:listed], places, strict=True)
    ]
    return "\n".join([first, *extended, *rest[listed:]])


def require_dtype(
    op: str,
    names: Names,
    types: Sequence[TensorType],
    allowed: DTypeSet,
    besides: int | None = None,
) -> None:
    """Raise `DTypeError` unless all operands have one dtype, which is in `allowed`.

    The operand at position `besides`, an index or a condition, may have another.
    """
    dtype = types[0 if besides != 0 else 1].dtype
    for position, type in enumerate(types):
        if position == besides:
            continue
        if type.dtype not in allowed:
            wanted = ", ".join(d.name for d in allowed)
            raise failure(
                DTypeError,
                op,
                f"takes {wanted}, not {type.dtype.name}",
                names,
                types,
                _CONVERSION.get(allowed, ""),
            )
        if type.dtype is not dtype:
            problem = f"the dtypes differ, {dtype.name} and {type.dtype.name}"
            raise failure(DTypeError, op, problem, names, types, "cast one of them")


def require_index(op: str, names: Names, types: Sequence[TensorType], position: int = 1) -> None:
    """Raise `DTypeError` unless the operand at `position` can be an index."""
    if types[position].dtype not in INDEXES:
        problem = f"an index is i64 or i32, not {types[position].dtype.name}"
        raise failure(DTypeError, op, problem, names, types, "convert with .long()")


def require_axis(op: str, names: Names, types: Sequence[TensorType], axis: int) -> None:
    """Raise `ShapeError` unless the first operand has this axis; negative axes aren't taken."""
    ndim = types[0].ndim
    if not 0 <= axis < ndim:
        problem = f"axis {axis} is out of range for {ndim} axes"
        raise failure(ShapeError, op, problem, names, types)


def require_count(op: str, names: Names, types: Sequence[TensorType]) -> None:
    """Raise `ArgumentError` unless there is one operand per name."""
    if len(types) != len(names):
        raise ArgumentError(f"{op}: takes {len(names)} operands, not {len(types)}")


def broadcast_shapes(a: Shape, b: Shape) -> Shape | None:
    """Return the shape that NumPy's broadcasting gives; None where the shapes don't fit.

    >>> broadcast_shapes((4, 1), (3,))
    (4, 3)
    """
    if len(a) == len(b) and a == b:  # of open sizes only these are compared
        return a
    if len(a) < len(b):
        a, b = b, a
    lead = len(a) - len(b)
    sizes = list(a[:lead])
    for m, n in zip(a[lead:], b, strict=True):
        if m != n and m != 1 and n != 1:
            return None
        sizes.append(n if m == 1 else m)
    return tuple(sizes)


def broadcast_all(*shapes: Shape) -> Shape | None:
    """The shape that all broadcast to; None where they don't fit."""
    found: Shape | None = ()
    for shape in shapes:
        found = None if found is None else broadcast_shapes(found, shape)
    return found


def _no_broadcast(op: str, names: Names, types: Sequence[TensorType]) -> LucidError:
    """Name the last axis on which the sizes differ."""
    rank = max(type.ndim for type in types)
    for axis in range(-1, -rank - 1, -1):
        sizes = {type.shape[axis] for type in types if type.ndim >= -axis} - {1}
        if len(sizes) > 1:
            listed = " and ".join(str(type.shape[axis]) for type in types if type.ndim >= -axis)
            problem = f"the shapes don't broadcast: axis {axis} has the sizes {listed}"
            return failure(ShapeError, op, problem, names, types)
    raise AssertionError("the shapes broadcast")


def common_shape(op: str, names: Names, types: Sequence[TensorType]) -> Shape:
    """Broadcast the shapes of all operands. Raises `ShapeError`."""
    shape: Shape = types[0].shape
    for type in types[1:]:
        wider = broadcast_shapes(shape, type.shape)
        if wider is None:
            raise _no_broadcast(op, names, types)
        shape = wider
    return shape


def elementwise(op: str, names: Names, allowed: DTypeSet, result: DType | None = None) -> Infer:
    """Return the rule of ops that work per element: one dtype, shapes broadcast.

    The result has the operands' dtype, or `result` where given (comparisons).
    """

    def infer(*types: TensorType) -> TensorType:
        require_count(op, names, types)
        require_dtype(op, names, types, allowed)
        shape = common_shape(op, names, types)
        first = types[0]
        if result is None:
            return first if first.shape == shape else TensorType(first.dtype, shape)
        return TensorType(result, shape)

    operands = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in names]
    infer.__signature__ = Signature(operands)  # type: ignore[attr-defined]  # the op's arity
    return infer
