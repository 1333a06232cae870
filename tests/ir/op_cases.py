"""Sample operands made real, and ops that are evaluated at once on a tape, to test rules with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.ir import ops
from lucid.ir.errors import DTypeError
from lucid.ir.op import OPS, Attributes, Op, Operand, Sample
from lucid.ir.types import DTYPES, DType, TensorType, type_of_array


def named(op: Op) -> str:
    return op.name


def standing_ops() -> list[Op]:
    """All but `call`, which means what its function means."""
    return [op for op in OPS.values() if op.kind not in ("call", "host", "region")]


def differentiable_ops() -> list[Op]:
    return [op for op in standing_ops() if op.vjp is not None]


def filled(sample: Sample, dtype: DType, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the sample's operands as arrays."""
    return [_array(operand, sample.domain, dtype, rng) for operand in sample.operands]


def _array(
    operand: Any, domain: tuple[float, float] | None, dtype: DType, rng: np.random.Generator
) -> np.ndarray:
    if isinstance(operand, np.ndarray):
        return ops.cast.evaluate(operand, dtype=dtype) if operand.dtype.kind == "f" else operand
    if dtype.kind == "bool":
        return np.asarray(rng.random(operand) < 0.5)
    if dtype.kind == "int":
        low, high = domain or (-4, 4)
        low = max(low, 0) if not dtype.is_signed else low
        return np.asarray(rng.integers(int(low), int(high) + 1, operand)).astype(dtype.numpy)
    drawn = rng.normal(size=operand) if domain is None else rng.uniform(*domain, operand)
    return np.asarray(drawn).astype(dtype.numpy)


def accepted(op: Op, arrays: Sequence[np.ndarray], attributes: Attributes) -> TensorType | None:
    """Return the type that the op's rule gives; None where it refuses the dtypes."""
    try:
        return op.infer(*map(type_of_array, arrays), **attributes)
    except DTypeError as error:
        assert str(error).startswith(f"{op.name}: ")
        return None


def cases(
    op: Op, rng: np.random.Generator, dtypes: Sequence[DType] = DTYPES
) -> Iterator[tuple[Sample, list[np.ndarray], TensorType]]:
    """Yield each sample with operands of each dtype that the op takes, and the result's type."""
    for sample in op.samples:
        for dtype in dtypes:
            arrays = filled(sample, dtype, rng)
            result = accepted(op, arrays, sample.attributes)
            if result is not None:
                yield sample, arrays, result


@dataclass(eq=False)
class Taped(Operand):
    """An array that remembers the op that made it."""

    array: np.ndarray
    op: Op | None = None
    operands: tuple[Taped, ...] = ()
    attributes: Attributes | None = None

    def __post_init__(self) -> None:
        self._type = type_of_array(self.array)

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Taped:
        taped = tuple(operand for operand in operands if isinstance(operand, Taped))
        assert len(taped) == len(operands)
        type = op.infer(*(operand._type for operand in taped), **attributes)
        array = op.evaluate(*(operand.array for operand in taped), **attributes)
        assert type_of_array(array) == type, f"{op.name}: {type_of_array(array)} is not {type}"
        return Taped(array, op, taped, attributes)

    def constant(self, value: float, dtype: DType) -> Taped:
        attributes = {"value": dtype.numpy.type(value), "dtype": dtype}
        return self.emit(ops.constant, (), attributes)


def gradients(y: Taped, g: Taped, leaves: Sequence[Taped]) -> list[Taped | None]:
    """Walk the tape back from `y` with the cotangent `g`; the results are taped too."""
    cotangents: dict[int, Taped] = {id(y): g}
    for value in reversed(_in_order(y)):
        cotangent = cotangents.get(id(value))
        if cotangent is None or value.op is None or not value.dtype.is_floating_point:
            continue
        for operand, part in zip(value.operands, _parts(value, cotangent), strict=True):
            if part is not None:
                part = ops.sum_to_shape(part, operand.shape)
                assert part._type == operand._type, f"{value.op.name}: a cotangent of another type"
                before = cotangents.get(id(operand))
                cotangents[id(operand)] = part if before is None else before + part
    return [cotangents.get(id(leaf)) for leaf in leaves]


def _parts(value: Taped, g: Taped) -> tuple[Any, ...]:
    assert value.op is not None and value.attributes is not None
    if value.op.vjp is None or not value.operands:
        return (None,) * len(value.operands)
    return value.op.vjp(g, value, *value.operands, **value.attributes)


def _in_order(y: Taped) -> list[Taped]:
    """Every value that `y` depends on, operands first."""
    found: dict[int, Taped] = {}
    stack = [(y, False)]
    while stack:
        value, done = stack.pop()
        if done:
            found[id(value)] = value
        elif id(value) not in found:
            stack.append((value, True))
            stack.extend((operand, False) for operand in value.operands)
    return list(found.values())
