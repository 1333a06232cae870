"""What a matrix product is, and how it is blocked on a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

from lucid.codegen import costs
from lucid.codegen.llvm.target import ELEMENT_BYTES, Target
from lucid.ir.extents import ceil_div, hint, is_open, replaced


@dataclass(frozen=True, slots=True)
class Contraction:
    """C[m, n] = A[m, k] B[k, n].

    Attributes:
        element: "float", "double", "i32" or "i64".
        a_strides, b_strides: of rows and columns, in elements; any values. Unit column strides of B
            are the fast case.
        tiling: what was chosen already, where sizes are open, or were when it was.
    """

    m: int
    n: int
    k: int
    element: str
    a_strides: tuple[int, int]
    b_strides: tuple[int, int]
    tiling: Tiling | None = None


@dataclass(frozen=True, slots=True)
class Panels:
    """Panels of equal width, side by side.

    Attributes:
        low, high: the columns of the first one, and those behind the last one.
        width: vectors.
        tail: lanes of the last vector; 0 for all; None: code finds out how many there are.
    """

    low: int
    high: int
    width: int
    tail: int | None


def panels_of(n: int, lanes: int, width: int) -> list[Panels]:
    """How n columns are cut: into panels of so many vectors, and what is narrower behind them.

    That is one panel; of an open n some, each half as wide as those before. Any may be the last.
    """
    rest = n % (width * lanes)
    if not is_open(rest):
        behind = [Panels(n - rest, n, -(-rest // lanes), rest % lanes)] if rest else []
        return [Panels(0, n - rest, width, 0), *behind]
    vectors, tail = ceil_div(n, lanes), None if lanes > 1 else 0
    low, found = 0, []
    for each in (width, *(lower for lower in (8, 4, 2, 1) if lower < width)):
        high = low + (vectors - low) // each * each
        found.append(Panels(low * lanes, high * lanes, each, tail))
        low = high
    return found


@dataclass(frozen=True)
class Tiling:
    """What is chosen for a contraction on a target, before code is written.

    Attributes:
        lanes: of the vectors that accumulate; along n, or along k for dot products.
        height: rows of a tile.
        width: vectors of a row of a tile.
        block: rows of A that are packed together.
        dots: both operands are contiguous along k, and one has few rows: dot products, of which a
            tile has height x width.
    """

    lanes: int
    height: int
    width: int
    block: int
    pack_a: bool
    pack_b: bool
    dots: bool

    def __str__(self) -> str:
        flags = (("a", self.pack_a), ("b", self.pack_b), ("dots", self.dots))
        chosen = "".join(f" {name}" for name, is_set in flags if is_set)
        return f"{self.lanes} lanes {self.height}x{self.width} of {self.block}{chosen}"


@dataclass(frozen=True)
class Plan(Tiling):
    """How a contraction is computed."""

    spec: Contraction

    @property
    def tiling(self) -> Tiling:
        """What was chosen, without the contraction."""
        return Tiling(**{field.name: getattr(self, field.name) for field in fields(Tiling)})

    @cached_property
    def vectors(self) -> int:
        """Vectors that cover a row of C."""
        return -(-self.spec.n // self.lanes)

    @property
    def panel(self) -> int:
        """Columns of a tile."""
        return self.width * self.lanes

    @cached_property
    def panels(self) -> list[Panels]:
        """How a row of C is cut."""
        return panels_of(self.spec.n, self.lanes, self.width)

    @property
    def a_elements(self) -> int:
        """Size of the packed block of A."""
        return self.block * self.spec.k if self.pack_a else 0

    @property
    def b_elements(self) -> int:
        """Size of the packed B, filled up to whole vectors."""
        return self.vectors * self.lanes * self.spec.k if self.pack_b else 0


def plan(spec: Contraction, target: Target) -> Plan:
    """Choose tile, packing and blocking from the sizes; of open ones from those at hand."""
    if spec.tiling is not None:
        return Plan(**vars(spec.tiling), spec=spec)
    at_hand = replaced(spec, hint)
    many = costs.OPEN_VECTORS * target.lanes(spec.element)
    fitting = (
        costs.OPEN_ROWS if is_open(spec.m) else at_hand.m,
        many if is_open(spec.n) else at_hand.n,
        many if is_open(spec.k) else at_hand.k,
    )
    chosen = _chosen(at_hand, fitting, target)
    return chosen if at_hand is spec else replace(chosen, spec=spec)


@lru_cache(maxsize=1024)
def _chosen(spec: Contraction, fitting: tuple[int, int, int], target: Target) -> Plan:
    """Choose for sizes that are known; the tile for these rows, columns and inner indices."""
    rows, columns, inner = fitting
    # A vector no wider than the rows of C: the next power of two of n.
    lanes = min(target.lanes(spec.element), 1 << max(columns - 1, 0).bit_length())
    height, width = _tile(rows, -(-columns // lanes), target.registers)
    size = ELEMENT_BYTES[spec.element]
    dots = are_dots(spec.m if spec.m <= 2 else rows, spec.n, spec.k, spec.a_strides, spec.b_strides)
    if dots:
        lanes = min(target.lanes(spec.element), 1 << max(inner - 1, 0).bit_length())
        height, width = (max(1, min(n, costs.DOTS_AT_ONCE)) for n in (rows, columns))
        if height > 1 < width:
            height, width = _tile(rows, columns, target.registers)
    large = spec.k * spec.n * size > costs.PACK_BYTES and spec.m >= costs.PACK_ROWS
    is_far = abs(spec.a_strides[1]) * size >= costs.PAGE_BYTES and spec.n >= costs.PACK_COLUMNS
    pack_a = (large or is_far) and spec.m * spec.k * size > costs.PACK_BYTES and not dots
    pack_b = large or spec.b_strides[1] != 1 or spec.m >= costs.PACK_ALL_ROWS
    rows = max(costs.BLOCK_BYTES // (spec.k * size * height or 1), 1) * height
    return Plan(
        spec=spec,
        lanes=lanes,
        height=height,
        width=width,
        block=min(rows, -(-spec.m // height) * height),
        pack_a=pack_a,
        pack_b=pack_b and spec.k != 0 and not dots,
        dots=dots,
    )


def are_dots(m: int, n: int, k: int, a_strides: Sequence[int], b_strides: Sequence[int]) -> bool:
    """Whether each element is summed by itself, in lanes along k: its epilogue has one lane.

    Few rows don't pay for a copy of B; those of longer sums for folding them, one by one. An open
    number of rows may be any.
    """
    if a_strides[1] != 1 or b_strides[0] != 1:
        return False
    few = 2 if is_open(m) or k < costs.DOT_LENGTH * m else costs.DOT_ROWS
    return hint(n) == 1 or (b_strides[1] != 1 and hint(m) <= few)


def _tile(m: int, vectors: int, registers: int) -> tuple[int, int]:
    """The tile that covers m rows and `vectors` columns in the least time.

    A round of k multiplies and adds each row with each vector, and loads both.
    """
    best: tuple[float, int, int] | None = None
    for width in range(1, min(vectors, 8) + 1):
        for height in range(1, min(m, 14) + 1):
            if height * width + width + 1 >= registers:
                break
            cost = 0.0
            bodies = 0
            for h, rows in ((height, m // height), (m % height, int(m % height > 0))):
                for w, cols in ((width, vectors // width), (vectors % width, 1)):
                    if h and w and rows and cols:
                        loads = costs.SCALAR_LOAD * h + costs.VECTOR_LOAD * w
                        cost += rows * cols * (h * w + loads)
                        bodies += 1
            score = cost * (1 + 0.01 * bodies)
            if best is None or score < best[0] * (1 - 1e-9):
                best = score, height, width
    return best[1:] if best else (1, 1)


def scratch_bytes(spec: Contraction, target: Target) -> int:
    """Bytes of scratch memory (64-byte aligned) that one running `Emitter` needs."""
    p = plan(spec, target)
    return aligned_bytes(p.a_elements, spec.element) + aligned_bytes(p.b_elements, spec.element)


def aligned_bytes(elements: int, element: str) -> int:
    """The size of an array, rounded up so that another one may follow."""
    return -(-elements * ELEMENT_BYTES[element] // 64) * 64


def whole_a_bytes(p: Plan) -> int:
    """Memory of all of A, packed."""
    rows = -(-p.spec.m // p.height) * p.height
    return aligned_bytes(rows * p.spec.k if p.pack_a else 0, p.spec.element)


def product_scratch(p: Plan) -> int:
    """Memory of the packed operands of one product."""
    return whole_a_bytes(p) + aligned_bytes(p.b_elements, p.spec.element)
