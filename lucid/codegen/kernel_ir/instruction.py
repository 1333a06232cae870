"""Instructions of the kernel IR, in SSA form: what each computes, loads or stores, as a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from lucid.codegen.kernel_ir.affine import AffineExpr
from lucid.ir.extents import is_open
from lucid.ir.types import DType

EFFECTS = ("store", "accumulate", "write")


@dataclass(frozen=True, slots=True)
class Bits:
    """The element that a "const" is, as it lies in memory."""

    data: bytes

    def __str__(self) -> str:
        return f" {self.data.hex()}"


@dataclass(frozen=True, slots=True)
class OpenBits:
    """The number that a "const" is where a program leaves it open.

    Attributes:
        value: the number if it is whole.
        is_bits: it is the f64 with the bits of `value`, if the instruction gives floats.
    """

    value: int
    is_bits: bool

    def __str__(self) -> str:
        return f" open {self.value}{' bits' if self.is_bits else ''}"


@dataclass(frozen=True, slots=True)
class Fold:
    """How a "reduce", "scan" or "accumulate" combines elements: "sum", "amax", "argmin" …"""

    op: str

    def __str__(self) -> str:
        return f" {self.op}"


@dataclass(frozen=True, slots=True)
class Indexed:
    """The axis that an index operand chooses along: of a "gather" or an "index_at".

    Attributes:
        stride: elements from one of its places to the next.
        size: how many there are; an index from -size to -1 counts from the end.
    """

    stride: int
    size: int

    def __str__(self) -> str:
        return f" stride {self.stride} size {self.size}"


@dataclass(frozen=True, slots=True)
class Scattered(Indexed):
    """The same of a "write", and whether it adds to what is there."""

    adds: bool

    def __str__(self) -> str:
        return f" stride {self.stride} size {self.size} {'add' if self.adds else 'set'}"


@dataclass(frozen=True, slots=True)
class Keywords:
    """The attributes of an op, such as the dtype of a "cast", in a hashable form."""

    entries: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return "".join(f" {name}={value!r}" for name, value in self.entries)


InstAttributes = Bits | OpenBits | Fold | Indexed | Keywords | None


class Inst(NamedTuple):
    """One instruction.

    Attributes:
        op: "const", "index" (the form's value), "load", "gather" (a load at an index operand),
            "index_at", "product" (of a contraction), "reduce", "scan", "store", "accumulate" (add
            to memory; with a `Fold` to 0, where the dims that the address lacks begin), "write"
            (a store at an index operand), or an op's name.
        operands: numbers of earlier instructions.
        form: for memory the element's address, for "index" and random ops the value.
        arg: the buffer argument of a memory access.
        attributes: what else the rule needs.
    """

    op: str
    dtype: DType
    operands: tuple[int, ...] = ()
    form: AffineExpr | None = None
    arg: int = -1
    attributes: InstAttributes = None

    @property
    def is_root(self) -> bool:
        """Whether it has an effect."""
        return self.op in EFFECTS or self.op == "reduce"

    @property
    def has_address(self) -> bool:
        return self.arg >= 0

    @property
    def at(self) -> AffineExpr:
        """The form of one that has it."""
        assert self.form is not None
        return self.form

    @property
    def reads_memory(self) -> bool:
        return self.op in ("load", "gather") or (self.adds and not self.begins)

    @property
    def adds(self) -> bool:
        """Whether it adds to what is in memory."""
        if self.op == "write":
            assert isinstance(self.attributes, Scattered)
            return self.attributes.adds
        return self.op == "accumulate"

    @property
    def begins(self) -> bool:
        """Whether what it adds to is 0 at first, whatever is in memory."""
        return self.op == "accumulate" and isinstance(self.attributes, Fold)

    @property
    def bits(self) -> bytes:
        """Of a "const"."""
        assert isinstance(self.attributes, Bits)
        return self.attributes.data

    @property
    def fold(self) -> str:
        """How a "reduce" or a "scan" combines."""
        assert isinstance(self.attributes, Fold)
        return self.attributes.op

    @property
    def axis(self) -> Indexed:
        """What an index operand chooses along."""
        assert isinstance(self.attributes, Indexed)
        return self.attributes

    @property
    def keywords(self) -> dict[str, Any]:
        """The attributes of an op."""
        return dict(self.attributes.entries) if isinstance(self.attributes, Keywords) else {}


def print_form(form: AffineExpr | None) -> str:
    """The form as a sum over i0, i1, ...; open sizes are shown, of whatever size they are now."""
    if form is None:
        return ""
    shown = [(dim, is_open(value) or value != 1, value) for dim, value in form.terms]
    terms = [f"i{dim}*{value}" if is_shown else f"i{dim}" for dim, is_shown, value in shown]
    if is_open(form.offset) or form.offset or not terms:
        terms.append(str(form.offset))
    return " + ".join(terms)


def print_inst(number: int, inst: Inst) -> str:
    """One line."""
    operands = ", ".join(f"%{n}" for n in inst.operands)
    details = "" if inst.attributes is None else str(inst.attributes)
    if inst.op in EFFECTS:
        arrow = "+=" if inst.op == "accumulate" else "<-"
        return f"%{number}: a{inst.arg}[{print_form(inst.form)}] {arrow} {operands}{details}"
    place = print_form(inst.form)
    if inst.has_address:
        place = f" a{inst.arg}[{place}]"
    elif inst.form is not None:
        place = f" ({place})"
    operands = " " + operands if operands else ""
    return f"%{number} = {inst.op}{place}{operands}{details} : {inst.dtype.name}"
