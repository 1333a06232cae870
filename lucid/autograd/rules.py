"""What derivative rules are run on, where it isn't tensors or the values of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lucid.ir.op import Attributes, Op, Operand
from lucid.ir.types import DType, TensorType, type_of_array


class Missing(Operand):
    """Stands for an operand whose data was not kept, since no gradient that is asked for needs it.

    Whatever a derivative rule computes with it is missing as well, and costs nothing.
    """

    __slots__ = ("_present", "_type")
    is_stand_in = True

    def __init__(self, type: TensorType, present: Operand) -> None:
        self._type = type
        self._present = present  # some operand with data, which makes constants

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Operand:
        if not any(isinstance(operand, Missing) for operand in operands):
            return self._present.emit(op, operands, attributes)
        type = op.infer(*(operand._type for operand in operands), **attributes)
        return Missing(type, self._present)

    def constant(self, value: float, dtype: DType) -> Operand:
        return self._present.constant(value, dtype)


class Data(Operand):
    """An array as an operand: its ops are evaluated at once, and leave no tensor and no history.

    A backward walk that isn't recorded runs derivative rules on such.
    """

    __slots__ = ("array",)
    is_stand_in = True

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def _type(self) -> TensorType:  # type: ignore[override]
        return type_of_array(self.array)

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Operand:
        arrays = []
        for operand in operands:
            if operand.__class__ is not Data:  # one that is missing
                return operand.emit(op, operands, attributes)
            arrays.append(operand.array)
        result = op.evaluate(*arrays, **attributes)
        if not op.is_view and not result.flags.c_contiguous:
            result = np.ascontiguousarray(result)
        return Data(result)

    def constant(self, value: float, dtype: DType) -> Operand:
        return Data(np.array(value, dtype.numpy))


class _Spy(Operand):
    """Runs through a derivative rule to see which operands each of its results depends on."""

    __slots__ = ("_type", "sources")

    def __init__(self, type: TensorType, sources: frozenset[int]) -> None:
        self._type = type
        self.sources = sources

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> _Spy:
        type = op.infer(*(operand._type for operand in operands), **attributes)
        sources = frozenset[int]()
        for operand in operands:
            if isinstance(operand, _Spy):
                sources |= operand.sources
        return _Spy(type, sources)

    def constant(self, value: float, dtype: DType) -> _Spy:
        return _Spy(TensorType(dtype, ()), frozenset())


_looked_at: dict[tuple[Op, int], tuple[frozenset[int], ...]] = {}


def looked_at_by(
    op: Op, operand_types: Sequence[TensorType], result_type: TensorType, attributes: Attributes
) -> tuple[frozenset[int], ...]:
    """Per operand, whose data its cotangent needs: operand numbers, -1 for the result.

    Found by running the rule once on operands without data; it depends on the op, not on shapes.
    """
    key = (op, len(operand_types))
    found = _looked_at.get(key)
    if found is None:
        assert op.vjp is not None
        spies = [_Spy(type, frozenset((i,))) for i, type in enumerate(operand_types)]
        gradient = _Spy(result_type, frozenset())
        result = _Spy(result_type, frozenset((-1,)))
        parts = op.vjp(gradient, result, *spies, **attributes)
        found = tuple(p.sources if isinstance(p, _Spy) else frozenset() for p in parts)
        _looked_at[key] = found
    return found
