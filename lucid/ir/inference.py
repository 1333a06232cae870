"""The door to the ops' type rules: sizes that nothing can count or compute are refused here.

Eager mode, traces, the parser and the verifier all ask `result_type`, so they agree on them. Dry
runs, of a derivative rule for what it looks at, ask the rules themselves: nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from math import prod
from typing import Any, Protocol

import numpy as np

from lucid.ir.errors import LucidError, ShapeError, SizeError, TooLargeError
from lucid.ir.extents import hint, is_open
from lucid.ir.op import Attributes, Op, Operand, Trait
from lucid.ir.ops.rules import failure
from lucid.ir.strides import Strides, view_strides
from lucid.ir.types import DType, Shape, TensorType, shared_type

MOST_ELEMENTS = 2**40 - 1
"""What one op that is no view may read or compute.

A view of more elements is only a way to see memory: no work is done for it, unless it is a reshape
that has to copy. But all else takes its time: at a nanosecond each, 2**40 elements are 18 minutes
of a processor in one native call, or one call of NumPy, that Ctrl-C doesn't reach; as a value of
its own they are 4 TiB of f32. The limit depends neither on the machine nor on what is fused, so
eager mode and all compiled steps have the same. Elements are counted, and not the products that a
contraction takes of each.
"""
MOST_AXES = 64
"""Of an array of NumPy's, and so of a value."""
MANY_ELEMENTS = 2**15
"""From here on native code is worth its call where NumPy is slow, or goes over an array twice."""
LESS = "an op computes fewer than 2**40 elements"


SHORT, MANY_RUNS = 32, 2**11
"""A loop over fewer elements is short: each takes NumPy some 10 ns, and so many are many."""


def is_many(types: Iterable[TensorType], known: Callable[[Any], Any] = hint) -> bool:
    """Whether one of these has `MANY_ELEMENTS`."""
    return any(known(type.size) >= MANY_ELEMENTS for type in types)


def is_slow(
    op: Op,
    types: Sequence[TensorType],
    result: Shape,
    attributes: Attributes,
    known: Callable[[Any], Any] = hint,
) -> bool:
    """Whether NumPy is slow at an op on such operands: native code is worth its call.

    That is where elements are many, for some ops; and where NumPy's innermost loop runs many times
    over few of them. So it does along the last axis of positions (n, 3) where that is reduced and
    the one before isn't, or the other way round, and where an operand is broadcast along only one
    of the two.

    known: what of a size is compared, which may be open.
    """
    if Trait.SLOW in op.traits and is_many(types, known):
        return True
    is_folded = op.is_reduction or op.kind == "scan"
    if not is_folded and (not op.is_elementwise or len({*map(id, types)}) == 1):
        return False
    count = prod(map(known, types[0].shape if is_folded else result))
    if not is_open(count) and count < MANY_RUNS:
        return False
    shapes = [tuple(map(known, type.shape)) for type in types]
    if is_folded:
        shape, along = shapes[0], attributes.get("axes", (attributes.get("axis"),))
        kinds: list[Any] = [axis in along for axis in range(len(shape))]
    else:
        shape = tuple(map(known, result))
        full = [(1,) * (len(shape) - len(other)) + other for other in shapes]
        kinds = [[n == 1 for n in sizes] for sizes in zip(*full, strict=True)]
    walked = [pair for pair in zip(shape, kinds, strict=True) if pair[0] != 1]
    alike = takewhile(lambda pair: pair[1] == walked[-1][1], reversed(walked))
    run = prod([size for size, _ in alike])
    return bool(run < SHORT and prod([size for size, _ in walked]) >= run * MANY_RUNS)


def result_type(op: Op, types: Sequence[TensorType], attributes: Attributes) -> TensorType:
    """The type of what `op` gives for operands of these types.

    Raises what the op's rule raises; `SizeError` for a negative size; `ShapeError` for more axes
    than `MOST_AXES`; `TooLargeError` for a result whose bytes 64 bits can't count, and where an op
    that is no view would read or compute more than `MOST_ELEMENTS`.
    """
    try:
        result = op.infer(*types, **attributes)
    except SizeError as error:
        raise _failure(type(error), op.name, str(error), types) from None
    if len(result.shape) > MOST_AXES:
        raise _failure(ShapeError, op.name, too_many_axes(len(result.shape)), types)
    if not op.is_view:
        for type_ in types:
            if type_.size > MOST_ELEMENTS:
                raise too_many(op.name, "read", type_, types)
        if result.size > MOST_ELEMENTS:
            raise too_many(op.name, "compute", result, types)
    return result


