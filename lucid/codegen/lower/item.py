"""Items: what is to be computed, stored or checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from lucid.codegen.emit.lowering import RULES
from lucid.codegen.kernel_ir.regions import BufferView
from lucid.ir.graph import Node, Value
from lucid.ir.op import OPS
from lucid.ir.types import Shape


@dataclass(eq=False, slots=True)
class Item:
    """One thing to do.

    Attributes:
        op: name of the op that computes `value`; or "store" (operand 0 into `region`), "check"
            (that the indices in operand 0 lie within `limits`), "write_at", "add_to" (overlapping
            windows), "partial_sum" (of blocks of an axis into `region`), "host" (a call of Python)
            or a region op, whose operands are what it reads and then what it fills.
        operands: what is read; may be views.
        shape: the iteration shape of a store; otherwise that of the value.
        after: items that must have run, besides the producers of the operands.
        cell: the graph input that a store of the step's new state goes to.
        overwritten: a later item writes over parts of what this store leaves.
    """

    op: str
    node: Node | None
    operands: tuple[Value, ...]
    shape: Shape
    value: Value | None = None
    region: BufferView | None = None
    after: list[Item] = field(default_factory=list)
    limits: tuple[int, int] = (0, 0)
    cell: Value | None = None
    overwritten: bool = False
    index: int = -1

    def __str__(self) -> str:
        name = self.op if self.region is None else f"{self.op} -> {self.region.buffer}"
        return f"{name}{list(self.shape)}"


SCANS = frozenset(op.name for op in OPS.values() if op.kind == "scan")


def is_reduction(item: Item) -> bool:
    """Whether the item folds axes of its operand."""
    return item.node is not None and item.op == item.node.op.name and item.node.op.is_reduction


def reads_elements(item: Item) -> bool:
    """Whether an item reads of each operand, broadcast, the element that it works on."""
    return item.op in RULES or item.op in ("store", "partial_sum") or is_reduction(item)
