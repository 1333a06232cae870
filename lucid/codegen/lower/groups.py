"""Groups of items that will be one kernel: their loop dims, and each item's indices over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from lucid.codegen.kernel_ir.affine import AffineExpr, IndexMap, SplitNeeded, form, fresh_dim
from lucid.codegen.lower.item import SCANS, Item
from lucid.ir.extents import divides
from lucid.ir.graph import Graph, Value
from lucid.ir.op import OPS

# Why two items aren't in one group.
OTHER_LOOPS = "its elements aren't those that the other's loops go over"
OTHER_ELEMENTS = "it reads another element than the one that is computed there"
LONG_ROW = "a whole row must be summed first, and it is too long for the cache"
TOO_MUCH = "one kernel would compute too much at a time"


class FusionGroup:
    """Items in one kernel.

    Attributes:
        kind: "loop", "contract" (a matrix product and what follows it elementwise) or "opaque".
        sizes: the loop dims, none of them of size 1, in the order of creation.
        reduced: the dims over which the group's reductions go.
        forms: for each item the indices of its element; for reductions those of the result.
        stages: how many reductions, one waiting for the other, come before an item's value.
        cuts: pairs of dims, an outer and an inner one, that were one dim of a product.
        closed: nothing may join.
    """

    def __init__(self, kind: str, number: int) -> None:
        self.kind = kind
        self.number = number
        self.items: list[Item] = []
        self.sizes: dict[int, int] = {}
        self.reduced: frozenset[int] = frozenset()
        self.forms: dict[Item, IndexMap] = {}
        self.operand_forms: dict[Item, IndexMap] = {}
        self.stages: dict[Item, int] = {}
        self.cuts: list[tuple[int, int]] = []
        self.closed = kind == "opaque"
        self.cost = 0

    def split(self, dim: int, inner: int) -> None:
        """Cut a dim into an outer and an inner one of size `inner`."""
        outer, low = fresh_dim(), fresh_dim()
        count = self.sizes[dim] // inner
        sizes: dict[int, int] = {}
        for name, size in self.sizes.items():
            sizes.update({outer: count, low: inner} if name == dim else {name: size})
        self.sizes = {name: size for name, size in sizes.items() if size != 1}
        single = [name for name, size in sizes.items() if size == 1]
        if self.kind == "contract":
            self.cuts = [(low if a == dim else a, outer if b == dim else b) for a, b in self.cuts]
            self.cuts.append((outer, low))

        def cut(forms: IndexMap) -> IndexMap:
            done = (f.split(dim, outer, low, inner) for f in forms)
            return tuple(form(f.offset, [t for t in f.terms if t[0] not in single]) for f in done)

        self.forms = {item: cut(forms) for item, forms in self.forms.items()}
        self.operand_forms = {item: cut(forms) for item, forms in self.operand_forms.items()}
        if dim in self.reduced:
            self.reduced = self.reduced - {dim} | ({outer, low} & set(self.sizes))

    @property
    def can_split(self) -> bool:
        """Whether dims may be cut: those of a matrix product may, if they can be joined again."""
        return self.kind != "contract" or self.items[0].op == "matmul"

    def has_gaps(self, address: AffineExpr) -> bool:
        """Whether an access doesn't walk through the parts of a cut dim as through one dim."""
        return any(
            address.coefficient(outer) != address.coefficient(inner) * self.sizes[inner]
            for outer, inner in self.cuts
        )

    def rename(self, names: dict[int, int]) -> None:
        def renamed(table: dict[Item, IndexMap]) -> dict[Item, IndexMap]:
            return {k: tuple(f.renamed(names) for f in forms) for k, forms in table.items()}

        self.forms = renamed(self.forms)
        self.operand_forms = renamed(self.operand_forms)
        self.sizes = {names.get(dim, dim): size for dim, size in self.sizes.items()}
        self.reduced = frozenset(names.get(dim, dim) for dim in self.reduced)

    def reduced_in_order(self) -> list[int]:
        return [dim for dim in self.sizes if dim in self.reduced]

    def is_inner(self, forms: Iterable[AffineExpr]) -> bool:
        """Whether these indices vary along a reduced dim."""
        return any(f.dims & self.reduced for f in forms)

    def serial_dims(self) -> list[int]:
        """The dims whose rounds must run in order, one by one."""
        found = frozenset[int]()
        for item in self.items:
            if item.op in _SERIAL:
                found |= _SERIAL[item.op](item, self)
        return [dim for dim in self.sizes if dim in found]

    @property
    def row_size(self) -> int:
        return prod(self.sizes[dim] for dim in self.reduced)

    def __str__(self) -> str:
        dims = ", ".join(
            f"{'r' if dim in self.reduced else 'd'}{dim}={size}" for dim, size in self.sizes.items()
        )
        lines = [f"group {self.number} {self.kind} ({dims}):"]
        return "\n".join([*lines, *(f"  {item}" for item in self.items)])