class Application:
    """An op on operands of some types, and what follows from these.

    Attributes:
        types: of the operands.
        result_type: of the result.
        derivatives: what a backward needs to know, by the operands whose gradients are wanted;
            autograd keeps it here.
        checked: the attributes as a graph has compared them with the op's schema, for all its nodes
            to share; None: none has.
        is_slow: whether NumPy is slow at it.
        views: of a view op the strides of its result, by those of the operand.
        step: what a view op adds to a chain of such; None: it is none.
        native: what machine code needs to know, or when that was first asked for; `asked` is how
            often it was.
        form: what it needs to know of the op on operands of any types; None: nobody has asked.
    """

    __slots__ = (
        "asked",
        "attributes",
        "checked",
        "derivatives",
        "form",
        "is_slow",
        "native",
        "op",
        "result_type",
        "step",
        "types",
        "views",
    )

    def __init__(self, op: Op, attributes: Attributes, types: tuple[TensorType, ...]) -> None:
        self.op, self.attributes, self.types = op, attributes, types
        result = result_type(op, types, attributes)
        self.result_type = shared_type(result.dtype, result.shape)
        self.is_slow = is_slow(op, types, result.shape, attributes)
        self.derivatives: dict[tuple[bool, ...], Any] = {}
        self.step = ((op, attributes),) if op.is_view else None
        self.native: Any = None
        self.asked = 0
        self.form: Any = None
        self.checked: Attributes | None = None
        self.views: dict[Strides, Strides | None] = {}

    @property
    def has_numbers(self) -> bool:
        """Whether equal attributes may still differ, in the sign of a zero."""
        return np.generic in self.op.schema.values()


def application(op: Op, operands: Sequence[Operand], attributes: Attributes) -> Application:
    """What is known of an op on such operands: looked up, since the same come again and again.

    Equal attributes mean equal types. Raises as `result_type` does.
    """
    if len(operands) == 2 and not attributes:
        x, y = operands[0]._type, operands[1]._type
        return _known(op, (), x.dtype, x.shape, y.dtype, y.shape)
    return application_to(op, [operand._type for operand in operands], attributes)


def application_to(op: Op, types: Sequence[TensorType], attributes: Attributes) -> Application:
    """The same for operands of these types."""
    parts: list[Any] = []
    for type in types:
        parts += type.dtype, type.shape
    try:
        return _known(op, tuple(attributes.items()), *parts)
    except TypeError:  # what can't be hashed
        return Application(op, attributes, tuple(types))


@lru_cache(maxsize=8192)
def _known(op: Op, attributes: tuple[tuple[str, Any], ...], *parts: DType | Shape) -> Application:
    """parts: of each operand its dtype and its shape, of plain ints."""
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return Application(op, dict(attributes), tuple([shared_type(*pair) for pair in pairs]))


def too_many_axes(count: int) -> str:
    """What is wrong with a shape of so many axes."""
    return f"{count} axes; a tensor has at most {MOST_AXES}"


def too_many(name: str, verb: str, type: TensorType, types: Sequence[TensorType]) -> LucidError:
    """The error of a function that would read or compute all elements of a value of this type."""
    problem = f"would {verb} the {type.size:,} elements of {type}"
    return _failure(TooLargeError, name, problem, types, f"{LESS}: take parts, one by one")


NO_MEMORY = "the system has no memory for it"


def no_memory(op: Op, operands: Sequence[Operand], error: MemoryError) -> LucidError:
    """The error of an op for whose result or intermediates the system had no memory."""
    text = str(error) or NO_MEMORY
    return _failure(TooLargeError, op.name, text, [operand._type for operand in operands])


class _Strided(Protocol):
    _type: TensorType

    def element_strides(self) -> Strides: ...


def strides_of_view(known: Application, operand: _Strided) -> Strides | None:
    """Strides of the view that an op gives of an operand; None where only a copy has that shape.

    Raises `TooLargeError` for a copy of more than `MOST_ELEMENTS`.
    """
    strides = operand.element_strides()
    if strides not in known.views:
        shape = known.types[0].shape
        known.views[strides] = view_strides(known.op, known.attributes, shape, strides)
    found = known.views[strides]
    if found is None and known.result_type.size > MOST_ELEMENTS:
        raise too_many(known.op.name, "copy", known.result_type, known.types)
    return found


def _failure(
    error: type[ShapeError], name: str, problem: str, types: Sequence[TensorType], hint: str = ""
) -> LucidError:
    names = [f"operand {i}" for i in range(len(types))]
    return failure(error, name, problem, names, types, hint)
