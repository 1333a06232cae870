"""What an op is, and the table of all ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from lucid.ir.types import DType, Shape, TensorType

Attributes = dict[str, Any]


class Operand:
    """What the rules of ops compute with: an IR value, or a tensor of the user's.

    Derivative rules are written once, with the ops themselves (`exp(x)`, `g * y`); what an op does
    with its operands is decided by their class: append a node to a graph, or evaluate and record.

    Attributes:
        is_stand_in: it has no data, and decides what becomes of an op that has it among its
            operands, whatever the others are.
        _type: element type and shape. (`Tensor.type` is PyTorch's method.)
    """

    __slots__ = ()
    _type: TensorType
    is_stand_in: ClassVar[bool] = False
    __hash__ = object.__hash__

    def emit(self, op: Op, operands: Sequence[Operand], attributes: Attributes) -> Operand:
        """Apply `op` in the way of this class."""
        raise NotImplementedError

    def constant(self, value: float, dtype: DType) -> Operand:
        """Return a 0-d constant that operands of this class can be combined with."""
        raise NotImplementedError

    @property
    def shape(self) -> Shape:
        return self._type.shape

    @property
    def dtype(self) -> DType:
        return self._type.dtype

    def _same_dtype(self, other: Operand | float) -> Operand:
        return other if isinstance(other, Operand) else self.constant(other, self.dtype)

    def __add__(self, other: Any) -> Any:
        return OPS["add"](self, self._same_dtype(other))

    def __radd__(self, other: Any) -> Any:
        return OPS["add"](self._same_dtype(other), self)

    def __sub__(self, other: Any) -> Any:
        return OPS["sub"](self, self._same_dtype(other))

    def __rsub__(self, other: Any) -> Any:
        return OPS["sub"](self._same_dtype(other), self)

    def __mul__(self, other: Any) -> Any:
        return OPS["mul"](self, self._same_dtype(other))

    def __rmul__(self, other: Any) -> Any:
        return OPS["mul"](self._same_dtype(other), self)

    def __truediv__(self, other: Any) -> Any:
        return OPS["div"](self, self._same_dtype(other))

    def __rtruediv__(self, other: Any) -> Any:
        return OPS["div"](self._same_dtype(other), self)

    def __neg__(self) -> Any:
        return OPS["neg"](self)


@dataclass(frozen=True, slots=True)
class Sample:
    """Operands (arrays, or shapes that the tests fill) and attributes to test an op with.

    Attributes:
        operands: one per operand: a shape to be filled with normal numbers, or a ready array. A
            ready array of floats is cast to the dtype that is tested, and may hold NaN, infinities
            and kinks, so derivatives are not tested there; bools and integers (conditions, indices,
            states) are taken as they are.
        attributes: the op's attributes.
        domain: interval from which the numbers of shape operands are drawn, for ops that are not
            defined, or not smooth, everywhere.
    """

    operands: tuple[Shape | np.ndarray, ...]
    attributes: Attributes = field(default_factory=dict)
    domain: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One primitive, declared once: its type rule, its meaning, its derivative.

    Attributes:
        name: as IR text spells it.
        infer: `(*operand types, **attributes) -> result type`; raises `LucidError`.
        evaluate: `(*arrays, **attributes) -> array`: the op on NumPy arrays. The lowering and the
            VJP are both tested against it. View ops may return a view.
        vjp: `(cotangent, result, *operands, **attributes) -> one cotangent or None per operand`,
            written with lucid ops, so that it can itself be traced and differentiated. The sum over
            broadcast axes is taken by the engine, never by a rule. None: no derivative exists
            (integers, comparisons).
        kind: "map" (elementwise, operands broadcast), "reduce", "view" (the result shares its first
            operand's memory), "move", "scan", "sort", "contract", "create", "random", "check" (the
            result is the operand; it raises for a wrong one), "call" or "host".
        commutative: the operands may be swapped.
        batch: the batching rule, `(op, size, which operands have a batch axis, *operands,
            **attributes) -> result`: see `lucid.ir.ops.batching`. None: the op has no operand that
            can be batched.
        samples: what the generated tests feed; they are run over the dtypes that `infer` accepts.
    """

    name: str
    infer: Callable[..., TensorType]
    evaluate: Callable[..., Any]
    vjp: Callable[..., tuple[Any, ...]] | None = None
    kind: str = "map"
    commutative: bool = False
    samples: tuple[Sample, ...] = ()
    batch: Callable[..., Any] | None = None

    def __call__(self, *operands: Operand, **attributes: Any) -> Any:
        return operands[0].emit(self, operands, attributes)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __deepcopy__(self, memo: object) -> Self:
        return self


OPS: dict[str, Op] = {}


def declare(op: Op) -> Op:
    """Enter an op into the table. A name is declared once."""
    assert op.name not in OPS, f"op {op.name} is declared twice"
    OPS[op.name] = op
    return op