def dims_of(forms: Iterable[AffineExpr]) -> frozenset[int]:
    """The loops that addresses vary with."""
    return frozenset[int]().union(*(f.dims for f in forms))


def match_radix(
    a: Sequence[int],
    b: Sequence[int],
    group: FusionGroup,
    other: FusionGroup,
    names: dict[int, int],
) -> bool:
    """Pair the dims of an index in two groups, innermost first; the longer of a pair is cut."""
    for mine, theirs in zip(a, b, strict=False):
        m, n = group.sizes[mine], other.sizes[theirs]
        if m != n:
            if not m or not n or not (divides(n, m) or divides(m, n)):
                return False
            raise SplitNeeded(mine, n) if m > n else SplitNeeded(theirs, m)
        if names.setdefault(theirs, mine) != mine:
            return False
    return len(a) == len(b)


def reduced_axes(item: Item) -> tuple[int, ...]:
    """The axes of the operand that a reduction folds."""
    assert item.node is not None
    attributes = item.node.attributes
    return tuple(attributes["axes"]) if "axes" in attributes else (attributes["axis"],)


def serial_axes(item: Item) -> range:
    """The axes of what a "write_at" writes whose indices may be equal: they go one by one."""
    assert item.node is not None
    axis: int = item.node.attributes["axis"]
    return range(axis, axis + (len(item.operands[0].shape) if writes_slices(item) else 1))


def _serial_of_write(item: Item, group: FusionGroup) -> frozenset[int]:
    return dims_of(group.forms[item][axis] for axis in serial_axes(item))


def _serial_of_windows(item: Item, group: FusionGroup) -> frozenset[int]:
    """Those within a window, and from one to the next, which overlaps it."""
    assert item.node is not None
    return dims_of(group.forms[item][len(item.node.result.shape) :])


def _serial_of_sum(item: Item, group: FusionGroup) -> frozenset[int]:
    """Those that add to the same elements."""
    return dims_of(group.operand_forms[item]) - dims_of(group.forms[item])


_SERIAL: dict[str, Callable[[Item, FusionGroup], frozenset[int]]] = {
    **dict.fromkeys(SCANS, lambda item, group: group.reduced),
    "write_at": _serial_of_write,
    "add_to": _serial_of_windows,
    "partial_sum": _serial_of_sum,
}


def writes_slices(item: Item) -> bool:
    """Whether a "write_at" has an index for each slice, rather than for each element."""
    return item.node is not None and item.node.op.name.startswith("index_")


def kind_of(item: Item) -> str:
    """How an item is placed: "map", "reduce", "contract", "closed" (a loop alone), "opaque"."""
    if item.op == "store":
        return "map"
    if item.op in ("write_at", "add_to", *SCANS):
        return "closed"
    kind = OPS[item.op].kind if item.op in OPS else ""
    if item.op in ("take", "gather") or kind in ("map", "random"):
        return "map"
    return {"reduce": "reduce", "contract": "contract"}.get(kind, "opaque")


def values_for_sums(graph: Graph) -> set[Value]:
    """The values that nothing but reductions read, as they are or through views."""
    users = graph.uses()
    needed = {*graph.outputs, *(value for _, value in graph.writes)}
    found: set[Value] = set()
    for node in reversed(graph.nodes):
        for value in node.results:
            readers = users.get(value, ())
            reduced = all(
                reader.op.is_reduction or (reader.op.is_view and found.issuperset(reader.results))
                for reader in readers
            )
            if readers and reduced and value not in needed:
                found.add(value)
    return found
