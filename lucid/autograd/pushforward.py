"""The derivative of an op in the direction of tangents, from its VJP.

The VJP of an op is linear in the cotangent: u -> (Jᵀu). Its transpose v -> J v is what forward mode
needs. The rule is run once on a cotangent that is only recorded, and what it does to the cotangent
is then walked backwards with the same VJP rules. So one rule per op serves both modes.
Reference: Radul, Paszke, Frostig, Johnson, Maclaurin, "You only linearize once", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid.autograd.rules import Missing, looked_at_by
from lucid.ir import ops
from lucid.ir.errors import MissingRuleError
from lucid.ir.op import Attributes, Op, Operand
from lucid.ir.types import DType, TensorType


class _Linear(Operand):
    """A value without data that depends linearly on the cotangent; its tape says how."""

    __slots__ = ("_type", "attributes", "like", "op", "operands", "tape")
    is_stand_in = True

    def __init__(self, type: TensorType, like: Operand, tape: list[_Linear]) -> None:
        self._type = type
        self.like = like  # some operand with data, which makes constants
        self.tape = tape
        self.op: Op | None = None
        self.operands: Sequence[Operand] = ()
        self.attributes: Attributes = {}

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Operand:
        if not any(isinstance(operand, _Linear) for operand in operands):
            return self.like.emit(op, operands, attributes)
        type = op.infer(*(operand._type for operand in operands), **attributes)
        if any(isinstance(operand, Missing) for operand in operands):
            return Missing(type, self.like)
        result = _Linear(type, self.like, self.tape)
        result.op, result.operands, result.attributes = op, operands, attributes
        self.tape.append(result)
        return result

    def constant(self, value: float, dtype: DType) -> Operand:
        return self.like.constant(value, dtype)


def push_forward(
    op: Op,
    attributes: Attributes,
    result: Operand,
    operands: Sequence[Operand],
    tangents: Sequence[Operand | None],
) -> Any:
    """The tangent of `result = op(*operands)`, computed with ops; None where it is zero.

    Shapes: tangents as the operands; None is a zero tangent.
    """
    if op.vjp is None:
        return None
    if op.is_view:
        return None if tangents[0] is None else op(tangents[0], **attributes)
    tape: list[_Linear] = []
    cotangent = _Linear(result._type, result, tape)
    kept = _needed(op, attributes, result, operands, tangents)
    parts = op.vjp(cotangent, kept[-1], *kept[:-1], **attributes)
    arrived: dict[int, Any] = {}
    for part, operand, tangent in zip(parts, operands, tangents, strict=True):
        if tangent is not None and isinstance(part, _Linear):
            _send(arrived, ops.sum_to_shape(part, operand._type.shape), tangent)
    for node in reversed(tuple(tape)):
        if id(node) in arrived:
            _transpose(node, arrived.pop(id(node)), arrived)
    return arrived.get(id(cotangent))


def _send(arrived: dict[int, Any], node: Operand, tangent: Any) -> None:
    present = arrived.get(id(node))
    arrived[id(node)] = tangent if present is None else ops.add(present, tangent)


def _transpose(node: _Linear, tangent: Any, arrived: dict[int, Any]) -> None:
    """Send what arrived at a step of the VJP on to the values that it was computed from."""
    assert node.op is not None and node.op.vjp is not None
    parts = node.op.vjp(tangent, node, *node.operands, **node.attributes)
    for operand, part in zip(node.operands, parts, strict=True):
        if not isinstance(operand, _Linear) or part is None:
            continue
        if part.is_stand_in:
            raise MissingRuleError(
                f"{node.op.name}: its VJP isn't linear in the cotangent, so no JVP can be derived"
            )
        _send(arrived, operand, ops.sum_to_shape(part, operand._type.shape))


def _needed(
    op: Op,
    attributes: Attributes,
    result: Operand,
    operands: Sequence[Operand],
    tangents: Sequence[Operand | None],
) -> list[Operand]:
    """The operands, then the result.

    Those that the derivative along these tangents doesn't look at are replaced by stand-ins, so
    that nothing is computed with them.
    """
    types = [operand._type for operand in operands]
    needed: set[int] = set()
    looked_at = looked_at_by(op, types, attributes)
    for sources, tangent in zip(looked_at, tangents, strict=True):
        if tangent is not None:
            needed |= sources
    kept: list[Operand] = [
        x if i in needed else Missing(x._type, result) for i, x in enumerate(operands)
    ]
    kept.append(result if -1 in needed else Missing(result._type, result))
    return kept
