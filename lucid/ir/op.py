"""What an op is, and the table of all ops."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar, get_type_hints

import numpy as np

from lucid.ir.types import DType, Shape, TensorType

Attributes = dict[str, Any]


X = TypeVar("X", bound="Operand")


class Operand:
    """What the rules of ops compute with: an IR value, or a tensor of the user's.

    Derivative rules are written once, with the ops themselves (`exp(x)`, `g * y`); what an op does
    with its operands is decided by their class: append a node to a graph, or evaluate and record.

    Attributes:
        is_stand_in: it has no data, and decides what becomes of an op that has it among its
            operands, whatever the others are.
        _type: element type and shape. (`Tensor.type` is PyTorch's method.)

    >>> issubclass(lucid.Tensor, lucid.ir.Operand), issubclass(lucid.ir.Value, lucid.ir.Operand)
    (True, True)
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

    >>> from lucid.ir import Sample
    >>> Sample(((2, 3),), {"axes": (1,)}, domain=(0.5, 2.0))
    Sample(operands=((2, 3),), attributes={'axes': (1,)}, domain=(0.5, 2.0))
    """

    operands: tuple[Shape | np.ndarray, ...]
    attributes: Attributes = field(default_factory=dict)
    domain: tuple[float, float] | None = None


class Trait(enum.Enum):
    """What code asks of an op instead of its name. The first four follow from its kind."""

    ELEMENTWISE = "each element follows from those at its place; operands broadcast"
    VIEW = "the result shares its first operand's memory"
    REDUCTION = "axes are folded to one element"
    EFFECT = "it must run, in its turn: it calls Python, or raises for a wrong operand"
    INDEXED = "its second operand holds indices, and one that is out of range is an error"
    COMMUTATIVE = "f(a, b) = f(b, a)"
    IDEMPOTENT = "f(a, a) = a"
    INVOLUTION = "f(f(a)) = a"
    APPROXIMATE = "NumPy and native code may round it otherwise"
    SLOW = "NumPy takes many times what native code does: eager mode has it for many elements"

    __hash__ = object.__hash__  # passes ask for traits of each node: Enum's own is Python code


OpKind = Literal[
    "map", "reduce", "view", "move", "scan", "sort", "contract", "attention", "create", "random",
    "check", "call", "host", "region",
]  # fmt: skip
_TRAIT_OF_KIND: dict[OpKind, Trait] = {
    "map": Trait.ELEMENTWISE,
    "view": Trait.VIEW,
    "reduce": Trait.REDUCTION,
    "check": Trait.EFFECT,
    "host": Trait.EFFECT,
    "random": Trait.SLOW,
    "scan": Trait.SLOW,
    "sort": Trait.SLOW,
}


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
            operand's memory), "move", "scan", "sort", "contract", "attention", "create", "random",
            "check" (the result is the operand; it raises for a wrong one), "call", "host", or
            "region" (it runs functions of the graph).
        traits: as declared, and that of its kind. Those that every pass asks for are attributes of
            their own: `is_elementwise`, `is_view`, `is_reduction`, `has_effect`.
        batch: the batching rule, `(op, size, which operands have a batch axis, *operands,
            **attributes) -> result`: see `lucid.ir.ops.batching`. None: the op has no operand that
            can be batched.
        strides: of a view: `(operand's shape, its strides in elements, **attributes) -> strides`;
            None from it where only a copy has the result's shape.
        overwrite: of an op whose result is one of its operands but for some elements: `(*arrays,
            most=, **attributes) -> bool`, writes these into that operand, unless they are more than
            `most`: then it returns False. It raises before it writes. None: it isn't such an op.
        overwritten: the number of that operand.
        samples: what the generated tests feed; they are run over the dtypes that `infer` accepts.

    >>> from lucid.ir import Op, ops
    >>> isinstance(ops.mul, Op), ops.mul.kind, ops.mul.arity
    (True, 'map', 2)
    >>> ops.mul(lucid.tensor([1.0, 2.0]), lucid.tensor([3.0, 4.0]))
    tensor([3., 8.])
    """

    name: str
    infer: Callable[..., TensorType]
    evaluate: Callable[..., Any]
    vjp: Callable[..., tuple[Any, ...]] | None = None
    kind: OpKind = "map"
    traits: Set[Trait] = frozenset()
    samples: tuple[Sample, ...] = ()
    batch: Callable[..., Any] | None = None
    strides: Callable[..., tuple[int, ...] | None] | None = None
    overwrite: Callable[..., bool] | None = None
    overwritten: int = 0
    is_elementwise: bool = field(init=False)
    is_view: bool = field(init=False)
    is_reduction: bool = field(init=False)
    has_effect: bool = field(init=False)

    def __post_init__(self) -> None:
        implied = [_TRAIT_OF_KIND[self.kind]] if self.kind in _TRAIT_OF_KIND else []
        traits = frozenset([*self.traits, *implied])
        for name, value in (
            ("traits", traits),
            ("is_elementwise", Trait.ELEMENTWISE in traits),
            ("is_view", Trait.VIEW in traits),
            ("is_reduction", Trait.REDUCTION in traits),
            ("has_effect", Trait.EFFECT in traits),
        ):
            object.__setattr__(self, name, value)

    @property
    def signature(self) -> tuple[int, bool, Mapping[str, Any]]:
        """How many operands it takes at least, whether it may be more, and the schema."""
        return _signature(self)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The type of each attribute, as the type rule annotates it."""
        return _signature(self)[2]

    @property
    def optional(self) -> Set[str]:
        """The attributes that a node may leave out."""
        return _optional(self)

    @property
    def arity(self) -> int | None:
        """How many operands it takes; None: its type rule counts them."""
        return None if _signature(self)[1] else self.least

    @property
    def least(self) -> int:
        """How many operands it takes at least."""
        return _signature(self)[0]

    def __call__(self, first: X, /, *others: Any, **attributes: Any) -> X:
        return first.emit(self, (first, *others), attributes)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __deepcopy__(self, memo: object) -> Self:
        return self


ATTRIBUTE_TYPES = (int, tuple[int, ...], bool, str, DType, np.generic)


@cache
def _signature(op: Op) -> tuple[int, bool, dict[str, Any]]:
    """The operands that have a name, whether more may follow, and the schema.

    A type rule's parameters of these types are attributes, others operands.
    """
    hints = get_type_hints(op.infer)
    parameters = inspect.signature(op.infer).parameters.values()
    schema = {p.name: hints[p.name] for p in parameters if hints.get(p.name) in ATTRIBUTE_TYPES}
    operands = [p for p in parameters if p.name not in schema]
    more = sum(p.kind is p.VAR_POSITIONAL for p in operands)
    return len(operands) - more, bool(more), schema


@cache
def _optional(op: Op) -> Set[str]:
    parameters = inspect.signature(op.infer).parameters.values()
    return {p.name for p in parameters if p.default is not p.empty and p.name in op.schema}


OPS: dict[str, Op] = {}


def declare(op: Op) -> Op:
    """Enter an op into the table, again where an import was interrupted; its name is its own."""
    OPS[op.name] = op
    return op


def ops_with(trait: Trait) -> list[Op]:
    """The ops that have a trait."""
    return [op for op in OPS.values() if trait in op.traits]
